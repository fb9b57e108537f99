/* The definition of the encoder's inner loops, and the tables they look up. See sq_search.h. */
#include "formats/sq_search.h"

#include <stdatomic.h>

#include "base/cpu.h"

/* Level k is nearest up to the middle between it and the next; a middle is a multiple of a half of
 * the levels' own unit, which is a sixteenth here. */
void sl_sq_levels_init(const struct sl_sq_info *info, struct sl_sq_levels *levels)
{
    int32_t k = 0, last = (1 << info->bits) - 1;
    for (int32_t i = 0; i < SL_SQ_HALVES; i++) {
        while (k < last && i >= info->levels[k] + info->levels[k + 1]) k++;
        levels->near[i] = (float)info->levels[k] * 0.125f;
        levels->code[i] = k;
    }
    levels->two = true;
    for (uint32_t i = 0; i < SL_SQ_EIGHTHS; i++) {
        levels->below[i] = levels->near[16 * i];
        levels->above[i] = levels->near[16 * i + 15];
        if (levels->code[16 * i + 15] > levels->code[16 * i] + 1) levels->two = false;
    }
}

static void load(const float *x, float factor, struct sl_sq_group *g)
{
    g->high = g->low = 0.0f;
    for (uint32_t i = 0; i < g->n; i++) {
        float v = g->x[i] = x[i] * factor;
        if (v > g->high) g->high = v;
        if (-v > g->low) g->low = -v;
    }
}

/* The place in the tables of a position. No branches: weights at the ends would be guessed
 * wrongly. */
static inline int nearest(float v)
{
    v = v > 0.0f ? v : 0.0f;
    v = v < SL_SQ_LAST ? v : SL_SQ_LAST;
    return (int)(v * 16.0f);
}

static inline float cost(const struct sl_sq_levels *levels, const struct sl_sq_group *g, uint32_t k,
                         struct sl_sq_try t)
{
    float v = g->x[k] * t.inverse + t.offset;
    float off = v - levels->near[nearest(v)];
    return g->w[k] * (off * off);
}

static void errors(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                   const struct sl_sq_try *tries, uint32_t n, float *error)
{
    for (uint32_t i = 0; i < n; i++) {
        float s[8];
        for (uint32_t k = 0; k < 8; k++) s[k] = cost(levels, g, k, tries[i]);
        for (uint32_t k = 8; k < g->n; k++) s[k % 8] += cost(levels, g, k, tries[i]);
        error[i] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    }
}

static void settle(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                   const struct sl_sq_try *t, float scale, uint8_t *codes, struct sl_sq_sums *s)
{
    for (uint32_t k = 0; k < g->n; k++) {
        int i = nearest(g->x[k] * t->inverse + t->offset);
        float level = (levels->near[i] - t->offset) * scale;
        codes[k] = (uint8_t)levels->code[i];
        double x = g->x[k], q = level, wx = g->w[k] * x, wq = g->w[k] * q;
        uint32_t lane = k % 4;
        s->xx[lane] += x * x;
        s->xq[lane] += x * q;
        s->qq[lane] += q * q;
        s->wxx[lane] += wx * x;
        s->wxq[lane] += wx * q;
        s->wqq[lane] += wq * q;
    }
}

const struct sl_sq_variant sl_sq_plain = {load, errors, settle};

/* Chosen once, since asking the processor takes as long as encoding some hundred weights in a
 * virtual machine. Threads that race here choose the same. */
const struct sl_sq_variant *sl_sq_variant(void)
{
    static _Atomic(const struct sl_sq_variant *) chosen;
    const struct sl_sq_variant *v = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (v != NULL) return v;
    v = &sl_sq_plain;
#if defined(__x86_64__)
    if ((sl_cpu_flags() & SL_CPU_AVX2) != 0) v = &sl_sq_avx2;
#endif
    atomic_store_explicit(&chosen, v, memory_order_relaxed);
    return v;
}
