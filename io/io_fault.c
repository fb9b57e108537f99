/* The fault-injecting backend: see io_fault.h.
 *
 * What strikes a request is decided when it is submitted and noted in own.fault. Completions of the
 * inner backend pass through `held` if they are delayed or overtaken, then through `ready`. Only
 * the counters of system calls are shared with the inner backend's threads; the plan itself is
 * constant while requests are out. */
#define _GNU_SOURCE
#include "io/io_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "io/io_backend.h"

#define BATCH 16
#define POLL_NS 50000     /* between two looks while a delayed completion is held */
#define BUFFERED_SHIFT 64 /* bytes a misdirected buffered read is off */

struct fault {
    struct sl_io base;
    struct sl_io *inner;
    struct sl_io_fault_plan plan;
    uint64_t requests;      /* submitted under this plan */
    _Atomic uint64_t calls; /* system calls under this plan */
    _Atomic uint64_t met;
    uint32_t inner_out;     /* requests in the inner backend */
    uint64_t passed;        /* completions that became ready */
    struct sl_io_list held; /* complete, not to be seen yet */
    struct sl_io_list ready;
    uint32_t n_ready;
};

static bool strikes(const struct fault *g, uint64_t count)
{
    return count >= g->plan.nth && count - g->plan.nth < g->plan.times;
}

static bool is_sys(enum sl_io_fault_kind kind)
{
    return kind == SL_IO_FAULT_SYS_ERROR || kind == SL_IO_FAULT_SYS_SHORT;
}

static void count_met(struct fault *g)
{
    /* Read by the owner once the request is reaped, which orders the two. */
    atomic_fetch_add_explicit(&g->met, 1, memory_order_relaxed);
}

static int64_t tap(void *user, const struct sl_io_request *r, int64_t result)
{
    struct fault *g = user;
    (void)r;
    if (!is_sys(g->plan.kind)) return result;
    uint64_t count = atomic_fetch_add_explicit(&g->calls, 1, memory_order_relaxed) + 1;
    if (!strikes(g, count)) return result;
    count_met(g);
    if (g->plan.kind == SL_IO_FAULT_SYS_ERROR) return -(int64_t)g->plan.sys_errno;
    int64_t most = (int64_t)g->plan.short_bytes;
    return result > most ? most : result;
}

static void put_ready(struct fault *g, struct sl_io_request *r)
{
    sl_io_list_append(&g->ready, r);
    g->n_ready++;
    g->passed++;
}

/* False where the file has no other place of that size at the same position within a block. */
static bool misdirect(struct sl_io_request *r)
{
    uint64_t shift = r->file->block == 1 ? BUFFERED_SHIFT : r->file->block;
    uint64_t size = sl_file_bytes(r->file->file);
    r->own.saved_offset = r->offset;
    if (r->offset >= shift)
        r->offset -= shift;
    else if (r->offset + shift + r->bytes <= size)
        r->offset += shift;
    else
        return false;
    return true;
}

static void submit_one(struct fault *g, struct sl_io_request *r)
{
    g->requests++;
    if (g->plan.kind != SL_IO_FAULT_NONE && !is_sys(g->plan.kind) && strikes(g, g->requests)) {
        r->own.fault = (uint8_t)g->plan.kind;
        count_met(g);
    }
    if (r->own.fault == SL_IO_FAULT_FAIL) {
        r->own.state = SL_IO_COMPLETE;
        r->code = SLUICE_E_IO;
        r->sys_errno = g->plan.sys_errno;
        r->fail_offset = r->offset;
        put_ready(g, r);
        return;
    }
    if (r->own.fault == SL_IO_FAULT_WRONG_OFFSET && !misdirect(r)) r->own.fault = SL_IO_FAULT_FLIP;
    g->inner_out++;
    g->inner->ops->submit(g->inner, &r, 1);
}

static void fault_submit(struct sl_io *io, struct sl_io_request *const *requests, uint32_t n)
{
    struct fault *g = (struct fault *)io;
    for (uint32_t i = 0; i < n; i++) submit_one(g, requests[i]);
}

/* One completion of the inner backend. */
static void receive(struct fault *g, struct sl_io_request *r)
{
    g->inner_out--;
    switch ((enum sl_io_fault_kind)r->own.fault) {
    case SL_IO_FAULT_FLIP:
        if (r->code == SLUICE_OK) {
            uint64_t bit = g->plan.bit % (r->bytes * 8);
            ((unsigned char *)r->dst)[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        }
        break;
    case SL_IO_FAULT_WRONG_OFFSET:
        r->offset = r->own.saved_offset;
        break;
    case SL_IO_FAULT_DELAY:
        r->own.due_ns = sl_now_ns() + g->plan.delay_ns;
        sl_io_list_append(&g->held, r);
        return;
    case SL_IO_FAULT_REORDER:
        r->own.due_ns = g->passed + 1;
        sl_io_list_prepend(&g->held, r); /* several held ones leave in reverse */
        return;
    default:
        break;
    }
    put_ready(g, r);
}

/* Lets go what need not be held any longer. */
static void release(struct fault *g)
{
    bool delay = g->plan.kind == SL_IO_FAULT_DELAY;
    uint64_t reached = delay ? sl_now_ns() : g->passed;
    bool last = !delay && g->inner_out == 0; /* nobody is left to overtake */
    struct sl_io_request *r = g->held.first;
    while (r != NULL) {
        struct sl_io_request *next = r->own.next;
        if (last || reached >= r->own.due_ns) {
            sl_io_list_remove(&g->held, r);
            put_ready(g, r);
        }
        r = next;
    }
}

/* Takes what the inner backend has, waiting for one completion if told to. */
static void collect(struct fault *g, bool wait)
{
    struct sl_io_request *batch[BATCH];
    uint32_t n;
    do {
        n = g->inner->ops->reap(g->inner, batch, BATCH, wait ? 1 : 0);
        for (uint32_t i = 0; i < n; i++) receive(g, batch[i]);
        wait = false;
    } while (n == BATCH);
}

static uint32_t fault_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t min)
{
    struct fault *g = (struct fault *)io;
    collect(g, false);
    release(g);
    while (g->n_ready < min) {
        bool delayed = g->plan.kind == SL_IO_FAULT_DELAY && g->held.first != NULL;
        if (delayed) {
            const struct timespec pause = {0, POLL_NS};
            nanosleep(&pause, NULL);
        }
        collect(g, !delayed && g->inner_out > 0);
        release(g);
    }
    uint32_t n = 0;
    while (n < max && g->n_ready > 0) {
        out[n++] = sl_io_list_pop(&g->ready);
        g->n_ready--;
    }
    return n;
}

static bool fault_cancel(struct sl_io *io, struct sl_io_request *r)
{
    struct fault *g = (struct fault *)io;
    return g->inner->ops->cancel(g->inner, r);
}

static void fault_cancel_all(struct sl_io *io)
{
    struct fault *g = (struct fault *)io;
    g->inner->ops->cancel_all(g->inner);
}

static bool fault_promote(struct sl_io *io, struct sl_io_request *r)
{
    struct fault *g = (struct fault *)io;
    return g->inner->ops->promote(g->inner, r);
}

static void fault_attach(struct sl_io *io, struct sl_io_file *f)
{
    struct fault *g = (struct fault *)io;
    if (g->inner->ops->attach != NULL) g->inner->ops->attach(g->inner, f);
}

static void fault_detach(struct sl_io *io, struct sl_io_file *f)
{
    struct fault *g = (struct fault *)io;
    if (g->inner->ops->detach != NULL) g->inner->ops->detach(g->inner, f);
}

static bool fault_pin(struct sl_io *io, void *base, uint64_t bytes)
{
    struct fault *g = (struct fault *)io;
    return g->inner->ops->pin != NULL && g->inner->ops->pin(g->inner, base, bytes);
}

static void fault_unpin(struct sl_io *io)
{
    struct fault *g = (struct fault *)io;
    if (g->inner->ops->unpin != NULL) g->inner->ops->unpin(g->inner);
}

static void fault_close(struct sl_io *io)
{
    struct fault *g = (struct fault *)io;
    sl_io_close(g->inner);
    sl_free(g);
}

static const struct sl_io_ops fault_ops = {
    .submit = fault_submit,
    .reap = fault_reap,
    .cancel = fault_cancel,
    .cancel_all = fault_cancel_all,
    .promote = fault_promote,
    .attach = fault_attach,
    .detach = fault_detach,
    .pin = fault_pin,
    .unpin = fault_unpin,
    .close = fault_close,
};

void sl_io_fault_set(struct sl_io *io, const struct sl_io_fault_plan *plan)
{
    SLUICE_ASSERT(io->ops == &fault_ops && io->outstanding == 0);
    struct fault *g = (struct fault *)io;
    g->plan = *plan;
    if (g->plan.sys_errno == 0) g->plan.sys_errno = EIO;
    if (g->plan.nth == 0) g->plan.nth = 1;
    if (g->plan.times == 0) g->plan.times = 1;
    if (g->plan.short_bytes == 0) g->plan.short_bytes = 1;
    g->requests = 0;
    atomic_store_explicit(&g->calls, 0, memory_order_relaxed);
    atomic_store_explicit(&g->met, 0, memory_order_relaxed);
}

uint64_t sl_io_fault_met(const struct sl_io *io)
{
    SLUICE_ASSERT(io->ops == &fault_ops);
    const struct fault *g = (const struct fault *)io;
    return atomic_load_explicit(&g->met, memory_order_relaxed);
}

sluice_err sl_io_fault_open(struct sl_io *inner, const struct sl_io_fault_plan *plan,
                            sluice_error *e, struct sl_io **out)
{
    SLUICE_ASSERT(inner != NULL && inner->files == 0 && inner->outstanding == 0);
    struct fault *g = NULL;
    uint64_t capacity = 0;
    *out = NULL;
    sluice_err err = sl_grow(inner->budget, &g, &capacity, 1, sizeof *g);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory for the fault injection");
    g->base = (struct sl_io){
        .ops = &fault_ops, .name = "fault", .budget = inner->budget, .log = inner->log};
    g->inner = inner;
    inner->tap = tap;
    inner->tap_user = g;
    sl_io_fault_set(&g->base, plan);
    *out = &g->base;
    return SLUICE_OK;
}
