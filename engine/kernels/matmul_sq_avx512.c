/* Matrix times vectors for the container's own weight types (formats/sq.h), for AVX-512 with VNNI
 * and VBMI.
 *
 * Two bands go together, sixteen rows. Codes become levels by one permutation of bytes, which takes
 * no notice of the two highest bits of an index: with a table of 64 in which the levels repeat,
 * nothing needs to be masked off. Four products are added up in 32 bits by one instruction, so that
 * m multiplies once a group; what the offset adds is taken from the sums of the activations' codes.
 * All of this is exact; the floats follow the scalar definition, a lane per row. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/passes_avx512.h"
#include "engine/kernels/sq_layouts.h"

/* Levels by index. Three bits: other is for the last quad, whose high bit is bit 3, and high for
 * codes that begin at bit 3; two bits: other and high are for codes that begin at bits 2 and 4. */
struct tables {
    __m512i level, other, high;
};

/* ---- codes ----------------------------------------------------------------------------------- */

SL_INLINE __m512i plane(const uint8_t *a, const uint8_t *b, uint32_t number)
{
    return join512(load256(a + 32 * number), load256(b + 32 * number));
}

SL_INLINE __m512i shifted(__m512i v, int right)
{
    return right >= 0 ? _mm512_srli_epi16(v, (unsigned)right)
                      : _mm512_slli_epi16(v, (unsigned)-right);
}

/* The index of quad i: its code, and what its table takes no notice of. p: the unit's planes. */
SL_INLINE __m512i index_of(uint32_t bits, const __m512i *p, int i)
{
    const __m512i low2 = _mm512_set1_epi8(3), low4 = _mm512_set1_epi8(15);
    if (bits == 2) return i % 4 == 3 ? shifted(p[i / 4], 6) : p[i / 4];
    if (bits == 3 && i < 6) return p[i / 2];
    if (bits == 3) return select512(low2, shifted(p[i - 6], 6), shifted(p[2], 4));
    __m512i low = i % 2 ? shifted(p[i / 2], 4) : p[i / 2];
    if (bits == 4) return low;
    if (bits == 5) return select512(low4, low, shifted(p[4], i - 4));
    return select512(low4, low, shifted(p[4 + i / 4], 2 * (i % 4) - 4));
}

SL_INLINE __m512i table_of(uint32_t bits, const struct tables *t, int i)
{
    if (bits == 2) return i % 4 == 1 ? t->other : i % 4 == 2 ? t->high : t->level;
    if (bits == 3) return i == 7 ? t->other : i % 2 && i < 6 ? t->high : t->level;
    return t->level;
}

SL_INLINE void unpack_levels(const struct layout l, const uint8_t *a, const uint8_t *b,
                             const struct tables *t, __m512i *level)
{
    __m512i p[6];
    for (uint32_t i = 0; i < l.bits; i++) p[i] = plane(a, b, i);
    for (int i = 0; i < 8; i++)
        level[i] = _mm512_permutexvar_epi8(index_of(l.bits, p, i), table_of(l.bits, t, i));
}

SL_INLINE struct tables make_tables(uint32_t bits, const uint8_t *levels)
{
    uint8_t at[64];
    struct tables t;
    for (int i = 0; i < 64; i++) at[i] = (uint8_t)i;
    __m512i index = _mm512_loadu_si512(at);
    if (bits == 2) t.level = _mm512_set1_epi32((int)sl_load_u32(levels));
    if (bits == 3)
        t.level = _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)levels));
    if (bits == 4) t.level = _mm512_broadcast_i32x4(load128(levels));
    if (bits == 5) t.level = _mm512_broadcast_i64x4(load256(levels));
    if (bits == 6) t.level = _mm512_loadu_si512(levels);
    t.other = t.high = t.level;
    if (bits == 2) {
        t.other = _mm512_permutexvar_epi8(shifted(index, 2), t.level);
        t.high = _mm512_permutexvar_epi8(shifted(index, 4), t.level);
    } else if (bits == 3) {
        __m512i bit3 = _mm512_and_si512(shifted(index, 1), _mm512_set1_epi8(4));
        t.other = _mm512_permutexvar_epi8(select512(_mm512_set1_epi8(3), index, bit3), t.level);
        t.high = _mm512_permutexvar_epi8(shifted(index, 3), t.level);
    }
    return t;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The low words of low and high, in the low and the high half of a lane. */
SL_INLINE __m512i pair_words(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

/* Eight bytes from a in the low half, eight from b in the high half. */
SL_INLINE __m128i load_halves64(const uint8_t *a, const uint8_t *b)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)a),
                              _mm_loadl_epi64((const __m128i *)(const void *)b));
}

/* ---- bands ----------------------------------------------------------------------------------- */

/* The two bands from row r on; returns how many of their rows count. Where there is no second band,
 * the first stands in for it. */
SL_INLINE uint32_t two_bands(const struct sl_k_matmul *m, uint32_t r, const uint8_t *band[2])
{
    uint32_t rows = m->rows - r < WIDE_ROWS ? m->rows - r : WIDE_ROWS;
    band[0] = (const uint8_t *)m->w + r * m->row_bytes;
    band[1] = rows > 8 ? band[0] + 8 * m->row_bytes : band[0];
    return rows;
}

SL_INLINE __m512 row_scales(const uint8_t *const band[2])
{
    __m512i words = _mm512_cvtepu16_epi32(load_pair(band[0], band[1]));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

/* ---- one activation --------------------------------------------------------------------------
 *
 * Here scales cost as much as codes, so they are looked up: |m| as a float among sixteen, by the
 * low four bits of its byte, and -offset times the activation's sum, where a group's own sum then
 * begins, among eight products that all rows share. Products with m are integers below 2^24, so
 * they are exact in floats too. */

struct constants {
    struct tables t;
    __m512 size;      /* 1 to 16: |m| */
    __m512i minus[2]; /* -offset of each number, for the first and the second 16 columns; the lower
                         eight lanes once more in the upper ones */
    __m512i spread;   /* a permutation that gives a lane the scale byte of its row four times */
};

/* A unit of two bands; where a group has 32 columns there is one scale. */
struct lone_unit {
    __m512i level[8];
    __m512i scale[2]; /* the byte, four times */
    __m512 m[2];
};

SL_INLINE struct constants make_constants(const struct layout l, const uint8_t *levels)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i none = _mm512_setzero_si512();
    __m512i number = _mm512_and_si512(lane, _mm512_set1_epi32(7));
    __m512i minus = _mm512_add_epi32(_mm512_mullo_epi32(number, _mm512_set1_epi32(-l.step)),
                                     _mm512_set1_epi32(-l.base));
    __m512i second_band = _mm512_and_si512(lane, _mm512_set1_epi32(8));
    __m512i at = l.group == 16 ? _mm512_add_epi32(lane, second_band) : lane;
    struct constants c = {.t = make_tables(l.bits, levels)};
    c.size = _mm512_cvtepi32_ps(_mm512_add_epi32(lane, _mm512_set1_epi32(1)));
    c.minus[0] = pair_words(minus, l.group == 16 ? none : minus);
    c.minus[1] = pair_words(none, minus);
    c.spread = _mm512_mullo_epi32(at, _mm512_set1_epi32(0x01010101));
    return c;
}

SL_INLINE __m512 signed_m(const struct constants *c, __m512i scale)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512i size = _mm512_castps_si512(_mm512_permutexvar_ps(scale, c->size));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(size, scale, sign, 0x78));
}

SL_INLINE struct lone_unit unpack_lone(const struct layout l, const uint8_t *a, const uint8_t *b,
                                       const struct constants *c)
{
    struct lone_unit u;
    unpack_levels(l, a, b, &c->t, u.level);
    a += 32 * l.bits;
    b += 32 * l.bits;
    __m512i bytes = l.group == 16 ? _mm512_castsi256_si512(load_pair(a, b))
                                  : _mm512_castsi128_si512(load_halves64(a, b));
    u.scale[0] = u.scale[1] = _mm512_permutexvar_epi8(c->spread, bytes);
    u.m[0] = u.m[1] = signed_m(c, u.scale[0]);
    if (l.group == 32) return u;
    __m512i second = _mm512_add_epi8(c->spread, _mm512_set1_epi8(8));
    u.scale[1] = _mm512_permutexvar_epi8(second, bytes);
    u.m[1] = signed_m(c, u.scale[1]);
    return u;
}

/* The sum of (level - offset) times code over the n quads of group g. Two sums side by side, since
 * one would wait for itself: 72 and 79 G weights/s (SQ3_32 in cache, Zen 4 at 3.7 GHz, November
 * 2026). */
SL_INLINE __m512 dot_group(const struct constants *c, const struct lone_unit *u, uint32_t g,
                           uint32_t n, const struct sl_k_digit *x)
{
    __m512i from = _mm512_dpwssd_epi32(_mm512_setzero_si512(), c->minus[g], spread512(x->sums));
    __m512i even = _mm512_permutexvar_epi32(_mm512_srli_epi32(u->scale[g], 4), from);
    __m512i odd = _mm512_setzero_si512();
    for (uint32_t i = g * n; i < g * n + n; i += 2) {
        even = dot512(even, u->level[i], x->q + 4 * i);
        odd = dot512(odd, u->level[i + 1], x->q + 4 * i + 4);
    }
    return _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
}

/* A unit times one digit: added to acc, a lane per row. */
SL_INLINE __m512 add_lone(const struct layout l, const struct constants *c,
                          const struct lone_unit *u, struct sl_k_digit x, uint64_t b, __m512 acc)
{
    const struct sl_k_digit here = {x.q + 32 * b, x.d + b, x.sums + 2 * b};
    __m512 sum = _mm512_mul_ps(u->m[0], dot_group(c, u, 0, l.group / 4, &here));
    if (l.group == 16) sum = _mm512_fmadd_ps(u->m[1], dot_group(c, u, 1, 4, &here), sum);
    return _mm512_fmadd_ps(_mm512_set1_ps(here.d[0]), sum, acc);
}

/* Two bands times an activation; second, a constant: it may have second digits. */
SL_INLINE __m512 bands_times_one(const struct layout l, const struct sl_k_matmul *m,
                                 const struct constants *c, const uint8_t *const band[2],
                                 bool second)
{
    const struct sl_k_act *x = m->x;
    const struct sl_k_digit first = {x->q, x->d, x->sums};
    uint64_t units = m->cols / 32, unit_bytes = 32 * l.bits + 128 / l.group * 2;
    uint64_t at = SL_SQ_ROW_SCALE_BYTES;
    struct next_rows next = next_rows(m, band[0]);
    __m512 acc = _mm512_setzero_ps();
    for (uint64_t b = 0; b < units; b++, at += unit_bytes) {
        prefetch_piece(&next, b, 2 * unit_bytes);
        struct lone_unit u = unpack_lone(l, band[0] + at, band[1] + at, c);
        acc = add_lone(l, c, &u, first, b, acc);
        if (second && has_second(x, b)) acc = add_lone(l, c, &u, x->second, b, acc);
    }
    return _mm512_mul_ps(row_scales(band), acc);
}

SL_INLINE void matmul_one(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    struct constants c = make_constants(l, levels);
    for (uint32_t r = 0; r < m->rows; r += WIDE_ROWS) {
        const uint8_t *band[2];
        uint32_t rows = two_bands(m, r, band);
        __m512 y = m->x->second.d ? bands_times_one(l, m, &c, band, true)
                                  : bands_times_one(l, m, &c, band, false);
        _mm512_mask_storeu_ps(m->y + r, lanes512(rows), y);
    }
}

/* ---- a few activations ------------------------------------------------------------------------
 *
 * What is unpacked takes part in few products, so it is done with as little as possible. */

/* A unit of two bands, unpacked. */
struct few_unit {
    __m512i level[8];
    __m512i m_low, m_high; /* m for columns 0 to 15 and 16 to 31 */
    __m512i minus;         /* m * -offset for the first and the second 16 columns, 16 bits each */
};

/* m and m * -offset of sixteen scale bytes, eight of each band. */
SL_INLINE __m512i few_scales(const struct layout l, const uint8_t *a, const uint8_t *b,
                             __m512i *minus)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i v = _mm512_cvtepu8_epi32(load_halves64(a, b));
    __m512i m = _mm512_add_epi32(_mm512_and_si512(v, _mm512_set1_epi32(15)), one);
    __mmask16 negative = _mm512_test_epi32_mask(v, _mm512_set1_epi32(128));
    m = _mm512_mask_sub_epi32(m, negative, _mm512_setzero_si512(), m);
    __m512i j = _mm512_and_si512(_mm512_srli_epi32(v, 4), _mm512_set1_epi32(7));
    __m512i offset = _mm512_add_epi32(_mm512_mullo_epi32(j, _mm512_set1_epi32(-l.step)),
                                      _mm512_set1_epi32(-l.base));
    *minus = _mm512_mullo_epi32(m, offset);
    return m;
}

SL_INLINE struct few_unit unpack_few(const struct layout l, const uint8_t *a, const uint8_t *b,
                                     const struct tables *t)
{
    struct few_unit u;
    __m512i minus_low, minus_high;
    unpack_levels(l, a, b, t, u.level);
    a += 32 * l.bits;
    b += 32 * l.bits;
    u.m_low = u.m_high = few_scales(l, a, b, &minus_low);
    minus_high = minus_low;
    if (l.group == 16) u.m_high = few_scales(l, a + 8, b + 8, &minus_high);
    u.minus = pair_words(minus_low, minus_high);
    return u;
}

/* A unit times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE __m512 add_digit(const struct layout l, const struct few_unit *u, struct sl_k_digit x,
                           uint64_t b, __m512 acc)
{
    const int8_t *q = x.q + 32 * b;
    __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512(), sum;
    for (int i = 0; i < 4; i++) low = dot512(low, u->level[i], q + 4 * i);
    if (l.group == 16) {
        for (int i = 4; i < 8; i++) high = dot512(high, u->level[i], q + 4 * i);
        sum = _mm512_add_epi32(_mm512_mullo_epi32(low, u->m_low),
                               _mm512_mullo_epi32(high, u->m_high));
    } else {
        for (int i = 4; i < 8; i++) low = dot512(low, u->level[i], q + 4 * i);
        sum = _mm512_mullo_epi32(low, u->m_low);
    }
    sum = _mm512_dpwssd_epi32(sum, u->minus, spread512(x.sums + 2 * b));
    return _mm512_fmadd_ps(_mm512_set1_ps(x.d[b]), _mm512_cvtepi32_ps(sum), acc);
}

SL_INLINE void few_times(const struct layout l, const struct sl_k_matmul *m, const struct tables *t,
                         const uint8_t *const band[2], const struct pass *p, __m512 *acc)
{
    const struct sl_k_act *x = p->x;
    uint64_t units = m->cols / 32, unit_bytes = 32 * l.bits + 128 / l.group * 2;
    uint64_t at = SL_SQ_ROW_SCALE_BYTES, who[SECONDS_AHEAD] = {0};
    struct next_rows next = next_rows(m, band[0]);
    if (x != m->x) next.ahead = AHEAD_NOT; /* once is enough */
    for (uint32_t i = 0; i < p->n; i++) acc[i] = _mm512_setzero_ps();
    for (uint64_t b = 0; b < units; b++, at += unit_bytes) {
        prefetch_piece(&next, b, 2 * unit_bytes);
        struct few_unit u = unpack_few(l, band[0] + at, band[1] + at, t);
        if (p->n_second > 0 && b % SECONDS_AHEAD == 0) find_seconds(p, b, units - b, who);
        for (uint32_t i = 0; i < p->n; i++) {
            struct sl_k_digit first = {x[i].q, x[i].d, x[i].sums};
            acc[i] = add_digit(l, &u, first, b, acc[i]);
        }
        for (uint64_t left = who[b % SECONDS_AHEAD]; left != 0; left &= left - 1) {
            int i = __builtin_ctzll(left);
            acc[i] = add_digit(l, &u, x[i].second, b, acc[i]);
        }
    }
    __m512 d = row_scales(band);
    for (uint32_t i = 0; i < p->n; i++) acc[i] = _mm512_mul_ps(d, acc[i]);
}

SL_INLINE void matmul_few(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    struct tables t = make_tables(l.bits, levels);
    __m512 acc[WIDE_TOKENS];
    for (uint32_t r = 0; r < m->rows; r += WIDE_ROWS) {
        const uint8_t *band[2];
        uint32_t rows = two_bands(m, r, band);
        for (uint32_t t0 = 0; t0 < m->n_tokens; t0 += WIDE_TOKENS) {
            uint32_t n = m->n_tokens - t0 < WIDE_TOKENS ? m->n_tokens - t0 : WIDE_TOKENS;
            struct pass p;
            begin_pass(m->x + t0, n, &p);
            few_times(l, m, &t, band, &p, acc);
            for (uint32_t i = 0; i < n; i++)
                _mm512_mask_storeu_ps(m->y + (t0 + i) * m->y_stride + r, lanes512(rows), acc[i]);
        }
    }
}

/* ---- many activations ------------------------------------------------------------------------
 *
 * 32 rows go together, two tiles, with four activations at once. What bounds this is the number of
 * multiplications, of which one starts in a cycle: eight for the codes of a unit, one for m, one
 * for the activation's scale. So offsets are subtracted from the levels, and the activations' codes
 * become unsigned instead, 128 more than they are; sums begin with what takes that back, which is
 * the same for all of them. */

#define MANY                                                                                       \
    16 /* for fewer it is no faster: SQ3_32 with 16 143 and 147 G weights/s, with 8 136            \
          and 128 (one Zen 4 core, November 2026) */
#define TILES 2
#define AT_ONCE 4
#define LAST_UNITS 8 /* during which the results' memory is asked for */

/* A unit of two tiles, unpacked. Where a group has 32 columns its numbers are the first. */
struct unit {
    uint64_t number;         /* in its rows */
    __m512i v[8][TILES];     /* level - offset, signed bytes */
    __m512i start[2][TILES]; /* -128 times the sum of v of each 16 columns, or of 32 */
    __m512i m[2][TILES];
};

/* m and offset of sixteen scale bytes, eight of each band; the offset in each byte of a lane. */
SL_INLINE __m512i unpack_scales(const struct layout l, const uint8_t *a, const uint8_t *b,
                                __m512i *offset)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i v = _mm512_cvtepu8_epi32(load_halves64(a, b));
    __m512i m = _mm512_add_epi32(_mm512_and_si512(v, _mm512_set1_epi32(15)), one);
    __mmask16 negative = _mm512_test_epi32_mask(v, _mm512_set1_epi32(128));
    m = _mm512_mask_sub_epi32(m, negative, _mm512_setzero_si512(), m);
    __m512i j = _mm512_and_si512(_mm512_srli_epi32(v, 4), _mm512_set1_epi32(7));
    *offset = _mm512_add_epi32(_mm512_mullo_epi32(j, _mm512_set1_epi32(l.step * 0x01010101)),
                               _mm512_set1_epi32(l.base * 0x01010101));
    return m;
}

/* Tile t from the bands' bytes at a and b. */
SL_INLINE void unpack(const struct layout l, const uint8_t *a, const uint8_t *b,
                      const struct tables *tables, uint32_t t, struct unit *u)
{
    const __m512i all_128 = _mm512_set1_epi8(-128);
    __m512i level[8], offset[2], sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const uint8_t *scales = a + 32 * l.bits, *scales_b = b + 32 * l.bits;
    unpack_levels(l, a, b, tables, level);
    u->m[0][t] = unpack_scales(l, scales, scales_b, &offset[0]);
    offset[1] = offset[0];
    if (l.group == 16) u->m[1][t] = unpack_scales(l, scales + 8, scales_b + 8, &offset[1]);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; i++) {
        u->v[i][t] = _mm512_sub_epi8(level[i], offset[i / 4]);
        sum[i / 4] = _mm512_dpbusd_epi32(sum[i / 4], all_128, u->v[i][t]);
    }
    if (l.group == 32) sum[0] = _mm512_add_epi32(sum[0], sum[1]);
    u->start[0][t] = _mm512_sub_epi32(_mm512_setzero_si512(), sum[0]);
    u->start[1][t] = _mm512_sub_epi32(_mm512_setzero_si512(), sum[1]);
}

/* The sums of group g (a constant), less what m is, over n_quads quads, of n activations. */
SL_INLINE void add_group(const struct unit *u, uint32_t g, uint32_t n_quads, uint32_t n,
                         const int8_t *const q[AT_ONCE], __m512i sum[AT_ONCE][TILES])
{
    const __m512i all_128 = _mm512_set1_epi8(-128);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t t = 0; t < TILES; t++) sum[k][t] = u->start[g][t];
#pragma GCC unroll 8
    for (uint32_t i = g * n_quads; i < (g + 1) * n_quads; i++)
#pragma GCC unroll 4
        for (uint32_t k = 0; k < n; k++) {
            __m512i codes = _mm512_xor_si512(all_128, spread512(q[k] + 4 * i));
            sum[k][0] = _mm512_dpbusd_epi32(sum[k][0], codes, u->v[i][0]);
            sum[k][1] = _mm512_dpbusd_epi32(sum[k][1], codes, u->v[i][1]);
        }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t t = 0; t < TILES; t++) sum[k][t] = _mm512_mullo_epi32(sum[k][t], u->m[g][t]);
}

/* Where sums go: of activation k to acc[at[k]]. */
struct goal {
    __m512 (*acc)[TILES];
    const uint8_t *at;
};

/* The unit times digits of n activations (a constant). */
SL_INLINE void unit_times(const struct layout l, const struct unit *u, uint32_t n,
                          const struct sl_k_digit x[AT_ONCE], const struct goal goal)
{
    __m512i sum[AT_ONCE][TILES], high[AT_ONCE][TILES];
    const int8_t *q[AT_ONCE];
    for (uint32_t k = 0; k < n; k++) q[k] = x[k].q + 32 * u->number;
    add_group(u, 0, l.group / 4, n, q, sum);
    if (l.group == 16) add_group(u, 1, 4, n, q, high);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < n; k++) {
        __m512 dx = _mm512_set1_ps(x[k].d[u->number]), *to = goal.acc[goal.at[k]];
        for (uint32_t t = 0; t < TILES; t++) {
            if (l.group == 16) sum[k][t] = _mm512_add_epi32(sum[k][t], high[k][t]);
            to[t] = _mm512_fmadd_ps(dx, _mm512_cvtepi32_ps(sum[k][t]), to[t]);
        }
    }
}

/* The same for the first or the second digits of n activations of the pass, numbers goal.at. */
SL_INLINE void unit_times_all(const struct layout l, const struct unit *u, const struct pass *p,
                              bool second, uint32_t n, struct goal goal)
{
    for (uint32_t i = 0, few; i < n; i += few, goal.at += few) {
        struct sl_k_digit x[AT_ONCE];
        few = next_few(n - i, AT_ONCE);
        for (uint32_t k = 0; k < few; k++) {
            const struct sl_k_act *from = &p->x[goal.at[k]];
            x[k] = second ? from->second : (struct sl_k_digit){from->q, from->d, from->sums};
        }
        if (!EACH_NUMBER) {
            unit_times(l, u, few, x, goal);
            continue;
        }
        switch (few) {
        case 1:
            unit_times(l, u, 1, x, goal);
            break;
        case 2:
            unit_times(l, u, 2, x, goal);
            break;
        case 3:
            unit_times(l, u, 3, x, goal);
            break;
        default:
            unit_times(l, u, 4, x, goal);
        }
    }
}

/* The tiles' bands from row r on, how many rows of each count, and where results go. Where there is
 * no second tile, the first stands in for it. */
struct bands {
    const uint8_t *at[TILES][2];
    uint32_t rows[TILES];
    float *y; /* of the pass's first activation */
};

SL_INLINE struct bands bands_at(const struct sl_k_matmul *m, uint32_t r)
{
    struct bands b;
    for (uint32_t t = 0; t < TILES; t++) {
        bool there = r + t * WIDE_ROWS < m->rows;
        b.rows[t] = two_bands(m, there ? r + t * WIDE_ROWS : r, b.at[t]);
        if (!there) b.rows[t] = 0;
    }
    return b;
}

/* The bands times a pass, but for the scales of rows. */
SL_INLINE void bands_times(const struct layout l, const struct sl_k_matmul *m,
                           const struct tables *tables, const struct bands *bands,
                           const struct pass *p, __m512 acc[][TILES])
{
    uint64_t units = m->cols / 32, unit_bytes = 32 * l.bits + 128 / l.group * 2;
    uint64_t at = SL_SQ_ROW_SCALE_BYTES, who[SECONDS_AHEAD] = {0};
    struct next_rows next = next_rows(m, bands->at[1][0]);
    if (p->x != m->x) next.ahead = AHEAD_NOT; /* once is enough */
    uint8_t all[WIDE_TOKENS], some[WIDE_TOKENS];
    for (uint32_t i = 0; i < p->n; i++) all[i] = (uint8_t)i;
    for (uint32_t i = 0; i < p->n; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    for (uint64_t b = 0; b < units; b++, at += unit_bytes) {
        struct unit u;
        u.number = b;
        prefetch_piece(&next, b, TILES * 2 * unit_bytes);
        for (uint32_t t = 0; t < TILES; t++)
            unpack(l, bands->at[t][0] + at, bands->at[t][1] + at, tables, t, &u);
        if (b + LAST_UNITS >= units)
            for (uint64_t i = units - 1 - b; i < p->n; i += LAST_UNITS)
                fetch_results(bands->y + i * m->y_stride, 2 * WIDE_ROWS);
        unit_times_all(l, &u, p, false, p->n, (struct goal){acc, all});
        if (p->n_second == 0) continue;
        if (b % SECONDS_AHEAD == 0) find_seconds(p, b, units - b, who);
        uint32_t n = 0;
        for (uint64_t left = who[b % SECONDS_AHEAD]; left != 0; left &= left - 1)
            some[n++] = (uint8_t)__builtin_ctzll(left);
        unit_times_all(l, &u, p, true, n, (struct goal){acc, some});
    }
}

SL_INLINE void matmul_many(const struct layout l, const struct sl_k_matmul *m,
                           const uint8_t *levels)
{
    struct tables tables = make_tables(l.bits, levels);
    __m512 acc[WIDE_TOKENS][TILES];
    uint32_t passes = (m->n_tokens + WIDE_TOKENS - 1) / WIDE_TOKENS;
    for (uint32_t i = 0; i < passes; i++) {
        uint64_t first = (uint64_t)m->n_tokens * i / passes;
        struct pass p;
        begin_pass(m->x + first, (uint32_t)((uint64_t)m->n_tokens * (i + 1) / passes - first), &p);
        for (uint32_t r = 0; r < m->rows; r += TILES * WIDE_ROWS) {
            struct bands bands = bands_at(m, r);
            bands.y = m->y + first * m->y_stride + r;
            bands_times(l, m, &tables, &bands, &p, acc);
            for (uint32_t t = 0; t < TILES; t++) {
                __m512 d = row_scales(bands.at[t]);
                float *to = bands.y + t * WIDE_ROWS;
                for (uint32_t k = 0; k < p.n; k++)
                    _mm512_mask_storeu_ps(to + k * m->y_stride, lanes512(bands.rows[t]),
                                          _mm512_mul_ps(d, acc[k][t]));
            }
        }
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    if (m->n_tokens == 1)
        matmul_one(l, m, levels);
    else if (m->n_tokens < MANY)
        matmul_few(l, m, levels);
    else
        matmul_many(l, m, levels);
}

#define MATMUL(name, type, ...)                                                                    \
    void sl_k_matmul_##name##__avx512(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        matmul((struct layout){__VA_ARGS__}, m, sl_sq_info(type)->levels);                         \
    }

SL_FOR_TYPES_SQ(MATMUL)
