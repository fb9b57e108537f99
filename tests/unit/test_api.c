/* The public API on golden models: evaluation and generation, cancel, limits, failures of memory at
 * every point, handles that are used wrongly. Links the engine as an application would, by
 * sluice.h. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/api.h" /* for allocation faults only */
#include "include/sluice.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define MODEL GOLDEN "qwen3moe-Q8_0/model.gguf"
#define SHARED GOLDEN "qwen2moe-Q8_0/model.gguf"

static sluice_model *open_model(const char *path, uint32_t threads, uint32_t chunk)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = threads;
    o.chunk = chunk;
    sluice_error e;
    sluice_model *m = NULL;
    if (sluice_model_open(path, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return m;
}

static sluice_session *open_session(sluice_model *m)
{
    sluice_error e;
    sluice_session *s = NULL;
    assert_int_equal(sluice_session_open(m, &s, &e), SLUICE_OK);
    return s;
}

static const int32_t prompt[] = {5,  17, 301, 44, 120, 8,  99,  256, 3,   400,
                                 77, 12, 13,  14, 15,  16, 500, 499, 498, 1};
#define N_PROMPT 20

struct text {
    char p[4096];
    size_t n;
    int stop_after; /* pieces; 0: never */
};

static int collect(void *user, const char *p, size_t n)
{
    struct text *t = user;
    assert_true(t->n + n < sizeof t->p);
    memcpy(t->p + t->n, p, n);
    t->n += n;
    return t->stop_after > 0 && --t->stop_after == 0;
}

static sluice_result generate(sluice_session *s, sluice_generate_options *o, struct text *t)
{
    o->on_text = collect;
    o->user = t;
    sluice_result r = SLUICE_RESULT_INIT;
    sluice_error e;
    if (sluice_generate(s, prompt, N_PROMPT, o, &r, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return r;
}

/* ---- evaluation ------------------------------------------------------------------------- */

static void test_eval__split_anyhow__same_bits(void **state)
{
    (void)state;
    static const char *const models[] = {MODEL, SHARED,
                                         GOLDEN "llama-KMIX-features/model-00002-of-00003.gguf"};
    for (size_t i = 0; i < SL_ARRAY_LEN(models); i++) {
        sluice_model *m = open_model(models[i], 1, 64);
        sluice_model_info info = SLUICE_MODEL_INFO_INIT;
        sluice_model_get_info(m, &info);
        float *whole = calloc(N_PROMPT, info.n_vocab * sizeof *whole),
              *parts = calloc(N_PROMPT, info.n_vocab * sizeof *parts);
        sluice_session *s = open_session(m);
        int32_t ids[N_PROMPT];
        for (int t = 0; t < N_PROMPT; t++) ids[t] = prompt[t] % (int32_t)info.n_vocab;
        assert_int_equal(sluice_session_eval(s, ids, N_PROMPT, whole, NULL), SLUICE_OK);
        sluice_session_truncate(s, 0);
        static const size_t steps[] = {1, 2, 7, 10};
        for (size_t at = 0, k = 0; at < N_PROMPT; at += steps[k++])
            assert_int_equal(
                sluice_session_eval(s, ids + at, steps[k], parts + at * info.n_vocab, NULL),
                SLUICE_OK);
        assert_memory_equal(whole, parts, N_PROMPT * info.n_vocab * sizeof *whole);
        assert_int_equal(sluice_session_length(s), N_PROMPT);
        free(whole);
        free(parts);
        sluice_session_close(s);
        sluice_model_close(m);
    }
}

static void test_eval__bad_ids__error_and_context_unchanged(void **state)
{
    (void)state;
    sluice_model *m = open_model(MODEL, 1, 4);
    sluice_session *s = open_session(m);
    sluice_error e;
    assert_int_equal(sluice_session_eval(s, prompt, 5, NULL, &e), SLUICE_OK);
    int32_t bad[] = {1, 2, -1}, high[] = {1, 1 << 20};
    assert_int_equal(sluice_session_eval(s, bad, 3, NULL, &e), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "token 2 is -1"));
    assert_int_equal(sluice_session_eval(s, high, 2, NULL, &e), SLUICE_E_ARG);
    assert_int_equal(sluice_session_eval(s, prompt, 0, NULL, &e), SLUICE_E_ARG);
    assert_int_equal(sluice_session_length(s), 5);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_eval__past_the_context__context_full_with_counts(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.n_ctx = 16;
    o.threads = 1;
    sluice_model *m;
    sluice_error e;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_OK);
    sluice_session *s = open_session(m);
    assert_int_equal(sluice_session_eval(s, prompt, N_PROMPT, NULL, &e), SLUICE_E_CONTEXT_FULL);
    assert_non_null(strstr(e.text, "20 tokens"));
    assert_non_null(strstr(e.text, "16 tokens"));
    assert_int_equal(sluice_session_eval(s, prompt, 16, NULL, &e), SLUICE_OK);
    assert_int_equal(sluice_session_eval(s, prompt, 1, NULL, &e), SLUICE_E_CONTEXT_FULL);
    sluice_result r = SLUICE_RESULT_INIT;
    assert_int_equal(sluice_generate(s, prompt, N_PROMPT, NULL, &r, &e), SLUICE_E_CONTEXT_FULL);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_eval__cancelled__error_then_works_again(void **state)
{
    (void)state;
    sluice_model *m = open_model(MODEL, 2, 4);
    sluice_session *s = open_session(m);
    sluice_error e;
    sluice_session_cancel(s, 1);
    assert_int_equal(sluice_session_eval(s, prompt, N_PROMPT, NULL, &e), SLUICE_E_CANCELLED);
    assert_int_equal(sluice_session_length(s), 0);
    sluice_session_cancel(s, 0);
    assert_int_equal(sluice_session_eval(s, prompt, N_PROMPT, NULL, &e), SLUICE_OK);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* ---- generation ------------------------------------------------------------------------- */

static void test_generate__same_seed__same_text_for_any_threads_and_chunk(void **state)
{
    (void)state;
    struct text first = {.n = 0};
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (uint32_t chunk = 1; chunk <= 33; chunk += 16) {
            sluice_model *m = open_model(MODEL, threads, chunk);
            sluice_session *s = open_session(m);
            sluice_generate_options o = SLUICE_GENERATE_INIT;
            o.seed = 7;
            o.max_tokens = 40;
            o.ignore_end = 1;
            struct text t = {.n = 0};
            sluice_result r = generate(s, &o, &t);
            assert_int_equal(r.generated_tokens, 40);
            assert_int_equal(r.stop, SLUICE_STOP_LIMIT);
            assert_int_equal(r.prompt_tokens, N_PROMPT);
            if (first.n == 0) first = t;
            assert_int_equal(t.n, first.n);
            assert_memory_equal(t.p, first.p, t.n);
            sluice_session_close(s);
            sluice_model_close(m);
        }
}

static void test_generate__second_turn__common_start_is_reused(void **state)
{
    (void)state;
    sluice_model *m = open_model(MODEL, 1, 8);
    sluice_session *s = open_session(m);
    sluice_generate_options o = SLUICE_GENERATE_INIT;
    o.temperature = 0.0f;
    o.max_tokens = 8;
    o.ignore_end = 1;
    struct text one = {.n = 0}, two = {.n = 0};
    assert_int_equal(generate(s, &o, &one).reused_tokens, 0);
    sluice_result r = generate(s, &o, &two); /* the same prompt: all but its last token is there */
    assert_int_equal(r.reused_tokens, N_PROMPT - 1);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.p, two.p, one.n);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_generate__stop_string__cut_exactly_even_across_tokens(void **state)
{
    (void)state;
    sluice_model *m = open_model(MODEL, 1, 64);
    sluice_session *s = open_session(m);
    sluice_generate_options o = SLUICE_GENERATE_INIT;
    o.temperature = 0.0f;
    o.max_tokens = 30;
    o.ignore_end = 1;
    struct text all = {.n = 0};
    generate(s, &o, &all);
    assert_true(all.n > 20);
    for (size_t at = 5; at + 6 < all.n; at += 4) {
        char stop[7] = {0};
        memcpy(stop, all.p + at, 6);
        if (memchr(stop, 0, 6)) continue;
        const char *list[] = {stop};
        o.stop = list;
        o.n_stop = 1;
        struct text t = {.n = 0};
        sluice_result r = generate(s, &o, &t);
        size_t want = (size_t)((char *)memmem(all.p, all.n, stop, 6) - all.p);
        assert_int_equal(r.stop, SLUICE_STOP_STRING);
        assert_int_equal(t.n, want);
        assert_memory_equal(t.p, all.p, want);
    }
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_generate__callback_stops__told_so(void **state)
{
    (void)state;
    sluice_model *m = open_model(MODEL, 1, 64);
    sluice_session *s = open_session(m);
    sluice_generate_options o = SLUICE_GENERATE_INIT;
    o.ignore_end = 1;
    struct text t = {.stop_after = 3};
    assert_int_equal(generate(s, &o, &t).stop, SLUICE_STOP_CALLBACK);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_generate__context_runs_full__stop_context(void **state)
{
    (void)state;
    sluice_options opt = SLUICE_OPTIONS_INIT;
    opt.n_ctx = 32;
    opt.threads = 1;
    sluice_model *m;
    assert_int_equal(sluice_model_open(MODEL, &opt, &m, NULL), SLUICE_OK);
    sluice_session *s = open_session(m);
    sluice_generate_options o = SLUICE_GENERATE_INIT;
    o.ignore_end = 1;
    struct text t = {.n = 0};
    sluice_result r = generate(s, &o, &t);
    assert_int_equal(r.stop, SLUICE_STOP_CONTEXT);
    assert_int_equal(r.generated_tokens, 32 - N_PROMPT + 1);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* ---- opening ---------------------------------------------------------------------------- */

static void test_open__small_ram__refused_with_a_budget_that_works(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = 1;
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_error e;
    assert_int_equal(sluice_memory_plan(MODEL, &o, &p, &e), SLUICE_OK);
    assert_true(p.minimum_bytes <= p.total_bytes);
    sluice_model *m;
    o.ram_bytes = p.minimum_bytes - 4096;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_E_BUDGET);
    assert_null(m);
    assert_non_null(strstr(e.text, "--ram"));
    o.ram_bytes = p.minimum_bytes;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_OK);
    sluice_session *s = open_session(m);
    assert_int_equal(sluice_session_eval(s, prompt, N_PROMPT, NULL, &e), SLUICE_OK);
    sluice_stats st = SLUICE_STATS_INIT;
    sluice_session_get_stats(s, &st);
    assert_true(st.budget_peak_bytes + API_PROCESS_BYTES <= p.minimum_bytes);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_open__wrong_arguments__error(void **state)
{
    (void)state;
    sluice_model *m;
    sluice_error e;
    assert_int_equal(sluice_model_open("", NULL, &m, &e), SLUICE_E_ARG);
    assert_int_equal(sluice_model_open("/no/such/file.gguf", NULL, &m, &e), SLUICE_E_NOT_FOUND);
    assert_non_null(strstr(e.text, "/no/such/file.gguf"));
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = 1000;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_E_ARG);
    o = (sluice_options)SLUICE_OPTIONS_INIT;
    o.struct_size = 0;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_E_ARG);
    o = (sluice_options)SLUICE_OPTIONS_INIT;
    o.chat_template = "nonsense";
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_E_TEMPLATE);
}

static void test_open__longer_options_struct__taken_only_if_the_rest_is_zero(void **state)
{
    (void)state;
    struct {
        sluice_options o;
        uint64_t future;
    } next = {SLUICE_OPTIONS_INIT, 0};
    next.o.struct_size = sizeof next;
    sluice_model *m;
    sluice_error e;
    assert_int_equal(sluice_model_open(MODEL, &next.o, &m, &e), SLUICE_OK);
    sluice_model_close(m);
    next.future = 1;
    assert_int_equal(sluice_model_open(MODEL, &next.o, &m, &e), SLUICE_E_UNSUPPORTED);
}

static void test_open__vocabulary_only__tokenizes_but_does_not_evaluate(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.flags = SLUICE_OPEN_VOCAB;
    sluice_model *m;
    sluice_error e;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_OK);
    int32_t ids[64];
    sluice_ids out = {NULL, 0, 0};
    assert_int_equal(sluice_tokenize(m, "hello there", 11, 0, &out, &e), SLUICE_E_LIMIT);
    assert_true(out.count > 0 && out.count < 64);
    out = (sluice_ids){ids, 64, 0};
    assert_int_equal(sluice_tokenize(m, "hello there", 11, 0, &out, &e), SLUICE_OK);
    sluice_session *s;
    assert_int_equal(sluice_session_open(m, &s, &e), SLUICE_E_STATE);
    char key[64], value[64];
    assert_int_equal(sluice_model_get_meta(m, 0, key, sizeof key, value, sizeof value), 1);
    sluice_tensor t = SLUICE_TENSOR_INIT;
    assert_int_equal(sluice_model_get_tensor(m, 0, &t), 1);
    assert_int_equal(sluice_model_get_tensor(m, 100000, &t), 0);
    sluice_model_close(m);
}

static int stop_loading(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_true(done <= total);
    return done * 2 > total;
}

static void test_open__progress_gives_up__cancelled(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.progress = stop_loading;
    sluice_model *m;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, NULL), SLUICE_E_CANCELLED);
    assert_null(m);
}

/* ---- memory fails at every point -------------------------------------------------------- */

/* A budget refuses its n-th charge; for every n the call must fail cleanly, and the next one work.
 */
static void test_session__every_allocation_fails_in_turn__clean_error_then_works(void **state)
{
    (void)state;
    sluice_model *m = open_model(MODEL, 1, 4);
    uint64_t before = sl_budget_used(&m->budget);
    int n = 0, mended = 0;
    for (;; n++) {
        assert_true(n < 2000);
        sluice_session *s = NULL;
        sluice_error e;
        m->budget.fail_after = n;
        sluice_err err = sluice_session_open(m, &s, &e);
        if (err == SLUICE_OK) {
            sluice_generate_options o = SLUICE_GENERATE_INIT;
            o.max_tokens = 3;
            o.ignore_end = 1;
            struct text t = {.n = 0};
            o.on_text = collect;
            o.user = &t;
            err = sluice_generate(s, prompt, N_PROMPT, &o, NULL, &e);
            bool met = m->budget.fail_after < 0; /* a met fault leaves -1 */
            m->budget.fail_after = -1;
            if (met) { /* KV cache and list of ids try again once slots have made room */
                mended += err == SLUICE_OK;
                assert_int_equal(sluice_generate(s, prompt, N_PROMPT, &o, NULL, &e), SLUICE_OK);
            }
            sluice_session_close(s);
            if (!met) break;
        }
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        assert_int_equal(sluice_model_trim(m, SLUICE_TRIM_RESTORE, &e), SLUICE_OK);
        assert_int_equal(sl_budget_used(&m->budget), before);
    }
    assert_true(n > 8 && mended <= 2);
    m->budget.fail_after = -1;
    assert_int_equal(sl_budget_used(&m->budget), before);
    sluice_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eval__split_anyhow__same_bits),
        cmocka_unit_test(test_eval__bad_ids__error_and_context_unchanged),
        cmocka_unit_test(test_eval__past_the_context__context_full_with_counts),
        cmocka_unit_test(test_eval__cancelled__error_then_works_again),
        cmocka_unit_test(test_generate__same_seed__same_text_for_any_threads_and_chunk),
        cmocka_unit_test(test_generate__second_turn__common_start_is_reused),
        cmocka_unit_test(test_generate__stop_string__cut_exactly_even_across_tokens),
        cmocka_unit_test(test_generate__callback_stops__told_so),
        cmocka_unit_test(test_generate__context_runs_full__stop_context),
        cmocka_unit_test(test_open__small_ram__refused_with_a_budget_that_works),
        cmocka_unit_test(test_open__wrong_arguments__error),
        cmocka_unit_test(test_open__longer_options_struct__taken_only_if_the_rest_is_zero),
        cmocka_unit_test(test_open__vocabulary_only__tokenizes_but_does_not_evaluate),
        cmocka_unit_test(test_open__progress_gives_up__cancelled),
        cmocka_unit_test(test_session__every_allocation_fails_in_turn__clean_error_then_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
