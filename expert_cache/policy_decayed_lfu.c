/* Use counts with a half-life of 64 visits of the expert's layer.
 *
 * All layers are visited once a token, so visits are a clock that they share, but a layer whose
 * turn is still to come is one visit behind. What is compared must not depend on that: it is not
 * the count as of its layer's last visit, but the sum of 2^(v / 64) over the visits v in which it
 * was used. That has no bound, so the score is its logarithm, with straight lines between powers of
 * two: as good for comparing, and the same on every machine. */
#include "expert_cache/policy.h"

#define HALF_LIFE_LOG2 6
#define HALF_LIFE (1u << HALF_LIFE_LOG2)
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023

static void use(struct sl_ec_heat *h, uint64_t visit)
{
    h->slow = h->slow * sl_ec_decay(visit - h->visit, HALF_LIFE_LOG2) + 1.0;
}

static double score(const struct sl_ec_heat *h, uint64_t visit)
{
    uint64_t rest = h->visit % HALF_LIFE, bits;
    double sum = h->slow, mantissa;
    (void)visit;
    if (h->visit == 0) return 0;
    if (rest > 0) sum = sum * 2 * sl_ec_decay_steps[HALF_LIFE - rest]; /* 2^(rest / 64) */
    memcpy(&bits, &sum, sizeof bits);
    uint64_t exponent = (bits >> MANTISSA_BITS) - EXPONENT_BIAS; /* the sum is 1 or more */
    bits = (bits & ((UINT64_C(1) << MANTISSA_BITS) - 1)) | (uint64_t)EXPONENT_BIAS << MANTISSA_BITS;
    memcpy(&mantissa, &bits, sizeof mantissa);
    return (double)(h->visit / HALF_LIFE + exponent) + (mantissa - 1);
}

const struct sl_ec_policy sl_ec_policy_decayed_lfu = {"decayed_lfu", use, score, NULL, 0};
