/* Renders the Qwen3 line of templates: ChatML whose answers may hold a <think> block.
 *
 * Answers before the last question lose their thinking; those after it keep it in a normalized
 * block. "The last question" is the last user message that is not a tool's response in disguise. */
#include "engine/text/chat_template_impl.h"

static struct sl_str from(struct sl_str s, size_t begin)
{
    return (struct sl_str){s.p + begin, s.n - begin};
}

/* An answer taken apart: what is inside the thinking block, and the rest. */
struct answer {
    struct sl_str thinking, text;
};

static struct answer split_answer(struct sl_str s)
{
    struct sl_str open = SL_STR("<think>"), close = SL_STR("</think>");
    struct answer a = {{s.p, 0}, s};
    size_t first_close = chat_find(s, close, false);
    if (first_close == CHAT_NOT_FOUND) return a;
    a.text = from(s, chat_find(s, close, true) + close.n);
    while (a.text.n > 0 && a.text.p[0] == '\n') a.text = from(a.text, 1);

    a.thinking = (struct sl_str){s.p, first_close};
    size_t last_open = chat_find(a.thinking, open, true);
    if (last_open != CHAT_NOT_FOUND) a.thinking = from(a.thinking, last_open + open.n);
    a.thinking = chat_strip_newlines(a.thinking);
    return a;
}

static struct sl_str content_of(const struct chat_job *job, const struct chat_think *s, uint32_t i)
{
    struct sl_str text = job->messages[i].content;
    return (s->flags & CHAT_THINK_TRIM) != 0 ? chat_trim(text) : text;
}

/* The index of the last question, or n where there is none. */
static uint32_t last_question(const struct chat_job *job, const struct chat_think *s)
{
    for (uint32_t i = job->n; i > 0; i--) {
        struct sl_str text = content_of(job, s, i - 1);
        bool response =
            sl_str_starts(text, "<tool_response>") && sl_str_ends(text, "</tool_response>");
        if (chat_role_of(&job->messages[i - 1]) == CHAT_USER && !response) return i - 1;
    }
    return job->n;
}

static void add_answer(struct chat_job *job, const struct chat_think *s, uint32_t i, bool current)
{
    struct answer a = split_answer(content_of(job, s, i));
    if ((s->flags & CHAT_THINK_TRIM) != 0) a.thinking = chat_trim(a.thinking);
    bool block = (s->flags & CHAT_THINK_EVERY) != 0;
    if ((s->flags & (CHAT_THINK_LAST | CHAT_THINK_PRESENT)) != 0) block = a.thinking.n > 0;
    if ((s->flags & CHAT_THINK_LAST) != 0 && i + 1 == job->n) block = true;

    chat_add(job, "<|im_start|>assistant\n");
    if (current && block) {
        chat_add(job, "<think>\n");
        chat_add_content(job, a.thinking);
        chat_add(job, "\n</think>\n\n");
        if ((s->flags & CHAT_THINK_TRIM) == 0) {
            while (a.text.n > 0 && a.text.p[0] == '\n') a.text = from(a.text, 1);
        }
    }
    chat_add_content(job, a.text);
    chat_add(job, "<|im_end|>\n");
}

void chat_render_think(struct chat_job *job, const void *style)
{
    const struct chat_think *s = style;
    uint32_t question = last_question(job, s);
    bool strict = (s->flags & CHAT_THINK_TRIM) != 0;
    if (strict && question == job->n) {
        chat_refuse(job, job->n - 1, "this chat template needs a user's message");
    }
    for (uint32_t i = 0; i < job->n; i++) {
        enum chat_role role = chat_role_of(&job->messages[i]);
        if (role == CHAT_ASSISTANT) {
            add_answer(job, s, i, question < job->n && i > question);
            continue;
        }
        if (strict && role == CHAT_SYSTEM && i > 0) {
            chat_refuse(job, i, "only the first message may be the system's");
        }
        chat_add(job, role == CHAT_SYSTEM ? "<|im_start|>system\n" : "<|im_start|>user\n");
        chat_add_content(job, content_of(job, s, i));
        chat_add(job, "<|im_end|>\n");
    }
    if (!job->ctx->add_generation_prompt) return;
    chat_add(job, "<|im_start|>assistant\n");
    chat_add(job, s->prompt[job->ctx->thinking + 1]);
}
