/* What a measurement was made on. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include "tools/json_out.h"

/* The object "machine": processor, cores, memory, system. */
void cli_json_machine(struct cli_json *root);

#endif
