/* What packing makes sure of; see pack_check.h. */
#include "tools/pack_check.h"

#include <string.h>

#include "formats/container_write.h"
#include "tools/report.h"

/* How the engine says that it does not know an architecture. */
#define UNKNOWN "is not supported by this version; it knows "

static sluice_err check_part(const struct sl_source *s, const char *output, uint32_t part,
                             uint32_t n_parts, struct sl_budget *b, sluice_error *e)
{
    static const char *const suffixes[] = {"", ".partial"};
    sluice_err err = SLUICE_OK;

    for (size_t i = 0; i < SL_ARRAY_LEN(suffixes) && err == SLUICE_OK; i++) {
        char *path = sl_container_part_path(output, part, n_parts, suffixes[i], b);

        if (!path)
            err = sl_fail(e, SLUICE_E_NOMEM, "no memory for a name");
        else if (sl_source_is_file(s, path))
            err = sl_fail(e, SLUICE_E_ARG,
                          "%s is a file of the model that is to be packed, and would be written "
                          "over; give another name",
                          path);
        sl_free(path);
    }
    return err;
}

sluice_err cli_pack_check_apart(const struct sl_source *s, const char *output, uint32_t n_parts,
                                struct sl_budget *b, sluice_error *e)
{
    sluice_err err = SLUICE_OK;

    for (uint32_t i = 0; i < n_parts && err == SLUICE_OK; i++)
        err = check_part(s, output, i, n_parts, b, e);
    return err;
}

sluice_err cli_pack_check_runs(const char *path, int *known, sluice_error *e)
{
    const sluice_options options = SLUICE_OPTIONS_INIT;
    sluice_plan plan = SLUICE_PLAN_INIT;
    sluice_err err = sluice_memory_plan(path, &options, &plan, e);

    *known = err != SLUICE_E_UNSUPPORTED || !strstr(e->text, UNKNOWN);
    if (*known) return err;
    cli_note("warning: it is packed all the same, but cannot be run: %s", e->text);
    return SLUICE_OK;
}
