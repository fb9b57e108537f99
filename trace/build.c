/* A trace in memory from records; see build.h. Arrays grow together with what they describe, so a
 * record that is refused leaves the trace as it was. */
#include "trace/build.h"

#include <string.h>

sluice_err sl_trace_build_open(struct sl_trace_build *build, const struct sl_trace_header *h,
                               struct sl_budget *b, sluice_error *e)
{
    *build = (struct sl_trace_build){.budget = b};
    sluice_err code = sl_trace_check_header(h, e);
    if (code != SLUICE_OK) return code;
    build->t = sl_alloc(b, 1, sizeof *build->t);
    if (build->t == NULL)
        return sl_fail(e, SLUICE_E_BUDGET, "a trace's header (%zu bytes) does not fit into memory",
                       sizeof *build->t);
    build->t->header = *h;
    build->t->header.version = SL_TRACE_VERSION;
    return SLUICE_OK;
}

/* Room for more elements of an array of the trace; pointer is its address. */
static sluice_err room(struct sl_trace_build *build, void *pointer, uint64_t *capacity,
                       uint64_t want, uint64_t size, sluice_error *e)
{
    sluice_err code = SLUICE_OK;
    if (want > *capacity) code = sl_grow(build->budget, pointer, capacity, want, size);
    if (code == SLUICE_OK) return code;
    return sl_fail(e, code, "the trace does not fit into memory: %llu MiB are taken",
                   (unsigned long long)(sl_budget_used(build->budget) >> 20));
}

static uint32_t layers_with_experts(const struct sl_trace_header *h)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < h->n_layers; l++) n += h->layer[l].n_experts > 0;
    return n;
}

static struct sl_trace_eval_span *last_eval(struct sl_trace *t)
{
    return t->n_evals ? &t->evals[t->n_evals - 1] : NULL;
}

/* Settles whether the eval under way has all its layers. */
static void settle(struct sl_trace_build *build)
{
    struct sl_trace_eval_span *last = last_eval(build->t);
    if (last) last->whole = last->n_visits == layers_with_experts(&build->t->header);
}

static sluice_err add_eval(struct sl_trace_build *build, const struct sl_trace_eval *r,
                           sluice_error *e)
{
    struct sl_trace *t = build->t;
    if (r->n_tokens == 0 || r->n_tokens > SL_CHUNK_MAX)
        return sl_fail(e, SLUICE_E_FORMAT, "an eval of %u tokens, wanted 1 to %d", r->n_tokens,
                       SL_CHUNK_MAX);
    if (r->position > UINT32_MAX - SL_CHUNK_MAX)
        return sl_fail(e, SLUICE_E_FORMAT, "an eval at position %u", r->position);
    sluice_err code = sl_trace_check_time(build, r->begin_ns, "begins", e);
    settle(build);
    if (code == SLUICE_OK)
        code = room(build, &t->evals, &build->room.evals, t->n_evals + 1, sizeof *t->evals, e);
    if (code != SLUICE_OK) return code;
    t->evals[t->n_evals++] =
        (struct sl_trace_eval_span){.e = *r, .first_visit = t->n_visits, .whole = false};
    build->next_layer = 0;
    build->last_ns = r->begin_ns;
    return SLUICE_OK;
}

/* Room for what a layer record brings. */
static sluice_err room_for_layer(struct sl_trace_build *build, const struct sl_trace_layer *r,
                                 sluice_error *e)
{
    struct sl_trace *t = build->t;
    uint64_t want = t->n_choices + (uint64_t)r->n_tokens * r->top_k;
    sluice_err code = room(build, &t->chosen, &build->room.chosen, want, sizeof *t->chosen, e);
    if (code == SLUICE_OK && (t->header.measured & SL_TRACE_WEIGHTS))
        code = room(build, &t->weights, &build->room.weights, want, sizeof *t->weights, e);
    if (code == SLUICE_OK && (t->header.measured & SL_TRACE_STATES))
        code = room(build, &t->states, &build->room.states, want, sizeof *t->states, e);
    if (code == SLUICE_OK && r->n_entries)
        code = room(build, &t->entries, &build->room.entries, t->n_entries + r->n_entries,
                    sizeof *t->entries, e);
    if (code == SLUICE_OK)
        code = room(build, &t->visits, &build->room.visits, t->n_visits + 1, sizeof *t->visits, e);
    return code;
}

static sluice_err add_layer(struct sl_trace_build *build, const struct sl_trace_layer *given,
                            sluice_error *e)
{
    struct sl_trace *t = build->t;
    struct sl_trace_layer kept = *given, *r = &kept; /* what the header does not name is not kept */
    if (!(t->header.measured & SL_TRACE_WEIGHTS)) kept.weights = NULL;
    if (!(t->header.measured & SL_TRACE_STATES)) kept.states = NULL;
    sluice_err code = sl_trace_check_layer(build, r, e);
    if (code == SLUICE_OK) code = room_for_layer(build, r, e);
    if (code != SLUICE_OK) return code;
    uint64_t n = (uint64_t)r->n_tokens * r->top_k;
    memcpy(t->chosen + t->n_choices, r->chosen, n * sizeof *t->chosen);
    if (t->weights && r->weights)
        memcpy(t->weights + t->n_choices, r->weights, n * sizeof *t->weights);
    if (t->states && r->states)
        memcpy(t->states + t->n_choices, r->states, n * sizeof *t->states);
    else if (t->states)
        memset(t->states + t->n_choices, SL_TRACE_UNKNOWN, n);
    if (r->n_entries) memcpy(t->entries + t->n_entries, r->entries, r->n_entries);
    t->visits[t->n_visits++] = (struct sl_trace_visit){
        .eval = (uint32_t)(t->n_evals - 1),
        .layer = r->layer,
        .n_tokens = r->n_tokens,
        .top_k = r->top_k,
        .first_choice = t->n_choices,
        .first_entry = t->n_entries,
        .n_entries = r->n_entries,
        .first_step = build->steps_seen,
        .n_steps = t->n_steps - build->steps_seen,
        .first_read = build->reads_seen,
        .n_reads = t->n_reads - build->reads_seen,
        .read_bytes = r->read_bytes,
        .begin_ns = r->begin_ns,
        .dense_ns = r->dense_ns,
        .expert_ns = r->expert_ns,
        .wait_ns = r->wait_ns,
    };
    t->evals[t->n_evals - 1].n_visits++;
    t->n_choices += n;
    t->n_entries += r->n_entries;
    build->steps_seen = t->n_steps;
    build->reads_seen = t->n_reads;
    build->next_layer = r->layer + 1;
    build->last_ns = r->begin_ns;
    return SLUICE_OK;
}

static sluice_err add_step(struct sl_trace_build *build, const struct sl_trace_step *s,
                           sluice_error *e)
{
    struct sl_trace *t = build->t;
    sluice_err code =
        room(build, &t->steps, &build->room.steps, t->n_steps + 1, sizeof *t->steps, e);
    if (code == SLUICE_OK) t->steps[t->n_steps++] = *s;
    return code;
}

static sluice_err add_hints(struct sl_trace_build *build, const struct sl_trace_hints *r,
                            sluice_error *e)
{
    struct sl_trace *t = build->t;
    sluice_err code = sl_trace_check_hints(build, r, e);
    if (code == SLUICE_OK)
        code = room(build, &t->hint_experts, &build->room.hint_experts, t->n_hints + r->n,
                    sizeof *t->hint_experts, e);
    if (code == SLUICE_OK)
        code = room(build, &t->hint_probabilities, &build->room.hint_probabilities,
                    t->n_hints + r->n, sizeof *t->hint_probabilities, e);
    struct sl_trace_step s = {.layer = r->layer,
                              .visits = r->visits,
                              .prompt = r->prompt,
                              .n = r->n,
                              .first = t->n_hints};
    if (code == SLUICE_OK) code = add_step(build, &s, e);
    if (code != SLUICE_OK || r->n == 0) return code;
    memcpy(t->hint_experts + t->n_hints, r->experts, r->n * sizeof *t->hint_experts);
    memcpy(t->hint_probabilities + t->n_hints, r->probabilities,
           r->n * sizeof *t->hint_probabilities);
    t->n_hints += r->n;
    return SLUICE_OK;
}

static sluice_err add_op(struct sl_trace_build *build, const struct sl_trace_op *r, sluice_error *e)
{
    struct sl_trace_step s = {.is_op = true, .op = *r};
    sluice_err code = sl_trace_check_op(build, r, e);
    return code == SLUICE_OK ? add_step(build, &s, e) : code;
}

static sluice_err add_read(struct sl_trace_build *build, const struct sl_trace_read *r,
                           sluice_error *e)
{
    struct sl_trace *t = build->t;
    sluice_err code = sl_trace_check_read(build, r, e);
    if (code == SLUICE_OK)
        code = room(build, &t->reads, &build->room.reads, t->n_reads + 1, sizeof *t->reads, e);
    if (code == SLUICE_OK) t->reads[t->n_reads++] = *r;
    return code;
}

static sluice_err add_done(struct sl_trace_build *build, const struct sl_trace_done *r,
                           sluice_error *e)
{
    struct sl_trace_eval_span *last = last_eval(build->t);
    if (last == NULL || last->done.end_ns)
        return sl_fail(e, SLUICE_E_FORMAT, "an eval is done that had not begun");
    sluice_err code = sl_trace_check_time(build, r->end_ns, "ends", e);
    for (uint32_t i = 0; i < SL_TRACE_PHASES && code == SLUICE_OK; i++)
        if (r->phase_ns[i] > SL_TRACE_NUMBER_MAX)
            code = sl_fail(e, SLUICE_E_FORMAT, "a time of more than 2^60 ns");
    if (code != SLUICE_OK) return code;
    last->done = *r;
    build->last_ns = r->end_ns;
    return SLUICE_OK;
}

sluice_err sl_trace_build_add(struct sl_trace_build *build, const struct sl_trace_record *r,
                              sluice_error *e)
{
    switch (r->kind) {
    case SL_TRACE_EVAL:
        return add_eval(build, &r->u.eval, e);
    case SL_TRACE_LAYER:
        return add_layer(build, &r->u.layer, e);
    case SL_TRACE_HINT:
        return add_hints(build, &r->u.hints, e);
    case SL_TRACE_OP:
        return add_op(build, &r->u.op, e);
    case SL_TRACE_READ:
        return add_read(build, &r->u.read, e);
    case SL_TRACE_DONE:
        return add_done(build, &r->u.done, e);
    case SL_TRACE_END:
        break;
    }
    return sl_fail(e, SLUICE_E_FORMAT, "a record of kind %d", (int)r->kind);
}

/* ---- the end ------------------------------------------------------------------------------------
 */

void sl_trace_build_drop_idle_layers(struct sl_trace_build *build)
{
    struct sl_trace *t = build->t;
    bool used[SL_LAYERS_MAX] = {false};
    for (uint64_t v = 0; v < t->n_visits; v++) {
        const uint16_t *c = t->chosen + t->visits[v].first_choice;
        uint32_t n = t->visits[v].n_tokens * t->visits[v].top_k;
        for (uint32_t i = 0; i < n && !used[t->visits[v].layer]; i++)
            used[t->visits[v].layer] = c[i] != SL_TRACE_NONE;
    }
    uint64_t visits = 0, choices = 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        struct sl_trace_eval_span *s = &t->evals[i];
        uint64_t first = s->first_visit, n = s->n_visits;
        s->first_visit = visits;
        for (uint64_t v = first; v < first + n; v++) {
            struct sl_trace_visit visit = t->visits[v];
            if (!used[visit.layer]) continue;
            uint64_t k = (uint64_t)visit.n_tokens * visit.top_k, from = visit.first_choice;
            memmove(t->chosen + choices, t->chosen + from, k * sizeof *t->chosen);
            if (t->weights) memmove(t->weights + choices, t->weights + from, k * sizeof(float));
            if (t->states) memmove(t->states + choices, t->states + from, k);
            visit.first_choice = choices;
            t->visits[visits++] = visit;
            choices += k;
        }
        s->n_visits = visits - s->first_visit;
    }
    t->n_visits = visits;
    t->n_choices = choices;
    for (uint32_t l = 0; l < t->header.n_layers; l++)
        if (!used[l]) t->header.layer[l].n_experts = t->header.layer[l].top_k = 0;
}

/* A recording that was cut within an eval: what it has of the eval's layers is no token. */
static void drop_unfinished(struct sl_trace *t)
{
    struct sl_trace_eval_span *last = last_eval(t);
    if (last == NULL || last->whole) return;
    t->n_visits = last->first_visit;
    if (last->n_visits) {
        t->n_choices = t->visits[t->n_visits].first_choice;
        t->n_entries = t->visits[t->n_visits].first_entry;
    }
    t->n_evals--;
}

sluice_err sl_trace_build_close(struct sl_trace_build *build, sluice_error *e,
                                struct sl_trace **out)
{
    struct sl_trace *t = build->t;
    *out = NULL;
    settle(build);
    drop_unfinished(t);
    const struct sl_trace_visit *last = t->n_visits ? &t->visits[t->n_visits - 1] : NULL;
    t->n_steps_after = t->n_steps - (last ? last->first_step + last->n_steps : 0);
    t->n_reads_after = t->n_reads - (last ? last->first_read + last->n_reads : 0);
    uint64_t tokens = 0, prompt = 0;
    for (uint64_t i = 0; i < t->n_evals; i++)
        *(t->evals[i].e.prompt ? &prompt : &tokens) += t->evals[i].e.n_tokens;
    sluice_err code = SLUICE_OK;
    if (tokens + prompt == 0 || t->n_visits == 0)
        code = t->cut
                   ? sl_fail(e, SLUICE_E_TRUNCATED,
                             "the recording was cut off before its first token was written whole")
                   : sl_fail(e, SLUICE_E_FORMAT, "holds no tokens, or not one that is whole");
    else if (tokens > UINT32_MAX || prompt > UINT32_MAX || t->n_evals > UINT32_MAX)
        code = sl_fail(e, SLUICE_E_LIMIT, "more than 4,294,967,295 tokens");
    if (code != SLUICE_OK) {
        sl_trace_build_discard(build);
        return code;
    }
    t->n_tokens = (uint32_t)tokens;
    t->n_prompt = (uint32_t)prompt;
    if (!(t->header.measured & SL_TRACE_WEIGHTS)) {
        sl_free(t->weights);
        t->weights = NULL;
    }
    if (!(t->header.measured & SL_TRACE_STATES)) {
        sl_free(t->states);
        t->states = NULL;
    }
    *out = t;
    *build = (struct sl_trace_build){0};
    return SLUICE_OK;
}

void sl_trace_build_discard(struct sl_trace_build *build)
{
    sl_trace_free(build->t);
    *build = (struct sl_trace_build){0};
}

void sl_trace_free(struct sl_trace *t)
{
    if (t == NULL) return;
    void *const arrays[] = {t->evals,   t->visits,       t->chosen,
                            t->weights, t->states,       t->entries,
                            t->steps,   t->hint_experts, t->hint_probabilities,
                            t->reads};
    for (size_t i = 0; i < SL_ARRAY_LEN(arrays); i++) sl_free(arrays[i]);
    sl_free(t);
}
