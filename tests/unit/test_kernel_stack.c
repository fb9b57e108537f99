/* How much of a thread's stack products take: no more than the memory plan counts for a worker
 * (sl_pool_bytes), less what its callers need. A thread runs on memory of one known byte; what it
 * changed shows how deep it went. */
#define _GNU_SOURCE /* pthread_attr_setstack */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"
#include "engine/kernels/kernels.h"
#include "tests/support/kernel_data.h"

#define STACK_BYTES ((size_t)1 << 20)
#define STACK_ALIGN 4096
#define UNTOUCHED 0xa5
#define CALLERS_BYTES 8192u /* the pool, the task, and what else lies between */
#define TOKENS_MAX 150
#define ROWS 70u /* whole tiles, and some rows beside */

struct products {
    const struct sl_kernels *kernels;
    const struct weights *w;
    const struct sl_k_act *x;
    uint32_t type, cols;
    float *y;
};

/* Few and many activations go different ways. */
static void *run_products(void *arg)
{
    static const uint32_t tokens[] = {1, 2, 3, 5, 17, TOKENS_MAX};
    const struct products *p = arg;
    for (size_t i = 0; i < SL_ARRAY_LEN(tokens); i++) {
        struct sl_k_matmul m = {
            p->w->data, p->w->row_bytes, ROWS, p->cols, p->x, tokens[i], p->y, ROWS, NULL};
        p->kernels->matmul[SL_TYPE_SLOT(p->type)](&m);
    }
    return NULL;
}

/* Bytes from the first one that the thread changed to the stack's end. */
static size_t depth_of(void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_t thread;
    size_t first = 0;
    uint8_t *stack = aligned_alloc(STACK_ALIGN, STACK_BYTES);
    assert_non_null(stack);
    memset(stack, UNTOUCHED, STACK_BYTES);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, run, arg), 0);
    pthread_attr_destroy(&attr);
    assert_int_equal(pthread_join(thread, NULL), 0);
    while (first < STACK_BYTES && stack[first] == UNTOUCHED) first++;
    free(stack);
    return STACK_BYTES - first;
}

static size_t depth_of_type(const struct sl_kernels *k, uint32_t type)
{
    uint32_t cols = sl_type_info(type)->block_cols == 1 ? 4095 : 4096;
    struct weights w = make_weights(type, ROWS, cols, 0, SANE);
    struct sl_k_act x[TOKENS_MAX];
    for (uint32_t t = 0; t < TOKENS_MAX; t++) x[t] = make_act(sl_k_act_kind(type), cols, X_RANDOM);
    float *y = must_alloc(sizeof *y * ROWS * TOKENS_MAX);
    struct products p = {k, &w, x, type, cols, y};
    size_t depth = depth_of(run_products, &p);
    for (uint32_t t = 0; t < TOKENS_MAX; t++) free_act(x[t]);
    free(w.base);
    free(y);
    return depth;
}

static void test_matmul__every_type__within_what_is_counted(void **state)
{
    static const enum sl_isa list[] = {SL_ISA_SCALAR, SL_ISA_AVX2,    SL_ISA_AVX512,
                                       SL_ISA_NEON,   SL_ISA_DOTPROD, SL_ISA_I8MM};
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
    skip(); /* frames are larger then, and the plan is not for such builds */
#endif
    uint64_t counted = sl_pool_bytes(2) - sl_pool_bytes(1);
    for (size_t i = 0; i < SL_ARRAY_LEN(list); i++) {
        const struct sl_kernels *k;
        sluice_error e;
        if (sl_kernels_select(list[i], &e, &k) != SLUICE_OK) continue;
        for (size_t t = 0; t < SL_ARRAY_LEN(types); t++) {
            size_t depth = depth_of_type(k, types[t]);
            if (depth + CALLERS_BYTES > counted)
                fail_msg("%s %s: %zu bytes of stack, %llu are counted for a worker", k->isa,
                         sl_type_name(types[t]), depth, (unsigned long long)counted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul__every_type__within_what_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
