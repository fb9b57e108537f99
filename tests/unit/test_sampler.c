/* Proves the sampler's order of steps: which tokens can be drawn is compared with a definition that
 * sorts everything, how often with the probabilities, and the draw with itself over repeated runs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "engine/text/sampler.h"

static const struct sl_sampler_config plain = {
    .temperature = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 42};

static uint32_t seed = 3;

static uint32_t random_bits(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static struct sl_budget budget;

static struct sl_sampler *open_sampler(struct sl_sampler_config c, uint32_t n)
{
    struct sl_sampler *s = NULL;
    sluice_error e = {0};
    sl_budget_init(&budget, UINT64_MAX);
    if (sl_sampler_open(&c, n, &budget, &e, &s) != SLUICE_OK) fail_msg("%s", e.text);
    return s;
}

static void close_sampler(struct sl_sampler *s)
{
    sl_sampler_close(s);
    assert_int_equal(atomic_load(&budget.used_bytes), 0);
}

static int32_t next(struct sl_sampler *s, const float *logits)
{
    int32_t id = -1;
    sluice_error e = {0};
    if (sl_sampler_next(s, logits, &id, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return id;
}

/* ---- the definition: sort all, then cut ------------------------------------------------------ */

#define N_SMALL 24

struct entry {
    double logit;
    int id;
};

static int by_logit(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

/* Probabilities by id after all steps. Returns how near the top-p cut came to a rounding
 * difference. */
static double reference(const struct sl_sampler_config *c, const float *logits, double *p)
{
    struct entry list[N_SMALL];
    double total = 0.0, sum = 0.0, margin = 1.0;
    int n = N_SMALL, kept = 0;
    for (int i = 0; i < n; i++) list[i] = (struct entry){logits[i], i};
    qsort(list, (size_t)n, sizeof(list[0]), by_logit);
    if (c->top_k > 0 && c->top_k < (uint32_t)n) n = (int)c->top_k;
    double best = list[0].logit;
    for (int i = 0; i < N_SMALL; i++) p[i] = 0.0;
    for (int i = 0; i < n; i++) total += exp((list[i].logit - best) / (double)c->temperature);
    for (int i = 0; i < n; i++) {
        double w = exp((list[i].logit - best) / (double)c->temperature);
        margin = fmin(margin, fabs(sum / total - (double)c->top_p) + (kept == 0));
        margin = fmin(margin, fabs(w - (double)c->min_p));
        if (kept > 0 && (sum >= (double)c->top_p * total || w < (double)c->min_p)) break;
        p[list[i].id] = w;
        sum += w;
        kept++;
    }
    for (int i = 0; i < N_SMALL; i++) p[i] /= sum;
    return margin;
}

static void test_next__random_settings__draws_by_the_definition(void **state)
{
    (void)state;
    uint32_t compared = 0;
    for (int run = 0; run < 300; run++) {
        float logits[N_SMALL];
        double p[N_SMALL];
        uint32_t drawn[N_SMALL] = {0};
        struct sl_sampler_config c = plain;
        c.temperature = 0.25f + (float)(random_bits() % 16) / 8.0f;
        c.top_k = random_bits() % 3 == 0 ? 0 : random_bits() % 30;
        c.top_p = random_bits() % 3 == 0 ? 1.0f : (float)(1 + random_bits() % 97) / 98.0f;
        c.min_p = random_bits() % 3 == 0 ? (float)(random_bits() % 50) / 100.0f : 0.0f;
        c.seed = (uint64_t)run;
        for (int i = 0; i < N_SMALL; i++) logits[i] = (float)(random_bits() % 64) / 8.0f;
        if (random_bits() % 4 == 0) logits[random_bits() % N_SMALL] = -INFINITY;
        if (reference(&c, logits, p) < 1e-5) continue;
        struct sl_sampler *s = open_sampler(c, N_SMALL);
        const uint32_t draws = 4000;
        for (uint32_t i = 0; i < draws; i++) drawn[next(s, logits)]++;
        for (int i = 0; i < N_SMALL; i++) {
            double want = p[i] * draws, sigma = sqrt(want * (1.0 - p[i])) + 1e-9;
            if (p[i] == 0.0) assert_int_equal(drawn[i], 0);
            if (p[i] > 0.0) assert_true(fabs(drawn[i] - want) < 6.0 * sigma + 4.0);
        }
        close_sampler(s);
        compared++;
    }
    assert_true(compared > 200);
}

static void test_next__same_seed__same_tokens(void **state)
{
    (void)state;
    float logits[1000];
    int32_t ids[200];
    bool other = false;
    for (int i = 0; i < 1000; i++) logits[i] = (float)(random_bits() % 1000) / 200.0f;
    for (uint64_t round = 0; round < 3; round++) {
        struct sl_sampler_config c = plain;
        c.seed = round / 2;
        struct sl_sampler *s = open_sampler(c, 1000);
        for (int i = 0; i < 200; i++) {
            int32_t id = next(s, logits);
            if (round == 1) assert_int_equal(id, ids[i]);
            other = other || (round == 2 && id != ids[i]);
            ids[i] = id;
        }
        close_sampler(s);
    }
    assert_true(other);
}

/* Fixed for all time and machines (computed once by an independent program): a change here changes
 * what users get for a seed. */
static void test_next__known_seed__gives_the_known_tokens(void **state)
{
    (void)state;
    static const int32_t want[8] = {64, 18, 13, 2, 51, 59, 89, 5};
    float logits[100];
    for (int i = 0; i < 100; i++) logits[i] = (float)(i * 37 % 100) / 16.0f;
    struct sl_sampler *s = open_sampler(plain, 100);
    for (int i = 0; i < 8; i++) assert_int_equal(next(s, logits), want[i]);
    close_sampler(s);
}

static void test_next__temperature_0__is_greedy_with_ties_to_the_lower_id(void **state)
{
    (void)state;
    const float logits[5] = {1.0f, 3.0f, -INFINITY, 3.0f, 2.0f};
    struct sl_sampler_config c = plain;
    c.temperature = 0.0f;
    struct sl_sampler *s = open_sampler(c, 5);
    int32_t id;
    assert_int_equal(next(s, logits), 1);
    assert_int_equal(sl_argmax(logits, 5, &id, NULL), SLUICE_OK);
    assert_int_equal(id, 1);
    close_sampler(s);
    c = plain;
    c.top_k = 1;
    s = open_sampler(c, 5);
    for (int i = 0; i < 50; i++) assert_int_equal(next(s, logits), 1);
    close_sampler(s);
}

static void test_next__repeat_penalty__counts_each_recent_token_once(void **state)
{
    (void)state;
    const float logits[4] = {4.0f, 3.0f, 2.5f, -1.0f};
    struct sl_sampler_config c = plain;
    c.temperature = 0.0f;
    c.repeat_penalty = 1.5f;
    c.repeat_last = 3;
    struct sl_sampler *s = open_sampler(c, 4);
    assert_int_equal(next(s, logits), 0);
    sl_sampler_accept(s, 0); /* 4 / 1.5 = 2.67 */
    assert_int_equal(next(s, logits), 1);
    sl_sampler_accept(s, 1); /* 3 / 1.5 = 2 */
    assert_int_equal(next(s, logits), 0);
    sl_sampler_accept(s, 0); /* twice seen, still 2.67: above 2.5 */
    assert_int_equal(next(s, logits), 0);
    sl_sampler_accept(s, 3);
    sl_sampler_accept(s, 3); /* 0 1 0 3 3: the last three are 0 3 3 */
    assert_int_equal(next(s, logits), 1);
    sl_sampler_accept(s, 3);
    assert_int_equal(next(s, logits), 0); /* 0 is forgotten */
    close_sampler(s);

    const float negative[2] = {-1.0f, -1.2f};
    s = open_sampler(c, 2);
    sl_sampler_accept(s, 0); /* -1.5 */
    assert_int_equal(next(s, negative), 1);
    close_sampler(s);
}

static void test_next__bad_logits__are_errors(void **state)
{
    (void)state;
    struct sl_sampler *s = open_sampler(plain, 3);
    int32_t id = 7;
    sluice_error e = {0};
    const float with_nan[3] = {1.0f, 2.0f, NAN}, with_inf[3] = {1.0f, INFINITY, 0.0f};
    const float nothing[3] = {-INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(sl_sampler_next(s, with_nan, &id, &e), SLUICE_E_NUMERIC);
    assert_int_equal(id, -1);
    assert_non_null(strstr(e.text, "token 2"));
    assert_int_equal(sl_sampler_next(s, with_inf, &id, &e), SLUICE_E_NUMERIC);
    assert_int_equal(sl_sampler_next(s, nothing, &id, &e), SLUICE_E_NUMERIC);
    assert_int_equal(sl_argmax(with_nan, 3, &id, &e), SLUICE_E_NUMERIC);
    assert_int_equal(sl_argmax(nothing, 3, &id, &e), SLUICE_E_NUMERIC);
    const float one[3] = {-INFINITY, -80.0f, -INFINITY};
    assert_int_equal(next(s, one), 1);
    close_sampler(s);
}

static void test_next__extreme_values__stay_exact(void **state)
{
    (void)state;
    struct sl_sampler_config c = plain;
    c.temperature = 1e-38f;
    const float logits[3] = {3e38f, -3e38f, 3e38f};
    struct sl_sampler *s = open_sampler(c, 3);
    bool seen[3] = {false};
    for (int i = 0; i < 100; i++) seen[next(s, logits)] = true;
    assert_true(seen[0] && !seen[1] && seen[2]);
    close_sampler(s);
    c = plain;
    c.top_p = 0.0f; /* the best alone */
    s = open_sampler(c, 3);
    for (int i = 0; i < 20; i++) assert_int_equal(next(s, logits), 0);
    close_sampler(s);
}

static void test_open__values_out_of_range__are_named(void **state)
{
    (void)state;
    struct sl_sampler *s = NULL;
    sl_budget_init(&budget, UINT64_MAX);
    const float bad[] = {NAN, -0.5f, 1.5f, INFINITY};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        sluice_error e = {0};
        struct sl_sampler_config c = plain;
        c.top_p = bad[i];
        assert_int_equal(sl_sampler_open(&c, 10, &budget, &e, &s), SLUICE_E_ARG);
        assert_non_null(strstr(e.text, "top-p"));
        c = plain;
        c.min_p = bad[i];
        assert_int_equal(sl_sampler_open(&c, 10, &budget, &e, &s), SLUICE_E_ARG);
        assert_non_null(strstr(e.text, "min-p"));
        c = plain;
        c.repeat_penalty = bad[i];
        if (bad[i] == 1.5f) continue;
        assert_int_equal(sl_sampler_open(&c, 10, &budget, &e, &s), SLUICE_E_ARG);
        assert_null(s);
    }
    struct sl_sampler_config c = plain;
    assert_int_equal(sl_sampler_open(&c, 0, &budget, NULL, &s), SLUICE_E_ARG);
    c.temperature = NAN;
    assert_int_equal(sl_sampler_open(&c, 10, &budget, NULL, &s), SLUICE_E_ARG);
    budget.limit_bytes = 500;
    assert_int_equal(sl_sampler_open(&plain, 1000, &budget, NULL, &s), SLUICE_E_BUDGET);
    assert_int_equal(atomic_load(&budget.used_bytes), 0);
    sl_sampler_close(NULL);
}

/* A large vocabulary must not need a full sort; printed, not asserted, since machines differ. */
static void test_next__large_vocabulary__reports_its_time(void **state)
{
    (void)state;
    enum { N = 151936, ROUNDS = 20 };
    static float logits[N];
    for (int i = 0; i < N; i++) {
        float sum = 0.0f; /* about normal, as real logits are */
        for (int k = 0; k < 12; k++) sum += (float)random_bits() / 16777216.0f;
        logits[i] = (sum - 6.0f) * 3.0f;
    }
    static const struct {
        const char *name;
        uint32_t top_k;
        float top_p, min_p;
    } cases[] = {{"top-k 40", 40, 0.95f, 0.05f},
                 {"top-p 0.95", 0, 0.95f, 0.0f},
                 {"min-p 0.05", 0, 1.0f, 0.05f},
                 {"all", 0, 1.0f, 0.0f}};
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_sampler_config c = plain;
        c.top_k = cases[i].top_k;
        c.top_p = cases[i].top_p;
        c.min_p = cases[i].min_p;
        struct sl_sampler *s = open_sampler(c, N);
        clock_t start = clock();
        for (int round = 0; round < ROUNDS; round++) (void)next(s, logits);
        print_message("%-12s %7.3f ms a draw\n", cases[i].name,
                      1e3 * (double)(clock() - start) / CLOCKS_PER_SEC / ROUNDS);
        close_sampler(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next__random_settings__draws_by_the_definition),
        cmocka_unit_test(test_next__same_seed__same_tokens),
        cmocka_unit_test(test_next__known_seed__gives_the_known_tokens),
        cmocka_unit_test(test_next__temperature_0__is_greedy_with_ties_to_the_lower_id),
        cmocka_unit_test(test_next__repeat_penalty__counts_each_recent_token_once),
        cmocka_unit_test(test_next__bad_logits__are_errors),
        cmocka_unit_test(test_next__extreme_values__stay_exact),
        cmocka_unit_test(test_open__values_out_of_range__are_named),
        cmocka_unit_test(test_next__large_vocabulary__reports_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
