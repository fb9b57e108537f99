/* Looking at every weight of one or two models: what verify --deep and diff share. */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H

#include "pack/compare.h"
#include "tools/args.h"

/* Whether path is a folder, and so perhaps a Hugging Face model. */
int cli_is_folder(const char *path);

/* Runs the comparison on the threads of args, with progress under the name of what. c->found gets
 * user; progress is set here. Returns an exit code; messages are printed. */
int cli_weights_run(const struct cli_args *args, const char *what, struct sl_compare *c,
                    struct sl_budget *budget);

#endif
