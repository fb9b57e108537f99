/* Why a path is no model that can be opened, where more can be said than what the failed read says:
 * a container that is not finished, a folder, the name of a model that is there in parts,
 * statistics of a model. */
#include "formats/container.h"
#include "formats/gguf_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/resume_file.h"

#define PARTS_MAX 1024 /* of a container; models of more shards are not known */
#define NAME_MAX_BYTES 4096

static bool fits(int n) { return n > 0 && n < NAME_MAX_BYTES; }

/* A model as it is published, which has to be packed before it can be run. */
static void explain_folder(const char *path, sluice_error *e)
{
    char name[NAME_MAX_BYTES], shown[SL_GG_SHOW_PATH_MAX];
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') n--;
    sl_str_show((struct sl_str){path, n}, shown, sizeof shown);
    if (!fits(snprintf(name, sizeof name, "%s/config.json", path)) || !sl_resume_exists(name))
        return;
    sl_fail(e, SLUICE_E_IO,
            "%s: this is a folder, and a model file was wanted; 'sluice pack %s -o NAME.sluice' "
            "makes one of it",
            shown, shown);
    if (e != NULL) e->sys_errno = EISDIR;
}

/* NAME.sluice where NAME-00001-of-00003.sluice is. */
static void explain_parts(const char *path, sluice_error *e)
{
    char name[NAME_MAX_BYTES], shown[SL_GG_SHOW_PATH_MAX], part[SL_GG_SHOW_PATH_MAX];
    struct sl_str s = {path, strlen(path)};
    const char *end = sl_str_ends(s, ".sluice") ? ".sluice" : ".gguf";

    if (!sl_str_ends(s, end)) return;
    for (unsigned n = 1; n <= PARTS_MAX; n++) {
        int stem = (int)(s.n - strlen(end));

        if (!fits(snprintf(name, sizeof name, "%.*s-00001-of-%05u%s", stem, path, n, end))) return;
        if (!sl_resume_exists(name)) continue;
        sl_fail(e, SLUICE_E_NOT_FOUND,
                "there is no file '%s', but the model is there in %u part%s: open '%s'",
                sl_gg_show_path(path, shown), n, n == 1 ? "" : "s", sl_gg_show_path(name, part));
        return;
    }
}

sluice_err sl_gg_explain(const char *path, sluice_err err, struct sl_budget *b, sluice_error *e)
{
    struct sl_str s = {path, strlen(path)};
    bool unread = err == SLUICE_E_FORMAT || err == SLUICE_E_TRUNCATED;

    if ((err == SLUICE_E_NOT_FOUND || (unread && sl_str_ends(s, ".partial"))) &&
        sl_container_unfinished(path, b, e))
        return SLUICE_E_TRUNCATED;
    if (err == SLUICE_E_NOT_FOUND) explain_parts(path, e);
    if (err == SLUICE_E_IO && e != NULL && e->sys_errno == EISDIR) explain_folder(path, e);
    return err;
}

sluice_err sl_gguf_refuse_imatrix(const struct sl_gguf *g, sluice_error *e)
{
    struct sl_str type = {"", 0};
    char shown[SL_GG_SHOW_PATH_MAX];

    if (sl_gguf_str(g, "general.type", &type, NULL) != SLUICE_OK || !sl_str_eq(type, "imatrix"))
        return SLUICE_OK;
    return sl_fail(
        e, SLUICE_E_UNSUPPORTED,
        "%s: this is an importance matrix (statistics of a model's inputs), not a model; "
        "'sluice pack' takes it with --imatrix",
        sl_gg_show_path(sl_gguf_path(g), shown));
}
