/* Opening and describing models. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "engine/api.h"

/* ---- opening, step by step -------------------------------------------------------------- */

static void copy_text(struct sl_str s, char *buf, size_t size) { sl_str_show(s, buf, size); }

/* Opens the file and takes from it what every kind of handle shows. */
static sluice_err open_header(sluice_model *m, const char *path, sluice_error *e)
{
    sluice_err err = sl_gguf_open(path, &m->budget, e, &m->gguf);
    if (err != SLUICE_OK) return err;
    struct sl_str s = {"", 0};
    err = sl_gguf_str(m->gguf, "general.architecture", &s, e);
    if (err != SLUICE_OK) return err;
    copy_text(s, m->arch, sizeof m->arch);
    s = (struct sl_str){"", 0};
    err = sl_gguf_str(m->gguf, "general.name", &s, e);
    if (err != SLUICE_OK) return err;
    copy_text(s, m->name, sizeof m->name);
    m->n_files = sl_gguf_n_files(m->gguf);
    for (uint32_t i = 0; i < m->n_files; i++)
        m->file_bytes += sl_file_bytes(sl_gguf_file(m->gguf, i));
    for (uint32_t i = 0; i < sl_gguf_n_tensors(m->gguf); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(m->gguf, i);
        m->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return SLUICE_OK;
}

/* The chat template. One that is not recognized is remembered, not an error: raw completion works
 * without. */
static sluice_err open_template(sluice_model *m, sluice_error *e)
{
    if (m->opt.chat_template)
        return sl_chat_template_by_name(m->opt.chat_template, e, &m->chat_template);
    struct sl_str source = {"", 0};
    sluice_err err = sl_gguf_str(m->gguf, "tokenizer.chat_template", &source, e);
    if (err != SLUICE_OK) return err;
    if (sl_chat_template_detect(source, &m->template_error, &m->chat_template) != SLUICE_OK)
        m->chat_template = NULL;
    return SLUICE_OK;
}

static sluice_err open_text(sluice_model *m, sluice_error *e)
{
    struct sl_vocab v;
    sluice_err err = sl_gguf_vocab(m->gguf, &v, e);
    return err == SLUICE_OK ? sl_tokenizer_open(&v, &m->budget, e, &m->tokenizer) : err;
}

static sluice_err refuse_budget(const char *path, const sluice_options *opt, const sluice_plan *p,
                                sluice_error *e)
{
    return sl_fail(
        e, SLUICE_E_BUDGET,
        "%s: does not fit into %.1f MiB; the smallest budget that works with %s is --ram "
        "%lluM",
        path, (double)opt->ram_bytes / (1 << 20), opt->n_ctx ? "this context" : "a short context",
        (unsigned long long)((p->minimum_bytes + (1 << 20) - 1) >> 20));
}

/* Refuses what cannot fit, before anything large is allocated. */
static sluice_err check_plan(sluice_model *m, const char *path, sluice_error *e)
{
    sluice_plan p = SLUICE_PLAN_INIT;
    api_plan(&m->m, &m->opt, m->threads, sl_tokenizer_bytes(m->tokenizer), &p);
    m->n_ctx = p.n_ctx;
    const double mib = 1.0 / (1 << 20);
    sl_log_line(&m->log, SL_LOG_INFO,
                "memory plan: dense %.1f MiB, experts %.1f, KV %.1f (%u tokens), scratch %.1f, "
                "tokenizer %.1f, process "
                "%.1f; total %.1f MiB",
                (double)p.dense_bytes * mib, (double)p.expert_bytes * mib, (double)p.kv_bytes * mib,
                p.n_ctx, (double)p.scratch_bytes * mib, (double)p.tokenizer_bytes * mib,
                (double)p.process_bytes * mib, (double)p.total_bytes * mib);
    if (m->opt.ram_bytes == 0 || p.total_bytes <= m->opt.ram_bytes) return SLUICE_OK;
    return refuse_budget(path, &m->opt, &p, e);
}

static sluice_err check_vocab(const sluice_model *m, const char *path, sluice_error *e)
{
    uint32_t tokens = sl_tokenizer_size(m->tokenizer);
    if (tokens <= m->m.n_vocab) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_FORMAT,
                   "%s: the tokenizer has %u tokens, but token_embd.weight has rows for %u only",
                   path, tokens, m->m.n_vocab);
}

/* Compute: instruction set, threads. */
static sluice_err open_compute(sluice_model *m, const struct sl_cpu_choice *choice, sluice_error *e)
{
    sluice_err err = sl_kernels_select((enum sl_isa)m->opt.isa, e, &m->kernels);
    if (err != SLUICE_OK) return err;
    err = sl_pool_open(&m->budget, m->threads, m->opt.threads ? NULL : choice, &m->pool);
    if (err != SLUICE_OK) return sl_fail(e, err, "could not start %u threads", m->threads);
    sl_log_line(&m->log, SL_LOG_INFO,
                "%u threads (%u cores allowed, %u of the fastest kind, quota %.1f), %s kernels",
                m->threads, choice->allowed, choice->fastest, choice->quota, m->kernels->isa);
    return SLUICE_OK;
}

static sluice_err open_weights(sluice_model *m, const char *path, sluice_error *e)
{
    struct sl_cpu_choice choice;
    sl_cpu_choose("", &choice);
    m->threads = api_threads(&m->opt, &choice);
    if (m->threads < m->opt.threads)
        sl_log_line(&m->log, SL_LOG_WARN, "%u threads were asked for; there are %u cores, so %u",
                    m->opt.threads, choice.allowed, m->threads);
    sluice_err err = sl_model_describe(&m->m, m->gguf, &m->budget, &m->log, e);
    if (err == SLUICE_OK) err = check_vocab(m, path, e);
    if (err != SLUICE_OK) return err;
    sl_gguf_drop_metadata(m->gguf); /* tens of megabytes where the vocabulary is large */
    err = check_plan(m, path, e);
    if (err == SLUICE_OK) err = open_compute(m, &choice, e);
    if (err == SLUICE_OK)
        err = sl_model_load(&m->m, m->gguf, &m->budget, m->opt.progress, m->opt.progress_user, e);
    if (err != SLUICE_OK) return err;
    sl_gguf_close(m->gguf);
    m->gguf = NULL;
    return SLUICE_OK;
}

static sluice_err open_all(sluice_model *m, const char *path, sluice_error *e)
{
    sluice_err err = open_header(m, path, e);
    if (err == SLUICE_OK) err = open_template(m, e);
    if (err == SLUICE_OK && !(m->opt.flags & SLUICE_OPEN_HEADER)) err = open_text(m, e);
    if (err != SLUICE_OK) return err;
    if (m->opt.flags == 0) return open_weights(m, path, e);
    /* Sizes for sluice_model_get_info, as far as the file describes a model that this build knows.
     */
    if (sl_model_describe(&m->m, m->gguf, &m->budget, &(struct sl_log){0}, NULL) != SLUICE_OK)
        sl_model_deinit(&m->m);
    return SLUICE_OK;
}

static sluice_err new_model(const sluice_options *opt, sluice_model **out, sluice_error *e)
{
    sluice_options o;
    sluice_err err = api_options(opt, &o, e);
    if (err != SLUICE_OK) return err;
    uint64_t outside = API_PROCESS_BYTES + API_THREAD_BYTES * o.threads;
    uint64_t limit = o.ram_bytes == 0        ? UINT64_MAX
                     : o.ram_bytes > outside ? o.ram_bytes - outside
                                             : 0;
    sluice_model *m = sl_alloc(NULL, 1, sizeof *m);
    if (!m) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the model handle");
    sl_budget_init(&m->budget, limit);
    m->opt = o;
    m->log = (struct sl_log){o.log, o.log_user, (int)o.log_level};
    atomic_flag_clear(&m->busy);
    *out = m;
    return SLUICE_OK;
}

/* A budget that is used up before the plan is known: says which would work. */
static sluice_err explain_budget(const char *path, const sluice_options *opt, sluice_err err,
                                 sluice_error *e)
{
    bool is_memory =
        err == SLUICE_E_NOMEM || (err == SLUICE_E_BUDGET && !(e && strstr(e->text, "--ram")));
    if (!is_memory || !opt || opt->ram_bytes == 0) return err;
    sluice_plan p = SLUICE_PLAN_INIT;
    if (sluice_memory_plan(path, opt, &p, NULL) != SLUICE_OK || p.minimum_bytes <= opt->ram_bytes)
        return err;
    return refuse_budget(path, opt, &p, e);
}

sluice_err sluice_model_open(const char *path, const sluice_options *opt, sluice_model **out,
                             sluice_error *error)
{
    if (!out) return sl_fail(error, SLUICE_E_ARG, "out is NULL");
    *out = NULL;
    if (!path || !*path) return sl_fail(error, SLUICE_E_ARG, "no model file was given");
    uint64_t start = sl_now_ns();
    sluice_model *m = NULL;
    sluice_err err = new_model(opt, &m, error);
    if (err != SLUICE_OK) return err;
    uint64_t saved = sl_fp_enter();
    err = open_all(m, path, error);
    sl_fp_leave(saved);
    if (err != SLUICE_OK) {
        sluice_model_close(m);
        return explain_budget(path, opt, err, error);
    }
    m->load_ns = sl_now_ns() - start;
    *out = m;
    return SLUICE_OK;
}

void sluice_model_close(sluice_model *m)
{
    if (!m) return;
    SLUICE_ASSERT(m->n_sessions == 0);
    sl_pool_close(m->pool);
    sl_model_deinit(&m->m);
    sl_tokenizer_close(m->tokenizer);
    sl_gguf_close(m->gguf);
    sl_free(m);
}

/* ---- the plan, without opening ---------------------------------------------------------- */

sluice_err sluice_memory_plan(const char *path, const sluice_options *opt, sluice_plan *plan,
                              sluice_error *error)
{
    if (!path || !*path || !plan || plan->struct_size < sizeof(uint32_t))
        return sl_fail(error, SLUICE_E_ARG,
                       "no model file, or no plan initialised with SLUICE_PLAN_INIT, was given");
    sluice_model *m = NULL;
    sluice_err err = new_model(opt, &m, error);
    if (err != SLUICE_OK) return err;
    m->budget.limit_bytes = UINT64_MAX; /* what would be too much is the answer, not an error */
    uint64_t saved = sl_fp_enter();
    err = open_header(m, path, error);
    if (err == SLUICE_OK) err = open_text(m, error);
    if (err == SLUICE_OK) err = sl_model_describe(&m->m, m->gguf, &m->budget, &m->log, error);
    if (err == SLUICE_OK) {
        struct sl_cpu_choice choice;
        sl_cpu_choose("", &choice);
        api_plan(&m->m, &m->opt, api_threads(&m->opt, &choice), sl_tokenizer_bytes(m->tokenizer),
                 plan);
    }
    sl_fp_leave(saved);
    sluice_model_close(m);
    return err;
}

/* ---- information ------------------------------------------------------------------------ */

void sluice_model_get_info(const sluice_model *m, sluice_model_info *info)
{
    sluice_model_info i = SLUICE_MODEL_INFO_INIT;
    i.n_layers = m->m.n_layers;
    i.n_moe_layers = m->m.n_moe_layers;
    i.n_embd = m->m.n_embd;
    i.n_vocab = m->m.n_vocab ? m->m.n_vocab : m->tokenizer ? sl_tokenizer_size(m->tokenizer) : 0;
    i.n_ctx_train = m->m.n_ctx_train;
    i.n_ctx = m->n_ctx;
    i.n_experts = m->m.max_experts;
    i.top_k = m->m.max_top_k;
    i.threads = m->threads;
    i.kv = m->opt.kv;
    i.n_files = m->n_files;
    i.file_bytes = m->file_bytes;
    i.n_params = m->n_params;
    i.memory_bytes = sl_budget_used(&m->budget);
    i.load_ns = m->load_ns;
    i.arch = m->arch;
    i.name = m->name;
    i.isa = m->kernels ? m->kernels->isa : "";
    i.tokenizer = m->tokenizer ? sl_tokenizer_name(m->tokenizer) : "";
    i.chat_template = m->chat_template ? sl_chat_template_name(m->chat_template) : "";
    i.struct_size = info->struct_size;
    memcpy(info, &i, info->struct_size < sizeof i ? info->struct_size : sizeof i);
}

int sluice_model_get_meta(const sluice_model *m, uint32_t index, char *key, size_t key_size,
                          char *value, size_t value_size)
{
    if (key_size) key[0] = '\0';
    if (value_size) value[0] = '\0';
    if (!m->gguf || index >= sl_gguf_n_keys(m->gguf) || key_size < 4 || value_size < 4) return 0;
    sl_str_show(sl_gguf_key(m->gguf, index), key, key_size);
    sl_gguf_key_show(m->gguf, index, value, value_size);
    return 1;
}

int sluice_model_get_tensor(const sluice_model *m, uint32_t index, sluice_tensor *out)
{
    if (!m->gguf || index >= sl_gguf_n_tensors(m->gguf)) return 0;
    const struct sl_gguf_tensor *t = sl_gguf_tensor(m->gguf, index);
    sluice_tensor r = SLUICE_TENSOR_INIT;
    r.struct_size = out->struct_size;
    r.n_dims = t->n_dims;
    memcpy(r.dims, t->dims, sizeof r.dims);
    r.bytes = t->bytes;
    r.offset = t->offset;
    r.file = t->shard;
    snprintf(r.type, sizeof r.type, "%s", sl_type_name(t->type));
    sl_str_show(t->name, r.name, sizeof r.name);
    memcpy(out, &r, out->struct_size < sizeof r ? out->struct_size : sizeof r);
    return 1;
}
