/* What the files of the container share; nobody else includes this, tests excepted.
 *
 *   container_header.c   the header of a part, and the names of parts
 *   container_index.c    the index: from what it holds to MessagePack, and back with every check
 *   container_meta.c     GGUF metadata in MessagePack, both ways
 *   container.c          opening, look-ups
 *   container_verify.c   reading everything
 *   container_unfinished.c  what packing has not finished
 *   container_layout.c   where everything comes to lie
 *   container_journal.c  what an interrupted packing had finished
 *   container_write.c    writing
 *
 * docs/FORMAT.md is the format. */
#ifndef SL_CONTAINER_INTERNAL_H
#define SL_CONTAINER_INTERNAL_H

#include "base/limits.h"
#include "formats/container.h"
#include "formats/gguf_internal.h"
#include "formats/msgpack_io.h"

#define SL_CN_VERSION 1u
#define SL_CN_ALIGN 16384u        /* bytes; records, segments and the index begin on multiples */
#define SL_CN_HEADER_BYTES 16384u /* of each part */
#define SL_CN_SHEET_BYTES SL_SHEET_BYTES /* of resident weights; the last may be shorter */
#define SL_CN_TENSOR_ALIGN 64u           /* bytes; tensors begin on multiples */
#define SL_CN_PARTS_MAX SL_GGUF_SHARDS_MAX
#define SL_CN_INDEX_MAX ((uint64_t)256 << 20) /* bytes of an index */
#define SL_CN_RECORDS_MAX (1u << 24)          /* records of a container: 1 TiB of sheets */
#define SL_CN_RECIPE_MAX (1u << 20)           /* bytes of a recipe */

_Static_assert(SL_CN_SHEET_BYTES % SL_CN_ALIGN == 0, "sheets end where records may begin");
_Static_assert(SL_CN_HEADER_BYTES % SL_CN_ALIGN == 0, "what follows the header is aligned");

/* ---- headers (container_header.c) ------------------------------------------------------------ */

struct sl_cn_header {
    uint32_t version;
    uint32_t n_parts, part;
    uint64_t file_bytes;                /* of this part */
    uint64_t total_bytes;               /* of all parts */
    uint64_t index_offset, index_bytes; /* in the last part; without padding */
    uint64_t index_sum;                 /* of the index and its padding */
};

/* out: SL_CN_HEADER_BYTES. */
void sl_cn_header_encode(const struct sl_cn_header *h, unsigned char *out);
/* Checks everything that a header can be checked for by itself and against the size of its file. */
SL_MUST_CHECK sluice_err sl_cn_header_decode(const unsigned char *in, uint64_t file_bytes,
                                             const char *path, struct sl_cn_header *out,
                                             sluice_error *e);
bool sl_cn_has_magic(const unsigned char *in); /* 8 bytes */

/* NAME.sluice or, where there are several parts, NAME-00001-of-00003.sluice, and what suffix says
 * after it; to be freed with sl_free. NULL: no memory. */
char *sl_cn_part_path(const char *path, uint32_t part, uint32_t n_parts, const char *suffix,
                      struct sl_budget *b);
/* The name without the number of the part, if it has that of this part; NULL: no memory. */
char *sl_cn_whole_path(const char *path, uint32_t part, uint32_t n_parts, struct sl_budget *b);

/* "<path>: <sentence>". */
sluice_err sl_cn_fail(sluice_error *e, sluice_err code, const char *path, const char *fmt, ...)
    SL_PRINTF(4, 5);

/* ---- the index (container_index.c, container_meta.c) ----------------------------------------- */

/* Resident weights that lie together in one part, cut into sheets. */
struct sl_cn_segment {
    uint64_t offset, bytes; /* multiples of SL_CN_ALIGN */
    uint64_t first_record, n_records;
    uint32_t part;
};

struct sl_cn_index {
    struct sl_str recipe; /* in a block of its own */
    uint64_t source;
    struct sl_cn_segment *segments; /* one a part at most */
    uint64_t n_segments, segments_capacity;
    struct sl_container_record *records; /* the sheets of all segments, then the experts */
    uint64_t n_records, n_sheets, records_capacity;
};

/* Appends a segment with its sheets, whose sums are 0, or the record of an expert. */
SL_MUST_CHECK sluice_err sl_cn_add_segment(struct sl_cn_index *ix, struct sl_budget *b,
                                           uint32_t part, uint64_t offset, uint64_t bytes);
SL_MUST_CHECK sluice_err sl_cn_add_expert(struct sl_cn_index *ix, struct sl_budget *b,
                                          const struct sl_container_record *record);

/* tensors: in the order of their places. */
void sl_cn_index_encode(const struct sl_cn_index *ix, const struct sl_gg_meta *meta,
                        const struct sl_gguf_tensor *tensors, uint32_t n_tensors,
                        struct sl_mp_writer *w);

/* Where the parts end, for the checks of an index. */
struct sl_cn_extent {
    const char *path; /* for messages */
    uint32_t n_parts;
    uint64_t part_bytes[SL_CN_PARTS_MAX]; /* of the last: up to the index */
};

/* Fills ix, whose recipe is copied, and g: its tensors, their names, and its metadata, whose index
 * is not yet read. g must be empty; on failure both can be deinitialised. The bytes may go
 * afterwards. */
SL_MUST_CHECK sluice_err sl_cn_index_decode(const void *bytes, uint64_t n,
                                            const struct sl_cn_extent *x, struct sl_gguf *g,
                                            struct sl_cn_index *ix, sluice_error *e);
/* Frees segments, records and the recipe. */
void sl_cn_index_deinit(struct sl_cn_index *ix);

/* SLUICE_E_FORMAT: it has a value that no container may have. */
SL_MUST_CHECK sluice_err sl_cn_meta_check(const struct sl_gg_meta *meta, const char *path,
                                          sluice_error *e);
/* The metadata alone, without what says how a GGUF was split. */
void sl_cn_meta_encode(const struct sl_gg_meta *meta, struct sl_mp_writer *w);
/* Reads what sl_cn_meta_encode wrote. image NULL: only says in *bytes how long the image is. image:
 * the header of a GGUF with these keys and no tensors, *bytes long. */
void sl_cn_meta_decode(struct sl_mp_reader *r, unsigned char *image, uint64_t *bytes);

/* Whose part a tensor of this name is (blk.3.ffn_gate.7.weight); false: it is resident. */
bool sl_cn_expert_of(struct sl_str name, int32_t *layer, int32_t *expert);
/* A type of GGUF or of the container (sq.h). */
bool sl_cn_type_known(uint32_t type);
/* Fills row_bytes and bytes from type and dims; false: no such type, no whole blocks, too large. */
bool sl_cn_measure(struct sl_gguf_tensor *t);

/* ---- little-endian words --------------------------------------------------------------------- */

static inline void sl_cn_put(unsigned char *p, uint64_t v, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) p[i] = (unsigned char)(v >> 8 * i);
}

#endif
