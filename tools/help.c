/* Help, made from the tables of verbs and options. It is what was asked for, so it goes to standard
 * output. */
#include <stdio.h>
#include <string.h>

#include "include/sluice.h"
#include "tools/report.h"
#include "tools/verbs.h"

#define COLUMN 30 /* where the descriptions begin */
#define WIDTH 96

/* Prints text wrapped, every line after the first at COLUMN; at is where the first begins. */
static void put_wrapped(const char *text, size_t at)
{
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at + word + 1 > WIDTH && at > COLUMN) {
            (void)cli_printf("\n%*s", COLUMN, "");
            at = COLUMN;
        } else if (at > COLUMN) {
            (void)cli_put(" ", 1);
            at++;
        }
        (void)cli_put(text, word);
        at += word;
        text += word;
        while (*text == ' ') text++;
    }
    (void)cli_put("\n", 1);
}

static void put_option(const struct cli_option *option)
{
    char names[160], text[512], range[CLI_RANGE_TEXT];
    size_t n = 0;
    for (const char *alias = option->aliases; *alias;) {
        size_t length = strcspn(alias, " ");
        n += (size_t)snprintf(names + n, sizeof names - n, "%.*s, ", (int)length, alias);
        alias += length;
        while (*alias == ' ') alias++;
    }
    (void)snprintf(names + n, sizeof names - n, "%s%s%s", option->name, option->argument ? " " : "",
                   option->argument ? option->argument : "");
    (void)cli_option_range(option, range);
    int is_default = option->fallback && strcmp(option->fallback, "none") != 0;
    const char *unit = option->unit && option->kind != CLI_SIZE ? option->unit : "";
    if (*range || is_default)
        (void)snprintf(text, sizeof text, "%s (%s%s%s%s%s%s)", option->help, range,
                       *range && *unit ? " " : "", *range ? unit : "",
                       *range && is_default ? "; " : "", is_default ? "default: " : "",
                       is_default ? option->fallback : "");
    else
        (void)snprintf(text, sizeof text, "%s", option->help);
    (void)cli_printf("  %-*s", COLUMN - 2, names);
    size_t at = 2 + strlen(names);
    if (at >= COLUMN) {
        (void)cli_printf("\n%*s", COLUMN, "");
    }
    put_wrapped(text, COLUMN);
}

/* The option to explain variables by: one of the verb's, with a value. */
static const struct cli_option *example_option(unsigned verb)
{
    const struct cli_option *option = cli_option_find("--ctx-size", verb), *other;
    if (!option) option = cli_option_find("--bits", verb);
    if (!option) option = cli_option_find("--threads", verb);
    for (size_t i = 0; !option && (other = cli_option_at(i)); i++)
        if ((other->verbs & verb) && other->kind != CLI_FLAG) option = other;
    return option;
}

void cli_help_verb(const struct cli_verb_entry *verb)
{
    const struct cli_option *option;
    char variable[CLI_VARIABLE_TEXT];
    (void)cli_printf("sluice %s - %s\n\nusage: sluice %s %s\n\n", verb->name, verb->summary,
                     verb->name, verb->usage);
    (void)cli_put(verb->details, strlen(verb->details));
    (void)cli_printf("\noptions:\n");
    for (size_t i = 0; (option = cli_option_at(i)); i++)
        if (option->verbs & verb->verb) put_option(option);
    if (verb->verb == CLI_RUN)
        (void)cli_printf("\nchat templates: %s\n", sluice_chat_template_names());
    option = example_option(verb->verb);
    if (option)
        (void)cli_printf("\nEach option may stand in the environment, such as %s for %s.\n",
                         cli_option_variable(option, variable), option->name);
}

void cli_help_program(void)
{
    const struct cli_verb_entry *verb;
    (void)cli_printf(
        "sluice - runs Mixture-of-Experts language models that are larger than memory\n\n"
        "usage: sluice VERB [options]\n\nverbs:\n");
    for (size_t i = 0; (verb = cli_verb_at(i)); i++)
        (void)cli_printf("  %-10s %s\n", verb->name, verb->summary);
    (void)cli_printf(
        "\n  sluice help VERB    its options; the same as sluice VERB --help\n"
        "  sluice --version    version, and the line about build and machine\n"
        "  sluice --list-archs model architectures that can be run\n\n"
        "first steps:\n"
        "  sluice info model.gguf\n"
        "  sluice run -m model.gguf -p \"Hello\"\n"
        "  sluice run -m model.gguf\n\n"
        "MODEL is a GGUF file, or a container that sluice pack has made (NAME.sluice).\n"
        "The answer goes to standard output, everything else to standard error.\n"
        "Exit codes: 0, 1 failure, 2 usage, 130 interrupted.\n");
}

static void put_or_dash(const char *text) { (void)cli_printf("%s\t", text && *text ? text : "-"); }

void cli_help_options(void)
{
    const struct cli_option *option;
    const struct cli_verb_entry *verb;
    char range[CLI_RANGE_TEXT];
    for (size_t i = 0; (option = cli_option_at(i)); i++) {
        int any = 0;
        put_or_dash(option->name);
        put_or_dash(option->aliases);
        put_or_dash(option->argument);
        put_or_dash(option->unit);
        put_or_dash(option->fallback);
        put_or_dash(cli_option_range(option, range));
        for (size_t v = 0; (verb = cli_verb_at(v)); v++)
            if (option->verbs & verb->verb) (void)cli_printf("%s%s", any++ ? " " : "", verb->name);
        (void)cli_printf("\t%s\n", option->help);
    }
}
