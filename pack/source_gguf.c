/* Weights read from GGUF files, and from containers, which look like them. */
#include <string.h>

#include "formats/sq.h"
#include "pack/source_internal.h"

void sl_src_gguf_base(const struct sl_source *s, uint32_t base, struct sl_src_base *out)
{
    const struct sl_gguf_tensor *t = sl_gguf_tensor(s->gguf, base);

    *out = (struct sl_src_base){t->name, t->type, true, t->n_dims, {0}};
    memcpy(out->dims, t->dims, sizeof out->dims);
}

/* ---- reading --------------------------------------------------------------------------------- */

sluice_err sl_src_gguf_bytes(const struct sl_source *s, uint32_t index, uint64_t offset, uint64_t n,
                             void *dst, sluice_error *e)
{
    const struct sl_src_origin *o = &s->origins[index];
    const struct sl_gguf_tensor *t = sl_gguf_tensor(s->gguf, o->base);
    uint64_t from = o->first_row * t->row_bytes + offset; /* row 0 where rows are interleaved */

    SLUICE_ASSERT(from <= t->bytes && n <= t->bytes - from);
    sluice_err err = sl_src_check(s, o->base, from, n, e);
    if (err != SLUICE_OK) return err;
    return sl_file_read_at(sl_gguf_file(s->gguf, t->shard), t->offset + from, dst, n, e);
}

/* Rows that are interleaved by eight: the bands that hold them. */
static sluice_err sq_rows(const struct sl_source *s, struct sl_source_span rows, uint8_t *stage,
                          float *out, sluice_error *e)
{
    const struct sl_source_tensor *t = &s->tensors[rows.index];
    uint64_t band_bytes = 0, band = rows.first / SL_SQ_BAND_ROWS;
    uint64_t end = (rows.first + rows.n + SL_SQ_BAND_ROWS - 1) / SL_SQ_BAND_ROWS;
    bool fits = sl_sq_band_bytes(t->type, t->cols, &band_bytes);

    SLUICE_ASSERT(fits && s->origins[rows.index].first_row == 0);
    sluice_err err =
        sl_src_gguf_bytes(s, rows.index, band * band_bytes, (end - band) * band_bytes, stage, e);
    if (err == SLUICE_OK)
        sl_type_decode_rows(t->type, stage, (uint32_t)t->cols, rows.first % SL_SQ_BAND_ROWS, rows.n,
                            out);
    return err;
}

sluice_err sl_src_gguf_rows(const struct sl_source *s, struct sl_source_span rows, void *stage,
                            float *out, sluice_error *e)
{
    const struct sl_source_tensor *t = &s->tensors[rows.index];

    if (sl_sq_info(t->type) != NULL) return sq_rows(s, rows, stage, out, e);
    const struct sl_type_info *info = sl_type_info(t->type);
    uint64_t row_bytes = t->bytes / t->rows;
    sluice_err err =
        sl_src_gguf_bytes(s, rows.index, rows.first * row_bytes, rows.n * row_bytes, stage, e);
    if (err == SLUICE_OK) info->decode(stage, out, rows.n * t->cols);
    return err;
}
