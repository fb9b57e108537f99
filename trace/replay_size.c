/* How many slots a cache has, from what a user says: a share of the experts, bytes, or a number.
 * Pools of unlike slots (size classes, or layers) get parts in proportion to their experts, as the
 * engine divides them (store_sizes.c). */
#include "trace/replay.h"

#include <math.h>

#include "trace/replay_choice.h"

/* A pool: experts that share slots of one size. */
struct part {
    uint64_t n_experts, fewest, slot_bytes;
};

struct division {
    struct part part[SL_LAYERS_MAX];
    uint32_t n_parts;
    uint64_t n_experts;
    uint64_t slots[SL_LAYERS_MAX]; /* out */
};

/* Bits a weight of an expert as recorded, padding included; 0: not known. */
static double recorded_bits(const struct sl_trace_layer_info *l)
{
    return l->weights > 0 ? (double)l->expert_bytes * 8 / (double)l->weights : 0;
}

double sl_replay_recorded_bits(const struct sl_trace_header *h)
{
    double least = 0;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        double bits = recorded_bits(&h->layer[l]);
        if (h->layer[l].n_experts > 0 && bits > 0 && (least == 0 || bits < least)) least = bits;
    }
    return least;
}

/* Experts of a container are records, which begin at multiples of this. */
#define RECORD_BLOCK UINT64_C(16384)

static bool is_container(const struct sl_trace_header *h)
{
    for (uint32_t l = 0; l < h->n_layers; l++)
        if (h->layer[l].n_experts > 0 && h->layer[l].expert_bytes % RECORD_BLOCK != 0) return false;
    return true;
}

uint64_t sl_replay_expert_bytes(const struct sl_trace_header *h, uint32_t layer, double bits)
{
    const struct sl_trace_layer_info *l = &h->layer[layer];
    double recorded = sl_replay_recorded_bits(h), step = 1;
    if (bits <= 0) return l->expert_bytes;
    if (recorded > 0 && recorded_bits(l) > 0) step = recorded_bits(l) / recorded;
    uint64_t bytes = (uint64_t)ceil((double)l->weights * bits / 8 * step);
    if (recorded > 0 && is_container(h))
        bytes = (bytes + RECORD_BLOCK - 1) / RECORD_BLOCK * RECORD_BLOCK;
    return bytes;
}

/* What a slot has beyond its expert's bytes stays as it was. */
static uint64_t slot_bytes(const struct sl_trace_header *h, uint32_t layer, double bits)
{
    const struct sl_trace_layer_info *l = &h->layer[layer];
    uint64_t bytes = sl_replay_expert_bytes(h, layer, bits);
    return l->slot_bytes > l->expert_bytes && bytes > 0 ? bytes + l->slot_bytes - l->expert_bytes
                                                        : bytes;
}

static void list_parts(const struct sl_trace *t, enum sl_replay_pool pool, double bits,
                       struct division *d)
{
    const struct sl_trace_header *h = &t->header;
    uint32_t top_k[SL_LAYERS_MAX];
    replay_top_k(t, top_k);
    d->n_parts = pool == SL_REPLAY_PER_LAYER ? h->n_layers : SL_TRACE_CLASSES;
    d->n_experts = 0;
    for (uint32_t i = 0; i < d->n_parts; i++) d->part[i] = (struct part){0, 0, 0};
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const struct sl_trace_layer_info *y = &h->layer[l];
        struct part *p = &d->part[pool == SL_REPLAY_PER_LAYER ? l : y->size_class];
        if (y->n_experts == 0) continue;
        p->n_experts += y->n_experts;
        p->fewest = sl_max_u64(p->fewest, top_k[l]);
        p->slot_bytes = sl_max_u64(p->slot_bytes, slot_bytes(h, l, bits));
        d->n_experts += y->n_experts;
    }
}

/* What the slots take, in bytes or as a number. */
static uint64_t cost(const struct division *d, bool in_bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < d->n_parts; i++)
        sum += d->slots[i] * (in_bytes ? d->part[i].slot_bytes : 1);
    return sum;
}

/* Each part's share of so many slots. */
static void share_out(struct division *d, uint64_t n)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        uint64_t part = sl_max_u64(n * d->part[i].n_experts / d->n_experts, d->part[i].fewest);
        d->slots[i] = sl_min_u64(part, d->part[i].n_experts);
    }
}

/* The most that fit: the largest share, then single slots for what rounding left. */
static bool divide(struct division *d, uint64_t most, bool in_bytes)
{
    share_out(d, 0);
    if (cost(d, in_bytes) > most) return false;
    uint64_t low = 0, high = d->n_experts; /* low fits */
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        share_out(d, middle);
        if (cost(d, in_bytes) <= most)
            low = middle;
        else
            high = middle - 1;
    }
    share_out(d, low);
    uint64_t left = most - cost(d, in_bytes);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < d->n_parts; i++) {
            uint64_t price = in_bytes ? d->part[i].slot_bytes : 1;
            if (d->slots[i] >= d->part[i].n_experts || price > left) continue;
            d->slots[i]++;
            left -= price;
            more = true;
        }
    }
    return true;
}

/* The share of each layer, rounded, and at least what a token chooses there. */
static void share_of_layers(const struct sl_trace *t, double share, struct sl_replay_config *c)
{
    const struct sl_trace_header *h = &t->header;
    uint32_t top_k[SL_LAYERS_MAX];
    replay_top_k(t, top_k);
    for (uint32_t l = 0; l < h->n_layers; l++) {
        uint32_t n = h->layer[l].n_experts;
        uint64_t slots = (uint64_t)floor(fmin(share, 1) * n + 0.5);
        slots = sl_min_u64(sl_max_u64(slots, top_k[l]), n);
        c->layer_slots[l] = (uint32_t)slots;
        c->n_slots[h->layer[l].size_class] += (uint32_t)slots;
    }
}

static sluice_err check_bits(const struct sl_trace *t, const struct sl_replay_size *size,
                             double bits, sluice_error *e)
{
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        const struct sl_trace_layer_info *y = &t->header.layer[l];
        if (y->n_experts == 0) continue;
        if (bits > 0 && y->weights == 0)
            return sl_fail(e, SLUICE_E_ARG,
                           "bits a weight were given, but the trace does not say how many weights "
                           "an expert of layer %u has",
                           l);
        if (size->share <= 0 && size->bytes > 0 && slot_bytes(&t->header, l, bits) == 0)
            return sl_fail(e, SLUICE_E_ARG,
                           "the trace does not say how many bytes an expert of layer %u has; give "
                           "cache sizes in percent of the experts or in slots",
                           l);
    }
    return SLUICE_OK;
}

static sluice_err fill_parts(const struct sl_replay_size *size, struct division *d,
                             struct sl_replay_config *c, sluice_error *e)
{
    bool in_bytes = size->bytes > 0;
    if (!divide(d, in_bytes ? size->bytes : size->slots, in_bytes)) {
        share_out(d, 0);
        return sl_fail(e, SLUICE_E_ARG,
                       in_bytes ? "a cache of %llu bytes is too small: one token takes %llu in a "
                                  "layer at once, of each size of slots"
                                : "%llu slots are too few: the least is %llu, what one token takes "
                                  "in a layer at once, of each size of slots",
                       (unsigned long long)(in_bytes ? size->bytes : size->slots),
                       (unsigned long long)cost(d, in_bytes));
    }
    for (uint32_t i = 0; i < d->n_parts; i++) {
        if (c->pool == SL_REPLAY_PER_LAYER)
            c->layer_slots[i] = (uint32_t)d->slots[i];
        else
            c->n_slots[i] = (uint32_t)d->slots[i];
    }
    return SLUICE_OK;
}

/* What the slots that c has now take; 0: not known. */
static uint64_t bytes_of(const struct division *d, const struct sl_replay_config *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        uint64_t slots = c->pool == SL_REPLAY_PER_LAYER ? c->layer_slots[i] : c->n_slots[i];
        if (slots > 0 && d->part[i].slot_bytes == 0) return 0;
        sum += slots * d->part[i].slot_bytes;
    }
    return sum;
}

sluice_err sl_replay_size(const struct sl_trace *t, const struct sl_replay_size *size, double bits,
                          struct sl_replay_config *c, uint64_t *bytes, sluice_error *e)
{
    struct division d;
    *bytes = 0;
    for (uint32_t k = 0; k < SL_TRACE_CLASSES; k++) c->n_slots[k] = 0;
    for (uint32_t l = 0; l < SL_LAYERS_MAX; l++) c->layer_slots[l] = 0;
    sluice_err err = check_bits(t, size, bits, e);
    if (err != SLUICE_OK) return err;
    list_parts(t, c->pool, bits, &d);
    if (d.n_experts == 0) return sl_fail(e, SLUICE_E_ARG, "the trace has no layer with experts");
    if (size->share > 0)
        share_of_layers(t, size->share, c);
    else
        err = fill_parts(size, &d, c, e);
    if (err == SLUICE_OK) *bytes = bytes_of(&d, c);
    return err;
}
