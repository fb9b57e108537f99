/* One answer; see answer.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/answer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/interrupt.h"
#include "tools/open_model.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/shown.h"
#include "tools/streaming.h"
#include "tools/top.h"

/* A seed that differs from run to run, short enough to be typed again. */
static uint64_t fresh_seed(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mix = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec +
                   (uint64_t)getpid() * 2654435761u;
    return (mix ^ mix >> 32) & UINT32_MAX;
}

static void set_generation(struct cli_talk *talk)
{
    const struct cli_args *args = talk->args;
    sluice_generate_options fresh = SLUICE_GENERATE_INIT;
    fresh.max_tokens = args->predict < 0 ? 0 : (uint32_t)args->predict;
    fresh.temperature = (float)args->temperature;
    fresh.top_k = (uint32_t)args->top_k;
    fresh.top_p = (float)args->top_p;
    fresh.min_p = (float)args->min_p;
    fresh.repeat_penalty = (float)args->repeat_penalty;
    fresh.repeat_last = args->repeat_last < 0 ? talk->info.n_ctx : (uint32_t)args->repeat_last;
    fresh.seed = args->seed < 0 ? fresh_seed() : (uint64_t)args->seed;
    fresh.ignore_end = (uint32_t)args->ignore_end;
    fresh.show_special = (uint32_t)args->special;
    fresh.stop = args->stop;
    fresh.n_stop = (uint64_t)args->n_stop;
    talk->generate = fresh;
}

/* Whether turns can be rendered at all; the library says why not, and what to do. Asked of the
 * header alone, before gigabytes are loaded. */
static int check_template(const struct cli_args *args)
{
    const sluice_message message = {"user", "hello"};
    const sluice_chat chat = {&message, 1, -1};
    sluice_options options;
    sluice_model *header;
    sluice_error error;
    size_t bytes;
    cli_model_options(args, &options);
    options.flags = SLUICE_OPEN_HEADER;
    options.ram_bytes = 0; /* whether the model fits is said later, with the plan */
    if (sluice_model_open(args->model, &options, &header, &error)) return cli_fail(&error);
    sluice_err err = sluice_chat_render(header, &chat, NULL, 0, &bytes, &error);
    sluice_model_close(header);
    if (err != SLUICE_E_TEMPLATE) return CLI_EXIT_OK;
    sluice_plan plan = SLUICE_PLAN_INIT; /* of a model that no template would help, say that */
    sluice_error other;
    options.flags = 0;
    if (sluice_memory_plan(args->model, &options, &plan, &other)) return cli_fail(&other);
    cli_error("%s: %s", args->model, error.text);
    return CLI_EXIT_FAILURE;
}

/* As the library names it. */
static int switch_of(int think) { return think == CLI_THINK_AUTO ? -1 : think != CLI_THINK_OFF; }

/* Whether the template writes another prompt with thinking on than with thinking off. */
static int has_switch(const struct cli_talk *talk)
{
    const sluice_message message = {"user", "hello"};
    struct cli_text text[2] = {{0}, {0}};
    sluice_err err = SLUICE_OK;
    for (int on = 0; on < 2 && !err; on++) {
        const sluice_chat chat = {&message, 1, on};
        size_t bytes;
        err = sluice_chat_render(talk->model, &chat, NULL, 0, &bytes, NULL);
        if (err && err != SLUICE_E_LIMIT) break;
        cli_text_reserve(&text[on], bytes);
        err =
            sluice_chat_render(talk->model, &chat, text[on].bytes, bytes + 1, &text[on].size, NULL);
    }
    int differs = !err && (text[0].size != text[1].size ||
                           memcmp(text[0].bytes, text[1].bytes, text[0].size) != 0);
    cli_text_free(&text[0]);
    cli_text_free(&text[1]);
    return differs;
}

void cli_talk_think(struct cli_talk *talk, int think)
{
    talk->think = think;
    if ((think == CLI_THINK_ON || think == CLI_THINK_OFF) && !has_switch(talk))
        cli_say("warning: the template %s has no switch for thinking; --think %s changes nothing",
                talk->info.chat_template, cli_think_name(think));
}

int cli_talk_open(struct cli_talk *talk, const struct cli_args *args)
{
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    memset(talk, 0, sizeof *talk);
    talk->args = args;
    talk->top = args->top && cli_top_possible();
    int code = args->raw ? CLI_EXIT_OK : check_template(args);
    if (code) return code;
    code = cli_model_open(args, &talk->model, &talk->plan);
    if (code) return code;
    sluice_model_get_info(talk->model, &info);
    talk->info = info;
    set_generation(talk);
    cli_talk_think(talk, args->think);
    if (args->verbose && talk->generate.temperature > 0)
        cli_note("seed %llu; -s repeats this text", (unsigned long long)talk->generate.seed);
    if (sluice_session_open(talk->model, &talk->session, &error)) return cli_fail(&error);
    cli_interrupt_watch(talk->session);
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

void cli_talk_close(struct cli_talk *talk)
{
    cli_interrupt_watch(NULL);
    sluice_session_close(talk->session);
    sluice_model_close(talk->model);
    memset(talk, 0, sizeof *talk);
}

int cli_chat_ids(const struct cli_talk *talk, const sluice_message *messages, uint32_t n_messages,
                 struct cli_ids *ids)
{
    sluice_error error;
    sluice_err err = SLUICE_E_LIMIT;
    const sluice_chat chat = {messages, n_messages, switch_of(talk->think)};
    sluice_ids out = {NULL, 0, 0};
    for (int attempt = 0; attempt < 2 && err == SLUICE_E_LIMIT; attempt++) {
        cli_ids_reserve(ids, out.count);
        out = (sluice_ids){ids->ids, ids->capacity, 0};
        err = sluice_chat_tokenize(talk->model, &chat, &out, &error);
    }
    ids->count = err ? 0 : out.count;
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}

int cli_raw_ids(const struct cli_talk *talk, const char *text, size_t n, struct cli_ids *ids)
{
    sluice_error error;
    sluice_err err = SLUICE_E_LIMIT;
    sluice_ids out = {NULL, 0, n + 8}; /* a token has at least a byte, nearly always */
    uint32_t flags = SLUICE_TOKENIZE_BOS | (talk->args->special ? SLUICE_TOKENIZE_SPECIAL : 0u);
    for (int attempt = 0; attempt < 2 && err == SLUICE_E_LIMIT; attempt++) {
        cli_ids_reserve(ids, out.count);
        out = (sluice_ids){ids->ids, ids->capacity, 0};
        err = sluice_tokenize(talk->model, text, n, flags, &out, &error);
    }
    ids->count = err ? 0 : out.count;
    return err ? cli_fail(&error) : CLI_EXIT_OK;
}

/* What the callbacks of one answer share. */
struct stream {
    struct cli_answer *answer;
    const struct cli_talk *talk;
    struct cli_progress progress; /* of the prompt */
    struct cli_progress live;     /* of the answer, where it does not share a terminal with it */
    struct cli_shown shown;
    struct cli_top *top; /* NULL: no view */
    int failed;
};

/* The line that shows how the answer comes along. */
static void show_live(struct stream *stream)
{
    char line[CLI_LIVE_TEXT];
    sluice_stats now = SLUICE_STATS_INIT;
    if (!cli_progress_due(&stream->live)) return;
    sluice_session_get_stats(stream->talk->session, &now);
    sluice_stats since = cli_stats_since(&stream->talk->before, &now);
    cli_progress_say(&stream->live, cli_live_text(line, &since, since.eval_ns));
}

static int on_text(void *user, const char *text, size_t bytes)
{
    struct stream *stream = user;
    cli_progress_end(&stream->progress);
    stream->live.what = "answering";
    show_live(stream);
    cli_text_add(&stream->answer->text, text, bytes);
    cli_top_before_text(stream->top);
    if (cli_shown_answer(&stream->shown, text, bytes)) stream->failed = 1;
    cli_top_text(stream->top, text, bytes, 0);
    return stream->failed;
}

static int on_thought(void *user, const char *text, size_t bytes)
{
    struct stream *stream = user;
    cli_progress_end(&stream->progress);
    stream->live.what = "thinking";
    show_live(stream);
    cli_text_add(&stream->answer->thoughts, text, bytes);
    cli_top_before_text(stream->top);
    if (cli_shown_thought(&stream->shown, text, bytes)) stream->failed = 1;
    cli_top_text(stream->top, text, bytes, 1);
    return stream->failed;
}

static int on_prompt(void *user, size_t done, size_t total)
{
    struct stream *stream = user;
    cli_progress_step(&stream->progress, done, total);
    cli_top_prompt(stream->top, done, total);
    return cli_interrupted();
}

static uint64_t read_bytes(const sluice_stats *s)
{
    return s->demand_bytes + s->prompt_bytes + s->ahead_bytes + s->warm_bytes;
}

/* -n 0: the prompt is evaluated and that is all. */
static void read_only_prompt(struct cli_talk *talk, const struct cli_ids *ids,
                             struct cli_answer *answer)
{
    uint64_t begin_ns = cli_now_ns();
    sluice_session_truncate(talk->session, 0);
    answer->result.prompt_tokens = ids->count;
    answer->err = sluice_session_eval(talk->session, ids->ids, ids->count, NULL, &answer->error);
    answer->result.prompt_ns = cli_now_ns() - begin_ns;
    sluice_stats after = SLUICE_STATS_INIT;
    sluice_session_get_stats(talk->session, &after);
    answer->result.prompt_read_bytes = read_bytes(&after) - read_bytes(&talk->before);
    answer->result.prompt_stall_ns = after.stall_ns - talk->before.stall_ns;
}

int cli_answer(struct cli_talk *talk, const struct cli_ids *ids, struct cli_answer *answer)
{
    sluice_result fresh = SLUICE_RESULT_INIT;
    const sluice_stats no_stats = SLUICE_STATS_INIT;
    struct stream stream = {.answer = answer, .talk = talk};
    sluice_generate_options options = talk->generate;
    options.on_text = on_text;
    options.on_thought = talk->args->raw ? NULL : on_thought;
    options.on_prompt = on_prompt;
    options.user = &stream;
    memset(answer, 0, sizeof *answer);
    cli_text_clear(&answer->text);
    cli_text_clear(&answer->thoughts);
    cli_shown_begin(&stream.shown, talk->args, talk->think);
    answer->result = fresh;
    talk->before = no_stats;
    sluice_session_get_stats(talk->session, &talk->before);
    if (talk->top && talk->args->predict != 0)
        stream.top = cli_top_open(talk->model, talk->session, &talk->info);
    int wanted = !stream.top && cli_progress_wanted(talk->args->progress, talk->args->quiet);
    cli_progress_begin(&stream.progress, "reading the prompt", "tokens", wanted);
    cli_progress_begin(&stream.live, "answering", "tokens",
                       wanted && (stream.shown.silent || !stream.shown.terminal));
    if (talk->args->predict == 0)
        read_only_prompt(talk, ids, answer);
    else
        answer->err = sluice_generate(talk->session, ids->ids, ids->count, &options,
                                      &answer->result, &answer->error);
    cli_progress_end(&stream.progress);
    cli_progress_end(&stream.live);
    (void)cli_shown_end(&stream.shown);
    size_t n = answer->text.size;
    if (!stream.shown.silent && n && answer->text.bytes[n - 1] != '\n') (void)cli_put("\n", 1);
    int lost = cli_flush() != 0;
    cli_top_close(stream.top);
    if (lost) return CLI_EXIT_FAILURE;
    if (answer->err == SLUICE_E_CANCELLED) return CLI_EXIT_INTERRUPTED;
    return answer->err ? cli_fail(&answer->error) : CLI_EXIT_OK;
}

void cli_answer_free(struct cli_answer *answer)
{
    cli_text_free(&answer->text);
    cli_text_free(&answer->thoughts);
}

/* How an answer ended: its name in JSON, and in words. */
struct ending {
    const char *name, *words;
};

static struct ending ending_of(const struct cli_answer *answer)
{
    static const struct ending endings[] = {
        [0] = {"limit", "-n"}, /* with -n 0 only the prompt is read */
        [SLUICE_STOP_END] = {"end", "the model"},
        [SLUICE_STOP_STRING] = {"stop_string", "a stop text"},
        [SLUICE_STOP_LIMIT] = {"limit", "-n"},
        [SLUICE_STOP_CONTEXT] = {"context", "the full context"},
        [SLUICE_STOP_CALLBACK] = {"output_failed", "failing output"},
    };
    if (answer->err == SLUICE_E_CANCELLED) return (struct ending){"interrupted", "an interrupt"};
    if (answer->err) return (struct ending){"error", "an error"};
    uint32_t stop = answer->result.stop;
    return endings[stop < sizeof endings / sizeof endings[0] ? stop : 0];
}

const char *cli_answer_stop_name(const struct cli_answer *answer) { return ending_of(answer).name; }

/* " in 0.5 s (12.3 tok/s)"; the rate is left out where nothing was measured. text has RATE_TEXT
 * bytes and is returned. */
#define RATE_TEXT 64
static const char *rate_text(char *text, uint64_t tokens, uint64_t ns)
{
    size_t at = (size_t)snprintf(text, RATE_TEXT, " in %.2f s", (double)ns / 1e9);
    if (tokens && ns)
        (void)snprintf(text + at, RATE_TEXT - at, " (%.1f tok/s)",
                       (double)tokens * 1e9 / (double)ns);
    return text;
}

/* Why a cut answer is cut, and what helps. */
static void note_cut(const struct cli_answer *answer)
{
    char tokens[CLI_TOKENS_TEXT];
    if (answer->err == SLUICE_OK && answer->result.stop == SLUICE_STOP_LIMIT)
        cli_note("the answer was cut at %s%s",
                 cli_tokens_text(tokens, answer->result.generated_tokens),
                 answer->result.in_thought
                     ? ", while the model was thinking; -n N allows more, --think off asks for an "
                       "answer at once"
                     : "; -n N allows more");
    if (answer->err == SLUICE_OK && answer->result.stop == SLUICE_STOP_CONTEXT)
        cli_note("the answer was cut since the context is full; -c N makes it larger");
}

void cli_answer_note(struct cli_talk *talk, const struct cli_answer *answer)
{
    const sluice_result *r = &answer->result;
    char prompt[CLI_TOKENS_TEXT], generated[CLI_TOKENS_TEXT], prompt_rate[RATE_TEXT];
    char rate[RATE_TEXT], load[32] = "", reused[48] = "", first[48] = "", peak[CLI_PEAK_TEXT];
    char thoughts[48] = "";
    sluice_stats stats = SLUICE_STATS_INIT;
    if (answer->err != SLUICE_OK && answer->err != SLUICE_E_CANCELLED) return;
    /* the first token comes with the prompt; the rate is that of the ones after it */
    uint64_t later = r->generated_tokens ? r->generated_tokens - 1 : 0;
    sluice_session_get_stats(talk->session, &stats);
    if (!talk->load_said)
        (void)snprintf(load, sizeof load, "load %.2f s; ", (double)talk->info.load_ns / 1e9);
    talk->load_said = 1;
    sluice_stats since = cli_stats_since(&talk->before, &stats);
    if (r->reused_tokens)
        (void)snprintf(reused, sizeof reused, ", %llu reused",
                       (unsigned long long)r->reused_tokens);
    if (r->generated_tokens)
        (void)snprintf(first, sizeof first, "first token after %.0f ms; ",
                       (double)r->first_token_ns / 1e6);
    if (r->thought_tokens)
        (void)snprintf(thoughts, sizeof thoughts, " (%llu of them thoughts)",
                       (unsigned long long)r->thought_tokens);
    cli_note("%sprompt %s%s%s; %sgenerated %s%s%s; peak memory %s; ended by %s", load,
             cli_tokens_text(prompt, r->prompt_tokens), reused,
             rate_text(prompt_rate, r->prompt_tokens - r->reused_tokens, r->prompt_ns), first,
             cli_tokens_text(generated, r->generated_tokens), thoughts,
             rate_text(rate, later, r->decode_ns), cli_peak_text(peak, &stats, &talk->info),
             ending_of(answer).words);
    cli_streaming_note(talk->args, &talk->info, &since, since.eval_tokens);
    note_cut(answer);
}
