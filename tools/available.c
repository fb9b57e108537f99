/* How much memory there is to have; see open_model.h. The kernel's estimate of what programs can
 * get without swapping, bounded by what is left of the control group's limit (cgroup v2, and v1
 * where it is mounted in the usual place). */
#include <stdio.h>
#include <string.h>

#include "tools/open_model.h"

#define LINE_BYTES 512
#define PATH_BYTES 640

/* The number that the file at path begins with; UINT64_MAX: no file, no number, or "max". */
static uint64_t number_in(const char *path)
{
    unsigned long long value;
    FILE *file = fopen(path, "r");
    if (!file) return UINT64_MAX;
    int got = fscanf(file, "%llu", &value);
    (void)fclose(file);
    return got == 1 ? value : UINT64_MAX;
}

/* What is left of the limit of one control group. */
static uint64_t left_in(const char *folder, const char *limit_name, const char *usage_name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    uint64_t limit = number_in(path);
    (void)snprintf(path, sizeof path, "%s/%s", folder, usage_name);
    uint64_t used = number_in(path);
    if (limit == UINT64_MAX || used == UINT64_MAX) return limit;
    return used < limit ? limit - used : 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The path after prefix in a line of /proc/self/cgroup, or NULL. */
static char *group_path(char *line, const char *prefix)
{
    char *hit = strstr(line, prefix);
    line[strcspn(line, "\n")] = 0;
    return hit ? hit + strlen(prefix) : NULL;
}

static uint64_t left_in_groups(void)
{
    static const char v2[] = "/sys/fs/cgroup", v1[] = "/sys/fs/cgroup/memory";
    char line[LINE_BYTES], folder[PATH_BYTES];
    uint64_t left = left_in(v2, "memory.max", "memory.current");
    left = least(left, left_in(v1, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && fgets(line, sizeof line, groups)) {
        char *path;
        if ((path = group_path(line, "0::"))) {
            (void)snprintf(folder, sizeof folder, "%s%s", v2, path);
            left = least(left, left_in(folder, "memory.max", "memory.current"));
        } else if ((path = group_path(line, ":memory:"))) {
            (void)snprintf(folder, sizeof folder, "%s%s", v1, path);
            left = least(left, left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
        }
    }
    if (groups) (void)fclose(groups);
    return left;
}

uint64_t cli_available_bytes(void)
{
    char line[LINE_BYTES];
    unsigned long long kilobytes;
    uint64_t available = UINT64_MAX;
    FILE *memory = fopen("/proc/meminfo", "r");
    while (memory && fgets(line, sizeof line, memory))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) available = kilobytes << 10;
    if (memory) (void)fclose(memory);
    return least(available, left_in_groups());
}
