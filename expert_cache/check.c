/* Proves that the books are whole: each table against every other, each kept answer against one
 * found afresh. A broken one is a fault of this folder or of a caller, and goes to the assertion
 * handler with the sentence that failed. */
#include "expert_cache/books.h"

#include <math.h>

static void check_occupied(const struct sl_ec *c, uint32_t slot)
{
    const struct slot *s = &c->slots[slot];
    SLUICE_ASSERT(s->layer < c->n_layers);
    const struct layer *l = &c->layers[s->layer];
    SLUICE_ASSERT(s->expert < l->n_experts);
    SLUICE_ASSERT(l->size_class == s->size_class);
    const struct entry *x = &c->entries[l->first + s->expert];
    SLUICE_ASSERT(x->slot == slot);
    SLUICE_ASSERT((s->parts & ~l->all_parts) == 0);
    SLUICE_ASSERT((s->state == SLOT_READY) == (s->parts == l->all_parts));
    SLUICE_ASSERT(!s->passing || s->state == SLOT_IN_FLIGHT || s->leases > 0);
}

static void check_unoccupied(const struct slot *s)
{
    SLUICE_ASSERT(s->layer == SL_EC_NONE && s->expert == SL_EC_NONE);
    SLUICE_ASSERT(s->parts == 0 && !s->passing && !s->guess);
    SLUICE_ASSERT((s->state == SLOT_DOOMED) == (s->leases > 0));
}

struct tally {
    uint32_t occupied, in_flight, leased, empty, closed, passing;
};

static void check_slots(const struct sl_ec *c, const struct size_class *k, struct tally *t)
{
    for (uint32_t i = 0; i < k->n_slots; i++) {
        const struct slot *s = &c->slots[k->first_slot + i];
        SLUICE_ASSERT(&c->classes[s->size_class] == k);
        bool occupied = s->state == SLOT_IN_FLIGHT || s->state == SLOT_READY;
        if (occupied)
            check_occupied(c, k->first_slot + i);
        else
            check_unoccupied(s);
        t->occupied += occupied;
        t->in_flight += s->state == SLOT_IN_FLIGHT;
        t->leased += s->leases > 0;
        t->empty += s->state == SLOT_EMPTY;
        t->closed += s->state == SLOT_CLOSED;
        t->passing += s->passing;
    }
}

static void check_class(const struct sl_ec *c, const struct size_class *k, struct tally *sum)
{
    struct tally t = {0, 0, 0, 0, 0, 0};
    check_slots(c, k, &t);
    SLUICE_ASSERT(t.empty == k->n_free);
    SLUICE_ASSERT(t.closed == k->n_closed);
    SLUICE_ASSERT(t.passing == k->n_passing);
    SLUICE_ASSERT(k->n_slots - k->n_closed >= k->fewest);
    uint32_t listed = 0;
    for (uint32_t s = k->free_head; s != SL_EC_NONE; s = c->slots[s].next_free) {
        SLUICE_ASSERT(s >= k->first_slot && s - k->first_slot < k->n_slots);
        SLUICE_ASSERT(c->slots[s].state == SLOT_EMPTY);
        SLUICE_ASSERT(listed++ < k->n_free); /* no ring in the list */
    }
    SLUICE_ASSERT(listed == k->n_free);
    sum->occupied += t.occupied;
    sum->in_flight += t.in_flight;
    sum->leased += t.leased;
}

/* The row says whether the expert is a candidate of that kind, and its score. */
static void check_key(const struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    const struct layer *l = &c->layers[layer];
    double open = c->keys[COLD_FREE][l->first_key + expert];
    double guarded = c->keys[COLD_PROTECTED][l->first_key + expert];
    bool candidate = !isinf(open) || !isinf(guarded);
    SLUICE_ASSERT(candidate == books_evictable(c, layer, expert));
    SLUICE_ASSERT(isinf(open) || isinf(guarded));
    if (!candidate) return;
    uint64_t until = c->entries[l->first + expert].protected_until;
    if (until > c->clock) SLUICE_ASSERT(isinf(open) && l->expires <= until);
    if (until <= c->clock && c->clock < l->expires) SLUICE_ASSERT(isinf(guarded));
    if (!l->keyed) return;
    struct rank r = books_rank(c, layer, expert);
    SLUICE_ASSERT((isinf(open) ? guarded : open) == r.score);
    const struct rank *coldest = &l->cold[isinf(open) ? COLD_PROTECTED : COLD_FREE];
    if (l->known) SLUICE_ASSERT(!rank_before(&r, coldest));
}

static void check_layer(const struct sl_ec *c, uint32_t layer)
{
    const struct layer *l = &c->layers[layer];
    uint32_t resident = 0, evictable[COLD_KINDS] = {0, 0};
    for (uint32_t x = 0; x < l->n_experts; x++) {
        const struct entry *e = &c->entries[l->first + x];
        SLUICE_ASSERT(e->heat.visit <= l->visits && e->heat.last_use <= c->use_stamp);
        check_key(c, layer, x);
        for (int kind = 0; kind < COLD_KINDS; kind++)
            evictable[kind] += !isinf(c->keys[kind][l->first_key + x]);
        if (e->slot == SL_EC_NONE) continue;
        resident++;
        SLUICE_ASSERT(e->slot < c->n_slots);
        SLUICE_ASSERT(c->slots[e->slot].layer == layer && c->slots[e->slot].expert == x);
    }
    SLUICE_ASSERT(resident == l->n_residents);
    SLUICE_ASSERT(c->recall.past == NULL || l->foreseen || !l->keyed);
    for (int kind = 0; kind < COLD_KINDS; kind++)
        SLUICE_ASSERT(evictable[kind] == l->n_evictable[kind]);
    for (uint32_t i = l->n_experts; i < keys_of(l->n_experts); i++)
        SLUICE_ASSERT(isinf(c->keys[COLD_FREE][l->first_key + i]));
}

void sl_ec_check(const struct sl_ec *c)
{
    struct tally sum = {0, 0, 0, 0, 0, 0};
    uint32_t n_slots = 0, n_members = 0;
    for (uint32_t i = 0; i < SL_EC_CLASSES_MAX; i++) {
        SLUICE_ASSERT(c->classes[i].first_slot == n_slots);
        SLUICE_ASSERT(c->classes[i].first_member == n_members);
        check_class(c, &c->classes[i], &sum);
        n_slots += c->classes[i].n_slots;
        n_members += c->classes[i].n_members;
    }
    SLUICE_ASSERT(n_slots == c->n_slots && n_members == c->n_turns);
    for (uint32_t i = 0; i < c->n_layers; i++) check_layer(c, i);
    SLUICE_ASSERT(sum.occupied == c->stats.residents);
    SLUICE_ASSERT(sum.in_flight == c->stats.in_flight);
    SLUICE_ASSERT(sum.leased == c->stats.leased);
    for (uint32_t i = 0; i <= RECALL_NOBODY; i++) SLUICE_ASSERT(c->recall.mark[i] == 0);
}

#ifndef NDEBUG
#define CHECK_STEP 64 /* slots and experts that may be checked for each change, on average */

void books_changed(struct sl_ec *c)
{
    uint64_t every = 1 + (c->n_slots + c->n_entries) / CHECK_STEP;
    if (++c->changes % every == 0) sl_ec_check(c);
}
#endif
