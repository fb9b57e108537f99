/* What a model writes, shown: control characters taken out where a terminal would obey them, and
 * thoughts apart from the answer.
 *
 * Standard output carries the answer alone, unless thoughts are asked for (--think show). A person
 * who watches a terminal sees them anyway, dimmed, on standard error: minutes of silence help
 * nobody. */
#ifndef CLI_SHOWN_H
#define CLI_SHOWN_H

#include "tools/args.h"

struct cli_shown {
    enum { CLI_THOUGHTS_HIDDEN, CLI_THOUGHTS_DIMMED, CLI_THOUGHTS_PRINTED } thoughts;
    int silent;   /* nothing is shown: the answer goes into JSON */
    int terminal; /* standard output is one */
    int thinking; /* a thought has begun, and is not closed yet */
};

/* think: enum cli_think. */
void cli_shown_begin(struct cli_shown *shown, const struct cli_args *args, int think);
/* Return 0, or -1 once standard output failed. */
int cli_shown_thought(struct cli_shown *shown, const char *text, size_t bytes);
int cli_shown_answer(struct cli_shown *shown, const char *text, size_t bytes);
/* Closes a thought that is open. */
int cli_shown_end(struct cli_shown *shown);

#endif
