/* The scaling of RoPE that Llama 3.1 introduced, as GGUF files hold it: a divisor for each
 * frequency, in the tensor rope_freqs.weight. Frequencies whose wave is short against the original
 * context stay, those whose wave is long are divided by the factor, those between go over smoothly.
 *
 * Source: transformers, modeling_rope_utils.py, _compute_llama3_parameters (4.57); llama.cpp's
 * converter computes the same in float. */
#include "base/mathfn.h"
#include "formats/hf_internal.h"

#define TWO_PI 6.283185307179586

struct llama3 {
    double factor, low, high, context;
};

static double divisor(const struct llama3 *s, double freq)
{
    double waves = s->context * freq / TWO_PI; /* that fit the original context */

    if (waves > s->high) return 1.0;
    if (waves < s->low) return s->factor;
    double smooth = (waves - s->low) / (s->high - s->low);
    return 1.0 / ((1.0 - smooth) / s->factor + smooth);
}

sluice_err sl_hf_rope_factors(struct sl_hf *hf, const struct sl_hf_object *rope, double theta)
{
    struct llama3 s = {8.0, 1.0, 4.0, 8192.0};
    uint32_t n = sl_hf_arch_u32(hf, "rope.dimension_count", 0);
    float *factors;

    SL_HF_TRY(sl_hf_f64(rope, "factor", &s.factor));
    SL_HF_TRY(sl_hf_f64(rope, "low_freq_factor", &s.low));
    SL_HF_TRY(sl_hf_f64(rope, "high_freq_factor", &s.high));
    SL_HF_TRY(sl_hf_f64(rope, "original_max_position_embeddings", &s.context));
    if (!(s.factor > 0.0) || !(s.low > 0.0) || !(s.high > s.low) || !(s.context > 0.0) ||
        !(theta >= 1.0) || n < 2 || n % 2 != 0 || n > SL_HEAD_DIM_MAX)
        return sl_hf_fail(hf, rope->file, rope->e, SLUICE_E_FORMAT,
                          "RoPE scaling 'llama3' with factor %g, low_freq_factor %g, "
                          "high_freq_factor %g, context %g, theta %g, heads of %u",
                          s.factor, s.low, s.high, s.context, theta, n);
    factors = sl_arena_alloc(&hf->arena, n / 2, sizeof *factors);
    if (factors == NULL) return sl_hf_no_memory(hf, 2 * (uint64_t)n, rope->e);
    for (uint32_t i = 0; i < n / 2; i++)
        factors[i] = (float)divisor(&s, sl_pow(theta, -2.0 * i / n));
    hf->rope_factors = factors;
    hf->n_rope_factors = n / 2;
    return SLUICE_OK;
}
