/* Fuzzes the GGUF reader: any bytes as one file, then everything that can be asked of it. A file
 * that opens must keep what the reader promises: tensors inside the file, none on top of another,
 * each found by its name, values only of the type that was asked for; and whatever happens, nothing
 * stays allocated. The input is copied to a block of exactly its size, so that AddressSanitizer
 * sees a read past its end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (64u << 20)
#define LAYERS 5

static uint64_t touched; /* keeps reads of views from being optimised away */

static void touch(struct sl_str s)
{
    for (size_t i = 0; i < s.n; i++) touched += (unsigned char)s.p[i];
}

static void read_as_every_type(const struct sl_gguf *g, const char *key)
{
    uint32_t u = 1, layers[LAYERS], count = 0;
    float f = 1, floats[LAYERS];
    bool flag = false;
    struct sl_str s = {"", 0};
    sluice_error e;

    if (sl_gguf_u32(g, key, &u, &e) != SLUICE_OK) CHECK(u == 1 && e.code == SLUICE_E_FORMAT);
    if (sl_gguf_f32(g, key, &f, &e) != SLUICE_OK) CHECK(f == 1 && e.code == SLUICE_E_FORMAT);
    CHECK(isfinite(f));
    if (sl_gguf_bool(g, key, &flag, &e) != SLUICE_OK) CHECK(!flag && e.code == SLUICE_E_FORMAT);
    if (sl_gguf_str(g, key, &s, &e) != SLUICE_OK) CHECK(s.n == 0 && e.code == SLUICE_E_FORMAT);
    touch(s);
    if (sl_gguf_u32_per_layer(g, key, LAYERS, layers, &e) == SLUICE_OK && sl_gguf_has(g, key)) {
        for (int i = 0; i < LAYERS; i++) touched += layers[i];
    }
    if (sl_gguf_f32_array(g, key, LAYERS, floats, &count, &e) == SLUICE_OK) {
        CHECK(count <= LAYERS);
        for (uint32_t i = 0; i < count; i++) CHECK(isfinite(floats[i]));
    }
}

static void check_keys(const struct sl_gguf *g)
{
    char key[SL_NAME_MAX + 1], small[4], large[200];

    for (uint32_t i = 0; i < sl_gguf_n_keys(g); i++) {
        struct sl_str name = sl_gguf_key(g, i);

        CHECK(name.n > 0 && name.n <= SL_NAME_MAX);
        CHECK(sl_gguf_key_kind(g, i) <= SL_GGUF_F64);
        CHECK(strlen(sl_gguf_key_show(g, i, small, sizeof small)) < sizeof small);
        CHECK(strlen(sl_gguf_key_show(g, i, large, sizeof large)) < sizeof large);
        memcpy(key, name.p, name.n);
        key[name.n] = '\0';
        if (strlen(key) == name.n) CHECK(sl_gguf_has(g, key));
        read_as_every_type(g, key);
    }
}

static void check_tensors(const struct sl_gguf *g, const unsigned char *file, size_t size)
{
    char name[SL_NAME_MAX + 1];

    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        const struct sl_type_info *info = sl_type_info(t->type);

        CHECK(info != NULL && t->n_dims >= 1 && t->n_dims <= 4 && t->shard == 0);
        CHECK(t->bytes > 0 && t->offset < size && t->bytes <= size - t->offset);
        CHECK(t->dims[0] % info->block_cols == 0);
        CHECK(t->row_bytes == t->dims[0] / info->block_cols * info->block_bytes);
        CHECK(t->bytes == t->row_bytes * t->dims[1] * t->dims[2] * t->dims[3]);
        touched += file[t->offset] + file[t->offset + t->bytes - 1];
        CHECK(t->name.n > 0 && t->name.n <= SL_NAME_MAX);
        memcpy(name, t->name.p, t->name.n);
        name[t->name.n] = '\0';
        if (strlen(name) == t->name.n) CHECK(sl_gguf_find_tensor(g, name) == t);
        if (i > 0 && i < 64) { /* every pair, as long as that is cheap */
            for (uint32_t j = 0; j < i; j++) {
                const struct sl_gguf_tensor *o = sl_gguf_tensor(g, j);

                CHECK(o->offset + o->bytes <= t->offset || t->offset + t->bytes <= o->offset);
            }
        }
    }
}

static void check_id(int32_t id, const struct sl_vocab *v)
{
    CHECK(id >= -1 && id < (int32_t)v->n_tokens);
}

static void check_vocab(const struct sl_gguf *g)
{
    struct sl_vocab v;
    sluice_error e;
    sluice_err err = sl_gguf_vocab(g, &v, &e);

    if (err != SLUICE_OK) {
        CHECK(err == SLUICE_E_FORMAT || err == SLUICE_E_BUDGET);
        return;
    }
    CHECK(v.n_tokens > 0 && v.n_tokens <= SL_VOCAB_MAX);
    touch(v.model);
    touch(v.pre);
    touch(v.chat_template);
    for (uint32_t i = 0; i < v.n_tokens; i++) touch(v.tokens[i]);
    for (uint32_t i = 0; i < v.n_merges; i++) touch(v.merges[i]);
    for (uint32_t i = 0; i < v.n_tokens && v.scores != NULL; i++) CHECK(!isnan(v.scores[i]));
    for (uint32_t i = 0; i < v.n_tokens && v.kinds != NULL; i++) CHECK(v.kinds[i] <= SL_TOKEN_BYTE);
    for (uint32_t i = 0; i < v.n_eog_ids; i++)
        CHECK(v.eog_ids[i] >= 0 && v.eog_ids[i] < (int32_t)v.n_tokens);
    check_id(v.bos_id, &v);
    check_id(v.eos_id, &v);
    check_id(v.eot_id, &v);
    check_id(v.eom_id, &v);
    check_id(v.unk_id, &v);
    check_id(v.pad_id, &v);
    check_id(v.sep_id, &v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size > 0 ? size : 1);
    struct sl_budget budget;
    struct sl_gguf *g = NULL;
    sluice_error e = {.code = 0};
    sluice_err err;

    CHECK(copy != NULL);
    if (size > 0) memcpy(copy, data, size);
    sl_budget_init(&budget, BUDGET_BYTES);
    err = sl_gg_open_memory(copy, size, &budget, &e, &g);
    CHECK(e.code == err && (err == SLUICE_OK) == (g != NULL));
    if (g != NULL) {
        check_keys(g);
        check_tensors(g, copy, size);
        check_vocab(g);
        check_vocab(g);
        sl_gguf_drop_metadata(g);
        CHECK(sl_gguf_n_keys(g) == 0);
        check_tensors(g, copy, size);
        sl_gguf_close(g);
    } else {
        CHECK(strlen(e.text) > 0 && strlen(e.text) < sizeof e.text);
    }
    CHECK(atomic_load(&budget.used_bytes) == 0);
    free(copy);
    return 0;
}
