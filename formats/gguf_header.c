/* The first part of a GGUF file: magic, version, counts and the metadata entries. Values are
 * checked for their extent and left where they lie; gguf_meta.c gives them types.
 *
 * A file that is something else is named where people are known to pass it: an older format, a
 * pointer file of Git LFS, a web page instead of a download, safetensors, an archive of PyTorch, a
 * GGUF of the other byte order. */
#include "formats/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC_BYTES 4
#define PROBE_BYTES 16
/* The shortest entries: length, a name of one byte, kind, a value of one byte; and length, name,
 * number of dimensions, one dimension, type, offset. */
#define KEY_BYTES_MIN (8 + 1 + 4 + 1)
#define TENSOR_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)

/* ---- what else it may be --------------------------------------------------------------------- */

struct known_start {
    const char *bytes;
    uint32_t n;
    const char *meaning;
};

static const struct known_start known_starts[] = {
    {"FUGG", 4, "a big-endian GGUF; this build reads little-endian files"},
    {"lmgg", 4, "a GGML file, a format older than GGUF; convert it to GGUF"},
    {"fmgg", 4, "a GGMF file, a format older than GGUF; convert it to GGUF"},
    {"tjgg", 4, "a GGJT file, a format older than GGUF; convert it to GGUF"},
    {"algg", 4, "a GGLA adapter, not a model"},
    {"version https://", 16, "a pointer file of Git LFS; fetch the model itself (git lfs pull)"},
    {"PK\3\4", 4, "a zip archive (PyTorch weights?); convert the model to GGUF"},
    {"<!DOCTYPE", 9, "a web page, not the file behind it"},
    {"<!doctype", 9, "a web page, not the file behind it"},
    {"<html", 5, "a web page, not the file behind it"},
    {"{", 1, "JSON (config.json?); a folder of safetensors is given by the folder's name"},
    {"\0\0\0\0\0\0\0\0", 8, "all zeros: a download that has not begun"},
};

/* safetensors: a length of 64 bits, then a JSON object. */
static bool looks_like_safetensors(const unsigned char *p, uint64_t n)
{
    return n >= 10 && p[8] == '{' && sl_gg_load_u64(p) >= 2 && sl_gg_load_u64(p) <= 100000000u;
}

static const char *guess_format(const unsigned char *p, uint64_t n)
{
    if (looks_like_safetensors(p, n)) {
        return "a safetensors file; give the folder that holds it, or convert the model to GGUF";
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(known_starts); i++) {
        const struct known_start *k = &known_starts[i];

        if (n >= k->n && memcmp(p, k->bytes, k->n) == 0) return k->meaning;
    }
    return NULL;
}

static sluice_err fail_magic(struct sl_gg_cursor *c)
{
    uint64_t n = sl_min_u64(c->file_bytes, PROBE_BYTES);
    const unsigned char *p = c->base;
    const char *guess;
    char shown[MAGIC_BYTES + 1];
    sluice_err err = sl_gg_need(c, n);

    if (err != SLUICE_OK) return err;
    guess = guess_format(p, n);
    for (uint32_t i = 0; i < MAGIC_BYTES; i++) {
        shown[i] = p[i] >= 0x20 && p[i] < 0x7f ? (char)p[i] : '?';
    }
    shown[MAGIC_BYTES] = '\0';
    return sl_gg_fail(c, p[0] == 'F' && guess != NULL ? SLUICE_E_VERSION : SLUICE_E_FORMAT,
                      "not a GGUF file: begins with '%s' (%02x %02x %02x %02x), wanted 'GGUF'%s%s",
                      shown, p[0], p[1], p[2], p[3], guess != NULL ? "; this looks like " : "",
                      guess != NULL ? guess : "");
}

/* ---- magic, version, counts ------------------------------------------------------------------ */

static sluice_err check_version(struct sl_gg_cursor *c, uint32_t version)
{
    uint32_t swapped = __builtin_bswap32(version);

    if (version == 2 || version == 3) return SLUICE_OK;
    if ((version & 0xffff) == 0 && swapped >= 1 && swapped <= 0xffff) {
        return sl_gg_fail(c, SLUICE_E_VERSION,
                          "a big-endian GGUF (version %" PRIu32
                          "); this build reads little-endian files: "
                          "convert the byte order, or download the little-endian file",
                          swapped);
    }
    if (version == 1) {
        return sl_gg_fail(c, SLUICE_E_VERSION,
                          "GGUF version 1, which is out of use; this build reads versions 2 and 3: "
                          "convert the model again");
    }
    return sl_gg_fail(c, SLUICE_E_VERSION,
                      "GGUF version %" PRIu32 "; this build reads versions 2 and 3%s", version,
                      version > 3 ? ": a newer version of Sluice may be needed" : "");
}

static sluice_err read_start(struct sl_gg_head *h, uint64_t *n_keys)
{
    struct sl_gg_cursor *c = &h->c;
    uint64_t n_tensors;
    sluice_err err;

    if (c->file_bytes == 0) return sl_gg_fail(c, SLUICE_E_TRUNCATED, "the file is empty");
    err = sl_gg_need(c, MAGIC_BYTES);
    if (err != SLUICE_OK) return err;
    if (memcmp(c->base, "GGUF", MAGIC_BYTES) != 0) return fail_magic(c);
    c->at = MAGIC_BYTES;
    err = sl_gg_read_u32(c, &h->version);
    if (err == SLUICE_OK) err = check_version(c, h->version);
    if (err == SLUICE_OK) err = sl_gg_read_u64(c, &n_tensors);
    if (err == SLUICE_OK) err = sl_gg_read_u64(c, n_keys);
    if (err != SLUICE_OK) return err;
    if (n_tensors > SL_GGUF_TENSORS_MAX || *n_keys > SL_GGUF_KV_MAX) {
        return sl_gg_fail(c, SLUICE_E_LIMIT,
                          "claims %" PRIu64 " tensors and %" PRIu64
                          " metadata entries; the limits are %u "
                          "and %u",
                          n_tensors, *n_keys, SL_GGUF_TENSORS_MAX, SL_GGUF_KV_MAX);
    }
    h->n_tensors = (uint32_t)n_tensors;
    c->what = "the list of metadata entries";
    err = sl_gg_fits(c, *n_keys, KEY_BYTES_MIN);
    c->what = "the list of tensors";
    return err == SLUICE_OK ? sl_gg_fits(c, n_tensors, TENSOR_BYTES_MIN) : err;
}

/* ---- metadata entries ------------------------------------------------------------------------ */

static sluice_err read_array_head(struct sl_gg_cursor *c, uint32_t *kind, uint64_t *count)
{
    sluice_err err = sl_gg_read_u32(c, kind);
    uint64_t size;

    if (err == SLUICE_OK) err = sl_gg_read_u64(c, count);
    if (err != SLUICE_OK) return err;
    size = sl_gg_kind_bytes(*kind);
    if (*kind == SL_GGUF_STRING) size = 8;
    if (*kind == SL_GGUF_ARRAY) size = 4 + 8;
    if (size == 0) {
        char name[SL_GG_SHOW_MAX];

        return sl_gg_fail(c, SLUICE_E_FORMAT,
                          "key '%s' is an array of an unknown type (%" PRIu32 ")",
                          sl_str_show(c->name, name, sizeof name), *kind);
    }
    return sl_gg_fits(c, *count, size);
}

/* Steps over count elements that are no arrays. */
static sluice_err skip_elements(struct sl_gg_cursor *c, uint32_t kind, uint64_t count)
{
    uint64_t bytes = count * sl_gg_kind_bytes(kind); /* sl_gg_fits said that it fits */
    sluice_err err = SLUICE_OK;
    struct sl_str s;

    if (kind == SL_GGUF_STRING) {
        for (uint64_t i = 0; i < count && err == SLUICE_OK; i++) err = sl_gg_read_str(c, &s);
        return err;
    }
    err = sl_gg_need(c, bytes);
    if (err == SLUICE_OK) c->at += bytes;
    return err;
}

/* Arrays may hold arrays. todo holds, for each level, the arrays still to come there. */
static sluice_err read_array(struct sl_gg_cursor *c, struct sl_gg_key *k)
{
    uint64_t todo[SL_GGUF_ARRAY_DEPTH_MAX], count;
    uint32_t depth = 0, kind;
    sluice_err err = read_array_head(c, &kind, &count);

    if (err != SLUICE_OK) return err;
    k->elem_kind = kind;
    k->count = count;
    k->data = c->base + c->at;
    for (;;) {
        if (kind == SL_GGUF_ARRAY) {
            if (depth == SL_GGUF_ARRAY_DEPTH_MAX - 1) {
                return sl_gg_fail(c, SLUICE_E_LIMIT, "arrays are nested deeper than %d",
                                  SL_GGUF_ARRAY_DEPTH_MAX);
            }
            todo[depth++] = count;
        } else {
            err = skip_elements(c, kind, count);
            if (err != SLUICE_OK) return err;
        }
        while (depth > 0 && todo[depth - 1] == 0) depth--;
        if (depth == 0) return SLUICE_OK;
        todo[depth - 1]--;
        err = read_array_head(c, &kind, &count);
        if (err != SLUICE_OK) return err;
    }
}

static sluice_err read_value(struct sl_gg_cursor *c, struct sl_gg_key *k)
{
    char name[SL_GG_SHOW_MAX];
    uint32_t bytes = sl_gg_kind_bytes(k->kind);
    struct sl_str s;
    sluice_err err;

    k->count = 1;
    if (k->kind == SL_GGUF_ARRAY) return read_array(c, k);
    if (k->kind == SL_GGUF_STRING) {
        err = sl_gg_read_str(c, &s);
        if (err != SLUICE_OK) return err;
        k->data = (const unsigned char *)s.p;
        k->count = s.n;
        return SLUICE_OK;
    }
    if (bytes == 0) {
        return sl_gg_fail(c, SLUICE_E_FORMAT, "key '%s' has an unknown type (%" PRIu32 ")",
                          sl_str_show(k->name, name, sizeof name), k->kind);
    }
    err = sl_gg_need(c, bytes);
    if (err != SLUICE_OK) return err;
    k->data = c->base + c->at;
    c->at += bytes;
    return SLUICE_OK;
}

static sluice_err read_key(struct sl_gg_cursor *c, struct sl_gg_key *k)
{
    sluice_err err;

    c->what = "the name of a metadata entry";
    c->name = (struct sl_str){"", 0};
    err = sl_gg_read_str(c, &k->name);
    if (err != SLUICE_OK) return err;
    if (k->name.n == 0) return sl_gg_fail(c, SLUICE_E_FORMAT, "a metadata entry has an empty name");
    if (k->name.n > SL_NAME_MAX) {
        return sl_gg_fail(c, SLUICE_E_LIMIT,
                          "the name of a metadata entry has %zu bytes, the limit is %d", k->name.n,
                          SL_NAME_MAX);
    }
    c->what = "the value of key";
    c->name = k->name;
    err = sl_gg_read_u32(c, &k->kind);
    return err == SLUICE_OK ? read_value(c, k) : err;
}

static sluice_err index_keys(struct sl_gg_head *h, struct sl_budget *b)
{
    char name[SL_GG_SHOW_MAX];
    struct sl_gg_meta *m = &h->meta;
    uint32_t bad = 0;
    sluice_err err = sl_gg_index_build(&m->index, b, m->keys, m->n_keys, sizeof *m->keys, &bad);

    if (err == SLUICE_E_NOMEM)
        return sl_gg_no_memory(b, 8 * (uint64_t)m->n_keys, h->c.path, h->c.e);
    if (err == SLUICE_OK) return err;
    if (bad == m->n_keys) {
        return sl_gg_fail(&h->c, err, "the names of metadata entries were made to collide");
    }
    return sl_gg_fail(&h->c, err, "key '%s' is there twice",
                      sl_str_show(m->keys[bad].name, name, sizeof name));
}

/* ---- keys that the reader itself needs ------------------------------------------------------- */

static sluice_err read_alignment(struct sl_gg_head *h)
{
    uint32_t v = SL_GG_ALIGN_DEFAULT;
    sluice_err err = sl_gg_meta_u32(&h->meta, "general.alignment", &v, h->c.e);

    if (err != SLUICE_OK) return err;
    if (v == 0 || v > SL_GGUF_ALIGN_MAX || (v & (v - 1)) != 0) {
        return sl_gg_fail(&h->c, SLUICE_E_FORMAT,
                          "general.alignment is %" PRIu32 ", wanted a power of two up to %u", v,
                          SL_GGUF_ALIGN_MAX);
    }
    h->alignment = v;
    return SLUICE_OK;
}

static sluice_err read_split(struct sl_gg_head *h)
{
    struct sl_gg_meta *m = &h->meta;
    sluice_err err;

    h->split_count = 1;
    h->split_tensors = UINT32_MAX;
    err = sl_gg_meta_u32(m, "split.no", &h->split_no, h->c.e);
    if (err == SLUICE_OK) err = sl_gg_meta_u32(m, "split.count", &h->split_count, h->c.e);
    if (err == SLUICE_OK) err = sl_gg_meta_u32(m, "split.tensors.count", &h->split_tensors, h->c.e);
    if (err != SLUICE_OK) return err;
    if (h->split_count == 0)
        h->split_count = 1; /* written by some programs for a file that is whole */
    if (h->split_count > SL_GGUF_SHARDS_MAX) {
        return sl_gg_fail(&h->c, SLUICE_E_LIMIT, "split.count is %" PRIu32 ", the limit is %d",
                          h->split_count, SL_GGUF_SHARDS_MAX);
    }
    if (h->split_no >= h->split_count) {
        return sl_gg_fail(&h->c, SLUICE_E_FORMAT,
                          "split.no is %" PRIu32 ", but split.count is %" PRIu32, h->split_no,
                          h->split_count);
    }
    return SLUICE_OK;
}

sluice_err sl_gg_head_read(struct sl_gg_head *h, struct sl_budget *b)
{
    uint64_t n_keys;
    sluice_err err = read_start(h, &n_keys);

    if (err != SLUICE_OK) return err;
    h->meta.path = h->c.path;
    h->meta.keys = sl_alloc(b, n_keys, sizeof *h->meta.keys);
    if (h->meta.keys == NULL) {
        return sl_gg_no_memory(b, n_keys * sizeof *h->meta.keys, h->c.path, h->c.e);
    }
    for (uint64_t i = 0; i < n_keys; i++) {
        err = read_key(&h->c, &h->meta.keys[i]);
        if (err != SLUICE_OK) return err;
    }
    h->meta.n_keys = (uint32_t)n_keys;
    err = index_keys(h, b);
    if (err == SLUICE_OK) err = read_alignment(h);
    return err == SLUICE_OK ? read_split(h) : err;
}

void sl_gg_head_deinit(struct sl_gg_head *h)
{
    sl_gg_index_deinit(&h->meta.index);
    sl_free(h->meta.keys);
    sl_gg_cursor_deinit(&h->c);
    memset(h, 0, sizeof *h);
}
