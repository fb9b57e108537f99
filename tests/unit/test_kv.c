/* The KV cache: rows never overlap, views show what rows hold, memory follows the context and is
 * charged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kv.h"

struct fixture {
    struct sl_model m;
    struct sl_layer layers[3];
    struct sl_budget budget;
};

/* Three layers with different numbers of KV heads; key and value heads of awkward, different sizes.
 */
static void begin(struct fixture *f, uint32_t head_k, uint32_t head_v)
{
    memset(f, 0, sizeof *f);
    sl_budget_init(&f->budget, UINT64_MAX);
    f->m.n_layers = 3;
    f->m.head_k = head_k;
    f->m.head_v = head_v;
    f->m.layers = f->layers;
    for (uint32_t l = 0; l < 3; l++) f->layers[l].n_kv_heads = l + 1;
}

/* Visits every row of n positions in a fixed order and calls with its number. */
typedef void visit_fn(struct sl_kv_row row, uint64_t data_bytes, uint64_t scale_bytes,
                      uint32_t number);

static const uint32_t element_bytes[SL_KV_TYPES] = {4, 2, 1};

static void visit_rows(const struct sl_kv *kv, uint32_t n, visit_fn *visit)
{
    uint32_t number = 0;
    for (uint32_t pos = 0; pos < n; pos++)
        for (uint32_t l = 0; l < 3; l++)
            for (uint32_t h = 0; h <= l; h++)
                for (int side = 0; side < 2; side++) {
                    uint64_t groups = (kv->head[side] + SL_KV_GROUP - 1) / SL_KV_GROUP;
                    visit(sl_kv_row(kv, l, h, (enum sl_kv_side)side, pos),
                          kv->head[side] * element_bytes[kv->type],
                          kv->type == SL_KV_Q8 ? groups * 2 : 0, number++);
                }
}

static void paint(struct sl_kv_row row, uint64_t data_bytes, uint64_t scale_bytes, uint32_t number)
{
    memset(row.data, (int)(number % 251), data_bytes);
    if (scale_bytes) memset(row.scales, (int)((number + 7) % 251), scale_bytes);
}

static void check(struct sl_kv_row row, uint64_t data_bytes, uint64_t scale_bytes, uint32_t number)
{
    const uint8_t *d = row.data, *s = (const void *)row.scales;
    for (uint64_t i = 0; i < data_bytes; i++) assert_int_equal(d[i], number % 251);
    for (uint64_t i = 0; i < scale_bytes; i++) assert_int_equal(s[i], (number + 7) % 251);
}

static void test_rows__all_types_and_sizes__never_overlap(void **state)
{
    (void)state;
    static const uint32_t heads[][2] = {{64, 64}, {48, 80}, {1, 3}, {112, 96}, {33, 31}};
    for (int type = 0; type < SL_KV_TYPES; type++)
        for (size_t i = 0; i < SL_ARRAY_LEN(heads); i++) {
            struct fixture f;
            begin(&f, heads[i][0], heads[i][1]);
            struct sl_kv kv;
            assert_int_equal(sl_kv_init(&kv, &f.m, (enum sl_kv_type)type, 200, &f.budget),
                             SLUICE_OK);
            assert_int_equal(sl_kv_grow(&kv, 200), SLUICE_OK);
            visit_rows(&kv, 200, paint);
            visit_rows(&kv, 200, check);
            sl_kv_deinit(&kv);
            assert_int_equal(sl_budget_used(&f.budget), 0);
        }
}

static void test_view__of_a_block__shows_the_rows(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 48, 80);
    struct sl_kv kv;
    assert_int_equal(sl_kv_init(&kv, &f.m, SL_KV_Q8, 130, &f.budget), SLUICE_OK);
    assert_int_equal(sl_kv_grow(&kv, 130), SLUICE_OK);
    for (uint32_t pos = 0; pos < 130; pos++) {
        struct sl_k_kv v = sl_kv_view(&kv, 2, 1, SL_KV_VALUES, pos / SL_KV_BLOCK, 2);
        struct sl_kv_row row = sl_kv_row(&kv, 2, 1, SL_KV_VALUES, pos);
        assert_ptr_equal((const uint8_t *)v.data + (pos % SL_KV_BLOCK) * 80, row.data);
        assert_ptr_equal(v.scales + (pos % SL_KV_BLOCK) * 3, row.scales);
        assert_int_equal(v.head_dim, 80);
    }
    sl_kv_deinit(&kv);
}

static void test_grow__by_small_steps__charged_as_it_grows_and_kept(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 64, 64);
    struct sl_kv kv;
    uint32_t n_ctx = 1u << 20;
    assert_int_equal(sl_kv_init(&kv, &f.m, SL_KV_F16, n_ctx, &f.budget), SLUICE_OK);
    uint64_t empty = sl_budget_used(&f.budget);
    assert_true(empty < 65536); /* a context of a million tokens costs nothing before it is used */
    for (uint32_t n = 1; n <= 1000; n += 37) {
        assert_int_equal(sl_kv_grow(&kv, n), SLUICE_OK);
        visit_rows(&kv, n, paint);
    }
    assert_true(sl_budget_used(&f.budget) >= empty + sl_kv_bytes(&f.m, SL_KV_F16, 1000 - 36));
    assert_int_equal(sl_kv_bytes(&f.m, SL_KV_F16, 64), 64ull * 6 * 128 * 2);
    visit_rows(&kv, 963, check);
    sl_kv_shrink(&kv, 10);
    assert_true(sl_budget_used(&f.budget) < empty + 2 * sl_kv_bytes(&f.m, SL_KV_F16, 64) + 65536);
    visit_rows(&kv, 10, check);
    sl_kv_deinit(&kv);
    assert_int_equal(sl_budget_used(&f.budget), 0);
}

static void test_grow__budget_used_up__error_and_old_rows_kept(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 64, 64);
    struct sl_kv kv;
    assert_int_equal(sl_kv_init(&kv, &f.m, SL_KV_F32, 4096, &f.budget), SLUICE_OK);
    f.budget.limit_bytes = sl_budget_used(&f.budget) + sl_kv_bytes(&f.m, SL_KV_F32, 128) + 8192;
    assert_int_equal(sl_kv_grow(&kv, 128), SLUICE_OK);
    visit_rows(&kv, 128, paint);
    assert_int_equal(sl_kv_grow(&kv, 4096), SLUICE_E_BUDGET);
    visit_rows(&kv, 128, check);
    sl_kv_deinit(&kv);
}

static void test_init__allocation_fails__nothing_left(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 64, 64);
    struct sl_kv kv;
    sluice_err err = SLUICE_E_BUDGET;
    for (int n = 0; err != SLUICE_OK; n++) {
        f.budget.fail_after = n;
        err = sl_kv_init(&kv, &f.m, SL_KV_Q8, 512, &f.budget);
        if (err == SLUICE_OK) sl_kv_deinit(&kv);
        assert_int_equal(sl_budget_used(&f.budget), 0);
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows__all_types_and_sizes__never_overlap),
        cmocka_unit_test(test_view__of_a_block__shows_the_rows),
        cmocka_unit_test(test_grow__by_small_steps__charged_as_it_grows_and_kept),
        cmocka_unit_test(test_grow__budget_used_up__error_and_old_rows_kept),
        cmocka_unit_test(test_init__allocation_fails__nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
