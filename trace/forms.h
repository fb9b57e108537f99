/* The forms of a trace besides the trace file: what reads and writes each. docs/FORMAT.md, "Other
 * forms of traces", specifies them. */
#ifndef SL_TRACE_FORMS_H
#define SL_TRACE_FORMS_H

#include "trace/build.h"
#include "trace/input.h"

enum sl_trace_form {
    SL_TRACE_FORM_TRACE, /* formats/trace_file.h */
    SL_TRACE_FORM_CSV,   /* a row for each choice, with all that is known */
    SL_TRACE_FORM_JSONL, /* an object for each record, a line each */
    SL_TRACE_FORM_TEXT,  /* a line for each token, experts only */
    SL_TRACE_FORM_BMOE,  /* BigMoeOnEdge's route trace */
    SL_TRACE_FORMS,
    SL_TRACE_FORM_ANY = SL_TRACE_FORMS, /* in reading: told by the content */
};
/* "trace", "csv", "jsonl", "text", "bmoe"; "" for others. */
const char *sl_trace_form_name(enum sl_trace_form form);
bool sl_trace_form_find(const char *name, enum sl_trace_form *form);
/* By a file's name: .trace and .sltrace, .csv, .jsonl, .txt, .route.csv, each perhaps with .gz
 * after it. False: by none of these. */
bool sl_trace_form_of_name(const char *path, enum sl_trace_form *form, bool *gzipped);

/* ---- reading ------------------------------------------------------------------------------------
 */

struct sl_trace_load_from {
    const char *path;               /* - is standard input */
    enum sl_trace_form form;        /* SL_TRACE_FORM_ANY: told by the content */
    sl_trace_progress_fn *progress; /* NULL: none */
    void *user;
};
/* As sl_trace_load (trace.h), with the form given. *found, if not NULL: the form it had. */
SL_MUST_CHECK sluice_err sl_trace_load_from(const struct sl_trace_load_from *from,
                                            struct sl_budget *b, sluice_error *e,
                                            struct sl_trace **out, enum sl_trace_form *found);

/* One reader a form: takes all lines of the input into build, which is zeros and ready for close
 * afterwards. Errors name the line. */
SL_MUST_CHECK sluice_err sl_trace_read_text(struct sl_trace_input *in, struct sl_budget *b,
                                            sluice_error *e, struct sl_trace_build *build);
SL_MUST_CHECK sluice_err sl_trace_read_bmoe(struct sl_trace_input *in, struct sl_budget *b,
                                            sluice_error *e, struct sl_trace_build *build);
SL_MUST_CHECK sluice_err sl_trace_read_csv(struct sl_trace_input *in, struct sl_budget *b,
                                           sluice_error *e, struct sl_trace_build *build);
SL_MUST_CHECK sluice_err sl_trace_read_jsonl(struct sl_trace_input *in, struct sl_budget *b,
                                             sluice_error *e, struct sl_trace_build *build);

/* ---- writing ------------------------------------------------------------------------------------
 */

/* The records of a trace in the order of a file: evals, their layers with the steps and reads
 * before each, done. Start with .t set and all else 0; out->kind SL_TRACE_END: no more. Arrays are
 * those of the trace. Thread: pure. */
struct sl_trace_walk {
    const struct sl_trace *t;
    uint64_t eval, visit, step, read; /* the next of each */
    bool in_eval;
};
void sl_trace_walk_next(struct sl_trace_walk *w, struct sl_trace_record *out);

/* Takes the bytes of a form; an error ends the writing and is passed on. */
typedef sluice_err sl_trace_sink_fn(void *user, const void *bytes, uint64_t n, sluice_error *e);
struct sl_trace_sink {
    sl_trace_sink_fn *fn;
    void *user;
    bool gzipped; /* packs on the way */
};
/* Writes a form of text (not SL_TRACE_FORM_TRACE). Errors: the sink's, SLUICE_E_BUDGET,
 * SLUICE_E_UNSUPPORTED (gzipped, and built without zlib). */
SL_MUST_CHECK sluice_err sl_trace_write_form(const struct sl_trace *t, enum sl_trace_form form,
                                             const struct sl_trace_sink *sink, struct sl_budget *b,
                                             sluice_error *e);
/* Writes a trace file, as sl_trace_create and sl_trace_close. */
SL_MUST_CHECK sluice_err sl_trace_write_file(const struct sl_trace *t, const char *path,
                                             struct sl_budget *b, sluice_error *e);
/* What of this trace the form cannot hold, in words separated by commas, "" for nothing. Returns
 * text, of size bytes (256 are enough). */
const char *sl_trace_form_drops(const struct sl_trace *t, enum sl_trace_form form, char *text,
                                size_t size);

/* Text on its way to a sink, for the writers. The first error stays in failure; what is put after
 * it goes nowhere. */
struct sl_trace_output;
void sl_trace_put_bytes(struct sl_trace_output *o, const char *bytes, size_t n);
void sl_trace_put_text(struct sl_trace_output *o, const char *text);
void sl_trace_put_number(struct sl_trace_output *o, uint64_t n);
/* Nine digits, from which a reader gets the same float. */
void sl_trace_put_float(struct sl_trace_output *o, float v);
/* A JSON string with its quotes; bytes that are no UTF-8 become '?'. */
void sl_trace_put_string(struct sl_trace_output *o, const char *text);
void sl_trace_write_text(const struct sl_trace *t, struct sl_trace_output *o);
void sl_trace_write_bmoe(const struct sl_trace *t, struct sl_trace_output *o);
void sl_trace_write_csv(const struct sl_trace *t, struct sl_trace_output *o);
void sl_trace_write_jsonl(const struct sl_trace *t, struct sl_trace_output *o);

#endif
