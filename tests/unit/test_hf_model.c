/* Hugging Face folders as GGUF models. Right is what llama.cpp's converter made of the same folders
 * (tests/golden/safetensors/<family>/expected.txt, written by
 * tools/dev/make_safetensors_golden.py): the same keys and values, the same tensors to the bit, the
 * same vocabulary. Then folders with one thing changed, which must be refused by name or described
 * differently. */
#define _GNU_SOURCE /* mkdtemp, strsep */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/half.h"
#include "formats/hf_model.h"
#include "formats/json_in.h"

#define BUDGET_BYTES (4u << 20)
#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/safetensors/"
#define PATH_BYTES 512
#define TEXT_MAX (1 << 16)
#define VALUES_MAX 8

static struct sl_budget budget;
static sluice_error error;
static char folder[] = "/tmp/sluice_test_hf_XXXXXX";

static const char *const families[] = {"qwen3_moe",  "qwen2_moe",        "olmoe",      "mixtral",
                                       "granitemoe", "granitemoeshared", "llama",      "qwen3",
                                       "qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe"};
static const char *const file_names[] = {"config.json",           "generation_config.json",
                                         "model.safetensors",     "tokenizer.json",
                                         "tokenizer_config.json", "chat_template.jinja"};

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, BUDGET_BYTES);
    memset(&error, 0, sizeof error);
    return 0;
}

static int tear_down(void **state)
{
    char path[PATH_BYTES];

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(file_names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, file_names[i]);
        unlink(path);
    }
    assert_int_equal(sl_budget_used(&budget), 0);
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *read_text(const char *family, const char *name)
{
    static char text[TEXT_MAX];
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s/%s", family, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    assert_true(n < sizeof text - 1);
    fclose(f);
    text[n] = '\0';
    return text;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

/* The scratch folder becomes the family's, with `from` in its config replaced by `to`. */
static void change(const char *family, const char *from, const char *to)
{
    char target[PATH_BYTES], link[PATH_BYTES], changed[TEXT_MAX];
    char *text = read_text(family, "config.json"), *at = strstr(text, from);

    if (at == NULL) fail_msg("%s has no %s", family, from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_text("config.json", changed);
    snprintf(target, sizeof target, GOLDEN "%s/model.safetensors", family);
    snprintf(link, sizeof link, "%s/model.safetensors", folder);
    unlink(link);
    assert_int_equal(symlink(target, link), 0);
}

static struct sl_hf *open_folder(const char *path)
{
    struct sl_hf *hf = NULL;

    memset(&error, 0, sizeof error);
    if (sl_hf_open(path, &budget, &error, &hf) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(error.code, 0); /* success leaves it alone */
    return hf;
}

static struct sl_hf *open_family(const char *family)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s", family);
    return open_folder(path);
}

static void assert_refused(sluice_err wanted, const char *part)
{
    struct sl_hf *hf = NULL;
    sluice_err err = sl_hf_open(folder, &budget, &error, &hf);

    if (err != wanted) fail_msg("%s, wanted '%s': %s", sl_err_name(err), part, error.text);
    assert_null(hf);
    if (strstr(error.text, part) == NULL) fail_msg("'%s' lacks '%s'", error.text, part);
    assert_int_equal(sl_hf_open(folder, &budget, NULL, &hf), wanted);
}

/* ---- what the converter wrote ---------------------------------------------------------------- */

/* A value of expected.txt, parsed in place. */
static struct sl_json *parse(char *json)
{
    struct sl_json *j = NULL;

    if (sl_json_parse(json, strlen(json), "expected.txt", &budget, &error, &j) != SLUICE_OK)
        fail_msg("%s", error.text);
    return j;
}

/* Floats stand there as the digits of their bits. */
static bool same_float(struct sl_json_value v, float f)
{
    char digits[16];
    struct sl_str s;

    snprintf(digits, sizeof digits, "%08" PRIx32, sl_f32_bits(f));
    return sl_json_str(v, &s) && sl_str_eq(s, digits);
}

static bool same_list(const struct sl_hf_key *k, struct sl_json_value v)
{
    struct sl_json_walk w = sl_json_walk(v);
    int64_t n = 0;

    for (uint32_t i = 0; i < k->list.n; i++)
        if (!sl_json_step(&w) || !sl_json_i64(w.value, &n) || n != k->list.v[i]) return false;
    return sl_json_count(v) == k->list.n;
}

static bool same_value(const struct sl_hf_key *k, struct sl_json_value v)
{
    uint64_t n = 0;
    int64_t i = 0;
    struct sl_str s = {"", 0};
    bool b = false;

    switch (k->kind) {
    case SL_GGUF_U32:
        return sl_json_u64(v, &n) && n == k->u32;
    case SL_GGUF_I32:
        return sl_json_i64(v, &i) && i == k->i32;
    case SL_GGUF_F32:
        return same_float(v, k->f32);
    case SL_GGUF_BOOL:
        return sl_json_bool(v, &b) && b == k->flag;
    case SL_GGUF_ARRAY:
        return same_list(k, v);
    default:
        return sl_json_str(v, &s) && sl_str_same(s, k->str);
    }
}

/* Keys about the file rather than the model; the vocabulary's are compared elsewhere. */
static bool is_compared(const char *name)
{
    static const char *const others[] = {"general.type", "general.name", "general.size_label",
                                         "general.file_type", "general.quantization_version"};

    for (size_t i = 0; i < SL_ARRAY_LEN(others); i++)
        if (strcmp(name, others[i]) == 0) return false;
    return strncmp(name, "tokenizer.", 10) != 0;
}

static void test_keys__of_every_family__are_the_converters(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++) {
        struct sl_hf *hf = open_family(families[i]);
        char *text = read_text(families[i], "expected.txt"), *line;
        char name[128], kind[32];
        uint32_t n = 0;
        int at = 0;

        while ((line = strsep(&text, "\n")) != NULL) {
            if (sscanf(line, "key %127s %31s %n", name, kind, &at) != 2) continue;
            if (!is_compared(name)) continue;
            const struct sl_hf_key *k = sl_hf_find_key(hf, name);
            struct sl_json *j = parse(line + at);

            if (k == NULL || !same_value(k, sl_json_root(j)))
                fail_msg("%s: %s is %s", families[i], name, k == NULL ? "missing" : "different");
            sl_json_close(j);
            n++;
        }
        for (uint32_t k = 0; k < sl_hf_n_keys(hf) && n != sl_hf_n_keys(hf); k++)
            print_message("%.*s\n", (int)sl_hf_key(hf, k)->name.n, sl_hf_key(hf, k)->name.p);
        assert_int_equal(n, sl_hf_n_keys(hf));
        assert_true(n > 10);
        sl_hf_close(hf);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* FNV-1a of all rows, read a few at a time. */
static uint64_t hash_rows(const struct sl_hf *hf, const struct sl_hf_tensor *t, uint64_t step)
{
    static float out[1 << 14];
    uint64_t rows = t->dims[1] * t->dims[2], h = 0xcbf29ce484222325u;

    assert_true(step * t->dims[0] <= SL_ARRAY_LEN(out));
    for (uint64_t r = 0; r < rows; r += step) {
        uint64_t n = rows - r < step ? rows - r : step;

        if (sl_hf_read_rows(hf, t, r, n, out, &error) != SLUICE_OK) fail_msg("%s", error.text);
        for (uint64_t i = 0; i < n * t->dims[0] * sizeof *out; i++)
            h = (h ^ ((unsigned char *)out)[i]) * 0x100000001b3u;
    }
    return h;
}

static const struct sl_hf_tensor *find_tensor(const struct sl_hf *hf, const char *name)
{
    for (uint32_t i = 0; i < sl_hf_n_tensors(hf); i++)
        if (sl_str_eq(sl_hf_tensor(hf, i)->name, name)) return sl_hf_tensor(hf, i);
    return NULL;
}

static void assert_tensor(const struct sl_hf *hf, const char *name, const char *dims, uint64_t hash)
{
    const struct sl_hf_tensor *t = find_tensor(hf, name);
    char shown[64];
    int n = 0;

    if (t == NULL) fail_msg("%s is missing", name);
    for (uint32_t i = 0; i < t->n_dims; i++)
        n += snprintf(shown + n, sizeof shown - (size_t)n, "%s%" PRIu64, i > 0 ? "x" : "",
                      t->dims[i]);
    assert_string_equal(shown, dims);
    for (uint64_t step = 1; step <= 40; step += 13)
        if (hash_rows(hf, t, step) != hash) fail_msg("%s differs, %d rows a time", name, (int)step);
}

/* Floats that the converter computes in float32 arithmetic: nearly the same. False: no such line.
 */
static bool compare_values(const struct sl_hf *hf, const char *line)
{
    uint32_t bits, n = 0;
    float out[VALUES_MAX];
    char name[128];
    int at = 0, more = 0;

    if (sscanf(line, "values %127s %" SCNu32 "%n", name, &n, &at) != 2) return false;
    const struct sl_hf_tensor *t = find_tensor(hf, name);
    if (t == NULL) fail_msg("%s is missing", name);
    assert_true(t->n_dims == 1 && t->dims[0] == n && n <= VALUES_MAX && t->dtype == SL_ST_F32);
    assert_int_equal(sl_hf_read_rows(hf, t, 0, 1, out, &error), SLUICE_OK);
    for (uint32_t i = 0; i < n; i++, at += more) {
        assert_int_equal(sscanf(line + at, " %" SCNx32 "%n", &bits, &more), 1);
        float ratio = out[i] / sl_f32_from_bits(bits);
        if (!(ratio > 1 - 1e-6f && ratio < 1 + 1e-6f)) fail_msg("%s: %g", name, (double)out[i]);
    }
    if (strcmp(name, "rope_freqs.weight") == 0) /* one of them in between */
        assert_true(out[0] == 1.0f && out[1] > 1.01f && out[1] < 7.9f);
    return true;
}

static void test_tensors__of_every_family__are_the_converters_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++) {
        struct sl_hf *hf = open_family(families[i]);
        char *text = read_text(families[i], "expected.txt"), *line;
        char name[128], dims[64];
        uint64_t hash = 0;
        uint32_t n = 0;

        while ((line = strsep(&text, "\n")) != NULL) {
            n += compare_values(hf, line);
            if (sscanf(line, "tensor %127s %63s %" SCNx64, name, dims, &hash) != 3) continue;
            assert_tensor(hf, name, dims, hash);
            n++;
        }
        assert_int_equal(n, sl_hf_n_tensors(hf));
        assert_true(n > 20);
        sl_hf_close(hf);
    }
}

static void test_tensors__order__is_model_then_layers(void **state)
{
    (void)state;
    struct sl_hf *hf = open_family("mixtral");

    assert_true(sl_str_eq(sl_hf_tensor(hf, 0)->name, "token_embd.weight"));
    assert_true(sl_str_eq(sl_hf_tensor(hf, 1)->name, "output_norm.weight"));
    assert_true(sl_str_eq(sl_hf_tensor(hf, 2)->name, "output.weight"));
    assert_true(sl_str_eq(sl_hf_tensor(hf, 3)->name, "blk.0.attn_norm.weight"));
    assert_int_equal(sl_hf_tensor(hf, 3)->dtype, SL_ST_F16);
    assert_ptr_not_equal(sl_hf_weights(hf), NULL);
    sl_hf_close(hf);
}

/* A model in the scratch folder whose only tensors are these. */
static void write_weights(const char *header, const float *data, size_t floats)
{
    unsigned char file[4096] = {0};
    size_t n = strlen(header);

    assert_true(8 + n + 4 * floats <= sizeof file);
    file[0] = (unsigned char)n;
    file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, header, n);
    memcpy(file + 8 + n, data, 4 * floats);
    write_file("model.safetensors", file, 8 + n + 4 * floats);
}

static void test_tensors__biases_of_q__are_permuted_too(void **state)
{
    (void)state;
    static const float data[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7};
    static const float wanted[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    float out[8];

    write_text("config.json", "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":8,"
                              "\"num_attention_heads\":2,\"max_position_embeddings\":16}");
    write_weights("{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1,8],\"data_offsets\":[0,32]},"
                  "\"model.layers.0.self_attn.q_proj.bias\":{\"dtype\":\"F32\",\"shape\":[8],"
                  "\"data_offsets\":[32,64]}}",
                  data, 16);
    struct sl_hf *hf = open_folder(folder);
    const struct sl_hf_tensor *t = find_tensor(hf, "blk.0.attn_q.bias");
    assert_non_null(t);
    assert_int_equal(sl_hf_read_rows(hf, t, 0, 1, out, &error), SLUICE_OK);
    assert_memory_equal(out, wanted, sizeof wanted);
    assert_int_equal(sl_hf_read_rows(hf, t, 0, 0, out, &error), SLUICE_OK);
    assert_int_equal(sl_hf_read_rows(hf, t, 1, 0, out, &error), SLUICE_OK);
    assert_memory_equal(out, wanted, sizeof wanted);
    sl_hf_close(hf);
}

/* ---- configs that are refused ---------------------------------------------------------------- */

struct refusal {
    const char *family, *from, *to;
    sluice_err code;
    const char *part;
};

static const struct refusal refusals[] = {
    {"llama", "\"model_type\": \"llama\"", "\"model_type\": \"bert\"", SLUICE_E_UNSUPPORTED,
     "model_type 'bert' is not supported by this version, which knows qwen3_moe, "},
    {"llama", "\"silu\"", "\"gelu\"", SLUICE_E_UNSUPPORTED, "the activation is gelu"},
    {"mixtral", "\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", SLUICE_E_UNSUPPORTED,
     "RoPE has the scaling longrope"},
    {"mixtral", "\"rope_type\": \"default\"", "\"rope_type\": \"default\", \"mscale\": 2",
     SLUICE_E_UNSUPPORTED, "RoPE has the parameter mscale"},
    {"mixtral", "\"rope_type\": \"default\"",
     "\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5", SLUICE_E_UNSUPPORTED,
     "a part of each head"},
    {"mixtral", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\"", SLUICE_E_FORMAT,
     "RoPE scaling 'linear' has no 'factor'"},
    {"mixtral", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 4",
     SLUICE_E_FORMAT, "'original_max_position_embeddings'"},
    {"llama", "\"rope_parameters\": {", "\"rope_parameters\": 3, \"x\": {", SLUICE_E_FORMAT,
     "rope_parameters or rope_scaling is no object"},
    {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", SLUICE_E_FORMAT,
     "'num_hidden_layers' is absent or 0"},
    {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": \"two\"", SLUICE_E_FORMAT,
     "'num_hidden_layers' is a string, wanted a whole number"},
    {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000", SLUICE_E_LIMIT,
     "1000 layers"},
    {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", SLUICE_E_UNSUPPORTED,
     "'model.layers.1.input_layernorm.weight' has no place"},
    {"llama", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": NaN", SLUICE_E_FORMAT,
     "'rms_norm_eps' is a number, wanted a finite number"},
    {"llama", "\"num_attention_heads\": 4", "\"num_attention_heads\": 3", SLUICE_E_FORMAT,
     "does not divide into the heads"},
    {"llama", "\"use_cache\"", "\"quantization_config\": {\"quant_method\": \"gptq\"}, \"x\"",
     SLUICE_E_UNSUPPORTED, "config.json: the checkpoint is quantized already (gptq)"},
    {"llama", "\"use_cache\"", "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"x\"",
     SLUICE_E_UNSUPPORTED, "quantized already (fp8)"},
    {"llama", "{", "[", SLUICE_E_FORMAT, "JSON"},
    {"qwen3", "\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", SLUICE_E_UNSUPPORTED,
     "RoPE has the scaling llama3"},
    {"llama", "\"factor\": 8.0", "\"factor\": 0", SLUICE_E_FORMAT,
     "RoPE scaling 'llama3' with factor 0, "},
    {"llama", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1", SLUICE_E_FORMAT,
     "high_freq_factor 1, "},
    {"qwen3", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", SLUICE_E_FORMAT,
     "no tensor 'lm_head.weight'"},
    {"mixtral", "\"num_local_experts\": 3", "\"num_local_experts\": 4", SLUICE_E_FORMAT,
     "layer 0 has no expert 3 of 4"},
    {"mixtral", "\"num_local_experts\": 3", "\"num_local_experts\": 2", SLUICE_E_UNSUPPORTED,
     "block_sparse_moe.experts.2.w1.weight' has no place"},
    {"mixtral", "\"num_local_experts\": 3", "\"num_local_experts\": 0", SLUICE_E_FORMAT,
     "num_experts"},
    {"mixtral", "\"num_local_experts\": 3", "\"num_local_experts\": 3, \"num_experts\": 4",
     SLUICE_E_FORMAT, "'num_experts' is 4, but another member says 3"},
    {"granitemoe", "\"attention_multiplier\": 0.0078125", "\"attention_multiplier\": 0",
     SLUICE_E_FORMAT, "'attention_multiplier' is 0"},
    {"qwen3_moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0]", SLUICE_E_UNSUPPORTED,
     "'mlp_only_layers' names layers"},
    {"qwen3_moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2", SLUICE_E_UNSUPPORTED,
     "'decoder_sparse_step' is not 1"},
    {"qwen2_moe", "\"full_attention\"", "\"sliding_attention\"", SLUICE_E_UNSUPPORTED,
     "'layer_types' names layers other than full_attention"},
    {"qwen2_moe", "\"layer_types\": [", "\"layer_types\": 1, \"x\": [", SLUICE_E_UNSUPPORTED,
     "'layer_types' is no list"},
    {"qwen3_moe", "\"use_cache\"", "\"rope_scaling\": {\"type\": \"odd\"}, \"x\"",
     SLUICE_E_UNSUPPORTED, "'rope_scaling' says something else"},
    {"qwen3_moe", "\"use_cache\"", "\"rope_scaling\": \"linear\", \"x\"", SLUICE_E_UNSUPPORTED,
     "'rope_scaling' says something else"},
    {"qwen3_moe", "\"use_cache\"", "\"rope_scaling\": {\"factor\": 4}, \"x\"", SLUICE_E_UNSUPPORTED,
     "'rope_scaling' says something else"},
    {"qwen2_moe", "\"moe_intermediate_size\": 8", "\"moe_intermediate_size\": 9", SLUICE_E_FORMAT,
     "has 8 rows, and by 'moe_intermediate_size' it would have 9"},
    {"mixtral", "\"intermediate_size\": 20", "\"intermediate_size\": 21", SLUICE_E_FORMAT,
     "has 20 rows, and by 'intermediate_size' it would have 21"},
    {"qwen2_moe", "\"hidden_size\": 16", "\"hidden_size\": 17", SLUICE_E_FORMAT,
     "has 16 columns, and by 'hidden_size' it would have 17"},
    {"qwen3", "\"num_attention_heads\": 4", "\"num_attention_heads\": 2", SLUICE_E_FORMAT,
     "by 'num_attention_heads' it would have 16"},
    {"qwen3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", SLUICE_E_FORMAT,
     "by 'num_key_value_heads' it would have 32"},
    {"qwen2_moe", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", SLUICE_E_FORMAT,
     "'num_hidden_layers' is 3, and layer 2 (from 0) has no tensors"},
    {"qwen2_moe", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 5", SLUICE_E_FORMAT,
     "'num_experts_per_tok' is 5, of 4 experts"},
    {"qwen3", "\"attention_bias\": false", "\"attention_bias\": true", SLUICE_E_UNSUPPORTED,
     "by 'attention_bias' queries have a bias, and 0 of 2"},
    {"qwen2_moe", "\"qkv_bias\": true", "\"qkv_bias\": false", SLUICE_E_UNSUPPORTED,
     "by 'qkv_bias' queries have no bias, and 2 of 2"},
    {"qwen2_moe", "\"qkv_bias\": true", "\"attention_bias\": false", SLUICE_E_UNSUPPORTED,
     "by 'attention_bias' queries have no bias"},
    {"qwen3_next", "\"use_cache\"", "\"attn_output_gate\": false, \"x\"", SLUICE_E_UNSUPPORTED,
     "'attn_output_gate': wanted true"},
    {"qwen3_next", "\"linear_attention\",", "\"full_attention\",", SLUICE_E_UNSUPPORTED,
     "'layer_types': wanted linear_attention, and full_attention in equal steps"},
    {"qwen3_next", "\"linear_attention\",", "", SLUICE_E_UNSUPPORTED, "'layer_types': wanted"},
    {"qwen3_5_moe_text", "\"layer_types\": [", "\"layer_types\": [], \"x\": [", SLUICE_E_FORMAT,
     "'layer_types': wanted a kind for each layer"},
    {"qwen3_next", "\"linear_value_head_dim\": 16", "\"linear_value_head_dim\": 8",
     SLUICE_E_UNSUPPORTED, "'linear_value_head_dim': wanted what linear_key_head_dim is"},
    {"qwen3_next", "\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 5",
     SLUICE_E_FORMAT, "wanted a multiple of linear_num_key_heads"},
    {"qwen3_next", "\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 0", SLUICE_E_LIMIT,
     "'linear_num_value_heads' is 0, wanted 1 to 512"},
    {"qwen3_next", "\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 4",
     SLUICE_E_FORMAT, "in_proj_qkvz.weight' does not divide into the heads"},
    {"qwen3_5_moe_text", "\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 4",
     SLUICE_E_FORMAT, "in_proj_qkv.weight' does not divide into the heads"},
    {"qwen3_5_moe", "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 3", SLUICE_E_FORMAT,
     "in_proj_qkv.weight' does not divide into the heads"},
    {"qwen3_5_moe", "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3",
     SLUICE_E_FORMAT, "has 4 columns, and by 'linear_conv_kernel_dim' it would have 3"},
    {"qwen3_next", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1.5",
     SLUICE_E_FORMAT, "'partial_rotary_factor': wanted above 0"},
    {"qwen3_next", "\"rope_type\"", "\"mrope_section\": [1, 1, 0], \"rope_type\"",
     SLUICE_E_UNSUPPORTED, "RoPE has the parameter mrope_section"},
    {"qwen3_5_moe", "\"rope_type\": \"default\"",
     "\"mrope_section\": [1, \"x\", 0], \"rope_type\": \"default\"", SLUICE_E_FORMAT,
     "'mrope_section': wanted three or four numbers"},
    {"qwen3_5_moe", "\"text_config\": {", "\"text_config\": 1, \"x\": {", SLUICE_E_FORMAT,
     "there is no object 'text_config'"},
    {"qwen3_5_moe", "\"model_type\": \"qwen3_5_moe\"", "\"model_type\": \"qwen3_5_moe_text\"",
     SLUICE_E_FORMAT, "'num_hidden_layers' is absent"},
};

static void test_config__not_computed_or_broken__is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(refusals); i++) {
        change(refusals[i].family, refusals[i].from, refusals[i].to);
        assert_refused(refusals[i].code, refusals[i].part);
    }
}

static void test_tensors__that_are_not_run__are_left_out_and_counted(void **state)
{
    (void)state;
    struct sl_hf *hf = open_family("qwen3_5_moe");
    struct sl_hf_left_out seen = sl_hf_left_out(hf, SL_HF_VISION);
    struct sl_hf_left_out predicting = sl_hf_left_out(hf, SL_HF_PREDICTION);

    assert_true(seen.n > 10 && seen.bytes > 100);
    assert_int_equal(predicting.n, 2);
    assert_int_equal(predicting.bytes, 2 * (16 * 32 + 16));
    sl_hf_close(hf);
    hf = open_family("qwen3_next");
    assert_int_equal(sl_hf_left_out(hf, SL_HF_VISION).n, 0);
    assert_int_equal(sl_hf_left_out(hf, SL_HF_PREDICTION).n, 0);
    sl_hf_close(hf);
}

static void test_folder__without_config__says_so(void **state)
{
    (void)state;
    assert_refused(SLUICE_E_NOT_FOUND, "there is no config.json in ");
}

static void test_tensors__two_spellings__are_refused(void **state)
{
    (void)state;
    static const float data[3] = {1, 2, 3};

    write_text("config.json", "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":8,"
                              "\"num_attention_heads\":2,\"max_position_embeddings\":16}");
    write_weights(
        "{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"model.layers.0.mlp.gate.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[4,8]},"
        "\"model.layers.0.block_sparse_moe.gate.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[8,12]}}",
        data, 3);
    assert_refused(SLUICE_E_FORMAT, "two tensors both stand for blk.0.ffn_gate_inp.weight");
}

/* ---- configs that depart --------------------------------------------------------------------- */

static void assert_f32(const struct sl_hf *hf, const char *name, float wanted)
{
    const struct sl_hf_key *k = sl_hf_find_key(hf, name);

    if (k == NULL || k->kind != SL_GGUF_F32 || k->f32 != wanted) fail_msg("%s", name);
}

static void test_config__topk_not_normalized__is_said(void **state)
{
    (void)state;
    change("olmoe", "\"norm_topk_prob\": false", "\"norm_topk_prob\": true");
    struct sl_hf *hf = open_folder(folder);
    const struct sl_hf_key *k = sl_hf_find_key(hf, "olmoe.expert_weights_norm");
    assert_true(k != NULL && k->kind == SL_GGUF_BOOL && k->flag);
    sl_hf_close(hf);
}

static void test_config__yarn_window_and_clamp__are_keys(void **state)
{
    (void)state;
    change("olmoe", "\"clip_qkv\": null", "\"clip_qkv\": 8.0, \"sliding_window\": 100");
    struct sl_hf *hf = open_folder(folder);
    const struct sl_hf_key *k = sl_hf_find_key(hf, "olmoe.attention.sliding_window");
    assert_true(k != NULL && k->u32 == 100);
    assert_f32(hf, "olmoe.attention.clamp_kqv", 8.0f);
    sl_hf_close(hf);

    change("mixtral", "\"rope_type\": \"default\"",
           "\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 128,"
           "\"beta_fast\": 16");
    hf = open_folder(folder);
    k = sl_hf_find_key(hf, "llama.rope.scaling.type");
    assert_true(k != NULL && sl_str_eq(k->str, "yarn"));
    k = sl_hf_find_key(hf, "llama.rope.scaling.original_context_length");
    assert_true(k != NULL && k->u32 == 128);
    assert_f32(hf, "llama.rope.scaling.factor", 4.0f);
    assert_f32(hf, "llama.rope.scaling.yarn_beta_fast", 16.0f);
    assert_f32(hf, "llama.rope.freq_base", 1000000.0f);
    sl_hf_close(hf);
}

static void test_config__blocks_of_eight_bits__are_read_with_their_scales(void **state)
{
    (void)state;
    /* four ones; two scales; a norm, so that there is a layer */
    const float data[7] = {sl_f32_from_bits(0x38383838), 2, 3, 1, 1, 1, 1};
    float out[4];

    write_text("config.json",
               "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":4,"
               "\"num_attention_heads\":2,\"max_position_embeddings\":16,\"quantization_config\":"
               "{\"quant_method\":\"fp8\",\"weight_block_size\":[1,2]}}");
    write_weights("{\"lm_head.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,4],"
                  "\"data_offsets\":[0,4]},"
                  "\"lm_head.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,2],"
                  "\"data_offsets\":[4,12]},"
                  "\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"F32\",\"shape\":[4],"
                  "\"data_offsets\":[12,28]}}",
                  data, 7);
    struct sl_hf *hf = open_folder(folder);
    assert_int_equal(sl_hf_n_tensors(hf), 2);
    assert_int_equal(sl_hf_read_rows(hf, sl_hf_tensor(hf, 0), 0, 1, out, &error), SLUICE_OK);
    assert_true(out[0] == 2 && out[1] == 2 && out[2] == 3 && out[3] == 3);
    sl_hf_close(hf);
}

static void test_config__silent__takes_the_familys_defaults(void **state)
{
    (void)state;
    change("mixtral", "\"rope_parameters\": {", "\"old_rope\": {");
    struct sl_hf *hf = open_folder(folder);
    assert_f32(hf, "llama.rope.freq_base", 1e6f);
    sl_hf_close(hf);
    change(
        "mixtral", "\"rope_parameters\": {",
        "\"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"x\": {");
    hf = open_folder(folder);
    assert_f32(hf, "llama.rope.freq_base", 5e5f);
    assert_f32(hf, "llama.rope.scaling.factor", 2.0f);
    sl_hf_close(hf);
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static void assert_strings(struct sl_json_value v, const struct sl_str *list, uint32_t n)
{
    struct sl_json_walk w = sl_json_walk(v);
    struct sl_str s = {"", 0};

    assert_int_equal(sl_json_count(v), n);
    for (uint32_t i = 0; sl_json_step(&w); i++) {
        assert_true(sl_json_str(w.value, &s));
        if (!sl_str_same(s, list[i])) fail_msg("%u: %.*s", i, (int)list[i].n, list[i].p);
    }
}

static void assert_kinds(struct sl_json_value v, const struct sl_vocab *vocab)
{
    struct sl_json_walk w = sl_json_walk(v);
    uint64_t kind = 0;

    assert_int_equal(sl_json_count(v), vocab->n_tokens);
    for (uint32_t i = 0; sl_json_step(&w); i++)
        assert_true(sl_json_u64(w.value, &kind) && kind == vocab->kinds[i]);
}

/* One key of the vocabulary. False: a key that is not compared. */
static bool compare_vocab(const char *name, struct sl_json_value v, const struct sl_vocab *vocab)
{
    const char *key = name + strlen("tokenizer.");
    struct sl_str s = {"", 0};
    uint64_t id = 0;

    (void)sl_json_str(v, &s);
    (void)sl_json_u64(v, &id);
    if (strcmp(key, "ggml.model") == 0)
        assert_true(sl_str_same(s, vocab->model));
    else if (strcmp(key, "ggml.pre") == 0)
        assert_true(sl_str_same(s, vocab->pre));
    else if (strcmp(key, "chat_template") == 0)
        assert_true(sl_str_same(s, vocab->chat_template));
    else if (strcmp(key, "ggml.tokens") == 0)
        assert_strings(v, vocab->tokens, vocab->n_tokens);
    else if (strcmp(key, "ggml.merges") == 0)
        assert_strings(v, vocab->merges, vocab->n_merges);
    else if (strcmp(key, "ggml.token_type") == 0)
        assert_kinds(v, vocab);
    else if (strcmp(key, "ggml.eos_token_id") == 0)
        assert_int_equal(id, vocab->eos_id);
    else if (strcmp(key, "ggml.bos_token_id") == 0)
        assert_int_equal(id, vocab->bos_id);
    else if (strcmp(key, "ggml.padding_token_id") == 0)
        assert_int_equal(id, vocab->pad_id);
    else
        return false;
    return true;
}

static void test_vocab__of_a_folder__is_the_converters(void **state)
{
    (void)state;
    struct sl_hf *hf = open_family("qwen3_moe");
    char *text = read_text("qwen3_moe", "expected.txt"), *line;
    struct sl_vocab v;
    char name[128], kind[32];
    int at = 0, n = 0;

    if (sl_hf_vocab(hf, &v, &error) != SLUICE_OK) fail_msg("%s", error.text);
    while ((line = strsep(&text, "\n")) != NULL) {
        if (sscanf(line, "key %127s %31s %n", name, kind, &at) != 2) continue;
        if (strncmp(name, "tokenizer.", 10) != 0) continue;
        struct sl_json *j = parse(line + at);
        if (!compare_vocab(name, sl_json_root(j), &v)) fail_msg("%s", name);
        sl_json_close(j);
        n++;
    }
    assert_int_equal(n, 9);
    assert_true(v.scores == NULL && v.unk_id == -1 && v.sep_id == -1 && v.add_bos == -1);
    assert_true(v.n_eog_ids == 2 && v.eog_ids[0] == v.eos_id && v.eog_ids[1] == v.bos_id);
    assert_int_equal(v.kinds[v.n_tokens - 1], SL_TOKEN_UNUSED);
    assert_int_equal(sl_hf_vocab(hf, &v, &error), SLUICE_OK); /* again, from what is kept */
    sl_hf_close(hf);
}

/* The scratch folder: Llama's, with a tokenizer of this model and these steps. */
static void write_tokenizer(const char *steps, const char *model)
{
    char text[4096];

    change("llama", "\"model_type\"", "\"model_type\"");
    snprintf(text, sizeof text,
             "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},"
             "{\"id\":4,\"content\":\"a\xe2\x96\x81\",\"special\":false}],%s,\"model\":{%s}}",
             steps, model);
    write_text("tokenizer.json", text);
}

#define BYTES(regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" regex "}"
#define SPLIT(regex)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\","         \
    "\"invert\":false}"
#define STEPS(list) "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define NFC "\"normalizer\":{\"type\":\"NFC\"},"
#define MODEL "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"
#define GPT2 "\"pre_tokenizer\":" BYTES("true")
#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
#define REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN35                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}"      \
    "| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define DIGITS(alone) "{\"type\":\"Digits\",\"individual_digits\":" alone "}"

/* The name, or an empty text where the folder is refused for its pre-tokenizer. */
static void assert_pre(const char *steps, const char *model, const char *wanted)
{
    struct sl_vocab v = {.pre = {"", 0}};
    char name[32];

    write_tokenizer(steps, model);
    struct sl_hf *hf = open_folder(folder);
    sluice_err err = sl_hf_vocab(hf, &v, &error);
    if (err != SLUICE_OK && strstr(error.text, "the pre-tokenizer is none that") == NULL)
        fail_msg("%s", error.text);
    if (err != SLUICE_OK) v.pre.n = 0;
    snprintf(name, sizeof name, "%.*s", (int)v.pre.n, v.pre.p);
    if (strcmp(name, wanted) != 0) fail_msg("'%s', wanted '%s': %s", name, wanted, steps);
    sl_hf_close(hf);
}

static void test_pre_tokenizer__by_its_steps__has_its_name_or_none(void **state)
{
    (void)state;
    assert_pre(NFC STEPS(SPLIT(WORDS REST) "," BYTES("false")), MODEL, "qwen2");
    assert_pre(STEPS(SPLIT(WORDS REST) "," BYTES("false")), MODEL, "stablelm2");
    assert_pre(NFC STEPS(SPLIT(QWEN35) "," BYTES("false")), MODEL, "qwen35");
    assert_pre(STEPS(SPLIT(WORDS "{1,3}" REST) "," BYTES("false")), MODEL, "dbrx");
    assert_pre(STEPS(SPLIT(WORDS "{1,3}" REST) "," BYTES("false")), MODEL ",\"ignore_merges\":true",
               "llama-bpe");
    assert_pre(GPT2, MODEL, "gpt-2");
    assert_pre("\"normalizer\":null," STEPS(BYTES("true")), MODEL, "gpt-2");
    assert_pre("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}," GPT2,
               MODEL, "olmo");
    assert_pre(STEPS(DIGITS("true") "," BYTES("true")), MODEL, "smollm");
    assert_pre(STEPS(DIGITS("false") "," BYTES("true")), MODEL, "");
    assert_pre(STEPS(BYTES("true") "," DIGITS("true")), MODEL, "");
    assert_pre(STEPS(BYTES("true") "," BYTES("true")), MODEL, "");
    assert_pre(STEPS(SPLIT(WORDS "{1,2}" REST) "," BYTES("false")), MODEL, "");
    assert_pre(STEPS(SPLIT(WORDS REST) "," BYTES("true")), MODEL, "");
    assert_pre(STEPS(SPLIT(WORDS REST)), MODEL, "");
    assert_pre("\"normalizer\":{\"type\":\"Lowercase\"}," GPT2, MODEL, "");
    assert_pre("\"pre_tokenizer\":null", MODEL, "");
    assert_pre("\"x\":0", MODEL, "");
    assert_pre(STEPS("{\"type\":\"Whitespace\"}," BYTES("true")), MODEL, "");
}

static void test_vocab__small__has_texts_kinds_flags_and_template(void **state)
{
    (void)state;
    struct sl_vocab v;

    write_tokenizer(GPT2 ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                         "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]}",
                    MODEL);
    write_text("tokenizer_config.json",
               "{\"eos_token\":{\"content\":\"<s>\"},\"add_prefix_space\":false,"
               "\"chat_template\":[{\"name\":\"tools\",\"template\":\"x\"},"
               "{\"name\":\"default\",\"template\":\"{{ y }}\"}]}");
    struct sl_hf *hf = open_folder(folder);
    if (sl_hf_vocab(hf, &v, &error) != SLUICE_OK) fail_msg("%s", error.text);
    assert_int_equal(v.n_tokens, 32);
    assert_true(sl_str_eq(v.tokens[2], "ab") && v.kinds[2] == SL_TOKEN_NORMAL);
    assert_true(sl_str_eq(v.tokens[3], "<s>") && v.kinds[3] == SL_TOKEN_CONTROL);
    assert_true(sl_str_eq(v.tokens[4], "a ") && v.kinds[4] == SL_TOKEN_USER_DEFINED);
    assert_true(sl_str_eq(v.tokens[5], "[PAD5]") && v.kinds[5] == SL_TOKEN_UNUSED);
    assert_true(v.n_merges == 1 && sl_str_eq(v.merges[0], "a b"));
    assert_true(v.bos_id == 3 && v.eos_id == 3 && v.add_bos == 1 && v.add_eos == -1);
    assert_true(v.add_space_prefix == 0 && v.n_eog_ids == 0 && v.pad_id == -1);
    assert_true(sl_str_eq(v.chat_template, "{{ y }}"));
    sl_hf_close(hf);
}

static void assert_vocab_refused(const char *steps, const char *model, sluice_err wanted,
                                 const char *part)
{
    struct sl_vocab v;

    write_tokenizer(steps, model);
    struct sl_hf *hf = open_folder(folder);
    sluice_err err = sl_hf_vocab(hf, &v, &error);
    if (err != wanted || strstr(error.text, part) == NULL)
        fail_msg("%d, '%s' lacks '%s'", err, error.text, part);
    assert_int_equal(sl_hf_vocab(hf, &v, NULL), wanted);
    sl_hf_close(hf);
}

static void test_vocab__broken_or_of_another_kind__is_refused(void **state)
{
    (void)state;
    const char *start = "\"type\":\"BPE\",\"vocab\":";
    char model[512];
    static const char *const cases[][2] = {
        {"{\"a\":0,\"b\":0},\"merges\":[\"a b\"]", "another token has the id of 'b'"},
        {"{\"a\":0,\"b\":3},\"merges\":[\"a b\"]", "the id of the added token '<s>'"},
        {"{\"a\":-1},\"merges\":[\"a b\"]", "has the token 'a'"},
        {"{\"a\":4194304},\"merges\":[\"a b\"]", "has the token 'a'"},
        {"{\"a\":1.5},\"merges\":[\"a b\"]", "has the token 'a'"},
        {"{\"a\":40},\"merges\":[\"a b\"]", "vocab_size is 32, but tokenizer.json holds 41"},
        {"{\"a\":0}", "no list of merges"},
        {"{\"a\":0},\"merges\":[]", "no list of merges"},
        {"{\"a\":0},\"merges\":[\"ab\"]", "a merge is no pair"},
        {"{\"a\":0},\"merges\":[\"a b c\"]", "a merge is no pair"},
        {"{\"a\":0},\"merges\":[[\"a\",\"b\",\"c\"]]", "a merge is no pair"},
        {"{\"a\":0},\"merges\":[[\"a\",3]]", "a merge is no pair"},
        {"{\"a\":0},\"merges\":[[\"a\",\" b\"]]", "a merge is no pair"},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        snprintf(model, sizeof model, "%s%s", start, cases[i][0]);
        assert_vocab_refused(GPT2, model, SLUICE_E_FORMAT, cases[i][1]);
    }
    assert_vocab_refused(GPT2, MODEL ",\"byte_fallback\":true", SLUICE_E_UNSUPPORTED,
                         "whose steps are not those of SentencePiece");
    assert_vocab_refused(GPT2, "\"type\":\"Unigram\",\"vocab\":[]", SLUICE_E_UNSUPPORTED,
                         "the kind 'Unigram'");
    assert_vocab_refused(GPT2, MODEL ",\"end_of_word_suffix\":\"</w>\"", SLUICE_E_UNSUPPORTED,
                         "marks parts of words");
    assert_vocab_refused(GPT2 ",\"post_processor\":{\"type\":\"RobertaProcessing\"}", MODEL,
                         SLUICE_E_UNSUPPORTED, "'RobertaProcessing'");
    assert_vocab_refused(GPT2 ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                              "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<e>\"}}]}",
                         MODEL, SLUICE_E_UNSUPPORTED, "adds '<e>'");
    write_text("generation_config.json", "{\"eos_token_id\":[1,32]}");
    assert_vocab_refused(GPT2, MODEL, SLUICE_E_FORMAT, "'eos_token_id' is no token id below 32");
}

#define SPACES                                                                                     \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["                                      \
    "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},"                                         \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},"        \
    "\"pre_tokenizer\":null"
#define SPM(merges)                                                                                \
    "\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,"      \
    "\"<0x0A>\":1,\"a\":2,\"b\":5,\"ab\":6,\"aba\":7,\"ba\":8},\"merges\":" merges

static void test_vocab__of_sentencepiece__has_scores_in_the_order_of_merges(void **state)
{
    (void)state;
    static const float scores[9] = {-1000, -1000, -3, -1000, -1000, -4, -1, -2, 0};
    struct sl_vocab v;

    write_tokenizer(SPACES, SPM("[\"b a\",\"a b\",\"ab a\",\"a ba\"]"));
    struct sl_hf *hf = open_folder(folder);
    if (sl_hf_vocab(hf, &v, &error) != SLUICE_OK) fail_msg("%s", error.text);
    assert_true(sl_str_eq(v.model, "llama") && sl_str_eq(v.pre, "default"));
    assert_true(v.n_merges == 0 && v.merges == NULL && v.n_tokens == 32);
    assert_true(v.kinds[0] == SL_TOKEN_UNKNOWN && v.kinds[1] == SL_TOKEN_BYTE);
    assert_true(v.kinds[2] == SL_TOKEN_NORMAL && v.kinds[3] == SL_TOKEN_CONTROL);
    for (int i = 0; i < 9; i++)
        if (v.scores[i] != scores[i]) fail_msg("%d: %g", i, (double)v.scores[i]);
    sl_hf_close(hf);
    assert_vocab_refused(SPACES, SPM("[\"b b\"]"), SLUICE_E_FORMAT,
                         "a merge gives what is no token");
    assert_vocab_refused(SPACES, SPM("[\"bb\"]"), SLUICE_E_FORMAT, "a merge is no pair");
    assert_vocab_refused("\"normalizer\":null", SPM("[\"b a\"]"), SLUICE_E_UNSUPPORTED,
                         "not those of SentencePiece");
}

static void test_vocab__without_a_tokenizer__says_what_is_missing(void **state)
{
    (void)state;
    struct sl_hf *hf = open_family("mixtral");
    struct sl_vocab v;

    assert_int_equal(sl_hf_vocab(hf, &v, &error), SLUICE_E_NOT_FOUND);
    assert_non_null(strstr(error.text, "tokenizer.json: there is no such file"));
    sl_hf_close(hf);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void open_with_little_memory(const char *path, bool with_vocab)
{
    sluice_err err = SLUICE_E_BUDGET;

    for (uint64_t limit = 0; err != SLUICE_OK; limit += 2048) {
        struct sl_hf *hf = NULL;
        struct sl_vocab v;

        sl_budget_init(&budget, limit);
        err = sl_hf_open(path, &budget, &error, &hf);
        if (err == SLUICE_OK && with_vocab) err = sl_hf_vocab(hf, &v, &error);
        if (err != SLUICE_OK && err != SLUICE_E_BUDGET) fail_msg("%d %s", err, error.text);
        sl_hf_close(hf);
        assert_int_equal(sl_budget_used(&budget), 0);
        assert_true(limit < BUDGET_BYTES);
    }
}

static void test_memory__too_little__is_refused_at_every_point(void **state)
{
    (void)state;
    open_with_little_memory(GOLDEN "qwen3_moe", true);
    open_with_little_memory(GOLDEN "qwen3_5_moe", false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_keys__of_every_family__are_the_converters),
        TEST(test_tensors__of_every_family__are_the_converters_bits),
        TEST(test_tensors__order__is_model_then_layers),
        TEST(test_tensors__biases_of_q__are_permuted_too),
        TEST(test_config__not_computed_or_broken__is_refused_by_name),
        TEST(test_tensors__that_are_not_run__are_left_out_and_counted),
        TEST(test_folder__without_config__says_so),
        TEST(test_tensors__two_spellings__are_refused),
        TEST(test_config__topk_not_normalized__is_said),
        TEST(test_config__yarn_window_and_clamp__are_keys),
        TEST(test_config__blocks_of_eight_bits__are_read_with_their_scales),
        TEST(test_config__silent__takes_the_familys_defaults),
        TEST(test_vocab__of_a_folder__is_the_converters),
        TEST(test_pre_tokenizer__by_its_steps__has_its_name_or_none),
        TEST(test_vocab__small__has_texts_kinds_flags_and_template),
        TEST(test_vocab__broken_or_of_another_kind__is_refused),
        TEST(test_vocab__of_sentencepiece__has_scores_in_the_order_of_merges),
        TEST(test_vocab__without_a_tokenizer__says_what_is_missing),
        TEST(test_memory__too_little__is_refused_at_every_point),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
