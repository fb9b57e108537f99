/* Opening a source, look-ups, and its checksum: see source.h. */
#include "pack/source.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/checksum.h"
#include "formats/sq.h"
#include "pack/source_internal.h"

#define NAMES_CHUNK_BYTES 4096
#define SAMPLE_BYTES 4096u
#define SAMPLE_EVERY_BYTES ((uint64_t)16 << 20)
#define SAMPLES_MAX 64

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static sluice_err open_folder(struct sl_source *s, const char *path, sluice_error *e)
{
    sluice_err err = sl_hf_open(path, s->budget, e, &s->hf);

    return err == SLUICE_OK ? sl_hf_metadata(s->hf, s->budget, e, &s->gguf) : err;
}

static sluice_err open_file(struct sl_source *s, const char *path, sluice_error *e)
{
    sluice_err err = sl_gguf_open(path, s->budget, e, &s->gguf);

    if (err == SLUICE_OK) err = sl_gguf_refuse_imatrix(s->gguf, e);
    return err == SLUICE_OK ? sl_src_open_checks(s, e) : err;
}

sluice_err sl_source_open(const char *path, struct sl_budget *b, sluice_error *e,
                          struct sl_source **out)
{
    SLUICE_ASSERT(path != NULL && b != NULL && out != NULL);
    *out = NULL;
    struct sl_source *s = sl_alloc(b, 1, sizeof *s);
    if (s == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory to open %s", path);
    s->budget = b;
    sl_arena_init(&s->names, b, NAMES_CHUNK_BYTES);
    s->path = sl_arena_alloc(&s->names, strlen(path) + 1, 1);
    if (s->path != NULL) memcpy(s->path, path, strlen(path) + 1);
    sluice_err err = s->path == NULL   ? sl_fail(e, SLUICE_E_NOMEM, "no memory to open %s", path)
                     : is_folder(path) ? open_folder(s, path, e)
                                       : open_file(s, path, e);
    if (err == SLUICE_OK) err = sl_src_take_apart(s, e);
    if (err != SLUICE_OK) {
        sl_source_close(s);
        return err;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_source_close(struct sl_source *s)
{
    if (s == NULL) return;
    sl_gg_index_deinit(&s->index);
    sl_free(s->tensors);
    sl_free(s->origins);
    sl_src_close_checks(s);
    sl_arena_deinit(&s->names);
    sl_gguf_close(s->gguf); /* of a folder: points into hf */
    sl_hf_close(s->hf);
    sl_free(s);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

const struct sl_gguf *sl_source_meta(const struct sl_source *s) { return s->gguf; }
uint32_t sl_source_n_tensors(const struct sl_source *s) { return s->n_tensors; }

const char *sl_source_kind(const struct sl_source *s)
{
    return s->hf != NULL ? "safetensors" : s->records != NULL ? "container" : "GGUF";
}

bool sl_source_left_out(const struct sl_source *s, uint32_t kind, struct sl_source_left_out *out)
{
    static const char *const names[SL_HF_EXTRAS] = {
        [SL_HF_VISION] = "vision tower",
        [SL_HF_PREDICTION] = "layers that predict more than one token",
    };

    if (s->hf == NULL || kind >= SL_HF_EXTRAS) return false;
    struct sl_hf_left_out left = sl_hf_left_out(s->hf, (enum sl_hf_extra)kind);
    *out = (struct sl_source_left_out){names[kind], left.n, left.bytes};
    return true;
}

const struct sl_source_tensor *sl_source_tensor(const struct sl_source *s, uint32_t index)
{
    SLUICE_ASSERT(index < s->n_tensors);
    return &s->tensors[index];
}

uint32_t sl_source_find(const struct sl_source *s, struct sl_str name)
{
    return sl_gg_index_find(&s->index, s->tensors, sizeof *s->tensors, name);
}

uint32_t sl_src_n_bases(const struct sl_source *s)
{
    return s->hf != NULL ? sl_hf_n_tensors(s->hf) : sl_gguf_n_tensors(s->gguf);
}

void sl_src_base(const struct sl_source *s, uint32_t base, struct sl_src_base *out)
{
    if (s->hf != NULL)
        sl_src_hf_base(s, base, out);
    else
        sl_src_gguf_base(s, base, out);
}

bool sl_src_measure(uint32_t type, uint64_t rows, uint64_t cols, uint64_t *bytes)
{
    uint64_t row_bytes = 0;

    if (sl_sq_info(type) != NULL) return sl_sq_matrix_bytes(type, rows, cols, bytes);
    return sl_type_row_bytes(type, cols, &row_bytes) && sl_mul_ok(rows, row_bytes, bytes);
}

/* ---- files ----------------------------------------------------------------------------------- */

static uint32_t n_files(const struct sl_source *s)
{
    return s->hf != NULL ? sl_st_n_files(sl_hf_weights(s->hf)) : sl_gguf_n_files(s->gguf);
}

static struct sl_file *file_at(const struct sl_source *s, uint32_t i)
{
    return s->hf != NULL ? sl_st_file(sl_hf_weights(s->hf), i) : sl_gguf_file(s->gguf, i);
}

uint64_t sl_source_file_bytes(const struct sl_source *s)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n_files(s); i++) sum += sl_file_bytes(file_at(s, i));
    return sum;
}

const char *sl_source_changed(const struct sl_source *s)
{
    for (uint32_t i = 0; i < n_files(s); i++)
        if (sl_file_check_unchanged(file_at(s, i), NULL) != SLUICE_OK)
            return sl_file_path(file_at(s, i));
    return NULL;
}

bool sl_source_is_file(const struct sl_source *s, const char *path)
{
    struct stat st, own;

    if (stat(path, &st) != 0) return false;
    for (uint32_t i = 0; i < n_files(s); i++)
        if (fstat(sl_file_fd(file_at(s, i)), &own) == 0 && own.st_dev == st.st_dev &&
            own.st_ino == st.st_ino)
            return true;
    return false;
}

void sl_source_drop_cache(const struct sl_source *s)
{
    for (uint32_t i = 0; i < n_files(s); i++) sl_file_drop_cache(file_at(s, i), 0, 0);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Says in e which tensor was being read. */
static sluice_err name_tensor(const struct sl_source *s, uint32_t index, sluice_err err,
                              sluice_error *e)
{
    const struct sl_source_tensor *t = &s->tensors[index];
    char name[SL_SRC_SHOW_MAX], text[SLUICE_ERROR_TEXT_MAX];

    if (err == SLUICE_OK || e == NULL) return err;
    memcpy(text, e->text, sizeof text);
    (void)!snprintf(e->text, sizeof e->text, "tensor '%s': %.*s",
                    sl_str_show(t->name, name, sizeof name),
                    SLUICE_ERROR_TEXT_MAX - SL_SRC_SHOW_MAX - 16, text);
    e->layer = t->layer;
    e->expert = t->expert;
    return err;
}

uint64_t sl_source_stage_bytes(const struct sl_source_tensor *t, uint64_t n)
{
    uint64_t row_bytes = t->bytes / t->rows, band_bytes = 0;

    if (!sl_sq_band_bytes(t->type, t->cols, &band_bytes)) return n * row_bytes;
    return (n + 2 * (SL_SQ_BAND_ROWS - 1)) / SL_SQ_BAND_ROWS * band_bytes;
}

sluice_err sl_source_rows(const struct sl_source *s, struct sl_source_span rows, void *stage,
                          float *out, sluice_error *e)
{
    const struct sl_source_tensor *t = sl_source_tensor(s, rows.index);

    SLUICE_ASSERT(rows.first <= t->rows && rows.n <= t->rows - rows.first);
    if (rows.n == 0) return SLUICE_OK;
    sluice_err err =
        s->hf != NULL ? sl_src_hf_rows(s, rows, out, e) : sl_src_gguf_rows(s, rows, stage, out, e);
    return name_tensor(s, rows.index, err, e);
}

sluice_err sl_source_bytes(const struct sl_source *s, uint32_t index, uint64_t offset, uint64_t n,
                           void *dst, sluice_error *e)
{
    const struct sl_source_tensor *t = sl_source_tensor(s, index);

    SLUICE_ASSERT(t->whole && offset <= t->bytes && n <= t->bytes - offset);
    if (n == 0) return SLUICE_OK;
    sluice_err err = s->hf != NULL ? sl_src_hf_bytes(s, index, offset, n, dst, e)
                                   : sl_src_gguf_bytes(s, index, offset, n, dst, e);
    return name_tensor(s, index, err, e);
}

/* ---- the checksum ---------------------------------------------------------------------------- */

static void add_u64(struct sl_xxh3_stream *sum, uint64_t v)
{
    unsigned char raw[8];

    for (uint32_t i = 0; i < 8; i++) raw[i] = (unsigned char)(v >> 8 * i);
    sl_xxh3_add(sum, raw, sizeof raw);
}

static void add_tensor(struct sl_xxh3_stream *sum, const struct sl_source_tensor *t)
{
    add_u64(sum, t->name.n);
    sl_xxh3_add(sum, t->name.p, t->name.n);
    add_u64(sum, t->type);
    for (uint32_t i = 0; i < 4; i++) add_u64(sum, t->dims[i]);
}

/* Pieces of a range at even distances, its ends among them. */
static sluice_err add_samples(struct sl_xxh3_stream *sum, struct sl_file *f, uint64_t offset,
                              uint64_t bytes, sluice_error *e)
{
    unsigned char piece[SAMPLE_BYTES];
    uint64_t n = sl_min_u64(2 + bytes / SAMPLE_EVERY_BYTES, SAMPLES_MAX);
    uint64_t size = sl_min_u64(bytes, SAMPLE_BYTES);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (bytes - size) / (n - 1) * i;
        sluice_err err =
            sl_file_read_at(f, offset + (i + 1 < n ? at : bytes - size), piece, size, e);

        if (err != SLUICE_OK) return err;
        sl_xxh3_add(sum, piece, size);
    }
    return SLUICE_OK;
}

static sluice_err add_weights(struct sl_source *s, struct sl_xxh3_stream *sum, sluice_error *e)
{
    const struct sl_st *st = s->hf != NULL ? sl_hf_weights(s->hf) : NULL;
    uint32_t n = st != NULL ? sl_st_n_tensors(st) : sl_gguf_n_tensors(s->gguf);
    sluice_err err = SLUICE_OK;

    for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) {
        if (st != NULL) {
            const struct sl_st_tensor *t = sl_st_tensor(st, i);
            err = add_samples(sum, sl_st_file(st, t->file), t->offset, t->bytes, e);
        } else {
            const struct sl_gguf_tensor *t = sl_gguf_tensor(s->gguf, i);
            err = add_samples(sum, sl_gguf_file(s->gguf, t->shard), t->offset, t->bytes, e);
        }
    }
    return err;
}

sluice_err sl_source_sum(struct sl_source *s, sluice_error *e, uint64_t *sum)
{
    struct sl_xxh3_stream stream;

    sl_xxh3_begin(&stream);
    add_u64(&stream, sl_gguf_header_sum(s->gguf));
    for (uint32_t i = 0; i < n_files(s); i++) add_u64(&stream, sl_file_bytes(file_at(s, i)));
    for (uint32_t i = 0; i < s->n_tensors; i++) add_tensor(&stream, &s->tensors[i]);
    sluice_err err = add_weights(s, &stream, e);
    *sum = sl_xxh3_end(&stream);
    sl_source_drop_cache(s);
    return err;
}
