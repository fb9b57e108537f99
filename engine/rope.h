/* Rotary position embedding: frequencies and magnitude, with linear, YaRN and per-frequency
 * (llama3) scaling.
 *
 * Pair i of n_rot/2 turns by the angle position * freq[i]; cosine and sine are multiplied by
 * magnitude. All of it is computed in double by base/mathfn.h and rounded once, so that tables are
 * equal on every machine. Sources: Su et al. 2021 (RoPE); Peng et al. 2023, "YaRN", sections 3.2
 * to 3.4; the llama3 factors come ready in the tensor rope_freqs.weight. Thread: pure after init.
 */
#ifndef SL_ROPE_H
#define SL_ROPE_H

#include "base/limits.h"
#include "base/mem.h"

enum sl_rope_scaling { SL_ROPE_NONE, SL_ROPE_LINEAR, SL_ROPE_YARN };

struct sl_rope_config {
    uint32_t
        n_rot; /* even; 0: no rotation; at most the head size, the rest of a head is left alone */
    double freq_base;
    enum sl_rope_scaling scaling;
    double factor;       /* linear, YaRN: context stretched by this; >= some small positive */
    double original_ctx; /* YaRN: context before stretching, tokens */
    double beta_fast,
        beta_slow;      /* YaRN: turns within original_ctx that bound the ramp; usually 32 and 1 */
    double attn_factor; /* extra magnitude; usually 1 */
    double log_multiplier; /* YaRN: mscale_all_dim of DeepSeek-style configs; 0: absent */
    const float *factors;  /* [n_rot/2] frequency divisors, or NULL */
};

struct sl_rope {
    uint32_t n_rot;
    double magnitude;
    const double *freq; /* [n_rot/2] radians a position */
};

/* Computes the frequencies into memory of a. Returns SLUICE_OK, SLUICE_E_NOMEM or SLUICE_E_BUDGET.
 */
SL_MUST_CHECK sluice_err sl_rope_init(struct sl_rope *r, const struct sl_rope_config *c,
                                      struct sl_arena *a);

/* cs[2i], cs[2i+1] = cosine and sine of pair i at a position, times magnitude. cs: [n_rot]. */
void sl_rope_table(const struct sl_rope *r, uint64_t position, float *cs);

#endif
