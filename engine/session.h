/* One conversation inside the engine: its KV cache, its history, and the working memory of a chunk.
 * The public handle wraps it (api_session.c). Thread: the driver. */
#ifndef SL_SESSION_H
#define SL_SESSION_H

#include <stdatomic.h>

#include "engine/gated.h"
#include "engine/kv.h"
#include "engine/matmul.h"
#include "engine/phases.h"
#include "engine/recurrent.h"
#include "engine/text/tokenizer.h"
#include "include/sluice.h"
#include "router/predict.h"
#include "router/sticky.h"

/* Query heads, of one token or several, that go over a block of keys and values together. */
#define SL_ATT_ROWS 32u

/* Working memory for a chunk of up to chunk tokens; rows are tokens unless said otherwise. */
struct sl_scratch {
    float *x;            /* [chunk][n_embd] the residual stream */
    float *out;          /* [chunk][n_embd] what a sublayer adds to it */
    struct sl_acts norm; /* normalized x */
    float *q, *k, *v;    /* [chunk][rows]; of a DeltaNet layer q holds all three, side by side */
    float *z, *ba;       /* DeltaNet: [chunk][rows] */
    float *rope;         /* [chunk][n_rot] cosines and sines */
    struct sl_acts attn; /* attention output, heads side by side */
    struct sl_acts ff;   /* gate, then silu(gate) * up */
    float *tiles;        /* [threads][chunk][SL_TILE_ROWS] results that a worker uses at once */
    _Atomic uint32_t *gated_done; /* see gated.h */

    /* Mixture of Experts. A pair is one token at one of its experts; pairs are numbered by expert,
     * then token. The pairs' buffers have a row for each of pair_capacity pairs at a time. */
    uint32_t pair_capacity;
    float *scores;                 /* [chunk][max_experts] router */
    uint32_t *chosen;              /* [chunk][k] ascending */
    float *weight;                 /* [chunk][k] */
    uint32_t *pair_token;          /* [chunk * k] a pair's token */
    float *pair_weight;            /* [chunk * k] */
    uint32_t *first_pair;          /* [max_experts + 1] */
    struct sl_expert_ready *ready; /* [max_experts] */
    struct sl_k_act *pair_x[2];    /* [pair_capacity] inputs for gate and for up, of norm */
    struct sl_acts pair_ff;        /* gate, then silu(gate) * up */
    float *token_out;              /* [k][n_embd] the experts' results for a single token */
    struct sl_mm *mm;              /* [max_experts] products of one run */
    struct sl_gated *gated;        /* [max_experts] */
    float *shared;                 /* [chunk][n_embd] the shared expert's result */
    float *shared_gate;            /* [chunk] */
    struct sl_acts guess;          /* one vector: input of the next layer's router */
    float *guess_scores;           /* [max_experts] */
    struct sl_expert_hint *hints;  /* [max_experts] */

    /* Attention, for each worker and each of the rows it takes at once. */
    float *att_scores; /* [threads][SL_ATT_ROWS][SL_KV_BLOCK] */
    float *att_acc;    /* [threads][SL_ATT_ROWS][head_v] */
    int16_t *att_q;    /* [threads][SL_ATT_ROWS][head_k rounded up] query codes */
    float *att_d;      /* [threads][SL_ATT_ROWS][groups] */
    uint64_t att_q_stride, att_d_stride;

    uint8_t *embd_stage; /* rows of the embedding table as read */

    float *logits; /* [n_vocab] of the last token */
};

/* Where the time of a layer went, for measurements. */
struct sl_layer_times {
    uint64_t ns[SL_PHASES];
    uint64_t stall_ns;     /* of the waiting phase: the drive had nothing to hand out */
    uint64_t demand_bytes; /* read for this layer */
};
/* layer n_layers stands for the head. Called on the driver after each layer. */
typedef void sl_layer_fn(void *user, uint32_t layer, uint32_t n_tokens,
                         const struct sl_layer_times *times);

/* Who sees the inputs of weight matrices. */
struct sl_observer {
    sluice_input_fn *fn; /* NULL: nobody */
    void *user;
    const struct sl_gguf *names; /* the model's file, for how its tensors are called */
};

/* Who chooses experts in the router's place. */
struct sl_chooser {
    sluice_route_fn *fn; /* NULL: nobody */
    void *user;
};

struct sl_session {
    struct sl_model *m;
    struct sl_compute compute;
    struct sl_budget *budget;
    uint32_t chunk, n_ctx;
    struct sl_kv kv;
    struct sl_recurrent recurrent;
    struct sl_ids history; /* ids of the context; count is its length */
    struct sl_scratch scratch;
    uint8_t *memory;                /* of scratch */
    struct sl_predictor *predictor; /* NULL: a dense model, or nothing is to be guessed */
    struct sl_sticky *sticky;       /* NULL: exact routing */
    float drop_cold;                /* 0: nothing is dropped */
    uint64_t n_dropped;             /* choices left out so far */
    bool kv_shrunk;                 /* since the last evaluation: slots may grow again */
    bool reads_prompt;              /* what is evaluated now is a prompt's, even if one token */
    struct sl_phases phases;        /* since the session was opened */
    sl_layer_fn *on_layer;          /* or NULL */
    void *on_layer_user;
    struct sl_observer observer;
    struct sl_chooser chooser;
    atomic_bool cancel; /* set from anywhere, read once a layer */
    uint64_t eval_tokens, eval_ns;
    uint32_t number; /* in the model's recording, if there is one */
};

/* Elements of a worker's part of scratch.tiles. */
static inline uint64_t sl_tile_size(uint32_t chunk) { return (uint64_t)chunk * SL_TILE_ROWS; }

/* What sl_gated_run needs to make vectors for weights of a type. */
static inline struct sl_gated_out sl_gated_to(const struct sl_session *s, struct sl_acts *acts,
                                              uint32_t type)
{
    return (struct sl_gated_out){acts, type, s->scratch.tiles, sl_tile_size(s->chunk),
                                 s->scratch.gated_done};
}

/* Bytes of the working memory. */
uint64_t sl_scratch_bytes(const struct sl_model *m, uint32_t chunk, uint32_t threads);

struct sl_session_config {
    uint32_t chunk, n_ctx;
    enum sl_kv_type kv;
    bool guess;           /* predict the next layer's experts */
    float sticky;         /* lossy: strength of sticky routing; 0: none */
    uint32_t sticky_size; /* 0: a quarter of the experts */
    float drop_cold;      /* lossy: 0..1; 0: none */
};

/* What a session takes beyond its working memory and its KV cache. */
uint64_t sl_session_extra_bytes(const struct sl_model *m, const struct sl_session_config *config);

/* s must not move afterwards. Returns SLUICE_OK, SLUICE_E_NOMEM, SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_session_init(struct sl_session *s, struct sl_model *m,
                                         const struct sl_compute *c,
                                         const struct sl_session_config *config,
                                         struct sl_budget *b, sluice_error *e);
void sl_session_deinit(struct sl_session *s);

/* Appends n >= 1 tokens. logits: [n][n_vocab], or NULL. last: where not NULL, receives a pointer to
 * the logits of the last token, valid until the next call. The context grows chunk by chunk: after
 * an error it holds the chunks that were complete. Errors: see sluice_session_eval. */
SL_MUST_CHECK sluice_err sl_session_eval(struct sl_session *s, const int32_t *ids, size_t n,
                                         float *logits, const float **last, sluice_error *e);
/* Keeps the first n tokens. Recurrent layers cannot always go back just there: the next evaluation
 * then begins by evaluating again what they have lost. */
void sl_session_truncate(struct sl_session *s, uint64_t n);
/* The most of the first n tokens that can be kept without that. */
uint64_t sl_session_reach(const struct sl_session *s, uint64_t n);

/* ---- the parts of a forward pass, for one chunk of n tokens at position pos ------------- */

struct sl_chunk {
    struct sl_session *session;
    uint32_t n, pos;
    uint32_t layer;
    sluice_error *e;
    bool prompt;    /* given, not decoded: for recordings */
    uint32_t n_out; /* of so many tokens, the last ones, the last layer's output is wanted */
};

/* How many tokens of the chunk, the first ones, are quiet in its layer: nothing is wanted of them
 * there but that later ones can look back at them, so their keys and values, or their part of a
 * recurrent state. */
static inline uint32_t sl_quiet(const struct sl_chunk *c)
{
    return c->layer + 1 == c->session->m->n_layers ? c->n - c->n_out : 0;
}

/* Rows of the embedding table to scratch.x. Errors of reading. */
SL_MUST_CHECK sluice_err sl_embed(const struct sl_chunk *c, const int32_t *ids);
#define SL_EMBED_BATCH 32u /* rows read at once, at most */
/* Bytes of scratch.embd_stage. */
uint64_t sl_embed_room(const struct sl_model *m);
/* scratch.out = attention(norm(scratch.x)), of tokens that are not quiet; writes keys and values of
 * all. */
SL_MUST_CHECK sluice_err sl_attention(const struct sl_chunk *c);
/* The same of a gated DeltaNet layer; its state takes in the chunk. */
SL_MUST_CHECK sluice_err sl_deltanet(const struct sl_chunk *c);
/* out = dense network of scratch.norm, whose set must have been begun. */
SL_MUST_CHECK sluice_err sl_dense_ffn(const struct sl_chunk *c, const struct sl_ffn *f, float *out);
/* scratch.out = routed experts (and the shared one) of scratch.norm. */
SL_MUST_CHECK sluice_err sl_moe_ffn(const struct sl_chunk *c);
/* Fills scratch.norm with norm(scratch.x). */
void sl_norm_chunk(const struct sl_chunk *c, const float *weight);
/* Adds bias (NULL: nothing) to a row of cols elements for each token that is not quiet. */
void sl_add_bias(const struct sl_chunk *c, const float *bias, float *y, uint32_t cols);
/* observe.c: shows what has just been made, where the session has an observer: norm of the chunk as
 * input of attention, of a dense network (or the shared expert), of the router and of the head;
 * attention's output, and what the network's down projection takes. */
void sl_observe_attn_input(const struct sl_chunk *c);
void sl_observe_attn_output(const struct sl_chunk *c);
void sl_observe_delta_input(const struct sl_chunk *c);
void sl_observe_delta_output(const struct sl_chunk *c);
void sl_observe_ffn_input(const struct sl_chunk *c);
void sl_observe_ffn_output(const struct sl_chunk *c);
void sl_observe_router(const struct sl_chunk *c);
void sl_observe_head(const struct sl_chunk *c);
/* SLUICE_E_NUMERIC for the chunk's layer. */
sluice_err sl_not_finite(const struct sl_chunk *c, const char *where);
/* Whether a norm may be taken of x: numbers, and none so large that its square overflows, since the
 * norm of such a row is a row of zeros and would pass unnoticed. */
bool sl_norm_safe(const float *x, uint64_t n);

#endif
