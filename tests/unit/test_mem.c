/* Budgets, blocks, arenas and regions. Proves that every byte is charged before it is taken and
 * given back exactly, that refusals change nothing, that memory is zeroed and aligned, and (under
 * AddressSanitizer) that the bytes around a piece are out of bounds. */
#include <stdint.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/asan.h"
#include "base/mem.h"

static struct sl_budget unlimited(void)
{
    struct sl_budget b;
    sl_budget_init(&b, UINT64_MAX);
    return b;
}

static uint64_t used(const struct sl_budget *b) { return atomic_load(&b->used_bytes); }

static bool is_zero(const unsigned char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] != 0) return false;
    }
    return true;
}

static jmp_buf broken;
static bool asserted; /* outside the functions that longjmp returns to */

static void jump_out(const char *expression, const char *file, int line)
{
    (void)expression;
    (void)file;
    (void)line;
    longjmp(broken, 1);
}

static void test_budget__up_to_the_limit__then_refused_unchanged(void **state)
{
    (void)state;
    struct sl_budget b;
    sl_budget_init(&b, 1000);
    assert_int_equal(sl_budget_charge(&b, 600), SLUICE_OK);
    assert_int_equal(sl_budget_charge(&b, 401), SLUICE_E_BUDGET);
    assert_int_equal(sl_budget_charge(&b, UINT64_MAX), SLUICE_E_BUDGET);
    assert_int_equal(used(&b), 600);
    assert_int_equal(sl_budget_charge(&b, 400), SLUICE_OK);
    sl_budget_release(&b, 1000);
    assert_int_equal(used(&b), 0);
    assert_int_equal(atomic_load(&b.peak_bytes), 1000);
}

static void test_budget__released_more_than_charged__assertion(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    asserted = false;
    sl_assert_set_handler(jump_out);
    if (setjmp(broken) == 0)
        sl_budget_release(&b, 1);
    else
        asserted = true;
    sl_assert_set_handler(NULL);
    assert_true(asserted);
}

static void test_budget__fail_after__fails_once(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    atomic_store(&b.fail_after, 2);
    assert_int_equal(sl_budget_charge(&b, 1), SLUICE_OK);
    assert_int_equal(sl_budget_charge(&b, 1), SLUICE_OK);
    assert_int_equal(sl_budget_charge(&b, 1), SLUICE_E_BUDGET);
    assert_int_equal(sl_budget_charge(&b, 1), SLUICE_OK);
    assert_int_equal(atomic_load(&b.fail_after), -1);
}

static void test_alloc__sizes__zeroed_aligned_and_charged(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    for (uint64_t n = 0; n < 300; n += 7) {
        unsigned char *p = sl_alloc(&b, n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(is_zero(p, n * 3));
        memset(p, 0xEE, n * 3);
        assert_int_equal(used(&b), n * 3 + SL_BLOCK_OVERHEAD_BYTES);
        sl_free(p);
        assert_int_equal(used(&b), 0);
    }
    sl_free(NULL);
}

static void test_alloc__nothing_wanted__unique_pointers(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    void *p = sl_alloc(&b, 0, 8), *q = sl_alloc(&b, 8, 0);
    assert_non_null(p);
    assert_non_null(q);
    assert_ptr_not_equal(p, q);
    sl_free(p);
    sl_free(q);
}

static void test_alloc__overflow_or_budget__null_and_nothing_charged(void **state)
{
    (void)state;
    struct sl_budget b;
    sl_budget_init(&b, 4096);
    assert_null(sl_alloc(&b, UINT64_MAX / 2, 3));
    assert_null(sl_alloc(&b, UINT64_MAX, 1));
    assert_null(sl_alloc(&b, 4096, 1)); /* the overhead counts */
    assert_int_equal(used(&b), 0);
}

static void test_free__foreign_pointer__assertion(void **state)
{
    (void)state;
    _Alignas(64) unsigned char fake[256] = {0};
    asserted = false;
    sl_assert_set_handler(jump_out);
    if (setjmp(broken) == 0)
        sl_free(fake + 128);
    else
        asserted = true;
    sl_assert_set_handler(NULL);
    assert_true(asserted);
}

static void test_grow__more_wanted__doubles_keeps_and_zeroes(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    uint32_t *v = NULL;
    uint64_t capacity = 0;
    assert_int_equal(sl_grow(&b, &v, &capacity, 3, sizeof *v), SLUICE_OK);
    assert_int_equal(capacity, 3);
    for (uint32_t i = 0; i < 3; i++) v[i] = i + 10;
    uint32_t *before = v;
    assert_int_equal(sl_grow(&b, &v, &capacity, 2, sizeof *v), SLUICE_OK);
    assert_ptr_equal(v, before);
    assert_int_equal(sl_grow(&b, &v, &capacity, 4, sizeof *v), SLUICE_OK);
    assert_int_equal(capacity, 6);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(v[i], i < 3 ? i + 10 : 0);
    sl_free(v);
    assert_int_equal(used(&b), 0);
}

static void test_grow__refused__block_and_capacity_kept(void **state)
{
    (void)state;
    struct sl_budget b;
    sl_budget_init(&b, 1000);
    uint64_t *v = NULL;
    uint64_t capacity = 0;
    assert_int_equal(sl_grow(&b, &v, &capacity, 10, sizeof *v), SLUICE_OK);
    uint64_t *before = v;
    uint64_t charged = used(&b);
    assert_int_equal(sl_grow(&b, &v, &capacity, 1000, sizeof *v), SLUICE_E_BUDGET);
    assert_int_equal(sl_grow(&b, &v, &capacity, UINT64_MAX, sizeof *v), SLUICE_E_NOMEM);
    assert_ptr_equal(v, before);
    assert_int_equal(capacity, 10);
    assert_int_equal(used(&b), charged);
    sl_free(v);
}

static void test_arena__many_pieces__zeroed_aligned_apart(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_arena a;
    sl_arena_init(&a, &b, 4096);
    unsigned char *pieces[200];
    for (uint64_t i = 0; i < 200; i++) {
        pieces[i] = sl_arena_alloc(&a, i * 5 % 173, 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 64, 0);
        assert_true(is_zero(pieces[i], i * 5 % 173));
        memset(pieces[i], (int)i + 1, i * 5 % 173);
    }
    for (uint64_t i = 0; i < 200; i++) {
        for (uint64_t k = 0; k < i * 5 % 173; k++) assert_int_equal(pieces[i][k], (i + 1) & 0xFF);
    }
    assert_int_equal(a.total_bytes, used(&b));
    sl_arena_deinit(&a);
    assert_int_equal(used(&b), 0);
}

static void test_arena__large_piece__own_chunk_and_the_open_one_goes_on(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_arena a;
    sl_arena_init(&a, &b, 4096);
    assert_non_null(sl_arena_alloc(&a, 64, 1));
    assert_non_null(sl_arena_alloc(&a, 100000, 1));
    uint64_t charged = used(&b);
    assert_true(charged >= 104096);
    assert_non_null(sl_arena_alloc(&a, 64, 1));
    assert_int_equal(used(&b), charged);
    sl_arena_deinit(&a);
}

static void test_arena__chunk_of_the_sum_of_its_pieces__charged_exactly(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_arena a;
    uint64_t sum =
        sl_arena_piece_bytes(3, 7) + sl_arena_piece_bytes(0, 8) + sl_arena_piece_bytes(64, 1);
    sl_arena_init(&a, &b, sum);
    assert_non_null(sl_arena_alloc(&a, 3, 7));
    assert_non_null(sl_arena_alloc(&a, 0, 8));
    assert_non_null(sl_arena_alloc(&a, 64, 1));
    assert_int_equal(used(&b), sum + SL_ARENA_CHUNK_OVERHEAD_BYTES);
    sl_arena_deinit(&a);
}

static void test_arena__overflow_or_budget__null_and_usable(void **state)
{
    (void)state;
    struct sl_budget b;
    sl_budget_init(&b, 10000);
    struct sl_arena a;
    sl_arena_init(&a, &b, 4096);
    assert_null(sl_arena_alloc(&a, UINT64_MAX, 2));
    assert_null(sl_arena_alloc(&a, UINT64_MAX - 5, 1));
    assert_null(sl_arena_alloc(&a, 20000, 1));
    assert_int_equal(used(&b), 0);
    assert_non_null(sl_arena_alloc(&a, 10, 10));
    sl_arena_deinit(&a);
    sl_arena_deinit(&a); /* twice is harmless */
    assert_int_equal(used(&b), 0);
}

#ifdef SL_ASAN
static void test_asan__bytes_around_pieces__poisoned(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_arena a;
    sl_arena_init(&a, &b, 4096);
    for (uint64_t n = 0; n < 140; n++) {
        unsigned char *p = sl_arena_alloc(&a, n, 1);
        assert_null(__asan_region_is_poisoned(p, n));
        assert_true(__asan_address_is_poisoned(p + n));
        assert_true(__asan_address_is_poisoned(p + n + 63));
        unsigned char *q = sl_alloc(&b, n, 1);
        assert_null(__asan_region_is_poisoned(q, n));
        assert_true(__asan_address_is_poisoned(q + n));
        assert_true(__asan_address_is_poisoned(q - 1));
        sl_free(q);
    }
    sl_arena_deinit(&a);
}
#endif

static void test_region__commit_and_decommit__charged_zeroed_given_back(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_region r;
    assert_int_equal(sl_region_reserve(&r, &b, (uint64_t)1 << 36), SLUICE_OK);
    assert_int_equal(used(&b), 0);
    assert_int_equal(sl_region_commit(&r, 1), SLUICE_OK);
    uint64_t page = r.committed_bytes;
    assert_true(page >= 4096);
    assert_int_equal(used(&b), page);
    r.base[page - 1] = 1;
    assert_int_equal(sl_region_commit(&r, 5 * page), SLUICE_OK);
    assert_int_equal(used(&b), 5 * page);
    assert_int_equal(r.base[page - 1], 1);
    assert_true(is_zero(r.base + page, 4 * page));
    memset(r.base, 7, 5 * page);
    assert_int_equal(sl_region_commit(&r, 2 * page), SLUICE_OK); /* never shrinks */
    assert_int_equal(r.committed_bytes, 5 * page);
    sl_region_decommit(&r, page + 1);
    assert_int_equal(r.committed_bytes, 2 * page);
    assert_int_equal(used(&b), 2 * page);
    assert_int_equal(r.base[2 * page - 1], 7);
    assert_int_equal(sl_region_commit(&r, 3 * page), SLUICE_OK);
    assert_true(is_zero(r.base + 2 * page, page));
    sl_region_decommit(&r, 0);
    assert_int_equal(used(&b), 0);
    sl_region_deinit(&r);
    sl_region_deinit(&r);
    assert_int_equal(used(&b), 0);
}

static void test_region__budget_too_small__committed_part_kept(void **state)
{
    (void)state;
    struct sl_budget b;
    sl_budget_init(&b, 200000);
    struct sl_region r;
    assert_int_equal(sl_region_reserve(&r, &b, 1 << 20), SLUICE_OK);
    assert_int_equal(sl_region_commit(&r, 65536), SLUICE_OK);
    memset(r.base, 3, 65536);
    assert_int_equal(sl_region_commit(&r, 1 << 20), SLUICE_E_BUDGET);
    assert_int_equal(r.committed_bytes, 65536);
    assert_int_equal(r.base[65535], 3);
    sl_region_deinit(&r);
    assert_int_equal(used(&b), 0);
}

static void test_region__discard_and_refill__given_back_and_charged_again(void **state)
{
    (void)state;
    struct sl_budget b;
    struct sl_region r;
    uint64_t page = sl_page_bytes();
    sl_budget_init(&b, 5 * page);
    assert_int_equal(sl_region_reserve(&r, &b, 5 * page), SLUICE_OK);
    assert_int_equal(sl_region_commit(&r, 5 * page), SLUICE_OK);
    sl_region_prefer_huge(&r);
    memset(r.base, 9, 5 * page);
    assert_int_equal(r.base[4 * page], 9);
    sl_region_discard(&r, page, 2 * page);
    assert_int_equal(used(&b), 3 * page);
    assert_int_equal(r.base[page - 1], 9);
    assert_int_equal(r.base[3 * page], 9);
    assert_int_equal(sl_budget_charge(&b, page), SLUICE_OK);
    assert_int_equal(sl_region_refill(&r, page, 2 * page), SLUICE_E_BUDGET);
    assert_int_equal(sl_region_refill(&r, 2 * page, page), SLUICE_OK);
    assert_true(is_zero(r.base + page, 2 * page));
    assert_int_equal(used(&b), 5 * page);
    sl_budget_release(&b, page);
    assert_int_equal(sl_region_refill(&r, page, page), SLUICE_OK);
    sl_region_discard(&r, 0, page);
    sl_region_deinit(&r);
    assert_int_equal(used(&b), 0);
}

static void test_region__impossible_size__refused(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    struct sl_region r;
    assert_int_equal(sl_region_reserve(&r, &b, UINT64_MAX), SLUICE_E_NOMEM);
    assert_null(r.base);
    assert_int_equal(sl_region_reserve(&r, &b, (uint64_t)1 << 62), SLUICE_E_NOMEM);
    assert_null(r.base);
    sl_region_deinit(&r);
}

static void test_peak_rss__after_touching_memory__at_least_that(void **state)
{
    (void)state;
    struct sl_budget b = unlimited();
    uint64_t bytes = (uint64_t)48 << 20;
    unsigned char *p = sl_alloc(&b, bytes, 1);
    assert_non_null(p);
    memset(p, 1, bytes);
    assert_int_equal(p[bytes - 1], 1);
    uint64_t peak = sl_peak_rss_bytes();
    assert_true(peak >= bytes && peak < bytes * 100);
    sl_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget__up_to_the_limit__then_refused_unchanged),
        cmocka_unit_test(test_budget__released_more_than_charged__assertion),
        cmocka_unit_test(test_budget__fail_after__fails_once),
        cmocka_unit_test(test_alloc__sizes__zeroed_aligned_and_charged),
        cmocka_unit_test(test_alloc__nothing_wanted__unique_pointers),
        cmocka_unit_test(test_alloc__overflow_or_budget__null_and_nothing_charged),
        cmocka_unit_test(test_free__foreign_pointer__assertion),
        cmocka_unit_test(test_grow__more_wanted__doubles_keeps_and_zeroes),
        cmocka_unit_test(test_grow__refused__block_and_capacity_kept),
        cmocka_unit_test(test_arena__many_pieces__zeroed_aligned_apart),
        cmocka_unit_test(test_arena__large_piece__own_chunk_and_the_open_one_goes_on),
        cmocka_unit_test(test_arena__chunk_of_the_sum_of_its_pieces__charged_exactly),
        cmocka_unit_test(test_arena__overflow_or_budget__null_and_usable),
#ifdef SL_ASAN
        cmocka_unit_test(test_asan__bytes_around_pieces__poisoned),
#endif
        cmocka_unit_test(test_region__commit_and_decommit__charged_zeroed_given_back),
        cmocka_unit_test(test_region__budget_too_small__committed_part_kept),
        cmocka_unit_test(test_region__discard_and_refill__given_back_and_charged_again),
        cmocka_unit_test(test_region__impossible_size__refused),
        cmocka_unit_test(test_peak_rss__after_touching_memory__at_least_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
