/* Tokens that are cut out of the raw text before anything else looks at it: user-defined ones
 * always, control tokens where the caller says that the text is a template's.
 *
 * Matching goes from left to right, at each place the longest token wins (so do Hugging Face's
 * added tokens). The ids are sorted by text; the candidates at a place are a range of that list,
 * which is narrowed byte by byte. Few bytes begin a token, so that most places cost one look-up. A
 * token longer than ADDED_TOKEN_BYTES_MAX is refused: it would let a file make this slow. */
#include "engine/text/tokenizer_internal.h"

#include <string.h>

static bool is_added(uint8_t kind)
{
    return kind == SL_TOKEN_CONTROL || kind == SL_TOKEN_USER_DEFINED || kind == SL_TOKEN_UNKNOWN;
}

static int compare(const struct vocab_table *v, int32_t a, int32_t b)
{
    struct sl_str x = vocab_text(v, a), y = vocab_text(v, b);
    int c = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    if (c != 0) return c;
    if (x.n != y.n) return x.n < y.n ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Merge sort from the bottom up; temp has room for n. */
static void sort_by_text(const struct vocab_table *v, int32_t *ids, int32_t *temp, uint32_t n)
{
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t lo = 0; lo < n; lo += 2 * width) {
            uint32_t mid = lo + width < n ? lo + width : n;
            uint32_t hi = mid + width < n ? mid + width : n;
            uint32_t i = lo, j = mid;
            for (uint32_t k = lo; k < hi; k++) {
                bool left = j == hi || (i < mid && compare(v, ids[i], ids[j]) <= 0);
                temp[k] = left ? ids[i++] : ids[j++];
            }
        }
        memcpy(ids, temp, n * sizeof *ids);
    }
}

static uint8_t byte_of(const struct vocab_table *v, int32_t id, uint32_t at)
{
    return (uint8_t)vocab_text(v, id).p[at];
}

sluice_err added_tokens_open(struct added_tokens *a, const struct vocab_table *v,
                             struct sl_budget *b, sluice_error *e)
{
    *a = (struct added_tokens){0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        size_t bytes = vocab_text(v, (int32_t)i).n;
        if (!is_added(v->kinds[i]) || bytes == 0) continue;
        if (bytes > ADDED_TOKEN_BYTES_MAX)
            return sl_fail(
                e, SLUICE_E_LIMIT,
                "token %u, which is matched in raw text, has %zu bytes; at most %d are supported",
                i, bytes, ADDED_TOKEN_BYTES_MAX);
        n++;
    }
    a->ids = sl_alloc(b, n, sizeof *a->ids);
    int32_t *temp = sl_alloc(b, n, sizeof *temp);
    if (a->ids == NULL || temp == NULL) {
        sl_free(temp);
        return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (is_added(v->kinds[i]) && vocab_text(v, (int32_t)i).n > 0) a->ids[a->n++] = (int32_t)i;
    }
    sort_by_text(v, a->ids, temp, n);
    sl_free(temp);
    for (uint32_t i = 0; i < n; i++) a->first[byte_of(v, a->ids[i], 0) + 1]++;
    for (uint32_t c = 0; c < 256; c++) a->first[c + 1] += a->first[c];
    return SLUICE_OK;
}

void added_tokens_close(struct added_tokens *a)
{
    sl_free(a->ids);
    *a = (struct added_tokens){0};
}

/* First index in lo..hi whose byte at position at is c or more; all of them have that byte, and are
 * sorted by it. */
static uint32_t lower_bound(const struct added_tokens *a, const struct vocab_table *v,
                            uint32_t range[2], uint32_t at, unsigned c)
{
    uint32_t lo = range[0], hi = range[1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (byte_of(v, a->ids[mid], at) < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Whether text[begin..end) has bytes that only user-defined tokens may touch. */
static bool touches_plain(const struct added_scope *scope, uint64_t begin, uint64_t end)
{
    uint32_t lo = 0, hi = scope->n_plain;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (scope->plain[mid].end <= begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < scope->n_plain && scope->plain[lo].begin < end;
}

static bool allowed(uint8_t kind, const struct added_scope *scope, uint64_t begin, uint64_t end)
{
    if (kind == SL_TOKEN_USER_DEFINED) return true;
    return scope->special && !touches_plain(scope, begin, end);
}

/* The longest allowed token at text[at]. */
static bool match_at(const struct added_tokens *a, const struct vocab_table *v, struct sl_str text,
                     uint64_t at, const struct added_scope *scope, struct added_match *out)
{
    unsigned char c = (unsigned char)text.p[at];
    uint32_t range[2] = {a->first[c], a->first[c + 1]};
    bool found = false;
    for (uint32_t n = 1; range[0] < range[1]; n++) {
        while (range[0] < range[1] &&
               vocab_text(v, a->ids[range[0]]).n == n) { /* the shortest come first */
            int32_t id = a->ids[range[0]++];
            if (!allowed(v->kinds[id], scope, at, at + n)) continue;
            *out = (struct added_match){at, n, id};
            found = true;
        }
        if (at + n == text.n) break;
        c = (unsigned char)text.p[at + n];
        uint32_t lo = lower_bound(a, v, range, n, c);
        range[1] = lower_bound(a, v, range, n, c + 1u);
        range[0] = lo;
    }
    return found;
}

bool added_tokens_find(const struct added_tokens *a, const struct vocab_table *v,
                       struct sl_str text, uint64_t from, const struct added_scope *scope,
                       struct added_match *out)
{
    if (a->n == 0) return false;
    for (uint64_t at = from; at < text.n; at++) {
        unsigned char c = (unsigned char)text.p[at];
        if (a->first[c] == a->first[c + 1]) continue;
        if (match_at(a, v, text, at, scope, out)) return true;
    }
    return false;
}
