/* Matrix times vectors for the container's own weight types (formats/sq.h), for AVX2.
 *
 * A vector of 32 bytes is a quad: four columns of a band's eight rows, a 32-bit lane a row. Codes
 * become levels by a byte shuffle (of 6 bits they are levels), and meet the same four activation
 * codes in every lane. Levels are not negative and at most 63, so products of two
 * neighbours, added for two quads, fit 16 bits; they are multiplied by m on their way to 32 bits.
 * The offset is left to the sums of the activations' codes: sum of m * (level - offset) * q = m *
 * (sum of level * q) - m * offset * (sum of q). All of this is exact, so the order does not matter;
 * the floats follow the scalar definition, a lane per row.
 *
 * A unit's levels are used for several activations before the next unit is unpacked. Bands are read
 * from end to end, which a processor's own prefetcher follows: asking for bytes 512 to 4096 ahead
 * changed nothing (EPYC at 3.7 GHz, November 2026). */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"
#include "engine/kernels/sq_layouts.h"

#define TOKENS 8 /* activations per pass over a band */

/* A unit unpacked: levels of its quads, and of each row m and m * offset, 16 bits each. Where a
 * group has 32 columns both halves of a lane are the same; where it has 16, the lower half is of
 * the first 16 columns. */
struct unit {
    __m256i level[8];
    __m256i m_low, m_high; /* m for columns 0 to 15 and 16 to 31, in both halves of a lane */
    __m256i m_offset;
};

/* What the low four bits of a code stand for. */
struct tables {
    __m256i level;
    __m256i other; /* 3 bits: of the last quad, whose high bit is bit 3; 5 bits: where the high bit
                      is set */
};

/* ---- codes ----------------------------------------------------------------------------------- */

SL_INLINE __m256i bits_at(__m256i v, int shift, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask));
}

SL_INLINE __m256i lookup(__m256i table, __m256i codes) { return _mm256_shuffle_epi8(table, codes); }

SL_INLINE void levels2(const uint8_t *p, __m256i table, __m256i *level)
{
    for (int i = 0; i < 8; i++)
        level[i] = lookup(table, bits_at(load256(p + 32 * (i / 4)), 2 * (i % 4), 3));
}

/* Of quads 6 and 7 the high bits come together, as bits 2 and 3 of one vector; their tables take no
 * notice of the other's. */
SL_INLINE void levels3(const uint8_t *p, const struct tables *t, __m256i *level)
{
    __m256i plane[3] = {load256(p), load256(p + 32), load256(p + 64)};
    for (int i = 0; i < 6; i++) level[i] = lookup(t->level, bits_at(plane[i / 2], 3 * (i % 2), 7));
    __m256i high = bits_at(plane[2], 4, 12);
    level[6] = lookup(t->level, _mm256_or_si256(bits_at(plane[0], 6, 3), high));
    level[7] = lookup(t->other, _mm256_or_si256(bits_at(plane[1], 6, 3), high));
}

SL_INLINE __m256i nibbles_of(const uint8_t *p, int quad)
{
    return bits_at(load256(p + 32 * (quad / 2)), 4 * (quad % 2), 15);
}

SL_INLINE void levels4(const uint8_t *p, __m256i table, __m256i *level)
{
    for (int i = 0; i < 8; i++) level[i] = lookup(table, nibbles_of(p, i));
}

/* Blending asks for bit 7 of a byte only. */
SL_INLINE void levels5(const uint8_t *p, const struct tables *t, __m256i *level)
{
    __m256i high = load256(p + 128);
    for (int i = 0; i < 8; i++) {
        __m256i low = nibbles_of(p, i);
        level[i] = _mm256_blendv_epi8(lookup(t->level, low), lookup(t->other, low),
                                      _mm256_slli_epi16(high, 7 - i));
    }
}

SL_INLINE void levels6(const uint8_t *p, __m256i *level)
{
    const __m256i mask = _mm256_set1_epi8(0x30);
    for (int i = 0; i < 8; i++) {
        __m256i plane = load256(p + 128 + 32 * (i / 4));
        int left = 4 - 2 * (i % 4); /* to bits 4 and 5 */
        __m256i high = left < 0 ? _mm256_srli_epi16(plane, 2) : _mm256_slli_epi16(plane, left);
        level[i] = _mm256_or_si256(nibbles_of(p, i), _mm256_and_si256(high, mask));
    }
}

SL_INLINE void unpack_levels(const struct layout l, const uint8_t *p, const struct tables *t,
                             __m256i *level)
{
    if (l.bits == 2)
        levels2(p, t->level, level);
    else if (l.bits == 3)
        levels3(p, t, level);
    else if (l.bits == 4)
        levels4(p, t->level, level);
    else if (l.bits == 5)
        levels5(p, t, level);
    else
        levels6(p, level);
}

SL_INLINE struct tables make_tables(uint32_t bits, const uint8_t *levels)
{
    uint8_t level[16], other[16];
    for (uint32_t i = 0; i < 16; i++) {
        level[i] = levels[i & ((1u << bits) - 1)];
        other[i] = bits == 3 ? levels[(i & 3) | (i >> 3 << 2)] : bits == 5 ? levels[16 + i] : 0;
    }
    return (struct tables){broadcast128(level), broadcast128(other)};
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Scale bytes s[8], or s[16] where groups have 16 columns, to m and m * offset. */
SL_INLINE void unpack_scales(const struct layout l, const uint8_t *s, struct unit *u)
{
    const __m256i both = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1, 4,
                                          -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    const __m256i each =
        _mm256_setr_epi8(0, -1, 8, -1, 1, -1, 9, -1, 2, -1, 10, -1, 3, -1, 11, -1, 4, -1, 12, -1, 5,
                         -1, 13, -1, 6, -1, 14, -1, 7, -1, 15, -1);
    const __m256i one = _mm256_set1_epi16(1);
    __m128i raw = l.group == 16 ? load128(s) : _mm_loadl_epi64((const __m128i *)s);
    __m256i v = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(raw), l.group == 16 ? each : both);
    __m256i size = _mm256_add_epi16(_mm256_and_si256(v, _mm256_set1_epi16(15)), one);
    __m256i m = _mm256_sign_epi16(size, _mm256_or_si256(_mm256_slli_epi16(v, 8), one));
    __m256i j = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi16(7));
    __m256i offset = _mm256_add_epi16(_mm256_mullo_epi16(j, _mm256_set1_epi16((short)l.step)),
                                      _mm256_set1_epi16((short)l.base));
    u->m_offset = _mm256_mullo_epi16(m, offset);
    u->m_low = u->m_high = m;
    if (l.group == 16) {
        const __m256i low = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0,
                                             1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
        u->m_low = _mm256_shuffle_epi8(m, low);
        u->m_high = _mm256_shuffle_epi8(m, _mm256_add_epi8(low, _mm256_set1_epi8(2)));
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Four bytes, or two sums, for every row. */
SL_INLINE __m256i spread(const void *p) { return _mm256_set1_epi32((int)sl_load_u32(p)); }

/* Two quads times their eight codes. */
SL_INLINE __m256i dot_quads(const __m256i *level, const int8_t *q)
{
    return _mm256_add_epi16(dot_unsigned(level[0], spread(q)),
                            dot_unsigned(level[1], spread(q + 4)));
}

/* A unit times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE __m256 add_digit(const struct unit *u, struct sl_k_digit x, uint64_t b, __m256 acc)
{
    const int8_t *q = x.q + 32 * b;
    __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(dot_quads(u->level, q), u->m_low),
                                   _mm256_madd_epi16(dot_quads(u->level + 2, q + 8), u->m_low));
    __m256i high = _mm256_add_epi32(_mm256_madd_epi16(dot_quads(u->level + 4, q + 16), u->m_high),
                                    _mm256_madd_epi16(dot_quads(u->level + 6, q + 24), u->m_high));
    sum = _mm256_add_epi32(sum, high);
    sum = _mm256_sub_epi32(sum, _mm256_madd_epi16(u->m_offset, spread(x.sums + 2 * b)));
    return _mm256_fmadd_ps(_mm256_broadcast_ss(&x.d[b]), _mm256_cvtepi32_ps(sum), acc);
}

/* ---- bands ----------------------------------------------------------------------------------- */

/* Activations of one pass; second: some may have a second digit. n is a constant or at most TOKENS,
 * second a constant. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    bool second;
};

SL_INLINE void band_times(const struct layout l, const struct sl_k_matmul *m,
                          const struct tables *t, const uint8_t *band, const struct pass p,
                          __m256 *acc)
{
    const struct sl_k_act *x = p.x;
    uint32_t units = m->cols / 32, unit_bytes = 32 * l.bits + 128 / l.group * 2;
    const uint8_t *at = band + SL_SQ_ROW_SCALE_BYTES;
    for (uint32_t i = 0; i < p.n; i++) acc[i] = _mm256_setzero_ps();
    for (uint64_t b = 0; b < units; b++, at += unit_bytes) {
        struct unit u;
        unpack_levels(l, at, t, u.level);
        unpack_scales(l, at + 32 * l.bits, &u);
        for (uint32_t i = 0; i < p.n; i++) {
            struct sl_k_digit first = {x[i].q, x[i].d, x[i].sums};
            acc[i] = add_digit(&u, first, b, acc[i]);
            if (p.second && has_second(&x[i], b)) acc[i] = add_digit(&u, x[i].second, b, acc[i]);
        }
    }
    __m256i d = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(band)), 16);
    for (uint32_t i = 0; i < p.n; i++) acc[i] = _mm256_mul_ps(_mm256_castsi256_ps(d), acc[i]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    struct tables t = make_tables(l.bits, levels);
    __m256 acc[TOKENS];
    for (uint32_t r = 0; r < m->rows; r += TILE_ROWS) {
        const uint8_t *band = (const uint8_t *)m->w + r * m->row_bytes;
        uint32_t rows = m->rows - r < TILE_ROWS ? m->rows - r : TILE_ROWS;
        for (uint32_t first = 0; first < m->n_tokens; first += TOKENS) {
            uint32_t n = m->n_tokens - first < TOKENS ? m->n_tokens - first : TOKENS;
            const struct sl_k_act *x = m->x + first;
            bool second = any_second(x, n);
            if (n == 1 && second)
                band_times(l, m, &t, band, (struct pass){x, 1, true}, acc);
            else if (n == 1)
                band_times(l, m, &t, band, (struct pass){x, 1, false}, acc);
            else if (second)
                band_times(l, m, &t, band, (struct pass){x, n, true}, acc);
            else
                band_times(l, m, &t, band, (struct pass){x, n, false}, acc);
            for (uint32_t i = 0; i < n; i++)
                store_lanes(m->y + (first + i) * m->y_stride + r, acc[i], rows);
        }
    }
}

#define MATMUL(name, type, ...)                                                                    \
    void sl_k_matmul_##name##__avx2(const struct sl_k_matmul *m)                                   \
    {                                                                                              \
        matmul((struct layout){__VA_ARGS__}, m, sl_sq_info(type)->levels);                         \
    }

SL_FOR_TYPES_SQ(MATMUL)
