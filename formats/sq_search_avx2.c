/* The encoder's inner loops with AVX2, bit-equal to sq_search.c: the operations and their order are
 * the same, with two exceptions that change no result. The squared distance to the nearest of two
 * levels is the smaller of two squares, since rounding keeps order. Products of two float32 are
 * exact in double, so they may be fused with the addition that follows. */
#ifndef __AVX2__
#error "this file is compiled with -mavx2 -mfma"
#endif
#include <immintrin.h>

#include "formats/sq_search.h"

static inline __m256 held(__m256 v)
{
    return _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(SL_SQ_LAST));
}

static inline __m256i nearest(__m256 v)
{
    return _mm256_cvttps_epi32(_mm256_mul_ps(held(v), _mm256_set1_ps(16.0f)));
}

static inline __m256 position(const float *x, __m256 inverse, __m256 offset)
{
    return _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x), inverse), offset);
}

static inline __m128 upper(__m256 v) { return _mm256_extractf128_ps(v, 1); }

static inline float largest(__m256 v)
{
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(v), upper(v));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

static void load(const float *x, float factor, struct sl_sq_group *g)
{
    __m256 most = _mm256_setzero_ps(), least = most, by = _mm256_set1_ps(factor);
    for (uint32_t k = 0; k < g->n; k += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + k), by);
        _mm256_storeu_ps(g->x + k, v);
        most = _mm256_max_ps(v, most);
        least = _mm256_min_ps(v, least);
    }
    g->high = largest(most);
    g->low = largest(_mm256_sub_ps(_mm256_setzero_ps(), least));
}

static inline __m256 square(__m256 v) { return _mm256_mul_ps(v, v); }

static inline __m256 distance_of_two(const struct sl_sq_levels *levels, __m256 v)
{
    __m256i i = _mm256_cvttps_epi32(held(v));
    __m256 below = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels->below), i);
    __m256 above = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels->above), i);
    return _mm256_min_ps(square(_mm256_sub_ps(v, below)), square(_mm256_sub_ps(v, above)));
}

static inline __m256 distance(const struct sl_sq_levels *levels, __m256 v)
{
    return square(_mm256_sub_ps(v, _mm256_i32gather_ps(levels->near, nearest(v), 4)));
}

static inline float sum_of(__m256 s)
{
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), upper(s));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}

/* two and blocks are constants where this is inlined. */
static inline void errors_of(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                             const struct sl_sq_try *t, float *error, bool two, uint32_t blocks)
{
    __m256 inverse = _mm256_set1_ps(t->inverse), offset = _mm256_set1_ps(t->offset);
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t k = 0; k < 8 * blocks; k += 8) {
        __m256 v = position(g->x + k, inverse, offset);
        __m256 off = two ? distance_of_two(levels, v) : distance(levels, v);
        off = _mm256_mul_ps(_mm256_loadu_ps(g->w + k), off);
        sum = k == 0 ? off : _mm256_add_ps(sum, off);
    }
    *error = sum_of(sum);
}

static void errors(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                   const struct sl_sq_try *tries, uint32_t n, float *error)
{
    if (levels->two && g->n == 32) {
        for (uint32_t i = 0; i < n; i++) errors_of(levels, g, tries + i, error + i, true, 4);
    } else if (levels->two) {
        for (uint32_t i = 0; i < n; i++) errors_of(levels, g, tries + i, error + i, true, 2);
    } else if (g->n == 32) {
        for (uint32_t i = 0; i < n; i++) errors_of(levels, g, tries + i, error + i, false, 4);
    } else {
        for (uint32_t i = 0; i < n; i++) errors_of(levels, g, tries + i, error + i, false, 2);
    }
}

/* Sums in registers while a group is settled. */
struct sums {
    __m256d xx, xq, qq, wxx, wxq, wqq;
};

static inline void add_four(__m128 x4, __m128 q4, __m128 w4, struct sums *s)
{
    __m256d x = _mm256_cvtps_pd(x4), q = _mm256_cvtps_pd(q4), w = _mm256_cvtps_pd(w4);
    __m256d wx = _mm256_mul_pd(w, x), wq = _mm256_mul_pd(w, q);
    s->xx = _mm256_fmadd_pd(x, x, s->xx);
    s->xq = _mm256_fmadd_pd(x, q, s->xq);
    s->qq = _mm256_fmadd_pd(q, q, s->qq);
    s->wxx = _mm256_add_pd(s->wxx, _mm256_mul_pd(wx, x));
    s->wxq = _mm256_add_pd(s->wxq, _mm256_mul_pd(wx, q));
    s->wqq = _mm256_add_pd(s->wqq, _mm256_mul_pd(wq, q));
}

static void settle(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                   const struct sl_sq_try *t, float scale, uint8_t *codes, struct sl_sq_sums *out)
{
    __m256 inverse = _mm256_set1_ps(t->inverse), offset = _mm256_set1_ps(t->offset);
    struct sums s = {_mm256_loadu_pd(out->xx),  _mm256_loadu_pd(out->xq),
                     _mm256_loadu_pd(out->qq),  _mm256_loadu_pd(out->wxx),
                     _mm256_loadu_pd(out->wxq), _mm256_loadu_pd(out->wqq)};
    for (uint32_t k = 0; k < g->n; k += 8) {
        __m256i i = nearest(position(g->x + k, inverse, offset));
        __m256i code = _mm256_i32gather_epi32(levels->code, i, 4);
        __m256 q = _mm256_i32gather_ps(levels->near, i, 4);
        q = _mm256_mul_ps(_mm256_sub_ps(q, offset), _mm256_set1_ps(scale));
        __m128i words =
            _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
        _mm_storel_epi64((__m128i *)(void *)(codes + k), _mm_packus_epi16(words, words));
        __m256 x = _mm256_loadu_ps(g->x + k), w = _mm256_loadu_ps(g->w + k);
        add_four(_mm256_castps256_ps128(x), _mm256_castps256_ps128(q), _mm256_castps256_ps128(w),
                 &s);
        add_four(upper(x), upper(q), upper(w), &s);
    }
    _mm256_storeu_pd(out->xx, s.xx);
    _mm256_storeu_pd(out->xq, s.xq);
    _mm256_storeu_pd(out->qq, s.qq);
    _mm256_storeu_pd(out->wxx, s.wxx);
    _mm256_storeu_pd(out->wxq, s.wxq);
    _mm256_storeu_pd(out->wqq, s.wqq);
}

const struct sl_sq_variant sl_sq_avx2 = {load, errors, settle};
