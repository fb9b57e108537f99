/* Likelihoods and divergences; see ppl_score.h.
 *
 * Why a reference's log-probabilities are stored as the square roots of their distance from the
 * best: what matters for the divergence is the error weighted with the probability, so steps are
 * fine where tokens are likely and coarse in the tail. Distances up to 30 nats, as models have
 * them, are off by at most 0.00003 at 0.1, 0.0001 at 1 and 0.0003 at 10. Each distribution is
 * normalized again when it is read, so that of these errors only their squares are left where two
 * distributions are nearly the same. */
#include "tools/ppl_score.h"

#include <math.h>
#include <stdlib.h>

#define CODE_MAX 65535

uint32_t cli_most_likely(const float *logits, size_t n_vocab)
{
    size_t best = 0;
    for (size_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (uint32_t)best;
}

struct cli_prediction cli_predict(const float *logits, size_t n_vocab, int32_t came)
{
    struct cli_prediction p = {.logits = logits, .n_vocab = n_vocab};
    double sum = 0;
    p.top = cli_most_likely(logits, n_vocab);
    p.max = logits[p.top];
    for (size_t i = 0; i < n_vocab; i++) sum += exp(logits[i] - p.max);
    p.log_sum = log(sum);
    p.nll = -(logits[came] - p.max - p.log_sum);
    return p;
}

void cli_encode(const struct cli_prediction *prediction, struct cli_coded *coded)
{
    const float *logits = prediction->logits;
    double farthest = 0;
    for (size_t i = 0; i < prediction->n_vocab; i++)
        if (prediction->max - logits[i] > farthest) farthest = prediction->max - logits[i];
    coded->nll = prediction->nll;
    coded->top = prediction->top;
    coded->curve = (float)(farthest / CODE_MAX / CODE_MAX);
    double scale = coded->curve > 0 ? 1 / (double)coded->curve : 0;
    for (size_t i = 0; i < prediction->n_vocab; i++) {
        double code = sqrt((prediction->max - logits[i]) * scale) + 0.5;
        coded->codes[i] = (uint16_t)(code < CODE_MAX ? code : CODE_MAX);
    }
}

/* With w = exp(-distance from the best), p = w / sum w and q = exp(logit - max) / sum of those:
 * sum p (ln p - ln q) in one pass over the codes. */
double cli_divergence(const struct cli_coded *reference, const struct cli_prediction *prediction)
{
    double sum = 0, weighted = 0, curve = reference->curve;
    for (size_t i = 0; i < prediction->n_vocab; i++) {
        double code = reference->codes[i], distance = curve * code * code;
        double w = exp(-distance);
        sum += w;
        weighted += w * (prediction->max - prediction->logits[i] - distance);
    }
    double kl = weighted / sum - log(sum) + prediction->log_sum;
    return kl > 0 ? kl : 0; /* rounding leaves about 1e-15 of nothing */
}

void cli_scores_add(struct cli_scores *scores, const struct cli_prediction *prediction)
{
    scores->count++;
    scores->nll += prediction->nll;
    scores->nll_squares += prediction->nll * prediction->nll;
}

void cli_scores_compare(struct cli_scores *scores, const struct cli_prediction *prediction,
                        const struct cli_coded *reference)
{
    double kl = cli_divergence(reference, prediction), excess = prediction->nll - reference->nll;
    scores->kl[scores->n_kl++] = kl;
    scores->kl_sum += kl;
    scores->kl_squares += kl * kl;
    scores->same_top += reference->top == prediction->top;
    scores->reference_nll += reference->nll;
    scores->excess_squares += excess * excess;
}

/* Standard error of the mean of n values with these sums. */
static double standard_error(double sum, double squares, size_t n)
{
    double count = (double)n, mean = sum / count;
    double variance = squares / count - mean * mean;
    return n < 2 ? NAN : sqrt((variance > 0 ? variance : 0) / (count - 1));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two nearest of n sorted values, linearly. */
static double quantile(const double *sorted, size_t n, double part)
{
    double at = part * (double)(n - 1);
    size_t below = (size_t)at;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

struct cli_quality cli_scores_finish(struct cli_scores *scores)
{
    struct cli_quality q = {0};
    double count = (double)scores->count;
    size_t n = scores->n_kl;
    q.mean_nll = scores->nll / count;
    q.perplexity = exp(q.mean_nll);
    q.perplexity_error =
        q.perplexity * standard_error(scores->nll, scores->nll_squares, scores->count);
    if (n == 0) return q;
    double excess = scores->nll - scores->reference_nll;
    qsort(scores->kl, n, sizeof scores->kl[0], ascending);
    q.reference_perplexity = exp(scores->reference_nll / count);
    q.ratio = exp(excess / count);
    q.ratio_error = q.ratio * standard_error(excess, scores->excess_squares, n);
    q.mean_kl = scores->kl_sum / count;
    q.kl_error = standard_error(scores->kl_sum, scores->kl_squares, n);
    q.median_kl = quantile(scores->kl, n, 0.5);
    q.kl_99 = quantile(scores->kl, n, 0.99);
    q.kl_99_9 = quantile(scores->kl, n, 0.999);
    q.max_kl = scores->kl[n - 1];
    q.same_top = (double)scores->same_top / count;
    return q;
}
