/* What a folder says about its vocabulary outside of tokenizer.json's model: which tokens begin and
 * end a text, whether they are added, which tokens end an answer, and the chat template.
 *
 * A special token's id is that of the added token whose text tokenizer_config.json gives; where it
 * gives none, config.json's number. Tokens that end an answer are those of generation_config.json,
 * of which there may be several. */
#include <inttypes.h>
#include <string.h>

#include "formats/hf_internal.h"
#include "io/file.h"

struct special {
    struct sl_hf *hf;
    struct sl_vocab *v;
    struct sl_json_value added, names; /* added_tokens; tokenizer_config.json */
    sluice_error *e;
};

/* ---- ids ------------------------------------------------------------------------------------- */

/* The text under key: a string, or an object with a content. Empty: there is none. */
static struct sl_str token_text(const struct special *s, const char *key)
{
    struct sl_json_value v = sl_json_get(s->names, key);
    struct sl_str text = {"", 0};

    if (!sl_json_str(v, &text)) (void)sl_json_str(sl_json_get(v, "content"), &text);
    return text;
}

/* The id of the added token of that text, or -1. */
static int32_t added_id(const struct special *s, struct sl_str text)
{
    struct sl_json_walk w = sl_json_walk(s->added);
    struct sl_str content = {"", 0};
    uint64_t id = 0;

    while (text.n > 0 && sl_json_step(&w)) {
        if (sl_json_str(sl_json_get(w.value, "content"), &content) && sl_str_same(content, text) &&
            sl_json_u64(sl_json_get(w.value, "id"), &id) && id < s->v->n_tokens)
            return (int32_t)id;
    }
    return -1;
}

struct id_place {
    const char *text_key, *id_key;
    size_t offset;   /* of the member of sl_vocab */
    bool never_used; /* past the end counts as none */
};

static const struct id_place id_places[] = {
    {"bos_token", "bos_token_id", offsetof(struct sl_vocab, bos_id), false},
    {"eos_token", "eos_token_id", offsetof(struct sl_vocab, eos_id), false},
    {"unk_token", "unk_token_id", offsetof(struct sl_vocab, unk_id), false},
    {"sep_token", "sep_token_id", offsetof(struct sl_vocab, sep_id), true},
    {"pad_token", "pad_token_id", offsetof(struct sl_vocab, pad_id), true},
};

static sluice_err fail_id(const struct special *s, const char *file, const char *key)
{
    return sl_hf_fail(s->hf, file, s->e, SLUICE_E_FORMAT,
                      "'%s' is no token id below %" PRIu32 ", nor a list of such", key,
                      s->v->n_tokens);
}

/* bos is the text that begins a text by the post-processor, where the config names none. */
static sluice_err read_ids(const struct special *s, struct sl_str bos)
{
    struct sl_json_value config = s->hf->text;

    for (size_t i = 0; i < SL_ARRAY_LEN(id_places); i++) {
        const struct id_place *p = &id_places[i];
        int32_t id = added_id(s, i == 0 ? bos : token_text(s, p->text_key));
        int64_t n = -1;

        if (id < 0 && sl_json_i64(sl_json_get(config, p->id_key), &n)) {
            if (n >= 0 && n < s->v->n_tokens)
                id = (int32_t)n;
            else if (n >= 0 && !p->never_used)
                return fail_id(s, "config.json", p->id_key);
        }
        memcpy((char *)s->v + p->offset, &id, sizeof id);
    }
    s->v->eot_id = s->v->eom_id = -1;
    return SLUICE_OK;
}

/* eos_token_id of a config: one id, or several, which then all end an answer. */
static sluice_err read_ends(const struct special *s, const char *file, struct sl_json_value config)
{
    struct sl_json_value list = sl_json_get(config, "eos_token_id");
    struct sl_json_walk w = sl_json_walk(list);
    uint32_t n = sl_json_count(list);
    uint64_t id = 0;
    int32_t *ids;

    if (sl_json_u64(list, &id)) {
        if (id >= s->v->n_tokens) return fail_id(s, file, "eos_token_id");
        if (s->v->eos_id < 0) s->v->eos_id = (int32_t)id;
        return SLUICE_OK;
    }
    if (sl_json_kind_of(list) <= SL_JSON_NULL || s->v->n_eog_ids > 0) return SLUICE_OK;
    if (sl_json_kind_of(list) != SL_JSON_ARRAY || n == 0 || n > s->v->n_tokens)
        return fail_id(s, file, "eos_token_id");
    ids = sl_arena_alloc(&s->hf->arena, n, sizeof *ids);
    if (ids == NULL) return sl_hf_no_memory(s->hf, n * sizeof *ids, s->e);
    for (uint32_t i = 0; sl_json_step(&w); i++) {
        if (!sl_json_u64(w.value, &id) || id >= s->v->n_tokens)
            return fail_id(s, file, "eos_token_id");
        ids[i] = (int32_t)id;
    }
    s->v->eog_ids = ids;
    s->v->n_eog_ids = n;
    if (s->v->eos_id < 0) s->v->eos_id = ids[0];
    return SLUICE_OK;
}

/* ---- what is added to a text ----------------------------------------------------------------- */

/* The ends of a TemplateProcessing's "single": texts of special tokens, empty where the text itself
 * stands there. */
static void template_ends(struct sl_json_value step, struct sl_str *first, struct sl_str *last)
{
    struct sl_json_walk w = sl_json_walk(sl_json_get(step, "single"));
    uint32_t n = w.left;

    for (uint32_t i = 0; n > 1 && sl_json_step(&w); i++) {
        struct sl_json_value id = sl_json_get(sl_json_get(w.value, "SpecialToken"), "id");

        if (i == 0) (void)sl_json_str(id, first);
        if (i == n - 1) (void)sl_json_str(id, last);
    }
}

/* One step of the post-processor. */
static sluice_err read_step(const struct special *s, struct sl_json_value step,
                            struct sl_str *first, struct sl_str *last)
{
    struct sl_str type = {"", 0};
    char shown[SL_GG_SHOW_MAX];

    if (sl_json_kind_of(step) <= SL_JSON_NULL) return SLUICE_OK;
    (void)sl_json_str(sl_json_get(step, "type"), &type);
    if (sl_str_eq(type, "TemplateProcessing"))
        template_ends(step, first, last);
    else if (!sl_str_eq(type, "ByteLevel"))
        return sl_hf_fail(s->hf, "tokenizer.json", s->e, SLUICE_E_UNSUPPORTED,
                          "the post-processor '%s' is not supported",
                          sl_str_show(type, shown, sizeof shown));
    return SLUICE_OK;
}

/* Whether texts get a first and a last token, and *bos, the text of the first. */
static sluice_err read_added(const struct special *s, struct sl_str *bos)
{
    struct sl_json_value post = sl_json_get(sl_json_root(s->hf->tokenizer), "post_processor");
    struct sl_json_walk w = sl_json_walk(sl_json_get(post, "processors"));
    struct sl_str first = {"", 0}, last = {"", 0}, eos = token_text(s, "eos_token");
    bool steps = sl_json_kind_of(sl_json_get(post, "processors")) == SL_JSON_ARRAY;
    char shown[SL_GG_SHOW_MAX];

    if (!steps) SL_HF_TRY(read_step(s, post, &first, &last));
    while (sl_json_step(&w)) SL_HF_TRY(read_step(s, w.value, &first, &last));
    *bos = token_text(s, "bos_token");
    if (bos->n == 0) *bos = first;
    if (first.n > 0) s->v->add_bos = sl_str_same(first, *bos);
    if (last.n > 0) s->v->add_eos = sl_str_same(last, eos);
    if (s->v->add_bos == 0 || s->v->add_eos == 0)
        return sl_hf_fail(s->hf, "tokenizer.json", s->e, SLUICE_E_UNSUPPORTED,
                          "the post-processor adds '%s', which is neither bos_token nor eos_token",
                          sl_str_show(s->v->add_bos == 0 ? first : last, shown, sizeof shown));
    return SLUICE_OK;
}

static sluice_err read_flags(const struct special *s)
{
    const struct sl_hf_object o = {s->hf, "tokenizer_config.json", s->names, s->e};
    bool bos = false, eos = false, space = false;

    SL_HF_TRY(sl_hf_bool(&o, "add_bos_token", &bos));
    SL_HF_TRY(sl_hf_bool(&o, "add_eos_token", &eos));
    SL_HF_TRY(sl_hf_bool(&o, "add_prefix_space", &space));
    if (sl_hf_has(&o, "add_bos_token")) s->v->add_bos = bos;
    if (sl_hf_has(&o, "add_eos_token")) s->v->add_eos = eos;
    if (sl_hf_has(&o, "add_prefix_space") && s->hf->family->llama_keys)
        s->v->add_space_prefix = space;
    return SLUICE_OK;
}

/* ---- template -------------------------------------------------------------------------------- */

/* chat_template.jinja, as it is; left alone where there is none. */
static sluice_err read_template_file(const struct special *s)
{
    char *path = sl_hf_path(s->hf, "chat_template.jinja"), *text;
    struct sl_file *f = NULL;
    char shown[SL_GG_SHOW_PATH_MAX];
    sluice_error why = {.code = 0};

    if (path == NULL) return sl_hf_no_memory(s->hf, 1, s->e);
    sluice_err err = sl_file_open(path, s->hf->budget, &why, &f);
    if (err == SLUICE_E_NOT_FOUND) return SLUICE_OK;
    uint64_t n = err == SLUICE_OK ? sl_file_bytes(f) : 0;
    if (err == SLUICE_OK && n > SL_HF_TEMPLATE_MAX)
        err = sl_fail(&why, SLUICE_E_LIMIT, "%s: larger than %u bytes",
                      sl_gg_show_path(path, shown), SL_HF_TEMPLATE_MAX);
    text = err == SLUICE_OK ? sl_arena_alloc(&s->hf->arena, n, 1) : NULL;
    if (err == SLUICE_OK && text == NULL) err = sl_hf_no_memory(s->hf, n, &why);
    if (err == SLUICE_OK) err = sl_file_read_at(f, 0, text, n, &why);
    if (err == SLUICE_OK) s->v->chat_template = (struct sl_str){text, n};
    if (err != SLUICE_OK && s->e != NULL) *s->e = why;
    sl_file_close(f);
    return err;
}

/* tokenizer_config.json's template first: one text, or several with names, of which "default". */
static sluice_err read_template(const struct special *s)
{
    struct sl_json_value v = sl_json_get(s->names, "chat_template");
    struct sl_json_walk w = sl_json_walk(v);
    struct sl_str name = {"", 0};

    if (sl_json_str(v, &s->v->chat_template)) return SLUICE_OK;
    while (sl_json_kind_of(v) == SL_JSON_ARRAY && sl_json_step(&w)) {
        if (sl_json_str(sl_json_get(w.value, "name"), &name) && sl_str_eq(name, "default") &&
            sl_json_str(sl_json_get(w.value, "template"), &s->v->chat_template))
            return SLUICE_OK;
    }
    return read_template_file(s);
}

/* ---- all of it ------------------------------------------------------------------------------- */

sluice_err sl_hf_read_special(struct sl_hf *hf, struct sl_vocab *v, sluice_error *e)
{
    struct special s = {.hf = hf, .v = v, .e = e};
    struct sl_str bos = {"", 0};

    s.added = sl_json_get(sl_json_root(hf->tokenizer), "added_tokens");
    s.names = sl_json_root(hf->tokenizer_config);
    v->add_bos = v->add_eos = v->add_space_prefix = v->remove_extra_whitespaces = -1;
    SL_HF_TRY(read_added(&s, &bos));
    SL_HF_TRY(read_ids(&s, bos));
    SL_HF_TRY(read_ends(&s, "generation_config.json", sl_json_root(hf->generation)));
    SL_HF_TRY(read_ends(&s, "config.json", hf->text));
    SL_HF_TRY(read_flags(&s));
    return read_template(&s);
}
