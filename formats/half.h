/* Half precision, bfloat16 and power-of-two scales, in portable integer arithmetic. Floats are
 * rounded to nearest even, as the hardware does; overflow gives infinity. */
#ifndef SL_HALF_H
#define SL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float sl_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t sl_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float sl_f16_to_f32(uint16_t h);
uint16_t sl_f32_to_f16(float f);

/* Half of the power of two that an E8M0 byte stands for: 2^(e - 128). MXFP4 tables hold doubled
 * values and use this. 255 is NaN in the OCP specification; GGUF readers take it as the next power,
 * 2^127, and so do we. */
float sl_e8m0_half_to_f32(uint8_t e);

static inline float sl_bf16_to_f32(uint16_t h) { return sl_f32_from_bits((uint32_t)h << 16); }

/* To nearest even; NaN becomes quiet, its upper payload kept. */
static inline uint16_t sl_f32_to_bf16(float f)
{
    uint32_t u = sl_f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Little-endian loads from any alignment. */
static inline uint16_t sl_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t sl_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
