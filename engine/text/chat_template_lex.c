/* The fingerprint of a Jinja source: what stays the same however it is spaced and quoted.
 *
 * The source is cut into tokens as Jinja 3 does with trim_blocks and lstrip_blocks (the settings
 * under which chat templates are rendered), comments are dropped, text pieces that touch are
 * joined, strings are decoded. Two sources with the same tokens are the same program, so a known
 * rendering holds for both. Anything that is not plainly understood (raw blocks, rare escapes,
 * white space beyond ASCII, carriage returns) makes the source unknown: never a guess.
 *
 * What is hashed, a token after the other: D text NUL; V and v for {{ and }}, B and b for {% and
 * %}; N name NUL; S decoded string NUL; I digits NUL; O operator NUL. */
#include <string.h>

#include "engine/text/chat_template_impl.h"

struct lexer {
    const char *p, *end;
    struct chat_print print;
    bool in_text;    /* a D token is open */
    bool line_start; /* what came before ends a line */
    bool bad;
};

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/* ---- hashing ----------------------------------------------------------------------------------
 */

static void feed(struct lexer *x, char c)
{
    x->print.hash = (x->print.hash ^ (unsigned char)c) * UINT64_C(0x100000001b3);
    x->print.length++;
}

static void feed_bytes(struct lexer *x, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) feed(x, p[i]);
}

static void end_text(struct lexer *x)
{
    if (x->in_text) feed(x, '\0');
    x->in_text = false;
}

static void feed_text(struct lexer *x, const char *p, const char *end)
{
    if (p == end) return;
    if (!x->in_text) feed(x, 'D');
    x->in_text = true;
    feed_bytes(x, p, (size_t)(end - p));
}

static void feed_token(struct lexer *x, char kind, const char *p, size_t n)
{
    feed(x, kind);
    feed_bytes(x, p, n);
    feed(x, '\0');
}

/* ---- inside a tag -------------------------------------------------------------------------------
 */

static void skip_space(struct lexer *x)
{
    while (x->p < x->end && is_space(*x->p)) x->p++;
}

static bool at(const struct lexer *x, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(x->end - x->p) >= n && memcmp(x->p, text, n) == 0;
}

/* Steps over the end of a block, variable or comment, with what it takes along; false where there
 * is none here. */
static bool take_end(struct lexer *x, const char *end, bool trims_newline)
{
    bool strips = x->p < x->end && *x->p == '-';
    bool keeps = trims_newline && x->p < x->end && *x->p == '+';
    const char *start = x->p;
    if (strips || keeps) x->p++;
    if (!at(x, end)) {
        x->p = start;
        return false;
    }
    x->p += 2;
    if (strips) skip_space(x);
    if (!strips && !keeps && trims_newline && at(x, "\n")) x->p++;
    x->line_start = x->p[-1] == '\n';
    return true;
}

static void lex_string(struct lexer *x)
{
    char quote = *x->p++;
    feed(x, 'S');
    while (x->p < x->end && *x->p != quote) {
        char c = *x->p++;
        if (c == '\\') {
            static const char from[] = "ntr\\'\"", to[] = "\n\t\r\\'\"";
            const char *found = x->p < x->end ? memchr(from, *x->p, sizeof(from) - 1) : NULL;
            if (found == NULL) {
                x->bad = true;
                return;
            }
            c = to[found - from];
            x->p++;
        }
        feed(x, c);
    }
    if (x->p == x->end) x->bad = true;
    x->p++;
    feed(x, '\0');
}

static void lex_number(struct lexer *x)
{
    const char *start = x->p;
    while (x->p < x->end && is_digit(*x->p)) x->p++;
    size_t n = (size_t)(x->p - start);
    bool fraction = x->p + 1 < x->end && *x->p == '.' && is_digit(x->p[1]);
    if (fraction || (x->p < x->end && is_name(*x->p)) || (n > 1 && *start == '0')) x->bad = true;
    feed_token(x, 'I', start, n);
}

static void lex_operator(struct lexer *x, int *depth)
{
    static const char *const doubles[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < SL_ARRAY_LEN(doubles); i++) {
        if (at(x, doubles[i])) {
            feed_token(x, 'O', x->p, 2);
            x->p += 2;
            return;
        }
    }
    char c = *x->p;
    if (c == '\0' || strchr("+-/*%~[](){}><=.:|,;", c) == NULL) x->bad = true;
    if (c == '(' || c == '[' || c == '{') ++*depth;
    if (c == ')' || c == ']' || c == '}') --*depth;
    if (*depth < 0) x->bad = true;
    feed_token(x, 'O', x->p, 1);
    x->p++;
}

/* From behind {% or {{ to behind its end. */
static void lex_tag(struct lexer *x, bool block)
{
    int depth = 0;
    bool first = true;
    end_text(x);
    feed(x, block ? 'B' : 'V');
    while (!x->bad) {
        skip_space(x);
        if (x->p >= x->end) {
            x->bad = true;
            return;
        }
        if (depth == 0 && take_end(x, block ? "%}" : "}}", block)) break;
        char c = *x->p;
        if (c == '\'' || c == '"') {
            lex_string(x);
        } else if (is_digit(c)) {
            lex_number(x);
        } else if (is_name(c)) {
            const char *start = x->p;
            while (x->p < x->end && is_name(*x->p)) x->p++;
            if (first && block && x->p - start == 3 && memcmp(start, "raw", 3) == 0) x->bad = true;
            feed_token(x, 'N', start, (size_t)(x->p - start));
        } else {
            lex_operator(x, &depth);
        }
        first = false;
    }
    feed(x, block ? 'b' : 'v');
}

static void skip_comment(struct lexer *x)
{
    while (x->p < x->end) {
        if (take_end(x, "#}", true)) return;
        x->p++;
    }
    x->bad = true;
}

/* ---- between tags ---------------------------------------------------------------------------- */

/* The next {{, {% or {#, or the end. */
static const char *find_tag(const struct lexer *x)
{
    const char *p = x->p;
    while (x->end - p >= 2) {
        if (p[0] == '{' && (p[1] == '{' || p[1] == '%' || p[1] == '#')) return p;
        p++;
    }
    return x->end;
}

/* Where the text before a tag ends once the tag has taken the white space that is its due. */
static const char *text_end(const struct lexer *x, const char *tag, char sign)
{
    const char *end = tag;
    while (end > x->p && is_space(end[-1])) {
        if (sign != '-' && end[-1] == '\n') return end;
        end--;
    }
    if (sign == '-') return end;
    return end == x->p && x->line_start ? end : tag;
}

static void lex_piece(struct lexer *x)
{
    const char *tag = find_tag(x);
    if (tag == x->end) {
        feed_text(x, x->p, x->end);
        x->p = x->end;
        return;
    }
    char kind = tag[1];
    char sign = x->end - tag > 2 ? tag[2] : '\0';
    bool strips = sign == '-' || (sign != '+' && kind != '{');
    feed_text(x, x->p, strips ? text_end(x, tag, sign) : tag);
    x->p = tag + 2 + (sign == '-' || sign == '+');
    if (kind == '#') {
        skip_comment(x);
    } else {
        lex_tag(x, kind == '%');
    }
}

/* Control bytes, carriage returns and white space beyond ASCII, which Jinja would strip and this
 * reader would not. */
static bool has_odd_bytes(struct sl_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return true;
        if (c < 0x80) continue;
        struct sl_str rest = {s.p + i, s.n - i};
        if (chat_trim(rest).p != rest.p) return true;
    }
    return false;
}

bool chat_fingerprint(struct sl_str source, struct chat_print *out)
{
    struct lexer x = {.p = source.p, .end = source.p + source.n, .line_start = true};
    x.print.hash = UINT64_C(0xcbf29ce484222325);
    if (has_odd_bytes(source)) return false;
    if (source.n > 0 && x.end[-1] == '\n') x.end--; /* Jinja drops one newline at the end */
    while (x.p < x.end && !x.bad) lex_piece(&x);
    end_text(&x);
    *out = x.print;
    return !x.bad;
}
