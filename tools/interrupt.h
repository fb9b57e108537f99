/* Ctrl-C: a flag, and the cancel of the session that is answering; and what has to be put right
 * before other signals end the program.
 *
 * Loading asks cli_interrupted() from its progress callback; an answer is cancelled by the handler
 * itself. A third interrupt that nobody took notice of ends the process at once. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "include/sluice.h"

/* Catches SIGINT, and ignores SIGPIPE and SIGXFSZ. Once, at the start. */
void cli_interrupt_install(void);
/* The session to cancel from now on; NULL: none. */
void cli_interrupt_watch(sluice_session *session);
int cli_interrupted(void);
/* Forgets the interrupt, so that the next answer can begin. */
void cli_interrupt_reset(void);
/* From now on restore is called before a signal ends or stops the process (a third Ctrl-C, Ctrl-Z,
 * SIGTERM, SIGHUP, a crash); it must be safe in a signal handler. NULL: nothing is, as at first. */
void cli_interrupt_leave(void (*restore)(void));

#endif
