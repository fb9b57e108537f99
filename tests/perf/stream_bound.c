/* How far decoding is from what the drive and the arithmetic allow.
 *
 *     stream_bound MODEL RAM TOKENS N [WARM]
 *
 * MODEL a GGUF file, RAM a number of MiB, TOKENS a file of token ids, N how many tokens are timed,
 * after WARM others (default 32). The bound of a token is
 *
 *     S = head + sum over layers of (dense part + max(demand bytes / drive rate, expert compute))
 *
 * with what a run without reading ahead measured and read: its demand reads are what the eviction
 * policy at the plan's slots misses. The drive rate is measured before and after, with reads of the
 * same size, as many at once. Printed: S, the time per token of that run, and of a run with reading
 * ahead, each in milliseconds and as a multiple of S. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/api.h"
#include "tests/perf/ids.h"
#include "io/block.h"

#define RATE_READS 600 /* of one part each */

struct event {
    double dense_s, expert_s;
    uint64_t bytes;
};

struct record {
    struct event *events;
    size_t n, capacity;
};

static void on_layer(void *user, uint32_t layer, uint32_t n_tokens, const struct sl_layer_times *t)
{
    struct record *r = user;
    (void)layer, (void)n_tokens;
    if (r->n == r->capacity) return;
    uint64_t dense_ns = 0;
    for (int i = 0; i < SL_PHASES; i++) dense_ns += i == SL_PHASE_EXPERT ? 0 : t->ns[i];
    dense_ns -= t->stall_ns;
    r->events[r->n++] = (struct event){(double)dense_ns * 1e-9,
                                       (double)t->ns[SL_PHASE_EXPERT] * 1e-9, t->demand_bytes};
}

/* A read of a random expert: of its first part, or of its record. */
struct place {
    uint32_t shard;
    uint64_t offset, bytes;
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static struct place random_place(const struct sl_model *m, uint32_t *state)
{
    uint32_t layer;
    do layer = draw(state, m->n_layers);
    while (m->layers[layer].n_experts == 0);
    const struct sl_expert_shape *shape = &m->layers[layer].experts;
    const struct sl_expert_source *from = &m->sources[layer];
    uint32_t expert = draw(state, shape->n_experts);
    if (from->record)
        return (struct place){from->record[expert]->part, from->record[expert]->offset,
                              from->record[expert]->bytes};
    uint64_t bytes = shape->part[0].bytes;
    const struct sl_gguf_tensor *t = from->tensor[0];
    if (t) return (struct place){t->shard, t->offset + expert * bytes, bytes};
    t = from->single[0][expert];
    return (struct place){t->shard, t->offset, bytes};
}

static uint64_t largest_read(const struct sl_model *m)
{
    uint64_t most = 0;
    for (uint32_t l = 0; l < m->n_layers; l++) {
        const struct sl_expert_source *from = &m->sources[l];
        if (m->layers[l].n_experts == 0) continue;
        uint64_t bytes = from->record ? from->record[0]->bytes : m->layers[l].experts.part[0].bytes;
        most = sl_max_u64(most, bytes);
    }
    return most;
}

/* Bytes a second of random reads of single experts' parts or records, depth at once. */
static double drive_rate(const struct sl_model *m, uint32_t depth)
{
    uint64_t room = sl_io_room(sl_model_block(), largest_read(m));
    struct sl_budget b;
    struct sl_region memory;
    struct sl_io_request requests[SL_IO_LANES_MAX], *done[SL_IO_LANES_MAX];
    sl_budget_init(&b, UINT64_MAX);
    if (depth > SL_IO_LANES_MAX || sl_region_reserve(&memory, &b, depth * room) ||
        sl_region_commit(&memory, depth * room))
        return 0;
    uint32_t state = 7, sent = 0;
    uint64_t start = sl_now_ns(), got = 0;
    for (uint32_t slot = 0; sent < RATE_READS || sl_io_outstanding(m->io) > 0;) {
        uint32_t n = 0;
        if (sent >= depth) n = sl_io_reap(m->io, done, 1, 1);
        if (n > 0) slot = (uint32_t)(done[0] - requests), got += done[0]->bytes;
        if (sent >= RATE_READS) continue;
        if (sent < depth) slot = sent;
        struct place at = random_place(m, &state);
        requests[slot] =
            (struct sl_io_request){.file = m->files[at.shard],
                                   .offset = at.offset,
                                   .bytes = at.bytes,
                                   .dst = memory.base + slot * room + at.offset % sl_model_block()};
        struct sl_io_request *one = &requests[slot];
        if (sl_io_submit(m->io, &one, 1)) return 0;
        sent++;
    }
    double seconds = (double)(sl_now_ns() - start) * 1e-9;
    sl_region_deinit(&memory);
    return (double)got / seconds;
}

static double bound(const struct record *r, double rate)
{
    double sum = 0;
    for (size_t i = 0; i < r->n; i++) {
        double read_s = (double)r->events[i].bytes / rate;
        sum += r->events[i].dense_s +
               (read_s > r->events[i].expert_s ? read_s : r->events[i].expert_s);
    }
    return sum;
}

struct run {
    const char *model;
    uint64_t ram;
    const int32_t *ids;
    size_t n_ids, warm, n;
};

/* Times one run; false: it failed, and said so. rate: of the drive, if wanted. */
static bool run(const struct run *w, uint32_t prefetch, struct record *r, double *seconds,
                double *rate)
{
    sluice_options opt = SLUICE_OPTIONS_INIT;
    sluice_error e;
    sluice_model *m;
    sluice_session *s;
    opt.ram_bytes = w->ram;
    opt.prefetch = prefetch;
    opt.n_ctx = (uint32_t)(w->warm + w->n);
    if (sluice_model_open(w->model, &opt, &m, &e) || sluice_session_open(m, &s, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return false;
    }
    size_t total = w->warm + w->n;
    uint64_t start = 0;
    for (size_t i = 0; i < total; i++) {
        if (i == w->warm) {
            if (rate) *rate = drive_rate(&m->m, 8);
            s->s.on_layer = r ? on_layer : NULL;
            s->s.on_layer_user = r;
            start = sl_now_ns();
        }
        const float *last; /* with the head, as an answer needs it */
        if (sl_session_eval(&s->s, &w->ids[i % w->n_ids], 1, NULL, &last, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return false;
        }
    }
    *seconds = (double)(sl_now_ns() - start) * 1e-9;
    sl_expert_settle(m->m.store);
    if (rate) *rate = (*rate + drive_rate(&m->m, 8)) / 2;
    struct sl_expert_stats st;
    sl_expert_get_stats(m->m.store, &st);
    printf("# %u slots, hits %.1f %% (+%.1f %% in flight), demand %.1f MB/token, ahead %.1f MB "
           "(useful %.1f), stall %.1f ms/token\n",
           st.n_open, 100.0 * (double)st.hits / (double)st.uses,
           100.0 * (double)st.hits_flying / (double)st.uses,
           (double)st.demand_bytes * 1e-6 / (double)total,
           (double)st.ahead_bytes * 1e-6 / (double)total,
           (double)st.ahead_useful_bytes * 1e-6 / (double)total,
           (double)st.stall_ns * 1e-6 / (double)total);
    sluice_session_close(s);
    sluice_model_close(m);
    return true;
}

int main(int argc, char **argv)
{
    static int32_t ids[IDS_MAX];
    if (argc < 5) {
        fprintf(stderr, "usage: stream_bound MODEL MIB TOKENS N [WARM]\n");
        return 2;
    }
    struct run w = {.model = argv[1],
                    .ram = strtoull(argv[2], NULL, 10) << 20,
                    .ids = ids,
                    .n_ids = read_ids(argv[3], ids),
                    .warm = argc > 5 ? strtoull(argv[5], NULL, 10) : 32,
                    .n = strtoull(argv[4], NULL, 10)};
    struct record r = {.capacity = w.n * (SL_LAYERS_MAX + 1)};
    r.events = calloc(r.capacity, sizeof *r.events);
    double seconds = 0, ahead_seconds = 0, rate = 0;
    if (!r.events || w.n_ids == 0 || w.n == 0) return 1;
    if (!run(&w, SLUICE_PREFETCH_OFF, &r, &seconds, &rate)) return 1;
    if (!run(&w, SLUICE_PREFETCH_AUTO, NULL, &ahead_seconds, NULL)) return 1;
    double ms = 1e3 / (double)w.n, s = bound(&r, rate), dense = 0, experts = 0;
    for (size_t i = 0; i < r.n; i++) dense += r.events[i].dense_s, experts += r.events[i].expert_s;
    printf("drive %.0f MB/s; a token: dense and head %.1f ms, experts %.1f ms, S %.1f ms; measured "
           "%.1f ms (%.3f S), with reading ahead %.1f ms (%.3f S)\n",
           rate * 1e-6, dense * ms, experts * ms, s * ms, seconds * ms, seconds / s,
           ahead_seconds * ms, ahead_seconds / s);
    free(r.events);
    return 0;
}
