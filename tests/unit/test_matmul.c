/* Matrix products over the pool: threads and batches do not change bits, and the second digit does
 * what it is for. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/matmul.h"
#include "formats/sq.h"

#define ROWS 77
#define COLS 512
#define TOKENS 5

struct fixture {
    struct sl_budget budget;
    struct sl_compute c;
    struct sl_acts acts;
    uint8_t *memory;
    uint8_t w[ROWS * COLS / 32 * 34]; /* Q8_0 */
    struct sl_matrix m;
};

static uint32_t state;

/* Roughly bell-shaped, standard deviation 1. */
static float bell(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 12; i++) {
        state = state * 1664525u + 1013904223u;
        sum += (float)(state >> 8) / 16777216.0f;
    }
    return sum - 6.0f;
}

static void begin(struct fixture *f, uint32_t threads)
{
    sl_budget_init(&f->budget, UINT64_MAX);
    assert_int_equal(sl_kernels_select(SL_ISA_AUTO, NULL, &f->c.kernels), SLUICE_OK);
    assert_int_equal(sl_pool_open(&f->budget, threads, NULL, &f->c.pool), SLUICE_OK);
    struct sl_layout l = {NULL, 0};
    const uint32_t kinds = sl_k_act_bit(SL_TYPE_Q8_0) | sl_k_act_bit(SL_SQ4_32);
    sl_acts_layout(&f->acts, &l, kinds, TOKENS, COLS);
    f->memory = sl_alloc(&f->budget, l.used, 1);
    assert_non_null(f->memory);
    l = (struct sl_layout){f->memory, 0};
    sl_acts_layout(&f->acts, &l, kinds, TOKENS, COLS);
    state = 1;
    for (size_t at = 0; at < sizeof f->w; at += 34) {
        uint16_t d = 0x2000; /* 2^-7 */
        memcpy(f->w + at, &d, 2);
        for (int i = 0; i < 32; i++) f->w[at + 2 + i] = (uint8_t)(int8_t)lrintf(bell() * 30.0f);
    }
    f->m = (struct sl_matrix){f->w, COLS / 32 * 34, SL_TYPE_Q8_0, ROWS, COLS};
}

static void end(struct fixture *f)
{
    sl_pool_close(f->c.pool);
    sl_free(f->memory);
    assert_int_equal(sl_budget_used(&f->budget), 0);
}

/* Fills the vectors: bell-shaped; with outlier, one element of each block of 32 is so many times
 * larger. */
static void fill(struct fixture *f, float outlier)
{
    state = 77;
    sl_acts_begin(&f->acts, TOKENS, COLS);
    for (uint32_t i = 0; i < TOKENS * COLS; i++)
        f->acts.f[i] = bell() * (i % 32 == 9 ? outlier : 1.0f);
}

/* Largest error of the product relative to the root of the sum of squares of what is left without
 * the outliers. */
static double run(struct fixture *f, float *y)
{
    const struct sl_k_act *x = sl_acts_for(&f->c, &f->acts, SL_TYPE_Q8_0);
    assert_non_null(x);
    struct sl_mm mm = {f->m, x, TOKENS, y, ROWS, 0};
    sl_mm_run(&f->c, &mm, 1);
    double worst = 0.0;
    float row[COLS];
    for (uint32_t r = 0; r < ROWS; r++) {
        sl_type_info(SL_TYPE_Q8_0)->decode(f->w + r * f->m.row_bytes, row, COLS);
        for (uint32_t t = 0; t < TOKENS; t++) {
            double exact = 0.0, rest = 0.0;
            for (uint32_t i = 0; i < COLS; i++) {
                double p = (double)row[i] * (double)f->acts.f[t * COLS + i];
                exact += p;
                if (i % 32 != 9) rest += p * p;
            }
            worst = fmax(worst, fabs((double)y[t * ROWS + r] - exact) / sqrt(rest));
        }
    }
    return worst;
}

static void test_mm__outlier_in_every_block__the_rest_keeps_its_precision(void **unused)
{
    (void)unused;
    struct fixture f;
    float y[TOKENS * ROWS];
    begin(&f, 1);
    fill(&f, 1.0f);
    double plain = run(&f, y);
    assert_true(plain < 0.04); /* int8 rounding, largest of 385 */
    fill(&f, 100.0f); /* one digit would leave the rest a step of about one standard deviation */
    assert_true(run(&f, y) < plain);
    end(&f);
}

static void test_mm__blocks_without_outlier__one_digit(void **unused)
{
    (void)unused;
    struct fixture f;
    begin(&f, 1);
    sl_acts_begin(&f.acts, 1, COLS);
    for (uint32_t i = 0; i < COLS; i++) f.acts.f[i] = i % 2 ? 1.0f : -0.5f;
    f.acts.f[40] = 50.0f; /* block 1 */
    const struct sl_k_act *x = sl_acts_for(&f.c, &f.acts, SL_TYPE_Q8_0);
    assert_non_null(x->second.d);
    for (uint32_t b = 0; b < COLS / 32; b++) assert_int_equal(x->second.d[b] != 0.0f, b == 1);
    f.acts.f[40] = 1.0f;
    sl_acts_begin(&f.acts, 1, COLS);
    assert_null(sl_acts_for(&f.c, &f.acts, SL_TYPE_Q8_0)->second.d);
    end(&f);
}

/* Blocks whose largest value is 2.7, 3.3, 4.4 and 4.7 times their root mean square. */
static void test_acts__borders_of_types__second_digit_above_3_or_4_5_times_the_mean(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t type, first; /* block with a second digit; the later ones have it too */
    } cases[] = {{SL_TYPE_Q8_0, 1}, {SL_SQ6_32, 1}, {SL_SQ5_32, 1},
                 {SL_SQ4_32, 3},    {SL_SQ3_16, 3}, {SL_SQ2_32, 3}};
    static const float largest[4] = {3.0f, 4.0f, 7.0f, 8.0f};
    struct fixture f;
    begin(&f, 1);
    sl_acts_begin(&f.acts, 1, 4 * 32);
    for (uint32_t i = 0; i < 4 * 32; i++) f.acts.f[i] = i % 32 == 9 ? largest[i / 32] : 1.0f;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        const struct sl_k_act *x = sl_acts_for(&f.c, &f.acts, cases[i].type);
        assert_non_null(x);
        assert_non_null(x->second.d);
        for (uint32_t b = 0; b < 4; b++)
            assert_int_equal(x->second.d[b] != 0.0f, b >= cases[i].first);
    }
    end(&f);
}

/* Blocks of 256 whose largest value is 7.9, 8.9, 9.6 and 10.3 times their root mean square. */
static void test_acts__borders_of_k_quants__second_digit_above_8_or_10_times_the_mean(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t type, first; /* as above */
    } cases[] = {{SL_TYPE_Q4_K, 1}, {SL_TYPE_Q6_K, 1}, {SL_TYPE_Q3_K, 3}, {SL_TYPE_Q2_K, 3}};
    static const float largest[4] = {9.0f, 10.7f, 12.0f, 13.5f};
    const uint32_t kinds = sl_k_act_bit(SL_TYPE_Q4_K) | sl_k_act_bit(SL_TYPE_Q3_K);
    struct fixture f;
    begin(&f, 1);
    struct sl_acts acts;
    struct sl_layout l = {NULL, 0};
    sl_acts_layout(&acts, &l, kinds, 1, 4 * 256);
    void *memory = sl_alloc(&f.budget, l.used, 1);
    assert_non_null(memory);
    l = (struct sl_layout){memory, 0};
    sl_acts_layout(&acts, &l, kinds, 1, 4 * 256);
    sl_acts_begin(&acts, 1, 4 * 256);
    for (uint32_t i = 0; i < 4 * 256; i++) acts.f[i] = i % 256 == 99 ? largest[i / 256] : 1.0f;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        const struct sl_k_act *x = sl_acts_for(&f.c, &acts, cases[i].type);
        assert_non_null(x);
        assert_non_null(x->second.d);
        for (uint32_t b = 0; b < 4; b++)
            assert_int_equal(x->second.d[b] != 0.0f, b >= cases[i].first);
    }
    sl_free(memory);
    end(&f);
}

static void test_acts_layout__some_kinds__only_those_take_memory(void **unused)
{
    (void)unused;
    const uint32_t fine = sl_k_act_bit(SL_TYPE_Q8_0), rough = sl_k_act_bit(SL_SQ3_32);
    const uint32_t kinds[4] = {0, fine, rough, fine | rough};
    uint64_t used[4];
    for (int i = 0; i < 4; i++) {
        struct sl_acts acts;
        struct sl_layout l = {NULL, 0};
        sl_acts_layout(&acts, &l, kinds[i], TOKENS, COLS);
        used[i] = l.used;
    }
    assert_int_equal(used[0], TOKENS * COLS * sizeof(float));
    assert_true(used[1] > used[0] + 2 * TOKENS * COLS);
    assert_int_equal(used[2], used[1]);
    assert_int_equal(used[3] - used[0], 2 * (used[1] - used[0]));
}

static void test_mm__threads_and_batches__same_bits(void **unused)
{
    (void)unused;
    struct fixture one, two;
    float a[TOKENS * ROWS], b[TOKENS * ROWS];
    begin(&one, 1);
    begin(&two, 3);
    fill(&one, 20.0f);
    fill(&two, 20.0f);
    run(&one, a);
    const struct sl_k_act *x = sl_acts_for(&two.c, &two.acts, SL_TYPE_Q8_0);
    struct sl_mm mm[2] = {{two.m, x, 2, b, ROWS, 0},
                          {two.m, x + 2, TOKENS - 2, b + 2 * ROWS, ROWS, 0}};
    sl_mm_run(&two.c, mm, 2);
    assert_memory_equal(a, b, sizeof a);
    end(&one);
    end(&two);
}

static void test_acts__not_finite__null(void **unused)
{
    (void)unused;
    struct fixture f;
    begin(&f, 1);
    fill(&f, 1.0f);
    f.acts.f[3 * COLS + 7] = NAN;
    assert_null(sl_acts_for(&f.c, &f.acts, SL_TYPE_Q8_0));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mm__outlier_in_every_block__the_rest_keeps_its_precision),
        cmocka_unit_test(test_mm__blocks_without_outlier__one_digit),
        cmocka_unit_test(test_acts__borders_of_types__second_digit_above_3_or_4_5_times_the_mean),
        cmocka_unit_test(test_acts__borders_of_k_quants__second_digit_above_8_or_10_times_the_mean),
        cmocka_unit_test(test_acts_layout__some_kinds__only_those_take_memory),
        cmocka_unit_test(test_mm__threads_and_batches__same_bits),
        cmocka_unit_test(test_acts__not_finite__null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
