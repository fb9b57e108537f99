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

void sl_k_attn_scores_f32__avx2(const struct sl_k_query *queries, uint32_t n,
                                const struct sl_k_kv *keys, float scale, float *scores)
{
    for (uint32_t h = 0; h < n; h++, scores += keys->n)
        scores_float(&queries[h], keys, scale, scores, 4);
}

void sl_k_attn_scores_f16__avx2(const struct sl_k_query *queries, uint32_t n,
                                const struct sl_k_kv *keys, float scale, float *scores)
{
    for (uint32_t h = 0; h < n; h++, scores += keys->n)
        scores_float(&queries[h], keys, scale, scores, 2);
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

void sl_k_attn_scores_q8__avx2(const struct sl_k_query *queries, uint32_t n,
                               const struct sl_k_kv *keys, float scale, float *scores)
{
    struct sl_k_matmul k = {.w = keys->data, .row_bytes = keys->head_dim, .rows = keys->n};
    struct sl_k_matmul s = {.w = keys->scales,
                            .row_bytes = groups_of(keys->head_dim) * sizeof(uint16_t),
                            .rows = keys->n};
    for (uint32_t j = 0; j < keys->n; j += TILE_ROWS) {
        struct tile t = tile_at(&k, j), scales = tile_at(&s, j);
        for (uint32_t h = 0; h < n; h++) {
            __m256 dot = scores_tile(&queries[h], keys, &t, &scales);
            float *to = scores + (uint64_t)h * keys->n + j;
            store_lanes(to, _mm256_mul_ps(_mm256_set1_ps(scale), dot), t.n);
        }
    }
}

/* ---- values ----------------------------------------------------------------------------- */

#define SUMS 8 /* vectors of sums that stay in registers over all positions */

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

/* Consecutive positions and the weights of their values: the weight that head h gives position j
 * for a column is w[h * heads + j * stride + column / 32 * step], with step 0 where one weight
 * serves a whole position. */
struct span {
    const uint8_t *data;
    uint32_t head_dim, n;
    const float *w;
    uint32_t heads, stride, step;
};

/* Adds n_vectors * 8 columns from column on, for n heads; both are constants, and their product is
 * at most SUMS. A value becomes a float once for all of them. */
SL_INLINE void strip(const struct layout l, const struct span s, const uint32_t size[2],
                     uint32_t column, float *acc)
{
    const uint32_t n = size[0], n_vectors = size[1];
    __m256 sum[SUMS];
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[h * n_vectors + i] = _mm256_loadu_ps(acc + h * s.head_dim + column + 8 * i);
    const uint8_t *row = s.data + (uint64_t)column * l.bytes;
    const float *w = s.w + column / SL_KV_GROUP * s.step;
    for (uint32_t j = 0; j < s.n; j++, row += (uint64_t)s.head_dim * l.bytes, w += s.stride)
        for (uint32_t i = 0; i < n_vectors; i++) {
            __m256 v = l.load8(row + (uint64_t)8 * i * l.bytes);
            for (uint32_t h = 0; h < n; h++) {
                __m256 p = _mm256_broadcast_ss(w + h * s.heads + i / 4 * s.step);
                sum[h * n_vectors + i] = _mm256_fmadd_ps(p, v, sum[h * n_vectors + i]);
            }
        }
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t i = 0; i < n_vectors; i++)
            _mm256_storeu_ps(acc + h * s.head_dim + column + 8 * i, sum[h * n_vectors + i]);
}

/* Adds all columns of n heads, a constant. */
SL_INLINE void values(const struct layout l, const struct span s, uint32_t n, float *acc)
{
    const uint32_t wide[2] = {n, SUMS / n}, narrow[2] = {n, 1};
    uint32_t c = 0;
    for (; c + SUMS / n * 8 <= s.head_dim; c += SUMS / n * 8) strip(l, s, wide, c, acc);
    for (; c + 8 <= s.head_dim; c += 8) strip(l, s, narrow, c, acc);
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t j = 0; j < s.n && c < s.head_dim; j++)
            for (uint32_t i = c; i < s.head_dim; i++) {
                float p = s.w[h * s.heads + j * s.stride + i / SL_KV_GROUP * s.step];
                float x = l.load1(s.data + ((uint64_t)j * s.head_dim + i) * l.bytes);
                acc[h * s.head_dim + i] = __builtin_fmaf(p, x, acc[h * s.head_dim + i]);
            }
}

#define HEADS 4 /* at a time */

static uint32_t heads_at_once(uint32_t n) { return n >= HEADS ? HEADS : n >= 2 ? 2 : 1; }

SL_INLINE void values_any(const struct layout l, const struct span s, uint32_t n, float *acc)
{
    if (n == HEADS)
        values(l, s, HEADS, acc);
    else if (n == 2)
        values(l, s, 2, acc);
    else
        values(l, s, 1, acc);
}

SL_INLINE void values_float(const struct layout l, const float *p, uint32_t n,
                            const struct sl_k_kv *v, float *acc)
{
    for (uint32_t h = 0; h < n;) {
        uint32_t step = heads_at_once(n - h);
        struct span s = {v->data, v->head_dim, v->n, p + (uint64_t)h * v->n, v->n, 1, 0};
        values_any(l, s, step, acc + (uint64_t)h * v->head_dim);
        h += step;
    }
}

void sl_k_attn_values_f32__avx2(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    values_float((struct layout){load8_f32, load1_f32, 4}, p, n, v, acc);
}

void sl_k_attn_values_f16__avx2(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    values_float((struct layout){load8_f16, load1_f16, 2}, p, n, v, acc);
}

#define POSITIONS 32 /* whose scales are multiplied out at a time */
#define GROUPS_MAX (SL_HEAD_DIM_MAX / SL_KV_GROUP)

/* w[j * groups + g] = p[j] * scale[j * groups + g] */
SL_INLINE void weigh(const float *p, const float *scale, uint32_t n, uint32_t groups, float *w)
{
    for (uint32_t j = 0; j < n; j++, scale += groups, w += groups) {
        uint32_t g = 0;
        for (; g + 4 <= groups; g += 4)
            _mm_storeu_ps(w + g, _mm_mul_ps(_mm_set1_ps(p[j]), _mm_loadu_ps(scale + g)));
        for (; g < groups; g++) w[g] = p[j] * scale[g];
    }
}

/* As floats, from half precision. */
SL_INLINE void widen(const uint16_t *from, uint32_t n, float *to)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(load128(from + i)));
    for (; i < n; i++) to[i] = _cvtsh_ss(from[i]);
}

void sl_k_attn_values_q8__avx2(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    const struct layout l = {load8_i8, load1_i8, 1};
    uint32_t groups = groups_of(v->head_dim);
    float scale[POSITIONS * GROUPS_MAX], w[HEADS * POSITIONS * GROUPS_MAX];
    for (uint32_t first = 0; first < v->n; first += POSITIONS) {
        uint32_t count = v->n - first < POSITIONS ? v->n - first : POSITIONS;
        widen(v->scales + (uint64_t)first * groups, count * groups, scale);
        const uint8_t *data = (const uint8_t *)v->data + (uint64_t)first * v->head_dim;
        for (uint32_t h = 0; h < n;) {
            uint32_t step = heads_at_once(n - h);
            for (uint32_t i = 0; i < step; i++)
                weigh(p + (uint64_t)(h + i) * v->n + first, scale, count, groups,
                      w + i * count * groups);
            struct span s = {data, v->head_dim, count, w, count * groups, groups, 1};
            values_any(l, s, step, acc + (uint64_t)h * v->head_dim);
            h += step;
        }
    }
}
