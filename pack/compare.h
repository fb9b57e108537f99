/* Weights looked at one by one, in fixed memory and on several threads: whether all are numbers,
 * and how far those of one model are from another's. Results do not depend on the number of
 * threads: sums are taken over pieces of rows, and added in their order.
 *
 * Thread: one call on one thread; the sources may be read by others meanwhile. */
#ifndef SL_COMPARE_H
#define SL_COMPARE_H

#include "formats/gguf_compare.h" /* metadata, for those who compare models */
#include "formats/gguf_graft.h"   /* and which layer a tensor belongs to */
#include "pack/source.h"

/* The first value of a tensor that is no number (NaN or infinite), and how many there are. */
struct sl_not_finite {
    uint64_t count; /* 0: all are numbers */
    uint64_t row, col;
};

/* What was found of a tensor. Sums are over elements of which both values are numbers. */
struct sl_compared {
    uint64_t elements;
    double error_squares; /* (a - b)^2 */
    double a_squares, b_squares, products;
    double max_error; /* largest |a - b| */
    struct sl_not_finite bad[2];
};

/* Adds what was found of one tensor, or part, to another's; the first bad value is into's. */
void sl_compared_add(struct sl_compared *into, const struct sl_compared *more);
/* ||a - b|| / ||a||; 0 where both are zeros, infinite where only a is. */
double sl_compared_error(const struct sl_compared *c);
/* Cosine of the angle between both; 1 where both are zeros, 0 where one is. */
double sl_compared_cosine(const struct sl_compared *c);

/* Called for each pair in order, on the calling thread. Nonzero gives up (SLUICE_E_CANCELLED). */
typedef int sl_compared_fn(void *user, uint32_t pair, const struct sl_compared *c);
/* Progress in weights; nonzero gives up. */
typedef int sl_compare_progress_fn(void *user, uint64_t done, uint64_t total);

/* Tensors of equal shape; b is not looked at where there is no second model. */
struct sl_compare_pair {
    uint32_t a, b;
};

struct sl_compare {
    const struct sl_source *a, *b; /* b NULL: a alone, sums stay 0 */
    const struct sl_compare_pair *pairs;
    uint32_t n_pairs;
    uint32_t threads; /* at least 1 */
    sl_compared_fn *found;
    sl_compare_progress_fn *progress; /* or NULL */
    void *user;                       /* of both */
};

/* Errors of reading (pack/source.h), SLUICE_E_CANCELLED, SLUICE_E_BUDGET, SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_compare_run(const struct sl_compare *c, struct sl_budget *b,
                                        sluice_error *e);

#endif
