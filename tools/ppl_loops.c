/* Greedy answers that fall into repetition; see ppl_loops.h.
 *
 * Damage of a model often shows here first: its likelihoods are nearly right, and yet its answers
 * run in circles. An answer ends at the model's end token, at -n tokens, or as soon as it is found
 * to loop, since what comes after is known. */
#include "tools/ppl_loops.h"

#include <string.h>

#include "tools/answer.h"
#include "tools/ppl_score.h"
#include "tools/progress.h"
#include "tools/report.h"

size_t cli_loop_push(struct cli_loop_finder *finder, int32_t id)
{
    size_t found = 0;
    for (size_t p = 1; p <= CLI_LOOP_PERIOD_MAX && p <= finder->n; p++) {
        int same = finder->last[(finder->n - p) % CLI_LOOP_PERIOD_MAX] == id;
        finder->equal[p] = same ? finder->equal[p] + 1 : 0;
        size_t wanted = p * CLI_LOOP_TIMES;
        if (wanted < CLI_LOOP_TOKENS) wanted = CLI_LOOP_TOKENS;
        if (!found && finder->equal[p] + p >= wanted) found = p;
    }
    finder->last[finder->n % CLI_LOOP_PERIOD_MAX] = id;
    finder->n++;
    return found;
}

/* What all answers share. */
struct work {
    const struct cli_args *args;
    struct cli_talk talk; /* the model and the session, borrowed */
    struct cli_ids ids;   /* of the prompt */
    float *logits;        /* [n_vocab] */
    size_t number;        /* of the line, from 1 */
};

/* The ids of one line. */
static int prompt_ids(struct work *work, const char *line, size_t n)
{
    struct cli_text text = {0};
    int code;
    cli_text_add(&text, line, n);
    if (work->args->raw) {
        code = cli_raw_ids(&work->talk, text.bytes, text.size, &work->ids);
    } else if (memchr(text.bytes, 0, text.size)) {
        cli_error("%s: line %zu holds a NUL byte, which a chat message cannot", work->args->loops,
                  work->number);
        code = CLI_EXIT_FAILURE;
    } else {
        const sluice_message message = {"user", text.bytes};
        code = cli_chat_ids(&work->talk, &message, 1, &work->ids);
    }
    cli_text_free(&text);
    return code;
}

/* Evaluates n ids; the logits after the last of them are in work->logits. */
static int evaluate(struct work *work, const int32_t *ids, size_t n)
{
    sluice_error error;
    sluice_session *session = work->talk.session;
    sluice_err err = sluice_session_eval_last(session, ids, n, work->logits, &error);
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}

static int answer_line(struct work *work, const char *line, size_t n,
                       struct cli_loop_answer *answer)
{
    struct cli_loop_finder finder = {0};
    size_t most = (size_t)work->args->loop_tokens, context = work->talk.info.n_ctx;
    int code = prompt_ids(work, line, n);
    if (code) return code;
    if (work->ids.count == 0 || work->ids.count + most > context) {
        cli_error("%s: line %zu has %zu tokens and is answered with up to %zu; the context has "
                  "%zu; use -c or -n",
                  work->args->loops, work->number, work->ids.count, most, context);
        return CLI_EXIT_FAILURE;
    }
    answer->line = work->number;
    sluice_session_truncate(work->talk.session, 0);
    code = evaluate(work, work->ids.ids, work->ids.count);
    while (code == 0 && answer->tokens < most && !answer->period) {
        int32_t id = (int32_t)cli_most_likely(work->logits, work->talk.info.n_vocab);
        if (sluice_token_is_end(work->talk.model, id)) break;
        answer->tokens++;
        answer->period = cli_loop_push(&finder, id);
        if (!answer->period && answer->tokens < most) code = evaluate(work, &id, 1);
    }
    return code;
}

static size_t count_lines(const struct cli_text *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->size; i++) n += text->bytes[i] == '\n';
    return n + (text->size && text->bytes[text->size - 1] != '\n');
}

static int answer_all(struct work *work, struct cli_loops *loops, const struct cli_text *prompts)
{
    struct cli_progress progress;
    size_t lines = count_lines(prompts);
    int code = CLI_EXIT_OK;
    loops->answers = cli_alloc(lines, sizeof loops->answers[0]);
    cli_progress_begin(&progress, "answering", "prompts",
                       cli_progress_wanted(work->args->progress, work->args->quiet));
    for (size_t at = 0; at < prompts->size && code == 0;) {
        const char *line = prompts->bytes + at, *end = memchr(line, '\n', prompts->size - at);
        size_t n = end ? (size_t)(end - line) : prompts->size - at;
        at += n + 1;
        work->number++;
        if (n && line[n - 1] == '\r') n--;
        if (n == 0) continue;
        struct cli_loop_answer *answer = &loops->answers[loops->n++];
        code = answer_line(work, line, n, answer);
        loops->n_loops += answer->period != 0;
        loops->tokens += answer->tokens;
        cli_progress_step(&progress, work->number, lines);
    }
    cli_progress_end(&progress);
    return code;
}

int cli_loops_run(struct cli_loops *loops, const struct cli_args *args, sluice_model *model,
                  sluice_session *session, const struct cli_text *prompts)
{
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    struct work work = {.args = args};
    sluice_model_get_info(model, &info);
    work.talk.args = args;
    work.talk.model = model;
    work.talk.session = session;
    work.talk.info = info;
    cli_talk_think(&work.talk, args->think);
    work.logits = cli_alloc(info.n_vocab, sizeof(float));
    int code = answer_all(&work, loops, prompts);
    cli_free(work.logits);
    cli_ids_free(&work.ids);
    return code;
}

void cli_loops_free(struct cli_loops *loops)
{
    cli_free(loops->answers);
    memset(loops, 0, sizeof *loops);
}

void cli_loops_print(const struct cli_loops *loops, const struct cli_args *args)
{
    for (size_t i = 0; i < loops->n; i++)
        if (loops->answers[i].period)
            (void)cli_printf("loop line %zu, after %zu tokens, period %zu\n",
                             loops->answers[i].line, loops->answers[i].tokens,
                             loops->answers[i].period);
    (void)cli_printf("loops %zu of %zu answers\n", loops->n_loops, loops->n);
    (void)cli_printf(
        "loops_method greedy, at most %lld tokens, %s; a loop: 1 to %d tokens repeated "
        "at least %d times over at least %d tokens\n",
        (long long)args->loop_tokens,
        args->raw ? "prompts continued as they are" : "one turn of the chat template",
        CLI_LOOP_PERIOD_MAX, CLI_LOOP_TIMES, CLI_LOOP_TOKENS);
}

void cli_loops_json(struct cli_json *root, const struct cli_loops *loops,
                    const struct cli_args *args)
{
    struct cli_json *json = cli_json_child(root, "loops");
    cli_json_integer(json, "answers", loops->n);
    cli_json_integer(json, "looping", loops->n_loops);
    cli_json_integer(json, "generated_tokens", loops->tokens);
    cli_json_integer(json, "predict", (uint64_t)args->loop_tokens);
    cli_json_bool(json, "raw", args->raw);
    struct cli_json *found = cli_json_child_array(json, "found");
    for (size_t i = 0; i < loops->n; i++) {
        const struct cli_loop_answer *answer = &loops->answers[i];
        if (!answer->period) continue;
        struct cli_json *item = cli_json_child(found, NULL);
        cli_json_integer(item, "line", answer->line);
        cli_json_integer(item, "tokens", answer->tokens);
        cli_json_integer(item, "period", answer->period);
    }
}
