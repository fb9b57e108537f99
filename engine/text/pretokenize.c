/* Splitting text into the pieces that BPE merges, by the regular expressions of the tokenizer
 * (pretokenize_table.c).
 *
 * A pre-tokenizer is one to six steps. A step splits every piece of the step before: what its
 * expression matches becomes a piece, and so does each stretch between matches. The scan walks
 * depth first with one cursor a step, so that it needs neither memory for the pieces nor recursion.
 * Within a step the piece is the whole subject: lookahead does not see beyond it.
 *
 * The only file that uses PCRE2. Compiled code is used where the system allows it; it takes at most
 * 32 KiB of the thread's stack, and what needs more is left to the interpreter, whose frames are on
 * the heap. Limits on the number of steps are off: the expressions take time linear in the piece,
 * and a megabyte of spaces must pass. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <string.h>

#include "engine/text/tokenizer_internal.h"

struct pretok {
    const struct pretok_kind *kind;
    struct sl_budget *budget;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *steps[PRETOK_STEPS_MAX];
    bool compiled[PRETOK_STEPS_MAX]; /* machine code exists */
    uint32_t n_steps;
    uint64_t code_bytes; /* machine code, charged to the budget */
    uint64_t bytes;
};

static void *pcre_alloc(size_t bytes, void *budget) { return sl_alloc(budget, bytes, 1); }

static void pcre_free(void *p, void *budget)
{
    (void)budget;
    sl_free(p);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether name is one of the words of list, which single spaces separate. */
static bool listed(const char *list, struct sl_str name)
{
    while (*list != '\0') {
        size_t n = strcspn(list, " ");
        if (n == name.n && memcmp(list, name.p, n) == 0) return true;
        list += n;
        if (*list == ' ') list++;
    }
    return false;
}

static const struct pretok_kind *find_kind(struct sl_str name)
{
    for (uint32_t i = 0; i < pretok_n_kinds; i++) {
        if (sl_str_eq(name, pretok_kinds[i].name) || listed(pretok_kinds[i].aliases, name))
            return &pretok_kinds[i];
    }
    return NULL;
}

static sluice_err unknown_name(struct sl_str name, sluice_error *e)
{
    char known[512];
    size_t at = 0;
    for (uint32_t i = 0; i < pretok_n_kinds; i++) {
        int n = snprintf(known + at, sizeof known - at, "%s%s", i > 0 ? ", " : "",
                         pretok_kinds[i].name);
        if (n < 0 || (size_t)n >= sizeof known - at) break;
        at += (size_t)n;
    }
    if (name.n == 0) {
        return sl_fail(
            e, SLUICE_E_UNSUPPORTED,
            "the file names no pre-tokenizer (tokenizer.ggml.pre), and a guess would give wrong "
            "tokens; convert the model again, or set the key to one of %s",
            known);
    }
    char shown[64];
    return sl_fail(
        e, SLUICE_E_UNSUPPORTED,
        "pre-tokenizer \"%s\" (tokenizer.ggml.pre) is not known; known are %s and their aliases; "
        "a newer version may be needed",
        sl_str_show(name, shown, sizeof shown), known);
}

/* ---- opening --------------------------------------------------------------------------------- */

static sluice_err compile_step(struct pretok *p, const char *pattern, sluice_error *e)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    if (context == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the pre-tokenizer");
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *step =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (step == NULL && code == PCRE2_ERROR_HEAP_FAILED)
        return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the pre-tokenizer");
    if (step == NULL)
        return sl_fail(e, SLUICE_E_UNSUPPORTED,
                       "PCRE2 refuses the expression of pre-tokenizer %s (error %d at %zu)",
                       p->kind->name, code, (size_t)at);
    uint32_t i = p->n_steps++;
    p->steps[i] = step;
    size_t bytes = 0;
    pcre2_pattern_info(step, PCRE2_INFO_SIZE, &bytes);
    p->bytes += bytes;
    if (pcre2_jit_compile(step, PCRE2_JIT_COMPLETE) != 0)
        return SLUICE_OK; /* the interpreter does it too */
    bytes = 0;
    pcre2_pattern_info(step, PCRE2_INFO_JITSIZE, &bytes);
    sluice_err err = sl_budget_charge(p->budget, bytes);
    if (err != SLUICE_OK) return tokenizer_no_memory(e, err, "the pre-tokenizer");
    p->compiled[i] = bytes > 0;
    p->code_bytes += bytes;
    p->bytes += bytes;
    return SLUICE_OK;
}

sluice_err pretok_open(struct sl_str name, struct sl_budget *b, sluice_error *e,
                       struct pretok **out)
{
    *out = NULL;
    const struct pretok_kind *kind = find_kind(name);
    if (kind == NULL) return unknown_name(name, e);
    struct pretok *p = sl_alloc(b, 1, sizeof *p);
    if (p == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the pre-tokenizer");
    p->kind = kind;
    p->budget = b;
    p->bytes = sizeof *p;
    sluice_err err = SLUICE_OK;
    p->memory = pcre2_general_context_create(pcre_alloc, pcre_free, b);
    p->limits = p->memory != NULL ? pcre2_match_context_create(p->memory) : NULL;
    if (p->limits == NULL) {
        err = tokenizer_no_memory(e, SLUICE_E_BUDGET, "the pre-tokenizer");
        goto out;
    }
    pcre2_set_match_limit(p->limits, UINT32_MAX);
    pcre2_set_depth_limit(p->limits, UINT32_MAX);
    for (uint32_t i = 0; i < PRETOK_STEPS_MAX && kind->steps[i] != NULL && err == SLUICE_OK; i++)
        err = compile_step(p, kind->steps[i], e);
out:
    if (err != SLUICE_OK)
        pretok_close(p);
    else
        *out = p;
    return err;
}

void pretok_close(struct pretok *p)
{
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->n_steps; i++) pcre2_code_free(p->steps[i]);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    sl_budget_release(p->budget, p->code_bytes);
    sl_free(p);
}

unsigned pretok_flags(const struct pretok *p) { return p->kind->flags; }
uint64_t pretok_bytes(const struct pretok *p) { return p->bytes; }

/* ---- scanning -------------------------------------------------------------------------------- */

sluice_err pretok_scan_init(struct pretok_scan *s, const struct pretok *p, sluice_error *e)
{
    *s = (struct pretok_scan){.pretok = p};
    s->match_data = pcre2_match_data_create(1, p->memory);
    if (s->match_data == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "splitting the text");
    return SLUICE_OK;
}

void pretok_scan_deinit(struct pretok_scan *s)
{
    pcre2_match_data_free(s->match_data);
    s->match_data = NULL;
}

void pretok_scan_start(struct pretok_scan *s, struct sl_str text)
{
    SLUICE_ASSERT(text.n > 0 && text.n <= UINT32_MAX);
    s->levels[0] = (struct pretok_level){.p = text.p, .n = (uint32_t)text.n};
    s->depth = 1;
}

/* Finds the next match of the step in the piece of its level; without one, match_begin is the end
 * of the piece. */
static sluice_err find_match(struct pretok_scan *s, uint32_t step, sluice_error *e)
{
    const struct pretok *p = s->pretok;
    struct pretok_level *l = &s->levels[step];
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->compiled[step])
        rc = pcre2_jit_match(p->steps[step], (PCRE2_SPTR)l->p, l->n, l->at, PCRE2_NO_UTF_CHECK,
                             s->match_data, p->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->steps[step], (PCRE2_SPTR)l->p, l->n, l->at,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match_data, p->limits);
    if (rc == PCRE2_ERROR_NOMATCH) {
        l->match_begin = l->n;
        l->match_end = l->n;
        return SLUICE_OK;
    }
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return tokenizer_no_memory(e, SLUICE_E_BUDGET, "splitting the text");
    if (rc < 0)
        return sl_fail(e, SLUICE_E_LIMIT, "PCRE2 gave up on splitting the text (error %d)", rc);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match_data);
    SLUICE_ASSERT(range[0] >= l->at && range[0] < range[1] &&
                  range[1] <= l->n); /* no expression matches nothing */
    l->match_begin = (uint32_t)range[0];
    l->match_end = (uint32_t)range[1];
    return SLUICE_OK;
}

sluice_err pretok_scan_next(struct pretok_scan *s, struct sl_str *piece, sluice_error *e)
{
    *piece = (struct sl_str){NULL, 0};
    for (;;) {
        while (s->depth > 0 && s->levels[s->depth - 1].at == s->levels[s->depth - 1].n) s->depth--;
        if (s->depth == 0) return SLUICE_OK;
        struct pretok_level *l = &s->levels[s->depth - 1];
        if (l->match_end <= l->at) {
            sluice_err err = find_match(s, s->depth - 1, e);
            if (err != SLUICE_OK) return err;
        }
        uint32_t end = l->match_begin > l->at ? l->match_begin : l->match_end;
        struct sl_str part = {l->p + l->at, end - l->at};
        l->at = end;
        if (s->depth == s->pretok->n_steps) {
            *piece = part;
            return SLUICE_OK;
        }
        s->levels[s->depth++] = (struct pretok_level){.p = part.p, .n = (uint32_t)part.n};
    }
}
