/* The memory plan: its sums, what it does with every budget, and that an opened model keeps to it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/available.h"
#include "include/sluice.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define DEMO SLUICE_SOURCE_DIR "/models/sluice-demo-q8_0.gguf"
#define DENSE GOLDEN "llama-Q8_0/model.gguf"
#define MIXED GOLDEN "qwen3moe-Q8_0/model.gguf"

static sluice_error error;

static sluice_options options(uint64_t ram_bytes)
{
    sluice_options o = SLUICE_OPTIONS_INIT;

    o.threads = 1;
    o.ram_bytes = ram_bytes;
    return o;
}

static sluice_plan plan_of(const char *path, const sluice_options *o)
{
    sluice_plan p = SLUICE_PLAN_INIT;

    if (sluice_memory_plan(path, o, &p, &error) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(p.total_bytes, p.dense_bytes + p.expert_bytes + p.tokenizer_bytes +
                                        p.kv_start_bytes + p.state_bytes + p.scratch_bytes +
                                        p.io_bytes + p.process_bytes);
    assert_true(p.kv_start_bytes <= p.kv_bytes);
    assert_true(p.n_slots_full <= p.n_slots && p.n_slots <= p.n_experts);
    assert_true(p.streams == (p.n_slots < p.n_experts) || p.n_slots_full < p.n_slots);
    assert_in_range(p.chunk, 1, 512);
    return p;
}

static sluice_plan plan_for(const char *path, uint64_t ram_bytes)
{
    sluice_options o = options(ram_bytes);

    return plan_of(path, &o);
}

/* Opens, evaluates, and compares what was charged with the plan. */
static void use(const char *path, const sluice_options *o, const sluice_plan *p)
{
    int32_t ids[40];
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_stats st = SLUICE_STATS_INIT;

    for (int i = 0; i < 40; i++) ids[i] = i * 7;
    if (sluice_model_open(path, o, &m, &error) != SLUICE_OK) fail_msg("%s", error.text);
    if (sluice_session_open(m, &s, &error) != SLUICE_OK) fail_msg("%s", error.text);
    size_t n = p->n_ctx < 40 ? p->n_ctx : 40;
    if (sluice_session_eval(s, ids, n, NULL, &error) != SLUICE_OK) fail_msg("%s", error.text);
    sluice_session_get_stats(s, &st);
    assert_true(st.budget_peak_bytes + p->process_bytes <= p->total_bytes);
    if (o->io != SLUICE_IO_MMAP) assert_int_equal(st.n_slots, p->n_slots);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_plan__no_budget__everything_stays_in_memory(void **state)
{
    (void)state;
    sluice_plan p = plan_for(DEMO, 0);

    assert_int_equal(p.streams, 0);
    assert_int_equal(p.n_slots, p.n_experts);
    assert_int_equal(p.n_slots, 192);
    assert_int_equal(p.n_slots_full, 192);
    assert_true(p.expert_bytes >= p.model_expert_bytes);
    assert_int_equal(p.kv_start_bytes, p.kv_bytes);
    /* opening the model may take more than these slots */
    assert_true(p.minimum_bytes <= p.hits_bytes && p.hits_bytes < p.resident_bytes);
    assert_true(p.resident_bytes <= p.total_bytes);
    sluice_options o = options(0);
    use(DEMO, &o, &p);
}

static void test_plan__dense_model__no_slots(void **state)
{
    (void)state;
    sluice_plan p = plan_for(DENSE, 0);

    assert_int_equal(p.n_experts, 0);
    assert_int_equal(p.n_slots, 0);
    assert_int_equal(p.hits_bytes, 0);
    assert_int_equal(p.slot_bytes, 0);
    assert_int_equal(p.slot_least_bytes, 0);
    assert_int_equal(p.streams, 0);
}

/* More memory is never fewer slots; it is filled up to one slot; and it is never exceeded. */
static void test_plan__every_budget__filled_to_a_slot_and_kept_to(void **state)
{
    (void)state;
    sluice_plan all = plan_for(DEMO, 0);
    uint32_t before = 0, opened = 0;

    for (uint64_t ram = all.minimum_bytes; ram < all.total_bytes; ram += 397 * 1024) {
        sluice_options o = options(ram);
        o.chunk = 16;
        sluice_plan p = plan_of(DEMO, &o);
        assert_true(p.total_bytes <= ram);
        assert_true(p.n_slots >= before);
        assert_true(p.n_slots_full >= p.n_slots_min);
        if (p.streams && p.n_slots < p.n_experts)
            assert_true(p.total_bytes + p.slot_bytes + p.slot_bytes / 8 + 2048 > ram);
        if (p.n_slots != before && opened++ % 8 == 0) use(DEMO, &o, &p);
        before = p.n_slots;
    }
    assert_true(opened > 30);
}

static void test_plan__named_budgets__mean_what_they_say(void **state)
{
    (void)state;
    sluice_plan all = plan_for(DEMO, 0);
    sluice_plan p = plan_for(DEMO, all.resident_bytes);
    sluice_model *m = NULL;

    assert_int_equal(p.streams, 0);
    assert_int_equal(p.n_slots, p.n_experts);
    p = plan_for(DEMO, all.resident_bytes - 1);
    assert_int_equal(p.streams, 1);
    sluice_options o = options(0);
    o.chunk = 100;
    o.n_ctx = 300;
    o.kv = SLUICE_KV_F32;
    all = plan_of(DEMO, &o);
    assert_true(all.hits_bytes > all.minimum_bytes);
    o.ram_bytes = all.hits_bytes;
    p = plan_of(DEMO, &o);
    assert_true(p.n_slots >= p.n_slots_hits);
    assert_int_equal(p.hits_bytes, all.hits_bytes);
    o.ram_bytes = all.hits_bytes - 64 * 1024;
    p = plan_of(DEMO, &o);
    assert_true(p.n_slots < p.n_slots_hits);
    o.ram_bytes = all.minimum_bytes - 1;
    assert_int_equal(sluice_model_open(DEMO, &o, &m, &error), SLUICE_E_BUDGET);
    assert_non_null(strstr(error.text, "--ram"));
    o.ram_bytes = all.minimum_bytes;
    p = plan_of(DEMO, &o);
    use(DEMO, &o, &p);
}

static void test_plan__slots_given__taken_or_refused_with_the_fewest(void **state)
{
    (void)state;
    sluice_options o = options(0);
    sluice_model *m = NULL;
    sluice_plan p = plan_of(DEMO, &o);
    uint32_t fewest = p.n_slots_min;

    o.slots = fewest - 1;
    assert_int_equal(sluice_model_open(DEMO, &o, &m, &error), SLUICE_E_BUDGET);
    assert_non_null(strstr(error.text, "--slots"));
    for (o.slots = fewest; o.slots < p.n_experts + 30; o.slots += 37) {
        sluice_plan q = plan_of(DEMO, &o);
        assert_int_equal(q.n_slots, o.slots < p.n_experts ? o.slots : p.n_experts);
        assert_int_equal(q.streams, q.n_slots < q.n_experts);
        assert_int_equal(q.kv_start_bytes, q.kv_bytes);
        use(DEMO, &o, &q);
    }
    o.slots = 100;
    o.ram_bytes = plan_of(DEMO, &o).minimum_bytes;
    assert_int_equal(plan_of(DEMO, &o).n_slots, 100);
    o.ram_bytes--;
    assert_int_equal(sluice_model_open(DEMO, &o, &m, &error), SLUICE_E_BUDGET);
}

/* The context grows into the slots' memory: the whole of it can be used. */
static void test_plan__context_grows_past_its_start__slots_make_room(void **state)
{
    (void)state;
    static int32_t ids[1000];
    sluice_options o = options(0);
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_stats st = SLUICE_STATS_INIT;

    o.n_ctx = 1000;
    o.kv = SLUICE_KV_F32;
    o.chunk = 50;
    sluice_plan p = plan_of(DEMO, &o);
    o.ram_bytes = p.minimum_bytes + 8 * p.slot_bytes;
    p = plan_of(DEMO, &o);
    assert_int_equal(p.streams, 1);
    assert_true(p.kv_start_bytes < p.kv_bytes);
    assert_true(p.n_slots_full < p.n_slots);
    for (int i = 0; i < 1000; i++) ids[i] = i * 3 % 4000;
    if (sluice_model_open(DEMO, &o, &m, &error) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(sluice_session_open(m, &s, &error), SLUICE_OK);
    for (int at = 0; at < 1000; at += 50)
        if (sluice_session_eval(s, ids + at, 50, NULL, &error) != SLUICE_OK)
            fail_msg("at %d: %s", at, error.text);
    sluice_session_get_stats(s, &st);
    assert_in_range(st.n_slots_open, p.n_slots_full, p.n_slots - 1);
    assert_true(st.budget_peak_bytes + p.process_bytes <= p.ram_bytes);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* A second session was not planned: slots give way to it. */
static void test_plan__second_session__slots_give_way(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 4};
    sluice_plan all = plan_for(DEMO, 0);
    sluice_options o = options(all.hits_bytes + (8 << 20));
    sluice_model *m = NULL;
    sluice_session *a = NULL, *b = NULL;

    assert_int_equal(plan_of(DEMO, &o).streams, 1);
    assert_int_equal(sluice_model_open(DEMO, &o, &m, &error), SLUICE_OK);
    assert_int_equal(sluice_session_open(m, &a, &error), SLUICE_OK);
    if (sluice_session_open(m, &b, &error) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(sluice_session_eval(a, ids, 4, NULL, &error), SLUICE_OK);
    assert_int_equal(sluice_session_eval(b, ids, 4, NULL, &error), SLUICE_OK);
    sluice_session_close(a);
    sluice_session_close(b);
    sluice_model_close(m);
}

static void test_plan__chunk__from_the_budget(void **state)
{
    (void)state;
    sluice_plan all = plan_for(DEMO, 0);

    assert_int_equal(all.chunk, 64);
    assert_in_range(plan_for(DEMO, all.minimum_bytes).chunk, 16, 64);
    sluice_options o = options(0);
    o.slots = 100;
    o.chunk = 200;
    assert_int_equal(plan_of(DEMO, &o).chunk, 200);
}

static void test_plan__experts_used__smaller_floor(void **state)
{
    (void)state;
    sluice_options o = options(0);
    sluice_plan p = plan_of(DEMO, &o);

    o.experts_used = 1;
    sluice_plan q = plan_of(DEMO, &o);
    assert_int_equal(q.n_slots_min, 1);
    assert_true(q.n_slots_min < p.n_slots_min && q.n_slots_hits < p.n_slots_hits);
    o.experts_used = 64;
    assert_int_equal(plan_of(DEMO, &o).n_slots_min, p.n_slots_min);
}

static void test_plan__mapped__no_memory_for_experts(void **state)
{
    (void)state;
    sluice_options o = options(0);
    sluice_plan p = plan_of(DEMO, &o);

    o.io = SLUICE_IO_MMAP;
    sluice_plan q = plan_of(DEMO, &o);
    assert_true(q.expert_bytes < p.expert_bytes / 4);
    use(DEMO, &o, &q);
}

static void test_plan__ram_auto__available_less_the_reserve(void **state)
{
    (void)state;
    sluice_options o = options(SLUICE_RAM_AUTO);
    sluice_plan p = plan_of(DEMO, &o);

    if (p.available_bytes == UINT64_MAX) skip();
    uint64_t wanted = sl_available_less_reserve(p.available_bytes);
    assert_int_equal(p.ram_bytes, wanted ? wanted : 1);
}

/* ---- options --------------------------------------------------------------------------------- */

static void test_options__out_of_range__named(void **state)
{
    (void)state;
    static const char *const names[] = {"io is",     "cache_policy is", "prefetch is",
                                        "slots is",  "experts_used is", "sticky_size is",
                                        "sticky is", "drop_cold is"};
    const float nan = (float)(0.0 / 0.0 * 1.0);

    for (int i = 0; i < 8; i++) {
        sluice_options o = options(0);
        sluice_model *m = NULL;
        if (i == 0) o.io = 4;
        if (i == 1) o.cache_policy = 6;
        if (i == 2) o.prefetch = 3;
        if (i == 3) o.slots = UINT32_MAX;
        if (i == 4) o.experts_used = 65;
        if (i == 5) o.sticky_size = 1025;
        if (i == 6) o.sticky = nan;
        if (i == 7) o.drop_cold = -0.5f;
        assert_int_equal(sluice_model_open(MIXED, &o, &m, &error), SLUICE_E_ARG);
        if (strncmp(error.text, names[i], strlen(names[i])) != 0) fail_msg("%s", error.text);
    }
}

static void test_options__policy_names__in_the_order_of_the_enumeration(void **state)
{
    (void)state;
    assert_string_equal(sluice_cache_policy_name(SLUICE_CACHE_TWO_RATE - 1), "two_rate");
    assert_string_equal(sluice_cache_policy_name(SLUICE_CACHE_LRU - 1), "lru");
    assert_string_equal(sluice_cache_policy_name(SLUICE_CACHE_LFU - 1), "lfu");
    assert_string_equal(sluice_cache_policy_name(SLUICE_CACHE_DECAYED_LFU - 1), "decayed_lfu");
    assert_string_equal(sluice_cache_policy_name(SLUICE_CACHE_RECALL - 1), "recall");
    assert_null(sluice_cache_policy_name(SLUICE_CACHE_RECALL));
}

/* A program built against the first version: shorter structures, nothing past their end touched. */
static void test_options__of_an_older_program__still_taken(void **state)
{
    (void)state;
    sluice_options o = options(0);
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_model *m = NULL;

    o.struct_size = 80;
    o.hot_list = "not looked at";
    o.io = 99;
    p.struct_size = 80;
    p.io_bytes = 12345;
    assert_int_equal(sluice_memory_plan(MIXED, &o, &p, &error), SLUICE_OK);
    assert_int_equal(p.io_bytes, 12345);
    assert_true(p.minimum_bytes > 0);
    assert_int_equal(sluice_model_open(MIXED, &o, &m, &error), SLUICE_OK);
    sluice_model_close(m);
}

static void test_info__streaming__says_what_is_in_use(void **state)
{
    (void)state;
    sluice_options o = options(0);
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_layer_stats layer = SLUICE_LAYER_STATS_INIT;
    sluice_model *m = NULL;

    o.slots = 30;
    o.io = SLUICE_IO_PREAD;
    o.cache_policy = SLUICE_CACHE_LFU;
    o.sticky = 0.25f;
    o.experts_used = 1;
    assert_int_equal(sluice_model_open(DEMO, &o, &m, &error), SLUICE_OK);
    sluice_model_get_info(m, &info);
    assert_string_equal(info.io, "pread");
    assert_string_equal(info.cache_policy, "lfu");
    assert_int_equal(info.n_slots, 30);
    assert_int_equal(info.n_experts_total, 192);
    assert_int_equal(info.top_k, 1);
    assert_int_equal(info.lossy, SLUICE_LOSSY_STICKY | SLUICE_LOSSY_EXPERTS_USED);
    assert_int_equal(sluice_model_get_layer_stats(m, 0, &layer), 1);
    assert_true(layer.n_experts > 0);
    assert_int_equal(sluice_model_get_layer_stats(m, info.n_layers, &layer), 0);
    sluice_model_close(m);
}

static uint64_t uses_of_layer(const sluice_model *m, uint32_t layer)
{
    sluice_layer_stats stats = SLUICE_LAYER_STATS_INIT;
    assert_int_equal(sluice_model_get_layer_stats(m, layer, &stats), 1);
    return stats.uses;
}

/* Uses of the last layer by a prompt of 20 tokens whose logits are not wanted, by another of which
 * the last token's are, and by four tokens all of whose are; the layer before serves them all. */
static void uses_of_prompts(uint32_t slots, uint64_t uses[3])
{
    static float logits[4 * 65536];
    const int32_t ids[20] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};
    sluice_options o = options(0);
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_model *m = NULL;
    sluice_session *s = NULL;

    o.slots = slots;
    assert_int_equal(sluice_model_open(DEMO, &o, &m, &error), SLUICE_OK);
    sluice_model_get_info(m, &info);
    assert_true(info.n_vocab <= 65536);
    assert_int_equal(sluice_session_open(m, &s, &error), SLUICE_OK);
    assert_int_equal(sluice_session_eval(s, ids, 20, NULL, &error), SLUICE_OK);
    uses[0] = uses_of_layer(m, info.n_layers - 1) / info.top_k;
    assert_int_equal(sluice_session_eval_last(s, ids, 20, logits, &error), SLUICE_OK);
    uses[1] = uses_of_layer(m, info.n_layers - 1) / info.top_k;
    assert_int_equal(sluice_session_eval(s, ids, 4, logits, &error), SLUICE_OK);
    uses[2] = uses_of_layer(m, info.n_layers - 1) / info.top_k;
    assert_int_equal(uses_of_layer(m, info.n_layers - 2), 44 * info.top_k);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* Where experts are paged, policies compare layers: all have to see all tokens. */
static void test_eval__last_layer__serves_whose_logits_are_wanted(void **state)
{
    (void)state;
    static const uint64_t whole[3] = {0, 1, 5}, paged[3] = {20, 40, 44};
    uint64_t uses[3];
    uses_of_prompts(0, uses);
    assert_memory_equal(uses, whole, sizeof uses);
    uses_of_prompts(100, uses);
    assert_memory_equal(uses, paged, sizeof uses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__no_budget__everything_stays_in_memory),
        cmocka_unit_test(test_plan__dense_model__no_slots),
        cmocka_unit_test(test_plan__every_budget__filled_to_a_slot_and_kept_to),
        cmocka_unit_test(test_plan__named_budgets__mean_what_they_say),
        cmocka_unit_test(test_plan__slots_given__taken_or_refused_with_the_fewest),
        cmocka_unit_test(test_plan__context_grows_past_its_start__slots_make_room),
        cmocka_unit_test(test_plan__second_session__slots_give_way),
        cmocka_unit_test(test_plan__chunk__from_the_budget),
        cmocka_unit_test(test_plan__experts_used__smaller_floor),
        cmocka_unit_test(test_plan__mapped__no_memory_for_experts),
        cmocka_unit_test(test_plan__ram_auto__available_less_the_reserve),
        cmocka_unit_test(test_options__out_of_range__named),
        cmocka_unit_test(test_options__policy_names__in_the_order_of_the_enumeration),
        cmocka_unit_test(test_options__of_an_older_program__still_taken),
        cmocka_unit_test(test_info__streaming__says_what_is_in_use),
        cmocka_unit_test(test_eval__last_layer__serves_whose_logits_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
