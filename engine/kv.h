/* The KV cache of one session: keys and values of every layer, position by position.
 *
 * Address space for the whole context is reserved at once; memory is committed, and charged to the
 * budget, as the context grows, by blocks of SL_KV_BLOCK positions that hold all layers. Inside a
 * block a layer has, for each KV head, its keys [positions][head_k], then (int8) their scales, then
 * values and theirs. So attention reads one head's block in one stretch, and block borders lie at
 * absolute positions whatever the batch. Thread: the driver; workers may write rows of distinct
 * positions and read rows that are complete. */
#ifndef SL_KV_H
#define SL_KV_H

#include "engine/kernels/kernels.h"
#include "engine/model.h"

#define SL_KV_BLOCK 64u

struct sl_kv {
    enum sl_kv_type type;
    uint32_t n_ctx;
    uint32_t head[2];       /* elements of a head: keys, values */
    uint64_t data_bytes[2]; /* of one head's block */
    uint64_t scale_bytes[2];
    uint64_t block_bytes;   /* all layers */
    uint64_t *layer_offset; /* [n_layers] in a block */
    uint32_t *kv_heads;     /* [n_layers] */
    struct sl_region region;
};

/* Bytes of a context of n_ctx tokens. */
uint64_t sl_kv_bytes(const struct sl_model *m, enum sl_kv_type type, uint32_t n_ctx);

/* Returns SLUICE_OK, SLUICE_E_NOMEM or SLUICE_E_BUDGET; kv is zeroed on failure. */
SL_MUST_CHECK sluice_err sl_kv_init(struct sl_kv *kv, const struct sl_model *m,
                                    enum sl_kv_type type, uint32_t n_ctx, struct sl_budget *b);
void sl_kv_deinit(struct sl_kv *kv);

/* Makes positions [0, n) usable; n <= n_ctx. Errors as init; what was there stays. */
SL_MUST_CHECK sluice_err sl_kv_grow(struct sl_kv *kv, uint32_t n);
/* Gives back memory past the first n positions. */
void sl_kv_shrink(struct sl_kv *kv, uint32_t n);

enum sl_kv_side { SL_KV_KEYS = 0, SL_KV_VALUES = 1 };

/* Where one position's row of a head is. */
struct sl_kv_row {
    void *data;
    uint16_t *scales; /* NULL unless int8 */
};
struct sl_kv_row sl_kv_row(const struct sl_kv *kv, uint32_t layer, uint32_t head,
                           enum sl_kv_side side, uint32_t pos);

/* Bytes of a head in a block: its values follow its keys. */
uint64_t sl_kv_head_bytes(const struct sl_kv *kv);
/* The first n positions of block number block. */
struct sl_k_kv sl_kv_view(const struct sl_kv *kv, uint32_t layer, uint32_t head,
                          enum sl_kv_side side, uint32_t block, uint32_t n);

#endif
