/* SentencePiece-style BPE: a space is U+2581, the neighbours whose joined text is the best-scored
 * token are joined first, and a character without a token becomes one token a byte. Gemma 4 writes
 * its texts like that too, but joins by ranked merges.
 *
 * In such vocabularies U+2581 stands at the beginning of tokens (after others of its kind at most),
 * with few exceptions (Gemma 3 has one: ">", U+2581, "</"). No merge crosses the border before a
 * space unless some token has that space after that character, so the text is cut into words there
 * and each is merged on its own: the same ids, with small heaps, and words that were seen before
 * need no merging. Text is never merged into a control, unknown or byte token, whatever their texts
 * say. */
#include "engine/text/tokenizer_internal.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_mergeable(uint8_t kind)
{
    return kind != SL_TOKEN_CONTROL && kind != SL_TOKEN_UNKNOWN && kind != SL_TOKEN_BYTE;
}

/* Scores to ranks: the higher the score, the lower the rank, for all floats in order; NaN comes
 * last, -0 equals 0. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score = isnan(score) ? -INFINITY : score + 0.0f;
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

/* 0..15, or -1. */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte that "<0x41>" names, or -1. */
static int named_byte(struct sl_str text)
{
    if (text.n != 6 || !sl_str_starts(text, "<0x") || text.p[5] != '>') return -1;
    int high = hex_digit(text.p[3]), low = hex_digit(text.p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool is_mark(struct sl_str text, size_t at)
{
    return at + SPACE_MARK_BYTES <= text.n &&
           memcmp(text.p + at, SPACE_MARK, SPACE_MARK_BYTES) == 0;
}

/* What a token stands for in output, in out (as long as its text). */
static uint32_t output_form(struct sl_str text, uint8_t kind, char *out)
{
    int byte = kind == SL_TOKEN_BYTE ? named_byte(text) : -1;
    if (byte >= 0) {
        out[0] = (char)byte;
        return 1;
    }
    bool raw =
        kind == SL_TOKEN_CONTROL || kind == SL_TOKEN_USER_DEFINED || kind == SL_TOKEN_UNKNOWN;
    uint32_t n = 0;
    for (size_t i = 0; i < text.n;) {
        bool mark = !raw && is_mark(text, i);
        out[n++] = mark ? ' ' : text.p[i];
        i += mark ? SPACE_MARK_BYTES : 1;
    }
    return n;
}

static sluice_err add_pieces(struct sl_tokenizer *t, sluice_error *e)
{
    struct vocab_table *v = &t->vocab;
    char *piece = sl_alloc(t->budget, v->text_bytes_max, 1);
    if (piece == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < v->n; i++)
        bytes += output_form(vocab_text(v, (int32_t)i), v->kinds[i], piece);
    sluice_err err = vocab_table_begin_pieces(v, bytes, t->budget, e);
    for (uint32_t i = 0; i < v->n && err == SLUICE_OK; i++)
        vocab_table_add_piece(v, piece, output_form(vocab_text(v, (int32_t)i), v->kinds[i], piece));
    sl_free(piece);
    return err;
}

/* Notes the bytes that U+2581 follows within a token, other than its own. */
static void find_glue(struct sl_tokenizer *t, struct sl_str text)
{
    bool other = false; /* the character before is not a mark */
    for (size_t i = 0; i < text.n;) {
        bool mark = is_mark(text, i);
        if (mark && other) t->spm_glue[(unsigned char)text.p[i - 1]] = true;
        other = !mark;
        i += mark ? SPACE_MARK_BYTES : 1;
    }
}

static void find_byte_tokens(struct sl_tokenizer *t)
{
    static const char digits[] = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; b++) {
        const char name[6] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        t->byte_ids[b] = vocab_find(&t->vocab, (struct sl_str){name, sizeof name});
    }
}

static sluice_err add_ranks(struct sl_tokenizer *t, const struct sl_vocab *v, sluice_error *e)
{
    if (v->scores == NULL)
        return sl_fail(
            e, SLUICE_E_FORMAT,
            "the vocabulary has no scores (tokenizer.ggml.scores), which tokenizer model "
            "\"llama\" needs");
    t->ranks = sl_alloc(t->budget, v->n_tokens, sizeof *t->ranks);
    if (t->ranks == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    for (uint32_t i = 0; i < v->n_tokens; i++) t->ranks[i] = rank_of(v->scores[i]);
    return SLUICE_OK;
}

sluice_err spm_open(struct sl_tokenizer *t, const struct sl_vocab *v, sluice_error *e)
{
    t->is_spm = true;
    t->add_bos = true;
    t->add_space_prefix = t->spm_ranked ? v->add_space_prefix > 0 : v->add_space_prefix != 0;
    bool can_encode = t->unk_id >= 0;
    find_byte_tokens(t);
    for (unsigned b = 0; b < 256; b++) can_encode |= t->byte_ids[b] >= 0;
    if (!can_encode)
        return sl_fail(e, SLUICE_E_FORMAT,
                       "the vocabulary has neither byte tokens (<0x00> ...) nor an unknown token");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (is_mergeable(t->vocab.kinds[i])) find_glue(t, vocab_text(&t->vocab, (int32_t)i));
    }
    sluice_err err = t->spm_ranked ? bpe_add_merges(t, v, e) : add_ranks(t, v, e);
    return err == SLUICE_OK ? add_pieces(t, e) : err;
}

/* ---- encoding -------------------------------------------------------------------------------- */

struct word {
    const struct sl_tokenizer *t;
    const char *p;
};

static bool join_text(const void *user, const struct symbol *a, const struct symbol *b,
                      uint32_t b_end, uint32_t *rank, int32_t *merged)
{
    (void)b;
    const struct word *w = user;
    int32_t id = vocab_find(&w->t->vocab, (struct sl_str){w->p + a->at, b_end - a->at});
    if (id < 0 || !is_mergeable(w->t->vocab.kinds[id])) return false;
    *rank = w->t->ranks[id];
    *merged = id;
    return true;
}

/* -1: none */
static int32_t character_id(const struct sl_tokenizer *t, struct sl_str character)
{
    int32_t id = vocab_find(&t->vocab, character);
    return id >= 0 && is_mergeable(t->vocab.kinds[id]) ? id : -1;
}

/* A symbol that was never merged: the token of the character, or those of its bytes. */
static sluice_err push_character(struct encoder *c, struct sl_str character)
{
    int32_t id = character_id(c->t, character);
    if (id >= 0) return encoder_push(c, id);
    sluice_err err = SLUICE_OK;
    for (size_t i = 0; i < character.n && err == SLUICE_OK; i++)
        err = encoder_push_byte(c, (uint8_t)character.p[i]);
    return err;
}

/* The characters of a word as symbols; a byte that is not well-formed UTF-8 is one of its own.
 * Returns their number. By rank, ids are joined; by score, texts. */
static uint32_t fill_symbols(const struct sl_tokenizer *t, struct sl_str word,
                             struct symbol *symbols)
{
    uint32_t n = 0, at = 0;
    while (at < word.n) {
        size_t step = sl_utf8_char_bytes((struct sl_str){word.p + at, word.n - at});
        if (step == 0) step = 1;
        symbols[n].id = t->spm_ranked ? character_id(t, (struct sl_str){word.p + at, step}) : -1;
        symbols[n++].at = at;
        at += (uint32_t)step;
    }
    return n;
}

/* Merges what c->word holds and empties it. */
static sluice_err encode_word(struct encoder *c)
{
    struct sl_str s = {c->word.p, c->word.n};
    struct word w = {c->t, s.p};
    uint32_t bytes = (uint32_t)s.n;
    uint64_t first = c->out->count;
    bool hit;
    sluice_err err = encoder_push_cached(c, s, &hit);
    c->word.n = 0;
    if (hit) return err;
    err = merger_reserve(&c->merger, bytes);
    if (err != SLUICE_OK) return tokenizer_no_memory(c->e, err, "merging");
    struct symbol *symbols = c->merger.symbols;
    uint32_t n = fill_symbols(c->t, s, symbols);
    if (c->t->spm_ranked)
        merger_run(&c->merger, n, bytes, bpe_join, &c->t->bpe);
    else
        merger_run(&c->merger, n, bytes, join_text, &w);
    for (uint32_t i = 0, next; i < n && err == SLUICE_OK; i = next) {
        next = symbols[i].next;
        uint32_t end = next < n ? symbols[next].at : bytes;
        err = symbols[i].id >= 0
                  ? encoder_push(c, symbols[i].id)
                  : push_character(c, (struct sl_str){s.p + symbols[i].at, end - symbols[i].at});
    }
    if (err == SLUICE_OK) word_cache_put(&c->cache, s, c->out->ids + first, c->out->count - first);
    return err;
}

static sluice_err add_to_word(struct encoder *c, const char *p, size_t n)
{
    sluice_err err = byte_buf_add(&c->word, c->t->budget, p, n);
    return err == SLUICE_OK ? err : tokenizer_no_memory(c->e, err, "the text");
}

sluice_err spm_encode(struct encoder *c, struct sl_str text, bool prefix)
{
    sluice_err err = SLUICE_OK;
    bool splits = false; /* a word may end here */
    c->word.n = 0;
    if (prefix) err = add_to_word(c, SPACE_MARK, SPACE_MARK_BYTES);
    for (size_t i = 0; i < text.n && err == SLUICE_OK;) {
        bool mark = text.p[i] == ' ' || is_mark(text, i);
        if (mark && splits) err = encode_word(c);
        if (err == SLUICE_OK)
            err =
                mark ? add_to_word(c, SPACE_MARK, SPACE_MARK_BYTES) : add_to_word(c, text.p + i, 1);
        splits = !mark && !c->t->spm_glue[(unsigned char)text.p[i]];
        i += mark && text.p[i] != ' ' ? SPACE_MARK_BYTES : 1;
    }
    if (err == SLUICE_OK && c->word.n > 0) err = encode_word(c);
    return err;
}
