/* A model described: every number and every weight the forward pass needs, layer by layer.
 *
 * describe.c fills the numbers from GGUF metadata and binds each weight to a tensor of the file;
 * load.c then takes the memory and reads. Between the two the plan is known to the byte and nothing
 * has been allocated for weights. After loading the structure is immutable and may be read by all
 * threads. */
#ifndef SL_MODEL_H
#define SL_MODEL_H

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/arch.h"
#include "engine/rope.h"
#include "expert_cache/expert_store.h"
#include "formats/gguf.h"
#include "router/router.h"

/* A weight matrix in memory, in the encoding of the file. */
struct sl_matrix {
    const uint8_t *w; /* [rows][row_bytes]; NULL: absent */
    uint64_t row_bytes;
    uint32_t type; /* enum sl_type */
    uint32_t rows, cols;
};

/* A gated feed-forward network: down(silu(gate x) * up x). Biases are NULL where absent. */
struct sl_ffn {
    struct sl_matrix gate, up, down; /* [n_ff][n_embd], [n_ff][n_embd], [n_embd][n_ff] */
    const float *gate_bias, *up_bias, *down_bias;
};

struct sl_layer {
    const float *attn_norm, *ffn_norm; /* [n_embd] */

    /* Attention. head_v may differ from head_k. */
    uint32_t n_heads, n_kv_heads;
    struct sl_matrix wq, wk, wv, wo; /* rows: n_heads * head_k, n_kv_heads * head_k, n_kv_heads *
                                        head_v, n_embd */
    const float *bq, *bk, *bv, *bo;  /* or NULL */
    const float *q_norm, *k_norm;    /* or NULL */
    bool q_norm_whole, k_norm_whole; /* over all heads together; otherwise each head apart */

    /* Feed-forward: dense (n_experts 0), or routed experts, perhaps with a shared one. */
    uint32_t n_experts;
    struct sl_ffn ffn; /* dense, or the shared expert; ffn.up.w NULL: none */
    struct sl_matrix
        shared_gate; /* [1][n_embd] or absent: weight of the shared expert is sigmoid of it, or 1 */
    struct sl_matrix gate_inp; /* router [n_experts][n_embd] */
    struct sl_router router;
    struct sl_expert_shape experts; /* parts: gate, up, down; or gate|up, down */
};

/* One tensor (or a part of it) to be read at load, and where its address goes. */
struct sl_weight {
    const struct sl_gguf_tensor *tensor;
    uint64_t src_offset; /* from the start of the tensor, bytes */
    uint64_t src_bytes;
    uint64_t offset;   /* in the resident segment, 64-byte aligned */
    bool as_f32;       /* decoded to float: norms and biases */
    const void **slot; /* the pointer in struct sl_model that receives the address */
};

struct sl_model {
    const struct sl_arch *arch;
    uint32_t n_layers, n_embd, n_vocab, n_ctx_train;
    uint32_t head_k, head_v; /* elements of a key and a value head */
    float norm_eps;
    float clamp_qkv;                  /* > 0: q, k, v are clamped to +- this */
    float attn_scale;                 /* of query . key */
    float embd_scale, residual_scale; /* 1: none */
    float logit_scale;                /* logits are multiplied by it; 1: none */
    struct sl_rope rope;

    struct sl_matrix token_embd, output; /* [n_vocab][n_embd] */
    bool tied;                           /* output is token_embd */
    const float *output_norm;
    struct sl_layer *layers; /* [n_layers] */

    /* Most of any layer, for sizing. */
    uint32_t max_q_rows, max_k_rows, max_v_rows, max_o_cols, max_ff, max_ff_exp, max_experts,
        max_top_k;
    uint32_t n_moe_layers;
    uint64_t n_params;

    /* Loading. */
    struct sl_weight *weights;
    uint64_t n_weights, weights_capacity;
    uint64_t resident_bytes;          /* of the segment that holds all weights */
    struct sl_expert_source *sources; /* per layer, where experts are in the files */
    uint8_t *resident;
    struct sl_expert_store *store;
    struct sl_arena arena; /* layers, sources, rope factors */
};

/* Fills m from an open file: no weights are read. Errors name file, key or tensor, found and
 * wanted. The gguf must stay open until sl_model_load is done. m must be zeroed; sl_model_deinit
 * frees it also after a failure. */
SL_MUST_CHECK sluice_err sl_model_describe(struct sl_model *m, const struct sl_gguf *g,
                                           struct sl_budget *b, const struct sl_log *log,
                                           sluice_error *e);

/* Progress of reading; nonzero gives up with SLUICE_E_CANCELLED. */
typedef int sl_progress_fn(void *user, uint64_t done, uint64_t total);

/* Takes the memory and reads all weights. */
SL_MUST_CHECK sluice_err sl_model_load(struct sl_model *m, const struct sl_gguf *g,
                                       struct sl_budget *b, sl_progress_fn *progress, void *user,
                                       sluice_error *e);

void sl_model_deinit(struct sl_model *m);

#endif
