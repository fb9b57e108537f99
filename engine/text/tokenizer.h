/* Text to token ids and back, for byte-level BPE (tokenizer.ggml.model "gpt2") and
 * SentencePiece-style BPE ("llama", and Gemma's variants), built from a vocabulary description.
 *
 * BPE: the exact pre-tokenizer of tokenizer.ggml.pre splits the text (PCRE2, on the heap), then the
 * lowest-rank merge is applied until none is left, O(n log n) with a heap, no recursion. An unknown
 * pre-tokenizer is SLUICE_E_UNSUPPORTED that lists the known ones; never a fallback. SentencePiece:
 * spaces become U+2581, the best-scored pair is merged, bytes without a token fall back to <0xXX>.
 * A megabyte of one character takes a second or so and 128 KiB of stack.
 *
 * Thread: encode, decode and look-ups are pure and may run on several threads; open and close may
 * not. */
#ifndef SL_TOKENIZER_H
#define SL_TOKENIZER_H

#include "base/mem.h"
#include "formats/vocab.h"

struct sl_tokenizer;

/* A growable list of token ids. Start with zeros and a budget; free with sl_ids_deinit. */
struct sl_ids {
    struct sl_budget *budget;
    int32_t *ids;
    uint64_t count, capacity;
};
SL_MUST_CHECK sluice_err sl_ids_push(struct sl_ids *l, int32_t id);
/* Room for n ids in all. */
SL_MUST_CHECK sluice_err sl_ids_reserve(struct sl_ids *l, uint64_t n);
void sl_ids_deinit(struct sl_ids *l);

/* Builds the tokenizer; copies what it needs from v. Errors: SLUICE_E_UNSUPPORTED (model or
 * pre-tokenizer not known, with the known names), SLUICE_E_FORMAT (a vocabulary that cannot work,
 * e.g. merges of unknown tokens are fine and skipped, but no byte tokens are not), SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_tokenizer_open(const struct sl_vocab *v, struct sl_budget *b,
                                           sluice_error *e, struct sl_tokenizer **out);
void sl_tokenizer_close(struct sl_tokenizer *t);

enum sl_encode_flag {
    SL_ENCODE_SPECIAL = 1, /* text of control tokens becomes their id (template text); without it
                              only user-defined tokens are matched */
    SL_ENCODE_BOS = 2,     /* add BOS and EOS as the vocabulary asks; exactly one BOS: not where the
                              text already began with it */
};

/* Appends the ids of text (any bytes; invalid UTF-8 is encoded byte by byte and comes back the
 * same). Errors: SLUICE_E_LIMIT (text above 1 GiB), SLUICE_E_BUDGET, SLUICE_E_NOMEM,
 * SLUICE_E_FORMAT (SentencePiece: a byte with neither token nor unknown token). Bytes that a
 * byte-level vocabulary has no token for are left out, as the references do: some vocabularies lack
 * bytes that UTF-8 rarely or never has. */
SL_MUST_CHECK sluice_err sl_tokenizer_encode(const struct sl_tokenizer *t, struct sl_str text,
                                             unsigned flags, struct sl_ids *out, sluice_error *e);

/* The same for a rendered chat: the whole text goes through the tokenizer at once, so that the ids
 * are those of the text in one piece, but bytes of messages never become (part of) a control token.
 */
struct sl_chat_span;
struct sl_encode_request {
    struct sl_str text;
    unsigned flags;                   /* enum sl_encode_flag */
    const struct sl_chat_span *plain; /* [n_plain] in order, not overlapping: bytes of messages */
    uint32_t n_plain;
};
SL_MUST_CHECK sluice_err sl_tokenizer_encode_request(const struct sl_tokenizer *t,
                                                     const struct sl_encode_request *r,
                                                     struct sl_ids *out, sluice_error *e);

uint32_t sl_tokenizer_size(const struct sl_tokenizer *t);
/* The bytes a token stands for in output: "" for control and unknown ids unless special is set,
 * then the token's own text. SentencePiece tokens have U+2581 turned into a space; stripping the
 * leading space of a whole text (where add_space_prefix is set) is up to sl_detok. The view lives
 * as long as t. id outside the vocabulary: "". */
struct sl_str sl_tokenizer_piece(const struct sl_tokenizer *t, int32_t id, bool special);
/* As stored in the file, for listings. */
struct sl_str sl_tokenizer_text(const struct sl_tokenizer *t, int32_t id);

/* The id of the control or user-defined token with that text, -1 where there is none. */
int32_t sl_tokenizer_find(const struct sl_tokenizer *t, struct sl_str text);

int32_t sl_tokenizer_bos(const struct sl_tokenizer *t); /* -1: none */
int32_t sl_tokenizer_eos(const struct sl_tokenizer *t); /* -1: none */
bool sl_tokenizer_adds_bos(const struct sl_tokenizer *t);
/* End of generation: EOS, EOT, EOM, the file's list, and the well-known control tokens that end a
 * turn (<|im_end|>, <|endoftext|>, <|eot_id|>, <|end_of_text|>, <end_of_turn>, <|return|>,
 * <|call|>, <|end|> ... as far as the vocabulary has them as control tokens; <|end|> only where it
 * does not merely end a message within a turn, as it does in gpt-oss). */
bool sl_tokenizer_is_eog(const struct sl_tokenizer *t, int32_t id);
/* "gpt2/qwen2", "llama"; for the information printed at start. */
const char *sl_tokenizer_name(const struct sl_tokenizer *t);
uint64_t sl_tokenizer_bytes(const struct sl_tokenizer *t); /* memory it holds */

/* ---- streaming decode ------------------------------------------------------------------------ */

/* Turns ids into text that never ends inside a UTF-8 sequence: an incomplete tail is held back
 * until it is complete, proven invalid, or the end. Invalid bytes pass through unchanged (the text
 * is the model's, not ours to repair). */
struct sl_detok {
    const struct sl_tokenizer *tok;
    bool special; /* print control tokens as text */
    bool started; /* false: a leading space may still have to go; set it to continue a text */
    uint8_t held[4];
    uint32_t n_held;
};
void sl_detok_init(struct sl_detok *d, const struct sl_tokenizer *t, bool special);
/* Appends what became printable to buf (capacity size; a piece plus 4 bytes always suffices; see
 * sl_detok_max). Returns the bytes written. */
size_t sl_detok_push(struct sl_detok *d, int32_t id, char *buf, size_t size);
/* What is still held, at the end. At most 3 bytes. */
size_t sl_detok_flush(struct sl_detok *d, char *buf, size_t size);
/* A buffer of this many bytes suffices for any single push. */
size_t sl_detok_max(const struct sl_tokenizer *t);

#endif
