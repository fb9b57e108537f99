/* The state of recurrent layers. See recurrent.h. */
#include "engine/recurrent.h"

#include <string.h>

#include "engine/layout.h"

/* ---- layout ----------------------------------------------------------------------------- */

static struct sl_delta_state lay_out(const struct sl_delta_shape *s, struct sl_layout *l)
{
    uint64_t v_heads = s->n_v_heads;
    struct sl_delta_state x;
    x.mark = sl_layout_take(l, 1, sizeof *x.mark);
    x.s = sl_layout_take(l, v_heads * s->head_k * s->head_v, sizeof *x.s);
    x.rows = sl_layout_take(l, (uint64_t)s->taps * s->channels, sizeof *x.rows);
    x.k = sl_layout_take(l, (uint64_t)s->n_k_heads * s->head_k, sizeof *x.k);
    x.u = sl_layout_take(l, v_heads * s->head_v, sizeof *x.u);
    x.decay = sl_layout_take(l, v_heads, sizeof *x.decay);
    return x;
}

static uint64_t layer_bytes(const struct sl_model *m)
{
    struct sl_layout l = {NULL, 0};
    (void)lay_out(&m->delta, &l);
    return l.used;
}

static uint64_t block_bytes(const struct sl_model *m)
{
    if (m->n_delta_layers == 0) return 0;
    uint64_t page = sl_page_bytes(), bytes = layer_bytes(m) * m->n_delta_layers;
    return (bytes + page - 1) / page * page;
}

struct sl_delta_state sl_recurrent_layer(const struct sl_recurrent *r, uint32_t index)
{
    SLUICE_ASSERT(index < r->m->n_delta_layers);
    struct sl_layout l = {r->memory.base + index * layer_bytes(r->m), 0};
    return lay_out(&r->m->delta, &l);
}

/* ---- memory ----------------------------------------------------------------------------- */

uint64_t sl_recurrent_bytes(const struct sl_model *m) { return 2 * block_bytes(m); }

sluice_err sl_recurrent_init(struct sl_recurrent *r, const struct sl_model *m, struct sl_budget *b)
{
    *r = (struct sl_recurrent){.m = m, .block_bytes = block_bytes(m)};
    if (r->block_bytes == 0) return SLUICE_OK;
    sluice_err err = sl_region_reserve(&r->memory, b, sl_recurrent_bytes(m));
    if (err == SLUICE_OK) err = sl_region_commit(&r->memory, sl_recurrent_bytes(m));
    if (err != SLUICE_OK) {
        sl_recurrent_deinit(r);
        return err;
    }
    sl_region_prefer_huge(&r->memory); /* every token reads and writes half of it */
    return SLUICE_OK;
}

void sl_recurrent_deinit(struct sl_recurrent *r)
{
    if (r->memory.base) sl_region_deinit(&r->memory);
    *r = (struct sl_recurrent){0};
}

/* ---- going back ------------------------------------------------------------------------- */

/* Tokens that every layer knows; UINT32_MAX where a run has failed between them. */
static uint32_t known(const struct sl_recurrent *r)
{
    uint32_t n = sl_recurrent_layer(r, 0).mark->n;
    for (uint32_t i = 1; i < r->m->n_delta_layers; i++)
        if (sl_recurrent_layer(r, i).mark->n != n) return UINT32_MAX;
    return n;
}

/* Whether every layer knows n tokens, or one more whose part is pending. */
static bool is_near(const struct sl_recurrent *r, uint32_t n)
{
    for (uint32_t i = 0; i < r->m->n_delta_layers; i++) {
        const struct sl_delta_mark *mark = sl_recurrent_layer(r, i).mark;
        if (mark->n != n && !(mark->n == n + 1 && mark->pending)) return false;
    }
    return true;
}

static void forget_one(struct sl_recurrent *r, uint32_t n)
{
    for (uint32_t i = 0; i < r->m->n_delta_layers; i++) {
        struct sl_delta_mark *mark = sl_recurrent_layer(r, i).mark;
        if (mark->n != n) *mark = (struct sl_delta_mark){n, false};
    }
}

uint32_t sl_recurrent_known(const struct sl_recurrent *r, uint32_t n_tokens)
{
    return r->block_bytes ? known(r) : n_tokens;
}

void sl_recurrent_keep(struct sl_recurrent *r)
{
    if (r->block_bytes == 0) return;
    r->kept = known(r);
    if (r->kept) memcpy(r->memory.base + r->block_bytes, r->memory.base, r->block_bytes);
}

uint32_t sl_recurrent_reach(const struct sl_recurrent *r, uint32_t n)
{
    if (r->block_bytes == 0 || is_near(r, n)) return n;
    if (known(r) <= n) return known(r);
    return r->kept <= n ? r->kept : 0;
}

void sl_recurrent_rewind(struct sl_recurrent *r, uint32_t n)
{
    if (r->block_bytes == 0) return;
    if (r->kept > n) r->kept = 0; /* of a text that is given up */
    if (is_near(r, n)) {
        forget_one(r, n);
    } else if (known(r) > n) {
        if (r->kept)
            memcpy(r->memory.base, r->memory.base + r->block_bytes, r->block_bytes);
        else
            memset(r->memory.base, 0, r->block_bytes);
    }
}
