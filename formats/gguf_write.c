/* Writing GGUF files; see gguf_write.h. Source: the GGUF specification (ggml, docs/gguf.md). */
#include "formats/gguf_write.h"

#include <string.h>

#include "formats/gguf.h"
#include "io/new_file.h"

#define VERSION 3u
#define ALIGN 32u /* the default where a file has no general.alignment */

struct sl_gguf_write {
    struct sl_new_file *file;
    uint64_t bytes;            /* written */
    uint64_t keys, tensors;    /* still to come */
    uint64_t data, data_bytes; /* of the tensors: written, and announced so far */
    sluice_err err;
    sluice_error error; /* what err is */
};

static void put(struct sl_gguf_write *w, const void *bytes, uint64_t n)
{
    if (w->err == SLUICE_OK) w->err = sl_new_file_write(w->file, bytes, n, &w->error);
    w->bytes += n;
}

/* The low bytes of a number, little-endian. */
static void put_uint(struct sl_gguf_write *w, uint64_t value, uint32_t n)
{
    unsigned char raw[8];
    for (uint32_t i = 0; i < n; i++) raw[i] = (unsigned char)(value >> (8 * i));
    put(w, raw, n);
}

static void put_str(struct sl_gguf_write *w, struct sl_str s)
{
    put_uint(w, s.n, 8);
    put(w, s.p, s.n);
}

static struct sl_str str(const char *s) { return (struct sl_str){s, strlen(s)}; }

static void begin_key(struct sl_gguf_write *w, const char *key, enum sl_gguf_kind kind)
{
    SLUICE_ASSERT(w->keys > 0);
    w->keys--;
    put_str(w, str(key));
    put_uint(w, kind, 4);
}

static void pad(struct sl_gguf_write *w)
{
    static const unsigned char zeros[ALIGN];
    put(w, zeros, (ALIGN - w->bytes % ALIGN) % ALIGN);
}

sluice_err sl_gguf_write_open(const char *path, uint64_t n_keys, uint64_t n_tensors,
                              struct sl_budget *b, sluice_error *e, struct sl_gguf_write **out)
{
    *out = NULL;
    struct sl_gguf_write *w = sl_alloc(b, 1, sizeof *w);
    if (!w) return sl_fail(e, SLUICE_E_NOMEM, "no memory to write '%.256s'", path);
    w->keys = n_keys;
    w->tensors = n_tensors;
    sluice_err err = sl_new_file_open(path, b, e, &w->file);
    if (err != SLUICE_OK) {
        sl_free(w);
        return err;
    }
    put(w, "GGUF", 4);
    put_uint(w, VERSION, 4);
    put_uint(w, n_tensors, 8);
    put_uint(w, n_keys, 8);
    *out = w;
    return SLUICE_OK;
}

void sl_gguf_write_str(struct sl_gguf_write *w, const char *key, struct sl_str value)
{
    begin_key(w, key, SL_GGUF_STRING);
    put_str(w, value);
}

void sl_gguf_write_str_array(struct sl_gguf_write *w, const char *key, const struct sl_str *values,
                             uint64_t n)
{
    begin_key(w, key, SL_GGUF_ARRAY);
    put_uint(w, SL_GGUF_STRING, 4);
    put_uint(w, n, 8);
    for (uint64_t i = 0; i < n; i++) put_str(w, values[i]);
}

void sl_gguf_write_u32(struct sl_gguf_write *w, const char *key, uint32_t value)
{
    begin_key(w, key, SL_GGUF_U32);
    put_uint(w, value, 4);
}

void sl_gguf_write_tensor(struct sl_gguf_write *w, const char *name, uint64_t cols, uint64_t rows)
{
    SLUICE_ASSERT(w->keys == 0 && w->tensors > 0 && w->data == 0);
    SLUICE_ASSERT(cols > 0 && rows > 0);
    w->tensors--;
    put_str(w, str(name));
    put_uint(w, rows > 1 ? 2 : 1, 4);
    put_uint(w, cols, 8);
    if (rows > 1) put_uint(w, rows, 8);
    put_uint(w, SL_TYPE_F32, 4);
    put_uint(w, w->data_bytes, 8);
    uint64_t bytes = cols * rows * sizeof(float);
    w->data_bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

void sl_gguf_write_floats(struct sl_gguf_write *w, const float *x, uint64_t n)
{
    SLUICE_ASSERT(w->tensors == 0);
    if (w->data == 0) pad(w);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        put_uint(w, bits, sizeof bits);
    }
    w->data += n * sizeof(float);
}

void sl_gguf_write_end(struct sl_gguf_write *w)
{
    pad(w);
    w->data = (w->data + ALIGN - 1) / ALIGN * ALIGN;
}

sluice_err sl_gguf_write_close(struct sl_gguf_write *w, sluice_error *e)
{
    SLUICE_ASSERT(w->keys == 0 && w->tensors == 0 && w->data == w->data_bytes);
    sluice_err err = w->err;
    if (err == SLUICE_OK) {
        err = sl_new_file_commit(w->file, e);
    } else {
        sl_new_file_discard(w->file);
        if (e) *e = w->error;
    }
    sl_free(w);
    return err;
}
