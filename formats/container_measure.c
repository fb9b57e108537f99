/* What a container would be, before anything is written, and what is there already. */
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_write_internal.h"

char *sl_container_part_path(const char *path, uint32_t part, uint32_t n_parts, const char *suffix,
                             struct sl_budget *b)
{
    return sl_cn_part_path(path, part, n_parts, suffix, b);
}

/* The name of a part, or of the journal. */
static sluice_err at_name(const char *path, uint32_t part, uint32_t n_parts, const char *suffix,
                          struct sl_budget *b, char **out)
{
    *out = sl_cn_part_path(path, part, n_parts, suffix, b);
    return *out != NULL ? SLUICE_OK : SLUICE_E_NOMEM;
}

static sluice_err exists(const char *path, uint32_t part, uint32_t n_parts, const char *suffix,
                         struct sl_budget *b, bool *found)
{
    char *name;
    sluice_err err = at_name(path, part, n_parts, suffix, b, &name);

    if (err == SLUICE_OK) *found = *found || sl_resume_exists(name);
    sl_free(name);
    return err;
}

static sluice_err fail_name(const char *path, sluice_err err, sluice_error *e)
{
    return sl_cn_fail(e, err, path, "no memory for a name");
}

static sluice_err find_journal(const char *path, const struct sl_cn_belongs *to,
                               struct sl_budget *b, struct sl_container_measure *out)
{
    char *name;
    sluice_err err = at_name(path, 0, 1, ".journal", b, &name);

    if (err != SLUICE_OK) return err;
    out->begun = sl_resume_exists(name);
    out->goes_on = out->begun && sl_cn_journal_goes_on(name, to, b);
    sl_free(name);
    return SLUICE_OK;
}

sluice_err sl_container_measure(const char *path, const struct sl_container_plan *plan,
                                struct sl_budget *b, sluice_error *e,
                                struct sl_container_measure *out)
{
    struct sl_cn_layout layout = {0};

    *out = (struct sl_container_measure){0};
    sluice_err err = sl_cn_layout_make(&layout, plan, path, b, e);
    out->total_bytes = layout.total_bytes;
    out->n_parts = layout.n_parts;
    if (err == SLUICE_OK)
        out->index_bytes = layout.n_parts * (uint64_t)SL_CN_HEADER_BYTES +
                           layout.part_bytes[layout.n_parts - 1] - layout.index_offset;
    struct sl_cn_belongs to = {.source = plan->source,
                               .recipe_sum = sl_xxh3(plan->recipe.p, plan->recipe.n),
                               .layout_sum = layout.sum};
    sl_cn_layout_deinit(&layout);
    if (err != SLUICE_OK) return err;
    err = find_journal(path, &to, b, out);
    for (uint32_t i = 0; i < out->n_parts && err == SLUICE_OK; i++)
        err = exists(path, i, out->n_parts, "", b, &out->taken);
    return err == SLUICE_OK ? err : fail_name(path, err, e);
}

/* Whoever had the lock may have finished meanwhile. Parts that no journal tells of may be
 * anybody's, a source that was renamed among them. */
sluice_err sl_cn_check_vacant(const char *path, uint32_t n_parts, bool stray_ok,
                              struct sl_budget *b, sluice_error *e)
{
    bool taken = false, stray = false;

    for (uint32_t i = 0; i < n_parts; i++) {
        char *partial;
        sluice_err err = exists(path, i, n_parts, "", b, &taken);

        if (err == SLUICE_OK) err = at_name(path, i, n_parts, ".partial", b, &partial);
        if (err != SLUICE_OK) return fail_name(path, err, e);
        stray = stray || sl_resume_occupied(partial) > 0;
        sl_free(partial);
    }
    if (taken)
        return sl_cn_fail(e, SLUICE_E_STATE, path,
                          "it (or a part of it) exists already; remove it first, or give another "
                          "name");
    if (!stray || stray_ok) return SLUICE_OK;
    return sl_cn_fail(e, SLUICE_E_STATE, path,
                      "there is a .partial file of that name, and no journal says what it is: "
                      "remove or rename it, or write over it (--restart)");
}

static sluice_err remove_division(const char *path, uint32_t n_parts, struct sl_resume_limit *limit,
                                  struct sl_budget *b, sluice_error *e)
{
    sluice_err err = SLUICE_OK;

    for (uint32_t i = n_parts; i-- > 0 && err == SLUICE_OK;) {
        char *name;

        err = at_name(path, i, n_parts, ".partial", b, &name);
        if (err != SLUICE_OK) return fail_name(path, err, e);
        if (sl_resume_exists(name)) err = sl_resume_remove(name, limit, e);
        sl_free(name);
    }
    return err;
}

/* Every division has a first part, which is begun first and goes last. */
sluice_err sl_cn_remove_partials(const char *path, struct sl_resume_limit *limit,
                                 struct sl_budget *b, sluice_error *e)
{
    for (uint32_t n = 1; n <= SL_CN_PARTS_MAX; n++) {
        bool there = false;
        sluice_err err = exists(path, 0, n, ".partial", b, &there);

        if (err != SLUICE_OK) return fail_name(path, err, e);
        if (there) err = remove_division(path, n, limit, b, e);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}
