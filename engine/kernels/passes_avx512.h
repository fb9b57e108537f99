/* What the AVX-512 kernels for activations in blocks of 32 share besides simd_avx512.h: asking
 * ahead for weights, and who among many activations has a second digit where. */
#ifndef SL_PASSES_AVX512_H
#define SL_PASSES_AVX512_H

#include "engine/kernels/simd_avx512.h"

/* ---- weights ahead --------------------------------------------------------------------------- */

/* Where the next sixteen rows are, and into which cache they are fetched. */
struct next_rows {
    uintptr_t at;
    enum ahead ahead;
};

SL_INLINE struct next_rows next_rows(const struct sl_k_matmul *m, const uint8_t *row)
{
    uint64_t bytes = WIDE_ROWS * m->row_bytes;
    return (struct next_rows){weights_from(m, (uintptr_t)row + bytes),
                              bytes <= 12288 ? AHEAD_FIRST : AHEAD_SECOND};
}

/* Asks for piece number index of the next rows, pieces being bytes long. Rows or bands that are
 * read side by side are no stream that a processor's own prefetcher follows: SQ3_32 from memory,
 * one activation, 31 G weights/s without, 68 with; to ask for bytes 1024 to 4096 ahead in either
 * band gives 28 to 37. Where the first-level cache does not hold two tiles it is of no use: Q8_0
 * rows of 2048 then are read at 12 GB/s, with the second-level cache at 28 (one Zen 4 core at 3.7
 * GHz, November 2026). */
SL_INLINE void prefetch_piece(const struct next_rows *next, uint64_t index, uint64_t bytes)
{
    uintptr_t at = next->at + index * bytes;
    if (next->ahead == AHEAD_FIRST)
        for (uint64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(at + i), _MM_HINT_T0);
    else if (next->ahead == AHEAD_SECOND)
        for (uint64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(at + i), _MM_HINT_T1);
}

/* ---- many activations ------------------------------------------------------------------------ */

#define SECONDS_AHEAD 8 /* blocks for which it is found out at a time who has a second digit */

/* Activations of one pass, at most WIDE_TOKENS, and those among them of which some block has a
 * second digit. */
struct pass {
    const struct sl_k_act *x;
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

/* who[k] has bit i set where activation i has a second digit in block b + k; n blocks are left. To
 * ask each activation at each block would be as many branches that no processor foresees. */
SL_INLINE void find_seconds(const struct pass *p, uint64_t b, uint64_t n,
                            uint64_t who[SECONDS_AHEAD])
{
    __mmask8 there = n < SECONDS_AHEAD ? (__mmask8)((1u << n) - 1) : 0xff;
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

#endif
