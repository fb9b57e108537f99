/* sluice bench kernels: how fast each weight type is multiplied on this machine, as a share of how
 * fast memory is read, and whether the scalar definition's bits came out in this very run.
 * sluice bench memory: how fast memory is read, alone. */
#include <stdio.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/machine.h"
#include "tools/report.h"
#include "tools/verbs.h"

/* Of models that people run: experts of Qwen3-30B-A3B (gate or up, then down) and of
 * Qwen3.6-35B-A3B, and the output matrix of either's family. The first is what is measured without
 * --full. */
static const struct shape {
    uint32_t rows, cols;
    uint32_t tokens[5]; /* at once; ends with 0 */
} shapes[] = {
    {768, 2048, {1, 4, 16, 64, 0}}, {2048, 768, {1, 4, 16, 64, 0}}, {512, 2048, {1, 4, 16, 64, 0}},
    {2048, 512, {1, 4, 16, 64, 0}}, {151936, 2048, {1, 0}},
};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

/* Two numbers of threads, one and all; one where that is all. */
struct bench {
    const struct cli_args *args;
    sluice_memory_bench memory[2];
    unsigned n_threads;
    struct cli_json *root, *rows; /* NULL without --json */
    unsigned unequal;
};

static int check_usage(const struct cli_args *args)
{
    const char *subject = args->subject;
    if (subject && (strcmp(subject, "kernels") == 0 || strcmp(subject, "memory") == 0))
        return CLI_EXIT_OK;
    if (subject)
        cli_error("bench: found '%s', wanted: sluice bench kernels, memory, decode or prefill",
                  subject);
    else
        cli_error("bench needs something to measure: sluice bench kernels, memory, decode or "
                  "prefill");
    return CLI_EXIT_USAGE;
}

/* ---- memory ------------------------------------------------------------------------------- */

static int measure_memory(struct bench *b)
{
    const sluice_memory_bench fresh = SLUICE_MEMORY_BENCH_INIT;
    sluice_error error;
    for (unsigned i = 0; i < 2; i++) {
        b->memory[i] = fresh;
        b->memory[i].threads = i ? (uint32_t)b->args->threads : 1;
        if (sluice_bench_memory(&b->memory[i], &error)) return cli_fail(&error);
        if (i == 0 || b->memory[i].threads > 1) b->n_threads = i + 1;
    }
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

static int print_memory(const struct bench *b)
{
    (void)cli_printf("# sluice %s, %s\n", sluice_version(), sluice_build_info());
    for (unsigned i = 0; i < b->n_threads; i++)
        (void)cli_printf("# %u thread%s read%s memory at %.2f GB/s\n",
                         (unsigned)b->memory[i].threads, b->memory[i].threads == 1 ? "" : "s",
                         b->memory[i].threads == 1 ? "s" : "", b->memory[i].bytes_per_s / 1e9);
    return cli_flush();
}

static void put_memory(const struct bench *b)
{
    struct cli_json *list = cli_json_child_array(b->root, "memory");
    for (unsigned i = 0; i < b->n_threads; i++) {
        struct cli_json *row = cli_json_child(list, NULL);
        cli_json_integer(row, "threads", b->memory[i].threads);
        cli_json_integer(row, "buffer_bytes", b->memory[i].buffer_bytes);
        cli_json_number(row, "bytes_per_s", b->memory[i].bytes_per_s);
    }
}

/* ---- kernels ------------------------------------------------------------------------------ */

static int print_head(void)
{
    (void)cli_printf("%-8s %-6s %-11s %6s %7s %10s %10s %11s %11s %12s  %s\n", "type", "isa",
                     "shape", "tokens", "threads", "cache_Gw/s", "cache_GB/s", "memory_Gw/s",
                     "memory_GB/s", "memory_share", "bit_equal");
    return cli_flush();
}

/* Returns what cli_flush does. */
static int print_row(const sluice_kernel_bench *k, double share)
{
    char shape[32];
    (void)snprintf(shape, sizeof shape, "%ux%u", (unsigned)k->rows, (unsigned)k->cols);
    (void)cli_printf("%-8s %-6s %-11s %6u %7u %10.2f %10.2f %11.2f %11.2f %12.2f  %s\n", k->type,
                     k->isa_name, shape, (unsigned)k->n_tokens, (unsigned)k->threads,
                     k->weights_per_s / 1e9, k->bytes_per_s / 1e9, k->memory_weights_per_s / 1e9,
                     k->memory_bytes_per_s / 1e9, share, k->bit_equal ? "yes" : "NO");
    return cli_flush();
}

static void put_row(const struct bench *b, const sluice_kernel_bench *k, double share)
{
    struct cli_json *row = cli_json_child(b->rows, NULL);
    cli_json_string(row, "type", k->type);
    cli_json_string(row, "isa", k->isa_name);
    cli_json_integer(row, "rows", k->rows);
    cli_json_integer(row, "cols", k->cols);
    cli_json_integer(row, "tokens", k->n_tokens);
    cli_json_integer(row, "threads", k->threads);
    cli_json_bool(row, "bit_equal", k->bit_equal != 0);
    cli_json_number(row, "weights_per_s", k->weights_per_s);
    cli_json_number(row, "bytes_per_s", k->bytes_per_s);
    cli_json_number(row, "memory_weights_per_s", k->memory_weights_per_s);
    cli_json_number(row, "memory_bytes_per_s", k->memory_bytes_per_s);
    cli_json_number(row, "memory_share", share);
}

/* One product with one and with all threads. *past: there is no such type. */
static int measure_kernel(struct bench *b, uint32_t type, const sluice_kernel_bench *what,
                          int *past)
{
    sluice_error error;
    for (unsigned i = 0; i < b->n_threads; i++) {
        sluice_kernel_bench row = *what;
        row.threads = b->memory[i].threads;
        sluice_err err = sluice_bench_kernel(type, &row, &error);
        *past = err == SLUICE_E_LIMIT;
        if (*past) return CLI_EXIT_OK;
        if (err) return cli_fail(&error);
        if (cli_interrupted()) return CLI_EXIT_INTERRUPTED;
        double share = row.memory_bytes_per_s / b->memory[i].bytes_per_s;
        b->unequal += !row.bit_equal;
        if (b->rows)
            put_row(b, &row, share);
        else if (print_row(&row, share))
            return CLI_EXIT_FAILURE; /* nobody reads it any more */
    }
    return CLI_EXIT_OK;
}

static int measure_type(struct bench *b, uint32_t type, int *past)
{
    int code = CLI_EXIT_OK;
    for (size_t s = 0; s < (b->args->full ? N_SHAPES : 1); s++)
        for (const uint32_t *t = shapes[s].tokens; *t && code == 0 && !*past; t++) {
            sluice_kernel_bench what = SLUICE_KERNEL_BENCH_INIT;
            if (!b->args->full && *t > 1) break;
            what.rows = shapes[s].rows;
            what.cols = shapes[s].cols;
            what.n_tokens = *t;
            what.isa = (uint32_t)b->args->isa;
            code = measure_kernel(b, type, &what, past);
        }
    return code;
}

static int measure_kernels(struct bench *b)
{
    int code = CLI_EXIT_OK, past = 0;
    if (b->root)
        b->rows = cli_json_child_array(b->root, "kernels");
    else if (print_head())
        return CLI_EXIT_FAILURE;
    for (uint32_t type = 0; code == 0 && !past; type++) code = measure_type(b, type, &past);
    return code;
}

/* ---- the verb ----------------------------------------------------------------------------- */

static void begin_json(struct bench *b)
{
    b->root = cli_json_object();
    cli_json_string(b->root, "version", sluice_version());
    cli_json_string(b->root, "build", sluice_build_info());
    cli_json_machine(b->root);
}

int cli_bench(const struct cli_args *args)
{
    struct bench b = {.args = args};
    int code = check_usage(args);
    if (code) return code;
    if (args->json) begin_json(&b);
    code = measure_memory(&b);
    if (code == 0 && b.root) put_memory(&b);
    if (code == 0 && !b.root && print_memory(&b)) code = CLI_EXIT_FAILURE;
    if (code == 0 && strcmp(args->subject, "kernels") == 0) code = measure_kernels(&b);
    if (b.root && code == 0)
        (void)cli_json_finish(b.root, 1);
    else if (b.root)
        cli_json_drop(b.root);
    if (b.unequal == 0 || code) return code;
    cli_error(
        "%u products differ from the scalar definition on this machine; please report it with "
        "the lines above",
        b.unequal);
    return CLI_EXIT_FAILURE;
}
