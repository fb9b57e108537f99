/* The public handles and what the api_*.c files share. */
#ifndef SL_API_H
#define SL_API_H

#include "engine/hot_list.h"
#include "engine/session.h"
#include "engine/text/chat_template.h"
#include "engine/trim.h"
#include "include/sluice.h"

/* What of a budget is not counted by allocation: code, libraries, what the system keeps for a
 * thread (the pool charges workers' stacks). Measured on x86-64 Linux with glibc, 2026-11: the
 * program is 2.6 MiB resident before it opens a model, and peaks 3.0 MiB above what is charged when
 * it answers with a tiny one; the rest is reserve. */
#define API_PROCESS_BYTES (5ull << 20)
#define API_THREAD_BYTES (64ull << 10)
#define API_SESSION_BYTES (64ull << 10) /* handle and tables of a session */
#define API_CONTEXT_MIN 256u       /* tokens; the least that a context without -c is shrunk to */
#define API_CONTEXT_STREAMED 4096u /* the most it has where experts stream */
#define API_CONTEXT_START 256u     /* tokens for which slots leave room where experts stream */

/* Who has the store and the reads. */
enum api_busy {
    API_FREE = 0,
    API_EVALUATES = 1, /* anybody else who wants to evaluate is refused */
    API_LOOKS = 2,     /* trimming or reading figures, for a moment: others wait */
};

struct sluice_model {
    struct sl_budget budget;
    struct sl_log log;
    sluice_options opt;       /* as given, defaults filled in; ram_bytes is never SLUICE_RAM_AUTO */
    uint64_t available_bytes; /* when it was opened; UINT64_MAX: unknown */
    struct sl_gguf *gguf;
    struct sl_model m;
    struct sl_tokenizer *tokenizer; /* NULL: header only */
    struct sl_pool *pool;           /* NULL: no weights */
    const struct sl_kernels *kernels;
    const struct sl_chat_template *chat_template; /* NULL: template_error says why */
    sluice_error template_error;
    uint32_t threads, n_ctx, chunk, n_files, n_sessions;
    uint32_t lossy; /* enum sluice_lossy bits */
    uint32_t n_slots, n_experts_total;
    struct sl_record *record; /* NULL: no trace */
    char *hot_path;           /* NULL: no hot list */
    struct sl_hot_list hot;   /* not yet handed to the store */
    bool hot_foreign;         /* hot_path holds what could not be read as a hot list: not written */
    uint64_t file_bytes, load_ns, n_params;
    char arch[64], name[256];
    _Atomic uint32_t busy; /* enum api_busy */
};

struct sluice_session {
    sluice_model *model;
    struct sl_session s;
    struct sl_expert_stats experts; /* as of the last api_look_at_experts */
};

/* What tests put around a model's reads: see sl_load_config.wrap. */
struct api_hook {
    sluice_err (*wrap)(void *user, struct sl_io *io, sluice_error *e, struct sl_io **out);
    void *user;
};

/* sluice_model_open with a hook (NULL: none). */
SL_MUST_CHECK sluice_err api_model_open(const char *path, const sluice_options *opt,
                                        const struct api_hook *hook, sluice_model **out,
                                        sluice_error *error);

/* A caller built against another version has a struct of another size: what we know is copied over
 * dst, what we do not know must be zero (SLUICE_E_UNSUPPORTED otherwise). */
SL_MUST_CHECK sluice_err api_copy_struct(void *dst, size_t dst_size, const void *src,
                                         size_t src_size, sluice_error *e);

/* Copies what the caller's struct has over defaults, and checks ranges. */
SL_MUST_CHECK sluice_err api_options(const sluice_options *opt, sluice_options *out,
                                     sluice_error *e);

enum sl_kv_type api_kv_type(uint32_t kv);

/* Threads that opt asks for, but no more than there are cores: they would only wait for each other.
 * 0: the best number here. */
uint32_t api_threads(const sluice_options *opt, const struct sl_cpu_choice *choice);

struct api_plan_input {
    const struct sl_model *m;
    const sluice_options *opt; /* ram_bytes resolved */
    uint32_t threads;
    uint64_t tokenizer_bytes;
    uint64_t charged_bytes; /* to the budget now, all of it stays: files, tokenizer, description */
    uint64_t peak_bytes;    /* the most that opening has needed so far */
    uint64_t sums_bytes;    /* of the sums file, 0: none */
    uint64_t available_bytes;
};

struct api_plan {
    sluice_plan p;
    uint32_t n_slots[SL_EC_CLASSES_MAX];
    bool below_floor; /* fewer slots were asked for than a layer needs */
};

/* Sizes of a described model: slots, context and chunk that fit. Also where nothing does: compare
 * p.total_bytes with the budget. SLUICE_E_NOMEM, SLUICE_E_BUDGET for its own small table. */
SL_MUST_CHECK sluice_err api_plan(const struct api_plan_input *in, struct sl_budget *b,
                                  sluice_error *e, struct api_plan *out);
/* sl_model_describe, then what the options change of it; notes which lossy ones do. */
SL_MUST_CHECK sluice_err api_describe(sluice_model *m, const struct sl_log *log, sluice_error *e);
/* The plan of a described model whose metadata is dropped; also the errors of its sums file. */
SL_MUST_CHECK sluice_err api_make_plan(sluice_model *m, struct api_plan *plan, sluice_error *e);
/* Makes the plan the model's own, limit of its budget included; SLUICE_E_BUDGET, with what would
 * work, where it does not fit. */
SL_MUST_CHECK sluice_err api_check_plan(sluice_model *m, const char *path, struct api_plan *plan,
                                        sluice_error *e);
sluice_err api_refuse_budget(const char *path, const sluice_options *opt, const sluice_plan *p,
                             sluice_error *e);

/* The list is remembered for the first evaluation, whose thread may then read. One that cannot be
 * used or saved is worth a warning, no more. */
void api_open_hot_list(sluice_model *m);
void api_save_hot_list(sluice_model *m);

/* Creates the trace that was asked for, if any, in a model whose reads can begin; its m.record is
 * that, too. Errors: SLUICE_E_UNSUPPORTED where there are no experts, those of sl_record_open. */
SL_MUST_CHECK sluice_err api_trace_open(sluice_model *m, const struct api_plan *plan,
                                        sluice_error *e);

/* The cache policy of the options. */
const struct sl_ec_policy *api_policy(const sluice_model *m);

/* What a budget for the process leaves to be charged; 0 stands for no limit in ram_bytes. */
uint64_t api_budget_limit(uint64_t ram_bytes, uint32_t threads);

/* A session's settings, for the plan and for the session itself. */
struct api_session_input {
    const sluice_options *opt;
    uint32_t chunk, n_ctx;
    bool streams; /* some experts have no slot, so that guessing may pay */
};
void api_session_config(const struct api_session_input *in, struct sl_session_config *out);

/* Slots give way to what is about to be allocated, as far as they can. No evaluation of another
 * thread may be running. */
void api_make_room(sluice_model *m, uint64_t need);

/* What a sampler takes at most that looks back over n_ctx tokens. */
uint64_t api_sampler_bytes(uint32_t n_vocab, uint32_t n_ctx);

/* Brings s->experts up to date. Within an evaluation of the calling thread. */
void api_look_at_experts(sluice_session *s);

/* Locks the model for an evaluation by this thread: sets the floating-point control, does what
 * was asked of the cache meanwhile, and makes sure that the files are the ones that were opened.
 * SLUICE_E_STATE where another evaluation runs, SLUICE_E_CHANGED, SLUICE_E_IO. */
SL_MUST_CHECK sluice_err api_enter(sluice_model *model, uint64_t *saved, sluice_error *e);
/* Leaves nothing under way: the next call may come from another thread. */
void api_leave(sluice_model *model, uint64_t saved);

#endif
