/* See gated.h. A task is a tile of rows of gate and the same of up, which stay in the core's caches
 * until their product is made. Whoever completes a block of the quantized form, which may be
 * several tiles, makes its codes. */
#include "engine/gated.h"

#define BLOCK_ROWS 256u /* of kinds with larger blocks than a tile; ff is a multiple then */

struct gated_job {
    const struct sl_compute *c;
    const struct sl_gated *items;
    const struct sl_gated_out *out;
    uint32_t ff;
    enum sl_act_kind kind;
    atomic_bool bad; /* relaxed: read after the pool's own barrier */
};

/* A tile of an item's results. */
static void multiply(const struct gated_job *j, const struct sl_gated *i, struct sl_stretch rows,
                     uint32_t worker)
{
    const struct sl_kernels *k = j->c->kernels;
    float *up = j->out->tiles + worker * j->out->tile_size;
    float *gate = i->gate.y + rows.first;
    SLUICE_DASSERT((uint64_t)rows.n * i->up.n_tokens <= j->out->tile_size);
    sl_mm_rows(j->c, &i->gate, rows);
    sl_mm_tile(j->c, &i->up, rows, NULL, up);
    for (uint32_t t = 0; t < i->gate.n_tokens; t++, gate += j->ff, up += rows.n) {
        if (i->gate_bias) k->add(i->gate_bias + rows.first, rows.n, gate);
        if (i->up_bias) k->add(i->up_bias + rows.first, rows.n, up);
        k->silu_mul(gate, up, rows.n, gate);
    }
}

/* Codes of these rows of an item's results. */
static void quantize(struct gated_job *j, const struct sl_gated *i, struct sl_stretch rows)
{
    for (uint32_t v = i->first; v < i->first + i->gate.n_tokens; v++)
        if (!sl_acts_part(j->c, j->out->acts, j->kind, v, rows))
            atomic_store_explicit(&j->bad, true, memory_order_relaxed);
}

/* Items have equally many tasks. */
static void run_tile(void *arg, uint32_t task, uint32_t worker)
{
    struct gated_job *j = arg;
    uint32_t tiles = sl_tiles(j->ff), item = task / tiles;
    const struct sl_gated *i = &j->items[item];
    struct sl_stretch rows = sl_tile(j->ff, task % tiles);
    multiply(j, i, rows, worker);
    if (sl_k_act_block(j->kind) != BLOCK_ROWS) {
        quantize(j, i, rows);
        return;
    }
    /* The last of a block's tiles sees what the others wrote. */
    _Atomic uint32_t *done = &j->out->done[(item * j->ff + rows.first) / BLOCK_ROWS];
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 == BLOCK_ROWS / SL_TILE_ROWS)
        quantize(j, i, (struct sl_stretch){rows.first / BLOCK_ROWS * BLOCK_ROWS, BLOCK_ROWS});
}

bool sl_gated_run(const struct sl_compute *c, struct sl_gated *items, uint32_t n_items,
                  const struct sl_gated_out *out)
{
    struct sl_acts *acts = out->acts;
    struct gated_job j = {c, items, out, acts->cols, sl_k_act_kind(out->type), false};
    for (uint32_t i = 0; i < n_items; i++) {
        struct sl_gated *g = &items[i];
        SLUICE_DASSERT(g->gate.w.rows == j.ff && g->up.w.rows == j.ff);
        g->gate.y = acts->f + (uint64_t)g->first * j.ff;
        g->gate.y_stride = j.ff;
    }
    SLUICE_ASSERT(acts->kinds & 1u << j.kind);
    SLUICE_DASSERT(sl_k_act_block(j.kind) != BLOCK_ROWS || j.ff % BLOCK_ROWS == 0);
    for (uint64_t i = 0; i < sl_gated_done(n_items, j.ff); i++)
        atomic_store_explicit(&out->done[i], 0, memory_order_relaxed);
    sl_pool_run(c->pool, run_tile, &j, n_items * sl_tiles(j.ff));
    for (uint32_t i = 0; i < n_items; i++)
        for (uint32_t v = 0; v < items[i].gate.n_tokens; v++)
            sl_acts_complete(acts, j.kind, items[i].first + v);
    return !atomic_load_explicit(&j.bad, memory_order_relaxed);
}
