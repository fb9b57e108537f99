/* From floats to integer codes, for AVX2: activations, queries for int8 keys, and positions of the
 * KV cache. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/round_scalar.h"
#include "engine/kernels/simd_avx2.h"

SL_INLINE __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

/* The largest magnitude of n elements; false where one is not finite. n: a multiple of 8. */
SL_INLINE bool max_abs8(const float *x, uint32_t n, float *out)
{
    const __m256 largest = _mm256_set1_ps(FLT_MAX);
    __m256 max = _mm256_setzero_ps(), finite = _mm256_cmp_ps(max, max, _CMP_EQ_OQ);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 a = magnitude(_mm256_loadu_ps(x + i));
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(a, largest, _CMP_LE_OQ));
        max = _mm256_max_ps(max, a);
    }
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    *out = _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    return _mm256_movemask_ps(finite) == 0xff;
}

/* Four vectors of integers, clamped to +-127, as 32 codes in order. */
SL_INLINE __m256i pack_codes(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    packed = _mm256_max_epi8(packed, _mm256_set1_epi8(-127));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

SL_INLINE __m256i scaled(const float *x, __m256 factor)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), factor));
}

/* Sums of the first and the second 16 of 32 codes, in words 0 and 1. */
SL_INLINE uint32_t half_sums(__m256i codes)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    fours = _mm256_hadd_epi32(fours, fours);
    fours = _mm256_hadd_epi32(fours, fours);
    uint32_t first = (uint32_t)_mm256_cvtsi256_si32(fours);
    uint32_t second = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(fours, 1));
    return (first & 0xffff) | second << 16;
}

bool sl_k_quantize__avx2(const float *x, uint32_t n, uint32_t block, const struct sl_k_act_out *out)
{
    for (uint32_t b = 0; b < n / block; b++) {
        uint64_t start = (uint64_t)b * block;
        float max, inverse;
        if (!max_abs8(x + start, block, &max)) return false;
        out->d[b] = scale_of(max, 127.0f, &inverse);
        __m256 factor = _mm256_set1_ps(inverse);
        for (uint64_t i = start; i < start + block; i += 32) {
            __m256i codes = pack_codes(scaled(x + i, factor), scaled(x + i + 8, factor),
                                       scaled(x + i + 16, factor), scaled(x + i + 24, factor));
            uint32_t sums = half_sums(codes);
            _mm256_storeu_si256((__m256i *)(out->q + i), codes);
            memcpy(out->sums + i / 16, &sums, sizeof sums);
        }
    }
    return true;
}

bool sl_k_quantize_query__avx2(const float *x, uint32_t n, int16_t *q, float *d)
{
    uint32_t start = 0;
    for (; start + SL_KV_GROUP <= n; start += SL_KV_GROUP) {
        float max, inverse;
        if (!max_abs8(x + start, SL_KV_GROUP, &max)) return false;
        d[start / SL_KV_GROUP] = scale_of(max, 32767.0f, &inverse);
        __m256 factor = _mm256_set1_ps(inverse);
        for (uint32_t i = start; i < start + SL_KV_GROUP; i += 16) {
            __m256i words = _mm256_packs_epi32(scaled(x + i, factor), scaled(x + i + 8, factor));
            words = _mm256_max_epi16(words, _mm256_set1_epi16(-32767));
            words = _mm256_permute4x64_epi64(words, 0xd8);
            _mm256_storeu_si256((__m256i *)(q + i), words);
        }
    }
    if (start == n) return true;
    return sl_k_quantize_query__scalar(x + start, n - start, q + start, d + start / SL_KV_GROUP);
}

bool sl_k_store_kv_f32__avx2(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    float max;
    uint32_t whole = head_dim & ~7u;
    (void)scales;
    memcpy(data, x, (uint64_t)head_dim * sizeof *x);
    return max_abs8(x, whole, &max) && max_abs(x + whole, head_dim - whole, &max);
}

bool sl_k_store_kv_f16__avx2(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    const __m128i infinite = _mm_set1_epi16(0x7c00);
    uint16_t *out = data;
    __m128i bad = _mm_setzero_si128();
    uint32_t i = 0;
    for (; i + 8 <= head_dim; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        bad = _mm_or_si128(bad, _mm_cmpeq_epi16(_mm_and_si128(h, infinite), infinite));
        _mm_storeu_si128((__m128i *)(out + i), h);
    }
    bool tail = sl_k_store_kv_f16__scalar(x + i, head_dim - i, out + i, scales);
    return tail && _mm_movemask_epi8(bad) == 0;
}

/* One whole group of the int8 cache. */
SL_INLINE bool store_group(const float *x, int8_t *out, uint16_t *half)
{
    float max;
    if (!max_abs8(x, SL_KV_GROUP, &max)) return false;
    *half = _cvtss_sh(max / 127.0f, _MM_FROUND_TO_NEAREST_INT);
    if ((*half & 0x7c00) == 0x7c00) return false;
    __m256i codes = _mm256_setzero_si256();
    if (*half != 0) {
        __m256 scale = _mm256_set1_ps(_cvtsh_ss(*half));
        __m256i v[4];
        for (int i = 0; i < 4; i++)
            v[i] = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x + 8 * i), scale));
        codes = pack_codes(v[0], v[1], v[2], v[3]);
    }
    _mm256_storeu_si256((__m256i *)out, codes);
    return true;
}

bool sl_k_store_kv_q8__avx2(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    int8_t *out = data;
    uint32_t start = 0;
    for (; start + SL_KV_GROUP <= head_dim; start += SL_KV_GROUP)
        if (!store_group(x + start, out + start, scales + start / SL_KV_GROUP)) return false;
    if (start == head_dim) return true;
    return sl_k_store_kv_q8__scalar(x + start, head_dim - start, out + start,
                                    scales + start / SL_KV_GROUP);
}
