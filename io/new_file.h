/* Files written whole or not at all: to NAME.partial beside the final name, synced, then renamed.
 * A crash leaves the old file, if there was one, and NAME.partial, which the next attempt takes
 * over. Two writers of one name do not meet: the second is refused.
 *
 * Thread: one per handle. */
#ifndef SL_NEW_FILE_H
#define SL_NEW_FILE_H

#include "base/base.h"
#include "base/mem.h"

struct sl_new_file;

/* path is copied. Errors: SLUICE_E_IO (read-only, no permission, no folder, being written by
 * another process), SLUICE_E_NOMEM, SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_new_file_open(const char *path, struct sl_budget *b, sluice_error *e,
                                          struct sl_new_file **out);

/* Appends. SLUICE_E_IO, e.g. where the disk is full; discard is still due. */
SL_MUST_CHECK sluice_err sl_new_file_write(struct sl_new_file *f, const void *data, uint64_t bytes,
                                           sluice_error *e);

/* Syncs, gives the file its name, and releases f, whatever comes of it. SLUICE_E_IO leaves nothing
 * behind, and an older file of the name as it was. */
SL_MUST_CHECK sluice_err sl_new_file_commit(struct sl_new_file *f, sluice_error *e);

/* Deletes what was written and releases f. NULL is fine. */
void sl_new_file_discard(struct sl_new_file *f);

#endif
