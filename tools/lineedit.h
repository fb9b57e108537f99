/* Lines that a user types: edited, with history, where standard input is a terminal; else read as
 * they come. */
#ifndef CLI_LINEEDIT_H
#define CLI_LINEEDIT_H

#include "tools/text.h"

struct cli_lines;

struct cli_lines *cli_lines_open(void); /* never NULL */
void cli_lines_close(struct cli_lines *lines);
/* Whether there is a terminal to type at. */
int cli_lines_edited(const struct cli_lines *lines);
/* Reads a line without its end into text. Text pasted as several lines is one line, with the line
 * ends inside. Returns 1, 0 at the end of input, -1 where Ctrl-C came. */
int cli_lines_read(struct cli_lines *lines, const char *prompt, struct cli_text *text);

#endif
