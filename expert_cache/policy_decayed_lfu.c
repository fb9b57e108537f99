/* Use counts with a half-life of 64 visits of the expert's layer. */
#include "expert_cache/policy.h"

#define HALF_LIFE_LOG2 6

static void use(struct sl_ec_heat *h, uint64_t visit)
{
    h->slow = h->slow * sl_ec_decay(visit - h->visit, HALF_LIFE_LOG2) + 1.0;
}

static double score(const struct sl_ec_heat *h, uint64_t visit)
{
    return h->slow * sl_ec_decay(visit - h->visit, HALF_LIFE_LOG2);
}

const struct sl_ec_policy sl_ec_policy_decayed_lfu = {"decayed_lfu", use, score, NULL, 0};
