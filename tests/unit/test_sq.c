/* The container's own weight types: sizes and layout against docs/FORMAT.md, written down here a
 * second time; the encoder against an exhaustive search, against what its errors should be, and at
 * the ends of float32; the same bytes with every compiler. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "formats/checksum.h"
#include "formats/half.h"
#include "formats/sq.h"

#define COLS_MAX 1024
#define UNIT_MAX 200
#define BAND_MAX (16 + COLS_MAX / 32 * UNIT_MAX)

/* What the types are: bits, columns of a group, bytes of a unit, first offset, step, levels. */
static const uint8_t by2[] = {0, 26, 43, 63};
static const uint8_t by3[] = {0, 14, 24, 32, 38, 45, 52, 63};
static const uint8_t by4[] = {0, 8, 13, 17, 21, 25, 28, 31, 34, 37, 40, 43, 47, 51, 56, 63};
static const uint8_t by5[] = {0,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                              32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 63};
static uint8_t by6[64]; /* 0 to 63, see main */
static const struct {
    uint32_t type, bits, group, unit, base, step;
    const char *name;
    const uint8_t *levels;
} facts[SL_SQ_TYPES] = {
    {256, 2, 32, 72, 26, 3, "SQ2_32", by2},  {257, 2, 16, 80, 26, 3, "SQ2_16", by2},
    {258, 3, 32, 104, 32, 2, "SQ3_32", by3}, {259, 3, 16, 112, 32, 2, "SQ3_16", by3},
    {260, 4, 32, 136, 31, 2, "SQ4_32", by4}, {261, 4, 16, 144, 31, 2, "SQ4_16", by4},
    {262, 5, 32, 168, 25, 2, "SQ5_32", by5}, {263, 6, 32, 200, 29, 2, "SQ6_32", by6},
};

static uint32_t seed = 1;

static uint32_t next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* About normal, variance 1, and exact: a sum of twelve multiples of 2^-24. */
static float normal(void)
{
    int32_t sum = -6 * (1 << 24);
    for (int i = 0; i < 12; i++) sum += (int32_t)next();
    return (float)sum / (float)(1 << 24);
}

static void fill_normal(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) x[i] = normal();
}

static struct sl_sq_error encode(uint32_t type, const struct sl_sq_source *src, uint8_t *band)
{
    struct sl_sq_error err = {0};
    assert_true(sl_sq_encode_band(sl_sq_info(type), src, band, &err));
    return err;
}

static double relative(const struct sl_sq_error *e) { return sqrt(e->plain / e->plain_all); }

/* ---- what the bits mean --------------------------------------------------------------------- */

static void test_info__every_type__is_as_specified(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SL_SQ_TYPES; i++) {
        const struct sl_sq_info *info = sl_sq_info(facts[i].type);
        assert_non_null(info);
        assert_string_equal(info->name, facts[i].name);
        assert_int_equal(info->bits, facts[i].bits);
        assert_int_equal(info->group_cols, facts[i].group);
        assert_int_equal(info->unit_bytes, facts[i].unit);
        assert_int_equal(info->offset_base, facts[i].base);
        assert_int_equal(info->offset_step, facts[i].step);
        assert_memory_equal(info->levels, facts[i].levels, 1u << info->bits);
    }
    assert_null(sl_sq_info(255));
    assert_null(sl_sq_info(264));
    assert_null(sl_sq_info(0));
    assert_null(sl_sq_info(UINT32_MAX));
}

static void test_bytes__rows_and_columns__bands_of_whole_units(void **state)
{
    (void)state;
    uint64_t bytes = 1;
    assert_true(sl_sq_band_bytes(SL_SQ3_32, 2048, &bytes));
    assert_int_equal(bytes, 16 + 64 * 104);
    assert_true(sl_sq_matrix_bytes(SL_SQ3_32, 512, 2048, &bytes));
    assert_int_equal(bytes, 64 * (16 + 64 * 104));
    assert_true(sl_sq_matrix_bytes(SL_SQ4_16, 9, 32, &bytes));
    assert_int_equal(bytes, 2 * (16 + 144));
    assert_true(sl_sq_matrix_bytes(SL_SQ4_16, SL_ROWS_MAX, SL_COLS_MAX, &bytes));
    assert_true(bytes == (uint64_t)SL_ROWS_MAX / 8 * (16 + (uint64_t)SL_COLS_MAX / 32 * 144));
}

static void test_bytes__impossible_sizes__refused(void **state)
{
    (void)state;
    uint64_t bytes = 77;
    assert_false(sl_sq_band_bytes(SL_SQ3_32, 0, &bytes));
    assert_false(sl_sq_band_bytes(SL_SQ3_32, 31, &bytes));
    assert_false(sl_sq_band_bytes(SL_SQ3_32, 48, &bytes));
    assert_false(sl_sq_band_bytes(SL_SQ3_32, (uint64_t)SL_COLS_MAX + 32, &bytes));
    assert_false(sl_sq_band_bytes(SL_SQ3_32, UINT64_MAX - 31, &bytes));
    assert_false(sl_sq_band_bytes(12, 256, &bytes));
    assert_false(sl_sq_matrix_bytes(SL_SQ3_32, 0, 256, &bytes));
    assert_false(sl_sq_matrix_bytes(SL_SQ3_32, (uint64_t)SL_ROWS_MAX + 1, 256, &bytes));
    assert_false(sl_sq_matrix_bytes(SL_SQ3_32, UINT64_MAX, 256, &bytes));
    assert_int_equal(bytes, 77);
}

/* FORMAT.md's table of where the bits of a code are, as a list of (byte, bit), lowest bit first. */
static uint32_t code_by_text(uint32_t bits, const uint8_t *unit, uint32_t row, uint32_t col)
{
    static const uint8_t place3[8][3][2] = {
        {{0, 0}, {0, 1}, {0, 2}}, {{0, 3}, {0, 4}, {0, 5}}, {{1, 0}, {1, 1}, {1, 2}},
        {{1, 3}, {1, 4}, {1, 5}}, {{2, 0}, {2, 1}, {2, 2}}, {{2, 3}, {2, 4}, {2, 5}},
        {{0, 6}, {0, 7}, {2, 6}}, {{1, 6}, {1, 7}, {2, 7}},
    };
    uint32_t code = 0, quad = col / 4;
    for (uint32_t b = 0; b < bits; b++) {
        uint32_t plane = quad * bits / 8, bit = quad * bits % 8 + b;
        if (bits == 3) {
            plane = place3[quad][b][0];
            bit = place3[quad][b][1];
        } else if (bits > 4) {
            plane = b < 4 ? quad / 2 : bits == 5 ? 4 : 4 + quad / 4;
            bit = b < 4 ? quad % 2 * 4 + b : bits == 5 ? quad : quad % 4 * 2 + b - 4;
        }
        code |= (uint32_t)(unit[32 * plane + 4 * row + col % 4] >> bit & 1) << b;
    }
    return code;
}

static void test_unpack__any_bytes__levels_less_offsets(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        uint8_t unit[UNIT_MAX];
        struct sl_sq_unit out;
        for (uint32_t i = 0; i < facts[t].unit; i++) unit[i] = (uint8_t)next();
        sl_sq_unpack(sl_sq_info(facts[t].type), unit, &out);
        for (uint32_t r = 0; r < 8; r++) {
            for (uint32_t c = 0; c < 32; c++) {
                uint32_t half = facts[t].group == 16 ? c / 16 : 0;
                uint32_t s = unit[32 * facts[t].bits + 8 * half + r];
                int offset = (int)(facts[t].base + facts[t].step * (s / 16 % 8));
                int level = facts[t].levels[code_by_text(facts[t].bits, unit, r, c)];
                assert_int_equal(out.row[r].v[c], level - offset);
                assert_int_equal(out.row[r].m[c / 16], (int)(s % 16 + 1) * (s < 128 ? 1 : -1));
            }
        }
    }
}

static void test_put_code__all_places__come_back_and_touch_nothing_else(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        const struct sl_sq_info *info = sl_sq_info(facts[t].type);
        uint8_t unit[UNIT_MAX] = {0}, codes[8][32];
        for (uint32_t i = 0; i < 256; i++) {
            codes[i / 32][i % 32] = (uint8_t)(next() >> 5 & ((1u << info->bits) - 1));
            sl_sq_put_code(info, unit, i / 32, i % 32, codes[i / 32][i % 32]);
        }
        for (uint32_t i = 0; i < 256; i++)
            assert_int_equal(code_by_text(info->bits, unit, i / 32, i % 32), codes[i / 32][i % 32]);
        for (uint32_t i = 32 * info->bits; i < sizeof unit; i++) assert_int_equal(unit[i], 0);
    }
}

static void test_decode__a_band__products_of_its_integers(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        const struct sl_sq_info *info = sl_sq_info(facts[t].type);
        uint8_t band[16 + 2 * UNIT_MAX + 1], *odd = band + 1;
        float y[64];
        for (uint32_t i = 0; i < sizeof band; i++) band[i] = (uint8_t)next();
        for (uint32_t r = 0; r < 8; r++) odd[2 * r + 1] = (uint8_t)(0x3c + r); /* finite scales */
        for (uint32_t r = 0; r < 8; r++) {
            sl_sq_decode_row(info, odd, r, 64, y);
            float d = sl_bf16_to_f32((uint16_t)(odd[2 * r] | odd[2 * r + 1] << 8));
            for (uint32_t c = 0; c < 64; c++) {
                struct sl_sq_unit u;
                sl_sq_unpack(info, odd + 16 + c / 32 * info->unit_bytes, &u);
                int k = u.row[r].m[c % 32 / 16] * u.row[r].v[c % 32];
                assert_true(y[c] == d * (float)k);
                assert_true((double)y[c] == (double)d * k); /* exact */
            }
        }
    }
}

/* ---- the encoder ---------------------------------------------------------------------------- */

/* The least error of n weights, over all scale bytes and codes, with row scale d. */
static double exhaustive(uint32_t t, const float *x, uint32_t n, double d)
{
    double least = INFINITY;
    for (int byte = 0; byte < 256; byte++) {
        double s = d * (byte % 16 + 1) * (byte < 128 ? 1 : -1), sum = 0.0;
        double offset = facts[t].base + facts[t].step * (byte / 16 % 8);
        for (uint32_t i = 0; i < n; i++) {
            double best = INFINITY;
            for (uint32_t k = 0; k < 1u << facts[t].bits; k++) {
                double e = (double)x[i] - s * (facts[t].levels[k] - offset);
                if (e * e < best) best = e * e; /* gcc 12 for ARM fails on fmin here */
            }
            sum += best;
        }
        if (sum < least) least = sum;
    }
    return least;
}

/* A row is stretched once its codes are chosen: with 2 bits by a tenth, which costs a tenth. */
static void test_encode__groups__hardly_worse_than_exhaustive_search(void **state)
{
    (void)state;
    static const double most[] = {[2] = 1.12, [3] = 1.03, [4] = 1.02, [5] = 1.02, [6] = 1.02};
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        double found = 0.0, least = 0.0;
        for (int run = 0; run < 12; run++) {
            float x[8 * 64];
            uint8_t band[16 + 2 * UNIT_MAX];
            fill_normal(x, 512);
            const struct sl_sq_source src = {x, 64, 8, 64, NULL};
            found += encode(facts[t].type, &src, band).plain;
            for (uint32_t r = 0; r < 8; r++) {
                double d = sl_bf16_to_f32(sl_load_u16(band + 2 * r));
                for (uint32_t c = 0; c < 64; c += facts[t].group)
                    least += exhaustive(t, x + 64 * r + c, facts[t].group, d);
            }
        }
        assert_true(found >= least * (1 - 1e-9));
        assert_true(found <= least * most[facts[t].bits]);
    }
}

static void test_encode__normal_numbers__errors_as_measured(void **state)
{
    (void)state;
    static const double most[SL_SQ_TYPES] = {0.3020, 0.2580, 0.1430, 0.1205,
                                             0.0705, 0.0592, 0.0368, 0.0196};
    static float x[8 * COLS_MAX];
    static uint8_t band[BAND_MAX];
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        fill_normal(x, 8 * COLS_MAX);
        const struct sl_sq_source src = {x, COLS_MAX, 8, COLS_MAX, NULL};
        struct sl_sq_error e = encode(facts[t].type, &src, band);
        assert_true(relative(&e) <= most[t]);
        assert_true(relative(&e) >= most[t] * 0.97); /* or the bound is out of date */
    }
}

static void test_encode__error_sums__are_those_of_the_decoded_band(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        float x[8 * 96], w[96], y[96];
        uint8_t band[16 + 3 * UNIT_MAX];
        double sums[4] = {0}, mean = 0.0;
        fill_normal(x, 8 * 96);
        for (uint32_t c = 0; c < 96; c++) w[c] = (float)(next() % 1000);
        for (uint32_t c = 0; c < 96; c++) mean += (double)w[c] / 96;
        const struct sl_sq_source src = {x, 96, 8, 96, w};
        struct sl_sq_error e = encode(facts[t].type, &src, band);
        for (uint32_t r = 0; r < 8; r++) {
            sl_sq_decode_row(sl_sq_info(facts[t].type), band, r, 96, y);
            for (uint32_t c = 0; c < 96; c++) {
                double v = x[96 * r + c], off = v - y[c], weight = w[c] + mean / 1000;
                sums[0] += weight * off * off;
                sums[1] += weight * v * v;
                sums[2] += off * off;
                sums[3] += v * v;
            }
        }
        assert_true(fabs(e.weighted - sums[0]) <= 1e-6 * sums[0]); /* float32 */
        assert_true(fabs(e.weighted_all - sums[1]) <= 1e-6 * sums[1]);
        assert_true(fabs(e.plain - sums[2]) <= 1e-9 * sums[2]);
        assert_true(fabs(e.plain_all - sums[3]) <= 1e-9 * sums[3]);
    }
}

static void test_encode__weights__lower_what_they_weigh(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        float x[8 * 256], w[256];
        uint8_t band[16 + 8 * UNIT_MAX];
        fill_normal(x, 8 * 256);
        for (uint32_t c = 0; c < 256; c++) w[c] = c % 8 == 3 ? 100.0f : 1.0f;
        struct sl_sq_source src = {x, 256, 8, 256, w};
        struct sl_sq_error with = encode(facts[t].type, &src, band);
        src.weights = NULL;
        struct sl_sq_error without = encode(facts[t].type, &src, band);
        /* Errors are spread evenly without weights, so their weighted sum is the plain one's. */
        assert_true(with.weighted / with.weighted_all < 0.8 * without.plain / without.plain_all);
        assert_true(with.plain > without.plain);
    }
}

/* The nearest codes alone would leave a row shorter than it was, in its own direction, by 2 % with
 * 3 bits and 8 % with 2. What is left is the rounding of the row scale. */
static void test_encode__rows__do_not_shrink(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        float x[8 * 256], w[256], y[256];
        uint8_t band[16 + 8 * UNIT_MAX];
        fill_normal(x, 8 * 256);
        for (uint32_t c = 0; c < 256; c++) w[c] = (float)(1 + next() % 64) / 8.0f;
        struct sl_sq_source src = {x, 256, 8, 256, t % 2 == 0 ? w : NULL};
        (void)encode(facts[t].type, &src, band);
        for (uint32_t r = 0; r < 8; r++) {
            double now = 0.0, before = 0.0;
            sl_sq_decode_row(sl_sq_info(facts[t].type), band, r, 256, y);
            for (uint32_t c = 0; c < 256; c++) {
                double weight = t % 2 == 0 ? (double)w[c] : 1.0;
                now += weight * x[256 * r + c] * y[c];
                before += weight * x[256 * r + c] * x[256 * r + c];
            }
            assert_true(fabs(now / before - 1.0) <= 0.0041); /* 2^-8 and a little */
        }
    }
}

static void test_encode__columns_of_weight_zero__still_encoded(void **state)
{
    (void)state;
    float x[8 * 64], w[64] = {0};
    uint8_t band[16 + 2 * 104], plain[16 + 2 * 104];
    fill_normal(x, 512);
    struct sl_sq_source src = {x, 64, 8, 64, w};
    (void)encode(SL_SQ3_32, &src, band);
    src.weights = NULL;
    (void)encode(SL_SQ3_32, &src, plain);
    assert_memory_equal(band, plain, sizeof band);
    for (uint32_t c = 0; c < 32; c++) w[c] = 1.0f;
    src.weights = w;
    struct sl_sq_error e = encode(SL_SQ3_32, &src, band);
    assert_true(relative(&e) < 0.2);
}

static void test_encode__zeros__stay_zeros(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        float x[8 * 96], y[96];
        uint8_t band[16 + 3 * UNIT_MAX];
        fill_normal(x, 8 * 96);
        for (uint32_t r = 0; r < 8; r++) memset(x + 96 * r + 32, 0, 32 * sizeof *x);
        memset(x + 96 * 5, 0, 96 * sizeof *x);
        const struct sl_sq_source src = {x, 96, 8, 96, NULL};
        (void)encode(facts[t].type, &src, band);
        for (uint32_t r = 0; r < 8; r++) {
            sl_sq_decode_row(sl_sq_info(facts[t].type), band, r, 96, y);
            for (uint32_t c = 32; c < 64; c++) assert_true(y[c] == 0.0f);
            for (uint32_t c = 0; c < 96 && r == 5; c++) assert_true(y[c] == 0.0f);
        }
    }
}

static void test_encode__fewer_than_eight_rows__the_rest_is_zero(void **state)
{
    (void)state;
    float x[3 * 80], y[64];
    uint8_t band[16 + 2 * 104], one[16 + 2 * 104];
    fill_normal(x, 240);
    struct sl_sq_source src = {x, 80, 3, 64, NULL};
    (void)encode(SL_SQ3_32, &src, band);
    for (uint32_t r = 3; r < 8; r++) {
        sl_sq_decode_row(sl_sq_info(SL_SQ3_32), band, r, 64, y);
        for (uint32_t c = 0; c < 64; c++) assert_true(y[c] == 0.0f);
    }
    src = (struct sl_sq_source){x + 160, 80, 1, 64, NULL}; /* a row does not depend on others */
    (void)encode(SL_SQ3_32, &src, one);
    float z[64];
    sl_sq_decode_row(sl_sq_info(SL_SQ3_32), band, 2, 64, y);
    sl_sq_decode_row(sl_sq_info(SL_SQ3_32), one, 0, 64, z);
    assert_memory_equal(y, z, sizeof y);
}

/* A row times a power of two is a row with another scale. */
static void test_encode__any_magnitude__same_codes(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        float x[8 * 64], scaled[8 * 64];
        uint8_t band[16 + 2 * UNIT_MAX], other[16 + 2 * UNIT_MAX];
        uint64_t bytes;
        assert_true(sl_sq_band_bytes(facts[t].type, 64, &bytes));
        fill_normal(x, 512);
        struct sl_sq_source src = {x, 64, 8, 64, NULL};
        (void)encode(facts[t].type, &src, band);
        src.x = scaled;
        for (int e = -110; e <= 120; e += 23) {
            for (uint32_t i = 0; i < 512; i++) scaled[i] = ldexpf(x[i], e);
            (void)encode(facts[t].type, &src, other);
            assert_memory_equal(band + 16, other + 16, bytes - 16);
            for (uint32_t r = 0; r < 8; r++) {
                float d = sl_bf16_to_f32(sl_load_u16(band + 2 * r));
                assert_true(sl_bf16_to_f32(sl_load_u16(other + 2 * r)) == ldexpf(d, e));
            }
        }
    }
}

/* A bfloat16 cannot hold the scale of a row whose largest weight is subnormal: it decodes as zeros
 * or as coarse steps. Nor can it be large enough for the last factor of two below infinity, where
 * weights are cut off. */
static void test_encode__ends_of_float32__decode_finite_and_near(void **state)
{
    (void)state;
    static const float largest[] = {FLT_MAX, 1e38f, 1e-36f, FLT_MIN, 1e-39f, 1e-41f, FLT_TRUE_MIN};
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        for (size_t k = 0; k < SL_ARRAY_LEN(largest); k++) {
            float x[8 * 32], y[32];
            uint8_t band[16 + UNIT_MAX];
            for (uint32_t i = 0; i < 256; i++)
                x[i] = i % 7 == 0 ? largest[k] : -largest[k] * ((float)(next() % 100) * 0.01f);
            const struct sl_sq_source src = {x, 32, 8, 32, NULL};
            (void)encode(facts[t].type, &src, band);
            double most = largest[k] < 1e-37f ? 1.0 : largest[k] > 2e38f ? 0.8 : 0.5;
            for (uint32_t r = 0; r < 8; r++) {
                sl_sq_decode_row(sl_sq_info(facts[t].type), band, r, 32, y);
                for (uint32_t c = 0; c < 32; c++) {
                    assert_true(isfinite(y[c]));
                    assert_true(fabs((double)y[c] - x[32 * r + c]) <= most * largest[k]);
                }
            }
        }
    }
}

/* A group with an outlier needs a scale that would be coarse for the others. */
static void test_encode__an_outlier__spoils_its_own_group_only(void **state)
{
    (void)state;
    float x[8 * 256], y[256];
    uint8_t band[16 + 8 * 104];
    double rest = 0.0;
    fill_normal(x, 8 * 256);
    for (uint32_t r = 0; r < 8; r++) x[256 * r + 7] = 20.0f;
    const struct sl_sq_source src = {x, 256, 8, 256, NULL};
    (void)encode(SL_SQ3_32, &src, band);
    for (uint32_t r = 0; r < 8; r++) {
        sl_sq_decode_row(sl_sq_info(SL_SQ3_32), band, r, 256, y);
        assert_true(fabsf(y[7] - 20.0f) < 3.0f);
        for (uint32_t c = 32; c < 256; c++) rest += pow((double)y[c] - x[256 * r + c], 2);
    }
    assert_true(rest / (8 * 224) < 0.03); /* of a variance of 1; without outliers 0.02 */
}

static void test_encode__not_finite__refused_and_nothing_counted(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[8 * 32], w[32];
    uint8_t band[16 + 104];
    const struct sl_sq_info *info = sl_sq_info(SL_SQ3_32);
    const struct sl_sq_source src = {x, 32, 8, 32, w};
    for (size_t k = 0; k < 3; k++) {
        struct sl_sq_error e = {1, 2, 3, 4};
        fill_normal(x, 256);
        for (uint32_t c = 0; c < 32; c++) w[c] = 1.0f;
        x[200] = bad[k];
        assert_false(sl_sq_encode_band(info, &src, band, &e));
        x[200] = 0.0f;
        w[31] = bad[k];
        assert_false(sl_sq_encode_band(info, &src, band, &e));
        w[31] = -1.0f;
        assert_false(sl_sq_encode_band(info, &src, band, &e));
        assert_true(e.weighted == 1 && e.weighted_all == 2 && e.plain == 3 && e.plain_all == 4);
        w[31] = 0.0f;
        assert_true(sl_sq_encode_band(info, &src, band, &e));
    }
}

/* Bytes that every compiler and processor has to give: files are compared and resumed by them. */
static void test_encode__fixed_input__fixed_bytes(void **state)
{
    (void)state;
    static const uint64_t sums[SL_SQ_TYPES] = {
        0x2ef428779a1ebe65, 0xf3d4b1fa7bb95be2, 0x6add989a41f9f33b, 0x9a1f16d4d29574d7,
        0xd21ff6945c7f308e, 0x3983a1bcac3b7b2b, 0xbc5b42389e8bb985, 0x5ef411ba5a8b2683};
    static float x[8 * 256], w[256];
    seed = 20261130;
    fill_normal(x, 8 * 256);
    for (uint32_t c = 0; c < 256; c++) w[c] = (float)(1 + next() % 64) / 8.0f;
    for (uint32_t i = 0; i < 8 * 256; i += 61) x[i] *= 5.0f; /* so that row scales are compared */
    for (uint32_t t = 0; t < SL_SQ_TYPES; t++) {
        uint8_t band[16 + 8 * UNIT_MAX];
        uint64_t bytes;
        const struct sl_sq_source src = {x, 256, 8, 256, w};
        (void)encode(facts[t].type, &src, band);
        assert_true(sl_sq_band_bytes(facts[t].type, 256, &bytes));
        assert_int_equal(sl_xxh3(band, bytes), sums[t]);
    }
}

int main(void)
{
    for (uint8_t i = 0; i < 64; i++) by6[i] = i;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info__every_type__is_as_specified),
        cmocka_unit_test(test_bytes__rows_and_columns__bands_of_whole_units),
        cmocka_unit_test(test_bytes__impossible_sizes__refused),
        cmocka_unit_test(test_unpack__any_bytes__levels_less_offsets),
        cmocka_unit_test(test_put_code__all_places__come_back_and_touch_nothing_else),
        cmocka_unit_test(test_decode__a_band__products_of_its_integers),
        cmocka_unit_test(test_encode__groups__hardly_worse_than_exhaustive_search),
        cmocka_unit_test(test_encode__normal_numbers__errors_as_measured),
        cmocka_unit_test(test_encode__error_sums__are_those_of_the_decoded_band),
        cmocka_unit_test(test_encode__weights__lower_what_they_weigh),
        cmocka_unit_test(test_encode__rows__do_not_shrink),
        cmocka_unit_test(test_encode__columns_of_weight_zero__still_encoded),
        cmocka_unit_test(test_encode__zeros__stay_zeros),
        cmocka_unit_test(test_encode__fewer_than_eight_rows__the_rest_is_zero),
        cmocka_unit_test(test_encode__any_magnitude__same_codes),
        cmocka_unit_test(test_encode__ends_of_float32__decode_finite_and_near),
        cmocka_unit_test(test_encode__an_outlier__spoils_its_own_group_only),
        cmocka_unit_test(test_encode__not_finite__refused_and_nothing_counted),
        cmocka_unit_test(test_encode__fixed_input__fixed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
