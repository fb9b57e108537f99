/* The layout of the container's own weight types, and their meaning: sizes, codes in and out of a
 * unit, the decoder that is the definition.
 *
 * The levels were found by alternating nearest codes and least squares over groups of normal
 * numbers, of a language model's feed-forward weights and of the demo model's experts, each group
 * with its best scale and offset; then rounded (docs/LEARNED.md). */
#include "formats/sq.h"

#include "base/limits.h"
#include "formats/half.h"

#define LANES_BYTES 32 /* four columns of eight rows */

static const uint8_t levels2[4] = {0, 26, 43, 63};
static const uint8_t levels3[8] = {0, 14, 24, 32, 38, 45, 52, 63};
static const uint8_t levels4[16] = {0, 8, 13, 17, 21, 25, 28, 31, 34, 37, 40, 43, 47, 51, 56, 63};

static const struct sl_sq_info types[SL_SQ_TYPES] = {
    {"SQ2_32", 2, 32, 72, 26, 3, levels2},  {"SQ2_16", 2, 16, 80, 26, 3, levels2},
    {"SQ3_32", 3, 32, 104, 32, 2, levels3}, {"SQ3_16", 3, 16, 112, 32, 2, levels3},
    {"SQ4_32", 4, 32, 136, 31, 2, levels4}, {"SQ4_16", 4, 16, 144, 31, 2, levels4},
};

const struct sl_sq_info *sl_sq_info(uint32_t type)
{
    uint32_t i = type - SL_SQ2_32;
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

/* Quad q is columns 4 q to 4 q + 3; lane is the byte of a row's column in a register of 32. Of
 * 3-bit codes, three planes hold two each in their low six bits; the top two bits of planes 0 and
 * 1 are the low bits of quads 6 and 7, those of plane 2 their high bits. So six of eight registers
 * of codes cost a kernel a shift and a mask. */
static uint32_t get_code(uint32_t bits, const uint8_t *unit, uint32_t quad, uint32_t lane)
{
    const uint8_t *p = unit + lane;
    if (bits == 2) return p[LANES_BYTES * (quad / 4)] >> (2 * (quad % 4)) & 3u;
    if (bits == 4) return p[LANES_BYTES * (quad / 2)] >> (4 * (quad % 2)) & 15u;
    if (quad < 6) return p[LANES_BYTES * (quad / 2)] >> (3 * (quad % 2)) & 7u;
    uint32_t high = p[LANES_BYTES * 2] >> quad & 1u;
    return (uint32_t)p[LANES_BYTES * (quad - 6)] >> 6 | high << 2;
}

void sl_sq_put_code(const struct sl_sq_info *info, uint8_t *unit, uint32_t row, uint32_t col,
                    uint32_t code)
{
    SLUICE_DASSERT(row < SL_SQ_BAND_ROWS && col < SL_SQ_UNIT_COLS && code < 1u << info->bits);
    uint32_t quad = col / 4;
    uint8_t *p = unit + 4 * row + col % 4;
    if (info->bits == 2) {
        p[LANES_BYTES * (quad / 4)] |= (uint8_t)(code << (2 * (quad % 4)));
    } else if (info->bits == 4) {
        p[LANES_BYTES * (quad / 2)] |= (uint8_t)(code << (4 * (quad % 2)));
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
        for (uint32_t c = 16 * half; c < 16 * half + 16; c++) {
            uint32_t code = get_code(info->bits, unit, c / 4, 4 * row + c % 4);
            out->v[c] = (int8_t)(info->levels[code] - offset);
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
