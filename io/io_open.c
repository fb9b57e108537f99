/* The front of the asynchronous layer: chooses a backend once, opens files for it, and checks every
 * call before the backend sees it. See io.h. */
#define _GNU_SOURCE
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/direct.h"
#include "io/io_backend.h"

sluice_err sl_io_open(const struct sl_io_config *config, struct sl_budget *b,
                      const struct sl_log *log, sluice_error *e, struct sl_io **out)
{
    static const struct sl_log silent = {0};
    SLUICE_ASSERT(config != NULL && out != NULL);
    *out = NULL;
    struct sl_io_config c = *config;
    if (log == NULL) log = &silent;
    if (c.depth == 0) c.depth = SL_IO_DEPTH_DEFAULT;
    if (c.lanes == 0) c.lanes = SL_IO_LANES_DEFAULT;
    if (c.depth > SL_IO_DEPTH_MAX || c.lanes > SL_IO_LANES_MAX)
        return sl_fail(e, SLUICE_E_ARG, "at most %u reads and %u reading threads at once",
                       SL_IO_DEPTH_MAX, SL_IO_LANES_MAX);
    if (c.kind == SL_IO_URING) return sl_io_uring_open(&c, b, log, e, out);
    if (c.kind == SL_IO_PREAD) return sl_io_pread_open(&c, b, log, e, out);
    if (c.kind != SL_IO_AUTO) return sl_fail(e, SLUICE_E_ARG, "no such kind of reading");

    sluice_error refused;
    sluice_err err = sl_io_uring_open(&c, b, log, &refused, out);
    if (err == SLUICE_OK) {
        sl_log_line(log, SL_LOG_INFO, "reading with io_uring, %u requests at once", c.depth);
        return SLUICE_OK;
    }
    if (err != SLUICE_E_UNSUPPORTED) {
        if (e != NULL) *e = refused;
        return err;
    }
    err = sl_io_pread_open(&c, b, log, e, out);
    if (err != SLUICE_OK) return err;
    sl_log_line(log, SL_LOG_INFO, "reading with %u threads: %s", c.lanes, refused.text);
    return SLUICE_OK;
}

void sl_io_close(struct sl_io *io)
{
    if (io == NULL) return;
    SLUICE_ASSERT(io->files == 0);
    SLUICE_ASSERT(io->outstanding == 0);
    io->ops->close(io);
}

const char *sl_io_name(const struct sl_io *io) { return io->name; }

/* ---- files --------------------------------------------------------------------------------- */

/* A descriptor of our own: advice about read-ahead then leaves the reader of headers alone. */
static sluice_err open_again(struct sl_file *f, sluice_error *e, int *out)
{
    const char *path = sl_file_path(f);
    struct stat mine, theirs;
    char shown[256];
    sl_str_show((struct sl_str){path, strlen(path)}, shown, sizeof shown);
    *out = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        sluice_err err = errno == ENOENT || errno == ENOTDIR ? SLUICE_E_NOT_FOUND : SLUICE_E_IO;
        return sl_fail_sys(e, err, errno, "'%s' cannot be opened again", shown);
    }
    if (fstat(fd, &mine) != 0 || fstat(sl_file_fd(f), &theirs) != 0 ||
        mine.st_dev != theirs.st_dev || mine.st_ino != theirs.st_ino) {
        close(fd);
        return sl_fail(e, SLUICE_E_CHANGED,
                       "'%s' was replaced while it was open; open the model again", shown);
    }
    sl_direct_set_blocking(fd);
    *out = fd;
    return SLUICE_OK;
}

static sluice_err choose_access(struct sl_io_file *f, sluice_error *e)
{
    const char *path = sl_file_path(f->file);
    struct sl_direct d;
    char shown[256];
    sl_str_show((struct sl_str){path, strlen(path)}, shown, sizeof shown);
    sluice_err err = sl_direct_open(path, f->fd, sl_file_bytes(f->file), f->io->budget, &d);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to try direct access on '%s'", shown);
    f->direct_fd = d.fd;
    f->block = d.block;
    if (d.fd < 0)
        sl_log_line(f->io->log, SL_LOG_INFO, "no direct access to '%s' (%s); reading buffered",
                    shown, d.reason);
    return SLUICE_OK;
}

sluice_err sl_io_file_open(struct sl_io *io, struct sl_file *file, enum sl_io_access access,
                           sluice_error *e, struct sl_io_file **out)
{
    SLUICE_ASSERT(io != NULL && file != NULL && out != NULL);
    *out = NULL;
    struct sl_io_file *f = NULL;
    uint64_t capacity = 0;
    sluice_err err = sl_grow(io->budget, &f, &capacity, 1, sizeof *f);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to open a file for reading");
    *f = (struct sl_io_file){
        .io = io, .file = file, .fd = -1, .direct_fd = -1, .slot = -1, .block = 1};
    io->files++;
    err = open_again(file, e, &f->fd);
    /* Requests are whole experts at places nobody can predict from the last one; and what the
     * kernel reads ahead would stay in the page cache. */
    if (err == SLUICE_OK) (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
    if (err == SLUICE_OK && access == SL_IO_DIRECT) err = choose_access(f, e);
    if (err != SLUICE_OK) {
        sl_io_file_close(f);
        return err;
    }
    if (io->ops->attach != NULL) io->ops->attach(io, f);
    *out = f;
    return SLUICE_OK;
}

void sl_io_file_close(struct sl_io_file *f)
{
    if (f == NULL) return;
    SLUICE_ASSERT(f->in_use == 0);
    SLUICE_ASSERT(f->io->files > 0);
    if (f->io->ops->detach != NULL) f->io->ops->detach(f->io, f);
    f->io->files--;
    if (f->direct_fd >= 0) close(f->direct_fd);
    if (f->fd >= 0) close(f->fd);
    sl_free(f);
}

uint32_t sl_io_file_block(const struct sl_io_file *f) { return f->block; }

struct sl_file *sl_io_file_of(const struct sl_io_file *f) { return f->file; }

/* ---- requests ------------------------------------------------------------------------------ */

static bool is_valid(const struct sl_io *io, const struct sl_io_request *r)
{
    uint64_t end;
    if (r->file == NULL || r->file->io != io || r->dst == NULL || r->bytes == 0) return false;
    if (!sl_add_ok(r->offset, r->bytes, &end) || end > INT64_MAX - SL_IO_BLOCK_MAX) return false;
    if (r->priority != SL_IO_DEMAND && r->priority != SL_IO_LOW) return false;
    return (((uintptr_t)r->dst ^ r->offset) & (r->file->block - 1)) == 0;
}

sluice_err sl_io_submit(struct sl_io *io, struct sl_io_request *const *requests, uint32_t n)
{
    SLUICE_ASSERT(io != NULL && (requests != NULL || n == 0));
    for (uint32_t i = 0; i < n; i++)
        if (!is_valid(io, requests[i])) return SLUICE_E_ARG;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_io_request *r = requests[i];
        r->own = (struct sl_io_private){.block = r->file->block};
        r->code = SLUICE_OK;
        r->sys_errno = 0;
        r->fail_offset = SLUICE_NO_OFFSET;
        r->file->in_use++;
    }
    io->outstanding += n;
    if (n > 0) io->ops->submit(io, requests, n);
    return SLUICE_OK;
}

/* The request is the caller's again. */
static void hand_back(struct sl_io *io, struct sl_io_request *r)
{
    SLUICE_ASSERT(r->file->in_use > 0 && io->outstanding > 0);
    r->own.state = SL_IO_IDLE;
    r->own.place = SL_IO_WITH_ANYBODY;
    r->file->in_use--;
    io->outstanding--;
}

uint32_t sl_io_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t min)
{
    SLUICE_ASSERT(io != NULL && out != NULL && min <= max);
    if (min > io->outstanding) min = io->outstanding;
    uint32_t n = 0;
    while (n < max && io->parked.first != NULL) out[n++] = sl_io_list_pop(&io->parked);
    n += io->ops->reap(io, out + n, max - n, min > n ? min - n : 0);
    SLUICE_ASSERT(n >= min && n <= max && n <= io->outstanding);
    for (uint32_t i = 0; i < n; i++) hand_back(io, out[i]);
    return n;
}

/* Takes one batch from the backend; returns how many awaited requests were in it. */
static uint32_t sort_batch(struct sl_io *io)
{
    struct sl_io_request *batch[16];
    uint32_t n = io->ops->reap(io, batch, SL_ARRAY_LEN(batch), 1);
    uint32_t awaited = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (batch[i]->own.place == SL_IO_AWAITED) {
            hand_back(io, batch[i]);
            awaited++;
        } else {
            batch[i]->own.place = SL_IO_PARKED;
            sl_io_list_append(&io->parked, batch[i]);
        }
    }
    return awaited;
}

void sl_io_wait(struct sl_io *io, struct sl_io_request *const *r, uint32_t n)
{
    SLUICE_ASSERT(io != NULL && (r != NULL || n == 0) && n <= io->outstanding);
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        SLUICE_ASSERT(r[i]->own.place != SL_IO_AWAITED); /* stands there once */
        if (r[i]->own.place == SL_IO_PARKED) {
            sl_io_list_remove(&io->parked, r[i]);
            hand_back(io, r[i]);
        } else {
            r[i]->own.place = SL_IO_AWAITED;
            left++;
        }
    }
    while (left > 0) left -= sort_batch(io);
}

uint32_t sl_io_outstanding(const struct sl_io *io) { return io->outstanding; }

bool sl_io_cancel(struct sl_io *io, struct sl_io_request *r) { return io->ops->cancel(io, r); }

void sl_io_drain(struct sl_io *io)
{
    struct sl_io_request *batch[16];
    io->ops->cancel_all(io);
    while (io->outstanding > 0) (void)sl_io_reap(io, batch, SL_ARRAY_LEN(batch), 1);
}

bool sl_io_promote(struct sl_io *io, struct sl_io_request *r) { return io->ops->promote(io, r); }

bool sl_io_pin(struct sl_io *io, void *base, uint64_t bytes)
{
    SLUICE_ASSERT(base != NULL && bytes > 0);
    SLUICE_ASSERT(io->outstanding == 0);
    return io->ops->pin != NULL && io->ops->pin(io, base, bytes);
}

void sl_io_unpin(struct sl_io *io)
{
    SLUICE_ASSERT(io->outstanding == 0);
    if (io->ops->unpin != NULL) io->ops->unpin(io);
}
