/* What was recorded can be repeated: a recording through the books at its own size and policy gives
 * the same hits, token by token, with reads ahead, hot lists and slots that come and go; and at
 * other sizes and policies the hits of real runs there. */
#define _GNU_SOURCE /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/sluice.h"
#include "trace/replay.h"

#define DEMO SLUICE_SOURCE_DIR "/models/sluice-demo-q8_0.gguf"
#define PROMPT 90
#define TOKENS 40
#define CONTEXT 512

static char folder[] = "/tmp/sluice_test_repeat_XXXXXX";
static char path[64], hot[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof path, "%s/t", folder);
    (void)snprintf(hot, sizeof hot, "%s/hot", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(hot);
    return rmdir(folder);
}

/* ---- recording ------------------------------------------------------------------------------- */

struct setup {
    uint32_t slots, prefetch, policy, chunk;
    bool hot, trim;
    uint32_t n_prompt; /* tokens read at once; 0: none */
};

static int32_t id_at(uint32_t i) { return (int32_t)((i / 3 * 131 + i % 5 * 17) % 500 + 3); }

static void eval(sluice_session *s, uint32_t first, uint32_t n)
{
    int32_t ids[PROMPT];
    sluice_error e;
    for (uint32_t i = 0; i < n; i++) ids[i] = id_at(first + i);
    if (sluice_session_eval(s, ids, n, NULL, &e)) fail_msg("%s", e.text);
}

/* Two prompts, each with tokens after it, and slots that go and come where asked for. */
static void converse(sluice_model *m, sluice_session *s, const struct setup *u)
{
    uint32_t at = 0;
    sluice_error e;
    for (int turn = 0; turn < 2; turn++) {
        if (u->n_prompt > 0) eval(s, at, u->n_prompt);
        at += u->n_prompt;
        for (uint32_t i = 0; i < TOKENS; i++) {
            eval(s, at++, 1);
            if (!u->trim || i != TOKENS / 2) continue;
            uint32_t level = turn == 0 ? SLUICE_TRIM_HALF : SLUICE_TRIM_RESTORE;
            if (sluice_model_trim(m, level, &e)) fail_msg("%s", e.text);
        }
    }
}

static sluice_stats record(const struct setup *u)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_stats stats = SLUICE_STATS_INIT;
    sluice_error e;
    sluice_model *m;
    sluice_session *s;
    o.threads = 1;
    o.n_ctx = CONTEXT;
    o.slots = u->slots;
    o.prefetch = u->prefetch;
    o.cache_policy = u->policy;
    o.chunk = u->chunk;
    o.hot_list = u->hot ? hot : NULL;
    o.trace = path;
    if (sluice_model_open(DEMO, &o, &m, &e)) fail_msg("%s", e.text);
    if (sluice_session_open(m, &s, &e)) fail_msg("%s", e.text);
    converse(m, s, u);
    sluice_session_get_stats(s, &stats);
    sluice_session_close(s);
    sluice_model_close(m);
    return stats;
}

/* ---- repeating ------------------------------------------------------------------------------- */

static struct sl_budget budget;

static struct sl_trace *load(void)
{
    struct sl_trace *t;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    if (sl_trace_load(path, NULL, NULL, &budget, &e, &t)) fail_msg("%s", e.text);
    assert_false(t->cut);
    return t;
}

static struct sl_replay_result replay(const struct sl_trace *t, const struct sl_replay_config *c)
{
    struct sl_replay_result r;
    sluice_error e;
    if (sl_replay(t, c, &budget, &e, &r)) fail_msg("%s", e.text);
    return r;
}

static uint64_t hits_of_prompts(const struct sl_trace *t)
{
    uint64_t hits = 0;
    for (uint64_t v = 0; v < t->n_visits; v++) {
        const struct sl_trace_visit *x = &t->visits[v];
        if (x->n_tokens == 1) continue;
        for (uint32_t i = 0; i < x->n_tokens * x->top_k; i++)
            hits += (t->states[x->first_choice + i] & SL_TRACE_STATE_MASK) == SL_TRACE_AT_HAND;
    }
    return hits;
}

static void check_repeats(const struct setup *u)
{
    char text[128];
    sluice_stats stats = record(u);
    struct sl_trace *t = load();
    struct sl_replay_config c = {.as_recorded = true};
    c.policy = sl_ec_policy_find(t->header.policy);
    memcpy(c.n_slots, t->header.n_slots, sizeof c.n_slots);
    struct sl_replay_result r = replay(t, &c);
    (void)snprintf(text, sizeof text, "slots %u, prefetch %u, policy %u, chunk %u, hot %d, trim %d",
                   u->slots, u->prefetch, u->policy, u->chunk, u->hot, u->trim);
    if (r.tokens_differ > 0)
        fail_msg("%s: %llu of %llu tokens differ, the first is eval %llu", text,
                 (unsigned long long)r.tokens_differ, (unsigned long long)r.tokens_compared,
                 (unsigned long long)r.first_differs);
    assert_int_equal(r.tokens_compared, t->n_tokens);
    assert_int_equal(r.decode.hits, stats.hits - hits_of_prompts(t));
    sl_trace_free(t);
    assert_int_equal(sl_budget_used(&budget), 0);
}

static void test_repeat__own_size_and_policy__same_hits_token_by_token(void **state)
{
    (void)state;
    static const struct setup setups[] = {
        {40, SLUICE_PREFETCH_OFF, SLUICE_CACHE_RECALL, 32, false, false, PROMPT},
        {60, SLUICE_PREFETCH_AUTO, SLUICE_CACHE_RECALL, 64, false, false, PROMPT},
        {60, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_RECALL, 16, false, false, PROMPT},
        {100, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_LRU, 90, false, true, PROMPT},
        {120, SLUICE_PREFETCH_AUTO, SLUICE_CACHE_TWO_RATE, 64, false, true, PROMPT},
        {30, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_LFU, 64, false, true, 0},
        {24, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_DECAYED_LFU, 8, false, false, PROMPT},
        {150, SLUICE_PREFETCH_OFF, SLUICE_CACHE_RECALL, 64, true, false, 0},
        {100, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_RECALL, 64, true, true, 0},
        {0, SLUICE_PREFETCH_AUTO, SLUICE_CACHE_RECALL, 64, false, false, PROMPT},
    };
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) check_repeats(&setups[i]);
}

/* Of tokens one by one, without reads ahead: the drive's pace has no part in it. */
static void test_repeat__other_sizes_and_policies__hits_of_runs_there(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {24, 37, 60, 96, 144};
    static const uint32_t policies[] = {SLUICE_CACHE_RECALL, SLUICE_CACHE_LRU};
    struct setup u = {48, SLUICE_PREFETCH_OFF, SLUICE_CACHE_LFU, 0, false, false, 0};
    (void)record(&u);
    struct sl_trace *t = load();
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const char *name = sluice_cache_policy_name(policies[p] - 1);
            struct sl_replay_config c = {.policy = sl_ec_policy_find(name)};
            c.n_slots[0] = u.slots = sizes[i];
            u.policy = policies[p];
            struct sl_replay_result r = replay(t, &c);
            sluice_stats stats = record(&u);
            assert_int_equal(r.decode.uses, stats.uses);
            assert_int_equal(r.decode.hits, stats.hits);
            assert_int_equal(r.decode.read_bytes, stats.demand_bytes);
            assert_int_equal(r.evictions, stats.evictions);
            assert_true(stats.hits > 0 && stats.hits < stats.uses);
        }
    sl_trace_free(t);
    assert_int_equal(sl_budget_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeat__own_size_and_policy__same_hits_token_by_token),
        cmocka_unit_test(test_repeat__other_sizes_and_policies__hits_of_runs_there),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
