/* Stop strings over a stream: every string runs as its own prefix automaton (Knuth, Morris and
 * Pratt 1977) over the text.
 *
 * Always true between calls: state[i] is the length of the longest prefix of string i that the text
 * so far ends with, and what is held back is exactly the longest of them. So no copy of the held
 * text is needed: it is a prefix of that string. The cost is linear in the text for each string,
 * whatever the strings look like. */
#include "engine/text/stop.h"

#include <string.h>

#define STRINGS_MAX 64
#define STRING_BYTES_MAX 4096

/* One stop string. */
struct pattern {
    const char *text;
    uint32_t n;
    uint32_t state;       /* bytes matched so far, below n unless the matcher has stopped */
    const uint16_t *fail; /* [n] length of the longest proper border of text[0..i] */
};

struct sl_stop {
    struct sl_arena arena;
    struct pattern *patterns;
    uint32_t n_patterns;
    bool stopped;
};

_Static_assert(STRING_BYTES_MAX <= UINT16_MAX, "borders are kept in 16 bits");

/* The table of borders by the textbook recurrence. */
static void fill_borders(const char *text, uint32_t n, uint16_t *fail)
{
    uint32_t border = 0;
    fail[0] = 0;
    for (uint32_t i = 1; i < n; i++) {
        while (border > 0 && text[i] != text[border]) border = fail[border - 1];
        if (text[i] == text[border]) border++;
        fail[i] = (uint16_t)border;
    }
}

static sluice_err add_pattern(struct sl_stop *s, struct sl_str text, sluice_error *e)
{
    struct pattern *p = &s->patterns[s->n_patterns];
    if (text.n == 0) return sl_fail(e, SLUICE_E_ARG, "a stop string must not be empty");
    if (text.n > STRING_BYTES_MAX) {
        return sl_fail(e, SLUICE_E_LIMIT, "a stop string of %zu bytes is longer than %d", text.n,
                       STRING_BYTES_MAX);
    }
    char *copy = sl_arena_alloc(&s->arena, text.n, 1);
    uint16_t *fail = sl_arena_alloc(&s->arena, text.n, sizeof(*fail));
    if (copy == NULL || fail == NULL) {
        return sl_fail(e, SLUICE_E_BUDGET, "no memory for a stop string of %zu bytes", text.n);
    }
    memcpy(copy, text.p, text.n);
    fill_borders(copy, (uint32_t)text.n, fail);
    *p = (struct pattern){.text = copy, .n = (uint32_t)text.n, .fail = fail};
    s->n_patterns++;
    return SLUICE_OK;
}

sluice_err sl_stop_open(const struct sl_str *strings, uint32_t n, struct sl_budget *b,
                        sluice_error *e, struct sl_stop **out)
{
    sluice_err err = SLUICE_OK;
    *out = NULL;
    if (n > STRINGS_MAX) {
        return sl_fail(e, SLUICE_E_LIMIT, "%u stop strings are more than %d", (unsigned)n,
                       STRINGS_MAX);
    }
    struct sl_stop *s = sl_alloc(b, 1, sizeof(*s));
    if (s == NULL) return sl_fail(e, SLUICE_E_BUDGET, "no memory for the stop strings");
    sl_arena_init(&s->arena, b, 4096);
    s->patterns = sl_arena_alloc(&s->arena, n + 1, sizeof(*s->patterns));
    if (s->patterns == NULL) err = sl_fail(e, SLUICE_E_BUDGET, "no memory for the stop strings");
    for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) err = add_pattern(s, strings[i], e);
    if (err != SLUICE_OK) {
        sl_stop_close(s);
        return err;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_stop_close(struct sl_stop *s)
{
    if (s == NULL) return;
    sl_arena_deinit(&s->arena);
    sl_free(s);
}

void sl_stop_reset(struct sl_stop *s)
{
    for (uint32_t i = 0; i < s->n_patterns; i++) s->patterns[i].state = 0;
    s->stopped = false;
}

/* The text held back: a prefix of the string that has matched most. */
static struct sl_str held_text(const struct sl_stop *s)
{
    struct sl_str held = {"", 0};
    for (uint32_t i = 0; i < s->n_patterns; i++) {
        const struct pattern *p = &s->patterns[i];
        if (p->state > held.n) held = (struct sl_str){p->text, p->state};
    }
    return held;
}

/* Moves every automaton on by one byte. Returns the length of the longest string that is now
 * complete, 0 for none. */
static size_t step(struct sl_stop *s, char c)
{
    size_t complete = 0;
    for (uint32_t i = 0; i < s->n_patterns; i++) {
        struct pattern *p = &s->patterns[i];
        while (p->state > 0 && p->text[p->state] != c) p->state = p->fail[p->state - 1];
        if (p->text[p->state] == c) p->state++;
        if (p->state == p->n && p->n > complete) complete = p->n;
    }
    return complete;
}

void sl_stop_push(struct sl_stop *s, struct sl_str text, sl_stop_emit_fn *emit, void *user,
                  bool *stopped)
{
    struct sl_str before = held_text(s);
    size_t used = 0;
    size_t back = 0; /* bytes at the end that must not be emitted */
    SLUICE_ASSERT(!s->stopped);

    while (used < text.n && back == 0) back = step(s, text.p[used++]);
    s->stopped = back > 0;
    if (!s->stopped) back = held_text(s).n;

    size_t out = before.n + used - back;
    size_t from_held = out < before.n ? out : before.n;
    if (from_held > 0) emit(user, before.p, from_held);
    if (out > from_held) emit(user, text.p, out - from_held);
    *stopped = s->stopped;
}

void sl_stop_flush(struct sl_stop *s, sl_stop_emit_fn *emit, void *user)
{
    struct sl_str held = held_text(s);
    if (!s->stopped && held.n > 0) emit(user, held.p, held.n);
    for (uint32_t i = 0; i < s->n_patterns; i++) s->patterns[i].state = 0;
}
