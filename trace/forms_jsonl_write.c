/* Writing JSON lines: the header, then an object for each record, with the names of the fields of
 * formats/trace_file.h. See docs/FORMAT.md. */
#include <string.h>

#include "trace/fields.h"
#include "trace/forms.h"

/* `, "key": `, or without the comma at the start of an object. */
static void key(struct sl_trace_output *o, const char *name)
{
    sl_trace_put_text(o, ", \"");
    sl_trace_put_text(o, name);
    sl_trace_put_text(o, "\": ");
}

static void number(struct sl_trace_output *o, const char *name, uint64_t v)
{
    key(o, name);
    sl_trace_put_number(o, v);
}

static void word(struct sl_trace_output *o, const char *name, enum sl_trace_words words, uint32_t i)
{
    key(o, name);
    sl_trace_put_string(o, sl_trace_word(words, i));
}

static void begin(struct sl_trace_output *o, const char *record)
{
    sl_trace_put_text(o, "{\"record\": ");
    sl_trace_put_string(o, record);
}

static void end(struct sl_trace_output *o) { sl_trace_put_text(o, "}\n"); }

static void write_header(const struct sl_trace_header *h, struct sl_trace_output *o)
{
    const struct sl_trace_field *f;
    bool first = true;
    sl_trace_put_text(o, "{\"sluice_trace\": 1");
    for (uint32_t i = 0; (f = sl_trace_field_at(i)); i++) {
        key(o, f->name);
        if (f->max)
            sl_trace_put_number(o, sl_trace_field_get(h, f));
        else
            sl_trace_put_string(o, (const char *)h + f->offset);
    }
    key(o, "measured");
    for (uint32_t i = 0; *sl_trace_word(SL_TRACE_WORDS_MEASURED, i); i++) {
        if (!(h->measured >> i & 1)) continue;
        sl_trace_put_text(o, first ? "[" : ", ");
        sl_trace_put_string(o, sl_trace_word(SL_TRACE_WORDS_MEASURED, i));
        first = false;
    }
    sl_trace_put_text(o, first ? "[]" : "]");
    key(o, "n_slots");
    for (uint32_t c = 0; c < h->n_classes; c++) {
        sl_trace_put_text(o, c ? ", " : "[");
        sl_trace_put_number(o, h->n_slots[c]);
    }
    sl_trace_put_text(o, "]");
    key(o, "layers");
    for (uint32_t l = 0; l < h->n_layers; l++) {
        sl_trace_put_text(o, l ? ", {" : "[{");
        for (uint32_t i = 0; i < SL_TRACE_LAYER_FIELDS; i++) {
            sl_trace_put_text(o, i ? ", \"" : "\"");
            sl_trace_put_text(o, sl_trace_layer_field(i));
            sl_trace_put_text(o, "\": ");
            sl_trace_put_number(o, sl_trace_layer_get(&h->layer[l], i));
        }
        sl_trace_put_text(o, "}");
    }
    sl_trace_put_text(o, "]");
    end(o);
}

enum what { EXPERTS, WEIGHTS, STATES };

/* A list for each token: [[1, 2], [3, 4]]. */
static void write_choices(struct sl_trace_output *o, const struct sl_trace_layer *l, enum what what)
{
    static const char *const names[] = {"experts", "weights", "states"};
    key(o, names[what]);
    sl_trace_put_text(o, "[[");
    for (uint32_t i = 0; i < l->n_tokens * l->top_k; i++) {
        if (i) sl_trace_put_text(o, i % l->top_k ? ", " : "], [");
        if (what == WEIGHTS)
            sl_trace_put_float(o, l->weights[i]);
        else if (what == STATES)
            sl_trace_put_string(o, sl_trace_word(SL_TRACE_WORDS_STATE, l->states[i]));
        else if (l->chosen[i] == SL_TRACE_NONE)
            sl_trace_put_text(o, "null");
        else
            sl_trace_put_number(o, l->chosen[i]);
    }
    sl_trace_put_text(o, "]]");
}

static void write_layer(const struct sl_trace_layer *l, struct sl_trace_output *o)
{
    begin(o, "layer");
    number(o, "layer", l->layer);
    write_choices(o, l, EXPERTS);
    if (l->weights) write_choices(o, l, WEIGHTS);
    if (l->states) write_choices(o, l, STATES);
    if (l->n_entries) {
        key(o, "entries");
        for (uint32_t i = 0; i < l->n_entries; i++) {
            sl_trace_put_text(o, i ? ", " : "[");
            sl_trace_put_number(o, l->entries[i]);
        }
        sl_trace_put_text(o, "]");
    }
    number(o, "read_bytes", l->read_bytes);
    number(o, "begin_ns", l->begin_ns);
    number(o, "dense_ns", l->dense_ns);
    number(o, "expert_ns", l->expert_ns);
    number(o, "wait_ns", l->wait_ns);
    end(o);
}

static void write_hints(const struct sl_trace_hints *h, struct sl_trace_output *o)
{
    begin(o, "hints");
    number(o, "layer", h->layer);
    number(o, "visits", h->visits);
    word(o, "phase", SL_TRACE_WORDS_PHASE, h->prompt);
    key(o, "experts");
    sl_trace_put_text(o, "[");
    for (uint32_t i = 0; i < h->n; i++) {
        if (i) sl_trace_put_text(o, ", ");
        sl_trace_put_number(o, h->experts[i]);
    }
    sl_trace_put_text(o, "]");
    key(o, "probabilities");
    sl_trace_put_text(o, "[");
    for (uint32_t i = 0; i < h->n; i++) {
        if (i) sl_trace_put_text(o, ", ");
        sl_trace_put_float(o, h->probabilities[i]);
    }
    sl_trace_put_text(o, "]");
    end(o);
}

static void write_other(const struct sl_trace_record *r, struct sl_trace_output *o)
{
    if (r->kind == SL_TRACE_EVAL) {
        begin(o, "eval");
        number(o, "session", r->u.eval.session);
        number(o, "position", r->u.eval.position);
        number(o, "tokens", r->u.eval.n_tokens);
        word(o, "phase", SL_TRACE_WORDS_PHASE, r->u.eval.prompt);
        number(o, "begin_ns", r->u.eval.begin_ns);
    } else if (r->kind == SL_TRACE_OP) {
        begin(o, "op");
        word(o, "kind", SL_TRACE_WORDS_OP, r->u.op.kind);
        number(o, "layer", r->u.op.layer);
        number(o, "expert", r->u.op.expert);
        number(o, "how", r->u.op.how);
    } else if (r->kind == SL_TRACE_READ) {
        begin(o, "read");
        number(o, "layer", r->u.read.layer);
        number(o, "expert", r->u.read.expert);
        word(o, "why", SL_TRACE_WORDS_WHY, r->u.read.why);
        number(o, "bytes", r->u.read.bytes);
        number(o, "begin_ns", r->u.read.begin_ns);
        number(o, "took_ns", r->u.read.took_ns);
    } else {
        begin(o, "done");
        number(o, "end_ns", r->u.done.end_ns);
        key(o, "phase_ns");
        for (uint32_t i = 0; i < SL_TRACE_PHASES; i++) {
            sl_trace_put_text(o, i ? ", " : "[");
            sl_trace_put_number(o, r->u.done.phase_ns[i]);
        }
        sl_trace_put_text(o, "]");
    }
    end(o);
}

void sl_trace_write_jsonl(const struct sl_trace *t, struct sl_trace_output *o)
{
    struct sl_trace_walk walk = {.t = t};
    struct sl_trace_record r;
    write_header(&t->header, o);
    for (sl_trace_walk_next(&walk, &r); r.kind != SL_TRACE_END; sl_trace_walk_next(&walk, &r)) {
        if (r.kind == SL_TRACE_LAYER)
            write_layer(&r.u.layer, o);
        else if (r.kind == SL_TRACE_HINT)
            write_hints(&r.u.hints, o);
        else
            write_other(&r, o);
    }
}
