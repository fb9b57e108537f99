/* Proves the predictor against a plain definition on random texts (full sorts, sets as arrays),
 * that its probabilities become the frequencies of a made-up router, and that it forgets what it
 * should.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "router/predict.h"

#define EXPERTS 40
#define TOP_K 5
#define RANKS (2 * TOP_K)
#define HINTS_MAX (3 * TOP_K)

static uint32_t seed = 11;

static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static float unit(void) { return (float)below(1u << 20) / 1048576.0f; }

static struct sl_budget budget;

static struct sl_predictor *open_predictor(const struct sl_predict_layer *layers, uint32_t n)
{
    struct sl_predictor *p;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    assert_int_equal(sl_predictor_open(layers, n, &budget, &e, &p), SLUICE_OK);
    assert_int_equal(sl_budget_used(&budget), sl_predictor_bytes(layers, n));
    return p;
}

static void close_predictor(struct sl_predictor *p)
{
    sl_predictor_close(p);
    assert_int_equal(sl_budget_used(&budget), 0);
}

static const struct sl_predict_layer one_layer[1] = {{EXPERTS, TOP_K}};

/* n distinct experts. */
static void choose(uint32_t *chosen, uint32_t n, uint32_t n_experts)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t x = below(n_experts);
        bool again = false;
        for (uint32_t j = 0; j < i; j++) again |= chosen[j] == x;
        if (!again) chosen[i++] = x;
    }
}

/* ---- the definition ----------------------------------------------------------------------------
 */

struct frequency {
    float p;
    uint32_t seen;
};

struct plain {
    struct frequency rank[RANKS][2], beyond, blind;
    bool previous[EXPERTS];
    uint32_t order[EXPERTS]; /* of the pending guess, best first */
    uint32_t n_previous;
    int pending; /* 0 none, 1 with logits, 2 without */
};

static void plain_init(struct plain *d)
{
    memset(d, 0, sizeof *d);
    for (int i = 0; i < RANKS; i++) {
        d->rank[i][0] = (struct frequency){i < TOP_K ? 0.6f : 0.1f, 4};
        d->rank[i][1] = (struct frequency){i < TOP_K ? 0.8f : 0.3f, 4};
    }
    d->beyond = (struct frequency){0.1f, 4};
    d->blind = (struct frequency){0.35f, 4};
}

/* One expert's probability, -1 for those that are no candidates. */
static void plain_guess(struct plain *d, const float *logits, float *probability)
{
    for (uint32_t x = 0; x < EXPERTS; x++) {
        d->order[x] = x;
        probability[x] = d->previous[x] ? d->blind.p : -1.0f;
    }
    d->pending = logits != NULL ? 1 : 2;
    if (logits == NULL) return;
    for (uint32_t i = 0; i < EXPERTS; i++) /* stable: bubbles */
        for (uint32_t j = EXPERTS - 1; j > i; j--)
            if (logits[d->order[j]] > logits[d->order[j - 1]]) {
                uint32_t swap = d->order[j];
                d->order[j] = d->order[j - 1];
                d->order[j - 1] = swap;
            }
    for (uint32_t x = 0; x < EXPERTS; x++) probability[x] = d->previous[x] ? d->beyond.p : -1.0f;
    for (uint32_t i = 0; i < RANKS; i++) {
        uint32_t x = d->order[i];
        probability[x] = d->rank[i][d->previous[x]].p;
    }
}

static void plain_observe(struct frequency *f, bool came_true)
{
    if (f->seen < 128) f->seen++;
    f->p += ((came_true ? 1.0f : 0.0f) - f->p) / (float)f->seen;
}

static void plain_learn(struct plain *d, const uint32_t *chosen, uint32_t n)
{
    bool truth[EXPERTS] = {false}, ranked[EXPERTS] = {false};
    for (uint32_t i = 0; i < n; i++) truth[chosen[i]] = true;
    for (uint32_t i = 0; i < RANKS && d->pending == 1 && d->n_previous > 0; i++) {
        uint32_t x = d->order[i];
        ranked[x] = true;
        plain_observe(&d->rank[i][d->previous[x]], truth[x]);
    }
    /* of equals the order does not matter but for the arithmetic, which is that of the choice */
    for (uint32_t i = 0; i < EXPERTS; i++)
        if (d->pending == 1 && d->previous[i] && !ranked[i]) plain_observe(&d->beyond, truth[i]);
    for (uint32_t i = 0; i < EXPERTS; i++)
        if (d->pending == 2 && d->previous[i]) plain_observe(&d->blind, truth[i]);
    memcpy(d->previous, truth, sizeof truth);
    d->n_previous = n;
    d->pending = 0;
}

static void plain_forget(struct plain *d)
{
    memset(d->previous, 0, sizeof d->previous);
    d->n_previous = 0;
    d->pending = 0;
}

/* Hints are the likeliest candidates, in falling order, each with the defined probability. */
static void check_hints(const struct sl_expert_hint *hints, uint32_t n, uint32_t max,
                        const float *want)
{
    bool hinted[EXPERTS] = {false};
    uint32_t n_candidates = 0;
    for (uint32_t x = 0; x < EXPERTS; x++) n_candidates += want[x] >= 0.0f;
    assert_int_equal(n, n_candidates < max ? n_candidates : max);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(hints[i].expert < EXPERTS && !hinted[hints[i].expert]);
        assert_true(hints[i].probability == want[hints[i].expert]);
        assert_true(i == 0 || hints[i].probability <= hints[i - 1].probability);
        hinted[hints[i].expert] = true;
    }
    for (uint32_t x = 0; x < EXPERTS && n > 0; x++)
        if (!hinted[x]) assert_true(want[x] <= hints[n - 1].probability);
}

static void sort(uint32_t *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++)
            if (x[j] < x[i]) {
                uint32_t swap = x[i];
                x[i] = x[j];
                x[j] = swap;
            }
}

static void test_predict__random_text__equals_the_definition(void **state)
{
    (void)state;
    struct sl_predictor *p = open_predictor(one_layer, 1);
    struct plain d;
    plain_init(&d);
    for (uint32_t t = 0; t < 3000; t++) {
        float logits[EXPERTS], want[EXPERTS];
        struct sl_expert_hint hints[HINTS_MAX];
        uint32_t chosen[TOP_K], n = below(20) ? TOP_K : below(TOP_K + 1);
        uint32_t max = below(4) ? HINTS_MAX : below(HINTS_MAX + 1);
        if (below(100) == 0) {
            sl_predict_forget(p);
            plain_forget(&d);
        }
        for (uint32_t x = 0; x < EXPERTS; x++) logits[x] = (float)below(t % 2 ? 8 : 1u << 20);
        for (uint32_t guesses = below(3); guesses > 0; guesses--) { /* none, one, a better one */
            bool blind = below(5) == 0;
            plain_guess(&d, blind ? NULL : logits, want);
            check_hints(hints, sl_predict(p, 0, blind ? NULL : logits, hints, max), max, want);
        }
        choose(chosen, n, EXPERTS);
        for (uint32_t i = 0; i < n && i < 3; i++) { /* half as the guess would have it */
            bool taken = false;
            for (uint32_t j = 0; j < n; j++) taken |= chosen[j] == d.order[i];
            if (d.pending == 1 && !taken) chosen[i] = d.order[i];
        }
        sort(chosen, n);
        sl_predict_learn(p, 0, chosen, n);
        plain_learn(&d, chosen, n);
    }
    close_predictor(p);
}

/* A made-up text: each expert of the token before stays with probability 1/2, and the router's
 * guess puts the coming choice first but for the last place, which is wrong. */
static void test_predict__made_up_router__probabilities_become_frequencies(void **state)
{
    (void)state;
    struct sl_predictor *p = open_predictor(one_layer, 1);
    uint32_t chosen[TOP_K];
    double sum[11] = {0};
    uint32_t n[11] = {0}, right[11] = {0};
    choose(chosen, TOP_K, EXPERTS);
    for (uint32_t t = 0; t < 4000; t++) {
        float logits[EXPERTS];
        struct sl_expert_hint hints[HINTS_MAX];
        uint32_t next[TOP_K];
        bool true_next[EXPERTS] = {false};
        choose(next, TOP_K, EXPERTS);
        for (uint32_t i = 0; i < TOP_K; i++) {
            bool taken = false;
            for (uint32_t j = 0; j < TOP_K; j++) taken |= next[j] == chosen[i];
            if (below(2) && !taken) next[i] = chosen[i];
        }
        for (uint32_t x = 0; x < EXPERTS; x++) logits[x] = unit();
        for (uint32_t i = 0; i < TOP_K; i++) {
            true_next[next[i]] = true;
            if (i > 0) logits[next[i]] += 0.2f + unit(); /* the first is as good as overlooked */
        }
        uint32_t n_hints = sl_predict(p, 0, logits, hints, HINTS_MAX);
        for (uint32_t i = 0; i < n_hints && t >= 500; i++) {
            uint32_t bin = (uint32_t)(hints[i].probability * 10.0f);
            sum[bin] += (double)hints[i].probability;
            n[bin]++;
            right[bin] += true_next[hints[i].expert];
        }
        sl_predict_learn(p, 0, next, TOP_K);
        memcpy(chosen, next, sizeof chosen);
    }
    uint32_t bins = 0;
    for (uint32_t i = 0; i <= 10; i++) {
        if (n[i] < 500) continue;
        bins++;
        assert_true(fabs(sum[i] - right[i]) / n[i] < 0.05);
    }
    assert_true(bins >= 4); /* it tells good guesses from bad ones */
    close_predictor(p);
}

static void test_predict__not_finite__gives_and_teaches_nothing(void **state)
{
    (void)state;
    struct sl_predictor *p = open_predictor(one_layer, 1);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float logits[EXPERTS] = {0};
    struct sl_expert_hint hints[HINTS_MAX], first[HINTS_MAX];
    uint32_t chosen[TOP_K] = {0, 1, 2, 3, 4};
    sl_predict_learn(p, 0, chosen, TOP_K);
    uint32_t n = sl_predict(p, 0, logits, first, HINTS_MAX);
    assert_int_equal(n, RANKS);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        logits[EXPERTS - 1] = bad[i];
        assert_int_equal(sl_predict(p, 0, logits, hints, HINTS_MAX), 0);
        sl_predict_learn(p, 0, chosen, TOP_K);
    }
    logits[EXPERTS - 1] = 0;
    assert_int_equal(sl_predict(p, 0, logits, hints, HINTS_MAX), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(hints[i].expert, first[i].expert);
        assert_true(hints[i].probability == first[i].probability);
    }
    struct sl_predict_stats s;
    sl_predict_get_stats(p, 0, &s);
    assert_int_equal(s.chosen, 0);
    close_predictor(p);
}

static void test_predict__forgotten__has_no_previous_token(void **state)
{
    (void)state;
    struct sl_predictor *p = open_predictor(one_layer, 1);
    const uint32_t chosen[TOP_K] = {5, 6, 7, 8, 9};
    float logits[EXPERTS] = {0};
    struct sl_expert_hint hints[HINTS_MAX];
    assert_int_equal(sl_predict(p, 0, NULL, hints, HINTS_MAX), 0);
    sl_predict_learn(p, 0, chosen, TOP_K);
    assert_int_equal(sl_predict(p, 0, NULL, hints, HINTS_MAX), TOP_K);
    for (uint32_t i = 0; i < TOP_K; i++) assert_int_equal(hints[i].expert, chosen[i]);
    assert_int_equal(sl_predict(p, 0, logits, hints, HINTS_MAX), RANKS);
    float known = hints[5].probability; /* of expert 5, which the previous token chose */
    assert_int_equal(hints[5].expert, 5);
    sl_predict_forget(p);
    assert_int_equal(sl_predict(p, 0, NULL, hints, HINTS_MAX), 0);
    sl_predict_forget(p); /* nor does the guess above count */
    sl_predict_learn(p, 0, chosen, TOP_K);
    sl_predict_forget(p);
    assert_int_equal(sl_predict(p, 0, logits, hints, HINTS_MAX), RANKS);
    assert_int_equal(hints[5].expert, 5);
    assert_true(hints[5].probability < known);
    close_predictor(p);
}

static void test_predict__stats__count_what_each_source_found(void **state)
{
    (void)state;
    const struct sl_predict_layer layers[3] = {{EXPERTS, TOP_K}, {0, 0}, {3, 2}};
    struct sl_predictor *p = open_predictor(layers, 3);
    const uint32_t before[TOP_K] = {5, 6, 7, 8, 9}, after[TOP_K] = {0, 1, 7, 8, 20};
    const uint32_t small[2] = {0, 2};
    const float logits[EXPERTS] = {9, 8, 7, 6}; /* then 4 by index: best 5 are 0 to 4 */
    struct sl_expert_hint hints[HINTS_MAX];
    struct sl_predict_stats s;
    assert_int_equal(sl_predict(p, 1, logits, hints, HINTS_MAX), 0);
    assert_int_equal(sl_predict(p, 2, logits, hints, HINTS_MAX), 3); /* no more than there are */
    sl_predict_learn(p, 2, small, 2);
    sl_predict_learn(p, 1, small, 0);
    sl_predict_learn(p, 0, before, TOP_K);
    assert_int_equal(sl_predict(p, 0, logits, hints, HINTS_MAX), RANKS);
    sl_predict_learn(p, 0, after, TOP_K);
    sl_predict_get_stats(p, 0, &s);
    assert_int_equal(s.chosen, 5);
    assert_int_equal(s.by_router, 2);
    assert_int_equal(s.by_previous, 2);
    sl_predict_get_stats(p, 2, &s);
    assert_int_equal(s.chosen, 2);
    assert_int_equal(s.by_router, 1);
    assert_int_equal(s.by_previous, 0);
    close_predictor(p);
}

static void test_predictor_open__no_memory__fails_clean(void **state)
{
    (void)state;
    struct sl_predictor *p;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    for (int64_t n = 0; n < 4; n++) {
        atomic_store(&budget.fail_after, n);
        assert_int_equal(sl_predictor_open(one_layer, 1, &budget, &e, &p), SLUICE_E_NOMEM);
        assert_null(p);
        assert_int_equal(sl_budget_used(&budget), 0);
    }
    atomic_store(&budget.fail_after, -1);
    assert_int_equal(sl_predictor_open(one_layer, 1, &budget, &e, &p), SLUICE_OK);
    close_predictor(p);
    sl_predictor_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predict__random_text__equals_the_definition),
        cmocka_unit_test(test_predict__made_up_router__probabilities_become_frequencies),
        cmocka_unit_test(test_predict__not_finite__gives_and_teaches_nothing),
        cmocka_unit_test(test_predict__forgotten__has_no_previous_token),
        cmocka_unit_test(test_predict__stats__count_what_each_source_found),
        cmocka_unit_test(test_predictor_open__no_memory__fails_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
