/* What ppl scores: the tokens of a text, the method, and how many bytes the scored ones stand for.
 * Made from the vocabulary alone, before weights are loaded, so that a text that is too short or a
 * reference run of something else is said at once. */
#ifndef CLI_PPL_TEXT_H
#define CLI_PPL_TEXT_H

#include "tools/args.h"
#include "tools/ppl_reference.h"

#define CLI_PPL_WINDOW 512 /* what -c is by default */

struct cli_ppl_text {
    struct cli_reference_head head; /* all but the model's description */
    int32_t bos;                    /* the first token of each window, if the method says so */
};

/* Fills text from args, or from reference (NULL: none), with which everything that args say too has
 * to agree. Returns an exit code; free in any case. */
int cli_ppl_text_read(struct cli_ppl_text *text, const struct cli_args *args,
                      const struct cli_reference_reader *reference);
void cli_ppl_text_free(struct cli_ppl_text *text);

#endif
