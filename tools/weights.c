/* Looking at every weight; see weights.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/weights.h"

#include <sys/stat.h>

#include "base/cpu.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/report.h"

int cli_is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* The callbacks of the caller and those of progress. */
struct both {
    sl_compared_fn *found;
    void *user;
    struct cli_progress progress;
};

static int on_found(void *user, uint32_t pair, const struct sl_compared *c)
{
    struct both *both = user;
    return both->found(both->user, pair, c);
}

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    struct both *both = user;
    cli_progress_step(&both->progress, done, total);
    return cli_interrupted();
}

static uint32_t threads_of(const struct cli_args *args)
{
    struct sl_cpu_choice choice;
    sl_cpu_choose("", &choice);
    if (args->threads == 0) return choice.threads;
    return args->threads < (int64_t)choice.allowed ? (uint32_t)args->threads : choice.allowed;
}

int cli_weights_run(const struct cli_args *args, const char *what, struct sl_compare *c,
                    struct sl_budget *budget)
{
    struct both both = {.found = c->found, .user = c->user};
    sluice_error error;
    struct sl_compare own = *c;
    own.threads = threads_of(args);
    own.found = on_found;
    own.progress = on_progress;
    own.user = &both;
    cli_progress_begin(&both.progress, what, "weights",
                       cli_progress_wanted(args->progress, args->quiet));
    sluice_err err = sl_compare_run(&own, budget, &error);
    cli_progress_end(&both.progress);
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}
