/* Matrix times vectors for the container's own weight types, for NEON without and with its dot
 * product: the body of matmul_sq_neon.c and matmul_sq_dotprod.c, which define the same functions
 * with other instructions behind dot_quads.
 *
 * A quad (codes_sq_neon.h) meets the same four activation codes in every lane, so that a lane is a
 * row from the first product on. Half a unit's levels are used for several activations before the
 * next ones are unpacked. */
#ifndef SL_MATMUL_SQ_NEON_H
#define SL_MATMUL_SQ_NEON_H

#include "engine/kernels/codes_sq_neon.h"
#include "engine/kernels/kernel_variants.h"

#define TOKENS 8 /* activations per pass over a band */

/* Four quads times their 16 codes, a lane per row. */
#if defined(__ARM_FEATURE_DOTPROD)
SL_INLINE int32x4_t dot_quads(const int8x16_t *level, int8x16_t q)
{
    int32x4_t sum = vdotq_laneq_s32(vdupq_n_s32(0), level[0], q, 0);
    sum = vdotq_laneq_s32(sum, level[1], q, 1);
    sum = vdotq_laneq_s32(sum, level[2], q, 2);
    return vdotq_laneq_s32(sum, level[3], q, 3);
}
#else
/* Four products add up in 16 bits: at most 63 * 127 * 4 = 32,004. */
SL_INLINE int32x4_t dot_quads(const int8x16_t *level, int8x16_t q)
{
    int32x4_t lanes = vreinterpretq_s32_s8(q);
    int8x16_t x[4] = {vreinterpretq_s8_s32(vdupq_laneq_s32(lanes, 0)),
                      vreinterpretq_s8_s32(vdupq_laneq_s32(lanes, 1)),
                      vreinterpretq_s8_s32(vdupq_laneq_s32(lanes, 2)),
                      vreinterpretq_s8_s32(vdupq_laneq_s32(lanes, 3))};
    int16x8_t low = vmull_s8(vget_low_s8(level[0]), vget_low_s8(x[0]));
    int16x8_t high = vmull_high_s8(level[0], x[0]);
    for (int i = 1; i < 4; i++) {
        low = vmlal_s8(low, vget_low_s8(level[i]), vget_low_s8(x[i]));
        high = vmlal_high_s8(high, level[i], x[i]);
    }
    return vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
}
#endif

/* Half a unit times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE float32x4_t add_digit(const struct layout l, const struct half_unit *u,
                                struct sl_k_digit x, uint64_t b, float32x4_t acc)
{
    int32x4_t first = dot_quads(u->level, vld1q_s8(x.q + 32 * b));
    int32x4_t second = dot_quads(u->level + 4, vld1q_s8(x.q + 32 * b + 16));
    int32_t s0 = x.sums[2 * b], s1 = x.sums[2 * b + 1];
    int32x4_t isum;
    if (l.group == 32) {
        isum = vmlsq_n_s32(vaddq_s32(first, second), u->offset[0], s0 + s1);
        isum = vmulq_s32(isum, u->m[0]);
    } else {
        isum = vmulq_s32(vmlsq_n_s32(first, u->offset[0], s0), u->m[0]);
        isum = vmlaq_s32(isum, vmlsq_n_s32(second, u->offset[1], s1), u->m[1]);
    }
    return vfmaq_n_f32(acc, vcvtq_f32_s32(isum), x.d[b]);
}

/* Activations of one pass; second: some may have a second digit. n is a constant 1 or at most
 * TOKENS, second a constant. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    bool second;
};

/* acc[i]: rows 0 to 3 and 4 to 7 of the band times activation i. */
SL_INLINE void band_times(const struct layout l, const struct sl_k_matmul *m,
                          const struct tables *t, const uint8_t *band, const struct pass p,
                          float32x4_t acc[][2])
{
    const uint32_t scales_at = l.bits * 32, unit_bytes = scales_at + (l.group == 16 ? 16 : 8);
    const uint8_t *unit = band + SL_SQ_ROW_SCALE_BYTES;
    for (uint32_t i = 0; i < p.n; i++) acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    for (uint64_t b = 0; b < m->cols / SL_SQ_UNIT_COLS; b++, unit += unit_bytes) {
        struct scales s = unpack_scales(l, unit + scales_at);
        for (int half = 0; half < 2; half++) {
            struct half_unit u = unpack_half(l, unit, &s, t, half);
            for (uint32_t i = 0; i < p.n; i++) {
                const struct sl_k_act *x = &p.x[i];
                struct sl_k_digit first = {x->q, x->d, x->sums};
                float32x4_t *a = &acc[i][half];
                *a = add_digit(l, &u, first, b, *a);
                if (p.second && has_second(x, b)) *a = add_digit(l, &u, x->second, b, *a);
            }
        }
    }
    for (uint32_t i = 0; i < p.n; i++)
        for (int half = 0; half < 2; half++)
            acc[i][half] = vmulq_f32(row_scales(band, half), acc[i][half]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % SL_SQ_UNIT_COLS == 0);
    struct tables t = make_tables(l.bits, levels);
    float32x4_t acc[TOKENS][2];
    for (uint32_t r = 0; r < m->rows; r += SL_SQ_BAND_ROWS) {
        const uint8_t *band = (const uint8_t *)m->w + r * m->row_bytes;
        uint32_t rows = m->rows - r < SL_SQ_BAND_ROWS ? m->rows - r : SL_SQ_BAND_ROWS;
        for (uint32_t first = 0; first < m->n_tokens; first += TOKENS) {
            uint32_t n = m->n_tokens - first < TOKENS ? m->n_tokens - first : TOKENS;
            const struct sl_k_act *x = m->x + first;
            bool second = any_second(x, n);
            if (n == 1 && second)
                band_times(l, m, &t, band, (struct pass){x, 1, true}, acc);
            else if (n == 1)
                band_times(l, m, &t, band, (struct pass){x, 1, false}, acc);
            else if (second)
                band_times(l, m, &t, band, (struct pass){x, n, true}, acc);
            else
                band_times(l, m, &t, band, (struct pass){x, n, false}, acc);
            for (uint32_t i = 0; i < n; i++) {
                float *y = m->y + (first + i) * m->y_stride + r;
                store_lanes(y, acc[i][0], rows < 4 ? rows : 4);
                if (rows > 4) store_lanes(y + 4, acc[i][1], rows - 4);
            }
        }
    }
}

#define MATMUL(name, type, ...)                                                                    \
    void SL_NEON_NAME(sl_k_matmul_##name)(const struct sl_k_matmul *m)                             \
    {                                                                                              \
        matmul((struct layout){__VA_ARGS__}, m, sl_sq_info(type)->levels);                         \
    }

SL_FOR_TYPES_SQ(MATMUL)

#endif
