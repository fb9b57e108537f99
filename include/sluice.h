/* Sluice: running Mixture-of-Experts language models from C.
 *
 * Two nouns: a *model* (an open file, its weights and its tokenizer) and a *session* (one
 * conversation: a context with its KV cache). A program opens a model, opens a session on it, and
 * calls sluice_generate():
 *
 *     sluice_options opt = SLUICE_OPTIONS_INIT;
 *     sluice_error error;
 *     sluice_model *model;
 *     if (sluice_model_open("model.gguf", &opt, &model, &error)) puts(error.text);
 *
 * Sluice is a guest in your process: it never prints, exits, reads the environment or installs
 * signal handlers. Every call that can fail returns a sluice_err (0 is success) and takes a
 * sluice_error pointer (NULL if you do not care) that receives one sentence about what was found,
 * what was wanted and what to do. Logs go to a callback.
 *
 * Same model, same tokens: same logits, bit for bit, whatever the threads, chunk size, instruction
 * set, memory, cache policy or way of reading. The options that change that are off by default and
 * say so: they are called lossy.
 *
 * A Mixture-of-Experts model larger than ram_bytes streams: everything but its routed experts stays
 * in memory, and those are read from its files into a fixed number of slots as they are chosen.
 *
 * Threads, in three classes named at each function: *safe* (any thread, any time), *one per handle*
 * (calls on one handle must not overlap; different handles are independent), and *not while others
 * run* (no other call on the same model or its sessions). One exception to the second: the sessions
 * of one model share its compute threads, so their evaluations must not overlap.
 *
 * Structures begin with struct_size and are initialised by their _INIT macro; zero always means
 * "the default". Strings are UTF-8. Sizes are bytes unless the name says otherwise. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#include "sluice_err.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#define SLUICE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SLUICE_API
#define SLUICE_MUST_CHECK
#endif

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0

typedef struct sluice_model sluice_model;
typedef struct sluice_session sluice_session;
typedef struct sluice_decoder sluice_decoder;

/* ---- about the library ------------------------------------------------------------------ */

/* Returns "0.1.0". Thread: safe. */
SLUICE_API const char *sluice_version(void);

/* Returns one line about the build and this machine: compiler, architecture, instruction sets
 * found. Thread: safe. */
SLUICE_API const char *sluice_build_info(void);

/* Returns the list name of a code ("E_FORMAT"), or its general sentence; never NULL. Thread: safe.
 */
SLUICE_API const char *sluice_err_name(sluice_err code);
SLUICE_API const char *sluice_err_text(sluice_err code);

/* Returns the name of the index-th supported architecture as general.architecture spells it, NULL
 * past the last. Thread: safe. */
SLUICE_API const char *sluice_arch_name(uint32_t index);

/* Returns the name of the index-th cache policy, which is number index + 1 of enum sluice_cache;
 * NULL past the last. Thread: safe. */
SLUICE_API const char *sluice_cache_policy_name(uint32_t index);

/* Returns the names that options.chat_template takes, separated by ", ". Thread: safe. */
SLUICE_API const char *sluice_chat_template_names(void);

/* ---- options ---------------------------------------------------------------------------- */

enum sluice_log_level {
    SLUICE_LOG_ERROR = 1,
    SLUICE_LOG_WARN = 2,
    SLUICE_LOG_INFO = 3,
    SLUICE_LOG_DEBUG = 4
};

/* line: one sentence without a newline, valid during the call. Runs on the calling thread; must not
 * call Sluice. */
typedef void sluice_log_fn(void *user, int level, const char *line);

/* Progress of loading: done of total bytes. Returns nonzero to give up (the call then fails with
 * SLUICE_E_CANCELLED). Runs on the calling thread, at most some hundred times. */
typedef int sluice_progress_fn(void *user, uint64_t done, uint64_t total);

enum sluice_isa {
    SLUICE_ISA_AUTO = 0,
    SLUICE_ISA_SCALAR = 1,
    SLUICE_ISA_AVX2 = 2,
    SLUICE_ISA_NEON = 3,    /* what every 64-bit ARM has */
    SLUICE_ISA_DOTPROD = 4, /* NEON with dot products of bytes */
    SLUICE_ISA_I8MM = 5,    /* and with products of byte matrices */
    SLUICE_ISA_AVX512 = 6   /* with VNNI, VBMI, GFNI: Ice Lake, Zen 4 and later */
};
enum sluice_kv { SLUICE_KV_DEFAULT = 0, SLUICE_KV_F32 = 1, SLUICE_KV_F16 = 2, SLUICE_KV_Q8 = 3 };
enum sluice_open {
    SLUICE_OPEN_HEADER = 1, /* metadata and tensor list only */
    SLUICE_OPEN_VOCAB = 2,  /* and the tokenizer, but no weights; works for vocabulary-only files */
};

/* How experts are read. */
enum sluice_io {
    SLUICE_IO_AUTO = 0,  /* io_uring where the kernel grants it, else a pool of threads */
    SLUICE_IO_URING = 1, /* refused where the kernel does not grant it, and always on Android */
    SLUICE_IO_PREAD = 2,
    SLUICE_IO_MMAP = 3, /* mapped, to compare with: what the kernel keeps is outside ram_bytes */
};
/* Which expert has to go when a slot is wanted. */
enum sluice_cache {
    SLUICE_CACHE_DEFAULT = 0,
    SLUICE_CACHE_TWO_RATE = 1, /* uses of late and uses over a longer time */
    SLUICE_CACHE_LRU = 2,
    SLUICE_CACHE_LFU = 3,
    SLUICE_CACHE_DECAYED_LFU = 4,
    SLUICE_CACHE_RECALL = 5, /* two_rate, and what followed when the text last went like this; the
                                default */
};
/* Reading experts of coming layers ahead, on a guess. */
enum sluice_prefetch {
    SLUICE_PREFETCH_AUTO = 0, /* while the drive idles, and only as long as it pays */
    SLUICE_PREFETCH_OFF = 1,
    SLUICE_PREFETCH_FORCED = 2, /* whether it pays or not: for tests */
};
/* Options that change the answers. */
enum sluice_lossy {
    SLUICE_LOSSY_EXPERTS_USED = 1,
    SLUICE_LOSSY_STICKY = 2,
    SLUICE_LOSSY_DROP_COLD = 4, /* the one that makes them depend on what happens to be cached */
};

/* For graft_layer: what is in no layer. */
enum sluice_graft {
    SLUICE_GRAFT_EMBEDDING = 0x10000, /* token_embd, and the output matrix if it is the same */
    SLUICE_GRAFT_OUTPUT = 0x10001,    /* everything else */
};

/* For ram_bytes: what is available at the call (bounded by the control group's limit) less a
 * reserve of a tenth, at least 256 MiB. */
#define SLUICE_RAM_AUTO UINT64_MAX

typedef struct sluice_options {
    uint32_t struct_size; /* sizeof(sluice_options); set by SLUICE_OPTIONS_INIT */
    uint32_t flags;       /* enum sluice_open; 0: everything */
    uint64_t ram_bytes;   /* budget for the whole process, or SLUICE_RAM_AUTO; 0: no limit, and all
                             experts stay in memory. What cannot fit is refused with the smallest
                             that would */
    uint32_t threads;     /* compute threads, 1..64, cut to the cores that affinity allows; 0: the
                             fastest of them that the control group's quota allows */
    uint32_t isa;         /* enum sluice_isa */
    uint32_t n_ctx;       /* context, tokens; 0: the model's own (4096 at most where it streams), or
                             what fits into ram_bytes */
    uint32_t kv;          /* enum sluice_kv; default int8 */
    uint32_t chunk;       /* prompt tokens that go through a layer together, 1..512; 0: from the
                             budget. Larger reads a prompt faster where it streams */
    uint32_t log_level;   /* highest level that is reported; 0: SLUICE_LOG_INFO */
    sluice_log_fn *log;   /* NULL: no log */
    void *log_user;
    sluice_progress_fn *progress; /* NULL: none */
    void *progress_user;
    const char *
        chat_template; /* a name of sluice_chat_template_names(); NULL: recognize the model's own */

    /* Streaming. None of these changes an answer. */
    const char *hot_list;  /* a file that remembers the most used experts: read at open if it is
                              there, written when the model is closed; NULL: none */
    uint32_t io;           /* enum sluice_io */
    uint32_t cache_policy; /* enum sluice_cache */
    uint32_t prefetch;     /* enum sluice_prefetch */
    uint32_t slots;        /* expert slots, all layers together; 0: as many as ram_bytes allows */

    /* Lossy: each of these changes the answers. */
    uint32_t
        experts_used;     /* at most so many experts a token and layer; 0: the model's own number */
    uint32_t sticky_size; /* experts a layer that sticky favours; 0: a quarter of them */
    float sticky;         /* prefer experts that the text has used of late: part of the router's
                             range that they gain, up to 1; 0: off */
    float drop_cold; /* leave out an expert that is not in memory if its weight is below this part
                        of an equal share, up to 1; 0: off */

    /* For finding out which layers a quantization hurts: one layer is taken from another file of
     * the same model. Sums files are not used then. */
    const char *graft_path; /* the other file; NULL: none */
    uint32_t graft_layer;   /* from 0, or enum sluice_graft */
    uint32_t reserved;      /* 0 */

    /* Recording which experts are chosen, what the cache has of them, and what the rest takes, for
     * sluice trace (docs/TRACING.md). Changes no answer. */
    const char *trace; /* a file, created when the model is opened, in place of what is there, and
                          ended when it is closed; NULL: none. Where it cannot be written to its end
                          a line of SLUICE_LOG_ERROR says so, and the evaluation goes on */
} sluice_options;

#define SLUICE_OPTIONS_INIT                                                                        \
    {                                                                                              \
        sizeof(sluice_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0,  \
            0, 0, 0, 0, 0, 0, NULL, 0, 0, NULL                                                     \
    }

/* ---- memory plan ------------------------------------------------------------------------ */

/* Where experts stream, slots fill the budget, and are closed again one by one as the context grows
 * past its first tokens: the sum stays the same. */
typedef struct sluice_plan {
    uint32_t struct_size;
    uint32_t n_ctx;        /* the context the plan is for, tokens */
    uint64_t dense_bytes;  /* attention, norms, router, head, descriptions; embeddings if shared */
    uint64_t expert_bytes; /* slots of routed experts at first, with their books */
    uint64_t tokenizer_bytes;
    uint64_t kv_bytes;        /* at n_ctx tokens */
    uint64_t kv_token_bytes;  /* for one token, all layers */
    uint64_t scratch_bytes;   /* working memory of one session */
    uint64_t process_bytes;   /* allowance for code, stacks, libraries and page tables */
    uint64_t total_bytes;     /* dense, experts, tokenizer, kv_start, scratch, process, io, state */
    uint64_t minimum_bytes;   /* the smallest ram_bytes that opens with these options, with the
                                 smallest context if none is given */
    uint64_t kv_start_bytes;  /* at the first 256 tokens where experts stream, else kv_bytes */
    uint64_t io_bytes;        /* for reading: checksums, the hot list; and a trace */
    uint64_t ram_bytes;       /* the budget: as given, or what SLUICE_RAM_AUTO found; 0: none */
    uint64_t available_bytes; /* what a process can have now; UINT64_MAX: unknown */
    uint64_t hits_bytes;      /* the ram_bytes from which on even a plain cache finds something: one
                                 token's experts of all layers; 0: no experts */
    uint64_t resident_bytes;  /* the ram_bytes with which everything stays in memory */
    uint64_t slot_bytes;      /* of the largest slot; 0: no experts */
    uint64_t model_expert_bytes; /* routed experts as the files have them */
    uint32_t n_slots;            /* expert slots at first */
    uint32_t n_slots_full;       /* and with the whole context in use */
    uint32_t n_slots_min;        /* fewest that can compute a layer */
    uint32_t n_slots_hits;       /* fewest with which hits begin, see hits_bytes */
    uint32_t n_experts;          /* routed experts of all layers: more slots are useless */
    uint32_t chunk;              /* prompt tokens that go through a layer together */
    uint32_t streams;            /* 1: not all experts stay in memory */
    uint32_t n_ctx_min;          /* the context of minimum_bytes, tokens */
    uint64_t slot_least_bytes;   /* of the smallest slot: less where layers differ in types */
    uint64_t state_bytes;        /* of recurrent layers, with the copy a session keeps; whatever the
                                    context. 0: the model has none */
} sluice_plan;

#define SLUICE_PLAN_INIT                                                                           \
    {                                                                                              \
        sizeof(sluice_plan), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  \
            0, 0, 0, 0, 0                                                                          \
    }

/* Says what opening path with opt would take, reading headers only and allocating nothing that
 * stays. Returns SLUICE_OK (also where ram_bytes is too small: compare total_bytes and
 * minimum_bytes), or the errors of sluice_model_open. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_memory_plan(const char *path,
                                                           const sluice_options *opt,
                                                           sluice_plan *plan, sluice_error *error);

/* ---- models ----------------------------------------------------------------------------- */

/* Opens a model and allocates what it needs.
 *
 *   path   a GGUF file or a container, or any part of a split one.
 *   opt    NULL for defaults; copied, not kept (strings included).
 *   out    receives the handle; set to NULL on every failure.
 *   error  filled on failure; may be NULL.
 *
 * Returns SLUICE_OK, or SLUICE_E_ARG, SLUICE_E_NOMEM, SLUICE_E_BUDGET, SLUICE_E_NOT_FOUND,
 * SLUICE_E_IO, SLUICE_E_TRUNCATED, SLUICE_E_CHANGED, SLUICE_E_FORMAT, SLUICE_E_VERSION,
 * SLUICE_E_UNSUPPORTED, SLUICE_E_LIMIT, SLUICE_E_CANCELLED. On failure nothing is left open. A
 * model whose chat template is not recognized opens; the calls that need one fail. Owner:  the
 * caller; release with sluice_model_close(). Thread: safe; distinct handles are independent. The
 * calling thread's floating-point settings are restored before return. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_model_open(const char *path,
                                                          const sluice_options *opt,
                                                          sluice_model **out, sluice_error *error);

/* Returns nothing; NULL is fine. Every session and decoder must be closed first. Thread: not while
 * others run. */
SLUICE_API void sluice_model_close(sluice_model *model);

typedef struct sluice_model_info {
    uint32_t struct_size;
    uint32_t n_layers;
    uint32_t n_moe_layers;
    uint32_t n_embd;
    uint32_t n_vocab;
    uint32_t n_ctx_train; /* context the model was trained for, tokens */
    uint32_t n_ctx;       /* context of sessions, tokens */
    uint32_t n_experts;   /* most of any layer; 0: dense */
    uint32_t top_k;       /* most of any layer */
    uint32_t threads;     /* in use */
    uint32_t kv;          /* enum sluice_kv in use */
    uint32_t n_files;
    uint64_t file_bytes;       /* of all shards */
    uint64_t n_params;         /* elements of all tensors */
    uint64_t memory_bytes;     /* charged to the budget now */
    uint64_t load_ns;          /* time sluice_model_open took */
    const char *arch;          /* "qwen3moe" */
    const char *name;          /* general.name; "" if none */
    const char *isa;           /* "avx2"; "" if opened without weights */
    const char *tokenizer;     /* "gpt2/qwen2"; "" if opened by header only */
    const char *chat_template; /* name of the recognized template; "" if none */
    const char *io;            /* "io_uring", "pread" or "mmap"; "" if opened without weights */
    const char *cache_policy;  /* "recall"; "" if nothing streams */
    uint64_t ram_bytes;        /* the budget in force; 0: none */
    uint32_t chunk;            /* prompt tokens that go through a layer together */
    uint32_t lossy;            /* enum sluice_lossy bits that are on */
    uint32_t n_slots;          /* expert slots as planned; 0: a dense model */
    uint32_t n_experts_total;  /* routed experts of all layers */
    const char *format;        /* of the files: "GGUF" or "container" */
    const char *recipe;        /* how a container was packed, lines of text; "" otherwise */
} sluice_model_info;

#define SLUICE_MODEL_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(sluice_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL,  \
            NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL                                      \
    }

/* Fills info; its strings live as long as the model. Returns nothing. Thread: safe. */
SLUICE_API void sluice_model_get_info(const sluice_model *model, sluice_model_info *info);

enum sluice_trim {
    SLUICE_TRIM_SOME = 1,    /* close a quarter of the open slots */
    SLUICE_TRIM_HALF = 2,    /* half of them */
    SLUICE_TRIM_ALL = 3,     /* all but those that one layer needs */
    SLUICE_TRIM_RESTORE = 4, /* open closed ones again, as far as the budget allows */
};

/* Gives memory of the expert cache back to the system (for Android's onTrimMemory), or takes it
 * again. Answers stay the same and get slower. At once where no evaluation runs on the model,
 * otherwise within one layer of it; of several calls meanwhile the last one counts. A dense or
 * mapped model has nothing to give. Returns SLUICE_OK, or SLUICE_E_ARG for an unknown level.
 * Thread: safe; not while the model is being closed. */
SLUICE_API sluice_err sluice_model_trim(sluice_model *model, uint32_t level, sluice_error *error);

/* Metadata of the file, in file order: writes the key and a short printable value, each cut to its
 * size. Returns 1, or 0 past the last (key and value are then empty). Thread: one per handle. */
SLUICE_API int sluice_model_get_meta(const sluice_model *model, uint32_t index, char *key,
                                     size_t key_size, char *value, size_t value_size);

typedef struct sluice_tensor {
    uint32_t struct_size;
    uint32_t n_dims;
    uint64_t dims[4]; /* dims[0] is contiguous */
    uint64_t bytes;
    uint64_t offset; /* in its file */
    uint32_t file;   /* shard number, from 0 */
    char type[12];   /* "Q4_K" */
    char name[256];
} sluice_tensor;

#define SLUICE_TENSOR_INIT                                                                         \
    {                                                                                              \
        sizeof(sluice_tensor), 0, {0, 0, 0, 0}, 0, 0, 0, "", ""                                    \
    }

/* Tensors of the file, in file order. Returns 1, or 0 past the last. Thread: safe. */
SLUICE_API int sluice_model_get_tensor(const sluice_model *model, uint32_t index,
                                       sluice_tensor *tensor);

/* ---- text and tokens -------------------------------------------------------------------- */

enum sluice_tokenize_flag {
    SLUICE_TOKENIZE_SPECIAL =
        1, /* text of control tokens becomes their id; never set it for text of users */
    SLUICE_TOKENIZE_BOS = 2, /* add BOS (and EOS) where the vocabulary asks for it, never twice */
};

/* A list of ids that a call fills: the caller gives room for capacity ids (NULL with 0 to measure);
 * count receives how many there are. Where they do not all fit, nothing is written to ids, and the
 * call returns SLUICE_E_LIMIT. */
typedef struct sluice_ids {
    int32_t *ids;
    size_t capacity;
    size_t count;
} sluice_ids;

/* Text to ids. text may hold any bytes. Returns SLUICE_OK, SLUICE_E_LIMIT, SLUICE_E_STATE (opened
 * by header only), SLUICE_E_BUDGET, SLUICE_E_NOMEM, SLUICE_E_FORMAT. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_tokenize(const sluice_model *model, const char *text,
                                                        size_t text_bytes, uint32_t flags,
                                                        sluice_ids *out, sluice_error *error);

/* Token text to print for id, without context (see sluice_decoder for streams): control tokens are
 * empty unless special is nonzero. Returns the bytes (not NUL-terminated), which live as long as
 * the model; *bytes receives their number. Thread: safe. */
SLUICE_API const char *sluice_token_piece(const sluice_model *model, int32_t id, int special,
                                          size_t *bytes);

/* Returns 1 where id ends a generation (EOS, end of turn, ...), else 0. Thread: safe. */
SLUICE_API int sluice_token_is_end(const sluice_model *model, int32_t id);

/* Returns the id of BOS or EOS, or -1. Thread: safe. */
SLUICE_API int32_t sluice_token_bos(const sluice_model *model);
SLUICE_API int32_t sluice_token_eos(const sluice_model *model);

/* Ids to text, as a stream that never ends inside a UTF-8 character: what is incomplete is held
 * back until it is complete, proven invalid, or flushed. special: nonzero prints control tokens
 * too. Returns SLUICE_OK, SLUICE_E_STATE, SLUICE_E_BUDGET, SLUICE_E_NOMEM. Owner: the caller;
 * sluice_decoder_close(). Thread: one per handle. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_decoder_open(const sluice_model *model, int special,
                                                            sluice_decoder **out,
                                                            sluice_error *error);
/* Returns the text that id completed (may be empty); it lives until the next call on this decoder.
 * *bytes receives its length. Thread: one per handle. */
SLUICE_API const char *sluice_decoder_push(sluice_decoder *decoder, int32_t id, size_t *bytes);
/* Returns what is still held, and makes the decoder ready for a new text. Thread: one per handle.
 */
SLUICE_API const char *sluice_decoder_flush(sluice_decoder *decoder, size_t *bytes);
/* Returns nothing; NULL is fine. Thread: one per handle. */
SLUICE_API void sluice_decoder_close(sluice_decoder *decoder);

/* ---- chat templates --------------------------------------------------------------------- */

typedef struct sluice_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8 */
} sluice_message;

/* A conversation to render. */
typedef struct sluice_chat {
    const sluice_message *messages; /* [n_messages] */
    uint32_t n_messages;
    int32_t thinking; /* -1 what the template does by itself, 0 off, 1 on; templates that know no
                         such switch ignore it */
} sluice_chat;

/* Renders a conversation with the model's template (or options.chat_template), ready for an answer.
 * text receives at most capacity bytes, NUL-terminated; *bytes the full length without the NUL.
 * Returns SLUICE_OK, SLUICE_E_LIMIT where the text did not fit, SLUICE_E_TEMPLATE (none, or not
 * recognized), SLUICE_E_ARG (the template refuses these messages), SLUICE_E_STATE, SLUICE_E_NOMEM,
 * SLUICE_E_BUDGET. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_chat_render(const sluice_model *model,
                                                           const sluice_chat *chat, char *text,
                                                           size_t capacity, size_t *bytes,
                                                           sluice_error *error);

/* The same as ids, where only the template's own text is parsed for control tokens: what a user
 * wrote stays text. Exactly one BOS, if the vocabulary wants one. Returns the errors of
 * sluice_tokenize and sluice_chat_render. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_chat_tokenize(const sluice_model *model,
                                                             const sluice_chat *chat,
                                                             sluice_ids *out, sluice_error *error);

/* ---- sessions --------------------------------------------------------------------------- */

/* A context with its KV cache and the state of its recurrent layers, empty. Its size and kind come
 * from the model's options. Returns SLUICE_OK, SLUICE_E_STATE (opened without weights, or an
 * evaluation is running), SLUICE_E_BUDGET, SLUICE_E_NOMEM. Owner: the caller;
 * sluice_session_close(). Thread: not while others run. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_session_open(sluice_model *model,
                                                            sluice_session **out,
                                                            sluice_error *error);
/* Returns nothing; NULL is fine. Thread: not while others run. */
SLUICE_API void sluice_session_close(sluice_session *session);

/* Appends tokens to the context and evaluates them.
 *
 *   ids      [n] token ids, each 0..n_vocab-1; n >= 1
 *   logits   [n][n_vocab] f32, row-major: the distribution after each token; or NULL
 *
 * Returns SLUICE_OK, SLUICE_E_ARG (an id out of range), SLUICE_E_CONTEXT_FULL (nothing was
 * evaluated), SLUICE_E_CANCELLED, SLUICE_E_NUMERIC (the model produced a value that is no number),
 * SLUICE_E_BUDGET, SLUICE_E_NOMEM, SLUICE_E_IO, SLUICE_E_TRUNCATED, SLUICE_E_CORRUPT (what was read
 * differs from before, or from the sums file), SLUICE_E_CHANGED (a model file was written to or
 * replaced); those about reading name layer, expert, file and offset. After a failure the context
 * is as it was before the call, and the next call may work. Thread: one per handle. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_session_eval(sluice_session *session,
                                                            const int32_t *ids, size_t n,
                                                            float *logits, sluice_error *error);

/* The same for a prompt: logits, [n_vocab] f32, is the distribution after the last token alone, to
 * the bit what sluice_session_eval has there. Where all experts are in memory, the last layer is
 * then computed for that token only, and for none where sluice_session_eval is given NULL: of the
 * others only their keys, values and recurrent state are wanted. (Recording, observers, choosers,
 * sticky and drop_cold want all.) Returns what sluice_session_eval returns. Thread: one per handle.
 */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_session_eval_last(sluice_session *session,
                                                                 const int32_t *ids, size_t n,
                                                                 float *logits,
                                                                 sluice_error *error);

/* Keeps the first n_tokens of the context (n_tokens <= its length) and forgets the rest. A model
 * with recurrent layers (Qwen3-Next, Qwen3.5) can go back at once by one token, to where the last
 * call with several tokens began (of sluice_generate: the last chunk of the prompt), and to the
 * start; elsewhere the context is as long as asked for, and the next evaluation first repeats what
 * the layers have lost, from the nearest of these. Results are the same to the bit. Returns
 * nothing. Thread: one per handle. */
SLUICE_API void sluice_session_truncate(sluice_session *session, size_t n_tokens);

/* Returns the number of tokens in the context. Thread: one per handle. */
SLUICE_API size_t sluice_session_length(const sluice_session *session);

/* on nonzero: the running or next evaluation ends with SLUICE_E_CANCELLED within one layer; stays
 * set until on is 0. Returns nothing. Thread: safe, also from a signal handler. */
SLUICE_API void sluice_session_cancel(sluice_session *session, int on);

/* Inputs of a weight matrix, on their way through the model. */
typedef struct sluice_input {
    uint32_t struct_size;
    uint32_t n;          /* vectors */
    uint32_t cols;       /* elements of each, those of a row of the matrix */
    uint32_t matrix;     /* which of the tensor's matrices: the expert, otherwise 0 */
    uint32_t n_matrices; /* routed experts of the layer, otherwise 1 */
    uint32_t reserved;   /* 0 */
    const char *tensor;  /* "blk.3.attn_q.weight"; of routed experts "blk.3.ffn_gate_exps.weight",
                            also where the file has a tensor for each */
    const char *same_as; /* a tensor to which this x was shown before, in the same chunk and for the
                            same matrix, and always is; NULL: none */
    const float *x;      /* [n][cols], as computed, before it is quantized for the product */
} sluice_input;

/* Sees inputs; all pointers are valid during the call. Runs on the evaluating thread; may call
 * sluice_session_cancel, nothing else. */
typedef void sluice_input_fn(void *user, const sluice_input *input);

/* From now on fn is called with every input of every weight matrix, layer by layer as chunks of
 * tokens pass: calibration, research. Of the output matrix, which is token_embd.weight where the
 * model shares it, inputs of all tokens are shown, whether their logits are asked for or not. An
 * expert is shown the tokens that chose it and no others. Results stay the same, to the bit. An
 * evaluation that fails has shown what it came to. fn NULL: nobody, as at first; it costs nothing
 * then. Returns nothing. Thread: one per handle. */
SLUICE_API void sluice_session_observe(sluice_session *session, sluice_input_fn *fn, void *user);

/* Chooses experts in the router's place: of the layer (from 0) for the token at position (from 0).
 * Writes up to top_k distinct numbers below n_experts to experts, the most wanted first, and
 * returns how many; the router's own best complete them. Runs on the evaluating thread; may call
 * sluice_session_cancel, nothing else. */
typedef uint32_t sluice_route_fn(void *user, uint32_t layer, uint32_t position, uint32_t n_experts,
                                 uint32_t top_k, uint32_t *experts);

/* From now on fn is asked before any expert is chosen, and what is chosen has equal weights. For
 * measuring how fast recorded routing would be served, on a model of any weights: what comes out is
 * no answer of the model's. A choice that breaks the rules above ends the evaluation with
 * SLUICE_E_ARG. fn NULL: the router again, as at first. Returns nothing. Thread: one per handle. */
SLUICE_API void sluice_session_route(sluice_session *session, sluice_route_fn *fn, void *user);

/* ---- generation ------------------------------------------------------------------------- */

/* One piece of the answer: whole UTF-8 characters (bytes of an invalid sequence pass unchanged).
 * Returns nonzero to stop. Runs on the calling thread; may call sluice_session_cancel,
 * sluice_session_get_stats and sluice_model_get_layer_stats, nothing else. */
typedef int sluice_text_fn(void *user, const char *text, size_t bytes);

/* Progress of a prompt: done of total tokens. Returns nonzero to give up. Runs and may call as the
 * function above. */
typedef int sluice_prompt_fn(void *user, size_t done, size_t total);

typedef struct sluice_generate_options {
    uint32_t struct_size;
    uint32_t max_tokens;         /* most tokens to generate; 0: as many as the context holds */
    float temperature;           /* <= 0: greedy, always the most likely token */
    float top_p;                 /* keep the likeliest tokens that reach this probability; 1: off */
    float min_p;                 /* keep tokens at least this fraction of the best one's; 0: off */
    float repeat_penalty;        /* divides the logits of recent tokens; 1: off */
    uint32_t repeat_last;        /* how many tokens count as recent; 0: off */
    uint32_t top_k;              /* keep this many; 0: off */
    uint64_t seed;               /* same seed, same text */
    uint32_t ignore_end;         /* nonzero: go on after an end token */
    uint32_t show_special;       /* nonzero: control tokens are part of the text */
    const char *const *stop;     /* strings that end the answer and are not part of it */
    uint64_t n_stop;             /* at most 64 */
    sluice_text_fn *on_text;     /* NULL: the text is dropped */
    sluice_prompt_fn *on_prompt; /* NULL: none */
    void *user;                  /* passed to all of them */
    sluice_text_fn *on_thought;  /* what the model thinks before it answers; NULL: part of the text.
                                    Its marks (<think>, </think>; gpt-oss's channels) and the line
                                    ends beside them are left out; stop strings do not apply; a text
                                    with show_special is not divided */
} sluice_generate_options;

/* Unlike elsewhere zeros are not defaults here but what they say: this macro sets the usual values.
 */
#define SLUICE_GENERATE_INIT                                                                       \
    {                                                                                              \
        sizeof(sluice_generate_options), 0, 0.8f, 0.95f, 0.05f, 1.0f, 64, 40, 0, 0, 0, NULL, 0,    \
            NULL, NULL, NULL, NULL                                                                 \
    }

enum sluice_stop {
    SLUICE_STOP_END = 1,      /* the model ended its answer */
    SLUICE_STOP_STRING = 2,   /* a stop string appeared */
    SLUICE_STOP_LIMIT = 3,    /* max_tokens */
    SLUICE_STOP_CONTEXT = 4,  /* the context is full */
    SLUICE_STOP_CALLBACK = 5, /* the callback asked for it */
};

typedef struct sluice_result {
    uint32_t struct_size;
    uint32_t stop;             /* enum sluice_stop */
    uint64_t prompt_tokens;    /* given */
    uint64_t reused_tokens;    /* of those, found in the context already and not evaluated again;
                                  recurrent layers go back less far, see
                                  sluice_session_truncate */
    uint64_t generated_tokens; /* end token included */
    uint64_t prompt_ns;        /* evaluating the rest of the prompt */
    uint64_t first_token_ns;   /* from the call to the first token chosen */
    uint64_t decode_ns;        /* from then to the end */

    /* What was read from the files for it; sluice_stats explains the terms. */
    uint64_t prompt_read_bytes; /* until the first token was chosen */
    uint64_t prompt_stall_ns;
    uint64_t decode_read_bytes; /* for the tokens after it */
    uint64_t decode_stall_ns;
    uint64_t decode_uses; /* experts that those tokens chose, all layers */
    uint64_t decode_hits; /* of them, in memory when chosen */
    uint32_t lossy;       /* enum sluice_lossy bits that were on */

    /* Where the answer was divided (on_thought). */
    uint32_t in_thought;     /* 1: it ended inside a thought */
    uint64_t thought_tokens; /* of the generated ones, those up to the end of the thought */
} sluice_result;

#define SLUICE_RESULT_INIT                                                                         \
    {                                                                                              \
        sizeof(sluice_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                      \
    }

/* Answers a prompt. The context becomes prompt + answer; what the context and the prompt have in
 * common at the start is not evaluated again, so a chat passes its whole conversation each time.
 *
 *   prompt     [n_prompt] ids of the whole conversation; n_prompt >= 1
 *   options    NULL: SLUICE_GENERATE_INIT
 *   result     filled also on failure, with what was reached; may be NULL
 *
 * Returns SLUICE_OK (result->stop says why it ended), SLUICE_E_ARG, SLUICE_E_CONTEXT_FULL (the
 * prompt alone does not fit: both counts are in the sentence), SLUICE_E_CANCELLED, and the errors
 * of sluice_session_eval. After SLUICE_E_CANCELLED the context holds what was evaluated. Thread:
 * one per handle. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_generate(sluice_session *session,
                                                        const int32_t *prompt, size_t n_prompt,
                                                        const sluice_generate_options *options,
                                                        sluice_result *result, sluice_error *error);

/* ---- statistics and measurement --------------------------------------------------------- */

typedef struct sluice_stats {
    uint32_t struct_size;
    uint32_t lossy;       /* enum sluice_lossy bits that are on */
    uint64_t eval_tokens; /* evaluated by this session since it was opened */
    uint64_t eval_ns;
    uint64_t kv_bytes;           /* committed for this session now */
    uint64_t budget_peak_bytes;  /* most that was ever charged to the model's budget */
    uint64_t process_peak_bytes; /* peak resident memory of the process, as the system reports it;
                                    0: unknown */

    /* Routed experts, of all the model's sessions since it was opened. A use is one expert chosen
     * by one token in one layer. Bytes are those of weights, without what direct reads round up. */
    uint64_t uses;
    uint64_t hits;               /* uses of experts that were in memory when chosen */
    uint64_t hits_flying;        /* uses of experts that were on their way */
    uint64_t load_bytes;         /* read at open */
    uint64_t warm_bytes;         /* read from the hot list */
    uint64_t prompt_bytes;       /* read for prompt chunks */
    uint64_t demand_bytes;       /* read while a token waited */
    uint64_t ahead_bytes;        /* read ahead on a guess */
    uint64_t ahead_useful_bytes; /* of those: were chosen */
    uint64_t ahead_wasted_bytes; /* went again unused */
    uint64_t evictions;
    uint64_t stall_ns;  /* computing waited for the drive */
    uint64_t read_ns;   /* reads that computing needs were under way; the rest of it was hidden */
    uint64_t checked;   /* pieces read whose checksum was compared with an earlier one */
    uint64_t predicted; /* experts that were expected with probability 1/2 or more */
    uint64_t predicted_used; /* and were chosen */
    uint64_t dropped;        /* choices that drop_cold left out; they are no uses */
    uint64_t slot_bytes;     /* of the open slots, now */
    uint32_t n_slots;        /* as planned */
    uint32_t n_slots_open;   /* now */
    uint32_t n_slots_filled; /* now */
    uint32_t reserved;       /* 0 */

    /* Where eval_ns went. */
    uint64_t projection_ns; /* products of resident weights, but for the router and the head */
    uint64_t mixing_ns;     /* attention to earlier tokens, recurrent state */
    uint64_t routing_ns;    /* choosing experts */
    uint64_t expert_ns;     /* products of routed experts */
    uint64_t waiting_ns;    /* for experts from the drive; checking them */
    uint64_t head_ns;       /* logits */
    uint64_t other_ns;      /* embeddings, norms, sums */
} sluice_stats;

#define SLUICE_STATS_INIT                                                                          \
    {                                                                                              \
        sizeof(sluice_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                     \
    }

/* Fills stats. While another session of the model evaluates, figures about experts are those of
 * this session's last evaluation. Returns nothing. Thread: one per handle. */
SLUICE_API void sluice_session_get_stats(const sluice_session *session, sluice_stats *stats);

/* The same of one layer, for finding out which layers read most. */
typedef struct sluice_layer_stats {
    uint32_t struct_size;
    uint32_t n_experts; /* routed; 0: the layer has none */
    uint64_t uses, hits, hits_flying;
    uint64_t prompt_bytes, demand_bytes, ahead_bytes, ahead_useful_bytes, ahead_wasted_bytes;
    uint64_t predicted, predicted_used;
    uint64_t stall_ns;
} sluice_layer_stats;

#define SLUICE_LAYER_STATS_INIT                                                                    \
    {                                                                                              \
        sizeof(sluice_layer_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                             \
    }

/* Fills stats of a layer, from 0. Returns 1, or 0 past the last. Thread: not while others run, but
 * for the callbacks of an answer. */
SLUICE_API int sluice_model_get_layer_stats(const sluice_model *model, uint32_t layer,
                                            sluice_layer_stats *stats);

typedef struct sluice_kernel_bench {
    uint32_t struct_size;
    /* What is to be timed, and receives what was. */
    uint32_t rows, cols; /* of the matrix; 0: 768 and 2048 */
    uint32_t n_tokens;   /* vectors that it is multiplied with at once, 1..64; 0: 1 */
    uint32_t threads;    /* as in sluice_options */
    uint32_t isa;        /* enum sluice_isa */
    /* What was found. */
    uint32_t bit_equal;   /* 1: the output was equal to the scalar definition's in this run */
    uint32_t reserved;    /* 0 */
    char type[12];        /* weight type, "Q4_K" */
    char isa_name[12];    /* "avx2" */
    double weights_per_s; /* products of a weight and a token's activation, of as many rows as each
                             thread's cache holds */
    double bytes_per_s;   /* of weights: each counts once, whatever the tokens */
    double memory_weights_per_s; /* the same with weights from memory */
    double memory_bytes_per_s;
} sluice_kernel_bench;

#define SLUICE_KERNEL_BENCH_INIT                                                                   \
    {                                                                                              \
        sizeof(sluice_kernel_bench), 0, 0, 0, 0, 0, 0, 0, "", "", 0, 0, 0, 0                       \
    }

/* Times products with weights of the index-th type on this machine, about two tenths of a second;
 * takes 256 MiB, or as much as the matrix has where that is more. Returns SLUICE_OK, SLUICE_E_LIMIT
 * past the last, SLUICE_E_ARG (no such matrix of that type, or too many threads),
 * SLUICE_E_UNSUPPORTED (no such instruction set), SLUICE_E_NOMEM. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_bench_kernel(uint32_t index,
                                                            sluice_kernel_bench *bench,
                                                            sluice_error *error);

typedef struct sluice_memory_bench {
    uint32_t struct_size;
    uint32_t threads;      /* as in sluice_options; receives how many there were */
    uint64_t buffer_bytes; /* how much was read, many times what caches hold */
    double bytes_per_s;    /* of the fastest 16 MiB */
} sluice_memory_bench;

#define SLUICE_MEMORY_BENCH_INIT                                                                   \
    {                                                                                              \
        sizeof(sluice_memory_bench), 0, 0, 0                                                       \
    }

/* Measures how fast memory is read on this machine, about two tenths of a second: no kernel whose
 * weights come from memory is faster. Returns SLUICE_OK, SLUICE_E_ARG (too many threads),
 * SLUICE_E_NOMEM. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_bench_memory(sluice_memory_bench *bench,
                                                            sluice_error *error);

/* ---- verification ----------------------------------------------------------------------- */

/* A GGUF carries no checksums. sluice_sums_make writes them to a file beside the model (NAME.sums
 * of its first file; docs/FORMAT.md); where there is one, everything that is read of the model is
 * compared with it, from the first read on, and sluice_sums_verify compares the whole model. A
 * container (docs/FORMAT.md) carries its own: everything that is read of it is compared without
 * more ado, and sluice_sums_verify compares all of it. */

typedef struct sluice_sums_result {
    uint32_t struct_size;
    uint32_t n_files; /* of the model */
    uint64_t pieces;  /* what has a checksum of its own: experts, rows of the embedding, tensors; of
                         a container its records */
    uint64_t bytes;   /* of all files of the model */
    uint64_t ns;      /* time the call took */
    uint32_t container; /* 1: the model is a container */
    uint32_t reserved;  /* 0 */
} sluice_sums_result;

#define SLUICE_SUMS_RESULT_INIT                                                                    \
    {                                                                                              \
        sizeof(sluice_sums_result), 0, 0, 0, 0, 0, 0                                               \
    }

/* Reads the whole model once, in 4 MiB of memory, and writes its sums file, in place of one that is
 * there: whole or not at all. The page cache of the model is given back.
 *
 *   path      a GGUF file, or any part of a split one; a container has its own sums
 *   progress  NULL: none. Called each 64 MiB or more often; nonzero gives up
 *   user      passed to progress
 *   result    filled on success; may be NULL
 *
 * Returns SLUICE_OK, SLUICE_E_ARG, SLUICE_E_NOT_FOUND, SLUICE_E_IO (also: the folder is read-only,
 * the disk is full), SLUICE_E_CHANGED (the model was replaced meanwhile), SLUICE_E_CANCELLED,
 * SLUICE_E_UNSUPPORTED (a container, which needs none), or what sluice_model_open returns for a
 * broken file. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_sums_make(const char *path,
                                                         sluice_progress_fn *progress, void *user,
                                                         sluice_sums_result *result,
                                                         sluice_error *error);

/* Reads the whole model, every byte of it, and compares it with its sums file, or a container with
 * its own checksums. Arguments as above; path may be that of any part of a container.
 *
 * Returns SLUICE_OK: everything is as it was when the sums were made; SLUICE_E_CORRUPT: error names
 * file, tensor, expert or row, and the offset of the first piece that differs; SLUICE_E_NOT_FOUND:
 * no model, or no sums file; SLUICE_E_CHANGED: the sums file is of another model or version;
 * SLUICE_E_FORMAT, SLUICE_E_TRUNCATED, SLUICE_E_VERSION: of the model or of the sums file, which
 * the sentence says; and the errors above. Thread: safe. */
SLUICE_API SLUICE_MUST_CHECK sluice_err sluice_sums_verify(const char *path,
                                                           sluice_progress_fn *progress, void *user,
                                                           sluice_sums_result *result,
                                                           sluice_error *error);

#ifdef __cplusplus
}
#endif

#endif
