/* Output files that appear whole or not at all: written to NAME.partial, renamed when complete. A
 * name that is already something else than a file (a pipe, /dev/null) is written to directly. */
#ifndef CLI_OUT_FILE_H
#define CLI_OUT_FILE_H

#include <stddef.h>
#include <stdio.h>

#define CLI_PATH_BYTES 4096

struct cli_out_file {
    FILE *stream;
    const char *name;             /* borrowed */
    char partial[CLI_PATH_BYTES]; /* "" where name is written directly */
};

/* Return 0, or -1 with a message printed. After a failed open, put or commit nothing is left open;
 * after an open, call either commit or abandon. */
int cli_out_open(struct cli_out_file *file, const char *name);
int cli_out_put(struct cli_out_file *file, const void *bytes, size_t n);
int cli_out_commit(struct cli_out_file *file);
/* Drops what was written. Fine on a file that is zeros, committed or failed. */
void cli_out_abandon(struct cli_out_file *file);

#endif
