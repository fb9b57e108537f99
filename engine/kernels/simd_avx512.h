/* Small pieces that the AVX-512 kernels share. A tile is sixteen rows, a 32-bit lane each, whatever
 * the layout in the file: a vector of 64 bytes holds four consecutive columns of every row (a
 * quad), and meets the same four activation codes in every lane. */
#ifndef SL_SIMD_AVX512_H
#define SL_SIMD_AVX512_H

#if !defined(__AVX512VNNI__) || !defined(__AVX512VBMI__) || !defined(__GFNI__)
#error "compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vnni -mgfni"
#endif

#include "engine/kernels/simd_avx2.h"

/* Whether templates are made for each number of activations. With addresses checked they are so
 * large that gcc takes minutes; one for any number is slower, not different. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EACH_NUMBER false
#else
#define EACH_NUMBER true
#endif

#define WIDE_ROWS 16
#define WIDE_TOKENS 64 /* activations per pass over a tile */

/* Four codes, or two sums, for every row. */
SL_INLINE __m512i spread512(const void *p) { return _mm512_set1_epi32((int)sl_load_u32(p)); }

SL_INLINE __m512i join512(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Bits of a where mask has ones, of b elsewhere. */
SL_INLINE __m512i select512(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

/* acc += a quad's levels (unsigned bytes) times four codes. */
SL_INLINE __m512i dot512(__m512i acc, __m512i level, const int8_t *q)
{
    return _mm512_dpbusd_epi32(acc, level, spread512(q));
}

/* Sixteen bytes of every row: out[i] gets bytes 4i to 4i + 3. */
SL_INLINE void transpose512(const uint8_t *const row[WIDE_ROWS], uint64_t at, __m512i out[4])
{
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_castsi128_si512(load128(row[i] + at));
        v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x00f0, load128(row[4 + i] + at));
        v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x0f00, load128(row[8 + i] + at));
        v[i] = _mm512_mask_broadcast_i32x4(v[i], 0xf000, load128(row[12 + i] + at));
    }
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

/* The n lanes that count. */
SL_INLINE __mmask16 lanes512(uint32_t n) { return (__mmask16)((1u << n) - 1); }

/* Of activations that are left how many are taken next, most at once: no few are to be left over,
 * since then sums wait for themselves. */
SL_INLINE uint32_t next_few(uint32_t left, uint32_t most)
{
    return left <= most ? left : left >= 2 * most ? most : (left + 1) / 2;
}

/* Asks for the memory of n results of one activation, which are to be written soon; that of the
 * next activation's lies far away. Without it, Q4_K of 4096 x 2048 with 512 activations took 4 %
 * longer (one Zen 4 core, November 2026). */
SL_INLINE void fetch_results(const float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) _mm_prefetch((const char *)(y + i), _MM_HINT_T0);
    _mm_prefetch((const char *)(y + n - 1), _MM_HINT_T0);
}

#endif
