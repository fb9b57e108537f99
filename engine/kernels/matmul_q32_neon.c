/* Matrix times vectors for weights in blocks of 32, for every ARM of 64 bits: products of bytes
 * are added up in 16 bits. The body is shared: matmul_q32_neon.h. */
#include "engine/kernels/matmul_q32_neon.h"
