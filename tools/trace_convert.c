/* sluice trace convert: a trace in another form. Reading and writing are those of trace/forms.h;
 * here is which form, where to, and what the user is told. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <sys/stat.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/out_file.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/text.h"
#include "tools/verbs.h"
#include "trace/forms.h"

#define DROPS_TEXT 256

struct conversion {
    const struct cli_args *args;
    struct sl_budget budget;
    struct sl_trace *trace;
    enum sl_trace_form from, to;
    bool gzipped;
    struct cli_out_file out;
};

static int is_standard(const char *name) { return strcmp(name, "-") == 0; }

/* Most forms hold less than a trace file: written over it, they would cost the recording. */
static bool is_same_file(const char *from, const char *to)
{
    struct stat a, b;
    if (stat(from, &a) != 0 || stat(to, &b) != 0 || !S_ISREG(a.st_mode)) return false;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int find_form(const char *option, const char *word, enum sl_trace_form *form)
{
    if (!word || sl_trace_form_find(word, form)) return CLI_EXIT_OK;
    cli_error("%s %s: unknown form; wanted trace, csv, jsonl, text or bmoe", option, word);
    return CLI_EXIT_USAGE;
}

static int check_usage(struct conversion *c)
{
    const struct cli_args *args = c->args;
    bool known = false;
    c->from = SL_TRACE_FORM_ANY;
    if (!args->input || !args->other) {
        cli_error("two names wanted; write: sluice trace convert FROM TO");
        return CLI_EXIT_USAGE;
    }
    known = sl_trace_form_of_name(args->other, &c->to, &c->gzipped) || args->to;
    int code = find_form("--from", args->from, &c->from);
    if (!code) code = find_form("--to", args->to, &c->to);
    if (code) return code;
    if (!known)
        cli_error("%s: its name does not say which form to write; add --to trace, csv, jsonl, text "
                  "or bmoe",
                  is_standard(args->other) ? "standard output" : args->other);
    else if (c->gzipped && c->to == SL_TRACE_FORM_TRACE)
        cli_error("%s: a trace file is written as it is; leave .gz out, and use gzip afterwards",
                  args->other);
    else if (args->json && is_standard(args->other))
        cli_error("the trace and --json both go to standard output; give the trace a file");
    else if (is_same_file(args->input, args->other))
        cli_error("%s: is what is read; name another file for what is written", args->other);
    else
        return CLI_EXIT_OK;
    return CLI_EXIT_USAGE;
}

static int step(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

static int load(struct conversion *c)
{
    struct cli_progress progress;
    struct sl_trace_load_from from = {c->args->input, c->from, step, &progress};
    sluice_error e;
    cli_progress_begin(&progress, "reading the trace", NULL,
                       cli_progress_wanted(c->args->progress, c->args->quiet));
    sluice_err err = sl_trace_load_from(&from, &c->budget, &e, &c->trace, &c->from);
    cli_progress_end(&progress);
    return err ? cli_fail(&e) : CLI_EXIT_OK;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

/* The message was printed where it failed. */
static sluice_err failed(sluice_error *e)
{
    memset(e, 0, sizeof *e);
    e->code = cli_interrupted() ? SLUICE_E_CANCELLED : SLUICE_E_IO;
    return (sluice_err)e->code;
}

static sluice_err to_file(void *user, const void *bytes, uint64_t n, sluice_error *e)
{
    struct conversion *c = user;
    if (cli_interrupted() || cli_out_put(&c->out, bytes, n)) return failed(e);
    return SLUICE_OK;
}

static sluice_err to_standard(void *user, const void *bytes, uint64_t n, sluice_error *e)
{
    (void)user;
    if (cli_interrupted() || cli_put(bytes, n)) return failed(e);
    return SLUICE_OK;
}

/* An error without a sentence was reported by who met it. */
static int fail(const sluice_error *e)
{
    if (e->text[0]) return cli_fail(e);
    return e->code == SLUICE_E_CANCELLED ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
}

static int write_text(struct conversion *c, sl_trace_sink_fn *fn)
{
    struct sl_trace_sink sink = {fn, c, c->gzipped};
    sluice_error e;
    return sl_trace_write_form(c->trace, c->to, &sink, &c->budget, &e) ? fail(&e) : CLI_EXIT_OK;
}

static int write_trace(struct conversion *c, const char *path)
{
    sluice_error e;
    return sl_trace_write_file(c->trace, path, &c->budget, &e) ? cli_fail(&e) : CLI_EXIT_OK;
}

static int write_out(struct conversion *c)
{
    const char *name = c->args->other;
    bool trace = c->to == SL_TRACE_FORM_TRACE;
    if (is_standard(name))
        return trace ? write_trace(c, "/dev/stdout") : write_text(c, to_standard);
    if (cli_out_open(&c->out, name)) return CLI_EXIT_FAILURE;
    int code =
        trace ? write_trace(c, c->out.partial[0] ? c->out.partial : name) : write_text(c, to_file);
    if (code)
        cli_out_abandon(&c->out);
    else if (cli_out_commit(&c->out))
        code = CLI_EXIT_FAILURE;
    return code;
}

/* ---- what it was --------------------------------------------------------------------------------
 */

static uint32_t layers_with_experts(const struct sl_trace_header *h)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < h->n_layers; l++) n += h->layer[l].n_experts > 0;
    return n;
}

static void tell(const struct conversion *c, const char *dropped)
{
    const struct sl_trace *t = c->trace;
    char tokens[CLI_TOKENS_TEXT], prompt[CLI_TOKENS_TEXT];
    cli_note("%s to %s: %s decoded, %s of prompts, %u layers with experts, %llu choices",
             sl_trace_form_name(c->from), sl_trace_form_name(c->to),
             cli_tokens_text(tokens, t->n_tokens), cli_tokens_text(prompt, t->n_prompt),
             layers_with_experts(&t->header), (unsigned long long)t->n_choices);
    if (*dropped)
        cli_note("left out, since the form %s cannot hold it: %s", sl_trace_form_name(c->to),
                 dropped);
    if (t->cut)
        cli_note("the recording was cut off: its last %llu bytes were no whole record, and are "
                 "left out",
                 (unsigned long long)t->lost_bytes);
}

static void print_json(const struct conversion *c, const char *dropped)
{
    const struct sl_trace *t = c->trace;
    struct cli_json *root = cli_json_object();
    cli_json_string(root, "from", sl_trace_form_name(c->from));
    cli_json_string(root, "to", sl_trace_form_name(c->to));
    cli_json_integer(root, "decoded_tokens", t->n_tokens);
    cli_json_integer(root, "prompt_tokens", t->n_prompt);
    cli_json_integer(root, "layers", layers_with_experts(&t->header));
    cli_json_integer(root, "choices", t->n_choices);
    cli_json_string(root, "dropped", dropped);
    cli_json_bool(root, "cut", t->cut);
    cli_json_integer(root, "lost_bytes", t->lost_bytes);
    (void)cli_json_finish(root, 0);
}

int cli_trace_convert(const struct cli_args *args)
{
    struct conversion *c = cli_alloc(1, sizeof *c);
    char dropped[DROPS_TEXT];
    c->args = args;
    sl_budget_init(&c->budget, UINT64_MAX);
    int code = check_usage(c);
    if (!code) code = load(c);
    if (!code) code = write_out(c);
    if (!code) {
        (void)sl_trace_form_drops(c->trace, c->to, dropped, sizeof dropped);
        tell(c, dropped);
        if (args->json) print_json(c, dropped);
    }
    sl_trace_free(c->trace);
    cli_free(c);
    return cli_end(code);
}
