/* What the files of the GGUF reader share; nobody else includes this, tests of the reader excepted.
 *
 *   gguf_cursor.c   bytes of the header, loaded in bounded steps; every read is checked here
 *   gguf_index.c    names to positions (name_index.h)
 *   gguf_header.c   magic, version, counts, metadata entries
 *   gguf_tensors.c  tensor entries, their geometry and their extents in the file
 *   gguf_split.c    the files of a split model
 *   gguf_meta.c     typed reads of metadata
 *   gguf_vocab.c    the vocabulary
 *   gguf_graft.c    a layer of one model in another
 *   gguf.c          open, close, tables
 *
 * A header is loaded into a region, which never moves; so names and values are plain pointers into
 * it from the moment they are parsed. Metadata is kept of the first file only; tensor names are
 * copied, so that the headers of the other files can go at once. */
#ifndef SL_GGUF_INTERNAL_H
#define SL_GGUF_INTERNAL_H

#include "base/limits.h"
#include "formats/gguf.h"
#include "formats/name_index.h"
#include "formats/records.h"

#define SL_GG_HEADER_MAX (512ull << 20) /* bytes of one file's header */
#define SL_GG_STEP_BYTES (1ull << 20)   /* first read; the amount loaded doubles from there */
#define SL_GG_ALIGN_DEFAULT 32          /* bytes, where general.alignment is absent */
#define SL_GG_SHOW_MAX 80               /* bytes of a name or a value in a message */
#define SL_GG_SHOW_PATH_MAX 224         /* bytes of a path in a message */

_Static_assert(SL_GG_HEADER_MAX <= UINT32_MAX, "counts of header items fit 32 bits");

/* ---- bytes (gguf_cursor.c) ------------------------------------------------------------------- */

struct sl_gg_cursor {
    struct sl_file *file;      /* NULL: all bytes were in memory from the start */
    struct sl_region region;   /* where a file's header is loaded; unused for memory */
    const unsigned char *base; /* byte 0 of the file */
    uint64_t loaded;           /* bytes that are there */
    uint64_t at;               /* next byte to read; at <= file_bytes */
    uint64_t file_bytes;       /* of the whole file */
    const char *path;          /* for messages; borrowed */
    const char *what;          /* what is being read, for messages: "the value of key" */
    struct sl_str name;        /* of which key or tensor; empty: of none */
    sluice_error *e;
};

/* Starts at byte 0 of f, or of memory. Nothing is read yet. */
SL_MUST_CHECK sluice_err sl_gg_cursor_init(struct sl_gg_cursor *c, struct sl_file *f,
                                           struct sl_budget *b, sluice_error *e);
void sl_gg_cursor_init_memory(struct sl_gg_cursor *c, const void *bytes, uint64_t n,
                              sluice_error *e);
void sl_gg_cursor_deinit(struct sl_gg_cursor *c);

/* Makes bytes readable from at on, or fails: SLUICE_E_TRUNCATED where the file ends first
 * (SLUICE_E_FORMAT where no header could be that long), SLUICE_E_LIMIT, SLUICE_E_IO,
 * SLUICE_E_BUDGET. at stays. */
SL_MUST_CHECK sluice_err sl_gg_need(struct sl_gg_cursor *c, uint64_t bytes);
/* The same for count items that take at least size bytes each; nothing is loaded. */
SL_MUST_CHECK sluice_err sl_gg_fits(struct sl_gg_cursor *c, uint64_t count, uint64_t size);
SL_MUST_CHECK sluice_err sl_gg_read_u32(struct sl_gg_cursor *c, uint32_t *out);
SL_MUST_CHECK sluice_err sl_gg_read_u64(struct sl_gg_cursor *c, uint64_t *out);
/* A length of 64 bits and that many bytes. */
SL_MUST_CHECK sluice_err sl_gg_read_str(struct sl_gg_cursor *c, struct sl_str *out);

/* Fills c->e with "<path>: <sentence>" and the present offset. Returns code. */
sluice_err sl_gg_fail(const struct sl_gg_cursor *c, sluice_err code, const char *fmt, ...)
    SL_PRINTF(3, 4);
/* A path as messages show it: printable, and cut at the front where it is long, since the end tells
 * more. buf holds SL_GG_SHOW_PATH_MAX bytes. */
const char *sl_gg_show_path(const char *path, char *buf);
/* After path failed to open with err: a better sentence where there is one (explain.c). Returns
 * err, or SLUICE_E_TRUNCATED for a container that is not finished. */
sluice_err sl_gg_explain(const char *path, sluice_err err, struct sl_budget *b, sluice_error *e);

/* After an allocation of bytes failed: SLUICE_E_BUDGET if that is why, else SLUICE_E_NOMEM. */
sluice_err sl_gg_no_memory(const struct sl_budget *b, uint64_t bytes, const char *path,
                           sluice_error *e);

static inline uint32_t sl_gg_load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t sl_gg_load_u64(const unsigned char *p)
{
    return sl_gg_load_u32(p) | (uint64_t)sl_gg_load_u32(p + 4) << 32;
}

/* ---- metadata -------------------------------------------------------------------------------- */

struct sl_gg_key {
    struct sl_str name;
    uint32_t kind;             /* enum sl_gguf_kind */
    uint32_t elem_kind;        /* of an array */
    uint64_t count;            /* elements of an array; bytes of a string; else 1 */
    const unsigned char *data; /* the value; of a string its characters, of an array its elements */
};

struct sl_gg_meta {
    const char *path; /* for messages; borrowed */
    struct sl_gg_key *keys;
    uint32_t n_keys;
    struct sl_gg_index index;
};

/* Bytes of a value of that kind; 0 for strings, arrays and unknown numbers. */
uint32_t sl_gg_kind_bytes(uint32_t kind);
const char *sl_gg_kind_name(uint32_t kind); /* "u32"; "unknown" */

const struct sl_gg_key *sl_gg_find_key(const struct sl_gg_meta *m, const char *key);

/* A whole number of any integer type. */
struct sl_gg_int {
    uint64_t magnitude;
    bool negative;
};

/* Element i of data, an array of kind, or false: kind is no integer. */
bool sl_gg_int_at(uint32_t kind, const unsigned char *data, uint64_t i, struct sl_gg_int *out);
/* The same for any number or bool, as double. False: kind is neither, or a bool not 0 or 1. */
bool sl_gg_number_at(uint32_t kind, const unsigned char *data, uint64_t i, double *out);

/* SLUICE_E_FORMAT: "<path>: key '<name>' is <found>, wanted <wanted>". */
sluice_err sl_gg_key_fail(const struct sl_gg_meta *m, const struct sl_gg_key *k, const char *wanted,
                          sluice_error *e);
SL_MUST_CHECK sluice_err sl_gg_meta_u32(const struct sl_gg_meta *m, const char *key, uint32_t *out,
                                        sluice_error *e);

/* ---- one file's header (gguf_header.c, gguf_tensors.c) --------------------------------------- */

struct sl_gg_head {
    struct sl_gg_cursor c;
    struct sl_gg_meta meta;
    uint32_t version;
    uint32_t n_tensors;
    uint32_t alignment;
    uint32_t split_no;
    uint32_t split_count;   /* 1: not split */
    uint32_t split_tensors; /* of all files together; UINT32_MAX: not said */
};

/* Reads everything before the tensor entries. h->c must be initialised; on failure h can be
 * deinitialised. */
SL_MUST_CHECK sluice_err sl_gg_head_read(struct sl_gg_head *h, struct sl_budget *b);
void sl_gg_head_deinit(struct sl_gg_head *h);

/* Reads the tensor entries that follow, checks them, and appends them to g as of this shard. */
SL_MUST_CHECK sluice_err sl_gg_tensors_read(struct sl_gguf *g, struct sl_gg_head *h,
                                            uint32_t shard);

/* Fills order with 0..n-1 so that t[order[i]] are in ascending order of offset. */
void sl_gg_sort_by_offset(uint32_t *order, uint32_t n, const struct sl_gguf_tensor *t);

/* Opens all files of the split model of which path is file no of count (counted from 0), and reads
 * them into g. */
SL_MUST_CHECK sluice_err sl_gg_split_open(struct sl_gguf *g, const char *path, uint32_t no,
                                          uint32_t count, sluice_error *e);

/* ---- the handle ------------------------------------------------------------------------------ */

/* What is made at the first request. */
struct sl_gg_made {
    struct sl_arena arena;
    bool has_vocab;
    struct sl_vocab vocab;
};

struct sl_gguf {
    struct sl_budget *budget;
    char *path;
    struct sl_file **files;
    uint32_t n_files;
    struct sl_gg_head head; /* of the first file */
    struct sl_gguf_tensor *tensors;
    uint32_t n_tensors;
    uint64_t tensors_capacity;
    struct sl_gg_index tensor_index;
    struct sl_arena names; /* of tensors */
    struct sl_gg_made *made;
    struct sl_container_record *records; /* [n_records] of a container, in the order of the files */
    uint64_t n_records;
    struct sl_str recipe; /* of a container, NUL-terminated, in a block of its own; else NULL */
    uint64_t source;      /* of a container */
    bool grafted;         /* a layer is another model's (gguf_graft.h) */
};

/* An empty handle. */
SL_MUST_CHECK sluice_err sl_gg_create(const char *path, struct sl_budget *b, sluice_error *e,
                                      struct sl_gguf **out);

/* Reads bytes as one whole file, which stays borrowed until close. sl_gguf_file gives NULL then.
 * For tests and fuzzing. */
SL_MUST_CHECK sluice_err sl_gg_open_memory(const void *bytes, uint64_t n, struct sl_budget *b,
                                           sluice_error *e, struct sl_gguf **out);

#endif
