/* Belady's optimum against brute force: on small random traces, every sequence of contents that a
 * cache could have is tried, and none has more hits of decoded tokens than the optimum, which has
 * as many. With groups of several experts a visit, prompts, size classes, and pools of both kinds;
 * and on larger ones, which cannot be tried out, no policy of the engine has more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/made_trace.h"
#include "trace/replay.h"

#define TRACES 1000
#define EXPERTS_MAX 8 /* of a pool, by brute force */
#define MASKS (1u << EXPERTS_MAX)
#define CHUNK 3

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* ---- traces ------------------------------------------------------------------------------------
 */

struct shape {
    uint32_t n_layers, n_experts, top_k, n_evals;
    bool prompts;
    uint32_t n_classes;
};

/* Distinct experts for each token; low numbers are popular. */
static void choose(const struct shape *s, uint32_t n_tokens, uint32_t *seed, uint16_t *chosen)
{
    for (uint32_t i = 0; i < n_tokens; i++)
        for (uint32_t k = 0; k < s->top_k;) {
            uint32_t x = draw(seed, 1 + draw(seed, s->n_experts));
            bool again = false;
            for (uint32_t j = 0; j < k; j++) again |= chosen[i * s->top_k + j] == x;
            if (!again) chosen[i * s->top_k + k++] = (uint16_t)x;
        }
}

static struct sl_trace *random_trace(const struct shape *s, uint32_t *seed)
{
    uint16_t chosen[CHUNK * SL_TOP_K_MAX];
    struct sl_trace *t = made_trace(s->n_layers, s->n_experts, s->top_k);
    t->header.n_classes = s->n_classes;
    for (uint32_t l = 0; l < s->n_layers; l++) t->header.layer[l].size_class = l % s->n_classes;
    for (uint32_t i = 0; i < s->n_evals; i++) {
        bool prompt = s->prompts && draw(seed, 3) == 0;
        uint32_t n = prompt ? 1 + draw(seed, CHUNK) : 1;
        made_eval(t, n, prompt);
        for (uint32_t l = 0; l < s->n_layers; l++) {
            choose(s, n, seed, chosen);
            made_visit(t, l, chosen);
        }
    }
    return t;
}

/* ---- brute force -------------------------------------------------------------------------------
 */

/* A pool's visits: which of its experts each chooses, as bits. */
struct requests {
    uint32_t n, mask[MADE_VISITS_MAX];
    bool prompt[MADE_VISITS_MAX], several[MADE_VISITS_MAX]; /* tokens at once */
};

static void list_requests(const struct sl_trace *t, const uint8_t pool_of[SL_LAYERS_MAX],
                          uint32_t pool, struct requests *out)
{
    uint32_t first[SL_LAYERS_MAX], n = 0;
    out->n = 0;
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        first[l] = n;
        if (pool_of[l] == pool) n += t->header.layer[l].n_experts;
    }
    assert_true(n <= EXPERTS_MAX);
    for (uint64_t i = 0; i < t->n_visits; i++) {
        const struct sl_trace_visit *v = &t->visits[i];
        if (pool_of[v->layer] != pool) continue;
        uint32_t mask = 0;
        for (uint32_t j = 0; j < v->n_tokens * v->top_k; j++)
            mask |= 1u << (first[v->layer] + t->chosen[v->first_choice + j]);
        out->prompt[out->n] = t->evals[v->eval].e.prompt;
        out->several[out->n] = v->n_tokens > 1;
        out->mask[out->n++] = mask;
    }
}

static uint32_t count_bits(uint32_t x)
{
    uint32_t n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* The most hits of decoded tokens: for every content that the cache can have before a visit, every
 * content that it can have after it. A single token's experts are all in it then; of several
 * tokens' any. best[m]: the most hits so far with content m, -1: it cannot be. */
static uint32_t brute_force(const struct requests *r, uint32_t slots)
{
    int best[MASKS], next[MASKS];
    memset(best, 0xff, sizeof best);
    best[0] = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t own = r->mask[i], must = r->several[i] ? 0 : own;
        memset(next, 0xff, sizeof next);
        for (uint32_t m = 0; m < MASKS; m++) {
            if (best[m] < 0) continue;
            int hits = best[m] + (r->prompt[i] ? 0 : (int)count_bits(m & own));
            uint32_t may = (m | own) & ~must;
            for (uint32_t kept = may;; kept = (kept - 1) & may) {
                uint32_t after = kept | must;
                if (count_bits(after) <= slots && hits > next[after]) next[after] = hits;
                if (kept == 0) break;
            }
        }
        memcpy(best, next, sizeof best);
    }
    int most = 0;
    for (uint32_t m = 0; m < MASKS; m++)
        if (best[m] > most) most = best[m];
    return (uint32_t)most;
}

/* ---- comparing ---------------------------------------------------------------------------------
 */

static struct sl_replay_result replay(const struct sl_trace *t, const struct sl_replay_config *c)
{
    struct sl_budget budget;
    struct sl_replay_result out;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    if (sl_replay(t, c, &budget, &e, &out)) fail_msg("%s", e.text);
    assert_int_equal(sl_budget_used(&budget), 0);
    return out;
}

/* Random numbers of slots, each at least as many as a visit chooses. */
static void draw_slots(const struct sl_trace *t, uint32_t *seed, struct sl_replay_config *c)
{
    uint32_t n = t->header.layer[0].n_experts, top_k = t->header.layer[0].top_k;
    for (uint32_t l = 0; l < t->header.n_layers; l++)
        c->layer_slots[l] = top_k + draw(seed, n - top_k + 1);
    for (uint32_t k = 0; k < t->header.n_classes; k++)
        c->n_slots[k] = top_k + draw(seed, n * t->header.n_layers / t->header.n_classes - top_k);
}

static void check_brute_force(const struct sl_trace *t, const struct sl_replay_config *c)
{
    uint8_t pool_of[SL_LAYERS_MAX];
    struct requests *r = calloc(1, sizeof *r);
    bool by_layer = c->pool == SL_REPLAY_PER_LAYER;
    uint32_t n_pools = by_layer ? t->header.n_layers : t->header.n_classes, most = 0;
    for (uint32_t l = 0; l < t->header.n_layers; l++)
        pool_of[l] = (uint8_t)(by_layer ? l : t->header.layer[l].size_class);
    for (uint32_t p = 0; p < n_pools; p++) {
        list_requests(t, pool_of, p, r);
        most += brute_force(r, by_layer ? c->layer_slots[p] : c->n_slots[p]);
    }
    struct sl_replay_result got = replay(t, c);
    assert_int_equal(got.decode.hits, most);
    free(r);
}

static void check_policies(const struct sl_trace *t, const struct sl_replay_config *c)
{
    uint64_t most = replay(t, c).decode.hits;
    struct sl_replay_config other = *c;
    other.optimum = false;
    for (uint32_t p = 0; sl_ec_policy_at(p) != NULL; p++) {
        other.policy = sl_ec_policy_at(p);
        assert_true(replay(t, &other).decode.hits <= most);
    }
}

/* check: each of n traces of the shapes, in turn, with pools of both kinds. */
static void check_many(const struct shape *shapes, size_t n_shapes, uint32_t n,
                       void (*check)(const struct sl_trace *, const struct sl_replay_config *))
{
    uint32_t seed = 7;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_trace *t = random_trace(&shapes[i % n_shapes], &seed);
        struct sl_replay_config c = {.optimum = true};
        draw_slots(t, &seed, &c);
        c.pool = SL_REPLAY_ONE;
        check(t, &c);
        c.pool = SL_REPLAY_PER_LAYER;
        check(t, &c);
        made_trace_free(t);
    }
}

static void test_optimum__tiny_traces__as_brute_force(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {1, 6, 1, 14, false, 1}, {1, 8, 3, 10, false, 1}, {2, 4, 2, 9, false, 1},
        {2, 4, 1, 12, false, 2}, {4, 2, 1, 7, false, 1},  {2, 4, 3, 9, false, 1},
    };
    check_many(shapes, SL_ARRAY_LEN(shapes), TRACES, check_brute_force);
}

static void test_optimum__tiny_traces_with_prompts__as_brute_force(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {1, 6, 1, 14, true, 1}, {1, 8, 3, 10, true, 1}, {2, 4, 2, 9, true, 1},
        {2, 4, 2, 9, true, 2},  {4, 2, 1, 7, true, 1},
    };
    check_many(shapes, SL_ARRAY_LEN(shapes), TRACES, check_brute_force);
}

static void test_optimum__random_traces__no_policy_has_more(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {3, 8, 2, 60, false, 1}, {3, 8, 2, 60, true, 1},  {4, 12, 3, 40, true, 2},
        {1, 24, 4, 60, true, 1}, {6, 6, 1, 50, false, 3},
    };
    check_many(shapes, SL_ARRAY_LEN(shapes), 100, check_policies);
}

static void test_optimum__skipped_prompts__leave_no_trace(void **state)
{
    (void)state;
    const uint16_t a[] = {0, 1}, b[] = {2, 3, 4, 5}, c[] = {0, 2};
    struct sl_trace *t = made_trace(1, 6, 2);
    made_eval(t, 1, false), made_visit(t, 0, a);
    made_eval(t, 2, true), made_visit(t, 0, b);
    made_eval(t, 1, false), made_visit(t, 0, c);
    struct sl_replay_config config = {.optimum = true, .n_slots = {3}};
    struct sl_replay_result got = replay(t, &config);
    assert_int_equal(got.decode.hits, 2); /* 0 was kept, and 2 came with the prompt */
    assert_int_equal(got.decode.cold, 2);
    assert_int_equal(got.prompt.uses, 4);
    config.skip_prompts = true;
    got = replay(t, &config);
    assert_int_equal(got.decode.hits, 1);
    assert_int_equal(got.decode.cold, 3);
    assert_int_equal(got.prompt.uses, 0);
    made_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum__tiny_traces__as_brute_force),
        cmocka_unit_test(test_optimum__tiny_traces_with_prompts__as_brute_force),
        cmocka_unit_test(test_optimum__random_traces__no_policy_has_more),
        cmocka_unit_test(test_optimum__skipped_prompts__leave_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
