/* The vocabulary of a GGUF file. The arrays were stepped over and so checked for their extent when
 * the header was read; here their types, counts and values are checked, and views are made of the
 * strings, once a handle.
 *
 * Ids: -1 and 4294967295 mean "none", as converters write them. An id past the vocabulary is an
 * error where the engine would act on it; the padding and separator ids, which it never uses and
 * which some published files set one past the end, then count as not given. */
#include "formats/gguf_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WANTED_MAX 96

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Allocates from the arena of what is made once a handle. */
static void *make(const struct sl_gguf *g, uint64_t count, uint64_t size, sluice_error *e,
                  sluice_err *err)
{
    void *p = sl_arena_alloc(&g->made->arena, sl_max_u64(count, 1), size);

    if (p == NULL) *err = sl_gg_no_memory(g->budget, count * size, g->head.meta.path, e);
    return p;
}

/* Views of an array of strings; absent: count 0. */
static sluice_err read_strings(const struct sl_gguf *g, const char *key, const struct sl_str **out,
                               uint32_t *count, sluice_error *e)
{
    const struct sl_gg_meta *m = &g->head.meta;
    const struct sl_gg_key *k = sl_gg_find_key(m, key);
    const unsigned char *p;
    char wanted[WANTED_MAX];
    struct sl_str *s;
    sluice_err err = SLUICE_OK;

    if (k == NULL) return SLUICE_OK;
    snprintf(wanted, sizeof wanted, "an array of at most %u strings", SL_VOCAB_MAX);
    if (k->kind != SL_GGUF_ARRAY || k->elem_kind != SL_GGUF_STRING || k->count > SL_VOCAB_MAX) {
        return sl_gg_key_fail(m, k, wanted, e);
    }
    if (k->count == 0) return SLUICE_OK;
    s = make(g, k->count, sizeof *s, e, &err);
    if (s == NULL) return err;
    p = k->data;
    for (uint64_t i = 0; i < k->count; i++) {
        s[i] = (struct sl_str){(const char *)p + 8, sl_gg_load_u64(p)};
        p += 8 + s[i].n;
    }
    *out = s;
    *count = (uint32_t)k->count;
    return SLUICE_OK;
}

static sluice_err read_scores(const struct sl_gguf *g, struct sl_vocab *v, sluice_error *e)
{
    const struct sl_gg_meta *m = &g->head.meta;
    const struct sl_gg_key *k = sl_gg_find_key(m, "tokenizer.ggml.scores");
    char wanted[WANTED_MAX];
    float *scores;
    double d;
    sluice_err err = SLUICE_OK;

    if (k == NULL) return SLUICE_OK;
    snprintf(wanted, sizeof wanted, "an array of %" PRIu32 " numbers, one for each token",
             v->n_tokens);
    if (k->kind != SL_GGUF_ARRAY || k->elem_kind == SL_GGUF_BOOL || k->count != v->n_tokens) {
        return sl_gg_key_fail(m, k, wanted, e);
    }
    scores = make(g, v->n_tokens, sizeof *scores, e, &err);
    if (scores == NULL) return err;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (!sl_gg_number_at(k->elem_kind, k->data, i, &d) || isnan(d)) {
            return sl_gg_key_fail(m, k, wanted, e);
        }
        scores[i] = (float)d;
    }
    v->scores = scores;
    return SLUICE_OK;
}

static sluice_err read_kinds(const struct sl_gguf *g, struct sl_vocab *v, sluice_error *e)
{
    const struct sl_gg_meta *m = &g->head.meta;
    const struct sl_gg_key *k = sl_gg_find_key(m, "tokenizer.ggml.token_type");
    char wanted[WANTED_MAX];
    uint8_t *kinds;
    struct sl_gg_int n;
    sluice_err err = SLUICE_OK;

    if (k == NULL) return SLUICE_OK;
    snprintf(wanted, sizeof wanted,
             "an array of %" PRIu32 " whole numbers from 0 to %d, one for each token", v->n_tokens,
             SL_TOKEN_BYTE);
    if (k->kind != SL_GGUF_ARRAY || k->count != v->n_tokens) return sl_gg_key_fail(m, k, wanted, e);
    kinds = make(g, v->n_tokens, sizeof *kinds, e, &err);
    if (kinds == NULL) return err;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (!sl_gg_int_at(k->elem_kind, k->data, i, &n) || n.negative ||
            n.magnitude > SL_TOKEN_BYTE) {
            return sl_gg_key_fail(m, k, wanted, e);
        }
        kinds[i] = (uint8_t)n.magnitude;
    }
    v->kinds = kinds;
    return SLUICE_OK;
}

/* ---- ids and flags --------------------------------------------------------------------------- */

static bool is_none(struct sl_gg_int n)
{
    return n.negative ? n.magnitude == 1 : n.magnitude == UINT32_MAX;
}

struct id_key {
    const char *key;
    size_t offset;   /* of the member of sl_vocab */
    bool never_used; /* past the end counts as none */
};

static const struct id_key id_keys[] = {
    {"tokenizer.ggml.bos_token_id", offsetof(struct sl_vocab, bos_id), false},
    {"tokenizer.ggml.eos_token_id", offsetof(struct sl_vocab, eos_id), false},
    {"tokenizer.ggml.eot_token_id", offsetof(struct sl_vocab, eot_id), false},
    {"tokenizer.ggml.eom_token_id", offsetof(struct sl_vocab, eom_id), false},
    {"tokenizer.ggml.unknown_token_id", offsetof(struct sl_vocab, unk_id), false},
    {"tokenizer.ggml.padding_token_id", offsetof(struct sl_vocab, pad_id), true},
    {"tokenizer.ggml.seperator_token_id", offsetof(struct sl_vocab, sep_id), true}, /* spelt so */
};

static sluice_err read_id(const struct sl_gguf *g, const struct id_key *ik, struct sl_vocab *v,
                          sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, ik->key);
    char wanted[WANTED_MAX];
    struct sl_gg_int n;
    int32_t id = -1;
    bool fits;

    if (k != NULL) {
        snprintf(wanted, sizeof wanted, "a token id below %" PRIu32, v->n_tokens);
        if (!sl_gg_int_at(k->kind, k->data, 0, &n))
            return sl_gg_key_fail(&g->head.meta, k, wanted, e);
        fits = !n.negative && n.magnitude < v->n_tokens;
        if (fits) id = (int32_t)n.magnitude;
        if (!fits && !is_none(n) && !ik->never_used)
            return sl_gg_key_fail(&g->head.meta, k, wanted, e);
    }
    memcpy((char *)v + ik->offset, &id, sizeof id);
    return SLUICE_OK;
}

/* An array of ids, or one id. */
static sluice_err read_eog_ids(const struct sl_gguf *g, struct sl_vocab *v, sluice_error *e)
{
    const struct sl_gg_key *k = sl_gg_find_key(&g->head.meta, "tokenizer.ggml.eos_token_ids");
    uint32_t kind;
    char wanted[WANTED_MAX];
    int32_t *ids;
    struct sl_gg_int n;
    sluice_err err = SLUICE_OK;

    if (k == NULL) return SLUICE_OK;
    kind = k->kind == SL_GGUF_ARRAY ? k->elem_kind : k->kind;
    snprintf(wanted, sizeof wanted, "token ids below %" PRIu32, v->n_tokens);
    if (kind == SL_GGUF_STRING || k->count > v->n_tokens)
        return sl_gg_key_fail(&g->head.meta, k, wanted, e);
    if (k->count == 0) return SLUICE_OK;
    ids = make(g, k->count, sizeof *ids, e, &err);
    if (ids == NULL) return err;
    for (uint64_t i = 0; i < k->count; i++) {
        if (!sl_gg_int_at(kind, k->data, i, &n) || n.negative || n.magnitude >= v->n_tokens) {
            return sl_gg_key_fail(&g->head.meta, k, wanted, e);
        }
        ids[i] = (int32_t)n.magnitude;
    }
    v->eog_ids = ids;
    v->n_eog_ids = (uint32_t)k->count;
    return SLUICE_OK;
}

static sluice_err read_flag(const struct sl_gguf *g, const char *key, int8_t *out, sluice_error *e)
{
    bool v = false;
    sluice_err err = sl_gguf_bool(g, key, &v, e);

    *out = sl_gguf_has(g, key) ? (int8_t)v : (int8_t)-1;
    return err;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static sluice_err read_ids_and_flags(const struct sl_gguf *g, struct sl_vocab *v, sluice_error *e)
{
    sluice_err err = SLUICE_OK;

    for (size_t i = 0; i < SL_ARRAY_LEN(id_keys) && err == SLUICE_OK; i++) {
        err = read_id(g, &id_keys[i], v, e);
    }
    if (err == SLUICE_OK) err = read_eog_ids(g, v, e);
    if (err == SLUICE_OK) err = read_flag(g, "tokenizer.ggml.add_bos_token", &v->add_bos, e);
    if (err == SLUICE_OK) err = read_flag(g, "tokenizer.ggml.add_eos_token", &v->add_eos, e);
    if (err == SLUICE_OK)
        err = read_flag(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, e);
    if (err == SLUICE_OK) {
        err = read_flag(g, "tokenizer.ggml.remove_extra_whitespaces", &v->remove_extra_whitespaces,
                        e);
    }
    return err;
}

static sluice_err read_vocab(const struct sl_gguf *g, struct sl_vocab *v, sluice_error *e)
{
    char path[SL_GG_SHOW_PATH_MAX];
    sluice_err err = sl_gguf_str(g, "tokenizer.ggml.model", &v->model, e);

    if (err == SLUICE_OK) err = sl_gguf_str(g, "tokenizer.ggml.pre", &v->pre, e);
    if (err == SLUICE_OK) err = sl_gguf_str(g, "tokenizer.chat_template", &v->chat_template, e);
    if (err == SLUICE_OK)
        err = read_strings(g, "tokenizer.ggml.tokens", &v->tokens, &v->n_tokens, e);
    if (err != SLUICE_OK) return err;
    if (v->n_tokens == 0 || v->model.n == 0) {
        return sl_fail(e, SLUICE_E_FORMAT, "%s: holds no vocabulary (key '%s' is absent or empty)",
                       sl_gg_show_path(g->head.meta.path, path),
                       v->n_tokens == 0 ? "tokenizer.ggml.tokens" : "tokenizer.ggml.model");
    }
    err = read_strings(g, "tokenizer.ggml.merges", &v->merges, &v->n_merges, e);
    if (err == SLUICE_OK) err = read_scores(g, v, e);
    if (err == SLUICE_OK) err = read_kinds(g, v, e);
    return err == SLUICE_OK ? read_ids_and_flags(g, v, e) : err;
}

sluice_err sl_gguf_vocab(const struct sl_gguf *g, struct sl_vocab *out, sluice_error *e)
{
    struct sl_gg_made *made = g->made;
    struct sl_vocab v = {.model = {"", 0}, .pre = {"", 0}, .chat_template = {"", 0}};
    sluice_err err;

    if (!made->has_vocab) {
        err = read_vocab(g, &v, e);
        if (err != SLUICE_OK) {
            uint64_t chunk_bytes = made->arena.chunk_bytes;

            sl_arena_deinit(&made->arena);
            sl_arena_init(&made->arena, g->budget, chunk_bytes);
            return err;
        }
        made->vocab = v;
        made->has_vocab = true;
    }
    *out = made->vocab;
    return SLUICE_OK;
}
