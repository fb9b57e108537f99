/* Elementary functions that give the same bits on every machine: libm's do not.
 *
 * Written with IEEE additions, multiplications, divisions and explicit fused multiply-adds only, so
 * that a vector version that does the same steps per lane is bit-equal. The float functions come in
 * the header as static inline step lists because the kernels of every instruction set must repeat
 * them. Thread: pure. */
#ifndef SL_MATHFN_H
#define SL_MATHFN_H

/* e^x in float: relative error below 2e-7 (test_mathfn measures it) for |result| normal; x >= 88.73
 * gives +inf, x <= -87.34 gives 0 (results that would be denormal are 0); NaN gives NaN. */
float sl_expf(float x);

/* Logistic function 1 / (1 + e^-x) by sl_expf and a division. */
float sl_sigmoidf(float x);

/* ln(1 + e^x), by the double functions, rounded once; x > 20 gives x. */
float sl_softplusf(float x);

/* In double: relative error below 1e-14 on the stated domain. */
double sl_exp(double x); /* |x| <= 700 */
double sl_ln(double x);  /* x > 0, normal */
double
sl_pow(double x,
       double y); /* x > 0; e^(y ln x), result within |y ln x| <= 700; relative error below 1e-12 */
/* sin and cos of x at once, absolute error below 1e-13 for |x| <= 1e7. */
void sl_sincos(double x, double *sine, double *cosine);

#endif
