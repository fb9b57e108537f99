/* Progress on standard error; see progress.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/report.h"

#define PATIENCE_NS 1000000000u /* nothing is shown before */
#define REWRITE_NS 200000000u   /* between two states on a terminal */
#define LINE_NS 2000000000u     /* between two lines elsewhere */

int cli_progress_wanted(int forced, int quiet)
{
    return forced || (!quiet && isatty(STDERR_FILENO));
}

int cli_progress_in_place(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

void cli_progress_begin(struct cli_progress *progress, const char *what, const char *unit,
                        int enabled)
{
    memset(progress, 0, sizeof *progress);
    progress->what = what;
    progress->unit = unit;
    progress->enabled = enabled;
    progress->in_place = cli_progress_in_place();
    progress->begin_ns = cli_now_ns();
}

void cli_progress_step(struct cli_progress *progress, uint64_t done, uint64_t total)
{
    char line[160], done_text[CLI_SIZE_TEXT], total_text[CLI_SIZE_TEXT];
    if (total == 0 || !cli_progress_due(progress)) return;
    unsigned percent = (unsigned)((double)done / (double)total * 100);
    if (progress->unit)
        (void)snprintf(line, sizeof line, "%u %%, %llu of %llu %s", percent,
                       (unsigned long long)done, (unsigned long long)total, progress->unit);
    else
        (void)snprintf(line, sizeof line, "%u %%, %s of %s", percent,
                       cli_size_text(done_text, done), cli_size_text(total_text, total));
    cli_progress_say(progress, line);
}

int cli_progress_due(const struct cli_progress *progress)
{
    uint64_t now = cli_now_ns();
    uint64_t pause = progress->in_place ? REWRITE_NS : LINE_NS;
    if (!progress->enabled || now - progress->begin_ns < PATIENCE_NS) return 0;
    return !progress->shown || now - progress->last_ns >= pause;
}

void cli_progress_say(struct cli_progress *progress, const char *text)
{
    progress->shown = 1;
    progress->last_ns = cli_now_ns();
    (void)fprintf(stderr, progress->in_place ? "\r\033[Ksluice: %s: %s" : "sluice: %s: %s\n",
                  progress->what, text);
    (void)fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->enabled && progress->shown && progress->in_place) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
    progress->enabled = 0;
}
