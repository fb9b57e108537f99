/* pack --target-size and --target-bpw: types chosen so that the container, or its weights, come as
 * near to a size as they can from below. */
#ifndef CLI_PACK_TARGET_H
#define CLI_PACK_TARGET_H

#include "pack/choose.h"
#include "tools/args.h"

/* The container that a settled plan makes; its checksum of the source is still 0. */
struct sl_container_plan cli_pack_container_plan(const struct cli_args *args,
                                                 const struct sl_pack_plan *plan);

struct cli_pack_target {
    const struct cli_args *args;
    const struct sl_pack_request *request;
    struct sl_pack_plan *plan; /* settled afterwards */
    struct sl_pool *pool;
    struct sl_budget *budget;
};

/* SLUICE_E_ARG: even the smallest choice is too large; e says what is possible. */
SL_MUST_CHECK sluice_err cli_pack_meet_target(const struct cli_pack_target *t, sluice_error *e);

#endif
