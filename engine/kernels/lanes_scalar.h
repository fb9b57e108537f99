/* The striped float sums of kernels.h, in plain C: element i belongs to lane i mod 8, or, where a
 * float matrix is multiplied, i mod 32. */
#ifndef SL_LANES_SCALAR_H
#define SL_LANES_SCALAR_H

#include <math.h>
#include <stdint.h>

/* Adds a[i] * b[i] to the lanes; element 0 belongs to lane 0. */
static inline void lanes_fma(float lanes[8], const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) lanes[i % 8] = fmaf(a[i], b[i], lanes[i % 8]);
}

static inline float lanes_sum(const float l[8])
{
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

#define WIDE_LANES 32

/* The lanes become 16, then 8, then one sum. */
static inline float wide_lanes_sum(float l[WIDE_LANES])
{
    for (int n = WIDE_LANES / 2; n >= 8; n /= 2)
        for (int i = 0; i < n; i++) l[i] += l[i + n];
    return lanes_sum(l);
}

#endif
