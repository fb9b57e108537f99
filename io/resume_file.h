/* Files that are written over hours, at offsets, and taken up again after a crash: unlike
 * new_file.h what an interrupted run left is kept. The caller says what to keep and when to sync. A
 * file is locked while it is open, so that two runs do not write one file; file systems without
 * locks go without.
 *
 * Thread: one per handle. */
#ifndef SL_RESUME_FILE_H
#define SL_RESUME_FILE_H

#include "base/base.h"
#include "base/mem.h"

struct sl_resume_file;

/* For tests: how many changes (writes, cuts, syncs, renames, removals) still happen. The next one
 * fails with SLUICE_E_IO and leaves everything as it is, as every later one does: what a process
 * that is killed leaves behind. NULL where one is taken: no limit. */
struct sl_resume_limit {
    uint64_t changes_left;
};

/* Opens path, or makes it. path is copied, limit borrowed until close. Errors: SLUICE_E_IO (no
 * permission, no folder, no regular file, open in another process for two seconds more); the lock
 * is one of the file that has the name, also where that changed while it was waited for.
 * SLUICE_E_NOMEM, SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_resume_file_open(const char *path, struct sl_resume_limit *limit,
                                             struct sl_budget *b, sluice_error *e,
                                             struct sl_resume_file **out);
/* Keeps the file. NULL is fine. What was not synced may be lost. */
void sl_resume_file_close(struct sl_resume_file *f);

/* SLUICE_E_CHANGED where path, by which f was opened, is another file's by now or nobody's: what
 * was written would not be what gets the final name. */
SL_MUST_CHECK sluice_err sl_resume_file_check_name(struct sl_resume_file *f, const char *path,
                                                   sluice_error *e);

/* Bytes of the file now. */
SL_MUST_CHECK sluice_err sl_resume_file_bytes(struct sl_resume_file *f, uint64_t *bytes,
                                              sluice_error *e);
/* SLUICE_E_IO, e.g. where the disk is full. */
SL_MUST_CHECK sluice_err sl_resume_file_write(struct sl_resume_file *f, uint64_t offset,
                                              const void *data, uint64_t bytes, sluice_error *e);
/* SLUICE_E_TRUNCATED where the file ends first, SLUICE_E_IO. */
SL_MUST_CHECK sluice_err sl_resume_file_read(struct sl_resume_file *f, uint64_t offset, void *data,
                                             uint64_t bytes, sluice_error *e);
/* Makes the file that long: cuts it, or adds zeros. */
SL_MUST_CHECK sluice_err sl_resume_file_cut(struct sl_resume_file *f, uint64_t bytes,
                                            sluice_error *e);
/* What was written is on the drive afterwards, and leaves the page cache. */
SL_MUST_CHECK sluice_err sl_resume_file_sync(struct sl_resume_file *f, sluice_error *e);

/* Gives a file that nobody has open another name, in place of what has it, or removes it; removing
 * what is not there is no error. The folder is synced where it can be. */
SL_MUST_CHECK sluice_err sl_resume_rename(const char *from, const char *to,
                                          struct sl_resume_limit *limit, sluice_error *e);
SL_MUST_CHECK sluice_err sl_resume_remove(const char *path, struct sl_resume_limit *limit,
                                          sluice_error *e);

bool sl_resume_exists(const char *path);

/* Bytes of the drive that the file occupies; 0: there is none. */
uint64_t sl_resume_occupied(const char *path);

/* Bytes that can still be written to the file system of path's folder; UINT64_MAX: not known. */
uint64_t sl_resume_room(const char *path);

#endif
