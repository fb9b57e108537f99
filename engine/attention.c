/* Attention over the KV cache, grouped queries included (Ainslie et al. 2023), its output perhaps
 * gated (Qiu et al. 2025, "Gated Attention"): of each head the query is then followed by a gate.
 *
 * q, k, v of the chunk are projected together; then each token finishes its own (bias, norm, RoPE)
 * and stores its key and value; then each token's heads attend to all positions up to its own:
 * heads that share keys and values go over them together, those of a few tokens, too. The softmax
 * is taken online over blocks of the cache (Milakov and Gimelshein 2018), whose borders lie at
 * absolute positions: the sums are the same whatever the chunk, and whoever goes along. */
#include <float.h>
#include <string.h>

#include "base/mathfn.h"
#include "engine/session.h"

struct attn_job {
    const struct sl_chunk *c;
    const struct sl_layer *y;
    atomic_bool bad; /* relaxed: read after the pool's barrier */
    uint32_t q_step; /* elements from a head's query to the next one's */
    /* Of attend: heads and tokens of a task, and in how many each KV head's and the chunk's go. */
    uint32_t heads, tokens, head_tasks, token_tasks;
};

static void clamp(float *x, uint32_t n, float limit)
{
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > limit) x[i] = limit;
        if (x[i] < -limit) x[i] = -limit;
    }
}

/* Heads of q or k of one token, step elements apart. */
struct heads {
    float *x;
    uint32_t n, step;
};

/* Norms of q or k: each head by itself with one weight vector, or all heads as one row. */
static void norm_heads(struct attn_job *j, struct heads x, const float *weight, bool whole)
{
    if (!weight) return;
    if (!sl_norm_safe(x.x, (uint64_t)x.n * x.step))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    const struct sl_model *m = j->c->session->m;
    const struct sl_kernels *k = j->c->session->compute.kernels;
    if (whole) {
        k->rms_norm(x.x, weight, x.n * m->head_k, m->norm_eps, x.x);
        return;
    }
    for (uint32_t h = 0; h < x.n; h++)
        k->rms_norm(x.x + h * x.step, weight, m->head_k, m->norm_eps, x.x + h * x.step);
}

static void rotate_heads(const struct attn_job *j, struct heads x, uint32_t t)
{
    const struct sl_model *m = j->c->session->m;
    const float *cs = j->c->session->scratch.rope + (uint64_t)t * m->rope.n_rot;
    for (uint32_t h = 0; h < x.n; h++)
        j->c->session->compute.kernels->rope(x.x + h * x.step, cs, m->rope.n_rot,
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

/* The query of token t of the chunk, which is not quiet. */
static float *query_of(const struct attn_job *j, uint64_t t)
{
    return j->c->session->scratch.q + (t - sl_quiet(j->c)) * j->y->wq.rows;
}

static void finish_query(struct attn_job *j, uint32_t t)
{
    const struct sl_layer *y = j->y;
    const struct sl_session *s = j->c->session;
    float *q = query_of(j, t);
    const struct heads heads = {q, y->n_heads, j->q_step};
    if (y->bq) s->compute.kernels->add(y->bq, y->wq.rows, q);
    norm_heads(j, heads, y->q_norm, y->q_norm_whole);
    if (s->m->clamp_qkv > 0.0f) clamp(q, y->wq.rows, s->m->clamp_qkv);
    rotate_heads(j, heads, t);
}

/* One token's q, k and v, from projection to what attention reads. */
static void finish_token(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    struct attn_job *j = arg;
    const struct sl_layer *y = j->y;
    const struct sl_session *s = j->c->session;
    float *k = s->scratch.k + (uint64_t)t * y->wk.rows;
    float *v = s->scratch.v + (uint64_t)t * y->wv.rows;
    if (y->bk) s->compute.kernels->add(y->bk, y->wk.rows, k);
    if (y->bv) s->compute.kernels->add(y->bv, y->wv.rows, v);
    const struct heads ks = {k, y->n_kv_heads, s->m->head_k};
    norm_heads(j, ks, y->k_norm, y->k_norm_whole);
    if (s->m->clamp_qkv > 0.0f) { /* after the norms, as OLMoE does */
        clamp(k, y->wk.rows, s->m->clamp_qkv);
        clamp(v, y->wv.rows, s->m->clamp_qkv);
    }
    rotate_heads(j, ks, t);
    if (t >= sl_quiet(j->c)) finish_query(j, t);
    bool ok = store_heads(j, k, SL_KV_KEYS, t);
    ok &= store_heads(j, v, SL_KV_VALUES, t);
    if (!ok) atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* Some heads of some tokens, all sharing keys and values, at work. A row is a head of a token,
 * token by token: its query, and the running state of its softmax (largest score so far, sum of
 * exponentials, weighted values in acc). */
struct online {
    uint32_t token, n_tokens; /* of the chunk, from token on */
    uint32_t head, n_heads;   /* of each of them, from head on */
    uint32_t kv_head;
    struct sl_k_query query[SL_ATT_ROWS];
    float max[SL_ATT_ROWS], sum[SL_ATT_ROWS];
    float *scores;                    /* [rows][SL_KV_BLOCK] scratch */
    float *acc;                       /* [rows][head_v] */
    const uint8_t *ahead, *ahead_end; /* what of the next block has not been asked for */
};

/* A head's blocks lie far from one another, and a processor's own prefetcher begins anew with each:
 * one Zen 4 core took 4.7 us for a block of 17 KB that was not in its cache, of which 2.7 are
 * arithmetic for eight heads. Asked for evenly while the block before is at work, it takes 3.1; all
 * at once, 3.8. */
static void ask_ahead(struct online *o, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes && o->ahead < o->ahead_end; i += 64, o->ahead += 64)
        __builtin_prefetch(o->ahead, 0, 2);
}

/* n scores of a row become weights. */
static void soften(const struct sl_session *s, struct online *o, uint32_t row, float *scores,
                   uint32_t n)
{
    const struct sl_kernels *k = s->compute.kernels;
    float max = k->max_f32(scores, n);
    if (max > o->max[row]) {
        if (o->sum[row] > 0.0f) {
            float shrink = sl_expf(o->max[row] - max);
            k->scale(shrink, s->m->head_v, o->acc + (uint64_t)row * s->m->head_v);
            o->sum[row] *= shrink;
        }
        o->max[row] = max;
    }
    o->sum[row] += k->exp_sum(scores, n, o->max[row]);
}

/* The first n positions of one block of the cache, for rows [first, end). */
static void attend_block(const struct attn_job *j, struct online *o, const uint32_t rows[2],
                         uint32_t block, uint32_t n)
{
    const struct sl_session *s = j->c->session;
    const struct sl_kernels *k = s->compute.kernels;
    uint32_t first = rows[0], count = rows[1] - rows[0];
    struct sl_k_kv keys = sl_kv_view(&s->kv, j->c->layer, o->kv_head, SL_KV_KEYS, block, n);
    struct sl_k_kv values = sl_kv_view(&s->kv, j->c->layer, o->kv_head, SL_KV_VALUES, block, n);
    uint64_t next = (uint64_t)(o->ahead_end - o->ahead);
    ask_ahead(o, next / 4);
    k->attn_scores[s->kv.type](o->query + first, count, &keys, s->m->attn_scale, o->scores);
    for (uint32_t i = 0; i < count; i++) {
        ask_ahead(o, next / 2 / count);
        soften(s, o, first + i, o->scores + (uint64_t)i * n, n);
    }
    ask_ahead(o, next);
    k->attn_values[s->kv.type](o->scores, count, &values, o->acc + (uint64_t)first * s->m->head_v);
}

/* Starts every row. False where a query is not finite. */
static bool begin_rows(const struct attn_job *j, struct online *o, uint32_t worker)
{
    const struct sl_session *s = j->c->session;
    const struct sl_scratch *scratch = &s->scratch;
    uint64_t first = (uint64_t)worker * SL_ATT_ROWS;
    uint32_t n_rows = o->n_tokens * o->n_heads;
    bool ok = true;
    for (uint32_t row = 0; row < n_rows; row++) {
        uint64_t t = o->token + row / o->n_heads;
        uint32_t h = o->head + row % o->n_heads;
        const float *q = query_of(j, t) + h * j->q_step;
        int16_t *codes = scratch->att_q + (first + row) * scratch->att_q_stride;
        float *d = scratch->att_d + (first + row) * scratch->att_d_stride;
        if (s->kv.type == SL_KV_Q8)
            ok &= s->compute.kernels->quantize_query(q, s->m->head_k, codes, d);
        o->query[row] = (struct sl_k_query){q, codes, d};
        o->max[row] = -FLT_MAX;
        o->sum[row] = 0.0f;
    }
    o->scores = scratch->att_scores + first * SL_KV_BLOCK;
    o->acc = scratch->att_acc + first * s->m->head_v;
    memset(o->acc, 0, (uint64_t)n_rows * s->m->head_v * sizeof *o->acc);
    return ok;
}

/* What a row has attended to becomes the output of its head. */
static void finish_row(const struct attn_job *j, const struct online *o, uint32_t row)
{
    const struct sl_session *s = j->c->session;
    const struct sl_kernels *k = s->compute.kernels;
    uint32_t n = s->m->head_v, h = o->head + row % o->n_heads;
    uint64_t t = o->token + row / o->n_heads;
    float *acc = o->acc + (uint64_t)row * n;
    float *out = s->scratch.attn.f + (t - sl_quiet(j->c)) * j->y->wo.cols + (uint64_t)h * n;
    k->scale(1.0f / o->sum[row], n, acc);
    if (j->y->gated)
        k->sigmoid_mul(query_of(j, t) + h * j->q_step + s->m->head_k, acc, n, out);
    else
        memcpy(out, acc, n * sizeof *out);
}

/* How many positions of a block the token sees. */
static uint32_t seen(const struct attn_job *j, uint32_t token, uint32_t block)
{
    uint32_t n_keys = j->c->pos + token + 1, before = block * SL_KV_BLOCK;
    uint32_t left = n_keys > before ? n_keys - before : 0;
    return left < SL_KV_BLOCK ? left : SL_KV_BLOCK;
}

static void look_ahead(const struct attn_job *j, struct online *o, uint32_t block)
{
    const struct sl_kv *kv = &j->c->session->kv;
    o->ahead = sl_kv_view(kv, j->c->layer, o->kv_head, SL_KV_KEYS, block, 0).data;
    o->ahead_end = o->ahead + sl_kv_head_bytes(kv);
}

/* Task = (KV head * head_tasks + part of its heads) * token_tasks + part of the tokens: neighbours
 * go over the same keys and values. Tokens that see as much of a block go over it together. */
static void attend(void *arg, uint32_t task, uint32_t worker)
{
    struct attn_job *j = arg;
    uint32_t group = j->y->n_heads / j->y->n_kv_heads;
    uint32_t part = task / j->token_tasks;
    uint32_t t = sl_quiet(j->c) + task % j->token_tasks * j->tokens;
    uint32_t h = part % j->head_tasks * j->heads;
    struct online o = {.token = t,
                       .n_tokens = j->c->n - t < j->tokens ? j->c->n - t : j->tokens,
                       .n_heads = group - h < j->heads ? group - h : j->heads,
                       .kv_head = part / j->head_tasks};
    o.head = o.kv_head * group + h;
    if (!begin_rows(j, &o, worker)) atomic_store_explicit(&j->bad, true, memory_order_relaxed);

    uint32_t last = (j->c->pos + o.token + o.n_tokens - 1) / SL_KV_BLOCK;
    for (uint32_t block = 0; block <= last; block++) {
        if (block < last) look_ahead(j, &o, block + 1);
        for (uint32_t i = 0, end; i < o.n_tokens; i = end) {
            uint32_t n = seen(j, o.token + i, block);
            for (end = i + 1; end < o.n_tokens && seen(j, o.token + end, block) == n;) end++;
            const uint32_t rows[2] = {i * o.n_heads, end * o.n_heads};
            if (n > 0) attend_block(j, &o, rows, block, n);
        }
    }
    for (uint32_t row = 0; row < o.n_tokens * o.n_heads; row++) finish_row(j, &o, row);
}

static uint32_t tasks_of(uint32_t n, uint32_t of_a_task) { return (n + of_a_task - 1) / of_a_task; }

/* How many of the heads that share keys go over them together: where all together would leave
 * threads idle, what gives the busiest thread the least to do. Going over keys and values at all
 * costs about as much as two more heads. */
static uint32_t heads_together(uint32_t group, uint32_t kv_heads, uint32_t threads)
{
    uint32_t best = 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t heads = 1; heads <= group && heads <= SL_ATT_ROWS; heads++) {
        uint32_t rounds = tasks_of(kv_heads * tasks_of(group, heads), threads);
        uint64_t cost = (uint64_t)rounds * (heads + 2);
        if (cost > least) continue;
        least = cost;
        best = heads;
    }
    return best;
}

#define TASKS_EACH 4u /* tasks of a thread, at least, where tokens go together: even shares */

static void attend_all(struct attn_job *j)
{
    struct sl_pool *pool = j->c->session->compute.pool;
    uint32_t n = j->c->n - sl_quiet(j->c), kv_heads = j->y->n_kv_heads;
    uint32_t group = j->y->n_heads / kv_heads;
    uint32_t threads = sl_pool_threads(pool);
    j->heads = heads_together(group, n * kv_heads, threads);
    j->head_tasks = tasks_of(group, j->heads);
    j->tokens = SL_ATT_ROWS / j->heads;
    while (j->tokens > 1 &&
           kv_heads * j->head_tasks * tasks_of(n, j->tokens) < threads * TASKS_EACH)
        j->tokens = (j->tokens + 1) / 2;
    j->token_tasks = tasks_of(n, j->tokens);
    sl_pool_run(pool, attend, j, kv_heads * j->head_tasks * j->token_tasks);
}

static sluice_err project_qkv(const struct sl_chunk *c, const struct sl_layer *y)
{
    struct sl_session *s = c->session;
    const struct sl_matrix *w[3] = {&y->wq, &y->wk, &y->wv};
    float *out[3] = {s->scratch.q, s->scratch.k, s->scratch.v};
    struct sl_mm mm[3];
    for (int i = 0; i < 3; i++) {
        const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, w[i]->type);
        uint32_t first = i == 0 ? sl_quiet(c) : 0;
        if (!x) return sl_not_finite(c, "input of attention");
        mm[i] = (struct sl_mm){*w[i], x + first, c->n - first, out[i], w[i]->rows, 0};
    }
    if (s->observer.fn) sl_observe_attn_input(c);
    bool all_quiet = sl_quiet(c) == c->n;
    sl_mm_run(&s->compute, mm + all_quiet, 3 - all_quiet);
    return SLUICE_OK;
}

sluice_err sl_attention(const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    const struct sl_layer *y = &s->m->layers[c->layer];
    sl_norm_chunk(c, y->attn_norm);
    sl_phase_next(&s->phases, SL_PHASE_PROJECTION);
    sluice_err err = project_qkv(c, y);
    if (err != SLUICE_OK) return err;

    struct attn_job j = {.c = c, .y = y, .q_step = s->m->head_k * (y->gated ? 2 : 1)};
    sl_phase_next(&s->phases, SL_PHASE_MIXING);
    sl_pool_run(s->compute.pool, finish_token, &j, c->n);
    if (atomic_load_explicit(&j.bad, memory_order_relaxed))
        return sl_not_finite(c,
                             "a query, key or value (f32 keys and values have the widest range)");
    uint32_t n = c->n - sl_quiet(c);
    if (n == 0) {
        sl_phase_next(&s->phases, SL_PHASE_OTHER);
        return SLUICE_OK;
    }
    sl_acts_begin(&s->scratch.attn, n, y->wo.cols);
    attend_all(&j);
    if (atomic_load_explicit(&j.bad, memory_order_relaxed)) return sl_not_finite(c, "a query");

    sl_phase_next(&s->phases, SL_PHASE_PROJECTION);
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.attn, y->wo.type);
    if (!x) return sl_not_finite(c, "output of attention");
    if (s->observer.fn) sl_observe_attn_output(c);
    struct sl_mm mm = {y->wo, x, n, s->scratch.out, s->m->n_embd, 0};
    sl_mm_run(&s->compute, &mm, 1);
    sl_add_bias(c, y->bo, s->scratch.out, s->m->n_embd);
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    return SLUICE_OK;
}
