/* The default: score = 6 E1 + E16 + 48 R - 3 d / L.
 *
 * E1 and E16 are use counts with half-lives of 1 and 16 visits of the expert's layer: what the last
 * tokens chose, and what the text is about. R is what followed when the text last went like this
 * (recall.c); d is how many layers come before this one's turn, of L. The constants were tuned on
 * two traces (waste_kimi, the beginning of gptoss20b) and confirmed on two others; they lie on a
 * flat optimum: weights 6 to 8 and 32 to 64, half-life 16 to 24 and distance 3 to 4 are within 0.05
 * points of hit rate on average. test_replay holds it against plain LRU. */
#include "expert_cache/policy.h"

#define FAST_LOG2 0
#define SLOW_LOG2 4
#define FAST_WEIGHT 6.0
#define RECALL_WEIGHT 48.0
#define WAIT_WEIGHT 3.0

static void use(struct sl_ec_heat *h, uint64_t visit)
{
    uint64_t age = visit - h->visit;
    h->fast = h->fast * sl_ec_decay(age, FAST_LOG2) + 1.0;
    h->slow = h->slow * sl_ec_decay(age, SLOW_LOG2) + 1.0;
}

static double score(const struct sl_ec_heat *h, uint64_t visit)
{
    uint64_t age = visit - h->visit;
    double fast = h->fast * sl_ec_decay(age, FAST_LOG2);
    return FAST_WEIGHT * fast + h->slow * sl_ec_decay(age, SLOW_LOG2);
}

static double wait(uint32_t turns, uint32_t n_turns)
{
    return WAIT_WEIGHT * (double)turns / (double)n_turns;
}

const struct sl_ec_policy sl_ec_policy_recall = {"recall", use, score, wait, RECALL_WEIGHT};
