/* Metadata of two models compared. Thread: pure. */
#ifndef SL_GGUF_COMPARE_H
#define SL_GGUF_COMPARE_H

#include "formats/gguf.h"

/* Position of key among those of g, or UINT32_MAX. */
uint32_t sl_gguf_key_index(const struct sl_gguf *g, struct sl_str key);

/* Whether a key of a and one of b have the same value: the same bytes of the same kind, or the same
 * whole number of different kinds. */
bool sl_gguf_same_value(const struct sl_gguf *a, uint32_t index_a, const struct sl_gguf *b,
                        uint32_t index_b);

#endif
