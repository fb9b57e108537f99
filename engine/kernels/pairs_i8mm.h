/* What the kernels with byte matrix products (SMMLA) share. One instruction multiplies eight codes
 * of two rows by eight codes of two activations: a vector of sums holds row 0 times activation 0,
 * row 0 times activation 1, then the same of row 1. Scales are spread to that order, and the floats
 * of each lane run in the order of the scalar definition. A single activation gains nothing from
 * this: those products are left to the kernels for SDOT. */
#ifndef SL_PAIRS_I8MM_H
#define SL_PAIRS_I8MM_H

#ifndef __ARM_FEATURE_MATMUL_INT8
#error "compile with -march=armv8.2-a+dotprod+i8mm"
#endif

#include "engine/kernels/simd_neon.h"

#define ROW_PAIRS 4 /* a tile is eight rows */
/* Defined by whoever includes this: X_PAIRS, how many pairs of activations a pass takes at most. */

/* Rows of the tile at hand; beyond the last row of the matrix the last one is repeated. */
struct rows8 {
    const uint8_t *row[2 * ROW_PAIRS];
    uint32_t n; /* rows that count, 1..8 */
};

SL_INLINE struct rows8 rows8_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct rows8 t;
    t.n = m->rows - first < 2 * ROW_PAIRS ? m->rows - first : 2 * ROW_PAIRS;
    for (uint32_t i = 0; i < 2 * ROW_PAIRS; i++) {
        uint32_t r = i < t.n ? first + i : m->rows - 1;
        t.row[i] = (const uint8_t *)m->w + r * m->row_bytes;
    }
    return t;
}

/* Activations of one pass: pairs of them, the last one perhaps paired with itself. */
struct x_pairs {
    const struct sl_k_act *x[2 * X_PAIRS];
    uint32_t n;     /* that count */
    uint32_t pairs; /* 1 to X_PAIRS */
    bool second;    /* some may have a second digit */
};

SL_INLINE struct x_pairs pairs_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct x_pairs p;
    p.n = m->n_tokens - first < 2 * X_PAIRS ? m->n_tokens - first : 2 * X_PAIRS;
    p.pairs = (p.n + 1) / 2;
    for (uint32_t i = 0; i < 2 * X_PAIRS; i++) p.x[i] = m->x + first + (i < p.n ? i : p.n - 1);
    p.second = any_second(m->x + first, p.n);
    return p;
}

/* One digit of two activations. */
struct digits {
    struct sl_k_digit x[2];
    uint32x4_t has; /* lanes that have this digit */
};

SL_INLINE struct digits first_digits(const struct sl_k_act *const x[2])
{
    struct digits d;
    for (int i = 0; i < 2; i++) d.x[i] = (struct sl_k_digit){x[i]->q, x[i]->d, x[i]->sums};
    d.has = vdupq_n_u32(UINT32_MAX);
    return d;
}

SL_INLINE bool have_second(const struct sl_k_act *const x[2], uint64_t b)
{
    return has_second(x[0], b) || has_second(x[1], b);
}

/* Of a block in which at least one of two has a second digit; the other stands in with its first,
 * and its lanes are to be left as they are. */
SL_INLINE struct digits second_digits(const struct sl_k_act *const x[2], uint64_t b)
{
    struct digits d = first_digits(x);
    uint32_t has[2];
    for (int i = 0; i < 2; i++) {
        has[i] = has_second(x[i], b) ? UINT32_MAX : 0;
        if (has[i] != 0) d.x[i] = x[i]->second;
    }
    d.has = vreinterpretq_u32_u64(vdupq_n_u64((uint64_t)has[1] << 32 | has[0]));
    return d;
}

/* Two numbers, one of each activation, in the order of the sums. */
SL_INLINE int32x4_t spread_x(int32_t a, int32_t b)
{
    return vreinterpretq_s32_u64(vdupq_n_u64((uint64_t)(uint32_t)b << 32 | (uint32_t)a));
}

SL_INLINE float32x4_t scales_x(const struct digits *d, uint64_t b)
{
    uint64_t low = sl_f32_bits(d->x[0].d[b]), high = sl_f32_bits(d->x[1].d[b]);
    return vreinterpretq_f32_u64(vdupq_n_u64(high << 32 | low));
}

/* Sums of 16 codes, number at of each. */
SL_INLINE int32x4_t sums_x(const struct digits *d, uint64_t at)
{
    return spread_x(d->x[0].sums[at], d->x[1].sums[at]);
}

/* 32 codes from number at on: out[i] has codes 8 i to 8 i + 7 of the first, then of the second. */
SL_INLINE void codes_x(const struct digits *d, uint64_t at, int8x16_t out[4])
{
    for (int i = 0; i < 2; i++) {
        int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(d->x[0].q + at + 16 * i));
        int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(d->x[1].q + at + 16 * i));
        out[2 * i] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
        out[2 * i + 1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
    }
}

/* The same of two rows' 32 codes. */
SL_INLINE void pair_rows(const int8x16_t a[2], const int8x16_t b[2], int8x16_t out[4])
{
    for (int i = 0; i < 2; i++) {
        int64x2_t x = vreinterpretq_s64_s8(a[i]), y = vreinterpretq_s64_s8(b[i]);
        out[2 * i] = vreinterpretq_s8_s64(vzip1q_s64(x, y));
        out[2 * i + 1] = vreinterpretq_s8_s64(vzip2q_s64(x, y));
    }
}

/* Numbers of eight rows, in two vectors, in the order of the sums: one vector for each pair. */
SL_INLINE void spread_rows(float32x4_t low, float32x4_t high, float32x4_t out[ROW_PAIRS])
{
    out[0] = vzip1q_f32(low, low);
    out[1] = vzip2q_f32(low, low);
    out[2] = vzip1q_f32(high, high);
    out[3] = vzip2q_f32(high, high);
}

/* Writes a tile's results: y points to its first row, of the first activation. */
SL_INLINE void store_pairs(const struct sl_k_matmul *m, float *y, uint32_t rows,
                           const struct x_pairs *p, float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    for (uint32_t i = 0; i < p->n; i++) {
        float lanes[2 * ROW_PAIRS];
        for (uint32_t r = 0; r < ROW_PAIRS; r++) {
            float of_pair[4];
            vst1q_f32(of_pair, acc[r][i / 2]);
            lanes[2 * r] = of_pair[i % 2];
            lanes[2 * r + 1] = of_pair[2 + i % 2];
        }
        memcpy(y + i * m->y_stride, lanes, rows * sizeof *y);
    }
}

#endif
