/* Proves the order of the router's steps by comparing it with a direct double-precision definition,
 * the bonus by comparing it with a plain choice written here, and the corners of both by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "router/router.h"

static uint32_t seed = 7;

static float random_logit(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 1048576.0f - 8.0f;
}

/* The definition in double: weights by expert, 0 for those not chosen. */
static void reference(const struct sl_router *r, const float *logits, double *weights)
{
    double s[SL_EXPERTS_MAX], sum = 0.0, top = -INFINITY;
    bool chosen[SL_EXPERTS_MAX] = {false};
    for (uint32_t i = 0; i < r->n_experts; i++) top = logits[i] > top ? (double)logits[i] : top;
    for (uint32_t i = 0; i < r->n_experts; i++) sum += exp((double)logits[i] - top);
    for (uint32_t i = 0; i < r->n_experts; i++) {
        s[i] = logits[i];
        if (r->gating == SL_GATING_SOFTMAX) s[i] = exp((double)logits[i] - top) / sum;
        if (r->gating == SL_GATING_SIGMOID) s[i] = 1.0 / (1.0 + exp(-(double)logits[i]));
    }
    for (uint32_t k = 0; k < r->top_k; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < r->n_experts; i++) {
            double bias = r->select_bias != NULL ? r->select_bias[i] : 0.0;
            double held = best == UINT32_MAX
                              ? 0.0
                              : s[best] + (r->select_bias != NULL ? r->select_bias[best] : 0.0);
            if (!chosen[i] && (best == UINT32_MAX || s[i] + bias > held)) best = i;
        }
        chosen[best] = true;
    }
    sum = 0.0;
    for (uint32_t i = 0; i < r->n_experts; i++) {
        weights[i] = !chosen[i]                                ? 0.0
                     : r->gating == SL_GATING_SOFTMAX_SELECTED ? exp(s[i] - top)
                                                               : s[i];
        sum += weights[i];
    }
    if (r->gating != SL_GATING_SOFTMAX_SELECTED && sum < 0x1p-14) sum = 0x1p-14;
    bool divide = r->normalize || r->gating == SL_GATING_SOFTMAX_SELECTED;
    for (uint32_t i = 0; i < r->n_experts; i++) {
        if (divide) weights[i] /= sum;
        weights[i] *= r->weight_scale;
    }
}

static void compare(const struct sl_router *r, const float *logits)
{
    uint32_t experts[SL_TOP_K_MAX];
    float weights[SL_TOP_K_MAX];
    double want[SL_EXPERTS_MAX];
    reference(r, logits, want);
    assert_int_equal(sl_router_select(r, logits, NULL, experts, weights, NULL), SLUICE_OK);
    for (uint32_t i = 0; i < r->top_k; i++) {
        if (i > 0) assert_true(experts[i] > experts[i - 1]);
        double expected = want[experts[i]];
        if (r->select_bias == NULL) assert_true(expected != 0.0 || r->gating == SL_GATING_SOFTMAX);
        assert_true(fabs((double)weights[i] - expected) <= 1e-5 * fabs(expected) + 1e-12);
    }
}

static void test_select__all_settings__equal_the_definition(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 3, 60, 72, 128, 256, 1024};
    float logits[SL_EXPERTS_MAX], bias[SL_EXPERTS_MAX];
    for (size_t c = 0; c < SL_ARRAY_LEN(counts); c++) {
        for (uint32_t setting = 0; setting < 36; setting++) {
            struct sl_router r = {.n_experts = counts[c],
                                  .gating = (enum sl_gating)(1 + setting % 3),
                                  .normalize = setting / 3 % 2 != 0,
                                  .weight_scale = setting / 6 % 2 ? 2.5f : 1.0f};
            uint32_t most = counts[c] < SL_TOP_K_MAX ? counts[c] : SL_TOP_K_MAX;
            r.top_k = setting / 12 == 0 ? 1 : setting / 12 == 1 ? most : (most + 7) / 8;
            for (uint32_t with_bias = 0; with_bias < 2; with_bias++) {
                for (uint32_t i = 0; i < r.n_experts; i++) {
                    logits[i] = random_logit();
                    bias[i] = random_logit() / 8.0f;
                }
                r.select_bias = with_bias != 0 ? bias : NULL;
                compare(&r, logits);
            }
        }
    }
}

static void test_select__ties__go_to_the_lower_index(void **state)
{
    (void)state;
    float logits[60] = {0};
    uint32_t experts[8];
    float weights[8];
    logits[50] = 1.0f;
    for (int g = SL_GATING_SOFTMAX; g <= SL_GATING_SOFTMAX_SELECTED; g++) {
        const struct sl_router r = {
            .n_experts = 60, .top_k = 8, .gating = (enum sl_gating)g, .weight_scale = 1.0f};
        assert_int_equal(sl_router_select(&r, logits, NULL, experts, weights, NULL), SLUICE_OK);
        assert_int_equal(experts[7], 50);
        for (uint32_t i = 0; i < 7; i++) assert_int_equal(experts[i], i);
    }
}

static void test_select__bias__chooses_but_does_not_weigh(void **state)
{
    (void)state;
    const float logits[3] = {2.0f, 1.0f, 0.0f}, bias[3] = {0.0f, 0.0f, 5.0f};
    const struct sl_router r = {.n_experts = 3,
                                .top_k = 1,
                                .gating = SL_GATING_SIGMOID,
                                .weight_scale = 1.0f,
                                .select_bias = bias};
    uint32_t expert;
    float weight;
    assert_int_equal(sl_router_select(&r, logits, NULL, &expert, &weight, NULL), SLUICE_OK);
    assert_int_equal(expert, 2);
    assert_true(weight == 0.5f);
}

static void test_select__vanishing_sum__stays_finite(void **state)
{
    (void)state;
    const float logits[3] = {-200.0f, -200.0f, -200.0f};
    const struct sl_router r = {.n_experts = 3,
                                .top_k = 2,
                                .gating = SL_GATING_SIGMOID,
                                .normalize = true,
                                .weight_scale = 1.0f};
    uint32_t experts[2];
    float weights[2];
    assert_int_equal(sl_router_select(&r, logits, NULL, experts, weights, NULL), SLUICE_OK);
    assert_true(isfinite(weights[0]) && isfinite(weights[1]));
}

static void test_select__huge_logits__do_not_overflow(void **state)
{
    (void)state;
    const float logits[3] = {3e38f, -3e38f, 3e38f};
    uint32_t experts[2];
    float weights[2];
    const struct sl_router r = {
        .n_experts = 3, .top_k = 2, .gating = SL_GATING_SOFTMAX, .weight_scale = 1.0f};
    assert_int_equal(sl_router_select(&r, logits, NULL, experts, weights, NULL), SLUICE_OK);
    assert_int_equal(experts[1], 2);
    assert_true(weights[0] == 0.5f && weights[1] == 0.5f);
}

static void test_select__not_finite__is_an_error_that_names_the_expert(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float logits[72] = {0}, bias[72] = {0}, weights[2];
    uint32_t experts[2];
    struct sl_router r = {
        .n_experts = 72, .top_k = 2, .gating = SL_GATING_SOFTMAX, .weight_scale = 1.0f};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        sluice_error e = {0};
        logits[71] = bad[i];
        assert_int_equal(sl_router_select(&r, logits, NULL, experts, weights, &e),
                         SLUICE_E_NUMERIC);
        assert_non_null(strstr(e.text, "71"));
        logits[71] = 0.0f;
        bias[71] = bad[i];
        r.select_bias = bias;
        assert_int_equal(sl_router_select(&r, logits, NULL, experts, weights, &e),
                         SLUICE_E_NUMERIC);
        r.select_bias = NULL;
    }
}

/* ---- the bonus ---------------------------------------------------------------------------------
 */

#define TRIALS 400

/* A random router of up to 200 experts and what it works on. */
struct trial {
    struct sl_router r;
    float logits[200], bias[200];
    uint8_t favoured[200];
    struct sl_router_bonus bonus;
};

static uint32_t below(uint32_t n) { return (uint32_t)((random_logit() + 8.0f) * 1048576.0f) % n; }

static void make_trial(struct trial *t, uint32_t number)
{
    t->r = (struct sl_router){.n_experts = 1 + below(200),
                              .gating = (enum sl_gating)(1 + number % 3),
                              .normalize = number / 3 % 2 != 0,
                              .weight_scale = 1.5f,
                              .select_bias = number / 6 % 2 ? t->bias : NULL};
    uint32_t most = t->r.n_experts < SL_TOP_K_MAX ? t->r.n_experts : SL_TOP_K_MAX;
    t->r.top_k = 1 + below(most);
    bool coarse = number / 12 % 2 != 0; /* many ties */
    for (uint32_t i = 0; i < t->r.n_experts; i++) {
        t->logits[i] = coarse ? (float)below(4) : random_logit();
        t->bias[i] = coarse ? (float)below(2) : random_logit() / 8.0f;
        t->favoured[i] = (uint8_t)below(2);
    }
    t->bonus = (struct sl_router_bonus){t->favoured, (float)below(9) / 8.0f, below(t->r.top_k + 1)};
}

struct result {
    uint32_t experts[SL_TOP_K_MAX];
    float weights[SL_TOP_K_MAX];
};

static void choose(const struct trial *t, const struct sl_router_bonus *bonus, struct result *out)
{
    memset(out, 0, sizeof *out);
    assert_int_equal(sl_router_select(&t->r, t->logits, bonus, out->experts, out->weights, NULL),
                     SLUICE_OK);
}

/* The scores of one expert each: the unbiased one, and what a bonus is added to. */
static void scores_of(const struct trial *t, float *own, double *compared)
{
    struct sl_router all = t->r;
    all.normalize = false;
    all.weight_scale = 1.0f;
    for (uint32_t i = 0; i < all.n_experts; i++) own[i] = t->logits[i];
    if (all.gating != SL_GATING_SOFTMAX_SELECTED) {
        /* chosen one by one with a bias that beats all: weight 1 of n is the score itself */
        float only[200];
        all.top_k = 1;
        all.select_bias = only;
        for (uint32_t i = 0; i < all.n_experts; i++) {
            uint32_t expert;
            memset(only, 0, sizeof only);
            only[i] = 100.0f;
            assert_int_equal(sl_router_select(&all, t->logits, NULL, &expert, &own[i], NULL),
                             SLUICE_OK);
            assert_int_equal(expert, i);
        }
    }
    for (uint32_t i = 0; i < all.n_experts; i++) {
        bool plain = all.gating == SL_GATING_SOFTMAX && t->r.select_bias == NULL;
        float biased = t->r.select_bias != NULL ? own[i] + t->bias[i] : own[i];
        compared[i] = (double)(plain ? t->logits[i] : biased);
    }
}

/* Chosen, written out plainly: the keep best by biased score, then the best by value and bonus. */
static void choose_plainly(const struct trial *t, const float *own, const double *compared,
                           bool *chosen)
{
    const uint32_t n = t->r.n_experts;
    double low = INFINITY, high = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        low = compared[i] < low ? compared[i] : low;
        high = compared[i] > high ? compared[i] : high;
        chosen[i] = false;
    }
    for (uint32_t k = 0; k < t->r.top_k; k++) {
        uint32_t best = UINT32_MAX;
        double best_value = 0;
        for (uint32_t i = 0; i < n; i++) {
            bool keeping = k < t->bonus.keep || t->bonus.strength == 0.0f;
            double value = t->r.select_bias ? (double)(own[i] + t->bias[i]) : (double)own[i];
            if (!keeping)
                value = compared[i] + t->favoured[i] * ((double)t->bonus.strength * (high - low));
            if (chosen[i] || (best != UINT32_MAX && !(value > best_value))) continue;
            best = i;
            best_value = value;
        }
        chosen[best] = true;
    }
}

static void test_bonus__random_settings__equal_the_definition(void **state)
{
    (void)state;
    struct trial t;
    struct result got;
    for (uint32_t i = 0; i < TRIALS; i++) {
        float own[200];
        double compared[200];
        bool want[200];
        make_trial(&t, i);
        scores_of(&t, own, compared);
        choose_plainly(&t, own, compared, want);
        choose(&t, &t.bonus, &got);
        for (uint32_t k = 0; k < t.r.top_k; k++) {
            assert_true(k == 0 || got.experts[k] > got.experts[k - 1]);
            assert_true(want[got.experts[k]]);
        }
    }
}

static void test_bonus__none_or_strength_0_or_nobody__is_the_exact_choice(void **state)
{
    (void)state;
    struct trial t;
    struct result exact, got;
    for (uint32_t i = 0; i < TRIALS; i++) {
        make_trial(&t, i);
        choose(&t, NULL, &exact);
        t.bonus.strength = 0.0f;
        choose(&t, &t.bonus, &got);
        assert_memory_equal(&got, &exact, sizeof got);
        t.bonus.strength = 0.5f;
        t.bonus.keep = t.r.top_k;
        choose(&t, &t.bonus, &got);
        assert_memory_equal(&got, &exact, sizeof got);
        if (i / 12 % 2 != 0) continue; /* equal probabilities of unequal logits are told apart */
        memset(t.favoured, 0, sizeof t.favoured);
        t.bonus.keep = 0;
        choose(&t, &t.bonus, &got);
        assert_memory_equal(&got, &exact, sizeof got);
        memset(t.favoured, 1, sizeof t.favoured);
        choose(&t, &t.bonus, &got);
        assert_memory_equal(&got, &exact, sizeof got);
    }
}

static bool contains(const struct result *r, uint32_t n, uint32_t expert)
{
    for (uint32_t i = 0; i < n; i++)
        if (r->experts[i] == expert) return true;
    return false;
}

static void test_bonus__any_strength__never_drops_the_best(void **state)
{
    (void)state;
    struct trial t;
    struct result best, got;
    for (uint32_t i = 0; i < TRIALS; i++) {
        make_trial(&t, i);
        if (t.bonus.keep == 0) continue;
        t.bonus.strength = 1e30f;
        choose(&t, &t.bonus, &got);
        const uint32_t top_k = t.r.top_k;
        t.r.top_k = t.bonus.keep;
        choose(&t, NULL, &best);
        for (uint32_t k = 0; k < t.bonus.keep; k++)
            assert_true(contains(&got, top_k, best.experts[k]));
    }
}

/* The weights of a choice are those of a router whose bias forces the same choice. */
static void test_bonus__weights__are_those_of_the_unbiased_scores(void **state)
{
    (void)state;
    struct trial t;
    struct result got, forced;
    for (uint32_t i = 0; i < TRIALS; i++) {
        make_trial(&t, i);
        choose(&t, &t.bonus, &got);
        memset(t.bias, 0, sizeof t.bias);
        for (uint32_t k = 0; k < t.r.top_k; k++) t.bias[got.experts[k]] = 100.0f;
        t.r.select_bias = t.bias;
        choose(&t, NULL, &forced);
        assert_memory_equal(&got, &forced, sizeof got);
    }
}

static void test_bonus__logits_scaled_by_a_power_of_two__leave_the_choice(void **state)
{
    (void)state;
    struct trial t;
    struct result got, scaled;
    for (uint32_t i = 0; i < TRIALS; i++) {
        make_trial(&t, i);
        if (t.r.gating == SL_GATING_SIGMOID) continue;
        t.r.select_bias = NULL;
        t.bonus.keep = t.bonus.keep > 0; /* the best by probability is the best by logit */
        choose(&t, &t.bonus, &got);
        for (uint32_t k = 0; k < t.r.n_experts; k++) t.logits[k] = t.logits[k] * 0.25f;
        choose(&t, &t.bonus, &scaled);
        if (t.bonus.strength == 0.0f) continue;
        assert_memory_equal(got.experts, scaled.experts, sizeof got.experts);
    }
}

/* What is compared. A bonus of 0.4 of the range lifts expert 2 over expert 1 where their logits are
 * 4 apart of 12, not where they are 6 apart; by probabilities (0.98, 0.02, 0.00) it would in both.
 */
static void test_bonus__softmax__compares_logits_and_sigmoid_scores(void **state)
{
    (void)state;
    const float near[4] = {4.0f, 0.0f, -4.0f, -8.0f}; /* sigmoids 0.98, 0.5, 0.018, 0.0003 */
    const float far[4] = {4.0f, 0.0f, -6.0f, -8.0f};
    const uint8_t favoured[4] = {0, 0, 1, 0};
    const struct sl_router_bonus bonus = {favoured, 0.4f, 1};
    struct sl_router r = {.n_experts = 4, .top_k = 2, .weight_scale = 1.0f};
    uint32_t experts[2];
    float weights[2];
    for (int g = SL_GATING_SOFTMAX; g <= SL_GATING_SOFTMAX_SELECTED; g += 2) {
        r.gating = (enum sl_gating)g;
        assert_int_equal(sl_router_select(&r, near, &bonus, experts, weights, NULL), SLUICE_OK);
        assert_int_equal(experts[1], 2);
        assert_int_equal(sl_router_select(&r, far, &bonus, experts, weights, NULL), SLUICE_OK);
        assert_int_equal(experts[1], 1);
    }
    r.gating = SL_GATING_SIGMOID;
    assert_int_equal(sl_router_select(&r, near, &bonus, experts, weights, NULL), SLUICE_OK);
    assert_int_equal(experts[1], 1); /* 0.018 + 0.4 * 0.98 < 0.5 */
    const float bias[4] = {0.0f, 0.0f, 0.2f, 0.0f};
    r.select_bias = bias;
    assert_int_equal(sl_router_select(&r, near, &bonus, experts, weights, NULL), SLUICE_OK);
    assert_int_equal(experts[1], 2); /* 0.218 + 0.39 > 0.5 */
}

static void test_bonus__equal_logits__give_no_bonus(void **state)
{
    (void)state;
    const float logits[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
    const uint8_t favoured[9] = {0, 0, 0, 0, 0, 0, 1, 1, 1};
    const struct sl_router_bonus bonus = {favoured, 1.0f, 0};
    uint32_t experts[3];
    float weights[3];
    for (int g = SL_GATING_SOFTMAX; g <= SL_GATING_SOFTMAX_SELECTED; g++) {
        const struct sl_router r = {
            .n_experts = 9, .top_k = 3, .gating = (enum sl_gating)g, .weight_scale = 1.0f};
        assert_int_equal(sl_router_select(&r, logits, &bonus, experts, weights, NULL), SLUICE_OK);
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(experts[i], i);
    }
}

static void test_bonus__range_beyond_a_float__does_not_overflow(void **state)
{
    (void)state;
    const float logits[4] = {3e38f, -3e38f, -2e38f, -2.5e38f};
    const uint8_t favoured[4] = {0, 1, 1, 1};
    const struct sl_router_bonus bonus = {favoured, 1.0f, 0};
    const struct sl_router r = {
        .n_experts = 4, .top_k = 2, .gating = SL_GATING_SOFTMAX_SELECTED, .weight_scale = 1.0f};
    uint32_t experts[2];
    float weights[2];
    assert_int_equal(sl_router_select(&r, logits, &bonus, experts, weights, NULL), SLUICE_OK);
    assert_int_equal(experts[0], 2);
    assert_int_equal(experts[1], 3);
}

/* The choice is the top_k largest of what sl_router_compared gives, for each gating, with a bias
 * and without. */
static void test_compared__every_gating__ranks_as_the_choice_does(void **state)
{
    (void)state;
    enum { N = 24, K = 5 };
    for (uint32_t round = 0; round < 300; round++) {
        float logits[N], bias[N], values[N], weights[K];
        uint32_t experts[K];
        for (uint32_t i = 0; i < N; i++) logits[i] = random_logit(), bias[i] = random_logit() / 8;
        struct sl_router r = {.n_experts = N, .top_k = K, .weight_scale = 1.0f};
        r.gating = (enum sl_gating)(SL_GATING_SOFTMAX + round % 3);
        r.select_bias = round / 3 % 2 ? bias : NULL;
        assert_int_equal(sl_router_select(&r, logits, NULL, experts, weights, NULL), SLUICE_OK);
        sl_router_compared(&r, logits, values);
        float least = values[experts[0]];
        bool chosen[N] = {false};
        for (uint32_t i = 0; i < K; i++) {
            chosen[experts[i]] = true;
            if (values[experts[i]] < least) least = values[experts[i]];
        }
        for (uint32_t i = 0; i < N; i++)
            if (!chosen[i]) assert_true(values[i] <= least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__all_settings__equal_the_definition),
        cmocka_unit_test(test_select__ties__go_to_the_lower_index),
        cmocka_unit_test(test_select__bias__chooses_but_does_not_weigh),
        cmocka_unit_test(test_select__vanishing_sum__stays_finite),
        cmocka_unit_test(test_select__huge_logits__do_not_overflow),
        cmocka_unit_test(test_select__not_finite__is_an_error_that_names_the_expert),
        cmocka_unit_test(test_compared__every_gating__ranks_as_the_choice_does),
        cmocka_unit_test(test_bonus__random_settings__equal_the_definition),
        cmocka_unit_test(test_bonus__none_or_strength_0_or_nobody__is_the_exact_choice),
        cmocka_unit_test(test_bonus__any_strength__never_drops_the_best),
        cmocka_unit_test(test_bonus__weights__are_those_of_the_unbiased_scores),
        cmocka_unit_test(test_bonus__logits_scaled_by_a_power_of_two__leave_the_choice),
        cmocka_unit_test(test_bonus__softmax__compares_logits_and_sigmoid_scores),
        cmocka_unit_test(test_bonus__equal_logits__give_no_bonus),
        cmocka_unit_test(test_bonus__range_beyond_a_float__does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
