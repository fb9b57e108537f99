/* Between describing a model and loading it: what the options change of it, the plan, and refusing
 * what cannot fit before anything large is allocated. */
#include <stdio.h>

#include "engine/api.h"

/* Fewer experts a token, where that is asked for. */
static void limit_experts(sluice_model *m)
{
    uint32_t most = m->opt.experts_used;
    if (most == 0) return;
    m->m.max_top_k = 0;
    for (uint32_t l = 0; l < m->m.n_layers; l++) {
        struct sl_layer *y = &m->m.layers[l];
        if (y->n_experts == 0) continue;
        if (y->router.top_k > most) {
            y->router.top_k = y->experts.top_k = most;
            m->lossy |= SLUICE_LOSSY_EXPERTS_USED;
        }
        if (y->router.top_k > m->m.max_top_k) m->m.max_top_k = y->router.top_k;
    }
}

sluice_err api_describe(sluice_model *m, const struct sl_log *log, sluice_error *e)
{
    sluice_err err = sl_model_describe(&m->m, m->gguf, &m->budget, log, e);
    if (err != SLUICE_OK) return err;
    limit_experts(m);
    for (uint32_t l = 0; l < m->m.n_layers; l++) m->n_experts_total += m->m.layers[l].n_experts;
    if (m->n_experts_total && m->opt.sticky > 0) m->lossy |= SLUICE_LOSSY_STICKY;
    if (m->n_experts_total && m->opt.drop_cold > 0) m->lossy |= SLUICE_LOSSY_DROP_COLD;
    return SLUICE_OK;
}

/* ---- the plan --------------------------------------------------------------------------- */

sluice_err api_refuse_budget(const char *path, const sluice_options *opt, const sluice_plan *p,
                             sluice_error *e)
{
    char what[64];
    snprintf(what, sizeof what, opt->n_ctx ? "this context" : "a short context");
    if (opt->slots) snprintf(what, sizeof what, "so many slots");
    return sl_fail(
        e, SLUICE_E_BUDGET,
        "%s: does not fit into %.1f MiB; the smallest budget that works with %s is --ram "
        "%lluM",
        path, (double)p->ram_bytes / (1 << 20), what,
        (unsigned long long)((p->minimum_bytes + (1 << 20) - 1) >> 20));
}

static sluice_err refuse_slots(const char *path, const sluice_options *opt, const sluice_plan *p,
                               sluice_error *e)
{
    return sl_fail(e, SLUICE_E_BUDGET,
                   "%s: %u expert slots are fewer than one layer needs at once; the smallest "
                   "number that works is --slots %u",
                   path, opt->slots, p->n_slots_min);
}

/* Memory of the sums file beside the model, if there is one; it must be sound. */
static sluice_err sums_bytes(sluice_model *m, uint64_t *bytes, sluice_error *e)
{
    struct sl_sums *sums = NULL;
    sluice_err err = sl_sums_open(m->gguf, &m->budget, e, &sums);
    *bytes = sums ? sl_sums_bytes(m->gguf) : 0;
    sl_sums_close(sums);
    return err;
}

/* Of a described model whose metadata is dropped. */
sluice_err api_make_plan(sluice_model *m, struct api_plan *plan, sluice_error *e)
{
    struct api_plan_input in = {.m = &m->m,
                                .opt = &m->opt,
                                .threads = m->threads,
                                .tokenizer_bytes = sl_tokenizer_bytes(m->tokenizer),
                                .available_bytes = m->available_bytes};
    sluice_err err = sums_bytes(m, &in.sums_bytes, e);
    if (err != SLUICE_OK) return err;
    in.charged_bytes = sl_budget_used(&m->budget);
    in.peak_bytes = atomic_load_explicit(&m->budget.peak_bytes, memory_order_relaxed);
    return api_plan(&in, &m->budget, e, plan);
}

static void log_plan(const sluice_model *m, const sluice_plan *p)
{
    const double mib = 1.0 / (1 << 20);
    sl_log_line(&m->log, SL_LOG_INFO,
                "memory plan: dense %.1f MiB, experts %.1f (%u slots for %u), KV %.1f (%.1f for "
                "the whole context of %u tokens, with %u slots), scratch %.1f (chunk %u), "
                "tokenizer %.1f, reading %.1f, process %.1f; total %.1f MiB",
                (double)p->dense_bytes * mib, (double)p->expert_bytes * mib, p->n_slots,
                p->n_experts, (double)p->kv_start_bytes * mib, (double)p->kv_bytes * mib, p->n_ctx,
                p->n_slots_full, (double)p->scratch_bytes * mib, p->chunk,
                (double)p->tokenizer_bytes * mib, (double)p->io_bytes * mib,
                (double)p->process_bytes * mib, (double)p->total_bytes * mib);
    if (p->streams && p->n_slots < p->n_slots_hits)
        sl_log_line(&m->log, SL_LOG_INFO,
                    "%u expert slots hold less than one token uses in all layers, so that nearly "
                    "every expert is read again; hits begin at %u slots, --ram %lluM",
                    p->n_slots, p->n_slots_hits,
                    (unsigned long long)((p->hits_bytes + (1 << 20) - 1) >> 20));
}

/* A context longer than a sliding window would give other text than the model's. */
static sluice_err check_window(const sluice_model *m, const char *path, sluice_error *e)
{
    if (m->opt.n_ctx <= m->m.n_ctx_most || m->m.n_ctx_most == m->m.n_ctx_train) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_UNSUPPORTED,
                   "%s: the model attends to windows of %u tokens, which this version does not; a "
                   "context of %u would give wrong text, up to %u is right",
                   path, m->m.n_ctx_most, m->opt.n_ctx, m->m.n_ctx_most);
}

/* Refuses what cannot fit, before anything large is allocated. */
sluice_err api_check_plan(sluice_model *m, const char *path, struct api_plan *plan, sluice_error *e)
{
    sluice_err err = check_window(m, path, e);
    if (err != SLUICE_OK) return err;
    err = api_make_plan(m, plan, e);
    if (err != SLUICE_OK) return err;
    const sluice_plan *p = &plan->p;
    m->n_ctx = p->n_ctx;
    m->chunk = p->chunk;
    m->n_slots = p->n_slots;
    log_plan(m, p);
    if (plan->below_floor) return refuse_slots(path, &m->opt, p, e);
    if (m->opt.ram_bytes && m->opt.ram_bytes < p->minimum_bytes)
        return api_refuse_budget(path, &m->opt, p, e);
    m->budget.limit_bytes = api_budget_limit(m->opt.ram_bytes, m->threads);
    return SLUICE_OK;
}
