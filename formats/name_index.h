/* Names to positions, looked up in constant time: tensors, metadata keys. Memory is that of a hash
 * table with at most half of its places taken. Thread: look-ups are pure. */
#ifndef SL_NAME_INDEX_H
#define SL_NAME_INDEX_H

#include "base/mem.h"

struct sl_gg_index {
    uint32_t *slots; /* position + 1; 0: empty */
    uint64_t mask;
};

/* items: n structs of stride bytes whose first member is a struct sl_str, the name.
 * SLUICE_E_FORMAT: the name of item *bad was there before, or, with *bad == n, the names were
 * chosen to collide. Neither fills an error. SLUICE_E_NOMEM: no memory. */
SL_MUST_CHECK sluice_err sl_gg_index_build(struct sl_gg_index *ix, struct sl_budget *b,
                                           const void *items, uint32_t n, size_t stride,
                                           uint32_t *bad);
void sl_gg_index_deinit(struct sl_gg_index *ix);
/* Position of name, or UINT32_MAX. */
uint32_t sl_gg_index_find(const struct sl_gg_index *ix, const void *items, size_t stride,
                          struct sl_str name);

#endif
