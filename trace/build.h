/* A trace in memory, put together from records as they come: what every reader of a form ends in.
 *
 * The books are checked here, for all forms, by the rules of formats/trace_file.h: what is in a
 * trace can be written to a trace file. Memory grows by doubling, charged to the budget. Thread:
 * one per handle. */
#ifndef SL_TRACE_BUILD_H
#define SL_TRACE_BUILD_H

#include "trace/trace.h"

struct sl_trace_build {
    struct sl_budget *budget;
    struct sl_trace *t;
    /* Elements there is room for, in the arrays of t of the same names. */
    struct {
        uint64_t evals, visits, chosen, weights, states, entries, steps, hint_experts,
            hint_probabilities, reads;
    } room;
    uint64_t steps_seen, reads_seen; /* that belong to a visit already */
    uint32_t next_layer;             /* the lowest that the eval under way may visit */
    uint64_t last_ns;                /* time of the last eval, layer or done */
};

/* The rules of single records (build_check.c). SLUICE_E_FORMAT with a sentence. */
SL_MUST_CHECK sluice_err sl_trace_check_layer(const struct sl_trace_build *build,
                                              const struct sl_trace_layer *r, sluice_error *e);
SL_MUST_CHECK sluice_err sl_trace_check_hints(const struct sl_trace_build *build,
                                              const struct sl_trace_hints *r, sluice_error *e);
SL_MUST_CHECK sluice_err sl_trace_check_op(const struct sl_trace_build *build,
                                           const struct sl_trace_op *r, sluice_error *e);
SL_MUST_CHECK sluice_err sl_trace_check_read(const struct sl_trace_build *build,
                                             const struct sl_trace_read *r, sluice_error *e);
SL_MUST_CHECK sluice_err sl_trace_check_time(const struct sl_trace_build *build, uint64_t ns,
                                             const char *what, sluice_error *e);

/* The header is copied to build->t->header, where a form that knows it only at its end may still
 * complete it before close. Errors: SLUICE_E_NOMEM, SLUICE_E_BUDGET, SLUICE_E_LIMIT,
 * SLUICE_E_FORMAT for a header that cannot be. */
SL_MUST_CHECK sluice_err sl_trace_build_open(struct sl_trace_build *build,
                                             const struct sl_trace_header *h, struct sl_budget *b,
                                             sluice_error *e);
/* Adds a record (not SL_TRACE_END). SLUICE_E_FORMAT: a sentence that says what is wrong with it, to
 * which the caller adds where it stands. */
SL_MUST_CHECK sluice_err sl_trace_build_add(struct sl_trace_build *build,
                                            const struct sl_trace_record *r, sluice_error *e);
/* Finishes: the last eval goes where its layers are not all there; arrays that header.measured does
 * not name are freed. Errors: SLUICE_E_FORMAT, no tokens. Owner of *out: the caller. Whatever comes
 * of it, build is empty afterwards. */
SL_MUST_CHECK sluice_err sl_trace_build_close(struct sl_trace_build *build, sluice_error *e,
                                              struct sl_trace **out);
/* Drops everything. Fine on a build of zeros. */
void sl_trace_build_discard(struct sl_trace_build *build);
/* For forms that do not say which layers have experts: layers in which nobody chose any have none
 * from now on, and their visits go. Before close. */
void sl_trace_build_drop_idle_layers(struct sl_trace_build *build);

/* Whether a header can be: layers and experts within limits, top_k at most the experts, classes
 * within theirs, numbers of slots within what there may be. SLUICE_E_FORMAT or SLUICE_E_LIMIT with
 * a sentence without a file name. Thread: pure. */
SL_MUST_CHECK sluice_err sl_trace_check_header(const struct sl_trace_header *h, sluice_error *e);

#endif
