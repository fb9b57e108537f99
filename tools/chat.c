/* The interactive chat of sluice run.
 *
 * The whole conversation is passed to the library each time; it finds what it has evaluated already
 * in the context, so a turn costs its own tokens only. Ctrl-C stops an answer, and what was said so
 * far stays part of the conversation. Nothing is ever dropped to make room: where the context is
 * full, the turn fails with a sentence, and /clear starts anew. */
#include "tools/chat.h"

#include <string.h>

#include "tools/interrupt.h"
#include "tools/lineedit.h"
#include "tools/report.h"

#define FENCE "\"\"\""
#define FENCE_BYTES 3

static const char chat_help[] =
    "/help             this list\n"
    "/clear            forget the conversation\n"
    "/system TEXT      set the system message and start anew; no TEXT: remove it\n"
    "/think MODE       on, off, show or auto: thinking before the next answers\n"
    "/status           model, context and memory in use\n"
    "/exit /bye /quit  leave (also Ctrl-D, or Ctrl-C at the prompt twice)\n"
    "\"\"\"               begins and ends a text of several lines\n"
    "Ctrl-C            stops an answer\n";

struct chat {
    struct cli_talk *talk;
    struct cli_lines *lines;
    sluice_message *messages; /* contents are owned; roles are literals */
    uint32_t count, capacity;
    int failed; /* a turn failed */
};

static char *copy(const char *text)
{
    size_t n = strlen(text);
    return memcpy(cli_alloc(n + 1, 1), text, n + 1);
}

static void add_message(struct chat *chat, const char *role, const char *content)
{
    if (chat->count == chat->capacity) {
        uint32_t capacity = chat->capacity ? chat->capacity * 2 : 16;
        sluice_message *grown = cli_alloc(capacity, sizeof *grown);
        if (chat->count) memcpy(grown, chat->messages, chat->count * sizeof *grown);
        cli_free(chat->messages);
        chat->messages = grown;
        chat->capacity = capacity;
    }
    chat->messages[chat->count++] = (sluice_message){role, copy(content)};
}

static void drop_message(struct chat *chat)
{
    cli_free((void *)(uintptr_t)chat->messages[--chat->count].content);
}

/* Starts anew; a system message stays. */
static void clear(struct chat *chat)
{
    uint32_t keep = chat->count && strcmp(chat->messages[0].role, "system") == 0;
    while (chat->count > keep) drop_message(chat);
}

static void set_system(struct chat *chat, const char *text)
{
    while (chat->count) drop_message(chat);
    if (*text) add_message(chat, "system", text);
    cli_say("%s; the conversation starts anew", *text ? "system message set" : "no system message");
}

static void set_think(struct chat *chat, const char *mode)
{
    int think = cli_think_of(mode);
    if (think < 0) {
        if (*mode)
            cli_error("/think: found '%.40s', wanted on, off, show or auto", mode);
        else
            cli_say("thinking: %s; /think on, off, show or auto changes it",
                    cli_think_name(chat->talk->think));
        return;
    }
    cli_talk_think(chat->talk, think);
    cli_say("thinking: %s", mode);
}

static void print_status(const struct chat *chat)
{
    char kv[CLI_SIZE_TEXT], peak[CLI_SIZE_TEXT];
    sluice_stats stats = SLUICE_STATS_INIT;
    const sluice_model_info *info = &chat->talk->info;
    sluice_session_get_stats(chat->talk->session, &stats);
    cli_say("%s '%s', template %s, %u threads, %s", info->arch, info->name, info->chat_template,
            (unsigned)info->threads, info->isa);
    cli_say("%u messages; context %zu of %u tokens, keys and values %s; peak memory %s",
            (unsigned)chat->count, sluice_session_length(chat->talk->session),
            (unsigned)info->n_ctx, cli_size_text(kv, stats.kv_bytes),
            cli_size_text(peak, stats.process_peak_bytes));
}

static void print_help(void)
{
    for (const char *line = chat_help; *line;) {
        const char *end = strchr(line, '\n');
        cli_say("%.*s", (int)(end - line), line);
        line = end + 1;
    }
}

/* The argument of command where text is that command, else NULL. */
static const char *argument_of(const char *text, const char *command)
{
    size_t n = strlen(command);
    if (strncmp(text, command, n) != 0 || (text[n] && text[n] != ' ')) return NULL;
    while (text[n] == ' ') n++;
    return text + n;
}

/* Returns 1 where the user wants to leave. */
static int do_command(struct chat *chat, const char *text)
{
    static const char *const known[] = {"/help",   "/clear", "/system", "/think",
                                        "/status", "/exit",  "/bye",    "/quit"};
    struct cli_nearest nearest = {NULL, 0, 0};
    const char *argument;
    if (argument_of(text, "/exit") || argument_of(text, "/bye") || argument_of(text, "/quit"))
        return 1;
    if (argument_of(text, "/help") || argument_of(text, "/?"))
        print_help();
    else if (argument_of(text, "/status"))
        print_status(chat);
    else if ((argument = argument_of(text, "/system")))
        set_system(chat, argument);
    else if ((argument = argument_of(text, "/think")))
        set_think(chat, argument);
    else if (argument_of(text, "/clear")) {
        clear(chat);
        cli_say("the conversation starts anew");
    } else {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            cli_nearest_offer(&nearest, text, known[i], strlen(known[i]));
        cli_error("unknown command %.40s; %s%s (begin with a space to say it to the model)", text,
                  nearest.best ? "did you mean " : "/help lists them",
                  nearest.best ? nearest.best : "");
    }
    return 0;
}

/* Reads one turn, of one line or fenced. Returns what cli_lines_read does. */
static int read_turn(struct chat *chat, struct cli_text *turn)
{
    struct cli_text line = {0};
    cli_text_clear(turn);
    int got = cli_lines_read(chat->lines, "> ", turn);
    if (got == 1 && strncmp(turn->bytes, FENCE, FENCE_BYTES) == 0) {
        memmove(turn->bytes, turn->bytes + FENCE_BYTES, turn->size - FENCE_BYTES + 1);
        turn->size -= FENCE_BYTES;
        while (got == 1 && (turn->size < FENCE_BYTES ||
                            strcmp(turn->bytes + turn->size - FENCE_BYTES, FENCE) != 0)) {
            got = cli_lines_read(chat->lines, "... ", &line);
            if (got == 1 && turn->size) cli_text_add(turn, "\n", 1);
            if (got == 1) cli_text_add(turn, line.bytes, line.size);
        }
        if (got == 1) turn->bytes[turn->size -= FENCE_BYTES] = 0;
        cli_text_chomp(turn);
    }
    cli_text_free(&line);
    return got;
}

/* Answers the conversation with turn added. Returns an exit code that ends the chat, or 0. */
static int answer_turn(struct chat *chat, const char *turn)
{
    struct cli_ids ids = {0};
    struct cli_answer answer = {0};
    add_message(chat, "user", turn);
    cli_interrupt_reset();
    int code = cli_chat_ids(chat->talk, chat->messages, chat->count, &ids);
    if (code == 0) {
        code = cli_answer(chat->talk, &ids, &answer);
        cli_answer_note(chat->talk, &answer);
        if (answer.err == SLUICE_E_CONTEXT_FULL)
            cli_say("/clear starts anew; -c N makes the context larger");
    }
    if (answer.text.size)
        add_message(chat, "assistant", answer.text.bytes);
    else
        drop_message(chat);      /* nothing was said: the turn did not happen */
    int lost = cli_flush() != 0; /* nobody reads the answers any more */
    if (code == CLI_EXIT_FAILURE) chat->failed = 1;
    cli_interrupt_reset(); /* it stopped the answer; the prompt starts afresh */
    cli_answer_free(&answer);
    cli_ids_free(&ids);
    return lost ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

/* Returns an exit code. */
static int talk_on(struct chat *chat, struct cli_text *turn)
{
    int interrupts = 0;
    for (;;) {
        int got = read_turn(chat, turn);
        if (got == 0) return CLI_EXIT_OK;
        if (got < 0) {
            if (++interrupts == 2 || !cli_lines_edited(chat->lines)) return CLI_EXIT_INTERRUPTED;
            cli_say("Ctrl-C again, or Ctrl-D, leaves");
            cli_interrupt_reset();
            continue;
        }
        interrupts = 0;
        if (turn->size == 0) continue;
        if (turn->bytes[0] == '/') {
            if (do_command(chat, turn->bytes)) return CLI_EXIT_OK;
            continue;
        }
        int code = answer_turn(chat, turn->bytes);
        if (code || chat->talk->args->single_turn) return code;
    }
}

int cli_chat(struct cli_talk *talk, const char *first)
{
    struct chat chat = {.talk = talk};
    struct cli_text turn = {0};
    int code = CLI_EXIT_OK;
    chat.lines = cli_lines_open();
    int edited = cli_lines_edited(chat.lines);
    if (talk->args->system_prompt) add_message(&chat, "system", talk->args->system_prompt);
    if (edited) cli_note("chat: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves");
    if (first) code = answer_turn(&chat, first);
    if (code == 0 && !(first && talk->args->single_turn)) code = talk_on(&chat, &turn);
    while (chat.count) drop_message(&chat);
    cli_free(chat.messages);
    cli_lines_close(chat.lines);
    cli_text_free(&turn);
    /* a script wants to know that a turn failed; a person has seen it */
    return code == 0 && chat.failed && !edited ? CLI_EXIT_FAILURE : code;
}
