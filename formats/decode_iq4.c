/* The types whose 4-bit codes are looked up in a table: IQ4_NL and IQ4_XS (unevenly spaced
 * integers), MXFP4 (the E2M1 floats of the OCP Microscaling specification, doubled so that they are
 * integers; the scale is halved in return). */
#include "formats/blocks.h"
#include "formats/half.h"

const int8_t sl_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
const int8_t sl_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Low half of byte j: weight j; high half: weight j + 16. */
static void lookup(const uint8_t *codes, const int8_t *values, int8_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = values[codes[j] & 15];
        q[j + 16] = values[codes[j] >> 4];
    }
}

void sl_unpack_iq4_nl(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->m = -0.0f;
    lookup(block + 2, sl_iq4_values, out->q);
}

/* Code 8 is minus zero in E2M1; as an integer it is 0, as in every other GGUF reader. */
void sl_unpack_mxfp4(const uint8_t *block, struct sl_block32 *out)
{
    out->d = sl_e8m0_half_to_f32(block[0]);
    out->m = -0.0f;
    lookup(block + 1, sl_fp4_values, out->q);
}

/* Scale, high 2 bits of the eight sub-block scales, their low 4 bits (two a byte), codes. */
void sl_unpack_iq4_xs(const uint8_t *block, struct sl_block256 *out)
{
    out->d = sl_f16_to_f32(sl_load_u16(block));
    out->dmin = 0.0f;
    memset(out->min, 0, sizeof out->min);
    uint16_t high = sl_load_u16(block + 2);
    for (int j = 0; j < 8; j++) {
        int low = block[4 + j / 2] >> (4 * (j & 1)) & 15;
        int scale = (low | (high >> (2 * j) & 3) << 4) - 32;
        out->scale[2 * j] = out->scale[2 * j + 1] = (int8_t)scale;
        lookup(block + 8 + 16 * j, sl_iq4_values, out->q + 32 * j);
    }
}
