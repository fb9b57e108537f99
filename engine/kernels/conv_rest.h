/* What vector kernels leave of a convolution: channels one by one, in the steps of the definition
 * (delta_scalar.c). */
#ifndef SL_CONV_REST_H
#define SL_CONV_REST_H

#include "base/mathfn_steps.h"

/* Channels [first, n) of conv_silu. */
static inline void conv_rest(const float *const *rows, const float *w, uint32_t taps,
                             uint32_t first, uint32_t n, float *y)
{
    for (uint32_t i = first; i < n; i++) {
        float acc = 0.0f;
        for (uint32_t j = 0; j < taps; j++) acc = fmaf(w[i * taps + j], rows[j][i], acc);
        float sigmoid = 1.0f / (1.0f + sl_expf_steps(-acc));
        y[i] = acc * sigmoid;
    }
}

#endif
