/* Text and tokens, chat templates. */
#define _POSIX_C_SOURCE 200809L /* localtime_r */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/api.h"

/* Hands out a list of ids by the caller's rules: count always, ids only where they all fit. */
static sluice_err give_ids(const struct sl_ids *l, sluice_ids *out, sluice_error *e)
{
    out->count = l->count;
    if (l->count > out->capacity)
        return sl_fail(e, SLUICE_E_LIMIT, "%llu ids do not fit into room for %zu",
                       (unsigned long long)l->count, out->capacity);
    if (l->count) memcpy(out->ids, l->ids, l->count * sizeof *l->ids);
    return SLUICE_OK;
}

static sluice_err need_tokenizer(const sluice_model *m, sluice_error *e)
{
    if (m->tokenizer) return SLUICE_OK;
    return sl_fail(
        e, SLUICE_E_STATE,
        "the model was opened by its header only; open it with SLUICE_OPEN_VOCAB to tokenize");
}

sluice_err sluice_tokenize(const sluice_model *m, const char *text, size_t text_bytes,
                           uint32_t flags, sluice_ids *out, sluice_error *error)
{
    out->count = 0;
    sluice_err err = need_tokenizer(m, error);
    if (err != SLUICE_OK) return err;
    /* The budget's counters are atomic: charging it from a const handle is what makes this call
     * safe from any thread. */
    struct sl_ids l = {(struct sl_budget *)(uintptr_t)&m->budget, NULL, 0, 0};
    unsigned f = (flags & SLUICE_TOKENIZE_SPECIAL ? SL_ENCODE_SPECIAL : 0) |
                 (flags & SLUICE_TOKENIZE_BOS ? SL_ENCODE_BOS : 0);
    err = sl_tokenizer_encode(m->tokenizer, (struct sl_str){text, text_bytes}, f, &l, error);
    if (err == SLUICE_OK) err = give_ids(&l, out, error);
    sl_ids_deinit(&l);
    return err;
}

const char *sluice_token_piece(const sluice_model *m, int32_t id, int special, size_t *bytes)
{
    struct sl_str s =
        m->tokenizer ? sl_tokenizer_piece(m->tokenizer, id, special != 0) : (struct sl_str){"", 0};
    *bytes = s.n;
    return s.p;
}

int sluice_token_is_end(const sluice_model *m, int32_t id)
{
    return m->tokenizer && sl_tokenizer_is_eog(m->tokenizer, id);
}
int32_t sluice_token_bos(const sluice_model *m)
{
    return m->tokenizer ? sl_tokenizer_bos(m->tokenizer) : -1;
}
int32_t sluice_token_eos(const sluice_model *m)
{
    return m->tokenizer ? sl_tokenizer_eos(m->tokenizer) : -1;
}

/* ---- streaming decode ------------------------------------------------------------------- */

struct sluice_decoder {
    const struct sl_tokenizer *tok;
    struct sl_detok d;
    bool special;
    size_t size;
    char buf[];
};

sluice_err sluice_decoder_open(const sluice_model *m, int special, sluice_decoder **out,
                               sluice_error *error)
{
    *out = NULL;
    sluice_err err = need_tokenizer(m, error);
    if (err != SLUICE_OK) return err;
    size_t size = sl_detok_max(m->tokenizer);
    sluice_decoder *d = sl_alloc((struct sl_budget *)(uintptr_t)&m->budget, 1, sizeof *d + size);
    if (!d) return sl_fail(error, SLUICE_E_NOMEM, "no memory for a decoder");
    d->tok = m->tokenizer;
    d->special = special != 0;
    d->size = size;
    sl_detok_init(&d->d, d->tok, d->special);
    *out = d;
    return SLUICE_OK;
}

const char *sluice_decoder_push(sluice_decoder *d, int32_t id, size_t *bytes)
{
    *bytes = sl_detok_push(&d->d, id, d->buf, d->size);
    return d->buf;
}

const char *sluice_decoder_flush(sluice_decoder *d, size_t *bytes)
{
    *bytes = sl_detok_flush(&d->d, d->buf, d->size);
    sl_detok_init(&d->d, d->tok, d->special);
    return d->buf;
}

void sluice_decoder_close(sluice_decoder *d) { sl_free(d); }

/* ---- chat ------------------------------------------------------------------------------- */

/* Today as templates print it, "30 Nov 2026", in English whatever the host's locale. */
static void today(char buf[32])
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm tm;
    buf[0] = '\0';
    if (localtime_r(&now, &tm) && tm.tm_year > 0 && tm.tm_year < 8000)
        snprintf(buf, 32, "%02d %s %d", tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900);
}

struct rendered {
    struct sl_buf text;
    struct sl_chat_spans spans;
};

static void rendered_deinit(struct rendered *r)
{
    sl_buf_deinit(&r->text);
    sl_free(r->spans.spans);
}

static sluice_err need_template(const sluice_model *m, sluice_error *e)
{
    if (m->chat_template) return need_tokenizer(m, e);
    if (e) *e = m->template_error;
    return SLUICE_E_TEMPLATE;
}

/* Renders into r, which the caller deinits also on failure. */
static sluice_err render(const sluice_model *m, const sluice_chat *chat, struct rendered *r,
                         sluice_error *e)
{
    uint32_t n = chat->n_messages;
    struct sl_budget *b = (struct sl_budget *)(uintptr_t)&m->budget;
    *r = (struct rendered){{.budget = b}, {.budget = b}};
    sluice_err err = need_template(m, e);
    if (err != SLUICE_OK) return err;
    struct sl_chat_message *list = sl_alloc(b, n, sizeof *list);
    if (!list) return sl_fail(e, SLUICE_E_NOMEM, "no memory for %u messages", n);
    for (uint32_t i = 0; i < n; i++)
        list[i] = (struct sl_chat_message){
            {chat->messages[i].role, strlen(chat->messages[i].role)},
            {chat->messages[i].content, strlen(chat->messages[i].content)}};
    char date[32];
    today(date);
    struct sl_chat_context ctx = {
        .bos = sl_tokenizer_text(m->tokenizer, sl_tokenizer_bos(m->tokenizer)),
        .eos = sl_tokenizer_text(m->tokenizer, sl_tokenizer_eos(m->tokenizer)),
        .add_generation_prompt = true,
        .thinking = chat->thinking,
        .date = {date, strlen(date)},
    };
    err = sl_chat_render(m->chat_template, list, n, &ctx,
                         &(struct sl_chat_out){&r->text, &r->spans}, e);
    sl_free(list);
    return err;
}

sluice_err sluice_chat_render(const sluice_model *m, const sluice_chat *chat, char *text,
                              size_t capacity, size_t *bytes, sluice_error *error)
{
    struct rendered r;
    *bytes = 0;
    sluice_err err = render(m, chat, &r, error);
    if (err == SLUICE_OK) {
        *bytes = r.text.n;
        size_t fits = capacity == 0 ? 0 : r.text.n < capacity ? r.text.n : capacity - 1;
        if (fits) memcpy(text, r.text.p, fits);
        if (capacity) text[fits] = '\0';
        if (fits < r.text.n)
            err = sl_fail(error, SLUICE_E_LIMIT, "%llu bytes do not fit into room for %zu",
                          (unsigned long long)r.text.n + 1, capacity);
    }
    rendered_deinit(&r);
    return err;
}

sluice_err sluice_chat_tokenize(const sluice_model *m, const sluice_chat *chat, sluice_ids *out,
                                sluice_error *error)
{
    struct rendered r;
    out->count = 0;
    sluice_err err = render(m, chat, &r, error);
    struct sl_ids l = {.budget = r.text.budget};
    if (err == SLUICE_OK) {
        struct sl_encode_request q = {{r.text.p, r.text.n},
                                      SL_ENCODE_SPECIAL | SL_ENCODE_BOS,
                                      r.spans.spans,
                                      (uint32_t)r.spans.count};
        err = sl_tokenizer_encode_request(m->tokenizer, &q, &l, error);
    }
    if (err == SLUICE_OK) err = give_ids(&l, out, error);
    sl_ids_deinit(&l);
    rendered_deinit(&r);
    return err;
}
