/* Of a trace report: two traces side by side. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "tools/trace_report.h"

struct measure {
    const char *name, *unit;
    size_t offset;
};

#define MEASURE(field, of_unit)                                                                    \
    {                                                                                              \
#field, of_unit, offsetof(struct cli_rep_totals, field)                                    \
    }

static const struct measure measures[] = {
    MEASURE(decoded_tokens, "count"),
    MEASURE(prompt_tokens, "count"),
    MEASURE(hit_rate, "share"),
    MEASURE(flying_share, "share"),
    MEASURE(cold_share, "share"),
    MEASURE(token_read_bytes, "bytes"),
    MEASURE(tokens_per_s, "tokens_per_s"),
    MEASURE(token_ms, "ms"),
    MEASURE(token_wait_ms, "ms"),
    MEASURE(wait_share, "share"),
    MEASURE(token_dense_ms, "ms"),
    MEASURE(token_expert_ms, "ms"),
    MEASURE(drive_bytes_per_s, "bytes_per_s"),
    MEASURE(slots, "count"),
    MEASURE(slot_share, "share"),
    MEASURE(default_hit_rate, "share"),
    MEASURE(lru_hit_rate, "share"),
    MEASURE(optimum_hit_rate, "share"),
    MEASURE(knee_share, "share"),
    MEASURE(ahead_useful_share, "share"),
    MEASURE(distinct_experts, "count"),
    MEASURE(again_next, "share"),
};

static double value_of(const struct cli_rep_trace *rt, const struct measure *m)
{
    return *(const double *)(const void *)((const char *)&rt->totals + m->offset);
}

static int same_shape(const struct cli_rep_trace *a, const struct cli_rep_trace *b)
{
    const struct sl_trace_header *x = &a->t->header, *y = &b->t->header;
    if (x->n_layers != y->n_layers) return 0;
    for (uint32_t l = 0; l < x->n_layers; l++)
        if (x->layer[l].n_experts != y->layer[l].n_experts) return 0;
    return 1;
}

/* ---- hot experts ----------------------------------------------------------------------------- */

struct cell {
    int32_t uses;
    uint32_t at;
};

static int hotter(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    if (x->uses != y->uses) return x->uses > y->uses ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Cells in order of their use; *n: those used at all. Owner: the caller, cli_free. */
static struct cell *ranking(const struct cli_rep_trace *rt, size_t *n)
{
    size_t cells = (size_t)rt->t->header.n_layers * rt->stride;
    struct cell *order = cli_alloc(cells, sizeof *order);
    *n = 0;
    for (size_t i = 0; i < cells; i++)
        if (rt->uses[i]) order[(*n)++] = (struct cell){rt->uses[i], (uint32_t)i};
    qsort(order, *n, sizeof *order, hotter);
    return order;
}

static void put_overlap(const struct cli_rep_trace *a, const struct cli_rep_trace *b,
                        struct cli_rep *r)
{
    static const double shares[] = {0.02, 0.05, 0.1, 0.2, 0.5};
    size_t n_a, n_b, cells = (size_t)a->t->header.n_layers * a->stride;
    struct cell *hot_a = ranking(a, &n_a), *hot_b = ranking(b, &n_b);
    cli_rep_table(r, "overlap", "top shared share");
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        size_t top = (size_t)(shares[i] * a->n_experts + 0.5), shared = 0;
        if (!top || top > n_a || top > n_b) continue;
        uint8_t *in_a = cli_alloc(cells, 1);
        for (size_t k = 0; k < top; k++) in_a[hot_a[k].at] = 1;
        for (size_t k = 0; k < top; k++) shared += in_a[hot_b[k].at];
        cli_free(in_a);
        cli_rep_row(r);
        cli_rep_count(r, NULL, top);
        cli_rep_count(r, NULL, shared);
        cli_rep_number(r, NULL, (double)shared / (double)top);
    }
    cli_free(hot_a);
    cli_free(hot_b);
}

/* Cosine of the angle between the uses of a layer's experts. */
static void put_similarity(const struct cli_rep_trace *a, const struct cli_rep_trace *b,
                           struct cli_rep *r)
{
    cli_rep_table(r, "similarity", "layer similarity");
    for (uint32_t l = 0; l < a->t->header.n_layers; l++) {
        const int32_t *x = a->uses + (size_t)l * a->stride, *y = b->uses + (size_t)l * b->stride;
        double xy = 0, xx = 0, yy = 0;
        for (uint32_t e = 0; e < a->t->header.layer[l].n_experts; e++) {
            xy += (double)x[e] * y[e];
            xx += (double)x[e] * x[e];
            yy += (double)y[e] * y[e];
        }
        if (xx <= 0 || yy <= 0) continue;
        cli_rep_row(r);
        cli_rep_count(r, NULL, l);
        cli_rep_number(r, NULL, xy / sqrt(xx * yy));
    }
}

void cli_rep_compare(const struct cli_rep_trace *a, const struct cli_rep_trace *b,
                     struct cli_rep *r)
{
    int same = same_shape(a, b);
    cli_rep_section(r, "shape");
    cli_rep_bool(r, "same", same);
    cli_rep_table(r, "headline", "measure unit a b difference");
    for (size_t i = 0; i < sizeof measures / sizeof measures[0]; i++) {
        double x = value_of(a, &measures[i]), y = value_of(b, &measures[i]);
        if (isnan(x) && isnan(y)) continue;
        cli_rep_row(r);
        cli_rep_string(r, NULL, measures[i].name);
        cli_rep_string(r, NULL, measures[i].unit);
        cli_rep_number(r, NULL, x);
        cli_rep_number(r, NULL, y);
        cli_rep_number(r, NULL, y - x);
    }
    if (!same) return;
    put_overlap(a, b, r);
    put_similarity(a, b, r);
}
