/* sluice trace report: what a trace says, as a page, as JSON, as CSV, and as a timeline for other
 * programs. The numbers come from trace_report_*.c; this is the verb: arguments, order, files. */
#define _POSIX_C_SOURCE 200809L
#include "tools/trace_report.h"

#include <string.h>
#include <sys/stat.h>

#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/verbs.h"

static int is_standard(const char *name) { return name && strcmp(name, "-") == 0; }
static int is_same(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

static int check_usage(const struct cli_args *args)
{
    int standard = is_standard(args->output) + is_standard(args->csv) +
                   is_standard(args->perfetto) + (args->json != 0);
    if (!args->input)
        cli_error("no trace given; write: sluice trace report FILE -o PAGE.html");
    else if (!args->output && !args->csv && !args->perfetto && !args->json)
        cli_error("nothing to write; name a page with -o PAGE.html, or use --json, --csv FILE or "
                  "--perfetto FILE");
    else if (standard > 1)
        cli_error("two outputs go to standard output; give one of -o, --csv, --perfetto and --json "
                  "a file");
    else if (is_same(args->output, args->csv) || is_same(args->output, args->perfetto) ||
             is_same(args->csv, args->perfetto))
        cli_error("two outputs have the same name; each needs a file of its own");
    else if (is_standard(args->input) && is_standard(args->other))
        cli_error("both traces are standard input; one of them has to be a file");
    else
        return CLI_EXIT_OK;
    return CLI_EXIT_USAGE;
}

/* Whether an output would take the place of a trace that is read. */
static int check_outputs(const struct cli_args *args)
{
    const char *outputs[] = {args->output, args->csv, args->perfetto};
    const char *inputs[] = {args->input, args->other};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        for (size_t k = 0; k < sizeof inputs / sizeof inputs[0]; k++) {
            struct stat out, in;
            if (!outputs[i] || !inputs[k] || stat(outputs[i], &out) || stat(inputs[k], &in))
                continue;
            if (!S_ISREG(out.st_mode) || out.st_dev != in.st_dev || out.st_ino != in.st_ino)
                continue;
            cli_error("%s: is the trace itself; name another file for the output", outputs[i]);
            return CLI_EXIT_USAGE;
        }
    }
    return CLI_EXIT_OK;
}

static int step_load(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

static int load(const struct cli_args *args, const char *path, struct cli_rep_trace *rt)
{
    struct cli_progress progress;
    sluice_error e;
    rt->path = is_standard(path) ? "standard input" : path;
    rt->speed = (struct sl_speed){(double)args->drive_bytes, args->compute_ms};
    cli_progress_begin(&progress, "reading the trace", NULL,
                       cli_progress_wanted(args->progress, args->quiet));
    sluice_err err = sl_trace_load(path, step_load, &progress, rt->budget, &e, &rt->t);
    cli_progress_end(&progress);
    return err ? cli_fail(&e) : CLI_EXIT_OK;
}

static int refuse_perfetto(const struct cli_rep_trace *rt)
{
    if (rt->t->header.measured & SL_TRACE_TIMES) return CLI_EXIT_OK;
    cli_error("%s: has no times, and --perfetto wants them; record with --trace, or leave "
              "--perfetto out",
              rt->path);
    return CLI_EXIT_FAILURE;
}

/* All that is said of one trace. */
static int describe(const struct cli_args *args, struct cli_rep_trace *rt, struct cli_rep *r,
                    const char *group)
{
    struct cli_progress progress;
    cli_rep_group(r, group);
    cli_progress_begin(&progress, "computing", "cache sizes",
                       cli_progress_wanted(args->progress, args->quiet));
    rt->progress = &progress;
    int code = cli_rep_measure(rt);
    if (!code) cli_rep_about(rt, r);
    if (!code) code = cli_rep_curves(rt, r);
    if (!code) code = cli_rep_studies(rt, r);
    cli_progress_end(&progress);
    rt->progress = NULL;
    if (code) return code;
    cli_rep_totals(rt, r);
    cli_rep_time(rt, r);
    cli_rep_layers(rt, r);
    if (strcmp(group, "a") == 0) cli_rep_timeline(rt, r);
    return CLI_EXIT_OK;
}

static void put_text(const char *name, const struct cli_text *text, int *code)
{
    struct cli_rep_sink sink;
    if (cli_rep_open(&sink, name)) {
        *code = CLI_EXIT_FAILURE;
        return;
    }
    int failed = cli_rep_put(&sink, text->bytes, text->size);
    *code = cli_rep_close(&sink, failed ? CLI_EXIT_FAILURE : CLI_EXIT_OK);
}

static int write_all(const struct cli_args *args, const struct cli_rep_trace *a,
                     const struct cli_rep *r)
{
    struct cli_text json = {0};
    char size[CLI_SIZE_TEXT];
    int code = CLI_EXIT_OK;
    cli_json_print(r->root, &json);
    if (args->output) code = cli_rep_page(args->output, json.bytes, json.size);
    if (!code && args->output && !is_standard(args->output))
        cli_note("%s: the report of %s%s%s, data of %s", args->output, a->path,
                 args->other ? " and " : "", args->other ? args->other : "",
                 cli_size_text(size, json.size));
    if (!code && args->csv) put_text(args->csv, &r->csv, &code);
    if (!code && args->perfetto) code = cli_rep_perfetto(args->perfetto, a);
    cli_text_add(&json, "\n", 1);
    if (!code && args->json && cli_put(json.bytes, json.size)) code = CLI_EXIT_FAILURE;
    cli_text_free(&json);
    return code;
}

static int report(const struct cli_args *args, struct cli_rep_trace *a, struct cli_rep_trace *b,
                  struct cli_rep *r)
{
    int code = load(args, args->input, a);
    if (!code && args->other) code = load(args, args->other, b);
    if (!code && args->perfetto) code = refuse_perfetto(a);
    if (!code) code = describe(args, a, r, "a");
    if (!code && b->t) code = describe(args, b, r, "b");
    if (code) return code;
    if (b->t) {
        cli_rep_group(r, "compare");
        cli_rep_compare(a, b, r);
    } else {
        cli_json_null(r->root, "b");
        cli_json_null(r->root, "compare");
    }
    return write_all(args, a, r);
}

int cli_trace_report(const struct cli_args *args)
{
    struct sl_budget budget;
    struct cli_rep r;
    int code = check_usage(args);
    if (!code) code = check_outputs(args);
    if (code) return code;
    sl_budget_init(&budget, UINT64_MAX);
    struct cli_rep_trace *both = cli_alloc(2, sizeof *both);
    both[0].budget = both[1].budget = &budget;
    cli_rep_init(&r);
    cli_json_string(r.root, "version", sluice_version());
    cli_json_string(r.root, "build", sluice_build_info());
    code = report(args, &both[0], &both[1], &r);
    cli_rep_deinit(&r);
    cli_rep_free(&both[0]);
    cli_rep_free(&both[1]);
    cli_free(both);
    return cli_end(code);
}
