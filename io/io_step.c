/* The life of one request, whatever backend reads it: see io_backend.h.
 *
 * Progress is counted from the start of the rounded range. Under O_DIRECT a short read may end
 * within a block, from where no direct read can go on; the next one starts at that block again, and
 * counts as progress only where it brings more than the last. A read that brings nothing new is the
 * end of the file or a drive in trouble; the size of the file, asked at that moment, tells which.
 */
#define _GNU_SOURCE
#include "io/io_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PIECE_MAX ((uint64_t)1 << 30) /* bytes of one system call; Linux moves less than 2 GiB */
#define RESUMES_MAX 1000              /* short reads of one request */
#define INTERRUPTIONS_MAX 100         /* in a row without progress */
#define STALLS_MAX 3                  /* reads without progress although the file goes on */
#define IO_ERRORS_MAX 1               /* flash sometimes recovers at once, never later */

static struct sl_io_span span_of(uint32_t block, uint64_t offset, uint64_t bytes)
{
    uint64_t end = 0;
    uint64_t rounded = 0;
    bool fits =
        sl_add_ok(offset, bytes, &end) && end <= INT64_MAX && sl_align_ok(end, block, &rounded);
    SLUICE_ASSERT(fits);
    uint64_t lead = offset & (block - 1);
    return (struct sl_io_span){offset - lead, rounded - (offset - lead), lead};
}

struct sl_io_span sl_io_span(const struct sl_io_file *f, uint64_t offset, uint64_t bytes)
{
    return span_of(f->block, offset, bytes);
}

uint64_t sl_io_room(uint32_t block, uint64_t bytes)
{
    SLUICE_ASSERT(block != 0 && (block & (block - 1)) == 0 && block <= SL_IO_BLOCK_MAX);
    SLUICE_ASSERT(bytes <= INT64_MAX);
    if (block == 1) return bytes;
    return ((bytes + block - 1) & ~(uint64_t)(block - 1)) + block;
}

static uint64_t resume_at(const struct sl_io_request *r)
{
    return r->own.got & ~(uint64_t)(r->own.block - 1);
}

void sl_io_next(const struct sl_io_request *r, struct sl_io_piece *piece)
{
    struct sl_io_span s = span_of(r->own.block, r->offset, r->bytes);
    uint64_t at = resume_at(r);
    SLUICE_ASSERT(at < s.bytes);
    piece->fd = r->own.block == 1 ? r->file->fd : r->file->direct_fd;
    piece->buf = (unsigned char *)r->dst - s.lead + at;
    piece->offset = s.offset + at;
    piece->bytes = sl_min_u64(s.bytes - at, PIECE_MAX);
}

/* Ends the request. A buffered read gives its pages back, or the file would fill the page cache. */
static bool finish(struct sl_io_request *r, sluice_err code, int sys_errno)
{
    struct sl_io_span s = span_of(r->own.block, r->offset, r->bytes);
    r->code = code;
    r->sys_errno = sys_errno;
    r->fail_offset = SLUICE_NO_OFFSET;
    if (code != SLUICE_OK) r->fail_offset = sl_max_u64(s.offset + r->own.got, r->offset);
    if (r->own.block == 1) {
        /* Whole pages only are dropped, so the range is widened to the pages it touches. */
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        uint64_t from = r->offset & ~(page - 1);
        uint64_t to = (r->offset + r->bytes + page - 1) & ~(page - 1);
        (void)posix_fadvise(r->file->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
    }
    return true;
}

static bool advance_failed(struct sl_io_request *r, int sys)
{
    struct sl_io_private *own = &r->own;
    if ((sys == EINTR || sys == EAGAIN) && ++own->interruptions <= INTERRUPTIONS_MAX) return false;
    if (sys == EIO && ++own->io_errors <= IO_ERRORS_MAX) return false;
    if (sys == EINVAL && own->block != 1) {
        /* Direct access worked when the file was opened and no longer does: some stacked file
         * systems change their mind per range. */
        own->block = 1;
        own->got = 0;
        return false;
    }
    return finish(r, SLUICE_E_IO, sys);
}

/* Nothing new came. The end of the file? */
static bool advance_stalled(struct sl_io_request *r)
{
    struct stat st;
    if (fstat(r->file->fd, &st) != 0) return finish(r, SLUICE_E_IO, errno);
    uint64_t size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : sl_file_bytes(r->file->file);
    if (size < r->offset + r->bytes) return finish(r, SLUICE_E_TRUNCATED, 0);
    if (++r->own.stalls <= STALLS_MAX) return false;
    return finish(r, SLUICE_E_IO, 0);
}

bool sl_io_advance(struct sl_io *io, struct sl_io_request *r, int64_t result)
{
    struct sl_io_private *own = &r->own;
    if (io->tap != NULL) result = io->tap(io->tap_user, r, result);
    if (result < 0) return advance_failed(r, (int)-result);
    struct sl_io_span s = span_of(own->block, r->offset, r->bytes);
    uint64_t got = resume_at(r) + (uint64_t)result;
    SLUICE_ASSERT(got <= s.bytes);
    if (got >= s.lead + r->bytes) {
        own->got = got;
        return finish(r, SLUICE_OK, 0);
    }
    if (got <= own->got) return advance_stalled(r);
    own->got = got;
    own->interruptions = 0;
    own->stalls = 0;
    if (++own->resumes <= RESUMES_MAX) return false;
    return finish(r, SLUICE_E_IO, 0);
}

void sl_io_read_now(struct sl_io *io, struct sl_io_request *r)
{
    int64_t result;
    do {
        struct sl_io_piece p;
        sl_io_next(r, &p);
        ssize_t n = pread(p.fd, p.buf, (size_t)p.bytes, (off_t)p.offset);
        result = n >= 0 ? (int64_t)n : -(int64_t)errno;
        if (result == -EAGAIN) {
            const struct timespec pause = {0, 1000000}; /* whoever is busy needs time */
            nanosleep(&pause, NULL);
        }
    } while (!sl_io_advance(io, r, result));
}

sluice_err sl_io_request_error(const struct sl_io_request *r, sluice_error *e)
{
    SLUICE_ASSERT(r->code != SLUICE_OK);
    const char *path = sl_file_path(r->file->file);
    char shown[256];
    sl_str_show((struct sl_str){path, strlen(path)}, shown, sizeof shown);
    uint64_t at = r->fail_offset;
    if (r->code == SLUICE_E_TRUNCATED)
        sl_fail(e, r->code,
                "'%s' ends too early: %" PRIu64 " bytes wanted at offset %" PRIu64
                ", it ends at %" PRIu64 "; is the download complete?",
                shown, r->bytes, r->offset, at);
    else if (r->code == SLUICE_E_CANCELLED)
        sl_fail(e, r->code, "reading '%s' at offset %" PRIu64 " was cancelled", shown, r->offset);
    else if (r->sys_errno != 0)
        sl_fail_sys(e, r->code, r->sys_errno,
                    "reading '%s' failed at offset %" PRIu64 " (%" PRIu64
                    " bytes wanted at %" PRIu64 ")",
                    shown, at, r->bytes, r->offset);
    else
        sl_fail(e, r->code,
                "reading '%s' made no progress at offset %" PRIu64 " (%" PRIu64
                " bytes wanted at %" PRIu64 ")",
                shown, at, r->bytes, r->offset);
    if (e != NULL) e->file_offset = at;
    return r->code;
}
