/* How many cores' worth of time the control groups of this process grant. */
#ifndef SL_CGROUP_QUOTA_H
#define SL_CGROUP_QUOTA_H

/* The smallest quota on the way from the process's group to the root, v2 and v1, in cores; 0: none,
 * or none that can be read. root: see sl_cpu_choose. Thread: safe. */
double sl_cgroup_cpu_quota(const char *root);

#endif
