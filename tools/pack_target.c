/* Meeting a target; see pack_target.h. What a container takes besides its weights (boundaries,
 * index) depends on the choice, so a size is come to in a few rounds. */
#include "tools/pack_target.h"

#include <string.h>

#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/report.h"

#define ROUNDS 24

struct sl_container_plan cli_pack_container_plan(const struct cli_args *args,
                                                 const struct sl_pack_plan *plan)
{
    return (struct sl_container_plan){
        .meta = sl_source_meta(plan->source),
        .recipe = {plan->recipe, plan->recipe_bytes},
        .tensors = plan->tensors,
        .n_tensors = sl_source_n_tensors(plan->source),
        .part_bytes = args->split_bytes,
        .restart = args->restart != 0,
    };
}

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

/* Bytes of the container with the types as they are. */
static sluice_err measure(const struct cli_pack_target *t, uint64_t *bytes, sluice_error *e)
{
    struct sl_container_measure m;
    sluice_err err = sl_pack_plan_settle(t->plan, t->request, e);

    if (err != SLUICE_OK) return err;
    struct sl_container_plan plan = cli_pack_container_plan(t->args, t->plan);
    err = sl_container_measure(t->args->output, &plan, t->budget, e, &m);
    *bytes = m.total_bytes;
    return err;
}

static sluice_err meet_bpw(const struct cli_pack_target *t, struct sl_pack_choice *c,
                           sluice_error *e)
{
    double weights = (double)t->plan->n_weights;
    double limit = t->args->target_bpw * weights / 8;

    if (sl_pack_choose(c, t->plan, (uint64_t)limit))
        return sl_pack_plan_settle(t->plan, t->request, e);
    return sl_fail(e, SLUICE_E_ARG,
                   "--target-bpw %.3f: the smallest that this model can become is %.3f bits a "
                   "weight, the largest %.3f",
                   t->args->target_bpw, (double)sl_pack_choice_smallest(c) * 8 / weights,
                   (double)sl_pack_choice_largest(c) * 8 / weights);
}

/* Whether the container of a limit for the weights fits. */
static sluice_err try_limit(const struct cli_pack_target *t, struct sl_pack_choice *c,
                            uint64_t limit, uint64_t *bytes, sluice_error *e)
{
    bool fits = sl_pack_choose(c, t->plan, limit);
    sluice_err err = measure(t, bytes, e);

    return fits || err != SLUICE_OK ? err : sl_fail(e, SLUICE_E_STATE, "no choice is so small");
}

static sluice_err meet_size(const struct cli_pack_target *t, struct sl_pack_choice *c,
                            sluice_error *e)
{
    uint64_t target = t->args->target_bytes, smallest = 0, largest = 0, bytes = 0;
    uint64_t low = sl_pack_choice_smallest(c), high = sl_pack_choice_largest(c);
    sluice_err err = try_limit(t, c, low, &smallest, e);

    if (err == SLUICE_OK) err = try_limit(t, c, high, &largest, e);
    if (err != SLUICE_OK || largest <= target) return err;
    if (smallest > target)
        return sl_fail(e, SLUICE_E_ARG,
                       "--target-size %llu: the smallest container that this model can become has "
                       "%llu bytes, the largest %llu",
                       (unsigned long long)target, (unsigned long long)smallest,
                       (unsigned long long)largest);
    for (int round = 0; round < ROUNDS && err == SLUICE_OK; round++) {
        uint64_t middle = low + (high - low) / 2;

        err = try_limit(t, c, middle, &bytes, e);
        if (bytes <= target)
            low = middle;
        else
            high = middle;
    }
    return err == SLUICE_OK ? try_limit(t, c, low, &bytes, e) : err;
}

sluice_err cli_pack_meet_target(const struct cli_pack_target *t, sluice_error *e)
{
    struct sl_pack_choice *c = NULL;
    struct cli_progress progress;
    struct sl_pack_job job = {t->plan, t->pool, t->budget, on_progress, &progress};

    cli_progress_begin(&progress, "measuring what each type costs", "samples",
                       cli_progress_wanted(t->args->progress, t->args->quiet));
    sluice_err err = sl_pack_choice_open(&job, e, &c);
    cli_progress_end(&progress);
    if (err == SLUICE_OK) err = t->args->target_bytes > 0 ? meet_size(t, c, e) : meet_bpw(t, c, e);
    sl_pack_choice_close(c);
    return err;
}
