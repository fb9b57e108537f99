/* The expert store on a golden file: a leased view holds exactly the bytes of that expert in the
 * file; failures of memory, file and caller leave nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expert_cache/expert_store.h"

#define MODEL SLUICE_SOURCE_DIR "/tests/golden/qwen3moe-Q8_0/model.gguf"
#define LAYERS 2

struct fixture {
    struct sl_budget budget;
    struct sl_gguf *g;
    struct sl_expert_shape shapes[LAYERS];
    struct sl_expert_source sources[LAYERS];
    struct sl_expert_store_config config;
};

static void describe_part(struct fixture *f, uint32_t l, uint32_t p, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s.weight", l, name);
    const struct sl_gguf_tensor *t = sl_gguf_find_tensor(f->g, full);
    assert_non_null(t);
    f->shapes[l].n_experts = (uint32_t)t->dims[2];
    f->shapes[l].part[p] =
        (struct sl_expert_part){t->type, (uint32_t)t->dims[1], (uint32_t)t->dims[0], t->row_bytes,
                                t->dims[1] * t->row_bytes};
    f->sources[l].tensor[p] = t;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    sl_budget_init(&f->budget, UINT64_MAX);
    sluice_error e;
    if (sl_gguf_open(MODEL, &f->budget, &e, &f->g) != SLUICE_OK) return 1;
    for (uint32_t l = 0; l < LAYERS; l++) {
        f->shapes[l].n_parts = 3;
        describe_part(f, l, 0, "ffn_gate_exps");
        describe_part(f, l, 1, "ffn_up_exps");
        describe_part(f, l, 2, "ffn_down_exps");
    }
    f->config = (struct sl_expert_store_config){f->g, f->shapes, f->sources, LAYERS, NULL, NULL};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sl_gguf_close(f->g);
    int left = sl_budget_used(&f->budget) != 0;
    free(f);
    return left;
}

static void test_acquire__every_expert__bytes_of_the_file(void **state)
{
    struct fixture *f = *state;
    struct sl_expert_store *s;
    sluice_error e;
    uint64_t before = sl_budget_used(&f->budget);
    assert_int_equal(sl_expert_store_open(&f->config, &f->budget, &e, &s), SLUICE_OK);
    uint64_t charged = sl_budget_used(&f->budget) - before;
    uint64_t bytes = sl_expert_shape_bytes(&f->shapes[0]) + sl_expert_shape_bytes(&f->shapes[1]);
    assert_true(charged >= bytes && charged < bytes + 4096);
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < f->shapes[l].n_experts; x++) {
            struct sl_expert_view v;
            assert_int_equal(sl_expert_acquire(s, l, x, &v, &e), SLUICE_OK);
            for (uint32_t p = 0; p < 3; p++) {
                const struct sl_gguf_tensor *t = f->sources[l].tensor[p];
                uint64_t size = f->shapes[l].part[p].bytes;
                uint8_t *want = malloc(size);
                assert_int_equal(
                    sl_file_read_at(sl_gguf_file(f->g, 0), t->offset + x * size, want, size, &e),
                    0);
                assert_memory_equal(v.part[p], want, size);
                free(want);
            }
            sl_expert_release(s, l, x);
        }
    sl_expert_store_close(s);
}

static void test_open__allocation_fails__nothing_left(void **state)
{
    struct fixture *f = *state;
    uint64_t before = sl_budget_used(&f->budget);
    struct sl_expert_store *s = NULL;
    sluice_error e;
    int n = 0;
    for (;; n++) {
        f->budget.fail_after = n;
        if (sl_expert_store_open(&f->config, &f->budget, &e, &s) == SLUICE_OK) break;
        assert_null(s);
        assert_int_equal(e.code, SLUICE_E_NOMEM);
        assert_int_equal(sl_budget_used(&f->budget), before);
        assert_true(n < 100);
    }
    assert_true(n > LAYERS);
    f->budget.fail_after = -1;
    sl_expert_store_close(s);
}

static int give_up(void *user, uint64_t bytes)
{
    (void)bytes;
    return --*(int *)user == 0;
}

static void test_open__progress_gives_up__cancelled(void **state)
{
    struct fixture *f = *state;
    int left = 5;
    f->config.progress = give_up;
    f->config.progress_user = &left;
    struct sl_expert_store *s;
    sluice_error e;
    assert_int_equal(sl_expert_store_open(&f->config, &f->budget, &e, &s), SLUICE_E_CANCELLED);
    assert_null(s);
    f->config.progress = NULL;
}

static void test_open__expert_past_the_end__error_names_layer_and_expert(void **state)
{
    struct fixture *f = *state;
    struct sl_gguf_tensor moved = *f->sources[1].tensor[2];
    uint64_t one = f->shapes[1].part[2].bytes;
    moved.offset = sl_file_bytes(sl_gguf_file(f->g, 0)) - 3 * one -
                   one / 2; /* three whole experts, then half of one */
    f->sources[1].tensor[2] = &moved;
    struct sl_expert_store *s;
    sluice_error e;
    assert_int_equal(sl_expert_store_open(&f->config, &f->budget, &e, &s), SLUICE_E_TRUNCATED);
    assert_null(s);
    assert_int_equal(e.layer, 1);
    assert_int_equal(e.expert, 3);
    assert_int_equal(e.file_offset, moved.offset + 3 * one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_acquire__every_expert__bytes_of_the_file, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_open__allocation_fails__nothing_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open__progress_gives_up__cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_open__expert_past_the_end__error_names_layer_and_expert, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
