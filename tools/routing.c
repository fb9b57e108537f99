/* Recorded routing; see routing.h. */
#include "tools/routing.h"

#include <string.h>

#include "tools/interrupt.h"
#include "tools/report.h"
#include "trace/trace.h"

static int go_on(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return cli_interrupted();
}

/* What a token of the eval chose in each layer that has experts. */
static void add_token(struct cli_routing *r, const struct sl_trace *t,
                      const struct sl_trace_eval_span *s, uint32_t token)
{
    for (uint64_t i = 0; i < s->n_visits; i++) {
        const struct sl_trace_visit *v = &t->visits[s->first_visit + i];
        const uint16_t *chosen = t->chosen + v->first_choice + (uint64_t)token * v->top_k;
        cli_ids_push(&r->starts, (int32_t)r->experts.count);
        for (uint32_t k = 0; k < v->top_k; k++)
            if (chosen[k] != SL_TRACE_NONE) cli_ids_push(&r->experts, chosen[k]);
    }
    r->n_tokens++;
}

static int take(struct cli_routing *r, const struct sl_trace *t, const char *source,
                int decoded_only)
{
    if (t->n_choices > INT32_MAX) {
        cli_error("%s: too long to be replayed: %llu choices", source,
                  (unsigned long long)t->n_choices);
        return CLI_EXIT_FAILURE;
    }
    for (uint32_t l = 0; l < t->header.n_layers; l++)
        r->n_layers += t->header.layer[l].n_experts > 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *s = &t->evals[i];
        if (!s->whole || (s->e.prompt && decoded_only)) continue;
        for (uint32_t k = 0; k < s->e.n_tokens; k++) add_token(r, t, s, k);
    }
    cli_ids_push(&r->starts, (int32_t)r->experts.count);
    if (r->n_tokens) return CLI_EXIT_OK;
    cli_error("%s: found no %stokens", source, decoded_only ? "decoded " : "");
    return CLI_EXIT_FAILURE;
}

int cli_routing_read(struct cli_routing *r, const char *path, int decoded_only)
{
    struct sl_budget budget;
    struct sl_trace *t = NULL;
    sluice_error e;
    sl_budget_init(&budget, UINT64_MAX);
    int code = CLI_EXIT_OK;
    if (sl_trace_load(path, go_on, NULL, &budget, &e, &t) != SLUICE_OK)
        code = cli_fail(&e);
    else
        code = take(r, t, strcmp(path, "-") == 0 ? "standard input" : path, decoded_only);
    sl_trace_free(t);
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
