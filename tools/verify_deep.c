/* verify --deep; see verify_deep.h. A scale that is infinite or NaN makes every weight it belongs
 * to no number, so looking at decoded weights finds damaged scales, too. */
#include "tools/verify_deep.h"

#include <stdio.h>
#include <string.h>

#include "tools/report.h"
#include "tools/text.h"
#include "tools/weights.h"

struct look {
    struct cli_deep *deep;
    struct sl_source *source;
    const struct sl_compare_pair *pairs;
};

static void report(const struct cli_deep_fault *fault, const char *path)
{
    char where[64] = "";
    if (fault->offset != UINT64_MAX)
        (void)snprintf(where, sizeof where, ", at offset %llu", (unsigned long long)fault->offset);
    cli_error("%s: tensor '%s': %llu value%s no number (NaN or infinite), the first in row %llu, "
              "column %llu%s",
              path, fault->tensor, (unsigned long long)fault->count,
              fault->count == 1 ? " is" : "s are", (unsigned long long)fault->row,
              (unsigned long long)fault->column, where);
}

static int on_found(void *user, uint32_t pair, const struct sl_compared *c)
{
    struct look *look = user;
    struct cli_deep *deep = look->deep;
    const struct sl_not_finite *bad = &c->bad[0];
    uint32_t index = look->pairs[pair].a;
    struct sl_source_place place = {"", UINT64_MAX};
    deep->tensors++;
    deep->weights += c->elements;
    if (bad->count == 0) return 0;
    if (deep->bad_tensors++ >= CLI_DEEP_FAULTS) return 0;
    struct cli_deep_fault *fault = &deep->faults[deep->bad_tensors - 1];
    (void)sl_str_show(sl_source_tensor(look->source, index)->name, fault->tensor,
                      sizeof fault->tensor);
    (void)sl_source_place(look->source, index, bad->row, &place);
    fault->count = bad->count;
    fault->row = bad->row;
    fault->column = bad->col;
    fault->offset = place.offset;
    report(fault, place.path[0] ? place.path : sl_gguf_path(sl_source_meta(look->source)));
    return 0;
}

int cli_deep_run(struct cli_deep *deep, const struct cli_args *args)
{
    struct sl_budget budget;
    struct sl_source *source;
    sluice_error error;
    uint64_t begin_ns = cli_now_ns();
    memset(deep, 0, sizeof *deep);
    sl_budget_init(&budget, UINT64_MAX);
    if (sl_source_open(args->model, &budget, &error, &source)) return cli_fail(&error);
    uint32_t n = sl_source_n_tensors(source);
    struct sl_compare_pair *pairs = cli_alloc(n, sizeof *pairs);
    for (uint32_t i = 0; i < n; i++) pairs[i] = (struct sl_compare_pair){i, 0};
    struct look look = {deep, source, pairs};
    struct sl_compare compare = {
        .a = source, .pairs = pairs, .n_pairs = n, .found = on_found, .user = &look};
    int code = cli_weights_run(args, "decoding", &compare, &budget);
    deep->ns = cli_now_ns() - begin_ns;
    if (deep->bad_tensors > CLI_DEEP_FAULTS)
        cli_error("%s: and %llu more tensors with values that are no numbers", args->model,
                  (unsigned long long)(deep->bad_tensors - CLI_DEEP_FAULTS));
    cli_free(pairs);
    sl_source_close(source);
    return code;
}

void cli_deep_json(struct cli_json *root, const struct cli_deep *deep)
{
    struct cli_json *json = cli_json_child(root, "deep");
    cli_json_integer(json, "tensors", deep->tensors);
    cli_json_integer(json, "weights", deep->weights);
    cli_json_integer(json, "bad_tensors", deep->bad_tensors);
    struct cli_json *list = cli_json_child_array(json, "faults");
    for (uint64_t i = 0; i < deep->bad_tensors && i < CLI_DEEP_FAULTS; i++) {
        const struct cli_deep_fault *fault = &deep->faults[i];
        struct cli_json *row = cli_json_child(list, NULL);
        cli_json_string(row, "tensor", fault->tensor);
        cli_json_integer(row, "count", fault->count);
        cli_json_integer(row, "row", fault->row);
        cli_json_integer(row, "column", fault->column);
        if (fault->offset != UINT64_MAX)
            cli_json_integer(row, "offset", fault->offset);
        else
            cli_json_null(row, "offset");
    }
    cli_json_number(json, "deep_ms", (double)deep->ns * 1e-6);
}
