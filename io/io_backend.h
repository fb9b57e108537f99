/* What the backends share: lists of requests and the life of one request as a series of system
 * calls. A backend asks sl_io_next() what to read, has it read in its own way, and tells
 * sl_io_advance() the result until that says the request is complete. Thus retries, resumption and
 * the end of a file are decided in one place. */
#ifndef SL_IO_BACKEND_H
#define SL_IO_BACKEND_H

#include "io/io.h"

enum sl_io_state { SL_IO_IDLE = 0, SL_IO_WAITING, SL_IO_STARTED, SL_IO_COMPLETE };

/* Where the front has a request that the backend has handed back, or shall. */
enum sl_io_place { SL_IO_WITH_ANYBODY = 0, SL_IO_AWAITED, SL_IO_PARKED };

/* Doubly linked through own.next and own.prev: cancelling is O(1). */
struct sl_io_list {
    struct sl_io_request *first, *last;
};

/* First part of every backend's handle. */
struct sl_io {
    const struct sl_io_ops *ops;
    const char *name;
    struct sl_budget *budget;
    const struct sl_log *log;
    uint32_t outstanding;     /* submitted, not reaped */
    uint32_t files;           /* open */
    struct sl_io_list parked; /* handed back by the backend while sl_io_wait waited for others */
    /* Sees each result of a read before sl_io_advance does and may change it; NULL: none. Called on
     * whatever thread read; result is a byte count or a negative errno. For io_fault. */
    int64_t (*tap)(void *user, const struct sl_io_request *r, int64_t result);
    void *tap_user;
};

struct sl_io_file {
    struct sl_io *io;
    struct sl_file *file;
    int fd;          /* buffered */
    int direct_fd;   /* -1: none */
    int slot;        /* registered index of the descriptor requests start with; -1: none */
    uint32_t block;  /* 1: no direct access */
    uint32_t in_use; /* requests out; the owner's count */
};

void sl_io_list_append(struct sl_io_list *l, struct sl_io_request *r);
void sl_io_list_prepend(struct sl_io_list *l, struct sl_io_request *r);
void sl_io_list_remove(struct sl_io_list *l, struct sl_io_request *r);
struct sl_io_request *sl_io_list_pop(struct sl_io_list *l); /* NULL: empty */

/* Waiting requests by priority, and the rule which may start. */
struct sl_io_queue {
    struct sl_io_list waiting[2]; /* by enum sl_io_priority */
    uint32_t low_max;             /* low-priority requests started at once */
    uint32_t low_started;
};
void sl_io_queue_put(struct sl_io_queue *q, struct sl_io_request *r);
/* The next request to start, marked so; NULL: none may start now. */
struct sl_io_request *sl_io_queue_take(struct sl_io_queue *q);
void sl_io_queue_finished(struct sl_io_queue *q, const struct sl_io_request *r);
/* Both false where r does not wait. drop leaves r complete with SLUICE_E_CANCELLED. */
bool sl_io_queue_drop(struct sl_io_queue *q, struct sl_io_request *r);
struct sl_io_request *sl_io_queue_drop_any(struct sl_io_queue *q); /* NULL: none waits */
bool sl_io_queue_promote(struct sl_io_queue *q, struct sl_io_request *r);
/* low_depth of the configuration for a backend with that many lanes. */
uint32_t sl_io_low_max(uint32_t low_depth, uint32_t lanes);

/* One system call. */
struct sl_io_piece {
    int fd;
    void *buf;
    uint64_t offset;
    uint64_t bytes;
};
void sl_io_next(const struct sl_io_request *r, struct sl_io_piece *piece);
/* result: bytes read, or a negative errno. True: the request is complete, and its result set. */
bool sl_io_advance(struct sl_io *io, struct sl_io_request *r, int64_t result);
/* The whole request with pread, on the calling thread. */
void sl_io_read_now(struct sl_io *io, struct sl_io_request *r);

/* The backends. As sl_io_open; the configuration's zeros are replaced already. */
SL_MUST_CHECK sluice_err sl_io_pread_open(const struct sl_io_config *c, struct sl_budget *b,
                                          const struct sl_log *log, sluice_error *e,
                                          struct sl_io **out);
SL_MUST_CHECK sluice_err sl_io_uring_open(const struct sl_io_config *c, struct sl_budget *b,
                                          const struct sl_log *log, sluice_error *e,
                                          struct sl_io **out);

#endif
