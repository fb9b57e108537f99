/* What the files of the chat templates share; nobody else includes this. */
#ifndef SL_CHAT_TEMPLATE_IMPL_H
#define SL_CHAT_TEMPLATE_IMPL_H

#include "engine/text/chat_template.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES };

/* One rendering under way. Functions that add to it do nothing once err is set, so that a renderer
 * reads straight through and looks at err at the end. */
struct chat_job {
    const struct sl_chat_message *messages;
    uint32_t n;
    const struct sl_chat_context *ctx;
    struct sl_buf *out;
    struct sl_chat_spans *spans;
    sluice_error *e;
    sluice_err err;
};

/* Template text. Bytes 1 to 5 in it stand for the BOS text, the EOS text, the date as
 * "30 Nov 2026", as "November 30, 2026" and as "2026-11-30". NULL adds nothing. */
#define CHAT_BOS "\1"
#define CHAT_EOS "\2"
#define CHAT_DATE "\3"
#define CHAT_LONG_DATE "\4"
#define CHAT_ISO_DATE "\5"
void chat_add(struct chat_job *job, const char *text);
/* Text of a message: recorded as a span. */
void chat_add_content(struct chat_job *job, struct sl_str text);
/* The error where the template would raise about message i. */
void chat_refuse(struct chat_job *job, uint32_t i, const char *why);

/* Roles are checked before a renderer runs. */
enum chat_role chat_role_of(const struct sl_chat_message *m);

/* Python's str.strip() without arguments (Unicode white space) and with "\n". */
struct sl_str chat_trim(struct sl_str s);
/* Where what begins in s, for the first or the last time; CHAT_NOT_FOUND. */
#define CHAT_NOT_FOUND SIZE_MAX
size_t chat_find(struct sl_str s, struct sl_str what, bool last);
struct sl_str chat_strip_newlines(struct sl_str s);

/* ---- renderers --------------------------------------------------------------------------------
 */

typedef void chat_render_fn(struct chat_job *job, const void *style);

/* Where the system message goes. */
enum chat_system {
    CHAT_SYSTEM_TURN,       /* a turn like the others, anywhere */
    CHAT_SYSTEM_NONE,       /* not as the first message */
    CHAT_SYSTEM_FIRST_USER, /* the first message only, in front of the first user's text */
    CHAT_SYSTEM_LAST_USER,  /* the first message only, in front of the last message if that is the
                               user's */
    CHAT_SYSTEM_COLLECT,    /* all of them, joined, before the turns */
};

enum chat_turn_flag {
    CHAT_ONE_SYSTEM = 32,   /* a system message only as the first */
    CHAT_CHANNELS = 64,     /* gpt-oss: answers must not hold channel tags, and the last one ends in
                             * last_assistant only where no answer is asked for */
    CHAT_TRIM = 1,          /* texts are stripped of white space */
    CHAT_ALTERNATE = 2,     /* after the system message user and assistant take turns, user first */
    CHAT_ALWAYS_PROMPT = 4, /* the generation prompt comes whether it was asked for or not */
    CHAT_PROMPT_IN_LOOP =
        8, /* no generation prompt where there is no turn besides the system message */
    CHAT_EMPTY_IS_NONE = 16, /* an empty first system message counts as missing */
};

/* Templates that write one turn after the other. */
struct chat_turns {
    const char *head;               /* before everything */
    const char *no_system;          /* then, where the first message is not the system's */
    const char *no_system_thinking; /* the same with thinking on; NULL: no_system */
    const char
        *first_system; /* opening of a system message that comes first; NULL: open[CHAT_SYSTEM] */
    const char *open[CHAT_ROLES];
    const char *close[CHAT_ROLES];
    const char
        *last_assistant; /* closing of an assistant's turn that is the last; NULL: as the others */
    const char *joint;   /* between a merged system text and what follows */
    const char *prompt;  /* the opening of the answer */
    enum chat_system system;
    unsigned flags;
};
void chat_render_turns(struct chat_job *job, const void *style);

enum chat_think_flag {
    CHAT_THINK_TRIM =
        1, /* texts are stripped, a user message must exist, one system message at most (3.5) */
    CHAT_THINK_LAST =
        2, /* past the last question: a thinking block in the last turn, or where there was one */
    CHAT_THINK_PRESENT = 4, /* past the last question: a thinking block where there was one */
    CHAT_THINK_EVERY = 8,   /* past the last question: always a thinking block */
};

/* The Qwen3 line: ChatML that drops the thinking of answers before the last question. */
struct chat_think {
    unsigned flags;
    const char *prompt[3]; /* after the opening of the answer, for thinking -1, 0, 1 */
};
void chat_render_think(struct chat_job *job, const void *style);

struct sl_chat_template {
    const char *name;
    chat_render_fn *render;
    const void *style;
};
extern const struct sl_chat_template chat_templates[];
extern const uint32_t chat_templates_count;

/* ---- recognition ------------------------------------------------------------------------------
 */

/* What identifies a template: its tokens, hashed. */
struct chat_print {
    uint64_t hash;   /* FNV-1a, 64 bits */
    uint64_t length; /* bytes that were hashed */
};

/* The fingerprint of a Jinja source; false where the source uses something this reader does not
 * know. */
bool chat_fingerprint(struct sl_str source, struct chat_print *out);

#endif
