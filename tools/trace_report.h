/* What `sluice trace report` computes of a trace, and who writes it. Numbers first
 * (trace_report_*.c), then the page, JSON, CSV (trace_report_out.h) or trace events.
 *
 * Everything is about decoded tokens unless it says otherwise. Not known is NAN, never 0. */
#ifndef CLI_TRACE_REPORT_H
#define CLI_TRACE_REPORT_H

#include "tools/out_file.h"
#include "tools/progress.h"
#include "tools/trace_report_out.h"
#include "trace/study.h"

#define CLI_REP_TOP 50                /* hottest experts that are listed */
#define CLI_REP_DEFAULT_SHARE 0.20    /* of the experts, where the cache size is not known */
#define CLI_REP_HITS_BEGIN_SHARE 0.01 /* of the uses: where a curve is said to begin */

enum cli_rep_hits { CLI_REP_NO_HITS, CLI_REP_RECORDED, CLI_REP_REPLAYED };

/* Headline numbers, doubles throughout, so that two traces can be compared by a table of offsets.
 */
struct cli_rep_totals {
    double decoded_tokens, prompt_tokens, prompts, uses, distinct_experts;
    double hits, flying, cold, hit_rate, flying_share, cold_share;
    double read_bytes, ahead_begun, ahead_useful, ahead_useful_share, ahead_bytes,
        ahead_useful_bytes;
    double token_read_bytes;
    double decode_ms, token_ms, tokens_per_s, token_wait_ms, wait_share;
    double token_dense_ms, token_expert_ms, token_other_ms, drive_bytes_per_s;
    double slots, slot_share;                                /* of the cache that the hits are of */
    double default_hit_rate, lru_hit_rate, optimum_hit_rate; /* at that size, replayed */
    double knee_share, reuse_cold_share, again_next;
};

/* Sums of one layer. */
struct cli_rep_layer {
    uint64_t uses, hits, flying, cold, distinct, read_bytes, dense_ns, expert_ns, wait_ns;
    uint64_t ahead_begun, ahead_useful;
};

struct cli_rep_trace {
    const char *path;
    struct sl_trace *t;
    struct sl_budget *budget;      /* borrowed */
    struct sl_speed speed;         /* as given; zeros: as recorded */
    struct cli_progress *progress; /* borrowed */
    enum cli_rep_hits hits;
    uint32_t slots;     /* of the cache that the hits are of; 0: not known */
    uint32_t n_experts; /* of all layers together */
    uint32_t stride;    /* most experts of a layer: counts are [layer * stride + expert] */
    uint32_t moe_layers, token_experts; /* layers with experts; experts that a token uses */
    uint64_t slot_bytes;                /* of all experts together; 0: not known */
    uint32_t *visit_hits;               /* [t->n_visits] */
    uint64_t *visit_bytes;              /* [t->n_visits], demanded */
    int has_bytes;
    int32_t *uses, *expert_hits; /* [n_layers * stride] */
    struct cli_rep_layer layer[SL_LAYERS_MAX];
    struct cli_rep_totals totals;
};

/* Return an exit code; a message is printed where it is not CLI_EXIT_OK. */
int cli_rep_measure(struct cli_rep_trace *rt); /* fills what follows t */
void cli_rep_free(struct cli_rep_trace *rt);   /* the trace too */
int cli_rep_curves(struct cli_rep_trace *rt, struct cli_rep *r);
int cli_rep_studies(struct cli_rep_trace *rt, struct cli_rep *r);

void cli_rep_about(const struct cli_rep_trace *rt, struct cli_rep *r);
void cli_rep_totals(const struct cli_rep_trace *rt, struct cli_rep *r);
void cli_rep_time(const struct cli_rep_trace *rt, struct cli_rep *r);
void cli_rep_layers(const struct cli_rep_trace *rt, struct cli_rep *r);
void cli_rep_timeline(const struct cli_rep_trace *rt, struct cli_rep *r);
void cli_rep_compare(const struct cli_rep_trace *a, const struct cli_rep_trace *b,
                     struct cli_rep *r);

/* Whether decoded tokens' times are known: the eval was recorded to its end. */
int cli_rep_timed(const struct sl_trace *t, const struct sl_trace_eval_span *eval);

/* Output to a file that appears whole, or to standard output (-). */
struct cli_rep_sink {
    struct cli_out_file file;
    int standard;
};
int cli_rep_open(struct cli_rep_sink *sink, const char *name);
int cli_rep_put(struct cli_rep_sink *sink, const char *bytes, size_t n);
int cli_rep_close(struct cli_rep_sink *sink, int code); /* commits where code is CLI_EXIT_OK */

int cli_rep_page(const char *name, const char *json, size_t n);
int cli_rep_perfetto(const char *name, const struct cli_rep_trace *rt);

#endif
