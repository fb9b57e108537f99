/* From metadata to a described model: the numbers first, then layer by layer, then what is left
 * over. */
#include "engine/describe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mathfn.h"

/* ---- numbers ---------------------------------------------------------------------------- */

static sluice_err find_arch(struct describe *d)
{
    struct sl_str name = {NULL, 0};
    TRY(sl_gguf_str(d->g, "general.architecture", &name, d->e));
    if (name.n == 0)
        return sl_fail(d->e, SLUICE_E_FORMAT, "%s: metadata key general.architecture is missing",
                       sl_gguf_path(d->g));
    d->m->arch = sl_arch_find(name);
    if (d->m->arch) return SLUICE_OK;
    char shown[64], list[256] = "";
    for (uint32_t i = 0; sl_arch_at(i); i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", sl_arch_at(i)->name);
    }
    return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                   "%s: architecture '%s' is not supported by this version; it knows %s; a newer "
                   "version may know it",
                   sl_gguf_path(d->g), sl_str_show(name, shown, sizeof shown), list);
}

static sluice_err model_sizes(struct describe *d)
{
    struct sl_model *m = d->m;
    TRY(describe_u32(d, "block_count", 1, SL_LAYERS_MAX, &m->n_layers));
    /* layers for multi-token prediction stand at the end and are not run */
    TRY(sl_gguf_u32(d->g, describe_key(d, "nextn_predict_layers"), &d->nextn, d->e));
    if (d->nextn >= m->n_layers)
        return sl_fail(d->e, SLUICE_E_FORMAT, "%s: %s is %u, wanted fewer than the %u layers",
                       sl_gguf_path(d->g), d->key, d->nextn, m->n_layers);
    m->n_layers -= d->nextn;
    TRY(describe_u32(d, "embedding_length", 1, SL_COLS_MAX, &m->n_embd));
    TRY(describe_u32(d, "context_length", 1, UINT32_MAX, &m->n_ctx_train));
    return SLUICE_OK;
}

/* A float key that must be above zero where it is there (the reader refuses what is not finite). */
static sluice_err positive(struct describe *d, const char *suffix, float *out)
{
    TRY(sl_gguf_f32(d->g, describe_key(d, suffix), out, d->e));
    if (!(*out > 0.0f))
        return sl_fail(d->e, SLUICE_E_FORMAT, "%s: %s is %g, wanted a number above 0",
                       sl_gguf_path(d->g), d->key, (double)*out);
    return SLUICE_OK;
}

static sluice_err per_layer(struct describe *d, const char *suffix, uint32_t fallback,
                            uint32_t **out)
{
    uint32_t n = d->m->n_layers;
    *out = sl_arena_alloc(&d->m->arena, n, sizeof **out);
    if (!*out) return sl_fail(d->e, SLUICE_E_NOMEM, "no memory for the layer table");
    for (uint32_t i = 0; i < n; i++) (*out)[i] = fallback;
    return sl_gguf_u32_per_layer(d->g, describe_key(d, suffix), n, *out, d->e);
}

static sluice_err attention_numbers(struct describe *d)
{
    struct sl_model *m = d->m;
    TRY(per_layer(d, "attention.head_count", 0, &d->n_heads));
    TRY(per_layer(d, "attention.head_count_kv", 0, &d->n_kv_heads));
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (d->n_kv_heads[i] == 0) d->n_kv_heads[i] = d->n_heads[i];
    if (d->n_heads[0] == 0)
        return sl_fail(d->e, SLUICE_E_FORMAT, "%s: %s is missing or 0", sl_gguf_path(d->g),
                       describe_key(d, "attention.head_count"));
    m->head_k = m->head_v = m->n_embd / d->n_heads[0];
    TRY(sl_gguf_u32(d->g, describe_key(d, "attention.key_length"), &m->head_k, d->e));
    TRY(sl_gguf_u32(d->g, describe_key(d, "attention.value_length"), &m->head_v, d->e));
    if (m->head_k == 0 || m->head_k > SL_HEAD_DIM_MAX || m->head_v == 0 ||
        m->head_v > SL_HEAD_DIM_MAX)
        return sl_fail(d->e, SLUICE_E_LIMIT, "%s: heads of %u and %u elements, wanted 1 to %u",
                       sl_gguf_path(d->g), m->head_k, m->head_v, SL_HEAD_DIM_MAX);
    m->norm_eps = 0.0f;
    TRY(sl_gguf_f32(d->g, describe_key(d, "attention.layer_norm_rms_epsilon"), &m->norm_eps, d->e));
    if (!(m->norm_eps > 0.0f))
        return sl_fail(d->e, SLUICE_E_FORMAT, "%s: %s is missing or not above 0",
                       sl_gguf_path(d->g), d->key);
    m->clamp_qkv = 0.0f;
    TRY(sl_gguf_f32(d->g, describe_key(d, "attention.clamp_kqv"), &m->clamp_qkv, d->e));
    m->n_ctx_most = m->n_ctx_train;
    uint32_t window = 0;
    TRY(sl_gguf_u32(d->g, describe_key(d, "attention.sliding_window"), &window, d->e));
    if (window > 0 && window < m->n_ctx_train) m->n_ctx_most = window;
    bool causal = true;
    TRY(sl_gguf_bool(d->g, describe_key(d, "attention.causal"), &causal, d->e));
    if (!causal)
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: %s is false; only causal models generate text", sl_gguf_path(d->g),
                       d->key);
    return SLUICE_OK;
}

/* Granite multiplies embeddings and residuals, gives the attention scale outright, and divides
 * logits. */
static sluice_err scales(struct describe *d)
{
    struct sl_model *m = d->m;
    m->embd_scale = m->residual_scale = m->logit_scale = 1.0f;
    m->attn_scale = 1.0f / sqrtf((float)m->head_k);
    if (!m->arch->has_scales) return SLUICE_OK;
    float embd = 0.0f, residual = 0.0f, attn = 0.0f, logit = 0.0f;
    TRY(sl_gguf_f32(d->g, describe_key(d, "embedding_scale"), &embd, d->e));
    TRY(sl_gguf_f32(d->g, describe_key(d, "residual_scale"), &residual, d->e));
    TRY(sl_gguf_f32(d->g, describe_key(d, "attention.scale"), &attn, d->e));
    TRY(sl_gguf_f32(d->g, describe_key(d, "logit_scale"), &logit, d->e));
    if (embd != 0.0f) m->embd_scale = embd;
    if (residual != 0.0f) m->residual_scale = residual;
    if (attn != 0.0f) m->attn_scale = attn;
    if (logit != 0.0f) m->logit_scale = 1.0f / logit;
    return SLUICE_OK;
}

/* ---- RoPE ------------------------------------------------------------------------------- */

static sluice_err rope_scaling(struct describe *d, struct sl_rope_config *c)
{
    struct sl_str type = SL_STR("linear"); /* what the format means where only a factor is given */
    TRY(sl_gguf_str(d->g, describe_key(d, "rope.scaling.type"), &type, d->e));
    float factor = 1.0f, attn = 1.0f, fast = 32.0f, slow = 1.0f, log_mul = 0.0f, ext = 1.0f;
    const char *suffix = sl_gguf_has(d->g, describe_key(d, "rope.scaling.factor"))
                             ? "rope.scaling.factor"
                             : "rope.scale_linear";
    if (sl_gguf_has(d->g, describe_key(d, suffix))) {
        TRY(sl_gguf_f32(d->g, d->key, &factor, d->e));
        if (factor == 0.0f) factor = 1.0f; /* written by converters for "none" */
        if (!(factor > 0.0f))
            return sl_fail(d->e, SLUICE_E_FORMAT, "%s: %s is %g, wanted a number above 0",
                           sl_gguf_path(d->g), d->key, (double)factor);
    }
    TRY(positive(d, "rope.scaling.attn_factor", &attn));
    TRY(positive(d, "rope.scaling.yarn_beta_fast", &fast));
    TRY(positive(d, "rope.scaling.yarn_beta_slow", &slow));
    TRY(sl_gguf_f32(d->g, describe_key(d, "rope.scaling.yarn_log_multiplier"), &log_mul, d->e));
    TRY(sl_gguf_f32(d->g, describe_key(d, "rope.scaling.yarn_ext_factor"), &ext, d->e));
    uint32_t original = d->m->n_ctx_train;
    TRY(sl_gguf_u32(d->g, describe_key(d, "rope.scaling.original_context_length"), &original,
                    d->e));
    char shown[64];
    if (sl_str_eq(type, "none")) {
        c->scaling = SL_ROPE_NONE;
    } else if (sl_str_eq(type, "linear")) {
        c->scaling = factor == 1.0f ? SL_ROPE_NONE : SL_ROPE_LINEAR;
    } else if (sl_str_eq(type, "yarn") && (ext == 1.0f || ext < 0.0f) && original > 0) {
        c->scaling = SL_ROPE_YARN;
    } else {
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: RoPE scaling '%s' (yarn_ext_factor %g, original_context_length %u) is "
                       "not supported; "
                       "this version knows none, linear, yarn",
                       sl_gguf_path(d->g), sl_str_show(type, shown, sizeof shown), (double)ext,
                       original);
    }
    c->factor = (double)factor;
    c->attn_factor = (double)attn;
    c->beta_fast = (double)fast;
    c->beta_slow = (double)slow;
    c->log_multiplier = (double)log_mul;
    c->original_ctx = original;
    return SLUICE_OK;
}

/* rope_freqs.weight is small and needed before weights are read, so it is read here. Some files
 * carry it per layer, all equal; the first is taken. */
static sluice_err rope_factors(struct describe *d, uint32_t n, const float **out)
{
    *out = NULL;
    const struct sl_gguf_tensor *t = describe_find(d, -1, "rope_freqs.weight");
    for (uint32_t l = 0; l < d->m->n_layers; l++) {
        const struct sl_gguf_tensor *u = describe_find(d, (int)l, "rope_freqs.weight");
        if (!t) t = u;
    }
    if (!t) return SLUICE_OK;
    if (t->type != SL_TYPE_F32 || t->dims[0] != n || t->bytes != n * sizeof(float))
        return describe_bad_shape(d, t, n, 1);
    float *f = sl_arena_alloc(&d->m->arena, n, sizeof *f);
    if (!f) return sl_fail(d->e, SLUICE_E_NOMEM, "no memory for RoPE factors");
    TRY(sl_file_read_at(sl_gguf_file(d->g, t->shard), t->offset, f, t->bytes, d->e));
    for (uint32_t i = 0; i < n; i++)
        if (!(f[i] > 0.0f) || !isfinite(f[i]))
            return sl_fail(d->e, SLUICE_E_FORMAT,
                           "%s: rope_freqs.weight[%u] is %g, wanted a number above 0",
                           sl_gguf_path(d->g), i, (double)f[i]);
    *out = f;
    return SLUICE_OK;
}

/* Radians that a pair may turn in one token: 1 unless factors are below 1. Beyond it, positions
 * leave the range in which sine and cosine are exact. */
#define ROPE_TURN_MAX 2.0

static sluice_err check_rope(struct describe *d)
{
    const struct sl_rope *r = &d->m->rope;
    if (!(r->magnitude > 0.0) || !isfinite(r->magnitude))
        return sl_fail(
            d->e, SLUICE_E_FORMAT,
            "%s: the rope.scaling keys multiply rotations by %g, wanted a number above 0",
            sl_gguf_path(d->g), r->magnitude);
    for (uint32_t i = 0; i < r->n_rot / 2; i++)
        if (!(r->freq[i] >= 0.0 && r->freq[i] <= ROPE_TURN_MAX))
            return sl_fail(d->e, SLUICE_E_FORMAT,
                           "%s: RoPE pair %u turns by %g radians a token, wanted at most %g; see "
                           "the rope keys "
                           "and rope_freqs.weight",
                           sl_gguf_path(d->g), i, r->freq[i], ROPE_TURN_MAX);
    return SLUICE_OK;
}

static sluice_err rope(struct describe *d)
{
    struct sl_model *m = d->m;
    struct sl_rope_config c = {.n_rot = m->head_k};
    TRY(sl_gguf_u32(d->g, describe_key(d, "rope.dimension_count"), &c.n_rot, d->e));
    if (c.n_rot > m->head_k || c.n_rot % 2 != 0)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: %s is %u, wanted an even number up to the head size %u",
                       sl_gguf_path(d->g), d->key, c.n_rot, m->head_k);
    float base = 10000.0f;
    TRY(sl_gguf_f32(d->g, describe_key(d, "rope.freq_base"), &base, d->e));
    if (!(base > 1.0f)) /* frequencies must fall, and YaRN divides by its logarithm */
        return sl_fail(d->e, SLUICE_E_FORMAT, "%s: %s is %g, wanted a number above 1",
                       sl_gguf_path(d->g), d->key, (double)base);
    c.freq_base = (double)base;
    TRY(rope_scaling(d, &c));
    if (c.n_rot > 0) TRY(rope_factors(d, c.n_rot / 2, &c.factors));
    sluice_err err = sl_rope_init(&m->rope, &c, &m->arena);
    if (err != SLUICE_OK) return sl_fail(d->e, err, "no memory for RoPE frequencies");
    return check_rope(d);
}

/* ---- experts ---------------------------------------------------------------------------- */

static sluice_err router_numbers(struct describe *d)
{
    TRY(per_layer(d, "expert_count", 0, &d->n_experts));
    TRY(per_layer(d, "expert_used_count", 0, &d->top_k));
    uint32_t gating = 0, groups = 0;
    TRY(sl_gguf_u32(d->g, describe_key(d, "expert_group_count"), &groups, d->e));
    if (groups > 1)
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: %s is %u; choosing experts by groups is not supported",
                       sl_gguf_path(d->g), d->key, groups);
    TRY(sl_gguf_u32(d->g, describe_key(d, "expert_gating_func"), &gating, d->e));
    if (gating > SL_GATING_LAST)
        return sl_fail(
            d->e, SLUICE_E_UNSUPPORTED,
            "%s: %s is %u; this version knows 1 softmax, 2 sigmoid, 3 softmax of the chosen",
            sl_gguf_path(d->g), d->key, gating);
    d->gating = gating ? (enum sl_gating)gating : d->m->arch->gating;
    d->normalize = d->m->arch->normalize;
    TRY(sl_gguf_bool(d->g, describe_key(d, "expert_weights_norm"), &d->normalize, d->e));
    d->expert_scale = 1.0f;
    TRY(sl_gguf_f32(d->g, describe_key(d, "expert_weights_scale"), &d->expert_scale, d->e));
    if (d->expert_scale == 0.0f)
        d->expert_scale = 1.0f; /* 0 is how "none" is written; it must not zero the weights */
    return SLUICE_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */

/* The embedding table is bound only where it is the output matrix too: otherwise its rows are read
 * one by one while running. */
static sluice_err embeddings(struct describe *d)
{
    struct sl_model *m = d->m;
    const struct sl_gguf_tensor *t = describe_find(d, -1, "token_embd.weight");
    if (!t) return describe_missing(d, -1, "token_embd.weight");
    if (t->dims[0] != m->n_embd || t->dims[2] != 1 || t->dims[3] != 1)
        return describe_bad_shape(d, t, m->n_embd, t->dims[1]);
    if (t->dims[1] > SL_VOCAB_MAX)
        return sl_fail(d->e, SLUICE_E_LIMIT, "%s: %llu tokens, at most %u are supported",
                       sl_gguf_path(d->g), (unsigned long long)t->dims[1], SL_VOCAB_MAX);
    if (sl_type_row_group(t->type) > 1)
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: token_embd.weight is of type %s, which interleaves rows; it is read "
                       "row by row, so it must have one of GGUF's types",
                       sl_gguf_path(d->g), sl_type_name(t->type));
    m->embd_tensor = t;
    m->embd_index = (uint32_t)(t - sl_gguf_tensor(d->g, 0));
    m->n_vocab = (uint32_t)t->dims[1];
    m->token_embd = (struct sl_matrix){NULL, t->row_bytes, t->type, m->n_vocab, m->n_embd};
    TRY(describe_vector(d, -1, "output_norm.weight", m->n_embd, false, &m->output_norm));
    TRY(describe_matrix(d, -1, "output.weight", (struct describe_size){m->n_embd, m->n_vocab, true},
                        &m->output));
    m->tied = m->output.rows == 0;
    return m->tied ? describe_rows(d, t, 0, m->n_vocab, &m->output) : SLUICE_OK;
}

/* The layer that a tensor belongs to; UINT32_MAX: none. */
static uint32_t layer_of(struct sl_str name)
{
    if (!sl_str_starts(name, "blk.")) return UINT32_MAX;
    uint32_t layer = 0;
    size_t i = 4;
    while (i < name.n && i < 10 && name.p[i] >= '0' && name.p[i] <= '9')
        layer = layer * 10 + (uint32_t)(name.p[i++] - '0');
    return layer;
}

static sluice_err leftovers(struct describe *d)
{
    char name[SL_NAME_MAX];
    uint32_t n_prediction = 0; /* tensors of layers for multi-token prediction */
    for (uint32_t i = 0; i < sl_gguf_n_tensors(d->g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(d->g, i);
        uint64_t elements = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        d->m->n_params += elements;
        if (d->used[i]) continue;
        sl_str_show(t->name, name, sizeof name);
        uint32_t layer = layer_of(t->name);
        if (layer < d->m->n_layers) /* computing without it would be silently wrong */
            return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                           "%s: tensor %s is not part of architecture %s as this version computes "
                           "it; the answers "
                           "would be wrong without it",
                           sl_gguf_path(d->g), name, d->m->arch->name);
        if (layer < d->m->n_layers + d->nextn)
            n_prediction++;
        else
            sl_log_line(d->log, SL_LOG_WARN, "tensor %s is not used", name);
    }
    if (n_prediction)
        sl_log_line(d->log, SL_LOG_INFO,
                    "%u layers for multi-token prediction (%u tensors) are not run and not read",
                    d->nextn, n_prediction);
    return SLUICE_OK;
}

static sluice_err describe_all(struct describe *d)
{
    struct sl_model *m = d->m;
    TRY(find_arch(d));
    TRY(model_sizes(d));
    TRY(attention_numbers(d));
    TRY(scales(d));
    TRY(rope(d));
    TRY(router_numbers(d));
    m->layers = sl_arena_alloc(&m->arena, m->n_layers, sizeof *m->layers);
    m->sources = sl_arena_alloc(&m->arena, m->n_layers, sizeof *m->sources);
    if (!m->layers || !m->sources)
        return sl_fail(d->e, SLUICE_E_NOMEM, "no memory for the layer table");
    TRY(embeddings(d));
    for (uint32_t l = 0; l < m->n_layers; l++) TRY(describe_layer(d, l));
    return leftovers(d);
}

sluice_err sl_model_describe(struct sl_model *m, const struct sl_gguf *g, struct sl_budget *b,
                             const struct sl_log *log, sluice_error *e)
{
    sl_arena_init(&m->arena, b, 64 << 10);
    m->gguf = g;
    struct describe d = {.m = m, .g = g, .budget = b, .log = log, .e = e};
    d.used = sl_alloc(b, sl_gguf_n_tensors(g), 1);
    if (!d.used) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the tensor list");
    sluice_err err = describe_all(&d);
    sl_free(d.used);
    return err;
}
