/* A tokenizer.json that was made from a SentencePiece model (Llama 2, Mixtral): a BPE over
 * characters with a token for each byte. GGUF files hold it as what it was, texts with scores: the
 * two neighbours whose joined text has the best score are joined first.
 *
 * tokenizer.json has no scores, only merges, sorted by the score of what they give. The k-th new
 * product therefore gets the score -k; texts that no merge gives (single characters) never compete
 * and come behind. The order, which is all that counts, is that of the SentencePiece model. */
#include <inttypes.h>
#include <string.h>

#include "formats/hf_internal.h"

#define TEXT_MAX 1024          /* bytes of a product */
#define SCORE_SPECIAL -1000.0f /* of tokens that are not made by joining */

/* "<0x0A>" */
static bool is_byte(struct sl_str s)
{
    return s.n == 6 && sl_str_starts(s, "<0x") && s.p[5] == '>';
}

static bool member_is(struct sl_json_value v, const char *key, const char *wanted)
{
    struct sl_str s = {"", 0};

    return sl_json_str(sl_json_get(v, key), &s) && sl_str_eq(s, wanted);
}

static bool is_prepend(struct sl_json_value v)
{
    return member_is(v, "type", "Prepend") && member_is(v, "prepend", "\xe2\x96\x81");
}

static bool is_replace(struct sl_json_value v)
{
    return member_is(v, "type", "Replace") && member_is(v, "content", "\xe2\x96\x81") &&
           member_is(sl_json_get(v, "pattern"), "String", " ");
}

/* Only this is known to be what SentencePiece does: a space in front, spaces as U+2581, no words.
 * Newer files say it with a Metaspace step, whose exact meaning has changed over time. */
static sluice_err check_steps(const struct sl_hf *hf, sluice_error *e)
{
    struct sl_json_value root = sl_json_root(hf->tokenizer);
    struct sl_json_value steps = sl_json_get(sl_json_get(root, "normalizer"), "normalizers");
    struct sl_json_walk w = sl_json_walk(steps);
    bool plain = sl_json_kind_of(sl_json_get(root, "pre_tokenizer")) <= SL_JSON_NULL;

    if (plain && w.left == 2 && sl_json_step(&w) && is_prepend(w.value) && sl_json_step(&w) &&
        is_replace(w.value))
        return SLUICE_OK;
    return sl_hf_fail(hf, "tokenizer.json", e, SLUICE_E_UNSUPPORTED,
                      "a tokenizer with byte fallback whose steps are not those of SentencePiece "
                      "(a space in front, spaces as U+2581); a GGUF of the model may hold it");
}

/* ---- scores ---------------------------------------------------------------------------------- */

struct scoring {
    const struct sl_hf *hf;
    const struct sl_vocab *v;
    struct sl_gg_index index; /* of texts */
    float *scores;            /* 1: none yet */
    float next;
    sluice_error *e;
};

static sluice_err score_product(struct scoring *s, const struct sl_str parts[2])
{
    char text[TEXT_MAX], shown[SL_GG_SHOW_MAX];
    struct sl_str product = {text, parts[0].n + parts[1].n};
    uint32_t at = UINT32_MAX;

    if (product.n <= sizeof text) {
        memcpy(text, parts[0].p, parts[0].n);
        memcpy(text + parts[0].n, parts[1].p, parts[1].n);
        at = sl_gg_index_find(&s->index, s->v->tokens, sizeof *s->v->tokens, product);
    }
    if (at == UINT32_MAX)
        return sl_hf_fail(s->hf, "tokenizer.json", s->e, SLUICE_E_FORMAT,
                          "a merge gives what is no token, of '%s' and another text",
                          sl_str_show(parts[0], shown, sizeof shown));
    if (s->scores[at] > 0.0f && s->v->kinds[at] == SL_TOKEN_NORMAL) s->scores[at] = s->next--;
    return SLUICE_OK;
}

static sluice_err score_all(struct scoring *s)
{
    struct sl_json_value model = sl_json_get(sl_json_root(s->hf->tokenizer), "model");
    struct sl_json_walk w = sl_json_walk(sl_json_get(model, "merges"));
    struct sl_str parts[2];
    uint32_t bad = 0;
    sluice_err err = sl_gg_index_build(&s->index, s->hf->budget, s->v->tokens, s->v->n_tokens,
                                       sizeof *s->v->tokens, &bad);

    if (err == SLUICE_E_NOMEM) return sl_hf_no_memory(s->hf, 8 * (uint64_t)s->v->n_tokens, s->e);
    if (err != SLUICE_OK)
        return sl_hf_fail(s->hf, "tokenizer.json", s->e, err,
                          "two tokens have one text, or texts were made to collide");
    while (sl_json_step(&w)) {
        SL_HF_TRY(sl_hf_merge(s->hf, w.value, parts, s->e));
        SL_HF_TRY(score_product(s, parts));
    }
    for (uint32_t i = 0; i < s->v->n_tokens; i++) {
        if (s->v->kinds[i] != SL_TOKEN_NORMAL)
            s->scores[i] = SCORE_SPECIAL;
        else if (s->scores[i] > 0.0f)
            s->scores[i] = s->next--;
    }
    return SLUICE_OK;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

sluice_err sl_hf_read_spm(struct sl_hf *hf, struct sl_vocab *v, uint8_t *kinds, sluice_error *e)
{
    struct scoring s = {.hf = hf, .v = v, .e = e};
    struct sl_json_value model = sl_json_get(sl_json_root(hf->tokenizer), "model");
    struct sl_str unknown = {"", 0};
    sluice_err err;

    SL_HF_TRY(check_steps(hf, e));
    (void)sl_json_str(sl_json_get(model, "unk_token"), &unknown);
    s.scores = sl_arena_alloc(&hf->arena, v->n_tokens, sizeof *s.scores);
    if (s.scores == NULL) return sl_hf_no_memory(hf, 4 * (uint64_t)v->n_tokens, e);
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (kinds[i] == SL_TOKEN_NORMAL && is_byte(v->tokens[i])) kinds[i] = SL_TOKEN_BYTE;
        if (unknown.n > 0 && sl_str_same(v->tokens[i], unknown)) kinds[i] = SL_TOKEN_UNKNOWN;
        s.scores[i] = 1.0f;
    }
    err = score_all(&s);
    sl_gg_index_deinit(&s.index);
    if (err != SLUICE_OK) return err;
    v->model = SL_STR("llama");
    v->pre = SL_STR("default");
    v->scores = s.scores;
    return SLUICE_OK;
}
