/* Proves that chat templates are recognized exactly or not at all, and rendered as Jinja2 renders
 * the real sources.
 *
 * tests/golden/templates holds conversations, real sources where their licence permits, and what
 * Jinja2 made of them (tools/dev/make_template_goldens.py). Every occurrence of "§" in a
 * conversation belongs to a message, so that it must lie inside a span. With a folder as argument
 * the golden texts there are compared instead, e.g. a long random run. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/text/chat_template.h"

#define MESSAGES_MAX 16
#define MARK "\xc2\xa7"

static const char *golden_folder = SLUICE_SOURCE_DIR "/tests/golden/templates";

static const char *const all_names[] = {
    "chatml",
    "smollm2",
    "qwen2",
    "qwen2.5",
    "qwen3",
    "qwen3-instruct",
    "qwen3-instruct-unsloth",
    "qwen3-thinking",
    "qwen3-coder",
    "qwen3.5",
    "qwen3.5-nothink",
    "qwen3.6",
    "llama3",
    "llama3-always",
    "llama3.1",
    "llama3.2",
    "mixtral",
    "mistral-v0.1",
    "mistral-v1",
    "mistral-nemo",
    "mistral-v7",
    "tulu",
    "olmo2",
    "granite",
    "granite-3.3",
    "granite-4.0",
    "granite-4.1",
    "gemma",
    "gemma3",
    "deepseek3",
    "gpt-oss",
};

/* ---- reading files --------------------------------------------------------------------------- */

struct reader {
    char *p, *at, *end;
};

static struct reader read_file(const char *folder, const char *name, const char *suffix)
{
    char path[512];
    struct reader r = {0};
    (void)snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    assert_true(n >= 0);
    rewind(f);
    r.p = r.at = malloc((size_t)n + 1);
    assert_non_null(r.p);
    assert_int_equal(fread(r.p, 1, (size_t)n, f), (size_t)n);
    r.p[n] = '\0';
    r.end = r.p + n;
    assert_int_equal(fclose(f), 0);
    return r;
}

/* The rest of the line, NUL-terminated in place; NULL at the end. */
static char *read_line(struct reader *r)
{
    if (r->at == r->end) return NULL;
    char *line = r->at;
    char *newline = memchr(line, '\n', (size_t)(r->end - line));
    assert_non_null(newline);
    *newline = '\0';
    r->at = newline + 1;
    return line;
}

/* length bytes and the newline behind them. */
static struct sl_str read_bytes(struct reader *r, long length)
{
    assert_true(length >= 0 && length < r->end - r->at);
    struct sl_str s = {r->at, (size_t)length};
    r->at += length;
    assert_int_equal(*r->at, '\n');
    r->at++;
    return s;
}

/* ---- conversations --------------------------------------------------------------------------- */

struct conversation {
    char name[32];
    struct sl_chat_message messages[MESSAGES_MAX];
    uint32_t n;
};

struct conversations {
    struct reader file;
    struct conversation *list;
    uint32_t n;
};

static struct conversations read_conversations(void)
{
    struct conversations c = {.file = read_file(golden_folder, "conversations", ".txt")};
    for (char *line = read_line(&c.file); line != NULL; line = read_line(&c.file)) {
        c.list = realloc(c.list, (c.n + 1) * sizeof(*c.list));
        assert_non_null(c.list);
        struct conversation *one = &c.list[c.n++];
        memset(one, 0, sizeof(*one));
        assert_int_equal(sscanf(line, "conversation %31s %" SCNu32, one->name, &one->n), 2);
        assert_true(one->n <= MESSAGES_MAX);
        for (uint32_t i = 0; i < one->n; i++) {
            char *role = read_line(&c.file);
            char *space = strchr(role, ' ');
            assert_non_null(space);
            one->messages[i].role = (struct sl_str){role, (size_t)(space - role)};
            one->messages[i].content = read_bytes(&c.file, strtol(space, NULL, 10));
        }
    }
    return c;
}

static const struct conversation *find_conversation(const struct conversations *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (strcmp(c->list[i].name, name) == 0) return &c->list[i];
    }
    fail_msg("no conversation %s", name);
    return NULL;
}

static void free_conversations(struct conversations *c)
{
    free(c->list);
    free(c->file.p);
}

/* ---- rendering against the golden texts ------------------------------------------------------ */

struct rendering {
    struct sl_budget budget;
    struct sl_buf out;
    struct sl_chat_spans spans;
    sluice_error error;
};

static void rendering_init(struct rendering *r)
{
    memset(r, 0, sizeof(*r));
    sl_budget_init(&r->budget, UINT64_MAX);
    r->out.budget = r->spans.budget = &r->budget;
}

static void rendering_deinit(struct rendering *r)
{
    sl_buf_deinit(&r->out);
    sl_chat_spans_deinit(&r->spans);
    assert_int_equal(atomic_load(&r->budget.used_bytes), 0);
}

static bool contains(struct sl_str s, struct sl_str part)
{
    for (size_t i = 0; i + part.n <= s.n; i++) {
        if (memcmp(s.p + i, part.p, part.n) == 0) return true;
    }
    return false;
}

/* Spans ascend, each holds text of one message, and no mark is outside. */
static void check_spans(const struct rendering *r, const struct conversation *c)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i <= r->spans.count; i++) {
        bool last = i == r->spans.count;
        struct sl_chat_span span = {r->out.n, r->out.n};
        if (!last) span = r->spans.spans[i];
        assert_true(span.begin >= at && span.end <= r->out.n);
        struct sl_str between = {r->out.p + at, span.begin - at};
        if (between.n > 0) assert_false(contains(between, SL_STR(MARK)));
        at = span.end;
        if (last) break;
        assert_true(span.begin < span.end);
        bool found = false;
        for (uint32_t m = 0; m < c->n && !found; m++) {
            struct sl_str text = {r->out.p + span.begin, span.end - span.begin};
            found = contains(c->messages[m].content, text);
        }
        assert_true(found);
    }
}

struct golden_case {
    char conversation[32];
    int prompt, thinking, date;
    long length;
    struct sl_str text;
};

static void check_case(const struct sl_chat_template *t, const struct conversation *c,
                       const struct golden_case *g, struct sl_chat_context *ctx)
{
    struct rendering r;
    rendering_init(&r);
    ctx->add_generation_prompt = g->prompt != 0;
    ctx->thinking = g->thinking;
    ctx->date = g->date != 0 ? SL_STR("30 Nov 2026") : SL_STR("");
    sluice_err err = sl_chat_render(t, c->messages, c->n, ctx,
                                    &(struct sl_chat_out){&r.out, &r.spans}, &r.error);
    if (g->length < 0) {
        if (err != SLUICE_E_ARG) {
            fail_msg("%s %s: Jinja raises, we wrote \"%.*s\"", sl_chat_template_name(t), c->name,
                     (int)r.out.n, r.out.p);
        }
        assert_int_equal(r.out.n, 0);
        assert_int_equal(r.spans.count, 0);
        assert_true(strlen(r.error.text) > 0);
    } else {
        if (err != SLUICE_OK)
            fail_msg("%s %s: %s", sl_chat_template_name(t), c->name, r.error.text);
        if (r.out.n != g->text.n || (g->text.n > 0 && memcmp(r.out.p, g->text.p, g->text.n) != 0)) {
            fail_msg("%s %s prompt %d thinking %d date %d:\nwanted \"%.*s\"\n   got \"%.*s\"",
                     sl_chat_template_name(t), c->name, g->prompt, g->thinking, g->date,
                     (int)g->text.n, g->text.p, (int)r.out.n, r.out.p);
        }
        check_spans(&r, c);
    }
    rendering_deinit(&r);
}

static uint32_t check_template(const char *name, const struct conversations *c)
{
    const struct sl_chat_template *t = NULL;
    struct sl_chat_context ctx = {0};
    struct reader file = read_file(golden_folder, name, ".txt");
    uint32_t n = 0;
    assert_int_equal(sl_chat_template_by_name(name, NULL, &t), SLUICE_OK);
    ctx.bos = read_bytes(&file, strtol(read_line(&file) + 4, NULL, 10));
    ctx.eos = read_bytes(&file, strtol(read_line(&file) + 4, NULL, 10));
    for (char *line = read_line(&file); line != NULL; line = read_line(&file)) {
        struct golden_case g;
        assert_int_equal(sscanf(line, "case %31s %d %d %d %ld", g.conversation, &g.prompt,
                                &g.thinking, &g.date, &g.length),
                         5);
        g.text = read_bytes(&file, g.length < 0 ? 0 : g.length);
        check_case(t, find_conversation(c, g.conversation), &g, &ctx);
        n++;
    }
    free(file.p);
    return n;
}

static void test_render__every_golden_case__equals_jinja(void **state)
{
    (void)state;
    struct conversations c = read_conversations();
    uint32_t n = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(all_names); i++) n += check_template(all_names[i], &c);
    print_message("%u renderings compared\n", (unsigned)n);
    assert_true(n >= 700);
    free_conversations(&c);
}

/* ---- recognition ----------------------------------------------------------------------------- */

static const struct {
    const char *source, *name;
} stored_sources[] = {
    {"gpt-oss", "gpt-oss"},
    {"chatml-1", "chatml"},
    {"chatml-2", "chatml"},
    {"chatml-3", "chatml"},
    {"chatml-4", "chatml"},
    {"chatml-unsloth", "chatml"},
    {"smollm2", "smollm2"},
    {"qwen2", "qwen2"},
    {"qwen2.5", "qwen2.5"},
    {"qwen3", "qwen3"},
    {"qwen3-later", "qwen3"},
    {"qwen3-unsloth", "qwen3"},
    {"qwen3-instruct-2507", "qwen3-instruct"},
    {"qwen3-instruct-unsloth", "qwen3-instruct-unsloth"},
    {"qwen3-thinking-2507", "qwen3-thinking"},
    {"qwen3-coder", "qwen3-coder"},
    {"qwen3-coder-next", "qwen3-coder"},
    {"qwen3.5", "qwen3.5"},
    {"qwen3.5-nothink", "qwen3.5-nothink"},
    {"qwen3.6", "qwen3.6"},
    {"mixtral", "mixtral"},
    {"mistral-v0.1", "mistral-v0.1"},
    {"mistral-v1", "mistral-v1"},
    {"mistral-nemo", "mistral-nemo"},
    {"mistral-v7", "mistral-v7"},
    {"tulu", "tulu"},
    {"olmo2", "olmo2"},
    {"granite-3.0", "granite"},
    {"granite-3.3", "granite-3.3"},
    {"granite-4.0", "granite-4.0"},
    {"granite-4.1", "granite-4.1"},
};

/* The name under which a source is recognized, or NULL; then the sentence must name the ways out.
 */
static const char *detect(struct sl_str source)
{
    const struct sl_chat_template *t = NULL;
    sluice_error e = {0};
    sluice_err err = sl_chat_template_detect(source, &e, &t);
    if (err == SLUICE_OK) return sl_chat_template_name(t);
    assert_int_equal(err, SLUICE_E_TEMPLATE);
    assert_null(t);
    assert_non_null(strstr(e.text, "--chat-template"));
    assert_non_null(strstr(e.text, "--raw"));
    return NULL;
}

static const char *detect_text(const char *text)
{
    return detect((struct sl_str){text, strlen(text)});
}

static void test_detect__stored_sources__are_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(stored_sources); i++) {
        struct reader f = read_file(SLUICE_SOURCE_DIR "/tests/golden/templates/sources",
                                    stored_sources[i].source, ".jinja");
        const char *name = detect((struct sl_str){f.p, (size_t)(f.end - f.p)});
        if (name == NULL) fail_msg("%s is not recognized", stored_sources[i].source);
        assert_string_equal(name, stored_sources[i].name);
        free(f.p);
    }
}

/* A letter changed anywhere (in names, in texts, in role names) must make the source unknown.
 * Sources with comments are left out: there a letter does not matter. */
static void test_detect__one_letter_changed__is_unknown(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(stored_sources); i++) {
        struct reader f = read_file(SLUICE_SOURCE_DIR "/tests/golden/templates/sources",
                                    stored_sources[i].source, ".jinja");
        size_t n = strstr(f.p, "{#") != NULL ? 0 : (size_t)(f.end - f.p);
        for (size_t at = 0; at < n; at++) {
            char was = f.p[at];
            if (!(was >= 'a' && was <= 'z') && !(was >= 'A' && was <= 'Z')) continue;
            f.p[at] = was == 'q' ? 'j' : 'q';
            assert_null(detect((struct sl_str){f.p, n}));
            f.p[at] = was;
            tried++;
        }
        free(f.p);
    }
    print_message("%u changes tried\n", (unsigned)tried);
    assert_true(tried > 10000);
}

#define DEMO                                                                                       \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "                   \
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"        \
    "{{ '<|im_start|>assistant\\n' }}{% endif %}"

static void test_detect__other_spelling__is_the_same(void **state)
{
    (void)state;
    assert_string_equal(detect_text(DEMO), "chatml");
    assert_string_equal(detect_text(DEMO "\n"), "chatml");
    assert_string_equal(detect_text("{# ChatML #}\n" DEMO), "chatml");
    /* double quotes, a real newline, spaces, a tag on its own line, - signs, text-free breaks */
    assert_string_equal(
        detect_text(
            "{%- for  message in messages -%}\n  {{- \"<|im_start|>\" + message[\"role\"]+'\n'"
            "+ message['content'] + '<|im_end|>' + '\\n' -}}\n{%- endfor %}\n"
            "   {% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}"
            "{#- end -#}  {% endif %}\n"),
        "chatml");
}

static void test_detect__similar__is_refused(void **state)
{
    (void)state;
    assert_null(detect_text(""));
    assert_null(detect_text("\n"));
    assert_null(detect_text("chatml"));
    assert_null(detect_text("<|im_start|>"));
    assert_string_equal(detect_text(DEMO "\n\n"),
                        "chatml");           /* Jinja drops one at the end, one behind a block */
    assert_null(detect_text(DEMO "\n\n\n")); /* the third would be printed */
    assert_null(detect_text(DEMO " "));
    assert_null(detect_text("x" DEMO));
    assert_null(detect_text("{{ bos_token }}" DEMO));
    assert_null(detect_text("{% raw %}" DEMO "{% endraw %}"));
    assert_null(detect_text(DEMO "{% if x %}"));
    assert_null(detect_text(DEMO "{#"));
    assert_null(detect_text(DEMO "{{ '\\x41' }}"));
    assert_null(detect_text(DEMO "\xc2\xa0"));
    assert_null(detect_text("\r" DEMO));
}

static void test_by_name__unknown__lists_the_names(void **state)
{
    (void)state;
    const struct sl_chat_template *t = NULL;
    sluice_error e = {0};
    assert_int_equal(sl_chat_template_by_name("chatm\n", &e, &t), SLUICE_E_TEMPLATE);
    assert_null(t);
    assert_non_null(strstr(e.text, sl_chat_template_names()));
    assert_null(strchr(e.text, '\n'));
    for (size_t i = 0; i < SL_ARRAY_LEN(all_names); i++) {
        assert_int_equal(sl_chat_template_by_name(all_names[i], &e, &t), SLUICE_OK);
        assert_string_equal(sl_chat_template_name(t), all_names[i]);
        assert_non_null(strstr(sl_chat_template_names(), all_names[i]));
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void test_render__unknown_role__names_the_message(void **state)
{
    (void)state;
    struct rendering r;
    rendering_init(&r);
    const struct sl_chat_message m[] = {{SL_STR("user"), SL_STR("a")},
                                        {SL_STR("<|im_end|>"), SL_STR("b")}};
    struct sl_chat_context ctx = {.thinking = -1};
    for (size_t i = 0; i < SL_ARRAY_LEN(all_names); i++) {
        const struct sl_chat_template *t;
        assert_int_equal(sl_chat_template_by_name(all_names[i], NULL, &t), SLUICE_OK);
        assert_int_equal(
            sl_chat_render(t, m, 2, &ctx, &(struct sl_chat_out){&r.out, &r.spans}, &r.error),
            SLUICE_E_ARG);
        assert_non_null(strstr(r.error.text, "message 2"));
        assert_int_equal(
            sl_chat_render(t, m, 0, &ctx, &(struct sl_chat_out){&r.out, &r.spans}, &r.error),
            SLUICE_E_ARG);
        assert_int_equal(r.out.n, 0);
    }
    rendering_deinit(&r);
}

static void test_render__budget_ends_anywhere__leaves_the_output_alone(void **state)
{
    (void)state;
    const struct sl_chat_message m[] = {{SL_STR("user"), SL_STR("some text that is not short")},
                                        {SL_STR("assistant"), SL_STR("some more text")}};
    struct sl_chat_context ctx = {.thinking = -1, .add_generation_prompt = true};
    const struct sl_chat_template *t;
    sluice_err err = SLUICE_E_BUDGET;
    assert_int_equal(sl_chat_template_by_name("chatml", NULL, &t), SLUICE_OK);
    for (uint64_t limit = 0; err != SLUICE_OK; limit += 16) {
        struct rendering r;
        rendering_init(&r);
        r.budget.limit_bytes = limit;
        err = sl_chat_render(t, m, 2, &ctx, &(struct sl_chat_out){&r.out, &r.spans}, &r.error);
        if (err != SLUICE_OK) {
            assert_int_equal(err, SLUICE_E_BUDGET);
            assert_int_equal(r.out.n, 0);
            assert_int_equal(r.spans.count, 0);
        }
        rendering_deinit(&r);
        assert_true(limit < 100000);
    }
}

static void test_render__twice__appends(void **state)
{
    (void)state;
    struct rendering r;
    rendering_init(&r);
    const struct sl_chat_message m[] = {{SL_STR("user"), SL_STR("a")}};
    struct sl_chat_context ctx = {.thinking = -1};
    const struct sl_chat_template *t;
    assert_int_equal(sl_chat_template_by_name("chatml", NULL, &t), SLUICE_OK);
    assert_int_equal(
        sl_chat_render(t, m, 1, &ctx, &(struct sl_chat_out){&r.out, &r.spans}, &r.error),
        SLUICE_OK);
    uint64_t once = r.out.n;
    assert_int_equal(
        sl_chat_render(t, m, 1, &ctx, &(struct sl_chat_out){&r.out, &r.spans}, &r.error),
        SLUICE_OK);
    assert_int_equal(r.out.n, 2 * once);
    assert_int_equal(r.spans.count, 2);
    assert_int_equal(r.spans.spans[1].begin, r.spans.spans[0].begin + once);
    assert_int_equal(sl_chat_render(t, m, 1, &ctx, &(struct sl_chat_out){&r.out, NULL}, &r.error),
                     SLUICE_OK);
    assert_int_equal(r.out.n, 3 * once);
    rendering_deinit(&r);
}

int main(int argc, char **argv)
{
    if (argc > 1) golden_folder = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render__every_golden_case__equals_jinja),
        cmocka_unit_test(test_detect__stored_sources__are_known),
        cmocka_unit_test(test_detect__one_letter_changed__is_unknown),
        cmocka_unit_test(test_detect__other_spelling__is_the_same),
        cmocka_unit_test(test_detect__similar__is_refused),
        cmocka_unit_test(test_by_name__unknown__lists_the_names),
        cmocka_unit_test(test_render__unknown_role__names_the_message),
        cmocka_unit_test(test_render__budget_ends_anywhere__leaves_the_output_alone),
        cmocka_unit_test(test_render__twice__appends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
