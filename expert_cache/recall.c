/* What followed when the text last went like this.
 *
 * A text repeats itself, and so do its experts: where the choices of the last layers are like those
 * of d tokens ago, the experts that were chosen d - 1 tokens ago are likely to be next. So for
 * every lag d up to RECALL_SPAN it is kept how alike the present passage is to the one d tokens
 * back: at each visit of a layer, the number of experts that its choice shares with the choice d
 * visits ago, plus RECALL_FADE of the likeness as of the layer visited before. What followed each
 * passage counts with the fourth power of that likeness, and what came one token later half as
 * much; divided by the sum of all fourth powers it is something like the number of uses to be
 * expected.
 *
 * The likeness of a layer is as of its last visit, and does not change until the next; the sums are
 * made from it only when they are asked for, since most visits evict nothing. Plain IEEE additions,
 * multiplications and divisions in ascending lag, so that every machine has the same.
 *
 * Measured on four traces (docs/LEARNED.md): it hits as often as, and more than, a table of what
 * follows what with an entry for every pair of experts, in a fraction of the memory. */
#include <string.h>

#include "expert_cache/books.h"

#define FADE 0.75         /* of the likeness, from layer to layer */
#define NEXT_BUT_ONE 0.5  /* what counts a use in the token after the next */
#define NOTHING_ALIKE 2.0 /* added to the sum of fourth powers */

static uint16_t *past_of(const struct sl_ec *c, const struct layer *l, uint64_t visit)
{
    return c->recall.past + l->first_past + visit % RECALL_SPAN * l->top_k;
}

static double *alike_of(const struct sl_ec *c, const struct layer *l)
{
    return c->recall.alike + (uint64_t)l->turn * RECALL_SPAN;
}

/* Lags that have been seen. */
static uint32_t lags_of(const struct layer *l)
{
    return (uint32_t)sl_min_u64(l->visits - 1, RECALL_SPAN);
}

static void compare(struct sl_ec *c, const struct layer *l)
{
    static const double none[RECALL_SPAN];
    const uint8_t *mark = c->recall.mark;
    const uint32_t latest = c->recall.latest;
    const double *before = latest == SL_EC_NONE ? none : alike_of(c, &c->layers[latest]);
    double *alike = alike_of(c, l);
    const uint32_t lags = lags_of(l);
    for (uint32_t lag = 1; lag <= lags; lag++) {
        const uint16_t *past = past_of(c, l, l->visits - lag);
        uint32_t shared = 0;
        for (uint32_t i = 0; i < l->top_k; i++) shared += mark[past[i]];
        alike[lag - 1] = before[lag - 1] * FADE + shared;
    }
}

void recall_visit(struct sl_ec *c, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct layer *l = &c->layers[layer];
    if (c->recall.past == NULL || l->n_experts == 0) return;
    if (n > l->top_k) n = l->top_k; /* nobody chooses more; if so, the first are remembered */
    for (uint32_t i = 0; i < n; i++) c->recall.mark[experts[i]] = 1;
    compare(c, l);
    uint16_t *now = past_of(c, l, l->visits);
    for (uint32_t i = 0; i < n; i++) {
        c->recall.mark[experts[i]] = 0;
        now[i] = (uint16_t)experts[i];
    }
    for (uint32_t i = n; i < l->top_k; i++) now[i] = RECALL_NOBODY;
    c->recall.latest = layer;
    l->foreseen = false;
}

void recall_foresee(struct sl_ec *c, uint32_t layer)
{
    struct layer *l = &c->layers[layer];
    if (c->recall.past == NULL || l->foreseen) return;
    double *follows = c->recall.follows + l->first;
    memset(follows, 0, l->n_experts * sizeof *follows);
    l->foreseen = true;
    if (l->visits == 0) return;
    double weight[RECALL_SPAN + 1], total = NOTHING_ALIKE;
    double sum[RECALL_NOBODY + 1];
    memset(sum, 0, l->n_experts * sizeof *sum);
    const double *alike = alike_of(c, l);
    const uint32_t lags = lags_of(l);
    for (uint32_t i = 0; i < lags; i++) {
        double square = alike[i] * alike[i];
        weight[i] = square * square;
        total += weight[i];
    }
    weight[lags] = 0;
    for (uint32_t age = 0; age < lags; age++) { /* of a choice: it followed lag age + 1 */
        const uint16_t *chosen = past_of(c, l, l->visits - age);
        double w = weight[age] + NEXT_BUT_ONE * weight[age + 1];
        if (w == 0) continue;
        for (uint32_t i = 0; i < l->top_k; i++) sum[chosen[i]] += w;
    }
    for (uint32_t x = 0; x < l->n_experts; x++) follows[x] = sum[x] / total;
}
