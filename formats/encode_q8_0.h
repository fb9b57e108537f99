/* Floats to plain GGUF types: Q8_0, half precision, bfloat16. For packing, where a weight is to
 * stay at 8 or 16 bits.
 *
 * Bytes are those of the reference quantizer (ggml, as in the Python package gguf): Q8_0 blocks of
 * 32 with d = max|x| / 127 stored as half, codes x / d rounded half away from zero, computed as x *
 * (1 / d). Scalar, the same bytes on every machine. Thread: pure. */
#ifndef SL_ENCODE_Q8_0_H
#define SL_ENCODE_Q8_0_H

#include "base/base.h"

/* n elements, a multiple of 32, to n / 32 * 34 bytes of any alignment. Returns false where an x is
 * not finite or a scale too large for half precision (|x| above 8.3 million): dst is unspecified
 * then. */
SL_MUST_CHECK bool sl_encode_q8_0(const float *x, uint64_t n, void *dst);

/* n elements to 2 n bytes of any alignment, rounded to nearest even. Returns false where the result
 * is not finite: an x is not, or too large for the type. All elements are converted all the same.
 */
SL_MUST_CHECK bool sl_encode_f16(const float *x, uint64_t n, void *dst);
SL_MUST_CHECK bool sl_encode_bf16(const float *x, uint64_t n, void *dst);

#endif
