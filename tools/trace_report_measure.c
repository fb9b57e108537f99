/* What a trace itself says, summed up: uses, hits, bytes and times of decoded tokens, by visit,
 * layer and expert. Where it does not say what was in memory, a replay does. */
#include <math.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/report.h"
#include "tools/trace_report.h"

#define NS_PER_MS 1e6
/* why of reads */
#define WHY_GUESS 2u
#define WHY_COMING 3u

int cli_rep_timed(const struct sl_trace *t, const struct sl_trace_eval_span *eval)
{
    return (t->header.measured & SL_TRACE_TIMES) && eval->done.end_ns > eval->e.begin_ns;
}

/* ---- shape ----------------------------------------------------------------------------------- */

static void shape(struct cli_rep_trace *rt)
{
    const struct sl_trace_header *h = &rt->t->header;
    int sized = 1;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const struct sl_trace_layer_info *info = &h->layer[l];
        if (!info->n_experts) continue;
        rt->moe_layers++;
        rt->n_experts += info->n_experts;
        rt->token_experts += info->top_k;
        rt->slot_bytes += (uint64_t)info->n_experts * info->slot_bytes;
        sized = sized && info->slot_bytes;
        if (info->n_experts > rt->stride) rt->stride = info->n_experts;
    }
    if (!sized) rt->slot_bytes = 0;
    if (!rt->stride) rt->stride = 1;
    size_t cells = (size_t)h->n_layers * rt->stride;
    rt->uses = cli_alloc(cells, sizeof *rt->uses);
    rt->expert_hits = cli_alloc(cells, sizeof *rt->expert_hits);
    rt->visit_hits = cli_alloc(rt->t->n_visits, sizeof *rt->visit_hits);
    rt->visit_bytes = cli_alloc(rt->t->n_visits, sizeof *rt->visit_bytes);
}

/* ---- hits ------------------------------------------------------------------------------------ */

static void recorded_hits(struct cli_rep_trace *rt)
{
    const struct sl_trace *t = rt->t;
    rt->hits = CLI_REP_RECORDED;
    for (uint64_t v = 0; v < t->n_visits; v++) {
        const struct sl_trace_visit *visit = &t->visits[v];
        uint64_t n = (uint64_t)visit->n_tokens * visit->top_k;
        for (uint64_t i = 0; i < n; i++) {
            uint8_t state = t->states[visit->first_choice + i] & SL_TRACE_STATE_MASK;
            rt->visit_hits[v] += state == SL_TRACE_AT_HAND;
        }
        rt->visit_bytes[v] = visit->read_bytes;
    }
    for (uint32_t c = 0; c < SL_TRACE_CLASSES; c++) rt->slots += t->header.n_slots[c];
    rt->has_bytes = (t->header.measured & SL_TRACE_TIMES) != 0;
}

static int take_visit(void *user, uint64_t visit, uint32_t uses, uint32_t hits, uint64_t bytes)
{
    struct cli_rep_trace *rt = user;
    (void)uses;
    if (visit < rt->t->n_visits) {
        rt->visit_hits[visit] = hits;
        rt->visit_bytes[visit] = bytes;
    }
    return cli_interrupted();
}

static int replayed_hits(struct cli_rep_trace *rt)
{
    struct sl_replay_config config = {.on_visit = take_visit, .user = rt};
    struct sl_replay_result result;
    struct sl_replay_size size = {.share = CLI_REP_DEFAULT_SHARE};
    uint64_t bytes;
    sluice_error e;
    if (sl_replay_size(rt->t, &size, 0, &config, &bytes, &e)) return cli_fail(&e);
    if (sl_replay(rt->t, &config, rt->budget, &e, &result)) return cli_fail(&e);
    for (uint32_t c = 0; c < SL_TRACE_CLASSES; c++) rt->slots += config.n_slots[c];
    rt->hits = CLI_REP_REPLAYED;
    rt->has_bytes = 1;
    for (uint32_t l = 0; l < rt->t->header.n_layers; l++)
        if (rt->t->header.layer[l].n_experts && !rt->t->header.layer[l].expert_bytes)
            rt->has_bytes = 0;
    return CLI_EXIT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* One visit's choices into its layer; seen: one byte an expert that was ever used. */
static void add_choices(struct cli_rep_trace *rt, uint64_t v, int decode, uint8_t *seen)
{
    const struct sl_trace *t = rt->t;
    const struct sl_trace_visit *visit = &t->visits[v];
    struct cli_rep_layer *layer = &rt->layer[visit->layer];
    uint64_t n = (uint64_t)visit->n_tokens * visit->top_k;
    for (uint64_t i = visit->first_choice; i < visit->first_choice + n; i++) {
        if (t->chosen[i] == SL_TRACE_NONE) continue;
        size_t cell = (size_t)visit->layer * rt->stride + t->chosen[i];
        uint8_t state = t->states ? t->states[i] : SL_TRACE_UNKNOWN;
        layer->ahead_useful += (state & SL_TRACE_AHEAD) != 0;
        if (decode) {
            layer->uses++;
            layer->cold += !seen[cell];
            layer->distinct += rt->uses[cell] == 0;
            layer->flying += t->states && (state & SL_TRACE_STATE_MASK) == SL_TRACE_FLYING;
            rt->uses[cell]++;
            rt->expert_hits[cell] += t->states && (state & SL_TRACE_STATE_MASK) == SL_TRACE_AT_HAND;
        }
        seen[cell] = 1;
    }
    if (!decode) return;
    layer->hits += rt->visit_hits[v];
    layer->read_bytes += rt->visit_bytes[v];
    layer->dense_ns += visit->dense_ns;
    layer->expert_ns += visit->expert_ns;
    layer->wait_ns += visit->wait_ns;
}

/* Reads ahead that arrived, where single reads are recorded: some are taken back before they begin.
 * Otherwise all that got a slot. */
static void add_reads_ahead(struct cli_rep_trace *rt)
{
    const struct sl_trace *t = rt->t;
    int recorded = (t->header.measured & SL_TRACE_READS) != 0;
    for (uint64_t i = 0; recorded && i < t->n_reads; i++)
        if (t->reads[i].why == WHY_GUESS || t->reads[i].why == WHY_COMING)
            rt->layer[t->reads[i].layer].ahead_begun++;
    if (recorded) return;
    for (uint64_t i = 0; i < t->n_steps; i++) {
        const struct sl_trace_step *s = &t->steps[i];
        if (!s->is_op || s->op.layer >= t->header.n_layers) continue;
        if (s->op.kind == SL_TRACE_GUESS || s->op.kind == SL_TRACE_COMING)
            rt->layer[s->op.layer].ahead_begun++;
    }
}

/* Bytes that were read ahead on a guess, which is for decoded tokens. */
static uint64_t decode_ahead_bytes(const struct sl_trace *t)
{
    uint64_t bytes = 0;
    int recorded = (t->header.measured & SL_TRACE_READS) != 0;
    for (uint64_t i = 0; recorded && i < t->n_reads; i++)
        if (t->reads[i].why == WHY_GUESS) bytes += t->reads[i].bytes;
    if (recorded) return bytes;
    for (uint64_t v = 0; v < t->n_visits; v++) {
        const struct sl_trace_visit *visit = &t->visits[v];
        if (t->evals[visit->eval].e.prompt) continue;
        for (uint64_t i = visit->first_step; i < visit->first_step + visit->n_steps; i++) {
            const struct sl_trace_op *op = &t->steps[i].op;
            if (t->steps[i].is_op && op->kind == SL_TRACE_GUESS && op->layer < t->header.n_layers)
                bytes += t->header.layer[op->layer].expert_bytes;
        }
    }
    return bytes;
}

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

static void sum_reads_ahead(struct cli_rep_trace *rt)
{
    const struct sl_trace *t = rt->t;
    struct cli_rep_totals *s = &rt->totals;
    uint32_t wanted = SL_TRACE_OPS | SL_TRACE_STATES;
    int known = (t->header.measured & wanted) == wanted, sized = 1;
    double bytes = 0, useful_bytes = 0, begun = 0, useful = 0;
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        double expert_bytes = (double)t->header.layer[l].expert_bytes;
        begun += (double)rt->layer[l].ahead_begun;
        useful += (double)rt->layer[l].ahead_useful;
        bytes += expert_bytes * (double)rt->layer[l].ahead_begun;
        useful_bytes += expert_bytes * (double)rt->layer[l].ahead_useful;
        sized = sized && (expert_bytes > 0 || !rt->layer[l].ahead_begun);
    }
    s->ahead_begun = known ? begun : NAN;
    s->ahead_useful = known ? useful : NAN;
    s->ahead_useful_share = known ? ratio(useful, begun) : NAN;
    s->ahead_bytes = known && sized ? bytes : NAN;
    s->ahead_useful_bytes = known && sized ? useful_bytes : NAN;
    if (known && sized && rt->hits == CLI_REP_RECORDED)
        s->read_bytes += (double)decode_ahead_bytes(t);
}

/* Times of the decoded tokens that were recorded to their end. */
static void sum_times(struct cli_rep_trace *rt)
{
    const struct sl_trace *t = rt->t;
    struct cli_rep_totals *s = &rt->totals;
    double all = 0, dense = 0, expert = 0, wait = 0, n = 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *eval = &t->evals[i];
        if (eval->e.prompt || !cli_rep_timed(t, eval)) continue;
        all += (double)(eval->done.end_ns - eval->e.begin_ns);
        n += eval->e.n_tokens;
        for (uint64_t v = eval->first_visit; v < eval->first_visit + eval->n_visits; v++) {
            dense += (double)t->visits[v].dense_ns;
            expert += (double)t->visits[v].expert_ns;
            wait += (double)t->visits[v].wait_ns;
        }
    }
    s->decode_ms = n > 0 ? all / NS_PER_MS : NAN;
    s->token_ms = ratio(all / NS_PER_MS, n);
    s->tokens_per_s = ratio(1000 * n, all / NS_PER_MS);
    s->token_dense_ms = ratio(dense / NS_PER_MS, n);
    s->token_expert_ms = ratio(expert / NS_PER_MS, n);
    s->token_wait_ms = ratio(wait / NS_PER_MS, n);
    s->token_other_ms = ratio((all - dense - expert - wait) / NS_PER_MS, n);
    s->wait_share = ratio(wait, all);
    if (strcmp(t->header.io, "mmap") != 0) return;
    /* What the kernel reads of mapped files, and who waits for it, nobody knows. */
    s->token_wait_ms = s->wait_share = NAN;
}

static void sum_up(struct cli_rep_trace *rt)
{
    struct cli_rep_totals *s = &rt->totals;
    const struct sl_trace *t = rt->t;
    double bytes = 0;
    s->decoded_tokens = t->n_tokens;
    s->prompt_tokens = t->n_prompt;
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        s->uses += (double)rt->layer[l].uses;
        s->hits += (double)rt->layer[l].hits;
        s->flying += (double)rt->layer[l].flying;
        s->cold += (double)rt->layer[l].cold;
        s->distinct_experts += (double)rt->layer[l].distinct;
        bytes += (double)rt->layer[l].read_bytes;
    }
    s->hit_rate = ratio(s->hits, s->uses);
    s->flying_share = t->states ? ratio(s->flying, s->uses) : NAN;
    s->cold_share = ratio(s->cold, s->uses);
    if (!t->states) s->flying = NAN;
    s->read_bytes = rt->has_bytes ? bytes : NAN;
    sum_reads_ahead(rt);
    s->token_read_bytes = ratio(s->read_bytes, s->decoded_tokens);
    s->slots = rt->slots ? rt->slots : NAN;
    s->slot_share = rt->slots ? ratio(rt->slots, rt->n_experts) : NAN;
    sum_times(rt);
    double rate = sl_drive_rate(t);
    s->drive_bytes_per_s = rate > 0 ? rate : NAN;
    s->default_hit_rate = s->lru_hit_rate = s->optimum_hit_rate = s->knee_share = NAN;
    s->reuse_cold_share = s->again_next = NAN;
}

int cli_rep_measure(struct cli_rep_trace *rt)
{
    const struct sl_trace *t = rt->t;
    int code = CLI_EXIT_OK;
    shape(rt);
    if (t->states)
        recorded_hits(rt);
    else if (t->n_tokens)
        code = replayed_hits(rt);
    if (code) return code;
    uint8_t *seen = cli_alloc((size_t)t->header.n_layers * rt->stride, 1);
    uint32_t session = UINT32_MAX;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *eval = &t->evals[i];
        rt->totals.prompts += i == 0 || eval->e.session != session;
        session = eval->e.session;
        for (uint64_t v = eval->first_visit; v < eval->first_visit + eval->n_visits; v++)
            add_choices(rt, v, !eval->e.prompt, seen);
    }
    cli_free(seen);
    add_reads_ahead(rt);
    sum_up(rt);
    return CLI_EXIT_OK;
}

void cli_rep_free(struct cli_rep_trace *rt)
{
    cli_free(rt->uses);
    cli_free(rt->expert_hits);
    cli_free(rt->visit_hits);
    cli_free(rt->visit_bytes);
    sl_trace_free(rt->t);
    memset(rt, 0, sizeof *rt);
}
