/* Recipes read and asked: see recipe.h. */
#include "pack/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/sq.h"
#include "formats/tensor_type.h"
#include "io/file.h"

#define SHOWN_MAX 80

struct sl_recipe {
    char *text;
    struct sl_recipe_rule *rules;
    uint64_t capacity;
    uint32_t n_rules;
};

/* ---- types ----------------------------------------------------------------------------------- */

/* What can be written; the container's own types follow. */
static const uint32_t gguf_types[] = {SL_TYPE_F32, SL_TYPE_F16, SL_TYPE_BF16, SL_TYPE_Q8_0};

static uint32_t type_at(uint32_t i)
{
    uint32_t n = SL_ARRAY_LEN(gguf_types);

    return i < n ? gguf_types[i] : SL_SQ_FIRST + i - n;
}

#define N_TYPES (SL_ARRAY_LEN(gguf_types) + SL_SQ_TYPES)

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

const char *sl_recipe_type_name(uint32_t type, char *buf)
{
    const char *name = type == SL_RECIPE_KEEP ? "keep" : sl_type_name(type);
    size_t i = 0;

    SLUICE_ASSERT(name != NULL);
    for (; name[i] != '\0' && i + 1 < SL_RECIPE_TYPE_NAME_MAX; i++) buf[i] = lower(name[i]);
    buf[i] = '\0';
    return buf;
}

bool sl_recipe_type(struct sl_str word, uint32_t *type)
{
    char name[SL_RECIPE_TYPE_NAME_MAX], low[SL_RECIPE_TYPE_NAME_MAX];

    if (word.n >= sizeof low) return false;
    for (size_t i = 0; i < word.n; i++) low[i] = lower(word.p[i]);
    word.p = low;
    if (sl_str_eq(word, "keep")) {
        *type = SL_RECIPE_KEEP;
        return true;
    }
    for (uint32_t i = 0; i < N_TYPES; i++) {
        if (!sl_str_eq(word, sl_recipe_type_name(type_at(i), name))) continue;
        *type = type_at(i);
        return true;
    }
    return false;
}

const char *sl_recipe_types(char *buf)
{
    char name[SL_RECIPE_TYPE_NAME_MAX];
    int at = snprintf(buf, SL_RECIPE_TYPES_MAX, "keep");

    for (uint32_t i = 0; i < N_TYPES && at < SL_RECIPE_TYPES_MAX; i++)
        at += snprintf(buf + at, SL_RECIPE_TYPES_MAX - (size_t)at, ", %s",
                       sl_recipe_type_name(type_at(i), name));
    return buf;
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* Goes back to the last star only: what stands before it has found its place already. */
bool sl_recipe_matches(struct sl_str pattern, struct sl_str name)
{
    size_t p = 0, i = 0, star = SIZE_MAX, from = 0;

    while (i < name.n) {
        if (p < pattern.n && pattern.p[p] == '*') {
            star = p++;
            from = i;
        } else if (p < pattern.n && (pattern.p[p] == '?' || pattern.p[p] == name.p[i])) {
            p++;
            i++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            i = ++from;
        } else {
            return false;
        }
    }
    while (p < pattern.n && pattern.p[p] == '*') p++;
    return p == pattern.n;
}

uint32_t sl_recipe_find(const struct sl_recipe *r, struct sl_str name, struct sl_str stacked)
{
    for (uint32_t i = 0; i < r->n_rules; i++) {
        if (sl_recipe_matches(r->rules[i].pattern, name) ||
            (stacked.n > 0 && sl_recipe_matches(r->rules[i].pattern, stacked)))
            return i;
    }
    return UINT32_MAX;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The next word of line from *at on; empty at its end or at a comment. */
static struct sl_str next_word(struct sl_str line, size_t *at)
{
    while (*at < line.n && is_space(line.p[*at])) ++*at;
    size_t from = *at;
    if (from < line.n && line.p[from] == '#') *at = line.n;
    while (*at < line.n && !is_space(line.p[*at])) ++*at;
    return (struct sl_str){line.p + from, from < line.n && line.p[from] == '#' ? 0 : *at - from};
}

static sluice_err add_rule(struct sl_recipe *r, struct sl_str line, uint32_t number,
                           const char *file, struct sl_budget *b, sluice_error *e)
{
    char shown[SHOWN_MAX], types[SL_RECIPE_TYPES_MAX];
    size_t at = 0;
    struct sl_recipe_rule rule = {.line = number};

    rule.pattern = next_word(line, &at);
    if (rule.pattern.n == 0) return SLUICE_OK;
    struct sl_str type = next_word(line, &at), more = next_word(line, &at);
    if (type.n == 0 || more.n > 0)
        return sl_fail(e, SLUICE_E_FORMAT,
                       "%s, line %" PRIu32 ": wanted a pattern and a type, such as "
                       "'blk.*.ffn_down_exps.weight sq4_32', found '%s'",
                       file, number, sl_str_show(line, shown, sizeof shown));
    if (!sl_recipe_type(type, &rule.type))
        return sl_fail(
            e, SLUICE_E_FORMAT,
            "%s, line %" PRIu32 ": '%s' is no type that can be written, wanted one of %s", file,
            number, sl_str_show(type, shown, sizeof shown), sl_recipe_types(types));
    sluice_err err = sl_grow(b, &r->rules, &r->capacity, r->n_rules + 1, sizeof *r->rules);
    if (err != SLUICE_OK) return sl_fail(e, err, "%s: no memory for a recipe", file);
    r->rules[r->n_rules++] = rule;
    return SLUICE_OK;
}

static sluice_err parse(struct sl_recipe *r, uint64_t bytes, const char *file, struct sl_budget *b,
                        sluice_error *e)
{
    sluice_err err = SLUICE_OK;
    uint32_t number = 0;

    for (uint64_t at = 0; at < bytes && err == SLUICE_OK;) {
        uint64_t end = at;

        while (end < bytes && r->text[end] != '\n') end++;
        if (memchr(r->text + at, '\0', end - at) != NULL)
            return sl_fail(e, SLUICE_E_FORMAT, "%s, line %" PRIu32 ": this is no text", file,
                           number + 1);
        err = add_rule(r, (struct sl_str){r->text + at, end - at}, ++number, file, b, e);
        at = end + 1;
    }
    return err;
}

static sluice_err create(uint64_t bytes, const char *name, struct sl_budget *b, sluice_error *e,
                         struct sl_recipe **out)
{
    struct sl_recipe *r = sl_alloc(b, 1, sizeof *r);

    *out = r;
    if (r != NULL) r->text = sl_alloc(b, bytes + 1, 1);
    if (r != NULL && r->text != NULL) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_NOMEM, "%s: no memory for a recipe", name);
}

static sluice_err finish(struct sl_recipe *r, sluice_err err, struct sl_recipe **out)
{
    if (err != SLUICE_OK) {
        sl_recipe_close(r);
        r = NULL;
    }
    *out = r;
    return err;
}

sluice_err sl_recipe_parse(struct sl_str text, const char *name, struct sl_budget *b,
                           sluice_error *e, struct sl_recipe **out)
{
    struct sl_recipe *r;
    sluice_err err = create(text.n, name, b, e, &r);

    if (err == SLUICE_OK) {
        memcpy(r->text, text.p, text.n);
        err = parse(r, text.n, name, b, e);
    }
    return finish(r, err, out);
}

static sluice_err read_file(struct sl_file *f, struct sl_budget *b, sluice_error *e,
                            struct sl_recipe **out)
{
    const char *path = sl_file_path(f);
    uint64_t bytes = sl_file_bytes(f);

    if (bytes > SL_RECIPE_BYTES_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "%s: %" PRIu64 " bytes are too many for a recipe", path,
                       bytes);
    sluice_err err = create(bytes, path, b, e, out);
    if (err == SLUICE_OK) err = sl_file_read_at(f, 0, (*out)->text, bytes, e);
    return err == SLUICE_OK ? parse(*out, bytes, path, b, e) : err;
}

sluice_err sl_recipe_open(const char *path, struct sl_budget *b, sluice_error *e,
                          struct sl_recipe **out)
{
    struct sl_file *f;
    struct sl_recipe *r = NULL;

    *out = NULL;
    sluice_err err = sl_file_open(path, b, e, &f);
    if (err != SLUICE_OK) return err;
    err = read_file(f, b, e, &r);
    sl_file_close(f);
    return finish(r, err, out);
}

void sl_recipe_close(struct sl_recipe *r)
{
    if (r == NULL) return;
    sl_free(r->rules);
    sl_free(r->text);
    sl_free(r);
}

uint32_t sl_recipe_n_rules(const struct sl_recipe *r) { return r->n_rules; }

const struct sl_recipe_rule *sl_recipe_rule(const struct sl_recipe *r, uint32_t index)
{
    SLUICE_ASSERT(index < r->n_rules);
    return &r->rules[index];
}
