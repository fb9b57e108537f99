/* MessagePack: what is written comes back at every border between two forms; every form of the
 * specification is read or stepped over; what reaches past the end, claims more than there is, or
 * is something else than was asked for fails once and for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/msgpack_io.h"

#define OUT_MAX 200000

struct out {
    unsigned char p[OUT_MAX];
    size_t n;
};

static struct out out;

static void collect(void *user, const void *data, size_t bytes)
{
    struct out *o = user;

    assert_true(bytes <= sizeof o->p - o->n);
    memcpy(o->p + o->n, data, bytes);
    o->n += bytes;
}

static struct sl_mp_writer writer(void)
{
    out.n = 0;
    return (struct sl_mp_writer){collect, &out};
}

static struct sl_mp_reader reader(void)
{
    struct sl_mp_reader r;

    sl_mp_read(&r, out.p, out.n);
    return r;
}

/* A reader of a literal. */
static struct sl_mp_reader of(const char *bytes, size_t n)
{
    struct sl_mp_reader r;

    sl_mp_read(&r, bytes, n);
    return r;
}

#define OF(literal) of(literal, sizeof(literal) - 1)

/* ---- round trips ----------------------------------------------------------------------------- */

static void test_uint__every_power_of_two_and_its_neighbours__the_same(void **state)
{
    (void)state;
    for (uint32_t bit = 0; bit < 64; bit++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t v = ((uint64_t)1 << bit) + (uint64_t)d;
            struct sl_mp_writer w = writer();

            sl_mp_put_uint(&w, v);
            sl_mp_put_sum(&w, v);
            struct sl_mp_reader r = reader();
            assert_true(sl_mp_get_uint(&r, UINT64_MAX) == v);
            assert_int_equal(out.n - r.at, 9);
            assert_true(sl_mp_get_uint(&r, v) == v);
            assert_null(r.failed);
            assert_int_equal(r.at, r.bytes);
            r = reader();
            if (v > 0) assert_int_equal(sl_mp_get_uint(&r, v - 1), 0);
            if (v > 0) assert_non_null(r.failed);
        }
    }
}

static void test_int__both_signs_at_every_border__the_same(void **state)
{
    (void)state;
    for (uint32_t bit = 0; bit < 64; bit++) {
        for (int d = -1; d <= 1; d++) {
            int64_t v = (int64_t)(((uint64_t)1 << bit) + (uint64_t)d);

            for (int sign = 0; sign < 2; sign++, v = (int64_t)(0 - (uint64_t)v)) {
                struct sl_mp_writer w = writer();

                sl_mp_put_int(&w, v);
                struct sl_mp_reader r = reader();
                assert_true(sl_mp_get_int(&r, INT64_MIN, INT64_MAX) == v);
                assert_null(r.failed);
                r = reader();
                if (v > INT64_MIN) (void)sl_mp_get_int(&r, INT64_MIN, v - 1);
                if (v > INT64_MIN) assert_non_null(r.failed);
                r = reader();
                assert_true(v >= 0 || sl_mp_get_uint(&r, UINT64_MAX) == 0);
                assert_true(v >= 0 || r.failed != NULL);
            }
        }
    }
}

static void test_floats__any_bits__the_same(void **state)
{
    static const uint64_t bits[] = {0,
                                    1,
                                    0x3ff8000000000000,
                                    0x7ff8000000000001,
                                    0xfff0000000000000,
                                    0x7ff0000000000000,
                                    UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bits); i++) {
        struct sl_mp_writer w = writer();

        sl_mp_put_f64(&w, bits[i]);
        sl_mp_put_f32(&w, (uint32_t)(bits[i] >> 32));
        struct sl_mp_reader r = reader();
        assert_true(sl_mp_get_f64(&r) == bits[i]);
        assert_int_equal(sl_mp_get_f32(&r), bits[i] >> 32);
        assert_null(r.failed);
    }
}

static void test_bytes__every_border_of_length__the_same(void **state)
{
    static const size_t lengths[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
    static char data[65536];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)i;
    for (size_t i = 0; i < SL_ARRAY_LEN(lengths); i++) {
        struct sl_mp_writer w = writer();

        sl_mp_put_str(&w, (struct sl_str){data, lengths[i]});
        sl_mp_put_bin(&w, data, lengths[i]);
        struct sl_mp_reader r = reader();
        struct sl_str s = sl_mp_get_str(&r), b = sl_mp_get_bin(&r);
        assert_null(r.failed);
        assert_true(sl_str_same(s, (struct sl_str){data, lengths[i]}));
        assert_true(sl_str_same(b, s));
        for (size_t n = 0; n < out.n; n += 1 + n / 8) { /* cut */
            sl_mp_read(&r, out.p, n);
            (void)sl_mp_get_str(&r);
            (void)sl_mp_get_bin(&r);
            assert_non_null(r.failed);
            assert_true(r.at <= n);
        }
    }
}

static void test_containers__every_border_of_count__the_same(void **state)
{
    static const uint64_t counts[] = {0, 1, 15, 16, 65535, 65536};
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
        struct sl_mp_writer w = writer();

        sl_mp_put_array(&w, counts[i]);
        for (uint64_t k = 0; k < counts[i]; k++) sl_mp_put_uint(&w, 7);
        struct sl_mp_reader r = reader();
        assert_int_equal(sl_mp_get_array(&r, counts[i], counts[i]), counts[i]);
        r = reader();
        sl_mp_skip(&r);
        assert_int_equal(r.at, out.n);
        assert_null(r.failed);
        w = writer();
        sl_mp_put_map(&w, counts[i] / 2);
        for (uint64_t k = 0; k < counts[i] / 2 * 2; k++) sl_mp_put_uint(&w, 7);
        r = reader();
        assert_int_equal(sl_mp_get_map(&r), counts[i] / 2);
        r = reader();
        sl_mp_skip(&r);
        assert_int_equal(r.at, out.n);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Longer forms than needed are allowed by the specification. */
static void test_get__numbers_in_long_forms__read(void **state)
{
    (void)state;
    struct sl_mp_reader r = OF("\xCC\x05\xCD\0\5\xCE\0\0\0\5\xCF\0\0\0\0\0\0\0\5");
    for (int i = 0; i < 4; i++) assert_int_equal(sl_mp_get_uint(&r, 9), 5);
    assert_null(r.failed);
    r = OF("\xD0\x05\xD1\0\5\xD2\0\0\0\5\xD3\0\0\0\0\0\0\0\5\xD3\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFB");
    for (int i = 0; i < 4; i++) assert_int_equal(sl_mp_get_uint(&r, 9), 5);
    assert_int_equal(sl_mp_get_int(&r, -9, 9), -5);
    assert_null(r.failed);
    assert_int_equal(r.at, r.bytes);
}

static void test_get__another_item_than_wanted__fails_and_stays_failed(void **state)
{
    (void)state;
    struct sl_mp_reader r = OF("\x07\xA1x");
    assert_int_equal(sl_mp_get_str(&r).n, 0);
    assert_string_equal(r.failed, "a string");
    assert_int_equal(r.at, 0);
    assert_int_equal(sl_mp_get_uint(&r, 9), 0);
    sl_mp_skip(&r);
    assert_string_equal(r.failed, "a string");
    r = OF("\xA1x");
    assert_int_equal(sl_mp_get_uint(&r, 9), 0);
    assert_non_null(r.failed);
    r = OF("\xCA\0\0\0\0");
    assert_int_equal(sl_mp_get_f64(&r), 0);
    assert_non_null(r.failed);
    r = OF("\x91\x01");
    assert_int_equal(sl_mp_get_array(&r, 2, 3), 0);
    assert_non_null(r.failed);
    r = OF("\x91\x01");
    assert_int_equal(sl_mp_get_map(&r), 0);
    assert_non_null(r.failed);
}

static void test_expect__another_name__fails_where_it_is(void **state)
{
    (void)state;
    struct sl_mp_reader r = OF("\xA3one\xA3two");
    sl_mp_expect(&r, "one");
    assert_null(r.failed);
    sl_mp_expect(&r, "tow");
    assert_string_equal(r.failed, "tow");
    assert_int_equal(r.at, 4);
}

/* One of each form, and the one byte that is none. */
static void test_skip__every_form__stepped_over(void **state)
{
    static const struct {
        const char *p;
        size_t n;
    } forms[] = {
#define FORM(literal) {literal, sizeof(literal) - 1}
        FORM("\x00"),
        FORM("\x7f"),
        FORM("\xe0"),
        FORM("\xff"),
        FORM("\xc0"),
        FORM("\xc2"),
        FORM("\xc3"),
        FORM("\xc4\1x"),
        FORM("\xc5\0\1x"),
        FORM("\xc6\0\0\0\1x"),
        FORM("\xc7\1\5x"),
        FORM("\xc8\0\1\5x"),
        FORM("\xc9\0\0\0\1\5x"),
        FORM("\xca\1\2\3\4"),
        FORM("\xcb\1\2\3\4\5\6\7\0"),
        FORM("\xcc\1"),
        FORM("\xd3\1\2\3\4\5\6\7\0"),
        FORM("\xd4\5x"),
        FORM("\xd5\5xx"),
        FORM("\xd6\5xxxx"),
        FORM("\xd7\5xxxxxxxx"),
        FORM("\xd8\5xxxxxxxxxxxxxxxx"),
        FORM("\xd9\1x"),
        FORM("\xda\0\1x"),
        FORM("\xdb\0\0\0\1x"),
        FORM("\xdc\0\1\x01"),
        FORM("\xdd\0\0\0\1\x01"),
        FORM("\xde\0\1\x01\x02"),
        FORM("\xdf\0\0\0\1\x01\x02"),
        FORM("\x82\x01\x91\x90\xa1y\x81\x01\x02"),
#undef FORM
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(forms); i++) {
        for (size_t n = 0; n <= forms[i].n; n++) {
            unsigned char *exact = malloc(n + 1); /* so that a byte read past the end is seen */
            struct sl_mp_reader r;

            assert_non_null(exact);
            memcpy(exact, forms[i].p, n);
            sl_mp_read(&r, exact, n);
            sl_mp_skip(&r);
            assert_true((r.failed == NULL) == (n == forms[i].n));
            if (n == forms[i].n) assert_int_equal(r.at, n);
            free(exact);
        }
    }
    struct sl_mp_reader r = OF("\xc1");
    sl_mp_skip(&r);
    assert_non_null(r.failed);
}

static void test_get__counts_beyond_the_bytes_left__refused(void **state)
{
    (void)state;
    struct sl_mp_reader r = OF("\xDD\xFF\xFF\xFF\xFF\x01");
    assert_int_equal(sl_mp_get_array(&r, 0, UINT64_MAX), 0);
    assert_non_null(r.failed);
    r = OF("\xDF\x80\0\0\0\x01\x02");
    assert_int_equal(sl_mp_get_map(&r), 0);
    assert_non_null(r.failed);
    r = OF("\x82\x01\x02\x03");
    assert_int_equal(sl_mp_get_map(&r), 0);
    assert_non_null(r.failed);
    r = OF("\xDB\xFF\xFF\xFF\xFFx");
    assert_int_equal(sl_mp_get_str(&r).n, 0);
    assert_non_null(r.failed);
    r = OF("\xC9\xFF\xFF\xFF\xFF\x05");
    sl_mp_skip(&r);
    assert_non_null(r.failed);
}

/* Deeper than any stack. */
static void test_skip__a_hundred_thousand_levels__no_stack_needed(void **state)
{
    (void)state;
    memset(out.p, 0x91, 100000);
    out.p[100000] = 1;
    out.n = 100001;
    struct sl_mp_reader r = reader();
    sl_mp_skip(&r);
    assert_null(r.failed);
    assert_int_equal(r.at, out.n);
    out.n = 100000;
    r = reader();
    sl_mp_skip(&r);
    assert_non_null(r.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uint__every_power_of_two_and_its_neighbours__the_same),
        cmocka_unit_test(test_int__both_signs_at_every_border__the_same),
        cmocka_unit_test(test_floats__any_bits__the_same),
        cmocka_unit_test(test_bytes__every_border_of_length__the_same),
        cmocka_unit_test(test_containers__every_border_of_count__the_same),
        cmocka_unit_test(test_get__numbers_in_long_forms__read),
        cmocka_unit_test(test_get__another_item_than_wanted__fails_and_stays_failed),
        cmocka_unit_test(test_expect__another_name__fails_where_it_is),
        cmocka_unit_test(test_skip__every_form__stepped_over),
        cmocka_unit_test(test_get__counts_beyond_the_bytes_left__refused),
        cmocka_unit_test(test_skip__a_hundred_thousand_levels__no_stack_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
