/* A routing trace put together in a test: evals with visits, nothing recorded but the choices.
 * All layers have as many experts; further fields of the header are the test's to fill in. */
#ifndef MADE_TRACE_H
#define MADE_TRACE_H

#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

#define MADE_VISITS_MAX 4096
#define MADE_CHOICES_MAX 65536

static inline struct sl_trace *made_trace(uint32_t n_layers, uint32_t n_experts, uint32_t top_k)
{
    struct sl_trace *t = calloc(1, sizeof *t);
    t->header.version = SL_TRACE_VERSION;
    t->header.n_classes = 1;
    t->header.n_layers = n_layers;
    for (uint32_t l = 0; l < n_layers; l++)
        t->header.layer[l] = (struct sl_trace_layer_info){.n_experts = n_experts, .top_k = top_k};
    t->evals = calloc(MADE_VISITS_MAX, sizeof *t->evals);
    t->visits = calloc(MADE_VISITS_MAX, sizeof *t->visits);
    t->chosen = calloc(MADE_CHOICES_MAX, sizeof *t->chosen);
    return t;
}

static inline void made_trace_free(struct sl_trace *t)
{
    free(t->evals);
    free(t->visits);
    free(t->chosen);
    free(t);
}

/* Begins an eval: a decoded token, or a prompt's chunk. */
static inline void made_eval(struct sl_trace *t, uint32_t n_tokens, bool prompt)
{
    struct sl_trace_eval_span *x = &t->evals[t->n_evals++];
    SLUICE_ASSERT(t->n_evals <= MADE_VISITS_MAX);
    x->e = (struct sl_trace_eval){.n_tokens = n_tokens, .prompt = prompt};
    x->first_visit = t->n_visits;
    x->whole = true;
    *(prompt ? &t->n_prompt : &t->n_tokens) += n_tokens;
}

/* A visit of the eval: chosen is [tokens of the eval][top_k]. */
static inline void made_visit(struct sl_trace *t, uint32_t layer, const uint16_t *chosen)
{
    struct sl_trace_eval_span *x = &t->evals[t->n_evals - 1];
    struct sl_trace_visit *v = &t->visits[t->n_visits++];
    uint32_t top_k = t->header.layer[layer].top_k;
    *v = (struct sl_trace_visit){.eval = (uint32_t)t->n_evals - 1,
                                 .layer = layer,
                                 .n_tokens = x->e.n_tokens,
                                 .top_k = top_k,
                                 .first_choice = t->n_choices};
    x->n_visits++;
    SLUICE_ASSERT(t->n_visits <= MADE_VISITS_MAX);
    SLUICE_ASSERT(t->n_choices + v->n_tokens * top_k <= MADE_CHOICES_MAX);
    memcpy(t->chosen + t->n_choices, chosen, v->n_tokens * top_k * sizeof *chosen);
    t->n_choices += v->n_tokens * top_k;
}

#endif
