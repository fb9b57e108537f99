/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS), for AVX-512 with
 * VNNI and VBMI.
 *
 * A block of 32 rows is unpacked (kquant_wide_avx512.h) into a buffer that stays in the first-level
 * cache while many activations pass over it. A lane is a row: everything is a vector over rows,
 * scales and float arithmetic too, and no sum is ever taken across lanes. Activations are taken by
 * passes that the second-level cache holds, over all rows of the call.
 *
 * What bounds this is the number of multiplications, of which one starts in a cycle. So sums begin
 * with what the codes' bias adds, and Q3_K, whose products of scale and code are bytes, has the
 * scales in its levels where there are activations enough to pay for that. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/kquant_wide_avx512.h"

#define TILES 2 /* of sixteen rows */
#define ROWS (TILES * WIDE_ROWS)
#define AT_ONCE 8     /* activations for which a level is loaded once, at most */
#define PASS_MOST 192 /* activations for which rows are unpacked once */
#define MANY 16       /* activations for which preparing more pays */

typedef void unpack_fn(const struct tile16 *t, uint64_t at, struct wide *out);

enum sums {
    BY_32,   /* a scale for each 32 columns */
    BY_16,   /* for each 16 */
    BY_16_2, /* the same, and a sum, less the bias, fits 16 bits: two go together */
    FOLDED   /* the levels are multiplied already */
};

struct layout {
    unpack_fn *unpack;
    uint32_t block_bytes;
    enum sums sums;
    bool minima;
    int bias;       /* of the levels */
    uint32_t least; /* activations for which all this pays; for 2 or 3 there is the AVX2 variant */
};

/* ---- sums ------------------------------------------------------------------------------------ */

/* A block of some activations. */
struct x_block {
    const int8_t *q[AT_ONCE];
    float d[AT_ONCE];
    int32_t start[AT_ONCE][16]; /* -bias * sum of the codes that meet a scale */
    int16_t sums[AT_ONCE][16];  /* of the codes that meet a minimum */
};

/* Block b of one digit becomes number i. */
SL_INLINE void load_x(const struct layout l, struct sl_k_digit x, uint64_t b, uint32_t i,
                      struct x_block *out)
{
    __m256i sums = load256(x.sums + 16 * b);
    __m256i by_32 = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
    out->q[i] = x.q + 256 * b;
    out->d[i] = x.d[b];
    if (l.minima && l.sums == BY_32)
        sums = _mm256_permute4x64_epi64(_mm256_packs_epi32(by_32, by_32), 0x88);
    if (l.minima) _mm256_storeu_si256((__m256i *)(void *)out->sums[i], sums);
    if (!l.bias || l.sums == FOLDED) return;
    __m512i start = l.sums == BY_32 ? _mm512_castsi256_si512(by_32) : _mm512_cvtepi16_epi32(sums);
    start = _mm512_mullo_epi32(start, _mm512_set1_epi32(-l.bias));
    _mm512_storeu_si512(out->start[i], start);
}

/* What is multiplied: a block of n_tiles times sixteen rows, and of n activations; both numbers are
 * constants. */
struct factors {
    const struct wide *w;
    uint32_t n_tiles;
    const struct x_block *x;
    uint32_t n;
};

/* Where the sums with scale number i begin. */
SL_INLINE void begin(const struct layout l, const struct factors f, uint32_t i,
                     __m512i sum[AT_ONCE][TILES])
{
#pragma GCC unroll 8
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 2
        for (uint32_t t = 0; t < f.n_tiles; t++)
            sum[k][t] = l.bias ? _mm512_set1_epi32(f.x->start[k][i]) : _mm512_setzero_si512();
}

/* Adds products of n_quads quads (a constant) from first on. */
SL_INLINE void add_quads(const struct factors f, uint32_t first, uint32_t n_quads,
                         __m512i sum[AT_ONCE][TILES])
{
#pragma GCC unroll 8
    for (uint32_t i = first; i < first + n_quads; i++)
#pragma GCC unroll 8
        for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 2
            for (uint32_t t = 0; t < f.n_tiles; t++)
                sum[k][t] = dot512(sum[k][t], f.w[t].level[i], f.x->q[k] + 4 * i);
}

/* isum += the sums of n_quads quads times scale number i. */
SL_INLINE void add_scaled(const struct layout l, const struct factors f, uint32_t i,
                          uint32_t n_quads, __m512i isum[AT_ONCE][TILES])
{
    __m512i sum[AT_ONCE][TILES];
    begin(l, f, i, sum);
    add_quads(f, i * n_quads, n_quads, sum);
#pragma GCC unroll 8
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 2
        for (uint32_t t = 0; t < f.n_tiles; t++)
            isum[k][t] =
                _mm512_add_epi32(isum[k][t], _mm512_mullo_epi32(sum[k][t], f.w[t].scale[i]));
}

/* The same of both scales of group g, whose sums share a lane. */
SL_INLINE void add_pairs(const struct layout l, const struct factors f, uint32_t g,
                         __m512i isum[AT_ONCE][TILES])
{
    __m512i low[AT_ONCE][TILES], high[AT_ONCE][TILES];
    begin(l, f, 2 * g, low);
    begin(l, f, 2 * g + 1, high);
    add_quads(f, 8 * g, 4, low);
    add_quads(f, 8 * g + 4, 4, high);
#pragma GCC unroll 8
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 2
        for (uint32_t t = 0; t < f.n_tiles; t++)
            isum[k][t] =
                _mm512_dpwssd_epi32(isum[k][t], pair_words(low[k][t], high[k][t]), f.w[t].scale[g]);
}

SL_INLINE void add_group(const struct layout l, const struct factors f, uint32_t g,
                         __m512i isum[AT_ONCE][TILES])
{
    if (l.sums == BY_16_2) {
        add_pairs(l, f, g, isum);
    } else if (l.sums == BY_32) {
        add_scaled(l, f, g, 8, isum);
    } else {
        add_scaled(l, f, 2 * g, 4, isum);
        add_scaled(l, f, 2 * g + 1, 4, isum);
    }
}

/* What the minima of tile t take from activation k. */
SL_INLINE __m512 less_minima(const struct layout l, const struct factors f, uint32_t k, uint32_t t,
                             __m512 acc)
{
    const uint32_t n_pairs = l.sums == BY_32 ? 4 : 8;
    __m512i sum = _mm512_setzero_si512();
    __m512 d = _mm512_mul_ps(f.w[t].dmin, _mm512_set1_ps(f.x->d[k]));
#pragma GCC unroll 8
    for (uint32_t p = 0; p < n_pairs; p++)
        sum = _mm512_dpwssd_epi32(sum, f.w[t].pair[p], spread512(f.x->sums[k] + 2 * p));
    return _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(sum), acc);
}

/* Where sums go: of activation k to acc[at[k]]. */
struct goal {
    __m512 (*acc)[TILES];
    const uint8_t *at;
};

/* The product is added to these. */
SL_INLINE void block_times(const struct layout l, const struct factors f, const struct goal goal)
{
    __m512i isum[AT_ONCE][TILES];
    if (l.sums == FOLDED) {
        begin(l, f, 0, isum);
#pragma GCC unroll 1
        for (uint32_t i = 0; i < 8 * GROUPS; i += 8) add_quads(f, i, 8, isum);
    } else {
        for (uint32_t k = 0; k < f.n; k++)
            for (uint32_t t = 0; t < f.n_tiles; t++) isum[k][t] = _mm512_setzero_si512();
#pragma GCC unroll 1
        for (uint32_t g = 0; g < GROUPS; g++) add_group(l, f, g, isum);
    }
#pragma GCC unroll 8
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 2
        for (uint32_t t = 0; t < f.n_tiles; t++) {
            __m512 d = _mm512_mul_ps(f.w[t].d, _mm512_set1_ps(f.x->d[k])),
                   *to = &goal.acc[goal.at[k]][t];
            *to = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(isum[k][t]), *to);
            if (l.minima) *to = less_minima(l, f, k, t, *to);
        }
}

/* The same for all tiles and n activations: together, or, where sums take twice as many registers,
 * one after the other. */
SL_INLINE void tiles_times(const struct layout l, const struct wide w[TILES],
                           const struct x_block *x, uint32_t n, const struct goal goal)
{
    if (l.sums != BY_16_2) {
        block_times(l, (struct factors){w, TILES, x, n}, goal);
        return;
    }
    for (uint32_t t = 0; t < TILES; t++) {
        const struct goal tile = {(__m512(*)[TILES]) & goal.acc[0][t], goal.at};
        block_times(l, (struct factors){w + t, 1, x, n}, tile);
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Activations of a pass, and their sums so far for the rows at hand. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    float *y; /* where the sums for the rows at hand go, once they are wanted soon; or NULL */
    uint64_t y_stride;
    uint8_t all[PASS_MOST], second[PASS_MOST]; /* second: have a second digit in the block */
    int32_t start[PASS_MOST + 4];              /* -bias * sum of all codes of the block */
    __m512 acc[PASS_MOST][TILES];
};

/* Those that have a second digit in block b; returns how many. */
SL_INLINE uint32_t find_second(struct pass *p, uint64_t b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (has_second(&p->x[i], b)) p->second[n++] = (uint8_t)i;
    return n;
}

SL_INLINE struct sl_k_digit digit_of(const struct sl_k_act *x, bool second)
{
    return second ? x->second : (struct sl_k_digit){x->q, x->d, x->sums};
}

/* start[i] of n activations, numbers at of the pass. */
SL_INLINE void set_starts(const struct layout l, uint64_t b, bool second, const uint8_t *at,
                          uint32_t n, struct pass *p)
{
    const __m256i minus_bias = _mm256_set1_epi16((short)-l.bias);
    for (uint32_t i = 0; i < n; i += 4) {
        __m256i v[4];
        for (uint32_t k = 0; k < 4; k++) {
            const struct sl_k_act *x = &p->x[at[i + k < n ? i + k : n - 1]];
            v[k] = _mm256_madd_epi16(load256(digit_of(x, second).sums + 16 * b), minus_bias);
        }
        v[0] = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
        __m128i sum =
            _mm_add_epi32(_mm256_castsi256_si128(v[0]), _mm256_extracti128_si256(v[0], 1));
        _mm_storeu_si128((__m128i *)(void *)(p->start + i), sum);
    }
}

/* Activations for which a level is loaded once: as many as have room in the registers. */
SL_INLINE uint32_t most_at_once(const struct layout l) { return l.sums == FOLDED ? AT_ONCE : 4; }

/* Block b times n first or second digits of the pass, of activations at. */
SL_INLINE void digits_times(const struct layout l, const struct wide w[TILES], uint64_t b,
                            struct pass *p, bool second, uint32_t n)
{
    const uint8_t *at = second ? p->second : p->all;
    const uint32_t most = most_at_once(l);
    if (l.sums == FOLDED && l.bias) set_starts(l, b, second, at, n, p);
    for (uint32_t i = 0, few; i < n; i += few) {
        const struct goal goal = {p->acc, at + i};
        struct x_block x;
        few = next_few(n - i, most);
        for (uint32_t k = 0; k < few; k++) {
            load_x(l, digit_of(&p->x[at[i + k]], second), b, k, &x);
            if (l.sums == FOLDED) x.start[k][0] = p->start[i + k];
            if (!second && p->y) fetch_results(p->y + (i + k) * p->y_stride);
        }
        if (!EACH_NUMBER) {
            tiles_times(l, w, &x, few, goal);
            continue;
        }
#define TIMES(number)                                                                              \
    case number:                                                                                   \
        if (number <= most) tiles_times(l, w, &x, number, goal);                                   \
        break
        switch (few) {
            TIMES(1);
            TIMES(2);
            TIMES(3);
            TIMES(4);
            TIMES(5);
            TIMES(6);
            TIMES(7);
            TIMES(8);
        }
#undef TIMES
    }
}

/* Both digits, by the same code: there is much of it, and a compiler that checks addresses takes
 * minutes for it. */
SL_INLINE void pass_times(const struct layout l, const struct wide w[TILES], uint64_t b,
                          struct pass *p)
{
#pragma GCC unroll 1
    for (uint32_t digit = 0; digit < 2; digit++)
        digits_times(l, w, b, p, digit == 1, digit == 1 ? find_second(p, b) : p->n);
}

/* As prefetch_next of simd_avx2.h, which says why: what rows further on, in the order of memory,
 * have in place of block b of a tile. */
SL_INLINE void prefetch16(const struct tile16 *t, uint64_t b, uint32_t block_bytes)
{
    uintptr_t at = (uintptr_t)t->quarter[0] + ROWS * t->stride + b * WIDE_ROWS * block_bytes;
    for (uint32_t i = 0; i < WIDE_ROWS * block_bytes; i += 64)
        _mm_prefetch((const char *)(at + i), _MM_HINT_T1);
}

SL_INLINE struct tile16 tile16_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct tile16 t = {.stride = m->row_bytes};
    for (uint32_t i = 0; i < 4; i++)
        t.quarter[i] = (const uint8_t *)m->w + (first + 4 * i) * m->row_bytes;
    return t;
}

/* Asks for the rows' bytes from offset at on, which are in the second-level cache, for the first.
 */
SL_INLINE void fetch_block(const struct tile16 tile[TILES], uint64_t at, uint32_t bytes)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct tile16 *t = &tile[i / WIDE_ROWS];
        const uint8_t *row = t->quarter[i / 4 % 4] + i % 4 * t->stride + at;
        for (uint32_t k = 0; k < bytes; k += 64) _mm_prefetch((const char *)row + k, _MM_HINT_T0);
        _mm_prefetch((const char *)row + bytes - 1, _MM_HINT_T0);
    }
}

/* Rows from r on times a pass: ROWS of them, or sixteen, which are then taken twice. */
SL_INLINE void rows_times(const struct layout l, const struct sl_k_matmul *m, uint32_t r,
                          bool ahead, struct pass *p)
{
    struct wide w[TILES];
    const uint32_t first[TILES] = {r, r + ROWS <= m->rows ? r + WIDE_ROWS : r};
    const struct tile16 tile[TILES] = {tile16_at(m, first[0]), tile16_at(m, first[1])};
    for (uint32_t i = 0; i < p->n; i++) p->acc[i][0] = p->acc[i][1] = _mm512_setzero_ps();
    for (uint64_t b = 0; b < m->cols / 256; b++) {
        for (uint32_t t = 0; t < TILES; t++) {
            if (ahead) prefetch16(&tile[t], b, l.block_bytes);
            l.unpack(&tile[t], b * l.block_bytes, &w[t]);
        }
        p->y = b + 1 == m->cols / 256 && p->n >= MANY ? m->y + first[0] : NULL;
        p->y_stride = m->y_stride;
        if (p->n >= MANY) fetch_block(tile, (b + 1) * l.block_bytes, l.block_bytes);
        pass_times(l, w, b, p);
    }
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t t = 0; t < TILES; t++)
            _mm512_storeu_ps(m->y + i * m->y_stride + first[t], p->acc[i][t]);
}

/* m->rows: a multiple of sixteen. */
SL_INLINE void matmul_many(const struct layout l, const struct sl_k_matmul *m)
{
    struct pass p;
    uint32_t passes = (m->n_tokens + PASS_MOST - 1) / PASS_MOST;
    for (uint32_t i = 0; i < PASS_MOST; i++) p.all[i] = (uint8_t)i;
    for (uint32_t i = 0; i < passes; i++) {
        uint64_t first = (uint64_t)m->n_tokens * i / passes;
        struct sl_k_matmul part = *m;
        part.x += first;
        part.y += first * m->y_stride;
        p.x = part.x;
        p.n = (uint32_t)((uint64_t)m->n_tokens * (i + 1) / passes - first);
        for (uint32_t r = 0; r < m->rows; r += ROWS) rows_times(l, &part, r, i == 0, &p);
    }
}

SL_INLINE void matmul(const struct layout l, sl_k_matmul_fn *otherwise, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    struct sl_k_matmul most = *m, rest = *m;
    most.rows = m->n_tokens < l.least ? 0 : m->rows / WIDE_ROWS * WIDE_ROWS;
    rest.rows = m->rows - most.rows;
    rest.w = (const uint8_t *)m->w + most.rows * m->row_bytes;
    rest.y = m->y + most.rows;
    if (most.rows > 0) matmul_many(l, &most);
    if (rest.rows > 0) otherwise(&rest);
}

static void q3_k_scaled(const struct sl_k_matmul *m)
{
    matmul((struct layout){unpack_q3_k, SL_Q3_K_BYTES, BY_16_2, false, 4, 2},
           sl_k_matmul_q3_k__avx2, m);
}

void sl_k_matmul_q3_k__avx512(const struct sl_k_matmul *m)
{
    if (m->n_tokens == 1)
        sl_k_matmul1_q3_k(m);
    else
        matmul((struct layout){unpack_q3_k_folded, SL_Q3_K_BYTES, FOLDED, false, Q3_K_BIAS, MANY},
               q3_k_scaled, m);
}

/* unpack, sums, minima, bias, least: see struct layout. */
#define MATMUL(name, form, bytes, ...)                                                             \
    void sl_k_matmul_##name##__avx512(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul1_##name(m);                                                                \
        else                                                                                       \
            matmul((struct layout){unpack_##form, bytes, __VA_ARGS__}, sl_k_matmul_##name##__avx2, \
                   m);                                                                             \
    }

MATMUL(q2_k, q2_k_folded, SL_Q2_K_BYTES, FOLDED, true, 0, 4)
MATMUL(q4_k, q4_k, SL_Q4_K_BYTES, BY_32, true, 0, 2)
MATMUL(q5_k, q5_k, SL_Q5_K_BYTES, BY_32, true, 0, 4)
MATMUL(q6_k, q6_k, SL_Q6_K_BYTES, BY_16, false, 32, 4)
MATMUL(iq4_xs, iq4_xs, SL_IQ4_XS_BYTES, BY_32, false, IQ4_BIAS, 2)
