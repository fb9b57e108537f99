/* Trace files: what is written is read again, to the last value; a file that is cut anywhere gives
 * what came before the cut and says so; a flipped bit is an error or, in the last block, a cut;
 * what the system refuses is told once. Nonsense under right checksums: test_trace_bad. */
#define _GNU_SOURCE /* mkdtemp, mkfifo */
#include "tests/support/trace_case.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static char folder[] = "/tmp/sluice_test_trace_XXXXXX";
static char path[64];
static struct sl_budget budget;

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/t", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, UINT64_MAX);
    memset(&case_error, 0, sizeof case_error);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(sl_budget_used(&budget), 0);
    return 0;
}

/* ---- ways to write and to read ------------------------------------------------------------------
 */

static struct trace_out begin(const struct sl_trace_header *h)
{
    struct trace_out o = {0};
    assert_int_equal(sl_trace_create(path, h, &budget, &case_error, &o.w), SLUICE_OK);
    say_header(&o.text, h);
    return o;
}

/* The case's file, and what is in it. */
static struct trace_text write_case(bool flush)
{
    struct sl_trace_header h;
    case_header(&h);
    struct trace_out o = begin(&h);
    put_case(&o, flush);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    say_end(&o.text, false, 0);
    return o.text;
}

static void assert_reads(const char *from, const struct trace_text *wanted)
{
    struct trace_text found = {0};
    struct sl_trace_reader *r;
    assert_int_equal(sl_trace_open(from, &budget, &case_error, &r), SLUICE_OK);
    say_header(&found, sl_trace_get_header(r));
    assert_int_equal(say_rest(&found, r, &case_error), SLUICE_OK);
    sl_trace_reader_close(r);
    assert_string_equal(found.p, wanted->p);
    text_free(&found);
}

/* ---- round trips --------------------------------------------------------------------------------
 */

static void test_trace__every_kind_of_record__read_as_written(void **state)
{
    (void)state;
    for (int flush = 0; flush <= 1; flush++) {
        struct trace_text wanted = write_case(flush);
        assert_reads(path, &wanted);
        text_free(&wanted);
    }
}

/* Layers, choices, entries and numbers as large as they may be. */
static void test_trace__the_largest_header_and_records__read_as_written(void **state)
{
    static struct sl_trace_header h;
    static uint16_t chosen[SL_TF_CHOICES_MAX];
    static float weights[SL_TF_CHOICES_MAX];
    static uint8_t states[SL_TF_CHOICES_MAX], entries[SL_EXPERTS_MAX];
    const uint64_t max = SL_TRACE_NUMBER_MAX;
    (void)state;
    case_header(&h);
    h.n_layers = SL_LAYERS_MAX;
    h.n_classes = SL_TRACE_CLASSES;
    for (uint32_t i = 0; i < SL_LAYERS_MAX; i++)
        h.layer[i] = (struct sl_trace_layer_info){SL_EXPERTS_MAX, SL_TOP_K_MAX, 3, max, max, max};
    for (uint32_t i = 0; i < SL_TF_KEYS; i++) {
        char *at = (char *)&h + sl_tf_keys[i].offset;
        const uint64_t v = sl_tf_keys[i].max;
        if (v == 0) memset(at, 'a' + (int)i, SL_TRACE_TEXT - 1);
        if (v > 0) memcpy(at, &v, v <= UINT32_MAX ? 4 : 8);
    }
    for (uint32_t i = 0; i < SL_TF_CHOICES_MAX; i++) {
        chosen[i] = (uint16_t)(i % SL_EXPERTS_MAX);
        weights[i] = (float)i * 1e33f;
    }
    memset(entries, SL_TRACE_PASSED_OVER, sizeof entries);
    struct trace_out o = begin(&h);
    PUT(&o, SL_TRACE_EVAL, eval, UINT32_MAX, UINT32_MAX - SL_CHUNK_MAX, SL_CHUNK_MAX, true, max);
    for (uint32_t i = 0; i < 2; i++) /* 511: the last of them */
        PUT(&o, SL_TRACE_LAYER, layer, 510 + i, SL_CHUNK_MAX, SL_TOP_K_MAX, chosen, weights, states,
            entries, SL_EXPERTS_MAX, max, max, max, max, max);
    PUT(&o, SL_TRACE_HINT, hints, 511, UINT32_MAX, true, SL_EXPERTS_MAX, chosen, weights);
    PUT(&o, SL_TRACE_READ, read, 511, SL_EXPERTS_MAX - 1, 5, max, max, max);
    PUT(&o, SL_TRACE_READ, read, 511, SL_EXPERTS_MAX - 1, 5, max, 0, max);
    PUT(&o, SL_TRACE_DONE, done, max, {max, max, max, max, max, max, max});
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    say_end(&o.text, false, 0);
    assert_reads(path, &o.text);
    text_free(&o.text);
}

/* What was not measured is NULL, not zeros. */
static void test_trace__neither_weights_nor_states__null(void **state)
{
    struct sl_trace_header h;
    struct sl_trace_record r;
    struct sl_trace_reader *reader;
    const uint16_t chosen[2] = {1, 2};
    (void)state;
    case_header(&h);
    h.measured = 0;
    struct trace_out o = begin(&h);
    PUT(&o, SL_TRACE_EVAL, eval, 0, 0, 1, false, 0);
    PUT(&o, SL_TRACE_LAYER, layer, .n_tokens = 1, .top_k = 2, .chosen = chosen);
    text_free(&o.text);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &reader), SLUICE_OK);
    assert_int_equal(sl_trace_next(reader, &r, &case_error), SLUICE_OK);
    assert_int_equal(sl_trace_next(reader, &r, &case_error), SLUICE_OK);
    assert_int_equal(r.kind, SL_TRACE_LAYER);
    assert_memory_equal(r.u.layer.chosen, chosen, sizeof chosen);
    assert_null(r.u.layer.weights);
    assert_null(r.u.layer.states);
    assert_null(r.u.layer.entries);
    sl_trace_reader_close(reader);
}

/* What a broken model gives must not make its trace unreadable. */
static void test_trace__floats_that_are_not_finite__zeros(void **state)
{
    const float bad[4] = {NAN, 1.5f, INFINITY, -INFINITY}, good[4] = {0, 1.5f, 0, 0};
    const uint16_t chosen[4] = {1, 2, 3, 4};
    const uint8_t states[4] = {2, 2, 2, 2};
    struct sl_trace_header h;
    struct sl_trace_record r;
    struct sl_trace_reader *reader;
    (void)state;
    case_header(&h);
    struct trace_out o = begin(&h);
    text_free(&o.text);
    sl_trace_put_hints(o.w, &(struct sl_trace_hints){2, 1, false, 4, chosen, bad});
    sl_trace_put_eval(o.w, &(struct sl_trace_eval){.n_tokens = 1});
    const struct sl_trace_layer layer = {
        .layer = 2, .n_tokens = 1, .top_k = 4, .chosen = chosen, .weights = bad, .states = states};
    sl_trace_put_layer(o.w, &layer);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &reader), SLUICE_OK);
    assert_int_equal(sl_trace_next(reader, &r, &case_error), SLUICE_OK);
    assert_memory_equal(r.u.hints.probabilities, good, sizeof good);
    assert_int_equal(sl_trace_next(reader, &r, &case_error), SLUICE_OK);
    assert_int_equal(sl_trace_next(reader, &r, &case_error), SLUICE_OK);
    assert_memory_equal(r.u.layer.weights, good, sizeof good);
    sl_trace_reader_close(reader);
}

/* Many blocks: what is read depends neither on where they end nor on how the bytes come. */
static void test_trace__more_than_a_block__read_as_written_however_it_comes(void **state)
{
    struct sl_trace_header h;
    static const float p[300];
    uint16_t experts[300];
    (void)state;
    case_header(&h);
    for (uint32_t i = 0; i < 300; i++) experts[i] = (uint16_t)(299 - i);
    struct trace_out o = begin(&h);
    for (uint32_t i = 0; i < 400; i++)
        PUT(&o, SL_TRACE_HINT, hints, 2, i, false, i % 301, experts, p);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    say_end(&o.text, false, 0);
    struct trace_bytes all = read_bytes(path);
    assert_true(all.n > 300000);
    const uint64_t steps[] = {1, 7, 65536};
    for (size_t i = 0; i < SL_ARRAY_LEN(steps); i++) {
        struct trace_text found = {0};
        struct memory m = {all.p, all.n, 0, steps[i], SLUICE_OK};
        assert_int_equal(read_memory(&found, &m), SLUICE_OK);
        assert_string_equal(found.p, o.text.p);
        text_free(&found);
    }
    free(all.p);
    text_free(&o.text);
}

/* ---- damage -------------------------------------------------------------------------------------
 */

/* Where each block of a whole file begins; the last one is the file's end. */
static uint32_t find_blocks(const struct trace_bytes *b, uint64_t at[16])
{
    uint32_t n = 0;
    uint64_t here = SL_TF_MAGIC_BYTES;
    while (here < b->n) {
        assert_true(n < 15);
        at[n++] = here;
        uint32_t bytes = (uint32_t)b->p[here + 4] << 8 | b->p[here + 5];
        here += SL_TF_HEAD_BYTES + bytes + SL_TF_TAIL_BYTES;
    }
    assert_int_equal(here, b->n);
    at[n] = here;
    return n;
}

/* Whether what was found are the first lines of what was written, and how many. */
static uint32_t count_first_lines(const struct trace_text *found, const struct trace_text *all)
{
    uint32_t n = 0;
    if (found->n > 0) assert_memory_equal(found->p, all->p, found->n);
    for (size_t i = 0; i < found->n; i++) n += found->p[i] == '\n';
    return n;
}

/* Reads the first n bytes. Returns how many lines came before the end or the case_error. */
static uint32_t read_cut(const struct trace_bytes *b, uint64_t n, const struct trace_text *all,
                         sluice_err *err, uint64_t *lost)
{
    struct trace_text found = {0};
    char *copy = malloc(n + 1); /* so that a byte too many shows */
    assert_non_null(copy);
    memcpy(copy, b->p, n);
    *err = read_all(&found, (unsigned char *)copy, n);
    *lost = UINT64_MAX;
    if (*err == SLUICE_OK) {
        const char *end = strstr(found.p, "{\"kind\":\"end\"");
        assert_non_null(end);
        found.n = (size_t)(end - found.p);
        if (sscanf(end, "{\"kind\":\"end\",\"cut\":true,\"lost_bytes\":%" SCNu64, lost) != 1)
            *lost = UINT64_MAX;
    }
    uint32_t lines = count_first_lines(&found, all);
    text_free(&found);
    free(copy);
    return lines;
}

static void test_trace__cut_at_every_byte__what_came_before_and_that_it_was_cut(void **state)
{
    uint64_t at[16], lost;
    uint32_t block = 0, before = 0;
    sluice_err err;
    (void)state;
    struct trace_text all = write_case(true);
    struct trace_bytes b = read_bytes(path);
    uint32_t n_blocks = find_blocks(&b, at);
    assert_int_equal(n_blocks, 4);
    for (uint64_t n = 0; n < b.n; n++) {
        uint32_t lines = read_cut(&b, n, &all, &err, &lost);
        while (block < n_blocks && n >= at[block + 1]) block++;
        if (block == 0) {
            assert_int_equal(err, SLUICE_E_TRUNCATED);
            assert_int_equal(lines, 0);
            assert_mentions("before its header");
            continue;
        }
        assert_int_equal(err, SLUICE_OK);
        assert_int_equal(lost, n - at[block]);
        if (n == at[block]) { /* another whole block */
            assert_true(lines > before);
            before = lines;
        }
        assert_int_equal(lines, before);
    }
    free(b.p);
    text_free(&all);
}

static void test_trace__every_bit_flipped__an_error_or_in_the_last_block_a_cut(void **state)
{
    uint64_t at[16], lost;
    sluice_err err;
    uint32_t cuts = 0;
    (void)state;
    struct trace_text all = write_case(true);
    struct trace_bytes b = read_bytes(path);
    uint32_t n_blocks = find_blocks(&b, at);
    for (uint64_t bit = 0; bit < 8 * b.n; bit++) {
        b.p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        (void)read_cut(&b, b.n, &all, &err, &lost);
        b.p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (bit / 8 < SL_TF_MAGIC_BYTES) {
            assert_int_equal(err, SLUICE_E_FORMAT);
            assert_mentions("no trace file");
        } else if (err == SLUICE_OK) {
            assert_true(bit / 8 >= at[n_blocks - 1]);
            assert_int_equal(lost, b.n - at[n_blocks - 1]);
            cuts++;
        } else {
            assert_int_equal(err, SLUICE_E_CORRUPT);
            assert_mentions("is damaged: the block at offset");
            uint32_t i = 0;
            while (bit / 8 >= at[i + 1]) i++;
            assert_int_equal(case_error.file_offset, at[i]);
        }
    }
    assert_true(cuts > 0);
    free(b.p);
    text_free(&all);
}

static void test_trace__bytes_after_the_end_mark__refused(void **state)
{
    (void)state;
    struct trace_text all = write_case(false), found = {0};
    struct trace_bytes b = read_bytes(path);
    unsigned char *twice = malloc(2 * b.n);
    assert_non_null(twice);
    memcpy(twice, b.p, b.n);
    memcpy(twice + b.n, b.p, b.n);
    assert_int_equal(read_all(&found, twice, 2 * b.n), SLUICE_E_FORMAT);
    assert_mentions("goes on after its end mark");
    found.n = 0;
    assert_int_equal(read_all(&found, twice, b.n + 1), SLUICE_E_FORMAT);
    free(twice);
    free(b.p);
    text_free(&found);
    text_free(&all);
}

/* ---- the system ---------------------------------------------------------------------------------
 */

static off_t file_bytes(void)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Half a second by the records' own times, whichever kind comes; and what is asked for. */
static void test_write__half_a_second_old__handed_over(void **state)
{
    struct sl_trace_header h;
    (void)state;
    case_header(&h);
    h.measured = 0;
    struct trace_out o = begin(&h);
    off_t bytes = file_bytes();
    PUT(&o, SL_TRACE_EVAL, eval, 0, 0, 1, false, 600000000);
    assert_int_equal(file_bytes(), bytes);
    PUT(&o, SL_TRACE_LAYER, layer, 0, 1, 2, (const uint16_t[]){1, 2}, .begin_ns = 600000000);
    assert_true(file_bytes() > bytes);
    bytes = file_bytes();
    PUT(&o, SL_TRACE_READ, read, 0, 1, 0, 5, 700000000, 399999999);
    assert_int_equal(file_bytes(), bytes);
    PUT(&o, SL_TRACE_READ, read, 0, 1, 0, 5, 700000001, 399999999);
    assert_true(file_bytes() > bytes);
    bytes = file_bytes();
    PUT(&o, SL_TRACE_DONE, done, .end_ns = 1600000000);
    assert_true(file_bytes() > bytes);
    bytes = file_bytes();
    PUT(&o, SL_TRACE_OP, op, SL_TRACE_WARM, 0, 1, 0);
    sl_trace_flush(o.w);
    assert_true(file_bytes() > bytes);
    bytes = file_bytes();
    sl_trace_flush(o.w); /* nothing to do: no empty block */
    assert_int_equal(file_bytes(), bytes);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    say_end(&o.text, false, 0);
    assert_reads(path, &o.text);
    text_free(&o.text);
}

static void test_write__killed__readable_up_to_the_last_block(void **state)
{
    int status;
    (void)state;
    struct sl_trace_header h;
    case_header(&h);
    struct trace_out o = begin(&h);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        put_case(&o, true);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    struct trace_text found = {0};
    struct trace_bytes b = read_bytes(path);
    assert_int_equal(read_all(&found, b.p, b.n), SLUICE_OK);
    assert_non_null(strstr(found.p, "\"cut\":true,\"lost_bytes\":0"));
    assert_non_null(strstr(found.p, "{\"kind\":\"done\""));
    assert_null(strstr(found.p, "\"session\":9")); /* in the block that was not handed over */
    free(b.p);
    text_free(&found);
    text_free(&o.text);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
}

/* A limit on the size of files fails writes as a full disk does. */
static void test_write__disk_full__told_once_and_what_is_there_can_be_read(void **state)
{
    struct rlimit old, tight;
    struct sl_trace_header h;
    (void)state;
    case_header(&h);
    struct trace_out o = begin(&h);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    put_case(&o, true);
    assert_int_equal(sl_trace_failed(o.w, &case_error), SLUICE_OK);
    tight = old;
    tight.rlim_cur = (rlim_t)file_bytes() + 5;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    sl_trace_flush(o.w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(sl_trace_failed(o.w, &case_error), SLUICE_E_IO);
    assert_int_equal(case_error.sys_errno, EFBIG);
    assert_mentions(path);
    assert_int_equal(sl_trace_failed(o.w, &case_error), SLUICE_OK);
    off_t bytes = file_bytes();
    put_case(&o, true); /* room again, but something is missing in between */
    put_case(&o, false);
    PUT(&o, SL_TRACE_DONE, done, .end_ns = 1u << 30);
    assert_int_equal(sl_trace_failed(o.w, &case_error), SLUICE_OK);
    assert_int_equal(sl_trace_close(o.w, &case_error), SLUICE_OK);
    assert_int_equal(file_bytes(), bytes);
    struct trace_text found = {0};
    struct trace_bytes b = read_bytes(path);
    assert_int_equal(read_all(&found, b.p, b.n), SLUICE_OK);
    assert_non_null(strstr(found.p, "\"cut\":true,\"lost_bytes\":5"));
    free(b.p);
    text_free(&found);
    text_free(&o.text);
}

/* Not told before: closing tells. */
static void test_close__disk_full__an_error(void **state)
{
    struct rlimit old, tight;
    struct sl_trace_header h;
    (void)state;
    case_header(&h);
    struct trace_out o = begin(&h);
    text_free(&o.text);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    tight = old;
    tight.rlim_cur = (rlim_t)file_bytes();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    sluice_err err = sl_trace_close(o.w, &case_error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(err, SLUICE_E_IO);
    assert_mentions("failed; what was written can be read");
    assert_int_equal(sl_trace_close(NULL, &case_error), SLUICE_OK);
}

static void test_create__where_nothing_can_be_written__the_systems_error(void **state)
{
    static const struct {
        const char *path;
        int sys_errno;
    } cases[] = {{"/dev/full", ENOSPC}, {"/", EISDIR}, {"/no/such/folder/t", ENOENT}};
    struct sl_trace_header h;
    struct sl_trace_writer *w;
    (void)state;
    case_header(&h);
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        assert_int_equal(sl_trace_create(cases[i].path, &h, &budget, &case_error, &w), SLUICE_E_IO);
        assert_null(w);
        assert_int_equal(case_error.sys_errno, cases[i].sys_errno);
        assert_mentions(cases[i].path);
    }
    assert_int_equal(sl_trace_create("/dev/null", &h, &budget, &case_error, &w), SLUICE_OK);
    assert_int_equal(sl_trace_close(w, &case_error), SLUICE_OK);
}

static void test_create__a_trace_that_is_there__replaced(void **state)
{
    (void)state;
    struct trace_text first = write_case(true), wanted = write_case(false);
    assert_reads(path, &wanted);
    text_free(&wanted);
    text_free(&first);
}

static void test_create__a_file_of_another_kind__left_alone(void **state)
{
    struct sl_trace_header h;
    struct sl_trace_writer *w;
    (void)state;
    case_header(&h);
    for (size_t n = 1; n < 40; n++) {
        char model[] = "GGUF, a model that took a night to fetch";
        write_bytes(path, model, n);
        assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &w), SLUICE_E_IO);
        assert_mentions("no trace is there");
        struct trace_bytes b = read_bytes(path);
        assert_int_equal(b.n, n);
        assert_memory_equal(b.p, model, n);
        free(b.p);
    }
    write_bytes(path, "", 0);
    assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &w), SLUICE_OK);
    assert_int_equal(sl_trace_close(w, &case_error), SLUICE_OK);
}

/* Two recordings in one file would leave none. */
static void test_create__a_file_that_is_being_recorded_into__refused_until_its_end(void **state)
{
    struct sl_trace_header h;
    struct sl_trace_writer *first, *second;
    (void)state;
    case_header(&h);
    unlink(path);
    assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &first), SLUICE_OK);
    assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &second), SLUICE_E_IO);
    assert_mentions("another program");
    assert_int_equal(sl_trace_close(first, &case_error), SLUICE_OK);
    struct trace_bytes b = read_bytes(path);
    assert_true(b.n > 100);
    free(b.p);
    assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &second), SLUICE_OK);
    assert_int_equal(sl_trace_close(second, &case_error), SLUICE_OK);
}

/* Written to a pipe by one process, read from it by another: by name, and as standard input. */
static void test_trace__through_a_pipe__read_as_written(void **state)
{
    struct trace_text wanted = write_case(true);
    int kept = dup(STDIN_FILENO), status;
    (void)state;
    for (int standard = 0; standard <= 1; standard++) {
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct trace_text text = write_case(true);
            text_free(&text);
            _exit(0);
        }
        if (standard) {
            int fd = open(path, O_RDONLY);
            assert_true(fd >= 0);
            assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
            close(fd);
        }
        assert_reads(standard ? "-" : path, &wanted);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    if (kept >= 0) assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    if (kept >= 0) close(kept);
    text_free(&wanted);
}

static void ignore(int signal_number) { (void)signal_number; }

static void interrupt_every_ms(long n)
{
    const struct itimerval t = {{0, 1000 * n}, {0, 1000 * n}};
    assert_int_equal(setitimer(ITIMER_REAL, &t, NULL), 0);
}

/* More than a pipe holds. */
static sluice_err write_much(void)
{
    struct sl_trace_header h;
    struct sl_trace_writer *w;
    uint16_t experts[300];
    const float p[300] = {0};
    case_header(&h);
    for (uint32_t i = 0; i < 300; i++) experts[i] = (uint16_t)i;
    sluice_err err = sl_trace_create(path, &h, &budget, &case_error, &w);
    if (err != SLUICE_OK) return err;
    for (uint32_t i = 0; i < 100; i++)
        sl_trace_put_hints(w, &(struct sl_trace_hints){2, 1, false, 300, experts, p});
    return sl_trace_close(w, &case_error);
}

/* The number of records. */
static int read_much(void)
{
    struct sl_trace_record rec;
    struct sl_trace_reader *r;
    int n = 0;
    if (sl_trace_open(path, &budget, &case_error, &r) != SLUICE_OK) return -1;
    while (sl_trace_next(r, &rec, &case_error) == SLUICE_OK && rec.kind != SL_TRACE_END) n++;
    if (sl_trace_cut(r, NULL)) n = -1;
    sl_trace_reader_close(r);
    return n;
}

/* Signals interrupt a writer whose pipe is full, and a reader whose pipe is empty: the other side
 * takes its time. */
static void test_trace__signals_while_it_waits__goes_on(void **state)
{
    const struct timespec pause = {0, 60000000};
    struct sigaction act = {.sa_handler = ignore}, old; /* without SA_RESTART */
    int status;
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    for (int writes = 0; writes <= 1; writes++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            nanosleep(&pause, NULL); /* the open waits */
            int fd = open(path, writes ? O_RDONLY : O_WRONLY);
            nanosleep(&pause, NULL); /* and then the first byte, or the room for more */
            int failed = writes ? read_much() != 100 : write_much() != SLUICE_OK;
            close(fd);
            _exit(failed);
        }
        assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
        interrupt_every_ms(20);
        sluice_err err = writes ? write_much() : SLUICE_OK;
        int n = writes ? 100 : read_much();
        interrupt_every_ms(0);
        assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
        if (err != SLUICE_OK) print_message("%s\n", case_error.text);
        assert_int_equal(err, SLUICE_OK);
        assert_int_equal(n, 100);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void test_open__what_is_no_trace__says_so(void **state)
{
    struct sl_trace_reader *r;
    (void)state;
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &r), SLUICE_E_NOT_FOUND);
    assert_null(r);
    assert_mentions("there is no file");
    assert_int_equal(sl_trace_open(folder, &budget, &case_error, &r), SLUICE_E_IO);
    assert_int_equal(case_error.sys_errno, EISDIR);
    write_bytes(path, "GGUF\3\0\0\0 and more", 17);
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &r), SLUICE_E_FORMAT);
    assert_mentions("no trace file");
    write_bytes(path, "", 0);
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &r), SLUICE_E_TRUNCATED);
    assert_mentions("ends after 0 bytes");
    assert_false(sl_trace_is("GGUF\3\0\0\0", 8));
    assert_false(sl_trace_is(sl_tf_magic, 7));
    assert_true(sl_trace_is(sl_tf_magic, 8));
}

static void test_open_source__fails_in_the_middle__its_own_error(void **state)
{
    (void)state;
    struct trace_text all = write_case(true), found = {0};
    struct trace_bytes b = read_bytes(path);
    for (uint64_t n = 0; n < b.n; n += 13) {
        struct memory m = {b.p, n, 0, 5, SLUICE_E_CORRUPT};
        found.n = 0;
        assert_int_equal(read_memory(&found, &m), SLUICE_E_CORRUPT);
        assert_mentions("the source broke off");
    }
    free(b.p);
    text_free(&found);
    text_free(&all);
}

static void test_memory__as_said__and_refused_with_less(void **state)
{
    struct sl_trace_header h;
    struct sl_trace_writer *w;
    struct sl_trace_reader *r;
    (void)state;
    case_header(&h);
    assert_true(sl_trace_writer_bytes() < 300u << 10);
    sl_budget_init(&budget, sl_trace_writer_bytes() - 1);
    assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &w), SLUICE_E_BUDGET);
    sl_budget_init(&budget, sl_trace_writer_bytes());
    assert_int_equal(sl_trace_create(path, &h, &budget, &case_error, &w), SLUICE_OK);
    assert_int_equal(sl_budget_used(&budget), sl_trace_writer_bytes());
    assert_int_equal(sl_trace_close(w, &case_error), SLUICE_OK);
    sl_budget_init(&budget, 1u << 20);
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &r), SLUICE_OK);
    sl_trace_reader_close(r);
    sl_budget_init(&budget, 100000);
    assert_int_equal(sl_trace_open(path, &budget, &case_error, &r), SLUICE_E_BUDGET);
    assert_mentions("no memory to read the trace");
}

#define TRACE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRACE_TEST(test_trace__every_kind_of_record__read_as_written),
        TRACE_TEST(test_trace__the_largest_header_and_records__read_as_written),
        TRACE_TEST(test_trace__neither_weights_nor_states__null),
        TRACE_TEST(test_trace__floats_that_are_not_finite__zeros),
        TRACE_TEST(test_trace__more_than_a_block__read_as_written_however_it_comes),
        TRACE_TEST(test_trace__cut_at_every_byte__what_came_before_and_that_it_was_cut),
        TRACE_TEST(test_trace__every_bit_flipped__an_error_or_in_the_last_block_a_cut),
        TRACE_TEST(test_trace__bytes_after_the_end_mark__refused),
        TRACE_TEST(test_write__half_a_second_old__handed_over),
        TRACE_TEST(test_write__killed__readable_up_to_the_last_block),
        TRACE_TEST(test_write__disk_full__told_once_and_what_is_there_can_be_read),
        TRACE_TEST(test_close__disk_full__an_error),
        TRACE_TEST(test_create__where_nothing_can_be_written__the_systems_error),
        TRACE_TEST(test_create__a_trace_that_is_there__replaced),
        TRACE_TEST(test_create__a_file_of_another_kind__left_alone),
        TRACE_TEST(test_create__a_file_that_is_being_recorded_into__refused_until_its_end),
        TRACE_TEST(test_trace__through_a_pipe__read_as_written),
        TRACE_TEST(test_trace__signals_while_it_waits__goes_on),
        TRACE_TEST(test_open__what_is_no_trace__says_so),
        TRACE_TEST(test_open_source__fails_in_the_middle__its_own_error),
        TRACE_TEST(test_memory__as_said__and_refused_with_less),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
