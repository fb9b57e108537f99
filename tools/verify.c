/* sluice verify: a whole model compared with the checksums beside it, or in it, or those made; and
 * with --deep every weight decoded.
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
#include "tools/verify_deep.h"
#include "tools/weights.h"

/* What came of both passes. */
struct outcome {
    sluice_sums_result sums;
    sluice_error error; /* of the checksums */
    sluice_err err;     /* SLUICE_E_NOT_FOUND with --deep: there are none */
    int made;
    struct cli_deep deep;
};

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

/* One of the two calls, with progress. */
static sluice_err call(const struct cli_args *args, int make, struct outcome *out)
{
    struct cli_progress progress;
    cli_progress_begin(&progress, make ? "making checksums" : "verifying", NULL,
                       cli_progress_wanted(args->progress, args->quiet));
    sluice_err err =
        make ? sluice_sums_make(args->model, on_progress, &progress, &out->sums, &out->error)
             : sluice_sums_verify(args->model, on_progress, &progress, &out->sums, &out->error);
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

/* Compares the checksums, or makes them. Returns an exit code; 0 where out says the rest. */
static int check_sums(const struct cli_args *args, struct outcome *out)
{
    out->err = call(args, 0, out);
    if (args->make_sums && replaceable(out->err)) {
        if (out->err != SLUICE_E_NOT_FOUND) cli_note("%s", out->error.text);
        out->made = 1;
        out->err = call(args, 1, out);
    } else if (args->make_sums && out->err == SLUICE_OK) {
        cli_note(out->sums.container
                     ? "a container carries its own checksums, and needs no sums file; those were "
                       "checked"
                     : "there was a sums file that fits the model; it was checked, not replaced");
    }
    if (out->err == SLUICE_OK || out->err == SLUICE_E_CORRUPT) return CLI_EXIT_OK;
    if (out->err == SLUICE_E_NOT_FOUND && args->deep && !args->make_sums) return CLI_EXIT_OK;
    return cli_fail(&out->error);
}

/* ---- what comes out ----------------------------------------------------------------------- */

static void put_sums_json(struct cli_json *root, const struct outcome *out)
{
    cli_json_bool(root, "sums_made", out->made);
    if (out->err == SLUICE_E_NOT_FOUND)
        cli_json_null(root, "intact");
    else
        cli_json_bool(root, "intact", out->err == SLUICE_OK);
    if (out->err == SLUICE_E_CORRUPT) {
        const sluice_error *error = &out->error;
        cli_json_string(root, "error", error->text);
        if (error->layer >= 0) cli_json_integer(root, "layer", (uint64_t)error->layer);
        if (error->expert >= 0) cli_json_integer(root, "expert", (uint64_t)error->expert);
        if (error->file_offset != SLUICE_NO_OFFSET)
            cli_json_integer(root, "offset", error->file_offset);
    } else if (out->err == SLUICE_OK) {
        cli_json_bool(root, "container", out->sums.container != 0);
        cli_json_integer(root, "files", out->sums.n_files);
        cli_json_integer(root, "file_bytes", out->sums.bytes);
        cli_json_integer(root, "pieces", out->sums.pieces);
        cli_json_number(root, "verify_ms", (double)out->sums.ns * 1e-6);
    }
}

static void print_json(const struct cli_args *args, const struct outcome *out)
{
    struct cli_json *root = cli_json_object();
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    cli_json_string(cli_json_child(root, "model"), "path", args->model);
    put_sums_json(root, out);
    if (args->deep && out->err != SLUICE_E_CORRUPT) cli_deep_json(root, &out->deep);
    (void)cli_json_finish(root, 0);
}

static void print_sums(const struct outcome *out)
{
    const sluice_sums_result *sums = &out->sums;
    char size[CLI_SIZE_TEXT];
    (void)cli_printf("%s: %llu %s, %s (%llu bytes) in %.2f s%s\n",
                     out->made ? "checksums made" : "intact", (unsigned long long)sums->pieces,
                     sums->container ? "records" : "pieces", cli_size_text(size, sums->bytes),
                     (unsigned long long)sums->bytes, (double)sums->ns * 1e-9,
                     out->made ? "; written beside the model as NAME.sums" : "");
}

static void print_deep(const struct cli_deep *deep)
{
    if (deep->bad_tensors)
        (void)cli_printf("%llu of %llu tensors hold values that are no numbers\n",
                         (unsigned long long)deep->bad_tensors, (unsigned long long)deep->tensors);
    else
        (void)cli_printf("all numbers: %llu weights of %llu tensors in %.2f s\n",
                         (unsigned long long)deep->weights, (unsigned long long)deep->tensors,
                         (double)deep->ns * 1e-9);
}

int cli_verify(const struct cli_args *args)
{
    struct outcome out = {.sums = SLUICE_SUMS_RESULT_INIT, .err = SLUICE_E_NOT_FOUND};
    if (!args->model) return cli_model_missing("verify");
    int folder = cli_is_folder(args->model), code = CLI_EXIT_OK;
    if (folder && (!args->deep || args->make_sums)) {
        cli_error("%s: a folder of safetensors carries no checksums, and sums files are not made "
                  "for it; --deep alone decodes every weight",
                  args->model);
        return CLI_EXIT_FAILURE;
    }
    if (!folder) code = check_sums(args, &out);
    if (code == 0 && args->deep && out.err != SLUICE_E_CORRUPT)
        code = cli_deep_run(&out.deep, args);
    if (code) return code;
    if (out.err == SLUICE_E_NOT_FOUND && !folder)
        cli_note("there are no checksums to compare with; --make-sums makes them");
    if (args->json) {
        print_json(args, &out);
    } else {
        if (out.err == SLUICE_OK) print_sums(&out);
        if (args->deep && out.err != SLUICE_E_CORRUPT) print_deep(&out.deep);
    }
    if (out.err == SLUICE_E_CORRUPT) return cli_fail(&out.error);
    return out.deep.bad_tensors ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}
