/* A buffer much larger than any cache, and the clock around reading it. */
#include "engine/kernels/memory_bench.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

struct reading {
    const uint8_t *piece;
    uint64_t bytes; /* of a task's stretch of it */
    sl_memory_read_fn *read;
    uint64_t seen[SL_THREADS_MAX]; /* so that the loads are not left out */
};

uint64_t sl_memory_read__scalar(const void *p, uint64_t bytes)
{
    const uint64_t *words = p;
    uint64_t or [4] = {0};
    for (uint64_t i = 0; i < bytes / sizeof *words; i += 4)
        for (uint64_t j = 0; j < 4; j++) or [j] |= words[i + j];
    return or [0] | or [1] | or [2] | or [3];
}

static void read_stretch(void *arg, uint32_t task, uint32_t worker)
{
    (void)worker;
    struct reading *r = arg;
    r->seen[task] = r->read(r->piece + task * r->bytes, r->bytes);
}

/* Bytes a second of the fastest piece. */
static double measure(struct reading *r, const uint8_t *data, struct sl_pool *pool)
{
    uint64_t start = sl_now_ns(), now = start, best = UINT64_MAX, at = 0;
    uint32_t threads = sl_pool_threads(pool);
    r->bytes = SL_MEMORY_BENCH_PIECE / threads / 256 * 256;
    do {
        uint64_t before = now;
        r->piece = data + at;
        sl_pool_run(pool, read_stretch, r, threads);
        now = sl_now_ns();
        best = sl_min_u64(best, now - before);
        at = (at + SL_MEMORY_BENCH_PIECE) % SL_MEMORY_BENCH_BYTES;
        for (uint32_t t = 0; t < threads; t++) SLUICE_ASSERT(r->seen[t] != 0);
    } while (now - start < SL_MEMORY_BENCH_NS);
    return (double)r->bytes * threads * 1e9 / (double)sl_max_u64(best, 1);
}

sluice_err sl_memory_bench_run(struct sl_budget *b, struct sl_pool *pool, sluice_error *e,
                               double *bytes_per_s)
{
    struct reading r = {.read = sl_memory_read__scalar};
    struct sl_region region;
    *bytes_per_s = 0;
#if defined(__x86_64__)
    if (sl_cpu_flags() & SL_CPU_AVX2) r.read = sl_memory_read__avx2;
#endif
    sluice_err err = sl_region_reserve(&region, b, SL_MEMORY_BENCH_BYTES);
    if (err == SLUICE_OK) err = sl_region_commit(&region, SL_MEMORY_BENCH_BYTES);
    if (err == SLUICE_OK) {
        sl_region_prefer_huge(&region);
        memset(region.base, 1, SL_MEMORY_BENCH_BYTES); /* pages that are there, none shared */
        *bytes_per_s = measure(&r, region.base, pool);
    }
    sl_region_deinit(&region);
    if (err != SLUICE_OK)
        return sl_fail(e, err, "no memory for measuring how fast memory is read: %llu bytes wanted",
                       (unsigned long long)SL_MEMORY_BENCH_BYTES);
    return SLUICE_OK;
}
