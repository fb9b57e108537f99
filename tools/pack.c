/* sluice pack: a model made into a container. The work is the module pack's; here are its options,
 * its checks before the start, and what happens to a run that was stopped. */
#include "tools/verbs.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "io/resume_file.h"
#include "pack/plan.h"
#include "pack/pack_run.h"
#include "tools/calib.h"
#include "tools/interrupt.h"
#include "tools/pack_check.h"
#include "tools/pack_report.h"
#include "tools/pack_target.h"
#include "tools/progress.h"
#include "tools/report.h"

#define EXTENSION ".sluice"
#define BITS_DEFAULT 3 /* of experts */

/* Everything that is open. */
struct packing {
    const struct cli_args *args;
    struct sl_budget budget;
    struct sl_source *source;
    struct sl_recipe *recipe;
    struct sl_column_stats *stats;
    struct sl_pack_request request;
    struct sl_pack_plan plan;
    struct sl_pool *pool;
    struct sl_pack_cost *costs;
    struct cli_pack_result result;
    int known;            /* this version knows the architecture */
    int writing;          /* the output was begun, and some of it is kept */
    int source_changed;   /* while it was read: nothing can be kept */
    uint64_t saved_bytes; /* of it, where packing ended early */
    char creator[64];
    sluice_error e;
};

/* ---- arguments ------------------------------------------------------------------------------- */

static int is_container_name(const char *name)
{
    size_t n = strlen(name), tail = strlen(EXTENSION);
    return n > tail && strcmp(name + n - tail, EXTENSION) == 0;
}

static int refuse(const char *text)
{
    cli_error("%s", text);
    return CLI_EXIT_USAGE;
}

static int has_target(const struct cli_args *args)
{
    return args->target_bytes > 0 || args->target_bpw > 0;
}

static int check_args(const struct cli_args *args)
{
    if (!args->model) return refuse("pack: name the model to pack: a GGUF file, or a folder");
    if (!args->output) return refuse("pack: name the container to write: -o NAME.sluice");
    if (!is_container_name(args->output))
        return refuse("pack: -o: wanted a name that ends in .sluice");
    if (has_target(args) + args->keep + (args->bits > 0) > 1 ||
        (args->target_bytes > 0 && args->target_bpw > 0))
        return refuse("pack: --keep, --bits, --target-size and --target-bpw ask for different "
                      "things; leave all but one of them out");
    if (args->imatrix && args->calib)
        return refuse("pack: --imatrix and --calib both give statistics; leave one of them out");
    return CLI_EXIT_OK;
}

static sluice_err fail_taken(struct packing *p)
{
    return sl_fail(&p->e, SLUICE_E_STATE,
                   "%s (or a part of it) exists already; remove it first, or give another name",
                   p->args->output);
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Before hours of work; check_output looks again, at the names of all parts. */
static sluice_err check_name(struct packing *p)
{
    char journal[4096];
    const char *output = p->args->output;
    (void)snprintf(journal, sizeof journal, "%s.journal", output);
    if (!sl_resume_exists(output) || (sl_resume_exists(journal) && !p->args->restart))
        return SLUICE_OK;
    return fail_taken(p);
}

static sluice_err open_inputs(struct packing *p)
{
    const struct cli_args *args = p->args;
    sluice_err err = check_name(p);

    if (err == SLUICE_OK) err = sl_source_open(args->model, &p->budget, &p->e, &p->source);

    if (err == SLUICE_OK && !sl_gguf_has(sl_source_meta(p->source), "tokenizer.ggml.tokens"))
        return sl_fail(&p->e, SLUICE_E_NOT_FOUND,
                       "%s: there is no vocabulary (of a folder: tokenizer.json), and no text "
                       "without one; fetch it from where the model is from",
                       args->model);
    if (err == SLUICE_OK && args->recipe)
        err = sl_recipe_open(args->recipe, &p->budget, &p->e, &p->recipe);
    if (err == SLUICE_OK && args->imatrix)
        err = sl_column_stats_open(args->imatrix, &p->budget, &p->e, &p->stats);
    /* What cannot be run is not worth the time. Of a folder it is known only when it is written. */
    p->known = 1;
    if (err == SLUICE_OK && strcmp(sl_source_kind(p->source), "safetensors") != 0)
        err = cli_pack_check_runs(args->model, &p->known, &p->e);
    return err;
}

/* --calib: the model reads the text first, and is closed again. Returns an exit code. */
static int calibrate(struct packing *p)
{
    if (!p->args->calib) return CLI_EXIT_OK;
    if (strcmp(sl_source_kind(p->source), "safetensors") == 0) {
        cli_error("--calib runs the model, and a folder cannot be run; pack it with --keep, then "
                  "pack that container with --calib");
        return CLI_EXIT_FAILURE;
    }
    return cli_calib_collect(p->args, p->args->calib, &p->budget, &p->stats);
}

static sluice_err open_pool(struct packing *p)
{
    struct sl_cpu_choice choice;
    sl_cpu_choose("", &choice);
    uint32_t wanted = (uint32_t)p->args->threads, threads = choice.threads;
    if (wanted > 0) threads = wanted < choice.allowed ? wanted : choice.allowed;
    p->result.threads = threads;
    sluice_err err = sl_pool_open(&p->budget, threads, wanted ? NULL : &choice, &p->pool);
    if (err == SLUICE_OK) return err;
    return sl_fail(&p->e, err, "could not start %u threads", threads);
}

static sluice_err make_plan(struct packing *p)
{
    const struct cli_args *args = p->args;
    (void)snprintf(p->creator, sizeof p->creator, "sluice %s", sluice_version());
    p->request =
        (struct sl_pack_request){.recipe = p->recipe, .stats = p->stats, .creator = p->creator};
    p->request.stats_name = args->imatrix ? args->imatrix : args->calib;
    if (!args->keep) p->request.bits = args->bits > 0 ? (uint32_t)args->bits : BITS_DEFAULT;
    sluice_err err = sl_pack_plan_make(p->source, &p->request, &p->budget, &p->e, &p->plan);
    if (err != SLUICE_OK || !has_target(args))
        return err == SLUICE_OK ? sl_pack_plan_settle(&p->plan, &p->request, &p->e) : err;
    struct cli_pack_target target = {args, &p->request, &p->plan, p->pool, &p->budget};
    return cli_pack_meet_target(&target, &p->e);
}

/* Rules that change nothing are a slip of the pen more often than not. */
static void note_unused_rules(const struct packing *p)
{
    for (uint32_t i = 0; p->recipe && i < sl_recipe_n_rules(p->recipe); i++) {
        const struct sl_recipe_rule *rule = sl_recipe_rule(p->recipe, i);
        int fits = 0, decides = 0;
        for (uint32_t k = 0; k < p->plan.n_classes; k++) {
            const struct sl_pack_class *c = &p->plan.classes[k];
            if (c->rule != i) continue;
            fits = 1;
            decides |= c->wanted == c->type || !sl_pack_is_exact(c);
        }
        if (!decides)
            cli_note("%s, line %u: '%.*s' decides about no tensor%s", p->args->recipe, rule->line,
                     (int)rule->pattern.n, rule->pattern.p,
                     fits ? ": it fits vectors or narrow matrices only, and these stay exact" : "");
    }
}

/* What the container will not have of a folder. */
static void note_left_out(const struct packing *p)
{
    struct sl_source_left_out left;
    char size[CLI_SIZE_TEXT];

    for (uint32_t i = 0; sl_source_left_out(p->source, i, &left); i++)
        if (left.n > 0)
            cli_note("left out: %s, %u tensors of %s; only text is computed, a token at a time",
                     left.what, left.n, cli_size_text(size, left.bytes));
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The line of progress, and where this run began. */
struct watch {
    struct cli_progress progress;
    uint64_t first_done;
};

static int on_progress(void *user, uint64_t done, uint64_t total)
{
    struct watch *watch = user;
    char line[160], done_text[CLI_SIZE_TEXT], total_text[CLI_SIZE_TEXT], rate_text[CLI_SIZE_TEXT];

    if (!cli_progress_due(&watch->progress)) return cli_interrupted();
    double seconds = (double)(cli_now_ns() - watch->progress.begin_ns) * 1e-9;
    double rate = (double)(done - watch->first_done) / seconds; /* due after a second */
    double left = total > done ? (double)(total - done) / (rate + 1) : 0;
    (void)snprintf(line, sizeof line, "%u %%, %s of %s, %s/s, %.0f s left",
                   (unsigned)((double)done / (double)total * 100), cli_size_text(done_text, done),
                   cli_size_text(total_text, total), cli_size_text(rate_text, (uint64_t)rate),
                   left);
    cli_progress_say(&watch->progress, line);
    return cli_interrupted();
}

static sluice_err write_tensors(struct packing *p, struct sl_container_writer *w)
{
    struct watch watch = {.first_done = p->result.kept_bytes};
    struct sl_pack_job job = {&p->plan, p->pool, &p->budget, on_progress, &watch};

    cli_progress_begin(&watch.progress, "packing", NULL,
                       cli_progress_wanted(p->args->progress, p->args->quiet));
    sluice_err err = sl_pack_run(&job, w, p->costs, &p->e);
    cli_progress_end(&watch.progress);
    return err;
}

static sluice_err check_output(struct packing *p, const struct sl_container_plan *plan)
{
    struct sl_container_measure m;
    const char *output = p->args->output;
    sluice_err err = sl_container_measure(output, plan, &p->budget, &p->e, &m);

    if (err != SLUICE_OK) return err;
    p->result.n_parts = m.n_parts;
    p->result.index_bytes = m.index_bytes;
    err = cli_pack_check_apart(p->source, output, m.n_parts, &p->budget, &p->e);
    if (err != SLUICE_OK) return err;
    if (m.taken && (!m.begun || p->args->restart)) return fail_taken(p);
    if (m.goes_on && !p->args->restart)
        cli_note("an interrupted run has begun %s; reading back what it finished", output);
    return SLUICE_OK;
}

/* Half of one model and half of another would look whole. The checksum knows samples only, so that
 * the files have to be the ones that were opened, too. */
static sluice_err check_source(struct packing *p, uint64_t before)
{
    uint64_t now = 0;
    const char *changed = sl_source_changed(p->source);

    sluice_err err = changed ? SLUICE_OK : sl_source_sum(p->source, &p->e, &now);
    if (err != SLUICE_OK || (!changed && now == before)) return err;
    p->source_changed = 1;
    return sl_fail(&p->e, SLUICE_E_CHANGED,
                   "%s changed while it was packed: what was written is of no use and removed; "
                   "pack again",
                   changed ? changed : p->args->model);
}

/* The name that people open. Once more, since types and a folder's settings are ours by now. */
static sluice_err check_written(struct packing *p)
{
    if (!p->known) return SLUICE_OK;
    char *path = sl_container_part_path(p->args->output, 0, p->result.n_parts, "", &p->budget);
    if (!path) return sl_fail(&p->e, SLUICE_E_NOMEM, "no memory for a name");
    sluice_err err = cli_pack_check_runs(path, &p->known, &p->e);
    sl_free(path);
    if (err != SLUICE_OK) cli_note("it was written, but this version of sluice cannot run it");
    return err;
}

static sluice_err write_container(struct packing *p)
{
    struct sl_container_writer *w = NULL;
    struct sl_container_plan plan = cli_pack_container_plan(p->args, &p->plan);
    uint64_t begin = cli_now_ns();

    sluice_err err = sl_source_sum(p->source, &p->e, &plan.source);
    if (err == SLUICE_OK) err = check_output(p, &plan);
    if (err == SLUICE_OK)
        err = sl_container_write_open(p->args->output, &plan, &p->budget, &p->e, &w);
    if (err != SLUICE_OK) return err;
    p->result.total_bytes = sl_container_write_total(w);
    p->result.kept_bytes = sl_container_write_kept(w);
    cli_pack_say_plan(&p->result);
    err = write_tensors(p, w);
    if (err == SLUICE_OK) err = check_source(p, plan.source);
    if (err == SLUICE_OK) err = sl_container_write_commit(w, &p->e);
    p->writing = err != SLUICE_OK && !p->source_changed;
    if (p->writing) p->saved_bytes = sl_container_write_suspend(w);
    if (p->source_changed)
        sl_container_write_discard(w);
    else
        sl_container_write_close(w);
    if (err == SLUICE_OK) err = check_written(p);
    p->result.ns = cli_now_ns() - begin;
    return err;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static sluice_err plan_and_write(struct packing *p)
{
    sluice_err err = open_pool(p);

    if (err == SLUICE_OK) err = make_plan(p);
    if (err != SLUICE_OK) return err;
    note_left_out(p);
    note_unused_rules(p);
    p->costs = sl_alloc(&p->budget, p->plan.n_classes, sizeof *p->costs);
    if (!p->costs) return sl_fail(&p->e, SLUICE_E_NOMEM, "no memory for the report");
    p->result.args = p->args;
    p->result.source = p->source;
    p->result.plan = &p->plan;
    p->result.costs = p->costs;
    return write_container(p);
}

static void close_all(struct packing *p)
{
    if (p->pool) sl_pool_close(p->pool);
    sl_free(p->costs);
    if (p->plan.budget) sl_pack_plan_deinit(&p->plan);
    sl_column_stats_close(p->stats);
    sl_recipe_close(p->recipe);
    sl_source_close(p->source);
}

/* What is kept, and who goes on with it. */
static void note_saved(const struct packing *p, sluice_err err)
{
    char saved[CLI_SIZE_TEXT], total[CLI_SIZE_TEXT];
    const char *stopped = err == SLUICE_E_CANCELLED ? "stopped; " : "";
    int damaged = err == SLUICE_E_CORRUPT || err == SLUICE_E_NUMERIC;

    if (!p->writing || err == SLUICE_E_CHANGED) return;
    cli_note(
        "%s%s of %s are finished and kept: the same command%s goes on where it stopped%s", stopped,
        cli_size_text(saved, p->saved_bytes), cli_size_text(total, p->result.total_bytes),
        p->args->restart ? " without --restart" : "", damaged ? ", once the model is whole" : "");
}

static int fail(const struct packing *p, sluice_err err)
{
    note_saved(p, err);
    return cli_fail(&p->e);
}

static void report(struct packing *p)
{
    p->result.peak_bytes = sl_peak_rss_bytes();
    if (p->args->json)
        cli_pack_json(&p->result);
    else
        cli_pack_print(&p->result);
}

int cli_pack(const struct cli_args *args)
{
    struct packing p = {.args = args};
    int code = check_args(args);

    if (code != CLI_EXIT_OK) return code;
    sl_budget_init(&p.budget, UINT64_MAX);
    sluice_err err = open_inputs(&p);
    if (err == SLUICE_OK) code = calibrate(&p);
    if (err == SLUICE_OK && code == CLI_EXIT_OK) err = plan_and_write(&p);
    if (err != SLUICE_OK)
        code = fail(&p, err);
    else if (code == CLI_EXIT_OK)
        report(&p);
    close_all(&p);
    return code;
}
