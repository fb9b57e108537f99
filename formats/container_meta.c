/* GGUF metadata in MessagePack: [[name, kind, value], ...] with the kinds of GGUF, since what reads
 * a model asks for them by type. Numbers are MessagePack's own, arrays of numbers are bytes as they
 * lie in a GGUF, arrays of strings are arrays.
 *
 * Reading makes the header of a GGUF again, so that the reader of GGUF headers, with its checks and
 * its typed look-ups, is the only one there is. */
#include <string.h>

#include "formats/container_internal.h"

#define IMAGE_HEAD_BYTES 24 /* magic, version, number of tensors, number of keys */

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_wanted(const struct sl_gg_key *k) { return !sl_str_starts(k->name, "split."); }

static void put_number(const struct sl_gg_key *k, struct sl_mp_writer *w)
{
    struct sl_gg_int v;

    if (k->kind == SL_GGUF_F32) {
        sl_mp_put_f32(w, sl_gg_load_u32(k->data));
    } else if (k->kind == SL_GGUF_F64) {
        sl_mp_put_f64(w, sl_gg_load_u64(k->data));
    } else if (k->kind == SL_GGUF_BOOL) {
        sl_mp_put_uint(w, k->data[0]);
    } else {
        bool is_int = sl_gg_int_at(k->kind, k->data, 0, &v);
        SLUICE_ASSERT(is_int);
        if (v.negative)
            sl_mp_put_int(w, (int64_t)(0 - v.magnitude));
        else
            sl_mp_put_uint(w, v.magnitude);
    }
}

/* Elements that are no arrays. Returns what follows them. */
static const unsigned char *put_elements(uint32_t kind, uint64_t count, const unsigned char *p,
                                         struct sl_mp_writer *w)
{
    uint64_t bytes = count * sl_gg_kind_bytes(kind);

    if (kind != SL_GGUF_STRING) {
        sl_mp_put_bin(w, p, bytes);
        return p + bytes;
    }
    sl_mp_put_array(w, count);
    for (uint64_t i = 0; i < count; i++) {
        struct sl_str s = {(const char *)p + 8, sl_gg_load_u64(p)};

        sl_mp_put_str(w, s);
        p += 8 + s.n;
    }
    return p;
}

/* An array is [kind of its elements, elements]. todo holds, for each level, the arrays to come. */
static void put_array(const struct sl_gg_key *k, struct sl_mp_writer *w)
{
    uint64_t todo[SL_GGUF_ARRAY_DEPTH_MAX], count = k->count;
    uint32_t depth = 0, kind = k->elem_kind;
    const unsigned char *p = k->data;

    for (;;) {
        sl_mp_put_array(w, 2);
        sl_mp_put_uint(w, kind);
        if (kind == SL_GGUF_ARRAY) {
            SLUICE_ASSERT(depth < SL_GGUF_ARRAY_DEPTH_MAX);
            sl_mp_put_array(w, count);
            todo[depth++] = count;
        } else {
            p = put_elements(kind, count, p, w);
        }
        while (depth > 0 && todo[depth - 1] == 0) depth--;
        if (depth == 0) return;
        todo[depth - 1]--;
        kind = sl_gg_load_u32(p);
        count = sl_gg_load_u64(p + 4);
        p += 12;
    }
}

/* A broken GGUF may hold truth values besides 0 and 1. */
sluice_err sl_cn_meta_check(const struct sl_gg_meta *meta, const char *path, sluice_error *e)
{
    char shown[SL_GG_SHOW_MAX];

    for (uint32_t i = 0; i < meta->n_keys; i++) {
        const struct sl_gg_key *k = &meta->keys[i];

        if (!is_wanted(k) || k->kind != SL_GGUF_BOOL || k->data[0] <= 1) continue;
        return sl_cn_fail(e, SLUICE_E_FORMAT, path,
                          "the model says %u for '%s', wanted 0 or 1 for a truth value: its file "
                          "is damaged",
                          k->data[0], sl_str_show(k->name, shown, sizeof shown));
    }
    return SLUICE_OK;
}

void sl_cn_meta_encode(const struct sl_gg_meta *meta, struct sl_mp_writer *w)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < meta->n_keys; i++) n += is_wanted(&meta->keys[i]);
    sl_mp_put_array(w, n);
    for (uint32_t i = 0; i < meta->n_keys; i++) {
        const struct sl_gg_key *k = &meta->keys[i];

        if (!is_wanted(k)) continue;
        sl_mp_put_array(w, 3);
        sl_mp_put_str(w, k->name);
        sl_mp_put_uint(w, k->kind);
        if (k->kind == SL_GGUF_STRING)
            sl_mp_put_str(w, (struct sl_str){(const char *)k->data, k->count});
        else if (k->kind == SL_GGUF_ARRAY)
            put_array(k, w);
        else
            put_number(k, w);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Where the image goes; p NULL: it is only measured. */
struct image {
    unsigned char *p;
    uint64_t n;
};

static void add(struct image *m, const void *data, uint64_t bytes)
{
    if (m->p != NULL && bytes > 0) memcpy(m->p + m->n, data, bytes);
    m->n += bytes; /* far below what 64 bits hold: at most 20 bytes for each of the index */
}

static void add_uint(struct image *m, uint64_t v, uint32_t bytes)
{
    unsigned char raw[8];

    SLUICE_ASSERT(bytes <= sizeof raw);
    sl_cn_put(raw, v, sizeof raw);
    add(m, raw, bytes);
}

static void add_str(struct image *m, struct sl_str s)
{
    add_uint(m, s.n, 8);
    add(m, s.p, s.n);
}

static void get_number(struct sl_mp_reader *r, uint32_t kind, struct image *m)
{
    uint32_t bytes = sl_gg_kind_bytes(kind);
    uint64_t most = bytes < 8 ? ((uint64_t)1 << 8 * bytes) - 1 : UINT64_MAX;

    if (kind == SL_GGUF_BOOL) most = 1;

    switch (kind) {
    case SL_GGUF_F32:
        add_uint(m, sl_mp_get_f32(r), bytes);
        break;
    case SL_GGUF_F64:
        add_uint(m, sl_mp_get_f64(r), bytes);
        break;
    case SL_GGUF_I8:
    case SL_GGUF_I16:
    case SL_GGUF_I32:
    case SL_GGUF_I64:
        add_uint(m, (uint64_t)sl_mp_get_int(r, -(int64_t)(most / 2) - 1, (int64_t)(most / 2)),
                 bytes);
        break;
    default:
        if (bytes == 0) sl_mp_fail(r, "a kind of value that GGUF has");
        add_uint(m, sl_mp_get_uint(r, most), bytes);
    }
}

static void get_elements(struct sl_mp_reader *r, uint32_t kind, struct image *m)
{
    uint32_t size = sl_gg_kind_bytes(kind);

    if (kind == SL_GGUF_STRING) {
        uint64_t n = sl_mp_get_array(r, 0, UINT32_MAX);

        add_uint(m, n, 8);
        for (uint64_t i = 0; i < n && r->failed == NULL; i++) add_str(m, sl_mp_get_str(r));
        return;
    }
    struct sl_str s = sl_mp_get_bin(r);
    if (size == 0 || s.n % size != 0) {
        sl_mp_fail(r, "whole elements of a kind that GGUF has");
        return;
    }
    add_uint(m, s.n / size, 8);
    add(m, s.p, s.n);
}

static void get_array(struct sl_mp_reader *r, struct image *m)
{
    uint64_t todo[SL_GGUF_ARRAY_DEPTH_MAX];
    uint32_t depth = 0;

    while (r->failed == NULL) {
        (void)sl_mp_get_array(r, 2, 2);
        uint32_t kind = (uint32_t)sl_mp_get_uint(r, UINT32_MAX);
        add_uint(m, kind, 4);
        if (kind == SL_GGUF_ARRAY) {
            if (depth == SL_GGUF_ARRAY_DEPTH_MAX - 1) {
                sl_mp_fail(r, "an array that is nested less deeply");
                return;
            }
            todo[depth] = sl_mp_get_array(r, 0, UINT32_MAX);
            add_uint(m, todo[depth++], 8);
        } else {
            get_elements(r, kind, m);
        }
        while (depth > 0 && todo[depth - 1] == 0) depth--;
        if (depth == 0) return;
        todo[depth - 1]--;
    }
}

void sl_cn_meta_decode(struct sl_mp_reader *r, unsigned char *image, uint64_t *bytes)
{
    struct image m = {image, 0};
    uint64_t n = sl_mp_get_array(r, 0, SL_GGUF_KV_MAX);

    add(&m, "GGUF", 4);
    add_uint(&m, 3, 4);
    add_uint(&m, 0, 8);
    add_uint(&m, n, 8);
    SLUICE_ASSERT(m.n == IMAGE_HEAD_BYTES);
    for (uint64_t i = 0; i < n && r->failed == NULL; i++) {
        (void)sl_mp_get_array(r, 3, 3);
        add_str(&m, sl_mp_get_str(r));
        uint32_t kind = (uint32_t)sl_mp_get_uint(r, UINT32_MAX);
        add_uint(&m, kind, 4);
        if (kind == SL_GGUF_STRING)
            add_str(&m, sl_mp_get_str(r));
        else if (kind == SL_GGUF_ARRAY)
            get_array(r, &m);
        else
            get_number(r, kind, &m);
    }
    *bytes = m.n;
}
