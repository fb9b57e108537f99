/* The public API from several threads and from a signal handler: two sessions of one model at once,
 * different models at once, and cancelling from outside. Run under ThreadSanitizer, this proves
 * that what sluice.h calls safe is free of races. Workers only record; the main thread asserts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/sluice.h"

#define MODEL SLUICE_SOURCE_DIR "/tests/golden/qwen3moe-Q8_0/model.gguf"
#define N_IDS 400
#define ROUNDS 20

static int32_t ids[N_IDS];

static sluice_model *open_model(uint32_t threads)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_error e;
    sluice_model *m = NULL;

    o.threads = threads;
    o.chunk = 8;
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 31 + 7) % 500;
    if (sluice_model_open(MODEL, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return m;
}

static sluice_session *open_session(sluice_model *m)
{
    sluice_session *s = NULL;
    sluice_error e;

    if (sluice_session_open(m, &s, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return s;
}

struct worker {
    pthread_t thread;
    sluice_model *model;
    sluice_session *session;
    int done, refused, other; /* evaluations by outcome */
    float last[512];          /* logits after the last token */
};

/* Evaluates ROUNDS times; one that is refused because the other session runs is tried again. */
static void *evaluate(void *arg)
{
    struct worker *w = arg;
    sluice_error e;
    size_t count = 0;

    while (w->done < ROUNDS && w->other == 0) {
        sluice_err err = sluice_session_eval(w->session, ids, 40, NULL, &e);
        if (err == SLUICE_OK) err = sluice_session_eval(w->session, ids + 40, 1, w->last, &e);
        count = sluice_session_length(w->session);
        if (err == SLUICE_OK)
            w->done++;
        else if (err == SLUICE_E_STATE)
            w->refused++;
        else
            w->other++;
        if ((err == SLUICE_OK) != (count == 41)) w->other++;
        sluice_session_truncate(w->session, 0);
    }
    return NULL;
}

/* What is safe at any time: text, information, cancelling off. */
static void *ask(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < 200; i++) {
        int32_t out[64];
        size_t bytes = 0;
        sluice_ids list = {out, 64, 0};
        sluice_model_info info = SLUICE_MODEL_INFO_INIT;

        if (sluice_tokenize(w->model, "the thin end", 12, 0, &list, NULL) != SLUICE_OK) w->other++;
        (void)sluice_token_piece(w->model, i, 1, &bytes);
        sluice_model_get_info(w->model, &info);
        sluice_session_cancel(w->session, 0);
        w->done++;
    }
    return NULL;
}

static void run_workers(struct worker *w, int n, void *(*work)(void *))
{
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    for (int i = 0; i < n; i++) assert_int_equal(pthread_join(w[i].thread, NULL), 0);
}

static void test_sessions__two_of_one_model_at_once__one_is_refused(void **state)
{
    (void)state;
    static struct worker w[2];
    sluice_model *m = open_model(2);

    for (int i = 0; i < 2; i++) w[i] = (struct worker){.model = m, .session = open_session(m)};
    run_workers(w, 2, evaluate);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w[i].other, 0);
        assert_int_equal(w[i].done, ROUNDS);
        sluice_session_close(w[i].session);
    }
    assert_memory_equal(w[0].last, w[1].last, sizeof w[0].last);
    sluice_model_close(m);
}

static void test_models__two_at_once__independent(void **state)
{
    (void)state;
    static struct worker w[2];

    for (int i = 0; i < 2; i++) {
        w[i] = (struct worker){.model = open_model(2)};
        w[i].session = open_session(w[i].model);
    }
    run_workers(w, 2, evaluate);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w[i].refused + w[i].other, 0);
        sluice_session_close(w[i].session);
        sluice_model_close(w[i].model);
    }
    assert_memory_equal(w[0].last, w[1].last, sizeof w[0].last);
}

static void test_text__while_an_evaluation_runs__safe(void **state)
{
    (void)state;
    static struct worker w[3];
    sluice_model *m = open_model(2);
    sluice_session *s = open_session(m);

    for (int i = 0; i < 3; i++) w[i] = (struct worker){.model = m, .session = s};
    assert_int_equal(pthread_create(&w[0].thread, NULL, evaluate, &w[0]), 0);
    run_workers(w + 1, 2, ask);
    assert_int_equal(pthread_join(w[0].thread, NULL), 0);
    assert_int_equal(w[0].done, ROUNDS);
    assert_int_equal(w[0].refused + w[0].other + w[1].other + w[2].other, 0);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static sluice_session *cancel_target;
static atomic_bool running;

static void *cancel_soon(void *arg)
{
    (void)arg;
    while (!atomic_load(&running)) sched_yield();
    sluice_session_cancel(cancel_target, 1);
    return NULL;
}

static void on_alarm(int number)
{
    (void)number;
    sluice_session_cancel(cancel_target, 1);
}

/* Evaluates until a call is cancelled; the context must be what it was before that call. */
static void evaluate_until_cancelled(sluice_session *s)
{
    sluice_error e;
    sluice_err err = SLUICE_OK;

    atomic_store(&running, true);
    for (int i = 0; i < 100000 && err == SLUICE_OK; i++) {
        sluice_session_truncate(s, 3);
        err = sluice_session_eval(s, ids, N_IDS, NULL, &e);
    }
    assert_int_equal(err, SLUICE_E_CANCELLED);
    assert_int_equal(sluice_session_length(s), 3);
    sluice_session_cancel(s, 0);
    assert_int_equal(sluice_session_eval(s, ids, 5, NULL, &e), SLUICE_OK);
}

static void test_cancel__from_another_thread__context_as_before(void **state)
{
    (void)state;
    pthread_t thread;
    sluice_model *m = open_model(2);
    sluice_error e;

    cancel_target = open_session(m);
    assert_int_equal(sluice_session_eval(cancel_target, ids, 3, NULL, &e), SLUICE_OK);
    atomic_store(&running, false);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, NULL), 0);
    evaluate_until_cancelled(cancel_target);
    assert_int_equal(pthread_join(thread, NULL), 0);
    sluice_session_close(cancel_target);
    sluice_model_close(m);
}

static void test_cancel__from_a_signal_handler__context_as_before(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm}, old;
    struct itimerspec soon = {.it_value = {0, 3000000}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    sluice_model *m = open_model(2);
    sluice_error e;

    cancel_target = open_session(m);
    assert_int_equal(sluice_session_eval(cancel_target, ids, 3, NULL, &e), SLUICE_OK);
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &soon, NULL), 0);
    evaluate_until_cancelled(cancel_target);
    assert_int_equal(timer_delete(timer), 0);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    sluice_session_close(cancel_target);
    sluice_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions__two_of_one_model_at_once__one_is_refused),
        cmocka_unit_test(test_models__two_at_once__independent),
        cmocka_unit_test(test_text__while_an_evaluation_runs__safe),
        cmocka_unit_test(test_cancel__from_another_thread__context_as_before),
        cmocka_unit_test(test_cancel__from_a_signal_handler__context_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
