/* Progress on standard error: after a second, and only where somebody watches (a terminal, or
 * --progress). On a terminal the line is rewritten in place and removed at the end; elsewhere, and
 * with TERM=dumb, a line is written every few seconds. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

struct cli_progress {
    const char *what; /* "loading" */
    const char *unit; /* "tokens"; NULL: bytes */
    int enabled, in_place, shown;
    uint64_t begin_ns, last_ns;
};

void cli_progress_begin(struct cli_progress *progress, const char *what, const char *unit,
                        int enabled);
void cli_progress_step(struct cli_progress *progress, uint64_t done, uint64_t total);
/* A line of one's own in its place, and whether it is time for one. */
int cli_progress_due(const struct cli_progress *progress);
void cli_progress_say(struct cli_progress *progress, const char *text);
void cli_progress_end(struct cli_progress *progress);
/* Whether standard error is a terminal that obeys escape sequences. */
int cli_progress_in_place(void);
/* Whether progress is to be shown at all. */
int cli_progress_wanted(int forced, int quiet);

#endif
