/* A small random model with gated DeltaNet layers, attention and experts, written as a GGUF of
 * either family. Both describe the same network: their files differ in the order of value heads and
 * in whether beta and alpha share a tensor. */
#ifndef SL_TEST_DELTA_MODEL_H
#define SL_TEST_DELTA_MODEL_H

#include "tests/support/gguf_build.h"

#define DELTA_VOCAB 64u
#define DELTA_WIDTH 32u
#define DELTA_LAYERS 4u /* the third is attention */
#define DELTA_K_HEADS 2u
#define DELTA_V_HEADS 6u
#define DELTA_HEAD 16u
#define DELTA_TAPS 4u
#define DELTA_EXPERTS 8u
#define DELTA_FF 16u
#define DELTA_KEYS (DELTA_K_HEADS * DELTA_HEAD)
#define DELTA_VALUES (DELTA_V_HEADS * DELTA_HEAD)
#define DELTA_CHANNELS (2 * DELTA_KEYS + DELTA_VALUES)

/* The third is the first as early files had it: q, k, v and z of a key head together. */
enum delta_family { DELTA_QWEN3NEXT, DELTA_QWEN35MOE, DELTA_BY_HEAD };
#define DELTA_FAMILIES 3

struct delta_writer {
    struct gguf_build file, data;
    enum delta_family family;
    uint64_t rng;
};

/* In [-1, 1). */
static inline float delta_random(struct delta_writer *w)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return (float)(int32_t)(uint32_t)(w->rng >> 32) / 2147483648.0f;
}

struct delta_tensor {
    const char *name;
    uint32_t cols, rows, experts; /* rows, experts 0: none */
    float mean, spread;
};

/* A new tensor; returns its values, which may be changed until the next one. */
static inline float *delta_add(struct delta_writer *w, const struct delta_tensor *t)
{
    uint64_t dims[3] = {t->cols, t->rows, t->experts}, n = t->cols;
    uint32_t n_dims = t->experts ? 3 : t->rows ? 2 : 1;
    for (uint32_t i = 1; i < n_dims; i++) n *= dims[i];
    gb_pad(&w->data, 32);
    size_t at = w->data.n;
    gb_tensor_dims(&w->file, t->name, SL_TYPE_F32, at, dims, n_dims);
    for (uint64_t i = 0; i < n; i++) gb_f32(&w->data, t->mean + t->spread * delta_random(w));
    return (float *)(void *)(w->data.p + at);
}

static inline float *delta_matrix(struct delta_writer *w, uint32_t layer, const char *part,
                                  uint32_t cols, uint32_t rows)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, part);
    return delta_add(w, &(struct delta_tensor){name, cols, rows, 0, 0.0f, 0.35f});
}

static inline float *delta_vector(struct delta_writer *w, uint32_t layer, const char *part,
                                  uint32_t n, float mean)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%u.%s", layer, part);
    return delta_add(w, &(struct delta_tensor){name, n, 0, 0, mean, 0.3f});
}

/* Value heads of size floats each, made side by side, into the order of the file. */
static inline void delta_order(const struct delta_writer *w, float *heads, uint32_t size)
{
    static float copy[DELTA_V_HEADS * DELTA_HEAD * DELTA_WIDTH];
    uint32_t group = DELTA_V_HEADS / DELTA_K_HEADS;
    if (w->family != DELTA_QWEN35MOE) return;
    memcpy(copy, heads, DELTA_V_HEADS * size * sizeof *copy);
    for (uint32_t h = 0; h < DELTA_V_HEADS; h++)
        memcpy(heads + (h % group * DELTA_K_HEADS + h / group) * size, copy + h * size,
               size * sizeof *heads);
}

/* Beta and alpha of every value head, made by key head as one tensor holds them. */
static inline void delta_beta_alpha(struct delta_writer *w, uint32_t layer)
{
    static float both[2 * DELTA_V_HEADS * DELTA_WIDTH];
    uint32_t group = DELTA_V_HEADS / DELTA_K_HEADS, row = DELTA_WIDTH;
    for (size_t i = 0; i < SL_ARRAY_LEN(both); i++) both[i] = 0.35f * delta_random(w);
    if (w->family != DELTA_QWEN35MOE) {
        uint64_t rng = w->rng; /* the values of new tensors are replaced */
        memcpy(delta_matrix(w, layer, "ssm_ba", row, 2 * DELTA_V_HEADS), both, sizeof both);
        w->rng = rng;
        return;
    }
    for (uint32_t part = 0; part < 2; part++) {
        uint64_t rng = w->rng;
        float *m = delta_matrix(w, layer, part ? "ssm_alpha" : "ssm_beta", row, DELTA_V_HEADS);
        w->rng = rng;
        for (uint32_t h = 0; h < DELTA_V_HEADS; h++)
            memcpy(m + h * row, both + (h / group * 2 * group + part * group + h % group) * row,
                   row * sizeof *m);
        delta_order(w, m, row);
    }
}

/* Rows of q, k, v and z, of whole layers, into one tensor by key head. */
static inline void delta_by_head(struct delta_writer *w, uint32_t l, const float *qkv,
                                 const float *z)
{
    uint32_t key = DELTA_HEAD * DELTA_WIDTH, value = DELTA_VALUES / DELTA_K_HEADS * DELTA_WIDTH;
    uint64_t rng = w->rng;
    float *m = delta_matrix(w, l, "ssm_in", DELTA_WIDTH, DELTA_CHANNELS + DELTA_VALUES);
    w->rng = rng;
    for (uint32_t h = 0; h < DELTA_K_HEADS; h++, m += 2 * key + 2 * value) {
        memcpy(m, qkv + h * key, key * sizeof *m);
        memcpy(m + key, qkv + (DELTA_K_HEADS + h) * key, key * sizeof *m);
        memcpy(m + 2 * key, qkv + 2 * DELTA_K_HEADS * key + h * value, value * sizeof *m);
        memcpy(m + 2 * key + value, z + h * value, value * sizeof *m);
    }
}

static inline void delta_projections(struct delta_writer *w, uint32_t l)
{
    static float qkv[DELTA_CHANNELS * DELTA_WIDTH], z[DELTA_VALUES * DELTA_WIDTH];
    for (size_t i = 0; i < SL_ARRAY_LEN(qkv); i++) qkv[i] = 0.35f * delta_random(w);
    for (size_t i = 0; i < SL_ARRAY_LEN(z); i++) z[i] = 0.35f * delta_random(w);
    delta_order(w, qkv + 2 * DELTA_KEYS * DELTA_WIDTH, DELTA_HEAD * DELTA_WIDTH);
    delta_order(w, z, DELTA_HEAD * DELTA_WIDTH);
    if (w->family == DELTA_BY_HEAD) {
        delta_by_head(w, l, qkv, z);
        return;
    }
    uint64_t rng = w->rng;
    memcpy(delta_matrix(w, l, "attn_qkv", DELTA_WIDTH, DELTA_CHANNELS), qkv, sizeof qkv);
    memcpy(delta_matrix(w, l, "attn_gate", DELTA_WIDTH, DELTA_VALUES), z, sizeof z);
    w->rng = rng;
}

static inline void delta_recurrent(struct delta_writer *w, uint32_t l)
{
    delta_projections(w, l);
    delta_beta_alpha(w, l);
    float *m = delta_matrix(w, l, "ssm_conv1d", DELTA_TAPS, DELTA_CHANNELS);
    delta_order(w, m + 2 * DELTA_KEYS * DELTA_TAPS, DELTA_HEAD * DELTA_TAPS);
    delta_order(w, delta_vector(w, l, "ssm_a", DELTA_V_HEADS, -0.5f), 1);
    delta_order(w, delta_vector(w, l, "ssm_dt.bias", DELTA_V_HEADS, 0.0f), 1);
    (void)delta_vector(w, l, "ssm_norm.weight", DELTA_HEAD, 1.0f);
    m = delta_matrix(w, l, "ssm_out", DELTA_VALUES, DELTA_WIDTH);
    for (uint32_t r = 0; r < DELTA_WIDTH; r++) delta_order(w, m + r * DELTA_VALUES, DELTA_HEAD);
}

static inline void delta_attention(struct delta_writer *w, uint32_t l)
{
    (void)delta_matrix(w, l, "attn_q", DELTA_WIDTH, 4 * DELTA_HEAD); /* two heads and their gates */
    (void)delta_matrix(w, l, "attn_k", DELTA_WIDTH, DELTA_HEAD);
    (void)delta_matrix(w, l, "attn_v", DELTA_WIDTH, DELTA_HEAD);
    (void)delta_matrix(w, l, "attn_output", 2 * DELTA_HEAD, DELTA_WIDTH);
    (void)delta_vector(w, l, "attn_q_norm.weight", DELTA_HEAD, 1.0f);
    (void)delta_vector(w, l, "attn_k_norm.weight", DELTA_HEAD, 1.0f);
}

static inline void delta_experts(struct delta_writer *w, uint32_t l)
{
    static const char *const parts[] = {"gate", "up", "down"};
    (void)delta_matrix(w, l, "ffn_gate_inp", DELTA_WIDTH, DELTA_EXPERTS);
    for (int i = 0; i < 3; i++) {
        uint32_t cols = i == 2 ? DELTA_FF : DELTA_WIDTH, rows = i == 2 ? DELTA_WIDTH : DELTA_FF;
        char name[96];
        snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", l, parts[i]);
        (void)delta_add(w, &(struct delta_tensor){name, cols, rows, DELTA_EXPERTS, 0.0f, 0.35f});
        char shared[32];
        snprintf(shared, sizeof shared, "ffn_%s_shexp", parts[i]);
        (void)delta_matrix(w, l, shared, cols, rows);
    }
    (void)delta_vector(w, l, "ffn_gate_inp_shexp.weight", DELTA_WIDTH, 0.0f);
}

static inline void delta_number(struct delta_writer *w, const char *suffix, uint32_t value)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", w->family == DELTA_QWEN35MOE ? "qwen35moe" : "qwen3next",
             suffix);
    gb_kv_u32(&w->file, key, value);
}

static inline void delta_metadata(struct delta_writer *w)
{
    bool next = w->family != DELTA_QWEN35MOE;
    gb_kv_str(&w->file, "general.architecture", next ? "qwen3next" : "qwen35moe");
    delta_number(w, "block_count", DELTA_LAYERS);
    delta_number(w, "context_length", 256);
    delta_number(w, "embedding_length", DELTA_WIDTH);
    delta_number(w, "attention.head_count", 2);
    delta_number(w, "attention.head_count_kv", 1);
    delta_number(w, "attention.key_length", DELTA_HEAD);
    delta_number(w, "attention.value_length", DELTA_HEAD);
    delta_number(w, "rope.dimension_count", DELTA_HEAD / 2);
    delta_number(w, "expert_count", DELTA_EXPERTS);
    delta_number(w, "expert_used_count", 2);
    delta_number(w, "ssm.conv_kernel", DELTA_TAPS);
    delta_number(w, "ssm.state_size", DELTA_HEAD);
    delta_number(w, "ssm.group_count", DELTA_K_HEADS);
    delta_number(w, "ssm.time_step_rank", DELTA_V_HEADS);
    delta_number(w, "ssm.inner_size", DELTA_VALUES);
    gb_kv_f32(&w->file,
              next ? "qwen3next.attention.layer_norm_rms_epsilon"
                   : "qwen35moe.attention.layer_norm_rms_epsilon",
              1e-6f);
    gb_kv_str(&w->file, "tokenizer.ggml.model", "gpt2");
    gb_kv_str(&w->file, "tokenizer.ggml.pre", "qwen2");
    gb_kv_array(&w->file, "tokenizer.ggml.tokens", SL_GGUF_STRING, DELTA_VOCAB);
    for (uint32_t i = 0; i < DELTA_VOCAB; i++)
        gb_str_n(&w->file,
                 &"!\"#$%&'()*+,-./0123456789:;<=>?"
                  "@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"[i],
                 1);
    gb_kv_array(&w->file, "tokenizer.ggml.merges", SL_GGUF_STRING, 0);
    gb_kv_u32(&w->file, "tokenizer.ggml.eos_token_id", DELTA_VOCAB - 1);
}

/* Writes the model; the same seed is the same network. */
static inline bool delta_write(enum delta_family family, uint64_t seed, const char *path)
{
    struct delta_writer w = {.family = family, .rng = seed};
    gb_begin(&w.file, 3);
    memset(&w.data, 0, sizeof w.data);
    delta_metadata(&w);
    (void)delta_add(
        &w, &(struct delta_tensor){"token_embd.weight", DELTA_WIDTH, DELTA_VOCAB, 0, 0.0f, 1.7f});
    (void)delta_add(
        &w, &(struct delta_tensor){"output.weight", DELTA_WIDTH, DELTA_VOCAB, 0, 0.0f, 1.0f});
    (void)delta_add(&w,
                    &(struct delta_tensor){"output_norm.weight", DELTA_WIDTH, 0, 0, 1.0f, 0.3f});
    for (uint32_t l = 0; l < DELTA_LAYERS; l++) {
        (void)delta_vector(&w, l, "attn_norm.weight", DELTA_WIDTH, 1.0f);
        if (l == 2)
            delta_attention(&w, l);
        else
            delta_recurrent(&w, l);
        (void)delta_vector(&w, l, "post_attention_norm.weight", DELTA_WIDTH, 1.0f);
        delta_experts(&w, l);
    }
    gb_pad(&w.file, 32);
    gb_bytes(&w.file, w.data.p, w.data.n);
    bool ok = gb_write(&w.file, path);
    gb_end(&w.file);
    gb_end(&w.data);
    return ok;
}

#endif
