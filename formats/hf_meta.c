/* The metadata of a Hugging Face folder as a GGUF would carry it: keys and vocabulary are written
 * as the header of a GGUF in memory, which the one reader of such headers then reads. So whatever
 * asks a GGUF for its metadata can ask a folder. */
#include <string.h>

#include "formats/hf_internal.h"

#define HEAD_BYTES 24 /* magic, version, number of tensors, number of keys */

/* The header while it grows; p NULL: it is only measured. */
struct image {
    unsigned char *p;
    uint64_t n;
    uint64_t n_keys;
};

static void add(struct image *m, const void *data, uint64_t bytes)
{
    if (m->p != NULL && bytes > 0) memcpy(m->p + m->n, data, bytes);
    m->n += bytes; /* views of files that were read: far below what 64 bits hold */
}

static void add_uint(struct image *m, uint64_t v, uint32_t bytes)
{
    unsigned char raw[8];

    for (uint32_t i = 0; i < bytes; i++) raw[i] = (unsigned char)(v >> 8 * i);
    add(m, raw, bytes);
}

static void add_f32(struct image *m, float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    add_uint(m, bits, 4);
}

static void add_str(struct image *m, struct sl_str s)
{
    add_uint(m, s.n, 8);
    add(m, s.p, s.n);
}

static void add_key(struct image *m, struct sl_str name, enum sl_gguf_kind kind)
{
    add_str(m, name);
    add_uint(m, kind, 4);
    m->n_keys++;
}

static void add_array(struct image *m, const char *name, enum sl_gguf_kind kind, uint64_t count)
{
    add_key(m, (struct sl_str){name, strlen(name)}, SL_GGUF_ARRAY);
    add_uint(m, kind, 4);
    add_uint(m, count, 8);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void put_key(struct image *m, const struct sl_hf_key *k)
{
    add_key(m, k->name, k->kind);
    switch (k->kind) {
    case SL_GGUF_U32:
        add_uint(m, k->u32, 4);
        break;
    case SL_GGUF_I32:
        add_uint(m, (uint32_t)k->i32, 4);
        break;
    case SL_GGUF_F32:
        add_f32(m, k->f32);
        break;
    case SL_GGUF_BOOL:
        add_uint(m, k->flag, 1);
        break;
    case SL_GGUF_ARRAY:
        add_uint(m, SL_GGUF_I32, 4);
        add_uint(m, k->list.n, 8);
        for (uint32_t i = 0; i < k->list.n; i++) add_uint(m, (uint32_t)k->list.v[i], 4);
        break;
    default:
        SLUICE_ASSERT(k->kind == SL_GGUF_STRING);
        add_str(m, k->str);
    }
}

/* ---- the vocabulary -------------------------------------------------------------------------- */

static void put_text(struct image *m, const char *name, struct sl_str s)
{
    if (s.n == 0) return;
    add_key(m, (struct sl_str){name, strlen(name)}, SL_GGUF_STRING);
    add_str(m, s);
}

static void put_texts(struct image *m, const char *name, const struct sl_str *list, uint32_t n)
{
    if (n == 0) return;
    add_array(m, name, SL_GGUF_STRING, n);
    for (uint32_t i = 0; i < n; i++) add_str(m, list[i]);
}

static void put_id(struct image *m, const char *name, int32_t id)
{
    if (id < 0) return;
    add_key(m, (struct sl_str){name, strlen(name)}, SL_GGUF_U32);
    add_uint(m, (uint32_t)id, 4);
}

static void put_flag(struct image *m, const char *name, int8_t flag)
{
    if (flag < 0) return;
    add_key(m, (struct sl_str){name, strlen(name)}, SL_GGUF_BOOL);
    add_uint(m, (uint8_t)flag, 1);
}

static void put_tokens(struct image *m, const struct sl_vocab *v)
{
    put_text(m, "tokenizer.ggml.model", v->model);
    put_text(m, "tokenizer.ggml.pre", v->pre);
    put_texts(m, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    if (v->scores != NULL) {
        add_array(m, "tokenizer.ggml.scores", SL_GGUF_F32, v->n_tokens);
        for (uint32_t i = 0; i < v->n_tokens; i++) add_f32(m, v->scores[i]);
    }
    if (v->kinds != NULL) {
        add_array(m, "tokenizer.ggml.token_type", SL_GGUF_I32, v->n_tokens);
        for (uint32_t i = 0; i < v->n_tokens; i++) add_uint(m, v->kinds[i], 4);
    }
    put_texts(m, "tokenizer.ggml.merges", v->merges, v->n_merges);
}

static void put_vocab(struct image *m, const struct sl_vocab *v)
{
    put_tokens(m, v);
    put_id(m, "tokenizer.ggml.bos_token_id", v->bos_id);
    put_id(m, "tokenizer.ggml.eos_token_id", v->eos_id);
    put_id(m, "tokenizer.ggml.eot_token_id", v->eot_id);
    put_id(m, "tokenizer.ggml.eom_token_id", v->eom_id);
    put_id(m, "tokenizer.ggml.unknown_token_id", v->unk_id);
    put_id(m, "tokenizer.ggml.padding_token_id", v->pad_id);
    put_id(m, "tokenizer.ggml.seperator_token_id", v->sep_id); /* spelt so by every reader */
    if (v->n_eog_ids > 0) {
        add_array(m, "tokenizer.ggml.eos_token_ids", SL_GGUF_I32, v->n_eog_ids);
        for (uint32_t i = 0; i < v->n_eog_ids; i++) add_uint(m, (uint32_t)v->eog_ids[i], 4);
    }
    put_flag(m, "tokenizer.ggml.add_bos_token", v->add_bos);
    put_flag(m, "tokenizer.ggml.add_eos_token", v->add_eos);
    put_flag(m, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);
    put_flag(m, "tokenizer.ggml.remove_extra_whitespaces", v->remove_extra_whitespaces);
    put_text(m, "tokenizer.chat_template", v->chat_template);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void put_all(struct image *m, const struct sl_hf *hf, const struct sl_vocab *v,
                    uint64_t n_keys)
{
    add(m, "GGUF", 4);
    add_uint(m, 3, 4);
    add_uint(m, 0, 8);
    add_uint(m, n_keys, 8);
    SLUICE_ASSERT(m->n == HEAD_BYTES);
    for (uint32_t i = 0; i < hf->n_keys; i++) put_key(m, &hf->keys[i]);
    if (v != NULL) put_vocab(m, v);
}

sluice_err sl_hf_metadata(struct sl_hf *hf, struct sl_budget *b, sluice_error *e,
                          struct sl_gguf **out)
{
    struct image size = {.p = NULL}, image = {.p = NULL};
    struct sl_vocab v;
    sluice_error why = {.code = 0};

    *out = NULL;
    sluice_err err = sl_hf_vocab(hf, &v, &why);
    bool absent = err == SLUICE_E_NOT_FOUND && hf->tokenizer == NULL;
    if (err != SLUICE_OK && !absent) {
        if (e != NULL) *e = why;
        return err;
    }
    put_all(&size, hf, absent ? NULL : &v, 0);
    image.p = sl_arena_alloc(&hf->arena, size.n, 1);
    if (image.p == NULL) return sl_hf_no_memory(hf, size.n, e);
    put_all(&image, hf, absent ? NULL : &v, size.n_keys);
    return sl_gg_open_memory(image.p, image.n, b, e, out);
}
