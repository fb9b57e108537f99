/* Which experts a model's user needs most, remembered in a small text file from one run to the
 * next, so that the cache can be filled while nobody waits.
 *
 *     sluice-hot-list 1 LAYERS EXPERTS FILE_BYTES
 *     LAYER EXPERT
 *     ...
 *
 * decimal, hottest first. The first line says for which model: a list of another is not used. The
 * file is as untrusted as any other. Thread: the driver. */
#ifndef SL_HOT_LIST_H
#define SL_HOT_LIST_H

#include "engine/model.h"

/* What the first line must say. */
struct sl_hot_list_model {
    uint32_t n_layers;
    const uint32_t *n_experts; /* [n_layers] */
    uint64_t file_bytes;       /* of all shards */
};

struct sl_hot_list {
    struct sl_expert_id *ids; /* [n], distinct */
    uint32_t n;
};

/* Reads a list. No such file: SLUICE_OK and an empty list. Errors, with an empty list: SLUICE_E_IO,
 * SLUICE_E_FORMAT, SLUICE_E_LIMIT, SLUICE_E_NOMEM, SLUICE_E_BUDGET; SLUICE_E_CHANGED where it is of
 * another model. Owner: the caller; sl_hot_list_free. */
SL_MUST_CHECK sluice_err sl_hot_list_read(const char *path, const struct sl_hot_list_model *model,
                                          struct sl_budget *b, struct sl_hot_list *out,
                                          sluice_error *e);
void sl_hot_list_free(struct sl_hot_list *list);

/* Writes a list, whole or not at all (new_file.h). Errors: SLUICE_E_IO, SLUICE_E_NOMEM,
 * SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_hot_list_write(const char *path, const struct sl_hot_list_model *model,
                                           struct sl_budget *b, const struct sl_hot_list *list,
                                           sluice_error *e);

#endif
