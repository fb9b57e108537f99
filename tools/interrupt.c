/* Ctrl-C; see interrupt.h. Everything the handler does is safe in a signal handler. */
#define _POSIX_C_SOURCE 200809L
#include "tools/interrupt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tools/report.h"

#define GIVE_UP 3 /* unheeded interrupts after which the process ends at once */

static atomic_int interrupts;
static _Atomic(sluice_session *) watched;

typedef void restore_fn(void);
static _Atomic(restore_fn *) restorer;
static const int leaving[] = {SIGHUP, SIGTERM, SIGQUIT, SIGTSTP, SIGABRT, SIGBUS, SIGSEGV};

static void restore(void)
{
    restore_fn *fn = atomic_load(&restorer);
    if (fn) fn();
}

static void on_interrupt(int signal_number)
{
    int saved = errno;
    (void)signal_number;
    int count = atomic_fetch_add(&interrupts, 1) + 1;
    sluice_session *session = atomic_load(&watched);
    if (session) sluice_session_cancel(session, 1);
    if (count >= GIVE_UP) {
        restore();
        _exit(CLI_EXIT_INTERRUPTED);
    }
    errno = saved;
}

static void set_handler(int signal_number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    (void)sigemptyset(&action.sa_mask);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    (void)sigaction(signal_number, &action, NULL);
}

/* Does what the signal would have done without us. Only Ctrl-Z comes back, when the program goes
 * on. */
static void on_leave(int signal_number)
{
    int saved = errno;
    sigset_t this_one;
    restore();
    set_handler(signal_number, SIG_DFL);
    (void)sigemptyset(&this_one);
    (void)sigaddset(&this_one, signal_number);
    (void)raise(signal_number);
    (void)pthread_sigmask(SIG_UNBLOCK, &this_one, NULL); /* here it takes effect */
    if (atomic_load(&restorer)) set_handler(signal_number, on_leave);
    errno = saved;
}

void cli_interrupt_leave(void (*fn)(void))
{
    struct sigaction now;
    atomic_store(&restorer, fn);
    for (size_t i = 0; i < sizeof leaving / sizeof leaving[0]; i++) {
        if (sigaction(leaving[i], NULL, &now) != 0) continue;
        if (fn && now.sa_handler == SIG_DFL) set_handler(leaving[i], on_leave);
        if (!fn && now.sa_handler == on_leave) set_handler(leaving[i], SIG_DFL);
    }
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
    (void)sigaction(SIGXFSZ, &action, NULL); /* a file that may not grow is an error of write() */
}

void cli_interrupt_watch(sluice_session *session) { atomic_store(&watched, session); }

int cli_interrupted(void) { return atomic_load(&interrupts) > 0; }

void cli_interrupt_reset(void)
{
    sluice_session *session = atomic_load(&watched);
    atomic_store(&interrupts, 0);
    if (session) sluice_session_cancel(session, 0);
}
