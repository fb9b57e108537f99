/* Proves that the virtual cache is a function of the choices before a position and of nothing else:
 * it equals a plain definition, with a sorted list and powers, on random texts that are cut back
 * and continued otherwise at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mathfn.h"
#include "router/sticky.h"

#define LAYERS 4
#define CONTEXT 400

static uint32_t seed = 3;

static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static const uint32_t n_experts[LAYERS] = {24, 0, 7, 130};
static const uint32_t top_k[LAYERS] = {3, 0, 7, 6};

/* What is known of a text: [pos][layer][k]. */
struct text {
    uint32_t chosen[CONTEXT][LAYERS][8];
};

/* Distinct, ascending; low numbers are popular. */
static void choose(uint32_t *chosen, uint32_t k, uint32_t n)
{
    for (uint32_t i = 0; i < k;) {
        uint32_t x = below(1 + below(n));
        if (k == n) x = i;
        bool again = false;
        for (uint32_t j = 0; j < i; j++) again |= chosen[j] == x;
        if (!again) chosen[i++] = x;
    }
    for (uint32_t i = 0; i < k; i++)
        for (uint32_t j = i + 1; j < k; j++)
            if (chosen[j] < chosen[i]) {
                uint32_t swap = chosen[i];
                chosen[i] = chosen[j];
                chosen[j] = swap;
            }
}

/* round(4096 * 2^(-(age - 1) / 16)) */
static uint32_t weight(uint32_t age)
{
    static uint32_t known[SL_STICKY_WINDOW + 1];
    if (known[age] == 0) known[age] = (uint32_t)(4096 * sl_pow(2, -(double)(age - 1) / 16) + 0.5);
    return known[age];
}

static void favour_plainly(const struct text *t, uint32_t l, uint32_t pos, uint32_t size,
                           uint8_t *favoured)
{
    uint32_t score[256] = {0};
    for (uint32_t age = 1; age <= SL_STICKY_WINDOW && age <= pos; age++)
        for (uint32_t i = 0; i < top_k[l]; i++) score[t->chosen[pos - age][l][i]] += weight(age);
    memset(favoured, 0, n_experts[l]);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t best = UINT32_MAX, best_score = 0;
        for (uint32_t x = 0; x < n_experts[l]; x++) {
            if (favoured[x] || score[x] <= best_score) continue;
            best = x;
            best_score = score[x];
        }
        if (best == UINT32_MAX) return;
        favoured[best] = 1;
    }
}

static struct sl_budget budget;

static struct sl_sticky *open_in(struct sl_budget *b, uint32_t size)
{
    struct sl_sticky *s;
    sluice_error e;
    struct sl_sticky_config c = {0.25f, size, CONTEXT, LAYERS, n_experts, top_k};
    sl_budget_init(b, UINT64_MAX);
    assert_int_equal(sl_sticky_open(&c, b, &e, &s), SLUICE_OK);
    assert_int_equal(sl_budget_used(b), sl_sticky_bytes(&c));
    return s;
}

static struct sl_sticky *open_sticky(uint32_t size) { return open_in(&budget, size); }

static void close_sticky(struct sl_sticky *s)
{
    sl_sticky_close(s);
    assert_int_equal(sl_budget_used(&budget), 0);
}

/* Positions [from, to) with new choices. */
static void write_text(struct sl_sticky *s, struct text *t, uint32_t from, uint32_t to)
{
    for (uint32_t pos = from; pos < to; pos++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (n_experts[l] == 0) continue;
            choose(t->chosen[pos][l], top_k[l], n_experts[l]);
            sl_sticky_chose(s, l, pos, t->chosen[pos][l]);
        }
}

static void check_position(struct sl_sticky *s, const struct text *t, uint32_t pos, uint32_t size)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint8_t want[256];
        if (n_experts[l] == 0) continue;
        uint32_t n = size != 0 ? size : (n_experts[l] + 3) / 4;
        favour_plainly(t, l, pos, n, want);
        assert_memory_equal(sl_sticky_favoured(s, l, pos), want, n_experts[l]);
    }
}

static void test_favoured__random_text__equals_the_definition(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 5, 40, 1000};
    struct text *t = calloc(1, sizeof *t);
    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        struct sl_sticky *s = open_sticky(sizes[i]);
        check_position(s, t, 0, sizes[i]); /* nobody */
        for (uint32_t pos = 0; pos < 150; pos++) {
            write_text(s, t, pos, pos + 1);
            check_position(s, t, pos + 1, sizes[i]);
        }
        write_text(s, t, 150, CONTEXT);
        check_position(s, t, CONTEXT, sizes[i]);
        check_position(s, t, 77, sizes[i]); /* an earlier position, as of then */
        close_sticky(s);
    }
    free(t);
}

static void test_favoured__cut_back_and_continued__is_a_function_of_the_text(void **state)
{
    (void)state;
    struct text *t = calloc(1, sizeof *t);
    struct sl_sticky *s = open_sticky(0);
    struct sl_budget other;
    struct sl_sticky *fresh = open_in(&other, 0);
    uint32_t length = 0;
    for (uint32_t i = 0; i < 60; i++) {
        if (below(2)) length = below(length + 1); /* a cut; what is past it differs from now on */
        uint32_t to = length + below(CONTEXT - length + 1);
        write_text(s, t, length, to);
        length = to;
        check_position(s, t, length, 0);
    }
    for (uint32_t pos = 0; pos <= length; pos++) { /* nothing of the other texts is left */
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (n_experts[l] == 0) continue;
            const uint8_t *want = sl_sticky_favoured(fresh, l, pos);
            assert_memory_equal(sl_sticky_favoured(s, l, pos), want, n_experts[l]);
            if (pos < length) sl_sticky_chose(fresh, l, pos, t->chosen[pos][l]);
        }
    }
    sl_sticky_close(fresh);
    close_sticky(s);
    free(t);
}

static void test_favoured__ties__go_to_the_lower_index(void **state)
{
    (void)state;
    struct sl_sticky *s = open_sticky(2);
    const uint32_t chosen[3] = {4, 9, 20}, later[3] = {1, 2, 20};
    sl_sticky_chose(s, 0, 0, chosen);
    const uint8_t *f = sl_sticky_favoured(s, 0, 1);
    for (uint32_t x = 0; x < 24; x++) assert_int_equal(f[x], x == 4 || x == 9);
    sl_sticky_chose(s, 0, 1, later);
    f = sl_sticky_favoured(s, 0, 2);
    for (uint32_t x = 0; x < 24; x++) assert_int_equal(f[x], x == 1 || x == 20);
    close_sticky(s);
}

static void test_favoured__unused_for_a_window__is_not_favoured(void **state)
{
    (void)state;
    struct sl_sticky *s = open_sticky(24);
    const uint32_t once[3] = {5, 6, 7}, always[3] = {0, 1, 2};
    sl_sticky_chose(s, 0, 0, once);
    for (uint32_t pos = 1; pos <= SL_STICKY_WINDOW; pos++) {
        const uint8_t *f = sl_sticky_favoured(s, 0, pos);
        assert_int_equal(f[5] + f[6] + f[7], 3);
        sl_sticky_chose(s, 0, pos, always);
    }
    const uint8_t *f = sl_sticky_favoured(s, 0, SL_STICKY_WINDOW + 1);
    assert_int_equal(f[5] + f[6] + f[7], 0);
    assert_int_equal(f[0] + f[1] + f[2], 3);
    assert_true(sl_sticky_strength(s) == 0.25f);
    close_sticky(s);
}

static void test_sticky_open__no_memory__fails_clean(void **state)
{
    (void)state;
    struct sl_sticky *s;
    sluice_error e;
    struct sl_sticky_config c = {0.25f, 0, CONTEXT, LAYERS, n_experts, top_k};
    sl_budget_init(&budget, UINT64_MAX);
    for (int64_t n = 0; n < 3; n++) {
        atomic_store(&budget.fail_after, n);
        assert_int_equal(sl_sticky_open(&c, &budget, &e, &s), SLUICE_E_NOMEM);
        assert_null(s);
        assert_int_equal(sl_budget_used(&budget), 0);
    }
    sl_budget_init(&budget, sl_sticky_bytes(&c) - 1);
    assert_int_equal(sl_sticky_open(&c, &budget, &e, &s), SLUICE_E_NOMEM);
    assert_int_equal(sl_budget_used(&budget), 0);
    sl_sticky_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_favoured__random_text__equals_the_definition),
        cmocka_unit_test(test_favoured__cut_back_and_continued__is_a_function_of_the_text),
        cmocka_unit_test(test_favoured__ties__go_to_the_lower_index),
        cmocka_unit_test(test_favoured__unused_for_a_window__is_not_favoured),
        cmocka_unit_test(test_sticky_open__no_memory__fails_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
