/* Files of traces for tests: texts that are loaded, or refused with a sentence. Include after
 * cmocka.h. */
#ifndef TESTS_TRACE_FILES_H
#define TESTS_TRACE_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/forms.h"
#include "trace/gzip.h"

#define PATH_BYTES 64

static inline const char *new_path(char *path)
{
    snprintf(path, PATH_BYTES, "/tmp/sluice_trace_forms_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static inline void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline struct sl_trace *load(const char *path, enum sl_trace_form form, struct sl_budget *b)
{
    struct sl_trace_load_from from = {.path = path, .form = SL_TRACE_FORM_ANY};
    enum sl_trace_form found;
    struct sl_trace *t;
    sluice_error e;
    if (sl_trace_load_from(&from, b, &e, &t, &found) != SLUICE_OK) fail_msg("%s", e.text);
    if (form != SL_TRACE_FORM_ANY) assert_int_equal(found, form);
    return t;
}

/* The error that loading the text gives has to contain what is wanted, and leaves nothing behind.
 */
static inline void check_refused(const char *text, size_t n, sluice_err code, const char *wanted)
{
    char path[PATH_BYTES];
    struct sl_budget b;
    struct sl_trace *t;
    sluice_error e = {0};
    sl_budget_init(&b, UINT64_MAX);
    write_bytes(new_path(path), text, n);
    sluice_err got = sl_trace_load(path, NULL, NULL, &b, &e, &t);
    unlink(path);
    if (got != code || strstr(e.text, wanted) == NULL)
        fail_msg("%.60s: got %d, '%s'; wanted %d, '%s'", text, got, e.text, code, wanted);
    assert_null(t);
    assert_null(strchr(e.text, '\n'));
    assert_int_equal(sl_budget_used(&b), 0);
}

static inline struct sl_trace *load_text(const char *text, size_t n, struct sl_budget *b)
{
    char path[PATH_BYTES];
    write_bytes(new_path(path), text, n);
    struct sl_trace *t = load(path, SL_TRACE_FORM_ANY, b);
    unlink(path);
    return t;
}

/* Whether this build has zlib. */
static inline bool gzip_works(void)
{
    struct sl_budget b;
    struct sl_gzip *z;
    sluice_error e;
    sl_budget_init(&b, UINT64_MAX);
    sluice_err code = sl_gzip_open(false, &b, &e, &z);
    sl_gzip_close(z);
    if (code != SLUICE_OK) assert_int_equal(code, SLUICE_E_UNSUPPORTED);
    return code == SLUICE_OK;
}

#endif
