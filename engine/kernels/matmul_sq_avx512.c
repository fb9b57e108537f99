/* Matrix times vectors for the container's own weight types (formats/sq.h), for AVX-512 with VNNI
 * and VBMI.
 *
 * Two bands go together, sixteen rows. Codes become levels by one permutation of bytes, which takes
 * no notice of the two highest bits of an index: with a table of 64 in which the levels repeat,
 * nothing needs to be masked off. Four products are added up in 32 bits by one instruction, so that
 * m multiplies once a group; what the offset adds is taken from the sums of the activations' codes.
 * All of this is exact; the floats follow the scalar definition, a lane per row. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx512.h"

/* What a type is; constants of each kernel. */
struct layout {
    uint32_t bits, group;
    int base, step; /* offset number j is base + j * step */
};

struct tables {
    __m512i level;
    __m512i other; /* 3 bits: of the last quad, whose high bit is bit 3 */
};

/* A unit of two bands, unpacked. */
struct unit {
    __m512i level[8];
    __m512i m_low, m_high; /* m for columns 0 to 15 and 16 to 31 */
    __m512i minus;         /* m * -offset for the first and the second 16 columns, 16 bits each */
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

/* The index of quad i: its code in the low bits, anything above them. p: the unit's planes. */
SL_INLINE __m512i indices(uint32_t bits, const __m512i *p, int i)
{
    const __m512i low2 = _mm512_set1_epi8(3), low4 = _mm512_set1_epi8(15);
    if (bits == 2) return shifted(p[i / 4], 2 * (i % 4));
    if (bits == 3 && i < 6) return shifted(p[i / 2], 3 * (i % 2));
    if (bits == 3) return select512(low2, shifted(p[i - 6], 6), shifted(p[2], 4));
    __m512i low = shifted(p[i / 2], 4 * (i % 2));
    if (bits == 4) return low;
    if (bits == 5) return select512(low4, low, shifted(p[4], i - 4));
    return select512(low4, low, shifted(p[4 + i / 4], 2 * (i % 4) - 4));
}

SL_INLINE void unpack_levels(const struct layout l, const uint8_t *a, const uint8_t *b,
                             const struct tables *t, __m512i *level)
{
    __m512i p[6];
    for (uint32_t i = 0; i < l.bits; i++) p[i] = plane(a, b, i);
    for (int i = 0; i < 8; i++) {
        __m512i table = l.bits == 3 && i == 7 ? t->other : t->level;
        level[i] = _mm512_permutexvar_epi8(indices(l.bits, p, i), table);
    }
}

SL_INLINE struct tables make_tables(uint32_t bits, const uint8_t *levels)
{
    uint8_t level[64], other[64];
    for (uint32_t i = 0; i < 64; i++) {
        level[i] = levels[i & ((1u << bits) - 1)];
        other[i] = bits == 3 ? levels[(i & 3) | (i >> 3 & 1) << 2] : 0;
    }
    return (struct tables){_mm512_loadu_si512(level), _mm512_loadu_si512(other)};
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* m and m * -offset of sixteen scale bytes, eight of each band. */
SL_INLINE __m512i unpack_scales(const struct layout l, const uint8_t *a, const uint8_t *b,
                                __m512i *minus)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m128i bytes = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)a),
                                       _mm_loadl_epi64((const __m128i *)(const void *)b));
    __m512i v = _mm512_cvtepu8_epi32(bytes);
    __m512i m = _mm512_add_epi32(_mm512_and_si512(v, _mm512_set1_epi32(15)), one);
    __mmask16 negative = _mm512_test_epi32_mask(v, _mm512_set1_epi32(128));
    m = _mm512_mask_sub_epi32(m, negative, _mm512_setzero_si512(), m);
    __m512i j = _mm512_and_si512(_mm512_srli_epi32(v, 4), _mm512_set1_epi32(7));
    __m512i offset = _mm512_add_epi32(_mm512_mullo_epi32(j, _mm512_set1_epi32(-l.step)),
                                      _mm512_set1_epi32(-l.base));
    *minus = _mm512_mullo_epi32(m, offset);
    return m;
}

/* The low words of low and high, in the low and the high half of a lane. */
SL_INLINE __m512i pair_words(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

SL_INLINE struct unit unpack(const struct layout l, const uint8_t *a, const uint8_t *b,
                             const struct tables *t)
{
    struct unit u;
    __m512i minus_low, minus_high;
    unpack_levels(l, a, b, t, u.level);
    a += 32 * l.bits;
    b += 32 * l.bits;
    u.m_low = u.m_high = unpack_scales(l, a, b, &minus_low);
    minus_high = minus_low;
    if (l.group == 16) u.m_high = unpack_scales(l, a + 8, b + 8, &minus_high);
    u.minus = pair_words(minus_low, minus_high);
    return u;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A unit times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE __m512 add_digit(const struct layout l, const struct unit *u, struct sl_k_digit x,
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

/* ---- bands ----------------------------------------------------------------------------------- */

#define AHEAD 8 /* units for which it is found out at a time who has a second digit */

/* Activations of one pass, at most WIDE_TOKENS, and those among them of which some block has a
 * second digit. ahead: the bands that follow are to be asked for. */
struct pass {
    const struct sl_k_act *x;
    bool ahead;
    uint32_t n, n_second;
    uint8_t second[WIDE_TOKENS];
};

SL_INLINE void begin_pass(const struct sl_k_act *x, uint32_t n, struct pass *p)
{
    p->x = x;
    p->n = n;
    p->n_second = 0;
    for (uint32_t i = 0; i < n; i++)
        if (x[i].second.d != NULL) p->second[p->n_second++] = (uint8_t)i;
}

/* who[k] has bit i set where activation i has a second digit in unit b + k; n units are left. To
 * ask each activation at each unit would be as many branches that no processor foresees. */
SL_INLINE void find_seconds(const struct pass *p, uint64_t b, uint64_t n, uint64_t who[AHEAD])
{
    __mmask8 there = n < AHEAD ? (__mmask8)((1u << n) - 1) : 0xff;
    __m512i bits = _mm512_setzero_si512();
    for (uint32_t k = 0; k < p->n_second; k++) {
        uint32_t i = p->second[k];
        __m256 d = _mm256_maskz_loadu_ps(there, p->x[i].second.d + b);
        __mmask8 has = _mm256_cmp_ps_mask(d, _mm256_setzero_ps(), _CMP_NEQ_UQ);
        bits =
            _mm512_mask_or_epi64(bits, has, bits, _mm512_set1_epi64((long long)(UINT64_C(1) << i)));
    }
    _mm512_storeu_si512(who, bits);
}

/* Asks for a share of the next two bands. Two bands that are read side by side are no stream that a
 * processor's own prefetcher follows: SQ3_32 from memory, with 1 and 8 activations, 25 and 101 G
 * weights/s without, 38 and 119 with (one Zen 4 core of a busy machine, November 2026). */
SL_INLINE void prefetch_units(uintptr_t at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(at + i), _MM_HINT_T0);
}

SL_INLINE void bands_times(const struct layout l, const struct sl_k_matmul *m,
                           const struct tables *t, const uint8_t *const band[2],
                           const struct pass *p, __m512 *acc)
{
    const struct sl_k_act *x = p->x;
    uint64_t units = m->cols / 32, unit_bytes = 32 * l.bits + 128 / l.group * 2;
    uint64_t at = SL_SQ_ROW_SCALE_BYTES, who[AHEAD] = {0};
    for (uint32_t i = 0; i < p->n; i++) acc[i] = _mm512_setzero_ps();
    uintptr_t next = (uintptr_t)band[0] + WIDE_ROWS * m->row_bytes;
    for (uint64_t b = 0; b < units; b++, at += unit_bytes) {
        if (p->ahead) prefetch_units(next + 2 * b * unit_bytes, 2 * unit_bytes);
        struct unit u = unpack(l, band[0] + at, band[1] + at, t);
        if (p->n_second > 0 && b % AHEAD == 0) find_seconds(p, b, units - b, who);
        for (uint32_t i = 0; i < p->n; i++) {
            struct sl_k_digit first = {x[i].q, x[i].d, x[i].sums};
            acc[i] = add_digit(l, &u, first, b, acc[i]);
        }
        for (uint64_t left = who[b % AHEAD]; left != 0; left &= left - 1) {
            int i = __builtin_ctzll(left);
            acc[i] = add_digit(l, &u, x[i].second, b, acc[i]);
        }
    }
    __m256i words = _mm256_setr_m128i(load128(band[0]), load128(band[1]));
    __m512 d = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
    for (uint32_t i = 0; i < p->n; i++) acc[i] = _mm512_mul_ps(d, acc[i]);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m, const uint8_t *levels)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    struct tables t = make_tables(l.bits, levels);
    __m512 acc[WIDE_TOKENS];
    for (uint32_t r = 0; r < m->rows; r += WIDE_ROWS) {
        const uint8_t *first = (const uint8_t *)m->w + r * m->row_bytes;
        uint32_t rows = m->rows - r < WIDE_ROWS ? m->rows - r : WIDE_ROWS;
        /* Where there is no second band, the first stands in for it. */
        const uint8_t *const band[2] = {first, rows > 8 ? first + 8 * m->row_bytes : first};
        for (uint32_t t0 = 0; t0 < m->n_tokens; t0 += WIDE_TOKENS) {
            uint32_t n = m->n_tokens - t0 < WIDE_TOKENS ? m->n_tokens - t0 : WIDE_TOKENS;
            struct pass p = {.ahead = t0 == 0};
            begin_pass(m->x + t0, n, &p);
            bands_times(l, m, &t, band, &p, acc);
            for (uint32_t i = 0; i < n; i++)
                _mm512_mask_storeu_ps(m->y + (t0 + i) * m->y_stride + r, lanes512(rows), acc[i]);
        }
    }
}

/* With one activation the AVX2 variant reads from memory faster: 45 G weights/s (SQ3_32). */
#define MATMUL(name, type, bits, group, base, step)                                                \
    void sl_k_matmul_##name##__avx512(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul_##name##__avx2(m);                                                         \
        else                                                                                       \
            matmul((struct layout){bits, group, base, step}, m, sl_sq_info(type)->levels);         \
    }

MATMUL(sq2_32, SL_SQ2_32, 2, 32, 26, 3)
MATMUL(sq2_16, SL_SQ2_16, 2, 16, 26, 3)
MATMUL(sq3_32, SL_SQ3_32, 3, 32, 32, 2)
MATMUL(sq3_16, SL_SQ3_16, 3, 16, 32, 2)
MATMUL(sq4_32, SL_SQ4_32, 4, 32, 31, 2)
MATMUL(sq4_16, SL_SQ4_16, 4, 16, 31, 2)
MATMUL(sq5_32, SL_SQ5_32, 5, 32, 25, 2)
MATMUL(sq6_32, SL_SQ6_32, 6, 32, 29, 2)
