/* Matrix times vectors for the container's own weight types, for every ARM of 64 bits: products of
 * bytes are added up in 16 bits. The body is shared: matmul_sq_neon.h. */
#include "engine/kernels/matmul_sq_neon.h"
