/* The worker pool: see pool.h.
 *
 * The tasks of a job are laid out as one span to a thread, neighbours together. A thread takes the
 * tasks of its own span from the front, one by one; when it has none left it steals the rear half
 * of what another has. So whoever works through rows of a matrix goes on where it stopped, which is
 * what prefetchers need: with tasks dealt out in turn, two threads decoded a model of 3 GB at 22
 * tokens a second, with spans at 32 (2 Zen 4 cores, November 2026). And a thread that has been
 * stopped, or whose core is slow, holds back nobody.
 *
 * A span changes by compare-and-swap only, but for the driver, which fills the spans of a new job
 * when every task of the last one is done, and all are empty therefore. What is taken belongs to
 * the current job, which cannot end before it is done; so what the job is may be read afterwards,
 * and a worker that wakes late takes part in whatever there is by then, or in nothing. The driver
 * waits for tasks, not for workers: on a machine with fewer free cores than threads it simply does
 * more of them itself.
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
/* What a worker's stack touches, at most; test_kernel_stack holds the kernels to it. */
#define STACK_CHARGE_BYTES ((uint64_t)112 << 10)

struct worker {
    struct sl_pool *pool;
    uint32_t index; /* 1.. ; the driver is 0 */
    pthread_t thread;
};

/* Tasks that a thread has still to begin: the first in the high half, the end in the low half. */
struct span {
    _Alignas(LINE_BYTES) _Atomic uint64_t range;
};

struct sl_pool {
    /* Set at open, then constant. */
    struct sl_budget *budget;
    uint32_t threads;
    uint32_t started;
    bool pins;
    struct sl_cpu_choice choice;
    struct worker workers[SL_THREADS_MAX];

    /* The job. Written by the driver between jobs, read by who has taken a task of it. */
    _Atomic(sl_pool_fn *) fn;
    _Atomic(void *) arg;
    _Atomic uint32_t n_tasks;
    struct span spans[SL_THREADS_MAX];

    _Alignas(LINE_BYTES) _Atomic uint32_t job;  /* its number: a change is a call to work */
    _Alignas(LINE_BYTES) _Atomic uint32_t done; /* tasks of this job that have returned */
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

struct tasks {
    uint32_t first, end;
};

static struct tasks unpack(uint64_t range)
{
    return (struct tasks){(uint32_t)(range >> 32), (uint32_t)range};
}

static uint64_t pack(uint32_t first, uint32_t end) { return (uint64_t)first << 32 | end; }

/* Takes tasks from the span of a thread: of one's own the first, of another's the rear half, the
 * larger one. None where it is empty. Acquire pairs with the store in sl_pool_run: what the driver
 * wrote for the job is visible. */
static struct tasks take(struct sl_pool *p, uint32_t from, bool own)
{
    _Atomic uint64_t *range = &p->spans[from].range;
    uint64_t seen = atomic_load_explicit(range, memory_order_acquire);
    for (;;) {
        struct tasks t = unpack(seen), mine = t;
        if (t.first == t.end) return t;
        uint64_t rest;
        if (own) {
            mine.end = t.first + 1;
            rest = pack(mine.end, t.end);
        } else {
            mine.first = t.first + (t.end - t.first) / 2;
            rest = pack(t.first, mine.first);
        }
        if (atomic_compare_exchange_weak_explicit(range, &seen, rest, memory_order_acq_rel,
                                                  memory_order_acquire))
            return mine;
    }
}

static uint32_t run_taken(struct sl_pool *p, struct tasks t, uint32_t worker)
{
    sl_pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
    void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);
    for (uint32_t i = t.first; i < t.end; i++) fn(arg, i, worker);
    return t.end - t.first;
}

/* Runs the tasks of the worker's span, then those of the others', until none is left to take.
 * Returns how many it ran; *n_tasks is the size of the job they belong to. */
static uint32_t run_tasks(struct sl_pool *p, uint32_t worker, uint32_t *n_tasks)
{
    uint32_t ran = 0;
    for (uint32_t i = 0; i < p->threads;) {
        uint32_t from = (worker + i) % p->threads;
        struct tasks t = take(p, from, i == 0);
        if (t.first == t.end) {
            i++;
            continue;
        }
        ran += run_taken(p, t, worker);
        *n_tasks = atomic_load_explicit(&p->n_tasks, memory_order_relaxed);
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

/* Whether there is another job than the one seen, or the pool stops. */
static bool is_called(const struct sl_pool *p, uint32_t seen)
{
    return atomic_load(&p->job) != seen || atomic_load(&p->stop);
}

/* Returns true once there is work or the pool stops, false after the time is up. */
static bool spin_for_work(const struct sl_pool *p, uint32_t seen)
{
    uint64_t start = sl_now_ns();
    do {
        for (int i = 0; i < SPIN_STEPS; i++) {
            if (is_called(p, seen)) return true;
            cpu_pause();
        }
    } while (sl_now_ns() - start < SPIN_NS);
    return false;
}

static void sleep_for_work(struct sl_pool *p, uint32_t seen)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!is_called(p, seen)) pthread_cond_wait(&p->work, &p->lock);
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
        uint32_t n_tasks = 0, seen = atomic_load(&p->job);
        uint32_t ran = run_tasks(p, self->index, &n_tasks);
        if (ran > 0) report_done(p, ran, n_tasks);
        if (!spin_for_work(p, seen)) sleep_for_work(p, seen);
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
    for (uint32_t i = 0; i < SL_THREADS_MAX; i++) atomic_init(&p->spans[i].range, 0);
    atomic_init(&p->job, 0);
    atomic_init(&p->done, 0);
    atomic_init(&p->sleepers, 0);
    atomic_init(&p->driver_sleeps, false);
    atomic_init(&p->stop, false);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
}

static uint64_t stack_bytes(uint32_t threads) { return STACK_CHARGE_BYTES * (threads - 1); }

uint64_t sl_pool_bytes(uint32_t threads)
{
    return stack_bytes(threads) + sizeof(struct sl_pool) + SL_BLOCK_OVERHEAD_BYTES;
}

sluice_err sl_pool_open(struct sl_budget *b, uint32_t threads, const struct sl_cpu_choice *choice,
                        struct sl_pool **out)
{
    SLUICE_ASSERT(out != NULL);
    SLUICE_ASSERT(threads >= 1 && threads <= SL_THREADS_MAX);
    *out = NULL;
    uint64_t stacks = stack_bytes(threads);
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
    sl_budget_release(p->budget, stack_bytes(p->threads));
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
    for (uint32_t i = 0; i < p->threads; i++) { /* publishes all of the above */
        uint64_t first = (uint64_t)n_tasks * i / p->threads;
        uint64_t end = (uint64_t)n_tasks * (i + 1) / p->threads;
        atomic_store_explicit(&p->spans[i].range, pack((uint32_t)first, (uint32_t)end),
                              memory_order_release);
    }
    atomic_fetch_add(&p->job, 1);
    wake_workers(p, n_tasks);
    uint32_t n = n_tasks;
    uint32_t ran = run_tasks(p, 0, &n);
    atomic_fetch_add(&p->done, ran);
    wait_done(p, n_tasks);
    p->running = false;
}
