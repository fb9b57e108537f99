/* The worker pool. Proves that every task runs exactly once, that results are visible to the
 * driver, that workers compute with our floating-point control, that the host's threads and signals
 * are left alone, and that an idle pool sleeps. Results of workers are gathered and asserted on the
 * main thread. */
#define _GNU_SOURCE
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"

#define TASKS_MAX 5000

struct job {
    uint32_t runs[TASKS_MAX]; /* plain on purpose: a second run of a task would be a data race */
    uint32_t worker[TASKS_MAX];
    uint32_t threads;
    uint64_t input;
    uint64_t output[TASKS_MAX];
};

static void count_task(void *arg, uint32_t task, uint32_t worker)
{
    struct job *j = arg;
    j->runs[task]++;
    j->worker[task] = worker;
    j->output[task] = j->input * task;
}

static struct sl_budget unlimited(void)
{
    struct sl_budget b;
    sl_budget_init(&b, UINT64_MAX);
    return b;
}

static void test_run__any_threads_and_tasks__each_task_once(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 3, 8, SL_THREADS_MAX};
    static const uint32_t tasks[] = {0, 1, 2, 3, 7, 64, 1000, TASKS_MAX};
    struct job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    for (size_t t = 0; t < SL_ARRAY_LEN(threads); t++) {
        struct sl_budget b = unlimited();
        struct sl_pool *p;
        assert_int_equal(sl_pool_open(&b, threads[t], NULL, &p), SLUICE_OK);
        assert_int_equal(sl_pool_threads(p), threads[t]);
        for (size_t k = 0; k < SL_ARRAY_LEN(tasks); k++) {
            memset(j, 0, sizeof *j);
            j->input = k + 3;
            sl_pool_run(p, count_task, j, tasks[k]);
            for (uint32_t i = 0; i < TASKS_MAX; i++) {
                assert_int_equal(j->runs[i], i < tasks[k] ? 1 : 0);
                assert_true(j->worker[i] < threads[t]);
                assert_true(j->output[i] == (i < tasks[k] ? j->input * i : 0));
            }
        }
        sl_pool_close(p);
        assert_int_equal(atomic_load(&b.used_bytes), 0);
    }
    free(j);
}

/* A span can be halved ten times at most, so that the neighbours that ran on different threads are
 * few, however the threads were scheduled. */
static void test_run__many_tasks__neighbours_on_one_thread(void **state)
{
    (void)state;
    struct job *j = calloc(1, sizeof *j);
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    assert_non_null(j);
    assert_int_equal(sl_pool_open(&b, 2, NULL, &p), SLUICE_OK);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t borders = 0;
        sl_pool_run(p, count_task, j, 1000);
        for (uint32_t i = 1; i < 1000; i++) borders += j->worker[i] != j->worker[i - 1];
        assert_in_range(borders, 0, 4 * 10);
    }
    sl_pool_close(p);
    free(j);
}

struct sum {
    uint64_t parts[64];
    uint64_t round;
};

static void sum_task(void *arg, uint32_t task, uint32_t worker)
{
    struct sum *s = arg;
    (void)worker;
    s->parts[task] += s->round ^ task;
}

/* Jobs back to back and with pauses in which the workers fall asleep, of changing size and
 * argument. */
static void test_run__many_short_jobs__nothing_lost(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    assert_int_equal(sl_pool_open(&b, 4, NULL, &p), SLUICE_OK);
    struct sum sums[2];
    uint64_t want[2][64];
    memset(sums, 0, sizeof sums);
    memset(want, 0, sizeof want);
    for (uint64_t round = 0; round < 20000; round++) {
        struct sum *s = &sums[round & 1];
        uint32_t n = (uint32_t)(round * 7 % 63 + 2);
        s->round = round;
        sl_pool_run(p, sum_task, s, n);
        for (uint32_t i = 0; i < n; i++) want[round & 1][i] += round ^ i;
        if (round % 500 == 0) {
            struct timespec pause = {0, 200000};
            nanosleep(&pause, NULL);
        }
    }
    sl_pool_close(p);
    for (int k = 0; k < 2; k++) assert_memory_equal(sums[k].parts, want[k], sizeof want[k]);
}

struct probe {
    _Atomic uint32_t started;
    uint32_t wait_for;
    bool upward[8];
    bool int_blocked[8], segv_blocked[8];
    cpu_set_t mask[8];
};

/* volatile: the compiler must not compute at its own rounding mode. */
static volatile float one = 1.0f, tiny = 1e-30f;

static bool rounds_upward(void)
{
    volatile float sum = one + tiny; /* stored, or the addition may move past a call */
    return sum > one;
}

/* Waits until every worker has a task, so that each is looked at. */
static void probe_task(void *arg, uint32_t task, uint32_t worker)
{
    struct probe *q = arg;
    (void)task;
    sigset_t set;
    atomic_fetch_add(&q->started, 1);
    while (atomic_load(&q->started) < q->wait_for) sched_yield();
    q->upward[worker] = rounds_upward();
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    q->int_blocked[worker] = sigismember(&set, SIGINT) == 1;
    q->segv_blocked[worker] = sigismember(&set, SIGSEGV) == 1;
    sched_getaffinity(0, sizeof q->mask[worker], &q->mask[worker]);
}

/* Threads inherit the creator's floating-point control; the host's must not leak into the workers.
 */
static void test_open__host_rounds_upward__workers_round_to_nearest(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    struct probe q;
    memset(&q, 0, sizeof q);
    q.wait_for = 3;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    sluice_err err = sl_pool_open(&b, 3, NULL, &p);
    if (err == SLUICE_OK) sl_pool_run(p, probe_task, &q, 3);
    bool after = rounds_upward();
    fesetround(FE_TONEAREST);
    assert_int_equal(err, SLUICE_OK);
    assert_true(after);
    assert_true(q.upward[0]);
    assert_false(q.upward[1]);
    assert_false(q.upward[2]);
    sl_pool_close(p);
}

static void test_open__signals__blocked_in_workers_only(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    struct probe q;
    memset(&q, 0, sizeof q);
    q.wait_for = 2;
    assert_int_equal(sl_pool_open(&b, 2, NULL, &p), SLUICE_OK);
    sl_pool_run(p, probe_task, &q, 2);
    assert_false(q.int_blocked[0]);
    assert_true(q.int_blocked[1]);
    assert_false(q.segv_blocked[1]);
    sl_pool_close(p);
}

static void test_open__choice__workers_pinned_driver_not(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    struct probe q;
    memset(&q, 0, sizeof q);
    q.wait_for = 2;
    cpu_set_t mine;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    struct sl_cpu_choice c;
    sl_cpu_choose("", &c);
    c.n_ids = 1;
    assert_int_equal(sl_pool_open(&b, 2, &c, &p), SLUICE_OK);
    sl_pool_run(p, probe_task, &q, 2);
    assert_true(CPU_EQUAL(&q.mask[0], &mine));
    assert_int_equal(CPU_COUNT(&q.mask[1]), 1);
    assert_true(CPU_ISSET(c.ids[0], &q.mask[1]));
    sl_pool_close(p);
}

static void test_open__budget_too_small__error_and_nothing_kept(void **state)
{
    (void)state;
    struct sl_budget b;
    struct sl_pool *p = (struct sl_pool *)&b;
    sl_budget_init(&b, 1000);
    assert_int_equal(sl_pool_open(&b, 4, NULL, &p), SLUICE_E_BUDGET);
    assert_null(p);
    sl_budget_init(&b, UINT64_MAX);
    for (int64_t n = 0; n < 2; n++) {
        atomic_store(&b.fail_after, n);
        assert_int_equal(sl_pool_open(&b, 4, NULL, &p), SLUICE_E_BUDGET);
        assert_null(p);
        assert_int_equal(atomic_load(&b.used_bytes), 0);
    }
    sl_pool_close(NULL);
}

/* Plans of memory count on it. */
static void test_open__any_threads__charges_what_was_said(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads++) {
        struct sl_budget b = unlimited();
        struct sl_pool *p;
        assert_int_equal(sl_pool_open(&b, threads, NULL, &p), SLUICE_OK);
        assert_int_equal(sl_budget_used(&b), sl_pool_bytes(threads));
        sl_pool_close(p);
        assert_int_equal(sl_budget_used(&b), 0);
    }
}

static uint64_t process_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void test_idle_pool__quarter_of_a_second__uses_no_processor(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    struct sum s;
    memset(&s, 0, sizeof s);
    assert_int_equal(sl_pool_open(&b, 4, NULL, &p), SLUICE_OK);
    sl_pool_run(p, sum_task, &s, 64);
    struct timespec settle = {0, 20000000}, pause = {0, 250000000};
    nanosleep(&settle, NULL);
    uint64_t before = process_cpu_ns();
    nanosleep(&pause, NULL);
    uint64_t spent = process_cpu_ns() - before;
    sl_pool_close(p);
    assert_true(spent < 25000000);
}

static void slow_worker_task(void *arg, uint32_t task, uint32_t worker)
{
    struct sum *s = arg;
    struct timespec pause = {0, 2000000};
    if (worker != 0) nanosleep(&pause, NULL);
    s->parts[task] = task + 1;
}

/* The driver's spin runs out and it must sleep and be woken. */
static void test_run__workers_slower_than_the_spin__driver_waits(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_pool *p;
    assert_int_equal(sl_pool_open(&b, 4, NULL, &p), SLUICE_OK);
    for (int round = 0; round < 30; round++) {
        struct sum s;
        memset(&s, 0, sizeof s);
        sl_pool_run(p, slow_worker_task, &s, 64);
        for (uint32_t i = 0; i < 64; i++) assert_int_equal(s.parts[i], i + 1);
    }
    sl_pool_close(p);
}

static void empty_task(void *arg, uint32_t task, uint32_t worker)
{
    (void)arg;
    (void)task;
    (void)worker;
}

/* A figure, not a verdict: what one dispatch costs on this machine. */
static void test_run__empty_tasks__cost_printed(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads *= 2) {
        struct sl_budget b = unlimited();
        struct sl_pool *p;
        assert_int_equal(sl_pool_open(&b, threads, NULL, &p), SLUICE_OK);
        uint64_t start = sl_now_ns();
        for (int i = 0; i < 2000; i++) sl_pool_run(p, empty_task, NULL, 16);
        printf("%u threads: %.2f us a run of 16 empty tasks\n", threads,
               (double)(sl_now_ns() - start) / 2000 / 1000);
        sl_pool_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run__any_threads_and_tasks__each_task_once),
        cmocka_unit_test(test_run__many_tasks__neighbours_on_one_thread),
        cmocka_unit_test(test_run__many_short_jobs__nothing_lost),
        cmocka_unit_test(test_open__host_rounds_upward__workers_round_to_nearest),
        cmocka_unit_test(test_open__signals__blocked_in_workers_only),
        cmocka_unit_test(test_open__choice__workers_pinned_driver_not),
        cmocka_unit_test(test_open__budget_too_small__error_and_nothing_kept),
        cmocka_unit_test(test_open__any_threads__charges_what_was_said),
        cmocka_unit_test(test_idle_pool__quarter_of_a_second__uses_no_processor),
        cmocka_unit_test(test_run__workers_slower_than_the_spin__driver_waits),
        cmocka_unit_test(test_run__empty_tasks__cost_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
