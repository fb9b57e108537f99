/* Faults below and around the backends of io/: every loop strikes the first, second, third ... read
 * until none is met. What the layer can mend must not be noticed; what it cannot must be reported
 * with code, errno and offset; afterwards the next request works. Bits and offsets that are wrong
 * without an error are for checksums to find; here they must be produced as promised. */
#define _GNU_SOURCE
#include <errno.h>

#include "tests/support/io_case.h"

#define READS 12
#define LOOPS_MAX 2000

static const struct setup backends[] = {
    {"pread", {SL_IO_PREAD, 0, 3, 0}, {SL_IO_FAULT_NONE, 0, 1, 1, 0, 0, 0}},
    {"io_uring", {SL_IO_URING, 8, 0, 0}, {SL_IO_FAULT_NONE, 0, 1, 1, 0, 0, 0}},
};

static struct rig rig;

typedef void check_fn(struct rig *g, const struct sl_io_fault_plan *plan);

static void read_some(struct rig *g)
{
    rig_forget(g);
    for (uint32_t i = 0; i < READS; i++)
        rig_add(g, 3 + i * 300001, 20000 + i * 777, i % 4 == 3 ? SL_IO_LOW : SL_IO_DEMAND);
    rig_submit(g, 0, g->n);
    rig_reap_all(g, NULL);
    for (uint32_t i = 0; i < g->n; i++) assert_int_equal(g->times[i], 1);
}

static void check_all_whole(struct rig *g, const struct sl_io_fault_plan *plan)
{
    (void)plan;
    for (uint32_t i = 0; i < g->n; i++) check_whole(g, i);
}

/* Reads under the plan with nth = 1, 2, 3 ... until it is not met, check after each run, and a run
 * without faults. */
static void loop_over(struct sl_io_fault_plan plan, check_fn *check)
{
    static const struct sl_io_fault_plan none;
    for (size_t i = 0; i < 2 * SL_ARRAY_LEN(backends); i++) {
        if (!rig_open(&rig, &backends[i / 2], i % 2 == 0 ? SL_IO_DIRECT : SL_IO_BUFFERED)) continue;
        uint64_t nth = 1;
        for (; nth < LOOPS_MAX; nth++) {
            plan.nth = nth;
            sl_io_fault_set(rig.io, &plan);
            read_some(&rig);
            if (sl_io_fault_met(rig.io) == 0) break;
            check(&rig, &plan);
            sl_io_fault_set(rig.io, &none);
            read_some(&rig);
            check_all_whole(&rig, &none);
        }
        assert_in_range(nth, READS + 1, LOOPS_MAX - 1);
        rig_close(&rig);
        assert_int_equal(sl_budget_used(&budget), 0);
    }
}

/* ---- what is mended inside ----------------------------------------------------------------- */

static void test_fault__passing_errors__are_not_noticed(void **state)
{
    (void)state;
    static const int errors[] = {EINTR, EAGAIN, EIO};
    for (size_t i = 0; i < SL_ARRAY_LEN(errors); i++)
        loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_ERROR, .sys_errno = errors[i]},
                  check_all_whole);
}

static void test_fault__many_interruptions_in_a_row__are_not_noticed(void **state)
{
    (void)state;
    loop_over(
        (struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_ERROR, .sys_errno = EINTR, .times = 90},
        check_all_whole);
}

/* Whole, and without falling back to buffered reads on the way. */
static void check_resumed(struct rig *g, const struct sl_io_fault_plan *plan)
{
    check_all_whole(g, plan);
    for (uint32_t i = 0; i < g->n; i++)
        assert_int_equal(g->requests[i].own.block, sl_io_file_block(g->f));
}

static void test_fault__short_reads__are_resumed(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 511, 4096, 10001};
    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        struct sl_io_fault_plan plan = {.kind = SL_IO_FAULT_SYS_SHORT, .short_bytes = sizes[i]};
        loop_over(plan, check_resumed);
        plan.times = 3;
        loop_over(plan, check_resumed);
    }
}

static void test_fault__late_and_out_of_order__are_not_noticed(void **state)
{
    (void)state;
    struct sl_io_fault_plan plan = {.kind = SL_IO_FAULT_DELAY, .delay_ns = 300000};
    loop_over(plan, check_all_whole);
    plan.kind = SL_IO_FAULT_REORDER;
    loop_over(plan, check_all_whole);
    plan.times = UINT64_MAX;
    loop_over(plan, check_all_whole);
}

static void check_direct_refused(struct rig *g, const struct sl_io_fault_plan *plan)
{
    if (sl_io_file_block(g->f) > 1) {
        check_all_whole(g, plan);
        return;
    }
    uint32_t failed = 0;
    for (uint32_t i = 0; i < g->n; i++) failed += g->requests[i].code == SLUICE_E_IO;
    assert_int_equal(failed, 1);
}

static void test_fault__direct_read_refused_later__read_buffered(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_ERROR, .sys_errno = EINVAL},
              check_direct_refused);
}

/* ---- what is reported ---------------------------------------------------------------------- */

/* At least one failed, with the errno of the plan and a place within the request; the others are
 * whole. */
static void check_failures(struct rig *g, const struct sl_io_fault_plan *plan)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const struct sl_io_request *r = &g->requests[i];
        if (r->code == SLUICE_OK) {
            assert_true(holds_data(r));
            continue;
        }
        failed++;
        assert_int_equal(r->code, SLUICE_E_IO);
        assert_int_equal(r->sys_errno, plan->sys_errno);
        assert_in_range(r->fail_offset, r->offset, r->offset + r->bytes);
        sluice_error e = {0};
        assert_int_equal(sl_io_request_error(r, &e), SLUICE_E_IO);
        assert_int_equal(e.sys_errno, plan->sys_errno);
        assert_int_equal(e.file_offset, r->fail_offset);
        assert_non_null(strstr(e.text, path));
        assert_null(strstr(e.text, "Success"));
    }
    assert_true(failed > 0);
}

static void test_fault__lasting_errors__reported_with_place_and_cause(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENODEV, EINTR};
    for (size_t i = 0; i < SL_ARRAY_LEN(errors); i++)
        loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_ERROR,
                                            .sys_errno = errors[i],
                                            .times = UINT64_MAX},
                  check_failures);
}

static void check_stuck(struct rig *g, const struct sl_io_fault_plan *plan)
{
    uint32_t failed = 0;
    (void)plan;
    for (uint32_t i = 0; i < g->n; i++) failed += g->requests[i].code == SLUICE_E_IO;
    assert_true(failed > 0);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->requests[i].code == SLUICE_OK) assert_true(holds_data(&g->requests[i]));
}

static void test_fault__one_byte_a_read_for_ever__gives_up(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_SYS_SHORT, .times = UINT64_MAX},
              check_stuck);
}

static void check_one_failed(struct rig *g, const struct sl_io_fault_plan *plan)
{
    for (uint32_t i = 0; i < g->n; i++) {
        bool struck = i + 1 >= plan->nth && i + 1 - plan->nth < plan->times;
        assert_int_equal(g->requests[i].code, struck ? SLUICE_E_IO : SLUICE_OK);
        if (!struck) check_whole(g, i);
    }
}

static void test_fault__request_fails__exactly_that_one(void **state)
{
    (void)state;
    struct sl_io_fault_plan plan = {.kind = SL_IO_FAULT_FAIL, .sys_errno = EIO, .times = 1};
    loop_over(plan, check_one_failed);
    plan.times = UINT64_MAX;
    loop_over(plan, check_one_failed);
}

/* ---- what only checksums find -------------------------------------------------------------- */

static void check_one_bit(struct rig *g, const struct sl_io_fault_plan *plan)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const struct sl_io_request *r = &g->requests[i];
        unsigned bits = 0;
        assert_int_equal(r->code, SLUICE_OK);
        for (uint64_t k = 0; k < r->bytes; k++)
            bits += (unsigned)__builtin_popcount(((unsigned char *)r->dst)[k] ^
                                                 (unsigned)data[r->offset + k]);
        assert_int_equal(bits, i + 1 == plan->nth ? 1 : 0);
    }
}

static void test_fault__flip__one_bit_of_that_request(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_FLIP, .times = 1, .bit = 123456789},
              check_one_bit);
}

static void check_misdirected(struct rig *g, const struct sl_io_fault_plan *plan)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const struct sl_io_request *r = &g->requests[i];
        assert_int_equal(r->code, SLUICE_OK);
        assert_int_equal(r->offset, 3 + i * 300001); /* as the caller wrote it */
        if (i + 1 != plan->nth) {
            check_whole(g, i);
            continue;
        }
        uint64_t shift = sl_io_file_block(g->f) == 1 ? 64 : sl_io_file_block(g->f);
        uint64_t from = r->offset >= shift ? r->offset - shift : r->offset + shift;
        assert_memory_equal(r->dst, data + from, r->bytes);
    }
}

static void test_fault__wrong_offset__bytes_of_another_place(void **state)
{
    (void)state;
    loop_over((struct sl_io_fault_plan){.kind = SL_IO_FAULT_WRONG_OFFSET, .times = 1},
              check_misdirected);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Opens everything with one charge failing; true if that was met. */
static bool open_without_memory(const struct setup *s, int64_t charges)
{
    struct sl_io *io = NULL, *wrapper = NULL;
    struct sl_file *file = NULL;
    struct sl_io_file *f = NULL;
    sluice_error e = {0};
    budget.fail_after = charges;
    sluice_err err = sl_io_open(&s->config, &budget, NULL, &e, &io);
    if (err == SLUICE_OK) err = sl_io_fault_open(io, &s->plan, &e, &wrapper);
    if (err == SLUICE_OK) {
        io = wrapper;
        err = sl_file_open(path, &budget, &e, &file);
    }
    if (err == SLUICE_OK) err = sl_io_file_open(io, file, SL_IO_DIRECT, &e, &f);
    bool met = budget.fail_after < 0 && err != SLUICE_OK;
    budget.fail_after = -1;
    if (met) assert_int_equal(err, SLUICE_E_BUDGET);
    if (met) assert_int_equal(e.code, err);
    sl_io_file_close(f);
    sl_file_close(file);
    sl_io_close(io);
    assert_int_equal(sl_budget_used(&budget), 0);
    return met;
}

static void test_open__memory_refused_at_each_place__error_and_nothing_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(backends); i++) {
        if (!rig_open(&rig, &backends[i], SL_IO_DIRECT)) continue;
        rig_close(&rig);
        int64_t n = 0;
        while (open_without_memory(&backends[i], n)) n++;
        assert_in_range(n, 4, 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault__passing_errors__are_not_noticed),
        cmocka_unit_test(test_fault__many_interruptions_in_a_row__are_not_noticed),
        cmocka_unit_test(test_fault__short_reads__are_resumed),
        cmocka_unit_test(test_fault__late_and_out_of_order__are_not_noticed),
        cmocka_unit_test(test_fault__direct_read_refused_later__read_buffered),
        cmocka_unit_test(test_fault__lasting_errors__reported_with_place_and_cause),
        cmocka_unit_test(test_fault__one_byte_a_read_for_ever__gives_up),
        cmocka_unit_test(test_fault__request_fails__exactly_that_one),
        cmocka_unit_test(test_fault__flip__one_bit_of_that_request),
        cmocka_unit_test(test_fault__wrong_offset__bytes_of_another_place),
        cmocka_unit_test(test_open__memory_refused_at_each_place__error_and_nothing_left),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
