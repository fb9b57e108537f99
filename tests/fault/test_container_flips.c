/* One bit of a container is wrong, at a thousand places drawn alike on every machine: whoever reads
 * everything finds it, with file and offset, and whoever runs the model gets an error or, where
 * what is wrong was never read, the logits of the undamaged one. Never others.
 *
 *   test_container_flips CONTAINER TOKENS      a container in one file, with experts
 *
 * Mapped files are left out: what the kernel maps is read by nobody who could compare it. */
#define _GNU_SOURCE /* mkdtemp, pwrite */
#include "tests/support/stream_case.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/container.h"

#define FLIPS 1000
#define N_IDS 4
#define BLOCK 16384 /* records, headers and the index begin on multiples */
#define SHEET 65536 /* the longest record of a small model */
#define PATH_BYTES 1024

static const char *container, *tokens;
static char folder[] = "/tmp/sluice_test_flips_XXXXXX";
static char copy[sizeof folder + 16];

static struct {
    unsigned char *bytes;
    size_t n, index_at;
    struct stream_text text;
    float *right, *got;
    uint32_t fewest_slots;
} model;

/* ---- the model ------------------------------------------------------------------------------- */

static void read_container(void)
{
    struct stat st;
    FILE *f = fopen(container, "rb");

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    model.n = (size_t)st.st_size;
    assert_true(model.n >= 4 * BLOCK);
    model.bytes = malloc(model.n);
    assert_non_null(model.bytes);
    assert_int_equal(fread(model.bytes, 1, model.n, f), model.n);
    assert_int_equal(fclose(f), 0);
    model.index_at = 0;
    for (size_t i = 0; i < 8; i++) model.index_at |= (size_t)model.bytes[40 + i] << 8 * i;
    assert_in_range(model.index_at, BLOCK, model.n - BLOCK);
}

static void read_tokens(void)
{
    FILE *f = fopen(tokens, "r");
    int id;

    assert_non_null(f);
    while (model.text.n < N_IDS && fscanf(f, "%d", &id) == 1) model.text.ids[model.text.n++] = id;
    assert_int_equal(fclose(f), 0);
    assert_int_equal(model.text.n, N_IDS);
}

/* Opens the copy and reads the text: the first error, or the logits in model.got. */
static sluice_err run(const struct stream_setup *u, sluice_error *e)
{
    sluice_options o = stream_options(u);
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_model *m = NULL;
    sluice_session *s = NULL;

    sluice_err err = sluice_model_open(copy, &o, &m, e);
    if (err != SLUICE_OK) return err;
    sluice_model_get_info(m, &info);
    model.text.n_vocab = info.n_vocab;
    if (model.got == NULL) model.got = stream_room(&model.text);
    memset(model.got, 0xA5, model.text.n * stream_row_bytes(&model.text));
    err = sluice_session_open(m, &s, e);
    if (err == SLUICE_OK) err = stream_read(s, &model.text, model.got, e);
    sluice_session_close(s);
    sluice_model_close(m);
    return err;
}

static struct stream_setup setup(uint32_t io, uint32_t slots)
{
    struct stream_setup u = STREAM_PLAIN;

    u.io = io;
    u.slots = slots;
    u.prefetch = slots != 0 ? SLUICE_PREFETCH_FORCED : SLUICE_PREFETCH_OFF;
    return u;
}

static void write_copy(void)
{
    FILE *f = fopen(copy, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(model.bytes, 1, model.n, f), model.n);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    sluice_error e = {0};
    (void)state;
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(copy, sizeof copy, "%s/m.sluice", folder);
    read_container();
    read_tokens();
    write_copy();
    struct stream_setup plain = setup(SLUICE_IO_PREAD, 0);
    if (run(&plain, &e) != SLUICE_OK) fail_msg("undamaged: %s", e.text);
    model.right = model.got;
    model.got = NULL;
    for (model.fewest_slots = 1;; model.fewest_slots++) {
        struct stream_setup few = setup(SLUICE_IO_PREAD, model.fewest_slots);
        sluice_err err = run(&few, &e);
        if (err == SLUICE_OK) return 0;
        if (err != SLUICE_E_BUDGET) fail_msg("undamaged: %s", e.text);
    }
}

static int tear_down(void **state)
{
    (void)state;
    free(model.bytes);
    free(model.right);
    free(model.got);
    unlink(copy);
    return rmdir(folder);
}

/* ---- flips ----------------------------------------------------------------------------------- */

struct flip {
    size_t at;
    unsigned bit;
};

static void put(const struct flip *f, unsigned char mask)
{
    unsigned char byte = model.bytes[f->at] ^ mask;
    int fd = open(copy, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)f->at), 1);
    assert_int_equal(close(fd), 0);
}

/* The places: one in eight in the header, one in eight in the index, the others anywhere, so that
 * the parts of a small file all get their share. */
static struct flip draw(uint64_t *state, int i)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state >> 16;
    struct flip f = {(size_t)(x / 8 % model.n), (unsigned)(x % 8)};

    if (i % 8 == 0) f.at %= BLOCK;
    if (i % 8 == 1) f.at = model.index_at + f.at % (model.n - model.index_at);
    return f;
}

static sluice_err verify(sluice_error *e)
{
    struct sl_budget b;
    struct sl_container *c = NULL;

    sl_budget_init(&b, UINT64_MAX);
    sluice_err err = sl_container_open(copy, &b, e, &c);
    if (err == SLUICE_OK) err = sl_container_verify(c, &b, NULL, NULL, e);
    sl_container_close(c);
    assert_int_equal(sl_budget_used(&b), 0);
    return err;
}

/* The offset is of the record, the header or the index that the flip is in. */
static void check_place(const struct flip *f, const char *who, const sluice_error *e)
{
    uint64_t from = e->file_offset == SLUICE_NO_OFFSET ? 0 : e->file_offset;

    if (strstr(e->text, copy) == NULL || strchr(e->text, '\n') != NULL)
        fail_msg("%s, bit %u of byte %zu: %s", who, f->bit, f->at, e->text);
    if (e->file_offset == SLUICE_NO_OFFSET && f->at >= BLOCK)
        fail_msg("%s, bit %u of byte %zu: no offset: %s", who, f->bit, f->at, e->text);
    if (f->at < from || f->at >= from + (f->at < model.index_at ? SHEET : model.n))
        fail_msg("%s, bit %u of byte %zu: offset %llu: %s", who, f->bit, f->at,
                 (unsigned long long)from, e->text);
}

static void test_verify__one_bit_wrong__found_with_its_place(void **state)
{
    uint64_t random = 20261130;
    (void)state;
    for (int i = 0; i < FLIPS; i++) {
        struct flip f = draw(&random, i);
        sluice_error e = {0};

        put(&f, (unsigned char)(1u << f.bit));
        sluice_err err = verify(&e);
        put(&f, 0);
        if (err == SLUICE_OK) fail_msg("bit %u of byte %zu: not found", f.bit, f.at);
        assert_int_equal(err, e.code);
        check_place(&f, "verify", &e);
    }
    sluice_error e = {0};
    assert_int_equal(verify(&e), SLUICE_OK);
}

struct count {
    int errors, same;
};

/* An error, or the right logits; of header and index always an error. */
static void run_flipped(const struct flip *f, const struct stream_setup *u, struct count *n)
{
    char text[STREAM_DESCRIPTION_BYTES];
    sluice_error e = {0};
    size_t row = 0;

    stream_describe(u, text);
    sluice_err err = run(u, &e);
    if (err != SLUICE_OK) {
        n->errors++;
        assert_int_equal(err, e.code);
        check_place(f, text, &e);
        return;
    }
    n->same++;
    if (f->at < BLOCK || f->at >= model.index_at)
        fail_msg("bit %u of byte %zu, header or index: no error, with %s", f->bit, f->at, text);
    if (!stream_equal(&model.text, model.got, model.right, &row))
        fail_msg("bit %u of byte %zu: other logits from token %zu on, with %s", f->bit, f->at, row,
                 text);
}

static bool uring_granted(void)
{
    struct stream_setup u = setup(SLUICE_IO_URING, 0);
    sluice_error e = {0};
    sluice_err err = run(&u, &e);

    if (err == SLUICE_OK) return true;
    if (err != SLUICE_E_UNSUPPORTED) fail_msg("%s", e.text);
    print_message("without io_uring: %s\n", e.text);
    return false;
}

static void run_all(uint32_t slots, struct count *n)
{
    uint64_t random = 20261130;
    bool uring = uring_granted();

    for (int i = 0; i < FLIPS; i++) {
        struct flip f = draw(&random, i);
        uint32_t io = i / 8 % 2 == 1 ? SLUICE_IO_PREAD : uring ? SLUICE_IO_URING : SLUICE_IO_MMAP;
        if (slots == 0 && i / 8 % 4 == 2) io = SLUICE_IO_MMAP;
        struct stream_setup u = setup(io, slots);

        put(&f, (unsigned char)(1u << f.bit));
        run_flipped(&f, &u, n);
        put(&f, 0);
    }
    print_message("%u slots: %d errors, %d right\n", slots, n->errors, n->same);
}

/* Only embeddings are read row by row; whatever else is wrong is met. */
static void test_run__one_bit_wrong_and_all_in_memory__error_or_never_read(void **state)
{
    struct count n = {0, 0};
    (void)state;
    run_all(0, &n);
    assert_true(n.errors > FLIPS * 9 / 10);
}

static void test_run__one_bit_wrong_and_few_experts__error_or_same_logits(void **state)
{
    struct count n = {0, 0};
    (void)state;
    run_all(model.fewest_slots, &n);
    assert_true(n.errors > FLIPS / 4 && n.same > FLIPS / 50);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__one_bit_wrong__found_with_its_place),
        cmocka_unit_test(test_run__one_bit_wrong_and_all_in_memory__error_or_never_read),
        cmocka_unit_test(test_run__one_bit_wrong_and_few_experts__error_or_same_logits),
    };

    if (argc < 3) return 77;
    container = argv[1];
    tokens = argv[2];
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
