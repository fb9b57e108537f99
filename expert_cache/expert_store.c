/* The resident expert store: one block of memory a layer, part after part as the file has them. */
#include "expert_cache/expert_store.h"

struct layer_block {
    struct sl_expert_shape shape;
    uint8_t *part[SL_EXPERT_PARTS_MAX]; /* [n_experts][part bytes] */
};

struct sl_expert_store {
    struct layer_block *layers;
    uint32_t n_layers;
    uint64_t n_leases;
};

static uint64_t part_bytes(const struct sl_expert_shape *s, uint32_t p)
{
    return s->n_experts * s->part[p].bytes; /* checked against the file by whoever described it */
}

uint64_t sl_expert_shape_bytes(const struct sl_expert_shape *s)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < s->n_parts; p++) sum += part_bytes(s, p);
    return sum;
}

/* Reads part p of the experts of layer l, by pieces of one expert so that errors and progress are
 * fine-grained. */
static sluice_err read_part(const struct sl_expert_store_config *c, struct layer_block *block,
                            uint32_t l, uint32_t p, sluice_error *e)
{
    const struct sl_expert_source *src = &c->sources[l];
    uint64_t bytes = block->shape.part[p].bytes;
    for (uint32_t x = 0; x < block->shape.n_experts; x++) {
        const struct sl_gguf_tensor *t = src->tensor[p] ? src->tensor[p] : src->single[p][x];
        uint64_t offset = t->offset + (src->tensor[p] ? x * bytes : 0);
        sluice_err err = sl_file_read_at(sl_gguf_file(c->gguf, t->shard), offset,
                                         block->part[p] + x * bytes, bytes, e);
        if (err != SLUICE_OK) {
            if (e) e->layer = (int32_t)l, e->expert = (int32_t)x;
            return err;
        }
        if (c->progress && c->progress(c->progress_user, bytes))
            return sl_fail(e, SLUICE_E_CANCELLED, "loading was cancelled");
    }
    return SLUICE_OK;
}

static sluice_err load_layer(const struct sl_expert_store_config *c, struct sl_budget *b,
                             struct layer_block *block, uint32_t l, sluice_error *e)
{
    block->shape = c->shapes[l];
    for (uint32_t p = 0; p < block->shape.n_parts; p++) {
        uint64_t bytes = part_bytes(&block->shape, p);
        block->part[p] = sl_alloc(b, bytes, 1);
        if (!block->part[p])
            return sl_fail(e, SLUICE_E_NOMEM,
                           "no memory for the experts of layer %u: %llu bytes wanted", l,
                           (unsigned long long)bytes);
        sluice_err err = read_part(c, block, l, p, e);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

sluice_err sl_expert_store_open(const struct sl_expert_store_config *c, struct sl_budget *b,
                                sluice_error *e, struct sl_expert_store **out)
{
    *out = NULL;
    struct sl_expert_store *s = sl_alloc(b, 1, sizeof *s);
    if (!s) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the expert store");
    s->layers = sl_alloc(b, c->n_layers, sizeof *s->layers);
    sluice_err err =
        s->layers ? SLUICE_OK : sl_fail(e, SLUICE_E_NOMEM, "no memory for the expert store");
    if (s->layers) s->n_layers = c->n_layers;
    for (uint32_t l = 0; l < c->n_layers && err == SLUICE_OK; l++)
        err = load_layer(c, b, &s->layers[l], l, e);
    if (err != SLUICE_OK) {
        sl_expert_store_close(s);
        return err;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_expert_store_close(struct sl_expert_store *s)
{
    if (!s) return;
    SLUICE_ASSERT(s->n_leases == 0);
    for (uint32_t l = 0; l < s->n_layers; l++)
        for (uint32_t p = 0; p < SL_EXPERT_PARTS_MAX; p++) sl_free(s->layers[l].part[p]);
    sl_free(s->layers);
    sl_free(s);
}

sluice_err sl_expert_acquire(struct sl_expert_store *s, uint32_t layer, uint32_t expert,
                             struct sl_expert_view *view, sluice_error *e)
{
    (void)e; /* resident experts are always there */
    SLUICE_ASSERT(layer < s->n_layers);
    const struct layer_block *block = &s->layers[layer];
    SLUICE_ASSERT(expert < block->shape.n_experts);
    *view = (struct sl_expert_view){{NULL, NULL, NULL}};
    for (uint32_t p = 0; p < block->shape.n_parts; p++)
        view->part[p] = block->part[p] + expert * block->shape.part[p].bytes;
    s->n_leases++;
    return SLUICE_OK;
}

void sl_expert_release(struct sl_expert_store *s, uint32_t layer, uint32_t expert)
{
    SLUICE_ASSERT(layer < s->n_layers && expert < s->layers[layer].shape.n_experts);
    SLUICE_ASSERT(s->n_leases > 0);
    s->n_leases--;
}
