/* How fast this machine reads memory: the bound for every product whose weights no cache holds, and
 * what kernel rates are given as a share of. Nothing is printed. */
#ifndef SL_MEMORY_BENCH_H
#define SL_MEMORY_BENCH_H

#include "base/pool.h"

#define SL_MEMORY_BENCH_BYTES (256ull << 20) /* many times a last-level cache */
#define SL_MEMORY_BENCH_PIECE (16ull << 20)  /* timed by itself: short enough to be left alone */
#define SL_MEMORY_BENCH_NS 150000000u

/* Reads a buffer of SL_MEMORY_BENCH_BYTES with all threads of the pool, again and again for
 * SL_MEMORY_BENCH_NS, with the widest loads that there are and no arithmetic worth the name, piece
 * by piece, each thread its own stretch of one. Receives the rate of the fastest piece, bytes a
 * second; kernel_bench.h measures kernels alike. The buffer is in large pages where the system
 * grants them, as weights are; it is charged to b and given back. Returns SLUICE_OK,
 * SLUICE_E_NOMEM, SLUICE_E_BUDGET. Thread: the pool's driver. */
SL_MUST_CHECK sluice_err sl_memory_bench_run(struct sl_budget *b, struct sl_pool *pool,
                                             sluice_error *e, double *bytes_per_s);

/* Every byte of [p, p + bytes), or-ed together; p 64-byte aligned, bytes a multiple of 256. */
typedef uint64_t sl_memory_read_fn(const void *p, uint64_t bytes);
sl_memory_read_fn sl_memory_read__scalar, sl_memory_read__avx2;

#endif
