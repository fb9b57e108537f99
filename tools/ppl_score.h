/* The arithmetic of ppl: log-likelihoods of scored tokens and, against a reference run, the
 * Kullback-Leibler divergence of the next-token distributions. Sums are in double; logarithms are
 * natural. */
#ifndef CLI_PPL_SCORE_H
#define CLI_PPL_SCORE_H

#include <stddef.h>
#include <stdint.h>

/* The most likely token, of equal ones the lowest. */
uint32_t cli_most_likely(const float *logits, size_t n_vocab);

/* One distribution, as logits, and what the token that came next had. */
struct cli_prediction {
    const float *logits; /* [n_vocab] */
    size_t n_vocab;
    double max, log_sum; /* log p = logit - max - log_sum */
    double nll;          /* of the token that came */
    uint32_t top;        /* the most likely token */
};

struct cli_prediction cli_predict(const float *logits, size_t n_vocab, int32_t came);

/* A distribution of a reference run, as its file stores it: log p(i) = -curve * codes[i]^2 - c,
 * where c makes the sum of p 1. */
struct cli_coded {
    double nll;
    float curve;
    uint32_t top;
    uint16_t *codes; /* [n_vocab] */
};

/* Encodes prediction into coded, whose codes have room. */
void cli_encode(const struct cli_prediction *prediction, struct cli_coded *coded);

/* KL(reference || prediction), nats, never negative. */
double cli_divergence(const struct cli_coded *reference, const struct cli_prediction *prediction);

struct cli_scores {
    size_t count;
    double nll, nll_squares;
    /* Against a reference: */
    double *kl; /* [capacity] */
    size_t n_kl, same_top;
    double reference_nll, kl_sum, kl_squares;
    double excess_squares; /* of nll less the reference's */
};

void cli_scores_add(struct cli_scores *scores, const struct cli_prediction *prediction);
/* kl has to have room. */
void cli_scores_compare(struct cli_scores *scores, const struct cli_prediction *prediction,
                        const struct cli_coded *reference);

struct cli_quality {
    double mean_nll, perplexity;
    double perplexity_error; /* standard error; NAN for a single token, as all errors here */
    /* Against a reference: */
    double reference_perplexity, ratio, ratio_error;
    double mean_kl, kl_error, median_kl, kl_99, kl_99_9, max_kl, same_top;
};

/* The figures of all scored tokens, at least one. Sorts scores->kl. */
struct cli_quality cli_scores_finish(struct cli_scores *scores);

#endif
