/* See encode_q8_0.h. */
#include "formats/encode_q8_0.h"

#include <math.h>

#include "formats/blocks.h"
#include "formats/half.h"

#define BLOCK 32

/* Half away from zero, held to what a code can be: only where d is denormal could x / d be more. */
static int8_t code_of(float v)
{
    float a = fabsf(v);
    a = a < 127.0f ? a : 127.0f;
    float down = floorf(a);
    int code = (int)(down + floorf(2.0f * (a - down)));
    return (int8_t)(v < 0.0f ? -code : code);
}

/* Where 1 / d is not finite, d as a half is 0: the codes mean nothing and are 0 too. */
static bool encode_block(const float *x, uint8_t *dst)
{
    float max = 0.0f;
    for (uint32_t i = 0; i < BLOCK; i++) {
        if (!isfinite(x[i])) return false;
        if (fabsf(x[i]) > max) max = fabsf(x[i]);
    }
    float d = max / 127.0f, inverse = 1.0f / d;
    if (!isfinite(inverse)) inverse = 0.0f;
    uint16_t half = sl_f32_to_f16(d);
    if (half >= 0x7c00) return false;
    memcpy(dst, &half, sizeof half);
    for (uint32_t i = 0; i < BLOCK; i++) dst[2 + i] = (uint8_t)code_of(x[i] * inverse);
    return true;
}

bool sl_encode_q8_0(const float *x, uint64_t n, void *dst)
{
    SLUICE_ASSERT(n % BLOCK == 0);
    uint8_t *p = dst;
    for (uint64_t i = 0; i < n; i += BLOCK, p += SL_Q8_0_BYTES)
        if (!encode_block(x + i, p)) return false;
    return true;
}

bool sl_encode_f16(const float *x, uint64_t n, void *dst)
{
    uint8_t *p = dst;
    bool finite = true;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h = sl_f32_to_f16(x[i]);
        finite &= (h & 0x7c00) != 0x7c00;
        memcpy(p + 2 * i, &h, sizeof h);
    }
    return finite;
}

bool sl_encode_bf16(const float *x, uint64_t n, void *dst)
{
    uint8_t *p = dst;
    bool finite = true;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h = sl_f32_to_bf16(x[i]);
        finite &= (h & 0x7f80) != 0x7f80;
        memcpy(p + 2 * i, &h, sizeof h);
    }
    return finite;
}
