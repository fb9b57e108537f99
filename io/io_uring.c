/* The io_uring backend: whole batches of reads for one system call, no threads of ours.
 *
 * Requests wait in the queue, move to the ring while fewer than `depth` are there, and come back
 * through its completions, on the owner's thread throughout, so there is no lock. A completion that
 * is not the whole request goes back into the ring ahead of all others. The ring has room for
 * `depth` submissions and twice as many completions, so neither can overflow.
 *
 * The kernel may refuse at open (seccomp, a sysctl, an old version): then opening fails and the
 * pool takes over. If it begins to refuse later (a filter installed by the application), what it
 * has not taken is read on the spot with pread, and so is everything after it; what it did take
 * still completes.
 *
 * Registered files and buffers save work for each request and nothing depends on them. The whole
 * file is compiled out on Android, where the first call would kill the process. */
#define _GNU_SOURCE
#include "io/io_backend.h"

#if defined(__linux__) && !defined(__ANDROID__) && SLUICE_HAVE_URING

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 1024u                    /* registered files */
#define BUFFER_MAX ((uint64_t)1 << 30) /* the kernel's limit for one registered buffer */
#define REFUSALS_MAX 100               /* of a submission, in a row, that may pass by itself */
#define PAUSE_NS 100000                /* between two tries where waiting is not possible */

struct ring {
    struct sl_io base;
    struct io_uring uring;
    bool have_uring;
    bool broken; /* no more submissions */
    uint32_t depth;
    uint32_t in_kernel; /* submitted or staged, not complete */
    struct sl_io_queue queue;
    struct sl_io_list again;  /* started, to be read further */
    struct sl_io_list staged; /* in the ring's queue, in order; not yet taken by the kernel */
    struct sl_io_list complete;
    uint32_t n_complete;

    bool have_slots;
    unsigned char slot_used[SLOTS];
    unsigned char *pinned; /* NULL: none */
    uint64_t pinned_bytes;
};

static void put_complete(struct ring *g, struct sl_io_request *r)
{
    r->own.state = SL_IO_COMPLETE;
    sl_io_list_append(&g->complete, r);
    g->n_complete++;
}

static void pause_shortly(void)
{
    const struct timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, NULL);
}

/* The registered buffer that holds the whole piece; -1: none. */
static int buffer_of(const struct ring *g, const struct sl_io_piece *p)
{
    if (g->pinned == NULL) return -1;
    uintptr_t from = (uintptr_t)p->buf;
    uintptr_t base = (uintptr_t)g->pinned;
    if (from < base || from - base > g->pinned_bytes) return -1;
    uint64_t at = from - base;
    if (p->bytes > g->pinned_bytes - at) return -1;
    if (at / BUFFER_MAX != (at + p->bytes - 1) / BUFFER_MAX) return -1;
    return (int)(at / BUFFER_MAX);
}

static bool stage(struct ring *g, struct sl_io_request *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&g->uring);
    if (sqe == NULL) return false;
    struct sl_io_piece p;
    sl_io_next(r, &p);
    int slot = r->own.block == r->file->block ? r->file->slot : -1;
    int fd = slot >= 0 ? slot : p.fd;
    int buffer = buffer_of(g, &p);
    if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, p.buf, (unsigned)p.bytes, p.offset, buffer);
    else
        io_uring_prep_read(sqe, fd, p.buf, (unsigned)p.bytes, p.offset);
    if (slot >= 0) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, r);
    sl_io_list_append(&g->staged, r);
    g->in_kernel++;
    return true;
}

static void read_here(struct ring *g, struct sl_io_request *r)
{
    sl_io_read_now(&g->base, r);
    sl_io_queue_finished(&g->queue, r);
    put_complete(g, r);
}

/* The kernel takes nothing any more: everything it has not taken is read here and now. */
static void read_rest(struct ring *g)
{
    struct sl_io_request *r;
    g->broken = true;
    while ((r = sl_io_list_pop(&g->staged)) != NULL) {
        g->in_kernel--;
        read_here(g, r);
    }
    while ((r = sl_io_list_pop(&g->again)) != NULL) read_here(g, r);
    while ((r = sl_io_queue_take(&g->queue)) != NULL) read_here(g, r);
}

static bool may_pass(int sys)
{
    return sys == EINTR || sys == EAGAIN || sys == EBUSY || sys == ENOMEM;
}

/* Hands what is staged to the kernel. */
static void flush(struct ring *g)
{
    int refusals = 0;
    while (g->staged.first != NULL) {
        int n = io_uring_submit(&g->uring);
        for (int i = 0; i < n; i++) (void)sl_io_list_pop(&g->staged);
        if (n > 0) continue;
        if (n < 0 && !may_pass(-n)) break;
        if (++refusals > REFUSALS_MAX) break;
        pause_shortly();
    }
    if (g->staged.first == NULL) return;
    sl_log_line(g->base.log, SL_LOG_WARN,
                "io_uring takes no more requests; reading with pread from here on");
    read_rest(g);
}

/* Fills the ring from what is to be continued and then from the queue. */
static void start(struct ring *g)
{
    if (g->broken) {
        read_rest(g);
        return;
    }
    while (g->in_kernel < g->depth) {
        struct sl_io_request *r = sl_io_list_pop(&g->again);
        if (r == NULL) r = sl_io_queue_take(&g->queue);
        if (r == NULL) break;
        bool staged = stage(g, r);
        SLUICE_ASSERT(staged); /* at most depth are staged, and the ring has room for them */
    }
    flush(g);
}

/* Takes every completion that is there. */
static void drain(struct ring *g)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&g->uring, &cqe) == 0) {
        struct sl_io_request *r = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&g->uring, cqe);
        SLUICE_ASSERT(r != NULL && r->own.state == SL_IO_STARTED);
        SLUICE_ASSERT(g->in_kernel > 0);
        g->in_kernel--;
        if (result == -EAGAIN) pause_shortly(); /* whoever is busy needs time */
        if (sl_io_advance(&g->base, r, result)) {
            sl_io_queue_finished(&g->queue, r);
            put_complete(g, r);
        } else {
            sl_io_list_append(&g->again, r);
        }
    }
}

static void wait_one(struct ring *g)
{
    struct io_uring_cqe *cqe;
    if (io_uring_wait_cqe(&g->uring, &cqe) != 0) pause_shortly();
}

static void ring_submit(struct sl_io *io, struct sl_io_request *const *requests, uint32_t n)
{
    struct ring *g = (struct ring *)io;
    for (uint32_t i = 0; i < n; i++) sl_io_queue_put(&g->queue, requests[i]);
    start(g);
}

static uint32_t ring_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t min)
{
    struct ring *g = (struct ring *)io;
    for (;;) {
        drain(g);
        start(g);
        if (g->n_complete >= min) break;
        SLUICE_ASSERT(g->in_kernel > 0);
        wait_one(g);
    }
    uint32_t n = 0;
    while (n < max && g->n_complete > 0) {
        out[n++] = sl_io_list_pop(&g->complete);
        g->n_complete--;
    }
    return n;
}

static bool ring_cancel(struct sl_io *io, struct sl_io_request *r)
{
    struct ring *g = (struct ring *)io;
    if (!sl_io_queue_drop(&g->queue, r)) return false;
    put_complete(g, r);
    return true;
}

static void ring_cancel_all(struct sl_io *io)
{
    struct ring *g = (struct ring *)io;
    struct sl_io_request *r;
    while ((r = sl_io_queue_drop_any(&g->queue)) != NULL) put_complete(g, r);
}

static bool ring_promote(struct sl_io *io, struct sl_io_request *r)
{
    struct ring *g = (struct ring *)io;
    if (!sl_io_queue_promote(&g->queue, r)) return false;
    start(g);
    return true;
}

static void ring_attach(struct sl_io *io, struct sl_io_file *f)
{
    struct ring *g = (struct ring *)io;
    if (!g->have_slots) return;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (g->slot_used[i]) continue;
        int fd = f->block == 1 ? f->fd : f->direct_fd;
        if (io_uring_register_files_update(&g->uring, i, &fd, 1) != 1) return;
        g->slot_used[i] = 1;
        f->slot = (int)i;
        return;
    }
}

static void ring_detach(struct sl_io *io, struct sl_io_file *f)
{
    struct ring *g = (struct ring *)io;
    if (f->slot < 0) return;
    int none = -1;
    /* Should the kernel refuse, the slot keeps the file open until the ring goes, unused. */
    if (io_uring_register_files_update(&g->uring, (unsigned)f->slot, &none, 1) == 1)
        g->slot_used[f->slot] = 0;
    f->slot = -1;
}

static bool ring_pin(struct sl_io *io, void *base, uint64_t bytes)
{
    struct ring *g = (struct ring *)io;
    struct iovec pieces[SL_IO_BUFFERS_MAX];
    if (g->pinned != NULL || bytes > SL_IO_BUFFERS_MAX * BUFFER_MAX) return false;
    unsigned n = 0;
    for (uint64_t at = 0; at < bytes; at += BUFFER_MAX) {
        pieces[n].iov_base = (unsigned char *)base + at;
        pieces[n++].iov_len = (size_t)sl_min_u64(bytes - at, BUFFER_MAX);
    }
    if (io_uring_register_buffers(&g->uring, pieces, n) != 0) return false;
    g->pinned = base;
    g->pinned_bytes = bytes;
    return true;
}

static void ring_unpin(struct sl_io *io)
{
    struct ring *g = (struct ring *)io;
    if (g->pinned == NULL) return;
    (void)io_uring_unregister_buffers(&g->uring);
    g->pinned = NULL;
}

static void ring_close(struct sl_io *io)
{
    struct ring *g = (struct ring *)io;
    SLUICE_ASSERT(g->in_kernel == 0);
    if (g->have_uring) io_uring_queue_exit(&g->uring);
    sl_free(g);
}

static const struct sl_io_ops ring_ops = {
    .submit = ring_submit,
    .reap = ring_reap,
    .cancel = ring_cancel,
    .cancel_all = ring_cancel_all,
    .promote = ring_promote,
    .attach = ring_attach,
    .detach = ring_detach,
    .pin = ring_pin,
    .unpin = ring_unpin,
    .close = ring_close,
};

/* A program built for ordinary Linux can run on Android, in a terminal application or a change of
 * root; the filter that kills is the same there. */
static bool on_android(void)
{
    struct utsname u;
    if (uname(&u) == 0 &&
        (strstr(u.release, "android") != NULL || strstr(u.version, "android") != NULL))
        return true;
    return access("/system/bin/app_process", F_OK) == 0 ||
           access("/system/bin/app_process64", F_OK) == 0;
}

/* Reads exist since Linux 5.6; and entering the ring may be refused although making it is not. */
static int try_ring(struct ring *g)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&g->uring);
    bool reads = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    io_uring_free_probe(probe);
    if (!reads) return ENOSYS;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&g->uring);
    if (sqe == NULL) return ENOMEM;
    io_uring_prep_nop(sqe);
    int n = io_uring_submit(&g->uring);
    if (n != 1) return n < 0 ? -n : EIO;
    struct io_uring_cqe *cqe;
    do {
        n = io_uring_wait_cqe(&g->uring, &cqe);
    } while (n == -EINTR);
    if (n != 0) return -n;
    io_uring_cqe_seen(&g->uring, cqe);
    return 0;
}

sluice_err sl_io_uring_open(const struct sl_io_config *c, struct sl_budget *b,
                            const struct sl_log *log, sluice_error *e, struct sl_io **out)
{
    struct ring *g = NULL;
    uint64_t capacity = 0;
    *out = NULL;
    if (on_android()) return sl_fail(e, SLUICE_E_UNSUPPORTED, "io_uring is not used on Android");
    sluice_err err = sl_grow(b, &g, &capacity, 1, sizeof *g);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory for io_uring");
    g->base = (struct sl_io){.ops = &ring_ops, .name = "io_uring", .budget = b, .log = log};
    g->depth = c->depth;
    g->queue.low_max = sl_io_low_max(c->low_depth, c->depth);
    int sys = -io_uring_queue_init(c->depth, &g->uring, 0);
    g->have_uring = sys == 0;
    if (sys == 0) sys = try_ring(g);
    if (sys != 0) {
        ring_close(&g->base);
        return sl_fail_sys(e, SLUICE_E_UNSUPPORTED, sys, "the kernel does not grant io_uring");
    }
    g->have_slots = io_uring_register_files_sparse(&g->uring, SLOTS) == 0;
    *out = &g->base;
    return SLUICE_OK;
}

#else

sluice_err sl_io_uring_open(const struct sl_io_config *c, struct sl_budget *b,
                            const struct sl_log *log, sluice_error *e, struct sl_io **out)
{
    (void)c, (void)b, (void)log;
    *out = NULL;
    return sl_fail(e, SLUICE_E_UNSUPPORTED, "this build has no io_uring");
}

#endif
