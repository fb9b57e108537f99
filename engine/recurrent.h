/* What recurrent layers know of the text so far: of a gated DeltaNet layer, the state of each value
 * head and the last rows that its convolution looks back at.
 *
 * Unlike keys and values it has no positions that could be cut off again. What can be had without
 * evaluating anew: the present, one token back (the last token's part is not added to a state until
 * the next one comes, so that it can be left out), a copy kept at the start of the last run of
 * several tokens, and nothing at all. That is enough for a token that failed or was cancelled in
 * any layer, and for a run of several that did; and a conversation goes back to the start of its
 * last prompt. Thread: the driver; workers may use what belongs to distinct heads. */
#ifndef SL_RECURRENT_H
#define SL_RECURRENT_H

#include "engine/model.h"

struct sl_recurrent {
    const struct sl_model *m;
    struct sl_region memory; /* two blocks: the present, and the copy kept */
    uint64_t block_bytes;    /* 0: no recurrent layers, then there is no memory */
    uint32_t kept;           /* tokens that the copy knows; 0: none, it stands for the start */
};

/* One layer. A state lacks the last token's part, for which decay, k and u stand (kernels.h). */
struct sl_delta_state {
    struct sl_delta_mark {
        uint32_t n;   /* tokens that the layer has taken in */
        bool pending; /* the last one's part is to be added */
    } * mark;
    float *s;     /* [n_v_heads][head_k * head_v] */
    float *rows;  /* [taps][channels] inputs of the convolution, that of position p at p % taps */
    float *k;     /* [n_k_heads][head_k] */
    float *u;     /* [n_v_heads][head_v] */
    float *decay; /* [n_v_heads] */
};

/* Bytes of both blocks. */
uint64_t sl_recurrent_bytes(const struct sl_model *m);
/* Empty. Returns SLUICE_OK, SLUICE_E_NOMEM or SLUICE_E_BUDGET; r is zeroed on failure. */
SL_MUST_CHECK sluice_err sl_recurrent_init(struct sl_recurrent *r, const struct sl_model *m,
                                           struct sl_budget *b);
void sl_recurrent_deinit(struct sl_recurrent *r);

/* The present of the index-th DeltaNet layer. */
struct sl_delta_state sl_recurrent_layer(const struct sl_recurrent *r, uint32_t index);

/* Tokens that the layers know, of a text of n_tokens (which is the answer where there are none).
 * Not after a run that failed, before rewind. */
uint32_t sl_recurrent_known(const struct sl_recurrent *r, uint32_t n_tokens);
/* Keeps a copy of the present. */
void sl_recurrent_keep(struct sl_recurrent *r);
/* The largest number up to n of tokens that rewind would leave known. */
uint32_t sl_recurrent_reach(const struct sl_recurrent *r, uint32_t n);
/* The text has only n tokens any more: goes to as many of them as can be had. Also after a run that
 * failed, with n the tokens before it. */
void sl_recurrent_rewind(struct sl_recurrent *r, uint32_t n);

#endif
