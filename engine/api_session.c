/* Sessions: the public handle around engine/session.h, one evaluation at a time. */
#include <string.h>

#include "engine/api.h"

sluice_err api_enter(sluice_model *m, uint64_t *saved, sluice_error *e)
{
    if (atomic_flag_test_and_set_explicit(&m->busy, memory_order_acquire))
        return sl_fail(
            e, SLUICE_E_STATE,
            "another evaluation is running on this model; sessions of one model take turns");
    *saved = sl_fp_enter();
    return SLUICE_OK;
}

void api_leave(sluice_model *m, uint64_t saved)
{
    sl_fp_leave(saved);
    atomic_flag_clear_explicit(&m->busy,
                               memory_order_release); /* pairs with the acquire of api_enter */
}

sluice_err sluice_session_open(sluice_model *m, sluice_session **out, sluice_error *error)
{
    *out = NULL;
    if (!m->pool) return sl_fail(error, SLUICE_E_STATE, "the model was opened without its weights");
    sluice_session *s = sl_alloc(&m->budget, 1, sizeof *s);
    if (!s) return sl_fail(error, SLUICE_E_NOMEM, "no memory for a session");
    struct sl_compute c = {m->kernels, m->pool};
    struct sl_session_config config = {m->opt.chunk, m->n_ctx, api_kv_type(m->opt.kv)};
    sluice_err err = sl_session_init(&s->s, &m->m, &c, &config, &m->budget, error);
    if (err != SLUICE_OK) {
        sl_free(s);
        return err;
    }
    s->model = m;
    m->n_sessions++;
    *out = s;
    return SLUICE_OK;
}

void sluice_session_close(sluice_session *s)
{
    if (!s) return;
    s->model->n_sessions--;
    sl_session_deinit(&s->s);
    sl_free(s);
}

sluice_err sluice_session_eval(sluice_session *s, const int32_t *ids, size_t n, float *logits,
                               sluice_error *error)
{
    uint64_t saved = 0, before = s->s.history.count;
    sluice_err err = api_enter(s->model, &saved, error);
    if (err != SLUICE_OK) return err;
    err = sl_session_eval(&s->s, ids, n, logits, NULL, error);
    if (err != SLUICE_OK) sl_session_truncate(&s->s, before);
    api_leave(s->model, saved);
    return err;
}

void sluice_session_truncate(sluice_session *s, size_t n_tokens)
{
    if (n_tokens < s->s.history.count) sl_session_truncate(&s->s, n_tokens);
}

size_t sluice_session_length(const sluice_session *s) { return s->s.history.count; }

void sluice_session_cancel(sluice_session *s, int on)
{
    atomic_store_explicit(&s->s.cancel, on != 0,
                          memory_order_relaxed); /* a flag by itself, no data goes with it */
}

void sluice_session_get_stats(const sluice_session *s, sluice_stats *stats)
{
    sluice_stats r = SLUICE_STATS_INIT;
    r.struct_size = stats->struct_size;
    r.eval_tokens = s->s.eval_tokens;
    r.eval_ns = s->s.eval_ns;
    r.kv_bytes = s->s.kv.region.committed_bytes;
    r.budget_peak_bytes = atomic_load_explicit(&s->model->budget.peak_bytes, memory_order_relaxed);
    r.process_peak_bytes = sl_peak_rss_bytes();
    memcpy(stats, &r, stats->struct_size < sizeof r ? stats->struct_size : sizeof r);
}
