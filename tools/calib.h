/* Calibration: how large the inputs of each weight matrix are while a model reads a text.
 *
 * BOS + text is cut into windows that do not overlap, as llama.cpp's imatrix tool cuts it, and each
 * is evaluated from an empty context; what is left at the end is not used. A model larger than
 * memory streams its experts once a window. */
#ifndef CLI_CALIB_H
#define CLI_CALIB_H

#include "include/sluice.h"
#include "pack/column_stats.h"
#include "tools/args.h"
#include "tools/ppl_text.h"
#include "tools/progress.h"

/* A calibration; starts as zeros. */
struct cli_calib {
    struct cli_args args; /* with the context that is needed, and what is left of --ram */
    struct cli_ppl_text text;
    sluice_model *model;
    sluice_session *session;
    sluice_model_info info;
    sluice_plan plan;
    struct sl_column_stats *stats;
    uint32_t windows, window; /* in all, and the one under way */
    uint64_t ns;            /* of reading the text */
    struct cli_progress progress;
    sluice_error error; /* of adding; code 0: none */
};

/* Runs the text that args name (file or tokens, window, chunks) through the model that they name,
 * with all their settings. b is charged for the figures, which take their part of --ram. Returns an
 * exit code, with a message printed; 0: stats can be looked up and written. Close in any case. */
int cli_calib_run(struct cli_calib *calib, const struct cli_args *args, struct sl_budget *b);
void cli_calib_close(struct cli_calib *calib);

/* The same for who wants the figures alone: of the text in the file named text. Returns an exit
 * code; *stats is the caller's, NULL after a failure. */
int cli_calib_collect(const struct cli_args *args, const char *text, struct sl_budget *b,
                      struct sl_column_stats **stats);

#endif
