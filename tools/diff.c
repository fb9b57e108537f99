/* sluice diff: how far two files of the same model are apart, in weights, or with --swap-layers in
 * what they predict. Differences are what it is asked for, and no failure. */
#include "tools/diff.h"
#include "tools/report.h"
#include "tools/verbs.h"

static int check_usage(const struct cli_args *args)
{
    int text = args->file || args->tokens || args->kl;
    if (!args->model || !args->other) {
        cli_error("two models are to be compared; write: sluice diff BETTER.gguf OTHER.gguf");
    } else if (args->swap_layers && !text) {
        cli_error("no text given; write: sluice diff A B --swap-layers -f TEXT");
    } else if (!args->swap_layers && text) {
        cli_error("a text is for --swap-layers; without, weights are compared and nothing else");
    } else {
        return CLI_EXIT_OK;
    }
    return CLI_EXIT_USAGE;
}

static void print_json(struct cli_diff *diff)
{
    struct cli_json *root = cli_json_object();
    cli_diff_json_models(root, diff);
    cli_diff_json(root, diff);
    (void)cli_json_finish(root, 0);
}

int cli_diff(const struct cli_args *args)
{
    struct cli_diff diff = {.args = args};
    int code = check_usage(args);
    if (code) return code;
    code = cli_diff_weights(&diff);
    if (code == 0 && args->swap_layers)
        code = cli_diff_swap(&diff);
    else if (code == 0 && args->json)
        print_json(&diff);
    else if (code == 0)
        cli_diff_print(&diff);
    cli_diff_free(&diff);
    return code;
}
