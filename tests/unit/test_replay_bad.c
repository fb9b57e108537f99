/* Replays that are asked for too much: sizes that cannot be, recordings that contradict themselves,
 * callers that give up. And sizes that can: divided as the engine divides them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "expert_cache/expert_store.h"
#include "tests/support/made_trace.h"
#include "trace/replay.h"

#define LAYERS 4
#define EXPERTS 10
#define TOP_K 3
#define EVALS 40
#define STEPS 600
#define ROUNDS 200

static struct sl_budget budget;

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, UINT64_MAX);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return sl_budget_used(&budget) != 0;
}

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* Tokens and prompts; layers of odd numbers are a size class of their own, twice as large. */
static struct sl_trace *random_trace(uint32_t *seed)
{
    struct sl_trace *t = made_trace(LAYERS, EXPERTS, TOP_K);
    t->header.n_classes = 2;
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct sl_trace_layer_info *y = &t->header.layer[l];
        y->size_class = l % 2;
        y->weights = 8000 * (1 + y->size_class);
        y->expert_bytes = y->slot_bytes = y->weights / 2;
    }
    for (uint32_t i = 0; i < EVALS; i++) {
        uint32_t n = i % 7 == 0 ? 1 + draw(seed, 12) : 1;
        made_eval(t, n, i % 7 == 0);
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint16_t chosen[12 * TOP_K];
            for (uint32_t j = 0; j < n; j++) {
                uint32_t first = draw(seed, EXPERTS);
                for (uint32_t k = 0; k < TOP_K; k++)
                    chosen[j * TOP_K + k] = (uint16_t)((first + k) % EXPERTS);
            }
            made_visit(t, l, chosen);
        }
    }
    return t;
}

/* ---- recordings --------------------------------------------------------------------------------
 */

struct nonsense {
    struct sl_trace_step steps[STEPS];
    uint16_t hints[EXPERTS];
    float probabilities[EXPERTS];
    uint8_t entries[STEPS], states[MADE_CHOICES_MAX];
};

/* Everything that a reader lets through, in any order: what was never in flight lands, slots close
 * that are needed, entries say the opposite of what can be. */
static void add_nonsense(struct sl_trace *t, struct nonsense *x, uint32_t *seed)
{
    for (uint32_t i = 0; i < EXPERTS; i++) {
        x->hints[i] = (uint16_t)i;
        x->probabilities[i] = (float)draw(seed, 3) / 2;
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        struct sl_trace_step *s = &x->steps[i];
        memset(s, 0, sizeof *s);
        s->is_op = draw(seed, 8) != 0;
        s->layer = s->op.layer = draw(seed, LAYERS);
        s->visits = draw(seed, 20);
        s->n = draw(seed, EXPERTS + 1);
        s->op.kind = (enum sl_trace_op_kind)draw(seed, SL_TRACE_OP_KINDS);
        s->op.expert = draw(seed, s->op.kind == SL_TRACE_SLOT_CLOSED ? 2 : EXPERTS);
        if (s->op.kind == SL_TRACE_SLOT_OPENED) s->op.expert = draw(seed, 60);
        s->op.how = draw(seed, 3);
        x->entries[i] = (uint8_t)draw(seed, 3);
    }
    for (uint32_t i = 0; i < MADE_CHOICES_MAX; i++) x->states[i] = (uint8_t)draw(seed, 8);
    t->steps = x->steps;
    t->hint_experts = x->hints;
    t->hint_probabilities = x->probabilities;
    t->entries = x->entries;
    t->states = x->states;
    t->header.measured = SL_TRACE_OPS | SL_TRACE_HINTS | SL_TRACE_STATES;
    uint64_t at = 0;
    for (uint64_t v = 0; v < t->n_visits; v++) {
        t->visits[v].first_step = at;
        t->visits[v].n_steps = sl_min_u64(draw(seed, 8), STEPS - at);
        at += t->visits[v].n_steps;
        t->visits[v].n_entries = draw(seed, EXPERTS);
    }
}

static void test_replay__recording_that_contradicts_itself__ends_and_leaks_nothing(void **state)
{
    (void)state;
    struct nonsense *x = calloc(1, sizeof *x);
    uint32_t seed = 3;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct sl_trace *t = random_trace(&seed);
        struct sl_replay_config c = {.as_recorded = true};
        struct sl_replay_result r;
        sluice_error e;
        add_nonsense(t, x, &seed);
        t->header.ring_slots = draw(&seed, 5);
        for (uint32_t k = 0; k < 2; k++) c.n_slots[k] = TOP_K + draw(&seed, 20);
        c.policy = sl_ec_policy_at(round % 5);
        if (sl_replay(t, &c, &budget, &e, &r)) fail_msg("%s", e.text);
        assert_true(r.decode.hits + r.decode.cold <= r.decode.uses);
        assert_true(r.tokens_differ <= r.tokens_compared);
        c.as_recorded = false; /* takes the hints alone */
        if (sl_replay(t, &c, &budget, &e, &r)) fail_msg("%s", e.text);
        made_trace_free(t);
    }
    free(x);
}

static void test_replay__as_recorded_without_ops__refused(void **state)
{
    (void)state;
    uint32_t seed = 4;
    struct sl_trace *t = random_trace(&seed);
    struct sl_replay_config c = {.as_recorded = true, .n_slots = {9, 9}};
    struct sl_replay_result r;
    sluice_error e;
    assert_int_equal(sl_replay(t, &c, &budget, &e, &r), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "does not hold all"));
    t->header.measured = SL_TRACE_OPS;
    c.pool = SL_REPLAY_PER_LAYER;
    assert_int_equal(sl_replay(t, &c, &budget, &e, &r), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "one pool"));
    made_trace_free(t);
}

/* ---- limits ------------------------------------------------------------------------------------
 */

static int give_up(void *user, uint64_t visit, uint32_t uses, uint32_t hits, uint64_t bytes)
{
    (void)uses, (void)hits, (void)bytes;
    return visit == *(const uint64_t *)user;
}

static void test_replay__caller_gives_up__cancelled(void **state)
{
    (void)state;
    uint32_t seed = 5;
    uint64_t last = 17;
    struct sl_trace *t = random_trace(&seed);
    struct sl_replay_config c = {.n_slots = {9, 9}, .on_visit = give_up, .user = &last};
    struct sl_replay_result r;
    sluice_error e;
    assert_int_equal(sl_replay(t, &c, &budget, &e, &r), SLUICE_E_CANCELLED);
    c.optimum = true;
    assert_int_equal(sl_replay(t, &c, &budget, &e, &r), SLUICE_E_CANCELLED);
    made_trace_free(t);
}

static void test_replay__too_few_slots__refused_by_name(void **state)
{
    (void)state;
    uint32_t seed = 6;
    struct sl_trace *t = random_trace(&seed);
    struct sl_replay_config c = {.n_slots = {9, TOP_K - 1}};
    struct sl_replay_result r;
    sluice_error e;
    for (int optimum = 0; optimum < 2; optimum++) {
        c.optimum = optimum;
        assert_int_equal(sl_replay(t, &c, &budget, &e, &r), SLUICE_E_ARG);
        assert_string_equal(e.text,
                            "2 slots are too few: a token takes 3 experts of layer 1 at once");
    }
    made_trace_free(t);
}

static void test_replay__no_memory__an_error_and_nothing_kept(void **state)
{
    (void)state;
    uint32_t seed = 8;
    struct sl_trace *t = random_trace(&seed);
    for (int optimum = 0; optimum < 2; optimum++) {
        struct sl_replay_config c = {.n_slots = {9, 9}, .optimum = optimum};
        struct sl_budget b;
        struct sl_replay_result r;
        sluice_error e;
        sluice_err err = SLUICE_E_NOMEM;
        for (int64_t n = 0; err != SLUICE_OK; n++) {
            assert_true(n < 100);
            sl_budget_init(&b, UINT64_MAX);
            atomic_store(&b.fail_after, n);
            err = sl_replay(t, &c, &b, &e, &r);
            assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM);
            assert_int_equal(sl_budget_used(&b), 0);
        }
    }
    made_trace_free(t);
}

/* ---- sizes -------------------------------------------------------------------------------------
 */

static struct sl_replay_config sized(const struct sl_trace *t, struct sl_replay_size size,
                                     double bits, enum sl_replay_pool pool, uint64_t *bytes)
{
    struct sl_replay_config c = {.pool = pool};
    sluice_error e;
    if (sl_replay_size(t, &size, bits, &c, bytes, &e)) fail_msg("%s", e.text);
    return c;
}

static void test_size__number_of_slots__divided_as_the_engine_does(void **state)
{
    (void)state;
    uint32_t seed = 9;
    uint64_t bytes;
    struct sl_trace *t = random_trace(&seed);
    struct sl_expert_sizes z = {.n_classes = 2, .n_experts = {20, 20}};
    z.floor.fewest[0] = z.floor.fewest[1] = TOP_K;
    for (uint32_t n = 2 * TOP_K; n <= LAYERS * EXPERTS + 5; n++) {
        uint32_t want[SL_EC_CLASSES_MAX];
        assert_true(sl_expert_slots_for_count(&z, n, want));
        struct sl_replay_config c =
            sized(t, (struct sl_replay_size){.slots = n}, 0, SL_REPLAY_ONE, &bytes);
        assert_memory_equal(c.n_slots, want, sizeof want);
        assert_int_equal(bytes, want[0] * 4000 + want[1] * 8000);
    }
    made_trace_free(t);
}

static void test_size__share_bytes_bits__what_fits(void **state)
{
    (void)state;
    uint32_t seed = 10;
    uint64_t bytes;
    struct sl_trace *t = random_trace(&seed);
    struct sl_replay_config c =
        sized(t, (struct sl_replay_size){.share = .45}, 0, SL_REPLAY_PER_LAYER, &bytes);
    for (uint32_t l = 0; l < LAYERS; l++) assert_int_equal(c.layer_slots[l], 5);
    assert_int_equal(bytes, 10 * 4000 + 10 * 8000);
    c = sized(t, (struct sl_replay_size){.share = .1}, 0, SL_REPLAY_ONE, &bytes);
    assert_int_equal(c.n_slots[0], 2 * TOP_K); /* at least what a token takes, of each layer */
    c = sized(t, (struct sl_replay_size){.bytes = 120000}, 0, SL_REPLAY_ONE, &bytes);
    assert_int_equal(c.n_slots[0], 10);
    assert_int_equal(c.n_slots[1], 10);
    assert_int_equal(bytes, 120000);
    c = sized(t, (struct sl_replay_size){.bytes = 120000}, 2, SL_REPLAY_ONE, &bytes);
    assert_int_equal(c.n_slots[0] + c.n_slots[1], 40); /* 4 bits as recorded: now all fit */
    assert_int_equal(bytes, 120000);
    made_trace_free(t);
}

static void test_size__not_known_or_too_small__sentences(void **state)
{
    (void)state;
    uint32_t seed = 11;
    uint64_t bytes;
    struct sl_trace *t = random_trace(&seed);
    struct sl_replay_config c = {.pool = SL_REPLAY_ONE};
    struct sl_replay_size few = {.slots = 5}, little = {.bytes = 35999}, much = {.bytes = 1 << 20};
    sluice_error e;
    assert_int_equal(sl_replay_size(t, &few, 0, &c, &bytes, &e), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "the least is 6"));
    assert_int_equal(sl_replay_size(t, &little, 0, &c, &bytes, &e), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "takes 36000"));
    t->header.layer[2].slot_bytes = t->header.layer[2].expert_bytes = 0;
    assert_int_equal(sl_replay_size(t, &much, 0, &c, &bytes, &e), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "how many bytes an expert of layer 2 has"));
    assert_int_equal(sl_replay_size(t, &much, 4, &c, &bytes, &e), SLUICE_OK);
    t->header.layer[3].weights = 0;
    assert_int_equal(sl_replay_size(t, &much, 4, &c, &bytes, &e), SLUICE_E_ARG);
    assert_non_null(strstr(e.text, "how many weights an expert of layer 3 has"));
    made_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay__recording_that_contradicts_itself__ends_and_leaks_nothing),
        cmocka_unit_test(test_replay__as_recorded_without_ops__refused),
        cmocka_unit_test(test_replay__caller_gives_up__cancelled),
        cmocka_unit_test(test_replay__too_few_slots__refused_by_name),
        cmocka_unit_test(test_replay__no_memory__an_error_and_nothing_kept),
        cmocka_unit_test(test_size__number_of_slots__divided_as_the_engine_does),
        cmocka_unit_test(test_size__share_bytes_bits__what_fits),
        cmocka_unit_test(test_size__not_known_or_too_small__sentences),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
