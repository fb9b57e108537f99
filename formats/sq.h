/* The container's own weight types: 2 to 6 bits a weight, a scale byte for every 16 or 32.
 *
 * A weight is d * m * (level - offset): d is a bfloat16 of its row, the group's scale byte gives
 * m in +-1..16 and one of eight offsets, and a code chooses one of 4 to 64 levels in 0..63,
 * unevenly spaced but where they are all of them. The offset slides the levels over the group's
 * range, and a negative m mirrors them. Eight rows are interleaved (a band), so that a vector
 * register holds four columns of each. The decoders here are scalar and are the definition
 * (docs/FORMAT.md, "Weight types"); vector kernels give the same integers. sq_encode.c finds the
 * codes. Thread: pure. */
#ifndef SL_SQ_H
#define SL_SQ_H

#include "base/base.h"

/* Bits a weight _ columns of a group. Containers carry these numbers; GGUF's are all smaller. */
enum sl_sq_type {
    SL_SQ2_32 = 256,
    SL_SQ2_16 = 257,
    SL_SQ3_32 = 258,
    SL_SQ3_16 = 259,
    SL_SQ4_32 = 260,
    SL_SQ4_16 = 261,
    SL_SQ5_32 = 262,
    SL_SQ6_32 = 263,
};
#define SL_SQ_FIRST 256u
#define SL_SQ_TYPES 8u
#define SL_SQ_BAND_ROWS 8        /* rows that are interleaved */
#define SL_SQ_ROW_SCALE_BYTES 16 /* a band begins with eight bfloat16 */
#define SL_SQ_UNIT_COLS 32       /* columns of a unit; a row is whole units */
#define SL_SQ_SCALE_MAX 16       /* largest |m| */
#define SL_SQ_OFFSETS 8

struct sl_sq_info {
    const char *name; /* "SQ3_32" */
    uint32_t bits;
    uint32_t group_cols;
    uint32_t unit_bytes;   /* of 8 rows x 32 columns: codes, then scale bytes */
    uint8_t offset_base;   /* offset j is offset_base + j * offset_step; */
    uint8_t offset_step;   /* the base is one of the levels, so a zero is exact */
    const uint8_t *levels; /* [1 << bits], ascending, 0 to 63 */
};

/* NULL for a number that is none of these types. */
const struct sl_sq_info *sl_sq_info(uint32_t type);

/* Bytes of a band: 8 row scales, then a unit for every 32 columns; always a multiple of 8, so that
 * an eighth can be called the bytes of a row. False where cols is 0, no multiple of 32, or above
 * SL_COLS_MAX. */
bool sl_sq_band_bytes(uint32_t type, uint64_t cols, uint64_t *bytes);

/* Bytes of a matrix: its bands, the last one whole whatever the number of rows. False also where
 * rows is 0 or above SL_ROWS_MAX. */
bool sl_sq_matrix_bytes(uint32_t type, uint64_t rows, uint64_t cols, uint64_t *bytes);

/* The integers of a unit: weight = d * m[c / 16] * v[c] in each row. */
struct sl_sq_row {
    int8_t m[SL_SQ_UNIT_COLS / 16]; /* -16..16, never 0; both the same where groups have 32 */
    int8_t v[SL_SQ_UNIT_COLS];      /* level - offset, -47..37 */
};
struct sl_sq_unit {
    struct sl_sq_row row[SL_SQ_BAND_ROWS];
};

/* unit: unit_bytes, any alignment and any content. */
void sl_sq_unpack(const struct sl_sq_info *info, const uint8_t *unit, struct sl_sq_unit *out);

/* One row of a band (row < 8) as floats; the product is exact, rounded once where it is subnormal.
 * A row scale that is not finite, which the encoder never writes, gives what it gives. */
void sl_sq_decode_row(const struct sl_sq_info *info, const uint8_t *band, uint32_t row,
                      uint32_t cols, float *dst);

/* ---- encoder (sq_encode.c) ------------------------------------------------------------------ */

/* Up to eight rows to encode. */
struct sl_sq_source {
    const float *x;       /* rows of cols elements */
    uint64_t x_stride;    /* elements from row to row */
    uint32_t rows;        /* 1..8; the rest of the band decodes as zeros */
    uint32_t cols;        /* as in sl_sq_band_bytes */
    const float *weights; /* [cols] what an error in a column costs (the second moment of its
                             activations); NULL: all the same. To each, a thousandth of their mean
                             is added, so that columns never seen are not spoilt. */
};

/* Sums over what was encoded; the encoder adds to them. */
struct sl_sq_error {
    double weighted, weighted_all; /* weight * error^2, weight * x^2 */
    double plain, plain_all;       /* error^2, x^2 */
};

/* Writes the band of src. The same bytes on every machine. Returns false, with the band
 * unspecified and err untouched, where an x or a weight is not finite or a weight is negative. */
SL_MUST_CHECK bool sl_sq_encode_band(const struct sl_sq_info *info, const struct sl_sq_source *src,
                                     uint8_t *band, struct sl_sq_error *err);

/* Puts code (below 1 << bits) into a unit whose codes were zeroed; row < 8, col < 32. */
void sl_sq_put_code(const struct sl_sq_info *info, uint8_t *unit, uint32_t row, uint32_t col,
                    uint32_t code);

#endif
