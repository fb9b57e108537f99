/* The memory of a session: measured and laid out by one function. */
#include "engine/record.h"

static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Elements of the pairs' results that are held at once, for a cache to hold them, too. All of a
 * small chunk's; a large one's by groups, each at least as large as one expert may need, which
 * every token may have chosen, or a token. */
#define PAIR_FLOATS (1u << 20)

static void moe_layout(struct sl_scratch *s, const struct sl_model *m, uint32_t chunk,
                       struct sl_layout *l)
{
    uint64_t pairs = (uint64_t)chunk * m->max_top_k;
    uint32_t rows = (uint32_t)sl_min_u64(pairs, PAIR_FLOATS / m->max_ff_exp);
    rows = max_u32(rows, max_u32(chunk, m->max_top_k));
    s->pair_capacity = rows;
    s->scores = sl_layout_take(l, (uint64_t)chunk * m->max_experts, sizeof *s->scores);
    s->chosen = sl_layout_take(l, pairs, sizeof *s->chosen);
    s->weight = sl_layout_take(l, pairs, sizeof *s->weight);
    s->pair_token = sl_layout_take(l, pairs, sizeof *s->pair_token);
    s->pair_weight = sl_layout_take(l, pairs, sizeof *s->pair_weight);
    s->first_pair = sl_layout_take(l, m->max_experts + 1, sizeof *s->first_pair);
    s->ready = sl_layout_take(l, m->max_experts, sizeof *s->ready);
    for (int i = 0; i < 2; i++) s->pair_x[i] = sl_layout_take(l, rows, sizeof *s->pair_x[i]);
    sl_acts_layout(&s->pair_ff, l, m->expert_out_acts, rows, m->max_ff_exp);
    s->token_out = sl_layout_take(l, (uint64_t)m->max_top_k * m->n_embd, sizeof *s->token_out);
    s->mm = sl_layout_take(l, m->max_experts, sizeof *s->mm);
    s->gated = sl_layout_take(l, m->max_experts, sizeof *s->gated);
    if (m->max_ff > 0) {
        s->shared = sl_layout_take(l, (uint64_t)chunk * m->n_embd, sizeof *s->shared);
        s->shared_gate = sl_layout_take(l, chunk, sizeof *s->shared_gate);
    }
    sl_acts_layout(&s->guess, l, m->dense_acts, 1, m->n_embd);
    s->guess_scores = sl_layout_take(l, m->max_experts, sizeof *s->guess_scores);
    s->hints = sl_layout_take(l, m->max_experts, sizeof *s->hints);
}

static void scratch_layout(struct sl_scratch *s, const struct sl_model *m, uint32_t chunk,
                           uint32_t threads, struct sl_layout *l)
{
    s->x = sl_layout_take(l, (uint64_t)chunk * m->n_embd, sizeof *s->x);
    s->out = sl_layout_take(l, (uint64_t)chunk * m->n_embd, sizeof *s->out);
    sl_acts_layout(&s->norm, l, m->dense_acts | m->expert_in_acts, chunk, m->n_embd);
    s->q = sl_layout_take(l, (uint64_t)chunk * m->max_q_rows, sizeof *s->q);
    s->k = sl_layout_take(l, (uint64_t)chunk * m->max_k_rows, sizeof *s->k);
    s->v = sl_layout_take(l, (uint64_t)chunk * m->max_v_rows, sizeof *s->v);
    if (m->n_delta_layers) {
        uint64_t v_heads = m->delta.n_v_heads;
        s->z = sl_layout_take(l, chunk * v_heads * m->delta.head_v, sizeof *s->z);
        s->ba = sl_layout_take(l, chunk * v_heads * 2, sizeof *s->ba);
    }
    s->rope = sl_layout_take(l, (uint64_t)chunk * m->rope.n_rot, sizeof *s->rope);
    sl_acts_layout(&s->attn, l, m->dense_acts, chunk, m->max_o_cols);
    sl_acts_layout(&s->ff, l, m->dense_acts, chunk, m->max_ff);
    s->tiles = sl_layout_take(l, threads * sl_tile_size(chunk), sizeof *s->tiles);
    uint64_t done =
        sl_max_u64(sl_gated_done(1, m->max_ff), sl_gated_done(m->max_experts, m->max_ff_exp));
    s->gated_done = sl_layout_take(l, done, sizeof *s->gated_done);
    if (m->n_moe_layers) moe_layout(s, m, chunk, l);
    uint64_t rows = (uint64_t)threads * SL_ATT_ROWS;
    s->att_scores = sl_layout_take(l, rows * SL_KV_BLOCK, sizeof *s->att_scores);
    s->att_acc = sl_layout_take(l, rows * m->head_v, sizeof *s->att_acc);
    s->att_q_stride = ((uint64_t)m->head_k + 31) & ~(uint64_t)31;
    s->att_d_stride = (s->att_q_stride / SL_KV_GROUP + 15) & ~(uint64_t)15;
    s->att_q = sl_layout_take(l, rows * s->att_q_stride, sizeof *s->att_q);
    s->att_d = sl_layout_take(l, rows * s->att_d_stride, sizeof *s->att_d);
    s->embd_stage = sl_layout_take(l, sl_embed_room(m), 1);
    s->logits = sl_layout_take(l, m->n_vocab, sizeof *s->logits);
}

uint64_t sl_scratch_bytes(const struct sl_model *m, uint32_t chunk, uint32_t threads)
{
    struct sl_scratch s;
    struct sl_layout l = {NULL, 0};
    scratch_layout(&s, m, chunk, threads, &l);
    return l.used;
}

/* ---- what guesses and sticky routing remember --------------------------------------------- */

/* The numbers that both want of every layer. */
struct layer_numbers {
    struct sl_predict_layer layer[SL_LAYERS_MAX];
    uint32_t n_experts[SL_LAYERS_MAX], top_k[SL_LAYERS_MAX];
};

static struct sl_sticky_config sticky_config(const struct sl_model *m,
                                             const struct sl_session_config *config,
                                             struct layer_numbers *n)
{
    for (uint32_t l = 0; l < m->n_layers; l++) {
        n->n_experts[l] = m->layers[l].n_experts;
        n->top_k[l] = m->layers[l].router.top_k;
        n->layer[l] = (struct sl_predict_layer){n->n_experts[l], n->top_k[l]};
    }
    return (struct sl_sticky_config){.strength = config->sticky,
                                     .size = config->sticky_size,
                                     .n_ctx = config->n_ctx,
                                     .n_layers = m->n_layers,
                                     .n_experts = n->n_experts,
                                     .top_k = n->top_k};
}

uint64_t sl_session_extra_bytes(const struct sl_model *m, const struct sl_session_config *config)
{
    struct layer_numbers numbers;
    if (m->n_moe_layers == 0) return 0;
    struct sl_sticky_config sticky = sticky_config(m, config, &numbers);
    return (config->guess ? sl_predictor_bytes(numbers.layer, m->n_layers) : 0) +
           (config->sticky > 0.0f ? sl_sticky_bytes(&sticky) : 0);
}

static sluice_err open_extra(struct sl_session *s, const struct sl_session_config *config,
                             sluice_error *e)
{
    struct layer_numbers numbers;
    if (s->m->n_moe_layers == 0) return SLUICE_OK;
    struct sl_sticky_config sticky = sticky_config(s->m, config, &numbers);
    sluice_err err = SLUICE_OK;
    if (config->guess)
        err = sl_predictor_open(numbers.layer, s->m->n_layers, s->budget, e, &s->predictor);
    if (err == SLUICE_OK && config->sticky > 0.0f)
        err = sl_sticky_open(&sticky, s->budget, e, &s->sticky);
    s->drop_cold = config->drop_cold;
    return err;
}

/* ---- sessions ----------------------------------------------------------------------------- */

sluice_err sl_session_init(struct sl_session *s, struct sl_model *m, const struct sl_compute *c,
                           const struct sl_session_config *config, struct sl_budget *b,
                           sluice_error *e)
{
    *s = (struct sl_session){
        .m = m, .compute = *c, .budget = b, .chunk = config->chunk, .n_ctx = config->n_ctx};
    s->history.budget = b;
    if (m->record) s->number = sl_record_session(m->record);
    uint32_t threads = sl_pool_threads(c->pool);
    uint64_t bytes = sl_scratch_bytes(m, config->chunk, threads);
    s->memory = sl_alloc(b, bytes, 1);
    sluice_err err = s->memory ? SLUICE_OK : SLUICE_E_NOMEM;
    if (err == SLUICE_OK) {
        struct sl_layout l = {s->memory, 0};
        scratch_layout(&s->scratch, m, config->chunk, threads, &l);
        SLUICE_ASSERT(l.used == bytes);
        err = sl_kv_init(&s->kv, m, config->kv, config->n_ctx, b);
        if (err == SLUICE_OK) err = sl_recurrent_init(&s->recurrent, m, b);
    }
    if (err != SLUICE_OK) {
        sl_session_deinit(s);
        return sl_fail(
            e, err,
            "no memory for a session: %llu bytes of working memory and recurrent state wanted, "
            "chunk %u, threads %u",
            (unsigned long long)(bytes + sl_recurrent_bytes(m)), config->chunk, threads);
    }
    err = open_extra(s, config, e);
    if (err != SLUICE_OK) sl_session_deinit(s);
    return err;
}

void sl_session_deinit(struct sl_session *s)
{
    sl_kv_deinit(&s->kv);
    sl_recurrent_deinit(&s->recurrent);
    sl_predictor_close(s->predictor);
    sl_sticky_close(s->sticky);
    s->predictor = NULL;
    s->sticky = NULL;
    sl_ids_deinit(&s->history);
    sl_free(s->memory);
    s->memory = NULL;
}

void sl_session_truncate(struct sl_session *s, uint64_t n)
{
    SLUICE_ASSERT(n <= s->history.count);
    if (n < s->history.count && s->predictor) sl_predict_forget(s->predictor);
    s->history.count = n;
    uint64_t before = s->kv.region.committed_bytes;
    sl_kv_shrink(&s->kv, (uint32_t)n);
    s->kv_shrunk |= s->kv.region.committed_bytes < before;
    sl_recurrent_rewind(&s->recurrent, (uint32_t)n);
}

uint64_t sl_session_reach(const struct sl_session *s, uint64_t n)
{
    return sl_recurrent_reach(&s->recurrent, (uint32_t)n);
}
