/* Opening a model the way every verb does: options from the command line, the memory plan printed
 * before anything is allocated, progress while it loads, and a line that says what is in use. */
#ifndef CLI_OPEN_MODEL_H
#define CLI_OPEN_MODEL_H

#include "include/sluice.h"
#include "tools/args.h"
#include "tools/json_out.h"

/* The library's options for these arguments. */
void cli_model_options(const struct cli_args *args, sluice_options *options);

/* Opens the model with its weights, after printing the plan, which *plan receives. Returns an exit
 * code; 0: *model is open. */
int cli_model_open(const struct cli_args *args, sluice_model **model, sluice_plan *plan);

/* Whether the library has said, and a message was printed, that something besides the answer went
 * wrong: a trace that could not be written to its end. After the model is closed this is final. */
int cli_model_complained(void);

/* Opens its tokenizer only. */
int cli_vocabulary_open(const struct cli_args *args, sluice_model **model);

/* "f32", "f16", "q8". */
const char *cli_kv_name(uint32_t kv);

/* What the JSON of every verb that computes begins with: "version", "build", "model" and
 * "settings"; the last is returned. */
struct cli_json *cli_json_model(struct cli_json *root, const struct cli_args *args,
                                const sluice_model_info *info);

/* The object "model" alone. */
void cli_json_model_name(struct cli_json *root, const struct cli_args *args,
                         const sluice_model_info *info);

/* Says that no model was named; returns exit code 2. */
int cli_model_missing(const char *verb);

#endif
