/* From floats to integer codes with a scale: activations, and queries for int8 keys. The
 * definition. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/round_scalar.h"

bool sl_k_quantize__scalar(const float *x, uint32_t n, uint32_t block,
                           const struct sl_k_act_out *out)
{
    for (uint32_t b = 0; b < n / block; b++, x += block) {
        float max, inverse;
        if (!max_abs(x, block, &max)) return false;
        out->d[b] = scale_of(max, 127.0f, &inverse);
        for (uint32_t i = 0; i < block; i++)
            out->q[(uint64_t)b * block + i] = (int8_t)clamp_int(round_even(x[i] * inverse), 127);
    }
    for (uint32_t s = 0; s < n / 16; s++) {
        int sum = 0;
        for (uint32_t i = 0; i < 16; i++) sum += out->q[16 * s + i];
        out->sums[s] = (int16_t)sum; /* at most 16 * 127 */
    }
    return true;
}

bool sl_k_quantize_query__scalar(const float *x, uint32_t n, int16_t *q, float *d)
{
    for (uint32_t start = 0; start < n; start += SL_KV_GROUP) {
        uint32_t count = n - start < SL_KV_GROUP ? n - start : SL_KV_GROUP;
        float max, inverse;
        if (!max_abs(x + start, count, &max)) return false;
        d[start / SL_KV_GROUP] = scale_of(max, 32767.0f, &inverse);
        for (uint32_t i = start; i < start + count; i++)
            q[i] = (int16_t)clamp_int(round_even(x[i] * inverse), 32767);
    }
    return true;
}
