/* A streaming model under a hard budget: any budget from the smallest to one that holds everything
 * either works or is refused with one that does; what works stays within it and gives the right
 * logits, also while a growing context takes its memory from the slots, and after a failure. */
#define _GNU_SOURCE
#include "tests/support/stream_rig.h"

#include <errno.h>

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define DEMO SLUICE_SOURCE_DIR "/models/sluice-demo-q8_0.gguf"
#define STEPS 24
#define LONG 1600 /* tokens; the slots leave room for 512 at first */

struct grown {
    sluice_model *model;
    sluice_session *session;
    float *last; /* [n_vocab] logits of the last token */
    uint32_t n_vocab, slots_before, slots_after;
};

static sluice_options grown_options(uint64_t ram)
{
    sluice_options o = SLUICE_OPTIONS_INIT;

    o.n_ctx = 1700; /* with keys and values large enough to be felt */
    o.kv = SLUICE_KV_F32;
    o.threads = 1;
    o.chunk = 64;
    o.ram_bytes = ram;
    return o;
}

static uint32_t slots_open(const sluice_session *s)
{
    sluice_stats st = SLUICE_STATS_INIT;

    sluice_session_get_stats(s, &st);
    return st.n_slots_open;
}

/* Opens with a budget and reads a long text, of which only the last logits are kept. */
static void grow(struct grown *g, uint64_t ram)
{
    static int32_t ids[LONG];
    sluice_options o = grown_options(ram);
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error e;

    for (int i = 0; i < LONG; i++) ids[i] = (i * 73 + i / 7 + 5) % 500;
    if (sluice_model_open(DEMO, &o, &g->model, &e) != SLUICE_OK) fail_msg("%s", e.text);
    if (sluice_session_open(g->model, &g->session, &e) != SLUICE_OK) fail_msg("%s", e.text);
    sluice_model_get_info(g->model, &info);
    g->n_vocab = info.n_vocab;
    g->last = calloc(info.n_vocab, sizeof *g->last);
    assert_non_null(g->last);
    if (sluice_session_eval(g->session, ids, 64, NULL, &e) != SLUICE_OK) fail_msg("%s", e.text);
    g->slots_before = slots_open(g->session);
    if (sluice_session_eval(g->session, ids + 64, LONG - 65, NULL, &e) != SLUICE_OK)
        fail_msg("%s", e.text);
    g->slots_after = slots_open(g->session);
    if (sluice_session_eval(g->session, ids + LONG - 1, 1, g->last, &e) != SLUICE_OK)
        fail_msg("%s", e.text);
}

static void let_go(struct grown *g)
{
    sluice_session_close(g->session);
    sluice_model_close(g->model);
    free(g->last);
}

/* Most of the text is forgotten: its memory goes back to the slots, unless memory was asked back.
 */
static void shrink_again(const struct grown *g, bool trim)
{
    sluice_error e;
    const int32_t id = 5;

    if (trim && sluice_model_trim(g->model, SLUICE_TRIM_SOME, &e)) fail_msg("%s", e.text);
    uint32_t before = slots_open(g->session);
    sluice_session_truncate(g->session, 64);
    if (sluice_session_eval(g->session, &id, 1, NULL, &e) != SLUICE_OK) fail_msg("%s", e.text);
    if (trim)
        assert_int_equal(slots_open(g->session), before);
    else
        assert_true(slots_open(g->session) > before);
}

static void test_context__grows_past_its_first_tokens__slots_make_room(void **state)
{
    (void)state;
    struct grown whole = {0};
    sluice_options o = grown_options(0);
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_error e;

    if (access(DEMO, R_OK) != 0) skip();
    if (sluice_memory_plan(DEMO, &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
    assert_int_equal(p.streams, 0);
    grow(&whole, 0);
    for (int i = 0; i < 4; i++) {
        struct grown g = {0};
        sluice_stats st = SLUICE_STATS_INIT;

        o.ram_bytes = p.minimum_bytes + (p.resident_bytes - p.minimum_bytes) * (uint64_t)i / 4;
        sluice_plan plan = SLUICE_PLAN_INIT;
        if (sluice_memory_plan(DEMO, &o, &plan, &e) != SLUICE_OK) fail_msg("%s", e.text);
        assert_int_equal(plan.streams, 1);
        assert_true(plan.total_bytes <= o.ram_bytes);
        grow(&g, o.ram_bytes);
        assert_memory_equal(g.last, whole.last, g.n_vocab * sizeof *g.last);
        sluice_session_get_stats(g.session, &st);
        assert_true(st.budget_peak_bytes + plan.process_bytes <= o.ram_bytes);
        print_message("budget %llu: %u slots, %u after %d tokens; planned %u and %u\n",
                      (unsigned long long)o.ram_bytes, g.slots_before, g.slots_after, LONG,
                      plan.n_slots, plan.n_slots_full);
        assert_int_equal(g.slots_before, plan.n_slots);
        assert_in_range(g.slots_after, plan.n_slots_full, plan.n_slots - 1);
        shrink_again(&g, i % 2 == 1);
        let_go(&g);
    }
    let_go(&whole);
}

/* ---- sweeps -----------------------------------------------------------------------------------
 */

static uint64_t advised_bytes(const char *text)
{
    const char *at = strstr(text, "--ram ");
    char *end = NULL;

    if (at == NULL) fail_msg("no budget is named: %s", text);
    uint64_t mib = strtoull(at + 6, &end, 10);
    if (*end != 'M' || mib == 0) fail_msg("no size is named: %s", text);
    return mib << 20;
}

/* Whether that budget opens; then the logits are right and the peak is within it. Otherwise
 * *advised is the budget that the error names. */
static bool works(struct rig *g, uint64_t ram, uint64_t *advised)
{
    sluice_error e;
    sluice_stats st = SLUICE_STATS_INIT;

    g->setup.ram_bytes = ram;
    g->at_open = rig_no_fault;
    g->fail_after = -1;
    sluice_err err = rig_try_open(g, &e);
    if (err != SLUICE_OK) {
        if (err != SLUICE_E_BUDGET) fail_msg("%s: %s", sluice_err_name(err), e.text);
        *advised = advised_bytes(e.text);
        return false;
    }
    if (sluice_session_open(g->model, &g->session, &e) != SLUICE_OK)
        fail_msg("%llu bytes open, but no session: %s", (unsigned long long)ram, e.text);
    g->got = stream_room(&g->text);
    rig_read_right(g);
    sluice_session_get_stats(g->session, &st);
    assert_true(st.budget_peak_bytes + API_PROCESS_BYTES <= ram);
    rig_close(g);
    return true;
}

static void test_open__every_budget_with_streaming__right_or_names_one_that_is(void **state)
{
    (void)state;
    static const char *const models[] = {GOLDEN "qwen3moe-Q8_0/model.gguf",
                                         GOLDEN "qwen3moe-MXFP4-features/model.gguf",
                                         GOLDEN "granitemoe-shared-Q8_0/model.gguf"};

    for (size_t i = 0; i < 2 * sizeof models / sizeof models[0]; i++) {
        struct rig g = {.path = models[i / 2], .setup = STREAM_PLAIN, .fail_after = -1};
        sluice_plan p = SLUICE_PLAN_INIT;
        sluice_error e;
        uint64_t refused = 0, advised = 0;

        g.setup.io = i % 2 == 0 ? SLUICE_IO_PREAD : SLUICE_IO_AUTO;
        g.setup.prefetch = SLUICE_PREFETCH_FORCED;
        rig_set_text(&g, 40);
        g.right = rig_reference(&g);
        sluice_options o = stream_options(&g.setup);
        if (sluice_memory_plan(g.path, &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
        uint64_t low = p.minimum_bytes - 131072, high = p.resident_bytes + 65536;
        for (uint64_t k = 0; k <= STEPS; k++) {
            uint64_t ram = low + (high - low) * k / STEPS;
            if (works(&g, ram, &advised)) continue;
            refused++;
            assert_true(ram < p.minimum_bytes);
            assert_true(advised > ram);
            if (k % 4 == 0) assert_true(works(&g, advised, &advised));
        }
        assert_true(works(&g, p.minimum_bytes, &advised));
        assert_false(works(&g, p.minimum_bytes - 65536, &advised));
        print_message("%s: %llu of %d budgets refused\n", g.path, (unsigned long long)refused,
                      STEPS + 1);
        free(g.right);
    }
}

/* Slots are a number that somebody asks for: too few are refused with a sentence that says how many
 * are needed, as many as there are experts and more are all of them. */
static void test_slots__asked_for__floor_named_and_surplus_ignored(void **state)
{
    (void)state;
    struct rig g = {.path = GOLDEN "qwen3moe-MXFP4-features/model.gguf", .setup = STREAM_PLAIN};
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_error e;
    char number[16];

    rig_set_text(&g, 20);
    g.right = rig_reference(&g);
    sluice_options o = stream_options(&g.setup);
    if (sluice_memory_plan(g.path, &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
    g.fail_after = -1;
    g.setup.slots = p.n_slots_min - 1;
    assert_int_equal(rig_try_open(&g, &e), SLUICE_E_BUDGET);
    (void)snprintf(number, sizeof number, "%u", p.n_slots_min);
    if (strstr(e.text, number) == NULL) fail_msg("%u is not named: %s", p.n_slots_min, e.text);
    for (uint32_t slots = p.n_slots_min; slots <= 2 * p.n_experts; slots += p.n_experts / 2) {
        g.setup.slots = slots;
        assert_true(rig_open(&g));
        rig_read_right(&g);
        assert_int_equal(slots_open(g.session), slots < p.n_experts ? slots : p.n_experts);
        rig_close(&g);
    }
    free(g.right);
}

/* An evaluation may have let the keys grow into what the plan keeps for the sampler. */
static void test_generate__budget_is_used_up__slots_make_room(void **state)
{
    (void)state;
    static const int32_t prompt[] = {5, 17, 301, 44};
    sluice_options o = grown_options(0);
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_generate_options go = SLUICE_GENERATE_INIT;
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_error e;

    if (access(DEMO, R_OK) != 0) skip();
    if (sluice_memory_plan(DEMO, &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
    o.ram_bytes = p.minimum_bytes + (1u << 20);
    if (sluice_model_open(DEMO, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    if (sluice_session_open(m, &s, &e) != SLUICE_OK) fail_msg("%s", e.text);
    if (sluice_session_eval(s, prompt, 4, NULL, &e) != SLUICE_OK) fail_msg("%s", e.text);
    uint32_t before = slots_open(s);
    uint64_t left = m->budget.limit_bytes - sl_budget_used(&m->budget);
    assert_int_equal(sl_budget_charge(&m->budget, left), SLUICE_OK);
    go.max_tokens = 3;
    go.ignore_end = 1;
    if (sluice_generate(s, prompt, 4, &go, NULL, &e) != SLUICE_OK) fail_msg("%s", e.text);
    assert_true(slots_open(s) < before);
    sl_budget_release(&m->budget, left);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* Looking back further than there can be tokens costs nothing: the plan has no room for it. */
static void test_generate__looks_back_very_far__fits_the_smallest_budget(void **state)
{
    (void)state;
    static const int32_t prompt[] = {5, 17, 301, 44};
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_generate_options go = SLUICE_GENERATE_INIT;
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_error e;

    if (access(DEMO, R_OK) != 0) skip();
    if (sluice_memory_plan(DEMO, &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
    o.ram_bytes = p.minimum_bytes;
    if (sluice_model_open(DEMO, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    if (sluice_session_open(m, &s, &e) != SLUICE_OK) fail_msg("%s", e.text);
    go.max_tokens = 3;
    go.repeat_penalty = 1.1f;
    go.repeat_last = 4000000;
    if (sluice_generate(s, prompt, 4, &go, NULL, &e) != SLUICE_OK) fail_msg("%s", e.text);
    sluice_session_close(s);
    sluice_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context__grows_past_its_first_tokens__slots_make_room),
        cmocka_unit_test(test_open__every_budget_with_streaming__right_or_names_one_that_is),
        cmocka_unit_test(test_slots__asked_for__floor_named_and_surplus_ignored),
        cmocka_unit_test(test_generate__budget_is_used_up__slots_make_room),
        cmocka_unit_test(test_generate__looks_back_very_far__fits_the_smallest_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
