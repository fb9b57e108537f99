/* Proves that stop strings cut a stream exactly, however it is split: compared with a search over
 * the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/text/stop.h"

#define TEXT_MAX 256

struct sink {
    char text[TEXT_MAX];
    size_t n;
};

static void collect(void *user, const char *text, size_t n)
{
    struct sink *sink = user;
    assert_true(n > 0);
    assert_true(sink->n + n <= sizeof(sink->text));
    memcpy(sink->text + sink->n, text, n);
    sink->n += n;
}

static uint32_t seed = 1;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* Where the text must be cut: of the strings whose end comes first the longest; or n. */
static size_t naive_cut(const char *text, size_t n, const struct sl_str *stops, uint32_t n_stops)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < n_stops; i++) {
            size_t len = stops[i].n;
            if (len > end || len <= longest) continue;
            if (memcmp(text + end - len, stops[i].p, len) == 0) longest = len;
        }
        if (longest > 0) return end - longest;
    }
    return n;
}

/* The longest proper beginning of a stop string that the text ends with: what may be held back, and
 * no more. */
static size_t naive_held(const char *text, size_t n, const struct sl_str *stops, uint32_t n_stops)
{
    size_t held = 0;
    for (uint32_t i = 0; i < n_stops; i++) {
        for (size_t len = 1; len < stops[i].n && len <= n; len++) {
            if (len > held && memcmp(text + n - len, stops[i].p, len) == 0) held = len;
        }
    }
    return held;
}

static void test_push__random_splits__equals_whole_text_search(void **state)
{
    (void)state;
    uint32_t stopped_runs = 0;
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    for (uint32_t run = 0; run < 20000; run++) {
        char text[60], strings[4][8];
        struct sl_str stops[4];
        uint32_t letters = 1 + random_below(3), n_stops = random_below(5), n = random_below(60);
        for (uint32_t i = 0; i < n; i++) text[i] = (char)('a' + random_below(letters));
        for (uint32_t s = 0; s < n_stops; s++) {
            stops[s] = (struct sl_str){strings[s], 1 + random_below(8)};
            for (size_t i = 0; i < stops[s].n; i++)
                strings[s][i] = (char)('a' + random_below(letters + 1));
        }
        struct sl_stop *stop = NULL;
        struct sink sink = {.n = 0};
        bool stopped = false;
        size_t at = 0, cut = naive_cut(text, n, stops, n_stops);
        assert_int_equal(sl_stop_open(stops, n_stops, &budget, NULL, &stop), SLUICE_OK);
        while (at < n && !stopped) {
            size_t len = random_below(9);
            if (len > n - at) len = n - at;
            sl_stop_push(stop, (struct sl_str){text + at, len}, collect, &sink, &stopped);
            at += len;
            if (!stopped) assert_int_equal(sink.n, at - naive_held(text, at, stops, n_stops));
        }
        sl_stop_flush(stop, collect, &sink);
        assert_int_equal(sink.n, cut);
        if (cut > 0) assert_memory_equal(sink.text, text, cut);
        assert_int_equal(stopped, cut < n);
        stopped_runs += stopped;
        sl_stop_close(stop);
    }
    assert_true(stopped_runs > 1000 && stopped_runs < 19000);
    assert_int_equal(atomic_load(&budget.used_bytes), 0);
}

static void test_push__stop_over_tokens__is_cut_and_reset_starts_anew(void **state)
{
    (void)state;
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    struct sl_stop *stop = NULL;
    const struct sl_str stops[] = {SL_STR("\nUser:"), SL_STR("\xe4\xb8\x96")};
    assert_int_equal(sl_stop_open(stops, 2, &budget, NULL, &stop), SLUICE_OK);
    for (int round = 0; round < 2; round++) {
        struct sink sink = {.n = 0};
        bool stopped = false;
        sl_stop_push(stop, SL_STR("Hi\n"), collect, &sink, &stopped);
        assert_int_equal(sink.n, 2);
        sl_stop_push(stop, SL_STR("Us"), collect, &sink, &stopped);
        sl_stop_push(stop, SL_STR(""), collect, &sink, &stopped);
        assert_int_equal(sink.n, 2);
        sl_stop_push(stop, SL_STR("er: and"), collect, &sink, &stopped);
        assert_true(stopped);
        assert_int_equal(sink.n, 2);
        sl_stop_flush(stop, collect, &sink);
        assert_int_equal(sink.n, 2);
        sl_stop_reset(stop);
    }
    sl_stop_close(stop);
}

static void count(void *user, const char *text, size_t n)
{
    (void)text;
    *(size_t *)user += n;
}

/* A search that starts over at every byte would make 2^32 comparisons here and run into the time
 * limit. */
static void test_push__megabyte_of_near_misses__is_linear(void **state)
{
    (void)state;
    enum { STOP = 4096, N = 1 << 20 };
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    char *text = malloc(N), pattern[STOP];
    assert_non_null(text);
    memset(text, 'a', N);
    memset(pattern, 'a', STOP);
    pattern[STOP - 1] = 'b';
    struct sl_stop *stop = NULL;
    struct sl_str strings[64];
    for (size_t i = 0; i < SL_ARRAY_LEN(strings); i++) strings[i] = (struct sl_str){pattern, STOP};
    bool stopped = false;
    size_t emitted = 0;
    assert_int_equal(sl_stop_open(strings, 64, &budget, NULL, &stop), SLUICE_OK);
    sl_stop_push(stop, (struct sl_str){text, N}, count, &emitted, &stopped);
    assert_false(stopped);
    assert_int_equal(emitted, N - (STOP - 1));
    sl_stop_flush(stop, count, &emitted);
    assert_int_equal(emitted, N);
    free(text);
    sl_stop_close(stop);
}

static void test_open__bad_strings__are_refused(void **state)
{
    (void)state;
    struct sl_budget budget;
    struct sl_stop *stop = NULL;
    static char big[4097];
    struct sl_str many[65];
    sl_budget_init(&budget, UINT64_MAX);
    for (size_t i = 0; i < SL_ARRAY_LEN(many); i++) many[i] = SL_STR("x");
    const struct sl_str empty[] = {SL_STR("ok"), SL_STR("")};
    const struct sl_str longer = {big, sizeof(big)};
    assert_int_equal(sl_stop_open(empty, 2, &budget, NULL, &stop), SLUICE_E_ARG);
    assert_null(stop);
    assert_int_equal(sl_stop_open(&longer, 1, &budget, NULL, &stop), SLUICE_E_LIMIT);
    assert_int_equal(sl_stop_open(many, 65, &budget, NULL, &stop), SLUICE_E_LIMIT);
    assert_int_equal(sl_stop_open(many, 64, &budget, NULL, &stop), SLUICE_OK);
    sl_stop_close(stop);
    sl_stop_close(NULL);
    budget.limit_bytes = 100;
    assert_int_equal(sl_stop_open(many, 64, &budget, NULL, &stop), SLUICE_E_BUDGET);
    assert_null(stop);
    assert_int_equal(atomic_load(&budget.used_bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push__random_splits__equals_whole_text_search),
        cmocka_unit_test(test_push__stop_over_tokens__is_cut_and_reset_starts_anew),
        cmocka_unit_test(test_push__megabyte_of_near_misses__is_linear),
        cmocka_unit_test(test_open__bad_strings__are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
