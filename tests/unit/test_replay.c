/* Real routing traces through the real books: the default policy is nowhere below plain LRU, nor
 * below the score without recall where all layers share a pool, and plain LRU gives the figures of
 * the independent reference program that comes with the traces.
 *
 * The traces are large and live beside the source (SLUICE_TRACES_DIR); without them the test is
 * skipped. They are gzipped text: a line with a JSON header, then a line for each token. Builds
 * that validate the books after every change read only the beginning of each. */
#define _POSIX_C_SOURCE 200809L /* popen */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "expert_cache/trace_replay.h"

#ifdef NDEBUG
#define TOKENS_MAX 100000
#else
#define TOKENS_MAX 100
#endif
#define LINE_MAX_BYTES (1 << 16)
#define SIZES 4

static const double share[SIZES] = {.1, .2, .3, .5};

struct expected {
    const char *name;
    uint32_t n_layers, n_experts, top_k, n_tokens;
    double lru[2][SIZES]; /* one pool, pool per layer; % */
};

static const struct expected traces[] = {
    {"bmoe_qwen", 48, 128, 6, 128, {{50.47, 73.94, 86.23, 91.70}, {54.27, 74.45, 84.80, 91.20}}},
    {"waste_kimi", 26, 256, 8, 300, {{54.52, 66.86, 76.74, 87.08}, {55.31, 67.45, 76.86, 86.65}}},
    {"waste_olmoe", 16, 64, 8, 299, {{43.37, 49.17, 62.36, 78.48}, {43.37, 54.23, 63.88, 79.42}}},
    {"gptoss20b", 24, 32, 4, 18316, {{43.67, 47.12, 71.43, 90.95}, {43.67, 54.92, 73.45, 89.71}}},
};

/* Decode tokens: for each token and layer a count and the experts. */
struct trace {
    uint32_t n_tokens;
    uint16_t *cells; /* [n_tokens][n_layers][1 + top_k] */
};

static uint16_t *cell(const struct trace *t, const struct expected *x, uint32_t token, uint32_t l)
{
    return t->cells + ((size_t)token * x->n_layers + l) * (1 + x->top_k);
}

static void read_token(const struct expected *x, const char *text, uint16_t *cells)
{
    for (uint32_t l = 0; l < x->n_layers; l++, cells += 1 + x->top_k) {
        cells[0] = 0;
        while (*text >= '0' && *text <= '9') {
            char *end;
            unsigned long expert = strtoul(text, &end, 10);
            assert_true(expert < x->n_experts && cells[0] < x->top_k);
            cells[1 + cells[0]++] = (uint16_t)expert;
            text = *end == ',' ? end + 1 : end;
        }
        if (*text == ';') text++;
    }
    assert_true(*text == '\n' || *text == '\0');
}

static struct trace read_trace(const struct expected *x)
{
    char command[1024];
    snprintf(command, sizeof command, "gzip -dc '%s/%s.txt.gz'", SLUICE_TRACES_DIR, x->name);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    struct trace t = {0, calloc((size_t)x->n_tokens * x->n_layers, 2 * (1 + x->top_k))};
    char *line = malloc(LINE_MAX_BYTES);
    while (fgets(line, LINE_MAX_BYTES, f)) {
        const char *phase = strchr(line, ' ');
        if (line[0] == '#' || phase == NULL || phase[1] != 'd' || t.n_tokens == TOKENS_MAX)
            continue;
        assert_true(t.n_tokens < x->n_tokens);
        read_token(x, phase + 3, cell(&t, x, t.n_tokens++, 0));
    }
    free(line);
    assert_int_equal(pclose(f), 0);
    return t;
}

static double replay(const struct expected *x, const struct trace *t,
                     const struct sl_ec_policy *policy, bool pool_per_layer, double part)
{
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    uint32_t slots = (uint32_t)(part * x->n_experts + .5);
    struct sl_ec_replay_config config = {x->n_layers, x->n_experts,   x->top_k,
                                         slots,       pool_per_layer, policy};
    if (slots < x->top_k) config.slots_per_layer = x->top_k;
    struct sl_ec_replay *r;
    sluice_error e;
    assert_int_equal(sl_ec_replay_open(&config, &budget, &e, &r), SLUICE_OK);
    for (uint32_t i = 0; i < t->n_tokens; i++)
        for (uint32_t l = 0; l < x->n_layers; l++) {
            const uint16_t *c = cell(t, x, i, l);
            uint32_t experts[SL_TOP_K_MAX];
            for (uint32_t j = 0; j < c[0]; j++) experts[j] = c[1 + j];
            sl_ec_replay_visit(r, l, experts, c[0]);
        }
    struct sl_ec_replay_result got;
    sl_ec_replay_result(r, &got);
    sl_ec_replay_close(r);
    assert_int_equal(sl_budget_used(&budget), 0);
    return 100.0 * (double)got.hits / (double)got.uses;
}

static void replay_row(const struct expected *x, const struct trace *t,
                       const struct sl_ec_policy *policy, bool pool_per_layer, double hits[SIZES])
{
    printf("  %-12s %-10s %-12s", x->name, pool_per_layer ? "per layer" : "one", policy->name);
    for (int i = 0; i < SIZES; i++) {
        hits[i] = replay(x, t, policy, pool_per_layer, share[i]);
        printf(" %6.2f", hits[i]);
    }
    printf("\n");
    fflush(stdout);
}

/* rows[policy][pool][size]; the default is policy 0. */
static void check_trace(const struct expected *x)
{
    struct trace t = read_trace(x);
    double fresh[2][SIZES], lru[2][SIZES], two_rate[2][SIZES], other[SIZES];
    for (int per_layer = 0; per_layer < 2; per_layer++) {
        replay_row(x, &t, sl_ec_policy_at(0), per_layer, fresh[per_layer]);
        replay_row(x, &t, &sl_ec_policy_lru, per_layer, lru[per_layer]);
        replay_row(x, &t, &sl_ec_policy_two_rate, per_layer, two_rate[per_layer]);
        replay_row(x, &t, &sl_ec_policy_lfu, per_layer, other);
        replay_row(x, &t, &sl_ec_policy_decayed_lfu, per_layer, other);
    }
    for (int i = 0; i < SIZES; i++)
        for (int per_layer = 0; per_layer < 2; per_layer++) {
            if (t.n_tokens == x->n_tokens) {
                assert_float_equal(lru[per_layer][i], x->lru[per_layer][i], 0.00501);
                assert_true(fresh[0][i] >= two_rate[0][i]);
            }
            assert_true(fresh[per_layer][i] >= lru[per_layer][i]);
            assert_true(fresh[0][i] >= lru[per_layer][i]);
        }
    free(t.cells);
}

static void test_replay__bmoe_qwen__default_not_below_lru(void **state)
{
    (void)state;
    check_trace(&traces[0]);
}

static void test_replay__waste_kimi__default_not_below_lru(void **state)
{
    (void)state;
    check_trace(&traces[1]);
}

static void test_replay__waste_olmoe__default_not_below_lru(void **state)
{
    (void)state;
    check_trace(&traces[2]);
}

static void test_replay__gptoss20b__default_not_below_lru(void **state)
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
        cmocka_unit_test(test_replay__bmoe_qwen__default_not_below_lru),
        cmocka_unit_test(test_replay__waste_kimi__default_not_below_lru),
        cmocka_unit_test(test_replay__waste_olmoe__default_not_below_lru),
        cmocka_unit_test(test_replay__gptoss20b__default_not_below_lru),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
