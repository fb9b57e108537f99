/* What a folder's config says against what its tensors are, and what it says that this version has
 * no place for. A model that is read with another meaning than it was saved with gives text that
 * only looks like an answer, so each is an error that names the member. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "formats/hf_internal.h"

/* ---- members that change the model ----------------------------------------------------------- */

static sluice_err refuse(const struct sl_hf_object *config, const char *key, const char *what)
{
    return sl_hf_fail(config->hf, config->file, config->e, SLUICE_E_UNSUPPORTED,
                      "'%s' %s, which this version does not compute", key, what);
}

static sluice_err check_layer_types(const struct sl_hf_object *config)
{
    struct sl_json_value types = sl_json_get(config->value, "layer_types");
    struct sl_json_walk w = sl_json_walk(types);
    struct sl_str type = {"", 0};

    if (!sl_hf_has(config, "layer_types") || config->hf->family->deltanet) return SLUICE_OK;
    if (sl_json_kind_of(types) != SL_JSON_ARRAY)
        return refuse(config, "layer_types", "is no list of kinds of layers");
    while (sl_json_step(&w))
        if (!sl_json_str(w.value, &type) || !sl_str_eq(type, "full_attention"))
            return refuse(config, "layer_types", "names layers other than full_attention");
    return SLUICE_OK;
}

/* Both are there where a program has written what it read; they must say the same then. */
static sluice_err check_rope_twice(const struct sl_hf_object *config)
{
    struct sl_hf_object a = *config, b = *config;
    struct sl_str type_a = SL_STR("default"), type_b = SL_STR("default");
    double factor_a = 1.0, factor_b = 1.0;

    if (!sl_hf_has(config, "rope_parameters") || !sl_hf_has(config, "rope_scaling"))
        return SLUICE_OK;
    a.value = sl_json_get(config->value, "rope_parameters");
    b.value = sl_json_get(config->value, "rope_scaling");
    SL_HF_TRY(sl_hf_str(&a, "type", &type_a));
    SL_HF_TRY(sl_hf_str(&a, "rope_type", &type_a));
    SL_HF_TRY(sl_hf_str(&b, "type", &type_b));
    SL_HF_TRY(sl_hf_str(&b, "rope_type", &type_b));
    SL_HF_TRY(sl_hf_f64(&a, "factor", &factor_a));
    SL_HF_TRY(sl_hf_f64(&b, "factor", &factor_b));
    if (sl_json_kind_of(b.value) == SL_JSON_OBJECT && type_a.n == type_b.n &&
        memcmp(type_a.p, type_b.p, type_a.n) == 0 && factor_a == factor_b)
        return SLUICE_OK;
    return refuse(config, "rope_scaling", "says something else than 'rope_parameters'");
}

sluice_err sl_hf_check_config(const struct sl_hf *hf, sluice_error *e)
{
    const struct sl_hf_object config = {hf, "config.json", hf->text, e};
    uint32_t step = 1, used = sl_hf_arch_u32(hf, "expert_used_count", 0);
    uint32_t n_experts = sl_hf_arch_u32(hf, "expert_count", 0);
    struct sl_json_value dense = sl_json_get(config.value, "mlp_only_layers");

    SL_HF_TRY(sl_hf_u32(&config, "decoder_sparse_step", &step));
    if (hf->family->moe && step != 1)
        return refuse(&config, "decoder_sparse_step", "is not 1: some layers have no experts");
    if (hf->family->moe && sl_hf_has(&config, "mlp_only_layers") && sl_json_count(dense) > 0)
        return refuse(&config, "mlp_only_layers", "names layers that have no experts");
    if (used > n_experts)
        return sl_hf_fail(hf, config.file, e, SLUICE_E_FORMAT,
                          "'num_experts_per_tok' is %" PRIu32 ", of %" PRIu32 " experts", used,
                          n_experts);
    SL_HF_TRY(check_layer_types(&config));
    return check_rope_twice(&config);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

enum size {
    HIDDEN,
    QUERIES,
    QUERIES_GATED, /* with a gate a query, where the family has gates */
    KEYS,
    EXPERT_FF,
    DENSE_FF,
    SHARED_FF,
    EXPERTS,
    INNER,       /* value heads of DeltaNet layers */
    VALUE_HEADS, /* how many */
    TAPS,
    SIZES
};

/* The member that is blamed. */
static const char *const members[SIZES] = {
    [HIDDEN] = "hidden_size",
    [QUERIES] = "num_attention_heads",
    [QUERIES_GATED] = "num_attention_heads",
    [KEYS] = "num_key_value_heads",
    [EXPERT_FF] = "moe_intermediate_size",
    [DENSE_FF] = "intermediate_size",
    [SHARED_FF] = "shared_expert_intermediate_size",
    [EXPERTS] = "num_experts",
    [INNER] = "linear_num_value_heads",
    [VALUE_HEADS] = "linear_num_value_heads",
    [TAPS] = "linear_conv_kernel_dim",
};

/* The sizes that dimensions of a tensor have: the first its columns. */
static const struct {
    const char *name;
    int cols, rows; /* enum size; -1: any */
} shapes[] = {
    {"token_embd.weight", HIDDEN, -1},
    {"output.weight", HIDDEN, -1},
    {"output_norm.weight", HIDDEN, -1},
    {"attn_norm.weight", HIDDEN, -1},
    {"attn_q.weight", HIDDEN, QUERIES_GATED},
    {"attn_k.weight", HIDDEN, KEYS},
    {"attn_v.weight", HIDDEN, KEYS},
    {"attn_output.weight", QUERIES, HIDDEN},
    {"attn_qkv.weight", HIDDEN, -1}, /* rows of these were compared when they were put in order */
    {"attn_gate.weight", HIDDEN, INNER},
    {"ssm_alpha.weight", HIDDEN, VALUE_HEADS},
    {"ssm_beta.weight", HIDDEN, VALUE_HEADS},
    {"ssm_ba.weight", HIDDEN, -1},
    {"ssm_conv1d.weight", TAPS, -1},
    {"ssm_out.weight", INNER, HIDDEN},
    {"ffn_norm.weight", HIDDEN, -1},
    {"post_attention_norm.weight", HIDDEN, -1},
    {"ffn_gate_inp.weight", HIDDEN, EXPERTS},
    {"ffn_gate_exps.weight", HIDDEN, EXPERT_FF},
    {"ffn_up_exps.weight", HIDDEN, EXPERT_FF},
    {"ffn_down_exps.weight", EXPERT_FF, HIDDEN},
    {"ffn_gate.weight", HIDDEN, DENSE_FF},
    {"ffn_up.weight", HIDDEN, DENSE_FF},
    {"ffn_down.weight", DENSE_FF, HIDDEN},
    {"ffn_gate_shexp.weight", HIDDEN, SHARED_FF},
    {"ffn_up_shexp.weight", HIDDEN, SHARED_FF},
    {"ffn_down_shexp.weight", SHARED_FF, HIDDEN},
};

/* What the config says; 0: nothing. Families without a size of their own for experts give them that
 * of a dense layer. */
static void read_sizes(const struct sl_hf *hf, uint64_t sizes[SIZES], const char *names[SIZES])
{
    uint64_t hidden = sl_hf_arch_u32(hf, "embedding_length", 0);
    uint64_t heads = sl_hf_arch_u32(hf, "attention.head_count", 1);
    uint64_t kv_heads = sl_hf_arch_u32(hf, "attention.head_count_kv", (uint32_t)heads);
    uint64_t head = sl_hf_arch_u32(hf, "attention.key_length", (uint32_t)(hidden / heads));

    memcpy(names, members, sizeof members);
    sizes[HIDDEN] = hidden;
    sizes[QUERIES] = heads * head;
    sizes[QUERIES_GATED] = (hf->family->deltanet ? 2 : 1) * sizes[QUERIES];
    sizes[KEYS] = kv_heads * head;
    sizes[INNER] = sl_hf_arch_u32(hf, "ssm.inner_size", 0);
    sizes[VALUE_HEADS] = sl_hf_arch_u32(hf, "ssm.time_step_rank", 0);
    sizes[TAPS] = sl_hf_arch_u32(hf, "ssm.conv_kernel", 0);
    sizes[DENSE_FF] = sl_hf_arch_u32(hf, "feed_forward_length", 0);
    sizes[EXPERT_FF] = sl_hf_arch_u32(hf, "expert_feed_forward_length", 0);
    sizes[SHARED_FF] = sl_hf_arch_u32(hf, "expert_shared_feed_forward_length", 0);
    sizes[EXPERTS] = sl_hf_arch_u32(hf, "expert_count", 0);
    if (sizes[EXPERT_FF] > 0) return;
    sizes[EXPERT_FF] = sizes[DENSE_FF];
    names[EXPERT_FF] = members[DENSE_FF];
}

/* The name without the layer in front of it. */
static struct sl_str inner_name(struct sl_str name)
{
    size_t i = 4;

    if (!sl_str_starts(name, "blk.")) return name;
    while (i < name.n && name.p[i] >= '0' && name.p[i] <= '9') i++;
    i += i < name.n;
    return (struct sl_str){name.p + i, name.n - i};
}

static sluice_err check_shape(const struct sl_hf *hf, const struct sl_hf_tensor *t,
                              const uint64_t sizes[SIZES], const char *const names[SIZES],
                              sluice_error *e)
{
    char shown[SL_GG_SHOW_MAX];
    size_t i = 0;

    while (i < SL_ARRAY_LEN(shapes) && !sl_str_eq(inner_name(t->name), shapes[i].name)) i++;
    if (i == SL_ARRAY_LEN(shapes)) return SLUICE_OK;
    const int wanted[2] = {shapes[i].cols, shapes[i].rows};
    for (uint32_t k = 0; k < 2; k++) {
        if (wanted[k] < 0 || sizes[wanted[k]] == 0 || t->dims[k] == sizes[wanted[k]]) continue;
        return sl_hf_fail(hf, "config.json", e, SLUICE_E_FORMAT,
                          "tensor '%s' has %" PRIu64 " %s, and by '%s' it would have %" PRIu64
                          ": these files do not belong together",
                          sl_str_show(t->name, shown, sizeof shown), t->dims[k],
                          k == 0 ? "columns" : "rows", names[wanted[k]], sizes[wanted[k]]);
    }
    return SLUICE_OK;
}

/* ---- what has to be there -------------------------------------------------------------------- */

/* More layers than the config says have been refused: their tensors have no place. */
static sluice_err check_layers(const struct sl_hf *hf, sluice_error *e)
{
    bool seen[SL_LAYERS_MAX] = {false};
    uint32_t n_layers = sl_hf_arch_u32(hf, "block_count", 0), layer;

    for (uint32_t i = 0; i < hf->n_tensors; i++)
        if (sscanf(hf->tensors[i].name.p, "blk.%9" SCNu32 ".", &layer) == 1 && layer < n_layers)
            seen[layer] = true;
    for (layer = 0; layer < n_layers && seen[layer];) layer++;
    if (layer == n_layers) return SLUICE_OK;
    return sl_hf_fail(hf, "config.json", e, SLUICE_E_FORMAT,
                      "'num_hidden_layers' is %" PRIu32 ", and layer %" PRIu32
                      " (from 0) has no tensors",
                      n_layers, layer);
}

/* Layers that have a tensor of that name. */
static uint32_t count(const struct sl_hf *hf, const char *inner)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < hf->n_tensors; i++)
        n += sl_str_eq(inner_name(hf->tensors[i].name), inner);
    return n;
}

static sluice_err check_biases(const struct sl_hf *hf, sluice_error *e)
{
    const struct sl_hf_object config = {hf, "config.json", hf->text, e};
    const char *key = sl_hf_has(&config, "attention_bias") ? "attention_bias" : "qkv_bias";
    uint32_t n_layers = sl_hf_arch_u32(hf, "block_count", 0), n = count(hf, "attn_q.bias");
    bool wanted = hf->family->qkv_bias;

    if (!wanted && !sl_hf_has(&config, key)) return SLUICE_OK;
    SL_HF_TRY(sl_hf_bool(&config, key, &wanted));
    if (n == (wanted ? n_layers : 0)) return SLUICE_OK;
    return sl_hf_fail(hf, config.file, e, SLUICE_E_UNSUPPORTED,
                      "by '%s' queries have %s, and %" PRIu32 " of %" PRIu32
                      " layers have one: these files do not belong together",
                      key, wanted ? "a bias" : "no bias", n, n_layers);
}

sluice_err sl_hf_check_tensors(const struct sl_hf *hf, sluice_error *e)
{
    uint64_t sizes[SIZES];
    const char *names[SIZES];

    SL_HF_TRY(check_layers(hf, e));
    read_sizes(hf, sizes, names);
    for (uint32_t i = 0; i < hf->n_tensors; i++)
        SL_HF_TRY(check_shape(hf, &hf->tensors[i], sizes, names, e));
    return check_biases(hf, e);
}
