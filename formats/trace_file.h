/* Trace files: which experts a model's tokens chose, what the cache had of them, and what the
 * others took, written while the model runs.
 *
 * A stream of MessagePack in blocks, each with its length and its XXH3-64, so that a reader knows
 * a whole block from a cut or damaged one: a process that is killed leaves everything up to its
 * last block. docs/FORMAT.md specifies it to the byte. The first block is the header; then records
 * follow in the order in which things happened:
 *
 *   eval    tokens that go through the layers together begin: one, or a chunk of a prompt
 *   layer   what they chose in one layer, what was at hand, and what the layer took; it stands
 *           where the layer had chosen, so ops and hints of its time come after it
 *   hints   what the engine expected a coming layer to choose (comes before that layer's record)
 *   op      a slot changed hands for another reason than the choice of the layer under way
 *   read    an expert arrived from the drive
 *   done    the tokens of the last eval are through, the head included
 *
 * Times are nanoseconds of a monotonic clock since the header was written. Thread: one per handle.
 */
#ifndef SL_TRACE_FILE_H
#define SL_TRACE_FILE_H

#include "base/limits.h"
#include "base/mem.h"

#define SL_TRACE_VERSION 1
#define SL_TRACE_TEXT 256    /* bytes of a string, its end included; longer ones are cut */
#define SL_TRACE_CLASSES 4   /* SL_EC_CLASSES_MAX; a static assertion keeps them equal */
#define SL_TRACE_PHASES 7    /* SL_PHASES of engine/phases.h, in that order */
#define SL_TRACE_NONE 0xffff /* in choices: no expert (a choice that drop_cold left out) */
#define SL_TRACE_NUMBER_MAX (UINT64_C(1) << 60) /* times and sizes are at most this */
#define SL_TRACE_SLOTS_MAX (1u << 20)           /* slot numbers of ops are below this */

/* ---- what is in it ------------------------------------------------------------------------------
 */

/* One layer of the model; n_experts 0: it has none, and top_k is 0 too. */
struct sl_trace_layer_info {
    uint32_t n_experts, top_k; /* top_k: the most that a token chooses there */
    uint32_t size_class;       /* slots of one size are a class */
    uint64_t expert_bytes;     /* what reading an expert brings; 0: not known */
    uint64_t slot_bytes;       /* what its slot takes; 0: not known */
    uint64_t weights;          /* of an expert; 0: not known */
};

struct sl_trace_header {
    uint32_t version;
    /* Strings end with 0; empty: not known. */
    char program[SL_TRACE_TEXT];      /* "sluice 0.1.0", or where the trace was converted from */
    char model[SL_TRACE_TEXT];        /* general.name, else the file's name */
    char file[SL_TRACE_TEXT];         /* name without its folder */
    char architecture[SL_TRACE_TEXT]; /* general.architecture */
    char machine[SL_TRACE_TEXT];      /* sluice_build_info */
    char policy[SL_TRACE_TEXT];       /* name of the cache policy: sl_ec_policy_find takes it */
    char io[SL_TRACE_TEXT];           /* "io_uring", "pread", "mmap" */
    char prefetch[SL_TRACE_TEXT];     /* "auto", "off", "forced" */
    char isa[SL_TRACE_TEXT];
    char lossy[SL_TRACE_TEXT]; /* options that change answers, as run prints them; empty: none */
    uint64_t model_hash; /* XXH3 over names, types, sizes and places of all tensors; 0: not known */
    uint64_t model_bytes; /* of all its files; 0: not known */
    uint64_t ram_bytes;   /* budget; 0: none */
    uint64_t unix_s;      /* when recording began; 0: not known */
    uint32_t n_ctx, threads, chunk;
    uint32_t n_classes;                 /* 1..SL_TRACE_CLASSES */
    uint32_t n_slots[SL_TRACE_CLASSES]; /* open when recording began; all 0: not known */
    uint32_t ring_slots;                /* for passing prompt reads */
    uint32_t measured;                  /* enum sl_trace_measured bits: what the records hold */
    uint32_t n_layers;                  /* 1..SL_LAYERS_MAX */
    struct sl_trace_layer_info layer[SL_LAYERS_MAX];
};

/* What is not measured is not 0 but unknown. Converted traces have fewer of these. Weights and
 * states are in every layer record, or in none, as these bits say. */
enum sl_trace_measured {
    SL_TRACE_WEIGHTS = 1, /* router weights */
    SL_TRACE_STATES = 2,  /* whether experts were at hand */
    SL_TRACE_TIMES = 4,   /* of layers and evals */
    SL_TRACE_HINTS = 8,
    SL_TRACE_READS = 16, /* single reads */
    SL_TRACE_OPS = 32,   /* everything that replay needs to repeat the run exactly */
};

/* Where an expert was when it was chosen. */
enum sl_trace_state {
    SL_TRACE_MISSING = 0,
    SL_TRACE_FLYING = 1,  /* being read already */
    SL_TRACE_AT_HAND = 2, /* in memory */
    SL_TRACE_UNKNOWN = 3,
};
#define SL_TRACE_STATE_MASK 3u
/* or'ed in: it had been read ahead on a guess, and this is its first use */
#define SL_TRACE_AHEAD 4u

/* How a missing expert of a prompt chunk got its slot. */
enum sl_trace_entry {
    SL_TRACE_ENTERED = 0,     /* it stays */
    SL_TRACE_PASSED_FREE = 1, /* until it is released, in a free slot */
    SL_TRACE_PASSED_OVER = 2, /* until it is released, in a slot taken from another expert */
};

struct sl_trace_eval {
    uint32_t session;  /* numbered from 0 in a recording; of a converted trace: its prompt */
    uint32_t position; /* of the first token in its context */
    uint32_t n_tokens; /* 1..SL_CHUNK_MAX */
    bool prompt;       /* given, not decoded; several at once go through the ring */
    uint64_t begin_ns;
};

/* The tokens of the last eval, all of them, at one layer; layers of an eval ascend, though not
 * every layer need have a record. Arrays are borrowed: the caller's in writing, in reading valid
 * until the next record. */
struct sl_trace_layer {
    uint32_t layer, n_tokens, top_k;
    const uint16_t *chosen; /* [n_tokens][top_k], of a token each once; SL_TRACE_NONE: left out */
    const float *weights;   /* [n_tokens][top_k]; NULL without SL_TRACE_WEIGHTS */
    const uint8_t *states;  /* [n_tokens][top_k]; NULL without SL_TRACE_STATES */
    /* enum sl_trace_entry of the distinct experts whose state is SL_TRACE_MISSING, ascending by
     * expert: one for each of them, or NULL and 0, as for single tokens and where nothing was
     * missing */
    const uint8_t *entries;
    uint32_t n_entries;
    uint64_t read_bytes; /* demanded for this layer */
    uint64_t begin_ns;   /* when its experts had been chosen */
    uint64_t dense_ns;   /* computing since the layer before, but for experts */
    uint64_t expert_ns;  /* computing experts */
    uint64_t wait_ns;    /* waiting for the drive */
};

struct sl_trace_hints {
    uint32_t layer;  /* they are about */
    uint32_t visits; /* of any layer until its turn, this one included: how long they protect */
    bool prompt;
    uint32_t n;
    const uint16_t *experts;    /* [n] likeliest first, each once; n may be 0 */
    const float *probabilities; /* [n] */
};

enum sl_trace_op_kind {
    SL_TRACE_GUESS = 0,       /* the expert got a slot on a guess, its read begins */
    SL_TRACE_COMING = 1,      /* the same, a prompt's coming layer; how: enum sl_trace_entry */
    SL_TRACE_WARM = 2,        /* the same, of a hot list */
    SL_TRACE_LANDED = 3,      /* a read of one of these kinds is complete */
    SL_TRACE_GONE = 4,        /* it failed or was taken back: the slot is empty again */
    SL_TRACE_LET_GO = 5,      /* COMING that was held for its layer is no longer */
    SL_TRACE_SLOT_CLOSED = 6, /* a slot of class expert (layer: unused) left service */
    SL_TRACE_SLOT_OPENED = 7, /* slot number expert returned to service */
    /* Of a prompt's layer under way, so that they stand in order with the rest: */
    SL_TRACE_ENTRY = 8,    /* a missing expert got its slot; how: as in the layer's entries */
    SL_TRACE_RELEASED = 9, /* an expert has been computed and is no longer held */
    SL_TRACE_OP_KINDS
};

/* Whether how says something. */
static inline bool sl_trace_op_has_how(enum sl_trace_op_kind kind)
{
    return kind == SL_TRACE_COMING || kind == SL_TRACE_ENTRY;
}

struct sl_trace_op {
    enum sl_trace_op_kind kind;
    uint32_t layer, expert;
    uint32_t how; /* of SL_TRACE_COMING and SL_TRACE_ENTRY; of others it is not recorded: 0 */
};

struct sl_trace_read {
    uint32_t layer, expert;
    uint32_t why; /* 0 a token waits, 1 a prompt waits, 2 a guess, 3 a prompt's coming layer,
                     4 hot list, 5 loading */
    uint64_t bytes;
    uint64_t begin_ns; /* handed to the system */
    uint64_t took_ns;  /* until it was noticed that it is complete */
};

struct sl_trace_done {
    uint64_t end_ns;
    uint64_t phase_ns[SL_TRACE_PHASES]; /* of this eval */
};

/* ---- writing ------------------------------------------------------------------------------------
 */

struct sl_trace_writer;

/* Creates path, in place of a trace or an empty file that is there (a pipe or a device is written
 * to as it is; a file that is no trace, and a trace that another program is recording into, is left
 * alone: SLUICE_E_IO), and writes the header. Takes
 * sl_trace_writer_bytes of the budget, and never more. The file is no temporary one: what has been
 * written can be read at any time. Errors: SLUICE_E_IO (with errno's sentence), SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM. Owner: the caller; sl_trace_close. */
SL_MUST_CHECK sluice_err sl_trace_create(const char *path, const struct sl_trace_header *h,
                                         struct sl_budget *b, sluice_error *e,
                                         struct sl_trace_writer **out);
uint64_t sl_trace_writer_bytes(void); /* what create charges: under 300 KiB */

/* Each adds a record. Nothing is allocated. Blocks go to the system at 64 KiB, and with the first
 * layer, read or done whose time is half a second or more after that of the last block. A record
 * that breaks what is said above (a layer outside an eval, an expert that the header's layer does
 * not have) is an assertion where it can be told at no cost; the reader tells the rest. Times of
 * eval, layer and done records do not go back. Floats that are not finite are written as 0. The
 * first failure of the system stops the recording
 * for good: what follows is dropped, and sl_trace_failed tells. */
void sl_trace_put_eval(struct sl_trace_writer *w, const struct sl_trace_eval *r);
void sl_trace_put_layer(struct sl_trace_writer *w, const struct sl_trace_layer *r);
void sl_trace_put_hints(struct sl_trace_writer *w, const struct sl_trace_hints *r);
void sl_trace_put_op(struct sl_trace_writer *w, const struct sl_trace_op *r);
void sl_trace_put_read(struct sl_trace_writer *w, const struct sl_trace_read *r);
void sl_trace_put_done(struct sl_trace_writer *w, const struct sl_trace_done *r);
/* Hands what is there to the system now: for the end of an answer, before a long pause. */
void sl_trace_flush(struct sl_trace_writer *w);

/* Time of the file's clock, now. */
uint64_t sl_trace_now_ns(const struct sl_trace_writer *w);
/* The failure that stopped the recording, once: SLUICE_OK every other time. */
sluice_err sl_trace_failed(struct sl_trace_writer *w, sluice_error *e);
/* Writes what is left, an end mark, and closes. NULL is fine. Errors: SLUICE_E_IO, if it was not
 * told yet. */
SL_MUST_CHECK sluice_err sl_trace_close(struct sl_trace_writer *w, sluice_error *e);

/* ---- reading ------------------------------------------------------------------------------------
 */

enum sl_trace_kind {
    SL_TRACE_END = 0, /* no more records */
    SL_TRACE_EVAL = 1,
    SL_TRACE_LAYER = 2,
    SL_TRACE_HINT = 3,
    SL_TRACE_OP = 4,
    SL_TRACE_READ = 5,
    SL_TRACE_DONE = 6,
};

struct sl_trace_record {
    enum sl_trace_kind kind;
    union {
        struct sl_trace_eval eval;
        struct sl_trace_layer layer;
        struct sl_trace_hints hints;
        struct sl_trace_op op;
        struct sl_trace_read read;
        struct sl_trace_done done;
    } u;
};

struct sl_trace_reader;

/* The first bytes of a trace file: is this one? bytes: how many there are, 16 are enough. */
bool sl_trace_is(const void *data, uint64_t bytes);

/* Opens a file, a pipe, or - (standard input), block by block in fixed memory (under 1 MiB of the
 * budget). Everything is compared with its checksum and checked: layers, experts and counts are in
 * range, records come in the order that is said above, floats are finite, an expert stands once
 * among the choices of a token and among hints, and entries are as many as what was missing.
 * Errors: SLUICE_E_NOT_FOUND, SLUICE_E_IO, SLUICE_E_FORMAT (not a trace, or nonsense),
 * SLUICE_E_VERSION (newer: says which this program reads), SLUICE_E_TRUNCATED (not even the header
 * is whole), SLUICE_E_CORRUPT (with the offset of the block), SLUICE_E_LIMIT, SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_trace_open(const char *path, struct sl_budget *b, sluice_error *e,
                                       struct sl_trace_reader **out);

/* The same from bytes that come from elsewhere (unpacked, or read already to see what they are).
 * The function puts 1 to bytes of them into buf and their number into *got; 0: there are no more.
 */
typedef sluice_err sl_trace_source_fn(void *user, void *buf, uint64_t bytes, uint64_t *got,
                                      sluice_error *e);
struct sl_trace_source {
    sl_trace_source_fn *fn;
    void *user;
    const char *name; /* for messages; copied */
};
SL_MUST_CHECK sluice_err sl_trace_open_source(const struct sl_trace_source *source,
                                              struct sl_budget *b, sluice_error *e,
                                              struct sl_trace_reader **out);
const struct sl_trace_header *sl_trace_get_header(const struct sl_trace_reader *r);
/* The next record. A file that ends without its end mark, at a block's border or within a block, is
 * no error: kind SL_TRACE_END, and sl_trace_cut tells; so it does where the last block is as long
 * as it should be but does not match its checksum (a machine that lost power). Any other damage is
 * SLUICE_E_CORRUPT. After an error or the end: the same again. */
SL_MUST_CHECK sluice_err sl_trace_next(struct sl_trace_reader *r, struct sl_trace_record *out,
                                       sluice_error *e);
/* After the end: the recording did not end by itself; *lost: bytes after the last whole block. */
bool sl_trace_cut(const struct sl_trace_reader *r, uint64_t *lost);
void sl_trace_reader_close(struct sl_trace_reader *r); /* NULL is fine */

#endif
