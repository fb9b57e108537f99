/* Tensor element types as GGUF numbers them: block geometry and the meaning of the bits.
 *
 * The decoders here are scalar and are the definition; each follows the block layout of the GGUF
 * format. Vector kernels live in engine/kernels and must agree with them. Thread: pure. */
#ifndef SL_TENSOR_TYPE_H
#define SL_TENSOR_TYPE_H

#include "base/base.h"

/* Numbers of the GGUF specification; files carry them. */
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
#define SL_TYPE_COUNT 40 /* table size: one past the highest supported number */

struct sl_type_info {
    const char *name;    /* "Q4_K"; NULL in an unused entry */
    uint32_t block_cols; /* elements of a block; rows are whole blocks */
    uint32_t block_bytes;
    /* Decodes n elements, a multiple of block_cols, from src (any alignment) to dst. */
    void (*decode)(const void *src, float *dst, uint64_t n);
};

/* NULL for a type this build does not compute with. */
const struct sl_type_info *sl_type_info(uint32_t type);

/* The name of any type number that GGUF defines, supported or not ("IQ2_XXS"), or NULL; for
 * messages. */
const char *sl_type_name(uint32_t type);

/* "F32, F16, Q4_0, ..." for messages. */
const char *sl_type_supported_list(void);

/* Bytes of a row of cols elements; false where cols is no multiple of the block or the product
 * overflows. */
bool sl_type_row_bytes(uint32_t type, uint64_t cols, uint64_t *bytes);

#endif
