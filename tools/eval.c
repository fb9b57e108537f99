/* sluice eval: logits of given tokens, greedy continuation, log-likelihood.
 *
 * The interface for tests: what comes out depends on the model and the ids alone, and no BOS is
 * added. Tokens are evaluated in pieces, so that the logits of a long text need no more memory than
 * those of a short one; the engine's results do not depend on where the pieces end. */
#include <math.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/out_file.h"
#include "tools/plan_text.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/streaming.h"
#include "tools/text.h"
#include "tools/verbs.h"

#define LOGITS_BYTES ((size_t)16 << 20) /* most memory for logits, at least one row */

struct eval {
    const struct cli_args *args;
    sluice_model *model;
    sluice_session *session;
    sluice_model_info info;
    sluice_plan plan;
    struct cli_ids ids, greedy;
    struct cli_out_file logits_file, greedy_file;
    float *logits; /* [piece][n_vocab] */
    size_t piece;
    double nll; /* sum over the scored tokens, nats */
    uint64_t eval_ns;
};

static int check_usage(const struct cli_args *args)
{
    if (!args->model) return cli_model_missing("eval");
    if (!args->tokens) {
        cli_error("no tokens given; write: sluice eval -m MODEL --tokens FILE");
    } else if (args->greedy_out && !args->greedy) {
        cli_error("--greedy-out needs --greedy N");
    } else {
        return CLI_EXIT_OK;
    }
    return CLI_EXIT_USAGE;
}

static int read_tokens(struct eval *eval)
{
    const struct cli_args *args = eval->args;
    const char *source = strcmp(args->tokens, "-") == 0 ? "standard input" : args->tokens;
    struct cli_text text = {0};
    size_t least = args->nll ? 2 : 1;
    int failed = cli_text_read(&text, args->tokens) ||
                 cli_ids_parse(&eval->ids, text.bytes, text.size, source);
    cli_text_free(&text);
    if (failed) return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
    if (eval->ids.count >= least) return CLI_EXIT_OK;
    cli_error("%s: found %zu token id%s, wanted at least %zu%s", source, eval->ids.count,
              eval->ids.count == 1 ? "" : "s", least, args->nll ? " for --nll" : "");
    return CLI_EXIT_FAILURE;
}

/* Log-likelihood of id under one row of logits, in nats; the sum of exponentials in double. */
static double log_likelihood(const float *logits, size_t n_vocab, int32_t id)
{
    double best = logits[0], sum = 0;
    for (size_t i = 1; i < n_vocab; i++)
        if (logits[i] > best) best = logits[i];
    for (size_t i = 0; i < n_vocab; i++) sum += exp(logits[i] - best);
    return logits[id] - best - log(sum);
}

static int32_t most_likely(const float *logits, size_t n_vocab)
{
    size_t best = 0;
    for (size_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i; /* ties go to the lower id */
    return (int32_t)best;
}

/* Evaluates ids[0..n) and leaves their logits in eval->logits, if wanted. */
static int evaluate(struct eval *eval, const int32_t *ids, size_t n, int wanted)
{
    sluice_error error;
    uint64_t begin_ns = cli_now_ns();
    sluice_err err =
        sluice_session_eval(eval->session, ids, n, wanted ? eval->logits : NULL, &error);
    eval->eval_ns += cli_now_ns() - begin_ns;
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}

/* The next piece at token at, and whether its logits are wanted. Without --logits and --nll only
 * those of the last token are, so that the pieces before are as large as the engine's chunk. */
static size_t next_piece(const struct eval *eval, size_t at, int *wanted)
{
    const struct cli_args *args = eval->args;
    size_t left = eval->ids.count - at;
    *wanted = args->logits || args->nll || (args->greedy && left == 1);
    size_t most = *wanted ? eval->piece : eval->info.chunk;
    if (!*wanted && args->greedy) left--; /* the last token comes by itself */
    return left < most ? left : most;
}

/* Evaluates the given tokens, piece by piece. The logits of the last one stay in *last_row. */
static int evaluate_tokens(struct eval *eval, const float **last_row)
{
    const struct cli_args *args = eval->args;
    struct cli_progress progress;
    size_t n_vocab = eval->info.n_vocab, count = eval->ids.count;
    int code = 0;
    cli_progress_begin(&progress, "evaluating", "tokens",
                       cli_progress_wanted(args->progress, args->quiet));
    for (size_t at = 0; at < count && code == 0;) {
        int wanted;
        size_t n = next_piece(eval, at, &wanted);
        code = evaluate(eval, eval->ids.ids + at, n, wanted);
        if (code) break;
        if (args->logits &&
            cli_out_put(&eval->logits_file, eval->logits, n * n_vocab * sizeof(float)))
            code = CLI_EXIT_FAILURE;
        for (size_t i = 0; args->nll && i < n && at + i + 1 < count; i++)
            eval->nll -=
                log_likelihood(eval->logits + i * n_vocab, n_vocab, eval->ids.ids[at + i + 1]);
        *last_row = eval->logits + (n - 1) * n_vocab;
        at += n;
        cli_progress_step(&progress, at, count);
    }
    cli_progress_end(&progress);
    return code;
}

/* Continues with the most likely token, args->greedy times. */
static int continue_greedily(struct eval *eval, const float *row)
{
    int code = 0;
    for (int64_t i = 0; i < eval->args->greedy && code == 0; i++) {
        int32_t id = most_likely(row, eval->info.n_vocab);
        cli_ids_push(&eval->greedy, id);
        if (i + 1 < eval->args->greedy) code = evaluate(eval, &id, 1, 1);
        row = eval->logits;
    }
    return code;
}

/* Puts the greedy ids where they belong. Returns an exit code. */
static int write_greedy(struct eval *eval)
{
    char line[16];
    int failed = 0;
    for (size_t i = 0; i < eval->greedy.count && !failed; i++) {
        int n = snprintf(line, sizeof line, "%d\n", (int)eval->greedy.ids[i]);
        if (eval->args->greedy_out)
            failed = cli_out_put(&eval->greedy_file, line, (size_t)n);
        else if (!eval->args->json)
            failed = cli_put(line, (size_t)n);
    }
    return failed ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

static void print_json(const struct eval *eval)
{
    const struct cli_args *args = eval->args;
    size_t scored = eval->ids.count - 1;
    sluice_stats stats = SLUICE_STATS_INIT;
    struct cli_json *root = cli_json_object();
    sluice_session_get_stats(eval->session, &stats);
    (void)cli_json_model(root, args, &eval->info);
    cli_json_integer(root, "prompt_tokens", eval->ids.count);
    cli_json_integer(root, "vocab_size", eval->info.n_vocab);
    cli_json_number(root, "eval_ms", (double)eval->eval_ns / 1e6);
    if (args->nll) {
        cli_json_integer(root, "scored_tokens", scored);
        cli_json_number(root, "mean_nll", eval->nll / (double)scored);
        cli_json_number(root, "perplexity", exp(eval->nll / (double)scored));
    }
    if (args->greedy) cli_json_ids(root, "greedy", eval->greedy.ids, eval->greedy.count);
    cli_json_experts(root, &stats);
    cli_json_plan(root, &eval->plan);
    cli_json_integer(root, "budget_peak_bytes", stats.budget_peak_bytes);
    cli_json_known(root, "process_peak_bytes", stats.process_peak_bytes);
    (void)cli_json_finish(root, 0);
}

static void print_summary(const struct eval *eval)
{
    size_t scored = eval->ids.count - 1, all = eval->ids.count + eval->greedy.count;
    char tokens[CLI_TOKENS_TEXT], peak[CLI_PEAK_TEXT];
    sluice_stats stats = SLUICE_STATS_INIT;
    if (eval->greedy.count) all--; /* the last one is chosen, not evaluated */
    sluice_session_get_stats(eval->session, &stats);
    if (eval->args->json) {
        print_json(eval);
    } else if (eval->args->nll) {
        (void)cli_printf("mean_nll %.9f\nperplexity %.9f\n", eval->nll / (double)scored,
                         exp(eval->nll / (double)scored));
        (void)cli_printf("scored_tokens %zu\n", scored);
        (void)cli_printf(
            "method tokens 1 to %zu, each given all before it; nats, summed in double; "
            "no BOS added; context %u, one window\n",
            scored, (unsigned)eval->info.n_ctx);
    }
    cli_note("load %.2f s; evaluated %s in %.3f s (%.1f tok/s); peak memory %s",
             (double)eval->info.load_ns / 1e9, cli_tokens_text(tokens, all),
             (double)eval->eval_ns / 1e9,
             eval->eval_ns ? (double)all * 1e9 / (double)eval->eval_ns : 0.0,
             cli_peak_text(peak, &stats, &eval->info));
    cli_streaming_note(eval->args, &eval->info, &stats, all);
}

static int open_all(struct eval *eval)
{
    const struct cli_args *args = eval->args;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    int code = cli_model_open(args, &eval->model, &eval->plan);
    if (code) return code;
    sluice_model_get_info(eval->model, &info);
    eval->info = info;
    size_t row_bytes = info.n_vocab * sizeof(float), rows = LOGITS_BYTES / row_bytes;
    eval->piece = info.chunk;
    if (rows < eval->piece) eval->piece = rows ? rows : 1;
    eval->logits = cli_alloc(eval->piece, row_bytes);
    if (args->logits && cli_out_open(&eval->logits_file, args->logits)) return CLI_EXIT_FAILURE;
    if (args->greedy_out && cli_out_open(&eval->greedy_file, args->greedy_out))
        return CLI_EXIT_FAILURE;
    if (sluice_session_open(eval->model, &eval->session, &error)) return cli_fail(&error);
    cli_interrupt_watch(eval->session);
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

static int work(struct eval *eval)
{
    const float *last_row = NULL;
    int code = read_tokens(eval);
    if (code == 0) code = open_all(eval);
    if (code == 0) code = evaluate_tokens(eval, &last_row);
    if (code == 0) code = continue_greedily(eval, last_row);
    if (code == 0) code = write_greedy(eval);
    if (code == 0 && eval->logits_file.stream && cli_out_commit(&eval->logits_file))
        code = CLI_EXIT_FAILURE;
    if (code == 0 && eval->greedy_file.stream && cli_out_commit(&eval->greedy_file))
        code = CLI_EXIT_FAILURE;
    if (code == 0) print_summary(eval);
    return code;
}

int cli_eval(const struct cli_args *args)
{
    struct eval eval = {.args = args};
    int code = check_usage(args);
    if (code) return code;
    code = work(&eval);
    cli_interrupt_watch(NULL);
    cli_out_abandon(&eval.logits_file);
    cli_out_abandon(&eval.greedy_file);
    sluice_session_close(eval.session);
    sluice_model_close(eval.model);
    cli_free(eval.logits);
    cli_ids_free(&eval.ids);
    cli_ids_free(&eval.greedy);
    return code;
}
