/* Guessing a layer's experts before its router has run.
 *
 * Two sources: the layer's own router applied to the hidden state of the layer before (which finds
 * most of them: the residual stream changes little from layer to layer), and what the previous
 * token chose there. Neither is a probability by itself, so the predictor learns how often an
 * expert of a rank comes true, with and without having been chosen by the previous token, for each
 * layer, with decay; a hint carries that frequency.
 *
 * Guesses move bytes, never tokens. Thread: the driver. */
#ifndef SL_PREDICT_H
#define SL_PREDICT_H

#include "base/limits.h"
#include "base/mem.h"
#include "expert_cache/expert_store.h"

struct sl_predictor;

struct sl_predict_layer {
    uint32_t n_experts; /* 0: the layer has none */
    uint32_t top_k;
};

/* Bytes that open will charge. */
uint64_t sl_predictor_bytes(const struct sl_predict_layer *layers, uint32_t n_layers);
/* layers is copied. SLUICE_E_NOMEM, SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_predictor_open(const struct sl_predict_layer *layers, uint32_t n_layers,
                                           struct sl_budget *b, sluice_error *e,
                                           struct sl_predictor **out);
void sl_predictor_close(struct sl_predictor *p);

/* Guesses for the layer's next token, likeliest first; at most max (the top_k best ranks twice over
 * are considered, and the previous token's choice: never more than 3 * top_k). logits: [n_experts]
 * the layer's router on an earlier hidden state, with the bias where the router has one: only their
 * order matters; NULL: only the previous token's choice is known. Values that are not finite give
 * no hints. Returns how many. Cost: a pass over the logits, a few microseconds. */
uint32_t sl_predict(struct sl_predictor *p, uint32_t layer, const float *logits,
                    struct sl_expert_hint *out, uint32_t max);
/* What the layer's token chose in truth: [n] distinct experts, n at most top_k. Teaches the
 * frequencies of the last sl_predict for this layer, if any, and is the next guess's "previous
 * token". */
void sl_predict_learn(struct sl_predictor *p, uint32_t layer, const uint32_t *chosen, uint32_t n);
/* A new text, or a jump back in this one: the previous token is not known. */
void sl_predict_forget(struct sl_predictor *p);

/* Since open, for tokens that had a guess with logits: chosen experts, how many of them were among
 * the top_k best ranks of the router's guess, and how many the previous token had chosen. */
struct sl_predict_stats {
    uint64_t chosen, by_router, by_previous;
};
void sl_predict_get_stats(const struct sl_predictor *p, uint32_t layer,
                          struct sl_predict_stats *out);

#endif
