/* Mixture of Experts, expert-major: the chunk's tokens choose, each chosen expert is leased once
 * and applied to all its tokens, and every token adds its experts' results in ascending expert
 * order, whatever the order they were computed in.
 *
 * A pair is one token at one of its experts. Pairs are numbered by expert, then token, so that an
 * expert's pairs are one stretch of every buffer: the batch of its matrix products. */
#include <string.h>

#include "base/mathfn.h"
#include "engine/session.h"

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

/* Router scores to choices: s->chosen, s->weight. */
static sluice_err route(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_session *s = c->session;
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, y->gate_inp.type);
    if (!x) return sl_not_finite(c, "input of the router");
    struct sl_mm mm = {y->gate_inp, x, c->n, s->scratch.scores, y->n_experts, 0};
    sl_mm_run(&s->compute, &mm, 1);
    uint32_t k = y->router.top_k;
    for (uint32_t t = 0; t < c->n; t++) {
        sluice_err err = sl_router_select(
            &y->router, s->scratch.scores + (uint64_t)t * y->n_experts,
            s->scratch.chosen + (uint64_t)t * k, s->scratch.weight + (uint64_t)t * k, NULL, c->e);
        if (err != SLUICE_OK) return name_layer(c, err);
    }
    return SLUICE_OK;
}

/* Numbers the pairs: a counting sort by expert. first_pair[x]..first_pair[x + 1] are those of
 * expert x. */
static void number_pairs(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_scratch *s = &c->session->scratch;
    uint32_t n = c->n * y->router.top_k;
    memset(s->first_pair, 0, (y->n_experts + 1) * sizeof *s->first_pair);
    for (uint32_t i = 0; i < n; i++) s->first_pair[s->chosen[i] + 1]++;
    for (uint32_t x = 0; x < y->n_experts; x++) s->first_pair[x + 1] += s->first_pair[x];
    for (uint32_t i = 0; i < n; i++) s->pair[i] = s->first_pair[s->chosen[i]]++;
    for (uint32_t x = y->n_experts; x > 0; x--) s->first_pair[x] = s->first_pair[x - 1];
    s->first_pair[0] = 0;
}

static struct sl_matrix part_matrix(const struct sl_expert_part *p, const uint8_t *w)
{
    return (struct sl_matrix){w, p->row_bytes, p->type, p->rows, p->cols};
}

/* Gate and up of a leased expert as two matrices, whether the file has them apart or stacked. */
static void gate_and_up(const struct sl_expert_shape *shape, const struct sl_expert_view *v,
                        struct sl_matrix out[2])
{
    if (shape->n_parts == 3) {
        out[0] = part_matrix(&shape->part[0], v->part[0]);
        out[1] = part_matrix(&shape->part[1], v->part[1]);
        return;
    }
    uint32_t half = shape->part[0].rows / 2;
    out[0] = out[1] = part_matrix(&shape->part[0], v->part[0]);
    out[0].rows = out[1].rows = half;
    out[1].w += half * out[1].row_bytes;
}

/* The inputs of all pairs, in the form for weights of a type. */
static bool pair_inputs(const struct sl_chunk *c, const struct sl_layer *y, uint32_t type,
                        struct sl_k_act *out)
{
    struct sl_scratch *s = &c->session->scratch;
    const struct sl_k_act *x = sl_acts_for(&c->session->compute, &s->norm, type);
    if (!x) return false;
    uint32_t k = y->router.top_k;
    for (uint32_t i = 0; i < c->n * k; i++) out[s->pair[i]] = x[i / k];
    return true;
}

/* Leases every expert that has pairs, each once for both of its runs of products, so that it cannot
 * be evicted between them. A chunk may choose all experts of its layer: with a store that holds
 * fewer, the chunk has to be smaller. */
static sluice_err lease_experts(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_scratch *s = &c->session->scratch;
    s->n_leases = 0;
    for (uint32_t x = 0; x < y->n_experts; x++) {
        if (s->first_pair[x + 1] == s->first_pair[x]) continue;
        struct sl_lease *lease = &s->leases[s->n_leases];
        lease->expert = x;
        sluice_err err = sl_expert_acquire(c->session->m->store, c->layer, x, &lease->view, c->e);
        if (err != SLUICE_OK) return err;
        s->n_leases++;
    }
    return SLUICE_OK;
}

static void release_experts(const struct sl_chunk *c)
{
    struct sl_scratch *s = &c->session->scratch;
    for (uint32_t i = 0; i < s->n_leases; i++)
        sl_expert_release(c->session->m->store, c->layer, s->leases[i].expert);
    s->n_leases = 0;
}

static void gate_up_products(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_scratch *s = &c->session->scratch;
    uint32_t ff = s->pair_ff.cols;
    struct sl_mm *mm = s->mm;
    for (uint32_t i = 0; i < s->n_leases; i++) {
        uint64_t first = s->first_pair[s->leases[i].expert];
        uint32_t n = s->first_pair[s->leases[i].expert + 1] - (uint32_t)first;
        struct sl_matrix w[2];
        gate_and_up(&y->experts, &s->leases[i].view, w);
        *mm++ = (struct sl_mm){w[0], s->pair_x[0] + first, n, s->pair_ff.f + first * ff, ff, 0};
        *mm++ = (struct sl_mm){w[1], s->pair_x[1] + first, n, s->pair_up + first * ff, ff, 0};
    }
    sl_mm_run(&c->session->compute, s->mm, 2 * s->n_leases);
}

static void down_products(const struct sl_chunk *c, const struct sl_layer *y,
                          const struct sl_k_act *x)
{
    struct sl_scratch *s = &c->session->scratch;
    uint32_t n_embd = c->session->m->n_embd, last = y->experts.n_parts - 1;
    for (uint32_t i = 0; i < s->n_leases; i++) {
        uint64_t first = s->first_pair[s->leases[i].expert];
        uint32_t n = s->first_pair[s->leases[i].expert + 1] - (uint32_t)first;
        struct sl_matrix w = part_matrix(&y->experts.part[last], s->leases[i].view.part[last]);
        s->mm[i] = (struct sl_mm){w, x + first, n, s->pair_out + first * n_embd, n_embd, 0};
    }
    sl_mm_run(&c->session->compute, s->mm, s->n_leases);
}

struct pair_job {
    const struct sl_chunk *c;
    const struct sl_layer *y;
};

static void gate_pair(void *arg, uint32_t p, uint32_t worker)
{
    (void)worker;
    const struct pair_job *j = arg;
    const struct sl_session *s = j->c->session;
    uint32_t ff = s->scratch.pair_ff.cols;
    float *gate = s->scratch.pair_ff.f + (uint64_t)p * ff;
    s->compute.kernels->silu_mul(gate, s->scratch.pair_up + (uint64_t)p * ff, ff, gate);
}

/* One token's sum over its experts, ascending: acc = fma(weight, y, acc). */
static void combine_token(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    const struct pair_job *j = arg;
    const struct sl_session *s = j->c->session;
    uint32_t n_embd = s->m->n_embd, k = j->y->router.top_k;
    float *out = s->scratch.out + (uint64_t)t * n_embd;
    memset(out, 0, n_embd * sizeof *out);
    for (uint32_t i = t * k; i < (t + 1) * k; i++)
        s->compute.kernels->axpy(s->scratch.weight[i],
                                 s->scratch.pair_out + (uint64_t)s->scratch.pair[i] * n_embd,
                                 n_embd, out);
}

/* out += sigmoid(gate . x) * shared(x); without a gate the weight is 1. The results of the shared
 * expert go through pair_out, whose pairs have been added. */
static sluice_err shared_expert(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_session *s = c->session;
    uint32_t n_embd = s->m->n_embd;
    sluice_err err = sl_dense_ffn(c, &y->ffn, s->scratch.pair_out);
    if (err != SLUICE_OK) return err;
    float *gate = s->scratch.scores; /* [chunk] */
    if (y->shared_gate.rows) {
        const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, y->shared_gate.type);
        if (!x) return sl_not_finite(c, "input of the shared expert's gate");
        struct sl_mm mm = {y->shared_gate, x, c->n, gate, 1, 0};
        sl_mm_run(&s->compute, &mm, 1);
    }
    for (uint32_t t = 0; t < c->n; t++) {
        const float *shared = s->scratch.pair_out + (uint64_t)t * n_embd;
        float *out = s->scratch.out + (uint64_t)t * n_embd;
        if (y->shared_gate.rows)
            s->compute.kernels->axpy(sl_sigmoidf(gate[t]), shared, n_embd, out);
        else
            s->compute.kernels->add(shared, n_embd, out);
    }
    return SLUICE_OK;
}

/* All pairs through their leased experts: pair_out. */
static sluice_err run_pairs(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_session *s = c->session;
    const struct sl_expert_shape *shape = &y->experts;
    uint32_t up_type = shape->part[shape->n_parts - 2].type;
    const struct sl_expert_part *down = &shape->part[shape->n_parts - 1];
    uint32_t n_pairs = c->n * y->router.top_k;
    if (!pair_inputs(c, y, shape->part[0].type, s->scratch.pair_x[0]) ||
        !pair_inputs(c, y, up_type, s->scratch.pair_x[1]))
        return sl_not_finite(c, "input of the experts");
    sl_acts_begin(&s->scratch.pair_ff, n_pairs, down->cols);
    gate_up_products(c, y);
    struct pair_job j = {c, y};
    sl_pool_run(s->compute.pool, gate_pair, &j, n_pairs);
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.pair_ff, down->type);
    if (!x) return sl_not_finite(c, "the experts");
    down_products(c, y, x);
    return SLUICE_OK;
}

sluice_err sl_moe_ffn(const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    const struct sl_layer *y = &s->m->layers[c->layer];
    sluice_err err = route(c, y);
    if (err != SLUICE_OK) return err;
    number_pairs(c, y);
    err = lease_experts(c, y);
    if (err == SLUICE_OK) err = run_pairs(c, y);
    release_experts(c);
    if (err != SLUICE_OK) return err;
    struct pair_job j = {c, y};
    sl_pool_run(s->compute.pool, combine_token, &j, c->n);
    return y->ffn.up.rows ? shared_expert(c, y) : SLUICE_OK;
}
