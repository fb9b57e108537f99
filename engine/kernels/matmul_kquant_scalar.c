/* Matrix times vectors for weights in blocks of 256 (the k-quants and IQ4_XS): the definition.
 *
 * A block's products are summed in groups of 16, each group times its integer scale. No int32
 * overflows: the largest cases are Q6_K, 32 * 127 * 16 products * 128 (scale) * 16 groups =
 * 133,169,152, and IQ4_XS, 127 * 127 * 16 * 32 * 16 = 132,128,768; the minima give at most 63 * 127
 * * 256 = 2,048,256. Both sums are then rounded to float, to nearest even. */
#include <math.h>

#include "engine/kernels/kernel_variants.h"
#include "formats/blocks.h"

struct layout {
    sl_unpack256_fn *unpack;
    uint32_t block_bytes;
    bool minima;
};

#define TOKENS 8 /* activations a block is used for once it is unpacked */

/* One digit of an activation block: its codes, scale, and sums of 16. */
static float add_digit(const struct sl_block256 *b, bool minima, struct sl_k_digit x,
                       uint32_t block, float acc)
{
    const int8_t *q = x.q + 256 * (uint64_t)block;
    const int16_t *sums = x.sums + 16 * (uint64_t)block;
    float dx = x.d[block];
    int32_t isum = 0, msum = 0;
    for (int s = 0; s < 16; s++) {
        int32_t dot = 0;
        for (int i = 16 * s; i < 16 * s + 16; i++) dot += b->q[i] * q[i];
        isum += b->scale[s] * dot;
        msum += b->min[s] * sums[s];
    }
    acc = fmaf(b->d * dx, (float)isum, acc);
    return minima ? fmaf(-(b->dmin * dx), (float)msum, acc) : acc;
}

static float add_block(const struct sl_block256 *b, bool minima, const struct sl_k_act *x,
                       uint32_t block, float acc)
{
    acc = add_digit(b, minima, (struct sl_k_digit){x->q, x->d, x->sums}, block, acc);
    bool more = x->second.d != NULL && x->second.d[block] != 0.0f;
    return more ? add_digit(b, minima, x->second, block, acc) : acc;
}

static void matmul_q256(const struct sl_k_matmul *m, const struct layout *l)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    for (uint32_t r = 0; r < m->rows; r++)
        for (uint32_t t0 = 0; t0 < m->n_tokens; t0 += TOKENS) {
            const uint8_t *w = (const uint8_t *)m->w + r * m->row_bytes;
            uint32_t n = m->n_tokens - t0 < TOKENS ? m->n_tokens - t0 : TOKENS;
            float acc[TOKENS] = {0};
            for (uint32_t block = 0; block < m->cols / 256; block++, w += l->block_bytes) {
                struct sl_block256 b;
                l->unpack(w, &b);
                for (uint32_t t = 0; t < n; t++)
                    acc[t] = add_block(&b, l->minima, &m->x[t0 + t], block, acc[t]);
            }
            for (uint32_t t = 0; t < n; t++) m->y[(t0 + t) * m->y_stride + r] = acc[t];
        }
}

#define MATMUL(name, bytes, minima)                                                                \
    void sl_k_matmul_##name##__scalar(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        matmul_q256(m, &(struct layout){sl_unpack_##name, bytes, minima});                         \
    }

MATMUL(q2_k, SL_Q2_K_BYTES, true)
MATMUL(q3_k, SL_Q3_K_BYTES, false)
MATMUL(q4_k, SL_Q4_K_BYTES, true)
MATMUL(q5_k, SL_Q5_K_BYTES, true)
MATMUL(q6_k, SL_Q6_K_BYTES, false)
MATMUL(iq4_xs, SL_IQ4_XS_BYTES, false)
