/* The weights of a model as packing and comparing see them: one matrix at a time, read as rows of
 * floats or as the file's own bytes, whatever holds the model: a GGUF (single or split), a
 * container, or a Hugging Face folder.
 *
 * Tensors bear the names, and have the shapes, that a container gives them: every part of an expert
 * is a tensor of its own (blk.3.ffn_gate.7.weight), also where the file stacks experts or fuses
 * gate and up; everything else is as in a GGUF. They come in a container's order: resident ones in
 * the order of the files, then experts by layer, expert, and gate, up, down.
 *
 * What has checksums (a container, a GGUF with a sums file beside it) is compared with them before
 * anything of it is handed out.
 *
 * Errors: those of gguf.h, sums.h, container.h and hf_model.h; of reading, with tensor, file and
 * offset.
 * Thread: open and close on one thread; reads from many threads. */
#ifndef SL_SOURCE_H
#define SL_SOURCE_H

#include "base/mem.h"
#include "formats/gguf.h"

struct sl_source;

struct sl_source_tensor {
    struct sl_str name;    /* the source's */
    uint32_t type;         /* enum sl_type or enum sl_sq_type: what the bytes are, and where rows
                              only can be read (whole false), which type holds them exactly */
    bool whole;            /* sl_source_bytes works: the file has the bytes as a container would */
    uint32_t n_dims;       /* 1..4, as a container has them */
    uint64_t dims[4];      /* columns, rows, ...; unused ones are 1 */
    uint64_t rows, cols;   /* dims[1] * dims[2] * dims[3], dims[0] */
    uint64_t bytes;        /* in that type */
    int32_t layer, expert; /* whose part it is; -1, -1: resident (also with a layer in its name) */
    uint32_t part;         /* of an expert: 0 gate, 1 up, 2 down */
};

/* path: a file (any part of a split model) or a folder. Models whose experts have biases, or parts
 * of another kind than gate, up and down, are SLUICE_E_UNSUPPORTED, which names the tensor. */
SL_MUST_CHECK sluice_err sl_source_open(const char *path, struct sl_budget *b, sluice_error *e,
                                        struct sl_source **out);
void sl_source_close(struct sl_source *s); /* NULL is fine */

/* Metadata, as a container wants it (of a folder: made from its files). The source's. */
const struct sl_gguf *sl_source_meta(const struct sl_source *s);
/* "GGUF", "container", "safetensors". */
const char *sl_source_kind(const struct sl_source *s);
/* Bytes of all files. */
uint64_t sl_source_file_bytes(const struct sl_source *s);
/* A checksum that tells versions of the source apart: metadata, tensors, sizes of the files, and
 * samples of every tensor. Independent of path, time and machine. */
SL_MUST_CHECK sluice_err sl_source_sum(struct sl_source *s, sluice_error *e, uint64_t *sum);

/* Tensors of a folder that are no part of the model as it is run, kind by kind. False: there is no
 * such kind; else what, "vision tower", how many, and their bytes in the files. */
struct sl_source_left_out {
    const char *what;
    uint32_t n;
    uint64_t bytes;
};
bool sl_source_left_out(const struct sl_source *s, uint32_t kind, struct sl_source_left_out *out);

/* The path of a file of weights that is not what it was when it was opened, by its size, time, or
 * place; NULL: there is none. The source's. */
const char *sl_source_changed(const struct sl_source *s);
/* Whether path, under whatever name, is one of the files that weights are read from. */
bool sl_source_is_file(const struct sl_source *s, const char *path);

uint32_t sl_source_n_tensors(const struct sl_source *s);
const struct sl_source_tensor *sl_source_tensor(const struct sl_source *s, uint32_t index);
/* UINT32_MAX: there is none. */
uint32_t sl_source_find(const struct sl_source *s, struct sl_str name);

/* Rows first .. first + n - 1 of a tensor. */
struct sl_source_span {
    uint32_t index;
    uint64_t first, n;
};

/* The rows as floats, out[n * cols]. stage: room for the file's bytes of n rows,
 * sl_source_stage_bytes; any alignment. Values are what the type's decoder gives, exactly. */
uint64_t sl_source_stage_bytes(const struct sl_source_tensor *t, uint64_t n);
SL_MUST_CHECK sluice_err sl_source_rows(const struct sl_source *s, struct sl_source_span rows,
                                        void *stage, float *out, sluice_error *e);
/* Bytes offset .. offset + n - 1 of the tensor, where it is whole. */
SL_MUST_CHECK sluice_err sl_source_bytes(const struct sl_source *s, uint32_t index, uint64_t offset,
                                         uint64_t n, void *dst, sluice_error *e);

/* The file that holds a row, and where the row begins in it, or where rows are interleaved the band
 * of eight that it is in. False: a folder, whose files hold other rows. path is the source's. */
struct sl_source_place {
    const char *path;
    uint64_t offset;
};
bool sl_source_place(const struct sl_source *s, uint32_t index, uint64_t row,
                     struct sl_source_place *out);

/* The file that a row is read from; of a folder, the folder. The source's. */
const char *sl_source_path(const struct sl_source *s, uint32_t index, uint64_t row);

/* Gives back the page cache that reading has filled: call it now and then. */
void sl_source_drop_cache(const struct sl_source *s);

#endif
