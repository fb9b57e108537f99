/* Types chosen by measured error, for a limit of size: see docs/PACKING.md.
 *
 * Rows of every class that may change are encoded in each type that it may have. Then every class
 * begins with its smallest type, and the step that takes off the most error for a byte is taken, as
 * long as it fits. The error of a class is relative (of its values' squares, weighted by the
 * statistics if there are any), and counts by what such errors were measured to do (choose.c); how
 * many experts there are does not count, since a token meets a class once. The same input gives the
 * same choice, whatever the number of threads.
 *
 * Thread: the pool's driver. */
#ifndef SL_PACK_CHOOSE_H
#define SL_PACK_CHOOSE_H

#include "pack/pack_run.h"

struct sl_pack_choice;

/* Samples and measures; job->progress counts samples. Classes that a rule of a recipe decides about
 * stay as they are, as do those that are kept anyway. Errors: SLUICE_E_NUMERIC, SLUICE_E_CANCELLED,
 * SLUICE_E_NOMEM, those of source.h. */
SL_MUST_CHECK sluice_err sl_pack_choice_open(const struct sl_pack_job *job, sluice_error *e,
                                             struct sl_pack_choice **out);
void sl_pack_choice_close(struct sl_pack_choice *c); /* NULL is fine */

/* Bytes of all weights with the smallest types and with the largest. */
uint64_t sl_pack_choice_smallest(const struct sl_pack_choice *c);
uint64_t sl_pack_choice_largest(const struct sl_pack_choice *c);

/* Gives the classes of plan, which is the one measured, types that take at most limit bytes
 * together; false, with the smallest ones, where there are none. */
bool sl_pack_choose(struct sl_pack_choice *c, struct sl_pack_plan *plan, uint64_t limit);

#endif
