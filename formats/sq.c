/* The layout of the container's own weight types, and their meaning: sizes, codes in and out of a
 * unit, the decoder that is the definition.
 *
 * The levels were found by alternating nearest codes and least squares over groups of normal
 * numbers, of a language model's feed-forward weights and of the demo model's experts, each group
 * with its best scale and offset; then rounded (docs/LEARNED.md). Those of 5 bits were found by
 * changing one or two at a time as long as that lowered the encoder's error. */
#include "formats/sq.h"

#include "base/limits.h"
#include "formats/half.h"

#define LANES_BYTES 32   /* four columns of eight rows */
#define EACH 0x01010101u /* of the four bytes of a quad */

static const uint8_t levels2[4] = {0, 26, 43, 63};
static const uint8_t levels3[8] = {0, 14, 24, 32, 38, 45, 52, 63};
static const uint8_t levels4[16] = {0, 8, 13, 17, 21, 25, 28, 31, 34, 37, 40, 43, 47, 51, 56, 63};

static const uint8_t levels5[32] = {0,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                    32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 63};
static const uint8_t levels6[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

static const struct sl_sq_info types[SL_SQ_TYPES] = {
    {"SQ2_32", 2, 32, 72, 26, 3, levels2},  {"SQ2_16", 2, 16, 80, 26, 3, levels2},
    {"SQ3_32", 3, 32, 104, 32, 2, levels3}, {"SQ3_16", 3, 16, 112, 32, 2, levels3},
    {"SQ4_32", 4, 32, 136, 31, 2, levels4}, {"SQ4_16", 4, 16, 144, 31, 2, levels4},
    {"SQ5_32", 5, 32, 168, 25, 2, levels5}, {"SQ6_32", 6, 32, 200, 29, 2, levels6},
};

const struct sl_sq_info *sl_sq_info(uint32_t type)
{
    uint32_t i = type - SL_SQ_FIRST;
    return i < SL_SQ_TYPES ? &types[i] : NULL;
}

bool sl_sq_band_bytes(uint32_t type, uint64_t cols, uint64_t *bytes)
{
    const struct sl_sq_info *info = sl_sq_info(type);
    if (info == NULL || cols == 0 || cols > SL_COLS_MAX || cols % SL_SQ_UNIT_COLS != 0)
        return false;
    *bytes = SL_SQ_ROW_SCALE_BYTES + cols / SL_SQ_UNIT_COLS * info->unit_bytes;
    return true;
}

bool sl_sq_matrix_bytes(uint32_t type, uint64_t rows, uint64_t cols, uint64_t *bytes)
{
    uint64_t band;
    if (rows == 0 || rows > SL_ROWS_MAX || !sl_sq_band_bytes(type, cols, &band)) return false;
    return sl_mul_ok((rows + SL_SQ_BAND_ROWS - 1) / SL_SQ_BAND_ROWS, band, bytes);
}

/* Quad q is columns 4 q to 4 q + 3; a row's codes come in the four bytes of a number. Of
 * 3-bit codes, three planes hold two each in their low six bits; the top two bits of planes 0 and
 * 1 are the low bits of quads 6 and 7, those of plane 2 their high bits. So six of eight registers
 * of codes cost a kernel a shift and a mask. Codes of 5 and 6 bits have four planes of low bits, as
 * 4-bit codes, then one or two of high bits. */
static uint32_t get_quad(uint32_t bits, const uint8_t *unit, uint32_t quad, uint32_t row)
{
    const uint8_t *p = unit + 4 * row; /* four columns, a byte each */
    if (bits == 2) return sl_load_u32(p + LANES_BYTES * (quad / 4)) >> (2 * (quad % 4)) & 3u * EACH;
    if (bits == 3 && quad < 6)
        return sl_load_u32(p + LANES_BYTES * (quad / 2)) >> (3 * (quad % 2)) & 7u * EACH;
    if (bits == 3) {
        uint32_t high = sl_load_u32(p + LANES_BYTES * 2) >> quad & EACH;
        return (sl_load_u32(p + LANES_BYTES * (quad - 6)) >> 6 & 3u * EACH) | high << 2;
    }
    uint32_t low = sl_load_u32(p + LANES_BYTES * (quad / 2)) >> (4 * (quad % 2)) & 15u * EACH;
    if (bits == 4) return low;
    if (bits == 5) return low | (sl_load_u32(p + LANES_BYTES * 4) >> quad & EACH) << 4;
    p += LANES_BYTES * (4 + quad / 4);
    return low | (sl_load_u32(p) >> (2 * (quad % 4)) & 3u * EACH) << 4;
}

void sl_sq_put_code(const struct sl_sq_info *info, uint8_t *unit, uint32_t row, uint32_t col,
                    uint32_t code)
{
    SLUICE_DASSERT(row < SL_SQ_BAND_ROWS && col < SL_SQ_UNIT_COLS && code < 1u << info->bits);
    uint32_t quad = col / 4;
    uint8_t *p = unit + 4 * row + col % 4;
    if (info->bits == 2) {
        p[LANES_BYTES * (quad / 4)] |= (uint8_t)(code << (2 * (quad % 4)));
    } else if (info->bits >= 4) {
        p[LANES_BYTES * (quad / 2)] |= (uint8_t)((code & 15) << (4 * (quad % 2)));
        if (info->bits == 5) p[LANES_BYTES * 4] |= (uint8_t)(code >> 4 << quad);
        if (info->bits == 6)
            p[LANES_BYTES * (4 + quad / 4)] |= (uint8_t)(code >> 4 << (2 * (quad % 4)));
    } else if (quad < 6) {
        p[LANES_BYTES * (quad / 2)] |= (uint8_t)(code << (3 * (quad % 2)));
    } else {
        p[LANES_BYTES * (quad - 6)] |= (uint8_t)((code & 3) << 6);
        p[LANES_BYTES * 2] |= (uint8_t)((code >> 2) << quad);
    }
}

/* A scale byte: |m| - 1 in the low four bits, the number of the offset in three, the sign of m. */
static void unpack_row(const struct sl_sq_info *info, const uint8_t *unit, uint32_t row,
                       struct sl_sq_row *out)
{
    const uint8_t *scales = unit + info->bits * LANES_BYTES + row;
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t s = scales[info->group_cols == 16 ? SL_SQ_BAND_ROWS * half : 0];
        int m = (int)(s & 15) + 1;
        int offset = info->offset_base + info->offset_step * (int)(s >> 4 & 7);
        out->m[half] = (int8_t)(s >> 7 ? -m : m);
        for (uint32_t c = 16 * half; c < 16 * half + 16; c += 4) {
            uint32_t codes = get_quad(info->bits, unit, c / 4, row);
            for (uint32_t i = 0; i < 4; i++)
                out->v[c + i] = (int8_t)(info->levels[codes >> (8 * i) & 63] - offset);
        }
    }
}

void sl_sq_unpack(const struct sl_sq_info *info, const uint8_t *unit, struct sl_sq_unit *out)
{
    for (uint32_t r = 0; r < SL_SQ_BAND_ROWS; r++) unpack_row(info, unit, r, &out->row[r]);
}

void sl_sq_decode_row(const struct sl_sq_info *info, const uint8_t *band, uint32_t row,
                      uint32_t cols, float *dst)
{
    SLUICE_ASSERT(row < SL_SQ_BAND_ROWS);
    SLUICE_ASSERT(cols % SL_SQ_UNIT_COLS == 0);
    float d = sl_bf16_to_f32(sl_load_u16(band + 2 * row));
    const uint8_t *unit = band + SL_SQ_ROW_SCALE_BYTES;
    for (uint32_t c = 0; c < cols; c += SL_SQ_UNIT_COLS, unit += info->unit_bytes) {
        struct sl_sq_row u;
        unpack_row(info, unit, row, &u);
        for (uint32_t i = 0; i < SL_SQ_UNIT_COLS; i++)
            dst[c + i] = d * (float)(u.m[i / 16] * u.v[i]);
    }
}
