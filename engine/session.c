/* The memory of a session: measured and laid out by one function. */
#include "engine/session.h"

static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void moe_layout(struct sl_scratch *s, const struct sl_model *m, uint32_t chunk,
                       struct sl_layout *l)
{
    uint64_t pairs = (uint64_t)chunk * m->max_top_k;
    /* The shared expert borrows scores for its gate and pair_out for its result. */
    s->scores = sl_layout_take(l, (uint64_t)chunk * max_u32(m->max_experts, 1), sizeof *s->scores);
    s->chosen = sl_layout_take(l, pairs, sizeof *s->chosen);
    s->weight = sl_layout_take(l, pairs, sizeof *s->weight);
    s->pair = sl_layout_take(l, pairs, sizeof *s->pair);
    s->leases = sl_layout_take(l, m->max_experts, sizeof *s->leases);
    s->first_pair = sl_layout_take(l, m->max_experts + 1, sizeof *s->first_pair);
    for (int i = 0; i < 2; i++) s->pair_x[i] = sl_layout_take(l, pairs, sizeof *s->pair_x[i]);
    s->pair_up = sl_layout_take(l, pairs * m->max_ff_exp, sizeof *s->pair_up);
    sl_acts_layout(&s->pair_ff, l, (uint32_t)pairs, m->max_ff_exp);
    s->pair_out = sl_layout_take(l, pairs * m->n_embd, sizeof *s->pair_out);
    s->mm = sl_layout_take(l, 2 * m->max_experts + 4, sizeof *s->mm);
}

static void scratch_layout(struct sl_scratch *s, const struct sl_model *m, uint32_t chunk,
                           uint32_t threads, struct sl_layout *l)
{
    s->x = sl_layout_take(l, (uint64_t)chunk * m->n_embd, sizeof *s->x);
    s->out = sl_layout_take(l, (uint64_t)chunk * m->n_embd, sizeof *s->out);
    sl_acts_layout(&s->norm, l, chunk, m->n_embd);
    s->q = sl_layout_take(l, (uint64_t)chunk * m->max_q_rows, sizeof *s->q);
    s->k = sl_layout_take(l, (uint64_t)chunk * m->max_k_rows, sizeof *s->k);
    s->v = sl_layout_take(l, (uint64_t)chunk * m->max_v_rows, sizeof *s->v);
    s->rope = sl_layout_take(l, (uint64_t)chunk * m->rope.n_rot, sizeof *s->rope);
    sl_acts_layout(&s->attn, l, chunk, m->max_o_cols);
    s->up = sl_layout_take(l, (uint64_t)chunk * m->max_ff, sizeof *s->up);
    sl_acts_layout(&s->ff, l, chunk, m->max_ff);
    if (m->n_moe_layers) moe_layout(s, m, chunk, l);
    s->att_scores = sl_layout_take(l, (uint64_t)threads * SL_KV_BLOCK, sizeof *s->att_scores);
    s->att_q_stride = ((uint64_t)m->head_k + 31) & ~(uint64_t)31;
    s->att_d_stride = (s->att_q_stride / SL_KV_GROUP + 15) & ~(uint64_t)15;
    s->att_q = sl_layout_take(l, threads * s->att_q_stride, sizeof *s->att_q);
    s->att_d = sl_layout_take(l, threads * s->att_d_stride, sizeof *s->att_d);
    s->logits = sl_layout_take(l, m->n_vocab, sizeof *s->logits);
}

uint64_t sl_scratch_bytes(const struct sl_model *m, uint32_t chunk, uint32_t threads)
{
    struct sl_scratch s;
    struct sl_layout l = {NULL, 0};
    scratch_layout(&s, m, chunk, threads, &l);
    return l.used;
}

sluice_err sl_session_init(struct sl_session *s, const struct sl_model *m,
                           const struct sl_compute *c, const struct sl_session_config *config,
                           struct sl_budget *b, sluice_error *e)
{
    *s = (struct sl_session){
        .m = m, .compute = *c, .budget = b, .chunk = config->chunk, .n_ctx = config->n_ctx};
    s->history.budget = b;
    uint32_t threads = sl_pool_threads(c->pool);
    uint64_t bytes = sl_scratch_bytes(m, config->chunk, threads);
    s->memory = sl_alloc(b, bytes, 1);
    sluice_err err = s->memory ? SLUICE_OK : SLUICE_E_NOMEM;
    if (err == SLUICE_OK) {
        struct sl_layout l = {s->memory, 0};
        scratch_layout(&s->scratch, m, config->chunk, threads, &l);
        SLUICE_ASSERT(l.used == bytes);
        err = sl_kv_init(&s->kv, m, config->kv, config->n_ctx, b);
    }
    if (err != SLUICE_OK) {
        sl_session_deinit(s);
        return sl_fail(
            e, err,
            "no memory for a session: %llu bytes of working memory wanted, chunk %u, threads %u",
            (unsigned long long)bytes, config->chunk, threads);
    }
    return SLUICE_OK;
}

void sl_session_deinit(struct sl_session *s)
{
    sl_kv_deinit(&s->kv);
    sl_ids_deinit(&s->history);
    sl_free(s->memory);
    s->memory = NULL;
}

void sl_session_truncate(struct sl_session *s, uint64_t n)
{
    SLUICE_ASSERT(n <= s->history.count);
    s->history.count = n;
    sl_kv_shrink(&s->kv, (uint32_t)n);
}
