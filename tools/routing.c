/* Recorded routing; see routing.h. */
#include "tools/routing.h"

#include <string.h>

#include "tools/interrupt.h"
#include "tools/report.h"

#define EXPERTS_MAX 65536 /* numbers below; a model has far fewer */
#define LAYERS_MAX 65536

/* A line that is being read. */
struct line {
    const char *at, *end;
    const char *source;
    size_t number;
};

static int complain(const struct line *l, const char *wanted)
{
    cli_error("%s: line %zu: wanted %s; a line is 'PROMPT p|d LAYERS', as in '0 d 3,5;1,2'",
              l->source, l->number, wanted);
    return CLI_EXIT_FAILURE;
}

/* Passes a word and the blanks after it; its first character, 0 where there is none. */
static char take_word(struct line *l)
{
    char first = l->at < l->end ? *l->at : 0;
    while (l->at < l->end && *l->at != ' ') l->at++;
    while (l->at < l->end && *l->at == ' ') l->at++;
    return first;
}

/* A number below EXPERTS_MAX; -1: there is none. */
static int32_t take_number(struct line *l)
{
    int32_t n = -1;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++) {
        n = (n < 0 ? 0 : n) * 10 + (*l->at - '0');
        if (n >= EXPERTS_MAX) return -1;
    }
    return n;
}

/* A layer's experts, which may be none. Returns nonzero where something else stands there. */
static int take_layer(struct cli_routing *r, struct line *l)
{
    cli_ids_push(&r->starts, (int32_t)r->experts.count);
    while (l->at < l->end && *l->at != ';') {
        int32_t expert = take_number(l);
        if (expert < 0) return -1;
        cli_ids_push(&r->experts, expert);
        if (l->at == l->end || *l->at == ';') return 0;
        if (*l->at++ != ',' || l->at == l->end || *l->at == ';') return -1;
    }
    return 0;
}

static int take_token(struct cli_routing *r, struct line *l, int decoded_only)
{
    size_t layers = 0;
    (void)take_word(l);
    char phase = take_word(l);
    if (phase != 'p' && phase != 'd') return complain(l, "p or d as the second word");
    if (phase == 'p' && decoded_only) return CLI_EXIT_OK;
    for (int more = 1; more; layers++) {
        if (layers == LAYERS_MAX) return complain(l, "65536 layers at most");
        if (take_layer(r, l)) return complain(l, "expert numbers below 65536");
        more = l->at < l->end; /* at a semicolon */
        l->at += more;
    }
    if (r->n_tokens && layers != r->n_layers) return complain(l, "as many layers as before");
    r->n_layers = layers;
    r->n_tokens++;
    return CLI_EXIT_OK;
}

static int parse(struct cli_routing *r, const struct cli_text *text, const char *source,
                 int decoded_only)
{
    struct line l = {.source = source};
    const char *at = text->bytes, *end = text->bytes + text->size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        l.at = at;
        l.end = stop ? stop : end;
        at = stop ? stop + 1 : end;
        l.number++;
        while (l.end > l.at && (l.end[-1] == '\r' || l.end[-1] == ' ')) l.end--;
        if (l.at == l.end || *l.at == '#') continue;
        if (r->experts.count > INT32_MAX - EXPERTS_MAX) return complain(&l, "fewer tokens");
        int code = take_token(r, &l, decoded_only);
        if (code) return code;
    }
    cli_ids_push(&r->starts, (int32_t)r->experts.count);
    if (r->n_tokens) return CLI_EXIT_OK;
    cli_error("%s: found no %stokens", source, decoded_only ? "decoded " : "");
    return CLI_EXIT_FAILURE;
}

int cli_routing_read(struct cli_routing *r, const char *path, int decoded_only)
{
    struct cli_text text = {0};
    int code = CLI_EXIT_FAILURE;
    if (cli_text_read(&text, path) == 0)
        code = parse(r, &text, strcmp(path, "-") == 0 ? "standard input" : path, decoded_only);
    else if (cli_interrupted())
        code = CLI_EXIT_INTERRUPTED;
    cli_text_free(&text);
    return code;
}

static int is_among(const uint32_t *experts, uint32_t n, uint32_t expert)
{
    for (uint32_t i = 0; i < n; i++)
        if (experts[i] == expert) return 1;
    return 0;
}

static uint32_t choose(void *user, uint32_t layer, uint32_t position, uint32_t n_experts,
                       uint32_t top_k, uint32_t *experts)
{
    const struct cli_routing *r = user;
    size_t cell = position % r->n_tokens * r->n_layers + (size_t)r->layer_of.ids[layer];
    uint32_t n = 0;
    for (int32_t i = r->starts.ids[cell]; i < r->starts.ids[cell + 1] && n < top_k; i++) {
        uint32_t expert = (uint32_t)r->experts.ids[i] % n_experts;
        if (!is_among(experts, n, expert)) experts[n++] = expert;
    }
    return n;
}

void cli_routing_use(struct cli_routing *r, const sluice_model *model, sluice_session *session)
{
    sluice_layer_stats layer = SLUICE_LAYER_STATS_INIT;
    size_t with_experts = 0, n = 0;
    uint32_t l;
    for (l = 0; sluice_model_get_layer_stats(model, l, &layer); l++)
        with_experts += layer.n_experts > 0;
    for (l = 0; sluice_model_get_layer_stats(model, l, &layer); l++) {
        size_t of_record = layer.n_experts ? n++ * r->n_layers / with_experts : 0;
        cli_ids_push(&r->layer_of, layer.n_experts ? (int32_t)of_record : -1);
    }
    sluice_session_route(session, choose, r);
}

void cli_routing_free(struct cli_routing *r)
{
    cli_ids_free(&r->experts);
    cli_ids_free(&r->starts);
    cli_ids_free(&r->layer_of);
}
