/* The lower rows of a terminal, kept for the view of --top while an answer runs through the rows
 * above them.
 *
 * A scroll region holds the answer: whoever writes to the terminal meanwhile (the answer, thoughts,
 * warnings) needs to know nothing of the view, and what leaves the region at its top goes where the
 * terminal keeps what was scrolled. Below the place where text goes on there is never anything but
 * the view, so that "erase from here to the end" removes it, whatever a resize did to the rows.
 *
 * There is one such view in a process, on standard error, and one thread that draws it. */
#ifndef CLI_TOP_SCREEN_H
#define CLI_TOP_SCREEN_H

#include <stddef.h>

#include "tools/text.h"

struct cli_screen {
    int rows, columns; /* of the terminal, when last looked at */
    int height;        /* rows of the view; 0: none */
    int shared;        /* the text goes to this terminal too */
    int column;        /* at which it goes on, as far as its characters tell */
};

/* Receives the terminal's size. Returns 0, or -1 where it does not say. */
int cli_screen_size(int *rows, int *columns);

/* Begins: nothing is on the screen yet. */
void cli_screen_init(struct cli_screen *screen);

/* Whether the view has to be placed: at first, after a resize, after Ctrl-Z.
 * Takes the terminal's size. */
int cli_screen_changed(struct cli_screen *screen);

/* Makes room for height rows at the lower end, 0: none, in place of the rows there were. */
void cli_screen_place(struct cli_screen *screen, int height);

/* Whether drawing now would keep the text's place. Terminals differ in what they remember of a
 * cursor behind the last column; drawing waits for the next character there. */
int cli_screen_ready(const struct cli_screen *screen);

/* Follows the text, after it was written; begins: it starts in the first column. */
void cli_screen_follow(struct cli_screen *screen, const char *text, size_t bytes, int begins);

/* A frame: begun, then each row of the view by its number from 0 and what stands in it, which ends
 * before the last column; then drawn, at once. The text goes on where it was. */
void cli_screen_begin(struct cli_text *frame);
void cli_screen_row(const struct cli_screen *screen, struct cli_text *frame, int row);
void cli_screen_draw(const struct cli_screen *screen, struct cli_text *frame);

/* Takes the view away; the terminal is as before, with the cursor where text goes on. Does nothing
 * where there is none. Safe in a signal handler. */
void cli_screen_restore(void);

#endif
