/* Typed reads of GGUF metadata. Every read checks the type that the file declares before it touches
 * the value, and the range before it hands the value out; a present key that does not fit is an
 * error that names it, never a default. */
#include "formats/checksum.h"
#include "formats/gguf_internal.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

struct kind_info {
    const char *name;
    uint32_t bytes;
};

static const struct kind_info kinds[] = {
    [SL_GGUF_U8] = {"u8", 1},       [SL_GGUF_I8] = {"i8", 1},     [SL_GGUF_U16] = {"u16", 2},
    [SL_GGUF_I16] = {"i16", 2},     [SL_GGUF_U32] = {"u32", 4},   [SL_GGUF_I32] = {"i32", 4},
    [SL_GGUF_F32] = {"f32", 4},     [SL_GGUF_BOOL] = {"bool", 1}, [SL_GGUF_STRING] = {"string", 0},
    [SL_GGUF_ARRAY] = {"array", 0}, [SL_GGUF_U64] = {"u64", 8},   [SL_GGUF_I64] = {"i64", 8},
    [SL_GGUF_F64] = {"f64", 8},
};

uint32_t sl_gg_kind_bytes(uint32_t kind)
{
    return kind < SL_ARRAY_LEN(kinds) ? kinds[kind].bytes : 0;
}

const char *sl_gg_kind_name(uint32_t kind)
{
    return kind < SL_ARRAY_LEN(kinds) ? kinds[kind].name : "unknown";
}

const struct sl_gg_key *sl_gg_find_key(const struct sl_gg_meta *m, const char *key)
{
    struct sl_str name = {key, strlen(key)};
    uint32_t i = sl_gg_index_find(&m->index, m->keys, sizeof *m->keys, name);

    return i == UINT32_MAX ? NULL : &m->keys[i];
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Sign-extends the low bits of v. */
static int64_t sign_extend(uint64_t v, uint32_t bytes)
{
    uint32_t unused = 64 - 8 * bytes;

    return (int64_t)(v << unused) >> unused;
}

static uint64_t load_bits(uint32_t bytes, const unsigned char *p)
{
    uint64_t v = 0;

    for (uint32_t i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

bool sl_gg_int_at(uint32_t kind, const unsigned char *data, uint64_t i, struct sl_gg_int *out)
{
    uint32_t bytes = sl_gg_kind_bytes(kind);
    uint64_t bits;
    int64_t v;

    switch (kind) {
    case SL_GGUF_U8:
    case SL_GGUF_U16:
    case SL_GGUF_U32:
    case SL_GGUF_U64:
        *out = (struct sl_gg_int){load_bits(bytes, data + i * bytes), false};
        return true;
    case SL_GGUF_I8:
    case SL_GGUF_I16:
    case SL_GGUF_I32:
    case SL_GGUF_I64:
        bits = load_bits(bytes, data + i * bytes);
        v = sign_extend(bits, bytes);
        *out = (struct sl_gg_int){v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0};
        return true;
    default:
        return false;
    }
}

static double load_float(uint32_t kind, const unsigned char *p)
{
    uint64_t bits = load_bits(sl_gg_kind_bytes(kind), p);
    uint32_t bits32 = (uint32_t)bits;
    float f;
    double d;

    if (kind == SL_GGUF_F32) {
        memcpy(&f, &bits32, sizeof f);
        return f;
    }
    memcpy(&d, &bits, sizeof d);
    return d;
}

bool sl_gg_number_at(uint32_t kind, const unsigned char *data, uint64_t i, double *out)
{
    struct sl_gg_int v;

    if (kind == SL_GGUF_F32 || kind == SL_GGUF_F64) {
        *out = load_float(kind, data + i * sl_gg_kind_bytes(kind));
        return true;
    }
    if (kind == SL_GGUF_BOOL) {
        *out = data[i];
        return data[i] <= 1;
    }
    if (!sl_gg_int_at(kind, data, i, &v)) return false;
    *out = v.negative ? -(double)v.magnitude : (double)v.magnitude;
    return true;
}

/* ---- showing --------------------------------------------------------------------------------- */

static void show_key(const struct sl_gg_key *k, char *buf, size_t size)
{
    struct sl_gg_int v;

    if (k->kind == SL_GGUF_STRING) {
        sl_str_show((struct sl_str){(const char *)k->data, k->count}, buf, size);
    } else if (k->kind == SL_GGUF_ARRAY) {
        bool plural = k->elem_kind == SL_GGUF_STRING || k->elem_kind == SL_GGUF_ARRAY;

        snprintf(buf, size, "[%" PRIu64 " %s%s]", k->count, sl_gg_kind_name(k->elem_kind),
                 plural && k->count != 1 ? "s" : "");
    } else if (k->kind == SL_GGUF_BOOL && k->data[0] <= 1) {
        snprintf(buf, size, "%s", k->data[0] != 0 ? "true" : "false");
    } else if (k->kind == SL_GGUF_BOOL) {
        snprintf(buf, size, "%u (no truth value)", (unsigned)k->data[0]);
    } else if (sl_gg_int_at(k->kind, k->data, 0, &v)) {
        snprintf(buf, size, "%s%" PRIu64, v.negative ? "-" : "", v.magnitude);
    } else {
        snprintf(buf, size, "%.*g", k->kind == SL_GGUF_F32 ? 7 : 15, load_float(k->kind, k->data));
    }
}

sluice_err sl_gg_key_fail(const struct sl_gg_meta *m, const struct sl_gg_key *k, const char *wanted,
                          sluice_error *e)
{
    char path[SL_GG_SHOW_PATH_MAX], name[SL_GG_SHOW_MAX], value[SL_GG_SHOW_MAX];

    show_key(k, value, sizeof value);
    return sl_fail(e, SLUICE_E_FORMAT, "%s: key '%s' is %s (%s), wanted %s",
                   sl_gg_show_path(m->path, path), sl_str_show(k->name, name, sizeof name), value,
                   sl_gg_kind_name(k->kind), wanted);
}

/* ---- single values --------------------------------------------------------------------------- */

sluice_err sl_gg_meta_u32(const struct sl_gg_meta *m, const char *key, uint32_t *out,
                          sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(m, key);
    struct sl_gg_int v;

    if (k == NULL) return SLUICE_OK;
    if (!sl_gg_int_at(k->kind, k->data, 0, &v) || v.negative || v.magnitude > UINT32_MAX) {
        return sl_gg_key_fail(m, k, "a whole number from 0 to 4294967295", e);
    }
    *out = (uint32_t)v.magnitude;
    return SLUICE_OK;
}

sluice_err sl_gguf_u32(const struct sl_gguf *g, const char *key, uint32_t *out, sluice_error *e)
{
    return sl_gg_meta_u32(&g->head.meta, key, out, e);
}

sluice_err sl_gguf_f32(const struct sl_gguf *g, const char *key, float *out, sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, key);
    double v;

    if (k == NULL) return SLUICE_OK;
    if (k->kind == SL_GGUF_BOOL || !sl_gg_number_at(k->kind, k->data, 0, &v) || !isfinite(v) ||
        fabs(v) > FLT_MAX) {
        return sl_gg_key_fail(&g->head.meta, k, "a finite number", e);
    }
    *out = (float)v;
    return SLUICE_OK;
}

sluice_err sl_gguf_bool(const struct sl_gguf *g, const char *key, bool *out, sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, key);
    struct sl_gg_int v = {2, false};

    if (k == NULL) return SLUICE_OK;
    if (k->kind == SL_GGUF_BOOL) v.magnitude = k->data[0];
    if ((k->kind != SL_GGUF_BOOL && !sl_gg_int_at(k->kind, k->data, 0, &v)) || v.negative ||
        v.magnitude > 1) {
        return sl_gg_key_fail(&g->head.meta, k, "a truth value (bool, 0 or 1)", e);
    }
    *out = v.magnitude == 1;
    return SLUICE_OK;
}

sluice_err sl_gguf_str(const struct sl_gguf *g, const char *key, struct sl_str *out,
                       sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, key);

    if (k == NULL) return SLUICE_OK;
    if (k->kind != SL_GGUF_STRING) return sl_gg_key_fail(&g->head.meta, k, "a string", e);
    *out = (struct sl_str){(const char *)k->data, k->count};
    return SLUICE_OK;
}

/* ---- arrays of numbers ----------------------------------------------------------------------- */

/* Element i of a per-layer array; a bool counts as 0 or 1. */
static bool layer_value(const struct sl_gg_key *k, uint64_t i, uint32_t *out)
{
    struct sl_gg_int v;

    if (k->elem_kind == SL_GGUF_BOOL) {
        *out = k->data[i];
        return k->data[i] <= 1;
    }
    if (!sl_gg_int_at(k->elem_kind, k->data, i, &v) || v.negative || v.magnitude > UINT32_MAX)
        return false;
    *out = (uint32_t)v.magnitude;
    return true;
}

sluice_err sl_gguf_u32_per_layer(const struct sl_gguf *g, const char *key, uint32_t n,
                                 uint32_t *out, sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, key);
    char wanted[128];
    uint32_t v = 0;
    sluice_err err;

    if (k == NULL) return SLUICE_OK;
    if (k->kind != SL_GGUF_ARRAY) {
        err = sl_gguf_u32(g, key, &v, e);
        for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) out[i] = v;
        return err;
    }
    snprintf(wanted, sizeof wanted,
             "whole numbers from 0 to 4294967295, one for each of %" PRIu32 " layers", n);
    if (k->count < n) return sl_gg_key_fail(&g->head.meta, k, wanted, e);
    for (uint32_t i = 0; i < n; i++) {
        if (!layer_value(k, i, &v)) return sl_gg_key_fail(&g->head.meta, k, wanted, e);
    }
    for (uint32_t i = 0; i < n; i++) (void)layer_value(k, i, &out[i]);
    return SLUICE_OK;
}

sluice_err sl_gguf_f32_array(const struct sl_gguf *g, const char *key, uint32_t max, float *out,
                             uint32_t *count, sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, key);
    char wanted[64];

    if (k == NULL) {
        *count = 0;
        return SLUICE_OK;
    }
    snprintf(wanted, sizeof wanted, "an array of up to %" PRIu32 " finite numbers", max);
    if (k->kind != SL_GGUF_ARRAY || k->count > max)
        return sl_gg_key_fail(&g->head.meta, k, wanted, e);
    for (uint64_t i = 0; i < k->count; i++) {
        double v;

        if (!sl_gg_number_at(k->elem_kind, k->data, i, &v) || !isfinite(v) || fabs(v) > FLT_MAX) {
            return sl_gg_key_fail(&g->head.meta, k, wanted, e);
        }
        out[i] = (float)v;
    }
    *count = (uint32_t)k->count;
    return SLUICE_OK;
}

/* ---- the list of keys ------------------------------------------------------------------------ */

uint32_t sl_gguf_n_keys(const struct sl_gguf *g) { return g->head.meta.n_keys; }

struct sl_str sl_gguf_key(const struct sl_gguf *g, uint32_t index)
{
    SLUICE_ASSERT(index < g->head.meta.n_keys);
    return g->head.meta.keys[index].name;
}

enum sl_gguf_kind sl_gguf_key_kind(const struct sl_gguf *g, uint32_t index)
{
    SLUICE_ASSERT(index < g->head.meta.n_keys);
    return (enum sl_gguf_kind)g->head.meta.keys[index].kind;
}

const char *sl_gguf_key_show(const struct sl_gguf *g, uint32_t index, char *buf, size_t size)
{
    SLUICE_ASSERT(index < g->head.meta.n_keys);
    SLUICE_ASSERT(size >= 4);
    show_key(&g->head.meta.keys[index], buf, size);
    return buf;
}

bool sl_gguf_has(const struct sl_gguf *g, const char *key)
{
    return sl_gg_find_key(&g->head.meta, key) != NULL;
}

uint64_t sl_gguf_header_sum(const struct sl_gguf *g)
{
    const struct sl_gg_cursor *c = &g->head.c;

    return c->base != NULL ? sl_xxh3(c->base, c->at) : 0;
}
