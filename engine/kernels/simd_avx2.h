/* Small pieces that the AVX2 kernels share. A tile is eight rows: whatever is computed for them
 * ends up in one vector, a lane per row, so that the float arithmetic of every row runs in the same
 * order as in the scalar definition. */
#ifndef SL_SIMD_AVX2_H
#define SL_SIMD_AVX2_H

#ifndef __AVX2__
#error "compile with -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>

#include "engine/kernels/kernels.h"
#include "formats/half.h"

/* The templates below take a kernel's properties as constant arguments; without inlining they would
 * be slow, never wrong. */
#define SL_INLINE static inline __attribute__((always_inline))

#define TILE_ROWS 8

/* Into which cache the next tile is fetched ahead. The first, 32 KiB almost everywhere, has to hold
 * two tiles and the activations. */
enum ahead { AHEAD_FIRST, AHEAD_SECOND, AHEAD_NOT };

/* Rows of the tile at hand; beyond the last row of the matrix the last one is repeated. */
struct tile {
    const uint8_t *row[TILE_ROWS];
    uintptr_t next; /* address of the tile that follows */
    uint32_t n;     /* rows that count, 1..8 */
    enum ahead ahead;
};

/* Whether any of n activations has a second digit: kernels are made twice, with and without the
 * question for every block, which would cost a tenth. */
SL_INLINE bool any_second(const struct sl_k_act *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x[i].second.d != NULL) return true;
    return false;
}

SL_INLINE bool has_second(const struct sl_k_act *x, uint64_t b)
{
    return x->second.d != NULL && x->second.d[b] != 0.0f;
}

/* Where the weights are that are wanted once those before this address are done. */
SL_INLINE uintptr_t weights_from(const struct sl_k_matmul *m, uintptr_t at)
{
    bool beyond = at >= (uintptr_t)m->w + m->rows * m->row_bytes;
    return beyond && m->next ? (uintptr_t)m->next : at;
}

SL_INLINE struct tile tile_at(const struct sl_k_matmul *m, uint32_t first)
{
    struct tile t;
    t.n = m->rows - first < TILE_ROWS ? m->rows - first : TILE_ROWS;
    for (uint32_t i = 0; i < TILE_ROWS; i++) {
        uint32_t r = i < t.n ? first + i : m->rows - 1;
        t.row[i] = (const uint8_t *)m->w + r * m->row_bytes;
    }
    t.next = weights_from(m, (uintptr_t)t.row[0] + TILE_ROWS * m->row_bytes);
    t.ahead = TILE_ROWS * m->row_bytes <= 12288 ? AHEAD_FIRST : AHEAD_SECOND;
    return t;
}

/* Asks for piece number index of the next tile, pieces being bytes long. Eight rows at a time are
 * eight short streams, which a processor's own prefetcher does not follow: without this, one Zen 4
 * core (EPYC at 3.7 GHz, November 2026) read Q4_0 rows of 2048 from memory at 9 GB/s, with it
 * at 24. Asking for lines 512 or 1024 bytes ahead in each of the eight rows instead gave 11. The
 * pieces have to be asked for evenly, not in bursts. The tile after the last need not exist; asking
 * for it does no harm. */
SL_INLINE void prefetch_next(const struct tile *t, uint64_t index, uint32_t bytes)
{
    uintptr_t at = t->next + index * bytes;
    if (t->ahead == AHEAD_FIRST)
        for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(at + i), _MM_HINT_T0);
    else if (t->ahead == AHEAD_SECOND)
        for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(at + i), _MM_HINT_T1);
}

/* Writes the first n lanes. */
SL_INLINE void store_lanes(float *y, __m256 v, uint32_t n)
{
    if (n == 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, v);
    for (uint32_t i = 0; i < n; i++) y[i] = lanes[i];
}

SL_INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
SL_INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
SL_INLINE __m256i broadcast128(const void *p) { return _mm256_broadcastsi128_si256(load128(p)); }

/* 16 bytes from a in the low half, 16 from b in the high half. */
SL_INLINE __m256i load_pair(const void *a, const void *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(a)), load128(b), 1);
}

/* The half-precision numbers at byte offset at of each row, as floats. */
SL_INLINE __m256 load_halves(const struct tile *t, uint64_t at)
{
    __m128i h = _mm_cvtsi32_si128(sl_load_u16(t->row[0] + at));
    h = _mm_insert_epi16(h, sl_load_u16(t->row[1] + at), 1);
    h = _mm_insert_epi16(h, sl_load_u16(t->row[2] + at), 2);
    h = _mm_insert_epi16(h, sl_load_u16(t->row[3] + at), 3);
    __m128i g = _mm_cvtsi32_si128(sl_load_u16(t->row[4] + at));
    g = _mm_insert_epi16(g, sl_load_u16(t->row[5] + at), 1);
    g = _mm_insert_epi16(g, sl_load_u16(t->row[6] + at), 2);
    g = _mm_insert_epi16(g, sl_load_u16(t->row[7] + at), 3);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(h, g));
}

/* Sums of four dwords each: p[i] holds row i in its low half and row i + 4 in its high half; lane r
 * of the result is row r. */
SL_INLINE __m256i reduce_pairs(const __m256i p[4])
{
    __m256i low = _mm256_hadd_epi32(p[0], p[1]);
    __m256i high = _mm256_hadd_epi32(p[2], p[3]);
    return _mm256_hadd_epi32(low, high);
}

/* Sums of eight dwords each: v[r] is row r. */
SL_INLINE __m256i reduce_rows(const __m256i v[8])
{
    __m256i p[4];
    for (int i = 0; i < 4; i++)
        p[i] = _mm256_add_epi32(_mm256_permute2x128_si256(v[i], v[i + 4], 0x20),
                                _mm256_permute2x128_si256(v[i], v[i + 4], 0x31));
    return reduce_pairs(p);
}

/* sum of the eight lanes in the order of kernels.h */
SL_INLINE float sum_lanes(__m256 v)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Weight codes times activation codes, pairs of products added to 16 bits. unsigned: codes up to
 * 127. signed: any, -128 too, since its magnitude is a valid unsigned byte; activations are
 * -127..127, so a pair is at most 128 * 127 * 2 = 32,512. */
SL_INLINE __m256i dot_unsigned(__m256i codes, __m256i x) { return _mm256_maddubs_epi16(codes, x); }
SL_INLINE __m256i dot_signed(__m256i codes, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
}

#endif
