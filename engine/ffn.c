/* Gated feed-forward network: down(silu(gate x) * up x), Shazeer 2020 (SwiGLU). Dense layers and
 * shared experts. */
#include "engine/session.h"

struct gate_job {
    const struct sl_chunk *c;
    const struct sl_ffn *f;
};

static void gate_token(void *arg, uint32_t t, uint32_t worker)
{
    (void)worker;
    const struct gate_job *j = arg;
    const struct sl_session *s = j->c->session;
    const struct sl_ffn *f = j->f;
    uint32_t n_ff = f->down.cols;
    float *gate = s->scratch.ff.f + (uint64_t)t * n_ff, *up = s->scratch.up + (uint64_t)t * n_ff;
    if (f->gate_bias) s->compute.kernels->add(f->gate_bias, n_ff, gate);
    if (f->up_bias) s->compute.kernels->add(f->up_bias, n_ff, up);
    s->compute.kernels->silu_mul(gate, up, n_ff, gate);
}

sluice_err sl_dense_ffn(const struct sl_chunk *c, const struct sl_ffn *f, float *out)
{
    struct sl_session *s = c->session;
    uint32_t n_ff = f->down.cols;
    const struct sl_k_act *xg = sl_acts_for(&s->compute, &s->scratch.norm, f->gate.type);
    const struct sl_k_act *xu = sl_acts_for(&s->compute, &s->scratch.norm, f->up.type);
    if (!xg || !xu) return sl_not_finite(c, "input of the feed-forward network");
    if (s->observer.fn) sl_observe_ffn_input(c);
    sl_acts_begin(&s->scratch.ff, c->n, n_ff);
    struct sl_mm mm[2] = {{f->gate, xg, c->n, s->scratch.ff.f, n_ff, 0},
                          {f->up, xu, c->n, s->scratch.up, n_ff, 0}};
    sl_mm_run(&s->compute, mm, 2);
    struct gate_job j = {c, f};
    sl_pool_run(s->compute.pool, gate_token, &j, c->n);

    const struct sl_k_act *x = sl_acts_for(&s->compute, &s->scratch.ff, f->down.type);
    if (!x) return sl_not_finite(c, "the feed-forward network");
    if (s->observer.fn) sl_observe_ffn_output(c);
    struct sl_mm down = {f->down, x, c->n, out, s->m->n_embd, 0};
    sl_mm_run(&s->compute, &down, 1);
    sl_add_bias(c, f->down_bias, out, s->m->n_embd);
    return SLUICE_OK;
}
