/* Matrix times vectors for weights in blocks of 32 (Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL MXFP4): the
 * definition.
 *
 * A block's codes are multiplied by the activation's codes and summed in int32: at most 128 * 127 *
 * 32 = 520,192 in magnitude, which a float even holds exactly. The scales come in once per block.
 */
#include <math.h>

#include "engine/kernels/kernel_variants.h"
#include "formats/blocks.h"

struct layout {
    sl_unpack32_fn *unpack;
    uint32_t block_bytes;
    bool offsets; /* weights have an offset m */
};

#define TOKENS 8 /* activations a block is used for once it is unpacked */

/* One digit of an activation block: its codes, scale, and sums of 16. */
static float add_digit(const struct sl_block32 *b, bool offsets, struct sl_k_digit x,
                       uint32_t block, float acc)
{
    const int8_t *q = x.q + 32 * (uint64_t)block;
    float dx = x.d[block];
    int32_t isum = 0;
    for (int i = 0; i < 32; i++) isum += b->q[i] * q[i];
    acc = fmaf(b->d * dx, (float)isum, acc);
    if (!offsets) return acc;
    int32_t xsum = x.sums[2 * block] + x.sums[2 * block + 1];
    return fmaf(b->m * dx, (float)xsum, acc);
}

static float add_block(const struct sl_block32 *b, bool offsets, const struct sl_k_act *x,
                       uint32_t block, float acc)
{
    acc = add_digit(b, offsets, (struct sl_k_digit){x->q, x->d, x->sums}, block, acc);
    bool more = x->second.d != NULL && x->second.d[block] != 0.0f;
    return more ? add_digit(b, offsets, x->second, block, acc) : acc;
}

static void matmul_q32(const struct sl_k_matmul *m, const struct layout *l)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    for (uint32_t r = 0; r < m->rows; r++)
        for (uint32_t t0 = 0; t0 < m->n_tokens; t0 += TOKENS) {
            const uint8_t *w = (const uint8_t *)m->w + r * m->row_bytes;
            uint32_t n = m->n_tokens - t0 < TOKENS ? m->n_tokens - t0 : TOKENS;
            float acc[TOKENS] = {0};
            for (uint32_t block = 0; block < m->cols / 32; block++, w += l->block_bytes) {
                struct sl_block32 b;
                l->unpack(w, &b);
                for (uint32_t t = 0; t < n; t++)
                    acc[t] = add_block(&b, l->offsets, &m->x[t0 + t], block, acc[t]);
            }
            for (uint32_t t = 0; t < n; t++) m->y[(t0 + t) * m->y_stride + r] = acc[t];
        }
}

#define MATMUL(name, bytes, offsets)                                                               \
    void sl_k_matmul_##name##__scalar(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        matmul_q32(m, &(struct layout){sl_unpack_##name, bytes, offsets});                         \
    }

MATMUL(q8_0, SL_Q8_0_BYTES, false)
MATMUL(q4_0, SL_Q4_0_BYTES, false)
MATMUL(q4_1, SL_Q4_1_BYTES, true)
MATMUL(q5_0, SL_Q5_0_BYTES, false)
MATMUL(q5_1, SL_Q5_1_BYTES, true)
MATMUL(iq4_nl, SL_IQ4_NL_BYTES, false)
MATMUL(mxfp4, SL_MXFP4_BYTES, false)
