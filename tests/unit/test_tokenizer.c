/* Encoding. Proves that pre-tokenizers split as published, that merging is by rank wherever the
 * words are long or short, which tokens may come from which text, that bytes survive, that a
 * megabyte of anything fits a small thread, and that the ids of tests/golden/tokenizers (made by
 * the reference tokenizers) come out. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/text/tokenizer_internal.h"
#include "formats/gguf.h"
#include "tests/support/vocab_build.h"

#define STACK_BYTES (128 * 1024)
#define MEGABYTE (1u << 20)
/* ThreadSanitizer makes merging some fifty times slower, and proves nothing about sizes. */
#ifdef __SANITIZE_THREAD__
#define BIG_BYTES (MEGABYTE / 64)
#else
#define BIG_BYTES MEGABYTE
#endif

struct fixture {
    struct sl_budget budget;
    struct sl_tokenizer *tok;
    struct sl_ids ids;
    sluice_error e;
};

static struct vocab_build build; /* too large for the stack */

static void open_vocab(struct fixture *f, const struct sl_vocab *v)
{
    memset(f, 0, sizeof *f);
    sl_budget_init(&f->budget, UINT64_MAX);
    f->ids.budget = &f->budget;
    if (sl_tokenizer_open(v, &f->budget, &f->e, &f->tok) != SLUICE_OK) fail_msg("%s", f->e.text);
}

static void drop(struct fixture *f)
{
    sl_ids_deinit(&f->ids);
    sl_tokenizer_close(f->tok);
    assert_int_equal(atomic_load(&f->budget.used_bytes), 0);
}

static struct sl_str view(const char *s) { return (struct sl_str){s, strlen(s)}; }

static void encode(struct fixture *f, struct sl_str text, unsigned flags)
{
    f->ids.count = 0;
    if (sl_tokenizer_encode(f->tok, text, flags, &f->ids, &f->e) != SLUICE_OK)
        fail_msg("%s", f->e.text);
}

/* The ids of text as decimal numbers. */
static const char *ids_of(struct fixture *f, const char *text, unsigned flags)
{
    static char shown[4096];
    size_t n = 0;
    encode(f, view(text), flags);
    shown[0] = '\0';
    for (uint64_t i = 0; i < f->ids.count; i++)
        n += (size_t)snprintf(shown + n, sizeof shown - n, "%s%d", i > 0 ? " " : "", f->ids.ids[i]);
    return shown;
}

/* Whether the ids in f stand for exactly these bytes. */
static bool stands_for(const struct fixture *f, struct sl_str text)
{
    size_t at = 0;
    for (uint64_t i = 0; i < f->ids.count; i++) {
        struct sl_str piece = sl_tokenizer_piece(f->tok, f->ids.ids[i], true);
        if (piece.n > text.n - at || memcmp(piece.p, text.p + at, piece.n) != 0) return false;
        at += piece.n;
    }
    return at == text.n;
}

/* ---- pre-tokenizers ---------------------------------------------------------------------------
 */

static const struct split_case {
    const char *pre, *text, *pieces; /* pieces are separated by | */
} split_cases[] = {
    {"gpt-2", "Hello  world's 123 x!?\n\n y", "Hello| | world|'s| 123| x|!?|\n\n| y"},
    {"gpt-2", "I'LL a  ", "I|'|LL| a|  "},
    {"qwen2", "I'LL pay $1234!\n\n  x", "I|'LL| pay| $|1|2|3|4|!\n\n| | x"},
    {"qwen2", " \n \n  a\tb", " \n \n| | a|\tb"},
    {"llama-bpe", "1234567 'S", "123|456|7| '|S"},
    {"llama-bpe", "x'S y'\xc5\xbf", "x|'S| y|'\xc5\xbf"}, /* U+017F is a form of s */
    {"qwen35", "e\xcc\x81x a", "e\xcc\x81x| a"},
    {"qwen2", "\xd9\xa0\xe0\xa9\xa6", "\xd9\xa0|\xe0\xa9\xa6"}, /* digits of other scripts */
    {"gpt-4o", "HelloWorld ABCdef it's//x\n/", "Hello|World| ABCdef| it's|//|x|\n|/"},
    {"tekken", "HelloWorld it's 12", "Hello|World| it|'s| |1|2"},
    {"smollm", "a 123 b", "a| |1|2|3| b"},
    {"deepseek-v3",
     "a1234\xe4\xb8\xad\xe6\x96\x87"
     "b .foo x",
     "a|123|4|\xe4\xb8\xad\xe6\x96\x87|b| .|foo| x"},
    {"deepseek-v3", ".foo  bar", ".foo| | bar"},
    {"deepseek-llm", "ab  12\n\n  ", "ab|  |12|\n|\n|  "},
    {"default", "a1234!!b", "a|123|4|!!|b"},
    {"bailingmoe", "x \n\n y'ill z'll", "x| \n\n| y|'ill| z|'ll"},
    /* U+0085 and U+3000 are white space, U+180E and U+200B are not. */
    {"qwen2",
     "a\xc2\x85\xe3\x80\x80"
     "b",
     "a|\xc2\x85|\xe3\x80\x80"
     "b"},
    {"gpt-2",
     "a\xe1\xa0\x8e"
     "b",
     "a|\xe1\xa0\x8e|b"},
    {"qwen2", " \xe2\x80\x8b.", " \xe2\x80\x8b."},
};

static void split(const struct split_case *c, char *out, size_t size)
{
    struct sl_budget b;
    struct pretok *p;
    struct pretok_scan s;
    sluice_error e;
    sl_budget_init(&b, UINT64_MAX);
    if (pretok_open(view(c->pre), &b, &e, &p) != SLUICE_OK) fail_msg("%s: %s", c->pre, e.text);
    assert_int_equal(pretok_scan_init(&s, p, &e), SLUICE_OK);
    pretok_scan_start(&s, view(c->text));
    size_t n = 0;
    for (;;) {
        struct sl_str piece;
        assert_int_equal(pretok_scan_next(&s, &piece, &e), SLUICE_OK);
        if (piece.n == 0) break;
        n += (size_t)snprintf(out + n, size - n, "%s%.*s", n > 0 ? "|" : "", (int)piece.n, piece.p);
    }
    pretok_scan_deinit(&s);
    pretok_close(p);
    assert_int_equal(atomic_load(&b.used_bytes), 0);
}

static void test_pretokenizer__samples__split_as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(split_cases); i++) {
        char got[256];
        split(&split_cases[i], got, sizeof got);
        if (strcmp(got, split_cases[i].pieces) != 0)
            fail_msg("%s: [%s] gives [%s], not [%s]", split_cases[i].pre, split_cases[i].text, got,
                     split_cases[i].pieces);
    }
}

static void test_pretokenizer__every_name_and_alias__opens(void **state)
{
    (void)state;
    struct sl_budget b;
    sluice_error e;
    sl_budget_init(&b, UINT64_MAX);
    for (uint32_t i = 0; i < pretok_n_kinds; i++) {
        char names[512];
        snprintf(names, sizeof names, "%s %s", pretok_kinds[i].name, pretok_kinds[i].aliases);
        for (char *rest = names, *name; (name = strtok_r(rest, " ", &rest)) != NULL;) {
            struct pretok *p;
            if (pretok_open(view(name), &b, &e, &p) != SLUICE_OK) fail_msg("%s: %s", name, e.text);
            pretok_close(p);
        }
    }
    assert_int_equal(atomic_load(&b.used_bytes), 0);
}

static void test_open__unknown_names__refused_with_the_known_ones(void **state)
{
    (void)state;
    struct sl_budget b;
    struct sl_tokenizer *t;
    sluice_error e;
    sl_budget_init(&b, UINT64_MAX);
    static const char *const bad[] = {"qwen9", "", "qwen", "gpt-2 phi-2", "llama3 "};
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        vb_begin(&build, bad[i]);
        assert_int_equal(sl_tokenizer_open(&build.v, &b, &e, &t), SLUICE_E_UNSUPPORTED);
        assert_null(t);
        assert_non_null(strstr(e.text, "deepseek-v3"));
        assert_non_null(strstr(e.text, "default"));
    }
    vb_begin(&build, "qwen2");
    build.v.model = SL_STR("bert");
    assert_int_equal(sl_tokenizer_open(&build.v, &b, &e, &t), SLUICE_E_UNSUPPORTED);
    assert_non_null(strstr(e.text, "bert"));
    assert_int_equal(atomic_load(&b.used_bytes), 0);
}

static void test_open__vocabulary_that_cannot_work__refused(void **state)
{
    (void)state;
    struct sl_budget b;
    struct sl_tokenizer *t;
    sluice_error e;
    sl_budget_init(&b, UINT64_MAX);
    vb_begin(&build, "qwen2");
    build.v.n_tokens = 0;
    assert_int_equal(sl_tokenizer_open(&build.v, &b, &e, &t), SLUICE_E_FORMAT);
    build.tokens[0] = SL_STR("word");
    build.v.n_tokens = 1;
    assert_int_equal(sl_tokenizer_open(&build.v, &b, &e, &t), SLUICE_E_FORMAT); /* no bytes */
    vb_begin(&build, "qwen2");
    build.v.bos_id = 256;
    assert_int_equal(sl_tokenizer_open(&build.v, &b, &e, &t), SLUICE_E_FORMAT);
    vb_begin(&build, "qwen2");
    build.v.model = SL_STR("llama"); /* no scores */
    assert_int_equal(sl_tokenizer_open(&build.v, &b, &e, &t), SLUICE_E_FORMAT);
    assert_int_equal(atomic_load(&b.used_bytes), 0);
}

/* ---- merging ------------------------------------------------------------------------------------
 */

static void test_bpe__merges__lowest_rank_first_leftmost_among_equals(void **state)
{
    (void)state;
    struct fixture f;
    vb_begin(&build, "gpt-2");
    int32_t bc = vb_word(&build, "bc"), ab = vb_word(&build, "ab"), aa = vb_word(&build, "aa");
    open_vocab(&f, &build.v);
    char want[64];
    snprintf(want, sizeof want, "97 %d", bc);
    assert_string_equal(ids_of(&f, "abc", 0), want);
    snprintf(want, sizeof want, "%d", ab);
    assert_string_equal(ids_of(&f, "ab", 0), want);
    snprintf(want, sizeof want, "%d 97", aa);
    assert_string_equal(ids_of(&f, "aaa", 0), want);
    drop(&f);
}

/* What merging means, in the simplest way: join the best pair until there is none. */
static uint32_t merge_slowly(const struct sl_tokenizer *t, struct sl_str word, int32_t *ids)
{
    uint32_t n = 0;
    for (size_t i = 0; i < word.n; i++) ids[n++] = t->byte_ids[(unsigned char)word.p[i]];
    for (;;) {
        uint32_t best = UINT32_MAX, at = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            for (uint32_t m = 0; m < t->bpe.n_merges && m < best; m++) {
                if (t->bpe.merges[m].left != ids[i] || t->bpe.merges[m].right != ids[i + 1])
                    continue;
                best = m;
                at = i;
            }
        }
        if (best == UINT32_MAX) return n;
        ids[at] = t->bpe.merges[best].merged;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void test_bpe__random_words_short_and_long__equal_the_definition(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t seed = 7;
    vb_begin(&build, "gpt-2");
    for (int k = 0; k < 60; k++) { /* tokens over three letters, each one longer than one before */
        char word[16];
        size_t n = 2 + (size_t)k / 12;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            word[i] = (char)('a' + (seed >> 16) % 3);
        }
        word[n] = '\0';
        vb_word(&build, word);
    }
    open_vocab(&f, &build.v);
    for (int k = 0; k < 300; k++) {
        char word[200];
        int32_t want[200];
        size_t n = 1 + (size_t)k % sizeof word;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            word[i] = (char)('a' + (seed >> 16) % 3);
        }
        encode(&f, (struct sl_str){word, n}, 0);
        uint32_t n_want = merge_slowly(f.tok, (struct sl_str){word, n}, want);
        assert_int_equal(f.ids.count, n_want);
        assert_memory_equal(f.ids.ids, want, n_want * sizeof *want);
    }
    drop(&f);
}

static void test_bpe__whole_piece_that_is_a_token__only_where_merges_are_ignored(void **state)
{
    (void)state;
    static const char *const pre[] = {"llama-bpe", "gpt-2"};
    static const char *const want[] = {"256", "120 121 122"};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        vb_begin(&build, pre[i]);
        vb_add(&build, vb_text(&build, "xyz", 3), SL_TOKEN_NORMAL); /* no merge leads there */
        open_vocab(&f, &build.v);
        assert_string_equal(ids_of(&f, "xyz", 0), want[i]);
        drop(&f);
    }
}

static void test_bpe__merges_of_unknown_or_control_tokens__skipped(void **state)
{
    (void)state;
    struct fixture f;
    vb_begin(&build, "gpt-2");
    build.merges[build.v.n_merges++] = SL_STR("a zz");
    build.merges[build.v.n_merges++] = SL_STR("nospace");
    build.merges[build.v.n_merges++] = SL_STR("");
    build.merges[build.v.n_merges++] = SL_STR(" ");
    vb_word(&build, "ab");
    build.kinds[256] = SL_TOKEN_CONTROL;
    open_vocab(&f, &build.v);
    assert_string_equal(ids_of(&f, "ab", 0), "97 98");
    drop(&f);
}

/* ---- which text becomes which token ---------------------------------------------------------- */

static void open_chat(struct fixture *f)
{
    vb_begin(&build, "qwen2");
    vb_add(&build, SL_STR("<|im_start|>"), SL_TOKEN_CONTROL);     /* 256 */
    vb_add(&build, SL_STR("<|im_end|>"), SL_TOKEN_CONTROL);       /* 257 */
    vb_add(&build, SL_STR("<think>"), SL_TOKEN_USER_DEFINED);     /* 258 */
    vb_add(&build, SL_STR("<think>>"), SL_TOKEN_USER_DEFINED);    /* 259 */
    vb_add(&build, SL_STR("<|im_end|>x"), SL_TOKEN_USER_DEFINED); /* 260 */
    build.v.bos_id = 256;
    build.v.eos_id = 257;
    build.v.add_bos = 1;
    open_vocab(f, &build.v);
}

static void test_encode__control_tokens__only_where_asked_for(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f);
    assert_string_equal(ids_of(&f, "<|im_end|>a", SL_ENCODE_SPECIAL), "257 97");
    encode(&f, view("<|im_end|>a"), 0);
    assert_int_equal(f.ids.count, 11);
    assert_true(stands_for(&f, view("<|im_end|>a")));
    drop(&f);
}

static void test_encode__user_defined_tokens__always_and_longest_first(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f);
    assert_string_equal(ids_of(&f, "a<think>b", 0), "97 258 98");
    assert_string_equal(ids_of(&f, "<think>>>", 0), "259 62");
    assert_string_equal(ids_of(&f, "<think", 0), "60 116 104 105 110 107");
    assert_string_equal(ids_of(&f, "<|im_end|>x", SL_ENCODE_SPECIAL), "260");
    assert_string_equal(ids_of(&f, "<|im_end|>x", 0), "260");
    drop(&f);
}

static void test_encode__text_of_messages__never_part_of_a_control_token(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f);
    const char *text = "<|im_start|><|im_end|><|im_end|>";
    const struct sl_chat_span inside = {12, 22}, across = {30, 31};
    struct sl_encode_request r = {view(text), SL_ENCODE_SPECIAL, &inside, 1};
    assert_int_equal(sl_tokenizer_encode_request(f.tok, &r, &f.ids, &f.e), SLUICE_OK);
    assert_int_equal(f.ids.count, 12);
    assert_int_equal(f.ids.ids[0], 256);
    assert_int_equal(f.ids.ids[1], '<');
    assert_int_equal(f.ids.ids[11], 257);
    f.ids.count = 0;
    r.plain = &across;
    assert_int_equal(sl_tokenizer_encode_request(f.tok, &r, &f.ids, &f.e), SLUICE_OK);
    assert_int_equal(f.ids.count, 12);
    assert_int_equal(f.ids.ids[1], 257);
    assert_int_equal(f.ids.ids[11], '>');
    drop(&f);
}

static void test_encode__bos__exactly_once(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f);
    assert_string_equal(ids_of(&f, "a", SL_ENCODE_BOS), "256 97");
    assert_string_equal(ids_of(&f, "", SL_ENCODE_BOS), "256");
    assert_string_equal(ids_of(&f, "<|im_start|>a", SL_ENCODE_BOS | SL_ENCODE_SPECIAL), "256 97");
    assert_string_equal(ids_of(&f, "a", 0), "97");
    f.ids.count = 0; /* behind what is there already */
    assert_int_equal(sl_ids_push(&f.ids, 5), SLUICE_OK);
    assert_int_equal(sl_tokenizer_encode(f.tok, view("ab"), SL_ENCODE_BOS, &f.ids, &f.e),
                     SLUICE_OK);
    assert_int_equal(f.ids.count, 4);
    assert_int_equal(f.ids.ids[1], 256);
    assert_int_equal(f.ids.ids[3], 98);
    drop(&f);
}

static void test_encode__bos_not_said__as_the_family_does(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        int8_t add_bos;
        bool adds;
    } cases[] = {
        {"llama-bpe", -1, true}, {"llama-bpe", 0, false}, {"qwen2", -1, false}, {"qwen2", 1, true}};
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct fixture f;
        vb_begin(&build, cases[i].pre);
        build.v.bos_id = 0;
        build.v.add_bos = cases[i].add_bos;
        open_vocab(&f, &build.v);
        assert_int_equal(sl_tokenizer_adds_bos(f.tok), cases[i].adds);
        drop(&f);
    }
}

static void test_eog__file_and_well_known_names__marked(void **state)
{
    (void)state;
    struct fixture f;
    const int32_t extra[] = {7};
    vb_begin(&build, "gpt-4o");
    int32_t end = vb_add(&build, SL_STR("<|end|>"), SL_TOKEN_CONTROL);
    int32_t endoftext = vb_add(&build, SL_STR("<|endoftext|>"), SL_TOKEN_CONTROL);
    build.v.eos_id = 5;
    build.v.eot_id = 6;
    build.v.eog_ids = extra;
    build.v.n_eog_ids = 1;
    open_vocab(&f, &build.v);
    for (int32_t id = 5; id <= 7; id++) assert_true(sl_tokenizer_is_eog(f.tok, id));
    assert_true(sl_tokenizer_is_eog(f.tok, end) && sl_tokenizer_is_eog(f.tok, endoftext));
    assert_false(sl_tokenizer_is_eog(f.tok, 8) || sl_tokenizer_is_eog(f.tok, -1) ||
                 sl_tokenizer_is_eog(f.tok, 100000));
    drop(&f);
    vb_add(&build, SL_STR("<|return|>"), SL_TOKEN_CONTROL);
    vb_add(&build, SL_STR("<|call|>"), SL_TOKEN_CONTROL);
    open_vocab(&f, &build.v);
    assert_false(
        sl_tokenizer_is_eog(f.tok, end)); /* gpt-oss: the message ends, the turn does not */
    drop(&f);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void test_encode__any_bytes__come_back(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t seed = 3;
    vb_begin(&build, "gpt-4o");
    vb_word(&build, "\xc3\xa9");
    vb_word(&build, "\xe4\xb8");
    vb_word(&build, "  ");
    open_vocab(&f, &build.v);
    for (int k = 0; k < 500; k++) {
        static const unsigned char alphabet[] = {0,    ' ',  '\n', 'a',  0xc3, 0xa9, 0xe4,
                                                 0xb8, 0xad, 0xf0, 0x9f, 0xff, 0xed, 0xa0};
        char text[64];
        size_t n = (size_t)k % sizeof text;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = (char)alphabet[(seed >> 16) % sizeof alphabet];
        }
        encode(&f, (struct sl_str){text, n}, 0);
        assert_true(stands_for(&f, (struct sl_str){text, n}));
    }
    drop(&f);
}

/* Hangul, marks out of order, a composition that is excluded, a singleton, text on both sides. */
static void test_encode__nfc_tokenizers__normalize_and_others_do_not(void **state)
{
    (void)state;
    static const struct {
        const char *text, *nfc;
    } cases[] = {
        {"e\xcc\x81", "\xc3\xa9"},
        {"abc e\xcc\x81"
         "def",
         "abc \xc3\xa9"
         "def"},
        {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"},
        {"\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"},
        {"a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81"},
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},
        {"\xe2\x84\xab", "\xc3\x85"},
        {"\xcd\xbe", ";"},
        {"\xe4\xb8\xad\xe3\x81\x8b\xe3\x82\x99", "\xe4\xb8\xad\xe3\x81\x8c"},
        {"\xef\xac\x81\xc2\xbd", "\xef\xac\x81\xc2\xbd"},         /* compatibility forms stay */
        {"\xe0\xba\xba\xe0\xbb\x89", "\xe0\xba\xba\xe0\xbb\x89"}, /* a mark of Unicode 12 */
        {"\xf0\x90\xb4\xa7\xef\xb8\xa6\xd8\x99", "\xf0\x90\xb4\xa7\xd8\x99\xef\xb8\xa6"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct fixture f;
        vb_begin(&build, "qwen2");
        open_vocab(&f, &build.v);
        encode(&f, view(cases[i].text), 0);
        assert_true(stands_for(&f, view(cases[i].nfc)));
        drop(&f);
        vb_begin(&build, "llama-bpe");
        open_vocab(&f, &build.v);
        encode(&f, view(cases[i].text), 0);
        assert_true(stands_for(&f, view(cases[i].text)));
        drop(&f);
    }
}

static void test_encode__text_in_parts_of_a_long_text__same_ids_as_alone(void **state)
{
    (void)state;
    struct fixture f;
    static char text[40000]; /* long enough for the cache of words */
    vb_begin(&build, "qwen2");
    vb_word(&build, " a");
    vb_word(&build, " ab");
    vb_word(&build, " abc");
    open_vocab(&f, &build.v);
    for (size_t i = 0; i < sizeof text; i++) text[i] = " abcd"[(i * 7 + i / 11) % 5];
    encode(&f, (struct sl_str){text, sizeof text}, 0);
    uint64_t n = f.ids.count;
    int32_t *whole = malloc(n * sizeof *whole);
    assert_non_null(whole);
    memcpy(whole, f.ids.ids, n * sizeof *whole);
    f.ids.count = 0;
    for (size_t at = 0, end; at < sizeof text; at = end) {
        end = at + 1;
        while (end < sizeof text && text[end] != ' ') end++;
        assert_int_equal(
            sl_tokenizer_encode(f.tok, (struct sl_str){text + at, end - at}, 0, &f.ids, &f.e),
            SLUICE_OK);
    }
    assert_int_equal(f.ids.count, n);
    assert_memory_equal(f.ids.ids, whole, n * sizeof *whole);
    free(whole);
    drop(&f);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

#define MARK "\xe2\x96\x81"

static float spm_scores[VB_TOKENS_MAX];

/* <unk> 0, <s> 1, </s> 2, bytes 3..258, then words in order of falling score from 259 on. */
static void build_spm(const char *const *words, int8_t prefix)
{
    vb_begin(&build, "default");
    build.v.n_tokens = 0;
    build.v.model = SL_STR("llama");
    build.v.scores = spm_scores;
    build.v.add_space_prefix = prefix;
    build.v.bos_id = 1;
    build.v.eos_id = 2;
    build.v.unk_id = 0;
    vb_add(&build, SL_STR("<unk>"), SL_TOKEN_UNKNOWN);
    vb_add(&build, SL_STR("<s>"), SL_TOKEN_CONTROL);
    vb_add(&build, SL_STR("</s>"), SL_TOKEN_CONTROL);
    for (unsigned i = 0; i < 256; i++) {
        char *name = build.blob + build.n_blob;
        snprintf(name, 8, "<0x%02X>", i);
        build.n_blob += 8;
        vb_add(&build, (struct sl_str){name, 6}, SL_TOKEN_BYTE);
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        spm_scores[build.v.n_tokens] = -(float)i;
        vb_add(&build, view(words[i]), SL_TOKEN_NORMAL);
    }
}

static void open_spm(struct fixture *f, const char *const *words, int8_t prefix)
{
    build_spm(words, prefix);
    open_vocab(f, &build.v);
}

static void test_spm__scores__best_first(void **state)
{
    (void)state;
    static const char *const words[] = {"bc", "ab", MARK "a", MARK, "a", "b", "c", NULL};
    struct fixture f;
    open_spm(&f, words, 0);
    assert_string_equal(ids_of(&f, "abc", 0), "263 259");
    assert_string_equal(ids_of(&f, "ab", 0), "260");
    assert_string_equal(ids_of(&f, " abc", 0), "261 259");
    drop(&f);
}

static void test_spm__space_prefix__at_the_start_and_after_added_tokens(void **state)
{
    (void)state;
    static const char *const words[] = {MARK "a", MARK, "a", NULL};
    struct fixture f;
    open_spm(&f, words, -1);
    assert_string_equal(ids_of(&f, "a", 0), "259");
    assert_string_equal(ids_of(&f, "", 0), "");
    assert_string_equal(ids_of(&f, "<s>a", SL_ENCODE_SPECIAL), "1 259");
    assert_string_equal(ids_of(&f, "<s>a", SL_ENCODE_SPECIAL | SL_ENCODE_BOS), "1 259");
    assert_string_equal(ids_of(&f, "a", SL_ENCODE_BOS), "1 259");
    drop(&f);
}

static void test_spm__bytes_without_a_token__fall_back(void **state)
{
    (void)state;
    static const char *const words[] = {MARK, "a", NULL};
    struct fixture f;
    open_spm(&f, words, 0);
    assert_string_equal(ids_of(&f,
                               "\xc3\xa9"
                               "a\xff\n",
                               0),
                        "198 172 260 258 13");
    assert_true(stands_for(&f, view("\xc3\xa9"
                                    "a\xff\n")));
    drop(&f);
}

/* A token whose text the words would merge into is a control or a byte token: text must not become
 * it. */
static void test_spm__text_like_control_or_byte_tokens__stays_text(void **state)
{
    (void)state;
    static const char *const words[] = {"<s", "s>", "<0", "x4", "<0x4", "1>", "<",
                                        "s",  ">",  "0",  "x",  "4",    "1",  NULL};
    struct fixture f;
    open_spm(&f, words, 0);
    encode(&f, view("<s><0x41>"), 0);
    for (uint64_t i = 0; i < f.ids.count; i++) assert_true(f.ids.ids[i] >= 259);
    assert_true(stands_for(&f, view("<s><0x41>")));
    drop(&f);
}

/* Gemma has a token with a space after ">": such words are not cut there. */
static void test_spm__space_within_a_token__still_found(void **state)
{
    (void)state;
    static const char *const words[] = {MARK "<", ">" MARK "<", MARK, ">", "<", "a", NULL};
    struct fixture f;
    open_spm(&f, words, 0);
    assert_string_equal(ids_of(&f, "a> <a <", 0), "264 260 264 259");
    assert_string_equal(ids_of(&f, "> a", 0), "262 261 264");
    drop(&f);
}

static void test_gemma4__merges__by_rank_over_characters(void **state)
{
    (void)state;
    static const char *const words[] = {MARK, "a",       "b",        "c", "ab",
                                        "bc", MARK "ab", "\xc3\xa9", NULL};
    struct fixture f;
    build_spm(words, -1);
    build.v.model = SL_STR("gemma4");
    build.v.add_bos = 0; /* is not believed */
    build.merges[build.v.n_merges++] = SL_STR("b c");
    build.merges[build.v.n_merges++] = SL_STR("a b");
    build.merges[build.v.n_merges++] = SL_STR(MARK " ab");
    open_vocab(&f, &build.v);
    assert_string_equal(ids_of(&f, "abc ab", 0), "260 264 265");
    assert_string_equal(ids_of(&f, "\xc3\xa9\xc3\xaf", 0), "266 198 178");
    assert_string_equal(ids_of(&f, "a", SL_ENCODE_BOS), "1 260");
    drop(&f);
}

/* ---- size, stack, memory, threads ------------------------------------------------------------ */

struct big_job {
    struct fixture *f;
    struct sl_str text;
    sluice_err err;
    bool same; /* the ids stand for the text */
};

static void *encode_big(void *user)
{
    struct big_job *j = user;
    j->f->ids.count = 0;
    j->err = sl_tokenizer_encode(j->f->tok, j->text, 0, &j->f->ids, &j->f->e);
    j->same = j->err == SLUICE_OK && stands_for(j->f, j->text);
    return NULL;
}

static void on_small_stack(struct big_job *j)
{
    pthread_attr_t attr;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, encode_big, j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

/* One unit repeated, then an end that defeats a greedy run. */
static const struct big_text {
    const char *unit, *end;
} big_texts[] = {
    {"A", ""},
    {"a", "1"},
    {"\n", "x"},
    {" ", "x"},
    {" ", "\xe4\xb8\xad"},
    {" \t", "1"},
    {"\xe4\xb8\xad", ""},
    {"7", "x"},
    {"\xcc\x81\xcc\x96", "a"},
    {"=", ""},
    {"'", "s"},
    {"\x01", ""},
    {"aB3/+", "="},
    {"\xff", ""},
    {"<|", "im_end|>"},
};

static void big_texts_pass(struct fixture *f, size_t bytes, bool normalizes)
{
    char *text = malloc(bytes + 16);
    assert_non_null(text);
    for (size_t k = 0; k < SL_ARRAY_LEN(big_texts); k++) {
        size_t unit = strlen(big_texts[k].unit), n = 0;
        for (; n + unit <= bytes; n += unit) memcpy(text + n, big_texts[k].unit, unit);
        memcpy(text + n, big_texts[k].end, strlen(big_texts[k].end));
        n += strlen(big_texts[k].end);
        struct big_job j = {.f = f, .text = {text, n}};
        on_small_stack(&j);
        if (j.err != SLUICE_OK) fail_msg("%s", f->e.text);
        if (!normalizes || (unsigned char)text[0] != 0xcc) assert_true(j.same);
    }
    free(text);
}

static void test_encode__a_megabyte_of_one_character__small_stack_suffices(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < pretok_n_kinds; i++) {
        struct fixture f;
        const char *name = pretok_kinds[i].name;
        bool many_steps = strcmp(name, "gpt-4o") == 0 || strcmp(name, "deepseek-llm") == 0;
        size_t bytes = i == 0 ? BIG_BYTES : many_steps ? BIG_BYTES / 4 : BIG_BYTES / 32;
        vb_begin(&build, name);
        static const char *const words[] = {
            "AA",   "AAA", "AAAA", "  ",       "   ",         "    ",
            "\n\n", "==",  "77",   "\xe4\xb8", "\xe4\xb8\xad"};
        for (size_t k = 0; k < SL_ARRAY_LEN(words); k++) vb_word(&build, words[k]);
        vb_add(&build, SL_STR("<|im_end|>"), SL_TOKEN_USER_DEFINED);
        open_vocab(&f, &build.v);
        big_texts_pass(&f, bytes, (pretok_kinds[i].flags & PRETOK_NFC) != 0);
        drop(&f);
    }
    static const char *const words[] = {MARK MARK, "AA", "AAAA", MARK MARK MARK, "77", MARK,
                                        "A",       "7",  NULL};
    struct fixture f;
    open_spm(&f, words, 0);
    big_texts_pass(&f, BIG_BYTES, false);
    drop(&f);
}

/* Fails the first, second, third ... allocation of open and encode, until all succeed. */
static void test_encode__memory_refused_anywhere__error_and_nothing_left(void **state)
{
    (void)state;
    static char text[20000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "e\xcc\x81 AA"[i % 6];
    bool done = false;
    for (int64_t n = 0; !done && n < 1000; n++) {
        struct sl_budget b;
        struct sl_tokenizer *t;
        sluice_error e;
        sl_budget_init(&b, UINT64_MAX);
        struct sl_ids ids = {.budget = &b};
        vb_begin(&build, "qwen2");
        vb_word(&build, "AA");
        atomic_store(&b.fail_after, n);
        sluice_err err = sl_tokenizer_open(&build.v, &b, &e, &t);
        if (err == SLUICE_OK)
            err = sl_tokenizer_encode(t, (struct sl_str){text, sizeof text}, 0, &ids, &e);
        if (err != SLUICE_OK)
            assert_true(err == SLUICE_E_BUDGET && e.code == err && ids.count == 0);
        done = atomic_load(&b.fail_after) >= 0;
        sl_ids_deinit(&ids);
        sl_tokenizer_close(t);
        assert_int_equal(atomic_load(&b.used_bytes), 0);
    }
    assert_true(done);
}

struct shared_job {
    const struct sl_tokenizer *tok;
    struct sl_ids ids;
    struct sl_str text;
    sluice_err err;
};

static void *encode_shared(void *user)
{
    struct shared_job *j = user;
    sluice_error e;
    for (int k = 0; k < 20 && j->err == SLUICE_OK; k++) {
        j->ids.count = 0;
        j->err = sl_tokenizer_encode(j->tok, j->text, 0, &j->ids, &e);
    }
    return NULL;
}

static void test_encode__several_threads__same_ids(void **state)
{
    (void)state;
    struct fixture f;
    static char text[30000];
    struct shared_job jobs[3];
    pthread_t threads[3];
    vb_begin(&build, "qwen2");
    vb_word(&build, " a");
    open_vocab(&f, &build.v);
    for (size_t i = 0; i < sizeof text; i++) text[i] = " ab1e\xcc\x81\n"[(i * 5 + i / 9) % 8];
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct shared_job){f.tok, {.budget = &f.budget}, {text, sizeof text}, SLUICE_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_shared, &jobs[i]), 0);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(jobs[i].err, SLUICE_OK);
        assert_int_equal(jobs[i].ids.count, jobs[0].ids.count);
        assert_memory_equal(jobs[i].ids.ids, jobs[0].ids.ids, jobs[0].ids.count * sizeof(int32_t));
    }
    for (int i = 0; i < 3; i++) sl_ids_deinit(&jobs[i].ids);
    drop(&f);
}

/* ---- golden ids ------------------------------------------------------------------------------ */

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/tokenizers"

/* The whole file with a NUL behind it, or NULL. */
static char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    char *text = calloc(1, MEGABYTE);
    assert_non_null(text);
    size_t n = fread(text, 1, MEGABYTE - 1, f);
    assert_true(n < MEGABYTE - 1);
    fclose(f);
    return text;
}

/* Turns \n \t \r \0 \\ into what they stand for, in place. Returns the length. */
static size_t unescape(char *line)
{
    static const char codes[] = "ntr0\\", values[] = "\n\t\r\0\\";
    size_t n = 0;
    for (const char *p = line; *p != '\0'; p++) {
        const char *code = p[0] == '\\' && p[1] != '\0' ? strchr(codes, p[1]) : NULL;
        line[n++] = code != NULL ? values[code - codes] : *p;
        if (code != NULL) p++;
    }
    return n;
}

static bool same_ids(const struct sl_ids *ids, const char *line)
{
    for (uint64_t i = 0;; i++) {
        char *end;
        long id = strtol(line, &end, 10);
        if (end == line) return i == ids->count;
        if (i == ids->count || ids->ids[i] != id) return false;
        line = end;
    }
}

/* Encodes the lines of a text file and compares with a file of ids. Returns how many lines there
 * were; 0: no such files. */
static int replay(struct fixture *f, const char *text_path, const char *ids_path, unsigned flags)
{
    char *text = slurp(text_path), *ids = slurp(ids_path);
    int n_lines = 0, n_bad = 0;
    if (text == NULL || ids == NULL) goto out;
    char *rest = ids;
    for (char *line = text, *next; *line != '\0'; line = next) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = '\0';
        char *want = rest;
        rest = strchr(want, '\n');
        assert_non_null(rest);
        *rest++ = '\0';
        n_lines++;
        encode(f, (struct sl_str){line, unescape(line)}, flags);
        if (same_ids(&f->ids, want)) continue;
        if (n_bad++ == 0)
            print_message("%s, line %d: other ids than %s\n", ids_path, n_lines, want);
    }
    assert_int_equal(n_bad, 0);
    assert_int_equal(*rest, '\0');
out:
    free(text);
    free(ids);
    return n_lines;
}

static int replay_case(const char *name)
{
    char path[PATH_MAX], ids[PATH_MAX];
    struct sl_gguf *g;
    struct sl_vocab v;
    struct sl_budget b;
    struct fixture f;
    sluice_error e;
    sl_budget_init(&b, UINT64_MAX);
    snprintf(path, sizeof path, GOLDEN "/%s.gguf", name);
    if (sl_gguf_open(path, &b, &e, &g) != SLUICE_OK) fail_msg("%s", e.text);
    if (sl_gguf_vocab(g, &v, &e) != SLUICE_OK) fail_msg("%s", e.text);
    open_vocab(&f, &v);
    sl_gguf_close(g);
    snprintf(ids, sizeof ids, GOLDEN "/%s.ids", name);
    int n = replay(&f, GOLDEN "/lines.txt", ids, 0);
    snprintf(path, sizeof path, GOLDEN "/%s.special.txt", name);
    snprintf(ids, sizeof ids, GOLDEN "/%s.special.ids", name);
    n += replay(&f, path, ids, SL_ENCODE_SPECIAL);
    drop(&f);
    assert_int_equal(atomic_load(&b.used_bytes), 0);
    return n;
}

static void test_golden__reference_tokenizers__same_ids(void **state)
{
    (void)state;
    DIR *dir = opendir(GOLDEN);
    if (dir == NULL) {
        print_message("%s is not there: skipped\n", GOLDEN);
        skip();
    }
    int n_cases = 0, n_lines = 0;
    for (struct dirent *d = readdir(dir); d != NULL; d = readdir(dir)) {
        char *dot = strrchr(d->d_name, '.');
        if (dot == NULL || strcmp(dot, ".gguf") != 0) continue;
        *dot = '\0';
        n_lines += replay_case(d->d_name);
        n_cases++;
    }
    closedir(dir);
    print_message("%d tokenizers, %d lines\n", n_cases, n_lines);
    assert_true(n_cases > 0 && n_lines > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pretokenizer__samples__split_as_published),
        cmocka_unit_test(test_pretokenizer__every_name_and_alias__opens),
        cmocka_unit_test(test_open__unknown_names__refused_with_the_known_ones),
        cmocka_unit_test(test_open__vocabulary_that_cannot_work__refused),
        cmocka_unit_test(test_bpe__merges__lowest_rank_first_leftmost_among_equals),
        cmocka_unit_test(test_bpe__random_words_short_and_long__equal_the_definition),
        cmocka_unit_test(test_bpe__whole_piece_that_is_a_token__only_where_merges_are_ignored),
        cmocka_unit_test(test_bpe__merges_of_unknown_or_control_tokens__skipped),
        cmocka_unit_test(test_encode__control_tokens__only_where_asked_for),
        cmocka_unit_test(test_encode__user_defined_tokens__always_and_longest_first),
        cmocka_unit_test(test_encode__text_of_messages__never_part_of_a_control_token),
        cmocka_unit_test(test_encode__bos__exactly_once),
        cmocka_unit_test(test_encode__bos_not_said__as_the_family_does),
        cmocka_unit_test(test_eog__file_and_well_known_names__marked),
        cmocka_unit_test(test_encode__any_bytes__come_back),
        cmocka_unit_test(test_encode__nfc_tokenizers__normalize_and_others_do_not),
        cmocka_unit_test(test_encode__text_in_parts_of_a_long_text__same_ids_as_alone),
        cmocka_unit_test(test_spm__scores__best_first),
        cmocka_unit_test(test_spm__space_prefix__at_the_start_and_after_added_tokens),
        cmocka_unit_test(test_spm__bytes_without_a_token__fall_back),
        cmocka_unit_test(test_spm__text_like_control_or_byte_tokens__stays_text),
        cmocka_unit_test(test_spm__space_within_a_token__still_found),
        cmocka_unit_test(test_gemma4__merges__by_rank_over_characters),
        cmocka_unit_test(test_encode__a_megabyte_of_one_character__small_stack_suffices),
        cmocka_unit_test(test_encode__memory_refused_anywhere__error_and_nothing_left),
        cmocka_unit_test(test_encode__several_threads__same_ids),
        cmocka_unit_test(test_golden__reference_tokenizers__same_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
