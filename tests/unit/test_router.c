/* Proves the order of the router's steps by comparing it with a direct double-precision definition,
 * and its corners by hand. */
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
    uint32_t experts[SL_TOP_K_MAX], by_score[SL_TOP_K_MAX];
    float weights[SL_TOP_K_MAX];
    double want[SL_EXPERTS_MAX];
    bool listed[SL_EXPERTS_MAX] = {false};
    reference(r, logits, want);
    assert_int_equal(sl_router_select(r, logits, experts, weights, by_score, NULL), SLUICE_OK);
    for (uint32_t i = 0; i < r->top_k; i++) {
        if (i > 0) assert_true(experts[i] > experts[i - 1]);
        double expected = want[experts[i]];
        if (r->select_bias == NULL) assert_true(expected != 0.0 || r->gating == SL_GATING_SOFTMAX);
        assert_true(fabs((double)weights[i] - expected) <= 1e-5 * fabs(expected) + 1e-12);
        listed[by_score[i]] = true;
    }
    for (uint32_t i = 0; i < r->top_k; i++) assert_true(listed[experts[i]]);
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
    uint32_t experts[8], by_score[8];
    float weights[8];
    logits[50] = 1.0f;
    for (int g = SL_GATING_SOFTMAX; g <= SL_GATING_SOFTMAX_SELECTED; g++) {
        const struct sl_router r = {
            .n_experts = 60, .top_k = 8, .gating = (enum sl_gating)g, .weight_scale = 1.0f};
        assert_int_equal(sl_router_select(&r, logits, experts, weights, by_score, NULL), SLUICE_OK);
        assert_int_equal(by_score[0], 50);
        assert_int_equal(experts[7], 50);
        for (uint32_t i = 0; i < 7; i++) {
            assert_int_equal(by_score[i + 1], i);
            assert_int_equal(experts[i], i);
        }
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
    assert_int_equal(sl_router_select(&r, logits, &expert, &weight, NULL, NULL), SLUICE_OK);
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
    assert_int_equal(sl_router_select(&r, logits, experts, weights, NULL, NULL), SLUICE_OK);
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
    assert_int_equal(sl_router_select(&r, logits, experts, weights, NULL, NULL), SLUICE_OK);
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
        assert_int_equal(sl_router_select(&r, logits, experts, weights, NULL, &e),
                         SLUICE_E_NUMERIC);
        assert_non_null(strstr(e.text, "71"));
        logits[71] = 0.0f;
        bias[71] = bad[i];
        r.select_bias = bias;
        assert_int_equal(sl_router_select(&r, logits, experts, weights, NULL, &e),
                         SLUICE_E_NUMERIC);
        r.select_bias = NULL;
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
