/* Replays of `sluice trace replay`: what was asked for, and what came out. */
#ifndef CLI_TRACE_REPLAY_H
#define CLI_TRACE_REPLAY_H

#include "tools/args.h"
#include "trace/study.h"

#define CLI_REPLAY_SIZES_MAX 32
#define CLI_REPLAY_POLICIES_MAX 16
#define CLI_REPLAY_SIZE_TEXT 24
#define CLI_REPLAY_CURVE 20 /* points */
#define CLI_REPLAY_STUDIES_MAX 32

struct cli_replay_policy {
    const char *name;                  /* as it is printed */
    const struct sl_ec_policy *policy; /* NULL: the optimum */
};

/* A cache size that was asked for. */
struct cli_replay_size {
    char text[CLI_REPLAY_SIZE_TEXT]; /* as it was written; "recorded" */
    struct sl_replay_size size;
    int recorded;                   /* as many as the recording had */
    struct sl_replay_config config; /* pool and slots */
    uint32_t slots;                 /* all together */
    uint64_t bytes;                 /* 0: not known */
};

struct cli_replay_cell {
    struct sl_replay_result result;
    double token_ms; /* NAN: not known */
};

struct cli_replay {
    const struct cli_args *args;
    struct sl_budget budget;
    struct sl_trace *loaded;
    struct sl_trace trace; /* the same, with expert sizes of --bits */
    struct sl_speed speed;
    uint32_t n_sizes, n_policies;
    struct cli_replay_size size[CLI_REPLAY_SIZES_MAX];
    struct cli_replay_policy policy[CLI_REPLAY_POLICIES_MAX];
    struct cli_replay_cell *cells; /* [n_sizes][n_policies] */
    int32_t optimum;               /* its place among the policies; -1: not asked for */

    /* Of the trace. */
    uint32_t n_experts, n_slots; /* of all layers; recorded, 0: not known */
    uint32_t n_slots_end;        /* after what the run closed and opened again */
    uint32_t token_experts;      /* that one token takes in all layers */
    uint32_t first_layer;        /* the first with experts */
    int same_layers;             /* all layers with experts have as many, and as many chosen */
    int sizes_known;             /* bytes of every expert */
    uint64_t uses, hits;         /* of decoded tokens, recorded; uses 0: not recorded */
    uint64_t read_bytes;         /* for decoded tokens, recorded, on demand */
    uint64_t ahead_bytes;        /* read ahead for them */
    uint64_t decode_ns;          /* 0: not recorded */

    int repeats; /* the replay as recorded was made */
    struct sl_replay_result repeated;
    struct sl_curve lru, best; /* n_max 0: none */
    uint32_t n_studies;
    struct sl_predict_study study[CLI_REPLAY_STUDIES_MAX];
};

/* Lists of --cache and --policy. Return 0, or the exit code with a message printed. */
int cli_replay_parse_sizes(struct cli_replay *r, const char *list);
int cli_replay_parse_policies(struct cli_replay *r, const char *list);

static inline const struct cli_replay_cell *cli_replay_cell(const struct cli_replay *r, uint32_t s,
                                                            uint32_t p)
{
    return &r->cells[s * r->n_policies + p];
}

/* Slots at a point of the curves (0..CLI_REPLAY_CURVE - 1), and the share of the experts it is. */
uint32_t cli_replay_curve_slots(const struct cli_replay *r, uint32_t point, double *share);

void cli_replay_print(const struct cli_replay *r);
void cli_replay_print_json(const struct cli_replay *r);

#endif
