/* A model described: every number and every weight the forward pass needs, layer by layer.
 *
 * describe.c fills the numbers from GGUF metadata and binds each weight to a tensor of the file;
 * load.c then takes the memory and reads. Between the two the plan is known to the byte and nothing
 * has been allocated for weights. After loading the structure is immutable and may be read by all
 * threads. */
#ifndef SL_MODEL_H
#define SL_MODEL_H

#include <stdatomic.h>

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

/* Sizes of the gated DeltaNet layers of a model, all alike. */
struct sl_delta_shape {
    uint32_t n_k_heads, n_v_heads; /* the second a multiple of the first */
    uint32_t head_k, head_v;       /* elements; head_v a multiple of SL_DELTA_COLS */
    uint32_t taps;                 /* of the convolution, 2..SL_CONV_TAPS_MAX */
    uint32_t channels;             /* it goes over: q, k of all key heads, v of all value heads */
};

/* Weights of one such layer. */
struct sl_delta {
    uint32_t index;       /* among the DeltaNet layers */
    struct sl_matrix qkv; /* [channels][n_embd] */
    struct sl_matrix (
        *by_head)[4];       /* [n_k_heads] or NULL: rows of q, k, v, z of a key head and its
                               value heads, as early files have them; qkv and z are absent */
    struct sl_matrix z;     /* [n_v_heads * head_v][n_embd] gate of the output */
    struct sl_matrix ba[2]; /* beta and alpha: [n_v_heads][n_embd] each, or in one of twice the
                               rows: by key head, beta of its value heads, then their alpha */
    const float *conv;      /* [channels][taps] */
    const float *a, *dt;    /* [n_v_heads] decay = exp(a * softplus(alpha + dt)) */
    const float *norm;      /* [head_v] */
    struct sl_matrix out;   /* [n_embd][n_v_heads * head_v] */
};

struct sl_layer {
    const float *attn_norm, *ffn_norm; /* [n_embd] */

    bool is_delta; /* gated DeltaNet in place of attention, whose fields are then zero */
    struct sl_delta delta;

    /* Attention. head_v may differ from head_k. */
    uint32_t n_heads, n_kv_heads;
    struct sl_matrix wq, wk, wv, wo; /* rows: n_heads * head_k, n_kv_heads * head_k, n_kv_heads *
                                        head_v, n_embd */
    bool gated; /* wq has twice the rows: of each head, its query, then a gate of its output */
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
    /* n_ctx_train, or the sliding window of attention where that is less: every layer attends to
     * the whole context here, so that a longer one would be wrong. */
    uint32_t n_ctx_most;
    uint32_t head_k, head_v; /* elements of a key and a value head */
    uint32_t n_delta_layers;
    struct sl_delta_shape delta; /* where there are any */
    float norm_eps;
    float clamp_qkv;                  /* > 0: q, k, v are clamped to +- this */
    float attn_scale;                 /* of query . key */
    float embd_scale, residual_scale; /* 1: none */
    float logit_scale;                /* logits are multiplied by it; 1: none */
    struct sl_rope rope;

    /* [n_vocab][n_embd]. Rows of token_embd are read from the file token by token (embed.c), unless
     * it is the output matrix too: then token_embd.w is that, otherwise NULL. */
    struct sl_matrix token_embd, output;
    const struct sl_gguf *gguf; /* where the weights are */
    const struct sl_gguf_tensor *embd_tensor;
    uint32_t embd_index; /* of that tensor in the file's list */
    bool tied;           /* output is token_embd */
    const float *output_norm;
    struct sl_layer *layers; /* [n_layers] */

    /* Most of any layer, for sizing. max_q_rows: q, or q, k and v of a DeltaNet layer; max_o_cols:
     * what either kind gives to its last product. */
    uint32_t max_q_rows, max_k_rows, max_v_rows, max_o_cols, max_ff, max_ff_exp, max_experts,
        max_top_k;
    uint32_t n_moe_layers;
    /* The forms that weights take activations in, bits of sl_k_act_bit: all resident weights, gate
     * and up of the experts, and their down. */
    uint32_t dense_acts, expert_in_acts, expert_out_acts;
    uint64_t n_params;

    /* Loading. */
    struct sl_weight *weights;
    uint64_t n_weights, weights_capacity;
    uint64_t resident_bytes;          /* of the segment that holds all weights */
    struct sl_expert_source *sources; /* per layer, where experts are in the files */
    struct sl_region resident;        /* all weights but those of routed experts */
    struct sl_arena arena;            /* layers, sources, rope factors */

    /* Reading while running. */
    struct sl_io *io;
    struct sl_io_file **files; /* [n_files] */
    uint32_t n_files;
    struct sl_sums *sums;          /* or NULL */
    uint32_t *embd_sums;           /* [n_vocab] low half of each row's XXH3 once read, 0: not yet;
                                      NULL where the file has checksums of its own */
    struct sl_expert_store *store; /* NULL: a dense model */
    struct sl_record *record;      /* what happens is recorded there; NULL: it is not */
    _Atomic uint32_t trim_request; /* see trim.h */
    bool trimmed;                  /* memory was asked back, and not yet offered again */
};

/* Fills m from an open file: no weights are read. Errors name file, key or tensor, found and
 * wanted. The gguf must stay open until sl_model_load is done. m must be zeroed; sl_model_deinit
 * frees it also after a failure. */
SL_MUST_CHECK sluice_err sl_model_describe(struct sl_model *m, const struct sl_gguf *g,
                                           struct sl_budget *b, const struct sl_log *log,
                                           sluice_error *e);

/* Progress of reading; nonzero gives up with SLUICE_E_CANCELLED. */
typedef int sl_progress_fn(void *user, uint64_t done, uint64_t total);

struct sl_load_config {
    enum sl_io_kind io;
    bool map; /* experts are mapped, not read: a baseline, outside the budget */
    uint32_t n_slots[SL_EC_CLASSES_MAX];
    const struct sl_ec_policy *policy; /* NULL: the default */
    enum sl_read_ahead_mode read_ahead;
    const struct sl_log *log;
    sl_progress_fn *progress; /* or NULL */
    void *progress_user;
    /* Tests: puts something around the backend (faults). NULL: nothing. On failure io is closed. */
    sluice_err (*wrap)(void *user, struct sl_io *io, sluice_error *e, struct sl_io **out);
    void *wrap_user;
    /* Called once m->io is there and before any weight is read; NULL: nothing. */
    sluice_err (*opened)(void *user, sluice_error *e);
    void *opened_user;
};

/* Takes the memory, opens the files for asynchronous reads, and reads all resident weights (and all
 * experts where there is a slot for each). The gguf has to stay open as long as the model. */
SL_MUST_CHECK sluice_err sl_model_load(struct sl_model *m, const struct sl_gguf *g,
                                       const struct sl_load_config *c, struct sl_budget *b,
                                       sluice_error *e);

/* What load takes beyond the resident segment and the store, for good: the table of row sums. */
uint64_t sl_model_load_bytes(const struct sl_model *m);
/* And while it reads the segment; given back before the slots are taken. */
uint64_t sl_model_stage_bytes(void);

void sl_model_deinit(struct sl_model *m);

#endif
