/* Scores of a query against the KV cache and weighted sums of values, for AVX2. */
#include "base/limits.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"

static uint32_t groups_of(uint32_t head_dim) { return (head_dim + SL_KV_GROUP - 1) / SL_KV_GROUP; }

/* ---- scores ----------------------------------------------------------------------------- */

/* Float keys are a matrix with a row per position. */
static void scores_float(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                         float *scores, uint32_t bytes)
{
    if (keys->n == 0) return;
    struct sl_k_act x = {.f = query->f};
    struct sl_k_matmul m = {.w = keys->data,
                            .row_bytes = (uint64_t)keys->head_dim * bytes,
                            .rows = keys->n,
                            .cols = keys->head_dim,
                            .x = &x,
                            .n_tokens = 1,
                            .y = scores,
                            .y_stride = keys->n};
    if (bytes == 4)
        sl_k_matmul_f32__avx2(&m);
    else
        sl_k_matmul_f16__avx2(&m);
    sl_k_scale__avx2(scale, keys->n, scores);
}

void sl_k_attn_scores_f32__avx2(const struct sl_k_query *query, const struct sl_k_kv *keys,
                                float scale, float *scores)
{
    scores_float(query, keys, scale, scores, 4);
}

void sl_k_attn_scores_f16__avx2(const struct sl_k_query *query, const struct sl_k_kv *keys,
                                float scale, float *scores)
{
    scores_float(query, keys, scale, scores, 2);
}

/* 32 query codes. */
struct query_group {
    __m256i q0, q1;
};

/* Copies what there is of a last, short group and fills up with zeros, which add nothing. */
SL_INLINE void pad_codes(const int8_t *from, uint32_t n, int8_t to[SL_KV_GROUP])
{
    memset(to, 0, SL_KV_GROUP);
    memcpy(to, from, n);
}

SL_INLINE struct query_group load_query(const int16_t *q, uint32_t n)
{
    int16_t padded[SL_KV_GROUP] = {0};
    if (n < SL_KV_GROUP) {
        memcpy(padded, q, n * sizeof *q);
        q = padded;
    }
    struct query_group g = {load256(q), load256(q + 16)};
    return g;
}

/* Sums of 32 products, still spread over eight lanes. */
SL_INLINE __m256i dot_group(struct query_group g, const int8_t *key)
{
    __m256i low = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load128(key)), g.q0);
    __m256i high = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load128(key + 16)), g.q1);
    return _mm256_add_epi32(low, high);
}

/* Scores of eight positions, a lane each; positions beyond the last repeat it. */
static __m256 scores_tile(const struct sl_k_query *query, const struct sl_k_kv *keys,
                          const struct tile *t, const struct tile *scales)
{
    uint32_t dim = keys->head_dim;
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t g = 0; g < groups_of(dim); g++) {
        uint32_t start = g * SL_KV_GROUP;
        uint32_t n = dim - start < SL_KV_GROUP ? dim - start : SL_KV_GROUP;
        struct query_group q = load_query(query->q + start, n);
        __m256i v[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++) {
            int8_t padded[SL_KV_GROUP];
            const int8_t *key = (const int8_t *)t->row[r] + start;
            if (n < SL_KV_GROUP) {
                pad_codes(key, n, padded);
                key = padded;
            }
            v[r] = dot_group(q, key);
        }
        __m256 k_scale = load_halves(scales, (uint64_t)g * sizeof(uint16_t));
        __m256 d = _mm256_mul_ps(_mm256_broadcast_ss(&query->d[g]), k_scale);
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(reduce_rows(v)), acc);
    }
    return acc;
}

void sl_k_attn_scores_q8__avx2(const struct sl_k_query *query, const struct sl_k_kv *keys,
                               float scale, float *scores)
{
    struct sl_k_matmul k = {.w = keys->data, .row_bytes = keys->head_dim, .rows = keys->n};
    struct sl_k_matmul s = {.w = keys->scales,
                            .row_bytes = groups_of(keys->head_dim) * sizeof(uint16_t),
                            .rows = keys->n};
    for (uint32_t j = 0; j < keys->n; j += TILE_ROWS) {
        struct tile t = tile_at(&k, j), scales = tile_at(&s, j);
        __m256 dot = scores_tile(query, keys, &t, &scales);
        store_lanes(scores + j, _mm256_mul_ps(_mm256_set1_ps(scale), dot), t.n);
    }
}

/* ---- values ----------------------------------------------------------------------------- */

#define STRIP 64 /* columns whose sums stay in registers over all positions */

typedef __m256 load8_fn(const uint8_t *p);
typedef float load1_fn(const uint8_t *p);

/* How values become floats. */
struct layout {
    load8_fn *load8;
    load1_fn *load1;
    uint32_t bytes; /* of a value */
};

SL_INLINE __m256 load8_f32(const uint8_t *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}
SL_INLINE __m256 load8_f16(const uint8_t *p) { return _mm256_cvtph_ps(load128(p)); }
SL_INLINE float load1_f32(const uint8_t *p) { return sl_f32_from_bits(sl_load_u32(p)); }
SL_INLINE float load1_f16(const uint8_t *p) { return _cvtsh_ss(sl_load_u16(p)); }
SL_INLINE __m256 load8_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
SL_INLINE float load1_i8(const uint8_t *p) { return (float)(int8_t)*p; }

/* Consecutive positions and the weights of their values: the weight of position j for a column is
 * w[j * stride + column / 32 * step], with step 0 where one weight serves a whole position. */
struct span {
    const uint8_t *data;
    uint32_t head_dim, n;
    const float *w;
    uint32_t stride, step;
};

/* Adds n_vectors * 8 columns (n_vectors constant) from column on. */
SL_INLINE void strip(const struct layout l, const struct span s, uint32_t n_vectors,
                     uint32_t column, float *acc)
{
    __m256 sum[STRIP / 8];
    for (uint32_t i = 0; i < n_vectors; i++) sum[i] = _mm256_loadu_ps(acc + column + 8 * i);
    const uint8_t *row = s.data + (uint64_t)column * l.bytes;
    const float *w = s.w + column / SL_KV_GROUP * s.step;
    for (uint32_t j = 0; j < s.n; j++, row += (uint64_t)s.head_dim * l.bytes, w += s.stride)
        for (uint32_t i = 0; i < n_vectors; i++) {
            __m256 p = _mm256_broadcast_ss(w + i / 4 * s.step);
            sum[i] = _mm256_fmadd_ps(p, l.load8(row + (uint64_t)8 * i * l.bytes), sum[i]);
        }
    for (uint32_t i = 0; i < n_vectors; i++) _mm256_storeu_ps(acc + column + 8 * i, sum[i]);
}

/* Adds all columns. */
SL_INLINE void values(const struct layout l, const struct span s, float *acc)
{
    uint32_t c = 0;
    for (; c + STRIP <= s.head_dim; c += STRIP) strip(l, s, STRIP / 8, c, acc);
    for (; c + 8 <= s.head_dim; c += 8) strip(l, s, 1, c, acc);
    for (uint32_t j = 0; j < s.n && c < s.head_dim; j++)
        for (uint32_t i = c; i < s.head_dim; i++) {
            float p = s.w[j * s.stride + i / SL_KV_GROUP * s.step];
            float x = l.load1(s.data + ((uint64_t)j * s.head_dim + i) * l.bytes);
            acc[i] = __builtin_fmaf(p, x, acc[i]);
        }
}

void sl_k_attn_values_f32__avx2(const float *p, const struct sl_k_kv *v, float *acc)
{
    struct span s = {v->data, v->head_dim, v->n, p, 1, 0};
    values((struct layout){load8_f32, load1_f32, 4}, s, acc);
}

void sl_k_attn_values_f16__avx2(const float *p, const struct sl_k_kv *v, float *acc)
{
    struct span s = {v->data, v->head_dim, v->n, p, 1, 0};
    values((struct layout){load8_f16, load1_f16, 2}, s, acc);
}

#define POSITIONS 32 /* whose scales are multiplied out at a time */

void sl_k_attn_values_q8__avx2(const float *p, const struct sl_k_kv *v, float *acc)
{
    uint32_t groups = groups_of(v->head_dim);
    float w[POSITIONS * (SL_HEAD_DIM_MAX / SL_KV_GROUP)];
    for (uint32_t first = 0; first < v->n; first += POSITIONS) {
        uint32_t n = v->n - first < POSITIONS ? v->n - first : POSITIONS;
        const uint16_t *scales = v->scales + (uint64_t)first * groups;
        for (uint32_t j = 0; j < n; j++)
            for (uint32_t g = 0; g < groups; g++)
                w[j * groups + g] = p[first + j] * _cvtsh_ss(scales[j * groups + g]);
        const uint8_t *data = (const uint8_t *)v->data + (uint64_t)first * v->head_dim;
        struct span s = {data, v->head_dim, n, w, groups, 1};
        values((struct layout){load8_i8, load1_i8, 1}, s, acc);
    }
}
