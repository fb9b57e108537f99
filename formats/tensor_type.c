/* The table of element types, and the way from blocks to floats. What the container's own types
 * mean is in sq.c.
 *
 * Products and sums are rounded one at a time, in the order that blocks.h gives; that is what other
 * GGUF readers compute, and the results are bit for bit theirs (test_tensor_type replays vectors of
 * the Python package gguf). */
#include "formats/tensor_type.h"

#include "formats/blocks.h"
#include "formats/half.h"

static void decode_f32(const void *src, float *dst, uint64_t n) { memcpy(dst, src, n * 4); }

static void decode_f16(const void *src, float *dst, uint64_t n)
{
    const uint8_t *p = src;
    for (uint64_t i = 0; i < n; i++) dst[i] = sl_f16_to_f32(sl_load_u16(p + 2 * i));
}

static void decode_bf16(const void *src, float *dst, uint64_t n)
{
    const uint8_t *p = src;
    for (uint64_t i = 0; i < n; i++) dst[i] = sl_bf16_to_f32(sl_load_u16(p + 2 * i));
}

static void decode32(sl_unpack32_fn *unpack, const uint8_t *src, uint64_t block_bytes, float *dst,
                     uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 32, src += block_bytes) {
        struct sl_block32 b;
        unpack(src, &b);
        for (int j = 0; j < 32; j++) {
            float product = b.d * (float)b.q[j];
            dst[i + j] = product + b.m;
        }
    }
}

static void decode256(sl_unpack256_fn *unpack, const uint8_t *src, uint64_t block_bytes, float *dst,
                      uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 256, src += block_bytes) {
        struct sl_block256 b;
        unpack(src, &b);
        for (int j = 0; j < 256; j++) {
            float scale = b.d * (float)b.scale[j / 16];
            float min = b.dmin * (float)b.min[j / 16];
            float product = scale * (float)b.q[j];
            dst[i + j] = product - min;
        }
    }
}

#define DECODER(name, width, bytes)                                                                \
    static void decode_##name(const void *src, float *dst, uint64_t n)                             \
    {                                                                                              \
        decode##width(sl_unpack_##name, src, bytes, dst, n);                                       \
    }

DECODER(q8_0, 32, SL_Q8_0_BYTES)
DECODER(q4_0, 32, SL_Q4_0_BYTES)
DECODER(q4_1, 32, SL_Q4_1_BYTES)
DECODER(q5_0, 32, SL_Q5_0_BYTES)
DECODER(q5_1, 32, SL_Q5_1_BYTES)
DECODER(iq4_nl, 32, SL_IQ4_NL_BYTES)
DECODER(mxfp4, 32, SL_MXFP4_BYTES)
DECODER(q2_k, 256, SL_Q2_K_BYTES)
DECODER(q3_k, 256, SL_Q3_K_BYTES)
DECODER(q4_k, 256, SL_Q4_K_BYTES)
DECODER(q5_k, 256, SL_Q5_K_BYTES)
DECODER(q6_k, 256, SL_Q6_K_BYTES)
DECODER(iq4_xs, 256, SL_IQ4_XS_BYTES)

static const struct sl_type_info types[SL_TYPE_COUNT] = {
    [SL_TYPE_F32] = {"F32", 1, 4, 1, decode_f32},
    [SL_TYPE_F16] = {"F16", 1, 2, 1, decode_f16},
    [SL_TYPE_BF16] = {"BF16", 1, 2, 1, decode_bf16},
    [SL_TYPE_Q8_0] = {"Q8_0", 32, SL_Q8_0_BYTES, 1, decode_q8_0},
    [SL_TYPE_Q4_0] = {"Q4_0", 32, SL_Q4_0_BYTES, 1, decode_q4_0},
    [SL_TYPE_Q4_1] = {"Q4_1", 32, SL_Q4_1_BYTES, 1, decode_q4_1},
    [SL_TYPE_Q5_0] = {"Q5_0", 32, SL_Q5_0_BYTES, 1, decode_q5_0},
    [SL_TYPE_Q5_1] = {"Q5_1", 32, SL_Q5_1_BYTES, 1, decode_q5_1},
    [SL_TYPE_Q2_K] = {"Q2_K", 256, SL_Q2_K_BYTES, 1, decode_q2_k},
    [SL_TYPE_Q3_K] = {"Q3_K", 256, SL_Q3_K_BYTES, 1, decode_q3_k},
    [SL_TYPE_Q4_K] = {"Q4_K", 256, SL_Q4_K_BYTES, 1, decode_q4_k},
    [SL_TYPE_Q5_K] = {"Q5_K", 256, SL_Q5_K_BYTES, 1, decode_q5_k},
    [SL_TYPE_Q6_K] = {"Q6_K", 256, SL_Q6_K_BYTES, 1, decode_q6_k},
    [SL_TYPE_IQ4_NL] = {"IQ4_NL", 32, SL_IQ4_NL_BYTES, 1, decode_iq4_nl},
    [SL_TYPE_IQ4_XS] = {"IQ4_XS", 256, SL_IQ4_XS_BYTES, 1, decode_iq4_xs},
    [SL_TYPE_MXFP4] = {"MXFP4", 32, SL_MXFP4_BYTES, 1, decode_mxfp4},
};

#define OWN(number, name) [(number)-SL_SQ_FIRST] = {name, SL_SQ_UNIT_COLS, 0, SL_SQ_BAND_ROWS, NULL}

static const struct sl_type_info own[SL_SQ_TYPES] = {
    OWN(SL_SQ2_32, "SQ2_32"), OWN(SL_SQ2_16, "SQ2_16"), OWN(SL_SQ3_32, "SQ3_32"),
    OWN(SL_SQ3_16, "SQ3_16"), OWN(SL_SQ4_32, "SQ4_32"), OWN(SL_SQ4_16, "SQ4_16"),
    OWN(SL_SQ5_32, "SQ5_32"), OWN(SL_SQ6_32, "SQ6_32"),
};

/* Numbers that GGUF has given out; gaps are types that were withdrawn from it. */
static const char *const names[] = {
    [0] = "F32",     [1] = "F16",         [2] = "Q4_0",        [3] = "Q4_1",        [4] = "Q4_2",
    [5] = "Q4_3",    [6] = "Q5_0",        [7] = "Q5_1",        [8] = "Q8_0",        [9] = "Q8_1",
    [10] = "Q2_K",   [11] = "Q3_K",       [12] = "Q4_K",       [13] = "Q5_K",       [14] = "Q6_K",
    [15] = "Q8_K",   [16] = "IQ2_XXS",    [17] = "IQ2_XS",     [18] = "IQ3_XXS",    [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S",      [22] = "IQ2_S",      [23] = "IQ4_XS",     [24] = "I8",
    [25] = "I16",    [26] = "I32",        [27] = "I64",        [28] = "F64",        [29] = "IQ1_M",
    [30] = "BF16",   [31] = "Q4_0_4_4",   [32] = "Q4_0_4_8",   [33] = "Q4_0_8_8",   [34] = "TQ1_0",
    [35] = "TQ2_0",  [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8", [39] = "MXFP4",
    [40] = "NVFP4",  [41] = "Q1_0",       [42] = "Q2_0",
};

const struct sl_type_info *sl_type_info(uint32_t type)
{
    if (type - SL_SQ_FIRST < SL_SQ_TYPES) return &own[type - SL_SQ_FIRST];
    if (type >= SL_TYPE_COUNT || types[type].name == NULL) return NULL;
    return &types[type];
}

bool sl_type_in_gguf(uint32_t type) { return type < SL_TYPE_COUNT && types[type].name != NULL; }

const char *sl_type_name(uint32_t type)
{
    if (type < SL_ARRAY_LEN(names)) return names[type];
    const struct sl_type_info *info = sl_type_info(type);
    return info != NULL ? info->name : NULL;
}

const char *sl_type_supported_list(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
           "IQ4_XS, "
           "MXFP4";
}

uint32_t sl_type_row_group(uint32_t type)
{
    const struct sl_type_info *info = sl_type_info(type);
    return info != NULL ? info->row_group : 1;
}

bool sl_type_row_bytes(uint32_t type, uint64_t cols, uint64_t *bytes)
{
    const struct sl_type_info *info = sl_type_info(type);
    if (info == NULL || cols % info->block_cols != 0) return false;
    if (info->row_group == 1) return sl_mul_ok(cols / info->block_cols, info->block_bytes, bytes);
    uint64_t band;
    if (!sl_sq_band_bytes(type, cols, &band)) return false;
    *bytes = band / SL_SQ_BAND_ROWS;
    return true;
}

bool sl_type_matrix_bytes(uint32_t type, uint64_t rows, uint64_t cols, uint64_t *bytes)
{
    if (rows == 0) return false;
    if (sl_type_row_group(type) > 1) return sl_sq_matrix_bytes(type, rows, cols, bytes);
    uint64_t row;
    return sl_type_row_bytes(type, cols, &row) && sl_mul_ok(rows, row, bytes);
}

void sl_type_decode_rows(uint32_t type, const void *matrix, uint32_t cols, uint64_t first,
                         uint64_t n, float *out)
{
    const struct sl_type_info *info = sl_type_info(type);
    uint64_t row_bytes;
    SLUICE_ASSERT(info != NULL);
    SLUICE_ASSERT(sl_type_row_bytes(type, cols, &row_bytes));
    const uint8_t *m = matrix;
    if (info->row_group == 1) {
        info->decode(m + first * row_bytes, out, n * cols);
        return;
    }
    for (uint64_t r = first; r < first + n; r++, out += cols) {
        const uint8_t *band = m + r / SL_SQ_BAND_ROWS * SL_SQ_BAND_ROWS * row_bytes;
        sl_sq_decode_row(sl_sq_info(type), band, (uint32_t)(r % SL_SQ_BAND_ROWS), cols, out);
    }
}
