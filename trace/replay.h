/* A trace through the real books of the expert cache: how often would this policy and so many slots
 * have hit?
 *
 * Slots are filled as the engine fills them, with a drive that delivers at once: a token's experts
 * of a layer are looked up together, then the missing ones come in; a prompt's chunk passes through
 * the ring; what the engine expected is protected as it was (hints). Reads ahead are left out,
 * since they depend on the drive's idle moments, which another size would have elsewhere: this is a
 * run with --prefetch off.
 *
 * Of decoded tokens that is what a real run does, hit for hit. A prompt's chunk that chooses more
 * experts of a layer than have slots displaces some of the coldest residents, in the engine those
 * that are not held when a read finds no slot: that depends on when reads arrive and on how many
 * experts are computed at once, so a few residents after it may be others (as_recorded: the same).
 */
#ifndef SL_REPLAY_H
#define SL_REPLAY_H

#include "expert_cache/expert_cache.h"
#include "trace/trace.h"

enum sl_replay_pool { SL_REPLAY_ONE = 0, SL_REPLAY_PER_LAYER = 1 };

/* A visit, after its choices have been looked up: uses, and how many of them were in a slot.
 * Nonzero gives up (SLUICE_E_CANCELLED). */
typedef int sl_replay_visit_fn(void *user, uint64_t visit, uint32_t uses, uint32_t hits,
                               uint64_t read_bytes);

struct sl_replay_config {
    const struct sl_ec_policy *policy; /* NULL: the default; ignored with optimum */
    bool optimum;                      /* Belady's: evicts what is used again last (optimum.h) */
    enum sl_replay_pool pool;
    /* More slots than experts are taken as so many. */
    uint32_t n_slots[SL_TRACE_CLASSES];  /* one pool; a class each */
    uint32_t layer_slots[SL_LAYERS_MAX]; /* a pool for each layer */
    bool skip_prompts;                   /* prompts do not pass through the cache */
    bool as_recorded; /* repeats the recording: reads ahead, hot list, closed slots included, and
                         all experts at hand from the start where each has a slot. Needs
                         SL_TRACE_OPS, one pool, the recording's own policy and n_slots */
    sl_replay_visit_fn *on_visit; /* NULL: nobody asks */
    void *user;                   /* handed to it */
};

/* Of decoded tokens and of prompts. cold: uses of experts that no visit before has used, which no
 * cache has; a chunk's tokens all look up before anything is read. */
struct sl_replay_sums {
    uint64_t uses, hits, cold, read_bytes;
};

struct sl_replay_result {
    struct sl_replay_sums decode, prompt;
    struct sl_replay_sums layer[SL_LAYERS_MAX]; /* decode */
    uint64_t evictions;
    /* as_recorded: decoded tokens whose hits differ from the recording, layer by layer, and where
     * the first of them is (eval index) */
    uint64_t tokens_compared, tokens_differ, first_differs;
};

/* Errors: SLUICE_E_ARG (fewer slots than a layer's choice needs, which the sentence names; a
 * recording that cannot be repeated), SLUICE_E_CANCELLED, SLUICE_E_LIMIT, SLUICE_E_NOMEM. Thread:
 * pure. */
SL_MUST_CHECK sluice_err sl_replay(const struct sl_trace *t, const struct sl_replay_config *c,
                                   struct sl_budget *b, sluice_error *e,
                                   struct sl_replay_result *out);

/* How large a cache, in words of a user. */
struct sl_replay_size {
    double share; /* of the experts, > 0: per layer max(top_k, floor(share * n + 1/2)), in one pool
                     the sum of that over the layers */
    uint64_t bytes; /* else: as many as fit, divided among size classes in proportion */
    uint32_t slots; /* else: so many, all layers together */
};
/* Fills n_slots and layer_slots of c; bits > 0: of an expert's weight, in place of the recorded
 * size. *bytes: what they take (0: not known). Errors: SLUICE_E_ARG: too few (names the least), or
 * bytes or bits where the trace does not say how large an expert is. */
SL_MUST_CHECK sluice_err sl_replay_size(const struct sl_trace *t, const struct sl_replay_size *size,
                                        double bits, struct sl_replay_config *c, uint64_t *bytes,
                                        sluice_error *e);

/* Bits a weight of the experts of the layers with the fewest, as recorded, a container's padding
 * included; 0: not known. */
double sl_replay_recorded_bits(const struct sl_trace_header *h);
/* Bytes that reading an expert of the layer brings; 0: not known. bits > 0: if the weights of the
 * smallest experts had so many, and where others are larger these were by as much; records of a
 * container are padded as there. */
uint64_t sl_replay_expert_bytes(const struct sl_trace_header *h, uint32_t layer, double bits);

#endif
