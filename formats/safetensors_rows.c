/* Element types, and rows as floats.
 *
 * The bytes of a row are read into the end of the space that its floats will take, and widened from
 * the front: the float written never reaches a byte that is still to be read, as an element is at
 * most as wide as its float. Scales of blocks are read a few at a time, so that neither a wide row
 * nor many of them take memory. */
#include <inttypes.h>
#include <string.h>

#include "formats/half.h"
#include "formats/safetensors_internal.h"

#define SCALES_AT_A_TIME 256

struct dtype_info {
    const char *name;
    uint32_t bits;
};

static const struct dtype_info dtypes[SL_ST_DTYPES] = {
    [SL_ST_F64] = {"F64", 64},        [SL_ST_F32] = {"F32", 32},
    [SL_ST_F16] = {"F16", 16},        [SL_ST_BF16] = {"BF16", 16},
    [SL_ST_F8_E4M3] = {"F8_E4M3", 8}, [SL_ST_F8_E5M2] = {"F8_E5M2", 8},
    [SL_ST_F8_E8M0] = {"F8_E8M0", 8}, [SL_ST_I64] = {"I64", 64},
    [SL_ST_I32] = {"I32", 32},        [SL_ST_I16] = {"I16", 16},
    [SL_ST_I8] = {"I8", 8},           [SL_ST_U64] = {"U64", 64},
    [SL_ST_U32] = {"U32", 32},        [SL_ST_U16] = {"U16", 16},
    [SL_ST_U8] = {"U8", 8},           [SL_ST_BOOL] = {"BOOL", 8},
};

const char *sl_st_dtype_name(enum sl_st_dtype dtype)
{
    SLUICE_ASSERT(dtype < SL_ST_DTYPES);
    return dtypes[dtype].name;
}

uint32_t sl_st_dtype_bits(enum sl_st_dtype dtype)
{
    SLUICE_ASSERT(dtype < SL_ST_DTYPES);
    return dtypes[dtype].bits;
}

bool sl_st_dtype_find(struct sl_str name, enum sl_st_dtype *out)
{
    for (uint32_t i = 0; i < SL_ST_DTYPES; i++) {
        if (!sl_str_eq(name, dtypes[i].name)) continue;
        *out = (enum sl_st_dtype)i;
        return true;
    }
    return false;
}

bool sl_st_readable(const struct sl_st_tensor *t)
{
    return t->dtype == SL_ST_F32 || t->dtype == SL_ST_F16 || t->dtype == SL_ST_BF16 ||
           t->dtype == SL_ST_F8_E4M3;
}

/* ---- widening -------------------------------------------------------------------------------- */

/* Sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, NaN is all ones ("E4M3FN" of
 * Micikevicius et al. 2022, FP8 formats for deep learning). */
static float f8_e4m3_to_f32(uint8_t v)
{
    uint32_t sign = (uint32_t)(v & 0x80) << 24;
    uint32_t exponent = v >> 3 & 15;
    uint32_t mantissa = v & 7;

    if ((v & 0x7F) == 0x7F) return sl_f32_from_bits(sign | 0x7FC00000u);
    if (exponent > 0) return sl_f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
    float small = (float)mantissa * 0x1p-9f;
    return sign != 0 ? -small : small;
}

/* n elements of 16 bits at the end of the space of n floats that begins at out. */
static void widen_f16(float *out, uint64_t n)
{
    const unsigned char *from = (const unsigned char *)out + 2 * n;

    for (uint64_t i = 0; i < n; i++) out[i] = sl_f16_to_f32(sl_load_u16(from + 2 * i));
}

static void widen_bf16(float *out, uint64_t n)
{
    const unsigned char *from = (const unsigned char *)out + 2 * n;

    for (uint64_t i = 0; i < n; i++) out[i] = sl_bf16_to_f32(sl_load_u16(from + 2 * i));
}

static void widen_f8(float *out, uint64_t n)
{
    const unsigned char *from = (const unsigned char *)out + 3 * n;

    for (uint64_t i = 0; i < n; i++) out[i] = f8_e4m3_to_f32(from[i]);
}

/* Elements first .. first + n - 1 in the order of the file, without scales. */
static sluice_err read_elements(const struct sl_st *st, const struct sl_st_tensor *t,
                                uint64_t first, uint64_t n, float *out, sluice_error *e)
{
    uint64_t width = dtypes[t->dtype].bits / 8;
    unsigned char *to = (unsigned char *)out + (sizeof *out - width) * n;
    sluice_err err =
        sl_file_read_at(st->files[t->file], t->offset + first * width, to, n * width, e);

    if (err != SLUICE_OK) return err;
    if (t->dtype == SL_ST_F16) widen_f16(out, n);
    if (t->dtype == SL_ST_BF16) widen_bf16(out, n);
    if (t->dtype == SL_ST_F8_E4M3) widen_f8(out, n);
    return SLUICE_OK;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Rows of out that lie in one row of blocks, of which scales[] are those from block column `from`
 * on. */
struct scaling {
    float *out;
    uint64_t rows, cols, block_cols;
    const float *scales;
    uint64_t from, n;
};

static void scale_columns(const struct scaling *s)
{
    for (uint64_t r = 0; r < s->rows; r++) {
        float *row = s->out + r * s->cols;

        for (uint64_t i = 0; i < s->n; i++) {
            uint64_t first = (s->from + i) * s->block_cols;
            uint64_t end = sl_min_u64(first + s->block_cols, s->cols);
            float scale = s->scales[i];

            for (uint64_t c = first; c < end; c++) row[c] *= scale;
        }
    }
}

/* Rows first .. first + n - 1 of t, in out, times their blocks' scales. */
static sluice_err apply_scales(const struct sl_st *st, const struct sl_st_tensor *t, uint64_t first,
                               uint64_t n, float *out, sluice_error *e)
{
    const struct sl_st_tensor *scale = &st->tensors[t->scale];
    float scales[SCALES_AT_A_TIME];
    struct scaling s = {.cols = t->cols, .block_cols = st->block.cols, .scales = scales};
    sluice_err err = SLUICE_OK;

    for (uint64_t done = 0; done < n; done += s.rows) {
        uint64_t block = (first + done) / st->block.rows;

        s.out = out + done * t->cols;
        s.rows = sl_min_u64(n - done, (block + 1) * st->block.rows - (first + done));
        for (s.from = 0; s.from < scale->cols; s.from += s.n) {
            s.n = sl_min_u64(scale->cols - s.from, SCALES_AT_A_TIME);
            err = read_elements(st, scale, block * scale->cols + s.from, s.n, scales, e);
            if (err != SLUICE_OK) return err;
            scale_columns(&s);
        }
    }
    return err;
}

/* ---- rows ------------------------------------------------------------------------------------ */

sluice_err sl_st_read_rows(const struct sl_st *st, const struct sl_st_tensor *t, uint64_t first,
                           uint64_t n, float *out, sluice_error *e)
{
    char name[SL_GG_SHOW_MAX];
    sluice_err err;

    SLUICE_ASSERT(first <= t->rows && n <= t->rows - first);
    if (!sl_st_readable(t))
        return sl_st_fail(sl_file_path(st->files[t->file]), e, SLUICE_E_UNSUPPORTED,
                          "tensor '%s' is %s; weights are read as F32, F16, BF16 or F8_E4M3",
                          sl_str_show(t->name, name, sizeof name), dtypes[t->dtype].name);
    err = read_elements(st, t, first * t->cols, n * t->cols, out, e);
    if (err == SLUICE_OK && t->scale != SL_ST_NONE) err = apply_scales(st, t, first, n, out, e);
    return err;
}
