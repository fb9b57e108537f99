/* Sources of packing: a GGUF with stacked, fused or single experts, a folder and a container give
 * the same tensors under the same names, in a container's order, with the same values; what cannot
 * be taken apart is refused by name; the checksum tells versions apart; a damaged container is
 * found when it is read. */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/pack_case.h"

#include "formats/hf_model.h"
#include "formats/sums.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/safetensors/"

/* ---- names and order ------------------------------------------------------------------------- */

static void test_open__stacked_experts__each_part_by_itself_in_order(void **state)
{
    static const char *const names[] = {"token_embd.weight",
                                        "blk.0.attn_norm.weight",
                                        "blk.0.attn_q.weight",
                                        "blk.0.attn_output.weight",
                                        "blk.0.ffn_gate_inp.weight",
                                        "blk.1.ssm_conv1d.weight",
                                        "output.weight",
                                        "blk.0.ffn_gate.0.weight",
                                        "blk.0.ffn_up.0.weight",
                                        "blk.0.ffn_down.0.weight",
                                        "blk.0.ffn_gate.1.weight"};
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    struct sl_source *s = pc_open(pc_path("m.gguf"));
    assert_int_equal(sl_source_n_tensors(s), 7 + 2 * 4 * 3);
    for (uint32_t i = 0; i < SL_ARRAY_LEN(names); i++)
        if (!sl_str_eq(sl_source_tensor(s, i)->name, names[i]))
            fail_msg("%u is %s", i, sl_source_tensor(s, i)->name.p);
    const struct sl_source_tensor *t = sl_source_tensor(s, pc_find(s, "blk.1.ffn_down.3.weight"));
    assert_int_equal(t->layer, 1);
    assert_int_equal(t->expert, 3);
    assert_int_equal(t->part, 2);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->rows, 64);
    assert_int_equal(t->cols, 96);
    assert_int_equal(t->bytes, 64 * 96 * 4);
    assert_int_equal(sl_source_find(s, SL_STR("blk.1.ffn_down_exps.weight")), UINT32_MAX);
    assert_string_equal(sl_source_kind(s), "GGUF");
    sl_source_close(s);
}

/* Values of a tensor of a model made by pc_build: those of tensor i from element k on. */
static void assert_values(const struct sl_source *s, const char *name, uint32_t i, uint64_t k)
{
    uint32_t index = pc_find(s, name), seed = 77 + i;
    const struct sl_source_tensor *t = sl_source_tensor(s, index);
    float *x = pc_values(s, index);

    for (uint64_t at = 0; at < k; at++) (void)pc_random(&seed);
    for (uint64_t at = 0; at < t->rows * t->cols; at++) {
        float wanted = pc_random(&seed);

        if (x[at] != wanted) fail_msg("%s, element %llu", name, (unsigned long long)at);
    }
    free(x);
}

static void test_rows__stacked_experts__their_slices(void **state)
{
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    struct sl_source *s = pc_open(pc_path("m.gguf"));
    assert_values(s, "blk.0.ffn_down.0.weight", 7, 0);
    assert_values(s, "blk.0.ffn_down.3.weight", 7, 3 * 64 * 96);
    assert_values(s, "blk.1.ffn_up.2.weight", 11, 2 * 64 * 96);
    assert_values(s, "output.weight", 12, 0);
    float part[2 * 64], *x = pc_values(s, pc_find(s, "blk.0.ffn_gate.1.weight"));
    unsigned char stage[2 * 64 * 4];
    assert_int_equal(
        sl_source_rows(s, (struct sl_source_span){pc_find(s, "blk.0.ffn_gate.1.weight"), 41, 2},
                       stage, part, &error),
        0);
    assert_memory_equal(part, x + 41 * 64, sizeof part);
    assert_int_equal(
        sl_source_bytes(s, pc_find(s, "blk.0.ffn_gate.1.weight"), 41 * 256, 512, stage, &error), 0);
    assert_memory_equal(stage, x + 41 * 64, sizeof stage);
    free(x);
    sl_source_close(s);
}

static void test_rows__fused_gate_and_up__halves_of_each_expert(void **state)
{
    static const struct pc_tensor t[] = {{"blk.0.ffn_gate_up_exps.weight", {64, 24, 3}, 3},
                                         {"blk.0.ffn_down_exps.weight", {32, 64, 3}, 3}};
    (void)state;
    pc_write_model("m.gguf", t, 2);
    struct sl_source *s = pc_open(pc_path("m.gguf"));
    assert_int_equal(sl_source_n_tensors(s), 9);
    assert_values(s, "blk.0.ffn_gate.0.weight", 0, 0);
    assert_values(s, "blk.0.ffn_up.0.weight", 0, 12 * 64);
    assert_values(s, "blk.0.ffn_gate.2.weight", 0, 2 * 24 * 64);
    assert_values(s, "blk.0.ffn_up.2.weight", 0, 2 * 24 * 64 + 12 * 64);
    sl_source_close(s);
}

static void test_open__single_experts_in_any_order__sorted(void **state)
{
    static const struct pc_tensor t[] = {
        {"blk.2.ffn_down.1.weight", {32, 64, 1}, 2}, {"blk.2.ffn_gate.10.weight", {64, 32, 1}, 2},
        {"blk.2.ffn_gate.1.weight", {64, 32, 1}, 2}, {"blk.2.ffn_down.10.weight", {32, 64, 1}, 2},
        {"blk.1.ffn_up.700.weight", {64, 32, 1}, 2}, {"blk.2.ffn_down.weight", {32, 64, 1}, 2},
    };
    static const char *const names[] = {"blk.2.ffn_down.weight",    "blk.1.ffn_up.700.weight",
                                        "blk.2.ffn_gate.1.weight",  "blk.2.ffn_down.1.weight",
                                        "blk.2.ffn_gate.10.weight", "blk.2.ffn_down.10.weight"};
    (void)state;
    pc_write_model("m.gguf", t, SL_ARRAY_LEN(t));
    struct sl_source *s = pc_open(pc_path("m.gguf"));
    for (uint32_t i = 0; i < SL_ARRAY_LEN(names); i++)
        if (!sl_str_eq(sl_source_tensor(s, i)->name, names[i])) fail_msg("%u", i);
    assert_values(s, "blk.2.ffn_gate.10.weight", 1, 0);
    sl_source_close(s);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void assert_refused(const struct pc_tensor *t, size_t n, sluice_err wanted, const char *part)
{
    struct sl_source *s = NULL;

    pc_write_model("m.gguf", t, n);
    pc_assert_error(sl_source_open(pc_path("m.gguf"), &budget, &error, &s), wanted, part);
    assert_null(s);
}

static void test_open__experts_of_another_kind__refused_by_name(void **state)
{
    static const struct pc_tensor bias = {"blk.0.ffn_up_exps.bias", {64, 4, 1}, 2};
    static const struct pc_tensor scale = {"blk.0.ffn_gate.3.scale", {1, 1, 1}, 1};
    static const struct pc_tensor odd = {"blk.0.ffn_gate_up_exps.weight", {64, 3, 2}, 3};
    static const struct pc_tensor layer = {"blk.512.ffn_gate_exps.weight", {64, 4, 2}, 3};
    static const struct pc_tensor many = {"blk.0.ffn_gate_exps.weight", {32, 1, 1025}, 3};
    static const struct pc_tensor twice[] = {{"blk.0.ffn_gate_exps.weight", {64, 4, 2}, 3},
                                             {"blk.0.ffn_gate.1.weight", {64, 4, 1}, 2}};
    (void)state;
    assert_refused(&bias, 1, SLUICE_E_UNSUPPORTED, "'blk.0.ffn_up_exps.bias'");
    assert_refused(&scale, 1, SLUICE_E_UNSUPPORTED, "'blk.0.ffn_gate.3.scale'");
    assert_refused(&odd, 1, SLUICE_E_FORMAT, "gate and up");
    assert_refused(&layer, 1, SLUICE_E_LIMIT, "beyond the limits");
    assert_refused(&many, 1, SLUICE_E_LIMIT, "beyond the limits");
    assert_refused(twice, 2, SLUICE_E_FORMAT, "'blk.0.ffn_gate.1.weight' is there twice");
}

/* ---- folders --------------------------------------------------------------------------------- */

static void test_open__folder__metadata_vocabulary_and_rows(void **state)
{
    struct sl_vocab v, w;
    struct sl_hf *hf = NULL;
    struct sl_source *s = pc_open(GOLDEN "qwen3_moe");
    const struct sl_gguf *g = sl_source_meta(s);
    uint32_t n = 0;
    (void)state;
    assert_string_equal(sl_source_kind(s), "safetensors");
    assert_int_equal(sl_gguf_u32(g, "qwen3moe.expert_count", &n, &error), SLUICE_OK);
    assert_int_equal(n, 4);
    assert_int_equal(sl_hf_open(GOLDEN "qwen3_moe", &budget, &error, &hf), SLUICE_OK);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK);
    assert_int_equal(sl_hf_vocab(hf, &w, &error), SLUICE_OK);
    assert_true(sl_str_same(v.pre, w.pre) && sl_str_same(v.chat_template, w.chat_template));
    assert_int_equal(v.n_tokens, w.n_tokens);
    assert_int_equal(v.n_merges, w.n_merges);
    for (uint32_t i = 0; i < v.n_tokens; i++) {
        assert_true(sl_str_same(v.tokens[i], w.tokens[i]));
        assert_int_equal(v.kinds[i], w.kinds[i]);
    }
    for (uint32_t i = 0; i < v.n_merges; i++) assert_true(sl_str_same(v.merges[i], w.merges[i]));
    assert_int_equal(v.bos_id, w.bos_id);
    assert_int_equal(v.eos_id, w.eos_id);
    assert_int_equal(v.add_bos, w.add_bos);
    for (uint32_t i = 0; i < sl_hf_n_tensors(hf); i++) {
        const struct sl_hf_tensor *t = sl_hf_tensor(hf, i);
        float *x, y[1 << 13];
        if (!sl_str_eq(t->name, "blk.1.ffn_down_exps.weight")) continue;
        x = pc_values(s, pc_find(s, "blk.1.ffn_down.2.weight"));
        assert_int_equal(sl_hf_read_rows(hf, t, 2 * t->dims[1], t->dims[1], y, &error), SLUICE_OK);
        assert_memory_equal(x, y, t->dims[0] * t->dims[1] * sizeof *x);
        free(x);
    }
    sl_hf_close(hf);
    sl_source_close(s);
}

/* Where bytes can be had, they are the rows' in the type that the tensor claims. */
static void test_bytes__folders_of_every_family__as_rows(void **state)
{
    static const char *const families[] = {"granitemoeshared", "mixtral", "olmoe", "qwen2_moe"};
    (void)state;
    for (size_t f = 0; f < SL_ARRAY_LEN(families); f++) {
        char path[PC_PATH_BYTES];
        uint32_t whole = 0;

        snprintf(path, sizeof path, GOLDEN "%s", families[f]);
        struct sl_source *s = pc_open(path);
        assert_false(sl_gguf_has(sl_source_meta(s), "tokenizer.ggml.tokens"));
        for (uint32_t i = 0; i < sl_source_n_tensors(s); i++) {
            const struct sl_source_tensor *t = sl_source_tensor(s, i);
            float *x = pc_values(s, i), *y = malloc(t->rows * t->cols * sizeof *y);
            unsigned char *bytes = malloc(t->bytes);

            assert_true(y != NULL && bytes != NULL);
            whole += t->whole;
            if (t->whole) {
                assert_int_equal(sl_source_bytes(s, i, 0, t->bytes, bytes, &error), SLUICE_OK);
                sl_type_decode_rows(t->type, bytes, (uint32_t)t->cols, 0, t->rows, y);
                assert_memory_equal(x, y, t->rows * t->cols * sizeof *x);
            }
            free(x);
            free(y);
            free(bytes);
        }
        assert_true(whole > 0);
        sl_source_close(s);
    }
}

/* ---- containers ------------------------------------------------------------------------------ */

static void test_open__container_of_a_gguf__the_same_tensors(void **state)
{
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&(struct pc_job){.from = "m.gguf", .to = "k.sluice"});
    struct sl_source *a = pc_open(pc_path("m.gguf")), *b = pc_open(pc_path("k.sluice"));
    assert_string_equal(sl_source_kind(b), "container");
    assert_int_equal(sl_source_n_tensors(a), sl_source_n_tensors(b));
    for (uint32_t i = 0; i < sl_source_n_tensors(a); i++) {
        const struct sl_source_tensor *t = sl_source_tensor(a, i), *u = sl_source_tensor(b, i);
        float *x = pc_values(a, i), *y = pc_values(b, i);

        assert_true(sl_str_same(t->name, u->name));
        assert_memory_equal(t->dims, u->dims, sizeof t->dims);
        assert_int_equal(t->expert, u->expert);
        assert_memory_equal(x, y, t->rows * t->cols * sizeof *x);
        free(x);
        free(y);
    }
    sl_source_close(a);
    sl_source_close(b);
}

static void test_rows__interleaved_type__any_range(void **state)
{
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(
        &(struct pc_job){.from = "m.gguf", .to = "k.sluice", .recipe = "blk.0.attn_q.* sq4_32"});
    struct sl_source *s = pc_open(pc_path("k.sluice"));
    uint32_t index = pc_find(s, "blk.0.attn_q.weight");
    const struct sl_source_tensor *t = sl_source_tensor(s, index);
    assert_int_equal(t->type, SL_SQ4_32);
    float *all = pc_values(s, index), some[50 * 64];
    for (uint64_t first = 0; first < 50; first += 7) {
        for (uint64_t n = 1; n <= 50 - first; n += 5) {
            unsigned char *stage = malloc(sl_source_stage_bytes(t, n));
            assert_int_equal(
                sl_source_rows(s, (struct sl_source_span){index, first, n}, stage, some, &error),
                SLUICE_OK);
            assert_memory_equal(some, all + first * 64, n * 64 * sizeof *all);
            free(stage);
        }
    }
    free(all);
    sl_source_close(s);
}

static void test_rows__flipped_bit_in_a_container__found(void **state)
{
    size_t n;
    uint32_t found = 0;
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&(struct pc_job){.from = "m.gguf", .to = "k.sluice"});
    unsigned char *p = pc_read("k.sluice", &n);
    struct sl_source *s = pc_open(pc_path("k.sluice"));
    uint32_t index = pc_find(s, "blk.1.ffn_up.2.weight");
    float *x = pc_values(s, index);
    for (size_t i = 0; i + 64 < n && found == 0; i++)
        if (memcmp(p + i, x, 64) == 0) found = (uint32_t)i;
    assert_true(found > 0);
    sl_source_close(s);
    FILE *f = fopen(pc_path("k.sluice"), "r+b");
    assert_non_null(f);
    fseek(f, (long)found + 5, SEEK_SET);
    fputc(p[found + 5] ^ 16, f);
    fclose(f);
    s = pc_open(pc_path("k.sluice"));
    unsigned char *stage = malloc(64 * 96 * 4);
    pc_assert_error(sl_source_rows(s, (struct sl_source_span){index, 80, 4}, stage, x, &error),
                    SLUICE_E_CORRUPT, "does not match its checksum");
    assert_int_equal(error.layer, 1);
    assert_int_equal(error.expert, 2);
    assert_int_equal(sl_source_rows(s, (struct sl_source_span){index - 3, 0, 4}, stage, x, &error),
                     SLUICE_OK);
    free(stage);
    free(x);
    free(p);
    sl_source_close(s);
}

/* ---- sums files ------------------------------------------------------------------------------ */

static void make_sums(const char *name)
{
    struct sl_gguf *g = NULL;

    assert_int_equal(sl_gguf_open(pc_path(name), &budget, &error, &g), SLUICE_OK);
    assert_int_equal(sl_sums_make(g, &budget, NULL, NULL, &error), SLUICE_OK);
    sl_gguf_close(g);
}

static void test_rows__gguf_with_a_sums_file__damage_is_found(void **state)
{
    struct gguf_build b;
    float x[96];
    unsigned char stage[96 * 4];
    (void)state;
    pc_build(&b, pc_stacked, PC_STACKED);
    assert_true(gb_write(&b, pc_path("m.gguf")));
    make_sums("m.gguf");
    struct sl_source *s = pc_open(pc_path("m.gguf"));
    for (uint32_t i = 0; i < sl_source_n_tensors(s); i++) free(pc_values(s, i));
    uint32_t damaged = pc_find(s, "blk.1.ffn_down.2.weight");
    float *down = pc_values(s, damaged);
    sl_source_close(s);
    unsigned char *at = memmem(b.p, b.n, down + 96, 256); /* its second row */
    assert_non_null(at);
    at[3] ^= 1;
    assert_true(gb_write(&b, pc_path("m.gguf")));
    s = pc_open(pc_path("m.gguf"));
    struct sl_source_span rows = {damaged, 60, 1}; /* another row of the same expert */
    pc_assert_error(sl_source_rows(s, rows, stage, x, &error), SLUICE_E_CORRUPT,
                    "tensor 'blk.1.ffn_down.2.weight': ");
    assert_int_equal(error.layer, 1);
    assert_int_equal(error.expert, 2);
    rows.index = pc_find(s, "blk.1.ffn_down.1.weight");
    assert_int_equal(sl_source_rows(s, rows, stage, x, &error), SLUICE_OK);
    sl_source_close(s);
    free(down);
    gb_end(&b);
}

static void test_open__sums_file_of_another_model__refused(void **state)
{
    struct sl_source *s = NULL;
    (void)state;
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    make_sums("m.gguf");
    pc_write_model("m.gguf", pc_stacked, PC_STACKED - 1);
    assert_int_equal(sl_source_open(pc_path("m.gguf"), &budget, &error, &s), SLUICE_E_CHANGED);
    assert_null(s);
}

/* ---- the checksum ---------------------------------------------------------------------------- */

static uint64_t sum_of(const char *name)
{
    uint64_t sum = 0;
    struct sl_source *s = pc_open(pc_path(name));

    assert_int_equal(sl_source_sum(s, &error, &sum), SLUICE_OK);
    sl_source_close(s);
    return sum;
}

static void test_sum__copy_or_change__same_or_another(void **state)
{
    struct gguf_build b;
    (void)state;
    pc_build(&b, pc_stacked, PC_STACKED);
    assert_true(gb_write(&b, pc_path("a.gguf")) && gb_write(&b, pc_path("b.gguf")));
    assert_true(sum_of("a.gguf") == sum_of("b.gguf"));
    b.p[b.n - 1] ^= 1; /* the last weight */
    assert_true(gb_write(&b, pc_path("b.gguf")));
    assert_false(sum_of("a.gguf") == sum_of("b.gguf"));
    b.p[b.n - 1] ^= 1;
    gb_uint(&b, 0, 1); /* the size */
    assert_true(gb_write(&b, pc_path("b.gguf")));
    assert_false(sum_of("a.gguf") == sum_of("b.gguf"));
    gb_end(&b);
    pc_build(&b, pc_stacked, PC_STACKED);
    unsigned char *name = memmem(b.p, b.n, "qwen3moe", 8);
    assert_non_null(name);
    name[7] = 'f'; /* metadata */
    assert_true(gb_write(&b, pc_path("b.gguf")));
    assert_false(sum_of("a.gguf") == sum_of("b.gguf"));
    gb_end(&b);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pc_set_up, pc_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_open__stacked_experts__each_part_by_itself_in_order),
        TEST(test_rows__stacked_experts__their_slices),
        TEST(test_rows__fused_gate_and_up__halves_of_each_expert),
        TEST(test_open__single_experts_in_any_order__sorted),
        TEST(test_open__experts_of_another_kind__refused_by_name),
        TEST(test_open__folder__metadata_vocabulary_and_rows),
        TEST(test_bytes__folders_of_every_family__as_rows),
        TEST(test_open__container_of_a_gguf__the_same_tensors),
        TEST(test_rows__interleaved_type__any_range),
        TEST(test_rows__flipped_bit_in_a_container__found),
        TEST(test_rows__gguf_with_a_sums_file__damage_is_found),
        TEST(test_open__sums_file_of_another_model__refused),
        TEST(test_sum__copy_or_change__same_or_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
