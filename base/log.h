/* Log lines to whoever opened the library. Sluice itself prints nothing: without a callback a line
 * is dropped. Thread: the callback runs on the thread that logs, which is always the driver. */
#ifndef SL_LOG_H
#define SL_LOG_H

#include "base/base.h"

enum sl_log_level { SL_LOG_ERROR = 1, SL_LOG_WARN = 2, SL_LOG_INFO = 3, SL_LOG_DEBUG = 4 };

/* line is one sentence without a newline, valid during the call. */
typedef void sl_log_fn(void *user, int level, const char *line);

struct sl_log {
    sl_log_fn *fn; /* NULL: drop */
    void *user;
    int level; /* lines above this level are dropped */
};

/* Named so because sl_log is the logarithm (mathfn.h). */
void sl_log_line(const struct sl_log *log, enum sl_log_level level, const char *fmt, ...)
    SL_PRINTF(3, 4);

#endif
