/* The KV cache's arithmetic: storing a position, scores of a query against keys, weighted sums of
 * values. The definition. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/lanes_scalar.h"
#include "engine/kernels/round_scalar.h"

static uint32_t groups_of(uint32_t head_dim) { return (head_dim + SL_KV_GROUP - 1) / SL_KV_GROUP; }

/* ---- storing ---------------------------------------------------------------------------- */

bool sl_k_store_kv_f32__scalar(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    float max;
    (void)scales;
    memcpy(data, x, (uint64_t)head_dim * sizeof *x);
    return max_abs(x, head_dim, &max);
}

static bool half_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

bool sl_k_store_kv_f16__scalar(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    uint16_t *out = data;
    bool finite = true;
    (void)scales;
    for (uint32_t i = 0; i < head_dim; i++) {
        out[i] = sl_f32_to_f16(x[i]);
        finite = finite && half_is_finite(out[i]);
    }
    return finite;
}

/* A quotient is at most 127 * 1.5 before it is clamped: the rounding of the scale to half errs
 * most, by a third, between zero and the smallest denormal. */
bool sl_k_store_kv_q8__scalar(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    int8_t *out = data;
    for (uint32_t start = 0; start < head_dim; start += SL_KV_GROUP) {
        uint32_t n = head_dim - start < SL_KV_GROUP ? head_dim - start : SL_KV_GROUP;
        float max;
        if (!max_abs(x + start, n, &max)) return false;
        uint16_t half = sl_f32_to_f16(max / 127.0f);
        if (!half_is_finite(half)) return false;
        scales[start / SL_KV_GROUP] = half;
        float scale = sl_f16_to_f32(half);
        for (uint32_t i = start; i < start + n; i++)
            out[i] = half == 0 ? 0 : (int8_t)clamp_int(round_even(x[i] / scale), 127);
    }
    return true;
}

/* ---- scores ----------------------------------------------------------------------------- */

static void scores_f32(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                       float *scores)
{
    const float *key = keys->data;
    for (uint32_t j = 0; j < keys->n; j++, key += keys->head_dim) {
        float lanes[WIDE_LANES] = {0};
        for (uint32_t i = 0; i < keys->head_dim; i++)
            lanes[i % WIDE_LANES] = fmaf(query->f[i], key[i], lanes[i % WIDE_LANES]);
        scores[j] = scale * wide_lanes_sum(lanes);
    }
}

static void scores_f16(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                       float *scores)
{
    const uint16_t *key = keys->data;
    for (uint32_t j = 0; j < keys->n; j++, key += keys->head_dim) {
        float lanes[WIDE_LANES] = {0};
        for (uint32_t i = 0; i < keys->head_dim; i++)
            lanes[i % WIDE_LANES] = fmaf(query->f[i], sl_f16_to_f32(key[i]), lanes[i % WIDE_LANES]);
        scores[j] = scale * wide_lanes_sum(lanes);
    }
}

/* A group's sum is at most 32767 * 128 * 32 = 134,213,632. */
static void scores_q8(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                      float *scores)
{
    uint32_t dim = keys->head_dim;
    uint32_t groups = groups_of(dim);
    const int8_t *key = keys->data;
    for (uint32_t j = 0; j < keys->n; j++, key += dim) {
        float acc = 0.0f;
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t end = (g + 1) * SL_KV_GROUP < dim ? (g + 1) * SL_KV_GROUP : dim;
            int32_t isum = 0;
            for (uint32_t i = g * SL_KV_GROUP; i < end; i++) isum += query->q[i] * key[i];
            float k_scale = sl_f16_to_f32(keys->scales[(uint64_t)j * groups + g]);
            acc = fmaf(query->d[g] * k_scale, (float)isum, acc);
        }
        scores[j] = scale * acc;
    }
}

/* ---- values ----------------------------------------------------------------------------- */

static void values_f32(const float *p, const struct sl_k_kv *values, float *acc)
{
    const float *v = values->data;
    for (uint32_t j = 0; j < values->n; j++, v += values->head_dim)
        for (uint32_t i = 0; i < values->head_dim; i++) acc[i] = fmaf(p[j], v[i], acc[i]);
}

static void values_f16(const float *p, const struct sl_k_kv *values, float *acc)
{
    const uint16_t *v = values->data;
    for (uint32_t j = 0; j < values->n; j++, v += values->head_dim)
        for (uint32_t i = 0; i < values->head_dim; i++)
            acc[i] = fmaf(p[j], sl_f16_to_f32(v[i]), acc[i]);
}

static void values_q8(const float *p, const struct sl_k_kv *values, float *acc)
{
    uint32_t groups = groups_of(values->head_dim);
    const int8_t *v = values->data;
    const uint16_t *scales = values->scales;
    for (uint32_t j = 0; j < values->n; j++, v += values->head_dim, scales += groups)
        for (uint32_t i = 0; i < values->head_dim; i++) {
            float weight = p[j] * sl_f16_to_f32(scales[i / SL_KV_GROUP]);
            acc[i] = fmaf(weight, (float)v[i], acc[i]);
        }
}

/* ---- several heads ----------------------------------------------------------------------------
 */

#define HEADS(type)                                                                                \
    void sl_k_attn_scores_##type##__scalar(const struct sl_k_query *queries, uint32_t n,           \
                                           const struct sl_k_kv *keys, float scale, float *scores) \
    {                                                                                              \
        for (uint32_t h = 0; h < n; h++)                                                           \
            scores_##type(&queries[h], keys, scale, scores + (uint64_t)h * keys->n);               \
    }                                                                                              \
    void sl_k_attn_values_##type##__scalar(const float *p, uint32_t n,                             \
                                           const struct sl_k_kv *values, float *acc)               \
    {                                                                                              \
        for (uint32_t h = 0; h < n; h++)                                                           \
            values_##type(p + (uint64_t)h * values->n, values,                                     \
                          acc + (uint64_t)h * values->head_dim);                                   \
    }

HEADS(f32)
HEADS(f16)
HEADS(q8)
