/* Two readers of one format: tools/dev/read_container.py, written from docs/FORMAT.md alone, must
 * list of every container, whole or in parts, what Sluice's own reader finds in it, and refuse what
 * is damaged. */
#define _GNU_SOURCE /* mkdtemp, popen */
#include "tests/support/container_case.h"

#include <inttypes.h>
#include <sys/wait.h>

#define OUTPUT_MAX (1 << 20)

static char expected[OUTPUT_MAX], found[OUTPUT_MAX];
static size_t length; /* of expected */

/* Runs the reader; its output is in found. Returns its exit code. */
static int run_reader(const char *path, const char *options)
{
    char command[1024];

    snprintf(command, sizeof command, "'%s' '%s/tools/dev/read_container.py' '%s' %s 2>&1",
             SLUICE_PYTHON, SLUICE_SOURCE_DIR, path, options);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(found, 1, sizeof found - 1, p);
    found[n] = '\0';
    int status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- what our reader finds, in its words -----------------------------------------------------
 */

static void say(const char *fmt, ...) SL_PRINTF(1, 2);
static void say(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(expected + length, sizeof expected - length, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof expected - length);
    length += (size_t)n;
}

static void say_hex(const unsigned char *p, const unsigned char *end)
{
    for (; p < end; p++) say("%02x", *p);
}

static void say_recipe(struct sl_str s)
{
    if (s.n == 0) say("-");
    say_hex((const unsigned char *)s.p, (const unsigned char *)s.p + s.n);
    say("\n");
}

/* A value ends where the next key's name begins, or the header does. */
static void say_keys(const struct sl_gguf *g)
{
    const struct sl_gg_meta *m = &g->head.meta;
    const unsigned char *end = g->head.c.base + g->head.c.at;

    for (uint32_t i = 0; i < m->n_keys; i++) {
        const struct sl_gg_key *k = &m->keys[i];
        uint32_t before = k->kind == SL_GGUF_ARRAY ? 12 : k->kind == SL_GGUF_STRING ? 8 : 0;

        say("key %.*s %" PRIu32 " ", (int)k->name.n, k->name.p, k->kind);
        say_hex(k->data - before, i + 1 < m->n_keys ? (const unsigned char *)k[1].name.p - 8 : end);
        say("\n");
    }
}

static void say_container(struct sl_container *c)
{
    const struct sl_gguf *g = sl_container_model(c);
    uint64_t total = 0;

    length = 0;
    for (uint32_t i = 0; i < sl_gguf_n_files(g); i++) total += sl_file_bytes(sl_gguf_file(g, i));
    say("container %" PRIu32 " %" PRIu64 " %016" PRIx64 " ", sl_gguf_n_files(g), total,
        sl_gguf_source(sl_container_model(c)));
    say_recipe(sl_gguf_recipe(sl_container_model(c)));
    say_keys(g);
    for (uint64_t i = 0; i < sl_container_n_records(c); i++) {
        const struct sl_container_record *r = sl_container_record(c, i);

        say("record %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRId32 " %" PRId32 " %016" PRIx64 "\n",
            r->part, r->offset, r->bytes, r->layer, r->expert, r->sum);
    }
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);

        say("tensor %.*s %" PRIu32 " ", (int)t->name.n, t->name.p, t->type);
        for (uint32_t d = 0; d < t->n_dims; d++) say("%s%" PRIu64, d > 0 ? "x" : "", t->dims[d]);
        say(" %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", t->shard, t->offset, t->bytes);
    }
}

/* ---- tests -----------------------------------------------------------------------------------
 */

static void assert_both_agree(const char *path)
{
    char asked[CASE_PATH_BYTES + 32];

    snprintf(asked, sizeof asked, "%s", path); /* path is overwritten by the next case_part */
    struct sl_container *c = case_open(asked);
    say_container(c);
    sl_container_close(c);
    int code = run_reader(asked, "--sums");
    if (code != 0) fail_msg("exit code %d: %s", code, found);
    assert_string_equal(found, expected);
}

static void test_reader__a_container__lists_what_ours_finds(void **state)
{
    (void)state;
    case_write_ok();
    assert_both_agree(cc.path);
    case_clean();
}

static void test_reader__parts__any_of_them_lists_all(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    case_write_ok();
    uint32_t n = case_n_parts();
    for (uint32_t i = 0; i < n; i++) assert_both_agree(case_part(i, n, ""));
    case_clean();
}

static void test_reader__nothing_in_it__lists_nothing(void **state)
{
    struct gguf_build b;
    (void)state;
    gb_begin(&b, 3);
    struct sl_gguf *empty = open_built(&b);
    cc.plan.meta = empty;
    cc.plan.n_tensors = 0;
    cc.plan.recipe = SL_STR("");
    case_write_ok();
    assert_both_agree(cc.path);
    sl_gguf_close(empty);
    gb_end(&b);
    case_clean();
}

/* A byte of the header, of the sums of sheets, of resident weights, of an expert, of the index. */
static void test_reader__damage_anywhere__refused(void **state)
{
    (void)state;
    case_write_ok();
    struct case_bytes all = case_read(cc.path);
    const size_t places[] = {3,
                             30,
                             10000,
                             16380,
                             SL_CN_HEADER_BYTES + 100,
                             SL_CN_HEADER_BYTES + 70000,
                             all.n - 3 * SL_CN_ALIGN,
                             all.n - SL_CN_ALIGN + 20,
                             all.n - 1};
    for (size_t i = 0; i < SL_ARRAY_LEN(places); i++) {
        all.p[places[i]] ^= 4;
        case_put(cc.path, all.p, all.n);
        all.p[places[i]] ^= 4;
        assert_int_equal(run_reader(cc.path, "--sums"), 1);
        assert_non_null(strstr(found, "read_container: "));
    }
    case_put(cc.path, all.p, all.n - SL_CN_ALIGN);
    assert_int_equal(run_reader(cc.path, "--sums"), 1);
    free(all.p);
    case_clean();
}

/* A matrix unpacked by sl_sq_unpack, in the form of the reader's --weights. */
static void say_weights(const struct sl_gguf_tensor *t, const unsigned char *bytes)
{
    const struct sl_sq_info *info = sl_sq_info(t->type);
    uint64_t rows = t->dims[1], cols = t->dims[0], at = 0, band = 8 * t->row_bytes;
    unsigned char *out = calloc(rows * (2 + 2 * cols) + 256, 1);
    assert_non_null(out);
    for (uint64_t r = 0; r < rows; r++) {
        memcpy(out + at, bytes + r / 8 * band + 2 * (r % 8), 2);
        at += 2;
        for (uint64_t u = 0; u < cols / 32; u++) {
            struct sl_sq_unit unit;
            sl_sq_unpack(info, bytes + r / 8 * band + 16 + u * info->unit_bytes, &unit);
            const struct sl_sq_row *row = &unit.row[r % 8];
            for (uint32_t c = 0; c < 32; c++, at += 2) {
                int16_t w = (int16_t)(row->m[c / 16] * row->v[c]);
                memcpy(out + at, &w, 2);
            }
        }
    }
    say("weights %.*s %016" PRIx64 "\n", (int)t->name.n, t->name.p, sl_xxh3(out, at + 256));
    free(out);
}

static void test_reader__own_weight_types__unpacked_to_the_same_integers(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; i < cc.plan.n_tensors; i++)
        if (cc.tensors[i].type == SL_SQ3_32 || cc.tensors[i].type == SL_TYPE_Q4_K)
            cc.tensors[i].type = SL_SQ_FIRST + n++ % SL_SQ_TYPES;
    assert_true(n >= SL_SQ_TYPES);
    case_write_ok();
    struct case_bytes all = case_read(cc.path);
    struct sl_container *c = case_open(cc.path);
    const struct sl_gguf *g = sl_container_model(c);
    length = 0;
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        if (sl_sq_info(t->type) != NULL) say_weights(t, all.p + t->offset);
    }
    int code = run_reader(cc.path, "--weights");
    if (code != 0) fail_msg("exit code %d: %s", code, found);
    assert_string_equal(strstr(found, "weights "), expected);
    sl_container_close(c);
    free(all.p);
    case_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE_TEST(test_reader__own_weight_types__unpacked_to_the_same_integers),
        CASE_TEST(test_reader__a_container__lists_what_ours_finds),
        CASE_TEST(test_reader__parts__any_of_them_lists_all),
        CASE_TEST(test_reader__nothing_in_it__lists_nothing),
        CASE_TEST(test_reader__damage_anywhere__refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
