/* The arithmetic of the engine, as a table of functions, one table per instruction set.
 *
 * The *_scalar.c files are the definition; every other variant gives the same bits (test_kernels
 * sweeps lengths, alignments and extremes). How that is possible:
 *  - Weights are quantized, activations are int8 codes with a float scale per block; the products
 *    of a block are summed in integers, exact in any order. A block then contributes
 *    acc = fma(dw * dx, (float)isum, acc), then, where the type has minima or offsets,
 *    acc = fma(-(dmin * dx), (float)msum, acc) (Q4_1, Q5_1: acc = fma(m * dx, (float)xsum, acc));
 *    then, where the activation's block has a second digit, the same with its codes and scale;
 *    blocks in order. The container's own types (formats/sq.h) have one scale d a row: a block of
 *    32 columns contributes acc = fma(dx, (float)isum, acc) with isum = sum of m * v * q, and the
 *    row's result is d * acc.
 *  - A float dot product uses eight striped lanes: element i is fused-multiply-added to lane i mod
 *    8, elements in order; the lanes are summed as ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)). Plain
 *    float sums use the same lanes and tree. Rows of float weights and float keys have 32 lanes,
 *    so that each row keeps a wide processor busy by itself; l[i] + l[i+16] make 16 of them, l[i] +
 *    l[i+8] of those eight.
 *  - -ffp-contract=off; every fused multiply-add is written out.
 * Weights may have any alignment; float arrays of ours are 64-byte aligned at their start unless
 * said otherwise. Where a scale in a file is infinite or NaN the result may be NaN; its payload is
 * the only thing in which variants may differ. Thread: pure; safe on disjoint outputs. */
#ifndef SL_KERNELS_H
#define SL_KERNELS_H

#include "base/base.h"
#include "base/cpu.h"
#include "formats/tensor_type.h"

/* How activations are prepared for a weight type. */
enum sl_act_kind {
    SL_ACT_F32,   /* as they are: F32, F16, BF16 weights */
    SL_ACT_Q8_32, /* int8 codes, a scale per 32: Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL MXFP4 SQ5 SQ6 */
    SL_ACT_Q8_32_ROUGH, /* the same with fewer second digits: SQ2 to SQ4 */
    SL_ACT_Q8_256,      /* int8 codes, a scale per 256: Q4_K Q5_K Q6_K IQ4_XS */
    SL_ACT_Q8_256_ROUGH /* the same with fewer second digits: Q2_K Q3_K */
};
#define SL_ACT_KINDS 5

/* Columns of a block, which share a scale; 32 where there are no scales. */
static inline uint32_t sl_k_act_block(enum sl_act_kind kind)
{
    return kind == SL_ACT_Q8_256 || kind == SL_ACT_Q8_256_ROUGH ? 256 : 32;
}

enum sl_act_kind sl_k_act_kind(uint32_t type); /* type: supported */
/* As a member of a set of kinds: one bit. */
static inline uint32_t sl_k_act_bit(uint32_t type) { return 1u << sl_k_act_kind(type); }

/* A second int8 digit for some blocks of a vector: the rounding error of the first, quantized
 * again. Laid out like the first; a block whose d is 0 has none, and its codes and sums are not
 * read. */
struct sl_k_digit {
    const int8_t *q;     /* [cols] */
    const float *d;      /* [cols / block]; NULL: no block has one */
    const int16_t *sums; /* [cols / 16] */
};

/* One activation vector. Which arrays are set depends on the kind. */
struct sl_k_act {
    const float *f;           /* [cols] (SL_ACT_F32) */
    const int8_t *q;          /* [cols] codes in -127..127 */
    const float *d;           /* [cols / block] scale: value = d * q */
    const int16_t *sums;      /* [cols / 16] sum of 16 codes each */
    struct sl_k_digit second; /* where there is one: value = d * q + second.d * second.q */
};

/* Where the quantized form of vectors goes; 64-byte aligned arrays for one vector. */
struct sl_k_act_out {
    int8_t *q;
    float *d;
    int16_t *sums;
};

/* y[t * y_stride + r] = sum over c of w[r][c] * x[t][c], for rows [0, rows). */
struct sl_k_matmul {
    const void *w; /* rows of row_bytes each; where they are interleaved, whole groups of them */
    uint64_t row_bytes;
    uint32_t rows;            /* >= 1 */
    uint32_t cols;            /* a multiple of the type's block, 1..SL_COLS_MAX */
    const struct sl_k_act *x; /* [n_tokens] of the type's kind */
    uint32_t n_tokens;        /* >= 1 */
    float *y;
    uint64_t y_stride; /* elements, >= rows */
    const void *next;  /* weights wanted after these, for prefetching; NULL: those after the last */
};

typedef void sl_k_matmul_fn(const struct sl_k_matmul *m);

/* A row of int8 KV cache: codes in groups of 32 along the head, the last group short where the head
 * size is no multiple of 32; scales are half precision, one per group. */
#define SL_KV_GROUP 32

enum sl_kv_type { SL_KV_F32 = 0, SL_KV_F16 = 1, SL_KV_Q8 = 2 };
#define SL_KV_TYPES 3

/* Keys or values of one KV head for consecutive positions. */
struct sl_k_kv {
    const void *data;       /* f32, f16 or int8, position after position, head_dim elements each */
    const uint16_t *scales; /* int8: [positions][groups] half precision; otherwise NULL */
    uint32_t head_dim;      /* 1..SL_HEAD_DIM_MAX */
    uint32_t n;             /* positions */
};

/* A query head in the forms the KV types want. */
struct sl_k_query {
    const float *f;   /* [head_dim] */
    const int16_t *q; /* int8 KV: [head_dim] codes in -32767..32767, see quantize_query */
    const float *d;   /* int8 KV: [groups] */
};

/* One token in one head of a layer with the gated delta rule (Yang et al. 2024, "Gated Delta
 * Networks"): S = decay * S; u = beta * (v - S'k); S = S + k u'; y = S'q. S [n_k][n_v] is kept in
 * stretches of SL_DELTA_COLS columns, each [n_k][SL_DELTA_COLS]. What a token adds to it is put off
 * until the next token, so that each element is loaded and stored once a token: state is S before
 * the last token, whose decay, k and u come along. */
#define SL_DELTA_COLS 16u

struct sl_k_delta {
    float *state;
    uint32_t n_k, n_v;     /* 1..SL_HEAD_DIM_MAX; n_v a multiple of SL_DELTA_COLS */
    const float *k_before; /* [n_k] of the token before; NULL: state is S as it is */
    const float *u_before; /* [n_v] */
    float decay_before;
    const float *q, *k, *v; /* [n_k], [n_k], [n_v] of this token */
    float decay, beta, qk;  /* qk: q . k */
    float *u;               /* [n_v] for the next token; may be u_before */
    float *y;               /* [n_v]; may be v */
};

struct sl_kernels {
    const char *isa; /* "scalar", "avx2", "avx512", "neon", "dotprod", "i8mm" */

    /* Quantizes x[0..n-1] by blocks of block (32 or 256; n a multiple of it): d = max|x| / 127, q =
     * nearest-even of x / d (computed as x * (1 / d), with 1 / d a division) clamped to +-127,
     * codes and d all zero where max|x| is 0 or so small that 1 / d is not finite. Returns false
     * where an x is not finite (outputs unspecified). sums get the sum of each 16 codes. */
    bool (*quantize)(const float *x, uint32_t n, uint32_t block, const struct sl_k_act_out *out);

    sl_k_matmul_fn *matmul[SL_TYPE_SLOTS]; /* by SL_TYPE_SLOT; NULL: unsupported type */

    /* sum a[i] * b[i], striped lanes. */
    float (*dot_f32)(const float *a, const float *b, uint32_t n);
    /* RMS norm (Zhang & Sennrich 2019): y[i] = (x[i] * s) * w[i], s = 1 / sqrt(dot(x, x) / n +
     * eps); IEEE root and divisions; w NULL means 1. y may be x. */
    void (*rms_norm)(const float *x, const float *w, uint32_t n, float eps, float *y);
    /* y[i] = fma(a, x[i], y[i]) */
    void (*axpy)(float a, const float *x, uint32_t n, float *y);
    /* y[i] = y[i] + x[i] */
    void (*add)(const float *x, uint32_t n, float *y);
    /* y[i] = y[i] * a */
    void (*scale)(float a, uint32_t n, float *y);
    /* y[i] = (g[i] * sigmoid(g[i])) * u[i], sigmoid(x) = 1 / (1 + sl_expf(-x)). y may be g. */
    void (*silu_mul)(const float *g, const float *u, uint32_t n, float *y);
    /* y[i] = sigmoid(g[i]) * u[i]. y may be u. */
    void (*sigmoid_mul)(const float *g, const float *u, uint32_t n, float *y);
    /* x[i] = sl_expf(x[i] - max), returns the striped-lane sum of the results. */
    float (*exp_sum)(float *x, uint32_t n, float max);
    /* The largest element; n >= 1; all finite or -inf. A zero is returned as +0. */
    float (*max_f32)(const float *x, uint32_t n);

    /* Rotates pairs (RoPE, Su et al. 2021): for i in 0..n_rot/2-1, with c = cs[2i], s = cs[2i+1],
     * the pair (a, b) becomes (fma(a, c, -(b * s)), fma(a, s, b * c)). neox: pair (x[i], x[i +
     * n_rot/2]); otherwise (x[2i], x[2i+1]). Elements from n_rot on are untouched. */
    void (*rope)(float *x, const float *cs, uint32_t n_rot, bool neox);

    /* Causal convolution of n channels, each by itself, then SiLU: acc = 0; acc = fma(w[i][j],
     * rows[j][i], acc) for j ascending; y[i] = acc * sigmoid(acc). rows: [taps] tokens, this one
     * last; w: [n][taps]. y may be the last row. */
    void (*conv_silu)(const float *const *rows, const float *w, uint32_t taps, uint32_t n,
                      float *y);
    /* state[i][j] = fma(k_before[i], u_before[j], decay_before * state[i][j]), where there is a
     * token before; then sums over i ascending, from 0: a = fma(state[i][j], k[i], a), b =
     * fma(state[i][j], q[i], b); u[j] = beta * fma(-decay, a, v[j]); y[j] = fma(u[j], qk, decay *
     * b). */
    void (*delta_step)(const struct sl_k_delta *step);

    /* Query codes for int8 keys: per group of SL_KV_GROUP, d = max|x| / 32767, nearest-even,
     * clamped. 16-bit codes because a query is used once per key and costs nothing, while its error
     * would count as much as the keys'. */
    bool (*quantize_query)(const float *x, uint32_t n, int16_t *q, float *d);
    /* Writes one position's head into the cache form: f32 copies, f16 rounds to nearest even, int8
     * by groups of SL_KV_GROUP: the scale is max|x| / 127 rounded to half, codes nearest-even of x
     * divided by that half, clamped to +-127 (scale 0: codes 0). Returns false where an x is not
     * finite or does not fit half precision. */
    bool (*store_kv[SL_KV_TYPES])(const float *x, uint32_t head_dim, void *data, uint16_t *scales);
    /* Of n query heads that share keys: scores[h * keys->n + j] = scale * (query h . key j). f32,
     * f16: float dot of 32 lanes. int8: acc = 0; per group acc = fma(d * k_scale, (float)isum,
     * acc), isum an int32 sum of code products. */
    void (*attn_scores[SL_KV_TYPES])(const struct sl_k_query *queries, uint32_t n,
                                     const struct sl_k_kv *keys, float scale, float *scores);
    /* Of n heads that share values, with acc [n][head_dim] and p [n][values->n]: acc[h][i] =
     * fma(p[h][j], v[j][i], acc[h][i]) for j ascending; int8: fma(p[h][j] * v_scale[j][group of i],
     * (float)code, acc[h][i]). */
    void (*attn_values[SL_KV_TYPES])(const float *p, uint32_t n, const struct sl_k_kv *values,
                                     float *acc);
};

/* Variants of one instruction set. */
enum sl_isa {
    SL_ISA_AUTO = 0,
    SL_ISA_SCALAR = 1,
    SL_ISA_AVX2 = 2,
    SL_ISA_NEON = 3,    /* what every 64-bit ARM has */
    SL_ISA_DOTPROD = 4, /* and dot products of bytes */
    SL_ISA_I8MM = 5,    /* and products of byte matrices */
    SL_ISA_AVX512 = 6   /* with VNNI, VBMI, GFNI; shared with AVX2 where it would not be faster */
};

/* The table for isa; AUTO takes the best this machine has. SLUICE_E_UNSUPPORTED where the build or
 * the machine lacks it; the sentence names what there is. */
SL_MUST_CHECK sluice_err sl_kernels_select(enum sl_isa isa, sluice_error *e,
                                           const struct sl_kernels **out);

#endif
