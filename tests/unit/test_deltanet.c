/* Models with gated DeltaNet layers: their state has no positions, so that everything which cuts a
 * context back, or fails half way, must leave what the same text would have given otherwise, bit
 * for bit: chunks, threads and instruction sets, going back to every length, cancelling in every
 * layer, reads that fail; and the two orders in which files hold the heads. Models are made here.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/stream_rig.h"

#include <math.h>

#include "tests/support/delta_model.h"

#define N 40 /* tokens of the text */

static char folder[] = "/tmp/sluice_test_delta_XXXXXX";
static char paths[DELTA_FAMILIES][64]; /* by enum delta_family */
static int32_t ids[N];
static float right[DELTA_FAMILIES][N * DELTA_VOCAB]; /* of the text, evaluated token by token */

static sluice_model *open_model(enum delta_family family, const sluice_options *wanted)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_error e;
    sluice_model *m = NULL;
    if (wanted) o = *wanted;
    o.n_ctx = 128;
    if (sluice_model_open(paths[family], &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return m;
}

static sluice_session *open_session(sluice_model *m)
{
    sluice_error e;
    sluice_session *s = NULL;
    if (sluice_session_open(m, &s, &e) != SLUICE_OK) fail_msg("%s", e.text);
    return s;
}

static enum delta_family family_of(const sluice_session *s)
{
    bool next = strcmp(s->model->m.arch->name, "qwen3next") == 0;
    return next ? DELTA_QWEN3NEXT : DELTA_QWEN35MOE;
}

/* Tokens [from, to) of the text in pieces of step, which must give the right logits. */
static void read_right(sluice_session *s, size_t from, size_t to, size_t step)
{
    const float *wanted = right[family_of(s)];
    float got[N * DELTA_VOCAB];
    sluice_error e;
    for (size_t at = from; at < to; at += step) {
        size_t n = to - at < step ? to - at : step;
        if (sluice_session_eval(s, ids + at, n, got + at * DELTA_VOCAB, &e) != SLUICE_OK)
            fail_msg("%s", e.text);
    }
    assert_memory_equal(got + from * DELTA_VOCAB, wanted + from * DELTA_VOCAB,
                        (to - from) * DELTA_VOCAB * sizeof *got);
    assert_int_equal(sluice_session_length(s), to);
}

/* The text in three pieces: of the first no logits are wanted, of the others those after the last
 * token. The last layer, which has a state, leaves out the rest. */
static void read_for_last(sluice_session *s)
{
    const size_t ends[] = {11, 12, 33, N};
    sluice_error e;
    sluice_session_truncate(s, 0);
    assert_int_equal(sluice_session_eval(s, ids, ends[0], NULL, &e), SLUICE_OK);
    for (size_t i = 1; i < SL_ARRAY_LEN(ends); i++) {
        float got[DELTA_VOCAB];
        size_t n = ends[i] - ends[i - 1];
        assert_int_equal(sluice_session_eval_last(s, ids + ends[i - 1], n, got, &e), SLUICE_OK);
        assert_memory_equal(got, right[family_of(s)] + (ends[i] - 1) * DELTA_VOCAB, sizeof got);
    }
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void test_deltanet__threads_chunks_isas__same_bits(void **state)
{
    (void)state;
    static const struct {
        uint32_t threads, chunk, isa;
    } ways[] = {{1, 64, SLUICE_ISA_AUTO},
                {2, 1, SLUICE_ISA_SCALAR},
                {2, 7, SLUICE_ISA_AUTO},
                {1, 3, SLUICE_ISA_SCALAR},
                {2, 512, SLUICE_ISA_AUTO}};
    for (int family = 0; family < DELTA_FAMILIES; family++)
        for (size_t i = 0; i < SL_ARRAY_LEN(ways); i++) {
            sluice_options o = SLUICE_OPTIONS_INIT;
            o.threads = ways[i].threads;
            o.chunk = ways[i].chunk;
            o.isa = ways[i].isa;
            sluice_model *m = open_model((enum delta_family)family, &o);
            sluice_session *s = open_session(m);
            read_right(s, 0, N, N);
            sluice_session_truncate(s, 0);
            read_right(s, 0, N, 1 + i);
            read_for_last(s);
            sluice_session_close(s);
            sluice_model_close(m);
        }
}

/* The same network in two files, but for the order in which the output matrix sums over heads. */
static void test_deltanet__order_of_heads_in_the_file__same_network(void **state)
{
    (void)state;
    double most = 0;
    for (size_t i = 0; i < N * DELTA_VOCAB; i++) {
        double apart = fabs((double)right[0][i] - (double)right[1][i]);
        if (apart > most) most = apart;
    }
    print_message("two orders of heads: logits at most %.2g apart\n", most);
    assert_true(most > 0 && most < 1e-4);
    assert_memory_equal(right[DELTA_BY_HEAD], right[DELTA_QWEN3NEXT], sizeof right[0]);
}

/* The text matters beyond what the convolution sees: the state remembers. */
static void test_deltanet__another_first_token__other_logits_at_the_end(void **state)
{
    (void)state;
    sluice_model *m = open_model(DELTA_QWEN3NEXT, NULL);
    sluice_session *s = open_session(m);
    float got[N * DELTA_VOCAB];
    int32_t other[N];
    memcpy(other, ids, sizeof other);
    other[0] = ids[0] ^ 1;
    assert_int_equal(sluice_session_eval(s, other, N, got, NULL), SLUICE_OK);
    assert_true(memcmp(got + (N - 1) * DELTA_VOCAB, right[0] + (N - 1) * DELTA_VOCAB,
                       DELTA_VOCAB * sizeof *got) != 0);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* ---- going back ------------------------------------------------------------------------------ */

/* From some lengths to every length, after reading in pieces of several sizes. */
static void test_truncate__to_every_length__as_if_never_longer(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 5, 13, N};
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.chunk = 8;
    sluice_model *m = open_model(DELTA_QWEN35MOE, &o);
    for (size_t i = 0; i < SL_ARRAY_LEN(steps); i++)
        for (size_t length = 3; length <= N; length += 2 + length)
            for (size_t keep = 0; keep <= length; keep++) {
                sluice_session *s = open_session(m);
                read_right(s, 0, length, steps[i]);
                sluice_session_truncate(s, keep);
                assert_int_equal(sluice_session_length(s), keep);
                if (keep % 2) read_right(s, keep, keep + 1 < N ? keep + 1 : N, 1);
                sluice_session_truncate(s, keep);
                read_right(s, keep, N, 6);
                sluice_session_close(s);
            }
    sluice_model_close(m);
}

static void test_truncate__other_text_afterwards__no_trace_of_the_first(void **state)
{
    (void)state;
    sluice_model *m = open_model(DELTA_QWEN3NEXT, NULL);
    sluice_session *s = open_session(m);
    int32_t other[N];
    for (size_t i = 0; i < N; i++) other[i] = ids[N - 1 - i];
    read_right(s, 0, 10, 10);
    for (size_t keep = 0; keep <= 10; keep++) {
        assert_int_equal(sluice_session_eval(s, other, 7, NULL, NULL), SLUICE_OK);
        assert_int_equal(sluice_session_eval(s, other, 1, NULL, NULL), SLUICE_OK);
        sluice_session_truncate(s, 10);
        sluice_session_truncate(s, keep);
        read_right(s, keep, 10, 3);
    }
    read_right(s, 10, N, N);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* ---- half way -------------------------------------------------------------------------------- */

struct cancel {
    sluice_session *s;
    uint32_t layer, calls;
};

/* Cancels at the router of a layer: the evaluation ends before the next one. */
static void cancel_at(void *user, const sluice_input *input)
{
    struct cancel *c = user;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", c->layer);
    if (strcmp(input->tensor, name) != 0 || c->calls-- != 1) return;
    sluice_session_cancel(c->s, 1);
}

static void test_eval__cancelled_in_every_layer__context_as_before(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.chunk = 4;
    sluice_model *m = open_model(DELTA_QWEN3NEXT, &o);
    for (uint32_t layer = 0; layer + 1 < DELTA_LAYERS; layer++)
        for (size_t n = 1; n <= 9; n += 4)
            for (uint32_t chunk = 1; chunk <= (n + 3) / 4; chunk++) {
                sluice_session *s = open_session(m);
                struct cancel c = {s, layer, chunk};
                read_right(s, 0, 11, 11);
                sluice_session_observe(s, cancel_at, &c);
                assert_int_equal(sluice_session_eval(s, ids + 11, n, NULL, NULL),
                                 SLUICE_E_CANCELLED);
                assert_int_equal(sluice_session_length(s), 11);
                sluice_session_observe(s, NULL, NULL);
                sluice_session_cancel(s, 0);
                read_right(s, 11, N, 1 + layer);
                sluice_session_close(s);
            }
    sluice_model_close(m);
}

/* A token that was cancelled is not evaluated again with all before it. */
static void test_eval__token_cancelled__only_that_token_is_repeated(void **state)
{
    (void)state;
    sluice_model *m = open_model(DELTA_QWEN35MOE, NULL);
    sluice_session *s = open_session(m);
    struct cancel c = {s, 1, 1};
    sluice_stats stats = SLUICE_STATS_INIT;
    read_right(s, 0, 20, 1);
    sluice_session_observe(s, cancel_at, &c);
    assert_int_equal(sluice_session_eval(s, ids + 20, 1, NULL, NULL), SLUICE_E_CANCELLED);
    sluice_session_observe(s, NULL, NULL);
    sluice_session_cancel(s, 0);
    read_right(s, 20, 22, 1);
    sluice_session_truncate(s, 21);
    read_right(s, 21, 22, 1);
    sluice_session_get_stats(s, &stats);
    assert_int_equal(stats.eval_tokens, 20 + 2 + 1);
    sluice_session_close(s);
    sluice_model_close(m);
}

/* Pieces of six tokens and of one in turn, until an evaluation fails; returns how many are in. */
static size_t read_until_failure(sluice_session *s)
{
    size_t at = 0;
    for (int i = 0; at < N; i++) {
        size_t n = i % 2 || N - at < 6 ? 1 : 6;
        sluice_err err = sluice_session_eval(s, ids + at, n, NULL, NULL);
        if (err == SLUICE_OK) at += n;
        assert_int_equal(sluice_session_length(s), at);
        if (err != SLUICE_OK) break;
    }
    return at;
}

static void test_eval__reads_fail_in_turn__right_afterwards(void **state)
{
    (void)state;
    static struct rig rig;
    struct stream_setup u = STREAM_PLAIN;
    u.slots = 2;
    u.chunk = 4;
    rig = (struct rig){.path = paths[DELTA_QWEN35MOE], .setup = u, .fail_after = -1};
    assert_true(rig_open(&rig));
    uint64_t met = 1;
    int n = 0;
    for (uint64_t nth = 1; met; nth += 1 + nth / 8, n++) {
        struct sl_io_fault_plan plan = rig_no_fault;
        plan.kind = SL_IO_FAULT_FAIL;
        plan.nth = nth;
        rig_set(&rig, &plan);
        size_t at = read_until_failure(rig.session);
        met = sl_io_fault_met(rig.wrapper);
        assert_true(met || at == N);
        rig_set(&rig, &rig_no_fault);
        read_right(rig.session, at, N, 4);
        sluice_session_truncate(rig.session, 0);
    }
    assert_true(n > 10);
    rig_close(&rig);
}

/* ---- conversations --------------------------------------------------------------------------- */

/* The second prompt has all of the first and another continuation: what comes out is what a new
 * session gives, and the start is not evaluated again as far as the state goes back. */
static void test_generate__another_turn__same_text_as_in_a_new_session(void **state)
{
    (void)state;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.chunk = 8;
    sluice_model *m = open_model(DELTA_QWEN35MOE, &o);
    sluice_generate_options g = SLUICE_GENERATE_INIT;
    g.max_tokens = 6;
    g.temperature = 0.0f;
    g.ignore_end = 1;
    for (size_t common = 1; common <= 20; common++) {
        sluice_result r = SLUICE_RESULT_INIT;
        sluice_session *used = open_session(m), *new = open_session(m);
        int32_t second[24];
        memcpy(second, ids, sizeof second);
        for (size_t i = common; i < 24; i++) second[i] = ids[i] ^ 3;
        assert_int_equal(sluice_generate(used, ids, 20, &g, &r, NULL), SLUICE_OK);
        assert_int_equal(sluice_generate(used, second, 24, &g, &r, NULL), SLUICE_OK);
        assert_int_equal(r.reused_tokens, common < 16 ? 0 : 16);
        assert_int_equal(sluice_generate(new, second, 24, &g, NULL, NULL), SLUICE_OK);
        float a[DELTA_VOCAB], b[DELTA_VOCAB];
        assert_int_equal(sluice_session_eval(used, ids, 1, a, NULL), SLUICE_OK);
        assert_int_equal(sluice_session_eval(new, ids, 1, b, NULL), SLUICE_OK);
        assert_memory_equal(a, b, sizeof a);
        sluice_session_close(used);
        sluice_session_close(new);
    }
    sluice_model_close(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_plan__recurrent_state__as_large_as_it_is(void **state)
{
    (void)state;
    sluice_plan p = SLUICE_PLAN_INIT;
    sluice_error e;
    assert_int_equal(sluice_memory_plan(paths[0], NULL, &p, &e), SLUICE_OK);
    uint64_t floats = DELTA_V_HEADS * DELTA_HEAD * DELTA_HEAD + DELTA_TAPS * DELTA_CHANNELS;
    uint64_t least = 2 * 3 * floats * sizeof(float);
    assert_in_range(p.state_bytes, least, least + 2 * sl_page_bytes() + 2 * 3 * 2048);
    /* keys and values of one layer of four */
    assert_in_range(p.kv_token_bytes, 2 * DELTA_HEAD, 2 * DELTA_HEAD + 64);

    sluice_model *m = open_model(DELTA_QWEN3NEXT, NULL);
    uint64_t before = sl_budget_used(&m->budget);
    sluice_session *s = open_session(m);
    assert_true(sl_budget_used(&m->budget) - before >= p.state_bytes);
    sluice_session_close(s);
    assert_int_equal(sl_budget_used(&m->budget), before);
    sluice_model_close(m);
}

/* The copy that is kept has its memory from the start. */
static void test_eval__prompt_and_tokens__charge_nothing(void **state)
{
    (void)state;
    sluice_model *m = open_model(DELTA_QWEN35MOE, NULL);
    sluice_session *s = open_session(m);
    read_right(s, 0, 5, 5); /* a block of keys and values holds what follows */
    m->budget.fail_after = 0;
    read_right(s, 5, 20, 15);
    read_right(s, 20, N, 1);
    sluice_session_truncate(s, 5);
    read_right(s, 5, N, 8);
    assert_int_equal(m->budget.fail_after, 0);
    m->budget.fail_after = -1;
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_session__every_allocation_fails_in_turn__clean_error(void **state)
{
    (void)state;
    sluice_model *m = open_model(DELTA_QWEN3NEXT, NULL);
    uint64_t before = sl_budget_used(&m->budget);
    sluice_err err = SLUICE_E_BUDGET;
    int n = 0;
    for (; err != SLUICE_OK; n++) {
        sluice_session *s = NULL;
        sluice_error e;
        m->budget.fail_after = n;
        err = sluice_session_open(m, &s, &e);
        m->budget.fail_after = -1;
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        assert_true((err == SLUICE_OK) == (s != NULL));
        if (s) read_right(s, 0, N, 9);
        sluice_session_close(s);
        assert_int_equal(sl_budget_used(&m->budget), before);
    }
    assert_true(n > 5);
    sluice_model_close(m);
}

/* ---------------------------------------------------------------------------------------------- */

static int make_models(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    for (int i = 0; i < DELTA_FAMILIES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d.gguf", folder, i);
        if (!delta_write((enum delta_family)i, 88172645463325252u, paths[i])) return -1;
    }
    for (int32_t i = 0; i < N; i++) ids[i] = (i * 23 + 5 + i * i) % (int32_t)DELTA_VOCAB;
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = 1;
    o.chunk = 1;
    for (int i = 0; i < DELTA_FAMILIES; i++) {
        sluice_model *m = open_model((enum delta_family)i, &o);
        sluice_session *s = open_session(m);
        assert_int_equal(sluice_session_eval(s, ids, N, right[i], NULL), SLUICE_OK);
        sluice_session_close(s);
        sluice_model_close(m);
    }
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    int bad = 0;
    for (int i = 0; i < DELTA_FAMILIES; i++) bad |= unlink(paths[i]);
    return bad | rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deltanet__threads_chunks_isas__same_bits),
        cmocka_unit_test(test_deltanet__order_of_heads_in_the_file__same_network),
        cmocka_unit_test(test_deltanet__another_first_token__other_logits_at_the_end),
        cmocka_unit_test(test_truncate__to_every_length__as_if_never_longer),
        cmocka_unit_test(test_truncate__other_text_afterwards__no_trace_of_the_first),
        cmocka_unit_test(test_eval__cancelled_in_every_layer__context_as_before),
        cmocka_unit_test(test_eval__token_cancelled__only_that_token_is_repeated),
        cmocka_unit_test(test_eval__reads_fail_in_turn__right_afterwards),
        cmocka_unit_test(test_generate__another_turn__same_text_as_in_a_new_session),
        cmocka_unit_test(test_plan__recurrent_state__as_large_as_it_is),
        cmocka_unit_test(test_eval__prompt_and_tokens__charge_nothing),
        cmocka_unit_test(test_session__every_allocation_fails_in_turn__clean_error),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
