/* Proves that conversations become the very text and ids that the reference makes of them: ten
 * conversations, rendered and tokenized by the transformers library with the vocabulary of Qwen 3.5
 * and 3.6, thinking on, off, and as the template has it.
 *
 * tests/conversations holds a part of that vocabulary, in which ids are smaller, with the list of
 * the ids in the whole one (tools/dev/make_conversation_golden.py). With the whole vocabulary as
 * argument its ids are compared as they are. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/sluice.h"

#define FOLDER SLUICE_SOURCE_DIR "/tests/conversations/"
#define MESSAGES_MAX 8
#define TEXT_MAX 4096

static const char *vocabulary = FOLDER "vocab.gguf";
static int whole; /* vocabulary is the whole one */

static FILE *open_file(const char *name, const char *suffix)
{
    char path[1024];
    (void)snprintf(path, sizeof path, FOLDER "%s%s", name, suffix);
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("cannot open %s", path);
    return f;
}

/* n bytes and the line end behind them, NUL-terminated. */
static char *read_text(FILE *f, size_t n)
{
    char *text = calloc(n + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, n, f), n);
    assert_int_equal(getc(f), '\n');
    return text;
}

/* ---- what is compared ------------------------------------------------------------------------ */

struct conversation {
    char name[32];
    char roles[MESSAGES_MAX][16];
    sluice_message messages[MESSAGES_MAX];
    uint32_t n;
};

static uint32_t read_conversations(struct conversation *list, uint32_t most)
{
    FILE *f = open_file("conversations", ".txt");
    uint32_t n = 0;
    while (n < most &&
           fscanf(f, "conversation %31s %" SCNu32 "\n", list[n].name, &list[n].n) == 2) {
        struct conversation *c = &list[n++];
        assert_true(c->n <= MESSAGES_MAX);
        for (uint32_t i = 0; i < c->n; i++) {
            size_t bytes;
            assert_int_equal(fscanf(f, "%15s %zu", c->roles[i], &bytes), 2);
            assert_int_equal(getc(f), '\n');
            c->messages[i] = (sluice_message){c->roles[i], read_text(f, bytes)};
        }
    }
    assert_true(feof(f));
    assert_int_equal(fclose(f), 0);
    return n;
}

static void free_conversations(struct conversation *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < list[i].n; k++)
            free((void *)(uintptr_t)list[i].messages[k].content);
}

/* The ids that the reference gives the tokens of this vocabulary. */
static int32_t *read_ids(uint32_t n)
{
    FILE *f = open_file("vocab", ".ids");
    int32_t *ids = calloc(n, sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < n && !whole; i++) assert_int_equal(fscanf(f, "%" SCNd32, &ids[i]), 1);
    for (uint32_t i = 0; i < n && whole; i++) ids[i] = (int32_t)i;
    assert_int_equal(fclose(f), 0);
    return ids;
}

static sluice_model *open_vocabulary(const char *template_name, int32_t **ids)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error e;
    sluice_model *m = NULL;
    o.flags = SLUICE_OPEN_VOCAB;
    o.chat_template = template_name;
    if (sluice_model_open(vocabulary, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    sluice_model_get_info(m, &info);
    *ids = read_ids(info.n_vocab);
    return m;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void compare_text(const sluice_model *m, const sluice_chat *chat, const char *want)
{
    char text[TEXT_MAX];
    size_t bytes;
    sluice_error e;
    if (sluice_chat_render(m, chat, text, sizeof text, &bytes, &e)) fail_msg("%s", e.text);
    assert_string_equal(text, want);
    assert_int_equal(bytes, strlen(want));
}

static void compare_ids(const sluice_model *m, const sluice_chat *chat, const int32_t *reference,
                        FILE *f)
{
    int32_t room[TEXT_MAX], want;
    sluice_ids ids = {room, TEXT_MAX, 0};
    sluice_error e;
    size_t n;
    if (sluice_chat_tokenize(m, chat, &ids, &e)) fail_msg("%s", e.text);
    assert_int_equal(fscanf(f, "%zu", &n), 1);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fscanf(f, "%" SCNd32, &want), 1);
        assert_true(i < ids.count);
        assert_int_equal(reference[room[i]], want);
    }
    assert_int_equal(ids.count, n);
    assert_int_equal(getc(f), '\n');
}

/* Returns how many cases there were. file: of the reference; template_name: NULL for the file's. */
static uint32_t compare(const char *file, const char *template_name)
{
    struct conversation list[16];
    int32_t *reference;
    char name[32];
    int32_t thinking;
    size_t bytes;
    uint32_t n_cases = 0;
    uint32_t n = read_conversations(list, 16);
    sluice_model *m = open_vocabulary(template_name, &reference);
    FILE *f = open_file(file, ".txt");
    while (fscanf(f, "case %31s %" SCNd32 " %zu", name, &thinking, &bytes) == 3) {
        uint32_t at = 0;
        assert_int_equal(getc(f), '\n');
        while (at < n && strcmp(list[at].name, name) != 0) at++;
        assert_true(at < n);
        char *text = read_text(f, bytes);
        const sluice_chat chat = {list[at].messages, list[at].n, thinking};
        compare_text(m, &chat, text);
        compare_ids(m, &chat, reference, f);
        free(text);
        n_cases++;
    }
    assert_true(feof(f));
    assert_int_equal(fclose(f), 0);
    sluice_model_close(m);
    free(reference);
    free_conversations(list, n);
    return n_cases;
}

static void test_conversations__qwen3_6_by_its_template__text_and_ids(void **state)
{
    (void)state;
    assert_int_equal(compare("qwen3.6", NULL), 30);
}

static void test_conversations__other_templates__text_and_ids(void **state)
{
    (void)state;
    assert_int_equal(compare("qwen3.5", "qwen3.5"), 30);
    assert_int_equal(compare("qwen3-instruct", "qwen3-instruct"), 10);
    assert_int_equal(compare("qwen3-thinking", "qwen3-thinking"), 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations__qwen3_6_by_its_template__text_and_ids),
        cmocka_unit_test(test_conversations__other_templates__text_and_ids),
    };
    whole = argc > 1;
    if (whole) vocabulary = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
