/* The monotonic clock of the system. It does not tick while the machine sleeps, which suits
 * durations of work. */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>

#include "base/base.h"

uint64_t sl_now_ns(void)
{
    struct timespec t;
    int rc = clock_gettime(CLOCK_MONOTONIC, &t);
    SLUICE_ASSERT(rc == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
