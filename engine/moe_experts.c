/* Chosen experts through their products, as they arrive.
 *
 * A pair is one token at one of its experts. Pairs are numbered by expert, then token, so that an
 * expert's pairs are one stretch of every buffer: the batch of its matrix products. A single token
 * takes experts in whatever order they arrive and adds them up at the end. A prompt chunk may have
 * more pairs than the buffers hold: it takes experts in ascending order, as many at a time as fit,
 * and adds up while their last products are made, which is the same sum. */
#include <string.h>

#include "engine/moe.h"

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

/* An expert's pairs: n of them from this row of the buffers on. */
struct rows {
    uint32_t first, n;
};

static struct rows rows_of(const struct moe_run *r, uint32_t expert)
{
    const uint32_t *first = r->c->session->scratch.first_pair;
    return (struct rows){first[expert] - r->first_pair, first[expert + 1] - first[expert]};
}

/* ---- gate and up -------------------------------------------------------------------------------
 */

/* The experts among ready whose gate and up are there. */
static sluice_err run_inputs(const struct moe_run *r, uint32_t n_ready)
{
    struct sl_scratch *s = &r->c->session->scratch;
    const struct sl_compute *compute = &r->c->session->compute;
    const struct sl_expert_shape *shape = &r->y->experts;
    const struct sl_k_act *x[2] = {
        sl_acts_for(compute, &s->norm, shape->part[0].type),
        sl_acts_for(compute, &s->norm, shape->part[shape->n_parts - 2].type)};
    if (!x[0] || !x[1]) return sl_not_finite(r->c, "input of the experts");
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_ready; i++) {
        if (!(s->ready[i].steps & SL_EXPERT_INPUTS)) continue;
        struct rows p = rows_of(r, s->ready[i].expert);
        if (r->c->session->observer.fn) moe_observe_input(r, s->ready[i].expert);
        for (uint32_t row = p.first; row < p.first + p.n; row++) {
            uint32_t token = s->pair_token[r->first_pair + row];
            s->pair_x[0][row] = x[0][token];
            s->pair_x[1][row] = x[1][token];
        }
        struct sl_matrix w[2];
        gate_and_up(shape, &s->ready[i].view, w);
        s->gated[n++] =
            (struct sl_gated){.gate = {.w = w[0], .x = s->pair_x[0] + p.first, .n_tokens = p.n},
                              .up = {.w = w[1], .x = s->pair_x[1] + p.first, .n_tokens = p.n},
                              .first = p.first};
    }
    if (n == 0) return SLUICE_OK;
    const struct sl_gated_out out =
        sl_gated_to(r->c->session, &s->pair_ff, shape->part[shape->n_parts - 1].type);
    bool good = sl_gated_run(compute, s->gated, n, &out);
    return good ? SLUICE_OK : sl_not_finite(r->c, "the experts");
}

/* ---- down, and the sums ------------------------------------------------------------------------
 */

/* The experts among ready whose down is there: their products are scratch.mm, how many is returned.
 */
static uint32_t list_outputs(const struct moe_run *r, uint32_t n_ready)
{
    struct sl_scratch *s = &r->c->session->scratch;
    const struct sl_expert_part *down = &r->y->experts.part[r->y->experts.n_parts - 1];
    const struct sl_k_act *x = s->pair_ff.act[sl_k_act_kind(down->type)];
    uint32_t n_embd = r->c->session->m->n_embd, n = 0;
    for (uint32_t i = 0; i < n_ready; i++) {
        if (!(s->ready[i].steps & SL_EXPERT_OUTPUT)) continue;
        struct rows p = rows_of(r, s->ready[i].expert);
        if (r->c->session->observer.fn) moe_observe_output(r, s->ready[i].expert);
        struct sl_mm *mm = &s->mm[n++];
        *mm =
            (struct sl_mm){.w = part_matrix(down, s->ready[i].view.part[r->y->experts.n_parts - 1]),
                           .x = x + p.first,
                           .n_tokens = p.n};
        if (!r->in_order) { /* a pair is a choice then, p.first which one */
            mm->y = s->token_out + (uint64_t)p.first * n_embd;
            mm->y_stride = n_embd;
        }
    }
    return n;
}

/* A single token's sum over its experts, ascending: acc = fma(weight, y, acc), from 0. */
static void add_token(const struct moe_run *r)
{
    struct sl_session *s = r->c->session;
    uint32_t n_embd = s->m->n_embd;
    float *out = s->scratch.out;
    memset(out, 0, n_embd * sizeof *out);
    for (uint32_t i = 0; i < r->k; i++)
        s->compute.kernels->axpy(s->scratch.weight[i], s->scratch.token_out + (uint64_t)i * n_embd,
                                 n_embd, out);
}

struct add_job {
    const struct moe_run *r;
    uint32_t n; /* experts, products of scratch.mm, ascending */
};

/* The same sum for a tile of rows and all tokens: a core keeps what it has computed, and no other
 * one needs it. */
static void add_tile(void *arg, uint32_t task, uint32_t worker)
{
    const struct add_job *j = arg;
    const struct sl_session *s = j->r->c->session;
    const struct sl_mm *mm = s->scratch.mm;
    uint32_t n_embd = s->m->n_embd, pair = j->r->first_pair;
    struct sl_stretch rows = sl_tile(n_embd, task);
    float *tile = s->scratch.tiles + worker * sl_tile_size(s->chunk),
          *out = s->scratch.out + rows.first;
    if (pair == 0) /* the first experts' */
        for (uint32_t t = 0; t < j->r->c->n; t++)
            memset(out + (uint64_t)t * n_embd, 0, rows.n * sizeof *out);
    for (uint32_t i = 0; i < j->n; i++) {
        const uint8_t *next = i + 1 < j->n ? mm[i + 1].w.w : mm[0].w.w + rows.n * mm->w.row_bytes;
        sl_mm_tile(&s->compute, &mm[i], rows, next + rows.first * mm->w.row_bytes, tile);
        for (uint32_t t = 0; t < mm[i].n_tokens; t++, pair++)
            s->compute.kernels->axpy(s->scratch.pair_weight[pair], tile + (uint64_t)t * rows.n,
                                     rows.n, out + (uint64_t)s->scratch.pair_token[pair] * n_embd);
    }
}

static void run_outputs(const struct moe_run *r, uint32_t n_ready)
{
    struct sl_session *s = r->c->session;
    struct add_job j = {r, list_outputs(r, n_ready)};
    if (j.n == 0) return;
    if (r->in_order)
        sl_pool_run(s->compute.pool, add_tile, &j, sl_tiles(s->m->n_embd));
    else
        sl_mm_run(&s->compute, s->scratch.mm, j.n);
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

/* How many experts may be taken at once: those of a single token always fit. */
static uint32_t group_limit(const struct moe_run *r)
{
    const struct sl_scratch *s = &r->c->session->scratch;
    if (!r->in_order) return r->y->n_experts;
    uint32_t n = 0, from = s->first_pair[r->next];
    for (uint32_t x = r->next; x < r->y->n_experts; x++) {
        if (s->first_pair[x + 1] - from > s->pair_capacity) break;
        n += s->first_pair[x + 1] > s->first_pair[x];
    }
    return n > 0 ? n : 1; /* none: nothing is left to come */
}

static sluice_err run_group(struct moe_run *r, uint32_t n)
{
    struct sl_session *s = r->c->session;
    const struct sl_expert_ready *ready = s->scratch.ready;
    if (r->in_order) r->first_pair = s->scratch.first_pair[ready[0].expert];
    sluice_err err = run_inputs(r, n);
    if (err != SLUICE_OK) return err;
    run_outputs(r, n);
    if (r->in_order) r->next = ready[n - 1].expert + 1;
    for (uint32_t i = 0; i < n; i++)
        if (ready[i].steps & SL_EXPERT_OUTPUT) sl_expert_release(s->m->store, ready[i].expert);
    return SLUICE_OK;
}

sluice_err moe_run_experts(struct moe_run *r)
{
    struct sl_session *s = r->c->session;
    uint32_t n_pairs = r->c->n * r->k;
    if (n_pairs > s->scratch.pair_capacity) n_pairs = s->scratch.pair_capacity;
    uint32_t ff = r->y->experts.part[r->y->experts.n_parts - 1].cols;
    sl_acts_begin(&s->scratch.pair_ff, n_pairs, ff);
    for (;;) {
        uint32_t n;
        sl_phase_next(&s->phases, SL_PHASE_WAITING);
        sluice_err err = sl_expert_next(s->m->store, s->scratch.ready, group_limit(r), &n, r->c->e);
        sl_phase_next(&s->phases, SL_PHASE_EXPERT);
        if (err != SLUICE_OK) return err;
        if (n == 0) break;
        err = run_group(r, n);
        if (err != SLUICE_OK) return err;
    }
    if (!r->in_order) add_token(r);
    return SLUICE_OK;
}
