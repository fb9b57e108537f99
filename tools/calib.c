/* sluice calib: column statistics of a model on a text, written as an importance matrix. What is
 * done is in calib_run.c; this is the verb: its arguments, the file, and what is said. */
#include "tools/calib.h"

#include <string.h>

#include "formats/gguf.h"
#include "io/new_file.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/plan_text.h"
#include "tools/report.h"
#include "tools/streaming.h"
#include "tools/verbs.h"

static int check_usage(const struct cli_args *args)
{
    if (!args->model) return cli_model_missing("calib");
    if (args->file && args->tokens)
        cli_error("-f and --tokens both give the text; use one of them");
    else if (!args->file && !args->tokens)
        cli_error("no text given; write: sluice calib -m MODEL -f TEXT -o STATS.gguf");
    else if (!args->output)
        cli_error("no file for the statistics given; write -o STATS.gguf");
    else if (args->window && args->window < CLI_METHOD_WINDOW_MIN)
        cli_error("-c: found %lld, wanted at least %d tokens, or 0 for %d", (long long)args->window,
                  CLI_METHOD_WINDOW_MIN, CLI_PPL_WINDOW);
    else
        return CLI_EXIT_OK;
    return CLI_EXIT_USAGE;
}

/* Whether path may be written over: nothing is there, or nothing but older statistics. */
static int is_replaceable(const char *path, struct sl_budget *b)
{
    struct sl_file *file = NULL;
    struct sl_gguf *gguf = NULL;
    sluice_err err = sl_file_open(path, b, NULL, &file);
    if (err) return err == SLUICE_E_NOT_FOUND;
    int yes = sl_file_bytes(file) == 0;
    sl_file_close(file);
    if (yes || sl_gguf_open(path, b, NULL, &gguf)) return yes;
    yes = sl_gguf_refuse_imatrix(gguf, NULL) != SLUICE_OK;
    sl_gguf_close(gguf);
    return yes;
}

/* Finds out before hours of reading that the file cannot be written, or must not be. */
static int check_output(const char *path, struct sl_budget *b)
{
    struct sl_new_file *file = NULL;
    sluice_error error;
    if (!is_replaceable(path, b)) {
        cli_error("%s: is there and holds no statistics; remove it, or name another file with -o",
                  path);
        return CLI_EXIT_FAILURE;
    }
    if (sl_new_file_open(path, b, &error, &file)) return cli_fail(&error);
    sl_new_file_discard(file);
    return CLI_EXIT_OK;
}

/* ---- what comes out ----------------------------------------------------------------------- */

/* Experts that no token chose, in the order of layers. */
struct unreached {
    struct cli_ids layers, experts;
};

/* The three parts of an expert are reached together: one of them stands for it. */
static void on_unreached(void *user, const char *name, uint32_t matrix)
{
    struct unreached *u = user;
    unsigned layer;
    if (!strstr(name, ".ffn_down_exps.") || sscanf(name, "blk.%9u.", &layer) != 1) return;
    cli_ids_push(&u->layers, (int32_t)layer);
    cli_ids_push(&u->experts, (int32_t)matrix);
}

/* How many entries from first on are of the same layer. */
static size_t run_of(const struct unreached *u, size_t first)
{
    size_t end = first;
    while (end < u->layers.count && u->layers.ids[end] == u->layers.ids[first]) end++;
    return end - first;
}

static void print_text(const struct cli_calib *calib, const struct unreached *u)
{
    uint32_t window = calib->text.head.method.window;
    (void)cli_printf(
        "tokens %llu\nwindows %u\nwindow_tokens %u\nexperts %u\nunreached_experts %zu\n",
        (unsigned long long)calib->windows * window, (unsigned)calib->windows, (unsigned)window,
        (unsigned)calib->info.n_experts_total, u->experts.count);
    for (size_t i = 0, n; i < u->layers.count; i += n) {
        n = run_of(u, i);
        (void)cli_printf("layer %d unreached %zu\n", (int)u->layers.ids[i], n);
    }
}

static void print_json(const struct cli_calib *calib, const struct unreached *u,
                       const sluice_stats *stats)
{
    struct cli_json *root = cli_json_object();
    uint32_t window = calib->text.head.method.window;
    (void)cli_json_model(root, &calib->args, &calib->info);
    cli_json_string(root, "output", calib->args.output);
    cli_json_integer(root, "tokens", (uint64_t)calib->windows * window);
    cli_json_integer(root, "windows", calib->windows);
    cli_json_integer(root, "window_tokens", window);
    cli_json_integer(root, "unreached_experts", u->experts.count);
    struct cli_json *list = cli_json_child_array(root, "unreached");
    for (size_t i = 0, n; i < u->layers.count; i += n) {
        n = run_of(u, i);
        struct cli_json *layer = cli_json_child(list, NULL);
        cli_json_integer(layer, "layer", (uint64_t)u->layers.ids[i]);
        cli_json_ids(layer, "experts", u->experts.ids + i, n);
    }
    cli_json_number(root, "eval_ms", (double)calib->ns / 1e6);
    cli_json_experts(root, stats);
    cli_json_plan(root, &calib->plan);
    cli_json_integer(root, "budget_peak_bytes", stats->budget_peak_bytes);
    cli_json_known(root, "process_peak_bytes", stats->process_peak_bytes);
    (void)cli_json_finish(root, 0);
}

static void print_result(const struct cli_calib *calib)
{
    struct unreached u = {.layers = {NULL, 0, 0}};
    sluice_stats stats = SLUICE_STATS_INIT;
    char tokens[CLI_TOKENS_TEXT], peak[CLI_PEAK_TEXT];
    sluice_session_get_stats(calib->session, &stats);
    (void)sl_column_stats_unreached(calib->stats, on_unreached, &u);
    if (calib->args.json)
        print_json(calib, &u, &stats);
    else
        print_text(calib, &u);
    if (u.experts.count)
        cli_note("%zu of %u experts were reached by no token: they will be treated as if all their "
                 "inputs were alike; more or other text reaches more",
                 u.experts.count, (unsigned)calib->info.n_experts_total);
    cli_note("load %.2f s; read %s in %.2f s (%.1f tok/s); peak memory %s",
             (double)calib->info.load_ns / 1e9, cli_tokens_text(tokens, stats.eval_tokens),
             (double)calib->ns / 1e9,
             calib->ns ? (double)stats.eval_tokens * 1e9 / (double)calib->ns : 0.0,
             cli_peak_text(peak, &stats, &calib->info));
    cli_streaming_note(&calib->args, &calib->info, &stats, stats.eval_tokens);
    cli_ids_free(&u.layers);
    cli_ids_free(&u.experts);
}

int cli_calib(const struct cli_args *args)
{
    struct cli_calib calib = {.windows = 0};
    struct sl_budget budget;
    sluice_error error;
    int code = check_usage(args);
    if (code) return code;
    sl_budget_init(&budget, UINT64_MAX);
    code = check_output(args->output, &budget);
    if (code == 0) code = cli_calib_run(&calib, args, &budget);
    if (code == 0 &&
        sl_column_stats_write(calib.stats, args->output, args->file ? args->file : args->tokens,
                              calib.windows, calib.text.head.method.window, &error))
        code = cli_fail(&error);
    if (code == 0) print_result(&calib);
    cli_calib_close(&calib);
    return code;
}
