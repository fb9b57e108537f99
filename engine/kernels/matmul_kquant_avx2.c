/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS), for AVX2.
 *
 * A row's block is eight groups of 32 codes. A group's products are added in pairs to 16 bits,
 * multiplied by the integer scale of their 16 or 32 weights, added in pairs to 32 bits and
 * collected. Scales come as eight words for the low half of a vector (weights 0..15 of group g:
 * word g) and eight for the high half (weights 16..31). Where codes are unsigned by a bias, a row
 * begins with what the bias will have added, negative. Eight rows are folded into one vector at the
 * end of the block, where the minima and the float scales come in, in the order of the scalar
 * definition. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/simd_avx2.h"
#include "formats/blocks.h"

/* The integers of a row's block beside its codes. */
struct scales {
    __m256i scale;   /* 16 words in the order told above */
    uint64_t min[2]; /* minima as bytes, in order: 8 (of 32 weights each) or 16 (of 16) */
};

typedef struct scales scales_fn(const uint8_t *block);
typedef __m256i codes_fn(const uint8_t *block, int group);

struct layout {
    scales_fn *scales;
    codes_fn *codes;
    uint32_t block_bytes;
    uint32_t d_at;    /* where the scale is in a block */
    uint32_t dmin_at; /* and the scale of the minima */
    int bias;         /* what the codes are too large by: 0, 4, 32 */
    uint32_t minima;  /* 0, 8 or 16 */
    bool is_signed;
};

/* ---- shared pieces ---------------------------------------------------------------------- */

/* Moves words 0, 2, 4 .. to the low half and 1, 3, 5 .. to the high half. */
SL_INLINE __m256i split_even_odd(__m256i words)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, order), 0xd8);
}

/* The same for bytes, which are then widened. */
SL_INLINE __m128i even_odd_bytes(__m128i bytes)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm_shuffle_epi8(bytes, order);
}

/* Word group of each half, in all words of that half. */
SL_INLINE __m256i group_scale(__m256i scale, int group)
{
    return _mm256_shuffle_epi8(scale, _mm256_set1_epi16((short)(0x0100 + 0x0202 * group)));
}

/* Each byte shifted right (negative: left) by a constant, then masked; the mask must clear what
 * comes from the neighbour byte. */
SL_INLINE __m256i shift_and(__m256i v, int right, int mask)
{
    __m256i s = right >= 0 ? _mm256_srli_epi16(v, right) : _mm256_slli_epi16(v, -right);
    return _mm256_and_si256(s, _mm256_set1_epi8((char)mask));
}

/* ---- the types -------------------------------------------------------------------------- */

SL_INLINE struct scales scales_q2_k(const uint8_t *block)
{
    const __m128i low4 = _mm_set1_epi8(15);
    __m128i bytes = even_odd_bytes(load128(block));
    struct scales s;
    memcpy(s.min, block, sizeof s.min);
    s.min[0] = s.min[0] >> 4 & 0x0f0f0f0f0f0f0f0f;
    s.min[1] = s.min[1] >> 4 & 0x0f0f0f0f0f0f0f0f;
    s.scale = _mm256_cvtepu8_epi16(_mm_and_si128(bytes, low4));
    return s;
}

SL_INLINE __m256i codes_q2_k(const uint8_t *block, int group)
{
    return shift_and(load256(block + 16 + group / 4 * 32), group % 4 * 2, 3);
}

/* formats/decode_kquant.c has the layout of the 12 bytes. */
SL_INLINE struct scales scales_q3_k(const uint8_t *block)
{
    const __m128i low4 = _mm_set1_epi8(15), two_high = _mm_set1_epi8(0x30);
    uint32_t top = sl_load_u32(block + 104);
    uint64_t bytes;
    memcpy(&bytes, block + 96, sizeof bytes);
    __m128i low = _mm_set_epi64x((long long)(bytes >> 4), (long long)bytes);
    __m128i high = _mm_setr_epi32((int)(top << 4), (int)(top << 2), (int)top, (int)(top >> 2));
    __m128i six = _mm_or_si128(_mm_and_si128(low, low4), _mm_and_si128(high, two_high));
    return (struct scales){
        .scale = _mm256_cvtepi8_epi16(even_odd_bytes(_mm_sub_epi8(six, _mm_set1_epi8(32))))};
}

SL_INLINE __m256i codes_q3_k(const uint8_t *block, int group)
{
    __m256i low = shift_and(load256(block + 32 + group / 4 * 32), group % 4 * 2, 3);
    return _mm256_or_si256(low, shift_and(load256(block), group - 2, 4));
}

/* Scales and minima of Q4_K and Q5_K: one for each group, so both halves get the same eight words.
 * In integer registers, because the vector units have enough to do. */
SL_INLINE struct scales scales_q45_k(const uint8_t *block)
{
    uint32_t a = sl_load_u32(block + 4), b = sl_load_u32(block + 8), c = sl_load_u32(block + 12);
    uint32_t scale = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    uint32_t min = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    uint64_t scales = (uint64_t)scale << 32 | (a & 0x3f3f3f3f);
    __m128i words = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)scales));
    struct scales s;
    s.scale = _mm256_broadcastsi128_si256(words);
    s.min[0] = (uint64_t)min << 32 | (b & 0x3f3f3f3f);
    s.min[1] = 0;
    return s;
}

SL_INLINE __m256i codes_q4_k(const uint8_t *block, int group)
{
    return shift_and(load256(block + 16 + group / 2 * 32), group % 2 * 4, 15);
}

SL_INLINE __m256i codes_q5_k(const uint8_t *block, int group)
{
    __m256i low = shift_and(load256(block + 48 + group / 2 * 32), group % 2 * 4, 15);
    return _mm256_or_si256(low, shift_and(load256(block + 16), group - 4, 16));
}

SL_INLINE struct scales scales_q6_k(const uint8_t *block)
{
    return (struct scales){.scale = _mm256_cvtepi8_epi16(even_odd_bytes(load128(block + 192)))};
}

SL_INLINE __m256i codes_q6_k(const uint8_t *block, int group)
{
    int half = group / 4, quarter = group % 4;
    __m256i low = shift_and(load256(block + 64 * half + quarter % 2 * 32), quarter / 2 * 4, 15);
    __m256i high = shift_and(load256(block + 128 + 32 * half), 2 * quarter - 4, 0x30);
    return _mm256_or_si256(low, high);
}

/* Low four bits: nibbles of 4 bytes; high two bits: a word. */
SL_INLINE struct scales scales_iq4_xs(const uint8_t *block)
{
    __m128i low = _mm_cvtsi32_si128((int)sl_load_u32(block + 4));
    low = _mm_unpacklo_epi8(low, _mm_srli_epi16(low, 4));
    low = _mm_and_si128(low, _mm_set1_epi8(15));
    /* Multiplying by 2^(14 - 2j) moves the two bits of scale j to the top of a word. */
    const __m128i to_top =
        _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
    __m128i high = _mm_mullo_epi16(_mm_set1_epi16((short)sl_load_u16(block + 2)), to_top);
    high = _mm_slli_epi16(_mm_srli_epi16(high, 14), 4);
    __m128i scale = _mm_or_si128(_mm_cvtepu8_epi16(low), high);
    return (struct scales){
        .scale = _mm256_broadcastsi128_si256(_mm_sub_epi16(scale, _mm_set1_epi16(32)))};
}

SL_INLINE __m256i codes_iq4_xs(const uint8_t *block, int group)
{
    __m256i both = broadcast128(block + 8 + 16 * group);
    both = _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    both = _mm256_and_si256(both, _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(broadcast128(sl_iq4_values), both);
}

/* ---- tiles ------------------------------------------------------------------------------ */

#define TOKENS 4 /* activations per pass over a tile */

/* A block of up to TOKENS activations. */
struct x_block {
    const int8_t *q[TOKENS];
    __m256 d[TOKENS];
    __m256i surplus[TOKENS]; /* sums of 16 codes, times minus the bias (32: times -16, for 16 bits),
                                in the order of the scales */
    __m256i sums[TOKENS][2]; /* sums for 8 or 16 minima, eight in each half of a vector, twice */
};

/* What a tile's block yields before it is folded. */
struct partial {
    __m256i isum[TOKENS][TILE_ROWS];
    uint64_t min[2][TILE_ROWS];
};

SL_INLINE void load_x(const struct layout l, struct sl_k_digit x, uint64_t b, uint32_t i,
                      struct x_block *out)
{
    const int16_t *sums = x.sums + 16 * b;
    out->q[i] = x.q + 256 * b;
    out->d[i] = _mm256_broadcast_ss(&x.d[b]);
    if (l.bias != 0) {
        __m256i factor = _mm256_set1_epi16((short)(l.bias == 32 ? -16 : -l.bias));
        out->surplus[i] = _mm256_mullo_epi16(split_even_odd(load256(sums)), factor);
    }
    if (l.minima == 16) {
        out->sums[i][0] = broadcast128(sums);
        out->sums[i][1] = broadcast128(sums + 8);
    } else if (l.minima == 8) {
        __m256i dwords = _mm256_madd_epi16(load256(sums), _mm256_set1_epi16(1));
        out->sums[i][0] = _mm256_permute4x64_epi64(_mm256_packs_epi32(dwords, dwords), 0x88);
    }
}

/* Row r's block times n activations (a constant). */
SL_INLINE void row_times(const struct layout l, const uint8_t *block, const struct x_block *x,
                         uint32_t n, struct partial *out, uint32_t r)
{
    struct scales s = l.scales(block);
    __m256i isum[TOKENS];
    for (uint32_t i = 0; i < n; i++) {
        isum[i] = _mm256_setzero_si256();
        if (l.bias != 0) isum[i] = _mm256_madd_epi16(s.scale, x->surplus[i]);
        if (l.bias == 32) isum[i] = _mm256_add_epi32(isum[i], isum[i]);
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i codes = l.codes(block, g);
        __m256i scale = group_scale(s.scale, g);
        for (uint32_t i = 0; i < n; i++) {
            __m256i xg = load256(x->q[i] + 32 * g);
            __m256i dot = l.is_signed ? dot_signed(codes, xg) : dot_unsigned(codes, xg);
            isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(dot, scale));
            /* Holds the sums to this order: gcc 12 would make a tree of them and run out of
             * registers (Q4_K, 4 activations: 60 instead of 74 G weights/s on a Zen 4 core). */
            if (n > 1) __asm__("" : "+x"(isum[i]));
        }
    }
    for (uint32_t i = 0; i < n; i++) out->isum[i][r] = isum[i];
    for (uint32_t h = 0; h < l.minima / 8; h++) out->min[h][r] = s.min[h];
}

/* Eight minima each of rows i and i + 4. Two loads, since one of 16 bytes would wait for two stores
 * of 8. */
SL_INLINE __m256i min_pair(const uint64_t min[TILE_ROWS], uint32_t i)
{
    return _mm256_cvtepu8_epi16(_mm_set_epi64x((long long)min[i + 4], (long long)min[i]));
}

/* Minima times sums, a lane per row. */
SL_INLINE __m256i fold_minima(const struct layout l, const struct partial *p, const __m256i sums[2])
{
    __m256i m[4];
    for (uint32_t i = 0; i < 4; i++) {
        m[i] = _mm256_madd_epi16(min_pair(p->min[0], i), sums[0]);
        if (l.minima == 8) continue;
        m[i] = _mm256_add_epi32(m[i], _mm256_madd_epi16(min_pair(p->min[1], i), sums[1]));
    }
    return reduce_pairs(m);
}

/* Block b of a tile times that of n activations, a constant: added to acc. */
SL_INLINE void block_times(const struct layout l, const struct tile *t, uint64_t b,
                           const struct x_block *xb, uint32_t n, __m256 *acc)
{
    struct partial p;
    uint64_t at = b * l.block_bytes;
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        prefetch_next(t, b * TILE_ROWS + r, l.block_bytes);
        row_times(l, t->row[r] + at, xb, n, &p, r);
    }
    __m256 dw = load_halves(t, at + l.d_at);
    __m256 dmin = l.minima != 0 ? load_halves(t, at + l.dmin_at) : dw;
    for (uint32_t i = 0; i < n; i++) {
        __m256 isum = _mm256_cvtepi32_ps(reduce_rows(p.isum[i]));
        acc[i] = _mm256_fmadd_ps(_mm256_mul_ps(dw, xb->d[i]), isum, acc[i]);
        if (l.minima == 0) continue;
        __m256 msum = _mm256_cvtepi32_ps(fold_minima(l, &p, xb->sums[i]));
        acc[i] = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, xb->d[i]), msum, acc[i]);
    }
}

/* The second digit of one activation's block. Rare enough that unpacking the weights once more
 * costs less than keeping every activation's digits side by side. */
SL_INLINE void add_second(const struct layout l, const struct tile *t, uint64_t b,
                          struct sl_k_digit x, __m256 *acc)
{
    struct tile again = *t;
    struct x_block xb;
    again.ahead = AHEAD_NOT;
    load_x(l, x, b, 0, &xb);
    block_times(l, &again, b, &xb, 1, acc);
}

/* Activations of one pass; second: some may have a second digit. n and second are constants. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    bool second;
};

SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, const struct tile *t,
                          const struct pass p, __m256 *acc)
{
    struct x_block xb;
    for (uint32_t i = 0; i < p.n; i++) acc[i] = _mm256_setzero_ps();
    for (uint64_t b = 0; b < m->cols / 256; b++) {
        for (uint32_t i = 0; i < p.n; i++)
            load_x(l, (struct sl_k_digit){p.x[i].q, p.x[i].d, p.x[i].sums}, b, i, &xb);
        block_times(l, t, b, &xb, p.n, acc);
        if (!p.second) continue;
        for (uint32_t i = 0; i < p.n; i++)
            if (has_second(&p.x[i], b)) add_second(l, t, b, p.x[i].second, &acc[i]);
    }
}

/* The same for any n: constants, for the templates. */
SL_INLINE void tile_times_any(const struct layout l, const struct sl_k_matmul *m,
                              const struct tile *t, const struct pass p, __m256 *acc)
{
    switch (p.n) {
    case 1:
        tile_times(l, m, t, (struct pass){p.x, 1, p.second}, acc);
        break;
    case 2:
        tile_times(l, m, t, (struct pass){p.x, 2, p.second}, acc);
        break;
    case 3:
        tile_times(l, m, t, (struct pass){p.x, 3, p.second}, acc);
        break;
    default:
        tile_times(l, m, t, (struct pass){p.x, TOKENS, p.second}, acc);
        break;
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    __m256 acc[TOKENS];
    for (uint32_t r = 0; r < m->rows; r += TILE_ROWS) {
        struct tile t = tile_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += TOKENS) {
            const struct sl_k_act *x = m->x + first;
            uint32_t n = m->n_tokens - first < TOKENS ? m->n_tokens - first : TOKENS;
            if (any_second(x, n))
                tile_times_any(l, m, &t, (struct pass){x, n, true}, acc);
            else
                tile_times_any(l, m, &t, (struct pass){x, n, false}, acc);
            for (uint32_t i = 0; i < n; i++)
                store_lanes(m->y + (first + i) * m->y_stride + r, acc[i], t.n);
            t.ahead = AHEAD_NOT; /* once is enough */
        }
    }
}

/* d_at, dmin_at, bias, minima, is_signed: see struct layout. */
#define MATMUL(name, scales, bytes, ...)                                                           \
    void sl_k_matmul_##name##__avx2(const struct sl_k_matmul *m)                                   \
    {                                                                                              \
        matmul((struct layout){scales, codes_##name, bytes, __VA_ARGS__}, m);                      \
    }

MATMUL(q2_k, scales_q2_k, SL_Q2_K_BYTES, 80, 82, 0, 16, false)
MATMUL(q3_k, scales_q3_k, SL_Q3_K_BYTES, 108, 0, 4, 0, false)
MATMUL(q4_k, scales_q45_k, SL_Q4_K_BYTES, 0, 2, 0, 8, false)
MATMUL(q5_k, scales_q45_k, SL_Q5_K_BYTES, 0, 2, 0, 8, false)
MATMUL(q6_k, scales_q6_k, SL_Q6_K_BYTES, 208, 0, 32, 0, false)
MATMUL(iq4_xs, scales_iq4_xs, SL_IQ4_XS_BYTES, 0, 0, 0, 0, true)
