/* Fuzzes the command line of the program: the first byte chooses the verb, the rest is words that
 * end with NUL; words that begin with SLUICE_ are environment variables. Whatever the words, the
 * parser says exactly one sentence and fails, or says none, and then every value is in the range
 * that its help promises. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/args.h"
#include "tools/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define WORDS_MAX 64

extern char **environ;

static int n_errors;

/* These two stand in for those of report.c, which print. */
void cli_error(const char *format, ...)
{
    char line[4096];
    va_list list;

    va_start(list, format);
    CHECK(vsnprintf(line, sizeof line, format, list) > 0);
    va_end(list);
    n_errors++;
}

void cli_say(const char *format, ...)
{
    char line[4096];
    va_list list;

    va_start(list, format);
    CHECK(vsnprintf(line, sizeof line, format, list) > 0);
    va_end(list);
}

static void check_value(const struct cli_args *args, const struct cli_option *o)
{
    const void *field = (const char *)args + o->offset;
    double number;
    int64_t integer;
    uint64_t bytes;

    if (o->kind == CLI_INTEGER) {
        memcpy(&integer, field, sizeof integer);
        CHECK(integer >= o->low && integer <= o->high);
    } else if (o->kind == CLI_NUMBER) {
        memcpy(&number, field, sizeof number);
        CHECK(number >= o->low_f && number <= o->high_f);
    } else if (o->kind == CLI_SIZE) {
        memcpy(&bytes, field, sizeof bytes);
        CHECK(bytes == 0 || (bytes >= (uint64_t)o->low && bytes <= (uint64_t)o->high));
    }
}

static void check_everything(int argc, char **argv, unsigned verb)
{
    struct cli_args defaults, args;
    const struct cli_option *o;

    cli_args_init(&defaults);
    cli_args_init(&args);
    n_errors = 0;
    int err = cli_args_parse(&args, verb, argc, argv);
    CHECK(err == 0 || err == -1);
    CHECK(n_errors == (err != 0));
    CHECK(args.n_stop >= 0 && args.n_stop <= CLI_STOPS_MAX);
    for (size_t i = 0; err == 0 && (o = cli_option_at(i)); i++) {
        size_t n = o->kind == CLI_INTEGER || o->kind == CLI_NUMBER || o->kind == CLI_SIZE ? 8 : 0;
        const char *is = (const char *)&args + o->offset;
        if (n > 0 && memcmp(is, (const char *)&defaults + o->offset, n) != 0) check_value(&args, o);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[WORDS_MAX + 1], *variables[WORDS_MAX + 1], **old = environ;
    int argc = 0, n_variables = 0;

    if (size < 2) return 0;
    char *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = '\0';
    for (size_t at = 0; at < size && argc < WORDS_MAX && n_variables < WORDS_MAX;
         at += strlen(copy + at) + 1) {
        if (strncmp(copy + at, "SLUICE_", 7) == 0)
            variables[n_variables++] = copy + at;
        else
            argv[argc++] = copy + at;
    }
    argv[argc] = variables[n_variables] = NULL;
    environ = variables;
    check_everything(argc, argv, 1u << data[0] % 5);
    environ = old;
    free(copy);
    return 0;
}
