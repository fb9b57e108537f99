/* What the AVX-512 kernels of weights in blocks of 256 (the k-quants and IQ4_XS) share. For several
 * activations sixteen rows are transposed (matmul_kquant_avx512.c), for one they are taken as they
 * lie (matmul_kquant1_avx512.c). */
#ifndef SL_KQUANT_AVX512_H
#define SL_KQUANT_AVX512_H

#include "engine/kernels/simd_avx512.h"

/* Products with one activation: n_tokens is 1. */
sl_k_matmul_fn sl_k_matmul1_q2_k, sl_k_matmul1_q3_k, sl_k_matmul1_q4_k, sl_k_matmul1_q5_k;
sl_k_matmul_fn sl_k_matmul1_q6_k, sl_k_matmul1_iq4_xs;

SL_INLINE __m512i bytes512(int v) { return _mm512_set1_epi8((char)v); }

/* (low & low_mask) | (high & high_mask); the masks have no bit in common. */
SL_INLINE __m512i merge(__m512i low, int low_mask, __m512i high, int high_mask)
{
    __m512i both = select512(bytes512(low_mask), low, high);
    return _mm512_and_si512(both, bytes512(low_mask | high_mask));
}

#endif
