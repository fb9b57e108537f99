/* Embedding rows: from the output matrix where a model shares it, otherwise read from the file for
 * each token. A row is a few kilobytes and the table hundreds of megabytes, of which a text uses a
 * fraction; one read takes a tenth of a millisecond. A row's sum is remembered, as those of experts
 * are. */
#include "engine/session.h"
#include "formats/checksum.h"
#include "formats/records.h"
#include "io/block.h"

/* Of a container, whole sheets are read. */
static bool has_sheets(const struct sl_model *m) { return m->embd_sums == NULL; }

static uint64_t row_room(const struct sl_model *m)
{
    uint64_t bytes = m->token_embd.row_bytes;
    if (sl_gguf_has_records(m->gguf)) bytes += 2 * SL_SHEET_BYTES;
    return sl_io_room(sl_model_block(), bytes);
}

/* Rows that are read at once. */
static uint32_t batch(const struct sl_model *m)
{
    return sl_gguf_has_records(m->gguf) ? SL_EMBED_BATCH / 4 : SL_EMBED_BATCH;
}

uint64_t sl_embed_room(const struct sl_model *m)
{
    return m->tied ? 0 : batch(m) * row_room(m) + sl_model_block();
}

static void decode_row(const struct sl_chunk *c, uint32_t t, const uint8_t *row)
{
    const struct sl_session *s = c->session;
    float *x = s->scratch.x + (uint64_t)t * s->m->n_embd;
    sl_type_info(s->m->token_embd.type)->decode(row, x, s->m->n_embd);
    if (s->m->embd_scale != 1.0f) s->compute.kernels->scale(s->m->embd_scale, s->m->n_embd, x);
}

/* Compares with the container's checksums, the sums file, or the row's last read. */
static sluice_err check_row(const struct sl_chunk *c, int32_t id, const struct sl_io_request *r)
{
    const struct sl_model *m = c->session->m;
    if (has_sheets(m)) {
        struct sl_range whole = {r->offset, r->bytes};
        return sl_gguf_check(m->gguf, m->embd_tensor->shard, whole, r->dst, c->e);
    }
    uint64_t sum = sl_xxh3(r->dst, r->bytes);
    uint32_t low = (uint32_t)sum ? (uint32_t)sum : 1; /* 0: not read yet */
    bool good = m->embd_sums[id] == 0 || m->embd_sums[id] == low;
    if (m->sums) good = sum == sl_sums_get(m->sums, m->embd_index, (uint64_t)id);
    if (good) {
        m->embd_sums[id] = low;
        return SLUICE_OK;
    }
    sl_fail(c->e, SLUICE_E_CORRUPT,
            "%s: the embedding row of token %d at %llu differs from %s; the file or the drive is "
            "damaged, or the file was changed: check it with sluice verify",
            sl_file_path(sl_io_file_of(r->file)), id, (unsigned long long)r->offset,
            m->sums ? "the sums file" : "what was read before");
    if (c->e) c->e->file_offset = r->offset;
    return SLUICE_E_CORRUPT;
}

/* Tokens [first, first + n) of the chunk. */
static sluice_err read_batch(const struct sl_chunk *c, const int32_t *ids, uint32_t first,
                             uint32_t n)
{
    struct sl_session *s = c->session;
    const struct sl_model *m = s->m;
    const struct sl_gguf_tensor *t = m->embd_tensor;
    uint32_t block = sl_model_block();
    uint8_t *stage = s->scratch.embd_stage;
    stage += (block - (uintptr_t)stage % block) % block;
    struct sl_io_request requests[SL_EMBED_BATCH], *list[SL_EMBED_BATCH];
    uint64_t lead[SL_EMBED_BATCH];
    for (uint32_t i = 0; i < n; i++) {
        struct sl_range row = {t->offset + (uint64_t)ids[first + i] * t->row_bytes, t->row_bytes};
        struct sl_range whole = sl_gguf_widen(m->gguf, t->shard, row);
        lead[i] = row.offset - whole.offset;
        list[i] = &requests[i];
        requests[i] = (struct sl_io_request){.file = m->files[t->shard],
                                             .offset = whole.offset,
                                             .bytes = whole.bytes,
                                             .dst = stage + i * row_room(m) + whole.offset % block};
    }
    sluice_err err = sl_io_submit(m->io, list, n);
    if (err != SLUICE_OK) return sl_fail(c->e, err, "the embedding rows could not be requested");
    sl_io_wait(m->io, list, n);
    for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) {
        if (requests[i].code != SLUICE_OK) return sl_io_request_error(&requests[i], c->e);
        err = check_row(c, ids[first + i], &requests[i]);
        if (err == SLUICE_OK) decode_row(c, first + i, (const uint8_t *)requests[i].dst + lead[i]);
    }
    return err;
}

sluice_err sl_embed(const struct sl_chunk *c, const int32_t *ids)
{
    const struct sl_model *m = c->session->m;
    const struct sl_matrix *table = &m->token_embd;
    sluice_err err = SLUICE_OK;
    if (table->w) {
        for (uint32_t t = 0; t < c->n; t++)
            decode_row(c, t, table->w + (uint64_t)ids[t] * table->row_bytes);
        return err;
    }
    for (uint32_t t = 0; t < c->n && err == SLUICE_OK; t += batch(m))
        err = read_batch(c, ids, t, c->n - t < batch(m) ? c->n - t : batch(m));
    return err;
}
