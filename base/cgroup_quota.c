/* CPU quota of the control groups, version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
 *
 * A container that runs more threads than its quota allows is stopped for most of each period;
 * engines that overlooked this were 45 times slower. */
#include "base/cgroup_quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
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

static void smallest_quota(void *user, const char *folder, bool v2)
{
    double *quota = user;
    *quota = smaller(*quota, v2 ? quota_v2(folder) : quota_v1(folder));
}

double sl_cgroup_cpu_quota(const char *root)
{
    static const char *const mounts[] = {"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu",
                                         "/dev/cpuctl", /* Android's */
                                         NULL};
    const struct sl_cgroup_query q = {root, "cpu", mounts};
    double quota = 0;
    sl_cgroup_visit(&q, smallest_quota, &quota);
    return quota;
}
