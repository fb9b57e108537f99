/* Fields of lines and headers; see fields.h. */
#include "trace/fields.h"

#include <string.h>

uint32_t sl_trace_cells(struct sl_str line, struct sl_str *cells, uint32_t max)
{
    uint32_t n = 0;
    const char *p = line.p, *end = line.p + line.n;
    for (;;) {
        const char *comma = p < end ? memchr(p, ',', (size_t)(end - p)) : NULL;
        struct sl_str cell = {p, (size_t)((comma ? comma : end) - p)};
        while (cell.n && (cell.p[0] == ' ' || cell.p[0] == '\t')) cell.p++, cell.n--;
        while (cell.n && (cell.p[cell.n - 1] == ' ' || cell.p[cell.n - 1] == '\t')) cell.n--;
        if (cell.n >= 2 && cell.p[0] == '"' && cell.p[cell.n - 1] == '"')
            cell = (struct sl_str){cell.p + 1, cell.n - 2};
        if (n == max) return max + 1;
        cells[n++] = cell;
        if (comma == NULL) return n;
        p = comma + 1;
    }
}

bool sl_trace_u64(struct sl_str s, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)s.p[i] - '0';
        if (digit > 9 || !sl_mul_ok(n, 10, &n) || !sl_add_ok(n, digit, &n)) return false;
    }
    if (s.n == 0 || n > max) return false;
    *out = n;
    return true;
}

static bool is_digit(struct sl_str s) { return s.n && s.p[0] >= '0' && s.p[0] <= '9'; }
static struct sl_str after(struct sl_str s) { return (struct sl_str){s.p + 1, s.n - 1}; }

/* Digits into a mantissa of at most 19; what exceeds them only moves the exponent. */
static bool take_digits(struct sl_str *s, uint64_t *mantissa, int *exponent, bool fraction)
{
    bool any = is_digit(*s);
    for (; is_digit(*s); *s = after(*s)) {
        bool fits = *mantissa < UINT64_C(999999999999999999);
        if (fits) *mantissa = *mantissa * 10 + (uint64_t)(s->p[0] - '0');
        if (fits && fraction) --*exponent;
        if (!fits && !fraction) ++*exponent;
    }
    return any;
}

static bool take_exponent(struct sl_str *s, int *exponent)
{
    int e = 0;
    if (s->n == 0 || (s->p[0] != 'e' && s->p[0] != 'E')) return true;
    *s = after(*s);
    bool minus = s->n && s->p[0] == '-';
    if (s->n && (s->p[0] == '-' || s->p[0] == '+')) *s = after(*s);
    if (!is_digit(*s)) return false;
    for (; is_digit(*s); *s = after(*s))
        if (e < 100000) e = e * 10 + (s->p[0] - '0');
    *exponent += minus ? -e : e;
    return true;
}

bool sl_trace_float(struct sl_str s, float *out)
{
    uint64_t mantissa = 0;
    int exponent = 0;
    bool minus = s.n && s.p[0] == '-';
    if (minus) s = after(s);
    bool any = take_digits(&s, &mantissa, &exponent, false);
    if (s.n && s.p[0] == '.') {
        s = after(s);
        any = take_digits(&s, &mantissa, &exponent, true) || any;
    }
    if (!any || !take_exponent(&s, &exponent) || s.n) return false;
    double v = (double)mantissa;
    if (exponent < -400) v = 0;
    for (; exponent > 0 && v > 0 && v < 1e60; exponent--) v *= 10;
    if (exponent > 0 && v > 0) return false;
    double scale = 1;
    for (; exponent < 0 && v > 0; exponent++) {
        scale *= 10;
        if (scale < 1e22) continue; /* exact up to here */
        v /= scale;
        scale = 1;
    }
    v /= scale;
    if (!(v <= 3.4028234663852886e38)) return false;
    *out = (float)(minus ? -v : v);
    return true;
}

/* ---- words --------------------------------------------------------------------------------------
 */

#define WORDS_MAX 10
static const char *const all_words[][WORDS_MAX] = {
    [SL_TRACE_WORDS_STATE] = {"miss", "flying", "hit", "unknown", "miss-ahead", "flying-ahead",
                              "hit-ahead", "unknown-ahead"},
    [SL_TRACE_WORDS_OP] = {"guess", "coming", "warm", "landed", "gone", "let-go", "closed",
                           "opened", "entry", "released"},
    [SL_TRACE_WORDS_WHY] = {"token", "prompt", "guess", "coming", "warm", "loading"},
    [SL_TRACE_WORDS_PHASE] = {"decode", "prompt"},
    [SL_TRACE_WORDS_MEASURED] = {"weights", "states", "times", "hints", "reads", "ops"},
};

const char *sl_trace_word(enum sl_trace_words words, uint32_t index)
{
    const char *word = index < WORDS_MAX ? all_words[words][index] : NULL;
    return word ? word : "";
}

bool sl_trace_word_find(enum sl_trace_words words, struct sl_str s, uint32_t *index)
{
    for (uint32_t i = 0; i < WORDS_MAX && all_words[words][i]; i++) {
        if (!sl_str_eq(s, all_words[words][i])) continue;
        *index = i;
        return true;
    }
    return false;
}

/* ---- the header ---------------------------------------------------------------------------------
 */

#define OF(field) offsetof(struct sl_trace_header, field)
#define TEXT(field)                                                                                \
    {                                                                                              \
#field, 0, OF(field), 0                                                                    \
    }
#define NUMBER(field, max)                                                                         \
    {                                                                                              \
#field, max, OF(field), sizeof(((const struct sl_trace_header *)0)->field)                 \
    }

static const struct sl_trace_field fields[] = {
    TEXT(program),
    TEXT(model),
    TEXT(file),
    TEXT(architecture),
    TEXT(machine),
    TEXT(policy),
    TEXT(io),
    TEXT(prefetch),
    TEXT(isa),
    TEXT(lossy),
    NUMBER(model_hash, UINT64_MAX),
    NUMBER(model_bytes, SL_TRACE_NUMBER_MAX),
    NUMBER(ram_bytes, SL_TRACE_NUMBER_MAX),
    NUMBER(unix_s, SL_TRACE_NUMBER_MAX),
    NUMBER(n_ctx, UINT32_MAX),
    NUMBER(threads, UINT32_MAX),
    NUMBER(chunk, UINT32_MAX),
    NUMBER(ring_slots, SL_TRACE_SLOTS_MAX),
};

const struct sl_trace_field *sl_trace_field_at(uint32_t index)
{
    return index < SL_ARRAY_LEN(fields) ? &fields[index] : NULL;
}

const struct sl_trace_field *sl_trace_field_find(struct sl_str name)
{
    for (uint32_t i = 0; i < SL_ARRAY_LEN(fields); i++)
        if (sl_str_eq(name, fields[i].name)) return &fields[i];
    return NULL;
}

uint64_t sl_trace_field_get(const struct sl_trace_header *h, const struct sl_trace_field *f)
{
    uint32_t narrow;
    uint64_t wide;
    const char *at = (const char *)h + f->offset;
    memcpy(&narrow, at, sizeof narrow);
    if (f->size == sizeof narrow) return narrow;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

void sl_trace_field_set(struct sl_trace_header *h, const struct sl_trace_field *f, uint64_t v)
{
    uint32_t narrow = (uint32_t)v;
    char *at = (char *)h + f->offset;
    if (f->size == sizeof narrow)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &v, sizeof v);
}

const char *sl_trace_layer_field(uint32_t index)
{
    static const char *const layer_fields[SL_TRACE_LAYER_FIELDS] = {
        "n_experts", "top_k", "size_class", "expert_bytes", "slot_bytes", "weights"};
    return layer_fields[index];
}

uint64_t sl_trace_layer_get(const struct sl_trace_layer_info *l, uint32_t index)
{
    const uint64_t v[SL_TRACE_LAYER_FIELDS] = {l->n_experts,    l->top_k,      l->size_class,
                                               l->expert_bytes, l->slot_bytes, l->weights};
    return v[index];
}

void sl_trace_layer_set(struct sl_trace_layer_info *l, uint32_t index, uint64_t v)
{
    uint32_t narrow = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
    if (index == 0) l->n_experts = narrow;
    if (index == 1) l->top_k = narrow;
    if (index == 2) l->size_class = narrow;
    if (index == 3) l->expert_bytes = v;
    if (index == 4) l->slot_bytes = v;
    if (index == 5) l->weights = v;
}
