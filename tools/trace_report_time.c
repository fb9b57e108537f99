/* Of a trace report: what was recorded, the headline numbers, hits over time, layers, the heat map
 * and the hottest experts. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/trace_report.h"

#define POINTS_MAX 400 /* of hits over time */
#define NS_PER_MS 1e6

/* ---- what was recorded ----------------------------------------------------------------------- */

static void put_when(struct cli_rep *r, uint64_t unix_s)
{
    char text[40];
    time_t when = (time_t)unix_s;
    struct tm utc;
    if (unix_s && gmtime_r(&when, &utc) &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc))
        cli_rep_string(r, "recorded_at", text);
    else
        cli_rep_null(r, "recorded_at");
}

static void put_measured(struct cli_rep *r, const struct sl_trace_header *h)
{
    cli_rep_bool(r, "has_weights", (h->measured & SL_TRACE_WEIGHTS) != 0);
    cli_rep_bool(r, "has_states", (h->measured & SL_TRACE_STATES) != 0);
    cli_rep_bool(r, "has_times", (h->measured & SL_TRACE_TIMES) != 0);
    cli_rep_bool(r, "has_hints", (h->measured & SL_TRACE_HINTS) != 0);
    cli_rep_bool(r, "has_reads", (h->measured & SL_TRACE_READS) != 0);
    cli_rep_bool(r, "has_ops", (h->measured & SL_TRACE_OPS) != 0);
}

static void put_recorded(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    const struct sl_trace_header *h = &rt->t->header;
    char hash[24] = "";
    uint32_t slots = 0;
    if (h->model_hash)
        (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)h->model_hash);
    for (uint32_t c = 0; c < SL_TRACE_CLASSES; c++) slots += h->n_slots[c];
    cli_rep_section(r, "recorded");
    cli_rep_known_string(r, "program", h->program);
    cli_rep_known_string(r, "model", h->model);
    cli_rep_known_string(r, "model_file", h->file);
    cli_rep_known_string(r, "arch", h->architecture);
    cli_rep_known_string(r, "model_hash", hash);
    cli_rep_known(r, "model_bytes", h->model_bytes);
    cli_rep_known_string(r, "machine", h->machine);
    cli_rep_known_string(r, "isa", h->isa);
    cli_rep_known_string(r, "policy", h->policy);
    cli_rep_known_string(r, "io", h->io);
    cli_rep_known_string(r, "prefetch", h->prefetch);
    /* An empty text means none only where a recording says how it ran. */
    if (h->lossy[0] || (h->measured & SL_TRACE_TIMES))
        cli_rep_string(r, "lossy", h->lossy);
    else
        cli_rep_null(r, "lossy");
    cli_rep_known(r, "ram_bytes", h->ram_bytes);
    put_when(r, h->unix_s);
    cli_rep_known(r, "ctx_size", h->n_ctx);
    cli_rep_known(r, "threads", h->threads);
    cli_rep_known(r, "chunk", h->chunk);
    cli_rep_known(r, "slots", slots);
    cli_rep_known(r, "ring_slots", h->ring_slots);
    cli_rep_bool(r, "cut", rt->t->cut);
    cli_rep_count(r, "lost_bytes", rt->t->lost_bytes);
    put_measured(r, h);
}

void cli_rep_about(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    static const char *const kinds[] = {"none", "recorded", "replayed"};
    const char *slash = strrchr(rt->path, '/');
    cli_rep_section(r, "source");
    cli_rep_string(r, "file", slash && slash[1] ? slash + 1 : rt->path);
    put_recorded(rt, r);
    cli_rep_section(r, "hits");
    cli_rep_string(r, "kind", kinds[rt->hits]);
    cli_rep_known_string(r, "policy",
                         rt->hits == CLI_REP_REPLAYED ? "default" : rt->t->header.policy);
    cli_rep_known(r, "slots", rt->slots);
    cli_rep_number(r, "share", rt->totals.slot_share);
}

void cli_rep_totals(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    const struct cli_rep_totals *s = &rt->totals;
    cli_rep_section(r, "totals");
    cli_rep_count(r, "moe_layers", rt->moe_layers);
    cli_rep_count(r, "experts", rt->n_experts);
    cli_rep_count(r, "token_experts", rt->token_experts);
    cli_rep_known(r, "slot_bytes", rt->slot_bytes);
    cli_rep_number(r, "decoded_tokens", s->decoded_tokens);
    cli_rep_number(r, "prompt_tokens", s->prompt_tokens);
    cli_rep_count(r, "uses", (uint64_t)s->uses);
    cli_rep_count(r, "hits", (uint64_t)s->hits);
    cli_rep_number(r, "hits_flying", s->flying);
    cli_rep_count(r, "cold", (uint64_t)s->cold);
    cli_rep_number(r, "hit_rate", rt->hits == CLI_REP_NO_HITS ? NAN : s->hit_rate);
    cli_rep_number(r, "flying_share", s->flying_share);
    cli_rep_number(r, "cold_share", s->cold_share);
    cli_rep_number(r, "distinct_experts", s->distinct_experts);
    cli_rep_number(r, "read_bytes", s->read_bytes);
    cli_rep_number(r, "token_read_bytes", s->token_read_bytes);
    cli_rep_number(r, "ahead_begun", s->ahead_begun);
    cli_rep_number(r, "ahead_useful", s->ahead_useful);
    cli_rep_number(r, "ahead_useful_share", s->ahead_useful_share);
    cli_rep_number(r, "ahead_bytes", s->ahead_bytes);
    cli_rep_number(r, "ahead_useful_bytes", s->ahead_useful_bytes);
    cli_rep_number(r, "decode_ms", s->decode_ms);
    cli_rep_number(r, "token_ms", s->token_ms);
    cli_rep_number(r, "tokens_per_s", s->tokens_per_s);
    cli_rep_number(r, "token_wait_ms", s->token_wait_ms);
    cli_rep_number(r, "token_dense_ms", s->token_dense_ms);
    cli_rep_number(r, "token_expert_ms", s->token_expert_ms);
    cli_rep_number(r, "token_other_ms", s->token_other_ms);
    cli_rep_number(r, "wait_share", s->wait_share);
    cli_rep_number(r, "drive_bytes_per_s", s->drive_bytes_per_s);
    cli_rep_number(r, "reuse_cold_share", s->reuse_cold_share);
    cli_rep_number(r, "again_next", s->again_next);
}

/* ---- over time ------------------------------------------------------------------------------- */

struct point {
    uint64_t first, tokens, uses, hits, bytes, wait_ns, total_ns;
    int timed;
};

static void put_point(const struct cli_rep_trace *rt, struct cli_rep *r, const struct point *p)
{
    cli_rep_row(r);
    cli_rep_count(r, NULL, p->first);
    cli_rep_count(r, NULL, p->tokens);
    cli_rep_count(r, NULL, p->uses);
    cli_rep_count(r, NULL, p->hits);
    cli_rep_number(r, NULL, p->uses ? (double)p->hits / (double)p->uses : NAN);
    cli_rep_number(r, NULL, rt->has_bytes ? (double)p->bytes : NAN);
    cli_rep_number(r, NULL, p->timed ? (double)p->wait_ns / NS_PER_MS : NAN);
    cli_rep_number(r, NULL, p->timed ? (double)p->total_ns / NS_PER_MS : NAN);
}

static void add_eval(const struct cli_rep_trace *rt, const struct sl_trace_eval_span *eval,
                     struct point *p)
{
    const struct sl_trace *t = rt->t;
    for (uint64_t v = eval->first_visit; v < eval->first_visit + eval->n_visits; v++) {
        uint64_t n = (uint64_t)t->visits[v].n_tokens * t->visits[v].top_k;
        for (uint64_t i = t->visits[v].first_choice; n; n--, i++)
            p->uses += t->chosen[i] != SL_TRACE_NONE;
        p->hits += rt->visit_hits[v];
        p->bytes += rt->visit_bytes[v];
        p->wait_ns += t->visits[v].wait_ns;
    }
    p->tokens += eval->e.n_tokens;
    p->timed = p->timed && cli_rep_timed(t, eval);
    if (p->timed) p->total_ns += eval->done.end_ns - eval->e.begin_ns;
}

/* Where prompts, or other conversations, begin among the decoded tokens. */
static void put_prompts(const struct sl_trace *t, struct cli_rep *r)
{
    uint64_t decoded = 0;
    cli_rep_table(r, "prompts", "before_token session prompt_tokens");
    for (uint64_t i = 0; i < t->n_evals;) {
        const struct sl_trace_eval *first = &t->evals[i].e;
        uint64_t tokens = 0;
        int begins = first->prompt || i == 0 || t->evals[i - 1].e.session != first->session;
        for (; i < t->n_evals && t->evals[i].e.prompt && t->evals[i].e.session == first->session;
             i++)
            tokens += t->evals[i].e.n_tokens;
        if (begins) {
            cli_rep_row(r);
            cli_rep_count(r, NULL, decoded);
            cli_rep_count(r, NULL, first->session);
            cli_rep_known(r, NULL, tokens);
        }
        if (!first->prompt) decoded += t->evals[i++].e.n_tokens;
    }
}

void cli_rep_time(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    const struct sl_trace *t = rt->t;
    uint64_t a_point = (t->n_tokens + POINTS_MAX - 1) / POINTS_MAX, decoded = 0;
    struct point p = {.timed = 1};
    cli_rep_table(r, "time", "first_token tokens uses hits hit_rate read_bytes wait_ms total_ms");
    for (uint64_t i = 0; i < t->n_evals; i++) {
        if (t->evals[i].e.prompt) continue;
        add_eval(rt, &t->evals[i], &p);
        decoded += t->evals[i].e.n_tokens;
        if (p.tokens < a_point) continue;
        put_point(rt, r, &p);
        p = (struct point){.first = decoded, .timed = 1};
    }
    if (p.tokens) put_point(rt, r, &p);
    put_prompts(t, r);
}

/* ---- layers and experts ---------------------------------------------------------------------- */

static void put_layer(const struct cli_rep_trace *rt, struct cli_rep *r, uint32_t l)
{
    const struct sl_trace_layer_info *info = &rt->t->header.layer[l];
    const struct cli_rep_layer *s = &rt->layer[l];
    int timed = (rt->t->header.measured & SL_TRACE_TIMES) != 0;
    cli_rep_row(r);
    cli_rep_count(r, NULL, l);
    cli_rep_count(r, NULL, info->n_experts);
    cli_rep_count(r, NULL, info->top_k);
    cli_rep_count(r, NULL, s->uses);
    cli_rep_count(r, NULL, s->hits);
    cli_rep_number(r, NULL, s->uses ? (double)s->hits / (double)s->uses : NAN);
    cli_rep_count(r, NULL, s->cold);
    cli_rep_count(r, NULL, s->distinct);
    cli_rep_number(r, NULL, rt->has_bytes ? (double)s->read_bytes : NAN);
    cli_rep_number(r, NULL, timed ? (double)s->dense_ns / NS_PER_MS : NAN);
    cli_rep_number(r, NULL, timed ? (double)s->expert_ns / NS_PER_MS : NAN);
    cli_rep_number(r, NULL, timed ? (double)s->wait_ns / NS_PER_MS : NAN);
}

static void put_ahead(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    const struct sl_trace_header *h = &rt->t->header;
    cli_rep_table(r, "prefetch", "layer begun useful share begun_bytes useful_bytes");
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const struct cli_rep_layer *s = &rt->layer[l];
        if (!s->ahead_begun || !rt->t->states) continue;
        cli_rep_row(r);
        cli_rep_count(r, NULL, l);
        cli_rep_count(r, NULL, s->ahead_begun);
        cli_rep_count(r, NULL, s->ahead_useful);
        cli_rep_number(r, NULL, (double)s->ahead_useful / (double)s->ahead_begun);
        double bytes = h->layer[l].expert_bytes ? (double)h->layer[l].expert_bytes : NAN;
        cli_rep_number(r, NULL, (double)s->ahead_begun * bytes);
        cli_rep_number(r, NULL, (double)s->ahead_useful * bytes);
    }
}

/* Counts and cells in one number, which sorts by the most used, ties to the lower cell. */
#define CELL_BITS 24

static int later(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void put_hottest(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    size_t cells = (size_t)rt->t->header.n_layers * rt->stride, n = 0;
    uint64_t *order = cli_alloc(cells, sizeof *order), mask = ((uint64_t)1 << CELL_BITS) - 1;
    for (size_t i = 0; i < cells; i++)
        if (rt->uses[i]) order[n++] = (uint64_t)rt->uses[i] << CELL_BITS | (mask - i);
    qsort(order, n, sizeof *order, later);
    cli_rep_table(r, "hot", "layer expert uses share hit_rate");
    for (size_t i = 0; i < n && i < CLI_REP_TOP; i++) {
        size_t cell = (size_t)(mask - (order[i] & mask));
        cli_rep_row(r);
        cli_rep_count(r, NULL, cell / rt->stride);
        cli_rep_count(r, NULL, cell % rt->stride);
        cli_rep_count(r, NULL, (uint64_t)rt->uses[cell]);
        cli_rep_number(r, NULL, rt->uses[cell] / rt->totals.uses);
        cli_rep_number(r, NULL,
                       rt->t->states ? (double)rt->expert_hits[cell] / rt->uses[cell] : NAN);
    }
    cli_free(order);
}

void cli_rep_layers(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    const struct sl_trace_header *h = &rt->t->header;
    cli_rep_table(r, "layers",
                  "layer experts top_k uses hits hit_rate cold distinct read_bytes "
                  "dense_ms expert_ms wait_ms");
    for (uint32_t l = 0; l < h->n_layers; l++)
        if (h->layer[l].n_experts) put_layer(rt, r, l);
    cli_rep_table(r, "heat", "layer uses");
    for (uint32_t l = 0; l < h->n_layers; l++) {
        if (!rt->layer[l].uses) continue;
        cli_rep_row(r);
        cli_rep_count(r, NULL, l);
        cli_rep_counts(r, rt->uses + (size_t)l * rt->stride, h->layer[l].n_experts);
    }
    put_hottest(rt, r);
    put_ahead(rt, r);
}
