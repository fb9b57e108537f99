/* What packing tells: the plan before it, the table after it, and both as JSON. */
#ifndef CLI_PACK_REPORT_H
#define CLI_PACK_REPORT_H

#include "pack/plan.h"
#include "pack/pack_run.h"
#include "tools/args.h"

/* All there is to tell. */
struct cli_pack_result {
    const struct cli_args *args;
    const struct sl_source *source;
    const struct sl_pack_plan *plan;
    const struct sl_pack_cost *costs; /* [n_classes] */
    uint64_t total_bytes, kept_bytes; /* of the container; of those, by an earlier run */
    uint64_t index_bytes;             /* of the container, for headers and index */
    uint32_t n_parts, threads;
    uint64_t ns;
    uint64_t peak_bytes; /* resident memory of the process; 0: unknown */
};

/* Lines on standard error: sizes, and what did not become what was asked for. */
void cli_pack_say_plan(const struct cli_pack_result *r);
/* The table, on standard output. */
void cli_pack_print(const struct cli_pack_result *r);
void cli_pack_json(const struct cli_pack_result *r);

#endif
