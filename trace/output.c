/* Writing the forms of text: the buffer, the walk over a trace's records, and what a form leaves
 * out. */
#include "trace/output.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "trace/fields.h"

/* ---- bytes --------------------------------------------------------------------------------------
 */

static void send(struct sl_trace_output *o, const char *bytes, size_t n)
{
    if (o->code == SLUICE_OK && n) o->code = o->sink.fn(o->sink.user, bytes, n, &o->failure);
}

/* Hands over what is in the buffer. */
static void flush(struct sl_trace_output *o, bool last)
{
    struct sl_gzip_step s = {
        .in = o->text, .n = o->n, .out = o->packed, .room = sizeof o->packed, .last = last};
    if (!o->z) send(o, o->text, o->n);
    while (o->z && o->code == SLUICE_OK && (s.n || (last && !s.ended))) {
        o->code = sl_gzip_run(o->z, &s, &o->failure);
        send(o, o->packed, s.made);
        s.in = (const char *)s.in + s.taken;
        s.n -= s.taken;
    }
    o->n = 0;
}

void sl_trace_put_bytes(struct sl_trace_output *o, const char *bytes, size_t n)
{
    while (n) {
        size_t part = sizeof o->text - o->n < n ? sizeof o->text - o->n : n;
        memcpy(o->text + o->n, bytes, part);
        o->n += part;
        bytes += part;
        n -= part;
        if (o->n == sizeof o->text) flush(o, false);
    }
}

void sl_trace_put_text(struct sl_trace_output *o, const char *text)
{
    sl_trace_put_bytes(o, text, strlen(text));
}

void sl_trace_put_number(struct sl_trace_output *o, uint64_t n)
{
    char digits[20];
    size_t i = sizeof digits;
    do {
        digits[--i] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    sl_trace_put_bytes(o, digits + i, sizeof digits - i);
}

void sl_trace_put_float(struct sl_trace_output *o, float v)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%.9g", (double)v);
    sl_trace_put_bytes(o, text, (size_t)n);
}

void sl_trace_put_string(struct sl_trace_output *o, const char *text)
{
    struct sl_str s = {text, strlen(text)};
    sl_trace_put_bytes(o, "\"", 1);
    while (s.n) {
        char escape[8];
        size_t n = sl_utf8_char_bytes(s);
        unsigned char c = (unsigned char)s.p[0];
        if (n == 0) {
            sl_trace_put_bytes(o, "?", 1);
            n = 1;
        } else if (c < 0x20) {
            sl_trace_put_bytes(o, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
        } else {
            if (c == '"' || c == '\\') sl_trace_put_bytes(o, "\\", 1);
            sl_trace_put_bytes(o, s.p, n);
        }
        s.p += n;
        s.n -= n;
    }
    sl_trace_put_bytes(o, "\"", 1);
}

sluice_err sl_trace_write_form(const struct sl_trace *t, enum sl_trace_form form,
                               const struct sl_trace_sink *sink, struct sl_budget *b,
                               sluice_error *e)
{
    struct sl_trace_output *o = sl_alloc(b, 1, sizeof *o);
    if (o == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a buffer does not fit into memory");
    o->sink = *sink;
    if (sink->gzipped) o->code = sl_gzip_open(true, b, &o->failure, &o->z);
    if (o->code == SLUICE_OK && form == SL_TRACE_FORM_CSV) sl_trace_write_csv(t, o);
    if (o->code == SLUICE_OK && form == SL_TRACE_FORM_JSONL) sl_trace_write_jsonl(t, o);
    if (o->code == SLUICE_OK && form == SL_TRACE_FORM_TEXT) sl_trace_write_text(t, o);
    if (o->code == SLUICE_OK && form == SL_TRACE_FORM_BMOE) sl_trace_write_bmoe(t, o);
    flush(o, true);
    sl_gzip_close(o->z);
    sluice_err code = o->code;
    if (code != SLUICE_OK && e) *e = o->failure;
    sl_free(o);
    return code;
}

/* ---- records ------------------------------------------------------------------------------------
 */

static void give_step(struct sl_trace_walk *w, struct sl_trace_record *out)
{
    const struct sl_trace_step *s = &w->t->steps[w->step++];
    *out = (struct sl_trace_record){.kind = s->is_op ? SL_TRACE_OP : SL_TRACE_HINT};
    if (s->is_op)
        out->u.op = s->op;
    else
        out->u.hints =
            (struct sl_trace_hints){.layer = s->layer,
                                    .visits = s->visits,
                                    .prompt = s->prompt,
                                    .n = s->n,
                                    .experts = w->t->hint_experts + s->first,
                                    .probabilities = w->t->hint_probabilities + s->first};
}

/* Steps and reads up to the given numbers of them; false: all are out. */
static bool give_between(struct sl_trace_walk *w, uint64_t steps, uint64_t reads,
                         struct sl_trace_record *out)
{
    if (w->step < steps) {
        give_step(w, out);
        return true;
    }
    if (w->read == reads) return false;
    *out = (struct sl_trace_record){.kind = SL_TRACE_READ, .u.read = w->t->reads[w->read++]};
    return true;
}

static void give_layer(struct sl_trace_walk *w, struct sl_trace_record *out)
{
    const struct sl_trace *t = w->t;
    const struct sl_trace_visit *v = &t->visits[w->visit++];
    *out = (struct sl_trace_record){.kind = SL_TRACE_LAYER};
    out->u.layer = (struct sl_trace_layer){
        .layer = v->layer,
        .n_tokens = v->n_tokens,
        .top_k = v->top_k,
        .chosen = t->chosen + v->first_choice,
        .weights = t->weights ? t->weights + v->first_choice : NULL,
        .states = t->states ? t->states + v->first_choice : NULL,
        .entries = v->n_entries ? t->entries + v->first_entry : NULL,
        .n_entries = v->n_entries,
        .read_bytes = v->read_bytes,
        .begin_ns = v->begin_ns,
        .dense_ns = v->dense_ns,
        .expert_ns = v->expert_ns,
        .wait_ns = v->wait_ns,
    };
}

void sl_trace_walk_next(struct sl_trace_walk *w, struct sl_trace_record *out)
{
    const struct sl_trace *t = w->t;
    *out = (struct sl_trace_record){.kind = SL_TRACE_END};
    if (w->in_eval) {
        const struct sl_trace_eval_span *s = &t->evals[w->eval];
        if (w->visit < s->first_visit + s->n_visits) {
            const struct sl_trace_visit *v = &t->visits[w->visit];
            if (!give_between(w, v->first_step + v->n_steps, v->first_read + v->n_reads, out))
                give_layer(w, out);
            return;
        }
        w->in_eval = false;
        w->eval++;
        *out = (struct sl_trace_record){.kind = SL_TRACE_DONE, .u.done = s->done};
        if (s->done.end_ns) return;
    }
    if (w->eval < t->n_evals) {
        w->in_eval = true;
        *out = (struct sl_trace_record){.kind = SL_TRACE_EVAL, .u.eval = t->evals[w->eval].e};
        return;
    }
    out->kind = SL_TRACE_END;
    (void)give_between(w, t->n_steps, t->n_reads, out);
}

sluice_err sl_trace_write_file(const struct sl_trace *t, const char *path, struct sl_budget *b,
                               sluice_error *e)
{
    struct sl_trace_writer *writer = NULL;
    struct sl_trace_walk walk = {.t = t};
    struct sl_trace_record r;
    sluice_err code = sl_trace_create(path, &t->header, b, e, &writer);
    if (code != SLUICE_OK) return code;
    for (;;) {
        sl_trace_walk_next(&walk, &r);
        if (r.kind == SL_TRACE_EVAL) sl_trace_put_eval(writer, &r.u.eval);
        if (r.kind == SL_TRACE_LAYER) sl_trace_put_layer(writer, &r.u.layer);
        if (r.kind == SL_TRACE_HINT) sl_trace_put_hints(writer, &r.u.hints);
        if (r.kind == SL_TRACE_OP) sl_trace_put_op(writer, &r.u.op);
        if (r.kind == SL_TRACE_READ) sl_trace_put_read(writer, &r.u.read);
        if (r.kind == SL_TRACE_DONE) sl_trace_put_done(writer, &r.u.done);
        if (r.kind == SL_TRACE_END) break;
    }
    return sl_trace_close(writer, e);
}

/* ---- what is left out ---------------------------------------------------------------------------
 */

static void name_one(char *text, size_t size, bool there, const char *what)
{
    size_t n = strlen(text);
    if (there) (void)snprintf(text + n, size - n, "%s%s", n ? ", " : "", what);
}

/* Whether the header says more than names, layers, and what the form has besides. */
static bool loses_header(const struct sl_trace_header *h, enum sl_trace_form form)
{
    static const char *const kept[] = {"program", "model", "file", "architecture"};
    size_t n_kept = form == SL_TRACE_FORM_BMOE ? 4 : 2;
    const struct sl_trace_field *f;
    bool loses = false;
    for (uint32_t i = 0; (f = sl_trace_field_at(i)); i++) {
        bool is_kept = false;
        for (size_t k = 0; k < n_kept; k++) is_kept = is_kept || strcmp(f->name, kept[k]) == 0;
        if (is_kept) continue;
        loses =
            loses || (f->max ? sl_trace_field_get(h, f) != 0 : ((const char *)h)[f->offset] != 0);
    }
    for (uint32_t c = 0; c < h->n_classes; c++) loses = loses || h->n_slots[c];
    for (uint32_t l = 0; l < h->n_layers; l++)
        loses = loses || h->layer[l].weights ||
                (form != SL_TRACE_FORM_BMOE && h->layer[l].expert_bytes);
    return loses;
}

const char *sl_trace_form_drops(const struct sl_trace *t, enum sl_trace_form form, char *text,
                                size_t size)
{
    bool experts_only = form == SL_TRACE_FORM_TEXT, entries = t->n_entries > 0, none = false;
    bool part = false, ops = false, hints = false, flying = false;
    text[0] = 0;
    if (form != SL_TRACE_FORM_TEXT && form != SL_TRACE_FORM_BMOE) return text;
    for (uint64_t i = 0; i < t->n_evals; i++) part = part || !t->evals[i].whole;
    for (uint64_t i = 0; i < t->n_steps; i++) *(t->steps[i].is_op ? &ops : &hints) = true;
    for (uint64_t v = 0; t->states && v < t->n_visits; v++) {
        const struct sl_trace_visit *x = &t->visits[v];
        for (uint32_t i = 0; i < x->top_k * x->n_tokens; i++)
            flying =
                flying || (t->states[x->first_choice + i] & SL_TRACE_STATE_MASK) == SL_TRACE_FLYING;
        for (uint32_t i = 0; i < x->top_k && !t->evals[x->eval].e.prompt; i++)
            none = none || t->chosen[x->first_choice + i] == SL_TRACE_NONE;
    }
    name_one(text, size, experts_only && t->weights, "weights");
    name_one(text, size, experts_only && t->states, "hits and misses");
    name_one(text, size, !experts_only && flying,
             "which experts were still being read (they count as hits)");
    name_one(text, size, t->header.measured & SL_TRACE_TIMES, "times");
    name_one(text, size, hints, "hints");
    name_one(text, size, ops || entries, "what moved in the cache");
    name_one(text, size, t->n_reads > 0, "single reads");
    name_one(text, size, part, "tokens that were cancelled");
    name_one(text, size, none, "which choices were left out");
    name_one(text, size, loses_header(&t->header, form), "parts of the header");
    return text;
}
