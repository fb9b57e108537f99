/* What a decoded token would take: the bound of docs/BENCHMARKS.md from a replay's misses. */
#include <math.h>

#include "trace/study.h"

#define HEAD_PHASE 6 /* SL_PHASE_HEAD of engine/phases.h, in sl_trace_done.phase_ns */

double sl_drive_rate(const struct sl_trace *t)
{
    /* Reads stand in the order in which they ended, so walking backwards their ends fall, and what
     * is covered of time is counted once. */
    uint64_t covered_from = UINT64_MAX;
    double bytes = 0, busy_ns = 0;
    for (uint64_t i = t->n_reads; i-- > 0;) {
        const struct sl_trace_read *r = &t->reads[i];
        uint64_t end = sl_min_u64(r->begin_ns + r->took_ns, covered_from);
        if (r->why > 1) continue;
        bytes += (double)r->bytes;
        if (r->begin_ns >= end) continue;
        busy_ns += (double)(end - r->begin_ns);
        covered_from = r->begin_ns;
    }
    return bytes > 0 && busy_ns > 0 ? bytes * 1e9 / busy_ns : 0;
}

struct speed_run {
    const struct sl_trace *t;
    double ns_per_byte, scale, even_ns; /* scale: of recorded times; even_ns: of a layer, instead */
    double ns;
};

static int add_visit(void *user, uint64_t visit, uint32_t uses, uint32_t hits, uint64_t read_bytes)
{
    struct speed_run *r = user;
    const struct sl_trace_visit *v = &r->t->visits[visit];
    (void)uses;
    (void)hits;
    if (r->t->evals[v->eval].e.prompt) return 0;
    double read_ns = read_bytes ? (double)read_bytes * r->ns_per_byte : 0;
    double dense_ns = (double)v->dense_ns * r->scale;
    double expert_ns = (double)v->expert_ns * r->scale + r->even_ns * v->n_tokens;
    r->ns += dense_ns + (read_ns > expert_ns ? read_ns : expert_ns);
    return 0;
}

/* Nanoseconds of computing in all decoded tokens as recorded; those of the head in *head. */
static double computing(const struct sl_trace *t, double *head)
{
    double sum = 0;
    *head = 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *s = &t->evals[i];
        if (s->e.prompt) continue;
        *head += (double)s->done.phase_ns[HEAD_PHASE];
        for (uint64_t v = s->first_visit; v < s->first_visit + s->n_visits; v++)
            sum += (double)t->visits[v].dense_ns + (double)t->visits[v].expert_ns;
    }
    return sum + *head;
}

double sl_speed_ms(const struct sl_trace *t, const struct sl_replay_config *c,
                   const struct sl_speed *speed, struct sl_budget *b, sluice_error *e)
{
    double rate = speed->drive_rate > 0 ? speed->drive_rate : sl_drive_rate(t), head = 0;
    struct speed_run r = {.t = t, .ns_per_byte = 1e9 / rate, .scale = 1};
    struct sl_replay_config config = *c;
    struct sl_replay_result result;
    double tokens = t->n_tokens, recorded = 0;
    uint32_t layers = 0;
    if (e) e->code = SLUICE_OK;
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        if (t->header.layer[l].n_experts == 0) continue;
        layers++;
        if (t->header.layer[l].expert_bytes == 0) return NAN;
    }
    if (t->header.measured & SL_TRACE_TIMES) recorded = computing(t, &head);
    if (!(rate > 0) || !(tokens > 0) || !(recorded > 0 || speed->compute_ms > 0)) return NAN;
    if (speed->compute_ms > 0 && recorded > 0)
        r.scale = speed->compute_ms * 1e6 * tokens / recorded;
    else if (speed->compute_ms > 0)
        r.even_ns = speed->compute_ms * 1e6 / layers;
    config.on_visit = add_visit;
    config.user = &r;
    if (sl_replay(t, &config, b, e, &result) != SLUICE_OK) return NAN;
    return (r.ns + head * r.scale) / tokens / 1e6;
}
