/* The contract of the asynchronous layer (io/io.h), over every backend and inside the wrapper with
 * faults that must not show, with direct and buffered access: each request completes once, whole or
 * failed, in its place and nowhere else; priorities, cancelling, giving up, the end of the file. */
#define _GNU_SOURCE
#include "tests/support/io_case.h"

typedef void check_fn(struct rig *g);

/* The check on every backend with both kinds of access. */
static void everywhere(check_fn *check)
{
    static struct rig rig;
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++) {
        for (int access = SL_IO_DIRECT; access <= SL_IO_BUFFERED; access++) {
            if (!rig_open(&rig, &setups[i], (enum sl_io_access)access)) continue;
            check(&rig);
            assert_int_equal(sl_io_outstanding(rig.io), 0);
            rig_close(&rig);
            assert_int_equal(sl_budget_used(&budget), 0);
        }
    }
}

/* ---- whole reads --------------------------------------------------------------------------- */

static void check_random(struct rig *g)
{
    for (int i = 0; i < 150; i++) {
        uint32_t bytes = 1 + random_below(random_below(4) == 0 ? 300000 : 9000);
        rig_add(g, random_below(FILE_BYTES - bytes + 1), bytes,
                random_below(3) == 0 ? SL_IO_LOW : SL_IO_DEMAND);
    }
    uint32_t sent = 0;
    while (sent < g->n) {
        uint32_t batch = 1 + random_below(40);
        if (batch > g->n - sent) batch = g->n - sent;
        rig_submit(g, sent, batch);
        sent += batch;
        struct sl_io_request *out[4];
        uint32_t n = sl_io_reap(g->io, out, 4, random_below(3));
        for (uint32_t i = 0; i < n; i++) g->times[out[i] - g->requests]++;
    }
    rig_reap_all(g, NULL);
    for (uint32_t i = 0; i < g->n; i++) check_whole(g, i);
}

static void test_reads__random_places_and_sizes__each_whole_and_once(void **state)
{
    (void)state;
    everywhere(check_random);
}

static void check_edges(struct rig *g)
{
    static const uint32_t sizes[] = {1, 511, 512, 513, 4095, 4096, 4097, 65536};
    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        rig_add(g, 0, sizes[i], SL_IO_DEMAND);
        rig_add(g, 4096 - 1, sizes[i], SL_IO_DEMAND);
        rig_add(g, 4096, sizes[i], SL_IO_DEMAND);
        rig_add(g, FILE_BYTES - sizes[i], sizes[i], SL_IO_DEMAND);
    }
    rig_add(g, 0, FILE_BYTES, SL_IO_DEMAND);
    rig_submit(g, 0, g->n);
    rig_reap_all(g, NULL);
    for (uint32_t i = 0; i < g->n; i++) check_whole(g, i);
}

static void test_reads__at_block_borders_and_the_last_byte__whole(void **state)
{
    (void)state;
    everywhere(check_edges);
}

static void check_past_end(struct rig *g)
{
    rig_add(g, FILE_BYTES - 10, 11, SL_IO_DEMAND);
    rig_add(g, FILE_BYTES, 1, SL_IO_DEMAND);
    rig_add(g, FILE_BYTES + 100000, 5000, SL_IO_LOW);
    rig_add(g, FILE_BYTES - 200000, 400000, SL_IO_DEMAND);
    uint32_t bad = g->n;
    rig_add(g, FILE_BYTES - 10, 10, SL_IO_DEMAND);
    rig_submit(g, 0, g->n);
    rig_reap_all(g, NULL);
    for (uint32_t i = 0; i < bad; i++) {
        const struct sl_io_request *r = &g->requests[i];
        assert_int_equal(r->code, SLUICE_E_TRUNCATED);
        assert_int_equal(r->fail_offset, r->offset > FILE_BYTES ? r->offset : FILE_BYTES);
        sluice_error e = {0};
        assert_int_equal(sl_io_request_error(r, &e), SLUICE_E_TRUNCATED);
        assert_non_null(strstr(e.text, path));
    }
    check_whole(g, bad);
}

static void test_reads__past_the_end__truncated_and_said_where(void **state)
{
    (void)state;
    everywhere(check_past_end);
}

/* ---- submit, reap -------------------------------------------------------------------------- */

static void check_refusal(struct rig *g)
{
    struct sl_io_request *good = rig_add(g, 0, 100, SL_IO_DEMAND);
    struct sl_io_request *bad = rig_add(g, 100, 100, SL_IO_DEMAND);
    struct sl_io_request *both[] = {good, bad};
    const struct sl_io_request before = *bad;
    bad->bytes = 0;
    assert_int_equal(sl_io_submit(g->io, both, 2), SLUICE_E_ARG);
    *bad = before;
    bad->offset = UINT64_MAX - 10;
    assert_int_equal(sl_io_submit(g->io, both, 2), SLUICE_E_ARG);
    *bad = before;
    bad->dst = NULL;
    assert_int_equal(sl_io_submit(g->io, both, 2), SLUICE_E_ARG);
    *bad = before;
    bad->file = NULL;
    assert_int_equal(sl_io_submit(g->io, both, 2), SLUICE_E_ARG);
    *bad = before;
    if (sl_io_file_block(g->f) > 1) {
        bad->dst = (unsigned char *)bad->dst + 1;
        assert_int_equal(sl_io_submit(g->io, both, 2), SLUICE_E_ARG);
        *bad = before;
    }
    assert_int_equal(sl_io_outstanding(g->io), 0);
    assert_int_equal(((unsigned char *)good->dst)[0], POISON);
    rig_submit(g, 0, 2);
    rig_reap_all(g, NULL);
    check_whole(g, 0);
    check_whole(g, 1);
}

static void test_submit__one_request_breaks_a_rule__none_is_taken(void **state)
{
    (void)state;
    everywhere(check_refusal);
}

static void check_reap(struct rig *g)
{
    struct sl_io_request *out[8];
    assert_int_equal(sl_io_reap(g->io, out, 8, 8), 0); /* nothing is out: nothing to wait for */
    for (int i = 0; i < 6; i++) rig_add(g, (uint64_t)i * 5000, 5000, SL_IO_DEMAND);
    rig_submit(g, 0, 6);
    assert_int_equal(sl_io_outstanding(g->io), 6);
    uint32_t n = sl_io_reap(g->io, out, 4, 3);
    assert_in_range(n, 3, 4);
    assert_int_equal(sl_io_outstanding(g->io), 6 - n);
    assert_int_equal(sl_io_reap(g->io, out, 8, 8), 6 - n);
    assert_int_equal(sl_io_outstanding(g->io), 0);
}

static void test_reap__min_and_max__are_kept(void **state)
{
    (void)state;
    everywhere(check_reap);
}

/* Awaits random requests among many, parked ones among them, with reaps in between. */
static void check_wait(struct rig *g)
{
    const uint32_t n = 60;
    for (uint32_t i = 0; i < n; i++)
        rig_add(g, i * 50000, 1 + random_below(50000), i % 3 == 0 ? SL_IO_LOW : SL_IO_DEMAND);
    rig_submit(g, 0, n);
    sl_io_wait(g->io, NULL, 0);
    while (sl_io_outstanding(g->io) > 0) {
        struct sl_io_request *wanted[8], *out[3];
        uint32_t k = 0, before = sl_io_outstanding(g->io);
        uint32_t most = 1 + random_below(8);
        for (uint32_t i = random_below(n); i < n && k < most; i += 1 + random_below(5))
            if (g->times[i] == 0) wanted[k++] = &g->requests[i];
        sl_io_wait(g->io, wanted, k);
        assert_int_equal(sl_io_outstanding(g->io), before - k);
        for (uint32_t i = 0; i < k; i++) {
            uint32_t index = (uint32_t)(wanted[i] - g->requests);
            g->times[index]++;
            check_whole(g, index);
        }
        uint32_t min = random_below(3);
        uint32_t reaped = sl_io_reap(g->io, out, 3, min);
        assert_true(reaped >= (min < before - k ? min : before - k));
        for (uint32_t i = 0; i < reaped; i++) g->times[out[i] - g->requests]++;
    }
    for (uint32_t i = 0; i < n; i++) check_whole(g, i);
}

static void test_wait__for_some_of_many__those_and_no_other_are_taken(void **state)
{
    (void)state;
    everywhere(check_wait);
}

/* What was parked may be cancelled (too late) or drained like any other. */
static void check_wait_and_drain(struct rig *g)
{
    for (uint32_t i = 0; i < 20; i++) rig_add(g, i * 100, 100, SL_IO_DEMAND);
    rig_submit(g, 0, 20);
    struct sl_io_request *last = &g->requests[19];
    sl_io_wait(g->io, &last, 1);
    assert_int_equal(last->code, SLUICE_OK);
    for (uint32_t i = 0; i < 19; i++) (void)sl_io_cancel(g->io, &g->requests[i]);
    for (uint32_t i = 0; i < 19; i++) (void)sl_io_promote(g->io, &g->requests[i]);
    sl_io_drain(g->io);
    assert_int_equal(sl_io_outstanding(g->io), 0);
    for (uint32_t i = 0; i < 20; i++)
        if (g->requests[i].code == SLUICE_OK) assert_true(holds_data(&g->requests[i]));
}

static void test_wait__drained_afterwards__none_left(void **state)
{
    (void)state;
    everywhere(check_wait_and_drain);
}

/* ---- priorities, cancelling ---------------------------------------------------------------- */

/* Position in order of the request with that index. */
static uint32_t place_of(const uint32_t *order, uint32_t n, uint32_t index)
{
    for (uint32_t i = 0; i < n; i++)
        if (order[i] == index) return i;
    return n;
}

static bool keeps_order(const struct rig *g)
{
    return g->setup->config.lanes == 1 || g->setup->config.depth == 1;
}

static void check_priority(struct rig *g)
{
    uint32_t order[PLACES_MAX];
    const uint32_t low = 20;
    for (uint32_t i = 0; i < low; i++) rig_add(g, i * 200000, 200000, SL_IO_LOW);
    rig_add(g, 7, 100, SL_IO_DEMAND);
    rig_submit(g, 0, low);
    rig_submit(g, low, 1);
    rig_reap_all(g, order);
    for (uint32_t i = 0; i < g->n; i++) check_whole(g, i);
    /* A single lane: the low-priority reads that were quicker than the second submit go first. */
    if (keeps_order(g)) assert_true(place_of(order, g->n, low) < low);
}

static void test_priority__demand_after_many_low__does_not_wait_for_them(void **state)
{
    (void)state;
    everywhere(check_priority);
}

/* One low-priority read at a time: a large one is not overtaken by small ones of its kind, although
 * there are lanes enough. */
static void test_priority__one_low_at_once__the_other_lanes_are_for_demand(void **state)
{
    (void)state;
    static const struct setup narrow[] = {
        {"pread, one low", {SL_IO_PREAD, 0, 4, 1}, NO_WRAPPER},
        {"io_uring, one low", {SL_IO_URING, 8, 0, 1}, NO_WRAPPER},
    };
    static struct rig rig;
    for (size_t i = 0; i < SL_ARRAY_LEN(narrow); i++) {
        uint32_t order[PLACES_MAX];
        if (!rig_open(&rig, &narrow[i], SL_IO_DIRECT)) continue;
        rig_add(&rig, 0, FILE_BYTES, SL_IO_LOW);
        for (uint32_t k = 1; k < 6; k++) rig_add(&rig, k * 4096, 100, SL_IO_LOW);
        rig_submit(&rig, 0, rig.n);
        rig_reap_all(&rig, order);
        for (uint32_t k = 0; k < rig.n; k++) {
            check_whole(&rig, k);
            assert_int_equal(order[k], k);
        }
        rig_close(&rig);
    }
}

static void check_cancel(struct rig *g)
{
    const uint32_t n = 40;
    bool dropped[40];
    for (uint32_t i = 0; i < n; i++) rig_add(g, i * 100000, 100000, SL_IO_LOW);
    rig_submit(g, 0, n);
    for (uint32_t i = n; i-- > 0;) dropped[i] = sl_io_cancel(g->io, &g->requests[i]);
    for (uint32_t i = 0; i < n; i++) assert_false(sl_io_cancel(g->io, &g->requests[i]));
    rig_reap_all(g, NULL);
    assert_true(dropped[n - 1]);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(g->times[i], 1);
        if (dropped[i])
            assert_int_equal(g->requests[i].code, SLUICE_E_CANCELLED);
        else
            check_whole(g, i);
    }
}

static void test_cancel__waiting_low_priority_reads__come_back_once_as_cancelled(void **state)
{
    (void)state;
    everywhere(check_cancel);
}

static void check_promote(struct rig *g)
{
    uint32_t order[PLACES_MAX];
    const uint32_t n = 30;
    for (uint32_t i = 0; i < n; i++) rig_add(g, i * 100000, 100000, SL_IO_LOW);
    rig_submit(g, 0, n);
    bool moved = sl_io_promote(g->io, &g->requests[n - 1]);
    assert_false(moved && sl_io_promote(g->io, &g->requests[n - 1]));
    rig_reap_all(g, order);
    for (uint32_t i = 0; i < n; i++) check_whole(g, i);
    if (moved && keeps_order(g)) assert_true(place_of(order, n, n - 1) < n - 1);
}

static void test_promote__last_of_many_low__overtakes(void **state)
{
    (void)state;
    everywhere(check_promote);
}

static void check_drain(struct rig *g)
{
    for (uint32_t i = 0; i < 60; i++)
        rig_add(g, i * 60000, 60000, i % 2 == 0 ? SL_IO_LOW : SL_IO_DEMAND);
    rig_submit(g, 0, g->n);
    sl_io_drain(g->io);
    for (uint32_t i = 0; i < g->n; i++) {
        const struct sl_io_request *r = &g->requests[i];
        assert_true(r->code == SLUICE_OK || r->code == SLUICE_E_CANCELLED);
        if (r->code == SLUICE_OK) assert_true(holds_data(r));
    }
    rig_forget(g);
    check_edges(g); /* and the next requests work */
}

static void test_drain__many_out__none_left_and_the_next_work(void **state)
{
    (void)state;
    everywhere(check_drain);
}

/* ---- where the bytes land ------------------------------------------------------------------ */

/* Before, across the start of, within, across the end of, and after the pinned memory. */
static void check_pinned(struct rig *g)
{
    const size_t bytes = 1 << 20;
    uint32_t block = sl_io_file_block(g->f);
    unsigned char *memory = NULL;
    assert_int_equal(posix_memalign((void **)&memory, 65536, 3 * bytes), 0);
    bool pinned = sl_io_pin(g->io, memory + bytes, bytes);
    for (size_t at = 0; at + 131072 <= 3 * bytes; at += 131072 + 65536) {
        struct sl_io_request *r = rig_add(g, at + 5, 100001, SL_IO_DEMAND);
        r->dst = memory + at + (r->offset & (block - 1));
    }
    rig_submit(g, 0, g->n);
    rig_reap_all(g, NULL);
    for (uint32_t i = 0; i < g->n; i++) {
        assert_int_equal(g->requests[i].code, SLUICE_OK);
        assert_true(holds_data(&g->requests[i]));
    }
    assert_false(pinned && sl_io_pin(g->io, memory, bytes)); /* one piece of memory at a time */
    sl_io_unpin(g->io);
    free(memory);
}

static void test_pin__reads_into_across_and_beside_it__whole(void **state)
{
    (void)state;
    everywhere(check_pinned);
}

static void check_rooms(struct rig *g)
{
    uint32_t block = sl_io_file_block(g->f);
    assert_int_equal(sl_io_room(1, 1000), 1000);
    for (uint64_t offset = 0; offset<2 * (uint64_t)block; offset += block> 64 ? 37 : 1) {
        for (uint64_t bytes = 1; bytes<3 * (uint64_t)block; bytes += block> 64 ? 211 : 1) {
            struct sl_io_span s = sl_io_span(g->f, offset, bytes);
            assert_int_equal(s.offset % block, 0);
            assert_int_equal(s.bytes % block, 0);
            assert_int_equal(s.offset + s.lead, offset);
            assert_true(s.lead < block && s.lead + bytes <= s.bytes);
            assert_true(s.bytes < s.lead + bytes + block);
            assert_true(s.bytes <= sl_io_room(block, bytes));
        }
    }
}

static void test_span__all_positions_in_a_block__rounded_and_within_the_room(void **state)
{
    (void)state;
    everywhere(check_rooms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads__random_places_and_sizes__each_whole_and_once),
        cmocka_unit_test(test_reads__at_block_borders_and_the_last_byte__whole),
        cmocka_unit_test(test_reads__past_the_end__truncated_and_said_where),
        cmocka_unit_test(test_submit__one_request_breaks_a_rule__none_is_taken),
        cmocka_unit_test(test_reap__min_and_max__are_kept),
        cmocka_unit_test(test_wait__for_some_of_many__those_and_no_other_are_taken),
        cmocka_unit_test(test_wait__drained_afterwards__none_left),
        cmocka_unit_test(test_priority__demand_after_many_low__does_not_wait_for_them),
        cmocka_unit_test(test_priority__one_low_at_once__the_other_lanes_are_for_demand),
        cmocka_unit_test(test_cancel__waiting_low_priority_reads__come_back_once_as_cancelled),
        cmocka_unit_test(test_promote__last_of_many_low__overtakes),
        cmocka_unit_test(test_drain__many_out__none_left_and_the_next_work),
        cmocka_unit_test(test_pin__reads_into_across_and_beside_it__whole),
        cmocka_unit_test(test_span__all_positions_in_a_block__rounded_and_within_the_room),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
