/* verify --deep: every weight decoded, and values that are no numbers found. */
#ifndef CLI_VERIFY_DEEP_H
#define CLI_VERIFY_DEEP_H

#include "tools/args.h"
#include "tools/json_out.h"

#define CLI_DEEP_TENSOR 128

/* A tensor with values that are no numbers, and where the first of them is. */
struct cli_deep_fault {
    char tensor[CLI_DEEP_TENSOR];
    uint64_t count, row, column;
    uint64_t offset; /* where the row begins in its file, or the eight rows it is stored with;
                        UINT64_MAX: unknown */
};

#define CLI_DEEP_FAULTS 64 /* are kept; the others are counted */

struct cli_deep {
    uint64_t tensors, weights, bad_tensors, ns;
    struct cli_deep_fault faults[CLI_DEEP_FAULTS];
};

/* Prints each of the first faults as an error. Returns an exit code; 0 also where there are faults.
 */
int cli_deep_run(struct cli_deep *deep, const struct cli_args *args);

void cli_deep_json(struct cli_json *root, const struct cli_deep *deep);

#endif
