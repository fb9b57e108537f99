/* GGUF files, versions 2 and 3, little-endian, single or split. All untrusted input of the format
 * dies here: what this module hands out has been checked against the bytes that are there.
 *
 * Opening reads headers only (in bounded steps, never by a length the file claims without the bytes
 * to back it), checks every tensor's extent against its file, and finds the sibling files of a
 * split model from any one of them (split.no, split.count, split.tensors.count and the
 * -00001-of-00003 name pattern; what is missing is listed by name).
 *
 * Errors carry one sentence: file, what was found, what was wanted, what to do. SLUICE_E_FORMAT
 * broken file, SLUICE_E_VERSION version 1 or unknown or big-endian (named as such),
 * SLUICE_E_UNSUPPORTED a tensor type (names type and tensor), SLUICE_E_TRUNCATED file shorter than
 * its tensors ("file is X bytes, needs Y: download incomplete"), SLUICE_E_LIMIT,
 * SLUICE_E_NOT_FOUND, SLUICE_E_IO, SLUICE_E_NOMEM, SLUICE_E_BUDGET.
 * Source: the GGUF specification (ggml, docs/gguf.md).
 * Thread: one thread per handle to open, close, drop and for the first sl_gguf_vocab; look-ups are
 * pure. */
#ifndef SL_GGUF_H
#define SL_GGUF_H

#include "base/mem.h"
#include "formats/tensor_type.h"
#include "formats/vocab.h"
#include "io/file.h"

struct sl_gguf;

/* One tensor. dims[0] is the number of columns (contiguous), dims[1] rows, dims[2] matrices; unused
 * ones are 1. */
struct sl_gguf_tensor {
    struct sl_str name; /* borrowed from the sl_gguf */
    uint32_t type;      /* enum sl_type, supported */
    uint32_t n_dims;    /* 1..4 */
    uint64_t dims[4];   /* each >= 1 */
    uint64_t row_bytes; /* bytes of one row of dims[0] elements */
    uint64_t bytes;     /* of the whole tensor */
    uint32_t shard;     /* index for sl_gguf_file */
    uint64_t offset;    /* bytes, absolute in that file */
};

/* Metadata value types of the format. */
enum sl_gguf_kind {
    SL_GGUF_U8,
    SL_GGUF_I8,
    SL_GGUF_U16,
    SL_GGUF_I16,
    SL_GGUF_U32,
    SL_GGUF_I32,
    SL_GGUF_F32,
    SL_GGUF_BOOL,
    SL_GGUF_STRING,
    SL_GGUF_ARRAY,
    SL_GGUF_U64,
    SL_GGUF_I64,
    SL_GGUF_F64,
};

/* path may name any shard. A duplicate key or tensor name is an error. A container (container.h) is
 * opened too, and looks like a GGUF of as many files as it has parts. */
SL_MUST_CHECK sluice_err sl_gguf_open(const char *path, struct sl_budget *b, sluice_error *e,
                                      struct sl_gguf **out);
void sl_gguf_close(struct sl_gguf *g);

const char *sl_gguf_path(const struct sl_gguf *g); /* as given to open */
uint32_t sl_gguf_version(const struct sl_gguf *g);
uint32_t sl_gguf_n_files(const struct sl_gguf *g);
struct sl_file *sl_gguf_file(const struct sl_gguf *g, uint32_t shard);

/* Tensors in file order, shard by shard. find is O(1) and returns NULL for a name that is not
 * there. */
uint32_t sl_gguf_n_tensors(const struct sl_gguf *g);
const struct sl_gguf_tensor *sl_gguf_tensor(const struct sl_gguf *g, uint32_t index);
const struct sl_gguf_tensor *sl_gguf_find_tensor(const struct sl_gguf *g, const char *name);

/* A checksum of everything that the header of the first file says; 0 once it was dropped. */
uint64_t sl_gguf_header_sum(const struct sl_gguf *g);

/* ---- metadata (of the first shard) ----------------------------------------------------------- */

uint32_t sl_gguf_n_keys(const struct sl_gguf *g);
struct sl_str sl_gguf_key(const struct sl_gguf *g, uint32_t index);
enum sl_gguf_kind sl_gguf_key_kind(const struct sl_gguf *g, uint32_t index);
/* A short printable form of the value ("8", "llama", "[151936 strings]") in buf. Returns buf. */
const char *sl_gguf_key_show(const struct sl_gguf *g, uint32_t index, char *buf, size_t size);
bool sl_gguf_has(const struct sl_gguf *g, const char *key);

/* Typed reads. *out is left alone where the key is absent and SLUICE_OK is returned (set the
 * default first); a present key of a wrong type or out of range is SLUICE_E_FORMAT that names key,
 * found and wanted. Integer reads take any integer type in range (signed or not; not bool, not
 * float); float reads take F32, F64 and integers, finite only; bool takes bool and 0/1 integers. */
SL_MUST_CHECK sluice_err sl_gguf_u32(const struct sl_gguf *g, const char *key, uint32_t *out,
                                     sluice_error *e);
SL_MUST_CHECK sluice_err sl_gguf_f32(const struct sl_gguf *g, const char *key, float *out,
                                     sluice_error *e);
SL_MUST_CHECK sluice_err sl_gguf_bool(const struct sl_gguf *g, const char *key, bool *out,
                                      sluice_error *e);
SL_MUST_CHECK sluice_err sl_gguf_str(const struct sl_gguf *g, const char *key, struct sl_str *out,
                                     sluice_error *e);

/* A value that may be one number for all layers or an array with one for each: fills out[0..n-1].
 * An array must have at least n entries (extra ones belong to layers past n and are ignored); bools
 * in it count as 0 and 1. Absent: out is left alone, SLUICE_OK. */
SL_MUST_CHECK sluice_err sl_gguf_u32_per_layer(const struct sl_gguf *g, const char *key, uint32_t n,
                                               uint32_t *out, sluice_error *e);

/* An array of integers, floats or bools as floats: fills up to max entries and says how many there
 * are in *count (0: absent). More than max is SLUICE_E_FORMAT. */
SL_MUST_CHECK sluice_err sl_gguf_f32_array(const struct sl_gguf *g, const char *key, uint32_t max,
                                           float *out, uint32_t *count, sluice_error *e);

/* The vocabulary, its element types and counts checked (scores and token types as many as tokens,
 * every id below the count; ids written as -1 or 4294967295 mean none, and a padding or separator
 * id past the end counts as none, since nothing uses it). Views live as long as g, or until
 * sl_gguf_drop_metadata. A file without tokenizer.ggml.tokens is SLUICE_E_FORMAT. */
SL_MUST_CHECK sluice_err sl_gguf_vocab(const struct sl_gguf *g, struct sl_vocab *out,
                                       sluice_error *e);

/* SLUICE_E_UNSUPPORTED for column statistics (general.type "imatrix"), which are no model. */
SL_MUST_CHECK sluice_err sl_gguf_refuse_imatrix(const struct sl_gguf *g, sluice_error *e);

/* Gives back what only loading needs, 10 to 30 MB where the vocabulary is large: metadata and
 * vocabulary. Afterwards no key is found, and strings that were handed out are gone; tensors (with
 * their names) and files stay. */
void sl_gguf_drop_metadata(struct sl_gguf *g);

#endif
