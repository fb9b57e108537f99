/* sluice run: answer one prompt, or chat.
 *
 * A prompt from -p, -f or a pipe is one turn: it is rendered through the model's chat template (or
 * continued as it is with --raw), answered, and the program leaves. Otherwise, and with -cnv, it is
 * a chat (chat.c). Standard output gets the answer and nothing else. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "tools/answer.h"
#include "tools/chat.h"
#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/plan_text.h"
#include "tools/report.h"
#include "tools/streaming.h"
#include "tools/verbs.h"

/* Decodes escapes where they stand: argv and the environment are ours to change. */
static void decode_argument(const char *text)
{
    if (!text) return;
    char *bytes = (char *)(uintptr_t)text;
    bytes[cli_unescape(bytes, strlen(bytes))] = 0;
}

static void decode_arguments(const struct cli_args *args)
{
    if (!args->escape) return;
    decode_argument(args->prompt);
    decode_argument(args->system_prompt);
    for (int64_t i = 0; i < args->n_stop; i++) decode_argument(args->stop[i]);
}

/* Whether there is one prompt to answer, rather than a terminal to chat with. */
static int has_prompt(const struct cli_args *args)
{
    return args->prompt || args->file || (!args->chat && !isatty(STDIN_FILENO));
}

/* Before anything is loaded. */
static int check_template_name(const char *name)
{
    struct cli_nearest nearest = {NULL, 0, 0};
    const char *names = sluice_chat_template_names();
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, ",");
        if (strlen(name) == n && memcmp(name, p, n) == 0) return CLI_EXIT_OK;
        cli_nearest_offer(&nearest, name, p, n);
        for (p += n; *p == ',' || *p == ' ';) p++;
    }
    if (nearest.best)
        cli_error("--chat-template: found '%s'; did you mean %.*s? All: %s", name,
                  (int)nearest.best_bytes, nearest.best, names);
    else
        cli_error("--chat-template: found '%s', wanted one of %s", name, names);
    return CLI_EXIT_USAGE;
}

static int check_usage(const struct cli_args *args)
{
    const char *useless = !args->raw            ? NULL
                          : args->system_prompt ? "-sys"
                          : args->chat_template ? "--chat-template"
                          : args->think         ? "--think"
                          : args->chat          ? "-cnv"
                                                : NULL;
    if (!args->model) return cli_model_missing("run");
    if (args->prompt && args->file) {
        cli_error("-p and -f both give the prompt; use one of them");
    } else if (useless) {
        cli_error("--raw continues plain text, so %s would do nothing; leave one of them out",
                  useless);
    } else if (args->raw && !has_prompt(args)) {
        cli_error("--raw needs text to continue: give -p, -f or standard input");
    } else if (args->json && (args->chat || !has_prompt(args))) {
        cli_error("--json answers one prompt: give -p, -f or standard input");
    } else if (args->chat_template) {
        return check_template_name(args->chat_template);
    } else {
        return CLI_EXIT_OK;
    }
    return CLI_EXIT_USAGE;
}

/* The prompt in text. Returns an exit code. */
static int read_prompt(const struct cli_args *args, struct cli_text *text)
{
    const char *path = args->file ? args->file : "-";
    if (args->prompt && strcmp(args->prompt, "-") != 0) {
        cli_text_add(text, args->prompt, strlen(args->prompt));
    } else {
        if (cli_text_read(text, path))
            return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
        cli_text_chomp(text);
    }
    const char *nul = memchr(text->bytes, 0, text->size);
    if (nul && !args->raw) {
        cli_error("the prompt holds a NUL byte at byte %zu, which a chat message cannot; --raw "
                  "takes any bytes",
                  (size_t)(nul - text->bytes));
        return CLI_EXIT_FAILURE;
    }
    if (text->size == 0 && !args->raw) {
        cli_error("the prompt is empty; give -p TEXT, -f FILE or text on standard input");
        return CLI_EXIT_FAILURE;
    }
    return CLI_EXIT_OK;
}

static int prompt_ids(const struct cli_talk *talk, const struct cli_text *text, struct cli_ids *ids)
{
    const struct cli_args *args = talk->args;
    sluice_message messages[2];
    uint32_t n = 0;
    if (args->raw) {
        int code = cli_raw_ids(talk, text->bytes, text->size, ids);
        if (code == 0 && ids->count == 0) {
            cli_error("the prompt is empty, and this vocabulary begins texts with nothing");
            code = CLI_EXIT_FAILURE;
        }
        return code;
    }
    if (args->system_prompt) messages[n++] = (sluice_message){"system", args->system_prompt};
    messages[n++] = (sluice_message){"user", text->bytes};
    return cli_chat_ids(talk, messages, n, ids);
}

static void put_settings(struct cli_json *root, const struct cli_talk *talk)
{
    const struct cli_args *args = talk->args;
    struct cli_json *settings = cli_json_model(root, args, &talk->info);
    cli_json_bool(settings, "raw", args->raw);
    cli_json_known_string(settings, "chat_template", args->raw ? "" : talk->info.chat_template);
    cli_json_string(settings, "think", cli_think_name(talk->think));
    cli_json_number(settings, "predict", (double)args->predict);
    cli_json_number(settings, "temp", args->temperature);
    cli_json_integer(settings, "top_k", (uint64_t)args->top_k);
    cli_json_number(settings, "top_p", args->top_p);
    cli_json_number(settings, "min_p", args->min_p);
    cli_json_number(settings, "repeat_penalty", args->repeat_penalty);
    cli_json_integer(settings, "repeat_last_n", talk->generate.repeat_last);
    if (args->temperature > 0) cli_json_integer(settings, "seed", talk->generate.seed);
    cli_json_bool(settings, "ignore_eos", args->ignore_end);
}

static void put_json(const struct cli_talk *talk, const struct cli_answer *answer)
{
    const sluice_result *r = &answer->result;
    sluice_stats stats = SLUICE_STATS_INIT;
    struct cli_json *root = cli_json_object();
    sluice_session_get_stats(talk->session, &stats);
    put_settings(root, talk);
    cli_json_text(root, "text", answer->text.bytes, answer->text.size);
    cli_json_text(root, "thoughts", answer->thoughts.bytes, answer->thoughts.size);
    cli_json_string(root, "stop", cli_answer_stop_name(answer));
    if (answer->err) cli_json_string(root, "error", answer->error.text);
    cli_json_integer(root, "prompt_tokens", r->prompt_tokens);
    cli_json_integer(root, "reused_tokens", r->reused_tokens);
    cli_json_integer(root, "generated_tokens", r->generated_tokens);
    cli_json_integer(root, "thought_tokens", r->thought_tokens);
    cli_json_number(root, "load_ms", (double)talk->info.load_ns / 1e6);
    cli_json_number(root, "prompt_ms", (double)r->prompt_ns / 1e6);
    if (r->generated_tokens)
        cli_json_number(root, "first_token_ms", (double)r->first_token_ns / 1e6);
    else
        cli_json_null(root, "first_token_ms");
    cli_json_number(root, "decode_ms", (double)r->decode_ns / 1e6);
    cli_json_integer(root, "prompt_read_bytes", r->prompt_read_bytes);
    cli_json_number(root, "prompt_stall_ms", (double)r->prompt_stall_ns / 1e6);
    cli_json_integer(root, "decode_read_bytes", r->decode_read_bytes);
    cli_json_number(root, "decode_stall_ms", (double)r->decode_stall_ns / 1e6);
    if (r->decode_uses)
        cli_json_number(root, "decode_hit_rate", cli_share(r->decode_hits, r->decode_uses));
    else
        cli_json_null(root, "decode_hit_rate");
    cli_json_experts(root, &stats);
    cli_json_plan(root, &talk->plan);
    cli_json_integer(root, "budget_peak_bytes", stats.budget_peak_bytes);
    cli_json_known(root, "process_peak_bytes", stats.process_peak_bytes);
    (void)cli_json_finish(root, 0);
}

static int answer_once(struct cli_talk *talk, const struct cli_text *prompt)
{
    struct cli_ids ids = {0};
    struct cli_answer answer = {0};
    int code = prompt_ids(talk, prompt, &ids);
    if (code == 0) {
        code = cli_answer(talk, &ids, &answer);
        if (talk->args->json) put_json(talk, &answer);
        cli_answer_note(talk, &answer);
    }
    cli_answer_free(&answer);
    cli_ids_free(&ids);
    return code;
}

int cli_run(const struct cli_args *args)
{
    struct cli_talk talk = {0};
    struct cli_text prompt = {0};
    int one_prompt = has_prompt(args);
    int code = check_usage(args);
    if (code == 0) decode_arguments(args);
    if (code == 0 && one_prompt) code = read_prompt(args, &prompt);
    if (code == 0) {
        code = cli_talk_open(&talk, args);
        if (code == 0 && one_prompt && !args->chat)
            code = answer_once(&talk, &prompt);
        else if (code == 0)
            code = cli_chat(&talk, one_prompt ? prompt.bytes : NULL);
    }
    cli_talk_close(&talk);
    cli_text_free(&prompt);
    return code;
}
