/* The memory plan of the paged store: how large a slot is, how many fit, what open will charge. */
#include "expert_cache/store.h"

uint32_t sl_expert_block(void) { return (uint32_t)sl_max_u64(sl_page_bytes(), 4096); }

uint64_t sl_expert_shape_bytes(const struct sl_expert_shape *s)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < (s->n_experts > 0 ? store_n_reads(s) : 0); r++)
        sum += s->n_experts * store_read_bytes(s, r); /* who described it compared with the file */
    return sum;
}

uint64_t store_part_room(uint64_t block, uint64_t part_bytes)
{
    uint64_t room = sl_io_room((uint32_t)block, part_bytes);
    return (room + block - 1) & ~(block - 1);
}

void store_books_layers(const struct sl_expert_shape *shapes, uint32_t n_layers,
                        const struct sl_expert_sizes *z, struct sl_ec_layer *out)
{
    for (uint32_t l = 0; l < n_layers; l++)
        out[l] = (struct sl_ec_layer){shapes[l].n_experts, shapes[l].top_k,
                                      shapes[l].n_experts > 0 ? store_n_reads(&shapes[l]) : 0,
                                      z->class_of[l]};
}

void sl_expert_sizes(const struct sl_expert_shape *shapes, uint32_t n_layers,
                     struct sl_expert_sizes *out)
{
    uint64_t bytes[SL_LAYERS_MAX] = {0};
    struct sl_ec_layer layers[SL_LAYERS_MAX];
    SLUICE_ASSERT(n_layers <= SL_LAYERS_MAX);
    *out = (struct sl_expert_sizes){.n_classes = 0};
    for (uint32_t l = 0; l < n_layers; l++) {
        if (shapes[l].n_experts == 0) continue;
        for (uint32_t r = 0; r < store_n_reads(&shapes[l]); r++)
            bytes[l] += store_part_room(sl_expert_block(), store_read_bytes(&shapes[l], r));
        out->file_bytes += sl_expert_shape_bytes(&shapes[l]);
    }
    out->n_classes = sl_ec_size_classes(bytes, n_layers, out->class_of, out->slot_bytes);
    for (uint32_t l = 0; l < n_layers; l++) out->n_experts[out->class_of[l]] += shapes[l].n_experts;
    store_books_layers(shapes, n_layers, out, layers);
    sl_ec_floor(layers, n_layers, &out->floor);
}

/* ---- how many ----------------------------------------------------------------------------------
 */

/* The part that each class gets of t in whole, floor and ceiling kept: grows with t in each. */
static void share(const struct sl_expert_sizes *z, uint64_t t, uint32_t n[SL_EC_CLASSES_MAX])
{
    uint64_t all = 0;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) all += z->n_experts[k];
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
        uint64_t part = all > 0 ? t * z->n_experts[k] / all : 0;
        part = sl_max_u64(part, z->floor.fewest[k]);
        n[k] = (uint32_t)sl_min_u64(part, z->n_experts[k]);
    }
}

/* What limits the number of slots: bytes, or their total. */
struct limit {
    const struct sl_expert_shape *shapes; /* NULL: a total */
    uint32_t n_layers;
    const struct sl_expert_sizes *z;
    uint64_t most;
};

static bool fits(const struct limit *x, const uint32_t n[SL_EC_CLASSES_MAX])
{
    uint64_t total = 0;
    if (x->shapes != NULL) return sl_expert_store_bytes(x->shapes, x->n_layers, x->z, n) <= x->most;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) total += n[k];
    return total <= x->most;
}

/* The largest share that fits, then single slots for what rounding left. */
static bool divide(const struct limit *x, uint32_t n[SL_EC_CLASSES_MAX])
{
    share(x->z, 0, n);
    if (!fits(x, n)) return false;
    uint64_t low = 0, high = 0; /* low fits */
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) high += x->z->n_experts[k];
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        share(x->z, middle, n);
        if (fits(x, n))
            low = middle;
        else
            high = middle - 1;
    }
    share(x->z, low, n);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
            if (n[k] >= x->z->n_experts[k]) continue;
            n[k]++;
            if (fits(x, n))
                more = true;
            else
                n[k]--;
        }
    }
    return true;
}

bool sl_expert_slots_for_bytes(const struct sl_expert_shape *shapes, uint32_t n_layers,
                               const struct sl_expert_sizes *z, uint64_t bytes,
                               uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    struct limit x = {shapes, n_layers, z, bytes};
    return divide(&x, n_slots);
}

bool sl_expert_slots_for_count(const struct sl_expert_sizes *z, uint32_t total,
                               uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    struct limit x = {NULL, 0, z, total};
    return divide(&x, n_slots);
}

/* ---- what open charges -------------------------------------------------------------------------
 */

uint64_t store_arena_bytes(const struct store_counts *n, bool map)
{
    uint64_t sum = sl_arena_piece_bytes(n->n_layers, sizeof(struct store_layer)) +
                   sl_arena_piece_bytes(n->n_sums, sizeof(uint64_t));
    if (map) return sum;
    return sum + sl_arena_piece_bytes(n->n_slots, sizeof(struct store_slot)) +
           sl_arena_piece_bytes(n->n_experts, sizeof(uint8_t)) +
           sl_arena_piece_bytes(n->n_slots, sizeof(struct sl_ec_hot)) +
           sl_arena_piece_bytes(n->n_slots, sizeof(struct sl_expert_id)) +
           sl_arena_piece_bytes(FLIGHTS_MAX, sizeof(struct flight));
}

/* A quarter of the smallest class, so that prompts leave the residents alone, and no more than
 * keeps a drive busy. */
uint32_t sl_expert_ring_slots(const uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    uint32_t ring = RING_MAX;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        if (n_slots[k] > 0 && n_slots[k] / 4 < ring) ring = n_slots[k] / 4;
    return ring > 0 ? ring : 1;
}

uint64_t sl_expert_store_bytes(const struct sl_expert_shape *shapes, uint32_t n_layers,
                               const struct sl_expert_sizes *z,
                               const uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    struct sl_ec_layer layers[SL_LAYERS_MAX];
    struct sl_ec_config c = {.layers = layers, .n_layers = n_layers};
    struct store_counts n = {.n_layers = n_layers};
    store_books_layers(shapes, n_layers, z, layers);
    uint64_t slot_bytes = 0;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
        c.n_slots[k] = n_slots[k];
        n.n_slots += n_slots[k];
        slot_bytes += n_slots[k] * z->slot_bytes[k];
    }
    c.ring_slots = sl_expert_ring_slots(n_slots);
    for (uint32_t l = 0; l < n_layers; l++) {
        n.n_experts += shapes[l].n_experts;
        n.n_sums += (uint64_t)shapes[l].n_experts * store_n_reads(&shapes[l]);
    }
    return slot_bytes + sl_ec_bytes(&c) + SL_BLOCK_OVERHEAD_BYTES + sizeof(struct sl_expert_store) +
           SL_ARENA_CHUNK_OVERHEAD_BYTES + store_arena_bytes(&n, false);
}
