/* The sums file itself: what it belongs to, and reading it.
 *
 * A model's tensor table fixes what its sums file looks like to the byte, so nothing in the file
 * decides how much memory is taken: counts are compared with those of the model first, and the
 * checksum over everything before what is left is believed. */
#include "formats/sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf_graft.h"
#include "formats/records.h"
#include "formats/sums_internal.h"

#define SUFFIX ".sums"
#define AGAIN "make it again with 'sluice verify -m MODEL --make-sums'"

static const unsigned char magic[8] = {'S', 'L', 'S', 'U', 'M', '\r', '\n', 0x1A};

struct sl_sums {
    uint64_t *first; /* [n_tensors] index of a tensor's first piece in sums */
    uint64_t *files; /* [n_files][SL_SUMS_FILE_WORDS], followed by the sums and the checksum */
    uint64_t *sums;  /* [pieces] */
    uint64_t pieces;
    uint32_t n_tensors, n_files;
};

/* ---- shape -------------------------------------------------------------------------------------
 */

uint64_t sl_sums_pieces(const struct sl_gguf_tensor *t, uint64_t *piece_bytes)
{
    uint64_t pieces = 1;
    if (sl_str_eq(t->name, "token_embd.weight"))
        pieces = t->bytes / t->row_bytes;
    else if (t->dims[3] == 1)
        pieces = t->dims[2];
    *piece_bytes = t->bytes / pieces;
    return pieces;
}

bool sl_sums_count(const struct sl_gguf *g, uint64_t *pieces)
{
    uint64_t n = 0, piece_bytes;
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        if (!sl_add_ok(n, sl_sums_pieces(sl_gguf_tensor(g, i), &piece_bytes), &n)) return false;
    }
    *pieces = n;
    return true;
}

/* Bytes of the file from the list of model files to its end. */
static bool tail_bytes(uint64_t n_files, uint64_t pieces, uint64_t *out)
{
    uint64_t words;
    return sl_mul_ok(n_files, SL_SUMS_FILE_WORDS, &words) && sl_add_ok(words, pieces, &words) &&
           sl_add_ok(words, 1, &words) && sl_mul_ok(words, sizeof(uint64_t), out);
}

/* Bytes of the one block that holds an open sums file. */
static bool block_bytes(const struct sl_gguf *g, uint64_t pieces, uint64_t *out)
{
    uint64_t fixed = sizeof(struct sl_sums) + (uint64_t)sl_gguf_n_tensors(g) * sizeof(uint64_t);
    return tail_bytes(sl_gguf_n_files(g), pieces, out) && sl_add_ok(*out, fixed, out);
}

uint64_t sl_sums_bytes(const struct sl_gguf *g)
{
    uint64_t pieces, bytes;
    if (!sl_sums_count(g, &pieces) || !block_bytes(g, pieces, &bytes) ||
        !sl_add_ok(bytes, SL_BLOCK_OVERHEAD_BYTES, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* ---- what it belongs to ------------------------------------------------------------------------
 */

uint64_t sl_sums_model(const struct sl_gguf *g)
{
    struct sl_xxh3_stream s;
    sl_xxh3_begin(&s);
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        unsigned char fixed[52];
        unsigned char length[4];
        sl_sums_put(length, t->name.n, 4);
        sl_sums_put(fixed, t->type, 4);
        sl_sums_put(fixed + 4, t->n_dims, 4);
        for (uint32_t d = 0; d < 4; d++) sl_sums_put(fixed + 8 + 8 * d, t->dims[d], 8);
        sl_sums_put(fixed + 40, t->shard, 4);
        sl_sums_put(fixed + 44, t->offset, 8);
        sl_xxh3_add(&s, length, sizeof length);
        sl_xxh3_add(&s, t->name.p, t->name.n);
        sl_xxh3_add(&s, fixed, sizeof fixed);
    }
    return sl_xxh3_end(&s);
}

void sl_sums_head(const struct sl_gguf *g, uint64_t pieces, unsigned char out[SL_SUMS_HEAD_BYTES])
{
    memcpy(out, magic, sizeof magic);
    sl_sums_put(out + 8, SL_SUMS_VERSION, 4);
    sl_sums_put(out + 12, sl_gguf_n_files(g), 4);
    sl_sums_put(out + 16, sl_gguf_n_tensors(g), 4);
    sl_sums_put(out + 20, 0, 4);
    sl_sums_put(out + 24, pieces, 8);
    sl_sums_put(out + 32, sl_sums_model(g), 8);
}

char *sl_sums_path(const struct sl_gguf *g, struct sl_budget *b)
{
    const char *model = sl_file_path(sl_gguf_file(g, 0));
    size_t n = strlen(model);
    char *path = sl_alloc(b, n + sizeof SUFFIX, 1);
    if (path != NULL) snprintf(path, n + sizeof SUFFIX, "%s" SUFFIX, model);
    return path;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static const char *show(const struct sl_file *f, char *text)
{
    const char *path = sl_file_path(f);
    return sl_str_show((struct sl_str){path, strlen(path)}, text, SL_SUMS_SHOW_MAX);
}

static sluice_err fail_changed(const struct sl_file *f, const char *what, sluice_error *e)
{
    char text[SL_SUMS_SHOW_MAX];
    return sl_fail(e, SLUICE_E_CHANGED,
                   "'%s' belongs to another model or to another version of this one (%s); delete "
                   "it or " AGAIN,
                   show(f, text), what);
}

/* Checks the head against the file's own length, then against the model. */
static sluice_err check_head(struct sl_file *f, const unsigned char *head, uint64_t pieces,
                             const struct sl_gguf *g, sluice_error *e)
{
    char text[SL_SUMS_SHOW_MAX];
    uint64_t bytes = sl_file_bytes(f), wanted;
    uint64_t n_files = sl_sums_take(head + 12, 4);
    if (memcmp(head, magic, sizeof magic) != 0)
        return sl_fail(e, SLUICE_E_FORMAT, "'%s' is no sums file; delete it or " AGAIN,
                       show(f, text));
    if (sl_sums_take(head + 8, 4) != SL_SUMS_VERSION)
        return sl_fail(e, SLUICE_E_VERSION,
                       "'%s' is of version %" PRIu64 ", this build reads version %u; " AGAIN,
                       show(f, text), sl_sums_take(head + 8, 4), SL_SUMS_VERSION);
    if (!tail_bytes(n_files, sl_sums_take(head + 24, 8), &wanted) ||
        !sl_add_ok(wanted, SL_SUMS_HEAD_BYTES, &wanted) || bytes > wanted)
        return sl_fail(e, SLUICE_E_FORMAT,
                       "'%s' is damaged: it has %" PRIu64 " bytes, but speaks of %" PRIu64
                       " sums; " AGAIN,
                       show(f, text), bytes, sl_sums_take(head + 24, 8));
    if (bytes < wanted)
        return sl_fail(e, SLUICE_E_TRUNCATED,
                       "'%s' ends too early: %" PRIu64 " bytes wanted, %" PRIu64 " found; " AGAIN,
                       show(f, text), wanted, bytes);
    if (n_files != sl_gguf_n_files(g)) return fail_changed(f, "number of files", e);
    if (sl_sums_take(head + 16, 4) != sl_gguf_n_tensors(g))
        return fail_changed(f, "number of tensors", e);
    if (sl_sums_take(head + 24, 8) != pieces) return fail_changed(f, "number of pieces", e);
    return SLUICE_OK;
}

/* An empty one of the right size. */
static sluice_err create(const struct sl_gguf *g, uint64_t pieces, struct sl_budget *b,
                         sluice_error *e, struct sl_sums **out)
{
    void *block = NULL;
    uint64_t bytes, capacity = 0, piece_bytes, first = 0;
    if (!block_bytes(g, pieces, &bytes)) bytes = UINT64_MAX;
    sluice_err err = sl_grow(b, &block, &capacity, bytes, 1);
    if (err != SLUICE_OK)
        return sl_fail(e, err, "no memory for a sums file of %" PRIu64 " bytes", bytes);
    struct sl_sums *s = block;
    s->n_tensors = sl_gguf_n_tensors(g);
    s->n_files = sl_gguf_n_files(g);
    s->pieces = pieces;
    s->first = (uint64_t *)(void *)(s + 1);
    s->files = s->first + s->n_tensors;
    s->sums = s->files + (uint64_t)s->n_files * SL_SUMS_FILE_WORDS;
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        s->first[i] = first;
        first += sl_sums_pieces(sl_gguf_tensor(g, i), &piece_bytes);
    }
    *out = s;
    return SLUICE_OK;
}

/* Reads what follows the head, and checks it. */
static sluice_err fill(struct sl_sums *s, struct sl_file *f, const unsigned char *head,
                       sluice_error *e)
{
    char text[SL_SUMS_SHOW_MAX];
    struct sl_xxh3_stream stream;
    uint64_t words = (uint64_t)s->n_files * SL_SUMS_FILE_WORDS + s->pieces;
    sluice_err err =
        sl_file_read_at(f, SL_SUMS_HEAD_BYTES, s->files, (words + 1) * sizeof(uint64_t), e);
    if (err != SLUICE_OK) return err;
    sl_xxh3_begin(&stream);
    sl_xxh3_add(&stream, head, SL_SUMS_HEAD_BYTES);
    sl_xxh3_add(&stream, s->files, words * sizeof(uint64_t));
    for (uint64_t i = 0; i <= words; i++)
        s->files[i] = sl_sums_take((const unsigned char *)&s->files[i], 8);
    if (sl_xxh3_end(&stream) != s->files[words])
        return sl_fail(e, SLUICE_E_FORMAT,
                       "'%s' is damaged: it does not match its own checksum; " AGAIN,
                       show(f, text));
    if (sl_sums_take(head + 20, 4) != 0)
        return sl_fail(e, SLUICE_E_FORMAT, "'%s' has a reserved field in use; " AGAIN,
                       show(f, text));
    return SLUICE_OK;
}

static sluice_err check_model(const struct sl_sums *s, const struct sl_file *f,
                              const unsigned char *head, const struct sl_gguf *g, sluice_error *e)
{
    for (uint32_t i = 0; i < s->n_files; i++) {
        if (sl_sums_file(s, i).bytes != sl_file_bytes(sl_gguf_file(g, i)))
            return fail_changed(f, "size of a file", e);
    }
    if (sl_sums_take(head + 32, 8) != sl_sums_model(g)) return fail_changed(f, "tensors", e);
    return SLUICE_OK;
}

sluice_err sl_sums_read(struct sl_file *f, const struct sl_gguf *g, struct sl_budget *b,
                        sluice_error *e, struct sl_sums **out)
{
    unsigned char head[SL_SUMS_HEAD_BYTES];
    char text[SL_SUMS_SHOW_MAX];
    struct sl_sums *s = NULL;
    uint64_t pieces;
    *out = NULL;
    if (sl_file_bytes(f) < sizeof head)
        return sl_fail(e, SLUICE_E_TRUNCATED,
                       "'%s' has %" PRIu64 " bytes, too few for a sums file; " AGAIN, show(f, text),
                       sl_file_bytes(f));
    if (!sl_sums_count(g, &pieces))
        return sl_fail(e, SLUICE_E_LIMIT, "the model has too many pieces for sums");
    sluice_err err = sl_file_read_at(f, 0, head, sizeof head, e);
    if (err == SLUICE_OK) err = check_head(f, head, pieces, g, e);
    if (err == SLUICE_OK) err = create(g, pieces, b, e, &s);
    if (err == SLUICE_OK) err = fill(s, f, head, e);
    if (err == SLUICE_OK) err = check_model(s, f, head, g, e);
    if (err != SLUICE_OK) {
        sl_sums_close(s);
        return err;
    }
    *out = s;
    return SLUICE_OK;
}

sluice_err sl_sums_open(const struct sl_gguf *g, struct sl_budget *b, sluice_error *e,
                        struct sl_sums **out)
{
    struct sl_file *f = NULL;
    sluice_error own;
    SLUICE_ASSERT(g != NULL && out != NULL);
    *out = NULL;
    if (sl_gguf_has_records(g)) return SLUICE_OK; /* a container has its own */
    if (sl_gguf_is_grafted(g)) return SLUICE_OK;  /* no sums file is of two models */
    char *path = sl_sums_path(g, b);
    if (path == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the name of a sums file");
    sluice_err err = sl_file_open(path, b, &own, &f);
    sl_free(path);
    if (err == SLUICE_E_NOT_FOUND) return SLUICE_OK;
    if (err != SLUICE_OK) {
        if (e != NULL) *e = own;
        return err;
    }
    err = sl_sums_read(f, g, b, e, out);
    sl_file_drop_cache(f, 0, 0);
    sl_file_close(f);
    if (err == SLUICE_OK) err = sl_sums_check_headers(g, *out, b, e);
    if (err != SLUICE_OK) {
        sl_sums_close(*out);
        *out = NULL;
    }
    return err;
}

void sl_sums_close(struct sl_sums *s) { sl_free(s); }

uint64_t sl_sums_get(const struct sl_sums *s, uint32_t tensor, uint64_t piece)
{
    SLUICE_ASSERT(tensor < s->n_tensors);
    uint64_t end = tensor + 1 < s->n_tensors ? s->first[tensor + 1] : s->pieces;
    SLUICE_ASSERT(piece < end - s->first[tensor]);
    return s->sums[s->first[tensor] + piece];
}

struct sl_sums_file sl_sums_file(const struct sl_sums *s, uint32_t shard)
{
    SLUICE_ASSERT(shard < s->n_files);
    const uint64_t *w = s->files + (uint64_t)shard * SL_SUMS_FILE_WORDS;
    return (struct sl_sums_file){w[0], w[1], w[2]};
}
