/* Reading trace files: where the bytes come from, and blocks. See trace_file.h; trace_header.c and
 * trace_record.c read what is in them.
 *
 * Bytes come in order and in pieces of any size. A block is whole and right, or it is the last and
 * something of it is missing (whoever wrote was stopped: no error), or the file is damaged. What a
 * block begins with is therefore checked before its end is looked for: a wrong length must not
 * pass for a file that was cut. */
#define _POSIX_C_SOURCE 200809L
#include "formats/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "formats/checksum.h"

#define RETRIES_MAX 100
#define AGAIN "copy the file again, or record anew"

/* ---- bytes --------------------------------------------------------------------------------------
 */

static sluice_err from_fd(void *user, void *buf, uint64_t bytes, uint64_t *got, sluice_error *e)
{
    struct sl_trace_reader *r = user;
    int interruptions = 0;
    ssize_t n;
    do {
        n = read(r->fd, buf, (size_t)bytes);
    } while (n < 0 && errno == EINTR && ++interruptions <= RETRIES_MAX);
    *got = n > 0 ? (uint64_t)n : 0;
    if (n >= 0) return SLUICE_OK;
    return sl_fail_sys(e, SLUICE_E_IO, errno, "reading the trace '%s' failed at offset %" PRIu64,
                       r->shown, r->at);
}

/* Fills buf, or as much of it as there is: *got. */
static sluice_err take(struct sl_trace_reader *r, unsigned char *buf, uint64_t bytes, uint64_t *got)
{
    *got = 0;
    while (*got < bytes) {
        uint64_t n = 0;
        sluice_err err = r->source.fn(r->source.user, buf + *got, bytes - *got, &n, &r->failure);
        if (err != SLUICE_OK) {
            r->failure.code = err; /* whatever the source made of it */
            return err;
        }
        SLUICE_ASSERT(n <= bytes - *got);
        if (n == 0) break;
        *got += n;
        r->at += n;
    }
    return SLUICE_OK;
}

/* ---- blocks -------------------------------------------------------------------------------------
 */

static sluice_err fail_block(struct sl_trace_reader *r, const char *why)
{
    (void)sl_fail(&r->failure, SLUICE_E_CORRUPT,
                  "the trace '%s' is damaged: the block at offset %" PRIu64 " %s; " AGAIN, r->shown,
                  r->block_at, why);
    r->failure.file_offset = r->block_at;
    return SLUICE_E_CORRUPT;
}

/* The file ends before the block at block_at does. */
static sluice_err end_cut(struct sl_trace_reader *r)
{
    r->ended = r->cut = true;
    r->lost_bytes = r->at - r->block_at;
    return SLUICE_OK;
}

/* Whether the first n bytes of a block are those of one: its length is there twice, so n bytes of
 * what it would be are known from the first six. */
static bool head_ok(const unsigned char *head, uint64_t n, uint32_t *payload_bytes)
{
    unsigned char wanted[SL_TF_HEAD_BYTES];
    uint32_t bytes = 0;
    for (uint32_t i = 2; i < 6; i++) bytes = bytes << 8 | head[i];
    *payload_bytes = bytes;
    sl_tf_put_head(wanted, bytes);
    if (memcmp(wanted, head, (size_t)n) != 0) return false;
    return n < 6 || (bytes >= 1 && bytes <= SL_TF_PAYLOAD_MAX);
}

/* Reads the next block, and has r->mp read its payload. */
static sluice_err next_block(struct sl_trace_reader *r)
{
    unsigned char head[SL_TF_HEAD_BYTES] = {0}, tail[SL_TF_TAIL_BYTES], wanted[SL_TF_TAIL_BYTES];
    uint32_t bytes;
    uint64_t got;
    r->block_at = r->at;
    sluice_err err = take(r, head, sizeof head, &got);
    if (err != SLUICE_OK) return err;
    if (!head_ok(head, got, &bytes)) return fail_block(r, "does not begin like one");
    if (got < sizeof head) return end_cut(r);
    err = take(r, r->payload, bytes, &got);
    if (err != SLUICE_OK) return err;
    if (got < bytes) return end_cut(r);
    err = take(r, tail, sizeof tail, &got);
    if (err != SLUICE_OK) return err;
    sl_tf_put_tail(wanted, sl_xxh3(r->payload, bytes));
    if (got > 0 && tail[0] != wanted[0]) return fail_block(r, "does not end like one");
    if (got < sizeof tail) return end_cut(r);
    sl_mp_read(&r->mp, r->payload, bytes);
    if (memcmp(tail, wanted, sizeof tail) == 0) return SLUICE_OK;
    err = take(r, tail, 1, &got); /* is it the last one? */
    if (err != SLUICE_OK) return err;
    return got > 0 ? fail_block(r, "does not match its checksum") : end_cut(r);
}

/* ---- opening ------------------------------------------------------------------------------------
 */

static sluice_err fail_short(struct sl_trace_reader *r)
{
    return sl_fail(&r->failure, SLUICE_E_TRUNCATED,
                   "the trace '%s' ends after %" PRIu64
                   " bytes, before its header does; nothing in it can be read",
                   r->shown, r->at);
}

static sluice_err read_start(struct sl_trace_reader *r)
{
    unsigned char magic[SL_TF_MAGIC_BYTES];
    uint64_t got;
    sluice_err err = take(r, magic, sizeof magic, &got);
    if (err != SLUICE_OK) return err;
    if (memcmp(magic, sl_tf_magic, (size_t)got) != 0)
        return sl_fail(&r->failure, SLUICE_E_FORMAT,
                       "'%s' is no trace file of Sluice: it does not begin like one", r->shown);
    if (got < sizeof magic) return fail_short(r);
    err = next_block(r);
    if (err != SLUICE_OK) return err;
    if (r->cut && r->mp.base != NULL) return fail_block(r, "does not match its checksum");
    return r->cut ? fail_short(r) : sl_tf_read_header(r);
}

static sluice_err new_reader(const char *name, struct sl_budget *b, sluice_error *e,
                             struct sl_trace_reader **out)
{
    void *memory = NULL;
    uint64_t capacity = 0;
    sluice_err err = sl_grow(b, &memory, &capacity, sizeof(struct sl_trace_reader), 1);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to read the trace '%.256s'", name);
    struct sl_trace_reader *r = memory;
    r->fd = -1;
    sl_str_show((struct sl_str){name, strlen(name)}, r->shown, sizeof r->shown);
    *out = r;
    return SLUICE_OK;
}

static sluice_err start(struct sl_trace_reader *r, sluice_error *e, struct sl_trace_reader **out)
{
    sluice_err err = read_start(r);
    if (err != SLUICE_OK) {
        if (e != NULL) *e = r->failure;
        sl_trace_reader_close(r);
        return err;
    }
    *out = r;
    return SLUICE_OK;
}

static sluice_err open_fd(struct sl_trace_reader *r, const char *path)
{
    int interruptions = 0;
    do {
        r->fd = open(path, O_RDONLY | O_CLOEXEC);
    } while (r->fd < 0 && errno == EINTR && ++interruptions <= RETRIES_MAX);
    r->own_fd = r->fd >= 0;
    if (r->own_fd) return SLUICE_OK;
    if (errno != ENOENT && errno != ENOTDIR)
        return sl_fail_sys(&r->failure, SLUICE_E_IO, errno, "the trace '%s' cannot be opened",
                           r->shown);
    return sl_fail(&r->failure, SLUICE_E_NOT_FOUND, "there is no file '%s'", r->shown);
}

sluice_err sl_trace_open(const char *path, struct sl_budget *b, sluice_error *e,
                         struct sl_trace_reader **out)
{
    SLUICE_ASSERT(path != NULL && out != NULL);
    *out = NULL;
    struct sl_trace_reader *r = NULL;
    bool standard = strcmp(path, "-") == 0;
    sluice_err err = new_reader(standard ? "standard input" : path, b, e, &r);
    if (err != SLUICE_OK) return err;
    r->source = (struct sl_trace_source){.fn = from_fd, .user = r, .name = r->shown};
    if (standard) r->fd = STDIN_FILENO;
    if (!standard && open_fd(r, path) != SLUICE_OK) {
        err = (sluice_err)r->failure.code;
        if (e != NULL) *e = r->failure;
        sl_trace_reader_close(r);
        return err;
    }
    return start(r, e, out);
}

sluice_err sl_trace_open_source(const struct sl_trace_source *source, struct sl_budget *b,
                                sluice_error *e, struct sl_trace_reader **out)
{
    SLUICE_ASSERT(source != NULL && source->fn != NULL && source->name != NULL && out != NULL);
    *out = NULL;
    struct sl_trace_reader *r = NULL;
    sluice_err err = new_reader(source->name, b, e, &r);
    if (err != SLUICE_OK) return err;
    r->source = *source;
    r->source.name = r->shown;
    return start(r, e, out);
}

const struct sl_trace_header *sl_trace_get_header(const struct sl_trace_reader *r)
{
    return &r->header;
}

/* ---- records ------------------------------------------------------------------------------------
 */

static sluice_err fail_record(struct sl_trace_reader *r)
{
    (void)sl_fail(&r->failure, SLUICE_E_FORMAT,
                  "the trace '%s' breaks its format at byte %" PRIu64
                  " of the block at offset %" PRIu64 ": wanted %s; " AGAIN,
                  r->shown, r->mp.at, r->block_at, r->mp.failed);
    r->failure.file_offset = r->block_at;
    return SLUICE_E_FORMAT;
}

/* The end mark: nothing may follow. */
static sluice_err end_marked(struct sl_trace_reader *r)
{
    unsigned char next;
    uint64_t got = r->mp.bytes - r->mp.at;
    r->ended = true;
    sluice_err err = got == 0 ? take(r, &next, 1, &got) : SLUICE_OK;
    if (err != SLUICE_OK || got == 0) return err;
    return sl_fail(&r->failure, SLUICE_E_FORMAT,
                   "the trace '%s' goes on after its end mark; two files in one? " AGAIN, r->shown);
}

sluice_err sl_trace_next(struct sl_trace_reader *r, struct sl_trace_record *out, sluice_error *e)
{
    SLUICE_ASSERT(r != NULL && out != NULL);
    *out = (struct sl_trace_record){.kind = SL_TRACE_END};
    sluice_err err = (sluice_err)r->failure.code;
    if (err == SLUICE_OK && !r->ended && r->mp.at == r->mp.bytes) err = next_block(r);
    if (err == SLUICE_OK && !r->ended) {
        sl_tf_read_record(r, out);
        if (r->mp.failed != NULL)
            err = fail_record(r);
        else if (out->kind == SL_TRACE_END)
            err = end_marked(r);
    }
    if (err == SLUICE_OK) return SLUICE_OK;
    *out = (struct sl_trace_record){.kind = SL_TRACE_END};
    if (e != NULL) *e = r->failure;
    return err;
}

bool sl_trace_cut(const struct sl_trace_reader *r, uint64_t *lost)
{
    if (lost != NULL) *lost = r->lost_bytes;
    return r->cut;
}

void sl_trace_reader_close(struct sl_trace_reader *r)
{
    if (r == NULL) return;
    if (r->own_fd) close(r->fd);
    sl_free(r);
}
