/* Router scores to experts. One function for every family, with the order of its steps written out,
 * because the common mistakes are exactly there: softmax before or after the choice, weights with
 * or without the bias, normalized or not.
 *
 * Steps: gate -> score s = softmax(logits) or sigmoid(logits) or the logits themselves -> choose by
 * s + select_bias -> weights are the unbiased s of the chosen -> (SOFTMAX_SELECTED: softmax over
 * the chosen logits) -> if normalize, divide by their sum -> times weight_scale. Ties go to the
 * lower index. softmax subtracts the largest logit and uses sl_expf; every sum is a plain float
 * addition in ascending expert index, so the weights have the same bits on every machine. Thread:
 * pure. */
#ifndef SL_ROUTER_H
#define SL_ROUTER_H

#include "base/base.h"
#include "base/limits.h"

/* Numbered as GGUF's expert_gating_func. */
enum sl_gating {
    SL_GATING_SOFTMAX = 1,          /* softmax over all experts, then top-k */
    SL_GATING_SIGMOID = 2,          /* sigmoid of each */
    SL_GATING_SOFTMAX_SELECTED = 3, /* top-k of the logits, then softmax over the chosen */
};
#define SL_GATING_LAST SL_GATING_SOFTMAX_SELECTED

struct sl_router {
    uint32_t n_experts; /* 1..SL_EXPERTS_MAX; any number, not only powers of two */
    uint32_t top_k;     /* 1..min(n_experts, SL_TOP_K_MAX) */
    enum sl_gating gating;
    bool normalize;     /* divide the weights by their sum, which is taken as at least 2^-14 */
    float weight_scale; /* 1: none */
    const float *select_bias; /* [n_experts] added for the choice only, or NULL */
};

/* One token's choice. experts and weights get top_k entries sorted by expert index, the order in
 * which results are added (selection order, best first, goes to by_score where that is not NULL).
 *
 *   logits   [n_experts] f32
 * Returns SLUICE_OK, or SLUICE_E_NUMERIC where a logit, or a score with its bias, is not finite (e
 * tells which). */
SL_MUST_CHECK sluice_err sl_router_select(const struct sl_router *r, const float *logits,
                                          uint32_t *experts, float *weights, uint32_t *by_score,
                                          sluice_error *e);

#endif
