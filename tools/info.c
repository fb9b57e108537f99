/* sluice info: what a model file is, what it holds, and what memory it would take.
 *
 * Reads headers only. A file whose tokenizer or architecture this build does not know is shown all
 * the same, and the table says what is not known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/plan_text.h"
#include "tools/report.h"
#include "tools/text.h"
#include "tools/verbs.h"

#define TYPES_MAX 64
#define KEY_BYTES 256
#define VALUE_BYTES 1024

struct type_sum {
    char type[12];
    uint64_t count, bytes;
};

struct facts {
    const struct cli_args *args;
    sluice_model *model;
    sluice_model_info info;
    sluice_plan plan;
    char tokenizer_error[SLUICE_ERROR_TEXT_MAX]; /* "": it is known */
    char plan_error[SLUICE_ERROR_TEXT_MAX];      /* "": the model can be run */
    int arch_known;
    uint64_t n_tensors, tensor_bytes;
    uint32_t n_nextn, n_nextn_tensors; /* layers for multi-token prediction */
    size_t n_types;
    struct type_sum types[TYPES_MAX];
};

static int open_file(struct facts *facts)
{
    sluice_options options;
    sluice_error error;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    cli_model_options(facts->args, &options);
    options.flags = SLUICE_OPEN_VOCAB;
    options.ram_bytes = 0; /* the plan is compared with it, reading the header is not */
    if (sluice_model_open(facts->args->model, &options, &facts->model, &error)) {
        memcpy(facts->tokenizer_error, error.text, sizeof error.text);
        options.flags = SLUICE_OPEN_HEADER;
        if (sluice_model_open(facts->args->model, &options, &facts->model, &error))
            return cli_fail(&error);
    }
    sluice_model_get_info(facts->model, &info);
    facts->info = info;
    return CLI_EXIT_OK;
}

static void count_type(struct facts *facts, const sluice_tensor *tensor)
{
    size_t i = 0;
    while (i < facts->n_types && strcmp(facts->types[i].type, tensor->type) != 0) i++;
    if (i == TYPES_MAX) i--; /* there are fewer types than that */
    if (i == facts->n_types) {
        facts->n_types++;
        memcpy(facts->types[i].type, tensor->type, sizeof tensor->type);
    }
    facts->types[i].count++;
    facts->types[i].bytes += tensor->bytes;
}

/* Counts that a file states about any architecture, where the library has not worked them out:
 * opening by header does not, and for an unsupported architecture it cannot. */
static void fill_from_meta(struct facts *facts)
{
    sluice_model_info *info = &facts->info;
    const struct {
        const char *key; /* after "<arch>." */
        uint32_t *field;
    } table[] = {
        {"block_count", &info->n_layers},          {"embedding_length", &info->n_embd},
        {"context_length", &info->n_ctx_train},    {"expert_count", &info->n_experts},
        {"expert_used_count", &info->top_k},       {"vocab_size", &info->n_vocab},
        {"nextn_predict_layers", &facts->n_nextn},
    };
    char key[KEY_BYTES], value[VALUE_BYTES];
    size_t prefix = strlen(info->arch);
    for (uint32_t i = 0;
         sluice_model_get_meta(facts->model, i, key, sizeof key, value, sizeof value); i++) {
        int64_t number;
        if (strncmp(key, info->arch, prefix) != 0 || key[prefix] != '.') continue;
        for (size_t t = 0; t < sizeof table / sizeof table[0]; t++)
            if (strcmp(key + prefix + 1, table[t].key) == 0 && *table[t].field == 0 &&
                cli_read_integer(value, &number) == 0 && number > 0 && number <= UINT32_MAX)
                *table[t].field = (uint32_t)number;
    }
}

/* Layers for multi-token prediction stand last; they are no layers of the model's own. */
static int is_predicting(const struct facts *facts, const char *tensor)
{
    long layer = strncmp(tensor, "blk.", 4) == 0 ? strtol(tensor + 4, NULL, 10) : -1;
    return facts->n_nextn && layer >= (long)facts->info.n_layers;
}

static void gather(struct facts *facts)
{
    sluice_options options;
    sluice_error error;
    sluice_tensor tensor = SLUICE_TENSOR_INIT;
    sluice_plan plan = SLUICE_PLAN_INIT;
    const char *known;
    uint32_t expert_layers = 0;              /* each has one tensor of down projections */
    int counted = facts->info.n_layers != 0; /* by the library, without those */
    fill_from_meta(facts);
    if (!counted && facts->n_nextn < facts->info.n_layers) facts->info.n_layers -= facts->n_nextn;
    for (uint32_t i = 0; sluice_model_get_tensor(facts->model, i, &tensor); i++) {
        facts->n_tensors++;
        int predicting = is_predicting(facts, tensor.name);
        facts->n_nextn_tensors += (uint32_t)predicting;
        expert_layers += !predicting && strstr(tensor.name, ".ffn_down_exps.weight") != NULL;
        facts->tensor_bytes += tensor.bytes;
        count_type(facts, &tensor);
    }
    if (facts->info.n_moe_layers == 0) facts->info.n_moe_layers = expert_layers;
    for (uint32_t i = 0; (known = sluice_arch_name(i)); i++)
        facts->arch_known |= strcmp(known, facts->info.arch) == 0;
    facts->plan = plan;
    cli_model_options(facts->args, &options);
    if (sluice_memory_plan(facts->args->model, &options, &facts->plan, &error))
        memcpy(facts->plan_error, error.text, sizeof error.text);
}

static void row(const char *name, const char *value)
{
    (void)cli_printf("%-18s ", name);
    (void)cli_put_clean(value);
    (void)cli_put("\n", 1);
}

static void row_number(const char *name, uint64_t value, const char *unit)
{
    (void)cli_printf("%-18s %llu%s%s\n", name, (unsigned long long)value, *unit ? " " : "", unit);
}

static void row_size(const char *name, uint64_t bytes)
{
    char text[CLI_SIZE_TEXT];
    (void)cli_printf("%-18s %s (%llu bytes)\n", name, cli_size_text(text, bytes),
                     (unsigned long long)bytes);
}

static void print_model(const struct facts *facts)
{
    const sluice_model_info *info = &facts->info;
    char arch[128];
    (void)snprintf(arch, sizeof arch, "%s%s", info->arch,
                   facts->arch_known ? "" : " (not supported by this build; see --list-archs)");
    row("file", facts->args->model);
    row("format", info->format);
    row("architecture", arch);
    row("name", info->name);
    row_number("files", info->n_files, "");
    row_size("file size", info->file_bytes);
    row_number("parameters", info->n_params, "");
    row_number("layers", info->n_layers, "");
    row_number("  with experts", info->n_moe_layers, "");
    if (facts->n_nextn)
        (void)cli_printf("%-18s %u, for multi-token prediction, %u tensors\n", "  not run",
                         (unsigned)facts->n_nextn, (unsigned)facts->n_nextn_tensors);
    row_number("experts", info->n_experts, info->n_experts ? "a layer" : "(dense)");
    row_number("experts per token", info->top_k, "");
    row_number("width", info->n_embd, "");
    row_number("vocabulary", info->n_vocab, "tokens");
    row_number("trained context", info->n_ctx_train, "tokens");
    row("tokenizer", facts->tokenizer_error[0] ? facts->tokenizer_error : info->tokenizer);
    row("chat template", info->chat_template[0] ? info->chat_template : "none recognized");
}

/* How a container was packed: a line a row, or how many there are, since a plan of types by
 * measured error has one for each tensor. */
static void print_recipe(const char *recipe, int all)
{
    const char *label = "packed";
    char line[256];
    unsigned n_lines = 0;
    for (const char *p = recipe; *p; p++) n_lines += *p == '\n';
    if (n_lines && !all) {
        (void)snprintf(line, sizeof line, "by a recipe of %u line%s, which --verbose shows",
                       n_lines, n_lines == 1 ? "" : "s");
        row(label, line);
        return;
    }
    while (*recipe) {
        size_t n = strcspn(recipe, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line), recipe);
        row(label, line);
        label = "";
        recipe += n + (recipe[n] == '\n');
    }
}

static void print_types(const struct facts *facts)
{
    char size[CLI_SIZE_TEXT];
    row_number("tensors", facts->n_tensors, facts->n_tensors ? "" : "(a vocabulary alone)");
    for (size_t i = 0; i < facts->n_types; i++)
        (void)cli_printf("  %-16s %llu tensor%s, %s\n", facts->types[i].type,
                         (unsigned long long)facts->types[i].count,
                         facts->types[i].count == 1 ? "" : "s",
                         cli_size_text(size, facts->types[i].bytes));
}

static void print_slots(const sluice_plan *plan)
{
    char slot[CLI_SLOT_TEXT];
    if (plan->n_experts == 0) return;
    (void)cli_printf("%-18s %u of %u%s, %s\n", "    in memory", (unsigned)plan->n_slots,
                     (unsigned)plan->n_experts,
                     plan->n_slots < plan->n_experts ? "; the others are read" : "",
                     cli_slot_text(slot, plan));
    if (plan->n_slots_full < plan->n_slots)
        row_number("    whole context", plan->n_slots_full, "in memory");
}

/* Other sizes of --ram that mean something. */
static void print_budgets(const sluice_plan *plan)
{
    char ram[CLI_RAM_TEXT];
    if (plan->n_experts) {
        (void)cli_printf("%-18s %s (%llu bytes)\n", "  all in memory",
                         cli_ram_text(ram, plan->resident_bytes),
                         (unsigned long long)plan->resident_bytes);
        (void)cli_printf("%-18s %s (%u experts, which is one token's)\n", "  hits begin",
                         cli_ram_text(ram, plan->hits_bytes), (unsigned)plan->n_slots_hits);
    }
    (void)cli_printf("%-18s %s (%llu bytes, for a context of %u)\n", "  smallest --ram",
                     cli_ram_text(ram, plan->minimum_bytes),
                     (unsigned long long)plan->minimum_bytes, (unsigned)plan->n_ctx_min);
}

static void print_plan(const struct facts *facts)
{
    const sluice_plan *plan = &facts->plan;
    if (facts->plan_error[0]) {
        row("memory plan", !facts->arch_known      ? "none, since it cannot be run"
                           : facts->n_tensors == 0 ? "none, since there are no weights"
                                                   : facts->plan_error);
        return;
    }
    (void)cli_printf("memory plan        for a context of %u tokens\n", (unsigned)plan->n_ctx);
    if (plan->ram_bytes) row_size("  --ram", plan->ram_bytes);
    row_size("  dense weights", plan->dense_bytes);
    row_size("  experts", plan->expert_bytes);
    print_slots(plan);
    row_size("  tokenizer", plan->tokenizer_bytes);
    row_size("  keys and values", plan->kv_start_bytes);
    if (plan->kv_start_bytes < plan->kv_bytes) row_size("    whole context", plan->kv_bytes);
    row_size("    for a token", plan->kv_token_bytes);
    if (plan->state_bytes) row_size("  recurrent state", plan->state_bytes);
    row_size("  scratch", plan->scratch_bytes);
    row_size("  reading", plan->io_bytes);
    row_size("  process", plan->process_bytes);
    row_size("  together", plan->total_bytes);
    print_budgets(plan);
    if (plan->ram_bytes && plan->ram_bytes < plan->minimum_bytes)
        row("", "does not fit into the given --ram");
    else if (facts->args->slots && plan->n_slots < plan->n_slots_min)
        row("", "--slots is fewer than one layer needs");
}

static void print_meta(const struct facts *facts)
{
    char key[KEY_BYTES], value[VALUE_BYTES];
    (void)cli_printf("\nmetadata\n");
    for (uint32_t i = 0;
         sluice_model_get_meta(facts->model, i, key, sizeof key, value, sizeof value); i++) {
        (void)cli_put("  ", 2);
        (void)cli_put_clean(key);
        (void)cli_put(" = ", 3);
        (void)cli_put_clean(value);
        (void)cli_put("\n", 1);
    }
}

static void print_tensors(const struct facts *facts)
{
    sluice_tensor tensor = SLUICE_TENSOR_INIT;
    (void)cli_printf("\ntensors (name, type, dimensions, bytes, file, offset)\n");
    for (uint32_t i = 0; sluice_model_get_tensor(facts->model, i, &tensor); i++) {
        (void)cli_put("  ", 2);
        (void)cli_put_clean(tensor.name);
        (void)cli_printf(" %s ", tensor.type);
        for (uint32_t d = 0; d < tensor.n_dims && d < 4; d++)
            (void)cli_printf("%s%llu", d ? "x" : "", (unsigned long long)tensor.dims[d]);
        (void)cli_printf(" %llu %u %llu\n", (unsigned long long)tensor.bytes, (unsigned)tensor.file,
                         (unsigned long long)tensor.offset);
    }
}

static void put_lists(struct cli_json *root, const struct facts *facts)
{
    sluice_tensor tensor = SLUICE_TENSOR_INIT;
    char key[KEY_BYTES], value[VALUE_BYTES];
    if (facts->args->list_meta) {
        struct cli_json *all = cli_json_child_array(root, "metadata");
        for (uint32_t i = 0;
             sluice_model_get_meta(facts->model, i, key, sizeof key, value, sizeof value); i++) {
            struct cli_json *one = cli_json_child(all, NULL);
            cli_json_string(one, "key", key);
            cli_json_string(one, "value", value);
        }
    }
    if (!facts->args->list_tensors) return;
    struct cli_json *all = cli_json_child_array(root, "tensors");
    for (uint32_t i = 0; sluice_model_get_tensor(facts->model, i, &tensor); i++) {
        struct cli_json *one = cli_json_child(all, NULL), *dims;
        cli_json_string(one, "name", tensor.name);
        cli_json_string(one, "type", tensor.type);
        dims = cli_json_child_array(one, "dims");
        for (uint32_t d = 0; d < tensor.n_dims && d < 4; d++)
            cli_json_integer(dims, NULL, tensor.dims[d]);
        cli_json_integer(one, "bytes", tensor.bytes);
        cli_json_integer(one, "file", tensor.file);
        cli_json_integer(one, "offset", tensor.offset);
    }
}

static void put_plan(struct cli_json *root, const struct facts *facts)
{
    if (facts->plan_error[0]) {
        cli_json_null(root, "memory_plan");
        cli_json_string(root, "memory_plan_error", facts->plan_error);
        return;
    }
    cli_json_plan(root, &facts->plan);
}

static void put_json(const struct facts *facts)
{
    const sluice_model_info *info = &facts->info;
    struct cli_json *root = cli_json_object(), *types;
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    cli_json_model_name(root, facts->args, info);
    cli_json_bool(root, "arch_supported", facts->arch_known);
    cli_json_string(root, "format", info->format);
    cli_json_known_string(root, "recipe", info->recipe);
    cli_json_integer(root, "files", info->n_files);
    cli_json_integer(root, "file_bytes", info->file_bytes);
    cli_json_integer(root, "parameters", info->n_params);
    cli_json_known(root, "layers", info->n_layers);
    cli_json_integer(root, "nextn_layers", facts->n_nextn);
    cli_json_integer(root, "moe_layers", info->n_moe_layers);
    cli_json_integer(root, "experts", info->n_experts);
    cli_json_integer(root, "experts_per_token", info->top_k);
    cli_json_known(root, "width", info->n_embd);
    cli_json_known(root, "vocab_size", info->n_vocab);
    cli_json_known(root, "trained_ctx_size", info->n_ctx_train);
    cli_json_known_string(root, "tokenizer", facts->tokenizer_error[0] ? "" : info->tokenizer);
    if (facts->tokenizer_error[0]) cli_json_string(root, "tokenizer_error", facts->tokenizer_error);
    cli_json_known_string(root, "chat_template", info->chat_template);
    types = cli_json_child_array(root, "tensor_types");
    for (size_t i = 0; i < facts->n_types; i++) {
        struct cli_json *one = cli_json_child(types, NULL);
        cli_json_string(one, "type", facts->types[i].type);
        cli_json_integer(one, "count", facts->types[i].count);
        cli_json_integer(one, "bytes", facts->types[i].bytes);
    }
    put_plan(root, facts);
    put_lists(root, facts);
    (void)cli_json_finish(root, 1);
}

int cli_info(const struct cli_args *args)
{
    if (!args->model) return cli_model_missing("info");
    struct facts *facts = cli_alloc(1, sizeof *facts);
    facts->args = args;
    int code = open_file(facts);
    if (code == 0) {
        gather(facts);
        if (args->json) {
            put_json(facts);
        } else {
            print_model(facts);
            print_types(facts);
            print_recipe(facts->info.recipe, args->verbose);
            print_plan(facts);
            if (args->list_meta) print_meta(facts);
            if (args->list_tensors) print_tensors(facts);
        }
    }
    sluice_model_close(facts->model);
    cli_free(facts);
    return code;
}
