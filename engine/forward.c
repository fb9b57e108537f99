/* The forward pass: one for every architecture. A chunk of tokens goes through the layers together;
 * nothing a token computes depends on which others are in its chunk. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/record.h"
#include "engine/trim.h"

/* ---- small steps ------------------------------------------------------------------------ */

sluice_err sl_not_finite(const struct sl_chunk *c, const char *where)
{
    sluice_err err =
        sl_fail(c->e, SLUICE_E_NUMERIC,
                "layer %u, %s: not a finite number, or out of range; the weights are damaged",
                c->layer, where);
    if (c->e) c->e->layer = (int32_t)c->layer;
    return err;
}

/* 2^20 squares (SL_COLS_MAX) of it stay below the largest float. */
#define NORM_INPUT_MAX 1e16f

bool sl_norm_safe(const float *x, uint64_t n)
{
    int bad = 0; /* no early end: the loop is vectorized */
    for (uint64_t i = 0; i < n; i++) bad |= !(fabsf(x[i]) <= NORM_INPUT_MAX);
    return bad == 0;
}

struct norm_job {
    const struct sl_chunk *c;
    const float *weight;
};

static void norm_token(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    const struct norm_job *j = arg;
    const struct sl_session *s = j->c->session;
    uint64_t at = (uint64_t)t * s->m->n_embd;
    s->compute.kernels->rms_norm(s->scratch.x + at, j->weight, s->m->n_embd, s->m->norm_eps,
                                 s->scratch.norm.f + at);
}

void sl_norm_chunk(const struct sl_chunk *c, const float *weight)
{
    sl_acts_begin(&c->session->scratch.norm, c->n, c->session->m->n_embd);
    struct norm_job j = {c, weight};
    sl_pool_run(c->session->compute.pool, norm_token, &j, c->n);
}

void sl_add_bias(const struct sl_chunk *c, const float *bias, float *y, uint32_t cols)
{
    if (!bias) return;
    for (uint32_t t = 0; t < c->n - sl_quiet(c); t++)
        c->session->compute.kernels->add(bias, cols, y + (uint64_t)t * cols);
}

struct residual_job {
    const struct sl_chunk *c;
    atomic_bool bad; /* relaxed: read after the pool's barrier */
};

static void residual_token(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    struct residual_job *j = arg;
    const struct sl_session *s = j->c->session;
    uint32_t n = s->m->n_embd;
    const float *out = s->scratch.out + (uint64_t)t * n;
    float *x = s->scratch.x + (uint64_t)t * n;
    if (s->m->residual_scale == 1.0f)
        s->compute.kernels->add(out, n, x);
    else
        s->compute.kernels->axpy(s->m->residual_scale, out, n, x);
    if (!sl_norm_safe(x, n)) atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* x += scale * out, for the whole chunk. False where no norm may be taken of x then. */
static bool add_residual(const struct sl_chunk *c)
{
    struct residual_job j = {.c = c};
    sl_pool_run(c->session->compute.pool, residual_token, &j, c->n);
    return !atomic_load_explicit(&j.bad, memory_order_relaxed);
}

static bool all_finite(const float *x, uint64_t n)
{
    int bad = 0; /* no early end: the loop is vectorized */
    for (uint64_t i = 0; i < n; i++) bad |= !(fabsf(x[i]) <= FLT_MAX);
    return bad == 0;
}

/* ---- layers ----------------------------------------------------------------------------- */

/* From here on the chunk is those of its tokens that are not quiet. */
static void leave_quiet(struct sl_chunk *c)
{
    uint64_t row = c->session->m->n_embd, quiet = sl_quiet(c);
    float *x = c->session->scratch.x;
    memmove(x, x + quiet * row, c->n_out * row * sizeof *x);
    c->pos += (uint32_t)quiet;
    c->n = c->n_out;
}

static sluice_err compute_layer(struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    const struct sl_layer *y = &s->m->layers[c->layer];
    sluice_err err = y->is_delta ? sl_deltanet(c) : sl_attention(c);
    if (err != SLUICE_OK) return err;
    if (sl_quiet(c) > 0) leave_quiet(c);
    if (c->n == 0) return SLUICE_OK;
    if (!add_residual(c)) return sl_not_finite(c, "the result of attention");
    sl_norm_chunk(c, y->ffn_norm);
    err = y->n_experts ? sl_moe_ffn(c) : sl_dense_ffn(c, &y->ffn, s->scratch.out);
    if (err != SLUICE_OK) return err;
    return add_residual(c) ? SLUICE_OK : sl_not_finite(c, "its output");
}

/* What the phases and the store's reads have come to so far. */
struct so_far {
    struct sl_phases phases;
    uint64_t stall_ns, demand_bytes;
};

static struct so_far look(const struct sl_session *s)
{
    struct sl_expert_stats x = {0};
    if (s->m->store) sl_expert_get_stats(s->m->store, &x);
    return (struct so_far){s->phases, x.stall_ns, x.demand_bytes + x.prompt_bytes};
}

/* Tells whoever listens what a layer took since before. */
static void tell_times(const struct sl_chunk *c, uint32_t layer, const struct so_far *before)
{
    const struct sl_session *s = c->session;
    struct so_far now = look(s);
    struct sl_layer_times t = {.stall_ns = now.stall_ns - before->stall_ns,
                               .demand_bytes = now.demand_bytes - before->demand_bytes};
    for (int i = 0; i < SL_PHASES; i++) t.ns[i] = now.phases.ns[i] - before->phases.ns[i];
    s->on_layer(s->on_layer_user, layer, c->n, &t);
}

static sluice_err run_layer(struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    struct so_far before;
    if (s->on_layer) before = look(s);
    sluice_err err = compute_layer(c);
    if (s->on_layer) {
        sl_phase_next(&s->phases, SL_PHASE_OTHER);
        tell_times(c, c->layer, &before);
    }
    return err;
}

/* Logits of tokens [first, n) of the chunk, [n - first][n_vocab]. */
static sluice_err head(const struct sl_chunk *c, uint32_t first, float *logits)
{
    struct sl_session *s = c->session;
    const struct sl_model *m = s->m;
    sl_norm_chunk(c, m->output_norm);
    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.norm, m->output.type);
    if (!x) return sl_not_finite(c, "input of the output matrix");
    if (s->observer.fn) sl_observe_head(c);
    struct sl_mm mm = {m->output, x + first, c->n - first, logits, m->n_vocab, 0};
    sl_mm_run(&s->compute, &mm, 1);
    uint64_t n = (uint64_t)(c->n - first) * m->n_vocab;
    if (m->logit_scale != 1.0f)
        for (uint32_t t = 0; t < c->n - first; t++)
            s->compute.kernels->scale(m->logit_scale, m->n_vocab,
                                      logits + (uint64_t)t * m->n_vocab);
    if (!all_finite(logits, n)) return sl_not_finite(c, "a logit");
    return SLUICE_OK;
}

/* The head's input alone: an observer sees it of every token, also where no logits are wanted. */
static sluice_err show_head(const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    sl_norm_chunk(c, s->m->output_norm);
    if (!all_finite(s->scratch.norm.f, (uint64_t)c->n * s->m->n_embd))
        return sl_not_finite(c, "input of the output matrix");
    sl_observe_head(c);
    return SLUICE_OK;
}

/* Whether somebody looks at what all tokens choose in the last layer: observers, choosers and
 * recordings; sticky routing, which depends on the choices before, and --drop-cold, which knows
 * prompts by their several tokens; and the cache, whose policies compare layers by what was chosen
 * in each, where it does not hold every expert. */
static bool all_are_seen(const struct sl_session *s)
{
    const struct sl_expert_store *store = s->m->store;
    return s->observer.fn || s->chooser.fn || s->m->record || s->sticky || s->drop_cold > 0.0f ||
           (store && !sl_expert_store_is_whole(store));
}

/* Of how many tokens the last layer's output is wanted: of those that the head is asked for. */
static uint32_t tokens_out(const struct sl_chunk *c, const float *logits, bool want_last)
{
    if (logits || all_are_seen(c->session)) return c->n;
    return want_last ? 1 : 0;
}

static sluice_err compute_chunk(const struct sl_chunk *chunk, const int32_t *ids, float *logits,
                                bool want_last)
{
    struct sl_chunk now = *chunk, *c = &now;
    struct sl_session *s = c->session;
    c->n_out = tokens_out(c, logits, want_last);
    sluice_err err = sl_embed(c, ids);
    if (err != SLUICE_OK) return err;
    if (!sl_norm_safe(s->scratch.x, (uint64_t)c->n * s->m->n_embd))
        return sl_not_finite(c, "a token's embedding");
    for (uint32_t t = 0; t < c->n; t++)
        sl_rope_table(&s->m->rope, c->pos + t, s->scratch.rope + (uint64_t)t * s->m->rope.n_rot);
    for (c->layer = 0; c->layer < s->m->n_layers; c->layer++) {
        if (atomic_load_explicit(&s->cancel, memory_order_relaxed))
            return sl_fail(c->e, SLUICE_E_CANCELLED, "the evaluation was cancelled");
        sl_model_apply_trim(s->m);
        err = run_layer(c);
        if (err != SLUICE_OK) return err;
    }
    c->layer = s->m->n_layers - 1;
    if (!logits && !want_last) return s->observer.fn ? show_head(c) : SLUICE_OK;
    struct so_far before;
    if (s->on_layer) before = look(s);
    sl_phase_next(&s->phases, SL_PHASE_HEAD);
    err = logits ? head(c, 0, logits) : head(c, c->n - 1, s->scratch.logits);
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    if (s->on_layer) tell_times(c, s->m->n_layers, &before);
    return err;
}

static sluice_err run_chunk(const struct sl_chunk *c, const int32_t *ids, float *logits,
                            bool want_last)
{
    struct sl_record *record = c->session->m->record;
    if (record) sl_record_eval(record, c);
    sluice_err err = compute_chunk(c, ids, logits, want_last);
    if (record && err == SLUICE_OK) sl_record_done(record, c);
    return err;
}

/* ---- a whole call ----------------------------------------------------------------------- */

/* Memory for n positions. Slots of experts were planned for a short context; as it grows they give
 * way, coldest first. */
static sluice_err grow_kv(struct sl_session *s, uint32_t n)
{
    sluice_err err = sl_kv_grow(&s->kv, n);
    if (err != SLUICE_E_BUDGET || !s->m->store) return err;
    uint64_t more = sl_kv_bytes(s->m, s->kv.type, n) - s->kv.region.committed_bytes;
    return sl_expert_store_shrink(s->m->store, more) >= more ? sl_kv_grow(&s->kv, n) : err;
}

/* The list of ids doubles now and then, when the keys may have taken what was left; only where they
 * grow too, so that decoding allocates nothing in between. */
static sluice_err grow_ids(struct sl_session *s, uint32_t n)
{
    n = (n + SL_KV_BLOCK - 1) / SL_KV_BLOCK * SL_KV_BLOCK;
    sluice_err err = sl_ids_reserve(&s->history, n);
    if (err != SLUICE_E_BUDGET || !s->m->store) return err;
    uint64_t count = sl_max_u64(2 * s->history.capacity, (uint64_t)n + 64);
    (void)sl_expert_store_shrink(s->m->store, SL_BLOCK_OVERHEAD_BYTES + count * sizeof(int32_t));
    return sl_ids_reserve(&s->history, n);
}

static sluice_err check_ids(const struct sl_session *s, const int32_t *ids, size_t n,
                            sluice_error *e)
{
    if (n == 0) return sl_fail(e, SLUICE_E_ARG, "no tokens to evaluate");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->m->n_vocab)
            return sl_fail(e, SLUICE_E_ARG, "token %zu is %d, wanted 0 to %u", i, ids[i],
                           s->m->n_vocab - 1);
    if (n > s->n_ctx - s->history.count)
        return sl_fail(e, SLUICE_E_CONTEXT_FULL,
                       "%zu tokens do not fit: the context holds %u tokens and %llu are taken; a "
                       "larger one is asked "
                       "for with -c (n_ctx)",
                       n, s->n_ctx, (unsigned long long)s->history.count);
    return SLUICE_OK;
}

/* Recurrent layers take in again what they have lost of the text before. */
static sluice_err catch_up(struct sl_session *s, sluice_error *e)
{
    uint32_t n = (uint32_t)s->history.count, at = sl_recurrent_known(&s->recurrent, n);
    sluice_err err = SLUICE_OK;
    while (at < n && err == SLUICE_OK) {
        struct sl_chunk c = {s, n - at < s->chunk ? n - at : s->chunk, at, 0, e, true, 0};
        err = run_chunk(&c, s->history.ids + at, NULL, false);
        if (err == SLUICE_OK) s->eval_tokens += c.n;
        at += c.n;
    }
    return err;
}

static sluice_err remember(struct sl_session *s, const int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sluice_err err = sl_ids_push(&s->history, ids[i]);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

/* What a longer context had taken from the slots goes back to them, unless their memory was asked
 * back meanwhile. */
static void regrow_slots(struct sl_session *s)
{
    if (!s->kv_shrunk || !s->m->store) return;
    s->kv_shrunk = false;
    if (!s->m->trimmed) sl_expert_store_regrow(s->m->store);
}

sluice_err sl_session_eval(struct sl_session *s, const int32_t *ids, size_t n, float *logits,
                           const float **last, sluice_error *e)
{
    sluice_err err = check_ids(s, ids, n, e);
    uint64_t start = sl_now_ns();
    sl_phase_start(&s->phases);
    regrow_slots(s);
    if (err == SLUICE_OK) err = catch_up(s, e);
    if (err == SLUICE_OK && n > 1) sl_recurrent_keep(&s->recurrent);
    for (size_t at = 0; at < n && err == SLUICE_OK;) {
        uint32_t step = n - at < s->chunk ? (uint32_t)(n - at) : s->chunk;
        bool prompt = n > 1 || s->reads_prompt;
        struct sl_chunk c = {s, step, (uint32_t)s->history.count, 0, e, prompt, 0};
        err = grow_kv(s, c.pos + step);
        if (err == SLUICE_OK) err = grow_ids(s, c.pos + step);
        if (err != SLUICE_OK) {
            sl_fail(e, err,
                    "no memory for the KV cache of %u tokens; a larger budget is given with --ram, "
                    "a smaller "
                    "context with -c",
                    c.pos + step);
            break;
        }
        float *out = logits ? logits + at * s->m->n_vocab : NULL;
        err = run_chunk(&c, ids + at, out, last && at + step == n);
        if (err == SLUICE_OK) err = remember(s, ids + at, step);
        at += step;
        if (err == SLUICE_OK) s->eval_tokens += step;
        if (err == SLUICE_OK && last)
            *last = out ? out + (uint64_t)(step - 1) * s->m->n_vocab : s->scratch.logits;
    }
    if (err != SLUICE_OK) sl_recurrent_rewind(&s->recurrent, (uint32_t)s->history.count);
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    s->eval_ns += sl_now_ns() - start;
    return err;
}
