/* XXH3-64 with AVX2: the same source as in checksum.c, compiled with -mavx2, which makes it choose
 * 32-byte accumulators. */
#ifndef __AVX2__
#error "this file is compiled with -mavx2"
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/checksum_body.h"

const struct sl_xxh3_variant sl_xxh3_avx2 = {hash, add, end};
