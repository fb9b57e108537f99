/* Column statistics: what is collected is what is found, before and after a file; names of parts
 * lead to stacks; files that lie are refused. Files are built by hand, as llama.cpp writes them. */
#define _GNU_SOURCE /* mkdtemp */
#include <math.h>

#define CASE_BUDGET_BYTES (8u << 20)
#include "tests/support/gguf_case.h"

#include "pack/column_stats.h"

#define GATE "blk.1.ffn_gate_exps.weight"
#define UP "blk.1.ffn_up_exps.weight"
#define Q "blk.0.attn_q.weight"

static sluice_err add(struct sl_column_stats *s, const char *name, uint32_t matrix,
                      uint32_t n_matrices, const float x[4])
{
    const struct sl_column_input in = {name, NULL, matrix, n_matrices, x, 2, 2};
    return sl_column_stats_add(s, &in, &error);
}

static void assert_found(const struct sl_column_stats *s, const char *name, float first,
                         float second, uint64_t n)
{
    uint64_t count = 77;
    const float *mean = sl_column_stats_find(s, (struct sl_str){name, strlen(name)}, 2, &count);
    if (n == 0 || n == UINT64_MAX) {
        assert_null(mean);
    } else {
        assert_non_null(mean);
        assert_float_equal(mean[0], first, 1e-6f * first);
        assert_float_equal(mean[1], second, 1e-6f * second);
    }
    if (count != n) fail_msg("%s: %llu inputs", name, (unsigned long long)count);
}

/* Two inputs for attn_q, four for expert 1, none for the others; up is shown what gate is. */
static struct sl_column_stats *collect(void)
{
    struct sl_column_stats *s = NULL;
    static const float x[4] = {1, -2, 3, 0.5f};
    assert_int_equal(sl_column_stats_new(&budget, &error, &s), SLUICE_OK);
    assert_int_equal(add(s, Q, 0, 1, x), SLUICE_OK);
    for (int i = 0; i < 2; i++) {
        struct sl_column_input up = {UP, GATE, 1, 3, x, 2, 2};
        assert_int_equal(add(s, GATE, 1, 3, x), SLUICE_OK);
        assert_int_equal(sl_column_stats_add(s, &up, &error), SLUICE_OK);
    }
    return s;
}

static void assert_collected(const struct sl_column_stats *s)
{
    assert_found(s, Q, 5, 2.125f, 2);
    assert_found(s, "blk.1.ffn_gate.1.weight", 5, 2.125f, 4);
    assert_found(s, "blk.1.ffn_up.1.weight", 5, 2.125f, 4);
    assert_found(s, "blk.1.ffn_gate.0.weight", 0, 0, 0);
    assert_found(s, "blk.1.ffn_up.2.weight", 0, 0, 0);
}

static void list(void *user, const char *name, uint32_t matrix)
{
    char *text = user;
    size_t n = strlen(text);
    snprintf(text + n, 256 - n, "%s %u,", name, matrix);
}

/* ---- collecting ------------------------------------------------------------------------------ */

static void test_column_stats__collected__means_and_counts(void **state)
{
    (void)state;
    struct sl_column_stats *s = collect();
    uint64_t before = sl_budget_used(&budget);
    assert_int_equal(sl_column_stats_finish(s, &error), SLUICE_OK);
    assert_true(sl_budget_used(&budget) < before + 1024);
    assert_collected(s);
    sl_column_stats_close(s);
}

static void test_column_stats__written_and_read__the_same(void **state)
{
    (void)state;
    char path[CASE_PATH_BYTES];
    struct sl_column_stats *s = collect(), *again = NULL;
    path_in(path, "stats.gguf");
    assert_int_equal(sl_column_stats_finish(s, &error), SLUICE_OK);
    assert_int_equal(sl_column_stats_write(s, path, "a text", 3, 512, &error), SLUICE_OK);
    sl_column_stats_close(s);

    struct sl_gguf *g = open_path(path);
    struct sl_str type = {"", 0};
    uint32_t chunks = 0, size = 0;
    char shown[64];
    assert_int_equal(sl_gguf_str(g, "general.type", &type, &error), SLUICE_OK);
    assert_str(type, "imatrix");
    assert_int_equal(sl_gguf_u32(g, "imatrix.chunk_count", &chunks, &error), SLUICE_OK);
    assert_int_equal(sl_gguf_u32(g, "imatrix.chunk_size", &size, &error), SLUICE_OK);
    assert_true(chunks == 3 && size == 512);
    assert_string_equal(sl_gguf_key_show(g, 1, shown, sizeof shown), "[1 string]");
    const struct sl_gguf_tensor *sums = sl_gguf_find_tensor(g, UP ".in_sum2");
    const struct sl_gguf_tensor *counts = sl_gguf_find_tensor(g, UP ".counts");
    assert_true(sums && sums->dims[0] == 2 && sums->dims[1] == 3 && sums->n_dims == 2);
    assert_true(counts && counts->dims[0] == 1 && counts->dims[1] == 3);
    float value[6];
    assert_int_equal(sl_file_read_at(sl_gguf_file(g, 0), sums->offset, value, sizeof value, &error),
                     SLUICE_OK);
    assert_true(value[1] == 0.0f && value[2] == 20.0f && value[3] == 8.5f);
    sl_gguf_close(g);

    assert_int_equal(sl_column_stats_open(path, &budget, &error, &again), SLUICE_OK);
    assert_collected(again);
    char text[256] = "";
    assert_int_equal(sl_column_stats_unreached(again, list, text), 4);
    assert_string_equal(text, GATE " 0," GATE " 2," UP " 0," UP " 2,");
    assert_int_equal(sl_column_stats_unreached(again, NULL, NULL), 4);
    sl_column_stats_close(again);
    remove(path);
}

static void test_column_stats__add_in_contradiction__state(void **state)
{
    (void)state;
    static const float x[4] = {1, 1, 1, 1};
    struct sl_column_stats *s = collect();
    struct sl_column_input in = {"new", "nobody", 0, 1, x, 2, 2};
    assert_int_equal(sl_column_stats_add(s, &in, &error), SLUICE_E_STATE);
    in = (struct sl_column_input){"new", UP, 1, 3, x, 2, 2}; /* whose figures are gate's */
    assert_int_equal(sl_column_stats_add(s, &in, &error), SLUICE_E_STATE);
    in = (struct sl_column_input){"new", GATE, 1, 2, x, 2, 2};
    assert_int_equal(sl_column_stats_add(s, &in, &error), SLUICE_E_STATE);
    in = (struct sl_column_input){UP, NULL, 1, 3, x, 2, 2};
    assert_int_equal(sl_column_stats_add(s, &in, &error), SLUICE_E_STATE);
    in = (struct sl_column_input){Q, NULL, 0, 1, x, 1, 4};
    assert_int_equal(sl_column_stats_add(s, &in, &error), SLUICE_E_STATE);
    assert_mentions("another shape");
    assert_int_equal(sl_column_stats_finish(s, &error), SLUICE_OK);
    assert_int_equal(sl_column_stats_finish(s, &error), SLUICE_OK);
    assert_int_equal(add(s, Q, 0, 1, x), SLUICE_E_STATE);
    assert_collected(s);
    sl_column_stats_close(s);
}

static void test_column_stats__input_not_finite__numeric(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_column_stats *s = NULL;
        const float x[4] = {1, 1, 1, bad[i]};
        assert_int_equal(sl_column_stats_new(&budget, &error, &s), SLUICE_OK);
        assert_int_equal(add(s, Q, 0, 1, x), SLUICE_OK);
        assert_int_equal(sl_column_stats_finish(s, &error), SLUICE_E_NUMERIC);
        assert_mentions(Q);
        sl_column_stats_close(s);
    }
}

static void test_column_stats__no_folder__io_error(void **state)
{
    (void)state;
    char path[CASE_PATH_BYTES];
    struct sl_column_stats *s = collect();
    path_in(path, "nowhere/stats.gguf");
    assert_int_equal(sl_column_stats_finish(s, &error), SLUICE_OK);
    assert_int_equal(sl_column_stats_write(s, path, "", 1, 8, &error), SLUICE_E_IO);
    sl_column_stats_close(s);
}

/* Everything once, the n-th allocation refused. */
static sluice_err do_all(const char *path)
{
    static const float x[4] = {1, 2, 3, 4};
    struct sl_column_stats *s = NULL, *again = NULL;
    sluice_err err = sl_column_stats_new(&budget, &error, &s);
    if (err == SLUICE_OK) err = add(s, GATE, 1, 3, x);
    if (err == SLUICE_OK) err = add(s, Q, 0, 1, x);
    if (err == SLUICE_OK) err = sl_column_stats_finish(s, &error);
    if (err == SLUICE_OK) err = sl_column_stats_write(s, path, "t", 1, 8, &error);
    if (err == SLUICE_OK) err = sl_column_stats_open(path, &budget, &error, &again);
    sl_column_stats_close(again);
    sl_column_stats_close(s);
    return err;
}

static void test_column_stats__any_allocation_refused__error_and_nothing_left(void **state)
{
    (void)state;
    char path[CASE_PATH_BYTES];
    int64_t at = 0;
    sluice_err err = SLUICE_E_NOMEM;
    path_in(path, "stats.gguf");
    for (; err != SLUICE_OK; at++) {
        atomic_store(&budget.fail_after, at);
        err = do_all(path);
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        if (atomic_load(&budget.fail_after) >= 0) assert_int_equal(err, SLUICE_OK);
        assert_int_equal(sl_budget_used(&budget), 0);
    }
    assert_true(at > 12);
    atomic_store(&budget.fail_after, -1);
    remove(path);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A file as llama.cpp writes it: 2 columns, counts 1 each, sums 4 and 9. */
static void put_tensors(struct gguf_build *b, const char *const *names, uint32_t n,
                        uint64_t matrices)
{
    char name[300];
    uint64_t offset = 0;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.in_sum2", names[i]);
        gb_tensor(b, name, SL_TYPE_F32, offset, 2, matrices);
        offset += (8 * matrices + 31) / 32 * 32;
        snprintf(name, sizeof name, "%s.counts", names[i]);
        gb_tensor(b, name, SL_TYPE_F32, offset, 1, matrices);
        offset += (4 * matrices + 31) / 32 * 32;
    }
    while (b->n % 32) gb_uint(b, 0, 1);
    for (uint32_t i = 0; i < n; i++) {
        for (uint64_t m = 0; m < matrices; m++) {
            gb_f32(b, 4.0f * (float)(m + 1));
            gb_f32(b, 9.0f * (float)(m + 1));
        }
        while (b->n % 32) gb_uint(b, 0, 1);
        for (uint64_t m = 0; m < matrices; m++) gb_f32(b, 1.0f);
        while (b->n % 32) gb_uint(b, 0, 1);
    }
}

/* Writes the bytes to a file and opens it; the file is removed again. */
static sluice_err open_bytes(const void *bytes, size_t n, struct sl_column_stats **s)
{
    char path[CASE_PATH_BYTES];
    path_in(path, "in.gguf");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    memset(&error, 0, sizeof error);
    sluice_err err = sl_column_stats_open(path, &budget, &error, s);
    assert_true((err == SLUICE_OK) == (*s != NULL) && err == error.code);
    remove(path);
    return err;
}

static void test_column_stats__names_of_parts__their_stack(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.3.ffn_gate_up_exps.weight",
                                        "blk.3.ffn_down_exps.weight", "blk.4.ffn_up_exps.weight"};
    struct gguf_build b;
    struct sl_column_stats *s = NULL;
    gb_begin(&b, 3);
    gb_kv_str(&b, "general.type", "imatrix");
    put_tensors(&b, names, 3, 12);
    assert_int_equal(open_bytes(b.p, b.n, &s), SLUICE_OK);
    assert_found(s, "blk.3.ffn_gate.0.weight", 4, 9, 1);
    assert_found(s, "blk.3.ffn_up.11.weight", 48, 108, 1);
    assert_found(s, "blk.3.ffn_down.1.weight", 8, 18, 1);
    assert_found(s, "blk.4.ffn_up.1.weight", 8, 18, 1);
    assert_found(s, "blk.4.ffn_gate.1.weight", 0, 0, 0);
    static const char *const unknown[] = {
        "blk.3.ffn_down.12.weight",   "blk.3.ffn_down.01.weight",   "blk.03.ffn_down.1.weight",
        "blk.3.ffn_down.1.weight ",   "blk.3.ffn_down.-1.weight",   "blk.3.ffn_down.1.bias",
        "blk.3.ffn_down_exps.weight", "blk.3.ffn_other.1.weight",   "blk.5.ffn_down.1.weight",
        "ffn_down.1.weight",          "blk.3.ffn_down.99999999999", "",
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(unknown); i++) assert_found(s, unknown[i], 0, 0, 0);
    uint64_t count;
    assert_null(sl_column_stats_find(s, SL_STR("blk.3.ffn_down.1.weight"), 3, &count));
    assert_true(count == UINT64_MAX);
    sl_column_stats_close(s);
    gb_end(&b);
}

static void test_column_stats__tensors_of_their_own__found_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"output.weight", "blk.3.ffn_down.1.weight",
                                        "blk.3.ffn_down_exps.weight"};
    struct gguf_build b;
    struct sl_column_stats *s = NULL;
    gb_begin(&b, 3);
    gb_kv_str(&b, "general.type", "imatrix");
    put_tensors(&b, names, 3, 1);
    assert_int_equal(open_bytes(b.p, b.n, &s), SLUICE_OK);
    assert_found(s, "output.weight", 4, 9, 1);
    assert_found(s, "blk.3.ffn_down.1.weight", 4, 9, 1);
    assert_found(s, "blk.3.ffn_down.0.weight", 4, 9, 1);
    sl_column_stats_close(s);
    gb_end(&b);
}

/* The old form had one count for all experts, and a row for all: 12 columns are 6 experts of 2. */
static void test_column_stats__stack_in_one_row__cut_into_experts(void **state)
{
    (void)state;
    struct gguf_build b;
    struct sl_column_stats *s = NULL;
    gb_begin(&b, 3);
    gb_kv_str(&b, "general.type", "imatrix");
    gb_tensor(&b, "blk.3.ffn_down_exps.weight.in_sum2", SL_TYPE_F32, 0, 12, 1);
    gb_tensor(&b, "blk.3.ffn_down_exps.weight.counts", SL_TYPE_F32, 64, 1, 1);
    while (b.n % 32) gb_uint(&b, 0, 1);
    for (int i = 0; i < 32; i++) gb_f32(&b, i < 16 ? 2.0f * (float)i : 2.0f);
    assert_int_equal(open_bytes(b.p, b.n, &s), SLUICE_OK);
    assert_found(s, "blk.3.ffn_down.0.weight", 0, 1, 2);
    assert_found(s, "blk.3.ffn_down.5.weight", 10, 11, 2);
    assert_found(s, "blk.3.ffn_down.6.weight", 0, 0, 0);
    assert_found(s, "blk.3.ffn_down_exps.weight", 0, 0, UINT64_MAX);
    sl_column_stats_close(s);
    gb_end(&b);
}

/* ---- files that lie -------------------------------------------------------------------------- */

/* One tensor x of 2 columns and 2 matrices; what differs from a good file. */
struct lie {
    const char *what, *general_type, *first, *second;
    uint32_t type[2];
    uint64_t dims[2][3];
    float sum, count;
    sluice_err code;
};

#define GOOD_DIMS                                                                                  \
    {                                                                                              \
        {2, 2, 1}, { 1, 2, 1 }                                                                     \
    }

static sluice_err open_lie(const struct lie *lie, struct sl_column_stats **s)
{
    struct gguf_build b;
    gb_begin(&b, 3);
    if (lie->general_type) gb_kv_str(&b, "general.type", lie->general_type);
    if (lie->first) gb_tensor_dims(&b, lie->first, lie->type[0], 0, lie->dims[0], 3);
    if (lie->second) gb_tensor_dims(&b, lie->second, lie->type[1], 64, lie->dims[1], 3);
    while (b.n % 32) gb_uint(&b, 0, 1);
    for (int i = 0; i < 64; i++) gb_f32(&b, i < 16 ? lie->sum : lie->count);
    sluice_err err = open_bytes(b.p, b.n, s);
    gb_end(&b);
    return err;
}

static void test_column_stats__a_file_that_lies__refused(void **state)
{
    (void)state;
    static const char *const s = "x.in_sum2", *const c = "x.counts";
    const struct lie lies[] = {
        {"imatrix", "imatrix", s, c, {0, 0}, GOOD_DIMS, 1, 1, SLUICE_OK},
        {"imatrix", "imatrix", s, c, {0, 0}, GOOD_DIMS, 0, 0, SLUICE_OK},
        {"general.type", NULL, s, c, {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {"'model'", "model", s, c, {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {"nothing", "imatrix", NULL, NULL, {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {"nothing", "imatrix", "x.in_sum", "x", {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {".counts", "imatrix", s, NULL, {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {".in_sum2", "imatrix", NULL, c, {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {".counts", "imatrix", s, "y.counts", {0, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {"F32", "imatrix", s, c, {1, 0}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {"F32", "imatrix", s, c, {0, 30}, GOOD_DIMS, 1, 1, SLUICE_E_FORMAT},
        {"shape", "imatrix", s, c, {0, 0}, {{2, 2, 2}, {1, 2, 1}}, 1, 1, SLUICE_E_FORMAT},
        {"each matrix", "imatrix", s, c, {0, 0}, {{2, 2, 1}, {1, 1, 1}}, 1, 1, SLUICE_E_FORMAT},
        {"each matrix", "imatrix", s, c, {0, 0}, {{2, 2, 1}, {2, 2, 1}}, 1, 1, SLUICE_E_FORMAT},
        {"each matrix", "imatrix", s, c, {0, 0}, {{2, 2, 1}, {1, 2, 2}}, 1, 1, SLUICE_E_FORMAT},
        {"sum", "imatrix", s, c, {0, 0}, GOOD_DIMS, -1, 1, SLUICE_E_FORMAT},
        {"sum", "imatrix", s, c, {0, 0}, GOOD_DIMS, NAN, 1, SLUICE_E_FORMAT},
        {"sum", "imatrix", s, c, {0, 0}, GOOD_DIMS, INFINITY, 0, SLUICE_E_FORMAT},
        {"count", "imatrix", s, c, {0, 0}, GOOD_DIMS, 1, -1, SLUICE_E_FORMAT},
        {"count", "imatrix", s, c, {0, 0}, GOOD_DIMS, 1, NAN, SLUICE_E_FORMAT},
        {"count", "imatrix", s, c, {0, 0}, GOOD_DIMS, 1, 1e30f, SLUICE_E_FORMAT},
        {"", "imatrix", s, c, {0, 0}, {{1u << 21, 1, 1}, {1, 1, 1}}, 1, 1, SLUICE_E_TRUNCATED},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(lies); i++) {
        struct sl_column_stats *stats = NULL;
        sluice_err err = open_lie(&lies[i], &stats);
        if (err != lies[i].code) fail_msg("%zu: %s: %s", i, sl_err_name(err), error.text);
        if (err != SLUICE_OK) assert_mentions(lies[i].what);
        sl_column_stats_close(stats);
    }
}

static void test_column_stats__old_form__says_how_to_convert(void **state)
{
    (void)state;
    struct gguf_build b = {0};
    struct sl_column_stats *s = NULL;
    gb_u32(&b, 2);
    gb_u32(&b, 19);
    gb_bytes(&b, Q, 19);
    gb_u32(&b, 1);
    gb_u32(&b, 16);
    for (int i = 0; i < 16; i++) gb_f32(&b, 1);
    assert_int_equal(open_bytes(b.p, b.n, &s), SLUICE_E_FORMAT);
    assert_mentions("llama-imatrix --in-file");
    b.p[8 + 18] = 'x';
    assert_int_equal(open_bytes(b.p, b.n, &s), SLUICE_E_FORMAT);
    assert_mentions("not a GGUF file");
    gb_end(&b);
}

static void test_column_stats__cut_anywhere__error(void **state)
{
    (void)state;
    static const char *const names[] = {Q};
    struct gguf_build b;
    struct sl_column_stats *s = NULL;
    gb_begin(&b, 3);
    gb_kv_str(&b, "general.type", "imatrix");
    put_tensors(&b, names, 1, 8);
    for (size_t n = 0; n + 1 < b.n; n += n < 400 ? 1 : 7) {
        if (open_bytes(b.p, n, &s) == SLUICE_OK) fail_msg("%zu bytes of %zu do", n, b.n);
    }
    assert_int_equal(open_bytes(b.p, b.n, &s), SLUICE_OK);
    sl_column_stats_close(s);
    gb_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_column_stats__collected__means_and_counts),
        TEST(test_column_stats__written_and_read__the_same),
        TEST(test_column_stats__add_in_contradiction__state),
        TEST(test_column_stats__input_not_finite__numeric),
        TEST(test_column_stats__no_folder__io_error),
        TEST(test_column_stats__any_allocation_refused__error_and_nothing_left),
        TEST(test_column_stats__names_of_parts__their_stack),
        TEST(test_column_stats__tensors_of_their_own__found_by_name),
        TEST(test_column_stats__stack_in_one_row__cut_into_experts),
        TEST(test_column_stats__a_file_that_lies__refused),
        TEST(test_column_stats__old_form__says_how_to_convert),
        TEST(test_column_stats__cut_anywhere__error),
    };
    return cmocka_run_group_tests_name("column_stats", tests, make_folder, remove_folder);
}
