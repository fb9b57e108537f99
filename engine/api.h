/* The public handles and what the api_*.c files share. */
#ifndef SL_API_H
#define SL_API_H

#include "engine/session.h"
#include "engine/text/chat_template.h"
#include "include/sluice.h"

/* What of a budget is not counted by allocation: code, libraries, stacks. Measured on x86-64 Linux
 * with glibc, 2026-11: the program is 2.6 MiB resident before it opens a model, and peaks 3.0 MiB
 * above what is charged when it answers with a tiny one; the rest is reserve. */
#define API_PROCESS_BYTES (8ull << 20)
#define API_THREAD_BYTES (128ull << 10)
#define API_CHUNK_DEFAULT 64u
#define API_CONTEXT_MIN 256u /* tokens; the least that a context without -c is shrunk to */

struct sluice_model {
    struct sl_budget budget;
    struct sl_log log;
    sluice_options opt; /* as given, defaults filled in */
    struct sl_gguf
        *gguf; /* open during loading, and for as long as the model if flags ask for it */
    struct sl_model m;
    struct sl_tokenizer *tokenizer; /* NULL: header only */
    struct sl_pool *pool;           /* NULL: no weights */
    const struct sl_kernels *kernels;
    const struct sl_chat_template *chat_template; /* NULL: template_error says why */
    sluice_error template_error;
    uint32_t threads, n_ctx, n_files, n_sessions;
    uint64_t file_bytes, load_ns, n_params;
    char arch[64], name[256];
    atomic_flag busy; /* an evaluation is running */
};

struct sluice_session {
    sluice_model *model;
    struct sl_session s;
};

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

/* Sizes of a described model, and the context that fits. */
void api_plan(const struct sl_model *m, const sluice_options *opt, uint32_t threads,
              uint64_t tokenizer_bytes, sluice_plan *plan);

/* Locks the model for an evaluation and sets the floating-point control; SLUICE_E_STATE where
 * another one runs. */
SL_MUST_CHECK sluice_err api_enter(sluice_model *model, uint64_t *saved, sluice_error *e);
void api_leave(sluice_model *model, uint64_t saved);

#endif
