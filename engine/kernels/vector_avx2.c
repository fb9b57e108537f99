/* Float vector helpers, for AVX2. What is left of a vector after its last eight elements is done
 * one by one; sums keep their eight lanes in memory for that. */
#include "base/mathfn.h"
#include "base/mathfn_steps.h"
#include "engine/kernels/exp_avx2.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"

float sl_k_dot_f32__avx2(const float *a, const float *b, uint32_t n)
{
    __m256 acc = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        acc = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), acc);
    if (i == n) return sum_lanes(acc);
    float lanes[8];
    _mm256_storeu_ps(lanes, acc);
    for (uint32_t lane = 0; i < n; i++, lane++) lanes[lane] = fmaf(a[i], b[i], lanes[lane]);
    return sum_lanes(_mm256_loadu_ps(lanes));
}

void sl_k_rms_norm__avx2(const float *x, const float *w, uint32_t n, float eps, float *y)
{
    float mean = sl_k_dot_f32__avx2(x, x, n) / (float)n;
    float s = 1.0f / sqrtf(mean + eps);
    __m256 s8 = _mm256_set1_ps(s);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), s8);
        if (w != NULL) v = _mm256_mul_ps(v, _mm256_loadu_ps(w + i));
        _mm256_storeu_ps(y + i, v);
    }
    for (; i < n; i++) {
        float v = x[i] * s;
        y[i] = w != NULL ? v * w[i] : v;
    }
}

void sl_k_axpy__avx2(float a, const float *x, uint32_t n, float *y)
{
    __m256 a8 = _mm256_set1_ps(a);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i,
                         _mm256_fmadd_ps(a8, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

void sl_k_add__avx2(const float *x, uint32_t n, float *y)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) y[i] = y[i] + x[i];
}

void sl_k_scale__avx2(float a, uint32_t n, float *y)
{
    __m256 a8 = _mm256_set1_ps(a);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(y + i), a8));
    for (; i < n; i++) y[i] = y[i] * a;
}

void sl_k_silu_mul__avx2(const float *g, const float *u, uint32_t n, float *y)
{
    const __m256 one = _mm256_set1_ps(1.0f), minus = _mm256_set1_ps(-0.0f);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 g8 = _mm256_loadu_ps(g + i);
        __m256 e = exp8(_mm256_xor_ps(g8, minus));
        __m256 silu = _mm256_mul_ps(g8, _mm256_div_ps(one, _mm256_add_ps(one, e)));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(silu, _mm256_loadu_ps(u + i)));
    }
    for (; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + sl_expf_steps(-g[i]));
        float silu = g[i] * sigmoid;
        y[i] = silu * u[i];
    }
}

float sl_k_exp_sum__avx2(float *x, uint32_t n, float max)
{
    __m256 acc = _mm256_setzero_ps(), max8 = _mm256_set1_ps(max);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), max8));
        _mm256_storeu_ps(x + i, e);
        acc = _mm256_add_ps(acc, e);
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, acc);
    for (uint32_t lane = 0; i < n; i++, lane++) {
        x[i] = sl_expf_steps(x[i] - max);
        lanes[lane] = lanes[lane] + x[i];
    }
    return sum_lanes(_mm256_loadu_ps(lanes));
}

float sl_k_max_f32__avx2(const float *x, uint32_t n)
{
    float max = x[0];
    uint32_t i = 0;
    if (n >= 8) {
        __m256 m = _mm256_loadu_ps(x);
        for (i = 8; i + 8 <= n; i += 8) m = _mm256_max_ps(m, _mm256_loadu_ps(x + i));
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
        __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        max = _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    }
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max + 0.0f;
}

/* One pair, as in the definition. */
SL_INLINE void rotate(float *a, float *b, float c, float s)
{
    float bs = *b * s, bc = *b * c, a_old = *a;
    *a = fmaf(a_old, c, -bs);
    *b = fmaf(a_old, s, bc);
}

static void rope_halves(float *x, const float *cs, uint32_t half)
{
    uint32_t i = 0;
    for (; i + 8 <= half; i += 8) {
        __m256 p = _mm256_loadu_ps(cs + 2 * i), q = _mm256_loadu_ps(cs + 2 * i + 8);
        __m256 low = _mm256_permute2f128_ps(p, q, 0x20), high = _mm256_permute2f128_ps(p, q, 0x31);
        __m256 c = _mm256_shuffle_ps(low, high, 0x88), s = _mm256_shuffle_ps(low, high, 0xdd);
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
    }
    for (; i < half; i++) rotate(x + i, x + half + i, cs[2 * i], cs[2 * i + 1]);
}

static void rope_neighbours(float *x, const float *cs, uint32_t half)
{
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4) {
        __m256 v = _mm256_loadu_ps(x + 2 * i), cos_sin = _mm256_loadu_ps(cs + 2 * i);
        __m256 sin_cos = _mm256_permute_ps(cos_sin, 0xb1);
        __m256 b = _mm256_mul_ps(_mm256_movehdup_ps(v), sin_cos);
        _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(_mm256_moveldup_ps(v), cos_sin, b));
    }
    for (; i < half; i++) rotate(x + 2 * i, x + 2 * i + 1, cs[2 * i], cs[2 * i + 1]);
}

void sl_k_rope__avx2(float *x, const float *cs, uint32_t n_rot, bool neox)
{
    if (neox)
        rope_halves(x, cs, n_rot / 2);
    else
        rope_neighbours(x, cs, n_rot / 2);
}
