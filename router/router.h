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

/* A lossy preference for some experts (sticky.h): what is compared in the choice, the logit under
 * either softmax and the biased score where there is a bias or a sigmoid, grows by strength times
 * its range over all experts (largest less smallest) where the expert is favoured. The keep best by
 * their own score are chosen first, so that no bonus drops them. An expert's weight stays a
 * function of the unbiased scores of the chosen. */
struct sl_router_bonus {
    const uint8_t *favoured; /* [n_experts] 0 or 1 */
    float strength;          /* >= 0, finite */
    uint32_t keep;           /* 0..top_k */
};

/* One token's choice. experts and weights get top_k entries sorted by expert index, the order in
 * which results are added.
 *
 *   logits   [n_experts] f32
 *   bonus    NULL: none, the exact choice
 * Returns SLUICE_OK, or SLUICE_E_NUMERIC where a logit, or a score with its bias, is not finite (e
 * tells which). */
SL_MUST_CHECK sluice_err sl_router_select(const struct sl_router *r, const float *logits,
                                          const struct sl_router_bonus *bonus, uint32_t *experts,
                                          float *weights, sluice_error *e);

/* What the choice compares without a bonus: for guesses about a choice that has not been made.
 * values [n_experts] may be logits itself; what is not finite there is not finite here. Thread:
 * pure. */
void sl_router_compared(const struct sl_router *r, const float *logits, float *values);

#endif
