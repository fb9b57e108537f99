/* Matrix times vectors for float weights (F32, F16, BF16), for AVX2: the 32 striped lanes are four
 * vectors. With one activation, F32 goes row by row, as fast as a cache gives it, and what has to
 * be converted goes by two rows; not more, since rows of a few KiB lie so that the first-level
 * cache has few places for the same columns of many (eight at a time: F32 18 to 20 G weights/s
 * where this gives 24 to 27, one Zen 4 core, November 2026). More activations go by four rows and
 * two of them, which leaves registers for one of the four vectors: a stretch of columns is gone
 * through four times (two activations and one row at a time: F32 25, so 32). */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"

#define LANES 32
#define PASS 24     /* activations for all rows: of 2,048 columns, 192 KiB */
#define ROWS 4      /* at a time, with two activations */
#define STRETCH 256 /* columns that four rows and two activations keep in the first-level cache */

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

/* ---- one activation -------------------------------------------------------------------------- */

/* y[r] = row r, of one or two (a constant), times x. ahead: address from which as many rows are
 * fetched meanwhile, or 0. */
SL_INLINE void rows_times(const struct layout l, const uint8_t *const row[2], uint32_t cols,
                          const float *x, uintptr_t ahead, float y[2])
{
    struct lanes acc[2];
    uint32_t c = 0;
    for (uint32_t r = 0; r < l.rows; r++)
        for (int k = 0; k < 4; k++) acc[r].v[k] = _mm256_setzero_ps();
    for (; c + LANES <= cols; c += LANES) {
        for (uint32_t k = 0; ahead && k < l.rows * LANES * l.bytes; k += 64)
            _mm_prefetch((const char *)(ahead + (uint64_t)c * l.rows * l.bytes + k), _MM_HINT_T1);
        for (int k = 0; k < 4; k++)
            for (uint32_t r = 0; r < l.rows; r++)
                acc[r].v[k] = _mm256_fmadd_ps(l.load8(row[r] + (uint64_t)(c + 8 * k) * l.bytes),
                                              _mm256_loadu_ps(x + c + 8 * k), acc[r].v[k]);
    }
    for (uint32_t r = 0; r < l.rows; r++)
        y[r] = finish(l, row[r] + (uint64_t)c * l.bytes, x + c, cols - c, acc[r]);
}

SL_INLINE void matmul_one(const struct layout l, const struct sl_k_matmul *m)
{
    for (uint32_t r = 0; r < m->rows; r += l.rows) {
        const uint8_t *row = (const uint8_t *)m->w + r * m->row_bytes;
        bool two = l.rows == 2 && r + 1 < m->rows;
        const uint8_t *rows[2] = {row, two ? row + m->row_bytes : row};
        uintptr_t ahead = l.rows == 2 ? (uintptr_t)row + 2 * m->row_bytes : 0;
        float y[2];
        rows_times(l, rows, m->cols, m->x->f, ahead, y);
        m->y[r] = y[0];
        if (two) m->y[r + 1] = y[1];
    }
}

/* ---- more of them ---------------------------------------------------------------------------- */

/* [first, end): whole 32s. */
struct columns {
    uint32_t first, end;
};

/* Adds vector k of the lanes of these columns. */
SL_INLINE void add_stretch(const struct layout l, const uint8_t *const row[ROWS],
                           const float *const x[2], struct columns in, int k,
                           struct lanes acc[ROWS][2])
{
    __m256 sum[ROWS][2];
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < 2; i++) sum[r][i] = acc[r][i].v[k];
    for (uint32_t c = in.first + 8 * (uint32_t)k; c < in.end; c += LANES)
        for (uint32_t r = 0; r < ROWS; r++) {
            __m256 w = l.load8(row[r] + (uint64_t)c * l.bytes);
            for (uint32_t i = 0; i < 2; i++)
                sum[r][i] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x[i] + c), sum[r][i]);
        }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < 2; i++) acc[r][i].v[k] = sum[r][i];
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
        for (int v = 0; v < 4; v++) acc[k / 2][k % 2].v[v] = _mm256_setzero_ps();
    for (uint32_t c = 0; c < whole; c += STRETCH) {
        struct columns in = {c, whole - c < STRETCH ? whole : c + STRETCH};
        for (int k = 0; k < 4; k++) add_stretch(l, row, x, in, k, acc);
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
        matmul_one(l, m);
        return;
    }
    for (uint32_t first = 0; first < m->n_tokens; first += PASS)
        for (uint32_t r = 0; r < m->rows; r += ROWS)
            for (uint32_t i = first; i < first + PASS && i < m->n_tokens; i += 2)
                tile_times(l, m, r, i);
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
