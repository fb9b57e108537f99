/* Matrix products over the thread pool, and the activations they take.
 *
 * Threads split rows, never a sum, so a product has the same bits for any number of threads; each
 * vector is computed by itself, so it has the same bits for any batch. Thread: the driver. */
#ifndef SL_MATMUL_H
#define SL_MATMUL_H

#include "base/pool.h"
#include "engine/kernels/kernels.h"
#include "engine/layout.h"
#include "engine/model.h"

/* What all arithmetic needs. */
struct sl_compute {
    const struct sl_kernels *kernels;
    struct sl_pool *pool;
};

struct sl_stretch {
    uint32_t first, n;
};

/* Up to capacity vectors as inputs of products. They are written as floats; the int8 forms are made
 * when a weight type asks for them, once. */
struct sl_acts {
    uint32_t kinds; /* there is room for, of sl_k_act_bit; the others' arrays are NULL */
    uint32_t capacity, cols_max;
    uint32_t n, cols;        /* in use */
    float *f;                /* [n][cols] */
    int8_t *q[SL_ACT_KINDS]; /* two digits: twice the columns */
    float *d[SL_ACT_KINDS];
    int16_t *sums[SL_ACT_KINDS];
    struct sl_k_act *act[SL_ACT_KINDS]; /* [capacity] */
    bool ready[SL_ACT_KINDS];
};

/* Takes memory for capacity vectors of up to cols_max elements, as floats and in these kinds, which
 * are those of all weights that will be asked for (sl_k_act_bit). */
void sl_acts_layout(struct sl_acts *a, struct sl_layout *l, uint32_t kinds, uint32_t capacity,
                    uint32_t cols_max);
/* Starts a new set: n vectors of cols elements, to be written at f[i * cols]. */
void sl_acts_begin(struct sl_acts *a, uint32_t n, uint32_t cols);
/* The vectors in the form for weights of a type; NULL where a value is not finite. */
const struct sl_k_act *sl_acts_for(const struct sl_compute *c, struct sl_acts *a, uint32_t type);
/* The same in steps, for vectors of which parts are still being written: elements [first, first +
 * n) of vector i, whole blocks; false where one is not finite. Thread: any worker, distinct parts.
 * Then, when all parts are there, on one thread: act[kind][i] is valid afterwards. */
bool sl_acts_part(const struct sl_compute *c, struct sl_acts *a, enum sl_act_kind kind, uint32_t i,
                  struct sl_stretch part);
void sl_acts_complete(struct sl_acts *a, enum sl_act_kind kind, uint32_t i);

/* One product: y[t * y_stride + r] = row r of w times vector t. */
struct sl_mm {
    struct sl_matrix w;
    const struct sl_k_act *x; /* [n_tokens] in the form for w.type */
    uint32_t n_tokens;
    float *y;
    uint64_t y_stride;
    uint32_t first_task; /* used by sl_mm_run */
};

#define SL_TILE_ROWS 64u /* that a worker takes at once, at most */

/* How many tiles rows fall into, and one of them. */
static inline uint32_t sl_tiles(uint32_t rows) { return (rows + SL_TILE_ROWS - 1) / SL_TILE_ROWS; }
static inline struct sl_stretch sl_tile(uint32_t rows, uint32_t number)
{
    uint32_t first = number * SL_TILE_ROWS, left = rows - first;
    return (struct sl_stretch){first, left < SL_TILE_ROWS ? left : SL_TILE_ROWS};
}

/* Rows of one product. Thread: any worker. */
void sl_mm_rows(const struct sl_compute *c, const struct sl_mm *mm, struct sl_stretch rows);
/* The same, but to a tile of their own: y[t * rows.n + r - rows.first]. next: weights that the
 * worker will want then, or NULL: those after the last of the rows. */
void sl_mm_tile(const struct sl_compute *c, const struct sl_mm *mm, struct sl_stretch rows,
                const uint8_t *next, float *y);

/* Runs all products, which must not overlap in y. */
void sl_mm_run(const struct sl_compute *c, struct sl_mm *items, uint32_t n_items);

#endif
