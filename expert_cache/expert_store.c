/* Opening and closing the paged store, and its figures. See store.h for the other files. */
#include "expert_cache/expert_store.h"

#include "expert_cache/store.h"

/* ---- open --------------------------------------------------------------------------------------
 */

static void fill_layer(struct sl_expert_store *s, const struct sl_expert_store_config *c,
                       const struct sl_expert_sizes *z, uint32_t index)
{
    struct store_layer *l = &s->layers[index];
    l->shape = c->shapes[index];
    l->source = &c->sources[index];
    l->size_class = z->class_of[index];
    if (l->shape.n_experts == 0) return;
    l->turn = s->n_turns++;
    uint64_t at = 0;
    l->n_reads = store_n_reads(&l->shape);
    for (uint32_t r = 0; r < l->n_reads; r++) {
        uint64_t bytes = store_read_bytes(&l->shape, r);
        l->read_at[r] = at;
        at += store_part_room(s->block, bytes);
        l->expert_bytes += bytes;
    }
    l->all_reads = (uint8_t)((1u << l->n_reads) - 1);
    l->input_reads = (uint8_t)(l->n_reads == 1 ? l->all_reads : l->all_reads >> 1);
}

static void fill_layers(struct sl_expert_store *s, const struct sl_expert_store_config *c,
                        const struct sl_expert_sizes *z)
{
    uint32_t first = 0;
    uint64_t first_sum = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        fill_layer(s, c, z, l);
        s->layers[l].first = first;
        s->layers[l].first_sum = first_sum;
        first += c->shapes[l].n_experts;
        first_sum += (uint64_t)c->shapes[l].n_experts * store_n_reads(&c->shapes[l]);
    }
    s->n_layers = c->n_layers;
    s->now_turn = s->n_turns > 0 ? s->n_turns - 1 : 0; /* the first layer is next */
}

static void count_all(const struct sl_expert_store_config *c, const struct sl_expert_sizes *z,
                      struct store_counts *n)
{
    *n = (struct store_counts){.n_layers = c->n_layers};
    for (uint32_t l = 0; l < c->n_layers; l++) {
        n->n_experts += c->shapes[l].n_experts;
        n->n_sums += (uint64_t)c->shapes[l].n_experts * store_n_reads(&c->shapes[l]);
    }
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        n->n_slots += sl_min_u64(c->n_slots[k], z->n_experts[k]);
}

static sluice_err open_books(struct sl_expert_store *s, const struct sl_expert_store_config *c,
                             const struct sl_expert_sizes *z, sluice_error *e)
{
    struct sl_ec_layer layers[SL_LAYERS_MAX];
    struct sl_ec_config b = {.layers = layers, .n_layers = c->n_layers, .policy = c->policy};
    store_books_layers(c->shapes, c->n_layers, z, layers);
    uint64_t at = 0;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
        b.n_slots[k] = (uint32_t)sl_min_u64(c->n_slots[k], z->n_experts[k]);
        s->slots_of[k] = s->open_of[k] = b.n_slots[k];
        s->first_slot[k] = s->n_slots;
        s->slot_bytes[k] = z->slot_bytes[k];
        s->class_at[k] = at;
        s->n_slots += b.n_slots[k];
        at += b.n_slots[k] * z->slot_bytes[k];
    }
    b.ring_slots = s->ring_slots = sl_expert_ring_slots(b.n_slots);
    sluice_err err = sl_ec_open(&b, s->budget, e, &s->ec);
    if (err != SLUICE_OK) return err;
    err = sl_region_reserve(&s->memory, s->budget, at);
    if (err == SLUICE_OK) err = sl_region_commit(&s->memory, at);
    if (err != SLUICE_OK)
        return sl_fail(e, err, "no memory for %u expert slots: %llu bytes wanted", s->n_slots,
                       (unsigned long long)at);
    /* Experts are read from end to end: with pages of 4 KiB, address translation in a virtual
     * machine takes most of that time. Resident experts summed up by one thread (Linux 6.18,
     * Zen 3): 9 to 11 GB/s, with large pages 24 to 28. */
    sl_region_prefer_huge(&s->memory);
    return SLUICE_OK;
}

static bool take_tables(struct sl_expert_store *s, const struct store_counts *n, bool map)
{
    struct sl_arena *a = &s->arena;
    sl_arena_init(a, s->budget, store_arena_bytes(n, map));
    s->layers = sl_arena_alloc(a, n->n_layers, sizeof *s->layers);
    s->sums = sl_arena_alloc(a, n->n_sums, sizeof *s->sums);
    if (map) return s->layers != NULL && s->sums != NULL;
    s->slots = sl_arena_alloc(a, n->n_slots, sizeof *s->slots);
    s->predicted = sl_arena_alloc(a, n->n_experts, sizeof *s->predicted);
    s->hot = sl_arena_alloc(a, n->n_slots, sizeof *s->hot);
    s->warm.ids = sl_arena_alloc(a, n->n_slots, sizeof *s->warm.ids);
    s->flights = sl_arena_alloc(a, FLIGHTS_MAX, sizeof *s->flights);
    return s->layers && s->slots && s->sums && s->predicted && s->hot && s->warm.ids && s->flights;
}

/* A direct read of a part may touch a block on either side of it; its area has room for ours. */
static sluice_err check_blocks(const struct sl_expert_store *s, sluice_error *e)
{
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const struct store_layer *y = &s->layers[l];
        for (uint32_t x = 0; x < y->shape.n_experts; x++)
            for (uint32_t p = 0; p < y->shape.n_parts; p++) {
                const struct sl_io_file *f = s->files[store_part_tensor(y, x, p)->shard];
                if (sl_io_file_block(f) > s->block)
                    return sl_fail(e, SLUICE_E_ARG, "'%s' needs blocks larger than %u bytes",
                                   sl_file_path(sl_io_file_of(f)), s->block);
            }
    }
    return SLUICE_OK;
}

static bool is_whole(const struct sl_expert_store *s, const struct sl_expert_sizes *z)
{
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        if (s->slots_of[k] != z->n_experts[k]) return false;
    return true;
}

static sluice_err open_rest(struct sl_expert_store *s, const struct sl_expert_store_config *c,
                            sluice_error *e)
{
    struct sl_expert_sizes z;
    struct store_counts n;
    sl_expert_sizes(c->shapes, c->n_layers, &z);
    count_all(c, &z, &n);
    if (!take_tables(s, &n, c->map))
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the tables of the expert store");
    fill_layers(s, c, &z);
    s->whole = c->map;
    if (c->map) return store_map_open(s, e);
    store_flights_init(s);
    for (uint32_t i = 0; i < n.n_slots; i++) s->slots[i].flight = SL_EC_NONE;
    sl_read_ahead_init(&s->ahead, c->read_ahead);
    sluice_err err = check_blocks(s, e);
    if (err == SLUICE_OK) err = open_books(s, c, &z, e);
    s->whole = err == SLUICE_OK && is_whole(s, &z);
    if (!s->whole) return err;
    return store_load_all(s, c, e);
}

sluice_err sl_expert_store_open(const struct sl_expert_store_config *c, struct sl_budget *b,
                                sluice_error *e, struct sl_expert_store **out)
{
    static const struct sl_log silent = {0};
    *out = NULL;
    SLUICE_ASSERT(c->n_layers <= SL_LAYERS_MAX);
    struct sl_expert_store *s = sl_alloc(b, 1, sizeof *s);
    if (s == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the expert store");
    s->budget = b;
    s->log = c->log != NULL ? c->log : &silent;
    s->watch = c->watch;
    s->gguf = c->gguf;
    s->sums_file = c->sums;
    s->io = c->io;
    s->files = c->files;
    s->block = sl_expert_block();
    s->coming.layer = SL_EC_NONE;
    sluice_err err = open_rest(s, c, e);
    if (err != SLUICE_OK) {
        sl_expert_store_close(s);
        return err;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_expert_store_close(struct sl_expert_store *s)
{
    if (s == NULL) return;
    SLUICE_ASSERT(!s->chunk.open);
    if (s->ec != NULL) sl_expert_settle(s);
    sl_ec_close(s->ec);
    store_map_close(s);
    sl_region_deinit(&s->memory);
    sl_arena_deinit(&s->arena);
    sl_free(s);
}

bool sl_expert_store_is_whole(const struct sl_expert_store *s)
{
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        if (s->open_of[k] < s->slots_of[k]) return false;
    return s->whole;
}

/* ---- figures -----------------------------------------------------------------------------------
 */

void sl_expert_get_stats(const struct sl_expert_store *s, struct sl_expert_stats *out)
{
    struct sl_ec_stats books;
    *out = s->stats;
    if (s->ec == NULL) return;
    sl_ec_stats(s->ec, &books);
    out->evictions = books.evictions;
    out->n_slots = s->n_slots;
    out->n_resident = books.residents;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
        out->n_open += s->open_of[k];
        out->slot_bytes_open += s->open_of[k] * s->slot_bytes[k];
    }
}

void sl_expert_get_layer_stats(const struct sl_expert_store *s, uint32_t layer,
                               struct sl_expert_layer_stats *out)
{
    SLUICE_ASSERT(layer < s->n_layers);
    *out = s->layers[layer].stats;
}
