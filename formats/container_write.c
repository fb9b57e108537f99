/* Writing containers: see container_write.h.
 *
 * Bytes go through one buffer, in the order of the files. A record's checksum is taken as its bytes
 * pass; when enough was written the file is synced, and only then the journal says so. Taking up
 * again is the same code: what an earlier run finished is read back, compared, and skipped. */
#include "formats/container_write.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_write_internal.h"

#define BUFFER_BYTES ((uint64_t)1 << 20)
#define SYNC_BYTES_DEFAULT ((uint64_t)64 << 20)
#define NO_PART UINT32_MAX

struct sl_container_writer {
    struct sl_container_plan plan;
    struct sl_budget *budget;
    char *path;
    struct sl_cn_layout layout;
    struct sl_cn_journal journal;
    bool has_journal;

    struct sl_resume_file *file; /* of part; NULL: none is open */
    uint32_t part;
    unsigned char *buffer; /* [BUFFER_BYTES] */
    uint64_t buffered;
    uint64_t buffer_offset; /* in the file */

    uint64_t record;    /* being written; all before are complete */
    uint64_t record_at; /* bytes of it that were */
    struct sl_xxh3_stream record_sum;
    uint64_t journaled; /* records that the journal has */
    uint64_t unsynced;  /* bytes */
    uint64_t kept;      /* bytes */

    uint32_t tensor; /* wanted */
    uint64_t tensor_at;
    sluice_error *e; /* of the call in progress */
};

/* ---- files ----------------------------------------------------------------------------------- */

static char *part_path(struct sl_container_writer *w, uint32_t part, const char *suffix)
{
    return sl_cn_part_path(w->path, part, w->layout.n_parts, suffix, w->budget);
}

static sluice_err no_memory(struct sl_container_writer *w)
{
    return sl_cn_fail(w->e, SLUICE_E_NOMEM, w->path, "no memory to write the container");
}

static void close_part(struct sl_container_writer *w)
{
    sl_resume_file_close(w->file);
    w->file = NULL;
    w->part = NO_PART;
}

static sluice_err open_part(struct sl_container_writer *w, uint32_t part)
{
    if (w->part == part) return SLUICE_OK;
    close_part(w);
    char *path = part_path(w, part, ".partial");
    if (path == NULL) return no_memory(w);
    sluice_err err = sl_resume_file_open(path, w->plan.limit, w->budget, w->e, &w->file);
    sl_free(path);
    if (err == SLUICE_OK) w->part = part;
    return err;
}

static sluice_err flush(struct sl_container_writer *w)
{
    uint64_t n = w->buffered;

    if (n == 0) return SLUICE_OK;
    w->buffered = 0;
    sluice_err err = sl_resume_file_write(w->file, w->buffer_offset, w->buffer, n, w->e);
    if (err == SLUICE_OK) w->buffer_offset += n; /* else it says what the file has */
    return err;
}

/* Appends at the place that the buffer has in the file. NULL: zeros. */
static sluice_err gather(struct sl_container_writer *w, const unsigned char *data, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t n = sl_min_u64(bytes, BUFFER_BYTES - w->buffered);

        if (data != NULL) {
            memcpy(w->buffer + w->buffered, data, n);
            data += n;
        } else {
            memset(w->buffer + w->buffered, 0, n);
        }
        w->buffered += n;
        bytes -= n;
        if (w->buffered < BUFFER_BYTES) continue;
        sluice_err err = flush(w);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

static const struct sl_container_record *record_now(const struct sl_container_writer *w)
{
    return &w->layout.ix.records[w->record];
}

static bool all_records(const struct sl_container_writer *w)
{
    return w->record == w->layout.ix.n_records;
}

/* Records whose bytes the files have. */
static uint64_t n_written(const struct sl_container_writer *w)
{
    const struct sl_container_record *r = w->layout.ix.records;
    uint64_t n = w->record;

    while (n > w->journaled && r[n - 1].offset + r[n - 1].bytes > w->buffer_offset) n--;
    return n;
}

/* Makes what was written last: first the file, then the journal. Records without an entry are all
 * of one part, the one that is open. */
static sluice_err settle(struct sl_container_writer *w)
{
    sluice_err err = sl_resume_file_sync(w->file, w->e);
    uint64_t n = n_written(w);

    for (; err == SLUICE_OK && w->journaled < n; w->journaled++) {
        const struct sl_container_record *r = &w->layout.ix.records[w->journaled];
        struct sl_cn_entry entry = {SL_CN_RECORD, r->part,  w->journaled,
                                    r->offset,    r->bytes, r->sum};

        err = sl_cn_journal_add(&w->journal, &entry, w->e);
        if (err != SLUICE_OK) break;
    }
    w->unsynced = 0;
    return err == SLUICE_OK ? sl_cn_journal_sync(&w->journal, w->e) : err;
}

/* Makes the file of the present record ready, empty from the record on. */
static sluice_err begin_part(struct sl_container_writer *w)
{
    if (all_records(w)) return SLUICE_OK;
    const struct sl_container_record *r = record_now(w);
    sluice_err err = open_part(w, r->part);
    uint64_t keep = w->record > 0 && r[-1].part == r->part ? r->offset : 0;

    if (err == SLUICE_OK) err = sl_resume_file_cut(w->file, keep, w->e);
    w->buffer_offset = r->offset;
    return err;
}

static sluice_err end_record(struct sl_container_writer *w)
{
    struct sl_container_record *r = &w->layout.ix.records[w->record];
    uint64_t sync_bytes = w->plan.sync_bytes != 0 ? w->plan.sync_bytes : SYNC_BYTES_DEFAULT;

    r->sum = sl_xxh3_end(&w->record_sum);
    sl_xxh3_begin(&w->record_sum);
    w->record++;
    w->record_at = 0;
    w->unsynced += r->bytes;
    bool last_of_part = all_records(w) || record_now(w)->part != r->part;
    if (w->unsynced < sync_bytes && !last_of_part) return SLUICE_OK;
    sluice_err err = flush(w);
    if (err == SLUICE_OK) err = settle(w);
    return err == SLUICE_OK && last_of_part ? begin_part(w) : err;
}

/* The next bytes, of one record or several. NULL: zeros. */
static sluice_err emit(struct sl_container_writer *w, const unsigned char *data, uint64_t bytes)
{
    static const unsigned char zeros[SL_CN_TENSOR_ALIGN];

    while (bytes > 0) {
        SLUICE_ASSERT(!all_records(w));
        uint64_t n = sl_min_u64(bytes, record_now(w)->bytes - w->record_at);
        sluice_err err = gather(w, data, n);

        if (err != SLUICE_OK) return err;
        if (data != NULL) {
            sl_xxh3_add(&w->record_sum, data, n);
            data += n;
        }
        for (uint64_t at = 0; data == NULL && at < n; at += sizeof zeros)
            sl_xxh3_add(&w->record_sum, zeros, sl_min_u64(n - at, sizeof zeros));
        w->record_at += n;
        bytes -= n;
        if (w->record_at == record_now(w)->bytes) err = end_record(w);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

/* Zeros up to a place, if it is not yet behind. */
static sluice_err pad_to(struct sl_container_writer *w, uint32_t part, uint64_t offset)
{
    sluice_err err = SLUICE_OK;

    while (err == SLUICE_OK && !all_records(w) && record_now(w)->part < part)
        err = emit(w, NULL, record_now(w)->bytes - w->record_at);
    if (err != SLUICE_OK || all_records(w) || record_now(w)->part > part) return err;
    uint64_t at = record_now(w)->offset + w->record_at;
    return at < offset ? emit(w, NULL, offset - at) : SLUICE_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* How many of n bytes at a place were written by an earlier run. */
static uint64_t behind(const struct sl_container_writer *w, uint32_t part, uint64_t offset,
                       uint64_t n)
{
    if (all_records(w) || part < record_now(w)->part) return n;
    uint64_t at = record_now(w)->offset + w->record_at;
    if (part > record_now(w)->part || offset >= at) return 0;
    return sl_min_u64(n, at - offset);
}

/* Where the next tensor begins, or everything ends. */
static sluice_err pad_to_next(struct sl_container_writer *w)
{
    if (w->tensor == w->plan.n_tensors) return pad_to(w, NO_PART, 0);
    const struct sl_gguf_tensor *t = &w->layout.tensors[w->tensor];
    return pad_to(w, t->shard, t->offset);
}

uint32_t sl_container_write_next(const struct sl_container_writer *w) { return w->tensor; }

sluice_err sl_container_write_data(struct sl_container_writer *w, const void *data, uint64_t bytes,
                                   sluice_error *e)
{
    SLUICE_ASSERT(w != NULL && (data != NULL || bytes == 0));
    SLUICE_ASSERT(w->tensor < w->plan.n_tensors);
    const struct sl_gguf_tensor *t = &w->layout.tensors[w->tensor];
    SLUICE_ASSERT(bytes <= t->bytes - w->tensor_at);
    uint64_t skip = behind(w, t->shard, t->offset + w->tensor_at, bytes);
    w->e = e;
    sluice_err err = SLUICE_OK;
    if (skip < bytes) err = emit(w, (const unsigned char *)data + skip, bytes - skip);
    w->tensor_at += bytes;
    if (err != SLUICE_OK || w->tensor_at < t->bytes) return err;
    w->tensor++;
    w->tensor_at = 0;
    return pad_to_next(w);
}

/* ---- taking up again ------------------------------------------------------------------------- */

/* Reads a record of an earlier run back. *same: it is what the journal says. */
static sluice_err read_back(struct sl_container_writer *w, const struct sl_cn_entry *entry,
                            bool *same)
{
    struct sl_xxh3_stream s;
    sluice_err err = open_part(w, entry->part);

    sl_xxh3_begin(&s);
    for (uint64_t at = 0, n; err == SLUICE_OK && at < entry->bytes; at += n) {
        n = sl_min_u64(entry->bytes - at, BUFFER_BYTES);
        err = sl_resume_file_read(w->file, entry->offset + at, w->buffer, n, w->e);
        if (err == SLUICE_OK) sl_xxh3_add(&s, w->buffer, n);
    }
    *same = err == SLUICE_OK && sl_xxh3_end(&s) == entry->sum;
    return err == SLUICE_E_TRUNCATED ? SLUICE_OK : err; /* what is missing is written again */
}

/* Counts the records that are finished and as they were, and forgets the rest of the journal. */
static sluice_err keep_records(struct sl_container_writer *w)
{
    struct sl_cn_index *ix = &w->layout.ix;
    struct sl_cn_entry entry;
    uint64_t keep_at = w->journal.at;
    bool good;

    for (;;) {
        sluice_err err = sl_cn_journal_next(&w->journal, &entry, &good, w->e);
        if (err != SLUICE_OK) return err;
        if (!good || entry.kind != SL_CN_RECORD || all_records(w)) break;
        struct sl_container_record *r = &ix->records[w->record];
        if (entry.number != w->record || entry.part != r->part || entry.offset != r->offset ||
            entry.bytes != r->bytes)
            break;
        err = read_back(w, &entry, &good);
        if (err != SLUICE_OK) return err;
        if (!good) break;
        r->sum = entry.sum;
        w->kept += r->bytes;
        w->record++;
        keep_at = w->journal.at;
    }
    w->journal.at = keep_at;
    w->journaled = w->record;
    return sl_cn_journal_cut(&w->journal, w->e);
}

/* Whether the file with the final name has the header of what was finished. */
static bool is_finished_part(struct sl_container_writer *w, const char *path, uint32_t part,
                             const struct sl_cn_entry *finished)
{
    struct sl_cn_header h;
    struct sl_file *f;
    bool same = false;

    if (sl_file_open(path, w->budget, NULL, &f) != SLUICE_OK) return false;
    if (sl_file_bytes(f) >= SL_CN_HEADER_BYTES &&
        sl_file_read_at(f, 0, w->buffer, SL_CN_HEADER_BYTES, NULL) == SLUICE_OK &&
        sl_cn_header_decode(w->buffer, sl_file_bytes(f), path, &h, NULL) == SLUICE_OK)
        same = h.part == part && h.n_parts == w->layout.n_parts && h.index_sum == finished->sum;
    sl_file_close(f);
    return same;
}

/* A crash between the renames leaves some parts with their final names. They get the others back,
 * so that there is one way to go on. */
static sluice_err take_back_names(struct sl_container_writer *w, const struct sl_cn_entry *finished)
{
    sluice_err err = SLUICE_OK;

    for (uint32_t i = 0; i < w->layout.n_parts && err == SLUICE_OK; i++) {
        char *partial = part_path(w, i, ".partial"), *final = part_path(w, i, "");

        if (partial == NULL || final == NULL)
            err = no_memory(w);
        else if (!sl_resume_exists(partial) && is_finished_part(w, final, i, finished))
            err = sl_resume_rename(final, partial, w->plan.limit, w->e);
        sl_free(partial);
        sl_free(final);
    }
    return err;
}

static sluice_err resume(struct sl_container_writer *w)
{
    struct sl_cn_entry entry, finished = {0};
    bool found = true;

    while (found) {
        sluice_err err = sl_cn_journal_next(&w->journal, &entry, &found, w->e);
        if (err != SLUICE_OK) return err;
        if (found && entry.kind == SL_CN_FINISHED) finished = entry;
    }
    sl_cn_journal_rewind(&w->journal);
    sluice_err err = SLUICE_OK;
    if (finished.kind == SL_CN_FINISHED) err = take_back_names(w, &finished);
    return err == SLUICE_OK ? keep_records(w) : err;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Before anything is written. What an earlier run left takes no more room. */
static sluice_err check_room(struct sl_container_writer *w)
{
    uint64_t there = 0, room = sl_resume_room(w->path);

    for (uint32_t i = 0; i < w->layout.n_parts; i++) {
        char *partial = part_path(w, i, ".partial");

        if (partial == NULL) return no_memory(w);
        there += sl_min_u64(sl_resume_occupied(partial), w->layout.part_bytes[i]);
        sl_free(partial);
    }
    uint64_t wanted = w->layout.total_bytes - there;
    if (room >= wanted) return SLUICE_OK;
    sl_cn_fail(w->e, SLUICE_E_IO, w->path,
               "the disk has room for %" PRIu64 " bytes, and %" PRIu64 " are needed", room, wanted);
    if (w->e != NULL) w->e->sys_errno = ENOSPC;
    return SLUICE_E_IO;
}

/* Whether an earlier run left a journal. */
static bool is_begun(struct sl_container_writer *w)
{
    char *path = sl_cn_part_path(w->path, 0, 1, ".journal", w->budget);
    bool begun = path != NULL && sl_resume_exists(path);

    sl_free(path);
    return begun;
}

static sluice_err remove_journal(struct sl_container_writer *w)
{
    char *path = sl_cn_part_path(w->path, 0, 1, ".journal", w->budget);

    if (path == NULL) return no_memory(w);
    sluice_err err = sl_resume_remove(path, w->plan.limit, w->e); /* while the lock is ours */
    sl_free(path);
    return err;
}

/* With the lock of a journal that says nothing yet. */
static sluice_err begin_anew(struct sl_container_writer *w)
{
    bool first = w->journal.is_first, stray_ok = !first || w->plan.restart;
    sluice_err err = sl_cn_check_vacant(w->path, w->layout.n_parts, stray_ok, w->budget, w->e);

    if (err == SLUICE_OK && stray_ok)
        err = sl_cn_remove_partials(w->path, w->plan.limit, w->budget, w->e);
    if (err != SLUICE_OK && first) {
        w->e = NULL; /* what is told is why */
        (void)!remove_journal(w);
    }
    return err;
}

static sluice_err open_journal(struct sl_container_writer *w)
{
    struct sl_cn_belongs to = {w->plan.source, sl_xxh3(w->plan.recipe.p, w->plan.recipe.n),
                               w->layout.sum, w->plan.restart};
    char *path = sl_cn_part_path(w->path, 0, 1, ".journal", w->budget);

    if (path == NULL) return no_memory(w);
    sluice_err err = sl_cn_journal_open(&w->journal, path, &to, w->plan.limit, w->budget, w->e);
    sl_free(path);
    if (err != SLUICE_OK) return err;
    w->has_journal = true;
    return w->journal.is_new ? begin_anew(w) : resume(w);
}

/* Passes over the tensors that an earlier run finished. */
static void skip_tensors(struct sl_container_writer *w)
{
    for (; w->tensor < w->plan.n_tensors; w->tensor++) {
        const struct sl_gguf_tensor *t = &w->layout.tensors[w->tensor];

        if (behind(w, t->shard, t->offset, t->bytes) < t->bytes) return;
    }
}

static sluice_err create(const char *path, const struct sl_container_plan *plan,
                         struct sl_budget *b, sluice_error *e, struct sl_container_writer **out)
{
    size_t n = strlen(path) + 1;
    struct sl_container_writer *w = sl_alloc(b, 1, sizeof *w);

    *out = w;
    if (w == NULL) return sl_gg_no_memory(b, sizeof *w, path, e);
    w->plan = *plan;
    w->budget = b;
    w->part = NO_PART;
    w->e = e;
    sl_xxh3_begin(&w->record_sum);
    w->path = sl_alloc(b, n, 1);
    w->buffer = sl_alloc(b, BUFFER_BYTES, 1);
    if (w->path == NULL || w->buffer == NULL) return sl_gg_no_memory(b, BUFFER_BYTES, path, e);
    memcpy(w->path, path, n);
    return SLUICE_OK;
}

sluice_err sl_container_write_open(const char *path, const struct sl_container_plan *plan,
                                   struct sl_budget *b, sluice_error *e,
                                   struct sl_container_writer **out)
{
    struct sl_container_writer *w = NULL;

    SLUICE_ASSERT(path != NULL && plan != NULL && plan->meta != NULL && out != NULL);
    *out = NULL;
    sluice_err err = create(path, plan, b, e, &w);
    if (err == SLUICE_OK) err = sl_cn_layout_make(&w->layout, plan, path, b, e);
    bool begun = err == SLUICE_OK && is_begun(w);
    if (err == SLUICE_OK && !begun) err = check_room(w);
    if (err == SLUICE_OK) err = open_journal(w);
    if (err == SLUICE_OK && begun) err = check_room(w); /* finished parts have their names back */
    if (err == SLUICE_OK) err = begin_part(w);
    if (err == SLUICE_OK) skip_tensors(w);
    if (err == SLUICE_OK) err = pad_to_next(w);
    if (err != SLUICE_OK) {
        sl_container_write_close(w);
        return err;
    }
    *out = w;
    return SLUICE_OK;
}

uint64_t sl_container_write_total(const struct sl_container_writer *w)
{
    return w->layout.total_bytes;
}

uint64_t sl_container_write_kept(const struct sl_container_writer *w) { return w->kept; }

/* ---- the end --------------------------------------------------------------------------------- */

struct index_sink {
    struct sl_container_writer *w;
    struct sl_xxh3_stream sum;
    sluice_err err; /* of the first write that failed */
};

static void take_index(void *user, const void *data, size_t bytes)
{
    struct index_sink *s = user;

    sl_xxh3_add(&s->sum, data, bytes);
    if (s->err == SLUICE_OK) s->err = gather(s->w, data, bytes);
}

/* The index and its padding, on the drive. */
static sluice_err write_index(struct sl_container_writer *w, uint64_t *sum)
{
    static const unsigned char zero = 0;
    struct sl_cn_layout *l = &w->layout;
    struct index_sink s = {.w = w};
    struct sl_mp_writer mp = {take_index, &s};
    sluice_err err = open_part(w, l->n_parts - 1);

    if (err == SLUICE_OK) err = sl_resume_file_cut(w->file, l->index_offset, w->e);
    if (err != SLUICE_OK) return err;
    SLUICE_ASSERT(w->buffered == 0);
    w->buffer_offset = l->index_offset;
    sl_xxh3_begin(&s.sum);
    sl_cn_index_encode(&l->ix, &w->plan.meta->head.meta, l->tensors, w->plan.n_tensors, &mp);
    SLUICE_ASSERT(w->buffer_offset + w->buffered == l->index_offset + l->index_bytes ||
                  s.err != SLUICE_OK);
    while (s.err == SLUICE_OK && w->buffer_offset + w->buffered < l->part_bytes[l->n_parts - 1])
        take_index(&s, &zero, 1);
    *sum = sl_xxh3_end(&s.sum);
    if (s.err == SLUICE_OK) s.err = flush(w);
    return s.err == SLUICE_OK ? sl_resume_file_sync(w->file, w->e) : s.err;
}

/* The open part is what will get the final name, and whole. */
static sluice_err check_part(struct sl_container_writer *w)
{
    uint64_t bytes = 0;
    char *path = part_path(w, w->part, ".partial");

    if (path == NULL) return no_memory(w);
    sluice_err err = sl_resume_file_check_name(w->file, path, w->e);
    if (err == SLUICE_OK) err = sl_resume_file_bytes(w->file, &bytes, w->e);
    if (err == SLUICE_OK && bytes != w->layout.part_bytes[w->part])
        err = sl_cn_fail(w->e, SLUICE_E_CHANGED, path,
                         "it has %" PRIu64 " bytes, and %" PRIu64
                         " were written: somebody removed or replaced it meanwhile",
                         bytes, w->layout.part_bytes[w->part]);
    sl_free(path);
    return err;
}

static sluice_err check_journal(struct sl_container_writer *w)
{
    char *path = sl_cn_part_path(w->path, 0, 1, ".journal", w->budget);

    if (path == NULL) return no_memory(w);
    sluice_err err = sl_resume_file_check_name(w->journal.file, path, w->e);
    sl_free(path);
    return err;
}

static sluice_err write_headers(struct sl_container_writer *w, uint64_t index_sum)
{
    const struct sl_cn_layout *l = &w->layout;
    sluice_err err = SLUICE_OK;

    for (uint32_t i = l->n_parts; i-- > 0 && err == SLUICE_OK;) {
        struct sl_cn_header h = {.version = SL_CN_VERSION,
                                 .n_parts = l->n_parts,
                                 .part = i,
                                 .file_bytes = l->part_bytes[i],
                                 .total_bytes = l->total_bytes,
                                 .index_offset = l->index_offset,
                                 .index_bytes = l->index_bytes,
                                 .index_sum = index_sum};

        sl_cn_header_encode(&h, w->buffer);
        err = open_part(w, i);
        if (err == SLUICE_OK)
            err = sl_resume_file_write(w->file, 0, w->buffer, SL_CN_HEADER_BYTES, w->e);
        if (err == SLUICE_OK) err = sl_resume_file_sync(w->file, w->e);
        if (err == SLUICE_OK) err = check_part(w);
    }
    return err;
}

/* The first part last: it is the name that people open. */
static sluice_err give_names(struct sl_container_writer *w)
{
    sluice_err err = SLUICE_OK;

    for (uint32_t i = w->layout.n_parts; i-- > 0 && err == SLUICE_OK;) {
        char *partial = part_path(w, i, ".partial"), *final = part_path(w, i, "");

        if (partial == NULL || final == NULL)
            err = no_memory(w);
        else
            err = sl_resume_rename(partial, final, w->plan.limit, w->e);
        sl_free(partial);
        sl_free(final);
    }
    return err;
}

sluice_err sl_container_write_commit(struct sl_container_writer *w, sluice_error *e)
{
    uint64_t sum = 0;

    SLUICE_ASSERT(w != NULL && w->has_journal);
    SLUICE_ASSERT(w->tensor == w->plan.n_tensors && all_records(w));
    w->e = e;
    sluice_err err = write_index(w, &sum);
    struct sl_cn_entry finished = {.kind = SL_CN_FINISHED,
                                   .part = w->layout.n_parts - 1,
                                   .number = w->record,
                                   .offset = w->layout.index_offset,
                                   .bytes = w->layout.index_bytes,
                                   .sum = sum};
    if (err == SLUICE_OK) err = write_headers(w, sum);
    if (err == SLUICE_OK) err = sl_cn_journal_add(&w->journal, &finished, e);
    if (err == SLUICE_OK) err = sl_cn_journal_sync(&w->journal, e);
    close_part(w);
    if (err == SLUICE_OK) err = check_journal(w);
    if (err == SLUICE_OK) err = give_names(w);
    return err == SLUICE_OK ? remove_journal(w) : err;
}

uint64_t sl_container_write_suspend(struct sl_container_writer *w)
{
    uint64_t bytes = 0;

    w->e = NULL;
    if (w->journaled < w->record) {
        (void)!flush(w);
        (void)!settle(w);
    }
    for (uint64_t i = 0; i < w->journaled; i++) bytes += w->layout.ix.records[i].bytes;
    return bytes;
}

void sl_container_write_close(struct sl_container_writer *w)
{
    if (w == NULL) return;
    sl_resume_file_close(w->file);
    if (w->has_journal) sl_cn_journal_close(&w->journal);
    sl_cn_layout_deinit(&w->layout);
    sl_free(w->buffer);
    sl_free(w->path);
    sl_free(w);
}

void sl_container_write_discard(struct sl_container_writer *w)
{
    for (uint32_t i = 0; i < w->layout.n_parts; i++) {
        char *partial = part_path(w, i, ".partial");

        if (partial != NULL) (void)!sl_resume_remove(partial, w->plan.limit, NULL);
        sl_free(partial);
    }
    (void)!remove_journal(w);
    sl_container_write_close(w);
}
