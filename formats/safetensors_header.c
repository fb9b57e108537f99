/* One file's header: eight bytes of length, then JSON that gives each tensor its type, shape and
 * place in the data that follows.
 *
 *     {"__metadata__": {"format": "pt"},
 *      "NAME": {"dtype": "BF16", "shape": [128, 64], "data_offsets": [0, 16384]}, ...}
 *
 * Nothing of it is believed alone: the length is held against the file before memory is taken, each
 * extent against shape and type, and all extents against each other. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors_internal.h"

#define LENGTH_BYTES 8

sluice_err sl_st_fail(const char *path, sluice_error *e, sluice_err code, const char *fmt, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX], shown[SL_GG_SHOW_PATH_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sl_fail(e, code, "%s: %s", sl_gg_show_path(path, shown), text);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static sluice_err fail_tensor(const struct sl_st_header *h, const struct sl_st_tensor *t,
                              sluice_error *e, const char *what)
{
    char name[SL_GG_SHOW_MAX];

    return sl_st_fail(h->path, e, SLUICE_E_FORMAT, "tensor '%s' %s",
                      sl_str_show(t->name, name, sizeof name), what);
}

static sluice_err read_dtype(const struct sl_st_header *h, struct sl_json_value v,
                             struct sl_st_tensor *t, sluice_error *e)
{
    char name[SL_GG_SHOW_MAX], shown[SL_GG_SHOW_MAX];
    struct sl_str dtype;

    if (!sl_json_str(sl_json_get(v, "dtype"), &dtype))
        return fail_tensor(h, t, e, "has no dtype that is a string");
    if (sl_st_dtype_find(dtype, &t->dtype)) return SLUICE_OK;
    return sl_st_fail(h->path, e, SLUICE_E_UNSUPPORTED,
                      "tensor '%s' has the type %s, which this build does not know; weights are "
                      "read as F32, F16, BF16 or F8_E4M3",
                      sl_str_show(t->name, name, sizeof name),
                      sl_str_show(dtype, shown, sizeof shown));
}

/* The shape, rows and columns; *elements is their product. */
static sluice_err read_shape(const struct sl_st_header *h, struct sl_json_value v,
                             struct sl_st_tensor *t, uint64_t *elements, sluice_error *e)
{
    struct sl_json_value shape = sl_json_get(v, "shape");
    struct sl_json_walk w = sl_json_walk(shape);
    uint64_t n = 1;

    if (sl_json_kind_of(shape) != SL_JSON_ARRAY)
        return fail_tensor(h, t, e, "has no shape that is an array");
    if (w.left > SL_ST_DIMS_MAX) return fail_tensor(h, t, e, "has more than 8 dimensions");
    t->rows = t->cols = 1;
    while (sl_json_step(&w)) {
        uint64_t dim = 0;

        if (!sl_json_u64(w.value, &dim))
            return fail_tensor(h, t, e, "has a dimension that is no whole number from 0 on");
        t->dims[t->n_dims++] = dim;
        t->rows = n;
        t->cols = dim;
        if (!sl_mul_ok(n, dim, &n)) return fail_tensor(h, t, e, "is too large for any memory");
    }
    *elements = n;
    return SLUICE_OK;
}

static sluice_err read_extent(const struct sl_st_header *h, struct sl_json_value v,
                              struct sl_st_tensor *t, uint64_t elements, sluice_error *e)
{
    struct sl_json_value offsets = sl_json_get(v, "data_offsets");
    struct sl_json_walk w = sl_json_walk(offsets);
    uint64_t at[2] = {0, 0}, bytes;
    char name[SL_GG_SHOW_MAX];

    if (sl_json_kind_of(offsets) != SL_JSON_ARRAY || w.left != 2)
        return fail_tensor(h, t, e, "has no data_offsets that are two numbers");
    for (int i = 0; i < 2 && sl_json_step(&w); i++) {
        if (!sl_json_u64(w.value, &at[i]))
            return fail_tensor(h, t, e, "has data_offsets that are no whole numbers from 0 on");
    }
    sl_str_show(t->name, name, sizeof name);
    if (!sl_mul_ok(elements, sl_st_dtype_bits(t->dtype) / 8, &bytes))
        return fail_tensor(h, t, e, "is too large for any memory");
    if (at[0] > at[1] || at[1] - at[0] != bytes)
        return sl_st_fail(h->path, e, SLUICE_E_FORMAT,
                          "tensor '%s' is said to lie at %" PRIu64 " to %" PRIu64
                          ", but its shape of %s needs %" PRIu64 " bytes",
                          name, at[0], at[1], sl_st_dtype_name(t->dtype), bytes);
    if (at[1] > h->data_bytes)
        return sl_st_fail(h->path, e, SLUICE_E_TRUNCATED,
                          "tensor '%s' ends at byte %" PRIu64 " of the data, of which %" PRIu64
                          " bytes are there: download incomplete, or the file is damaged",
                          name, at[1], h->data_bytes);
    t->offset = h->data_offset + at[0];
    t->bytes = bytes;
    return SLUICE_OK;
}

static sluice_err read_tensor(const struct sl_st_header *h, struct sl_json_value v,
                              struct sl_st_tensor *t, sluice_error *e)
{
    char name[SL_GG_SHOW_MAX];
    uint64_t elements = 0;
    sluice_err err;

    sl_str_show(t->name, name, sizeof name);
    if (sl_json_kind_of(v) != SL_JSON_OBJECT)
        return fail_tensor(h, t, e, "has an entry that is no object");
    if (t->name.n == 0 || t->name.n > SL_NAME_MAX)
        return sl_st_fail(h->path, e, t->name.n == 0 ? SLUICE_E_FORMAT : SLUICE_E_LIMIT,
                          "a tensor's name has %zu bytes, wanted 1 to %d ('%s')", t->name.n,
                          SL_NAME_MAX, name);
    if (sl_json_count(v) != 3)
        return fail_tensor(h, t, e,
                           "has an entry with more or less than dtype, shape and "
                           "data_offsets");
    err = read_dtype(h, v, t, e);
    if (err == SLUICE_OK) err = read_shape(h, v, t, &elements, e);
    return err == SLUICE_OK ? read_extent(h, v, t, elements, e) : err;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Strings only; nothing of it is used. */
static sluice_err check_metadata(const struct sl_st_header *h, struct sl_json_value v,
                                 sluice_error *e)
{
    struct sl_json_walk w = sl_json_walk(v);
    struct sl_str s;

    if (sl_json_kind_of(v) != SL_JSON_OBJECT)
        return sl_st_fail(h->path, e, SLUICE_E_FORMAT, "__metadata__ is no object");
    while (sl_json_step(&w)) {
        if (!sl_json_str(w.value, &s))
            return sl_st_fail(h->path, e, SLUICE_E_FORMAT,
                              "__metadata__ holds something that is no string");
    }
    return SLUICE_OK;
}

static sluice_err append(struct sl_st *st, const struct sl_st_header *h,
                         const struct sl_st_tensor *t, sluice_error *e)
{
    struct sl_st_tensor *to;
    char *name;
    sluice_err err;

    if (st->n_tensors == SL_ST_TENSORS_MAX)
        return sl_st_fail(h->path, e, SLUICE_E_LIMIT, "the model has more than %u tensors",
                          SL_ST_TENSORS_MAX);
    name = sl_arena_alloc(&st->names, t->name.n, 1);
    if (name == NULL) return sl_gg_no_memory(st->budget, t->name.n, h->path, e);
    err = sl_grow(st->budget, &st->tensors, &st->tensors_capacity, st->n_tensors + 1, sizeof *to);
    if (err != SLUICE_OK)
        return sl_st_fail(h->path, e, err, "no memory for more than %" PRIu32 " tensors",
                          st->n_tensors);
    to = &st->tensors[st->n_tensors++];
    *to = *t;
    memcpy(name, t->name.p, t->name.n);
    to->name.p = name;
    return SLUICE_OK;
}

/* Whether s comes before t: empty tensors before others of the same place; then by name, so that
 * the order is one. */
static bool before(const struct sl_st_tensor *s, const struct sl_st_tensor *t)
{
    if (s->offset != t->offset) return s->offset < t->offset;
    if (s->bytes != t->bytes) return s->bytes < t->bytes;
    int order = memcmp(s->name.p, t->name.p, sl_min_u64(s->name.n, t->name.n));
    return order != 0 ? order < 0 : s->name.n < t->name.n;
}

/* Lets t[root] sink to its place in a heap of n whose largest is on top. */
static void sink(struct sl_st_tensor *t, uint32_t root, uint32_t n)
{
    struct sl_st_tensor moved = t[root];

    for (uint32_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && before(&t[child], &t[child + 1])) child++;
        if (!before(&moved, &t[child])) break;
        t[root] = t[child];
        root = child;
    }
    t[root] = moved;
}

/* By place in the data. A heap sort, since qsort may take memory that nobody is charged for. */
static void sort(struct sl_st_tensor *t, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--) sink(t, i - 1, n);
    for (uint32_t last = n; last > 1; last--) {
        struct sl_st_tensor largest = t[0];

        t[0] = t[last - 1];
        t[last - 1] = largest;
        sink(t, 0, last - 1);
    }
}

/* The tensors from `from` on, sorted, must fill the data area. */
static sluice_err check_extents(const struct sl_st *st, const struct sl_st_header *h, uint32_t from,
                                sluice_error *e)
{
    uint64_t at = h->data_offset;
    char name[SL_GG_SHOW_MAX];

    for (uint32_t i = from; i < st->n_tensors; i++) {
        const struct sl_st_tensor *t = &st->tensors[i];

        if (t->offset != at)
            return sl_st_fail(h->path, e, SLUICE_E_FORMAT,
                              "tensor '%s' begins at byte %" PRIu64
                              " of the data, where %s %" PRIu64,
                              sl_str_show(t->name, name, sizeof name), t->offset - h->data_offset,
                              t->offset < at ? "the one before it reaches to" : "nothing lies from",
                              at - h->data_offset);
        at += t->bytes;
    }
    if (at == h->data_offset + h->data_bytes) return SLUICE_OK;
    return sl_st_fail(h->path, e, SLUICE_E_FORMAT,
                      "%" PRIu64 " bytes behind the last tensor belong to none",
                      h->data_offset + h->data_bytes - at);
}

static sluice_err read_tensors(struct sl_st *st, const struct sl_st_header *h,
                               struct sl_json_value root, sluice_error *e)
{
    struct sl_json_walk w = sl_json_walk(root);
    uint32_t from = st->n_tensors;
    sluice_err err = SLUICE_OK;

    if (sl_json_kind_of(root) != SL_JSON_OBJECT)
        return sl_st_fail(h->path, e, SLUICE_E_FORMAT, "the header is no JSON object");
    while (err == SLUICE_OK && sl_json_step(&w)) {
        struct sl_st_tensor t = {.name = w.key, .file = h->file, .scale = SL_ST_NONE};

        if (sl_str_eq(w.key, "__metadata__")) {
            err = check_metadata(h, w.value, e);
            continue;
        }
        err = read_tensor(h, w.value, &t, e);
        if (err == SLUICE_OK) err = append(st, h, &t, e);
    }
    if (err != SLUICE_OK) return err;
    if (st->n_tensors > from) sort(&st->tensors[from], st->n_tensors - from);
    return check_extents(st, h, from, e);
}

sluice_err sl_st_parse_header(struct sl_st *st, const struct sl_st_header *h, sluice_error *e)
{
    struct sl_json *j = NULL;
    sluice_err err;

    if (h->bytes == 0 || h->text[0] != '{')
        return sl_st_fail(h->path, e, SLUICE_E_FORMAT,
                          "no safetensors file: the header does not begin with '{'");
    err = sl_json_parse(h->text, h->bytes, h->path, st->budget, e, &j);
    if (err == SLUICE_OK) err = read_tensors(st, h, sl_json_root(j), e);
    sl_json_close(j);
    return err;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The length in front, held against the file. */
static sluice_err read_length(struct sl_file *f, uint64_t *out, sluice_error *e)
{
    unsigned char start[LENGTH_BYTES + 1] = {0};
    uint64_t bytes = sl_file_bytes(f), n;
    const char *path = sl_file_path(f);
    sluice_err err;

    if (bytes < LENGTH_BYTES + 2)
        return sl_st_fail(path, e, SLUICE_E_TRUNCATED,
                          "%" PRIu64 " bytes are too short for a safetensors file: download "
                          "incomplete?",
                          bytes);
    err = sl_file_read_at(f, 0, start, sizeof start, e);
    if (err != SLUICE_OK) return err;
    n = sl_gg_load_u64(start);
    if (start[LENGTH_BYTES] != '{')
        return sl_st_fail(path, e, SLUICE_E_FORMAT,
                          "no safetensors file: byte 8 is %02x, where the header's '{' was wanted",
                          start[LENGTH_BYTES]);
    if (n > SL_ST_HEADER_MAX)
        return sl_st_fail(path, e, SLUICE_E_LIMIT,
                          "a header of %" PRIu64 " bytes; the limit is %u: the file is damaged", n,
                          SL_ST_HEADER_MAX);
    if (n > bytes - LENGTH_BYTES)
        return sl_st_fail(path, e, SLUICE_E_TRUNCATED,
                          "a header of %" PRIu64 " bytes, but the file ends after %" PRIu64
                          " of it: download incomplete, or the file is damaged",
                          n, bytes - LENGTH_BYTES);
    *out = n;
    return SLUICE_OK;
}

sluice_err sl_st_read_header(struct sl_st *st, uint32_t file, sluice_error *e)
{
    struct sl_file *f = st->files[file];
    struct sl_st_header h = {.path = sl_file_path(f), .file = file};
    sluice_err err = read_length(f, &h.bytes, e);

    if (err != SLUICE_OK) return err;
    h.text = sl_alloc(st->budget, h.bytes, 1);
    if (h.text == NULL) return sl_gg_no_memory(st->budget, h.bytes, h.path, e);
    h.data_offset = LENGTH_BYTES + h.bytes;
    h.data_bytes = sl_file_bytes(f) - h.data_offset;
    err = sl_file_read_at(f, LENGTH_BYTES, h.text, h.bytes, e);
    if (err == SLUICE_OK) err = sl_st_parse_header(st, &h, e);
    sl_free(h.text);
    return err;
}
