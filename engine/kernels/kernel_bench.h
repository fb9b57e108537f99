/* Times kernels, one at a time: what `sluice bench kernels` prints.
 *
 * The caller chooses the size: one small matrix measures arithmetic, many copies of it, used in
 * turn and together much larger than the cache, measure memory; then a call of a product goes over
 * several copies, 16 MiB or so, lest its best time be that of one that a cache happened to keep.
 * Calls are timed one by one, so that the fastest is a figure even on a busy machine. Nothing is
 * printed. */
#ifndef SL_KERNEL_BENCH_H
#define SL_KERNEL_BENCH_H

#include "base/pool.h"
#include "engine/kernels/kernels.h"

enum sl_kernel_bench_what {
    SL_KB_MATMUL,   /* type: element type; rows x cols weights, n activations */
    SL_KB_QUANTIZE, /* type: 32 or 256, the block; cols elements */
    SL_KB_RMS_NORM, /* cols elements, as all that follow up to attention */
    SL_KB_AXPY,
    SL_KB_SILU_MUL,
    SL_KB_EXP_SUM,
    SL_KB_ATTN_SCORES, /* type: enum sl_kv_type; rows positions of cols elements */
    SL_KB_ATTN_VALUES
};
#define SL_KB_WHATS 8

struct sl_kernel_bench {
    enum sl_kernel_bench_what what;
    uint32_t type;
    uint32_t rows, cols;
    uint32_t n_tokens;    /* activations of a product, 1..64 */
    uint32_t copies;      /* matrices or caches used in turn; 0 and 1: one */
    uint64_t min_ns;      /* repeat for at least this long; 1: measure one call */
    struct sl_pool *pool; /* threads of a product, which split its rows; NULL: the caller alone */
};

struct sl_kernel_bench_result {
    const char *isa;
    uint64_t calls;
    double ns_best; /* the fastest call */
    double ns_mean;
    uint64_t bytes;    /* weights, cache or input that a call reads */
    uint64_t elements; /* multiplied or converted in a call: rows * cols * n_tokens of each copy
                          that it goes over, or cols */
};

/* Runs one benchmark; its memory is charged to b and given back. Returns SLUICE_OK; SLUICE_E_ARG
 * for sizes that the kernel does not take; SLUICE_E_NOMEM where b or the system has too little;
 * SLUICE_E_UNSUPPORTED for an instruction set that is not there. Thread: safe, the driver of the
 * pool where there is one; for steady figures the caller pins it. */
SL_MUST_CHECK sluice_err sl_kernel_bench_run(struct sl_budget *b, enum sl_isa isa,
                                             const struct sl_kernel_bench *what, sluice_error *e,
                                             struct sl_kernel_bench_result *out);

#endif
