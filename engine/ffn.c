/* Gated feed-forward network: down(silu(gate x) * up x), Shazeer 2020 (SwiGLU). Dense layers and
 * shared experts. */
#include "engine/session.h"

sluice_err sl_dense_ffn(const struct sl_chunk *c, const struct sl_ffn *f, float *out)
{
    struct sl_session *s = c->session;
    uint32_t n_ff = f->down.cols;
    sl_phase_next(&s->phases, SL_PHASE_PROJECTION);
    const struct sl_k_act *xg = sl_acts_for(&s->compute, &s->scratch.norm, f->gate.type);
    const struct sl_k_act *xu = sl_acts_for(&s->compute, &s->scratch.norm, f->up.type);
    if (!xg || !xu) return sl_not_finite(c, "input of the feed-forward network");
    if (s->observer.fn) sl_observe_ffn_input(c);
    sl_acts_begin(&s->scratch.ff, c->n, n_ff);
    struct sl_gated gated = {.gate = {.w = f->gate, .x = xg, .n_tokens = c->n},
                             .up = {.w = f->up, .x = xu, .n_tokens = c->n},
                             .gate_bias = f->gate_bias,
                             .up_bias = f->up_bias};
    const struct sl_gated_out gated_out = sl_gated_to(s, &s->scratch.ff, f->down.type);
    if (!sl_gated_run(&s->compute, &gated, 1, &gated_out))
        return sl_not_finite(c, "the feed-forward network");
    const struct sl_k_act *x = s->scratch.ff.act[sl_k_act_kind(f->down.type)];
    if (s->observer.fn) sl_observe_ffn_output(c);
    struct sl_mm down = {f->down, x, c->n, out, s->m->n_embd, 0};
    sl_mm_run(&s->compute, &down, 1);
    sl_add_bias(c, f->down_bias, out, s->m->n_embd);
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    return SLUICE_OK;
}
