/* The verbs of the program, a file each. A verb gets parsed arguments and returns an exit code. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include "tools/args.h"

int cli_run(const struct cli_args *args);
int cli_eval(const struct cli_args *args);
int cli_ppl(const struct cli_args *args);
int cli_calib(const struct cli_args *args);
int cli_pack(const struct cli_args *args);
int cli_info(const struct cli_args *args);
int cli_tokenize(const struct cli_args *args);
int cli_verify(const struct cli_args *args);
int cli_diff(const struct cli_args *args);
int cli_trace_convert(const struct cli_args *args);
int cli_trace_replay(const struct cli_args *args);
int cli_trace_report(const struct cli_args *args);
int cli_bench(const struct cli_args *args);
int cli_bench_model(const struct cli_args *args); /* subject: decode or prefill */

struct cli_verb_entry {
    const char *name;
    unsigned verb; /* enum cli_verb */
    int (*run)(const struct cli_args *args);
    const char *summary; /* one line */
    const char *usage;   /* after "sluice NAME " */
    const char *details; /* paragraphs of the help */
};

/* The verb of that name, or NULL; the index-th, or NULL past the last. */
const struct cli_verb_entry *cli_verb_find(const char *name);
const struct cli_verb_entry *cli_verb_at(size_t index);

/* Help to standard output. */
void cli_help_program(void);
void cli_help_verb(const struct cli_verb_entry *verb);
/* All options as tab-separated lines: name, aliases, argument, unit, default, range, verbs, help.
 */
void cli_help_options(void);

#endif
