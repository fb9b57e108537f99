/* A gated DeltaNet layer described: what stands in the place of attention where a layer has ssm_*
 * tensors. The sizes come from metadata, once for all such layers, and every tensor must agree. */
#include "engine/describe.h"

#include "engine/kernels/kernels.h"

static sluice_err shape(struct describe *d)
{
    struct sl_delta_shape *s = &d->m->delta;
    uint32_t inner = 0;
    TRY(describe_u32(d, "ssm.conv_kernel", 2, SL_CONV_TAPS_MAX, &s->taps));
    TRY(describe_u32(d, "ssm.state_size", 1, SL_HEAD_DIM_MAX, &s->head_k));
    TRY(describe_u32(d, "ssm.group_count", 1, SL_HEADS_MAX, &s->n_k_heads));
    TRY(describe_u32(d, "ssm.time_step_rank", 1, SL_HEADS_MAX, &s->n_v_heads));
    TRY(describe_u32(d, "ssm.inner_size", 1, SL_HEADS_MAX * SL_HEAD_DIM_MAX, &inner));
    s->head_v = inner / s->n_v_heads;
    s->channels = 2 * s->n_k_heads * s->head_k + inner;
    if (s->n_v_heads % s->n_k_heads != 0 || inner % s->n_v_heads != 0)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: %u elements in %u value heads and %u key heads (%s); wanted a multiple "
                       "of the value heads, and these a multiple of the key heads",
                       sl_gguf_path(d->g), inner, s->n_v_heads, s->n_k_heads, d->key);
    if (s->head_v % SL_DELTA_COLS != 0 || s->head_v > SL_HEAD_DIM_MAX)
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: value heads of %u elements (%s over ssm.time_step_rank), wanted a "
                       "multiple of %u up to %u",
                       sl_gguf_path(d->g), s->head_v, d->key, SL_DELTA_COLS, SL_HEAD_DIM_MAX);
    return SLUICE_OK;
}

/* Beta and alpha in one tensor, or in one each. */
static sluice_err beta_alpha(struct describe *d, uint32_t l)
{
    struct sl_delta *y = &d->m->layers[l].delta;
    uint32_t n_embd = d->m->n_embd, heads = d->m->delta.n_v_heads;
    bool both = describe_find(d, (int)l, "ssm_ba.weight") != NULL;
    if (both)
        return describe_matrix(d, (int)l, "ssm_ba.weight",
                               (struct describe_size){n_embd, 2 * heads, false}, &y->ba[0]);
    TRY(describe_matrix(d, (int)l, "ssm_beta.weight", (struct describe_size){n_embd, heads, false},
                        &y->ba[0]));
    return describe_matrix(d, (int)l, "ssm_alpha.weight",
                           (struct describe_size){n_embd, heads, false}, &y->ba[1]);
}

/* One row of taps a channel. */
static sluice_err convolution(struct describe *d, uint32_t l)
{
    const struct sl_delta_shape *s = &d->m->delta;
    const struct sl_gguf_tensor *t = describe_find(d, (int)l, "ssm_conv1d.weight");
    if (!t) return describe_missing(d, (int)l, "ssm_conv1d.weight");
    if (t->dims[0] != s->taps || t->dims[1] != s->channels || t->dims[2] * t->dims[3] != 1)
        return describe_bad_shape(d, t, s->taps, s->channels);
    return describe_float_rows(d, t, &d->m->layers[l].delta.conv);
}

/* One tensor with the rows of each key head and its value heads together, as early files of
 * Qwen3-Next have it. */
static sluice_err by_head(struct describe *d, uint32_t l, const struct sl_gguf_tensor *t)
{
    const struct sl_delta_shape *s = &d->m->delta;
    struct sl_delta *y = &d->m->layers[l].delta;
    uint32_t values = s->n_v_heads / s->n_k_heads * s->head_v;
    const uint32_t rows[4] = {s->head_k, s->head_k, values, values};
    uint64_t sum = (uint64_t)s->n_k_heads * 2 * (s->head_k + values), at = 0;
    if (t->dims[0] != d->m->n_embd || t->dims[1] != sum || t->dims[2] * t->dims[3] != 1)
        return describe_bad_shape(d, t, d->m->n_embd, sum);
    y->by_head = sl_arena_alloc(&d->m->arena, s->n_k_heads, sizeof *y->by_head);
    if (!y->by_head) return sl_fail(d->e, SLUICE_E_NOMEM, "no memory for the list of heads");
    for (uint32_t i = 0; i < 4 * s->n_k_heads; at += rows[i % 4], i++)
        TRY(describe_rows(d, t, at, rows[i % 4], &y->by_head[i / 4][i % 4]));
    return SLUICE_OK;
}

static sluice_err projections(struct describe *d, uint32_t l)
{
    const struct sl_delta_shape *s = &d->m->delta;
    struct sl_delta *y = &d->m->layers[l].delta;
    const struct sl_gguf_tensor *t = describe_find(d, (int)l, "ssm_in.weight");
    if (t && d->m->arch->delta_heads == SL_DELTA_SIDE_BY_SIDE) return by_head(d, l, t);
    TRY(describe_matrix(d, (int)l, "attn_qkv.weight",
                        (struct describe_size){d->m->n_embd, s->channels, false}, &y->qkv));
    return describe_matrix(d, (int)l, "attn_gate.weight",
                           (struct describe_size){d->m->n_embd, s->n_v_heads * s->head_v, false},
                           &y->z);
}

sluice_err describe_deltanet(struct describe *d, uint32_t l)
{
    struct sl_model *m = d->m;
    struct sl_delta *y = &m->layers[l].delta;
    if (m->n_delta_layers == 0) TRY(shape(d));
    const struct sl_delta_shape *s = &m->delta;
    uint32_t n_embd = m->n_embd, values = s->n_v_heads * s->head_v;
    y->index = m->n_delta_layers++;
    TRY(projections(d, l));
    TRY(beta_alpha(d, l));
    TRY(convolution(d, l));
    TRY(describe_vector(d, (int)l, "ssm_a", s->n_v_heads, false, &y->a));
    TRY(describe_vector(d, (int)l, "ssm_dt.bias", s->n_v_heads, false, &y->dt));
    TRY(describe_vector(d, (int)l, "ssm_norm.weight", s->head_v, false, &y->norm));
    TRY(describe_matrix(d, (int)l, "ssm_out.weight", (struct describe_size){values, n_embd, false},
                        &y->out));
    if (s->channels > m->max_q_rows) m->max_q_rows = s->channels;
    if (values > m->max_o_cols) m->max_o_cols = values;
    return SLUICE_OK;
}
