/* Formats a log line and hands it to the host's callback; see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define LOG_LINE_MAX 1024 /* bytes, the NUL included; longer lines end in "..." */

void sl_log_line(const struct sl_log *log, enum sl_log_level level, const char *fmt, ...)
{
    if (log == NULL || log->fn == NULL || (int)level > log->level) return;
    char line[LOG_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n < 0) return;
    if (n >= (int)sizeof line) memcpy(line + sl_utf8_whole(line, sizeof line - 4), "...", 4);
    log->fn(log->user, (int)level, line);
}
