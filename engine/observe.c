/* Shows the inputs of weight matrices to whoever asked for them (sluice_session_observe): called by
 * the forward pass where it has them, before they are quantized. Nothing is copied and nothing is
 * changed; where nobody asked, nothing here runs.
 *
 * A tensor bears the name that the file has: of experts that are a tensor each, the name of the
 * tensor that would hold them all. */
#include "engine/moe.h"

#include <stdio.h>

/* A matrix to be shown: "attn_q" of the chunk's layer. */
struct shown {
    const char *part;
    const char *same_as; /* likewise; NULL: none */
    uint32_t matrix, n_matrices;
};

/* blk.<layer>.<part>.weight */
static const char *layer_name(const struct sl_chunk *c, const char *part, char buf[SL_NAME_MAX])
{
    snprintf(buf, SL_NAME_MAX, "blk.%u.%s.weight", c->layer, part);
    return buf;
}

static bool has(const struct sl_chunk *c, const char *part)
{
    char name[SL_NAME_MAX];
    const struct sl_gguf *names = c->session->observer.names;
    return sl_gguf_find_tensor(names, layer_name(c, part, name)) != NULL;
}

static void show(const struct sl_chunk *c, struct shown what, const float *x, uint32_t n,
                 uint32_t cols)
{
    char name[SL_NAME_MAX], same[SL_NAME_MAX];
    const struct sl_observer *o = &c->session->observer;
    const sluice_input in = {
        .struct_size = sizeof in,
        .n = n,
        .cols = cols,
        .matrix = what.matrix,
        .n_matrices = what.n_matrices,
        .tensor = layer_name(c, what.part, name),
        .same_as = what.same_as ? layer_name(c, what.same_as, same) : NULL,
        .x = x,
    };
    o->fn(o->user, &in);
}

void sl_observe_attn_input(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.norm;
    if (has(c, "attn_qkv")) {
        show(c, (struct shown){"attn_qkv", NULL, 0, 1}, a->f, a->n, a->cols);
        return;
    }
    show(c, (struct shown){"attn_q", NULL, 0, 1}, a->f, a->n, a->cols);
    show(c, (struct shown){"attn_k", "attn_q", 0, 1}, a->f, a->n, a->cols);
    show(c, (struct shown){"attn_v", "attn_q", 0, 1}, a->f, a->n, a->cols);
}

void sl_observe_attn_output(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.attn;
    show(c, (struct shown){"attn_output", NULL, 0, 1}, a->f, a->n, a->cols);
}

/* All names that files have; beta and alpha are in one tensor or in two, q, k, v and z too. */
void sl_observe_delta_input(const struct sl_chunk *c)
{
    static const char *const parts[] = {"attn_qkv", "ssm_in",   "attn_gate",
                                        "ssm_ba",   "ssm_beta", "ssm_alpha"};
    const struct sl_acts *a = &c->session->scratch.norm;
    const char *first = NULL;
    for (size_t i = 0; i < SL_ARRAY_LEN(parts); i++) {
        if (!has(c, parts[i])) continue;
        show(c, (struct shown){parts[i], first, 0, 1}, a->f, a->n, a->cols);
        if (!first) first = parts[i];
    }
}

void sl_observe_delta_output(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.attn;
    show(c, (struct shown){"ssm_out", NULL, 0, 1}, a->f, a->n, a->cols);
}

void sl_observe_ffn_input(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.norm;
    bool shared = c->session->m->layers[c->layer].n_experts != 0;
    const char *gate = shared ? "ffn_gate_shexp" : "ffn_gate";
    const char *up = shared ? "ffn_up_shexp" : "ffn_up";
    const char *first = shared ? "ffn_gate_inp" : NULL; /* the router has seen it */
    if (has(c, gate)) {
        show(c, (struct shown){gate, first, 0, 1}, a->f, a->n, a->cols);
        if (!first) first = gate;
    }
    show(c, (struct shown){up, first, 0, 1}, a->f, a->n, a->cols);
}

void sl_observe_ffn_output(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.ff;
    bool shared = c->session->m->layers[c->layer].n_experts != 0;
    const char *down = shared ? "ffn_down_shexp" : "ffn_down";
    show(c, (struct shown){down, NULL, 0, 1}, a->f, a->n, a->cols);
}

void sl_observe_router(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.norm;
    show(c, (struct shown){"ffn_gate_inp", NULL, 0, 1}, a->f, a->n, a->cols);
    if (c->session->m->layers[c->layer].shared_gate.rows)
        show(c, (struct shown){"ffn_gate_inp_shexp", "ffn_gate_inp", 0, 1}, a->f, a->n, a->cols);
}

/* The pairs' tokens are scattered over the chunk: each is shown by itself. */
void moe_observe_input(const struct moe_run *r, uint32_t expert)
{
    const struct sl_scratch *s = &r->c->session->scratch;
    uint32_t n = r->y->n_experts, cols = s->norm.cols;
    bool fused = r->y->experts.n_parts == 2;
    const struct shown gate = {fused ? "ffn_gate_up_exps" : "ffn_gate_exps", NULL, expert, n};
    const struct shown up = {"ffn_up_exps", "ffn_gate_exps", expert, n};
    for (uint32_t i = s->first_pair[expert]; i < s->first_pair[expert + 1]; i++) {
        const float *x = s->norm.f + (uint64_t)s->pair_token[i] * cols;
        show(r->c, gate, x, 1, cols);
        if (!fused) show(r->c, up, x, 1, cols);
    }
}

void moe_observe_output(const struct moe_run *r, uint32_t expert)
{
    const struct sl_scratch *s = &r->c->session->scratch;
    uint32_t row = s->first_pair[expert] - r->first_pair;
    uint32_t n = s->first_pair[expert + 1] - s->first_pair[expert], ff = s->pair_ff.cols;
    show(r->c, (struct shown){"ffn_down_exps", NULL, expert, r->y->n_experts},
         s->pair_ff.f + (uint64_t)row * ff, n, ff);
}

void sl_observe_head(const struct sl_chunk *c)
{
    const struct sl_acts *a = &c->session->scratch.norm;
    const struct sl_observer *o = &c->session->observer;
    const sluice_input in = {
        .struct_size = sizeof in,
        .n = a->n,
        .cols = a->cols,
        .n_matrices = 1,
        .tensor = c->session->m->tied ? "token_embd.weight" : "output.weight",
        .x = a->f,
    };
    o->fn(o->user, &in);
}
