/* The container's own weight types (formats/sq.h) taken apart in NEON registers: for the kernels
 * that multiply them.
 *
 * A band's eight rows are two halves of four. A register holds a quad of one half: four columns of
 * four rows, a 32-bit lane a row. Codes become levels, 0 to 63, by a byte lookup (of 6 bits they
 * are levels). The offset is left to the sums of the activations' codes: sum of m * (level -
 * offset) * q = m * ((sum of level * q) - offset * (sum of q)), all exact integers. */
#ifndef SL_CODES_SQ_NEON_H
#define SL_CODES_SQ_NEON_H

#include "engine/kernels/simd_neon.h"
#include "engine/kernels/sq_layouts.h"

/* Half a unit unpacked: levels of its quads, and m and the offset of each row, for columns 0 to 15
 * and 16 to 31: the same where a group has 32. */
struct half_unit {
    int8x16_t level[8];
    int32x4_t m[2], offset[2];
};

/* m and offsets of eight rows. */
struct scales {
    int16x8_t m[2], offset[2];
};

/* What the low four bits of a code stand for. */
struct tables {
    int8x16_t level;
    int8x16_t other; /* 3 bits: of the last quad, whose high bit is bit 3; 5 bits: where the high
                        bit is set */
};

SL_INLINE struct tables make_tables(uint32_t bits, const uint8_t *levels)
{
    int8_t level[16], other[16];
    for (uint32_t i = 0; i < 16; i++) {
        level[i] = (int8_t)levels[i & ((1u << bits) - 1)];
        uint32_t j = bits == 3 ? (i & 3) | (i >> 3 << 2) : bits == 5 ? 16 + i : 0;
        other[i] = (int8_t)levels[j];
    }
    return (struct tables){vld1q_s8(level), vld1q_s8(other)};
}

/* ---- levels ---------------------------------------------------------------------------------- */

SL_INLINE uint8x16_t bits_at(uint8x16_t v, int right, int mask)
{
    return vandq_u8(shift_right(v, right), vdupq_n_u8((uint8_t)mask));
}

/* p: the unit, from the first byte of the half's rows on. */
SL_INLINE void levels2(const uint8_t *p, const struct tables *t, int8x16_t *level)
{
    for (int i = 0; i < 8; i++)
        level[i] = vqtbl1q_s8(t->level, bits_at(vld1q_u8(p + 32 * (i / 4)), 2 * (i % 4), 3));
}

/* Of quads 6 and 7 the high bits come together, as bits 2 and 3 of one vector; their tables take no
 * notice of the other's. */
SL_INLINE void levels3(const uint8_t *p, const struct tables *t, int8x16_t *level)
{
    uint8x16_t plane[3] = {vld1q_u8(p), vld1q_u8(p + 32), vld1q_u8(p + 64)};
    for (int i = 0; i < 6; i++)
        level[i] = vqtbl1q_s8(t->level, bits_at(plane[i / 2], 3 * (i % 2), 7));
    uint8x16_t high = bits_at(plane[2], 4, 12);
    level[6] = vqtbl1q_s8(t->level, vorrq_u8(vshrq_n_u8(plane[0], 6), high));
    level[7] = vqtbl1q_s8(t->other, vorrq_u8(vshrq_n_u8(plane[1], 6), high));
}

SL_INLINE uint8x16_t nibbles_of(const uint8_t *p, int quad)
{
    uint8x16_t plane = vld1q_u8(p + 32 * (quad / 2));
    return quad % 2 == 0 ? vandq_u8(plane, vdupq_n_u8(15)) : vshrq_n_u8(plane, 4);
}

SL_INLINE void levels4(const uint8_t *p, const struct tables *t, int8x16_t *level)
{
    for (int i = 0; i < 8; i++) level[i] = vqtbl1q_s8(t->level, nibbles_of(p, i));
}

/* The two tables side by side are one of 32 entries. */
SL_INLINE void levels5(const uint8_t *p, const struct tables *t, int8x16_t *level)
{
    const int8x16x2_t table = {{t->level, t->other}};
    uint8x16_t high = vld1q_u8(p + 128);
    for (int i = 0; i < 8; i++)
        level[i] = vqtbl2q_s8(table, vorrq_u8(nibbles_of(p, i), bits_at(high, i - 4, 16)));
}

SL_INLINE void levels6(const uint8_t *p, int8x16_t *level)
{
    for (int i = 0; i < 8; i++) {
        uint8x16_t high = bits_at(vld1q_u8(p + 128 + 32 * (i / 4)), 2 * (i % 4) - 4, 0x30);
        level[i] = vreinterpretq_s8_u8(vorrq_u8(nibbles_of(p, i), high));
    }
}

SL_INLINE void unpack_levels(const struct layout l, const uint8_t *p, const struct tables *t,
                             int8x16_t *level)
{
    if (l.bits == 2)
        levels2(p, t, level);
    else if (l.bits == 3)
        levels3(p, t, level);
    else if (l.bits == 4)
        levels4(p, t, level);
    else if (l.bits == 5)
        levels5(p, t, level);
    else
        levels6(p, level);
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* s: the scale bytes of eight rows, and of eight more groups where those have 16 columns. */
SL_INLINE struct scales unpack_scales(const struct layout l, const uint8_t *s)
{
    struct scales out;
    for (int i = 0; i < 2; i++) {
        int16x8_t v = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(s + (l.group == 16 ? 8 * i : 0))));
        int16x8_t size = vaddq_s16(vandq_s16(v, vdupq_n_s16(15)), vdupq_n_s16(1));
        int16x8_t sign = vnegq_s16(vshrq_n_s16(v, 7)); /* 0 or -1 */
        int16x8_t j = vandq_s16(vshrq_n_s16(v, 4), vdupq_n_s16(7));
        out.m[i] = vsubq_s16(veorq_s16(size, sign), sign);
        out.offset[i] = vmlaq_n_s16(vdupq_n_s16((int16_t)l.base), j, (int16_t)l.step);
    }
    return out;
}

/* half: 0 or 1. */
SL_INLINE struct half_unit unpack_half(const struct layout l, const uint8_t *unit,
                                       const struct scales *s, const struct tables *t, int half)
{
    struct half_unit u;
    unpack_levels(l, unit + 16 * half, t, u.level);
    for (int i = 0; i < 2; i++) {
        u.m[i] = half == 0 ? vmovl_s16(vget_low_s16(s->m[i])) : vmovl_high_s16(s->m[i]);
        u.offset[i] =
            half == 0 ? vmovl_s16(vget_low_s16(s->offset[i])) : vmovl_high_s16(s->offset[i]);
    }
    return u;
}

/* The scales of the four rows of a half, from the beginning of a band. */
SL_INLINE float32x4_t row_scales(const uint8_t *band, int half)
{
    uint16x4_t d = vreinterpret_u16_u8(vld1_u8(band + 8 * half));
    return vreinterpretq_f32_u32(vshll_n_u16(d, 16));
}

#endif
