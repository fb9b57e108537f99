/* Tensor element types, GGUF's and the container's own (sq.h): how many bytes they take, and the
 * meaning of the bits.
 *
 * A matrix of one of GGUF's types is row after row, each of whole blocks. The container's own types
 * interleave eight rows, so that bytes belong to a group of rows: the bytes of a row are then an
 * eighth of its group's, a matrix takes whole groups, and only at a row whose number is a multiple
 * of eight may it be cut. The functions below are right for both kinds.
 *
 * The decoders here are scalar and are the definition; each follows the block layout of the format.
 * Vector kernels live in engine/kernels and must agree with them.
 *
 * To add a weight type:
 *   1. Its number and name: here (SL_TYPE_COUNT grows with GGUF's highest) and in tensor_type.c,
 *      with its decoder in decode_*.c; one of the container's own in sq.h (SL_SQ_TYPES) and sq.c.
 *   2. A scalar kernel in engine/kernels/matmul_*_scalar.c, its line in kernels.def, then variants
 *      for instruction sets, which must give the same bits.
 *   3. Its bytes in tests/support/kernel_data.h and its values in test_tensor_type.c (own types:
 *      test_sq.c); test_kernels.c and 'sluice bench kernels' take it up from the tables.
 *   4. If packing may write it: the encoder and sl_can_encode (pack/encode_rows.c), its word in
 *      pack/recipe.c, and where the built-in rules or measuring choose it, plan.c and choose.c.
 *   5. In words: README.md ("What it runs"), CHANGELOG.md, docs/PACKING.md; one of the container's
 *      own to the byte in docs/FORMAT.md, and in tools/dev/read_container.py, written from it.
 *
 * Thread: pure. */
#ifndef SL_TENSOR_TYPE_H
#define SL_TENSOR_TYPE_H

#include "formats/sq.h"

/* Numbers of the GGUF specification; files carry them. Those of enum sl_sq_type follow at 256. */
enum sl_type {
    SL_TYPE_F32 = 0,
    SL_TYPE_F16 = 1,
    SL_TYPE_Q4_0 = 2,
    SL_TYPE_Q4_1 = 3,
    SL_TYPE_Q5_0 = 6,
    SL_TYPE_Q5_1 = 7,
    SL_TYPE_Q8_0 = 8,
    SL_TYPE_Q2_K = 10,
    SL_TYPE_Q3_K = 11,
    SL_TYPE_Q4_K = 12,
    SL_TYPE_Q5_K = 13,
    SL_TYPE_Q6_K = 14,
    SL_TYPE_IQ4_NL = 20,
    SL_TYPE_IQ4_XS = 23,
    SL_TYPE_BF16 = 30,
    SL_TYPE_MXFP4 = 39,
};
#define SL_TYPE_COUNT 40 /* one past the highest supported number of GGUF */

/* Tables with an entry for every type: the place of a supported type in them, and the type of a
 * place, supported or not. */
#define SL_TYPE_SLOTS (SL_TYPE_COUNT + SL_SQ_TYPES)
#define SL_TYPE_SLOT(type)                                                                         \
    ((uint32_t)(type) < SL_TYPE_COUNT ? (uint32_t)(type)                                           \
                                      : (uint32_t)(type)-SL_SQ_FIRST + SL_TYPE_COUNT)
static inline uint32_t sl_type_of_slot(uint32_t slot)
{
    return slot < SL_TYPE_COUNT ? slot : slot - SL_TYPE_COUNT + SL_SQ_FIRST;
}

struct sl_type_info {
    const char *name;     /* "Q4_K"; NULL in an unused entry */
    uint32_t block_cols;  /* elements of a block; rows are whole blocks */
    uint32_t block_bytes; /* 0 where rows are interleaved */
    uint32_t row_group;   /* rows that are interleaved: 1, of the container's own types 8 */
    /* Decodes n elements, a multiple of block_cols, from src (any alignment) to dst. NULL where
     * rows are interleaved: sl_type_decode_rows. */
    void (*decode)(const void *src, float *dst, uint64_t n);
};

/* NULL for a type this build does not compute with. */
const struct sl_type_info *sl_type_info(uint32_t type);

/* Whether a GGUF file may hold it; false for the container's own types, and for unknown ones. */
bool sl_type_in_gguf(uint32_t type);

/* The name of any type number that GGUF or the container defines, supported or not ("IQ2_XXS"), or
 * NULL; for messages. */
const char *sl_type_name(uint32_t type);

/* The types that a GGUF may hold, "F32, F16, Q4_0, ...", for messages. */
const char *sl_type_supported_list(void);

/* Rows that can only be addressed together; 1 also for an unknown type. */
uint32_t sl_type_row_group(uint32_t type);

/* Bytes of a row of cols elements, or an eighth of those of eight interleaved ones; row r, where it
 * is the first of its group, begins r times as many after the start of the matrix. False where cols
 * is no multiple of the block or the product overflows. */
bool sl_type_row_bytes(uint32_t type, uint64_t cols, uint64_t *bytes);

/* Bytes of a matrix, the last group of rows whole. False also where rows is 0. */
bool sl_type_matrix_bytes(uint32_t type, uint64_t rows, uint64_t cols, uint64_t *bytes);

/* Rows first .. first + n - 1 of a matrix as floats, out[n * cols]. type is supported, matrix its
 * first byte (any alignment), cols whole blocks. */
void sl_type_decode_rows(uint32_t type, const void *matrix, uint32_t cols, uint64_t first,
                         uint64_t n, float *out);

#endif
