/* Matrix times vectors for float weights (F32, F16, BF16), for NEON: the 32 striped lanes are eight
 * vectors, which is as many as fused multiply-adds are in flight. A row goes with two activations
 * where there are two. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_neon.h"

/* Eight weights, and one. */
typedef float32x4x2_t load8_fn(const uint8_t *p);
typedef float load1_fn(const uint8_t *p);

/* How weights become floats. */
struct layout {
    load8_fn *load8;
    load1_fn *load1;
    uint32_t bytes; /* of a weight */
};

SL_INLINE float32x4x2_t load8_f32(const uint8_t *p)
{
    float32x4x2_t w = {{vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))}};
    return w;
}

SL_INLINE float32x4x2_t load8_f16(const uint8_t *p)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
    float32x4x2_t w = {{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
    return w;
}

SL_INLINE float32x4x2_t load8_bf16(const uint8_t *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
    float32x4x2_t w = {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                        vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))}};
    return w;
}

SL_INLINE float load1_f32(const uint8_t *p) { return sl_f32_from_bits(sl_load_u32(p)); }
SL_INLINE float load1_f16(const uint8_t *p) { return half_to_float(sl_load_u16(p)); }
SL_INLINE float load1_bf16(const uint8_t *p) { return sl_bf16_to_f32(sl_load_u16(p)); }

#define LANES 32
#define TOKENS 2 /* activations at a time */

/* The lanes of one row and one activation. */
struct lanes {
    float32x4_t v[LANES / 4];
};

/* Adds the last n products, fewer than 32, and returns the sum of the lanes. */
SL_INLINE float finish(const struct layout l, const uint8_t *row, const float *x, uint32_t n,
                       struct lanes acc)
{
    if (n > 0) {
        float lanes[LANES];
        for (int i = 0; i < 8; i++) vst1q_f32(lanes + 4 * i, acc.v[i]);
        for (uint32_t i = 0; i < n; i++)
            lanes[i] = __builtin_fmaf(l.load1(row + i * l.bytes), x[i], lanes[i]);
        for (int i = 0; i < 8; i++) acc.v[i] = vld1q_f32(lanes + 4 * i);
    }
    for (int i = 0; i < 4; i++) acc.v[i] = vaddq_f32(acc.v[i], acc.v[i + 4]);
    return sum_lanes(vaddq_f32(acc.v[0], acc.v[2]), vaddq_f32(acc.v[1], acc.v[3]));
}

/* A row times n_x activations, a constant. */
SL_INLINE void row_times(const struct layout l, const uint8_t *row, uint32_t cols,
                         const struct sl_k_act *x, uint32_t n_x, float y[TOKENS])
{
    struct lanes acc[TOKENS];
    uint32_t c = 0;
    for (uint32_t i = 0; i < n_x; i++)
        for (int k = 0; k < 8; k++) acc[i].v[k] = vdupq_n_f32(0.0f);
    for (; c + LANES <= cols; c += LANES)
        for (int k = 0; k < 8; k += 2) {
            float32x4x2_t w = l.load8(row + (uint64_t)(c + 4 * k) * l.bytes);
            for (uint32_t i = 0; i < n_x; i++) {
                const float *xi = x[i].f + c + 4 * k;
                acc[i].v[k] = vfmaq_f32(acc[i].v[k], w.val[0], vld1q_f32(xi));
                acc[i].v[k + 1] = vfmaq_f32(acc[i].v[k + 1], w.val[1], vld1q_f32(xi + 4));
            }
        }
    for (uint32_t i = 0; i < n_x; i++)
        y[i] = finish(l, row + (uint64_t)c * l.bytes, x[i].f + c, cols - c, acc[i]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    for (uint32_t r = 0; r < m->rows; r++) {
        const uint8_t *row = (const uint8_t *)m->w + r * m->row_bytes;
        float y[TOKENS];
        uint32_t i = 0;
        for (; i + 2 <= m->n_tokens; i += 2) {
            row_times(l, row, m->cols, m->x + i, 2, y);
            m->y[i * m->y_stride + r] = y[0];
            m->y[(i + 1) * m->y_stride + r] = y[1];
        }
        if (i == m->n_tokens) continue;
        row_times(l, row, m->cols, m->x + i, 1, y);
        m->y[i * m->y_stride + r] = y[0];
    }
}

void sl_k_matmul_f32__neon(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f32, load1_f32, 4}, m);
}

void sl_k_matmul_f16__neon(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f16, load1_f16, 2}, m);
}

void sl_k_matmul_bf16__neon(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_bf16, load1_bf16, 2}, m);
}
