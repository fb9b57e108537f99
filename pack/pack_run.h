/* Packing: the weights of a source through the encoders of a plan into a container, in fixed
 * memory. Rows are read and encoded in groups by a pool of threads; bytes are written in order, by
 * whichever thread is free, while the next groups are encoded. The bytes do not depend on the
 * number of threads.
 *
 * Memory: about 10 MiB, 1.5 MiB a thread (more where rows are very long), and what the source, the
 * plan and the writer take. Pages of the source are given back as it goes.
 * Thread: the pool's driver. */
#ifndef SL_PACK_RUN_H
#define SL_PACK_RUN_H

#include "base/pool.h"
#include "formats/container_write.h"
#include "pack/plan.h"

/* Progress in bytes of the container; nonzero gives up (SLUICE_E_CANCELLED). */
typedef int sl_pack_progress_fn(void *user, uint64_t done, uint64_t total);

struct sl_pack_job {
    const struct sl_pack_plan *plan;
    struct sl_pool *pool;
    struct sl_budget *budget;
    sl_pack_progress_fn *progress; /* NULL */
    void *user;
};

/* What the encoding of a class cost, counted over the tensors that this run encoded. */
struct sl_pack_cost {
    struct sl_sq_error error;
    uint64_t tensors; /* 0: kept as they were, or by an earlier run */
};

/* Writes every tensor that w wants; committing is the caller's. costs: [n_classes]. Errors:
 * SLUICE_E_NUMERIC (a value that is no finite number, or too large for its type; with tensor and
 * row), SLUICE_E_CANCELLED, those of source.h and container_write.h. */
SL_MUST_CHECK sluice_err sl_pack_run(const struct sl_pack_job *job, struct sl_container_writer *w,
                                     struct sl_pack_cost *costs, sluice_error *e);

#endif
