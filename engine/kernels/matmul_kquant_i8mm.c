/* Matrix times two or more vectors for weights in blocks of 256, with byte matrix products:
 * pairs_i8mm.h tells how. A group of 32 codes of four activations stays in registers while it meets
 * the same group of eight rows; sums of what shares a scale are multiplied by it and collected. */
#define X_PAIRS 2

#include "engine/kernels/pairs_i8mm.h"

#include "engine/kernels/codes256_neon.h"
#include "engine/kernels/kernel_variants.h"

/* What there is beside the codes of a tile's block: integers of each row; of each pair of rows, in
 * the order of the sums, the integer scales, the float scale and that of the minima. */
struct w_block {
    struct scales row[2 * ROW_PAIRS];
    int32x4_t scale[ROW_PAIRS][16];
    float32x4_t d[ROW_PAIRS], dmin[ROW_PAIRS];
};

/* Four scales of two rows each: out[i] = a[i] twice, b[i] twice. */
SL_INLINE void spread_scales(int16x4_t a, int16x4_t b, int32x4_t out[4])
{
    int32x4_t x = vmovl_s16(a), y = vmovl_s16(b);
    int64x2_t x02 = vreinterpretq_s64_s32(vtrn1q_s32(x, x)),
              x13 = vreinterpretq_s64_s32(vtrn2q_s32(x, x));
    int64x2_t y02 = vreinterpretq_s64_s32(vtrn1q_s32(y, y)),
              y13 = vreinterpretq_s64_s32(vtrn2q_s32(y, y));
    out[0] = vreinterpretq_s32_s64(vzip1q_s64(x02, y02));
    out[1] = vreinterpretq_s32_s64(vzip1q_s64(x13, y13));
    out[2] = vreinterpretq_s32_s64(vzip2q_s64(x02, y02));
    out[3] = vreinterpretq_s32_s64(vzip2q_s64(x13, y13));
}

SL_INLINE void load_w(const struct layout l, const struct rows8 *t, uint64_t at,
                      struct w_block *out)
{
    for (uint32_t r = 0; r < 2 * ROW_PAIRS; r++) out->row[r] = l.scales(t->row[r] + at);
    for (uint32_t r = 0; r < ROW_PAIRS; r++)
        for (uint32_t i = 0; i < l.n_scales / 8; i++) {
            int16x8_t a = out->row[2 * r].scale[i], b = out->row[2 * r + 1].scale[i];
            spread_scales(vget_low_s16(a), vget_low_s16(b), out->scale[r] + 8 * i);
            spread_scales(vget_high_s16(a), vget_high_s16(b), out->scale[r] + 8 * i + 4);
        }
    spread_rows(load_halves(t->row, at + l.d_at), load_halves(t->row + 4, at + l.d_at), out->d);
    if (l.minima)
        spread_rows(load_halves(t->row, at + l.dmin_at), load_halves(t->row + 4, at + l.dmin_at),
                    out->dmin);
}

/* Eight products, added up over four lanes. */
SL_INLINE int32x4_t add_products(int32x4_t sum, int16x8_t a, int16x8_t b)
{
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(a), vget_low_s16(b)), a, b);
}

/* Integers of a row (those for 8 or 16 groups) times the activation's sums over those groups. */
SL_INLINE int32x4_t times_sums(const int16x8_t w[2], uint32_t n, const int16_t *sums)
{
    int16x8_t low = vld1q_s16(sums), high = vld1q_s16(sums + 8);
    if (n == 8) return add_products(vdupq_n_s32(0), w[0], vpaddq_s16(low, high));
    return add_products(add_products(vdupq_n_s32(0), w[0], low), w[1], high);
}

/* The same for two rows and two activations. */
SL_INLINE int32x4_t pair_times_sums(const int16x8_t a[2], const int16x8_t b[2], uint32_t n,
                                    const int16_t *const sums[2])
{
    int32x4_t v[4] = {times_sums(a, n, sums[0]), times_sums(a, n, sums[1]),
                      times_sums(b, n, sums[0]), times_sums(b, n, sums[1])};
    return reduce_rows(v);
}

SL_INLINE void widen_minima(const struct scales *s, int16x8_t out[2])
{
    out[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(s->min)));
    out[1] = vreinterpretq_s16_u16(vmovl_high_u8(s->min));
}

/* The 32 codes of group g of a pair of rows times those of two activations: added to sum. scale: of
 * the group, or of its two halves. */
SL_INLINE int32x4_t group_times(const int8x16_t w[4], const int8x16_t x[4], uint32_t n_scales,
                                const int32x4_t *scale, int32x4_t sum)
{
    int32x4_t first = vmmlaq_s32(vmmlaq_s32(vdupq_n_s32(0), w[0], x[0]), w[1], x[1]);
    if (n_scales == 8)
        return vmlaq_s32(sum, vmmlaq_s32(vmmlaq_s32(first, w[2], x[2]), w[3], x[3]), scale[0]);
    int32x4_t second = vmmlaq_s32(vmmlaq_s32(vdupq_n_s32(0), w[2], x[2]), w[3], x[3]);
    return vmlaq_s32(vmlaq_s32(sum, first, scale[0]), second, scale[1]);
}

/* Sums of a tile's block times n pairs of activations (a constant), each pair of rows by itself. */
struct sums {
    int32x4_t of[ROW_PAIRS][X_PAIRS];
};

/* Block b; block: its rows' bytes. */
SL_INLINE void codes_times(const struct layout l, const uint8_t *const block[2 * ROW_PAIRS],
                           const struct w_block *w, const struct digits *d, uint32_t n,
                           struct sums *out)
{
    for (uint32_t r = 0; r < ROW_PAIRS; r++)
        for (uint32_t j = 0; j < n; j++) out->of[r][j] = vdupq_n_s32(0);
    for (int g = 0; g < 8; g++) {
        int8x16_t x[X_PAIRS][4];
        for (uint32_t j = 0; j < n; j++) codes_x(&d[j], 32 * (uint64_t)g, x[j]);
        for (uint32_t r = 0; r < ROW_PAIRS; r++) {
            int8x16_t even[2], odd[2], c[4];
            l.codes(block[2 * r], g, even);
            l.codes(block[2 * r + 1], g, odd);
            pair_rows(even, odd, c);
            const int32x4_t *scale = w->scale[r] + g * (int)(l.n_scales / 8);
            for (uint32_t j = 0; j < n; j++)
                out->of[r][j] = group_times(c, x[j], l.n_scales, scale, out->of[r][j]);
        }
    }
}

/* What pair r of rows contributes to acc; d: digits of this block. */
SL_INLINE float32x4_t add_block(const struct layout l, const struct w_block *w, uint32_t r,
                                const struct digits *d, int32x4_t isum, float32x4_t acc)
{
    const struct scales *even = &w->row[2 * r], *odd = even + 1;
    const int16_t *const sums[2] = {d->x[0].sums, d->x[1].sums};
    float32x4_t dx = scales_x(d, 0);
    if (l.bias != 0) {
        int32x4_t surplus = pair_times_sums(even->scale, odd->scale, l.n_scales, sums);
        isum = vmlsq_n_s32(isum, surplus, l.bias);
    }
    float32x4_t sum = vfmaq_f32(acc, vmulq_f32(w->d[r], dx), vcvtq_f32_s32(isum));
    if (l.minima) {
        int16x8_t min[2][2];
        widen_minima(even, min[0]);
        widen_minima(odd, min[1]);
        int32x4_t msum = pair_times_sums(min[0], min[1], l.n_scales, sums);
        sum = vfmsq_f32(sum, vmulq_f32(w->dmin[r], dx), vcvtq_f32_s32(msum));
    }
    return vbslq_f32(d->has, sum, acc);
}

/* Digits from block b on. */
SL_INLINE struct digits digits_at(struct digits d, uint64_t b)
{
    for (int i = 0; i < 2; i++) {
        d.x[i].q += 256 * b;
        d.x[i].d += b;
        d.x[i].sums += 16 * b;
    }
    return d;
}

/* Block b of a tile times n pairs of activations (a constant): added to acc. Second digits are rare
 * enough that unpacking the weights once more costs less than keeping all digits side by side. */
SL_INLINE void block_times(const struct layout l, const struct rows8 *t, uint64_t b,
                           const struct x_pairs *p, uint32_t n, float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    const uint8_t *block[2 * ROW_PAIRS];
    struct w_block w;
    struct digits d[X_PAIRS];
    struct sums isum;
    for (uint32_t r = 0; r < 2 * ROW_PAIRS; r++) block[r] = t->row[r] + b * l.block_bytes;
    load_w(l, t, b * l.block_bytes, &w);
    for (uint32_t j = 0; j < n; j++) d[j] = digits_at(first_digits(p->x + 2 * j), b);
    codes_times(l, block, &w, d, n, &isum);
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t r = 0; r < ROW_PAIRS; r++)
            acc[r][j] = add_block(l, &w, r, &d[j], isum.of[r][j], acc[r][j]);
    }
    for (uint32_t j = 0; j < n && p->second; j++) {
        if (!have_second(p->x + 2 * j, b)) continue;
        d[0] = digits_at(second_digits(p->x + 2 * j, b), b);
        codes_times(l, block, &w, d, 1, &isum);
        for (uint32_t r = 0; r < ROW_PAIRS; r++)
            acc[r][j] = add_block(l, &w, r, &d[0], isum.of[r][0], acc[r][j]);
    }
}

/* n: pairs of activations, a constant. */
SL_INLINE void tile_times(const struct layout l, const struct sl_k_matmul *m, const struct rows8 *t,
                          const struct x_pairs *p, uint32_t n, float32x4_t acc[ROW_PAIRS][X_PAIRS])
{
    for (uint32_t r = 0; r < ROW_PAIRS; r++)
        for (uint32_t j = 0; j < n; j++) acc[r][j] = vdupq_n_f32(0.0f);
    for (uint64_t b = 0; b < m->cols / 256; b++) block_times(l, t, b, p, n, acc);
}

SL_INLINE void matmul(const struct layout l, const struct sl_k_matmul *m)
{
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 256 == 0);
    float32x4_t acc[ROW_PAIRS][X_PAIRS];
    for (uint32_t r = 0; r < m->rows; r += 2 * ROW_PAIRS) {
        struct rows8 t = rows8_at(m, r);
        for (uint32_t first = 0; first < m->n_tokens; first += 2 * X_PAIRS) {
            struct x_pairs p = pairs_at(m, first);
            if (p.pairs == 1)
                tile_times(l, m, &t, &p, 1, acc);
            else
                tile_times(l, m, &t, &p, 2, acc);
            store_pairs(m, m->y + first * m->y_stride + r, t.n, &p, acc);
        }
    }
}

#define MATMUL(name, scales, bytes, ...)                                                           \
    void sl_k_matmul_##name##__i8mm(const struct sl_k_matmul *m)                                   \
    {                                                                                              \
        if (m->n_tokens == 1)                                                                      \
            sl_k_matmul_##name##__dotprod(m);                                                      \
        else                                                                                       \
            matmul((struct layout){scales, codes_##name, bytes, __VA_ARGS__}, m);                  \
    }

SL_FOR_TYPES256(MATMUL)
