/* The JSON reader: values of every kind, and every way in which a text can be broken or hostile.
 * Each case runs with a budget that must be empty afterwards, and on a copy of exactly the text's
 * size, so that AddressSanitizer sees a read past its end. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/json_in.h"

#define BUDGET_BYTES (1u << 20)

static struct sl_budget budget;
static sluice_error error;
static char *text;

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, BUDGET_BYTES);
    memset(&error, 0, sizeof error);
    text = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(text);
    assert_int_equal(sl_budget_used(&budget), 0);
    return 0;
}

static sluice_err parse_n(const char *s, size_t n, struct sl_json **out)
{
    free(text);
    text = malloc(n + (n == 0));
    assert_non_null(text);
    memcpy(text, s, n);
    return sl_json_parse(text, n, "x.json", &budget, &error, out);
}

static struct sl_json *parse(const char *s)
{
    struct sl_json *j = NULL;

    if (parse_n(s, strlen(s), &j) != SLUICE_OK) fail_msg("%s: %s", s, error.text);
    return j;
}

static void assert_refused_n(const char *s, size_t n, sluice_err wanted, const char *part)
{
    struct sl_json *j = NULL;
    sluice_err err = parse_n(s, n, &j);

    if (err != wanted) fail_msg("%s: %d %s", s, err, error.text);
    assert_int_equal(error.code, wanted);
    assert_null(j);
    if (strstr(error.text, part) == NULL) fail_msg("%s: '%s' lacks '%s'", s, error.text, part);
    assert_non_null(strstr(error.text, "x.json: "));
}

static void assert_refused(const char *s, const char *part)
{
    assert_refused_n(s, strlen(s), SLUICE_E_FORMAT, part);
}

static void assert_text(struct sl_json_value v, const char *wanted)
{
    struct sl_str s = {"", 0};

    assert_true(sl_json_str(v, &s));
    if (!sl_str_eq(s, wanted)) fail_msg("'%.*s' is not '%s'", (int)s.n, s.p, wanted);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_json__every_kind__is_read(void **state)
{
    (void)state;
    struct sl_json *j = parse(" {\"a\": [1, \"two\", {\"b\": null}], \"c\": true, \"d\": {} ,\n"
                              "\t\"e\": [], \"f\": false}\r\n");
    struct sl_json_value root = sl_json_root(j), a = sl_json_get(root, "a");
    struct sl_json_walk w = sl_json_walk(a);
    uint64_t one = 0;
    bool flag = false;

    assert_int_equal(sl_json_kind_of(root), SL_JSON_OBJECT);
    assert_int_equal(sl_json_count(root), 5);
    assert_int_equal(sl_json_count(a), 3);
    assert_true(sl_json_step(&w) && sl_json_u64(w.value, &one) && one == 1);
    assert_true(sl_json_step(&w));
    assert_text(w.value, "two");
    assert_true(sl_json_step(&w));
    assert_int_equal(sl_json_kind_of(sl_json_get(w.value, "b")), SL_JSON_NULL);
    assert_false(sl_json_step(&w));
    assert_true(sl_json_bool(sl_json_get(root, "c"), &flag) && flag);
    assert_true(sl_json_bool(sl_json_get(root, "f"), &flag) && !flag);
    assert_int_equal(sl_json_count(sl_json_get(root, "d")), 0);
    assert_int_equal(sl_json_kind_of(sl_json_get(root, "e")), SL_JSON_ARRAY);
    sl_json_close(j);
}

static void test_json__walk__gives_names_in_order(void **state)
{
    (void)state;
    struct sl_json *j = parse("{\"x\": [[1, 2], 3], \"\": {\"y\": 1}, \"z\": 2}");
    struct sl_json_walk w = sl_json_walk(sl_json_root(j));

    assert_true(sl_json_step(&w) && sl_str_eq(w.key, "x"));
    assert_true(sl_json_step(&w) && w.key.n == 0);
    assert_true(sl_json_step(&w) && sl_str_eq(w.key, "z"));
    assert_false(sl_json_step(&w));
    sl_json_close(j);
}

static void test_json__absent_values__answer_everything(void **state)
{
    (void)state;
    struct sl_json *j = parse("{\"a\": 1}");
    struct sl_json_value v = sl_json_get(sl_json_get(sl_json_root(j), "no"), "nothing");
    struct sl_json_walk w = sl_json_walk(v);
    double d = 3;

    assert_int_equal(sl_json_kind_of(v), SL_JSON_ABSENT);
    assert_int_equal(sl_json_count(v), 0);
    assert_false(sl_json_step(&w));
    assert_false(sl_json_f64(v, &d));
    assert_true(d == 3);
    assert_int_equal(sl_json_kind_of(sl_json_get(sl_json_get(sl_json_root(j), "a"), "b")),
                     SL_JSON_ABSENT);
    assert_int_equal(sl_json_kind_of(sl_json_root(NULL)), SL_JSON_ABSENT);
    assert_int_equal(sl_json_kind_of(sl_json_get(sl_json_root(NULL), "a")), SL_JSON_ABSENT);
    assert_string_equal(sl_json_kind_name(SL_JSON_OBJECT), "an object");
    sl_json_close(j);
}

static void test_string__escapes__are_undone(void **state)
{
    (void)state;
    struct sl_json *j = parse("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"a\\u00e9\\u4E2D\\ud83d\\ude00z\","
                              " \"\xc4\xa0\xf0\x9f\x98\x80\", \"\\u0000x\"]");
    struct sl_json_walk w = sl_json_walk(sl_json_root(j));
    struct sl_str s;

    assert_true(sl_json_step(&w));
    assert_text(w.value, "\"\\/\b\f\n\r\t");
    assert_true(sl_json_step(&w));
    assert_text(w.value, "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z");
    assert_true(sl_json_step(&w));
    assert_text(w.value, "\xc4\xa0\xf0\x9f\x98\x80");
    assert_true(sl_json_step(&w) && sl_json_str(w.value, &s));
    assert_true(s.n == 2 && s.p[0] == '\0' && s.p[1] == 'x');
    sl_json_close(j);
}

static void test_number__floats__equal_the_c_librarys(void **state)
{
    (void)state;
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1e-06",
                                          "1e-5",
                                          "10000.0",
                                          "1000000.0",
                                          "5e6",
                                          "0.22",
                                          "0.0078125",
                                          "12.0",
                                          "1E+3",
                                          "-1.5e-3",
                                          "123456789012345",
                                          "1e22",
                                          "1e308",
                                          "4.9e-324",
                                          "1e-400",
                                          "0.000000000000000000000000000001",
                                          "0e99999999999"};
    double v = 0;

    for (size_t i = 0; i < SL_ARRAY_LEN(numbers); i++) {
        struct sl_json *j = parse(numbers[i]);

        assert_true(sl_json_f64(sl_json_root(j), &v));
        double wanted = strtod(numbers[i], NULL), step = nextafter(wanted, INFINITY) - wanted;
        if (fabs(v - wanted) > (wanted == 1e308 || wanted < 1e-29 ? step : 0))
            fail_msg("%s: %.17g", numbers[i], v);
        sl_json_close(j);
    }
    struct sl_json *j = parse("0.17677669529663687654321");
    assert_true(sl_json_f64(sl_json_root(j), &v));
    assert_true(fabs(v - 0.17677669529663687654321) <= 0x1p-54 && (float)v == 0.17677669529663687f);
    sl_json_close(j);
}

static void test_number__out_of_range__is_refused_by_its_type(void **state)
{
    (void)state;
    struct sl_json *j = parse("[18446744073709551615, 18446744073709551616, -9223372036854775808,"
                              " -9223372036854775809, 1.0, 1e3, 1e999, NaN, Infinity, -Infinity]");
    struct sl_json_walk w = sl_json_walk(sl_json_root(j));
    static const bool u64[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const bool i64[] = {0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    static const bool f64[] = {1, 1, 1, 1, 1, 1, 0, 0, 0, 0};

    for (int i = 0; sl_json_step(&w); i++) {
        uint64_t u = 7;
        int64_t s = 7;
        double d = 7;

        assert_int_equal(sl_json_u64(w.value, &u), u64[i]);
        assert_int_equal(sl_json_i64(w.value, &s), i64[i]);
        assert_int_equal(sl_json_f64(w.value, &d), f64[i]);
        assert_true(u64[i] ? u == UINT64_MAX : u == 7);
        assert_true(i64[i] ? s == INT64_MIN : s == 7);
        assert_true(f64[i] || d == 7);
    }
    sl_json_close(j);
}

/* ---- broken ---------------------------------------------------------------------------------- */

static void test_text__broken__is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "a value is missing at byte 0"},
        {"  ", "a value is missing at byte 2"},
        {"{", "a name in quotes is missing"},
        {"[1", "',' or ']' is missing"},
        {"[1,]", "']' where a value was wanted at byte 3"},
        {"{\"a\":1,}", "'}' where a name in quotes was wanted"},
        {"{\"a\" 1}", "'1' where ':' was wanted"},
        {"{a:1}", "'a' where a name in quotes was wanted"},
        {"[1}", "'}' where ',' or ']' was wanted"},
        {"[01]", "begins with 0"},
        {"[-]", "']' where a digit was wanted"},
        {"[1.]", "']' where a digit was wanted"},
        {"[1e]", "']' where a digit was wanted"},
        {"[+1]", "'+' where a value was wanted"},
        {"[.5]", "'.' where a value was wanted"},
        {"truth", "'t' where a value was wanted"},
        {"nullx", "'x' where the end of the text was wanted"},
        {"{} {}", "'{' where the end of the text was wanted at byte 3"},
        {"\"abc", "the end of a string is missing"},
        {"\"a\nb\"", "a control character in a string at byte 2"},
        {"\"\\x\"", "'x' where an escaped character was wanted"},
        {"\"\\u12g4\"", "'g' where a hexadecimal digit"},
        {"\"\\ud800\"", "surrogate"},
        {"\"\\ud800\\u0041\"", "surrogate"},
        {"\"\\udc00\"", "surrogate"},
        {"\"\\ud800\\", "surrogate"},
        {"\"\\", "an escaped character is missing"},
        {"\"\xff\"", "not UTF-8"},
        {"\"\xc3\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\xef\xbb\xbf{}", "where a value was wanted at byte 0"},
        {"// c\n1", "'/' where a value was wanted"},
        {"'a'", "where a value was wanted"},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) assert_refused(cases[i][0], cases[i][1]);
    assert_refused_n("{}\0", 3, SLUICE_E_FORMAT, "the end of the text was wanted");
    assert_refused_n("\"a\0b\"", 5, SLUICE_E_FORMAT, "control character");
}

static void test_text__every_prefix__is_refused(void **state)
{
    (void)state;
    const char *s = "{\"a\": [1.5e3, \"\\ud83d\\ude00\", {\"b\": false}, null], \"c\": {}}";
    struct sl_json *j = NULL;

    for (size_t n = 0; n < strlen(s); n++) assert_int_equal(parse_n(s, n, &j), SLUICE_E_FORMAT);
    assert_int_equal(parse_n(s, strlen(s), &j), SLUICE_OK);
    sl_json_close(j);
}

/* ---- hostile --------------------------------------------------------------------------------- */

static void test_names__twice_in_an_object__are_refused(void **state)
{
    (void)state;
    char many[4096] = "{\"top\": {";
    size_t n = strlen(many);

    assert_refused("{\"a\": 1, \"b\": 2, \"a\": 3}", "the name 'a' stands twice");
    assert_refused("[{\"a\": {\"b\": 1, \"\\u0062\": 2}}]", "the name 'b' stands twice");
    sl_json_close(parse("{\"a\": {\"a\": 1}, \"b\": {\"a\": 2}}"));
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, "\"n%d\": [{}, %d], ", i, i);
    memcpy(many + n, "\"n42\": 0}}", 11);
    assert_refused(many, "the name 'n42' stands twice");
    memcpy(many + n, "\"n100\": 0}}", 12);
    sl_json_close(parse(many));
}

static void test_nesting__past_the_limit__is_refused(void **state)
{
    (void)state;
    char s[2 * SL_JSON_DEPTH_MAX + 3];

    memset(s, '[', SL_JSON_DEPTH_MAX);
    memset(s + SL_JSON_DEPTH_MAX, ']', SL_JSON_DEPTH_MAX);
    s[2 * SL_JSON_DEPTH_MAX] = '\0';
    sl_json_close(parse(s));
    memset(s, '[', SL_JSON_DEPTH_MAX + 1);
    assert_refused_n(s, SL_JSON_DEPTH_MAX + 1, SLUICE_E_LIMIT, "nested more than 64 deep");
}

static void test_memory__too_little__is_refused_at_every_point(void **state)
{
    (void)state;
    char s[2048] = "{";
    size_t n = 1;
    struct sl_json *j = NULL;
    sluice_err err = SLUICE_E_BUDGET;

    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(s + n, sizeof s - n, "\"n%d\": [%d],", i, i);
    s[n - 1] = '}';
    for (uint64_t limit = 0; err != SLUICE_OK; limit += 64) {
        sl_budget_init(&budget, limit);
        err = parse_n(s, n, &j);
        assert_true(err == SLUICE_OK || err == SLUICE_E_BUDGET);
        if (err != SLUICE_OK) assert_int_equal(sl_budget_used(&budget), 0);
        assert_true(limit < 100000);
    }
    sl_json_close(j);
}

static void test_file__read_or_missing_or_too_large__says_so(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice_test_json_XXXXXX", path[64];
    struct sl_json *j = NULL;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.json", folder);
    assert_int_equal(sl_json_open(path, 100, &budget, &error, &j), SLUICE_E_NOT_FOUND);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("{\"model_type\": \"olmoe\"}", f);
    fclose(f);
    assert_int_equal(sl_json_open(path, 10, &budget, &error, &j), SLUICE_E_LIMIT);
    assert_non_null(strstr(error.text, "23 bytes, the limit is 10"));
    assert_int_equal(sl_json_open(path, 23, &budget, &error, &j), SLUICE_OK);
    assert_text(sl_json_get(sl_json_root(j), "model_type"), "olmoe");
    sl_json_close(j);
    unlink(path);
    rmdir(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_json__every_kind__is_read),
        TEST(test_json__walk__gives_names_in_order),
        TEST(test_json__absent_values__answer_everything),
        TEST(test_string__escapes__are_undone),
        TEST(test_number__floats__equal_the_c_librarys),
        TEST(test_number__out_of_range__is_refused_by_its_type),
        TEST(test_text__broken__is_refused_with_its_place),
        TEST(test_text__every_prefix__is_refused),
        TEST(test_names__twice_in_an_object__are_refused),
        TEST(test_nesting__past_the_limit__is_refused),
        TEST(test_memory__too_little__is_refused_at_every_point),
        TEST(test_file__read_or_missing_or_too_large__says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
