/* Rows of floats to the bytes of a weight type, and what that costs. One place for all types that
 * packing writes; their encoders are in formats/. Thread: pure. */
#ifndef SL_ENCODE_ROWS_H
#define SL_ENCODE_ROWS_H

#include "base/base.h"
#include "formats/sq.h"

struct sl_rows {
    const float *x;       /* [n][cols] */
    uint64_t n;           /* of interleaved types the first row is the first of a band */
    uint64_t cols;        /* whole blocks of the type */
    const float *weights; /* [cols] what an error in a column costs; NULL: all the same */
};

enum sl_encode_outcome {
    SL_ENCODE_OK,
    SL_ENCODE_NOT_FINITE, /* a value is infinite or no number */
    SL_ENCODE_TOO_LARGE,  /* a value is too large for the type */
};

/* Whether rows can be written in that type at all. */
bool sl_can_encode(uint32_t type);

/* Writes the rows to out, sl_type_matrix_bytes(type, n, cols) of any alignment, and adds to err.
 * scratch: [cols]. Where the outcome is not OK, *bad is the row, and out and err are unspecified.
 */
SL_MUST_CHECK enum sl_encode_outcome sl_encode_rows(uint32_t type, const struct sl_rows *rows,
                                                    void *out, float *scratch,
                                                    struct sl_sq_error *err, uint64_t *bad);

/* Whether all values are finite; *bad: the first row that has another. */
bool sl_rows_finite(const struct sl_rows *rows, uint64_t *bad);

#endif
