/* Element types: geometry, names, and the decoders against vectors of the Python package gguf
 * (tests/golden/decode, written by tools/dev/check_decode.py); half precision over all its values
 * and around every border of rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/blocks.h"
#include "formats/half.h"
#include "formats/tensor_type.h"

/* Block sizes as the GGUF specification has them. */
static const struct {
    uint32_t type, cols, bytes;
    const char *name;
} geometry[] = {
    {0, 1, 4, "F32"},       {1, 1, 2, "F16"},       {30, 1, 2, "BF16"},
    {8, 32, 34, "Q8_0"},    {2, 32, 18, "Q4_0"},    {3, 32, 20, "Q4_1"},
    {6, 32, 22, "Q5_0"},    {7, 32, 24, "Q5_1"},    {10, 256, 84, "Q2_K"},
    {11, 256, 110, "Q3_K"}, {12, 256, 144, "Q4_K"}, {13, 256, 176, "Q5_K"},
    {14, 256, 210, "Q6_K"}, {20, 32, 18, "IQ4_NL"}, {23, 256, 136, "IQ4_XS"},
    {39, 32, 17, "MXFP4"},
};

/* The container's own types: an eighth of the bytes of eight rows of 64 columns. */
static const struct {
    uint32_t type, row_bytes;
    const char *name;
} own[] = {
    {256, 2 + 2 * 9, "SQ2_32"},  {257, 2 + 2 * 10, "SQ2_16"}, {258, 2 + 2 * 13, "SQ3_32"},
    {259, 2 + 2 * 14, "SQ3_16"}, {260, 2 + 2 * 17, "SQ4_32"}, {261, 2 + 2 * 18, "SQ4_16"},
    {262, 2 + 2 * 21, "SQ5_32"}, {263, 2 + 2 * 25, "SQ6_32"},
};

static void test_type__supported__has_the_specified_blocks(void **state)
{
    (void)state;
    uint32_t supported = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(geometry); i++) {
        const struct sl_type_info *info = sl_type_info(geometry[i].type);
        assert_non_null(info);
        assert_string_equal(info->name, geometry[i].name);
        assert_string_equal(sl_type_name(geometry[i].type), geometry[i].name);
        assert_non_null(strstr(sl_type_supported_list(), geometry[i].name));
        assert_int_equal(info->block_cols, geometry[i].cols);
        assert_int_equal(info->block_bytes, geometry[i].bytes);
        assert_int_equal(info->row_group, 1);
        assert_true(sl_type_in_gguf(geometry[i].type));
    }
    for (uint32_t t = 0; t < 1000; t++) supported += sl_type_in_gguf(t);
    assert_int_equal(supported, SL_ARRAY_LEN(geometry));
}

static void test_type__of_the_container__rows_in_eights_and_not_in_gguf(void **state)
{
    (void)state;
    uint32_t supported = 0;
    uint64_t bytes;
    for (size_t i = 0; i < SL_ARRAY_LEN(own); i++) {
        const struct sl_type_info *info = sl_type_info(own[i].type);
        assert_non_null(info);
        assert_string_equal(info->name, own[i].name);
        assert_string_equal(sl_type_name(own[i].type), own[i].name);
        assert_string_equal(sl_sq_info(own[i].type)->name, own[i].name);
        assert_null(info->decode);
        assert_int_equal(info->block_bytes, 0);
        assert_int_equal(sl_type_row_group(own[i].type), 8);
        assert_false(sl_type_in_gguf(own[i].type));
        assert_null(strstr(sl_type_supported_list(), own[i].name));
        assert_true(sl_type_row_bytes(own[i].type, 64, &bytes));
        assert_int_equal(bytes, own[i].row_bytes);
        assert_true(sl_type_matrix_bytes(own[i].type, 9, 64, &bytes));
        assert_int_equal(bytes, 16 * own[i].row_bytes);
    }
    for (uint32_t t = 0; t < 1000; t++) supported += sl_type_info(t) != NULL;
    assert_int_equal(supported, SL_ARRAY_LEN(geometry) + SL_ARRAY_LEN(own));
    assert_int_equal(sl_type_row_group(SL_TYPE_Q4_K), 1);
    assert_int_equal(sl_type_row_group(16), 1);
    assert_false(sl_type_in_gguf(UINT32_MAX));
}

/* Tables by slot: every type has a place of its own, and comes back. */
static void test_slot__every_type__there_and_back(void **state)
{
    (void)state;
    assert_int_equal(SL_TYPE_SLOTS, 48);
    for (uint32_t slot = 0; slot < SL_TYPE_SLOTS; slot++)
        assert_int_equal(SL_TYPE_SLOT(sl_type_of_slot(slot)), slot);
    for (size_t i = 0; i < SL_ARRAY_LEN(own); i++)
        assert_true(SL_TYPE_SLOT(own[i].type) < SL_TYPE_SLOTS);
}

static void test_type__unsupported_number__has_a_name_for_the_message(void **state)
{
    (void)state;
    assert_null(sl_type_info(16));
    assert_string_equal(sl_type_name(16), "IQ2_XXS");
    assert_string_equal(sl_type_name(29), "IQ1_M");
    assert_string_equal(sl_type_name(40), "NVFP4");
    assert_null(sl_type_info(UINT32_MAX));
    assert_null(sl_type_name(UINT32_MAX));
    assert_null(sl_type_name(1000));
}

static void test_row_bytes__whole_blocks__counted(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_true(sl_type_row_bytes(SL_TYPE_Q4_K, 2048, &bytes));
    assert_int_equal(bytes, 8 * 144);
    assert_true(sl_type_row_bytes(SL_TYPE_F16, 3, &bytes));
    assert_int_equal(bytes, 6);
    assert_true(sl_type_row_bytes(SL_TYPE_Q8_0, 0, &bytes));
    assert_int_equal(bytes, 0);
}

static void test_row_bytes__part_of_a_block_overflow_or_no_type__refused(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_false(sl_type_row_bytes(SL_TYPE_Q4_K, 2047, &bytes));
    assert_false(sl_type_row_bytes(SL_TYPE_Q8_0, 33, &bytes));
    assert_false(sl_type_row_bytes(SL_TYPE_F32, UINT64_MAX / 2, &bytes));
    assert_false(sl_type_row_bytes(16, 256, &bytes));
    assert_false(sl_type_row_bytes(SL_SQ3_32, 48, &bytes));
    assert_false(sl_type_row_bytes(SL_SQ3_32, 0, &bytes));
}

static void test_matrix_bytes__rows__counted_or_refused(void **state)
{
    (void)state;
    uint64_t bytes = 77;
    assert_false(sl_type_matrix_bytes(SL_TYPE_F32, 0, 4, &bytes));
    assert_false(sl_type_matrix_bytes(SL_TYPE_F32, UINT64_MAX / 8, 4, &bytes));
    assert_false(sl_type_matrix_bytes(SL_TYPE_Q4_K, 3, 255, &bytes));
    assert_false(sl_type_matrix_bytes(SL_SQ3_32, 0, 64, &bytes));
    assert_false(sl_type_matrix_bytes(SL_SQ3_32, UINT64_MAX, 64, &bytes));
    assert_false(sl_type_matrix_bytes(264, 8, 64, &bytes));
    assert_int_equal(bytes, 77);
    assert_true(sl_type_matrix_bytes(SL_TYPE_Q4_K, 3, 512, &bytes));
    assert_int_equal(bytes, 3 * 288);
}

/* ---- decoders -------------------------------------------------------------------------------- */

static bool same_bits(float a, float b)
{
    return sl_f32_bits(a) == sl_f32_bits(b) || (isnan(a) && isnan(b));
}

/* The whole file; its size in *n. */
static uint8_t *read_vectors(const char *name, size_t *n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/decode/%s.bin", SLUICE_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    uint8_t *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

static void test_decode__golden_vectors__bit_equal_at_any_alignment(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(geometry); i++) {
        const struct sl_type_info *info = sl_type_info(geometry[i].type);
        size_t size;
        uint8_t *file = read_vectors(info->name, &size);
        uint32_t blocks = sl_load_u32(file);
        size_t src_bytes = (size_t)blocks * info->block_bytes,
               n = (size_t)blocks * info->block_cols;
        assert_true(blocks > 0);
        assert_int_equal(size, 4 + src_bytes + 4 * n);
        for (size_t shift = 0; shift < 5; shift++) {
            uint8_t *src = malloc(src_bytes + shift);
            float *got = malloc(n * sizeof *got);
            assert_non_null(src);
            assert_non_null(got);
            memcpy(src + shift, file + 4, src_bytes);
            info->decode(src + shift, got, n);
            for (size_t k = 0; k < n; k++) {
                float want = sl_f32_from_bits(sl_load_u32(file + 4 + src_bytes + 4 * k));
                if (!same_bits(want, got[k]))
                    fail_msg("%s element %zu: %a, should be %a", info->name, k, (double)got[k],
                             (double)want);
            }
            free(src);
            free(got);
        }
        free(file);
    }
}

/* Rows of a matrix one by one and together, in every type, from any row on. */
static void test_decode_rows__any_first_row__rows_of_the_matrix(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < SL_TYPE_SLOTS; slot++) {
        uint32_t type = sl_type_of_slot(slot);
        if (sl_type_info(type) == NULL) continue;
        enum { ROWS = 11, COLS = 256 };
        uint64_t bytes, row_bytes;
        assert_true(sl_type_matrix_bytes(type, ROWS, COLS, &bytes));
        assert_true(sl_type_row_bytes(type, COLS, &row_bytes));
        uint8_t *m = malloc(bytes);
        assert_non_null(m);
        for (uint64_t i = 0; i < bytes; i++) m[i] = (uint8_t)(i * 2654435761u >> 13 & 0x3f);
        static float all[ROWS * COLS], some[ROWS * COLS], one[COLS];
        sl_type_decode_rows(type, m, COLS, 0, ROWS, all);
        for (uint32_t first = 0; first < ROWS; first++) {
            sl_type_decode_rows(type, m, COLS, first, ROWS - first, some);
            assert_memory_equal(some, all + first * COLS, (ROWS - first) * COLS * sizeof *all);
            if (sl_type_row_group(type) == 1)
                sl_type_info(type)->decode(m + first * row_bytes, one, COLS);
            else
                sl_sq_decode_row(sl_sq_info(type), m + first / 8 * 8 * row_bytes, first % 8, COLS,
                                 one);
            assert_memory_equal(one, some, sizeof one);
        }
        free(m);
    }
}

static void test_decode__nothing__writes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(geometry); i++) {
        float dst = 3.0f;
        sl_type_info(geometry[i].type)->decode(&dst, &dst, 0);
        assert_true(dst == 3.0f);
    }
}

/* Codes go where the layout says: Q4_0 with scale 1, all codes different. */
static void test_decode__q4_0_by_hand__low_nibbles_first(void **state)
{
    (void)state;
    uint8_t block[18] = {0x00, 0x3c};
    float w[32];
    for (int i = 0; i < 16; i++) block[2 + i] = (uint8_t)(i | (15 - i) << 4);
    sl_type_info(SL_TYPE_Q4_0)->decode(block, w, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(w[i] == (float)(i - 8));
        assert_true(w[16 + i] == (float)(7 - i));
    }
}

static void test_decode__mxfp4_scales__powers_of_two_from_denormal_up(void **state)
{
    (void)state;
    uint8_t block[17] = {0};
    float w[32];
    block[1] = 0x02; /* first code: 1.0, stored doubled */
    for (int e = 0; e < 256; e++) {
        block[0] = (uint8_t)e;
        sl_type_info(SL_TYPE_MXFP4)->decode(block, w, 32);
        if (e < 255)
            assert_true((double)w[0] == ldexp(1.0, e - 127));
        else
            assert_true(isinf(w[0])); /* 2^128, see sl_e8m0_half_to_f32 */
        assert_true(w[1] == 0.0f);
    }
}

/* ---- half precision -------------------------------------------------------------------------- */

/* The value by the definition of the format. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    double v = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static void test_half__every_value__there_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = sl_f16_to_f32((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00)
            assert_true((double)f == half_value((uint16_t)h));
        else if ((h & 0x3ff) != 0)
            assert_true(isnan(f));
        else
            assert_true(isinf(f));
        assert_int_equal(signbit(f) != 0, h >> 15);
        uint16_t back = sl_f32_to_f16(f);
        if (isnan(f))
            assert_true((back & 0x7fff) > 0x7c00);
        else
            assert_int_equal(back, h);
    }
}

/* Between two neighbouring halves: the middle goes to the even one, everything else to the nearer.
 */
static void test_half__between_neighbours__nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        double low = half_value((uint16_t)h), high = half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* exact */
        uint16_t even = (uint16_t)(h + (h & 1));
        assert_int_equal(sl_f32_to_f16(middle), even);
        assert_int_equal(sl_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(sl_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(sl_f32_to_f16(nextafterf(middle, 1e9f)), h + 1);
    }
}

/* bfloat16 by the definition: the nearest of two neighbours, the even one in the middle. */
static void test_bf16__between_neighbours__nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f7f; h += 5) {
        uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(sl_f32_to_bf16(sl_bf16_to_f32((uint16_t)h)), h);
        assert_int_equal(sl_f32_to_bf16(sl_f32_from_bits(middle)), h + (h & 1));
        assert_int_equal(sl_f32_to_bf16(sl_f32_from_bits(middle - 1)), h);
        assert_int_equal(sl_f32_to_bf16(sl_f32_from_bits(0x80000000 | (middle + 1))),
                         0x8000 | (h + 1));
    }
    assert_int_equal(sl_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(sl_f32_to_bf16(sl_f32_from_bits(0x7f7fffff)), 0x7f80);
    assert_int_equal(sl_f32_to_bf16(sl_f32_from_bits(0x7f800001)), 0x7fc0); /* NaN stays one */
}

static void test_half__too_large__infinity(void **state)
{
    (void)state;
    assert_int_equal(sl_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(sl_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(sl_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(sl_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(sl_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(sl_f32_to_f16(-0x1p-149f), 0x8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type__supported__has_the_specified_blocks),
        cmocka_unit_test(test_type__of_the_container__rows_in_eights_and_not_in_gguf),
        cmocka_unit_test(test_slot__every_type__there_and_back),
        cmocka_unit_test(test_type__unsupported_number__has_a_name_for_the_message),
        cmocka_unit_test(test_row_bytes__whole_blocks__counted),
        cmocka_unit_test(test_row_bytes__part_of_a_block_overflow_or_no_type__refused),
        cmocka_unit_test(test_matrix_bytes__rows__counted_or_refused),
        cmocka_unit_test(test_decode__golden_vectors__bit_equal_at_any_alignment),
        cmocka_unit_test(test_decode_rows__any_first_row__rows_of_the_matrix),
        cmocka_unit_test(test_decode__nothing__writes_nothing),
        cmocka_unit_test(test_decode__q4_0_by_hand__low_nibbles_first),
        cmocka_unit_test(test_decode__mxfp4_scales__powers_of_two_from_denormal_up),
        cmocka_unit_test(test_half__every_value__there_and_back),
        cmocka_unit_test(test_half__between_neighbours__nearest_even),
        cmocka_unit_test(test_half__too_large__infinity),
        cmocka_unit_test(test_bf16__between_neighbours__nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
