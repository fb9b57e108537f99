/* Matrix times one vector for weights in blocks of 256 (the k-quants and IQ4_XS), for AVX-512 with
 * VNNI, VBMI and GFNI: what decoding a token consists of.
 *
 * Rows are gone through one after the other, from end to end, as they lie in memory: that is what a
 * processor's own prefetchers follow. Where reading memory without computing took 7.0 ms for a head
 * of 255 MB, so did the product, and with four rows at a time, a block of each in turn, 7.8 (two
 * Zen 4 cores, November 2026).
 *
 * A row's block is four vectors of 64 codes, made of the bytes of the file where they lie; the
 * activation's blocks are brought into the same order beforehand. Products are added up four at a
 * time; they fit 16 bits (Q6_K: 4 * 63 * 127 = 32,004; Q3_K: 4 * 4 * 7 * 127 = 14,224), so that two
 * vectors of them meet their scales in one instruction. What the codes' bias adds is taken back for
 * sixteen columns at once, by the sums of the activation's codes. Where it saves shifting, codes
 * stay where they are in their bytes, and so come 4 or 16 times too large: the scales of the rest
 * make up for it, and the sum of all is shifted back. Four blocks of a row leave their sums as one
 * vector in memory; those of sixteen rows are then turned into one vector a block, a lane per row,
 * for the arithmetic of the scalar definition. */
#include "engine/kernels/kquant_avx512.h"
#include "formats/blocks.h"

#define QUAD 4    /* blocks whose sums are folded together */
#define PASSES 32 /* blocks at a stretch: for so many the activation is prepared beforehand */
/* How far ahead weights are asked for: 5,120 bytes are late, and from 6,656 on the processor's own
 * prefetchers are left behind, which have more requests under way (docs/LEARNED.md). */
#define AHEAD_BYTES 5888

/* A block of an activation, one of its digits: codes in the order of the weights'. */
struct pass {
    __m512i q[4];
    __m256i less;     /* what takes the bias back: words that meet the scales */
    __m512i start[2]; /* BY_LANES: the same, of every eight codes, where sums begin */
    float d;
    uint32_t block;
};

struct quad {
    struct pass pass[QUAD];
    __m512i sums[2]; /* where there are minima: the sums for eight of them, a quarter a pass */
};

struct stretch {
    struct quad quad[PASSES / QUAD];
    uint32_t n; /* passes */
};

/* What a quad yields for sixteen rows, a vector each; pass k is in quarter k. */
struct partial {
    __m512i isum[WIDE_ROWS];
    __m512i msum[WIDE_ROWS]; /* and their minima */
    uint16_t d[QUAD][WIDE_ROWS], dmin[QUAD][WIDE_ROWS];
};

/* Four blocks' packed scales, sixteen bytes a block. */
typedef __m512i heads_fn(__m512i head, const __m512i sums[2], __m512i *msum);
typedef void codes_fn(const uint8_t *block, __m512i code[4]);
typedef __m256i words_fn(const uint8_t *block, const uint8_t *scales);

/* Which columns a vector of codes has. */
enum order {
    BY_HALVES, /* vector j: group j of 32 columns of each half of the block */
    BY_PAIRS,  /* vector j of two: groups j and j + 2 of a half; the same of the other half */
    IN_ORDER,  /* as they are */
    BY_LANES   /* first halves of groups 0..3, then second halves; the same of groups 4..7 */
};

struct layout {
    heads_fn *heads; /* NULL: none wanted */
    codes_fn *codes;
    words_fn *words; /* a block's scales as words, from it or its part of heads */
    enum order order;
    uint32_t block_bytes;
    uint32_t heads_at; /* the 16 bytes that heads is given */
    uint32_t d_at;     /* where the scale is in a block */
    uint32_t dmin_at;  /* and the scale of the minima; 0: no minima */
    int bias;          /* what codes are too large by */
    uint8_t shift[4];  /* codes of a vector come 2^shift times too large */
    uint32_t total;    /* and with the scales all of them 2^total times */
};

/* ---- shared pieces --------------------------------------------------------------------------- */

/* The matrix that moves n bits of a byte, from bit from to bit to, and leaves nothing else. */
SL_INLINE long long moves(int from, int to, int n)
{
    uint64_t rows = 0; /* the row for bit 7 is the lowest byte */
    for (int i = 0; i < n; i++) rows |= UINT64_C(1) << (from + i) << 8 * (7 - to - i);
    return (long long)rows;
}

/* n bits of every byte, from bit from[0] on in the low half of the vector, from[1] in the high
 * half, moved to bit to; the others are zero. */
SL_INLINE __m512i moved_bits(__m512i v, const int from[2], int to, int n)
{
    long long a = moves(from[0], to, n), b = moves(from[1], to, n);
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_setr_epi64(a, a, a, a, b, b, b, b), 0);
}

/* The bits of v in mask, and such moved bits of high. */
SL_INLINE __m512i join_bits(__m512i v, int mask, __m512i high, const int from[2], int to, int n)
{
    return _mm512_ternarylogic_epi32(moved_bits(high, from, to, n), v, bytes512(mask), 0xf8);
}

SL_INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }

/* The same for a vector that is used several times: gcc would rather load it again for each, and
 * most loads of 64 bytes from a file's blocks touch two lines of the cache. */
SL_INLINE __m512i load_once(const void *p)
{
    __m512i v = load512(p);
    __asm__("" : "+v"(v));
    return v;
}

/* Sixteen bytes of four blocks. */
SL_INLINE __m512i load_heads(const uint8_t *const block[QUAD], uint64_t at)
{
    __m512i v = _mm512_castsi128_si512(load128(block[0] + at));
    v = _mm512_inserti32x4(v, load128(block[1] + at), 1);
    v = _mm512_inserti32x4(v, load128(block[2] + at), 2);
    return _mm512_inserti32x4(v, load128(block[3] + at), 3);
}

/* ---- sums of lanes --------------------------------------------------------------------------- */

/* Sums of the four lanes from 4k on of vector i: lane 4k + i of the result. */
SL_INLINE __m512i fold_quarters(const __m512i v[4])
{
    __m512i p[2];
    for (int i = 0; i < 2; i++) {
        __m512i a = v[2 * i], b = v[2 * i + 1];
        p[i] = _mm512_add_epi32(_mm512_mask_blend_epi32(0xcccc, a, b), _mm512_alignr_epi8(b, a, 8));
    }
    __m512 a = _mm512_castsi512_ps(p[0]), b = _mm512_castsi512_ps(p[1]);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
}

/* What v[k] has in its four quarters, added up: quarter k of the result. */
SL_INLINE __m512i fold_four(const __m512i v[4])
{
    __m512i h[2];
    for (int i = 0; i < 2; i++) {
        __m512i a = v[2 * i], b = v[2 * i + 1];
        h[i] =
            _mm512_add_epi32(_mm512_mask_blend_epi32(0xff00, a, b), _mm512_alignr_epi64(b, a, 4));
    }
    return _mm512_add_epi32(_mm512_shuffle_i64x2(h[0], h[1], 0x88),
                            _mm512_shuffle_i64x2(h[0], h[1], 0xdd));
}

/* ---- the types ------------------------------------------------------------------------------- */

SL_INLINE __m512i heads_q2_k(__m512i head, const __m512i sums[2], __m512i *msum)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i min = _mm512_and_si512(_mm512_srli_epi16(head, 4), bytes512(15));
    *msum = _mm512_madd_epi16(_mm512_unpacklo_epi8(min, zero), sums[0]);
    *msum = _mm512_dpwssd_epi32(*msum, _mm512_unpackhi_epi8(min, zero), sums[1]);
    return _mm512_and_si512(head, bytes512(15));
}

SL_INLINE void codes_q2_k(const uint8_t *block, __m512i code[4])
{
    __m512i v = load_once(block + 16);
    code[0] = _mm512_and_si512(v, bytes512(0x03));
    code[1] = _mm512_and_si512(v, bytes512(0x0c));
    code[2] = _mm512_and_si512(v, bytes512(0x30));
    code[3] = _mm512_and_si512(_mm512_srli_epi16(v, 2), bytes512(0x30));
}

SL_INLINE void codes_q3_k(const uint8_t *block, __m512i code[4])
{
    __m512i v = load_once(block + 32), h = _mm512_broadcast_i64x4(load256(block));
    __m512i w = _mm512_srli_epi16(v, 4);
    code[0] = join_bits(v, 0x03, h, (const int[]){0, 4}, 2, 1);
    code[1] = join_bits(v, 0x0c, h, (const int[]){1, 5}, 4, 1);
    code[2] = join_bits(w, 0x03, h, (const int[]){2, 6}, 2, 1);
    code[3] = join_bits(w, 0x0c, h, (const int[]){3, 7}, 4, 1);
}

/* Scales 2j and 2j + 1 of either half belong to vector j. */
SL_INLINE __m256i words_q2_k(const uint8_t *block, const uint8_t *scales)
{
    (void)block;
    return _mm256_sllv_epi16(_mm256_cvtepi8_epi16(load128(scales)),
                             _mm256_setr_epi16(4, 4, 2, 2, 0, 0, 0, 0, 4, 4, 2, 2, 0, 0, 0, 0));
}

/* formats/decode_kquant.c has the layout of the 12 bytes. The six bits of a scale are gathered at
 * the top of a byte: there, turning the highest over takes away 32. */
SL_INLINE __m256i words_q3_k(const uint8_t *block, const uint8_t *scales)
{
    (void)scales;
    uint64_t bytes;
    memcpy(&bytes, block + 96, sizeof bytes);
    __m128i low = _mm_rolv_epi64(_mm_set1_epi64x((long long)bytes), _mm_set_epi64x(62, 2));
    __m128i top =
        _mm_sllv_epi32(_mm_set1_epi32((int)sl_load_u32(block + 104)), _mm_setr_epi32(6, 4, 2, 0));
    __m128i six = _mm_ternarylogic_epi32(_mm_set1_epi8(0x3c), low, top, 0xca);
    six = _mm_ternarylogic_epi32(six, _mm_set1_epi8((char)0xfc), _mm_set1_epi8((char)0x80), 0x6a);
    return _mm256_sllv_epi16(_mm256_cvtepi8_epi16(six),
                             _mm256_setr_epi16(2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0));
}

/* Q4_K and Q5_K: scales as eight bytes, one for a group, and products with the minima. */
SL_INLINE __m512i heads_q4_k(__m512i head, const __m512i sums[2], __m512i *msum)
{
    const __m512i four = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0, 4));
    const __m512i low_mask =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m512i min_words = _mm512_broadcast_i32x4(
        _mm_setr_epi8(8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15, -1));
    __m512i low = _mm512_shuffle_epi32(head, _MM_PERM_DCDB);
    __m512i top = _mm512_srli_epi16(_mm512_shuffle_epi32(head, _MM_PERM_CCBB), 2);
    top = _mm512_and_si512(top, bytes512(0x30));
    __m512i v = select512(low_mask, _mm512_srlv_epi32(low, four), top);
    *msum = _mm512_madd_epi16(_mm512_shuffle_epi8(v, min_words), sums[0]);
    return v;
}

SL_INLINE __m256i words_q4_k(const uint8_t *block, const uint8_t *scales)
{
    (void)block;
    return _mm256_cvtepu8_epi16(load128(scales));
}

SL_INLINE void codes_q4_k(const uint8_t *block, __m512i code[4])
{
    for (int i = 0; i < 2; i++) {
        __m512i v = load_once(block + 16 + 64 * i);
        code[2 * i] = _mm512_and_si512(v, bytes512(15));
        code[2 * i + 1] = moved_bits(v, (const int[]){4, 4}, 0, 4);
    }
}

SL_INLINE void codes_q5_k(const uint8_t *block, __m512i code[4])
{
    __m512i h = _mm512_broadcast_i64x4(load256(block + 16));
    __m512i v = load_once(block + 48), w = load_once(block + 112);
    code[0] = join_bits(v, 15, h, (const int[]){0, 2}, 4, 1);
    code[1] = join_bits(_mm512_srli_epi16(v, 4), 15, h, (const int[]){1, 3}, 4, 1);
    code[2] = join_bits(w, 15, h, (const int[]){4, 6}, 4, 1);
    code[3] = join_bits(_mm512_srli_epi16(w, 4), 15, h, (const int[]){5, 7}, 4, 1);
}

SL_INLINE __m256i words_q6_k(const uint8_t *block, const uint8_t *scales)
{
    (void)scales;
    return _mm256_cvtepi8_epi16(load128(block + 192));
}

SL_INLINE void codes_q6_k(const uint8_t *block, __m512i code[4])
{
    for (int i = 0; i < 2; i++) {
        __m512i v = load_once(block + 64 * i);
        __m512i h = _mm512_broadcast_i64x4(load256(block + 128 + 32 * i));
        code[2 * i] = join_bits(v, 15, h, (const int[]){0, 2}, 4, 2);
        code[2 * i + 1] = join_bits(_mm512_srli_epi16(v, 4), 15, h, (const int[]){4, 6}, 4, 2);
    }
}

#define IQ4_BIAS 128 /* makes the values unsigned */

/* Eight scales of six bits, as words: low four bits are nibbles of bytes 4..7, high two bits are in
 * bytes 2 and 3. */
SL_INLINE __m512i heads_iq4_xs(__m512i head, const __m512i sums[2], __m512i *msum)
{
    const __m512i low_byte = _mm512_broadcast_i32x4(
        _mm_setr_epi8(4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1));
    const __m512i top_word =
        _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3));
    const __m512i low_shift = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 4, 0, 4, 0, 4, 0, 4));
    const __m512i top_shift = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14));
    const __m512i low4 = _mm512_set1_epi16(15), two_high = _mm512_set1_epi16(0x30);
    (void)sums;
    (void)msum;
    __m512i low = _mm512_srlv_epi16(_mm512_shuffle_epi8(head, low_byte), low_shift);
    __m512i top = _mm512_srlv_epi16(_mm512_shuffle_epi8(head, top_word), top_shift);
    top = _mm512_and_si512(_mm512_slli_epi16(top, 4), two_high);
    return _mm512_sub_epi16(select512(low4, low, top), _mm512_set1_epi16(32));
}

SL_INLINE __m256i words_iq4_xs(const uint8_t *block, const uint8_t *scales)
{
    (void)block;
    return _mm256_castsi128_si256(load128(scales));
}

/* The permutation looks at the low six bits of a byte, of which the table repeats the upper two. */
SL_INLINE void codes_iq4_xs(const uint8_t *block, __m512i code[4])
{
    __m512i table = _mm512_broadcast_i32x4(load128(sl_iq4_values));
    table = _mm512_xor_si512(table, bytes512(IQ4_BIAS));
    for (int i = 0; i < 2; i++) {
        __m512i v = load_once(block + 8 + 64 * i);
        code[2 * i] = _mm512_permutexvar_epi8(v, table);
        code[2 * i + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), table);
    }
}

/* ---- a row's block --------------------------------------------------------------------------- */

#define WORDS(a, b) a, a, a, a, b, b, b, b

/* Which of a row's sixteen words the codes of vectors 0 and 1 meet, sixteen bytes of either in
 * turn; those of vectors 2 and 3 are word_step words later. */
static const uint16_t word_order[][32] = {
    [BY_HALVES] = {WORDS(0, 2), WORDS(1, 3), WORDS(8, 10), WORDS(9, 11)},
    [BY_PAIRS] = {WORDS(0, 1), WORDS(0, 1), WORDS(2, 3), WORDS(2, 3)},
    [IN_ORDER] = {WORDS(0, 4), WORDS(1, 5), WORDS(2, 6), WORDS(3, 7)},
};
static const short word_step[] = {[BY_HALVES] = 4, [BY_PAIRS] = 4, [IN_ORDER] = 8};

/* Codes of sixteen columns from at on, and at 32, 64 and 96 more. */
SL_INLINE __m512i load_lanes(const int8_t *at)
{
    __m512i v = _mm512_castsi128_si512(load128(at));
    v = _mm512_inserti32x4(v, load128(at + 32), 1);
    v = _mm512_inserti32x4(v, load128(at + 64), 2);
    return _mm512_inserti32x4(v, load128(at + 96), 3);
}

SL_INLINE __m512i load_x(enum order order, const int8_t *q, int j)
{
    switch (order) {
    case BY_HALVES:
        return join512(load256(q + 32 * j), load256(q + 128 + 32 * j));
    case BY_PAIRS:
        q += 32 * (j % 2) + 128 * (j / 2);
        return join512(load256(q), load256(q + 64));
    case IN_ORDER:
        return load512(q + 64 * j);
    case BY_LANES:
        break;
    }
    return load_lanes(q + 16 * (j % 2) + 128 * (j / 2));
}

/* Sixteen sums, for minima of 16 columns, or eight, for those of 32. */
SL_INLINE void set_sums(enum order order, const int16_t *sums, struct quad *x, uint32_t k)
{
    if (k == 0) x->sums[0] = x->sums[1] = _mm512_setzero_si512();
    if (order == BY_PAIRS) {
        __m256i eight = _mm256_madd_epi16(load256(sums), _mm256_set1_epi16(1));
        _mm_store_si128((__m128i *)&x->sums[0] + k, _mm256_cvtepi32_epi16(eight));
    } else {
        _mm_store_si128((__m128i *)&x->sums[0] + k, load128(sums));
        _mm_store_si128((__m128i *)&x->sums[1] + k, load128(sums + 8));
    }
}

/* A scale meets its sum of codes, at most 2,032, times this: less than 16 bits hold half of it for
 * Q6_K, whose scales are taken twice therefore. */
SL_INLINE int less_by(const struct layout l) { return -(l.bias == 32 ? 16 : l.bias); }

SL_INLINE void set_bias(const struct layout l, const int16_t *sums, struct pass *out)
{
    if (l.order == BY_LANES) {
        for (int j = 0; j < 2; j++) {
            __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), bytes512(1), out->q[2 * j]);
            sum = _mm512_dpbusd_epi32(sum, bytes512(1), out->q[2 * j + 1]);
            out->start[j] = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-l.bias));
        }
        return;
    }
    const short a = l.shift[0], b = l.shift[1], c = l.shift[2], d = l.shift[3];
    out->less = _mm256_mullo_epi16(load256(sums), _mm256_set1_epi16((short)less_by(l)));
    out->less = _mm256_sllv_epi16(
        out->less, _mm256_setr_epi16(a, a, b, b, c, c, d, d, a, a, b, b, c, c, d, d));
}

SL_INLINE void set_pass(const struct layout l, struct sl_k_digit x, uint32_t b, struct quad *quad,
                        uint32_t k)
{
    struct pass *out = &quad->pass[k];
    const int16_t *sums = x.sums + 16 * (uint64_t)b;
    out->block = b;
    out->d = x.d[b];
    for (int j = 0; j < 4; j++) out->q[j] = load_x(l.order, x.q + 256 * (uint64_t)b, j);
    if (l.dmin_at != 0) set_sums(l.order, sums, quad, k);
    if (l.bias != 0) set_bias(l, sums, out);
}

/* For codes that have both halves of a group in one sum, too large for 16 bits. */
SL_INLINE __m512i lanes_times(const __m512i code[4], __m256i words, const struct pass *x)
{
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i later = _mm512_add_epi32(lane, _mm512_set1_epi32(4));
    __m256i scale = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(words));
    __m512i scales = _mm512_castsi256_si512(scale), dot[2];
    for (int i = 0; i < 2; i++) {
        dot[i] = _mm512_dpbusd_epi32(x->start[i], code[2 * i], x->q[2 * i]);
        dot[i] = _mm512_dpbusd_epi32(dot[i], code[2 * i + 1], x->q[2 * i + 1]);
    }
    dot[0] = _mm512_mullo_epi32(dot[0], _mm512_permutexvar_epi32(lane, scales));
    dot[1] = _mm512_mullo_epi32(dot[1], _mm512_permutexvar_epi32(later, scales));
    return _mm512_add_epi32(dot[0], dot[1]);
}

/* What the bias of all codes has added, to begin with. */
SL_INLINE __m512i take_back(const struct layout l, __m256i words, const struct pass *x)
{
    if (l.bias == 0) return _mm512_setzero_si512();
    if (-less_by(l) != l.bias) words = _mm256_add_epi16(words, words);
    return _mm512_zextsi256_si512(_mm256_madd_epi16(words, x->less));
}

/* Sixteen partial sums of a row's block. scales: the block's part of what heads gave. */
SL_INLINE __m512i block_times(const struct layout l, const uint8_t *block, const uint8_t *scales,
                              const struct pass *x)
{
    __m512i code[4], dot[4];
    l.codes(block, code);
    __m256i words = l.words(block, scales);
    if (l.order == BY_LANES) return lanes_times(code, words, x);
    for (int j = 0; j < 4; j++)
        dot[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), code[j], x->q[j]);
    __m512i all = _mm512_castsi256_si512(words), first = load512(word_order[l.order]);
    __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(word_step[l.order]));
    __m512i sum = take_back(l, words, x);
    sum = _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(dot[0], dot[1]),
                              _mm512_permutexvar_epi16(first, all));
    return _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(dot[2], dot[3]),
                               _mm512_permutexvar_epi16(second, all));
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The first n passes of a quad, a constant, over row r of a tile. What lies ahead is asked for
 * meanwhile, into the second-level cache: the first has too few requests under way to keep memory
 * busy. */
SL_INLINE void quad_times(const struct layout l, const uint8_t *row, const struct quad *x,
                          const uint32_t n, uint32_t r, struct partial *out)
{
    const uint8_t *block[QUAD];
    uint8_t scales[64];
    __m512i sum[QUAD];
    for (uint32_t k = 0; k < QUAD; k++)
        block[k] = row + x->pass[k < n ? k : n - 1].block * (uint64_t)l.block_bytes;
    if (l.heads != NULL) {
        __m512i head = load_heads(block, l.heads_at);
        _mm512_storeu_si512(scales, l.heads(head, x->sums, &out->msum[r]));
    }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < QUAD; k++) {
        sum[k] = _mm512_setzero_si512();
        if (k >= n) continue;
        for (uint32_t i = 0; i < l.block_bytes; i += 64)
            _mm_prefetch((const char *)((uintptr_t)block[k] + AHEAD_BYTES + i), _MM_HINT_T1);
        sum[k] = block_times(l, block[k], scales + 16 * k, &x->pass[k]);
        out->d[k][r] = sl_load_u16(block[k] + l.d_at);
        if (l.dmin_at != 0) out->dmin[k][r] = sl_load_u16(block[k] + l.dmin_at);
    }
    out->isum[r] = fold_four(sum);
}

/* Sixteen rows; beyond the last row of the matrix the last one is repeated. rest, a constant: the
 * passes beside whole quads. */
SL_INLINE void rows_times(const struct layout l, const struct sl_k_matmul *m, uint32_t first,
                          const struct stretch *x, const uint32_t rest, struct partial *out)
{
    uint32_t whole = x->n / QUAD;
    for (uint32_t i = 0; i < WIDE_ROWS; i++) {
        uint32_t r = first + i < m->rows ? first + i : m->rows - 1;
        const uint8_t *row = (const uint8_t *)m->w + r * m->row_bytes;
        for (uint32_t k = 0; k < whole; k++) quad_times(l, row, &x->quad[k], QUAD, i, &out[k]);
        if (rest > 0) quad_times(l, row, &x->quad[whole], rest, i, &out[whole]);
    }
}

/* The sums of sixteen vectors' quarters: lane r of out[k] is that of quarter k of vector r. */
SL_INLINE void turn(const __m512i v[WIDE_ROWS], __m512i out[QUAD])
{
    __m512i a[4], b[4];
    for (int g = 0; g < 4; g++) a[g] = fold_quarters(v + 4 * g);
    for (int i = 0; i < 2; i++) {
        b[i] = _mm512_shuffle_i64x2(a[2 * i], a[2 * i + 1], 0x44);
        b[2 + i] = _mm512_shuffle_i64x2(a[2 * i], a[2 * i + 1], 0xee);
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = _mm512_shuffle_i64x2(b[2 * i], b[2 * i + 1], 0x88);
        out[2 * i + 1] = _mm512_shuffle_i64x2(b[2 * i], b[2 * i + 1], 0xdd);
    }
}

/* The first n passes of a quad, n at least 1. */
SL_INLINE __m512 add_partial(const struct layout l, const struct partial *p, const struct quad *x,
                             uint32_t n, __m512 acc)
{
    __m512i isum[QUAD], msum[QUAD];
    turn(p->isum, isum);
    if (l.dmin_at != 0) turn(p->msum, msum);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < QUAD && k < n; k++) {
        __m512 dx = _mm512_set1_ps(x->pass[k].d), dw = _mm512_cvtph_ps(load256(p->d[k]));
        isum[k] = _mm512_srai_epi32(isum[k], l.total);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(dw, dx), _mm512_cvtepi32_ps(isum[k]), acc);
        if (l.dmin_at == 0) continue;
        dw = _mm512_cvtph_ps(load256(p->dmin[k]));
        acc = _mm512_fnmadd_ps(_mm512_mul_ps(dw, dx), _mm512_cvtepi32_ps(msum[k]), acc);
    }
    return acc;
}

SL_INLINE __m512 tile_times(const struct layout l, const struct sl_k_matmul *m, uint32_t first,
                            const struct stretch *x, __m512 acc)
{
    struct partial p[PASSES / QUAD];
    switch (x->n % QUAD) {
    case 0:
        rows_times(l, m, first, x, 0, p);
        break;
    case 1:
        rows_times(l, m, first, x, 1, p);
        break;
    case 2:
        rows_times(l, m, first, x, 2, p);
        break;
    default:
        rows_times(l, m, first, x, 3, p);
        break;
    }
    for (uint32_t k = 0; k < x->n; k += QUAD)
        acc = add_partial(l, &p[k / QUAD], &x->quad[k / QUAD], x->n - k, acc);
    return acc;
}

/* The next passes of an activation from block b on, as many as fit: a block has one or two. Returns
 * the block after them. */
SL_INLINE uint32_t set_passes(const struct layout l, const struct sl_k_matmul *m, uint32_t b,
                              struct stretch *out)
{
    const struct sl_k_digit first = {m->x->q, m->x->d, m->x->sums};
    uint32_t n = 0;
    for (; b < m->cols / 256; b++) {
        bool second = has_second(m->x, b);
        if (n + 1 + second > PASSES) break;
        set_pass(l, first, b, &out->quad[n / QUAD], n % QUAD);
        n++;
        if (!second) continue;
        set_pass(l, m->x->second, b, &out->quad[n / QUAD], n % QUAD);
        n++;
    }
    out->n = n;
    return b;
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    struct stretch x;
    SLUICE_ASSERT(m->rows >= 1 && m->n_tokens == 1);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    for (uint32_t b = 0; b < m->cols / 256;) {
        bool begins = b == 0;
        b = set_passes(l, m, b, &x);
        for (uint32_t r = 0; r < m->rows; r += WIDE_ROWS) {
            __mmask16 lanes = lanes512(m->rows - r < WIDE_ROWS ? m->rows - r : WIDE_ROWS);
            __m512 acc = _mm512_setzero_ps();
            if (!begins) acc = _mm512_maskz_loadu_ps(lanes, m->y + r);
            acc = tile_times(l, m, r, &x, acc);
            _mm512_mask_storeu_ps(m->y + r, lanes, acc);
        }
    }
}

#define MATMUL(name, ...)                                                                          \
    void sl_k_matmul1_##name(const struct sl_k_matmul *m)                                          \
    {                                                                                              \
        matmul((struct layout){__VA_ARGS__}, m);                                                   \
    }

MATMUL(q2_k, heads_q2_k, codes_q2_k, words_q2_k, BY_HALVES, SL_Q2_K_BYTES, 0, 80, 82, 0,
       {0, 2, 4, 4}, 4)
MATMUL(q3_k, NULL, codes_q3_k, words_q3_k, BY_HALVES, SL_Q3_K_BYTES, 0, 108, 0, 4, {0, 2, 0, 2}, 4)
MATMUL(q4_k, heads_q4_k, codes_q4_k, words_q4_k, BY_PAIRS, SL_Q4_K_BYTES, 0, 0, 2, 0, {0}, 0)
MATMUL(q5_k, heads_q4_k, codes_q5_k, words_q4_k, BY_PAIRS, SL_Q5_K_BYTES, 0, 0, 2, 0, {0}, 0)
MATMUL(q6_k, NULL, codes_q6_k, words_q6_k, IN_ORDER, SL_Q6_K_BYTES, 0, 208, 0, 32, {0}, 0)
MATMUL(iq4_xs, heads_iq4_xs, codes_iq4_xs, words_iq4_xs, BY_LANES, SL_IQ4_XS_BYTES, 0, 0, 0,
       IQ4_BIAS, {0}, 0)
