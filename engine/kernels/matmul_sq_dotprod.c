/* Matrix times vectors for the container's own weight types, for ARM with dot products of bytes
 * (SDOT). The body is shared: matmul_sq_neon.h. */
#ifndef __ARM_FEATURE_DOTPROD
#error "compile with -march=armv8.2-a+dotprod"
#endif

#include "engine/kernels/matmul_sq_neon.h"
