/* Attention over the KV cache, grouped queries included (Ainslie et al. 2023).
 *
 * q, k, v of the chunk are projected together; then each token finishes its own (bias, norm, RoPE)
 * and stores its key and value; then each token's heads attend to all positions up to its own,
 * those that share keys and values together. The softmax is taken online over blocks of the cache
 * (Milakov and Gimelshein 2018), whose borders lie at absolute positions: the sums are the same
 * whatever the chunk. */
#include <float.h>
#include <string.h>

#include "base/mathfn.h"
#include "engine/session.h"

struct attn_job {
    const struct sl_chunk *c;
    const struct sl_layer *y;
    atomic_bool bad;           /* relaxed: read after the pool's barrier */
    uint32_t heads, stretches; /* attend: heads of a task, and tasks to a KV head */
};

static void clamp(float *x, uint32_t n, float limit)
{
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > limit) x[i] = limit;
        if (x[i] < -limit) x[i] = -limit;
    }
}

/* Norms of q or k: each head by itself with one weight vector, or all heads as one row. */
static void norm_heads(struct attn_job *j, float *x, const float *weight, bool whole,
                       uint32_t heads)
{
    if (!weight) return;
    if (!sl_norm_safe(x, heads * j->c->session->m->head_k))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    const struct sl_model *m = j->c->session->m;
    const struct sl_kernels *k = j->c->session->compute.kernels;
    if (whole) {
        k->rms_norm(x, weight, heads * m->head_k, m->norm_eps, x);
        return;
    }
    for (uint32_t h = 0; h < heads; h++)
        k->rms_norm(x + h * m->head_k, weight, m->head_k, m->norm_eps, x + h * m->head_k);
}

static void rotate_heads(const struct attn_job *j, float *x, uint32_t heads, uint32_t t)
{
    const struct sl_model *m = j->c->session->m;
    const float *cs = j->c->session->scratch.rope + (uint64_t)t * m->rope.n_rot;
    for (uint32_t h = 0; h < heads; h++)
        j->c->session->compute.kernels->rope(x + h * m->head_k, cs, m->rope.n_rot,
                                             m->arch->rope_neox);
}

static bool store_heads(const struct attn_job *j, const float *x, enum sl_kv_side side, uint32_t t)
{
    const struct sl_session *s = j->c->session;
    uint32_t head = s->kv.head[side];
    bool ok = true;
    for (uint32_t h = 0; h < j->y->n_kv_heads; h++) {
        struct sl_kv_row row = sl_kv_row(&s->kv, j->c->layer, h, side, j->c->pos + t);
        ok &= s->compute.kernels->store_kv[s->kv.type](x + h * head, head, row.data, row.scales);
    }
    return ok;
}

/* One token's q, k and v, from projection to what attention reads. */
static void finish_token(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    struct attn_job *j = arg;
    const struct sl_layer *y = j->y;
    const struct sl_session *s = j->c->session;
    float *q = s->scratch.q + (uint64_t)t * y->wq.rows,
          *k = s->scratch.k + (uint64_t)t * y->wk.rows;
    float *v = s->scratch.v + (uint64_t)t * y->wv.rows;
    if (y->bq) s->compute.kernels->add(y->bq, y->wq.rows, q);
    if (y->bk) s->compute.kernels->add(y->bk, y->wk.rows, k);
    if (y->bv) s->compute.kernels->add(y->bv, y->wv.rows, v);
    norm_heads(j, q, y->q_norm, y->q_norm_whole, y->n_heads);
    norm_heads(j, k, y->k_norm, y->k_norm_whole, y->n_kv_heads);
    if (s->m->clamp_qkv > 0.0f) { /* after the norms, as OLMoE does */
        clamp(q, y->wq.rows, s->m->clamp_qkv);
        clamp(k, y->wk.rows, s->m->clamp_qkv);
        clamp(v, y->wv.rows, s->m->clamp_qkv);
    }
    rotate_heads(j, q, y->n_heads, t);
    rotate_heads(j, k, y->n_kv_heads, t);
    bool ok = store_heads(j, k, SL_KV_KEYS, t);
    ok &= store_heads(j, v, SL_KV_VALUES, t);
    if (!ok) atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* Some heads of one token that share keys and values, at work: their queries, and the running state
 * of each one's softmax (largest score so far, sum of exponentials, weighted values in acc). */
struct online {
    uint32_t n, kv_head;
    struct sl_k_query query[SL_ATT_HEADS];
    float *scores; /* [n][SL_KV_BLOCK] scratch */
    float max[SL_ATT_HEADS], sum[SL_ATT_HEADS];
    float *acc; /* [n][head_v] */
};

/* Scores of head h become weights. */
static void soften(const struct sl_session *s, struct online *o, uint32_t h, uint32_t n)
{
    const struct sl_kernels *k = s->compute.kernels;
    float *scores = o->scores + (uint64_t)h * n;
    float max = k->max_f32(scores, n);
    if (max > o->max[h]) {
        if (o->sum[h] > 0.0f) {
            float shrink = sl_expf(o->max[h] - max);
            k->scale(shrink, s->m->head_v, o->acc + (uint64_t)h * s->m->head_v);
            o->sum[h] *= shrink;
        }
        o->max[h] = max;
    }
    o->sum[h] += k->exp_sum(scores, n, o->max[h]);
}

/* The first n positions of one block of the cache. */
static void attend_block(const struct attn_job *j, struct online *o, uint32_t block, uint32_t n)
{
    const struct sl_session *s = j->c->session;
    const struct sl_kernels *k = s->compute.kernels;
    struct sl_k_kv keys = sl_kv_view(&s->kv, j->c->layer, o->kv_head, SL_KV_KEYS, block, n);
    struct sl_k_kv values = sl_kv_view(&s->kv, j->c->layer, o->kv_head, SL_KV_VALUES, block, n);
    k->attn_scores[s->kv.type](o->query, o->n, &keys, s->m->attn_scale, o->scores);
    for (uint32_t h = 0; h < o->n; h++) soften(s, o, h, n);
    k->attn_values[s->kv.type](o->scores, o->n, &values, o->acc);
}

/* Starts o for heads [first, first + o->n) of token t. False where a query is not finite. */
static bool begin_heads(const struct attn_job *j, struct online *o, uint32_t t, uint32_t first,
                        uint32_t worker)
{
    const struct sl_session *s = j->c->session;
    const struct sl_scratch *scratch = &s->scratch;
    bool ok = true;
    for (uint32_t h = 0; h < o->n; h++) {
        uint64_t at = (uint64_t)worker * SL_ATT_HEADS + h;
        const float *q = scratch->q + (uint64_t)t * j->y->wq.rows + (first + h) * s->m->head_k;
        int16_t *codes = scratch->att_q + at * scratch->att_q_stride;
        float *d = scratch->att_d + at * scratch->att_d_stride;
        if (s->kv.type == SL_KV_Q8)
            ok &= s->compute.kernels->quantize_query(q, s->m->head_k, codes, d);
        o->query[h] = (struct sl_k_query){q, codes, d};
        o->max[h] = -FLT_MAX;
        o->sum[h] = 0.0f;
    }
    o->kv_head = first / (j->y->n_heads / j->y->n_kv_heads);
    o->scores = scratch->att_scores + (uint64_t)worker * SL_ATT_HEADS * SL_KV_BLOCK;
    o->acc = scratch->attn.f + (uint64_t)t * j->y->wo.cols + first * s->m->head_v;
    memset(o->acc, 0, (uint64_t)o->n * s->m->head_v * sizeof *o->acc);
    return ok;
}

/* Task = (token * KV heads + KV head) * stretches + stretch of the heads that share it. */
static void attend(void *arg, uint32_t task, uint32_t worker)
{
    struct attn_job *j = arg;
    const struct sl_layer *y = j->y;
    const struct sl_session *s = j->c->session;
    uint32_t group = y->n_heads / y->n_kv_heads, per_token = y->n_kv_heads * j->stretches;
    uint32_t t = task / per_token, kv_head = task % per_token / j->stretches;
    uint32_t done = task % j->stretches * j->heads;
    struct online o = {.n = group - done < j->heads ? group - done : j->heads};
    if (!begin_heads(j, &o, t, kv_head * group + done, worker))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);

    uint32_t n_keys = j->c->pos + t + 1;
    for (uint32_t block = 0; block * SL_KV_BLOCK < n_keys; block++) {
        uint32_t left = n_keys - block * SL_KV_BLOCK;
        attend_block(j, &o, block, left < SL_KV_BLOCK ? left : SL_KV_BLOCK);
    }
    for (uint32_t h = 0; h < o.n; h++)
        s->compute.kernels->scale(1.0f / o.sum[h], s->m->head_v,
                                  o.acc + (uint64_t)h * s->m->head_v);
}

/* Heads that share keys go over them together, as many as there may be; fewer where that would
 * leave a thread without a task. */
static void attend_all(struct attn_job *j)
{
    struct sl_pool *pool = j->c->session->compute.pool;
    uint32_t group = j->y->n_heads / j->y->n_kv_heads, kv_heads = j->c->n * j->y->n_kv_heads;
    j->heads = group < SL_ATT_HEADS ? group : SL_ATT_HEADS;
    while (j->heads > 1 && kv_heads * ((group + j->heads - 1) / j->heads) < sl_pool_threads(pool))
        j->heads = (j->heads + 1) / 2;
    j->stretches = (group + j->heads - 1) / j->heads;
    sl_pool_run(pool, attend, j, kv_heads * j->stretches);
}

static sluice_err project_qkv(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_session *s = c->session;
    const struct sl_matrix *w[3] = {&y->wq, &y->wk, &y->wv};
    float *out[3] = {s->scratch.q, s->scratch.k, s->scratch.v};
    struct sl_mm mm[3];
    for (int i = 0; i < 3; i++) {
        const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, w[i]->type);
        if (!x) return sl_not_finite(c, "input of attention");
        mm[i] = (struct sl_mm){*w[i], x, c->n, out[i], w[i]->rows, 0};
    }
    if (s->observer.fn) sl_observe_attn_input(c);
    sl_mm_run(&s->compute, mm, 3);
    return SLUICE_OK;
}

sluice_err sl_attention(const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    const struct sl_layer *y = &s->m->layers[c->layer];
    sl_norm_chunk(c, y->attn_norm);
    sluice_err err = project_qkv(c, y);
    if (err != SLUICE_OK) return err;

    struct attn_job j = {.c = c, .y = y};
    sl_pool_run(s->compute.pool, finish_token, &j, c->n);
    if (atomic_load_explicit(&j.bad, memory_order_relaxed))
        return sl_not_finite(c,
                             "a query, key or value (f32 keys and values have the widest range)");
    sl_acts_begin(&s->scratch.attn, c->n, y->wo.cols);
    attend_all(&j);
    if (atomic_load_explicit(&j.bad, memory_order_relaxed)) return sl_not_finite(c, "a query");

    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.attn, y->wo.type);
    if (!x) return sl_not_finite(c, "output of attention");
    if (s->observer.fn) sl_observe_attn_output(c);
    struct sl_mm mm = {y->wo, x, c->n, s->scratch.out, s->m->n_embd, 0};
    sl_mm_run(&s->compute, &mm, 1);
    sl_add_bias(c, y->bo, s->scratch.out, s->m->n_embd);
    return SLUICE_OK;
}
