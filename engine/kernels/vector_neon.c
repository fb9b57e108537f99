/* Float vector helpers, for NEON. What is left of a vector after its last four or eight elements is
 * done one by one; sums keep their eight lanes in memory for that. */
#include "base/mathfn.h"
#include "base/mathfn_steps.h"
#include "engine/kernels/exp_neon.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_neon.h"

float sl_k_dot_f32__neon(const float *a, const float *b, uint32_t n)
{
    float32x4_t low = vdupq_n_f32(0.0f), high = low;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        low = vfmaq_f32(low, vld1q_f32(a + i), vld1q_f32(b + i));
        high = vfmaq_f32(high, vld1q_f32(a + i + 4), vld1q_f32(b + i + 4));
    }
    if (i == n) return sum_lanes(low, high);
    float lanes[8];
    vst1q_f32(lanes, low);
    vst1q_f32(lanes + 4, high);
    for (uint32_t lane = 0; i < n; i++, lane++) lanes[lane] = fmaf(a[i], b[i], lanes[lane]);
    return sum_lanes(vld1q_f32(lanes), vld1q_f32(lanes + 4));
}

void sl_k_rms_norm__neon(const float *x, const float *w, uint32_t n, float eps, float *y)
{
    float mean = sl_k_dot_f32__neon(x, x, n) / (float)n;
    float s = 1.0f / sqrtf(mean + eps);
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t v = vmulq_n_f32(vld1q_f32(x + i), s);
        if (w != NULL) v = vmulq_f32(v, vld1q_f32(w + i));
        vst1q_f32(y + i, v);
    }
    for (; i < n; i++) {
        float v = x[i] * s;
        y[i] = w != NULL ? v * w[i] : v;
    }
}

void sl_k_axpy__neon(float a, const float *x, uint32_t n, float *y)
{
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), a));
    for (; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

void sl_k_add__neon(const float *x, uint32_t n, float *y)
{
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
    for (; i < n; i++) y[i] = y[i] + x[i];
}

void sl_k_scale__neon(float a, uint32_t n, float *y)
{
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vmulq_n_f32(vld1q_f32(y + i), a));
    for (; i < n; i++) y[i] = y[i] * a;
}

void sl_k_silu_mul__neon(const float *g, const float *u, uint32_t n, float *y)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t g4 = vld1q_f32(g + i);
        float32x4_t sigmoid = vdivq_f32(one, vaddq_f32(one, exp4(vnegq_f32(g4))));
        vst1q_f32(y + i, vmulq_f32(vmulq_f32(g4, sigmoid), vld1q_f32(u + i)));
    }
    for (; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + sl_expf_steps(-g[i]));
        float silu = g[i] * sigmoid;
        y[i] = silu * u[i];
    }
}

float sl_k_exp_sum__neon(float *x, uint32_t n, float max)
{
    float32x4_t low = vdupq_n_f32(0.0f), high = low, max4 = vdupq_n_f32(max);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        float32x4_t a = exp4(vsubq_f32(vld1q_f32(x + i), max4));
        float32x4_t b = exp4(vsubq_f32(vld1q_f32(x + i + 4), max4));
        vst1q_f32(x + i, a);
        vst1q_f32(x + i + 4, b);
        low = vaddq_f32(low, a);
        high = vaddq_f32(high, b);
    }
    float lanes[8];
    vst1q_f32(lanes, low);
    vst1q_f32(lanes + 4, high);
    for (uint32_t lane = 0; i < n; i++, lane++) {
        x[i] = sl_expf_steps(x[i] - max);
        lanes[lane] = lanes[lane] + x[i];
    }
    return sum_lanes(vld1q_f32(lanes), vld1q_f32(lanes + 4));
}

float sl_k_max_f32__neon(const float *x, uint32_t n)
{
    float max = x[0];
    uint32_t i = 0;
    if (n >= 4) {
        float32x4_t max4 = vld1q_f32(x);
        for (; i + 4 <= n; i += 4) max4 = vmaxq_f32(max4, vld1q_f32(x + i));
        max = vmaxvq_f32(max4);
    }
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max + 0.0f;
}

/* ---- rope ------------------------------------------------------------------------------------ */

SL_INLINE void rotate(float *a, float *b, float c, float s)
{
    float bs = *b * s, bc = *b * c, a_old = *a;
    *a = fmaf(a_old, c, -bs);
    *b = fmaf(a_old, s, bc);
}

/* Four pairs: x.val[0] first members, x.val[1] second ones, cs likewise cosines and sines. */
SL_INLINE float32x4x2_t rotate4(float32x4x2_t x, float32x4x2_t cs)
{
    float32x4_t minus_bs = vnegq_f32(vmulq_f32(x.val[1], cs.val[1]));
    float32x4_t bc = vmulq_f32(x.val[1], cs.val[0]);
    float32x4x2_t y = {
        {vfmaq_f32(minus_bs, x.val[0], cs.val[0]), vfmaq_f32(bc, x.val[0], cs.val[1])}};
    return y;
}

static void rope_halves(float *x, const float *cs, uint32_t half)
{
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4) {
        float32x4x2_t pair = {{vld1q_f32(x + i), vld1q_f32(x + half + i)}};
        pair = rotate4(pair, vld2q_f32(cs + 2 * i));
        vst1q_f32(x + i, pair.val[0]);
        vst1q_f32(x + half + i, pair.val[1]);
    }
    for (; i < half; i++) rotate(x + i, x + half + i, cs[2 * i], cs[2 * i + 1]);
}

static void rope_neighbours(float *x, const float *cs, uint32_t half)
{
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4)
        vst2q_f32(x + 2 * i, rotate4(vld2q_f32(x + 2 * i), vld2q_f32(cs + 2 * i)));
    for (; i < half; i++) rotate(x + 2 * i, x + 2 * i + 1, cs[2 * i], cs[2 * i + 1]);
}

void sl_k_rope__neon(float *x, const float *cs, uint32_t n_rot, bool neox)
{
    if (neox)
        rope_halves(x, cs, n_rot / 2);
    else
        rope_neighbours(x, cs, n_rot / 2);
}
