/* Scores of a query against the KV cache and weighted sums of values, for NEON. */
#include "base/limits.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_neon.h"

static uint32_t groups_of(uint32_t head_dim) { return (head_dim + SL_KV_GROUP - 1) / SL_KV_GROUP; }

/* ---- scores ---------------------------------------------------------------------------------- */

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
        sl_k_matmul_f32__neon(&m);
    else
        sl_k_matmul_f16__neon(&m);
    sl_k_scale__neon(scale, keys->n, scores);
}

static void scores_f32(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                       float *scores)
{
    scores_float(query, keys, scale, scores, 4);
}

static void scores_f16(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                       float *scores)
{
    scores_float(query, keys, scale, scores, 2);
}

/* 32 query codes. */
struct query_group {
    int16x8_t q[4];
};

SL_INLINE struct query_group load_query(const int16_t *q, uint32_t n)
{
    int16_t padded[SL_KV_GROUP] = {0};
    struct query_group g;
    if (n < SL_KV_GROUP) {
        memcpy(padded, q, n * sizeof *q);
        q = padded;
    }
    for (int i = 0; i < 4; i++) g.q[i] = vld1q_s16(q + 8 * i);
    return g;
}

/* Sums of 32 products, spread over four lanes. */
SL_INLINE int32x4_t dot_group(const struct query_group *g, const int8_t *key)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int i = 0; i < 2; i++) {
        int8x16_t k = vld1q_s8(key + 16 * i);
        int16x8_t low = vmovl_s8(vget_low_s8(k)), high = vmovl_high_s8(k);
        sum = vmlal_s16(sum, vget_low_s16(low), vget_low_s16(g->q[2 * i]));
        sum = vmlal_high_s16(sum, low, g->q[2 * i]);
        sum = vmlal_s16(sum, vget_low_s16(high), vget_low_s16(g->q[2 * i + 1]));
        sum = vmlal_high_s16(sum, high, g->q[2 * i + 1]);
    }
    return sum;
}

/* Scores of four positions, a lane each; positions beyond the last repeat it. Of a last, short
 * group what there is gets copied and filled up with zeros, which add nothing. */
static float32x4_t scores_tile(const struct sl_k_query *query, const struct sl_k_kv *keys,
                               const struct tile *t, const struct tile *scales)
{
    uint32_t dim = keys->head_dim;
    float32x4_t acc = vdupq_n_f32(0.0f);
    for (uint32_t g = 0; g < groups_of(dim); g++) {
        uint32_t start = g * SL_KV_GROUP;
        uint32_t n = dim - start < SL_KV_GROUP ? dim - start : SL_KV_GROUP;
        struct query_group q = load_query(query->q + start, n);
        int32x4_t v[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++) {
            int8_t padded[SL_KV_GROUP] = {0};
            const int8_t *key = (const int8_t *)t->row[r] + start;
            if (n < SL_KV_GROUP) key = memcpy(padded, key, n);
            v[r] = dot_group(&q, key);
        }
        float32x4_t k_scale = load_halves(scales->row, (uint64_t)g * sizeof(uint16_t));
        float32x4_t d = vmulq_n_f32(k_scale, query->d[g]);
        acc = vfmaq_f32(acc, d, vcvtq_f32_s32(reduce_rows(v)));
    }
    return acc;
}

static void scores_q8(const struct sl_k_query *query, const struct sl_k_kv *keys, float scale,
                      float *scores)
{
    struct sl_k_matmul k = {.w = keys->data, .row_bytes = keys->head_dim, .rows = keys->n};
    struct sl_k_matmul s = {.w = keys->scales,
                            .row_bytes = groups_of(keys->head_dim) * sizeof(uint16_t),
                            .rows = keys->n};
    for (uint32_t j = 0; j < keys->n; j += TILE_ROWS) {
        struct tile t = tile_at(&k, j), scales = tile_at(&s, j);
        float32x4_t dot = scores_tile(query, keys, &t, &scales);
        store_lanes(scores + j, vmulq_n_f32(dot, scale), t.n);
    }
}

#define SCORES(type)                                                                               \
    void sl_k_attn_scores_##type##__neon(const struct sl_k_query *queries, uint32_t n,             \
                                         const struct sl_k_kv *keys, float scale, float *scores)   \
    {                                                                                              \
        for (uint32_t h = 0; h < n; h++)                                                           \
            scores_##type(&queries[h], keys, scale, scores + (uint64_t)h * keys->n);               \
    }

SCORES(f32)
SCORES(f16)
SCORES(q8)

/* ---- values ---------------------------------------------------------------------------------- */

#define SUMS 16 /* vectors of sums that stay in registers over all positions */

typedef float32x4_t load4_fn(const uint8_t *p);
typedef float load1_fn(const uint8_t *p);

/* How values become floats. */
struct layout {
    load4_fn *load4;
    load1_fn *load1;
    uint32_t bytes; /* of a value */
};

SL_INLINE float32x4_t load4_f32(const uint8_t *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
SL_INLINE float32x4_t load4_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
SL_INLINE float load1_f32(const uint8_t *p) { return sl_f32_from_bits(sl_load_u32(p)); }
SL_INLINE float load1_f16(const uint8_t *p) { return half_to_float(sl_load_u16(p)); }
SL_INLINE float32x4_t load4_i8(const uint8_t *p)
{
    int8x8_t v = vreinterpret_s8_u32(vdup_n_u32(sl_load_u32(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(v))));
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

/* Adds n_vectors * 4 columns from column on, for n heads; both are constants, and their product is
 * at most SUMS. A value becomes a float once for all of them. */
SL_INLINE void strip(const struct layout l, const struct span s, const uint32_t size[2],
                     uint32_t column, float *acc)
{
    const uint32_t n = size[0], n_vectors = size[1];
    float32x4_t sum[SUMS];
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t i = 0; i < n_vectors; i++)
            sum[h * n_vectors + i] = vld1q_f32(acc + h * s.head_dim + column + 4 * i);
    const uint8_t *row = s.data + (uint64_t)column * l.bytes;
    const float *w = s.w + column / SL_KV_GROUP * s.step;
    for (uint32_t j = 0; j < s.n; j++, row += (uint64_t)s.head_dim * l.bytes, w += s.stride)
        for (uint32_t i = 0; i < n_vectors; i++) {
            float32x4_t v = l.load4(row + (uint64_t)4 * i * l.bytes);
            for (uint32_t h = 0; h < n; h++)
                sum[h * n_vectors + i] =
                    vfmaq_n_f32(sum[h * n_vectors + i], v, w[h * s.heads + i / 8 * s.step]);
        }
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t i = 0; i < n_vectors; i++)
            vst1q_f32(acc + h * s.head_dim + column + 4 * i, sum[h * n_vectors + i]);
}

/* Adds all columns of n heads, a constant. */
SL_INLINE void values(const struct layout l, const struct span s, uint32_t n, float *acc)
{
    const uint32_t wide[2] = {n, SUMS / n}, narrow[2] = {n, 1};
    uint32_t c = 0;
    for (; c + SUMS / n * 4 <= s.head_dim; c += SUMS / n * 4) strip(l, s, wide, c, acc);
    for (; c + 4 <= s.head_dim; c += 4) strip(l, s, narrow, c, acc);
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t j = 0; j < s.n && c < s.head_dim; j++)
            for (uint32_t i = c; i < s.head_dim; i++) {
                float p = s.w[h * s.heads + j * s.stride + i / SL_KV_GROUP * s.step];
                float x = l.load1(s.data + ((uint64_t)j * s.head_dim + i) * l.bytes);
                acc[h * s.head_dim + i] = __builtin_fmaf(p, x, acc[h * s.head_dim + i]);
            }
}

#define HEADS 4 /* at a time, or one */

SL_INLINE void values_any(const struct layout l, const struct span s, uint32_t n, float *acc)
{
    if (n == HEADS)
        values(l, s, HEADS, acc);
    else
        values(l, s, 1, acc);
}

SL_INLINE void values_float(const struct layout l, const float *p, uint32_t n,
                            const struct sl_k_kv *v, float *acc)
{
    for (uint32_t h = 0; h < n;) {
        uint32_t step = n - h >= HEADS ? HEADS : 1;
        struct span s = {v->data, v->head_dim, v->n, p + (uint64_t)h * v->n, v->n, 1, 0};
        values_any(l, s, step, acc + (uint64_t)h * v->head_dim);
        h += step;
    }
}

void sl_k_attn_values_f32__neon(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    values_float((struct layout){load4_f32, load1_f32, 4}, p, n, v, acc);
}

void sl_k_attn_values_f16__neon(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    values_float((struct layout){load4_f16, load1_f16, 2}, p, n, v, acc);
}

#define POSITIONS 32 /* whose scales are multiplied out at a time */
#define GROUPS_MAX (SL_HEAD_DIM_MAX / SL_KV_GROUP)

/* w[j * groups + g] = p[j] * scale[j * groups + g] */
SL_INLINE void weigh(const float *p, const uint16_t *scale, uint32_t n, uint32_t groups, float *w)
{
    for (uint32_t j = 0; j < n; j++, scale += groups, w += groups) {
        uint32_t g = 0;
        for (; g + 4 <= groups; g += 4)
            vst1q_f32(w + g,
                      vmulq_n_f32(vcvt_f32_f16(vld1_f16((const float16_t *)(scale + g))), p[j]));
        for (; g < groups; g++) w[g] = p[j] * half_to_float(scale[g]);
    }
}

void sl_k_attn_values_q8__neon(const float *p, uint32_t n, const struct sl_k_kv *v, float *acc)
{
    const struct layout l = {load4_i8, load1_i8, 1};
    uint32_t groups = groups_of(v->head_dim);
    float w[HEADS * POSITIONS * GROUPS_MAX];
    for (uint32_t first = 0; first < v->n; first += POSITIONS) {
        uint32_t count = v->n - first < POSITIONS ? v->n - first : POSITIONS;
        const uint16_t *scales = v->scales + (uint64_t)first * groups;
        const uint8_t *data = (const uint8_t *)v->data + (uint64_t)first * v->head_dim;
        for (uint32_t h = 0; h < n;) {
            uint32_t step = n - h >= HEADS ? HEADS : 1;
            for (uint32_t i = 0; i < step; i++)
                weigh(p + (uint64_t)(h + i) * v->n + first, scales, count, groups,
                      w + i * count * groups);
            struct span s = {data, v->head_dim, count, w, count * groups, groups, 1};
            values_any(l, s, step, acc + (uint64_t)h * v->head_dim);
            h += step;
        }
    }
}
