/* Each policy against its definition, written out plainly: counts are sums over the whole history
 * of uses, and the victim is sought among all residents. The policies keep running counts and a
 * lowest expert for each layer instead; both must evict the same expert. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mathfn.h"
#include "expert_cache/expert_cache.h"
#include "tests/support/recall_model.h"

#define LAYERS 4
#define EXPERTS 12
#define TOP_K 3
#define SLOTS 17
#define TOKENS 400
#define CLOSE 1e-9 /* how far two ways to add up a score may be apart */

struct history {
    uint8_t used[LAYERS][EXPERTS][TOKENS]; /* in the layer's visit of that number */
    uint64_t last[LAYERS][EXPERTS];
    uint32_t visits[LAYERS];
    uint64_t stamp;
    uint32_t now; /* layer of the visit under way */
    struct recall_model recall;
};

typedef double score_fn(const struct history *h, uint32_t l, uint32_t x);

static double count(const struct history *h, uint32_t l, uint32_t x, double half_life)
{
    double sum = 0;
    for (uint32_t v = 0; v < h->visits[l]; v++)
        if (h->used[l][x][v])
            sum += half_life > 0 ? sl_pow(2, -(double)(h->visits[l] - 1 - v) / half_life) : 1;
    return sum;
}

/* Layers until the turn of this one, as a share of all. */
static double distance(const struct history *h, uint32_t l)
{
    uint32_t d = (l + LAYERS - h->now) % LAYERS;
    return (d == 0 ? LAYERS : d) / (double)LAYERS;
}

static double by_two_rates(const struct history *h, uint32_t l, uint32_t x)
{
    return 8 * count(h, l, x, 1) + count(h, l, x, 32) - 3 * distance(h, l);
}

static double by_recall(const struct history *h, uint32_t l, uint32_t x)
{
    double own = 6 * count(h, l, x, 1) + count(h, l, x, 16) - 3 * distance(h, l);
    return own + 48 * recall_model_follows(&h->recall, l, x);
}

static double by_last_use(const struct history *h, uint32_t l, uint32_t x)
{
    return (double)h->last[l][x];
}

static double by_count(const struct history *h, uint32_t l, uint32_t x)
{
    return count(h, l, x, 0);
}

static double by_decayed_count(const struct history *h, uint32_t l, uint32_t x)
{
    return count(h, l, x, 64) * sl_pow(2, h->visits[l] / 64.0); /* on one clock for all layers */
}

static uint32_t next_random(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % below;
}

/* Distinct experts; low numbers are popular. */
static void choose(uint32_t *seed, uint32_t chosen[TOP_K])
{
    for (uint32_t i = 0; i < TOP_K;) {
        uint32_t x = next_random(seed, 1 + next_random(seed, EXPERTS));
        bool again = false;
        for (uint32_t j = 0; j < i; j++) again |= chosen[j] == x;
        if (!again) chosen[i++] = x;
    }
}

static bool chosen_now(const uint32_t chosen[TOP_K], uint32_t x)
{
    bool found = false;
    for (uint32_t i = 0; i < TOP_K; i++) found |= chosen[i] == x;
    return found;
}

/* The victim must have the lowest score, and be the least recent of those that share it. */
static void check_victim(const struct history *h, const struct sl_ec *c, score_fn *score,
                         const uint32_t chosen[TOP_K], const struct sl_ec_slot_of *got)
{
    double victim = score(h, got->evicted_layer, got->evicted_expert);
    uint64_t victim_last = h->last[got->evicted_layer][got->evicted_expert];
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < EXPERTS; x++) {
            if (sl_ec_find(c, l, x) == SL_EC_NONE || (l == h->now && chosen_now(chosen, x)))
                continue;
            double s = score(h, l, x);
            assert_true(s >= victim - CLOSE);
            bool same =
                l == got->evicted_layer ? s == victim : s < victim + CLOSE && score == by_count;
            if (same) assert_true(h->last[l][x] > victim_last);
        }
}

static void bring_in(struct history *h, struct sl_ec *c, score_fn *score, const uint32_t *chosen)
{
    for (uint32_t i = 0; i < TOP_K; i++) {
        if (sl_ec_find(c, h->now, chosen[i]) != SL_EC_NONE) continue;
        struct sl_ec_slot_of got;
        assert_int_equal(sl_ec_reserve(c, h->now, chosen[i], SL_EC_DEMAND, &got), SL_EC_ENTERS);
        if (got.evicted_layer != SL_EC_NONE) check_victim(h, c, score, chosen, &got);
        sl_ec_arrived(c, got.slot, 1);
        sl_ec_check(c);
    }
}

static void check_policy(const struct sl_ec_policy *policy, score_fn *score)
{
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    struct sl_ec_layer layers[LAYERS];
    for (int l = 0; l < LAYERS; l++) layers[l] = (struct sl_ec_layer){EXPERTS, TOP_K, 1, 0};
    struct sl_ec_config config = {layers, LAYERS, {SLOTS}, 1, policy};
    struct sl_ec *c;
    sluice_error e;
    assert_int_equal(sl_ec_open(&config, &budget, &e, &c), SLUICE_OK);
    struct history *h = calloc(1, sizeof *h);
    uint32_t seed = 7, chosen[TOP_K];
    for (uint32_t t = 0; t < TOKENS; t++)
        for (h->now = 0; h->now < LAYERS; h->now++) {
            choose(&seed, chosen);
            for (uint32_t i = 0; i < TOP_K; i++) {
                h->used[h->now][chosen[i]][t] = 1;
                h->last[h->now][chosen[i]] = ++h->stamp;
            }
            h->visits[h->now]++;
            recall_model_visit(&h->recall, h->now, chosen, TOP_K);
            sl_ec_visit(c, h->now, chosen, TOP_K);
            bring_in(h, c, score, chosen);
        }
    struct sl_ec_stats stats;
    sl_ec_stats(c, &stats);
    assert_true(stats.evictions > TOKENS);
    free(h);
    sl_ec_close(c);
    assert_int_equal(sl_budget_used(&budget), 0);
}

static void test_recall__random_visits__evicts_as_defined(void **state)
{
    (void)state;
    check_policy(&sl_ec_policy_recall, by_recall);
}

static void test_two_rate__random_visits__evicts_as_defined(void **state)
{
    (void)state;
    check_policy(&sl_ec_policy_two_rate, by_two_rates);
}

static void test_lru__random_visits__evicts_as_defined(void **state)
{
    (void)state;
    check_policy(&sl_ec_policy_lru, by_last_use);
}

static void test_lfu__random_visits__evicts_as_defined(void **state)
{
    (void)state;
    check_policy(&sl_ec_policy_lfu, by_count);
}

static void test_decayed_lfu__random_visits__evicts_as_defined(void **state)
{
    (void)state;
    check_policy(&sl_ec_policy_decayed_lfu, by_decayed_count);
}

static uint64_t books_bytes(const struct sl_ec_policy *policy, uint32_t n_slots)
{
    struct sl_ec_layer layers[LAYERS];
    for (int l = 0; l < LAYERS; l++) layers[l] = (struct sl_ec_layer){EXPERTS, TOP_K, 1, 0};
    struct sl_ec_config config = {layers, LAYERS, {n_slots}, 1, policy};
    return sl_ec_bytes(&config);
}

/* What recall remembers costs memory, and nothing where nobody is ever evicted. */
static void test_recall__memory__is_counted_where_it_is_needed(void **state)
{
    (void)state;
    uint64_t past = 2 * 256 * TOP_K * LAYERS, alike = 8 * 256 * LAYERS;
    uint64_t two_rate = books_bytes(&sl_ec_policy_two_rate, SLOTS);
    assert_true(books_bytes(&sl_ec_policy_recall, SLOTS) >= two_rate + past + alike);
    uint32_t all = LAYERS * EXPERTS;
    assert_int_equal(books_bytes(&sl_ec_policy_recall, all),
                     books_bytes(&sl_ec_policy_two_rate, all));
    assert_int_equal(books_bytes(NULL, SLOTS), books_bytes(&sl_ec_policy_recall, SLOTS));
}

static void test_decay__every_half_life__is_the_power(void **state)
{
    (void)state;
    for (uint32_t k = 0; k <= 6; k++)
        for (uint64_t n = 0; n < 900u << k; n += 1 + n / 70) {
            double want = sl_pow(2, -(double)n / (double)(1u << k));
            double got = sl_ec_decay(n, k);
            assert_true(got >= want * (1 - 1e-12) && got <= want * (1 + 1e-12));
            assert_true(sl_ec_decay(n + 1, k) < got);
        }
    assert_true(sl_ec_decay(0, 5) == 1.0);
    assert_true(sl_ec_decay(96, 5) == 0.125);
    assert_true(sl_ec_decay(UINT64_MAX, 0) == 0.0);
    assert_true(sl_ec_decay(1000u << 6, 6) == 0.0);
}

static void test_policy_find__every_name__is_the_policy(void **state)
{
    (void)state;
    assert_ptr_equal(sl_ec_policy_at(0), &sl_ec_policy_recall);
    uint32_t n = 0;
    for (const struct sl_ec_policy *p; (p = sl_ec_policy_at(n)) != NULL; n++)
        assert_ptr_equal(sl_ec_policy_find(p->name), p);
    assert_int_equal(n, 5);
    assert_null(sl_ec_policy_find("lr"));
    assert_null(sl_ec_policy_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall__random_visits__evicts_as_defined),
        cmocka_unit_test(test_two_rate__random_visits__evicts_as_defined),
        cmocka_unit_test(test_lru__random_visits__evicts_as_defined),
        cmocka_unit_test(test_lfu__random_visits__evicts_as_defined),
        cmocka_unit_test(test_decayed_lfu__random_visits__evicts_as_defined),
        cmocka_unit_test(test_recall__memory__is_counted_where_it_is_needed),
        cmocka_unit_test(test_decay__every_half_life__is_the_power),
        cmocka_unit_test(test_policy_find__every_name__is_the_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
