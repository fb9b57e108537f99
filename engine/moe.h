/* What the files of the Mixture-of-Experts layer share. Private to engine/moe*.c. */
#ifndef SL_MOE_H
#define SL_MOE_H

#include "engine/session.h"

/* One chunk at one layer. */
struct moe_run {
    const struct sl_chunk *c;
    const struct sl_layer *y;
    uint32_t k;          /* choices of each token: top_k, or fewer where cold ones were dropped */
    bool in_order;       /* experts come ascending and are added as they come */
    uint32_t first_pair; /* number of the pair in row 0 of the pairs' buffers */
    uint32_t next;       /* in order: the lowest expert that is still to come */
};

/* moe_experts.c: all chosen experts through their products, as they arrive, into scratch.out. */
SL_MUST_CHECK sluice_err moe_run_experts(struct moe_run *r);

/* observe.c: shows an expert's input, and what its down projection takes, to the observer. */
void moe_observe_input(const struct moe_run *r, uint32_t expert);
void moe_observe_output(const struct moe_run *r, uint32_t expert);

/* moe_replay.c: what the session's chooser wants for token t, in place of the router's choice,
 * which has been made. SLUICE_E_ARG where it names what there is not. */
SL_MUST_CHECK sluice_err moe_replace_choice(const struct sl_chunk *c, uint32_t t);

/* moe_guess.c: tells the store what the next layer will probably want, and the predictor what this
 * one wanted. */
void moe_look_ahead(const struct moe_run *r);

#endif
