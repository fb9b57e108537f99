/* Records looked up by place, and compared. */
#include "formats/records.h"

#include <inttypes.h>

#include "formats/checksum.h"
#include "formats/gguf_internal.h"

const struct sl_container_record *sl_gguf_records(const struct sl_gguf *g, uint64_t *n)
{
    *n = g->n_records;
    return g->records;
}

bool sl_gguf_has_records(const struct sl_gguf *g) { return g->n_records > 0; }
struct sl_str sl_gguf_recipe(const struct sl_gguf *g) { return g->recipe; }
uint64_t sl_gguf_source(const struct sl_gguf *g) { return g->source; }

const struct sl_container_record *sl_gguf_record(const struct sl_gguf *g, uint32_t file,
                                                 uint64_t offset)
{
    const struct sl_container_record *r = g->records;
    uint64_t low = 0, high = g->n_records;

    while (low < high) { /* the first that ends behind the byte */
        uint64_t mid = low + (high - low) / 2;
        bool before =
            r[mid].part < file || (r[mid].part == file && r[mid].offset + r[mid].bytes <= offset);

        if (before)
            low = mid + 1;
        else
            high = mid;
    }
    bool found = low < g->n_records && r[low].part == file && r[low].offset <= offset;
    return found ? &r[low] : NULL;
}

struct sl_range sl_gguf_widen(const struct sl_gguf *g, uint32_t file, struct sl_range r)
{
    const struct sl_container_record *first = sl_gguf_record(g, file, r.offset);

    if (first == NULL || r.bytes == 0) return r;
    const struct sl_container_record *last = sl_gguf_record(g, file, r.offset + r.bytes - 1);
    SLUICE_ASSERT(last != NULL); /* a tensor lies in one home, whose records have no gaps */
    return (struct sl_range){first->offset, last->offset + last->bytes - first->offset};
}

sluice_err sl_record_damaged(const struct sl_container_record *r, const char *path, sluice_error *e)
{
    char shown[SL_GG_SHOW_PATH_MAX];

    sl_gg_show_path(path, shown);
    if (r->layer >= 0)
        sl_fail(e, SLUICE_E_CORRUPT,
                "%s: expert %" PRId32 " of layer %" PRId32 ", %" PRIu64 " bytes at offset %" PRIu64
                ", does not match its checksum; the file or the drive is damaged: get the model "
                "again, or pack it again",
                shown, r->expert, r->layer, r->bytes, r->offset);
    else
        sl_fail(e, SLUICE_E_CORRUPT,
                "%s: resident weights, %" PRIu64 " bytes at offset %" PRIu64
                ", do not match their checksum; the file or the drive is damaged: get the model "
                "again, or pack it again",
                shown, r->bytes, r->offset);
    if (e != NULL) {
        e->layer = r->layer;
        e->expert = r->expert;
        e->file_offset = r->offset;
    }
    return SLUICE_E_CORRUPT;
}

sluice_err sl_gguf_check(const struct sl_gguf *g, uint32_t file, struct sl_range r,
                         const void *data, sluice_error *e)
{
    const unsigned char *p = data;
    const struct sl_container_record *x = sl_gguf_record(g, file, r.offset);

    if (x == NULL) return SLUICE_OK;
    for (; r.bytes > 0; x++) { /* a file's records follow one another */
        SLUICE_ASSERT(x->offset == r.offset && x->bytes <= r.bytes);
        if (sl_xxh3(p, x->bytes) != x->sum)
            return sl_record_damaged(x, sl_file_path(g->files[file]), e);
        p += x->bytes;
        r.offset += x->bytes;
        r.bytes -= x->bytes;
    }
    return SLUICE_OK;
}
