/* The checksummed ranges that a container consists of. What is read from one is read in whole
 * records and compared; other model files have none, and are read as they are.
 * Thread: pure. */
#ifndef SL_RECORDS_H
#define SL_RECORDS_H

#include "formats/gguf.h"

struct sl_container_record {
    uint64_t offset, bytes; /* whole multiples of 16 KiB; padding included */
    uint64_t sum;           /* XXH3-64 of these bytes */
    uint32_t part;          /* which file */
    int32_t layer, expert;  /* -1, -1: resident weights, at most SL_SHEET_BYTES */
};

#define SL_SHEET_BYTES 65536u

/* The record that holds a byte of a file, or NULL: headers and the index of a container are in
 * none, and other files have none. */
const struct sl_container_record *sl_gguf_record(const struct sl_gguf *g, uint32_t file,
                                                 uint64_t offset);

/* All of them, in the order of the files: *n of them. */
const struct sl_container_record *sl_gguf_records(const struct sl_gguf *g, uint64_t *n);

/* Whether the model is a container, at least in part. */
bool sl_gguf_has_records(const struct sl_gguf *g);

/* How a container's weights were made, as whoever packed them wrote it (NUL-terminated), and the
 * checksum of what they were made from. Empty and 0 of other files. */
struct sl_str sl_gguf_recipe(const struct sl_gguf *g);
uint64_t sl_gguf_source(const struct sl_gguf *g);

/* A range of resident weights, widened to whole records, at most by a sheet at either end; it stays
 * as it is where there are none. */
struct sl_range {
    uint64_t offset, bytes;
};
struct sl_range sl_gguf_widen(const struct sl_gguf *g, uint32_t file, struct sl_range r);

/* Compares what was read of a widened range with the checksums. SLUICE_E_CORRUPT names file,
 * offset, and layer and expert if they are known. */
SL_MUST_CHECK sluice_err sl_gguf_check(const struct sl_gguf *g, uint32_t file, struct sl_range r,
                                       const void *data, sluice_error *e);

/* Fills e for a record whose bytes have another sum. Returns SLUICE_E_CORRUPT. */
sluice_err sl_record_damaged(const struct sl_container_record *r, const char *path,
                             sluice_error *e);

#endif
