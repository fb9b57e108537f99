/* The buffer in front of a sink; see forms.h for what writers put into it. */
#ifndef SL_TRACE_OUTPUT_H
#define SL_TRACE_OUTPUT_H

#include "trace/forms.h"
#include "trace/gzip.h"

#define SL_TRACE_OUTPUT_BYTES 65536

struct sl_trace_output {
    struct sl_trace_sink sink;
    struct sl_gzip *z;
    sluice_err code;
    sluice_error failure;
    size_t n;
    char text[SL_TRACE_OUTPUT_BYTES];
    char packed[SL_TRACE_OUTPUT_BYTES];
};

#endif
