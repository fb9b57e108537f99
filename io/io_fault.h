/* Faults on purpose: a backend around another that damages chosen reads, for tests of everything
 * above. It keeps the contract of io.h; flipped bits and wrong offsets are reported as success,
 * since only checksums can find them.
 *
 * Faults of requests are counted in the order of submission, so the same run meets the same fault.
 * Faults of system calls (SYS_) strike below the retries of the inner backend, in the order in
 * which its calls return: EIO once must not be noticed above, EIO for ever must. */
#ifndef SL_IO_FAULT_H
#define SL_IO_FAULT_H

#include "io/io.h"

enum sl_io_fault_kind {
    SL_IO_FAULT_NONE = 0,
    SL_IO_FAULT_FAIL,         /* the request fails: SLUICE_E_IO, sys_errno */
    SL_IO_FAULT_FLIP,         /* one bit of its bytes is inverted */
    SL_IO_FAULT_WRONG_OFFSET, /* it brings bytes from another place; where the file has no other
                                 place for it, a bit is flipped instead */
    SL_IO_FAULT_DELAY,        /* its completion is seen delay_ns later */
    SL_IO_FAULT_REORDER,      /* its completion is seen after a later one */
    SL_IO_FAULT_SYS_ERROR,    /* the system call returns sys_errno */
    SL_IO_FAULT_SYS_SHORT     /* the system call returns at most short_bytes */
};

struct sl_io_fault_plan {
    enum sl_io_fault_kind kind;
    int sys_errno;        /* 0: EIO */
    uint64_t nth;         /* the first one struck, from 1 */
    uint64_t times;       /* how many in a row; 0: one; UINT64_MAX: for ever */
    uint64_t delay_ns;    /* of DELAY */
    uint64_t short_bytes; /* of SYS_SHORT, 1.. ; 0: one */
    uint64_t bit;         /* of FLIP, modulo the bits of the request */
};

/* Wraps inner, with which nothing may be open or out (asserted). Files are opened with the wrapper.
 *
 * Returns SLUICE_OK, or SLUICE_E_NOMEM, SLUICE_E_BUDGET with *out NULL.
 * Owner:  on success the wrapper owns inner and closes it; on failure it stays the caller's.
 * Thread: the owner thread of inner, for all three functions. */
SL_MUST_CHECK sluice_err sl_io_fault_open(struct sl_io *inner, const struct sl_io_fault_plan *plan,
                                          sluice_error *e, struct sl_io **out);

/* A new plan, counted from now. No request may be out (asserted). io is a wrapper. */
void sl_io_fault_set(struct sl_io *io, const struct sl_io_fault_plan *plan);

/* How often the plan has struck: a loop over nth ends where this stays 0. */
uint64_t sl_io_fault_met(const struct sl_io *io);

#endif
