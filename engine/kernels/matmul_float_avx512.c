/* Matrix times vectors for float weights (F32, F16, BF16), for AVX-512: the 32 striped lanes are
 * two vectors, the first and the second sixteen; or, for BF16, those with even and those with odd
 * numbers, since 32 weights fall apart into these by a shift and a mask. Four rows times up to
 * three activations are in flight, since a fused multiply-add has to wait for the one before it.
 *
 * One activation, 512 KiB of weights, one Zen 4 core (G weights/s, November and December 2026): F32
 * row by row 26, which is what the second-level cache gives, in fours 20 to 23. BF16 in fours 50;
 * with every line asked for ahead 42, every other 48, since the second-level cache looks each up:
 * from memory that is worth 24 and 23 GB/s against 22 for one thread, and some 3 % for two that
 * share one memory; but for rows of less than a page 20 against 14. In sixes 46, in eights less,
 * since rows that are 4 KiB apart meet in one set of the first-level cache. With 64 activations F32
 * 48, two rows by four activations 38. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx512.h"

#define LANES 32
#define ROWS 4          /* at a time */
#define MANY 3          /* activations at a time */
#define PASS 24         /* activations for all rows: of 2,048 columns, 192 KiB */
#define APART_COLS 4096 /* of BF16, for one activation: 16 KiB on the stack */
#define PAGE 4096       /* the processor itself fetches ahead, but only within a page */

struct lanes {
    __m512 v[2];
};

/* n weights, at most 32; the others are not read, and 0. */
typedef struct lanes load_fn(const uint8_t *p, uint32_t n);

/* How weights become floats. */
struct layout {
    load_fn *load;
    uint32_t bytes; /* of a weight */
    bool by_parity;
    bool x_by_parity; /* activations too, even and odd in turn, sixteen each */
    uint32_t fetch;   /* one activation: of so many bytes ahead a line is asked for */
    bool row_by_row;  /* one activation: no conversion hides behind other rows */
};

/* Of n elements, at most 32, those that belong to each vector. */
struct masks {
    __mmask16 v[2];
};

SL_INLINE __mmask32 first32(uint32_t n) { return (__mmask32)(((uint64_t)1 << n) - 1); }

SL_INLINE struct masks masks_of(bool by_parity, uint32_t n)
{
    __mmask32 k = first32(n);
    if (!by_parity) return (struct masks){{(__mmask16)k, (__mmask16)(k >> 16)}};
    return (struct masks){{lanes512((n + 1) / 2), lanes512(n / 2)}};
}

/* Floats in order. */
SL_INLINE struct lanes load_floats(const void *p, uint32_t n)
{
    const float *f = p;
    struct masks k = masks_of(false, n);
    return (struct lanes){
        {_mm512_maskz_loadu_ps(k.v[0], f), _mm512_maskz_loadu_ps(k.v[1], f + 16)}};
}

SL_INLINE struct lanes load_f32(const uint8_t *p, uint32_t n) { return load_floats(p, n); }

SL_INLINE struct lanes load_f16(const uint8_t *p, uint32_t n)
{
    __m512i h = _mm512_maskz_loadu_epi16(first32(n), p);
    return (struct lanes){{_mm512_cvtph_ps(_mm512_castsi512_si256(h)),
                           _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1))}};
}

SL_INLINE struct lanes bf16_lanes(__m512i h)
{
    __m512i odd = _mm512_and_si512(h, _mm512_set1_epi32((int)0xffff0000));
    return (struct lanes){
        {_mm512_castsi512_ps(_mm512_slli_epi32(h, 16)), _mm512_castsi512_ps(odd)}};
}

SL_INLINE struct lanes load_bf16(const uint8_t *p, uint32_t n)
{
    return bf16_lanes(_mm512_maskz_loadu_epi16(first32(n), p));
}

/* The same, loaded once: gcc would load once to shift and once to mask, which is faster only where
 * many activations hide it. */
SL_INLINE struct lanes load_bf16_once(const uint8_t *p, uint32_t n)
{
    __m512i h = _mm512_maskz_loadu_epi16(first32(n), p);
    __asm__("" : "+v"(h));
    return bf16_lanes(h);
}

/* Even and odd from first and second sixteen, and back. */
SL_INLINE struct lanes apart(struct lanes x)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return (struct lanes){{_mm512_permutex2var_ps(x.v[0], even, x.v[1]),
                           _mm512_permutex2var_ps(x.v[0], odd, x.v[1])}};
}

SL_INLINE struct lanes together(struct lanes x)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    return (struct lanes){{_mm512_permutex2var_ps(x.v[0], low, x.v[1]),
                           _mm512_permutex2var_ps(x.v[0], high, x.v[1])}};
}

/* What is multiplied at a time: n_rows rows and n_x activations, constants. ahead: address from
 * which as many rows are fetched meanwhile, or 0. */
struct part {
    const uint8_t *row[ROWS];
    const struct sl_k_act *x;
    uint32_t n_rows, n_x, cols;
    uintptr_t ahead;
};

/* Adds the products of n columns from c on; n is 32 but at the end. */
SL_INLINE void add_columns(const struct layout l, const struct part *p, uint32_t c, uint32_t n,
                           struct lanes acc[ROWS][MANY])
{
    struct masks k = masks_of(l.by_parity, n);
    struct lanes xs[MANY];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < p->n_x; i++) {
        xs[i] = load_floats(p->x[i].f + c, l.x_by_parity ? LANES : n);
        if (l.by_parity && !l.x_by_parity) xs[i] = apart(xs[i]);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < p->n_rows; r++) {
        struct lanes wr = l.load(p->row[r] + (uint64_t)c * l.bytes, n);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < p->n_x; i++)
            for (int h = 0; h < 2; h++)
                acc[r][i].v[h] =
                    n == LANES ? _mm512_fmadd_ps(wr.v[h], xs[i].v[h], acc[r][i].v[h])
                               : _mm512_mask3_fmadd_ps(wr.v[h], xs[i].v[h], acc[r][i].v[h], k.v[h]);
    }
}

/* y[i * y_stride + r]: row r times activation i. */
SL_INLINE void part_times(const struct layout l, const struct part p, float *y, uint64_t y_stride,
                          uint32_t n_out)
{
    struct lanes acc[ROWS][MANY];
    uint32_t c = 0;
#pragma GCC unroll 4
    for (uint32_t r = 0; r < p.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < p.n_x; i++) acc[r][i].v[0] = acc[r][i].v[1] = _mm512_setzero_ps();
    for (; c + LANES <= p.cols; c += LANES) {
        if (p.ahead)
            for (uint32_t k = 0; k < p.n_rows * LANES * l.bytes; k += l.fetch)
                _mm_prefetch((const char *)(p.ahead + (uint64_t)c * p.n_rows * l.bytes + k),
                             _MM_HINT_T1);
        add_columns(l, &p, c, LANES, acc);
    }
    if (c < p.cols) add_columns(l, &p, c, p.cols - c, acc);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < p.n_x; i++)
#pragma GCC unroll 4
        for (uint32_t r = 0; r < p.n_rows; r++) {
            struct lanes a = l.by_parity ? together(acc[r][i]) : acc[r][i];
            __m512 half = _mm512_add_ps(a.v[0], a.v[1]);
            float sum = sum_lanes(
                _mm256_add_ps(_mm512_castps512_ps256(half), _mm512_extractf32x8_ps(half, 1)));
            if (r < n_out) y[i * y_stride + r] = sum;
        }
}

/* ROWS rows from r on times the activations of a pass; beyond the last row of the matrix the last
 * one is repeated. */
SL_INLINE void rows_times(const struct layout l, const struct sl_k_matmul *m, uint32_t r)
{
    struct part p = {.x = m->x, .n_rows = ROWS, .n_x = MANY, .cols = m->cols};
    uint32_t n = m->rows - r < ROWS ? m->rows - r : ROWS, i = 0;
    float *y = m->y + r;
    for (uint32_t k = 0; k < ROWS; k++)
        p.row[k] = (const uint8_t *)m->w + (k < n ? r + k : m->rows - 1) * m->row_bytes;
    for (; i + MANY <= m->n_tokens; i += MANY, p.x += MANY)
        part_times(l, p, y + i * m->y_stride, m->y_stride, n);
    for (p.n_x = 1; i < m->n_tokens; i++, p.x++) {
        p.ahead = i == 0 ? (uintptr_t)p.row[0] + ROWS * m->row_bytes : 0;
        part_times(l, p, y + i * m->y_stride, m->y_stride, n);
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    if (l.row_by_row && m->n_tokens == 1) {
        for (uint32_t r = 0; r < m->rows; r++) {
            const uint8_t *row = (const uint8_t *)m->w + r * m->row_bytes;
            part_times(l, (struct part){{row}, m->x, 1, 1, m->cols, 0}, m->y + r, m->y_stride, 1);
        }
        return;
    }
    for (uint32_t i = 0; i < m->n_tokens; i += PASS) {
        struct sl_k_matmul pass = *m;
        pass.x += i;
        pass.y += i * m->y_stride;
        pass.n_tokens = m->n_tokens - i < PASS ? m->n_tokens - i : PASS;
        for (uint32_t r = 0; r < m->rows; r += ROWS) rows_times(l, &pass, r);
    }
}

/* The activation's elements, even and odd in turn, sixteen each; the last ones filled with 0. */
SL_INLINE void spread(const struct sl_k_matmul *m, float f[APART_COLS])
{
    for (uint32_t c = 0; c < m->cols; c += LANES) {
        uint32_t n = m->cols - c < LANES ? m->cols - c : LANES;
        struct lanes v = apart(load_floats(m->x->f + c, n));
        _mm512_storeu_ps(f + c, v.v[0]);
        _mm512_storeu_ps(f + c + 16, v.v[1]);
    }
}

void sl_k_matmul_f32__avx512(const struct sl_k_matmul *m)
{
    matmul((struct layout){.load = load_f32, .bytes = 4, .fetch = 64, .row_by_row = true}, m);
}

void sl_k_matmul_f16__avx512(const struct sl_k_matmul *m)
{
    matmul((struct layout){.load = load_f16, .bytes = 2, .fetch = 64}, m);
}

/* One activation falls apart once for all rows, in place of once for every four. A layout is a
 * constant wherever it is used, so that each call is a kernel of its own. */
void sl_k_matmul_bf16__avx512(const struct sl_k_matmul *m)
{
    const struct layout many = {.load = load_bf16, .bytes = 2, .by_parity = true, .fetch = 64};
    struct layout one = many;
    float f[APART_COLS];
    struct sl_k_act x = {.f = f};
    struct sl_k_matmul alone = *m;
    if (m->n_tokens > 1 || m->cols > APART_COLS) {
        matmul(many, m);
        return;
    }
    spread(m, f);
    alone.x = &x;
    one.load = load_bf16_once;
    one.x_by_parity = true;
    if (m->row_bytes < PAGE) {
        matmul(one, &alone);
    } else {
        one.fetch = 256;
        matmul(one, &alone);
    }
}
