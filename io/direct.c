/* Trying O_DIRECT on one file: see direct.h.
 *
 * The alignment comes from statx where the kernel knows it (Linux 6.1), else 4096 or the page size,
 * whichever is larger. The proof reads the first and the last block: the last is short in most
 * files, which is where file systems differ. The buffer is filled beforehand with the complement of
 * the expected bytes, so that a read that moves nothing cannot pass. Some file systems accept
 * O_DIRECT and read through the page cache all the same (f2fs, ext4 with journalled data); then
 * the block turns up there, and buffered reads, which give it back, are the honest choice. */
#define _GNU_SOURCE
#include "io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io.h"

#define BLOCK_MIN 512u

void sl_direct_set_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

#ifdef O_DIRECT

/* 0: the file system says that there is no direct access, or wants more than we do. */
static uint32_t find_block(int fd)
{
    long page = sysconf(_SC_PAGESIZE);
    uint32_t block = page > 4096 ? (uint32_t)page : 4096;
/* Before Android 11 the filter of applications kills on statx. */
#if defined(STATX_DIOALIGN) && (!defined(__ANDROID_API__) || __ANDROID_API__ >= 30)
    struct statx sx;
    memset(&sx, 0, sizeof sx);
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
        (sx.stx_mask & STATX_DIOALIGN) != 0) {
        if (sx.stx_dio_offset_align == 0 || sx.stx_dio_mem_align == 0) return 0;
        block = BLOCK_MIN;
        if (sx.stx_dio_offset_align > block) block = sx.stx_dio_offset_align;
        if (sx.stx_dio_mem_align > block) block = sx.stx_dio_mem_align;
    }
#else
    (void)fd;
#endif
    if (block > SL_IO_BLOCK_MAX || (block & (block - 1)) != 0) return 0;
    return block;
}

static ssize_t read_once(int fd, void *buf, size_t bytes, uint64_t offset)
{
    ssize_t n;
    int tries = 0;
    do {
        n = pread(fd, buf, bytes, (off_t)offset);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN) && ++tries < 100);
    return n;
}

/* Whether the page that holds offset is in the page cache. Systems that do not tell say yes. */
static bool is_cached(int fd, uint64_t offset)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char resident = 1;
    void *map =
        mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)(offset & ~(uint64_t)(page - 1)));
    if (map == MAP_FAILED) return true;
    if (mincore(map, page, &resident) != 0) resident = 1;
    munmap(map, page);
    return (resident & 1) != 0;
}

/* NULL: the block at offset reads the same both ways. buffers holds two blocks. */
static const char *compare_block(int direct_fd, int buffered_fd, uint64_t offset,
                                 unsigned char *buffers, uint32_t block)
{
    unsigned char *wanted = buffers;
    unsigned char *found = buffers + block;
    ssize_t n = read_once(buffered_fd, wanted, block, offset);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = offset & ~(page - 1);
    (void)posix_fadvise(buffered_fd, (off_t)from, (off_t)(block + page), POSIX_FADV_DONTNEED);
    bool was_cached = is_cached(buffered_fd, offset);
    if (n <= 0) return "the buffered read to compare with failed";
    for (uint32_t i = 0; i < block; i++) found[i] = (unsigned char)~wanted[i];
    ssize_t m = read_once(direct_fd, found, block, offset);
    if (m < 0) return "a direct read fails";
    if (m != n) return "a direct read has another length";
    if (memcmp(wanted, found, (size_t)n) != 0) return "a direct read brings other bytes";
    if (was_cached || !is_cached(buffered_fd, offset)) return NULL;
    (void)posix_fadvise(buffered_fd, (off_t)from, (off_t)(block + page), POSIX_FADV_DONTNEED);
    return "a direct read goes through the page cache";
}

/* True where both descriptors are of one file: the path may name another by now. */
static bool same_file(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

sluice_err sl_direct_open(const char *path, int buffered_fd, uint64_t file_bytes,
                          struct sl_budget *b, struct sl_direct *out)
{
    *out = (struct sl_direct){-1, 1, NULL};
    void *memory = NULL;
    uint64_t capacity = 0;
    sluice_err err = SLUICE_OK;
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
    uint32_t block = fd >= 0 ? find_block(fd) : 0;
    if (file_bytes == 0) out->reason = "the file is empty";
    if (block == 0) out->reason = "the file system does not offer it";
    if (fd < 0) out->reason = "the file system refuses to open it so";
    if (fd >= 0 && !same_file(fd, buffered_fd)) out->reason = "the path names another file now";
    if (out->reason != NULL) goto out;

    err = sl_grow(b, &memory, &capacity, 3 * (uint64_t)block, 1);
    if (err != SLUICE_OK) goto out;
    uintptr_t misplaced = (uintptr_t)memory & (block - 1);
    unsigned char *buffers = (unsigned char *)memory + (misplaced != 0 ? block - misplaced : 0);
    uint64_t last = (file_bytes - 1) & ~(uint64_t)(block - 1);
    out->reason = compare_block(fd, buffered_fd, 0, buffers, block);
    if (out->reason == NULL) out->reason = compare_block(fd, buffered_fd, last, buffers, block);
    if (out->reason != NULL) goto out;
    sl_direct_set_blocking(fd);
    out->fd = fd;
    out->block = block;
    fd = -1;
out:
    sl_free(memory);
    if (fd >= 0) close(fd);
    return err;
}

#else

sluice_err sl_direct_open(const char *path, int buffered_fd, uint64_t file_bytes,
                          struct sl_budget *b, struct sl_direct *out)
{
    (void)path, (void)buffered_fd, (void)file_bytes, (void)b;
    *out = (struct sl_direct){-1, 1, "the system has no O_DIRECT"};
    return SLUICE_OK;
}

#endif
