/* CPU quota of the control groups, version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
 *
 * /proc/self/cgroup names the group; a limit may stand at any level above it, so the whole way up
 * is read. In a container the named path often does not exist under the mount (the mount already is
 * the group): walking up then ends at the mount itself, which is the right place. A container that
 * runs more threads than its quota allows is stopped for most of each period; engines that
 * overlooked this were 45 times slower. */
#include "base/cgroup_quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/small_file.h"

#define PATH_MAX_BYTES 1024

static double smaller(double a, double b)
{
    if (a <= 0) return b;
    return b > 0 && b < a ? b : a;
}

/* "max 100000" or "150000 100000". */
static double quota_v2(const char *folder)
{
    char path[PATH_MAX_BYTES + 32], text[128];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!sl_small_file_read(path, text, sizeof text)) return 0;
    char *end;
    double quota = (double)strtoull(text, &end, 10);
    if (end == text || *end != ' ') return 0;
    double period = (double)strtoull(end + 1, NULL, 10);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* Two files; a quota of -1 is none. */
static double quota_v1(const char *folder)
{
    char path[PATH_MAX_BYTES + 32], text[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!sl_small_file_read(path, text, sizeof text)) return 0;
    double quota = (double)strtoll(text, NULL, 10);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!sl_small_file_read(path, text, sizeof text)) return 0;
    double period = (double)strtoll(text, NULL, 10);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The smallest answer of read from mount/group up to mount. */
static double walk_up(const char *mount, const char *group, double (*read)(const char *folder))
{
    char folder[PATH_MAX_BYTES];
    int n =
        snprintf(folder, sizeof folder, "%s%s", mount, strstr(group, "..") == NULL ? group : "");
    if (n < 0 || (size_t)n >= sizeof folder) return read(mount);
    size_t floor = strlen(mount);
    size_t used = (size_t)n;
    double quota = 0;
    for (;;) {
        while (used > floor && folder[used - 1] == '/') used--;
        folder[used] = '\0';
        quota = smaller(quota, read(folder));
        if (used == floor) return quota;
        while (used > floor && folder[used - 1] != '/') used--;
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    const char *p = list;
    while ((p = strstr(p, name)) != NULL) {
        bool starts = p == list || p[-1] == ',';
        if (starts && (p[n] == '\0' || p[n] == ',')) return true;
        p += n;
    }
    return false;
}

static double quota_of_mounts(const char *root, bool v2, const char *group)
{
    static const char *const mounts_v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    static const char *const mounts_v1[] = {"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu",
                                            "/dev/cpuctl"}; /* the last is Android's */
    size_t count = v2 ? SL_ARRAY_LEN(mounts_v2) : SL_ARRAY_LEN(mounts_v1);
    double quota = 0;
    for (size_t i = 0; i < count; i++) {
        char mount[PATH_MAX_BYTES];
        int n = snprintf(mount, sizeof mount, "%s%s", root, v2 ? mounts_v2[i] : mounts_v1[i]);
        if (n < 0 || (size_t)n >= sizeof mount) continue;
        quota = smaller(quota, walk_up(mount, group, v2 ? quota_v2 : quota_v1));
    }
    return quota;
}

/* A line is "hierarchy:controllers:group"; version 2 has hierarchy 0 and no controllers. */
double sl_cgroup_cpu_quota(const char *root)
{
    char path[PATH_MAX_BYTES], text[8192];
    double quota = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!sl_small_file_read(path, text, sizeof text)) return 0;
    char *line = text;
    while (line != NULL && *line != '\0') {
        char *next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group != NULL) {
            *group++ = '\0';
            controllers++;
            if (*controllers == '\0')
                quota = smaller(quota, quota_of_mounts(root, true, group));
            else if (has_controller(controllers, "cpu"))
                quota = smaller(quota, quota_of_mounts(root, false, group));
        }
        line = next;
    }
    return quota;
}
