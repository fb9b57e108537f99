/* Error codes to names and sentences, and the one way to fill a sluice_error.
 *
 * A failing function writes `return sl_fail(e, code, "...", ...)`: the record is always whole, so
 * that no stale layer, offset or errno of an earlier failure is left in it. */
#define _POSIX_C_SOURCE 200809L /* strerror_r in the POSIX form */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void fill(sluice_error *e, sluice_err code, int sys_errno, const char *fmt, va_list args)
{
    e->code = code;
    e->sys_errno = sys_errno;
    e->layer = -1;
    e->expert = -1;
    e->file_offset = SLUICE_NO_OFFSET;
    int n = vsnprintf(e->text, sizeof e->text, fmt, args);
    if (n < 0) e->text[0] = '\0';
    if (n >= (int)sizeof e->text) { /* cut: say so, and not in the middle of a character */
        size_t whole = sl_utf8_whole(e->text, sizeof e->text - 4);
        memcpy(e->text + whole, "...", 4);
    }
}

sluice_err sl_fail(sluice_error *e, sluice_err code, const char *fmt, ...)
{
    SLUICE_ASSERT(code < 0);
    if (e == NULL) return code;
    va_list args;
    va_start(args, fmt);
    fill(e, code, 0, fmt, args);
    va_end(args);
    return code;
}

sluice_err sl_fail_sys(sluice_error *e, sluice_err code, int sys_errno, const char *fmt, ...)
{
    SLUICE_ASSERT(code < 0);
    if (e == NULL) return code;
    va_list args;
    va_start(args, fmt);
    fill(e, code, sys_errno, fmt, args);
    va_end(args);
    char meaning[128];
    if (strerror_r(sys_errno, meaning, sizeof meaning) != 0)
        snprintf(meaning, sizeof meaning, "error %d", sys_errno);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", meaning);
    return code;
}

const char *sl_err_name(sluice_err code)
{
    switch (code) {
#define NAME_CASE(name, value, sentence)                                                           \
    case SLUICE_##name:                                                                            \
        return #name;
        SLUICE_ERR_LIST(NAME_CASE)
#undef NAME_CASE
    }
    return "E_UNKNOWN";
}

const char *sl_err_text(sluice_err code)
{
    switch (code) {
#define TEXT_CASE(name, value, sentence)                                                           \
    case SLUICE_##name:                                                                            \
        return sentence;
        SLUICE_ERR_LIST(TEXT_CASE)
#undef TEXT_CASE
    }
    return "an error that this build does not know";
}
