/* Drawing a memory layout: the same code that hands out pointers also measures, so that a plan is
 * exact to the byte. Run once with base NULL to measure, then with base set to at least that much
 * memory. Pieces are 64-byte aligned. */
#ifndef SL_LAYOUT_H
#define SL_LAYOUT_H

#include "base/base.h"

struct sl_layout {
    uint8_t *base; /* NULL: measuring, every piece is NULL */
    uint64_t used;
};

/* count * size is bounded by the limits of limits.h far below 2^64. */
static inline void *sl_layout_take(struct sl_layout *l, uint64_t count, uint64_t size)
{
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (count * size + 63) & ~(uint64_t)63;
    return p;
}

#endif
