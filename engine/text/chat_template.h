/* Chat templates: recognizing the well-known ones and rendering them exactly as their Jinja source
 * does.
 *
 * A template is recognized only when its rendering is known to be what we write; one that merely
 * looks similar is SLUICE_E_TEMPLATE, and the sentence names --chat-template and --raw. There is no
 * default. The comparison is of the tokens of the source (spacing inside tags, kind of quotes,
 * comments and the like do not matter); docs/TEMPLATES.md lists what is known. Tools and documents
 * are as if none were given. Thread: pure. */
#ifndef SL_CHAT_TEMPLATE_H
#define SL_CHAT_TEMPLATE_H

#include "base/mem.h"

struct sl_chat_message {
    struct sl_str role; /* "system", "user", "assistant"; any other is refused by every template */
    struct sl_str content;
};

/* A growable byte string. Start with zeros and a budget. */
struct sl_buf {
    struct sl_budget *budget;
    char *p;
    uint64_t n, capacity;
};
SL_MUST_CHECK sluice_err sl_buf_add(struct sl_buf *b, const void *bytes, uint64_t n);
void sl_buf_deinit(struct sl_buf *b);

/* A recognized template; static, never freed. */
struct sl_chat_template;

/* Recognizes the Jinja source of a model file. Returns SLUICE_OK, or SLUICE_E_TEMPLATE (none given,
 * or not recognized). */
SL_MUST_CHECK sluice_err sl_chat_template_detect(struct sl_str source, sluice_error *e,
                                                 const struct sl_chat_template **out);
/* By the name a user types ("chatml", "llama3", ...). SLUICE_E_TEMPLATE lists the names. */
SL_MUST_CHECK sluice_err sl_chat_template_by_name(const char *name, sluice_error *e,
                                                  const struct sl_chat_template **out);
const char *sl_chat_template_name(const struct sl_chat_template *t);
const char *sl_chat_template_names(void); /* "chatml, qwen2.5, ..." for help and messages */

/* What a template may refer to. */
struct sl_chat_context {
    struct sl_str bos; /* text of the BOS token; empty: none */
    struct sl_str eos;
    bool add_generation_prompt; /* end with the opening of an assistant turn */
    int thinking;               /* -1 the template's own default, 0 off, 1 on */
    struct sl_str date; /* for templates that print today's date, in the form "30 Nov 2026"; empty:
                         * the template's fallback, or an error where it has none */
};

/* Appends the rendered text to out. Errors: SLUICE_E_ARG where the template itself would raise
 * (roles that do not alternate, no message; the sentence says which message), SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM; out and spans are then as they were. Texts of messages are inserted as they are,
 * or stripped of white space where the template does that. Only the text outside the spans may be
 * parsed for special tokens. Apart from that the whole text is one: a span's border is no border
 * for the pre-tokenizer (the newline behind "user" and one that the message begins with may be one
 * token). spans may be NULL. */
struct sl_chat_span {
    uint64_t begin, end; /* bytes of out that came from a message, not from the template; begin <
                            end, ascending */
};
struct sl_chat_spans {
    struct sl_budget *budget;
    struct sl_chat_span *spans;
    uint64_t count, capacity;
};
void sl_chat_spans_deinit(struct sl_chat_spans *s);

/* Where the rendering goes: both are appended to. */
struct sl_chat_out {
    struct sl_buf *text;
    struct sl_chat_spans *spans; /* NULL: not wanted */
};
SL_MUST_CHECK sluice_err sl_chat_render(const struct sl_chat_template *t,
                                        const struct sl_chat_message *messages, uint32_t n_messages,
                                        const struct sl_chat_context *ctx,
                                        const struct sl_chat_out *out, sluice_error *e);

#endif
