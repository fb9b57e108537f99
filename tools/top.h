/* sluice run --top: a view of what the engine does, in the lower rows of the terminal that standard
 * error is, while an answer is made. Driven by the callbacks of that answer, on their thread: drawn
 * at most ten times a second, and gone when the answer ends.
 *
 * All functions but the first two do nothing with NULL. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include "include/sluice.h"

struct cli_top;

/* Whether standard error is a terminal for it; says why not. */
int cli_top_possible(void);

/* Begins an answer of session, and makes room for the view. All three pointers are borrowed until
 * the caller closes it. */
struct cli_top *cli_top_open(const sluice_model *model, const sluice_session *session,
                             const sluice_model_info *info);

/* From sluice_prompt_fn: done of total tokens of the prompt. */
void cli_top_prompt(struct cli_top *top, size_t done, size_t total);

/* Before a piece of the answer is written: keeps up with a terminal whose size changed. */
void cli_top_before_text(struct cli_top *top);
/* After it was; thought: it is one. */
void cli_top_text(struct cli_top *top, const char *text, size_t bytes, int thought);

/* Takes the view away, and frees it. */
void cli_top_close(struct cli_top *top);

#endif
