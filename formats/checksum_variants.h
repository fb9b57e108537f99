/* The two halves behind checksum.h, for checksum.c to choose from and tests to compare. The second
 * is there on x86-64 only, and may only be called where sl_cpu_flags() has SL_CPU_AVX2. A stream's
 * state is the same in both. Thread: pure. */
#ifndef SL_CHECKSUM_VARIANTS_H
#define SL_CHECKSUM_VARIANTS_H

#include "formats/checksum.h"

struct sl_xxh3_variant {
    uint64_t (*hash)(const void *data, uint64_t bytes);
    void (*add)(struct sl_xxh3_stream *s, const void *data, uint64_t bytes);
    uint64_t (*end)(const struct sl_xxh3_stream *s);
};

extern const struct sl_xxh3_variant sl_xxh3_plain;
extern const struct sl_xxh3_variant sl_xxh3_avx2;

#endif
