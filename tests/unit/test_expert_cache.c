/* The books of the expert cache against a plain model of them, by random operations, with the
 * validator after each; then the rules for leases, classes, sizes and memory one by one.
 *
 * The model keeps what a slot holds and finds victims by looking at every expert; it asks the
 * policy for scores, whose own test is test_policy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expert_cache/expert_cache.h"
#include "tests/support/recall_model.h"

#define LAYERS 5
#define EXPERTS 12
#define CLASSES 2
#define SLOTS 16
#define RING 2

static const struct sl_ec_layer shape[LAYERS] = {
    {10, 2, 3, 0}, {12, 3, 2, 1}, {0, 0, 0, 0}, {6, 2, 3, 0}, {9, 1, 1, 1}};
static const uint32_t class_slots[CLASSES] = {7, 9};
static const uint32_t turn_of[LAYERS] = {0, 1, 0, 2, 3};
#define TURNS 4

/* ---- the model ---------------------------------------------------------------------------------
 */

struct model_expert {
    struct sl_ec_heat heat;
    uint64_t protected_until;
    uint32_t slot, parts, leases;
    bool passing;
};

struct model {
    const struct sl_ec_policy *policy;
    struct model_expert x[LAYERS][EXPERTS];
    uint32_t doomed[SLOTS]; /* leases of slots whose read failed */
    bool closed[SLOTS];
    uint64_t visits[LAYERS], clock, stamp;
    uint32_t visiting, now_turn;
    uint64_t evictions, hits, uses;
    struct recall_model recall;
};

struct model_victim {
    uint32_t layer, expert;
    double score; /* less the layer's wait */
    uint64_t last_use;
};

static uint32_t all_parts(uint32_t l) { return (1u << shape[l].n_parts) - 1; }

static double model_score(const struct model *m, uint32_t l, uint32_t x)
{
    double s = m->policy->score(&m->x[l][x].heat, m->visits[l]);
    if (m->policy->recall_weight == 0) return s;
    return s + m->policy->recall_weight * recall_model_follows(&m->recall, l, x);
}

static double model_wait(const struct model *m, uint32_t l)
{
    uint32_t turns = (turn_of[l] + TURNS - m->now_turn) % TURNS;
    return m->policy->wait ? m->policy->wait(turns ? turns : TURNS, TURNS) : 0;
}

static bool model_evictable(const struct model *m, uint32_t l, uint32_t x)
{
    const struct model_expert *e = &m->x[l][x];
    if (e->slot == SL_EC_NONE || e->parts != all_parts(l) || e->leases > 0) return false;
    return !(l == m->visiting && e->heat.visit == m->visits[l]);
}

/* The lowest of a layer: score, then least recent, then lower index (the order of the search). */
static struct model_victim model_lowest(const struct model *m, uint32_t l, bool is_protected)
{
    struct model_victim v = {l, SL_EC_NONE, 0, 0};
    for (uint32_t x = 0; x < shape[l].n_experts; x++) {
        const struct model_expert *e = &m->x[l][x];
        if (!model_evictable(m, l, x) || (e->protected_until > m->clock) != is_protected) continue;
        double s = model_score(m, l, x);
        if (v.expert != SL_EC_NONE &&
            (s > v.score || (s == v.score && e->heat.last_use >= v.last_use)))
            continue;
        v = (struct model_victim){l, x, s, e->heat.last_use};
    }
    v.score -= model_wait(m, l);
    return v;
}

static struct model_victim model_victim(const struct model *m, uint32_t size_class,
                                        bool is_protected)
{
    struct model_victim best = {SL_EC_NONE, SL_EC_NONE, 0, 0};
    for (uint32_t l = 0; l < LAYERS; l++) {
        if (shape[l].n_experts == 0 || shape[l].size_class != size_class) continue;
        struct model_victim v = model_lowest(m, l, is_protected);
        if (v.expert == SL_EC_NONE) continue;
        if (best.expert != SL_EC_NONE &&
            (v.score > best.score || (v.score == best.score && v.last_use >= best.last_use)))
            continue;
        best = v;
    }
    return best;
}

static uint32_t model_free(const struct model *m, uint32_t size_class, uint32_t *passing)
{
    uint32_t n = class_slots[size_class], first = size_class ? class_slots[0] : 0;
    *passing = 0;
    for (uint32_t s = first; s < first + class_slots[size_class]; s++)
        n -= m->closed[s] || m->doomed[s] > 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < shape[l].n_experts; x++) {
            if (shape[l].size_class != size_class || m->x[l][x].slot == SL_EC_NONE) continue;
            n--;
            *passing += m->x[l][x].passing;
        }
    return n;
}

static bool model_hotter(const struct model *m, uint32_t l, uint32_t x,
                         const struct model_victim *v)
{
    const struct sl_ec_heat *h = &m->x[l][x].heat;
    double s = model_score(m, l, x) - model_wait(m, l);
    if (v->expert == SL_EC_NONE) return false;
    if (s != v->score) return s > v->score;
    if (h->last_use != v->last_use) return h->last_use > v->last_use;
    return l * EXPERTS + x > v->layer * EXPERTS + v->expert;
}

/* The rules of expert_cache.h, one after the other; v receives whom it costs. */
static enum sl_ec_answer model_answer(const struct model *m, uint32_t l, uint32_t x,
                                      enum sl_ec_why why, struct model_victim *v)
{
    uint32_t k = shape[l].size_class, passing, n_free = model_free(m, k, &passing);
    struct model_victim open = model_victim(m, k, false), guarded = model_victim(m, k, true);
    struct model_victim any = open.expert != SL_EC_NONE ? open : guarded;
    *v = (struct model_victim){SL_EC_NONE, SL_EC_NONE, 0, 0};
    if (n_free > (why == SL_EC_PROMPT ? RING : 0)) return SL_EC_ENTERS;
    if (why != SL_EC_DEMAND && model_hotter(m, l, x, &open)) {
        *v = open;
        return SL_EC_ENTERS;
    }
    if (why == SL_EC_GUESS) return SL_EC_COLDER;
    if (why == SL_EC_PROMPT && n_free > 0) return SL_EC_PASSES;
    if (why == SL_EC_PROMPT && passing >= RING) return SL_EC_BUSY;
    if (any.expert == SL_EC_NONE) return SL_EC_BUSY;
    *v = any;
    return why == SL_EC_PROMPT ? SL_EC_PASSES : SL_EC_ENTERS;
}

static void model_drop(struct model_expert *e)
{
    e->slot = SL_EC_NONE;
    e->parts = 0;
    e->passing = false;
}

/* ---- random operations -------------------------------------------------------------------------
 */

struct game {
    struct sl_budget budget;
    struct sl_ec *c;
    struct model m;
    uint32_t seed;
    struct sl_ec_lease leases[64];
    uint32_t n_leases;
};

static uint32_t roll(struct game *g, uint32_t below)
{
    g->seed = g->seed * 1664525 + 1013904223;
    return (g->seed >> 8) % below;
}

static void roll_expert(struct game *g, uint32_t *l, uint32_t *x)
{
    do *l = roll(g, LAYERS);
    while (shape[*l].n_experts == 0);
    *x = roll(g, shape[*l].n_experts);
}

static void play_visit(struct game *g)
{
    uint32_t l = g->m.visiting == SL_EC_NONE || roll(g, 4) == 0 ? roll(g, LAYERS)
                                                                : (g->m.visiting + 1) % LAYERS;
    uint32_t chosen[EXPERTS], n = 0;
    for (uint32_t x = 0; x < shape[l].n_experts && n < shape[l].top_k; x++)
        if (roll(g, x < 3 ? 2 : 5) == 0) chosen[n++] = x;
    struct model *m = &g->m;
    m->visits[l]++;
    m->clock++;
    m->visiting = l;
    if (shape[l].n_experts > 0) m->now_turn = turn_of[l];
    for (uint32_t i = 0; i < n; i++) {
        struct model_expert *e = &m->x[l][chosen[i]];
        m->policy->use(&e->heat, m->visits[l]);
        e->heat.visit = m->visits[l];
        e->heat.last_use = ++m->stamp;
        m->uses++;
        m->hits += e->slot != SL_EC_NONE && e->parts == all_parts(l);
    }
    if (shape[l].n_experts > 0) recall_model_visit(&m->recall, l, chosen, n);
    sl_ec_visit(g->c, l, chosen, n);
}

static void play_visit_over(struct game *g)
{
    sl_ec_visit_over(g->c);
    g->m.visiting = SL_EC_NONE;
}

static void play_reserve(struct game *g)
{
    uint32_t l, x;
    roll_expert(g, &l, &x);
    struct model_expert *e = &g->m.x[l][x];
    if (e->slot != SL_EC_NONE) return;
    enum sl_ec_why why = (enum sl_ec_why)roll(g, SL_EC_WHYS);
    struct model_victim v;
    enum sl_ec_answer want = model_answer(&g->m, l, x, why, &v);
    assert_int_equal(sl_ec_would(g->c, l, x, why), want);
    struct sl_ec_slot_of got;
    assert_int_equal(sl_ec_reserve(g->c, l, x, why, &got), want);
    assert_int_equal(got.evicted_layer, v.layer);
    assert_int_equal(got.evicted_expert, v.expert);
    if (want != SL_EC_ENTERS && want != SL_EC_PASSES) {
        assert_int_equal(got.slot, SL_EC_NONE);
        return;
    }
    if (v.expert != SL_EC_NONE) {
        assert_int_equal(got.slot, g->m.x[v.layer][v.expert].slot);
        model_drop(&g->m.x[v.layer][v.expert]);
        g->m.evictions++;
    }
    e->slot = got.slot;
    e->passing = want == SL_EC_PASSES;
}

static void play_arrived(struct game *g)
{
    uint32_t l, x;
    roll_expert(g, &l, &x);
    struct model_expert *e = &g->m.x[l][x];
    uint32_t missing = all_parts(l) & ~e->parts;
    if (e->slot == SL_EC_NONE || missing == 0) return;
    if (roll(g, 8) == 0) {
        sl_ec_failed(g->c, e->slot);
        g->m.doomed[e->slot] = e->leases;
        e->leases = 0;
        model_drop(e);
        return;
    }
    uint32_t parts = missing & (1 + roll(g, 7));
    if (parts == 0) parts = missing;
    sl_ec_arrived(g->c, e->slot, parts);
    e->parts |= parts;
    assert_int_equal(sl_ec_parts(g->c, e->slot), e->parts);
    if (e->parts == all_parts(l) && e->leases == 0) e->passing = false;
}

static void play_acquire(struct game *g)
{
    uint32_t l, x;
    roll_expert(g, &l, &x);
    struct model_expert *e = &g->m.x[l][x];
    if (e->slot == SL_EC_NONE || g->n_leases == 8) return;
    struct sl_ec_lease *lease = &g->leases[g->n_leases++];
    sl_ec_acquire(g->c, l, x, lease);
    assert_int_equal(lease->slot, e->slot);
    e->leases++;
}

static void play_release(struct game *g)
{
    if (g->n_leases == 0) return;
    uint32_t i = roll(g, g->n_leases);
    struct sl_ec_lease lease = g->leases[i];
    g->leases[i] = g->leases[--g->n_leases];
    struct model_expert *e = &g->m.x[lease.layer][lease.expert];
    if (e->slot != lease.slot) {
        assert_true(g->m.doomed[lease.slot]-- > 0);
    } else if (--e->leases == 0 && e->passing && e->parts == all_parts(lease.layer)) {
        model_drop(e);
    }
    sl_ec_release(g->c, &lease);
    assert_int_equal(lease.slot, SL_EC_NONE);
}

static void play_protect(struct game *g)
{
    uint32_t l, x, visits = roll(g, 4);
    roll_expert(g, &l, &x);
    uint64_t until = g->m.clock + visits;
    if (until > g->m.x[l][x].protected_until) g->m.x[l][x].protected_until = until;
    sl_ec_protect(g->c, l, x, visits);
}

static void play_service(struct game *g)
{
    uint32_t closed = roll(g, SLOTS);
    if (g->m.closed[closed]) {
        sl_ec_slot_open(g->c, closed);
        g->m.closed[closed] = false;
        return;
    }
    if (roll(g, 3) > 0) return;
    uint32_t k = roll(g, CLASSES), passing, n_closed = 0;
    for (uint32_t s = 0; s < SLOTS; s++) n_closed += g->m.closed[s] && (s >= class_slots[0]) == k;
    uint32_t floor = k ? 3 : 2, n_free = model_free(&g->m, k, &passing);
    struct model_victim v = model_victim(&g->m, k, false);
    if (v.expert == SL_EC_NONE) v = model_victim(&g->m, k, true);
    uint32_t slot = sl_ec_slot_close(g->c, k);
    if (class_slots[k] - n_closed == floor || (n_free == 0 && v.expert == SL_EC_NONE)) {
        assert_int_equal(slot, SL_EC_NONE);
        return;
    }
    if (n_free == 0) {
        assert_int_equal(slot, g->m.x[v.layer][v.expert].slot);
        model_drop(&g->m.x[v.layer][v.expert]);
        g->m.evictions++;
    }
    g->m.closed[slot] = true;
}

static void compare(const struct game *g)
{
    sl_ec_check(g->c);
    uint32_t residents = 0, in_flight = 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < shape[l].n_experts; x++) {
            const struct model_expert *e = &g->m.x[l][x];
            assert_int_equal(sl_ec_find(g->c, l, x), e->slot);
            residents += e->slot != SL_EC_NONE;
            in_flight += e->slot != SL_EC_NONE && e->parts != all_parts(l);
        }
    struct sl_ec_stats s;
    sl_ec_stats(g->c, &s);
    assert_int_equal(s.residents, residents);
    assert_int_equal(s.in_flight, in_flight);
    assert_int_equal(s.evictions, g->m.evictions);
    assert_int_equal(s.uses, g->m.uses);
    assert_int_equal(s.hits, g->m.hits);
    uint32_t passing;
    assert_int_equal(s.free_slots, model_free(&g->m, 0, &passing) + model_free(&g->m, 1, &passing));
}

static void open_shape(struct game *g, const struct sl_ec_policy *policy)
{
    memset(g, 0, sizeof *g);
    sl_budget_init(&g->budget, UINT64_MAX);
    struct sl_ec_config config = {shape, LAYERS, {class_slots[0], class_slots[1]}, RING, policy};
    sluice_error e;
    assert_int_equal(sl_ec_open(&config, &g->budget, &e, &g->c), SLUICE_OK);
    assert_int_equal(sl_budget_used(&g->budget), sl_ec_bytes(&config));
    g->m.policy = policy;
    g->m.visiting = SL_EC_NONE;
    g->m.now_turn = TURNS - 1;
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < EXPERTS; x++) g->m.x[l][x].slot = SL_EC_NONE;
}

static void close_shape(struct game *g)
{
    while (g->n_leases > 0) play_release(g);
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < shape[l].n_experts; x++) {
            uint32_t slot = sl_ec_find(g->c, l, x);
            if (slot != SL_EC_NONE && sl_ec_parts(g->c, slot) != all_parts(l))
                sl_ec_failed(g->c, slot);
        }
    sl_ec_close(g->c);
    assert_int_equal(sl_budget_used(&g->budget), 0);
}

static void play(const struct sl_ec_policy *policy, uint32_t seed, uint32_t rounds)
{
    static void (*const moves[])(struct game *) = {
        play_visit,   play_visit_over, play_visit,   play_reserve, play_reserve,
        play_reserve, play_arrived,    play_arrived, play_arrived, play_arrived,
        play_acquire, play_release,    play_release, play_protect, play_service};
    static struct game g;
    open_shape(&g, policy);
    g.seed = seed;
    for (uint32_t i = 0; i < rounds; i++) {
        moves[roll(&g, SL_ARRAY_LEN(moves))](&g);
        compare(&g);
    }
    struct sl_ec_stats s;
    sl_ec_stats(g.c, &s);
    for (int why = 0; why < SL_EC_WHYS; why++) assert_true(s.answers[why][SL_EC_ENTERS] > 0);
    assert_true(s.answers[SL_EC_PROMPT][SL_EC_PASSES] > 0 || policy == &sl_ec_policy_lru);
    assert_true(s.answers[SL_EC_GUESS][SL_EC_COLDER] > 0 && s.failures > 0 && s.evictions > 0);
    close_shape(&g);
}

static void test_books__random_operations__agree_with_a_plain_model(void **state)
{
    (void)state;
    const struct sl_ec_policy *policy;
    for (uint32_t p = 0; (policy = sl_ec_policy_at(p)) != NULL; p++)
        for (uint32_t seed = 1; seed <= 5; seed++) play(policy, seed, 4000);
}

/* ---- single rules ------------------------------------------------------------------------------
 */

static jmp_buf assert_jump;
static int asserted;

static void on_assert(const char *expression, const char *file, int line)
{
    (void)expression, (void)file, (void)line;
    asserted = 1;
    longjmp(assert_jump, 1);
}

#define EXPECT_ASSERT(statement)                                                                   \
    do {                                                                                           \
        asserted = 0;                                                                              \
        sl_assert_set_handler(on_assert);                                                          \
        if (setjmp(assert_jump) == 0) {                                                            \
            statement;                                                                             \
        }                                                                                          \
        sl_assert_set_handler(NULL);                                                               \
        assert_true(asserted);                                                                     \
    } while (0)

/* Reads an expert at once. */
static uint32_t bring(struct game *g, uint32_t l, uint32_t x)
{
    struct sl_ec_slot_of got;
    assert_int_equal(sl_ec_reserve(g->c, l, x, SL_EC_DEMAND, &got), SL_EC_ENTERS);
    sl_ec_arrived(g->c, got.slot, all_parts(l));
    return got.slot;
}

static void test_lease__misuse__is_an_assertion(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_two_rate);
    struct sl_ec_lease lease, copy;
    EXPECT_ASSERT(sl_ec_acquire(g.c, 0, 1, &lease)); /* not in a slot */
    bring(&g, 0, 1);
    sl_ec_acquire(g.c, 0, 1, &lease);
    EXPECT_ASSERT(sl_ec_close(g.c)); /* live lease */
    copy = lease;
    sl_ec_release(g.c, &lease);
    assert_int_equal(lease.layer, SL_EC_NONE);
    EXPECT_ASSERT(sl_ec_release(g.c, &lease)); /* cleared */
    EXPECT_ASSERT(sl_ec_release(g.c, &copy));  /* twice */
    EXPECT_ASSERT(sl_ec_find(g.c, 0, 10));
    EXPECT_ASSERT(sl_ec_find(g.c, 5, 0));
    EXPECT_ASSERT(sl_ec_find(g.c, 2, 0)); /* a layer without experts */
    close_shape(&g);
}

static void test_arrival__wrong_parts__is_an_assertion(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_two_rate);
    struct sl_ec_slot_of got;
    assert_int_equal(sl_ec_reserve(g.c, 1, 4, SL_EC_DEMAND, &got), SL_EC_ENTERS);
    EXPECT_ASSERT(sl_ec_close(g.c)); /* read in flight */
    EXPECT_ASSERT(sl_ec_arrived(g.c, got.slot, 0));
    EXPECT_ASSERT(sl_ec_arrived(g.c, got.slot, 4)); /* the layer has two parts */
    sl_ec_arrived(g.c, got.slot, 1);
    EXPECT_ASSERT(sl_ec_arrived(g.c, got.slot, 1));
    EXPECT_ASSERT(sl_ec_reserve(g.c, 1, 4, SL_EC_DEMAND, &got)); /* it has a slot */
    sl_ec_arrived(g.c, got.slot, 2);
    EXPECT_ASSERT(sl_ec_failed(g.c, got.slot));
    const uint32_t twice[] = {3, 3};
    EXPECT_ASSERT(sl_ec_visit(g.c, 1, twice, 2));
    close_shape(&g);
}

static void test_lease__all_slots_leased__demand_is_busy(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_two_rate);
    struct sl_ec_lease lease[7];
    struct sl_ec_slot_of got;
    for (uint32_t x = 0; x < 7; x++) {
        bring(&g, 0, x);
        sl_ec_acquire(g.c, 0, x, &lease[x]);
    }
    assert_int_equal(sl_ec_reserve(g.c, 3, 0, SL_EC_DEMAND, &got), SL_EC_BUSY);
    assert_int_equal(got.slot, SL_EC_NONE);
    bring(&g, 1, 0); /* the other class is not concerned */
    sl_ec_release(g.c, &lease[4]);
    assert_int_equal(sl_ec_reserve(g.c, 3, 0, SL_EC_DEMAND, &got), SL_EC_ENTERS);
    assert_int_equal(got.evicted_layer, 0);
    assert_int_equal(got.evicted_expert, 4);
    for (uint32_t x = 0; x < 7; x++)
        if (x != 4) sl_ec_release(g.c, &lease[x]);
    close_shape(&g);
}

static void test_protect__coldest_is_protected__another_goes_first(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_lru);
    for (uint32_t x = 0; x < 7; x++) {
        sl_ec_visit(g.c, 0, &x, 1);
        bring(&g, 0, x);
    }
    sl_ec_visit(g.c, 3, NULL, 0);
    struct sl_ec_slot_of got;
    sl_ec_protect(g.c, 0, 0, 1);
    assert_int_equal(sl_ec_reserve(g.c, 3, 0, SL_EC_DEMAND, &got), SL_EC_ENTERS);
    assert_int_equal(got.evicted_expert, 1);
    sl_ec_visit(g.c, 3, NULL, 0); /* the protection ends */
    assert_int_equal(sl_ec_reserve(g.c, 3, 1, SL_EC_DEMAND, &got), SL_EC_ENTERS);
    assert_int_equal(got.evicted_expert, 0);
    for (uint32_t x = 2; x < 7; x++) {
        sl_ec_protect(g.c, 0, x, 5);
        sl_ec_protect(g.c, 0, x, 0); /* does not shorten the first */
    }
    const uint32_t hot = 2;
    sl_ec_visit(g.c, 3, &hot, 1);
    assert_int_equal(sl_ec_would(g.c, 3, 2, SL_EC_GUESS), SL_EC_COLDER);
    assert_int_equal(sl_ec_reserve(g.c, 3, 2, SL_EC_DEMAND, &got), SL_EC_ENTERS);
    assert_int_equal(got.evicted_expert, 2); /* nobody else is left */
    close_shape(&g);
}

/* A prompt that reads cold experts takes no more than the ring from the residents. */
static void test_prompt__colder_than_the_cache__passes_through_the_ring(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_lfu);
    for (uint32_t i = 0; i < 50; i++)
        for (uint32_t x = 0; x < 7; x++) sl_ec_visit(g.c, 0, &x, 1);
    for (uint32_t x = 0; x < 7; x++) bring(&g, 0, x);
    for (uint32_t x = 0; x < 6; x++) {
        struct sl_ec_slot_of got;
        struct sl_ec_lease lease;
        sl_ec_visit(g.c, 3, &x, 1);
        assert_int_equal(sl_ec_reserve(g.c, 3, x, SL_EC_PROMPT, &got), SL_EC_PASSES);
        assert_int_equal(got.evicted_layer, x == 0 ? 0 : SL_EC_NONE);
        sl_ec_acquire(g.c, 3, x, &lease);
        sl_ec_arrived(g.c, got.slot, 7);
        sl_ec_release(g.c, &lease);
        assert_int_equal(sl_ec_find(g.c, 3, x), SL_EC_NONE);
    }
    struct sl_ec_stats s;
    sl_ec_stats(g.c, &s);
    assert_int_equal(s.evictions, 1);
    assert_int_equal(s.free_slots, 1 + class_slots[1]);
    close_shape(&g);
}

static void test_guess__used_later__is_counted_once(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_two_rate);
    struct sl_ec_slot_of got;
    assert_int_equal(sl_ec_reserve(g.c, 0, 5, SL_EC_GUESS, &got), SL_EC_ENTERS);
    uint32_t x = 5;
    sl_ec_visit(g.c, 0, &x, 1);
    sl_ec_arrived(g.c, got.slot, 7);
    sl_ec_visit(g.c, 0, &x, 1);
    struct sl_ec_stats s;
    sl_ec_stats(g.c, &s);
    assert_int_equal(s.guesses_used, 1);
    assert_int_equal(s.hits_flying, 1);
    assert_int_equal(s.hits, 1);
    close_shape(&g);
}

static void test_hottest__more_than_asked_for__the_hottest_first(void **state)
{
    (void)state;
    static struct game g;
    open_shape(&g, &sl_ec_policy_lfu);
    for (uint32_t x = 0; x < 9; x++)
        for (uint32_t n = 0; n <= (x * 5) % 9; n++) sl_ec_visit(g.c, 4, &x, 1);
    struct sl_ec_hot hot[20];
    for (uint32_t max = 0; max <= 20; max++) {
        uint32_t n = sl_ec_hottest(g.c, hot, max);
        assert_int_equal(n, max < 9 ? max : 9);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(hot[i].layer, 4);
            assert_int_equal((hot[i].expert * 5) % 9, 8 - i);
        }
    }
    close_shape(&g);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static void test_floor__mixed_layers__top_k_of_each_class(void **state)
{
    (void)state;
    struct sl_ec_floor f;
    sl_ec_floor(shape, LAYERS, &f);
    assert_int_equal(f.fewest[0], 2);
    assert_int_equal(f.fewest[1], 3);
    assert_int_equal(f.fewest[2], 0);
    assert_int_equal(f.lru_hits[0], 4);
    assert_int_equal(f.lru_hits[1], 4);
}

static void test_open__below_the_floor__says_how_many(void **state)
{
    (void)state;
    struct sl_budget b;
    sl_budget_init(&b, UINT64_MAX);
    struct sl_ec_config config = {shape, LAYERS, {2, 2}, RING, NULL};
    struct sl_ec *c;
    sluice_error e;
    assert_int_equal(sl_ec_open(&config, &b, &e, &c), SLUICE_E_BUDGET);
    assert_null(c);
    assert_non_null(strstr(e.text, "uses 3 at once"));
    config.n_slots[1] = 3;
    assert_int_equal(sl_ec_open(&config, &b, &e, &c), SLUICE_OK);
    sl_ec_close(c);
    config.ring_slots = 0;
    assert_int_equal(sl_ec_bytes(&config), 0);
    assert_int_equal(sl_ec_open(&config, &b, &e, &c), SLUICE_E_ARG);
    assert_int_equal(sl_budget_used(&b), 0);
}

static void test_open__memory_fails__nothing_is_left(void **state)
{
    (void)state;
    struct sl_budget b;
    struct sl_ec_config config = {shape, LAYERS, {7, 9}, RING, NULL};
    struct sl_ec *c;
    sluice_error e;
    sl_budget_init(&b, sl_ec_bytes(&config) - 1);
    assert_int_equal(sl_ec_open(&config, &b, &e, &c), SLUICE_E_NOMEM);
    assert_int_equal(sl_budget_used(&b), 0);
    for (int n = 0; n < 2; n++) {
        sl_budget_init(&b, UINT64_MAX);
        b.fail_after = n;
        assert_int_equal(sl_ec_open(&config, &b, &e, &c), SLUICE_E_NOMEM);
        assert_int_equal(sl_budget_used(&b), 0);
    }
    sl_budget_init(&b, sl_ec_bytes(&config));
    assert_int_equal(sl_ec_open(&config, &b, &e, &c), SLUICE_OK);
    sl_ec_close(c);
    sl_ec_close(NULL);
}

static void test_size_classes__few_sizes__one_class_each(void **state)
{
    (void)state;
    const uint64_t bytes[] = {300, 100, 0, 300, 200};
    uint64_t class_bytes[SL_EC_CLASSES_MAX];
    uint32_t class_of[5];
    assert_int_equal(sl_ec_size_classes(bytes, 5, class_of, class_bytes), 3);
    const uint32_t want[] = {2, 0, 0, 2, 1};
    assert_memory_equal(class_of, want, sizeof want);
    assert_int_equal(class_bytes[0], 100);
    assert_int_equal(class_bytes[2], 300);
    assert_int_equal(class_bytes[3], 0);
}

static void test_size_classes__too_many_sizes__the_cheapest_are_joined(void **state)
{
    (void)state;
    /* Joining 100 with 104 would cost two layers 4 bytes each, 200 with 207 one layer 7. */
    const uint64_t bytes[] = {100, 100, 104, 200, 207, 400};
    uint64_t class_bytes[SL_EC_CLASSES_MAX];
    uint32_t class_of[6];
    assert_int_equal(sl_ec_size_classes(bytes, 6, class_of, class_bytes), 4);
    const uint32_t want[] = {0, 0, 1, 2, 2, 3};
    assert_memory_equal(class_of, want, sizeof want);
    const uint64_t want_bytes[] = {100, 104, 207, 400};
    assert_memory_equal(class_bytes, want_bytes, sizeof want_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_books__random_operations__agree_with_a_plain_model),
        cmocka_unit_test(test_lease__misuse__is_an_assertion),
        cmocka_unit_test(test_arrival__wrong_parts__is_an_assertion),
        cmocka_unit_test(test_lease__all_slots_leased__demand_is_busy),
        cmocka_unit_test(test_protect__coldest_is_protected__another_goes_first),
        cmocka_unit_test(test_prompt__colder_than_the_cache__passes_through_the_ring),
        cmocka_unit_test(test_guess__used_later__is_counted_once),
        cmocka_unit_test(test_hottest__more_than_asked_for__the_hottest_first),
        cmocka_unit_test(test_floor__mixed_layers__top_k_of_each_class),
        cmocka_unit_test(test_open__below_the_floor__says_how_many),
        cmocka_unit_test(test_open__memory_fails__nothing_is_left),
        cmocka_unit_test(test_size_classes__few_sizes__one_class_each),
        cmocka_unit_test(test_size_classes__too_many_sizes__the_cheapest_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
