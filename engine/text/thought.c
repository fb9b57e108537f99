/* Divides answers into thoughts and the rest; see thought.h.
 *
 * Tags are looked for in the text, byte by byte, not among the tokens: a model may spell one out.
 * Only the first block counts, and only at the beginning: once the answer has begun, a tag in it is
 * its text. Some vocabularies have the tags as control tokens, which are no text: such a one is
 * taken for the same words spelt out where it is due, and for nothing elsewhere. Both tags begin
 * with a byte that they do not hold again, so that after a mismatch the byte at hand may begin a
 * tag, and no earlier one. Headers of channels, to the contrary, are control tokens: the same words
 * spelt out are text. */
#include "engine/text/thought.h"

#include <string.h>

#define OPEN "<think>"
#define CLOSE "</think>"
#define FINAL "final"

enum state {
    BEGIN,   /* tags: nothing yet but white space and perhaps the beginning of a tag */
    OPENED,  /* tags: behind the opening one, line ends are dropped */
    THOUGHT, /* inside a thought */
    CLOSED,  /* tags: behind the closing one, line ends are dropped */
    ANSWER,
    HEADER,        /* channels: between messages, text is dropped */
    CHANNEL,       /* channels: a name that so far is that of the answer */
    OTHER_CHANNEL, /* channels: another name, for thoughts */
};

/* Where bytes go. */
struct sink {
    sl_thought_emit_fn *emit;
    void *user;
};

static bool has_token(const struct sl_tokenizer *t, struct sl_str text)
{
    return sl_tokenizer_find(t, text) >= 0;
}

enum sl_thought_form sl_thought_form_of(const struct sl_tokenizer *t)
{
    if (has_token(t, SL_STR("<|channel|>")) && has_token(t, SL_STR("<|message|>")))
        return SL_THOUGHT_CHANNELS;
    if (has_token(t, SL_STR(OPEN)) && has_token(t, SL_STR(CLOSE))) return SL_THOUGHT_TAGS;
    return SL_THOUGHT_NONE;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static bool is_all_blank(struct sl_str s)
{
    size_t i = 0;
    while (i < s.n && is_blank(s.p[i])) i++;
    return i == s.n;
}

bool sl_thought_is_open(const struct sl_tokenizer *t, const int32_t *prompt, uint64_t n)
{
    int32_t open = sl_tokenizer_find(t, SL_STR(OPEN));
    while (n > 0 && is_all_blank(sl_tokenizer_piece(t, prompt[n - 1], true))) n--;
    return open >= 0 && n > 0 && prompt[n - 1] == open;
}

void sl_thought_init(struct sl_thought *d, enum sl_thought_form form, bool inside)
{
    *d = (struct sl_thought){.form = form, .inside = inside};
    d->state = form == SL_THOUGHT_TAGS ? BEGIN : ANSWER;
}

bool sl_thought_inside(const struct sl_thought *d)
{
    if (d->state == BEGIN) return d->inside;
    return d->state != ANSWER && d->state != CLOSED;
}

static void give(const struct sink *to, bool thought, const char *text, size_t n)
{
    if (n > 0) to->emit(to->user, thought, text, n);
}

static void give_newlines(struct sl_thought *d, const struct sink *to)
{
    static const char lines[] = "\n\n\n\n\n\n\n\n";
    while (d->newlines > 0) {
        size_t n = d->newlines < sizeof lines - 1 ? (size_t)d->newlines : sizeof lines - 1;
        give(to, true, lines, n);
        d->newlines -= n;
    }
}

/* What was held as the beginning of a closing tag is none: it is text. */
static void give_held(struct sl_thought *d, const struct sink *to)
{
    give_newlines(d, to);
    give(to, true, CLOSE, d->n_held);
    d->n_held = 0;
}

/* Moves on in tag by one byte; a wrong one leaves what is held as it was. Returns whether it fit.
 */
static bool match(struct sl_thought *d, const char *tag, char c)
{
    bool fits = c == tag[d->n_held];
    if (fits) d->n_held++;
    return fits;
}

/* Whether tag is complete; then nothing is held any more. */
static bool completes(struct sl_thought *d, const char *tag)
{
    if (tag[d->n_held] != '\0') return false;
    d->n_held = 0;
    return true;
}

/* There is no opening tag: what was held begins the thought, or the answer. */
static void begin_without_tag(struct sl_thought *d, const struct sink *to)
{
    d->state = d->inside ? THOUGHT : ANSWER;
    if (!d->inside) give(to, false, d->blanks, d->n_blanks);
    d->n_blanks = 0;
    if (d->inside && d->n_held == 1) return; /* the closing tag begins like that, too */
    give(to, d->inside, OPEN, d->n_held);
    d->n_held = 0;
}

/* The steps take a byte, and say whether they have used it up; if not, it belongs to the state that
 * they went to. */
static bool step_begin(struct sl_thought *d, const struct sink *to, char c)
{
    if (d->n_held == 0 && is_blank(c) && d->n_blanks < SL_THOUGHT_BLANKS_MAX) {
        d->blanks[d->n_blanks++] = c;
        return true;
    }
    if (!match(d, OPEN, c)) {
        begin_without_tag(d, to);
        return false;
    }
    if (completes(d, OPEN)) d->state = OPENED;
    return true;
}

static bool step_thought(struct sl_thought *d, const struct sink *to, char c)
{
    if (match(d, CLOSE, c)) {
        if (!completes(d, CLOSE)) return true;
        d->newlines = 0;
        d->state = CLOSED;
        return true;
    }
    if (d->n_held > 0) {
        give_held(d, to);
        return false;
    }
    d->newlines++; /* anything but a line end was given out as a run */
    return true;
}

static bool step(struct sl_thought *d, const struct sink *to, char c)
{
    if (d->state == BEGIN) return step_begin(d, to, c);
    if (d->state == THOUGHT) return step_thought(d, to, c);
    if (c == '\n') return true;
    d->state = d->state == OPENED ? THOUGHT : ANSWER;
    return false;
}

/* Bytes at the beginning of a thought's text that are neither line ends nor may begin a tag. */
static size_t plain_run(struct sl_str text)
{
    size_t n = 0;
    while (n < text.n && text.p[n] != '\n' && text.p[n] != CLOSE[0]) n++;
    return n;
}

static void push_tags(struct sl_thought *d, struct sl_str text, const struct sink *to)
{
    size_t i = 0;
    while (i < text.n && d->state != ANSWER) {
        struct sl_str rest = {text.p + i, text.n - i};
        size_t run = d->state == THOUGHT && d->n_held == 0 ? plain_run(rest) : 0;
        if (run > 0) {
            give_newlines(d, to);
            give(to, true, rest.p, run);
            i += run;
        } else if (step(d, to, text.p[i])) {
            i++;
        }
    }
    give(to, false, text.p + i, text.n - i);
}

/* A header's text: behind <|channel|> a name, of which the first letters matter. */
static void read_name(struct sl_thought *d, struct sl_str text)
{
    for (size_t i = 0; i < text.n && d->state == CHANNEL && FINAL[d->n_held] != '\0'; i++) {
        if (!match(d, FINAL, text.p[i])) d->state = OTHER_CHANNEL;
    }
}

void sl_thought_push(struct sl_thought *d, struct sl_str text, sl_thought_emit_fn *emit, void *user)
{
    const struct sink to = {emit, user};
    if (d->form != SL_THOUGHT_CHANNELS) {
        push_tags(d, text, &to);
    } else if (d->state == ANSWER || d->state == THOUGHT) {
        give(&to, d->state == THOUGHT, text.p, text.n);
    } else {
        read_name(d, text);
    }
}

/* Whether a token is the tag that may come next. */
static bool is_due(const struct sl_thought *d, struct sl_str token)
{
    if (sl_str_eq(token, CLOSE)) return sl_thought_inside(d);
    return d->state == BEGIN && d->n_held == 0 && sl_str_eq(token, OPEN);
}

/* A header's token. */
static void read_header(struct sl_thought *d, struct sl_str token)
{
    if (sl_str_eq(token, "<|message|>")) {
        bool final = d->state == CHANNEL && completes(d, FINAL);
        d->state = final || d->state == HEADER ? ANSWER : THOUGHT;
    } else if (sl_str_eq(token, "<|channel|>")) {
        d->state = CHANNEL;
        d->n_held = 0;
    } else if (d->state == ANSWER || d->state == THOUGHT) {
        d->state = HEADER; /* the end of a message, or the beginning of the next one */
    }
}

void sl_thought_control(struct sl_thought *d, struct sl_str token, sl_thought_emit_fn *emit,
                        void *user)
{
    const struct sink to = {emit, user};
    if (d->form == SL_THOUGHT_CHANNELS)
        read_header(d, token);
    else if (d->form == SL_THOUGHT_TAGS && is_due(d, token))
        push_tags(d, token, &to);
}

void sl_thought_flush(struct sl_thought *d, sl_thought_emit_fn *emit, void *user)
{
    const struct sink to = {emit, user};
    if (d->state == BEGIN) begin_without_tag(d, &to);
    if (d->state == THOUGHT && d->form == SL_THOUGHT_TAGS) give_held(d, &to);
}
