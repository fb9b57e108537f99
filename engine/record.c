/* See record.h. */
#include "engine/record.h"

#include <string.h>

#include "base/clock.h"

_Static_assert(SL_TRACE_PHASES == SL_PHASES, "a record has every phase");

/* Ops of one layer that are held back. A token's layer has a handful; a prompt's two for each of
 * its experts, and more where a hot list is read meanwhile. With more the layer's record is written
 * before its end, with what is known by then. */
#define HELD_MAX 4096u
#define HELD_HINTS SL_TRACE_OP_KINDS /* in place of a kind: the hints */

struct held {
    uint8_t kind, how;
    uint16_t layer;
    uint32_t expert;
};

struct sl_record {
    struct sl_trace_writer *w;
    const struct sl_model *m;
    const struct sl_log *log;
    struct sl_expert_watch watch;
    uint64_t start_ns; /* of the file's clock */
    uint32_t n_sessions;

    /* Up to where times and reads have been written. */
    struct sl_phases begin, mark; /* of the eval under way: at its start, and now */
    uint64_t stall_ns, read_bytes;

    /* The layer under way. */
    const struct sl_chunk *c;
    uint32_t k;   /* choices of each token */
    bool holding; /* it takes its slots: ops are held back until its record is written */
    uint64_t begin_ns;
    uint16_t *chosen;                /* [SL_CHUNK_MAX * max_top_k] */
    uint8_t *states;                 /* likewise */
    bool has_states;                 /* not of mapped files, of which nobody knows */
    float weights[SL_TOP_K_MAX];     /* of a token that leaves choices out */
    uint8_t entry[SL_EXPERTS_MAX];   /* by expert */
    uint8_t missing[SL_EXPERTS_MAX]; /* by expert: scratch */
    uint8_t entries[SL_EXPERTS_MAX]; /* of the missing ones */

    uint32_t n_held;
    struct held held[HELD_MAX];
    struct sl_trace_hints hints; /* held back too, with these: */
    bool has_hints;
    uint16_t hint_experts[SL_EXPERTS_MAX];
    float hint_probabilities[SL_EXPERTS_MAX];
};

/* ---- the layer under way -----------------------------------------------------------------------
 */

/* How each of the missing experts got its slot, ascending. One that got none, since the layer
 * failed, has left no trace: as if it had passed. */
static uint32_t list_entries(struct sl_record *r, uint32_t n_choices, uint32_t n_experts)
{
    uint32_t n = 0;
    memset(r->missing, 0, n_experts);
    for (uint32_t i = 0; i < n_choices; i++)
        if (r->states[i] == SL_TRACE_MISSING) r->missing[r->chosen[i]] = 1;
    for (uint32_t x = 0; x < n_experts; x++)
        if (r->missing[x]) r->entries[n++] = r->entry[x];
    return n;
}

static uint64_t since(const struct sl_record *r, enum sl_phase phase)
{
    return r->c->session->phases.ns[phase] - r->mark.ns[phase];
}

/* What the layer took since the last record: computing experts has in it what the waiting phase is
 * beyond waiting, checksums of what was read. */
static void put_times(struct sl_record *r, struct sl_trace_layer *out)
{
    struct sl_expert_stats x;
    sl_expert_get_stats(r->m->store, &x);
    uint64_t waiting = since(r, SL_PHASE_WAITING);
    out->wait_ns = x.stall_ns - r->stall_ns;
    out->expert_ns = since(r, SL_PHASE_EXPERT) + waiting - sl_min_u64(waiting, out->wait_ns);
    for (int i = 0; i < SL_PHASES; i++)
        if (i != SL_PHASE_EXPERT && i != SL_PHASE_WAITING)
            out->dense_ns += since(r, (enum sl_phase)i);
    out->read_bytes = x.demand_bytes + x.prompt_bytes - r->read_bytes;
    r->mark = r->c->session->phases;
    r->stall_ns = x.stall_ns;
    r->read_bytes = x.demand_bytes + x.prompt_bytes;
}

static void put_held(struct sl_record *r)
{
    for (uint32_t i = 0; i < r->n_held; i++) {
        const struct held *h = &r->held[i];
        if (h->kind == HELD_HINTS) {
            sl_trace_put_hints(r->w, &r->hints);
            continue;
        }
        const struct sl_trace_op op = {(enum sl_trace_op_kind)h->kind, h->layer, h->expert, h->how};
        sl_trace_put_op(r->w, &op);
    }
    r->n_held = 0;
    r->has_hints = false;
}

/* Writes the layer's record and what was held back for it. */
static void put_layer(struct sl_record *r)
{
    const struct sl_chunk *c = r->c;
    const struct sl_layer *y = &r->m->layers[c->layer];
    struct sl_trace_layer out = {
        .layer = c->layer,
        .n_tokens = c->n,
        .top_k = y->router.top_k,
        .chosen = r->chosen,
        .weights = r->k == y->router.top_k ? c->session->scratch.weight : r->weights,
        .states = r->has_states ? r->states : NULL,
        .begin_ns = r->begin_ns,
    };
    if (c->n > 1) {
        out.n_entries = list_entries(r, c->n * out.top_k, y->n_experts);
        out.entries = out.n_entries > 0 ? r->entries : NULL;
    }
    put_times(r, &out);
    sl_trace_put_layer(r->w, &out);
    r->holding = false;
    put_held(r);
}

/* A place among what is held back; the record is written early where there is none. */
static struct held *hold(struct sl_record *r, const struct held *h)
{
    if (r->n_held == HELD_MAX || (h->kind == HELD_HINTS && r->has_hints)) put_layer(r);
    if (!r->holding) return NULL;
    r->held[r->n_held] = *h;
    return &r->held[r->n_held++];
}

/* ---- what the store tells ----------------------------------------------------------------------
 */

static void on_choice(void *user, uint32_t index, uint8_t state)
{
    struct sl_record *r = user;
    r->states[index] = state;
}

static void on_layer(void *user)
{
    struct sl_record *r = user;
    if (r->c == NULL) return;
    r->holding = true;
    r->begin_ns = sl_now_ns() - r->start_ns;
}

static void on_op(void *user, const struct sl_trace_op *op)
{
    struct sl_record *r = user;
    const struct held h = {(uint8_t)op->kind, (uint8_t)op->how, (uint16_t)op->layer, op->expert};
    if (op->kind == SL_TRACE_ENTRY) r->entry[op->expert] = (uint8_t)op->how;
    if (!r->holding || hold(r, &h) == NULL) sl_trace_put_op(r->w, op);
}

/* Of a prompt's hints, of which there is one for every expert, those that protect are enough. */
static void on_hints(void *user, const struct sl_expert_expected *x)
{
    struct sl_record *r = user;
    const struct held h = {.kind = HELD_HINTS};
    bool held = r->holding && hold(r, &h) != NULL;
    r->hints = (struct sl_trace_hints){.layer = x->layer,
                                       .visits = x->visits,
                                       .prompt = x->prompt,
                                       .experts = r->hint_experts,
                                       .probabilities = r->hint_probabilities};
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->prompt && !(x->hints[i].probability >= SL_PROTECT_PROBABILITY)) continue;
        r->hint_experts[r->hints.n] = (uint16_t)x->hints[i].expert;
        r->hint_probabilities[r->hints.n++] = x->hints[i].probability;
    }
    r->has_hints = held;
    if (!held) sl_trace_put_hints(r->w, &r->hints);
}

static void on_read(void *user, const struct sl_trace_read *read)
{
    struct sl_record *r = user;
    struct sl_trace_read out = *read;
    out.begin_ns -= sl_min_u64(out.begin_ns, r->start_ns);
    sl_trace_put_read(r->w, &out);
}

const struct sl_expert_watch *sl_record_watch(const struct sl_record *r) { return &r->watch; }

/* ---- what the forward pass tells ---------------------------------------------------------------
 */

uint32_t sl_record_session(struct sl_record *r) { return r->n_sessions++; }

void sl_record_eval(struct sl_record *r, const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    r->begin = r->mark = s->phases;
    const struct sl_trace_eval out = {.session = s->number,
                                      .position = c->pos,
                                      .n_tokens = c->n,
                                      .prompt = c->prompt,
                                      .begin_ns = sl_now_ns() - r->start_ns};
    sl_trace_put_eval(r->w, &out);
}

void sl_record_chosen(struct sl_record *r, const struct sl_chunk *c, uint32_t k)
{
    const struct sl_scratch *s = &c->session->scratch;
    uint32_t width = r->m->layers[c->layer].router.top_k, n = c->n * k;
    SLUICE_ASSERT(c->n <= SL_CHUNK_MAX && (k == width || (k < width && c->n == 1)));
    r->c = c;
    r->k = k;
    for (uint32_t i = 0; i < n; i++) r->chosen[i] = (uint16_t)s->chosen[i];
    if (c->n > 1) memset(r->entry, SL_TRACE_PASSED_FREE, r->m->layers[c->layer].n_experts);
    if (k == width) return;
    memcpy(r->weights, s->weight, k * sizeof *r->weights);
    for (uint32_t i = k; i < width; i++) {
        r->chosen[i] = SL_TRACE_NONE;
        r->weights[i] = 0.0f;
        r->states[i] = SL_TRACE_UNKNOWN;
    }
}

void sl_record_layer(struct sl_record *r, const struct sl_chunk *c)
{
    SLUICE_ASSERT(r->c == c);
    if (r->holding) put_layer(r);
    r->c = NULL;
}

static void tell_failure(struct sl_record *r)
{
    sluice_error e;
    if (sl_trace_failed(r->w, &e) != SLUICE_OK)
        sl_log_line(r->log, SL_LOG_ERROR, "%s; the trace ends there, the answer goes on", e.text);
}

void sl_record_done(struct sl_record *r, const struct sl_chunk *c)
{
    struct sl_session *s = c->session;
    sl_phase_next(&s->phases, SL_PHASE_OTHER);
    struct sl_trace_done out = {.end_ns = sl_now_ns() - r->start_ns};
    for (int i = 0; i < SL_PHASES; i++) out.phase_ns[i] = s->phases.ns[i] - r->begin.ns[i];
    sl_trace_put_done(r->w, &out);
    tell_failure(r);
}

void sl_record_flush(struct sl_record *r)
{
    sl_trace_flush(r->w);
    tell_failure(r);
}

/* ---- opening and closing -----------------------------------------------------------------------
 */

static uint64_t n_choices(const struct sl_model *m)
{
    return (uint64_t)SL_CHUNK_MAX * m->max_top_k;
}

uint64_t sl_record_bytes(const struct sl_model *m)
{
    return sl_trace_writer_bytes() + 3 * (uint64_t)SL_BLOCK_OVERHEAD_BYTES +
           sizeof(struct sl_record) + n_choices(m) * (sizeof(uint16_t) + sizeof(uint8_t));
}

sluice_err sl_record_open(const struct sl_record_config *c, struct sl_budget *b, sluice_error *e,
                          struct sl_record **out)
{
    *out = NULL;
    struct sl_record *r = sl_alloc(b, 1, sizeof *r);
    if (!r) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a trace");
    r->m = c->m;
    r->log = c->log;
    r->has_states = (c->header->measured & SL_TRACE_STATES) != 0;
    r->watch = (struct sl_expert_watch){r, on_choice, on_layer, on_op, on_hints, on_read};
    r->chosen = sl_alloc(b, n_choices(c->m), sizeof *r->chosen);
    r->states = sl_alloc(b, n_choices(c->m), sizeof *r->states);
    sluice_err err = SLUICE_OK;
    if (!r->chosen || !r->states) err = sl_fail(e, SLUICE_E_NOMEM, "no memory for a trace");
    if (err == SLUICE_OK) err = sl_trace_create(c->path, c->header, b, e, &r->w);
    if (err != SLUICE_OK) {
        sl_record_close(r);
        return err;
    }
    r->start_ns = sl_now_ns() - sl_trace_now_ns(r->w);
    *out = r;
    return SLUICE_OK;
}

void sl_record_close(struct sl_record *r)
{
    sluice_error e;
    if (!r) return;
    if (sl_trace_close(r->w, &e) != SLUICE_OK)
        sl_log_line(r->log, SL_LOG_ERROR, "%s; the end of the trace is missing", e.text);
    sl_free(r->chosen);
    sl_free(r->states);
    sl_free(r);
}
