/* Choices from outside in the router's place (sluice_session_route): recorded routing, replayed to
 * measure how experts are served.
 *
 * The router has chosen already: its best complete what the chooser leaves open, so that a model
 * may take more experts than the record has. Weights are equal, since a record has none; their sum
 * is what normalized ones would have. */
#include "engine/moe.h"

static bool is_among(const uint32_t *experts, uint32_t n, uint32_t expert)
{
    for (uint32_t i = 0; i < n; i++)
        if (experts[i] == expert) return true;
    return false;
}

/* The heaviest of the router's choices that is not yet among the n taken; top_k of them are never
 * all taken while n < top_k. Ties go to the lower index. */
static uint32_t next_best(const struct sl_router *r, const uint32_t *chosen, const float *weight,
                          const uint32_t *taken, uint32_t n)
{
    uint32_t best = r->top_k;
    for (uint32_t i = 0; i < r->top_k; i++) {
        if (is_among(taken, n, chosen[i])) continue;
        if (best == r->top_k || weight[i] > weight[best]) best = i;
    }
    SLUICE_ASSERT(best < r->top_k);
    return chosen[best];
}

/* Writes taken in ascending order. */
static void sort_into(const uint32_t *taken, uint32_t n, uint32_t *sorted)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > taken[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = taken[i];
    }
}

static sluice_err check(const struct sl_chunk *c, const struct sl_router *r, const uint32_t *taken,
                        uint32_t n)
{
    if (n > r->top_k)
        return sl_fail(c->e, SLUICE_E_ARG, "layer %u: %u experts were chosen, wanted %u at most",
                       c->layer, n, r->top_k);
    for (uint32_t i = 0; i < n; i++)
        if (taken[i] >= r->n_experts || is_among(taken, i, taken[i]))
            return sl_fail(c->e, SLUICE_E_ARG,
                           "layer %u: expert %u was chosen, wanted distinct ones below %u",
                           c->layer, taken[i], r->n_experts);
    return SLUICE_OK;
}

sluice_err moe_replace_choice(const struct sl_chunk *c, uint32_t t)
{
    struct sl_session *s = c->session;
    const struct sl_router *r = &s->m->layers[c->layer].router;
    uint32_t taken[SL_TOP_K_MAX] = {0}, *chosen = s->scratch.chosen + (uint64_t)t * r->top_k;
    float *weight = s->scratch.weight + (uint64_t)t * r->top_k;
    uint32_t n =
        s->chooser.fn(s->chooser.user, c->layer, c->pos + t, r->n_experts, r->top_k, taken);
    sluice_err err = check(c, r, taken, n);
    if (err != SLUICE_OK) return err;
    for (; n < r->top_k; n++) taken[n] = next_best(r, chosen, weight, taken, n);
    sort_into(taken, n, chosen);
    for (uint32_t i = 0; i < n; i++) weight[i] = r->weight_scale / (float)r->top_k;
    return SLUICE_OK;
}
