/* Weights in safetensors: a folder with model.safetensors, or with model.safetensors.index.json and
 * the files that it names; or any such file by itself. All untrusted input of the format dies here.
 *
 * Opening reads headers only. A header must fit its file and SL_ST_HEADER_MAX, and is believed only
 * where every tensor's extent is exactly what its shape and type need and the extents fill the data
 * area without overlap or gap. An index must name plain files of its own folder, each tensor once,
 * and agree with the files' headers in both directions. What a file is, is told by its extension
 * and this whole check, never by its first bytes.
 *
 * Dimensions stand in the file's order, the last one contiguous. As a matrix, a tensor has dims[n -
 * 1] columns and the product of the others as rows, so that a stack of experts is a tall matrix.
 *
 * A checkpoint that is quantized already (packed integers, scales of a kind this build does not
 * know) is refused by name of the scheme. Eight-bit floats (F8_E4M3) are read with the scales of
 * their blocks, which are the tensor NAME_scale_inv beside NAME.
 *
 * Errors: SLUICE_E_FORMAT, SLUICE_E_TRUNCATED (download incomplete), SLUICE_E_LIMIT,
 * SLUICE_E_NOT_FOUND, SLUICE_E_UNSUPPORTED, SLUICE_E_IO, SLUICE_E_NOMEM, SLUICE_E_BUDGET; each with
 * the file, what was found and what was wanted.
 * Source: the safetensors format description (huggingface/safetensors, README).
 * Thread: open and close on one thread; look-ups are pure, rows may be read from many threads. */
#ifndef SL_SAFETENSORS_H
#define SL_SAFETENSORS_H

#include "base/mem.h"
#include "io/file.h"

#define SL_ST_HEADER_MAX 100000000u /* bytes; the reference reader's limit too */
#define SL_ST_DIMS_MAX 8
#define SL_ST_BLOCK_DEFAULT 128 /* rows and columns of a block with one scale */
#define SL_ST_NONE UINT32_MAX

enum sl_st_dtype {
    SL_ST_F64,
    SL_ST_F32,
    SL_ST_F16,
    SL_ST_BF16,
    SL_ST_F8_E4M3,
    SL_ST_F8_E5M2,
    SL_ST_F8_E8M0,
    SL_ST_I64,
    SL_ST_I32,
    SL_ST_I16,
    SL_ST_I8,
    SL_ST_U64,
    SL_ST_U32,
    SL_ST_U16,
    SL_ST_U8,
    SL_ST_BOOL,
    SL_ST_DTYPES,
};

struct sl_st;

struct sl_st_tensor {
    struct sl_str name; /* borrowed from the sl_st */
    enum sl_st_dtype dtype;
    uint32_t n_dims; /* 0: one number */
    uint64_t dims[SL_ST_DIMS_MAX];
    uint64_t rows, cols; /* as a matrix; one row where n_dims is 0 or 1 */
    uint64_t bytes;
    uint64_t offset; /* absolute in the file */
    uint32_t file;   /* index for sl_st_file */
    uint32_t scale;  /* index of the tensor of block scales; SL_ST_NONE */
};

/* Rows and columns of a block of F8_E4M3 with one scale (config.json's weight_block_size). */
struct sl_st_block {
    uint32_t rows, cols;
};

/* path: a folder, an index or a file of weights. block NULL: SL_ST_BLOCK_DEFAULT both ways. */
SL_MUST_CHECK sluice_err sl_st_open(const char *path, const struct sl_st_block *block,
                                    struct sl_budget *b, sluice_error *e, struct sl_st **out);
void sl_st_close(struct sl_st *st); /* NULL is fine */

uint32_t sl_st_n_files(const struct sl_st *st);
struct sl_file *sl_st_file(const struct sl_st *st, uint32_t file);

/* Tensors file by file, in the order of their data. find is O(1); NULL for a name that is not
 * there. */
uint32_t sl_st_n_tensors(const struct sl_st *st);
const struct sl_st_tensor *sl_st_tensor(const struct sl_st *st, uint32_t index);
const struct sl_st_tensor *sl_st_find(const struct sl_st *st, struct sl_str name);

const char *sl_st_dtype_name(enum sl_st_dtype dtype); /* "BF16" */
/* Whether rows of such a tensor can be read: F32, F16, BF16, F8_E4M3. */
bool sl_st_readable(const struct sl_st_tensor *t);

/* Rows first .. first + n - 1 of t, one of st's tensors, as out[n * cols]: every value exactly, or,
 * with block scales, value times scale rounded to float. out serves as the buffer of the read; no
 * memory is taken. What is infinite or NaN in the file is so in out.
 *
 * Rows past the end are an assertion. Errors: SLUICE_E_UNSUPPORTED where t is not readable; those
 * of sl_file_read_at. */
SL_MUST_CHECK sluice_err sl_st_read_rows(const struct sl_st *st, const struct sl_st_tensor *t,
                                         uint64_t first, uint64_t n, float *out, sluice_error *e);

#endif
