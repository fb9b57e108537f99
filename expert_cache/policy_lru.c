/* Least recently used. */
#include "expert_cache/policy.h"

static void use(struct sl_ec_heat *h, uint64_t visit)
{
    (void)h, (void)visit; /* the cache keeps the stamp of the last use */
}

static double score(const struct sl_ec_heat *h, uint64_t visit)
{
    (void)visit;
    return (double)h->last_use; /* exact: nobody makes 2^53 uses */
}

const struct sl_ec_policy sl_ec_policy_lru = {"lru", use, score, NULL, 0};
