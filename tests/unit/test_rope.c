/* RoPE tables: every scaling against its published formula in long double, and the promise that the
 * part of a head past n_rot is left alone. The formulas are written here once more, independently
 * of rope.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "engine/rope.h"

#define PI_L 3.14159265358979323846264338327950288L

struct fixture {
    struct sl_budget budget;
    struct sl_arena arena;
};

static void begin(struct fixture *f)
{
    sl_budget_init(&f->budget, UINT64_MAX);
    sl_arena_init(&f->arena, &f->budget, 4096);
}

static struct sl_rope_config plain(uint32_t n_rot, double base)
{
    return (struct sl_rope_config){.n_rot = n_rot,
                                   .freq_base = base,
                                   .factor = 1.0,
                                   .attn_factor = 1.0,
                                   .beta_fast = 32.0,
                                   .beta_slow = 1.0,
                                   .original_ctx = 4096.0};
}

/* Angle of pair i at position 1, by the definition of each scaling. */
static long double angle(const struct sl_rope_config *c, uint32_t i)
{
    long double f = powl((long double)c->freq_base, -2.0L * i / c->n_rot);
    if (c->factors) f /= (long double)c->factors[i];
    if (c->scaling == SL_ROPE_LINEAR) return f / (long double)c->factor;
    if (c->scaling != SL_ROPE_YARN) return f;
    /* Peng et al. 2023: pairs that turn more than beta_fast times within the original context keep
     * their frequency, those that turn less than beta_slow times are interpolated, a ramp between.
     */
    long double scale = c->n_rot / (2.0L * logl((long double)c->freq_base));
    long double low = floorl(
        scale * logl((long double)c->original_ctx / ((long double)c->beta_fast * 2.0L * PI_L)));
    long double high = ceill(
        scale * logl((long double)c->original_ctx / ((long double)c->beta_slow * 2.0L * PI_L)));
    if (low < 0.0L) low = 0.0L;
    if (high > c->n_rot - 1.0L) high = c->n_rot - 1.0L;
    long double width = high - low > 0.001L ? high - low : 0.001L;
    long double ramp = (i - low) / width;
    ramp = ramp < 0.0L ? 0.0L : ramp > 1.0L ? 1.0L : ramp;
    return f * (1.0L - ramp) + f / (long double)c->factor * ramp;
}

static void check_table(const struct sl_rope_config *c, long double magnitude)
{
    struct fixture f;
    begin(&f);
    struct sl_rope r;
    assert_int_equal(sl_rope_init(&r, c, &f.arena), SLUICE_OK);
    float cs[256];
    static const uint64_t positions[] = {0, 1, 2, 63, 1000, 131071};
    for (size_t p = 0; p < SL_ARRAY_LEN(positions); p++) {
        sl_rope_table(&r, positions[p], cs);
        for (uint32_t i = 0; i < c->n_rot / 2; i++) {
            long double a = angle(c, i) * positions[p];
            /* A float is 6e-8 apart near 1; frequencies are good to 1e-12, which 131071 turns into
             * 1e-7. */
            assert_true(fabsl(cs[2 * i] - cosl(a) * magnitude) < 3e-7L);
            assert_true(fabsl(cs[2 * i + 1] - sinl(a) * magnitude) < 3e-7L);
        }
    }
    sl_arena_deinit(&f.arena);
    assert_int_equal(sl_budget_used(&f.budget), 0);
}

static void test_rope__no_scaling__definition(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 128; n += 14) {
        struct sl_rope_config c = plain(n, 10000.0);
        check_table(&c, 1.0L);
        c.freq_base = 1e6;
        check_table(&c, 1.0L);
    }
}

static void test_rope__linear__all_angles_divided(void **state)
{
    (void)state;
    struct sl_rope_config c = plain(64, 10000.0);
    c.scaling = SL_ROPE_LINEAR;
    c.factor = 4.0;
    check_table(&c, 1.0L);
}

static void test_rope__yarn__ramp_and_magnitude(void **state)
{
    (void)state;
    struct sl_rope_config c = plain(128, 500000.0);
    c.scaling = SL_ROPE_YARN;
    c.factor = 8.0;
    for (double ctx = 64; ctx <= 65536; ctx *= 4) {
        c.original_ctx = ctx;
        check_table(&c, 0.1L * logl(8.0L) + 1.0L);
    }
}

static void test_rope__yarn_with_log_multiplier__magnitudes_divided(void **state)
{
    (void)state;
    struct sl_rope_config c = plain(64, 10000.0);
    c.scaling = SL_ROPE_YARN;
    c.factor = 40.0;
    c.log_multiplier = 0.707;
    c.attn_factor = 0.5;
    long double m = (0.1L * logl(40.0L) + 1.0L) / (0.1L * 0.707L * logl(40.0L) + 1.0L);
    check_table(&c, m * 0.5L);
}

static void test_rope__factors__frequencies_divided(void **state)
{
    (void)state;
    float factors[32];
    for (int i = 0; i < 32; i++) factors[i] = i < 16 ? 1.0f : 8.0f;
    struct sl_rope_config c = plain(64, 10000.0);
    c.factors = factors;
    check_table(&c, 1.0L);
}

static void test_rope__partial_rotation__tail_bit_equal(void **state)
{
    (void)state;
    const struct sl_kernels *k;
    sluice_error e;
    for (int isa = SL_ISA_SCALAR; isa <= SL_ISA_I8MM; isa++) {
        if (sl_kernels_select((enum sl_isa)isa, &e, &k) != SLUICE_OK) continue;
        float x[80], before[80], cs[32];
        for (int i = 0; i < 80; i++) before[i] = x[i] = (float)i * 0.37f - 11.0f;
        for (int i = 0; i < 16; i++) cs[2 * i] = 0.6f, cs[2 * i + 1] = 0.8f;
        for (int neox = 0; neox < 2; neox++) {
            memcpy(x, before, sizeof x);
            k->rope(x, cs, 32, neox != 0);
            assert_memory_equal(x + 32, before + 32, 48 * sizeof(float));
            assert_true(x[0] != before[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope__no_scaling__definition),
        cmocka_unit_test(test_rope__linear__all_angles_divided),
        cmocka_unit_test(test_rope__yarn__ramp_and_magnitude),
        cmocka_unit_test(test_rope__yarn_with_log_multiplier__magnitudes_divided),
        cmocka_unit_test(test_rope__factors__frequencies_divided),
        cmocka_unit_test(test_rope__partial_rotation__tail_bit_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
