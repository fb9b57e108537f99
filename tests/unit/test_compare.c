/* Weights compared: sums of known values, whatever the number of threads and however a file spells
 * its experts; values that are no numbers are found where they are; reading errors, cancelling and
 * allocations that fail end it cleanly. */
#define _GNU_SOURCE /* mkdtemp */
#include <math.h>

#define CASE_BUDGET_BYTES UINT64_MAX
#include "tests/support/gguf_case.h"

#include "pack/compare.h"

#define COLS 96
#define ROWS 2000 /* several pieces */
#define PAIRS_MAX 16

static char path_a[CASE_PATH_BYTES], path_b[CASE_PATH_BYTES];

/* ---- models ----------------------------------------------------------------------------------
 */

struct put {
    uint64_t row, col;
    float value;
};

static float value_at(uint64_t i) { return (float)((int)(i * 2654435761u % 2001) - 1000) / 64; }

/* "w.weight" of ROWS by COLS, of which some values are replaced, and a vector of COLS. */
static void put_model(const char *path, float scale, const struct put *puts, size_t n)
{
    struct gguf_build b;

    gb_begin(&b, 3);
    gb_kv_str(&b, "general.architecture", "compared");
    gb_tensor(&b, "w.weight", SL_TYPE_F32, 0, COLS, ROWS);
    gb_tensor(&b, "v.weight", SL_TYPE_F32, COLS * ROWS * sizeof(float), COLS, 1);
    gb_pad(&b, 32);
    for (uint64_t i = 0; i < COLS * (ROWS + 1); i++) {
        float x = value_at(i) * scale;
        for (size_t k = 0; k < n; k++)
            if (i == puts[k].row * COLS + puts[k].col) x = puts[k].value;
        gb_f32(&b, x);
    }
    assert_true(gb_write(&b, path));
    gb_end(&b);
}

static int compare_begin(void **state)
{
    (void)set_up(state);
    path_in(path_a, "a.gguf");
    path_in(path_b, "b.gguf");
    return 0;
}

static int compare_end(void **state)
{
    unlink(path_a);
    unlink(path_b);
    return tear_down(state);
}

#define COMPARE_TEST(name) cmocka_unit_test_setup_teardown(name, compare_begin, compare_end)

/* ---- running ---------------------------------------------------------------------------------
 */

struct results {
    struct sl_compared found[PAIRS_MAX];
    uint32_t n;
    uint64_t done, total;
    int cancel_found, cancel_progress;
};

static int on_found(void *user, uint32_t pair, const struct sl_compared *c)
{
    struct results *r = user;

    assert_int_equal(pair, r->n);
    assert_true(r->n < PAIRS_MAX);
    r->found[r->n++] = *c;
    return r->cancel_found;
}

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    struct results *r = user;

    assert_true(done > r->done && done <= total);
    r->done = done;
    r->total = total;
    return r->cancel_progress;
}

/* Compares tensors of the same index; b NULL: looks at a alone. */
static sluice_err run(const char *a, const char *b, uint32_t threads, struct results *r)
{
    struct sl_source *source[2] = {NULL, NULL};
    struct sl_compare_pair pairs[PAIRS_MAX];

    sluice_err err = sl_source_open(a, &budget, &error, &source[0]);
    if (err == SLUICE_OK && b != NULL) err = sl_source_open(b, &budget, &error, &source[1]);
    if (err == SLUICE_OK) {
        uint32_t n = sl_source_n_tensors(source[0]);
        assert_true(n <= PAIRS_MAX);
        for (uint32_t i = 0; i < n; i++) pairs[i] = (struct sl_compare_pair){i, i};
        struct sl_compare c = {.a = source[0],
                               .b = source[1],
                               .pairs = pairs,
                               .n_pairs = n,
                               .threads = threads,
                               .found = on_found,
                               .progress = on_progress,
                               .user = r};
        err = sl_compare_run(&c, &budget, &error);
    }
    sl_source_close(source[0]);
    sl_source_close(source[1]);
    return err;
}

static void run_ok(const char *a, const char *b, uint32_t threads, struct results *r)
{
    memset(r, 0, sizeof *r);
    sluice_err err = run(a, b, threads, r);
    if (err != SLUICE_OK) fail_msg("%s: %s", sl_err_name(err), error.text);
    assert_int_equal(r->done, r->total);
}

/* ---- sums ------------------------------------------------------------------------------------
 */

static void test_compare__scaled_copy__known_error_and_cosine(void **state)
{
    struct results r;

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    put_model(path_b, 1.25f, NULL, 0);
    run_ok(path_a, path_b, 2, &r);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.total, COLS * (ROWS + 1));
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(fabs(sl_compared_error(&r.found[i]) - 0.25) < 1e-12);
        assert_true(fabs(sl_compared_cosine(&r.found[i]) - 1) < 1e-12);
    }
    assert_int_equal(r.found[0].elements, COLS * ROWS);
    assert_int_equal(r.found[1].elements, COLS);
    assert_true(r.found[0].max_error == 0.25 * 1000 / 64);
}

static void test_compare__one_value_changed__its_size_is_the_largest_error(void **state)
{
    const struct put change = {1234, 56, 100.0f};
    struct results r;

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    put_model(path_b, 1.0f, &change, 1);
    run_ok(path_a, path_b, 3, &r);
    double error_was = fabs(100.0 - (double)value_at(1234 * COLS + 56));
    assert_true(r.found[0].max_error == error_was);
    assert_true(r.found[0].error_squares == error_was * error_was);
    assert_true(r.found[1].error_squares == 0);
    assert_true(sl_compared_error(&r.found[1]) == 0);
    assert_true(sl_compared_cosine(&r.found[1]) == 1);
}

static void test_compare__any_number_of_threads__the_same_bits(void **state)
{
    struct results one, other;

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    put_model(path_b, 0.7f, NULL, 0);
    run_ok(path_a, path_b, 1, &one);
    for (uint32_t threads = 2; threads <= 5; threads++) {
        run_ok(path_a, path_b, threads, &other);
        assert_memory_equal(one.found, other.found, sizeof one.found);
    }
}

static void test_compared__zeros__error_and_cosine_are_defined(void **state)
{
    (void)state;
    struct sl_compared both = {0}, first = {.a_squares = 4, .error_squares = 4};
    struct sl_compared second = {.b_squares = 4, .error_squares = 4};
    assert_true(sl_compared_error(&both) == 0 && sl_compared_cosine(&both) == 1);
    assert_true(sl_compared_error(&first) == 1 && sl_compared_cosine(&first) == 0);
    assert_true(isinf(sl_compared_error(&second)) && sl_compared_cosine(&second) == 0);
}

/* ---- no numbers ------------------------------------------------------------------------------
 */

static void test_check__values_that_are_no_numbers__first_and_count(void **state)
{
    const struct put bad[] = {{1999, 95, NAN}, {700, 3, -INFINITY}, {700, 4, INFINITY}};
    struct results r;

    (void)state;
    put_model(path_a, 1.0f, bad, 3);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        run_ok(path_a, NULL, threads, &r);
        assert_int_equal(r.found[0].bad[0].count, 3);
        assert_int_equal(r.found[0].bad[0].row, 700);
        assert_int_equal(r.found[0].bad[0].col, 3);
        assert_int_equal(r.found[1].bad[0].count, 0);
    }
}

static void test_compare__no_numbers_in_one__left_out_of_sums(void **state)
{
    const struct put bad = {5, 6, NAN};
    struct results r;

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    put_model(path_b, 1.0f, &bad, 1);
    run_ok(path_a, path_b, 2, &r);
    assert_int_equal(r.found[0].bad[0].count, 0);
    assert_int_equal(r.found[0].bad[1].count, 1);
    assert_int_equal(r.found[0].bad[1].row, 5);
    assert_true(r.found[0].error_squares == 0);
}

static void test_place__row__where_it_lies_in_the_file(void **state)
{
    struct sl_source *s = NULL;
    struct sl_source_place place;

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    assert_int_equal(sl_source_open(path_a, &budget, &error, &s), SLUICE_OK);
    struct sl_gguf *g = open_path(path_a);
    uint32_t i = sl_source_find(s, SL_STR("w.weight"));
    assert_true(sl_source_place(s, i, 77, &place));
    assert_string_equal(place.path, path_a);
    assert_int_equal(place.offset, sl_gguf_find_tensor(g, "w.weight")->offset + 77 * COLS * 4);
    sl_gguf_close(g);
    sl_source_close(s);
}

/* ---- ends early ------------------------------------------------------------------------------
 */

static void test_compare__cancelled_by_either_callback__says_so(void **state)
{
    struct results r = {.cancel_found = 1};

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    assert_int_equal(run(path_a, NULL, 2, &r), SLUICE_E_CANCELLED);
    assert_int_equal(r.n, 1);
    r = (struct results){.cancel_progress = 1};
    assert_int_equal(run(path_a, NULL, 2, &r), SLUICE_E_CANCELLED);
}

static void test_compare__file_cut_meanwhile__error_of_reading(void **state)
{
    struct results r = {0};
    struct sl_source *s = NULL;
    const struct sl_compare_pair pair = {0, 0};

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    assert_int_equal(sl_source_open(path_a, &budget, &error, &s), SLUICE_OK);
    assert_int_equal(truncate(path_a, 100000), 0);
    struct sl_compare c = {
        .a = s, .pairs = &pair, .n_pairs = 1, .threads = 2, .found = on_found, .user = &r};
    assert_int_equal(sl_compare_run(&c, &budget, &error), SLUICE_E_TRUNCATED);
    assert_mentions("w.weight");
    assert_int_equal(r.n, 0);
    sl_source_close(s);
}

static void test_compare__any_allocation_fails__an_error_and_no_leak(void **state)
{
    sluice_err err = SLUICE_E_NOMEM;
    int64_t n = 0;

    (void)state;
    put_model(path_a, 1.0f, NULL, 0);
    put_model(path_b, 1.0f, NULL, 0);
    for (; err != SLUICE_OK; n++) {
        struct results r = {0};

        atomic_store(&budget.fail_after, n);
        err = run(path_a, path_b, 2, &r);
        atomic_store(&budget.fail_after, -1);
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        assert_int_equal(sl_budget_used(&budget), 0);
        assert_true(n < 200);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        COMPARE_TEST(test_compare__scaled_copy__known_error_and_cosine),
        COMPARE_TEST(test_compare__one_value_changed__its_size_is_the_largest_error),
        COMPARE_TEST(test_compare__any_number_of_threads__the_same_bits),
        COMPARE_TEST(test_compared__zeros__error_and_cosine_are_defined),
        COMPARE_TEST(test_check__values_that_are_no_numbers__first_and_count),
        COMPARE_TEST(test_compare__no_numbers_in_one__left_out_of_sums),
        COMPARE_TEST(test_place__row__where_it_lies_in_the_file),
        COMPARE_TEST(test_compare__cancelled_by_either_callback__says_so),
        COMPARE_TEST(test_compare__file_cut_meanwhile__error_of_reading),
        COMPARE_TEST(test_compare__any_allocation_fails__an_error_and_no_leak),
    };
    return cmocka_run_group_tests_name("compare", tests, make_folder, remove_folder);
}
