/* What a trace is read from: a file, a pipe or standard input, unpacked where it is gzipped, as
 * bytes or as lines. Thread: one per handle. */
#ifndef SL_TRACE_INPUT_H
#define SL_TRACE_INPUT_H

#include "trace/trace.h"

#define SL_TRACE_LINE_MAX (16u << 20) /* bytes of a line of text */

struct sl_trace_input; /* opaque */

/* path - is standard input. Errors: SLUICE_E_NOT_FOUND, SLUICE_E_IO, SLUICE_E_BUDGET,
 * SLUICE_E_UNSUPPORTED (gzipped, and built without zlib). Owner: the caller. */
SL_MUST_CHECK sluice_err sl_trace_input_open(const char *path, sl_trace_progress_fn *progress,
                                             void *user, struct sl_budget *b, sluice_error *e,
                                             struct sl_trace_input **out);
void sl_trace_input_close(struct sl_trace_input *in); /* NULL is fine */

/* For messages. */
const char *sl_trace_input_name(const struct sl_trace_input *in);

/* The next bytes, unpacked, without taking them: up to 4 KiB, fewer only where it ends. */
SL_MUST_CHECK sluice_err sl_trace_input_peek(struct sl_trace_input *in, struct sl_str *out,
                                             sluice_error *e);
/* Takes up to bytes; *got 0: the end. in is a struct sl_trace_input. */
SL_MUST_CHECK sluice_err sl_trace_input_read(void *in, void *buf, uint64_t bytes, uint64_t *got,
                                             sluice_error *e);
/* Takes a line without its end (a line feed, carriage return and line feed, or that of the input);
 * a byte order mark at the start of the input is passed over. out->p NULL: the end. The bytes stay
 * valid, and may be changed, until the next call. Errors, with the number of the line:
 * SLUICE_E_LIMIT (longer than SL_TRACE_LINE_MAX), SLUICE_E_FORMAT (a NUL in it), SLUICE_E_CORRUPT
 * and SLUICE_E_TRUNCATED (the gzip stream), SLUICE_E_CANCELLED, SLUICE_E_IO, SLUICE_E_BUDGET. */
struct sl_trace_line {
    char *p;
    size_t n;
};
SL_MUST_CHECK sluice_err sl_trace_input_line(struct sl_trace_input *in, struct sl_trace_line *out,
                                             sluice_error *e);

/* Fills e with "NAME: line N: " and the sentence that e holds already; returns its code. */
sluice_err sl_trace_input_blame(const struct sl_trace_input *in, sluice_error *e, sluice_err code);

#endif
