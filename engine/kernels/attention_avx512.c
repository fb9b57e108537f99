/* Scores of several queries against the same int8 keys, and weighted sums of int8 values for
 * several heads, for AVX-512 with VNNI.
 *
 * Heads that share keys make it worth while to transpose those of sixteen positions first: then a
 * lane is a position, and no sum is ever taken across lanes. For values a lane is a column: the
 * weights of one group of columns are computed for all heads and positions, and then the group's
 * sums stay in registers over all positions. */
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

/* n words from p on, at most 32; zeros beyond them. */
SL_INLINE __m512i some_words(const uint16_t *p, uint32_t n)
{
    return _mm512_maskz_loadu_epi16(n < 32 ? ((__mmask32)1 << n) - 1 : ~(__mmask32)0, p);
}

/* Of n_words half-precision numbers from p on, those at first, first + stride, ..: sixteen, or
 * zeros where there are no more. */
SL_INLINE __m512 strided_halves(const uint16_t *p, uint32_t n_words, uint32_t first,
                                uint32_t stride)
{
    const __m256i lane = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m256i at = _mm256_add_epi16(_mm256_mullo_epi16(lane, _mm256_set1_epi16((short)stride)),
                                  _mm256_set1_epi16((short)first));
    __m256i found = _mm256_setzero_si256();
    for (uint32_t from = 0; from < n_words; from += 64) {
        uint32_t left = n_words - from;
        __m512i low = some_words(p + from, left);
        __m512i high = left > 32 ? some_words(p + from + 32, left - 32) : _mm512_setzero_si512();
        __mmask16 here = _mm256_cmplt_epu16_mask(at, _mm256_set1_epi16(64));
        __m512i picked = _mm512_permutex2var_epi16(low, _mm512_castsi256_si512(at), high);
        found = _mm256_mask_mov_epi16(found, here, _mm512_castsi512_si256(picked));
        at = _mm256_sub_epi16(at, _mm256_set1_epi16(64));
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

/* ---- values ---------------------------------------------------------------------------------- */

#define HEADS 8    /* at once */
#define STRETCH 64 /* positions whose weights are computed at a time */

/* Consecutive positions, STRETCH at most. */
struct stretch {
    _Alignas(64) float w[HEADS][STRETCH]; /* of the group at hand */
    float scale[SL_HEAD_DIM_MAX / SL_KV_GROUP][STRETCH];
    const int8_t *data; /* of the first position */
    uint32_t head_dim, n;
};

static void load_stretch(const struct sl_k_kv *v, uint32_t first, struct stretch *out)
{
    uint32_t groups = v->head_dim / SL_KV_GROUP;
    out->data = (const int8_t *)v->data + (uint64_t)first * v->head_dim;
    out->head_dim = v->head_dim;
    out->n = v->n - first < STRETCH ? v->n - first : STRETCH;
    for (uint32_t j = 0; j < out->n; j += POSITIONS) {
        uint32_t count = out->n - j < POSITIONS ? out->n - j : POSITIONS;
        const uint16_t *scales = v->scales + (uint64_t)(first + j) * groups;
        for (uint32_t g = 0; g < groups; g++)
            _mm512_storeu_ps(out->scale[g] + j, strided_halves(scales, count * groups, g, groups));
    }
}

/* Weights of the positions for n heads in group g; those of head h begin at p + h * p_stride. */
SL_INLINE void weigh(struct stretch *s, uint32_t g, const float *p, uint64_t p_stride, uint32_t n)
{
    for (uint32_t j = 0; j < s->n; j += POSITIONS) {
        __mmask16 there = lanes512(s->n - j < POSITIONS ? s->n - j : POSITIONS);
        __m512 scale = _mm512_loadu_ps(s->scale[g] + j);
        for (uint32_t h = 0; h < n; h++) {
            __m512 weight = _mm512_maskz_loadu_ps(there, p + h * p_stride + j);
            _mm512_storeu_ps(s->w[h] + j, _mm512_mul_ps(weight, scale));
        }
    }
}

SL_INLINE __m512 sixteen_codes(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)));
}

/* Adds the positions to 32 columns of n heads, a constant. */
SL_INLINE void add_group(const struct stretch *s, uint32_t column, uint32_t n, float *acc)
{
    __m512 low[HEADS], high[HEADS];
    for (uint32_t h = 0; h < n; h++) {
        low[h] = _mm512_loadu_ps(acc + h * s->head_dim + column);
        high[h] = _mm512_loadu_ps(acc + h * s->head_dim + column + 16);
    }
    const int8_t *row = s->data + column;
    for (uint32_t j = 0; j < s->n; j++, row += s->head_dim) {
        __m512 a = sixteen_codes(row), b = sixteen_codes(row + 16);
        for (uint32_t h = 0; h < n; h++) {
            __m512 w = _mm512_set1_ps(s->w[h][j]);
            low[h] = _mm512_fmadd_ps(w, a, low[h]);
            high[h] = _mm512_fmadd_ps(w, b, high[h]);
        }
    }
    for (uint32_t h = 0; h < n; h++) {
        _mm512_storeu_ps(acc + h * s->head_dim + column, low[h]);
        _mm512_storeu_ps(acc + h * s->head_dim + column + 16, high[h]);
    }
}

/* Adds the positions to all columns of n heads, a constant. */
SL_INLINE void add_stretch(struct stretch *s, const float *p, uint64_t p_stride, uint32_t n,
                           float *acc)
{
    for (uint32_t g = 0; g * SL_KV_GROUP < s->head_dim; g++) {
        weigh(s, g, p, p_stride, n);
        add_group(s, g * SL_KV_GROUP, n, acc);
    }
}

void sl_k_attn_values_q8__avx512(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    struct stretch s;
    if (n < 2 || v->head_dim % SL_KV_GROUP != 0) {
        sl_k_attn_values_q8__avx2(p, n, v, acc);
        return;
    }
    for (uint32_t first = 0; first < v->n; first += STRETCH) {
        load_stretch(v, first, &s);
        for (uint32_t h = 0; h < n;) {
            const float *weight = p + (uint64_t)h * v->n + first;
            float *to = acc + (uint64_t)h * v->head_dim;
            uint32_t left = n - h, step = left >= HEADS ? HEADS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            if (step == HEADS)
                add_stretch(&s, weight, v->n, HEADS, to);
            else if (step == 4)
                add_stretch(&s, weight, v->n, 4, to);
            else if (step == 2)
                add_stretch(&s, weight, v->n, 2, to);
            else
                add_stretch(&s, weight, v->n, 1, to);
            h += step;
        }
    }
}
