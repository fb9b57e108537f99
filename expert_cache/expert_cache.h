/* The books of the expert cache: which expert is in which slot, and who has to go.
 *
 * No bytes are held here and none are read: a paged store owns the memory of the slots and the
 * reads, and asks. One pool of slots serves all layers; layers whose experts differ in size fall
 * into at most four size classes, each with slots of its own. Sized once, in one arena; afterwards
 * nothing allocates. The same calls in the same order give the same answers on every machine.
 *
 * A visit is one token's chosen experts of one layer. The order of calls for one:
 *
 *   sl_ec_visit     counts the uses, moves the clock; the chosen ones are no victims until the next
 *   sl_ec_find      per expert: in a slot?        -> sl_ec_acquire
 *   sl_ec_reserve   if not: a slot for it, perhaps somebody else's -> read into it, sl_ec_acquire
 *   sl_ec_arrived   per part that was read (gate, up, down: compute may start on the first)
 *   sl_ec_release   after computing
 *
 * A slot is empty, in flight (some parts still to come), ready, doomed (its read failed while it
 * was leased), or closed (given back to the system). A leased slot, one in flight, and the chosen
 * experts of the visit under way are never victims; a protected expert only where nobody else is.
 *
 * A prompt chunk calls sl_ec_visit for each of its tokens of the layer, then sl_ec_visit_over,
 * protects the chunk's experts for one visit, then takes them in ascending order with SL_EC_PROMPT:
 * those that are not hotter than their victim pass through a slot that is free again when released.
 * Such a slot is leased before its read arrives; one that arrives without a lease has become an
 * ordinary resident.
 *
 * Find is O(1). Eviction is O(layers) plus O(experts of a layer) for each layer that was visited or
 * evicted from since the eviction before, whatever the number of slots.
 *
 * Owner: the caller of open. Thread: everything on the driver; workers only read leased slots. */
#ifndef SL_EXPERT_CACHE_H
#define SL_EXPERT_CACHE_H

#include "base/limits.h"
#include "base/mem.h"
#include "expert_cache/policy.h"

#define SL_EC_CLASSES_MAX 4
#define SL_EC_PARTS_MAX 3
#define SL_EC_SLOTS_MAX (SL_LAYERS_MAX * SL_EXPERTS_MAX)
#define SL_EC_NONE UINT32_MAX /* no slot, no expert, no layer */

struct sl_ec_layer {
    uint32_t n_experts;  /* 0: the layer has none */
    uint32_t top_k;      /* 1..min(n_experts, SL_TOP_K_MAX) */
    uint32_t n_parts;    /* 1..SL_EC_PARTS_MAX reads make an expert complete */
    uint32_t size_class; /* below SL_EC_CLASSES_MAX */
};

struct sl_ec_config {
    const struct sl_ec_layer *layers; /* [n_layers]; copied */
    uint32_t n_layers;
    uint32_t n_slots[SL_EC_CLASSES_MAX];
    uint32_t ring_slots;               /* at most so many a class for passing prompt reads; >= 1 */
    const struct sl_ec_policy *policy; /* NULL: the default */
};

/* What the numbers of slots mean, per class. */
struct sl_ec_floor {
    uint32_t fewest[SL_EC_CLASSES_MAX]; /* one layer's top-k: fewer cannot compute a layer */
    /* One token's experts of all layers: with fewer, plain LRU keeps next to nothing (at this
     * number less one layer's and below exactly nothing). */
    uint32_t lru_hits[SL_EC_CLASSES_MAX];
};

enum sl_ec_why {
    SL_EC_DEMAND = 0, /* a token waits for it */
    SL_EC_PROMPT = 1, /* a prompt chunk waits for it */
    SL_EC_GUESS = 2,  /* a prediction: takes free slots and those of colder, unprotected experts */
};
#define SL_EC_WHYS 3

enum sl_ec_answer {
    SL_EC_ENTERS = 0, /* it gets a slot and stays */
    SL_EC_PASSES = 1, /* PROMPT: it gets a slot until it is released */
    SL_EC_COLDER = 2, /* GUESS: not hotter than the coldest; nothing was done */
    SL_EC_BUSY = 3,   /* all slots are leased or in flight: reap or release, then ask again */
};
#define SL_EC_ANSWERS 4

struct sl_ec_slot_of {
    uint32_t slot;          /* index over all classes; SL_EC_NONE unless ENTERS or PASSES */
    uint32_t evicted_layer; /* who was there; SL_EC_NONE: nobody */
    uint32_t evicted_expert;
};

/* A lease pins its slot. Owner: the caller, until sl_ec_release, which clears it. */
struct sl_ec_lease {
    uint32_t slot; /* SL_EC_NONE: no lease */
    uint32_t layer, expert;
};

struct sl_ec_stats {
    uint64_t visits, uses;
    uint64_t hits;        /* uses of experts that were ready */
    uint64_t hits_flying; /* uses of experts that were still in flight */
    uint64_t answers[SL_EC_WHYS][SL_EC_ANSWERS];
    uint64_t evictions, failures;
    uint64_t guesses_used; /* experts of SL_EC_GUESS that were used while in their slot */
    uint32_t residents, in_flight, leased, free_slots, closed; /* slots, now */
};

struct sl_ec; /* opaque */

/* Fewest slots. Thread: pure. */
void sl_ec_floor(const struct sl_ec_layer *layers, uint32_t n_layers, struct sl_ec_floor *out);

/* Sorts layers into size classes: bytes[l] is the slot size that layer l needs (0: it has no
 * experts), class_of[l] receives its class, class_bytes[c] the slot size of each class. Equal sizes
 * share a class; where there are more sizes than classes, the neighbours whose union wastes fewest
 * bytes (lower size first) are joined. Returns the number of classes. Thread: pure. */
uint32_t sl_ec_size_classes(const uint64_t *bytes, uint32_t n_layers, uint32_t *class_of,
                            uint64_t class_bytes[SL_EC_CLASSES_MAX]);

/* Bytes that open will charge; 0 where the config is not legal. */
uint64_t sl_ec_bytes(const struct sl_ec_config *c);

/* Errors: SLUICE_E_ARG for a config out of its ranges, SLUICE_E_BUDGET for fewer slots than the
 * floor (the sentence says how many are needed), SLUICE_E_NOMEM where the books do not fit into the
 * budget or the system refuses. */
SL_MUST_CHECK sluice_err sl_ec_open(const struct sl_ec_config *c, struct sl_budget *b,
                                    sluice_error *e, struct sl_ec **out);
/* NULL is fine. Closing with a live lease or a read in flight is an assertion. */
void sl_ec_close(struct sl_ec *c);

/* One token's chosen experts of one layer (distinct, in the order in which ties are to age). Calls
 * may repeat a layer (prompt chunks), and come in any order of layers. */
void sl_ec_visit(struct sl_ec *c, uint32_t layer, const uint32_t *experts, uint32_t n);

/* The visits of several tokens are over: what the last one chose may be evicted again, in order
 * that the chunk can go through few slots. */
void sl_ec_visit_over(struct sl_ec *c);

/* The slot of an expert that is ready or in flight, else SL_EC_NONE. */
uint32_t sl_ec_find(const struct sl_ec *c, uint32_t layer, uint32_t expert);

/* What sl_ec_reserve would answer now. The expert is not in a slot. */
enum sl_ec_answer sl_ec_would(struct sl_ec *c, uint32_t layer, uint32_t expert, enum sl_ec_why why);
/* Gives the expert a slot, in flight with no part arrived. */
enum sl_ec_answer sl_ec_reserve(struct sl_ec *c, uint32_t layer, uint32_t expert,
                                enum sl_ec_why why, struct sl_ec_slot_of *out);

/* Parts (bit i: part i) of a slot in flight are there; each arrives once. */
void sl_ec_arrived(struct sl_ec *c, uint32_t slot, uint32_t parts);
/* Its read failed: the expert is out of the cache, the slot free once its leases are released. */
void sl_ec_failed(struct sl_ec *c, uint32_t slot);
/* Parts that have arrived; all of them: the slot is ready. */
uint32_t sl_ec_parts(const struct sl_ec *c, uint32_t slot);

/* Pins the slot of an expert that sl_ec_find finds. */
void sl_ec_acquire(struct sl_ec *c, uint32_t layer, uint32_t expert, struct sl_ec_lease *lease);
void sl_ec_release(struct sl_ec *c, struct sl_ec_lease *lease);

/* Until so many more visits (of any layer) have begun, the expert is a victim only where no other
 * is. Never shortens an earlier mark; the expert need not be in a slot yet. */
void sl_ec_protect(struct sl_ec *c, uint32_t layer, uint32_t expert, uint32_t visits);

/* Takes a slot of the class out of service: a free one, else the coldest one's, so that the store
 * can give back its memory. Returns SL_EC_NONE at the floor or where all are leased or in flight.
 */
uint32_t sl_ec_slot_close(struct sl_ec *c, uint32_t size_class);
/* Puts a closed slot back into service. */
void sl_ec_slot_open(struct sl_ec *c, uint32_t slot);

/* The hottest experts, resident or not, hottest first (never used ones are left out): what a hot
 * list remembers. Returns how many, at most max. Cost: experts * log experts. */
struct sl_ec_hot {
    uint32_t layer, expert;
    double score;
    uint64_t last_use;
};
uint32_t sl_ec_hottest(const struct sl_ec *c, struct sl_ec_hot *out, uint32_t max);

/* Empty slots of the class. */
uint32_t sl_ec_free_slots(const struct sl_ec *c, uint32_t size_class);

void sl_ec_stats(const struct sl_ec *c, struct sl_ec_stats *out);

/* Asserts that the books are whole: every table agrees with every other, and each layer's kept
 * coldest is the coldest. O(slots + experts). In builds without NDEBUG every call above that
 * changes something ends with it in small caches, and every n-th in large ones (see check.c). */
void sl_ec_check(const struct sl_ec *c);

#endif
