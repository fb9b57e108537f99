/* Matrix times two or more vectors for weights in blocks of 32, with byte matrix products:
 * pairs_i8mm.h tells how. A tile's block is unpacked once for eight activations. */
#define X_PAIRS 4

#include "engine/kernels/pairs_i8mm.h"

#include "engine/kernels/codes32_neon.h"
#include "engine/kernels/kernel_variants.h"

/* A block of two activations. */
struct x_block {
    int8x16_t q[4];
    float32x4_t d;
    int32x4_t sum;
};

SL_INLINE struct x_block load_x(const struct layout l, const struct digits *d, uint64_t b)
{
    struct x_block out = {.d = scales_x(d, b), .sum = vdupq_n_s32(0)};
    codes_x(d, 32 * b, out.q);
    if (l.bias != 0 || l.offsets) out.sum = vaddq_s32(sums_x(d, 2 * b), sums_x(d, 2 * b + 1));
    return out;
}

/* A block of two rows: codes, scales, offsets. */
struct w_block {
    int8x16_t c[4];
    float32x4_t d, m;
};

SL_INLINE float32x4_t add_digit(const struct layout l, const struct w_block *w,
                                const struct x_block *x, float32x4_t acc)
{
    int32x4_t isum = vdupq_n_s32(0);
    for (int i = 0; i < 4; i++) isum = vmmlaq_s32(isum, w->c[i], x->q[i]);
    if (l.bias != 0) isum = vmlsq_n_s32(isum, x->sum, l.bias);
    float32x4_t sum = vfmaq_f32(acc, vmulq_f32(w->d, x->d), vcvtq_f32_s32(isum));
    if (l.offsets) sum = vfmaq_f32(sum, vmulq_f32(w->m, x->d), vcvtq_f32_s32(x->sum));
    return sum;
}

/* A tile's block. */
struct tile_block {
    struct w_block pair[ROW_PAIRS];
};

SL_INLINE void load_w(const struct layout l, const struct rows8 *t, uint64_t at,
                      struct tile_block *out)
{
    float32x4_t d[ROW_PAIRS], m[ROW_PAIRS];
    if (l.e8m0)
        spread_rows(load_e8m0(t->row, at), load_e8m0(t->row + 4, at), d);
    else
        spread_rows(load_halves(t->row, at), load_halves(t->row + 4, at), d);
    if (l.offsets) spread_rows(load_halves(t->row, at + 2), load_halves(t->row + 4, at + 2), m);
    for (uint32_t r = 0; r < ROW_PAIRS; r++) {
        struct codes even = l.unpack(t->row[2 * r] + at), odd = l.unpack(t->row[2 * r + 1] + at);
        pair_rows(even.c, odd.c, out->pair[r].c);
        out->pair[r].d = d[r];
        if (l.offsets) out->pair[r].m = m[r];
    }
}

/* Block b of a tile times a pass: added to acc. */
SL_INLINE void block_times(const struct layout l, const struct tile_block *w, uint64_t b,
                           const struct x_pairs *p, float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    for (uint32_t j = 0; j < p->pairs; j++) {
        struct digits d = first_digits(p->x + 2 * j);
        struct x_block x = load_x(l, &d, b);
        for (uint32_t r = 0; r < ROW_PAIRS; r++)
            acc[r][j] = add_digit(l, &w->pair[r], &x, acc[r][j]);
        if (!p->second || !have_second(p->x + 2 * j, b)) continue;
        d = second_digits(p->x + 2 * j, b);
        x = load_x(l, &d, b);
        for (uint32_t r = 0; r < ROW_PAIRS; r++)
            acc[r][j] = vbslq_f32(d.has, add_digit(l, &w->pair[r], &x, acc[r][j]), acc[r][j]);
    }
}

SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, const struct rows8 *t,
                          const struct x_pairs *p, float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    for (uint32_t r = 0; r < ROW_PAIRS; r++)
        for (uint32_t j = 0; j < p->pairs; j++) acc[r][j] = vdupq_n_f32(0.0f);
    for (uint64_t b = 0; b < m->cols / 32; b++) {
        struct tile_block w;
        load_w(l, t, b * l.block_bytes, &w);
        block_times(l, &w, b, p, acc);
    }
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    float32x4_t acc[ROW_PAIRS][X_PAIRS];
    for (uint32_t r = 0; r < m->rows; r += 2 * ROW_PAIRS) {
        struct rows8 t = rows8_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += 2 * X_PAIRS) {
            struct x_pairs p = pairs_at(m, first);
            tile_times(l, m, &t, &p, acc);
            store_pairs(m, m->y + first * m->y_stride + r, t.n, &p, acc);
        }
    }
}

#define MATMUL(name, bytes, ...)                                                                   \
    void sl_k_matmul_##name##__i8mm(const struct sl_k_matmul *m)                                   \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul_##name##__dotprod(m);                                                      \
        else                                                                                       \
            matmul((struct layout){unpack_##name, bytes, __VA_ARGS__}, m);                         \
    }

SL_FOR_TYPES32(MATMUL)
