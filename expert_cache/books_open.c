/* Opening and closing the books, and what can be asked about them as a whole. */
#include "expert_cache/books.h"

#include <math.h>

struct sizes {
    uint64_t entries, keys, slots, turns;
    uint64_t past; /* 0: nothing is remembered */
};

static const struct sl_ec_policy *policy_of(const struct sl_ec_config *c)
{
    return c->policy != NULL ? c->policy : sl_ec_policy_at(0);
}

void sl_ec_floor(const struct sl_ec_layer *layers, uint32_t n_layers, struct sl_ec_floor *out)
{
    *out = (struct sl_ec_floor){{0}, {0}};
    for (uint32_t i = 0; i < n_layers; i++) {
        const struct sl_ec_layer *l = &layers[i];
        if (l->n_experts == 0) continue;
        SLUICE_ASSERT(l->size_class < SL_EC_CLASSES_MAX);
        uint32_t *fewest = &out->fewest[l->size_class];
        if (l->top_k > *fewest) *fewest = l->top_k;
        out->lru_hits[l->size_class] += l->top_k;
    }
}

/* ---- sizes -------------------------------------------------------------------------------------
 */

static bool layer_legal(const struct sl_ec_layer *l)
{
    if (l->n_experts == 0) return true;
    return l->n_experts <= SL_EXPERTS_MAX && l->top_k >= 1 && l->top_k <= l->n_experts &&
           l->top_k <= SL_TOP_K_MAX && l->n_parts >= 1 && l->n_parts <= SL_EC_PARTS_MAX &&
           l->size_class < SL_EC_CLASSES_MAX;
}

static bool config_legal(const struct sl_ec_config *c, struct sizes *n)
{
    *n = (struct sizes){0, 0, 0, 0, 0};
    if (c->n_layers == 0 || c->n_layers > SL_LAYERS_MAX || c->ring_slots == 0) return false;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        if (!layer_legal(&c->layers[i])) return false;
        n->entries += c->layers[i].n_experts;
        n->keys += keys_of(c->layers[i].n_experts);
        n->turns += c->layers[i].n_experts > 0;
        if (c->layers[i].n_experts > 0) n->past += (uint64_t)RECALL_SPAN * c->layers[i].top_k;
    }
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) n->slots += c->n_slots[k];
    if (policy_of(c)->recall_weight == 0 || n->slots >= n->entries) n->past = 0;
    return n->entries > 0 && n->slots > 0 && n->slots <= SL_EC_SLOTS_MAX;
}

static uint64_t recall_bytes(const struct sizes *n)
{
    if (n->past == 0) return 0;
    return sl_arena_piece_bytes(n->past, sizeof(uint16_t)) +
           sl_arena_piece_bytes(n->turns * RECALL_SPAN, sizeof(double)) +
           sl_arena_piece_bytes(n->entries, sizeof(double));
}

static uint64_t arena_bytes(const struct sl_ec_config *c, const struct sizes *n)
{
    return sl_arena_piece_bytes(c->n_layers, sizeof(struct layer)) +
           sl_arena_piece_bytes(n->entries, sizeof(struct entry)) +
           COLD_KINDS * sl_arena_piece_bytes(n->keys, sizeof(double)) +
           sl_arena_piece_bytes(n->slots, sizeof(struct slot)) +
           sl_arena_piece_bytes(n->turns, sizeof(uint32_t)) +
           sl_arena_piece_bytes(n->turns + 1, sizeof(double)) + recall_bytes(n);
}

uint64_t sl_ec_bytes(const struct sl_ec_config *c)
{
    struct sizes n;
    if (!config_legal(c, &n)) return 0;
    return SL_BLOCK_OVERHEAD_BYTES + sizeof(struct sl_ec) + SL_ARENA_CHUNK_OVERHEAD_BYTES +
           arena_bytes(c, &n);
}

/* ---- open --------------------------------------------------------------------------------------
 */

static bool take_recall(struct sl_ec *c, const struct sizes *n)
{
    struct recall *r = &c->recall;
    r->latest = SL_EC_NONE;
    if (n->past == 0) return true;
    r->past = sl_arena_alloc(&c->arena, n->past, sizeof *r->past);
    r->alike = sl_arena_alloc(&c->arena, n->turns * RECALL_SPAN, sizeof *r->alike);
    r->follows = sl_arena_alloc(&c->arena, n->entries, sizeof *r->follows);
    return r->past && r->alike && r->follows;
}

static sluice_err take_memory(struct sl_ec *c, const struct sl_ec_config *config,
                              const struct sizes *n)
{
    struct sl_arena *a = &c->arena;
    c->layers = sl_arena_alloc(a, config->n_layers, sizeof *c->layers);
    c->entries = sl_arena_alloc(a, n->entries, sizeof *c->entries);
    for (int kind = 0; kind < COLD_KINDS; kind++)
        c->keys[kind] = sl_arena_alloc(a, n->keys, sizeof(double));
    c->slots = sl_arena_alloc(a, n->slots, sizeof *c->slots);
    c->members = sl_arena_alloc(a, n->turns, sizeof *c->members);
    c->wait = sl_arena_alloc(a, n->turns + 1, sizeof *c->wait);
    bool all =
        c->layers && c->entries && c->keys[0] && c->keys[1] && c->slots && c->members && c->wait;
    all = take_recall(c, n) && all;
    return all ? SLUICE_OK : SLUICE_E_NOMEM;
}

static void fill_layers(struct sl_ec *c, const struct sl_ec_config *config)
{
    uint32_t turn = 0, first = 0, first_key = 0, first_past = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const struct sl_ec_layer *from = &config->layers[i];
        c->layers[i] = (struct layer){
            .first = first,
            .first_key = first_key,
            .expires = UINT64_MAX,
            .cold = {{0, 0, SL_EC_NONE}, {0, 0, SL_EC_NONE}},
            .n_experts = from->n_experts,
            .top_k = from->n_experts > 0 ? from->top_k : 0,
            .first_past = first_past,
            .turn = from->n_experts > 0 ? turn++ : 0,
            .size_class = from->n_experts > 0 ? from->size_class : 0,
        };
        if (from->n_experts > 0) c->layers[i].all_parts = (uint8_t)((1u << from->n_parts) - 1);
        first += from->n_experts;
        first_key += keys_of(from->n_experts);
        first_past += RECALL_SPAN * c->layers[i].top_k;
    }
    for (uint32_t i = 0; i < c->n_entries; i++) c->entries[i].slot = SL_EC_NONE;
    for (uint32_t i = 0; i < first_key; i++)
        c->keys[COLD_FREE][i] = c->keys[COLD_PROTECTED][i] = INFINITY;
    for (uint32_t i = 1; i <= c->n_turns; i++)
        c->wait[i] = c->policy->wait ? c->policy->wait(i, c->n_turns) : 0;
}

static void fill_class(struct sl_ec *c, uint32_t index, uint32_t first_slot, uint32_t first_member)
{
    struct size_class *k = &c->classes[index];
    k->first_slot = first_slot;
    k->first_member = first_member;
    for (uint32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].n_experts > 0 && c->layers[i].size_class == index)
            c->members[first_member + k->n_members++] = i;
    k->n_free = k->n_slots;
    k->free_head = k->n_slots > 0 ? first_slot : SL_EC_NONE;
    for (uint32_t i = 0; i < k->n_slots; i++) {
        uint32_t slot = first_slot + i;
        c->slots[slot] = (struct slot){.layer = SL_EC_NONE, .expert = SL_EC_NONE};
        c->slots[slot].size_class = (uint8_t)index;
        c->slots[slot].next_free = i + 1 < k->n_slots ? slot + 1 : SL_EC_NONE;
    }
}

static void fill_classes(struct sl_ec *c, const struct sl_ec_config *config,
                         const struct sl_ec_floor *floor)
{
    uint32_t first_slot = 0, first_member = 0;
    for (uint32_t i = 0; i < SL_EC_CLASSES_MAX; i++) {
        c->classes[i] = (struct size_class){.n_slots = config->n_slots[i]};
        c->classes[i].fewest = floor->fewest[i];
        fill_class(c, i, first_slot, first_member);
        first_slot += c->classes[i].n_slots;
        first_member += c->classes[i].n_members;
    }
}

static sluice_err enough_slots(const struct sl_ec_config *c, const struct sl_ec_floor *floor,
                               sluice_error *e)
{
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        if (c->n_slots[k] < floor->fewest[k])
            return sl_fail(
                e, SLUICE_E_BUDGET,
                "%u expert slots of size class %u are too few: one layer uses %u at once",
                c->n_slots[k], k, floor->fewest[k]);
    return SLUICE_OK;
}

sluice_err sl_ec_open(const struct sl_ec_config *config, struct sl_budget *b, sluice_error *e,
                      struct sl_ec **out)
{
    *out = NULL;
    struct sizes n;
    if (!config_legal(config, &n))
        return sl_fail(e, SLUICE_E_ARG, "the expert cache was asked for an impossible shape");
    struct sl_ec_floor floor;
    sl_ec_floor(config->layers, config->n_layers, &floor);
    sluice_err err = enough_slots(config, &floor, e);
    if (err != SLUICE_OK) return err;
    struct sl_ec *c = sl_alloc(b, 1, sizeof *c);
    if (c != NULL) {
        sl_arena_init(&c->arena, b, arena_bytes(config, &n));
        err = take_memory(c, config, &n);
    }
    if (c == NULL || err != SLUICE_OK) {
        sl_ec_close(c);
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the books of the expert cache: %llu bytes",
                       (unsigned long long)sl_ec_bytes(config));
    }
    c->policy = policy_of(config);
    c->n_layers = config->n_layers;
    c->n_entries = (uint32_t)n.entries;
    c->n_slots = (uint32_t)n.slots;
    c->n_turns = (uint32_t)n.turns;
    c->ring_slots = config->ring_slots;
    c->visiting = SL_EC_NONE;
    c->now_turn = c->n_turns - 1; /* as if the last layer had just been visited */
    fill_layers(c, config);
    fill_classes(c, config, &floor);
    *out = c;
    return SLUICE_OK;
}

void sl_ec_close(struct sl_ec *c)
{
    if (c == NULL) return;
    SLUICE_ASSERT(c->stats.leased == 0);
    SLUICE_ASSERT(c->stats.in_flight == 0);
    sl_arena_deinit(&c->arena);
    sl_free(c);
}

/* ---- questions ---------------------------------------------------------------------------------
 */

uint32_t sl_ec_free_slots(const struct sl_ec *c, uint32_t size_class)
{
    SLUICE_ASSERT(size_class < SL_EC_CLASSES_MAX);
    return c->classes[size_class].n_free;
}

void sl_ec_stats(const struct sl_ec *c, struct sl_ec_stats *out)
{
    *out = c->stats;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
        out->free_slots += c->classes[k].n_free;
        out->closed += c->classes[k].n_closed;
    }
}

static bool colder(const struct sl_ec_hot *a, const struct sl_ec_hot *b)
{
    return a->score != b->score ? a->score < b->score : a->last_use < b->last_use;
}

/* Restores the heap (coldest on top) below place i. */
static void sift_down(struct sl_ec_hot *heap, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t least = i;
        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (colder(&heap[child], &heap[least])) least = child;
        if (least == i) return;
        struct sl_ec_hot swap = heap[i];
        heap[i] = heap[least];
        heap[least] = swap;
        i = least;
    }
}

/* Keeps the max hottest seen so far in a heap, then takes the coldest off again and again. */
uint32_t sl_ec_hottest(const struct sl_ec *c, struct sl_ec_hot *out, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < c->n_layers && max > 0; l++)
        for (uint32_t x = 0; x < c->layers[l].n_experts; x++) {
            const struct sl_ec_heat *h = &entry_of(c, l, x)->heat;
            if (h->visit == 0) continue;
            /* without what is expected next: a hot list is for other texts */
            double score = c->policy->score(h, c->layers[l].visits);
            struct sl_ec_hot hot = {l, x, score, h->last_use};
            if (n < max) {
                out[n++] = hot;
                for (uint32_t i = n == max ? max / 2 : 0; i-- > 0;) sift_down(out, n, i);
            } else if (colder(&out[0], &hot)) {
                out[0] = hot;
                sift_down(out, n, 0);
            }
        }
    for (uint32_t i = n / 2; i-- > 0;) sift_down(out, n, i);
    for (uint32_t left = n; left > 1; left--) {
        struct sl_ec_hot coldest = out[0];
        out[0] = out[left - 1];
        out[left - 1] = coldest;
        sift_down(out, left - 1, 0);
    }
    return n;
}
