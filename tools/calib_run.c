/* Reading a text for its statistics; see calib.h. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "tools/calib.h"
#include "tools/interrupt.h"
#include "tools/open_model.h"
#include "tools/report.h"

#define TOKEN_BYTES 8      /* what each token of the text takes */
#define TENSOR_BYTES 1024  /* what a tensor's figures take beside the sums and counts: its name */
#define FIXED_BYTES 131072 /* whatever the model: lists, and the file while it is written */

/* ---- memory ------------------------------------------------------------------------------- */

/* What the figures of a model take. */
struct needs {
    uint64_t columns, matrices, tensors;
    uint64_t layer[SL_LAYERS_MAX]; /* columns of each layer */
};

/* Tensors whose inputs are those of another one. */
static int is_shown_elsewhere(const char *name)
{
    unsigned layer, expert;
    char part[8];
    if (strstr(name, ".attn_k.") || strstr(name, ".attn_v.") || strstr(name, ".ffn_up_exps."))
        return 1;
    return sscanf(name, "blk.%9u.ffn_%7[a-z].%9u", &layer, part, &expert) == 3 &&
           strcmp(part, "up") == 0;
}

static void add_need(struct needs *needs, const sluice_tensor *t)
{
    unsigned layer = 0, expert;
    char part[8];
    size_t n = strlen(t->name);
    if (t->n_dims < 2 || n < 7 || strcmp(t->name + n - 7, ".weight") != 0) return;
    if (is_shown_elsewhere(t->name)) return;
    uint64_t matrices = strstr(t->name, "_exps.") ? t->dims[2] : 1;
    uint64_t columns = t->dims[0] * matrices;
    needs->columns += columns;
    needs->matrices += matrices;
    if (sscanf(t->name, "blk.%9u.", &layer) == 1 && layer < SL_LAYERS_MAX)
        needs->layer[layer] += columns;
    /* experts that are a tensor each have one name together */
    if (sscanf(t->name, "blk.%9u.ffn_%7[a-z].%9u", &layer, part, &expert) != 3) needs->tensors++;
}

/* At most: double sums, and while they become means those of the largest tensor beside them. */
static int stats_bytes(const struct cli_args *args, uint64_t *bytes)
{
    sluice_options options;
    sluice_tensor tensor = SLUICE_TENSOR_INIT;
    sluice_error error;
    sluice_model *header;
    struct needs needs = {0};
    uint64_t most = 0;
    cli_model_options(args, &options);
    options.flags = SLUICE_OPEN_HEADER;
    options.ram_bytes = 0;
    options.hot_list = NULL;
    if (sluice_model_open(args->model, &options, &header, &error)) return cli_fail(&error);
    for (uint32_t i = 0; sluice_model_get_tensor(header, i, &tensor); i++)
        add_need(&needs, &tensor);
    sluice_model_close(header);
    for (uint32_t i = 0; i < SL_LAYERS_MAX; i++)
        if (needs.layer[i] > most) most = needs.layer[i];
    *bytes = needs.columns * sizeof(double) + most * sizeof(float) +
             needs.matrices * sizeof(uint64_t) + needs.tensors * TENSOR_BYTES + FIXED_BYTES;
    return CLI_EXIT_OK;
}

/* Takes figures and tokens off --ram, so that it bounds the whole process. Where it is auto, its
 * reserve has to do. */
static int set_aside(struct cli_calib *calib)
{
    struct cli_args *args = &calib->args;
    char size[CLI_SIZE_TEXT];
    if (args->ram_bytes == 0 || args->ram_bytes == SLUICE_RAM_AUTO) return CLI_EXIT_OK;
    int code = stats_bytes(args, &args->aside_bytes);
    if (code) return code;
    args->aside_bytes += calib->text.head.ids.count * TOKEN_BYTES;
    cli_note("%s of --ram are for statistics", cli_size_text(size, args->aside_bytes));
    return CLI_EXIT_OK;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* "12 %, window 3 of 25, 80 s left", as far as the layer at hand. */
static void show_progress(struct cli_calib *calib, const char *tensor)
{
    unsigned layer = 0;
    char line[128];
    if (!cli_progress_due(&calib->progress)) return;
    if (sscanf(tensor, "blk.%9u.", &layer) != 1) layer = calib->info.n_layers;
    double done = calib->window + (double)layer / (calib->info.n_layers + 1.0);
    double part = done / calib->windows;
    double seconds = (double)(cli_now_ns() - calib->progress.begin_ns) / 1e9;
    int n = snprintf(line, sizeof line, "%.0f %%, window %u of %u", 100 * part,
                     (unsigned)calib->window + 1, (unsigned)calib->windows);
    if (part > 0)
        (void)snprintf(line + n, sizeof line - (size_t)n, ", %.0f s left",
                       seconds * (1 - part) / part);
    cli_progress_say(&calib->progress, line);
}

static void on_input(void *user, const sluice_input *input)
{
    struct cli_calib *calib = user;
    const struct sl_column_input in = {
        .name = input->tensor,
        .same_as = input->same_as,
        .matrix = input->matrix,
        .n_matrices = input->n_matrices,
        .x = input->x,
        .n = input->n,
        .cols = input->cols,
    };
    if (calib->error.code) return;
    if (sl_column_stats_add(calib->stats, &in, &calib->error))
        sluice_session_cancel(calib->session, 1);
    show_progress(calib, input->tensor);
}

static int read_window(struct cli_calib *calib, int32_t *ids)
{
    const struct cli_reference_head *head = &calib->text.head;
    struct cli_window w = cli_method_window(&head->method, head->ids.count, calib->window);
    size_t n = 0;
    sluice_error error;
    if (head->method.bos) ids[n++] = calib->text.bos;
    memcpy(ids + n, head->ids.ids + w.begin, (w.end - w.begin) * sizeof *ids);
    n += w.end - w.begin;
    sluice_session_truncate(calib->session, 0);
    sluice_err err = sluice_session_eval(calib->session, ids, n, NULL, &error);
    if (calib->error.code) return cli_fail(&calib->error);
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}

static int read_text(struct cli_calib *calib)
{
    int code = CLI_EXIT_OK;
    int32_t *ids = cli_alloc(calib->text.head.method.window, sizeof *ids);
    uint64_t begin_ns = cli_now_ns();
    cli_progress_begin(&calib->progress, "reading", "windows",
                       cli_progress_wanted(calib->args.progress, calib->args.quiet));
    sluice_session_observe(calib->session, on_input, calib);
    for (calib->window = 0; calib->window < calib->windows && code == 0; calib->window++)
        code = read_window(calib, ids);
    sluice_session_observe(calib->session, NULL, NULL);
    cli_progress_end(&calib->progress);
    calib->ns = cli_now_ns() - begin_ns;
    cli_free(ids);
    if (code == 0 && sl_column_stats_finish(calib->stats, &calib->error))
        code = cli_fail(&calib->error);
    return code;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* The windows are those of llama.cpp's method, which ppl has too. */
static int open_text(struct cli_calib *calib)
{
    struct cli_args args = calib->args;
    args.llama_cpp = 1;
    args.bos = 1;
    args.stride = 0;
    args.kl = args.save_logits = args.loops = NULL;
    int code = cli_ppl_text_read(&calib->text, &args, NULL);
    if (code) return code;
    const struct cli_reference_head *head = &calib->text.head;
    size_t windows = cli_method_windows(&head->method, head->ids.count);
    if (args.chunks > 0 && (size_t)args.chunks < windows) windows = (size_t)args.chunks;
    calib->windows = (uint32_t)windows;
    calib->args.ctx_size = head->method.window;
    return CLI_EXIT_OK;
}

int cli_calib_run(struct cli_calib *calib, const struct cli_args *args, struct sl_budget *b)
{
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    calib->args = *args;
    calib->args.reads_only = 1;
    int code = open_text(calib);
    if (code == 0) code = set_aside(calib);
    if (code == 0) code = cli_model_open(&calib->args, &calib->model, &calib->plan);
    if (code) return code;
    sluice_model_get_info(calib->model, &info);
    calib->info = info;
    if (args->ram_bytes != SLUICE_RAM_AUTO) calib->info.ram_bytes = args->ram_bytes;
    if (sluice_session_open(calib->model, &calib->session, &error)) return cli_fail(&error);
    if (sl_column_stats_new(b, &error, &calib->stats)) return cli_fail(&error);
    cli_interrupt_watch(calib->session);
    code = cli_interrupted() ? CLI_EXIT_INTERRUPTED : read_text(calib);
    cli_interrupt_watch(NULL);
    return code;
}

void cli_calib_close(struct cli_calib *calib)
{
    sl_column_stats_close(calib->stats);
    sluice_session_close(calib->session);
    sluice_model_close(calib->model);
    cli_ppl_text_free(&calib->text);
    calib->stats = NULL;
    calib->session = NULL;
    calib->model = NULL;
}

int cli_calib_collect(const struct cli_args *args, const char *text, struct sl_budget *b,
                      struct sl_column_stats **stats)
{
    struct cli_calib calib = {.windows = 0};
    struct cli_args own = *args;
    own.file = text;
    own.tokens = NULL;
    int code = cli_calib_run(&calib, &own, b);
    *stats = NULL;
    if (code == 0) {
        *stats = calib.stats;
        calib.stats = NULL;
    }
    cli_calib_close(&calib);
    return code;
}
