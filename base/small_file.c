/* See small_file.h. Plain system calls: stdio would allocate. */
#define _POSIX_C_SOURCE 200809L
#include "base/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool sl_small_file_read(const char *path, char *buf, size_t size)
{
    SLUICE_ASSERT(size > 0);
    buf[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t used = 0;
    bool ok = true;
    while (used < size - 1) {
        ssize_t n = read(fd, buf + used, size - 1 - used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) ok = false;
        if (n <= 0) break;
        used += (size_t)n;
    }
    buf[ok ? used : 0] = '\0';
    close(fd);
    return ok;
}
