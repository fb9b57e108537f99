/* What the files of the column statistics share. */
#ifndef SL_COLUMN_STATS_INTERNAL_H
#define SL_COLUMN_STATS_INTERNAL_H

#include "formats/name_index.h"
#include "pack/column_stats.h"

/* One tensor. Sums while they are collected, means afterwards; a tensor that is shown the same
 * inputs as another one has neither, and uses the other's. */
struct cs_tensor {
    struct sl_str name; /* ends with NUL, which does not count; the arena's */
    uint32_t n_matrices, cols;
    uint32_t same;   /* position of the tensor whose figures these are: its own, or another's */
    double *sum;     /* [n_matrices][cols] */
    float *mean;     /* [n_matrices][cols] */
    uint64_t *count; /* [n_matrices] inputs */
};

struct sl_column_stats {
    struct sl_budget *budget;
    struct sl_arena names;
    struct cs_tensor *tensors;
    uint64_t n, capacity;
    struct sl_gg_index index; /* once finished */
    bool finished;
    uint64_t last; /* position of the tensor that add looked for last */
};

/* Appends a tensor without figures. SLUICE_E_NOMEM, SLUICE_E_BUDGET: the list does not fit. */
SL_MUST_CHECK sluice_err cs_append(struct sl_column_stats *s, struct sl_str name,
                                   uint32_t n_matrices, uint32_t cols, sluice_error *e);
/* From here on tensors are found by name. SLUICE_E_NOMEM, SLUICE_E_FORMAT (names that collide). */
SL_MUST_CHECK sluice_err cs_index(struct sl_column_stats *s, sluice_error *e);

#endif
