/* What is read of a GGUF with a sums file beside it, or of a container, is compared with its
 * checksums: the first time that anything is read of a checksummed piece, the whole piece is. So a
 * damaged model is found, and not packed as if it were whole. */
#include <inttypes.h>

#include "formats/checksum.h"
#include "formats/records.h"
#include "formats/sums.h"
#include "pack/source_internal.h"

#define CHECK_BYTES 16384u /* read at a time, on the stack */

/* ---- opening --------------------------------------------------------------------------------- */

/* Flags for so many pieces. */
static sluice_err make_flags(struct sl_source *s, uint64_t n, sluice_error *e)
{
    s->checked = sl_alloc(s->budget, n, sizeof *s->checked);
    if (s->checked != NULL) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_NOMEM, "no memory for the list of %" PRIu64 " checksums", n);
}

static sluice_err open_sums(struct sl_source *s, sluice_error *e)
{
    uint32_t n = sl_gguf_n_tensors(s->gguf);
    uint64_t sum = 0, piece_bytes;
    sluice_err err = sl_sums_open(s->gguf, s->budget, e, &s->sums);

    if (err != SLUICE_OK || s->sums == NULL) return err;
    s->first_piece = sl_alloc(s->budget, n, sizeof *s->first_piece);
    if (s->first_piece == NULL)
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the list of pieces");
    for (uint32_t i = 0; i < n; i++) {
        s->first_piece[i] = sum;
        sum += sl_sums_pieces(sl_gguf_tensor(s->gguf, i), &piece_bytes);
    }
    return make_flags(s, sum, e);
}

sluice_err sl_src_open_checks(struct sl_source *s, sluice_error *e)
{
    uint64_t n = 0;

    if (!sl_gguf_has_records(s->gguf)) return open_sums(s, e);
    s->records = sl_gguf_records(s->gguf, &n);
    return make_flags(s, n, e);
}

void sl_src_close_checks(struct sl_source *s)
{
    sl_sums_close(s->sums);
    sl_free(s->first_piece);
    sl_free((void *)s->checked);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static sluice_err sum_range(struct sl_file *f, uint64_t offset, uint64_t bytes, uint64_t *sum,
                            sluice_error *e)
{
    unsigned char part[CHECK_BYTES];
    struct sl_xxh3_stream stream;

    sl_xxh3_begin(&stream);
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = sl_min_u64(bytes - at, sizeof part);
        sluice_err err = sl_file_read_at(f, offset + at, part, n, e);
        if (err != SLUICE_OK) return err;
        sl_xxh3_add(&stream, part, n);
    }
    *sum = sl_xxh3_end(&stream);
    return SLUICE_OK;
}

static sluice_err check_record(const struct sl_source *s, const struct sl_container_record *r,
                               sluice_error *e)
{
    struct sl_file *f = sl_gguf_file(s->gguf, r->part);
    uint64_t sum = 0;
    sluice_err err = sum_range(f, r->offset, r->bytes, &sum, e);

    if (err != SLUICE_OK || sum == r->sum) return err;
    return sl_record_damaged(r, sl_file_path(f), e);
}

static sluice_err check_piece(const struct sl_source *s, uint32_t base, uint64_t piece,
                              uint64_t piece_bytes, sluice_error *e)
{
    const struct sl_gguf_tensor *t = sl_gguf_tensor(s->gguf, base);
    struct sl_file *f = sl_gguf_file(s->gguf, t->shard);
    uint64_t sum = 0, offset = t->offset + piece * piece_bytes;
    sluice_err err = sum_range(f, offset, piece_bytes, &sum, e);

    if (err != SLUICE_OK || sum == sl_sums_get(s->sums, base, piece)) return err;
    err = sl_fail(e, SLUICE_E_CORRUPT,
                  "%" PRIu64 " bytes at offset %" PRIu64 " of %s do not match their checksum; the "
                  "file or the drive is damaged: check it with sluice verify, get the model again",
                  piece_bytes, offset, sl_file_path(f));
    if (e != NULL) e->file_offset = offset;
    return err;
}

/* Two threads may check the same piece at once: twice the work, the same outcome. */
static bool is_checked(const struct sl_source *s, uint64_t flag)
{
    return atomic_load_explicit(&s->checked[flag], memory_order_relaxed) != 0;
}

static void set_checked(const struct sl_source *s, uint64_t flag)
{
    atomic_store_explicit(&s->checked[flag], 1, memory_order_relaxed);
}

static sluice_err check_records(const struct sl_source *s, const struct sl_gguf_tensor *t,
                                uint64_t offset, uint64_t bytes, sluice_error *e)
{
    sluice_err err = SLUICE_OK;

    for (uint64_t at = t->offset + offset; at < t->offset + offset + bytes && err == SLUICE_OK;) {
        const struct sl_container_record *r = sl_gguf_record(s->gguf, t->shard, at);

        if (r == NULL) return SLUICE_OK; /* a file without records */
        uint64_t flag = (uint64_t)(r - s->records);
        if (!is_checked(s, flag)) err = check_record(s, r, e);
        if (err == SLUICE_OK) set_checked(s, flag);
        at = r->offset + r->bytes;
    }
    return err;
}

sluice_err sl_src_check(const struct sl_source *s, uint32_t base, uint64_t offset, uint64_t bytes,
                        sluice_error *e)
{
    const struct sl_gguf_tensor *t = sl_gguf_tensor(s->gguf, base);
    uint64_t piece_bytes = 0;
    sluice_err err = SLUICE_OK;

    if (s->checked == NULL || bytes == 0) return SLUICE_OK;
    if (s->records != NULL) return check_records(s, t, offset, bytes, e);
    (void)sl_sums_pieces(t, &piece_bytes);
    uint64_t last = (offset + bytes - 1) / piece_bytes;
    for (uint64_t p = offset / piece_bytes; p <= last && err == SLUICE_OK; p++) {
        uint64_t flag = s->first_piece[base] + p;

        if (!is_checked(s, flag)) err = check_piece(s, base, p, piece_bytes, e);
        if (err == SLUICE_OK) set_checked(s, flag);
    }
    return err;
}
