/* The books of the expert cache driven as the engine's store drives them (store_chunk.c,
 * store_guess.c), with a drive that delivers at once: one set of books, or one a layer. For trace/
 * only. */
#ifndef SL_REPLAY_DRIVE_H
#define SL_REPLAY_DRIVE_H

#include "trace/replay.h"
#include "trace/replay_choice.h"

struct replay_drive; /* opaque */

/* Slots as c says, which has been checked. Errors: SLUICE_E_NOMEM, SLUICE_E_BUDGET. Owner: the
 * caller; replay_drive_close. */
SL_MUST_CHECK sluice_err replay_drive_open(const struct sl_trace *t,
                                           const struct sl_replay_config *c, struct sl_budget *b,
                                           sluice_error *e, struct replay_drive **out);
/* What came since the visit before, up to the next visit's choice: hints, and as_recorded ops. */
void replay_drive_steps(struct replay_drive *d, uint64_t visit);
/* The visit before is over, the next one chooses. Fills choice->there, then reads what is missing
 * as far as there are slots now; the rest comes with the next steps or visit. */
void replay_drive_visit(struct replay_drive *d, struct replay_choice *choice);
uint64_t replay_drive_evictions(const struct replay_drive *d);
void replay_drive_close(struct replay_drive *d); /* NULL is fine */

#endif
