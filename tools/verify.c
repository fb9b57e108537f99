/* sluice verify: a whole model compared with the checksums beside it, or those made.
 *
 * Making never replaces a sums file that fits the model: what is damaged by now would be declared
 * whole. So --make-sums may stand in a script: the first time it makes the file, later it checks.
 */
#include <string.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/verbs.h"

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

/* One of the two calls, with progress. */
static sluice_err call(const struct cli_args *args, int make, sluice_sums_result *result,
                       sluice_error *error)
{
    struct cli_progress progress;
    cli_progress_begin(&progress, make ? "making checksums" : "verifying", NULL,
                       cli_progress_wanted(args->progress, args->quiet));
    sluice_err err = make ? sluice_sums_make(args->model, on_progress, &progress, result, error)
                          : sluice_sums_verify(args->model, on_progress, &progress, result, error);
    cli_progress_end(&progress);
    return err;
}

/* Whether the sums file cannot be used (there is none, it is damaged or of something else), so that
 * another may take its place. Where the model is meant instead, making fails for the same reason.
 */
static int replaceable(sluice_err err)
{
    return err == SLUICE_E_NOT_FOUND || err == SLUICE_E_CHANGED || err == SLUICE_E_FORMAT ||
           err == SLUICE_E_VERSION || err == SLUICE_E_TRUNCATED;
}

static void print_json(const struct cli_args *args, int made, const sluice_sums_result *result,
                       const sluice_error *error)
{
    struct cli_json *root = cli_json_object();
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    cli_json_string(cli_json_child(root, "model"), "path", args->model);
    cli_json_bool(root, "sums_made", made);
    cli_json_bool(root, "intact", !error);
    if (error) {
        cli_json_string(root, "error", error->text);
        if (error->layer >= 0) cli_json_integer(root, "layer", (uint64_t)error->layer);
        if (error->expert >= 0) cli_json_integer(root, "expert", (uint64_t)error->expert);
        if (error->file_offset != SLUICE_NO_OFFSET)
            cli_json_integer(root, "offset", error->file_offset);
    } else {
        cli_json_integer(root, "files", result->n_files);
        cli_json_integer(root, "file_bytes", result->bytes);
        cli_json_integer(root, "pieces", result->pieces);
        cli_json_number(root, "verify_ms", (double)result->ns * 1e-6);
    }
    (void)cli_json_finish(root, 0);
}

static void print_text(int made, const sluice_sums_result *result)
{
    char size[CLI_SIZE_TEXT];
    double seconds = (double)result->ns * 1e-9;
    (void)cli_printf("%s: %llu pieces, %s (%llu bytes) in %.2f s%s\n",
                     made ? "checksums made" : "intact", (unsigned long long)result->pieces,
                     cli_size_text(size, result->bytes), (unsigned long long)result->bytes, seconds,
                     made ? "; written beside the model as NAME.sums" : "");
}

int cli_verify(const struct cli_args *args)
{
    sluice_sums_result result = SLUICE_SUMS_RESULT_INIT;
    sluice_error error;
    int made = 0;
    if (!args->model) return cli_model_missing("verify");
    sluice_err err = call(args, 0, &result, &error);
    if (args->make_sums && replaceable(err)) {
        if (err != SLUICE_E_NOT_FOUND) cli_note("%s", error.text);
        made = 1;
        err = call(args, 1, &result, &error);
    } else if (args->make_sums && err == SLUICE_OK) {
        cli_note("there was a sums file that fits the model; it was checked, not replaced");
    }
    if (err != SLUICE_OK && err != SLUICE_E_CORRUPT) return cli_fail(&error);
    if (args->json)
        print_json(args, made, &result, err == SLUICE_OK ? NULL : &error);
    else if (err == SLUICE_OK)
        print_text(made, &result);
    return err == SLUICE_OK ? CLI_EXIT_OK : cli_fail(&error);
}
