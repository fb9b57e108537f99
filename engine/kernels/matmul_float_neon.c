/* Matrix times vectors for float weights (F32, F16, BF16), for NEON: the 32 striped lanes are eight
 * vectors, which is as many as fused multiply-adds are in flight. One activation goes row by row;
 * more go by four rows and two of them, which leaves registers for two of the eight vectors: a
 * stretch of columns is gone through four times. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_neon.h"

/* Eight weights, and one. */
typedef float32x4x2_t load8_fn(const uint8_t *p);
typedef float load1_fn(const uint8_t *p);

/* How weights become floats. */
struct layout {
    load8_fn *load8;
    load1_fn *load1;
    uint32_t bytes; /* of a weight */
};

SL_INLINE float32x4x2_t load8_f32(const uint8_t *p)
{
    float32x4x2_t w = {{vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))}};
    return w;
}

SL_INLINE float32x4x2_t load8_f16(const uint8_t *p)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
    float32x4x2_t w = {{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
    return w;
}

SL_INLINE float32x4x2_t load8_bf16(const uint8_t *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
    float32x4x2_t w = {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                        vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))}};
    return w;
}

SL_INLINE float load1_f32(const uint8_t *p) { return sl_f32_from_bits(sl_load_u32(p)); }
SL_INLINE float load1_f16(const uint8_t *p) { return half_to_float(sl_load_u16(p)); }
SL_INLINE float load1_bf16(const uint8_t *p) { return sl_bf16_to_f32(sl_load_u16(p)); }

#define LANES 32
#define PASS 8      /* activations for all rows: of 2,048 columns, 64 KiB */
#define ROWS 4      /* at a time, with two activations */
#define STRETCH 256 /* columns that four rows and two activations keep in the first-level cache */

/* The lanes of one row and one activation. */
struct lanes {
    float32x4_t v[LANES / 4];
};

/* Adds the last n products, fewer than 32, and returns the sum of the lanes. */
SL_INLINE float finish(const struct layout l, const uint8_t *row, const float *x, uint32_t n,
                       struct lanes acc)
{
    if (n > 0) {
        float lanes[LANES];
        for (int i = 0; i < 8; i++) vst1q_f32(lanes + 4 * i, acc.v[i]);
        for (uint32_t i = 0; i < n; i++)
            lanes[i] = __builtin_fmaf(l.load1(row + i * l.bytes), x[i], lanes[i]);
        for (int i = 0; i < 8; i++) acc.v[i] = vld1q_f32(lanes + 4 * i);
    }
    for (int i = 0; i < 4; i++) acc.v[i] = vaddq_f32(acc.v[i], acc.v[i + 4]);
    return sum_lanes(vaddq_f32(acc.v[0], acc.v[2]), vaddq_f32(acc.v[1], acc.v[3]));
}

SL_INLINE float row_times(const struct layout l, const uint8_t *row, uint32_t cols, const float *x)
{
    struct lanes acc;
    uint32_t c = 0;
    for (int k = 0; k < 8; k++) acc.v[k] = vdupq_n_f32(0.0f);
    for (; c + LANES <= cols; c += LANES)
        for (uint32_t k = 0; k < 8; k += 2) {
            float32x4x2_t w = l.load8(row + (uint64_t)(c + 4 * k) * l.bytes);
            acc.v[k] = vfmaq_f32(acc.v[k], w.val[0], vld1q_f32(x + c + 4 * k));
            acc.v[k + 1] = vfmaq_f32(acc.v[k + 1], w.val[1], vld1q_f32(x + c + 4 * k + 4));
        }
    return finish(l, row + (uint64_t)c * l.bytes, x + c, cols - c, acc);
}

/* [first, end): whole 32s. */
struct columns {
    uint32_t first, end;
};

/* Adds vectors k and k + 1 of the lanes of these columns. */
SL_INLINE void add_stretch(const struct layout l, const uint8_t *const row[ROWS],
                           const float *const x[2], struct columns in, uint32_t k,
                           struct lanes acc[ROWS][2])
{
    float32x4_t low[ROWS][2], high[ROWS][2];
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < 2; i++) {
            low[r][i] = acc[r][i].v[k];
            high[r][i] = acc[r][i].v[k + 1];
        }
    for (uint32_t c = in.first + 4 * k; c < in.end; c += LANES)
        for (uint32_t r = 0; r < ROWS; r++) {
            float32x4x2_t w = l.load8(row[r] + (uint64_t)c * l.bytes);
            for (uint32_t i = 0; i < 2; i++) {
                low[r][i] = vfmaq_f32(low[r][i], w.val[0], vld1q_f32(x[i] + c));
                high[r][i] = vfmaq_f32(high[r][i], w.val[1], vld1q_f32(x[i] + c + 4));
            }
        }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < 2; i++) {
            acc[r][i].v[k] = low[r][i];
            acc[r][i].v[k + 1] = high[r][i];
        }
}

/* Rows from r on times activations i and i + 1; beyond the last row, or the last activation, that
 * one is repeated. */
SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, uint32_t r,
                          uint32_t i)
{
    uint32_t n_rows = m->rows - r < ROWS ? m->rows - r : ROWS, n_x = i + 1 < m->n_tokens ? 2 : 1;
    uint32_t whole = m->cols / LANES * LANES;
    const float *x[2] = {m->x[i].f, m->x[i + n_x - 1].f};
    const uint8_t *row[ROWS];
    struct lanes acc[ROWS][2];
    for (uint32_t k = 0; k < ROWS; k++)
        row[k] = (const uint8_t *)m->w + (r + (k < n_rows ? k : n_rows - 1)) * m->row_bytes;
    for (uint32_t k = 0; k < ROWS * 2; k++)
        for (int v = 0; v < 8; v++) acc[k / 2][k % 2].v[v] = vdupq_n_f32(0.0f);
    for (uint32_t c = 0; c < whole; c += STRETCH) {
        struct columns in = {c, whole - c < STRETCH ? whole : c + STRETCH};
        for (uint32_t k = 0; k < 8; k += 2) add_stretch(l, row, x, in, k, acc);
    }
    for (uint32_t t = 0; t < n_x; t++)
        for (uint32_t k = 0; k < n_rows; k++)
            m->y[(i + t) * m->y_stride + r + k] = finish(l, row[k] + (uint64_t)whole * l.bytes,
                                                         x[t] + whole, m->cols - whole, acc[k][t]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    if (m->n_tokens == 1) {
        for (uint32_t r = 0; r < m->rows; r++)
            m->y[r] = row_times(l, (const uint8_t *)m->w + r * m->row_bytes, m->cols, m->x->f);
        return;
    }
    for (uint32_t first = 0; first < m->n_tokens; first += PASS)
        for (uint32_t r = 0; r < m->rows; r += ROWS)
            for (uint32_t i = first; i < first + PASS && i < m->n_tokens; i += 2)
                tile_times(l, m, r, i);
}

void sl_k_matmul_f32__neon(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f32, load1_f32, 4}, m);
}

void sl_k_matmul_f16__neon(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f16, load1_f16, 2}, m);
}

void sl_k_matmul_bf16__neon(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_bf16, load1_bf16, 2}, m);
}
