/* Reading our CSV; see forms_csv_write.c. Columns are found by name and may be in any order; those
 * of other names are passed over. A layer and hints take several rows, which are kept until one
 * comes that is none of them. */
#include <string.h>

#include "formats/json_in.h"
#include "trace/fields.h"
#include "trace/forms.h"
#include "trace/forms_csv.h"

#define CELLS_MAX 64
#define ABSENT UINT32_MAX
#define WEIGHTS_MAX (SL_CHUNK_MAX * SL_TOP_K_MAX)
#define REMARK_CELLS (2 + SL_TRACE_LAYER_FIELDS)

struct csv_reader {
    struct sl_trace_input *in;
    struct sl_budget *budget;
    struct sl_trace_build *build;
    sluice_error *e;
    struct sl_trace_header header;
    uint32_t column[COLUMNS]; /* which cell; ABSENT */
    bool have_columns;
    uint32_t n_cells;
    struct sl_str cells[CELLS_MAX]; /* of the row */
    uint32_t n_tokens;              /* of the eval under way */
    struct sl_trace_record record;  /* layer or hints under way; SL_TRACE_END: none */
    uint32_t n_rows;                /* of it: choices or hints */
    uint16_t experts[WEIGHTS_MAX];
    float weights[WEIGHTS_MAX];
    uint8_t states[WEIGHTS_MAX];
    uint8_t entries[SL_EXPERTS_MAX];
};

static sluice_err complain(struct csv_reader *r, sluice_err code)
{
    return sl_trace_input_blame(r->in, r->e, code);
}

static sluice_err wanted(struct csv_reader *r, const char *what)
{
    (void)sl_fail(r->e, SLUICE_E_FORMAT, "wanted %s", what);
    return complain(r, SLUICE_E_FORMAT);
}

/* ---- cells of a row; each keeps the first error in *code ----------------------------------------
 */

static struct sl_str cell(const struct csv_reader *r, enum sl_csv_column c)
{
    uint32_t i = r->column[c];
    return i < r->n_cells ? r->cells[i] : SL_STR("");
}

static void bad_cell(struct csv_reader *r, enum sl_csv_column c, const char *what, sluice_err *code)
{
    char shown[64];
    *code = SLUICE_E_FORMAT;
    (void)sl_fail(r->e, *code, "%s is '%s', wanted %s", sl_csv_names[c],
                  sl_str_show(cell(r, c), shown, sizeof shown), what);
    (void)complain(r, *code);
}

/* Whole and at most max; empty is 0. */
static uint64_t number(struct csv_reader *r, enum sl_csv_column c, uint64_t max, sluice_err *code)
{
    uint64_t v = 0;
    if (*code == SLUICE_OK && cell(r, c).n && !sl_trace_u64(cell(r, c), max, &v))
        bad_cell(r, c, "a whole number that a trace may have there", code);
    return v;
}

static uint32_t narrow(struct csv_reader *r, enum sl_csv_column c, uint32_t max, sluice_err *code)
{
    return (uint32_t)number(r, c, max, code);
}

static uint64_t wide(struct csv_reader *r, enum sl_csv_column c, sluice_err *code)
{
    return number(r, c, SL_TRACE_NUMBER_MAX, code);
}

static uint32_t word(struct csv_reader *r, enum sl_csv_column c, enum sl_trace_words words,
                     sluice_err *code)
{
    uint32_t v = 0;
    char what[64] = "a word such as ";
    size_t n = strlen(what);
    if (*code == SLUICE_OK && !sl_trace_word_find(words, cell(r, c), &v)) {
        (void)sl_str_show((struct sl_str){sl_trace_word(words, 0), strlen(sl_trace_word(words, 0))},
                          what + n, sizeof what - n);
        bad_cell(r, c, what, code);
    }
    return v;
}

static float value(struct csv_reader *r, enum sl_csv_column c, sluice_err *code)
{
    float v = 0;
    if (*code == SLUICE_OK && !sl_trace_float(cell(r, c), &v))
        bad_cell(r, c, "a finite number", code);
    return v;
}

/* ---- records ------------------------------------------------------------------------------------
 */

static sluice_err add(struct csv_reader *r, const struct sl_trace_record *record)
{
    sluice_err code = sl_trace_build_add(r->build, record, r->e);
    return code == SLUICE_OK ? code : complain(r, code);
}

/* Hands over the record that took several rows. */
static sluice_err finish(struct csv_reader *r)
{
    struct sl_trace_record *record = &r->record;
    struct sl_trace_layer *l = &record->u.layer;
    if (record->kind == SL_TRACE_END) return SLUICE_OK;
    if (record->kind == SL_TRACE_HINT) {
        record->u.hints.n = r->n_rows;
        record->u.hints.experts = r->experts;
        record->u.hints.probabilities = r->weights;
    } else if (r->n_rows != l->n_tokens * l->top_k) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT,
                      "layer %u before this row has %u choices, wanted %u for %u tokens", l->layer,
                      r->n_rows, l->n_tokens * l->top_k, l->n_tokens);
        return complain(r, SLUICE_E_FORMAT);
    } else {
        l->chosen = r->experts;
        l->weights = r->header.measured & SL_TRACE_WEIGHTS ? r->weights : NULL;
        l->states = r->header.measured & SL_TRACE_STATES ? r->states : NULL;
        l->entries = l->n_entries ? r->entries : NULL;
    }
    sluice_err code = add(r, record);
    record->kind = SL_TRACE_END;
    return code;
}

static sluice_err take_eval(struct csv_reader *r)
{
    sluice_err code = finish(r);
    struct sl_trace_record record = {.kind = SL_TRACE_EVAL};
    struct sl_trace_eval *eval = &record.u.eval;
    eval->session = narrow(r, SESSION, UINT32_MAX, &code);
    eval->position = narrow(r, POSITION, UINT32_MAX - SL_CHUNK_MAX, &code);
    eval->n_tokens = narrow(r, TOKENS, SL_CHUNK_MAX, &code);
    eval->prompt = word(r, PHASE, SL_TRACE_WORDS_PHASE, &code) != 0;
    eval->begin_ns = wide(r, BEGIN_NS, &code);
    r->n_tokens = eval->n_tokens;
    return code == SLUICE_OK ? add(r, &record) : code;
}

static sluice_err take_layer(struct csv_reader *r)
{
    sluice_err code = finish(r);
    r->record = (struct sl_trace_record){.kind = SL_TRACE_LAYER};
    struct sl_trace_layer *l = &r->record.u.layer;
    l->layer = narrow(r, LAYER, SL_LAYERS_MAX - 1, &code);
    l->top_k = narrow(r, TOP_K, SL_TOP_K_MAX, &code);
    l->n_tokens = r->n_tokens;
    l->read_bytes = wide(r, BYTES, &code);
    l->begin_ns = wide(r, BEGIN_NS, &code);
    l->dense_ns = wide(r, DENSE_NS, &code);
    l->expert_ns = wide(r, EXPERT_NS, &code);
    l->wait_ns = wide(r, WAIT_NS, &code);
    r->n_rows = 0;
    return code;
}

static sluice_err take_choice(struct csv_reader *r)
{
    sluice_err code = SLUICE_OK;
    const struct sl_trace_layer *l = &r->record.u.layer;
    if (r->record.kind != SL_TRACE_LAYER || l->n_entries) return wanted(r, "a layer row before it");
    if (r->n_rows == l->n_tokens * l->top_k || r->n_rows == WEIGHTS_MAX)
        return wanted(r, "as many choices as tokens times top_k");
    uint32_t i = r->n_rows++;
    r->experts[i] = SL_TRACE_NONE;
    if (narrow(r, RANK, SL_TOP_K_MAX, &code) != i % l->top_k && code == SLUICE_OK)
        return wanted(r, "choices token by token, each in order of rank from 0");
    if (cell(r, EXPERT).n) r->experts[i] = (uint16_t)narrow(r, EXPERT, SL_EXPERTS_MAX - 1, &code);
    r->weights[i] = r->header.measured & SL_TRACE_WEIGHTS ? value(r, WEIGHT, &code) : 0;
    r->states[i] = SL_TRACE_UNKNOWN;
    if (r->header.measured & SL_TRACE_STATES)
        r->states[i] = (uint8_t)word(r, STATE, SL_TRACE_WORDS_STATE, &code);
    return code;
}

static sluice_err take_entry(struct csv_reader *r)
{
    sluice_err code = SLUICE_OK;
    struct sl_trace_layer *l = &r->record.u.layer;
    if (r->record.kind != SL_TRACE_LAYER || l->n_entries == SL_EXPERTS_MAX)
        return wanted(r, "a layer row before it, and at most an entry for each expert");
    r->entries[l->n_entries++] = (uint8_t)narrow(r, HOW, SL_TRACE_PASSED_OVER, &code);
    return code;
}

static sluice_err take_hints(struct csv_reader *r)
{
    sluice_err code = finish(r);
    r->record = (struct sl_trace_record){.kind = SL_TRACE_HINT};
    struct sl_trace_hints *h = &r->record.u.hints;
    h->prompt = word(r, PHASE, SL_TRACE_WORDS_PHASE, &code) != 0;
    h->layer = narrow(r, LAYER, SL_LAYERS_MAX - 1, &code);
    h->visits = narrow(r, VISITS, UINT32_MAX, &code);
    r->n_rows = 0;
    return code;
}

static sluice_err take_hint(struct csv_reader *r)
{
    sluice_err code = SLUICE_OK;
    if (r->record.kind != SL_TRACE_HINT || r->n_rows == SL_EXPERTS_MAX)
        return wanted(r, "a hints row before it, and at most a hint for each expert");
    uint32_t i = r->n_rows++;
    r->experts[i] = (uint16_t)narrow(r, EXPERT, SL_EXPERTS_MAX - 1, &code);
    r->weights[i] = value(r, WEIGHT, &code);
    return code;
}

static sluice_err take_op(struct csv_reader *r)
{
    sluice_err code = finish(r);
    struct sl_trace_record record = {.kind = SL_TRACE_OP};
    struct sl_trace_op *op = &record.u.op;
    op->kind = (enum sl_trace_op_kind)word(r, KIND, SL_TRACE_WORDS_OP, &code);
    op->layer = narrow(r, LAYER, SL_LAYERS_MAX - 1, &code);
    op->expert = narrow(r, EXPERT, SL_TRACE_SLOTS_MAX, &code);
    op->how = narrow(r, HOW, SL_TRACE_PASSED_OVER, &code);
    return code == SLUICE_OK ? add(r, &record) : code;
}

static sluice_err take_read(struct csv_reader *r)
{
    sluice_err code = finish(r);
    struct sl_trace_record record = {.kind = SL_TRACE_READ};
    struct sl_trace_read *read = &record.u.read;
    read->layer = narrow(r, LAYER, SL_LAYERS_MAX - 1, &code);
    read->expert = narrow(r, EXPERT, SL_EXPERTS_MAX - 1, &code);
    read->why = word(r, KIND, SL_TRACE_WORDS_WHY, &code);
    read->bytes = wide(r, BYTES, &code);
    read->begin_ns = wide(r, BEGIN_NS, &code);
    read->took_ns = wide(r, TOOK_NS, &code);
    return code == SLUICE_OK ? add(r, &record) : code;
}

static sluice_err take_done(struct csv_reader *r)
{
    sluice_err code = finish(r);
    struct sl_trace_record record = {.kind = SL_TRACE_DONE};
    struct sl_str s = cell(r, PHASE_NS);
    record.u.done.end_ns = wide(r, END_NS, &code);
    for (uint32_t i = 0; code == SLUICE_OK && s.n; i++) {
        const char *end = memchr(s.p, ';', s.n);
        struct sl_str item = {s.p, end ? (size_t)(end - s.p) : s.n};
        if (i == SL_TRACE_PHASES ||
            !sl_trace_u64(item, SL_TRACE_NUMBER_MAX, &record.u.done.phase_ns[i]))
            bad_cell(r, PHASE_NS, "seven whole numbers with semicolons between them", &code);
        size_t used = item.n + (end != NULL);
        s = (struct sl_str){s.p + used, s.n - used};
    }
    return code == SLUICE_OK ? add(r, &record) : code;
}

/* ---- lines --------------------------------------------------------------------------------------
 */

/* A field of the header, all of the line behind "# NAME,". Strings are JSON's. */
static sluice_err take_field(struct csv_reader *r, const struct sl_trace_field *f, char *p,
                             size_t n)
{
    uint64_t v;
    if (f->max) {
        struct sl_str s = {p, n};
        while (s.n && (s.p[s.n - 1] == ',' || s.p[s.n - 1] == ' ')) s.n--;
        if (!sl_trace_u64(s, f->max, &v)) return wanted(r, "a whole number in this field");
        sl_trace_field_set(&r->header, f, v);
        return SLUICE_OK;
    }
    struct sl_json *doc = NULL;
    struct sl_str text = {NULL, 0};
    sluice_err code = sl_json_parse(p, n, f->name, r->budget, r->e, &doc);
    if (code != SLUICE_OK) return complain(r, code);
    if (!sl_json_str(sl_json_root(doc), &text) || text.n >= SL_TRACE_TEXT ||
        memchr(text.p, 0, text.n) != NULL)
        code = wanted(r, "a text in quotes of at most 255 bytes");
    else
        memcpy((char *)&r->header + f->offset, text.p, text.n);
    sl_json_close(doc);
    return code;
}

static sluice_err take_layer_info(struct csv_reader *r, const struct sl_str *cells, uint32_t n)
{
    uint64_t layer = 0, v;
    if (!sl_trace_u64(cells[0], SL_LAYERS_MAX - 1, &layer) || layer != r->header.n_layers ||
        n < 1 + SL_TRACE_LAYER_FIELDS)
        return wanted(r, "the header's layers from 0 to 511, with six numbers each");
    for (uint32_t i = 0; i < SL_TRACE_LAYER_FIELDS; i++) {
        if (!sl_trace_u64(cells[1 + i], SL_TRACE_NUMBER_MAX, &v))
            return wanted(r, "six whole numbers behind a layer of the header");
        sl_trace_layer_set(&r->header.layer[layer], i, v);
    }
    r->header.n_layers++;
    return SLUICE_OK;
}

static sluice_err take_lists(struct csv_reader *r, const struct sl_str *cells, uint32_t n)
{
    uint32_t bit;
    uint64_t v;
    for (uint32_t i = 1; i < n; i++) {
        if (cells[i].n == 0) continue;
        if (sl_str_eq(cells[0], "measured")) {
            if (!sl_trace_word_find(SL_TRACE_WORDS_MEASURED, cells[i], &bit))
                return wanted(r, "weights, states, times, hints, reads or ops as what is measured");
            r->header.measured |= 1u << bit;
        } else {
            if (r->header.n_classes == SL_TRACE_CLASSES ||
                !sl_trace_u64(cells[i], SL_TRACE_SLOTS_MAX, &v))
                return wanted(r, "at most four whole numbers of slots");
            r->header.n_slots[r->header.n_classes++] = (uint32_t)v;
        }
    }
    return SLUICE_OK;
}

static sluice_err take_remark(struct csv_reader *r, struct sl_trace_line line)
{
    struct sl_str cells[REMARK_CELLS], all = {line.p, line.n};
    if (sl_str_starts(all, "# sluice_trace") && !sl_str_starts(all, SL_CSV_FIRST_LINE)) {
        (void)sl_fail(r->e, SLUICE_E_VERSION, "wanted '%s', the version that this program reads",
                      SL_CSV_FIRST_LINE);
        return complain(r, SLUICE_E_VERSION);
    }
    const char *comma = memchr(line.p, ',', line.n);
    if (r->have_columns || comma == NULL || line.n < 2 || line.p[1] != ' ') return SLUICE_OK;
    struct sl_str name = {line.p + 2, (size_t)(comma - line.p) - 2};
    const struct sl_trace_field *f = sl_trace_field_find(name);
    size_t used = (size_t)(comma - line.p) + 1;
    if (f) return take_field(r, f, line.p + used, line.n - used);
    uint32_t n = sl_trace_cells((struct sl_str){line.p + 2, line.n - 2}, cells, REMARK_CELLS);
    if (n > REMARK_CELLS) n = REMARK_CELLS;
    if (sl_str_eq(name, "measured") || sl_str_eq(name, "n_slots")) return take_lists(r, cells, n);
    if (name.n && name.p[0] >= '0' && name.p[0] <= '9') return take_layer_info(r, cells, n);
    return SLUICE_OK;
}

static sluice_err take_columns(struct csv_reader *r)
{
    for (uint32_t c = 0; c < COLUMNS; c++) {
        r->column[c] = ABSENT;
        for (uint32_t i = 0; i < r->n_cells; i++)
            if (sl_str_eq(r->cells[i], sl_csv_names[c])) r->column[c] = i;
    }
    for (uint32_t c = RECORD; c <= EXPERT; c++)
        if (r->column[c] == ABSENT) {
            (void)sl_fail(r->e, SLUICE_E_FORMAT, "no column '%s' in the names of the columns",
                          sl_csv_names[c]);
            return complain(r, SLUICE_E_FORMAT);
        }
    if (r->header.n_layers == 0)
        return wanted(r, "the layers of the header ('# 0,128,8,0,...') before the columns");
    if (r->header.n_classes == 0) r->header.n_classes = 1;
    r->have_columns = true;
    sluice_err code = sl_trace_build_open(r->build, &r->header, r->budget, r->e);
    return code == SLUICE_OK ? code : complain(r, code);
}

static sluice_err take_row(struct csv_reader *r)
{
    static const struct {
        const char *name;
        sluice_err (*take)(struct csv_reader *r);
    } kinds[] = {{"choice", take_choice}, {"layer", take_layer}, {"eval", take_eval},
                 {"hint", take_hint},     {"hints", take_hints}, {"op", take_op},
                 {"read", take_read},     {"done", take_done},   {"entry", take_entry}};
    struct sl_str name = cell(r, RECORD);
    for (size_t i = 0; i < SL_ARRAY_LEN(kinds); i++)
        if (sl_str_eq(name, kinds[i].name)) return kinds[i].take(r);
    sluice_err code = SLUICE_OK;
    bad_cell(r, RECORD, "eval, layer, choice, entry, hints, hint, op, read or done", &code);
    return code;
}

static sluice_err read_lines(struct csv_reader *r)
{
    struct sl_trace_line line;
    for (;;) {
        sluice_err code = sl_trace_input_line(r->in, &line, r->e);
        if (code == SLUICE_OK && line.p == NULL) return finish(r);
        if (code == SLUICE_OK && line.n && line.p[0] == '#') {
            code = take_remark(r, line);
        } else if (code == SLUICE_OK && line.n) {
            r->n_cells = sl_trace_cells((struct sl_str){line.p, line.n}, r->cells, CELLS_MAX);
            if (r->n_cells > CELLS_MAX) return wanted(r, "at most 64 columns");
            code = r->have_columns ? take_row(r) : take_columns(r);
        }
        if (code != SLUICE_OK) return code;
    }
}

sluice_err sl_trace_read_csv(struct sl_trace_input *in, struct sl_budget *b, sluice_error *e,
                             struct sl_trace_build *build)
{
    sluice_error unused;
    struct csv_reader *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a reader does not fit into memory");
    r->in = in;
    r->budget = b;
    r->build = build;
    r->e = e ? e : &unused;
    sluice_err code = read_lines(r);
    if (code == SLUICE_OK && build->t == NULL)
        code = sl_fail(r->e, SLUICE_E_FORMAT, "%s: no names of columns, no rows",
                       sl_trace_input_name(in));
    sl_free(r);
    return code;
}
