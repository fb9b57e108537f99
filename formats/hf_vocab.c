/* tokenizer.json to a vocabulary: texts by id, kinds, merges.
 *
 *     {"added_tokens": [{"id": 5, "content": "<|x|>", "special": true, ...}, ...],
 *      "model": {"type": "BPE", "vocab": {"TEXT": ID, ...}, "merges": [["a", "b"], ...], ...}, ...}
 *
 * Texts and merges are views of the file's text where they stand as they are needed. Ids that no
 * text has, as where the matrix is wider than the vocabulary, become unused tokens [PADi], which is
 * what GGUF files call them. */
#define _GNU_SOURCE /* memmem */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf_internal.h"

#define FILE_NAME "tokenizer.json"
#define PAD_BYTES 16 /* of the name of an unused token */

struct reading {
    struct sl_hf *hf;
    struct sl_json_value model, added;
    struct sl_str *tokens; /* p NULL: not seen yet */
    uint8_t *kinds;
    uint32_t n_tokens;
    sluice_error *e;
};

static sluice_err fail(const struct reading *r, sluice_err code, const char *what,
                       struct sl_str token)
{
    char shown[SL_GG_SHOW_MAX];

    return sl_hf_fail(r->hf, FILE_NAME, r->e, code, "%s%s%s%s", what, token.n > 0 ? " '" : "",
                      sl_str_show(token, shown, sizeof shown), token.n > 0 ? "'" : "");
}

static const struct sl_str none = {"", 0};

/* ---- kind of tokenizer ----------------------------------------------------------------------- */

/* *spm: made from a SentencePiece model. */
static sluice_err check_model(const struct reading *r, bool *spm)
{
    const struct sl_hf_object model = {r->hf, FILE_NAME, r->model, r->e};
    struct sl_str type = {"", 0}, prefix = {"", 0}, suffix = {"", 0};
    char shown[SL_GG_SHOW_MAX];

    SL_HF_TRY(sl_hf_str(&model, "type", &type));
    SL_HF_TRY(sl_hf_bool(&model, "byte_fallback", spm));
    SL_HF_TRY(sl_hf_str(&model, "continuing_subword_prefix", &prefix));
    SL_HF_TRY(sl_hf_str(&model, "end_of_word_suffix", &suffix));
    if (sl_hf_has(&model, "dropout") || prefix.n > 0 || suffix.n > 0)
        return fail(r, SLUICE_E_UNSUPPORTED, "the tokenizer marks parts of words or drops merges",
                    none);
    if (sl_str_eq(type, "BPE")) return SLUICE_OK;
    return sl_hf_fail(r->hf, FILE_NAME, r->e, SLUICE_E_UNSUPPORTED,
                      "a tokenizer of the kind '%s'; this version reads BPE from folders (a GGUF "
                      "of the model may hold this one)",
                      sl_str_show(type, shown, sizeof shown));
}

/* ---- texts and kinds ------------------------------------------------------------------------- */

static sluice_err read_id(const struct reading *r, struct sl_json_value v, struct sl_str text,
                          uint32_t *id)
{
    uint64_t n = 0;

    if (!sl_json_u64(v, &n) || n >= SL_VOCAB_MAX)
        return fail(r, SLUICE_E_FORMAT, "no id, or one past the limit, has the token", text);
    *id = (uint32_t)n;
    return SLUICE_OK;
}

/* One more than the largest id. */
static sluice_err count_tokens(struct reading *r)
{
    struct sl_json_walk w = sl_json_walk(sl_json_get(r->model, "vocab"));
    struct sl_json_walk a = sl_json_walk(r->added);
    const struct sl_hf_object config = {r->hf, "config.json", r->hf->text, r->e};
    uint32_t id = 0, size = 0;
    struct sl_str text = none;

    while (sl_json_step(&w)) {
        SL_HF_TRY(read_id(r, w.value, w.key, &id));
        if (id >= r->n_tokens) r->n_tokens = id + 1;
    }
    while (sl_json_step(&a)) {
        if (!sl_json_str(sl_json_get(a.value, "content"), &text))
            return fail(r, SLUICE_E_FORMAT, "an added token has no content", none);
        SL_HF_TRY(read_id(r, sl_json_get(a.value, "id"), text, &id));
        if (id >= r->n_tokens) r->n_tokens = id + 1;
    }
    if (r->n_tokens == 0) return fail(r, SLUICE_E_FORMAT, "there are no tokens", none);
    SL_HF_TRY(sl_hf_u32(&config, "vocab_size", &size));
    if (size > 0 && (size < r->n_tokens || size > SL_VOCAB_MAX))
        return sl_hf_fail(r->hf, "config.json", r->e, SLUICE_E_FORMAT,
                          "vocab_size is %" PRIu32 ", but " FILE_NAME " holds %" PRIu32
                          " tokens (at most %u are possible)",
                          size, r->n_tokens, SL_VOCAB_MAX);
    r->n_tokens = size > 0 ? size : r->n_tokens;
    return SLUICE_OK;
}

static sluice_err read_texts(struct reading *r)
{
    struct sl_json_walk w = sl_json_walk(sl_json_get(r->model, "vocab"));
    uint32_t id = 0;

    while (sl_json_step(&w)) {
        SL_HF_TRY(read_id(r, w.value, w.key, &id));
        if (r->tokens[id].p != NULL)
            return fail(r, SLUICE_E_FORMAT, "another token has the id of", w.key);
        r->tokens[id] = w.key;
        r->kinds[id] = SL_TOKEN_NORMAL;
    }
    return SLUICE_OK;
}

/* Tokens that steer the model though their file calls them text; GGUF files have them as control
 * tokens. */
static bool looks_special(struct sl_str s)
{
    static const char *const names[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};

    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++)
        if (sl_str_eq(s, names[i])) return true;
    return (sl_str_starts(s, "<|") && sl_str_ends(s, "|>")) ||
           (sl_str_starts(s, "<\xef\xbd\x9c") && sl_str_ends(s, "\xef\xbd\x9c>")) ||
           (sl_str_starts(s, "<unused") && sl_str_ends(s, ">"));
}

/* s with U+2581 as spaces: such tokens are matched in text that has not been changed yet. */
static sluice_err plain_spaces(const struct reading *r, struct sl_str *s)
{
    static const char mark[] = "\xe2\x96\x81";
    char *copy;
    size_t n = 0;

    if (memmem(s->p, s->n, mark, 3) == NULL) return SLUICE_OK;
    copy = sl_arena_alloc(&r->hf->arena, s->n, 1);
    if (copy == NULL) return sl_hf_no_memory(r->hf, s->n, r->e);
    for (size_t i = 0; i < s->n; n++) {
        bool space = s->n - i >= 3 && memcmp(s->p + i, mark, 3) == 0;

        copy[n] = space ? ' ' : s->p[i];
        i += space ? 3 : 1;
    }
    *s = (struct sl_str){copy, n};
    return SLUICE_OK;
}

static sluice_err read_added(struct reading *r)
{
    struct sl_json_walk w = sl_json_walk(r->added);
    uint32_t id = 0;

    while (sl_json_step(&w)) {
        const struct sl_hf_object token = {r->hf, FILE_NAME, w.value, r->e};
        struct sl_str text = none;
        bool special = false;

        SL_HF_TRY(sl_hf_str(&token, "content", &text));
        SL_HF_TRY(sl_hf_bool(&token, "special", &special));
        SL_HF_TRY(read_id(r, sl_json_get(w.value, "id"), text, &id));
        if (r->tokens[id].p != NULL && !sl_str_same(r->tokens[id], text))
            return fail(r, SLUICE_E_FORMAT, "another token has the id of the added token", text);
        special = special || looks_special(text);
        if (!special) SL_HF_TRY(plain_spaces(r, &text));
        r->tokens[id] = text;
        r->kinds[id] = special ? SL_TOKEN_CONTROL : SL_TOKEN_USER_DEFINED;
    }
    return SLUICE_OK;
}

static sluice_err fill_holes(struct reading *r)
{
    uint32_t holes = 0;
    char *names;

    for (uint32_t i = 0; i < r->n_tokens; i++) holes += r->tokens[i].p == NULL;
    if (holes == 0) return SLUICE_OK;
    names = sl_arena_alloc(&r->hf->arena, holes, PAD_BYTES);
    if (names == NULL) return sl_hf_no_memory(r->hf, (uint64_t)holes * PAD_BYTES, r->e);
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        if (r->tokens[i].p != NULL) continue;
        int n = snprintf(names, PAD_BYTES, "[PAD%" PRIu32 "]", i);

        r->tokens[i] = (struct sl_str){names, (size_t)n};
        r->kinds[i] = SL_TOKEN_UNUSED;
        names += PAD_BYTES;
    }
    return SLUICE_OK;
}

/* ---- merges ---------------------------------------------------------------------------------- */

sluice_err sl_hf_merge(const struct sl_hf *hf, struct sl_json_value v, struct sl_str parts[2],
                       sluice_error *e)
{
    struct sl_json_walk w = sl_json_walk(v);
    char shown[SL_GG_SHOW_MAX];
    struct sl_str s = none;

    parts[0] = parts[1] = none;
    if (sl_json_str(v, &s)) {
        const char *space = memchr(s.p, ' ', s.n);

        if (space != NULL) {
            parts[0] = (struct sl_str){s.p, (size_t)(space - s.p)};
            parts[1] = (struct sl_str){space + 1, s.n - parts[0].n - 1};
        }
    } else if (sl_json_count(v) == 2) {
        for (int i = 0; i < 2 && sl_json_step(&w); i++)
            if (!sl_json_str(w.value, &parts[i])) parts[i] = none;
    }
    for (int i = 0; i < 2; i++)
        if (parts[i].n == 0 || memchr(parts[i].p, ' ', parts[i].n) != NULL)
            return sl_hf_fail(hf, FILE_NAME, e, SLUICE_E_FORMAT,
                              "a merge is no pair of texts without spaces ('%s')",
                              sl_str_show(s, shown, sizeof shown));
    return SLUICE_OK;
}

/* Bytes of all merges as "left right". */
static sluice_err measure_merges(const struct reading *r, struct sl_json_value merges,
                                 uint64_t *bytes)
{
    struct sl_json_walk w = sl_json_walk(merges);
    struct sl_str parts[2];

    while (sl_json_step(&w)) {
        SL_HF_TRY(sl_hf_merge(r->hf, w.value, parts, r->e));
        *bytes += parts[0].n + parts[1].n + 1; /* no more than the file has */
    }
    return SLUICE_OK;
}

static sluice_err read_merges(const struct reading *r, struct sl_vocab *v)
{
    struct sl_json_value merges = sl_json_get(r->model, "merges");
    struct sl_json_walk w = sl_json_walk(merges);
    uint32_t n = sl_json_count(merges);
    struct sl_str parts[2], *list;
    uint64_t bytes = 0;
    char *text;

    if (sl_json_kind_of(merges) != SL_JSON_ARRAY || n == 0 || n > SL_VOCAB_MAX)
        return fail(r, SLUICE_E_FORMAT, "there is no list of merges, or an absurdly long one",
                    none);
    SL_HF_TRY(measure_merges(r, merges, &bytes));
    list = sl_arena_alloc(&r->hf->arena, n, sizeof *list);
    text = sl_arena_alloc(&r->hf->arena, bytes, 1);
    if (list == NULL || text == NULL) return sl_hf_no_memory(r->hf, n * sizeof *list + bytes, r->e);
    v->merges = list;
    v->n_merges = n;
    for (; sl_json_step(&w); list++) {
        SL_HF_TRY(sl_hf_merge(r->hf, w.value, parts, r->e));
        *list = (struct sl_str){text, parts[0].n + parts[1].n + 1};
        memcpy(text, parts[0].p, parts[0].n);
        text[parts[0].n] = ' ';
        memcpy(text + parts[0].n + 1, parts[1].p, parts[1].n);
        text += list->n;
    }
    return SLUICE_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static sluice_err read_vocab(struct sl_hf *hf, struct sl_vocab *v, sluice_error *e)
{
    struct reading r = {.hf = hf, .e = e};
    struct sl_json_value root = sl_json_root(hf->tokenizer);
    bool spm = false;

    r.model = sl_json_get(root, "model");
    r.added = sl_json_get(root, "added_tokens");
    SL_HF_TRY(check_model(&r, &spm));
    if (!spm) v->pre = sl_hf_pre_name(hf);
    if (!spm && v->pre.n == 0)
        return fail(&r, SLUICE_E_UNSUPPORTED,
                    "the pre-tokenizer is none that this version knows by its expressions; "
                    "another would give other tokens",
                    none);
    SL_HF_TRY(count_tokens(&r));
    r.tokens = sl_arena_alloc(&hf->arena, r.n_tokens, sizeof *r.tokens);
    r.kinds = sl_arena_alloc(&hf->arena, r.n_tokens, 1);
    if (r.tokens == NULL || r.kinds == NULL)
        return sl_hf_no_memory(hf, r.n_tokens * (sizeof *r.tokens + 1), e);
    SL_HF_TRY(read_texts(&r));
    SL_HF_TRY(read_added(&r));
    SL_HF_TRY(fill_holes(&r));
    v->model = SL_STR("gpt2");
    v->n_tokens = r.n_tokens;
    v->tokens = r.tokens;
    v->kinds = r.kinds;
    SL_HF_TRY(spm ? sl_hf_read_spm(hf, v, r.kinds, e) : read_merges(&r, v));
    return sl_hf_read_special(hf, v, e);
}

sluice_err sl_hf_vocab(struct sl_hf *hf, struct sl_vocab *out, sluice_error *e)
{
    struct sl_vocab v = {.model = none, .pre = none, .chat_template = none};

    if (!hf->has_vocab) {
        SL_HF_TRY(sl_hf_open_tokenizer(hf, e));
        SL_HF_TRY(read_vocab(hf, &v, e));
        hf->vocab = v;
        hf->has_vocab = true;
    }
    *out = hf->vocab;
    return SLUICE_OK;
}
