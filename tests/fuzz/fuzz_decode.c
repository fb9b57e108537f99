/* Any bytes as a matrix of any type: decoding reads no further than the matrix and writes no
 * further than its elements.
 *
 * The first byte picks the type, the second how far the matrix is from alignment and which row is
 * decoded first; rows are one block of columns, and as many as the rest makes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/half.h"
#include "formats/tensor_type.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROWS_MAX 64

/* Conversions must agree with each other: a half survives the way to float and back. */
static void check_halves(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i + 2 <= n; i += 2) {
        uint16_t h = sl_load_u16(p + i);
        uint16_t back = sl_f32_to_f16(sl_f16_to_f32(h));
        int nan = (h & 0x7fff) > 0x7c00;
        if (nan ? (back & 0x7fff) <= 0x7c00 : back != h) __builtin_trap();
    }
}

/* The most rows that n bytes hold, whole groups of them. */
static uint64_t rows_in(uint32_t type, uint32_t cols, size_t n)
{
    uint64_t rows = 0, bytes, group = sl_type_row_group(type);
    while (rows < ROWS_MAX && sl_type_matrix_bytes(type, rows + group, cols, &bytes) && bytes <= n)
        rows += group;
    return rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    uint32_t type = sl_type_of_slot(data[0] % SL_TYPE_SLOTS);
    const struct sl_type_info *info = sl_type_info(type);
    if (info == NULL) return 0;
    size_t shift = data[1] % 32;
    uint64_t rows = rows_in(type, info->block_cols, size - 2), bytes = 0;
    if (rows == 0) return 0;
    if (!sl_type_matrix_bytes(type, rows, info->block_cols, &bytes)) __builtin_trap();
    uint64_t first = (data[1] / 32) % rows;
    uint8_t *src = malloc(shift + bytes);
    float *dst = malloc((rows - first) * info->block_cols * sizeof *dst);
    if (src != NULL && dst != NULL) {
        memcpy(src + shift, data + 2, bytes);
        sl_type_decode_rows(type, src + shift, info->block_cols, first, rows - first, dst);
        check_halves(data + 2, size - 2);
    }
    free(src);
    free(dst);
    return 0;
}
