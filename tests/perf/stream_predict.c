/* How well coming experts are predicted, and whether reading ahead pays.
 *
 *     stream_predict MODEL SLOTS TOKENS N [ROUNDS]
 *
 * MODEL a GGUF file, SLOTS expert slots, TOKENS a file of token ids, N how many are decoded in each
 * run. Runs with reading ahead and without alternate, ROUNDS of each (default 3). Then, for the
 * last run with it, by layer: recall (chosen experts that were among the k best of the next layer's
 * router on the layer's before hidden state; and those that the previous token had chosen),
 * precision (experts expected with a probability of at least 1/2 that came), and bytes read ahead,
 * useful and wasted. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/api.h"
#include "tests/perf/ids.h"

struct work {
    const char *model;
    uint32_t slots;
    size_t n;
    const int32_t *ids;
};

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void print_layers(const sluice_session *s)
{
    const struct sl_model *m = &s->model->m;
    struct sl_predict_stats all = {0, 0, 0};
    uint64_t predicted = 0, used = 0;
    printf("layer  recall %%  previous %%  precision %%  ahead MB  useful MB  wasted MB\n");
    for (uint32_t l = 0; l < m->n_layers; l++) {
        struct sl_predict_stats p;
        struct sl_expert_layer_stats e;
        if (m->layers[l].n_experts == 0) continue;
        sl_predict_get_stats(s->s.predictor, l, &p);
        sl_expert_get_layer_stats(m->store, l, &e);
        printf("%5u  %8.1f  %10.1f  %11.1f  %8.1f  %9.1f  %9.1f\n", l, share(p.by_router, p.chosen),
               share(p.by_previous, p.chosen), share(e.predicted_used, e.predicted),
               (double)e.ahead_bytes * 1e-6, (double)e.ahead_useful_bytes * 1e-6,
               (double)e.ahead_wasted_bytes * 1e-6);
        all.chosen += p.chosen, all.by_router += p.by_router, all.by_previous += p.by_previous;
        predicted += e.predicted, used += e.predicted_used;
    }
    struct sl_expert_stats t;
    sl_expert_get_stats(m->store, &t);
    printf("  all  %8.1f  %10.1f  %11.1f  %8.1f  %9.1f  %9.1f\n", share(all.by_router, all.chosen),
           share(all.by_previous, all.chosen), share(used, predicted), (double)t.ahead_bytes * 1e-6,
           (double)t.ahead_useful_bytes * 1e-6, (double)t.ahead_wasted_bytes * 1e-6);
}

/* Tokens a second; 0: it failed, and said so. */
static double run(const struct work *w, uint32_t prefetch, bool layers)
{
    sluice_options opt = SLUICE_OPTIONS_INIT;
    sluice_error e;
    sluice_model *m;
    sluice_session *s;
    opt.slots = w->slots;
    opt.prefetch = prefetch;
    opt.n_ctx = (uint32_t)w->n;
    if (sluice_model_open(w->model, &opt, &m, &e) || sluice_session_open(m, &s, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 0;
    }
    uint64_t start = sl_now_ns();
    for (size_t i = 0; i < w->n; i++) {
        const float *last;
        if (sl_session_eval(&s->s, &w->ids[i], 1, NULL, &last, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return 0;
        }
    }
    double rate = (double)w->n / ((double)(sl_now_ns() - start) * 1e-9);
    sl_expert_settle(m->m.store);
    struct sl_expert_stats t;
    sl_expert_get_stats(m->m.store, &t);
    printf("%-3s %7.2f tok/s, %.1f MB read a token, %.1f of it in vain; waiting %.1f ms a token\n",
           prefetch == SLUICE_PREFETCH_OFF ? "off" : "on", rate,
           (double)(t.demand_bytes + t.ahead_bytes) * 1e-6 / (double)w->n,
           (double)t.ahead_wasted_bytes * 1e-6 / (double)w->n,
           (double)t.stall_ns * 1e-6 / (double)w->n);
    if (layers) print_layers(s);
    sluice_session_close(s);
    sluice_model_close(m);
    return rate;
}

int main(int argc, char **argv)
{
    static int32_t ids[IDS_MAX];
    if (argc < 5) {
        fprintf(stderr, "usage: stream_predict MODEL SLOTS TOKENS N [ROUNDS]\n");
        return 2;
    }
    size_t n_ids = read_ids(argv[3], ids);
    struct work w = {argv[1], (uint32_t)strtoul(argv[2], NULL, 10), strtoull(argv[4], NULL, 10),
                     ids};
    unsigned rounds = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 3;
    if (n_ids == 0 || w.n == 0 || w.n > IDS_MAX || rounds == 0) return 2;
    for (size_t i = n_ids; i < IDS_MAX; i++) ids[i] = ids[i % n_ids];
    for (unsigned i = 1; i <= rounds; i++)
        if (run(&w, SLUICE_PREFETCH_OFF, false) <= 0 ||
            run(&w, SLUICE_PREFETCH_AUTO, i == rounds) <= 0)
            return 1;
    return 0;
}
