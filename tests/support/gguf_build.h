/* A small GGUF writer for tests: bytes in memory, written in the order of the calls, with nothing
 * checked, so that broken files are as easy to make as good ones.
 *
 *     struct gguf_build b;
 *     gb_begin(&b, 3);
 *     gb_kv_u32(&b, "general.alignment", 64);
 *     gb_tensor(&b, "x", 0, 0, 32, 1);      name, type, offset, columns, rows
 *     gb_data(&b, 64, 128);                 pads to 64, then 128 bytes of data
 *     ... b.p, b.n ...
 *     gb_end(&b);
 *
 * The counts in the head follow the calls of gb_kv_* and gb_tensor*; gb_set_u64 at GB_AT_TENSORS or
 * GB_AT_KEYS overrides them. Out of memory aborts: these are tests. */
#ifndef SL_TEST_GGUF_BUILD_H
#define SL_TEST_GGUF_BUILD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"

#define GB_AT_VERSION 4
#define GB_AT_TENSORS 8
#define GB_AT_KEYS 16

struct gguf_build {
    unsigned char *p;
    size_t n, capacity;
    uint64_t n_tensors, n_keys;
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static inline void gb_bytes(struct gguf_build *b, const void *p, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * b->capacity + n + 256;
        b->p = realloc(b->p, b->capacity);
        if (b->p == NULL) abort();
    }
    if (n > 0) memcpy(b->p + b->n, p, n);
    b->n += n;
}

/* The low bytes of v, little-endian. */
static inline void gb_uint(struct gguf_build *b, uint64_t v, size_t bytes)
{
    unsigned char raw[8];

    if (bytes > sizeof raw) abort();
    for (size_t i = 0; i < 8; i++) raw[i] = (unsigned char)(v >> (8 * i));
    gb_bytes(b, raw, bytes);
}

static inline void gb_u32(struct gguf_build *b, uint32_t v) { gb_uint(b, v, 4); }
static inline void gb_u64(struct gguf_build *b, uint64_t v) { gb_uint(b, v, 8); }

static inline void gb_f32(struct gguf_build *b, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    gb_uint(b, bits, 4);
}

static inline void gb_f64(struct gguf_build *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    gb_uint(b, bits, 8);
}

static inline void gb_str_n(struct gguf_build *b, const char *s, size_t n)
{
    gb_u64(b, n);
    gb_bytes(b, s, n);
}

static inline void gb_str(struct gguf_build *b, const char *s) { gb_str_n(b, s, strlen(s)); }

static inline void gb_set_u64(struct gguf_build *b, size_t at, uint64_t v)
{
    for (size_t i = 0; i < 8; i++) b->p[at + i] = (unsigned char)(v >> (8 * i));
}

static inline void gb_pad(struct gguf_build *b, size_t alignment)
{
    while (b->n % alignment != 0) gb_uint(b, 0, 1);
}

/* ---- the file -------------------------------------------------------------------------------- */

static inline void gb_begin(struct gguf_build *b, uint32_t version)
{
    memset(b, 0, sizeof *b);
    gb_bytes(b, "GGUF", 4);
    gb_u32(b, version);
    gb_u64(b, 0);
    gb_u64(b, 0);
}

static inline void gb_end(struct gguf_build *b)
{
    free(b->p);
    memset(b, 0, sizeof *b);
}

/* The start of an entry; the value follows. */
static inline void gb_key(struct gguf_build *b, const char *name, uint32_t kind)
{
    gb_str(b, name);
    gb_u32(b, kind);
    gb_set_u64(b, GB_AT_KEYS, ++b->n_keys);
}

/* Any integer kind or bool: the low bytes of v. */
static inline void gb_kv_int(struct gguf_build *b, const char *name, uint32_t kind, int64_t v)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 0, 1, 0, 0, 8, 8};

    gb_key(b, name, kind);
    gb_uint(b, (uint64_t)v, bytes[kind]);
}

static inline void gb_kv_u32(struct gguf_build *b, const char *name, uint32_t v)
{
    gb_kv_int(b, name, SL_GGUF_U32, v);
}

static inline void gb_kv_bool(struct gguf_build *b, const char *name, bool v)
{
    gb_kv_int(b, name, SL_GGUF_BOOL, v);
}

static inline void gb_kv_f32(struct gguf_build *b, const char *name, float v)
{
    gb_key(b, name, SL_GGUF_F32);
    gb_f32(b, v);
}

static inline void gb_kv_f64(struct gguf_build *b, const char *name, double v)
{
    gb_key(b, name, SL_GGUF_F64);
    gb_f64(b, v);
}

static inline void gb_kv_str(struct gguf_build *b, const char *name, const char *v)
{
    gb_key(b, name, SL_GGUF_STRING);
    gb_str(b, v);
}

/* The start of an array; count elements follow. */
static inline void gb_kv_array(struct gguf_build *b, const char *name, uint32_t elem_kind,
                               uint64_t count)
{
    gb_key(b, name, SL_GGUF_ARRAY);
    gb_u32(b, elem_kind);
    gb_u64(b, count);
}

static inline void gb_kv_i32s(struct gguf_build *b, const char *name, const int32_t *v, size_t n)
{
    gb_kv_array(b, name, SL_GGUF_I32, n);
    for (size_t i = 0; i < n; i++) gb_u32(b, (uint32_t)v[i]);
}

static inline void gb_kv_strs(struct gguf_build *b, const char *name, const char *const *v,
                              size_t n)
{
    gb_kv_array(b, name, SL_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) gb_str(b, v[i]);
}

static inline void gb_tensor_dims(struct gguf_build *b, const char *name, uint32_t type,
                                  uint64_t offset, const uint64_t *dims, uint32_t n_dims)
{
    gb_str(b, name);
    gb_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gb_u64(b, dims[i]);
    gb_u32(b, type);
    gb_u64(b, offset);
    gb_set_u64(b, GB_AT_TENSORS, ++b->n_tensors);
}

static inline void gb_tensor(struct gguf_build *b, const char *name, uint32_t type, uint64_t offset,
                             uint64_t cols, uint64_t rows)
{
    gb_tensor_dims(b, name, type, offset, (const uint64_t[]){cols, rows}, 2);
}

/* The data: padding, then n bytes that count up. */
static inline void gb_data(struct gguf_build *b, size_t alignment, size_t n)
{
    gb_pad(b, alignment);
    for (size_t i = 0; i < n; i++) gb_uint(b, i, 1);
}

static inline bool gb_write(const struct gguf_build *b, const char *path)
{
    FILE *f = fopen(path, "wb");
    bool ok = f != NULL && fwrite(b->p, 1, b->n, f) == b->n;

    return f != NULL && fclose(f) == 0 && ok;
}

#endif
