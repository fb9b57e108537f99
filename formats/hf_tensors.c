/* Tensors under their GGUF names; their rows are in hf_rows.c.
 *
 * The way is from GGUF to Hugging Face: for each layer and each rule, the tensor that the rule
 * names is looked up. So the order is one whatever the files' order, a missing expert is found, and
 * what no rule has asked for in the end is an error, or counted as left out. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf_internal.h"

/* In place of a layer's number. */
#define OF_MODEL (-1)
#define OF_FILE (-2) /* the name is not below the model's */

enum how {
    WHOLE,
    ROWS_Q,    /* permuted where the family is, by query heads */
    ROWS_K,    /* by key heads */
    EXPERTS,   /* one tensor an expert; its number stands for the star */
    HALF_GATE, /* the first half of the rows, of each matrix */
    HALF_UP,   /* the second half */
    NORM,      /* of 1 + w in some families */
    A_LOG,     /* minus its exponential, by value heads */
    HEADS,     /* and from here on: this plus one of enum sl_hf_heads */
};

struct rule {
    const char *hf, *gguf;
    int how;
};

static const struct rule layer_rules[] = {
    {"input_layernorm.weight", "attn_norm.weight", NORM},
    {"self_attn.q_proj.weight", "attn_q.weight", ROWS_Q},
    {"self_attn.q_proj.bias", "attn_q.bias", ROWS_Q},
    {"self_attn.k_proj.weight", "attn_k.weight", ROWS_K},
    {"self_attn.k_proj.bias", "attn_k.bias", ROWS_K},
    {"self_attn.v_proj.weight", "attn_v.weight", WHOLE},
    {"self_attn.v_proj.bias", "attn_v.bias", WHOLE},
    {"self_attn.o_proj.weight", "attn_output.weight", WHOLE},
    {"self_attn.o_proj.bias", "attn_output.bias", WHOLE},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", NORM},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", NORM},
    {"mlp.gate_proj.weight", "ffn_gate.weight", WHOLE},
    {"mlp.up_proj.weight", "ffn_up.weight", WHOLE},
    {"mlp.down_proj.weight", "ffn_down.weight", WHOLE},
    {"mlp.gate.weight", "ffn_gate_inp.weight", WHOLE},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", HALF_GATE},
    {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", HALF_UP},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", WHOLE},
    {"mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight", EXPERTS},
    {"mlp.experts.*.up_proj.weight", "ffn_up_exps.weight", EXPERTS},
    {"mlp.experts.*.down_proj.weight", "ffn_down_exps.weight", EXPERTS},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", WHOLE},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", WHOLE},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", WHOLE},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", WHOLE},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", WHOLE},
    {"block_sparse_moe.experts.*.w1.weight", "ffn_gate_exps.weight", EXPERTS},
    {"block_sparse_moe.experts.*.w3.weight", "ffn_up_exps.weight", EXPERTS},
    {"block_sparse_moe.experts.*.w2.weight", "ffn_down_exps.weight", EXPERTS},
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", WHOLE},
    {"block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", HALF_GATE},
    {"block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", HALF_UP},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", WHOLE},
    {"shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", HALF_GATE},
    {"shared_mlp.input_linear.weight", "ffn_up_shexp.weight", HALF_UP},
    {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight", WHOLE},
};

static const struct rule plain_rules[] = {
    {"post_attention_layernorm.weight", "ffn_norm.weight", WHOLE},
};

/* In place of the last: layers of gated DeltaNet, and what their models call the second norm. */
static const struct rule deltanet_rules[] = {
    {"linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", HEADS + SL_HF_JOINT_QKV},
    {"linear_attn.in_proj_qkvz.weight", "attn_gate.weight", HEADS + SL_HF_JOINT_GATE},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", HEADS + SL_HF_HEADS_QKV},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", HEADS + SL_HF_HEADS_ROWS},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", HEADS + SL_HF_HEADS_QKV},
    {"linear_attn.dt_bias", "ssm_dt.bias", HEADS + SL_HF_HEADS_ONE},
    {"linear_attn.A_log", "ssm_a", A_LOG},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight", WHOLE},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", HEADS + SL_HF_HEADS_ONE},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", HEADS + SL_HF_HEADS_ONE},
    {"linear_attn.norm.weight", "ssm_norm.weight", WHOLE},
    {"linear_attn.out_proj.weight", "ssm_out.weight", HEADS + SL_HF_HEADS_COLS},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", NORM},
};

static const struct rule model_rules[] = {
    {"embed_tokens.weight", "token_embd.weight", WHOLE},
    {"norm.weight", "output_norm.weight", NORM},
};

static const struct rule output_rule = {"lm_head.weight", "output.weight", WHOLE};

struct mapping {
    struct sl_hf *hf;
    unsigned char *used; /* [tensors of the safetensors] */
    uint32_t n_experts, n_heads, n_kv_heads;
    sluice_error *e;
};

/* ---- names ----------------------------------------------------------------------------------- */

sluice_err sl_hf_fail_tensor(const struct sl_hf *hf, struct sl_str name, sluice_error *e,
                             sluice_err code, const char *what)
{
    char shown[SL_GG_SHOW_MAX];

    return sl_hf_fail(hf, "", e, code, "tensor '%s' %s", sl_str_show(name, shown, sizeof shown),
                      what);
}

static sluice_err fail_tensor(const struct mapping *m, const struct sl_st_tensor *t,
                              sluice_err code, const char *what)
{
    return sl_hf_fail_tensor(m->hf, t->name, m->e, code, what);
}

/* The tensor that a rule names in layer (or OF_MODEL, OF_FILE) for expert, or NULL; marks it as
 * used. */
static const struct sl_st_tensor *find(struct mapping *m, const char *hf_name, int layer,
                                       uint32_t expert)
{
    const char *star = strchr(hf_name, '*');
    int head = star != NULL ? (int)(star - hf_name) : (int)strlen(hf_name);
    char prefix[48] = "", number[16] = "", name[SL_NAME_MAX + 1];
    const char *model = m->hf->family->nested ? "model.language_model." : "model.";
    const struct sl_st_tensor *t;

    if (layer >= 0) snprintf(prefix, sizeof prefix, "%slayers.%d.", model, layer);
    if (layer == OF_MODEL) snprintf(prefix, sizeof prefix, "%s", model);
    if (star != NULL) snprintf(number, sizeof number, "%" PRIu32, expert);
    int n = snprintf(name, sizeof name, "%s%.*s%s%s", prefix, head, hf_name, number,
                     star != NULL ? star + 1 : "");
    SLUICE_ASSERT(n > 0 && (size_t)n < sizeof name);
    t = sl_st_find(m->hf->st, (struct sl_str){name, (size_t)n});
    if (t == NULL) return NULL;
    m->used[t - sl_st_tensor(m->hf->st, 0)] = 1;
    if (t->scale != SL_ST_NONE) m->used[t->scale] = 1;
    return t;
}

static sluice_err set_name(struct mapping *m, struct sl_hf_tensor *t, const char *gguf, int layer)
{
    char *name = sl_arena_alloc(&m->hf->arena, strlen(gguf) + 16, 1);
    int n;

    if (name == NULL) return sl_hf_no_memory(m->hf, strlen(gguf) + 16, m->e);
    n = layer >= 0 ? snprintf(name, strlen(gguf) + 16, "blk.%d.%s", layer, gguf)
                   : snprintf(name, strlen(gguf) + 1, "%s", gguf);
    t->name = (struct sl_str){name, (size_t)n};
    return SLUICE_OK;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* Shape and type of a source, its dimensions the other way round. */
static sluice_err set_shape(const struct mapping *m, const struct sl_st_tensor *s,
                            struct sl_hf_tensor *t)
{
    if (!sl_st_readable(s))
        return fail_tensor(m, s, SLUICE_E_UNSUPPORTED, "is not of a type that weights are read of");
    if (s->n_dims < 1 || s->n_dims > 3 || s->bytes == 0)
        return fail_tensor(m, s, SLUICE_E_FORMAT, "is empty, or has not 1 to 3 dimensions");
    t->dtype = s->dtype;
    t->n_dims = s->n_dims;
    for (uint32_t i = 0; i < 4; i++) t->dims[i] = i < s->n_dims ? s->dims[s->n_dims - 1 - i] : 1;
    t->source.step_rows = t->dims[1];
    return SLUICE_OK;
}

static sluice_err set_permutation(const struct mapping *m, const struct sl_st_tensor *s,
                                  struct sl_hf_tensor *t, uint32_t heads)
{
    uint64_t rows = s->n_dims == 1 ? t->dims[0] : t->dims[1];

    if (!m->hf->family->permuted) return SLUICE_OK;
    if (s->n_dims > 2 || rows % heads != 0 || rows / heads % 2 != 0 ||
        rows / heads > SL_HEAD_DIM_MAX)
        return fail_tensor(m, s, SLUICE_E_FORMAT, "does not divide into the heads of config.json");
    t->source.heads = heads;
    return SLUICE_OK;
}

static sluice_err set_half(const struct mapping *m, const struct sl_st_tensor *s,
                           struct sl_hf_tensor *t, bool second)
{
    if (s->n_dims < 2 || t->dims[1] % 2 != 0)
        return fail_tensor(m, s, SLUICE_E_FORMAT, "does not divide into gate and up");
    t->dims[1] /= 2;
    t->source.first_row = second ? t->dims[1] : 0;
    return SLUICE_OK;
}

/* All experts of one rule, the first of which is s, as one tensor. */
static sluice_err set_experts(struct mapping *m, const struct rule *r, int layer,
                              const struct sl_st_tensor *s, struct sl_hf_tensor *t)
{
    uint32_t *parts;

    if (m->n_experts == 0)
        return fail_tensor(m, s, SLUICE_E_FORMAT, "is an expert's, but config.json names none");
    parts = sl_arena_alloc(&m->hf->arena, m->n_experts, sizeof *parts);
    if (parts == NULL) return sl_hf_no_memory(m->hf, 4 * (uint64_t)m->n_experts, m->e);
    if (s->n_dims != 2) return fail_tensor(m, s, SLUICE_E_FORMAT, "is no matrix");
    for (uint32_t x = 0; x < m->n_experts; x++) {
        const struct sl_st_tensor *part = find(m, r->hf, layer, x);

        if (part == NULL)
            return sl_hf_fail(m->hf, "", m->e, SLUICE_E_FORMAT,
                              "layer %d has no expert %" PRIu32 " of %" PRIu32 " (tensor %s)",
                              layer, x, m->n_experts, r->hf);
        if (part->n_dims != 2 || part->rows != s->rows || part->cols != s->cols ||
            part->dtype != s->dtype)
            return fail_tensor(m, part, SLUICE_E_FORMAT,
                               "is not of the shape and type of the layer's first expert");
        parts[x] = (uint32_t)(part - sl_st_tensor(m->hf->st, 0));
    }
    t->n_dims = 3;
    t->dims[2] = m->n_experts;
    t->source.parts = parts;
    t->source.n_parts = m->n_experts;
    return SLUICE_OK;
}

static enum sl_hf_value value_of(const struct mapping *m, const struct rule *r)
{
    if (r->how == A_LOG) return SL_HF_MINUS_EXP;
    return r->how == NORM && m->hf->family->deltanet ? SL_HF_PLUS_ONE : SL_HF_AS_IS;
}

static sluice_err set_source(struct mapping *m, const struct rule *r, int layer,
                             const struct sl_st_tensor *s, struct sl_hf_tensor *t)
{
    uint32_t *part;

    SL_HF_TRY(set_shape(m, s, t));
    if (r->how == EXPERTS) return set_experts(m, r, layer, s, t);
    part = sl_arena_alloc(&m->hf->arena, 1, sizeof *part);
    if (part == NULL) return sl_hf_no_memory(m->hf, sizeof *part, m->e);
    *part = (uint32_t)(s - sl_st_tensor(m->hf->st, 0));
    t->source.parts = part;
    t->source.n_parts = 1;
    t->source.value = value_of(m, r);
    if (t->source.value != SL_HF_AS_IS) t->dtype = SL_ST_F32; /* what holds the result */
    if (r->how >= HEADS)
        return sl_hf_order_heads(m->hf, (enum sl_hf_heads)(r->how - HEADS), s, t, m->e);
    switch (r->how) {
    case A_LOG:
        return sl_hf_order_heads(m->hf, SL_HF_HEADS_ONE, s, t, m->e);
    case ROWS_Q:
        return set_permutation(m, s, t, m->n_heads);
    case ROWS_K:
        return set_permutation(m, s, t, m->n_kv_heads);
    case HALF_GATE:
    case HALF_UP:
        return set_half(m, s, t, r->how == HALF_UP);
    default:
        return SLUICE_OK;
    }
}

static sluice_err append(struct mapping *m, const struct sl_hf_tensor *t)
{
    struct sl_hf *hf = m->hf;
    sluice_err err = sl_grow(hf->budget, &hf->tensors, &hf->tensors_capacity, hf->n_tensors + 1,
                             sizeof *hf->tensors);

    if (err != SLUICE_OK)
        return sl_hf_no_memory(hf, (hf->n_tensors + 1) * (uint64_t)sizeof *t, m->e);
    hf->tensors[hf->n_tensors++] = *t;
    return SLUICE_OK;
}

/* Adds what the rule names, if it is there. */
static sluice_err apply(struct mapping *m, const struct rule *r, int layer)
{
    const struct sl_st_tensor *s = find(m, r->hf, layer, 0);
    struct sl_hf_tensor t = {.n_dims = 0};

    if (s == NULL) return SLUICE_OK;
    SL_HF_TRY(set_name(m, &t, r->gguf, layer));
    SL_HF_TRY(set_source(m, r, layer, s, &t));
    return append(m, &t);
}

/* The divisors of RoPE's frequencies, which stand in no file. */
static sluice_err add_rope_factors(struct mapping *m)
{
    struct sl_hf *hf = m->hf;
    struct sl_hf_tensor t = {.n_dims = 1, .dims = {hf->n_rope_factors, 1, 1, 1}};

    if (hf->rope_factors == NULL) return SLUICE_OK;
    SL_HF_TRY(set_name(m, &t, "rope_freqs.weight", -1));
    t.dtype = SL_ST_F32;
    t.source.values = hf->rope_factors;
    return append(m, &t);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static sluice_err find_output(struct mapping *m)
{
    const struct sl_hf_object whole = {m->hf, "config.json", sl_json_root(m->hf->config), m->e};
    const struct sl_hf_object text = {m->hf, "config.json", m->hf->text, m->e};
    bool tied = false;

    SL_HF_TRY(sl_hf_bool(&text, "tie_word_embeddings", &tied));
    SL_HF_TRY(sl_hf_bool(&whole, "tie_word_embeddings", &tied));
    if (find(m, output_rule.hf, OF_FILE, 0) == NULL && !tied)
        return sl_hf_fail(m->hf, "", m->e, SLUICE_E_FORMAT,
                          "there is no tensor 'lm_head.weight', and config.json does not say that "
                          "the embedding serves as output (tie_word_embeddings)");
    /* Where it is tied, a copy may lie in the files, but the model uses the embedding. */
    return tied ? SLUICE_OK : apply(m, &output_rule, OF_FILE);
}

/* Whether a tensor belongs to what is not computed and not needed for it; counts it. */
static bool leave_out(const struct mapping *m, const struct sl_st_tensor *t)
{
    static const struct {
        const char *prefix;
        enum sl_hf_extra extra;
    } extras[] = {
        {"mtp.", SL_HF_PREDICTION},
        {"model.mtp.", SL_HF_PREDICTION},
        {"model.visual.", SL_HF_VISION},
    };
    const struct sl_hf_family *f = m->hf->family;

    for (size_t i = 0; i < SL_ARRAY_LEN(extras); i++) {
        bool known = extras[i].extra == SL_HF_VISION ? f->nested : f->deltanet;

        if (!known || !sl_str_starts(t->name, extras[i].prefix)) continue;
        m->hf->left_out[extras[i].extra].n++;
        m->hf->left_out[extras[i].extra].bytes += t->bytes;
        return true;
    }
    return false;
}

static sluice_err check_used(const struct mapping *m)
{
    for (uint32_t i = 0; i < sl_st_n_tensors(m->hf->st); i++) {
        const struct sl_st_tensor *t = sl_st_tensor(m->hf->st, i);
        bool derived = sl_str_ends(t->name, ".rotary_emb.inv_freq"); /* from rope_theta */

        if (!m->used[i] && !derived && !leave_out(m, t))
            return fail_tensor(m, t, SLUICE_E_UNSUPPORTED,
                               "has no place in the model as this version computes it; the "
                               "answers would be wrong without it");
    }
    return SLUICE_OK;
}

/* Two spellings of one tensor in the same folder would each be right. */
static sluice_err check_names(const struct mapping *m)
{
    const struct sl_hf *hf = m->hf;
    struct sl_gg_index index = {NULL, 0};
    uint32_t bad = 0;
    sluice_err err = sl_gg_index_build(&index, hf->budget, hf->tensors, hf->n_tensors,
                                       sizeof *hf->tensors, &bad);

    sl_gg_index_deinit(&index);
    if (err == SLUICE_OK) return err;
    if (err == SLUICE_E_NOMEM) return sl_hf_no_memory(hf, 8 * (uint64_t)hf->n_tensors, m->e);
    SLUICE_ASSERT(bad < hf->n_tensors); /* the names are ours: they do not collide */
    return sl_hf_fail(hf, "", m->e, err, "two tensors both stand for %s", hf->tensors[bad].name.p);
}

static sluice_err map_layer(struct mapping *m, int layer)
{
    bool deltanet = m->hf->family->deltanet;
    const struct rule *more = deltanet ? deltanet_rules : plain_rules;
    size_t n = deltanet ? SL_ARRAY_LEN(deltanet_rules) : SL_ARRAY_LEN(plain_rules);

    for (size_t i = 0; i < SL_ARRAY_LEN(layer_rules); i++)
        SL_HF_TRY(apply(m, &layer_rules[i], layer));
    for (size_t i = 0; i < n; i++) SL_HF_TRY(apply(m, &more[i], layer));
    return SLUICE_OK;
}

static sluice_err map_all(struct mapping *m)
{
    uint32_t n_layers = sl_hf_arch_u32(m->hf, "block_count", 0);

    if (n_layers > SL_LAYERS_MAX || m->n_experts > SL_EXPERTS_MAX)
        return sl_hf_fail(m->hf, "config.json", m->e, SLUICE_E_LIMIT,
                          "%" PRIu32 " layers of %" PRIu32 " experts; the limits are %d and %d",
                          n_layers, m->n_experts, SL_LAYERS_MAX, SL_EXPERTS_MAX);
    SL_HF_TRY(apply(m, &model_rules[0], OF_MODEL));
    SL_HF_TRY(apply(m, &model_rules[1], OF_MODEL));
    SL_HF_TRY(find_output(m));
    SL_HF_TRY(add_rope_factors(m));
    for (uint32_t l = 0; l < n_layers; l++) SL_HF_TRY(map_layer(m, (int)l));
    SL_HF_TRY(check_used(m));
    return check_names(m);
}

sluice_err sl_hf_make_tensors(struct sl_hf *hf, sluice_error *e)
{
    struct mapping m = {.hf = hf, .e = e};

    m.n_experts = sl_hf_arch_u32(hf, "expert_count", 0);
    m.n_heads = sl_hf_arch_u32(hf, "attention.head_count", 1);
    m.n_kv_heads = sl_hf_arch_u32(hf, "attention.head_count_kv", m.n_heads);
    m.used = sl_alloc(hf->budget, sl_st_n_tensors(hf->st), 1);
    if (m.used == NULL) return sl_hf_no_memory(hf, sl_st_n_tensors(hf->st), e);
    sluice_err err = map_all(&m);
    sl_free(m.used);
    return err;
}
