/* Opening a model; see open_model.h. */
#include "tools/open_model.h"

#include <string.h>

#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/report.h"

static void on_log(void *user, int level, const char *line)
{
    (void)user;
    if (level == SLUICE_LOG_ERROR)
        cli_error("%s", line);
    else
        cli_note("%s%s", level == SLUICE_LOG_WARN ? "warning: " : "", line);
}

static int on_load(void *user, uint64_t done, uint64_t total)
{
    cli_progress_step(user, done, total);
    return cli_interrupted();
}

void cli_model_options(const struct cli_args *args, sluice_options *options)
{
    sluice_options fresh = SLUICE_OPTIONS_INIT;
    fresh.ram_bytes = args->ram_bytes;
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
    cli_error("no model given; write: sluice %s -m FILE.gguf", verb);
    return CLI_EXIT_USAGE;
}

static void print_plan(const sluice_plan *plan, uint64_t ram_bytes)
{
    char total[CLI_SIZE_TEXT], ram[CLI_SIZE_TEXT], experts[CLI_SIZE_TEXT], dense[CLI_SIZE_TEXT];
    char kv[CLI_SIZE_TEXT], other[CLI_SIZE_TEXT], tokens[CLI_TOKENS_TEXT];
    uint64_t other_bytes = plan->tokenizer_bytes + plan->scratch_bytes + plan->process_bytes;
    cli_note("memory plan: %s%s%s: experts %s, other weights %s, keys and values %s (%s), "
             "everything else %s",
             cli_size_text(total, plan->total_bytes), ram_bytes ? " of --ram " : "",
             ram_bytes ? cli_size_text(ram, ram_bytes) : "",
             cli_size_text(experts, plan->expert_bytes), cli_size_text(dense, plan->dense_bytes),
             cli_size_text(kv, plan->kv_bytes), cli_tokens_text(tokens, plan->n_ctx),
             cli_size_text(other, other_bytes));
}

uint32_t cli_minimum_context(const sluice_plan *plan)
{
    uint64_t rest = plan->total_bytes - plan->kv_bytes;
    if (plan->kv_token_bytes == 0 || plan->minimum_bytes < rest) return plan->n_ctx;
    uint64_t tokens = (plan->minimum_bytes - rest) / plan->kv_token_bytes;
    return tokens < plan->n_ctx ? (uint32_t)tokens : plan->n_ctx;
}

int cli_ram_too_small(const struct cli_args *args, const sluice_plan *plan)
{
    char ram[CLI_SIZE_TEXT], minimum[CLI_RAM_TEXT], tokens[CLI_TOKENS_TEXT];
    cli_error("%s does not fit into %s; the smallest budget that works is --ram %s, for a context "
              "of %s",
              args->model, cli_size_text(ram, args->ram_bytes),
              cli_ram_text(minimum, plan->minimum_bytes),
              cli_tokens_text(tokens, cli_minimum_context(plan)));
    return CLI_EXIT_FAILURE;
}

/* Without --ram the system decides what happens where memory ends: it may kill this or another
 * program. */
static void warn_of_little_memory(const sluice_plan *plan)
{
    char total[CLI_SIZE_TEXT], now[CLI_SIZE_TEXT];
    uint64_t available = cli_available_bytes();
    if (plan->total_bytes <= available) return;
    cli_note("warning: %s may be needed and %s are available now; --ram SIZE or a smaller -c "
             "bounds it",
             cli_size_text(total, plan->total_bytes), cli_size_text(now, available));
}

static void print_ready(const sluice_model_info *info)
{
    cli_note("%s '%s' ready: template %s, keys and values %s, context %u, %u thread%s, %s",
             info->arch, info->name, info->chat_template[0] ? info->chat_template : "none",
             cli_kv_name(info->kv), (unsigned)info->n_ctx, (unsigned)info->threads,
             info->threads == 1 ? "" : "s", info->isa);
    if (info->n_ctx_train && info->n_ctx > info->n_ctx_train)
        cli_note("the context of %u exceeds the %u tokens that the model was trained for; expect "
                 "worse text past them",
                 (unsigned)info->n_ctx, (unsigned)info->n_ctx_train);
}

int cli_model_open(const struct cli_args *args, sluice_model **model)
{
    sluice_options options;
    sluice_plan plan = SLUICE_PLAN_INIT;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    struct cli_progress progress;
    *model = NULL;
    cli_model_options(args, &options);
    if (sluice_memory_plan(args->model, &options, &plan, &error)) return cli_fail(&error);
    if (args->ram_bytes && args->ram_bytes < plan.minimum_bytes)
        return cli_ram_too_small(args, &plan);
    if (!args->verbose) print_plan(&plan, args->ram_bytes); /* the engine's log has it in full */
    if (!args->ram_bytes) warn_of_little_memory(&plan);
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
    cli_json_integer(settings, "chunk", (uint64_t)args->chunk);
    cli_json_integer(settings, "ram_bytes", args->ram_bytes);
    return settings;
}
