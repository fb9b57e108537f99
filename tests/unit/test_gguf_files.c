/* The GGUF reader on files: headers larger than one step of reading, split models from any of their
 * files and with every fault such a set can have, files cut short, and what is given back when the
 * metadata is dropped. Also: every allocation may fail (nothing leaks, the code is right), and
 * loading time of large vocabularies, printed and not asserted. */
#define _GNU_SOURCE /* mkdtemp */
#include <inttypes.h>

#include "base/limits.h"
#include "base/clock.h"

#define CASE_BUDGET_BYTES UINT64_MAX
#include "tests/support/gguf_case.h"

/* ---- files ----------------------------------------------------------------------------------- */

static void test_file__header_larger_than_the_first_step__reads_as_from_memory(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g, *m;
    char path[CASE_PATH_BYTES];
    uint32_t v = 0;
    size_t header;
    const uint64_t strings = 200000;

    (void)state;
    gb_begin(&b, 3);
    gb_kv_array(&b, "many", SL_GGUF_STRING, strings);
    for (uint64_t i = 0; i < strings; i++) gb_str_n(&b, "0123456789", i % 11);
    gb_kv_u32(&b, "after", 42);
    gb_tensor(&b, "t", SL_TYPE_F32, 0, 1 << 20, 1);
    header = b.n;
    gb_data(&b, 32, 4 << 20);
    assert_true(header > 2 * SL_GG_STEP_BYTES);
    path_in(path, "large.gguf");
    assert_true(gb_write(&b, path));
    g = open_path(path);
    assert_true(atomic_load(&budget.used_bytes) < header + 50000); /* what was read ahead is gone */
    m = open_built(&b);
    assert_int_equal(sl_gguf_u32(g, "after", &v, &error), SLUICE_OK);
    assert_int_equal(v, 42);
    assert_int_equal(sl_gguf_tensor(g, 0)->offset, sl_gguf_tensor(m, 0)->offset);
    assert_string_equal(sl_gguf_path(g), path);
    assert_int_equal(sl_file_bytes(sl_gguf_file(g, 0)), b.n);
    assert_null(sl_gguf_file(m, 0));
    sl_gguf_close(m);
    sl_gguf_close(g);
    unlink(path);
    gb_end(&b);
}

static void test_file__not_there_or_a_folder__is_the_error_of_io(void **state)
{
    char path[CASE_PATH_BYTES];
    struct sl_gguf *g = (struct sl_gguf *)folder;

    (void)state;
    path_in(path, "none.gguf");
    assert_int_equal(sl_gguf_open(path, &budget, &error, &g), SLUICE_E_NOT_FOUND);
    assert_null(g);
    assert_mentions("none.gguf");
    assert_int_equal(sl_gguf_open(folder, &budget, &error, &g), SLUICE_E_IO);
    assert_mentions("directory");
}

/* File no of count of a model with three tensors a file; the first one has the metadata. */
static void build_good_shard(struct gguf_build *b, uint32_t no, uint32_t count)
{
    char name[16];
    uint32_t alignment = no == 1 ? 64 : 32;

    gb_begin(b, 3);
    if (no == 0) gb_kv_str(b, "general.architecture", "splitty");
    if (no == 1) gb_kv_u32(b, "general.alignment", alignment);
    gb_kv_int(b, "split.no", SL_GGUF_U16, no);
    gb_kv_int(b, "split.count", SL_GGUF_U16, count);
    gb_kv_int(b, "split.tensors.count", SL_GGUF_I32, 3 * (int64_t)count);
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "t%u.%u", (unsigned)no, (unsigned)i);
        gb_tensor(b, name, SL_TYPE_F32, (uint64_t)i * alignment, 1 + no, 1);
    }
    gb_data(b, alignment, 2 * alignment + 4 * (1 + no));
}

static void shard_path(char *buf, size_t size, uint32_t no, uint32_t count)
{
    snprintf(buf, size, "%s/m-%05u-of-%05u.gguf", folder, (unsigned)no + 1, (unsigned)count);
}

static void write_shards(uint32_t count)
{
    for (uint32_t no = 0; no < count; no++) {
        struct gguf_build b;
        char path[CASE_PATH_BYTES];

        build_good_shard(&b, no, count);
        shard_path(path, sizeof path, no, count);
        assert_true(gb_write(&b, path));
        gb_end(&b);
    }
}

static void remove_shards(uint32_t count)
{
    for (uint32_t no = 0; no < count; no++) {
        char path[CASE_PATH_BYTES];

        shard_path(path, sizeof path, no, count);
        unlink(path);
    }
}

static void test_split__any_file_given__opens_the_whole_model(void **state)
{
    const uint32_t count = 4;

    (void)state;
    write_shards(count);
    for (uint32_t given = 0; given < count; given++) {
        char path[CASE_PATH_BYTES];
        struct sl_gguf *g;
        struct sl_str s = {"", 0};

        shard_path(path, sizeof path, given, count);
        g = open_path(path);
        assert_string_equal(sl_gguf_path(g), path);
        assert_int_equal(sl_gguf_n_files(g), count);
        assert_int_equal(sl_gguf_n_tensors(g), 3 * count);
        assert_int_equal(sl_gguf_str(g, "general.architecture", &s, &error), SLUICE_OK);
        assert_str(s, "splitty");
        for (uint32_t i = 0; i < 3 * count; i++) {
            const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
            char name[16];

            snprintf(name, sizeof name, "t%u.%u", (unsigned)i / 3, (unsigned)i % 3);
            assert_str(t->name, name);
            assert_ptr_equal(sl_gguf_find_tensor(g, name), t);
            assert_int_equal(t->shard, i / 3);
            assert_int_equal(t->bytes, 4 * (1 + i / 3));
            assert_int_equal(t->offset % (i / 3 == 1 ? 64 : 32), 0);
        }
        for (uint32_t i = 0; i < count; i++) {
            shard_path(path, sizeof path, i, count);
            assert_string_equal(sl_file_path(sl_gguf_file(g, i)), path);
        }
        sl_gguf_close(g);
    }
    remove_shards(count);
}

static void test_split__one_of_one__is_a_whole_file_of_any_name(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    char path[CASE_PATH_BYTES];

    (void)state;
    build_good_shard(&b, 0, 1);
    path_in(path, "whole.gguf");
    assert_true(gb_write(&b, path));
    g = open_path(path);
    assert_int_equal(sl_gguf_n_files(g), 1);
    sl_gguf_close(g);
    unlink(path);
    gb_end(&b);
}

static void test_drop_metadata__tensors_stay__keys_and_memory_go(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    struct sl_vocab v;
    char path[CASE_PATH_BYTES];
    uint64_t before;

    (void)state;
    gb_begin(&b, 3);
    gb_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    gb_kv_array(&b, "tokenizer.ggml.tokens", SL_GGUF_STRING, 50000);
    for (int i = 0; i < 50000; i++) gb_str(&b, "token");
    gb_tensor(&b, "t", SL_TYPE_F32, 0, 3, 1);
    gb_data(&b, 32, 12);
    path_in(path, "drop.gguf");
    assert_true(gb_write(&b, path));
    g = open_path(path);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK);
    before = atomic_load(&budget.used_bytes);
    assert_true(before > 50000 * (13 + sizeof(struct sl_str)));
    sl_gguf_drop_metadata(g);
    assert_true(atomic_load(&budget.used_bytes) < 20000);
    assert_int_equal(sl_gguf_n_keys(g), 0);
    assert_false(sl_gguf_has(g, "tokenizer.ggml.model"));
    assert_int_equal(sl_gguf_version(g), 3);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_E_FORMAT);
    assert_non_null(sl_gguf_find_tensor(g, "t"));
    assert_non_null(sl_gguf_file(g, 0));
    sl_gguf_drop_metadata(g);
    sl_gguf_close(g);
    unlink(path);
    gb_end(&b);
}

/* ---- broken sets of files ------------------------------------------------------------------ */

static struct gguf_build built;

static void begin(void)
{
    gb_end(&built);
    gb_begin(&built, 3);
}

static void write_as(const char *name, char *path)
{
    path_in(path, name);
    assert_true(gb_write(&built, path));
}

static void remove_named(const char *name)
{
    char path[CASE_PATH_BYTES];

    path_in(path, name);
    unlink(path);
}

static void build_shard(uint32_t no, uint32_t count, uint32_t total, const char *tensor)
{
    begin();
    gb_kv_int(&built, "split.no", SL_GGUF_U16, no);
    gb_kv_int(&built, "split.count", SL_GGUF_U16, count);
    gb_kv_int(&built, "split.tensors.count", SL_GGUF_I32, total);
    gb_tensor(&built, tensor, SL_TYPE_F32, 0, 8, 1);
    gb_data(&built, 32, 32);
}

static void assert_path_refused(const char *path, sluice_err wanted, const char *part)
{
    struct sl_gguf *g = NULL;
    sluice_err err = sl_gguf_open(path, &budget, &error, &g);

    if (err != wanted)
        fail_msg("%s, wanted %s: %s", sl_err_name(err), sl_err_name(wanted), error.text);
    assert_null(g);
    assert_mentions(part);
}

static void test_split__files_missing__are_listed(void **state)
{
    char path[CASE_PATH_BYTES];

    (void)state;
    build_shard(1, 4, 4, "a");
    write_as("m-00002-of-00004.gguf", path);
    assert_path_refused(path, SLUICE_E_NOT_FOUND, "3 of the model's 4 files are missing");
    assert_mentions("m-00001-of-00004.gguf, m-00003-of-00004.gguf, m-00004-of-00004.gguf");
    assert_mentions(path);
    remove_named("m-00002-of-00004.gguf");
    build_shard(5, SL_GGUF_SHARDS_MAX, 4, "a");
    write_as("m-00006-of-01024.gguf", path);
    assert_path_refused(path, SLUICE_E_NOT_FOUND,
                        "1023 of the model's 1024 files are missing: m-00001-of-01024.gguf");
    assert_mentions(" more. All of them");
    remove_named("m-00006-of-01024.gguf");
}

static void test_split__renamed__says_which_name_is_wanted(void **state)
{
    char path[CASE_PATH_BYTES];

    (void)state;
    build_shard(1, 2, 2, "a");
    write_as("part.gguf", path);
    assert_path_refused(path, SLUICE_E_NOT_FOUND, "does not end in -00002-of-00002.gguf");
    remove_named("part.gguf");
    write_as("x.gguf", path);
    assert_path_refused(path, SLUICE_E_NOT_FOUND, "file 2 of a model in 2 files");
    remove_named("x.gguf");
    write_as("m-00001-of-00002.gguf", path);
    assert_path_refused(path, SLUICE_E_FORMAT, "by its metadata this is file 2 of 2");
    remove_named("m-00001-of-00002.gguf");
    write_as("m-0000a-of-00002.gguf", path);
    assert_path_refused(path, SLUICE_E_NOT_FOUND, "does not end in");
    remove_named("m-0000a-of-00002.gguf");
}

static void test_split__file_of_another_model__is_named(void **state)
{
    char path[CASE_PATH_BYTES];

    (void)state;
    build_shard(0, 2, 2, "a");
    write_as("m-00001-of-00002.gguf", path);
    build_shard(1, 3, 3, "b");
    write_as("m-00002-of-00002.gguf", path);
    assert_path_refused(path, SLUICE_E_FORMAT, "by its metadata this is file 2 of 3");
    path_in(path, "m-00001-of-00002.gguf");
    assert_path_refused(path, SLUICE_E_FORMAT,
                        "m-00002-of-00002.gguf: by its metadata this is file 2 of 3");
    build_shard(0, 2, 2, "b");
    write_as("m-00002-of-00002.gguf", path);
    path_in(path, "m-00001-of-00002.gguf");
    assert_path_refused(
        path, SLUICE_E_FORMAT,
        "m-00002-of-00002.gguf: by its metadata this is file 1 of 2, wanted file 2");
    build_shard(1, 2, 2, "a");
    write_as("m-00002-of-00002.gguf", path);
    assert_path_refused(path, SLUICE_E_FORMAT, "m-00002-of-00002.gguf: tensor 'a' is there twice");
    build_shard(0, 2, 3, "b");
    write_as("m-00001-of-00002.gguf", path);
    assert_path_refused(path, SLUICE_E_FORMAT, "split.tensors.count is 3, but the 2 files hold 2");
    remove_named("m-00001-of-00002.gguf");
    remove_named("m-00002-of-00002.gguf");
}

static void test_split__one_file_cut__names_it_and_both_sizes(void **state)
{
    char path[CASE_PATH_BYTES], part[CASE_PATH_BYTES];

    (void)state;
    build_shard(0, 2, 2, "a");
    write_as("m-00001-of-00002.gguf", path);
    build_shard(1, 2, 2, "b");
    built.n -= 10;
    write_as("m-00002-of-00002.gguf", path);
    snprintf(part, sizeof part,
             "m-00002-of-00002.gguf: file is %zu bytes, needs %zu: download incomplete", built.n,
             built.n + 10);
    assert_path_refused(path, SLUICE_E_TRUNCATED, part);
    built.n = 30;
    write_as("m-00002-of-00002.gguf", path);
    path_in(path, "m-00001-of-00002.gguf");
    assert_path_refused(path, SLUICE_E_TRUNCATED, "m-00002-of-00002.gguf");
    remove_named("m-00001-of-00002.gguf");
    remove_named("m-00002-of-00002.gguf");
}

static void test_split__more_tensors_than_the_limit_together__is_refused(void **state)
{
    char path[CASE_PATH_BYTES];

    (void)state;
    build_shard(0, 2, 2, "a");
    write_as("m-00001-of-00002.gguf", path);
    build_shard(1, 2, 2, "b");
    gb_set_u64(&built, GB_AT_TENSORS, SL_GGUF_TENSORS_MAX);
    write_as("m-00002-of-00002.gguf", path);
    assert_int_equal(truncate(path, (off_t)40 * SL_GGUF_TENSORS_MAX), 0);
    assert_path_refused(path, SLUICE_E_LIMIT, "more than 262144 tensors");
    remove_named("m-00001-of-00002.gguf");
    remove_named("m-00002-of-00002.gguf");
}

static void test_split__count_of_zero__is_a_whole_file(void **state)
{
    char path[CASE_PATH_BYTES];
    struct sl_gguf *g;

    (void)state;
    build_shard(0, 0, 1, "a");
    write_as("zero.gguf", path);
    g = open_path(path);
    assert_int_equal(sl_gguf_n_files(g), 1);
    sl_gguf_close(g);
    unlink(path);
}

static void test_file__sparse_and_huge__costs_no_memory(void **state)
{
    char path[CASE_PATH_BYTES];

    (void)state;
    sl_budget_init(&budget, 4 << 20);
    begin();
    gb_kv_array(&built, "k", SL_GGUF_U8,
                (uint64_t)1 << 39); /* there, as zeros that were never written */
    write_as("sparse.gguf", path);
    if (truncate(path, (off_t)1 << 40) ==
        0) { /* a file system without sparse files need not take part */
        assert_path_refused(path, SLUICE_E_LIMIT, "header is longer than");
        begin();
        gb_kv_array(&built, "k", SL_GGUF_U8,
                    400 << 20); /* within that limit, but not within the budget */
        write_as("sparse.gguf", path);
        assert_int_equal(truncate(path, (off_t)1 << 40), 0);
        assert_path_refused(path, SLUICE_E_BUDGET, "no memory for a header");
    }
    unlink(path);
}

static void test_path__very_long__keeps_its_end_in_the_message(void **state)
{
    char path[600];

    (void)state;
    memset(path, '/', sizeof path);
    snprintf(path, sizeof path, "%s", folder);
    memset(path + strlen(folder), '/', 400);
    snprintf(path + strlen(folder) + 400, 64, "the.end.gguf");
    begin();
    built.p[0] = 'X';
    assert_true(gb_write(&built, path));
    assert_path_refused(path, SLUICE_E_FORMAT, "the.end.gguf: not a GGUF file");
    assert_true(strncmp(error.text, "...", 3) == 0);
    unlink(path);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Opens path and reads its vocabulary while the n-th charge fails. Returns whether that charge was
 * reached. */
static bool open_with_fault(const char *path, int64_t n)
{
    struct sl_gguf *g = NULL;
    struct sl_vocab v;
    sluice_err err;
    bool reached;

    atomic_store(&budget.fail_after, n);
    err = sl_gguf_open(path, &budget, &error, &g);
    if (err == SLUICE_OK) {
        err = sl_gguf_vocab(g, &v, &error);
    } else {
        assert_null(g);
    }
    reached = atomic_load(&budget.fail_after) < 0;
    atomic_store(&budget.fail_after, -1);
    assert_true(reached == (err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET));
    assert_true(reached || err == SLUICE_OK);
    if (reached) assert_int_equal(error.code, err);
    if (reached && g != NULL)
        assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK); /* the next call works */
    sl_gguf_close(g);
    assert_int_equal(atomic_load(&budget.used_bytes), 0);
    return reached;
}

static void test_memory__each_allocation_fails__code_and_nothing_leaks(void **state)
{
    struct gguf_build b;
    char path[CASE_PATH_BYTES];
    int64_t n = 0;

    (void)state;
    write_shards(3);
    gb_begin(&b, 3);
    gb_kv_int(&b, "split.no", SL_GGUF_U16, 0);
    gb_kv_int(&b, "split.count", SL_GGUF_U16, 3);
    gb_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    gb_kv_strs(&b, "tokenizer.ggml.tokens", (const char *const[]){"a", "b", "ab", "c", "d", "e"},
               6);
    gb_kv_strs(&b, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
    gb_kv_i32s(&b, "tokenizer.ggml.token_type", (const int32_t[]){3, 3, 1, 1, 4, 6}, 6);
    gb_kv_i32s(&b, "tokenizer.ggml.scores", (const int32_t[]){3, 3, 1, 1, 4, 6}, 6);
    gb_kv_i32s(&b, "tokenizer.ggml.eos_token_ids", (const int32_t[]){1, 4}, 2);
    gb_tensor(&b,
              "a tensor of a name that is longer than a chunk of the arena is by far, or nearly so",
              SL_TYPE_F32, 0, 8, 1);
    gb_data(&b, 32, 32);
    shard_path(path, sizeof path, 0, 3);
    assert_true(gb_write(&b, path));
    shard_path(path, sizeof path, 1, 3);
    while (open_with_fault(path, n)) n++;
    assert_true(n > 15);
    remove_shards(3);
    gb_end(&b);
}

static void test_memory__small_budget__says_so(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g = NULL;
    struct sl_budget small;

    (void)state;
    gb_begin(&b, 3);
    for (int i = 0; i < 1000; i++) {
        char name[16];

        snprintf(name, sizeof name, "key %d", i);
        gb_kv_u32(&b, name, 1);
    }
    sl_budget_init(&small, 20000);
    assert_int_equal(sl_gg_open_memory(b.p, b.n, &small, &error, &g), SLUICE_E_BUDGET);
    assert_mentions("budget 20000 bytes");
    assert_int_equal(atomic_load(&small.used_bytes), 0);
    gb_end(&b);
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* A vocabulary as a byte-level BPE model has it: token text, types and merges. */
static void build_large_vocab(struct gguf_build *b, uint32_t n)
{
    char text[48];

    gb_begin(b, 3);
    gb_kv_str(b, "tokenizer.ggml.model", "gpt2");
    gb_kv_array(b, "tokenizer.ggml.tokens", SL_GGUF_STRING, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.*s%" PRIu32, (int)(i % 7), "abcdefg", i);
        gb_str(b, text);
    }
    gb_kv_array(b, "tokenizer.ggml.token_type", SL_GGUF_I32, n);
    for (uint32_t i = 0; i < n; i++) gb_u32(b, 1);
    gb_kv_array(b, "tokenizer.ggml.merges", SL_GGUF_STRING, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "abc%" PRIu32 " def", i);
        gb_str(b, text);
    }
    gb_tensor(b, "t", SL_TYPE_F32, 0, 8, 1);
    gb_data(b, 32, 32);
}

static void test_speed__large_vocabularies__load(void **state)
{
    static const uint32_t counts[] = {150000, 250000};
    char path[CASE_PATH_BYTES];

    (void)state;
    path_in(path, "vocab.gguf");
    for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
        struct gguf_build b;
        struct sl_gguf *g;
        struct sl_vocab v;
        uint64_t start, opened, end;

        build_large_vocab(&b, counts[i]);
        assert_true(gb_write(&b, path));
        start = sl_now_ns();
        g = open_path(path);
        opened = sl_now_ns();
        assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK);
        end = sl_now_ns();
        assert_int_equal(v.n_tokens, counts[i]);
        assert_int_equal(v.n_merges, counts[i]);
        print_message("%u tokens and merges, %.1f MB: open %.2f ms, vocabulary %.2f ms\n",
                      (unsigned)counts[i], (double)b.n / 1e6, (double)(opened - start) / 1e6,
                      (double)(end - opened) / 1e6);
        sl_gguf_close(g);
        unlink(path);
        gb_end(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_file__header_larger_than_the_first_step__reads_as_from_memory),
        TEST(test_file__not_there_or_a_folder__is_the_error_of_io),
        TEST(test_split__any_file_given__opens_the_whole_model),
        TEST(test_split__one_of_one__is_a_whole_file_of_any_name),
        TEST(test_drop_metadata__tensors_stay__keys_and_memory_go),
        TEST(test_split__files_missing__are_listed),
        TEST(test_split__renamed__says_which_name_is_wanted),
        TEST(test_split__file_of_another_model__is_named),
        TEST(test_split__one_file_cut__names_it_and_both_sizes),
        TEST(test_split__more_tensors_than_the_limit_together__is_refused),
        TEST(test_split__count_of_zero__is_a_whole_file),
        TEST(test_file__sparse_and_huge__costs_no_memory),
        TEST(test_path__very_long__keeps_its_end_in_the_message),
        TEST(test_memory__each_allocation_fails__code_and_nothing_leaks),
        TEST(test_memory__small_budget__says_so),
        TEST(test_speed__large_vocabularies__load),
    };
    int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);

    gb_end(&built);
    return failed;
}
