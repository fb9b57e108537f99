/* config.json and generation_config.json as GGUF keys. Tables say which member becomes which key;
 * code is only for what needs a decision: RoPE and its scaling, what is refused, and where a reader
 * of GGUF would otherwise assume something else than the config says. */
#include <stdio.h>
#include <string.h>

#include "formats/hf_internal.h"

/* The config, and where keys go. */
struct making {
    struct sl_hf *hf;
    struct sl_hf_object config;
    sluice_error *e;
};

static sluice_err refuse(const struct making *m, const char *what, const char *shown)
{
    return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_UNSUPPORTED,
                      "%s%s, which this version does not compute", what, shown);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A new key, whose name is prefix.suffix. */
static sluice_err new_key(struct making *m, const char *prefix, const char *suffix,
                          struct sl_hf_key **out)
{
    struct sl_hf *hf = m->hf;
    size_t n = strlen(prefix) + 1 + strlen(suffix);
    char *name = sl_arena_alloc(&hf->arena, n + 1, 1);

    if (name == NULL) return sl_hf_no_memory(hf, n + 1, m->e);
    SLUICE_ASSERT(hf->n_keys < SL_HF_KEYS_MAX);
    snprintf(name, n + 1, "%s.%s", prefix, suffix);
    *out = &hf->keys[hf->n_keys++];
    (*out)->name = (struct sl_str){name, n};
    return SLUICE_OK;
}

static sluice_err add_u32(struct making *m, const char *suffix, uint32_t v)
{
    struct sl_hf_key *k = NULL;

    SL_HF_TRY(new_key(m, m->hf->family->arch, suffix, &k));
    k->kind = SL_GGUF_U32;
    k->u32 = v;
    return SLUICE_OK;
}

sluice_err sl_hf_add_u32(struct sl_hf *hf, const char *suffix, uint32_t v, sluice_error *e)
{
    struct making m = {.hf = hf, .e = e};

    return add_u32(&m, suffix, v);
}

sluice_err sl_hf_add_list(struct sl_hf *hf, const char *suffix, struct sl_hf_list list,
                          sluice_error *e)
{
    struct making m = {.hf = hf, .e = e};
    struct sl_hf_key *k = NULL;

    SL_HF_TRY(new_key(&m, hf->family->arch, suffix, &k));
    k->kind = SL_GGUF_ARRAY;
    k->list = list;
    return SLUICE_OK;
}

static sluice_err add_f32(struct making *m, const char *prefix, const char *suffix, double v)
{
    struct sl_hf_key *k = NULL;

    SL_HF_TRY(new_key(m, prefix, suffix, &k));
    k->kind = SL_GGUF_F32;
    k->f32 = (float)v;
    return SLUICE_OK;
}

static sluice_err add_str(struct making *m, const char *prefix, const char *suffix, const char *v)
{
    struct sl_hf_key *k = NULL;

    SL_HF_TRY(new_key(m, prefix, suffix, &k));
    k->kind = SL_GGUF_STRING;
    k->str = (struct sl_str){v, strlen(v)};
    return SLUICE_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

struct number {
    const char *member, *suffix;
    bool required;
};

static const struct number numbers[] = {
    {"num_hidden_layers", "block_count", true},
    {"max_position_embeddings", "context_length", true},
    {"hidden_size", "embedding_length", true},
    {"intermediate_size", "feed_forward_length", false},
    {"num_attention_heads", "attention.head_count", true},
    {"num_key_value_heads", "attention.head_count_kv", false},
    {"num_local_experts", "expert_count", false},
    {"num_experts", "expert_count", false},
    {"num_experts_per_tok", "expert_used_count", false},
    {"moe_intermediate_size", "expert_feed_forward_length", false},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", false},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", false},
};

static sluice_err add_numbers(struct making *m)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(numbers); i++) {
        const struct number *n = &numbers[i];
        uint32_t v = 0;

        SL_HF_TRY(sl_hf_u32(&m->config, n->member, &v));
        if (v == 0 && n->required)
            return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                              "'%s' is absent or 0, wanted a whole number above 0", n->member);
        if (v == 0 || sl_hf_arch_u32(m->hf, n->suffix, 0) == v) continue;
        if (sl_hf_arch_u32(m->hf, n->suffix, 0) != 0)
            return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                              "'%s' is %u, but another member says %u", n->member, v,
                              sl_hf_arch_u32(m->hf, n->suffix, 0));
        SL_HF_TRY(add_u32(m, n->suffix, v));
    }
    bool experts = sl_hf_arch_u32(m->hf, "expert_count", 0) > 0;
    if (m->hf->family->moe && (!experts || sl_hf_arch_u32(m->hf, "expert_used_count", 0) == 0))
        return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                          "num_experts (or num_local_experts) or num_experts_per_tok is missing");
    return SLUICE_OK;
}

/* Sizes of heads, and the two keys that the llama family has besides. */
static sluice_err add_heads(struct making *m)
{
    const struct sl_hf_family *f = m->hf->family;
    uint32_t n_heads = sl_hf_arch_u32(m->hf, "attention.head_count", 1);
    uint32_t head_dim = sl_hf_arch_u32(m->hf, "embedding_length", 0) / n_heads;
    uint32_t given = f->deltanet ? 256 : 0; /* the default of the config's class */
    uint32_t vocab_size = 0;

    if (!f->granite) SL_HF_TRY(sl_hf_u32(&m->config, "head_dim", &given));
    if (given > 0) {
        head_dim = given;
        SL_HF_TRY(add_u32(m, "attention.key_length", given));
        SL_HF_TRY(add_u32(m, "attention.value_length", given));
    }
    if (!f->llama_keys) return SLUICE_OK;
    SL_HF_TRY(sl_hf_u32(&m->config, "vocab_size", &vocab_size));
    if (vocab_size > 0) SL_HF_TRY(add_u32(m, "vocab_size", vocab_size));
    return add_u32(m, "rope.dimension_count", head_dim);
}

/* Granite's multipliers; 1 where the config is silent, which readers of GGUF do not assume. */
static sluice_err add_multipliers(struct making *m)
{
    static const char *const pairs[][2] = {
        {"attention_multiplier", "attention.scale"},
        {"embedding_multiplier", "embedding_scale"},
        {"residual_multiplier", "residual_scale"},
        {"logits_scaling", "logit_scale"},
    };

    if (!m->hf->family->granite) return SLUICE_OK;
    for (size_t i = 0; i < SL_ARRAY_LEN(pairs); i++) {
        double v = 1.0;

        SL_HF_TRY(sl_hf_f64(&m->config, pairs[i][0], &v));
        if (!(v > 0.0))
            return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                              "'%s' is %g, wanted a number above 0", pairs[i][0], v);
        SL_HF_TRY(add_f32(m, m->hf->family->arch, pairs[i][1], v));
    }
    return SLUICE_OK;
}

/* ---- RoPE ------------------------------------------------------------------------------------ */

/* Members of rope_parameters (or rope_scaling) that are understood here. */
static const char *const rope_members[] = {"rope_theta",
                                           "rope_type",
                                           "type",
                                           "factor",
                                           "original_max_position_embeddings",
                                           "beta_fast",
                                           "beta_slow",
                                           "extrapolation_factor",
                                           "partial_rotary_factor",
                                           "low_freq_factor",
                                           "high_freq_factor"};
/* Of models that also see; in text all positions are one. */
static const char *const mrope_members[] = {"mrope_section", "mrope_interleaved"};

static sluice_err check_rope_members(struct making *m, const struct sl_hf_object *rope)
{
    struct sl_json_walk w = sl_json_walk(rope->value);
    char shown[SL_GG_SHOW_MAX];
    double part = 1.0;

    while (sl_json_step(&w)) {
        bool known = sl_json_kind_of(w.value) == SL_JSON_NULL;

        for (size_t i = 0; i < SL_ARRAY_LEN(rope_members); i++)
            known = known || sl_str_eq(w.key, rope_members[i]);
        for (size_t i = 0; i < SL_ARRAY_LEN(mrope_members) && m->hf->family->mrope; i++)
            known = known || sl_str_eq(w.key, mrope_members[i]);
        if (!known)
            return refuse(m, "RoPE has the parameter ", sl_str_show(w.key, shown, sizeof shown));
    }
    if (m->hf->family->deltanet) return SLUICE_OK;
    SL_HF_TRY(sl_hf_f64(rope, "partial_rotary_factor", &part));
    SL_HF_TRY(sl_hf_f64(&m->config, "partial_rotary_factor", &part));
    return part == 1.0 ? SLUICE_OK : refuse(m, "RoPE turns a part of each head", "");
}

/* A factor with its type; the converter writes them only together. */
static sluice_err add_factor(struct making *m, const struct sl_hf_object *rope, const char *type)
{
    double factor = 0.0;

    SL_HF_TRY(sl_hf_f64(rope, "factor", &factor));
    if (!(factor > 0.0))
        return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                          "RoPE scaling '%s' has no 'factor' above 0", type);
    SL_HF_TRY(add_str(m, m->hf->family->arch, "rope.scaling.type", type));
    return add_f32(m, m->hf->family->arch, "rope.scaling.factor", factor);
}

static sluice_err add_yarn(struct making *m, const struct sl_hf_object *rope)
{
    static const char *const optional[][2] = {
        {"extrapolation_factor", "rope.scaling.yarn_ext_factor"},
        {"beta_fast", "rope.scaling.yarn_beta_fast"},
        {"beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    const char *original = "original_max_position_embeddings";
    uint32_t context = 0;

    SL_HF_TRY(add_factor(m, rope, "yarn"));
    SL_HF_TRY(sl_hf_u32(&m->config, original, &context));
    SL_HF_TRY(sl_hf_u32(rope, original, &context));
    if (context == 0)
        return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                          "RoPE scaling 'yarn' has no '%s' above 0", original);
    SL_HF_TRY(add_u32(m, "rope.scaling.original_context_length", context));
    for (size_t i = 0; i < SL_ARRAY_LEN(optional); i++) {
        double v = 0.0;

        if (!sl_hf_has(rope, optional[i][0])) continue;
        SL_HF_TRY(sl_hf_f64(rope, optional[i][0], &v));
        SL_HF_TRY(add_f32(m, m->hf->family->arch, optional[i][1], v));
    }
    return SLUICE_OK;
}

static sluice_err add_rope(struct making *m)
{
    struct sl_hf_object rope = m->config;
    struct sl_str type = SL_STR("default");
    double theta = m->hf->family->rope_theta;
    char shown[SL_GG_SHOW_MAX];

    rope.value = sl_json_get(m->config.value, "rope_parameters");
    if (sl_json_kind_of(rope.value) <= SL_JSON_NULL)
        rope.value = sl_json_get(m->config.value, "rope_scaling");
    if (sl_json_kind_of(rope.value) > SL_JSON_NULL && sl_json_kind_of(rope.value) != SL_JSON_OBJECT)
        return sl_hf_fail(m->hf, m->config.file, m->e, SLUICE_E_FORMAT,
                          "rope_parameters or rope_scaling is no object");
    SL_HF_TRY(sl_hf_f64(&m->config, "rope_theta", &theta));
    SL_HF_TRY(sl_hf_f64(&rope, "rope_theta", &theta));
    SL_HF_TRY(sl_hf_str(&rope, "type", &type));
    SL_HF_TRY(sl_hf_str(&rope, "rope_type", &type));
    if (sl_str_eq(type, "linear"))
        SL_HF_TRY(add_factor(m, &rope, "linear"));
    else if (sl_str_eq(type, "yarn"))
        SL_HF_TRY(add_yarn(m, &rope));
    else if (sl_str_eq(type, "llama3") && m->hf->family->llama_keys)
        SL_HF_TRY(sl_hf_rope_factors(m->hf, &rope, theta));
    else if (!sl_str_eq(type, "default"))
        return refuse(m, "RoPE has the scaling ", sl_str_show(type, shown, sizeof shown));
    SL_HF_TRY(check_rope_members(m, &rope));
    if (m->hf->family->deltanet) SL_HF_TRY(sl_hf_deltanet_keys(m->hf, &m->config, &rope));
    return add_f32(m, m->hf->family->arch, "rope.freq_base", theta);
}

/* ---- what else changes the result ------------------------------------------------------------ */

static sluice_err check_activation(struct making *m)
{
    struct sl_str act = SL_STR("silu");
    char shown[SL_GG_SHOW_MAX];

    SL_HF_TRY(sl_hf_str(&m->config, "hidden_act", &act));
    if (sl_str_eq(act, "silu")) return SLUICE_OK;
    return refuse(m, "the activation is ", sl_str_show(act, shown, sizeof shown));
}

static sluice_err add_bool(struct making *m, const char *suffix, bool v)
{
    struct sl_hf_key *k = NULL;

    SL_HF_TRY(new_key(m, m->hf->family->arch, suffix, &k));
    k->kind = SL_GGUF_BOOL;
    k->flag = v;
    return SLUICE_OK;
}

/* Keys that the converter leaves out although they matter where they are set. */
static sluice_err add_departures(struct making *m)
{
    const struct sl_hf_family *f = m->hf->family;
    bool norm = f->norm_topk, windowed = true;
    uint32_t window = 0;
    double clamp = 0.0;

    SL_HF_TRY(sl_hf_bool(&m->config, "norm_topk_prob", &norm));
    if (f->moe && norm != f->norm_topk_reader) SL_HF_TRY(add_bool(m, "expert_weights_norm", norm));
    SL_HF_TRY(sl_hf_f64(&m->config, "clip_qkv", &clamp));
    if (clamp != 0.0) SL_HF_TRY(add_f32(m, f->arch, "attention.clamp_kqv", clamp));
    SL_HF_TRY(sl_hf_bool(&m->config, "use_sliding_window", &windowed));
    SL_HF_TRY(sl_hf_u32(&m->config, "sliding_window", &window));
    if (windowed && window > 0 && window < sl_hf_arch_u32(m->hf, "context_length", 0))
        return add_u32(m, "attention.sliding_window", window);
    return SLUICE_OK;
}

/* ---- generation_config.json ------------------------------------------------------------------ */

static sluice_err add_sampling(struct making *m)
{
    static const char *const floats[][2] = {
        {"top_p", "top_p"},
        {"min_p", "min_p"},
        {"temperature", "temp"},
        {"repetition_penalty", "penalty_repeat"},
    };
    const struct sl_hf_object g = {m->hf, "generation_config.json", sl_json_root(m->hf->generation),
                                   m->e};
    struct sl_hf_key *k = NULL;
    uint32_t top_k = 0;

    if (sl_hf_has(&g, "top_k")) {
        SL_HF_TRY(sl_hf_u32(&g, "top_k", &top_k));
        SL_HF_TRY(new_key(m, "general.sampling", "top_k", &k));
        k->kind = SL_GGUF_I32;
        k->i32 = (int32_t)(top_k < INT32_MAX ? top_k : INT32_MAX);
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(floats); i++) {
        double v = 0.0;

        if (!sl_hf_has(&g, floats[i][0])) continue;
        SL_HF_TRY(sl_hf_f64(&g, floats[i][0], &v));
        SL_HF_TRY(add_f32(m, "general.sampling", floats[i][1], v));
    }
    return SLUICE_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

sluice_err sl_hf_make_keys(struct sl_hf *hf, sluice_error *e)
{
    struct making m = {hf, {hf, "config.json", hf->text, e}, e};
    double eps = hf->family->norm_eps;

    SL_HF_TRY(add_str(&m, "general", "architecture", hf->family->arch));
    SL_HF_TRY(add_numbers(&m));
    SL_HF_TRY(add_heads(&m));
    SL_HF_TRY(sl_hf_f64(&m.config, "rms_norm_eps", &eps));
    SL_HF_TRY(add_f32(&m, hf->family->arch, "attention.layer_norm_rms_epsilon", eps));
    SL_HF_TRY(add_rope(&m));
    SL_HF_TRY(add_multipliers(&m));
    SL_HF_TRY(check_activation(&m));
    SL_HF_TRY(add_departures(&m));
    return add_sampling(&m);
}

/* "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], ...} */
sluice_err sl_hf_quantization(const struct sl_hf *hf, struct sl_st_block *block, bool *quantized,
                              sluice_error *e)
{
    struct sl_hf_object q = {hf, "config.json", sl_json_root(hf->config), e};
    struct sl_str method = {"", 0};
    uint64_t sizes[2] = {0, 0};
    char shown[SL_GG_SHOW_MAX];

    q.value = sl_json_get(q.value, "quantization_config");
    *quantized = sl_json_kind_of(q.value) > SL_JSON_NULL;
    if (!*quantized) return SLUICE_OK;
    SL_HF_TRY(sl_hf_str(&q, "quant_method", &method));
    struct sl_json_value size = sl_json_get(q.value, "weight_block_size");
    struct sl_json_walk w = sl_json_walk(size);
    bool two = sl_json_count(size) == 2;
    for (int i = 0; two && i < 2; i++)
        two = sl_json_step(&w) && sl_json_u64(w.value, &sizes[i]) && sizes[i] > 0 &&
              sizes[i] <= SL_COLS_MAX;
    if (!sl_str_eq(method, "fp8") || !two)
        return sl_hf_fail(hf, q.file, e, SLUICE_E_UNSUPPORTED,
                          "the checkpoint is quantized already (%s); give the original one, in "
                          "F32, F16, BF16, or F8_E4M3 with block scales",
                          sl_str_show(method, shown, sizeof shown));
    *block = (struct sl_st_block){(uint32_t)sizes[0], (uint32_t)sizes[1]};
    return SLUICE_OK;
}
