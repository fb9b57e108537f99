/* Binding tensors to weights. Nothing is read here: each binding notes what to read and where its
 * address goes, so that the plan is exact before any memory is taken. */
#include "engine/describe.h"

#include <stdio.h>
#include <string.h>

#include "engine/kernels/kernels.h"

#define WEIGHT_ALIGN 64

const char *describe_key(struct describe *d, const char *suffix)
{
    snprintf(d->key, sizeof d->key, "%s.%s", d->m->arch->name, suffix);
    return d->key;
}

sluice_err describe_u32(struct describe *d, const char *suffix, uint32_t min, uint32_t max,
                        uint32_t *out)
{
    const char *key = describe_key(d, suffix);
    if (!sl_gguf_has(d->g, key))
        return sl_fail(d->e, SLUICE_E_FORMAT,
                       "%s: metadata key %s is missing; the file is incomplete, "
                       "convert it again",
                       sl_gguf_path(d->g), key);
    sluice_err err = sl_gguf_u32(d->g, key, out, d->e);
    if (err != SLUICE_OK) return err;
    if (*out < min || *out > max)
        return sl_fail(d->e, *out < min ? SLUICE_E_FORMAT : SLUICE_E_LIMIT,
                       "%s: %s is %u, wanted %u to %u", sl_gguf_path(d->g), key, *out, min, max);
    return SLUICE_OK;
}

static void tensor_name(int layer, const char *name, char *buf, size_t size)
{
    if (layer < 0)
        snprintf(buf, size, "%s", name);
    else
        snprintf(buf, size, "blk.%d.%s", layer, name);
}

const struct sl_gguf_tensor *describe_find(struct describe *d, int layer, const char *name)
{
    char full[SL_NAME_MAX];
    tensor_name(layer, name, full, sizeof full);
    const struct sl_gguf_tensor *t = sl_gguf_find_tensor(d->g, full);
    if (t) d->used[t - sl_gguf_tensor(d->g, 0)] = 1;
    return t;
}

sluice_err describe_missing(struct describe *d, int layer, const char *name)
{
    char full[SL_NAME_MAX];
    tensor_name(layer, name, full, sizeof full);
    return sl_fail(d->e, SLUICE_E_FORMAT,
                   "%s: tensor %s, which architecture %s needs, is missing; the file is "
                   "incomplete or was written for another program",
                   sl_gguf_path(d->g), full, d->m->arch->name);
}

sluice_err describe_bad_shape(struct describe *d, const struct sl_gguf_tensor *t, uint64_t cols,
                              uint64_t rows)
{
    char name[SL_NAME_MAX];
    return sl_fail(d->e, SLUICE_E_FORMAT,
                   "%s: tensor %s has %llu columns and %llu rows (times %llu), wanted %llu "
                   "columns and %llu rows; metadata and tensors disagree",
                   sl_gguf_path(d->g), sl_str_show(t->name, name, sizeof name),
                   (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                   (unsigned long long)(t->dims[2] * t->dims[3]), (unsigned long long)cols,
                   (unsigned long long)rows);
}

/* Notes one weight; its place follows the last one's. bytes is what it takes in memory. */
static sluice_err add_weight(struct describe *d, struct sl_weight w, uint64_t bytes)
{
    struct sl_model *m = d->m;
    sluice_err err =
        sl_grow(d->budget, &m->weights, &m->weights_capacity, m->n_weights + 1, sizeof *m->weights);
    if (err != SLUICE_OK) return sl_fail(d->e, err, "no memory for the list of weights");
    w.offset = m->resident_bytes;
    uint64_t end;
    if (!sl_add_ok(m->resident_bytes, bytes, &end) || !sl_align_ok(end, WEIGHT_ALIGN, &end))
        return sl_fail(d->e, SLUICE_E_LIMIT, "%s: weights take more than 2^64 bytes",
                       sl_gguf_path(d->g));
    m->weights[m->n_weights++] = w;
    m->resident_bytes = end;
    return SLUICE_OK;
}

sluice_err describe_rows(struct describe *d, const struct sl_gguf_tensor *t, uint64_t first,
                         uint64_t n, struct sl_matrix *m)
{
    SLUICE_ASSERT(first + n <= t->dims[1] * t->dims[2]);
    char name[SL_NAME_MAX];
    if (n > SL_ROWS_MAX || t->dims[0] > SL_COLS_MAX)
        return sl_fail(d->e, SLUICE_E_LIMIT, "%s: tensor %s is larger than %u x %u",
                       sl_gguf_path(d->g), sl_str_show(t->name, name, sizeof name), SL_ROWS_MAX,
                       SL_COLS_MAX);
    if (first % sl_type_row_group(t->type) != 0)
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: tensor %s, of type %s, has to be cut at row %llu, which is no multiple "
                       "of %u; pack the model again with another type for this tensor",
                       sl_gguf_path(d->g), sl_str_show(t->name, name, sizeof name),
                       sl_type_name(t->type), (unsigned long long)first,
                       sl_type_row_group(t->type));
    *m = (struct sl_matrix){NULL, t->row_bytes, t->type, (uint32_t)n, (uint32_t)t->dims[0]};
    d->m->dense_acts |= sl_k_act_bit(t->type);
    struct sl_weight w = {
        .tensor = t, .src_offset = first * t->row_bytes, .slot = (const void **)&m->w};
    if (!sl_type_matrix_bytes(t->type, n, t->dims[0], &w.src_bytes))
        return describe_bad_shape(d, t, t->dims[0], n);
    return add_weight(d, w, w.src_bytes);
}

sluice_err describe_matrix(struct describe *d, int layer, const char *name,
                           struct describe_size size, struct sl_matrix *m)
{
    *m = (struct sl_matrix){0};
    const struct sl_gguf_tensor *t = describe_find(d, layer, name);
    if (!t) return size.optional ? SLUICE_OK : describe_missing(d, layer, name);
    uint64_t rows = size.rows ? size.rows : t->dims[1];
    if (t->dims[0] != size.cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
        return describe_bad_shape(d, t, size.cols, rows);
    return describe_rows(d, t, 0, rows, m);
}

sluice_err describe_floats(struct describe *d, const struct sl_gguf_tensor *t, uint64_t first,
                           uint64_t n, const float **out)
{
    const struct sl_type_info *info = sl_type_info(t->type);
    if (t->dims[0] < first + n || first % info->block_cols != 0 || n % info->block_cols != 0)
        return describe_bad_shape(d, t, first + n, 1);
    char name[SL_NAME_MAX];
    if (info->row_group > 1)
        return sl_fail(d->e, SLUICE_E_UNSUPPORTED,
                       "%s: tensor %s is a vector of type %s, which is for matrices only",
                       sl_gguf_path(d->g), sl_str_show(t->name, name, sizeof name), info->name);
    struct sl_weight w = {.tensor = t,
                          .src_offset = first / info->block_cols * info->block_bytes,
                          .src_bytes = n / info->block_cols * info->block_bytes,
                          .as_f32 = true,
                          .slot = (const void **)out};
    return add_weight(d, w, n * sizeof(float));
}

sluice_err describe_float_rows(struct describe *d, const struct sl_gguf_tensor *t,
                               const float **out)
{
    SLUICE_ASSERT(sl_type_info(t->type)->block_cols == 1);
    struct sl_weight w = {
        .tensor = t, .src_bytes = t->bytes, .as_f32 = true, .slot = (const void **)out};
    return add_weight(d, w, t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3] * sizeof(float));
}

sluice_err describe_vector(struct describe *d, int layer, const char *name, uint64_t n,
                           bool optional, const float **out)
{
    *out = NULL;
    const struct sl_gguf_tensor *t = describe_find(d, layer, name);
    if (!t) return optional ? SLUICE_OK : describe_missing(d, layer, name);
    if (t->dims[0] != n || t->dims[1] * t->dims[2] * t->dims[3] != 1)
        return describe_bad_shape(d, t, n, 1);
    return describe_floats(d, t, 0, n, out);
}
