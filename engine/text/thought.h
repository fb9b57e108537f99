/* An answer divided, as it streams, into what the model thought and what it says.
 *
 * Two forms are known. Tags: an answer that begins with a thought in <think> and </think>; a
 * template may have written the opening tag into the prompt, so that the answer begins inside.
 * Channels (gpt-oss): messages whose header names a channel, of which "final" is the answer. Which
 * one it is the vocabulary says: it has the tags, or the words of the headers, as tokens of their
 * own. Thread: one thread per divider. */
#ifndef SL_THOUGHT_H
#define SL_THOUGHT_H

#include "engine/text/tokenizer.h"

enum sl_thought_form {
    SL_THOUGHT_NONE,     /* all of it is the answer */
    SL_THOUGHT_TAGS,     /* <think> ... </think> answer */
    SL_THOUGHT_CHANNELS, /* <|channel|>name<|message|> ... <|end|> */
};

#define SL_THOUGHT_BLANKS_MAX 16 /* white space that a tag may stand behind */

struct sl_thought {
    enum sl_thought_form form;
    int state;         /* of thought.c */
    bool inside;       /* a missing opening tag means a thought */
    uint32_t n_held;   /* bytes of a tag that may be under way, or of a channel's name */
    uint64_t newlines; /* held back: perhaps the end of the thought */
    uint32_t n_blanks;
    char blanks[SL_THOUGHT_BLANKS_MAX];
};

/* The form of this vocabulary's answers. */
enum sl_thought_form sl_thought_form_of(const struct sl_tokenizer *t);
/* Whether a prompt ends inside a thought: its last token but for white space is <think>. */
bool sl_thought_is_open(const struct sl_tokenizer *t, const int32_t *prompt, uint64_t n);

/* Receives a piece of a thought or of the answer; n > 0. */
typedef void sl_thought_emit_fn(void *user, bool thought, const char *text, size_t n);

/* inside: the prompt ends inside a thought; only tags can. */
void sl_thought_init(struct sl_thought *d, enum sl_thought_form form, bool inside);
/* Feeds text. Tags are never passed on, nor are the line ends around them; bytes that may be the
 * beginning of one are held back. Every other byte is emitted exactly once, in order. */
void sl_thought_push(struct sl_thought *d, struct sl_str text, sl_thought_emit_fn *emit,
                     void *user);
/* Feeds a control token, by its text, which is never passed on. */
void sl_thought_control(struct sl_thought *d, struct sl_str token, sl_thought_emit_fn *emit,
                        void *user);
/* At the end: emits what is held. */
void sl_thought_flush(struct sl_thought *d, sl_thought_emit_fn *emit, void *user);
/* Whether the text so far ends inside a thought, or before the answer's message. */
bool sl_thought_inside(const struct sl_thought *d);

#endif
