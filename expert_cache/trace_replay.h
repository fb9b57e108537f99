/* A routing trace through the real books: how often would this policy and this many slots have hit?
 *
 * No model, no bytes: every read arrives at once. For tests, for choosing a budget before buying
 * memory, and for trying policies. Each token's experts of a layer are looked up together, then the
 * missing ones brought in in the given order, so first uses count as misses. Thread: one handle,
 * one thread. */
#ifndef SL_TRACE_REPLAY_H
#define SL_TRACE_REPLAY_H

#include "expert_cache/expert_cache.h"

struct sl_ec_replay_config {
    uint32_t n_layers, n_experts, top_k;
    uint32_t slots_per_layer; /* top_k..n_experts */
    bool pool_per_layer;      /* a pool of slots_per_layer for each layer; else one of n_layers
                                 times as many, which a layer may use as it needs */
    const struct sl_ec_policy *policy; /* NULL: the default */
};

struct sl_ec_replay_result {
    uint64_t uses, hits;
    uint64_t evictions;
};

struct sl_ec_replay; /* opaque */

/* Errors as sl_ec_open. Owner: the caller, until sl_ec_replay_close (NULL is fine). */
SL_MUST_CHECK sluice_err sl_ec_replay_open(const struct sl_ec_replay_config *c, struct sl_budget *b,
                                           sluice_error *e, struct sl_ec_replay **out);
void sl_ec_replay_close(struct sl_ec_replay *r);

/* One token's experts of one layer: distinct, below n_experts, at most top_k. */
void sl_ec_replay_visit(struct sl_ec_replay *r, uint32_t layer, const uint32_t *experts,
                        uint32_t n);
void sl_ec_replay_result(const struct sl_ec_replay *r, struct sl_ec_replay_result *out);

#endif
