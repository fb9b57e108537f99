/* The recipe as a container carries it: what made it, and a rule for every tensor that is not kept
 * as it was. The text determines the bytes: it names version, statistics and every type, so that an
 * interrupted run is gone on with only by one that would write the same. It reads as a recipe, too.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/checksum.h"
#include "pack/plan.h"

/* To be raised when an encoder comes to write other bytes. */
#define ENCODERS 1
#define LINE_MAX 384
#define GROUP_MAX 8192 /* classes; comparing all with all takes too long beyond */

static sluice_err add(struct sl_pack_plan *plan, sluice_error *e, const char *fmt, ...)
    SL_PRINTF(3, 4);

static sluice_err add(struct sl_pack_plan *plan, sluice_error *e, const char *fmt, ...)
{
    char line[LINE_MAX];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    SLUICE_ASSERT(n >= 0 && n < LINE_MAX);
    sluice_err err = sl_grow(plan->budget, &plan->recipe, &plan->recipe_capacity,
                             plan->recipe_bytes + (uint64_t)n, 1);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory for the text of the recipe");
    memcpy(plan->recipe + plan->recipe_bytes, line, (size_t)n);
    plan->recipe_bytes += (uint64_t)n;
    return SLUICE_OK;
}

/* Of everything that the statistics say about these tensors. */
static uint64_t sum_weights(const struct sl_pack_plan *plan)
{
    struct sl_xxh3_stream s;

    sl_xxh3_begin(&s);
    for (uint32_t i = 0; i < sl_source_n_tensors(plan->source); i++) {
        uint64_t cols = plan->weights[i] != NULL ? sl_source_tensor(plan->source, i)->cols : 0;

        sl_xxh3_add(&s, &cols, sizeof cols);
        if (cols > 0) sl_xxh3_add(&s, plan->weights[i], cols * sizeof *plan->weights[i]);
    }
    return sl_xxh3_end(&s);
}

/* What follows "blk.L.", or an empty text. */
static struct sl_str tail_of(const struct sl_pack_class *c)
{
    const char *dot = c->layer >= 0 ? memchr(c->name.p + 4, '.', c->name.n - 4) : NULL;

    if (dot == NULL) return SL_STR("");
    return (struct sl_str){dot + 1, (size_t)(c->name.p + c->name.n - dot - 1)};
}

/* Whether all layers have the same type for what c is in its own; *first: c is in the first. */
static bool is_uniform(const struct sl_pack_plan *plan, uint32_t index, bool *first)
{
    const struct sl_pack_class *c = &plan->classes[index];
    struct sl_str tail = tail_of(c);

    *first = true;
    if (tail.n == 0 || plan->n_classes > GROUP_MAX) return false;
    for (uint32_t i = 0; i < plan->n_classes; i++) {
        const struct sl_pack_class *o = &plan->classes[i];

        if (!sl_str_same(tail_of(o), tail)) continue;
        if (o->type != c->type || (o->type == o->from) != (c->type == c->from)) return false;
        if (i < index) *first = false;
    }
    return true;
}

static sluice_err add_rule(struct sl_pack_plan *plan, uint32_t index, sluice_error *e)
{
    const struct sl_pack_class *c = &plan->classes[index];
    char type[SL_RECIPE_TYPE_NAME_MAX];
    struct sl_str tail = tail_of(c);
    bool first;

    sl_recipe_type_name(c->type == c->from ? SL_RECIPE_KEEP : c->type, type);
    if (!is_uniform(plan, index, &first))
        return add(plan, e, "%.*s %s\n", (int)c->name.n, c->name.p, type);
    if (!first) return SLUICE_OK;
    return add(plan, e, "blk.*.%.*s %s\n", (int)tail.n, tail.p, type);
}

static sluice_err write_recipe(struct sl_pack_plan *plan, const struct sl_pack_request *request,
                               sluice_error *e)
{
    bool changed = false;
    char statistics[40] = "none";

    if (plan->n_reached > 0)
        snprintf(statistics, sizeof statistics, "%016" PRIx64, sum_weights(plan));
    plan->recipe_bytes = 0;
    sluice_err err = add(plan, e, "# %s, encoders %d\n# statistics: %s\n", request->creator,
                         ENCODERS, statistics);
    for (uint32_t i = 0; i < plan->n_classes; i++)
        changed = changed || plan->classes[i].type != plan->classes[i].from;
    if (!changed) return err == SLUICE_OK ? add(plan, e, "* keep\n") : err;
    for (uint32_t i = 0; i < plan->n_classes && err == SLUICE_OK; i++) err = add_rule(plan, i, e);
    return err;
}

sluice_err sl_pack_plan_settle(struct sl_pack_plan *plan, const struct sl_pack_request *request,
                               sluice_error *e)
{
    for (uint32_t i = 0; i < sl_source_n_tensors(plan->source); i++) {
        const struct sl_source_tensor *t = sl_source_tensor(plan->source, i);
        struct sl_container_tensor *c = &plan->tensors[i];

        *c = (struct sl_container_tensor){.name = t->name,
                                          .type = plan->classes[plan->class_of[i]].type,
                                          .n_dims = t->n_dims,
                                          .layer = t->layer,
                                          .expert = t->expert};
        memcpy(c->dims, t->dims, sizeof c->dims);
    }
    return write_recipe(plan, request, e);
}
