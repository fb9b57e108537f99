/* Small pieces that the NEON kernels share. A tile is four rows: whatever is computed for them ends
 * up in one vector, a lane per row, so that the float arithmetic of every row runs in the same
 * order as in the scalar definition.
 *
 * The same source serves several sets of instructions: what a file is compiled for decides how
 * products of bytes are summed (dot16, dot32), and SL_NEON_NAME how its functions end. */
#ifndef SL_SIMD_NEON_H
#define SL_SIMD_NEON_H

#ifndef __ARM_NEON
#error "NEON is missing"
#endif

#include <arm_neon.h>

#include "engine/kernels/kernels.h"
#include "formats/half.h"

#if defined(__ARM_FEATURE_DOTPROD)
#define SL_NEON_NAME(name) name##__dotprod
#else
#define SL_NEON_NAME(name) name##__neon
#endif

/* The templates take a kernel's properties as constant arguments; without inlining they would be
 * slow, never wrong. */
#define SL_INLINE static inline __attribute__((always_inline))

#define TILE_ROWS 4

/* Rows of the tile at hand; beyond the last row of the matrix the last one is repeated. */
struct tile {
    const uint8_t *row[TILE_ROWS];
    uint32_t n; /* rows that count, 1..4 */
};

SL_INLINE struct tile tile_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct tile t;
    t.n = m->rows - first < TILE_ROWS ? m->rows - first : TILE_ROWS;
    for (uint32_t i = 0; i < TILE_ROWS; i++) {
        uint32_t r = i < t.n ? first + i : m->rows - 1;
        t.row[i] = (const uint8_t *)m->w + r * m->row_bytes;
    }
    return t;
}

/* Whether any of n activations has a second digit: kernels are made twice, with and without the
 * question for every block. */
SL_INLINE bool any_second(const struct sl_k_act *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x[i].second.d != NULL) return true;
    return false;
}

SL_INLINE bool has_second(const struct sl_k_act *x, uint64_t b)
{
    return x->second.d != NULL && x->second.d[b] != 0.0f;
}

/* Writes the first n lanes. */
SL_INLINE void store_lanes(float *y, float32x4_t v, uint32_t n)
{
    if (n == 4) {
        vst1q_f32(y, v);
        return;
    }
    float lanes[4];
    vst1q_f32(lanes, v);
    for (uint32_t i = 0; i < n; i++) y[i] = lanes[i];
}

SL_INLINE float half_to_float(uint16_t h)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

/* The half-precision numbers at byte offset at of each row, as floats. */
SL_INLINE float32x4_t load_halves(const uint8_t *const row[TILE_ROWS], uint64_t at)
{
    uint16x4_t h = vdup_n_u16(sl_load_u16(row[0] + at));
    h = vset_lane_u16(sl_load_u16(row[1] + at), h, 1);
    h = vset_lane_u16(sl_load_u16(row[2] + at), h, 2);
    h = vset_lane_u16(sl_load_u16(row[3] + at), h, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

/* sum of eight lanes in the order of kernels.h; a: lanes 0 to 3, b: 4 to 7 */
SL_INLINE float sum_lanes(float32x4_t a, float32x4_t b)
{
    float32x4_t four = vaddq_f32(a, b);
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Sums of four lanes each: lane r of the result is v[r]. */
SL_INLINE int32x4_t reduce_rows(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

/* Bytes shifted by a number that need not be a literal. */
SL_INLINE uint8x16_t shift_right(uint8x16_t v, int n)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)-n));
}

/* ---- products of weight codes and activation codes ------------------------------------------- */

/* Sums of 16 products, and of 32, spread over four lanes. Weights are any bytes; activations are
 * -127..127, so that two products add up in 16 bits: at most 128 * 127 * 2 = 32,512. small: weights
 * are 0..63, and four do: 63 * 127 * 4 = 32,004. */
#if defined(__ARM_FEATURE_DOTPROD)
SL_INLINE int32x4_t dot16(int8x16_t w, int8x16_t x) { return vdotq_s32(vdupq_n_s32(0), w, x); }
SL_INLINE int32x4_t dot32(const int8x16_t w[2], const int8_t *x, bool small)
{
    (void)small;
    return vdotq_s32(dot16(w[0], vld1q_s8(x)), w[1], vld1q_s8(x + 16));
}
#else
SL_INLINE int16x8_t product_pairs(int8x16_t w, int8x16_t x)
{
    return vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x);
}
SL_INLINE int32x4_t dot16(int8x16_t w, int8x16_t x) { return vpaddlq_s16(product_pairs(w, x)); }
SL_INLINE int32x4_t dot32(const int8x16_t w[2], const int8_t *x, bool small)
{
    int8x16_t x0 = vld1q_s8(x), x1 = vld1q_s8(x + 16);
    int16x8_t p = product_pairs(w[0], x0);
    if (!small) return vpadalq_s16(vpaddlq_s16(p), product_pairs(w[1], x1));
    p = vmlal_s8(p, vget_low_s8(w[1]), vget_low_s8(x1));
    return vpaddlq_s16(vmlal_high_s8(p, w[1], x1));
}
#endif

#endif
