/* What the files of the description share: looking up keys and binding tensors, with errors that
 * name file, key or tensor, found and wanted. Private to engine/describe*.c. */
#ifndef SL_DESCRIBE_H
#define SL_DESCRIBE_H

#include "engine/model.h"
#include "formats/records.h"

/* Returns from the function at hand where call fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        sluice_err try_err = (call);                                                               \
        if (try_err != SLUICE_OK) return try_err;                                                  \
    } while (0)

struct describe {
    struct sl_model *m;
    const struct sl_gguf *g;
    struct sl_budget *budget;
    const struct sl_log *log;
    sluice_error *e;
    uint8_t *used;         /* [n_tensors] 1: bound */
    char key[SL_NAME_MAX]; /* the last key made by describe_key */
    uint32_t nextn;        /* layers past the model's own, for multi-token prediction */
    /* per layer, from metadata */
    uint32_t *n_heads, *n_kv_heads, *n_experts, *top_k;
    enum sl_gating gating;
    bool normalize;
    float expert_scale;
};

/* "<architecture>.<suffix>" in d->key. */
const char *describe_key(struct describe *d, const char *suffix);

/* A number that must be there, within [min, max]. */
SL_MUST_CHECK sluice_err describe_u32(struct describe *d, const char *suffix, uint32_t min,
                                      uint32_t max, uint32_t *out);

/* The tensor blk.<layer>.<name> (layer -1: <name> itself), marked as used; NULL where there is
 * none. */
const struct sl_gguf_tensor *describe_find(struct describe *d, int layer, const char *name);

/* Wanted size of a tensor; rows 0: any. */
struct describe_size {
    uint64_t cols, rows;
    bool optional;
};

/* Binds a weight matrix. Absent and optional: m is zeroed. */
SL_MUST_CHECK sluice_err describe_matrix(struct describe *d, int layer, const char *name,
                                         struct describe_size size, struct sl_matrix *m);
/* Binds n rows of t from row first on. */
SL_MUST_CHECK sluice_err describe_rows(struct describe *d, const struct sl_gguf_tensor *t,
                                       uint64_t first, uint64_t n, struct sl_matrix *m);
/* Binds a vector of n floats (any type, decoded at load), elements first.. of tensor t. */
SL_MUST_CHECK sluice_err describe_floats(struct describe *d, const struct sl_gguf_tensor *t,
                                         uint64_t first, uint64_t n, const float **out);
/* All rows of t, which are too short to be of another type than a float type. */
SL_MUST_CHECK sluice_err describe_float_rows(struct describe *d, const struct sl_gguf_tensor *t,
                                             const float **out);
/* Elements by name, the whole tensor; absent and optional: NULL. */
SL_MUST_CHECK sluice_err describe_vector(struct describe *d, int layer, const char *name,
                                         uint64_t n, bool optional, const float **out);

/* SLUICE_E_FORMAT about a tensor's shape: found and wanted. */
sluice_err describe_bad_shape(struct describe *d, const struct sl_gguf_tensor *t, uint64_t cols,
                              uint64_t rows);
sluice_err describe_missing(struct describe *d, int layer, const char *name);

/* describe_deltanet.c: the part of a layer that stands in the place of attention. */
SL_MUST_CHECK sluice_err describe_deltanet(struct describe *d, uint32_t l);

/* describe_layer.c: everything of one layer. */
SL_MUST_CHECK sluice_err describe_layer(struct describe *d, uint32_t l);

#endif
