/* One answer: ids in, text to standard output as it is made, and what it took. Shared by the
 * one-shot run and the chat. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "include/sluice.h"
#include "tools/args.h"
#include "tools/text.h"

/* A model and a session that talk. */
struct cli_talk {
    const struct cli_args *args;
    sluice_model *model;
    sluice_session *session;
    sluice_model_info info;
    sluice_plan plan;
    sluice_stats before; /* when the answer under way began */
    sluice_generate_options generate;
    int load_said; /* the time of loading stands in the first note only */
    int think;     /* enum cli_think */
    int top;       /* the view of --top is wanted, and there is a terminal for it */
};

struct cli_answer {
    struct cli_text text, thoughts;
    sluice_result result;
    sluice_err err; /* how the library ended it */
    sluice_error error;
};

/* Opens model and session as args say. Returns an exit code; close in any case. */
int cli_talk_open(struct cli_talk *talk, const struct cli_args *args);
void cli_talk_close(struct cli_talk *talk);

/* From now on answers are asked for with this enum cli_think; says so where the template has no
 * switch for it. */
void cli_talk_think(struct cli_talk *talk, int think);

/* The ids of a conversation, or of plain text that is continued. Return an exit code. */
int cli_chat_ids(const struct cli_talk *talk, const sluice_message *messages, uint32_t n_messages,
                 struct cli_ids *ids);
int cli_raw_ids(const struct cli_talk *talk, const char *text, size_t n, struct cli_ids *ids);

/* Answers ids, printing the text (unless --json) and a line end. Returns an exit code: 130 where
 * the user interrupted it. answer is filled in any case; cli_answer_free frees it. */
int cli_answer(struct cli_talk *talk, const struct cli_ids *ids, struct cli_answer *answer);

void cli_answer_free(struct cli_answer *answer);

/* A note of what an answer took, unless it failed, and one where it was cut. */
void cli_answer_note(struct cli_talk *talk, const struct cli_answer *answer);

/* "end", "stop_string", "limit", "context", "output_failed", "interrupted", "error". */
const char *cli_answer_stop_name(const struct cli_answer *answer);

#endif
