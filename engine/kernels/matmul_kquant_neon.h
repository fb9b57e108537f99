/* Matrix times vectors for weights in blocks of 256, for NEON without and with its dot product: the
 * body of matmul_kquant_neon.c and matmul_kquant_dotprod.c, which define the same functions with
 * other instructions behind dot16 and dot32.
 *
 * Of a row's block, the sums of four groups (of 16 or 32 weights, whatever shares a scale) are
 * folded into a vector, multiplied by the four scales and collected. Where codes are unsigned by a
 * bias, a row begins with what the bias will have added, negative. Four rows are folded into one
 * vector at the end of the block, where the minima and the float scales come in, in the order of
 * the scalar definition. */
#ifndef SL_MATMUL_KQUANT_NEON_H
#define SL_MATMUL_KQUANT_NEON_H

#include "engine/kernels/codes256_neon.h"
#include "engine/kernels/kernel_variants.h"

#define TOKENS 4 /* activations per pass over a tile */

/* A block of one activation. */
struct x_block {
    const int8_t *q;
    float d;
    int16x8_t sums[2]; /* of 16 codes each */
    int16x8_t pairs;   /* of 32 */
};

/* What a tile's block yields before it is folded. */
struct partial {
    int32x4_t isum[TOKENS][TILE_ROWS], msum[TOKENS][TILE_ROWS];
};

SL_INLINE struct x_block load_x(struct sl_k_digit x, uint64_t b)
{
    struct x_block out = {.q = x.q + 256 * b, .d = x.d[b]};
    for (int i = 0; i < 2; i++) out.sums[i] = vld1q_s16(x.sums + 16 * b + 8 * i);
    out.pairs = vpaddq_s16(out.sums[0], out.sums[1]);
    return out;
}

/* Eight products, added up over four lanes. */
SL_INLINE int32x4_t add_products(int32x4_t sum, int16x8_t a, int16x8_t b)
{
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(a), vget_low_s16(b)), a, b);
}

SL_INLINE int32x4_t surplus(const struct layout l, const struct scales *s, const struct x_block *x)
{
    int32x4_t sum = add_products(vdupq_n_s32(0), s->scale[0], x->sums[0]);
    return vmulq_n_s32(add_products(sum, s->scale[1], x->sums[1]), -l.bias);
}

SL_INLINE int32x4_t minima(const struct layout l, const struct scales *s, const struct x_block *x)
{
    int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(s->min)));
    if (l.n_scales == 8) return add_products(vdupq_n_s32(0), low, x->pairs);
    int32x4_t sum = add_products(vdupq_n_s32(0), low, x->sums[0]);
    return add_products(sum, vreinterpretq_s16_u16(vmovl_high_u8(s->min)), x->sums[1]);
}

/* Sums of four groups, a lane each; c: their codes. */
SL_INLINE int32x4_t dot_groups(const struct layout l, const int8x16_t *c, const int8_t *q)
{
    int32x4_t sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = l.n_scales == 16 ? dot16(c[i], vld1q_s8(q + 16 * i))
                                  : dot32(c + 2 * i, q + 32 * i, !l.is_signed);
    return reduce_rows(sum);
}

/* Row r's block times n activations (a constant). */
SL_INLINE void row_times(const struct layout l, const uint8_t *block, const struct x_block *x,
                         uint32_t n, struct partial *out, uint32_t r)
{
    struct scales s = l.scales(block);
    int32x4_t isum[TOKENS];
    for (uint32_t t = 0; t < n; t++) isum[t] = l.bias != 0 ? surplus(l, &s, &x[t]) : vdupq_n_s32(0);
    const int groups = l.n_scales == 16 ? 2 : 4; /* of 32 codes, in four groups with a scale */
#ifndef __SANITIZE_ADDRESS__ /* there gcc 12 finds no loop to unroll, and complains */
#pragma GCC unroll 4
#endif
    for (int i = 0; i < 8 / groups; i++) {
        int8x16_t c[8];
        for (int g = 0; g < groups; g++) l.codes(block, groups * i + g, c + 2 * g);
        int16x8_t eight = s.scale[i / 2];
        int32x4_t scale = i % 2 == 0 ? vmovl_s16(vget_low_s16(eight)) : vmovl_high_s16(eight);
        for (uint32_t t = 0; t < n; t++)
            isum[t] = vmlaq_s32(isum[t], dot_groups(l, c, x[t].q + 32 * groups * i), scale);
    }
    for (uint32_t t = 0; t < n; t++) {
        out->isum[t][r] = isum[t];
        if (l.minima) out->msum[t][r] = minima(l, &s, &x[t]);
    }
}

/* Block b of a tile times that of n activations, a constant: added to acc. */
SL_INLINE void block_times(const struct layout l, const struct tile *t, uint64_t b,
                           const struct x_block *x, uint32_t n, float32x4_t *acc)
{
    struct partial p;
    uint64_t at = b * l.block_bytes;
    for (uint32_t r = 0; r < TILE_ROWS; r++) row_times(l, t->row[r] + at, x, n, &p, r);
    float32x4_t dw = load_halves(t->row, at + l.d_at);
    float32x4_t dmin = l.minima ? load_halves(t->row, at + l.dmin_at) : dw;
    for (uint32_t i = 0; i < n; i++) {
        float32x4_t isum = vcvtq_f32_s32(reduce_rows(p.isum[i]));
        acc[i] = vfmaq_f32(acc[i], vmulq_n_f32(dw, x[i].d), isum);
        if (!l.minima) continue;
        float32x4_t msum = vcvtq_f32_s32(reduce_rows(p.msum[i]));
        acc[i] = vfmsq_f32(acc[i], vmulq_n_f32(dmin, x[i].d), msum);
    }
}

/* Activations of one pass; second: some may have a second digit. n and second are constants. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    bool second;
};

/* Second digits are rare enough that unpacking the weights once more costs less than keeping every
 * activation's digits side by side. */
SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, const struct tile *t,
                          const struct pass p, float32x4_t *acc)
{
    struct x_block x[TOKENS];
    for (uint32_t i = 0; i < p.n; i++) acc[i] = vdupq_n_f32(0.0f);
    for (uint64_t b = 0; b < m->cols / 256; b++) {
        for (uint32_t i = 0; i < p.n; i++)
            x[i] = load_x((struct sl_k_digit){p.x[i].q, p.x[i].d, p.x[i].sums}, b);
        block_times(l, t, b, x, p.n, acc);
        if (!p.second) continue;
        for (uint32_t i = 0; i < p.n; i++) {
            if (!has_second(&p.x[i], b)) continue;
            x[0] = load_x(p.x[i].second, b);
            block_times(l, t, b, x, 1, &acc[i]);
        }
    }
}

/* The same for any n: constants, for the templates. */
SL_INLINE void tile_times_any(const struct layout l, const struct sl_k_matmul *m,
                              const struct tile *t, const struct pass p, float32x4_t *acc)
{
    switch (p.n) {
    case 1:
        tile_times(l, m, t, (struct pass){p.x, 1, p.second}, acc);
        break;
    case 2:
        tile_times(l, m, t, (struct pass){p.x, 2, p.second}, acc);
        break;
    case 3:
        tile_times(l, m, t, (struct pass){p.x, 3, p.second}, acc);
        break;
    default:
        tile_times(l, m, t, (struct pass){p.x, TOKENS, p.second}, acc);
        break;
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    float32x4_t acc[TOKENS];
    for (uint32_t r = 0; r < m->rows; r += TILE_ROWS) {
        struct tile t = tile_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += TOKENS) {
            const struct sl_k_act *x = m->x + first;
            uint32_t n = m->n_tokens - first < TOKENS ? m->n_tokens - first : TOKENS;
            if (any_second(x, n))
                tile_times_any(l, m, &t, (struct pass){x, n, true}, acc);
            else
                tile_times_any(l, m, &t, (struct pass){x, n, false}, acc);
            for (uint32_t i = 0; i < n; i++)
                store_lanes(m->y + (first + i) * m->y_stride + r, acc[i], t.n);
        }
    }
}

#define MATMUL(name, scales, bytes, ...)                                                           \
    void SL_NEON_NAME(sl_k_matmul_##name)(const struct sl_k_matmul *m)                             \
    {                                                                                              \
        matmul((struct layout){scales, codes_##name, bytes, __VA_ARGS__}, m);                      \
    }

SL_FOR_TYPES256(MATMUL)

#endif
