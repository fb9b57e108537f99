/* Opening under every budget from nothing to enough: whatever point of the opening runs out of
 * memory, the answer is SLUICE_E_BUDGET with the budget that works, nothing leaks (AddressSanitizer
 * watches), and that budget does work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/sluice.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define STEPS 100

static const int32_t ids[] = {5, 17, 301, 44, 120};

/* The number of MiB in "--ram 12M" of an error. */
static uint64_t advised_bytes(const char *text)
{
    const char *at = strstr(text, "--ram ");
    char *end = NULL;

    if (at == NULL) fail_msg("no budget is named: %s", text);
    uint64_t mib = strtoull(at + 6, &end, 10);
    if (*end != 'M' || mib == 0) fail_msg("no size is named: %s", text);
    return mib << 20;
}

static void use(sluice_model *m)
{
    sluice_session *s = NULL;
    sluice_error e;

    if (sluice_session_open(m, &s, &e) != SLUICE_OK) fail_msg("%s", e.text);
    if (sluice_session_eval(s, ids, 5, NULL, &e) != SLUICE_OK) fail_msg("%s", e.text);
    sluice_session_close(s);
}

/* Sweeps budgets between low and high. Returns how many were refused. */
static uint64_t sweep(const char *path, uint32_t n_ctx, uint64_t low, uint64_t high)
{
    uint64_t refused = 0;

    for (uint64_t i = 0; i <= STEPS; i++) {
        sluice_options o = SLUICE_OPTIONS_INIT;
        sluice_model *m = NULL;
        sluice_error e;

        o.threads = 1;
        o.n_ctx = n_ctx;
        o.ram_bytes = low + (high - low) * i / STEPS;
        sluice_err err = sluice_model_open(path, &o, &m, &e);
        if (err != SLUICE_OK) {
            refused++;
            assert_null(m);
            if (err != SLUICE_E_BUDGET) fail_msg("%s: %s", sluice_err_name(err), e.text);
            uint64_t advised = advised_bytes(e.text);
            assert_true(advised > o.ram_bytes);
            if (i % 20 != 0) continue;
            o.ram_bytes = advised;
            if (sluice_model_open(path, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
        }
        use(m);
        sluice_model_close(m);
    }
    return refused;
}

static void test_open__every_budget__works_or_names_one_that_does(void **state)
{
    (void)state;
    static const char *const models[] = {GOLDEN "qwen3moe-Q8_0/model.gguf",
                                         GOLDEN "granitemoe-shared-Q8_0/model.gguf",
                                         GOLDEN "llama-KMIX-features/model-00002-of-00003.gguf"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        sluice_options o = SLUICE_OPTIONS_INIT;
        sluice_plan p = SLUICE_PLAN_INIT;
        sluice_error e;

        o.threads = 1;
        if (sluice_memory_plan(models[i], &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
        uint64_t near = p.minimum_bytes - 65536;
        assert_true(sweep(models[i], 0, p.process_bytes - 4096, p.total_bytes + 65536) > STEPS / 2);
        assert_true(sweep(models[i], 0, near, p.minimum_bytes + 65536) > STEPS / 4);
        o.n_ctx = 33;
        if (sluice_memory_plan(models[i], &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
        near = p.minimum_bytes - 65536;
        assert_true(sweep(models[i], 33, near, p.minimum_bytes + 65536) > STEPS / 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open__every_budget__works_or_names_one_that_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
