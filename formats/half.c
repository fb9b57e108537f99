/* Half precision to float and back.
 *
 * Integer arithmetic only, so that neither the rounding mode nor a flush-to-zero setting can change
 * a result; what comes out is bit for bit what the F16C instructions give (test_tensor_type tries
 * every half, and floats around every rounding border). */
#include "formats/half.h"

float sl_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31;
    uint32_t mantissa = h & 0x3ff;
    if (exponent == 31) { /* infinity, or NaN, which becomes quiet */
        uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
        return sl_f32_from_bits(sign | 0x7f800000 | quiet | mantissa << 13);
    }
    if (exponent != 0) return sl_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    if (mantissa == 0) return sl_f32_from_bits(sign);
    /* Denormal: mantissa * 2^-24. Shift the highest set bit to where the hidden bit is. */
    uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21;
    return sl_f32_from_bits(sign | (113 - shift) << 23 | ((mantissa << shift) & 0x3ff) << 13);
}

/* value >> shift, to nearest, ties to even. shift 1..31. */
static uint32_t shift_round_even(uint32_t value, uint32_t shift)
{
    uint32_t half = 1u << (shift - 1);
    uint32_t odd = (value >> shift) & 1;
    return (value + half - 1 + odd) >> shift;
}

uint16_t sl_f32_to_f16(float f)
{
    uint32_t bits = sl_f32_bits(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN: quiet, the upper payload kept */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 65536 and more */
    if (magnitude >= 0x38800000) /* 2^-14: normal; a carry runs into the exponent, up to infinity */
        return (uint16_t)(sign | shift_round_even(magnitude - 0x38000000, 13));
    if (magnitude < 0x33000000) return sign; /* below 2^-25, half of the smallest denormal */
    uint32_t exponent = magnitude >> 23;
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_round_even(mantissa, 126 - exponent));
}

float sl_e8m0_half_to_f32(uint8_t e)
{
    if (e >= 2) return sl_f32_from_bits((uint32_t)(e - 1) << 23);
    return sl_f32_from_bits(0x00200000u << e); /* 2^-128 and 2^-127 are denormal */
}
