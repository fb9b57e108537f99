/* What comes out of a comparison of weights; see diff.h. Figures are those of the decoded weights:
 * error is ||A - B|| / ||A||. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/diff.h"
#include "tools/report.h"
#include "tools/text.h"

#define LIST_MAX 20 /* lines of a list, unless --verbose */

/* ---- text --------------------------------------------------------------------------------- */

static const char *types_text(const uint32_t types[2], char *text, size_t size)
{
    if (types[0] == types[1] && types[0] != CLI_DIFF_MIXED)
        (void)snprintf(text, size, "%s", cli_diff_type(types[0]));
    else
        (void)snprintf(text, size, "%s > %s", cli_diff_type(types[0]), cli_diff_type(types[1]));
    return text;
}

/* experts: how each expert fares is told, too. */
static void print_row(const struct cli_diff_row *row, int experts)
{
    char types[40], size[2][CLI_SIZE_TEXT], sizes[2 * CLI_SIZE_TEXT + 4], worst[64] = "";
    (void)snprintf(sizes, sizeof sizes, "%s > %s", cli_size_text(size[0], row->bytes[0]),
                   cli_size_text(size[1], row->bytes[1]));
    if (experts && row->expert >= 0)
        (void)snprintf(worst, sizeof worst, "  mean %.3g, worst %.3g (expert %d)",
                       row->error_sum / row->tensors, row->worst, (int)row->expert);
    (void)cli_printf("  %-32s %-16s %-22s %9.3g %9.3g %9.6f%s\n", row->name,
                     types_text(row->types, types, sizeof types), sizes,
                     sl_compared_error(&row->all), row->all.max_error,
                     sl_compared_cosine(&row->all), worst);
}

/* Sorted rows, those that differ. */
static void print_rows(const struct cli_diff *diff, const char *title,
                       const struct cli_diff_rows *rows, size_t most)
{
    (void)cli_printf("%-34s %-16s %-22s %9s %9s %9s\n", title, "types", "bytes", "error",
                     "max error", "cosine");
    size_t differ = 0;
    while (differ < rows->n && rows->rows[differ].all.error_squares > 0) differ++;
    for (size_t i = 0; i < differ && i < most; i++)
        print_row(&rows->rows[i], rows != &diff->layers);
    if (differ > most)
        (void)cli_printf("  ... and %zu less different; -v lists every tensor\n", differ - most);
    size_t equal = rows->n - differ;
    if (equal) (void)cli_printf("  %zu %s equal\n", equal, equal == 1 ? "is" : "are");
}

/* Pairs, the worst first; of equal ones in their order. */
static const struct cli_diff_tensor *sorted_tensors;

static int by_error(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    double p = sorted_tensors[i].error, q = sorted_tensors[j].error;
    return p != q ? (p < q ? 1 : -1) : i < j ? -1 : i > j;
}

static uint32_t *sort_tensors(const struct cli_diff *diff)
{
    uint32_t *order = cli_alloc(diff->n_pairs, sizeof *order);
    for (uint32_t i = 0; i < diff->n_pairs; i++) order[i] = i;
    sorted_tensors = diff->tensors;
    qsort(order, diff->n_pairs, sizeof *order, by_error);
    return order;
}

/* What tells the two tensors of a pair apart. */
struct pair_view {
    char name[CLI_DIFF_NAME];
    uint32_t types[2];
    uint64_t bytes[2];
};

static struct pair_view view_of(const struct cli_diff *diff, uint32_t pair)
{
    struct pair_view view;
    uint32_t index[2] = {diff->pairs[pair].a, diff->pairs[pair].b};
    (void)cli_diff_name(diff, 0, index[0], view.name);
    for (int side = 0; side < 2; side++) {
        const struct sl_source_tensor *t = sl_source_tensor(diff->source[side], index[side]);
        view.types[side] = t->type;
        view.bytes[side] = t->bytes;
    }
    return view;
}

static void print_tensors(const struct cli_diff *diff)
{
    uint32_t *order = sort_tensors(diff);
    (void)cli_printf("%-34s %-16s %-22s %9s %9s %9s\n", "tensors", "types", "bytes", "error",
                     "max error", "cosine");
    for (uint32_t i = 0; i < diff->n_pairs; i++) {
        const struct cli_diff_tensor *t = &diff->tensors[order[i]];
        struct pair_view view = view_of(diff, order[i]);
        char types[40], size[2][CLI_SIZE_TEXT], sizes[2 * CLI_SIZE_TEXT + 4];
        (void)snprintf(sizes, sizeof sizes, "%s > %s", cli_size_text(size[0], view.bytes[0]),
                       cli_size_text(size[1], view.bytes[1]));
        (void)cli_printf("  %-32s %-16s %-22s %9.3g %9.3g %9.6f\n", view.name,
                         types_text(view.types, types, sizeof types), sizes, t->error, t->max_error,
                         t->cosine);
    }
    cli_free(order);
}

static const char *shape_text(const struct cli_diff *diff, int side, uint32_t index, char *text,
                              size_t size)
{
    const struct sl_source_tensor *t = sl_source_tensor(diff->source[side], index);
    (void)snprintf(text, size, "%llu x %llu", (unsigned long long)t->cols,
                   (unsigned long long)t->rows);
    return text;
}

static void print_alone(const struct cli_diff *diff, int side)
{
    uint32_t most = diff->args->verbose ? UINT32_MAX : LIST_MAX;
    char name[CLI_DIFF_NAME], mine[48], theirs[48];
    for (uint32_t i = 0; i < diff->n_alone[side] && i < most; i++) {
        uint32_t index = diff->alone[side][i];
        struct sl_str key = sl_source_tensor(diff->source[side], index)->name;
        uint32_t other = sl_source_find(diff->source[!side], key);
        (void)cli_diff_name(diff, side, index, name);
        if (other == UINT32_MAX)
            (void)cli_printf("only in %c: %s\n", "AB"[side], name);
        else if (side == 0) /* said once */
            (void)cli_printf("not compared: %s is %s in A, %s in B\n", name,
                             shape_text(diff, 0, index, mine, sizeof mine),
                             shape_text(diff, 1, other, theirs, sizeof theirs));
    }
    if (diff->n_alone[side] > most)
        (void)cli_printf("... and %u more; -v lists them\n", diff->n_alone[side] - most);
}

static void print_keys(const struct cli_diff *diff)
{
    uint32_t most = diff->args->verbose ? UINT32_MAX : LIST_MAX, n = 0, at = 0;
    struct cli_diff_key key;
    while (cli_diff_next_key(diff, &at, &key)) {
        if (n++ >= most) continue;
        (void)cli_printf("metadata %s: ", key.key);
        (void)cli_put_clean(key.value[0][0] ? key.value[0] : "none");
        (void)cli_put(" > ", 3);
        (void)cli_put_clean(key.value[1][0] ? key.value[1] : "none");
        (void)cli_put("\n", 1);
    }
    if (n > most) (void)cli_printf("... and %u more keys; -v lists them\n", n - most);
}

static void print_bad(const struct cli_diff *diff)
{
    for (int side = 0; side < 2; side++)
        if (diff->total.all.bad[side].count)
            (void)cli_printf("%llu values of %c are no numbers and were left out; sluice verify "
                             "--deep finds them\n",
                             (unsigned long long)diff->total.all.bad[side].count, "AB"[side]);
}

void cli_diff_print(struct cli_diff *diff)
{
    char size[2][CLI_SIZE_TEXT];
    const struct cli_diff_row *total = &diff->total;
    cli_diff_sort(&diff->parts);
    cli_diff_sort(&diff->classes);
    cli_diff_sort(&diff->layers);
    (void)cli_printf("%u tensors in both, %u of them differ; error %.4g, cosine %.6f, %s > %s\n",
                     diff->n_pairs, diff->n_differ, sl_compared_error(&total->all),
                     sl_compared_cosine(&total->all), cli_size_text(size[0], total->bytes[0]),
                     cli_size_text(size[1], total->bytes[1]));
    print_bad(diff);
    for (int side = 0; side < 2; side++) print_alone(diff, side);
    print_keys(diff);
    if (diff->n_differ == 0) return;
    print_rows(diff, "kinds of tensors, all layers", &diff->classes, SIZE_MAX);
    print_rows(diff, "layers", &diff->layers, SIZE_MAX);
    if (diff->args->verbose)
        print_tensors(diff);
    else
        print_rows(diff, "tensors", &diff->parts, LIST_MAX);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void put_sides(struct cli_json *json, const uint32_t types[2], const uint64_t bytes[2])
{
    cli_json_string(json, "type_a", cli_diff_type(types[0]));
    cli_json_string(json, "type_b", cli_diff_type(types[1]));
    cli_json_integer(json, "bytes_a", bytes[0]);
    cli_json_integer(json, "bytes_b", bytes[1]);
}

static void put_figures(struct cli_json *json, double error, double max_error, double cosine)
{
    cli_json_number(json, "error", error);
    cli_json_number(json, "max_error", max_error);
    cli_json_number(json, "cosine", cosine);
}

static void put_row(struct cli_json *json, const struct cli_diff_row *row)
{
    cli_json_string(json, "name", row->name);
    cli_json_integer(json, "tensors_compared", row->tensors);
    put_sides(json, row->types, row->bytes);
    put_figures(json, sl_compared_error(&row->all), row->all.max_error,
                sl_compared_cosine(&row->all));
    if (row->expert < 0) return;
    cli_json_number(json, "mean_error", row->error_sum / row->tensors);
    cli_json_number(json, "worst_error", row->worst);
    cli_json_integer(json, "worst_expert", (uint64_t)row->expert);
}

static void put_rows(struct cli_json *root, const char *key, const struct cli_diff_rows *rows)
{
    struct cli_json *list = cli_json_child_array(root, key);
    for (size_t i = 0; i < rows->n; i++) put_row(cli_json_child(list, NULL), &rows->rows[i]);
}

static void put_tensors(struct cli_json *root, const struct cli_diff *diff)
{
    struct cli_json *list = cli_json_child_array(root, "tensors");
    uint32_t *order = sort_tensors(diff);
    for (uint32_t i = 0; i < diff->n_pairs; i++) {
        const struct cli_diff_tensor *t = &diff->tensors[order[i]];
        struct pair_view view = view_of(diff, order[i]);
        struct cli_json *json = cli_json_child(list, NULL);
        cli_json_string(json, "name", view.name);
        put_sides(json, view.types, view.bytes);
        put_figures(json, t->error, t->max_error, t->cosine);
        cli_json_integer(json, "bad_a", t->bad[0]);
        cli_json_integer(json, "bad_b", t->bad[1]);
    }
    cli_free(order);
}

static void put_alone(struct cli_json *root, const struct cli_diff *diff, int side)
{
    struct cli_json *list = cli_json_child_array(root, side ? "only_in_b" : "only_in_a");
    char name[CLI_DIFF_NAME];
    for (uint32_t i = 0; i < diff->n_alone[side]; i++)
        cli_json_string(list, NULL, cli_diff_name(diff, side, diff->alone[side][i], name));
}

static void put_keys(struct cli_json *root, const struct cli_diff *diff)
{
    struct cli_json *list = cli_json_child_array(root, "metadata");
    struct cli_diff_key key;
    for (uint32_t at = 0; cli_diff_next_key(diff, &at, &key);) {
        struct cli_json *json = cli_json_child(list, NULL);
        cli_json_string(json, "key", key.key);
        cli_json_known_string(json, "value_a", key.value[0]);
        cli_json_known_string(json, "value_b", key.value[1]);
    }
}

void cli_diff_json_models(struct cli_json *root, const struct cli_diff *diff)
{
    const char *paths[2] = {diff->args->model, diff->args->other};
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    for (int side = 0; side < 2; side++) {
        struct cli_json *json = cli_json_child(root, side ? "b" : "a");
        cli_json_string(json, "path", paths[side]);
        cli_json_string(json, "kind", diff->kind[side]);
        cli_json_integer(json, "file_bytes", diff->file_bytes[side]);
    }
}

void cli_diff_json(struct cli_json *root, struct cli_diff *diff)
{
    cli_diff_sort(&diff->parts);
    cli_diff_sort(&diff->classes);
    cli_diff_sort(&diff->layers);
    cli_json_integer(root, "tensors_compared", diff->n_pairs);
    cli_json_integer(root, "tensors_differ", diff->n_differ);
    cli_json_integer(root, "bytes_a", diff->total.bytes[0]);
    cli_json_integer(root, "bytes_b", diff->total.bytes[1]);
    put_figures(root, sl_compared_error(&diff->total.all), diff->total.all.max_error,
                sl_compared_cosine(&diff->total.all));
    cli_json_integer(root, "bad_a", diff->total.all.bad[0].count);
    cli_json_integer(root, "bad_b", diff->total.all.bad[1].count);
    put_alone(root, diff, 0);
    put_alone(root, diff, 1);
    put_keys(root, diff);
    put_rows(root, "classes", &diff->classes);
    put_rows(root, "layers", &diff->layers);
    put_rows(root, "parts", &diff->parts);
    put_tensors(root, diff);
    cli_json_number(root, "diff_ms", (double)diff->ns * 1e-6);
}
