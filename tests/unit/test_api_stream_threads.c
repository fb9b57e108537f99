/* Streaming models and threads: cancelling and trimming from outside while reads are under way, the
 * sessions of one model taking turns, and handles that wander from thread to thread, some of which
 * end in between (the kernel drops what a thread that ends has asked of io_uring). Run under
 * ThreadSanitizer, this proves that what sluice.h calls safe is free of races. Workers only record;
 * the main thread asserts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/support/stream_rig.h"

#define MODEL SLUICE_SOURCE_DIR "/tests/golden/qwen3moe-Q8_0/model.gguf"
#define SLOTS 2
#define N_IDS 40
#define ROUNDS 12

/* Reads that are late enough to be met in the middle. */
static const struct sl_io_fault_plan late = {SL_IO_FAULT_DELAY, 0, 1, UINT64_MAX, 100000, 0, 0};

static const struct {
    const char *name;
    uint32_t io, prefetch, threads;
} ways[] = {
    {"pread, no prefetch", SLUICE_IO_PREAD, SLUICE_PREFETCH_OFF, 1},
    {"pread, prefetch", SLUICE_IO_PREAD, SLUICE_PREFETCH_FORCED, 2},
    {"io_uring, no prefetch", SLUICE_IO_URING, SLUICE_PREFETCH_OFF, 2},
    {"io_uring, prefetch", SLUICE_IO_URING, SLUICE_PREFETCH_FORCED, 1},
};
#define N_WAYS (sizeof ways / sizeof ways[0])

static float *right; /* the logits, from a model that does not stream */

static struct rig prepare(size_t way, uint32_t slots)
{
    struct stream_setup u = STREAM_PLAIN;

    u.slots = slots;
    u.io = ways[way].io;
    u.prefetch = ways[way].prefetch;
    u.threads = ways[way].threads;
    u.chunk = 8;
    struct rig g = {.path = MODEL, .setup = u, .fail_after = -1, .right = right};
    rig_set_text(&g, N_IDS);
    return g;
}

static int compute_right(void **state)
{
    (void)state;
    struct rig g = prepare(0, 0);
    right = rig_reference(&g);
    return 0;
}

static int forget_right(void **state)
{
    (void)state;
    free(right);
    return 0;
}

/* ---- cancelling ------------------------------------------------------------------------------ */

struct canceller {
    pthread_t thread;
    sluice_session *session;
    atomic_bool running;
    int yields; /* how long it waits once the evaluation runs */
};

static void *cancel_soon(void *arg)
{
    struct canceller *c = arg;

    while (!atomic_load(&c->running)) sched_yield();
    for (int i = 0; i < c->yields; i++) sched_yield();
    sluice_session_cancel(c->session, 1);
    return NULL;
}

/* Reads the text again and again until a call is cancelled. Its context is what it was before. */
static void read_until_cancelled(struct rig *g, struct canceller *c)
{
    sluice_err err = SLUICE_OK;
    sluice_error e = {0};

    atomic_store(&c->running, true);
    for (int i = 0; i < 100000 && err == SLUICE_OK; i++) {
        sluice_session_truncate(g->session, 3);
        err = sluice_session_eval(g->session, g->text.ids + 3, N_IDS - 3, NULL, &e);
    }
    if (err != SLUICE_E_CANCELLED) fail_msg("%s: %s", sluice_err_name(err), e.text);
    assert_int_equal(sluice_session_length(g->session), 3);
}

static void test_cancel__while_reads_fly__context_as_before_then_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_WAYS * ROUNDS; i++) {
        struct rig g = prepare(i % N_WAYS, SLOTS);
        struct canceller c = {.yields = (int)(i / N_WAYS) * 20};
        sluice_error e;

        if (!rig_open(&g)) continue;
        rig_set(&g, &late);
        assert_int_equal(sluice_session_eval(g.session, g.text.ids, 3, NULL, &e), SLUICE_OK);
        c.session = g.session;
        assert_int_equal(pthread_create(&c.thread, NULL, cancel_soon, &c), 0);
        read_until_cancelled(&g, &c);
        assert_int_equal(pthread_join(c.thread, NULL), 0);
        sluice_session_cancel(g.session, 0);
        rig_read_right(&g);
        rig_close(&g);
    }
}

/* ---- trimming -------------------------------------------------------------------------------- */

struct trimmer {
    pthread_t thread;
    sluice_model *model;
    atomic_bool stop;
    int calls, failed;
};

static void *trim_often(void *arg)
{
    static const uint32_t levels[] = {SLUICE_TRIM_SOME,    SLUICE_TRIM_RESTORE, SLUICE_TRIM_HALF,
                                      SLUICE_TRIM_ALL,     SLUICE_TRIM_RESTORE, SLUICE_TRIM_ALL,
                                      SLUICE_TRIM_RESTORE, SLUICE_TRIM_SOME};
    struct trimmer *t = arg;

    do { /* once at least: on a busy machine the thread may begin late */
        t->failed += sluice_model_trim(t->model, levels[t->calls % 8], NULL) != SLUICE_OK;
        t->calls++;
        for (int i = 0; i < 5; i++) sched_yield();
    } while (!atomic_load(&t->stop));
    return NULL;
}

static void test_trim__from_another_thread__same_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_WAYS; i++) {
        struct rig g = prepare(i % N_WAYS, i < N_WAYS ? 0 : 17);
        struct trimmer t = {0};
        size_t row = 0;
        int wrong = 0;
        sluice_error e = {0};
        sluice_err err = SLUICE_OK;

        if (!rig_open(&g)) continue;
        t.model = g.model;
        assert_int_equal(pthread_create(&t.thread, NULL, trim_often, &t), 0);
        for (int k = 0; k < ROUNDS && err == SLUICE_OK; k++) {
            sluice_stats st = SLUICE_STATS_INIT;
            err = rig_read(&g, &e);
            wrong += !stream_equal(&g.text, g.got, g.right, &row);
            sluice_session_get_stats(g.session, &st);
            wrong += st.n_slots_open < SLOTS || st.n_slots_open > st.n_slots;
        }
        atomic_store(&t.stop, true);
        assert_int_equal(pthread_join(t.thread, NULL), 0);
        if (err != SLUICE_OK) fail_msg("%s: %s", sluice_err_name(err), e.text);
        assert_int_equal(wrong, 0);
        assert_int_equal(t.failed, 0);
        assert_true(t.calls > 0);
        rig_close(&g);
    }
}

/* A second session may take slots: for ThreadSanitizer, which sees whether the trimmer waits. */
static void test_session_open__while_another_thread_trims__waits_for_it(void **state)
{
    (void)state;
    struct rig g = prepare(0, 17);
    struct trimmer t = {0};
    sluice_error e = {0};
    sluice_err err = SLUICE_OK;

    if (!rig_open(&g)) skip();
    t.model = g.model;
    g.model->budget.limit_bytes = sl_budget_used(&g.model->budget); /* slots must give way */
    assert_int_equal(pthread_create(&t.thread, NULL, trim_often, &t), 0);
    for (int k = 0; k < 20 * ROUNDS && err == SLUICE_OK; k++) {
        sluice_session *more = NULL;
        err = sluice_session_open(g.model, &more, &e);
        if (err == SLUICE_E_BUDGET || err == SLUICE_E_NOMEM) err = SLUICE_OK;
        sluice_session_close(more);
    }
    atomic_store(&t.stop, true);
    assert_int_equal(pthread_join(t.thread, NULL), 0);
    if (err != SLUICE_OK) fail_msg("%s: %s", sluice_err_name(err), e.text);
    g.model->budget.limit_bytes = UINT64_MAX;
    rig_read_right(&g);
    rig_close(&g);
}

static int open_another(void *user, const char *text, size_t n)
{
    (void)text, (void)n;
    struct rig *g = user;
    sluice_session *more = NULL;

    assert_int_equal(sluice_session_open(g->model, &more, NULL), SLUICE_E_STATE);
    assert_null(more);
    return 1;
}

/* Slots that are being computed with cannot give way. */
static void test_session_open__during_an_evaluation__refused(void **state)
{
    (void)state;
    struct rig g = prepare(0, 17);
    sluice_generate_options o = SLUICE_GENERATE_INIT;
    sluice_result r = SLUICE_RESULT_INIT;
    sluice_error e;

    if (!rig_open(&g)) skip();
    o.on_text = open_another;
    o.user = &g;
    o.max_tokens = 20;
    o.ignore_end = 1;
    o.show_special = 1;
    if (sluice_generate(g.session, g.text.ids, 4, &o, &r, &e) != SLUICE_OK) fail_msg("%s", e.text);
    assert_int_equal(r.stop, SLUICE_STOP_CALLBACK);
    rig_close(&g);
}

static uint32_t slots_open(const struct rig *g)
{
    sluice_stats st = SLUICE_STATS_INIT;

    sluice_session_get_stats(g->session, &st);
    return st.n_slots_open;
}

/* Between evaluations it happens at once: memory goes, comes back, and answers stay. */
static void test_trim__between_evaluations__memory_goes_and_comes_back(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        struct rig g = prepare(way, 0);

        if (!rig_open(&g)) continue;
        uint32_t all = slots_open(&g);
        rig_read_right(&g);
        rig_read_right(&g);
        uint64_t used = rig_used(&g);
        assert_int_equal(sluice_model_trim(g.model, SLUICE_TRIM_HALF, NULL), SLUICE_OK);
        assert_in_range(slots_open(&g), SLOTS, all / 2);
        assert_true(rig_used(&g) < used);
        rig_read_right(&g);
        assert_int_equal(sluice_model_trim(g.model, SLUICE_TRIM_ALL, NULL), SLUICE_OK);
        assert_int_equal(slots_open(&g), SLOTS);
        rig_read_right(&g);
        assert_int_equal(sluice_model_trim(g.model, SLUICE_TRIM_RESTORE, NULL), SLUICE_OK);
        assert_int_equal(slots_open(&g), all);
        assert_int_equal(rig_used(&g), used);
        rig_read_right(&g);
        assert_int_equal(sluice_model_trim(g.model, 99, NULL), SLUICE_E_ARG);
        rig_close(&g);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void test_sessions__taking_turns_on_one_model__each_as_alone(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        struct rig g = prepare(way, SLOTS);
        sluice_session *other = NULL;
        size_t row = 0, n = N_IDS / 2;
        sluice_error e;

        if (!rig_open(&g)) continue;
        float *second = stream_room(&g.text);
        assert_int_equal(sluice_session_open(g.model, &other, &e), SLUICE_OK);
        for (size_t at = 0; at < n; at++) {
            assert_int_equal(
                stream_pieces(g.session, &g.text, (struct stream_span){at, at + 1, 1}, g.got, &e),
                SLUICE_OK);
            assert_int_equal(stream_pieces(other, &g.text,
                                           (struct stream_span){2 * at, 2 * at + 2, 2}, second, &e),
                             SLUICE_OK);
        }
        assert_int_equal(
            stream_pieces(g.session, &g.text, (struct stream_span){n, N_IDS, 7}, g.got, &e),
            SLUICE_OK);
        assert_true(stream_equal(&g.text, g.got, g.right, &row));
        assert_true(stream_equal(&g.text, second, g.right, &row));
        sluice_session_close(other);
        free(second);
        rig_close(&g);
    }
}

/* One piece of work for a thread that ends after it. */
struct errand {
    pthread_t thread;
    struct rig *g;
    sluice_session *session;
    float *logits;
    struct stream_span span;
    bool open, close;
    int refused;
    sluice_err err;
    sluice_error e;
};

static void *run_errand(void *arg)
{
    struct errand *r = arg;

    if (r->open) r->err = rig_open(r->g) ? SLUICE_OK : SLUICE_E_UNSUPPORTED;
    if (r->span.from < r->span.to) {
        do {
            r->err = stream_pieces(r->session, &r->g->text, r->span, r->logits, &r->e);
            r->refused += r->err == SLUICE_E_STATE;
        } while (r->err == SLUICE_E_STATE);
    }
    if (r->close) rig_close(r->g);
    return NULL;
}

static void run(struct errand *r, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&r[i].thread, NULL, run_errand, &r[i]), 0);
    for (int i = 0; i < n; i++) assert_int_equal(pthread_join(r[i].thread, NULL), 0);
}

/* Opened by one thread, used by twenty, one after another, closed by the last. */
static void test_session__wanders_through_threads_that_end__right(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        struct rig g = prepare(way, SLOTS);
        struct errand open = {.g = &g, .open = true}, close = {.g = &g, .close = true};
        size_t row = 0;

        run(&open, 1);
        if (open.err != SLUICE_OK) continue;
        for (size_t at = 0; at < N_IDS; at += 2) {
            struct errand r = {.g = &g, .session = g.session, .logits = g.got};
            r.span = (struct stream_span){at, at + 2, at % 3 == 0 ? 1 : 2};
            run(&r, 1);
            if (r.err != SLUICE_OK) fail_msg("%s: %s", sluice_err_name(r.err), r.e.text);
        }
        assert_true(stream_equal(&g.text, g.got, g.right, &row));
        run(&close, 1);
    }
}

/* The reads of a hot list fill free slots behind everything else: those that have not started when
 * an evaluation ends are taken back, and the others are waited for, since their thread may end. */
static void test_hot_list__read_while_threads_come_and_go__right(void **state)
{
    (void)state;
    char hot[] = "/tmp/sluice_test_hot_XXXXXX";
    int fd = mkstemp(hot);
    sluice_error e;

    assert_true(fd >= 0 && close(fd) == 0);
    for (size_t way = 0; way < N_WAYS; way++) {
        struct rig first = prepare(way, 12), g = prepare(way, 22);
        size_t row = 0;

        first.hot_list = hot;
        (void)unlink(hot);
        if (!rig_open(&first)) continue;
        rig_read_right(&first);
        rig_close(&first);
        assert_int_equal(access(hot, R_OK), 0);
        g.hot_list = hot;
        assert_true(rig_open(&g));
        rig_set(&g, &late);
        for (size_t at = 0; at < N_IDS; at++) {
            struct errand r = {.g = &g, .session = g.session, .logits = g.got};
            r.span = (struct stream_span){at, at + 1, 1};
            run(&r, 1);
            if (r.err != SLUICE_OK) fail_msg("%s: %s", sluice_err_name(r.err), r.e.text);
            assert_int_equal(sl_io_outstanding(g.wrapper), 0);
        }
        assert_true(stream_equal(&g.text, g.got, g.right, &row));
        sluice_stats st = SLUICE_STATS_INIT;
        sluice_session_get_stats(g.session, &st);
        assert_true(st.warm_bytes > 0);
        assert_int_equal(sluice_session_eval(g.session, g.text.ids, 1, NULL, &e), SLUICE_OK);
        rig_close(&g);
    }
    (void)unlink(hot);
}

/* At the same time one is refused, and tries again; both end right. */
static void test_sessions__two_of_one_model_at_once__one_is_refused_both_right(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        struct rig g = prepare(way, SLOTS);
        sluice_session *other = NULL;
        size_t row = 0;
        sluice_error e;

        if (!rig_open(&g)) continue;
        float *second = stream_room(&g.text);
        assert_int_equal(sluice_session_open(g.model, &other, &e), SLUICE_OK);
        for (size_t at = 0; at < N_IDS; at += 5) {
            struct errand r[2] = {{.g = &g, .session = g.session, .logits = g.got},
                                  {.g = &g, .session = other, .logits = second}};
            /* One call each, which is refused as a whole. */
            for (int i = 0; i < 2; i++) r[i].span = (struct stream_span){at, at + 5, 5};
            run(r, 2);
            assert_int_equal(r[0].err, SLUICE_OK);
            assert_int_equal(r[1].err, SLUICE_OK);
        }
        assert_true(stream_equal(&g.text, g.got, g.right, &row));
        assert_true(stream_equal(&g.text, second, g.right, &row));
        sluice_session_close(other);
        free(second);
        rig_close(&g);
    }
}

/* Two models, each with its ring, in two threads. */
static void test_models__two_streaming_at_once__independent(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        struct rig g[2] = {prepare(way, SLOTS), prepare(way, 3)};
        struct errand r[2];
        size_t row = 0;

        if (!rig_open(&g[0])) continue;
        assert_true(rig_open(&g[1]));
        for (int i = 0; i < 2; i++)
            r[i] = (struct errand){
                .g = &g[i], .session = g[i].session, .logits = g[i].got, .span = {0, N_IDS, 3}};
        run(r, 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(r[i].err, SLUICE_OK);
            assert_true(stream_equal(&g[i].text, g[i].got, right, &row));
            rig_close(&g[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel__while_reads_fly__context_as_before_then_right),
        cmocka_unit_test(test_trim__from_another_thread__same_logits),
        cmocka_unit_test(test_session_open__while_another_thread_trims__waits_for_it),
        cmocka_unit_test(test_session_open__during_an_evaluation__refused),
        cmocka_unit_test(test_trim__between_evaluations__memory_goes_and_comes_back),
        cmocka_unit_test(test_sessions__taking_turns_on_one_model__each_as_alone),
        cmocka_unit_test(test_session__wanders_through_threads_that_end__right),
        cmocka_unit_test(test_hot_list__read_while_threads_come_and_go__right),
        cmocka_unit_test(test_sessions__two_of_one_model_at_once__one_is_refused_both_right),
        cmocka_unit_test(test_models__two_streaming_at_once__independent),
    };
    return cmocka_run_group_tests(tests, compute_right, forget_right);
}
