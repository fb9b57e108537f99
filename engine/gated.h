/* The input half of gated feed-forward networks, silu(gate x) * up x (Shazeer 2020, SwiGLU), in the
 * form that down's weights take: both products, theirs, and its codes in one pass, of any number of
 * networks without a barrier between them. Thread: the driver. */
#ifndef SL_GATED_H
#define SL_GATED_H

#include <stdatomic.h>

#include "engine/matmul.h"

/* One network and the vectors that go through it. */
struct sl_gated {
    struct sl_mm gate, up;            /* [ff][n_embd] each; of y sl_gated_run takes care */
    const float *gate_bias, *up_bias; /* [ff] or NULL */
    uint32_t first;                   /* results are vectors [first, first + n_tokens) of acts */
};

/* Where results go. */
struct sl_gated_out {
    struct sl_acts *acts;   /* of ff columns, begun */
    uint32_t type;          /* of down's weights */
    float *tiles;           /* [threads][tile_size] scratch */
    uint64_t tile_size;     /* at least n_tokens of any item times SL_TILE_ROWS */
    _Atomic uint32_t *done; /* [sl_gated_done] scratch */
};

/* Elements of done for so many networks: of blocks of 256, which are more than a tile. */
static inline uint64_t sl_gated_done(uint64_t n_items, uint32_t ff)
{
    return n_items * (((uint64_t)ff + 255) / 256);
}

/* Runs all items, whose results must not overlap; acts->act[kind of type] of those is valid
 * afterwards. False where one is not finite. */
bool sl_gated_run(const struct sl_compute *c, struct sl_gated *items, uint32_t n_items,
                  const struct sl_gated_out *out);

#endif
