/* Whole reads at offsets from ordinary files: see file.h.
 *
 * pread may return less than it was asked for, be interrupted, and on Linux never moves more than 2
 * GiB - 4 KiB at a time; callers above see none of that. The file's identity is remembered at open,
 * so that one that is replaced or cut while in use is noticed. */
#define _GNU_SOURCE /* st_mtim under -std=c11 on every libc */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_PIECE_MAX ((uint64_t)1 << 30) /* bytes of one system call */
#define READ_RETRIES_MAX 100               /* interruptions in a row without progress */
#define EIO_RETRIES_MAX 1                  /* flash sometimes recovers at once, never later */

struct sl_file {
    int fd;
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    struct timespec modified;
    char path[]; /* NUL-terminated */
};

static sluice_err open_fd(const char *path, sluice_error *e, int *out)
{
    int fd;
    int retries = 0;
    /* Non-blocking, or opening a FIFO would wait for a writer; without effect on regular files. */
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (fd < 0 && errno == EINTR && ++retries <= READ_RETRIES_MAX);
    *out = fd;
    if (fd >= 0) return SLUICE_OK;
    int sys = errno;
    char shown[256];
    sl_str_show((struct sl_str){path, strlen(path)}, shown, sizeof shown);
    if (sys == ENOENT || sys == ENOTDIR) {
        sl_fail(e, SLUICE_E_NOT_FOUND, "there is no file '%s'", shown);
        if (e) e->sys_errno = sys;
        return SLUICE_E_NOT_FOUND;
    }
    return sl_fail_sys(e, SLUICE_E_IO, sys, "'%s' cannot be opened for reading", shown);
}

/* Fills the identity from the descriptor; refuses what has no bytes at offsets. */
static sluice_err identify(struct sl_file *f, sluice_error *e)
{
    struct stat st;
    char shown[256];
    sl_str_show((struct sl_str){f->path, strlen(f->path)}, shown, sizeof shown);
    if (fstat(f->fd, &st) != 0)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be examined", shown);
    if (S_ISDIR(st.st_mode)) {
        sl_fail(e, SLUICE_E_IO, "'%s' is a directory, a file was wanted", shown);
        if (e) e->sys_errno = EISDIR;
        return SLUICE_E_IO;
    }
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return sl_fail(e, SLUICE_E_IO, "'%s' is neither a regular file nor a block device", shown);
    f->device = st.st_dev;
    f->inode = st.st_ino;
    f->modified = st.st_mtim;
    f->bytes = (uint64_t)st.st_size;
    if (S_ISBLK(st.st_mode)) { /* stat says 0 for a device */
        off_t end = lseek(f->fd, 0, SEEK_END);
        if (end < 0)
            return sl_fail_sys(e, SLUICE_E_IO, errno, "the size of '%s' is not known", shown);
        f->bytes = (uint64_t)end;
    }
    return SLUICE_OK;
}

sluice_err sl_file_open(const char *path, struct sl_budget *b, sluice_error *e,
                        struct sl_file **out)
{
    SLUICE_ASSERT(path != NULL && out != NULL);
    *out = NULL;
    int fd = -1;
    sluice_err err = open_fd(path, e, &fd);
    if (err != SLUICE_OK) return err;
    size_t path_bytes = strlen(path) + 1;
    void *block = NULL;
    uint64_t capacity = 0;
    /* sl_grow rather than sl_alloc: it says which of the two refused. */
    err = sl_grow(b, &block, &capacity, sizeof(struct sl_file) + path_bytes, 1);
    if (err != SLUICE_OK) {
        close(fd);
        return sl_fail(e, err, "no memory to open '%.256s'", path);
    }
    struct sl_file *f = block;
    f->fd = fd;
    memcpy(f->path, path, path_bytes);
    err = identify(f, e);
    if (err != SLUICE_OK) {
        sl_file_close(f);
        return err;
    }
    *out = f;
    return SLUICE_OK;
}

void sl_file_close(struct sl_file *f)
{
    if (f == NULL) return;
    close(f->fd); /* opened for reading: nothing can be lost here */
    sl_free(f);
}

uint64_t sl_file_bytes(const struct sl_file *f) { return f->bytes; }

const char *sl_file_path(const struct sl_file *f) { return f->path; }

int sl_file_fd(const struct sl_file *f) { return f->fd; }

static sluice_err fail_at(sluice_error *e, sluice_err code, uint64_t offset)
{
    if (e != NULL) e->file_offset = offset;
    return code;
}

static sluice_err fail_truncated(const struct sl_file *f, uint64_t offset, uint64_t wanted,
                                 uint64_t found, sluice_error *e)
{
    char shown[256];
    sl_str_show((struct sl_str){f->path, strlen(f->path)}, shown, sizeof shown);
    sl_fail(e, SLUICE_E_TRUNCATED,
            "'%s' ends too early: %" PRIu64 " bytes wanted at offset %" PRIu64 ", %" PRIu64
            " found; is the download complete?",
            shown, wanted, offset, found);
    return fail_at(e, SLUICE_E_TRUNCATED, offset);
}

/* One pread that goes on after interruptions. Returns what pread does, with errno kept. */
static ssize_t read_piece(int fd, void *buf, size_t bytes, off_t offset)
{
    int interruptions = 0;
    int failures = 0;
    for (;;) {
        ssize_t n = pread(fd, buf, bytes, offset);
        if (n >= 0) return n;
        if (errno == EINTR && ++interruptions <= READ_RETRIES_MAX) continue;
        if (errno == EAGAIN && ++interruptions <= READ_RETRIES_MAX) {
            const struct timespec pause = {0, 1000000}; /* 1 ms: whoever is busy needs time */
            nanosleep(&pause, NULL);
            continue;
        }
        if (errno == EIO && ++failures <= EIO_RETRIES_MAX) continue;
        return n;
    }
}

sluice_err sl_file_read_at(struct sl_file *f, uint64_t offset, void *buf, uint64_t bytes,
                           sluice_error *e)
{
    SLUICE_ASSERT(f != NULL);
    SLUICE_ASSERT(buf != NULL || bytes == 0);
    uint64_t end;
    if (!sl_add_ok(offset, bytes, &end) || end > INT64_MAX)
        return fail_truncated(f, offset, bytes, offset < f->bytes ? f->bytes - offset : 0, e);
    uint64_t done = 0;
    while (done < bytes) {
        size_t piece = (size_t)sl_min_u64(bytes - done, READ_PIECE_MAX);
        ssize_t n = read_piece(f->fd, (unsigned char *)buf + done, piece, (off_t)(offset + done));
        if (n == 0) return fail_truncated(f, offset, bytes, done, e);
        if (n < 0) {
            int sys = errno;
            char shown[256];
            sl_str_show((struct sl_str){f->path, strlen(f->path)}, shown, sizeof shown);
            sl_fail_sys(e, SLUICE_E_IO, sys,
                        "reading '%s' failed at offset %" PRIu64 " (%" PRIu64 " of %" PRIu64
                        " bytes were read)",
                        shown, offset + done, done, bytes);
            return fail_at(e, SLUICE_E_IO, offset + done);
        }
        SLUICE_ASSERT((size_t)n <= piece);
        done += (uint64_t)n;
    }
    return SLUICE_OK;
}

void sl_file_drop_cache(struct sl_file *f, uint64_t offset, uint64_t bytes)
{
    SLUICE_ASSERT(f != NULL);
    long page = sysconf(_SC_PAGESIZE);
    uint64_t mask = page > 0 ? (uint64_t)page - 1 : 4095;
    uint64_t end;
    /* Outward to whole pages: the system leaves a page that is half in the range where it is. */
    if (offset > INT64_MAX) return;
    uint64_t from = offset & ~mask;
    if (bytes == 0 || !sl_add_ok(offset, bytes, &end) || !sl_align_ok(end, mask + 1, &end) ||
        end > INT64_MAX)
        end = from; /* a length of 0 goes to the end of the file */
    (void)posix_fadvise(f->fd, (off_t)from, (off_t)(end - from), POSIX_FADV_DONTNEED);
}

bool sl_file_is(const struct sl_file *f, const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_dev == f->device && st.st_ino == f->inode;
}

sluice_err sl_file_check_unchanged(struct sl_file *f, sluice_error *e)
{
    SLUICE_ASSERT(f != NULL);
    struct stat st;
    char shown[256];
    sl_str_show((struct sl_str){f->path, strlen(f->path)}, shown, sizeof shown);
    /* By name, not by descriptor: a file that was replaced keeps its old bytes on the descriptor.
     */
    if (stat(f->path, &st) != 0)
        return sl_fail_sys(e, SLUICE_E_CHANGED, errno, "'%s' went away while it was open", shown);
    bool same = st.st_dev == f->device && st.st_ino == f->inode &&
                st.st_mtim.tv_sec == f->modified.tv_sec &&
                st.st_mtim.tv_nsec == f->modified.tv_nsec &&
                (S_ISBLK(st.st_mode) || (uint64_t)st.st_size == f->bytes);
    if (same) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_CHANGED,
                   "'%s' changed while it was open (%" PRIu64 " bytes then, %" PRIu64
                   " now); open the model again",
                   shown, f->bytes, (uint64_t)st.st_size);
}
