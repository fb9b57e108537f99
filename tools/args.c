/* The parser of options; see args.h. The environment comes first, so that the command line wins. */
#include "tools/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/sluice.h"
#include "tools/report.h"

extern char **environ;

#define VARIABLE_PREFIX "SLUICE_"
#define NAME_BYTES 64

void cli_args_init(struct cli_args *args)
{
    const struct cli_option *option;
    memset(args, 0, sizeof *args);
    args->escape = 1;
    args->bos = 1;
    for (size_t i = 0; (option = cli_option_at(i)); i++) {
        void *field = (char *)args + option->offset;
        if (option->kind == CLI_INTEGER) (void)cli_read_integer(option->fallback, field);
        if (option->kind == CLI_NUMBER) (void)cli_read_number(option->fallback, field);
    }
}

static void remark(struct cli_args *args, const char *option, const char *text)
{
    size_t at = 0;
    while (at < CLI_REMARKS_MAX && args->remarks[at].option) at++;
    if (at < CLI_REMARKS_MAX) args->remarks[at] = (struct cli_remark){option, text};
}

static int refuse(const struct cli_option *option, const char *shown, const char *found)
{
    char range[CLI_RANGE_TEXT];
    const char *what = option->kind == CLI_SIZE      ? "a size, such as 4G or 512M: "
                       : option->kind == CLI_STICKY  ? "D or D:N, such as 0.5 or 0.5:16, "
                       : option->kind == CLI_CHOICE  ? "one of "
                       : option->kind == CLI_INTEGER ? "a whole number, "
                                                     : "a number, ";
    cli_error("%s: found '%s', wanted %s%s%s%s", shown, found, what,
              cli_option_range(option, range), option->unit && option->kind != CLI_SIZE ? " " : "",
              option->unit && option->kind != CLI_SIZE ? option->unit : "");
    return -1;
}

static int store_choice(const struct cli_option *option, int *field, const char *value)
{
    for (const struct cli_choice *c = option->choices; c->word; c++)
        if (strcmp(c->word, value) == 0) {
            *field = c->value;
            return 0;
        }
    return -1;
}

/* "0.5" or "0.5:16". */
static int store_sticky(struct cli_args *args, const struct cli_option *option, const char *value)
{
    char text[NAME_BYTES];
    int64_t size = 0;
    double strength = 0;
    size_t n = strcspn(value, ":");
    if (n >= sizeof text) return -1;
    memcpy(text, value, n);
    text[n] = 0;
    if (cli_read_number(text, &strength) || !(strength >= option->low_f) ||
        !(strength <= option->high_f))
        return -1;
    if (value[n] && (cli_read_integer(value + n + 1, &size) || size < 1 || size > option->high))
        return -1;
    args->sticky = strength;
    args->sticky_size = size;
    return 0;
}

/* Puts value where the option says. shown: the name as the user wrote it. */
static int store(struct cli_args *args, const struct cli_option *option, const char *shown,
                 const char *value)
{
    void *field = (char *)args + option->offset;
    int64_t integer = 0;
    uint64_t bytes = 0;
    double number = 0;
    switch (option->kind) {
    case CLI_FLAG:
        *(int *)field = option->set_to;
        return 0;
    case CLI_TEXT:
        if (!*value &&
            (strcmp(option->argument, "FILE") == 0 || strcmp(option->argument, "MODEL") == 0)) {
            cli_error("%s: found '', wanted the name of a file", shown);
            return -1;
        }
        *(const char **)field = value;
        return 0;
    case CLI_STOPS:
        if (args->n_stop == CLI_STOPS_MAX || !*value) {
            cli_error("%s: wanted a text, at most %d times", shown, CLI_STOPS_MAX);
            return -1;
        }
        args->stop[args->n_stop++] = value;
        return 0;
    case CLI_INTEGER:
        if (cli_read_integer(value, &integer)) return refuse(option, shown, value);
        if (option->clamps && integer > option->high) {
            integer = option->high;
            remark(args, option->name, "taken as 512, the most there is; that changes no answer");
        }
        if (integer < option->low || integer > option->high) return refuse(option, shown, value);
        *(int64_t *)field = integer;
        return 0;
    case CLI_NUMBER:
        if (cli_read_number(value, &number) || !(number >= option->low_f) ||
            !(number <= option->high_f))
            return refuse(option, shown, value);
        *(double *)field = number;
        return 0;
    case CLI_STICKY:
        return store_sticky(args, option, value) ? refuse(option, shown, value) : 0;
    case CLI_SIZE:
        if (option->takes_auto && strcmp(value, "auto") == 0) {
            *(uint64_t *)field = SLUICE_RAM_AUTO;
            return 0;
        }
        if (cli_read_size(value, &bytes) || bytes < (uint64_t)option->low)
            return refuse(option, shown, value);
        *(uint64_t *)field = bytes;
        return 0;
    case CLI_CHOICE:
        return store_choice(option, field, value) ? refuse(option, shown, value) : 0;
    }
    return -1;
}

/* "run, eval" for the verbs of a mask; text has VERBS_TEXT bytes and is returned. */
#define VERBS_TEXT 96
static const char *verbs_text(char *text, unsigned verbs)
{
    static const char *const names[] = {"run",   "eval",   "info",         "tokenize",
                                        "bench", "verify", "bench decode", "ppl",
                                        "pack",  "calib",  "diff",
                                        "trace convert", "trace replay", "trace report"};
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (verbs >> i & 1)
            at += (size_t)snprintf(text + at, VERBS_TEXT - at, "%s%s", at ? ", " : "", names[i]);
    return text;
}

/* Offers the option's name and its aliases. */
static void offer_names(struct cli_nearest *nearest, const char *typed,
                        const struct cli_option *option)
{
    cli_nearest_offer(nearest, typed, option->name, strlen(option->name));
    for (const char *alias = option->aliases; *alias;) {
        size_t n = strcspn(alias, " ");
        cli_nearest_offer(nearest, typed, alias, n);
        alias += n + (alias[n] == ' ');
    }
}

static int unknown_option(const char *typed, unsigned verb)
{
    struct cli_nearest nearest = {NULL, 0, 0};
    char theirs[VERBS_TEXT], ours[VERBS_TEXT];
    unsigned others = 0;
    const struct cli_option *option;
    const char *advice = cli_option_absent(typed);
    if (advice) {
        cli_error("%s: %s", typed, advice);
        return -1;
    }
    for (size_t i = 0; (option = cli_option_at(i)); i++) {
        if (option->verbs & verb) offer_names(&nearest, typed, option);
        if (option == cli_option_find(typed, option->verbs)) others |= option->verbs;
    }
    if (others)
        cli_error("%s is an option of %s, not of %s", typed, verbs_text(theirs, others),
                  verbs_text(ours, verb));
    else if (nearest.best)
        cli_error("unknown option %s; did you mean %.*s?", typed, (int)nearest.best_bytes,
                  nearest.best);
    else
        cli_error("unknown option %s; --help lists the known ones", typed);
    return -1;
}

/* A word without a dash: the model, or what to bench. */
static int take_word(struct cli_args *args, unsigned verb, const char *word)
{
    const char **field = verb == CLI_BENCH ? &args->subject : &args->model;
    if (verb & CLI_TRACE) field = &args->input;
    if (verb == CLI_DIFF && args->model) field = &args->other;
    if (verb & CLI_TRACE && verb != CLI_TRACE_REPLAY && args->input) field = &args->other;
    if (!*word) {
        cli_error("found an empty word, wanted %s",
                  verb == CLI_BENCH  ? "what to measure"
                  : verb & CLI_TRACE ? "the name of a trace"
                                     : "the name of a model file");
        return -1;
    }
    if (*field) {
        cli_error("found '%s' besides '%s', wanted one %s", word, *field,
                  verb == CLI_BENCH  ? "thing to measure"
                  : verb == CLI_RUN  ? "model; a prompt stands after -p, in quotes if it has spaces"
                  : verb == CLI_DIFF ? "other model"
                  : verb & CLI_TRACE ? "trace; of two, the other stands behind the first"
                                     : "model");
        return -1;
    }
    *field = word;
    return 0;
}

/* Takes an option of another program that asks for what is done anyway. value: after "=", or NULL;
 * next: the next word, or NULL. Returns how many words it took; 0: it is no such option. */
static int take_needless(struct cli_args *args, const char *typed, const char *name,
                         const char *value, const char *next)
{
    const char *needed;
    const char *text = cli_option_needless(name, &needed);
    if (!text) return 0;
    if (!needed && value) return 0;
    const char *given = value ? value : next;
    if (needed && (!given || strcmp(given, needed) != 0)) return 0;
    remark(args, typed, text);
    return needed && !value ? 2 : 1;
}

/* Takes argv[*at] and its value, and moves *at past them. */
static int take_option(struct cli_args *args, unsigned verb, int argc, char **argv, int *at)
{
    char name[NAME_BYTES];
    const char *typed = argv[*at], *value = strchr(typed, '=');
    size_t n = value ? (size_t)(value - typed) : strlen(typed);
    if (n >= sizeof name) n = sizeof name - 1;
    memcpy(name, typed, n);
    name[n] = 0;
    const struct cli_option *option = cli_option_find(name, verb);
    if (!option) {
        int words = take_needless(args, typed, name, value ? value + 1 : NULL,
                                  *at + 1 < argc ? argv[*at + 1] : NULL);
        *at += words;
        return words ? 0 : unknown_option(name, verb);
    }
    (*at)++;
    if (option->kind == CLI_FLAG && value) {
        cli_error("%s takes no value, found '%s'", name, value + 1);
        return -1;
    }
    if (option->kind == CLI_FLAG) return store(args, option, name, "");
    if (value) return store(args, option, name, value + 1);
    if (*at >= argc) {
        cli_error("%s needs a value: %s", name, option->argument);
        return -1;
    }
    if (cli_option_find(argv[*at], verb)) {
        cli_error("%s needs a value, found the option %s; write %s=%s if you mean that text", name,
                  argv[*at], option->name, argv[*at]);
        return -1;
    }
    return store(args, option, name, argv[(*at)++]);
}

const char *cli_option_variable(const struct cli_option *option, char *text)
{
    (void)snprintf(text, CLI_VARIABLE_TEXT, VARIABLE_PREFIX "%s", option->name + 2);
    for (char *p = text; *p; p++) {
        if (*p == '-') *p = '_';
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    }
    return text;
}

/* One SLUICE_ variable, "NAME=value". */
static int take_variable(struct cli_args *args, unsigned verb, const char *variable)
{
    struct cli_nearest nearest = {NULL, 0, 0};
    char typed[NAME_BYTES], known[CLI_VARIABLE_TEXT], best[CLI_VARIABLE_TEXT] = "";
    const struct cli_option *option;
    const char *value = strchr(variable, '=');
    int of_another_verb = 0;
    if (!value) return 0;
    (void)snprintf(typed, sizeof typed, "%.*s", (int)(value - variable), variable);
    value++;
    for (size_t i = 0; (option = cli_option_at(i)); i++) {
        (void)cli_option_variable(option, known);
        if (strcmp(typed, known) != 0) {
            unsigned before = nearest.best ? nearest.distance : UINT32_MAX;
            cli_nearest_offer(&nearest, typed, known, strlen(known));
            if (nearest.best && nearest.distance < before) memcpy(best, known, sizeof best);
        } else if (!(option->verbs & verb)) {
            of_another_verb = 1;
        } else if (option->kind != CLI_FLAG || strcmp(value, "1") == 0) {
            return store(args, option, typed, value);
        } else if (strcmp(value, "0") == 0 || !*value) {
            return 0;
        } else {
            cli_error("%s: found '%s', wanted 1 (or 0 for what happens without it)", typed, value);
            return -1;
        }
    }
    if (of_another_verb) return 0;
    if (best[0]) {
        cli_error("environment: unknown variable %s; did you mean %s?", typed, best);
        return -1;
    }
    cli_say("warning: environment: %s is no variable of this program, and is ignored", typed);
    return 0;
}

static int check_kv(struct cli_args *args)
{
    if (args->cache_k == args->cache_v) {
        if (args->cache_k) args->kv = args->cache_k;
        return 0;
    }
    cli_error("-ctk and -ctv have to be the same: keys and values are kept in one kind; use --kv");
    return -1;
}

/* --raw on the command line wins over variables about templates; an option beside it does not, and
 * run.c refuses the pair. */
static void let_raw_win(struct cli_args *args, const struct cli_args *variables)
{
    if (!args->raw || variables->raw) return;
    if (args->chat_template == variables->chat_template) args->chat_template = NULL;
    if (args->system_prompt == variables->system_prompt) args->system_prompt = NULL;
    if (args->think == variables->think) args->think = CLI_THINK_AUTO;
    if (args->chat == variables->chat) args->chat = 0;
}

/* Whether the user asks about the program; then a wrong variable must not stand in the way. */
static int asks(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const struct cli_option *option = cli_option_find(argv[i], CLI_EVERY);
        if (option && option->verbs == CLI_EVERY && option->kind == CLI_FLAG &&
            (option->offset == offsetof(struct cli_args, help) ||
             option->offset == offsetof(struct cli_args, version) ||
             option->offset == offsetof(struct cli_args, list_archs)))
            return 1;
    }
    return 0;
}

int cli_args_parse(struct cli_args *args, unsigned verb, int argc, char **argv)
{
    int at = 0;
    char **variable = asks(argc, argv) ? NULL : environ;
    for (; variable && *variable; variable++)
        if (strncmp(*variable, VARIABLE_PREFIX, sizeof VARIABLE_PREFIX - 1) == 0 &&
            take_variable(args, verb, *variable))
            return -1;
    const struct cli_args variables = *args;
    args->model = NULL; /* so that a model on the command line is not the second one */
    while (at < argc) {
        if (strcmp(argv[at], "--") == 0) {
            for (at++; at < argc; at++)
                if (take_word(args, verb, argv[at])) return -1;
        } else if (argv[at][0] == '-' && argv[at][1]) {
            if (take_option(args, verb, argc, argv, &at)) return -1;
        } else {
            if (take_word(args, verb, argv[at++])) return -1;
        }
        if (args->help) return 0;
    }
    if (!args->model) args->model = variables.model;
    let_raw_win(args, &variables);
    if (args->threads < 0) args->threads = 0;
    if (args->ctx_size < 0) args->ctx_size = 0;
    return check_kv(args);
}
