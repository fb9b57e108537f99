/* Opening and closing of Hugging Face folders, the families, and reading of JSON members. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf_internal.h"

#define ARENA_CHUNK_BYTES 65536

/* Defaults are those of the configuration classes in transformers 4.57. */
static const struct sl_hf_family families[] = {
    /* norm_topk_prob false by default, though every published model sets it */
    {.model_type = "qwen3_moe",
     .arch = "qwen3moe",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .norm_topk_reader = true},
    {.model_type = "qwen2_moe",
     .arch = "qwen2moe",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .qkv_bias = true},
    {.model_type = "olmoe", .arch = "olmoe", .rope_theta = 1e4, .norm_eps = 1e-5, .moe = true},
    {.model_type = "mixtral",
     .arch = "llama",
     .rope_theta = 1e6,
     .norm_eps = 1e-5,
     .moe = true,
     .permuted = true,
     .llama_keys = true,
     .norm_topk = true,
     .norm_topk_reader = true},
    {.model_type = "granitemoe",
     .arch = "granitemoe",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .permuted = true,
     .llama_keys = true,
     .granite = true,
     .norm_topk = true,
     .norm_topk_reader = true},
    {.model_type = "granitemoeshared",
     .arch = "granitemoe",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .permuted = true,
     .llama_keys = true,
     .granite = true,
     .norm_topk = true,
     .norm_topk_reader = true},
    {.model_type = "llama",
     .arch = "llama",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .permuted = true,
     .llama_keys = true},
    {.model_type = "qwen3", .arch = "qwen3", .rope_theta = 1e4, .norm_eps = 1e-6},
    {.model_type = "qwen3_next",
     .arch = "qwen3next",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .norm_topk = true,
     .norm_topk_reader = true,
     .deltanet = true},
    {.model_type = "qwen3_5_moe_text",
     .arch = "qwen35moe",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .norm_topk = true,
     .norm_topk_reader = true,
     .deltanet = true,
     .tiled = true,
     .mrope = true},
    {.model_type = "qwen3_5_moe",
     .arch = "qwen35moe",
     .rope_theta = 1e4,
     .norm_eps = 1e-6,
     .moe = true,
     .norm_topk = true,
     .norm_topk_reader = true,
     .deltanet = true,
     .tiled = true,
     .mrope = true,
     .nested = true},
};

/* ---- messages and memory --------------------------------------------------------------------- */

sluice_err sl_hf_fail(const struct sl_hf *hf, const char *file, sluice_error *e, sluice_err code,
                      const char *fmt, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX], shown[SL_GG_SHOW_PATH_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sl_fail(e, code, "%s%s: %s", sl_gg_show_path(hf->folder, shown), file, text);
}

sluice_err sl_hf_no_memory(const struct sl_hf *hf, uint64_t bytes, sluice_error *e)
{
    return sl_gg_no_memory(hf->budget, bytes, hf->folder, e);
}

char *sl_hf_path(struct sl_hf *hf, const char *name)
{
    size_t n = strlen(hf->folder), m = strlen(name);
    char *path = sl_arena_alloc(&hf->arena, n + m + 1, 1);

    if (path == NULL) return NULL;
    memcpy(path, hf->folder, n);
    memcpy(path + n, name, m);
    return path;
}

/* ---- members of objects ---------------------------------------------------------------------- */

static sluice_err fail_member(const struct sl_hf_object *o, const char *key, const char *wanted)
{
    enum sl_json_kind kind = sl_json_kind_of(sl_json_get(o->value, key));

    return sl_hf_fail(o->hf, o->file, o->e, SLUICE_E_FORMAT, "'%s' is %s, wanted %s", key,
                      sl_json_kind_name(kind), wanted);
}

bool sl_hf_has(const struct sl_hf_object *o, const char *key)
{
    return sl_json_kind_of(sl_json_get(o->value, key)) > SL_JSON_NULL;
}

sluice_err sl_hf_u32(const struct sl_hf_object *o, const char *key, uint32_t *out)
{
    uint64_t v = 0;

    if (!sl_hf_has(o, key)) return SLUICE_OK;
    if (!sl_json_u64(sl_json_get(o->value, key), &v) || v > UINT32_MAX)
        return fail_member(o, key, "a whole number from 0 to 4294967295");
    *out = (uint32_t)v;
    return SLUICE_OK;
}

sluice_err sl_hf_f64(const struct sl_hf_object *o, const char *key, double *out)
{
    if (!sl_hf_has(o, key) || sl_json_f64(sl_json_get(o->value, key), out)) return SLUICE_OK;
    return fail_member(o, key, "a finite number");
}

sluice_err sl_hf_bool(const struct sl_hf_object *o, const char *key, bool *out)
{
    if (!sl_hf_has(o, key) || sl_json_bool(sl_json_get(o->value, key), out)) return SLUICE_OK;
    return fail_member(o, key, "true or false");
}

sluice_err sl_hf_str(const struct sl_hf_object *o, const char *key, struct sl_str *out)
{
    if (!sl_hf_has(o, key) || sl_json_str(sl_json_get(o->value, key), out)) return SLUICE_OK;
    return fail_member(o, key, "a string");
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A JSON file of the folder; *out stays NULL where there is none. */
static sluice_err open_json(struct sl_hf *hf, const char *name, uint64_t bytes_max, sluice_error *e,
                            struct sl_json **out)
{
    sluice_error why = {.code = 0};
    char *path = sl_hf_path(hf, name);

    if (path == NULL) return sl_hf_no_memory(hf, strlen(hf->folder) + strlen(name), e);
    sluice_err err = sl_json_open(path, bytes_max, hf->budget, &why, out);
    if (err == SLUICE_E_NOT_FOUND) return SLUICE_OK;
    if (err != SLUICE_OK && e != NULL) *e = why;
    return err;
}

static sluice_err find_family(struct sl_hf *hf, sluice_error *e)
{
    const struct sl_hf_object config = {hf, "config.json", sl_json_root(hf->config), e};
    char shown[SL_GG_SHOW_MAX], known[256] = "";
    struct sl_str type = {"", 0};

    if (hf->config == NULL)
        return sl_fail(e, SLUICE_E_NOT_FOUND,
                       "there is no config.json in '%s', which the folder of a model has",
                       sl_gg_show_path(hf->folder, shown));
    SL_HF_TRY(sl_hf_str(&config, "model_type", &type));
    for (size_t i = 0; i < SL_ARRAY_LEN(families); i++) {
        size_t n = strlen(known);

        if (sl_str_eq(type, families[i].model_type)) hf->family = &families[i];
        snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "", families[i].model_type);
    }
    if (hf->family == NULL)
        return sl_hf_fail(hf, "config.json", e, SLUICE_E_UNSUPPORTED,
                          "model_type '%s' is not supported by this version, which knows %s",
                          sl_str_show(type, shown, sizeof shown), known);
    hf->text = hf->family->nested ? sl_json_get(config.value, "text_config") : config.value;
    if (sl_json_kind_of(hf->text) == SL_JSON_OBJECT) return SLUICE_OK;
    return sl_hf_fail(hf, "config.json", e, SLUICE_E_FORMAT,
                      "there is no object 'text_config', which models of this type have");
}

static sluice_err open_files(struct sl_hf *hf, sluice_error *e)
{
    struct sl_st_block block = {SL_ST_BLOCK_DEFAULT, SL_ST_BLOCK_DEFAULT};
    bool quantized = false;

    SL_HF_TRY(open_json(hf, "config.json", SL_HF_CONFIG_MAX, e, &hf->config));
    SL_HF_TRY(open_json(hf, "generation_config.json", SL_HF_CONFIG_MAX, e, &hf->generation));
    SL_HF_TRY(find_family(hf, e));
    SL_HF_TRY(sl_hf_quantization(hf, &block, &quantized, e));
    SL_HF_TRY(sl_hf_make_keys(hf, e));
    SL_HF_TRY(sl_hf_check_config(hf, e));
    SL_HF_TRY(sl_st_open(hf->folder, quantized ? &block : NULL, hf->budget, e, &hf->st));
    SL_HF_TRY(sl_hf_make_tensors(hf, e));
    return sl_hf_check_tensors(hf, e);
}

sluice_err sl_hf_open(const char *folder, struct sl_budget *b, sluice_error *e, struct sl_hf **out)
{
    size_t n = strlen(folder);
    struct sl_hf *hf;
    sluice_err err;

    SLUICE_ASSERT(b != NULL && out != NULL);
    *out = NULL;
    hf = sl_alloc(b, 1, sizeof *hf);
    if (hf == NULL) return sl_gg_no_memory(b, sizeof *hf, folder, e);
    hf->budget = b;
    sl_arena_init(&hf->arena, b, ARENA_CHUNK_BYTES);
    hf->folder = sl_arena_alloc(&hf->arena, n + 2, 1);
    if (hf->folder == NULL) {
        err = sl_gg_no_memory(b, ARENA_CHUNK_BYTES, folder, e);
    } else {
        memcpy(hf->folder, folder, n);
        if (n > 0 && folder[n - 1] != '/') hf->folder[n] = '/';
        err = open_files(hf, e);
    }
    if (err != SLUICE_OK) {
        sl_hf_close(hf);
        return err;
    }
    *out = hf;
    return SLUICE_OK;
}

void sl_hf_close(struct sl_hf *hf)
{
    if (hf == NULL) return;
    sl_st_close(hf->st);
    sl_json_close(hf->config);
    sl_json_close(hf->generation);
    sl_json_close(hf->tokenizer);
    sl_json_close(hf->tokenizer_config);
    sl_free(hf->tensors);
    sl_arena_deinit(&hf->arena);
    sl_free(hf);
}

/* ---- the vocabulary's files ------------------------------------------------------------------ */

sluice_err sl_hf_open_tokenizer(struct sl_hf *hf, sluice_error *e)
{
    if (hf->tokenizer == NULL)
        SL_HF_TRY(open_json(hf, "tokenizer.json", SL_HF_TOKENIZER_MAX, e, &hf->tokenizer));
    if (hf->tokenizer == NULL)
        return sl_hf_fail(hf, "tokenizer.json", e, SLUICE_E_NOT_FOUND,
                          "there is no such file, and no text without it; fetch it from where "
                          "the model is from");
    if (hf->tokenizer_config != NULL) return SLUICE_OK;
    return open_json(hf, "tokenizer_config.json", SL_HF_CONFIG_MAX, e, &hf->tokenizer_config);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

const struct sl_st *sl_hf_weights(const struct sl_hf *hf) { return hf->st; }

uint32_t sl_hf_n_keys(const struct sl_hf *hf) { return hf->n_keys; }

const struct sl_hf_key *sl_hf_key(const struct sl_hf *hf, uint32_t index)
{
    SLUICE_ASSERT(index < hf->n_keys);
    return &hf->keys[index];
}

const struct sl_hf_key *sl_hf_find_key(const struct sl_hf *hf, const char *name)
{
    for (uint32_t i = 0; i < hf->n_keys; i++)
        if (sl_str_eq(hf->keys[i].name, name)) return &hf->keys[i];
    return NULL;
}

uint32_t sl_hf_arch_u32(const struct sl_hf *hf, const char *suffix, uint32_t fallback)
{
    char name[SL_NAME_MAX];
    const struct sl_hf_key *k;

    snprintf(name, sizeof name, "%s.%s", hf->family->arch, suffix);
    k = sl_hf_find_key(hf, name);
    return k != NULL && k->kind == SL_GGUF_U32 ? k->u32 : fallback;
}

struct sl_hf_left_out sl_hf_left_out(const struct sl_hf *hf, enum sl_hf_extra extra)
{
    SLUICE_ASSERT(extra < SL_HF_EXTRAS);
    return hf->left_out[extra];
}

uint32_t sl_hf_n_tensors(const struct sl_hf *hf) { return hf->n_tensors; }

const struct sl_hf_tensor *sl_hf_tensor(const struct sl_hf *hf, uint32_t index)
{
    SLUICE_ASSERT(index < hf->n_tensors);
    return &hf->tensors[index];
}
