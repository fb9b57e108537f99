/* Any bytes as blocks of any type: decoding reads no further than the blocks and writes no further
 * than their elements.
 *
 * The first byte picks the type, the second how far the blocks are from alignment; the rest, as far
 * as it makes whole blocks, is decoded. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/half.h"
#include "formats/tensor_type.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCKS_MAX 64

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct sl_type_info *info = sl_type_info(data[0] % SL_TYPE_COUNT);
    size_t shift = data[1] % 32;
    if (info == NULL) return 0;
    size_t blocks = (size - 2) / info->block_bytes;
    if (blocks > BLOCKS_MAX) blocks = BLOCKS_MAX;
    uint8_t *src = malloc(shift + blocks * info->block_bytes + 1);
    float *dst = malloc(blocks * info->block_cols * sizeof *dst + 1);
    if (src != NULL && dst != NULL) {
        memcpy(src + shift, data + 2, blocks * info->block_bytes);
        info->decode(src + shift, dst, blocks * info->block_cols);
        check_halves(data + 2, size - 2);
    }
    free(src);
    free(dst);
    return 0;
}
