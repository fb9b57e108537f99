/* trace_reader FILE: prints how many evals and layers a trace holds, the time of its last record in
 * nanoseconds, and whether its end is missing. For test_trace_kill.py. */
#include <inttypes.h>
#include <stdio.h>

#include "formats/trace_file.h"

struct seen {
    uint64_t evals, layers, last_ns;
};

static void note(struct seen *s, const struct sl_trace_record *r)
{
    uint64_t ns = 0;
    if (r->kind == SL_TRACE_EVAL) s->evals++, ns = r->u.eval.begin_ns;
    if (r->kind == SL_TRACE_LAYER) s->layers++, ns = r->u.layer.begin_ns;
    if (r->kind == SL_TRACE_READ) ns = r->u.read.begin_ns + r->u.read.took_ns;
    if (r->kind == SL_TRACE_DONE) ns = r->u.done.end_ns;
    s->last_ns = sl_max_u64(s->last_ns, ns);
}

int main(int argc, char **argv)
{
    struct sl_trace_reader *reader = NULL;
    struct sl_trace_record r = {.kind = SL_TRACE_END};
    struct sl_budget b;
    struct seen seen = {0, 0, 0};
    sluice_error e;
    uint64_t lost;
    if (argc != 2) return 2;
    sl_budget_init(&b, UINT64_MAX);
    sluice_err err = sl_trace_open(argv[1], &b, &e, &reader);
    while (err == SLUICE_OK) {
        err = sl_trace_next(reader, &r, &e);
        if (err != SLUICE_OK || r.kind == SL_TRACE_END) break;
        note(&seen, &r);
    }
    if (err != SLUICE_OK) {
        fprintf(stderr, "%s\n", e.text);
        sl_trace_reader_close(reader);
        return 1;
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %d\n", seen.evals, seen.layers, seen.last_ns,
           sl_trace_cut(reader, &lost));
    sl_trace_reader_close(reader);
    return 0;
}
