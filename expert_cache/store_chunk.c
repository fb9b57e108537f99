/* A chunk of tokens at a layer: which experts it needs, leases for them, and handing them out.
 *
 * An expert of the chunk is waiting (no slot), leased (in a slot, in flight or ready), or released.
 * Decode leases everything at once. A prompt chunk goes through its experts in ascending order:
 * those in a slot are leased at begin, as long as a ring of slots stays free for the others, and
 * the reads run ahead of the computation as far as the books give slots. From its lease to its
 * release an expert cannot be evicted, so no expert is read twice for a chunk. */
#include <string.h>

#include "base/clock.h"
#include "expert_cache/store.h"

/* ---- leases ------------------------------------------------------------------------------------
 */

void store_lease(struct sl_expert_store *s, uint32_t layer, uint32_t expert, struct sl_ec_lease *l)
{
    sl_ec_acquire(s->ec, layer, expert, l);
    s->leased_of[s->layers[layer].size_class]++;
}

void store_unlease(struct sl_expert_store *s, struct sl_ec_lease *l)
{
    s->leased_of[s->layers[l->layer].size_class]--;
    sl_ec_release(s->ec, l);
}

struct wanted *store_wanted(struct sl_expert_store *s, uint32_t layer, uint32_t expert)
{
    struct chunk *c = &s->chunk;
    if (!c->open || c->layer != layer || c->place[expert] == SL_EC_NONE) return NULL;
    return &c->list[c->place[expert]];
}

void store_want_again(struct sl_expert_store *s, struct wanted *w)
{
    uint32_t place = (uint32_t)(w - s->chunk.list);
    store_unlease(s, &w->lease);
    s->chunk.n_waiting++;
    if (place < s->chunk.next_lease) s->chunk.next_lease = place;
}

/* The expert is in a slot. */
static void take_lease(struct sl_expert_store *s, struct wanted *w)
{
    store_lease(s, s->chunk.layer, w->expert, &w->lease);
    s->chunk.n_waiting--;
    uint32_t flight = s->slots[w->lease.slot].flight;
    if (flight != SL_EC_NONE) store_adopt(s, &s->flights[flight]);
}

void store_took_slot(struct sl_expert_store *s, const struct sl_ec_slot_of *got)
{
    if (got->evicted_layer != SL_EC_NONE)
        store_guess_wasted(s, got->evicted_layer, got->slot,
                           s->layers[got->evicted_layer].expert_bytes);
    s->slots[got->slot].guess = 0;
}

/* False: no slot or no flight now; to be tried again when something lands or is released. */
static bool fetch(struct sl_expert_store *s, struct wanted *w, enum sl_ec_why why)
{
    struct chunk *c = &s->chunk;
    struct sl_ec_slot_of got;
    if (!store_flights_left(s)) return false;
    enum sl_ec_answer answer = sl_ec_reserve(s->ec, c->layer, w->expert, why, &got);
    if (answer == SL_EC_BUSY) return false;
    store_took_slot(s, &got);
    if (c->in_order) store_tell(s, SL_TRACE_ENTRY, c->layer, w->expert, store_entry(answer, &got));
    (void)store_read(s, (struct sl_expert_id){c->layer, w->expert}, got.slot,
                     s->layers[c->layer].all_reads, c->in_order ? FETCH_PROMPT : FETCH_DEMAND);
    take_lease(s, w);
    return true;
}

static bool is_waiting(const struct wanted *w)
{
    return w->lease.slot == SL_EC_NONE && !w->released;
}

/* Leaves the ring's slots to those that have to be read. */
static bool may_lease(const struct sl_expert_store *s)
{
    uint32_t k = s->layers[s->chunk.layer].size_class;
    return !s->chunk.in_order || s->leased_of[k] + s->ring_slots < s->open_of[k];
}

static void pump_chunk(struct sl_expert_store *s)
{
    struct chunk *c = &s->chunk;
    if (!c->open || c->failed) return;
    while (c->n_waiting > 0 && c->next_lease < c->n) {
        struct wanted *w = &c->list[c->next_lease];
        if (is_waiting(w)) {
            bool in_slot = sl_ec_find(s->ec, c->layer, w->expert) != SL_EC_NONE;
            if (in_slot && !may_lease(s) && c->next_lease != c->next_out) return;
            if (in_slot)
                take_lease(s, w);
            else if (!fetch(s, w, c->in_order ? SL_EC_PROMPT : SL_EC_DEMAND))
                return;
        }
        c->next_lease++;
    }
}

void store_pump(struct sl_expert_store *s)
{
    pump_chunk(s);
    store_pump_guesses(s);
    store_flush(s);
}

/* ---- begin -------------------------------------------------------------------------------------
 */

/* Returns where it is: enum sl_trace_state. */
static uint8_t count_choice(struct sl_expert_store *s, uint32_t layer, uint32_t expert)
{
    struct store_layer *l = &s->layers[layer];
    s->stats.uses++, l->stats.uses++;
    uint32_t slot = s->ec != NULL ? sl_ec_find(s->ec, layer, expert) : 0;
    if (slot == SL_EC_NONE) return SL_TRACE_MISSING;
    uint8_t first = 0; /* its guess comes true now: store_guess_used */
    if (s->ec != NULL && s->slots[slot].guess != 0 && s->chunk.place[expert] == SL_EC_NONE)
        first = SL_TRACE_AHEAD;
    if (s->ec == NULL || sl_ec_parts(s->ec, slot) == l->all_reads) {
        s->stats.hits++, l->stats.hits++;
        return SL_TRACE_AT_HAND | first;
    }
    s->stats.hits_flying++, l->stats.hits_flying++;
    return SL_TRACE_FLYING | first;
}

/* Tells the books what each token chose, and lists the distinct ones. */
static void visit(struct sl_expert_store *s, const struct sl_expert_need *need)
{
    struct chunk *c = &s->chunk;
    uint32_t n_experts = s->layers[need->layer].shape.n_experts;
    memset(c->place, 0xff, n_experts * sizeof c->place[0]);
    for (uint32_t t = 0; t < need->n_tokens; t++) {
        uint32_t chosen[SL_TOP_K_MAX], n = 0;
        for (uint32_t k = 0; k < need->top_k; k++) {
            uint32_t index = t * need->top_k + k, x = need->chosen[index];
            if (x == SL_EC_NONE) continue;
            SLUICE_ASSERT(x < n_experts);
            uint8_t state = count_choice(s, need->layer, x);
            if (s->watch != NULL) s->watch->on_choice(s->watch->user, index, state);
            c->place[x] = 0;
            chosen[n++] = x;
        }
        if (s->ec != NULL) sl_ec_visit(s->ec, need->layer, chosen, n);
    }
    for (uint32_t x = 0; x < n_experts; x++) {
        if (c->place[x] == SL_EC_NONE) continue;
        c->place[x] = c->n;
        c->list[c->n++] =
            (struct wanted){.lease = {SL_EC_NONE, SL_EC_NONE, SL_EC_NONE}, .expert = x};
    }
    c->n_left = c->n_waiting = c->n;
}

/* What is in a slot: its guess has come true, and it stays until it is computed on. */
static void lease_residents(struct sl_expert_store *s)
{
    struct chunk *c = &s->chunk;
    for (uint32_t i = 0; i < c->n; i++) {
        struct wanted *w = &c->list[i];
        if (c->in_order) sl_ec_protect(s->ec, c->layer, w->expert, 1);
        uint32_t slot = sl_ec_find(s->ec, c->layer, w->expert);
        if (slot == SL_EC_NONE) continue;
        store_guess_used(s, slot);
        if (is_waiting(w) && may_lease(s)) take_lease(s, w);
    }
}

/* Demand reads are about to start: how long will they wait behind guesses that have started? */
static void enter_delay(struct sl_expert_store *s)
{
    if (s->chunk.n_waiting == 0 || s->flights_of[FETCH_AHEAD] == 0) return;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        const struct flight *f = &s->flights[i];
        if (f->pending == 0 || f->why != FETCH_AHEAD || f->adopted) continue;
        for (uint32_t p = 0; p < SL_EC_PARTS_MAX; p++)
            if ((f->pending & ~f->dropped) >> p & 1) bytes += f->r[p].bytes;
    }
    if (bytes > 0) sl_read_ahead_lost(&s->ahead, (uint64_t)(s->ns_per_byte * (double)bytes));
}

void sl_expert_begin(struct sl_expert_store *s, const struct sl_expert_need *need)
{
    struct chunk *c = &s->chunk;
    SLUICE_ASSERT(!c->open);
    SLUICE_ASSERT(need->layer < s->n_layers && s->layers[need->layer].shape.n_experts > 0);
    SLUICE_ASSERT(need->top_k <= SL_TOP_K_MAX);
    if (s->ec != NULL) store_reap(s, 0);
    c->open = true;
    c->failed = false;
    c->in_order = need->in_order;
    c->layer = need->layer;
    c->n_tokens = need->n_tokens;
    c->n = c->next_lease = c->next_out = 0;
    visit(s, need);
    s->now_turn = s->layers[need->layer].turn;
    if (s->ec != NULL) {
        if (c->in_order || c->n_tokens > 1) sl_ec_visit_over(s->ec); /* slots may be few */
        store_guesses_due(s, c->layer, c->in_order);
        lease_residents(s);
    }
    if (s->watch != NULL) s->watch->on_layer(s->watch->user);
    if (s->ec == NULL) return;
    if (!c->in_order) {
        enter_delay(s);
        sl_read_ahead_layer(&s->ahead);
    }
    store_pump(s);
}

/* ---- next --------------------------------------------------------------------------------------
 */

static uint32_t parts_there(const struct sl_expert_store *s, const struct wanted *w)
{
    if (s->ec == NULL) return s->layers[s->chunk.layer].all_reads;
    return w->lease.slot == SL_EC_NONE ? 0 : sl_ec_parts(s->ec, w->lease.slot);
}

/* The steps that are possible and have not been handed out. */
static uint32_t steps_of(const struct sl_expert_store *s, const struct wanted *w)
{
    const struct store_layer *l = &s->layers[s->chunk.layer];
    uint32_t there = parts_there(s, w), steps = 0;
    if (w->released || (s->ec != NULL && w->lease.slot == SL_EC_NONE)) return 0;
    if ((there & l->input_reads) == l->input_reads) steps |= SL_EXPERT_INPUTS;
    if (there == l->all_reads) steps |= SL_EXPERT_OUTPUT;
    return steps & ~(uint32_t)w->handed;
}

static void hand_out(struct sl_expert_store *s, struct wanted *w, uint32_t steps,
                     struct sl_expert_ready *out)
{
    struct chunk *c = &s->chunk;
    uint32_t there = parts_there(s, w);
    *out = (struct sl_expert_ready){.expert = w->expert, .steps = steps};
    for (uint32_t p = 0; p < s->layers[c->layer].shape.n_parts; p++) {
        if (!(there >> (s->layers[c->layer].n_reads > 1 ? p : 0) & 1)) continue;
        out->view.part[p] = s->ec == NULL
                                ? store_map_part(s, c->layer, w->expert, p)
                                : store_part_address(s, c->layer, w->expert, p, w->lease.slot);
    }
    w->handed = (uint8_t)(w->handed | steps);
    if (steps & SL_EXPERT_OUTPUT) c->n_left--;
}

static uint32_t collect(struct sl_expert_store *s, struct sl_expert_ready *out, uint32_t max)
{
    struct chunk *c = &s->chunk;
    uint32_t n = 0;
    if (!c->in_order) {
        for (uint32_t i = 0; i < c->n && n < max; i++) {
            uint32_t steps = steps_of(s, &c->list[i]);
            if (steps != 0) hand_out(s, &c->list[i], steps, &out[n++]);
        }
        return n;
    }
    while (c->next_out < c->n && n < max) {
        uint32_t steps = steps_of(s, &c->list[c->next_out]);
        if (!(steps & SL_EXPERT_OUTPUT)) break;
        hand_out(s, &c->list[c->next_out++], steps, &out[n++]);
    }
    return n;
}

/* The ring may be held by later experts that were read before the chunk began. The first one then
 * takes a resident's slot. False: there is none either. */
static bool fetch_first(struct sl_expert_store *s)
{
    struct chunk *c = &s->chunk;
    if (!c->in_order || !is_waiting(&c->list[c->next_out])) return false;
    if (!fetch(s, &c->list[c->next_out], SL_EC_DEMAND)) return false;
    store_flush(s);
    return true;
}

static void wait_for_drive(struct sl_expert_store *s)
{
    uint64_t from = sl_now_ns();
    store_reap(s, 1);
    uint64_t ns = sl_now_ns() - from;
    s->stats.stall_ns += ns;
    s->layers[s->chunk.layer].stats.stall_ns += ns;
}

sluice_err sl_expert_next(struct sl_expert_store *s, struct sl_expert_ready *out, uint32_t max,
                          uint32_t *n, sluice_error *e)
{
    struct chunk *c = &s->chunk;
    SLUICE_ASSERT(c->open && max >= 1);
    *n = 0;
    if (s->ec == NULL) {
        sluice_err err = store_map_check(s, e);
        if (err == SLUICE_OK) *n = collect(s, out, max);
        return err;
    }
    store_reap(s, 0);
    for (;;) {
        if (c->failed) {
            if (e != NULL) *e = s->error;
            return (sluice_err)s->error.code;
        }
        store_pump(s);
        *n = collect(s, out, max);
        if (*n > 0 || c->n_left == 0) return SLUICE_OK;
        if (s->n_flights == 0 && !fetch_first(s))
            return sl_fail(e, SLUICE_E_STATE,
                           "every slot is leased; experts must be released before the next of layer"
                           " %u can be read",
                           c->layer);
        wait_for_drive(s);
    }
}

/* ---- release, end ------------------------------------------------------------------------------
 */

static void give_up(struct sl_expert_store *s, struct wanted *w)
{
    if (w->lease.slot != SL_EC_NONE) {
        store_unlease(s, &w->lease);
        if (s->chunk.in_order) store_tell(s, SL_TRACE_RELEASED, s->chunk.layer, w->expert, 0);
    } else if (!w->released) {
        s->chunk.n_waiting--;
    }
    if (!(w->handed & SL_EXPERT_OUTPUT)) s->chunk.n_left--;
    w->handed = SL_EXPERT_INPUTS | SL_EXPERT_OUTPUT;
    w->released = true;
}

void sl_expert_release(struct sl_expert_store *s, uint32_t expert)
{
    struct wanted *w = store_wanted(s, s->chunk.layer, expert);
    SLUICE_ASSERT(w != NULL && !w->released);
    SLUICE_ASSERT(w->handed & SL_EXPERT_OUTPUT || s->chunk.failed);
    if (s->ec == NULL) {
        w->released = true;
        return;
    }
    give_up(s, w);
    sl_expert_poll(s);
}

/* Lets the reads of the chunk land: those that have not started are taken back. */
static void land_chunk(struct sl_expert_store *s)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight *f = &s->flights[i];
        if (f->pending != 0 && store_wanted(s, f->layer, f->expert) != NULL) store_cancel(s, f);
    }
    while (s->n_needed > 0) store_reap(s, 1);
}

void sl_expert_end(struct sl_expert_store *s)
{
    struct chunk *c = &s->chunk;
    SLUICE_ASSERT(c->open);
    if (s->ec != NULL && s->n_needed > 0) {
        c->failed = true; /* nothing new is started */
        land_chunk(s);
    }
    for (uint32_t i = 0; i < c->n && s->ec != NULL; i++)
        if (!c->list[i].released) give_up(s, &c->list[i]);
    c->open = false;
    if (s->ec != NULL) store_pump(s);
}

void sl_expert_poll(struct sl_expert_store *s)
{
    if (s->ec == NULL) return;
    store_reap(s, 0);
    store_pump(s);
}

bool sl_expert_at_hand(const struct sl_expert_store *s, uint32_t layer, uint32_t expert)
{
    if (s->ec == NULL) return true;
    uint32_t slot = sl_ec_find(s->ec, layer, expert);
    return slot != SL_EC_NONE && sl_ec_parts(s->ec, slot) == s->layers[layer].all_reads;
}
