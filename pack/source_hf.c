/* Weights read from a Hugging Face folder, which hf_model.h shows as a GGUF. */
#include <string.h>

#include "pack/source_internal.h"

/* The type of a container that holds every value exactly. */
static uint32_t type_of(const struct sl_st *st, const struct sl_hf_tensor *t)
{
    if (t->source.values != NULL) return SL_TYPE_F32;
    switch (t->dtype) {
    case SL_ST_F16:
        return SL_TYPE_F16;
    case SL_ST_BF16:
        return SL_TYPE_BF16;
    case SL_ST_F8_E4M3: /* times a scale that may be any float */
        return sl_st_tensor(st, t->source.parts[0])->scale != SL_ST_NONE ? SL_TYPE_F32
                                                                         : SL_TYPE_BF16;
    default:
        return SL_TYPE_F32;
    }
}

void sl_src_hf_base(const struct sl_source *s, uint32_t base, struct sl_src_base *out)
{
    const struct sl_hf_tensor *t = sl_hf_tensor(s->hf, base);

    *out = (struct sl_src_base){.name = t->name, .n_dims = t->n_dims};
    out->type = type_of(sl_hf_weights(s->hf), t);
    out->whole = t->source.values == NULL && t->source.heads == 0 && t->source.runs == NULL &&
                 t->source.groups == 0 && t->source.value == SL_HF_AS_IS &&
                 t->dtype != SL_ST_F8_E4M3;
    memcpy(out->dims, t->dims, sizeof out->dims);
}

sluice_err sl_src_hf_rows(const struct sl_source *s, struct sl_source_span rows, float *out,
                          sluice_error *e)
{
    const struct sl_src_origin *o = &s->origins[rows.index];

    return sl_hf_read_rows(s->hf, sl_hf_tensor(s->hf, o->base), o->first_row + rows.first, rows.n,
                           out, e);
}

sluice_err sl_src_hf_bytes(const struct sl_source *s, uint32_t index, uint64_t offset, uint64_t n,
                           void *dst, sluice_error *e)
{
    const struct sl_src_origin *o = &s->origins[index];
    const struct sl_hf_tensor *t = sl_hf_tensor(s->hf, o->base);
    const struct sl_hf_source *from = &t->source;
    uint64_t matrix = o->first_row / t->dims[1], row = o->first_row % t->dims[1];
    bool apart = from->n_parts > 1;
    const struct sl_st *st = sl_hf_weights(s->hf);
    const struct sl_st_tensor *part = sl_st_tensor(st, from->parts[apart ? matrix : 0]);
    uint64_t row_bytes = s->tensors[index].bytes / s->tensors[index].rows;

    row += from->first_row + (apart ? 0 : matrix * from->step_rows);
    SLUICE_ASSERT(row * row_bytes + offset + n <= part->bytes);
    return sl_file_read_at(sl_st_file(st, part->file), part->offset + row * row_bytes + offset, dst,
                           n, e);
}
