/* What recurrent layers and gates compute, for NEON. */
#include "engine/kernels/conv_rest.h"
#include "engine/kernels/exp_neon.h"
#include "engine/kernels/kernel_variants.h"

#define VECTORS (SL_DELTA_COLS / 4)

SL_INLINE float32x4_t sigmoid4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    return vdivq_f32(one, vaddq_f32(one, exp4(vnegq_f32(x))));
}

void sl_k_sigmoid_mul__neon(const float *g, const float *u, uint32_t n, float *y)
{
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vmulq_f32(sigmoid4(vld1q_f32(g + i)), vld1q_f32(u + i)));
    for (; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + sl_expf_steps(-g[i]));
        y[i] = sigmoid * u[i];
    }
}

/* Four taps, as all known models have; they lie channel by channel. */
void sl_k_conv_silu__neon(const float *const *rows, const float *w, uint32_t taps, uint32_t n,
                          float *y)
{
    uint32_t i = 0;
    for (; taps == 4 && i + 4 <= n; i += 4) {
        float32x4x4_t tap = vld4q_f32(w + 4 * i);
        float32x4_t acc = vdupq_n_f32(0.0f);
        for (int j = 0; j < 4; j++) acc = vfmaq_f32(acc, tap.val[j], vld1q_f32(rows[j] + i));
        vst1q_f32(y + i, vmulq_f32(acc, sigmoid4(acc)));
    }
    conv_rest(rows, w, taps, i, n, y);
}

/* What the columns of a stretch have summed up, four in a vector. */
struct sums {
    float32x4_t a[VECTORS], b[VECTORS];
};

SL_INLINE struct sums pass(const struct sl_k_delta *s, uint32_t first, bool before)
{
    struct sums r;
    float32x4_t u[VECTORS];
    float *row = s->state + (uint64_t)first * s->n_k;
    for (uint32_t h = 0; h < VECTORS; h++) {
        r.a[h] = r.b[h] = vdupq_n_f32(0.0f);
        u[h] = before ? vld1q_f32(s->u_before + first + 4 * h) : r.a[h];
    }
    for (uint32_t i = 0; i < s->n_k; i++, row += SL_DELTA_COLS) {
        for (uint32_t h = 0; h < VECTORS; h++) {
            float32x4_t x = vld1q_f32(row + 4 * h);
            if (before) {
                x = vfmaq_n_f32(vmulq_n_f32(x, s->decay_before), u[h], s->k_before[i]);
                vst1q_f32(row + 4 * h, x);
            }
            r.a[h] = vfmaq_n_f32(r.a[h], x, s->k[i]);
            r.b[h] = vfmaq_n_f32(r.b[h], x, s->q[i]);
        }
    }
    return r;
}

void sl_k_delta_step__neon(const struct sl_k_delta *s)
{
    for (uint32_t first = 0; first < s->n_v; first += SL_DELTA_COLS) {
        struct sums r = s->k_before ? pass(s, first, true) : pass(s, first, false);
        for (uint32_t h = 0; h < VECTORS; h++) {
            float32x4_t v = vld1q_f32(s->v + first + 4 * h);
            float32x4_t u = vmulq_n_f32(vfmsq_n_f32(v, r.a[h], s->decay), s->beta);
            vst1q_f32(s->u + first + 4 * h, u);
            float32x4_t y = vfmaq_n_f32(vmulq_n_f32(r.b[h], s->decay), u, s->qk);
            vst1q_f32(s->y + first + 4 * h, y);
        }
    }
}
