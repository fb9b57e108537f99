/* XXH3-64: see checksum.h.
 *
 * xxHash's header is compiled into this file, so that nothing has to be there at run time and the
 * speed does not depend on how a distribution built its library. With GCC 12 -O2 on a Zen 3 core,
 * blocks of 16 KiB from cache: Debian's libxxhash 0.8.1 13 to 15 GB/s (SSE2), this file 19 to 20,
 * checksum_avx2.c 54 to 58. On ARM the header uses NEON by itself. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/checksum.h"

#include <stdatomic.h>

#include "base/cpu.h"
#include "formats/checksum_body.h"

const struct sl_xxh3_variant sl_xxh3_plain = {hash, add, end};

/* Chosen once, since asking the processor costs microseconds in a virtual machine. Threads that
 * race here choose the same. */
static const struct sl_xxh3_variant *variant(void)
{
    static _Atomic(const struct sl_xxh3_variant *) chosen;
    const struct sl_xxh3_variant *v = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (v != NULL) return v;
    v = &sl_xxh3_plain;
#if defined(__x86_64__)
    if ((sl_cpu_flags() & SL_CPU_AVX2) != 0) v = &sl_xxh3_avx2;
#endif
    atomic_store_explicit(&chosen, v, memory_order_relaxed);
    return v;
}

uint64_t sl_xxh3(const void *data, uint64_t bytes)
{
    SLUICE_ASSERT(data != NULL || bytes == 0);
    return variant()->hash(data, bytes);
}

void sl_xxh3_begin(struct sl_xxh3_stream *s)
{
    (void)XXH3_64bits_reset((XXH3_state_t *)(void *)s->state);
}

void sl_xxh3_add(struct sl_xxh3_stream *s, const void *data, uint64_t bytes)
{
    SLUICE_ASSERT(data != NULL || bytes == 0);
    if (bytes > 0) variant()->add(s, data, bytes);
}

uint64_t sl_xxh3_end(const struct sl_xxh3_stream *s) { return variant()->end(s); }
