/* Matrix times vectors for float weights (F32, F16, BF16): the definition. Weights are widened to
 * float exactly; a row's products are summed in 32 striped lanes. */
#include <math.h>

#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/lanes_scalar.h"

static float dot_row(const struct sl_type_info *type, const uint8_t *row, const float *x,
                     uint32_t cols)
{
    float lanes[WIDE_LANES] = {0};
    for (uint32_t c = 0; c < cols; c += WIDE_LANES) {
        float w[WIDE_LANES];
        uint32_t n = cols - c < WIDE_LANES ? cols - c : WIDE_LANES;
        type->decode(row + (uint64_t)c * type->block_bytes, w, n);
        for (uint32_t i = 0; i < n; i++) lanes[i] = fmaf(w[i], x[c + i], lanes[i]);
    }
    return wide_lanes_sum(lanes);
}

static void matmul_float(const struct sl_k_matmul *m, uint32_t type)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    const struct sl_type_info *info = sl_type_info(type);
    for (uint32_t t = 0; t < m->n_tokens; t++)
        for (uint32_t r = 0; r < m->rows; r++)
            m->y[t * m->y_stride + r] =
                dot_row(info, (const uint8_t *)m->w + r * m->row_bytes, m->x[t].f, m->cols);
}

void sl_k_matmul_f32__scalar(const struct sl_k_matmul *m) { matmul_float(m, SL_TYPE_F32); }
void sl_k_matmul_f16__scalar(const struct sl_k_matmul *m) { matmul_float(m, SL_TYPE_F16); }
void sl_k_matmul_bf16__scalar(const struct sl_k_matmul *m) { matmul_float(m, SL_TYPE_BF16); }
