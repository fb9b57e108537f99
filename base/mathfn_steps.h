/* e^x in float as a list of steps, for the scalar function and for every vector version of it.
 *
 * A vector version does the same operations in the same order in each lane, with these constants;
 * each is one correctly rounded IEEE operation (add, multiply, fused multiply-add, compare, select,
 * integer shift), so the lanes are bit-equal to the scalar. In lanes:
 *
 *   t  = fma(x, LOG2E, MAGIC)        low bits of t: n = x / ln 2, nearest integer, ties to even
 *   n  = t - MAGIC                   n as a float
 *   k  = bits(t) - bits(MAGIC)       n as a 32-bit integer, wrapping
 *   r  = fma(-n, LN2_HI, x)          exact: n * LN2_HI has at most 21 fractional bits
 *   r  = fma(-n, LN2_LO, r)          |r| <= ln 2 / 2, and a little
 *   p  = C6; then p = fma(p, r, c) with c = C5, C4, C3, C2, 1, 1
 *   k1 = k >> 1 (arithmetic), k2 = k - k1
 *   y  = (p * pow2(k1)) * pow2(k2)   pow2(k) = the float with bits (k + 127) << 23
 *   y  = +inf where x >= EXP_HI, 0 where x < EXP_LO; a NaN x stays NaN by itself
 *
 * The power of two comes in two factors because 2^128 is no float although results up to FLT_MAX
 * are. Outside [EXP_LO, EXP_HI) the steps give garbage, without trapping, which the two selections
 * replace. The polynomial interpolates (e^r - 1 - r) / r^2 at five Chebyshev points of
 * [-0.3468, 0.3468]; with its coefficients rounded to float it is off by at most 1.1e-8, relative.
 */
#ifndef SL_MATHFN_STEPS_H
#define SL_MATHFN_STEPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SL_EXPF_LOG2E 0x1.715476p+0f
#define SL_EXPF_MAGIC 0x1.8p+23f
#define SL_EXPF_MAGIC_BITS 0x4B400000u
#define SL_EXPF_LN2_HI 0x1.62e43p-1f
#define SL_EXPF_LN2_LO (-0x1.05c61p-29f)
#define SL_EXPF_C2 0x1p-1f
#define SL_EXPF_C3 0x1.5554dcp-3f
#define SL_EXPF_C4 0x1.55551ap-5f
#define SL_EXPF_C5 0x1.120ba2p-7f
#define SL_EXPF_C6 0x1.6d113cp-10f
#define SL_EXPF_HI 88.73f            /* from here on +inf; overflow by itself begins at 88.7229 */
#define SL_EXPF_LO (-0x1.5d589ep+6f) /* -87.336540; below it 0: the result would be denormal */

static inline float sl_expf_pow2(int32_t k)
{
    uint32_t bits = ((uint32_t)k + 127u) << 23;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline float sl_expf_steps(float x)
{
    float t = fmaf(x, SL_EXPF_LOG2E, SL_EXPF_MAGIC);
    float n = t - SL_EXPF_MAGIC;
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    int32_t k = (int32_t)(bits - SL_EXPF_MAGIC_BITS);
    float r = fmaf(-n, SL_EXPF_LN2_HI, x);
    r = fmaf(-n, SL_EXPF_LN2_LO, r);
    float p = SL_EXPF_C6;
    p = fmaf(p, r, SL_EXPF_C5);
    p = fmaf(p, r, SL_EXPF_C4);
    p = fmaf(p, r, SL_EXPF_C3);
    p = fmaf(p, r, SL_EXPF_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int32_t k1 = k >> 1;
    int32_t k2 = (int32_t)((uint32_t)k - (uint32_t)k1);
    float y = p * sl_expf_pow2(k1) * sl_expf_pow2(k2);
    if (x >= SL_EXPF_HI) y = INFINITY;
    if (x < SL_EXPF_LO) y = 0.0f;
    return y;
}

#endif
