/* The numbers of a trace report, said once and written twice: as the JSON object that the page
 * carries and --json prints, and as the CSV of --csv (table,row,column,value; one value a line).
 *
 * A section is an object of single values, a table has columns and rows. Numbers are rounded to six
 * digits in both forms. What is not known is null, and empty in CSV. Thread: one per object. */
#ifndef CLI_TRACE_REPORT_OUT_H
#define CLI_TRACE_REPORT_OUT_H

#include "tools/json_out.h"
#include "tools/text.h"

#define CLI_REP_COLUMNS 16

struct cli_rep {
    struct cli_json *root, *group, *section, *rows, *row; /* where values go now */
    struct cli_text csv;
    const char *group_name, *section_name;
    char names[256]; /* of the table's columns, NUL after each */
    const char *columns[CLI_REP_COLUMNS];
    unsigned n_columns, column;
    uint64_t row_index;
};

void cli_rep_init(struct cli_rep *r);
void cli_rep_deinit(struct cli_rep *r);
/* What follows belongs to the object of that name in the root. */
void cli_rep_group(struct cli_rep *r, const char *name);
/* Begins a section, or a table whose columns are words of a text. Names are literals. */
void cli_rep_section(struct cli_rep *r, const char *name);
void cli_rep_table(struct cli_rep *r, const char *name, const char *columns);
void cli_rep_row(struct cli_rep *r);

/* A value: of that key in a section; in a table key is NULL, and it goes into the next column. */
void cli_rep_number(struct cli_rep *r, const char *key, double value); /* NAN: not known */
void cli_rep_count(struct cli_rep *r, const char *key, uint64_t value);
void cli_rep_known(struct cli_rep *r, const char *key, uint64_t value); /* 0: not known */
void cli_rep_null(struct cli_rep *r, const char *key);
void cli_rep_bool(struct cli_rep *r, const char *key, int value);
void cli_rep_string(struct cli_rep *r, const char *key, const char *text);
void cli_rep_known_string(struct cli_rep *r, const char *key, const char *text); /* "": not known */
/* A whole list in one cell; in CSV each has its index for a column. */
void cli_rep_counts(struct cli_rep *r, const int32_t *values, size_t n);

#endif
