/* Reading every byte of a container: headers, records, index. What was read leaves the page cache
 * at once. Opening has compared the headers and the index already; the drive is asked again here,
 * since the answer may differ. */
#include <inttypes.h>
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_internal.h"

#define CHUNK_BYTES ((uint64_t)256 << 10)

struct pass {
    struct sl_container *c;
    const struct sl_gguf *g;
    unsigned char *buffer;
    sl_container_progress_fn *progress;
    void *user;
    uint64_t buffer_bytes;
    uint64_t done, total;
    sluice_error *e;
};

static sluice_err report(struct pass *p, uint64_t bytes)
{
    p->done += bytes;
    if (p->progress == NULL || p->progress(p->user, p->done, p->total) == 0) return SLUICE_OK;
    return sl_fail(p->e, SLUICE_E_CANCELLED, "comparing the container's checksums was cancelled");
}

static sluice_err sum_range(struct pass *p, struct sl_file *f, uint64_t offset, uint64_t bytes,
                            uint64_t *sum)
{
    struct sl_xxh3_stream s;
    sluice_err err = SLUICE_OK;

    sl_xxh3_begin(&s);
    for (uint64_t n; bytes > 0 && err == SLUICE_OK; offset += n, bytes -= n) {
        n = sl_min_u64(bytes, p->buffer_bytes);
        err = sl_file_read_at(f, offset, p->buffer, n, p->e);
        if (err != SLUICE_OK) break;
        sl_xxh3_add(&s, p->buffer, n);
        sl_file_drop_cache(f, offset, n);
        err = report(p, n);
    }
    *sum = sl_xxh3_end(&s);
    return err;
}

static sluice_err check_record(struct pass *p, const struct sl_container_record *r)
{
    struct sl_file *f = sl_gguf_file(p->g, r->part);
    uint64_t sum;
    sluice_err err = sum_range(p, f, r->offset, r->bytes, &sum);

    if (err != SLUICE_OK || sum == r->sum) return err;
    return sl_record_damaged(r, sl_file_path(f), p->e);
}

static sluice_err check_header(struct pass *p, uint32_t part, struct sl_cn_header *h)
{
    struct sl_file *f = sl_gguf_file(p->g, part);
    sluice_err err = sl_file_check_unchanged(f, p->e);

    if (err == SLUICE_OK) err = sl_file_read_at(f, 0, p->buffer, SL_CN_HEADER_BYTES, p->e);
    if (err == SLUICE_OK)
        err = sl_cn_header_decode(p->buffer, sl_file_bytes(f), sl_file_path(f), h, p->e);
    sl_file_drop_cache(f, 0, SL_CN_HEADER_BYTES);
    return err == SLUICE_OK ? report(p, SL_CN_HEADER_BYTES) : err;
}

static sluice_err check_all(struct pass *p)
{
    struct sl_cn_header h = {0};
    sluice_err err = SLUICE_OK;
    uint32_t n = sl_gguf_n_files(p->g);
    uint64_t sum, padded;

    for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) err = check_header(p, i, &h);
    for (uint64_t i = 0; i < sl_container_n_records(p->c) && err == SLUICE_OK; i++)
        err = check_record(p, sl_container_record(p->c, i));
    if (err != SLUICE_OK) return err;
    struct sl_file *f = sl_gguf_file(p->g, n - 1);
    if (!sl_align_ok(h.index_bytes, SL_CN_ALIGN, &padded)) padded = 0; /* the header was checked */
    err = sum_range(p, f, h.index_offset, padded, &sum);
    if (err == SLUICE_OK && sum != h.index_sum)
        err = sl_cn_fail(p->e, SLUICE_E_CORRUPT, sl_file_path(f),
                         "the index does not match its checksum");
    return err;
}

sluice_err sl_container_verify(struct sl_container *c, struct sl_budget *b,
                               sl_container_progress_fn *progress, void *user, sluice_error *e)
{
    struct pass p = {
        .c = c, .g = sl_container_model(c), .progress = progress, .user = user, .e = e};
    void *block = NULL;
    uint64_t capacity = 0;

    SLUICE_ASSERT(p.g != NULL);
    for (uint32_t i = 0; i < sl_gguf_n_files(p.g); i++)
        p.total += sl_file_bytes(sl_gguf_file(p.g, i));
    p.buffer_bytes = sl_min_u64(CHUNK_BYTES, p.total); /* a header fits */
    sluice_err err = sl_grow(b, &block, &capacity, p.buffer_bytes, 1);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to read the container with");
    p.buffer = block;
    err = check_all(&p);
    sl_free(block);
    return err;
}
