/* What happens to slots: visits, reservations, arrivals, leases. See expert_cache.h for the order
 * of calls and coldest.c for the choice of victims. */
#include "expert_cache/books.h"

/* ---- slots and their occupants -----------------------------------------------------------------
 */

static void assert_expert(const struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    SLUICE_ASSERT(layer < c->n_layers);
    SLUICE_ASSERT(expert < c->layers[layer].n_experts);
}

static void free_push(struct sl_ec *c, uint32_t slot)
{
    struct slot *s = &c->slots[slot];
    struct size_class *k = &c->classes[s->size_class];
    s->state = SLOT_EMPTY;
    s->next_free = k->free_head;
    k->free_head = slot;
    k->n_free++;
}

static uint32_t free_pop(struct sl_ec *c, uint32_t size_class)
{
    struct size_class *k = &c->classes[size_class];
    uint32_t slot = k->free_head;
    SLUICE_ASSERT(slot != SL_EC_NONE);
    k->free_head = c->slots[slot].next_free;
    k->n_free--;
    c->slots[slot].next_free = SL_EC_NONE;
    return slot;
}

static void occupy(struct sl_ec *c, uint32_t slot, uint32_t layer, uint32_t expert)
{
    struct layer *l = &c->layers[layer];
    struct entry *x = entry_of(c, layer, expert);
    struct slot *s = &c->slots[slot];
    s->layer = layer;
    s->expert = expert;
    s->state = SLOT_IN_FLIGHT;
    s->parts = 0;
    s->passing = s->guess = false;
    x->slot = slot;
    l->n_residents++;
    c->stats.residents++;
    c->stats.in_flight++;
}

/* Takes the occupant out of every table; the slot's state is the caller's business. */
static void vacate(struct sl_ec *c, uint32_t slot)
{
    struct slot *s = &c->slots[slot];
    struct layer *l = &c->layers[s->layer];
    struct entry *x = entry_of(c, s->layer, s->expert);
    books_withdraw(c, s->layer, s->expert);
    l->n_residents--;
    x->slot = SL_EC_NONE;
    if (s->passing) c->classes[s->size_class].n_passing--;
    s->passing = s->guess = false;
    s->parts = 0;
    s->layer = s->expert = SL_EC_NONE;
    c->stats.residents--;
}

/* ---- visits ------------------------------------------------------------------------------------
 */

static void count_use(struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    struct layer *l = &c->layers[layer];
    struct entry *x = entry_of(c, layer, expert);
    SLUICE_ASSERT(x->heat.visit != l->visits); /* chosen twice in one visit */
    c->policy->use(&x->heat, l->visits);
    x->heat.visit = l->visits;
    x->heat.last_use = ++c->use_stamp;
    c->chosen[c->n_chosen++] = expert;
    c->stats.uses++;
    books_withdraw(c, layer, expert);
    if (x->slot == SL_EC_NONE) return;
    struct slot *s = &c->slots[x->slot];
    if (s->state == SLOT_READY)
        c->stats.hits++;
    else
        c->stats.hits_flying++;
    if (s->guess) c->stats.guesses_used++;
    s->guess = false;
}

/* What the visit before had chosen may be evicted again. */
static void end_choice(struct sl_ec *c)
{
    uint32_t layer = c->visiting;
    c->visiting = SL_EC_NONE;
    for (uint32_t i = 0; i < c->n_chosen; i++) books_offer(c, layer, c->chosen[i]);
    c->n_chosen = 0;
}

void sl_ec_visit(struct sl_ec *c, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    SLUICE_ASSERT(layer < c->n_layers);
    struct layer *l = &c->layers[layer];
    SLUICE_ASSERT(n <= l->n_experts);
    c->clock++;
    end_choice(c);
    l->visits++;
    books_aged(c, layer, experts, n);
    c->visiting = layer;
    if (l->n_experts > 0) c->now_turn = l->turn;
    c->stats.visits++;
    for (uint32_t i = 0; i < n; i++) {
        assert_expert(c, layer, experts[i]);
        count_use(c, layer, experts[i]);
    }
    books_changed(c);
}

void sl_ec_visit_over(struct sl_ec *c)
{
    if (c->visiting != SL_EC_NONE) end_choice(c);
    books_changed(c);
}

void sl_ec_protect(struct sl_ec *c, uint32_t layer, uint32_t expert, uint32_t visits)
{
    assert_expert(c, layer, expert);
    struct entry *x = entry_of(c, layer, expert);
    uint64_t until = c->clock + visits;
    if (until <= x->protected_until) return;
    books_withdraw(c, layer, expert);
    x->protected_until = until;
    books_offer(c, layer, expert);
    books_changed(c);
}

/* ---- reservations ------------------------------------------------------------------------------
 */

uint32_t sl_ec_find(const struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    assert_expert(c, layer, expert);
    return entry_of(c, layer, expert)->slot;
}

/* An answer, and whom it costs the slot: entry index of the victim, SL_EC_NONE for a free slot. */
struct decision {
    enum sl_ec_answer answer;
    uint32_t victim_layer, victim_id;
};

static struct decision without_victim(enum sl_ec_answer answer)
{
    return (struct decision){answer, SL_EC_NONE, SL_EC_NONE};
}

static struct decision take_victim(enum sl_ec_answer answer, const struct victims *v, int kind)
{
    return (struct decision){answer, v->layer[kind], v->best[kind].id};
}

/* The coldest, protected ones last; BUSY where there is none. */
static struct decision take_coldest(enum sl_ec_answer answer, const struct victims *v)
{
    if (v->best[COLD_FREE].id != SL_EC_NONE) return take_victim(answer, v, COLD_FREE);
    if (v->best[COLD_PROTECTED].id != SL_EC_NONE) return take_victim(answer, v, COLD_PROTECTED);
    return without_victim(SL_EC_BUSY);
}

/* The last ring_slots free slots are kept for reads that pass through, so that a long prompt takes
 * no more than those from the residents. */
static struct decision decide_prompt(const struct sl_ec *c, const struct size_class *k,
                                     const struct victims *v, const struct rank *candidate)
{
    if (k->n_free > c->ring_slots) return without_victim(SL_EC_ENTERS);
    const struct rank *coldest = &v->best[COLD_FREE];
    if (coldest->id != SL_EC_NONE && rank_before(coldest, candidate))
        return take_victim(SL_EC_ENTERS, v, COLD_FREE);
    if (k->n_free > 0) return without_victim(SL_EC_PASSES);
    if (k->n_passing >= c->ring_slots) return without_victim(SL_EC_BUSY);
    return take_coldest(SL_EC_PASSES, v);
}

static struct decision decide(struct sl_ec *c, uint32_t layer, uint32_t expert, enum sl_ec_why why)
{
    assert_expert(c, layer, expert);
    SLUICE_ASSERT(entry_of(c, layer, expert)->slot == SL_EC_NONE);
    uint32_t size_class = c->layers[layer].size_class;
    const struct size_class *k = &c->classes[size_class];
    if (why != SL_EC_PROMPT && k->n_free > 0) return without_victim(SL_EC_ENTERS);
    struct victims v;
    books_coldest(c, size_class, &v);
    if (why == SL_EC_DEMAND) return take_coldest(SL_EC_ENTERS, &v);
    struct rank candidate = books_rank_overall(c, layer, expert);
    if (why == SL_EC_PROMPT) return decide_prompt(c, k, &v, &candidate);
    const struct rank *coldest = &v.best[COLD_FREE];
    if (coldest->id != SL_EC_NONE && rank_before(coldest, &candidate))
        return take_victim(SL_EC_ENTERS, &v, COLD_FREE);
    return without_victim(SL_EC_COLDER);
}

enum sl_ec_answer sl_ec_would(struct sl_ec *c, uint32_t layer, uint32_t expert, enum sl_ec_why why)
{
    return decide(c, layer, expert, why).answer;
}

enum sl_ec_answer sl_ec_reserve(struct sl_ec *c, uint32_t layer, uint32_t expert,
                                enum sl_ec_why why, struct sl_ec_slot_of *out)
{
    struct decision d = decide(c, layer, expert, why);
    *out = (struct sl_ec_slot_of){SL_EC_NONE, SL_EC_NONE, SL_EC_NONE};
    c->stats.answers[why][d.answer]++;
    if (d.answer == SL_EC_COLDER || d.answer == SL_EC_BUSY) return d.answer;
    if (d.victim_id == SL_EC_NONE) {
        out->slot = free_pop(c, c->layers[layer].size_class);
    } else {
        out->evicted_layer = d.victim_layer;
        out->evicted_expert = d.victim_id - c->layers[d.victim_layer].first;
        out->slot = c->entries[d.victim_id].slot;
        vacate(c, out->slot);
        c->stats.evictions++;
    }
    occupy(c, out->slot, layer, expert);
    struct slot *s = &c->slots[out->slot];
    s->guess = why == SL_EC_GUESS;
    s->passing = d.answer == SL_EC_PASSES;
    if (s->passing) c->classes[s->size_class].n_passing++;
    books_changed(c);
    return d.answer;
}

void sl_ec_arrived(struct sl_ec *c, uint32_t slot, uint32_t parts)
{
    SLUICE_ASSERT(slot < c->n_slots);
    struct slot *s = &c->slots[slot];
    SLUICE_ASSERT(s->state == SLOT_IN_FLIGHT);
    const uint32_t all = c->layers[s->layer].all_parts;
    SLUICE_ASSERT(parts != 0 && (parts & ~all) == 0); /* parts that the expert has */
    SLUICE_ASSERT((parts & s->parts) == 0);           /* and that were still to come */
    s->parts = (uint8_t)(s->parts | parts);
    if (s->parts != all) return;
    s->state = SLOT_READY;
    c->stats.in_flight--;
    if (s->passing && s->leases == 0) { /* nobody waits any more, so nobody would empty it */
        s->passing = false;
        c->classes[s->size_class].n_passing--;
    }
    books_offer(c, s->layer, s->expert);
    books_changed(c);
}

void sl_ec_failed(struct sl_ec *c, uint32_t slot)
{
    SLUICE_ASSERT(slot < c->n_slots);
    struct slot *s = &c->slots[slot];
    SLUICE_ASSERT(s->state == SLOT_IN_FLIGHT);
    vacate(c, slot);
    c->stats.in_flight--;
    c->stats.failures++;
    s->state = SLOT_DOOMED;
    if (s->leases == 0) free_push(c, slot);
    books_changed(c);
}

uint32_t sl_ec_parts(const struct sl_ec *c, uint32_t slot)
{
    SLUICE_ASSERT(slot < c->n_slots);
    return c->slots[slot].parts;
}

/* ---- leases ------------------------------------------------------------------------------------
 */

void sl_ec_acquire(struct sl_ec *c, uint32_t layer, uint32_t expert, struct sl_ec_lease *lease)
{
    uint32_t slot = sl_ec_find(c, layer, expert);
    SLUICE_ASSERT(slot != SL_EC_NONE);
    struct slot *s = &c->slots[slot];
    SLUICE_ASSERT(s->leases < UINT32_MAX);
    if (s->leases++ == 0) {
        c->stats.leased++;
        books_withdraw(c, layer, expert);
    }
    *lease = (struct sl_ec_lease){slot, layer, expert};
    books_changed(c);
}

void sl_ec_release(struct sl_ec *c, struct sl_ec_lease *lease)
{
    SLUICE_ASSERT(lease->slot < c->n_slots);
    struct slot *s = &c->slots[lease->slot];
    SLUICE_ASSERT(s->leases > 0);
    bool doomed = s->state == SLOT_DOOMED;
    SLUICE_ASSERT(doomed || (s->layer == lease->layer && s->expert == lease->expert));
    if (--s->leases == 0) {
        c->stats.leased--;
        if (s->passing && s->state == SLOT_READY) {
            vacate(c, lease->slot);
            free_push(c, lease->slot);
        } else if (doomed) {
            free_push(c, lease->slot);
        } else {
            books_offer(c, s->layer, s->expert);
        }
    }
    *lease = (struct sl_ec_lease){SL_EC_NONE, SL_EC_NONE, SL_EC_NONE};
    books_changed(c);
}

/* ---- service -----------------------------------------------------------------------------------
 */

uint32_t sl_ec_slot_close(struct sl_ec *c, uint32_t size_class)
{
    SLUICE_ASSERT(size_class < SL_EC_CLASSES_MAX);
    struct size_class *k = &c->classes[size_class];
    if (k->n_slots - k->n_closed <= k->fewest) return SL_EC_NONE;
    uint32_t slot;
    if (k->n_free > 0) {
        slot = free_pop(c, size_class);
    } else {
        struct victims v;
        books_coldest(c, size_class, &v);
        struct decision d = take_coldest(SL_EC_ENTERS, &v);
        if (d.answer == SL_EC_BUSY) return SL_EC_NONE;
        slot = c->entries[d.victim_id].slot;
        vacate(c, slot);
        c->stats.evictions++;
    }
    c->slots[slot].state = SLOT_CLOSED;
    k->n_closed++;
    books_changed(c);
    return slot;
}

void sl_ec_slot_open(struct sl_ec *c, uint32_t slot)
{
    SLUICE_ASSERT(slot < c->n_slots);
    SLUICE_ASSERT(c->slots[slot].state == SLOT_CLOSED);
    c->classes[c->slots[slot].size_class].n_closed--;
    free_push(c, slot);
    books_changed(c);
}
