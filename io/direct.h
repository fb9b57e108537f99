/* O_DIRECT, proved on the file itself before anybody relies on it.
 *
 * Opening with O_DIRECT succeeds on file systems where reading then fails, brings no data, or wants
 * another alignment than the drive's sector (tmpfs, FUSE, overlays, btrfs, bcachefs). So blocks are
 * read both ways and compared. Leaves to others: what to do where it does not work. */
#ifndef SL_DIRECT_H
#define SL_DIRECT_H

#include "base/base.h"
#include "base/mem.h"

struct sl_direct {
    int fd;             /* -1: direct access does not work */
    uint32_t block;     /* alignment of offsets, sizes and memory: a power of two, 512 ..
                           SL_IO_BLOCK_MAX; 1 where fd is -1 */
    const char *reason; /* why not, a string constant for the log; NULL with a descriptor */
};

/* Opens path with O_DIRECT and compares what it reads with buffered_fd, which is open on the same
 * file of file_bytes bytes. Charges three blocks to b while it runs.
 *
 * Returns SLUICE_OK also where direct access does not work; SLUICE_E_NOMEM or SLUICE_E_BUDGET.
 * Owner:  the caller closes out->fd.
 * Thread: safe. */
SL_MUST_CHECK sluice_err sl_direct_open(const char *path, int buffered_fd, uint64_t file_bytes,
                                        struct sl_budget *b, struct sl_direct *out);

/* Takes O_NONBLOCK, with which files are opened lest a FIFO blocks, from a descriptor: io_uring
 * gives up with EAGAIN on it where it would else wait. Thread: safe. */
void sl_direct_set_blocking(int fd);

#endif
