/* e^x in four lanes, for the NEON kernels. */
#ifndef SL_EXP_NEON_H
#define SL_EXP_NEON_H

#include "base/mathfn_steps.h"
#include "engine/kernels/simd_neon.h"

/* The steps of base/mathfn_steps.h in four lanes. Integers wrap around outside the range, so they
 * have no sign: gcc's intrinsics are C's operators, which may not overflow with one. */
SL_INLINE float32x4_t pow2(uint32x4_t k)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vaddq_u32(k, vdupq_n_u32(127)), 23));
}

SL_INLINE float32x4_t exp4(float32x4_t x)
{
    const float32x4_t magic = vdupq_n_f32(SL_EXPF_MAGIC), one = vdupq_n_f32(1.0f);
    float32x4_t t = vfmaq_f32(magic, x, vdupq_n_f32(SL_EXPF_LOG2E));
    float32x4_t n = vsubq_f32(t, magic);
    uint32x4_t k = vsubq_u32(vreinterpretq_u32_f32(t), vdupq_n_u32(SL_EXPF_MAGIC_BITS));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(SL_EXPF_LN2_HI));
    r = vfmsq_f32(r, n, vdupq_n_f32(SL_EXPF_LN2_LO));
    float32x4_t p = vdupq_n_f32(SL_EXPF_C6);
    p = vfmaq_f32(vdupq_n_f32(SL_EXPF_C5), p, r);
    p = vfmaq_f32(vdupq_n_f32(SL_EXPF_C4), p, r);
    p = vfmaq_f32(vdupq_n_f32(SL_EXPF_C3), p, r);
    p = vfmaq_f32(vdupq_n_f32(SL_EXPF_C2), p, r);
    p = vfmaq_f32(one, p, r);
    p = vfmaq_f32(one, p, r);
    uint32x4_t k1 = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(k), 1));
    float32x4_t y = vmulq_f32(vmulq_f32(p, pow2(k1)), pow2(vsubq_u32(k, k1)));
    y = vbslq_f32(vcgeq_f32(x, vdupq_n_f32(SL_EXPF_HI)), vdupq_n_f32(INFINITY), y);
    uint32x4_t below = vcltq_f32(x, vdupq_n_f32(SL_EXPF_LO));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), below));
}

#endif
