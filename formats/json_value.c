/* Values of a parsed document: look-ups, walks, and text to numbers.
 *
 * The C library's conversions follow the host program's locale, which may write a comma for the
 * decimal point; these do not. */
#include "formats/json_internal.h"

#include <math.h>
#include <string.h>

#define NODE_NONE UINT32_MAX
#define EXP10_EXACT 22     /* powers of ten up to here are exact in double */
#define EXP10_ABSURD 10000 /* beyond, every number is 0 or too large */
#define DIGITS_MAX 19      /* decimal digits that always fit 64 bits */

static const struct sl_json_node *node_of(struct sl_json_value v)
{
    return v.node != NODE_NONE ? &v.doc->nodes[v.node] : NULL;
}

struct sl_json_value sl_json_root(const struct sl_json *j)
{
    return (struct sl_json_value){j, j != NULL ? 0 : NODE_NONE};
}

enum sl_json_kind sl_json_kind_of(struct sl_json_value v)
{
    const struct sl_json_node *node = node_of(v);

    return node != NULL ? (enum sl_json_kind)node->kind : SL_JSON_ABSENT;
}

const char *sl_json_kind_name(enum sl_json_kind kind)
{
    static const char *const names[] = {"absent",   "null",     "true or false", "a number",
                                        "a string", "an array", "an object"};

    SLUICE_ASSERT((size_t)kind < SL_ARRAY_LEN(names));
    return names[kind];
}

uint32_t sl_json_count(struct sl_json_value v)
{
    enum sl_json_kind kind = sl_json_kind_of(v);

    return kind == SL_JSON_ARRAY || kind == SL_JSON_OBJECT ? node_of(v)->bytes : 0;
}

struct sl_json_walk sl_json_walk(struct sl_json_value v)
{
    return (struct sl_json_walk){
        .value = {v.doc, NODE_NONE},
        .key = {"", 0},
        .at = v.node != NODE_NONE ? v.node + 1 : NODE_NONE,
        .left = sl_json_count(v),
        .object = sl_json_kind_of(v) == SL_JSON_OBJECT,
    };
}

bool sl_json_step(struct sl_json_walk *w)
{
    const struct sl_json *j = w->value.doc;

    if (w->left == 0) return false;
    w->left--;
    if (w->object) {
        w->key = (struct sl_str){j->text + j->nodes[w->at].at, j->nodes[w->at].bytes};
        w->at++;
    }
    w->value.node = w->at;
    w->at = j->nodes[w->at].next;
    return true;
}

struct sl_json_value sl_json_get(struct sl_json_value v, const char *key)
{
    struct sl_json_walk w = sl_json_walk(v);

    while (w.object && sl_json_step(&w))
        if (sl_str_eq(w.key, key)) return w.value;
    return (struct sl_json_value){v.doc, NODE_NONE};
}

/* ---- scalars --------------------------------------------------------------------------------- */

static bool text_of(struct sl_json_value v, enum sl_json_kind kind, struct sl_str *out)
{
    const struct sl_json_node *node = node_of(v);

    if (node == NULL || node->kind != (uint32_t)kind) return false;
    *out = (struct sl_str){v.doc->text + node->at, node->bytes};
    return true;
}

bool sl_json_str(struct sl_json_value v, struct sl_str *out)
{
    return text_of(v, SL_JSON_STRING, out);
}

bool sl_json_bool(struct sl_json_value v, bool *out)
{
    struct sl_str s;

    if (!text_of(v, SL_JSON_BOOL, &s)) return false;
    *out = s.p[0] == 't';
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool sl_json_u64(struct sl_json_value v, uint64_t *out)
{
    struct sl_str s;
    uint64_t n = 0;

    if (!text_of(v, SL_JSON_NUMBER, &s)) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (!is_digit(s.p[i]) || !sl_mul_ok(n, 10, &n) ||
            !sl_add_ok(n, (uint64_t)(s.p[i] - '0'), &n))
            return false;
    }
    *out = n;
    return true;
}

bool sl_json_i64(struct sl_json_value v, int64_t *out)
{
    struct sl_str s;
    uint64_t n = 0;
    bool negative;

    if (!text_of(v, SL_JSON_NUMBER, &s)) return false;
    negative = s.p[0] == '-';
    for (size_t i = negative; i < s.n; i++) {
        if (!is_digit(s.p[i]) || !sl_mul_ok(n, 10, &n) ||
            !sl_add_ok(n, (uint64_t)(s.p[i] - '0'), &n))
            return false;
    }
    if (n > (uint64_t)INT64_MAX + negative) return false;
    *out = negative ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

/* The digits of a number as a whole number times a power of ten; digits that no longer fit are left
 * out and count as powers. */
struct decimal {
    uint64_t digits;
    int64_t exp10;
    uint32_t n; /* digits taken, leading zeros aside */
    bool fraction;
};

static void take_digit(struct decimal *d, char c)
{
    bool fits = d->n < DIGITS_MAX;

    if (fits) d->digits = d->digits * 10 + (uint64_t)(c - '0');
    if (fits && d->digits > 0) d->n++;
    if (fits == d->fraction) d->exp10 += fits ? -1 : 1;
}

/* The exponent's value, cut where it no longer matters. */
static int64_t read_exponent(struct sl_str s)
{
    int64_t v = 0;
    bool negative = s.n > 0 && s.p[0] == '-';

    for (size_t i = negative || (s.n > 0 && s.p[0] == '+'); i < s.n; i++)
        if (v < EXP10_ABSURD) v = v * 10 + (s.p[i] - '0');
    return negative ? -v : v;
}

static double scale10(double v, int64_t exp10)
{
    static const double powers[EXP10_EXACT + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    if (v == 0.0) return v;
    while (exp10 > 0 && v < INFINITY) {
        int64_t now = exp10 < EXP10_EXACT ? exp10 : EXP10_EXACT;

        v *= powers[now];
        exp10 -= now;
    }
    while (exp10 < 0 && v > 0.0) {
        int64_t now = -exp10 < EXP10_EXACT ? -exp10 : EXP10_EXACT;

        v /= powers[now];
        exp10 += now;
    }
    return v;
}

bool sl_json_f64(struct sl_json_value v, double *out)
{
    struct sl_str s;
    struct decimal d = {0, 0, 0, false};
    bool negative;
    double value;

    if (!text_of(v, SL_JSON_NUMBER, &s)) return false;
    negative = s.p[0] == '-';
    if (!is_digit(s.p[negative])) return false; /* NaN, Infinity */
    for (size_t i = negative; i < s.n; i++) {
        if (s.p[i] == '.') {
            d.fraction = true;
        } else if (is_digit(s.p[i])) {
            take_digit(&d, s.p[i]);
        } else {
            d.exp10 += read_exponent((struct sl_str){s.p + i + 1, s.n - i - 1});
            break;
        }
    }
    value = scale10((double)d.digits, d.exp10);
    if (!isfinite(value)) return false;
    *out = negative ? -value : value;
    return true;
}
