/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS), for AVX-512 with
 * VNNI and VBMI.
 *
 * A block of 32 or 64 rows is unpacked (kquant_wide_avx512.h) into a buffer that stays in the
 * first-level cache while many activations pass over it. A lane is a row: everything is a vector
 * over rows, scales and float arithmetic too, and no sum is ever taken across lanes. Activations
 * are taken by passes that the second-level cache holds, over all rows of the call.
 *
 * What bounds this is the number of multiplications, of which one starts in a cycle. So sums begin
 * with what the codes' bias adds, and Q3_K, whose products of scale and code are bytes, has the
 * scales in its levels where there are activations enough to pay for that. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/kquant_wide_avx512.h"

#define TILES 4   /* of sixteen rows, for which an activation's codes are loaded once, at most */
#define AT_ONCE 4 /* activations for which a level is loaded once, at most */
#define PASS_MOST 256 /* activations for which rows are unpacked once; see pass_most */
#define MANY 16       /* activations for which asking for more pays */

typedef void unpack_fn(const struct tile16 *t, uint64_t at, struct wide *out);

enum sums {
    BY_32,        /* a scale for each 32 columns */
    BY_16,        /* for each 16 */
    BY_16_2,      /* the same, and a sum, less the bias, fits 16 bits: two go together */
    FOLDED,       /* the levels are multiplied already */
    FOLDED_SIGNED /* the same, and they are the signed bytes, so that codes have to be unsigned */
};

struct layout {
    unpack_fn *unpack;
    uint32_t block_bytes;
    enum sums sums;
    bool minima;
    int bias; /* of the levels */
};

SL_INLINE bool is_folded(const struct layout l)
{
    return l.sums == FOLDED || l.sums == FOLDED_SIGNED;
}

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
    if (!l.bias) return;
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
#pragma GCC unroll 4
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 4
        for (uint32_t t = 0; t < f.n_tiles; t++)
            sum[k][t] = l.sums == FOLDED_SIGNED ? f.w[t].start
                        : l.bias                ? _mm512_set1_epi32(f.x->start[k][i])
                                                : _mm512_setzero_si512();
}

/* acc += a quad's levels times four codes. */
SL_INLINE __m512i dot_quad(const struct layout l, __m512i acc, __m512i level, const int8_t *q)
{
    if (l.sums != FOLDED_SIGNED) return dot512(acc, level, q);
    return _mm512_dpbusd_epi32(acc, _mm512_xor_si512(spread512(q), bytes512(0x80)), level);
}

/* Adds products of n_quads quads (a constant) from first on. */
SL_INLINE void add_quads(const struct layout l, const struct factors f, uint32_t first,
                         uint32_t n_quads, __m512i sum[AT_ONCE][TILES])
{
#pragma GCC unroll 8
    for (uint32_t i = first; i < first + n_quads; i++)
#pragma GCC unroll 4
        for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 4
            for (uint32_t t = 0; t < f.n_tiles; t++)
                sum[k][t] = dot_quad(l, sum[k][t], f.w[t].level[i], f.x->q[k] + 4 * i);
}

/* isum += the sums of n_quads quads times scale number i. */
SL_INLINE void add_scaled(const struct layout l, const struct factors f, uint32_t i,
                          uint32_t n_quads, __m512i isum[AT_ONCE][TILES])
{
    __m512i sum[AT_ONCE][TILES];
    begin(l, f, i, sum);
    add_quads(l, f, i * n_quads, n_quads, sum);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 4
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
    add_quads(l, f, 8 * g, 4, low);
    add_quads(l, f, 8 * g + 4, 4, high);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 4
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

/* Where sums go: those of activation k, one for each tile, to acc[k]. */
struct goal {
    __m512 *acc[AT_ONCE];
};

/* The product is added to these. */
SL_INLINE void block_times(const struct layout l, const struct factors f, const struct goal goal)
{
    __m512i isum[AT_ONCE][TILES];
    if (is_folded(l)) {
        begin(l, f, 0, isum);
#pragma GCC unroll 1
        for (uint32_t i = 0; i < 8 * GROUPS; i += 8) add_quads(l, f, i, 8, isum);
    } else {
        for (uint32_t k = 0; k < f.n; k++)
            for (uint32_t t = 0; t < f.n_tiles; t++) isum[k][t] = _mm512_setzero_si512();
#pragma GCC unroll 1
        for (uint32_t g = 0; g < GROUPS; g++) add_group(l, f, g, isum);
    }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < f.n; k++)
#pragma GCC unroll 4
        for (uint32_t t = 0; t < f.n_tiles; t++) {
            __m512 d = _mm512_mul_ps(f.w[t].d, _mm512_set1_ps(f.x->d[k]));
            __m512 acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(isum[k][t]), goal.acc[k][t]);
            goal.acc[k][t] = l.minima ? less_minima(l, f, k, t, acc) : acc;
        }
}

/* The same for all tiles and n activations: together, or, where sums take twice as many registers,
 * one after the other. */
SL_INLINE void tiles_times(const struct layout l, const struct factors f, const struct goal goal)
{
    if (l.sums != BY_16_2) {
        block_times(l, f, goal);
        return;
    }
    for (uint32_t t = 0; t < f.n_tiles; t++) {
        struct goal tile;
        for (uint32_t k = 0; k < f.n; k++) tile.acc[k] = goal.acc[k] + t;
        block_times(l, (struct factors){f.w + t, 1, f.x, f.n}, tile);
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Activations of a pass, and their sums so far for the rows at hand. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    uintptr_t ahead;                  /* weights to be asked for during the block at hand */
    uint64_t ahead_bytes, ahead_step; /* all of them, and those with each few activations */
    float *y; /* where the sums for the rows at hand go, once they are wanted soon; or NULL */
    uint64_t y_stride;
    uint8_t all[PASS_MOST], second[PASS_MOST]; /* second: have a second digit in the block */
    uint32_t n_any;                            /* those that have one in some block */
    uint8_t any[PASS_MOST];
    const float *any_d[PASS_MOST];     /* scales of their second digits */
    __m512 acc[PASS_MOST * TILES / 2]; /* activation after activation */
};

/* With all tiles there is room for the sums of half as many: a worker's stack is charged to the
 * budget by what is used of it. */
SL_INLINE uint32_t pass_most(const struct layout l)
{
    return is_folded(l) ? PASS_MOST / 2 : PASS_MOST;
}

SL_INLINE void find_any(struct pass *p)
{
    p->n_any = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->x[i].second.d == NULL) continue;
        p->any[p->n_any] = (uint8_t)i;
        p->any_d[p->n_any++] = p->x[i].second.d;
    }
}

/* Those that have a second digit in block b; returns how many. Without branches, which no processor
 * would foresee. */
SL_INLINE uint32_t find_second(struct pass *p, uint64_t b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_any; i++) {
        p->second[n] = p->any[i];
        n += p->any_d[i][b] != 0.0f;
    }
    return n;
}

/* Block b of some rows, unpacked. */
struct block {
    const struct wide *w;
    uint32_t n_tiles;
    uint64_t b;
};

SL_INLINE struct sl_k_digit digit_of(const struct sl_k_act *x, bool second)
{
    return second ? x->second : (struct sl_k_digit){x->q, x->d, x->sums};
}

/* Asks for weights of the rows after these, in the order of memory, as prefetch_next of
 * simd_avx2.h, which says why. A few at a time: a block's all at once fill the queue of misses, and
 * what is unpacked next waits behind them (an eighth of a prompt's time in Q3_K, one Zen 4 core,
 * November 2026). */
SL_INLINE void ask_ahead(struct pass *p)
{
    uint64_t n = sl_min_u64(p->ahead_step, p->ahead_bytes);
    for (uint64_t i = 0; i < n; i += 64) _mm_prefetch((const char *)(p->ahead + i), _MM_HINT_T1);
    p->ahead += n;
    p->ahead_bytes -= n;
}

/* Block b, n_tiles (a constant) of it, times n first or second digits of the pass. */
SL_INLINE void digits_times(const struct layout l, const struct block blk, struct pass *p,
                            bool second, uint32_t n)
{
    const uint8_t *at = second ? p->second : p->all;
    for (uint32_t i = 0, few; i < n; i += few) {
        struct goal goal;
        struct x_block x;
        few = n - i < AT_ONCE ? n - i : AT_ONCE;
        ask_ahead(p);
        for (uint32_t k = 0; k < few; k++) {
            load_x(l, digit_of(&p->x[at[i + k]], second), blk.b, k, &x);
            goal.acc[k] = p->acc + at[i + k] * blk.n_tiles;
            if (!second && p->y)
                fetch_results(p->y + (i + k) * p->y_stride, blk.n_tiles * WIDE_ROWS);
        }
        struct factors f = {blk.w, blk.n_tiles, &x, few};
        if (!EACH_NUMBER) {
            tiles_times(l, f, goal);
            continue;
        }
#define TIMES(number)                                                                              \
    case number:                                                                                   \
        f.n = number;                                                                              \
        tiles_times(l, f, goal);                                                                   \
        break
        switch (few) {
            TIMES(1);
            TIMES(2);
            TIMES(3);
            TIMES(4);
        }
#undef TIMES
    }
}

/* Both digits, by the same code: there is much of it, and a compiler that checks addresses takes
 * minutes for it. */
SL_INLINE void pass_times(const struct layout l, const struct block blk, struct pass *p)
{
#pragma GCC unroll 1
    for (uint32_t digit = 0; digit < 2; digit++)
        digits_times(l, blk, p, digit == 1, digit == 1 ? find_second(p, blk.b) : p->n);
}

SL_INLINE struct tile16 tile16_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct tile16 t = {.stride = m->row_bytes};
    for (uint32_t i = 0; i < 4; i++)
        t.quarter[i] = (const uint8_t *)m->w + (first + 4 * i) * m->row_bytes;
    return t;
}

/* Asks for a tile's bytes from offset at on, which are in the second-level cache, for the first. */
SL_INLINE void fetch_block(const struct tile16 *t, uint64_t at, uint32_t bytes)
{
    for (uint32_t i = 0; i < WIDE_ROWS; i++) {
        const uint8_t *row = t->quarter[i / 4] + i % 4 * t->stride + at;
        for (uint32_t k = 0; k < bytes; k += 64) _mm_prefetch((const char *)row + k, _MM_HINT_T0);
        _mm_prefetch((const char *)row + bytes - 1, _MM_HINT_T0);
    }
}

/* n_tiles (a constant) times sixteen rows from r on times a pass. Where there are fewer, the last
 * sixteen are taken more than once. */
SL_INLINE void rows_times(const struct layout l, const struct sl_k_matmul *m, uint32_t r,
                          uint32_t n_tiles, bool ask, struct pass *p)
{
    struct wide w[TILES];
    struct tile16 tile[TILES];
    uint32_t first[TILES];
    const uint64_t blocks = m->cols / 256, block_bytes = n_tiles * WIDE_ROWS * l.block_bytes;
    const uintptr_t next =
        weights_from(m, (uintptr_t)m->w + (r + n_tiles * WIDE_ROWS) * m->row_bytes);
    for (uint32_t t = 0; t < n_tiles; t++) {
        first[t] = r + (t + 1) * WIDE_ROWS <= m->rows ? r + t * WIDE_ROWS : m->rows - WIDE_ROWS;
        tile[t] = tile16_at(m, first[t]);
    }
    p->ahead_step = (block_bytes * AT_ONCE / p->n + 63) / 64 * 64;
    for (uint32_t i = 0; i < p->n * n_tiles; i++) p->acc[i] = _mm512_setzero_ps();
    for (uint64_t b = 0; b < blocks; b++) {
#pragma GCC unroll 1
        for (uint32_t t = 0; t < n_tiles; t++) {
            l.unpack(&tile[t], b * l.block_bytes, &w[t]);
            if (p->n >= MANY) fetch_block(&tile[t], (b + 1) * l.block_bytes, l.block_bytes);
        }
        p->ahead = next + b * block_bytes;
        p->ahead_bytes = ask ? block_bytes : 0;
        p->y = b + 1 == blocks && p->n >= MANY ? m->y + r : NULL;
        p->y_stride = m->y_stride;
        pass_times(l, (struct block){w, n_tiles, b}, p);
    }
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t t = 0; t < n_tiles; t++)
            _mm512_storeu_ps(m->y + i * m->y_stride + first[t], p->acc[i * n_tiles + t]);
}

/* m->rows: a multiple of sixteen. */
SL_INLINE void matmul_many(const struct layout l, const struct sl_k_matmul *m)
{
    struct pass p;
    uint32_t passes = (m->n_tokens + pass_most(l) - 1) / pass_most(l);
    for (uint32_t i = 0; i < PASS_MOST; i++) p.all[i] = (uint8_t)i;
    for (uint32_t i = 0; i < passes; i++) {
        uint64_t first = (uint64_t)m->n_tokens * i / passes;
        struct sl_k_matmul part = *m;
        uint32_t r = 0;
        part.x += first;
        part.y += first * m->y_stride;
        p.x = part.x;
        p.n = (uint32_t)((uint64_t)m->n_tokens * (i + 1) / passes - first);
        find_any(&p);
        if (is_folded(l)) /* a sum is all that it needs a register for */
            for (; r + 4 * WIDE_ROWS <= m->rows; r += 4 * WIDE_ROWS)
                rows_times(l, &part, r, 4, i == 0, &p);
        for (; r < m->rows; r += 2 * WIDE_ROWS) rows_times(l, &part, r, 2, i == 0, &p);
    }
}

/* How a type's products are made: tiles by whole tiles; otherwise by the rows that are left, and by
 * all where there are fewer than least activations, for which tiles do not pay. Neither is inlined:
 * their working memory, up to 90 KB, is not to be on a worker's stack at the same time. */
struct ways {
    uint32_t least;
    sl_k_matmul_fn *tiles, *otherwise;
};

static void matmul(const struct ways by, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    struct sl_k_matmul most = *m, rest = *m;
    most.rows = m->n_tokens < by.least ? 0 : m->rows / WIDE_ROWS * WIDE_ROWS;
    rest.rows = m->rows - most.rows;
    rest.w = (const uint8_t *)m->w + most.rows * m->row_bytes;
    rest.y = m->y + most.rows;
    if (most.rows > 0) by.tiles(&most);
    if (rest.rows > 0) by.otherwise(&rest);
}

/* sums, minima, bias: see struct layout. */
#define BY_TILES(form, bytes, ...)                                                                 \
    static __attribute__((noinline)) void form##_tiles(const struct sl_k_matmul *m)                \
    {                                                                                              \
        matmul_many((struct layout){unpack_##form, bytes, __VA_ARGS__}, m);                        \
    }

BY_TILES(q2_k_folded, SL_Q2_K_BYTES, FOLDED, true, 0)
BY_TILES(q3_k, SL_Q3_K_BYTES, BY_16_2, false, 4)
BY_TILES(q3_k_folded, SL_Q3_K_BYTES, FOLDED_SIGNED, false, 0)
BY_TILES(q4_k, SL_Q4_K_BYTES, BY_32, true, 0)
BY_TILES(q5_k, SL_Q5_K_BYTES, BY_32, true, 0)
BY_TILES(q6_k, SL_Q6_K_BYTES, BY_16, false, 32)
BY_TILES(iq4_xs, SL_IQ4_XS_BYTES, BY_32, false, IQ4_BIAS)

static void q3_k_few(const struct sl_k_matmul *m)
{
    matmul((struct ways){2, q3_k_tiles, sl_k_matmul_q3_k__avx2}, m);
}

#define MATMUL(name, least, tiles, otherwise)                                                      \
    void sl_k_matmul_##name##__avx512(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul1_##name(m);                                                                \
        else                                                                                       \
            matmul((struct ways){least, tiles, otherwise}, m);                                     \
    }

MATMUL(q2_k, 4, q2_k_folded_tiles, sl_k_matmul_q2_k__avx2)
MATMUL(q3_k, 6, q3_k_folded_tiles, q3_k_few)
MATMUL(q4_k, 2, q4_k_tiles, sl_k_matmul_q4_k__avx2)
MATMUL(q5_k, 4, q5_k_tiles, sl_k_matmul_q5_k__avx2)
MATMUL(q6_k, 4, q6_k_tiles, sl_k_matmul_q6_k__avx2)
MATMUL(iq4_xs, 2, iq4_xs_tiles, sl_k_matmul_iq4_xs__avx2)
