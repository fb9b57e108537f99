/* Matrices that lose nothing in BF16.
 *
 * Thread: one. */
#ifndef SL_FITS_BF16_H
#define SL_FITS_BF16_H

#include "pack/source.h"

/* *fits: every value of tensor index, which is of float32, is one that BF16 holds. Errors: those of
 * reading, SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_pack_fits_bf16(const struct sl_source *s, uint32_t index,
                                           struct sl_budget *b, sluice_error *e, bool *fits);

#endif
