/* Repetition: whether greedy answers end in a loop. */
#ifndef CLI_PPL_LOOPS_H
#define CLI_PPL_LOOPS_H

#include "include/sluice.h"
#include "tools/args.h"
#include "tools/json_out.h"
#include "tools/text.h"

/* An answer loops where its end consists of the same 1 to CLI_LOOP_PERIOD_MAX tokens over and over,
 * at least CLI_LOOP_TIMES times and over at least CLI_LOOP_TOKENS tokens. */
#define CLI_LOOP_PERIOD_MAX 64
#define CLI_LOOP_TIMES 3
#define CLI_LOOP_TOKENS 64

/* Finds loops in a sequence that grows. Starts as zeros. */
struct cli_loop_finder {
    size_t n;                              /* tokens so far */
    int32_t last[CLI_LOOP_PERIOD_MAX];     /* the last of them, by number modulo the size */
    size_t equal[CLI_LOOP_PERIOD_MAX + 1]; /* [p]: how many of the last in a row are the same as
                                              the token p before them */
};

/* Takes the next token. Returns the shortest period of a loop that it completes or goes on with, or
 * 0. */
size_t cli_loop_push(struct cli_loop_finder *finder, int32_t id);

struct cli_loop_answer {
    size_t line;   /* of the file of prompts, from 1 */
    size_t tokens; /* generated, until the loop was found or it ended */
    size_t period; /* 0: no loop */
};

struct cli_loops {
    struct cli_loop_answer *answers; /* [n] */
    size_t n, n_loops;
    uint64_t tokens; /* of all answers */
};

/* Answers each line of the prompts with the most likely tokens, up to args->loop_tokens. Each line
 * is a turn for the chat template, or with --raw continued as it is. Returns an exit code; free in
 * any case. */
int cli_loops_run(struct cli_loops *loops, const struct cli_args *args, sluice_model *model,
                  sluice_session *session, const struct cli_text *prompts);
void cli_loops_free(struct cli_loops *loops);

void cli_loops_print(const struct cli_loops *loops, const struct cli_args *args);
void cli_loops_json(struct cli_json *root, const struct cli_loops *loops,
                    const struct cli_args *args);

#endif
