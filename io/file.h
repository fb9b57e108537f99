/* Files, read at offsets. A read is whole or failed: short reads are resumed, EINTR and EAGAIN
 * retried a bounded number of times, requests above 1 GiB split. A failure names the file and the
 * offset.
 *
 * Thread: sl_file_read_at and sl_file_drop_cache are safe on one file from many threads; open and
 * close are not. */
#ifndef SL_FILE_H
#define SL_FILE_H

#include "base/base.h"
#include "base/mem.h"

struct sl_file;

/* Opens a regular file (or block device) for reading. path is copied. Errors: SLUICE_E_NOT_FOUND
 * (with what was looked for), SLUICE_E_IO (also: a directory, no permission), SLUICE_E_NOMEM,
 * SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_file_open(const char *path, struct sl_budget *b, sluice_error *e,
                                      struct sl_file **out);
void sl_file_close(struct sl_file *f);

uint64_t sl_file_bytes(const struct sl_file *f); /* size when it was opened */
const char *sl_file_path(const struct sl_file *f);
/* The descriptor, for the asynchronous layer (io.h) to compare its own with. Stays f's. */
int sl_file_fd(const struct sl_file *f);

/* Whether path names this file, under whatever name. */
bool sl_file_is(const struct sl_file *f, const char *path);

/* Reads exactly bytes at offset into buf. Errors: SLUICE_E_TRUNCATED where the file ends first
 * (with wanted and found), SLUICE_E_IO otherwise; e->file_offset is set. */
SL_MUST_CHECK sluice_err sl_file_read_at(struct sl_file *f, uint64_t offset, void *buf,
                                         uint64_t bytes, sluice_error *e);

/* Gives the page cache of a range back, whole pages that touch it; bytes 0: to the end of the file.
 * Pages at the ends that the system keeps together with others stay, so end with a whole file.
 * What was read once and lives in our own memory now would count twice otherwise. A wish: where the
 * system refuses, nothing happens. */
void sl_file_drop_cache(struct sl_file *f, uint64_t offset, uint64_t bytes);

/* SLUICE_E_CHANGED where size, modification time, device or inode differ from what they were at
 * open. */
SL_MUST_CHECK sluice_err sl_file_check_unchanged(struct sl_file *f, sluice_error *e);

#endif
