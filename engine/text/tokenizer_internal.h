/* What the files of the tokenizer share and nobody else sees.
 *
 * An encode call goes: added tokens are cut out of the text (added_tokens.c), the rest goes to one
 * of two models. Byte-level BPE (bpe.c): normalize (normalize.c), split (pretokenize.c), merge each
 * piece. SentencePiece (spm.c): spaces become U+2581, merge each word. Both merge with the same
 * machine (tokenizer_merge.c) over the same vocabulary (vocab_table.c). */
#ifndef SL_TOKENIZER_INTERNAL_H
#define SL_TOKENIZER_INTERNAL_H

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

/* The byte sequence of U+2581, which SentencePiece writes for a space. */
#define SPACE_MARK "\xe2\x96\x81"
#define SPACE_MARK_BYTES 3

#define TEXT_BYTES_MAX (1ull << 30)       /* of one call to encode */
#define VOCAB_TEXT_BYTES_MAX (1ull << 31) /* all tokens of a vocabulary together */
#define ADDED_TOKEN_BYTES_MAX 1024        /* one token that is matched in raw text */
#define MERGES_MAX ((1u << 24) - 2)       /* of a vocabulary */

/* Entries that may be looked at in a hash table before the vocabulary is refused: a good one stays
 * far below, one that was made to collide would make opening quadratic. */
#define HASH_PROBES_MAX 1024

/* Bytes being put together; grows, keeps its memory from use to use. */
struct byte_buf {
    char *p;
    uint64_t n, capacity;
};
static inline sluice_err byte_buf_add(struct byte_buf *b, struct sl_budget *budget, const char *p,
                                      size_t n)
{
    if (b->n + n > b->capacity) {
        sluice_err err = sl_grow(budget, &b->p, &b->capacity, b->n + n, 1);
        if (err != SLUICE_OK) return err;
    }
    for (size_t i = 0; i < n; i++) b->p[b->n + i] = p[i];
    b->n += n;
    return SLUICE_OK;
}

/* ---- vocab_table.c: tokens by id and by text ------------------------------------------------- */

struct vocab_table {
    uint32_t n;         /* tokens */
    char *text;         /* as stored, one after the other */
    uint32_t *text_at;  /* [n + 1] */
    char *piece;        /* what they stand for in output */
    uint32_t *piece_at; /* [n + 1]; filled by vocab_table_add_piece */
    uint8_t *kinds;     /* [n] enum sl_token_kind */
    uint32_t *slots;    /* [n_slots] id + 1 below bits of the hash, 0: free; open addressing */
    uint32_t n_slots;
    uint32_t text_bytes_max; /* longest stored text */
    uint32_t n_pieces;       /* added so far */
};

SL_MUST_CHECK sluice_err vocab_table_open(struct vocab_table *v, const struct sl_vocab *from,
                                          struct sl_budget *b, sluice_error *e);
void vocab_table_close(struct vocab_table *v);
/* Room for the output forms, bytes in total; then one call per token in order of ids. */
SL_MUST_CHECK sluice_err vocab_table_begin_pieces(struct vocab_table *v, uint64_t bytes,
                                                  struct sl_budget *b, sluice_error *e);
void vocab_table_add_piece(struct vocab_table *v, const char *p, uint32_t n);
struct sl_str vocab_text(const struct vocab_table *v, int32_t id);
struct sl_str vocab_piece(const struct vocab_table *v, int32_t id);
/* -1 where no token has this text; where several have, the last. */
int32_t vocab_find(const struct vocab_table *v, struct sl_str text);
uint64_t vocab_table_bytes(const struct vocab_table *v);

/* A hash of n bytes. */
uint64_t hash_bytes(const char *p, size_t n);
uint64_t hash_u64(uint64_t x);
/* Maps a hash to 0..n-1. */
static inline uint32_t hash_reduce(uint64_t hash, uint32_t n)
{
    return (uint32_t)(((hash >> 32) * n) >> 32);
}

/* ---- tokenizer_merge.c: joining neighbours, best first --------------------------------------- */

/* A piece of a word that is being merged. */
struct symbol {
    int32_t id;     /* -1: no token */
    uint32_t at;    /* bytes from the start of the word; it ends where the next one starts */
    uint32_t prev;  /* index */
    uint32_t next;  /* index; the number of symbols: none */
    uint32_t rank;  /* of joining it with the next one, lowest first */
    int32_t merged; /* the token that would give; -1: they do not join */
};

struct merger {
    struct sl_budget *budget;
    struct symbol *symbols;
    uint64_t symbols_capacity;
    uint64_t *heap; /* rank << 32 | index: lowest rank first, leftmost first among equals */
    uint64_t heap_capacity;
    uint32_t n, n_heap;
};

/* Whether a, which ends where b starts, and b, which ends at b_end, can be joined, and into what.
 */
typedef bool join_fn(const void *user, const struct symbol *a, const struct symbol *b,
                     uint32_t b_end, uint32_t *rank, int32_t *merged);

/* Room for n symbols. The caller then fills id and at of symbols[0..n-1] and calls merger_run,
 * after which following next from symbol 0 gives the result. */
SL_MUST_CHECK sluice_err merger_reserve(struct merger *m, uint32_t n);
void merger_run(struct merger *m, uint32_t n, uint32_t bytes, join_fn *join, const void *user);
void merger_deinit(struct merger *m);

/* ---- pretokenize.c: splitting by regular expression ------------------------------------------ */

enum pretok_flag {
    PRETOK_NFC = 1,           /* the tokenizer normalizes to NFC first */
    PRETOK_IGNORE_MERGES = 2, /* a piece that is a token is taken whole, without merging */
    PRETOK_ADD_BOS = 4,       /* BOS is added where the file does not say */
};

#define PRETOK_STEPS_MAX 6

/* One pre-tokenizer of the table in pretokenize_table.c. */
struct pretok_kind {
    const char *name;
    const char *aliases; /* separated by single spaces */
    const char *steps[PRETOK_STEPS_MAX];
    unsigned flags;
};
extern const struct pretok_kind pretok_kinds[];
extern const uint32_t pretok_n_kinds;

struct pretok;

/* name as in tokenizer.ggml.pre. SLUICE_E_UNSUPPORTED names it and lists the known ones. */
SL_MUST_CHECK sluice_err pretok_open(struct sl_str name, struct sl_budget *b, sluice_error *e,
                                     struct pretok **out);
void pretok_close(struct pretok *p);
unsigned pretok_flags(const struct pretok *p);
uint64_t pretok_bytes(const struct pretok *p);

/* One walk over a text: the pieces in order, which together are the text. */
struct pretok_level {
    const char *p;        /* the piece of the level above */
    uint32_t n, at;       /* its bytes; how many are done */
    uint32_t match_begin; /* a match found ahead of at; match_begin == match_end: none */
    uint32_t match_end;
};
struct pretok_scan {
    const struct pretok *pretok;
    void *match_data; /* PCRE2's, owned */
    struct pretok_level levels[PRETOK_STEPS_MAX];
    uint32_t depth; /* levels in use */
};
SL_MUST_CHECK sluice_err pretok_scan_init(struct pretok_scan *s, const struct pretok *p,
                                          sluice_error *e);
void pretok_scan_deinit(struct pretok_scan *s);
/* Starts on text: well-formed UTF-8, not empty. */
void pretok_scan_start(struct pretok_scan *s, struct sl_str text);
/* The next piece, or an empty one at the end. */
SL_MUST_CHECK sluice_err pretok_scan_next(struct pretok_scan *s, struct sl_str *piece,
                                          sluice_error *e);

/* ---- normalize.c: NFC ------------------------------------------------------------------------ */

struct normalizer {
    struct sl_budget *budget;
    int32_t *points; /* code points of one stretch */
    uint64_t points_capacity;
    struct byte_buf out;
};

/* text in NFC: text itself where it already is, else a view of n->out, valid until the next call.
 * text is well-formed UTF-8. */
SL_MUST_CHECK sluice_err normalize_nfc(struct normalizer *n, struct sl_str text, struct sl_str *out,
                                       sluice_error *e);
void normalizer_deinit(struct normalizer *n);

/* ---- added_tokens.c: tokens that are matched in the raw text --------------------------------- */

struct added_tokens {
    int32_t *ids; /* [n] sorted by text */
    uint32_t n;
    uint32_t first[257]; /* first[c]..first[c + 1]: those that begin with byte c */
};

SL_MUST_CHECK sluice_err added_tokens_open(struct added_tokens *a, const struct vocab_table *v,
                                           struct sl_budget *b, sluice_error *e);
void added_tokens_close(struct added_tokens *a);

/* Where added tokens may be looked for. */
struct added_scope {
    bool special; /* control and unknown tokens too */
    const struct sl_chat_span
        *plain; /* [n_plain] in order: no control token may touch these bytes */
    uint32_t n_plain;
};
struct added_match {
    uint64_t at;
    uint32_t n; /* bytes */
    int32_t id;
};
/* The first match at or after from, the longest at its place. */
bool added_tokens_find(const struct added_tokens *a, const struct vocab_table *v,
                       struct sl_str text, uint64_t from, const struct added_scope *scope,
                       struct added_match *out);

/* ---- the two models -------------------------------------------------------------------------- */

/* The merges of a BPE vocabulary. Valid ones only, so that an index is a rank. */
struct merge_entry {
    int32_t left, right, merged;
};
struct bpe {
    struct merge_entry *merges;
    uint32_t n_merges;
    uint32_t *slots; /* [n_slots] index + 1 below bits of the hash, 0: free */
    uint32_t n_slots;
};

/* Byte-level vocabularies write each byte as one printable character: this is the character's
 * UTF-8. */
struct byte_char {
    uint8_t n;
    char p[2];
};

struct sl_tokenizer {
    struct sl_budget *budget;
    struct vocab_table vocab;
    struct added_tokens added;
    bool is_spm;
    bool add_bos, add_eos, add_space_prefix;
    bool ignore_merges, nfc;
    bool spm_glue[256]; /* some token has a space mark after this byte: words that end in it cannot
                           be merged on their own */
    int32_t bos_id, eos_id, unk_id;
    int32_t byte_ids[256]; /* token of a single byte; -1: none */
    struct bpe bpe;
    struct pretok *pretok; /* byte-level only */
    struct byte_char byte_chars[256];
    uint32_t *ranks;   /* SentencePiece only, [n]: of merging into this token, best score lowest */
    bool spm_ranked;   /* SentencePiece's characters, but merged by rank (Gemma 4) */
    uint8_t *eog_bits; /* bit id % 8 of byte id / 8: ends a generation */
    char name[64];
};

/* ---- word_cache.c: words seen before in this text -------------------------------------------- */

#define CACHED_WORD_BYTES 22 /* longest word that is remembered */
#define CACHED_WORD_IDS 6    /* with at most so many ids */

struct cached_word {
    uint8_t n_bytes, n_ids; /* n_bytes 0: free */
    char bytes[CACHED_WORD_BYTES];
    int32_t ids[CACHED_WORD_IDS];
};
struct word_cache {
    struct cached_word *entries; /* NULL: off */
};
/* On for texts that are long enough to repay it, where the budget has room. */
void word_cache_init(struct word_cache *c, uint64_t text_bytes, struct sl_budget *b);
void word_cache_deinit(struct word_cache *c);
/* NULL where the word is not there. */
const struct cached_word *word_cache_find(const struct word_cache *c, struct sl_str word);
/* Remembers the n ids of word in place of another one; does nothing where word or ids are too long.
 */
void word_cache_put(struct word_cache *c, struct sl_str word, const int32_t *ids, uint64_t n);

/* What one encode call needs besides the tokenizer. */
struct encoder {
    const struct sl_tokenizer *t;
    struct sl_ids *out;
    sluice_error *e;
    struct merger merger;
    struct word_cache cache;
    struct byte_buf word;
    struct normalizer normalizer;
    struct pretok_scan scan;
    bool scanning; /* scan is initialized */
};

SL_MUST_CHECK sluice_err bpe_open(struct sl_tokenizer *t, const struct sl_vocab *v,
                                  sluice_error *e);
/* The merges of v, for vocabularies of either kind of text. */
SL_MUST_CHECK sluice_err bpe_add_merges(struct sl_tokenizer *t, const struct sl_vocab *v,
                                        sluice_error *e);
join_fn bpe_join; /* user: struct bpe */
void bpe_close(struct bpe *b);
uint64_t bpe_bytes(const struct bpe *b);
SL_MUST_CHECK sluice_err bpe_encode(struct encoder *c, struct sl_str text);

SL_MUST_CHECK sluice_err spm_open(struct sl_tokenizer *t, const struct sl_vocab *v,
                                  sluice_error *e);
/* prefix: a space mark goes first. */
SL_MUST_CHECK sluice_err spm_encode(struct encoder *c, struct sl_str text, bool prefix);

/* The token of a byte. Where there is none: SentencePiece has the unknown token, or it is an error;
 * a byte-level vocabulary leaves the byte out, as Hugging Face's tokenizers and llama.cpp do
 * (SmolLM2 has no token for some bytes). */
SL_MUST_CHECK sluice_err encoder_push_byte(struct encoder *c, uint8_t byte);
SL_MUST_CHECK sluice_err encoder_push(struct encoder *c, int32_t id);
/* Pushes the ids of a word that was seen before; *hit: it was. */
SL_MUST_CHECK sluice_err encoder_push_cached(struct encoder *c, struct sl_str word, bool *hit);
/* SLUICE_E_BUDGET and SLUICE_E_NOMEM with the sentence for e. */
sluice_err tokenizer_no_memory(sluice_error *e, sluice_err code, const char *what);

/* Marks the tokens that end a generation (tokenizer_eog.c). */
SL_MUST_CHECK sluice_err eog_open(struct sl_tokenizer *t, const struct sl_vocab *v,
                                  sluice_error *e);

#endif
