/* See cgroup.h. /proc/self/cgroup names the groups; they are sought under the usual mounts. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#include "base/small_file.h"

#define PATH_BYTES 1024

struct walk {
    sl_cgroup_fn *visit;
    void *user;
    const char *root, *group;
    bool v2;
};

/* mount/group and all above it up to mount. A group outside of this container's view ("..") is
 * taken as the mount. */
static void climb(const struct walk *w, const char *mount_name)
{
    char mount[PATH_BYTES], folder[PATH_BYTES];
    int n = snprintf(mount, sizeof mount, "%s%s", w->root, mount_name);
    if (n < 0 || (size_t)n >= sizeof mount) return;
    bool outside = strstr(w->group, "..") != NULL;
    size_t floor = (size_t)n;
    n = snprintf(folder, sizeof folder, "%s%s", mount, outside ? "" : w->group);
    if (n < 0 || (size_t)n >= sizeof folder) {
        w->visit(w->user, mount, w->v2);
        return;
    }
    for (size_t used = (size_t)n;;) {
        while (used > floor && folder[used - 1] == '/') used--;
        folder[used] = '\0';
        w->visit(w->user, folder, w->v2);
        if (used == floor) return;
        while (used > floor && folder[used - 1] != '/') used--;
    }
}

/* Whether a comma-separated list of controllers has this one in it. */
static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)) != NULL; p += n)
        if ((p == list || p[-1] == ',') && (p[n] == '\0' || p[n] == ',')) return true;
    return false;
}

/* A line is "hierarchy:controllers:group"; version 2 has no controllers. */
static void visit_line(const struct sl_cgroup_query *q, char *line, struct walk *w)
{
    static const char *const mounts_v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL};
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) return;
    *group++ = '\0';
    controllers++;
    w->v2 = *controllers == '\0';
    w->group = group;
    if (!w->v2 && !has_controller(controllers, q->controller)) return;
    for (const char *const *m = w->v2 ? mounts_v2 : q->mounts_v1; *m != NULL; m++) climb(w, *m);
}

void sl_cgroup_visit(const struct sl_cgroup_query *q, sl_cgroup_fn *visit, void *user)
{
    char path[PATH_BYTES], text[8192];
    struct walk w = {.visit = visit, .user = user, .root = q->root};
    snprintf(path, sizeof path, "%s/proc/self/cgroup", q->root);
    if (!sl_small_file_read(path, text, sizeof text)) return;
    for (char *line = text; line != NULL && *line != '\0';) {
        char *next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        visit_line(q, line, &w);
        line = next;
    }
}
