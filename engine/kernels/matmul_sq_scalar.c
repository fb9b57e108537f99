/* Matrix times vectors for the container's own weight types (formats/sq.h): the definition.
 *
 * A unit's integers m * v are at most 16 * 63 in magnitude, so that a row's sum over 32 columns is
 * below 16 * 63 * 127 * 32 < 2^22: exact in int32 and as a float. The row's scale comes in once, at
 * the end. */
#include <math.h>

#include "engine/kernels/kernel_variants.h"
#include "formats/half.h"

#define TOKENS 8 /* activations a unit is used for once it is unpacked */

/* m * v of a row's 32 columns. */
struct products {
    int16_t w[SL_SQ_UNIT_COLS];
};

static void multiply_out(const struct sl_sq_row *row, struct products *out)
{
    const int8_t *v = row->v;
    int low = row->m[0], high = row->m[1];
    for (uint32_t i = 0; i < SL_SQ_UNIT_COLS; i++)
        out->w[i] = (int16_t)((i < 16 ? low : high) * v[i]);
}

/* One digit of an activation's 32 codes times one row of a unit. */
static float add_digit(const struct products *p, struct sl_k_digit x, uint32_t unit, float acc)
{
    const int8_t *q = x.q + SL_SQ_UNIT_COLS * (uint64_t)unit;
    int32_t isum = 0;
    for (uint32_t i = 0; i < SL_SQ_UNIT_COLS; i++) isum += p->w[i] * q[i];
    return fmaf(x.d[unit], (float)isum, acc);
}

static float add_unit(const struct products *p, const struct sl_k_act *x, uint32_t unit, float acc)
{
    acc = add_digit(p, (struct sl_k_digit){x->q, x->d, x->sums}, unit, acc);
    bool more = x->second.d != NULL && x->second.d[unit] != 0.0f;
    return more ? add_digit(p, x->second, unit, acc) : acc;
}

/* Rows first .. of a band, as many as the matrix has there, times n activations. */
static void band_times(const struct sl_sq_info *info, const struct sl_k_matmul *m, uint32_t first,
                       const struct sl_k_act *x, uint32_t n, float *y)
{
    const uint8_t *band = (const uint8_t *)m->w + first * m->row_bytes;
    const uint8_t *at = band + SL_SQ_ROW_SCALE_BYTES;
    uint32_t rows = m->rows - first < SL_SQ_BAND_ROWS ? m->rows - first : SL_SQ_BAND_ROWS;
    float acc[TOKENS][SL_SQ_BAND_ROWS] = {{0}};
    for (uint32_t u = 0; u < m->cols / SL_SQ_UNIT_COLS; u++, at += info->unit_bytes) {
        struct sl_sq_unit unit;
        sl_sq_unpack(info, at, &unit);
        for (uint32_t r = 0; r < rows; r++) {
            struct products p;
            multiply_out(&unit.row[r], &p);
            for (uint32_t t = 0; t < n; t++) acc[t][r] = add_unit(&p, &x[t], u, acc[t][r]);
        }
    }
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < rows; r++)
            y[t * m->y_stride + r] = sl_bf16_to_f32(sl_load_u16(band + 2 * r)) * acc[t][r];
}

static void matmul_sq(uint32_t type, const struct sl_k_matmul *m)
{
    const struct sl_sq_info *info = sl_sq_info(type);
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % SL_SQ_UNIT_COLS == 0);
    for (uint32_t r = 0; r < m->rows; r += SL_SQ_BAND_ROWS)
        for (uint32_t t = 0; t < m->n_tokens; t += TOKENS) {
            uint32_t n = m->n_tokens - t < TOKENS ? m->n_tokens - t : TOKENS;
            band_times(info, m, r, m->x + t, n, m->y + t * m->y_stride + r);
        }
}

#define MATMUL(name, type)                                                                         \
    void sl_k_matmul_##name##__scalar(const struct sl_k_matmul *m) { matmul_sq(type, m); }

MATMUL(sq2_32, SL_SQ2_32)
MATMUL(sq2_16, SL_SQ2_16)
MATMUL(sq3_32, SL_SQ3_32)
MATMUL(sq3_16, SL_SQ3_16)
MATMUL(sq4_32, SL_SQ4_32)
MATMUL(sq4_16, SL_SQ4_16)
MATMUL(sq5_32, SL_SQ5_32)
MATMUL(sq6_32, SL_SQ6_32)
