/* Weights in blocks of 256 (the k-quants and IQ4_XS) taken apart in NEON registers: for the kernels
 * that multiply them. Codes come in groups of 32, unsigned with a bias where that spares a
 * subtraction for every code (the bias is taken back through the activations' sums); scales and
 * minima in their order. formats/decode_kquant.c has the layouts. */
#ifndef SL_CODES256_NEON_H
#define SL_CODES256_NEON_H

#include "engine/kernels/simd_neon.h"
#include "formats/blocks.h"

/* The integers of a row's block beside its codes; where there are 8 of them, the first vector. */
struct scales {
    int16x8_t scale[2];
    uint8x16_t min; /* 8 minima (of 32 weights each) in the lower half, or 16 (of 16) */
};

typedef struct scales scales_fn(const uint8_t *block);
/* Codes of weights 32 * group and on: c[0], then c[1]. */
typedef void codes_fn(const uint8_t *block, int group, int8x16_t c[2]);

struct layout {
    scales_fn *scales;
    codes_fn *codes;
    uint32_t block_bytes;
    uint32_t d_at;     /* where the scale is in a block */
    uint32_t dmin_at;  /* and the scale of the minima */
    int bias;          /* what the codes are too large by: 0, 4, 32 */
    uint32_t n_scales; /* 8 or 16 */
    bool minima;       /* as many as scales */
    bool is_signed;    /* codes are any bytes, otherwise 0..63 */
};

/* Each byte shifted right (negative: left), then masked. */
SL_INLINE uint8x16_t shift_and(const uint8_t *p, int right, int mask)
{
    return vandq_u8(shift_right(vld1q_u8(p), right), vdupq_n_u8((uint8_t)mask));
}

SL_INLINE struct scales widen16(int8x16_t bytes)
{
    return (struct scales){.scale = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)}};
}

SL_INLINE struct scales scales_q2_k(const uint8_t *block)
{
    uint8x16_t bytes = vld1q_u8(block);
    struct scales s = widen16(vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))));
    s.min = vshrq_n_u8(bytes, 4);
    return s;
}

SL_INLINE void codes_q2_k(const uint8_t *block, int group, int8x16_t c[2])
{
    const uint8_t *plane = block + 16 + group / 4 * 32;
    for (int i = 0; i < 2; i++)
        c[i] = vreinterpretq_s8_u8(shift_and(plane + 16 * i, group % 4 * 2, 3));
}

/* Low four bits: nibbles of 8 bytes; high two bits: those of 4 bytes. */
SL_INLINE struct scales scales_q3_k(const uint8_t *block)
{
    const int8x16_t places = vcombine_s8(vcreate_s8(0xfefefefe00000000),
                                         vcreate_s8(0xfafafafafcfcfcfc)); /* 0 -2 -4 -6 */
    uint8x8_t low = vld1_u8(block + 96);
    uint8x16_t nibbles = vcombine_u8(vand_u8(low, vdup_n_u8(15)), vshr_n_u8(low, 4));
    uint8x16_t top = vreinterpretq_u8_u32(vdupq_n_u32(sl_load_u32(block + 104)));
    top = vandq_u8(vshlq_u8(top, places), vdupq_n_u8(3));
    int8x16_t six = vreinterpretq_s8_u8(vorrq_u8(nibbles, vshlq_n_u8(top, 4)));
    return widen16(vsubq_s8(six, vdupq_n_s8(32)));
}

SL_INLINE void codes_q3_k(const uint8_t *block, int group, int8x16_t c[2])
{
    const uint8_t *plane = block + 32 + group / 4 * 32;
    for (int i = 0; i < 2; i++) {
        uint8x16_t low = shift_and(plane + 16 * i, group % 4 * 2, 3);
        c[i] = vreinterpretq_s8_u8(vorrq_u8(low, shift_and(block + 16 * i, group - 2, 4)));
    }
}

/* Scales and minima of Q4_K and Q5_K, in integer registers. */
SL_INLINE struct scales scales_q45_k(const uint8_t *block)
{
    uint32_t a = sl_load_u32(block + 4), b = sl_load_u32(block + 8), c = sl_load_u32(block + 12);
    uint32_t scale = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    uint32_t min = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    uint8x8_t scales = vcreate_u8((uint64_t)scale << 32 | (a & 0x3f3f3f3f));
    uint8x8_t minima = vcreate_u8((uint64_t)min << 32 | (b & 0x3f3f3f3f));
    struct scales s;
    s.scale[0] = s.scale[1] = vreinterpretq_s16_u16(vmovl_u8(scales));
    s.min = vcombine_u8(minima, minima);
    return s;
}

SL_INLINE void codes_q4_k(const uint8_t *block, int group, int8x16_t c[2])
{
    const uint8_t *plane = block + 16 + group / 2 * 32;
    for (int i = 0; i < 2; i++)
        c[i] = vreinterpretq_s8_u8(shift_and(plane + 16 * i, group % 2 * 4, 15));
}

SL_INLINE void codes_q5_k(const uint8_t *block, int group, int8x16_t c[2])
{
    const uint8_t *plane = block + 48 + group / 2 * 32;
    for (int i = 0; i < 2; i++) {
        uint8x16_t low = shift_and(plane + 16 * i, group % 2 * 4, 15);
        c[i] = vreinterpretq_s8_u8(vorrq_u8(low, shift_and(block + 16 + 16 * i, group - 4, 16)));
    }
}

SL_INLINE struct scales scales_q6_k(const uint8_t *block)
{
    return widen16(vreinterpretq_s8_u8(vld1q_u8(block + 192)));
}

SL_INLINE void codes_q6_k(const uint8_t *block, int group, int8x16_t c[2])
{
    int half = group / 4, quarter = group % 4;
    const uint8_t *plane = block + 64 * half + quarter % 2 * 32;
    const uint8_t *top = block + 128 + 32 * half;
    for (int i = 0; i < 2; i++) {
        uint8x16_t low = shift_and(plane + 16 * i, quarter / 2 * 4, 15);
        uint8x16_t high = shift_and(top + 16 * i, 2 * quarter - 4, 0x30);
        c[i] = vreinterpretq_s8_u8(vorrq_u8(low, high));
    }
}

/* Low four bits: nibbles of 4 bytes; high two bits: a word. */
SL_INLINE struct scales scales_iq4_xs(const uint8_t *block)
{
    const int16x8_t places = vmovl_s8(vcreate_s8(0xf2f4f6f8fafcfe00)); /* 0 -2 .. -14 */
    uint8x8_t low = vreinterpret_u8_u32(vdup_n_u32(sl_load_u32(block + 4)));
    low = vand_u8(vzip1_u8(low, vshr_n_u8(low, 4)), vdup_n_u8(15));
    uint16x8_t high = vshlq_u16(vdupq_n_u16(sl_load_u16(block + 2)), places);
    high = vshlq_n_u16(vandq_u16(high, vdupq_n_u16(3)), 4);
    int16x8_t scale = vreinterpretq_s16_u16(vorrq_u16(vmovl_u8(low), high));
    scale = vsubq_s16(scale, vdupq_n_s16(32));
    return (struct scales){.scale = {scale, scale}};
}

SL_INLINE void codes_iq4_xs(const uint8_t *block, int group, int8x16_t c[2])
{
    const int8x16_t table = vld1q_s8(sl_iq4_values);
    uint8x16_t both = vld1q_u8(block + 8 + 16 * group);
    c[0] = vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15)));
    c[1] = vqtbl1q_s8(table, vshrq_n_u8(both, 4));
}

/* Defines one function for each type by MATMUL(name, scales, layout members ...). */
#define SL_FOR_TYPES256(MATMUL)                                                                    \
    MATMUL(q2_k, scales_q2_k, SL_Q2_K_BYTES, 80, 82, 0, 16, true, false)                           \
    MATMUL(q3_k, scales_q3_k, SL_Q3_K_BYTES, 108, 0, 4, 16, false, false)                          \
    MATMUL(q4_k, scales_q45_k, SL_Q4_K_BYTES, 0, 2, 0, 8, true, false)                             \
    MATMUL(q5_k, scales_q45_k, SL_Q5_K_BYTES, 0, 2, 0, 8, true, false)                             \
    MATMUL(q6_k, scales_q6_k, SL_Q6_K_BYTES, 208, 0, 32, 16, false, false)                         \
    MATMUL(iq4_xs, scales_iq4_xs, SL_IQ4_XS_BYTES, 0, 0, 0, 8, false, true)

#endif
