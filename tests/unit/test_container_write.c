/* Writing containers: however and whenever it is interrupted, going on gives the same files to the
 * byte. Interruptions are simulated after every single change of the disk, and done in earnest with
 * SIGKILL. What was begun from something else is refused and left alone, a full disk leaves no
 * final name, and memory does not grow with the model. */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/container_case.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define CHANGES_MAX 10000

/* What an uninterrupted run writes; nothing stays on the disk. */
static struct case_bytes reference(void)
{
    case_write_ok();
    struct case_bytes all = case_all_parts();

    case_clean();
    return all;
}

/* Goes on to the end, compares, and removes everything. */
static void assert_goes_on_to(const struct case_bytes *wanted)
{
    case_write_ok();
    struct case_bytes all = case_all_parts();

    assert_int_equal(all.n, wanted->n);
    assert_memory_equal(all.p, wanted->p, all.n);
    free(all.p);
    assert_false(case_exists(case_part(0, 1, ".journal")));
    for (uint32_t n = 1; n <= CASE_FILES_MAX; n++) {
        for (uint32_t i = 0; i < n; i++) assert_false(case_exists(case_part(i, n, ".partial")));
    }
    case_clean();
}

/* Writes until so many changes were made. */
static sluice_err write_until(uint64_t changes)
{
    struct sl_resume_limit limit = {changes};

    cc.plan.limit = &limit;
    sluice_err err = case_write();
    cc.plan.limit = NULL;
    return err;
}

/* ---- interruptions ---------------------------------------------------------------------------
 */

static void stop_everywhere(void)
{
    struct case_bytes wanted = reference();
    uint64_t n = 0;

    for (; write_until(n) != SLUICE_OK; n++) {
        assert_int_equal(error.code, SLUICE_E_IO);
        assert_goes_on_to(&wanted);
        assert_true(n < CHANGES_MAX);
    }
    assert_true(n > 15);
    case_clean();
    free(wanted.p);
}

static void test_stop__after_every_change__goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    stop_everywhere();
}

static void test_stop__after_every_change_of_parts__goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    stop_everywhere();
}

static void test_stop__seldom_synced__goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    cc.plan.sync_bytes = 0;
    stop_everywhere();
}

static void test_stop__again_and_again__goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    struct case_bytes wanted = reference();
    for (uint64_t step = 30; step < 45; step++) {
        uint64_t tries = 0;

        while (write_until(step) != SLUICE_OK) assert_true(++tries < CHANGES_MAX);
        assert_true(tries > 0);
        struct case_bytes all = case_all_parts();
        assert_int_equal(all.n, wanted.n);
        assert_memory_equal(all.p, wanted.p, all.n);
        free(all.p);
        case_clean();
    }
    free(wanted.p);
}

static void test_stop__what_was_finished__is_kept(void **state)
{
    struct sl_container_writer *w;
    (void)state;
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w), SLUICE_OK);
    assert_int_equal(sl_container_write_kept(w), 0);
    assert_int_equal(sl_container_write_next(w), 0);
    assert_int_equal(case_feed(w), SLUICE_OK);
    uint64_t total = sl_container_write_total(w);
    sl_container_write_close(w); /* all records, no index */
    assert_int_equal(case_n_parts(), 0);
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w), SLUICE_OK);
    assert_int_equal(sl_container_write_next(w), cc.plan.n_tensors);
    assert_int_equal(sl_container_write_kept(w), total - 2 * SL_CN_ALIGN);
    assert_int_equal(sl_container_write_commit(w, &error), SLUICE_OK);
    sl_container_write_close(w);
    assert_int_equal(case_verify(cc.path), SLUICE_OK);
    case_clean();
}

/* Bytes of all tensors before n, given to a writer that syncs seldom; then it is suspended. */
static uint64_t suspend_after(uint32_t n)
{
    struct sl_container_writer *w;
    uint32_t all = cc.plan.n_tensors;

    cc.plan.sync_bytes = 0;
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w), SLUICE_OK);
    cc.plan.n_tensors = n;
    assert_int_equal(case_feed(w), SLUICE_OK);
    cc.plan.n_tensors = all;
    uint64_t bytes = sl_container_write_suspend(w);
    assert_int_equal(sl_container_write_suspend(w), bytes);
    sl_container_write_close(w);
    return bytes;
}

static void test_suspend__records_without_an_entry__are_kept(void **state)
{
    struct sl_container_writer *w;
    uint64_t last = 0;
    (void)state;
    struct case_bytes wanted = reference();
    for (uint32_t n = 0; n <= cc.plan.n_tensors; n++) {
        uint64_t bytes = suspend_after(n);
        assert_true(bytes >= last);
        last = bytes;
        assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w), 0);
        assert_int_equal(sl_container_write_kept(w), bytes);
        assert_true(sl_container_write_next(w) >= (n > 3 ? n - 3 : 0)); /* those of one expert */
        sl_container_write_close(w);
        assert_goes_on_to(&wanted);
    }
    assert_int_equal(last, wanted.n - 2 * SL_CN_ALIGN); /* all but header and index */
    free(wanted.p);
}

static void test_suspend__a_write_failed__what_the_files_have_is_kept(void **state)
{
    struct sl_container_writer *w;
    uint64_t n_failed = 0;
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    struct case_bytes wanted = reference();
    for (uint64_t n = 0; n < CHANGES_MAX; n++) {
        struct sl_resume_limit limit = {n};
        cc.plan.limit = &limit;
        sluice_err err = sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w);
        cc.plan.limit = NULL;
        if (err != SLUICE_OK) continue;
        err = case_feed(w);
        n_failed += err != SLUICE_OK;
        limit.changes_left = CHANGES_MAX; /* the disk has room again */
        uint64_t bytes = sl_container_write_suspend(w);
        sl_container_write_close(w);
        assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w), 0);
        assert_int_equal(sl_container_write_kept(w), bytes);
        sl_container_write_close(w);
        assert_goes_on_to(&wanted);
        if (err == SLUICE_OK) break;
    }
    assert_true(n_failed > 10);
    free(wanted.p);
}

/* A child writes, and is killed at some moment, which may be after its end. */
static void kill_after(long ns)
{
    const struct timespec pause = {0, ns};
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)!case_write();
        _exit(0);
    }
    nanosleep(&pause, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_kill__twenty_moments__goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    struct case_bytes wanted = reference();
    for (long i = 0; i < 20; i++) {
        kill_after(200000 * (i + 1));
        if (i % 3 == 0) kill_after(300000);
        assert_goes_on_to(&wanted);
    }
    free(wanted.p);
}

/* ---- what an interruption left, damaged ------------------------------------------------------ */

static void test_resume__a_finished_record_damaged__written_again(void **state)
{
    (void)state;
    struct case_bytes wanted = reference();
    for (uint64_t at = SL_CN_HEADER_BYTES; at < SL_CN_HEADER_BYTES + 131072; at += 9973) {
        assert_int_equal(write_until(20), SLUICE_E_IO);
        struct case_bytes partial = case_read(case_part(0, 1, ".partial"));
        if (at < partial.n) partial.p[at] ^= 0x10;
        case_put(case_part(0, 1, ".partial"), partial.p, partial.n);
        free(partial.p);
        assert_goes_on_to(&wanted);
    }
    free(wanted.p);
}

static void test_resume__journal_cut_at_every_length__the_same_bytes(void **state)
{
    (void)state;
    struct case_bytes wanted = reference();
    assert_int_equal(write_until(20), SLUICE_E_IO);
    struct case_bytes journal = case_read(case_part(0, 1, ".journal"));
    case_clean();
    assert_true(journal.n > 3 * SL_CN_JOURNAL_BYTES);
    for (size_t n = 1; n<journal.n; n += n % 48> 44 || n % 48 < 3 ? 1 : 7) {
        assert_int_equal(write_until(20), SLUICE_E_IO);
        case_put(case_part(0, 1, ".journal"), journal.p, n);
        assert_goes_on_to(&wanted);
    }
    free(journal.p);
    free(wanted.p);
}

static void test_resume__any_bit_of_an_entry_flipped__the_same_bytes(void **state)
{
    (void)state;
    struct case_bytes wanted = reference();
    for (size_t bit = 0; bit < 8 * SL_CN_JOURNAL_BYTES; bit += 5) {
        assert_int_equal(write_until(20), SLUICE_E_IO);
        struct case_bytes journal = case_read(case_part(0, 1, ".journal"));
        journal.p[2 * SL_CN_JOURNAL_BYTES + bit / 8] ^= (unsigned char)(1u << bit % 8);
        case_put(case_part(0, 1, ".journal"), journal.p, journal.n);
        free(journal.p);
        assert_goes_on_to(&wanted);
    }
    free(wanted.p);
}

/* It may be a container that was renamed, and even the source. */
static void test_open__partial_without_journal__refused_but_for_restart(void **state)
{
    (void)state;
    struct case_bytes wanted = reference(), left;
    case_put(case_part(0, 1, ".partial"), "something else, and longer than nothing", 39);
    assert_int_equal(case_write(), SLUICE_E_STATE);
    assert_mentions("no journal says what it is");
    assert_false(case_exists(case_part(0, 1, ".journal")));
    left = case_read(case_part(0, 1, ".partial"));
    assert_int_equal(left.n, 39);
    free(left.p);
    cc.plan.restart = true;
    assert_goes_on_to(&wanted);
    cc.plan.restart = false;
    assert_int_equal(write_until(20), SLUICE_E_IO);
    unlink(case_part(0, 1, ".partial"));
    assert_goes_on_to(&wanted);
    free(wanted.p);
}

/* The lock of a journal is had after another run has finished: what it made stays. */
static void test_open__container_there__refused_and_left(void **state)
{
    (void)state;
    case_put(cc.path, "mine", 4);
    assert_int_equal(case_write(), SLUICE_E_STATE);
    assert_mentions("exists already");
    assert_false(case_exists(case_part(0, 1, ".journal")));
    assert_false(case_exists(case_part(0, 1, ".partial")));
    unlink(cc.path);
}

static void test_restart__other_run_writes__refused(void **state)
{
    struct sl_container_writer *first, *second;
    (void)state;
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &first),
                     SLUICE_OK);
    cc.plan.restart = true;
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &second),
                     SLUICE_E_IO);
    assert_mentions("another process");
    assert_true(case_exists(case_part(0, 1, ".partial")));
    cc.plan.restart = false;
    sl_container_write_discard(first);
}

/* Begun in parts, some of them written, and then wanted as one file. */
static void test_restart__other_division__no_part_of_it_is_left(void **state)
{
    (void)state;
    struct case_bytes wanted = reference();
    cc.plan.part_bytes = CASE_SMALL_PART;
    assert_int_equal(write_until(40), SLUICE_E_IO);
    uint32_t n = 2;
    while (!case_exists(case_part(0, n, ".partial"))) n++;
    assert_true(case_exists(case_part(1, n, ".partial")));
    cc.plan.part_bytes = 0;
    assert_int_equal(case_write(), SLUICE_E_CHANGED);
    cc.plan.restart = true;
    assert_goes_on_to(&wanted); /* which looks for what is left */
    cc.plan.restart = false;
    for (uint32_t i = 0; i < n; i++) assert_false(case_exists(case_part(i, n, ".partial")));
    free(wanted.p);
}

/* Nothing of what was thrown away comes back, wherever the restart is stopped. */
static void test_restart__stopped_anywhere__goes_on_to_the_new_bytes(void **state)
{
    bool done = false;
    (void)state;
    struct case_bytes wanted = reference();
    for (uint64_t n = 0; !done; n++) {
        cc.plan.source++;
        assert_int_equal(write_until(20), SLUICE_E_IO);
        cc.plan.source--;
        cc.plan.restart = true;
        done = write_until(n) == SLUICE_OK;
        cc.plan.restart = n == 0; /* the journal was not yet touched */
        if (!done) assert_goes_on_to(&wanted);
        cc.plan.restart = false;
        assert_true(n < CHANGES_MAX);
    }
    case_clean();
    free(wanted.p);
}

/* Whoever removes files that are written, or puts others there, gets no container of a success. */
static void test_commit__files_removed_meanwhile__an_error(void **state)
{
    static const char *const suffixes[] = {".partial", ".journal"};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_container_writer *w;

        assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w),
                         SLUICE_OK);
        assert_int_equal(case_feed(w), SLUICE_OK);
        unlink(case_part(0, 1, suffixes[i]));
        assert_int_equal(sl_container_write_commit(w, &error), SLUICE_E_CHANGED);
        assert_mentions(suffixes[i]);
        assert_false(case_exists(cc.path));
        sl_container_write_discard(w);
    }
}

/* All but the names was done, and somebody put another file where the container should be. */
static void test_resume__another_file_has_the_name__not_taken_for_ours(void **state)
{
    uint64_t n = 0;
    (void)state;
    struct case_bytes wanted = reference();
    while (write_until(n) != SLUICE_OK) {
        n++;
        case_clean();
    }
    case_clean();
    assert_int_equal(write_until(n - 1), SLUICE_E_IO); /* only the journal was left to remove */
    assert_true(case_exists(cc.path));
    case_put(cc.path, "not ours", 8);
    assert_goes_on_to(&wanted);
    free(wanted.p);
}

/* ---- what belongs to others ------------------------------------------------------------------ */

/* What is refused is left as it was. */
static void assert_refused(sluice_err wanted, const char *says)
{
    struct case_bytes a = case_read(case_part(0, 1, ".journal")), b;

    assert_int_equal(case_write(), wanted);
    assert_mentions(says);
    assert_mentions("m.sluice.journal");
    b = case_read(case_part(0, 1, ".journal"));
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    free(a.p);
    free(b.p);
}

static void test_journal__of_something_else__refused(void **state)
{
    (void)state;
    struct case_bytes wanted = reference();
    assert_int_equal(write_until(20), SLUICE_E_IO);
    cc.plan.source++;
    assert_refused(SLUICE_E_CHANGED, "another source");
    cc.plan.source--;
    struct sl_str own = cc.plan.recipe;
    cc.plan.recipe = SL_STR("experts=Q3_K");
    assert_refused(SLUICE_E_CHANGED, "another recipe");
    cc.plan.recipe = own;
    cc.plan.part_bytes = CASE_SMALL_PART;
    assert_refused(SLUICE_E_CHANGED, "another division");
    cc.plan.part_bytes = 0;
    cc.tensors[4].dims[1]--;
    assert_refused(SLUICE_E_CHANGED, "another division");
    cc.tensors[4].dims[1]++;
    assert_goes_on_to(&wanted);
    free(wanted.p);
}

static void test_journal__without_an_entry__begun_anew_by_other_settings(void **state)
{
    struct sl_container_measure m;
    (void)state;
    cc.plan.sync_bytes = 0;
    struct case_bytes wanted = reference();
    assert_int_equal(write_until(4), SLUICE_E_IO);
    struct case_bytes journal = case_read(case_part(0, 1, ".journal"));
    assert_int_equal(journal.n, SL_CN_JOURNAL_BYTES);
    free(journal.p);
    assert_int_equal(sl_container_measure(cc.path, &cc.plan, &budget, &error, &m), SLUICE_OK);
    assert_true(m.begun && !m.goes_on);
    cc.plan.source++; /* its own file differs by it */
    case_write_ok();
    case_clean();
    cc.plan.source--;
    assert_goes_on_to(&wanted);
    free(wanted.p);
}

static void test_measure__finished_records__whose_they_are(void **state)
{
    struct sl_container_measure m;
    (void)state;
    assert_int_equal(write_until(20), SLUICE_E_IO);
    assert_int_equal(sl_container_measure(cc.path, &cc.plan, &budget, &error, &m), SLUICE_OK);
    assert_true(m.begun && m.goes_on);
    cc.plan.source++;
    assert_int_equal(sl_container_measure(cc.path, &cc.plan, &budget, &error, &m), SLUICE_OK);
    assert_true(m.begun && !m.goes_on);
    case_clean();
}

static void test_journal__damaged_or_foreign__refused(void **state)
{
    char text[200];
    (void)state;
    memset(text, 'x', sizeof text);
    case_put(case_part(0, 1, ".journal"), text, sizeof text);
    assert_refused(SLUICE_E_FORMAT, "no journal");
    case_clean();
    assert_int_equal(write_until(20), SLUICE_E_IO);
    struct case_bytes journal = case_read(case_part(0, 1, ".journal"));
    journal.p[17] ^= 1;
    case_put(case_part(0, 1, ".journal"), journal.p, journal.n);
    assert_refused(SLUICE_E_CORRUPT, "damaged");
    journal.p[17] ^= 1;
    journal.p[8] = 2;
    sl_cn_put(journal.p + 40, sl_xxh3(journal.p, 40), 8);
    case_put(case_part(0, 1, ".journal"), journal.p, journal.n);
    assert_refused(SLUICE_E_VERSION, "another version");
    free(journal.p);
    case_clean();
}

static void test_open__somebody_is_writing__refused(void **state)
{
    struct sl_container_writer *a, *b;
    (void)state;
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &a), SLUICE_OK);
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &b), SLUICE_E_IO);
    assert_mentions("another process");
    assert_null(b);
    sl_container_write_discard(a);
    assert_int_equal(case_n_parts(), 0);
}

static void test_discard__half_way__nothing_is_left(void **state)
{
    struct sl_container_writer *w;
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    assert_int_equal(sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w), SLUICE_OK);
    assert_int_equal(case_feed(w), SLUICE_OK);
    sl_container_write_discard(w); /* the folder is removed at the end, which needs it empty */
}

static void test_commit__an_older_container_there__stays_until_the_end(void **state)
{
    (void)state;
    assert_int_equal(write_until(20), SLUICE_E_IO);
    case_put(cc.path, "older", 5);
    assert_int_equal(write_until(5), SLUICE_E_IO);
    struct case_bytes old = case_read(cc.path);
    assert_int_equal(old.n, 5);
    free(old.p);
    case_write_ok();
    assert_int_equal(case_verify(cc.path), SLUICE_OK);
    case_clean();
}

/* ---- room ------------------------------------------------------------------------------------ */

static void test_open__more_than_the_disk_holds__refused_before_anything(void **state)
{
    (void)state;
    cc.tensors[4].dims[1] = (uint64_t)1 << 44; /* petabytes */
    assert_int_equal(case_write(), SLUICE_E_IO);
    assert_mentions("room");
    assert_int_equal(error.sys_errno, ENOSPC);
    assert_false(case_exists(case_part(0, 1, ".journal")));
    assert_false(case_exists(case_part(0, 1, ".partial")));
}

static void test_open__sizes_that_overflow__refused(void **state)
{
    (void)state;
    cc.tensors[0].dims[0] = UINT64_MAX;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    cc.tensors[0].dims[0] = (uint64_t)1 << 59;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    cc.tensors[0].dims[0] = 100;
    cc.tensors[0].type = 1000;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    assert_mentions("resident.0.weight");
    cc.tensors[0].type = SL_TYPE_F32;
    cc.tensors[0].name = cc.tensors[1].name;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    assert_mentions("the same name");
}

static void test_open__tensor_of_another_expert__refused(void **state)
{
    (void)state;
    cc.tensors[3].expert = 1;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    assert_mentions("blk.0.ffn_gate.0.weight");
    cc.tensors[3].layer = cc.tensors[3].expert = -1;
    assert_int_equal(case_write(), SLUICE_E_ARG);
}

/* A limit on the size of files fails writes as a full disk does. */
static void test_write__disk_full__no_final_name_and_goes_on_later(void **state)
{
    struct rlimit old, tight;
    (void)state;
    struct case_bytes wanted = reference();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    tight = old;
    for (rlim_t bytes = 0; bytes < wanted.n; bytes += 7919) {
        tight.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        sluice_err err = case_write();
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(err, SLUICE_E_IO);
        assert_int_equal(error.sys_errno, EFBIG);
        assert_int_equal(case_n_parts(), 0);
    }
    signal(SIGXFSZ, handler);
    assert_goes_on_to(&wanted);
    free(wanted.p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_write__a_large_tensor__memory_does_not_grow_with_it(void **state)
{
    (void)state;
    cc.plan.sync_bytes = 0;
    cc.tensors[1].dims[1] = 400000; /* 27 MB */
    uint64_t before = sl_budget_used(&budget);
    atomic_store(&budget.peak_bytes, before);
    case_write_ok();
    assert_true(atomic_load(&budget.peak_bytes) - before < ((uint64_t)1 << 20) + 200000);
    assert_int_equal(case_verify(cc.path), SLUICE_OK);
    case_clean();
}

static void test_write__any_allocation_fails__an_error_and_goes_on(void **state)
{
    sluice_err err = SLUICE_E_NOMEM;
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    uint64_t used = sl_budget_used(&budget);
    int64_t n = 0;
    for (; err != SLUICE_OK; n++) {
        atomic_store(&budget.fail_after, n);
        err = case_write();
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        assert_int_equal(sl_budget_used(&budget), used);
        assert_true(n < 1000);
    }
    atomic_store(&budget.fail_after, -1);
    assert_true(n > 10);
    assert_int_equal(case_verify(case_part(0, case_n_parts(), "")), SLUICE_OK);
    case_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE_TEST(test_stop__after_every_change__goes_on_to_the_same_bytes),
        CASE_TEST(test_stop__after_every_change_of_parts__goes_on_to_the_same_bytes),
        CASE_TEST(test_stop__seldom_synced__goes_on_to_the_same_bytes),
        CASE_TEST(test_stop__again_and_again__goes_on_to_the_same_bytes),
        CASE_TEST(test_stop__what_was_finished__is_kept),
        CASE_TEST(test_suspend__records_without_an_entry__are_kept),
        CASE_TEST(test_suspend__a_write_failed__what_the_files_have_is_kept),
        CASE_TEST(test_kill__twenty_moments__goes_on_to_the_same_bytes),
        CASE_TEST(test_resume__a_finished_record_damaged__written_again),
        CASE_TEST(test_resume__journal_cut_at_every_length__the_same_bytes),
        CASE_TEST(test_resume__any_bit_of_an_entry_flipped__the_same_bytes),
        CASE_TEST(test_open__partial_without_journal__refused_but_for_restart),
        CASE_TEST(test_open__container_there__refused_and_left),
        CASE_TEST(test_restart__other_run_writes__refused),
        CASE_TEST(test_restart__other_division__no_part_of_it_is_left),
        CASE_TEST(test_restart__stopped_anywhere__goes_on_to_the_new_bytes),
        CASE_TEST(test_commit__files_removed_meanwhile__an_error),
        CASE_TEST(test_resume__another_file_has_the_name__not_taken_for_ours),
        CASE_TEST(test_journal__of_something_else__refused),
        CASE_TEST(test_journal__without_an_entry__begun_anew_by_other_settings),
        CASE_TEST(test_measure__finished_records__whose_they_are),
        CASE_TEST(test_journal__damaged_or_foreign__refused),
        CASE_TEST(test_open__somebody_is_writing__refused),
        CASE_TEST(test_discard__half_way__nothing_is_left),
        CASE_TEST(test_commit__an_older_container_there__stays_until_the_end),
        CASE_TEST(test_open__more_than_the_disk_holds__refused_before_anything),
        CASE_TEST(test_open__sizes_that_overflow__refused),
        CASE_TEST(test_open__tensor_of_another_expert__refused),
        CASE_TEST(test_write__disk_full__no_final_name_and_goes_on_later),
        CASE_TEST(test_write__a_large_tensor__memory_does_not_grow_with_it),
        CASE_TEST(test_write__any_allocation_fails__an_error_and_goes_on),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
