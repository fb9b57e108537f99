/* Writing our CSV: remarks with the header, the names of the columns, and a row for each choice and
 * for everything else that a trace file holds. The first column says what a row is; a row leaves
 * the columns empty that it has no use for. See docs/FORMAT.md. */
#include <string.h>

#include "trace/fields.h"
#include "trace/forms.h"
#include "trace/forms_csv.h"

const char *const sl_csv_names[COLUMNS] = {
    "record",   "session",   "position", "tokens",  "phase",  "layer",   "top_k", "rank",
    "expert",   "weight",    "state",    "kind",    "how",    "visits",  "bytes", "begin_ns",
    "dense_ns", "expert_ns", "wait_ns",  "took_ns", "end_ns", "phase_ns"};

/* A row is written from left to right; cells in between stay empty. */
struct row {
    struct sl_trace_output *o;
    uint32_t at; /* the column that comes next */
};

static struct row begin_row(struct sl_trace_output *o, const char *record)
{
    sl_trace_put_text(o, record);
    return (struct row){o, 1};
}

static void go_to(struct row *r, enum sl_csv_column c)
{
    static const char commas[COLUMNS + 1] = ",,,,,,,,,,,,,,,,,,,,,,";
    sl_trace_put_bytes(r->o, commas, c + 1 - r->at);
    r->at = c + 1;
}

static void put(struct row *r, enum sl_csv_column c, uint64_t v)
{
    go_to(r, c);
    sl_trace_put_number(r->o, v);
}

static void put_word(struct row *r, enum sl_csv_column c, const char *word)
{
    go_to(r, c);
    sl_trace_put_text(r->o, word);
}

static void put_value(struct row *r, enum sl_csv_column c, float v)
{
    go_to(r, c);
    sl_trace_put_float(r->o, v);
}

static void end_row(struct row *r)
{
    if (r->at < COLUMNS) go_to(r, PHASE_NS);
    sl_trace_put_bytes(r->o, "\n", 1);
}

static const char *phase(bool prompt) { return sl_trace_word(SL_TRACE_WORDS_PHASE, prompt); }

static void write_layer(const struct sl_trace_eval *eval, const struct sl_trace_layer *l,
                        struct sl_trace_output *o)
{
    struct row r = begin_row(o, "layer");
    put(&r, LAYER, l->layer);
    put(&r, TOP_K, l->top_k);
    put(&r, BYTES, l->read_bytes);
    put(&r, BEGIN_NS, l->begin_ns);
    put(&r, DENSE_NS, l->dense_ns);
    put(&r, EXPERT_NS, l->expert_ns);
    put(&r, WAIT_NS, l->wait_ns);
    end_row(&r);
    for (uint32_t i = 0; i < l->n_tokens * l->top_k; i++) {
        r = begin_row(o, "choice");
        put(&r, SESSION, eval->session);
        put(&r, POSITION, (uint64_t)eval->position + i / l->top_k);
        put_word(&r, PHASE, phase(eval->prompt));
        put(&r, LAYER, l->layer);
        put(&r, RANK, i % l->top_k);
        if (l->chosen[i] != SL_TRACE_NONE) put(&r, EXPERT, l->chosen[i]);
        if (l->weights) put_value(&r, WEIGHT, l->weights[i]);
        if (l->states) put_word(&r, STATE, sl_trace_word(SL_TRACE_WORDS_STATE, l->states[i]));
        end_row(&r);
    }
    for (uint32_t i = 0; i < l->n_entries; i++) {
        r = begin_row(o, "entry");
        put(&r, LAYER, l->layer);
        put(&r, HOW, l->entries[i]);
        end_row(&r);
    }
}

static void write_hints(const struct sl_trace_hints *h, struct sl_trace_output *o)
{
    struct row r = begin_row(o, "hints");
    put_word(&r, PHASE, phase(h->prompt));
    put(&r, LAYER, h->layer);
    put(&r, VISITS, h->visits);
    end_row(&r);
    for (uint32_t i = 0; i < h->n; i++) {
        r = begin_row(o, "hint");
        put(&r, LAYER, h->layer);
        put(&r, RANK, i);
        put(&r, EXPERT, h->experts[i]);
        put_value(&r, WEIGHT, h->probabilities[i]);
        end_row(&r);
    }
}

static void write_other(const struct sl_trace_record *record, struct sl_trace_output *o)
{
    struct row r;
    if (record->kind == SL_TRACE_EVAL) {
        const struct sl_trace_eval *e = &record->u.eval;
        r = begin_row(o, "eval");
        put(&r, SESSION, e->session);
        put(&r, POSITION, e->position);
        put(&r, TOKENS, e->n_tokens);
        put_word(&r, PHASE, phase(e->prompt));
        put(&r, BEGIN_NS, e->begin_ns);
    } else if (record->kind == SL_TRACE_OP) {
        const struct sl_trace_op *op = &record->u.op;
        r = begin_row(o, "op");
        put(&r, LAYER, op->layer);
        put(&r, EXPERT, op->expert);
        put_word(&r, KIND, sl_trace_word(SL_TRACE_WORDS_OP, op->kind));
        put(&r, HOW, op->how);
    } else if (record->kind == SL_TRACE_READ) {
        const struct sl_trace_read *read = &record->u.read;
        r = begin_row(o, "read");
        put(&r, LAYER, read->layer);
        put(&r, EXPERT, read->expert);
        put_word(&r, KIND, sl_trace_word(SL_TRACE_WORDS_WHY, read->why));
        put(&r, BYTES, read->bytes);
        put(&r, BEGIN_NS, read->begin_ns);
        put(&r, TOOK_NS, read->took_ns);
    } else {
        const struct sl_trace_done *done = &record->u.done;
        r = begin_row(o, "done");
        put(&r, END_NS, done->end_ns);
        for (uint32_t i = 0; i < SL_TRACE_PHASES; i++) {
            if (i == 0)
                go_to(&r, PHASE_NS);
            else
                sl_trace_put_bytes(o, ";", 1);
            sl_trace_put_number(o, done->phase_ns[i]);
        }
    }
    end_row(&r);
}

static void write_header(const struct sl_trace_header *h, struct sl_trace_output *o)
{
    const struct sl_trace_field *f;
    sl_trace_put_text(o, SL_CSV_FIRST_LINE "\n");
    for (uint32_t i = 0; (f = sl_trace_field_at(i)); i++) {
        sl_trace_put_text(o, "# ");
        sl_trace_put_text(o, f->name);
        sl_trace_put_text(o, ",");
        if (f->max)
            sl_trace_put_number(o, sl_trace_field_get(h, f));
        else
            sl_trace_put_string(o, (const char *)h + f->offset);
        sl_trace_put_text(o, "\n");
    }
    sl_trace_put_text(o, "# measured");
    for (uint32_t i = 0; *sl_trace_word(SL_TRACE_WORDS_MEASURED, i); i++) {
        if (!(h->measured >> i & 1)) continue;
        sl_trace_put_text(o, ",");
        sl_trace_put_text(o, sl_trace_word(SL_TRACE_WORDS_MEASURED, i));
    }
    sl_trace_put_text(o, "\n# n_slots");
    for (uint32_t c = 0; c < h->n_classes; c++) {
        sl_trace_put_text(o, ",");
        sl_trace_put_number(o, h->n_slots[c]);
    }
    sl_trace_put_text(o, "\n# layer");
    for (uint32_t i = 0; i < SL_TRACE_LAYER_FIELDS; i++) {
        sl_trace_put_text(o, ",");
        sl_trace_put_text(o, sl_trace_layer_field(i));
    }
    for (uint32_t l = 0; l < h->n_layers; l++) {
        sl_trace_put_text(o, "\n# ");
        sl_trace_put_number(o, l);
        for (uint32_t i = 0; i < SL_TRACE_LAYER_FIELDS; i++) {
            sl_trace_put_text(o, ",");
            sl_trace_put_number(o, sl_trace_layer_get(&h->layer[l], i));
        }
    }
    sl_trace_put_text(o, "\n");
}

void sl_trace_write_csv(const struct sl_trace *t, struct sl_trace_output *o)
{
    struct sl_trace_walk walk = {.t = t};
    struct sl_trace_record r;
    struct sl_trace_eval eval = {0};
    write_header(&t->header, o);
    for (uint32_t c = 0; c < COLUMNS; c++) {
        if (c) sl_trace_put_text(o, ",");
        sl_trace_put_text(o, sl_csv_names[c]);
    }
    sl_trace_put_text(o, "\n");
    for (sl_trace_walk_next(&walk, &r); r.kind != SL_TRACE_END; sl_trace_walk_next(&walk, &r)) {
        if (r.kind == SL_TRACE_EVAL) eval = r.u.eval;
        if (r.kind == SL_TRACE_LAYER)
            write_layer(&eval, &r.u.layer, o);
        else if (r.kind == SL_TRACE_HINT)
            write_hints(&r.u.hints, o);
        else
            write_other(&r, o);
    }
}
