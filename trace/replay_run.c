/* Replay: visit after visit through the books (replay_drive.h) or the optimum (optimum.h), and the
 * sums of it. */
#include "trace/replay.h"

#include "trace/optimum.h"
#include "trace/replay_drive.h"

_Static_assert(SL_TRACE_CLASSES == SL_EC_CLASSES_MAX, "size classes of traces are the books'");

struct run {
    const struct sl_trace *t;
    const struct sl_replay_config *c;
    struct replay_drive *drive; /* or */
    struct sl_optimum *optimum;
    struct replay_choice *choice;
    uint8_t *seen; /* [experts of all layers] */
    uint32_t first[SL_LAYERS_MAX];
    struct sl_replay_result *out;
    uint64_t compared_eval, differing_eval; /* the last that counted, plus 1 */
};

/* ---- before ------------------------------------------------------------------------------------
 */

static sluice_err check_layers(const struct sl_trace *t, const struct sl_replay_config *c,
                               sluice_error *e)
{
    uint32_t top_k[SL_LAYERS_MAX];
    replay_top_k(t, top_k);
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        uint32_t k = t->header.layer[l].size_class;
        uint32_t slots = c->pool == SL_REPLAY_PER_LAYER ? c->layer_slots[l] : c->n_slots[k];
        if (slots >= top_k[l]) continue;
        return sl_fail(e, SLUICE_E_ARG,
                       "%u slots are too few: a token takes %u experts of layer %u at once", slots,
                       top_k[l], l);
    }
    return SLUICE_OK;
}

static sluice_err check(const struct sl_trace *t, const struct sl_replay_config *c, sluice_error *e)
{
    uint32_t first[SL_LAYERS_MAX];
    if (replay_first_expert(t, first) == 0)
        return sl_fail(e, SLUICE_E_ARG, "the trace has no layer with experts");
    if (!c->as_recorded) return check_layers(t, c, e);
    if (!(t->header.measured & SL_TRACE_OPS))
        return sl_fail(e, SLUICE_E_ARG,
                       "the trace does not hold all that repeating its run takes (reads ahead, hot "
                       "lists, closed slots); only a recording by --trace does");
    if (c->pool != SL_REPLAY_ONE || c->optimum || c->skip_prompts)
        return sl_fail(e, SLUICE_E_ARG,
                       "a recording is repeated with one pool, its own policy and its prompts");
    return check_layers(t, c, e);
}

static sluice_err open_run(struct run *r, struct sl_budget *b, sluice_error *e)
{
    uint32_t n = replay_first_expert(r->t, r->first);
    r->choice = sl_alloc(b, 1, sizeof *r->choice);
    r->seen = sl_alloc(b, n, 1);
    if (r->choice == NULL || r->seen == NULL)
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for a replay");
    if (r->c->optimum) return sl_optimum_open(r->t, r->c, b, e, &r->optimum);
    return replay_drive_open(r->t, r->c, b, e, &r->drive);
}

static void close_run(struct run *r)
{
    replay_drive_close(r->drive);
    sl_optimum_close(r->optimum);
    sl_free(r->choice);
    sl_free(r->seen);
}

/* ---- a visit -----------------------------------------------------------------------------------
 */

static struct sl_replay_sums sums_of(const struct run *r)
{
    const struct replay_choice *c = r->choice;
    struct sl_replay_sums s = {0, 0, 0, 0};
    uint64_t bytes = r->t->header.layer[c->layer].expert_bytes;
    for (uint32_t j = 0; j < c->n; j++) {
        uint8_t *seen = &r->seen[r->first[c->layer] + c->expert[j]];
        s.uses += c->uses[j];
        if (c->there[j] == REPLAY_AT_HAND) s.hits += c->uses[j];
        if (c->there[j] == REPLAY_MISSING) s.read_bytes += bytes;
        if (!*seen) s.cold += c->uses[j];
        *seen = 1;
    }
    return s;
}

static void add(struct sl_replay_sums *to, const struct sl_replay_sums *s)
{
    to->uses += s->uses;
    to->hits += s->hits;
    to->cold += s->cold;
    to->read_bytes += s->read_bytes;
}

/* A decoded token's choices against what the recording says of them. */
static void compare(struct run *r, uint64_t visit)
{
    const struct sl_trace_visit *v = &r->t->visits[visit];
    const struct replay_choice *c = r->choice;
    const uint8_t *states = r->t->states + v->first_choice;
    struct sl_replay_result *out = r->out;
    bool differs = false, known = false;
    for (uint32_t i = 0; i < v->top_k; i++) {
        uint32_t expert = r->t->chosen[v->first_choice + i], state = states[i];
        state &= SL_TRACE_STATE_MASK;
        if (expert == SL_TRACE_NONE || state == SL_TRACE_UNKNOWN) continue;
        known = true;
        bool hit = c->there[c->place[expert]] == REPLAY_AT_HAND;
        differs |= hit != (state == SL_TRACE_AT_HAND);
    }
    if (known && r->compared_eval != v->eval + UINT64_C(1)) {
        r->compared_eval = v->eval + UINT64_C(1);
        out->tokens_compared++;
    }
    if (!differs || r->differing_eval == v->eval + UINT64_C(1)) return;
    r->differing_eval = v->eval + UINT64_C(1);
    if (out->tokens_differ++ == 0) out->first_differs = v->eval;
}

static struct sl_replay_sums replay_visit(struct run *r, uint64_t visit)
{
    replay_collect(r->t, visit, r->choice);
    if (r->optimum)
        sl_optimum_visit(r->optimum, r->choice);
    else
        replay_drive_visit(r->drive, r->choice);
    struct sl_replay_sums s = sums_of(r);
    add(r->choice->is_prompt ? &r->out->prompt : &r->out->decode, &s);
    if (!r->choice->is_prompt) add(&r->out->layer[r->choice->layer], &s);
    if (r->c->as_recorded && r->t->states != NULL && !r->choice->is_prompt) compare(r, visit);
    return s;
}

sluice_err sl_replay(const struct sl_trace *t, const struct sl_replay_config *c,
                     struct sl_budget *b, sluice_error *e, struct sl_replay_result *out)
{
    *out = (struct sl_replay_result){.evictions = 0};
    struct run r = {.t = t, .c = c, .out = out};
    sluice_err err = check(t, c, e);
    if (err == SLUICE_OK) err = open_run(&r, b, e);
    for (uint64_t v = 0; err == SLUICE_OK && v < t->n_visits; v++) {
        if (r.drive != NULL) replay_drive_steps(r.drive, v);
        if (c->skip_prompts && replay_is_prompt(t, v)) continue;
        struct sl_replay_sums s = replay_visit(&r, v);
        if (c->on_visit != NULL &&
            c->on_visit(c->user, v, (uint32_t)s.uses, (uint32_t)s.hits, s.read_bytes))
            err = sl_fail(e, SLUICE_E_CANCELLED, "the replay was cancelled");
    }
    if (r.drive != NULL) out->evictions = replay_drive_evictions(r.drive);
    if (r.optimum != NULL) out->evictions = sl_optimum_evictions(r.optimum);
    close_run(&r);
    return err;
}
