/* Reading a whole model once, in fixed memory: to make its sums file, or to compare with it.
 *
 * Tensors are read in the order of the table, in chunks that end at multiples of their size in the
 * file, whatever pieces they hold: rows of an embedding are far smaller than what a drive wants to
 * be asked for, some tensors larger than memory. What was read leaves the page cache at once. Every
 * byte of every file is covered: those outside tensors by two sums for each file. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf_internal.h"
#include "formats/sums_internal.h"
#include "io/new_file.h"

#define CHUNK_BYTES ((uint64_t)4 << 20)
#define HEADER_CHUNK_BYTES ((uint64_t)256 << 10) /* where only headers are read */
#define REPORTS 256                              /* calls of progress for a whole model ... */
#define REPORT_BYTES_MAX ((uint64_t)64 << 20)    /* ... but one at least for each so many bytes */

struct pass {
    const struct sl_gguf *g;
    struct sl_budget *budget;
    unsigned char *buffer;
    uint64_t buffer_bytes;
    sl_sums_progress_fn *progress;
    void *user;
    uint64_t done, total, reported;
    const struct sl_sums *wanted;  /* verifying */
    struct sl_new_file *made;      /* making */
    struct sl_xxh3_stream written; /* of what was made so far */
    sluice_error *e;
};

static sluice_err begin(struct pass *p, uint64_t buffer_bytes)
{
    void *block = NULL;
    uint64_t capacity = 0;
    sluice_err err = sl_grow(p->budget, &block, &capacity, buffer_bytes, 1);
    if (err != SLUICE_OK) return sl_fail(p->e, err, "no memory to read the model with");
    p->buffer = block;
    p->buffer_bytes = buffer_bytes;
    for (uint32_t i = 0; i < sl_gguf_n_files(p->g); i++) {
        if (!sl_add_ok(p->total, sl_file_bytes(sl_gguf_file(p->g, i)), &p->total))
            p->total = UINT64_MAX;
    }
    return SLUICE_OK;
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

static sluice_err report(struct pass *p, uint64_t bytes)
{
    p->done += bytes;
    if (p->progress == NULL) return SLUICE_OK;
    if (p->done < p->total &&
        p->done - p->reported < sl_min_u64(p->total / REPORTS, REPORT_BYTES_MAX))
        return SLUICE_OK;
    p->reported = p->done;
    if (p->progress(p->user, p->done, p->total) == 0) return SLUICE_OK;
    return sl_fail(p->e, SLUICE_E_CANCELLED, "reading the model for its checksums was cancelled");
}

/* Reads the next bytes, at most left, into the buffer. */
static sluice_err read_chunk(struct pass *p, struct sl_file *f, uint64_t offset, uint64_t left,
                             uint64_t *n)
{
    *n = sl_min_u64(left, p->buffer_bytes - offset % p->buffer_bytes);
    sluice_err err = sl_file_read_at(f, offset, p->buffer, *n, p->e);
    if (err != SLUICE_OK) return err;
    sl_file_drop_cache(f, offset, *n);
    return report(p, *n);
}

static sluice_err add_range(struct pass *p, struct sl_file *f, uint64_t offset, uint64_t end,
                            struct sl_xxh3_stream *s)
{
    sluice_err err = SLUICE_OK;
    for (uint64_t n; offset < end && err == SLUICE_OK; offset += n) {
        err = read_chunk(p, f, offset, end - offset, &n);
        if (err == SLUICE_OK) sl_xxh3_add(s, p->buffer, n);
    }
    return err;
}

/* ---- outside tensors ---------------------------------------------------------------------------
 */

/* The tensors of a file: they follow one another in the table. */
static uint32_t tensors_of(const struct sl_gguf *g, uint32_t shard, uint32_t *first)
{
    uint32_t n = sl_gguf_n_tensors(g), i = 0, end;
    while (i < n && sl_gguf_tensor(g, i)->shard < shard) i++;
    for (end = i; end < n && sl_gguf_tensor(g, end)->shard == shard; end++) continue;
    *first = i;
    return end - i;
}

static uint64_t header_end(const struct sl_gguf *g, uint32_t shard)
{
    uint32_t first, n = tensors_of(g, shard, &first);
    uint64_t end = sl_file_bytes(sl_gguf_file(g, shard));
    for (uint32_t i = 0; i < n; i++) end = sl_min_u64(end, sl_gguf_tensor(g, first + i)->offset);
    return end;
}

static sluice_err sum_header(struct pass *p, uint32_t shard, uint64_t *sum)
{
    struct sl_xxh3_stream s;
    sl_xxh3_begin(&s);
    sluice_err err = add_range(p, sl_gguf_file(p->g, shard), 0, header_end(p->g, shard), &s);
    *sum = sl_xxh3_end(&s);
    return err;
}

/* Everything after the header that belongs to no tensor: padding, mostly. */
static sluice_err sum_rest(struct pass *p, uint32_t shard, uint64_t *sum)
{
    uint32_t first, n = tensors_of(p->g, shard, &first);
    struct sl_file *f = sl_gguf_file(p->g, shard);
    uint64_t at = header_end(p->g, shard);
    const struct sl_gguf_tensor *t = n > 0 ? sl_gguf_tensor(p->g, first) : NULL;
    struct sl_xxh3_stream s;
    sluice_err err = SLUICE_OK;
    uint32_t *order = sl_alloc(p->budget, n, sizeof *order);
    if (order == NULL) return sl_gg_no_memory(p->budget, n * sizeof *order, sl_file_path(f), p->e);
    if (n > 0) sl_gg_sort_by_offset(order, n, t);
    sl_xxh3_begin(&s);
    for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) {
        err = add_range(p, f, at, t[order[i]].offset, &s);
        at = t[order[i]].offset + t[order[i]].bytes;
    }
    if (err == SLUICE_OK) err = add_range(p, f, at, sl_file_bytes(f), &s);
    sl_free(order);
    *sum = sl_xxh3_end(&s);
    return err;
}

static const char *show(const struct sl_file *f, char *text)
{
    const char *path = sl_file_path(f);
    return sl_str_show((struct sl_str){path, strlen(path)}, text, SL_SUMS_SHOW_MAX);
}

#define DAMAGED                                                                                    \
    "the file is damaged or was changed after the sums were made: get it again, or, if the "       \
    "change was meant, delete the sums file"

static sluice_err fail_outside(struct pass *p, uint32_t shard, const char *what, uint64_t offset)
{
    char text[SL_SUMS_SHOW_MAX];
    struct sl_file *f = sl_gguf_file(p->g, shard);
    sl_fail(p->e, SLUICE_E_CORRUPT, "'%s': %s do not match their checksum; " DAMAGED, show(f, text),
            what);
    if (p->e != NULL) p->e->file_offset = offset;
    return SLUICE_E_CORRUPT;
}

static sluice_err compare_header(struct pass *p, uint32_t shard)
{
    uint64_t sum;
    sluice_err err = sum_header(p, shard, &sum);
    if (err != SLUICE_OK || sum == sl_sums_file(p->wanted, shard).header_sum) return err;
    return fail_outside(p, shard, "the bytes before the first tensor (header and metadata)", 0);
}

static sluice_err compare_rest(struct pass *p, uint32_t shard)
{
    uint64_t sum;
    sluice_err err = sum_rest(p, shard, &sum);
    if (err != SLUICE_OK || sum == sl_sums_file(p->wanted, shard).rest_sum) return err;
    return fail_outside(p, shard, "the bytes between and after tensors (padding)",
                        header_end(p->g, shard));
}

sluice_err sl_sums_check_headers(const struct sl_gguf *g, const struct sl_sums *s,
                                 struct sl_budget *b, sluice_error *e)
{
    struct pass p = {.g = g, .budget = b, .wanted = s, .e = e};
    sluice_err err = begin(&p, HEADER_CHUNK_BYTES);
    for (uint32_t i = 0; i < sl_gguf_n_files(g) && err == SLUICE_OK; i++)
        err = compare_header(&p, i);
    sl_free(p.buffer);
    return err;
}

/* ---- tensors -----------------------------------------------------------------------------------
 */

static int32_t layer_of(struct sl_str name)
{
    int32_t layer = 0;
    size_t i = 4;
    if (!sl_str_starts(name, "blk.")) return -1;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && i < 12; i++)
        layer = layer * 10 + (name.p[i] - '0');
    return i > 4 && i < name.n && name.p[i] == '.' ? layer : -1;
}

static sluice_err fail_piece(struct pass *p, const struct sl_gguf_tensor *t, uint64_t piece)
{
    char path[SL_SUMS_SHOW_MAX], name[128], which[48] = "";
    uint64_t piece_bytes, pieces = sl_sums_pieces(t, &piece_bytes);
    uint64_t offset = t->offset + piece * piece_bytes;
    bool rows = sl_str_eq(t->name, "token_embd.weight");
    if (pieces > 1) snprintf(which, sizeof which, ", %s %" PRIu64, rows ? "row" : "expert", piece);
    sl_fail(p->e, SLUICE_E_CORRUPT,
            "'%s': tensor '%s'%s (%" PRIu64 " bytes at offset %" PRIu64
            ") does not match its checksum; " DAMAGED,
            show(sl_gguf_file(p->g, t->shard), path), sl_str_show(t->name, name, sizeof name),
            which, piece_bytes, offset);
    if (p->e == NULL) return SLUICE_E_CORRUPT;
    p->e->file_offset = offset;
    p->e->layer = layer_of(t->name);
    if (pieces > 1 && !rows && piece <= INT32_MAX) p->e->expert = (int32_t)piece;
    return SLUICE_E_CORRUPT;
}

static sluice_err put(struct pass *p, const void *data, uint64_t bytes)
{
    sl_xxh3_add(&p->written, data, bytes);
    return sl_new_file_write(p->made, data, bytes, p->e);
}

static sluice_err put_word(struct pass *p, uint64_t word)
{
    unsigned char bytes[8];
    sl_sums_put(bytes, word, 8);
    return put(p, bytes, sizeof bytes);
}

/* The sum of a piece is known. */
static sluice_err take(struct pass *p, uint32_t tensor, uint64_t piece, uint64_t sum)
{
    if (p->made != NULL) return put_word(p, sum);
    if (sum == sl_sums_get(p->wanted, tensor, piece)) return SLUICE_OK;
    return fail_piece(p, sl_gguf_tensor(p->g, tensor), piece);
}

static sluice_err do_tensor(struct pass *p, uint32_t tensor)
{
    const struct sl_gguf_tensor *t = sl_gguf_tensor(p->g, tensor);
    struct sl_file *f = sl_gguf_file(p->g, t->shard);
    uint64_t piece_bytes, piece = 0, at = 0; /* at: bytes of the piece that were added */
    struct sl_xxh3_stream s;
    sluice_err err = SLUICE_OK;
    (void)sl_sums_pieces(t, &piece_bytes);
    sl_xxh3_begin(&s);
    for (uint64_t done = 0, n; done < t->bytes && err == SLUICE_OK; done += n) {
        err = read_chunk(p, f, t->offset + done, t->bytes - done, &n);
        for (uint64_t used = 0, k; used < n && err == SLUICE_OK; used += k) {
            k = sl_min_u64(n - used, piece_bytes - at);
            sl_xxh3_add(&s, p->buffer + used, k);
            at += k;
            if (at < piece_bytes) continue;
            err = take(p, tensor, piece++, sl_xxh3_end(&s));
            sl_xxh3_begin(&s);
            at = 0;
        }
    }
    return err;
}

static sluice_err do_tensors(struct pass *p)
{
    sluice_err err = SLUICE_OK;
    for (uint32_t i = 0; i < sl_gguf_n_tensors(p->g) && err == SLUICE_OK; i++)
        err = do_tensor(p, i);
    return err;
}

/* ---- the two passes ----------------------------------------------------------------------------
 */

/* What was read may be of two versions of a file. */
static sluice_err check_unchanged(struct pass *p)
{
    sluice_err err = SLUICE_OK;
    for (uint32_t i = 0; i < sl_gguf_n_files(p->g) && err == SLUICE_OK; i++)
        err = sl_file_check_unchanged(sl_gguf_file(p->g, i), p->e);
    return err;
}

static void end(struct pass *p)
{
    /* Read-ahead brought pages that nobody asked for. */
    for (uint32_t i = 0; i < sl_gguf_n_files(p->g); i++)
        sl_file_drop_cache(sl_gguf_file(p->g, i), 0, 0);
    sl_free(p->buffer);
}

static sluice_err write_all(struct pass *p, uint64_t pieces)
{
    unsigned char head[SL_SUMS_HEAD_BYTES], sum[8];
    sluice_err err;
    sl_sums_head(p->g, pieces, head);
    sl_xxh3_begin(&p->written);
    err = put(p, head, sizeof head);
    for (uint32_t i = 0; i < sl_gguf_n_files(p->g) && err == SLUICE_OK; i++) {
        struct sl_sums_file f = {.bytes = sl_file_bytes(sl_gguf_file(p->g, i))};
        err = sum_header(p, i, &f.header_sum);
        if (err == SLUICE_OK) err = sum_rest(p, i, &f.rest_sum);
        if (err == SLUICE_OK) err = put_word(p, f.bytes);
        if (err == SLUICE_OK) err = put_word(p, f.header_sum);
        if (err == SLUICE_OK) err = put_word(p, f.rest_sum);
    }
    if (err == SLUICE_OK) err = do_tensors(p);
    if (err == SLUICE_OK) err = check_unchanged(p);
    if (err != SLUICE_OK) return err;
    sl_sums_put(sum, sl_xxh3_end(&p->written), sizeof sum);
    return sl_new_file_write(p->made, sum, sizeof sum, p->e);
}

sluice_err sl_sums_make(const struct sl_gguf *g, struct sl_budget *b, sl_sums_progress_fn *progress,
                        void *user, sluice_error *e)
{
    struct pass p = {.g = g, .budget = b, .progress = progress, .user = user, .e = e};
    uint64_t pieces;
    SLUICE_ASSERT(g != NULL);
    if (!sl_sums_count(g, &pieces))
        return sl_fail(e, SLUICE_E_LIMIT, "the model has too many pieces for sums");
    char *path = sl_sums_path(g, b);
    if (path == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the name of a sums file");
    sluice_err err = sl_new_file_open(path, b, e, &p.made);
    sl_free(path);
    if (err != SLUICE_OK) return err;
    err = begin(&p, CHUNK_BYTES);
    if (err == SLUICE_OK) err = write_all(&p, pieces);
    end(&p);
    if (err == SLUICE_OK) return sl_new_file_commit(p.made, e);
    sl_new_file_discard(p.made);
    return err;
}

sluice_err sl_sums_verify(const struct sl_gguf *g, const struct sl_sums *s, struct sl_budget *b,
                          sl_sums_progress_fn *progress, void *user, sluice_error *e)
{
    struct pass p = {.g = g, .budget = b, .wanted = s, .progress = progress, .user = user, .e = e};
    SLUICE_ASSERT(g != NULL && s != NULL);
    sluice_err err = begin(&p, CHUNK_BYTES);
    for (uint32_t i = 0; i < sl_gguf_n_files(g) && err == SLUICE_OK; i++)
        err = compare_header(&p, i);
    if (err == SLUICE_OK) err = do_tensors(&p);
    for (uint32_t i = 0; i < sl_gguf_n_files(g) && err == SLUICE_OK; i++) err = compare_rest(&p, i);
    end(&p);
    /* A model that was replaced meanwhile is not corrupt, and not proven whole either. */
    if (err != SLUICE_OK && err != SLUICE_E_CORRUPT) return err;
    sluice_err changed = check_unchanged(&p);
    return changed != SLUICE_OK ? changed : err;
}
