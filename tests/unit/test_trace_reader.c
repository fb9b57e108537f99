/* Two readers of one format: tools/dev/read_trace.py, written from docs/FORMAT.md alone, must find
 * in every trace file what Sluice's own reader finds, whole, cut or damaged. */
#define _GNU_SOURCE /* mkdtemp, popen */
#include "tests/support/trace_case.h"

#include <sys/wait.h>

static char folder[] = "/tmp/sluice_test_trace_reader_XXXXXX";
static char path[64];
static char found[4u << 20];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/t", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* Runs the second reader; what it prints is in found. Returns its exit code. */
static int run_reader(void)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s' '%s/tools/dev/read_trace.py' '%s' 2>/dev/null",
             SLUICE_PYTHON, SLUICE_SOURCE_DIR, path);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(found, 1, sizeof found - 1, p);
    found[n] = '\0';
    int status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Both read these bytes. Returns what ours ended with. */
static sluice_err assert_both_agree(const unsigned char *p, size_t n)
{
    struct trace_text ours = {0};
    write_bytes(path, p, n);
    sluice_err err = read_all(&ours, p, n);
    assert_int_equal(run_reader(), err == SLUICE_OK ? 0 : 1);
    assert_string_equal(found, ours.p != NULL ? ours.p : "");
    text_free(&ours);
    return err;
}

/* A trace of many blocks: numbers of all lengths, and all records again and again. */
static struct trace_bytes write_long(void)
{
    struct sl_trace_header h;
    struct sl_budget budget;
    struct trace_out o = {0};
    static float p[300];
    static uint16_t experts[300];
    case_header(&h);
    sl_budget_init(&budget, UINT64_MAX);
    assert_int_equal(sl_trace_create(path, &h, &budget, NULL, &o.w), SLUICE_OK);
    put_case(&o, true);
    for (uint32_t i = 0; i < 300; i++) {
        experts[i] = (uint16_t)(299 - i);
        p[i] = 1.0f / (float)(i * i + 3);
    }
    for (uint32_t i = 0; i < 60; i += 3) {
        uint64_t n = UINT64_C(1) << i;
        PUT(&o, SL_TRACE_HINT, hints, 2, (uint32_t)n, i % 2, i % 7 * 40, experts, p);
        PUT(&o, SL_TRACE_EVAL, eval, i, (uint32_t)n, 1, i % 2, 5001 + n);
        PUT(&o, SL_TRACE_LAYER, layer, 0, 1, 2, experts + 292, p, (const uint8_t[]){0, 6},
            (const uint8_t[]){0}, 1, n, 5001 + n, n - 1, n, n + 1);
        PUT(&o, SL_TRACE_READ, read, 2, 5 * i, i % 6, n, i % 2 == 0 ? n : 0, n);
        PUT(&o, SL_TRACE_DONE, done, 5001 + n, {n, 0, 1, n, n, n, n});
    }
    assert_int_equal(sl_trace_close(o.w, NULL), SLUICE_OK);
    text_free(&o.text);
    return read_bytes(path);
}

static void test_reader__a_whole_trace__finds_what_ours_finds(void **state)
{
    (void)state;
    struct trace_bytes b = write_long();
    assert_int_equal(assert_both_agree(b.p, b.n), SLUICE_OK);
    assert_non_null(strstr(found, "\"cut\":false"));
    free(b.p);
}

static void test_reader__cut__finds_what_ours_finds(void **state)
{
    (void)state;
    struct trace_bytes b = write_long();
    const uint64_t cuts[] = {0, 7, 8, 12, 200, 500, b.n - 3, b.n - 15, b.n - 1000};
    for (size_t i = 0; i < SL_ARRAY_LEN(cuts); i++) (void)assert_both_agree(b.p, cuts[i]);
    free(b.p);
}

/* Places all over the file, its first bytes and its last ones among them. */
static void test_reader__damaged__refused_by_both_or_cut_for_both(void **state)
{
    (void)state;
    struct trace_bytes b = write_long();
    const uint64_t places[] = {3, 8, 11, 15, 19, 100, 600, b.n / 2, b.n - 25, b.n - 11, b.n - 4};
    for (size_t i = 0; i < SL_ARRAY_LEN(places); i++) {
        b.p[places[i]] ^= 4;
        sluice_err err = assert_both_agree(b.p, b.n);
        b.p[places[i]] ^= 4;
        if (places[i] <= b.n / 2) assert_true(err != SLUICE_OK);
    }
    unsigned char *more = realloc(b.p, b.n + 1);
    assert_non_null(more);
    more[b.n] = 0;
    assert_int_equal(assert_both_agree(more, b.n + 1), SLUICE_E_FORMAT);
    free(more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader__a_whole_trace__finds_what_ours_finds),
        cmocka_unit_test(test_reader__cut__finds_what_ours_finds),
        cmocka_unit_test(test_reader__damaged__refused_by_both_or_cut_for_both),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
