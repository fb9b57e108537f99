/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS), for every ARM of 64
 * bits: products of bytes are added up in 16 bits. The body is shared: matmul_kquant_neon.h. */
#include "engine/kernels/matmul_kquant_neon.h"
