/* Reads nobody waits for yet: guesses about the coming layer of a token, the coming layer of a
 * prompt chunk, and hot lists. All of them start only when the open chunk has its reads out, and
 * the first and the last only when none of those is still awaited, since a drive that is busy with
 * guesses makes demand reads wait.
 *
 * Guesses about tokens take slots of colder experts, and stay if unused until somebody hotter
 * comes. A prompt's pass through the ring; as many as the ring holds are leased until their layer's
 * turn. A hot list takes free slots only. */
#include <string.h>

#include "expert_cache/store.h"

#define PROMPT_PROBABILITY 0.9f /* at or above it, prompt chunks read ahead */
#define PROMPT_PROBABILITY_FORCED 0.25f

/* ---- what became of them -----------------------------------------------------------------------
 */

void store_guess_used(struct sl_expert_store *s, uint32_t slot)
{
    struct store_slot *x = &s->slots[slot];
    uint8_t guess = x->guess;
    if (guess == 0) return;
    x->guess = 0;
    if (x->flight != SL_EC_NONE) { /* entered when it lands */
        s->flights[x->flight].useful = true;
        return;
    }
    struct store_layer *l = &s->layers[s->chunk.layer];
    s->stats.ahead_useful_bytes += l->expert_bytes;
    l->stats.ahead_useful_bytes += l->expert_bytes;
    if (guess != FETCH_AHEAD) return;
    double most = s->ns_per_byte * (double)l->expert_bytes; /* reads are noticed late */
    bool late = most > 0 && most < (double)x->took_ns;
    sl_read_ahead_saved(&s->ahead, late ? (uint64_t)most : x->took_ns);
}

void store_guess_wasted(struct sl_expert_store *s, uint32_t layer, uint32_t slot, uint64_t bytes)
{
    struct store_slot *x = &s->slots[slot];
    if (x->guess == 0) return;
    x->guess = 0;
    s->stats.ahead_wasted_bytes += bytes;
    s->layers[layer].stats.ahead_wasted_bytes += bytes;
}

/* ---- the coming layer of a prompt --------------------------------------------------------------
 */

/* Lets go of an expert that was held for nothing: read bytes are wasted if its slot empties. */
static void drop_held(struct sl_expert_store *s, struct sl_ec_lease *lease)
{
    uint32_t slot = lease->slot, layer = lease->layer, expert = lease->expert;
    if (s->slots[slot].flight != SL_EC_NONE) store_cancel(s, &s->flights[s->slots[slot].flight]);
    store_unlease(s, lease);
    store_tell(s, SL_TRACE_LET_GO, layer, expert, 0);
    if (sl_ec_find(s->ec, layer, expert) == SL_EC_NONE)
        store_guess_wasted(s, layer, slot, s->layers[layer].expert_bytes);
}

static void drop_coming(struct sl_expert_store *s)
{
    struct coming *c = &s->coming;
    for (uint32_t i = 0; i < c->n_held; i++) drop_held(s, &c->held[i]);
    c->n_held = c->n = c->next = 0;
    c->layer = SL_EC_NONE;
}

void store_coming_failed(struct sl_expert_store *s, const struct flight *f)
{
    struct coming *c = &s->coming;
    for (uint32_t i = 0; i < c->n_held; i++) {
        if (c->held[i].slot != f->slot) continue;
        store_unlease(s, &c->held[i]);
        c->held[i] = c->held[--c->n_held];
        return;
    }
}

static void pump_coming(struct sl_expert_store *s)
{
    struct coming *c = &s->coming;
    while (c->next < c->n && c->n_held < s->ring_slots && store_flights_left(s)) {
        struct sl_expert_id id = {c->layer, c->experts[c->next]};
        struct sl_ec_slot_of got;
        if (sl_ec_find(s->ec, id.layer, id.expert) == SL_EC_NONE) {
            enum sl_ec_answer answer =
                sl_ec_reserve(s->ec, id.layer, id.expert, SL_EC_PROMPT, &got);
            if (answer == SL_EC_BUSY) return;
            store_took_slot(s, &got);
            store_tell(s, SL_TRACE_COMING, id.layer, id.expert, store_entry(answer, &got));
            (void)store_read(s, id, got.slot, s->layers[id.layer].all_reads, FETCH_COMING);
            s->slots[got.slot].guess = FETCH_COMING;
            store_lease(s, id.layer, id.expert, &c->held[c->n_held++]);
        }
        c->next++;
    }
}

static void expect_prompt(struct sl_expert_store *s, uint32_t layer,
                          const struct sl_expert_hint *hints, uint32_t n)
{
    struct coming *c = &s->coming;
    float least =
        s->ahead.mode == SL_READ_AHEAD_FORCED ? PROMPT_PROBABILITY_FORCED : PROMPT_PROBABILITY;
    if (c->layer != layer) drop_coming(s);
    c->layer = layer;
    c->n = c->next = 0;
    for (uint32_t i = 0; i < n; i++)
        if (hints[i].probability >= least) c->experts[c->n++] = hints[i].expert;
}

/* ---- guesses about a token ---------------------------------------------------------------------
 */

static void forget_guesses(struct sl_expert_store *s, uint32_t layer)
{
    struct guesses *g = &s->guesses;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->list[i].layer != layer) g->list[kept++] = g->list[i];
    g->n = kept;
}

static void expect_token(struct sl_expert_store *s, uint32_t layer,
                         const struct sl_expert_hint *hints, uint32_t n)
{
    struct guesses *g = &s->guesses;
    forget_guesses(s, layer);
    for (uint32_t i = 0; i < n && g->n < GUESSES_MAX; i++)
        if (sl_read_ahead_wanted(&s->ahead, hints[i].probability))
            g->list[g->n++] = (struct sl_expert_id){layer, hints[i].expert};
}

static void pump_token(struct sl_expert_store *s)
{
    struct guesses *g = &s->guesses;
    uint32_t taken = 0;
    while (taken < g->n && s->flights_of[FETCH_AHEAD] < AHEAD_FLIGHTS_MAX &&
           store_flights_left(s)) {
        struct sl_expert_id id = g->list[taken++];
        struct sl_ec_slot_of got;
        if (sl_ec_find(s->ec, id.layer, id.expert) != SL_EC_NONE) continue;
        if (sl_ec_reserve(s->ec, id.layer, id.expert, SL_EC_GUESS, &got) != SL_EC_ENTERS) continue;
        store_took_slot(s, &got);
        store_tell(s, SL_TRACE_GUESS, id.layer, id.expert, 0);
        (void)store_read(s, id, got.slot, s->layers[id.layer].all_reads, FETCH_AHEAD);
        s->slots[got.slot].guess = FETCH_AHEAD;
        sl_read_ahead_issued(&s->ahead);
    }
    g->n -= taken;
    memmove(g->list, g->list + taken, g->n * sizeof g->list[0]);
}

/* ---- hot lists ---------------------------------------------------------------------------------
 */

void sl_expert_warm(struct sl_expert_store *s, const struct sl_expert_id *ids, uint32_t n)
{
    struct warm_list *w = &s->warm;
    if (s->ec == NULL) return;
    w->n = w->next = 0;
    for (uint32_t i = 0; i < n && w->n < s->n_slots; i++) {
        if (ids[i].layer >= s->n_layers) continue;
        if (ids[i].expert >= s->layers[ids[i].layer].shape.n_experts) continue;
        w->ids[w->n++] = ids[i];
    }
    store_pump(s);
}

static void pump_warm(struct sl_expert_store *s)
{
    struct warm_list *w = &s->warm;
    while (w->next < w->n && s->flights_of[FETCH_WARM] < WARM_FLIGHTS_MAX &&
           store_flights_left(s)) {
        uint32_t place = w->next++;
        struct sl_expert_id id = w->ids[place];
        struct sl_ec_slot_of got;
        if (sl_ec_find(s->ec, id.layer, id.expert) != SL_EC_NONE) continue;
        if (sl_ec_free_slots(s->ec, s->layers[id.layer].size_class) == 0) continue;
        enum sl_ec_answer answer = sl_ec_reserve(s->ec, id.layer, id.expert, SL_EC_GUESS, &got);
        SLUICE_ASSERT(answer == SL_EC_ENTERS);
        store_took_slot(s, &got);
        store_tell(s, SL_TRACE_WARM, id.layer, id.expert, 0);
        store_read(s, id, got.slot, s->layers[id.layer].all_reads, FETCH_WARM)->place = place;
    }
}

uint32_t sl_expert_hottest(const struct sl_expert_store *s, struct sl_expert_id *out, uint32_t max)
{
    if (s->ec == NULL) return 0;
    uint32_t n = sl_ec_hottest(s->ec, s->hot, max < s->n_slots ? max : s->n_slots);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct sl_expert_id){s->hot[i].layer, s->hot[i].expert};
    return n;
}

/* ---- all of them -------------------------------------------------------------------------------
 */

void store_pump_guesses(struct sl_expert_store *s)
{
    if (s->chunk.open && (s->chunk.failed || s->chunk.n_waiting > 0)) return;
    pump_coming(s);
    if (s->n_needed > 0) return;
    pump_token(s);
    if (s->guesses.n == 0 && s->coming.next == s->coming.n) pump_warm(s);
}

/* How many visits there will be until the layer's own. */
static uint32_t visits_until(const struct sl_expert_store *s, uint32_t layer, bool prompt)
{
    uint32_t turns = (s->layers[layer].turn + s->n_turns - s->now_turn) % s->n_turns;
    if (turns == 0) turns = s->n_turns;
    return prompt ? (turns - 1) * s->chunk.n_tokens + 1 : turns;
}

void sl_expert_expect(struct sl_expert_store *s, uint32_t layer, const struct sl_expert_hint *hints,
                      uint32_t n, bool prompt)
{
    SLUICE_ASSERT(layer < s->n_layers && n <= s->layers[layer].shape.n_experts);
    if (s->ec == NULL || n == 0 || (s->chunk.open && layer == s->chunk.layer)) return;
    uint32_t visits = visits_until(s, layer, prompt);
    for (uint32_t i = 0; i < n; i++) {
        SLUICE_ASSERT(hints[i].expert < s->layers[layer].shape.n_experts);
        if (!(hints[i].probability >= SL_PROTECT_PROBABILITY)) continue;
        sl_ec_protect(s->ec, layer, hints[i].expert, visits);
        if (!prompt) s->predicted[s->layers[layer].first + hints[i].expert] = 1;
    }
    if (s->watch != NULL)
        s->watch->on_hints(s->watch->user,
                           &(struct sl_expert_expected){layer, visits, prompt, n, hints});
    if (s->ahead.mode == SL_READ_AHEAD_OFF) return;
    if (prompt)
        expect_prompt(s, layer, hints, n);
    else
        expect_token(s, layer, hints, n);
    store_pump(s);
}

/* Marks and counts what had been predicted for the layer's token. */
static void count_predicted(struct sl_expert_store *s, uint32_t layer, bool in_order)
{
    struct store_layer *l = &s->layers[layer];
    for (uint32_t x = 0; x < l->shape.n_experts; x++) {
        if (s->predicted[l->first + x] == 0) continue;
        s->predicted[l->first + x] = 0;
        if (in_order) continue;
        bool used = s->chunk.place[x] != SL_EC_NONE;
        s->stats.predicted++, l->stats.predicted++;
        s->stats.predicted_used += used, l->stats.predicted_used += used;
    }
}

/* The chunk takes over the leases of what it chose. */
static void settle_coming(struct sl_expert_store *s, uint32_t layer)
{
    struct coming *c = &s->coming;
    for (uint32_t i = 0; i < c->n_held && c->layer == layer;) {
        struct wanted *w = store_wanted(s, layer, c->held[i].expert);
        if (w == NULL) {
            i++;
            continue;
        }
        w->lease = c->held[i];
        s->chunk.n_waiting--;
        uint32_t flight = s->slots[w->lease.slot].flight;
        if (flight != SL_EC_NONE) store_adopt(s, &s->flights[flight]);
        c->held[i] = c->held[--c->n_held];
    }
    drop_coming(s);
}

void store_guesses_due(struct sl_expert_store *s, uint32_t layer, bool in_order)
{
    count_predicted(s, layer, in_order);
    forget_guesses(s, layer);
    if (s->coming.layer != SL_EC_NONE) settle_coming(s, layer);
    if (s->flights_of[FETCH_AHEAD] == 0) return;
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight *f = &s->flights[i];
        if (f->pending == 0 || f->why != FETCH_AHEAD || f->layer != layer) continue;
        if (store_wanted(s, layer, f->expert) == NULL) store_cancel(s, f);
    }
}

void sl_expert_settle(struct sl_expert_store *s)
{
    struct warm_list *w = &s->warm;
    SLUICE_ASSERT(!s->chunk.open);
    if (s->ec == NULL) return;
    drop_coming(s);
    s->guesses.n = 0;
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight *f = &s->flights[i];
        if (f->pending == 0) continue;
        store_cancel(s, f);
        if (f->why == FETCH_WARM && f->dropped != 0 && f->place < w->next) w->next = f->place;
    }
    while (s->n_flights > 0) store_reap(s, 1);
}
