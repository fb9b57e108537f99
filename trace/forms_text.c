/* The text form: a line a token, "PROMPT PHASE LAYERS", experts only. See docs/FORMAT.md.
 *
 * Neighbouring lines of a prompt went through the layers together, as far as one knows: they become
 * an eval for each 512 of them, so they are kept until the next line is something else. */
#include <string.h>

#include "formats/json_in.h"
#include "trace/forms.h"

#define PLACE "a line is 'PROMPT p|d LAYERS', as in '0 d 3,5;1,2'"

struct text_reader {
    struct sl_trace_input *in;
    struct sl_budget *budget;
    struct sl_trace_build *build;
    sluice_error *e;
    struct sl_trace_header header; /* what the first lines say */
    uint32_t experts, top_k;       /* as the header line says; 0: not known */
    uint32_t experts_seen, top_k_seen;
    /* the chunk under way: tokens of one prompt, or one that was decoded */
    uint16_t *cells; /* [n_tokens][n_layers][SL_TOP_K_MAX] */
    uint8_t *counts; /* [n_tokens][n_layers] */
    uint64_t cells_room, counts_room;
    uint32_t n_tokens;
    bool prompt;
    uint32_t session, position;
    bool any;
    uint16_t chosen[SL_CHUNK_MAX * SL_TOP_K_MAX];
};

static sluice_err complain(struct text_reader *r, sluice_err code)
{
    return sl_trace_input_blame(r->in, r->e, code);
}

static sluice_err wanted(struct text_reader *r, const char *what)
{
    (void)sl_fail(r->e, SLUICE_E_FORMAT, "wanted %s; " PLACE, what);
    return complain(r, SLUICE_E_FORMAT);
}

/* ---- the chunk under way ------------------------------------------------------------------------
 */

static sluice_err open_build(struct text_reader *r)
{
    for (uint32_t l = 0; l < r->header.n_layers; l++) {
        r->header.layer[l].n_experts = r->experts ? r->experts : SL_EXPERTS_MAX;
        r->header.layer[l].top_k = r->top_k ? r->top_k : SL_TOP_K_MAX;
        if (r->header.layer[l].top_k > r->header.layer[l].n_experts)
            return sl_fail(r->e, SLUICE_E_FORMAT, "the header says top_k %u of %u experts",
                           r->top_k, r->experts);
    }
    r->header.n_classes = 1;
    return sl_trace_build_open(r->build, &r->header, r->budget, r->e);
}

/* Experts of all tokens of the chunk in a layer; a token that chose fewer ends in SL_TRACE_NONE. */
static void gather(struct text_reader *r, uint32_t layer, struct sl_trace_layer *out)
{
    uint32_t top_k = 1, n_layers = r->header.n_layers;
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        uint32_t n = r->counts[(size_t)t * n_layers + layer];
        if (n > top_k) top_k = n;
    }
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        size_t cell = (size_t)t * n_layers + layer;
        for (uint32_t i = 0; i < top_k; i++)
            r->chosen[t * top_k + i] =
                i < r->counts[cell] ? r->cells[cell * SL_TOP_K_MAX + i] : SL_TRACE_NONE;
    }
    *out = (struct sl_trace_layer){
        .layer = layer, .n_tokens = r->n_tokens, .top_k = top_k, .chosen = r->chosen};
}

static sluice_err flush(struct text_reader *r)
{
    sluice_err code = SLUICE_OK;
    if (r->n_tokens == 0) return code;
    if (r->build->t == NULL) code = open_build(r);
    struct sl_trace_record record = {.kind = SL_TRACE_EVAL,
                                     .u.eval = {.session = r->session,
                                                .position = r->position - r->n_tokens,
                                                .n_tokens = r->n_tokens,
                                                .prompt = r->prompt}};
    if (code == SLUICE_OK) code = sl_trace_build_add(r->build, &record, r->e);
    for (uint32_t l = 0; l < r->header.n_layers && code == SLUICE_OK; l++) {
        record.kind = SL_TRACE_LAYER;
        gather(r, l, &record.u.layer);
        code = sl_trace_build_add(r->build, &record, r->e);
    }
    r->n_tokens = 0;
    return code == SLUICE_OK ? code : complain(r, code);
}

/* ---- lines --------------------------------------------------------------------------------------
 */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A number of at most max; false: there is none, or it is larger. */
static bool take_number(const char **p, const char *end, uint32_t max, uint32_t *out)
{
    uint64_t n = 0;
    const char *first = *p;
    for (; *p < end && is_digit(**p) && n <= max; (*p)++) n = n * 10 + (uint64_t)(**p - '0');
    *out = (uint32_t)n;
    return *p > first && n <= max;
}

static void take_blanks(const char **p, const char *end)
{
    while (*p < end && (**p == ' ' || **p == '\t')) (*p)++;
}

/* A layer's experts, which may be none, into the cell. */
static sluice_err take_layer(struct text_reader *r, const char **p, const char *end, size_t cell)
{
    uint16_t *out = r->cells + cell * SL_TOP_K_MAX;
    uint32_t n = 0, expert, limit = r->experts ? r->experts : SL_EXPERTS_MAX;
    while (*p < end && **p != ';') {
        if (n && *(*p)++ != ',') return wanted(r, "a comma between two experts");
        if (!take_number(p, end, limit - 1, &expert)) {
            (void)sl_fail(r->e, SLUICE_E_FORMAT, "wanted expert numbers below %u; " PLACE, limit);
            return complain(r, SLUICE_E_FORMAT);
        }
        if (n == SL_TOP_K_MAX || (r->top_k && n == r->top_k)) {
            (void)sl_fail(r->e, SLUICE_E_FORMAT, "more than %u experts in a layer",
                          r->top_k ? r->top_k : SL_TOP_K_MAX);
            return complain(r, SLUICE_E_FORMAT);
        }
        for (uint32_t i = 0; i < n; i++)
            if (out[i] == expert) return wanted(r, "experts of a layer, each once");
        out[n++] = (uint16_t)expert;
        if (expert >= r->experts_seen) r->experts_seen = expert + 1;
    }
    r->counts[cell] = (uint8_t)n;
    if (n > r->top_k_seen) r->top_k_seen = n;
    return SLUICE_OK;
}

static sluice_err room_for_token(struct text_reader *r)
{
    uint64_t n = (uint64_t)(r->n_tokens + 1) * r->header.n_layers;
    sluice_err code = SLUICE_OK;
    if (n > r->counts_room) code = sl_grow(r->budget, &r->counts, &r->counts_room, n, 1);
    if (code == SLUICE_OK && n * SL_TOP_K_MAX > r->cells_room)
        code = sl_grow(r->budget, &r->cells, &r->cells_room, n * SL_TOP_K_MAX, sizeof *r->cells);
    if (code == SLUICE_OK) return code;
    return complain(r, sl_fail(r->e, code, "a chunk of the prompt does not fit into memory"));
}

static sluice_err take_layers(struct text_reader *r, const char *p, const char *end)
{
    uint32_t n = 1, l = 0;
    for (const char *q = p; q < end; q++) n += *q == ';';
    if (n > SL_LAYERS_MAX) {
        (void)sl_fail(r->e, SLUICE_E_LIMIT, "%u layers, at most %d are supported", n,
                      SL_LAYERS_MAX);
        return complain(r, SLUICE_E_LIMIT);
    }
    if (r->header.n_layers && n != r->header.n_layers) {
        (void)sl_fail(r->e, SLUICE_E_FORMAT, "%u layers, wanted %u as before", n,
                      r->header.n_layers);
        return complain(r, SLUICE_E_FORMAT);
    }
    r->header.n_layers = n;
    sluice_err code = room_for_token(r);
    for (; code == SLUICE_OK && l < n; l++) {
        code = take_layer(r, &p, end, (size_t)r->n_tokens * n + l);
        p += p < end; /* the semicolon */
    }
    return code;
}

static sluice_err take_token(struct text_reader *r, const char *p, const char *end)
{
    uint32_t session;
    if (!take_number(&p, end, UINT32_MAX - 1, &session) || p == end || *p != ' ')
        return wanted(r, "a prompt's number as the first word");
    take_blanks(&p, end);
    char phase = p < end ? *p++ : 0;
    if ((phase != 'p' && phase != 'd') || (p < end && *p != ' '))
        return wanted(r, "p or d as the second word");
    take_blanks(&p, end);
    bool prompt = phase == 'p', same = r->any && session == r->session;
    if (!same || !prompt || !r->prompt || r->n_tokens == SL_CHUNK_MAX) {
        sluice_err code = flush(r);
        if (code != SLUICE_OK) return code;
    }
    if (!same) r->position = 0;
    r->any = true;
    r->session = session;
    r->prompt = prompt;
    sluice_err code = take_layers(r, p, end);
    r->n_tokens++;
    r->position++;
    return code;
}

/* "# " and JSON: what is known of the whole. Other remarks are passed over. */
static sluice_err take_remark(struct text_reader *r, struct sl_trace_line line)
{
    struct sl_json *doc = NULL;
    struct sl_str model;
    uint64_t experts = 0, top_k = 0, layers = 0;
    if (r->any || line.n < 3 || memcmp(line.p, "# {", 3) != 0) return SLUICE_OK;
    sluice_err code =
        sl_json_parse(line.p + 2, line.n - 2, "the header line", r->budget, r->e, &doc);
    if (code != SLUICE_OK) return complain(r, code);
    struct sl_json_value root = sl_json_root(doc);
    if (sl_json_str(sl_json_get(root, "model"), &model))
        (void)sl_str_show(model, r->header.model, sizeof r->header.model);
    (void)sl_json_u64(sl_json_get(root, "experts"), &experts);
    (void)sl_json_u64(sl_json_get(root, "top_k"), &top_k);
    (void)sl_json_u64(sl_json_get(root, "layers"), &layers);
    sl_json_close(doc);
    if (experts > SL_EXPERTS_MAX || top_k > SL_TOP_K_MAX || layers > SL_LAYERS_MAX) {
        (void)sl_fail(r->e, SLUICE_E_LIMIT,
                      "%llu layers of %llu experts, %llu chosen; at most %d, %d, %d are supported",
                      (unsigned long long)layers, (unsigned long long)experts,
                      (unsigned long long)top_k, SL_LAYERS_MAX, SL_EXPERTS_MAX, SL_TOP_K_MAX);
        return complain(r, SLUICE_E_LIMIT);
    }
    r->experts = (uint32_t)experts;
    r->top_k = (uint32_t)top_k;
    r->header.n_layers = (uint32_t)layers;
    return SLUICE_OK;
}

static sluice_err read_lines(struct text_reader *r)
{
    struct sl_trace_line line;
    for (;;) {
        sluice_err code = sl_trace_input_line(r->in, &line, r->e);
        if (code == SLUICE_OK && line.p == NULL) return flush(r);
        while (line.n && line.p[line.n - 1] == ' ') line.n--;
        if (code == SLUICE_OK && line.n)
            code = line.p[0] == '#' ? take_remark(r, line) : take_token(r, line.p, line.p + line.n);
        if (code != SLUICE_OK) return code;
    }
}

sluice_err sl_trace_read_text(struct sl_trace_input *in, struct sl_budget *b, sluice_error *e,
                              struct sl_trace_build *build)
{
    sluice_error unused;
    struct text_reader *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a reader does not fit into memory");
    r->in = in;
    r->budget = b;
    r->build = build;
    r->e = e ? e : &unused;
    memcpy(r->header.program, "text", sizeof "text");
    sluice_err code = read_lines(r);
    if (code == SLUICE_OK && build->t) {
        struct sl_trace_header *h = &build->t->header;
        for (uint32_t l = 0; l < h->n_layers; l++) {
            if (r->experts == 0) h->layer[l].n_experts = r->experts_seen;
            if (r->top_k == 0) h->layer[l].top_k = r->top_k_seen;
        }
        sl_trace_build_drop_idle_layers(build);
    } else if (code == SLUICE_OK) {
        code =
            sl_fail(r->e, SLUICE_E_FORMAT, "%s: found no tokens; " PLACE, sl_trace_input_name(in));
    }
    sl_free(r->cells);
    sl_free(r->counts);
    sl_free(r);
    return code;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static void write_header(const struct sl_trace *t, struct sl_trace_output *o)
{
    uint32_t experts = 0, top_k = 0, prompts = 0;
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        if (t->header.layer[l].n_experts > experts) experts = t->header.layer[l].n_experts;
        if (t->header.layer[l].top_k > top_k) top_k = t->header.layer[l].top_k;
    }
    for (uint64_t i = 0; i < t->n_evals; i++)
        prompts += i == 0 || t->evals[i].e.session != t->evals[i - 1].e.session;
    sl_trace_put_text(o, "# {\"model\": ");
    sl_trace_put_string(o, t->header.model);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"tokens", (uint64_t)t->n_tokens + t->n_prompt},
                   {"layers", t->header.n_layers},
                   {"experts", experts},
                   {"top_k", top_k},
                   {"prompts", prompts}};
    for (size_t i = 0; i < SL_ARRAY_LEN(numbers); i++) {
        sl_trace_put_text(o, ", \"");
        sl_trace_put_text(o, numbers[i].name);
        sl_trace_put_text(o, "\": ");
        sl_trace_put_number(o, numbers[i].value);
    }
    sl_trace_put_text(o, "}\n");
}

static void write_token(const struct sl_trace *t, const struct sl_trace_eval_span *s,
                        uint32_t token, struct sl_trace_output *o)
{
    uint64_t v = s->first_visit;
    sl_trace_put_number(o, s->e.session);
    sl_trace_put_text(o, s->e.prompt ? " p " : " d ");
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        bool comma = false;
        if (l) sl_trace_put_bytes(o, ";", 1);
        if (v == s->first_visit + s->n_visits || t->visits[v].layer != l) continue;
        const uint16_t *c =
            t->chosen + t->visits[v].first_choice + (uint64_t)token * t->visits[v].top_k;
        for (uint32_t i = 0; i < t->visits[v].top_k; i++) {
            if (c[i] == SL_TRACE_NONE) continue;
            if (comma) sl_trace_put_bytes(o, ",", 1);
            sl_trace_put_number(o, c[i]);
            comma = true;
        }
        v++;
    }
    sl_trace_put_bytes(o, "\n", 1);
}

void sl_trace_write_text(const struct sl_trace *t, struct sl_trace_output *o)
{
    write_header(t, o);
    for (uint64_t i = 0; i < t->n_evals; i++)
        for (uint32_t k = 0; t->evals[i].whole && k < t->evals[i].e.n_tokens; k++)
            write_token(t, &t->evals[i], k, o);
}
