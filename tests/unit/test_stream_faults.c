/* Faults of reading while experts stream, struck at the first, second, third ... read until none is
 * met: every run ends with the right error, which names file, layer, expert and offset, or with the
 * right logits; afterwards the same session gives the right logits and nothing more is charged than
 * before. On every backend, with and without reading ahead, at the fewest slots that are legal, so
 * that nearly every expert is read again and again.
 *
 * What a drive does silently, flipped bits and bytes from elsewhere, is found on re-reads by the
 * remembered checksums, and on first reads where there is a sums file, or the model is a container.
 *
 *   test_stream_faults [CONTAINER]      with a container of the same model: what concerns those */
#define _GNU_SOURCE
#include "tests/support/stream_rig.h"

#include <errno.h>

#include "formats/sums.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define MODEL GOLDEN "qwen3moe-Q8_0/model.gguf"
#define SLOTS 2 /* one layer's choice of that model */
#define N_IDS 6
#define LOOPS_MAX 5000
#define FOR_EVER UINT64_MAX
#define BLOCK 4096 /* an offset of a failed system call is that of a block */

static const struct {
    const char *name;
    uint32_t io, prefetch;
} ways[] = {
    {"pread, no prefetch", SLUICE_IO_PREAD, SLUICE_PREFETCH_OFF},
    {"io_uring, no prefetch", SLUICE_IO_URING, SLUICE_PREFETCH_OFF},
    {"pread, prefetch", SLUICE_IO_PREAD, SLUICE_PREFETCH_FORCED},
    {"io_uring, prefetch", SLUICE_IO_URING, SLUICE_PREFETCH_FORCED},
};
#define N_WAYS (sizeof ways / sizeof ways[0])

/* Bits of ways. Faults that are mended far below, in io/, take half of them each. */
#define EVERY_WAY 15u
#define ONE_HALF 9u
#define OTHER_HALF 6u

static float *right; /* the logits, from a model without faults */
static struct rig rig;

static void rig_prepare(size_t way, const char *path, uint32_t slots)
{
    struct stream_setup u = STREAM_PLAIN;

    u.slots = slots;
    u.io = ways[way].io;
    u.prefetch = ways[way].prefetch;
    u.threads = 1 + way % 2;
    rig = (struct rig){.path = path, .setup = u, .fail_after = -1, .right = right};
    if (way == 0 || way == 3) rig.trace = "/dev/null"; /* recorded, with and without guesses */
    rig_set_text(&rig, N_IDS);
}

static bool guesses(void) { return rig.setup.prefetch != SLUICE_PREFETCH_OFF; }

/* ---- what an error has to say -----------------------------------------------------------------
 */

struct strike {
    struct sl_io_fault_plan plan;
    size_t way;
    const char *what;
};

static void complain(const struct strike *k, const sluice_error *e, const char *wrong)
{
    fail_msg("%s at read %llu, %s: %s; the error says: layer %d, expert %d, offset %llu, %s: %s",
             k->what, (unsigned long long)k->plan.nth, ways[k->way].name, wrong, e->layer,
             e->expert, (unsigned long long)e->file_offset, sluice_err_name((sluice_err)e->code),
             e->text);
}

/* Whether the offset is in the expert's part of one of its layer's tensors (or, for expert -1, in
 * the tensor of that name), a block more or less. */
static bool offset_is_in(const sluice_error *e, const char *name)
{
    sluice_tensor t = SLUICE_TENSOR_INIT;

    for (uint32_t i = 0; sluice_model_get_tensor(rig.model, i, &t) == 1; i++) {
        if (strcmp(t.name, name) != 0) continue;
        uint64_t bytes = e->expert < 0 ? t.bytes : t.bytes / t.dims[2];
        uint64_t from = t.offset + (e->expert < 0 ? 0 : bytes * (uint64_t)e->expert);
        return e->file_offset + BLOCK >= from && e->file_offset < from + bytes + BLOCK;
    }
    return false;
}

/* While evaluating only experts and embedding rows are read. */
static void check_place(const struct strike *k, const sluice_error *e)
{
    static const char *const parts[] = {"gate", "up", "down"};
    char name[64];
    bool found = false;

    if (strstr(e->text, rig.path) == NULL) complain(k, e, "the file is not named");
    if (e->file_offset == SLUICE_NO_OFFSET) complain(k, e, "there is no offset");
    if (e->layer < 0) {
        if (!offset_is_in(e, "token_embd.weight"))
            complain(k, e, "the offset is not of embeddings");
        return;
    }
    if (e->expert < 0) complain(k, e, "there is no expert");
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", e->layer, parts[i]);
        found = found || offset_is_in(e, name);
    }
    if (!found) complain(k, e, "the offset is not of that layer and expert");
    if (strstr(e->text, "layer") == NULL || strstr(e->text, "expert") == NULL)
        complain(k, e, "the sentence names no layer and expert");
}

static void check_right(const struct strike *k, const char *when)
{
    size_t row = 0;

    if (!stream_equal(&rig.text, rig.got, rig.right, &row))
        fail_msg("%s at read %llu, %s: other logits from token %zu on, %s", k->what,
                 (unsigned long long)k->plan.nth, ways[k->way].name, row, when);
}

/* After a failure the context is as it was before the failed call: nothing of the prompt, or the
 * tokens before the one that failed. */
static void check_length(const struct strike *k, const sluice_error *e)
{
    size_t n = sluice_session_length(rig.session), prompt = N_IDS - N_IDS / 2;

    if (n != 0 && (n < prompt || n >= N_IDS)) complain(k, e, "the context has another length");
}

/* ---- loops ------------------------------------------------------------------------------------
 */

/* What a run that met its fault may end with. */
struct outcome {
    sluice_err code;  /* the one error that is right; SLUICE_OK: none, it must be mended */
    bool may_succeed; /* right logits are fine too */
};

static uint64_t failed_runs, mended_runs;

/* One reading under the plan, and one without. False: the fault was not met. */
static bool strike_once(const struct strike *k, const struct outcome *o)
{
    sluice_error e;

    rig_set(&rig, &k->plan);
    sluice_err err = rig_read(&rig, &e);
    bool met = sl_io_fault_met(rig.wrapper) > 0;
    if (err == SLUICE_OK) {
        check_right(k, "and no error");
        mended_runs += met;
        if (met && o->code != SLUICE_OK && !o->may_succeed)
            fail_msg("%s at read %llu, %s: nobody noticed", k->what,
                     (unsigned long long)k->plan.nth, ways[k->way].name);
    } else {
        failed_runs++;
        if (!met || err != o->code) complain(k, &e, "that is the wrong error");
        if ((sluice_err)e.code != err) complain(k, &e, "the code is not that of the sentence");
        check_place(k, &e);
        check_length(k, &e);
    }
    rig_read_right(&rig);
    if (rig_used(&rig) != rig.used)
        fail_msg("%s at read %llu, %s: %lld bytes more are charged than before", k->what,
                 (unsigned long long)k->plan.nth, ways[k->way].name,
                 (long long)(rig_used(&rig) - rig.used));
    return met;
}

/* The plan at read 1, 2, 3 ... of a reading, until it is not met, in each of these ways. */
static void loop_over(struct sl_io_fault_plan plan, const char *what, struct outcome o,
                      unsigned in_ways)
{
    for (size_t way = 0; way < N_WAYS; way++) {
        struct strike k = {plan, way, what};
        struct outcome of_way = o;
        uint64_t nth = 1;

        rig_prepare(way, MODEL, SLOTS);
        if (!(in_ways >> way & 1) || !rig_open(&rig)) continue;
        rig_read_right(&rig);
        rig_read_right(&rig); /* the second one has everything that a session grows by */
        rig.used = rig_used(&rig);
        /* A guess that fails is no error: what is wanted is read again, as a demand. */
        if (guesses()) of_way.may_succeed = true;
        failed_runs = mended_runs = 0;
        for (; nth < LOOPS_MAX; nth++) {
            k.plan.nth = nth;
            k.plan.bit = nth * 1009;
            if (!strike_once(&k, &of_way)) break;
        }
        print_message("%s, %s: %llu reads struck, %llu errors, %llu right\n", what, ways[way].name,
                      (unsigned long long)nth - 1, (unsigned long long)failed_runs,
                      (unsigned long long)mended_runs);
        assert_in_range(nth, N_IDS * 2, LOOPS_MAX - 1);
        if (plan.times > 1 && o.code != SLUICE_OK) assert_true(failed_runs > 0);
        rig_close(&rig);
    }
}

#define PLAN(kind, times)                                                                          \
    (struct sl_io_fault_plan) { kind, 0, 1, times, 0, 0, 0 }

static void test_read__fails_once_for_good__error_with_place_then_right(void **state)
{
    (void)state;
    loop_over(PLAN(SL_IO_FAULT_FAIL, 1), "a failed request", (struct outcome){SLUICE_E_IO, false},
              EVERY_WAY);
}

static void test_read__all_fail_from_one_on__error_with_place_then_right(void **state)
{
    (void)state;
    const struct outcome io = {SLUICE_E_IO, false};

    loop_over(PLAN(SL_IO_FAULT_FAIL, FOR_EVER), "failing requests", io, EVERY_WAY);
    loop_over(PLAN(SL_IO_FAULT_SYS_ERROR, FOR_EVER), "EIO for ever", io, ONE_HALF);
}

static const struct outcome unnoticed = {SLUICE_OK, true};

static void test_read__transient_error__not_noticed(void **state)
{
    (void)state;
    struct sl_io_fault_plan again = PLAN(SL_IO_FAULT_SYS_ERROR, 20);

    again.sys_errno = EAGAIN;
    loop_over(PLAN(SL_IO_FAULT_SYS_ERROR, 1), "EIO once", unnoticed, ONE_HALF);
    loop_over(again, "EAGAIN twenty times", unnoticed, OTHER_HALF);
}

static void test_read__short__not_noticed(void **state)
{
    (void)state;
    struct sl_io_fault_plan all = PLAN(SL_IO_FAULT_SYS_SHORT, FOR_EVER);

    all.short_bytes = 4097;
    loop_over(PLAN(SL_IO_FAULT_SYS_SHORT, 1), "one byte at first", unnoticed, ONE_HALF);
    loop_over(all, "short reads", unnoticed, OTHER_HALF);
}

static void test_read__late_or_out_of_order__not_noticed(void **state)
{
    (void)state;
    struct sl_io_fault_plan late = PLAN(SL_IO_FAULT_DELAY, 1);

    late.delay_ns = 1000000;
    loop_over(late, "a late read", unnoticed, EVERY_WAY);
    loop_over(PLAN(SL_IO_FAULT_REORDER, 1), "one read overtaken", unnoticed, ONE_HALF);
    loop_over(PLAN(SL_IO_FAULT_REORDER, FOR_EVER), "reads overtaken", unnoticed, OTHER_HALF);
}

/* The clean readings before have remembered the sum of all that the text needs. */
static void test_bits__wrong_on_a_reread__found(void **state)
{
    (void)state;
    const struct outcome corrupt = {SLUICE_E_CORRUPT, false};

    loop_over(PLAN(SL_IO_FAULT_FLIP, FOR_EVER), "flipped bits", corrupt, EVERY_WAY);
    loop_over(PLAN(SL_IO_FAULT_WRONG_OFFSET, FOR_EVER), "reads from elsewhere", corrupt, ONE_HALF);
}

/* Wrong once: found, and perhaps mended by reading again. */
static void test_bits__wrong_once_on_a_reread__found_or_mended(void **state)
{
    (void)state;
    const struct outcome corrupt = {SLUICE_E_CORRUPT, true};

    loop_over(PLAN(SL_IO_FAULT_FLIP, 1), "a flipped bit", corrupt, ONE_HALF);
    loop_over(PLAN(SL_IO_FAULT_WRONG_OFFSET, 1), "a read from elsewhere", corrupt, OTHER_HALF);
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static uint64_t stride = 1; /* from read 40 on, where the same kinds of reads go on and on */

/* Opens under the plan and reads the text, until the plan is not met. Where opening or the first
 * reading fails, the code is right and the sentence names the file; never wrong logits. */
static void loop_opening(struct sl_io_fault_plan plan, const char *what, struct outcome o,
                         const struct strike *at)
{
    uint64_t nth = 1, failed = 0;

    for (; nth < LOOPS_MAX; nth += nth < 40 ? 1 : stride) {
        struct strike k = {plan, at->way, what};
        sluice_error e = {0};

        alarm(RIG_SECONDS_MAX);
        k.plan.nth = nth;
        k.plan.bit = nth * 977;
        rig.at_open = k.plan;
        sluice_err err = rig_try_open(&rig, &e);
        bool met = true;
        if (err == SLUICE_OK) {
            if (sluice_session_open(rig.model, &rig.session, &e) != SLUICE_OK)
                fail_msg("%s", e.text);
            rig.got = stream_room(&rig.text);
            err = rig_read(&rig, &e);
            met = sl_io_fault_met(rig.wrapper) > 0;
            if (err == SLUICE_OK) check_right(&k, "and no error");
            rig_close(&rig);
        }
        if (!met) break;
        failed += err != SLUICE_OK;
        if (err != SLUICE_OK && err != o.code) complain(&k, &e, "that is the wrong error");
        if (err == SLUICE_OK && o.code != SLUICE_OK && !o.may_succeed)
            fail_msg("%s at read %llu, %s: nobody noticed", what, (unsigned long long)nth,
                     ways[k.way].name);
        if (err == SLUICE_OK) continue;
        if (strstr(e.text, rig.path) == NULL) complain(&k, &e, "the file is not named");
        if (e.file_offset == SLUICE_NO_OFFSET) complain(&k, &e, "there is no offset");
    }
    print_message("%s from opening on, %s, %u slots: %llu reads struck, %llu errors\n", what,
                  ways[at->way].name, rig.setup.slots, (unsigned long long)nth - 1,
                  (unsigned long long)failed);
    assert_in_range(nth, 10, LOOPS_MAX - 1);
}

static bool granted(size_t way)
{
    rig_prepare(way, MODEL, SLOTS);
    bool yes = rig_open(&rig);
    if (yes) rig_close(&rig);
    return yes;
}

static void test_open__reads_fail_or_are_mended__error_or_right(void **state)
{
    (void)state;
    struct sl_io_fault_plan some = PLAN(SL_IO_FAULT_SYS_SHORT, FOR_EVER);

    some.short_bytes = 4097;
    for (size_t i = 0; i < 2 * N_WAYS; i++) {
        struct strike at = {rig_no_fault, i / 2, NULL};
        if (!granted(at.way)) continue;
        stride = at.way == 0 ? 1 : 7;
        rig_prepare(at.way, MODEL, i % 2 == 0 ? SLOTS : 0); /* all experts are read at open, too */
        loop_opening(PLAN(SL_IO_FAULT_FAIL, FOR_EVER), "failing requests",
                     (struct outcome){SLUICE_E_IO, guesses()}, &at);
        loop_opening(PLAN(SL_IO_FAULT_FAIL, 1), "a failed request",
                     (struct outcome){SLUICE_E_IO, guesses()}, &at);
        if (at.way >= 2) continue;
        loop_opening(PLAN(SL_IO_FAULT_SYS_ERROR, 1), "EIO once", (struct outcome){SLUICE_OK, true},
                     &at);
        loop_opening(some, "short reads", (struct outcome){SLUICE_OK, true}, &at);
    }
    stride = 1;
}

/* ---- with a sums file -------------------------------------------------------------------------
 */

/* Experts apart, fused projections, a shared expert, embeddings that are the output matrix too. */
static const struct {
    const char *path;
    uint32_t slots; /* one layer's choice */
} summed[] = {
    {MODEL, SLOTS},
    {GOLDEN "qwen3moe-MXFP4-features/model.gguf", 8},
    {GOLDEN "qwen2moe-Q8_0/model.gguf", 2},
    {GOLDEN "granitemoe-shared-Q8_0/model.gguf", 2},
};
#define N_SUMMED (sizeof summed / sizeof summed[0])

static char folder[] = "/tmp/sluice_test_stream_XXXXXX";
static char copy[sizeof folder + 16], sums[sizeof folder + 32];

static void copy_model(const char *from)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(copy, "wb");

    assert_non_null(in);
    assert_non_null(out);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_in_range(n, 1, sizeof bytes - 1);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(fclose(in), 0);
}

/* The model in `copy` with a sums file beside it. Returns its logits; the caller frees them. */
static float *make_sums(const char *from)
{
    struct sl_budget b;
    struct sl_gguf *g = NULL;
    sluice_error e = {0};

    (void)unlink(sums);
    copy_model(from);
    rig_prepare(0, copy, 0);
    float *logits = rig_reference(&rig);
    sl_budget_init(&b, UINT64_MAX);
    sluice_err err = sl_gguf_open(copy, &b, &e, &g);
    if (err == SLUICE_OK) err = sl_sums_make(g, &b, NULL, NULL, &e);
    if (err != SLUICE_OK) fail_msg("no sums file: %s", e.text);
    sl_gguf_close(g);
    assert_int_equal(access(sums, R_OK), 0);
    assert_int_equal(sl_budget_used(&b), 0);
    return logits;
}

static int set_up(void **state)
{
    (void)state;
    rig_prepare(0, MODEL, 0);
    right = rig_reference(&rig);
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(copy, sizeof copy, "%s/model.gguf", folder);
    (void)snprintf(sums, sizeof sums, "%s.sums", copy);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(right);
    unlink(sums);
    unlink(copy);
    return rmdir(folder);
}

/* Resident weights, embedding rows, experts at open and experts on demand: whatever is read. */
static void test_sums__wrong_bits_on_first_reads__found(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_SUMMED; m++) {
        float *logits = make_sums(summed[m].path);

        for (size_t i = 0; i < 2 * N_WAYS; i++) {
            struct strike at = {rig_no_fault, i / 2, NULL};
            bool fewer = at.way == 1 || at.way == 2 || (m > 0 && at.way > 0);
            if (fewer || !granted(at.way)) continue;
            stride = m == 0 && at.way == 0 ? 1 : 7;
            rig_prepare(at.way, copy, i % 2 == 0 ? summed[m].slots : 0);
            rig.right = logits;
            loop_opening(PLAN(SL_IO_FAULT_FLIP, 1), "a flipped bit",
                         (struct outcome){SLUICE_E_CORRUPT, true}, &at);
            loop_opening(PLAN(SL_IO_FAULT_FLIP, FOR_EVER), "flipped bits",
                         (struct outcome){SLUICE_E_CORRUPT, guesses()}, &at);
            if (at.way >= 2) continue;
            loop_opening(PLAN(SL_IO_FAULT_WRONG_OFFSET, FOR_EVER), "reads from elsewhere",
                         (struct outcome){SLUICE_E_CORRUPT, false}, &at);
        }
        free(logits);
    }
    stride = 1;
}

/* A sums file of this model is used: readings compare every first read, and find nothing. */
static void test_sums__no_fault__right(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SUMMED * N_WAYS; i++) {
        float *logits = make_sums(summed[i / N_WAYS].path);
        sluice_stats st = SLUICE_STATS_INIT;

        rig_prepare(i % N_WAYS, copy, 0);
        rig.right = logits;
        if (rig_open(&rig)) {
            rig_read_right(&rig);
            sluice_session_get_stats(rig.session, &st);
            assert_true(st.checked > 0); /* nothing was read twice: the sums file did it */
            rig_close(&rig);
        }
        free(logits);
    }
}

/* ---- containers -------------------------------------------------------------------------------
 */

static const char *container;

/* Whatever is read of a container is compared (its header and index are read elsewhere). */
static void test_container__reads_fail_or_lie_from_opening_on__found(void **state)
{
    (void)state;
    rig_prepare(0, container, 0);
    float *logits = rig_reference(&rig);

    for (size_t i = 0; i < 2 * N_WAYS; i++) {
        struct strike at = {rig_no_fault, i / 2, NULL};
        if (!granted(at.way)) continue;
        stride = at.way == 0 ? 1 : 3;
        rig_prepare(at.way, container, i % 2 == 0 ? SLOTS : 0);
        rig.right = logits;
        loop_opening(PLAN(SL_IO_FAULT_FLIP, 1), "a flipped bit",
                     (struct outcome){SLUICE_E_CORRUPT, guesses()}, &at);
        loop_opening(PLAN(SL_IO_FAULT_FLIP, FOR_EVER), "flipped bits",
                     (struct outcome){SLUICE_E_CORRUPT, guesses()}, &at);
        loop_opening(PLAN(SL_IO_FAULT_WRONG_OFFSET, FOR_EVER), "reads from elsewhere",
                     (struct outcome){SLUICE_E_CORRUPT, guesses()}, &at);
        loop_opening(PLAN(SL_IO_FAULT_FAIL, FOR_EVER), "failing requests",
                     (struct outcome){SLUICE_E_IO, guesses()}, &at);
        loop_opening(PLAN(SL_IO_FAULT_SYS_ERROR, 1), "EIO once", (struct outcome){SLUICE_OK, true},
                     &at);
    }
    stride = 1;
    free(logits);
}

/* ---- hot lists --------------------------------------------------------------------------------
 */

/* A read for the hot list that fails is no error as long as nobody needs the expert; what it brings
 * is checked as every other read. */
static void test_hot_list__its_reads_fail_or_lie__never_other_logits(void **state)
{
    (void)state;
    char hot[sizeof folder + 16];
    float *logits = make_sums(MODEL);

    (void)snprintf(hot, sizeof hot, "%s/hot.txt", folder);
    stride = 3;
    for (size_t way = 0; way < N_WAYS; way += 3) {
        struct strike at = {rig_no_fault, way, NULL};
        if (!granted(way)) continue;
        for (int i = 0; i < 2; i++) { /* the first writes the list */
            rig_prepare(way, copy, 12);
            rig.right = logits;
            rig.hot_list = hot;
            assert_true(rig_open(&rig));
            rig_read_right(&rig);
            rig_close(&rig);
        }
        loop_opening(PLAN(SL_IO_FAULT_FAIL, 1), "a failed request, hot list",
                     (struct outcome){SLUICE_E_IO, true}, &at);
        loop_opening(PLAN(SL_IO_FAULT_FLIP, FOR_EVER), "flipped bits, hot list",
                     (struct outcome){SLUICE_E_CORRUPT, true}, &at);
        (void)unlink(hot);
    }
    stride = 1;
    free(logits);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static bool out_of_memory(sluice_err err)
{
    return err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET;
}

/* Every charge from the opened backend on fails in turn: store, weights, books, predictor. */
static void test_open__memory_fails_at_every_point__clean_error(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        bool met = true;
        int64_t n = 0;
        sluice_error e = {0};

        if (!granted(way)) continue;
        rig_prepare(way, MODEL, SLOTS);
        rig.at_open = rig_no_fault;
        for (; met && n < LOOPS_MAX; n++) {
            rig.fail_after = n;
            sluice_err err = rig_try_open(&rig, &e);
            met = err != SLUICE_OK || rig.model->budget.fail_after < 0;
            if (err != SLUICE_OK && !out_of_memory(err))
                fail_msg("charge %lld: %s: %s", (long long)n, sluice_err_name(err), e.text);
            if (err != SLUICE_OK) continue;
            rig.model->budget.fail_after = -1;
            if (sluice_session_open(rig.model, &rig.session, &e) != SLUICE_OK)
                fail_msg("%s", e.text);
            rig.got = stream_room(&rig.text);
            rig_read_right(&rig);
            rig_close(&rig);
        }
        print_message("memory at opening, %s: %lld charges\n", ways[way].name, (long long)n - 1);
        assert_in_range(n, 4, LOOPS_MAX - 1);
    }
}

/* The same for a session and its evaluations. */
static void test_session__memory_fails_at_every_point__clean_error_then_right(void **state)
{
    (void)state;
    for (size_t way = 0; way < N_WAYS; way++) {
        bool met = true;
        int64_t n = 0;
        sluice_error e = {0};

        rig_prepare(way, MODEL, SLOTS);
        if (!rig_open(&rig)) continue;
        sluice_session_close(rig.session);
        rig.session = NULL;
        uint64_t before = rig_used(&rig);
        for (; met && n < LOOPS_MAX; n++) {
            rig.model->budget.fail_after = n;
            sluice_err err = sluice_session_open(rig.model, &rig.session, &e);
            if (err == SLUICE_OK) err = rig_read(&rig, &e);
            met = rig.model->budget.fail_after < 0;
            rig.model->budget.fail_after = -1;
            if (err != SLUICE_OK && !out_of_memory(err))
                fail_msg("charge %lld: %s: %s", (long long)n, sluice_err_name(err), e.text);
            if (rig.session != NULL) rig_read_right(&rig);
            sluice_session_close(rig.session);
            rig.session = NULL;
            assert_int_equal(rig_used(&rig), before);
        }
        print_message("memory of a session, %s: %lld charges\n", ways[way].name, (long long)n - 1);
        assert_in_range(n, 4, LOOPS_MAX - 1);
        rig_close(&rig);
    }
}

/* Requests of one token at the fewest slots, nothing being in memory yet: rows of the embedding and
 * experts. */
static uint64_t requests_of_a_token(const char *path)
{
    rig_prepare(0, path, SLOTS);
    rig_set_text(&rig, 1);
    assert_true(rig_open(&rig));
    const struct sl_io_fault_plan count = {SL_IO_FAULT_DELAY, 0, 1, FOR_EVER, 0, 0, 0};
    rig_set(&rig, &count);
    sluice_error e;
    assert_int_equal(rig_read(&rig, &e), SLUICE_OK);
    uint64_t met = sl_io_fault_met(rig.wrapper);
    rig_set(&rig, &rig_no_fault);
    rig_close(&rig);
    return met;
}

/* Three layers choose two experts each. */
static void test_container__expert_that_is_read__one_request(void **state)
{
    (void)state;
    assert_int_equal(requests_of_a_token(container), 1 + 3 * 2);
    assert_int_equal(requests_of_a_token(MODEL), 1 + 3 * 2 * 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest of_container[] = {
        cmocka_unit_test(test_container__reads_fail_or_lie_from_opening_on__found),
        cmocka_unit_test(test_container__expert_that_is_read__one_request),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read__fails_once_for_good__error_with_place_then_right),
        cmocka_unit_test(test_read__all_fail_from_one_on__error_with_place_then_right),
        cmocka_unit_test(test_read__transient_error__not_noticed),
        cmocka_unit_test(test_read__short__not_noticed),
        cmocka_unit_test(test_read__late_or_out_of_order__not_noticed),
        cmocka_unit_test(test_bits__wrong_on_a_reread__found),
        cmocka_unit_test(test_bits__wrong_once_on_a_reread__found_or_mended),
        cmocka_unit_test(test_open__reads_fail_or_are_mended__error_or_right),
        cmocka_unit_test(test_sums__no_fault__right),
        cmocka_unit_test(test_sums__wrong_bits_on_first_reads__found),
        cmocka_unit_test(test_hot_list__its_reads_fail_or_lie__never_other_logits),
        cmocka_unit_test(test_open__memory_fails_at_every_point__clean_error),
        cmocka_unit_test(test_session__memory_fails_at_every_point__clean_error_then_right),
    };

    if (argc > 1) {
        container = argv[1];
        return cmocka_run_group_tests(of_container, set_up, tear_down);
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
