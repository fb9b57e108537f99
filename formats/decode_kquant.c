/* The k-quants: 256 weights with integer scales for groups of 16 or 32 and one or two
 * half-precision scales for them all.
 *
 * Below, g counts groups of 32 weights and l the weights of a group. The codes of Q2_K, Q3_K and
 * Q6_K are laid out in two halves of 128 weights. Within a half, a byte at position l (0..31) of
 * the 2-bit plane holds weights l, l + 32, l + 64 and l + 96, from its low bits up. Q4_K and Q5_K
 * go by 64: the low half of byte l belongs to weight l, the high half to l + 32. */
#include "formats/blocks.h"
#include "formats/half.h"

/* scales[16] (low half: scale, high half: minimum), codes[64], d, dmin. */
void sl_unpack_q2_k(const uint8_t *block, struct sl_block256 *out)
{
    const uint8_t *codes = block + 16;
    out->d = sl_f16_to_f32(sl_load_u16(block + 80));
    out->dmin = sl_f16_to_f32(sl_load_u16(block + 82));
    for (int s = 0; s < 16; s++) {
        out->scale[s] = (int8_t)(block[s] & 15);
        out->min[s] = block[s] >> 4;
    }
    for (int g = 0; g < 8; g++) {
        const uint8_t *plane = codes + g / 4 * 32;
        int shift = g % 4 * 2;
        for (int l = 0; l < 32; l++) out->q[32 * g + l] = (int8_t)(plane[l] >> shift & 3);
    }
}

/* Bytes 0..7 hold the low four bits of scales 0..7 and, above them, of 8..15; byte 8 + i the high
 * two bits of scales i, i + 4, i + 8, i + 12. The scale is the number minus 32. */
static void q3_k_scales(const uint8_t *bytes, int8_t *scale)
{
    for (int s = 0; s < 16; s++) {
        int low = bytes[s % 8] >> (s / 8 * 4) & 15;
        int high = bytes[8 + s % 4] >> (s / 4 * 2) & 3;
        scale[s] = (int8_t)((low | high << 4) - 32);
    }
}

/* high bits[32] (bit i / 32 of byte i % 32), codes[64], scales[12], d. A clear high bit means 4
 * less. */
void sl_unpack_q3_k(const uint8_t *block, struct sl_block256 *out)
{
    const uint8_t *codes = block + 32;
    out->d = sl_f16_to_f32(sl_load_u16(block + 108));
    out->dmin = 0.0f;
    memset(out->min, 0, sizeof out->min);
    q3_k_scales(block + 96, out->scale);
    for (int g = 0; g < 8; g++) {
        const uint8_t *plane = codes + g / 4 * 32;
        int shift = g % 4 * 2;
        for (int l = 0; l < 32; l++) {
            int high = block[l] >> g & 1;
            out->q[32 * g + l] = (int8_t)((plane[l] >> shift & 3) + 4 * high - 4);
        }
    }
}

/* Eight scales and eight minima of six bits in 12 bytes: the first four of each sit in the low six
 * bits of bytes 0..3 and 4..7; bytes 8..11 hold the low four bits of the other four, whose high
 * bits are the top two of bytes 0..3 and 4..7. */
static void q45_k_scales(const uint8_t *bytes, struct sl_block256 *out)
{
    for (int j = 0; j < 8; j++) {
        int scale, min;
        if (j < 4) {
            scale = bytes[j] & 63;
            min = bytes[j + 4] & 63;
        } else {
            scale = (bytes[j + 4] & 15) | bytes[j - 4] >> 6 << 4;
            min = bytes[j + 4] >> 4 | bytes[j] >> 6 << 4;
        }
        out->scale[2 * j] = out->scale[2 * j + 1] = (int8_t)scale;
        out->min[2 * j] = out->min[2 * j + 1] = (uint8_t)min;
    }
}

/* d, dmin, scales[12], codes[128]. */
void sl_unpack_q4_k(const uint8_t *block, struct sl_block256 *out)
{
    const uint8_t *codes = block + 16;
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->dmin = sl_f16_to_f32(sl_load_u16(block + 2));
    q45_k_scales(block + 4, out);
    for (int g = 0; g < 8; g++) {
        int shift = g % 2 * 4;
        for (int l = 0; l < 32; l++)
            out->q[32 * g + l] = (int8_t)(codes[g / 2 * 32 + l] >> shift & 15);
    }
}

/* d, dmin, scales[12], high bits[32] (bit i / 32 of byte i % 32), codes[128]. */
void sl_unpack_q5_k(const uint8_t *block, struct sl_block256 *out)
{
    const uint8_t *high = block + 16;
    const uint8_t *codes = block + 48;
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->dmin = sl_f16_to_f32(sl_load_u16(block + 2));
    q45_k_scales(block + 4, out);
    for (int g = 0; g < 8; g++) {
        int shift = g % 2 * 4;
        for (int l = 0; l < 32; l++) {
            int low = codes[g / 2 * 32 + l] >> shift & 15;
            out->q[32 * g + l] = (int8_t)(low | (high[l] >> g & 1) << 4);
        }
    }
}

/* Low four bits[128] (in a half of 128: byte l for weights l and l + 64, l below 64), high two
 * bits[64], scales[16], d. */
void sl_unpack_q6_k(const uint8_t *block, struct sl_block256 *out)
{
    const uint8_t *high = block + 128;
    out->d = sl_f16_to_f32(sl_load_u16(block + 208));
    out->dmin = 0.0f;
    memset(out->min, 0, sizeof out->min);
    memcpy(out->scale, block + 192, 16);
    for (int g = 0; g < 8; g++) {
        int half = g / 4, quarter = g % 4;
        for (int l = 0; l < 32; l++) {
            int lo = block[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            int hi = high[half * 32 + l] >> (quarter * 2) & 3;
            out->q[32 * g + l] = (int8_t)((lo | hi << 4) - 32);
        }
    }
}
