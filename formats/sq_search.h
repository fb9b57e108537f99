/* The inner loops of the encoder of sq.h (sq_encode.c): what a group of weights costs with each of
 * some scale bytes, and its codes with one of them. The definition is in sq_search.c; the variant
 * with AVX2 is bit-equal to it. Thread: pure.
 *
 * Everything here is float32, in units in which that is enough: weights as multiples of a power of
 * two near the largest of their row, what columns weigh as multiples of one near the mean, and
 * positions among the levels in eighths of the way from 0 to 64, so that the next smaller integer
 * says in which eighth a position lies. */
#ifndef SL_SQ_SEARCH_H
#define SL_SQ_SEARCH_H

#include "formats/sq.h"

#define SL_SQ_LAST (63.0f / 8.0f) /* the position of the last level */
#define SL_SQ_HALVES 128          /* half steps between two positions 8 apart, 16 in an eighth */
#define SL_SQ_EIGHTHS 8
#define SL_SQ_BYTES 256 /* scale bytes */

/* What is asked of the levels of a type. */
struct sl_sq_levels {
    float near[SL_SQ_HALVES];   /* the level nearest to positions from i / 16 up to (i + 1) / 16 */
    int32_t code[SL_SQ_HALVES]; /* and its code */
    /* Positions from i up to i + 1 are nearest to one of these two; where two is false, there is
     * an i with more. */
    float below[SL_SQ_EIGHTHS], above[SL_SQ_EIGHTHS];
    bool two;
};

/* A group: columns of one row, what an error in each costs, and how far they reach. */
struct sl_sq_group {
    uint32_t n; /* 16 or 32 */
    float x[32], w[32];
    float high, low; /* max(0, largest x), max(0, -smallest x) */
};

/* A scale and an offset: a weight lies at x * inverse + offset among the levels. */
struct sl_sq_try {
    float inverse, offset;
};

/* Sums over a row, weight k added to lane k mod 4: of x (weights) and q (what they are decoded as),
 * and the same weighted. */
struct sl_sq_sums {
    double xx[4], xq[4], qq[4];
    double wxx[4], wxq[4], wqq[4];
};

struct sl_sq_variant {
    /* g->x, high and low of g->n weights times factor. */
    void (*load)(const float *x, float factor, struct sl_sq_group *g);
    /* errors[i] is the sum of w * (position - nearest level)^2 with tries[i]. Weight k is added to
     * lane k mod 8; then lanes 0 + 4, 1 + 5, 2 + 6, 3 + 7, of these 0 + 2, 1 + 3, and both. */
    void (*errors)(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                   const struct sl_sq_try *tries, uint32_t n, float *errors);
    /* The codes of the nearest levels; a weight is then (level - offset) * scale. */
    void (*settle)(const struct sl_sq_levels *levels, const struct sl_sq_group *g,
                   const struct sl_sq_try *t, float scale, uint8_t *codes, struct sl_sq_sums *s);
};

extern const struct sl_sq_variant sl_sq_plain;
extern const struct sl_sq_variant sl_sq_avx2; /* x86-64, where sl_cpu_flags() has SL_CPU_AVX2 */

/* The faster one of this machine. */
const struct sl_sq_variant *sl_sq_variant(void);

void sl_sq_levels_init(const struct sl_sq_info *info, struct sl_sq_levels *levels);

#endif
