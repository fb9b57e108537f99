/* A gated DeltaNet layer (Yang, Kautz, Hatamizadeh 2024; as in Qwen3-Next): linear attention whose
 * memory of the text is a matrix a head, which forgets (decay) and corrects itself (delta rule).
 *
 * q, k, v, a gate z and two numbers a head, beta and alpha, are projected together. Then, in one
 * run over the pool, each key head goes through the chunk by itself: convolution over the last
 * tokens' q and k, length 1; and of each of its value heads the convolution of v, and token by
 * token a step of the state, norm and gate. So the results do not depend on the chunk, a thread
 * owns a head, and a head's state stays in the cache while the chunk passes over it. Then the
 * product with out. */
#include <math.h>
#include <string.h>

#include "base/mathfn.h"
#include "engine/session.h"

/* Channels that are convolved together. */
#define PIECE 128u
/* Added to the square of the length of q and k (transformers, class Qwen3NextGatedDeltaNet). */
#define LENGTH_EPS 1e-6f

struct delta_job {
    const struct sl_chunk *c;
    const struct sl_delta *y;
    const struct sl_delta_shape *shape;
    struct sl_delta_state state;
    atomic_bool bad; /* relaxed: read after the pool's barrier */
};

static float *row_of(const struct delta_job *j, uint32_t t)
{
    return j->c->session->scratch.q + (uint64_t)t * j->shape->channels;
}

/* ---- convolution ------------------------------------------------------------------------ */

/* Up to PIECE channels from first on, the whole chunk, in place. The last inputs are kept for the
 * chunks to come; before the text begins they are zero. */
static void convolve_piece(const struct delta_job *j, uint32_t first, uint32_t n)
{
    const struct sl_delta_shape *s = j->shape;
    const struct sl_kernels *k = j->c->session->compute.kernels;
    uint32_t taps = s->taps, pos = j->c->pos, tokens = j->c->n;
    float before[SL_CONV_TAPS_MAX][PIECE]; /* [i]: of position pos - taps + i, i >= 1 */
    for (uint32_t i = 1; i < taps; i++)
        memcpy(before[i], j->state.rows + (pos + i) % taps * (uint64_t)s->channels + first,
               n * sizeof(float));
    for (uint32_t t = tokens > taps ? tokens - taps : 0; t < tokens; t++)
        memcpy(j->state.rows + (pos + t) % taps * (uint64_t)s->channels + first,
               row_of(j, t) + first, n * sizeof(float));
    for (uint32_t t = tokens; t-- > 0;) { /* the last first: a row is an input of those after it */
        const float *rows[SL_CONV_TAPS_MAX];
        for (uint32_t i = 0; i < taps; i++)
            rows[i] = t + i + 1 >= taps ? row_of(j, t + i + 1 - taps) + first : before[t + i + 1];
        k->conv_silu(rows, j->y->conv + (uint64_t)first * taps, taps, n, row_of(j, t) + first);
    }
}

static void convolve(const struct delta_job *j, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += PIECE)
        convolve_piece(j, first + i, n - i < PIECE ? n - i : PIECE);
}

/* ---- heads ------------------------------------------------------------------------------ */

/* Brings x to length times scale. */
static void set_length(struct delta_job *j, float *x, float scale)
{
    const struct sl_kernels *k = j->c->session->compute.kernels;
    uint32_t n = j->shape->head_k;
    if (!sl_norm_safe(x, n)) atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    k->scale(scale / sqrtf(k->dot_f32(x, x, n) + LENGTH_EPS), n, x);
}

/* Beta and alpha of a value head, as projected. */
static struct beta_alpha {
    float beta, alpha;
} beta_alpha(const struct delta_job *j, uint32_t t, uint32_t v_head)
{
    uint32_t heads = j->shape->n_v_heads, group = heads / j->shape->n_k_heads;
    const float *ba = j->c->session->scratch.ba + (uint64_t)t * 2 * heads;
    if (j->y->ba[1].rows) return (struct beta_alpha){ba[v_head], ba[heads + v_head]};
    const float *of_group = ba + v_head / group * 2 * group + v_head % group;
    return (struct beta_alpha){of_group[0], of_group[group]};
}

/* Norm and gate of what a head has read. */
static void finish_output(struct delta_job *j, uint32_t t, uint32_t v_head, float *y)
{
    const struct sl_session *s = j->c->session;
    uint32_t n = j->shape->head_v;
    const float *z = s->scratch.z + ((uint64_t)t * j->shape->n_v_heads + v_head) * n;
    if (!sl_norm_safe(y, n)) atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    s->compute.kernels->rms_norm(y, j->y->norm, n, s->m->norm_eps, y);
    s->compute.kernels->silu_mul(z, y, n, y);
}

/* The chunk in one value head. */
static void run_head(struct delta_job *j, uint32_t k_head, uint32_t v_head)
{
    const struct sl_delta_shape *s = j->shape;
    const struct sl_kernels *k = j->c->session->compute.kernels;
    uint32_t keys = s->n_k_heads * s->head_k, at_v = 2 * keys + v_head * s->head_v;
    float *u = j->state.u + (uint64_t)v_head * s->head_v, *decay = j->state.decay + v_head;
    const float *k_before =
        j->state.mark->pending ? j->state.k + (uint64_t)k_head * s->head_k : NULL;
    convolve(j, at_v, s->head_v);
    for (uint32_t t = 0; t < j->c->n; t++) {
        struct beta_alpha ba = beta_alpha(j, t, v_head);
        float *row = row_of(j, t);
        struct sl_k_delta step = {
            .state = j->state.s + (uint64_t)v_head * s->head_k * s->head_v,
            .n_k = s->head_k,
            .n_v = s->head_v,
            .k_before = k_before,
            .u_before = u,
            .decay_before = *decay,
            .q = row + k_head * s->head_k,
            .k = row + keys + k_head * s->head_k,
            .v = row + at_v,
            .decay = sl_expf(j->y->a[v_head] * sl_softplusf(ba.alpha + j->y->dt[v_head])),
            .beta = sl_sigmoidf(ba.beta),
            .u = u,
            .y = j->c->session->scratch.attn.f + ((uint64_t)t * s->n_v_heads + v_head) * s->head_v,
        };
        step.qk = k->dot_f32(step.q, step.k, s->head_k);
        k->delta_step(&step);
        k_before = step.k;
        *decay = step.decay;
        finish_output(j, t, v_head, step.y);
    }
}

/* Task = key head: its value heads are its own. */
static void run_heads(void *arg, uint32_t task, uint32_t worker)
{
    (void)worker;
    struct delta_job *j = arg;
    const struct sl_delta_shape *s = j->shape;
    uint32_t group = s->n_v_heads / s->n_k_heads;
    uint32_t at_q = task * s->head_k, at_k = (s->n_k_heads + task) * s->head_k;
    bool rounds = j->c->session->m->arch->delta_heads == SL_DELTA_ROUNDS;
    convolve(j, at_q, s->head_k);
    convolve(j, at_k, s->head_k);
    for (uint32_t t = 0; t < j->c->n; t++) {
        set_length(j, row_of(j, t) + at_q, 1.0f / sqrtf((float)s->head_k));
        set_length(j, row_of(j, t) + at_k, 1.0f);
    }
    for (uint32_t i = 0; i < group; i++)
        run_head(j, task, rounds ? i * s->n_k_heads + task : task * group + i);
    memcpy(j->state.k + (uint64_t)task * s->head_k, row_of(j, j->c->n - 1) + at_k,
           s->head_k * sizeof(float));
}

/* ---- the layer -------------------------------------------------------------------------- */

/* A product of the chunk's input: where its first row's result goes, and how far tokens are apart.
 */
struct product {
    const struct sl_matrix *w;
    float *y;
    uint64_t stride;
};

#define PRODUCTS_MAX 64u

static sluice_err run_products(const struct sl_chunk *c, const struct product *p, uint32_t n)
{
    struct sl_session *s = c->session;
    struct sl_mm mm[PRODUCTS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, p[i].w->type);
        if (!x) return sl_not_finite(c, "input of DeltaNet");
        mm[i] = (struct sl_mm){*p[i].w, x, c->n, p[i].y, p[i].stride, 0};
    }
    sl_mm_run(&s->compute, mm, n);
    return SLUICE_OK;
}

/* q, k, v and z of a file that has them by key head. */
static sluice_err project_by_head(const struct sl_chunk *c, const struct sl_delta *y)
{
    const struct sl_delta_shape *s = &c->session->m->delta;
    uint32_t keys = s->n_k_heads * s->head_k, values = s->n_v_heads / s->n_k_heads * s->head_v;
    float *q = c->session->scratch.q, *z = c->session->scratch.z;
    struct product p[PRODUCTS_MAX];
    sluice_err err = SLUICE_OK;
    uint32_t n = 0;
    for (uint32_t h = 0; h < s->n_k_heads && err == SLUICE_OK; h++) {
        const struct sl_matrix *w = y->by_head[h];
        p[n++] = (struct product){&w[0], q + h * s->head_k, s->channels};
        p[n++] = (struct product){&w[1], q + keys + h * s->head_k, s->channels};
        p[n++] = (struct product){&w[2], q + 2 * keys + h * values, s->channels};
        p[n++] = (struct product){&w[3], z + h * values, s->n_v_heads * s->head_v};
        if (n < PRODUCTS_MAX && h + 1 < s->n_k_heads) continue;
        err = run_products(c, p, n);
        n = 0;
    }
    return err;
}

static sluice_err project(const struct sl_chunk *c, const struct sl_delta *y)
{
    struct sl_session *s = c->session;
    uint32_t heads = s->m->delta.n_v_heads, n = 0;
    struct product p[4];
    if (!y->by_head) {
        p[n++] = (struct product){&y->qkv, s->scratch.q, y->qkv.rows};
        p[n++] = (struct product){&y->z, s->scratch.z, y->z.rows};
    }
    p[n++] = (struct product){&y->ba[0], s->scratch.ba, 2 * heads};
    if (y->ba[1].rows) p[n++] = (struct product){&y->ba[1], s->scratch.ba + heads, 2 * heads};
    sluice_err err = run_products(c, p, n);
    if (err == SLUICE_OK && y->by_head) err = project_by_head(c, y);
    if (err == SLUICE_OK && s->observer.fn) sl_observe_delta_input(c);
    return err;
}

sluice_err sl_deltanet(const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    const struct sl_layer *layer = &s->m->layers[c->layer];
    const struct sl_delta *y = &layer->delta;
    sl_norm_chunk(c, layer->attn_norm);
    sl_phase_next(&s->phases, SL_PHASE_PROJECTION);
    sluice_err err = project(c, y);
    if (err != SLUICE_OK) return err;

    struct delta_job j = {.c = c, .y = y, .shape = &s->m->delta};
    j.state = sl_recurrent_layer(&s->recurrent, y->index);
    SLUICE_ASSERT(j.state.mark->n == c->pos);
    sl_acts_begin(&s->scratch.attn, c->n, y->out.cols);
    sl_phase_next(&s->phases, SL_PHASE_MIXING);
    sl_pool_run(s->compute.pool, run_heads, &j, j.shape->n_k_heads);
    *j.state.mark = (struct sl_delta_mark){c->pos + c->n, true};
    if (atomic_load_explicit(&j.bad, memory_order_relaxed))
        return sl_not_finite(c, "a query, key or output of DeltaNet");
    uint32_t first = sl_quiet(c);
    if (first == c->n) {
        sl_phase_next(&s->phases, SL_PHASE_OTHER);
        return SLUICE_OK;
    }

    sl_phase_next(&s->phases, SL_PHASE_PROJECTION);
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.attn, y->out.type);
    if (!x) return sl_not_finite(c, "output of DeltaNet");
    if (s->observer.fn) sl_observe_delta_output(c);
    struct sl_mm mm = {y->out, x + first, c->n - first, s->scratch.out, s->m->n_embd, 0};
    sl_mm_run(&s->compute, &mm, 1);
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    return SLUICE_OK;
}
