/* XXH3-64 (seed 0), the checksum of everything Sluice remembers or stores: https://xxhash.com. Only
 * checksum.c and checksum_avx2.c know the library. Thread: pure; a stream belongs to one thread at
 * a time. */
#ifndef SL_CHECKSUM_H
#define SL_CHECKSUM_H

#include "base/base.h"

uint64_t sl_xxh3(const void *data, uint64_t bytes);

/* The same for data that arrives in parts of any size: begin, add as often as needed, end. The
 * state is plain memory; nothing has to be released. end may be called more than once, and changes
 * nothing. */
struct sl_xxh3_stream {
    _Alignas(64) unsigned char state[576];
};

void sl_xxh3_begin(struct sl_xxh3_stream *s);
void sl_xxh3_add(struct sl_xxh3_stream *s, const void *data, uint64_t bytes);
uint64_t sl_xxh3_end(const struct sl_xxh3_stream *s);

#endif
