/* The kernels: every variant must give the bits of the scalar definition, and the definition must
 * be right.
 *
 * Bits are compared over all shapes around the vector width, every misalignment of the weights,
 * codes and activations at their extremes, scales from denormal to infinite and NaN (NaNs compare
 * equal whatever their payload). The definition is compared with sums in double of decoded weights.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mathfn.h"
#include "engine/kernels/kernels.h"
#include "formats/blocks.h"
#include "formats/half.h"
#include "tests/support/kernel_data.h"

static const struct sl_kernels *scalar;
static const struct sl_kernels *variants[4]; /* what this machine has besides */
static unsigned n_variants;

struct shape {
    uint32_t rows, cols, tokens, shift;
    enum fill fill;
    enum x_fill x_fill;
};

#define TOKENS_MAX 17
#define MANY_TOKENS 200 /* more than any variant takes at once */

/* One product by the definition and by every variant. Between the rows of y there is a gap that
 * must stay as it was. */
static void check_matmul(uint32_t type, struct shape s)
{
    struct weights w = make_weights(type, s.rows, s.cols, s.shift, s.fill);
    struct sl_k_act x[MANY_TOKENS];
    for (uint32_t t = 0; t < s.tokens; t++) x[t] = make_act(sl_k_act_kind(type), s.cols, s.x_fill);
    uint64_t stride = s.rows + 3;
    size_t n = (size_t)(s.tokens - 1) * stride + s.rows;
    float *want = must_alloc(n * sizeof *want), *got = must_alloc(n * sizeof *got);
    for (size_t i = 0; i < n; i++) want[i] = 7.0f;
    struct sl_k_matmul m = {w.data, w.row_bytes, s.rows, s.cols, x, s.tokens, want, stride, NULL};
    scalar->matmul[SL_TYPE_SLOT(type)](&m);
    m.next = w.data; /* changes nothing but what is in a cache */
    for (unsigned v = 0; v < n_variants; v++) {
        char what[128];
        snprintf(what, sizeof what, "%s %s rows %u cols %u tokens %u shift %u fill %d x %d",
                 variants[v]->isa, sl_type_name(type), s.rows, s.cols, s.tokens, s.shift,
                 (int)s.fill, (int)s.x_fill);
        for (size_t i = 0; i < n; i++) got[i] = 7.0f;
        m.y = got;
        variants[v]->matmul[SL_TYPE_SLOT(type)](&m);
        check_same(want, got, n, what);
    }
    free(want);
    free(got);
    free(w.base);
    for (uint32_t t = 0; t < s.tokens; t++) free_act(x[t]);
}

static void test_matmul__rows_and_tokens__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        uint32_t block = sl_type_info(types[i])->block_cols;
        uint32_t cols = block == 1 ? 43 : block == 32 ? 96 : 512;
        for (uint32_t rows = 1; rows <= 17; rows++)
            for (uint32_t tokens = 1; tokens <= 5; tokens++)
                check_matmul(types[i], (struct shape){rows, cols, tokens, rows, SANE, X_RANDOM});
        for (uint32_t tokens = 6; tokens <= TOKENS_MAX; tokens++)
            check_matmul(types[i], (struct shape){9, cols, tokens, 1, SANE, X_RANDOM});
        for (uint32_t tokens = TOKENS_MAX + 1; tokens <= 40; tokens++)
            check_matmul(types[i], (struct shape){33, cols, tokens, 1, SANE, X_RANDOM});
        check_matmul(types[i], (struct shape){50, cols, MANY_TOKENS, 1, SANE, X_RANDOM});
    }
}

static void test_matmul__lengths__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        uint32_t block = sl_type_info(types[i])->block_cols;
        uint32_t max = block == 1 ? 131 : 9 * block;
        for (uint32_t cols = block; cols <= max; cols += block) {
            check_matmul(types[i], (struct shape){21, cols, 1, 0, SANE, X_RANDOM});
            check_matmul(types[i], (struct shape){27, cols, 3, 2, SANE, X_RANDOM});
        }
        /* More than a variant prepares at a stretch; of floats, on either side of 4096 columns. */
        const uint32_t stretches[] = {40 * block, block == 1 ? 2053 : 33 * block,
                                      block == 1 ? 4096 : 41 * block,
                                      block == 1 ? 4127 : 47 * block};
        for (size_t k = 0; k < SL_ARRAY_LEN(stretches); k++)
            check_matmul(types[i], (struct shape){17, stretches[k], 1, 1, SANE, X_RANDOM});
    }
}

static void test_matmul__misaligned_weights__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        uint32_t block = sl_type_info(types[i])->block_cols;
        for (uint32_t shift = 0; shift < 32; shift++)
            check_matmul(types[i],
                         (struct shape){24, block == 1 ? 29 : 2 * block, 2, shift, SANE, X_RANDOM});
    }
}

static void test_matmul__extremes__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        uint32_t block = sl_type_info(types[i])->block_cols;
        uint32_t cols = block == 1 ? 61 : 3 * block;
        for (int fill = 0; fill < FILLS; fill++)
            for (int x_fill = 0; x_fill < X_FILLS; x_fill++)
                for (uint32_t tokens = 1; tokens <= 4; tokens += 3)
                    check_matmul(types[i], (struct shape){25, cols, tokens, 3, (enum fill)fill,
                                                          (enum x_fill)x_fill});
    }
}

/* Random blocks at random, many of them, without any pattern in shape. */
static void test_matmul__random_hostile_blocks__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        uint32_t block = sl_type_info(types[i])->block_cols;
        for (int round = 0; round < 200; round++) {
            struct shape s = {1 + rnd() % 36, block * (1 + rnd() % 4),
                              1 + rnd() % 6,  rnd() % 32,
                              HOSTILE,        X_RANDOM};
            if (round % 2 == 0) s.fill = SANE;
            check_matmul(types[i], s);
        }
    }
}

/* The definition against sums in double of what the decoder says the weights are. A float sum of n
 * terms errs by at most n roundings of the largest partial sum; blocks make that far fewer. */
static void test_matmul__scalar__is_the_product_of_the_decoded_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        const struct sl_type_info *info = sl_type_info(types[i]);
        uint32_t rows = 7, cols = 768, block = sl_k_act_block(sl_k_act_kind(types[i]));
        struct weights w = make_weights(types[i], rows, cols, 1, SANE);
        struct sl_k_act x = make_act(sl_k_act_kind(types[i]), cols, X_RANDOM);
        float y[7], decoded[768];
        struct sl_k_matmul m = {w.data, w.row_bytes, rows, cols, &x, 1, y, rows, NULL};
        scalar->matmul[SL_TYPE_SLOT(types[i])](&m);
        for (uint32_t r = 0; r < rows; r++) {
            double sum = 0, magnitude = 0;
            sl_type_decode_rows(types[i], w.data, cols, r, 1, decoded);
            for (uint32_t c = 0; c < cols; c++) {
                double v = x.f != NULL ? (double)x.f[c] : (double)x.d[c / block] * x.q[c];
                if (x.second.d != NULL) v += (double)x.second.d[c / block] * x.second.q[c];
                sum += v * (double)decoded[c];
                magnitude += fabs(v * (double)decoded[c]);
            }
            if (!(fabs((double)y[r] - sum) <= 2e-6 * magnitude))
                fail_msg("%s: %g, should be %g (+- %g)", info->name, (double)y[r], sum,
                         2e-6 * magnitude);
        }
        free(w.base);
        free_act(x);
    }
}

/* ---- quantization ---------------------------------------------------------------------------- */

struct quantized {
    int8_t q[1024];
    float d[32];
    int16_t sums[64];
};

static bool quantize(const struct sl_kernels *k, const float *x, uint32_t n, uint32_t block,
                     struct quantized *out)
{
    struct sl_k_act_out o = {out->q, out->d, out->sums};
    memset(out, 0, sizeof *out);
    return k->quantize(x, n, block, &o);
}

static void check_quantize(const float *x, uint32_t n, uint32_t block)
{
    struct quantized want, got;
    assert_true(quantize(scalar, x, n, block, &want));
    for (uint32_t i = 0; i < n; i++) {
        double value = (double)want.d[i / block] * want.q[i];
        assert_true(fabs(value - (double)x[i]) <= (double)want.d[i / block] * 0.50001 + 4e-37);
        assert_true(want.q[i] >= -127);
    }
    for (uint32_t s = 0; s < n / 16; s++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) sum += want.q[16 * s + i];
        assert_int_equal(want.sums[s], sum);
    }
    for (unsigned v = 0; v < n_variants; v++) {
        assert_true(quantize(variants[v], x, n, block, &got));
        assert_memory_equal(&want, &got, sizeof want);
    }
}

static void test_quantize__random_and_special__bits_of_scalar(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 200; round++)
        for (uint32_t block = 32; block <= 256; block += 224) {
            uint32_t n = block * (1 + rnd() % (1024 / block));
            float *x = random_floats(n);
            float factor = ldexpf(1.0f, (int)(rnd() % 240) - 140);
            for (uint32_t i = 0; i < n; i++)
                x[i] = round % 3 == 0 ? x[i] : round % 3 == 1 ? x[i] * factor : special_float();
            check_quantize(x, n, block);
            free(x);
        }
}

static void test_quantize__ties__go_to_the_even_code(void **state)
{
    (void)state;
    float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, -127.0f};
    static const int codes[] = {127, 0, 2, 2, 0, -2, -2, 126, -126, -127};
    struct quantized q;
    assert_true(quantize(scalar, x, 32, 32, &q));
    for (size_t i = 0; i < SL_ARRAY_LEN(codes); i++) assert_int_equal(q.q[i], codes[i]);
    check_quantize(x, 32, 32);
}

static void test_quantize__zero_and_vanishing__all_zero(void **state)
{
    (void)state;
    float x[256];
    static const float tiny[] = {0.0f, -0.0f, 0x1p-149f, 1e-40f};
    for (size_t t = 0; t < SL_ARRAY_LEN(tiny); t++) {
        struct quantized q, zero;
        memset(&zero, 0, sizeof zero);
        for (int i = 0; i < 256; i++) x[i] = tiny[t];
        assert_true(quantize(scalar, x, 256, 256, &q));
        assert_memory_equal(&q, &zero, sizeof q);
        check_quantize(x, 256, 256);
    }
}

static const float not_finite[] = {NAN, INFINITY, -INFINITY};

static void test_quantize__nan_or_infinity_anywhere__refused(void **state)
{
    (void)state;
    struct quantized q;
    float *x = random_floats(256);
    for (uint32_t i = 0; i < 256; i++)
        for (size_t k = 0; k < SL_ARRAY_LEN(not_finite); k++) {
            float old = x[i];
            x[i] = not_finite[k];
            for (uint32_t block = 32; block <= 256; block += 224) {
                assert_false(quantize(scalar, x, 256, block, &q));
                for (unsigned v = 0; v < n_variants; v++)
                    assert_false(quantize(variants[v], x, 256, block, &q));
            }
            x[i] = old;
        }
    x[3] = FLT_MAX;
    assert_true(quantize(scalar, x, 256, 32, &q));
    free(x);
}

/* ---- vectors --------------------------------------------------------------------------------- */

#define LENGTH_MAX 75

/* Inputs for one round: a, b, and a result array, each at an odd multiple of a float. */
struct arrays {
    float a[LENGTH_MAX + 1], b[LENGTH_MAX + 1];
};

static void fill_arrays(struct arrays *r, uint32_t n, bool special)
{
    for (uint32_t i = 0; i < n; i++) {
        r->a[i] = special ? special_float() : rnd_float();
        r->b[i] = special ? special_float() : rnd_float();
    }
}

typedef float vector_fn(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y);

static float run_dot(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    (void)y;
    return k->dot_f32(in->a, in->b, n);
}

static float run_rms_norm(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    k->rms_norm(in->a, in->b, n, 1e-6f, y);
    return 0;
}

static float run_rms_norm_plain(const struct sl_kernels *k, const struct arrays *in, uint32_t n,
                                float *y)
{
    memcpy(y, in->a, n * sizeof *y);
    k->rms_norm(y, NULL, n, 1e-6f, y);
    return 0;
}

static float run_axpy(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    memcpy(y, in->a, n * sizeof *y);
    k->axpy(-1.7f, in->b, n, y);
    return 0;
}

static float run_add(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    memcpy(y, in->a, n * sizeof *y);
    k->add(in->b, n, y);
    return 0;
}

static float run_scale(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    memcpy(y, in->a, n * sizeof *y);
    k->scale(0.3f, n, y);
    return 0;
}

static float run_silu_mul(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    memcpy(y, in->a, n * sizeof *y);
    k->silu_mul(y, in->b, n, y);
    return 0;
}

static float run_exp_sum(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    memcpy(y, in->a, n * sizeof *y);
    return k->exp_sum(y, n, 2.5f);
}

static float run_max(const struct sl_kernels *k, const struct arrays *in, uint32_t n, float *y)
{
    (void)y;
    return k->max_f32(in->a, n);
}

static const struct {
    const char *name;
    vector_fn *fn;
} vector_kernels[] = {
    {"dot_f32", run_dot},
    {"rms_norm", run_rms_norm},
    {"rms_norm without weights", run_rms_norm_plain},
    {"axpy", run_axpy},
    {"add", run_add},
    {"scale", run_scale},
    {"silu_mul", run_silu_mul},
    {"exp_sum", run_exp_sum},
    {"max_f32", run_max},
};

static void test_vector__every_length__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t f = 0; f < SL_ARRAY_LEN(vector_kernels); f++)
        for (uint32_t n = 1; n <= LENGTH_MAX; n++)
            for (int round = 0; round < 8; round++) {
                struct arrays in;
                float want[LENGTH_MAX + 1] = {0}, got[LENGTH_MAX + 1] = {0};
                fill_arrays(&in, n, round % 2 != 0);
                float want_value = vector_kernels[f].fn(scalar, &in, n, want);
                for (unsigned v = 0; v < n_variants; v++) {
                    memset(got, 0, sizeof got);
                    float value = vector_kernels[f].fn(variants[v], &in, n, got);
                    check_same(&want_value, &value, 1, vector_kernels[f].name);
                    check_same(want, got, LENGTH_MAX + 1,
                               vector_kernels[f].name); /* and nothing beyond n */
                }
            }
}

static void test_vector__nan_and_infinity__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t f = 0; f + 1 < SL_ARRAY_LEN(vector_kernels); f++) /* max_f32 takes no NaN */
        for (uint32_t n = 9; n <= 20; n++)
            for (uint32_t at = 0; at < n; at++) {
                struct arrays in;
                float want[LENGTH_MAX + 1] = {0}, got[LENGTH_MAX + 1] = {0};
                fill_arrays(&in, n, false);
                in.a[at] = not_finite[rnd() % 3];
                float want_value = vector_kernels[f].fn(scalar, &in, n, want);
                for (unsigned v = 0; v < n_variants; v++) {
                    float value = vector_kernels[f].fn(variants[v], &in, n, got);
                    check_same(&want_value, &value, 1, vector_kernels[f].name);
                    check_same(want, got, n, vector_kernels[f].name);
                }
            }
}

/* exp over its whole range, in lanes, against the scalar function. */
static void test_exp_sum__whole_range__bits_of_scalar(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 0xffffffffu - 8 * 40009u; start += 8 * 40009u) {
        float x[8];
        for (uint32_t i = 0; i < 8; i++) x[i] = sl_f32_from_bits(start + i * 40009u);
        for (unsigned v = 0; v < n_variants; v++) {
            float y[8];
            memcpy(y, x, sizeof y);
            variants[v]->exp_sum(y, 8, 0.0f);
            for (int i = 0; i < 8; i++) assert_true(same_bits(y[i], sl_expf(x[i])));
        }
    }
}

static void test_max__zeros_of_both_signs__plus_zero(void **state)
{
    (void)state;
    float x[19];
    for (uint32_t n = 1; n <= 19; n++)
        for (uint32_t plus = 0; plus < n; plus++) {
            for (uint32_t i = 0; i < n; i++) x[i] = i == plus ? 0.0f : -0.0f;
            assert_int_equal(sl_f32_bits(scalar->max_f32(x, n)), 0);
            for (unsigned v = 0; v < n_variants; v++)
                assert_int_equal(sl_f32_bits(variants[v]->max_f32(x, n)), 0);
        }
}

static void test_vector__scalar__close_to_double(void **state)
{
    (void)state;
    float a[301], b[301], y[301];
    double dot = 0, square = 0, sum = 0;
    for (int i = 0; i < 301; i++) {
        a[i] = rnd_float();
        b[i] = rnd_float();
        dot += (double)a[i] * (double)b[i];
        square += (double)a[i] * (double)a[i];
        sum += exp((double)a[i] - 3.0);
    }
    assert_true(fabs((double)scalar->dot_f32(a, b, 301) - dot) < 1e-4);
    scalar->rms_norm(a, b, 301, 1e-5f, y);
    double s = 1.0 / sqrt(square / 301 + 1e-5);
    for (int i = 0; i < 301; i++)
        assert_true(fabs((double)y[i] - (double)a[i] * s * (double)b[i]) < 1e-5);
    scalar->silu_mul(a, b, 301, y);
    for (int i = 0; i < 301; i++) {
        double silu = (double)a[i] / (1.0 + exp(-(double)a[i]));
        assert_true(fabs((double)y[i] - silu * (double)b[i]) < 2e-6);
    }
    memcpy(y, a, sizeof y);
    assert_true(fabs((double)scalar->exp_sum(y, 301, 3.0f) - sum) < 1e-4 * sum);
}

/* ---- rope ------------------------------------------------------------------------------------ */

static void test_rope__every_width__bits_of_scalar_and_a_rotation(void **state)
{
    (void)state;
    for (uint32_t n_rot = 2; n_rot <= 134; n_rot += 2)
        for (int neox = 0; neox < 2; neox++) {
            float x[140], cs[140], want[140], got[140];
            for (uint32_t i = 0; i < 140; i++) x[i] = rnd_float();
            for (uint32_t i = 0; i < n_rot / 2; i++) {
                double angle = (double)rnd_float();
                cs[2 * i] = (float)cos(angle);
                cs[2 * i + 1] = (float)sin(angle);
            }
            memcpy(want, x, sizeof x);
            scalar->rope(want, cs, n_rot, neox != 0);
            for (uint32_t i = 0; i < n_rot / 2; i++) {
                uint32_t a = neox ? i : 2 * i, b = neox ? i + n_rot / 2 : 2 * i + 1;
                double c = (double)cs[2 * i], s = (double)cs[2 * i + 1];
                assert_true(fabs((double)want[a] - ((double)x[a] * c - (double)x[b] * s)) < 1e-6);
                assert_true(fabs((double)want[b] - ((double)x[a] * s + (double)x[b] * c)) < 1e-6);
            }
            for (unsigned v = 0; v < n_variants; v++) {
                memcpy(got, x, sizeof x);
                variants[v]->rope(got, cs, n_rot, neox != 0);
                check_same(want, got, 140, "rope");
            }
            assert_memory_equal(want + n_rot, x + n_rot, (140 - n_rot) * sizeof *x);
        }
}

/* ---- attention ------------------------------------------------------------------------------- */

static const uint32_t head_dims[] = {1,  2,  7,  8,   9,   31,  32,  33,  48,  64,
                                     72, 80, 96, 100, 112, 127, 128, 192, 256, 576};
static const uint32_t element_bytes[SL_KV_TYPES] = {4, 2, 1};

static uint32_t groups_of(uint32_t dim) { return (dim + SL_KV_GROUP - 1) / SL_KV_GROUP; }

/* A cache of n positions, stored through k. */
struct cache {
    uint8_t *data;
    uint16_t *scales;
};

static struct cache make_cache(const struct sl_kernels *k, int type, uint32_t dim, uint32_t n,
                               const float *x)
{
    uint32_t groups = groups_of(dim);
    struct cache c = {must_alloc((size_t)n * dim * element_bytes[type]),
                      must_alloc((size_t)n * groups * 2)};
    memset(c.scales, 0, (size_t)n * groups * 2);
    for (uint32_t j = 0; j < n; j++)
        assert_true(k->store_kv[type](x + (size_t)j * dim, dim,
                                      c.data + (size_t)j * dim * element_bytes[type],
                                      c.scales + (size_t)j * groups));
    return c;
}

static void free_cache(struct cache c)
{
    free(c.data);
    free(c.scales);
}

static void test_store_kv__every_head_size__bits_of_scalar(void **state)
{
    (void)state;
    for (size_t h = 0; h < SL_ARRAY_LEN(head_dims); h++)
        for (int type = 0; type < SL_KV_TYPES; type++)
            for (int round = 0; round < 12; round++) {
                uint32_t dim = head_dims[h], n = 3;
                float *x = random_floats((size_t)n * dim);
                float factor = ldexpf(1.0f, (int)(rnd() % 45) - 32);
                for (uint32_t i = 0; i < n * dim; i++)
                    x[i] = round % 3 == 0 ? x[i] : round % 3 == 1 ? x[i] * factor : special_float();
                struct cache want = make_cache(scalar, type, dim, n, x);
                for (unsigned v = 0; v < n_variants; v++) {
                    struct cache got = make_cache(variants[v], type, dim, n, x);
                    assert_memory_equal(want.data, got.data, (size_t)n * dim * element_bytes[type]);
                    assert_memory_equal(want.scales, got.scales, (size_t)n * groups_of(dim) * 2);
                    free_cache(got);
                }
                free_cache(want);
                free(x);
            }
}

static void test_store_kv__not_finite_or_too_large__refused(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 100; at++)
        for (int type = 0; type < SL_KV_TYPES; type++)
            for (size_t k = 0; k < 4; k++) {
                float x[100] = {0};
                uint8_t data[400];
                uint16_t scales[4];
                float too_large = type == SL_KV_F16 ? 65520.0f : 127.0f * 65520.0f;
                if (k == 3 && type == SL_KV_F32) continue;
                x[at] = k < 3 ? not_finite[k] : too_large;
                assert_false(scalar->store_kv[type](x, 100, data, scales));
                for (unsigned v = 0; v < n_variants; v++)
                    assert_false(variants[v]->store_kv[type](x, 100, data, scales));
            }
}

static void test_store_kv__q8__error_is_half_a_code(void **state)
{
    (void)state;
    float x[112];
    int8_t q[112];
    uint16_t scales[4];
    for (int i = 0; i < 112; i++) x[i] = rnd_float();
    assert_true(scalar->store_kv[SL_KV_Q8](x, 112, q, scales));
    for (int i = 0; i < 112; i++) {
        float scale = sl_f16_to_f32(scales[i / 32]);
        /* The scale itself is off by 2^-11, which can cost the largest elements a clamp: 127 *
         * 2^-11 of a code more. */
        assert_true(fabsf((float)q[i] * scale - x[i]) <= scale * 0.57f);
    }
}

static void test_quantize_query__every_length__bits_of_scalar(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 200; n++)
        for (int round = 0; round < 4; round++) {
            float *x = random_floats(n);
            int16_t want[200] = {0}, got[200] = {0};
            float want_d[7] = {0}, got_d[7] = {0};
            if (round == 3)
                for (uint32_t i = 0; i < n; i++) x[i] = special_float();
            assert_true(scalar->quantize_query(x, n, want, want_d));
            for (uint32_t i = 0; i < n; i++)
                assert_true(fabs((double)want_d[i / 32] * want[i] - (double)x[i]) <=
                            (double)want_d[i / 32] * 0.51 + 4e-34);
            for (unsigned v = 0; v < n_variants; v++) {
                assert_true(variants[v]->quantize_query(x, n, got, got_d));
                assert_memory_equal(want, got, sizeof want);
                assert_memory_equal(want_d, got_d, sizeof want_d);
            }
            x[rnd() % n] = not_finite[rnd() % 3];
            assert_false(scalar->quantize_query(x, n, want, want_d));
            for (unsigned v = 0; v < n_variants; v++)
                assert_false(variants[v]->quantize_query(x, n, got, got_d));
            free(x);
        }
}

/* A query, a cache and probabilities for one head size and number of positions. */
struct head {
    struct sl_k_query query;
    struct sl_k_kv kv;
    struct cache cache;
    float *x, *p, *f, *d;
    int16_t *q;
};

static struct head make_head(int type, uint32_t dim, uint32_t n)
{
    struct head h;
    h.x = random_floats((size_t)n * dim);
    h.p = random_floats(n);
    h.f = random_floats(dim);
    h.q = must_alloc(dim * sizeof *h.q);
    h.d = must_alloc(groups_of(dim) * sizeof *h.d);
    assert_true(scalar->quantize_query(h.f, dim, h.q, h.d));
    h.cache = make_cache(scalar, type, dim, n, h.x);
    h.query = (struct sl_k_query){h.f, h.q, h.d};
    h.kv = (struct sl_k_kv){h.cache.data, type == SL_KV_Q8 ? h.cache.scales : NULL, dim, n};
    return h;
}

static void free_head(struct head h)
{
    free_cache(h.cache);
    free(h.x);
    free(h.p);
    free(h.f);
    free(h.q);
    free(h.d);
}

static void check_head(int type, uint32_t dim, uint32_t n)
{
    char what[64];
    struct head h = make_head(type, dim, n);
    float *want = must_alloc(n * sizeof *want), *got = must_alloc(n * sizeof *got);
    float *acc = random_floats(dim), *want_acc = must_alloc(dim * sizeof *acc),
          *got_acc = must_alloc(dim * sizeof *acc);
    snprintf(what, sizeof what, "attention type %d head %u positions %u", type, dim, n);
    scalar->attn_scores[type](&h.query, 1, &h.kv, 0.125f, want);
    memcpy(want_acc, acc, dim * sizeof *acc);
    scalar->attn_values[type](h.p, 1, &h.kv, want_acc);
    for (unsigned v = 0; v < n_variants; v++) {
        variants[v]->attn_scores[type](&h.query, 1, &h.kv, 0.125f, got);
        check_same(want, got, n, what);
        memcpy(got_acc, acc, dim * sizeof *acc);
        variants[v]->attn_values[type](h.p, 1, &h.kv, got_acc);
        check_same(want_acc, got_acc, dim, what);
    }
    free(want);
    free(got);
    free(acc);
    free(want_acc);
    free(got_acc);
    free_head(h);
}

static void test_attention__head_sizes_and_positions__bits_of_scalar(void **state)
{
    (void)state;
    for (int type = 0; type < SL_KV_TYPES; type++)
        for (size_t h = 0; h < SL_ARRAY_LEN(head_dims); h++) {
            for (uint32_t n = 0; n <= 18; n++) check_head(type, head_dims[h], n);
            check_head(type, head_dims[h], 77);
        }
}

#define HEADS_MAX 33

/* Heads that share keys and values get what each gets alone. */
static void check_heads(int type, uint32_t dim, uint32_t n, uint32_t heads)
{
    struct head h[HEADS_MAX];
    struct sl_k_query queries[HEADS_MAX];
    size_t n_scores = (size_t)heads * n, n_acc = (size_t)heads * dim;
    float *want = must_alloc(n_scores * sizeof *want), *got = must_alloc(n_scores * sizeof *got);
    float *acc = random_floats(n_acc), *want_acc = must_alloc(n_acc * sizeof *acc),
          *got_acc = must_alloc(n_acc * sizeof *acc), *p = random_floats(n_scores);
    memcpy(want_acc, acc, n_acc * sizeof *acc);
    for (uint32_t i = 0; i < heads; i++) {
        h[i] = make_head(type, dim, n);
        queries[i] = h[i].query;
        scalar->attn_scores[type](&queries[i], 1, &h[0].kv, 0.5f, want + (size_t)i * n);
        scalar->attn_values[type](p + (size_t)i * n, 1, &h[0].kv, want_acc + (size_t)i * dim);
    }
    for (unsigned v = 0; v <= n_variants; v++) {
        const struct sl_kernels *k = v < n_variants ? variants[v] : scalar;
        char what[80];
        snprintf(what, sizeof what, "%s type %d head %u positions %u heads %u", k->isa, type, dim,
                 n, heads);
        k->attn_scores[type](queries, heads, &h[0].kv, 0.5f, got);
        check_same(want, got, n_scores, what);
        memcpy(got_acc, acc, n_acc * sizeof *acc);
        k->attn_values[type](p, heads, &h[0].kv, got_acc);
        check_same(want_acc, got_acc, n_acc, what);
    }
    for (uint32_t i = 0; i < heads; i++) free_head(h[i]);
    free(want);
    free(got);
    free(acc);
    free(want_acc);
    free(got_acc);
    free(p);
}

static void test_attention__heads_that_share_keys__bits_of_each_alone(void **state)
{
    (void)state;
    static const uint32_t dims[] = {8, 20, 64, 80, 128, 256};
    static const uint32_t positions[] = {1, 15, 16, 17, 64, 81};
    for (int type = 0; type < SL_KV_TYPES; type++)
        for (size_t d = 0; d < SL_ARRAY_LEN(dims); d++)
            for (size_t n = 0; n < SL_ARRAY_LEN(positions); n++)
                for (uint32_t heads = 2; heads <= HEADS_MAX; heads += heads < 9 ? 1 : 12)
                    check_heads(type, dims[d], positions[n], heads);
}

/* int8 keys and values cost at most a few thousandths here; f32 and f16 only their rounding. */
static void test_attention__scalar__close_to_double(void **state)
{
    (void)state;
    static const double tolerance[SL_KV_TYPES] = {1e-5, 2e-3, 2e-2};
    for (int type = 0; type < SL_KV_TYPES; type++) {
        uint32_t dim = 80, n = 33;
        struct head h = make_head(type, dim, n);
        float scores[33], acc[80] = {0};
        scalar->attn_scores[type](&h.query, 1, &h.kv, 0.1f, scores);
        scalar->attn_values[type](h.p, 1, &h.kv, acc);
        for (uint32_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (uint32_t i = 0; i < dim; i++) {
                double v = (double)h.f[i] * (double)h.x[j * dim + i];
                sum += v;
                magnitude += fabs(v);
            }
            assert_true(fabs((double)scores[j] - 0.1 * sum) < tolerance[type] * 0.1 * magnitude);
        }
        for (uint32_t i = 0; i < dim; i++) {
            double sum = 0, magnitude = 0;
            for (uint32_t j = 0; j < n; j++) {
                double v = (double)h.p[j] * (double)h.x[j * dim + i];
                sum += v;
                magnitude += fabs(v);
            }
            assert_true(fabs((double)acc[i] - sum) < tolerance[type] * magnitude);
        }
        free_head(h);
    }
}

/* Codes at their extremes: int8 -128 cannot be stored by us, but a damaged cache may hold it. */
static void test_attention__extreme_codes__bits_of_scalar(void **state)
{
    (void)state;
    static const int8_t keys[] = {127, -127, -128};
    static const int16_t queries[] = {32767, -32767};
    for (size_t k = 0; k < 3; k++)
        for (size_t q = 0; q < 2; q++) {
            struct head h = make_head(SL_KV_Q8, 256, 9);
            memset(h.cache.data, keys[k], 256 * 9);
            for (uint32_t i = 0; i < 256; i++) h.q[i] = queries[q];
            const struct sl_k_query heads[4] = {h.query, h.query, h.query, h.query};
            float want[4 * 9], got[4 * 9];
            scalar->attn_scores[SL_KV_Q8](heads, 4, &h.kv, 1.0f, want);
            for (unsigned v = 0; v < n_variants; v++) {
                variants[v]->attn_scores[SL_KV_Q8](heads, 4, &h.kv, 1.0f, got);
                check_same(want, got, 4 * 9, "extreme codes");
                variants[v]->attn_scores[SL_KV_Q8](heads, 1, &h.kv, 1.0f, got);
                check_same(want, got, 9, "extreme codes");
            }
            free_head(h);
        }
}

/* ---- the table ------------------------------------------------------------------------------- */

static void test_select__scalar_and_auto__complete_tables(void **state)
{
    (void)state;
    const struct sl_kernels *best;
    sluice_error e;
    assert_int_equal(sl_kernels_select(SL_ISA_AUTO, &e, &best), SLUICE_OK);
    assert_string_equal(scalar->isa, "scalar");
    assert_string_equal(best->isa, n_variants > 0 ? variants[n_variants - 1]->isa : "scalar");
    for (size_t i = 0; i < SL_ARRAY_LEN(types); i++) {
        assert_non_null(scalar->matmul[SL_TYPE_SLOT(types[i])]);
        assert_non_null(best->matmul[SL_TYPE_SLOT(types[i])]);
    }
    for (uint32_t slot = 0; slot < SL_TYPE_SLOTS; slot++)
        assert_int_equal(scalar->matmul[slot] != NULL, sl_type_info(sl_type_of_slot(slot)) != NULL);
}

static void test_select__missing_instruction_set__unsupported_with_a_sentence(void **state)
{
    (void)state;
    const struct sl_kernels *k = scalar;
    sluice_error e;
    assert_int_equal(sl_kernels_select((enum sl_isa)99, &e, &k), SLUICE_E_UNSUPPORTED);
    assert_null(k);
}

static void test_act_kind__types__by_block_size(void **state)
{
    (void)state;
    assert_int_equal(sl_k_act_kind(SL_TYPE_BF16), SL_ACT_F32);
    assert_int_equal(sl_k_act_kind(SL_TYPE_MXFP4), SL_ACT_Q8_32);
    assert_int_equal(sl_k_act_kind(SL_TYPE_IQ4_XS), SL_ACT_Q8_256);
    assert_int_equal(sl_k_act_kind(SL_TYPE_Q4_K), SL_ACT_Q8_256);
    assert_int_equal(sl_k_act_kind(SL_TYPE_Q3_K), SL_ACT_Q8_256_ROUGH);
    assert_int_equal(sl_k_act_kind(SL_TYPE_Q2_K), SL_ACT_Q8_256_ROUGH);
    assert_int_equal(sl_k_act_kind(SL_SQ4_16), SL_ACT_Q8_32_ROUGH);
    assert_int_equal(sl_k_act_kind(SL_SQ5_32), SL_ACT_Q8_32);
    assert_int_equal(sl_k_act_block(SL_ACT_Q8_32_ROUGH), 32);
    assert_int_equal(sl_k_act_block(SL_ACT_Q8_256_ROUGH), 256);
}

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
        cmocka_unit_test(test_matmul__rows_and_tokens__bits_of_scalar),
        cmocka_unit_test(test_matmul__lengths__bits_of_scalar),
        cmocka_unit_test(test_matmul__misaligned_weights__bits_of_scalar),
        cmocka_unit_test(test_matmul__extremes__bits_of_scalar),
        cmocka_unit_test(test_matmul__random_hostile_blocks__bits_of_scalar),
        cmocka_unit_test(test_matmul__scalar__is_the_product_of_the_decoded_weights),
        cmocka_unit_test(test_quantize__random_and_special__bits_of_scalar),
        cmocka_unit_test(test_quantize__ties__go_to_the_even_code),
        cmocka_unit_test(test_quantize__zero_and_vanishing__all_zero),
        cmocka_unit_test(test_quantize__nan_or_infinity_anywhere__refused),
        cmocka_unit_test(test_vector__every_length__bits_of_scalar),
        cmocka_unit_test(test_vector__nan_and_infinity__bits_of_scalar),
        cmocka_unit_test(test_exp_sum__whole_range__bits_of_scalar),
        cmocka_unit_test(test_max__zeros_of_both_signs__plus_zero),
        cmocka_unit_test(test_vector__scalar__close_to_double),
        cmocka_unit_test(test_rope__every_width__bits_of_scalar_and_a_rotation),
        cmocka_unit_test(test_store_kv__every_head_size__bits_of_scalar),
        cmocka_unit_test(test_store_kv__not_finite_or_too_large__refused),
        cmocka_unit_test(test_store_kv__q8__error_is_half_a_code),
        cmocka_unit_test(test_quantize_query__every_length__bits_of_scalar),
        cmocka_unit_test(test_attention__head_sizes_and_positions__bits_of_scalar),
        cmocka_unit_test(test_attention__heads_that_share_keys__bits_of_each_alone),
        cmocka_unit_test(test_attention__scalar__close_to_double),
        cmocka_unit_test(test_attention__extreme_codes__bits_of_scalar),
        cmocka_unit_test(test_select__scalar_and_auto__complete_tables),
        cmocka_unit_test(test_select__missing_instruction_set__unsupported_with_a_sentence),
        cmocka_unit_test(test_act_kind__types__by_block_size),
    };
    return cmocka_run_group_tests(tests, find_variants, NULL);
}
