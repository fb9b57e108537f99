/* Error records, names and messages; string views; log lines. Proves that a record is whole after
 * every failure, that messages stay inside their buffer and stay UTF-8, and that nothing from a
 * file can send control bytes to a terminal. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"

static void test_fail__dirty_record__whole_record_written(void **state)
{
    (void)state;
    sluice_error e;
    memset(&e, 0x5A, sizeof e);
    assert_int_equal(sl_fail(&e, SLUICE_E_FORMAT, "tensor %s has %d dimensions", "x", 9),
                     SLUICE_E_FORMAT);
    assert_int_equal(e.code, SLUICE_E_FORMAT);
    assert_int_equal(e.sys_errno, 0);
    assert_int_equal(e.layer, -1);
    assert_int_equal(e.expert, -1);
    assert_true(e.file_offset == SLUICE_NO_OFFSET);
    assert_string_equal(e.text, "tensor x has 9 dimensions");
}

static void test_fail__no_record__code_returned(void **state)
{
    (void)state;
    assert_int_equal(sl_fail(NULL, SLUICE_E_IO, "x"), SLUICE_E_IO);
    assert_int_equal(sl_fail_sys(NULL, SLUICE_E_IO, EIO, "x"), SLUICE_E_IO);
}

static void test_fail_sys__errno__kept_and_explained(void **state)
{
    (void)state;
    sluice_error e;
    assert_int_equal(sl_fail_sys(&e, SLUICE_E_IO, ENOSPC, "writing '%s'", "a"), SLUICE_E_IO);
    assert_int_equal(e.sys_errno, ENOSPC);
    assert_string_equal(e.text, "writing 'a': No space left on device");
}

/* Sentences of two-byte characters, one byte apart: one of them is cut inside a character. */
static void test_fail__too_long__cut_at_a_character_with_dots(void **state)
{
    (void)state;
    char text[2 * SLUICE_ERROR_TEXT_MAX];
    for (size_t lead = 0; lead < 2; lead++) {
        memset(text, 'a', sizeof text);
        for (size_t i = lead; i + 1 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 2);
        text[sizeof text - 1] = '\0';
        sluice_error e;
        sl_fail(&e, SLUICE_E_ARG, "%s", text);
        size_t n = strlen(e.text);
        assert_true(n < SLUICE_ERROR_TEXT_MAX && n >= SLUICE_ERROR_TEXT_MAX - 3);
        assert_string_equal(e.text + n - 3, "...");
        assert_int_equal(sl_utf8_whole(e.text, n - 3), n - 3);
        assert_true(((unsigned char)e.text[n - 4] & 0xC0) == 0x80);
    }
}

static void test_fail_sys__full_record__stays_in_its_buffer(void **state)
{
    (void)state;
    char text[SLUICE_ERROR_TEXT_MAX + 50];
    memset(text, 'b', sizeof text);
    text[sizeof text - 1] = '\0';
    sluice_error e;
    sl_fail_sys(&e, SLUICE_E_IO, EIO, "%s", text);
    assert_true(strlen(e.text) < SLUICE_ERROR_TEXT_MAX);
}

static void test_err_name__every_code__known(void **state)
{
    (void)state;
#define CHECK(name, value, sentence)                                                               \
    assert_string_equal(sl_err_name(SLUICE_##name), #name);                                        \
    assert_string_equal(sl_err_text(SLUICE_##name), sentence);
    SLUICE_ERR_LIST(CHECK)
#undef CHECK
    assert_string_equal(sl_err_name((sluice_err)-9999), "E_UNKNOWN");
    assert_true(strlen(sl_err_text((sluice_err)-9999)) > 0);
}

static void test_arithmetic__at_the_limit__refused_and_output_kept(void **state)
{
    (void)state;
    uint64_t out = 7;
    assert_false(sl_mul_ok(UINT64_MAX, 2, &out));
    assert_false(sl_add_ok(UINT64_MAX, 1, &out));
    assert_false(sl_align_ok(UINT64_MAX - 3, 16, &out));
    assert_int_equal(out, 7);
    assert_true(sl_mul_ok(UINT64_MAX, 1, &out) && out == UINT64_MAX);
    assert_true(sl_align_ok(17, 16, &out) && out == 32);
    assert_true(sl_align_ok(0, 4096, &out) && out == 0);
}

static void test_str__comparisons__as_named(void **state)
{
    (void)state;
    struct sl_str s = SL_STR("blk.0.ffn");
    struct sl_str none = {NULL, 0};
    assert_true(sl_str_eq(s, "blk.0.ffn"));
    assert_false(sl_str_eq(s, "blk.0.ff"));
    assert_false(sl_str_eq(s, "blk.0.ffnx"));
    assert_true(sl_str_eq(none, ""));
    assert_true(sl_str_same(none, SL_STR("")));
    assert_true(sl_str_same(s, SL_STR("blk.0.ffn")));
    assert_false(sl_str_same(s, none));
    assert_true(sl_str_starts(s, "blk.") && sl_str_starts(s, "") &&
                !sl_str_starts(s, "blk.0.ffn."));
    assert_true(sl_str_ends(s, ".ffn") && sl_str_ends(s, "") && !sl_str_ends(none, "n"));
    assert_false(sl_str_eq(SL_STR("a\0b"), "a"));
}

static void show(const char *p, size_t n, size_t size, const char *want)
{
    char buf[64];
    memset(buf, 'X', sizeof buf);
    assert_ptr_equal(sl_str_show((struct sl_str){p, n}, buf, size), buf);
    assert_string_equal(buf, want);
    assert_int_equal(buf[size], 'X');
}

static void test_str_show__hostile_bytes__printable(void **state)
{
    (void)state;
    show("plain", 5, 32, "plain");
    show("", 0, 4, "");
    show("a\x1B[31m\0b\n", 8, 32, "a?[31m?b");
    show("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x99\x82", 9, 32, "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x99\x82");
    show("\xC2\x9B", 2, 32, "?");            /* CSI as one character */
    show("\x80\xC0\xAF\xFF", 4, 32, "????"); /* not UTF-8, overlong */
    show("\xED\xA0\x80", 3, 32, "???");      /* a surrogate */
    show("\xF4\x90\x80\x80", 4, 32, "????"); /* above U+10FFFF */
    show("\xE2\x82", 2, 32, "??");           /* cut short */
    show("x\x7F", 2, 32, "x?");
}

static void test_str_show__too_long__dots(void **state)
{
    (void)state;
    show("abcdefgh", 8, 8, "abcd...");
    show("abcdefg", 7, 8, "abcdefg");
    show("\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC", 9, 9, "\xE2\x82\xAC...");
    show("abcdefgh", 8, 4, "...");
    show("\xF0\x9F\x99\x82", 4, 4, "...");
}

struct seen {
    int calls;
    int level;
    char line[2048];
};

static void remember(void *user, int level, const char *line)
{
    struct seen *s = user;
    s->calls++;
    s->level = level;
    snprintf(s->line, sizeof s->line, "%s", line);
}

static void test_log__levels__filtered(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct sl_log log = {remember, &seen, SL_LOG_INFO};
    sl_log_line(&log, SL_LOG_DEBUG, "no");
    assert_int_equal(seen.calls, 0);
    sl_log_line(&log, SL_LOG_WARN, "%d cores", 3);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.level, SL_LOG_WARN);
    assert_string_equal(seen.line, "3 cores");
    log.fn = NULL;
    sl_log_line(&log, SL_LOG_ERROR, "dropped");
    sl_log_line(NULL, SL_LOG_ERROR, "dropped");
    assert_int_equal(seen.calls, 1);
}

static void test_log__long_line__cut_with_dots(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct sl_log log = {remember, &seen, SL_LOG_INFO};
    sl_log_line(&log, SL_LOG_INFO, "%2000d", 1);
    assert_int_equal(strlen(seen.line), 1023);
    assert_string_equal(seen.line + 1020, "...");
}

static void test_clock__twice__does_not_go_back(void **state)
{
    (void)state;
    uint64_t before = sl_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = sl_now_ns();
        assert_true(now >= before);
        before = now;
    }
}

static jmp_buf broken;
static char broken_expression[64];

static void jump_out(const char *expression, const char *file, int line)
{
    (void)file;
    (void)line;
    snprintf(broken_expression, sizeof broken_expression, "%s", expression);
    longjmp(broken, 1);
}

static void test_assert__broken_invariant__handler_gets_the_expression(void **state)
{
    (void)state;
    sl_assert_set_handler(jump_out);
    if (setjmp(broken) == 0) {
        int one = 1;
        SLUICE_ASSERT(one == 2);
        fail();
    }
    sl_assert_set_handler(NULL);
    assert_string_equal(broken_expression, "one == 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail__dirty_record__whole_record_written),
        cmocka_unit_test(test_fail__no_record__code_returned),
        cmocka_unit_test(test_fail_sys__errno__kept_and_explained),
        cmocka_unit_test(test_fail__too_long__cut_at_a_character_with_dots),
        cmocka_unit_test(test_fail_sys__full_record__stays_in_its_buffer),
        cmocka_unit_test(test_err_name__every_code__known),
        cmocka_unit_test(test_arithmetic__at_the_limit__refused_and_output_kept),
        cmocka_unit_test(test_str__comparisons__as_named),
        cmocka_unit_test(test_str_show__hostile_bytes__printable),
        cmocka_unit_test(test_str_show__too_long__dots),
        cmocka_unit_test(test_log__levels__filtered),
        cmocka_unit_test(test_log__long_line__cut_with_dots),
        cmocka_unit_test(test_clock__twice__does_not_go_back),
        cmocka_unit_test(test_assert__broken_invariant__handler_gets_the_expression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
