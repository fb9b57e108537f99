/* Sessions: the public handle around engine/session.h, one evaluation at a time. */
#include <sched.h>
#include <string.h>

#include "engine/api.h"

/* Hands the hot list to the store, on the first thread that evaluates: reads may start there only.
 * What has not started when an evaluation ends waits for the next. */
static void warm(sluice_model *m)
{
    if (m->hot.n == 0) return;
    sl_expert_warm(m->m.store, m->hot.ids, m->hot.n);
    sl_hot_list_free(&m->hot);
}

static sluice_err check_files(const sluice_model *m, sluice_error *e)
{
    sluice_err err = SLUICE_OK;
    for (uint32_t i = 0; i < m->n_files && err == SLUICE_OK; i++)
        err = sl_file_check_unchanged(sl_gguf_file(m->gguf, i), e);
    return err;
}

/* Takes the model from API_FREE; false where an evaluation has it. Others have it for a moment
 * only. Sequentially consistent, as all that follows: see trim.c. */
static bool take(sluice_model *m, uint32_t who)
{
    for (;;) {
        uint32_t found = API_FREE;
        if (atomic_compare_exchange_strong(&m->busy, &found, who)) return true;
        if (found == API_EVALUATES) return false;
        (void)sched_yield();
    }
}

/* Gives it back, with everything done that was asked for meanwhile. */
static void give(sluice_model *m)
{
    do {
        sl_model_apply_trim(&m->m);
        atomic_store(&m->busy, API_FREE);
        /* whoever asked since then found it taken */
    } while (sl_model_trim_waits(&m->m) && take(m, API_LOOKS));
}

sluice_err api_enter(sluice_model *m, uint64_t *saved, sluice_error *e)
{
    if (!take(m, API_EVALUATES))
        return sl_fail(
            e, SLUICE_E_STATE,
            "another evaluation is running on this model; sessions of one model take turns");
    sluice_err err = check_files(m, e);
    if (err != SLUICE_OK) {
        give(m);
        return err;
    }
    *saved = sl_fp_enter();
    sl_model_apply_trim(&m->m);
    warm(m);
    return SLUICE_OK;
}

void api_leave(sluice_model *m, uint64_t saved)
{
    if (m->m.store) sl_expert_settle(m->m.store);
    give(m);
    sl_fp_leave(saved);
}

sluice_err sluice_model_trim(sluice_model *m, uint32_t level, sluice_error *error)
{
    if (level < SLUICE_TRIM_SOME || level > SLUICE_TRIM_RESTORE)
        return sl_fail(error, SLUICE_E_ARG, "the level is %u, wanted 1 to %u", level,
                       (unsigned)SLUICE_TRIM_RESTORE);
    sl_model_request_trim(&m->m, level);
    if (take(m, API_LOOKS)) give(m);
    return SLUICE_OK;
}

void api_session_config(const struct api_session_input *in, struct sl_session_config *out)
{
    const sluice_options *o = in->opt;
    *out = (struct sl_session_config){.chunk = in->chunk,
                                      .n_ctx = in->n_ctx,
                                      .kv = api_kv_type(o->kv),
                                      .guess = in->streams && o->prefetch != SLUICE_PREFETCH_OFF,
                                      .sticky = o->sticky,
                                      .sticky_size = o->sticky_size,
                                      .drop_cold = o->drop_cold};
}

void api_make_room(sluice_model *m, uint64_t need)
{
    uint64_t used = sl_budget_used(&m->budget), limit = m->budget.limit_bytes;
    uint64_t left = limit > used ? limit - used : 0;
    if (need > left && m->m.store) (void)sl_expert_store_shrink(m->m.store, need - left);
}

static sluice_err open_session(sluice_model *m, sluice_session **out, sluice_error *error)
{
    struct sl_session_config config;
    struct api_session_input in = {&m->opt, m->chunk, m->n_ctx, m->n_slots < m->n_experts_total};
    api_session_config(&in, &config);
    /* slots give way to a session that the plan did not have: it is for one */
    api_make_room(m, sl_scratch_bytes(&m->m, config.chunk, m->threads) + sl_recurrent_bytes(&m->m) +
                         sl_session_extra_bytes(&m->m, &config) + API_SESSION_BYTES);
    sluice_session *s = sl_alloc(&m->budget, 1, sizeof *s);
    if (!s) return sl_fail(error, SLUICE_E_NOMEM, "no memory for a session");
    struct sl_compute c = {m->kernels, m->pool};
    sluice_err err = sl_session_init(&s->s, &m->m, &c, &config, &m->budget, error);
    if (err != SLUICE_OK) {
        sl_free(s);
        return err;
    }
    s->model = m;
    api_look_at_experts(s);
    m->n_sessions++;
    *out = s;
    return SLUICE_OK;
}

/* Slots may have to give way, and trimming is allowed to any thread at any time. */
sluice_err sluice_session_open(sluice_model *m, sluice_session **out, sluice_error *error)
{
    *out = NULL;
    if (!m->pool) return sl_fail(error, SLUICE_E_STATE, "the model was opened without its weights");
    if (!take(m, API_LOOKS))
        return sl_fail(error, SLUICE_E_STATE,
                       "an evaluation is running on this model; a session is opened between two");
    sluice_err err = open_session(m, out, error);
    give(m);
    return err;
}

void sluice_session_close(sluice_session *s)
{
    if (!s) return;
    s->model->n_sessions--;
    sl_session_deinit(&s->s);
    sl_free(s);
}

/* all: [n][n_vocab]; last: [n_vocab]; either may be NULL. */
static sluice_err evaluate(sluice_session *s, const int32_t *ids, size_t n, float *all, float *last,
                           sluice_error *error)
{
    uint64_t saved = 0, before = s->s.history.count;
    const float *logits;
    sluice_err err = api_enter(s->model, &saved, error);
    if (err != SLUICE_OK) return err;
    err = sl_session_eval(&s->s, ids, n, all, last ? &logits : NULL, error);
    if (err != SLUICE_OK)
        sl_session_truncate(&s->s, before);
    else if (last)
        memcpy(last, logits, s->s.m->n_vocab * sizeof *last);
    api_look_at_experts(s);
    api_leave(s->model, saved);
    return err;
}

sluice_err sluice_session_eval(sluice_session *s, const int32_t *ids, size_t n, float *logits,
                               sluice_error *error)
{
    return evaluate(s, ids, n, logits, NULL, error);
}

sluice_err sluice_session_eval_last(sluice_session *s, const int32_t *ids, size_t n, float *logits,
                                    sluice_error *error)
{
    return evaluate(s, ids, n, NULL, logits, error);
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

void sluice_session_observe(sluice_session *s, sluice_input_fn *fn, void *user)
{
    s->s.observer = (struct sl_observer){fn, user, s->model->gguf};
}

void sluice_session_route(sluice_session *s, sluice_route_fn *fn, void *user)
{
    s->s.chooser = (struct sl_chooser){fn, user};
}

/* ---- figures ---------------------------------------------------------------------------- */

/* A copy in the session: another session may be evaluating, and counting, when this one is asked.
 */
void api_look_at_experts(sluice_session *s)
{
    if (s->model->m.store) sl_expert_get_stats(s->model->m.store, &s->experts);
}

static void put_experts(const struct sl_expert_stats *x, sluice_stats *r)
{
    r->uses = x->uses;
    r->hits = x->hits;
    r->hits_flying = x->hits_flying;
    r->load_bytes = x->load_bytes;
    r->warm_bytes = x->warm_bytes;
    r->prompt_bytes = x->prompt_bytes;
    r->demand_bytes = x->demand_bytes;
    r->ahead_bytes = x->ahead_bytes;
    r->ahead_useful_bytes = x->ahead_useful_bytes;
    r->ahead_wasted_bytes = x->ahead_wasted_bytes;
    r->evictions = x->evictions;
    r->stall_ns = x->stall_ns;
    r->read_ns = x->read_ns;
    r->checked = x->checked;
    r->predicted = x->predicted;
    r->predicted_used = x->predicted_used;
    r->slot_bytes = x->slot_bytes_open;
    r->n_slots = x->n_slots;
    r->n_slots_open = x->n_open;
    r->n_slots_filled = x->n_resident;
}

static void put_phases(const struct sl_phases *p, sluice_stats *r)
{
    r->projection_ns = p->ns[SL_PHASE_PROJECTION];
    r->mixing_ns = p->ns[SL_PHASE_MIXING];
    r->routing_ns = p->ns[SL_PHASE_ROUTING];
    r->expert_ns = p->ns[SL_PHASE_EXPERT];
    r->waiting_ns = p->ns[SL_PHASE_WAITING];
    r->head_ns = p->ns[SL_PHASE_HEAD];
    r->other_ns = p->ns[SL_PHASE_OTHER];
}

void sluice_session_get_stats(const sluice_session *s, sluice_stats *stats)
{
    sluice_stats r = SLUICE_STATS_INIT;
    r.struct_size = stats->struct_size;
    r.lossy = s->model->lossy;
    r.eval_tokens = s->s.eval_tokens;
    r.eval_ns = s->s.eval_ns;
    put_phases(&s->s.phases, &r);
    r.kv_bytes = s->s.kv.region.committed_bytes;
    r.budget_peak_bytes = atomic_load_explicit(&s->model->budget.peak_bytes, memory_order_relaxed);
    r.process_peak_bytes = sl_peak_rss_bytes();
    r.dropped = s->s.n_dropped;
    struct sl_expert_stats experts = s->experts;
    if (s->model->m.store && take(s->model, API_LOOKS)) {
        sl_expert_get_stats(s->model->m.store, &experts);
        give(s->model);
    }
    put_experts(&experts, &r);
    memcpy(stats, &r, stats->struct_size < sizeof r ? stats->struct_size : sizeof r);
}

int sluice_model_get_layer_stats(const sluice_model *m, uint32_t layer, sluice_layer_stats *stats)
{
    sluice_layer_stats r = SLUICE_LAYER_STATS_INIT;
    if (layer >= m->m.n_layers) return 0;
    r.struct_size = stats->struct_size;
    r.n_experts = m->m.layers[layer].n_experts;
    if (m->m.store && r.n_experts) {
        struct sl_expert_layer_stats x;
        sl_expert_get_layer_stats(m->m.store, layer, &x);
        r.uses = x.uses;
        r.hits = x.hits;
        r.hits_flying = x.hits_flying;
        r.prompt_bytes = x.prompt_bytes;
        r.demand_bytes = x.demand_bytes;
        r.ahead_bytes = x.ahead_bytes;
        r.ahead_useful_bytes = x.ahead_useful_bytes;
        r.ahead_wasted_bytes = x.ahead_wasted_bytes;
        r.predicted = x.predicted;
        r.predicted_used = x.predicted_used;
        r.stall_ns = x.stall_ns;
    }
    memcpy(stats, &r, stats->struct_size < sizeof r ? stats->struct_size : sizeof r);
    return 1;
}
