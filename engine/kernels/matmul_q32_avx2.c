/* Matrix times vectors for weights in blocks of 32, for AVX2.
 *
 * Eight rows go together. Two of them share a vector: rows i and i + 4 of the tile lie in its low
 * and high half, so that a block of both is two vectors of codes, weights 0..15 (lo) and 16..31
 * (hi). Codes are unsigned with a bias where that fits 16 bits (the bias is taken back through the
 * activations' sums), signed otherwise. The integer sums of the eight rows are then folded into one
 * vector, a lane per row, and meet their scales there, in the order of the scalar definition.
 *
 * A tile's unpacked block is used for several activations before the next one is unpacked. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"
#include "formats/blocks.h"

/* How large the codes are, which decides where sums need 32 bits. */
enum size {
    SMALL,  /* 0..15: all of a row's half block fits 16 bits */
    MIDDLE, /* 0..31: a quarter does */
    LARGE   /* signed */
};

/* Codes of one block of two rows. */
struct codes {
    __m256i lo, hi;
};

typedef struct codes unpack_fn(const uint8_t *a, const uint8_t *b);

struct layout {
    unpack_fn *unpack;
    uint32_t block_bytes;
    enum size size;
    int bias;
    bool offsets; /* a second half-precision number follows the scale */
    bool e8m0;    /* the scale is a power of two in one byte */
};

/* A block of a tile, unpacked: codes of rows i and i + 4, scales and offsets of all eight. */
struct unpacked {
    struct codes c[4];
    __m256 d, m;
};

#define TOKENS 8 /* activations per pass over a tile */

/* ---- codes ------------------------------------------------------------------------------ */

SL_INLINE struct codes nibbles(const uint8_t *a, const uint8_t *b)
{
    const __m256i low4 = _mm256_set1_epi8(15);
    __m256i both = load_pair(a, b);
    struct codes c = {_mm256_and_si256(both, low4),
                      _mm256_and_si256(_mm256_srli_epi16(both, 4), low4)};
    return c;
}

SL_INLINE struct codes lookup(struct codes c, __m256i table)
{
    c.lo = _mm256_shuffle_epi8(table, c.lo);
    c.hi = _mm256_shuffle_epi8(table, c.hi);
    return c;
}

/* Adds 16 where the bit of the weight is set; a and b point to the 32 bits of a block. */
SL_INLINE struct codes add_high_bits(struct codes c, const uint8_t *a, const uint8_t *b)
{
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i sixteen = _mm256_set1_epi8(16);
    const __m256i first = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi8(2));
    __m256i bits = _mm256_blend_epi32(_mm256_set1_epi32((int)sl_load_u32(a)),
                                      _mm256_set1_epi32((int)sl_load_u32(b)), 0xf0);
    __m256i lo = _mm256_and_si256(_mm256_shuffle_epi8(bits, first), bit);
    __m256i hi = _mm256_and_si256(_mm256_shuffle_epi8(bits, second), bit);
    c.lo = _mm256_or_si256(c.lo, _mm256_and_si256(_mm256_cmpeq_epi8(lo, bit), sixteen));
    c.hi = _mm256_or_si256(c.hi, _mm256_and_si256(_mm256_cmpeq_epi8(hi, bit), sixteen));
    return c;
}

SL_INLINE struct codes unpack_q8_0(const uint8_t *a, const uint8_t *b)
{
    struct codes c = {load_pair(a + 2, b + 2), load_pair(a + 18, b + 18)};
    return c;
}

SL_INLINE struct codes unpack_q4_0(const uint8_t *a, const uint8_t *b)
{
    return nibbles(a + 2, b + 2);
}

SL_INLINE struct codes unpack_q4_1(const uint8_t *a, const uint8_t *b)
{
    return nibbles(a + 4, b + 4);
}

SL_INLINE struct codes unpack_q5_0(const uint8_t *a, const uint8_t *b)
{
    return add_high_bits(nibbles(a + 6, b + 6), a + 2, b + 2);
}

SL_INLINE struct codes unpack_q5_1(const uint8_t *a, const uint8_t *b)
{
    return add_high_bits(nibbles(a + 8, b + 8), a + 4, b + 4);
}

SL_INLINE struct codes unpack_iq4_nl(const uint8_t *a, const uint8_t *b)
{
    return lookup(nibbles(a + 2, b + 2), broadcast128(sl_iq4_values));
}

#define FP4_BIAS 12 /* makes the doubled E2M1 values 0..24 */

SL_INLINE struct codes unpack_mxfp4(const uint8_t *a, const uint8_t *b)
{
    __m256i biased = _mm256_add_epi8(broadcast128(sl_fp4_values), _mm256_set1_epi8(FP4_BIAS));
    return lookup(nibbles(a + 1, b + 1), biased);
}

/* ---- sums ------------------------------------------------------------------------------- */

/* Codes of two rows times an activation block: sums that are still spread over lanes, of 16 bits
 * (SMALL, MIDDLE) or 32 (LARGE). */
SL_INLINE __m256i dot_pair(struct codes c, const int8_t *x, enum size size)
{
    __m256i x_lo = broadcast128(x), x_hi = broadcast128(x + 16);
    if (size != LARGE) return _mm256_add_epi16(dot_unsigned(c.lo, x_lo), dot_unsigned(c.hi, x_hi));
    const __m256i ones = _mm256_set1_epi16(1);
    return _mm256_add_epi32(_mm256_madd_epi16(dot_signed(c.lo, x_lo), ones),
                            _mm256_madd_epi16(dot_signed(c.hi, x_hi), ones));
}

/* Folds the sums of four pairs of rows into a lane per row. Packing to 16 bits saves shuffles and
 * is exact here: the sums that are packed are at most 15 * 127 * 16 = 30,480 (SMALL, twice) and 31
 * * 127 * 8 = 31,496 (MIDDLE, once). */
SL_INLINE __m256i fold(const __m256i p[4], enum size size)
{
    if (size == LARGE) return reduce_pairs(p);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i d[4];
    for (int i = 0; i < 4; i++) d[i] = _mm256_madd_epi16(p[i], ones);
    __m256i low = _mm256_madd_epi16(_mm256_packs_epi32(d[0], d[1]), ones);
    __m256i high = _mm256_madd_epi16(_mm256_packs_epi32(d[2], d[3]), ones);
    if (size == MIDDLE) return _mm256_hadd_epi32(low, high);
    return _mm256_madd_epi16(_mm256_packs_epi32(low, high), ones);
}

/* sl_e8m0_half_to_f32 of the byte at offset at of each row. */
SL_INLINE __m256 load_e8m0(const struct tile *t, uint64_t at)
{
    uint64_t bytes = 0;
    for (int i = 0; i < TILE_ROWS; i++) bytes |= (uint64_t)t->row[i][at] << (8 * i);
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, is_denormal));
}

/* ---- tiles ------------------------------------------------------------------------------ */

/* A tile's block times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE __m256 add_digit(const struct layout l, const struct unpacked *w, struct sl_k_digit x,
                           uint64_t b, __m256 acc)
{
    __m256i p[4];
    for (int k = 0; k < 4; k++) p[k] = dot_pair(w->c[k], x.q + 32 * b, l.size);
    __m256i isum = fold(p, l.size);
    __m256 dx = _mm256_broadcast_ss(&x.d[b]);
    int32_t xsum = 0;
    if (l.bias != 0 || l.offsets) xsum = x.sums[2 * b] + x.sums[2 * b + 1];
    if (l.bias != 0) isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(l.bias * xsum));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(w->d, dx), _mm256_cvtepi32_ps(isum), acc);
    if (!l.offsets) return acc;
    return _mm256_fmadd_ps(_mm256_mul_ps(w->m, dx), _mm256_set1_ps((float)xsum), acc);
}

/* Activations of one pass; second: some may have a second digit. n is a constant 1 or at most
 * TOKENS, second a constant. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    bool second;
};

SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, const struct tile *t,
                          const struct pass p, __m256 *acc)
{
    uint32_t blocks = m->cols / 32;
    const struct sl_k_act *x = p.x;
    for (uint32_t i = 0; i < p.n; i++) acc[i] = _mm256_setzero_ps();
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t at = b * l.block_bytes;
        prefetch_next(t, b, TILE_ROWS * l.block_bytes);
        struct unpacked w;
        for (int i = 0; i < 4; i++) w.c[i] = l.unpack(t->row[i] + at, t->row[i + 4] + at);
        w.d = l.e8m0 ? load_e8m0(t, at) : load_halves(t, at);
        w.m = l.offsets ? load_halves(t, at + 2) : w.d;
        for (uint32_t i = 0; i < p.n; i++) {
            struct sl_k_digit first = {x[i].q, x[i].d, x[i].sums};
            acc[i] = add_digit(l, &w, first, b, acc[i]);
            if (p.second && has_second(&x[i], b)) acc[i] = add_digit(l, &w, x[i].second, b, acc[i]);
        }
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    __m256 acc[TOKENS];
    for (uint32_t r = 0; r < m->rows; r += TILE_ROWS) {
        struct tile t = tile_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += TOKENS) {
            uint32_t n = m->n_tokens - first < TOKENS ? m->n_tokens - first : TOKENS;
            const struct sl_k_act *x = m->x + first;
            bool second = any_second(x, n);
            if (n == 1 && second)
                tile_times(l, m, &t, (struct pass){x, 1, true}, acc);
            else if (n == 1)
                tile_times(l, m, &t, (struct pass){x, 1, false}, acc);
            else if (second)
                tile_times(l, m, &t, (struct pass){x, n, true}, acc);
            else
                tile_times(l, m, &t, (struct pass){x, n, false}, acc);
            for (uint32_t i = 0; i < n; i++)
                store_lanes(m->y + (first + i) * m->y_stride + r, acc[i], t.n);
            t.ahead = AHEAD_NOT; /* once is enough */
        }
    }
}

#define MATMUL(name, bytes, size, bias, offsets, e8m0)                                             \
    void sl_k_matmul_##name##__avx2(const struct sl_k_matmul *m)                                   \
    {                                                                                              \
        matmul((struct layout){unpack_##name, bytes, size, bias, offsets, e8m0}, m);               \
    }

MATMUL(q8_0, SL_Q8_0_BYTES, LARGE, 0, false, false)
MATMUL(q4_0, SL_Q4_0_BYTES, SMALL, 8, false, false)
MATMUL(q4_1, SL_Q4_1_BYTES, SMALL, 0, true, false)
MATMUL(q5_0, SL_Q5_0_BYTES, MIDDLE, 16, false, false)
MATMUL(q5_1, SL_Q5_1_BYTES, MIDDLE, 0, true, false)
MATMUL(iq4_nl, SL_IQ4_NL_BYTES, LARGE, 0, false, false)
MATMUL(mxfp4, SL_MXFP4_BYTES, MIDDLE, FP4_BIAS, false, true)
