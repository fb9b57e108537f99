/* The kernel benchmark: every kind runs on every instruction set there is, counts what it says it
 * counts, gives its memory back and refuses what the kernels do not take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/kernel_bench.h"
#include "engine/kernels/memory_bench.h"

static const struct sl_kernel_bench small[] = {
    {.what = SL_KB_MATMUL, .type = SL_TYPE_Q4_K, .rows = 11, .cols = 512},
    {.what = SL_KB_MATMUL, .type = SL_TYPE_F16, .rows = 3, .cols = 37},
    {.what = SL_KB_MATMUL, .type = SL_TYPE_MXFP4, .rows = 8, .cols = 64},
    {.what = SL_KB_MATMUL, .type = SL_SQ3_32, .rows = 11, .cols = 64},
    {.what = SL_KB_QUANTIZE, .type = 32, .rows = 1, .cols = 96},
    {.what = SL_KB_QUANTIZE, .type = 256, .rows = 1, .cols = 512},
    {.what = SL_KB_RMS_NORM, .rows = 1, .cols = 33},
    {.what = SL_KB_AXPY, .rows = 1, .cols = 33},
    {.what = SL_KB_SILU_MUL, .rows = 1, .cols = 33},
    {.what = SL_KB_EXP_SUM, .rows = 1, .cols = 33},
    {.what = SL_KB_ATTN_SCORES, .type = SL_KV_Q8, .rows = 9, .cols = 80},
    {.what = SL_KB_ATTN_VALUES, .type = SL_KV_Q8, .rows = 9, .cols = 80},
    {.what = SL_KB_ATTN_SCORES, .type = SL_KV_F16, .rows = 9, .cols = 80},
    {.what = SL_KB_ATTN_VALUES, .type = SL_KV_F32, .rows = 9, .cols = 80},
};

static void test_bench__every_kind__runs_and_gives_memory_back(void **state)
{
    (void)state;
    static const enum sl_isa isas[] = {SL_ISA_SCALAR, SL_ISA_AUTO};
    struct sl_budget budget;
    sluice_error e;
    sl_budget_init(&budget, 64u << 20);
    for (size_t i = 0; i < SL_ARRAY_LEN(small); i++)
        for (size_t k = 0; k < SL_ARRAY_LEN(isas); k++)
            for (uint32_t copies = 0; copies < 4; copies++) {
                struct sl_kernel_bench what = small[i];
                struct sl_kernel_bench_result r;
                what.n_tokens = 1 + copies;
                what.copies = copies;
                what.min_ns = 20000;
                assert_int_equal(sl_kernel_bench_run(&budget, isas[k], &what, &e, &r), SLUICE_OK);
                assert_true(r.calls >= 1 && r.bytes > 0 && r.elements > 0);
                assert_true(r.ns_best > 0 && r.ns_best <= r.ns_mean);
                assert_int_equal(budget.used_bytes, 0);
            }
}

static void test_bench__matmul__counts_weights_and_bytes(void **state)
{
    (void)state;
    struct sl_budget budget;
    struct sl_kernel_bench_result r;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    struct sl_kernel_bench what = {SL_KB_MATMUL, SL_TYPE_Q4_K, 10, 512, 3, 2, 1, NULL};
    assert_int_equal(sl_kernel_bench_run(&budget, SL_ISA_SCALAR, &what, &e, &r), SLUICE_OK);
    assert_string_equal(r.isa, "scalar");
    assert_int_equal(r.bytes, 2 * 10 * 2 * 144); /* a call goes over both copies */
    assert_int_equal(r.elements, 2 * 10 * 512 * 3);
    what.type = SL_SQ3_32; /* rows by eight */
    assert_int_equal(sl_kernel_bench_run(&budget, SL_ISA_SCALAR, &what, &e, &r), SLUICE_OK);
    assert_int_equal(r.bytes, 2 * 16 * (2 + 16 * 13));
    assert_int_equal(r.elements, 2 * 10 * 512 * 3);
}

/* Rows that do not divide by the threads, and more threads than groups of rows. */
static void test_bench__threads__run_and_give_memory_back(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 5}, rows[] = {3, 16, 41};
    struct sl_budget budget;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    for (size_t i = 0; i < SL_ARRAY_LEN(threads); i++) {
        struct sl_pool *pool;
        assert_int_equal(sl_pool_open(&budget, threads[i], NULL, &pool), SLUICE_OK);
        uint64_t before = budget.used_bytes;
        for (size_t k = 0; k < SL_ARRAY_LEN(rows); k++) {
            struct sl_kernel_bench_result r;
            struct sl_kernel_bench what = {SL_KB_MATMUL, SL_SQ3_32, rows[k], 64, 2, 3, 1, pool};
            assert_int_equal(sl_kernel_bench_run(&budget, SL_ISA_AUTO, &what, &e, &r), SLUICE_OK);
            assert_int_equal(r.elements, 3 * rows[k] * 64 * 2);
            assert_int_equal(budget.used_bytes, before);
        }
        sl_pool_close(pool);
    }
    assert_int_equal(budget.used_bytes, 0);
}

static void test_memory_bench__threads__a_rate_and_memory_back(void **state)
{
    (void)state;
    struct sl_budget budget;
    struct sl_pool *pool;
    sluice_error e;
    double rate;
    sl_budget_init(&budget, UINT64_MAX);
    assert_int_equal(sl_pool_open(&budget, 2, NULL, &pool), SLUICE_OK);
    uint64_t before = budget.used_bytes;
    assert_int_equal(sl_memory_bench_run(&budget, pool, &e, &rate), SLUICE_OK);
    assert_true(rate > 0);
    assert_int_equal(budget.used_bytes, before);
    budget.limit_bytes = before + 4096;
    assert_int_equal(sl_memory_bench_run(&budget, pool, &e, &rate), SLUICE_E_BUDGET);
    assert_int_equal(budget.used_bytes, before);
    sl_pool_close(pool);
}

static void test_memory_read__any_byte__is_seen(void **state)
{
    (void)state;
    _Alignas(64) uint8_t data[512] = {0};
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = 1;
        assert_int_not_equal(sl_memory_read__scalar(data, sizeof data), 0);
#if defined(__x86_64__)
        if (sl_cpu_flags() & SL_CPU_AVX2) assert_true(sl_memory_read__avx2(data, sizeof data) != 0);
#endif
        data[i] = 0;
    }
}

static void test_bench__bad_sizes_or_too_little_memory__refused(void **state)
{
    (void)state;
    static const struct sl_kernel_bench bad[] = {
        {SL_KB_MATMUL, SL_TYPE_Q4_K, 10, 500, 1, 1, 1, NULL},
        {SL_KB_MATMUL, 16, 10, 512, 1, 1, 1, NULL},
        {SL_KB_MATMUL, SL_TYPE_Q4_K, 0, 512, 1, 1, 1, NULL},
        {SL_KB_MATMUL, SL_TYPE_Q4_K, 1, 512, 0, 1, 1, NULL},
        {SL_KB_MATMUL, SL_TYPE_F32, 1, 8, 65, 1, 1, NULL},
        {SL_KB_QUANTIZE, 64, 1, 64, 1, 1, 1, NULL},
        {SL_KB_ATTN_SCORES, SL_KV_TYPES, 1, 64, 1, 1, 1, NULL},
        {(enum sl_kernel_bench_what)SL_KB_WHATS, 0, 1, 64, 1, 1, 1, NULL},
    };
    struct sl_budget budget;
    struct sl_kernel_bench_result r;
    sluice_error e;
    sl_budget_init(&budget, 1u << 20);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_kernel_bench_run(&budget, SL_ISA_AUTO, &bad[i], &e, &r), SLUICE_E_ARG);
    struct sl_kernel_bench large = {SL_KB_MATMUL, SL_TYPE_F32, 4096, 4096, 1, 1, 1, NULL};
    assert_int_equal(sl_kernel_bench_run(&budget, SL_ISA_AUTO, &large, &e, &r), SLUICE_E_NOMEM);
    assert_int_equal(budget.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench__every_kind__runs_and_gives_memory_back),
        cmocka_unit_test(test_bench__matmul__counts_weights_and_bytes),
        cmocka_unit_test(test_bench__threads__run_and_give_memory_back),
        cmocka_unit_test(test_memory_bench__threads__a_rate_and_memory_back),
        cmocka_unit_test(test_memory_read__any_byte__is_seen),
        cmocka_unit_test(test_bench__bad_sizes_or_too_little_memory__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
