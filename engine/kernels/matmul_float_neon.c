/* Matrix times vectors for float weights (F32, F16, BF16), for NEON: the eight striped lanes are
 * two vectors per row and activation. Several rows are in flight, since a fused multiply-add has to
 * wait for the one before it. */
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

#define TOKENS 2 /* activations at a time */

/* Adds the elements from c on, fewer than eight, to the lanes and returns their sum. */
SL_INLINE float finish(const struct layout l, const uint8_t *row, const float *x, uint32_t n,
                       float32x4x2_t acc)
{
    if (n == 0) return sum_lanes(acc.val[0], acc.val[1]);
    float lanes[8];
    vst1q_f32(lanes, acc.val[0]);
    vst1q_f32(lanes + 4, acc.val[1]);
    for (uint32_t i = 0; i < n; i++)
        lanes[i] = __builtin_fmaf(l.load1(row + (uint64_t)i * l.bytes), x[i], lanes[i]);
    return sum_lanes(vld1q_f32(lanes), vld1q_f32(lanes + 4));
}

/* A tile times n_x activations, a constant: y[i] gets a lane per row. */
SL_INLINE void tile_times(const struct layout l, uint32_t cols, const struct tile *t,
                          const struct sl_k_act *x, uint32_t n_x, float32x4_t y[TOKENS])
{
    float32x4x2_t acc[TOKENS][TILE_ROWS];
    float sums[TILE_ROWS];
    uint32_t c = 0;
    for (uint32_t i = 0; i < n_x; i++)
        for (uint32_t r = 0; r < TILE_ROWS; r++)
            acc[i][r].val[0] = acc[i][r].val[1] = vdupq_n_f32(0.0f);
    for (; c + 8 <= cols; c += 8)
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            float32x4x2_t w = l.load8(t->row[r] + (uint64_t)c * l.bytes);
            for (uint32_t i = 0; i < n_x; i++) {
                const float *xi = x[i].f + c;
                acc[i][r].val[0] = vfmaq_f32(acc[i][r].val[0], w.val[0], vld1q_f32(xi));
                acc[i][r].val[1] = vfmaq_f32(acc[i][r].val[1], w.val[1], vld1q_f32(xi + 4));
            }
        }
    for (uint32_t i = 0; i < n_x; i++) {
        for (uint32_t r = 0; r < TILE_ROWS; r++)
            sums[r] = finish(l, t->row[r] + (uint64_t)c * l.bytes, x[i].f + c, cols - c, acc[i][r]);
        y[i] = vld1q_f32(sums);
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    for (uint32_t first = 0; first < m->rows; first += TILE_ROWS) {
        struct tile t = tile_at(m, first);
        float32x4_t out[TOKENS];
        uint32_t i = 0;
        for (; i + 2 <= m->n_tokens; i += 2) {
            float *y = m->y + i * m->y_stride + first;
            tile_times(l, m->cols, &t, m->x + i, 2, out);
            store_lanes(y, out[0], t.n);
            store_lanes(y + m->y_stride, out[1], t.n);
        }
        if (i == m->n_tokens) continue;
        tile_times(l, m->cols, &t, m->x + i, 1, out);
        store_lanes(m->y + i * m->y_stride + first, out[0], t.n);
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
