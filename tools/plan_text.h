/* The memory plan in words and as JSON. */
#ifndef CLI_PLAN_TEXT_H
#define CLI_PLAN_TEXT_H

#include "include/sluice.h"
#include "tools/args.h"
#include "tools/json_out.h"

/* A note of one or two lines, before anything is allocated: what goes where, and how many experts
 * stay in memory. */
void cli_plan_note(const sluice_plan *plan);

/* How large the slots of experts are: "68.0 KiB each", or "up to ..." where layers differ. text has
 * CLI_SLOT_TEXT bytes and is returned. */
#define CLI_SLOT_TEXT 64
const char *cli_slot_text(char *text, const sluice_plan *plan);

/* Whether the plan can be carried out with args. Returns exit code 0, or 1 with a message that says
 * what would work. */
int cli_plan_check(const struct cli_args *args, const sluice_plan *plan);

/* The object "memory_plan". */
void cli_json_plan(struct cli_json *root, const sluice_plan *plan);

#endif
