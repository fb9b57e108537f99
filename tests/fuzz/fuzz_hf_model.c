/* Fuzzes what is read of a Hugging Face folder besides the weights: an input is config.json, then,
 * behind a zero byte, tokenizer.json, then likewise tokenizer_config.json and
 * generation_config.json; weights are those of a small fixed model, in which llama, mixtral and
 * granitemoe find some of their tensors. What opens must keep its promises: keys with names and
 * values of their kinds, rows of every tensor readable, ids below the number of tokens, the same
 * vocabulary as metadata; and whatever happens, nothing stays charged. */
#define _GNU_SOURCE /* mkdtemp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/hf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (32u << 20)
#define FLOATS_MAX 4096
#define PARTS 4

static char folder[] = "/tmp/sluice_fuzz_hf_XXXXXX";
static const char *const names[PARTS] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                         "generation_config.json"};
static uint64_t touched; /* keeps reads of views from being optimised away */

static void touch(struct sl_str s)
{
    for (size_t i = 0; i < s.n; i++) touched += (unsigned char)s.p[i];
}

static void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[128];

    path_of(path, name);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void remove_folder(void)
{
    char path[128];

    for (int i = 0; i < PARTS; i++) {
        path_of(path, names[i]);
        unlink(path);
    }
    path_of(path, "model.safetensors");
    unlink(path);
    rmdir(folder);
}

struct weight {
    const char *name;
    int rows, cols; /* rows 0: a vector */
};

static const struct weight weights[] = {
    {"lm_head.weight", 4, 4},
    {"model.embed_tokens.weight", 4, 4},
    {"model.layers.0.block_sparse_moe.experts.0.w1.weight", 2, 4},
    {"model.layers.0.block_sparse_moe.experts.1.w1.weight", 2, 4},
    {"model.layers.0.self_attn.k_proj.weight", 4, 4},
    {"model.layers.0.self_attn.q_proj.bias", 0, 4},
    {"model.layers.0.self_attn.q_proj.weight", 4, 4},
    {"model.layers.0.shared_mlp.input_linear.weight", 4, 4},
    {"model.norm.weight", 0, 4},
};

static void make_folder(void)
{
    unsigned char file[4096] = {0};
    char *header = (char *)file + 8;
    size_t n = 0, at = 0;

    CHECK(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    for (size_t i = 0; i < SL_ARRAY_LEN(weights); i++) {
        const struct weight *w = &weights[i];
        size_t bytes = 2 * (size_t)(w->rows > 0 ? w->rows : 1) * (size_t)w->cols;
        char rows[16] = "";

        if (w->rows > 0) snprintf(rows, sizeof rows, "%d,", w->rows);
        n += (size_t)snprintf(header + n, sizeof file - 8 - n,
                              "%c\"%s\":{\"dtype\":\"F16\",\"shape\":[%s%d],"
                              "\"data_offsets\":[%zu,%zu]}",
                              i > 0 ? ',' : '{', w->name, rows, w->cols, at, at + bytes);
        at += bytes;
    }
    header[n++] = '}';
    file[0] = (unsigned char)n;
    file[1] = (unsigned char)(n >> 8);
    CHECK(8 + n + at <= sizeof file);
    write_file("model.safetensors", file, 8 + n + at);
}

static void check_keys(const struct sl_hf *hf)
{
    CHECK(sl_hf_n_keys(hf) > 0);
    for (uint32_t i = 0; i < sl_hf_n_keys(hf); i++) {
        const struct sl_hf_key *k = sl_hf_key(hf, i);

        touch(k->name);
        CHECK(sl_hf_find_key(hf, k->name.p) == k);
        if (k->kind == SL_GGUF_STRING) touch(k->str);
        if (k->kind == SL_GGUF_F32) CHECK(!isnan(k->f32));
    }
}

static void check_tensors(const struct sl_hf *hf)
{
    static float out[FLOATS_MAX];

    for (uint32_t i = 0; i < sl_hf_n_tensors(hf); i++) {
        const struct sl_hf_tensor *t = sl_hf_tensor(hf, i);

        touch(t->name);
        CHECK(t->n_dims >= 1 && t->n_dims <= 3);
        CHECK(t->dims[0] * t->dims[1] * t->dims[2] <= FLOATS_MAX);
        CHECK(sl_hf_read_rows(hf, t, 0, t->dims[1] * t->dims[2], out, NULL) == SLUICE_OK);
    }
}

static void check_vocab(const struct sl_vocab *v)
{
    const int32_t ids[] = {v->bos_id, v->eos_id, v->eot_id, v->eom_id,
                           v->unk_id, v->pad_id, v->sep_id};

    CHECK(v->n_tokens > 0 && v->pre.n > 0);
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        touch(v->tokens[i]);
        CHECK(v->kinds[i] <= SL_TOKEN_BYTE);
    }
    for (uint32_t i = 0; i < v->n_merges; i++) {
        touch(v->merges[i]);
        CHECK(memchr(v->merges[i].p, ' ', v->merges[i].n) != NULL);
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(ids); i++)
        CHECK(ids[i] >= -1 && ids[i] < (int32_t)v->n_tokens);
    for (uint32_t i = 0; i < v->n_eog_ids; i++)
        CHECK(v->eog_ids[i] >= 0 && v->eog_ids[i] < (int32_t)v->n_tokens);
    touch(v->chat_template);
}

/* What the folder says as a GGUF has the same vocabulary. */
static void check_metadata(struct sl_hf *hf, const struct sl_vocab *v, struct sl_budget *b)
{
    struct sl_gguf *g = NULL;
    struct sl_vocab w;

    CHECK(sl_hf_metadata(hf, b, NULL, &g) == SLUICE_OK);
    CHECK(sl_gguf_n_keys(g) > sl_hf_n_keys(hf));
    CHECK(sl_gguf_vocab(g, &w, NULL) == SLUICE_OK && w.n_tokens == v->n_tokens);
    for (uint32_t i = 0; i < w.n_tokens; i++) CHECK(sl_str_same(v->tokens[i], w.tokens[i]));
    CHECK(w.bos_id == v->bos_id && w.eos_id == v->eos_id && w.n_merges == v->n_merges);
    sl_gguf_close(g);
}

static void write_parts(const uint8_t *data, size_t size)
{
    for (int i = 0; i < PARTS; i++) {
        const uint8_t *end = memchr(data, 0, size);
        size_t n = end != NULL ? (size_t)(end - data) : size;

        write_file(names[i], n > 0 ? (const char *)data : "{}", n > 0 ? n : 2);
        n += end != NULL;
        data += n;
        size -= n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    struct sl_budget budget;
    struct sl_hf *hf = NULL;
    struct sl_vocab v;
    sluice_error e = {.code = 0};

    if (!made) make_folder();
    made = true;
    write_parts(size > 0 ? data : (const uint8_t *)"", size);
    sl_budget_init(&budget, BUDGET_BYTES);
    sluice_err err = sl_hf_open(folder, &budget, &e, &hf);
    CHECK(e.code == err && (err == SLUICE_OK) == (hf != NULL));
    if (hf != NULL) {
        check_keys(hf);
        check_tensors(hf);
        err = sl_hf_vocab(hf, &v, &e);
        CHECK(err == e.code);
        if (err == SLUICE_OK) {
            check_vocab(&v);
            check_metadata(hf, &v, &budget);
        }
    }
    if (err != SLUICE_OK) CHECK(strlen(e.text) > 0 && strchr(e.text, '\n') == NULL);
    sl_hf_close(hf);
    CHECK(sl_budget_used(&budget) == 0);
    return 0;
}
