/* Fields of a line: cells between commas, numbers, and the words that forms use for numbers of a
 * trace. Thread: pure. */
#ifndef SL_TRACE_FIELDS_H
#define SL_TRACE_FIELDS_H

#include "trace/trace.h"

/* Cells of a line of CSV, up to max, without the quotes around them; returns how many there are,
 * max + 1 for more. */
uint32_t sl_trace_cells(struct sl_str line, struct sl_str *cells, uint32_t max);

/* Whole text is a number: digits only, at most max. */
bool sl_trace_u64(struct sl_str s, uint64_t max, uint64_t *out);
/* Whole text is a finite decimal number that a float holds, with sign, fraction and exponent as C
 * writes them. Nine digits or fewer give the nearest float. */
bool sl_trace_float(struct sl_str s, float *out);

/* Words of the enums of trace_file.h; the index is the number. An index of no word is "". */
enum sl_trace_words {
    SL_TRACE_WORDS_STATE, /* with SL_TRACE_AHEAD: 4 to 7 */
    SL_TRACE_WORDS_OP,
    SL_TRACE_WORDS_WHY,
    SL_TRACE_WORDS_PHASE,    /* decode, prompt */
    SL_TRACE_WORDS_MEASURED, /* bit 0, 1, ... */
};
const char *sl_trace_word(enum sl_trace_words words, uint32_t index);
bool sl_trace_word_find(enum sl_trace_words words, struct sl_str s, uint32_t *index);

/* Header fields that are one string or one number. */
struct sl_trace_field {
    const char *name;
    uint64_t max; /* of a number; 0: a string of SL_TRACE_TEXT bytes */
    size_t offset;
    size_t size; /* of the number */
};
const struct sl_trace_field *sl_trace_field_at(uint32_t index); /* NULL past the last */
const struct sl_trace_field *sl_trace_field_find(struct sl_str name);
uint64_t sl_trace_field_get(const struct sl_trace_header *h, const struct sl_trace_field *f);
void sl_trace_field_set(struct sl_trace_header *h, const struct sl_trace_field *f, uint64_t v);
/* Numbers of a layer in the header, in their order; the names are columns and keys. */
#define SL_TRACE_LAYER_FIELDS 6
const char *sl_trace_layer_field(uint32_t index);
uint64_t sl_trace_layer_get(const struct sl_trace_layer_info *l, uint32_t index);
void sl_trace_layer_set(struct sl_trace_layer_info *l, uint32_t index, uint64_t v);

#endif
