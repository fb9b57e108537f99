/* Rows encoded: see encode_rows.h. */
#include "pack/encode_rows.h"

#include <math.h>
#include <string.h>

#include "formats/encode_q8_0.h"
#include "formats/tensor_type.h"

bool sl_can_encode(uint32_t type)
{
    return type == SL_TYPE_F32 || type == SL_TYPE_F16 || type == SL_TYPE_BF16 ||
           type == SL_TYPE_Q8_0 || sl_sq_info(type) != NULL;
}

bool sl_rows_finite(const struct sl_rows *rows, uint64_t *bad)
{
    for (uint64_t r = 0; r < rows->n; r++) {
        const float *x = rows->x + r * rows->cols;
        float sum = 0; /* of zeros, or no number: one test a row */

        for (uint64_t i = 0; i < rows->cols; i++) sum += x[i] * 0.0f;
        if (sum == 0) continue;
        *bad = r;
        return false;
    }
    return true;
}

static bool encode_row(uint32_t type, const float *x, uint64_t cols, void *out)
{
    switch (type) {
    case SL_TYPE_F32:
        memcpy(out, x, cols * sizeof *x);
        return true;
    case SL_TYPE_F16:
        return sl_encode_f16(x, cols, out);
    case SL_TYPE_BF16:
        return sl_encode_bf16(x, cols, out);
    default:
        SLUICE_ASSERT(type == SL_TYPE_Q8_0);
        return sl_encode_q8_0(x, cols, out);
    }
}

static void add_error(const struct sl_rows *rows, const float *x, const float *got,
                      struct sl_sq_error *err)
{
    for (uint64_t i = 0; i < rows->cols; i++) {
        double w = rows->weights != NULL ? (double)rows->weights[i] : 1.0;
        double d = (double)got[i] - (double)x[i], all = (double)x[i] * (double)x[i];

        err->plain += d * d;
        err->plain_all += all;
        err->weighted += w * d * d;
        err->weighted_all += w * all;
    }
}

static enum sl_encode_outcome encode_plain(uint32_t type, const struct sl_rows *rows,
                                           unsigned char *out, float *scratch,
                                           struct sl_sq_error *err, uint64_t *bad)
{
    const struct sl_type_info *info = sl_type_info(type);
    uint64_t row_bytes = 0;
    bool fits = sl_type_row_bytes(type, rows->cols, &row_bytes);

    SLUICE_ASSERT(fits);
    for (uint64_t r = 0; r < rows->n; r++) {
        const float *x = rows->x + r * rows->cols;

        *bad = r;
        if (!encode_row(type, x, rows->cols, out + r * row_bytes)) return SL_ENCODE_TOO_LARGE;
        info->decode(out + r * row_bytes, scratch, rows->cols);
        add_error(rows, x, scratch, err);
    }
    return SL_ENCODE_OK;
}

static enum sl_encode_outcome encode_bands(uint32_t type, const struct sl_rows *rows,
                                           unsigned char *out, struct sl_sq_error *err,
                                           uint64_t *bad)
{
    uint64_t band_bytes = 0;
    bool fits = sl_sq_band_bytes(type, rows->cols, &band_bytes);

    SLUICE_ASSERT(fits);
    for (uint64_t r = 0; r < rows->n; r += SL_SQ_BAND_ROWS, out += band_bytes) {
        struct sl_sq_source band = {.x = rows->x + r * rows->cols,
                                    .x_stride = rows->cols,
                                    .rows = (uint32_t)sl_min_u64(rows->n - r, SL_SQ_BAND_ROWS),
                                    .cols = (uint32_t)rows->cols,
                                    .weights = rows->weights};

        *bad = r;
        if (!sl_sq_encode_band(sl_sq_info(type), &band, out, err)) return SL_ENCODE_TOO_LARGE;
    }
    return SL_ENCODE_OK;
}

enum sl_encode_outcome sl_encode_rows(uint32_t type, const struct sl_rows *rows, void *out,
                                      float *scratch, struct sl_sq_error *err, uint64_t *bad)
{
    if (!sl_rows_finite(rows, bad)) return SL_ENCODE_NOT_FINITE;
    if (sl_sq_info(type) != NULL) return encode_bands(type, rows, out, err, bad);
    return encode_plain(type, rows, out, scratch, err, bad);
}
