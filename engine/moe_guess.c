/* Telling the store what the next layer will probably want, while this layer's reads are under way.
 *
 * A single token: the next layer's router is applied to this layer's hidden state, and the
 * predictor (router/predict.h) makes probabilities of its ranks. A prompt chunk: with many tokens
 * every expert is likely; the probability that none of n tokens chooses one of E experts is about
 * (1 - k/E)^n. */
#include "engine/moe.h"

/* The next layer with experts; n_layers: none. */
static uint32_t next_moe_layer(const struct sl_model *m, uint32_t layer)
{
    do layer++;
    while (layer < m->n_layers && m->layers[layer].n_experts == 0);
    return layer;
}

/* The next layer's router scores of the single token's present state; NULL: no numbers. */
static const float *guess_scores(const struct moe_run *r, const struct sl_layer *next)
{
    struct sl_session *s = r->c->session;
    struct sl_acts *guess = &s->scratch.guess;
    sl_acts_begin(guess, 1, s->m->n_embd);
    s->compute.kernels->rms_norm(s->scratch.x, next->ffn_norm, s->m->n_embd, s->m->norm_eps,
                                 guess->f);
    const struct sl_k_act *x = sl_acts_for(&s->compute, guess, next->gate_inp.type);
    if (!x) return NULL;
    struct sl_mm mm = {next->gate_inp, x, 1, s->scratch.guess_scores, next->n_experts, 0};
    sl_mm_run(&s->compute, &mm, 1);
    sl_router_compared(&next->router, s->scratch.guess_scores, s->scratch.guess_scores);
    return s->scratch.guess_scores;
}

static void guess_token(const struct moe_run *r, uint32_t layer)
{
    struct sl_session *s = r->c->session;
    const struct sl_layer *next = &s->m->layers[layer];
    const float *scores = guess_scores(r, next);
    uint32_t n = sl_predict(s->predictor, layer, scores, s->scratch.hints, next->n_experts);
    sl_expert_expect(s->m->store, layer, s->scratch.hints, n, false);
}

static void guess_chunk(const struct moe_run *r, uint32_t layer)
{
    struct sl_session *s = r->c->session;
    const struct sl_layer *next = &s->m->layers[layer];
    float miss = 1.0f, one = 1.0f - (float)next->router.top_k / (float)next->n_experts;
    for (uint32_t t = 0; t < r->c->n; t++) miss *= one;
    for (uint32_t x = 0; x < next->n_experts; x++)
        s->scratch.hints[x] = (struct sl_expert_hint){x, 1.0f - miss};
    sl_expert_expect(s->m->store, layer, s->scratch.hints, next->n_experts, true);
}

void moe_look_ahead(const struct moe_run *r)
{
    struct sl_session *s = r->c->session;
    if (!s->predictor) return;
    const uint32_t *last = s->scratch.chosen + (uint64_t)(r->c->n - 1) * r->k;
    sl_predict_learn(s->predictor, r->c->layer, last, r->k);
    uint32_t layer = next_moe_layer(s->m, r->c->layer);
    if (layer == s->m->n_layers) return;
    if (r->c->n == 1)
        guess_token(r, layer);
    else
        guess_chunk(r, layer);
}
