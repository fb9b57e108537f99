/* The parser: from text to the table of nodes. Reading values out of it is json_value.c.
 *
 * Containers that are still open form a chain through their own nodes (the member `next`, which
 * gets its meaning when the container is closed), so that neither recursion nor a second stack is
 * needed. Names are checked for repetition when an object is closed. */
#include "formats/json_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "formats/gguf_internal.h"
#include "io/file.h"

#define NODES_FIRST 64
#define FEW_NAMES 8 /* up to here names are compared pair by pair */
#define OPEN_NONE UINT32_MAX

struct parser {
    struct sl_json *doc;
    const char *name;
    uint64_t at;   /* next byte */
    uint32_t open; /* innermost container that is not closed */
    uint32_t depth;
    sluice_error *e;
};

static sluice_err fail(const struct parser *p, sluice_err code, const char *fmt, ...)
    SL_PRINTF(3, 4);

static sluice_err fail(const struct parser *p, sluice_err code, const char *fmt, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX], shown[SL_GG_SHOW_PATH_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    code = sl_fail(p->e, code, "%s: %s at byte %" PRIu64, sl_gg_show_path(p->name, shown), text,
                   p->at);
    if (p->e != NULL) p->e->file_offset = p->at;
    return code;
}

/* ---- characters ------------------------------------------------------------------------------ */

static void skip_space(struct parser *p)
{
    const char *t = p->doc->text;

    while (p->at < p->doc->bytes &&
           (t[p->at] == ' ' || t[p->at] == '\n' || t[p->at] == '\r' || t[p->at] == '\t'))
        p->at++;
}

/* The next byte, or 0 at the end: no JSON is written with NULs. */
static char peek(const struct parser *p)
{
    return p->at < p->doc->bytes ? p->doc->text[p->at] : '\0';
}

static sluice_err fail_wanted(const struct parser *p, const char *wanted)
{
    char found[16];

    if (p->at >= p->doc->bytes)
        return fail(p, SLUICE_E_FORMAT, "the JSON ends too early: %s is missing", wanted);
    struct sl_str rest = {p->doc->text + p->at, p->doc->bytes - p->at};
    size_t n = sl_utf8_char_bytes(rest);
    rest.n = n > 0 ? n : 1;
    return fail(p, SLUICE_E_FORMAT, "broken JSON: '%s' where %s was wanted",
                sl_str_show(rest, found, sizeof found), wanted);
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Four hexadecimal digits at p->at, stepped over. */
static sluice_err hex4(struct parser *p, uint32_t *out)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int d = hex_digit(peek(p));

        if (d < 0) return fail_wanted(p, "a hexadecimal digit of \\u");
        v = v * 16 + (uint32_t)d;
        p->at++;
    }
    *out = v;
    return SLUICE_OK;
}

/* A \u escape behind its letter, and the second half of a pair. */
static sluice_err unicode_escape(struct parser *p, uint32_t *out)
{
    uint32_t low = 0;
    sluice_err err = hex4(p, out);

    if (err != SLUICE_OK || *out < 0xD800 || *out > 0xDFFF) return err;
    if (*out >= 0xDC00 || p->doc->bytes - p->at < 2 || p->doc->text[p->at] != '\\' ||
        p->doc->text[p->at + 1] != 'u')
        return fail(p, SLUICE_E_FORMAT, "broken JSON: half of a surrogate pair");
    p->at += 2;
    err = hex4(p, &low);
    if (err != SLUICE_OK) return err;
    if (low < 0xDC00 || low > 0xDFFF)
        return fail(p, SLUICE_E_FORMAT, "broken JSON: half of a surrogate pair");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return SLUICE_OK;
}

/* UTF-8 of c; 1 to 4 bytes. */
static uint32_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (uint32_t i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((0xF00 >> n & 0xFF) | c);
    return n;
}

/* An escape behind its backslash; what it stands for is never longer than its text. */
static sluice_err escape(struct parser *p, char *to, uint32_t *bytes)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = peek(p);
    const char *found = c != '\0' ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    sluice_err err;

    if (found != NULL) {
        *to = meanings[found - letters];
        *bytes = 1;
        p->at++;
        return SLUICE_OK;
    }
    if (c != 'u') return fail_wanted(p, "an escaped character");
    p->at++;
    err = unicode_escape(p, &code);
    if (err == SLUICE_OK) *bytes = put_utf8(to, code);
    return err;
}

/* A string from its opening quote on, unescaped in place. */
static sluice_err read_string(struct parser *p, struct sl_json_node *node)
{
    char *t = p->doc->text;
    uint64_t to;
    uint32_t n = 0;
    sluice_err err;

    p->at++;
    to = p->at;
    node->at = (uint32_t)to;
    for (;;) {
        unsigned char c = (unsigned char)peek(p);

        if (c == '"') break;
        if (p->at >= p->doc->bytes) return fail_wanted(p, "the end of a string");
        if (c == '\\') {
            p->at++;
            err = escape(p, t + to, &n);
            if (err != SLUICE_OK) return err;
            to += n;
            continue;
        }
        if (c < 0x20)
            return fail(p, SLUICE_E_FORMAT, "broken JSON: a control character in a string");
        n = c < 0x80
                ? 1
                : (uint32_t)sl_utf8_char_bytes((struct sl_str){t + p->at, p->doc->bytes - p->at});
        if (n == 0) return fail(p, SLUICE_E_FORMAT, "broken JSON: a string that is not UTF-8");
        if (to != p->at) memmove(t + to, t + p->at, n);
        to += n;
        p->at += n;
    }
    p->at++;
    node->kind = SL_JSON_STRING;
    node->bytes = (uint32_t)(to - node->at);
    return SLUICE_OK;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

static uint32_t skip_digits(struct parser *p)
{
    uint64_t from = p->at;

    while (peek(p) >= '0' && peek(p) <= '9') p->at++;
    return (uint32_t)(p->at - from);
}

static sluice_err read_number(struct parser *p, struct sl_json_node *node)
{
    node->at = (uint32_t)p->at;
    node->kind = SL_JSON_NUMBER;
    if (peek(p) == '-') p->at++;
    bool zero = peek(p) == '0';
    uint32_t digits = skip_digits(p);
    if (digits == 0) return fail_wanted(p, "a digit");
    if (zero && digits > 1) return fail(p, SLUICE_E_FORMAT, "broken JSON: a number begins with 0");
    if (peek(p) == '.') {
        p->at++;
        if (skip_digits(p) == 0) return fail_wanted(p, "a digit");
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->at++;
        if (peek(p) == '-' || peek(p) == '+') p->at++;
        if (skip_digits(p) == 0) return fail_wanted(p, "a digit");
    }
    node->bytes = (uint32_t)(p->at - node->at);
    return SLUICE_OK;
}

struct word {
    const char *text;
    uint32_t n;
    enum sl_json_kind kind;
};

static const struct word words[] = {
    {"true", 4, SL_JSON_BOOL},  {"false", 5, SL_JSON_BOOL},      {"null", 4, SL_JSON_NULL},
    {"NaN", 3, SL_JSON_NUMBER}, {"Infinity", 8, SL_JSON_NUMBER}, {"-Infinity", 9, SL_JSON_NUMBER},
};

/* False: there is no such word here. */
static bool read_word(struct parser *p, struct sl_json_node *node)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++) {
        const struct word *w = &words[i];

        if (p->doc->bytes - p->at < w->n || memcmp(p->doc->text + p->at, w->text, w->n) != 0)
            continue;
        node->kind = w->kind;
        node->at = (uint32_t)p->at;
        node->bytes = w->n;
        p->at += w->n;
        return true;
    }
    return false;
}

/* ---- names that repeat ----------------------------------------------------------------------- */

static struct sl_str text_of(const struct sl_json *j, uint32_t node)
{
    return (struct sl_str){j->text + j->nodes[node].at, j->nodes[node].bytes};
}

static sluice_err fail_twice(const struct parser *p, struct sl_str name)
{
    char shown[SL_GG_SHOW_MAX];

    return fail(p, SLUICE_E_FORMAT, "broken JSON: the name '%s' stands twice in the object ending",
                sl_str_show(name, shown, sizeof shown));
}

static sluice_err check_many(struct parser *p, const struct sl_str *names, uint32_t n)
{
    struct sl_gg_index index = {NULL, 0};
    uint32_t bad = 0;
    sluice_err err = sl_gg_index_build(&index, p->doc->budget, names, n, sizeof *names, &bad);

    sl_gg_index_deinit(&index);
    if (err == SLUICE_E_NOMEM)
        return sl_gg_no_memory(p->doc->budget, 8 * (uint64_t)n, p->name, p->e);
    if (err == SLUICE_OK) return err;
    if (bad < n) return fail_twice(p, names[bad]);
    return fail(p, err, "the names of the object ending here were made to collide; found");
}

/* The object's members: a name, a value, a name ... */
static sluice_err check_names(struct parser *p, uint32_t object)
{
    const struct sl_json *j = p->doc;
    uint32_t n = j->nodes[object].bytes, at = object + 1;
    struct sl_str few[FEW_NAMES], *names = few;
    sluice_err err = SLUICE_OK;

    if (n > FEW_NAMES) names = sl_alloc(j->budget, n, sizeof *names);
    if (names == NULL) return sl_gg_no_memory(j->budget, 16 * (uint64_t)n, p->name, p->e);
    for (uint32_t i = 0; i < n; i++, at = j->nodes[at + 1].next) names[i] = text_of(j, at);
    if (n > FEW_NAMES) {
        err = check_many(p, names, n);
        sl_free(names);
        return err;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (sl_str_same(names[i], names[k])) return fail_twice(p, names[i]);
    }
    return SLUICE_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Appends an empty node. */
static sluice_err new_node(struct parser *p, uint32_t *out)
{
    struct sl_json *j = p->doc;

    if (j->n_nodes == j->capacity) {
        sluice_err err =
            sl_grow(j->budget, &j->nodes, &j->capacity, j->n_nodes + 1, sizeof *j->nodes);

        if (err != SLUICE_OK) return fail(p, err, "no memory for %" PRIu32 " values", j->n_nodes);
    }
    *out = j->n_nodes++;
    return SLUICE_OK;
}

/* A container begins: it becomes the innermost open one, and remembers the one around it. */
static sluice_err open_container(struct parser *p, uint32_t node, enum sl_json_kind kind)
{
    if (++p->depth > SL_JSON_DEPTH_MAX)
        return fail(p, SLUICE_E_LIMIT, "JSON is nested more than %d deep", SL_JSON_DEPTH_MAX);
    p->doc->nodes[node].kind = kind;
    p->doc->nodes[node].next = p->open;
    p->open = node;
    p->at++;
    return SLUICE_OK;
}

static sluice_err close_container(struct parser *p)
{
    struct sl_json_node *node = &p->doc->nodes[p->open];
    uint32_t closed = p->open;

    p->open = node->next;
    p->depth--;
    node->next = p->doc->n_nodes;
    p->at++;
    return node->kind == SL_JSON_OBJECT ? check_names(p, closed) : SLUICE_OK;
}

/* A value without its parts: a scalar, or the beginning of a container. */
static sluice_err read_value(struct parser *p)
{
    uint32_t at = 0;
    sluice_err err = new_node(p, &at);
    char c = peek(p);

    if (err != SLUICE_OK) return err;
    struct sl_json_node *node = &p->doc->nodes[at];
    node->next = at + 1;
    if (c == '{') return open_container(p, at, SL_JSON_OBJECT);
    if (c == '[') return open_container(p, at, SL_JSON_ARRAY);
    if (c == '"') return read_string(p, node);
    if (read_word(p, node)) return SLUICE_OK;
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(p, node);
    return fail_wanted(p, "a value");
}

static sluice_err read_name(struct parser *p)
{
    uint32_t at = 0;
    sluice_err err;

    if (peek(p) != '"') return fail_wanted(p, "a name in quotes");
    err = new_node(p, &at);
    if (err == SLUICE_OK) err = read_string(p, &p->doc->nodes[at]);
    if (err != SLUICE_OK) return err;
    p->doc->nodes[at].next = at + 1;
    skip_space(p);
    if (peek(p) != ':') return fail_wanted(p, "':'");
    p->at++;
    skip_space(p);
    return SLUICE_OK;
}

/* One step inside the innermost open container: its end, or its next part. */
static sluice_err step(struct parser *p)
{
    struct sl_json_node *node = &p->doc->nodes[p->open];
    bool object = node->kind == SL_JSON_OBJECT;
    char end = object ? '}' : ']';
    sluice_err err = SLUICE_OK;

    skip_space(p);
    if (peek(p) == end) return close_container(p);
    if (node->bytes > 0) {
        if (peek(p) != ',') return fail_wanted(p, object ? "',' or '}'" : "',' or ']'");
        p->at++;
        skip_space(p);
    }
    node->bytes++;
    if (object) err = read_name(p);
    return err == SLUICE_OK ? read_value(p) : err;
}

static sluice_err parse(struct parser *p)
{
    sluice_err err;

    skip_space(p);
    err = read_value(p);
    while (err == SLUICE_OK && p->open != OPEN_NONE) err = step(p);
    if (err != SLUICE_OK) return err;
    skip_space(p);
    return p->at < p->doc->bytes ? fail_wanted(p, "the end of the text") : SLUICE_OK;
}

/* ---- documents ------------------------------------------------------------------------------- */

sluice_err sl_json_parse(char *text, uint64_t bytes, const char *name, struct sl_budget *b,
                         sluice_error *e, struct sl_json **out)
{
    struct parser p = {.name = name, .open = OPEN_NONE, .e = e};
    sluice_err err;

    SLUICE_ASSERT(text != NULL && name != NULL && out != NULL);
    *out = NULL;
    if (bytes > SL_JSON_BYTES_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "%.256s: %" PRIu64 " bytes of JSON, the limit is %u",
                       name, bytes, SL_JSON_BYTES_MAX);
    p.doc = sl_alloc(b, 1, sizeof *p.doc);
    if (p.doc == NULL) return sl_gg_no_memory(b, sizeof *p.doc, name, e);
    p.doc->budget = b;
    p.doc->text = text;
    p.doc->bytes = bytes;
    err = parse(&p);
    if (err != SLUICE_OK) {
        sl_json_close(p.doc);
        return err;
    }
    *out = p.doc;
    return SLUICE_OK;
}

/* Everything f holds, in a new block. */
static sluice_err load_text(struct sl_file *f, uint64_t bytes_max, struct sl_budget *b,
                            sluice_error *e, char **out)
{
    uint64_t bytes = sl_file_bytes(f);
    char shown[SL_GG_SHOW_PATH_MAX];

    if (bytes > bytes_max)
        return sl_fail(e, SLUICE_E_LIMIT, "%s: %" PRIu64 " bytes, the limit is %" PRIu64,
                       sl_gg_show_path(sl_file_path(f), shown), bytes, bytes_max);
    *out = sl_alloc(b, bytes, 1);
    if (*out == NULL) return sl_gg_no_memory(b, bytes, sl_file_path(f), e);
    return sl_file_read_at(f, 0, *out, bytes, e);
}

sluice_err sl_json_open(const char *path, uint64_t bytes_max, struct sl_budget *b, sluice_error *e,
                        struct sl_json **out)
{
    struct sl_file *f = NULL;
    char *text = NULL;
    uint64_t bytes = 0;
    sluice_err err = sl_file_open(path, b, e, &f);

    *out = NULL;
    if (err != SLUICE_OK) return err;
    bytes = sl_file_bytes(f);
    err = load_text(f, bytes_max, b, e, &text);
    sl_file_close(f);
    if (err == SLUICE_OK) err = sl_json_parse(text, bytes, path, b, e, out);
    if (err != SLUICE_OK) {
        sl_free(text);
        return err;
    }
    (*out)->owned = text;
    return SLUICE_OK;
}

void sl_json_close(struct sl_json *j)
{
    if (j == NULL) return;
    sl_free(j->nodes);
    sl_free(j->owned);
    sl_free(j);
}
