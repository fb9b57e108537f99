/* Floats to Q8_0, half precision and bfloat16: bytes of the reference quantizer (vectors of the
 * Python package gguf, written by tools/dev/check_decode.py), and what cannot be stored is refused.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/encode_q8_0.h"
#include "formats/half.h"
#include "formats/tensor_type.h"

#define BLOCKS 64

static void test_q8_0__golden_vectors__bytes_of_the_reference(void **state)
{
    (void)state;
    static uint8_t file[4 + BLOCKS * (128 + 34) + 1], got[1 + BLOCKS * 34];
    static float x[BLOCKS * 32];
    FILE *f = fopen(SLUICE_SOURCE_DIR "/tests/golden/decode/encode_Q8_0.bin", "rb");
    assert_non_null(f);
    assert_int_equal(fread(file, 1, sizeof file, f), sizeof file - 1);
    fclose(f);
    assert_int_equal(sl_load_u32(file), BLOCKS);
    memcpy(x, file + 4, sizeof x);
    assert_true(sl_encode_q8_0(x, BLOCKS * 32, got + 1));
    assert_memory_equal(got + 1, file + 4 + sizeof x, BLOCKS * 34);
}

static void test_q8_0__any_magnitude__half_a_step_off_at_most(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int exponent = -20; exponent <= 22; exponent++) {
        float x[32], y[32], max = 0.0f;
        uint8_t block[34];
        for (int i = 0; i < 32; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = ldexpf((float)(int32_t)seed / 2147483648.0f, exponent);
            max = fmaxf(max, fabsf(x[i]));
        }
        assert_true(sl_encode_q8_0(x, 32, block));
        sl_type_info(SL_TYPE_Q8_0)->decode(block, y, 32);
        /* Half a step, and what rounding the scale to half precision moves a code of 127. */
        float most = max / 127.0f * 0.5001f + 127.0f * fmaxf(max / 127.0f * 0x1p-11f, 0x1p-25f);
        for (int i = 0; i < 32; i++) assert_true(fabsf(x[i] - y[i]) <= most);
    }
}

static void test_q8_0__zero_and_vanishing__decode_as_zero(void **state)
{
    (void)state;
    static const float tiny[] = {0.0f, -0.0f, 0x1p-149f, -1e-40f, 0x1p-122f, 1e-30f};
    for (size_t t = 0; t < SL_ARRAY_LEN(tiny); t++) {
        float x[32], y[32];
        uint8_t block[34];
        for (int i = 0; i < 32; i++) x[i] = i % 3 == 0 ? tiny[t] : 0.0f;
        assert_true(sl_encode_q8_0(x, 32, block));
        sl_type_info(SL_TYPE_Q8_0)->decode(block, y, 32);
        for (int i = 0; i < 32; i++) assert_true(y[i] == 0.0f);
    }
}

static void test_encode__not_finite_or_too_large__refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    uint8_t out[128];
    float x[64] = {1.0f};
    for (int at = 0; at < 64; at++)
        for (size_t k = 0; k < SL_ARRAY_LEN(bad); k++) {
            x[at] = bad[k];
            assert_false(sl_encode_q8_0(x, 64, out));
            assert_false(sl_encode_f16(x, 64, out));
            assert_false(sl_encode_bf16(x, 64, out));
            x[at] = 1.0f;
        }
    x[40] = 65504.0f * 127.0f; /* the largest scale there is */
    assert_true(sl_encode_q8_0(x, 64, out));
    x[40] = 65520.0f * 127.0f; /* rounds to infinity */
    assert_false(sl_encode_q8_0(x, 64, out));
    x[40] = -65504.0f;
    assert_true(sl_encode_f16(x, 64, out));
    x[40] = -65520.0f;
    assert_false(sl_encode_f16(x, 64, out));
    assert_true(sl_encode_bf16(x, 64, out));
    x[40] = FLT_MAX;
    assert_false(sl_encode_bf16(x, 64, out));
}

static void test_encode__halves__nearest_in_order_at_any_alignment(void **state)
{
    (void)state;
    static const float x[] = {1.0f, -2.5f, 0.1f, 1e-8f, -0.0f, 65519.0f};
    uint8_t out[2 * SL_ARRAY_LEN(x) + 1];
    assert_true(sl_encode_f16(x, SL_ARRAY_LEN(x), out + 1));
    for (size_t i = 0; i < SL_ARRAY_LEN(x); i++)
        assert_int_equal(sl_load_u16(out + 1 + 2 * i), sl_f32_to_f16(x[i]));
    assert_true(sl_encode_bf16(x, SL_ARRAY_LEN(x), out + 1));
    for (size_t i = 0; i < SL_ARRAY_LEN(x); i++)
        assert_int_equal(sl_load_u16(out + 1 + 2 * i), sl_f32_to_bf16(x[i]));
    assert_true(sl_encode_q8_0(NULL, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_q8_0__golden_vectors__bytes_of_the_reference),
        cmocka_unit_test(test_q8_0__any_magnitude__half_a_step_off_at_most),
        cmocka_unit_test(test_q8_0__zero_and_vanishing__decode_as_zero),
        cmocka_unit_test(test_encode__not_finite_or_too_large__refused),
        cmocka_unit_test(test_encode__halves__nearest_in_order_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
