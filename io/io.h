/* Reading model data without waiting for it: requests go in, completions come out.
 *
 * Three backends behind one table of functions: io_uring, a pool of threads that call pread, and a
 * wrapper around either that injects faults (io_fault.h). Which one runs changes the speed and
 * nothing else. Headers and metadata are read with io/file.h, which waits.
 *
 * The contract, which every backend keeps and test_io proves over each:
 *
 *   submit    takes all requests of the array or none (SLUICE_E_ARG: one breaks a rule below). It
 *             never waits for the drive and never allocates; any number may be queued.
 *   complete  each request taken is handed back by reap exactly once, whole (code SLUICE_OK, every
 *             wanted byte in place) or failed (code, sys_errno, fail_offset; the destination then
 *             holds anything). Order is not promised.
 *   retries   are inside: short reads are resumed, EINTR and EAGAIN repeated, EIO repeated once,
 *             all a bounded number of times. A file that ends before the last wanted byte gives
 *             SLUICE_E_TRUNCATED, whatever else fails SLUICE_E_IO.
 *   priority  a waiting demand request starts before any waiting low-priority one, and low-priority
 *             ones never occupy every lane (sl_io_config.low_depth).
 *   buffers   the request, its file and its destination belong to the layer from submit to reap.
 *   threads   one owner thread at a time calls everything here, and does not end while requests
 *             are out: the kernel drops the reads of a thread that ends. Log lines come on it.
 *
 * Where the destination lies. Direct reads move whole blocks between places that are multiples of
 * the block, in the file and in memory. So that an expert at any offset needs no bounce copy, its
 * first byte must land at dst with
 *
 *       dst mod block == offset mod block          block = sl_io_file_block(file)
 *
 * and the rounded range around it may be overwritten: with s = sl_io_span(file, offset, bytes), the
 * s.bytes bytes from dst - s.lead on.
 *
 *       |<- lead ->|<------------ bytes ------------>|<- tail ->|
 *       ^ block    ^ dst                                        ^ block
 *
 * A buffer whose place in the file is not known beforehand needs sl_io_room(block, bytes) bytes
 * from a multiple of the block; data then starts at base + offset mod block. Buffered files have a
 * block of 1: no lead, no tail, any dst. A larger power of two than the file's block serves too, so
 * one value (the largest of all files) does for a model. Bytes outside [dst, dst + bytes) are
 * undefined afterwards: at the end of a file the last block is short, which is normal. */
#ifndef SL_IO_H
#define SL_IO_H

#include "base/base.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"

#define SL_IO_BLOCK_MAX 65536u  /* bytes; a file that needs larger blocks is read buffered */
#define SL_IO_DEPTH_MAX 1024u   /* requests at the kernel at once */
#define SL_IO_DEPTH_DEFAULT 32u /* of io_uring */
#define SL_IO_LANES_MAX 64u     /* threads of the pread pool */
#define SL_IO_LANES_DEFAULT 4u  /* UFS and NVMe drives are busy with 2 to 4 large reads */
#define SL_IO_BUFFERS_MAX 1024u /* pieces of 1 GiB that can be registered */

struct sl_io;
struct sl_io_file;

enum sl_io_kind { SL_IO_AUTO = 0, SL_IO_URING = 1, SL_IO_PREAD = 2 };
enum sl_io_priority { SL_IO_DEMAND = 0, SL_IO_LOW = 1 };
enum sl_io_access { SL_IO_DIRECT = 0 /* where it works */, SL_IO_BUFFERED = 1 };

/* What a backend keeps in a request; nobody else's business. Zeroed by submit. */
struct sl_io_private {
    struct sl_io_request *next, *prev;
    uint64_t got;           /* bytes in place, from the start of the rounded range */
    uint64_t saved_offset;  /* io_fault: the real offset of a misdirected read */
    uint64_t due_ns;        /* io_fault: when a delayed completion may be seen */
    uint32_t block;         /* 1: this request is read buffered */
    uint16_t resumes;       /* short reads so far */
    uint16_t interruptions; /* in a row */
    uint8_t stalls;         /* reads that brought nothing new */
    uint8_t io_errors;
    uint8_t state; /* enum sl_io_state of io_backend.h */
    uint8_t fault; /* io_fault: what happens to this one */
    uint8_t place; /* enum sl_io_place of io_backend.h; only the owner thread looks at it */
};

struct sl_io_request {
    /* The caller's; constant from submit to reap. */
    struct sl_io_file *file;
    uint64_t offset; /* first wanted byte */
    uint64_t bytes;  /* wanted; 1.. ; offset + bytes <= INT64_MAX */
    void *dst;       /* where that byte goes: see above */
    enum sl_io_priority priority;
    void *user; /* not looked at */

    /* The result, valid once reaped. */
    sluice_err code;      /* SLUICE_OK, E_TRUNCATED, E_IO, E_CANCELLED */
    int sys_errno;        /* 0: no system call failed */
    uint64_t fail_offset; /* where in the file, if code is not SLUICE_OK */

    struct sl_io_private own;
};

struct sl_io_config {
    enum sl_io_kind kind;
    uint32_t depth;     /* io_uring: requests at the kernel, 1..SL_IO_DEPTH_MAX; 0: default */
    uint32_t lanes;     /* pread: threads, 1..SL_IO_LANES_MAX; 0: default */
    uint32_t low_depth; /* low-priority requests started at once, 1.. ; 0: a quarter of the above.
                           Where there are two lanes or more, one is always left to demand reads */
};

/* The table of a backend. Callers use the functions below, which check the arguments first. attach,
 * detach, pin and unpin may be NULL: they only make things faster. */
struct sl_io_ops {
    void (*submit)(struct sl_io *io, struct sl_io_request *const *requests, uint32_t n);
    uint32_t (*reap)(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t min);
    bool (*cancel)(struct sl_io *io, struct sl_io_request *r);
    void (*cancel_all)(struct sl_io *io);
    bool (*promote)(struct sl_io *io, struct sl_io_request *r);
    void (*attach)(struct sl_io *io, struct sl_io_file *f);
    void (*detach)(struct sl_io *io, struct sl_io_file *f);
    bool (*pin)(struct sl_io *io, void *base, uint64_t bytes);
    void (*unpin)(struct sl_io *io);
    void (*close)(struct sl_io *io);
};

/* Opens a backend. SL_IO_AUTO takes io_uring where the kernel grants it and the pool otherwise, and
 * says so in one log line; SL_IO_URING fails with SLUICE_E_UNSUPPORTED where it is refused, or on
 * Android, where even asking kills the process.
 *
 *   log   may be NULL; must outlive the handle.
 *
 * Returns SLUICE_OK, or SLUICE_E_ARG, SLUICE_E_BUDGET, SLUICE_E_NOMEM, SLUICE_E_UNSUPPORTED; *out
 * is NULL on failure.
 * Owner:  the caller; release with sl_io_close().
 * Thread: one owner thread for the handle and everything opened with it. */
SL_MUST_CHECK sluice_err sl_io_open(const struct sl_io_config *config, struct sl_budget *b,
                                    const struct sl_log *log, sluice_error *e, struct sl_io **out);

/* Frees everything. No request may be out and no file open (asserted): sl_io_drain(), then
 * sl_io_file_close() come first. NULL is accepted. */
void sl_io_close(struct sl_io *io);

/* "io_uring" or "pread", for the summary; "fault" for the wrapper. */
const char *sl_io_name(const struct sl_io *io);

/* Opens f for requests: a second descriptor, O_DIRECT if that is wanted and proves to work on this
 * file (direct.h), else buffered, in which case the page cache is given back after each read. f
 * must outlive *out. Says in the log where a wanted direct access does not work.
 *
 * Returns SLUICE_OK, or SLUICE_E_CHANGED where the path now names another file, SLUICE_E_NOT_FOUND,
 * SLUICE_E_IO, SLUICE_E_BUDGET, SLUICE_E_NOMEM; *out is NULL on failure.
 * Owner:  the caller; sl_io_file_close() before sl_io_close(), with no request of it out. */
SL_MUST_CHECK sluice_err sl_io_file_open(struct sl_io *io, struct sl_file *f,
                                         enum sl_io_access access, sluice_error *e,
                                         struct sl_io_file **out);
void sl_io_file_close(struct sl_io_file *f);

/* Bytes, a power of two up to SL_IO_BLOCK_MAX; 1: buffered. Constant while the file is open. */
uint32_t sl_io_file_block(const struct sl_io_file *f);
/* The file's descriptor-independent side: path and size. */
struct sl_file *sl_io_file_of(const struct sl_io_file *f);

/* The rounded range of a read. */
struct sl_io_span {
    uint64_t offset; /* multiple of the block, <= the wanted offset */
    uint64_t bytes;  /* multiple of the block */
    uint64_t lead;   /* bytes before the first wanted one, < block */
};
/* offset + bytes <= INT64_MAX, asserted. Thread: pure. */
struct sl_io_span sl_io_span(const struct sl_io_file *f, uint64_t offset, uint64_t bytes);

/* Bytes a buffer needs, from a multiple of block on, to take any range of that many bytes: bytes
 * rounded up, and one block where the block is not 1. Thread: pure. */
uint64_t sl_io_room(uint32_t block, uint64_t bytes);

/* Starts n requests. Returns SLUICE_OK, or SLUICE_E_ARG with nothing started. */
SL_MUST_CHECK sluice_err sl_io_submit(struct sl_io *io, struct sl_io_request *const *requests,
                                      uint32_t n);

/* Waits until at least min requests are complete (fewer where fewer are out) and stores at most max
 * of the complete ones in out; min <= max. Returns how many. Requests beyond the depth start here
 * too, so an owner that computes for long calls it with min 0 now and then. */
uint32_t sl_io_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t min);

/* Waits until all of these requests are complete and takes them out, as if each had been reaped.
 * Others that complete meanwhile stay for the next sl_io_reap, which hands them out first; so two
 * users may share a handle, one that reaps and one that waits. Each of r is outstanding and stands
 * there once. */
void sl_io_wait(struct sl_io *io, struct sl_io_request *const *r, uint32_t n);

/* Requests submitted and not yet reaped. */
uint32_t sl_io_outstanding(const struct sl_io *io);

/* Takes back a request that has not started: true, and reap hands it out with SLUICE_E_CANCELLED.
 * False: too late, it completes as it would have. r must be outstanding. */
bool sl_io_cancel(struct sl_io *io, struct sl_io_request *r);

/* Cancels what has not started and waits for the rest. All requests are then the caller's again,
 * with their results, as if each had been reaped. For giving up. */
void sl_io_drain(struct sl_io *io);

/* Makes a low-priority request that has not started a demand request: true. False: it has started
 * (and is read as fast as the drive can), or was one already. r must be outstanding. */
bool sl_io_promote(struct sl_io *io, struct sl_io_request *r);

/* Tells the kernel once about the memory that most reads go to, which saves pinning its pages anew
 * for each. An optimization only: false where the backend has no use for it or the memory-lock
 * limit is too small. Pinned memory cannot be given back with madvise before sl_io_unpin(); neither
 * may be called while requests are out (asserted). */
bool sl_io_pin(struct sl_io *io, void *base, uint64_t bytes);
void sl_io_unpin(struct sl_io *io);

/* Fills e with the sentence for a failed request (path, offset, wanted bytes, cause) and returns
 * its code. */
sluice_err sl_io_request_error(const struct sl_io_request *r, sluice_error *e);

#endif
