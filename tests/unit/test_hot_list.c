/* Hot lists: what is written is read again; what is of another model, damaged or hostile is refused
 * with a sentence; and a model opened with one reads its experts before they are asked for. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/hot_list.h"
#include "include/sluice.h"

#define MODEL SLUICE_SOURCE_DIR "/tests/golden/qwen3moe-Q8_0/model.gguf"

static char folder[] = "/tmp/sluice_test_hot_XXXXXX";
static char path[64];
static struct sl_budget budget;
static sluice_error error;

static const uint32_t n_experts[] = {4, 0, 8};
static const struct sl_hot_list_model model = {3, n_experts, 123456};

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(path, sizeof path, "%s/hot", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, UINT64_MAX);
    memset(&error, 0, sizeof error);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    assert_int_equal(sl_budget_used(&budget), 0);
    return 0;
}

static void put(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static sluice_err read_list(struct sl_hot_list *list)
{
    return sl_hot_list_read(path, &model, &budget, list, &error);
}

static void test_list__written__the_same_when_read(void **state)
{
    (void)state;
    struct sl_expert_id ids[] = {{2, 7}, {0, 0}, {2, 0}, {0, 3}};
    struct sl_hot_list out = {ids, 4}, in;

    assert_int_equal(sl_hot_list_write(path, &model, &budget, &out, &error), SLUICE_OK);
    assert_int_equal(read_list(&in), SLUICE_OK);
    assert_int_equal(in.n, 4);
    assert_memory_equal(in.ids, ids, sizeof ids);
    sl_hot_list_free(&in);
    out.n = 1;
    assert_int_equal(sl_hot_list_write(path, &model, &budget, &out, &error), SLUICE_OK);
    assert_int_equal(read_list(&in), SLUICE_OK);
    assert_int_equal(in.n, 1);
    sl_hot_list_free(&in);
}

static void test_list__no_file__empty(void **state)
{
    (void)state;
    struct sl_hot_list in;

    assert_int_equal(read_list(&in), SLUICE_OK);
    assert_int_equal(in.n, 0);
    assert_null(in.ids);
}

static void test_list__of_another_model__changed(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "sluice-hot-list 1 3 8 123457\n", "sluice-hot-list 1 4 8 123456\n",
        "sluice-hot-list 1 3 9 123456\n", "sluice-hot-list 2 3 8 123456\n"};
    struct sl_hot_list in;

    for (size_t i = 0; i < SL_ARRAY_LEN(heads); i++) {
        put(heads[i], strlen(heads[i]));
        assert_int_equal(read_list(&in), SLUICE_E_CHANGED);
        assert_int_equal(in.n, 0);
        assert_null(in.ids);
    }
}

static void test_list__damaged_or_hostile__refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "0 4\n",      "1 0\n",  "3 0\n",  "2 8\n",
                                      "0 0",     "0 0\n0 0\n", " 0 0\n", "0  0\n", "-1 0\n",
                                      "0 0 \n",  "0 00000\n",  "a b\n",  "0\n",    "\n",
                                      "0 0\r\n", "99999 0\n",  "0 0\n\n"};
    char text[256];
    struct sl_hot_list in;

    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        int n =
            snprintf(text, sizeof text, "%s%s", i ? "sluice-hot-list 1 3 8 123456\n" : "", bad[i]);
        put(text, (size_t)n);
        if (read_list(&in) != SLUICE_E_FORMAT) fail_msg("accepted: %s", text);
        assert_null(in.ids);
        assert_non_null(strstr(error.text, path));
    }
    put("sluice-hot-list 1 3 8 123456\n0 0\n\0 1\n", 37);
    assert_int_equal(read_list(&in), SLUICE_E_FORMAT);
    memset(text, ' ', sizeof text);
    put(text, sizeof text); /* longer than any list of this model */
    assert_int_equal(read_list(&in), SLUICE_E_LIMIT);
    assert_int_not_equal(sl_hot_list_read(folder, &model, &budget, &in, &error), SLUICE_OK);
}

static void test_list__every_prefix__never_more_than_was_there(void **state)
{
    (void)state;
    static const char text[] = "sluice-hot-list 1 3 8 123456\n2 7\n0 3\n0 1\n";

    for (size_t n = 0; n < sizeof text; n++) {
        struct sl_hot_list in;
        put(text, n);
        sluice_err err = read_list(&in);
        bool whole = n == 29 || n == 33 || n == 37 || n == 41;
        assert_int_equal(err == SLUICE_OK, whole);
        if (whole) assert_int_equal(in.n, (n - 29) / 4);
        sl_hot_list_free(&in);
    }
}

static void test_list__memory_fails_at_every_point__clean_error(void **state)
{
    (void)state;
    struct sl_expert_id ids[] = {{2, 7}, {0, 0}};
    struct sl_hot_list out = {ids, 2}, in;
    sluice_err err = SLUICE_E_NOMEM;

    for (int n = 0; err != SLUICE_OK; n++) {
        budget.fail_after = n;
        err = sl_hot_list_write(path, &model, &budget, &out, &error);
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        assert_int_equal(sl_budget_used(&budget), 0);
    }
    err = SLUICE_E_NOMEM;
    for (int n = 0; err != SLUICE_OK; n++) {
        budget.fail_after = n;
        err = read_list(&in);
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        if (err != SLUICE_OK) assert_int_equal(sl_budget_used(&budget), 0);
    }
    budget.fail_after = -1;
    sl_hot_list_free(&in);
}

/* ---- with a model ---------------------------------------------------------------------------- */

static char last_warning[512];

static void on_log(void *user, int level, const char *line)
{
    (void)user;
    if (level <= SLUICE_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", line);
}

/* Evaluates a short text and returns the figures. */
static sluice_stats run(const char *hot, uint32_t slots)
{
    static const int32_t ids[] = {5, 17, 301, 44, 120, 8, 99, 256, 3, 400};
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_stats s = SLUICE_STATS_INIT;
    sluice_model *m = NULL;
    sluice_session *session = NULL;

    o.threads = 1;
    o.slots = slots;
    o.prefetch = SLUICE_PREFETCH_OFF;
    o.hot_list = hot;
    o.log = on_log;
    last_warning[0] = '\0';
    if (sluice_model_open(MODEL, &o, &m, &error) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(sluice_session_open(m, &session, &error), SLUICE_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(sluice_session_eval(session, ids + i, 1, NULL, &error), SLUICE_OK);
    sluice_session_get_stats(session, &s);
    sluice_session_close(session);
    sluice_model_close(m);
    return s;
}

static void test_model__second_run__reads_the_list(void **state)
{
    (void)state;
    sluice_stats first = run(path, 12);

    assert_int_equal(first.warm_bytes, 0);
    assert_int_equal(access(path, R_OK), 0);
    assert_string_equal(last_warning, "");
    sluice_stats second = run(path, 12);
    assert_true(second.warm_bytes > 0);
    assert_int_equal(second.uses, first.uses);
}

static void test_model__list_of_another__warning_and_replaced(void **state)
{
    (void)state;
    struct sl_expert_id ids[] = {{2, 7}};
    struct sl_hot_list other = {ids, 1};

    assert_int_equal(sl_hot_list_write(path, &model, &budget, &other, &error), SLUICE_OK);
    sluice_stats s = run(path, 12);
    assert_int_equal(s.warm_bytes, 0);
    assert_non_null(strstr(last_warning, "another model"));
    assert_true(run(path, 12).warm_bytes > 0);
}

static void test_model__file_is_no_hot_list__left_as_it_is(void **state)
{
    (void)state;
    static const char text[] = "a letter to somebody\n";
    char after[sizeof text] = "";

    put(text, sizeof text - 1);
    sluice_stats s = run(path, 12);
    assert_true(s.uses > 0);
    assert_non_null(strstr(last_warning, "left as it is"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(after, 1, sizeof after, f), sizeof text - 1);
    assert_int_equal(fclose(f), 0);
    assert_memory_equal(after, text, sizeof text - 1);
}

static void test_model__list_cannot_be_written__warning(void **state)
{
    (void)state;
    sluice_stats s = run("/no/such/folder/hot", 12);

    assert_true(s.uses > 0);
    assert_non_null(strstr(last_warning, "was not saved"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_list__written__the_same_when_read),
        TEST(test_list__no_file__empty),
        TEST(test_list__of_another_model__changed),
        TEST(test_list__damaged_or_hostile__refused),
        TEST(test_list__every_prefix__never_more_than_was_there),
        TEST(test_list__memory_fails_at_every_point__clean_error),
        TEST(test_model__second_run__reads_the_list),
        TEST(test_model__list_of_another__warning_and_replaced),
        TEST(test_model__file_is_no_hot_list__left_as_it_is),
        TEST(test_model__list_cannot_be_written__warning),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
