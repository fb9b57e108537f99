/* sluice ppl: how well a model predicts a text, and how far it is from a reference run.
 *
 * The text is cut into windows (ppl_method.h), each is evaluated from an empty context, and the
 * distribution before each scored token goes through the arithmetic of ppl_score.h, into a
 * reference run (--save-logits) or against one (--kl); it is then dropped, so memory does not grow
 * with the text. --loops looks at what the model says by itself instead. The method is part of
 * every result. */
#include "tools/ppl.h"

#include <math.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/plan_text.h"
#include "tools/ppl_loops.h"
#include "tools/ppl_reference.h"
#include "tools/ppl_text.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/streaming.h"
#include "tools/verbs.h"

#define LOGITS_BYTES ((size_t)64 << 20) /* most memory for logits, at least one row */
#define LOGITS_BYTES_BOUNDED                                                                       \
    ((size_t)16 << 20)   /* and with --ram, of which it is a 32nd at most                          \
                          */
#define TOKEN_BYTES 16   /* what each token of the text takes: its id, twice, and its divergence */
#define LOOP_PROMPT 1024 /* tokens of a prompt that the context leaves room for */

struct ppl {
    struct cli_args args; /* with the context that is needed */
    sluice_model *model;
    sluice_session *session;
    sluice_model_info info;
    sluice_plan plan;
    struct cli_ppl_text text; /* no tokens: only --loops */
    struct cli_text prompts;
    struct cli_reference_reader reference; /* of --kl */
    struct cli_reference_writer saved;     /* of --save-logits */
    struct cli_scores scores;
    struct cli_loops loops;
    struct cli_progress progress;
    float *logits; /* [piece][n_vocab] */
    size_t piece, logits_bytes;
    int32_t *sequence; /* [window] of the current window */
    uint64_t eval_ns;
};

static int has_text(const struct cli_args *args) { return args->file || args->tokens || args->kl; }

static int check_usage(const struct cli_args *args)
{
    int64_t window = args->window ? args->window : CLI_PPL_WINDOW;
    if (!args->model) return cli_model_missing("ppl");
    if (args->file && args->tokens) {
        cli_error("-f and --tokens both give the text; use one of them");
    } else if (!has_text(args) && !args->loops) {
        cli_error("no text given; write: sluice ppl -m MODEL -f TEXT");
    } else if (!has_text(args) && args->save_logits) {
        cli_error("--save-logits needs a text: give -f or --tokens");
    } else if (window < CLI_METHOD_WINDOW_MIN) {
        cli_error("-c: found %lld, wanted at least %d tokens, or 0 for %d", (long long)window,
                  CLI_METHOD_WINDOW_MIN, CLI_PPL_WINDOW);
    } else if (args->llama_cpp && args->stride) {
        cli_error("--llama-cpp has chunks that do not overlap, so --stride would do nothing; leave "
                  "one of them out");
    } else if (args->stride >= window && !(args->kl && !args->window)) {
        cli_error("--stride: found %lld, wanted less than the window of %lld tokens (-c)",
                  (long long)args->stride, (long long)window);
    } else {
        return CLI_EXIT_OK;
    }
    return CLI_EXIT_USAGE;
}

/* ---- scoring ------------------------------------------------------------------------------ */

static int evaluate(struct ppl *ppl, const int32_t *ids, size_t n, float *logits)
{
    sluice_error error;
    uint64_t begin_ns = cli_now_ns();
    sluice_err err = n ? sluice_session_eval(ppl->session, ids, n, logits, &error) : SLUICE_OK;
    ppl->eval_ns += cli_now_ns() - begin_ns;
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}

static int score(struct ppl *ppl, const float *logits, int32_t came)
{
    struct cli_prediction prediction = cli_predict(logits, ppl->info.n_vocab, came);
    cli_scores_add(&ppl->scores, &prediction);
    if (ppl->args.save_logits && cli_reference_put(&ppl->saved, &prediction)) return -1;
    if (!ppl->args.kl) return 0;
    if (cli_reference_next(&ppl->reference)) return -1;
    cli_scores_compare(&ppl->scores, &prediction, &ppl->reference.coded);
    return 0;
}

/* Scores one window. The distribution before a token comes with the token before it; that after
 * the last token is not asked for. */
static int score_window(struct ppl *ppl, const struct cli_window *w, size_t total)
{
    const struct cli_reference_head *head = &ppl->text.head;
    size_t n = 0, n_vocab = ppl->info.n_vocab;
    if (head->method.bos) ppl->sequence[n++] = ppl->text.bos;
    size_t first = n + (w->scored - w->begin);
    memcpy(ppl->sequence + n, head->ids.ids + w->begin, (w->end - w->begin) * sizeof(int32_t));
    n += w->end - w->begin;
    sluice_session_truncate(ppl->session, 0);
    int code = evaluate(ppl, ppl->sequence, first - 1, NULL);
    for (size_t at = first - 1; at + 1 < n && code == 0;) {
        size_t rows = n - 1 - at < ppl->piece ? n - 1 - at : ppl->piece;
        code = evaluate(ppl, ppl->sequence + at, rows, ppl->logits);
        for (size_t i = 0; i < rows && code == 0; i++)
            if (score(ppl, ppl->logits + i * n_vocab, ppl->sequence[at + i + 1]))
                code = CLI_EXIT_FAILURE;
        at += rows;
        cli_progress_step(&ppl->progress, ppl->scores.count, total);
    }
    return code;
}

static int score_text(struct ppl *ppl)
{
    const struct cli_reference_head *head = &ppl->text.head;
    size_t n = head->ids.count;
    if (n == 0) return CLI_EXIT_OK;
    size_t windows = cli_method_windows(&head->method, n),
           row_bytes = ppl->info.n_vocab * sizeof(float);
    size_t total = cli_method_scored(&head->method, n);
    int code = CLI_EXIT_OK;
    ppl->sequence = cli_alloc(head->method.window, sizeof(int32_t));
    ppl->piece = ppl->logits_bytes / row_bytes;
    if (ppl->info.chunk < ppl->piece) ppl->piece = ppl->info.chunk;
    ppl->logits = cli_alloc(ppl->piece, row_bytes);
    if (ppl->args.kl) ppl->scores.kl = cli_alloc(total, sizeof(double));
    cli_progress_begin(&ppl->progress, "scoring", "tokens",
                       cli_progress_wanted(ppl->args.progress, ppl->args.quiet));
    for (size_t i = 0; i < windows && code == 0; i++) {
        struct cli_window w = cli_method_window(&head->method, n, i);
        code = score_window(ppl, &w, total);
    }
    cli_progress_end(&ppl->progress);
    if (code == 0 && ppl->args.save_logits && cli_reference_commit(&ppl->saved))
        code = CLI_EXIT_FAILURE;
    return code;
}

/* ---- what comes out ----------------------------------------------------------------------- */

/* A figure by its name, in text and in JSON; NAN: unknown. */
struct figure {
    const char *name;
    double value;
};

static void put_figure(struct cli_json *root, const char *name, double value)
{
    if (!root && isnan(value))
        (void)cli_printf("%s unknown\n", name);
    else if (!root)
        (void)cli_printf("%s %.9g\n", name, value);
    else if (isnan(value))
        cli_json_null(root, name);
    else
        cli_json_number(root, name, value);
}

/* root: NULL for text. */
static void put_figures(const struct ppl *ppl, const struct cli_quality *q, struct cli_json *root)
{
    double bytes = (double)ppl->text.head.text_bytes;
    const struct figure figures[] = {
        {"perplexity", q->perplexity},
        {"perplexity_error", q->perplexity_error},
        {"mean_nll", q->mean_nll},
        {"bits_per_byte", bytes > 0 ? ppl->scores.nll / log(2) / bytes : NAN},
        {"scored_tokens", (double)ppl->scores.count},
        {"reference_perplexity", q->reference_perplexity},
        {"perplexity_ratio", q->ratio},
        {"perplexity_ratio_error", q->ratio_error},
        {"mean_kl", q->mean_kl},
        {"kl_error", q->kl_error},
        {"median_kl", q->median_kl},
        {"kl_99", q->kl_99},
        {"kl_99_9", q->kl_99_9},
        {"max_kl", q->max_kl},
        {"same_top", q->same_top},
    };
    size_t n = ppl->args.kl ? sizeof figures / sizeof figures[0] : 5;
    for (size_t i = 0; i < n; i++) put_figure(root, figures[i].name, figures[i].value);
}

static void print_text(const struct ppl *ppl, const struct cli_quality *q)
{
    const struct cli_reference_head *head = &ppl->text.head;
    char words[CLI_METHOD_TEXT];
    if (head->ids.count) {
        put_figures(ppl, q, NULL);
        (void)cli_printf("method %s; keys and values %s\n",
                         cli_method_text(&head->method, head->ids.count, words),
                         cli_kv_name(ppl->info.kv));
        if (ppl->args.kl) {
            (void)cli_printf("reference ");
            (void)cli_put_clean(ppl->reference.head.model);
            (void)cli_printf("; KL(reference || this) in nats a token\n");
        }
    }
    if (ppl->args.loops) cli_loops_print(&ppl->loops, &ppl->args);
}

static void put_method(struct cli_json *root, const struct cli_reference_head *head)
{
    const struct cli_method *method = &head->method;
    char words[CLI_METHOD_TEXT];
    struct cli_json *json = cli_json_child(root, "method");
    cli_json_integer(json, "window", method->window);
    cli_json_integer(json, "stride", method->stride);
    cli_json_bool(json, "llama_cpp", method->llama_cpp);
    cli_json_bool(json, "bos", method->bos);
    cli_json_integer(json, "windows", cli_method_windows(method, head->ids.count));
    cli_json_integer(json, "given_tokens", cli_method_given(method));
    cli_json_string(json, "words", cli_method_text(method, head->ids.count, words));
}

static void print_json(const struct ppl *ppl, const struct cli_quality *q,
                       const sluice_stats *stats)
{
    const struct cli_reference_head *head = &ppl->text.head;
    struct cli_json *root = cli_json_object();
    (void)cli_json_model(root, &ppl->args, &ppl->info);
    if (head->ids.count) {
        cli_json_integer(root, "text_tokens", head->ids.count);
        cli_json_known(root, "scored_bytes", head->text_bytes);
        put_figures(ppl, q, root);
        put_method(root, head);
        if (ppl->args.kl) {
            struct cli_json *reference = cli_json_child(root, "reference");
            cli_json_string(reference, "path", ppl->args.kl);
            cli_json_string(reference, "model", ppl->reference.head.model);
        }
        cli_json_number(root, "eval_ms", (double)ppl->eval_ns / 1e6);
    }
    if (ppl->args.loops) cli_loops_json(root, &ppl->loops, &ppl->args);
    cli_json_experts(root, stats);
    cli_json_plan(root, &ppl->plan);
    cli_json_integer(root, "budget_peak_bytes", stats->budget_peak_bytes);
    cli_json_known(root, "process_peak_bytes", stats->process_peak_bytes);
    (void)cli_json_finish(root, 0);
}

static void print_result(struct ppl *ppl)
{
    struct cli_quality quality = {0};
    sluice_stats stats = SLUICE_STATS_INIT;
    char tokens[CLI_TOKENS_TEXT], peak[CLI_PEAK_TEXT];
    sluice_session_get_stats(ppl->session, &stats);
    if (ppl->scores.count) quality = cli_scores_finish(&ppl->scores);
    if (ppl->args.json)
        print_json(ppl, &quality, &stats);
    else
        print_text(ppl, &quality);
    cli_note("load %.2f s; evaluated %s in %.2f s (%.1f tok/s); peak memory %s",
             (double)ppl->info.load_ns / 1e9, cli_tokens_text(tokens, stats.eval_tokens),
             (double)stats.eval_ns / 1e9,
             stats.eval_ns ? (double)stats.eval_tokens * 1e9 / (double)stats.eval_ns : 0.0,
             cli_peak_text(peak, &stats, &ppl->info));
    cli_streaming_note(&ppl->args, &ppl->info, &stats, stats.eval_tokens);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Everything that can be read and refused before weights are. */
static int read_inputs(struct ppl *ppl)
{
    const struct cli_args *args = &ppl->args;
    if (args->loops && cli_text_read(&ppl->prompts, args->loops))
        return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
    if (args->kl && cli_reference_open(&ppl->reference, args->kl)) return CLI_EXIT_FAILURE;
    if (!has_text(args)) return CLI_EXIT_OK;
    return cli_ppl_text_read(&ppl->text, args, args->kl ? &ppl->reference : NULL);
}

/* The context of the session: a window, and with --loops a prompt and its answer. */
static int64_t context_wanted(const struct ppl *ppl)
{
    int64_t window = ppl->text.head.ids.count ? (int64_t)ppl->text.head.method.window : 0;
    int64_t loop = ppl->args.loops ? ppl->args.loop_tokens + LOOP_PROMPT : 0;
    if (ppl->args.window > window) window = ppl->args.window;
    return ppl->args.window || window > loop ? window : loop;
}

static int open_saved(struct ppl *ppl)
{
    struct cli_reference_head *head = &ppl->text.head;
    char size[CLI_SIZE_TEXT];
    if (!ppl->args.save_logits) return CLI_EXIT_OK;
    (void)snprintf(head->model, sizeof head->model, "%s '%.128s', %llu bytes, keys and values %s%s",
                   ppl->info.arch, ppl->info.name, (unsigned long long)ppl->info.file_bytes,
                   cli_kv_name(ppl->info.kv), ppl->info.lossy ? ", lossy" : "");
    cli_note("the reference run will take %s", cli_size_text(size, cli_reference_bytes(head)));
    return cli_reference_create(&ppl->saved, ppl->args.save_logits, head) ? CLI_EXIT_FAILURE
                                                                          : CLI_EXIT_OK;
}

/* Memory for logits, whole rows. */
static size_t logits_bytes(const struct ppl *ppl)
{
    size_t row = ppl->text.head.n_vocab * sizeof(float), most = LOGITS_BYTES;
    if (ppl->args.ram_bytes) {
        most = LOGITS_BYTES_BOUNDED;
        if (ppl->args.ram_bytes / 32 < most) most = (size_t)(ppl->args.ram_bytes / 32);
    }
    return most > row ? most / row * row : row;
}

/* Takes what this file allocates itself off --ram, so that it bounds the whole process. Where it is
 * auto, its reserve is large enough. */
static int set_aside(struct ppl *ppl)
{
    const struct cli_reference_head *head = &ppl->text.head;
    sluice_options options;
    sluice_plan plan = SLUICE_PLAN_INIT;
    sluice_error error;
    char size[CLI_SIZE_TEXT], ram[CLI_SIZE_TEXT], least[CLI_RAM_TEXT];
    if (head->ids.count == 0) return CLI_EXIT_OK;
    ppl->logits_bytes = logits_bytes(ppl);
    uint64_t row = head->n_vocab * sizeof(float); /* with more --ram there may be one more */
    uint64_t codes = (uint64_t)(!!ppl->args.kl + !!ppl->args.save_logits) * 2 * head->n_vocab;
    uint64_t own = ppl->logits_bytes + codes + head->ids.count * TOKEN_BYTES;
    if (ppl->args.ram_bytes == 0 || ppl->args.ram_bytes == SLUICE_RAM_AUTO) return CLI_EXIT_OK;
    cli_model_options(&ppl->args, &options);
    if (sluice_memory_plan(ppl->args.model, &options, &plan, &error)) return cli_fail(&error);
    if (plan.minimum_bytes + own > ppl->args.ram_bytes) {
        cli_error("%s does not fit into %s; the smallest budget that works is --ram %s, with %s of "
                  "logits and tokens",
                  ppl->args.model, cli_size_text(ram, ppl->args.ram_bytes),
                  cli_ram_text(least, plan.minimum_bytes + own + own / 32 + row),
                  cli_size_text(size, own));
        return CLI_EXIT_FAILURE;
    }
    ppl->args.aside_bytes = own;
    cli_note("%s of --ram are for logits and tokens", cli_size_text(size, own));
    return CLI_EXIT_OK;
}

static int open_all(struct ppl *ppl)
{
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    int code = read_inputs(ppl);
    if (code) return code;
    ppl->args.ctx_size = context_wanted(ppl);
    ppl->args.reads_only = ppl->args.loops == NULL;
    uint64_t ram_bytes = ppl->args.ram_bytes;
    code = set_aside(ppl);
    if (code) return code;
    code = cli_model_open(&ppl->args, &ppl->model, &ppl->plan);
    if (code) return code;
    sluice_model_get_info(ppl->model, &info);
    ppl->info = info;
    if (ram_bytes != SLUICE_RAM_AUTO) ppl->info.ram_bytes = ram_bytes;
    if (open_saved(ppl)) return CLI_EXIT_FAILURE;
    if (sluice_session_open(ppl->model, &ppl->session, &error)) return cli_fail(&error);
    cli_interrupt_watch(ppl->session);
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

static void close_all(struct ppl *ppl)
{
    cli_interrupt_watch(NULL);
    cli_reference_abandon(&ppl->saved);
    cli_reference_close(&ppl->reference);
    sluice_session_close(ppl->session);
    sluice_model_close(ppl->model);
    cli_free(ppl->logits);
    cli_free(ppl->sequence);
    cli_free(ppl->scores.kl);
    cli_loops_free(&ppl->loops);
    cli_ppl_text_free(&ppl->text);
    cli_text_free(&ppl->prompts);
}

int cli_ppl_measure(const struct cli_args *args, struct cli_ppl_measured *out)
{
    struct ppl ppl = {.args = *args};
    int code = check_usage(args);
    if (code) return code;
    code = open_all(&ppl);
    if (code == 0) code = score_text(&ppl);
    if (code == 0) {
        const struct cli_reference_head *head = &ppl.text.head;
        out->quality = cli_scores_finish(&ppl.scores);
        out->scored = ppl.scores.count;
        size_t at = strlen(cli_method_text(&head->method, head->ids.count, out->method));
        (void)snprintf(out->method + at, sizeof out->method - at, "; keys and values %s",
                       cli_kv_name(ppl.info.kv));
    }
    close_all(&ppl);
    return code;
}

int cli_ppl(const struct cli_args *args)
{
    struct ppl ppl = {.args = *args};
    int code = check_usage(args);
    if (code) return code;
    code = open_all(&ppl);
    if (code == 0) code = score_text(&ppl);
    if (code == 0 && args->loops)
        code = cli_loops_run(&ppl.loops, &ppl.args, ppl.model, ppl.session, &ppl.prompts);
    if (code == 0) print_result(&ppl);
    close_all(&ppl);
    return code;
}
