/* Weights in blocks of 32 (Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL MXFP4) taken apart in NEON registers:
 * for the kernels that multiply them. Codes are unsigned with a bias where that keeps products
 * small (the bias is taken back through the activations' sums), signed otherwise. */
#ifndef SL_CODES32_NEON_H
#define SL_CODES32_NEON_H

#include "engine/kernels/simd_neon.h"
#include "formats/blocks.h"

/* Codes of one block of a row: weights 0..15, and 16..31. */
struct codes {
    int8x16_t c[2];
};

typedef struct codes unpack_fn(const uint8_t *block);

struct layout {
    unpack_fn *unpack;
    uint32_t block_bytes;
    bool small; /* codes are 0..31 */
    int bias;
    bool offsets; /* a second half-precision number follows the scale */
    bool e8m0;    /* the scale is a power of two in one byte */
};

SL_INLINE struct codes nibbles(const uint8_t *p)
{
    uint8x16_t both = vld1q_u8(p);
    struct codes c = {{vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))),
                       vreinterpretq_s8_u8(vshrq_n_u8(both, 4))}};
    return c;
}

SL_INLINE struct codes lookup(struct codes c, int8x16_t table)
{
    c.c[0] = vqtbl1q_s8(table, vreinterpretq_u8_s8(c.c[0]));
    c.c[1] = vqtbl1q_s8(table, vreinterpretq_u8_s8(c.c[1]));
    return c;
}

/* Adds 16 where the bit of the weight is set; bits points to the 32 bits of a block. */
SL_INLINE struct codes add_high_bits(struct codes c, const uint8_t *bits)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t first = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1)), sixteen = vdupq_n_u8(16);
    uint8x16_t four = vreinterpretq_u8_u32(vdupq_n_u32(sl_load_u32(bits)));
    for (int i = 0; i < 2; i++) {
        uint8x16_t place = vaddq_u8(first, vdupq_n_u8((uint8_t)(2 * i)));
        uint8x16_t set = vtstq_u8(vqtbl1q_u8(four, place), bit);
        c.c[i] = vorrq_s8(c.c[i], vreinterpretq_s8_u8(vandq_u8(set, sixteen)));
    }
    return c;
}

SL_INLINE struct codes unpack_q8_0(const uint8_t *b)
{
    struct codes c = {
        {vreinterpretq_s8_u8(vld1q_u8(b + 2)), vreinterpretq_s8_u8(vld1q_u8(b + 18))}};
    return c;
}

SL_INLINE struct codes unpack_q4_0(const uint8_t *b) { return nibbles(b + 2); }
SL_INLINE struct codes unpack_q4_1(const uint8_t *b) { return nibbles(b + 4); }
SL_INLINE struct codes unpack_q5_0(const uint8_t *b)
{
    return add_high_bits(nibbles(b + 6), b + 2);
}
SL_INLINE struct codes unpack_q5_1(const uint8_t *b)
{
    return add_high_bits(nibbles(b + 8), b + 4);
}

SL_INLINE struct codes unpack_iq4_nl(const uint8_t *b)
{
    return lookup(nibbles(b + 2), vld1q_s8(sl_iq4_values));
}

#define FP4_BIAS 12 /* makes the doubled E2M1 values 0..24 */

SL_INLINE struct codes unpack_mxfp4(const uint8_t *b)
{
    return lookup(nibbles(b + 1), vaddq_s8(vld1q_s8(sl_fp4_values), vdupq_n_s8(FP4_BIAS)));
}

/* sl_e8m0_half_to_f32 of the byte at offset at of each row. */
SL_INLINE float32x4_t load_e8m0(const uint8_t *const row[TILE_ROWS], uint64_t at)
{
    uint32_t bytes[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) bytes[i] = row[i][at];
    uint32x4_t e = vld1q_u32(bytes);
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t denormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    uint32x4_t is_denormal = vcltq_u32(e, vdupq_n_u32(2));
    return vreinterpretq_f32_u32(vbslq_u32(is_denormal, denormal, normal));
}

/* Defines one function for each type by MATMUL(name, layout members ...). */
#define SL_FOR_TYPES32(MATMUL)                                                                     \
    MATMUL(q8_0, SL_Q8_0_BYTES, false, 0, false, false)                                            \
    MATMUL(q4_0, SL_Q4_0_BYTES, true, 8, false, false)                                             \
    MATMUL(q4_1, SL_Q4_1_BYTES, true, 0, true, false)                                              \
    MATMUL(q5_0, SL_Q5_0_BYTES, true, 16, false, false)                                            \
    MATMUL(q5_1, SL_Q5_1_BYTES, true, 0, true, false)                                              \
    MATMUL(iq4_nl, SL_IQ4_NL_BYTES, false, 0, false, false)                                        \
    MATMUL(mxfp4, SL_MXFP4_BYTES, true, FP4_BIAS, false, true)

#endif
