/* A routing trace in memory, whatever it was read from: a trace file (formats/trace_file.h), or one
 * of the forms of text (trace/forms.h). What follows of it (replay, bounds, curves, the
 * report) is computed from this.
 *
 * Tokens that went through the layers together are an eval: one decoded token, or a chunk of a
 * prompt. A visit is an eval at one layer, in order of time. What a form does not record is not
 * there: header.measured says what is. Read-only once loaded, so any number of threads may use it.
 */
#ifndef SL_TRACE_H
#define SL_TRACE_H

#include "formats/trace_file.h"

struct sl_trace_visit {
    uint32_t eval, layer;
    uint32_t n_tokens, top_k;
    uint64_t first_choice; /* in chosen, weights, states: [n_tokens][top_k] from here */
    uint64_t first_entry;  /* in entries */
    uint32_t n_entries;
    uint64_t first_step, n_steps; /* in steps: what came since the visit before */
    uint64_t first_read, n_reads; /* in reads: what arrived since the visit before */
    uint64_t read_bytes, begin_ns, dense_ns, expert_ns, wait_ns; /* without SL_TRACE_TIMES: 0 */
};

struct sl_trace_eval_span {
    struct sl_trace_eval e;
    struct sl_trace_done done; /* end_ns 0: not known, or the recording ends within it */
    uint64_t first_visit, n_visits;
    bool whole; /* it has visited all layers that have experts; false: cancelled or failed. One that
                   the end of the recording cuts off is not kept */
};

/* Hints and ops, in order of time among each other. */
struct sl_trace_step {
    bool is_op;
    struct sl_trace_op op;
    uint32_t layer, visits; /* of hints */
    bool prompt;
    uint32_t n;
    uint64_t first; /* in hint_experts, hint_probabilities */
};

struct sl_trace {
    struct sl_trace_header header;
    uint32_t n_tokens; /* decoded one by one */
    uint32_t n_prompt; /* and of prompts */
    uint64_t n_evals, n_visits, n_choices, n_entries, n_steps, n_hints, n_reads;
    struct sl_trace_eval_span *evals;
    struct sl_trace_visit *visits;
    uint16_t *chosen; /* [n_choices] */
    float *weights;   /* [n_choices]; NULL without SL_TRACE_WEIGHTS */
    uint8_t *states;  /* [n_choices]; NULL without SL_TRACE_STATES */
    uint8_t *entries;
    struct sl_trace_step *steps;
    uint16_t *hint_experts;
    float *hint_probabilities;
    struct sl_trace_read *reads; /* in order of arrival */
    bool cut;                    /* the recording was cut off ... */
    uint64_t lost_bytes;         /* ... by so much */
    uint64_t n_steps_after;      /* steps after the last visit: the last of steps */
    uint64_t n_reads_after;
};

/* Progress while loading, of the file's bytes; nonzero gives up (SLUICE_E_CANCELLED). total 0: not
 * known. */
typedef int sl_trace_progress_fn(void *user, uint64_t done, uint64_t total);

/* Reads a trace of any known form, which its first bytes tell, gzipped or not; - is standard input.
 * Memory: 2 to 7 bytes a choice and 136 a visit, up to three times that while it grows, charged to
 * b. Errors: those of sl_trace_open; for text forms SLUICE_E_FORMAT names line and what was wanted
 * there. Owner: the caller; sl_trace_free. */
SL_MUST_CHECK sluice_err sl_trace_load(const char *path, sl_trace_progress_fn *progress, void *user,
                                       struct sl_budget *b, sluice_error *e, struct sl_trace **out);
void sl_trace_free(struct sl_trace *t); /* NULL is fine */

#endif
