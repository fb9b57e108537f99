/* Opening and describing models. */
#include <stdio.h>
#include <string.h>

#include "base/available.h"
#include "base/clock.h"
#include "engine/api.h"
#include "engine/record.h"
#include "formats/gguf_graft.h"

/* ---- opening, step by step -------------------------------------------------------------- */

static void copy_text(struct sl_str s, char *buf, size_t size) { sl_str_show(s, buf, size); }

_Static_assert((int)SLUICE_GRAFT_EMBEDDING == (int)SL_GROUP_EMBEDDING &&
                   (int)SLUICE_GRAFT_OUTPUT == (int)SL_GROUP_OUTPUT,
               "graft_layer is handed on as it is");

static sluice_err open_files(sluice_model *m, const char *path, sluice_error *e)
{
    struct sl_gguf *other;
    sluice_err err = sl_gguf_open(path, &m->budget, e, &m->gguf);
    if (err != SLUICE_OK || !m->opt.graft_path) return err;
    err = sl_gguf_open(m->opt.graft_path, &m->budget, e, &other);
    return err == SLUICE_OK ? sl_gguf_graft(m->gguf, other, m->opt.graft_layer, e) : err;
}

/* Opens the file and takes from it what every kind of handle shows. */
static sluice_err open_header(sluice_model *m, const char *path, sluice_error *e)
{
    sluice_err err = open_files(m, path, e);
    if (err == SLUICE_OK) err = sl_gguf_refuse_imatrix(m->gguf, e);
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

const struct sl_ec_policy *api_policy(const sluice_model *m)
{
    const struct sl_ec_policy *p = NULL;
    if (m->opt.cache_policy)
        p = sl_ec_policy_find(sluice_cache_policy_name(m->opt.cache_policy - 1));
    return p ? p : sl_ec_policy_at(0);
}

struct opening {
    sluice_model *m;
    const struct api_plan *plan;
};

static sluice_err on_opened(void *user, sluice_error *e)
{
    const struct opening *o = user;
    return api_trace_open(o->m, o->plan, e);
}

static sluice_err load(sluice_model *m, const struct api_plan *plan, const struct api_hook *hook,
                       sluice_error *e)
{
    struct opening opening = {m, plan};
    static const enum sl_io_kind kinds[] = {
        [SLUICE_IO_URING] = SL_IO_URING, [SLUICE_IO_PREAD] = SL_IO_PREAD, [SLUICE_IO_MMAP] = 0};
    struct sl_load_config c = {
        .io = kinds[m->opt.io],
        .map = m->opt.io == SLUICE_IO_MMAP,
        .policy = api_policy(m),
        .read_ahead = (enum sl_read_ahead_mode)m->opt.prefetch,
        .log = &m->log,
        .progress = m->opt.progress,
        .progress_user = m->opt.progress_user,
        .wrap = hook ? hook->wrap : NULL,
        .wrap_user = hook ? hook->user : NULL,
        .opened = on_opened,
        .opened_user = &opening,
    };
    memcpy(c.n_slots, plan->n_slots, sizeof c.n_slots);
    return sl_model_load(&m->m, m->gguf, &c, &m->budget, e);
}

/* What only describing needed, tens of megabytes where the vocabulary is large, and as much again
 * in the page cache, with what the drive's read-ahead added. */
static void drop_metadata(sluice_model *m)
{
    sl_gguf_drop_metadata(m->gguf);
    for (uint32_t i = 0; i < m->n_files; i++) sl_file_drop_cache(sl_gguf_file(m->gguf, i), 0, 0);
}

static sluice_err open_weights(sluice_model *m, const char *path, const struct api_hook *hook,
                               sluice_error *e)
{
    struct sl_cpu_choice choice;
    struct api_plan plan;
    sl_cpu_choose("", &choice);
    m->threads = api_threads(&m->opt, &choice);
    if (m->threads < m->opt.threads)
        sl_log_line(&m->log, SL_LOG_WARN, "%u threads were asked for; there are %u cores, so %u",
                    m->opt.threads, choice.allowed, m->threads);
    sluice_err err = api_describe(m, &m->log, e);
    if (err == SLUICE_OK) err = check_vocab(m, path, e);
    if (err != SLUICE_OK) return err;
    drop_metadata(m);
    err = api_check_plan(m, path, &plan, e);
    if (err == SLUICE_OK) err = open_compute(m, &choice, e);
    if (err == SLUICE_OK) err = load(m, &plan, hook, e);
    if (err == SLUICE_OK) api_open_hot_list(m);
    return err;
}

static sluice_err open_all(sluice_model *m, const char *path, const struct api_hook *hook,
                           sluice_error *e)
{
    sluice_err err = open_header(m, path, e);
    if (err == SLUICE_OK) err = open_template(m, e);
    if (err == SLUICE_OK && !(m->opt.flags & SLUICE_OPEN_HEADER)) err = open_text(m, e);
    if (err != SLUICE_OK) return err;
    if (m->opt.flags == 0) return open_weights(m, path, hook, e);
    /* Sizes for sluice_model_get_info, as far as the file describes a model that this build knows.
     */
    if (api_describe(m, &(struct sl_log){0}, NULL) != SLUICE_OK) sl_model_deinit(&m->m);
    return SLUICE_OK;
}

/* SLUICE_RAM_AUTO to a number; where the system does not say, to no limit. */
static void resolve_ram(sluice_model *m)
{
    m->available_bytes = sl_available_bytes("");
    if (m->opt.ram_bytes != SLUICE_RAM_AUTO) return;
    m->opt.ram_bytes = sl_available_less_reserve(m->available_bytes);
    if (m->opt.ram_bytes == UINT64_MAX) {
        m->opt.ram_bytes = 0;
        sl_log_line(&m->log, SL_LOG_WARN,
                    "the system does not say how much memory is available; give --ram a size");
    } else if (m->opt.ram_bytes == 0) {
        m->opt.ram_bytes = 1; /* nothing is left: refused, with the size that works */
    }
}

static sluice_err new_model(const sluice_options *opt, sluice_model **out, sluice_error *e)
{
    sluice_options o;
    sluice_err err = api_options(opt, &o, e);
    if (err != SLUICE_OK) return err;
    sluice_model *m = sl_alloc(NULL, 1, sizeof *m);
    size_t path_size = o.hot_list ? strlen(o.hot_list) + 1 : 0;
    if (m && o.hot_list) m->hot_path = sl_alloc(NULL, path_size, 1);
    if (!m || (o.hot_list && !m->hot_path)) {
        sl_free(m);
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the model handle");
    }
    if (o.hot_list) memcpy(m->hot_path, o.hot_list, path_size);
    m->opt = o;
    m->log = (struct sl_log){o.log, o.log_user, (int)o.log_level};
    resolve_ram(m);
    sl_budget_init(&m->budget, api_budget_limit(m->opt.ram_bytes, 1)); /* exact with the plan */
    atomic_init(&m->busy, API_FREE);
    *out = m;
    return SLUICE_OK;
}

/* A budget that is used up before the plan is known: says which would work. */
static sluice_err explain_budget(const char *path, const sluice_options *opt, sluice_err err,
                                 sluice_error *e)
{
    bool is_memory =
        err == SLUICE_E_NOMEM || (err == SLUICE_E_BUDGET &&
                                  !(e && (strstr(e->text, "--ram") || strstr(e->text, "--slots"))));
    if (!is_memory || !opt || opt->ram_bytes == 0) return err;
    sluice_plan p = SLUICE_PLAN_INIT;
    if (sluice_memory_plan(path, opt, &p, NULL) != SLUICE_OK || p.minimum_bytes <= p.ram_bytes)
        return err;
    return api_refuse_budget(path, opt, &p, e);
}

sluice_err api_model_open(const char *path, const sluice_options *opt, const struct api_hook *hook,
                          sluice_model **out, sluice_error *error)
{
    if (!out) return sl_fail(error, SLUICE_E_ARG, "out is NULL");
    *out = NULL;
    if (!path || !*path) return sl_fail(error, SLUICE_E_ARG, "no model file was given");
    uint64_t start = sl_now_ns();
    sluice_model *m = NULL;
    sluice_err err = new_model(opt, &m, error);
    if (err != SLUICE_OK) return err;
    uint64_t saved = sl_fp_enter();
    err = open_all(m, path, hook, error);
    sl_fp_leave(saved);
    if (err != SLUICE_OK) {
        m->n_slots = 0; /* nothing to remember */
        sluice_model_close(m);
        return explain_budget(path, opt, err, error);
    }
    m->load_ns = sl_now_ns() - start;
    *out = m;
    return SLUICE_OK;
}

sluice_err sluice_model_open(const char *path, const sluice_options *opt, sluice_model **out,
                             sluice_error *error)
{
    return api_model_open(path, opt, NULL, out, error);
}

void sluice_model_close(sluice_model *m)
{
    if (!m) return;
    SLUICE_ASSERT(m->n_sessions == 0);
    if (m->hot_path && !m->hot_foreign && m->m.store && m->n_slots && m->opt.io != SLUICE_IO_MMAP)
        api_save_hot_list(m);
    sl_pool_close(m->pool);
    sl_model_deinit(&m->m);
    sl_record_close(m->record);
    sl_hot_list_free(&m->hot);
    sl_tokenizer_close(m->tokenizer);
    sl_gguf_close(m->gguf);
    sl_free(m->hot_path);
    sl_free(m);
}

/* ---- the plan, without opening ---------------------------------------------------------- */

static sluice_err plan_only(sluice_model *m, const char *path, struct api_plan *plan,
                            sluice_error *e)
{
    struct sl_cpu_choice choice;
    sluice_err err = open_header(m, path, e);
    if (err == SLUICE_OK) err = open_text(m, e);
    if (err == SLUICE_OK) err = api_describe(m, &m->log, e);
    if (err != SLUICE_OK) return err;
    sl_gguf_drop_metadata(m->gguf);
    sl_cpu_choose("", &choice);
    m->threads = api_threads(&m->opt, &choice);
    return api_make_plan(m, plan, e);
}

sluice_err sluice_memory_plan(const char *path, const sluice_options *opt, sluice_plan *plan,
                              sluice_error *error)
{
    if (!path || !*path || !plan || plan->struct_size < sizeof(uint32_t))
        return sl_fail(error, SLUICE_E_ARG,
                       "no model file, or no plan initialised with SLUICE_PLAN_INIT, was given");
    sluice_model *m = NULL;
    struct api_plan made;
    sluice_err err = new_model(opt, &m, error);
    if (err != SLUICE_OK) return err;
    m->budget.limit_bytes = UINT64_MAX; /* what would be too much is the answer, not an error */
    uint64_t saved = sl_fp_enter();
    err = plan_only(m, path, &made, error);
    sl_fp_leave(saved);
    if (err == SLUICE_OK) {
        uint32_t size = plan->struct_size;
        made.p.struct_size = size;
        memcpy(plan, &made.p, size < sizeof made.p ? size : sizeof made.p);
    }
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
    i.io = !m->m.io ? "" : m->opt.io == SLUICE_IO_MMAP ? "mmap" : sl_io_name(m->m.io);
    i.cache_policy = m->n_slots < m->n_experts_total ? api_policy(m)->name : "";
    i.ram_bytes = m->opt.ram_bytes;
    i.chunk = m->chunk;
    i.lossy = m->lossy;
    i.n_slots = m->n_slots;
    i.n_experts_total = m->n_experts_total;
    i.format = m->gguf && sl_gguf_has_records(m->gguf) ? "container" : "GGUF";
    i.recipe = m->gguf && sl_gguf_recipe(m->gguf).n ? sl_gguf_recipe(m->gguf).p : "";
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
