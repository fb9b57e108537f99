/* Ctrl-C; see interrupt.h. Everything the handler does is safe in a signal handler. */
#define _POSIX_C_SOURCE 200809L
#include "tools/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tools/report.h"

#define GIVE_UP 3 /* unheeded interrupts after which the process ends at once */

static atomic_int interrupts;
static _Atomic(sluice_session *) watched;

static void on_interrupt(int signal_number)
{
    int saved = errno;
    (void)signal_number;
    int count = atomic_fetch_add(&interrupts, 1) + 1;
    sluice_session *session = atomic_load(&watched);
    if (session) sluice_session_cancel(session, 1);
    if (count >= GIVE_UP) _exit(CLI_EXIT_INTERRUPTED);
    errno = saved;
}

void cli_interrupt_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    (void)sigemptyset(&action.sa_mask);
    action.sa_handler = on_interrupt; /* no SA_RESTART: a waiting read has to return */
    (void)sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
}

void cli_interrupt_watch(sluice_session *session) { atomic_store(&watched, session); }

int cli_interrupted(void) { return atomic_load(&interrupts) > 0; }

void cli_interrupt_reset(void)
{
    sluice_session *session = atomic_load(&watched);
    atomic_store(&interrupts, 0);
    if (session) sluice_session_cancel(session, 0);
}
