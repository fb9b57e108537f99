/* Mixture of Experts, expert-major: the chunk's tokens choose, each chosen expert is read and
 * leased once and applied to all its tokens, and every token adds its experts' results in ascending
 * expert order, whatever the order they were computed in.
 *
 * This file: choices, the shared expert, and the order of things. What is missing is asked for as
 * soon as the choices are known; what does not need it (guesses, the shared expert) is computed
 * while the reads fly. */
#include <string.h>

#include "base/mathfn.h"
#include "engine/moe.h"
#include "engine/record.h"

/* Says in which layer the router failed, which does not know it. */
static sluice_err name_layer(const struct sl_chunk *c, sluice_err err)
{
    if (!c->e) return err;
    char why[sizeof c->e->text];
    memcpy(why, c->e->text, sizeof why);
    sl_fail(c->e, err, "layer %u: %s; the weights are damaged", c->layer, why);
    c->e->layer = (int32_t)c->layer;
    return err;
}

/* The choice of token t. Sticky routing looks at the tokens before it, so tokens go in order. */
static sluice_err choose(const struct sl_chunk *c, const struct sl_layer *y, uint32_t t)
{
    struct sl_session *s = c->session;
    uint32_t k = y->router.top_k, *chosen = s->scratch.chosen + (uint64_t)t * k;
    const float *logits = s->scratch.scores + (uint64_t)t * y->n_experts;
    struct sl_router_bonus bonus, *with = NULL;
    if (s->sticky) {
        bonus = (struct sl_router_bonus){sl_sticky_favoured(s->sticky, c->layer, c->pos + t),
                                         sl_sticky_strength(s->sticky), (k + 3) / 4};
        with = &bonus;
    }
    sluice_err err = sl_router_select(&y->router, logits, with, chosen,
                                      s->scratch.weight + (uint64_t)t * k, c->e);
    if (err != SLUICE_OK) return name_layer(c, err);
    if (s->chooser.fn) err = moe_replace_choice(c, t);
    if (err == SLUICE_OK && s->sticky) sl_sticky_chose(s->sticky, c->layer, c->pos + t, chosen);
    return err;
}

struct choose_job {
    const struct sl_chunk *c;
    const struct sl_layer *y;
    atomic_bool bad; /* relaxed: read after the pool's barrier */
};

static void choose_alone(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    struct choose_job *j = arg;
    const struct sl_router *r = &j->y->router;
    struct sl_scratch *s = &j->c->session->scratch;
    uint64_t first = (uint64_t)t * r->top_k;
    sluice_err err = sl_router_select(r, s->scores + (uint64_t)t * r->n_experts, NULL,
                                      s->chosen + first, s->weight + first, NULL);
    if (err != SLUICE_OK) atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* The choices of all tokens: side by side where none depends on another. What fails is done again
 * in order, for the sentence about the first. */
static sluice_err choose_all(const struct sl_chunk *c, const struct sl_layer *y)
{
    const struct sl_session *s = c->session;
    if (!s->sticky && !s->chooser.fn) {
        struct choose_job j = {.c = c, .y = y};
        sl_pool_run(s->compute.pool, choose_alone, &j, c->n);
        if (!atomic_load_explicit(&j.bad, memory_order_relaxed)) return SLUICE_OK;
    }
    for (uint32_t t = 0; t < c->n; t++) {
        sluice_err err = choose(c, y, t);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

/* Router scores to choices: scratch.chosen, scratch.weight. */
static sluice_err route(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_session *s = c->session;
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, y->gate_inp.type);
    if (!x) return sl_not_finite(c, "input of the router");
    if (s->observer.fn) sl_observe_router(c);
    struct sl_mm mm = {y->gate_inp, x, c->n, s->scratch.scores, y->n_experts, 0};
    sl_mm_run(&s->compute, &mm, 1);
    return choose_all(c, y);
}

/* --drop-cold F, lossy: of a single token's choices, those that would have to be read and weigh
 * less than F times the mean are left out. The others keep their weights. */
static void drop_cold(struct moe_run *r)
{
    struct sl_session *s = r->c->session;
    if (s->drop_cold <= 0.0f || r->c->n != 1) return;
    float *weight = s->scratch.weight, sum = 0.0f;
    float heaviest = 0.0f;
    uint32_t *chosen = s->scratch.chosen, kept = 0;
    for (uint32_t i = 0; i < r->k; i++) {
        sum += weight[i];
        if (weight[i] > heaviest) heaviest = weight[i];
    }
    float least = s->drop_cold * sum / (float)r->k;
    if (least > heaviest) least = heaviest; /* a mean of equal weights may round up */
    for (uint32_t i = 0; i < r->k; i++) {
        if (weight[i] < least && !sl_expert_at_hand(s->m->store, r->c->layer, chosen[i])) continue;
        chosen[kept] = chosen[i];
        weight[kept++] = weight[i];
    }
    s->n_dropped += r->k - kept;
    r->k = kept; /* at least the heaviest: F is at most 1 */
}

/* Numbers the pairs by expert, then token: a counting sort. first_pair[x]..first_pair[x + 1] are
 * those of expert x. */
static void number_pairs(const struct moe_run *r)
{
    struct sl_scratch *s = &r->c->session->scratch;
    uint32_t n = r->c->n * r->k, n_experts = r->y->n_experts;
    memset(s->first_pair, 0, (n_experts + 1) * sizeof *s->first_pair);
    for (uint32_t i = 0; i < n; i++) s->first_pair[s->chosen[i] + 1]++;
    for (uint32_t x = 0; x < n_experts; x++) s->first_pair[x + 1] += s->first_pair[x];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pair = s->first_pair[s->chosen[i]]++;
        s->pair_token[pair] = i / r->k;
        s->pair_weight[pair] = s->weight[i];
    }
    for (uint32_t x = n_experts; x > 0; x--) s->first_pair[x] = s->first_pair[x - 1];
    s->first_pair[0] = 0;
}

/* The shared expert's result and its gate's scores, while reads are under way. */
static sluice_err shared_products(const struct moe_run *r)
{
    const struct sl_chunk *c = r->c;
    struct sl_session *s = c->session;
    const struct sl_layer *y = r->y;
    if (!y->ffn.up.rows) return SLUICE_OK;
    sluice_err err = sl_dense_ffn(c, &y->ffn, s->scratch.shared);
    if (err != SLUICE_OK || !y->shared_gate.rows) return err;
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, y->shared_gate.type);
    if (!x) return sl_not_finite(c, "input of the shared expert's gate");
    struct sl_mm mm = {y->shared_gate, x, c->n, s->scratch.shared_gate, 1, 0};
    sl_mm_run(&s->compute, &mm, 1);
    return SLUICE_OK;
}

/* out += sigmoid(gate . x) * shared(x); without a gate the weight is 1. */
static void add_shared(const struct moe_run *r)
{
    const struct sl_session *s = r->c->session;
    uint32_t n_embd = s->m->n_embd;
    if (!r->y->ffn.up.rows) return;
    for (uint32_t t = 0; t < r->c->n; t++) {
        const float *shared = s->scratch.shared + (uint64_t)t * n_embd;
        float *out = s->scratch.out + (uint64_t)t * n_embd;
        if (r->y->shared_gate.rows)
            s->compute.kernels->axpy(sl_sigmoidf(s->scratch.shared_gate[t]), shared, n_embd, out);
        else
            s->compute.kernels->add(shared, n_embd, out);
    }
}

sluice_err sl_moe_ffn(const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    struct moe_run r = {.c = c, .y = &s->m->layers[c->layer], .in_order = c->n > 1};
    sl_phase_next(&s->phases, SL_PHASE_ROUTING);
    sluice_err err = route(c, r.y);
    if (err != SLUICE_OK) return err;
    r.k = r.y->router.top_k;
    drop_cold(&r);
    number_pairs(&r);
    struct sl_expert_need need = {c->layer, c->n, r.k, s->scratch.chosen, r.in_order};
    if (s->m->record) sl_record_chosen(s->m->record, c, r.k);
    sl_expert_begin(s->m->store, &need);
    moe_look_ahead(&r);
    err = shared_products(&r);
    if (err == SLUICE_OK) err = moe_run_experts(&r);
    sl_expert_end(s->m->store);
    if (err == SLUICE_OK) add_shared(&r);
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    if (s->m->record) sl_record_layer(s->m->record, c);
    return err;
}
