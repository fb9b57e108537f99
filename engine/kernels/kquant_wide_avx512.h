/* Blocks of 256 columns (the k-quants and IQ4_XS) of sixteen rows, unpacked for AVX-512: brought
 * into the shape that the container's types have in the file, a vector per four columns (a quad),
 * with a lane per row. The bytes are transposed as they lie there, still packed, and taken apart
 * afterwards. For the files that define kernels. */
#ifndef SL_KQUANT_WIDE_AVX512_H
#define SL_KQUANT_WIDE_AVX512_H

#include "engine/kernels/kquant_avx512.h"
#include "formats/blocks.h"

#define GROUPS 8     /* of 32 columns */
#define IQ4_BIAS 128 /* makes the values unsigned */

/* A block of sixteen rows. */
struct wide {
    __m512i level[8 * GROUPS]; /* unsigned bytes: columns 4i to 4i + 3 */
    __m512i scale[2 * GROUPS]; /* of each 16 columns; or of each 32, the first eight; or those of
                                  two times 16, a word each, the first eight */
    __m512i pair[GROUPS];      /* minima, two words: of each 16 columns, or, four vectors, 32 */
    __m512i start;             /* of sums, where the levels are signed */
    __m512 d, dmin;
};

/* Sixteen rows: quarter[i] points at row 4 * i. */
struct tile16 {
    const uint8_t *quarter[4];
    uint64_t stride;
};

/* Sixteen bytes of every row: out[i] gets bytes 4i to 4i + 3. */
SL_INLINE void transpose(const struct tile16 *t, uint64_t at, __m512i out[4])
{
    const uint8_t *row[WIDE_ROWS];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < WIDE_ROWS; i++) row[i] = t->quarter[i / 4] + i % 4 * t->stride;
    transpose512(row, at, out);
}

/* Each byte shifted right (negative: left) by a constant; what comes from the neighbour byte is
 * still to be masked off. */
SL_INLINE __m512i shifted(__m512i v, int right)
{
    return right >= 0 ? _mm512_srli_epi16(v, (unsigned)right)
                      : _mm512_slli_epi16(v, (unsigned)-right);
}

/* The low words of all lanes as half-precision numbers. */
SL_INLINE __m512 low_halves(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
SL_INLINE __m512 high_halves(__m512i v) { return low_halves(_mm512_srli_epi32(v, 16)); }

/* ---- shared pieces --------------------------------------------------------------------------- */

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

/* A permutation that gives each byte of a lane that lane's byte i. */
SL_INLINE __m512i four_times(int i)
{
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    return _mm512_add_epi8(first, bytes512(i));
}

/* The low two bits of each byte as index into four bytes of its lane. */
SL_INLINE __m512i table_index(__m512i codes)
{
    const __m512i lane =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm512_or_si512(lane, and512(codes, 3));
}

/* ---- the types ------------------------------------------------------------------------------- */

/* Of scale number i: for each row scale * code of the codes 0 to 3, a byte each. bytes: as of
 * head_q3_k, unsigned. */
SL_INLINE __m512i products_q2_k(const __m512i bytes[4], int i)
{
    __m512i one = _mm512_shuffle_epi8(bytes[i / 4], four_times(i % 4));
    __m512i p = _mm512_maskz_mov_epi8(0xaaaaaaaaaaaaaaaa, one);
    return _mm512_mask_add_epi8(p, 0xcccccccccccccccc, p, _mm512_add_epi8(one, one));
}

SL_INLINE void unpack_q2_k_folded(const struct tile16 *t, uint64_t at, struct wide *out)
{
    const __m512i words = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -128, 1, -128, 4, -128, 5, -128, 8, -128, 9, -128, 12, -128, 13, -128));
    __m512i v[4], bytes[4];
    transpose(t, at, v);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i min = and512(shifted(v[i], 4), 15);
        bytes[i] = and512(v[i], 15);
        out->pair[2 * i] = _mm512_shuffle_epi8(min, words);
        out->pair[2 * i + 1] =
            _mm512_shuffle_epi8(min, _mm512_add_epi8(words, _mm512_set1_epi16(2)));
    }
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) { /* 16 bytes: of half part / 2, columns part % 2 * 16 */
        transpose(t, at + 16 + 16 * (uint64_t)part, v);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) { /* two bits of each byte are a group's */
            int g = part / 2 * 4 + k;
            __m512i table = products_q2_k(bytes, 2 * g + part % 2);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                out->level[8 * g + part % 2 * 4 + i] =
                    _mm512_shuffle_epi8(table, table_index(shifted(v[i], 2 * k)));
        }
    }
    transpose(t, at + 68, v);
    out->d = low_halves(v[3]);
    out->dmin = high_halves(v[3]);
}

/* Scales of each 16 columns, as signed bytes: byte j of bytes[i] is number 4i + j. Returns d.
 * formats/decode_kquant.c has the layout of the 12 bytes. They and the half after them are reached
 * from two bytes before, lest the last block's end be overrun. */
SL_INLINE __m512 head_q3_k(const struct tile16 *t, uint64_t at, __m512i bytes[4])
{
    __m512i v[4];
    transpose(t, at + 94, v);
    __m512i a = _mm512_or_si512(_mm512_srli_epi32(v[0], 16), _mm512_slli_epi32(v[1], 16));
    __m512i b = _mm512_or_si512(_mm512_srli_epi32(v[1], 16), _mm512_slli_epi32(v[2], 16));
    __m512i top = _mm512_or_si512(_mm512_srli_epi32(v[2], 16), _mm512_slli_epi32(v[3], 16));
    bytes[0] = merge(a, 15, shifted(top, -4), 0x30);
    bytes[1] = merge(b, 15, shifted(top, -2), 0x30);
    bytes[2] = merge(shifted(a, 4), 15, top, 0x30);
    bytes[3] = merge(shifted(b, 4), 15, shifted(top, 2), 0x30);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) bytes[i] = _mm512_sub_epi8(bytes[i], bytes512(32));
    return high_halves(v[3]);
}

SL_INLINE void unpack_q3_k(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i v[4], high[8], bytes[4];
    out->d = head_q3_k(t, at, bytes);
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

/* Of scale number i: for each row scale * (4 - code) of the codes 0 to 3, a byte each. *four gets
 * four times the scale in each byte. */
SL_INLINE __m512i products_q3_k(const __m512i bytes[4], int i, __m512i *four)
{
    __m512i one = _mm512_shuffle_epi8(bytes[i / 4], four_times(i % 4));
    __m512i two = _mm512_add_epi8(one, one);
    __m512i p = _mm512_mask_add_epi8(one, 0x3333333333333333, one, two);
    *four = _mm512_add_epi8(two, two);
    return _mm512_mask_add_epi8(p, 0x5555555555555555, p, one);
}

/* With the scales in the levels, and the other sign: scale * (4 - code) is -32 * 4 to 31 * 4, a
 * signed byte, so codes of activations have to be unsigned, 128 more than they are, and sums begin
 * with what takes that back. They have the other sign, too, and so has d. */
SL_INLINE void unpack_q3_k_folded(const struct tile16 *t, uint64_t at, struct wide *out)
{
    __m512i v[4], high[8], bytes[4], sum[4]; /* four, since in one they would wait */
    for (int i = 0; i < 4; i++) sum[i] = _mm512_setzero_si512();
    out->d = _mm512_sub_ps(_mm512_set1_ps(-0.0f), head_q3_k(t, at, bytes));
    transpose(t, at, high);
    transpose(t, at + 16, high + 4);
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) { /* 16 bytes: of half part / 2, columns part % 2 * 16 */
        transpose(t, at + 32 + 16 * (uint64_t)part, v);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) { /* two bits of each byte are a group's */
            int g = part / 2 * 4 + k;
            __m512i four, table = products_q3_k(bytes, 2 * g + part % 2, &four);
            __m512i *level = out->level + 8 * g + part % 2 * 4;
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __mmask64 has = _mm512_test_epi8_mask(high[part % 2 * 4 + i], bytes512(1 << g));
                level[i] = _mm512_shuffle_epi8(table, table_index(shifted(v[i], 2 * k)));
                level[i] = _mm512_mask_sub_epi8(level[i], has, level[i], four);
                sum[i] = _mm512_dpbusd_epi32(sum[i], bytes512(0x80), level[i]);
            }
        }
    }
    sum[0] = _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]), _mm512_add_epi32(sum[2], sum[3]));
    out->start = _mm512_sub_epi32(_mm512_setzero_si512(), sum[0]);
}

/* Scales and minima of Q4_K and Q5_K: one of each for a group. */
SL_INLINE void unpack_head(const struct tile16 *t, uint64_t at, struct wide *out)
{
    const __m512i words = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -128, 1, -128, 4, -128, 5, -128, 8, -128, 9, -128, 12, -128, 13, -128));
    __m512i v[4];
    transpose(t, at, v);
    out->d = low_halves(v[0]);
    out->dmin = high_halves(v[0]);
    __m512i scale[2] = {and512(v[1], 63), merge(v[3], 15, shifted(v[1], 2), 0x30)};
    __m512i min[2] = {and512(v[2], 63), merge(shifted(v[3], 4), 15, shifted(v[2], 2), 0x30)};
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) out->scale[g] = byte_u(scale[g / 4], g % 4);
#pragma GCC unroll 4
    for (int p = 0; p < GROUPS / 2; p++) {
        __m512i from = p % 2 ? _mm512_add_epi8(words, _mm512_set1_epi16(2)) : words;
        out->pair[p] = _mm512_shuffle_epi8(min[p / 2], from);
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
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) out->scale[i] = byte_s(v[i / 4], i % 4);
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
        transpose(t, at + 8 + 16 * (uint64_t)g, v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            out->level[8 * g + (unsigned)j] = _mm512_permutexvar_epi8(v[j], table);
            out->level[8 * g + 4 + (unsigned)j] = _mm512_permutexvar_epi8(shifted(v[j], 4), table);
        }
    }
}

#endif
