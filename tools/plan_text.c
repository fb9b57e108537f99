/* The memory plan in words and as JSON; see plan_text.h. */
#include "tools/plan_text.h"

#include <stdio.h>

#include "tools/report.h"

const char *cli_slot_text(char *text, const sluice_plan *plan)
{
    char size[CLI_SIZE_TEXT];
    (void)snprintf(text, CLI_SLOT_TEXT, "%s%s each",
                   plan->slot_least_bytes < plan->slot_bytes ? "up to " : "",
                   cli_size_text(size, plan->slot_bytes));
    return text;
}

/* Nothing where all fit, though --slots or a context that grows may have asked for streaming. */
static void note_slots(const sluice_plan *plan)
{
    char slot[CLI_SLOT_TEXT], later[96] = "";
    if (!plan->streams || plan->n_slots_full == plan->n_experts) return;
    if (plan->n_slots_full < plan->n_slots)
        (void)snprintf(later, sizeof later, " (%u once the context is full)",
                       (unsigned)plan->n_slots_full);
    cli_note("experts are read as they are needed: %u of %u stay in memory%s, %s",
             (unsigned)plan->n_slots, (unsigned)plan->n_experts, later, cli_slot_text(slot, plan));
}

void cli_plan_note(const sluice_plan *plan)
{
    char total[CLI_SIZE_TEXT], ram[CLI_SIZE_TEXT], experts[CLI_SIZE_TEXT], dense[CLI_SIZE_TEXT];
    char kv[CLI_SIZE_TEXT], whole[CLI_SIZE_TEXT], other[CLI_SIZE_TEXT], tokens[CLI_TOKENS_TEXT];
    char recurrent[CLI_SIZE_TEXT];
    char later[64] = "", state[64] = "";
    uint64_t other_bytes =
        plan->tokenizer_bytes + plan->scratch_bytes + plan->io_bytes + plan->process_bytes;
    if (plan->kv_start_bytes < plan->kv_bytes)
        (void)snprintf(later, sizeof later, " at first, %s for all",
                       cli_size_text(whole, plan->kv_bytes));
    if (plan->state_bytes)
        (void)snprintf(state, sizeof state, "recurrent state %s, ",
                       cli_size_text(recurrent, plan->state_bytes));
    cli_note("memory plan: %s%s%s: experts %s, other weights %s, keys and values %s%s (%s), "
             "%severything else %s",
             cli_size_text(total, plan->total_bytes), plan->ram_bytes ? " of --ram " : "",
             plan->ram_bytes ? cli_size_text(ram, plan->ram_bytes) : "",
             cli_size_text(experts, plan->expert_bytes), cli_size_text(dense, plan->dense_bytes),
             cli_size_text(kv, plan->kv_start_bytes), later, cli_tokens_text(tokens, plan->n_ctx),
             state, cli_size_text(other, other_bytes));
    note_slots(plan);
}

int cli_plan_check(const struct cli_args *args, const sluice_plan *plan)
{
    char ram[CLI_SIZE_TEXT], minimum[CLI_RAM_TEXT], tokens[CLI_TOKENS_TEXT];
    if (args->slots && (uint64_t)args->slots < plan->n_slots_min) {
        cli_error("%s: --slots %lld is fewer than one layer needs at once; the smallest number "
                  "that works is --slots %u",
                  args->model, (long long)args->slots, (unsigned)plan->n_slots_min);
        return CLI_EXIT_FAILURE;
    }
    if (plan->ram_bytes == 0 || plan->ram_bytes >= plan->minimum_bytes) return CLI_EXIT_OK;
    cli_error("%s does not fit into %s; the smallest budget that works is --ram %s, for a context "
              "of %s",
              args->model, cli_size_text(ram, plan->ram_bytes),
              cli_ram_text(minimum, plan->minimum_bytes), cli_tokens_text(tokens, plan->n_ctx_min));
    return CLI_EXIT_FAILURE;
}

void cli_json_plan(struct cli_json *root, const sluice_plan *plan)
{
    struct cli_json *json = cli_json_child(root, "memory_plan");
    cli_json_integer(json, "ctx_size", plan->n_ctx);
    cli_json_integer(json, "chunk", plan->chunk);
    cli_json_integer(json, "ram_bytes", plan->ram_bytes);
    cli_json_bool(json, "streams", plan->streams != 0);
    cli_json_integer(json, "slots", plan->n_slots);
    cli_json_integer(json, "full_context_slots", plan->n_slots_full);
    cli_json_integer(json, "minimum_slots", plan->n_slots_min);
    cli_json_integer(json, "hits_slots", plan->n_slots_hits);
    cli_json_integer(json, "all_experts", plan->n_experts);
    cli_json_integer(json, "slot_bytes", plan->slot_bytes);
    cli_json_integer(json, "slot_least_bytes", plan->slot_least_bytes);
    cli_json_integer(json, "dense_bytes", plan->dense_bytes);
    cli_json_integer(json, "expert_bytes", plan->expert_bytes);
    cli_json_integer(json, "tokenizer_bytes", plan->tokenizer_bytes);
    cli_json_integer(json, "kv_bytes", plan->kv_bytes);
    cli_json_integer(json, "kv_start_bytes", plan->kv_start_bytes);
    cli_json_integer(json, "kv_token_bytes", plan->kv_token_bytes);
    cli_json_integer(json, "state_bytes", plan->state_bytes);
    cli_json_integer(json, "scratch_bytes", plan->scratch_bytes);
    cli_json_integer(json, "io_bytes", plan->io_bytes);
    cli_json_integer(json, "process_bytes", plan->process_bytes);
    cli_json_integer(json, "total_bytes", plan->total_bytes);
    cli_json_integer(json, "minimum_bytes", plan->minimum_bytes);
    cli_json_integer(json, "hits_bytes", plan->hits_bytes);
    cli_json_integer(json, "resident_bytes", plan->resident_bytes);
    cli_json_integer(json, "model_expert_bytes", plan->model_expert_bytes);
    cli_json_known(json, "available_bytes",
                   plan->available_bytes == UINT64_MAX ? 0 : plan->available_bytes);
}
