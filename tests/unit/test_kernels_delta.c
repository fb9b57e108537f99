/* The kernels of recurrent layers and gates: every variant must give the bits of the scalar
 * definition, over all sizes, what may lie in place, and values at their extremes; and the
 * definition must be what the formulas say, computed in double with matrices written out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "engine/kernels/kernels.h"
#include "tests/support/kernel_data.h"

static const struct sl_kernels *scalar;
static const struct sl_kernels *variants[5]; /* what this machine has besides */
static unsigned n_variants;

static void fill(float *x, size_t n, bool special)
{
    for (size_t i = 0; i < n; i++) x[i] = special ? special_float() : rnd_float();
}

/* ---- gates ----------------------------------------------------------------------------------- */

static void test_sigmoid_mul__every_length__bits_of_scalar(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 75; n++)
        for (int round = 0; round < 6; round++) {
            float g[80], u[80], want[80] = {0}, got[80];
            fill(g, 80, round % 2 != 0);
            fill(u, 80, round % 2 != 0);
            if (round == 4) g[n / 2] = NAN;
            scalar->sigmoid_mul(g, u, n, want);
            for (unsigned v = 0; v < n_variants; v++) {
                memset(got, 0, sizeof got);
                variants[v]->sigmoid_mul(g, u, n, got);
                check_same(want, got, 80, "sigmoid_mul"); /* and nothing beyond n */
                memcpy(got, u, sizeof got);
                variants[v]->sigmoid_mul(g, got, n, got);
                check_same(want, got, n, "sigmoid_mul in place");
            }
        }
}

static void test_sigmoid_mul__scalar__close_to_double(void **state)
{
    (void)state;
    float g[301], u[301], y[301];
    fill(g, 301, false);
    fill(u, 301, false);
    scalar->sigmoid_mul(g, u, 301, y);
    for (int i = 0; i < 301; i++)
        assert_true(fabs((double)y[i] - (double)u[i] / (1.0 + exp(-(double)g[i]))) < 2e-6);
}

/* ---- convolution ----------------------------------------------------------------------------- */

#define CHANNELS 75

struct conv {
    float rows[SL_CONV_TAPS_MAX][CHANNELS + 1], w[CHANNELS * SL_CONV_TAPS_MAX];
};

static void run_conv(const struct sl_kernels *k, const struct conv *c, uint32_t taps, uint32_t n,
                     float *y)
{
    const float *rows[SL_CONV_TAPS_MAX];
    for (uint32_t j = 0; j < taps; j++) rows[j] = c->rows[j];
    memcpy(y, c->rows[taps - 1], (CHANNELS + 1) * sizeof *y);
    rows[taps - 1] = y; /* in place */
    k->conv_silu(rows, c->w, taps, n, y);
}

static void test_conv_silu__taps_and_channels__bits_of_scalar(void **state)
{
    (void)state;
    for (uint32_t taps = 2; taps <= SL_CONV_TAPS_MAX; taps++)
        for (uint32_t n = 1; n <= CHANNELS; n++)
            for (int special = 0; special < 2; special++) {
                struct conv c;
                float want[CHANNELS + 1], got[CHANNELS + 1];
                for (uint32_t j = 0; j < taps; j++) fill(c.rows[j], CHANNELS + 1, special != 0);
                fill(c.w, CHANNELS * SL_CONV_TAPS_MAX, special != 0);
                run_conv(scalar, &c, taps, n, want);
                for (unsigned v = 0; v < n_variants; v++) {
                    run_conv(variants[v], &c, taps, n, got);
                    check_same(want, got, CHANNELS + 1, "conv_silu"); /* nothing beyond n */
                }
            }
}

static void test_conv_silu__scalar__close_to_double(void **state)
{
    (void)state;
    struct conv c;
    float y[CHANNELS + 1];
    for (uint32_t j = 0; j < 4; j++) fill(c.rows[j], CHANNELS + 1, false);
    fill(c.w, CHANNELS * SL_CONV_TAPS_MAX, false);
    run_conv(scalar, &c, 4, CHANNELS, y);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        double x = 0;
        for (uint32_t j = 0; j < 4; j++) x += (double)c.w[4 * i + j] * (double)c.rows[j][i];
        assert_true(fabs((double)y[i] - x / (1.0 + exp(-x))) < 2e-5);
    }
}

/* ---- the delta rule -------------------------------------------------------------------------- */

#define KEYS_MAX 67
#define VALUES_MAX (5 * SL_DELTA_COLS)

/* A head, and the tokens that pass through it. */
struct head {
    uint32_t n_k, n_v;
    float *state, *u, decay;
    float k[2][KEYS_MAX]; /* of this token and the one before, by its number's parity */
};

static struct head open_head(uint32_t n_k, uint32_t n_v)
{
    struct head h = {.n_k = n_k, .n_v = n_v};
    h.state = must_alloc(n_k * n_v * sizeof(float));
    h.u = must_alloc(n_v * sizeof(float));
    memset(h.state, 0, n_k * n_v * sizeof(float));
    return h;
}

static void close_head(struct head *h)
{
    free(h->state);
    free(h->u);
}

struct token {
    float q[KEYS_MAX], k[KEYS_MAX], v[VALUES_MAX], decay, beta;
};

static struct token random_token(bool special)
{
    struct token t;
    fill(t.q, KEYS_MAX, special);
    fill(t.k, KEYS_MAX, special);
    fill(t.v, VALUES_MAX, special);
    for (uint32_t i = 0; i < KEYS_MAX && !special; i++) t.q[i] *= 0.1f, t.k[i] *= 0.1f;
    t.decay = 0.5f + 0.15f * fabsf(rnd_float());
    t.beta = 0.3f * fabsf(rnd_float());
    return t;
}

/* Token number t, in place of its v. */
static void step(const struct sl_kernels *k, struct head *h, uint32_t t, const struct token *x,
                 float *y)
{
    memcpy(h->k[t % 2], x->k, sizeof x->k);
    memcpy(y, x->v, h->n_v * sizeof *y);
    struct sl_k_delta s = {
        .state = h->state,
        .n_k = h->n_k,
        .n_v = h->n_v,
        .k_before = t > 0 ? h->k[(t + 1) % 2] : NULL,
        .u_before = h->u,
        .decay_before = h->decay,
        .q = x->q,
        .k = h->k[t % 2],
        .v = y,
        .decay = x->decay,
        .beta = x->beta,
        .qk = scalar->dot_f32(x->q, x->k, h->n_k),
        .u = h->u,
        .y = y,
    };
    k->delta_step(&s);
    h->decay = x->decay;
}

static void check_heads(uint32_t n_k, uint32_t n_v, bool special)
{
    struct head want = open_head(n_k, n_v), got[5];
    for (unsigned v = 0; v < n_variants; v++) got[v] = open_head(n_k, n_v);
    for (uint32_t t = 0; t < 4; t++) {
        struct token x = random_token(special);
        float want_y[VALUES_MAX], y[VALUES_MAX];
        step(scalar, &want, t, &x, want_y);
        for (unsigned v = 0; v < n_variants; v++) {
            step(variants[v], &got[v], t, &x, y);
            check_same(want_y, y, n_v, "delta_step y");
            check_same(want.u, got[v].u, n_v, "delta_step u");
            check_same(want.state, got[v].state, n_k * n_v, "delta_step state");
        }
    }
    close_head(&want);
    for (unsigned v = 0; v < n_variants; v++) close_head(&got[v]);
}

static void test_delta_step__every_size__bits_of_scalar(void **state)
{
    (void)state;
    for (uint32_t n_k = 1; n_k <= KEYS_MAX; n_k++)
        for (uint32_t n_v = SL_DELTA_COLS; n_v <= VALUES_MAX; n_v += SL_DELTA_COLS)
            for (int special = 0; special < 2; special++) check_heads(n_k, n_v, special != 0);
}

/* S = decay S; u = beta (v - S'k); S += k u'; y = S'q, in double. */
static void plain_step(double *s, const struct head *h, const struct token *x, double *y)
{
    for (uint32_t j = 0; j < h->n_v; j++) {
        double read = 0, u;
        for (uint32_t i = 0; i < h->n_k; i++) {
            s[i * h->n_v + j] *= (double)x->decay;
            read += s[i * h->n_v + j] * (double)x->k[i];
        }
        u = (double)x->beta * ((double)x->v[j] - read);
        y[j] = 0;
        for (uint32_t i = 0; i < h->n_k; i++) {
            s[i * h->n_v + j] += (double)x->k[i] * u;
            y[j] += s[i * h->n_v + j] * (double)x->q[i];
        }
    }
}

static void test_delta_step__scalar__is_the_delta_rule(void **state)
{
    (void)state;
    static double s[KEYS_MAX * VALUES_MAX], want[VALUES_MAX];
    struct head h = open_head(64, 48);
    float y[VALUES_MAX];
    for (uint32_t t = 0; t < 40; t++) {
        struct token x = random_token(false);
        step(scalar, &h, t, &x, y);
        plain_step(s, &h, &x, want);
        for (uint32_t j = 0; j < h.n_v; j++) assert_true(fabs((double)y[j] - want[j]) < 1e-5);
    }
    close_head(&h);
}

/* ---------------------------------------------------------------------------------------------- */

static int find_variants(void **state)
{
    static const enum sl_isa list[] = {SL_ISA_AVX2, SL_ISA_AVX512, SL_ISA_NEON, SL_ISA_DOTPROD,
                                       SL_ISA_I8MM};
    (void)state;
    sluice_error e;
    if (sl_kernels_select(SL_ISA_SCALAR, &e, &scalar) != SLUICE_OK) return -1;
    for (size_t i = 0; i < SL_ARRAY_LEN(list); i++)
        if (sl_kernels_select(list[i], &e, &variants[n_variants]) == SLUICE_OK) n_variants++;
    if (n_variants == 0) printf("only the scalar kernels on this machine\n");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sigmoid_mul__every_length__bits_of_scalar),
        cmocka_unit_test(test_sigmoid_mul__scalar__close_to_double),
        cmocka_unit_test(test_conv_silu__taps_and_channels__bits_of_scalar),
        cmocka_unit_test(test_conv_silu__scalar__close_to_double),
        cmocka_unit_test(test_delta_step__every_size__bits_of_scalar),
        cmocka_unit_test(test_delta_step__scalar__is_the_delta_rule),
    };
    return cmocka_run_group_tests(tests, find_variants, NULL);
}
