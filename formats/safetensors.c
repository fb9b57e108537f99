/* Opening and closing of models in safetensors, the table of tensors, and what belongs together:
 * eight-bit floats and the scales of their blocks. */
#include "formats/safetensors_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAMES_CHUNK_BYTES 4096
#define SCALE_SUFFIX "_scale_inv"

/* ---- files ----------------------------------------------------------------------------------- */

sluice_err sl_st_add_file(struct sl_st *st, const char *path, sluice_error *e)
{
    sluice_err err;

    if (st->n_files == SL_ST_FILES_MAX)
        return sl_st_fail(st->path, e, SLUICE_E_LIMIT, "the model has more than %d files",
                          SL_ST_FILES_MAX);
    err = sl_grow(st->budget, &st->files, &st->files_capacity, st->n_files + 1, sizeof *st->files);
    if (err != SLUICE_OK) return sl_st_fail(path, e, err, "no memory to open one more file");
    err = sl_file_open(path, st->budget, e, &st->files[st->n_files]);
    if (err == SLUICE_OK) st->n_files++;
    return err;
}

/* ---- quantized already ----------------------------------------------------------------------- */

struct scheme {
    const char *suffix;
    const char *name;
};

/* What only a quantized checkpoint has. */
static const struct scheme schemes[] = {
    {".qweight", "GPTQ or AWQ"},
    {".qzeros", "GPTQ or AWQ"},
    {".weight_packed", "compressed-tensors"},
    {".weight.absmax", "bitsandbytes"},
    {".SCB", "bitsandbytes"},
    {".weight_scale_2", "NVFP4"},
    {"_blocks", "MXFP4"},
};

static bool is_small_integer(enum sl_st_dtype dtype)
{
    return dtype == SL_ST_I8 || dtype == SL_ST_U8 || dtype == SL_ST_I16 || dtype == SL_ST_U16 ||
           dtype == SL_ST_I32 || dtype == SL_ST_U32;
}

/* The scheme of the checkpoint that t is a sign of, or NULL. 64-bit integers are positions and
 * counters, which checkpoints carry beside their weights. */
static const char *scheme_of(const struct sl_st_tensor *t)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(schemes); i++) {
        bool sure = schemes[i].suffix[0] == '.' || t->dtype == SL_ST_U8;

        if (sure && sl_str_ends(t->name, schemes[i].suffix)) return schemes[i].name;
    }
    if (is_small_integer(t->dtype) && (t->n_dims >= 2 || sl_str_ends(t->name, ".weight")))
        return "packed integers";
    if (t->dtype == SL_ST_F8_E5M2) return "F8_E5M2";
    return NULL;
}

static sluice_err refuse(const struct sl_st *st, const struct sl_st_tensor *t, const char *scheme,
                         sluice_error *e)
{
    char name[SL_GG_SHOW_MAX];

    return sl_st_fail(sl_file_path(st->files[t->file]), e, SLUICE_E_UNSUPPORTED,
                      "the checkpoint is quantized already (%s; tensor '%s' is %s); give the "
                      "original one, in F32, F16, BF16, or F8_E4M3 with block scales",
                      scheme, sl_str_show(t->name, name, sizeof name), sl_st_dtype_name(t->dtype));
}

/* ---- scales of blocks ------------------------------------------------------------------------ */

static uint64_t blocks_of(uint64_t n, uint64_t block) { return n / block + (n % block != 0); }

/* NAME_scale_inv, or SL_ST_NONE. */
static uint32_t find_scale(const struct sl_st *st, struct sl_str name)
{
    char scale[SL_NAME_MAX + sizeof SCALE_SUFFIX];

    memcpy(scale, name.p, name.n);
    memcpy(scale + name.n, SCALE_SUFFIX, sizeof SCALE_SUFFIX - 1);
    return sl_gg_index_find(&st->index, st->tensors, sizeof *st->tensors,
                            (struct sl_str){scale, name.n + sizeof SCALE_SUFFIX - 1});
}

static sluice_err pair_scale(struct sl_st *st, struct sl_st_tensor *t, sluice_error *e)
{
    uint32_t at = find_scale(st, t->name);
    const struct sl_st_tensor *s = at != SL_ST_NONE ? &st->tensors[at] : NULL;
    char name[SL_GG_SHOW_MAX];

    if (s == NULL) return refuse(st, t, "F8_E4M3 without the tensor " SCALE_SUFFIX, e);
    uint64_t rows = blocks_of(t->rows, st->block.rows), cols = blocks_of(t->cols, st->block.cols);
    /* A block of a stack of matrices ends with its matrix. */
    bool whole = t->n_dims == 2 || (t->n_dims > 2 && t->dims[t->n_dims - 2] % st->block.rows == 0);
    if (!whole || s->n_dims != t->n_dims || s->rows != rows || s->cols != cols ||
        s->dtype == SL_ST_F8_E4M3 || !sl_st_readable(s))
        return sl_st_fail(sl_file_path(st->files[s->file]), e, SLUICE_E_UNSUPPORTED,
                          "tensor '%s' is %" PRIu64 " x %" PRIu64 " of %s; scales of blocks of "
                          "%" PRIu32 " x %" PRIu32 " were wanted, %" PRIu64 " x %" PRIu64
                          " of F32 or BF16",
                          sl_str_show(s->name, name, sizeof name), s->rows, s->cols,
                          sl_st_dtype_name(s->dtype), st->block.rows, st->block.cols, rows, cols);
    t->scale = at;
    return SLUICE_OK;
}

/* ---- all files together ---------------------------------------------------------------------- */

static sluice_err build_index(struct sl_st *st, sluice_error *e)
{
    char name[SL_GG_SHOW_MAX];
    uint32_t bad = 0;
    sluice_err err = sl_gg_index_build(&st->index, st->budget, st->tensors, st->n_tensors,
                                       sizeof *st->tensors, &bad);

    if (err == SLUICE_OK) return err;
    if (err == SLUICE_E_NOMEM)
        return sl_gg_no_memory(st->budget, 8 * (uint64_t)st->n_tensors, st->path, e);
    if (bad == st->n_tensors)
        return sl_st_fail(st->path, e, err, "the names of tensors were made to collide");
    return sl_st_fail(sl_file_path(st->files[st->tensors[bad].file]), e, err,
                      "tensor '%s' is there twice, in this file and another",
                      sl_str_show(st->tensors[bad].name, name, sizeof name));
}

sluice_err sl_st_settle(struct sl_st *st, sluice_error *e)
{
    sluice_err err = build_index(st, e);

    if (err == SLUICE_OK && st->n_tensors == 0)
        err = sl_st_fail(st->path, e, SLUICE_E_FORMAT, "holds no tensors");
    for (uint32_t i = 0; err == SLUICE_OK && i < st->n_tensors; i++) {
        struct sl_st_tensor *t = &st->tensors[i];
        const char *scheme = scheme_of(t);

        if (scheme != NULL)
            err = refuse(st, t, scheme, e);
        else if (t->dtype == SL_ST_F8_E4M3)
            err = pair_scale(st, t, e);
    }
    return err;
}

/* ---- the handle ------------------------------------------------------------------------------ */

sluice_err sl_st_create(const char *path, const struct sl_st_block *block, struct sl_budget *b,
                        sluice_error *e, struct sl_st **out)
{
    size_t n = strlen(path);
    struct sl_st *st = sl_alloc(b, 1, sizeof *st);

    if (st == NULL) return sl_gg_no_memory(b, sizeof *st, path, e);
    st->budget = b;
    st->block =
        block != NULL ? *block : (struct sl_st_block){SL_ST_BLOCK_DEFAULT, SL_ST_BLOCK_DEFAULT};
    sl_arena_init(&st->names, b, NAMES_CHUNK_BYTES);
    st->path = sl_alloc(b, n + 1, 1);
    if (st->path == NULL) {
        sl_st_close(st);
        return sl_gg_no_memory(b, n + 1, path, e);
    }
    memcpy(st->path, path, n);
    *out = st;
    return SLUICE_OK;
}

sluice_err sl_st_open(const char *path, const struct sl_st_block *block, struct sl_budget *b,
                      sluice_error *e, struct sl_st **out)
{
    struct sl_st *st = NULL;
    sluice_err err;

    SLUICE_ASSERT(path != NULL && b != NULL && out != NULL);
    SLUICE_ASSERT(block == NULL || (block->rows > 0 && block->cols > 0));
    *out = NULL;
    err = sl_st_create(path, block, b, e, &st);
    if (err != SLUICE_OK) return err;
    err = sl_st_read_path(st, path, e);
    if (err == SLUICE_OK) err = sl_st_settle(st, e);
    if (err != SLUICE_OK) {
        sl_st_close(st);
        return err;
    }
    *out = st;
    return SLUICE_OK;
}

void sl_st_close(struct sl_st *st)
{
    if (st == NULL) return;
    sl_gg_index_deinit(&st->index);
    sl_free(st->tensors);
    sl_arena_deinit(&st->names);
    for (uint32_t i = 0; i < st->n_files; i++) sl_file_close(st->files[i]);
    sl_free(st->files);
    sl_free(st->path);
    sl_free(st);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

uint32_t sl_st_n_files(const struct sl_st *st) { return st->n_files; }

struct sl_file *sl_st_file(const struct sl_st *st, uint32_t file)
{
    SLUICE_ASSERT(file < st->n_files);
    return st->files[file];
}

uint32_t sl_st_n_tensors(const struct sl_st *st) { return st->n_tensors; }

const struct sl_st_tensor *sl_st_tensor(const struct sl_st *st, uint32_t index)
{
    SLUICE_ASSERT(index < st->n_tensors);
    return &st->tensors[index];
}

const struct sl_st_tensor *sl_st_find(const struct sl_st *st, struct sl_str name)
{
    uint32_t at = sl_gg_index_find(&st->index, st->tensors, sizeof *st->tensors, name);

    return at != UINT32_MAX ? &st->tensors[at] : NULL;
}
