/* The paged store behind expert_store.h, for the files of this folder only.
 *
 *   expert_store.c   open, close, figures        store_chunk.c   a chunk at a layer
 *   store_sizes.c    the memory plan             store_guess.c   reads nobody waits for yet
 *   store_reads.c    requests and arrivals       store_memory.c  shrinking and growing
 *   store_load.c     everything at open          store_map.c     mapped files instead
 *   store_sums.c     checksums
 *
 * An expert on its way from the file is a flight: up to three requests into one slot, one for each
 * part, or a single one where all lie in one record. To the books a request is a part. Flights are
 * few and preallocated. A slot whose read failed is handed back to the books only when the last of
 * its requests is complete, since until then the drive may still write to it. */
#ifndef SL_STORE_H
#define SL_STORE_H

#include "expert_cache/expert_store.h"

#define FLIGHTS_MAX 128u
#define RING_MAX 16u         /* slots a class for passing prompt reads */
#define AHEAD_FLIGHTS_MAX 4u /* guesses at the drive at once */
#define WARM_FLIGHTS_MAX 4u
#define GUESSES_MAX 64u
#define BATCH_MAX (FLIGHTS_MAX * SL_EC_PARTS_MAX)

enum fetch_why { /* numbered as in struct sl_trace_read */
    FETCH_DEMAND = 0, /* a token waits */
    FETCH_PROMPT,     /* a prompt chunk waits */
    FETCH_AHEAD,      /* a guess about a token */
    FETCH_COMING,     /* a guess about a prompt chunk */
    FETCH_WARM,       /* a hot list */
    FETCH_LOAD,       /* everything, at open: one part a flight */
    FETCH_WHYS
};

struct flight {
    struct sl_io_request r[SL_EC_PARTS_MAX];
    uint32_t layer, expert, slot;
    uint32_t next_free;
    uint8_t why;
    uint8_t pending; /* parts not yet handed back by io; 0: the flight is free */
    uint8_t dropped; /* of these, those that were cancelled in time */
    bool failed;     /* for whatever reason, cancelling included */
    bool adopted;    /* a guess that the open chunk has come to need */
    bool promoted;   /* it had not started by then */
    bool useful;     /* chosen while it flew */
    uint32_t place;  /* FETCH_WARM: in the list */
    uint64_t arrived_bytes;
    uint64_t submitted_ns, needed_ns;
};

struct store_slot {
    uint32_t flight; /* into it, or SL_EC_NONE */
    uint32_t layer;  /* of its latest expert */
    uint8_t guess;   /* FETCH_AHEAD or FETCH_COMING: read on a guess and not used since; 0: no */
    bool closed;
    uint64_t took_ns; /* its read, from submission to being noticed */
};

struct store_layer {
    struct sl_expert_shape shape;
    const struct sl_expert_source *source;
    uint32_t first; /* expert 0 among all experts */
    uint64_t first_sum;
    uint32_t size_class;
    uint32_t turn;                     /* among the layers with experts */
    uint32_t n_reads;                  /* of an expert: its parts, or 1: its record */
    uint64_t read_at[SL_EC_PARTS_MAX]; /* in the slot: the area of each read */
    uint64_t expert_bytes;
    uint8_t all_reads, input_reads; /* masks */
    struct sl_expert_layer_stats stats;
};

/* An expert of the open chunk. */
struct wanted {
    struct sl_ec_lease lease;
    uint32_t expert;
    uint8_t handed; /* steps */
    bool released;
};

struct chunk {
    bool open, in_order, failed;
    uint32_t layer, n_tokens;
    uint32_t n;          /* distinct experts, ascending in list */
    uint32_t n_waiting;  /* neither leased nor released */
    uint32_t n_left;     /* not handed out whole */
    uint32_t next_lease; /* in order: the first that may be waiting */
    uint32_t next_out;   /* in order: the first not handed out */
    struct wanted list[SL_EXPERTS_MAX];
    uint32_t place[SL_EXPERTS_MAX]; /* in list, or SL_EC_NONE */
};

/* What the next layer of a prompt will want: read through the ring, leased until its turn. */
struct coming {
    uint32_t layer; /* or SL_EC_NONE */
    uint32_t n, next, n_held;
    uint32_t experts[SL_EXPERTS_MAX];
    struct sl_ec_lease held[RING_MAX];
};

struct guesses {
    uint32_t n;
    struct sl_expert_id list[GUESSES_MAX];
};

struct warm_list {
    struct sl_expert_id *ids; /* [n_slots] */
    uint32_t n, next;
};

struct sl_expert_store {
    struct sl_budget *budget;
    const struct sl_log *log;
    const struct sl_expert_watch *watch; /* or NULL */
    const struct sl_gguf *gguf;
    const struct sl_sums *sums_file; /* or NULL */
    struct sl_io *io;
    struct sl_io_file *const *files;
    struct sl_ec *ec; /* NULL: files are mapped */
    struct sl_arena arena;
    struct sl_region memory;
    struct store_map *map; /* NULL: read, not mapped */
    uint32_t block;

    struct store_layer *layers; /* [n_layers] */
    uint32_t n_layers, n_turns, now_turn;
    uint32_t ring_slots;
    uint32_t n_slots; /* of all classes */
    uint32_t first_slot[SL_EC_CLASSES_MAX];
    uint32_t slots_of[SL_EC_CLASSES_MAX], open_of[SL_EC_CLASSES_MAX], leased_of[SL_EC_CLASSES_MAX];
    bool whole; /* a slot for each expert, or files that are mapped */
    uint64_t class_at[SL_EC_CLASSES_MAX], slot_bytes[SL_EC_CLASSES_MAX];
    struct store_slot *slots; /* [n_slots] */
    uint64_t *sums;           /* per expert and read; 0: not yet read */
    uint8_t *predicted;       /* per expert: hinted at for its layer's coming token */
    struct sl_ec_hot *hot;    /* [n_slots] for sl_expert_hottest */

    struct flight *flights;                    /* [FLIGHTS_MAX] */
    uint32_t free_flight, n_flights, n_needed; /* out; of these, the open chunk's */
    uint32_t flights_of[FETCH_WHYS];
    struct sl_io_request *batch[BATCH_MAX];
    uint32_t n_batch;
    uint64_t needed_since_ns, needed_bytes;
    bool waited;        /* the last arrivals were waited for */
    double ns_per_byte; /* of needed reads, decayed mean; 0: not known */

    struct chunk chunk;
    struct coming coming;
    struct guesses guesses;
    struct warm_list warm;
    struct sl_read_ahead ahead;
    sluice_error error; /* of the open chunk, or of loading */
    struct sl_expert_stats stats;
};

/* ---- store_reads.c ----------------------------------------------------------------------------
 */

/* Bytes of a part's area. */
uint64_t store_part_room(uint64_t block, uint64_t part_bytes);
/* Reads that an expert takes. */
static inline uint32_t store_n_reads(const struct sl_expert_shape *s)
{
    return s->record_bytes > 0 ? 1 : s->n_parts;
}
/* The most bytes of read r of any expert. */
static inline uint64_t store_read_bytes(const struct sl_expert_shape *s, uint32_t r)
{
    return s->record_bytes > 0 ? s->record_bytes : s->part[r].bytes;
}
/* Where a part is in its file. */
const struct sl_gguf_tensor *store_part_tensor(const struct store_layer *l, uint32_t expert,
                                               uint32_t part);
uint64_t store_part_offset(const struct store_layer *l, uint32_t expert, uint32_t part);
uint8_t *store_part_address(const struct sl_expert_store *s, uint32_t layer, uint32_t expert,
                            uint32_t part, uint32_t slot);

void store_flights_init(struct sl_expert_store *s);
static inline bool store_flights_left(const struct sl_expert_store *s)
{
    return s->free_flight != SL_EC_NONE;
}
/* Where what read r of an expert brings lies. */
struct store_place {
    uint32_t shard;
    uint64_t offset, bytes;
};
struct store_place store_read_place(const struct sl_expert_store *s, struct sl_expert_id id,
                                    uint32_t r);
/* Prepares these reads; they start with the next flush. A flight must be left. */
struct flight *store_read(struct sl_expert_store *s, struct sl_expert_id id, uint32_t slot,
                          uint32_t reads, enum fetch_why why);
void store_flush(struct sl_expert_store *s);
/* Takes note of what has arrived, waiting for at least min requests. */
void store_reap(struct sl_expert_store *s, uint32_t min);
/* The open chunk needs what flies on a guess. */
void store_adopt(struct sl_expert_store *s, struct flight *f);
/* Takes back the requests that have not started. */
void store_cancel(struct sl_expert_store *s, struct flight *f);

/* ---- store_sums.c -----------------------------------------------------------------------------
 */

/* Compares what read r of an expert brought with what is known of it. SLUICE_E_CORRUPT names file,
 * layer, expert and offset. */
SL_MUST_CHECK sluice_err store_check(struct sl_expert_store *s, struct sl_expert_id id, uint32_t r,
                                     const void *data, sluice_error *e);
/* Whether that was done before. */
bool store_checked(struct sl_expert_store *s, struct sl_expert_id id, uint32_t r);

/* ---- store_chunk.c ----------------------------------------------------------------------------
 */

/* Starts whatever may start now. */
void store_pump(struct sl_expert_store *s);
/* The expert's place in the open chunk, or NULL. */
struct wanted *store_wanted(struct sl_expert_store *s, uint32_t layer, uint32_t expert);
/* Its read failed, but another may be tried. */
void store_want_again(struct sl_expert_store *s, struct wanted *w);
void store_lease(struct sl_expert_store *s, uint32_t layer, uint32_t expert, struct sl_ec_lease *l);
void store_unlease(struct sl_expert_store *s, struct sl_ec_lease *l);
/* A slot has been reserved: enters what its eviction wasted. */
void store_took_slot(struct sl_expert_store *s, const struct sl_ec_slot_of *got);

/* ---- store_guess.c ----------------------------------------------------------------------------
 */

/* The layer is about to be computed: its guesses come true or not. */
void store_guesses_due(struct sl_expert_store *s, uint32_t layer, bool in_order);
/* The expert in this slot is used. */
void store_guess_used(struct sl_expert_store *s, uint32_t slot);
/* What was read on a guess into this slot is gone, or never came. */
void store_guess_wasted(struct sl_expert_store *s, uint32_t layer, uint32_t slot, uint64_t bytes);
/* Its read failed: lets go of it if it is held for the coming layer. */
void store_coming_failed(struct sl_expert_store *s, const struct flight *f);
void store_pump_guesses(struct sl_expert_store *s);

/* ---- the others -------------------------------------------------------------------------------
 */

/* Reads every expert into the slots, in the order of the files. */
SL_MUST_CHECK sluice_err store_load_all(struct sl_expert_store *s,
                                        const struct sl_expert_store_config *c, sluice_error *e);

SL_MUST_CHECK sluice_err store_map_open(struct sl_expert_store *s, sluice_error *e);
void store_map_close(struct sl_expert_store *s);
/* Compares what the open chunk needs, each expert at its first use. */
SL_MUST_CHECK sluice_err store_map_check(struct sl_expert_store *s, sluice_error *e);
const uint8_t *store_map_part(const struct sl_expert_store *s, uint32_t layer, uint32_t expert,
                              uint32_t part);

/* What open allocates in its arena. */
struct store_counts {
    uint64_t n_layers, n_experts, n_sums, n_slots;
};
uint64_t store_arena_bytes(const struct store_counts *n, bool map);
/* The books' view of the layers, [SL_LAYERS_MAX]. */
void store_books_layers(const struct sl_expert_shape *shapes, uint32_t n_layers,
                        const struct sl_expert_sizes *z, struct sl_ec_layer *out);

/* ---- who records it: see sl_expert_watch -------------------------------------------------------
 */

static inline void store_tell(const struct sl_expert_store *s, enum sl_trace_op_kind kind,
                              uint32_t layer, uint32_t expert, uint32_t how)
{
    if (s->watch == NULL) return;
    s->watch->on_op(s->watch->user, &(struct sl_trace_op){kind, layer, expert, how});
}

/* How a prompt's expert got the slot. */
static inline uint32_t store_entry(enum sl_ec_answer answer, const struct sl_ec_slot_of *got)
{
    if (answer == SL_EC_ENTERS) return SL_TRACE_ENTERED;
    return got->evicted_layer == SL_EC_NONE ? SL_TRACE_PASSED_FREE : SL_TRACE_PASSED_OVER;
}

#endif
