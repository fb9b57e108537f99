/* Matrix times vectors for float weights (F32, F16, BF16), for AVX2: the 32 striped lanes are four
 * vectors. A row goes with two activations; with one, F32 goes row by row, as fast as a cache gives
 * it, and what has to be converted goes by two rows. Not more: rows of a few KiB lie so that the
 * first-level cache has few places for the same columns of many (eight at a time: F32 20 G
 * weights/s where this gives 27, one Zen 4 core, November 2026). */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"

#define LANES 32

typedef __m256 load8_fn(const uint8_t *p);
typedef float load1_fn(const uint8_t *p);

/* How weights become floats. */
struct layout {
    load8_fn *load8;
    load1_fn *load1;
    uint32_t bytes; /* of a weight */
    uint32_t rows;  /* times one activation at a time, 1 or 2 */
};

SL_INLINE __m256 load8_f32(const uint8_t *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}
SL_INLINE __m256 load8_f16(const uint8_t *p) { return _mm256_cvtph_ps(load128(p)); }
SL_INLINE __m256 load8_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

SL_INLINE float load1_f32(const uint8_t *p) { return sl_f32_from_bits(sl_load_u32(p)); }
SL_INLINE float load1_f16(const uint8_t *p) { return _cvtsh_ss(sl_load_u16(p)); }
SL_INLINE float load1_bf16(const uint8_t *p) { return sl_bf16_to_f32(sl_load_u16(p)); }

/* The lanes of one row and one activation. */
struct lanes {
    __m256 v[LANES / 8];
};

/* Adds the last n products, fewer than 32, and returns the sum of the lanes. */
SL_INLINE float finish(const struct layout l, const uint8_t *row, const float *x, uint32_t n,
                       struct lanes acc)
{
    if (n > 0) {
        float lanes[LANES];
        for (int i = 0; i < 4; i++) _mm256_storeu_ps(lanes + 8 * i, acc.v[i]);
        for (uint32_t i = 0; i < n; i++)
            lanes[i] = __builtin_fmaf(l.load1(row + i * l.bytes), x[i], lanes[i]);
        for (int i = 0; i < 4; i++) acc.v[i] = _mm256_loadu_ps(lanes + 8 * i);
    }
    return sum_lanes(
        _mm256_add_ps(_mm256_add_ps(acc.v[0], acc.v[2]), _mm256_add_ps(acc.v[1], acc.v[3])));
}

/* What is multiplied at a time: n_rows rows and n_x activations, constants. ahead: address from
 * which as many rows are fetched meanwhile, or 0. */
struct part {
    const uint8_t *row[2];
    const struct sl_k_act *x;
    uint32_t n_rows, n_x, cols;
    uintptr_t ahead;
};

/* y[i][r]: row r times activation i. */
SL_INLINE void part_times(const struct layout l, const struct part p, float y[2][2])
{
    struct lanes acc[2][2];
    uint32_t c = 0;
    for (uint32_t r = 0; r < p.n_rows; r++)
        for (uint32_t i = 0; i < p.n_x; i++)
            for (int k = 0; k < 4; k++) acc[r][i].v[k] = _mm256_setzero_ps();
    for (; c + LANES <= p.cols; c += LANES) {
        for (uint32_t k = 0; p.ahead && k < p.n_rows * LANES * l.bytes; k += 64)
            _mm_prefetch((const char *)(p.ahead + (uint64_t)c * p.n_rows * l.bytes + k),
                         _MM_HINT_T1);
        for (int k = 0; k < 4; k++)
            for (uint32_t r = 0; r < p.n_rows; r++) {
                __m256 w = l.load8(p.row[r] + (uint64_t)(c + 8 * k) * l.bytes);
                for (uint32_t i = 0; i < p.n_x; i++)
                    acc[r][i].v[k] =
                        _mm256_fmadd_ps(w, _mm256_loadu_ps(p.x[i].f + c + 8 * k), acc[r][i].v[k]);
            }
    }
    for (uint32_t i = 0; i < p.n_x; i++)
        for (uint32_t r = 0; r < p.n_rows; r++)
            y[i][r] =
                finish(l, p.row[r] + (uint64_t)c * l.bytes, p.x[i].f + c, p.cols - c, acc[r][i]);
}

/* l.rows rows from r on, the second one perhaps the first again, times one activation. */
SL_INLINE void rows_times(const struct layout l, const struct sl_k_matmul *m, uint32_t r,
                          uint32_t i)
{
    const uint8_t *row = (const uint8_t *)m->w + r * m->row_bytes;
    bool two = l.rows == 2 && r + 1 < m->rows;
    struct part p = {{row, two ? row + m->row_bytes : row}, m->x + i, l.rows, 1, m->cols, 0};
    float y[2][2], *out = m->y + i * m->y_stride + r;
    if (i == 0 && l.rows == 2) p.ahead = (uintptr_t)row + 2 * m->row_bytes;
    part_times(l, p, y);
    out[0] = y[0][0];
    if (two) out[1] = y[0][1];
}

/* Row r times two activations. */
SL_INLINE void row_times(const struct layout l, const struct sl_k_matmul *m, uint32_t r, uint32_t i)
{
    const uint8_t *row = (const uint8_t *)m->w + r * m->row_bytes;
    float y[2][2], *out = m->y + i * m->y_stride + r;
    part_times(l, (struct part){{row}, m->x + i, 1, 2, m->cols, 0}, y);
    out[0] = y[0][0];
    out[m->y_stride] = y[1][0];
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    for (uint32_t r = 0; r < m->rows; r += l.rows) {
        uint32_t i = 0;
        for (; i + 2 <= m->n_tokens; i += 2)
            for (uint32_t k = r; k < r + l.rows && k < m->rows; k++) row_times(l, m, k, i);
        if (i < m->n_tokens) rows_times(l, m, r, i);
    }
}

void sl_k_matmul_f32__avx2(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f32, load1_f32, 4, 1}, m);
}

void sl_k_matmul_f16__avx2(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f16, load1_f16, 2, 2}, m);
}

void sl_k_matmul_bf16__avx2(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_bf16, load1_bf16, 2, 2}, m);
}
