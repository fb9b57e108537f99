/* Chat templates: recognition, names and the entry to rendering.
 *
 * A template is told apart by the fingerprint of its tokens (chat_template_lex.c), which is
 * compared with a table of sources whose rendering was proven equal to ours by rendering both
 * (tools/dev/make_template_goldens.py). There is no guessing by markers: a source that differs by
 * one token is unknown, and the user is told so. The styles are written down in
 * chat_template_styles.c, what renders them in chat_template_turns.c and chat_template_think.c. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "engine/text/chat_template_impl.h"

/* ---- growable bytes -------------------------------------------------------------------------- */

sluice_err sl_buf_add(struct sl_buf *b, const void *bytes, uint64_t n)
{
    uint64_t want;
    if (n == 0) return SLUICE_OK;
    if (!sl_add_ok(b->n, n, &want)) return SLUICE_E_NOMEM;
    if (want > b->capacity) {
        sluice_err err = sl_grow(b->budget, &b->p, &b->capacity, want, 1);
        if (err != SLUICE_OK) return err;
    }
    memcpy(b->p + b->n, bytes, n);
    b->n = want;
    return SLUICE_OK;
}

void sl_buf_deinit(struct sl_buf *b)
{
    sl_free(b->p);
    b->p = NULL;
    b->n = b->capacity = 0;
}

void sl_chat_spans_deinit(struct sl_chat_spans *s)
{
    sl_free(s->spans);
    s->spans = NULL;
    s->count = s->capacity = 0;
}

/* ---- recognition ----------------------------------------------------------------------------- */

struct known_source {
    struct chat_print print;
    const char *name;
};

static const struct known_source known_sources[] = {
#define SL_CHAT_SOURCE(hash, length, name) {{UINT64_C(hash), (length)}, (name)},
#include "engine/text/chat_template_known.def"
#undef SL_CHAT_SOURCE
};

static const struct sl_chat_template *find_name(const char *name)
{
    for (uint32_t i = 0; i < chat_templates_count; i++) {
        if (strcmp(chat_templates[i].name, name) == 0) return &chat_templates[i];
    }
    return NULL;
}

sluice_err sl_chat_template_detect(struct sl_str source, sluice_error *e,
                                   const struct sl_chat_template **out)
{
    struct chat_print print;
    *out = NULL;
    if (source.n == 0) {
        return sl_fail(e, SLUICE_E_TEMPLATE,
                       "the model has no chat template; choose one with --chat-template (%s) or "
                       "complete plain text with --raw",
                       sl_chat_template_names());
    }
    if (chat_fingerprint(source, &print)) {
        for (size_t i = 0; i < SL_ARRAY_LEN(known_sources); i++) {
            const struct chat_print *known = &known_sources[i].print;
            if (known->hash != print.hash || known->length != print.length) continue;
            *out = find_name(known_sources[i].name);
            SLUICE_ASSERT(*out != NULL);
            return SLUICE_OK;
        }
    }
    return sl_fail(
        e, SLUICE_E_TEMPLATE,
        "the model's chat template (%zu bytes) is not one that is known; name the one it "
        "equals with --chat-template (%s) or complete plain text with --raw",
        source.n, sl_chat_template_names());
}

sluice_err sl_chat_template_by_name(const char *name, sluice_error *e,
                                    const struct sl_chat_template **out)
{
    char shown[64];
    *out = find_name(name);
    if (*out != NULL) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_TEMPLATE, "there is no chat template named \"%s\"; the names are %s",
                   sl_str_show((struct sl_str){name, strlen(name)}, shown, sizeof(shown)),
                   sl_chat_template_names());
}

const char *sl_chat_template_name(const struct sl_chat_template *t) { return t->name; }

/* ---- what renderers use ---------------------------------------------------------------------- */

enum chat_role chat_role_of(const struct sl_chat_message *m)
{
    if (sl_str_eq(m->role, "system")) return CHAT_SYSTEM;
    if (sl_str_eq(m->role, "user")) return CHAT_USER;
    if (sl_str_eq(m->role, "assistant")) return CHAT_ASSISTANT;
    return CHAT_ROLES;
}

static void add_bytes(struct chat_job *job, struct sl_str text)
{
    if (job->err != SLUICE_OK) return;
    job->err = sl_buf_add(job->out, text.p, text.n);
    if (job->err != SLUICE_OK) {
        (void)sl_fail(job->e, job->err, "no memory for a prompt of more than %llu bytes",
                      (unsigned long long)job->out->n);
    }
}

void chat_add_content(struct chat_job *job, struct sl_str text)
{
    struct sl_chat_spans *s = job->spans;
    struct sl_chat_span span = {job->out->n, job->out->n + text.n};
    if (text.n == 0 || job->err != SLUICE_OK) return;
    add_bytes(job, text);
    if (s == NULL || job->err != SLUICE_OK) return;
    if (s->count == s->capacity) {
        job->err = sl_grow(s->budget, &s->spans, &s->capacity, s->count + 1, sizeof(*s->spans));
        if (job->err != SLUICE_OK) {
            (void)sl_fail(job->e, job->err, "no memory for the places of %llu messages",
                          (unsigned long long)s->count + 1);
            return;
        }
    }
    s->spans[s->count++] = span;
}

void chat_refuse(struct chat_job *job, uint32_t i, const char *why)
{
    char shown[64];
    if (job->err != SLUICE_OK) return;
    job->err = sl_fail(job->e, SLUICE_E_ARG, "message %u (%s): %s", (unsigned)i + 1,
                       sl_str_show(job->messages[i].role, shown, sizeof(shown)), why);
}

/* "30 Nov 2026" as "November 30, 2026" or "2026-11-30"; anything else is refused. */
static void add_converted_date(struct chat_job *job, bool iso)
{
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char numbers[] = "010203040506070809101112";
    struct sl_str d = job->ctx->date;
    for (size_t i = 0; i < SL_ARRAY_LEN(months); i++) {
        if (d.n != 11 || memcmp(d.p + 3, months[i], 3) != 0) continue;
        struct sl_str day = {d.p, 2}, year = {d.p + 7, 4};
        struct sl_str month = {months[i], strlen(months[i])};
        if (iso) month = (struct sl_str){numbers + 2 * i, 2};
        add_bytes(job, iso ? year : month);
        add_bytes(job, iso ? SL_STR("-") : SL_STR(" "));
        add_bytes(job, iso ? month : day);
        add_bytes(job, iso ? SL_STR("-") : SL_STR(", "));
        add_bytes(job, iso ? day : year);
        return;
    }
    if (job->err == SLUICE_OK) {
        job->err = sl_fail(job->e, SLUICE_E_ARG, "this chat template needs today's date");
    }
}

void chat_add(struct chat_job *job, const char *text)
{
    if (text == NULL) return;
    while (*text != '\0') {
        size_t plain = strcspn(text, CHAT_BOS CHAT_EOS CHAT_DATE CHAT_LONG_DATE CHAT_ISO_DATE);
        add_bytes(job, (struct sl_str){text, plain});
        text += plain;
        if (*text == '\0') return;
        if (*text == CHAT_BOS[0]) add_bytes(job, job->ctx->bos);
        if (*text == CHAT_EOS[0]) add_bytes(job, job->ctx->eos);
        if (*text == CHAT_DATE[0]) {
            /* the date that the Llama templates print where nobody tells them a better one */
            add_bytes(job, job->ctx->date.n > 0 ? job->ctx->date : SL_STR("26 Jul 2024"));
        }
        if (*text == CHAT_LONG_DATE[0]) add_converted_date(job, false);
        if (*text == CHAT_ISO_DATE[0]) add_converted_date(job, true);
        text++;
    }
}

/* Length of the white-space character that s begins with, as Python's str.isspace sees it; 0: none.
 */
static size_t space_at(struct sl_str s)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
    };
    if (s.n == 0) return 0;
    unsigned char c = (unsigned char)s.p[0];
    if ((c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20)) return 1;
    for (size_t i = 0; i < SL_ARRAY_LEN(wide); i++) {
        if (sl_str_starts(s, wide[i])) return strlen(wide[i]);
    }
    bool en_quad = sl_str_starts(s, "\xe2\x80") && s.n > 2; /* U+2000 to U+200A */
    return en_quad && (unsigned char)s.p[2] >= 0x80 && (unsigned char)s.p[2] <= 0x8a ? 3 : 0;
}

struct sl_str chat_trim(struct sl_str s)
{
    for (size_t n = space_at(s); n > 0; n = space_at(s)) s = (struct sl_str){s.p + n, s.n - n};
    for (size_t n = 1; n <= 3 && n <= s.n;) {
        struct sl_str tail = {s.p + s.n - n, n};
        bool space = space_at(tail) == n;
        if (space) s.n -= n;
        n = space ? 1 : n + 1;
    }
    return s;
}

size_t chat_find(struct sl_str s, struct sl_str what, bool last)
{
    size_t found = CHAT_NOT_FOUND;
    for (size_t i = 0; i + what.n <= s.n; i++) {
        if (memcmp(s.p + i, what.p, what.n) != 0) continue;
        found = i;
        if (!last) break;
    }
    return found;
}

struct sl_str chat_strip_newlines(struct sl_str s)
{
    while (s.n > 0 && s.p[0] == '\n') s = (struct sl_str){s.p + 1, s.n - 1};
    while (s.n > 0 && s.p[s.n - 1] == '\n') s.n--;
    return s;
}

/* ---- rendering ------------------------------------------------------------------------------- */

sluice_err sl_chat_render(const struct sl_chat_template *t, const struct sl_chat_message *messages,
                          uint32_t n_messages, const struct sl_chat_context *ctx,
                          const struct sl_chat_out *to, sluice_error *e)
{
    struct sl_buf *out = to->text;
    struct sl_chat_spans *spans = to->spans;
    struct chat_job job = {messages, n_messages, ctx, out, spans, e, SLUICE_OK};
    uint64_t out_before = out->n;
    uint64_t spans_before = spans != NULL ? spans->count : 0;
    SLUICE_ASSERT(ctx->thinking >= -1 && ctx->thinking <= 1);
    if (n_messages == 0) return sl_fail(e, SLUICE_E_ARG, "a conversation needs a message");
    for (uint32_t i = 0; i < n_messages; i++) {
        if (chat_role_of(&messages[i]) == CHAT_ROLES) {
            chat_refuse(&job, i, "the roles are system, user and assistant");
            return job.err;
        }
    }
    t->render(&job, t->style);
    if (job.err != SLUICE_OK) {
        out->n = out_before;
        if (spans != NULL) spans->count = spans_before;
    }
    return job.err;
}
