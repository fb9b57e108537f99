/* Architectures as data. A family is a row of this table: what a GGUF file does not say and every
 * engine must therefore know (pairing of RoPE, how router scores become weights). Layer kinds are
 * told from the tensors that are there, so that a new family needs a row, not a forward pass.
 * Thread: pure. */
#ifndef SL_ARCH_H
#define SL_ARCH_H

#include "base/base.h"
#include "router/router.h"

/* Which key head a value head of a DeltaNet layer goes with, where there are more value heads:
 * value heads of a key head lie side by side, or a whole round of key heads apart (the file's
 * converter has reordered them). */
enum sl_delta_heads { SL_DELTA_SIDE_BY_SIDE, SL_DELTA_ROUNDS };

struct sl_arch {
    const char *name;      /* general.architecture */
    bool rope_neox;        /* pairs (i, i + n_rot/2); otherwise (2i, 2i + 1) */
    enum sl_gating gating; /* of the router, where the file gives no expert_gating_func */
    bool normalize;       /* expert weights sum to 1, where the file gives no expert_weights_norm */
    bool has_scales;      /* Granite's embedding, residual, attention and logit scales */
    bool needs_qk_norm;   /* every layer must have attn_q_norm and attn_k_norm */
    bool needs_shared;    /* every MoE layer must have a gated shared expert */
    bool gated_attention; /* attn_q holds, head by head, a query and a gate of the output */
    bool has_deltanet;    /* layers with ssm_* tensors are gated DeltaNet */
    enum sl_delta_heads delta_heads;
    const char *ffn_norm; /* the norm before the feed-forward network; NULL: ffn_norm.weight */
};

/* NULL for a family this build does not know. */
const struct sl_arch *sl_arch_find(struct sl_str name);

/* The index-th row; NULL past the last. */
const struct sl_arch *sl_arch_at(uint32_t index);

#endif
