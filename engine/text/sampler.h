/* Choosing the next token from logits: repeat penalty -> greedy, or temperature -> top-k -> top-p
 * -> min-p -> draw.
 *
 * Same seed, logits and history give the same token on every machine: exp is sl_expf, weights are
 * whole numbers of 2^-40 of the best one, so that sums are exact in any order, candidates stand in
 * order of logit with ties by lower id, and the generator is PCG32 (O'Neill 2014). Thread: one
 * thread per sampler. */
#ifndef SL_SAMPLER_H
#define SL_SAMPLER_H

#include "base/mem.h"

struct sl_sampler_config {
    float temperature;    /* <= 0: greedy, after the repeat penalty */
    uint32_t top_k;       /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off; logits of seen tokens are divided by it where positive,
                             multiplied where negative */
    uint32_t repeat_last; /* how many of the last tokens count as seen; 0: off */
    uint64_t seed;
};

struct sl_sampler;

/* Returns SLUICE_OK, SLUICE_E_ARG (a value out of range; names it), SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_sampler_open(const struct sl_sampler_config *c, uint32_t n_vocab,
                                         struct sl_budget *b, sluice_error *e,
                                         struct sl_sampler **out);
void sl_sampler_close(struct sl_sampler *s);

/* Tells the sampler a token of the history (prompt or chosen); 0 <= id < n_vocab. */
void sl_sampler_accept(struct sl_sampler *s, int32_t id);

/* Chooses; does not accept. SLUICE_E_NUMERIC where a logit is NaN or +inf, or none is finite (-inf
 * is legal: never chosen). Ties go to the lower id. */
SL_MUST_CHECK sluice_err sl_sampler_next(struct sl_sampler *s, const float *logits, int32_t *id,
                                         sluice_error *e);

/* Index of the largest logit, ties to the lower one; the same checks. */
SL_MUST_CHECK sluice_err sl_argmax(const float *logits, uint32_t n, int32_t *id, sluice_error *e);

#endif
