/* The benchmarks of the machine through sluice.h: every weight type is timed and gives the scalar
 * definition's bits, defaults are filled in, and what cannot be is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "include/sluice.h"

/* 16 rows of 256 elements fit every type and are over in no time. */
static sluice_kernel_bench small(void)
{
    sluice_kernel_bench b = SLUICE_KERNEL_BENCH_INIT;
    b.rows = 16;
    b.cols = 256;
    b.threads = 1;
    return b;
}

static void test_bench_kernel__first_type__defaults_filled_in(void **state)
{
    (void)state;
    sluice_kernel_bench b = SLUICE_KERNEL_BENCH_INIT;
    sluice_error e;
    assert_int_equal(sluice_bench_kernel(0, &b, &e), SLUICE_OK);
    assert_string_equal(b.type, "F32");
    assert_true(b.rows == 768 && b.cols == 2048 && b.n_tokens == 1 && b.threads >= 1);
    assert_true(b.bit_equal && b.isa_name[0]);
    assert_true(b.weights_per_s > 0 && b.bytes_per_s > 0);
    assert_true(b.memory_weights_per_s > 0 && b.memory_bytes_per_s > 0);
    assert_int_equal(b.struct_size, sizeof b);
}

static void test_bench_kernel__tokens_threads_scalar__as_asked(void **state)
{
    (void)state;
    sluice_kernel_bench b = small();
    sluice_error e;
    b.n_tokens = 5;
    b.threads = 2;
    b.isa = SLUICE_ISA_SCALAR;
    assert_int_equal(sluice_bench_kernel(3, &b, &e), SLUICE_OK);
    assert_true(b.n_tokens == 5 && b.bit_equal && b.threads <= 2);
    assert_string_equal(b.isa_name, "scalar");
}

static void test_bench_kernel__past_the_last__limit(void **state)
{
    (void)state;
    sluice_kernel_bench b = small();
    sluice_error e;
    assert_int_equal(sluice_bench_kernel(100, &b, &e), SLUICE_E_LIMIT);
    assert_int_equal(b.bit_equal, 0);
}

static void test_bench_kernel__no_such_matrix__refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, rows, cols, n_tokens, threads, isa;
        sluice_err err;
    } bad[] = {
        {2, 16, 250, 1, 1, 0, SLUICE_E_ARG}, /* Q4_0: blocks of 32 */
        {0, UINT32_MAX, 256, 1, 1, 0, SLUICE_E_ARG},  {0, 16, UINT32_MAX, 1, 1, 0, SLUICE_E_ARG},
        {0, 16, 256, 65, 1, 0, SLUICE_E_ARG},         {0, 16, 256, 1, 65, 0, SLUICE_E_ARG},
        {0, 16, 256, 1, 1, 77, SLUICE_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        sluice_kernel_bench b = small();
        sluice_error e;
        b.rows = bad[i].rows;
        b.cols = bad[i].cols;
        b.n_tokens = bad[i].n_tokens;
        b.threads = bad[i].threads;
        b.isa = bad[i].isa;
        assert_int_equal(sluice_bench_kernel(bad[i].type, &b, &e), bad[i].err);
    }
}

static void test_bench_memory__one_thread__a_rate(void **state)
{
    (void)state;
    sluice_memory_bench b = SLUICE_MEMORY_BENCH_INIT;
    sluice_error e;
    b.threads = 1;
    assert_int_equal(sluice_bench_memory(&b, &e), SLUICE_OK);
    assert_true(b.threads == 1 && b.bytes_per_s > 0 && b.buffer_bytes >= 64u << 20);
    b.threads = 65;
    assert_int_equal(sluice_bench_memory(&b, &e), SLUICE_E_ARG);
    b.struct_size = 0;
    assert_int_equal(sluice_bench_memory(&b, &e), SLUICE_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_kernel__first_type__defaults_filled_in),
        cmocka_unit_test(test_bench_kernel__tokens_threads_scalar__as_asked),
        cmocka_unit_test(test_bench_kernel__past_the_last__limit),
        cmocka_unit_test(test_bench_kernel__no_such_matrix__refused),
        cmocka_unit_test(test_bench_memory__one_thread__a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
