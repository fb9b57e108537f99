/* Monotonic time. Thread: safe. */
#ifndef SL_CLOCK_H
#define SL_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed moment; never goes back. */
uint64_t sl_now_ns(void);

#endif
