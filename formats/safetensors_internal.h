/* What the files of the safetensors reader share; nobody else includes this, tests of the reader
 * excepted.
 *
 *   safetensors.c         open, close, look-ups, what belongs together across files
 *   safetensors_folder.c  which files a path stands for; the index
 *   safetensors_header.c  one file's header: its JSON, its tensors and their extents
 *   safetensors_rows.c    element types; rows as floats */
#ifndef SL_SAFETENSORS_INTERNAL_H
#define SL_SAFETENSORS_INTERNAL_H

#include "formats/gguf_internal.h"
#include "formats/json_in.h"
#include "formats/safetensors.h"

#define SL_ST_FILES_MAX 1024         /* of one model */
#define SL_ST_TENSORS_MAX (1u << 20) /* of one model, scales included */
#define SL_ST_INDEX_MAX (64u << 20)  /* bytes of an index */
#define SL_ST_FILE_NAME_MAX 255

struct sl_st {
    struct sl_budget *budget;
    char *path; /* as given */
    struct sl_st_block block;
    struct sl_file **files;
    uint64_t files_capacity;
    uint32_t n_files;
    struct sl_st_tensor *tensors;
    uint64_t tensors_capacity;
    uint32_t n_tensors;
    struct sl_gg_index index; /* of tensors */
    struct sl_arena names;
};

/* Bits of an element. */
uint32_t sl_st_dtype_bits(enum sl_st_dtype dtype);
/* False: no such type. */
bool sl_st_dtype_find(struct sl_str name, enum sl_st_dtype *out);

/* Opens path as the next file of st; its header is not read yet. */
SL_MUST_CHECK sluice_err sl_st_add_file(struct sl_st *st, const char *path, sluice_error *e);
/* Reads and checks the header of that file, and appends its tensors in the order of their data. */
SL_MUST_CHECK sluice_err sl_st_read_header(struct sl_st *st, uint32_t file, sluice_error *e);
/* The same for a header's JSON of bytes, which is changed, of a file with data_bytes of data from
 * data_offset on. For fuzzing; path is what messages say. */
struct sl_st_header {
    const char *path;
    char *text;
    uint64_t bytes;
    uint64_t data_offset, data_bytes;
    uint32_t file;
};
SL_MUST_CHECK sluice_err sl_st_parse_header(struct sl_st *st, const struct sl_st_header *h,
                                            sluice_error *e);

/* Finds the files that path stands for, and reads them all. */
SL_MUST_CHECK sluice_err sl_st_read_path(struct sl_st *st, const char *path, sluice_error *e);

/* "<path>: <sentence>". Returns code. */
sluice_err sl_st_fail(const char *path, sluice_error *e, sluice_err code, const char *fmt, ...)
    SL_PRINTF(4, 5);

/* Makes the look-up table, pairs eight-bit floats with their scales, and refuses what is quantized
 * in another way. */
SL_MUST_CHECK sluice_err sl_st_settle(struct sl_st *st, sluice_error *e);
sluice_err sl_st_create(const char *path, const struct sl_st_block *block, struct sl_budget *b,
                        sluice_error *e, struct sl_st **out);

#endif
