/* The interactive chat of sluice run. */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "tools/answer.h"

/* Talks until the user leaves; first is a turn to begin with, or NULL. Returns an exit code. */
int cli_chat(struct cli_talk *talk, const char *first);

#endif
