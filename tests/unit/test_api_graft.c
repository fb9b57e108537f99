/* A layer taken from another file of the model, by the public API: the same file's changes nothing,
 * to the bit, whatever streams; options that make no sense are refused.
 * That a layer of another type does what it should is for tests/cli/diff.cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/sluice.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define MODEL GOLDEN "qwen3moe-Q8_0/model.gguf"
#define OTHER_TYPES GOLDEN "qwen3moe-Q4_0/model.gguf"
#define SPLIT GOLDEN "llama-KMIX-features/model-00002-of-00003.gguf"
#define N_IDS 20

static const int32_t ids[N_IDS] = {5,  17, 301, 44, 120, 8,  99,  256, 3,   200,
                                   77, 12, 13,  14, 15,  16, 100, 199, 198, 1};

static sluice_err open_grafted(const char *path, const char *other, uint32_t layer, uint32_t slots,
                               sluice_model **m, sluice_error *e)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.graft_path = other;
    o.graft_layer = layer;
    o.slots = slots;
    o.threads = 1;
    return sluice_model_open(path, &o, m, e);
}

/* Logits of all ids; the caller frees them. */
static float *logits_of(const char *path, const char *other, uint32_t layer, uint32_t slots,
                        size_t *bytes)
{
    sluice_model *m;
    sluice_session *s;
    sluice_error e;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;

    if (open_grafted(path, other, layer, slots, &m, &e)) fail_msg("%s", e.text);
    sluice_model_get_info(m, &info);
    *bytes = (size_t)N_IDS * info.n_vocab * sizeof(float);
    float *logits = malloc(*bytes);
    assert_non_null(logits);
    assert_int_equal(sluice_session_open(m, &s, &e), SLUICE_OK);
    if (sluice_session_eval(s, ids, N_IDS, logits, &e)) fail_msg("%s", e.text);
    sluice_session_close(s);
    sluice_model_close(m);
    return logits;
}

static void assert_graft(const char *path, const char *other, uint32_t layer, uint32_t slots,
                         int same)
{
    size_t bytes, grafted_bytes;
    float *plain = logits_of(path, NULL, 0, 0, &bytes);
    float *grafted = logits_of(path, other, layer, slots, &grafted_bytes);

    assert_int_equal(bytes, grafted_bytes);
    assert_int_equal(memcmp(plain, grafted, bytes) == 0, same);
    free(plain);
    free(grafted);
}

static void test_graft__from_the_same_file__same_bits(void **state)
{
    static const uint32_t layers[] = {0, 2, SLUICE_GRAFT_EMBEDDING, SLUICE_GRAFT_OUTPUT};

    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        assert_graft(MODEL, MODEL, layers[i], 0, 1);
        assert_graft(MODEL, MODEL, layers[i], 10, 1);
    }
}

static void test_graft__split_model__same_bits(void **state)
{
    (void)state;
    assert_graft(SPLIT, SPLIT, 1, 0, 1);
}

static void test_graft__layer_of_other_weights__other_logits_streamed_alike(void **state)
{
    size_t bytes;
    float *memory = logits_of(MODEL, OTHER_TYPES, 1, 0, &bytes);
    float *streamed = logits_of(MODEL, OTHER_TYPES, 1, 10, &bytes);

    (void)state;
    assert_memory_equal(memory, streamed, bytes);
    free(memory);
    free(streamed);
    assert_graft(MODEL, OTHER_TYPES, 1, 0, 0);
}

static void test_graft__plan__of_the_model_with_the_layer(void **state)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_plan plain = SLUICE_PLAN_INIT, grafted = SLUICE_PLAN_INIT;
    sluice_error e;

    (void)state;
    assert_int_equal(sluice_memory_plan(MODEL, &o, &plain, &e), SLUICE_OK);
    o.graft_path = OTHER_TYPES;
    o.graft_layer = 1;
    assert_int_equal(sluice_memory_plan(MODEL, &o, &grafted, &e), SLUICE_OK);
    assert_true(grafted.model_expert_bytes < plain.model_expert_bytes);
}

static void assert_refused(const char *other, uint32_t layer, sluice_err code, const char *part)
{
    sluice_model *m;
    sluice_error e;

    assert_int_equal(open_grafted(MODEL, other, layer, 0, &m, &e), code);
    assert_null(m);
    if (!strstr(e.text, part)) fail_msg("'%s' does not mention '%s'", e.text, part);
}

static void test_graft__nonsense__refused_with_a_sentence(void **state)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_model *m;
    sluice_error e;

    (void)state;
    assert_refused(MODEL, 99, SLUICE_E_NOT_FOUND, "neither has a layer 99");
    assert_refused(MODEL, SLUICE_GRAFT_OUTPUT + 1, SLUICE_E_ARG, "graft_layer is 65538");
    assert_refused("nowhere.gguf", 0, SLUICE_E_NOT_FOUND, "nowhere.gguf");
    assert_refused(GOLDEN "mixtral-Q8_0/model.gguf", 0, SLUICE_E_FORMAT, "architectures");
    o.reserved = 1;
    assert_int_equal(sluice_model_open(MODEL, &o, &m, &e), SLUICE_E_ARG);
    assert_null(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graft__from_the_same_file__same_bits),
        cmocka_unit_test(test_graft__split_model__same_bits),
        cmocka_unit_test(test_graft__layer_of_other_weights__other_logits_streamed_alike),
        cmocka_unit_test(test_graft__plan__of_the_model_with_the_layer),
        cmocka_unit_test(test_graft__nonsense__refused_with_a_sentence),
    };
    return cmocka_run_group_tests_name("api_graft", tests, NULL, NULL);
}
