/* A layer of one model in another: experts stacked, one by one, and in a container, in every
 * direction; what stays, what comes, where its bytes and checksums are found; models that are not
 * the same are refused; every allocation may fail. And metadata compared. */
#define _GNU_SOURCE /* mkdtemp */
#include "formats/gguf_graft.h"
#include "formats/gguf_compare.h"
#include "formats/sums.h"
#include "tests/support/container_case.h"

#define EXPERTS 3

static char path_a[CASE_PATH_BYTES], path_b[CASE_PATH_BYTES];

/* ---- models ----------------------------------------------------------------------------------
 */

/* A GGUF that grows: tensors follow one another, each aligned to 32 bytes. */
struct model {
    struct gguf_build b;
    uint64_t at;
};

static void model_begin(struct model *m, const char *arch)
{
    memset(m, 0, sizeof *m);
    gb_begin(&m->b, 3);
    gb_kv_str(&m->b, "general.architecture", arch);
}

static void model_tensor(struct model *m, const char *name, uint32_t type, const uint64_t dims[3])
{
    uint64_t row, n_dims = dims[2] > 1 ? 3 : dims[1] > 1 ? 2 : 1;

    gb_tensor_dims(&m->b, name, type, m->at, dims, (uint32_t)n_dims);
    assert_true(sl_type_row_bytes(type, dims[0], &row));
    m->at += (row * dims[1] * dims[2] + 31) / 32 * 32;
}

static void model_end(struct model *m, const char *path)
{
    gb_data(&m->b, 32, m->at);
    assert_true(gb_write(&m->b, path));
    gb_end(&m->b);
}

/* Two layers with a norm and experts; stacked or not. */
static void put_layers(struct model *m, uint32_t type, bool stacked)
{
    char name[48];

    for (int l = 0; l < 2; l++) {
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", l);
        model_tensor(m, name, SL_TYPE_F32, (const uint64_t[]){8, 1, 1});
        snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", l);
        if (stacked) model_tensor(m, name, type, (const uint64_t[]){8, 4, EXPERTS});
        for (int x = 0; x < EXPERTS && !stacked; x++) {
            snprintf(name, sizeof name, "blk.%d.ffn_gate.%d.weight", l, x);
            model_tensor(m, name, type, (const uint64_t[]){8, 4, 1});
        }
    }
}

static void put_model(const char *path, uint32_t type, bool stacked, bool tied)
{
    struct model m;

    model_begin(&m, "grafted");
    model_tensor(&m, "token_embd.weight", type, (const uint64_t[]){8, 7, 1});
    put_layers(&m, type, stacked);
    model_tensor(&m, "output_norm.weight", SL_TYPE_F32, (const uint64_t[]){8, 1, 1});
    if (!tied) model_tensor(&m, "output.weight", type, (const uint64_t[]){8, 7, 1});
    model_end(&m, path);
}

static int graft_begin(void **state)
{
    (void)set_up(state);
    path_in(path_a, "a.gguf");
    path_in(path_b, "b.gguf");
    return 0;
}

static int graft_end(void **state)
{
    unlink(path_a);
    unlink(path_b);
    return tear_down(state);
}

#define GRAFT_TEST(name) cmocka_unit_test_setup_teardown(name, graft_begin, graft_end)

/* B with a group of A. */
static struct sl_gguf *graft_ok(uint32_t group)
{
    struct sl_gguf *g = open_path(path_b);
    sluice_err err = sl_gguf_graft(g, open_path(path_a), group, &error);

    if (err != SLUICE_OK) fail_msg("%s: %s", sl_err_name(err), error.text);
    return g;
}

static sluice_err graft_fails(uint32_t group)
{
    struct sl_gguf *g = open_path(path_b);
    sluice_err err = sl_gguf_graft(g, open_path(path_a), group, &error);

    sl_gguf_close(g);
    return err;
}

static void assert_type(const struct sl_gguf *g, const char *name, uint32_t type, uint32_t shard)
{
    const struct sl_gguf_tensor *t = sl_gguf_find_tensor(g, name);

    if (t == NULL) fail_msg("there is no %s", name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->shard, shard);
}

/* The bytes where g says that a tensor lies are those where the file alone says it. */
static void assert_same_bytes(const struct sl_gguf *g, const char *path, const char *name)
{
    struct sl_gguf *whole = open_path(path);
    const struct sl_gguf_tensor *t = sl_gguf_find_tensor(g, name);
    const struct sl_gguf_tensor *u = sl_gguf_find_tensor(whole, name);
    unsigned char a[1024], b[1024];

    assert_non_null(t);
    assert_non_null(u);
    assert_int_equal(t->bytes, u->bytes);
    assert_true(t->bytes <= sizeof a);
    assert_int_equal(sl_file_read_at(sl_gguf_file(g, t->shard), t->offset, a, t->bytes, &error), 0);
    assert_int_equal(sl_file_read_at(sl_gguf_file(whole, 0), u->offset, b, u->bytes, &error), 0);
    assert_memory_equal(a, b, t->bytes);
    sl_gguf_close(whole);
}

/* ---- names -----------------------------------------------------------------------------------
 */

static void test_group__names__layer_embedding_or_output(void **state)
{
    (void)state;
    const struct {
        const char *name;
        uint32_t group;
    } cases[] = {
        {"blk.0.attn_norm.weight", 0},
        {"blk.511.ffn_gate.3.weight", 511},
        {"token_embd.weight", SL_GROUP_EMBEDDING},
        {"output.weight", SL_GROUP_OUTPUT},
        {"output_norm.weight", SL_GROUP_OUTPUT},
        {"rope_freqs.weight", SL_GROUP_OUTPUT},
        {"blk.", SL_GROUP_OUTPUT},
        {"blk.7", SL_GROUP_OUTPUT},
        {"blk.x.y", SL_GROUP_OUTPUT},
        {"blk.65536.y", SL_GROUP_OUTPUT},
        {"blk.99999999999999999999.y", SL_GROUP_OUTPUT},
    };
    char text[SL_GROUP_TEXT];

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        assert_int_equal(sl_gguf_group((struct sl_str){cases[i].name, strlen(cases[i].name)}),
                         cases[i].group);
    assert_string_equal(sl_gguf_group_text(12, text), "layer 12");
    assert_string_equal(sl_gguf_group_text(SL_GROUP_EMBEDDING, text), "embedding");
    assert_string_equal(sl_gguf_group_text(SL_GROUP_OUTPUT, text), "output");
}

/* ---- what is exchanged -----------------------------------------------------------------------
 */

static void test_graft__stacked_into_single__layer_exchanged_as_a_whole(void **state)
{
    (void)state;
    put_model(path_a, SL_TYPE_F32, true, false);
    put_model(path_b, SL_TYPE_F16, false, false);
    struct sl_gguf *g = graft_ok(1);
    assert_true(sl_gguf_is_grafted(g));
    assert_int_equal(sl_gguf_n_files(g), 2);
    assert_int_equal(sl_gguf_n_tensors(g), 9); /* 11 less 4, and 2 */
    assert_type(g, "blk.1.ffn_gate_exps.weight", SL_TYPE_F32, 1);
    assert_type(g, "blk.1.attn_norm.weight", SL_TYPE_F32, 1);
    assert_type(g, "blk.0.ffn_gate.2.weight", SL_TYPE_F16, 0);
    assert_type(g, "output.weight", SL_TYPE_F16, 0);
    assert_null(sl_gguf_find_tensor(g, "blk.1.ffn_gate.0.weight"));
    assert_same_bytes(g, path_a, "blk.1.ffn_gate_exps.weight");
    assert_same_bytes(g, path_b, "blk.0.ffn_gate.2.weight");
    for (uint32_t i = 1; i < sl_gguf_n_tensors(g); i++)
        assert_true(sl_gguf_tensor(g, i - 1)->shard <= sl_gguf_tensor(g, i)->shard);
    sl_gguf_close(g);
}

static void test_graft__single_into_stacked__layer_exchanged_as_a_whole(void **state)
{
    (void)state;
    put_model(path_a, SL_TYPE_F32, false, false);
    put_model(path_b, SL_TYPE_F16, true, false);
    struct sl_gguf *g = graft_ok(0);
    assert_int_equal(sl_gguf_n_tensors(g), 9);
    for (int x = 0; x < EXPERTS; x++) {
        char name[48];
        snprintf(name, sizeof name, "blk.0.ffn_gate.%d.weight", x);
        assert_type(g, name, SL_TYPE_F32, 1);
        assert_same_bytes(g, path_a, name);
    }
    assert_null(sl_gguf_find_tensor(g, "blk.0.ffn_gate_exps.weight"));
    assert_type(g, "blk.1.ffn_gate_exps.weight", SL_TYPE_F16, 0);
    sl_gguf_close(g);
}

static void test_graft__metadata_dropped__tensors_stay(void **state)
{
    (void)state;
    put_model(path_a, SL_TYPE_F32, false, false);
    put_model(path_b, SL_TYPE_F16, true, false);
    struct sl_gguf *g = graft_ok(0);
    sl_gguf_drop_metadata(g);
    assert_type(g, "blk.0.ffn_gate.1.weight", SL_TYPE_F32, 1);
    assert_str(sl_gguf_tensor(g, 0)->name, "token_embd.weight");
    sl_gguf_close(g);
}

static void test_graft__embedding_and_output__by_themselves(void **state)
{
    (void)state;
    put_model(path_a, SL_TYPE_F32, true, false);
    put_model(path_b, SL_TYPE_F16, true, false);
    struct sl_gguf *g = graft_ok(SL_GROUP_EMBEDDING);
    assert_type(g, "token_embd.weight", SL_TYPE_F32, 1);
    assert_type(g, "output.weight", SL_TYPE_F16, 0);
    sl_gguf_close(g);
    g = graft_ok(SL_GROUP_OUTPUT);
    assert_type(g, "token_embd.weight", SL_TYPE_F16, 0);
    assert_type(g, "output.weight", SL_TYPE_F32, 1);
    assert_type(g, "output_norm.weight", SL_TYPE_F32, 1);
    sl_gguf_close(g);
}

static void test_graft__output_shared_in_one_only__embedding_and_output_together(void **state)
{
    (void)state;
    put_model(path_a, SL_TYPE_F32, true, false);
    put_model(path_b, SL_TYPE_F16, true, true);
    struct sl_gguf *g = open_path(path_b);
    /* The counts differ by an output matrix, and yet it is the same model. */
    assert_int_equal(sl_gguf_graft(g, open_path(path_a), SL_GROUP_EMBEDDING, &error), SLUICE_OK);
    assert_type(g, "token_embd.weight", SL_TYPE_F32, 1);
    assert_type(g, "output.weight", SL_TYPE_F32, 1);
    sl_gguf_close(g);
}

/* ---- checksums -------------------------------------------------------------------------------
 */

/* The GGUF of container_case.h's model: the same numbers of weights, experts of a layer joined. */
static void put_like_container(const char *path)
{
    struct model m;

    model_begin(&m, "packed");
    model_tensor(&m, "blk.0.ffn_gate_exps.weight", SL_TYPE_F16,
                 (const uint64_t[]){256, 9, CASE_EXPERTS});
    model_tensor(&m, "blk.0.ffn_up_exps.weight", SL_TYPE_F16,
                 (const uint64_t[]){256, 9, CASE_EXPERTS});
    model_tensor(&m, "blk.0.ffn_down_exps.weight", SL_TYPE_F16, (const uint64_t[]){512, 120, 1});
    model_end(&m, path);
}

/* Every record of the container is found by file and offset, with its bytes; first: the number of
 * its first file. */
static void assert_records(const struct sl_gguf *g, const char *path, uint32_t first)
{
    struct sl_container *c = NULL;

    assert_int_equal(sl_container_open(path, &budget, &error, &c), SLUICE_OK);
    for (uint64_t i = 0; i < sl_container_n_records(c); i++) {
        const struct sl_container_record *r = sl_container_record(c, i);
        const struct sl_container_record *found =
            sl_gguf_record(g, first + r->part, r->offset + r->bytes - 1);
        unsigned char *bytes = malloc(r->bytes);

        assert_non_null(found);
        assert_non_null(bytes);
        assert_true(found->sum == r->sum && found->layer == r->layer);
        assert_int_equal(
            sl_file_read_at(sl_gguf_file(g, first + r->part), r->offset, bytes, r->bytes, &error),
            SLUICE_OK);
        struct sl_range range = {r->offset, r->bytes};
        assert_int_equal(sl_gguf_check(g, first + r->part, range, bytes, &error), SLUICE_OK);
        bytes[0] ^= 1;
        assert_int_equal(sl_gguf_check(g, first + r->part, range, bytes, &error), SLUICE_E_CORRUPT);
        free(bytes);
    }
    sl_container_close(c);
}

static void test_graft__container_into_gguf__its_checksums_come_along(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART; /* several parts */
    case_write_ok();
    put_like_container(path_b);
    struct sl_gguf *g = open_path(path_b);
    struct sl_gguf *from = open_path(case_part(0, case_n_parts(), ""));
    assert_true(sl_gguf_n_files(from) > 1);
    assert_int_equal(sl_gguf_graft(g, from, 0, &error), SLUICE_OK);
    assert_type(g, "blk.0.ffn_gate.2.weight", SL_SQ3_32,
                sl_gguf_find_tensor(g, "blk.0.ffn_gate.2.weight")->shard);
    assert_true(sl_gguf_find_tensor(g, "blk.0.ffn_gate.2.weight")->shard >= 1);
    assert_null(sl_gguf_record(g, 0, 0));
    assert_records(g, case_part(0, case_n_parts(), ""), 1);
    sl_gguf_close(g);
    unlink(path_b);
    case_clean();
}

static void test_graft__gguf_into_container__its_own_checksums_stay(void **state)
{
    (void)state;
    case_write_ok();
    put_like_container(path_a);
    struct sl_gguf *g = open_path(cc.path);
    uint32_t n = sl_gguf_n_files(g);
    assert_int_equal(sl_gguf_graft(g, open_path(path_a), 0, &error), SLUICE_OK);
    assert_type(g, "blk.0.ffn_gate_exps.weight", SL_TYPE_F16, n);
    assert_records(g, cc.path, 0);
    assert_null(sl_gguf_record(g, n, 0));
    sl_gguf_close(g);
    unlink(path_a);
    case_clean();
}

static void test_graft__sums_file_beside_the_model__not_used(void **state)
{
    char sums[CASE_PATH_BYTES + 8];
    struct sl_sums *s = NULL;

    (void)state;
    put_model(path_a, SL_TYPE_F32, true, false);
    put_model(path_b, SL_TYPE_F16, true, false);
    struct sl_gguf *g = open_path(path_b);
    assert_int_equal(sl_sums_make(g, &budget, NULL, NULL, &error), SLUICE_OK);
    sl_gguf_close(g);
    g = graft_ok(1);
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_null(s);
    sl_gguf_close(g);
    snprintf(sums, sizeof sums, "%s.sums", path_b);
    unlink(sums);
}

/* ---- what is refused -------------------------------------------------------------------------
 */

static void test_graft__layer_in_neither__not_found(void **state)
{
    (void)state;
    put_model(path_a, SL_TYPE_F32, true, false);
    put_model(path_b, SL_TYPE_F16, true, false);
    assert_int_equal(graft_fails(2), SLUICE_E_NOT_FOUND);
    assert_mentions("neither has a layer 2");
}

static void test_graft__other_architecture__refused(void **state)
{
    struct model m;

    (void)state;
    put_model(path_b, SL_TYPE_F16, true, false);
    model_begin(&m, "other");
    put_layers(&m, SL_TYPE_F32, true);
    model_end(&m, path_a);
    assert_int_equal(graft_fails(0), SLUICE_E_FORMAT);
    assert_mentions("architectures");
}

static void test_graft__other_number_of_weights__refused(void **state)
{
    struct model m;

    (void)state;
    put_model(path_b, SL_TYPE_F16, true, false);
    model_begin(&m, "grafted");
    model_tensor(&m, "blk.0.attn_norm.weight", SL_TYPE_F32, (const uint64_t[]){8, 1, 1});
    model_tensor(&m, "output.weight", SL_TYPE_F32, (const uint64_t[]){8, 7, 1});
    model_end(&m, path_a);
    assert_int_equal(graft_fails(0), SLUICE_E_FORMAT);
    assert_mentions("layer 0 has 8 weights in the first and 104 in the second");
    assert_int_equal(graft_fails(1), SLUICE_E_FORMAT);
}

static void test_graft__any_allocation_fails__an_error_and_no_leak(void **state)
{
    sluice_err err = SLUICE_E_NOMEM;
    int64_t n = 0;

    (void)state;
    put_model(path_a, SL_TYPE_F32, true, false);
    put_model(path_b, SL_TYPE_F16, false, false);
    for (; err != SLUICE_OK; n++) {
        struct sl_gguf *g = open_path(path_b), *from = open_path(path_a);

        atomic_store(&budget.fail_after, n);
        err = sl_gguf_graft(g, from, 1, &error);
        atomic_store(&budget.fail_after, -1);
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        sl_gguf_close(g);
        assert_int_equal(sl_budget_used(&budget), 0);
        assert_true(n < 100);
    }
    assert_true(n > 3);
}

/* ---- metadata --------------------------------------------------------------------------------
 */

static void put_keys(struct gguf_build *b, int change)
{
    gb_begin(b, 3);
    gb_kv_str(b, "s", change == 1 ? "abd" : "abc");
    gb_kv_int(b, "i", change == 9 ? SL_GGUF_I16 : SL_GGUF_U32, change == 2 ? 8 : 7);
    gb_kv_f32(b, "f", change == 3 ? -0.0f : 0.0f);
    gb_kv_bool(b, "b", change != 4);
    gb_kv_i32s(b, "is", (const int32_t[]){1, change == 5 ? 3 : 2}, 2);
    gb_kv_strs(b, "ss", (const char *const[]){"a", change == 6 ? "d" : "bc"}, 2);
    gb_kv_array(b, "n", SL_GGUF_ARRAY, 2);
    gb_u32(b, SL_GGUF_STRING);
    gb_u64(b, 1);
    gb_str(b, change == 7 ? "deeq" : "deep");
    gb_u32(b, SL_GGUF_U8);
    gb_u64(b, 2);
    gb_uint(b, change == 8 ? 0x0202 : 0x0201, 2);
}

static void test_same_value__one_change_of_each_kind__that_key_differs(void **state)
{
    static const char *const changed[] = {"", "s", "i", "f", "b", "is", "ss", "n", "n", ""};
    struct gguf_build one, two;

    (void)state;
    put_keys(&one, 0);
    struct sl_gguf *a = open_built(&one);
    for (int change = 0; change < (int)SL_ARRAY_LEN(changed); change++) {
        put_keys(&two, change);
        struct sl_gguf *b = open_built(&two);
        for (uint32_t i = 0; i < sl_gguf_n_keys(a); i++) {
            struct sl_str key = sl_gguf_key(a, i);
            uint32_t j = sl_gguf_key_index(b, key);
            assert_int_equal(j, i);
            assert_int_equal(sl_gguf_same_value(a, i, b, j), !sl_str_eq(key, changed[change]));
        }
        assert_int_equal(sl_gguf_key_index(b, SL_STR("no")), UINT32_MAX);
        sl_gguf_close(b);
        gb_end(&two);
    }
    sl_gguf_close(a);
    gb_end(&one);
}

static int graft_case_begin(void **state)
{
    path_in(path_a, "a.gguf");
    path_in(path_b, "b.gguf");
    return case_begin(state);
}

#define GRAFT_CASE_TEST(name) cmocka_unit_test_setup_teardown(name, graft_case_begin, case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAFT_TEST(test_group__names__layer_embedding_or_output),
        GRAFT_TEST(test_graft__stacked_into_single__layer_exchanged_as_a_whole),
        GRAFT_TEST(test_graft__single_into_stacked__layer_exchanged_as_a_whole),
        GRAFT_TEST(test_graft__metadata_dropped__tensors_stay),
        GRAFT_TEST(test_graft__embedding_and_output__by_themselves),
        GRAFT_TEST(test_graft__output_shared_in_one_only__embedding_and_output_together),
        GRAFT_CASE_TEST(test_graft__container_into_gguf__its_checksums_come_along),
        GRAFT_CASE_TEST(test_graft__gguf_into_container__its_own_checksums_stay),
        GRAFT_TEST(test_graft__sums_file_beside_the_model__not_used),
        GRAFT_TEST(test_graft__layer_in_neither__not_found),
        GRAFT_TEST(test_graft__other_architecture__refused),
        GRAFT_TEST(test_graft__other_number_of_weights__refused),
        GRAFT_TEST(test_graft__any_allocation_fails__an_error_and_no_leak),
        GRAFT_TEST(test_same_value__one_change_of_each_kind__that_key_differs),
    };
    return cmocka_run_group_tests_name("gguf_graft", tests, make_folder, remove_folder);
}
