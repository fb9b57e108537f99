/* Scores of several queries against the same int8 keys, for AVX-512 with VNNI.
 *
 * Heads that share keys make it worth while to transpose those of sixteen positions first: then a
 * lane is a position, and no sum is ever taken across lanes. */
#include "base/limits.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx512.h"

#define POSITIONS 16
#define AT_ONCE 4 /* queries for which a key is loaded once; fewer are left to the AVX2 variant */

/* Keys of sixteen positions, a lane each. */
struct keys16 {
    __m512i pair[SL_HEAD_DIM_MAX / 2]; /* codes 2i and 2i + 1, as words */
    __m512 scale[SL_HEAD_DIM_MAX / SL_KV_GROUP];
    uint32_t groups;
};

/* Of n_words half-precision numbers from p on, those at first, first + stride, ..: sixteen, or
 * zeros where there are no more. */
SL_INLINE __m512 strided_halves(const uint16_t *p, uint32_t n_words, uint32_t first,
                                uint32_t stride)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32((int)stride)),
                                  _mm512_set1_epi32((int)first));
    __m256i found = _mm256_setzero_si256();
    for (uint32_t from = 0; from < n_words; from += 32) {
        uint32_t left = n_words - from;
        __mmask32 there = left < 32 ? ((__mmask32)1 << left) - 1 : ~(__mmask32)0;
        __m512i words = _mm512_maskz_loadu_epi16(there, p + from);
        __m512i index = _mm512_sub_epi32(at, _mm512_set1_epi32((int)from));
        __mmask16 here = _mm512_cmplt_epu32_mask(index, _mm512_set1_epi32(32));
        __m512i picked =
            _mm512_permutexvar_epi16(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(index)), words);
        found = _mm256_mask_mov_epi16(found, here, _mm512_castsi512_si256(picked));
    }
    return _mm512_cvtph_ps(found);
}

/* Codes from column on of all rows: 16 bytes, which are eight pairs. */
SL_INLINE void load_pairs(const uint8_t *const row[POSITIONS], uint32_t column, __m512i pair[8])
{
    const __m512i low = _mm512_set1_epi32((int)0x01800080),
                  high = _mm512_set1_epi32((int)0x03800280);
    const __m512i in_lane =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04000400, 0x08000800, 0x0c000c00));
    __m512i v[4];
    transpose512(row, column, v);
    for (int i = 0; i < 4; i++) { /* to the upper byte of a word, then down with its sign */
        __m512i a = _mm512_shuffle_epi8(v[i], _mm512_add_epi8(low, in_lane));
        __m512i b = _mm512_shuffle_epi8(v[i], _mm512_add_epi8(high, in_lane));
        pair[2 * i] = _mm512_srai_epi16(a, 8);
        pair[2 * i + 1] = _mm512_srai_epi16(b, 8);
    }
}

/* Positions [first, first + n), n at most POSITIONS; lanes beyond them repeat the last one. */
static void load_keys(const struct sl_k_kv *keys, uint32_t first, uint32_t n, struct keys16 *out)
{
    const uint8_t *row[POSITIONS], *data = keys->data;
    out->groups = keys->head_dim / SL_KV_GROUP;
    for (uint32_t r = 0; r < POSITIONS; r++)
        row[r] = data + (uint64_t)(first + (r < n ? r : n - 1)) * keys->head_dim;
    for (uint32_t c = 0; c < keys->head_dim; c += 16) load_pairs(row, c, out->pair + c / 2);
    const uint16_t *scales = keys->scales + (uint64_t)first * out->groups;
    for (uint32_t g = 0; g < out->groups; g++)
        out->scale[g] = strided_halves(scales, n * out->groups, g, out->groups);
}

/* Scores of n queries, a constant. */
SL_INLINE void score(const struct keys16 *k, const struct sl_k_query *queries, uint32_t n,
                     __m512 acc[AT_ONCE])
{
    for (uint32_t h = 0; h < n; h++) acc[h] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < k->groups; g++) {
        __m512i sum[AT_ONCE];
        for (uint32_t h = 0; h < n; h++) sum[h] = _mm512_setzero_si512();
#pragma GCC unroll 16
        for (uint32_t i = 0; i < SL_KV_GROUP / 2; i++) {
            __m512i pair = k->pair[SL_KV_GROUP / 2 * g + i];
            for (uint32_t h = 0; h < n; h++)
                sum[h] = _mm512_dpwssd_epi32(sum[h], pair,
                                             spread512(queries[h].q + SL_KV_GROUP * g + 2 * i));
        }
        for (uint32_t h = 0; h < n; h++) {
            __m512 d = _mm512_mul_ps(_mm512_set1_ps(queries[h].d[g]), k->scale[g]);
            acc[h] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum[h]), acc[h]);
        }
    }
}

void sl_k_attn_scores_q8__avx512(const struct sl_k_query *queries, uint32_t n,
                                 const struct sl_k_kv *keys, float scale, float *scores)
{
    struct keys16 k;
    if (n < AT_ONCE || keys->head_dim % SL_KV_GROUP != 0) {
        sl_k_attn_scores_q8__avx2(queries, n, keys, scale, scores);
        return;
    }
    for (uint32_t first = 0; first < keys->n; first += POSITIONS) {
        uint32_t count = keys->n - first < POSITIONS ? keys->n - first : POSITIONS;
        load_keys(keys, first, count, &k);
        for (uint32_t h = 0; h < n;) {
            __m512 acc[AT_ONCE];
            uint32_t step = n - h >= AT_ONCE ? AT_ONCE : 1;
            if (step == AT_ONCE)
                score(&k, queries + h, AT_ONCE, acc);
            else
                score(&k, queries + h, 1, acc);
            for (uint32_t i = 0; i < step; i++)
                _mm512_mask_storeu_ps(scores + (uint64_t)(h + i) * keys->n + first, lanes512(count),
                                      _mm512_mul_ps(_mm512_set1_ps(scale), acc[i]));
            h += step;
        }
    }
}
