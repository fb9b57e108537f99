/* Broken invariants end here.
 *
 * An assertion reports a fault in Sluice or in the way it is called, never a bad file or a full
 * disk. The process cannot go on, since nobody knows what else is broken; the handler may still
 * write down what it was told, in whatever way suits the host. This is the only place in the
 * library that stops a process. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

static void print_and_return(const char *expression, const char *file, int line)
{
    fprintf(stderr, "sluice: internal error: %s does not hold (%s:%d)\n", expression, file, line);
    fflush(stderr);
}

/* Process-wide on purpose: a broken invariant is nobody's in particular. */
static sl_assert_fn *handler = print_and_return;

void sl_assert_set_handler(sl_assert_fn *fn) { handler = fn != NULL ? fn : print_and_return; }

void sl_assert_failed(const char *expression, const char *file, int line)
{
    handler(expression, file, line);
    abort();
}
