/* Packing itself: the bytes are those of the encoders whatever the number of threads; what was
 * interrupted goes on to the same file; values that are no numbers are named; statistics count; and
 * types chosen for a size fit into it, the more room the better. */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/pack_case.h"

#include "pack/choose.h"
#include "pack/encode_rows.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

static void test_run__threads__the_same_file(void **state)
{
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&(struct pc_job){.from = "m.gguf", .to = "a.sluice", .bits = 3, .threads = 1});
    pc_pack_ok(&(struct pc_job){.from = "m.gguf", .to = "b.sluice", .bits = 3, .threads = 4});
    pc_assert_same_files("a.sluice", "b.sluice");
}

static void test_run__each_type__what_the_encoder_gives(void **state)
{
    static const char *const names[] = {"output.weight", "blk.0.ffn_down.1.weight"};
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&(struct pc_job){.from = "m.gguf", .to = "a.sluice", .bits = 3, .threads = 2});
    struct sl_source *from = pc_open(pc_path("m.gguf")), *to = pc_open(pc_path("a.sluice"));
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        uint32_t index = pc_find(to, names[i]);
        const struct sl_source_tensor *t = sl_source_tensor(to, index);
        float *x = pc_values(from, pc_find(from, names[i])), scratch[128];
        struct sl_rows rows = {x, t->rows, t->cols, NULL};
        struct sl_sq_error cost = {0};
        unsigned char *wanted = malloc(t->bytes), *got = malloc(t->bytes);
        uint64_t bad = 0;

        assert_int_equal(sl_encode_rows(t->type, &rows, wanted, scratch, &cost, &bad),
                         SL_ENCODE_OK);
        assert_int_equal(sl_source_bytes(to, index, 0, t->bytes, got, &error), SLUICE_OK);
        assert_memory_equal(wanted, got, t->bytes);
        assert_true(cost.plain > 0 && cost.plain < 0.05 * cost.plain_all);
        free(x);
        free(wanted);
        free(got);
    }
    sl_source_close(from);
    sl_source_close(to);
}

/* A folder's tensors keep their values, also where their rows lie in another order. */
static void test_run__folder_kept__the_same_values(void **state)
{
    static const char folder[] = SLUICE_SOURCE_DIR "/tests/golden/safetensors/mixtral";
    (void)state;
    assert_int_equal(symlink(folder, pc_path("folder")), 0);
    pc_pack_ok(&(struct pc_job){.from = "folder", .to = "k.sluice"});
    struct sl_source *from = pc_open(folder), *to = pc_open(pc_path("k.sluice"));
    assert_int_equal(sl_source_n_tensors(from), sl_source_n_tensors(to));
    for (uint32_t i = 0; i < sl_source_n_tensors(from); i++) {
        const struct sl_source_tensor *t = sl_source_tensor(from, i);
        float *x = pc_values(from, i), *y = pc_values(to, i);

        assert_int_equal(t->type, sl_source_tensor(to, i)->type);
        assert_memory_equal(x, y, t->rows * t->cols * sizeof *x);
        free(x);
        free(y);
    }
    sl_source_close(from);
    sl_source_close(to);
}

/* ---- interrupted ----------------------------------------------------------------------------- */

static int give_up(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_true(done <= total);
    return 1;
}

static void test_run__cancelled_and_again__the_same_file(void **state)
{
    struct pc_job job = {.from = "m.gguf", .to = "a.sluice", .bits = 3, .progress = give_up};
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_assert_error(pc_pack(&job), SLUICE_E_CANCELLED, "interrupted");
    job.progress = NULL;
    pc_pack_ok(&job);
    job.to = "b.sluice";
    pc_pack_ok(&job);
    pc_assert_same_files("a.sluice", "b.sluice");
}

/* After any number of changes to the drive; every 7th, as each costs a run. */
static void test_run__killed_anywhere_and_again__the_same_file(void **state)
{
    struct sl_resume_limit limit;
    struct pc_job job = {.from = "m.gguf", .to = "b.sluice", .bits = 2};
    sluice_err err = SLUICE_E_IO;
    uint64_t runs = 0;
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&job);
    job.to = "a.sluice";
    for (uint64_t n = 0; err != SLUICE_OK; n += 7, runs++) {
        limit.changes_left = n;
        job.limit = &limit;
        err = pc_pack(&job);
        if (err == SLUICE_OK) break;
        assert_int_equal(err, SLUICE_E_IO);
        job.limit = NULL;
        pc_pack_ok(&job);
        pc_assert_same_files("a.sluice", "b.sluice");
        unlink(pc_path("a.sluice"));
    }
    assert_true(runs > 5);
}

static void test_run__another_recipe_or_source__refused(void **state)
{
    struct pc_job job = {.from = "m.gguf", .to = "a.sluice", .bits = 3, .progress = give_up};
    struct gguf_build b;
    (void)state;
    pc_build(&b, pc_stacked, PC_STACKED);
    assert_true(gb_write(&b, pc_path("m.gguf")));
    pc_assert_error(pc_pack(&job), SLUICE_E_CANCELLED, "interrupted");
    job.recipe = "blk.1.ffn_down_exps.weight sq4_32";
    assert_int_equal(pc_pack(&job), SLUICE_E_CHANGED);
    job.recipe = NULL;
    b.p[b.n - 1] ^= 1;
    assert_true(gb_write(&b, pc_path("m.gguf")));
    assert_int_equal(pc_pack(&job), SLUICE_E_CHANGED);
    gb_end(&b);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Everything is given back, which the end of each test looks at, and the next run goes on. */
static void test_run__any_allocation_fails__an_error_and_then_the_same_file(void **state)
{
    struct pc_job job = {
        .from = "m.gguf", .to = "b.sluice", .bits = 3, .recipe = "blk.0.attn_q.weight sq6_32"};
    sluice_err err = SLUICE_E_NOMEM;
    uint64_t n = 0;
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&job);
    job.to = "a.sluice";
    for (; err != SLUICE_OK; n++) {
        budget.fail_after = (int64_t)n;
        err = pc_pack(&job);
        budget.fail_after = -1;
        if (err != SLUICE_OK && err != SLUICE_E_NOMEM && err != SLUICE_E_BUDGET)
            fail_msg("%s: %s", sl_err_name(err), error.text);
        assert_int_equal(sl_budget_used(&budget), 0);
    }
    assert_true(n > 40);
    pc_assert_same_files("a.sluice", "b.sluice");
}

/* ---- values that are no numbers -------------------------------------------------------------- */

static void test_run__nan_or_infinity__tensor_and_row(void **state)
{
    struct gguf_build b;
    (void)state;
    for (uint32_t bits = 0; bits <= 3; bits += 3) {
        float value = bits == 0 ? INFINITY : NAN;

        pc_build(&b, pc_stacked, PC_STACKED);
        memcpy(b.p + b.n - 4 * (3 * 64 + 5), &value, 4); /* the output's fourth row from the end */
        assert_true(gb_write(&b, pc_path("m.gguf")));
        gb_end(&b);
        struct pc_job job = {.from = "m.gguf", .to = "a.sluice", .bits = bits, .threads = 2};
        pc_assert_error(pc_pack(&job), SLUICE_E_NUMERIC,
                        "m.gguf: tensor 'output.weight', row 76: ");
        unlink(pc_path("a.sluice.journal"));
    }
}

static void test_run__too_large_for_half__says_so(void **state)
{
    struct gguf_build b;
    float value = 70000;
    (void)state;
    pc_build(&b, pc_stacked, PC_STACKED);
    memcpy(b.p + b.n - 4, &value, 4);
    assert_true(gb_write(&b, pc_path("m.gguf")));
    gb_end(&b);
    struct pc_job job = {.from = "m.gguf", .to = "a.sluice", .recipe = "output.weight f16"};
    pc_assert_error(pc_pack(&job), SLUICE_E_NUMERIC, "row 79: a value is too large for F16");
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void test_run__statistics__move_errors_where_they_cost_less(void **state)
{
    struct sl_column_stats *stats = NULL;
    struct sl_pack_cost *plain = calloc(64, sizeof *plain),
                        *weighted = calloc(64, sizeof *weighted);
    float x[64];
    uint32_t i = 0;
    struct pc_job job = {.from = "m.gguf", .to = "a.sluice", .bits = 2, .costs = plain};
    (void)state;
    for (int k = 0; k < 64; k++) x[k] = k % 8 == 0 ? 10 : 0.1f;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&job);
    assert_int_equal(sl_column_stats_new(&budget, &error, &stats), SLUICE_OK);
    struct sl_column_input in = {.name = "blk.1.ffn_gate_exps.weight",
                                 .matrix = 2,
                                 .n_matrices = 4,
                                 .x = x,
                                 .n = 1,
                                 .cols = 64};
    assert_int_equal(sl_column_stats_add(stats, &in, &error), SLUICE_OK);
    assert_int_equal(sl_column_stats_finish(stats, &error), SLUICE_OK);
    job.stats = stats;
    job.costs = weighted;
    job.to = "b.sluice";
    pc_pack_ok(&job);
    sl_column_stats_close(stats);
    while (i < 64 && !(weighted[i].error.weighted != weighted[i].error.plain &&
                       plain[i].tensors == 4 && weighted[i].error.plain > plain[i].error.plain))
        i++;
    assert_true(i < 64); /* the class pays in plain error for less of the weighted */
    free(plain);
    free(weighted);
}

static void test_run__statistics_of_another_model__refused(void **state)
{
    struct sl_column_stats *stats = NULL;
    float x[32] = {1};
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    assert_int_equal(sl_column_stats_new(&budget, &error, &stats), SLUICE_OK);
    struct sl_column_input in = {.name = "blk.1.ffn_gate_exps.weight",
                                 .matrix = 2,
                                 .n_matrices = 4,
                                 .x = x,
                                 .n = 1,
                                 .cols = 32};
    assert_int_equal(sl_column_stats_add(stats, &in, &error), SLUICE_OK);
    assert_int_equal(sl_column_stats_finish(stats, &error), SLUICE_OK);
    struct pc_job job = {.from = "m.gguf", .to = "a.sluice", .bits = 3, .stats = stats};
    pc_assert_error(pc_pack(&job), SLUICE_E_FORMAT, "another model's");
    sl_column_stats_close(stats);
}

/* Of more experts, or of fewer: those at hand would be weighted by what others saw. */
static void test_run__statistics_of_other_experts__refused_with_their_name(void **state)
{
    float x[64] = {1};
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    for (uint32_t n = 3; n <= 5; n++) {
        struct sl_column_stats *stats = NULL;
        struct sl_column_input in = {.name = "blk.1.ffn_gate_exps.weight",
                                     .matrix = 2,
                                     .n_matrices = n,
                                     .x = x,
                                     .n = 1,
                                     .cols = 64};

        assert_int_equal(sl_column_stats_new(&budget, &error, &stats), SLUICE_OK);
        assert_int_equal(sl_column_stats_add(stats, &in, &error), SLUICE_OK);
        assert_int_equal(sl_column_stats_finish(stats, &error), SLUICE_OK);
        struct sl_source *s = pc_open(pc_path("m.gguf"));
        struct sl_pack_request request = {.stats = stats, .stats_name = "s.gguf", .creator = "t"};
        struct sl_pack_plan plan;
        sluice_err err = sl_pack_plan_make(s, &request, &budget, &error, &plan);
        assert_int_equal(err, n == 4 ? SLUICE_OK : SLUICE_E_FORMAT);
        if (n != 4) assert_non_null(strstr(error.text, "s.gguf: "));
        if (n == 4) sl_pack_plan_deinit(&plan);
        sl_source_close(s);
        sl_column_stats_close(stats);
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct chosen {
    struct sl_source *source;
    struct sl_pack_request request;
    struct sl_pack_plan plan;
    struct sl_pool *pool;
    struct sl_pack_job job;
    struct sl_pack_choice *choice;
};

static void open_choice(struct chosen *c, uint32_t threads)
{
    memset(c, 0, sizeof *c);
    c->source = pc_open(pc_path("m.gguf"));
    c->request = (struct sl_pack_request){.bits = 3, .creator = "test"};
    assert_int_equal(sl_pack_plan_make(c->source, &c->request, &budget, &error, &c->plan), 0);
    assert_int_equal(sl_pool_open(&budget, threads, NULL, &c->pool), SLUICE_OK);
    c->job = (struct sl_pack_job){&c->plan, c->pool, &budget, NULL, NULL};
    assert_int_equal(sl_pack_choice_open(&c->job, &error, &c->choice), SLUICE_OK);
}

static void close_choice(struct chosen *c)
{
    sl_pack_choice_close(c->choice);
    sl_pool_close(c->pool);
    sl_pack_plan_deinit(&c->plan);
    sl_source_close(c->source);
}

static uint64_t plan_bytes(const struct sl_pack_plan *plan)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < plan->n_classes; i++) sum += plan->classes[i].bytes;
    return sum;
}

static void test_choose__limits__fit_and_are_used(void **state)
{
    struct chosen c;
    uint64_t last = 0;
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    open_choice(&c, 2);
    uint64_t low = sl_pack_choice_smallest(c.choice), high = sl_pack_choice_largest(c.choice);
    assert_true(low < high);
    assert_false(sl_pack_choose(c.choice, &c.plan, low - 1));
    assert_int_equal(plan_bytes(&c.plan), low);
    for (uint64_t limit = low; limit <= high; limit += (high - low) / 16) {
        assert_true(sl_pack_choose(c.choice, &c.plan, limit));
        assert_true(plan_bytes(&c.plan) <= limit && plan_bytes(&c.plan) >= low);
        assert_true(plan_bytes(&c.plan) + (high - low) / 4 > limit); /* no large room is left */
        last = plan_bytes(&c.plan);
    }
    assert_true(last > low);
    assert_true(sl_pack_choose(c.choice, &c.plan, UINT64_MAX));
    assert_int_equal(plan_bytes(&c.plan), high);
    close_choice(&c);
}

/* A type that cannot hold a value is no choice; the model is whole all the same. */
static void test_choose__value_too_large_for_a_type__another_one(void **state)
{
    struct chosen c;
    struct gguf_build b;
    float value = 1e9f; /* the scale of its block is beyond half precision */
    (void)state;
    for (uint32_t large = 0; large <= 1; large++) {
        pc_build(&b, pc_stacked, PC_STACKED);
        if (large) memcpy(b.p + b.n - 4, &value, 4); /* in the last row of the output */
        assert_true(gb_write(&b, pc_path("m.gguf")));
        gb_end(&b);
        open_choice(&c, 2);
        assert_true(sl_pack_choose(c.choice, &c.plan, UINT64_MAX));
        uint32_t type = c.plan.classes[c.plan.class_of[pc_find(c.source, "output.weight")]].type;
        assert_true(large ? type != SL_TYPE_Q8_0 : type == SL_TYPE_Q8_0);
        assert_int_equal(sl_pack_plan_settle(&c.plan, &c.request, &error), SLUICE_OK);
        close_choice(&c);
    }
}

static void test_choose__threads__the_same_types(void **state)
{
    struct chosen a, b;
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    open_choice(&a, 1);
    open_choice(&b, 3);
    uint64_t limit = (sl_pack_choice_smallest(a.choice) + sl_pack_choice_largest(a.choice)) / 2;
    assert_true(sl_pack_choose(a.choice, &a.plan, limit) &&
                sl_pack_choose(b.choice, &b.plan, limit));
    for (uint32_t i = 0; i < a.plan.n_classes; i++)
        assert_int_equal(a.plan.classes[i].type, b.plan.classes[i].type);
    close_choice(&a);
    close_choice(&b);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pc_set_up, pc_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_run__threads__the_same_file),
        TEST(test_run__each_type__what_the_encoder_gives),
        TEST(test_run__folder_kept__the_same_values),
        TEST(test_run__cancelled_and_again__the_same_file),
        TEST(test_run__killed_anywhere_and_again__the_same_file),
        TEST(test_run__another_recipe_or_source__refused),
        TEST(test_run__any_allocation_fails__an_error_and_then_the_same_file),
        TEST(test_run__nan_or_infinity__tensor_and_row),
        TEST(test_run__too_large_for_half__says_so),
        TEST(test_run__statistics__move_errors_where_they_cost_less),
        TEST(test_run__statistics_of_another_model__refused),
        TEST(test_choose__limits__fit_and_are_used),
        TEST(test_run__statistics_of_other_experts__refused_with_their_name),
        TEST(test_choose__value_too_large_for_a_type__another_one),
        TEST(test_choose__threads__the_same_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
