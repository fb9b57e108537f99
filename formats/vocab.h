/* A vocabulary as a model file describes it, format-neutral: the tokenizer is built from this. All
 * views are borrowed from the open file and may go once the tokenizer is built (it copies). */
#ifndef SL_VOCAB_H
#define SL_VOCAB_H

#include "base/base.h"

/* Token kinds, numbered as tokenizer.ggml.token_type is. */
enum sl_token_kind {
    SL_TOKEN_UNDEFINED = 0,
    SL_TOKEN_NORMAL = 1,
    SL_TOKEN_UNKNOWN = 2,
    SL_TOKEN_CONTROL = 3,
    SL_TOKEN_USER_DEFINED = 4,
    SL_TOKEN_UNUSED = 5,
    SL_TOKEN_BYTE = 6,
};

/* -1 in any id below means that the file names none. */
struct sl_vocab {
    struct sl_str model; /* tokenizer.ggml.model: "gpt2", "llama", ... */
    struct sl_str pre;   /* tokenizer.ggml.pre; empty: not given */
    uint32_t n_tokens;
    const struct sl_str *tokens; /* [n_tokens] as stored: gpt2 models write printable characters */
    const float *scores;         /* [n_tokens], or NULL */
    const uint8_t *kinds;        /* [n_tokens] enum sl_token_kind, or NULL: all normal */
    uint32_t n_merges;
    const struct sl_str *merges; /* [n_merges] "left right", in rank order; NULL where none */
    int32_t bos_id, eos_id, eot_id, eom_id, unk_id, pad_id, sep_id;
    uint32_t n_eog_ids; /* tokenizer.ggml.eos_token_ids, where a file has several */
    const int32_t *eog_ids;
    /* Three-valued: -1 not given, else 0 or 1. */
    int8_t add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
    struct sl_str chat_template; /* empty: none */
};

#endif
