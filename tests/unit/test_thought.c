/* Proves that answers are divided into thoughts and the rest the same way however the text is cut
 * into pieces, that no byte is lost or moved but the marks and the line ends beside them, and that
 * a prompt which ends inside a thought is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/text/thought.h"
#include "tests/support/vocab_build.h"

#define TEXT_MAX 512

struct divided {
    char thought[TEXT_MAX], answer[TEXT_MAX];
    size_t n_thought, n_answer;
};

static void collect(void *user, bool thought, const char *text, size_t n)
{
    struct divided *d = user;
    char *to = thought ? d->thought : d->answer;
    size_t *at = thought ? &d->n_thought : &d->n_answer;
    assert_true(n > 0 && *at + n < TEXT_MAX);
    memcpy(to + *at, text, n);
    *at += n;
    to[*at] = '\0';
    assert_true(!thought || d->n_answer == 0); /* the thought comes first */
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* Feeds text in two pieces, cut at cut, and in pieces of step bytes after that. */
static struct divided divide(const char *text, bool inside, size_t cut, size_t step)
{
    struct sl_thought t;
    struct divided d = {.n_thought = 0};
    size_t n = strlen(text);
    sl_thought_init(&t, SL_THOUGHT_TAGS, inside);
    for (size_t at = 0; at < n;) {
        size_t piece = at < cut ? cut - at : step;
        if (piece > n - at) piece = n - at;
        sl_thought_push(&t, (struct sl_str){text + at, piece}, collect, &d);
        at += piece;
    }
    sl_thought_flush(&t, collect, &d);
    return d;
}

static const struct {
    const char *text;
    bool inside;
    const char *thought, *answer;
} tag_cases[] = {
    /* the model opens its thought itself */
    {"<think>\nhm\n</think>\n\nFour.", false, "hm", "Four."},
    {"<think>hm</think>Four.", false, "hm", "Four."},
    {"\n <think>\n\nhm\n\nso\n\n</think>\n\nFour.\n", false, "hm\n\nso", "Four.\n"},
    {"<think>\n\n</think>\n\nFour.", false, "", "Four."},
    {"<think></think>", false, "", ""},
    /* the template opened it */
    {"hm\n</think>\n\nFour.", true, "hm", "Four."},
    {"\n\nhm</think>Four.", true, "hm", "Four."},
    {"</think>\n\nFour.", true, "", "Four."},
    {"\n</think>\n\nFour.", true, "", "Four."},
    {"<think>\nhm\n</think>\n\nFour.", true, "hm", "Four."},
    {"<thin\n</think>Four.", true, "<thin", "Four."},
    {"< </think>Four.", true, "< ", "Four."},
    {"<</think>Four.", true, "<", "Four."},
    {"\xe2\x82\xac\n\xe2\x82\xac</think>\n\xe2\x82\xac", true, "\xe2\x82\xac\n\xe2\x82\xac",
     "\xe2\x82\xac"},
    /* cut before the end */
    {"hm, so", true, "hm, so", ""},
    {"hm\n\n", true, "hm\n\n", ""},
    {"hm\n</thi", true, "hm\n</thi", ""},
    {"<think>\nhm", false, "hm", ""},
    {"<thi", false, "", "<thi"},
    {"", true, "", ""},
    {" \n", false, "", " \n"},
    {" \n", true, "", ""},
    /* no thought, and tags that are text */
    {"Four.", false, "", "Four."},
    {"  Four.", false, "", "  Four."},
    {"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n<think>", false, "",
     "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n<think>"},
    {"<thing> is a tag", false, "", "<thing> is a tag"},
    {"<<think>", false, "", "<<think>"},
    {"Four. <think>no</think>", false, "", "Four. <think>no</think>"},
    {"</think>Four.", false, "", "</think>Four."},
    {"<think>a<think>b</think>c</think>d", false, "a<think>b", "c</think>d"},
    {"<think>a<</think</think></think>b", false, "a<</think", "</think>b"},
};

static void test_tags__every_way_to_cut_the_text__divided_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(tag_cases); i++) {
        size_t n = strlen(tag_cases[i].text);
        for (size_t cut = 0; cut <= n; cut++) {
            for (size_t step = 1; step <= n + 1; step += step < 3 ? 1 : n) {
                struct divided d = divide(tag_cases[i].text, tag_cases[i].inside, cut, step);
                assert_string_equal(d.thought, tag_cases[i].thought);
                assert_string_equal(d.answer, tag_cases[i].answer);
            }
        }
    }
}

static uint32_t seed = 1;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* The same by looking at the whole text. */
static struct divided naive(const char *text, bool inside)
{
    struct divided d = {.n_thought = 0};
    const char *begin = text + strspn(text, " \n");
    bool tag = strncmp(begin, "<think>", 7) == 0;
    if (!tag && !inside) {
        memcpy(d.answer, text, strlen(text) + 1);
        return d;
    }
    if (tag) begin += 7 + strspn(begin + 7, "\n");
    const char *close = strstr(begin, "</think>");
    size_t n = close ? (size_t)(close - begin) : strlen(begin);
    while (close && n > 0 && begin[n - 1] == '\n') n--;
    memcpy(d.thought, begin, n);
    const char *rest = close ? close + 8 + strspn(close + 8, "\n") : "";
    memcpy(d.answer, rest, strlen(rest) + 1);
    return d;
}

static void test_tags__random_texts__equal_to_a_search_of_the_whole(void **state)
{
    (void)state;
    static const char *const words[] = {"<think>", "</think>", "\n", " ", "<", "</", "a", "think>"};
    for (uint32_t run = 0; run < 20000; run++) {
        char text[128] = "";
        size_t n = 0;
        for (uint32_t i = random_below(10); i > 0; i--) {
            const char *word = words[random_below(SL_ARRAY_LEN(words))];
            memcpy(text + n, word, strlen(word) + 1);
            n += strlen(word);
        }
        bool inside = random_below(2) == 1;
        struct divided want = naive(text, inside);
        struct divided got = divide(text, inside, random_below(8), 1 + random_below(9));
        assert_string_equal(got.thought, want.thought);
        assert_string_equal(got.answer, want.answer);
    }
}

static void test_tags__while_text_streams__says_where_it_is(void **state)
{
    (void)state;
    struct sl_thought t;
    struct divided d = {.n_thought = 0};
    sl_thought_init(&t, SL_THOUGHT_TAGS, true);
    assert_true(sl_thought_inside(&t));
    sl_thought_push(&t, SL_STR("hm"), collect, &d);
    assert_string_equal(d.thought, "hm"); /* at once, nothing to wait for */
    sl_thought_push(&t, SL_STR("</think"), collect, &d);
    assert_true(sl_thought_inside(&t));
    sl_thought_push(&t, SL_STR(">"), collect, &d);
    assert_false(sl_thought_inside(&t));
    sl_thought_push(&t, SL_STR("\n\nso"), collect, &d);
    assert_string_equal(d.answer, "so");

    sl_thought_init(&t, SL_THOUGHT_TAGS, false);
    assert_false(sl_thought_inside(&t));
    sl_thought_push(&t, SL_STR("<think>"), collect, &d);
    assert_true(sl_thought_inside(&t));
}

/* Words, in a vocabulary that has both tags as control tokens. */
static struct divided say_tags(const char *const *words, bool inside)
{
    struct sl_thought t;
    struct divided d = {.n_thought = 0};
    sl_thought_init(&t, SL_THOUGHT_TAGS, inside);
    for (; *words != NULL; words++) {
        struct sl_str word = {*words, strlen(*words)};
        if (word.n > 2 && word.p[word.n - 1] == '>')
            sl_thought_control(&t, word, collect, &d);
        else
            sl_thought_push(&t, word, collect, &d);
    }
    sl_thought_flush(&t, collect, &d);
    return d;
}

static void test_tags__control_tokens__divide_and_are_never_text(void **state)
{
    (void)state;
    const char *const both[] = {"\n", "<think>", "\nhm\n", "</think>", "\n\nFo", "ur.", NULL};
    const char *const close[] = {"hm", "<think>", "</th", "</think>", "Four.", NULL};
    const char *const late[] = {"Fo", "<think>", "</think>", "<|end|>", "ur.", NULL};
    const char *const at_once[] = {"</think>", "Four.", NULL};
    const char *const spelt[] = {"<th", "<think>", "Four.", NULL};
    struct divided d = say_tags(both, false);
    assert_string_equal(d.thought, "hm");
    assert_string_equal(d.answer, "Four.");
    d = say_tags(close, true);
    assert_string_equal(d.thought, "hm</th");
    assert_string_equal(d.answer, "Four.");
    assert_string_equal(say_tags(late, false).answer, "Four.");
    assert_string_equal(say_tags(at_once, true).answer, "Four.");
    assert_string_equal(say_tags(at_once, false).answer, "Four.");
    assert_string_equal(say_tags(spelt, false).answer, "<thFour.");
}

static void test_none__tags_in_the_text__passed_on(void **state)
{
    (void)state;
    struct sl_thought t;
    struct divided d = {.n_thought = 0};
    sl_thought_init(&t, SL_THOUGHT_NONE, true);
    sl_thought_push(&t, SL_STR("<think>a</think>b"), collect, &d);
    sl_thought_flush(&t, collect, &d);
    assert_string_equal(d.answer, "<think>a</think>b");
    assert_false(sl_thought_inside(&t));
}

/* ---- channels -------------------------------------------------------------------------------- */

/* Words that begin with "<|" are control tokens. */
static struct divided say(const char *const *words)
{
    struct sl_thought t;
    struct divided d = {.n_thought = 0};
    sl_thought_init(&t, SL_THOUGHT_CHANNELS, false);
    for (; *words != NULL; words++) {
        struct sl_str word = {*words, strlen(*words)};
        if (sl_str_starts(word, "<|"))
            sl_thought_control(&t, word, collect, &d);
        else
            sl_thought_push(&t, word, collect, &d);
    }
    sl_thought_flush(&t, collect, &d);
    return d;
}

static void test_channels__analysis_then_final__thought_and_answer(void **state)
{
    (void)state;
    const char *const words[] = {"<|channel|>", "analysis",    "<|message|>", "hm",          "\nso",
                                 "<|end|>",     "<|start|>",   "assistant",   "<|channel|>", "fin",
                                 "al",          "<|message|>", "Fo",          "ur.",         NULL};
    struct divided d = say(words);
    assert_string_equal(d.thought, "hm\nso");
    assert_string_equal(d.answer, "Four.");
}

static void test_channels__other_headers__only_final_and_no_name_are_answers(void **state)
{
    (void)state;
    const char *const commentary[] = {"<|channel|>", "commentary",  " to=x", "<|constrain|>",
                                      "json",        "<|message|>", "{}",    NULL};
    const char *const nearly[] = {"<|channel|>", "fina", "<|message|>", "hm", NULL};
    const char *const form[] = {"<|channel|>", "final",       " ",  "<|constrain|>",
                                "json",        "<|message|>", "{}", NULL};
    const char *const no_name[] = {"<|end|>",     "<|start|>", "assistant",
                                   "<|message|>", "Four.",     NULL};
    const char *const bare[] = {"Four.", NULL};
    assert_string_equal(say(commentary).thought, "{}");
    assert_string_equal(say(nearly).thought, "hm");
    assert_string_equal(say(form).answer, "{}");
    assert_string_equal(say(no_name).answer, "Four.");
    assert_string_equal(say(bare).answer, "Four.");
}

/* ---- what the vocabulary and the prompt say -------------------------------------------------- */

struct fixture {
    struct sl_budget budget;
    struct sl_tokenizer *t;
};

static struct vocab_build build; /* too large for the stack */

/* Bytes, and the given texts as tokens of that kind, from id 256 on. */
static void open_vocab(struct fixture *f, const char *const *texts, enum sl_token_kind kind)
{
    sluice_error e = {0};
    vb_begin(&build, "qwen35");
    for (; *texts != NULL; texts++) vb_add(&build, (struct sl_str){*texts, strlen(*texts)}, kind);
    sl_budget_init(&f->budget, UINT64_MAX);
    if (sl_tokenizer_open(&build.v, &f->budget, &e, &f->t) != SLUICE_OK) fail_msg("%s", e.text);
}

static enum sl_thought_form form_of(const char *const *texts, enum sl_token_kind kind)
{
    struct fixture f;
    open_vocab(&f, texts, kind);
    enum sl_thought_form form = sl_thought_form_of(f.t);
    sl_tokenizer_close(f.t);
    return form;
}

static void test_form__vocabularies__by_tokens_of_their_own(void **state)
{
    (void)state;
    static const char *const tags[] = {"<think>", "</think>", NULL};
    static const char *const one[] = {"<think>", "<|message|>", NULL};
    static const char *const channels[] = {"<|channel|>", "<|message|>", NULL};
    assert_int_equal(form_of(tags, SL_TOKEN_USER_DEFINED), SL_THOUGHT_TAGS);
    assert_int_equal(form_of(tags, SL_TOKEN_CONTROL), SL_THOUGHT_TAGS);
    assert_int_equal(form_of(tags, SL_TOKEN_NORMAL), SL_THOUGHT_NONE);
    assert_int_equal(form_of(one, SL_TOKEN_CONTROL), SL_THOUGHT_NONE);
    assert_int_equal(form_of(channels, SL_TOKEN_CONTROL), SL_THOUGHT_CHANNELS);
}

static void test_is_open__prompts__by_the_last_token_but_white_space(void **state)
{
    (void)state;
    static const char *const tags[] = {"<think>", "</think>", NULL};
    const int32_t open[] = {'a', 256, '\n', ' '}, closed[] = {256, '\n', 257, '\n'};
    const int32_t text[] = {256, 'a'}, blank[] = {'\n', '\n'};
    struct fixture f;
    open_vocab(&f, tags, SL_TOKEN_USER_DEFINED);
    assert_true(sl_thought_is_open(f.t, open, 4));
    assert_true(sl_thought_is_open(f.t, open, 2));
    assert_false(sl_thought_is_open(f.t, open, 1));
    assert_false(sl_thought_is_open(f.t, closed, 4));
    assert_false(sl_thought_is_open(f.t, text, 2));
    assert_false(sl_thought_is_open(f.t, blank, 2));
    assert_false(sl_thought_is_open(f.t, blank, 0));
    sl_tokenizer_close(f.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags__every_way_to_cut_the_text__divided_alike),
        cmocka_unit_test(test_tags__random_texts__equal_to_a_search_of_the_whole),
        cmocka_unit_test(test_tags__while_text_streams__says_where_it_is),
        cmocka_unit_test(test_tags__control_tokens__divide_and_are_never_text),
        cmocka_unit_test(test_none__tags_in_the_text__passed_on),
        cmocka_unit_test(test_channels__analysis_then_final__thought_and_answer),
        cmocka_unit_test(test_channels__other_headers__only_final_and_no_name_are_answers),
        cmocka_unit_test(test_form__vocabularies__by_tokens_of_their_own),
        cmocka_unit_test(test_is_open__prompts__by_the_last_token_but_white_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
