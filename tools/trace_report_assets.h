/* The parts of the report page, as files of tools/report/ that the build turns into arrays. Text,
 * without an end mark. */
#ifndef CLI_TRACE_REPORT_ASSETS_H
#define CLI_TRACE_REPORT_ASSETS_H

#include <stddef.h>

struct cli_rep_asset {
    const unsigned char *bytes;
    size_t size;
};

extern const struct cli_rep_asset cli_rep_html; /* with @STYLE@, @DATA@ and @SCRIPT@ in it */
extern const struct cli_rep_asset cli_rep_css;
extern const struct cli_rep_asset cli_rep_js;

#endif
