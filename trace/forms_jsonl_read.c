/* Reading JSON lines; see forms_jsonl_write.c. Every line is parsed by itself (formats/json_in.h).
 * Keys may be in any order; those of other names are passed over. */
#include <string.h>

#include "formats/json_in.h"
#include "trace/fields.h"
#include "trace/forms.h"

#define CHOICES_MAX (SL_CHUNK_MAX * SL_TOP_K_MAX)

struct jsonl_reader {
    struct sl_trace_input *in;
    struct sl_budget *budget;
    struct sl_trace_build *build;
    sluice_error *e;
    struct sl_json_value line;
    sluice_err code;   /* the first error of the line */
    uint32_t n_tokens; /* of the eval under way */
    uint16_t experts[CHOICES_MAX];
    float weights[CHOICES_MAX];
    uint8_t states[CHOICES_MAX];
    uint8_t entries[SL_EXPERTS_MAX];
};

static void wanted(struct jsonl_reader *r, const char *what, const char *where)
{
    if (r->code != SLUICE_OK) return;
    r->code = SLUICE_E_FORMAT;
    (void)sl_fail(r->e, r->code, "\"%s\": wanted %s", where, what);
    (void)sl_trace_input_blame(r->in, r->e, r->code);
}

/* ---- values -------------------------------------------------------------------------------------
 */

/* A whole number of the line, at most max; absent: 0. */
static uint64_t number(struct jsonl_reader *r, const char *key, uint64_t max)
{
    struct sl_json_value v = sl_json_get(r->line, key);
    uint64_t n = 0;
    if (sl_json_kind_of(v) != SL_JSON_ABSENT && (!sl_json_u64(v, &n) || n > max)) {
        wanted(r, "a whole number that a trace may have there", key);
        n = 0;
    }
    return n;
}

static uint32_t narrow(struct jsonl_reader *r, const char *key, uint32_t max)
{
    return (uint32_t)number(r, key, max);
}

static uint64_t wide(struct jsonl_reader *r, const char *key)
{
    return number(r, key, SL_TRACE_NUMBER_MAX);
}

static uint32_t word(struct jsonl_reader *r, const char *key, struct sl_json_value v,
                     enum sl_trace_words words)
{
    struct sl_str s;
    uint32_t i = 0;
    char what[64] = "a word such as ";
    if (sl_json_str(v, &s) && sl_trace_word_find(words, s, &i)) return i;
    size_t n = strlen(what);
    const char *first = sl_trace_word(words, 0);
    (void)sl_str_show((struct sl_str){first, strlen(first)}, what + n, sizeof what - n);
    wanted(r, what, key);
    return 0;
}

static float value(struct jsonl_reader *r, const char *key, struct sl_json_value v)
{
    double d;
    if (sl_json_f64(v, &d) && d >= -3.4028234663852886e38 && d <= 3.4028234663852886e38)
        return (float)d;
    wanted(r, "finite numbers", key);
    return 0;
}

/* ---- the header ---------------------------------------------------------------------------------
 */

static void take_fields(struct jsonl_reader *r, struct sl_trace_header *h)
{
    const struct sl_trace_field *f;
    for (uint32_t i = 0; (f = sl_trace_field_at(i)); i++) {
        struct sl_str s = {NULL, 0};
        struct sl_json_value v = sl_json_get(r->line, f->name);
        if (f->max) {
            sl_trace_field_set(h, f, number(r, f->name, f->max));
        } else if (sl_json_kind_of(v) != SL_JSON_ABSENT) {
            if (sl_json_str(v, &s) && s.n < SL_TRACE_TEXT && (!s.n || !memchr(s.p, 0, s.n)))
                memcpy((char *)h + f->offset, s.p, s.n);
            else
                wanted(r, "a text of at most 255 bytes", f->name);
        }
    }
}

static void take_layers(struct jsonl_reader *r, struct sl_trace_header *h)
{
    struct sl_json_walk w = sl_json_walk(sl_json_get(r->line, "layers"));
    for (; sl_json_step(&w); h->n_layers++) {
        if (h->n_layers == SL_LAYERS_MAX) {
            wanted(r, "at most 512 layers", "layers");
            return;
        }
        for (uint32_t i = 0; i < SL_TRACE_LAYER_FIELDS; i++) {
            struct sl_json_value v = sl_json_get(w.value, sl_trace_layer_field(i));
            uint64_t n = 0;
            if (sl_json_kind_of(v) != SL_JSON_ABSENT && !sl_json_u64(v, &n))
                wanted(r, "objects of whole numbers", "layers");
            sl_trace_layer_set(&h->layer[h->n_layers], i, n);
        }
    }
}

static void take_header(struct jsonl_reader *r)
{
    struct sl_trace_header h = {0};
    uint64_t n;
    if (sl_json_kind_of(sl_json_get(r->line, "sluice_trace")) == SL_JSON_ABSENT)
        wanted(r, "this key in the first line: is this a trace?", "sluice_trace");
    if (r->code == SLUICE_OK && number(r, "sluice_trace", UINT64_MAX) != 1)
        wanted(r, "1, the version that this program reads", "sluice_trace");
    take_fields(r, &h);
    take_layers(r, &h);
    struct sl_json_walk w = sl_json_walk(sl_json_get(r->line, "measured"));
    while (sl_json_step(&w))
        h.measured |= 1u << word(r, "measured", w.value, SL_TRACE_WORDS_MEASURED);
    for (w = sl_json_walk(sl_json_get(r->line, "n_slots")); sl_json_step(&w);) {
        if (h.n_classes < SL_TRACE_CLASSES && sl_json_u64(w.value, &n) && n <= SL_TRACE_SLOTS_MAX)
            h.n_slots[h.n_classes++] = (uint32_t)n;
        else
            wanted(r, "at most four whole numbers", "n_slots");
    }
    if (h.n_classes == 0) h.n_classes = 1;
    if (r->code != SLUICE_OK) return;
    r->code = sl_trace_build_open(r->build, &h, r->budget, r->e);
    if (r->code != SLUICE_OK) (void)sl_trace_input_blame(r->in, r->e, r->code);
}

/* ---- records ------------------------------------------------------------------------------------
 */

static void take_item(struct jsonl_reader *r, const char *key, struct sl_json_value v, uint32_t i)
{
    uint64_t n = 0;
    if (key[0] == 'w') {
        r->weights[i] = value(r, key, v);
    } else if (key[0] == 's') {
        r->states[i] = (uint8_t)word(r, key, v, SL_TRACE_WORDS_STATE);
    } else if (sl_json_kind_of(v) == SL_JSON_NULL) {
        r->experts[i] = SL_TRACE_NONE;
    } else {
        if (!sl_json_u64(v, &n) || n >= SL_EXPERTS_MAX) wanted(r, "numbers of experts", key);
        r->experts[i] = (uint16_t)n;
    }
}

/* A list for each token, all equally long: *top_k, which is 0 before the first. */
static bool take_choices(struct jsonl_reader *r, const char *key, uint32_t *top_k)
{
    struct sl_json_value list = sl_json_get(r->line, key);
    if (sl_json_kind_of(list) == SL_JSON_ABSENT) return false;
    struct sl_json_walk w = sl_json_walk(list);
    uint32_t n = 0;
    if (sl_json_count(list) != r->n_tokens) wanted(r, "a list for each token of the eval", key);
    while (r->code == SLUICE_OK && sl_json_step(&w)) {
        uint32_t k = sl_json_count(w.value);
        if (*top_k == 0) *top_k = k;
        if (k == 0 || k != *top_k || k > SL_TOP_K_MAX || n + k > CHOICES_MAX) {
            wanted(r, "lists of 1 to 64, all equally long", key);
            return true;
        }
        struct sl_json_walk items = sl_json_walk(w.value);
        while (sl_json_step(&items)) take_item(r, key, items.value, n++);
    }
    return true;
}

static void take_layer(struct jsonl_reader *r, struct sl_trace_record *record)
{
    struct sl_trace_layer *l = &record->u.layer;
    struct sl_json_walk w = sl_json_walk(sl_json_get(r->line, "entries"));
    uint64_t n;
    record->kind = SL_TRACE_LAYER;
    l->layer = narrow(r, "layer", SL_LAYERS_MAX - 1);
    l->n_tokens = r->n_tokens;
    if (!take_choices(r, "experts", &l->top_k)) wanted(r, "it in a layer", "experts");
    l->chosen = r->experts;
    l->weights = take_choices(r, "weights", &l->top_k) ? r->weights : NULL;
    l->states = take_choices(r, "states", &l->top_k) ? r->states : NULL;
    for (; sl_json_step(&w) && r->code == SLUICE_OK; l->n_entries++) {
        if (l->n_entries == SL_EXPERTS_MAX || !sl_json_u64(w.value, &n) || n > SL_TRACE_PASSED_OVER)
            wanted(r, "numbers from 0 to 2", "entries");
        else
            r->entries[l->n_entries] = (uint8_t)n;
    }
    l->entries = l->n_entries ? r->entries : NULL;
    l->read_bytes = wide(r, "read_bytes");
    l->begin_ns = wide(r, "begin_ns");
    l->dense_ns = wide(r, "dense_ns");
    l->expert_ns = wide(r, "expert_ns");
    l->wait_ns = wide(r, "wait_ns");
}

static void take_hints(struct jsonl_reader *r, struct sl_trace_record *record)
{
    struct sl_trace_hints *h = &record->u.hints;
    struct sl_json_value experts = sl_json_get(r->line, "experts");
    struct sl_json_value probabilities = sl_json_get(r->line, "probabilities");
    record->kind = SL_TRACE_HINT;
    h->layer = narrow(r, "layer", SL_LAYERS_MAX - 1);
    h->visits = narrow(r, "visits", UINT32_MAX);
    h->prompt = word(r, "phase", sl_json_get(r->line, "phase"), SL_TRACE_WORDS_PHASE) != 0;
    h->n = sl_json_count(experts);
    if (h->n > SL_EXPERTS_MAX || sl_json_count(probabilities) != h->n) {
        wanted(r, "as many as experts, at most 1024", "probabilities");
        return;
    }
    struct sl_json_walk w = sl_json_walk(experts), p = sl_json_walk(probabilities);
    for (uint32_t i = 0; sl_json_step(&w) && sl_json_step(&p); i++) {
        take_item(r, "experts", w.value, i);
        r->weights[i] = value(r, "probabilities", p.value);
    }
    h->experts = r->experts;
    h->probabilities = r->weights;
}

static void take_eval(struct jsonl_reader *r, struct sl_trace_record *record)
{
    record->kind = SL_TRACE_EVAL;
    record->u.eval = (struct sl_trace_eval){
        .session = narrow(r, "session", UINT32_MAX),
        .position = narrow(r, "position", UINT32_MAX - SL_CHUNK_MAX),
        .n_tokens = narrow(r, "tokens", SL_CHUNK_MAX),
        .prompt = word(r, "phase", sl_json_get(r->line, "phase"), SL_TRACE_WORDS_PHASE) != 0,
        .begin_ns = wide(r, "begin_ns"),
    };
    r->n_tokens = record->u.eval.n_tokens;
}

static void take_op(struct jsonl_reader *r, struct sl_trace_record *record)
{
    record->kind = SL_TRACE_OP;
    record->u.op = (struct sl_trace_op){
        .kind =
            (enum sl_trace_op_kind)word(r, "kind", sl_json_get(r->line, "kind"), SL_TRACE_WORDS_OP),
        .layer = narrow(r, "layer", SL_LAYERS_MAX - 1),
        .expert = narrow(r, "expert", SL_TRACE_SLOTS_MAX),
        .how = narrow(r, "how", SL_TRACE_PASSED_OVER),
    };
}

static void take_read(struct jsonl_reader *r, struct sl_trace_record *record)
{
    record->kind = SL_TRACE_READ;
    record->u.read = (struct sl_trace_read){
        .layer = narrow(r, "layer", SL_LAYERS_MAX - 1),
        .expert = narrow(r, "expert", SL_EXPERTS_MAX - 1),
        .why = word(r, "why", sl_json_get(r->line, "why"), SL_TRACE_WORDS_WHY),
        .bytes = wide(r, "bytes"),
        .begin_ns = wide(r, "begin_ns"),
        .took_ns = wide(r, "took_ns"),
    };
}

static void take_done(struct jsonl_reader *r, struct sl_trace_record *record)
{
    struct sl_json_value list = sl_json_get(r->line, "phase_ns");
    struct sl_json_walk w = sl_json_walk(list);
    record->kind = SL_TRACE_DONE;
    record->u.done = (struct sl_trace_done){.end_ns = wide(r, "end_ns")};
    if (sl_json_count(list) > SL_TRACE_PHASES) wanted(r, "at most seven", "phase_ns");
    for (uint32_t i = 0; r->code == SLUICE_OK && sl_json_step(&w); i++)
        if (!sl_json_u64(w.value, &record->u.done.phase_ns[i]))
            wanted(r, "whole numbers", "phase_ns");
}

static void take_record(struct jsonl_reader *r)
{
    static const struct {
        const char *name;
        void (*take)(struct jsonl_reader *r, struct sl_trace_record *record);
    } kinds[] = {{"layer", take_layer}, {"eval", take_eval}, {"done", take_done},
                 {"hints", take_hints}, {"op", take_op},     {"read", take_read}};
    struct sl_trace_record record = {.kind = SL_TRACE_END};
    struct sl_str name = {NULL, 0};
    (void)sl_json_str(sl_json_get(r->line, "record"), &name);
    for (size_t i = 0; i < SL_ARRAY_LEN(kinds); i++)
        if (name.p && sl_str_eq(name, kinds[i].name)) kinds[i].take(r, &record);
    if (r->code == SLUICE_OK && record.kind == SL_TRACE_END)
        wanted(r, "eval, layer, hints, op, read or done", "record");
    if (r->code != SLUICE_OK) return;
    r->code = sl_trace_build_add(r->build, &record, r->e);
    if (r->code != SLUICE_OK) (void)sl_trace_input_blame(r->in, r->e, r->code);
}

static sluice_err read_lines(struct jsonl_reader *r)
{
    struct sl_trace_line line;
    struct sl_json *doc = NULL;
    for (;;) {
        r->code = sl_trace_input_line(r->in, &line, r->e);
        if (r->code != SLUICE_OK || line.p == NULL) return r->code;
        if (line.n == 0) continue;
        r->code = sl_json_parse(line.p, line.n, "the line", r->budget, r->e, &doc);
        if (r->code != SLUICE_OK) return sl_trace_input_blame(r->in, r->e, r->code);
        r->line = sl_json_root(doc);
        if (sl_json_kind_of(r->line) != SL_JSON_OBJECT)
            wanted(r, "an object in every line", "{");
        else if (r->build->t == NULL)
            take_header(r);
        else
            take_record(r);
        sl_json_close(doc);
        if (r->code != SLUICE_OK) return r->code;
    }
}

sluice_err sl_trace_read_jsonl(struct sl_trace_input *in, struct sl_budget *b, sluice_error *e,
                               struct sl_trace_build *build)
{
    sluice_error unused;
    struct jsonl_reader *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a reader does not fit into memory");
    r->in = in;
    r->budget = b;
    r->build = build;
    r->e = e ? e : &unused;
    sluice_err code = read_lines(r);
    if (code == SLUICE_OK && build->t == NULL)
        code = sl_fail(r->e, SLUICE_E_FORMAT, "%s: no lines, a header was wanted",
                       sl_trace_input_name(in));
    sl_free(r);
    return code;
}
