/* The blocks of 32 with a linear scale: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1.
 *
 * A block begins with its scale in half precision, followed by the offset where the type has one,
 * by the fifth bits of all codes where there are five, and by the codes. In a byte of 4-bit codes
 * the low half belongs to weight j, the high half to j + 16. */
#include "formats/blocks.h"
#include "formats/half.h"

void sl_unpack_q8_0(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->m = -0.0f;
    memcpy(out->q, block + 2, 32);
}

/* Codes 0..15 moved down by offset. */
static void nibbles(const uint8_t *codes, int offset, int8_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = (int8_t)((codes[j] & 15) - offset);
        q[j + 16] = (int8_t)((codes[j] >> 4) - offset);
    }
}

/* Codes 0..31 moved down by offset; bit i of high is the fifth bit of weight i. */
static void nibbles_and_high(const uint8_t *codes, uint32_t high, int offset, int8_t *q)
{
    nibbles(codes, offset, q);
    for (int i = 0; i < 32; i++) q[i] = (int8_t)(q[i] + (int)(high >> i & 1) * 16);
}

void sl_unpack_q4_0(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->m = -0.0f;
    nibbles(block + 2, 8, out->q);
}

void sl_unpack_q4_1(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->m = sl_f16_to_f32(sl_load_u16(block + 2));
    nibbles(block + 4, 0, out->q);
}

void sl_unpack_q5_0(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->m = -0.0f;
    nibbles_and_high(block + 6, sl_load_u32(block + 2), 16, out->q);
}

void sl_unpack_q5_1(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->m = sl_f16_to_f32(sl_load_u16(block + 2));
    nibbles_and_high(block + 8, sl_load_u32(block + 4), 0, out->q);
}
