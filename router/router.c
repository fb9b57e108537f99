/* Router scores to experts: the one place where the order of the steps is decided.
 *
 * Always true: exactly top_k distinct experts come out, in ascending index; the choice looks at the
 * biased score (and at the bonus, where there is one) and the weights never do. The exponentials
 * are sl_expf and all sums are plain float additions in ascending expert index, so the weights have
 * the same bits on every machine. What the experts are and where they lie is somebody else's
 * business. */
#include "router/router.h"

#include <math.h>
#include <string.h>

#include "base/mathfn.h"

#define SUM_MIN                                                                                    \
    0x1p-14f /* the least that a normalizing sum counts as; keeps weights finite where all scores  \
                vanish */

/* The chosen so far, best first. Scores are floats, but for those with a bonus, whose range may
 * exceed a float's. */
struct choice {
    uint32_t count;
    uint32_t expert[SL_TOP_K_MAX];
    double score[SL_TOP_K_MAX];
};

/* p[i] = e^(x[i] - max) / sum; in place where p == x. */
static void softmax(const float *x, uint32_t n, float *p)
{
    float top = x[0];
    float sum = 0.0f;
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] > top) top = x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i] = sl_expf(x[i] - top);
        sum += p[i];
    }
    for (uint32_t i = 0; i < n; i++) p[i] = p[i] / sum;
}

static void gate(const struct sl_router *r, const float *logits, float *scores)
{
    if (r->gating == SL_GATING_SOFTMAX) {
        softmax(logits, r->n_experts, scores);
        return;
    }
    for (uint32_t i = 0; i < r->n_experts; i++) {
        scores[i] = r->gating == SL_GATING_SIGMOID ? sl_sigmoidf(logits[i]) : logits[i];
    }
}

/* Puts expert into the sorted list where it belongs. Experts come in ascending index, so that a
 * strict comparison leaves ties with the lower one. */
static void consider(struct choice *c, uint32_t top_k, uint32_t expert, double score)
{
    uint32_t at = c->count;
    if (c->count == top_k) {
        if (!(score > c->score[top_k - 1])) return;
        at = top_k - 1;
    } else {
        c->count++;
    }
    while (at > 0 && score > c->score[at - 1]) {
        c->score[at] = c->score[at - 1];
        c->expert[at] = c->expert[at - 1];
        at--;
    }
    c->score[at] = score;
    c->expert[at] = expert;
}

/* scores become the biased ones, as far as there is a bias. */
static sluice_err add_bias(const struct sl_router *r, float *scores, sluice_error *e)
{
    if (r->select_bias == NULL) return SLUICE_OK;
    for (uint32_t i = 0; i < r->n_experts; i++) {
        scores[i] = scores[i] + r->select_bias[i];
        if (!isfinite(scores[i])) {
            return sl_fail(e, SLUICE_E_NUMERIC,
                           "the biased score of expert %u is not a finite number", (unsigned)i);
        }
    }
    return SLUICE_OK;
}

static void choose(const struct sl_router *r, const float *scores, struct choice *c)
{
    c->count = 0;
    for (uint32_t i = 0; i < r->n_experts; i++) consider(c, r->top_k, i, (double)scores[i]);
}

/* Keeps the first of the choice and chooses the others anew, by values[] and the bonus. */
static void prefer(const struct sl_router *r, const float *values,
                   const struct sl_router_bonus *bonus, struct choice *c)
{
    bool kept[SL_EXPERTS_MAX] = {false};
    struct choice rest = {.count = 0};
    const uint32_t n_rest = r->top_k - bonus->keep;
    double low = (double)values[0], high = low;
    if (n_rest == 0) return;
    for (uint32_t i = 0; i < bonus->keep; i++) kept[c->expert[i]] = true;
    for (uint32_t i = 1; i < r->n_experts; i++) {
        if ((double)values[i] < low) low = (double)values[i];
        if ((double)values[i] > high) high = (double)values[i];
    }
    const double gain = (double)bonus->strength * (high - low);
    for (uint32_t i = 0; i < r->n_experts; i++) {
        double value = (double)values[i];
        if (bonus->favoured[i] != 0) value = value + gain;
        if (!kept[i]) consider(&rest, n_rest, i, value);
    }
    for (uint32_t i = 0; i < n_rest; i++) c->expert[bonus->keep + i] = rest.expert[i];
}

/* Insertion sort: top_k is small. */
static void sort_by_index(uint32_t *experts, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t expert = experts[i];
        uint32_t at = i;
        while (at > 0 && experts[at - 1] > expert) {
            experts[at] = experts[at - 1];
            at--;
        }
        experts[at] = expert;
    }
}

static void weigh(const struct sl_router *r, float *weights)
{
    float sum = 0.0f;
    if (r->gating == SL_GATING_SOFTMAX_SELECTED) softmax(weights, r->top_k, weights);
    if (r->normalize) {
        for (uint32_t i = 0; i < r->top_k; i++) sum += weights[i];
        if (sum < SUM_MIN) sum = SUM_MIN;
        for (uint32_t i = 0; i < r->top_k; i++) weights[i] = weights[i] / sum;
    }
    for (uint32_t i = 0; i < r->top_k; i++) weights[i] = weights[i] * r->weight_scale;
}

static void check_arguments(const struct sl_router *r, const struct sl_router_bonus *bonus)
{
    SLUICE_ASSERT(r->n_experts >= 1 && r->n_experts <= SL_EXPERTS_MAX);
    SLUICE_ASSERT(r->top_k >= 1 && r->top_k <= r->n_experts && r->top_k <= SL_TOP_K_MAX);
    SLUICE_ASSERT(r->gating >= SL_GATING_SOFTMAX && r->gating <= SL_GATING_LAST);
    if (bonus == NULL) return;
    SLUICE_ASSERT(bonus->favoured != NULL);
    SLUICE_ASSERT(bonus->strength >= 0.0f && isfinite(bonus->strength));
    SLUICE_ASSERT(bonus->keep <= r->top_k);
}

sluice_err sl_router_select(const struct sl_router *r, const float *logits,
                            const struct sl_router_bonus *bonus, uint32_t *experts, float *weights,
                            sluice_error *e)
{
    float scores[SL_EXPERTS_MAX], biased[SL_EXPERTS_MAX];
    struct choice c;
    check_arguments(r, bonus);
    for (uint32_t i = 0; i < r->n_experts; i++) {
        if (!isfinite(logits[i])) {
            return sl_fail(e, SLUICE_E_NUMERIC,
                           "the router's logit of expert %u of %u is not a finite number",
                           (unsigned)i, (unsigned)r->n_experts);
        }
    }
    gate(r, logits, scores);
    memcpy(biased, scores, r->n_experts * sizeof scores[0]);
    sluice_err err = add_bias(r, biased, e);
    if (err != SLUICE_OK) return err;
    choose(r, biased, &c);
    if (bonus != NULL && bonus->strength > 0.0f) {
        /* probabilities crowd together near 0, logits do not */
        bool by_logit = r->gating == SL_GATING_SOFTMAX && r->select_bias == NULL;
        prefer(r, by_logit ? logits : biased, bonus, &c);
    }

    for (uint32_t i = 0; i < r->top_k; i++) experts[i] = c.expert[i];
    sort_by_index(experts, r->top_k);
    for (uint32_t i = 0; i < r->top_k; i++) weights[i] = scores[experts[i]];
    weigh(r, weights);
    return SLUICE_OK;
}

void sl_router_compared(const struct sl_router *r, const float *logits, float *values)
{
    if (r->select_bias == NULL) { /* scores are in the order of logits */
        memmove(values, logits, r->n_experts * sizeof values[0]);
        return;
    }
    gate(r, logits, values);
    for (uint32_t i = 0; i < r->n_experts; i++) values[i] = values[i] + r->select_bias[i];
}
