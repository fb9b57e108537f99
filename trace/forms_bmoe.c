/* BigMoeOnEdge's route trace: CSV with a row for each token, layer and rank, remarks before it. Its
 * columns are read by name, since later versions append some. See docs/FORMAT.md.
 *
 * A prompt's rows come layer by layer, those of decoded tokens token by token. Rows are kept until
 * their layers begin again, or another token, phase or turn does; what was kept is an eval then, or
 * one for each 512 tokens of it. The last layer of a prompt has its last token only, since its
 * other tokens have no part in what follows: they chose nothing there. */
#include <string.h>

#include "expert_cache/expert_cache.h"
#include "trace/fields.h"
#include "trace/forms.h"

enum column { TURN, PHASE, STEP, LAYER, SLOT, EXPERT, WEIGHT, RESIDENCY, BYTES, DROPPED, COLUMNS };
static const char *const column_names[COLUMNS] = {"turn",         "phase",  "step",   "layer",
                                                  "slot",         "expert", "weight", "residency",
                                                  "expert_bytes", "dropped"};
#define NEEDED WEIGHT /* columns before this one */
#define CELLS_MAX 64
#define ABSENT UINT32_MAX

struct row {
    uint64_t bytes;
    uint32_t step;
    float weight;
    uint16_t layer, expert;
    uint8_t slot, state;
    bool dropped;
};

struct bmoe_reader {
    struct sl_trace_input *in;
    struct sl_budget *budget;
    struct sl_trace_build *build;
    sluice_error *e;
    struct sl_trace_header header;
    uint32_t column[COLUMNS]; /* which cell; ABSENT */
    bool have_columns, unknown_weight;
    uint32_t top_k_seen;
    struct row *rows; /* of the tokens under way */
    uint64_t n_rows, rows_room;
    uint64_t next_row; /* of the next layer: rows are in the order of layers */
    uint32_t turn, phase;
    uint32_t *steps; /* [n_steps] of these rows, ascending */
    uint64_t n_steps, steps_room;
    uint16_t chosen[SL_CHUNK_MAX * SL_TOP_K_MAX];
    float weights[SL_CHUNK_MAX * SL_TOP_K_MAX];
    uint8_t states[SL_CHUNK_MAX * SL_TOP_K_MAX];
};

static sluice_err complain(struct bmoe_reader *r, sluice_err code)
{
    return sl_trace_input_blame(r->in, r->e, code);
}

/* ---- remarks ------------------------------------------------------------------------------------
 */

/* The text behind " key=" up to the next blank, or to the end where whole. */
static bool value_of(struct sl_str line, const char *key, struct sl_str *out)
{
    size_t n = strlen(key);
    for (size_t i = 0; i + n < line.n; i++) {
        if (line.p[i] != ' ' || memcmp(line.p + i + 1, key, n) != 0) continue;
        out->p = line.p + i + 1 + n;
        out->n = line.n - i - 1 - n;
        const char *blank = memchr(out->p, ' ', out->n);
        if (blank) out->n = (size_t)(blank - out->p);
        return true;
    }
    return false;
}

static bool number_of(struct sl_str line, const char *key, uint64_t max, uint64_t *out)
{
    struct sl_str s;
    return value_of(line, key, &s) && sl_trace_u64(s, max, out);
}

static sluice_err take_model(struct bmoe_reader *r, struct sl_str line)
{
    uint64_t layers, experts, top_k;
    struct sl_str s = {NULL, 0};
    if (!number_of(line, "n_layer=", SL_LAYERS_MAX, &layers) ||
        !number_of(line, "n_expert=", SL_EXPERTS_MAX, &experts) ||
        !number_of(line, "n_expert_used=", SL_TOP_K_MAX, &top_k) || layers == 0 || top_k == 0) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT,
                      "wanted n_layer, n_expert and n_expert_used, at most %d, %d and %d",
                      SL_LAYERS_MAX, SL_EXPERTS_MAX, SL_TOP_K_MAX);
        return complain(r, SLUICE_E_FORMAT);
    }
    r->header.n_layers = (uint32_t)layers;
    for (uint32_t l = 0; l < layers; l++) {
        r->header.layer[l].n_experts = (uint32_t)experts;
        r->header.layer[l].top_k = (uint32_t)top_k;
    }
    if (value_of(line, "arch=", &s))
        (void)sl_str_show(s, r->header.architecture, sizeof r->header.architecture);
    /* A path may have blanks, so it ends where the last arch= begins. */
    size_t first = sizeof "# model=" - 1, end = s.p ? (size_t)(s.p - line.p) : line.n;
    end = end > first + sizeof " arch=" - 1 ? end - (sizeof " arch=" - 1) : first;
    struct sl_str path = {line.p + first, end - first};
    for (size_t i = path.n; i > 0; i--) {
        if (path.p[i - 1] != '/' && path.p[i - 1] != '\\') continue;
        path = (struct sl_str){path.p + i, path.n - i};
        break;
    }
    (void)sl_str_show(path, r->header.model, sizeof r->header.model);
    (void)sl_str_show(path, r->header.file, sizeof r->header.file);
    return SLUICE_OK;
}

static sluice_err take_remark(struct bmoe_reader *r, struct sl_str line)
{
    uint64_t layer, bytes;
    if (r->n_rows || r->build->t) return SLUICE_OK;
    if (sl_str_starts(line, "# route_trace ") && !sl_str_eq(line, "# route_trace v1")) {
        (void)sl_fail(r->e, SLUICE_E_VERSION, "a route trace of another version than v1");
        return complain(r, SLUICE_E_VERSION);
    }
    if (sl_str_starts(line, "# model=")) return take_model(r, line);
    if (number_of(line, "layer=", SL_LAYERS_MAX - 1, &layer) && layer < r->header.n_layers &&
        number_of(line, "expert_bytes=", SL_TRACE_NUMBER_MAX, &bytes))
        r->header.layer[layer].expert_bytes = bytes;
    return SLUICE_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------
 */

/* Slots of one size are a class, as the engine would have them for such a model. */
static void sort_by_size(struct sl_trace_header *h)
{
    uint64_t bytes[SL_LAYERS_MAX], class_bytes[SL_EC_CLASSES_MAX];
    uint32_t class_of[SL_LAYERS_MAX];
    for (uint32_t l = 0; l < h->n_layers; l++) bytes[l] = h->layer[l].expert_bytes;
    h->n_classes = sl_ec_size_classes(bytes, h->n_layers, class_of, class_bytes);
    for (uint32_t l = 0; l < h->n_layers && h->n_classes; l++) {
        if (bytes[l] == 0) continue;
        h->layer[l].size_class = class_of[l];
        h->layer[l].slot_bytes = class_bytes[class_of[l]];
    }
    if (h->n_classes == 0) h->n_classes = 1;
}

static sluice_err open_build(struct bmoe_reader *r)
{
    struct sl_trace_header *h = &r->header;
    if (h->n_layers == 0) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT,
                      "rows before '# model=NAME arch=NAME n_layer=N n_expert=N n_expert_used=N'");
        return complain(r, SLUICE_E_FORMAT);
    }
    sort_by_size(h);
    if (r->column[WEIGHT] != ABSENT) h->measured |= SL_TRACE_WEIGHTS;
    if (r->column[RESIDENCY] != ABSENT) h->measured |= SL_TRACE_STATES;
    sluice_err code = sl_trace_build_open(r->build, h, r->budget, r->e);
    return code == SLUICE_OK ? code : complain(r, code);
}

static uint64_t find_step(const struct bmoe_reader *r, uint32_t step)
{
    uint64_t low = 0, high = r->n_steps;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (r->steps[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The layer's rows of n tokens from the one with index first on. */
static sluice_err gather(struct bmoe_reader *r, uint32_t layer, uint64_t first, uint32_t n,
                         struct sl_trace_layer *out)
{
    uint32_t top_k = r->header.layer[layer].top_k;
    for (uint32_t i = 0; i < n * top_k; i++) {
        r->chosen[i] = SL_TRACE_NONE;
        r->weights[i] = 0;
        r->states[i] = SL_TRACE_UNKNOWN;
    }
    *out = (struct sl_trace_layer){.layer = layer,
                                   .n_tokens = n,
                                   .top_k = top_k,
                                   .chosen = r->chosen,
                                   .weights = r->weights,
                                   .states = r->states};
    while (r->next_row < r->n_rows && r->rows[r->next_row].layer == layer) {
        const struct row *row = &r->rows[r->next_row++];
        uint64_t token = find_step(r, row->step) - first; /* huge where it is before first */
        if (token >= n) continue;
        uint64_t at = token * top_k + row->slot;
        out->read_bytes += row->bytes;
        if (row->dropped) continue;
        if (r->chosen[at] != SL_TRACE_NONE)
            return sl_fail(r->e, SLUICE_E_FORMAT, "step %u, layer %u: slot %u twice", row->step,
                           layer, row->slot);
        r->chosen[at] = row->expert;
        r->weights[at] = row->weight;
        r->states[at] = row->state;
    }
    return SLUICE_OK;
}

static sluice_err flush_part(struct bmoe_reader *r, uint64_t first, uint32_t n)
{
    struct sl_trace_record record = {.kind = SL_TRACE_EVAL,
                                     .u.eval = {.session = r->turn,
                                                .position = r->steps[first],
                                                .n_tokens = n,
                                                .prompt = r->phase == 0}};
    sluice_err code = sl_trace_build_add(r->build, &record, r->e);
    record.kind = SL_TRACE_LAYER;
    r->next_row = 0;
    for (uint32_t l = 0; l < r->header.n_layers && code == SLUICE_OK; l++) {
        code = gather(r, l, first, n, &record.u.layer);
        if (code == SLUICE_OK) code = sl_trace_build_add(r->build, &record, r->e);
    }
    return code == SLUICE_OK ? code : complain(r, code);
}

static sluice_err flush(struct bmoe_reader *r)
{
    sluice_err code = SLUICE_OK;
    if (r->n_rows == 0) return code;
    if (r->build->t == NULL) code = open_build(r);
    for (uint64_t first = 0; first < r->n_steps && code == SLUICE_OK; first += SL_CHUNK_MAX)
        code = flush_part(r, first, (uint32_t)sl_min_u64(r->n_steps - first, SL_CHUNK_MAX));
    r->n_rows = r->n_steps = 0;
    return code;
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static sluice_err take_columns(struct bmoe_reader *r, struct sl_str *cells, uint32_t n)
{
    for (uint32_t c = 0; c < COLUMNS; c++) {
        r->column[c] = ABSENT;
        for (uint32_t i = 0; i < n; i++)
            if (sl_str_eq(cells[i], column_names[c])) r->column[c] = i;
        if (r->column[c] != ABSENT || c >= NEEDED) continue;
        (void)sl_fail(r->e, SLUICE_E_FORMAT, "no column '%s' in the names of the columns",
                      column_names[c]);
        return complain(r, SLUICE_E_FORMAT);
    }
    r->have_columns = true;
    return SLUICE_OK;
}

/* A cell's number; in a column that is not there 0. */
static sluice_err take_cell(struct bmoe_reader *r, const struct sl_str *cells, uint32_t n,
                            enum column c, uint64_t *out)
{
    static const uint64_t most[COLUMNS] = {UINT32_MAX,
                                           1,
                                           UINT32_MAX - SL_CHUNK_MAX,
                                           SL_LAYERS_MAX - 1,
                                           SL_TOP_K_MAX - 1,
                                           SL_EXPERTS_MAX - 1,
                                           0,
                                           2,
                                           SL_TRACE_NUMBER_MAX,
                                           1};
    char shown[64];
    *out = 0;
    if (r->column[c] == ABSENT || (c >= NEEDED && r->column[c] >= n)) return SLUICE_OK;
    if (r->column[c] < n && sl_trace_u64(cells[r->column[c]], most[c], out)) return SLUICE_OK;
    (void)sl_fail(r->e, SLUICE_E_FORMAT, "%s is '%s', wanted a number from 0 to %llu",
                  column_names[c],
                  r->column[c] < n ? sl_str_show(cells[r->column[c]], shown, sizeof shown) : "",
                  (unsigned long long)most[c]);
    return complain(r, SLUICE_E_FORMAT);
}

static sluice_err take_weight(struct bmoe_reader *r, const struct sl_str *cells, uint32_t n,
                              float *out)
{
    char shown[64];
    *out = 0;
    if (r->column[WEIGHT] == ABSENT) return SLUICE_OK;
    struct sl_str s = r->column[WEIGHT] < n ? cells[r->column[WEIGHT]] : SL_STR("nan");
    if (sl_str_eq(s, "nan")) {
        r->unknown_weight = true;
        return SLUICE_OK;
    }
    if (sl_trace_float(s, out)) return SLUICE_OK;
    (void)sl_fail(r->e, SLUICE_E_FORMAT, "weight is '%s', wanted a finite number or nan",
                  sl_str_show(s, shown, sizeof shown));
    return complain(r, SLUICE_E_FORMAT);
}

static sluice_err keep(struct bmoe_reader *r, const struct row *row)
{
    sluice_err code = SLUICE_OK;
    uint64_t at = find_step(r, row->step);
    bool new_step = at == r->n_steps || r->steps[at] != row->step;
    if (r->n_rows == r->rows_room)
        code = sl_grow(r->budget, &r->rows, &r->rows_room, r->n_rows + 1, sizeof *r->rows);
    if (code == SLUICE_OK && new_step && r->n_steps == r->steps_room)
        code = sl_grow(r->budget, &r->steps, &r->steps_room, r->n_steps + 1, sizeof *r->steps);
    if (code != SLUICE_OK)
        return complain(r, sl_fail(r->e, code, "the prompt does not fit into memory"));
    if (new_step && at < r->n_steps) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT, "step %u after step %u, wanted ascending steps",
                      row->step, r->steps[r->n_steps - 1]);
        return complain(r, SLUICE_E_FORMAT);
    }
    r->rows[r->n_rows++] = *row;
    if (new_step) r->steps[r->n_steps++] = row->step;
    return SLUICE_OK;
}

static sluice_err take_row(struct bmoe_reader *r, const struct sl_str *cells, uint32_t n)
{
    static const uint8_t states[] = {SL_TRACE_MISSING, SL_TRACE_AT_HAND,
                                     SL_TRACE_AT_HAND | SL_TRACE_AHEAD};
    uint64_t v[COLUMNS];
    sluice_err code = SLUICE_OK;
    for (uint32_t c = 0; c < COLUMNS && code == SLUICE_OK; c++)
        if (c != WEIGHT) code = take_cell(r, cells, n, (enum column)c, &v[c]);
    if (code != SLUICE_OK) return code;
    struct row row = {.bytes = v[BYTES],
                      .step = (uint32_t)v[STEP],
                      .layer = (uint16_t)v[LAYER],
                      .expert = (uint16_t)v[EXPERT],
                      .slot = (uint8_t)v[SLOT],
                      .state =
                          r->column[RESIDENCY] == ABSENT ? SL_TRACE_UNKNOWN : states[v[RESIDENCY]],
                      .dropped = v[DROPPED] != 0};
    code = take_weight(r, cells, n, &row.weight);
    if (code != SLUICE_OK) return code;
    const struct row *last = r->n_rows ? &r->rows[r->n_rows - 1] : NULL;
    if (last && (r->turn != v[TURN] || r->phase != v[PHASE] || row.layer < last->layer ||
                 (v[PHASE] == 1 && row.step != last->step)))
        code = flush(r);
    r->turn = (uint32_t)v[TURN];
    r->phase = (uint32_t)v[PHASE];
    if (code == SLUICE_OK && row.layer < r->header.n_layers &&
        row.slot >= r->header.layer[row.layer].top_k) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT, "slot %u, but n_expert_used is %u", row.slot,
                      r->header.layer[row.layer].top_k);
        return complain(r, SLUICE_E_FORMAT);
    }
    if (code == SLUICE_OK && row.layer >= r->header.n_layers && r->header.n_layers) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT, "layer %u, but n_layer is %u", row.layer,
                      r->header.n_layers);
        return complain(r, SLUICE_E_FORMAT);
    }
    return code == SLUICE_OK ? keep(r, &row) : code;
}

static sluice_err read_lines(struct bmoe_reader *r)
{
    struct sl_str cells[CELLS_MAX];
    struct sl_trace_line line;
    for (;;) {
        sluice_err code = sl_trace_input_line(r->in, &line, r->e);
        if (code == SLUICE_OK && line.p == NULL) return flush(r);
        if (code == SLUICE_OK && line.n && line.p[0] == '#') {
            code = take_remark(r, (struct sl_str){line.p, line.n});
        } else if (code == SLUICE_OK && line.n) {
            uint32_t n = sl_trace_cells((struct sl_str){line.p, line.n}, cells, CELLS_MAX);
            if (n > CELLS_MAX) {
                (void)sl_fail(r->e, SLUICE_E_FORMAT, "more than %d columns", CELLS_MAX);
                return complain(r, SLUICE_E_FORMAT);
            }
            code = r->have_columns ? take_row(r, cells, n) : take_columns(r, cells, n);
        }
        if (code != SLUICE_OK) return code;
    }
}

sluice_err sl_trace_read_bmoe(struct sl_trace_input *in, struct sl_budget *b, sluice_error *e,
                              struct sl_trace_build *build)
{
    sluice_error unused;
    struct bmoe_reader *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a reader does not fit into memory");
    r->in = in;
    r->budget = b;
    r->build = build;
    r->e = e ? e : &unused;
    memcpy(r->header.program, "BigMoeOnEdge", sizeof "BigMoeOnEdge");
    sluice_err code = read_lines(r);
    if (code == SLUICE_OK && build->t) {
        if (r->unknown_weight) build->t->header.measured &= ~(uint32_t)SL_TRACE_WEIGHTS;
        sl_trace_build_drop_idle_layers(build);
    } else if (code == SLUICE_OK) {
        code = sl_fail(r->e, SLUICE_E_FORMAT,
                       "%s: found no tokens, wanted rows of BigMoeOnEdge's route trace",
                       sl_trace_input_name(in));
    }
    sl_free(r->rows);
    sl_free(r->steps);
    sl_free(r);
    return code;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static void put_pair(struct sl_trace_output *o, const char *key, uint64_t value)
{
    sl_trace_put_text(o, key);
    sl_trace_put_number(o, value);
}

static void write_remarks(const struct sl_trace_header *h, struct sl_trace_output *o)
{
    uint32_t experts = 0, top_k = 0;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        if (h->layer[l].n_experts > experts) experts = h->layer[l].n_experts;
        if (h->layer[l].top_k > top_k) top_k = h->layer[l].top_k;
    }
    char shown[2 * SL_TRACE_TEXT]; /* a name must not end the line */
    const char *name = h->file[0] ? h->file : h->model;
    sl_trace_put_text(o, "# route_trace v1\n# model=");
    sl_trace_put_text(o, sl_str_show((struct sl_str){name, strlen(name)}, shown, sizeof shown));
    sl_trace_put_text(o, " arch=");
    name = h->architecture;
    sl_trace_put_text(o, sl_str_show((struct sl_str){name, strlen(name)}, shown, sizeof shown));
    put_pair(o, " n_layer=", h->n_layers);
    put_pair(o, " n_expert=", experts);
    put_pair(o, " n_expert_used=", top_k);
    for (uint32_t l = 0; l < h->n_layers; l++) {
        put_pair(o, "\n# layer=", l);
        put_pair(o, " expert_bytes=", h->layer[l].expert_bytes);
        sl_trace_put_text(o, " dense_bytes=0");
    }
    sl_trace_put_text(o, "\nturn,phase,step,layer,slot,expert");
    if (h->measured & SL_TRACE_WEIGHTS) sl_trace_put_text(o, ",weight");
    if (h->measured & SL_TRACE_STATES) sl_trace_put_text(o, ",residency,expert_bytes");
    sl_trace_put_text(o, "\n");
}

/* Where rows of choices are written to, and which experts of the layer have had their bytes: one
 * that several tokens of a chunk miss is read once, so its first row has them. */
struct rows {
    struct sl_trace_output *o;
    uint64_t counted[SL_EXPERTS_MAX / 64];
};

static void write_row(const struct sl_trace *t, const struct sl_trace_visit *v, uint64_t choice,
                      struct rows *rows)
{
    struct sl_trace_output *o = rows->o;
    const struct sl_trace_eval *eval = &t->evals[v->eval].e;
    uint64_t at = v->first_choice + choice;
    uint32_t expert = t->chosen[at];
    if (expert == SL_TRACE_NONE) return;
    sl_trace_put_number(o, eval->session);
    put_pair(o, ",", eval->prompt ? 0 : 1);
    put_pair(o, ",", eval->position + choice / v->top_k);
    put_pair(o, ",", v->layer);
    put_pair(o, ",", choice % v->top_k);
    put_pair(o, ",", expert);
    if (t->weights) {
        sl_trace_put_text(o, ",");
        sl_trace_put_float(o, t->weights[at]);
    }
    if (t->states) {
        uint64_t bit = UINT64_C(1) << expert % 64;
        bool miss = (t->states[at] & SL_TRACE_STATE_MASK) == SL_TRACE_MISSING;
        bool bytes = miss && !(rows->counted[expert / 64] & bit);
        if (miss) rows->counted[expert / 64] |= bit;
        put_pair(o, ",", miss ? 0 : t->states[at] & SL_TRACE_AHEAD ? 2 : 1);
        put_pair(o, ",", bytes ? t->header.layer[v->layer].expert_bytes : 0);
    }
    sl_trace_put_text(o, "\n");
}

/* A prompt layer by layer, other tokens one by one. */
static void write_eval(const struct sl_trace *t, const struct sl_trace_eval_span *s,
                       struct rows *rows)
{
    const struct sl_trace_visit *v = t->visits + s->first_visit;
    uint32_t outer = s->e.prompt ? 1 : s->e.n_tokens, n = s->e.prompt ? s->e.n_tokens : 1;
    for (uint32_t token = 0; token < outer; token++)
        for (uint64_t l = 0; l < s->n_visits; l++) {
            memset(rows->counted, 0, sizeof rows->counted);
            uint64_t first = (uint64_t)token * v[l].top_k, end = first + (uint64_t)n * v[l].top_k;
            for (uint64_t choice = first; choice < end; choice++) write_row(t, &v[l], choice, rows);
        }
}

void sl_trace_write_bmoe(const struct sl_trace *t, struct sl_trace_output *o)
{
    struct rows rows = {.o = o};
    write_remarks(&t->header, o);
    for (uint64_t i = 0; i < t->n_evals; i++)
        if (t->evals[i].whole) write_eval(t, &t->evals[i], &rows);
}
