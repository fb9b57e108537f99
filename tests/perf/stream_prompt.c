/* What a long prompt costs, and what it leaves of the cache.
 *
 *     stream_prompt MODEL RAM TOKENS N_PROMPT N_DECODE
 *
 * MODEL a GGUF file, RAM a number of MiB, TOKENS a file of token ids. Decodes N_DECODE tokens twice
 * (the second time with a warm cache), evaluates a prompt of N_PROMPT others in the engine's
 * chunks, and decodes N_DECODE again. Printed for each: tokens a second, hit rate, bytes read, and
 * the share of the time spent waiting for the drive; for the prompt also how many bytes of all
 * experts' bytes were read for each chunk, which is at most 1 since no expert is read twice for a
 * chunk. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/api.h"
#include "tests/perf/ids.h"

struct phase {
    const char *name;
    size_t from, n, step; /* tokens, and how many at a time */
};

static uint64_t bytes_of(const struct sl_expert_stats *s)
{
    return s->demand_bytes + s->prompt_bytes + s->ahead_bytes;
}

static int run(sluice_session *s, const struct phase *p, const int32_t *ids)
{
    const struct sl_model *m = &s->model->m;
    struct sl_expert_stats before, after;
    sluice_error e;
    uint64_t start = sl_now_ns(), all = 0;
    sl_expert_get_stats(m->store, &before);
    for (size_t at = 0; at < p->n; at += p->step) {
        const float *last;
        size_t n = p->n - at < p->step ? p->n - at : p->step;
        if (sl_session_eval(&s->s, ids + p->from + at, n, NULL, &last, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
    }
    sl_expert_get_stats(m->store, &after);
    double seconds = (double)(sl_now_ns() - start) * 1e-9;
    for (uint32_t l = 0; l < m->n_layers; l++) all += sl_expert_shape_bytes(&m->layers[l].experts);
    uint64_t bytes = bytes_of(&after) - bytes_of(&before);
    printf(
        "%-14s %4zu tokens, %3zu at a time: %6.2f tok/s, hits %.1f %%, %8.1f MB read (%.3f of all "
        "experts a chunk), waiting %.1f %%\n",
        p->name, p->n, p->step, (double)p->n / seconds,
        100.0 * (double)(after.hits + after.hits_flying - before.hits - before.hits_flying) /
            (double)(after.uses - before.uses),
        (double)bytes * 1e-6,
        (double)bytes / (double)all / (double)((p->n + p->step - 1) / p->step),
        100e-9 * (double)(after.stall_ns - before.stall_ns) / seconds);
    return 0;
}

int main(int argc, char **argv)
{
    static int32_t ids[IDS_MAX];
    if (argc != 6) {
        fprintf(stderr, "usage: stream_prompt MODEL MIB TOKENS N_PROMPT N_DECODE\n");
        return 2;
    }
    size_t n_ids = read_ids(argv[3], ids);
    size_t prompt = strtoull(argv[4], NULL, 10), decode = strtoull(argv[5], NULL, 10);
    for (size_t i = n_ids; i < IDS_MAX && n_ids > 0; i++) ids[i] = ids[i % n_ids];
    sluice_options opt = SLUICE_OPTIONS_INIT;
    sluice_error e;
    sluice_model *m;
    sluice_session *s;
    opt.ram_bytes = strtoull(argv[2], NULL, 10) << 20;
    opt.n_ctx = (uint32_t)(prompt + 3 * decode);
    if (n_ids == 0 || prompt + 3 * decode > IDS_MAX || prompt == 0 || decode == 0) return 2;
    if (sluice_model_open(argv[1], &opt, &m, &e) || sluice_session_open(m, &s, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    const struct phase phases[] = {
        {"decode, cold", 0, decode, 1},
        {"decode, warm", decode, decode, 1},
        {"prompt", 2 * decode, prompt, s->s.chunk},
        {"decode, after", 2 * decode + prompt, decode, 1},
    };
    int bad = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(phases) && !bad; i++) bad = run(s, &phases[i], ids);
    sluice_session_close(s);
    sluice_model_close(m);
    return bad;
}
