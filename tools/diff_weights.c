/* Two models matched by the names of their tensors, and compared; see diff.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/diff.h"
#include "tools/report.h"
#include "tools/text.h"
#include "tools/weights.h"

const char *cli_diff_name(const struct cli_diff *diff, int side, uint32_t index, char *text)
{
    return sl_str_show(sl_source_tensor(diff->source[side], index)->name, text, CLI_DIFF_NAME);
}

const char *cli_diff_type(uint32_t type)
{
    const char *name = type == CLI_DIFF_MIXED ? "mixed" : sl_type_name(type);
    return name ? name : "none";
}

/* ---- matching ----------------------------------------------------------------------------- */

static int open_both(struct cli_diff *diff)
{
    const char *paths[2] = {diff->args->model, diff->args->other};
    sluice_error error;
    sl_budget_init(&diff->budget, UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        if (sl_source_open(paths[i], &diff->budget, &error, &diff->source[i]))
            return cli_fail(&error);
        diff->kind[i] = sl_source_kind(diff->source[i]);
        diff->file_bytes[i] = sl_source_file_bytes(diff->source[i]);
    }
    return CLI_EXIT_OK;
}

static int same_shape(const struct sl_source_tensor *a, const struct sl_source_tensor *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

/* The tensor of the other side that is to be compared with this one, or UINT32_MAX. */
static uint32_t partner(const struct cli_diff *diff, int side, uint32_t index)
{
    const struct sl_source *other = diff->source[!side];
    const struct sl_source_tensor *t = sl_source_tensor(diff->source[side], index);
    uint32_t found = sl_source_find(other, t->name);
    if (found == UINT32_MAX || !same_shape(t, sl_source_tensor(other, found))) return UINT32_MAX;
    return found;
}

static void match(struct cli_diff *diff)
{
    for (int side = 0; side < 2; side++) {
        uint32_t n = sl_source_n_tensors(diff->source[side]);
        diff->alone[side] = cli_alloc(n, sizeof *diff->alone[side]);
        if (side == 0) diff->pairs = cli_alloc(n, sizeof *diff->pairs);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t other = partner(diff, side, i);
            if (other == UINT32_MAX)
                diff->alone[side][diff->n_alone[side]++] = i;
            else if (side == 0)
                diff->pairs[diff->n_pairs++] = (struct sl_compare_pair){i, other};
        }
    }
    diff->tensors = cli_alloc(diff->n_pairs, sizeof *diff->tensors);
}

/* ---- summing up --------------------------------------------------------------------------- */

static struct cli_diff_row *push_row(struct cli_diff_rows *rows, const char *name, uint32_t group)
{
    if (rows->n == rows->capacity) {
        size_t capacity = 2 * rows->capacity + 64;
        struct cli_diff_row *more = cli_alloc(capacity, sizeof *more);
        if (rows->n) memcpy(more, rows->rows, rows->n * sizeof *more);
        cli_free(rows->rows);
        rows->rows = more;
        rows->capacity = capacity;
    }
    struct cli_diff_row *row = &rows->rows[rows->n++];
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    row->group = group;
    row->types[0] = row->types[1] = CLI_DIFF_NO_TYPE;
    row->expert = -1;
    return row;
}

/* The row of that name, looked for from the end: experts of a layer follow one another. */
static struct cli_diff_row *row_of(struct cli_diff_rows *rows, const char *name, uint32_t group)
{
    for (size_t i = rows->n; i-- > 0;)
        if (strcmp(rows->rows[i].name, name) == 0) return &rows->rows[i];
    return push_row(rows, name, group);
}

static void add_type(uint32_t *type, uint32_t more)
{
    *type = *type == CLI_DIFF_NO_TYPE || *type == more ? more : CLI_DIFF_MIXED;
}

static void add(struct cli_diff_row *row, const struct cli_diff *diff, uint32_t pair,
                const struct sl_compared *c)
{
    const struct sl_source_tensor *t[2] = {
        sl_source_tensor(diff->source[0], diff->pairs[pair].a),
        sl_source_tensor(diff->source[1], diff->pairs[pair].b),
    };
    double error = sl_compared_error(c);
    for (int side = 0; side < 2; side++) {
        add_type(&row->types[side], t[side]->type);
        row->bytes[side] += t[side]->bytes;
    }
    if (row->tensors++ == 0 || error > row->worst) {
        row->worst = error;
        row->expert = t[0]->expert;
    }
    row->error_sum += error;
    sl_compared_add(&row->all, c);
}

/* "blk.3.ffn_gate.7.weight" to "blk.3.ffn_gate.*.weight", and *inner to where the name without its
 * layer begins. */
static const char *part_name(const struct sl_source_tensor *t, char *text, const char **inner)
{
    char number[24];
    char full[CLI_DIFF_NAME];
    (void)sl_str_show(t->name, full, sizeof full);
    (void)snprintf(number, sizeof number, ".%d.", (int)t->expert);
    char *prefix = full;
    if (sl_gguf_group(t->name) < SL_GROUP_EMBEDDING) prefix = strchr(full + 4, '.') + 1;
    char *expert = t->expert >= 0 ? strstr(prefix, number) : NULL;
    if (expert)
        (void)snprintf(text, CLI_DIFF_NAME, "%.*s.*.%s", (int)(expert - full), full,
                       expert + strlen(number));
    else
        memcpy(text, full, sizeof full);
    *inner = text + (prefix - full);
    return text;
}

static int on_found(void *user, uint32_t pair, const struct sl_compared *c)
{
    struct cli_diff *diff = user;
    const struct sl_source_tensor *t = sl_source_tensor(diff->source[0], diff->pairs[pair].a);
    uint32_t group = sl_gguf_group(t->name);
    char text[CLI_DIFF_NAME], layer[SL_GROUP_TEXT];
    const char *inner, *name = part_name(t, text, &inner);
    add(row_of(&diff->parts, name, group), diff, pair, c);
    add(row_of(&diff->classes, inner, group), diff, pair, c);
    add(row_of(&diff->layers, sl_gguf_group_text(group, layer), group), diff, pair, c);
    add(&diff->total, diff, pair, c);
    diff->tensors[pair] = (struct cli_diff_tensor){sl_compared_error(c),
                                                   c->max_error,
                                                   sl_compared_cosine(c),
                                                   {c->bad[0].count, c->bad[1].count}};
    diff->n_differ += c->error_squares > 0 || c->bad[0].count != c->bad[1].count;
    return 0;
}

int cli_diff_weights(struct cli_diff *diff)
{
    uint64_t begin_ns = cli_now_ns();
    int code = open_both(diff);
    if (code) return code;
    match(diff);
    if (diff->n_pairs == 0) {
        cli_error("%s and %s have no tensor in common: they are not the same model",
                  diff->args->model, diff->args->other);
        return CLI_EXIT_FAILURE;
    }
    diff->total.types[0] = diff->total.types[1] = CLI_DIFF_NO_TYPE;
    struct sl_compare compare = {.a = diff->source[0],
                                 .b = diff->source[1],
                                 .pairs = diff->pairs,
                                 .n_pairs = diff->n_pairs,
                                 .found = on_found,
                                 .user = diff};
    code = cli_weights_run(diff->args, "comparing", &compare, &diff->budget);
    diff->ns = cli_now_ns() - begin_ns;
    return code;
}

void cli_diff_close_sources(struct cli_diff *diff)
{
    for (int side = 0; side < 2; side++) {
        sl_source_close(diff->source[side]);
        diff->source[side] = NULL;
    }
}

void cli_diff_free(struct cli_diff *diff)
{
    cli_diff_close_sources(diff);
    for (int side = 0; side < 2; side++) cli_free(diff->alone[side]);
    cli_free(diff->pairs);
    cli_free(diff->tensors);
    cli_free(diff->parts.rows);
    cli_free(diff->classes.rows);
    cli_free(diff->layers.rows);
}

/* The worst first; of equal ones in the order of the model. */
static int by_error(const void *a, const void *b)
{
    const struct cli_diff_row *x = a, *y = b;
    double p = sl_compared_error(&x->all), q = sl_compared_error(&y->all);
    if (p != q) return p < q ? 1 : -1;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return strcmp(x->name, y->name);
}

void cli_diff_sort(struct cli_diff_rows *rows)
{
    if (rows->n) qsort(rows->rows, rows->n, sizeof *rows->rows, by_error);
}
