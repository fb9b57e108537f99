/* Real routing traces through the real books: LRU, LFU, LFU with decay and the optimum give the
 * figures of the independent reference program that comes with the traces, no policy beats the
 * optimum, and the default policy is nowhere below plain LRU, nor below the score without recall
 * where all layers share a pool.
 *
 * The traces are large and live beside the source (SLUICE_TRACES_DIR); without them the test is
 * skipped. Builds that validate the books after every change take only the beginning of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "trace/replay.h"

#ifdef NDEBUG
#define TOKENS_MAX 100000
#else
#define TOKENS_MAX 100
#endif
#define SIZES 4
#define POOLS 2 /* enum sl_replay_pool */
#define POLICIES_MAX 16
#define FIGURES 4 /* lru, lfu, decayed_lfu, optimum */

static const double share[SIZES] = {.1, .2, .3, .5};
static const char *const figure_policy[FIGURES] = {"lru", "lfu", "decayed_lfu", NULL};

struct expected {
    const char *name;
    uint32_t n_layers, n_experts, top_k, n_tokens;
    double hits[FIGURES][POOLS][SIZES]; /* %; by figure_policy, then enum sl_replay_pool */
};

static const struct expected traces[] = {
    {"bmoe_qwen",
     48,
     128,
     6,
     128,
     {{{50.47, 73.94, 86.23, 91.70}, {54.27, 74.45, 84.80, 91.20}},
      {{53.61, 74.87, 85.94, 91.70}, {58.91, 77.02, 85.72, 91.25}},
      {{54.42, 75.53, 86.27, 91.70}, {59.18, 77.21, 85.85, 91.29}},
      {{74.30, 86.98, 91.02, 91.70}, {69.12, 85.04, 89.92, 91.61}}}},
    {"waste_kimi",
     26,
     256,
     8,
     300,
     {{{54.52, 66.86, 76.74, 87.08}, {55.31, 67.45, 76.86, 86.65}},
      {{50.61, 65.86, 76.42, 87.66}, {55.78, 68.81, 77.96, 87.70}},
      {{51.46, 66.62, 77.11, 87.78}, {55.93, 68.89, 78.04, 87.54}},
      {{71.89, 82.10, 87.23, 91.17}, {69.54, 81.00, 86.57, 91.00}}}},
    {"waste_olmoe",
     16,
     64,
     8,
     299,
     {{{43.37, 49.17, 62.36, 78.48}, {43.37, 54.23, 63.88, 79.42}},
      {{34.88, 46.70, 58.35, 77.37}, {43.37, 55.25, 64.32, 80.59}},
      {{37.53, 49.59, 61.01, 79.42}, {43.37, 56.06, 65.62, 81.46}},
      {{59.69, 71.75, 80.52, 91.30}, {43.37, 65.78, 77.22, 89.88}}}},
    {"gptoss20b",
     24,
     32,
     4,
     18316,
     {{{43.67, 47.12, 71.43, 90.95}, {43.67, 54.92, 73.45, 89.71}},
      {{27.24, 38.77, 58.35, 80.29}, {43.67, 53.00, 69.30, 86.05}},
      {{42.58, 55.83, 75.36, 91.62}, {43.67, 58.30, 76.92, 91.32}},
      {{62.32, 74.50, 88.00, 96.70}, {43.67, 65.80, 84.46, 95.05}}}},
};

/* The trace, and of it the first TOKENS_MAX decoded tokens. */
struct loaded {
    struct sl_budget budget;
    struct sl_trace *all;
    struct sl_trace t;
    bool whole;
};

static void load(const struct expected *x, struct loaded *out)
{
    char path[1024];
    sluice_error e;
    snprintf(path, sizeof path, "%s/%s.txt.gz", SLUICE_TRACES_DIR, x->name);
    sl_budget_init(&out->budget, UINT64_MAX);
    if (sl_trace_load(path, NULL, NULL, &out->budget, &e, &out->all)) fail_msg("%s", e.text);
    const struct sl_trace_header *h = &out->all->header;
    assert_int_equal(out->all->n_tokens, x->n_tokens);
    assert_int_equal(h->n_layers, x->n_layers);
    assert_int_equal(h->layer[0].n_experts, x->n_experts);
    assert_int_equal(h->layer[0].top_k, x->top_k);
    out->t = *out->all;
    uint32_t tokens = 0;
    for (uint64_t i = 0; i < out->all->n_evals; i++) {
        if (tokens == TOKENS_MAX) out->t.n_visits = out->all->evals[i].first_visit;
        tokens += !out->all->evals[i].e.prompt;
        if (tokens > TOKENS_MAX) break;
    }
    out->whole = tokens <= TOKENS_MAX;
}

static void unload(struct loaded *x)
{
    sl_trace_free(x->all);
    assert_int_equal(sl_budget_used(&x->budget), 0);
}

/* policy NULL: the optimum. */
static struct sl_replay_sums replay(struct loaded *x, const struct sl_ec_policy *policy,
                                    enum sl_replay_pool pool, double part)
{
    struct sl_replay_config c = {.policy = policy, .optimum = policy == NULL, .pool = pool};
    struct sl_replay_size size = {.share = part};
    struct sl_replay_result got;
    sluice_error e;
    uint64_t bytes;
    c.skip_prompts = true;
    if (sl_replay_size(&x->t, &size, 0, &c, &bytes, &e)) fail_msg("%s", e.text);
    if (sl_replay(&x->t, &c, &x->budget, &e, &got)) fail_msg("%s", e.text);
    assert_int_equal(got.prompt.uses, 0);
    assert_true(got.decode.hits + got.decode.cold <= got.decode.uses);
    uint64_t by_layer = 0;
    for (uint32_t l = 0; l < x->t.header.n_layers; l++) by_layer += got.layer[l].hits;
    assert_int_equal(by_layer, got.decode.hits);
    return got.decode;
}

static void replay_row(struct loaded *x, const struct sl_ec_policy *policy,
                       enum sl_replay_pool pool, double hits[SIZES])
{
    printf("  %-10s %-12s", pool == SL_REPLAY_PER_LAYER ? "per layer" : "one",
           policy ? policy->name : "optimum");
    for (int i = 0; i < SIZES; i++) {
        struct sl_replay_sums s = replay(x, policy, pool, share[i]);
        hits[i] = 100.0 * (double)s.hits / (double)s.uses;
        printf(" %6.2f", hits[i]);
    }
    printf("\n");
    fflush(stdout);
}

static void check_figures(const struct expected *x, const char *policy, enum sl_replay_pool pool,
                          const double hits[SIZES])
{
    for (int f = 0; f < FIGURES; f++) {
        bool same = policy == figure_policy[f];
        if (policy && figure_policy[f]) same = strcmp(policy, figure_policy[f]) == 0;
        for (int i = 0; i < SIZES && same; i++)
            assert_float_equal(hits[i], x->hits[f][pool][i], 0.00501);
    }
}

static void check_pool(const struct expected *x, struct loaded *t, enum sl_replay_pool pool,
                       double hits[POLICIES_MAX][SIZES])
{
    double optimum[SIZES];
    replay_row(t, NULL, pool, optimum);
    if (t->whole) check_figures(x, NULL, pool, optimum);
    for (uint32_t p = 0; sl_ec_policy_at(p) != NULL; p++) {
        const struct sl_ec_policy *policy = sl_ec_policy_at(p);
        replay_row(t, policy, pool, hits[p]);
        if (t->whole) check_figures(x, policy->name, pool, hits[p]);
        for (int i = 0; i < SIZES; i++) assert_true(hits[p][i] <= optimum[i]);
    }
}

static uint32_t index_of(const char *policy)
{
    uint32_t p = 0;
    while (strcmp(sl_ec_policy_at(p)->name, policy) != 0) p++;
    return p;
}

/* The default is policy 0. */
static void check_trace(const struct expected *x)
{
    static double hits[POOLS][POLICIES_MAX][SIZES];
    const uint32_t lru = index_of("lru"), two_rate = index_of("two_rate");
    struct loaded t;
    load(x, &t);
    printf("%s\n", x->name);
    for (int pool = 0; pool < POOLS; pool++)
        check_pool(x, &t, (enum sl_replay_pool)pool, hits[pool]);
    for (int i = 0; i < SIZES; i++)
        for (int pool = 0; pool < POOLS; pool++) {
            assert_true(!t.whole || hits[SL_REPLAY_ONE][0][i] >= hits[SL_REPLAY_ONE][two_rate][i]);
            assert_true(hits[pool][0][i] >= hits[pool][lru][i]);
            assert_true(hits[SL_REPLAY_ONE][0][i] >= hits[pool][lru][i]);
        }
    unload(&t);
}

static void test_replay__bmoe_qwen__figures_of_the_reference(void **state)
{
    (void)state;
    check_trace(&traces[0]);
}

static void test_replay__waste_kimi__figures_of_the_reference(void **state)
{
    (void)state;
    check_trace(&traces[1]);
}

static void test_replay__waste_olmoe__figures_of_the_reference(void **state)
{
    (void)state;
    check_trace(&traces[2]);
}

static void test_replay__gptoss20b__figures_of_the_reference(void **state)
{
    (void)state;
    check_trace(&traces[3]);
}

int main(void)
{
    if (access(SLUICE_TRACES_DIR "/gptoss20b.txt.gz", R_OK) != 0) {
        printf("skipped: no traces in " SLUICE_TRACES_DIR " (set SLUICE_TRACES_DIR)\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay__bmoe_qwen__figures_of_the_reference),
        cmocka_unit_test(test_replay__waste_kimi__figures_of_the_reference),
        cmocka_unit_test(test_replay__waste_olmoe__figures_of_the_reference),
        cmocka_unit_test(test_replay__gptoss20b__figures_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
