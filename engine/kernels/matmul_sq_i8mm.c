/* Matrix times two or more vectors for the container's own weight types, with byte matrix products:
 * pairs_i8mm.h tells how. Two quads of four rows are, sorted, eight columns of two pairs of rows.
 */
#define X_PAIRS 4

#include "engine/kernels/pairs_i8mm.h"

#include "engine/kernels/codes_sq_neon.h"
#include "engine/kernels/kernel_variants.h"

/* A unit of two rows: levels, and m and offsets for columns 0 to 15 and 16 to 31, in the order of
 * the sums. */
struct w_unit {
    int8x16_t level[4];
    int32x4_t m[2], offset[2];
};

/* A unit of two activations: codes, their sums for columns 0 to 15 and 16 to 31. */
struct x_unit {
    int8x16_t q[4];
    int32x4_t sum[2];
    float32x4_t d;
};

SL_INLINE struct x_unit load_x(const struct digits *d, uint64_t b)
{
    struct x_unit out = {.d = scales_x(d, b)};
    codes_x(d, 32 * b, out.q);
    for (uint32_t i = 0; i < 2; i++) out.sum[i] = sums_x(d, 2 * b + i);
    return out;
}

/* The two pairs of rows of half a unit. */
SL_INLINE void sort_half(const struct half_unit *u, struct w_unit out[2])
{
    for (int i = 0; i < 4; i++) {
        int32x4_t a = vreinterpretq_s32_s8(u->level[2 * i]);
        int32x4_t b = vreinterpretq_s32_s8(u->level[2 * i + 1]);
        out[0].level[i] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        out[1].level[i] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
    for (int i = 0; i < 2; i++) {
        out[0].m[i] = vzip1q_s32(u->m[i], u->m[i]);
        out[1].m[i] = vzip2q_s32(u->m[i], u->m[i]);
        out[0].offset[i] = vzip1q_s32(u->offset[i], u->offset[i]);
        out[1].offset[i] = vzip2q_s32(u->offset[i], u->offset[i]);
    }
}

SL_INLINE float32x4_t add_digit(const struct layout l, const struct w_unit *w,
                                const struct x_unit *x, float32x4_t acc)
{
    int32x4_t sum[2];
    for (int i = 0; i < 2; i++) {
        sum[i] = vmmlaq_s32(vdupq_n_s32(0), w->level[2 * i], x->q[2 * i]);
        sum[i] = vmmlaq_s32(sum[i], w->level[2 * i + 1], x->q[2 * i + 1]);
    }
    int32x4_t isum;
    if (l.group == 32) {
        int32x4_t all = vaddq_s32(x->sum[0], x->sum[1]);
        isum = vmulq_s32(vmlsq_s32(vaddq_s32(sum[0], sum[1]), w->offset[0], all), w->m[0]);
    } else {
        isum = vmulq_s32(vmlsq_s32(sum[0], w->offset[0], x->sum[0]), w->m[0]);
        isum = vmlaq_s32(isum, vmlsq_s32(sum[1], w->offset[1], x->sum[1]), w->m[1]);
    }
    return vfmaq_f32(acc, x->d, vcvtq_f32_s32(isum));
}

/* Unit b of a band times a pass: added to acc. */
SL_INLINE void unit_times(const struct layout l, const struct w_unit w[ROW_PAIRS], uint64_t b,
                          const struct x_pairs *p, float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    for (uint32_t j = 0; j < p->pairs; j++) {
        struct digits d = first_digits(p->x + 2 * j);
        struct x_unit x = load_x(&d, b);
        for (uint32_t r = 0; r < ROW_PAIRS; r++) acc[r][j] = add_digit(l, &w[r], &x, acc[r][j]);
        if (!p->second || !have_second(p->x + 2 * j, b)) continue;
        d = second_digits(p->x + 2 * j, b);
        x = load_x(&d, b);
        for (uint32_t r = 0; r < ROW_PAIRS; r++)
            acc[r][j] = vbslq_f32(d.has, add_digit(l, &w[r], &x, acc[r][j]), acc[r][j]);
    }
}

/* A band and the tables of its type. */
struct band {
    const uint8_t *at;
    struct tables tables;
};

SL_INLINE void band_times(const struct layout l, const struct sl_k_matmul *m,
                          const struct band *band, const struct x_pairs *p,
                          float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    const uint32_t scales_at = l.bits * 32, unit_bytes = scales_at + (l.group == 16 ? 16 : 8);
    const uint8_t *unit = band->at + SL_SQ_ROW_SCALE_BYTES;
    float32x4_t d[ROW_PAIRS];
    for (uint32_t r = 0; r < ROW_PAIRS; r++)
        for (uint32_t j = 0; j < p->pairs; j++) acc[r][j] = vdupq_n_f32(0.0f);
    for (uint64_t b = 0; b < m->cols / SL_SQ_UNIT_COLS; b++, unit += unit_bytes) {
        struct w_unit w[ROW_PAIRS];
        struct scales s = unpack_scales(l, unit + scales_at);
        for (int half = 0; half < 2; half++) {
            struct half_unit u = unpack_half(l, unit, &s, &band->tables, half);
            sort_half(&u, w + 2 * half);
        }
        unit_times(l, w, b, p, acc);
    }
    spread_rows(row_scales(band->at, 0), row_scales(band->at, 1), d);
    for (uint32_t r = 0; r < ROW_PAIRS; r++)
        for (uint32_t j = 0; j < p->pairs; j++) acc[r][j] = vmulq_f32(d[r], acc[r][j]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % SL_SQ_UNIT_COLS == 0);
    struct band band = {.tables = make_tables(l.bits, levels)};
    float32x4_t acc[ROW_PAIRS][X_PAIRS];
    for (uint32_t r = 0; r < m->rows; r += SL_SQ_BAND_ROWS) {
        uint32_t rows = m->rows - r < SL_SQ_BAND_ROWS ? m->rows - r : SL_SQ_BAND_ROWS;
        band.at = (const uint8_t *)m->w + r * m->row_bytes;
        for (uint32_t first = 0; first < m->n_tokens; first += 2 * X_PAIRS) {
            struct x_pairs p = pairs_at(m, first);
            band_times(l, m, &band, &p, acc);
            store_pairs(m, m->y + first * m->y_stride + r, rows, &p, acc);
        }
    }
}

#define MATMUL(name, type, ...)                                                                    \
    void sl_k_matmul_##name##__i8mm(const struct sl_k_matmul *m)                                   \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul_##name##__dotprod(m);                                                      \
        else                                                                                       \
            matmul((struct layout){__VA_ARGS__}, m, sl_sq_info(type)->levels);                     \
    }

SL_FOR_TYPES_SQ(MATMUL)
