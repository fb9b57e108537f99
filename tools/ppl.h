/* The figures of ppl for other verbs. */
#ifndef CLI_PPL_H
#define CLI_PPL_H

#include "tools/args.h"
#include "tools/ppl_method.h"
#include "tools/ppl_score.h"

struct cli_ppl_measured {
    struct cli_quality quality;
    size_t scored;                /* tokens */
    char method[CLI_METHOD_TEXT]; /* in words */
};

/* What ppl does with these arguments (a model, a text or --kl, perhaps --save-logits), but for
 * printing. Returns an exit code; 0: out is filled. */
int cli_ppl_measure(const struct cli_args *args, struct cli_ppl_measured *out);

#endif
