/* sluice trace replay: a trace through the expert cache with other sizes and policies. Replaying is
 * trace/replay.h, curves and predictors are trace/study.h; here is what is asked for, in which
 * order, and what is said when it cannot be. */
#include "tools/trace_replay.h"

#include <math.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/verbs.h"

/* ---- loading -----------------------------------------------------------------------------------
 */

static int step(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

static int load(struct cli_replay *r)
{
    struct cli_progress progress;
    sluice_error e;
    cli_progress_begin(&progress, "reading the trace", NULL,
                       cli_progress_wanted(r->args->progress, r->args->quiet));
    sluice_err err = sl_trace_load(r->args->input, step, &progress, &r->budget, &e, &r->loaded);
    cli_progress_end(&progress);
    if (err) return cli_fail(&e);
    r->trace = *r->loaded;
    return CLI_EXIT_OK;
}

/* ---- what was recorded -------------------------------------------------------------------------
 */

static void look_at_layers(struct cli_replay *r)
{
    const struct sl_trace_header *h = &r->trace.header;
    r->same_layers = r->sizes_known = 1;
    r->first_layer = SL_LAYERS_MAX;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const struct sl_trace_layer_info *y = &h->layer[l];
        if (y->n_experts == 0) continue;
        if (r->first_layer == SL_LAYERS_MAX) r->first_layer = l;
        const struct sl_trace_layer_info *first = &h->layer[r->first_layer];
        r->n_experts += y->n_experts;
        r->token_experts += y->top_k;
        r->sizes_known &= sl_replay_expert_bytes(h, l, r->args->expert_bits) > 0;
        r->same_layers &= y->n_experts == first->n_experts && y->top_k == first->top_k;
    }
    for (uint32_t k = 0; k < SL_TRACE_CLASSES; k++) r->n_slots += h->n_slots[k];
    r->n_slots_end = r->n_slots;
    for (uint64_t i = 0; i < r->trace.n_steps; i++) {
        const struct sl_trace_step *step = &r->trace.steps[i];
        r->n_slots_end -= step->is_op && step->op.kind == SL_TRACE_SLOT_CLOSED;
        r->n_slots_end += step->is_op && step->op.kind == SL_TRACE_SLOT_OPENED;
    }
}

/* As if experts had so many bits a weight. */
static void set_bits(struct cli_replay *r)
{
    struct sl_trace_header *h = &r->trace.header;
    for (uint32_t l = 0; l < h->n_layers && r->args->expert_bits > 0; l++)
        h->layer[l].expert_bytes =
            sl_replay_expert_bytes(&r->loaded->header, l, r->args->expert_bits);
}

static void count_recorded(struct cli_replay *r)
{
    const struct sl_trace *t = r->loaded;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *x = &t->evals[i];
        if (x->e.prompt || x->e.n_tokens > 1) continue;
        for (uint64_t v = x->first_visit; v < x->first_visit + x->n_visits; v++)
            r->read_bytes += t->visits[v].read_bytes;
        if (x->done.end_ns > x->e.begin_ns) r->decode_ns += x->done.end_ns - x->e.begin_ns;
    }
    for (uint64_t i = 0; i < t->n_reads; i++)
        if (t->reads[i].why == 2) r->ahead_bytes += t->reads[i].bytes;
    for (uint64_t v = 0; v < t->n_visits && t->states != NULL; v++) {
        const struct sl_trace_visit *x = &t->visits[v];
        if (t->evals[x->eval].e.prompt || x->n_tokens > 1) continue;
        for (uint32_t k = 0; k < x->top_k; k++) {
            uint8_t state = t->states[x->first_choice + k] & SL_TRACE_STATE_MASK;
            if (t->chosen[x->first_choice + k] == SL_TRACE_NONE || state == SL_TRACE_UNKNOWN)
                continue;
            r->uses++;
            r->hits += state == SL_TRACE_AT_HAND;
        }
    }
}

/* Does the replay, as recorded, have the recording's hits? */
static int repeat(struct cli_replay *r)
{
    const struct sl_trace *t = r->loaded;
    struct sl_replay_config c = {.policy = sl_ec_policy_find(t->header.policy)};
    sluice_error e;
    if (!(t->header.measured & SL_TRACE_OPS) || t->states == NULL) return CLI_EXIT_OK;
    if (c.policy == NULL || r->n_slots == 0) return CLI_EXIT_OK;
    c.as_recorded = true;
    memcpy(c.n_slots, t->header.n_slots, sizeof c.n_slots);
    if (sl_replay(t, &c, &r->budget, &e, &r->repeated)) return cli_fail(&e);
    r->repeats = 1;
    return CLI_EXIT_OK;
}

/* ---- sizes -------------------------------------------------------------------------------------
 */

/* The recorded size: with --bits, or a pool for each layer, as much memory. */
static void take_recorded(const struct cli_replay *r, struct cli_replay_size *s)
{
    const struct sl_trace_header *h = &r->loaded->header;
    uint64_t bytes = 0, slot[SL_TRACE_CLASSES] = {0};
    s->size = (struct sl_replay_size){.slots = r->n_slots};
    if (r->args->expert_bits <= 0) return;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const struct sl_trace_layer_info *y = &h->layer[l];
        uint64_t own = y->slot_bytes ? y->slot_bytes : y->expert_bytes;
        if (own > slot[y->size_class]) slot[y->size_class] = own;
    }
    for (uint32_t k = 0; k < SL_TRACE_CLASSES; k++) bytes += h->n_slots[k] * slot[k];
    if (bytes > 0) s->size = (struct sl_replay_size){.bytes = bytes};
}

static int place_size(struct cli_replay *r, struct cli_replay_size *s)
{
    sluice_error e;
    int by_layer = r->args->pool == CLI_POOL_LAYER;
    s->config.pool = by_layer ? SL_REPLAY_PER_LAYER : SL_REPLAY_ONE;
    s->config.skip_prompts = r->args->no_prompt;
    if (s->recorded) take_recorded(r, s);
    if (sl_replay_size(r->loaded, &s->size, r->args->expert_bits, &s->config, &s->bytes, &e)) {
        cli_error("--cache %s: %s", s->text, e.text);
        return CLI_EXIT_FAILURE;
    }
    if (s->recorded && !by_layer && s->size.slots)
        memcpy(s->config.n_slots, r->loaded->header.n_slots, sizeof s->config.n_slots);
    for (uint32_t k = 0; k < SL_TRACE_CLASSES; k++) s->slots += by_layer ? 0 : s->config.n_slots[k];
    for (uint32_t l = 0; l < SL_LAYERS_MAX; l++)
        s->slots += by_layer ? s->config.layer_slots[l] : 0;
    return CLI_EXIT_OK;
}

static int place_sizes(struct cli_replay *r)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n_sizes; i++) {
        struct cli_replay_size *s = &r->size[kept];
        if (kept != i) *s = r->size[i];
        if (s->recorded && r->n_slots == 0) {
            if (!r->args->cache_sizes) continue;
            cli_error("--cache recorded: the trace does not say how many slots there were; give "
                      "percent of the experts, bytes or slots");
            return CLI_EXIT_FAILURE;
        }
        int code = place_size(r, s);
        if (code) return code;
        kept++;
    }
    r->n_sizes = kept;
    return CLI_EXIT_OK;
}

/* ---- replays -----------------------------------------------------------------------------------
 */

struct watch {
    struct cli_progress progress;
    uint64_t before, total; /* visits */
};

static int on_visit(void *user, uint64_t visit, uint32_t uses, uint32_t hits, uint64_t bytes)
{
    struct watch *w = user;
    (void)uses, (void)hits, (void)bytes;
    if (visit % 1024 == 0) cli_progress_step(&w->progress, w->before + visit, w->total);
    return cli_interrupted();
}

static int replay_cell(struct cli_replay *r, uint32_t s, uint32_t p, struct watch *w)
{
    struct cli_replay_cell *cell = &r->cells[s * r->n_policies + p];
    struct sl_replay_config c = r->size[s].config;
    sluice_error e;
    c.policy = r->policy[p].policy;
    c.optimum = c.policy == NULL;
    c.on_visit = on_visit;
    c.user = w;
    if (sl_replay(&r->trace, &c, &r->budget, &e, &cell->result)) return cli_fail(&e);
    w->before += r->trace.n_visits;
    cell->token_ms = sl_speed_ms(&r->trace, &c, &r->speed, &r->budget, &e);
    if (isnan(cell->token_ms) && e.code) return cli_fail(&e);
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

static int replay_all(struct cli_replay *r)
{
    struct watch w = {.total = r->trace.n_visits * r->n_sizes * r->n_policies};
    int code = CLI_EXIT_OK;
    r->cells = sl_alloc(&r->budget, (uint64_t)r->n_sizes * r->n_policies, sizeof *r->cells);
    if (!r->cells) {
        cli_error("the system refused memory for the results");
        return CLI_EXIT_FAILURE;
    }
    cli_progress_begin(&w.progress, "replaying", "visits",
                       cli_progress_wanted(r->args->progress, r->args->quiet));
    for (uint32_t s = 0; s < r->n_sizes && !code; s++)
        for (uint32_t p = 0; p < r->n_policies && !code; p++) code = replay_cell(r, s, p, &w);
    cli_progress_end(&w.progress);
    return code;
}

/* ---- studies -----------------------------------------------------------------------------------
 */

static int draw_curves(struct cli_replay *r)
{
    struct sl_curve_config c = {.policy = SL_STACK_LRU, .pool = r->size[0].config.pool};
    sluice_error e;
    c.skip_prompts = r->args->no_prompt;
    if (!r->same_layers && c.pool == SL_REPLAY_PER_LAYER) return CLI_EXIT_OK; /* of which size? */
    if (sl_curve_stack(&r->trace, &c, &r->budget, &e, &r->lru)) return cli_fail(&e);
    if (cli_interrupted()) return CLI_EXIT_INTERRUPTED;
    c.policy = SL_STACK_OPTIMUM;
    if (sl_curve_stack(&r->trace, &c, &r->budget, &e, &r->best)) return cli_fail(&e);
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

uint32_t cli_replay_curve_slots(const struct cli_replay *r, uint32_t point, double *share)
{
    *share = (double)(point + 1) / CLI_REPLAY_CURVE;
    return (uint32_t)(*share * r->lru.n_max + 0.5);
}

static void ask_study(struct cli_replay *r, enum sl_predictor_kind kind, uint32_t ahead)
{
    uint32_t top_k = r->trace.header.layer[r->first_layer].top_k;
    for (uint32_t times = 1; times <= 3; times++)
        r->study[r->n_studies++] =
            (struct sl_predict_study){.kind = kind, .ahead = ahead, .budget = times * top_k};
}

static int predict(struct cli_replay *r)
{
    sluice_error e;
    if (!r->args->predictors) return CLI_EXIT_OK;
    ask_study(r, SL_PREDICT_PREVIOUS, 1);
    ask_study(r, SL_PREDICT_FREQUENT, 1);
    for (uint32_t ahead = 1; ahead <= SL_PREDICT_AHEAD_MAX; ahead *= 2)
        ask_study(r, SL_PREDICT_FOLLOWS, ahead);
    ask_study(r, SL_PREDICT_ROUTER, 1);
    if (sl_predict_studies(&r->trace, r->study, r->n_studies, &r->budget, &e)) return cli_fail(&e);
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

/* ---- the verb ----------------------------------------------------------------------------------
 */

static int check_usage(struct cli_replay *r)
{
    const struct cli_args *args = r->args;
    const char *sizes = args->cache_sizes ? args->cache_sizes : "recorded,10%,20%,30%,50%";
    if (!args->input || args->other) {
        cli_error(args->input ? "one trace at a time; write: sluice trace replay FILE"
                              : "no trace given; write: sluice trace replay FILE");
        return CLI_EXIT_USAGE;
    }
    int code = cli_replay_parse_sizes(r, sizes);
    if (code) return code;
    return cli_replay_parse_policies(r, args->policies ? args->policies : "default,lru,belady");
}

static void warn(const struct cli_replay *r)
{
    const struct sl_trace *t = r->loaded;
    if (t->cut)
        cli_note("the recording was cut off; what it holds is whole, and %llu bytes after that are "
                 "left out",
                 (unsigned long long)t->lost_bytes);
    if (t->header.lossy[0])
        cli_note("recorded with options that change answers (%s): an exact run may choose other "
                 "experts",
                 t->header.lossy);
    if (!r->sizes_known)
        cli_note("the trace does not say how large the experts are: bytes and speed are not known");
}

static int run(struct cli_replay *r)
{
    int code = load(r);
    if (code) return code;
    look_at_layers(r);
    count_recorded(r);
    warn(r);
    code = place_sizes(r);
    set_bits(r);
    if (!code && r->trace.n_tokens == 0) {
        cli_error(
            "%s: found no decoded tokens, only prompts, as ppl and bench prefill have; replay "
            "is about decoded ones, and sluice trace report shows what was read for prompts",
            r->args->input);
        code = CLI_EXIT_FAILURE;
    }
    if (!code) code = repeat(r);
    if (!code) code = replay_all(r);
    if (!code) code = draw_curves(r);
    if (!code) code = predict(r);
    return code;
}

int cli_trace_replay(const struct cli_args *args)
{
    static struct cli_replay replay; /* large */
    struct cli_replay *r = &replay;
    memset(r, 0, sizeof *r);
    r->args = args;
    r->speed = (struct sl_speed){(double)args->drive_bytes, args->compute_ms};
    sl_budget_init(&r->budget, UINT64_MAX);
    int code = check_usage(r);
    if (!code) code = run(r);
    if (!code && args->json)
        cli_replay_print_json(r);
    else if (!code)
        cli_replay_print(r);
    sl_curve_free(&r->lru);
    sl_curve_free(&r->best);
    sl_free(r->cells);
    sl_trace_free(r->loaded);
    return code;
}
