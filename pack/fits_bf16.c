/* Whether a matrix of float32 holds nothing but values that BF16 holds too, as those of models that
 * were trained in BF16 and converted do: half the bytes then say the same. */
#include "pack/fits_bf16.h"

#include "formats/half.h"

#define GROUP_FLOATS ((uint64_t)1 << 16) /* read at a time, about */

static bool all_fit(const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if ((sl_f32_bits(x[i]) & 0xffff) != 0) return false;
    return true;
}

sluice_err sl_pack_fits_bf16(const struct sl_source *s, uint32_t index, struct sl_budget *b,
                             sluice_error *e, bool *fits)
{
    const struct sl_source_tensor *t = sl_source_tensor(s, index);
    uint64_t step = sl_max_u64(GROUP_FLOATS / t->cols, 1);
    float *x = sl_alloc(b, step * t->cols, sizeof *x);
    void *stage = sl_alloc(b, sl_max_u64(sl_source_stage_bytes(t, step), 1), 1);
    sluice_err err = SLUICE_OK;

    if (x == NULL || stage == NULL) err = sl_fail(e, SLUICE_E_NOMEM, "no memory for the plan");
    *fits = err == SLUICE_OK;
    for (uint64_t row = 0; row < t->rows && *fits; row += step) {
        struct sl_source_span rows = {index, row, sl_min_u64(step, t->rows - row)};

        err = sl_source_rows(s, rows, stage, x, e);
        *fits = err == SLUICE_OK && all_fit(x, rows.n * t->cols);
    }
    sl_free(x);
    sl_free(stage);
    return err;
}
