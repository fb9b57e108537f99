/* What the tests of the GGUF reader share: a budget that must be empty again after each test, the
 * last error, a scratch folder, and ways to open what was built. A test program includes this once,
 * after defining CASE_BUDGET_BYTES, the budget each test starts with. */
#ifndef SL_TEST_GGUF_CASE_H
#define SL_TEST_GGUF_CASE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <unistd.h>

#include "formats/gguf_internal.h"
#include "tests/support/gguf_build.h"

#define CASE_PATH_BYTES 128

static struct sl_budget budget;
static sluice_error error;
static char folder[] = "/tmp/sluice_test_gguf_XXXXXX";

static inline int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, CASE_BUDGET_BYTES);
    memset(&error, 0, sizeof error);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&budget.used_bytes), 0);
    return 0;
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

/* Fails where a test left a file behind. */
static inline int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static inline struct sl_gguf *open_built(const struct gguf_build *b)
{
    struct sl_gguf *g = NULL;
    sluice_err err = sl_gg_open_memory(b->p, b->n, &budget, &error, &g);

    if (err != SLUICE_OK) fail_msg("%s: %s", sl_err_name(err), error.text);
    return g;
}

static inline struct sl_gguf *open_path(const char *path)
{
    struct sl_gguf *g = NULL;
    sluice_err err = sl_gguf_open(path, &budget, &error, &g);

    if (err != SLUICE_OK) fail_msg("%s: %s", sl_err_name(err), error.text);
    return g;
}

static inline void path_in(char *path, const char *name)
{
    snprintf(path, CASE_PATH_BYTES, "%s/%s", folder, name);
}

static inline void assert_str(struct sl_str s, const char *wanted)
{
    if (!sl_str_eq(s, wanted)) fail_msg("'%.*s' is not '%s'", (int)s.n, s.p, wanted);
}

static inline void assert_mentions(const char *part)
{
    if (strstr(error.text, part) == NULL) fail_msg("'%s' does not mention '%s'", error.text, part);
}

#endif
