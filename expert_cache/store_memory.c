/* Fewer slots, and more again: memory is given back at once, slot by slot, and taken again as far
 * as the budget allows. Classes shrink and grow in proportion. */
#include "expert_cache/store.h"

static uint64_t slot_offset(const struct sl_expert_store *s, uint32_t k, uint32_t slot)
{
    return s->class_at[k] + (slot - s->first_slot[k]) * s->slot_bytes[k];
}

/* The class with the largest part of its slots open, or the smallest, among those marked. */
static uint32_t pick_class(const struct sl_expert_store *s, uint32_t among, bool fullest)
{
    uint32_t best = SL_EC_NONE;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
        if (!(among >> k & 1)) continue;
        uint64_t mine = best == SL_EC_NONE ? 0 : (uint64_t)s->open_of[k] * s->slots_of[best];
        uint64_t other = best == SL_EC_NONE ? 0 : (uint64_t)s->open_of[best] * s->slots_of[k];
        if (best == SL_EC_NONE || (fullest ? mine > other : mine < other)) best = k;
    }
    return best;
}

static void close_slot(struct sl_expert_store *s, uint32_t k, uint32_t slot)
{
    struct store_slot *x = &s->slots[slot];
    if (x->guess != 0) store_guess_wasted(s, x->layer, slot, s->layers[x->layer].expert_bytes);
    x->closed = true;
    s->open_of[k]--;
    store_tell(s, SL_TRACE_SLOT_CLOSED, 0, k, 0);
    sl_region_discard(&s->memory, slot_offset(s, k, slot), s->slot_bytes[k]);
}

uint64_t sl_expert_store_shrink(struct sl_expert_store *s, uint64_t bytes)
{
    uint64_t given = 0;
    uint32_t among = 0;
    if (s->ec == NULL) return 0;
    sl_expert_settle(s);
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        if (s->slots_of[k] > 0) among |= 1u << k;
    while (given < bytes && among != 0) {
        uint32_t k = pick_class(s, among, true);
        uint32_t slot = sl_ec_slot_close(s->ec, k);
        if (slot == SL_EC_NONE) {
            among &= ~(1u << k);
            continue;
        }
        close_slot(s, k, slot);
        given += s->slot_bytes[k];
    }
    return given;
}

/* A closed slot of the class; there is one. */
static uint32_t closed_slot(const struct sl_expert_store *s, uint32_t k)
{
    uint32_t slot = s->first_slot[k];
    while (!s->slots[slot].closed) slot++;
    return slot;
}

void sl_expert_store_regrow(struct sl_expert_store *s)
{
    uint32_t among = 0;
    if (s->ec == NULL) return;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
        if (s->open_of[k] < s->slots_of[k]) among |= 1u << k;
    while (among != 0) {
        uint32_t k = pick_class(s, among, false);
        uint32_t slot = closed_slot(s, k);
        if (sl_region_refill(&s->memory, slot_offset(s, k, slot), s->slot_bytes[k]) != SLUICE_OK) {
            among &= ~(1u << k);
            continue;
        }
        s->slots[slot].closed = false;
        sl_ec_slot_open(s->ec, slot);
        store_tell(s, SL_TRACE_SLOT_OPENED, 0, slot, 0);
        if (++s->open_of[k] == s->slots_of[k]) among &= ~(1u << k);
    }
}
