/* Files that are taken up again after a crash: see resume_file.h. */
#define _GNU_SOURCE /* flock under -std=c11 */
#include "io/resume_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES_MAX ((uint64_t)1 << 30) /* of one system call */
#define RETRIES_MAX 100
#define DROP_BYTES 65536        /* reads from here on leave the page cache */
#define LOCK_TRIES 40           /* two seconds in all */
#define LOCK_PAUSE_NS 50000000L /* 50 ms */
#define SHOW_MAX 256
#define FOLDER_MAX 4096

struct sl_resume_file {
    int fd;
    struct sl_resume_limit *limit;
    char shown[SHOW_MAX]; /* path, for messages */
};

static const char *show(const char *path, char *buf)
{
    return sl_str_show((struct sl_str){path, strlen(path)}, buf, SHOW_MAX);
}

/* Counts a change that is about to happen. */
static sluice_err spend(struct sl_resume_limit *limit, const char *shown, sluice_error *e)
{
    if (limit == NULL) return SLUICE_OK;
    if (limit->changes_left > 0) {
        limit->changes_left--;
        return SLUICE_OK;
    }
    return sl_fail(e, SLUICE_E_IO, "no more changes of '%s' were allowed", shown);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static bool is_named(int fd, const char *path)
{
    struct stat own, named;
    return fstat(fd, &own) == 0 && lstat(path, &named) == 0 && own.st_dev == named.st_dev &&
           own.st_ino == named.st_ino;
}

/* Opens and locks, *held false: somebody else has the lock. Whoever had it may have removed the
 * file or put another in its place, and the lock of a file without a name keeps nobody out: then
 * the file that has the name now is opened. */
static sluice_err try_lock(struct sl_resume_file *f, const char *path, bool *held, sluice_error *e)
{
    struct stat st;
    *held = false;
    if (f->fd < 0) f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (f->fd < 0) return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be written", f->shown);
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return sl_fail(e, SLUICE_E_IO, "'%s' is no regular file", f->shown);
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return SLUICE_OK;
    *held = is_named(f->fd, path);
    if (*held) return SLUICE_OK;
    close(f->fd);
    f->fd = -1;
    return SLUICE_OK;
}

/* A process that was killed while it synced has its lock until the drive is done. */
static sluice_err open_locked(struct sl_resume_file *f, const char *path, sluice_error *e)
{
    bool held = false;
    for (int tries = 0; tries <= LOCK_TRIES && !held; tries++) {
        const struct timespec pause = {0, LOCK_PAUSE_NS};
        bool busy = f->fd >= 0;
        if (busy) nanosleep(&pause, NULL);
        sluice_err err = try_lock(f, path, &held, e);
        if (err != SLUICE_OK) return err;
    }
    if (held) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_IO, "'%s' is being written by another process; wait for it",
                   f->shown);
}

sluice_err sl_resume_file_open(const char *path, struct sl_resume_limit *limit, struct sl_budget *b,
                               sluice_error *e, struct sl_resume_file **out)
{
    void *block = NULL;
    uint64_t capacity = 0;
    SLUICE_ASSERT(path != NULL && out != NULL);
    *out = NULL;
    sluice_err err = sl_grow(b, &block, &capacity, sizeof(struct sl_resume_file), 1);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to write '%.256s'", path);
    struct sl_resume_file *f = block;
    show(path, f->shown);
    f->limit = limit;
    f->fd = -1;
    err = open_locked(f, path, e);
    if (err != SLUICE_OK) {
        sl_resume_file_close(f);
        return err;
    }
    *out = f;
    return SLUICE_OK;
}

void sl_resume_file_close(struct sl_resume_file *f)
{
    if (f == NULL) return;
    if (f->fd >= 0) close(f->fd); /* who wants to be sure has synced */
    sl_free(f);
}

sluice_err sl_resume_file_bytes(struct sl_resume_file *f, uint64_t *bytes, sluice_error *e)
{
    struct stat st;
    *bytes = 0;
    if (fstat(f->fd, &st) != 0)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be examined", f->shown);
    *bytes = (uint64_t)st.st_size;
    return SLUICE_OK;
}

sluice_err sl_resume_file_check_name(struct sl_resume_file *f, const char *path, sluice_error *e)
{
    SLUICE_ASSERT(f != NULL && path != NULL);
    if (is_named(f->fd, path)) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_CHANGED,
                   "'%s' was removed or replaced while it was written; leave it alone, and begin "
                   "again",
                   f->shown);
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

sluice_err sl_resume_file_write(struct sl_resume_file *f, uint64_t offset, const void *data,
                                uint64_t bytes, sluice_error *e)
{
    const unsigned char *p = data;
    int interruptions = 0;
    SLUICE_ASSERT(f != NULL && (data != NULL || bytes == 0));
    SLUICE_ASSERT(offset <= INT64_MAX && bytes <= INT64_MAX - offset);
    sluice_err err = spend(f->limit, f->shown, e);
    if (err != SLUICE_OK) return err;
    while (bytes > 0) {
        ssize_t n = pwrite(f->fd, p, (size_t)sl_min_u64(bytes, PIECE_BYTES_MAX), (off_t)offset);
        if (n < 0 && (errno == EINTR || errno == EAGAIN) && ++interruptions <= RETRIES_MAX)
            continue;
        if (n <= 0)
            return sl_fail_sys(e, SLUICE_E_IO, n < 0 ? errno : ENOSPC,
                               "writing '%s' failed at offset %" PRIu64, f->shown, offset);
        interruptions = 0;
        p += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return SLUICE_OK;
}

sluice_err sl_resume_file_read(struct sl_resume_file *f, uint64_t offset, void *data,
                               uint64_t bytes, sluice_error *e)
{
    unsigned char *p = data;
    const uint64_t start = offset;
    int interruptions = 0;
    SLUICE_ASSERT(f != NULL && (data != NULL || bytes == 0));
    SLUICE_ASSERT(offset <= INT64_MAX && bytes <= INT64_MAX - offset);
    while (bytes > 0) {
        ssize_t n = pread(f->fd, p, (size_t)sl_min_u64(bytes, PIECE_BYTES_MAX), (off_t)offset);
        if (n < 0 && (errno == EINTR || errno == EAGAIN) && ++interruptions <= RETRIES_MAX)
            continue;
        if (n < 0)
            return sl_fail_sys(e, SLUICE_E_IO, errno, "reading '%s' failed at offset %" PRIu64,
                               f->shown, offset);
        if (n == 0)
            return sl_fail(e, SLUICE_E_TRUNCATED, "'%s' ends at offset %" PRIu64, f->shown, offset);
        interruptions = 0;
        p += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    /* What was read at length is not read again soon. */
    if (offset - start >= DROP_BYTES)
        (void)posix_fadvise(f->fd, (off_t)start, (off_t)(offset - start), POSIX_FADV_DONTNEED);
    return SLUICE_OK;
}

sluice_err sl_resume_file_cut(struct sl_resume_file *f, uint64_t bytes, sluice_error *e)
{
    SLUICE_ASSERT(f != NULL && bytes <= INT64_MAX);
    sluice_err err = spend(f->limit, f->shown, e);
    if (err == SLUICE_OK && ftruncate(f->fd, (off_t)bytes) != 0)
        err = sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be made %" PRIu64 " bytes long",
                          f->shown, bytes);
    return err;
}

sluice_err sl_resume_file_sync(struct sl_resume_file *f, sluice_error *e)
{
    SLUICE_ASSERT(f != NULL);
    sluice_err err = spend(f->limit, f->shown, e);
    if (err == SLUICE_OK && fsync(f->fd) != 0)
        err = sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be synced to the drive", f->shown);
    if (err == SLUICE_OK) (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    return err;
}

/* ---- names -------------------------------------------------------------------------------------
 */

/* The folder that path is in, cut off where it is too long for any. */
static const char *folder_of(const char *path, char *buf)
{
    snprintf(buf, FOLDER_MAX, "%s", path);
    char *slash = strrchr(buf, '/');
    if (slash == NULL) return ".";
    slash[slash == buf] = '\0';
    return buf;
}

/* A change of names has to reach the drive too. Some file systems cannot sync a folder; the files
 * are whole all the same, so that is no error. */
static void sync_folder(const char *path)
{
    char folder[FOLDER_MAX];
    int fd = open(folder_of(path, folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

sluice_err sl_resume_rename(const char *from, const char *to, struct sl_resume_limit *limit,
                            sluice_error *e)
{
    char shown[SHOW_MAX], target[SHOW_MAX];
    show(from, shown);
    sluice_err err = spend(limit, shown, e);
    if (err != SLUICE_OK) return err;
    if (rename(from, to) != 0)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be renamed to '%s'", shown,
                           show(to, target));
    sync_folder(to);
    return SLUICE_OK;
}

sluice_err sl_resume_remove(const char *path, struct sl_resume_limit *limit, sluice_error *e)
{
    char shown[SHOW_MAX];
    sluice_err err = spend(limit, show(path, shown), e);
    if (err != SLUICE_OK) return err;
    if (unlink(path) != 0 && errno != ENOENT)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be removed", shown);
    return SLUICE_OK;
}

bool sl_resume_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

uint64_t sl_resume_occupied(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

uint64_t sl_resume_room(const char *path)
{
    char folder[FOLDER_MAX];
    struct statvfs st;
    uint64_t bytes;
    if (statvfs(folder_of(path, folder), &st) != 0) return UINT64_MAX;
    if (!sl_mul_ok(st.f_bavail, st.f_frsize, &bytes)) return UINT64_MAX;
    return bytes;
}
