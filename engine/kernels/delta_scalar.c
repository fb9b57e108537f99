/* What recurrent layers and gates compute: the definition. */
#include <math.h>

#include "base/mathfn.h"
#include "engine/kernels/kernel_variants.h"

void sl_k_sigmoid_mul__scalar(const float *g, const float *u, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + sl_expf(-g[i]));
        y[i] = sigmoid * u[i];
    }
}

void sl_k_conv_silu__scalar(const float *const *rows, const float *w, uint32_t taps, uint32_t n,
                            float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float acc = 0.0f;
        for (uint32_t j = 0; j < taps; j++) acc = fmaf(w[i * taps + j], rows[j][i], acc);
        float sigmoid = 1.0f / (1.0f + sl_expf(-acc));
        y[i] = acc * sigmoid;
    }
}

/* Column first + c of the state, for all c of a stretch. */
static void step_stretch(const struct sl_k_delta *s, uint32_t first)
{
    float a[SL_DELTA_COLS] = {0}, b[SL_DELTA_COLS] = {0};
    float *row = s->state + (uint64_t)first * s->n_k;
    for (uint32_t i = 0; i < s->n_k; i++, row += SL_DELTA_COLS) {
        for (uint32_t c = 0; c < SL_DELTA_COLS; c++) {
            if (s->k_before) {
                float kept = s->decay_before * row[c];
                row[c] = fmaf(s->k_before[i], s->u_before[first + c], kept);
            }
            a[c] = fmaf(row[c], s->k[i], a[c]);
            b[c] = fmaf(row[c], s->q[i], b[c]);
        }
    }
    for (uint32_t c = 0; c < SL_DELTA_COLS; c++) {
        float u = s->beta * fmaf(-s->decay, a[c], s->v[first + c]);
        float kept = s->decay * b[c];
        s->u[first + c] = u;
        s->y[first + c] = fmaf(u, s->qk, kept);
    }
}

void sl_k_delta_step__scalar(const struct sl_k_delta *s)
{
    for (uint32_t first = 0; first < s->n_v; first += SL_DELTA_COLS) step_stretch(s, first);
}
