/* The encoder's inner loops: the variant of this machine against the definition, bit by bit. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/sq_search.h"

static uint32_t seed = 7;

static uint32_t next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* Between -1 and 1, now and then 0, an end, or tiny. */
static float value(void)
{
    uint32_t kind = next() % 16;
    if (kind == 0) return 0.0f;
    if (kind == 1) return next() % 2 == 0 ? 1.0f : -1.0f;
    float x = (float)((int32_t)next() - (1 << 23)) / (float)(1 << 23);
    return kind == 2 ? x * 0x1p-120f : kind == 3 ? x * FLT_MIN : x;
}

static void fill(struct sl_sq_group *g, uint32_t n)
{
    g->n = n;
    for (uint32_t k = 0; k < n; k++) {
        g->x[k] = value();
        g->w[k] = next() % 8 == 0 ? 0.001f : (float)(next() % 4096) / 512.0f;
    }
}

/* Scales from ones that cut nearly everything off to ones that leave all on one level; weights that
 * lie on the border between two levels among them. */
static struct sl_sq_try any_try(const struct sl_sq_info *info)
{
    float offset = (float)(info->offset_base + info->offset_step * (next() % SL_SQ_OFFSETS));
    float inverse = (float)(1 + next() % 64) * (next() % 4 == 0 ? 64.0f : 0.125f);
    return (struct sl_sq_try){next() % 2 == 0 ? inverse : -inverse, offset * 0.125f};
}

static void compare_group(const struct sl_sq_variant *v, const struct sl_sq_info *info, uint32_t n)
{
    enum { TRIES = 9 };
    struct sl_sq_levels levels;
    struct sl_sq_group g, loaded[2];
    struct sl_sq_try tries[TRIES];
    struct sl_sq_sums sums[2] = {0};
    float errors[2][TRIES];
    uint8_t codes[2][32];
    memset(loaded, 0, sizeof loaded);
    sl_sq_levels_init(info, &levels);
    fill(&g, n);
    loaded[0].n = loaded[1].n = n;
    sl_sq_plain.load(g.x, 0.5f, &loaded[0]);
    v->load(g.x, 0.5f, &loaded[1]);
    assert_memory_equal(loaded[0].x, loaded[1].x, n * sizeof(float));
    assert_memory_equal(&loaded[0].high, &loaded[1].high, sizeof(float));
    assert_memory_equal(&loaded[0].low, &loaded[1].low, sizeof(float));
    for (uint32_t i = 0; i < TRIES; i++) tries[i] = any_try(info);
    sl_sq_plain.errors(&levels, &g, tries, TRIES, errors[0]);
    v->errors(&levels, &g, tries, TRIES, errors[1]);
    assert_memory_equal(errors[0], errors[1], sizeof errors[0]);
    for (uint32_t i = 0; i < TRIES; i++) {
        float scale = 1.0f / tries[i].inverse;
        sl_sq_plain.settle(&levels, &g, &tries[i], scale, codes[0], &sums[0]);
        v->settle(&levels, &g, &tries[i], scale, codes[1], &sums[1]);
        assert_memory_equal(codes[0], codes[1], n);
    }
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
}

static void test_variant__any_group__bit_equal_to_the_definition(void **state)
{
    (void)state;
    const struct sl_sq_variant *v = sl_sq_variant();
    if (v == &sl_sq_plain) skip();
    for (uint32_t type = SL_SQ_FIRST; type < SL_SQ_FIRST + SL_SQ_TYPES; type++) {
        const struct sl_sq_info *info = sl_sq_info(type);
        for (int run = 0; run < 2000; run++) compare_group(v, info, info->group_cols);
    }
}

/* Whatever a variant looks up, it has to be the nearest of all levels. */
static void test_levels__all_positions__the_nearest(void **state)
{
    (void)state;
    for (uint32_t type = SL_SQ_FIRST; type < SL_SQ_FIRST + SL_SQ_TYPES; type++) {
        const struct sl_sq_info *info = sl_sq_info(type);
        struct sl_sq_levels levels;
        sl_sq_levels_init(info, &levels);
        for (int i = 0; i <= 2 * 63 * 8; i++) {
            float v = (float)i / 128.0f, least = 64.0f, found;
            for (uint32_t k = 0; k < 1u << info->bits; k++) {
                float off = v - (float)info->levels[k] * 0.125f;
                if (off < 0.0f) off = -off;
                if (off < least) least = off;
            }
            found = v - levels.near[i / 8];
            assert_true((found < 0.0f ? -found : found) == least);
            assert_true(levels.near[i / 8] * 8.0f == info->levels[levels.code[i / 8]]);
            if (!levels.two) continue;
            float below = v - levels.below[i / 128], above = levels.above[i / 128] - v;
            if (below < 0.0f) below = -below;
            if (above < 0.0f) above = -above;
            assert_true((below < above ? below : above) == least);
        }
    }
}

static void test_levels__of_two_and_three_bits__two_in_each_eighth(void **state)
{
    (void)state;
    for (uint32_t type = SL_SQ2_32; type <= SL_SQ3_16; type++) {
        struct sl_sq_levels levels;
        sl_sq_levels_init(sl_sq_info(type), &levels);
        assert_true(levels.two); /* or their encoder is half as fast */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variant__any_group__bit_equal_to_the_definition),
        cmocka_unit_test(test_levels__all_positions__the_nearest),
        cmocka_unit_test(test_levels__of_two_and_three_bits__two_in_each_eighth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
