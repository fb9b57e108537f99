/* JSON and CSV of a trace report; see trace_report_out.h. */
#include "tools/trace_report_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 1e15 /* whole numbers below it are written in full */

void cli_rep_init(struct cli_rep *r)
{
    static const char head[] = "table,row,column,value\n";
    memset(r, 0, sizeof *r);
    r->root = cli_json_object();
    cli_text_add(&r->csv, head, sizeof head - 1);
}

void cli_rep_deinit(struct cli_rep *r)
{
    if (r->root) cli_json_drop(r->root);
    cli_text_free(&r->csv);
    memset(r, 0, sizeof *r);
}

void cli_rep_group(struct cli_rep *r, const char *name)
{
    r->group = cli_json_child(r->root, name);
    r->group_name = name;
}

void cli_rep_section(struct cli_rep *r, const char *name)
{
    r->section = cli_json_child(r->group, name);
    r->section_name = name;
    r->rows = r->row = NULL;
}

void cli_rep_table(struct cli_rep *r, const char *name, const char *columns)
{
    cli_rep_section(r, name);
    struct cli_json *list = cli_json_child_array(r->section, "columns");
    (void)snprintf(r->names, sizeof r->names, "%s", columns);
    r->n_columns = 0;
    for (char *at = r->names; r->n_columns < CLI_REP_COLUMNS;) {
        char *end = at + strcspn(at, " ");
        int last = *end == 0;
        *end = 0;
        r->columns[r->n_columns++] = at;
        cli_json_string(list, NULL, at);
        if (last) break;
        at = end + 1;
    }
    r->rows = cli_json_child_array(r->section, "rows");
    r->row_index = UINT64_MAX;
}

void cli_rep_row(struct cli_rep *r)
{
    r->row = cli_json_child_array(r->rows, NULL);
    r->row_index++;
    r->column = 0;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void add(struct cli_rep *r, const char *text) { cli_text_add(&r->csv, text, strlen(text)); }

/* A cell in quotes where it needs them. Control characters have become spaces: a line is a value.
 */
static void add_cell(struct cli_rep *r, const char *text)
{
    if (!strpbrk(text, ",\"\r\n") && *text != ' ') {
        add(r, text);
        return;
    }
    add(r, "\"");
    for (; *text; text++) {
        char c = (unsigned char)*text < ' ' ? ' ' : *text;
        if (c == '"') add(r, "\"");
        cli_text_add(&r->csv, &c, 1);
    }
    add(r, "\"");
}

static void csv_value(struct cli_rep *r, const char *column, const char *value)
{
    char row[24] = "";
    if (r->rows) (void)snprintf(row, sizeof row, "%llu", (unsigned long long)r->row_index);
    add(r, r->group_name);
    add(r, ".");
    add(r, r->section_name);
    add(r, ",");
    add(r, row);
    add(r, ",");
    add(r, column);
    add(r, ",");
    add_cell(r, value);
    add(r, "\n");
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Where a value goes: the object and key, or the row; *column: its name in CSV. */
static struct cli_json *place(struct cli_rep *r, const char *key, const char **column)
{
    if (!r->rows) {
        *column = key;
        return r->section;
    }
    *column = r->column < r->n_columns ? r->columns[r->column] : "";
    r->column++;
    return r->row;
}

/* To six digits; whole numbers stay as they are. */
static double rounded(double value)
{
    char text[32];
    if (floor(value) == value && fabs(value) < WHOLE_MAX) return value;
    (void)snprintf(text, sizeof text, "%.6g", value);
    return strtod(text, NULL);
}

void cli_rep_null(struct cli_rep *r, const char *key)
{
    const char *column;
    cli_json_null(place(r, key, &column), key);
    csv_value(r, column, "");
}

void cli_rep_number(struct cli_rep *r, const char *key, double value)
{
    const char *column;
    char text[32];
    if (!isfinite(value)) {
        cli_rep_null(r, key);
        return;
    }
    value = rounded(value);
    (void)snprintf(text, sizeof text, floor(value) == value ? "%.15g" : "%.6g", value);
    cli_json_number(place(r, key, &column), key, value);
    csv_value(r, column, text);
}

void cli_rep_count(struct cli_rep *r, const char *key, uint64_t value)
{
    const char *column;
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    cli_json_integer(place(r, key, &column), key, value);
    csv_value(r, column, text);
}

void cli_rep_known(struct cli_rep *r, const char *key, uint64_t value)
{
    if (value)
        cli_rep_count(r, key, value);
    else
        cli_rep_null(r, key);
}

void cli_rep_bool(struct cli_rep *r, const char *key, int value)
{
    const char *column;
    cli_json_bool(place(r, key, &column), key, value);
    csv_value(r, column, value ? "true" : "false");
}

void cli_rep_string(struct cli_rep *r, const char *key, const char *text)
{
    const char *column;
    cli_json_string(place(r, key, &column), key, text);
    csv_value(r, column, text);
}

void cli_rep_known_string(struct cli_rep *r, const char *key, const char *text)
{
    if (*text)
        cli_rep_string(r, key, text);
    else
        cli_rep_null(r, key);
}

void cli_rep_counts(struct cli_rep *r, const int32_t *values, size_t n)
{
    const char *column;
    cli_json_ids(place(r, NULL, &column), NULL, values, n);
    for (size_t i = 0; i < n; i++) {
        char name[24], text[16];
        (void)snprintf(name, sizeof name, "%zu", i);
        (void)snprintf(text, sizeof text, "%d", (int)values[i]);
        csv_value(r, name, text);
    }
}
