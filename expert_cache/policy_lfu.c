/* Least frequently used since the start, uses while absent included. It never forgets, and so loses
 * when the topic changes; here for comparison. */
#include "expert_cache/policy.h"

static void use(struct sl_ec_heat *h, uint64_t visit)
{
    (void)visit;
    h->slow += 1.0;
}

static double score(const struct sl_ec_heat *h, uint64_t visit)
{
    (void)visit;
    return h->slow;
}

const struct sl_ec_policy sl_ec_policy_lfu = {"lfu", use, score, NULL, 0};
