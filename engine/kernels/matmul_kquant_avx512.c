/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS), for AVX-512 with
 * VNNI and VBMI.
 *
 * A block of sixteen rows is brought into the shape that the container's types have in the file: a
 * vector per four columns (a quad), with a lane per row. The bytes are transposed as they lie
 * there, still packed, and taken apart afterwards, in a buffer that stays in the first-level cache
 * while all activations pass over it. So everything is a vector over rows, scales and float
 * arithmetic too, and no sum is ever taken across lanes. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/kquant_avx512.h"
#include "formats/blocks.h"

#define GROUPS 8 /* of 32 columns */

/* A block of sixteen rows, unpacked. */
struct wide {
    __m512i level[8 * GROUPS]; /* unsigned bytes: columns 4i to 4i + 3 */
    __m512i scale[2 * GROUPS]; /* of each 16 columns; or of each 32, the first eight; or those of
                                  two times 16, a word each, the first eight */
    __m512i pair[GROUPS];      /* two words, for the two halves of a group: minima, or what takes
                                  the levels' bias back: scale * -bias */
    __m512 d, dmin;
};

/* Rows of the tile at hand; beyond the last row of the matrix the last one is repeated. */
struct tile16 {
    const uint8_t *row[WIDE_ROWS];
    uintptr_t next; /* address of the tile that follows */
    uint32_t n;     /* rows that count, 1..16 */
    enum ahead ahead;
};

typedef void unpack_fn(const struct tile16 *t, uint64_t at, struct wide *out);

struct layout {
    unpack_fn *unpack;
    uint32_t block_bytes;
    uint32_t group; /* columns of a scale */
    bool narrow;    /* sums of 16 products, less the bias, fit 16 bits: two go together */
    bool minima;
    uint32_t bias;  /* of the codes */
    uint32_t least; /* activations for which all this pays; for 2 or 3 there is the AVX2 variant */
};

/* ---- shared pieces --------------------------------------------------------------------------- */

/* Sixteen bytes of every row: out[i] gets bytes 4i to 4i + 3. */
SL_INLINE void transpose(const struct tile16 *t, uint64_t at, __m512i out[4])
{
    transpose512(t->row, at, out);
}

/* Each byte shifted right (negative: left) by a constant; what comes from the neighbour byte is
 * still to be masked off. */
SL_INLINE __m512i shifted(__m512i v, int right)
{
    return right >= 0 ? _mm512_srli_epi16(v, (unsigned)right)
                      : _mm512_slli_epi16(v, (unsigned)-right);
}

SL_INLINE __m512i and512(__m512i v, int mask)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}

/* Byte i of each lane, unsigned or signed. */
SL_INLINE __m512i byte_u(__m512i v, int i)
{
    return _mm512_srli_epi32(_mm512_slli_epi32(v, (unsigned)(24 - 8 * i)), 24);
}

SL_INLINE __m512i byte_s(__m512i v, int i)
{
    return _mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - 8 * i)), 24);
}

/* The low words of low and high, in the low and the high half of a lane. */
SL_INLINE __m512i pair_words(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

/* The low words of all lanes as half-precision numbers. */
SL_INLINE __m512 low_halves(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
SL_INLINE __m512 high_halves(__m512i v) { return low_halves(_mm512_srli_epi32(v, 16)); }

/* Sixteen signed bytes in four vectors, as words, two a lane. */
SL_INLINE void paired_scales(const __m512i bytes[4], __m512i *out)
{
    const __m512i order = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
    const __m512i two = _mm512_set1_epi16(0x0200);
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        __m512i from = g % 2 ? _mm512_add_epi8(order, two) : order;
        out[g] = _mm512_srai_epi16(_mm512_shuffle_epi8(bytes[g / 2], from), 8);
    }
}

/* scale[] from such bytes, and pair[] for codes with a bias. */
SL_INLINE void signed_scales(const __m512i bytes[4], int bias, struct wide *out)
{
    paired_scales(bytes, out->pair);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) out->scale[i] = byte_s(bytes[i / 4], i % 4);
    for (int g = 0; g < GROUPS; g++)
        out->pair[g] = _mm512_mullo_epi16(out->pair[g], _mm512_set1_epi16((short)-bias));
}

/* ---- the types ------------------------------------------------------------------------------- */

SL_INLINE void unpack_q2_k(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i v[4];
    transpose(t, at, v);
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        __m512i both = shifted(v[g / 2], 0);
        __m512i scale = and512(both, 15), min = and512(shifted(both, 4), 15);
        int first = 2 * g % 4;
        out->scale[g] = pair_words(byte_u(scale, first), byte_u(scale, first + 1));
        out->pair[g] = pair_words(byte_u(min, first), byte_u(min, first + 1));
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            transpose(t, at + 16 + (uint64_t)(32 * half + 16 * k), v);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                out->level[32 * half + 8 * (i / 4) + 4 * k + i % 4] =
                    and512(shifted(v[i % 4], 2 * (i / 4)), 3);
        }
    transpose(t, at + 68, v);
    out->d = low_halves(v[3]);
    out->dmin = high_halves(v[3]);
}

/* formats/decode_kquant.c has the layout of the 12 bytes of scales. They and the half after them
 * are reached from two bytes before, lest the last block's end be overrun. */
SL_INLINE void unpack_q3_k(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i v[4], high[8], bytes[4];
    transpose(t, at + 94, v);
    out->d = high_halves(v[3]);
    __m512i a = _mm512_or_si512(_mm512_srli_epi32(v[0], 16), _mm512_slli_epi32(v[1], 16));
    __m512i b = _mm512_or_si512(_mm512_srli_epi32(v[1], 16), _mm512_slli_epi32(v[2], 16));
    __m512i top = _mm512_or_si512(_mm512_srli_epi32(v[2], 16), _mm512_slli_epi32(v[3], 16));
    bytes[0] = merge(a, 15, shifted(top, -4), 0x30);
    bytes[1] = merge(b, 15, shifted(top, -2), 0x30);
    bytes[2] = merge(shifted(a, 4), 15, top, 0x30);
    bytes[3] = merge(shifted(b, 4), 15, shifted(top, 2), 0x30);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) bytes[i] = _mm512_sub_epi8(bytes[i], _mm512_set1_epi8(32));
    paired_scales(bytes, out->scale);

    transpose(t, at, high);
    transpose(t, at + 16, high + 4);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            transpose(t, at + 32 + (uint64_t)(32 * half + 16 * k), v);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) {
                int g = 4 * half + i / 4;
                out->level[8 * g + 4 * k + i % 4] = merge(shifted(v[i % 4], 2 * (i / 4)), 3,
                                                          shifted(high[4 * k + i % 4], g - 2), 4);
            }
        }
}

/* Scales and minima of Q4_K and Q5_K: one of each for a group. */
SL_INLINE void unpack_head(const struct tile16 *t, uint64_t at, struct wide *out)
{
    const __m512i twice[4] = {
        _mm512_set1_epi32((int)0x80008000), _mm512_set1_epi32((int)0x80018001),
        _mm512_set1_epi32((int)0x80028002), _mm512_set1_epi32((int)0x80038003)};
    const __m512i in_lane =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x00040004, 0x00080008, 0x000c000c));
    __m512i v[4];
    transpose(t, at, v);
    out->d = low_halves(v[0]);
    out->dmin = high_halves(v[0]);
    __m512i scale[2] = {and512(v[1], 63), merge(v[3], 15, shifted(v[1], 2), 0x30)};
    __m512i min[2] = {and512(v[2], 63), merge(shifted(v[3], 4), 15, shifted(v[2], 2), 0x30)};
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        out->scale[g] = byte_u(scale[g / 4], g % 4);
        __m512i order = _mm512_add_epi32(twice[g % 4], in_lane);
        out->pair[g] = _mm512_shuffle_epi8(min[g / 4], order);
    }
}

SL_INLINE void unpack_q4_k(const struct tile16 *t, uint64_t at, struct wide *out)
{
    unpack_head(t, at, out);
    for (int i = 0; i < GROUPS; i++) {
        __m512i v[4], *level = out->level + 16 * (i / 2) + 4 * (i % 2);
        transpose(t, at + 16 + 16 * (uint64_t)i, v);
        for (int j = 0; j < 4; j++) {
            level[j] = and512(v[j], 15);
            level[8 + j] = and512(shifted(v[j], 4), 15);
        }
    }
}

SL_INLINE void unpack_q5_k(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i high[8];
    unpack_head(t, at, out);
    transpose(t, at + 16, high);
    transpose(t, at + 32, high + 4);
#pragma GCC unroll 8
    for (int i = 0; i < GROUPS; i++) {
        __m512i v[4], *level = out->level + 16 * (i / 2) + 4 * (i % 2);
        transpose(t, at + 48 + 16 * (uint64_t)i, v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512i bits = high[4 * (i % 2) + j];
            int g = i / 2 * 2;
            level[j] = merge(v[j], 15, shifted(bits, g - 4), 16);
            level[8 + j] = merge(shifted(v[j], 4), 15, shifted(bits, g - 3), 16);
        }
    }
}

SL_INLINE void unpack_q6_k(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i v[4], high[8];
    transpose(t, at + 194, v);
    out->d = high_halves(v[3]);
    transpose(t, at + 192, v);
    signed_scales(v, 32, out);
    for (int half = 0; half < 2; half++) {
        transpose(t, at + 128 + 32 * (uint64_t)half, high);
        transpose(t, at + 144 + 32 * (uint64_t)half, high + 4);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) { /* 16 bytes: of quarter i / 2, and of the one two later */
            __m512i *level = out->level + 32 * half + 8 * (i / 2) + 4 * (i % 2);
            transpose(t, at + 64 * (uint64_t)half + 16 * (uint64_t)i, v);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                __m512i bits = high[4 * (i % 2) + j];
                level[j] = merge(v[j], 15, shifted(bits, 2 * (i / 2) - 4), 0x30);
                level[16 + j] = merge(shifted(v[j], 4), 15, shifted(bits, 2 * (i / 2)), 0x30);
            }
        }
    }
}

#define IQ4_BIAS 128 /* makes the values unsigned */

/* Scales: low four bits are nibbles of the second dword, high two bits are in the first. */
SL_INLINE void unpack_iq4_xs(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i v[4], table = _mm512_broadcast_i32x4(load128(sl_iq4_values));
    table = _mm512_xor_si512(table, _mm512_set1_epi8((char)IQ4_BIAS));
    transpose(t, at, v);
    out->d = low_halves(v[0]);
    __m512i head = _mm512_srli_epi32(v[0], 16), low = v[1];
#pragma GCC unroll 8
    for (unsigned g = 0; g < GROUPS; g++) {
        __m512i four = _mm512_and_si512(_mm512_srli_epi32(low, 4 * g), _mm512_set1_epi32(15));
        __m512i two = _mm512_and_si512(_mm512_srli_epi32(head, 2 * g), _mm512_set1_epi32(3));
        __m512i scale = _mm512_or_si512(four, _mm512_slli_epi32(two, 4));
        out->scale[g] = _mm512_sub_epi32(scale, _mm512_set1_epi32(32));
        __m512i surplus = _mm512_mullo_epi32(out->scale[g], _mm512_set1_epi32(-IQ4_BIAS));
        out->pair[g] = pair_words(surplus, surplus);
        transpose(t, at + 8 + 16 * (uint64_t)g, v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            out->level[8 * g + (unsigned)j] = _mm512_permutexvar_epi8(v[j], table);
            out->level[8 * g + 4 + (unsigned)j] = _mm512_permutexvar_epi8(shifted(v[j], 4), table);
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

#define AT_ONCE 4 /* activations for which a level is loaded once */

/* A block of n activations (a constant). */
struct x_block {
    const int8_t *q[AT_ONCE];
    const int16_t *sums[AT_ONCE];
    int16_t surplus[AT_ONCE][16]; /* narrow: what the bias adds to each sum of 16 */
    float d[AT_ONCE];
};

SL_INLINE void load_x(const struct layout l, struct sl_k_digit x, uint64_t b, uint32_t i,
                      struct x_block *out)
{
    out->q[i] = x.q + 256 * b;
    out->sums[i] = x.sums + 16 * b;
    out->d[i] = x.d[b];
    if (!l.narrow || l.bias == 0) return;
    __m256i surplus = _mm256_mullo_epi16(load256(out->sums[i]), _mm256_set1_epi16((short)l.bias));
    _mm256_storeu_si256((__m256i *)(void *)out->surplus[i], surplus);
}

/* n_quads quads, which meet the codes from q on (n_quads and n are constants), times their scale:
 * added to isum. */
SL_INLINE void add_quads(const __m512i *level, uint32_t n_quads, __m512i scale, uint32_t n,
                         const int8_t *const q[AT_ONCE], __m512i *isum)
{
    __m512i dot[AT_ONCE];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) dot[i] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (uint32_t k = 0; k < n_quads; k++) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n; i++) dot[i] = dot512(dot[i], level[k], q[i] + 4 * k);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++)
        isum[i] = _mm512_add_epi32(isum[i], _mm512_mullo_epi32(dot[i], scale));
}

/* The same of two groups of 16 columns, whose sums share a lane; g: their number. */
SL_INLINE void add_pairs(const struct layout l, const struct wide *w, uint32_t g, uint32_t n,
                         const struct x_block *x, __m512i *isum)
{
    __m512i low[AT_ONCE], high[AT_ONCE];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) low[i] = high[i] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n; i++)
            low[i] = dot512(low[i], w->level[8 * g + k], x->q[i] + 32 * g + 4 * k);
    }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n; i++)
            high[i] = dot512(high[i], w->level[8 * g + 4 + k], x->q[i] + 32 * g + 16 + 4 * k);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) {
        __m512i sums = pair_words(low[i], high[i]);
        if (l.bias) sums = _mm512_sub_epi16(sums, spread512(x->surplus[i] + 2 * g));
        isum[i] = _mm512_dpwssd_epi32(isum[i], sums, w->scale[g]);
    }
}

/* The block times n activations (a constant): added to acc. */
SL_INLINE void block_times(const struct layout l, const struct wide *w, const struct x_block *x,
                           uint32_t n, __m512 *acc)
{
    __m512i isum[AT_ONCE], psum[AT_ONCE];
    for (uint32_t i = 0; i < n; i++) isum[i] = psum[i] = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (uint32_t g = 0; g < GROUPS; g++) {
        const __m512i *level = w->level + 8 * g;
        const int8_t *q[AT_ONCE], *q_high[AT_ONCE];
        for (uint32_t i = 0; i < n; i++) q[i] = x->q[i] + 32 * g;
        for (uint32_t i = 0; i < n; i++) q_high[i] = q[i] + 16;
        if (l.narrow) {
            add_pairs(l, w, g, n, x, isum);
        } else if (l.group == 32) {
            add_quads(level, 8, w->scale[g], n, q, isum);
        } else {
            add_quads(level, 4, w->scale[2 * g], n, q, isum);
            add_quads(level + 4, 4, w->scale[2 * g + 1], n, q_high, isum);
        }
        if (!l.minima && (l.narrow || !l.bias)) continue;
        for (uint32_t i = 0; i < n; i++)
            psum[i] = _mm512_dpwssd_epi32(psum[i], w->pair[g], spread512(x->sums[i] + 2 * g));
    }
    for (uint32_t i = 0; i < n; i++) {
        __m512 dx = _mm512_set1_ps(x->d[i]);
        if (l.bias && !l.narrow) isum[i] = _mm512_add_epi32(isum[i], psum[i]);
        acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(w->d, dx), _mm512_cvtepi32_ps(isum[i]), acc[i]);
        if (!l.minima) continue;
        acc[i] = _mm512_fnmadd_ps(_mm512_mul_ps(w->dmin, dx), _mm512_cvtepi32_ps(psum[i]), acc[i]);
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

SL_INLINE struct tile16 tile16_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct tile16 t;
    t.n = m->rows - first < WIDE_ROWS ? m->rows - first : WIDE_ROWS;
    for (uint32_t i = 0; i < WIDE_ROWS; i++) {
        uint32_t r = i < t.n ? first + i : m->rows - 1;
        t.row[i] = (const uint8_t *)m->w + r * m->row_bytes;
    }
    t.next = (uintptr_t)t.row[0] + WIDE_ROWS * m->row_bytes;
    t.ahead = AHEAD_SECOND;
    return t;
}

/* As prefetch_next of simd_avx2.h, which says why: block b's share of the next tile. */
SL_INLINE void prefetch16(const struct tile16 *t, uint64_t b, uint32_t block_bytes)
{
    if (t->ahead == AHEAD_NOT) return;
    uintptr_t at = t->next + b * WIDE_ROWS * block_bytes;
    for (uint32_t i = 0; i < WIDE_ROWS * block_bytes; i += 64)
        _mm_prefetch((const char *)(at + i), _MM_HINT_T1);
}

/* Block b of n activations in groups of AT_ONCE, 2 and 1. */
SL_INLINE void pass_times(const struct layout l, const struct wide *w, const struct sl_k_act *x,
                          const uint64_t n_and_b[2], __m512 *acc)
{
    struct x_block xb;
    uint32_t n = (uint32_t)n_and_b[0], i = 0;
    uint64_t b = n_and_b[1];
    while (i < n) {
        uint32_t step = n - i >= AT_ONCE ? AT_ONCE : n - i >= 2 ? 2 : 1;
        for (uint32_t k = 0; k < step; k++)
            load_x(l, (struct sl_k_digit){x[i + k].q, x[i + k].d, x[i + k].sums}, b, k, &xb);
        if (step == AT_ONCE)
            block_times(l, w, &xb, AT_ONCE, acc + i);
        else if (step == 2)
            block_times(l, w, &xb, 2, acc + i);
        else
            block_times(l, w, &xb, 1, acc + i);
        i += step;
    }
    for (i = 0; i < n; i++)
        if (has_second(&x[i], b)) {
            load_x(l, x[i].second, b, 0, &xb);
            block_times(l, w, &xb, 1, acc + i);
        }
}

SL_INLINE void matmul(const struct layout l, sl_k_matmul_fn *for_few, const struct sl_k_matmul *m)
{
    if (m->n_tokens < l.least) {
        for_few(m);
        return;
    }
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    __m512 acc[WIDE_TOKENS];
    struct wide w;
    for (uint32_t r = 0; r < m->rows; r += WIDE_ROWS) {
        struct tile16 t = tile16_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += WIDE_TOKENS) {
            const struct sl_k_act *x = m->x + first;
            uint32_t n = m->n_tokens - first < WIDE_TOKENS ? m->n_tokens - first : WIDE_TOKENS;
            for (uint32_t i = 0; i < n; i++) acc[i] = _mm512_setzero_ps();
            for (uint64_t b = 0; b < m->cols / 256; b++) {
                prefetch16(&t, b, l.block_bytes);
                l.unpack(&t, b * l.block_bytes, &w);
                const uint64_t n_and_b[2] = {n, b};
                pass_times(l, &w, x, n_and_b, acc);
            }
            for (uint32_t i = 0; i < n; i++)
                _mm512_mask_storeu_ps(m->y + (first + i) * m->y_stride + r, lanes512(t.n), acc[i]);
            t.ahead = AHEAD_NOT; /* once is enough */
        }
    }
}

/* group, narrow, minima, bias, least: see struct layout. */
#define MATMUL(name, bytes, ...)                                                                   \
    void sl_k_matmul_##name##__avx512(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul1_##name(m);                                                                \
        else                                                                                       \
            matmul((struct layout){unpack_##name, bytes, __VA_ARGS__}, sl_k_matmul_##name##__avx2, \
                   m);                                                                             \
    }

MATMUL(q2_k, SL_Q2_K_BYTES, 16, true, true, 0, 4)
MATMUL(q3_k, SL_Q3_K_BYTES, 16, true, false, 4, 2)
MATMUL(q4_k, SL_Q4_K_BYTES, 32, false, true, 0, 2)
MATMUL(q5_k, SL_Q5_K_BYTES, 32, false, true, 0, 4)
MATMUL(q6_k, SL_Q6_K_BYTES, 16, false, false, 32, 4)
MATMUL(iq4_xs, SL_IQ4_XS_BYTES, 32, false, false, IQ4_BIAS, 2)
