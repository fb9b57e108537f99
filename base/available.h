/* How much memory a process can have now. */
#ifndef SL_AVAILABLE_H
#define SL_AVAILABLE_H

#include <stdint.h>

/* What the kernel says programs can get without swapping, bounded by what is left of the limits of
 * this process's control groups, v2 and v1, all the way up; page cache that a group could give back
 * counts as left. UINT64_MAX: unknown. root: "" for the real system, a folder that holds proc/ and
 * sys/ of another in tests. Thread: safe. */
uint64_t sl_available_bytes(const char *root);

/* What to take of it: all but a tenth, or 256 MiB if that is more. Unknown stays unknown. */
uint64_t sl_available_less_reserve(uint64_t available_bytes);

#endif
