/* The functions of a variant, compiled once for each instruction set: for checksum.c and
 * checksum_avx2.c only, which include xxHash first; its header chooses vectors by the compiler's
 * flags. The result is the same for each by definition. Thread: see checksum.h. */
#ifndef SL_CHECKSUM_BODY_H
#define SL_CHECKSUM_BODY_H

#include "formats/checksum_variants.h"

_Static_assert(sizeof(XXH3_state_t) == sizeof(struct sl_xxh3_stream), "a state fits its stream");
_Static_assert(_Alignof(XXH3_state_t) == _Alignof(struct sl_xxh3_stream), "and is aligned in it");

static uint64_t hash(const void *data, uint64_t bytes) { return XXH3_64bits(data, (size_t)bytes); }

static void add(struct sl_xxh3_stream *s, const void *data, uint64_t bytes)
{
    (void)XXH3_64bits_update((XXH3_state_t *)(void *)s->state, data, (size_t)bytes);
}

static uint64_t end(const struct sl_xxh3_stream *s)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)s->state);
}

#endif
