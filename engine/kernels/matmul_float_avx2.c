/* Matrix times vectors for float weights (F32, F16, BF16), for AVX2: the eight striped lanes are
 * one vector per row and activation. Several rows are in flight, since a fused multiply-add has to
 * wait for the one before it. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"

typedef __m256 load8_fn(const uint8_t *p);
typedef float load1_fn(const uint8_t *p);

/* How weights become floats. */
struct layout {
    load8_fn *load8;
    load1_fn *load1;
    uint32_t bytes; /* of a weight */
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

#define ACCS 8 /* sums in flight: rows * activations */

/* Which rows of a tile go together, and with how many activations; constants. */
struct part {
    uint32_t first, n_rows, n_x;
};

/* Adds the elements from c on, fewer than eight, to the lanes and returns their sum. */
SL_INLINE float finish(const struct layout l, const uint8_t *row, const float *x, uint32_t c,
                       uint32_t cols, __m256 acc)
{
    if (c == cols) return sum_lanes(acc);
    float lanes[8];
    _mm256_storeu_ps(lanes, acc);
    for (uint32_t i = 0; c + i < cols; i++)
        lanes[i] = __builtin_fmaf(l.load1(row + (uint64_t)(c + i) * l.bytes), x[c + i], lanes[i]);
    return sum_lanes(_mm256_loadu_ps(lanes));
}

/* out[i * p.n_rows + r] = row p.first + r times activation i. */
SL_INLINE void part_times(const struct layout l, const struct part p, const struct sl_k_matmul *m,
                          const struct tile *t, const struct sl_k_act *x, float out[ACCS])
{
    const uint8_t *const *row = t->row + p.first;
    __m256 acc[ACCS];
    uint32_t c = 0;
    for (uint32_t i = 0; i < p.n_rows * p.n_x; i++) acc[i] = _mm256_setzero_ps();
    for (; c + 8 <= m->cols; c += 8) {
        if (p.first == 0) prefetch_next(t, c / 8, TILE_ROWS * 8 * l.bytes);
        for (uint32_t r = 0; r < p.n_rows; r++) {
            __m256 w = l.load8(row[r] + (uint64_t)c * l.bytes);
            for (uint32_t i = 0; i < p.n_x; i++) {
                __m256 *a = &acc[i * p.n_rows + r];
                *a = _mm256_fmadd_ps(w, _mm256_loadu_ps(x[i].f + c), *a);
            }
        }
    }
    for (uint32_t i = 0; i < p.n_x; i++)
        for (uint32_t r = 0; r < p.n_rows; r++)
            out[i * p.n_rows + r] = finish(l, row[r], x[i].f, c, m->cols, acc[i * p.n_rows + r]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    for (uint32_t first = 0; first < m->rows; first += TILE_ROWS) {
        struct tile t = tile_at(m, first);
        uint32_t i = 0;
        for (; i + 2 <= m->n_tokens; i += 2) {
            float low[ACCS], high[ACCS], *y = m->y + i * m->y_stride + first;
            part_times(l, (struct part){0, 4, 2}, m, &t, m->x + i, low);
            part_times(l, (struct part){4, 4, 2}, m, &t, m->x + i, high);
            store_lanes(y, _mm256_loadu2_m128(high, low), t.n);
            store_lanes(y + m->y_stride, _mm256_loadu2_m128(high + 4, low + 4), t.n);
            t.ahead = AHEAD_NOT; /* once is enough */
        }
        if (i == m->n_tokens) continue;
        float out[ACCS];
        part_times(l, (struct part){0, 8, 1}, m, &t, m->x + i, out);
        store_lanes(m->y + i * m->y_stride + first, _mm256_loadu_ps(out), t.n);
    }
}

void sl_k_matmul_f32__avx2(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f32, load1_f32, 4}, m);
}

void sl_k_matmul_f16__avx2(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_f16, load1_f16, 2}, m);
}

void sl_k_matmul_bf16__avx2(const struct sl_k_matmul *m)
{
    matmul((struct layout){load8_bf16, load1_bf16, 2}, m);
}
