/* Of a trace report: the timeline of some decoded tokens, the slowest and others evenly spaced. */
#include <stdlib.h>
#include <string.h>

#include "tools/trace_report.h"

#define SLOWEST 10
#define KEPT_MAX 50
#define ROWS_MAX 3000  /* of layers, over all kept tokens */
#define READS_MAX 9000 /* and of reads: what keeps the page small */
#define NS_PER_US 1000
#define NS_PER_MS 1e6

struct kept {
    uint64_t eval, token; /* token: number among the decoded ones */
    int slow;
};

struct timed {
    uint64_t took_ns, eval, token;
};

static int longest(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;
    if (x->took_ns != y->took_ns) return x->took_ns > y->took_ns ? -1 : 1;
    return x->eval < y->eval ? -1 : x->eval > y->eval;
}

static int in_order(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return x->eval < y->eval ? -1 : x->eval > y->eval;
}

static uint32_t keep(struct kept *kept, uint32_t n, const struct timed *token, int slow)
{
    for (uint32_t i = 0; i < n; i++)
        if (kept[i].eval == token->eval) return n;
    kept[n] = (struct kept){token->eval, token->token, slow};
    return n + 1;
}

/* Chooses the tokens; returns how many, in order of time. */
static uint32_t choose(const struct sl_trace *t, uint32_t most, struct kept *kept)
{
    struct timed *all = cli_alloc(t->n_tokens, sizeof *all), *slow;
    uint64_t n = 0, token = 0;
    uint32_t k = 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *eval = &t->evals[i];
        if (eval->e.prompt) continue;
        if (cli_rep_timed(t, eval) && n < t->n_tokens)
            all[n++] = (struct timed){eval->done.end_ns - eval->e.begin_ns, i, token};
        token += eval->e.n_tokens;
    }
    slow = cli_alloc(n, sizeof *slow);
    if (n) memcpy(slow, all, n * sizeof *slow);
    qsort(slow, n, sizeof *slow, longest);
    for (uint64_t i = 0; i < n && i < SLOWEST && k < most; i++) k = keep(kept, k, &slow[i], 1);
    if (n && k < most) k = keep(kept, k, &slow[n / 2], 0); /* the median */
    if (n && k < most) k = keep(kept, k, &slow[n - 1], 0); /* the fastest */
    uint64_t step = k < most ? (n + (most - k) - 1) / (most - k) : 0;
    for (uint64_t i = 0; step && i < n && k < most; i += step) k = keep(kept, k, &all[i], 0);
    qsort(kept, k, sizeof *kept, in_order);
    cli_free(all);
    cli_free(slow);
    return k;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t us(uint64_t ns, uint64_t since)
{
    return ns > since ? (ns - since + NS_PER_US / 2) / NS_PER_US : 0;
}

static void put_token(const struct sl_trace *t, const struct kept *k, struct cli_rep *r)
{
    const struct sl_trace_eval_span *eval = &t->evals[k->eval];
    uint64_t wait_ns = 0, bytes = 0;
    for (uint64_t v = eval->first_visit; v < eval->first_visit + eval->n_visits; v++) {
        wait_ns += t->visits[v].wait_ns;
        bytes += t->visits[v].read_bytes;
    }
    cli_rep_row(r);
    cli_rep_count(r, NULL, k->token);
    cli_rep_count(r, NULL, eval->e.position);
    cli_rep_number(r, NULL, (double)(eval->done.end_ns - eval->e.begin_ns) / NS_PER_MS);
    cli_rep_number(r, NULL, (double)wait_ns / NS_PER_MS);
    cli_rep_count(r, NULL, bytes);
    cli_rep_bool(r, NULL, k->slow);
}

static void put_visits(const struct sl_trace *t, const struct kept *k, struct cli_rep *r)
{
    const struct sl_trace_eval_span *eval = &t->evals[k->eval];
    for (uint64_t v = eval->first_visit; v < eval->first_visit + eval->n_visits; v++) {
        const struct sl_trace_visit *visit = &t->visits[v];
        cli_rep_row(r);
        cli_rep_count(r, NULL, k->token);
        cli_rep_count(r, NULL, visit->layer);
        cli_rep_count(r, NULL, us(visit->begin_ns, eval->e.begin_ns));
        cli_rep_count(r, NULL, us(visit->dense_ns, 0));
        cli_rep_count(r, NULL, us(visit->wait_ns, 0));
        cli_rep_count(r, NULL, us(visit->expert_ns, 0));
    }
}

/* Reads that were under way while the token was; at most limit. Returns how many. */
static uint64_t put_reads(const struct sl_trace *t, const struct kept *k, uint64_t limit,
                          struct cli_rep *r)
{
    const struct sl_trace_eval_span *eval = &t->evals[k->eval];
    uint64_t n = 0;
    for (uint64_t i = 0; i < t->n_reads && n < limit; i++) {
        const struct sl_trace_read *read = &t->reads[i];
        if (read->begin_ns >= eval->done.end_ns) continue;
        if (read->begin_ns + read->took_ns <= eval->e.begin_ns) continue;
        uint64_t before = read->begin_ns < eval->e.begin_ns ? eval->e.begin_ns - read->begin_ns : 0;
        cli_rep_row(r);
        cli_rep_count(r, NULL, k->token);
        cli_rep_count(r, NULL, read->layer);
        cli_rep_count(r, NULL, read->expert);
        cli_rep_count(r, NULL, read->why);
        cli_rep_count(r, NULL, us(read->begin_ns, eval->e.begin_ns));
        cli_rep_count(r, NULL, us(read->took_ns, before));
        cli_rep_count(r, NULL, read->bytes);
        n++;
    }
    return n;
}

void cli_rep_timeline(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    const struct sl_trace *t = rt->t;
    struct kept kept[KEPT_MAX];
    uint32_t most = rt->moe_layers ? ROWS_MAX / rt->moe_layers : 0, n = 0;
    if (most > KEPT_MAX) most = KEPT_MAX;
    if (t->header.measured & SL_TRACE_TIMES) n = choose(t, most, kept);
    cli_rep_table(r, "timeline_tokens", "token position total_ms wait_ms read_bytes slowest");
    for (uint32_t i = 0; i < n; i++) put_token(t, &kept[i], r);
    cli_rep_table(r, "timeline", "token layer begin_us dense_us wait_us expert_us");
    for (uint32_t i = 0; i < n; i++) put_visits(t, &kept[i], r);
    cli_rep_table(r, "timeline_reads", "token layer expert why begin_us took_us bytes");
    for (uint32_t i = 0; i < n; i++) (void)put_reads(t, &kept[i], READS_MAX / n, r);
}
