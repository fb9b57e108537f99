/* Options of the program: one table, the values it fills, and the parser.
 *
 * Every option stands once in option_table.c, with its unit, range, default and help; the parser,
 * the help, the environment (SLUICE_CTX_SIZE for --ctx-size) and the check of the documents all use
 * that table. An option counts only for the verbs it lists; the same name may stand twice with
 * different meanings for different verbs. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stddef.h>
#include <stdint.h>

#define CLI_STOPS_MAX 64
#define CLI_REMARKS_MAX 8

enum cli_verb {
    CLI_RUN = 1,
    CLI_EVAL = 2,
    CLI_INFO = 4,
    CLI_TOKENIZE = 8,
    CLI_BENCH = 16, /* what needs no model */
    CLI_VERIFY = 32,
    CLI_BENCH_MODEL = 64, /* bench decode, bench prefill */
    CLI_PPL = 128,
    CLI_PACK = 256,
    CLI_CALIB = 512,
    CLI_DIFF = 1024,
    CLI_TRACE_CONVERT = 2048,
    CLI_TRACE_REPLAY = 4096,
    CLI_TRACE_REPORT = 8192,
    CLI_TRACE = CLI_TRACE_CONVERT | CLI_TRACE_REPLAY | CLI_TRACE_REPORT,
    CLI_EVERY = 16383
};

enum cli_think {
    CLI_THINK_AUTO, /* what the template does by itself */
    CLI_THINK_OFF,
    CLI_THINK_ON,
    CLI_THINK_SHOW, /* on, and thoughts go to standard output too */
};

enum cli_pool { CLI_POOL_ONE, CLI_POOL_LAYER };

/* "-ngl: experts are ..." of an option that was taken otherwise than it was written. */
struct cli_remark {
    const char *option; /* NULL: none */
    const char *text;
};

/* What the command line said; NULL and the defaults of the table where it said nothing. Strings are
 * borrowed from argv or the environment. */
struct cli_args {
    const char *model, *prompt, *file, *system_prompt, *chat_template;
    const char *tokens, *logits, *greedy_out, *hot_list, *trace;
    const char *save_logits, *kl, *loops;       /* of ppl */
    const char *output;                         /* of calib and pack */
    const char *recipe, *imatrix, *calib;       /* of pack */
    const char *subject, *routing;              /* what to bench, and how experts are chosen */
    const char *input, *other;                  /* of trace: what is read; B of diff and trace */
    const char *from, *to;                      /* of trace convert */
    const char *cache_sizes, *policies;         /* of trace replay: lists */
    const char *csv, *perfetto;                 /* of trace report */
    const char *graft;                          /* not an option: the file of graft_layer */
    struct cli_remark remarks[CLI_REMARKS_MAX]; /* to be printed unless --quiet */
    const char *stop[CLI_STOPS_MAX];
    int64_t n_stop, threads, ctx_size, chunk, predict, seed, top_k, repeat_last, greedy;
    int64_t slots, experts_used, sticky_size, bench_tokens, warm;
    int64_t window, stride, loop_tokens; /* of ppl; window of calib too */
    int64_t chunks;                      /* of calib */
    uint64_t ram_bytes;                  /* SLUICE_RAM_AUTO for the word auto */
    uint64_t split_bytes, target_bytes;  /* of pack */
    uint64_t drive_bytes;                /* of trace: a second */
    uint64_t aside_bytes;                /* not an option: what the verb itself takes of --ram */
    double temperature, top_p, min_p, repeat_penalty, sticky, drop_cold;
    double target_bpw;                                         /* of pack */
    double expert_bits, compute_ms;                            /* of trace replay, report */
    int kv, cache_k, cache_v, isa, io, cache_policy, prefetch; /* enums of sluice.h */
    int think;                                                 /* enum cli_think */
    int raw, chat, single_turn, ignore_end, special, escape, progress, verbose, quiet, json, top;
    int lines, escape_lines, bos, decode, nll, list_meta, list_tensors, make_sums, llama_cpp;
    int deep, swap_layers;   /* of verify and diff */
    uint32_t graft_layer;    /* taken from graft, as in sluice.h */
    int reads_only;          /* not an option: texts are read, and none is written */
    int bits, keep, restart; /* of pack */
    int full;                /* of bench kernels */
    int pool, predictors;    /* of trace replay: enum cli_pool; flag */
    int no_prompt, by_layer; /* of trace replay */
    int help, version, list_archs;
};

enum cli_kind {
    CLI_FLAG,    /* int; set_to is stored */
    CLI_TEXT,    /* const char * */
    CLI_STOPS,   /* appended to stop[] */
    CLI_INTEGER, /* int64_t, low..high */
    CLI_NUMBER,  /* double, low_f..high_f */
    CLI_SIZE,    /* uint64_t bytes from low on, or auto; K, M, G, T are powers of 1024 */
    CLI_STICKY,  /* "D" or "D:N": double, low_f..high_f, and int64_t in sticky_size, low..high */
    CLI_CHOICE,  /* int; one of choices */
};

/* A word a CLI_CHOICE takes. Later words for the same value are accepted, but not advertised. */
struct cli_choice {
    const char *word;
    int value;
};

struct cli_option {
    const char *name;     /* "--ctx-size" */
    const char *aliases;  /* "-c --n-ctx"; "" if none */
    const char *argument; /* "N"; NULL for flags */
    const char *unit;     /* "tokens"; NULL if it has none */
    const char *fallback; /* the default in words; NULL for flags */
    const char *help;
    unsigned verbs; /* of enum cli_verb */
    enum cli_kind kind;
    size_t offset; /* in struct cli_args */
    int set_to;
    int64_t low, high;
    int clamps;     /* more than high is taken as high, with a remark */
    int takes_auto; /* of a CLI_SIZE: the word auto, too */
    double low_f, high_f;
    const struct cli_choice *choices; /* ends with word NULL */
};

/* The table; NULL past the last. */
const struct cli_option *cli_option_at(size_t index);
/* The option that verb knows by this name or alias, or NULL. */
const struct cli_option *cli_option_find(const char *name, unsigned verb);
/* Why a well-known option of another program does not exist here, and what to do; or NULL. */
const char *cli_option_absent(const char *name);
/* What Sluice does anyway, where an option of another program asks for just that, or NULL. *value
 * receives the value with which it does; NULL: the option has none. */
const char *cli_option_needless(const char *name, const char **value);
/* The environment variable of an option, "SLUICE_CTX_SIZE"; text has CLI_VARIABLE_TEXT bytes and is
 * returned. */
#define CLI_VARIABLE_TEXT 64
const char *cli_option_variable(const struct cli_option *option, char *text);
/* The range in words ("1 to 64", "f32, f16, q8"); text has CLI_RANGE_TEXT bytes and is returned. */
#define CLI_RANGE_TEXT 128
const char *cli_option_range(const struct cli_option *option, char *text);

/* The word of --think for an enum cli_think, and the other way; -1: there is no such word. */
const char *cli_think_name(int think);
int cli_think_of(const char *word);

/* Sets the defaults of the table. */
void cli_args_init(struct cli_args *args);
/* Takes options from SLUICE_ variables, then from argv[0..argc). Returns 0, or -1 with a message
 * printed (exit code 2). */
int cli_args_parse(struct cli_args *args, unsigned verb, int argc, char **argv);

/* Strict readers: the whole text has to be a number of the range. Return 0 or -1. */
int cli_read_integer(const char *text, int64_t *value);
int cli_read_number(const char *text, double *value);
int cli_read_size(const char *text, uint64_t *value);

/* The nearest of names to a mistyped one; keeps the best over several calls. Start with zeros, and
 * take best only if it is not NULL. */
struct cli_nearest {
    const char *best;
    size_t best_bytes; /* best need not end with NUL */
    unsigned distance;
};
void cli_nearest_offer(struct cli_nearest *nearest, const char *typed, const char *name,
                       size_t name_bytes);

#endif
