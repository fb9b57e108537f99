/* How many other keys were used since a key was used last: the distance of an LRU stack. O(log
 * keys) a use, whatever the number of uses. Thread: one per handle. */
#ifndef SL_RECENCY_H
#define SL_RECENCY_H

#include "base/mem.h"

struct sl_recency {
    uint32_t n_keys, n_times, clock;
    uint32_t *time_of; /* [n_keys] of the last use, from 1; 0: never */
    uint32_t *key_at;  /* [n_times + 1] whose last use that was */
    uint32_t *sums;    /* [n_times + 1] a binary indexed tree: last uses up to a time */
};

/* NULL memory: SLUICE_E_BUDGET. sl_recency_close is fine on zeros. */
SL_MUST_CHECK sluice_err sl_recency_open(struct sl_recency *r, uint32_t n_keys, struct sl_budget *b,
                                         sluice_error *e);
void sl_recency_close(struct sl_recency *r);
/* False: never used. */
bool sl_recency_distance(const struct sl_recency *r, uint32_t key, uint32_t *out);
void sl_recency_use(struct sl_recency *r, uint32_t key);

#endif
