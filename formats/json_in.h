/* Reading JSON that nobody vouches for: headers and folders of Hugging Face models.
 *
 * A document is parsed whole, without recursion, into one table of 16-byte nodes in document order.
 * Strings are unescaped where they stand, in the text itself, so nothing is copied. What a hostile
 * file can do is bounded: nesting (SL_JSON_DEPTH_MAX), size (the caller's limit), memory (charged
 * to the budget, proportional to the text), time (linear; names that were made to collide are
 * refused). A name that stands twice in an object is an error, since two readers would take
 * different ones; so is text that is not UTF-8, and anything behind the value.
 *
 * NaN, Infinity and -Infinity are read as numbers, because Python writes them; asking for their
 * value fails like any other number that does not fit.
 *
 * Errors: SLUICE_E_FORMAT with name, offset and what was wanted; SLUICE_E_LIMIT; SLUICE_E_NOMEM;
 * SLUICE_E_BUDGET; of files also what io/file.h says.
 * Source: RFC 8259. Thread: a document is written by parsing only; look-ups are pure. */
#ifndef SL_JSON_IN_H
#define SL_JSON_IN_H

#include "base/mem.h"

#define SL_JSON_DEPTH_MAX 64
#define SL_JSON_BYTES_MAX (1u << 30) /* of any document; callers set a smaller one */

enum sl_json_kind {
    SL_JSON_ABSENT, /* what a look-up gives that finds nothing */
    SL_JSON_NULL,
    SL_JSON_BOOL,
    SL_JSON_NUMBER,
    SL_JSON_STRING,
    SL_JSON_ARRAY,
    SL_JSON_OBJECT,
};

struct sl_json;

/* A value inside a document; passed by value, valid until the document is closed. */
struct sl_json_value {
    const struct sl_json *doc;
    uint32_t node;
};

/* Parses bytes of text, which is changed, must outlive the document, and stays the caller's. name
 * is what messages call it (a path), borrowed for the call. */
SL_MUST_CHECK sluice_err sl_json_parse(char *text, uint64_t bytes, const char *name,
                                       struct sl_budget *b, sluice_error *e, struct sl_json **out);
/* The same for a file of at most bytes_max, whose text the document then owns. */
SL_MUST_CHECK sluice_err sl_json_open(const char *path, uint64_t bytes_max, struct sl_budget *b,
                                      sluice_error *e, struct sl_json **out);
void sl_json_close(struct sl_json *j); /* NULL is fine */

/* The whole; absent where j is NULL. */
struct sl_json_value sl_json_root(const struct sl_json *j);
enum sl_json_kind sl_json_kind_of(struct sl_json_value v);
const char *sl_json_kind_name(enum sl_json_kind kind); /* "an object" */

/* Members of an object, elements of an array; 0 for anything else. */
uint32_t sl_json_count(struct sl_json_value v);
/* Member key of an object, or an absent value; v may be anything, absent too. Linear in the number
 * of members: walk large objects instead. */
struct sl_json_value sl_json_get(struct sl_json_value v, const char *key);

/* Walks the members or elements of v:
 *
 *     struct sl_json_walk w = sl_json_walk(v);
 *     while (sl_json_step(&w)) use(w.key, w.value);
 *
 * key is empty in arrays. */
struct sl_json_walk {
    struct sl_json_value value;
    struct sl_str key;
    uint32_t at, left;
    bool object;
};
struct sl_json_walk sl_json_walk(struct sl_json_value v);
bool sl_json_step(struct sl_json_walk *w);

/* Typed reads: false, with *out as it was, where v is of another kind or out of range. Strings are
 * borrowed from the text. u64 and i64 take numbers without fraction and exponent only. f64 takes
 * finite ones and is exact to 15 digits, within one unit in the last place beyond. */
bool sl_json_str(struct sl_json_value v, struct sl_str *out);
bool sl_json_bool(struct sl_json_value v, bool *out);
bool sl_json_u64(struct sl_json_value v, uint64_t *out);
bool sl_json_i64(struct sl_json_value v, int64_t *out);
bool sl_json_f64(struct sl_json_value v, double *out);

#endif
