/* Opening a model; see open_model.h. */
#include "tools/open_model.h"

#include <string.h>

#include "tools/interrupt.h"
#include "tools/plan_text.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/streaming.h"

static int errors_logged;

static void on_log(void *user, int level, const char *line)
{
    (void)user;
    if (level == SLUICE_LOG_ERROR) {
        errors_logged = 1;
        cli_error("%s", line);
        return;
    }
    cli_note("%s%s", level == SLUICE_LOG_WARN ? "warning: " : "", line);
}

static int on_load(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

int cli_model_complained(void) { return errors_logged; }

void cli_model_options(const struct cli_args *args, sluice_options *options)
{
    sluice_options fresh = SLUICE_OPTIONS_INIT;
    fresh.ram_bytes = args->ram_bytes;
    if (args->ram_bytes && args->ram_bytes != SLUICE_RAM_AUTO) /* 1: refused, with what works */
        fresh.ram_bytes =
            args->ram_bytes > args->aside_bytes ? args->ram_bytes - args->aside_bytes : 1;
    fresh.threads = (uint32_t)args->threads;
    fresh.isa = (uint32_t)args->isa;
    fresh.n_ctx = (uint32_t)args->ctx_size;
    fresh.kv = (uint32_t)args->kv;
    fresh.chunk = (uint32_t)args->chunk;
    fresh.log = on_log;
    fresh.log_level = args->verbose ? SLUICE_LOG_DEBUG
                      : args->quiet ? SLUICE_LOG_ERROR
                                    : SLUICE_LOG_WARN;
    fresh.chat_template = args->chat_template;
    fresh.hot_list = args->hot_list;
    fresh.io = (uint32_t)args->io;
    fresh.cache_policy = (uint32_t)args->cache_policy;
    fresh.prefetch = (uint32_t)args->prefetch;
    fresh.slots = (uint32_t)args->slots;
    fresh.experts_used = (uint32_t)args->experts_used;
    fresh.sticky = (float)args->sticky;
    fresh.sticky_size = (uint32_t)args->sticky_size;
    fresh.drop_cold = (float)args->drop_cold;
    fresh.graft_path = args->graft;
    fresh.graft_layer = args->graft_layer;
    fresh.trace = args->trace;
    *options = fresh;
}

const char *cli_kv_name(uint32_t kv)
{
    return kv == SLUICE_KV_F32   ? "f32"
           : kv == SLUICE_KV_F16 ? "f16"
           : kv == SLUICE_KV_Q8  ? "q8"
                                 : "";
}

int cli_model_missing(const char *verb)
{
    cli_error("no model given; write: sluice %s -m MODEL", verb);
    return CLI_EXIT_USAGE;
}

/* Without --ram the system decides what happens where memory ends: it may kill this or another
 * program. */
static void warn_of_little_memory(const sluice_plan *plan)
{
    char total[CLI_SIZE_TEXT], now[CLI_SIZE_TEXT];
    if (plan->total_bytes <= plan->available_bytes) return;
    cli_note("warning: %s may be needed and %s are available now; --ram auto or --ram SIZE bounds "
             "it",
             cli_size_text(total, plan->total_bytes), cli_size_text(now, plan->available_bytes));
}

static void print_ready(const sluice_model_info *info)
{
    cli_note("%s '%s' ready: template %s, keys and values %s, context %u, %u thread%s, %s%s%s",
             info->arch, info->name, info->chat_template[0] ? info->chat_template : "none",
             cli_kv_name(info->kv), (unsigned)info->n_ctx, (unsigned)info->threads,
             info->threads == 1 ? "" : "s", info->isa, info->io[0] ? ", " : "", info->io);
    if (info->n_ctx_train && info->n_ctx > info->n_ctx_train)
        cli_note("the context of %u exceeds the %u tokens that the model was trained for; expect "
                 "worse text past them",
                 (unsigned)info->n_ctx, (unsigned)info->n_ctx_train);
}

/* The plan of the whole process, for a model whose part of --ram is smaller. */
static void add_aside(const struct cli_args *args, sluice_plan *plan)
{
    if (args->ram_bytes == 0 || args->ram_bytes == SLUICE_RAM_AUTO) return;
    plan->ram_bytes = args->ram_bytes;
    plan->process_bytes += args->aside_bytes;
    plan->total_bytes += args->aside_bytes;
    plan->minimum_bytes += args->aside_bytes;
    plan->hits_bytes += args->aside_bytes;
    plan->resident_bytes += args->aside_bytes;
}

/* An answer needs a token's experts of all layers again for the next one. A text that is read needs
 * each expert once a chunk, however many slots there are. */
static void warn_of_few_slots(const struct cli_args *args, const sluice_plan *plan)
{
    char ram[CLI_RAM_TEXT];
    if (!plan->streams || plan->n_slots >= plan->n_slots_hits || args->reads_only) return;
    cli_note("warning: %u expert slots hold less than one token uses in all layers, so that nearly "
             "every expert is read again; hits begin at %u slots, --ram %s",
             (unsigned)plan->n_slots, (unsigned)plan->n_slots_hits,
             cli_ram_text(ram, plan->hits_bytes));
}

/* What is written at the end would take the place of the trace, or the trace that of a hot list. */
static int check_trace_name(const struct cli_args *args)
{
    const char *outputs[] = {args->logits, args->greedy_out, args->save_logits, args->hot_list};
    for (size_t i = 0; args->trace && i < sizeof outputs / sizeof outputs[0]; i++) {
        if (!outputs[i] || strcmp(outputs[i], args->trace) != 0) continue;
        cli_error("--trace %s: another option names this file, too; each needs one of its own",
                  args->trace);
        return CLI_EXIT_USAGE;
    }
    return CLI_EXIT_OK;
}

int cli_model_open(const struct cli_args *args, sluice_model **model, sluice_plan *plan)
{
    sluice_options options;
    const sluice_plan fresh = SLUICE_PLAN_INIT;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    struct cli_progress progress;
    *model = NULL;
    *plan = fresh;
    if (check_trace_name(args)) return CLI_EXIT_USAGE;
    cli_model_options(args, &options);
    if (sluice_memory_plan(args->model, &options, plan, &error)) return cli_fail(&error);
    options.ram_bytes = plan->ram_bytes; /* auto: what is printed */
    add_aside(args, plan);
    if (cli_plan_check(args, plan)) return CLI_EXIT_FAILURE;
    if (!args->verbose) cli_plan_note(plan); /* the engine's log has it in full */
    if (plan->ram_bytes == 0) warn_of_little_memory(plan);
    warn_of_few_slots(args, plan);
    cli_progress_begin(&progress, "loading", NULL,
                       cli_progress_wanted(args->progress, args->quiet));
    options.progress = on_load;
    options.progress_user = &progress;
    sluice_err err = sluice_model_open(args->model, &options, model, &error);
    cli_progress_end(&progress);
    if (err) return cli_fail(&error);
    sluice_model_get_info(*model, &info);
    print_ready(&info);
    return CLI_EXIT_OK;
}

int cli_vocabulary_open(const struct cli_args *args, sluice_model **model)
{
    sluice_options options;
    sluice_error error;
    cli_model_options(args, &options);
    options.flags = SLUICE_OPEN_VOCAB;
    return sluice_model_open(args->model, &options, model, &error) ? cli_fail(&error) : 0;
}

void cli_json_model_name(struct cli_json *root, const struct cli_args *args,
                         const sluice_model_info *info)
{
    struct cli_json *model = cli_json_child(root, "model");
    cli_json_string(model, "path", args->model);
    cli_json_string(model, "arch", info->arch);
    cli_json_known_string(model, "name", info->name);
}

struct cli_json *cli_json_model(struct cli_json *root, const struct cli_args *args,
                                const sluice_model_info *info)
{
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    cli_json_model_name(root, args, info);
    struct cli_json *settings = cli_json_child(root, "settings");
    cli_json_string(settings, "kv", cli_kv_name(info->kv));
    cli_json_string(settings, "isa", info->isa);
    cli_json_integer(settings, "threads", info->threads);
    cli_json_integer(settings, "ctx_size", info->n_ctx);
    cli_json_integer(settings, "chunk", info->chunk);
    cli_json_integer(settings, "ram_bytes", info->ram_bytes);
    cli_json_streaming_settings(settings, args, info);
    return settings;
}
