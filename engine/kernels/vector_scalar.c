/* Float vector helpers: the definition. Every fused multiply-add is a call of fmaf, every other
 * operation is rounded by itself. */
#include "base/mathfn.h"
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/lanes_scalar.h"

float sl_k_dot_f32__scalar(const float *a, const float *b, uint32_t n)
{
    float lanes[8] = {0};
    lanes_fma(lanes, a, b, n);
    return lanes_sum(lanes);
}

void sl_k_rms_norm__scalar(const float *x, const float *w, uint32_t n, float eps, float *y)
{
    float mean = sl_k_dot_f32__scalar(x, x, n) / (float)n;
    float s = 1.0f / sqrtf(mean + eps);
    for (uint32_t i = 0; i < n; i++) {
        float v = x[i] * s;
        y[i] = w != NULL ? v * w[i] : v;
    }
}

void sl_k_axpy__scalar(float a, const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

void sl_k_add__scalar(const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = y[i] + x[i];
}

void sl_k_scale__scalar(float a, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = y[i] * a;
}

void sl_k_silu_mul__scalar(const float *g, const float *u, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + sl_expf(-g[i]));
        float silu = g[i] * sigmoid;
        y[i] = silu * u[i];
    }
}

float sl_k_exp_sum__scalar(float *x, uint32_t n, float max)
{
    float lanes[8] = {0};
    for (uint32_t i = 0; i < n; i++) {
        x[i] = sl_expf(x[i] - max);
        lanes[i % 8] = lanes[i % 8] + x[i];
    }
    return lanes_sum(lanes);
}

/* Adding +0 turns -0 into +0, so that it does not matter which of several zeros was seen first. */
float sl_k_max_f32__scalar(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    return max + 0.0f;
}

void sl_k_rope__scalar(float *x, const float *cs, uint32_t n_rot, bool neox)
{
    uint32_t half = n_rot / 2;
    uint32_t step = neox ? 1 : 2;        /* from pair to pair */
    uint32_t distance = neox ? half : 1; /* within a pair */
    for (uint32_t i = 0; i < half; i++) {
        float c = cs[2 * i], s = cs[2 * i + 1];
        float *a = x + i * step;
        float *b = a + distance;
        float bs = *b * s, bc = *b * c, a_old = *a;
        *a = fmaf(a_old, c, -bs);
        *b = fmaf(a_old, s, bc);
    }
}
