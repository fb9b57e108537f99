/* Elementary functions with the same bits everywhere: see mathfn.h.
 *
 * All follow one pattern: reduce the argument with fused multiply-adds against a constant in two
 * parts, a Taylor polynomial on the small rest, scale or select. Series and bounds are textbook
 * (Muller et al., Handbook of Floating-Point Arithmetic); the coefficients are reciprocals of
 * factorials and of odd numbers, long enough that the remainder is below the rounding error. libm's
 * fma is correctly rounded, hence the same on every machine; nothing else of libm is used. */
#include "base/mathfn.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "base/mathfn_steps.h"

#define LOG2E 0x1.71547652b82fep+0
#define LN2_HI 0x1.62e42fefa39efp-1
#define LN2_LO 0x1.abc9e3b39803fp-56
#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define PI_2_HI 0x1.921fb54442d18p+0
#define PI_2_LO 0x1.1a62633145c07p-54
#define SQRT_HALF 0x1.6a09e667f3bcdp-1
#define MAGIC 0x1.8p+52 /* adding it leaves the nearest integer in the low bits */

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* c[n-1] x^(n-1) + .. + c[0], by Horner's rule. */
static double polynomial(const double *c, int n, double x)
{
    double p = c[n - 1];
    for (int i = n - 2; i >= 0; i--) p = fma(p, x, c[i]);
    return p;
}

float sl_expf(float x) { return sl_expf_steps(x); }

float sl_sigmoidf(float x) { return 1.0f / (1.0f + sl_expf_steps(-x)); }

/* 1 / k! for k = 0..13: the remainder on |r| <= 0.3466 is below 5e-18. */
double sl_exp(double x)
{
    static const double c[] = {1.0,
                               1.0,
                               1.0 / 2,
                               1.0 / 6,
                               1.0 / 24,
                               1.0 / 120,
                               1.0 / 720,
                               1.0 / 5040,
                               1.0 / 40320,
                               1.0 / 362880,
                               1.0 / 3628800,
                               1.0 / 39916800,
                               1.0 / 479001600,
                               1.0 / 6227020800};
    if (x > 709.0) return INFINITY; /* beyond the stated domain; kept harmless */
    if (x < -708.0) return 0.0;
    double t = fma(x, LOG2E, MAGIC);
    double n = t - MAGIC;
    double r = fma(-n, LN2_HI, x);
    r = fma(-n, LN2_LO, r);
    uint64_t k = bits_of(t) - bits_of(MAGIC);
    return polynomial(c, SL_ARRAY_LEN(c), r) * from_bits((k + 1023u) << 52);
}

/* x = 2^k m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh(s) = 2 s (1 + s^2/3 + s^4/5 + ..) with
 * s = (m - 1) / (m + 1), |s| <= 0.1716: after the term of s^22 the remainder is below 1e-19 of the
 * sum. */
double sl_ln(double x)
{
    static const double c[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                               1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    uint64_t bits = bits_of(x);
    int64_t k = (int64_t)(bits >> 52 & 0x7FF) - 1022;
    double m = from_bits((bits & 0x000FFFFFFFFFFFFFu) | (uint64_t)1022 << 52); /* [1/2, 1) */
    if (m < SQRT_HALF) {
        m = m * 2.0;
        k--;
    }
    double s = (m - 1.0) / (m + 1.0);
    double ln_m = 2.0 * s * polynomial(c, SL_ARRAY_LEN(c), s * s);
    double n = (double)k;
    return fma(n, LN2_HI, fma(n, LN2_LO, ln_m));
}

double sl_pow(double x, double y) { return sl_exp(y * sl_ln(x)); }

/* ln(1 + z) for small z loses the bits of z that 1 + z drops; multiplying by z / ((1 + z) - 1) puts
 * them back (Kahan). */
float sl_softplusf(float x)
{
    if (x > 20.0f) return x;
    if (x < -200.0f) return 0.0f;
    double z = sl_exp((double)x);
    double u = 1.0 + z;
    if (u == 1.0) return (float)z;
    return (float)(sl_ln(u) * (z / (u - 1.0)));
}

/* x = n pi/2 + r with |r| <= pi/4; the quadrant n mod 4 selects and negates. The series end with
 * r^17 and r^16, whose remainders there are below 1e-19 and 3e-18. */
void sl_sincos(double x, double *sine, double *cosine)
{
    static const double c_sin[] = {1.0,
                                   -1.0 / 6,
                                   1.0 / 120,
                                   -1.0 / 5040,
                                   1.0 / 362880,
                                   -1.0 / 39916800,
                                   1.0 / 6227020800,
                                   -1.0 / 1307674368000,
                                   1.0 / 355687428096000};
    static const double c_cos[] = {1.0,
                                   -1.0 / 2,
                                   1.0 / 24,
                                   -1.0 / 720,
                                   1.0 / 40320,
                                   -1.0 / 3628800,
                                   1.0 / 479001600,
                                   -1.0 / 87178291200,
                                   1.0 / 20922789888000};
    double t = fma(x, TWO_OVER_PI, MAGIC);
    double n = t - MAGIC;
    double r = fma(-n, PI_2_HI, x);
    r = fma(-n, PI_2_LO, r);
    double square = r * r;
    double s = r * polynomial(c_sin, SL_ARRAY_LEN(c_sin), square);
    double c = polynomial(c_cos, SL_ARRAY_LEN(c_cos), square);
    uint64_t quadrant = bits_of(t) & 3;
    *sine = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
    *cosine = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}
