/* Matrix times vectors for weights in blocks of 32, for NEON without and with its dot product: the
 * body of matmul_q32_neon.c and matmul_q32_dotprod.c, which define the same functions with other
 * instructions behind dot32.
 *
 * Four rows go together: their integer sums are folded into one vector, a lane per row, and meet
 * their scales there, in the order of the scalar definition. A tile's unpacked block is used for
 * several activations before the next one is unpacked. */
#ifndef SL_MATMUL_Q32_NEON_H
#define SL_MATMUL_Q32_NEON_H

#include "engine/kernels/codes32_neon.h"
#include "engine/kernels/kernel_variants.h"

#define TOKENS 8 /* activations per pass over a tile */

/* A block of a tile, unpacked. */
struct unpacked {
    struct codes c[TILE_ROWS];
    float32x4_t d, m;
};

/* A tile's block times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE float32x4_t add_digit(const struct layout l, const struct unpacked *w,
                                struct sl_k_digit x, uint64_t b, float32x4_t acc)
{
    int32x4_t p[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) p[r] = dot32(w->c[r].c, x.q + 32 * b, l.small);
    int32x4_t isum = reduce_rows(p);
    int32_t xsum = 0;
    if (l.bias != 0 || l.offsets) xsum = x.sums[2 * b] + x.sums[2 * b + 1];
    if (l.bias != 0) isum = vsubq_s32(isum, vdupq_n_s32(l.bias * xsum));
    acc = vfmaq_f32(acc, vmulq_n_f32(w->d, x.d[b]), vcvtq_f32_s32(isum));
    if (!l.offsets) return acc;
    return vfmaq_f32(acc, vmulq_n_f32(w->m, x.d[b]), vdupq_n_f32((float)xsum));
}

/* Activations of one pass; second: some may have a second digit. n is a constant 1 or at most
 * TOKENS, second a constant. */
struct pass {
    const struct sl_k_act *x;
    uint32_t n;
    bool second;
};

SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, const struct tile *t,
                          const struct pass p, float32x4_t *acc)
{
    const struct sl_k_act *x = p.x;
    for (uint32_t i = 0; i < p.n; i++) acc[i] = vdupq_n_f32(0.0f);
    for (uint64_t b = 0; b < m->cols / 32; b++) {
        uint64_t at = b * l.block_bytes;
        struct unpacked w;
        for (int r = 0; r < TILE_ROWS; r++) w.c[r] = l.unpack(t->row[r] + at);
        w.d = l.e8m0 ? load_e8m0(t->row, at) : load_halves(t->row, at);
        w.m = l.offsets ? load_halves(t->row, at + 2) : w.d;
        for (uint32_t i = 0; i < p.n; i++) {
            struct sl_k_digit first = {x[i].q, x[i].d, x[i].sums};
            acc[i] = add_digit(l, &w, first, b, acc[i]);
            if (p.second && has_second(&x[i], b)) acc[i] = add_digit(l, &w, x[i].second, b, acc[i]);
        }
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    float32x4_t acc[TOKENS];
    for (uint32_t r = 0; r < m->rows; r += TILE_ROWS) {
        struct tile t = tile_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += TOKENS) {
            uint32_t n = m->n_tokens - first < TOKENS ? m->n_tokens - first : TOKENS;
            const struct sl_k_act *x = m->x + first;
            bool second = any_second(x, n);
            if (n == 1 && second)
                tile_times(l, m, &t, (struct pass){x, 1, true}, acc);
            else if (n == 1)
                tile_times(l, m, &t, (struct pass){x, 1, false}, acc);
            else if (second)
                tile_times(l, m, &t, (struct pass){x, n, true}, acc);
            else
                tile_times(l, m, &t, (struct pass){x, n, false}, acc);
            for (uint32_t i = 0; i < n; i++)
                store_lanes(m->y + (first + i) * m->y_stride + r, acc[i], t.n);
        }
    }
}

#define MATMUL(name, bytes, ...)                                                                   \
    void SL_NEON_NAME(sl_k_matmul_##name)(const struct sl_k_matmul *m)                             \
    {                                                                                              \
        matmul((struct layout){unpack_##name, bytes, __VA_ARGS__}, m);                             \
    }

SL_FOR_TYPES32(MATMUL)

#endif
