/* What the files of the source share; nobody else includes this, tests excepted.
 *
 *   source.c         open, look-ups, the checksum
 *   source_parts.c   the file's tensors taken apart into those of a container, and put in order
 *   source_gguf.c    reading from GGUF files and containers
 *   source_checks.c  what these are compared with
 *   source_hf.c      reading from Hugging Face folders
 *   source_place.c   where a row lies, for messages */
#ifndef SL_SOURCE_INTERNAL_H
#define SL_SOURCE_INTERNAL_H

#include <stdatomic.h>

#include "formats/hf_model.h"
#include "formats/name_index.h"
#include "formats/records.h"
#include "formats/sums.h"
#include "pack/source.h"

#define SL_SRC_SHOW_MAX 80 /* bytes of a name in a message */

/* A tensor as the file has it, stacks of experts in one piece. */
struct sl_src_base {
    struct sl_str name;
    uint32_t type;
    bool whole; /* its bytes are those of type, matrix after matrix */
    uint32_t n_dims;
    uint64_t dims[4];
};

/* Where a tensor of the source lies: rows of a base tensor, counted through all its matrices. */
struct sl_src_origin {
    uint32_t base;
    uint64_t first_row;
};

struct sl_source {
    struct sl_budget *budget;
    char *path;           /* as it was opened */
    struct sl_gguf *gguf; /* of a folder: its metadata, no tensors */
    struct sl_hf *hf;     /* NULL: no folder */
    struct sl_source_tensor *tensors;
    struct sl_src_origin *origins; /* [n_tensors] */
    uint32_t n_tensors;
    struct sl_gg_index index; /* of tensors, by name */
    struct sl_arena names;
    /* Pieces that have been compared with their checksums; NULL: there are none. */
    _Atomic uint8_t *checked;
    const struct sl_container_record *records; /* of a container: the pieces */
    struct sl_sums *sums;                      /* of a GGUF with a sums file */
    uint64_t *first_piece;                     /* of each tensor of the GGUF */
};

/* Fills tensors, origins and the index from the base tensors. */
SL_MUST_CHECK sluice_err sl_src_take_apart(struct sl_source *s, sluice_error *e);

/* Finds the checksums of a GGUF or a container, if it has some. SLUICE_E_CORRUPT and others of
 * sums.h: a sums file that cannot be used. */
SL_MUST_CHECK sluice_err sl_src_open_checks(struct sl_source *s, sluice_error *e);
void sl_src_close_checks(struct sl_source *s);
/* Compares the pieces that bytes of a base tensor lie in, unless that was done. */
SL_MUST_CHECK sluice_err sl_src_check(const struct sl_source *s, uint32_t base, uint64_t offset,
                                      uint64_t bytes, sluice_error *e);

uint32_t sl_src_n_bases(const struct sl_source *s);
void sl_src_base(const struct sl_source *s, uint32_t base, struct sl_src_base *out);

/* Bytes of rows rows of cols elements; false: no whole blocks, no such type, or too large. */
bool sl_src_measure(uint32_t type, uint64_t rows, uint64_t cols, uint64_t *bytes);

/* Rows and bytes of a tensor, as in source.h. */
SL_MUST_CHECK sluice_err sl_src_gguf_rows(const struct sl_source *s, struct sl_source_span rows,
                                          void *stage, float *out, sluice_error *e);
SL_MUST_CHECK sluice_err sl_src_gguf_bytes(const struct sl_source *s, uint32_t index,
                                           uint64_t offset, uint64_t n, void *dst, sluice_error *e);
SL_MUST_CHECK sluice_err sl_src_hf_rows(const struct sl_source *s, struct sl_source_span rows,
                                        float *out, sluice_error *e);
SL_MUST_CHECK sluice_err sl_src_hf_bytes(const struct sl_source *s, uint32_t index, uint64_t offset,
                                         uint64_t n, void *dst, sluice_error *e);

void sl_src_gguf_base(const struct sl_source *s, uint32_t base, struct sl_src_base *out);
void sl_src_hf_base(const struct sl_source *s, uint32_t base, struct sl_src_base *out);

#endif
