/* Which resident expert is worth least: the one thing a cache policy decides.
 *
 * A policy keeps its counts in the heat of an expert, which outlives eviction, and gives a score;
 * the lowest goes first, ties least recent, then lower index. Time is counted in visits of the
 * expert's own layer, so that between two visits no score of a layer changes: the cache may keep
 * each layer's lowest. To its score the cache adds, where the policy says so, what followed when
 * the text last went like this (recall.c). What differs between layers is how soon their turn
 * comes; it is subtracted when the layers' lowest are compared. Every operation is an IEEE
 * addition, multiplication or division in a written order, so that all machines evict the same
 * expert.
 *
 * A new policy is a file policy_<name>.c, a declaration here and a line in policy.c, which is
 * enough for tests and replay. For users to choose it: a number in enum sluice_cache
 * (include/sluice.h), its name at that place in engine/api_info.c, the highest number in
 * engine/api_options.c, and the choices of --cache-policy in tools/option_table.c. Thread: pure,
 * but for the heat it is handed. */
#ifndef SL_POLICY_H
#define SL_POLICY_H

#include <string.h>

#include "base/base.h"

/* What is remembered of an expert, resident or not. */
struct sl_ec_heat {
    double fast, slow; /* the policy's own: counts as of the last use */
    uint64_t visit;    /* visit of its layer in which it was last used, from 1; 0: never used */
    uint64_t last_use; /* stamp that grows with every use of any expert; 0: never used */
};

struct sl_ec_policy {
    const char *name;
    /* Counts one use in this visit of the layer; h->visit is still that of the use before. */
    void (*use)(struct sl_ec_heat *h, uint64_t visit);
    /* The score as of this visit of the layer, finite and not below 0. */
    double (*score)(const struct sl_ec_heat *h, uint64_t visit);
    /* Subtracted from the scores of a layer whose turn comes in turns layer visits (1..n_turns; the
     * layer of the visit under way: n_turns). NULL: nothing is. */
    double (*wait)(uint32_t turns, uint32_t n_turns);
    /* Times what recall.c expects is added to the score. 0: nothing is remembered for it. */
    double recall_weight;
};

extern const struct sl_ec_policy sl_ec_policy_recall; /* the default */
extern const struct sl_ec_policy sl_ec_policy_two_rate;
extern const struct sl_ec_policy sl_ec_policy_lru;
extern const struct sl_ec_policy sl_ec_policy_lfu;
extern const struct sl_ec_policy sl_ec_policy_decayed_lfu;

/* The policy of that name, or NULL. */
const struct sl_ec_policy *sl_ec_policy_find(const char *name);
/* For lists in messages and help: NULL where index is past the last; 0 is the default. */
const struct sl_ec_policy *sl_ec_policy_at(uint32_t index);

#define SL_EC_HALF_LIFE_LOG2_MAX 6
#define SL_EC_HALVINGS_MAX 1000 /* past 2^-1000 nothing is left */
extern const double sl_ec_decay_steps[1 << SL_EC_HALF_LIFE_LOG2_MAX];

/* 2^(-n / 2^half_life_log2), nearest double, without a power function: the fraction of a halving
 * from a table, the whole ones by the exponent. 0 from SL_EC_HALVINGS_MAX halvings on.
 * half_life_log2: 0..SL_EC_HALF_LIFE_LOG2_MAX. Here, because a layer's visit renews the scores of
 * all its residents. */
static inline double sl_ec_decay(uint64_t n, uint32_t half_life_log2)
{
    uint64_t halvings = n >> half_life_log2;
    if (halvings >= SL_EC_HALVINGS_MAX) return 0;
    uint64_t rest = n & ((1u << half_life_log2) - 1);
    uint64_t exponent = (1023 - halvings) << 52;
    double power;
    memcpy(&power, &exponent, sizeof power);
    return sl_ec_decay_steps[rest << (SL_EC_HALF_LIFE_LOG2_MAX - half_life_log2)] * power;
}

#endif
