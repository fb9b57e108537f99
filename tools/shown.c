/* What a model writes, shown; see shown.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/shown.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/progress.h"
#include "tools/report.h"

#define DIM "\033[2m"
#define PLAIN "\033[0m"

typedef int put_fn(const char *bytes, size_t n);

static int put_error(const char *bytes, size_t n)
{
    (void)fwrite(bytes, 1, n, stderr);
    (void)fflush(stderr);
    return 0;
}

/* Length of the control character that text begins with; 0: it is none, or tab or line end. */
static size_t control_length(const char *text, size_t bytes)
{
    unsigned char c = (unsigned char)text[0];
    unsigned char next = bytes > 1 ? (unsigned char)text[1] : 0;
    if (c == '\n' || c == '\t' || c == '\r') return 0;
    if (c == 0xc2 && next >= 0x80 && next < 0xa0) return 2; /* U+0080 to U+009F */
    return c < 0x20 || c == 0x7f;
}

/* A terminal gets no control characters: a model may have been talked into saying some, and a
 * terminal obeys them. */
static int put_clean(put_fn *put, const char *text, size_t bytes)
{
    size_t from = 0;
    for (size_t i = 0; i < bytes; i++) {
        size_t n = control_length(text + i, bytes - i);
        if (n == 0) continue;
        if (put(text + from, i - from) || put("?", 1)) return -1;
        i += n - 1;
        from = i + 1;
    }
    return put(text + from, bytes - from);
}

static int put_out(const struct cli_shown *shown, const char *text, size_t bytes)
{
    return shown->terminal ? put_clean(cli_put, text, bytes) : cli_put(text, bytes);
}

void cli_shown_begin(struct cli_shown *shown, const struct cli_args *args, int think)
{
    memset(shown, 0, sizeof *shown);
    shown->silent = args->json;
    shown->terminal = isatty(STDOUT_FILENO);
    shown->thoughts = CLI_THOUGHTS_HIDDEN;
    if (think == CLI_THINK_SHOW)
        shown->thoughts = CLI_THOUGHTS_PRINTED;
    else if (shown->terminal && !args->quiet && cli_progress_in_place())
        shown->thoughts = CLI_THOUGHTS_DIMMED;
    if (shown->silent) shown->thoughts = CLI_THOUGHTS_HIDDEN;
}

int cli_shown_thought(struct cli_shown *shown, const char *text, size_t bytes)
{
    int begins = !shown->thinking;
    shown->thinking = 1;
    if (shown->thoughts == CLI_THOUGHTS_DIMMED) {
        if (begins) (void)put_error(DIM, sizeof DIM - 1);
        (void)put_clean(put_error, text, bytes);
    }
    if (shown->thoughts != CLI_THOUGHTS_PRINTED) return 0;
    if (begins && cli_put("<think>\n", 8)) return -1;
    return put_out(shown, text, bytes) || cli_flush() ? -1 : 0;
}

int cli_shown_end(struct cli_shown *shown)
{
    if (!shown->thinking) return 0;
    shown->thinking = 0;
    if (shown->thoughts == CLI_THOUGHTS_DIMMED) (void)put_error(PLAIN "\n\n", sizeof PLAIN + 1);
    if (shown->thoughts != CLI_THOUGHTS_PRINTED) return 0;
    return cli_put("\n</think>\n\n", 11) || cli_flush() ? -1 : 0;
}

int cli_shown_answer(struct cli_shown *shown, const char *text, size_t bytes)
{
    if (cli_shown_end(shown)) return -1;
    if (shown->silent) return 0;
    return put_out(shown, text, bytes) || cli_flush() ? -1 : 0;
}
