/* Streaming decode. Proves that no push ever ends within a character, that every byte comes out in
 * the end exactly once, also for bytes that are no UTF-8, and what becomes of control tokens and
 * leading spaces. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/utf8.h"
#include "engine/text/tokenizer.h"

#define N_BYTES 256
#define N_TOKENS (3 + N_BYTES + 3)
#define FIRST_BYTE 3 /* id of byte 0 */
#define ID_HELLO (FIRST_BYTE + N_BYTES)

/* A SentencePiece vocabulary: control tokens, all bytes, a few words. */
struct fixture {
    struct sl_budget budget;
    struct sl_tokenizer *tok;
};

static void build(struct fixture *f, int8_t add_space_prefix)
{
    static char names[N_BYTES][8];
    struct sl_str tokens[N_TOKENS] = {SL_STR("<unk>"), SL_STR("<s>"), SL_STR("</s>")};
    uint8_t kinds[N_TOKENS] = {SL_TOKEN_UNKNOWN, SL_TOKEN_CONTROL, SL_TOKEN_CONTROL};
    float scores[N_TOKENS] = {0};
    for (unsigned i = 0; i < N_BYTES; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        tokens[FIRST_BYTE + i] = (struct sl_str){names[i], 6};
        kinds[FIRST_BYTE + i] = SL_TOKEN_BYTE;
    }
    tokens[ID_HELLO] = SL_STR("\xe2\x96\x81Hello");
    tokens[ID_HELLO + 1] = SL_STR("\xe2\x96\x81");
    tokens[ID_HELLO + 2] = SL_STR("\xc3\xa9\xe4\xb8\xad");
    for (unsigned i = 0; i < 3; i++) kinds[ID_HELLO + i] = SL_TOKEN_NORMAL;
    struct sl_vocab v = {
        .model = SL_STR("llama"),
        .n_tokens = N_TOKENS,
        .tokens = tokens,
        .scores = scores,
        .kinds = kinds,
        .bos_id = 1,
        .eos_id = 2,
        .eot_id = -1,
        .eom_id = -1,
        .unk_id = 0,
        .pad_id = -1,
        .sep_id = -1,
        .add_bos = -1,
        .add_eos = -1,
        .add_space_prefix = add_space_prefix,
        .remove_extra_whitespaces = -1,
    };
    sluice_error e;
    sl_budget_init(&f->budget, UINT64_MAX);
    assert_int_equal(sl_tokenizer_open(&v, &f->budget, &e, &f->tok), SLUICE_OK);
}

static void drop(struct fixture *f)
{
    sl_tokenizer_close(f->tok);
    assert_int_equal(atomic_load(&f->budget.used_bytes), 0);
}

static const char *push(struct sl_detok *d, int32_t id)
{
    static char out[64];
    assert_true(sl_detok_max(d->tok) < sizeof out);
    out[sl_detok_push(d, id, out, sl_detok_max(d->tok))] = '\0';
    return out;
}

static const char *flush(struct sl_detok *d)
{
    static char out[8];
    out[sl_detok_flush(d, out, 4)] = '\0';
    return out;
}

static int32_t byte(unsigned char c) { return FIRST_BYTE + c; }

static void test_detok__character_in_single_bytes__held_until_complete(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_detok d;
    build(&f, 0);
    sl_detok_init(&d, f.tok, false);
    const char *character = "\xf0\x9f\x99\x82";
    for (int i = 0; i < 3; i++)
        assert_string_equal(push(&d, byte((unsigned char)character[i])), "");
    assert_string_equal(push(&d, byte(0x82)), character);
    assert_string_equal(flush(&d), "");
    drop(&f);
}

static void test_detok__end_within_a_character__flushed_as_it_is(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_detok d;
    build(&f, 0);
    sl_detok_init(&d, f.tok, false);
    assert_string_equal(push(&d, byte(0xe4)), "");
    assert_string_equal(push(&d, byte(0xb8)), "");
    assert_string_equal(flush(&d), "\xe4\xb8");
    assert_string_equal(flush(&d), "");
    drop(&f);
}

/* Overlong, surrogate, above U+10FFFF, a stray continuation, a lead without its continuation. */
static void test_detok__invalid_bytes__pass_as_soon_as_they_are_disproved(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_detok d;
    build(&f, 0);
    sl_detok_init(&d, f.tok, false);
    assert_string_equal(push(&d, byte(0x80)), "\x80");
    assert_string_equal(push(&d, byte(0xc0)), "\xc0");
    assert_string_equal(push(&d, byte(0xff)), "\xff");
    assert_string_equal(push(&d, byte(0xe0)), "");
    assert_string_equal(push(&d, byte(0x80)), "\xe0\x80");
    assert_string_equal(push(&d, byte(0xed)), "");
    assert_string_equal(push(&d, byte(0xa0)), "\xed\xa0");
    assert_string_equal(push(&d, byte(0xf4)), "");
    assert_string_equal(push(&d, byte(0x90)), "\xf4\x90");
    assert_string_equal(push(&d, byte(0xc3)), "");
    assert_string_equal(push(&d, byte('a')), "\xc3"
                                             "a");
    assert_string_equal(push(&d, byte(0xc3)), "");
    assert_string_equal(push(&d, byte(0xc3)), "\xc3");
    assert_string_equal(push(&d, byte(0xa9)), "\xc3\xa9");
    drop(&f);
}

/* Whether the first n bytes of text end within a well-formed character. */
static bool ends_within(struct sl_str text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        size_t k = sl_utf8_char_bytes((struct sl_str){text.p + at, text.n - at});
        at += k > 0 ? k : 1;
    }
    return at != n;
}

static void test_detok__random_bytes__all_come_out_and_never_within_a_character(void **state)
{
    (void)state;
    static const unsigned char alphabet[] = {0x41, 0x80, 0xbf, 0xa0, 0xc3, 0xe0,
                                             0xe4, 0xed, 0xf0, 0xf4, 0x90, 0xff};
    struct fixture f;
    struct sl_detok d;
    build(&f, 0);
    sl_detok_init(&d, f.tok, false);
    uint32_t seed = 1;
    char in[2048], out[2048];
    size_t n_out = 0;
    for (size_t i = 0; i < sizeof in; i++) {
        seed = seed * 1664525u + 1013904223u;
        in[i] = (char)alphabet[(seed >> 16) % sizeof alphabet];
    }
    for (size_t i = 0; i < sizeof in; i++) {
        char buf[64];
        size_t n = sl_detok_push(&d, byte((unsigned char)in[i]), buf, sizeof buf);
        memcpy(out + n_out, buf, n);
        n_out += n;
        assert_false(ends_within((struct sl_str){in, sizeof in}, n_out));
    }
    n_out += sl_detok_flush(&d, out + n_out, sizeof out - n_out);
    assert_int_equal(n_out, sizeof in);
    assert_memory_equal(in, out, sizeof in);
    drop(&f);
}

static void test_detok__control_tokens__hidden_unless_asked_for(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_detok d;
    build(&f, 0);
    sl_detok_init(&d, f.tok, false);
    assert_string_equal(push(&d, 1), "");
    assert_string_equal(push(&d, 0), "");
    assert_string_equal(push(&d, ID_HELLO + 2), "\xc3\xa9\xe4\xb8\xad");
    assert_string_equal(push(&d, -1), "");
    assert_string_equal(push(&d, N_TOKENS), "");
    sl_detok_init(&d, f.tok, true);
    assert_string_equal(push(&d, 1), "<s>");
    assert_string_equal(push(&d, 2), "</s>");
    drop(&f);
}

static void test_detok__space_prefix__first_space_goes_once(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_detok d;
    build(&f, -1); /* default of this model: a prefix */
    sl_detok_init(&d, f.tok, false);
    assert_string_equal(push(&d, 1), "");
    assert_string_equal(push(&d, ID_HELLO), "Hello");
    assert_string_equal(push(&d, ID_HELLO), " Hello");
    sl_detok_init(&d, f.tok, false);
    assert_string_equal(push(&d, ID_HELLO + 1), "");
    assert_string_equal(push(&d, ID_HELLO + 1), " ");
    sl_detok_init(&d, f.tok, false);
    d.started = true; /* goes on with a text */
    assert_string_equal(push(&d, ID_HELLO), " Hello");
    drop(&f);
}

static void test_detok__no_space_prefix__space_stays(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_detok d;
    build(&f, 0);
    sl_detok_init(&d, f.tok, false);
    assert_string_equal(push(&d, ID_HELLO), " Hello");
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detok__character_in_single_bytes__held_until_complete),
        cmocka_unit_test(test_detok__end_within_a_character__flushed_as_it_is),
        cmocka_unit_test(test_detok__invalid_bytes__pass_as_soon_as_they_are_disproved),
        cmocka_unit_test(test_detok__random_bytes__all_come_out_and_never_within_a_character),
        cmocka_unit_test(test_detok__control_tokens__hidden_unless_asked_for),
        cmocka_unit_test(test_detok__space_prefix__first_space_goes_once),
        cmocka_unit_test(test_detok__no_space_prefix__space_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
