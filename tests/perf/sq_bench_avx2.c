/* How fast the container's own weight types multiply: the trial that settled their layout, and a
 * draft of the kernels.
 *
 *     sq_bench_avx2
 *
 * One expert's projection (512 rows of 2048 columns) times one and eight activations, from cache
 * and from memory, in weights multiplied per second, beside the GGUF types of similar size. Every
 * result is first compared, bit by bit, with a scalar product over sl_sq_unpack:
 *
 *     acc = fma(dx, (float)(sum of m * v * code), acc), units in order; y = d * acc
 *
 * The sum of a unit is an integer below 2^24, so it is exact in any order and as a float. Levels
 * are not negative and at most 63: products of two neighbours, added for two quads, fit 16 bits.
 * They are multiplied by m while they are added up to 32 bits; the offset is left to the sums of
 * the activations' codes. */
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/kernels/kernel_bench.h"
#include "formats/half.h"
#include "formats/sq.h"

#define ROWS 512u
#define COLS 2048u
#define COPIES 128u /* together beyond any cache */
#define TOKENS 8u
#define RUN_NS 300000000u

#define INLINE static inline __attribute__((always_inline))

struct job {
    const struct sl_sq_info *info;
    const uint8_t *w;
    const struct sl_k_act *x; /* [n_tokens] */
    uint32_t n_tokens;
    float *y; /* [n_tokens][ROWS] */
};

/* ---- the kernel ------------------------------------------------------------------------------ */

INLINE __m256i load(const void *p) { return _mm256_loadu_si256(p); }

/* Four bytes, or two sums, for every row. */
INLINE __m256i spread(const void *p)
{
    int v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE __m256i bits_at(__m256i v, int shift, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask));
}

/* The levels of the eight quads of a unit. */
INLINE void unit_levels(uint32_t bits, const uint8_t *unit, __m256i table, __m256i *level)
{
    __m256i a = load(unit), b = load(unit + 32);
    __m256i c = bits >= 3 ? load(unit + 64) : a, d = bits == 4 ? load(unit + 96) : a;
    __m256i code[8];
    if (bits == 2) {
        for (int i = 0; i < 4; i++) code[i] = bits_at(a, 2 * i, 3);
        for (int i = 0; i < 4; i++) code[4 + i] = bits_at(b, 2 * i, 3);
    } else if (bits == 3) {
        for (int i = 0; i < 2; i++) code[i] = bits_at(a, 3 * i, 7);
        for (int i = 0; i < 2; i++) code[2 + i] = bits_at(b, 3 * i, 7);
        for (int i = 0; i < 2; i++) code[4 + i] = bits_at(c, 3 * i, 7);
        code[6] = _mm256_or_si256(bits_at(a, 6, 3), bits_at(c, 4, 4));
        code[7] = _mm256_or_si256(bits_at(b, 6, 3), bits_at(c, 5, 4));
    } else {
        for (int i = 0; i < 2; i++) code[i] = bits_at(a, 4 * i, 15);
        for (int i = 0; i < 2; i++) code[2 + i] = bits_at(b, 4 * i, 15);
        for (int i = 0; i < 2; i++) code[4 + i] = bits_at(c, 4 * i, 15);
        for (int i = 0; i < 2; i++) code[6 + i] = bits_at(d, 4 * i, 15);
    }
    for (int i = 0; i < 8; i++) level[i] = _mm256_shuffle_epi8(table, code[i]);
}

/* m and m * offset of each row: 16 bits for columns 0 to 15 of the unit, 16 for the rest. */
struct factors {
    __m256i m, m_offset;
};

INLINE struct factors unit_factors(uint32_t group, int base, int step, const uint8_t *scales)
{
    const __m256i both = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1, 4,
                                          -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    const __m256i each =
        _mm256_setr_epi8(0, -1, 8, -1, 1, -1, 9, -1, 2, -1, 10, -1, 3, -1, 11, -1, 4, -1, 12, -1, 5,
                         -1, 13, -1, 6, -1, 14, -1, 7, -1, 15, -1);
    __m128i raw =
        group == 16 ? _mm_loadu_si128((const void *)scales) : _mm_loadl_epi64((const void *)scales);
    __m256i s = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(raw), group == 16 ? each : both);
    __m256i one = _mm256_set1_epi16(1);
    struct factors f;
    __m256i m = _mm256_add_epi16(_mm256_and_si256(s, _mm256_set1_epi16(15)), one);
    f.m = _mm256_sign_epi16(m, _mm256_or_si256(_mm256_slli_epi16(s, 8), one));
    __m256i j = _mm256_and_si256(_mm256_srli_epi16(s, 4), _mm256_set1_epi16(7));
    __m256i offset = _mm256_add_epi16(_mm256_mullo_epi16(j, _mm256_set1_epi16((short)step)),
                                      _mm256_set1_epi16((short)base));
    f.m_offset = _mm256_mullo_epi16(f.m, offset);
    return f;
}

/* m * (sum of level * code) over four quads. */
INLINE __m256i half_sum(const __m256i *level, const int8_t *q, __m256i m)
{
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(level[0], spread(q)),
                                 _mm256_maddubs_epi16(level[1], spread(q + 4)));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(level[2], spread(q + 8)),
                                 _mm256_maddubs_epi16(level[3], spread(q + 12)));
    return _mm256_add_epi32(_mm256_madd_epi16(a, m), _mm256_madd_epi16(b, m));
}

INLINE __m256 add_unit(const __m256i *level, const struct factors *f, uint32_t group,
                       const struct sl_k_act *x, uint32_t unit, __m256 acc)
{
    __m256i low = f->m, high = f->m;
    if (group == 16) {
        const __m256i first = _mm256_set1_epi32(0x01000100),
                      rows = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                               0x08080808, 0x0c0c0c0c);
        __m256i pick = _mm256_add_epi8(first, rows);
        low = _mm256_shuffle_epi8(f->m, pick);
        high = _mm256_shuffle_epi8(f->m, _mm256_add_epi8(pick, _mm256_set1_epi8(2)));
    }
    const int8_t *q = x->q + 32 * unit;
    __m256i sum = _mm256_add_epi32(half_sum(level, q, low), half_sum(level + 4, q + 16, high));
    sum = _mm256_sub_epi32(sum, _mm256_madd_epi16(f->m_offset, spread(x->sums + 2 * unit)));
    return _mm256_fmadd_ps(_mm256_set1_ps(x->d[unit]), _mm256_cvtepi32_ps(sum), acc);
}

INLINE void multiply(const struct job *job, uint32_t bits, uint32_t group, uint32_t n_tokens)
{
    int base = job->info->offset_base, step = job->info->offset_step;
    uint8_t levels[16] = {0};
    memcpy(levels, job->info->levels, 1u << bits);
    __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)levels));
    uint32_t unit_bytes = 32 * bits + (group == 16 ? 16 : 8);
    const uint8_t *p = job->w;
    for (uint32_t r = 0; r < ROWS; r += 8) {
        __m128i d16 = _mm_loadu_si128((const void *)p);
        __m256 acc[TOKENS];
        p += SL_SQ_ROW_SCALE_BYTES;
        for (uint32_t t = 0; t < n_tokens; t++) acc[t] = _mm256_setzero_ps();
        for (uint32_t u = 0; u < COLS / 32; u++, p += unit_bytes) {
            __m256i level[8];
            _mm_prefetch((const char *)p + 2048, _MM_HINT_T0);
            _mm_prefetch((const char *)p + 2048 + 64, _MM_HINT_T0);
            unit_levels(bits, p, table, level);
            struct factors f = unit_factors(group, base, step, p + 32 * bits);
            for (uint32_t t = 0; t < n_tokens; t++)
                acc[t] = add_unit(level, &f, group, &job->x[t], u, acc[t]);
        }
        __m256 d = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(d16), 16));
        for (uint32_t t = 0; t < n_tokens; t++)
            _mm256_storeu_ps(job->y + t * ROWS + r, _mm256_mul_ps(d, acc[t]));
    }
}

#define KERNEL(bits, group)                                                                        \
    static void kernel_##bits##_##group(const struct job *job)                                     \
    {                                                                                              \
        if (job->n_tokens == 1) {                                                                  \
            multiply(job, bits, group, 1);                                                         \
        } else {                                                                                   \
            multiply(job, bits, group, TOKENS);                                                    \
        }                                                                                          \
    }
KERNEL(2, 32)
KERNEL(2, 16)
KERNEL(3, 32)
KERNEL(3, 16)
KERNEL(4, 32)
KERNEL(4, 16)

static void (*const kernels[SL_SQ_TYPES])(const struct job *) = {
    kernel_2_32, kernel_2_16, kernel_3_32, kernel_3_16, kernel_4_32, kernel_4_16};

/* ---- the program ----------------------------------------------------------------------------- */

static void scalar(const struct job *job)
{
    uint64_t band_bytes = 16 + COLS / 32 * job->info->unit_bytes;
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint8_t *band = job->w + r / 8 * band_bytes;
        float d = sl_bf16_to_f32(sl_load_u16(band + r % 8 * 2));
        for (uint32_t t = 0; t < job->n_tokens; t++) {
            float acc = 0.0f;
            for (uint32_t u = 0; u < COLS / 32; u++) {
                struct sl_sq_unit unit;
                int sum = 0;
                sl_sq_unpack(job->info, band + 16 + u * job->info->unit_bytes, &unit);
                const struct sl_sq_row *row = &unit.row[r % 8];
                for (uint32_t i = 0; i < 32; i++)
                    sum += row->m[i / 16] * row->v[i] * job->x[t].q[32 * u + i];
                acc = fmaf(job->x[t].d[u], (float)sum, acc);
            }
            job->y[t * ROWS + r] = d * acc;
        }
    }
}

static double best_ns(struct job *job, uint32_t index, uint64_t matrix_bytes, uint32_t copies)
{
    const uint8_t *first = job->w;
    uint64_t start = sl_now_ns(), now = start, best = UINT64_MAX, total = 0, calls = 0;
    while (now - start < RUN_NS) {
        uint64_t before = sl_now_ns();
        job->w = first + calls % copies * matrix_bytes;
        kernels[index](job);
        now = sl_now_ns();
        if (now - before < best) best = now - before;
        total += now - before;
        calls++;
    }
    job->w = first;
    return copies > 1 ? (double)total / (double)calls : (double)best;
}

static void bench_type(struct job *job, uint32_t index, float *want)
{
    uint64_t bytes;
    double weights = (double)ROWS * COLS;
    job->info = sl_sq_info(SL_SQ2_32 + index);
    if (!sl_sq_matrix_bytes(SL_SQ2_32 + index, ROWS, COLS, &bytes)) return;
    float *y = job->y;
    job->n_tokens = TOKENS;
    kernels[index](job);
    job->y = want;
    scalar(job);
    job->y = y;
    bool equal = memcmp(y, want, ROWS * TOKENS * sizeof *y) == 0;
    double many = best_ns(job, index, bytes, 1);
    job->n_tokens = 1;
    double one = best_ns(job, index, bytes, 1), far = best_ns(job, index, bytes, COPIES);
    printf("%-8s %6.3f %10.1f %10.1f %10.1f %11.1f  %s\n", job->info->name,
           8.0 * (double)bytes / weights, weights / one, weights / far, (double)bytes / far,
           weights * TOKENS / many, equal ? "yes" : "NO");
}

static void bench_gguf(struct sl_budget *budget, uint32_t type)
{
    struct sl_kernel_bench what = {SL_KB_MATMUL, type, ROWS, COLS, 1, 1, RUN_NS};
    struct sl_kernel_bench_result one, many, far;
    sluice_error e;
    if (sl_kernel_bench_run(budget, SL_ISA_AVX2, &what, &e, &one) != SLUICE_OK) return;
    what.copies = COPIES;
    if (sl_kernel_bench_run(budget, SL_ISA_AVX2, &what, &e, &far) != SLUICE_OK) return;
    what.copies = 1;
    what.n_tokens = TOKENS;
    if (sl_kernel_bench_run(budget, SL_ISA_AVX2, &what, &e, &many) != SLUICE_OK) return;
    double weights = (double)ROWS * COLS;
    printf("%-8s %6.3f %10.1f %10.1f %10.1f %11.1f\n", sl_type_name(type),
           8.0 * (double)one.bytes / weights, weights / one.ns_best, weights / far.ns_mean,
           (double)one.bytes / far.ns_mean, weights * TOKENS / many.ns_best);
}

int main(void)
{
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    uint64_t bytes = (uint64_t)ROWS * COLS / 256 * 144 * COPIES + (1u << 20);
    uint8_t *w = sl_alloc(&budget, bytes, 1);
    float *y = sl_alloc(&budget, ROWS * TOKENS, sizeof *y);
    float *want = sl_alloc(&budget, ROWS * TOKENS, sizeof *want);
    static int8_t q[TOKENS][COLS];
    static float d[TOKENS][COLS / 32];
    static int16_t sums[TOKENS][COLS / 16];
    struct sl_k_act x[TOKENS];
    if (w == NULL || y == NULL || want == NULL) return 1;
    for (uint64_t i = 0; i < bytes; i++) w[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24 & 0xbf);
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t c = 0; c < COLS; c++) {
            q[t][c] = (int8_t)((c + 13 * t) * 2654435761u >> 24);
            if (q[t][c] == -128) q[t][c] = -127;
            sums[t][c / 16] = (int16_t)(sums[t][c / 16] + q[t][c]);
            d[t][c / 32] = 0.01f * (float)(1 + c / 32 % 5);
        }
        x[t] = (struct sl_k_act){.q = q[t], .d = d[t], .sums = sums[t]};
    }
    struct job job = {.w = w, .x = x, .y = y};
    printf("type       bits  cache_Gw/s  mem_Gw/s   mem_GB/s  8 tok Gw/s  bit_equal\n");
    for (uint32_t i = 0; i < SL_SQ_TYPES; i++) bench_type(&job, i, want);
    bench_gguf(&budget, SL_TYPE_Q3_K);
    bench_gguf(&budget, SL_TYPE_Q4_0);
    bench_gguf(&budget, SL_TYPE_Q4_K);
    sl_free(want);
    sl_free(y);
    sl_free(w);
    return 0;
}
