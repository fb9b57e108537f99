/* The control groups that this process is in, versions 1 and 2. */
#ifndef SL_CGROUP_H
#define SL_CGROUP_H

#include "base/base.h"

/* A folder in which a group's limits may stand. v2: of version 2. */
typedef void sl_cgroup_fn(void *user, const char *folder, bool v2);

struct sl_cgroup_query {
    const char *root;       /* see sl_cpu_choose */
    const char *controller; /* "memory", "cpu" */
    const char *const
        *mounts_v1; /* where the controller's hierarchy may be mounted, ends with NULL */
};

/* Calls visit for the process's own group of that controller and every group above it, since a
 * limit may stand at any level. Folders need not exist: in a container the named path often does
 * not exist under the mount, which then is the group itself. Thread: safe. */
void sl_cgroup_visit(const struct sl_cgroup_query *q, sl_cgroup_fn *visit, void *user);

#endif
