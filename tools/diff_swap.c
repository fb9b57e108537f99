/* diff --swap-layers: how much nearer B's predictions come to A's when one layer is taken from A.
 *
 * A is run once, and what it expected is kept in a temporary file (unless --kl has it); then B is
 * run, and B again with each layer of A in its place. A layer whose weights are equal in both files
 * changes nothing and is not run. Gains do not add up: what one layer spoils, another may hide. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/diff.h"
#include "tools/ppl.h"
#include "tools/report.h"
#include "tools/text.h"

#define FOLDER_BYTES 512

/* A layer and what came of it. */
struct swap {
    struct cli_diff_row row; /* its weights */
    double kl, kl_error;
};

struct swaps {
    struct cli_diff *diff;
    struct swap *swaps; /* [n] */
    size_t n;
    struct cli_ppl_measured a, b; /* a: unknown with --kl */
    char folder[FOLDER_BYTES], reference[FOLDER_BYTES + 16];
};

/* ---- the reference run -------------------------------------------------------------------- */

static int make_folder(struct swaps *s)
{
    const char *parent = getenv("TMPDIR");
    int n = snprintf(s->folder, sizeof s->folder, "%s/sluice-diff-XXXXXX",
                     parent && *parent ? parent : "/tmp");
    if (n < (int)sizeof s->folder && mkdtemp(s->folder)) {
        (void)snprintf(s->reference, sizeof s->reference, "%s/reference", s->folder);
        return 0;
    }
    cli_error("no temporary folder can be made (TMPDIR says where): %s", strerror(errno));
    s->folder[0] = 0;
    return -1;
}

static void remove_folder(const struct swaps *s)
{
    if (!s->folder[0]) return;
    (void)unlink(s->reference);
    (void)rmdir(s->folder);
}

static int run_a(struct swaps *s)
{
    struct cli_args args = *s->diff->args;
    if (args.kl) {
        (void)snprintf(s->reference, sizeof s->reference, "%s", args.kl);
        return CLI_EXIT_OK;
    }
    if (make_folder(s)) return CLI_EXIT_FAILURE;
    args.save_logits = s->reference;
    cli_note("A: %s", args.model);
    return cli_ppl_measure(&args, &s->a);
}

/* B with a layer of A, or with none: group is UINT32_MAX. */
static int run_b(const struct swaps *s, uint32_t group, struct cli_ppl_measured *out)
{
    struct cli_args args = *s->diff->args;
    const char *a = args.model;
    args.model = args.other;
    if (group != UINT32_MAX) {
        args.graft = a;
        args.graft_layer = group;
    }
    args.kl = s->reference;
    if (s->diff->args->kl == NULL || group != UINT32_MAX) {
        args.file = args.tokens = NULL; /* the reference run holds them, and the method */
        args.window = args.stride = 0;
        args.llama_cpp = 0;
        args.bos = 1;
    }
    return cli_ppl_measure(&args, out);
}

/* ---- the layers --------------------------------------------------------------------------- */

static int check_kinds(const struct cli_diff *diff)
{
    const char *paths[2] = {diff->args->model, diff->args->other};
    for (int side = 0; side < 2; side++) {
        if (strcmp(diff->kind[side], "safetensors") != 0) continue;
        cli_error("%s: a folder of safetensors cannot be run; pack it first (sluice pack), and "
                  "take the container",
                  paths[side]);
        return CLI_EXIT_FAILURE;
    }
    return CLI_EXIT_OK;
}

static int has_output(const struct sl_source *source)
{
    static const char name[] = "output.weight";
    return sl_source_find(source, (struct sl_str){name, sizeof name - 1}) != UINT32_MAX;
}

/* Whether B holds a tensor of the group that A lacks or has otherwise, or the other way round. */
static int has_alone(const struct cli_diff *diff, uint32_t group)
{
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < diff->n_alone[side]; i++) {
            const struct sl_source_tensor *t =
                sl_source_tensor(diff->source[side], diff->alone[side][i]);
            if (sl_gguf_group(t->name) == group) return 1;
        }
    return 0;
}

/* The layers worth a run. Where one file shares the embedding with the output and the other does
 * not, both go together. */
static void choose(struct swaps *s)
{
    const struct cli_diff *diff = s->diff;
    int joined = has_output(diff->source[0]) != has_output(diff->source[1]);
    s->swaps = cli_alloc(diff->layers.n, sizeof *s->swaps);
    for (size_t i = 0; i < diff->layers.n; i++) {
        const struct cli_diff_row *row = &diff->layers.rows[i];
        if (joined && row->group == SL_GROUP_OUTPUT) continue;
        int together = joined && row->group == SL_GROUP_EMBEDDING;
        if (row->all.error_squares == 0 && !together && !has_alone(diff, row->group)) continue;
        struct swap *swap = &s->swaps[s->n++];
        swap->row = *row;
        if (together) (void)snprintf(swap->row.name, sizeof swap->row.name, "embedding, output");
    }
}

static int run_all(struct swaps *s)
{
    struct cli_ppl_measured measured;
    const struct cli_args *args = s->diff->args;
    int code = run_a(s);
    if (code) return code;
    cli_note("B: %s", args->other);
    code = run_b(s, UINT32_MAX, &s->b);
    for (size_t i = 0; i < s->n && code == 0; i++) {
        struct swap *swap = &s->swaps[i];
        cli_report_init(args->quiet || !args->verbose); /* the plan was said twice */
        code = run_b(s, swap->row.group, &measured);
        cli_report_init(args->quiet);
        if (code) break;
        swap->kl = measured.quality.mean_kl;
        swap->kl_error = measured.quality.kl_error;
        cli_note("%zu of %zu measured: B with %s of A", i + 1, s->n, swap->row.name);
    }
    return code;
}

/* ---- what comes out ----------------------------------------------------------------------- */

static int by_kl(const void *a, const void *b)
{
    const struct swap *x = a, *y = b;
    if (x->kl != y->kl) return x->kl < y->kl ? -1 : 1;
    return x->row.group < y->row.group ? -1 : 1;
}

/* "+1.2 MiB" */
static const char *cost_text(const struct swap *swap, char *text, size_t size)
{
    uint64_t a = swap->row.bytes[0], b = swap->row.bytes[1];
    char bytes[CLI_SIZE_TEXT];
    (void)snprintf(text, size, "%c%s", a < b ? '-' : '+',
                   cli_size_text(bytes, a < b ? b - a : a - b));
    return text;
}

static void print_text(const struct swaps *s)
{
    double kl = s->b.quality.mean_kl;
    char cost[CLI_SIZE_TEXT + 8];
    (void)cli_printf("KL(A || B) %.6g +- %.2g nats a token, %zu tokens\n", kl,
                     s->b.quality.kl_error, s->b.scored);
    (void)cli_printf("%-20s %12s %12s %8s %12s %9s\n", "B with this of A", "KL", "gain", "of KL",
                     "bytes", "error");
    for (size_t i = 0; i < s->n; i++) {
        const struct swap *swap = &s->swaps[i];
        double gain = kl - swap->kl;
        (void)cli_printf("%-20s %12.6g %12.3g %6.1f %% %12s %9.3g\n", swap->row.name, swap->kl,
                         gain, kl > 0 ? 100 * gain / kl : 0.0, cost_text(swap, cost, sizeof cost),
                         sl_compared_error(&swap->row.all));
    }
    (void)cli_printf("method %s\n", s->b.method);
}

static void print_json(const struct swaps *s)
{
    struct cli_json *root = cli_json_object();
    cli_diff_json_models(root, s->diff);
    cli_json_number(root, "mean_kl", s->b.quality.mean_kl);
    cli_json_number(root, "kl_error", s->b.quality.kl_error);
    cli_json_integer(root, "scored_tokens", s->b.scored);
    cli_json_string(root, "words", s->b.method);
    struct cli_json *list = cli_json_child_array(root, "swaps");
    for (size_t i = 0; i < s->n; i++) {
        const struct swap *swap = &s->swaps[i];
        struct cli_json *json = cli_json_child(list, NULL);
        cli_json_string(json, "name", swap->row.name);
        if (swap->row.group < SL_GROUP_EMBEDDING)
            cli_json_integer(json, "layer", swap->row.group);
        else
            cli_json_null(json, "layer");
        cli_json_number(json, "mean_kl", swap->kl);
        cli_json_number(json, "kl_error", swap->kl_error);
        cli_json_number(json, "gain", s->b.quality.mean_kl - swap->kl);
        cli_json_integer(json, "bytes_a", swap->row.bytes[0]);
        cli_json_integer(json, "bytes_b", swap->row.bytes[1]);
        cli_json_number(json, "error", sl_compared_error(&swap->row.all));
    }
    (void)cli_json_finish(root, 0);
}

int cli_diff_swap(struct cli_diff *diff)
{
    struct swaps s = {.diff = diff};
    int code = check_kinds(diff);
    if (code) return code;
    choose(&s);
    cli_diff_close_sources(diff); /* --ram is the runs' */
    if (s.n == 0) cli_note("the weights of both are the same, so there is nothing to swap");
    code = run_all(&s);
    remove_folder(&s);
    if (code == 0) {
        if (s.n) qsort(s.swaps, s.n, sizeof *s.swaps, by_kl);
        if (diff->args->json)
            print_json(&s);
        else
            print_text(&s);
    }
    cli_free(s.swaps);
    return code;
}
