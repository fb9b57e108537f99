/* e^x in eight lanes, for the AVX2 kernels. */
#ifndef SL_EXP_AVX2_H
#define SL_EXP_AVX2_H

#include "base/mathfn_steps.h"
#include "engine/kernels/simd_avx2.h"

/* The steps of base/mathfn_steps.h in eight lanes. */
SL_INLINE __m256 pow2(__m256i k)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

SL_INLINE __m256 exp8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(SL_EXPF_MAGIC), one = _mm256_set1_ps(1.0f);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(SL_EXPF_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256i k =
        _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32((int)SL_EXPF_MAGIC_BITS));
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(SL_EXPF_LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(SL_EXPF_LN2_LO), r);
    __m256 p = _mm256_set1_ps(SL_EXPF_C6);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXPF_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXPF_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXPF_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXPF_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    __m256i k1 = _mm256_srai_epi32(k, 1);
    __m256 y = _mm256_mul_ps(_mm256_mul_ps(p, pow2(k1)), pow2(_mm256_sub_epi32(k, k1)));
    __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(SL_EXPF_HI), _CMP_GE_OQ);
    __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(SL_EXPF_LO), _CMP_LT_OQ);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY), above);
    return _mm256_andnot_ps(below, y);
}

#endif
