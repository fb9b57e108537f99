/* The KV cache. See kv.h for the layout. */
#include "engine/kv.h"

static const uint32_t element_bytes[SL_KV_TYPES] = {
    [SL_KV_F32] = 4, [SL_KV_F16] = 2, [SL_KV_Q8] = 1};

static uint64_t align64(uint64_t n) { return (n + 63) & ~(uint64_t)63; }

static uint32_t groups_of(uint32_t head) { return (head + SL_KV_GROUP - 1) / SL_KV_GROUP; }

/* Fills the sizes that do not depend on a layer; returns the bytes of one KV head in a block. */
static uint64_t head_sizes(const struct sl_model *m, enum sl_kv_type type, struct sl_kv *kv)
{
    const uint32_t head[2] = {m->head_k, m->head_v};
    uint64_t sum = 0;
    for (int side = 0; side < 2; side++) {
        kv->head[side] = head[side];
        kv->data_bytes[side] = align64((uint64_t)SL_KV_BLOCK * head[side] * element_bytes[type]);
        kv->scale_bytes[side] =
            type == SL_KV_Q8 ? align64((uint64_t)SL_KV_BLOCK * groups_of(head[side]) * 2) : 0;
        sum += kv->data_bytes[side] + kv->scale_bytes[side];
    }
    return sum;
}

static uint64_t block_bytes(const struct sl_model *m, enum sl_kv_type type)
{
    struct sl_kv sizes;
    uint64_t one = head_sizes(m, type, &sizes), sum = 0;
    for (uint32_t l = 0; l < m->n_layers; l++) sum += m->layers[l].n_kv_heads * one;
    return sum;
}

static uint64_t blocks_of(uint32_t n) { return ((uint64_t)n + SL_KV_BLOCK - 1) / SL_KV_BLOCK; }

uint64_t sl_kv_bytes(const struct sl_model *m, enum sl_kv_type type, uint32_t n_ctx)
{
    return blocks_of(n_ctx) * block_bytes(m, type);
}

sluice_err sl_kv_init(struct sl_kv *kv, const struct sl_model *m, enum sl_kv_type type,
                      uint32_t n_ctx, struct sl_budget *b)
{
    *kv = (struct sl_kv){.type = type, .n_ctx = n_ctx};
    uint64_t one = head_sizes(m, type, kv);
    kv->layer_offset = sl_alloc(b, m->n_layers, sizeof *kv->layer_offset);
    kv->kv_heads = sl_alloc(b, m->n_layers, sizeof *kv->kv_heads);
    sluice_err err = kv->layer_offset && kv->kv_heads ? SLUICE_OK : SLUICE_E_NOMEM;
    if (err == SLUICE_OK) {
        for (uint32_t l = 0; l < m->n_layers; l++) {
            kv->layer_offset[l] = kv->block_bytes;
            kv->kv_heads[l] = m->layers[l].n_kv_heads;
            kv->block_bytes += kv->kv_heads[l] * one;
        }
        err = sl_region_reserve(&kv->region, b, blocks_of(n_ctx) * kv->block_bytes);
    }
    if (err != SLUICE_OK) sl_kv_deinit(kv);
    return err;
}

void sl_kv_deinit(struct sl_kv *kv)
{
    if (kv->region.base) sl_region_deinit(&kv->region);
    sl_free(kv->layer_offset);
    sl_free(kv->kv_heads);
    *kv = (struct sl_kv){0};
}

sluice_err sl_kv_grow(struct sl_kv *kv, uint32_t n)
{
    SLUICE_ASSERT(n <= kv->n_ctx);
    return sl_region_commit(&kv->region, blocks_of(n) * kv->block_bytes);
}

void sl_kv_shrink(struct sl_kv *kv, uint32_t n)
{
    sl_region_decommit(&kv->region, blocks_of(n) * kv->block_bytes);
}

uint64_t sl_kv_head_bytes(const struct sl_kv *kv)
{
    return kv->data_bytes[0] + kv->scale_bytes[0] + kv->data_bytes[1] + kv->scale_bytes[1];
}

/* Start of a head's keys or values in a block. */
static uint8_t *head_start(const struct sl_kv *kv, uint32_t layer, uint32_t head,
                           enum sl_kv_side side, uint32_t block)
{
    SLUICE_DASSERT(head < kv->kv_heads[layer]);
    uint64_t keys = kv->data_bytes[0] + kv->scale_bytes[0];
    return kv->region.base + block * kv->block_bytes + kv->layer_offset[layer] +
           head * sl_kv_head_bytes(kv) + (side == SL_KV_VALUES ? keys : 0);
}

struct sl_kv_row sl_kv_row(const struct sl_kv *kv, uint32_t layer, uint32_t head,
                           enum sl_kv_side side, uint32_t pos)
{
    uint8_t *start = head_start(kv, layer, head, side, pos / SL_KV_BLOCK);
    uint64_t i = pos % SL_KV_BLOCK;
    struct sl_kv_row row = {start + i * kv->head[side] * element_bytes[kv->type], NULL};
    if (kv->type == SL_KV_Q8)
        row.scales =
            (uint16_t *)(void *)(start + kv->data_bytes[side]) + i * groups_of(kv->head[side]);
    return row;
}

struct sl_k_kv sl_kv_view(const struct sl_kv *kv, uint32_t layer, uint32_t head,
                          enum sl_kv_side side, uint32_t block, uint32_t n)
{
    SLUICE_DASSERT(n <= SL_KV_BLOCK);
    const uint8_t *start = head_start(kv, layer, head, side, block);
    const void *scales = kv->type == SL_KV_Q8 ? start + kv->data_bytes[side] : NULL;
    return (struct sl_k_kv){start, scales, kv->head[side], n};
}
