/* Architectures as data. A family is a row of this table: what a GGUF file does not say and every
 * engine must therefore know (pairing of RoPE, how router scores become weights). Layer kinds are
 * told from the tensors that are there, so that a new family needs a row, not a forward pass.
 * Thread: pure. */
#ifndef SL_ARCH_H
#define SL_ARCH_H

#include "base/base.h"
#include "router/router.h"

struct sl_arch {
    const char *name;      /* general.architecture */
    bool rope_neox;        /* pairs (i, i + n_rot/2); otherwise (2i, 2i + 1) */
    enum sl_gating gating; /* of the router, where the file gives no expert_gating_func */
    bool normalize;     /* expert weights sum to 1, where the file gives no expert_weights_norm */
    bool has_scales;    /* Granite's embedding, residual, attention and logit scales */
    bool needs_qk_norm; /* every layer must have attn_q_norm and attn_k_norm */
    bool needs_shared;  /* every MoE layer must have a gated shared expert */
};

/* NULL for a family this build does not know. */
const struct sl_arch *sl_arch_find(struct sl_str name);

/* The index-th row; NULL past the last. */
const struct sl_arch *sl_arch_at(uint32_t index);

#endif
