/* Renders the templates that write one turn after the other: opening, text, closing, by the table
 * of a style.
 *
 * What the styles need beyond that is a default system text, a system message that is merged into a
 * user's, turns that must alternate, and an opening of the answer; each is one field of struct
 * chat_turns. */
#include "engine/text/chat_template_impl.h"

static bool has(const struct chat_turns *s, enum chat_turn_flag flag)
{
    return (s->flags & (unsigned)flag) != 0;
}

static struct sl_str content_of(const struct chat_job *job, const struct chat_turns *s, uint32_t i)
{
    struct sl_str text = job->messages[i].content;
    return has(s, CHAT_TRIM) ? chat_trim(text) : text;
}

static bool merges_system(const struct chat_turns *s)
{
    return s->system == CHAT_SYSTEM_FIRST_USER || s->system == CHAT_SYSTEM_LAST_USER;
}

/* gpt-oss wants an answer's channels apart; a text that still holds them is a mistake of the
 * caller. */
static void check_channels(struct chat_job *job, uint32_t i)
{
    struct sl_str text = job->messages[i].content;
    if (chat_role_of(&job->messages[i]) != CHAT_ASSISTANT) return;
    if (chat_find(text, SL_STR("<|channel|>analysis<|message|>"), false) != CHAT_NOT_FOUND ||
        chat_find(text, SL_STR("<|channel|>final<|message|>"), false) != CHAT_NOT_FOUND) {
        chat_refuse(job, i, "the text must not hold <|channel|> tags");
    }
}

/* The turns that follow a merged first system message, or all: user, assistant, user ... */
static void check_order(struct chat_job *job, const struct chat_turns *s, uint32_t first)
{
    for (uint32_t i = 0; i < job->n; i++) {
        enum chat_role role = chat_role_of(&job->messages[i]);
        if (i == 0 && role == CHAT_SYSTEM && s->system == CHAT_SYSTEM_NONE) {
            chat_refuse(job, i, "this chat template takes no system message");
        }
        if (i > 0 && role == CHAT_SYSTEM && has(s, CHAT_ONE_SYSTEM)) {
            chat_refuse(job, i, "only the first message may be the system's");
        }
        if (has(s, CHAT_CHANNELS)) check_channels(job, i);
        if (i < first || !has(s, CHAT_ALTERNATE)) continue;
        bool users_turn = (i - first) % 2 == 0;
        if ((role == CHAT_USER) != users_turn) {
            chat_refuse(job, i, "user and assistant must take turns, the user first");
        } else if (role == CHAT_SYSTEM && s->open[CHAT_SYSTEM] == NULL) {
            chat_refuse(job, i, "only the first message may be the system's");
        }
    }
}

static void collect_systems(struct chat_job *job, const struct chat_turns *s)
{
    bool any = false;
    for (uint32_t i = 0; i < job->n; i++) {
        if (chat_role_of(&job->messages[i]) != CHAT_SYSTEM) continue;
        if (any) chat_add(job, s->joint);
        chat_add_content(job, content_of(job, s, i));
        any = true;
    }
}

static void add_turn(struct chat_job *job, const struct chat_turns *s, uint32_t i, bool merge)
{
    enum chat_role role = chat_role_of(&job->messages[i]);
    bool first_system = i == 0 && role == CHAT_SYSTEM && s->first_system != NULL;
    bool last_assistant = i + 1 == job->n && role == CHAT_ASSISTANT && s->last_assistant != NULL;
    if (has(s, CHAT_CHANNELS) && job->ctx->add_generation_prompt) last_assistant = false;
    chat_add(job, first_system ? s->first_system : s->open[role]);
    if (merge) {
        chat_add_content(job, job->messages[0].content);
        chat_add(job, s->joint);
    }
    chat_add_content(job, content_of(job, s, i));
    chat_add(job, last_assistant ? s->last_assistant : s->close[role]);
}

/* Whether the system's text goes in front of message i, a user's. */
static bool merges_here(const struct chat_job *job, const struct chat_turns *s, uint32_t i)
{
    if (!merges_system(s) || chat_role_of(&job->messages[0]) != CHAT_SYSTEM) return false;
    if (chat_role_of(&job->messages[i]) != CHAT_USER) return false;
    return s->system == CHAT_SYSTEM_FIRST_USER ? i == 1 : i + 1 == job->n;
}

void chat_render_turns(struct chat_job *job, const void *style)
{
    const struct chat_turns *s = style;
    bool system = chat_role_of(&job->messages[0]) == CHAT_SYSTEM;
    bool empty_system = system && job->messages[0].content.n == 0 && has(s, CHAT_EMPTY_IS_NONE);
    uint32_t first = system && (merges_system(s) || empty_system) ? 1 : 0;

    check_order(job, s, first);
    chat_add(job, s->head);
    if (!system || empty_system) {
        bool think = job->ctx->thinking == 1 && s->no_system_thinking != NULL;
        chat_add(job, think ? s->no_system_thinking : s->no_system);
    }
    if (s->system == CHAT_SYSTEM_COLLECT) collect_systems(job, s);
    for (uint32_t i = first; i < job->n; i++) {
        bool skip =
            s->system == CHAT_SYSTEM_COLLECT && chat_role_of(&job->messages[i]) == CHAT_SYSTEM;
        if (!skip) add_turn(job, s, i, merges_here(job, s, i));
    }
    bool prompt = job->ctx->add_generation_prompt || has(s, CHAT_ALWAYS_PROMPT);
    if (has(s, CHAT_PROMPT_IN_LOOP) && system && job->n == 1) prompt = false;
    if (prompt) chat_add(job, s->prompt);
}
