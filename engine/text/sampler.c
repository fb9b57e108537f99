/* Choosing the next token.
 *
 * Candidates are ordered by (penalized) logit, ties by lower id. A candidate's weight is e^((logit
 * - largest) / temperature) as a whole number of 2^-40 parts, so that every sum is exact and
 * independent of order; only the choice of who is summed needs the order, and a heap yields it
 * lazily, best first, as far as it is needed. With a vocabulary of 150,000 and no top-k a draw
 * therefore costs one pass and a few pops, not a sort. No recursion.
 *
 * The sampler never looks at what the tokens mean; stopping and text are the session's business. */
#include "engine/text/sampler.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "base/mathfn.h"

#define WEIGHT_ONE 0x1p40f

_Static_assert(SL_VOCAB_MAX <= 1u << 22, "a sum of weights must fit into 64 bits");

struct candidate {
    float logit;
    int32_t id;
};

struct sl_sampler {
    struct sl_sampler_config config;
    uint32_t n_vocab;
    uint64_t pcg_state;
    float *logits;                /* [n_vocab] the penalized copy */
    struct candidate *candidates; /* [n_vocab] */
    int32_t *recent;              /* [repeat_last] ring of accepted tokens */
    uint32_t n_recent, next_recent;
    uint8_t *seen; /* [n_vocab / 8 + 1] bits, all clear between calls */
};

/* ---- PCG32 (XSH RR 64/32, O'Neill 2014) --------------------------------------------------------
 */

#define PCG_STREAM UINT64_C(0xda3e39cb94b95bdb)

static uint32_t pcg_next(uint64_t *state)
{
    uint64_t old = *state;
    uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    uint32_t turn = (uint32_t)(old >> 59);
    *state = old * UINT64_C(6364136223846793005) + PCG_STREAM;
    return (shifted >> turn) | (shifted << ((32 - turn) & 31));
}

static uint64_t pcg_start(uint64_t seed)
{
    uint64_t state = 0;
    (void)pcg_next(&state);
    state += seed;
    (void)pcg_next(&state);
    return state;
}

/* Uniform in 0..bound-1: 64 random bits as a fraction of bound. A range of w of these values comes
 * up with a probability within 2^-64 of w / bound, and a bound that differs a little (another
 * rounding of the logits) gives nearly the same place, which a remainder would not. */
static uint64_t pcg_below(uint64_t *state, uint64_t bound)
{
    uint64_t high = pcg_next(state);
    uint64_t x = high << 32 | pcg_next(state);
    return (uint64_t)((unsigned __int128)x * bound >> 64);
}

/* ---- open and close -------------------------------------------------------------------------- */

static sluice_err check_config(const struct sl_sampler_config *c, uint32_t n_vocab, sluice_error *e)
{
    if (n_vocab < 1 || n_vocab > SL_VOCAB_MAX) {
        return sl_fail(e, SLUICE_E_ARG, "a vocabulary of %u tokens; 1 to %u are possible",
                       (unsigned)n_vocab, (unsigned)SL_VOCAB_MAX);
    }
    if (!isfinite(c->temperature)) {
        return sl_fail(e, SLUICE_E_ARG, "the temperature must be a finite number");
    }
    if (!(c->top_p >= 0.0f && c->top_p <= 1.0f)) {
        return sl_fail(e, SLUICE_E_ARG, "top-p is %g; it must lie between 0 and 1",
                       (double)c->top_p);
    }
    if (!(c->min_p >= 0.0f && c->min_p <= 1.0f)) {
        return sl_fail(e, SLUICE_E_ARG, "min-p is %g; it must lie between 0 and 1",
                       (double)c->min_p);
    }
    if (!(c->repeat_penalty > 0.0f && isfinite(c->repeat_penalty))) {
        return sl_fail(e, SLUICE_E_ARG, "the repeat penalty is %g; it must be above 0",
                       (double)c->repeat_penalty);
    }
    if (c->repeat_last > SL_CONTEXT_MAX) {
        return sl_fail(e, SLUICE_E_ARG,
                       "the repeat penalty looks at %u tokens; at most %u are possible",
                       (unsigned)c->repeat_last, (unsigned)SL_CONTEXT_MAX);
    }
    return SLUICE_OK;
}

sluice_err sl_sampler_open(const struct sl_sampler_config *c, uint32_t n_vocab, struct sl_budget *b,
                           sluice_error *e, struct sl_sampler **out)
{
    *out = NULL;
    sluice_err err = check_config(c, n_vocab, e);
    if (err != SLUICE_OK) return err;
    struct sl_sampler *s = sl_alloc(b, 1, sizeof(*s));
    if (s == NULL) return sl_fail(e, SLUICE_E_BUDGET, "no memory for the sampler");
    s->config = *c;
    s->n_vocab = n_vocab;
    s->pcg_state = pcg_start(c->seed);
    s->logits = sl_alloc(b, n_vocab, sizeof(*s->logits));
    s->candidates = sl_alloc(b, n_vocab, sizeof(*s->candidates));
    s->recent = sl_alloc(b, c->repeat_last, sizeof(*s->recent));
    s->seen = sl_alloc(b, n_vocab / 8 + 1, 1);
    if (s->logits == NULL || s->candidates == NULL || s->recent == NULL || s->seen == NULL) {
        sl_sampler_close(s);
        return sl_fail(e, SLUICE_E_BUDGET, "no memory for a sampler over %u tokens",
                       (unsigned)n_vocab);
    }
    *out = s;
    return SLUICE_OK;
}

void sl_sampler_close(struct sl_sampler *s)
{
    if (s == NULL) return;
    sl_free(s->logits);
    sl_free(s->candidates);
    sl_free(s->recent);
    sl_free(s->seen);
    sl_free(s);
}

void sl_sampler_accept(struct sl_sampler *s, int32_t id)
{
    SLUICE_ASSERT(id >= 0 && (uint32_t)id < s->n_vocab);
    if (s->config.repeat_last == 0) return;
    s->recent[s->next_recent] = id;
    s->next_recent = s->next_recent + 1 == s->config.repeat_last ? 0 : s->next_recent + 1;
    if (s->n_recent < s->config.repeat_last) s->n_recent++;
}

/* ---- checks and the penalty ------------------------------------------------------------------ */

sluice_err sl_argmax(const float *logits, uint32_t n, int32_t *id, sluice_error *e)
{
    uint32_t best = 0;
    SLUICE_ASSERT(n > 0);
    *id = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (!(logits[i] < INFINITY)) { /* NaN or +inf */
            return sl_fail(e, SLUICE_E_NUMERIC, "the logit of token %u is not a finite number",
                           (unsigned)i);
        }
        if (logits[i] > logits[best]) best = i;
    }
    if (!isfinite(logits[best])) {
        return sl_fail(e, SLUICE_E_NUMERIC, "none of the %u logits is a finite number",
                       (unsigned)n);
    }
    *id = (int32_t)best;
    return SLUICE_OK;
}

/* Weakens every token of the recent history once. Returns the logits to go on with: the caller's
 * where nothing is to be done. */
static const float *penalize(struct sl_sampler *s, const float *logits)
{
    float penalty = s->config.repeat_penalty;
    if (penalty == 1.0f || s->n_recent == 0) return logits;
    memcpy(s->logits, logits, s->n_vocab * sizeof(*logits));
    for (uint32_t i = 0; i < s->n_recent; i++) {
        uint32_t id = (uint32_t)s->recent[i];
        if (s->seen[id / 8] >> (id % 8) & 1) continue;
        s->seen[id / 8] |= (uint8_t)(1u << (id % 8));
        float x = s->logits[id];
        s->logits[id] = x > 0.0f ? x / penalty : x * penalty;
    }
    for (uint32_t i = 0; i < s->n_recent; i++) s->seen[(uint32_t)s->recent[i] / 8] = 0;
    return s->logits;
}

/* ---- candidates: a binary heap, best or worst at the root ------------------------------------ */

static bool better(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Lets heap[at] sink to its place among n; with worst_first the root is the worst. */
static void sink(struct candidate *heap, size_t n, size_t at, bool worst_first)
{
    struct candidate x = heap[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && better(heap[child + 1], heap[child]) != worst_first) child++;
        if (better(x, heap[child]) != worst_first) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = x;
}

static void heapify(struct candidate *heap, size_t n, bool worst_first)
{
    for (size_t i = n / 2; i > 0; i--) sink(heap, n, i - 1, worst_first);
}

/* Fills candidates with the top_k best, the worst of them at the root. Most logits fail the one
 * comparison. */
static size_t gather_best(struct sl_sampler *s, const float *logits, size_t top_k)
{
    struct candidate *c = s->candidates;
    for (size_t i = 0; i < top_k; i++) c[i] = (struct candidate){logits[i], (int32_t)i};
    heapify(c, top_k, true);
    for (size_t i = top_k; i < s->n_vocab; i++) {
        if (logits[i] > c[0].logit) { /* ids ascend, so an equal logit never displaces */
            c[0] = (struct candidate){logits[i], (int32_t)i};
            sink(c, top_k, 0, true);
        }
    }
    return top_k;
}

static size_t gather(struct sl_sampler *s, const float *logits)
{
    uint32_t top_k = s->config.top_k;
    if (top_k > 0 && top_k < s->n_vocab) return gather_best(s, logits, top_k);
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        s->candidates[i] = (struct candidate){logits[i], (int32_t)i};
    }
    return s->n_vocab;
}

/* ---- weights and the draw -------------------------------------------------------------------- */

/* What a candidate weighs, in 2^-40 of the best; best and temperature say how. */
struct scale {
    float best;
    float temperature;
};

static float share(const struct scale *k, struct candidate c)
{
    return sl_expf((c.logit - k->best) / k->temperature);
}

static uint64_t weight(const struct scale *k, struct candidate c)
{
    return (uint64_t)(share(k, c) * WEIGHT_ONE);
}

/* Takes the best off a heap of *n; it is kept behind the heap, so that the taken stand in reverse
 * order. */
static struct candidate take_best(struct candidate *heap, size_t *n)
{
    struct candidate best = heap[0];
    heap[0] = heap[--*n];
    sink(heap, *n, 0, false);
    heap[*n] = best;
    return best;
}

/* Drops what weighs nothing. Returns how many stay; *total is the weight of all. */
static size_t weigh_all(struct candidate *c, size_t n, const struct scale *k, uint64_t *total)
{
    size_t kept = 0;
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t w = weight(k, c[i]);
        if (w > 0) c[kept++] = c[i];
        *total += w;
    }
    return kept;
}

/* Takes the shortest best-first list that reaches top-p of total, cut where min-p says so. Returns
 * its weight. */
static uint64_t nucleus(const struct sl_sampler *s, const struct scale *k, size_t *left,
                        uint64_t total)
{
    uint64_t want = (uint64_t)((double)total * (double)s->config.top_p);
    uint64_t sum = 0;
    do {
        struct candidate c = take_best(s->candidates, left);
        if (share(k, c) < s->config.min_p) break; /* never the first: its share is 1 */
        sum += weight(k, c);
    } while (*left > 0 && sum < want);
    return sum;
}

static int32_t draw(struct sl_sampler *s, size_t n, const struct scale *k)
{
    struct candidate *heap = s->candidates;
    uint64_t total;
    n = weigh_all(heap, n, k, &total);
    size_t left = n;
    heapify(heap, n, false);
    if (s->config.top_p < 1.0f || s->config.min_p > 0.0f) total = nucleus(s, k, &left, total);

    uint64_t at = pcg_below(&s->pcg_state, total);
    size_t i = n; /* heap[left..n-1] are the taken, the best last */
    uint64_t sum = 0;
    do {
        if (i == left) (void)take_best(heap, &left);
        i--;
        sum += weight(k, heap[i]);
    } while (sum <= at);
    return heap[i].id;
}

sluice_err sl_sampler_next(struct sl_sampler *s, const float *logits, int32_t *id, sluice_error *e)
{
    int32_t best = -1;
    *id = -1;
    sluice_err err = sl_argmax(logits, s->n_vocab, &best, e);
    if (err != SLUICE_OK) return err;
    const float *penalized = penalize(s, logits);
    if (penalized != logits) err = sl_argmax(penalized, s->n_vocab, &best, e);
    if (err != SLUICE_OK) return err;
    if (s->config.temperature <= 0.0f) {
        *id = best;
        return SLUICE_OK;
    }
    struct scale k = {penalized[best], s->config.temperature};
    *id = draw(s, gather(s, penalized), &k);
    return SLUICE_OK;
}
