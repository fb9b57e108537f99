/* See available.h. /proc/meminfo for the machine, then every control group that the process is in.
 */
#include "base/available.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/small_file.h"

#define PATH_BYTES 1024
#define RESERVE_BYTES ((uint64_t)256 << 20)

/* The number after the word name at the start of a line of text; UINT64_MAX: there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, n) == 0 && (line[n] == ' ' || line[n] == ':')) {
            char *end;
            const char *digits = line + n + 1 + strspn(line + n + 1, " ");
            uint64_t value = strtoull(digits, &end, 10);
            return end != digits ? value : UINT64_MAX;
        }
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return UINT64_MAX;
}

/* The number that a file holds; UINT64_MAX: no file, or "max". */
static uint64_t number_in(const char *folder, const char *name)
{
    char path[PATH_BYTES + 64], text[64], *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!sl_small_file_read(path, text, sizeof text)) return UINT64_MAX;
    uint64_t value = strtoull(text, &end, 10);
    return end != text ? value : UINT64_MAX;
}

/* File pages that a group could give back: those not used of late, and half of the others, as the
 * kernel's own estimate has it. */
static uint64_t reclaimable(const char *folder, const char *inactive_name, const char *active_name)
{
    char path[PATH_BYTES + 64], text[8192];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!sl_small_file_read(path, text, sizeof text)) return 0;
    uint64_t inactive = number_of(text, inactive_name), active = number_of(text, active_name);
    return (inactive == UINT64_MAX ? 0 : inactive) + (active == UINT64_MAX ? 0 : active / 2);
}

/* What is left of the limit of one group; UINT64_MAX: it has none. */
static uint64_t left_in(const char *folder, bool v2)
{
    uint64_t limit = number_in(folder, v2 ? "memory.max" : "memory.limit_in_bytes");
    uint64_t used = number_in(folder, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (limit == UINT64_MAX || used == UINT64_MAX) return limit;
    uint64_t cache = v2 ? reclaimable(folder, "inactive_file", "active_file")
                        : reclaimable(folder, "total_inactive_file", "total_active_file");
    used -= cache < used ? cache : used;
    return used < limit ? limit - used : 0;
}

static void least_left(void *user, const char *folder, bool v2)
{
    uint64_t *left = user;
    *left = sl_min_u64(*left, left_in(folder, v2));
}

static uint64_t left_in_groups(const char *root)
{
    static const char *const mounts[] = {"/sys/fs/cgroup/memory", "/dev/memcg", /* Android's */
                                         NULL};
    const struct sl_cgroup_query q = {root, "memory", mounts};
    uint64_t left = UINT64_MAX;
    sl_cgroup_visit(&q, least_left, &left);
    return left;
}

uint64_t sl_available_bytes(const char *root)
{
    char path[PATH_BYTES], text[8192];
    uint64_t available = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (sl_small_file_read(path, text, sizeof text)) available = number_of(text, "MemAvailable");
    if (available < UINT64_MAX >> 10) available <<= 10;
    return sl_min_u64(available, left_in_groups(root));
}

uint64_t sl_available_less_reserve(uint64_t available_bytes)
{
    if (available_bytes == UINT64_MAX) return UINT64_MAX;
    uint64_t reserve = sl_max_u64(RESERVE_BYTES, available_bytes / 10);
    return available_bytes > reserve ? available_bytes - reserve : 0;
}
