/* Fuzzes the JSON reader and the safetensors reader: any bytes as a JSON document, as a safetensors
 * file, and as the header of one whose data area is as long as its tensors claim, so that inputs
 * get past the length. With the word weight_map in it an input is also the index of a folder of two
 * small files. What opens must keep its promises: tensors inside the file, none on top of another,
 * each found by its name, rows readable; and whatever happens, nothing stays charged. */
#define _GNU_SOURCE /* memfd_create, memmem, mkdtemp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/safetensors_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (64u << 20)
#define DATA_MAX (1u << 20) /* bytes of data that a header gets */
#define FLOATS_MAX 4096

static uint64_t touched; /* keeps reads of views from being optimised away */

static void touch(struct sl_str s)
{
    for (size_t i = 0; i < s.n; i++) touched += (unsigned char)s.p[i];
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void read_scalar(struct sl_json_value v)
{
    struct sl_str s = {"", 0};
    uint64_t u = 0;
    int64_t i = 0;
    double d = 0;
    bool b = false;
    int n = sl_json_str(v, &s) + sl_json_bool(v, &b) + sl_json_f64(v, &d);

    CHECK(n <= 1 && (n == 0 || sl_json_count(v) == 0));
    touch(s);
    if (sl_json_u64(v, &u)) CHECK(sl_json_f64(v, &d) && d >= 0);
    if (sl_json_i64(v, &i)) CHECK(sl_json_f64(v, &d) && (d < 0) == (i < 0));
}

/* Every value once, in order. */
static void walk_all(const struct sl_json *j)
{
    struct sl_json_walk open[SL_JSON_DEPTH_MAX + 1];
    int depth = 0;

    read_scalar(sl_json_root(j));
    open[0] = sl_json_walk(sl_json_root(j));
    while (depth >= 0) {
        if (!sl_json_step(&open[depth])) {
            depth--;
            continue;
        }
        struct sl_json_value v = open[depth].value;
        touch(open[depth].key);
        read_scalar(v);
        if (sl_json_count(v) == 0) continue;
        CHECK(++depth <= SL_JSON_DEPTH_MAX);
        open[depth] = sl_json_walk(v);
    }
}

/* The largest data_offsets of what may be a header, at most DATA_MAX. */
static uint64_t data_claimed(const struct sl_json *j)
{
    struct sl_json_walk tensors = sl_json_walk(sl_json_root(j));
    uint64_t most = 0, end = 0;

    while (sl_json_step(&tensors)) {
        struct sl_json_walk w = sl_json_walk(sl_json_get(tensors.value, "data_offsets"));

        while (sl_json_step(&w))
            if (sl_json_u64(w.value, &end)) most = sl_max_u64(most, sl_min_u64(end, DATA_MAX));
    }
    return most;
}

static uint64_t read_json(const uint8_t *data, size_t size)
{
    char *copy = malloc(size > 0 ? size : 1);
    struct sl_budget budget;
    struct sl_json *j = NULL;
    sluice_error e = {.code = 0};
    uint64_t claimed = 0;

    CHECK(copy != NULL);
    if (size > 0) memcpy(copy, data, size);
    sl_budget_init(&budget, BUDGET_BYTES);
    sluice_err err = sl_json_parse(copy, size, "(memory)", &budget, &e, &j);
    CHECK(e.code == err && (err == SLUICE_OK) == (j != NULL));
    if (j != NULL) {
        walk_all(j);
        claimed = data_claimed(j);
    } else {
        CHECK(strlen(e.text) > 0 && strchr(e.text, '\n') == NULL);
    }
    sl_json_close(j);
    CHECK(sl_budget_used(&budget) == 0);
    free(copy);
    return claimed;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static void check_tensors(const struct sl_st *st)
{
    static float out[FLOATS_MAX];
    uint64_t end = 0;
    uint32_t file = 0;

    for (uint32_t i = 0; i < sl_st_n_tensors(st); i++) {
        const struct sl_st_tensor *t = sl_st_tensor(st, i);

        if (t->file != file) end = 0;
        file = t->file;
        CHECK(t->offset >= end && t->bytes <= sl_file_bytes(sl_st_file(st, file)) - t->offset);
        end = t->offset + t->bytes;
        CHECK(t->bytes == t->rows * t->cols * (sl_st_dtype_bits(t->dtype) / 8));
        CHECK(sl_st_find(st, t->name) == t);
        touch(t->name);
        if (t->cols > FLOATS_MAX || t->rows == 0) continue;
        uint64_t n = sl_min_u64(t->rows, t->cols > 0 ? FLOATS_MAX / t->cols : 1);
        sluice_err err = sl_st_read_rows(st, t, t->rows - n, n, out, NULL);
        CHECK(err == (sl_st_readable(t) ? SLUICE_OK : SLUICE_E_UNSUPPORTED));
    }
}

static void finish(struct sl_st *st, sluice_err err, const sluice_error *e)
{
    CHECK(err == e->code);
    if (err == SLUICE_OK)
        check_tensors(st);
    else
        CHECK(strlen(e->text) > 0 && strchr(e->text, '\n') == NULL);
    sl_st_close(st);
}

/* A file of the bytes, behind a length where with_length is set, and of data_bytes more. */
static void read_file(const uint8_t *data, size_t size, bool with_length, uint64_t data_bytes)
{
    int fd = memfd_create("sluice_fuzz", MFD_CLOEXEC);
    const struct sl_st_block block = {2, 2};
    struct sl_budget budget;
    struct sl_st *st = NULL;
    sluice_error e = {.code = 0};
    char path[64];
    uint64_t length = size;
    size_t start = with_length ? sizeof length : 0;

    CHECK(fd >= 0);
    CHECK(pwrite(fd, &length, start, 0) == (ssize_t)start);
    CHECK(pwrite(fd, data, size, (off_t)start) == (ssize_t)size);
    CHECK(ftruncate(fd, (off_t)(start + size + data_bytes)) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    sl_budget_init(&budget, BUDGET_BYTES);
    sluice_err err = sl_st_create(path, &block, &budget, &e, &st);
    CHECK(err == SLUICE_OK);
    err = sl_st_add_file(st, path, &e);
    if (err == SLUICE_OK) err = sl_st_read_header(st, 0, &e);
    if (err == SLUICE_OK) err = sl_st_settle(st, &e);
    finish(st, err, &e);
    CHECK(sl_budget_used(&budget) == 0);
    close(fd);
}

/* ---- the index ------------------------------------------------------------------------------- */

static char folder[] = "/tmp/sluice_fuzz_st_XXXXXX";
static const char *const names[] = {"a.safetensors", "b.safetensors",
                                    "model.safetensors.index.json"};

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void remove_folder(void)
{
    char path[128];

    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* Two files of one tensor each, called like the file. */
static void make_folder(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}....";
    unsigned char file[8 + sizeof header - 1] = {sizeof header - 1 - 4};

    CHECK(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    for (int i = 0; i < 2; i++) {
        memcpy(file + 8, header, sizeof header - 1);
        file[10] = (unsigned char)('a' + i);
        write_file(names[i], file, sizeof file);
    }
}

static void read_index(const uint8_t *data, size_t size)
{
    static bool made;
    struct sl_budget budget;
    struct sl_st *st = NULL;
    sluice_error e = {.code = 0};

    if (!made) make_folder();
    made = true;
    write_file(names[2], data, size);
    sl_budget_init(&budget, BUDGET_BYTES);
    sluice_err err = sl_st_open(folder, NULL, &budget, &e, &st);
    CHECK((err == SLUICE_OK) == (st != NULL));
    finish(st, err, &e);
    CHECK(sl_budget_used(&budget) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t claimed = read_json(data, size);

    read_file(data, size, false, 0);
    read_file(data, size, true, claimed);
    if (memmem(data, size, "weight_map", 10) != NULL) read_index(data, size);
    return 0;
}
