/* From floats to integer codes, for NEON: activations, queries for int8 keys, and positions of the
 * KV cache. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/round_scalar.h"
#include "engine/kernels/simd_neon.h"

/* The largest magnitude of n elements; false where one is not finite. n: a multiple of 4. */
SL_INLINE bool max_abs4(const float *x, uint32_t n, float *out)
{
    const float32x4_t largest = vdupq_n_f32(FLT_MAX);
    float32x4_t max = vdupq_n_f32(0.0f);
    uint32x4_t finite = vdupq_n_u32(UINT32_MAX);
    for (uint32_t i = 0; i < n; i += 4) {
        float32x4_t a = vabsq_f32(vld1q_f32(x + i));
        finite = vandq_u32(finite, vcleq_f32(a, largest));
        max = vmaxq_f32(max, a);
    }
    *out = vmaxvq_f32(max);
    return vminvq_u32(finite) != 0;
}

/* Eight floats as integers, to nearest even, saturated to 16 bits. */
SL_INLINE int16x8_t round8(float32x4_t a, float32x4_t b)
{
    return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a)), vqmovn_s32(vcvtnq_s32_f32(b)));
}

/* Sixteen of them, clamped to +-127. */
SL_INLINE int8x16_t pack_codes(int16x8_t a, int16x8_t b)
{
    return vmaxq_s8(vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)), vdupq_n_s8(-127));
}

SL_INLINE int16x8_t scaled8(const float *x, float factor)
{
    return round8(vmulq_n_f32(vld1q_f32(x), factor), vmulq_n_f32(vld1q_f32(x + 4), factor));
}

bool sl_k_quantize__neon(const float *x, uint32_t n, uint32_t block, const struct sl_k_act_out *out)
{
    for (uint32_t b = 0; b < n / block; b++) {
        uint64_t start = (uint64_t)b * block;
        float max, inverse;
        if (!max_abs4(x + start, block, &max)) return false;
        out->d[b] = scale_of(max, 127.0f, &inverse);
        for (uint64_t i = start; i < start + block; i += 16) {
            int8x16_t codes = pack_codes(scaled8(x + i, inverse), scaled8(x + i + 8, inverse));
            vst1q_s8(out->q + i, codes);
            out->sums[i / 16] = vaddlvq_s8(codes);
        }
    }
    return true;
}

bool sl_k_quantize_query__neon(const float *x, uint32_t n, int16_t *q, float *d)
{
    uint32_t start = 0;
    for (; start + SL_KV_GROUP <= n; start += SL_KV_GROUP) {
        float max, inverse;
        if (!max_abs4(x + start, SL_KV_GROUP, &max)) return false;
        d[start / SL_KV_GROUP] = scale_of(max, 32767.0f, &inverse);
        for (uint32_t i = start; i < start + SL_KV_GROUP; i += 8)
            vst1q_s16(q + i, vmaxq_s16(scaled8(x + i, inverse), vdupq_n_s16(-32767)));
    }
    if (start == n) return true;
    return sl_k_quantize_query__scalar(x + start, n - start, q + start, d + start / SL_KV_GROUP);
}

bool sl_k_store_kv_f32__neon(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    float max;
    uint32_t whole = head_dim & ~3u;
    (void)scales;
    memcpy(data, x, (uint64_t)head_dim * sizeof *x);
    return max_abs4(x, whole, &max) && max_abs(x + whole, head_dim - whole, &max);
}

bool sl_k_store_kv_f16__neon(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    const uint16x4_t infinite = vdup_n_u16(0x7c00);
    uint16_t *out = data;
    uint16x4_t bad = vdup_n_u16(0);
    uint32_t i = 0;
    for (; i + 4 <= head_dim; i += 4) {
        uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i)));
        bad = vorr_u16(bad, vceq_u16(vand_u16(h, infinite), infinite));
        vst1_u16(out + i, h);
    }
    bool tail = sl_k_store_kv_f16__scalar(x + i, head_dim - i, out + i, scales);
    return tail && vmaxv_u16(bad) == 0;
}

SL_INLINE int16x8_t divided8(const float *x, float32x4_t scale)
{
    return round8(vdivq_f32(vld1q_f32(x), scale), vdivq_f32(vld1q_f32(x + 4), scale));
}

/* One whole group of the int8 cache. */
SL_INLINE bool store_group(const float *x, int8_t *out, uint16_t *half)
{
    float max;
    if (!max_abs4(x, SL_KV_GROUP, &max)) return false;
    *half = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(max / 127.0f))), 0);
    if ((*half & 0x7c00) == 0x7c00) return false;
    if (*half == 0) {
        memset(out, 0, SL_KV_GROUP);
        return true;
    }
    float32x4_t scale = vdupq_n_f32(half_to_float(*half));
    for (uint32_t i = 0; i < SL_KV_GROUP; i += 16)
        vst1q_s8(out + i, pack_codes(divided8(x + i, scale), divided8(x + i + 8, scale)));
    return true;
}

bool sl_k_store_kv_q8__neon(const float *x, uint32_t head_dim, void *data, uint16_t *scales)
{
    int8_t *out = data;
    uint32_t start = 0;
    for (; start + SL_KV_GROUP <= head_dim; start += SL_KV_GROUP)
        if (!store_group(x + start, out + start, scales + start / SL_KV_GROUP)) return false;
    if (start == head_dim) return true;
    return sl_k_store_kv_q8__scalar(x + start, head_dim - start, out + start,
                                    scales + start / SL_KV_GROUP);
}
