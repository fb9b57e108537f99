/* The table of architectures. Each row states what its reference implementation does (Hugging Face
 * transformers, model class in the comment); the golden tests hold a case for every row but qwen2,
 * which is qwen2moe without experts. */
#include "engine/arch.h"

static const struct sl_arch archs[] = {
    /* LlamaForCausalLM; MistralForCausalLM; with experts MixtralForCausalLM: softmax over the
     * chosen two, which is softmax over all, normalized. GGUF files hold q and k permuted for
     * pairs. */
    {.name = "llama", .rope_neox = false, .gating = SL_GATING_SOFTMAX, .normalize = true},
    /* Qwen2ForCausalLM */
    {.name = "qwen2", .rope_neox = true, .gating = SL_GATING_SOFTMAX, .normalize = true},
    /* Qwen3ForCausalLM */
    {.name = "qwen3",
     .rope_neox = true,
     .gating = SL_GATING_SOFTMAX,
     .normalize = true,
     .needs_qk_norm = true},
    /* Qwen2MoeForCausalLM: norm_topk_prob false, sigmoid-gated shared expert */
    {.name = "qwen2moe",
     .rope_neox = true,
     .gating = SL_GATING_SOFTMAX,
     .normalize = false,
     .needs_shared = true},
    /* Qwen3MoeForCausalLM: norm_topk_prob true */
    {.name = "qwen3moe",
     .rope_neox = true,
     .gating = SL_GATING_SOFTMAX,
     .normalize = true,
     .needs_qk_norm = true},
    /* OlmoeForCausalLM: norm_topk_prob false, q and k normalized over the whole row */
    {.name = "olmoe",
     .rope_neox = true,
     .gating = SL_GATING_SOFTMAX,
     .normalize = false,
     .needs_qk_norm = true},
    /* GraniteMoeForCausalLM, GraniteMoeSharedForCausalLM: top-k, then softmax of the chosen */
    {.name = "granitemoe",
     .rope_neox = false,
     .gating = SL_GATING_SOFTMAX,
     .normalize = true,
     .has_scales = true},
    /* Qwen3NextForCausalLM: norm_topk_prob true. Files hold the norms as they multiply, 1 + w */
    {.name = "qwen3next",
     .rope_neox = true,
     .gating = SL_GATING_SOFTMAX,
     .normalize = true,
     .needs_qk_norm = true,
     .needs_shared = true,
     .gated_attention = true,
     .has_deltanet = true,
     .delta_heads = SL_DELTA_SIDE_BY_SIDE,
     .ffn_norm = "post_attention_norm.weight"},
    /* Qwen3_5MoeForCausalLM, whose text model is the same but for the order of value heads in
     * files. RoPE sections are for pictures: positions of text are equal in all of them */
    {.name = "qwen35moe",
     .rope_neox = true,
     .gating = SL_GATING_SOFTMAX,
     .normalize = true,
     .needs_qk_norm = true,
     .needs_shared = true,
     .gated_attention = true,
     .has_deltanet = true,
     .delta_heads = SL_DELTA_ROUNDS,
     .ffn_norm = "post_attention_norm.weight"},
};

const struct sl_arch *sl_arch_find(struct sl_str name)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(archs); i++)
        if (sl_str_eq(name, archs[i].name)) return &archs[i];
    return NULL;
}

const struct sl_arch *sl_arch_at(uint32_t index)
{
    return index < SL_ARRAY_LEN(archs) ? &archs[index] : NULL;
}
