/* Loading a trace of any form: tells which it is, and has it read. */
#include <string.h>

#include "trace/forms.h"

static const char *const names[SL_TRACE_FORMS] = {"trace", "csv", "jsonl", "text", "bmoe"};

const char *sl_trace_form_name(enum sl_trace_form form)
{
    return (unsigned)form < SL_TRACE_FORMS ? names[form] : "";
}

bool sl_trace_form_find(const char *name, enum sl_trace_form *form)
{
    for (unsigned i = 0; i < SL_TRACE_FORMS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *form = (enum sl_trace_form)i;
        return true;
    }
    return false;
}

bool sl_trace_form_of_name(const char *path, enum sl_trace_form *form, bool *gzipped)
{
    static const struct {
        const char *ending;
        enum sl_trace_form form;
    } endings[] = {{".route.csv", SL_TRACE_FORM_BMOE}, {".csv", SL_TRACE_FORM_CSV},
                   {".jsonl", SL_TRACE_FORM_JSONL},    {".txt", SL_TRACE_FORM_TEXT},
                   {".trace", SL_TRACE_FORM_TRACE},    {".sltrace", SL_TRACE_FORM_TRACE}};
    struct sl_str name = {path, strlen(path)};
    *gzipped = sl_str_ends(name, ".gz");
    if (*gzipped) name.n -= 3;
    for (size_t i = 0; i < SL_ARRAY_LEN(endings); i++) {
        if (!sl_str_ends(name, endings[i].ending)) continue;
        *form = endings[i].form;
        return true;
    }
    return false;
}

/* Which form it is, by its first bytes. BigMoeOnEdge's says so in its first line; our CSV begins
 * with a remark or the names of its columns, the first of which is `record`. */
static enum sl_trace_form tell(struct sl_str start)
{
    if (sl_trace_is(start.p, start.n)) return SL_TRACE_FORM_TRACE;
    if (sl_str_starts(start, "\xEF\xBB\xBF")) start = (struct sl_str){start.p + 3, start.n - 3};
    if (sl_str_starts(start, "{")) return SL_TRACE_FORM_JSONL;
    if (sl_str_starts(start, "# route_trace")) return SL_TRACE_FORM_BMOE;
    if (sl_str_starts(start, "turn,phase,step")) return SL_TRACE_FORM_BMOE;
    if (sl_str_starts(start, "# sluice_trace")) return SL_TRACE_FORM_CSV;
    if (sl_str_starts(start, "record,")) return SL_TRACE_FORM_CSV;
    return SL_TRACE_FORM_TEXT;
}

static sluice_err read_file(struct sl_trace_input *in, struct sl_budget *b, sluice_error *e,
                            struct sl_trace_build *build)
{
    struct sl_trace_source source = {sl_trace_input_read, in, sl_trace_input_name(in)};
    struct sl_trace_record record = {.kind = SL_TRACE_END};
    struct sl_trace_reader *r = NULL;
    sluice_err code = sl_trace_open_source(&source, b, e, &r);
    if (code == SLUICE_OK) code = sl_trace_build_open(build, sl_trace_get_header(r), b, e);
    while (code == SLUICE_OK) {
        code = sl_trace_next(r, &record, e);
        if (code != SLUICE_OK || record.kind == SL_TRACE_END) break;
        code = sl_trace_build_add(build, &record, e);
        if (code != SLUICE_OK) code = sl_trace_input_blame(in, e, code);
    }
    if (code == SLUICE_OK) build->t->cut = sl_trace_cut(r, &build->t->lost_bytes);
    sl_trace_reader_close(r);
    return code;
}

static sluice_err read_form(struct sl_trace_input *in, enum sl_trace_form form, struct sl_budget *b,
                            sluice_error *e, struct sl_trace_build *build)
{
    switch (form) {
    case SL_TRACE_FORM_TRACE:
        return read_file(in, b, e, build);
    case SL_TRACE_FORM_CSV:
        return sl_trace_read_csv(in, b, e, build);
    case SL_TRACE_FORM_JSONL:
        return sl_trace_read_jsonl(in, b, e, build);
    case SL_TRACE_FORM_TEXT:
        return sl_trace_read_text(in, b, e, build);
    case SL_TRACE_FORM_BMOE:
        return sl_trace_read_bmoe(in, b, e, build);
    default:
        return sl_fail(e, SLUICE_E_ARG, "there is no form %d of a trace", (int)form);
    }
}

sluice_err sl_trace_load_from(const struct sl_trace_load_from *from, struct sl_budget *b,
                              sluice_error *e, struct sl_trace **out, enum sl_trace_form *found)
{
    sluice_error unused;
    struct sl_trace_build build = {0};
    struct sl_trace_input *in = NULL;
    struct sl_str start = {NULL, 0};
    enum sl_trace_form form = from->form;
    *out = NULL;
    if (e == NULL) e = &unused;
    sluice_err code = sl_trace_input_open(from->path, from->progress, from->user, b, e, &in);
    if (code == SLUICE_OK) code = sl_trace_input_peek(in, &start, e);
    if (code == SLUICE_OK && start.n == 0)
        code =
            sl_fail(e, SLUICE_E_FORMAT, "%s: empty, a trace was wanted", sl_trace_input_name(in));
    if (code == SLUICE_OK && form == SL_TRACE_FORM_ANY) form = tell(start);
    if (code == SLUICE_OK) code = read_form(in, form, b, e, &build);
    if (code == SLUICE_OK) {
        code = sl_trace_build_close(&build, e, out);
        if (code != SLUICE_OK) {
            char sentence[SLUICE_ERROR_TEXT_MAX];
            memcpy(sentence, e->text, sizeof sentence);
            (void)sl_fail(e, code, "%s: %s", sl_trace_input_name(in), sentence);
        }
    }
    sl_trace_build_discard(&build);
    sl_trace_input_close(in);
    if (found) *found = form;
    return code;
}

sluice_err sl_trace_load(const char *path, sl_trace_progress_fn *progress, void *user,
                         struct sl_budget *b, sluice_error *e, struct sl_trace **out)
{
    struct sl_trace_load_from from = {path, SL_TRACE_FORM_ANY, progress, user};
    return sl_trace_load_from(&from, b, e, out, NULL);
}
