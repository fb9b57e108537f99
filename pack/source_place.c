/* Where in its file a row of weights begins, for messages. */
#include "formats/sq.h"
#include "pack/source_internal.h"

bool sl_source_place(const struct sl_source *s, uint32_t index, uint64_t row,
                     struct sl_source_place *out)
{
    const struct sl_source_tensor *t = sl_source_tensor(s, index);
    uint64_t band_bytes;

    SLUICE_ASSERT(row < t->rows);
    if (s->hf != NULL) return false; /* rows may be put together from several places */
    const struct sl_src_origin *o = &s->origins[index];
    const struct sl_gguf_tensor *base = sl_gguf_tensor(s->gguf, o->base);
    out->path = sl_file_path(sl_gguf_file(s->gguf, base->shard));
    if (sl_sq_band_bytes(t->type, t->cols, &band_bytes))
        out->offset = base->offset + row / SL_SQ_BAND_ROWS * band_bytes;
    else
        out->offset = base->offset + (o->first_row + row) * base->row_bytes;
    return true;
}

const char *sl_source_path(const struct sl_source *s, uint32_t index, uint64_t row)
{
    struct sl_source_place place;

    return sl_source_place(s, index, row, &place) ? place.path : s->path;
}
