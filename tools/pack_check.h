/* What packing makes sure of beside its options: that it does not write over what it reads, and
 * that what comes out can be run. */
#ifndef CLI_PACK_CHECK_H
#define CLI_PACK_CHECK_H

#include "include/sluice.h"
#include "pack/source.h"

/* SLUICE_E_ARG: a file that is going to be written is one of the source's, by whatever name. */
SL_MUST_CHECK sluice_err cli_pack_check_apart(const struct sl_source *s, const char *output,
                                              uint32_t n_parts, struct sl_budget *b,
                                              sluice_error *e);

/* Asks the engine whether it could run the model, without any weights: its error, if not. An
 * architecture that this version does not know is none: *known 0, and a warning is said. */
SL_MUST_CHECK sluice_err cli_pack_check_runs(const char *path, int *known, sluice_error *e);

#endif
