/* The safetensors reader. Good files are those that the Python library wrote (tests/golden) and
 * small ones made here; broken and hostile ones are made here, each with one fault, and must give
 * the documented code and a sentence that names file and fault. Whatever happens, nothing stays
 * charged. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors_internal.h"

#define BUDGET_BYTES (1u << 20)
#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/safetensors/"
#define PATH_BYTES 256
#define FILES_MAX 8

static struct sl_budget budget;
static sluice_error error;
static char folder[] = "/tmp/sluice_test_st_XXXXXX";
static char written[FILES_MAX][PATH_BYTES]; /* by this test, to be deleted */
static int n_written;

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, BUDGET_BYTES);
    memset(&error, 0, sizeof error);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    while (n_written > 0) unlink(written[--n_written]);
    assert_int_equal(sl_budget_used(&budget), 0);
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* ---- files made here ------------------------------------------------------------------------- */

static const char *write_file(const char *name, const void *bytes, size_t n)
{
    char *path = written[n_written++];
    FILE *f;

    assert_true(n_written <= FILES_MAX);
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* A file of that header and data; length UINT64_MAX: the right one. */
static const char *write_length(const char *name, uint64_t length, const char *header,
                                const void *data, size_t data_bytes)
{
    static unsigned char file[1 << 16];
    size_t n = strlen(header);

    assert_true(8 + n + data_bytes <= sizeof file);
    if (length == UINT64_MAX) length = n;
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, n);
    if (data_bytes > 0) memcpy(file + 8 + n, data, data_bytes);
    return write_file(name, file, 8 + n + data_bytes);
}

static const unsigned char zeros[4096];

static const char *write_st(const char *name, const char *header, size_t data_bytes)
{
    return write_length(name, UINT64_MAX, header, zeros, data_bytes);
}

static struct sl_st *open_path(const char *path)
{
    struct sl_st *st = NULL;

    memset(&error, 0, sizeof error);
    if (sl_st_open(path, NULL, &budget, &error, &st) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(error.code, 0); /* success leaves it alone */
    return st;
}

static void assert_refused(const char *path, sluice_err wanted, const char *part)
{
    struct sl_st *st = NULL;
    sluice_err err = sl_st_open(path, NULL, &budget, &error, &st);

    if (err != wanted) fail_msg("%s, wanted %s: %s", sl_err_name(err), part, error.text);
    assert_null(st);
    if (strstr(error.text, part) == NULL) fail_msg("'%s' lacks '%s'", error.text, part);
    assert_int_equal(sl_st_open(path, NULL, &budget, NULL, &st), wanted);
}

static void assert_header_refused(const char *header, size_t data_bytes, sluice_err wanted,
                                  const char *part)
{
    assert_refused(write_st("x.safetensors", header, data_bytes), wanted, part);
    unlink(written[--n_written]);
}

/* ---- good files ------------------------------------------------------------------------------ */

static void test_file__two_tensors__are_found_and_read(void **state)
{
    (void)state;
    static const float data[8] = {1, -2, 3.5f, 0, 1e30f, -0.0f, 7, 8};
    const char *path =
        write_length("a.safetensors", UINT64_MAX,
                     "{\"__metadata__\":{\"format\":\"pt\"},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
                     "\"z\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[24,24]},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}  ",
                     data, 28);
    struct sl_st *st = open_path(path);
    const struct sl_st_tensor *a = sl_st_find(st, SL_STR("a")), *b = sl_st_find(st, SL_STR("b"));
    float out[6];

    assert_int_equal(sl_st_n_tensors(st), 3);
    assert_ptr_equal(sl_st_tensor(st, 0), a);
    assert_ptr_equal(sl_st_tensor(st, 2), b);
    assert_null(sl_st_find(st, SL_STR("c")));
    assert_true(a->rows == 3 && a->cols == 2 && a->n_dims == 2 && a->dims[0] == 3);
    assert_true(b->rows == 1 && b->cols == 1 && b->n_dims == 0);
    assert_int_equal(sl_st_read_rows(st, a, 1, 2, out, &error), SLUICE_OK);
    assert_memory_equal(out, data + 2, 16);
    assert_int_equal(sl_st_read_rows(st, b, 0, 1, out, &error), SLUICE_OK);
    assert_true(out[0] == 7);
    assert_int_equal(sl_st_read_rows(st, a, 3, 0, out, &error), SLUICE_OK);
    sl_st_close(st);
}

static void test_rows__half_and_bfloat__are_exact(void **state)
{
    (void)state;
    static const uint16_t data[8] = {0x3C00, 0xC000, 0x0001, 0x7BFF,
                                     0x3F80, 0xC049, 0x0001, 0x7F80};
    const char *path =
        write_length("a.safetensors", UINT64_MAX,
                     "{\"h\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                     "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]}}",
                     data, 16);
    struct sl_st *st = open_path(path);
    float out[4];

    assert_int_equal(sl_st_read_rows(st, sl_st_find(st, SL_STR("h")), 0, 2, out, NULL), SLUICE_OK);
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == 0x1p-24f && out[3] == 65504);
    assert_int_equal(sl_st_read_rows(st, sl_st_find(st, SL_STR("b")), 0, 1, out, NULL), SLUICE_OK);
    assert_true(out[0] == 1 && out[1] == -3.140625f && out[2] == 0x1p-133f && isinf(out[3]));
    sl_st_close(st);
}

/* The definition, by powers of two. */
static float e4m3(int v)
{
    int exponent = v >> 3 & 15, mantissa = v & 7;
    float f = exponent > 0 ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7)
                           : ldexpf((float)mantissa / 8, -6);

    return v & 0x80 ? -f : f;
}

static void test_rows__eight_bits_with_block_scales__are_products(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 7 };
    static const float scales[3 * 3] = {1, 2, 4, 0.5f, 0.25f, 3, -1, 10, 0.1f};
    unsigned char data[ROWS * COLS + 36];
    struct sl_st_block block = {2, 3};
    struct sl_st *st = NULL;
    float out[ROWS * COLS];

    for (int i = 0; i < ROWS * COLS; i++) data[i] = (unsigned char)(i * 37 % 251);
    memcpy(data + ROWS * COLS, scales, 36);
    const char *path = write_length(
        "a.safetensors", UINT64_MAX,
        "{\"w.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[5,7],\"data_offsets\":[0,35]},"
        "\"w.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[3,3],\"data_offsets\":[35,71]}}",
        data, sizeof data);
    assert_int_equal(sl_st_open(path, &block, &budget, &error, &st), SLUICE_OK);
    const struct sl_st_tensor *w = sl_st_find(st, SL_STR("w.weight"));
    for (uint64_t first = 0; first < ROWS; first++) {
        for (uint64_t n = 0; first + n <= ROWS; n++) {
            assert_int_equal(sl_st_read_rows(st, w, first, n, out, &error), SLUICE_OK);
            for (uint64_t i = 0; i < n * COLS; i++) {
                uint64_t r = first + i / COLS, c = i % COLS;
                int v = data[r * COLS + c];
                float wanted = e4m3(v) * scales[r / 2 * 3 + c / 3];

                if (v % 128 == 127 ? !isnan(out[i]) : out[i] != wanted)
                    fail_msg("%d: %g, wanted %g", v, (double)out[i], (double)wanted);
            }
        }
    }
    sl_st_close(st);
    assert_refused(path, SLUICE_E_UNSUPPORTED, "128 x 128");
}

static void test_rows__wide_with_many_scales__take_them_in_pieces(void **state)
{
    (void)state;
    enum { COLS = 700 }; /* blocks of one column: more scales than are read at a time */
    unsigned char data[5 * COLS];
    struct sl_st_block block = {1, 1};
    struct sl_st *st = NULL;
    float out[COLS];

    memset(data, 0x38, COLS); /* 1.0 */
    for (int i = 0; i < COLS; i++) {
        float scale = (float)(i + 1);
        memcpy(data + COLS + 4 * i, &scale, 4);
    }
    const char *path = write_length(
        "a.safetensors", UINT64_MAX,
        "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,700],\"data_offsets\":[0,700]},"
        "\"w_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,700],\"data_offsets\":[700,3500]}}",
        data, sizeof data);
    assert_int_equal(sl_st_open(path, &block, &budget, &error, &st), SLUICE_OK);
    assert_int_equal(sl_st_read_rows(st, sl_st_find(st, SL_STR("w")), 0, 1, out, &error),
                     SLUICE_OK);
    for (int i = 0; i < COLS; i++) assert_true(out[i] == (float)(i + 1));
    sl_st_close(st);
}

static void test_rows__of_integers__are_refused(void **state)
{
    (void)state;
    struct sl_st *st = open_path(
        write_st("a.safetensors",
                 "{\"pos\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16));
    float out[2];

    assert_false(sl_st_readable(sl_st_tensor(st, 0)));
    assert_int_equal(sl_st_read_rows(st, sl_st_tensor(st, 0), 0, 1, out, &error),
                     SLUICE_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "tensor 'pos' is I64"));
    sl_st_close(st);
}

/* ---- folders --------------------------------------------------------------------------------- */

static void test_folder__made_by_transformers__opens_by_every_name(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_moe",
                                        "qwen3_moe/",
                                        "qwen3_moe/model.safetensors.index.json",
                                        "qwen3_moe/model-00002-of-00003.safetensors",
                                        "mixtral",
                                        "mixtral/model.safetensors"};
    char path[PATH_BYTES];

    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, GOLDEN "%s", names[i]);
        struct sl_st *st = open_path(path);
        const struct sl_st_tensor *t = sl_st_find(st, SL_STR("model.embed_tokens.weight"));

        assert_int_equal(sl_st_n_files(st), i < 4 ? 3 : 1);
        assert_true(t != NULL && t->rows == (i < 4 ? 320 : 32) && t->cols == 16);
        assert_int_equal(t->dtype, i < 4 ? SL_ST_BF16 : SL_ST_F16);
        assert_true(sl_file_bytes(sl_st_file(st, t->file)) > t->offset + t->bytes);
        sl_st_close(st);
    }
}

static void test_folder__nothing_there__names_what_was_looked_for(void **state)
{
    (void)state;
    char path[PATH_BYTES];

    assert_refused(folder, SLUICE_E_NOT_FOUND, "model.safetensors.index.json or model.safetensors");
    snprintf(path, sizeof path, "%s/none", folder);
    assert_refused(path, SLUICE_E_NOT_FOUND, "pytorch_model.bin");
    assert_refused(write_file("model.bin", "x", 1), SLUICE_E_FORMAT, "neither a folder nor named");
}

#define ONE(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

static void assert_index_refused(const char *map, sluice_err wanted, const char *part)
{
    char text[1024];

    snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":%s}", map);
    write_file("model.safetensors.index.json", text, strlen(text));
    assert_refused(folder, wanted, part);
    unlink(written[--n_written]);
}

static void test_index__broken__says_what_is_wrong(void **state)
{
    (void)state;
    write_st("a.safetensors", ONE("a"), 4);
    write_st("b.safetensors", ONE("b"), 4);
    write_st("a2.safetensors", ONE("a"), 4);
    assert_index_refused("[]", SLUICE_E_FORMAT, "no weight_map");
    assert_index_refused("{}", SLUICE_E_FORMAT, "no weight_map");
    assert_index_refused("{\"a\":1}", SLUICE_E_FORMAT, "tensor 'a' no file name");
    assert_index_refused("{\"a\":\"a.safetensors\",\"a\":\"b.safetensors\"}", SLUICE_E_FORMAT,
                         "the name 'a' stands twice");
    assert_index_refused("{\"a\":\"c.safetensors\"}", SLUICE_E_NOT_FOUND, "c.safetensors");
    assert_index_refused("{\"a\":\"../a.safetensors\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"/a.safetensors\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"x/a.safetensors\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"x\\\\a.safetensors\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"a.safetensors\\u0000\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"a.bin\"}", SLUICE_E_FORMAT, "no plain name");
    assert_index_refused("{\"a\":\"a.safetensors\",\"b\":\"a.safetensors\"}", SLUICE_E_FORMAT,
                         "a.safetensors: lacks tensor 'b'");
    assert_index_refused("{\"a\":\"b.safetensors\",\"b\":\"a.safetensors\"}", SLUICE_E_FORMAT,
                         "holds tensor 'b', which model.safetensors.index.json does not place");
    assert_index_refused("{\"a\":\"a.safetensors\",\"c\":\"b.safetensors\"}", SLUICE_E_FORMAT,
                         "b.safetensors: holds tensor 'b'");
    assert_index_refused("{\"a\":\"a.safetensors\",\"x\":\"a2.safetensors\"}", SLUICE_E_FORMAT,
                         "a2.safetensors: holds tensor 'a'");
}

static void test_index__in_order__is_one_model(void **state)
{
    (void)state;
    const char *map = "{\"weight_map\":{\"b\":\"b.safetensors\",\"a\":\"a.safetensors\"}}";

    write_st("a.safetensors", ONE("a"), 4);
    write_st("b.safetensors", ONE("b"), 4);
    write_file("model.safetensors.index.json", map, strlen(map));
    struct sl_st *st = open_path(folder);
    assert_int_equal(sl_st_n_tensors(st), 2);
    assert_int_equal(sl_st_find(st, SL_STR("b"))->file, 0);
    assert_int_equal(sl_st_find(st, SL_STR("a"))->file, 1);
    sl_st_close(st);
}

/* ---- headers --------------------------------------------------------------------------------- */

static void test_length__not_of_this_file__is_refused(void **state)
{
    (void)state;
    const char *h = ONE("a");

    assert_refused(write_length("a.safetensors", 200, h, zeros, 4), SLUICE_E_TRUNCATED,
                   "a header of 200 bytes");
    assert_refused(write_length("b.safetensors", 100000001, h, zeros, 4), SLUICE_E_LIMIT,
                   "the limit is 100000000");
    assert_refused(write_length("c.safetensors", UINT64_MAX - 1, h, zeros, 4), SLUICE_E_LIMIT,
                   "the file is damaged");
    assert_refused(write_length("d.safetensors", 5, h, zeros, 4), SLUICE_E_FORMAT,
                   "the JSON ends too early");
    assert_refused(write_file("e.safetensors", "\2\0\0\0\0\0\0\0{", 9), SLUICE_E_TRUNCATED,
                   "too short");
    assert_refused(write_file("f.safetensors", "", 0), SLUICE_E_TRUNCATED, "too short");
    assert_refused(write_file("g.safetensors", "PK\3\4........", 12), SLUICE_E_FORMAT,
                   "byte 8 is 2e");
    assert_refused(write_length("h.safetensors", 0, h, zeros, 4), SLUICE_E_FORMAT,
                   "does not begin with '{'");
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_tensor__broken_entry__says_which_and_why(void **state)
{
    (void)state;
    assert_header_refused("{\"a\":3}", 0, SLUICE_E_FORMAT, "tensor 'a' has an entry that is no");
    assert_header_refused("{\"\":{}}", 0, SLUICE_E_FORMAT, "name has 0 bytes");
    assert_header_refused(T("F33", "[1]", "[0,4]"), 4, SLUICE_E_UNSUPPORTED, "the type F33");
    assert_header_refused(T("F32", "1", "[0,4]"), 4, SLUICE_E_FORMAT, "no shape that is an array");
    assert_header_refused(T("F32", "[-1]", "[0,4]"), 4, SLUICE_E_FORMAT, "a dimension that is no");
    assert_header_refused(T("F32", "[1.0]", "[0,4]"), 4, SLUICE_E_FORMAT, "a dimension that is no");
    assert_header_refused(T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, SLUICE_E_FORMAT,
                          "more than 8 dimensions");
    assert_header_refused(T("F32", "[4294967296,4294967296]", "[0,0]"), 0, SLUICE_E_FORMAT,
                          "too large for any memory");
    assert_header_refused(T("F32", "[4611686018427387904]", "[0,0]"), 0, SLUICE_E_FORMAT,
                          "too large for any memory");
    assert_header_refused(T("F32", "[1]", "[0]"), 4, SLUICE_E_FORMAT, "no data_offsets that are");
    assert_header_refused(T("F32", "[1]", "[0,-4]"), 4, SLUICE_E_FORMAT,
                          "data_offsets that are no");
    assert_header_refused(T("F32", "[1]", "[4,0]"), 4, SLUICE_E_FORMAT,
                          "at 4 to 0, but its shape of F32 needs 4 bytes");
    assert_header_refused(T("F32", "[2]", "[0,4]"), 4, SLUICE_E_FORMAT, "needs 8 bytes");
    assert_header_refused(T("F16", "[2]", "[0,8]"), 8, SLUICE_E_FORMAT, "F16 needs 4 bytes");
    assert_header_refused(T("F32", "[2]", "[0,8]"), 7, SLUICE_E_TRUNCATED, "download incomplete");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],"
                          "\"x\":1}}",
                          4, SLUICE_E_FORMAT, "more or less than dtype, shape and data_offsets");
    assert_header_refused("{\"__metadata__\":{\"a\":1}}", 0, SLUICE_E_FORMAT, "no string");
    assert_header_refused("{\"__metadata__\":[]}", 0, SLUICE_E_FORMAT, "no object");
    assert_header_refused("{\"__metadata__\":{}}", 0, SLUICE_E_FORMAT, "holds no tensors");
}

#define TWO(from_a, to_a, from_b, to_b)                                                            \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #from_a "," #to_a "]},"            \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #from_b "," #to_b "]}}"

static void test_extents__overlap_or_gap__is_refused(void **state)
{
    (void)state;
    assert_header_refused(TWO(0, 4, 2, 6), 6, SLUICE_E_FORMAT, "the one before it reaches to 4");
    assert_header_refused(TWO(0, 4, 0, 4), 4, SLUICE_E_FORMAT, "the one before it reaches to 4");
    assert_header_refused(TWO(0, 4, 5, 9), 9, SLUICE_E_FORMAT, "begins at byte 5 of the data");
    assert_header_refused(TWO(5, 9, 1, 5), 9, SLUICE_E_FORMAT, "nothing lies from 0");
    assert_header_refused(TWO(4, 8, 0, 4), 9, SLUICE_E_FORMAT, "1 bytes behind the last tensor");
    sl_st_close(open_path(write_st("x.safetensors", TWO(4, 8, 0, 4), 8)));
}

static void test_names__twice_in_a_header__are_refused(void **state)
{
    (void)state;
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                          "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                          8, SLUICE_E_FORMAT, "the name 'a' stands twice");
}

static void test_order__many_tensors__is_that_of_their_data(void **state)
{
    (void)state;
    enum { N = 200 };
    static char header[1 << 15];
    size_t n = 1;

    header[0] = '{';
    for (int i = 0; i < N; i++) {
        int at = i * 77 % N;
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "\"t%03d\":{\"dtype\":\"BOOL\",\"shape\":[2],"
                              "\"data_offsets\":[%d,%d]},",
                              at, 2 * at, 2 * at + 2);
    }
    header[n - 1] = '}';
    struct sl_st *st = open_path(write_st("x.safetensors", header, 2 * N));
    for (uint32_t i = 0; i < N; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%03u", i);
        assert_true(sl_str_eq(sl_st_tensor(st, i)->name, name));
        assert_ptr_equal(sl_st_find(st, sl_st_tensor(st, i)->name), sl_st_tensor(st, i));
    }
    sl_st_close(st);
}

/* ---- quantized already ----------------------------------------------------------------------- */

#define Q(name, dtype, shape, bytes)                                                               \
    "{\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[0," #bytes "]}}"

static void test_checkpoint__quantized_already__is_recognized(void **state)
{
    (void)state;
    assert_header_refused(Q("m.embed_tokens.weight", "U8", "[4]", 4), 4, SLUICE_E_UNSUPPORTED,
                          "quantized already (packed integers; tensor 'm.embed_tokens.weight'");
    assert_header_refused(Q("m.w.weight", "U32", "[1,1]", 4), 4, SLUICE_E_UNSUPPORTED, "is U32");
    assert_header_refused(Q("m.w", "I8", "[2,2]", 4), 4, SLUICE_E_UNSUPPORTED, "packed integers");
    assert_header_refused(Q("m.w.qweight", "I32", "[1,1]", 4), 4, SLUICE_E_UNSUPPORTED, "GPTQ");
    assert_header_refused(Q("m.w.weight_packed", "I32", "[1]", 4), 4, SLUICE_E_UNSUPPORTED,
                          "compressed-tensors");
    assert_header_refused(Q("m.experts.down_proj_blocks", "U8", "[2,2]", 4), 4,
                          SLUICE_E_UNSUPPORTED, "MXFP4");
    assert_header_refused(Q("m.w.weight.absmax", "F32", "[1]", 4), 4, SLUICE_E_UNSUPPORTED,
                          "bitsandbytes");
    assert_header_refused(Q("m.w.weight", "F8_E5M2", "[4]", 4), 4, SLUICE_E_UNSUPPORTED, "E5M2");
    assert_header_refused(Q("m.w.weight", "F8_E4M3", "[2,2]", 4), 4, SLUICE_E_UNSUPPORTED,
                          "F8_E4M3 without the tensor _scale_inv");
    sl_st_close(open_path(write_st("x.safetensors", Q("m.blocks", "F32", "[1]", 4), 4)));
}

/* ---- memory and cut files -------------------------------------------------------------------- */

static void test_memory__too_little__is_refused_at_every_point(void **state)
{
    (void)state;
    struct sl_st *st = NULL;
    sluice_err err = SLUICE_E_BUDGET;

    for (uint64_t limit = 0; err != SLUICE_OK; limit += 512) {
        sl_budget_init(&budget, limit);
        err = sl_st_open(GOLDEN "qwen3_moe", NULL, &budget, &error, &st);
        if (err != SLUICE_OK && err != SLUICE_E_BUDGET) fail_msg("%s", error.text);
        if (err != SLUICE_OK) assert_int_equal(sl_budget_used(&budget), 0);
        assert_true(limit < BUDGET_BYTES);
    }
    sl_st_close(st);
}

static void test_file__cut_anywhere__is_refused(void **state)
{
    (void)state;
    static char bytes[1 << 15];
    FILE *f = fopen(GOLDEN "llama/model.safetensors", "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 1000 && n < sizeof bytes);

    for (size_t cut = 0; cut < n; cut += cut < 2600 ? 13 : 601) {
        struct sl_st *st = NULL;
        sluice_err err =
            sl_st_open(write_file("c.safetensors", bytes, cut), NULL, &budget, &error, &st);
        if (err != SLUICE_E_TRUNCATED) fail_msg("%zu: %d %s", cut, err, error.text);
        n_written--;
    }
    n_written++;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_file__two_tensors__are_found_and_read),
        TEST(test_rows__half_and_bfloat__are_exact),
        TEST(test_rows__eight_bits_with_block_scales__are_products),
        TEST(test_rows__wide_with_many_scales__take_them_in_pieces),
        TEST(test_rows__of_integers__are_refused),
        TEST(test_folder__made_by_transformers__opens_by_every_name),
        TEST(test_folder__nothing_there__names_what_was_looked_for),
        TEST(test_index__broken__says_what_is_wrong),
        TEST(test_index__in_order__is_one_model),
        TEST(test_length__not_of_this_file__is_refused),
        TEST(test_tensor__broken_entry__says_which_and_why),
        TEST(test_extents__overlap_or_gap__is_refused),
        TEST(test_names__twice_in_a_header__are_refused),
        TEST(test_order__many_tensors__is_that_of_their_data),
        TEST(test_checkpoint__quantized_already__is_recognized),
        TEST(test_memory__too_little__is_refused_at_every_point),
        TEST(test_file__cut_anywhere__is_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
