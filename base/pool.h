/* A fixed pool of compute threads. The thread that opens it is the driver and works too.
 *
 * Workers touch only what the job names. They wait in two steps, a short spin and then a
 * futex-style sleep, so that an idle engine uses no processor. Every worker runs with the
 * floating-point control of sl_fp_enter. */
#ifndef SL_POOL_H
#define SL_POOL_H

#include "base/base.h"
#include "base/cpu.h"
#include "base/mem.h"

struct sl_pool;

/* Called once for every task index 0..n_tasks-1, in any order, on any thread of the pool; worker is
 * 0 (the driver) .. threads-1 and identifies scratch memory. Must not call the pool. */
typedef void sl_pool_fn(void *arg, uint32_t task, uint32_t worker);

/* What a pool charges to its budget: itself, and the stacks of the threads it starts. */
uint64_t sl_pool_bytes(uint32_t threads);

/* threads: 1..SL_THREADS_MAX in all; 1 starts no thread. choice may be NULL (no pinning); only
 * workers are pinned, the caller's own thread is never changed. Returns SLUICE_OK, SLUICE_E_BUDGET
 * or SLUICE_E_NOMEM; *out is NULL on failure. */
SL_MUST_CHECK sluice_err sl_pool_open(struct sl_budget *b, uint32_t threads,
                                      const struct sl_cpu_choice *choice, struct sl_pool **out);
void sl_pool_close(struct sl_pool *p);

uint32_t sl_pool_threads(const struct sl_pool *p);

/* Runs all tasks and returns when all have returned. Everything written by the tasks is visible to
 * the caller afterwards. With one task, or one thread, the caller does the work itself. Thread: the
 * driver only. */
void sl_pool_run(struct sl_pool *p, sl_pool_fn *fn, void *arg, uint32_t n_tasks);

#endif
