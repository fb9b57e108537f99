/* What a trace says beyond a single replay: curves over all sizes in one pass, reuse distances,
 * predictors. For `sluice trace replay` and the report. Thread: pure. */
#ifndef SL_STUDY_H
#define SL_STUDY_H

#include "trace/replay.h"

/* ---- miss-ratio curves --------------------------------------------------------------------------
 */

/* Policies whose caches nest (a larger one holds whatever a smaller one does): one pass gives every
 * size. Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies",
 * IBM Systems Journal 9 (1970). Other policies are replayed at each size. */
enum sl_stack_policy { SL_STACK_LRU, SL_STACK_LFU, SL_STACK_OPTIMUM };

/* What is counted. A token's experts of a layer are looked up together, then come in, and none of
 * them goes for another; ties of LFU go by last use, and those of one visit age in the order of
 * choice. A prompt's chunk is one visit: it uses its experts and leaves behind whatever the policy
 * would rather keep of them and of what was there; its hits are not counted. */
struct sl_curve_config {
    enum sl_stack_policy policy;
    enum sl_replay_pool pool;
    bool skip_prompts; /* prompts do not pass through the cache */
};

/* hits[s]: uses of decoded tokens that hit with s slots (one pool: of all layers together; a pool
 * per layer: of each layer), s = 0..n_max. Sizes below the largest choice of a layer's token are
 * not meaningful and 0. All experts count as one size. */
struct sl_curve {
    uint32_t n_max;
    uint64_t uses, cold;
    uint64_t *hits; /* [n_max + 1]; owner: the caller, sl_curve_free */
};
/* Cost: a visit is O(log experts) for LRU, at most O(experts of the pool) for the others
 * (gptoss20b, 440,000 visits: below a second). Errors: SLUICE_E_BUDGET, SLUICE_E_LIMIT (over 134
 * million visits). */
SL_MUST_CHECK sluice_err sl_curve_stack(const struct sl_trace *t, const struct sl_curve_config *c,
                                        struct sl_budget *b, sluice_error *e, struct sl_curve *out);
void sl_curve_free(struct sl_curve *c);

/* ---- reuse --------------------------------------------------------------------------------------
 */

/* Of decoded tokens; what prompts used before them is known. How many other experts of the same
 * layer were used since an expert was used last, those behind it in that token's choice included:
 * hist[i] counts distances of 2^(i-1) .. 2^i - 1, hist[0] those of 0. A cache of LRU with so many
 * slots for the layer and one more hits. What was never used before is in cold. */
#define SL_REUSE_BINS 12
struct sl_reuse {
    uint64_t hist[SL_REUSE_BINS], cold, uses;
    /* Probability that an expert chosen by a token is chosen again by the n-th token after it, n =
     * 1..16, of the same session; 0 where no session is so long. */
    double again[17];
};
SL_MUST_CHECK sluice_err sl_reuse(const struct sl_trace *t, struct sl_budget *b, sluice_error *e,
                                  struct sl_reuse *out);

/* ---- predictors ---------------------------------------------------------------------------------
 */

enum sl_predictor_kind {
    SL_PREDICT_PREVIOUS, /* what the previous token chose there, latest ranks first, then older
                            tokens' choices */
    SL_PREDICT_FREQUENT, /* what the text has chosen there most, with decay (half-life 64) */
    SL_PREDICT_FOLLOWS,  /* what followed in that layer when an earlier layer chose like this:
                            counts of pairs (expert of layer l - ahead, expert of layer l) */
    SL_PREDICT_ROUTER,   /* the recorded hints: the layer's router on the state of the layer before;
                            one layer ahead only, needs SL_TRACE_HINTS */
    SL_PREDICTORS
};
const char *sl_predictor_name(enum sl_predictor_kind kind);

/* Predicts budget experts for each decoded token and layer: what part of the chosen was among them
 * (recall: both / chosen), what part of them was chosen (precision: both / predicted). A prediction
 * uses only what was known when the layer that is ahead layers before had chosen. Counted are the
 * layers for which there is something to go by: with SL_PREDICT_FOLLOWS those that have a layer
 * with experts so far before them in the token, with SL_PREDICT_ROUTER those with hints. Fewer than
 * budget are predicted where nothing speaks for more. Prompts are learned from, not counted. */
struct sl_predict_study {
    enum sl_predictor_kind kind;
    uint32_t ahead;  /* layers with experts, 1..SL_PREDICT_AHEAD_MAX; SL_PREDICT_PREVIOUS and
                        FREQUENT do not depend on it */
    uint32_t budget; /* experts a layer */
    uint64_t chosen, predicted, both;
};
#define SL_PREDICT_AHEAD_MAX 4
/* Fills chosen, predicted and both of n studies in one pass. Studies that the trace cannot answer
 * have chosen 0. Memory: with SL_PREDICT_FOLLOWS 2 bytes for each pair of experts of two layers and
 * each ahead that is asked for (48 layers of 128 experts: 1.6 MB an ahead). Errors:
 * SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_predict_studies(const struct sl_trace *t, struct sl_predict_study *s,
                                            uint32_t n, struct sl_budget *b, sluice_error *e);

/* ---- speed --------------------------------------------------------------------------------------
 */

/* Milliseconds a decoded token would take with these misses:
 *     head + sum over layers of (dense + max(bytes / drive rate, experts))
 * the bound of docs/BENCHMARKS.md. Computing as recorded; where compute_ms is given, that many
 * milliseconds a token, divided as recorded, or else evenly among the layers, as if all of it could
 * overlap with reading. drive_rate: bytes a second; 0: that of the recorded reads. */
struct sl_speed {
    double drive_rate, compute_ms;
};
/* NAN: not known (no rate, no times and no compute_ms, sizes of experts unknown), or, with e->code
 * set, an error of sl_replay. */
double sl_speed_ms(const struct sl_trace *t, const struct sl_replay_config *c,
                   const struct sl_speed *speed, struct sl_budget *b, sluice_error *e);
/* Of the recorded reads that a token or a prompt waited for, bytes a second: all their bytes over
 * the time in which one of them at least was under way. 0: none were recorded. */
double sl_drive_rate(const struct sl_trace *t);

#endif
