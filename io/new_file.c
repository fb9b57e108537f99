/* Files written whole or not at all: see new_file.h.
 *
 * Small writes are gathered. The temporary file is locked, so that what an interrupted run left can
 * be told from what another process is writing now; file systems without locks (FUSE on some
 * phones) go without. */
#define _GNU_SOURCE /* flock under -std=c11 */
#include "io/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define GATHER_BYTES 65536u
#define RETRIES_MAX 100
#define SUFFIX ".partial"

struct sl_new_file {
    int fd;
    uint32_t gathered; /* bytes in buffer */
    const char *path;  /* what it shall be */
    char *partial;     /* what it is */
    char shown[256];   /* path, for messages */
    unsigned char buffer[GATHER_BYTES];
};

static sluice_err create(const char *path, struct sl_budget *b, sluice_error *e,
                         struct sl_new_file **out)
{
    size_t n = strlen(path);
    void *block = NULL;
    uint64_t capacity = 0;
    uint64_t bytes = sizeof(struct sl_new_file) + 2 * (n + 1) + sizeof SUFFIX;
    sluice_err err = sl_grow(b, &block, &capacity, bytes, 1);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to write '%.256s'", path);
    struct sl_new_file *f = block;
    char *text = (char *)(f + 1);
    f->fd = -1;
    f->path = memcpy(text, path, n + 1);
    f->partial = text + n + 1;
    snprintf(f->partial, n + sizeof SUFFIX, "%s%s", path, SUFFIX);
    sl_str_show((struct sl_str){path, n}, f->shown, sizeof f->shown);
    *out = f;
    return SLUICE_OK;
}

/* Whether the descriptor's file still has the temporary name: another writer may have renamed it
 * between our open and our lock. */
static bool still_named(const struct sl_new_file *f)
{
    struct stat named, open;
    return stat(f->partial, &named) == 0 && fstat(f->fd, &open) == 0 &&
           named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

/* Opens and locks the temporary file, and empties what an interrupted run left in it. */
static sluice_err open_partial(struct sl_new_file *f, sluice_error *e)
{
    f->fd = open(f->partial, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (f->fd < 0)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s" SUFFIX "' cannot be written", f->shown);
    bool locked = flock(f->fd, LOCK_EX | LOCK_NB) == 0;
    if ((!locked && errno == EWOULDBLOCK) || (locked && !still_named(f))) {
        close(f->fd);
        f->fd = -1; /* the file is the other's: it is not ours to delete */
        return sl_fail(e, SLUICE_E_IO, "'%s' is being written by another process; wait for it",
                       f->shown);
    }
    if (ftruncate(f->fd, 0) == 0) return SLUICE_OK;
    return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s" SUFFIX "' cannot be emptied", f->shown);
}

sluice_err sl_new_file_open(const char *path, struct sl_budget *b, sluice_error *e,
                            struct sl_new_file **out)
{
    struct sl_new_file *f = NULL;
    SLUICE_ASSERT(path != NULL && out != NULL);
    *out = NULL;
    sluice_err err = create(path, b, e, &f);
    if (err == SLUICE_OK) err = open_partial(f, e);
    if (err != SLUICE_OK) {
        sl_new_file_discard(f);
        return err;
    }
    *out = f;
    return SLUICE_OK;
}

static sluice_err write_all(struct sl_new_file *f, const unsigned char *data, uint64_t bytes,
                            sluice_error *e)
{
    int interruptions = 0;
    while (bytes > 0) {
        ssize_t n = write(f->fd, data, (size_t)sl_min_u64(bytes, 1u << 30));
        if (n < 0 && (errno == EINTR || errno == EAGAIN) && ++interruptions <= RETRIES_MAX)
            continue;
        if (n <= 0)
            return sl_fail_sys(e, SLUICE_E_IO, n < 0 ? errno : ENOSPC, "writing '%s' failed",
                               f->shown);
        interruptions = 0;
        data += n;
        bytes -= (uint64_t)n;
    }
    return SLUICE_OK;
}

static sluice_err flush(struct sl_new_file *f, sluice_error *e)
{
    uint32_t n = f->gathered;
    f->gathered = 0;
    return write_all(f, f->buffer, n, e);
}

sluice_err sl_new_file_write(struct sl_new_file *f, const void *data, uint64_t bytes,
                             sluice_error *e)
{
    SLUICE_ASSERT(f != NULL);
    SLUICE_ASSERT(data != NULL || bytes == 0);
    if (bytes > GATHER_BYTES - f->gathered) {
        sluice_err err = flush(f, e);
        if (err != SLUICE_OK) return err;
    }
    if (bytes > GATHER_BYTES) return write_all(f, data, bytes, e);
    if (bytes > 0) memcpy(f->buffer + f->gathered, data, (size_t)bytes);
    f->gathered += (uint32_t)bytes;
    return SLUICE_OK;
}

/* The rename itself has to reach the drive too. Some file systems cannot sync a folder; the file is
 * whole all the same, so that is no error. */
static void sync_folder(const struct sl_new_file *f)
{
    char *slash = strrchr(f->partial, '/');
    if (slash != NULL) slash[slash == f->partial] = '\0'; /* the temporary name is not needed now */
    int fd = open(slash != NULL ? f->partial : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

sluice_err sl_new_file_commit(struct sl_new_file *f, sluice_error *e)
{
    SLUICE_ASSERT(f != NULL);
    sluice_err err = flush(f, e);
    if (err == SLUICE_OK && fsync(f->fd) != 0)
        err = sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be synced to the drive", f->shown);
    if (err == SLUICE_OK && rename(f->partial, f->path) != 0)
        err = sl_fail_sys(e, SLUICE_E_IO, errno, "'%s" SUFFIX "' cannot be renamed to '%s'",
                          f->shown, f->shown);
    if (err != SLUICE_OK) {
        sl_new_file_discard(f);
        return err;
    }
    close(f->fd); /* synced: nothing can be lost here */
    sync_folder(f);
    sl_free(f);
    return SLUICE_OK;
}

void sl_new_file_discard(struct sl_new_file *f)
{
    if (f == NULL) return;
    if (f->fd >= 0) {
        (void)unlink(f->partial); /* before close, while the lock is ours */
        close(f->fd);
    }
    sl_free(f);
}
