/* Drives the ledger with made-up drives: one that idles, where guesses pay; one that demand reads
 * keep busy, where every guess delays somebody; and one that changes its mind. What must hold is
 * where the threshold goes, and how many reads are lost on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "expert_cache/read_ahead.h"

#define READ_NS 1000000u
#define GUESSES 3 /* missing experts with a guess, a layer */

static uint32_t seed;

static float unit(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 16777216.0f;
}

/* What a guess read delays demand reads by, as a share of a read. A right guess saves a read. */
struct drive {
    float delay;
    float best; /* guesses are as likely as anything from 0 to this */
};

static const struct drive idle = {0.05f, 1.0f};
static const struct drive busy = {1.0f, 1.0f};

struct world {
    struct sl_read_ahead r;
    uint64_t reads, stops, layers;
};

static void begin(struct world *w, enum sl_read_ahead_mode mode)
{
    memset(w, 0, sizeof *w);
    seed = 5;
    sl_read_ahead_init(&w->r, mode);
}

static void run(struct world *w, const struct drive *d, uint64_t layers)
{
    for (uint64_t l = 0; l < layers; l++) {
        for (int i = 0; i < GUESSES; i++) {
            float p = unit() * d->best;
            if (!sl_read_ahead_wanted(&w->r, p)) continue;
            assert_true(p >= SL_READ_AHEAD_PROBABILITY_MIN);
            assert_false(sl_read_ahead_stopped(&w->r));
            w->reads++;
            sl_read_ahead_issued(&w->r);
            if (unit() < p) sl_read_ahead_saved(&w->r, READ_NS);
            sl_read_ahead_lost(&w->r, (uint64_t)(d->delay * (float)READ_NS));
        }
        bool before = sl_read_ahead_stopped(&w->r);
        sl_read_ahead_layer(&w->r);
        w->stops += !before && sl_read_ahead_stopped(&w->r);
        w->layers++;
    }
}

static void test_read_ahead__idle_drive__threshold_falls_and_stays(void **state)
{
    (void)state;
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    assert_true(w.r.threshold == 0.5f);
    run(&w, &idle, 500);
    assert_true(w.r.threshold == SL_READ_AHEAD_PROBABILITY_MIN);
    for (int i = 0; i < 1000; i++) {
        run(&w, &idle, 100);
        assert_true(w.r.threshold <= 0.3125f); /* a trial in bad luck may lift it a step */
    }
    assert_int_equal(w.stops, 0);
}

static void test_read_ahead__busy_drive__stops_within_few_reads(void **state)
{
    (void)state;
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    run(&w, &busy, 10000);
    assert_true(sl_read_ahead_stopped(&w.r));
    assert_int_equal(w.stops, 1);
    assert_in_range(w.reads, 64, 4 * (64 + GUESSES));
    /* tried again, ever more seldom: after 20,000 layers, 40,000, ... */
    run(&w, &busy, 1000000 - w.layers);
    assert_in_range(w.stops, 4, 6);
    assert_true(w.reads <= 4 * (64 + GUESSES) + 5 * 2 * (64 + GUESSES));
    uint64_t reads = w.reads, stops = w.stops;
    run(&w, &busy, 12800000);
    assert_true(w.stops - stops <= 12); /* the pause does not grow for ever */
    assert_true(w.stops - stops >= 9);
    assert_true(w.reads - reads <= 12 * 2 * (64 + GUESSES));
}

static void test_read_ahead__half_busy_drive__keeps_to_guesses_that_pay(void **state)
{
    (void)state;
    const struct drive half = {0.4f, 1.0f};
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    run(&w, &half, 2000);
    uint32_t near = 0;
    for (int i = 0; i < 500; i++) { /* a guess breaks even at 0.4 */
        run(&w, &half, 100);
        near += w.r.threshold >= 0.375f && w.r.threshold <= 0.5f;
    }
    assert_true(near >= 475);
    assert_int_equal(w.stops, 0);
    const struct drive busier = {0.7f, 1.0f};
    near = 0;
    run(&w, &busier, 2000);
    for (int i = 0; i < 50; i++) {
        run(&w, &busier, 100);
        near += w.r.threshold >= 0.625f && w.r.threshold <= 0.8125f;
    }
    assert_true(near >= 45);
    assert_int_equal(w.stops, 0);
}

static void test_read_ahead__drive_becomes_busy__stops_within_few_reads(void **state)
{
    (void)state;
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    run(&w, &idle, 5000);
    w.reads = 0;
    run(&w, &busy, 5000);
    assert_true(sl_read_ahead_stopped(&w.r));
    assert_true(w.reads <= 7 * (64 + GUESSES));
}

static void test_read_ahead__drive_becomes_idle__is_found_out_after_the_pause(void **state)
{
    (void)state;
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    run(&w, &busy, 5000);
    assert_true(sl_read_ahead_stopped(&w.r));
    run(&w, &idle, 20000 + 2000);
    assert_false(sl_read_ahead_stopped(&w.r));
    assert_true(w.r.threshold <= 0.3125f);
    assert_int_equal(w.r.strikes, 0); /* the next pause is a short one again */
}

static void test_read_ahead__few_guesses__neither_stops_nor_decides(void **state)
{
    (void)state;
    const struct drive silent = {1.0f, 0.2f}, doubtful = {1.0f, 0.6f};
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    run(&w, &silent, 100000);
    assert_int_equal(w.reads, 0);
    assert_true(w.r.threshold == 0.5f);
    /* a threshold that no guess reaches is not kept for ever */
    run(&w, &doubtful, 3000);
    assert_true(w.r.threshold > 0.5f && !sl_read_ahead_stopped(&w.r));
    run(&w, &doubtful, 6000);
    assert_true(sl_read_ahead_stopped(&w.r));
    assert_true(w.reads <= 64 + GUESSES);
}

static void test_read_ahead__off_and_forced__do_as_told(void **state)
{
    (void)state;
    struct world w;
    begin(&w, SL_READ_AHEAD_OFF);
    run(&w, &idle, 5000);
    assert_int_equal(w.reads, 0);
    assert_true(sl_read_ahead_stopped(&w.r));
    begin(&w, SL_READ_AHEAD_FORCED);
    run(&w, &busy, 5000);
    assert_in_range(w.reads, 5000 * GUESSES * 7 / 10, 5000 * GUESSES * 8 / 10);
    assert_false(sl_read_ahead_stopped(&w.r));
    assert_true(sl_read_ahead_wanted(&w.r, 0.25f));
    assert_false(sl_read_ahead_wanted(&w.r, 0.2499f));
}

static void test_read_ahead__not_a_probability__is_not_wanted(void **state)
{
    (void)state;
    struct world w;
    begin(&w, SL_READ_AHEAD_AUTO);
    assert_false(sl_read_ahead_wanted(&w.r, -1.0f));
    assert_false(sl_read_ahead_wanted(&w.r, __builtin_nanf("")));
    assert_true(sl_read_ahead_wanted(&w.r, 0.5f));
    assert_false(sl_read_ahead_wanted(&w.r, 0.4999f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_ahead__idle_drive__threshold_falls_and_stays),
        cmocka_unit_test(test_read_ahead__busy_drive__stops_within_few_reads),
        cmocka_unit_test(test_read_ahead__half_busy_drive__keeps_to_guesses_that_pay),
        cmocka_unit_test(test_read_ahead__drive_becomes_busy__stops_within_few_reads),
        cmocka_unit_test(test_read_ahead__drive_becomes_idle__is_found_out_after_the_pause),
        cmocka_unit_test(test_read_ahead__few_guesses__neither_stops_nor_decides),
        cmocka_unit_test(test_read_ahead__off_and_forced__do_as_told),
        cmocka_unit_test(test_read_ahead__not_a_probability__is_not_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
