/* A model whose matrices have the container's own types, described: what is cut is cut between
 * eights of rows, sizes are whole eights, and where rows are read one by one or added up as vectors
 * such a type is refused with a sentence. */
#define _GNU_SOURCE /* mkdtemp */
#include "engine/kernels/kernels.h"
#include "engine/model.h"
#include "tests/support/container_case.h"

#define COLS 64
#define FF 64

/* What a test changes of a model with one layer: fused q, k and v, and three experts. */
struct variant {
    uint32_t head; /* elements of a head; there are two of queries and one of keys */
    uint32_t embd, norm, qkv, gate;
    bool fused;       /* gate and up of the one expert in a tensor */
    uint32_t ff;      /* rows of gate */
    const char *text; /* of the error that it must come to */
};

static const struct variant good = {.head = 32,
                                    .embd = SL_TYPE_F16,
                                    .norm = SL_TYPE_F32,
                                    .qkv = SL_SQ4_32,
                                    .gate = SL_SQ3_32,
                                    .ff = FF};

static void put(const char *name, uint32_t type, uint64_t cols, uint64_t rows, int32_t expert)
{
    uint32_t i = cc.plan.n_tensors;
    case_tensor(type, cols, rows, expert < 0 ? -1 : 0, expert);
    snprintf(cc.names[i], sizeof cc.names[i], "%s", name);
    cc.tensors[i].name.n = strlen(name);
}

static void metadata(const struct variant *v)
{
    struct gguf_build *b = &cc.gguf;
    gb_begin(b, 3);
    gb_kv_str(b, "general.architecture", "llama");
    gb_kv_u32(b, "llama.block_count", 1);
    gb_kv_u32(b, "llama.context_length", 128);
    gb_kv_u32(b, "llama.embedding_length", COLS);
    gb_kv_u32(b, "llama.feed_forward_length", FF);
    gb_kv_u32(b, "llama.attention.head_count", 2);
    gb_kv_u32(b, "llama.attention.head_count_kv", 1);
    gb_kv_u32(b, "llama.attention.key_length", v->head);
    gb_kv_u32(b, "llama.attention.value_length", v->head);
    gb_kv_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    gb_kv_u32(b, "llama.expert_count", v->fused ? 1 : 3);
    gb_kv_u32(b, "llama.expert_used_count", 1);
}

static void tensors(const struct variant *v)
{
    char name[48];
    put("token_embd.weight", v->embd, COLS, 16, -1);
    put("output.weight", SL_SQ6_32, COLS, 16, -1);
    put("output_norm.weight", v->norm, COLS, 1, -1);
    put("blk.0.attn_norm.weight", SL_TYPE_F32, COLS, 1, -1);
    put("blk.0.attn_qkv.weight", v->qkv, COLS, 4 * v->head, -1);
    put("blk.0.attn_output.weight", SL_TYPE_F32, 2 * v->head, COLS, -1);
    put("blk.0.ffn_norm.weight", SL_TYPE_F32, COLS, 1, -1);
    put("blk.0.ffn_gate_inp.weight", SL_TYPE_F32, COLS, v->fused ? 1 : 3, -1);
    if (v->fused) {
        put("blk.0.ffn_gate_up_exps.weight", v->gate, COLS, 2 * v->ff, -1);
        put("blk.0.ffn_down_exps.weight", SL_TYPE_F32, v->ff, COLS, -1);
    }
    for (int32_t x = 0; x < 3 && !v->fused; x++) {
        static const char *const part[] = {"gate", "up", "down"};
        for (int p = 0; p < 3; p++) {
            snprintf(name, sizeof name, "blk.0.ffn_%s.%d.weight", part[p], (int)x);
            put(name, p < 2 ? v->gate : SL_TYPE_F32, p < 2 ? COLS : v->ff, p < 2 ? v->ff : COLS, x);
        }
    }
}

/* Writes the model of v, and describes it. */
static sluice_err describe(const struct variant *v, struct sl_model *m, struct sl_gguf **g)
{
    memset(&cc, 0, sizeof cc);
    metadata(v);
    cc.meta = open_built(&cc.gguf);
    cc.plan = (struct sl_container_plan){.meta = cc.meta, .tensors = cc.tensors};
    tensors(v);
    path_in(cc.path, "m.sluice");
    case_write_ok();
    sl_gguf_close(cc.meta);
    gb_end(&cc.gguf);
    *m = (struct sl_model){0};
    assert_int_equal(sl_gguf_open(cc.path, &budget, &error, g), SLUICE_OK);
    return sl_model_describe(m, *g, &budget, NULL, &error);
}

static void end(struct sl_model *m, struct sl_gguf *g)
{
    sl_model_deinit(m);
    sl_gguf_close(g);
    case_clean();
}

static const struct sl_weight *weight_of(const struct sl_model *m, const struct sl_matrix *w)
{
    for (uint64_t i = 0; i < m->n_weights; i++)
        if (m->weights[i].slot == (const void **)&w->w) return &m->weights[i];
    fail_msg("not bound");
    return NULL;
}

static void test_describe__own_types__cut_and_sized_by_eight_rows(void **state)
{
    (void)state;
    struct sl_model m;
    struct sl_gguf *g;
    struct variant v = good;
    uint64_t band;
    v.head = 24;
    v.ff = 36; /* four rows of the last eight are missing */
    sluice_err err = describe(&v, &m, &g);
    if (err != SLUICE_OK) fail_msg("%s", error.text);
    const struct sl_layer *y = &m.layers[0];
    const struct sl_matrix *qkv[] = {&y->wq, &y->wk, &y->wv};
    static const uint32_t rows[] = {48, 24, 24};
    assert_true(sl_sq_band_bytes(SL_SQ4_32, COLS, &band));
    uint64_t offset = 0;
    for (int i = 0; i < 3; i++) {
        const struct sl_weight *w = weight_of(&m, qkv[i]);
        assert_int_equal(qkv[i]->rows, rows[i]);
        assert_int_equal(qkv[i]->row_bytes, band / 8);
        assert_int_equal(w->src_offset, offset);
        assert_int_equal(w->src_bytes, rows[i] / 8 * band);
        offset += w->src_bytes;
    }
    assert_true(sl_sq_band_bytes(SL_SQ3_32, COLS, &band));
    assert_int_equal(y->experts.part[0].bytes, 5 * band);
    assert_int_equal(y->experts.part[2].bytes, 36 * COLS * 4);
    end(&m, g);
}

static void test_describe__types_by_use__forms_of_activations_that_are_needed(void **state)
{
    (void)state;
    struct sl_model m;
    struct sl_gguf *g;
    sluice_err err = describe(&good, &m, &g);
    if (err != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(m.dense_acts,
                     sl_k_act_bit(SL_SQ4_32) | sl_k_act_bit(SL_SQ6_32) | sl_k_act_bit(SL_TYPE_F32));
    assert_int_equal(m.expert_in_acts, sl_k_act_bit(SL_SQ3_32));
    assert_int_equal(m.expert_out_acts, sl_k_act_bit(SL_TYPE_F32));
    end(&m, g);
}

static void test_describe__own_types_where_rows_stand_alone__refused(void **state)
{
    (void)state;
    struct variant bad[5];
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) bad[i] = good;
    bad[0].head = 20; /* k would begin at row 40, v at row 60 */
    bad[0].text = "blk.0.attn_qkv.weight, of type SQ4_32, has to be cut at row 60";
    bad[1].embd = SL_SQ6_32;
    bad[1].text = "token_embd.weight is of type SQ6_32, which interleaves rows";
    bad[2].norm = SL_SQ6_32;
    bad[2].text = "output_norm.weight is a vector of type SQ6_32";
    bad[3].fused = true;
    bad[3].ff = 36; /* up would begin at row 36 */
    bad[3].text = "the expert tensors of layer 0 do not fit together";
    bad[4].fused = true;
    bad[4].text = NULL; /* up begins at row 64: fine */
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_model m;
        struct sl_gguf *g;
        sluice_err err = describe(&bad[i], &m, &g);
        if (bad[i].text == NULL) {
            if (err != SLUICE_OK) fail_msg("%s", error.text);
        } else {
            if (err == SLUICE_OK || strstr(error.text, bad[i].text) == NULL)
                fail_msg("%zu: %s; wanted: %s", i, error.text, bad[i].text);
        }
        end(&m, g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_describe__own_types__cut_and_sized_by_eight_rows,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_describe__types_by_use__forms_of_activations_that_are_needed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_describe__own_types_where_rows_stand_alone__refused,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
