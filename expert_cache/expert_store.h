/* Where routed experts live: read from the model's files into slots when they are needed, behind
 * leases. The books (expert_cache.h) say which expert is in which slot; this store owns the memory
 * of the slots and the reads into them.
 *
 * A chunk of tokens at a layer goes like this:
 *
 *   sl_expert_begin    what the tokens chose; reads of what is missing start at once
 *   sl_expert_expect   (any number) what a coming layer will probably want: protected from
 *                      eviction, and read ahead where that pays (read_ahead.h)
 *   sl_expert_next     the experts that are there, as they become so; waits only when none is
 *   sl_expert_release  after computing on one
 *   sl_expert_end      after the last, or to give up
 *
 * An expert's parts are read by themselves, so that gate and up can be computed while down is still
 * in flight; in a container they lie in one record, which is read as a whole. Where a model has a
 * slot for every expert (n_slots equal to the experts) all are read at open and nothing is ever
 * evicted: a fully resident model is the same code.
 *
 * What is read is compared: a container's record with its checksum; otherwise a part's XXH3 is
 * remembered at its first read and compared at every later one, and with a sums file
 * (formats/sums.h) the first is compared too.
 *
 * Memory of a slot: for each read an area of sl_io_room(block, bytes) bytes from a multiple of
 * block on, data at base + (file offset mod block), so that direct reads need no bounce copy.
 *
 * Thread: everything on the driver; workers may read a leased view. */
#ifndef SL_EXPERT_STORE_H
#define SL_EXPERT_STORE_H

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "expert_cache/expert_cache.h"
#include "expert_cache/read_ahead.h"
#include "formats/gguf.h"
#include "formats/records.h"
#include "formats/sums.h"
#include "formats/trace_file.h"
#include "io/io.h"

#define SL_EXPERT_PARTS_MAX SL_EC_PARTS_MAX

/* One weight matrix of an expert; all experts of a layer agree on it. */
struct sl_expert_part {
    uint32_t type; /* enum sl_type or enum sl_sq_type */
    uint32_t rows, cols;
    uint64_t row_bytes;
    uint64_t bytes; /* of the matrix: sl_type_matrix_bytes */
};

/* The experts of one layer. n_experts 0: the layer has none. The last part is down. */
struct sl_expert_shape {
    uint32_t n_experts;
    uint32_t top_k;
    uint32_t n_parts; /* 3: gate, up, down; 2: gate|up in one, down */
    struct sl_expert_part part[SL_EXPERT_PARTS_MAX];
    uint64_t record_bytes; /* the largest record of an expert; 0: parts lie apart */
};

/* Where they are in the files: for each part either one tensor [n_experts][rows][cols], or a
 * tensor for each expert (older Mixtral files). */
struct sl_expert_source {
    const struct sl_gguf_tensor *tensor[SL_EXPERT_PARTS_MAX];        /* whole, or NULL */
    const struct sl_gguf_tensor *const *single[SL_EXPERT_PARTS_MAX]; /* [n_experts], or NULL */
    const struct sl_container_record *const *record; /* [n_experts] that hold all parts, or NULL */
};

/* What part areas are aligned to: a file whose own block (sl_io_file_block) is larger has to be
 * opened buffered. Thread: pure. */
uint32_t sl_expert_block(void);

/* Bytes of all experts of a layer, as the file has them. */
uint64_t sl_expert_shape_bytes(const struct sl_expert_shape *s);

/* ---- sizes: the memory plan, before anything is opened ------------------------------------------
 */

struct sl_expert_sizes {
    uint32_t n_classes;
    uint32_t class_of[SL_LAYERS_MAX];
    uint64_t slot_bytes[SL_EC_CLASSES_MAX];
    uint32_t n_experts[SL_EC_CLASSES_MAX]; /* of all layers of the class: more slots are useless */
    struct sl_ec_floor floor;
    uint64_t file_bytes; /* of all experts of all layers */
};

/* Thread: pure. */
void sl_expert_sizes(const struct sl_expert_shape *shapes, uint32_t n_layers,
                     struct sl_expert_sizes *out);
/* The most slots that fit into so many bytes, books included, divided among the classes in
 * proportion to their experts, each at least at its floor and at most at its experts. False where
 * the floor does not fit; n_slots is then the floor. Thread: pure. */
bool sl_expert_slots_for_bytes(const struct sl_expert_shape *shapes, uint32_t n_layers,
                               const struct sl_expert_sizes *z, uint64_t bytes,
                               uint32_t n_slots[SL_EC_CLASSES_MAX]);
/* The same for a total number of slots. */
bool sl_expert_slots_for_count(const struct sl_expert_sizes *z, uint32_t total,
                               uint32_t n_slots[SL_EC_CLASSES_MAX]);
/* Slots a class for passing prompt reads, of so many. Thread: pure. */
uint32_t sl_expert_ring_slots(const uint32_t n_slots[SL_EC_CLASSES_MAX]);
/* Bytes that open will charge for so many slots, books, requests and remembered sums included. */
uint64_t sl_expert_store_bytes(const struct sl_expert_shape *shapes, uint32_t n_layers,
                               const struct sl_expert_sizes *z,
                               const uint32_t n_slots[SL_EC_CLASSES_MAX]);

/* ---- the store ----------------------------------------------------------------------------------
 */

struct sl_expert_store;

/* A guess about a coming layer. */
struct sl_expert_hint {
    uint32_t expert;
    float probability;
};

/* Hints that the store has taken in: see sl_expert_expect. */
struct sl_expert_expected {
    uint32_t layer;
    uint32_t visits; /* that the likely ones are protected for */
    bool prompt;
    uint32_t n;
    const struct sl_expert_hint *hints;
};

/* Who records what happens here: each is called as soon as it has happened, on the thread that has
 * the store. Choices, ops and hints, in this order, let books of the same size (expert_cache.h)
 * repeat the run: all but a read that fails while a layer waits for it. */
struct sl_expert_watch {
    void *user;
    /* One choice of the layer that begins, in the order of sl_expert_need.chosen; SL_EC_NONE is
     * left out. state: enum sl_trace_state, and SL_TRACE_AHEAD. */
    void (*on_choice)(void *user, uint32_t index, uint8_t state);
    /* The layer that begins takes its slots from here on: what came before, came before it. */
    void (*on_layer)(void *user);
    void (*on_op)(void *user, const struct sl_trace_op *op);
    void (*on_hints)(void *user, const struct sl_expert_expected *x);
    /* All parts of an expert have arrived, but not while everything is read at open. begin_ns is
     * that of sl_now_ns. */
    void (*on_read)(void *user, const struct sl_trace_read *r);
};

/* Called while everything is read at open, every few pieces, with the bytes since the last call;
 * nonzero gives up. */
typedef int sl_expert_progress_fn(void *user, uint64_t bytes);

struct sl_expert_store_config {
    const struct sl_gguf *gguf;             /* stays open as long as the store */
    struct sl_io *io;                       /* shared with whoever reads with sl_io_wait */
    struct sl_io_file *const *files;        /* [shards]; outlive the store */
    bool map;                               /* read nothing, map the files: a baseline, no budget */
    const struct sl_expert_shape *shapes;   /* [n_layers]; copied */
    const struct sl_expert_source *sources; /* [n_layers]; outlive the store, as their arrays do */
    uint32_t n_layers;
    uint32_t n_slots[SL_EC_CLASSES_MAX];
    const struct sl_ec_policy *policy; /* NULL: the default */
    enum sl_read_ahead_mode read_ahead;
    const struct sl_sums *sums; /* NULL: none; outlives the store */
    const struct sl_log *log;
    const struct sl_expert_watch *watch; /* NULL: nobody; outlives the store */
    sl_expert_progress_fn *progress; /* or NULL */
    void *progress_user;
};

/* Takes the memory; reads all experts where there is a slot for each, none otherwise. More slots
 * than experts are not taken. Errors of reading carry layer, expert, file and offset; fewer slots
 * than the floor are SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_expert_store_open(const struct sl_expert_store_config *c,
                                              struct sl_budget *b, sluice_error *e,
                                              struct sl_expert_store **out);
/* NULL is fine. Waits for reads in flight. Closing with a live lease is an assertion. */
void sl_expert_store_close(struct sl_expert_store *s);

/* ---- a chunk at a layer -------------------------------------------------------------------------
 */

struct sl_expert_need {
    uint32_t layer;
    uint32_t n_tokens, top_k;
    const uint32_t *chosen; /* [n_tokens][top_k]; each token's are distinct. May hold fewer real
                               choices: SL_EC_NONE entries are skipped */
    bool in_order; /* hand out whole experts, ascending (a prompt chunk); otherwise steps, as they
                      arrive */
};

/* Counts the uses, token by token, and starts reading what is missing, as far as there are slots:
 * the rest follows as slots are released. No other layer may be begun. What fails is told by
 * sl_expert_next. */
void sl_expert_begin(struct sl_expert_store *s, const struct sl_expert_need *need);

struct sl_expert_view {
    const uint8_t *part[SL_EXPERT_PARTS_MAX]; /* leased: valid until release; NULL: not there yet */
};

enum sl_expert_step {
    SL_EXPERT_INPUTS = 1, /* all parts but the last are there: gate and up may be computed */
    SL_EXPERT_OUTPUT = 2, /* the last is there too */
};

struct sl_expert_ready {
    uint32_t expert;
    uint32_t steps; /* of enum sl_expert_step; each is handed out once, INPUTS not after OUTPUT */
    struct sl_expert_view view;
};

/* Stores up to max (>= 1) experts with steps that have become possible, ascending by expert;
 * *n == 0: every step of every expert has been handed out. Waits for the drive only where nothing
 * is possible. An error is that of a demand read (layer, expert, file, offset), after which only
 * release and end may be called. Where slots are few, experts of a chunk of several tokens have to
 * be released before the next ones can be read: if all slots are leased, SLUICE_E_STATE. */
SL_MUST_CHECK sluice_err sl_expert_next(struct sl_expert_store *s, struct sl_expert_ready *out,
                                        uint32_t max, uint32_t *n, sluice_error *e);
/* The expert has been computed on, both steps (after an error: or not). Starts waiting reads. */
void sl_expert_release(struct sl_expert_store *s, uint32_t expert);
/* Ends the layer: releases what is still leased, forgets what has not been handed out. */
void sl_expert_end(struct sl_expert_store *s);

/* The likely experts of a layer, likeliest first (a prompt chunk: ascending by expert). prompt: the
 * reads pass through the ring as those of sl_expert_begin with in_order would. */
void sl_expert_expect(struct sl_expert_store *s, uint32_t layer, const struct sl_expert_hint *hints,
                      uint32_t n, bool prompt);

/* In a slot, all parts there. For --drop-cold. */
bool sl_expert_at_hand(const struct sl_expert_store *s, uint32_t layer, uint32_t expert);

/* Takes note of completed reads and starts waiting ones, without waiting: to be called now and then
 * while computing for long. */
void sl_expert_poll(struct sl_expert_store *s);

/* Cancels what was to be read ahead and has not started, and waits for the rest: afterwards another
 * thread may own the store and its io, or the memory may be given back. A hot list is put off, not
 * forgotten. No layer is begun. */
void sl_expert_settle(struct sl_expert_store *s);

/* ---- memory while running ----------------------------------------------------------------------
 */

/* Gives back at least so many bytes by closing the coldest slots, or as many as the floor allows.
 * Settles first. Returns the bytes given back. No layer is begun. */
uint64_t sl_expert_store_shrink(struct sl_expert_store *s, uint64_t bytes);
/* Whether every expert has a slot now, so that none is displaced. */
bool sl_expert_store_is_whole(const struct sl_expert_store *s);
/* Opens closed slots again as far as the budget allows. */
void sl_expert_store_regrow(struct sl_expert_store *s);

/* ---- hot lists ---------------------------------------------------------------------------------
 */

/* Reads the experts of a list, hottest first, with low priority into free slots, behind everything
 * that is asked for meanwhile. Entries that do not fit this model are skipped. */
struct sl_expert_id {
    uint32_t layer, expert;
};
void sl_expert_warm(struct sl_expert_store *s, const struct sl_expert_id *ids, uint32_t n);
/* The hottest experts now, hottest first, as many as there are slots at most. Returns how many. */
uint32_t sl_expert_hottest(const struct sl_expert_store *s, struct sl_expert_id *out, uint32_t max);

/* ---- figures -----------------------------------------------------------------------------------
 */

/* Since open. Bytes are those of experts' parts, without the rounding of direct reads, counted when
 * they arrive. What is read ahead for the coming layer of a prompt counts as read ahead. */
struct sl_expert_stats {
    uint64_t uses, hits;   /* chosen experts, one a token and layer; those ready when chosen */
    uint64_t hits_flying;  /* being read already: neither counted as hit nor read again */
    uint64_t demand_bytes; /* a token waited for them; prompt chunks apart: */
    uint64_t prompt_bytes;
    uint64_t ahead_bytes, ahead_useful_bytes, ahead_wasted_bytes; /* wasted: evicted unused */
    uint64_t warm_bytes;                                          /* hot list */
    uint64_t load_bytes;                                          /* at open */
    uint64_t evictions;
    uint64_t stall_ns; /* sl_expert_next waited for the drive */
    uint64_t read_ns;  /* demand or prompt reads were outstanding: stall + hidden */
    uint64_t checked;  /* parts whose sum was compared */
    uint64_t predicted, predicted_used; /* hints of decode tokens at or above 1/2, and those used */
    uint32_t n_slots, n_open, n_resident; /* now */
    uint64_t slot_bytes_open;             /* now */
};
void sl_expert_get_stats(const struct sl_expert_store *s, struct sl_expert_stats *out);

struct sl_expert_layer_stats {
    uint64_t uses, hits, hits_flying;
    uint64_t demand_bytes, prompt_bytes;
    uint64_t ahead_bytes, ahead_useful_bytes, ahead_wasted_bytes;
    uint64_t predicted, predicted_used;
    uint64_t stall_ns;
};
void sl_expert_get_layer_stats(const struct sl_expert_store *s, uint32_t layer,
                               struct sl_expert_layer_stats *out);

#endif
