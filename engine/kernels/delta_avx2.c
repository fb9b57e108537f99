/* What recurrent layers and gates compute, for AVX2. */
#include "engine/kernels/conv_rest.h"
#include "engine/kernels/exp_avx2.h"
#include "engine/kernels/kernel_variants.h"

SL_INLINE __m256 sigmoid8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = exp8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(one, _mm256_add_ps(one, e));
}

void sl_k_sigmoid_mul__avx2(const float *g, const float *u, uint32_t n, float *y)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i,
                         _mm256_mul_ps(sigmoid8(_mm256_loadu_ps(g + i)), _mm256_loadu_ps(u + i)));
    for (; i < n; i++) {
        float sigmoid = 1.0f / (1.0f + sl_expf_steps(-g[i]));
        y[i] = sigmoid * u[i];
    }
}

/* Four taps of eight channels, which lie channel by channel: tap[j] gets tap j of each. */
SL_INLINE void load_taps(const float *w, __m256 tap[4])
{
    __m256 v[4], row[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(w + 8 * i); /* channels 2 i and 2 i + 1 */
    for (int i = 0; i < 2; i++) {
        row[2 * i] = _mm256_permute2f128_ps(v[i], v[i + 2], 0x20); /* 2 i, and 2 i + 4 */
        row[2 * i + 1] = _mm256_permute2f128_ps(v[i], v[i + 2], 0x31);
    }
    __m256 low = _mm256_unpacklo_ps(row[0], row[1]), high = _mm256_unpackhi_ps(row[0], row[1]);
    __m256 low2 = _mm256_unpacklo_ps(row[2], row[3]), high2 = _mm256_unpackhi_ps(row[2], row[3]);
    tap[0] = _mm256_shuffle_ps(low, low2, 0x44);
    tap[1] = _mm256_shuffle_ps(low, low2, 0xee);
    tap[2] = _mm256_shuffle_ps(high, high2, 0x44);
    tap[3] = _mm256_shuffle_ps(high, high2, 0xee);
}

/* Four taps, as all known models have. */
void sl_k_conv_silu__avx2(const float *const *rows, const float *w, uint32_t taps, uint32_t n,
                          float *y)
{
    uint32_t i = 0;
    for (; taps == 4 && i + 8 <= n; i += 8) {
        __m256 tap[4], acc = _mm256_setzero_ps();
        load_taps(w + 4 * i, tap);
        for (int j = 0; j < 4; j++)
            acc = _mm256_fmadd_ps(tap[j], _mm256_loadu_ps(rows[j] + i), acc);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(acc, sigmoid8(acc)));
    }
    conv_rest(rows, w, taps, i, n, y);
}

/* What the columns of a stretch have summed up, eight in a vector. */
struct sums {
    __m256 a[2], b[2];
};

SL_INLINE struct sums pass(const struct sl_k_delta *s, uint32_t first, bool before)
{
    struct sums r = {{_mm256_setzero_ps(), _mm256_setzero_ps()},
                     {_mm256_setzero_ps(), _mm256_setzero_ps()}};
    __m256 u[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256 decay = _mm256_set1_ps(s->decay_before);
    float *row = s->state + (uint64_t)first * s->n_k;
    for (int h = 0; before && h < 2; h++) u[h] = _mm256_loadu_ps(s->u_before + first + 8 * h);
    for (uint32_t i = 0; i < s->n_k; i++, row += SL_DELTA_COLS) {
        __m256 k = _mm256_broadcast_ss(s->k + i), q = _mm256_broadcast_ss(s->q + i);
        for (int h = 0; h < 2; h++) {
            __m256 x = _mm256_loadu_ps(row + 8 * h);
            if (before) {
                __m256 k_before = _mm256_broadcast_ss(s->k_before + i);
                x = _mm256_fmadd_ps(k_before, u[h], _mm256_mul_ps(decay, x));
                _mm256_storeu_ps(row + 8 * h, x);
            }
            r.a[h] = _mm256_fmadd_ps(x, k, r.a[h]);
            r.b[h] = _mm256_fmadd_ps(x, q, r.b[h]);
        }
    }
    return r;
}

void sl_k_delta_step__avx2(const struct sl_k_delta *s)
{
    __m256 decay = _mm256_set1_ps(s->decay), beta = _mm256_set1_ps(s->beta);
    __m256 qk = _mm256_set1_ps(s->qk);
    for (uint32_t first = 0; first < s->n_v; first += SL_DELTA_COLS) {
        struct sums r = s->k_before ? pass(s, first, true) : pass(s, first, false);
        for (int h = 0; h < 2; h++) {
            __m256 v = _mm256_loadu_ps(s->v + first + 8 * h);
            __m256 u = _mm256_mul_ps(beta, _mm256_fnmadd_ps(decay, r.a[h], v));
            _mm256_storeu_ps(s->u + first + 8 * h, u);
            __m256 y = _mm256_fmadd_ps(u, qk, _mm256_mul_ps(decay, r.b[h]));
            _mm256_storeu_ps(s->y + first + 8 * h, y);
        }
    }
}
