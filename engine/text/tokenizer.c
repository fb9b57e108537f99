/* The tokenizer as the rest of the engine sees it: opening, look-ups, and the outer loop of
 * encoding, which cuts added tokens out and hands what is left to one of the two models. */
#include "engine/text/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- lists of ids ---------------------------------------------------------------------------- */

sluice_err sl_ids_push(struct sl_ids *l, int32_t id)
{
    if (l->count == l->capacity) {
        sluice_err err = sl_grow(l->budget, &l->ids, &l->capacity, l->count + 64, sizeof *l->ids);
        if (err != SLUICE_OK) return err;
    }
    l->ids[l->count++] = id;
    return SLUICE_OK;
}

sluice_err sl_ids_reserve(struct sl_ids *l, uint64_t n)
{
    if (n <= l->capacity) return SLUICE_OK;
    return sl_grow(l->budget, &l->ids, &l->capacity, n + 64, sizeof *l->ids);
}

void sl_ids_deinit(struct sl_ids *l)
{
    sl_free(l->ids);
    l->ids = NULL;
    l->count = 0;
    l->capacity = 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

sluice_err tokenizer_no_memory(sluice_error *e, sluice_err code, const char *what)
{
    return sl_fail(e, code, "there is not enough memory for %s", what);
}

static sluice_err check_id(const struct sl_vocab *v, int32_t id, const char *what, sluice_error *e)
{
    if (id < 0 || (uint32_t)id < v->n_tokens) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_FORMAT, "the %s token is %d, but the vocabulary has %u tokens", what,
                   id, v->n_tokens);
}

static sluice_err check_ids(const struct sl_vocab *v, sluice_error *e)
{
    sluice_err err = check_id(v, v->bos_id, "BOS", e);
    if (err == SLUICE_OK) err = check_id(v, v->eos_id, "EOS", e);
    if (err == SLUICE_OK) err = check_id(v, v->eot_id, "EOT", e);
    if (err == SLUICE_OK) err = check_id(v, v->eom_id, "EOM", e);
    if (err == SLUICE_OK) err = check_id(v, v->unk_id, "unknown", e);
    for (uint32_t i = 0; i < v->n_eog_ids && err == SLUICE_OK; i++)
        err = check_id(v, v->eog_ids[i], "end-of-generation", e);
    return err;
}

static int32_t unknown_id(const struct sl_tokenizer *t, const struct sl_vocab *v)
{
    if (v->unk_id >= 0) return v->unk_id;
    for (uint32_t i = 0; i < t->vocab.n; i++) {
        if (t->vocab.kinds[i] == SL_TOKEN_UNKNOWN) return (int32_t)i;
    }
    return -1;
}

static sluice_err open_model(struct sl_tokenizer *t, const struct sl_vocab *v, sluice_error *e)
{
    char shown[64];
    if (sl_str_eq(v->model, "gpt2")) {
        snprintf(t->name, sizeof t->name, "gpt2/%s", sl_str_show(v->pre, shown, sizeof shown - 8));
        return bpe_open(t, v, e);
    }
    if (sl_str_eq(v->model, "llama")) {
        snprintf(t->name, sizeof t->name, "llama");
        return spm_open(t, v, e);
    }
    if (sl_str_eq(v->model, "gemma4")) {
        snprintf(t->name, sizeof t->name, "gemma4");
        t->spm_ranked = true;
        return spm_open(t, v, e);
    }
    return sl_fail(e, SLUICE_E_UNSUPPORTED,
                   "tokenizer model \"%s\" (tokenizer.ggml.model) is not supported; supported are "
                   "gpt2, llama and gemma4",
                   sl_str_show(v->model, shown, sizeof shown));
}

sluice_err sl_tokenizer_open(const struct sl_vocab *v, struct sl_budget *b, sluice_error *e,
                             struct sl_tokenizer **out)
{
    *out = NULL;
    sluice_err err = check_ids(v, e);
    if (err != SLUICE_OK) return err;
    struct sl_tokenizer *t = sl_alloc(b, 1, sizeof *t);
    if (t == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the tokenizer");
    t->budget = b;
    t->bos_id = v->bos_id;
    t->eos_id = v->eos_id;
    err = vocab_table_open(&t->vocab, v, b, e);
    if (err != SLUICE_OK) goto out;
    t->unk_id = unknown_id(t, v);
    err = added_tokens_open(&t->added, &t->vocab, b, e);
    if (err == SLUICE_OK) err = open_model(t, v, e);
    if (err == SLUICE_OK) err = eog_open(t, v, e);
    /* Gemma 4 needs BOS, but files are around that deny it. */
    if (v->add_bos >= 0 && !t->spm_ranked) t->add_bos = v->add_bos != 0;
    t->add_eos = v->add_eos > 0;
out:
    if (err != SLUICE_OK)
        sl_tokenizer_close(t);
    else
        *out = t;
    return err;
}

void sl_tokenizer_close(struct sl_tokenizer *t)
{
    if (t == NULL) return;
    pretok_close(t->pretok);
    bpe_close(&t->bpe);
    added_tokens_close(&t->added);
    vocab_table_close(&t->vocab);
    sl_free(t->ranks);
    sl_free(t->eog_bits);
    sl_free(t);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

static bool is_id(const struct sl_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n;
}

uint32_t sl_tokenizer_size(const struct sl_tokenizer *t) { return t->vocab.n; }

struct sl_str sl_tokenizer_text(const struct sl_tokenizer *t, int32_t id)
{
    return is_id(t, id) ? vocab_text(&t->vocab, id) : (struct sl_str){"", 0};
}

int32_t sl_tokenizer_find(const struct sl_tokenizer *t, struct sl_str text)
{
    int32_t id = vocab_find(&t->vocab, text);
    uint8_t kind = id < 0 ? SL_TOKEN_NORMAL : t->vocab.kinds[id];
    return kind == SL_TOKEN_CONTROL || kind == SL_TOKEN_USER_DEFINED ? id : -1;
}

struct sl_str sl_tokenizer_piece(const struct sl_tokenizer *t, int32_t id, bool special)
{
    if (!is_id(t, id)) return (struct sl_str){"", 0};
    uint8_t kind = t->vocab.kinds[id];
    if (!special && (kind == SL_TOKEN_CONTROL || kind == SL_TOKEN_UNKNOWN))
        return (struct sl_str){"", 0};
    return vocab_piece(&t->vocab, id);
}

int32_t sl_tokenizer_bos(const struct sl_tokenizer *t) { return t->bos_id; }
int32_t sl_tokenizer_eos(const struct sl_tokenizer *t) { return t->eos_id; }
bool sl_tokenizer_adds_bos(const struct sl_tokenizer *t) { return t->add_bos && t->bos_id >= 0; }

bool sl_tokenizer_is_eog(const struct sl_tokenizer *t, int32_t id)
{
    return is_id(t, id) && (t->eog_bits[id / 8] >> (id % 8) & 1) != 0;
}

const char *sl_tokenizer_name(const struct sl_tokenizer *t) { return t->name; }

uint64_t sl_tokenizer_bytes(const struct sl_tokenizer *t)
{
    uint64_t bytes =
        sizeof *t + vocab_table_bytes(&t->vocab) + (uint64_t)t->added.n * sizeof *t->added.ids;
    bytes += bpe_bytes(&t->bpe) + t->vocab.n / 8 + 1;
    if (t->ranks != NULL) bytes += (uint64_t)t->vocab.n * sizeof *t->ranks;
    return bytes + (t->pretok != NULL ? pretok_bytes(t->pretok) : 0);
}

/* ---- encoding -------------------------------------------------------------------------------- */

sluice_err encoder_push(struct encoder *c, int32_t id)
{
    sluice_err err = sl_ids_push(c->out, id);
    return err == SLUICE_OK ? err : tokenizer_no_memory(c->e, err, "the token ids");
}

sluice_err encoder_push_byte(struct encoder *c, uint8_t byte)
{
    int32_t id = c->t->byte_ids[byte];
    if (id < 0 && !c->t->is_spm) return SLUICE_OK;
    if (id < 0) id = c->t->unk_id;
    if (id < 0)
        return sl_fail(c->e, SLUICE_E_FORMAT,
                       "the vocabulary has no token for byte 0x%02x and no unknown token", byte);
    return encoder_push(c, id);
}

sluice_err encoder_push_cached(struct encoder *c, struct sl_str word, bool *hit)
{
    const struct cached_word *w = word_cache_find(&c->cache, word);
    sluice_err err = SLUICE_OK;
    *hit = w != NULL;
    for (uint32_t i = 0; w != NULL && i < w->n_ids && err == SLUICE_OK; i++)
        err = encoder_push(c, w->ids[i]);
    return err;
}

static sluice_err encode_parts(struct encoder *c, const struct sl_encode_request *r)
{
    const struct added_scope scope = {(r->flags & SL_ENCODE_SPECIAL) != 0, r->plain, r->n_plain};
    const struct sl_tokenizer *t = c->t;
    sluice_err err = SLUICE_OK;
    uint64_t at = 0;
    bool prefix = t->add_space_prefix; /* at the start and after every added token */
    while (at < r->text.n && err == SLUICE_OK) {
        struct added_match m = {r->text.n, 0, -1};
        added_tokens_find(&t->added, &t->vocab, r->text, at, &scope, &m);
        struct sl_str part = {r->text.p + at, m.at - at};
        if (part.n > 0) {
            err = t->is_spm ? spm_encode(c, part, prefix) : bpe_encode(c, part);
            prefix = false;
        }
        if (m.id >= 0 && err == SLUICE_OK) {
            err = encoder_push(c, m.id);
            prefix = t->add_space_prefix;
        }
        at = m.at + m.n;
    }
    return err;
}

/* BOS before and EOS after what was appended from index first on, unless they are there. */
static sluice_err add_ends(struct encoder *c, uint64_t first)
{
    const struct sl_tokenizer *t = c->t;
    struct sl_ids *out = c->out;
    sluice_err err = SLUICE_OK;
    if (sl_tokenizer_adds_bos(t) && (out->count == first || out->ids[first] != t->bos_id)) {
        err = encoder_push(c, t->bos_id);
        if (err != SLUICE_OK) return err;
        memmove(out->ids + first + 1, out->ids + first,
                (out->count - 1 - first) * sizeof *out->ids);
        out->ids[first] = t->bos_id;
    }
    bool ends = out->count > first && out->ids[out->count - 1] == t->eos_id;
    if (t->add_eos && t->eos_id >= 0 && !ends) err = encoder_push(c, t->eos_id);
    return err;
}

sluice_err sl_tokenizer_encode_request(const struct sl_tokenizer *t,
                                       const struct sl_encode_request *r, struct sl_ids *out,
                                       sluice_error *e)
{
    if (r->text.n > TEXT_BYTES_MAX)
        return sl_fail(e, SLUICE_E_LIMIT,
                       "the text has %zu bytes; at most %llu can be tokenized at once", r->text.n,
                       TEXT_BYTES_MAX);
    struct encoder c = {
        .t = t, .out = out, .e = e, .merger.budget = t->budget, .normalizer.budget = t->budget};
    uint64_t first = out->count;
    word_cache_init(&c.cache, r->text.n, t->budget);
    sluice_err err = encode_parts(&c, r);
    if (err == SLUICE_OK && (r->flags & SL_ENCODE_BOS) != 0) err = add_ends(&c, first);
    if (err != SLUICE_OK) out->count = first;
    merger_deinit(&c.merger);
    normalizer_deinit(&c.normalizer);
    word_cache_deinit(&c.cache);
    sl_free(c.word.p);
    if (c.scanning) pretok_scan_deinit(&c.scan);
    return err;
}

sluice_err sl_tokenizer_encode(const struct sl_tokenizer *t, struct sl_str text, unsigned flags,
                               struct sl_ids *out, sluice_error *e)
{
    const struct sl_encode_request r = {.text = text, .flags = flags};
    return sl_tokenizer_encode_request(t, &r, out, e);
}
