/* Scores of queries against int8 keys, for ARM with dot products of bytes (SDOT).
 *
 * A query's 16-bit codes are taken as two bytes: code = 256 * high + low, the lower one without a
 * sign, so that it enters the product as low - 128 and 128 times the sum of the key's codes makes
 * up for it. That sum serves all queries. The sums of a group fit 32 bits, and what wraps on the
 * way there does no harm. */
#include "base/limits.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_neon.h"

#ifndef __ARM_FEATURE_DOTPROD
#error "compile with -march=armv8.2-a+dotprod"
#endif

/* 32 query codes: upper bytes, and lower ones less 128. */
struct query_group {
    int8x16_t high[2], low[2];
};

SL_INLINE struct query_group load_query(const int16_t *q)
{
    struct query_group g;
    for (int i = 0; i < 2; i++) {
        uint8x16x2_t bytes = vld2q_u8((const uint8_t *)(q + 16 * i));
        g.low[i] = vreinterpretq_s8_u8(veorq_u8(bytes.val[0], vdupq_n_u8(0x80)));
        g.high[i] = vreinterpretq_s8_u8(bytes.val[1]);
    }
    return g;
}

/* A group of four keys. */
struct key_group {
    int8x16_t k[TILE_ROWS][2];
    int32x4_t sum128[TILE_ROWS]; /* 128 times the sums of their codes, spread over four lanes */
    float32x4_t scale;
};

SL_INLINE struct key_group load_keys(const struct tile *t, const struct tile *scales, uint32_t g)
{
    const int8x16_t one = vdupq_n_s8(1);
    struct key_group out;
    for (int r = 0; r < TILE_ROWS; r++) {
        const int8_t *key = (const int8_t *)t->row[r] + (uint64_t)g * SL_KV_GROUP;
        for (int i = 0; i < 2; i++) out.k[r][i] = vld1q_s8(key + 16 * i);
        out.sum128[r] = vshlq_n_s32(vdotq_s32(dot16(out.k[r][0], one), out.k[r][1], one), 7);
    }
    out.scale = load_halves(scales->row, (uint64_t)g * sizeof(uint16_t));
    return out;
}

/* The products' sums for each of four keys. */
SL_INLINE int32x4_t dot_keys(const struct key_group *k, const struct query_group *q)
{
    int32x4_t v[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) {
        int32x4_t high = vdotq_s32(dot16(k->k[r][0], q->high[0]), k->k[r][1], q->high[1]);
        int32x4_t low = vdotq_s32(k->sum128[r], k->k[r][0], q->low[0]);
        low = vdotq_s32(low, k->k[r][1], q->low[1]);
        v[r] = vaddq_s32(low, vshlq_n_s32(high, 8));
    }
    return reduce_rows(v);
}

#define AT_ONCE 4 /* queries for which keys are loaded once */

/* Scores of four positions, a lane each; positions beyond the last repeat it. n: a constant. */
SL_INLINE void score(const struct sl_k_query *queries, uint32_t n, const struct tile *t,
                     const struct tile *scales, uint32_t groups, float32x4_t acc[AT_ONCE])
{
    for (uint32_t h = 0; h < n; h++) acc[h] = vdupq_n_f32(0.0f);
    for (uint32_t g = 0; g < groups; g++) {
        struct key_group k = load_keys(t, scales, g);
        for (uint32_t h = 0; h < n; h++) {
            struct query_group q = load_query(queries[h].q + (uint64_t)g * SL_KV_GROUP);
            float32x4_t d = vmulq_n_f32(k.scale, queries[h].d[g]);
            acc[h] = vfmaq_f32(acc[h], d, vcvtq_f32_s32(dot_keys(&k, &q)));
        }
    }
}

void sl_k_attn_scores_q8__dotprod(const struct sl_k_query *queries, uint32_t n,
                                  const struct sl_k_kv *keys, float scale, float *scores)
{
    uint32_t groups = keys->head_dim / SL_KV_GROUP;
    struct sl_k_matmul k = {.w = keys->data, .row_bytes = keys->head_dim, .rows = keys->n};
    struct sl_k_matmul s = {.w = keys->scales, .row_bytes = groups * 2, .rows = keys->n};
    if (keys->head_dim % SL_KV_GROUP != 0) {
        sl_k_attn_scores_q8__neon(queries, n, keys, scale, scores);
        return;
    }
    for (uint32_t j = 0; j < keys->n; j += TILE_ROWS) {
        struct tile t = tile_at(&k, j), scales = tile_at(&s, j);
        for (uint32_t h = 0; h < n;) {
            float32x4_t acc[AT_ONCE];
            uint32_t step = n - h >= AT_ONCE ? AT_ONCE : 1;
            if (step == AT_ONCE)
                score(queries + h, AT_ONCE, &t, &scales, groups, acc);
            else
                score(queries + h, 1, &t, &scales, groups, acc);
            for (uint32_t i = 0; i < step; i++)
                store_lanes(scores + (uint64_t)(h + i) * keys->n + j, vmulq_n_f32(acc[i], scale),
                            t.n);
            h += step;
        }
    }
}
