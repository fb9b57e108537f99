/* The report page: the template with style, script and data put in. And where outputs of a report
 * go: a file that appears whole, or standard output. */
#include <string.h>

#include "tools/report.h"
#include "tools/trace_report.h"
#include "tools/trace_report_assets.h"

int cli_rep_open(struct cli_rep_sink *sink, const char *name)
{
    memset(sink, 0, sizeof *sink);
    sink->standard = strcmp(name, "-") == 0;
    return sink->standard ? 0 : cli_out_open(&sink->file, name);
}

int cli_rep_put(struct cli_rep_sink *sink, const char *bytes, size_t n)
{
    return sink->standard ? cli_put(bytes, n) : cli_out_put(&sink->file, bytes, n);
}

int cli_rep_close(struct cli_rep_sink *sink, int code)
{
    if (sink->standard) return code;
    if (code) {
        cli_out_abandon(&sink->file);
        return code;
    }
    return cli_out_commit(&sink->file) ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

/* JSON within a script element: a name such as </script> must not end it. Outside of strings there
 * is no <, and in strings the escape means the same. */
static int put_data(struct cli_rep_sink *sink, const char *json, size_t n)
{
    static const char escape[] = "\\u003c";
    size_t from = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && json[i] != '<') continue;
        if (cli_rep_put(sink, json + from, i - from)) return -1;
        if (i < n && cli_rep_put(sink, escape, sizeof escape - 1)) return -1;
        from = i + 1;
    }
    return 0;
}

static int put_asset(struct cli_rep_sink *sink, const struct cli_rep_asset *asset)
{
    return cli_rep_put(sink, (const char *)asset->bytes, asset->size);
}

/* What stands for mark at this place of the template: 0 none, else its length. */
static size_t mark_at(const char *at, size_t left, const char *mark)
{
    size_t n = strlen(mark);
    return left >= n && memcmp(at, mark, n) == 0 ? n : 0;
}

int cli_rep_page(const char *name, const char *json, size_t n)
{
    struct cli_rep_sink sink;
    const char *html = (const char *)cli_rep_html.bytes;
    size_t from = 0, size = cli_rep_html.size;
    int failed = 0;
    if (cli_rep_open(&sink, name)) return CLI_EXIT_FAILURE;
    for (size_t i = 0; i < size && !failed; i++) {
        size_t style = mark_at(html + i, size - i, "@STYLE@");
        size_t data = mark_at(html + i, size - i, "@DATA@");
        size_t script = mark_at(html + i, size - i, "@SCRIPT@");
        size_t mark = style + data + script;
        if (!mark) continue;
        failed = cli_rep_put(&sink, html + from, i - from);
        if (!failed && style) failed = put_asset(&sink, &cli_rep_css);
        if (!failed && data) failed = put_data(&sink, json, n);
        if (!failed && script) failed = put_asset(&sink, &cli_rep_js);
        from = i + mark;
    }
    if (!failed) failed = cli_rep_put(&sink, html + from, size - from);
    return cli_rep_close(&sink, failed ? CLI_EXIT_FAILURE : CLI_EXIT_OK);
}
