/* Books driven by a trace; see replay_drive.h.
 *
 * A chunk is open from its choice until the next visit begins, so that what the recording did
 * meanwhile falls into it. It hands out its experts in ascending order, one by one: from the first
 * release on, each makes room for the next read. Where a prompt is repeated as_recorded, ops say
 * when experts got their slots and were released, in order with the rest. */
#include "trace/replay_drive.h"

#include <string.h>

#include "expert_cache/expert_store.h"

struct wanted {
    struct sl_ec_lease lease; /* slot SL_EC_NONE: waiting, or given up */
    uint32_t expert;
    bool released;
};

struct open_chunk {
    bool open, in_order;
    uint32_t layer;
    uint32_t n, n_waiting;
    uint32_t next_lease, next_out; /* the first that may be waiting; the first not released */
    struct wanted list[SL_EXPERTS_MAX];
};

struct pool {
    struct sl_ec *ec;
    uint32_t ring_slots;
    uint32_t n_slots[SL_EC_CLASSES_MAX], open[SL_EC_CLASSES_MAX], leased[SL_EC_CLASSES_MAX];
};

struct replay_drive {
    const struct sl_trace *t;
    bool by_layer, as_recorded;
    struct pool *pools;
    uint32_t n_pools, top_k[SL_LAYERS_MAX];
    uint8_t *closed; /* [slots]: 1 out of service; as_recorded only */
    struct open_chunk chunk;
    uint32_t place[SL_EXPERTS_MAX]; /* in chunk.list, of the chunk's experts */
    uint32_t coming_layer, n_held;  /* a prompt's coming layer, and what is held for it */
    struct sl_ec_lease held[SL_EXPERTS_MAX];
};

/* ---- where things are --------------------------------------------------------------------------
 */

static struct pool *pool_of(const struct replay_drive *d, uint32_t layer)
{
    return &d->pools[d->by_layer ? layer : 0];
}

/* A pool of one layer knows it as layer 0, in class 0. */
static uint32_t layer_in(const struct replay_drive *d, uint32_t layer)
{
    return d->by_layer ? 0 : layer;
}

static uint32_t class_in(const struct replay_drive *d, uint32_t layer)
{
    return d->by_layer ? 0 : d->t->header.layer[layer].size_class;
}

static uint32_t find(const struct replay_drive *d, uint32_t layer, uint32_t expert)
{
    return sl_ec_find(pool_of(d, layer)->ec, layer_in(d, layer), expert);
}

static bool is_flying(const struct replay_drive *d, uint32_t layer, uint32_t slot)
{
    return sl_ec_parts(pool_of(d, layer)->ec, slot) == 0;
}

static void lease(struct replay_drive *d, uint32_t layer, uint32_t expert, struct sl_ec_lease *l)
{
    struct pool *p = pool_of(d, layer);
    sl_ec_acquire(p->ec, layer_in(d, layer), expert, l);
    p->leased[class_in(d, layer)]++;
}

static void unlease(struct replay_drive *d, uint32_t layer, struct sl_ec_lease *l)
{
    struct pool *p = pool_of(d, layer);
    p->leased[class_in(d, layer)]--;
    sl_ec_release(p->ec, l);
}

/* ---- open, close -------------------------------------------------------------------------------
 */

static sluice_err open_pool(const struct replay_drive *d, const struct sl_replay_config *c,
                            uint32_t index, struct sl_budget *b, sluice_error *e)
{
    const struct sl_trace_header *h = &d->t->header;
    struct sl_ec_layer layers[SL_LAYERS_MAX];
    uint32_t first = d->by_layer ? index : 0;
    struct pool *p = &d->pools[index];
    struct sl_ec_config config = {.layers = layers, .policy = c->policy};
    config.n_layers = d->by_layer ? 1 : h->n_layers;
    if (d->by_layer && h->layer[index].n_experts == 0) return SLUICE_OK;
    for (uint32_t i = 0; i < config.n_layers; i++) {
        uint32_t n = h->layer[first + i].n_experts;
        layers[i] = (struct sl_ec_layer){n, d->top_k[first + i], n > 0, class_in(d, first + i)};
        if (d->by_layer)
            config.n_slots[0] = (uint32_t)sl_min_u64(c->layer_slots[index], n);
        else
            config.n_slots[layers[i].size_class] += n;
    }
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX && !d->by_layer; k++)
        config.n_slots[k] = (uint32_t)sl_min_u64(c->n_slots[k], config.n_slots[k]);
    p->ring_slots = sl_expert_ring_slots(config.n_slots);
    if (d->as_recorded && h->ring_slots > 0) p->ring_slots = h->ring_slots;
    config.ring_slots = p->ring_slots;
    memcpy(p->n_slots, config.n_slots, sizeof p->n_slots);
    memcpy(p->open, config.n_slots, sizeof p->open);
    return sl_ec_open(&config, b, e, &p->ec);
}

static uint32_t slots_of(const struct pool *p)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) n += p->n_slots[k];
    return n;
}

/* A slot for every expert: the engine reads them all when it opens the model. */
static void load_all(struct replay_drive *d)
{
    const struct sl_trace_header *h = &d->t->header;
    struct sl_ec_slot_of got;
    for (uint32_t l = 0; l < h->n_layers; l++)
        for (uint32_t x = 0; x < h->layer[l].n_experts; x++) {
            (void)sl_ec_reserve(d->pools[0].ec, l, x, SL_EC_DEMAND, &got);
            sl_ec_arrived(d->pools[0].ec, got.slot, 1);
        }
}

static sluice_err open_rest(struct replay_drive *d, const struct sl_replay_config *c,
                            struct sl_budget *b, sluice_error *e)
{
    uint32_t first[SL_LAYERS_MAX], n_experts = replay_first_expert(d->t, first);
    d->n_pools = d->by_layer ? d->t->header.n_layers : 1;
    d->pools = sl_alloc(b, d->n_pools, sizeof *d->pools);
    if (d->pools == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a replay");
    for (uint32_t i = 0; i < d->n_pools; i++) {
        sluice_err err = open_pool(d, c, i, b, e);
        if (err != SLUICE_OK) return err;
    }
    if (!d->as_recorded) return SLUICE_OK;
    d->closed = sl_alloc(b, slots_of(&d->pools[0]), 1);
    if (d->closed == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a replay");
    if (slots_of(&d->pools[0]) == n_experts) load_all(d);
    return SLUICE_OK;
}

sluice_err replay_drive_open(const struct sl_trace *t, const struct sl_replay_config *c,
                             struct sl_budget *b, sluice_error *e, struct replay_drive **out)
{
    *out = NULL;
    struct replay_drive *d = sl_alloc(b, 1, sizeof *d);
    if (d == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a replay");
    d->t = t;
    d->by_layer = c->pool == SL_REPLAY_PER_LAYER;
    d->as_recorded = c->as_recorded;
    replay_top_k(t, d->top_k);
    d->coming_layer = SL_EC_NONE;
    sluice_err err = open_rest(d, c, b, e);
    if (err != SLUICE_OK) {
        replay_drive_close(d);
        return err;
    }
    *out = d;
    return SLUICE_OK;
}

uint64_t replay_drive_evictions(const struct replay_drive *d)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < d->n_pools; i++) {
        struct sl_ec_stats s;
        if (d->pools[i].ec == NULL) continue;
        sl_ec_stats(d->pools[i].ec, &s);
        sum += s.evictions;
    }
    return sum;
}

/* ---- a chunk -----------------------------------------------------------------------------------
 */

static bool is_waiting(const struct wanted *w)
{
    return w->lease.slot == SL_EC_NONE && !w->released;
}

/* Leaves the ring's slots to those that have to be read. */
static bool may_lease(const struct replay_drive *d)
{
    const struct pool *p = pool_of(d, d->chunk.layer);
    uint32_t k = class_in(d, d->chunk.layer);
    return !d->chunk.in_order || p->leased[k] + p->ring_slots < p->open[k];
}

/* Ops say when its experts come and go. */
static bool is_told(const struct replay_drive *d) { return d->as_recorded && d->chunk.in_order; }

static void take_lease(struct replay_drive *d, struct wanted *w)
{
    lease(d, d->chunk.layer, w->expert, &w->lease);
    d->chunk.n_waiting--;
}

/* The next in order has been computed. False: it is not there yet, or there is none. */
static bool release_next(struct replay_drive *d)
{
    struct open_chunk *c = &d->chunk;
    if (!c->open || c->next_out == c->n || is_waiting(&c->list[c->next_out])) return false;
    struct wanted *w = &c->list[c->next_out++];
    if (w->lease.slot != SL_EC_NONE) unlease(d, c->layer, &w->lease);
    w->released = true;
    return true;
}

/* False: no slot now. */
static bool fetch(struct replay_drive *d, struct wanted *w, enum sl_ec_why why)
{
    struct open_chunk *c = &d->chunk;
    struct sl_ec *ec = pool_of(d, c->layer)->ec;
    struct sl_ec_slot_of got;
    if (sl_ec_reserve(ec, layer_in(d, c->layer), w->expert, why, &got) == SL_EC_BUSY) return false;
    take_lease(d, w);
    sl_ec_arrived(ec, got.slot, 1);
    return true;
}

static void pump(struct replay_drive *d)
{
    struct open_chunk *c = &d->chunk;
    while (c->open && c->n_waiting > 0 && c->next_lease < c->n) {
        struct wanted *w = &c->list[c->next_lease];
        if (is_waiting(w)) {
            bool in_slot = find(d, c->layer, w->expert) != SL_EC_NONE;
            if (in_slot && !may_lease(d) && c->next_lease != c->next_out) return;
            if (in_slot)
                take_lease(d, w);
            else if (is_told(d) || !fetch(d, w, c->in_order ? SL_EC_PROMPT : SL_EC_DEMAND))
                return;
        }
        c->next_lease++;
    }
}

/* Whatever flies arrives. */
static void land_all(struct replay_drive *d)
{
    const struct sl_trace_header *h = &d->t->header;
    for (uint32_t l = 0; l < h->n_layers; l++)
        for (uint32_t x = 0; x < h->layer[l].n_experts; x++) {
            uint32_t slot = find(d, l, x);
            if (slot != SL_EC_NONE && is_flying(d, l, slot))
                sl_ec_arrived(pool_of(d, l)->ec, slot, 1);
        }
}

/* The next expert in order has no slot and gets none as a prompt's. It takes a resident's; where
 * all are leased or in flight, which only a recording that cannot be repeated leads to, it is
 * passed over. */
static void force_next(struct replay_drive *d)
{
    struct open_chunk *c = &d->chunk;
    struct wanted *w = &c->list[c->next_out];
    if (!is_told(d)) {
        if (fetch(d, w, SL_EC_DEMAND)) return;
        if (d->as_recorded) land_all(d);
        if (fetch(d, w, SL_EC_DEMAND)) return;
    }
    w->released = true;
    c->n_waiting--;
}

static void finish_chunk(struct replay_drive *d)
{
    struct open_chunk *c = &d->chunk;
    while (c->open && c->next_out < c->n) {
        if (!release_next(d)) force_next(d);
        pump(d);
    }
    c->open = false;
}

/* ---- a visit -----------------------------------------------------------------------------------
 */

static void look_up(const struct replay_drive *d, struct replay_choice *c)
{
    for (uint32_t j = 0; j < c->n; j++) {
        uint32_t slot = find(d, c->layer, c->expert[j]);
        if (slot == SL_EC_NONE)
            c->there[j] = REPLAY_MISSING;
        else
            c->there[j] = is_flying(d, c->layer, slot) ? REPLAY_FLYING : REPLAY_AT_HAND;
    }
}

static void tell_books(const struct replay_drive *d, const struct replay_choice *c)
{
    struct sl_ec *ec = pool_of(d, c->layer)->ec;
    const uint32_t *chosen = c->chosen;
    for (uint32_t i = 0; i < c->n_tokens; i++) {
        sl_ec_visit(ec, layer_in(d, c->layer), chosen, c->count[i]);
        chosen += c->count[i];
    }
    if (c->in_order || c->n_tokens > 1) sl_ec_visit_over(ec);
}

/* A single token's, where nothing can be in the way: no leases are needed. */
static void fill_at_once(const struct replay_drive *d, const struct replay_choice *c)
{
    struct sl_ec *ec = pool_of(d, c->layer)->ec;
    struct sl_ec_slot_of got;
    for (uint32_t j = 0; j < c->n; j++) {
        if (c->there[j] != REPLAY_MISSING) continue;
        enum sl_ec_answer answer =
            sl_ec_reserve(ec, layer_in(d, c->layer), c->expert[j], SL_EC_DEMAND, &got);
        SLUICE_ASSERT(answer == SL_EC_ENTERS);
        sl_ec_arrived(ec, got.slot, 1);
    }
}

/* The distinct experts, ascending. */
static void list_wanted(struct replay_drive *d, const struct replay_choice *choice)
{
    struct open_chunk *c = &d->chunk;
    uint32_t n_experts = d->t->header.layer[choice->layer].n_experts;
    for (uint32_t x = 0; x < n_experts; x++) {
        if (choice->seen_visit[x] != choice->stamp) {
            d->place[x] = SL_EC_NONE;
            continue;
        }
        c->list[c->n] = (struct wanted){.lease = {SL_EC_NONE, SL_EC_NONE, SL_EC_NONE}, .expert = x};
        d->place[x] = c->n++;
    }
    c->n_waiting = c->n;
}

/* What was held for this layer and is chosen, the chunk takes over. */
static void settle_coming(struct replay_drive *d)
{
    struct open_chunk *c = &d->chunk;
    for (uint32_t i = 0; i < d->n_held; i++) {
        struct sl_ec_lease *l = &d->held[i];
        uint32_t place = d->coming_layer == c->layer ? d->place[l->expert] : SL_EC_NONE;
        if (place == SL_EC_NONE) {
            unlease(d, d->coming_layer, l);
            continue;
        }
        c->list[place].lease = *l;
        c->n_waiting--;
    }
    d->n_held = 0;
    d->coming_layer = SL_EC_NONE;
}

static void lease_residents(struct replay_drive *d)
{
    struct open_chunk *c = &d->chunk;
    struct sl_ec *ec = pool_of(d, c->layer)->ec;
    for (uint32_t i = 0; i < c->n; i++) {
        struct wanted *w = &c->list[i];
        if (c->in_order) sl_ec_protect(ec, layer_in(d, c->layer), w->expert, 1);
        if (find(d, c->layer, w->expert) == SL_EC_NONE) continue;
        if (is_waiting(w) && may_lease(d)) take_lease(d, w);
    }
}

void replay_drive_visit(struct replay_drive *d, struct replay_choice *choice)
{
    struct open_chunk *c = &d->chunk;
    finish_chunk(d);
    look_up(d, choice);
    tell_books(d, choice);
    if (!choice->in_order && !d->as_recorded) {
        fill_at_once(d, choice);
        return;
    }
    c->open = true;
    c->in_order = choice->in_order;
    c->layer = choice->layer;
    c->n = c->next_lease = c->next_out = 0;
    list_wanted(d, choice);
    settle_coming(d);
    lease_residents(d);
    pump(d);
}

/* ---- steps -------------------------------------------------------------------------------------
 */

static void take_hints(struct replay_drive *d, const struct sl_trace_step *s)
{
    const uint16_t *experts = d->t->hint_experts + s->first;
    const float *probabilities = d->t->hint_probabilities + s->first;
    /* In a pool of its own a layer's next visit is the very next one. */
    uint32_t visits = d->by_layer ? 1 : s->visits;
    if (d->chunk.open && s->layer == d->chunk.layer) return;
    for (uint32_t i = 0; i < s->n; i++)
        if (probabilities[i] >= SL_PROTECT_PROBABILITY)
            sl_ec_protect(pool_of(d, s->layer)->ec, layer_in(d, s->layer), experts[i], visits);
}

/* A guess, or one of a hot list. */
static void op_guess(struct replay_drive *d, const struct sl_trace_op *op)
{
    struct sl_ec_slot_of got;
    if (find(d, op->layer, op->expert) != SL_EC_NONE) return;
    (void)sl_ec_reserve(d->pools[0].ec, op->layer, op->expert, SL_EC_GUESS, &got);
}

static void op_coming(struct replay_drive *d, const struct sl_trace_op *op)
{
    struct sl_ec_slot_of got;
    if (find(d, op->layer, op->expert) != SL_EC_NONE || d->n_held == SL_EXPERTS_MAX) return;
    if (d->n_held > 0 && op->layer != d->coming_layer) return;
    d->coming_layer = op->layer;
    if (sl_ec_reserve(d->pools[0].ec, op->layer, op->expert, SL_EC_PROMPT, &got) == SL_EC_BUSY)
        return;
    lease(d, op->layer, op->expert, &d->held[d->n_held++]);
}

static void drop_held(struct replay_drive *d, const struct sl_trace_op *op)
{
    for (uint32_t i = 0; i < d->n_held && op->layer == d->coming_layer; i++) {
        if (d->held[i].expert != op->expert) continue;
        unlease(d, op->layer, &d->held[i]);
        d->held[i] = d->held[--d->n_held];
        return;
    }
}

/* Its layer's turn has come, and it is not chosen: the visit that follows finds that itself.
 * Otherwise its turn does not come: an evaluation was given up. */
static void op_let_go(struct replay_drive *d, const struct sl_trace_op *op, uint32_t next_layer)
{
    if (op->layer == next_layer) return;
    finish_chunk(d);
    drop_held(d, op);
}

static void op_landed(struct replay_drive *d, const struct sl_trace_op *op)
{
    uint32_t slot = find(d, op->layer, op->expert);
    if (slot != SL_EC_NONE && is_flying(d, op->layer, slot)) sl_ec_arrived(d->pools[0].ec, slot, 1);
}

/* The chunk may have counted on it, and reads it again. */
static void op_gone(struct replay_drive *d, const struct sl_trace_op *op)
{
    struct open_chunk *c = &d->chunk;
    uint32_t slot = find(d, op->layer, op->expert);
    if (slot == SL_EC_NONE || !is_flying(d, op->layer, slot)) return;
    drop_held(d, op);
    uint32_t place = c->open && c->layer == op->layer ? d->place[op->expert] : SL_EC_NONE;
    if (place != SL_EC_NONE && c->list[place].lease.slot == slot) {
        unlease(d, op->layer, &c->list[place].lease);
        c->n_waiting++;
        if (place < c->next_lease) c->next_lease = place;
    }
    sl_ec_failed(d->pools[0].ec, slot);
}

/* The expert of the chunk in order that is open, NULL: there is none such. */
static struct wanted *told(struct replay_drive *d, const struct sl_trace_op *op)
{
    struct open_chunk *c = &d->chunk;
    if (!c->open || !c->in_order || c->layer != op->layer) return NULL;
    uint32_t place = d->place[op->expert];
    return place != SL_EC_NONE ? &c->list[place] : NULL;
}

/* One that the ring had no room for takes a resident's slot, as a token's would. */
static void op_entry(struct replay_drive *d, const struct sl_trace_op *op)
{
    struct wanted *w = told(d, op);
    if (w == NULL || !is_waiting(w) || find(d, op->layer, op->expert) != SL_EC_NONE) return;
    enum sl_ec_answer answer = sl_ec_would(d->pools[0].ec, op->layer, op->expert, SL_EC_PROMPT);
    bool forced = op->how == SL_TRACE_ENTERED && answer != SL_EC_ENTERS;
    (void)fetch(d, w, forced ? SL_EC_DEMAND : SL_EC_PROMPT);
}

static void op_released(struct replay_drive *d, const struct sl_trace_op *op)
{
    struct wanted *w = told(d, op);
    if (w == NULL || w->lease.slot == SL_EC_NONE) return;
    unlease(d, op->layer, &w->lease);
    w->released = true;
    uint32_t place = (uint32_t)(w - d->chunk.list);
    if (place == d->chunk.next_out) d->chunk.next_out++;
}

static void op_close(struct replay_drive *d, uint32_t size_class)
{
    struct pool *p = &d->pools[0];
    finish_chunk(d);
    if (size_class >= SL_EC_CLASSES_MAX || p->n_slots[size_class] == 0) return;
    uint32_t slot = sl_ec_slot_close(p->ec, size_class);
    if (slot == SL_EC_NONE) return;
    d->closed[slot] = 1;
    p->open[size_class]--;
}

/* Of the class that the recorded slot belonged to; which of them it is makes no difference. */
static void op_open(struct replay_drive *d, uint32_t slot)
{
    struct pool *p = &d->pools[0];
    uint32_t first = 0, k = 0;
    finish_chunk(d);
    while (k < SL_EC_CLASSES_MAX && slot >= first + p->n_slots[k]) first += p->n_slots[k++];
    if (k == SL_EC_CLASSES_MAX) return;
    for (uint32_t i = first; i < first + p->n_slots[k]; i++) {
        if (!d->closed[i]) continue;
        d->closed[i] = 0;
        p->open[k]++;
        sl_ec_slot_open(p->ec, i);
        return;
    }
}

static void take_op(struct replay_drive *d, const struct sl_trace_op *op, uint32_t next_layer)
{
    switch (op->kind) {
    case SL_TRACE_GUESS:
    case SL_TRACE_WARM:
        op_guess(d, op);
        break;
    case SL_TRACE_COMING:
        op_coming(d, op);
        break;
    case SL_TRACE_LANDED:
        op_landed(d, op);
        break;
    case SL_TRACE_GONE:
        op_gone(d, op);
        break;
    case SL_TRACE_LET_GO:
        op_let_go(d, op, next_layer);
        break;
    case SL_TRACE_ENTRY:
        op_entry(d, op);
        break;
    case SL_TRACE_RELEASED:
        op_released(d, op);
        break;
    case SL_TRACE_SLOT_CLOSED:
        op_close(d, op->expert);
        break;
    case SL_TRACE_SLOT_OPENED:
        op_open(d, op->expert);
        break;
    case SL_TRACE_OP_KINDS:
        break;
    }
    pump(d);
}

void replay_drive_steps(struct replay_drive *d, uint64_t visit)
{
    const struct sl_trace_visit *v = &d->t->visits[visit];
    for (uint64_t i = v->first_step; i < v->first_step + v->n_steps; i++) {
        const struct sl_trace_step *s = &d->t->steps[i];
        if (!s->is_op)
            take_hints(d, s);
        else if (d->as_recorded)
            take_op(d, &s->op, v->layer);
    }
}

void replay_drive_close(struct replay_drive *d)
{
    if (d == NULL) return;
    finish_chunk(d);
    for (uint32_t i = 0; i < d->n_held; i++) unlease(d, d->coming_layer, &d->held[i]);
    if (d->as_recorded && d->pools != NULL && d->pools[0].ec != NULL) land_all(d);
    for (uint32_t i = 0; d->pools != NULL && i < d->n_pools; i++) sl_ec_close(d->pools[i].ec);
    sl_free(d->pools);
    sl_free(d->closed);
    sl_free(d);
}
