/* Giving the expert cache's memory back while an evaluation may be running: anybody may ask, the
 * driver does it, between two layers. */
#ifndef SL_TRIM_H
#define SL_TRIM_H

#include "engine/model.h"

/* Levels are those of sluice.h (enum sluice_trim); 0: nothing was asked for. */

/* Notes the level; a later one replaces it. Thread: safe. */
void sl_model_request_trim(struct sl_model *m, uint32_t level);
/* Does what was last asked for, if anything was. No layer is begun. Thread: the driver. */
void sl_model_apply_trim(struct sl_model *m);
/* Whether something is asked for and not yet done. Thread: safe. */
bool sl_model_trim_waits(const struct sl_model *m);

#endif
