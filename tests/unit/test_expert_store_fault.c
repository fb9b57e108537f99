/* The expert store on a drive that fails: every read of a run fails, comes short, late, out of
 * order, with a flipped bit or from the wrong place, one after the other until none is met. Each
 * time the run ends with the right error or the right bytes, and the next one works. */
#define _GNU_SOURCE
#include <errno.h>

#include "tests/support/store_case.h"

#define LOOPS_MAX 1000

static struct rig rig;

/* What a fault may lead to. */
struct outcome {
    sluice_err code; /* of the error; SLUICE_OK: none may be noticed */
    uint32_t errors; /* seen */
};

static void check_error(const sluice_error *e, const struct choice *c, struct outcome *o)
{
    assert_int_not_equal(o->code, SLUICE_OK);
    if (e->code != o->code) print_message("%s\n", e->text);
    assert_int_equal(e->code, o->code);
    assert_int_equal(e->layer, c->layer);
    assert_true(e->expert >= 0 && c->is_chosen[e->expert]);
    assert_non_null(strstr(e->text, path[plans[c->layer].shard]));
    uint64_t at = e->file_offset;
    bool inside = false;
    for (uint32_t p = 0; p < plans[c->layer].n_parts; p++) {
        uint64_t from = offset_of(c->layer, (uint32_t)e->expert, p);
        inside = inside || (at + 65536 >= from && at <= from + plans[c->layer].bytes[p]);
    }
    assert_true(inside);
    o->errors++;
}

/* The same layer again after an error: the next request works (a fault that lasts ends first). */
static void run_one(const struct choice *c, struct outcome *o)
{
    sluice_error e;
    bool right;
    if (run_chunk(rig.s, c, NULL, &right, &e) != SLUICE_OK) {
        check_error(&e, c, o);
        sl_expert_settle(rig.s);
        sl_io_fault_set(rig.io, &no_fault);
        assert_int_equal(run_chunk(rig.s, c, NULL, &right, &e), SLUICE_OK);
    }
    assert_true(right);
}

static void guess_at(const struct choice *c)
{
    struct sl_expert_hint hints[EXPERTS_MAX];
    uint32_t n = 0;
    for (uint32_t x = 0; x < plans[c->layer].n_experts && n < 5; x++)
        if (c->is_chosen[x] || x % 5 == 0) hints[n++] = (struct sl_expert_hint){x, 0.95f};
    sl_expert_expect(rig.s, c->layer, hints, n, c->in_order);
}

/* The same reads every time. */
static void script(struct outcome *o)
{
    static struct choice c[7];
    random_state = 7;
    for (uint32_t i = 0; i < SL_ARRAY_LEN(c); i++) {
        bool prompt = i % 3 == 2;
        choose(&c[i], i % 2 ? 2 : 4, prompt ? 3 : 1, prompt);
    }
    for (uint32_t i = 0; i < SL_ARRAY_LEN(c); i++) {
        if (i % 2) guess_at(&c[i]);
        run_one(&c[i], o);
    }
    sl_expert_settle(rig.s);
    check_quiet(rig.s);
}

/* Experts that all fit the script, seen once: their sums are known. */
static void see_all(void)
{
    static struct choice c;
    struct outcome none = {SLUICE_OK, 0};
    for (uint32_t l = 0; l < LAYERS; l++) {
        if (plans[l].n_experts == 0) continue;
        do {
            choose(&c, l, 60, true);
        } while (c.n_distinct < plans[l].n_experts);
        run_one(&c, &none);
    }
    sl_expert_settle(rig.s);
}

static void loop_over(struct sl_io_fault_plan plan, sluice_err code, bool seen)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++) {
        struct outcome o = {code, 0};
        if (!rig_prepare(&rig, &setups[i])) continue;
        rig_slots(&rig, 30);
        rig.config.read_ahead = SL_READ_AHEAD_FORCED;
        uint64_t nth = 1;
        for (; nth < LOOPS_MAX; nth++) {
            rig_open(&rig);
            if (seen) see_all();
            plan.nth = nth;
            sl_io_fault_set(rig.io, &plan);
            uint32_t errors = o.errors;
            script(&o);
            bool met = sl_io_fault_met(rig.io) > 0 || o.errors > errors;
            sl_io_fault_set(rig.io, &no_fault);
            rig_close_store(&rig);
            if (!met) break;
        }
        assert_in_range(nth, 20, LOOPS_MAX - 1);
        assert_true(code == SLUICE_OK || o.errors > 10);
        rig_end(&rig);
    }
}

static void test_fault__read_fails__its_error_and_the_next_works(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_FAIL}, SLUICE_E_IO, false);
}

static void test_fault__reads_fail_for_ever__error(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_FAIL, .times = UINT64_MAX}, SLUICE_E_IO,
              false);
}

static void test_fault__passing_error_or_short_read__not_noticed(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_ERROR}, SLUICE_OK, false);
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_SHORT, .short_bytes = 4096},
              SLUICE_OK, false);
}

static void test_fault__late_or_out_of_order__not_noticed(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_DELAY, .delay_ns = 300000}, SLUICE_OK,
              false);
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_REORDER, .times = 5}, SLUICE_OK, false);
}

static void test_fault__flipped_bit_on_a_later_read__corrupt(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_FLIP, .bit = 12345}, SLUICE_E_CORRUPT,
              true);
}

static void test_fault__wrong_place_on_a_later_read__corrupt(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_WRONG_OFFSET}, SLUICE_E_CORRUPT, true);
}

/* Any fault at any moment of any operation: an error or the right bytes, and whole books. */
static void play_with_faults(void)
{
    static struct choice c;
    sluice_error e;
    bool right;
    static const uint32_t layers[] = {0, 2, 3, 4};
    for (uint32_t i = 0; i < 120; i++) {
        struct sl_io_fault_plan plan = {.kind = (enum sl_io_fault_kind)random_below(8)};
        plan.nth = 1 + random_below(30);
        plan.times = 1 + random_below(4);
        plan.delay_ns = 100000;
        plan.bit = random_below(1u << 20);
        sl_io_fault_set(rig.io, &plan);
        for (uint32_t k = 0; k < 3; k++) {
            bool prompt = random_below(3) == 0;
            choose(&c, layers[random_below(4)], 1 + random_below(prompt ? 20 : 2), prompt);
            if (random_below(2)) guess_at(&c);
            sluice_err err = run_chunk(rig.s, &c, NULL, &right, &e);
            assert_true(right);
            assert_true(err == SLUICE_OK || err == SLUICE_E_IO || err == SLUICE_E_CORRUPT);
            if (err != SLUICE_OK) assert_int_equal(e.layer, c.layer);
        }
        if (random_below(4) == 0) (void)sl_expert_store_shrink(rig.s, random_below(200000));
        sl_expert_settle(rig.s);
        check_quiet(rig.s);
        if (random_below(4) == 0) sl_expert_store_regrow(rig.s);
    }
    sl_io_fault_set(rig.io, &no_fault);
    see_all();
}

static void test_fault__random_operations_and_faults__error_or_right_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++)
        for (uint32_t percent = 0; percent <= 60; percent += 30) {
            if (!rig_prepare(&rig, &setups[i])) continue;
            rig_slots(&rig, percent);
            rig.config.read_ahead = SL_READ_AHEAD_FORCED;
            rig_open(&rig);
            see_all(); /* from here on damaged bytes are noticed */
            play_with_faults();
            rig_close_store(&rig);
            rig_end(&rig);
        }
}

/* ---- loading ------------------------------------------------------------------------------- */

static void test_fault__read_fails_while_loading__error_and_nothing_left(void **state)
{
    (void)state;
    sluice_error e;
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++) {
        if (!rig_prepare(&rig, &setups[i])) continue;
        rig_slots(&rig, 100);
        struct sl_io_fault_plan plan = {.kind = SL_IO_FAULT_FAIL, .sys_errno = EIO, .nth = 1};
        for (;; plan.nth++) {
            sl_io_fault_set(rig.io, &plan);
            sluice_err err = sl_expert_store_open(&rig.config, &budget, &e, &rig.s);
            if (err == SLUICE_OK) break;
            assert_int_equal(err, SLUICE_E_IO);
            assert_int_equal(e.sys_errno, EIO);
            assert_true(e.layer >= 0 && e.expert >= 0 && e.file_offset != SLUICE_NO_OFFSET);
            assert_null(rig.s);
            assert_int_equal(sl_io_outstanding(rig.io), 0);
            assert_int_equal(sl_budget_used(&budget), rig.before_bytes);
        }
        assert_int_equal(plan.nth, 3 * (16 + 8 + 16) + 2 * 24 + 1);
        rig_close_store(&rig);
        rig_end(&rig);
    }
}

/* ---- guesses ------------------------------------------------------------------------------- */

static char log_text[2048];
static void take_line(void *user, int level, const char *line)
{
    (void)user, (void)level;
    size_t used = strlen(log_text);
    (void)snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static void test_fault__guess_fails__said_in_the_log_and_read_on_demand(void **state)
{
    (void)state;
    const struct sl_log log = {take_line, NULL, SL_LOG_WARN};
    static struct choice c;
    sluice_error e;
    bool right;
    const struct sl_io_fault_plan plan = {.kind = SL_IO_FAULT_FAIL, .nth = 1, .times = 1};
    assert_true(rig_prepare(&rig, &setups[1]));
    rig_slots(&rig, 50);
    rig.config.read_ahead = SL_READ_AHEAD_FORCED;
    rig.config.log = &log;
    rig_open(&rig);
    log_text[0] = '\0';
    sl_io_fault_set(rig.io, &plan);
    choose(&c, 0, 1, false);
    guess_at(&c);
    assert_int_equal(run_chunk(rig.s, &c, NULL, &right, &e), SLUICE_OK);
    assert_true(right);
    assert_non_null(strstr(log_text, "of layer 0 ahead failed"));
    rig_close_store(&rig);
    rig_end(&rig);
}

static void test_fault__late_drive__stall_is_measured(void **state)
{
    (void)state;
    static struct choice c;
    sluice_error e;
    bool right;
    struct sl_expert_stats st;
    const struct sl_io_fault_plan plan = {
        .kind = SL_IO_FAULT_DELAY, .nth = 1, .times = UINT64_MAX, .delay_ns = 20000000};
    assert_true(rig_prepare(&rig, &setups[1]));
    rig_slots(&rig, 50);
    rig_open(&rig);
    sl_io_fault_set(rig.io, &plan);
    choose(&c, 0, 1, false);
    assert_int_equal(run_chunk(rig.s, &c, NULL, &right, &e), SLUICE_OK);
    assert_true(right);
    sl_expert_get_stats(rig.s, &st);
    assert_true(st.stall_ns >= 15000000 && st.stall_ns <= st.read_ns + 1000000);
    rig_close_store(&rig);
    rig_end(&rig);
}

/* ---- with a sums file: first reads --------------------------------------------------------- */

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/qwen3moe-Q8_0/model.gguf"
#define GOLDEN_LAYERS 2

struct golden {
    struct sl_gguf *g;
    struct sl_sums *sums;
    struct sl_io *io;
    struct sl_io_file *f;
    struct sl_expert_shape shape[GOLDEN_LAYERS];
    struct sl_expert_source source[GOLDEN_LAYERS];
    struct sl_expert_store_config config;
    char path[160], sums_path[160];
};

/* A copy, so that the sums file does not lie beside the original. */
static void golden_copy(struct golden *m)
{
    static unsigned char buf[65536];
    (void)snprintf(m->path, sizeof m->path, "%s/golden.gguf", folder[0]);
    (void)snprintf(m->sums_path, sizeof m->sums_path, "%s/golden.gguf.sums", folder[0]);
    FILE *from = fopen(GOLDEN, "rb"), *to = fopen(m->path, "wb");
    assert_true(from != NULL && to != NULL);
    for (size_t n; (n = fread(buf, 1, sizeof buf, from)) > 0;)
        assert_int_equal(fwrite(buf, 1, n, to), n);
    assert_int_equal(fclose(to), 0);
    (void)fclose(from);
}

static void golden_open(struct golden *m)
{
    static const char *const names[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    sluice_error e;
    struct sl_io *inner;
    memset(m, 0, sizeof *m);
    golden_copy(m);
    assert_int_equal(sl_gguf_open(m->path, &budget, &e, &m->g), SLUICE_OK);
    assert_int_equal(sl_sums_make(m->g, &budget, NULL, NULL, &e), SLUICE_OK);
    assert_int_equal(sl_sums_open(m->g, &budget, &e, &m->sums), SLUICE_OK);
    assert_non_null(m->sums);
    assert_int_equal(sl_io_open(&setups[1].io, &budget, NULL, &e, &inner), SLUICE_OK);
    assert_int_equal(sl_io_fault_open(inner, &no_fault, &e, &m->io), SLUICE_OK);
    assert_int_equal(sl_io_file_open(m->io, sl_gguf_file(m->g, 0), SL_IO_DIRECT, &e, &m->f),
                     SLUICE_OK);
    for (uint32_t l = 0; l < GOLDEN_LAYERS; l++)
        for (uint32_t p = 0; p < 3; p++) {
            char full[64];
            (void)snprintf(full, sizeof full, "blk.%u.%s.weight", l, names[p]);
            const struct sl_gguf_tensor *t = sl_gguf_find_tensor(m->g, full);
            m->source[l].tensor[p] = t;
            m->shape[l].n_experts = (uint32_t)t->dims[2];
            m->shape[l].top_k = 2;
            m->shape[l].n_parts = 3;
            m->shape[l].part[p].bytes = t->dims[1] * t->row_bytes;
        }
    m->config = (struct sl_expert_store_config){.gguf = m->g,
                                                .io = m->io,
                                                .files = &m->f,
                                                .shapes = m->shape,
                                                .sources = m->source,
                                                .n_layers = GOLDEN_LAYERS,
                                                .sums = m->sums};
}

static void golden_close(struct golden *m)
{
    sl_io_file_close(m->f);
    sl_io_close(m->io);
    sl_sums_close(m->sums);
    sl_gguf_close(m->g);
    unlink(m->path);
    unlink(m->sums_path);
}

/* Loads everything under the plan. */
static sluice_err golden_load(struct golden *m, const struct sl_io_fault_plan *plan,
                              uint64_t *checked, sluice_error *e)
{
    struct sl_expert_store *s;
    struct sl_expert_stats st;
    m->config.n_slots[0] = m->shape[0].n_experts * GOLDEN_LAYERS;
    sl_io_fault_set(m->io, plan);
    sluice_err err = sl_expert_store_open(&m->config, &budget, e, &s);
    if (err != SLUICE_OK) return err;
    sl_expert_get_stats(s, &st);
    *checked = st.checked;
    sl_expert_store_close(s);
    return SLUICE_OK;
}

static void test_fault__first_read_with_a_sums_file__corrupt(void **state)
{
    (void)state;
    struct golden m;
    sluice_error e;
    uint64_t checked = 0;
    golden_open(&m);
    assert_int_equal(golden_load(&m, &no_fault, &checked, &e), SLUICE_OK);
    assert_int_equal(checked, GOLDEN_LAYERS * 3 * m.shape[0].n_experts);
    struct sl_io_fault_plan plan = {.kind = SL_IO_FAULT_FLIP, .bit = 77, .times = 1};
    for (int kind = 0; kind < 2; kind++) {
        plan.kind = kind ? SL_IO_FAULT_WRONG_OFFSET : SL_IO_FAULT_FLIP;
        for (plan.nth = 1; plan.nth <= checked; plan.nth++) {
            assert_int_equal(golden_load(&m, &plan, &checked, &e), SLUICE_E_CORRUPT);
            assert_true(e.layer >= 0 && e.expert >= 0);
            assert_non_null(strstr(e.text, "sums file"));
        }
    }
    golden_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault__read_fails__its_error_and_the_next_works),
        cmocka_unit_test(test_fault__reads_fail_for_ever__error),
        cmocka_unit_test(test_fault__passing_error_or_short_read__not_noticed),
        cmocka_unit_test(test_fault__late_or_out_of_order__not_noticed),
        cmocka_unit_test(test_fault__flipped_bit_on_a_later_read__corrupt),
        cmocka_unit_test(test_fault__wrong_place_on_a_later_read__corrupt),
        cmocka_unit_test(test_fault__random_operations_and_faults__error_or_right_bytes),
        cmocka_unit_test(test_fault__read_fails_while_loading__error_and_nothing_left),
        cmocka_unit_test(test_fault__guess_fails__said_in_the_log_and_read_on_demand),
        cmocka_unit_test(test_fault__late_drive__stall_is_measured),
        cmocka_unit_test(test_fault__first_read_with_a_sums_file__corrupt),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
