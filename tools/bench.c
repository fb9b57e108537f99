/* sluice bench kernels: how fast each weight type is multiplied on this machine, and whether each
 * instruction set gave the scalar definition's bits in this very run. */
#include <string.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/report.h"
#include "tools/verbs.h"

static int check_usage(const struct cli_args *args)
{
    if (args->subject && strcmp(args->subject, "kernels") == 0) return CLI_EXIT_OK;
    if (args->subject)
        cli_error("bench: found '%s', wanted: sluice bench kernels, decode or prefill",
                  args->subject);
    else
        cli_error("bench needs something to measure: sluice bench kernels, decode or prefill");
    return CLI_EXIT_USAGE;
}

static void print_head(void)
{
    (void)cli_printf("# sluice %s, %s; one thread, one token\n", sluice_version(),
                     sluice_build_info());
    (void)cli_printf("%-8s %-8s %12s %10s %12s %10s  %s\n", "type", "isa", "cache_Gw/s",
                     "cache_GB/s", "memory_Gw/s", "memory_GB/s", "bit_equal");
}

/* Returns what cli_flush does. */
static int print_row(const sluice_kernel_bench *b)
{
    (void)cli_printf("%-8s %-8s %12.2f %10.2f %12.2f %10.2f  %s\n", b->type, b->isa,
                     b->weights_per_s / 1e9, b->bytes_per_s / 1e9, b->memory_weights_per_s / 1e9,
                     b->memory_bytes_per_s / 1e9, b->bit_equal ? "yes" : "NO");
    return cli_flush();
}

static void put_row(struct cli_json *rows, const sluice_kernel_bench *b)
{
    struct cli_json *row = cli_json_child(rows, NULL);
    cli_json_string(row, "type", b->type);
    cli_json_string(row, "isa", b->isa);
    cli_json_bool(row, "bit_equal", b->bit_equal != 0);
    cli_json_number(row, "weights_per_s", b->weights_per_s);
    cli_json_number(row, "bytes_per_s", b->bytes_per_s);
    cli_json_number(row, "memory_weights_per_s", b->memory_weights_per_s);
    cli_json_number(row, "memory_bytes_per_s", b->memory_bytes_per_s);
}

int cli_bench(const struct cli_args *args)
{
    sluice_error error;
    struct cli_json *root, *rows;
    unsigned unequal = 0;
    int code = check_usage(args);
    if (code) return code;
    root = cli_json_object();
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    rows = cli_json_child_array(root, "kernels");
    if (!args->json) print_head();
    for (uint32_t i = 0; code == 0; i++) {
        sluice_kernel_bench row = SLUICE_KERNEL_BENCH_INIT;
        sluice_err err = sluice_bench_kernel(i, &row, &error);
        if (err == SLUICE_E_LIMIT) break;
        if (err)
            code = cli_fail(&error);
        else if (cli_interrupted())
            code = CLI_EXIT_INTERRUPTED;
        else if (args->json)
            put_row(rows, &row);
        else if (print_row(&row))
            code = CLI_EXIT_FAILURE; /* nobody reads it any more */
        unequal += err == SLUICE_OK && !row.bit_equal;
    }
    if (args->json && code == 0)
        (void)cli_json_finish(root, 1);
    else
        cli_json_drop(root);
    if (unequal == 0 || code) return code;
    cli_error(
        "%u variants differ from the scalar definition on this machine; please report it with "
        "the lines above",
        unequal);
    return CLI_EXIT_FAILURE;
}
