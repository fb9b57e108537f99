/* Rounding, range and scale of floats, for the kernels that make codes. */
#ifndef SL_ROUND_SCALAR_H
#define SL_ROUND_SCALAR_H

#include <float.h>
#include <math.h>

#include "base/base.h"
#include "formats/half.h"

/* The nearest integer, ties to even; |v| < 2^22. Adding 1.5 * 2^23 pushes the fraction out of the
 * mantissa, rounding it on the way; what is left of the bits is the integer. */
static inline int32_t round_even(float v)
{
    const float magic = 12582912.0f;
    return (int32_t)(sl_f32_bits(v + magic) - sl_f32_bits(magic));
}

static inline int32_t clamp_int(int32_t v, int32_t limit)
{
    return v > limit ? limit : v < -limit ? -limit : v;
}

/* The largest magnitude; false where an x is not finite. */
static inline bool max_abs(const float *x, uint32_t n, float *max)
{
    *max = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (!(a <= FLT_MAX)) return false;
        *max = a > *max ? a : *max;
    }
    return true;
}

/* The scale that brings max to limit, and its reciprocal; both 0 where the reciprocal would not be
 * finite. */
static inline float scale_of(float max, float limit, float *inverse)
{
    float d = max / limit;
    *inverse = 1.0f / d;
    if (*inverse <= FLT_MAX) return d;
    *inverse = 0.0f;
    return 0.0f;
}

#endif
