/* Matrix times vectors for weights in blocks of 32, for ARM with dot products of bytes (SDOT). The
 * body is shared: matmul_q32_neon.h. */
#ifndef __ARM_FEATURE_DOTPROD
#error "compile with -march=armv8.2-a+dotprod"
#endif

#include "engine/kernels/matmul_q32_neon.h"
