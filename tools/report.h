/* What the program says: errors and notes on standard error, the answer on standard output.
 *
 * Every message is one line that begins with "sluice: "; bytes that a terminal would act on are
 * replaced, since they may come from a file. Standard output is written by cli_put only, which
 * remembers the first failure, so that a full disk or a closed pipe ends in exit code 1. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "include/sluice.h"

enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILURE = 1,
    CLI_EXIT_USAGE = 2,
    CLI_EXIT_INTERRUPTED = 130
};

#if defined(__GNUC__)
#define CLI_PRINTF(string, first) __attribute__((format(printf, string, first)))
#else
#define CLI_PRINTF(string, first)
#endif

/* quiet: notes are dropped, errors are not. */
void cli_report_init(int quiet);

/* Something failed. */
void cli_error(const char *format, ...) CLI_PRINTF(1, 2);
/* What the user asked to be told, such as an answer to /status; --quiet does not drop it. */
void cli_say(const char *format, ...) CLI_PRINTF(1, 2);
/* A note for the user; dropped by --quiet. */
void cli_note(const char *format, ...) CLI_PRINTF(1, 2);
/* Prints the error of a library call. Returns the exit code it means: 130 where the user cancelled,
 * else 1. */
int cli_fail(const sluice_error *error);

/* Standard output. Return 0, or -1 once anything failed. */
int cli_put(const char *bytes, size_t n);
int cli_printf(const char *format, ...) CLI_PRINTF(1, 2);
int cli_flush(void);
/* Prints text from a file with control bytes replaced. */
int cli_put_clean(const char *text);

/* Flushes standard output and returns code, or 1 where it could not be written (with a message,
 * unless a reader has simply gone). */
int cli_end(int code);

/* "12.3 MiB"; text has at least 16 bytes and is returned. */
#define CLI_SIZE_TEXT 16
const char *cli_size_text(char *text, uint64_t bytes);

/* "109M": bytes rounded up to a size that --ram takes; text has at least 24 bytes and is returned.
 */
#define CLI_RAM_TEXT 24
const char *cli_ram_text(char *text, uint64_t bytes);

/* "1 token", "2 tokens"; text has at least 32 bytes and is returned. */
#define CLI_TOKENS_TEXT 32
const char *cli_tokens_text(char *text, uint64_t count);

/* Nanoseconds of a clock that never goes back. */
uint64_t cli_now_ns(void);

#endif
