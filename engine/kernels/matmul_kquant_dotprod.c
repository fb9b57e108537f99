/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS), for ARM with dot
 * products of bytes (SDOT). The body is shared: matmul_kquant_neon.h. */
#ifndef __ARM_FEATURE_DOTPROD
#error "compile with -march=armv8.2-a+dotprod"
#endif

#include "engine/kernels/matmul_kquant_neon.h"
