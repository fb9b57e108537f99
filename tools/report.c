/* Messages and standard output of the program; see report.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define OUT_BYTES 65536

/* The one place with state of its own: a process has one standard output. */
static struct {
    int quiet;
    int failed; /* errno of the first failed write to standard output; 0: none */
    size_t held;
    char out[OUT_BYTES];
} report;

void cli_report_init(int quiet) { report.quiet = quiet; }

/* Control bytes become '?': a file must not drive the user's terminal. */
static void clean(char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f) *text = '?';
    }
}

/* Writes all of it. Returns 0 or an errno. */
static int write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t put = write(fd, bytes, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        bytes += put;
        n -= (size_t)put;
    }
    return 0;
}

static void put_line(const char *format, va_list args)
{
    static const char prefix[] = "sluice: ";
    char line[LINE_BYTES];
    size_t at = sizeof prefix - 1;
    memcpy(line, prefix, at);
    (void)vsnprintf(line + at, sizeof line - at - 1, format, args);
    clean(line + at);
    at = strlen(line);
    line[at++] = '\n';
    (void)write_all(STDERR_FILENO, line, at);
}

void cli_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_line(format, args);
    va_end(args);
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_line(format, args);
    va_end(args);
}

void cli_note(const char *format, ...)
{
    va_list args;
    if (report.quiet) return;
    va_start(args, format);
    put_line(format, args);
    va_end(args);
}

int cli_fail(const sluice_error *error)
{
    if (error->code == SLUICE_E_CANCELLED) {
        cli_say("interrupted");
        return CLI_EXIT_INTERRUPTED;
    }
    cli_error("%s", error->text[0] ? error->text : sluice_err_text((sluice_err)error->code));
    return CLI_EXIT_FAILURE;
}

int cli_flush(void)
{
    if (!report.failed) report.failed = write_all(STDOUT_FILENO, report.out, report.held);
    report.held = 0;
    return report.failed ? -1 : 0;
}

int cli_put(const char *bytes, size_t n)
{
    while (n && !report.failed) {
        size_t room = OUT_BYTES - report.held, part = n < room ? n : room;
        memcpy(report.out + report.held, bytes, part);
        report.held += part;
        bytes += part;
        n -= part;
        if (report.held == OUT_BYTES) (void)cli_flush();
    }
    return report.failed ? -1 : 0;
}

int cli_printf(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0) return -1;
    return cli_put(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

int cli_put_clean(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char shown = c < 0x20 || c == 0x7f ? '?' : *text;
        if (cli_put(&shown, 1)) return -1;
    }
    return 0;
}

int cli_end(int code)
{
    if (cli_flush() == 0) return code;
    if (report.failed != EPIPE) cli_error("standard output: %s", strerror(report.failed));
    return code == CLI_EXIT_OK ? CLI_EXIT_FAILURE : code;
}

const char *cli_size_text(char *text, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit < 3) {
        value /= 1024;
        unit++;
    }
    if (bytes < 1024)
        (void)snprintf(text, CLI_SIZE_TEXT, "%u B", (unsigned)bytes);
    else
        (void)snprintf(text, CLI_SIZE_TEXT, "%.1f %s", value, units[unit]);
    return text;
}

const char *cli_ram_text(char *text, uint64_t bytes)
{
    uint64_t megabytes = (bytes >> 20) + ((bytes & ((1u << 20) - 1)) != 0);
    (void)snprintf(text, CLI_RAM_TEXT, "%lluM", (unsigned long long)megabytes);
    return text;
}

const char *cli_tokens_text(char *text, uint64_t count)
{
    (void)snprintf(text, CLI_TOKENS_TEXT, "%llu token%s", (unsigned long long)count,
                   count == 1 ? "" : "s");
    return text;
}

uint64_t cli_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
