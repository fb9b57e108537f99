/* The report of packing: a row for everything that went from one type to another, see
 * pack_report.h. */
#include "tools/pack_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/tensor_type.h"
#include "tools/json_out.h"
#include "tools/report.h"

#define ROWS_MAX 64 /* kinds of tensors times types; more are put together in the last */

struct row {
    enum sl_pack_kind kind;
    uint32_t from, to;
    uint64_t tensors, weights, from_bytes, bytes, encoded;
    struct sl_sq_error error;
};

struct table {
    struct row rows[ROWS_MAX];
    uint32_t n;
};

static void add_class(struct table *t, const struct sl_pack_class *c,
                      const struct sl_pack_cost *cost)
{
    uint32_t i = 0;

    while (i < t->n &&
           (t->rows[i].kind != c->kind || t->rows[i].from != c->from || t->rows[i].to != c->type))
        i++;
    if (i == ROWS_MAX) i--;
    struct row *r = &t->rows[i];
    if (i == t->n) {
        *r = (struct row){.kind = c->kind, .from = c->from, .to = c->type};
        t->n++;
    }
    r->tensors += c->n;
    r->weights += c->n * c->rows * c->cols;
    r->from_bytes += c->from_bytes;
    r->bytes += c->bytes;
    r->encoded += cost->tensors;
    r->error.plain += cost->error.plain;
    r->error.plain_all += cost->error.plain_all;
    r->error.weighted += cost->error.weighted;
    r->error.weighted_all += cost->error.weighted_all;
}

/* Ordered by kind; of one kind as the tensors come. */
static void make_table(struct table *t, const struct cli_pack_result *r)
{
    memset(t, 0, sizeof *t);
    for (int kind = 0; kind < SL_PACK_KINDS; kind++)
        for (uint32_t i = 0; i < r->plan->n_classes; i++)
            if (r->plan->classes[i].kind == (enum sl_pack_kind)kind)
                add_class(t, &r->plan->classes[i], &r->costs[i]);
}

static double bits_per_weight(uint64_t bytes, uint64_t weights)
{
    return weights > 0 ? (double)bytes * 8 / (double)weights : 0;
}

static double relative(double error, double all) { return all > 0 ? sqrt(error / all) : 0; }

/* ---- before ---------------------------------------------------------------------------------- */

/* What stays exact is no surprise, and a line of a recipe that asks for more is pointed out. */
static int has_fallen_back(const struct sl_pack_class *c)
{
    return c->wanted != c->type && !sl_pack_is_exact(c);
}

/* Why a class cannot have the type that was asked for. */
static const char *reason(const struct sl_pack_class *c)
{
    if (c->cols % 32 != 0) return "a row is no whole number of blocks of 32 columns";
    if (c->kind == SL_PACK_EMBEDDING) return "the embedding is read row by row";
    return "the shape does not allow it";
}

static int same_fall(const struct sl_pack_class *a, const struct sl_pack_class *b)
{
    return has_fallen_back(b) && a->wanted == b->wanted && a->type == b->type &&
           reason(a) == reason(b);
}

/* A line for all that fell from one type to another for one reason. */
static void say_fallen_back(const struct cli_pack_result *r)
{
    const struct sl_pack_class *classes = r->plan->classes;
    char wanted[SL_RECIPE_TYPE_NAME_MAX], type[SL_RECIPE_TYPE_NAME_MAX], more[48] = "";

    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        const struct sl_pack_class *c = &classes[i];
        uint64_t n = 0;
        uint32_t first = 0;

        if (!has_fallen_back(c)) continue;
        while (!same_fall(c, &classes[first])) first++;
        if (first != i) continue;
        for (uint32_t k = i; k < r->plan->n_classes; k++)
            if (same_fall(c, &classes[k])) n += classes[k].n;
        if (n > 1)
            (void)snprintf(more, sizeof more, " and %llu other%s", (unsigned long long)n - 1,
                           n > 2 ? "s" : "");
        cli_note("%.*s%s cannot be %s, and become%s %s: %s", (int)c->name.n, c->name.p, more,
                 sl_recipe_type_name(c->wanted, wanted), n > 1 ? "" : "s",
                 sl_recipe_type_name(c->type, type), reason(c));
        more[0] = 0;
    }
}

/* Whether c is quantized already and becomes something else. */
static int is_twice(const struct sl_pack_class *c)
{
    int exact = c->from == SL_TYPE_F32 || c->from == SL_TYPE_F16 || c->from == SL_TYPE_BF16;
    return !exact && c->type != c->from;
}

static void say_twice(const struct cli_pack_result *r)
{
    const struct sl_pack_class *first = NULL;
    uint64_t n = 0;

    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        const struct sl_pack_class *c = &r->plan->classes[i];
        if (!is_twice(c)) continue;
        if (first == NULL) first = c;
        n += c->n;
    }
    if (first != NULL)
        cli_note("%.*s%s %s already and %s quantized a second time; errors are reported against "
                 "the values that the source has, not those of the original model",
                 (int)first->name.n, first->name.p, n > 1 ? " and others are" : " is",
                 sl_type_name(first->from), n > 1 ? "are" : "is");
}

/* --bits is about experts. */
static void say_dense(const struct cli_pack_result *r)
{
    if (r->args->bits == 0) return;
    for (uint32_t i = 0; i < r->plan->n_classes; i++)
        if (r->plan->classes[i].kind >= SL_PACK_GATE) return;
    cli_note(
        "the model has no experts, so --bits decides about nothing; a recipe gives its matrices "
        "types (--recipe, with a line such as '*.ffn_*.weight sq4_32')");
}

/* "m.sluice", or of several parts "m-00001-of-00003.sluice to m-00003-of-00003.sluice". */
#define OUTPUT_TEXT 1024
static const char *output_text(char text[OUTPUT_TEXT], const struct cli_pack_result *r)
{
    const char *path = r->args->output;
    int stem = (int)(strlen(path) - strlen(".sluice"));

    if (r->n_parts == 1)
        (void)snprintf(text, OUTPUT_TEXT, "%s", path);
    else
        (void)snprintf(text, OUTPUT_TEXT, "%.*s-00001-of-%05u.sluice to %.*s-%05u-of-%05u.sluice",
                       stem, path, r->n_parts, stem, path, r->n_parts, r->n_parts);
    return text;
}

static void say_statistics(const struct cli_pack_result *r)
{
    uint64_t unreached = 0, experts = 0;

    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        const struct sl_pack_class *c = &r->plan->classes[i];
        if (c->kind < SL_PACK_GATE) continue;
        unreached += c->unreached;
        experts += c->n;
    }
    if (r->plan->n_reached > 0 && unreached > 0)
        cli_note("the statistics know nothing of %llu of the %llu matrices of experts, which the "
                 "text did not reach; there all columns count the same",
                 (unsigned long long)unreached, (unsigned long long)experts);
}

void cli_pack_say_plan(const struct cli_pack_result *r)
{
    char from[CLI_SIZE_TEXT], to[CLI_SIZE_TEXT], kept[CLI_SIZE_TEXT], output[OUTPUT_TEXT];
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < r->plan->n_classes; i++) bytes += r->plan->classes[i].bytes;
    cli_note("%s, %s of %s, becomes %s: %s in %u file%s, %.2f bits a weight", r->args->model,
             cli_size_text(from, sl_source_file_bytes(r->source)), sl_source_kind(r->source),
             output_text(output, r), cli_size_text(to, r->total_bytes), r->n_parts,
             r->n_parts == 1 ? "" : "s", bits_per_weight(bytes, r->plan->n_weights));
    say_dense(r);
    say_fallen_back(r);
    say_twice(r);
    say_statistics(r);
    if (r->kept_bytes > 0)
        cli_note("going on with what an interrupted run had finished: %s of %s",
                 cli_size_text(kept, r->kept_bytes), cli_size_text(to, r->total_bytes));
}

/* ---- after ----------------------------------------------------------------------------------- */

/* What is no weight: so that the rows add up to the file. */
static void print_rest(const char *what, uint64_t bytes)
{
    char size[CLI_SIZE_TEXT];

    if (bytes > 0) (void)cli_printf("%-42s %11s\n", what, cli_size_text(size, bytes));
}

/* "0.0712", or "-" where nothing was encoded. */
static const char *error_text(char text[16], const struct row *row, double error, double all)
{
    if (row->encoded == 0)
        (void)snprintf(text, 16, "-");
    else
        (void)snprintf(text, 16, "%.4f", relative(error, all));
    return text;
}

static void print_row(const struct row *row, int weighted)
{
    char size[CLI_SIZE_TEXT], text[16];

    (void)cli_printf("%-16s %-7s %-7s %8llu %11s %6.2f %8s", sl_pack_kind_name(row->kind),
                     sl_type_name(row->from), sl_type_name(row->to),
                     (unsigned long long)row->tensors, cli_size_text(size, row->bytes),
                     bits_per_weight(row->bytes, row->weights),
                     error_text(text, row, row->error.plain, row->error.plain_all));
    if (weighted)
        (void)cli_printf(" %8s",
                         error_text(text, row, row->error.weighted, row->error.weighted_all));
    (void)cli_printf("\n");
}

void cli_pack_print(const struct cli_pack_result *r)
{
    struct table t;
    char size[CLI_SIZE_TEXT], rate[CLI_SIZE_TEXT], kept[CLI_SIZE_TEXT], output[OUTPUT_TEXT];
    int weighted = r->plan->n_reached > 0;
    double seconds = (double)r->ns * 1e-9;
    uint64_t weight_bytes = 0;

    make_table(&t, r);
    (void)cli_printf("%-16s %-7s %-7s %8s %11s %6s %8s%s\n", "tensors", "from", "to", "number",
                     "size", "bpw", "error", weighted ? " weighted" : "");
    for (uint32_t i = 0; i < t.n; i++) {
        print_row(&t.rows[i], weighted);
        weight_bytes += t.rows[i].bytes;
    }
    print_rest("boundaries", r->total_bytes - r->index_bytes - weight_bytes);
    print_rest("headers, index", r->index_bytes);
    (void)cli_printf(
        "error: root mean square of the difference, relative to the source's values%s\n",
        weighted ? "; weighted by the statistics" : "");
    (void)cli_printf("%s: %s (%llu bytes), %.3f bits a weight, %.1f %% of the source\n",
                     output_text(output, r), cli_size_text(size, r->total_bytes),
                     (unsigned long long)r->total_bytes,
                     bits_per_weight(weight_bytes, r->plan->n_weights),
                     100.0 * (double)r->total_bytes / (double)sl_source_file_bytes(r->source));
    uint64_t written = r->total_bytes - r->kept_bytes;
    (void)cli_printf("written: %s in %.1f s (%s/s)", cli_size_text(size, written), seconds,
                     cli_size_text(rate, (uint64_t)((double)written / (seconds + 1e-9))));
    if (r->kept_bytes > 0)
        (void)cli_printf("; %s were there from an earlier run", cli_size_text(kept, r->kept_bytes));
    (void)cli_printf("\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_row(struct cli_json *list, const struct row *row)
{
    struct cli_json *o = cli_json_child(list, NULL);

    cli_json_string(o, "tensors", sl_pack_kind_name(row->kind));
    cli_json_string(o, "from_type", sl_type_name(row->from));
    cli_json_string(o, "type", sl_type_name(row->to));
    cli_json_integer(o, "n_tensors", row->tensors);
    cli_json_integer(o, "weights", row->weights);
    cli_json_integer(o, "from_bytes", row->from_bytes);
    cli_json_integer(o, "bytes", row->bytes);
    cli_json_integer(o, "encoded", row->encoded);
    if (row->encoded == 0) {
        cli_json_null(o, "error");
        cli_json_null(o, "weighted_error");
        return;
    }
    cli_json_number(o, "error", relative(row->error.plain, row->error.plain_all));
    cli_json_number(o, "weighted_error", relative(row->error.weighted, row->error.weighted_all));
}

void cli_pack_json(const struct cli_pack_result *r)
{
    struct table t;
    struct cli_json *root = cli_json_object(), *source, *list;

    make_table(&t, r);
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    source = cli_json_child(root, "source");
    cli_json_string(source, "path", r->args->model);
    cli_json_string(source, "format", sl_source_kind(r->source));
    cli_json_integer(source, "file_bytes", sl_source_file_bytes(r->source));
    cli_json_string(root, "output", r->args->output);
    cli_json_integer(root, "parts", r->n_parts);
    cli_json_integer(root, "file_bytes", r->total_bytes);
    cli_json_integer(root, "kept_bytes", r->kept_bytes);
    cli_json_integer(root, "index_bytes", r->index_bytes);
    cli_json_integer(root, "weights", r->plan->n_weights);
    uint64_t bytes = 0, unreached = 0;
    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        bytes += r->plan->classes[i].bytes;
        unreached += r->plan->classes[i].unreached;
    }
    cli_json_number(root, "bits_per_weight", bits_per_weight(bytes, r->plan->n_weights));
    cli_json_integer(root, "tensors_without_statistics", unreached);
    cli_json_text(root, "recipe", r->plan->recipe, r->plan->recipe_bytes);
    list = cli_json_child_array(root, "packed");
    for (uint32_t i = 0; i < t.n; i++) json_row(list, &t.rows[i]);
    cli_json_integer(root, "threads", r->threads);
    cli_json_known(root, "peak_bytes", r->peak_bytes);
    cli_json_number(root, "pack_ms", (double)r->ns * 1e-6);
    (void)cli_json_finish(root, 0);
}
