/* What a measurement was made on; see machine.h. */
#define _DEFAULT_SOURCE
#include "tools/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LINE_BYTES 512

/* The processor's name; "" where the system does not say. */
static void processor_name(char *name, size_t size)
{
    char line[LINE_BYTES];
    FILE *file = fopen("/proc/cpuinfo", "r");
    name[0] = 0;
    while (file && !name[0] && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        int is_name = strncmp(line, "model name", 10) == 0 || strncmp(line, "Hardware", 8) == 0;
        if (!is_name || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
    }
    if (file) (void)fclose(file);
}

void cli_json_machine(struct cli_json *root)
{
    char name[LINE_BYTES], system[LINE_BYTES] = "";
    struct utsname about;
    struct cli_json *machine = cli_json_child(root, "machine");
    long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    processor_name(name, sizeof name);
    if (uname(&about) == 0)
        (void)snprintf(system, sizeof system, "%.100s %.100s %.100s", about.sysname, about.release,
                       about.machine);
    cli_json_known_string(machine, "processor", name);
    cli_json_known(machine, "cores", cores > 0 ? (uint64_t)cores : 0);
    cli_json_known(machine, "memory_bytes",
                   pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0);
    cli_json_known_string(machine, "system", system);
}
