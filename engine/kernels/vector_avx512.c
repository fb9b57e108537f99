/* Float vector helpers, for AVX-512. Sums keep the eight lanes of kernels.h: a vector of sixteen is
 * added as its lower half, then its upper. */
#include "base/mathfn_steps.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx512.h"

/* The steps of base/mathfn_steps.h in sixteen lanes. Scaling by a power of two at once is the same
 * as in two steps, of which the first is exact. */
SL_INLINE __m512 exp16(__m512 x)
{
    const __m512 magic = _mm512_set1_ps(SL_EXPF_MAGIC), one = _mm512_set1_ps(1.0f);
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(SL_EXPF_LOG2E), magic), magic);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(SL_EXPF_LN2_HI), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(SL_EXPF_LN2_LO), r);
    __m512 p = _mm512_set1_ps(SL_EXPF_C6);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXPF_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXPF_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXPF_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXPF_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(SL_EXPF_HI), _CMP_GE_OQ);
    __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(SL_EXPF_LO), _CMP_NLT_UQ);
    __m512 y = _mm512_maskz_scalef_ps(kept, p, n);
    return _mm512_mask_mov_ps(y, above, _mm512_set1_ps(INFINITY));
}

void sl_k_silu_mul__avx512(const float *g, const float *u, uint32_t n, float *y)
{
    const __m512 one = _mm512_set1_ps(1.0f), minus = _mm512_set1_ps(-0.0f);
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 there = n - i < 16 ? lanes512(n - i) : lanes512(16);
        __m512 g16 = _mm512_maskz_loadu_ps(there, g + i);
        __m512 e = exp16(_mm512_xor_ps(g16, minus));
        __m512 silu = _mm512_mul_ps(g16, _mm512_div_ps(one, _mm512_add_ps(one, e)));
        silu = _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(there, u + i));
        _mm512_mask_storeu_ps(y + i, there, silu);
    }
}

SL_INLINE __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

float sl_k_exp_sum__avx512(float *x, uint32_t n, float max)
{
    const __m512 max16 = _mm512_set1_ps(max);
    __m256 acc = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 e = exp16(_mm512_sub_ps(_mm512_loadu_ps(x + i), max16));
        _mm512_storeu_ps(x + i, e);
        acc = _mm256_add_ps(_mm256_add_ps(acc, _mm512_castps512_ps256(e)), upper_half(e));
    }
    if (i < n) {
        __mmask16 there = lanes512(n - i);
        __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + i), max16));
        _mm512_mask_storeu_ps(x + i, there, e);
        e = _mm512_maskz_mov_ps(there, e);
        acc = _mm256_add_ps(_mm256_add_ps(acc, _mm512_castps512_ps256(e)), upper_half(e));
    }
    return sum_lanes(acc);
}
