/* sluice_session_route: experts come from outside and nothing else changes. What the cache makes of
 * a record is what a replay without a model makes of it, to the hit; what the record leaves open
 * the router completes; bad choices are refused, and leave the session as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/sluice.h"
#include "tests/support/made_trace.h"
#include "trace/replay.h"

#define DEMO SLUICE_SOURCE_DIR "/models/sluice-demo-q8_0.gguf"
#define LAYERS 6
#define EXPERTS 32
#define TOP_K 4
#ifdef NDEBUG
#define TOKENS 150
#else
#define TOKENS 40 /* builds that validate the books after every change */
#endif

/* A record: which experts each token takes in each layer. */
struct record {
    uint32_t experts[TOKENS][LAYERS][TOP_K];
};

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Half of the choices are those of the token before, the rest lean towards low numbers. */
static void fill(struct record *r)
{
    uint32_t state = 1;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t i = 0, n = 0; n < TOP_K; i++) {
                uint32_t x = draw(&state) % EXPERTS * (draw(&state) % EXPERTS) / EXPERTS;
                bool taken = false;
                if (t > 0 && i < TOP_K && draw(&state) % 2) x = r->experts[t - 1][l][i];
                for (uint32_t j = 0; j < n; j++) taken |= r->experts[t][l][j] == x;
                if (!taken) r->experts[t][l][n++] = x;
            }
}

static uint32_t from_record(void *user, uint32_t layer, uint32_t position, uint32_t n_experts,
                            uint32_t top_k, uint32_t *experts)
{
    const struct record *r = user;
    assert_int_equal(n_experts, EXPERTS);
    assert_int_equal(top_k, TOP_K);
    memcpy(experts, r->experts[position][layer], sizeof r->experts[position][layer]);
    return TOP_K;
}

/* Which experts were computed with, by the observer: bit x of layer l. */
struct seen {
    uint32_t mask[LAYERS];
};

static void see(void *user, const sluice_input *in)
{
    struct seen *s = user;
    unsigned long layer = strtoul(in->tensor + strlen("blk."), NULL, 10);
    if (strstr(in->tensor, "ffn_gate_exps")) s->mask[layer] |= 1u << in->matrix;
}

struct rig {
    sluice_model *model;
    sluice_session *session;
    uint32_t n_vocab;
    float *logits; /* [TOKENS][n_vocab] */
};

static struct rig open_rig(const sluice_options *o)
{
    struct rig r = {0};
    sluice_error e;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    if (sluice_model_open(DEMO, o, &r.model, &e)) fail_msg("%s", e.text);
    if (sluice_session_open(r.model, &r.session, &e)) fail_msg("%s", e.text);
    sluice_model_get_info(r.model, &info);
    r.n_vocab = info.n_vocab;
    r.logits = calloc((size_t)TOKENS * info.n_vocab, sizeof *r.logits);
    assert_non_null(r.logits);
    return r;
}

static void close_rig(struct rig *r)
{
    sluice_session_close(r->session);
    sluice_model_close(r->model);
    free(r->logits);
}

/* The first n tokens, in one call or one by one. */
static void evaluate(struct rig *r, uint32_t n, bool one_by_one)
{
    sluice_error e;
    int32_t ids[TOKENS];
    uint32_t step = one_by_one ? 1 : n;
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 37 % 500 + 3);
    sluice_session_truncate(r->session, 0);
    for (uint32_t i = 0; i < n; i += step)
        if (sluice_session_eval(r->session, ids + i, step, r->logits + (size_t)i * r->n_vocab, &e))
            fail_msg("%s", e.text);
}

/* The record as a trace; experts ascend, as the engine asks for them. */
static struct sl_trace *trace_of(const struct record *record)
{
    struct sl_trace *t = made_trace(LAYERS, EXPERTS, TOP_K);
    for (uint32_t i = 0; i < TOKENS; i++) {
        made_eval(t, 1, false);
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint16_t sorted[TOP_K];
            uint32_t n = 0;
            for (uint32_t x = 0; x < EXPERTS; x++)
                for (uint32_t j = 0; j < TOP_K; j++)
                    if (record->experts[i][l][j] == x) sorted[n++] = (uint16_t)x;
            made_visit(t, l, sorted);
        }
    }
    return t;
}

static struct sl_replay_result replay(const struct sl_trace *t, uint32_t slots,
                                      const struct sl_ec_policy *policy)
{
    struct sl_budget budget;
    struct sl_replay_result out;
    struct sl_replay_config c = {.policy = policy, .n_slots = {slots}};
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    if (sl_replay(t, &c, &budget, &e, &out)) fail_msg("%s", e.text);
    return out;
}

static void test_route__any_policy_and_size__hits_of_a_replay(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {TOP_K, 9, 20};
    struct record *record = calloc(1, sizeof *record);
    fill(record);
    struct sl_trace *t = trace_of(record);
    for (uint32_t p = 0; sluice_cache_policy_name(p); p++)
        for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
            sluice_options o = SLUICE_OPTIONS_INIT;
            sluice_stats stats = SLUICE_STATS_INIT;
            o.threads = 1;
            o.prefetch = SLUICE_PREFETCH_OFF;
            o.cache_policy = p + 1;
            o.slots = sizes[i] * LAYERS;
            struct rig r = open_rig(&o);
            sluice_session_route(r.session, from_record, record);
            evaluate(&r, TOKENS, true);
            sluice_session_get_stats(r.session, &stats);
            struct sl_replay_result want =
                replay(t, (uint32_t)o.slots, sl_ec_policy_find(sluice_cache_policy_name(p)));
            assert_int_equal(stats.uses, want.decode.uses);
            assert_int_equal(stats.hits, want.decode.hits);
            assert_int_equal(stats.evictions, want.evictions);
            assert_true(want.decode.hits > 0 && want.decode.hits < want.decode.uses);
            close_rig(&r);
        }
    made_trace_free(t);
    free(record);
}

static void test_route__chunks_threads_slots__same_logits(void **state)
{
    (void)state;
    struct record *record = calloc(1, sizeof *record);
    fill(record);
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = 1;
    struct rig plain = open_rig(&o);
    sluice_session_route(plain.session, from_record, record);
    evaluate(&plain, TOKENS, true);
    o.threads = 2;
    o.chunk = 16;
    o.slots = 5 * LAYERS;
    o.prefetch = SLUICE_PREFETCH_FORCED;
    o.sticky = 0.1f; /* sees what was chosen, whoever chose it */
    struct rig paged = open_rig(&o);
    sluice_session_route(paged.session, from_record, record);
    evaluate(&paged, TOKENS, false);
    assert_memory_equal(plain.logits, paged.logits,
                        (size_t)TOKENS * plain.n_vocab * sizeof *plain.logits);
    close_rig(&plain);
    close_rig(&paged);
    free(record);
}

/* What partial gives: expert 31, the least likely to be the router's, and nothing more. */
static uint32_t partial(void *user, uint32_t layer, uint32_t position, uint32_t n_experts,
                        uint32_t top_k, uint32_t *experts)
{
    (void)layer, (void)position, (void)n_experts, (void)top_k;
    experts[0] = EXPERTS - 1;
    return *(const uint32_t *)user;
}

static uint32_t count_bits(uint32_t x)
{
    uint32_t n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

static void test_route__fewer_than_top_k__router_completes(void **state)
{
    (void)state;
    static uint32_t none = 0, one = 1;
    struct seen own = {{0}}, with_none = {{0}}, with_one = {{0}};
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = 1;
    struct rig r = open_rig(&o);
    sluice_session_observe(r.session, see, &own);
    evaluate(&r, 1, true);
    sluice_session_route(r.session, partial, &none);
    sluice_session_observe(r.session, see, &with_none);
    evaluate(&r, 1, true);
    sluice_session_route(r.session, partial, &one);
    sluice_session_observe(r.session, see, &with_one);
    evaluate(&r, 1, true);
    assert_int_equal(own.mask[0], with_none.mask[0]); /* later layers see other weights */
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(count_bits(with_one.mask[l]), TOP_K);
        assert_true(with_one.mask[l] >> (EXPERTS - 1));
    }
    uint32_t kept = count_bits(with_one.mask[0] & own.mask[0]);
    assert_int_equal(kept, own.mask[0] >> (EXPERTS - 1) ? TOP_K : TOP_K - 1);
    close_rig(&r);
}

enum fault { TOO_MANY, TWICE, OUT_OF_RANGE };

static uint32_t wrong(void *user, uint32_t layer, uint32_t position, uint32_t n_experts,
                      uint32_t top_k, uint32_t *experts)
{
    (void)position;
    for (uint32_t i = 0; i < top_k; i++) experts[i] = i;
    if (layer < 3) return top_k;
    if (*(const enum fault *)user == TOO_MANY) return top_k + 1;
    experts[1] = *(const enum fault *)user == TWICE ? experts[0] : n_experts;
    return top_k;
}

static void test_route__bad_choice__refused_and_session_as_before(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_error e;
    const int32_t id = 7;
    o.slots = TOP_K * LAYERS;
    struct rig r = open_rig(&o);
    evaluate(&r, 3, true);
    float *before = calloc(2 * r.n_vocab, sizeof *before), *after = before + r.n_vocab;
    assert_int_equal(sluice_session_eval(r.session, &id, 1, before, &e), SLUICE_OK);
    sluice_session_truncate(r.session, 3);
    for (enum fault fault = TOO_MANY; fault <= OUT_OF_RANGE; fault++) {
        sluice_session_route(r.session, wrong, &fault);
        assert_int_equal(sluice_session_eval(r.session, &id, 1, after, &e), SLUICE_E_ARG);
        assert_non_null(strstr(e.text, "layer 3: "));
        assert_int_equal(sluice_session_length(r.session), 3);
    }
    sluice_session_route(r.session, NULL, NULL);
    assert_int_equal(sluice_session_eval(r.session, &id, 1, after, &e), SLUICE_OK);
    assert_memory_equal(before, after, r.n_vocab * sizeof *before);
    free(before);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route__any_policy_and_size__hits_of_a_replay),
        cmocka_unit_test(test_route__chunks_threads_slots__same_logits),
        cmocka_unit_test(test_route__fewer_than_top_k__router_completes),
        cmocka_unit_test(test_route__bad_choice__refused_and_session_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
