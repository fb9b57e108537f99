/* Belady's optimum: what a cache would hit that knows the future and evicts what is used again
 * last. No policy hits more often, so it bounds what a better one could gain.
 *
 * Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
 * Systems Journal 5 (1966). Here a request is a visit: its experts are looked up together, and
 * those that are missing come in.
 *
 * A token's experts are all needed in slots at once, so none of them may be evicted for another;
 * of the rest goes whoever is used again last (never again first, ties least recently used). This
 * is what replay_reference.py of the shared traces defines.
 *
 * A prompt's chunk is one visit, in which each expert counts once: its tokens all look up before
 * anything is read, and what is read may pass through the ring without displacing anybody. So after
 * it any of what was there and of what the chunk chose may be in the slots. What is chosen next by
 * a prompt's chunk is not worth a slot until then, since the chunk would bring it in anyway without
 * a decoded token waiting: it is evicted like what is never used again, only after that.
 *
 * Hence the bound: no order of eviction, with or without ring, has more hits of decoded tokens.
 * Hits of prompts are those that this very schedule has, and other policies may have more of them.
 * Thread: one handle, one thread. */
#ifndef SL_OPTIMUM_H
#define SL_OPTIMUM_H

#include "trace/replay.h"
#include "trace/replay_choice.h"

struct sl_optimum; /* opaque */

/* Pools and slots as c says, which has been checked. Takes 4 bytes a choice. Errors: SLUICE_E_LIMIT
 * (too many visits), SLUICE_E_NOMEM. Owner: the caller; sl_optimum_close. */
SL_MUST_CHECK sluice_err sl_optimum_open(const struct sl_trace *t, const struct sl_replay_config *c,
                                         struct sl_budget *b, sluice_error *e,
                                         struct sl_optimum **out);
/* The visits, ascending, all that open saw: without those of prompts where c skips them. Fills
 * choice->there. */
void sl_optimum_visit(struct sl_optimum *o, struct replay_choice *choice);
uint64_t sl_optimum_evictions(const struct sl_optimum *o);
void sl_optimum_close(struct sl_optimum *o); /* NULL is fine */

#endif
