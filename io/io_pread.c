/* The pread pool: a few threads, each with one blocking read at a time.
 *
 * Works everywhere, and on phones it is the only way. One lock guards the queue, the list of
 * complete requests and their counters; it is never held across a read. A request is touched by the
 * owner before it enters the queue and after it leaves the list, by one lane in between; the lock
 * orders the two. Lanes block all signals: those of the application stay with its own threads. */
#define _GNU_SOURCE
#include "io/io_backend.h"

#include <pthread.h>
#include <signal.h>

#define STACK_BYTES ((size_t)256 << 10)
#define STACK_CHARGE_BYTES ((uint64_t)16 << 10) /* what a lane's stack really touches */

struct pread_pool {
    struct sl_io base;
    uint32_t lanes; /* started */
    pthread_t threads[SL_IO_LANES_MAX];
    uint64_t charged;

    pthread_mutex_t lock;
    pthread_cond_t work; /* lanes wait for requests or stop */
    pthread_cond_t done; /* the owner waits for completions */
    struct sl_io_queue queue;
    struct sl_io_list complete;
    uint32_t n_complete;
    uint32_t wanted; /* completions the owner sleeps for; 0: it does not */
    bool stop;
};

static void put_complete(struct pread_pool *p, struct sl_io_request *r)
{
    r->own.state = SL_IO_COMPLETE;
    sl_io_list_append(&p->complete, r);
    p->n_complete++;
}

static void *lane_main(void *arg)
{
    struct pread_pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct sl_io_request *r = sl_io_queue_take(&p->queue);
        if (r == NULL) {
            if (p->stop) break;
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        sl_io_read_now(&p->base, r);
        pthread_mutex_lock(&p->lock);
        sl_io_queue_finished(&p->queue, r);
        put_complete(p, r);
        if (p->wanted != 0 && p->n_complete >= p->wanted) pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pread_submit(struct sl_io *io, struct sl_io_request *const *requests, uint32_t n)
{
    struct pread_pool *p = (struct pread_pool *)io;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < n; i++) sl_io_queue_put(&p->queue, requests[i]);
    if (n == 1)
        pthread_cond_signal(&p->work);
    else
        pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static uint32_t pread_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t min)
{
    struct pread_pool *p = (struct pread_pool *)io;
    pthread_mutex_lock(&p->lock);
    while (p->n_complete < min) {
        p->wanted = min;
        pthread_cond_wait(&p->done, &p->lock);
    }
    p->wanted = 0;
    uint32_t n = 0;
    while (n < max && p->n_complete > 0) {
        out[n++] = sl_io_list_pop(&p->complete);
        p->n_complete--;
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

static bool pread_cancel(struct sl_io *io, struct sl_io_request *r)
{
    struct pread_pool *p = (struct pread_pool *)io;
    pthread_mutex_lock(&p->lock);
    bool dropped = sl_io_queue_drop(&p->queue, r);
    if (dropped) put_complete(p, r);
    pthread_mutex_unlock(&p->lock);
    return dropped;
}

static void pread_cancel_all(struct sl_io *io)
{
    struct pread_pool *p = (struct pread_pool *)io;
    struct sl_io_request *r;
    pthread_mutex_lock(&p->lock);
    while ((r = sl_io_queue_drop_any(&p->queue)) != NULL) put_complete(p, r);
    pthread_mutex_unlock(&p->lock);
}

static bool pread_promote(struct sl_io *io, struct sl_io_request *r)
{
    struct pread_pool *p = (struct pread_pool *)io;
    pthread_mutex_lock(&p->lock);
    bool moved = sl_io_queue_promote(&p->queue, r);
    /* A lane may sleep because only low-priority requests were left, more than may start. */
    if (moved) pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return moved;
}

static void pread_close(struct sl_io *io)
{
    struct pread_pool *p = (struct pread_pool *)io;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->lanes; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    sl_budget_release(p->base.budget, p->charged);
    sl_free(p);
}

static const struct sl_io_ops pread_ops = {
    .submit = pread_submit,
    .reap = pread_reap,
    .cancel = pread_cancel,
    .cancel_all = pread_cancel_all,
    .promote = pread_promote,
    .close = pread_close,
};

/* Starts up to n lanes; what could be started is in p->lanes. */
static void start_lanes(struct pread_pool *p, uint32_t n)
{
    sigset_t all, before;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) return;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (p->lanes < n) {
        if (pthread_create(&p->threads[p->lanes], &attr, lane_main, p) != 0) break;
        p->lanes++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

sluice_err sl_io_pread_open(const struct sl_io_config *c, struct sl_budget *b,
                            const struct sl_log *log, sluice_error *e, struct sl_io **out)
{
    struct pread_pool *p = NULL;
    uint64_t capacity = 0;
    *out = NULL;
    sluice_err err = sl_grow(b, &p, &capacity, 1, sizeof *p);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory for the reading threads");
    p->base = (struct sl_io){.ops = &pread_ops, .name = "pread", .budget = b, .log = log};
    p->queue.low_max = sl_io_low_max(c->low_depth, c->lanes);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    err = sl_budget_charge(b, c->lanes * STACK_CHARGE_BYTES);
    if (err != SLUICE_OK) {
        pread_close(&p->base);
        return sl_fail(e, err, "the memory budget is too small for %u reading threads", c->lanes);
    }
    p->charged = c->lanes * STACK_CHARGE_BYTES;
    start_lanes(p, c->lanes);
    if (p->lanes == 0) {
        pread_close(&p->base);
        return sl_fail(e, SLUICE_E_NOMEM, "the system refused to start a reading thread");
    }
    if (p->lanes < c->lanes)
        sl_log_line(log, SL_LOG_WARN, "the system started %u of %u reading threads", p->lanes,
                    c->lanes);
    *out = &p->base;
    return SLUICE_OK;
}
