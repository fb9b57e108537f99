/* Reading memory with 32-byte loads; see memory_bench.h. */
#include <immintrin.h>

#include "engine/kernels/memory_bench.h"

uint64_t sl_memory_read__avx2(const void *p, uint64_t bytes)
{
    const __m256i *w = p;
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (uint64_t i = 0; i < bytes / sizeof *w; i += 4) {
        a = _mm256_or_si256(a, _mm256_load_si256(w + i));
        b = _mm256_or_si256(b, _mm256_load_si256(w + i + 1));
        c = _mm256_or_si256(c, _mm256_load_si256(w + i + 2));
        d = _mm256_or_si256(d, _mm256_load_si256(w + i + 3));
    }
    a = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    __m128i half = _mm_or_si128(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    return (uint64_t)_mm_cvtsi128_si64(half) | (uint64_t)_mm_extract_epi64(half, 1);
}
