/* The worker pool: see pool.h.
 *
 * A job is published by one store to `ticket`, which holds the job's number and how many of its
 * tasks are not yet claimed. Whoever wants a task lowers that count by compare-and-swap. Because a
 * claim can only succeed on an unclaimed task of the current job, and the driver replaces the job
 * only when every task is done, the fields read before a successful claim belong to that job; a
 * worker that wakes late claims nothing and delays nobody. The driver waits for tasks, not for
 * workers: on a machine with fewer free cores than threads it simply does more of them itself.
 *
 * Sleeping: whoever is about to sleep says so (`sleepers`, `driver_sleeps`) and then looks again;
 * whoever changes the state does so first and then looks for sleepers. Both sides are sequentially
 * consistent, so at least one of them sees the other. The lock guards the two condition variables
 * and nothing else. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"

#define LINE_BYTES 64
/* Longer than the gap between two products of a layer; about what a wake-up costs. */
#define SPIN_NS 30000
#define SPIN_STEPS 32 /* pauses between two looks at the clock */
#define STACK_BYTES ((size_t)1 << 20)
#define STACK_CHARGE_BYTES ((uint64_t)64 << 10) /* what a worker's stack really touches */

struct worker {
    struct sl_pool *pool;
    uint32_t index; /* 1.. ; the driver is 0 */
    pthread_t thread;
};

struct sl_pool {
    /* Set at open, then constant. */
    struct sl_budget *budget;
    uint32_t threads;
    uint32_t started;
    bool pins;
    struct sl_cpu_choice choice;
    struct worker workers[SL_THREADS_MAX];

    /* The job. Written by the driver between jobs; atomic because a late worker may read while the
     * driver writes, and then throws away what it read. */
    _Atomic(sl_pool_fn *) fn;
    _Atomic(void *) arg;
    _Atomic uint32_t n_tasks;

    _Alignas(LINE_BYTES) _Atomic uint64_t ticket; /* job number << 32 | unclaimed tasks */
    _Alignas(LINE_BYTES) _Atomic uint32_t done;   /* tasks of this job that have returned */
    _Alignas(LINE_BYTES) _Atomic uint32_t sleepers;
    _Atomic bool driver_sleeps;
    _Atomic bool stop;
    bool running; /* driver only */
    pthread_mutex_t lock;
    pthread_cond_t work;     /* workers wait for tasks or stop */
    pthread_cond_t finished; /* the driver waits for done == n_tasks */
};

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield is a no-op on most cores */
#endif
}

static uint32_t unclaimed(const struct sl_pool *p) { return (uint32_t)atomic_load(&p->ticket); }

/* Claims and runs tasks until none is left. Returns how many it ran; *n_tasks is the size of the
 * job they belong to. */
static uint32_t run_tasks(struct sl_pool *p, uint32_t worker, uint32_t *n_tasks)
{
    uint32_t ran = 0;
    uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    while ((uint32_t)ticket != 0) {
        sl_pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);
        uint32_t n = atomic_load_explicit(&p->n_tasks, memory_order_relaxed);
        /* Acquire pairs with the store in sl_pool_run: what the driver wrote for the job is
         * visible. */
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        fn(arg, n - (uint32_t)ticket, worker);
        ran++;
        *n_tasks = n;
        ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
    return ran;
}

/* Adds to done; releases what the tasks wrote to the driver, and wakes it where it sleeps. */
static void report_done(struct sl_pool *p, uint32_t ran, uint32_t n_tasks)
{
    if (atomic_fetch_add(&p->done, ran) + ran != n_tasks) return;
    if (!atomic_load(&p->driver_sleeps)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->finished);
    pthread_mutex_unlock(&p->lock);
}

/* Returns true once there is work or the pool stops, false after the time is up. */
static bool spin_for_work(const struct sl_pool *p)
{
    uint64_t start = sl_now_ns();
    do {
        for (int i = 0; i < SPIN_STEPS; i++) {
            if (unclaimed(p) != 0 || atomic_load(&p->stop)) return true;
            cpu_pause();
        }
    } while (sl_now_ns() - start < SPIN_NS);
    return false;
}

static void sleep_for_work(struct sl_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (unclaimed(p) == 0 && !atomic_load(&p->stop)) pthread_cond_wait(&p->work, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *user)
{
    struct worker *self = user;
    struct sl_pool *p = self->pool;
    prctl(PR_SET_NAME, "sluice-worker", 0, 0, 0);
    sl_fp_enter(); /* never restored: the thread is ours */
    if (p->pins) (void)sl_cpu_pin(&p->choice);
    while (!atomic_load(&p->stop)) {
        uint32_t n_tasks = 0;
        uint32_t ran = run_tasks(p, self->index, &n_tasks);
        if (ran > 0) report_done(p, ran, n_tasks);
        if (!spin_for_work(p)) sleep_for_work(p);
    }
    return NULL;
}

/* Starts one worker with the host's signals blocked: its handlers run on its own threads. Signals
 * that report a fault of the thread itself stay, so that a crash reporter works. */
static bool worker_start(struct worker *w)
{
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGABRT, SIGTRAP, SIGSYS, SIGPROF};
    pthread_attr_t attr;
    sigset_t blocked, before;
    if (pthread_attr_init(&attr) != 0) return false;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&blocked);
    for (size_t i = 0; i < SL_ARRAY_LEN(faults); i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc == 0;
}

static void pool_init(struct sl_pool *p, struct sl_budget *b, uint32_t threads,
                      const struct sl_cpu_choice *choice)
{
    p->budget = b;
    p->threads = threads;
    p->pins = choice != NULL;
    if (choice != NULL) p->choice = *choice;
    atomic_init(&p->fn, NULL);
    atomic_init(&p->arg, NULL);
    atomic_init(&p->n_tasks, 0);
    atomic_init(&p->ticket, 0);
    atomic_init(&p->done, 0);
    atomic_init(&p->sleepers, 0);
    atomic_init(&p->driver_sleeps, false);
    atomic_init(&p->stop, false);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
}

sluice_err sl_pool_open(struct sl_budget *b, uint32_t threads, const struct sl_cpu_choice *choice,
                        struct sl_pool **out)
{
    SLUICE_ASSERT(out != NULL);
    SLUICE_ASSERT(threads >= 1 && threads <= SL_THREADS_MAX);
    *out = NULL;
    uint64_t stacks = STACK_CHARGE_BYTES * (threads - 1);
    sluice_err err = sl_budget_charge(b, stacks);
    if (err != SLUICE_OK) return err;
    void *block = NULL;
    uint64_t capacity = 0;
    err = sl_grow(b, &block, &capacity, 1, sizeof(struct sl_pool));
    if (err != SLUICE_OK) {
        sl_budget_release(b, stacks);
        return err;
    }
    struct sl_pool *p = block;
    pool_init(p, b, threads, choice);
    for (uint32_t i = 1; i < threads; i++) {
        p->workers[i].pool = p;
        p->workers[i].index = i;
        if (!worker_start(&p->workers[i])) {
            sl_pool_close(p);
            return SLUICE_E_NOMEM;
        }
        p->started++;
    }
    *out = p;
    return SLUICE_OK;
}

void sl_pool_close(struct sl_pool *p)
{
    if (p == NULL) return;
    SLUICE_ASSERT(!p->running);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 1; i <= p->started; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    sl_budget_release(p->budget, STACK_CHARGE_BYTES * (p->threads - 1));
    sl_free(p);
}

uint32_t sl_pool_threads(const struct sl_pool *p) { return p->threads; }

/* Wakes no more workers than there are tasks beyond the driver's own first one. */
static void wake_workers(struct sl_pool *p, uint32_t n_tasks)
{
    uint32_t sleepers = atomic_load(&p->sleepers);
    if (sleepers == 0) return;
    pthread_mutex_lock(&p->lock);
    if (n_tasks - 1 >= sleepers) {
        pthread_cond_broadcast(&p->work);
    } else {
        for (uint32_t i = 1; i < n_tasks; i++) pthread_cond_signal(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
}

static void wait_done(struct sl_pool *p, uint32_t n_tasks)
{
    uint64_t start = sl_now_ns();
    do {
        for (int i = 0; i < SPIN_STEPS; i++) {
            if (atomic_load_explicit(&p->done, memory_order_acquire) == n_tasks) return;
            cpu_pause();
        }
    } while (sl_now_ns() - start < SPIN_NS);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->driver_sleeps, true);
    while (atomic_load(&p->done) != n_tasks) pthread_cond_wait(&p->finished, &p->lock);
    atomic_store(&p->driver_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void sl_pool_run(struct sl_pool *p, sl_pool_fn *fn, void *arg, uint32_t n_tasks)
{
    SLUICE_ASSERT(p != NULL && fn != NULL);
    SLUICE_ASSERT(!p->running); /* a task called the pool */
    if (n_tasks == 0) return;
    p->running = true;
    if (p->threads == 1 || n_tasks == 1) {
        for (uint32_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
        p->running = false;
        return;
    }
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&p->n_tasks, n_tasks, memory_order_relaxed);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    uint64_t job = (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->ticket, job << 32 | n_tasks); /* publishes all of the above */
    wake_workers(p, n_tasks);
    uint32_t n = n_tasks;
    uint32_t ran = run_tasks(p, 0, &n);
    atomic_fetch_add(&p->done, ran);
    wait_done(p, n_tasks);
    p->running = false;
}
