/* A small model's experts in two files of random bytes, and a paged store over them, for the tests
 * of the expert store: layers of two sizes, one without experts, one with a tensor for each expert,
 * everything at odd offsets. Whatever the store hands out is compared with the files. */
#ifndef SL_TEST_STORE_CASE_H
#define SL_TEST_STORE_CASE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "expert_cache/expert_store.h"
#include "expert_cache/store.h"
#include "io/io_fault.h"

#define SHARDS 2
#define LAYERS 5
#define EXPERTS_MAX 24
#define TOP_K_MAX 6
#define SHARD_BYTES (2u << 20)

static char folder[SHARDS][64]; /* the second may be in memory, where direct access fails */
static char path[SHARDS][192];
static unsigned char *data[SHARDS];
static struct sl_expert_shape shapes[LAYERS];
static struct sl_expert_source sources[LAYERS];
static struct sl_gguf_tensor whole[LAYERS][SL_EXPERT_PARTS_MAX];
static struct sl_gguf_tensor single[SL_EXPERT_PARTS_MAX][EXPERTS_MAX];
static const struct sl_gguf_tensor *singles[SL_EXPERT_PARTS_MAX][EXPERTS_MAX];
static struct sl_budget budget;

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* ---- the model ----------------------------------------------------------------------------- */

struct plan {
    uint32_t n_experts, top_k, n_parts, shard;
    uint64_t bytes[SL_EXPERT_PARTS_MAX];
    bool per_expert;
};

static const struct plan plans[LAYERS] = {
    {16, 4, 3, 0, {5003, 5003, 6001}, false}, {0, 0, 0, 0, {0, 0, 0}, false},
    {24, 6, 2, 1, {20011, 13007, 0}, false},  {8, 2, 3, 0, {5003, 5003, 4096}, true},
    {16, 4, 3, 1, {5003, 5003, 6001}, false},
};

static void describe_layer(uint32_t l, uint64_t at[SHARDS])
{
    const struct plan *p = &plans[l];
    shapes[l] = (struct sl_expert_shape){.n_experts = p->n_experts, .top_k = p->top_k};
    shapes[l].n_parts = p->n_parts;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        shapes[l].part[i] =
            (struct sl_expert_part){0, 1, (uint32_t)p->bytes[i], p->bytes[i], p->bytes[i]};
        whole[l][i].shard = p->shard;
        whole[l][i].offset = at[p->shard];
        if (!p->per_expert) sources[l].tensor[i] = &whole[l][i];
        if (p->per_expert) sources[l].single[i] = singles[i];
        for (uint32_t x = 0; x < p->n_experts; x++) {
            if (p->per_expert) {
                single[i][x].shard = p->shard;
                single[i][x].offset = at[p->shard];
                singles[i][x] = &single[i][x];
                at[p->shard] += 77; /* apart */
            }
            at[p->shard] += p->bytes[i];
        }
        at[p->shard] += 32 * (1 + random_below(500));
        assert_true(at[p->shard] < SHARD_BYTES);
    }
}

static uint64_t offset_of(uint32_t l, uint32_t x, uint32_t part)
{
    if (plans[l].per_expert) return single[part][x].offset;
    return whole[l][part].offset + x * plans[l].bytes[part];
}

static void write_shard(uint32_t shard)
{
    FILE *f = fopen(path[shard], "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data[shard], 1, SHARD_BYTES, f), SHARD_BYTES);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(fsync(fileno(f)), 0);
    assert_int_equal(fclose(f), 0);
}

/* The first shard lies beside the build, where direct access is likely to work; the second in
 * memory, if there is a place for it. */
static int make_model(void **state)
{
    (void)state;
    uint64_t at[SHARDS] = {1000, 4096};
    (void)snprintf(folder[0], sizeof folder[0], "store_test_XXXXXX");
    (void)snprintf(folder[1], sizeof folder[1], "/dev/shm/store_test_XXXXXX");
    if (mkdtemp(folder[0]) == NULL) return 1;
    if (mkdtemp(folder[1]) == NULL) {
        (void)snprintf(folder[1], sizeof folder[1], "store_test_XXXXXX");
        if (mkdtemp(folder[1]) == NULL) return 1;
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        (void)snprintf(path[i], sizeof path[i], "%s/data", folder[i]);
        data[i] = malloc(SHARD_BYTES);
        for (size_t k = 0; k < SHARD_BYTES; k++) data[i][k] = (unsigned char)random_below(256);
        write_shard(i);
    }
    for (uint32_t l = 0; l < LAYERS; l++) describe_layer(l, at);
    sl_budget_init(&budget, UINT64_MAX);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        unlink(path[i]);
        rmdir(folder[i]);
        free(data[i]);
    }
    return sl_budget_used(&budget) == 0 ? 0 : 1;
}

/* ---- a store on it ------------------------------------------------------------------------- */

struct setup {
    const char *name;
    struct sl_io_config io;
    enum sl_io_access access;
};

static const struct setup setups[] = {
    {"io_uring, direct", {SL_IO_URING, 32, 0, 0}, SL_IO_DIRECT},
    {"pread, direct", {SL_IO_PREAD, 0, 4, 0}, SL_IO_DIRECT},
    {"io_uring, buffered", {SL_IO_URING, 4, 0, 0}, SL_IO_BUFFERED},
    {"pread, one lane, buffered", {SL_IO_PREAD, 0, 1, 0}, SL_IO_BUFFERED},
};

struct rig {
    struct sl_io *io; /* the fault wrapper */
    struct sl_file *file[SHARDS];
    struct sl_io_file *f[SHARDS];
    struct sl_expert_store_config config;
    struct sl_expert_sizes sizes;
    struct sl_expert_store *s;
    uint64_t before_bytes; /* of the budget, without the store */
};

static const struct sl_io_fault_plan no_fault;

/* Everything but the store. False: this system does not grant it. */
static bool rig_prepare(struct rig *g, const struct setup *setup)
{
    sluice_error e = {0};
    struct sl_io *inner;
    memset(g, 0, sizeof *g);
    sluice_err err = sl_io_open(&setup->io, &budget, NULL, &e, &inner);
    if (err == SLUICE_E_UNSUPPORTED) {
        print_message("without %s: %s\n", setup->name, e.text);
        return false;
    }
    assert_int_equal(err, SLUICE_OK);
    assert_int_equal(sl_io_fault_open(inner, &no_fault, &e, &g->io), SLUICE_OK);
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_int_equal(sl_file_open(path[i], &budget, &e, &g->file[i]), SLUICE_OK);
        assert_int_equal(sl_io_file_open(g->io, g->file[i], setup->access, &e, &g->f[i]),
                         SLUICE_OK);
    }
    sl_expert_sizes(shapes, LAYERS, &g->sizes);
    g->config = (struct sl_expert_store_config){
        .io = g->io, .files = g->f, .shapes = shapes, .sources = sources, .n_layers = LAYERS};
    g->before_bytes = sl_budget_used(&budget);
    return true;
}

/* Slots in percent of the experts, but no fewer than the floor. */
static void rig_slots(struct rig *g, uint32_t percent)
{
    uint32_t total = 0;
    for (uint32_t k = 0; k < g->sizes.n_classes; k++) total += g->sizes.n_experts[k];
    if (!sl_expert_slots_for_count(&g->sizes, total * percent / 100, g->config.n_slots))
        for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
            g->config.n_slots[k] = g->sizes.floor.fewest[k];
}

static void rig_open(struct rig *g)
{
    sluice_error e = {0};
    sluice_err err = sl_expert_store_open(&g->config, &budget, &e, &g->s);
    if (err != SLUICE_OK) print_message("%s\n", e.text);
    assert_int_equal(err, SLUICE_OK);
    assert_int_equal(sl_budget_used(&budget) - g->before_bytes,
                     sl_expert_store_bytes(shapes, LAYERS, &g->sizes, g->config.n_slots));
}

static void rig_close_store(struct rig *g)
{
    sl_expert_store_close(g->s);
    g->s = NULL;
    assert_int_equal(sl_io_outstanding(g->io), 0);
    assert_int_equal(sl_budget_used(&budget), g->before_bytes);
}

static void rig_end(struct rig *g)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_io_file_close(g->f[i]);
        sl_file_close(g->file[i]);
    }
    sl_io_close(g->io);
    assert_int_equal(sl_budget_used(&budget), 0);
}

/* After a settle: no read and no lease is left, and every byte read ahead was useful, wasted, or
 * waits in its slot. */
static void check_quiet(const struct sl_expert_store *s)
{
    uint64_t unused = 0;
    assert_int_equal(s->n_flights + s->n_needed + s->n_batch + s->coming.n_held, 0);
    for (uint32_t k = 0; k < FETCH_WHYS; k++) assert_int_equal(s->flights_of[k], 0);
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) assert_int_equal(s->leased_of[k], 0);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        assert_int_equal(s->slots[i].flight, SL_EC_NONE);
        if (s->slots[i].guess != 0) unused += s->layers[s->slots[i].layer].expert_bytes;
    }
    const struct sl_expert_stats *t = &s->stats;
    assert_int_equal(t->ahead_bytes, t->ahead_useful_bytes + t->ahead_wasted_bytes + unused);
    sl_ec_check(s->ec);
}

/* ---- chunks -------------------------------------------------------------------------------- */

static bool view_is_right(uint32_t l, const struct sl_expert_ready *r)
{
    uint32_t n = plans[l].n_parts;
    for (uint32_t p = 0; p < n; p++) {
        bool promised =
            (r->steps & SL_EXPERT_OUTPUT) || ((r->steps & SL_EXPERT_INPUTS) && p + 1 < n);
        if (r->view.part[p] == NULL && promised) return false;
        if (r->view.part[p] == NULL) continue;
        const unsigned char *want = data[plans[l].shard] + offset_of(l, r->expert, p);
        if (memcmp(r->view.part[p], want, plans[l].bytes[p]) != 0) return false;
    }
    return true;
}

struct choice {
    uint32_t layer, n_tokens;
    bool in_order;
    uint32_t chosen[64 * TOP_K_MAX];
    uint32_t n_distinct;
    bool is_chosen[EXPERTS_MAX];
};

/* Skewed, so that some experts are hot; now and then fewer than top_k. */
static void choose(struct choice *c, uint32_t layer, uint32_t n_tokens, bool in_order)
{
    memset(c, 0, sizeof *c);
    c->layer = layer;
    c->n_tokens = n_tokens;
    c->in_order = in_order;
    uint32_t n = plans[layer].n_experts, top_k = plans[layer].top_k;
    for (uint32_t t = 0; t < n_tokens; t++) {
        bool taken[EXPERTS_MAX] = {false};
        for (uint32_t k = 0; k < top_k; k++) {
            uint32_t x;
            do {
                x = random_below(2) ? random_below(n) : random_below(n / 2);
            } while (taken[x]);
            taken[x] = true;
            bool none = random_below(20) == 0;
            c->chosen[t * top_k + k] = none ? SL_EC_NONE : x;
            if (none || c->is_chosen[x]) continue;
            c->is_chosen[x] = true;
            c->n_distinct++;
        }
    }
}

static struct sl_expert_need need_of(const struct choice *c)
{
    return (struct sl_expert_need){c->layer, c->n_tokens, plans[c->layer].top_k, c->chosen,
                                   c->in_order};
}

/* Takes a begun chunk through to its end, checking every view; between, if not NULL, is called
 * after each batch. Returns SLUICE_OK or the error of next; *right tells whether all bytes were. */
static sluice_err run_chunk(struct sl_expert_store *s, const struct choice *c,
                            void (*between)(struct sl_expert_store *s, const struct choice *c),
                            bool *right, sluice_error *e)
{
    uint32_t handed[EXPERTS_MAX] = {0}, done = 0, last = 0;
    struct sl_expert_need need = need_of(c);
    *right = true;
    sl_expert_begin(s, &need);
    for (;;) {
        struct sl_expert_ready out[8];
        uint32_t n, max = 1 + random_below(8);
        sluice_err err = sl_expert_next(s, out, max, &n, e);
        if (err != SLUICE_OK) {
            sl_expert_end(s);
            return err;
        }
        if (n == 0) break;
        assert_true(n <= max);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t x = out[i].expert;
            assert_true(x < plans[c->layer].n_experts && c->is_chosen[x]);
            assert_true(i == 0 || x > out[i - 1].expert);
            assert_int_equal(handed[x] & out[i].steps, 0);
            if (c->in_order) {
                assert_int_equal(out[i].steps, SL_EXPERT_INPUTS | SL_EXPERT_OUTPUT);
                assert_true(done == 0 || x > last);
                last = x;
            }
            handed[x] |= out[i].steps;
            if (handed[x] & SL_EXPERT_OUTPUT) assert_true(handed[x] & SL_EXPERT_INPUTS);
            if (!view_is_right(c->layer, &out[i])) *right = false;
            done += (out[i].steps & SL_EXPERT_OUTPUT) != 0;
        }
        if (between != NULL) between(s, c);
        for (uint32_t i = 0; i < n; i++) {
            if (!view_is_right(c->layer, &out[i])) *right = false; /* still */
            if (out[i].steps & SL_EXPERT_OUTPUT) sl_expert_release(s, out[i].expert);
        }
    }
    assert_int_equal(done, c->n_distinct);
    sl_expert_end(s);
    return SLUICE_OK;
}

#endif
