/* Sums files: made, read back and compared on built models (single, split, with experts, an
 * embedding and padding). Every changed bit of a model is found and named; every damaged bit and
 * every length of a sums file is refused with what to do; what belongs to another model is not
 * compared; nothing is left behind by a failure; every allocation may fail. */
#define _GNU_SOURCE /* mkdtemp */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define CASE_BUDGET_BYTES UINT64_MAX
#include "tests/support/gguf_case.h"

#include "formats/sums_internal.h"

#define EXPERTS 5
#define ROWS 7

/* ---- models ------------------------------------------------------------------------------------
 */

/* An embedding of ROWS rows of 8, experts of 4 by 2, a vector of 3 (so that there is padding), in
 * an order of offsets that is not the table's. */
static void build_model(struct gguf_build *b)
{
    gb_begin(b, 3);
    gb_kv_str(b, "general.architecture", "summed");
    gb_tensor_dims(b, "blk.3.ffn_up_exps.weight", SL_TYPE_F32, 256,
                   (const uint64_t[]){4, 2, EXPERTS}, 3);
    gb_tensor(b, "token_embd.weight", SL_TYPE_F32, 0, 8, ROWS);
    gb_tensor(b, "output_norm.weight", SL_TYPE_F32, 224, 3, 1);
    gb_data(b, 32, 256 + EXPERTS * 32);
    gb_bytes(b, "tail", 4);
}

static char model_path[CASE_PATH_BYTES], sums_path[CASE_PATH_BYTES + 16];
static struct gguf_build model;

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static size_t get_file(const char *path, unsigned char *bytes, size_t max)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, max, f);
    assert_int_equal(fclose(f), 0);
    return n;
}

static int make_model(void **state)
{
    (void)set_up(state);
    build_model(&model);
    path_in(model_path, "m.gguf");
    snprintf(sums_path, sizeof sums_path, "%s.sums", model_path);
    return gb_write(&model, model_path) ? 0 : -1;
}

static int drop_model(void **state)
{
    gb_end(&model);
    unlink(model_path);
    unlink(sums_path);
    return tear_down(state);
}

#define MODEL_TEST(name) cmocka_unit_test_setup_teardown(name, make_model, drop_model)

static sluice_err make_sums(void)
{
    struct sl_gguf *g = open_path(model_path);
    sluice_err err = sl_sums_make(g, &budget, NULL, NULL, &error);
    sl_gguf_close(g);
    return err;
}

/* Opens model and sums and compares; the error of whichever failed. */
static sluice_err verify(void)
{
    struct sl_gguf *g = NULL;
    struct sl_sums *s = NULL;
    sluice_err err = sl_gguf_open(model_path, &budget, &error, &g);
    if (err == SLUICE_OK) err = sl_sums_open(g, &budget, &error, &s);
    if (err == SLUICE_OK && s == NULL) err = SLUICE_E_NOT_FOUND;
    if (err == SLUICE_OK) err = sl_sums_verify(g, s, &budget, NULL, NULL, &error);
    sl_sums_close(s);
    sl_gguf_close(g);
    return err;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static bool partial_exists(void)
{
    char partial[CASE_PATH_BYTES + 32];
    snprintf(partial, sizeof partial, "%s.partial", sums_path);
    return exists(partial);
}

/* ---- round trips -------------------------------------------------------------------------------
 */

static void test_open__no_sums_file__ok_and_null(void **state)
{
    struct sl_gguf *g = open_path(model_path);
    struct sl_sums *s = (struct sl_sums *)(void *)folder;
    (void)state;
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_null(s);
    sl_sums_close(s);
    sl_gguf_close(g);
}

static void test_make__a_model__every_piece_has_the_sum_of_its_bytes(void **state)
{
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    assert_false(partial_exists());
    struct sl_gguf *g = open_path(model_path);
    struct sl_sums *s;
    uint64_t before = sl_budget_used(&budget), pieces = 0, piece_bytes;
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_non_null(s);
    assert_int_equal(sl_budget_used(&budget) - before, sl_sums_bytes(g));
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        uint64_t n = sl_sums_pieces(t, &piece_bytes);
        for (uint64_t k = 0; k < n; k++)
            assert_int_equal(sl_sums_get(s, i, k),
                             sl_xxh3(model.p + t->offset + k * piece_bytes, piece_bytes));
        pieces += n;
    }
    assert_int_equal(pieces, EXPERTS + ROWS + 1);
    assert_int_equal(sl_sums_verify(g, s, &budget, NULL, NULL, &error), SLUICE_OK);
    sl_sums_close(s);
    sl_gguf_close(g);
}

static void test_make__twice__the_same_bytes(void **state)
{
    unsigned char a[1024], b[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    assert_int_equal(n, 40 + 24 + 8 * (EXPERTS + ROWS + 1) + 8);
    assert_int_equal(make_sums(), SLUICE_OK);
    assert_int_equal(get_file(sums_path, b, sizeof b), n);
    assert_memory_equal(a, b, n);
}

/* The sum of the table of build_model, written down by hand. */
static void assert_table_sum(uint64_t sum, uint64_t base)
{
    static const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t dims[4], offset;
    } rows[] = {
        {"blk.3.ffn_up_exps.weight", 3, {4, 2, EXPERTS, 1}, 256},
        {"token_embd.weight", 2, {8, ROWS, 1, 1}, 0},
        {"output_norm.weight", 2, {3, 1, 1, 1}, 224},
    };
    struct gguf_build t = {0};
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        gb_u32(&t, (uint32_t)strlen(rows[i].name));
        gb_bytes(&t, rows[i].name, strlen(rows[i].name));
        gb_u32(&t, 0); /* F32 */
        gb_u32(&t, rows[i].n_dims);
        for (int d = 0; d < 4; d++) gb_u64(&t, rows[i].dims[d]);
        gb_u32(&t, 0); /* the only file */
        gb_u64(&t, base + rows[i].offset);
    }
    assert_int_equal(sl_xxh3(t.p, t.n), sum);
    gb_end(&t);
}

/* docs/FORMAT.md, read by hand. */
static void test_make__a_model__the_bytes_of_the_specification(void **state)
{
    unsigned char a[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    assert_memory_equal(a, "SLSUM\r\n\x1A\1\0\0\0\1\0\0\0\3\0\0\0\0\0\0\0", 24);
    assert_int_equal(sl_sums_take(a + 24, 8), EXPERTS + ROWS + 1);
    assert_int_equal(sl_sums_take(a + 40, 8), model.n);
    assert_int_equal(sl_sums_take(a + n - 8, 8), sl_xxh3(a, n - 8));
    struct sl_gguf *g = open_path(model_path);
    uint64_t base = sl_gguf_find_tensor(g, "token_embd.weight")->offset;
    assert_table_sum(sl_sums_take(a + 32, 8), base);
    assert_int_equal(sl_sums_take(a + 48, 8), sl_xxh3(model.p, base));
    unsigned char rest[24]; /* 20 bytes after the vector of 3, then the tail */
    memcpy(rest, model.p + base + 224 + 12, 20);
    memcpy(rest + 20, "tail", 4);
    assert_int_equal(sl_sums_take(a + 56, 8), sl_xxh3(rest, 24));
    sl_gguf_close(g);
}

/* Pieces that are larger than a chunk, smaller, and that lie across its borders. */
static void test_make__larger_than_a_chunk__every_piece_right(void **state)
{
    struct gguf_build b;
    const uint64_t experts[3] = {1000, 1500, 2}, rows = 3000;
    (void)state;
    gb_begin(&b, 3);
    gb_tensor_dims(&b, "a_exps", SL_TYPE_F32, 0, experts, 3);
    gb_tensor(&b, "token_embd.weight", SL_TYPE_F32, 12000000, 500, rows);
    gb_data(&b, 32, 12000000 + 500 * 4 * rows);
    assert_true(gb_write(&b, model_path));
    assert_int_equal(make_sums(), SLUICE_OK);
    struct sl_gguf *g = open_path(model_path);
    struct sl_sums *s;
    uint64_t piece_bytes;
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        for (uint64_t k = 0; k < sl_sums_pieces(t, &piece_bytes); k++)
            assert_int_equal(sl_sums_get(s, i, k),
                             sl_xxh3(b.p + t->offset + k * piece_bytes, piece_bytes));
    }
    assert_int_equal(sl_sums_verify(g, s, &budget, NULL, NULL, &error), SLUICE_OK);
    sl_sums_close(s);
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_make__no_tensors__sums_of_the_header_alone(void **state)
{
    struct gguf_build b;
    (void)state;
    gb_begin(&b, 3);
    gb_kv_u32(&b, "x", 1);
    assert_true(gb_write(&b, model_path));
    assert_int_equal(make_sums(), SLUICE_OK);
    assert_int_equal(verify(), SLUICE_OK);
    b.p[b.n - 4] ^= 2;
    assert_true(gb_write(&b, model_path));
    assert_int_equal(verify(), SLUICE_E_CORRUPT);
    gb_end(&b);
}

/* ---- split models ------------------------------------------------------------------------------
 */

static void write_shard(uint32_t no, uint32_t count, char *path, unsigned char flip)
{
    struct gguf_build b;
    char name[32];
    gb_begin(&b, 3);
    gb_kv_int(&b, "split.no", SL_GGUF_U16, no);
    gb_kv_int(&b, "split.count", SL_GGUF_U16, count);
    gb_kv_int(&b, "split.tensors.count", SL_GGUF_I32, count);
    snprintf(name, sizeof name, "blk.%u.ffn_down_exps.weight", (unsigned)no);
    gb_tensor_dims(&b, name, SL_TYPE_F32, 0, (const uint64_t[]){8, 4, 3}, 3);
    gb_data(&b, 32, 8 * 4 * 3 * 4);
    b.p[b.n - 1] ^= flip;
    snprintf(name, sizeof name, "s-%05u-of-%05u.gguf", (unsigned)no + 1, (unsigned)count);
    path_in(path, name);
    assert_true(gb_write(&b, path));
    gb_end(&b);
}

static void test_split__any_shard_given__one_sums_file_beside_the_first(void **state)
{
    char path[3][CASE_PATH_BYTES], sums[CASE_PATH_BYTES + 8];
    (void)state;
    for (uint32_t i = 0; i < 3; i++) write_shard(i, 3, path[i], 0);
    struct sl_gguf *g = open_path(path[1]);
    struct sl_sums *s;
    assert_int_equal(sl_sums_make(g, &budget, NULL, NULL, &error), SLUICE_OK);
    snprintf(sums, sizeof sums, "%s.sums", path[0]);
    assert_true(exists(sums));
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_int_equal(sl_sums_verify(g, s, &budget, NULL, NULL, &error), SLUICE_OK);
    sl_sums_close(s);
    sl_gguf_close(g);
    write_shard(2, 3, path[2], 0x10);
    g = open_path(path[2]);
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_int_equal(sl_sums_verify(g, s, &budget, NULL, NULL, &error), SLUICE_E_CORRUPT);
    assert_mentions("s-00003-of-00003.gguf");
    assert_mentions("'blk.2.ffn_down_exps.weight', expert 2 (128 bytes at offset");
    assert_int_equal(error.layer, 2);
    assert_int_equal(error.expert, 2);
    assert_int_equal(error.file_offset, sl_gguf_tensor(g, 2)->offset + 256);
    sl_sums_close(s);
    sl_gguf_close(g);
    for (uint32_t i = 0; i < 3; i++) unlink(path[i]);
    unlink(sums);
}

/* ---- damaged models ----------------------------------------------------------------------------
 */

/* What verify says to a flipped bit at this byte. */
static void expect_flip(size_t at, const char *part, int layer, int expert)
{
    model.p[at] ^= 0x40;
    assert_true(gb_write(&model, model_path));
    model.p[at] ^= 0x40;
    assert_int_equal(verify(), SLUICE_E_CORRUPT);
    assert_mentions(part);
    assert_mentions("m.gguf");
    assert_int_equal(error.layer, layer);
    assert_int_equal(error.expert, expert);
}

static void test_verify__a_flipped_byte__named(void **state)
{
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    struct sl_gguf *g = open_path(model_path);
    size_t base = sl_gguf_find_tensor(g, "token_embd.weight")->offset;
    sl_gguf_close(g);
    expect_flip(base + 256 + 4 * 32 + 31, "'blk.3.ffn_up_exps.weight', expert 4 (32 bytes at", 3,
                4);
    assert_int_equal(error.file_offset, base + 256 + 4 * 32);
    expect_flip(base + 6 * 32, "tensor 'token_embd.weight', row 6 (32 bytes at", -1, -1);
    expect_flip(base + 224 + 5, "tensor 'output_norm.weight' (12 bytes at", -1, -1);
    expect_flip(base + 224 + 13, "between and after tensors", -1, -1);
    expect_flip(model.n - 1, "between and after tensors", -1, -1);
    expect_flip(24 + 8 + 20 + 4 + 8, "header and metadata", -1, -1);
}

static void test_verify__every_bit_of_the_model__none_passes(void **state)
{
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    for (size_t bit = 0; bit < model.n * 8; bit++) {
        model.p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(gb_write(&model, model_path));
        model.p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(verify(), SLUICE_OK);
    }
}

/* ---- damaged sums files ------------------------------------------------------------------------
 */

static void test_open__every_bit_of_the_sums_file__refused_with_advice(void **state)
{
    unsigned char a[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    for (size_t bit = 0; bit < n * 8; bit++) {
        a[bit / 8] ^= (unsigned char)(1u << bit % 8);
        put_file(sums_path, a, n);
        a[bit / 8] ^= (unsigned char)(1u << bit % 8);
        sluice_err err = verify();
        assert_true(err == SLUICE_E_FORMAT || err == SLUICE_E_VERSION || err == SLUICE_E_CHANGED ||
                    err == SLUICE_E_TRUNCATED);
        assert_int_equal(err, error.code);
        assert_mentions("m.gguf.sums");
        assert_mentions("--make-sums");
    }
}

static void test_open__every_length__refused(void **state)
{
    unsigned char a[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    for (size_t length = 0; length < n; length++) {
        put_file(sums_path, a, length);
        assert_int_equal(verify(), SLUICE_E_TRUNCATED);
        assert_mentions("--make-sums");
    }
    for (size_t more = 1; more < 20; more++) {
        put_file(sums_path, a, n + more);
        assert_int_equal(verify(), SLUICE_E_FORMAT);
    }
    put_file(sums_path, a, n);
    assert_int_equal(verify(), SLUICE_OK);
}

static void test_open__newer_version__refused_as_such(void **state)
{
    unsigned char a[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    a[8] = 2;
    sl_sums_put(a + n - 8, sl_xxh3(a, n - 8), 8);
    put_file(sums_path, a, n);
    assert_int_equal(verify(), SLUICE_E_VERSION);
    assert_mentions("version 2");
}

static void test_open__reserved_field_with_a_right_checksum__refused(void **state)
{
    unsigned char a[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    a[20] = 1;
    sl_sums_put(a + n - 8, sl_xxh3(a, n - 8), 8);
    put_file(sums_path, a, n);
    assert_int_equal(verify(), SLUICE_E_FORMAT);
}

static void test_open__claims_that_overflow__refused_before_memory(void **state)
{
    unsigned char a[1024];
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    size_t n = get_file(sums_path, a, sizeof a);
    static const uint64_t claims[] = {UINT64_MAX, UINT64_MAX / 8, (uint64_t)1 << 61, 1u << 30};
    for (size_t i = 0; i < SL_ARRAY_LEN(claims); i++) {
        sl_sums_put(a + 24, claims[i], 8);
        put_file(sums_path, a, n);
        sluice_err err = verify();
        assert_true(err == SLUICE_E_FORMAT || err == SLUICE_E_TRUNCATED);
        assert_true(atomic_load(&budget.peak_bytes) < 6u << 20);
    }
}

static void test_open__a_folder_of_the_name__io_error(void **state)
{
    (void)state;
    assert_int_equal(mkdir(sums_path, 0777), 0);
    assert_int_equal(verify(), SLUICE_E_IO);
    assert_int_equal(make_sums(), SLUICE_E_IO);
    assert_false(partial_exists());
    assert_int_equal(rmdir(sums_path), 0);
}

/* ---- sums of something else --------------------------------------------------------------------
 */

static void expect_stale(const char *part)
{
    assert_int_equal(verify(), SLUICE_E_CHANGED);
    assert_mentions(part);
    assert_mentions("m.gguf.sums");
    assert_mentions("--make-sums");
}

static void test_open__model_changed__refused_until_made_again(void **state)
{
    struct gguf_build b;
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);

    gb_bytes(&model, "x", 1); /* longer */
    assert_true(gb_write(&model, model_path));
    expect_stale("size of a file");

    gb_end(&model); /* a tensor of another name, which moves nothing */
    build_model(&model);
    const char name[] = "output_norm.weight";
    for (size_t i = 0; i + sizeof name < model.n; i++) {
        if (memcmp(model.p + i, name, sizeof name - 1) == 0) model.p[i] = 'O';
    }
    assert_true(gb_write(&model, model_path));
    expect_stale("tensors");

    gb_begin(&b, 3); /* fewer tensors */
    gb_tensor(&b, "one", SL_TYPE_F32, 0, 32, 1);
    gb_data(&b, 32, 128);
    assert_true(gb_write(&b, model_path));
    expect_stale("number of tensors");
    gb_end(&b);

    assert_int_equal(make_sums(), SLUICE_OK);
    assert_int_equal(verify(), SLUICE_OK);
}

/* Same table, same sizes, another metadata value: found at open already, before any tensor. */
static void test_open__metadata_changed__corrupt_with_what_to_do(void **state)
{
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    const char value[] = "summed";
    for (size_t i = 0; i + sizeof value < model.n; i++) {
        if (memcmp(model.p + i, value, sizeof value - 1) == 0) model.p[i] = 'S';
    }
    assert_true(gb_write(&model, model_path));
    struct sl_gguf *g = open_path(model_path);
    struct sl_sums *s;
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_E_CORRUPT);
    assert_null(s);
    assert_mentions("header and metadata");
    assert_mentions("delete the sums file");
    sl_gguf_close(g);
}

/* ---- failures of the drive and of memory -------------------------------------------------------
 */

static int writes_left = -1; /* -1: all succeed */
static bool fsync_fails, rename_fails;

/* The linker takes these before libc's. */
ssize_t write(int fd, const void *data, size_t bytes)
{
    if (writes_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (writes_left > 0) writes_left--;
    return (ssize_t)syscall(SYS_write, fd, data, bytes);
}

int fsync(int fd)
{
    errno = EIO;
    return fsync_fails ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    errno = EROFS;
    return rename_fails ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void expect_failed_make(const char *part)
{
    assert_int_equal(make_sums(), SLUICE_E_IO);
    assert_mentions(part);
    assert_mentions("m.gguf.sums");
    assert_null(strchr(error.text, '\n'));
    assert_false(partial_exists());
}

static void test_make__drive_fails__one_line_and_nothing_left(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) { /* without an older file, and with one */
        writes_left = 0;
        expect_failed_make("No space left");
        writes_left = -1;
        fsync_fails = true;
        expect_failed_make("synced");
        fsync_fails = false;
        rename_fails = true;
        expect_failed_make("renamed");
        rename_fails = false;
        if (round == 0) assert_false(exists(sums_path));
        if (round == 0) assert_int_equal(make_sums(), SLUICE_OK);
    }
    assert_int_equal(verify(), SLUICE_OK);
}

static void test_make__left_by_an_interrupted_run__taken_over(void **state)
{
    char partial[CASE_PATH_BYTES + 32], junk[1000] = "junk";
    (void)state;
    snprintf(partial, sizeof partial, "%s.partial", sums_path);
    put_file(partial, junk, sizeof junk);
    assert_int_equal(make_sums(), SLUICE_OK);
    assert_false(exists(partial));
    assert_int_equal(verify(), SLUICE_OK);
}

static void test_make__being_made_by_another__refused_and_left_alone(void **state)
{
    char partial[CASE_PATH_BYTES + 32];
    (void)state;
    snprintf(partial, sizeof partial, "%s.partial", sums_path);
    put_file(partial, "busy", 4);
    int fd = open(partial, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(make_sums(), SLUICE_E_IO);
    assert_mentions("another process");
    assert_true(exists(partial));
    close(fd);
    unlink(partial);
}

static void test_make__partial_is_a_link__not_followed(void **state)
{
    char partial[CASE_PATH_BYTES + 32];
    (void)state;
    snprintf(partial, sizeof partial, "%s.partial", sums_path);
    assert_int_equal(symlink(model_path, partial), 0);
    assert_int_equal(make_sums(), SLUICE_E_IO);
    assert_true(exists(model_path));
    unlink(partial);
    assert_int_equal(make_sums(), SLUICE_OK);
}

static void test_make__read_only_folder__one_line(void **state)
{
    (void)state;
    if (geteuid() == 0) skip(); /* root may write everywhere */
    assert_int_equal(chmod(folder, 0555), 0);
    sluice_err err = make_sums();
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(err, SLUICE_E_IO);
    assert_mentions("Permission denied");
}

static void test_both__every_allocation_may_fail__right_code_and_nothing_left(void **state)
{
    (void)state;
    sluice_err err = SLUICE_E_BUDGET;
    for (int64_t n = 0; err != SLUICE_OK; n++) {
        struct sl_gguf *g = open_path(model_path);
        atomic_store(&budget.fail_after, n);
        err = sl_sums_make(g, &budget, NULL, NULL, &error);
        assert_true(err == SLUICE_OK || err == SLUICE_E_BUDGET || err == SLUICE_E_NOMEM);
        atomic_store(&budget.fail_after, -1);
        sl_gguf_close(g);
        assert_false(partial_exists());
        assert_true(n < 100);
    }
    err = SLUICE_E_BUDGET;
    for (int64_t n = 0; err != SLUICE_OK; n++) {
        struct sl_gguf *g = open_path(model_path);
        struct sl_sums *s = NULL;
        atomic_store(&budget.fail_after, n);
        err = sl_sums_open(g, &budget, &error, &s);
        if (err == SLUICE_OK) err = sl_sums_verify(g, s, &budget, NULL, NULL, &error);
        assert_true(err == SLUICE_OK || err == SLUICE_E_BUDGET || err == SLUICE_E_NOMEM);
        atomic_store(&budget.fail_after, -1);
        sl_sums_close(s);
        sl_gguf_close(g);
        assert_true(n < 100);
    }
}

/* ---- progress and changes meanwhile ------------------------------------------------------------
 */

struct watch {
    uint64_t last, total, give_up_at;
    int calls;
    bool touch; /* the model, at the first call */
};

static int watch(void *user, uint64_t done, uint64_t total)
{
    struct watch *w = user;
    assert_true(done >= w->last && done <= total);
    w->last = done;
    w->total = total;
    if (w->calls++ == 0 && w->touch) assert_true(gb_write(&model, model_path));
    return w->give_up_at != 0 && done >= w->give_up_at;
}

static void test_progress__make_and_verify__ends_at_the_size_of_the_files(void **state)
{
    struct watch w = {0};
    struct sl_sums *s;
    (void)state;
    struct sl_gguf *g = open_path(model_path);
    assert_int_equal(sl_sums_make(g, &budget, watch, &w, &error), SLUICE_OK);
    assert_true(w.calls > 1 && w.last == model.n && w.total == model.n);
    memset(&w, 0, sizeof w);
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_int_equal(sl_sums_verify(g, s, &budget, watch, &w, &error), SLUICE_OK);
    assert_true(w.calls > 1 && w.last == model.n && w.total == model.n);
    memset(&w, 0, sizeof w);
    w.give_up_at = 200;
    assert_int_equal(sl_sums_verify(g, s, &budget, watch, &w, &error), SLUICE_E_CANCELLED);
    sl_sums_close(s);
    sl_gguf_close(g);
}

static void test_make__given_up__nothing_left(void **state)
{
    struct watch w = {.give_up_at = 300};
    (void)state;
    struct sl_gguf *g = open_path(model_path);
    assert_int_equal(sl_sums_make(g, &budget, watch, &w, &error), SLUICE_E_CANCELLED);
    assert_false(partial_exists());
    assert_false(exists(sums_path));
    sl_gguf_close(g);
}

/* A model that is written to while it is summed would get sums of no version at all. */
static void test_make__model_rewritten_meanwhile__changed_and_nothing_left(void **state)
{
    struct watch w = {.touch = true};
    (void)state;
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, model_path, old, 0), 0);
    struct sl_gguf *g = open_path(model_path);
    assert_int_equal(sl_sums_make(g, &budget, watch, &w, &error), SLUICE_E_CHANGED);
    assert_false(exists(sums_path));
    assert_false(partial_exists());
    sl_gguf_close(g);
}

static void test_verify__model_cut_while_open__truncated(void **state)
{
    struct sl_sums *s;
    (void)state;
    assert_int_equal(make_sums(), SLUICE_OK);
    struct sl_gguf *g = open_path(model_path);
    assert_int_equal(sl_sums_open(g, &budget, &error, &s), SLUICE_OK);
    assert_int_equal(truncate(model_path, (off_t)model.n - 40), 0);
    assert_int_equal(sl_sums_verify(g, s, &budget, NULL, NULL, &error), SLUICE_E_TRUNCATED);
    sl_sums_close(s);
    sl_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(test_open__no_sums_file__ok_and_null),
        MODEL_TEST(test_make__a_model__every_piece_has_the_sum_of_its_bytes),
        MODEL_TEST(test_make__twice__the_same_bytes),
        MODEL_TEST(test_make__a_model__the_bytes_of_the_specification),
        MODEL_TEST(test_make__larger_than_a_chunk__every_piece_right),
        MODEL_TEST(test_make__no_tensors__sums_of_the_header_alone),
        TEST(test_split__any_shard_given__one_sums_file_beside_the_first),
        MODEL_TEST(test_verify__a_flipped_byte__named),
        MODEL_TEST(test_verify__every_bit_of_the_model__none_passes),
        MODEL_TEST(test_open__every_bit_of_the_sums_file__refused_with_advice),
        MODEL_TEST(test_open__every_length__refused),
        MODEL_TEST(test_open__newer_version__refused_as_such),
        MODEL_TEST(test_open__reserved_field_with_a_right_checksum__refused),
        MODEL_TEST(test_open__claims_that_overflow__refused_before_memory),
        MODEL_TEST(test_open__a_folder_of_the_name__io_error),
        MODEL_TEST(test_open__model_changed__refused_until_made_again),
        MODEL_TEST(test_open__metadata_changed__corrupt_with_what_to_do),
        MODEL_TEST(test_make__drive_fails__one_line_and_nothing_left),
        MODEL_TEST(test_make__left_by_an_interrupted_run__taken_over),
        MODEL_TEST(test_make__being_made_by_another__refused_and_left_alone),
        MODEL_TEST(test_make__partial_is_a_link__not_followed),
        MODEL_TEST(test_make__read_only_folder__one_line),
        MODEL_TEST(test_both__every_allocation_may_fail__right_code_and_nothing_left),
        MODEL_TEST(test_progress__make_and_verify__ends_at_the_size_of_the_files),
        MODEL_TEST(test_make__given_up__nothing_left),
        MODEL_TEST(test_make__model_rewritten_meanwhile__changed_and_nothing_left),
        MODEL_TEST(test_verify__model_cut_while_open__truncated),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
