/* Random and extreme weights and activations for the tests of kernels. Arrays end where their
 * allocation ends, so that a sanitizer sees a read too far. */
#ifndef SL_KERNEL_DATA_H
#define SL_KERNEL_DATA_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "formats/half.h"

/* ---- random and extreme data ----------------------------------------------------------------- */

static uint64_t rng_state = 88172645463325252u;

static uint32_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static float rnd_float(void) { return ((float)(rnd() >> 8) / 8388608.0f - 1.0f) * 3.0f; }

static void *must_alloc(size_t n)
{
    void *p = malloc(n == 0 ? 1 : n);
    assert_non_null(p);
    return p;
}

static inline float *random_floats(size_t n)
{
    float *f = must_alloc(n * sizeof *f);
    for (size_t i = 0; i < n; i++) f[i] = rnd_float();
    return f;
}

/* Values that break careless code: zeros of both signs, denormals, huge, tiny. */
static float special_float(void)
{
    static const float list[] = {0.0f,  -0.0f, 1e-40f, -1e-40f, 1e-20f, 3e4f,      -3e4f, 1.0f,
                                 -1.0f, 88.7f, -87.3f, -100.0f, 100.0f, 0x1p-149f, 0.5f};
    return list[rnd() % SL_ARRAY_LEN(list)];
}

static bool same_bits(float a, float b)
{
    return sl_f32_bits(a) == sl_f32_bits(b) || (isnan(a) && isnan(b));
}

static inline void check_same(const float *want, const float *got, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!same_bits(want[i], got[i]))
            fail_msg("%s: element %zu of %zu: %a, should be %a", what, i, n, (double)got[i],
                     (double)want[i]);
}

/* ---- weights and activations ----------------------------------------------------------------- */

static const uint32_t types[] = {
    SL_TYPE_F32,  SL_TYPE_F16,    SL_TYPE_BF16,   SL_TYPE_Q8_0,  SL_TYPE_Q4_0, SL_TYPE_Q4_1,
    SL_TYPE_Q5_0, SL_TYPE_Q5_1,   SL_TYPE_Q2_K,   SL_TYPE_Q3_K,  SL_TYPE_Q4_K, SL_TYPE_Q5_K,
    SL_TYPE_Q6_K, SL_TYPE_IQ4_NL, SL_TYPE_IQ4_XS, SL_TYPE_MXFP4, SL_SQ2_32,    SL_SQ2_16,
    SL_SQ3_32,    SL_SQ3_16,      SL_SQ4_32,      SL_SQ4_16,     SL_SQ5_32,    SL_SQ6_32};

/* Where the half-precision scales of a block are. */
static int scale_offsets(uint32_t type, int at[2])
{
    at[0] = 0;
    at[1] = 2;
    switch (type) {
    case SL_TYPE_Q4_1:
    case SL_TYPE_Q5_1:
    case SL_TYPE_Q4_K:
    case SL_TYPE_Q5_K:
        return 2;
    case SL_TYPE_Q2_K:
        at[0] = 80;
        at[1] = 82;
        return 2;
    case SL_TYPE_Q3_K:
        at[0] = 108;
        return 1;
    case SL_TYPE_Q6_K:
        at[0] = 208;
        return 1;
    case SL_TYPE_MXFP4:
    case SL_TYPE_F32:
    case SL_TYPE_F16:
    case SL_TYPE_BF16:
        return 0;
    default:
        return 1;
    }
}

enum fill {
    SANE,    /* random codes, moderate scales */
    HOSTILE, /* random bytes: scales may be anything */
    ONES,
    ZEROS,
    TOPS,     /* all bytes 0xff, 0x00, 0x80, moderate scales */
    DENORMAL, /* random codes, scales that are denormal, zero or minus zero */
    FILLS
};

static uint16_t fill_scale(enum fill fill)
{
    static const uint16_t small[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400};
    if (fill == DENORMAL) return small[rnd() % SL_ARRAY_LEN(small)];
    return sl_f32_to_f16(rnd_float() * 0.05f);
}

static void fill_float_weight(uint32_t type, uint8_t *p, enum fill fill)
{
    float f = fill == DENORMAL ? special_float() : fill == ZEROS ? -0.0f : rnd_float();
    uint16_t half = sl_f32_to_f16(f), bf = (uint16_t)(sl_f32_bits(f) >> 16);
    if (type == SL_TYPE_F32)
        memcpy(p, &f, 4);
    else
        memcpy(p, type == SL_TYPE_F16 ? &half : &bf, 2);
}

static void fill_bytes(uint8_t *p, uint64_t n, enum fill fill)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = fill == ONES ? 0xff : fill == ZEROS ? 0 : fill == TOPS ? 0x80 : (uint8_t)rnd();
}

static void fill_block(uint32_t type, uint8_t *block, enum fill fill)
{
    const struct sl_type_info *info = sl_type_info(type);
    fill_bytes(block, info->block_bytes, fill);
    if (fill == HOSTILE) return;
    if (info->block_cols == 1) fill_float_weight(type, block, fill);
    if (type == SL_TYPE_MXFP4)
        block[0] = (uint8_t)(fill == DENORMAL ? rnd() % 4 : 110 + rnd() % 20);
    int at[2];
    for (int i = scale_offsets(type, at) - 1; i >= 0; i--) {
        uint16_t half = fill_scale(fill);
        memcpy(block + at[i], &half, 2);
    }
}

/* Eight interleaved rows: their bfloat16 scales, then units. */
static void fill_band(uint8_t *band, uint64_t bytes, enum fill fill)
{
    fill_bytes(band, bytes, fill);
    for (int r = 0; r < 8 && fill != HOSTILE; r++) {
        float d = fill == DENORMAL ? special_float() * 1e-38f : rnd_float() * 0.05f;
        uint16_t bf = (uint16_t)(sl_f32_bits(d) >> 16);
        memcpy(band + 2 * r, &bf, 2);
    }
}

/* A matrix whose last byte is the last byte of its allocation, shift bytes past an aligned address.
 */
struct weights {
    uint8_t *base, *data;
    uint64_t row_bytes;
};

static inline struct weights make_weights(uint32_t type, uint32_t rows, uint32_t cols,
                                          uint32_t shift, enum fill fill)
{
    const struct sl_type_info *info = sl_type_info(type);
    struct weights w;
    assert_true(sl_type_row_bytes(type, cols, &w.row_bytes));
    uint64_t bytes, step = info->row_group > 1 ? info->row_group * w.row_bytes : info->block_bytes;
    assert_true(sl_type_matrix_bytes(type, rows, cols, &bytes));
    w.base = must_alloc(bytes + shift);
    w.data = w.base + shift;
    for (uint64_t i = 0; i < bytes; i += step)
        if (info->row_group > 1)
            fill_band(w.data + i, step, fill);
        else
            fill_block(type, w.data + i, fill);
    return w;
}

enum x_fill { X_RANDOM, X_PLUS, X_MINUS, X_ALTERNATE, X_ZERO, X_FILLS };

static struct sl_k_digit make_digit(enum sl_act_kind kind, uint32_t cols, enum x_fill fill)
{
    uint32_t block = sl_k_act_block(kind);
    int8_t *q = must_alloc(cols);
    float *d = must_alloc(cols / block * sizeof *d);
    int16_t *sums = must_alloc(cols / 16 * sizeof *sums);
    static const int ends[] = {0, 127, -127, 0, 0};
    for (uint32_t i = 0; i < cols; i++) {
        int v = fill == X_RANDOM ? (int)(rnd() % 255) - 127 : ends[fill];
        if (fill == X_ALTERNATE) v = i % 2 == 0 ? 127 : -127;
        q[i] = (int8_t)v;
    }
    for (uint32_t i = 0; i < cols / block; i++)
        d[i] = fill == X_ZERO ? 0.0f : fabsf(rnd_float()) * 0.02f;
    for (uint32_t s = 0; s < cols / 16; s++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) sum += q[16 * s + i];
        sums[s] = (int16_t)sum;
    }
    return (struct sl_k_digit){q, d, sums};
}

/* Builds an activation directly in the form of the kind, so that codes can be put at their
 * extremes; two of three have a second digit, in about half of their blocks. */
static inline struct sl_k_act make_act(enum sl_act_kind kind, uint32_t cols, enum x_fill fill)
{
    struct sl_k_act x = {0};
    if (kind == SL_ACT_F32) {
        float *f = must_alloc(cols * sizeof *f);
        for (uint32_t i = 0; i < cols; i++) f[i] = fill == X_RANDOM ? rnd_float() : special_float();
        x.f = f;
        return x;
    }
    struct sl_k_digit first = make_digit(kind, cols, fill);
    x.q = first.q;
    x.d = first.d;
    x.sums = first.sums;
    if (rnd() % 3 == 0) return x;
    x.second = make_digit(kind, cols, fill);
    for (uint32_t i = 0; i < cols / sl_k_act_block(kind); i++)
        if (rnd() % 2) ((float *)x.second.d)[i] = 0.0f;
    return x;
}

static inline void free_act(struct sl_k_act x)
{
    free((void *)x.f);
    free((void *)x.q);
    free((void *)x.d);
    free((void *)x.sums);
    free((void *)x.second.q);
    free((void *)x.second.d);
    free((void *)x.second.sums);
}

#endif
