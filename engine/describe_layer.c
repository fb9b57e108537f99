/* One layer described: attention, then a dense or a Mixture-of-Experts feed-forward network. Which
 * kinds a layer has is told from its tensors; metadata says how to cut them, and both must agree.
 */
#include "engine/describe.h"

#include <stdio.h>

#include "engine/kernels/kernels.h"

/* ---- attention -------------------------------------------------------------------------- */

/* One tensor that holds q, k and v, rows in this order. */
static sluice_err fused_qkv(struct describe *d, uint32_t l, const struct sl_gguf_tensor *t,
                            const uint32_t rows[3])
{
    struct sl_layer *y = &d->m->layers[l];
    uint64_t sum = (uint64_t)rows[0] + rows[1] + rows[2];
    if (t->dims[0] != d->m->n_embd || t->dims[1] != sum || t->dims[2] * t->dims[3] != 1)
        return describe_bad_shape(d, t, d->m->n_embd, sum);
    TRY(describe_rows(d, t, 0, rows[0], &y->wq));
    TRY(describe_rows(d, t, rows[0], rows[1], &y->wk));
    TRY(describe_rows(d, t, (uint64_t)rows[0] + rows[1], rows[2], &y->wv));
    const struct sl_gguf_tensor *bias = describe_find(d, (int)l, "attn_qkv.bias");
    if (!bias) return SLUICE_OK;
    if (bias->dims[0] != sum || bias->dims[1] * bias->dims[2] * bias->dims[3] != 1)
        return describe_bad_shape(d, bias, sum, 1);
    TRY(describe_floats(d, bias, 0, rows[0], &y->bq));
    TRY(describe_floats(d, bias, rows[0], rows[1], &y->bk));
    return describe_floats(d, bias, (uint64_t)rows[0] + rows[1], rows[2], &y->bv);
}

static sluice_err separate_qkv(struct describe *d, uint32_t l, const uint32_t rows[3])
{
    struct sl_layer *y = &d->m->layers[l];
    uint32_t cols = d->m->n_embd;
    TRY(describe_matrix(d, (int)l, "attn_q.weight", (struct describe_size){cols, rows[0], false},
                        &y->wq));
    TRY(describe_matrix(d, (int)l, "attn_k.weight", (struct describe_size){cols, rows[1], false},
                        &y->wk));
    TRY(describe_matrix(d, (int)l, "attn_v.weight", (struct describe_size){cols, rows[2], false},
                        &y->wv));
    TRY(describe_vector(d, (int)l, "attn_q.bias", rows[0], true, &y->bq));
    TRY(describe_vector(d, (int)l, "attn_k.bias", rows[1], true, &y->bk));
    return describe_vector(d, (int)l, "attn_v.bias", rows[2], true, &y->bv);
}

/* A norm of q or k: over each head (head elements) or over all of them together (rows elements). */
static sluice_err qk_norm(struct describe *d, uint32_t l, const char *name, uint32_t rows,
                          const float **out, bool *whole)
{
    uint32_t head = d->m->head_k;
    *whole = false;
    *out = NULL;
    const struct sl_gguf_tensor *t = describe_find(d, (int)l, name);
    if (!t) return d->m->arch->needs_qk_norm ? describe_missing(d, (int)l, name) : SLUICE_OK;
    *whole = t->dims[0] != head && !d->m->arch->gated_attention;
    return describe_vector(d, (int)l, name, *whole ? rows : head, false, out);
}

static sluice_err attention(struct describe *d, uint32_t l)
{
    struct sl_model *m = d->m;
    struct sl_layer *y = &m->layers[l];
    y->n_heads = d->n_heads[l];
    y->n_kv_heads = d->n_kv_heads[l];
    if (y->n_heads == 0 || y->n_heads > SL_HEADS_MAX || y->n_kv_heads == 0 ||
        y->n_heads % y->n_kv_heads != 0)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: layer %u has %u query heads and %u key heads; wanted 1 to %u query "
                       "heads, a multiple "
                       "of the key heads",
                       sl_gguf_path(d->g), l, y->n_heads, y->n_kv_heads, SL_HEADS_MAX);
    y->gated = m->arch->gated_attention;
    if (y->gated && m->head_k != m->head_v)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: heads of %u and %u elements; gates need them to be equal",
                       sl_gguf_path(d->g), m->head_k, m->head_v);
    const uint32_t rows[3] = {y->n_heads * m->head_k * (y->gated ? 2 : 1),
                              y->n_kv_heads * m->head_k, y->n_kv_heads * m->head_v};
    const struct sl_gguf_tensor *fused = describe_find(d, (int)l, "attn_qkv.weight");
    TRY(fused ? fused_qkv(d, l, fused, rows) : separate_qkv(d, l, rows));
    uint32_t o_cols = y->n_heads * m->head_v;
    TRY(describe_matrix(d, (int)l, "attn_output.weight",
                        (struct describe_size){o_cols, m->n_embd, false}, &y->wo));
    TRY(describe_vector(d, (int)l, "attn_output.bias", m->n_embd, true, &y->bo));
    TRY(qk_norm(d, l, "attn_q_norm.weight", rows[0], &y->q_norm, &y->q_norm_whole));
    TRY(qk_norm(d, l, "attn_k_norm.weight", rows[1], &y->k_norm, &y->k_norm_whole));
    if (rows[0] > m->max_q_rows) m->max_q_rows = rows[0];
    if (rows[1] > m->max_k_rows) m->max_k_rows = rows[1];
    if (rows[2] > m->max_v_rows) m->max_v_rows = rows[2];
    if (o_cols > m->max_o_cols) m->max_o_cols = o_cols;
    return SLUICE_OK;
}

/* ---- dense feed-forward, also the shared expert ----------------------------------------- */

/* Names of the tensors of a network; "_shexp" for the shared expert. */
static const char *ffn_name(char *buf, const char *part, const char *suffix, const char *kind)
{
    snprintf(buf, 64, "ffn_%s%s.%s", part, suffix, kind);
    return buf;
}

/* gate and up in one tensor of 2 n_ff rows, gate first: ffn_up alone, twice as high as ffn_down is
 * wide. */
static sluice_err fused_gate_up(struct describe *d, uint32_t l, const char *suffix, uint64_t n_ff,
                                struct sl_ffn *f)
{
    char name[64];
    const struct sl_gguf_tensor *t =
        describe_find(d, (int)l, ffn_name(name, "up", suffix, "weight"));
    if (!t) return describe_missing(d, (int)l, name);
    if (t->dims[0] != d->m->n_embd || t->dims[1] != 2 * n_ff || t->dims[2] * t->dims[3] != 1)
        return describe_bad_shape(d, t, d->m->n_embd, 2 * n_ff);
    TRY(describe_rows(d, t, 0, n_ff, &f->gate));
    TRY(describe_rows(d, t, n_ff, n_ff, &f->up));
    const struct sl_gguf_tensor *bias =
        describe_find(d, (int)l, ffn_name(name, "up", suffix, "bias"));
    if (!bias) return SLUICE_OK;
    if (bias->dims[0] != 2 * n_ff || bias->dims[1] * bias->dims[2] * bias->dims[3] != 1)
        return describe_bad_shape(d, bias, 2 * n_ff, 1);
    TRY(describe_floats(d, bias, 0, n_ff, &f->gate_bias));
    return describe_floats(d, bias, n_ff, n_ff, &f->up_bias);
}

static sluice_err dense_ffn(struct describe *d, uint32_t l, const char *suffix, struct sl_ffn *f)
{
    char name[64];
    uint32_t n_embd = d->m->n_embd;
    const struct sl_gguf_tensor *down =
        describe_find(d, (int)l, ffn_name(name, "down", suffix, "weight"));
    if (!down) return describe_missing(d, (int)l, name);
    uint64_t n_ff = down->dims[0];
    TRY(describe_matrix(d, (int)l, name, (struct describe_size){n_ff, n_embd, false}, &f->down));
    TRY(describe_vector(d, (int)l, ffn_name(name, "down", suffix, "bias"), n_embd, true,
                        &f->down_bias));
    if (f->down.cols > d->m->max_ff) d->m->max_ff = f->down.cols;
    if (!describe_find(d, (int)l, ffn_name(name, "gate", suffix, "weight")))
        return fused_gate_up(d, l, suffix, n_ff, f);
    TRY(describe_matrix(d, (int)l, name, (struct describe_size){n_embd, n_ff, false}, &f->gate));
    TRY(describe_vector(d, (int)l, ffn_name(name, "gate", suffix, "bias"), n_ff, true,
                        &f->gate_bias));
    ffn_name(name, "up", suffix, "weight");
    TRY(describe_matrix(d, (int)l, name, (struct describe_size){n_embd, n_ff, false}, &f->up));
    return describe_vector(d, (int)l, ffn_name(name, "up", suffix, "bias"), n_ff, true,
                           &f->up_bias);
}

/* ---- routed experts --------------------------------------------------------------------- */

static sluice_err set_part(struct describe *d, const struct sl_gguf_tensor *t, uint64_t rows,
                           struct sl_expert_part *p)
{
    if (rows == 0 || rows > SL_ROWS_MAX || t->dims[0] > SL_COLS_MAX)
        return describe_bad_shape(d, t, 1, SL_ROWS_MAX);
    *p = (struct sl_expert_part){t->type, (uint32_t)rows, (uint32_t)t->dims[0], t->row_bytes, 0};
    bool ok = sl_type_matrix_bytes(t->type, rows, t->dims[0], &p->bytes);
    return ok ? SLUICE_OK : describe_bad_shape(d, t, t->dims[0], rows);
}

/* A part whose experts are one tensor [n_experts][rows][cols]. */
static sluice_err stacked_part(struct describe *d, uint32_t l, uint32_t p,
                               const struct sl_gguf_tensor *t)
{
    struct sl_layer *y = &d->m->layers[l];
    if (t->dims[2] != y->n_experts || t->dims[3] != 1) {
        char name[SL_NAME_MAX];
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: tensor %s holds %llu experts, wanted %u (rows of ffn_gate_inp)",
                       sl_gguf_path(d->g), sl_str_show(t->name, name, sizeof name),
                       (unsigned long long)t->dims[2], y->n_experts);
    }
    d->m->sources[l].tensor[p] = t;
    return set_part(d, t, t->dims[1], &y->experts.part[p]);
}

/* A part whose experts are a tensor each: blk.N.ffn_gate.E.weight. All must look the same. */
static sluice_err single_part(struct describe *d, uint32_t l, uint32_t p, const char *part)
{
    struct sl_layer *y = &d->m->layers[l];
    const struct sl_gguf_tensor **list = sl_arena_alloc(&d->m->arena, y->n_experts, sizeof *list);
    if (!list) return sl_fail(d->e, SLUICE_E_NOMEM, "no memory for the list of experts");
    for (uint32_t x = 0; x < y->n_experts; x++) {
        char name[64];
        snprintf(name, sizeof name, "ffn_%s.%u.weight", part, x);
        list[x] = describe_find(d, (int)l, name);
        if (!list[x]) return describe_missing(d, (int)l, name);
        const struct sl_gguf_tensor *t = list[x], *first = list[0];
        if (t->dims[0] != first->dims[0] || t->dims[1] != first->dims[1] || t->dims[2] != 1 ||
            t->type != first->type)
            return describe_bad_shape(d, t, first->dims[0], first->dims[1]);
    }
    d->m->sources[l].single[p] = list;
    return set_part(d, list[0], list[0]->dims[1], &y->experts.part[p]);
}

/* The parts of an expert lie in one record of a container, and are read as one. */
static sluice_err bind_records(struct describe *d, uint32_t l)
{
    struct sl_expert_shape *s = &d->m->layers[l].experts;
    struct sl_expert_source *source = &d->m->sources[l];
    const struct sl_gguf_tensor *const *first = source->single[0];
    if (!first || !sl_gguf_record(d->g, first[0]->shard, first[0]->offset)) return SLUICE_OK;
    const struct sl_container_record **list =
        sl_arena_alloc(&d->m->arena, s->n_experts, sizeof *list);
    if (!list) return sl_fail(d->e, SLUICE_E_NOMEM, "no memory for the list of experts");
    for (uint32_t x = 0; x < s->n_experts; x++) {
        list[x] = sl_gguf_record(d->g, first[x]->shard, first[x]->offset);
        for (uint32_t p = 0; p < s->n_parts; p++) {
            const struct sl_gguf_tensor *t = source->single[p] ? source->single[p][x] : first[x];
            if (!list[x] || sl_gguf_record(d->g, t->shard, t->offset) != list[x])
                return sl_fail(d->e, SLUICE_E_FORMAT,
                               "%s: the parts of expert %u of layer %u do not lie together",
                               sl_gguf_path(d->g), x, l);
        }
        s->record_bytes = sl_max_u64(s->record_bytes, list[x]->bytes);
    }
    source->record = list;
    return SLUICE_OK;
}

static sluice_err expert_part(struct describe *d, uint32_t l, uint32_t p, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "ffn_%s_exps.weight", part);
    const struct sl_gguf_tensor *t = describe_find(d, (int)l, name);
    return t ? stacked_part(d, l, p, t) : single_part(d, l, p, part);
}

/* gate and up must take n_embd and give what down takes; down must give n_embd. */
static sluice_err check_expert_shape(struct describe *d, uint32_t l)
{
    const struct sl_expert_shape *s = &d->m->layers[l].experts;
    const struct sl_expert_part *down = &s->part[s->n_parts - 1];
    uint32_t gate_rows = s->n_parts == 3 ? down->cols : 2 * down->cols;
    bool ok = down->rows == d->m->n_embd;
    for (uint32_t p = 0; p + 1 < s->n_parts; p++)
        ok = ok && s->part[p].cols == d->m->n_embd && s->part[p].rows == gate_rows;
    /* gate and up in one: up must begin where rows may be cut */
    if (s->n_parts == 2) ok = ok && down->cols % sl_type_row_group(s->part[0].type) == 0;
    if (!ok)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: the expert tensors of layer %u do not fit together: gate [%u x %u], "
                       "down [%u x %u], "
                       "width %u",
                       sl_gguf_path(d->g), l, s->part[0].rows, s->part[0].cols, down->rows,
                       down->cols, d->m->n_embd);
    return SLUICE_OK;
}

static sluice_err router(struct describe *d, uint32_t l)
{
    struct sl_layer *y = &d->m->layers[l];
    uint32_t experts = d->n_experts[l], k = d->top_k[l];
    if (experts != y->gate_inp.rows || experts > SL_EXPERTS_MAX)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: blk.%u.ffn_gate_inp.weight has %u rows, %s.expert_count says %u "
                       "(at most %u)",
                       sl_gguf_path(d->g), l, y->gate_inp.rows, d->m->arch->name, experts,
                       SL_EXPERTS_MAX);
    if (k == 0 || k > experts || k > SL_TOP_K_MAX)
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: %s.expert_used_count is %u in layer %u, wanted 1 to %u",
                       sl_gguf_path(d->g), d->m->arch->name, k, l,
                       experts < SL_TOP_K_MAX ? experts : SL_TOP_K_MAX);
    y->n_experts = experts;
    y->router = (struct sl_router){
        .n_experts = experts,
        .top_k = k,
        .gating = d->gating,
        .normalize = d->normalize,
        .weight_scale = d->expert_scale,
    };
    return describe_vector(d, (int)l, "exp_probs_b.bias", experts, true, &y->router.select_bias);
}

static sluice_err moe_ffn(struct describe *d, uint32_t l)
{
    struct sl_model *m = d->m;
    struct sl_layer *y = &m->layers[l];
    TRY(describe_matrix(d, (int)l, "ffn_gate_inp.weight",
                        (struct describe_size){m->n_embd, 0, false}, &y->gate_inp));
    TRY(router(d, l));
    y->experts.n_experts = y->n_experts;
    y->experts.top_k = y->router.top_k;
    const struct sl_gguf_tensor *fused = describe_find(d, (int)l, "ffn_gate_up_exps.weight");
    y->experts.n_parts = fused ? 2 : 3;
    TRY(fused ? stacked_part(d, l, 0, fused) : expert_part(d, l, 0, "gate"));
    if (!fused) TRY(expert_part(d, l, 1, "up"));
    TRY(expert_part(d, l, y->experts.n_parts - 1, "down"));
    TRY(check_expert_shape(d, l));
    TRY(bind_records(d, l));
    if (describe_find(d, (int)l, "ffn_up_shexp.weight"))
        TRY(dense_ffn(d, l, "_shexp", &y->ffn));
    else if (m->arch->needs_shared)
        return describe_missing(d, (int)l, "ffn_up_shexp.weight");
    const struct sl_expert_part *down = &y->experts.part[y->experts.n_parts - 1];
    for (const struct sl_expert_part *p = y->experts.part; p < down; p++)
        m->expert_in_acts |= sl_k_act_bit(p->type);
    m->expert_out_acts |= sl_k_act_bit(down->type);
    if (down->cols > m->max_ff_exp) m->max_ff_exp = down->cols;
    if (y->n_experts > m->max_experts) m->max_experts = y->n_experts;
    if (y->router.top_k > m->max_top_k) m->max_top_k = y->router.top_k;
    m->n_moe_layers++;
    return SLUICE_OK;
}

/* The shared expert's gate is stored as a vector [n_embd] or as a matrix of one row. */
static sluice_err shared_gate(struct describe *d, uint32_t l)
{
    const struct sl_gguf_tensor *t = describe_find(d, (int)l, "ffn_gate_inp_shexp.weight");
    struct sl_layer *y = &d->m->layers[l];
    if (!t)
        return d->m->arch->needs_shared ? describe_missing(d, (int)l, "ffn_gate_inp_shexp.weight")
                                        : SLUICE_OK;
    if (t->dims[0] != d->m->n_embd || t->dims[1] * t->dims[2] * t->dims[3] != 1)
        return describe_bad_shape(d, t, d->m->n_embd, 1);
    return describe_rows(d, t, 0, 1, &y->shared_gate);
}

sluice_err describe_layer(struct describe *d, uint32_t l)
{
    struct sl_layer *y = &d->m->layers[l];
    const char *ffn_norm = d->m->arch->ffn_norm ? d->m->arch->ffn_norm : "ffn_norm.weight";
    TRY(describe_vector(d, (int)l, "attn_norm.weight", d->m->n_embd, false, &y->attn_norm));
    y->is_delta = d->m->arch->has_deltanet && describe_find(d, (int)l, "ssm_out.weight") != NULL;
    TRY(y->is_delta ? describe_deltanet(d, l) : attention(d, l));
    TRY(describe_vector(d, (int)l, ffn_norm, d->m->n_embd, false, &y->ffn_norm));
    bool moe = describe_find(d, (int)l, "ffn_gate_inp.weight") != NULL;
    if (!moe) return dense_ffn(d, l, "", &y->ffn);
    TRY(moe_ffn(d, l));
    return y->ffn.up.cols ? shared_gate(d, l) : SLUICE_OK;
}
