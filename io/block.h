/* The one alignment that buffers for model data are laid out for, whatever the files' own blocks:
 * 4096 bytes, or a page where pages are larger. A file that wants larger blocks is read buffered.
 * Thread: pure. */
#ifndef SL_BLOCK_H
#define SL_BLOCK_H

#include <unistd.h>

#include "base/base.h"

static inline uint32_t sl_model_block(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > 4096 ? (uint32_t)page : 4096;
}

#endif
