/* RoPE frequencies. See rope.h for what and whence. */
#include "engine/rope.h"

#include "base/mathfn.h"

#define TWO_PI 6.283185307179586476925

/* The pair index at which a frequency makes `turns` full turns within the original context (YaRN,
 * section 3.2, solved for the dimension). */
static double pair_of_turns(const struct sl_rope_config *c, double turns)
{
    return c->n_rot * sl_ln(c->original_ctx / (turns * TWO_PI)) / (2.0 * sl_ln(c->freq_base));
}

static double floor_d(double x)
{
    double t = (double)(int64_t)x;
    return t > x ? t - 1.0 : t;
}

/* How much of the unscaled frequency pair i keeps: 1 below low, 0 above high, a ramp between. */
static double yarn_keep(double i, double low, double high)
{
    double width = high - low > 0.001 ? high - low : 0.001;
    double y = (i - low) / width;
    if (y < 0.0) y = 0.0;
    if (y > 1.0) y = 1.0;
    return 1.0 - y;
}

/* 0.1 m ln(s) + 1 for s > 1 (YaRN, section 3.4). */
static double yarn_magnitude(double s, double m)
{
    return s <= 1.0 ? 1.0 : 0.1 * m * sl_ln(s) + 1.0;
}

static double magnitude_of(const struct sl_rope_config *c)
{
    if (c->scaling != SL_ROPE_YARN) return c->attn_factor;
    double m = yarn_magnitude(c->factor, 1.0);
    if (c->log_multiplier != 0.0) m /= yarn_magnitude(c->factor, c->log_multiplier);
    return m * c->attn_factor;
}

sluice_err sl_rope_init(struct sl_rope *r, const struct sl_rope_config *c, struct sl_arena *a)
{
    SLUICE_ASSERT(c->n_rot % 2 == 0);
    r->n_rot = c->n_rot;
    r->magnitude = magnitude_of(c);
    r->freq = NULL;
    if (c->n_rot == 0) return SLUICE_OK;
    double *freq = sl_arena_alloc(a, c->n_rot / 2, sizeof *freq);
    if (!freq) return SLUICE_E_NOMEM;

    double low = 0.0, high = 0.0;
    if (c->scaling == SL_ROPE_YARN) {
        low = floor_d(pair_of_turns(c, c->beta_fast));
        high = -floor_d(-pair_of_turns(c, c->beta_slow));
        if (low < 0.0) low = 0.0;
        if (high > c->n_rot - 1.0) high = c->n_rot - 1.0;
    }
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        double f = sl_pow(c->freq_base, -2.0 * i / c->n_rot);
        if (c->factors) f /= (double)c->factors[i];
        double stretched = f / c->factor;
        if (c->scaling == SL_ROPE_LINEAR) f = stretched;
        if (c->scaling == SL_ROPE_YARN) {
            double keep = yarn_keep((double)i, low, high);
            f = stretched * (1.0 - keep) + f * keep;
        }
        freq[i] = f;
    }
    r->freq = freq;
    return SLUICE_OK;
}

void sl_rope_table(const struct sl_rope *r, uint64_t position, float *cs)
{
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        double s, c;
        sl_sincos((double)position * r->freq[i], &s, &c);
        cs[2 * i] = (float)(c * r->magnitude);
        cs[2 * i + 1] = (float)(s * r->magnitude);
    }
}
