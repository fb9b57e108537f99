/* The elementary functions against long double libm: error bounds of mathfn.h over dense samples,
 * the borders of each domain, and pinned bits, which must be the same on every machine and
 * compiler. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/mathfn.h"
#include "base/mathfn_steps.h"

static uint32_t bits_f(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static double relative(long double got, long double want)
{
    return want == 0 ? (got == 0 ? 0 : INFINITY) : (double)fabsl((got - want) / want);
}

/* Every `step`th float of both signs up to the limits, so that all magnitudes are met. */
static void test_expf__all_magnitudes__within_2e_7(void **state)
{
    (void)state;
    double worst = 0;
    float where = 0;
    for (uint32_t b = 0; b < bits_f(88.7228f); b += 997) {
        for (int sign = 0; sign < 2; sign++) {
            float x = float_of(b | (uint32_t)sign << 31);
            if (x < SL_EXPF_LO) continue;
            double e = relative(sl_expf(x), expl((long double)x));
            if (e > worst) {
                worst = e;
                where = x;
            }
        }
    }
    printf("sl_expf: relative error %.3g at %.9g\n", worst, (double)where);
    assert_true(worst < 2e-7);
}

static void test_expf__borders__inf_zero_nan(void **state)
{
    (void)state;
    assert_true(sl_expf(0.0f) == 1.0f);
    assert_true(sl_expf(-0.0f) == 1.0f);
    assert_true(isinf(sl_expf(88.73f)) && sl_expf(88.73f) > 0);
    assert_true(isinf(sl_expf(INFINITY)));
    assert_true(isinf(sl_expf(FLT_MAX)));
    assert_true(isfinite(sl_expf(88.7228f)));
    assert_int_equal(bits_f(sl_expf(-87.34f)), 0);
    assert_int_equal(bits_f(sl_expf(-INFINITY)), 0);
    assert_int_equal(bits_f(sl_expf(-FLT_MAX)), 0);
    assert_true(isnan(sl_expf(NAN)));
    assert_true(isnan(sl_expf(-NAN)));
}

/* Around both ends float by float: no denormal comes out, and nothing finite turns into garbage. */
static void test_expf__floats_near_the_borders__normal_zero_or_inf(void **state)
{
    (void)state;
    uint32_t low = bits_f(SL_EXPF_LO);
    for (uint32_t b = low - 5000; b < low + 5000; b++) {
        float y = sl_expf(float_of(b));
        assert_true(y == 0.0f || y >= FLT_MIN);
        if (float_of(b) >= -87.3365f) assert_true(y >= FLT_MIN);
    }
    uint32_t high = bits_f(88.7228f);
    float before = sl_expf(float_of(high - 1));
    for (uint32_t b = high; b < bits_f(88.74f); b++) {
        float y = sl_expf(float_of(b));
        assert_true(y >= before);
        before = y;
    }
}

static void test_expf__pinned_bits__equal(void **state)
{
    (void)state;
    static const struct {
        float x;
        uint32_t bits;
    } pins[] = {
        {1.0f, 0x402DF854u},     {-1.0f, 0x3EBC5AB2u},       {0x1.62e43p-2f, 0x3FB504F3u},
        {-20.25f, 0x30DC9EF1u},  {88.5f, 0x7F4CDCC3u},       {-87.25f, 0x008B923Cu},
        {0.001f, 0x3F8020C9u},   {-3.1415927f, 0x3D310113u}, {10.7f, 0x472D43D9u},
        {0x1p-30f, 0x3F800000u},
    };
    for (size_t i = 0; i < sizeof pins / sizeof pins[0]; i++)
        assert_int_equal(bits_f(sl_expf(pins[i].x)), pins[i].bits);
}

static void test_sigmoidf__samples__close_and_symmetric(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -80000; i <= 80000; i++) {
        float x = (float)i / 1000.0f;
        double e = relative(sl_sigmoidf(x), 1 / (1 + expl(-(long double)x)));
        if (e > worst) worst = e;
    }
    printf("sl_sigmoidf: relative error %.3g\n", worst);
    assert_true(worst < 4e-7);
    assert_true(sl_sigmoidf(0.0f) == 0.5f);
    assert_true(sl_sigmoidf(INFINITY) == 1.0f);
    assert_true(sl_sigmoidf(-INFINITY) == 0.0f);
    assert_true(isnan(sl_sigmoidf(NAN)));
}

static void test_softplusf__samples__correct_to_the_last_bit_or_two(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -87000; i <= 30000; i++) {
        float x = (float)i / 1000.0f;
        double e = relative(sl_softplusf(x), log1pl(expl((long double)x)));
        if (e > worst) worst = e;
    }
    printf("sl_softplusf: relative error %.3g\n", worst);
    assert_true(worst < 6.1e-8); /* half a unit in the last place is 5.96e-8 */
    assert_true(sl_softplusf(20.5f) == 20.5f);
    assert_true(sl_softplusf(-1000.0f) == 0.0f);
    assert_true(sl_softplusf(INFINITY) == INFINITY);
    assert_true(sl_softplusf(-INFINITY) == 0.0f);
    assert_true(isnan(sl_softplusf(NAN)));
}

static void test_exp__samples__within_1e_14(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -700000; i <= 700000; i++) {
        double x = i / 1000.0 + 1e-5 * (i % 7);
        double e = relative(sl_exp(x), expl((long double)x));
        if (fabs(x) <= 700 && e > worst) worst = e;
    }
    printf("sl_exp: relative error %.3g\n", worst);
    assert_true(worst < 1e-14);
    assert_true(sl_exp(0.0) == 1.0);
    assert_true(isinf(sl_exp(1000.0)));
    assert_true(sl_exp(-1000.0) == 0.0);
    assert_true(isnan(sl_exp(NAN)));
}

static void test_log__samples__within_1e_14(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 1; i <= 400000; i++) { /* dense around 1, where the result is small */
        double x = i / 200000.0;
        double e = relative(sl_ln(x), logl((long double)x));
        if (e > worst) worst = e;
    }
    for (double x = DBL_MIN; x < 1e308; x *= 1.0173) {
        double e = relative(sl_ln(x), logl((long double)x));
        if (e > worst) worst = e;
    }
    for (double d = 1e-15; d < 1e-2; d *= 1.01) {
        double up = relative(sl_ln(1 + d), logl((long double)(1 + d)));
        double down = relative(sl_ln(1 - d), logl((long double)(1 - d)));
        if (up > worst) worst = up;
        if (down > worst) worst = down;
    }
    printf("sl_log: relative error %.3g\n", worst);
    assert_true(worst < 1e-14);
    assert_true(sl_ln(1.0) == 0.0);
}

static void test_pow__samples__within_1e_12(void **state)
{
    (void)state;
    static const double bases[] = {1e-300, 0.01, 0.7, 1.0, 1.5, 10000.0, 1e6, 1e7, 1e300};
    double worst = 0;
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        for (int i = -2000; i <= 2000; i++) {
            double y = i / 200.0;
            if (fabs(y * log(bases[b])) > 700) continue;
            double e = relative(sl_pow(bases[b], y), powl(bases[b], y));
            if (e > worst) worst = e;
        }
    }
    printf("sl_pow: relative error %.3g\n", worst);
    assert_true(worst < 1e-12);
    assert_true(sl_pow(10000.0, 0.0) == 1.0);
    assert_true(sl_pow(1.0, 12345.0) == 1.0);
}

static void test_sincos__samples__within_1e_13(void **state)
{
    (void)state;
    double worst = 0;
    for (double x = -1e7; x <= 1e7; x += 33.7812345) {
        double s, c;
        sl_sincos(x, &s, &c);
        double e = fmax((double)fabsl(s - sinl(x)), (double)fabsl(c - cosl(x)));
        if (e > worst) worst = e;
    }
    for (int i = -100000; i <= 100000; i++) {
        double s, c, x = i * 1e-4;
        sl_sincos(x, &s, &c);
        double e = fmax((double)fabsl(s - sinl(x)), (double)fabsl(c - cosl(x)));
        if (e > worst) worst = e;
    }
    printf("sl_sincos: absolute error %.3g\n", worst);
    assert_true(worst < 1e-13);
    double s, c;
    sl_sincos(0.0, &s, &c);
    assert_true(s == 0.0 && c == 1.0);
}

static uint64_t hash_double(uint64_t h, double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return (h ^ b) * 0x100000001B3u;
}

/* One number over many results: a compiler that fuses or reorders shows here. */
static void test_all__hash_of_results__pinned(void **state)
{
    (void)state;
    uint64_t h = 0xCBF29CE484222325u;
    for (int i = -8000; i <= 8000; i++) {
        double x = i / 100.0;
        double s, c;
        sl_sincos(x * 1000, &s, &c);
        h = hash_double(hash_double(h, s), c);
        h = hash_double(hash_double(h, sl_exp(x)), sl_ln(x * x + 0.001));
        h = hash_double(h, sl_pow(x * x + 0.5, 1.25));
        h = hash_double(hash_double(h, sl_expf((float)x)), sl_sigmoidf((float)x));
        h = hash_double(h, sl_softplusf((float)x));
    }
    printf("hash %016llx\n", (unsigned long long)h);
    assert_true(h == 0x001EEE492273DC1Bu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expf__all_magnitudes__within_2e_7),
        cmocka_unit_test(test_expf__borders__inf_zero_nan),
        cmocka_unit_test(test_expf__floats_near_the_borders__normal_zero_or_inf),
        cmocka_unit_test(test_expf__pinned_bits__equal),
        cmocka_unit_test(test_sigmoidf__samples__close_and_symmetric),
        cmocka_unit_test(test_softplusf__samples__correct_to_the_last_bit_or_two),
        cmocka_unit_test(test_exp__samples__within_1e_14),
        cmocka_unit_test(test_log__samples__within_1e_14),
        cmocka_unit_test(test_pow__samples__within_1e_12),
        cmocka_unit_test(test_sincos__samples__within_1e_13),
        cmocka_unit_test(test_all__hash_of_results__pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
