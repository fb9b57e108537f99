/* Byte-level BPE: the merges of a vocabulary, and the ids of a text without added tokens.
 *
 * Stored texts write every byte as one printable character (OpenAI's GPT-2 encoder: the printable
 * bytes of Latin-1 stand for themselves, the others for U+0100 and up in order). A merge counts
 * where both sides and the product are tokens; the others are dropped at open, so that the index of
 * a merge is its rank and ids are all that merging needs. Of a pair that is listed twice the first
 * counts. Bytes that are not well-formed UTF-8 bypass expressions and merges: each becomes the
 * token of that byte. */
#include "engine/text/tokenizer_internal.h"

#include <string.h>

#include "base/utf8.h"

#define WHOLE_PIECE_BYTES_MAX 512 /* longest stored text that is looked up as a whole */

/* ---- bytes as characters --------------------------------------------------------------------- */

static bool stands_for_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

static void fill_byte_chars(struct byte_char table[256])
{
    unsigned other = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        unsigned point = stands_for_itself(b) ? b : other++;
        if (point < 0x80)
            table[b] = (struct byte_char){1, {(char)point, 0}};
        else
            table[b] =
                (struct byte_char){2, {(char)(0xc0 | point >> 6), (char)(0x80 | (point & 0x3f))}};
    }
}

/* byte + 1 by code point; 0: stands for no byte. All are below 0x144. */
static void invert(const struct byte_char chars[256], uint16_t byte_of[0x144])
{
    memset(byte_of, 0, 0x144 * sizeof *byte_of);
    for (unsigned b = 0; b < 256; b++) {
        const unsigned char *p = (const unsigned char *)chars[b].p;
        unsigned point = chars[b].n == 1 ? p[0] : (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
        byte_of[point] = (uint16_t)(b + 1);
    }
}

/* The bytes that a stored text stands for, in out (as long as the text). Returns their number, or
 * -1 where a character stands for none. */
static int64_t decode_text(const uint16_t byte_of[0x144], struct sl_str text, char *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.n;) {
        unsigned c = (unsigned char)text.p[i++];
        if (c >= 0xc0 && c < 0xe0 && i < text.n)
            c = (c & 0x1fu) << 6 | ((unsigned char)text.p[i++] & 0x3fu);
        if (c >= 0x144 || byte_of[c] == 0) return -1;
        out[n++] = (char)(byte_of[c] - 1);
    }
    return n;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Output forms: normal tokens decoded (as they are, where that is impossible), added ones as they
 * are. */
static sluice_err add_pieces(struct sl_tokenizer *t, const uint16_t byte_of[0x144], sluice_error *e)
{
    struct vocab_table *v = &t->vocab;
    char *piece = sl_alloc(t->budget, v->text_bytes_max, 1);
    if (piece == NULL) return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    sluice_err err = SLUICE_OK;
    for (int pass = 0; pass < 2 && err == SLUICE_OK; pass++) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < v->n; i++) {
            struct sl_str text = vocab_text(v, (int32_t)i);
            bool raw = v->kinds[i] == SL_TOKEN_CONTROL || v->kinds[i] == SL_TOKEN_USER_DEFINED ||
                       v->kinds[i] == SL_TOKEN_UNKNOWN;
            int64_t n = raw ? -1 : decode_text(byte_of, text, piece);
            if (n >= 0) text = (struct sl_str){piece, (size_t)n};
            bytes += text.n;
            if (pass == 1) vocab_table_add_piece(v, text.p, (uint32_t)text.n);
        }
        if (pass == 0) err = vocab_table_begin_pieces(v, bytes, t->budget, e);
    }
    sl_free(piece);
    return err;
}

/* Whether plain text may become this token: whatever a file says, text is never merged into a
 * control token. */
static bool is_plain(const struct vocab_table *v, int32_t id)
{
    return v->kinds[id] != SL_TOKEN_CONTROL && v->kinds[id] != SL_TOKEN_UNKNOWN;
}

/* A slot of the table of merges holds index + 1 and, above it, some bits of the hash. */
#define SLOT_INDEX_BITS 24

static uint64_t pair_hash(int32_t left, int32_t right)
{
    return hash_u64((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}
static uint32_t slot_tag(uint64_t hash) { return (uint32_t)hash << SLOT_INDEX_BITS; }
static uint32_t slot_index(uint32_t slot) { return (slot & ((1u << SLOT_INDEX_BITS) - 1)) - 1; }
static bool tag_differs(uint32_t slot, uint32_t tag)
{
    return (slot ^ tag) >> SLOT_INDEX_BITS != 0;
}

/* Looks the text of a merge up: "left right", split at the first space that makes both sides tokens
 * (a space within a token does not occur in byte-level texts, but costs nothing to allow for). */
static bool parse_merge(const struct vocab_table *v, struct sl_str s, char *joined,
                        struct merge_entry *out)
{
    for (size_t i = 1; i + 1 < s.n; i++) {
        if (s.p[i] != ' ') continue;
        struct sl_str left = {s.p, i}, right = {s.p + i + 1, s.n - i - 1};
        out->left = vocab_find(v, left);
        out->right = out->left >= 0 ? vocab_find(v, right) : -1;
        if (out->right < 0) continue;
        if (left.n + right.n > v->text_bytes_max) return false;
        memcpy(joined, left.p, left.n);
        memcpy(joined + left.n, right.p, right.n);
        out->merged = vocab_find(v, (struct sl_str){joined, left.n + right.n});
        return out->merged >= 0 && is_plain(v, out->merged);
    }
    return false;
}

/* Adds a merge; one whose pair is there already is ignored. False: too many collisions. */
static bool insert_merge(struct bpe *b, const struct merge_entry *m)
{
    uint64_t hash = pair_hash(m->left, m->right);
    uint32_t i = hash_reduce(hash, b->n_slots);
    for (uint32_t probes = 0; probes < HASH_PROBES_MAX; probes++) {
        uint32_t slot = b->slots[i];
        if (slot == 0) {
            b->merges[b->n_merges] = *m;
            b->slots[i] = slot_tag(hash) | ++b->n_merges;
            return true;
        }
        const struct merge_entry *have = &b->merges[slot_index(slot)];
        if (have->left == m->left && have->right == m->right) return true;
        if (++i == b->n_slots) i = 0;
    }
    return false;
}

sluice_err bpe_add_merges(struct sl_tokenizer *t, const struct sl_vocab *v, sluice_error *e)
{
    struct bpe *b = &t->bpe;
    if (v->n_merges > MERGES_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "the vocabulary has %u merges; at most %u are supported",
                       v->n_merges, MERGES_MAX);
    b->n_slots = v->n_merges + v->n_merges / 2 + 1;
    b->merges = sl_alloc(t->budget, v->n_merges, sizeof *b->merges);
    b->slots = sl_alloc(t->budget, b->n_slots, sizeof *b->slots);
    char *joined = sl_alloc(t->budget, t->vocab.text_bytes_max, 1);
    sluice_err err = SLUICE_OK;
    if (b->merges == NULL || b->slots == NULL || joined == NULL)
        err = tokenizer_no_memory(e, SLUICE_E_BUDGET, "the merges");
    for (uint32_t i = 0; i < v->n_merges && err == SLUICE_OK; i++) {
        struct merge_entry m;
        if (!parse_merge(&t->vocab, v->merges[i], joined, &m)) continue;
        if (!insert_merge(b, &m))
            err = sl_fail(e, SLUICE_E_FORMAT, "the merges all fall into a few hash values");
    }
    sl_free(joined);
    return err;
}

sluice_err bpe_open(struct sl_tokenizer *t, const struct sl_vocab *v, sluice_error *e)
{
    const struct byte_char *chars = t->byte_chars;
    uint16_t byte_of[0x144];
    fill_byte_chars(t->byte_chars);
    invert(chars, byte_of);
    uint32_t found = 0;
    for (unsigned b = 0; b < 256; b++) {
        t->byte_ids[b] = vocab_find(&t->vocab, (struct sl_str){chars[b].p, chars[b].n});
        found += t->byte_ids[b] >= 0;
    }
    if (found == 0)
        return sl_fail(e, SLUICE_E_FORMAT, "the vocabulary has no tokens for single bytes");
    sluice_err err = pretok_open(v->pre, t->budget, e, &t->pretok);
    if (err == SLUICE_OK) err = add_pieces(t, byte_of, e);
    if (err == SLUICE_OK) err = bpe_add_merges(t, v, e);
    if (err != SLUICE_OK) return err;
    unsigned flags = pretok_flags(t->pretok);
    t->nfc = (flags & PRETOK_NFC) != 0;
    t->ignore_merges = (flags & PRETOK_IGNORE_MERGES) != 0;
    t->add_bos = (flags & PRETOK_ADD_BOS) != 0;
    return SLUICE_OK;
}

void bpe_close(struct bpe *b)
{
    sl_free(b->merges);
    sl_free(b->slots);
    *b = (struct bpe){0};
}

uint64_t bpe_bytes(const struct bpe *b)
{
    return (uint64_t)b->n_merges * sizeof *b->merges + (uint64_t)b->n_slots * sizeof *b->slots;
}

/* ---- encoding -------------------------------------------------------------------------------- */

bool bpe_join(const void *user, const struct symbol *a, const struct symbol *b, uint32_t b_end,
              uint32_t *rank, int32_t *merged)
{
    (void)b_end;
    const struct bpe *m = user;
    uint64_t hash = pair_hash(a->id, b->id);
    uint32_t tag = slot_tag(hash);
    uint32_t i = hash_reduce(hash, m->n_slots);
    for (uint32_t slot; (slot = m->slots[i]) != 0;) {
        const struct merge_entry *have = &m->merges[slot_index(slot)];
        if (!tag_differs(slot, tag) && have->left == a->id && have->right == b->id) {
            *rank = slot_index(slot);
            *merged = have->merged;
            return true;
        }
        if (++i == m->n_slots) i = 0;
    }
    return false;
}

/* The token whose bytes are piece, or -1. */
static int32_t whole_piece(const struct sl_tokenizer *t, struct sl_str piece)
{
    char text[WHOLE_PIECE_BYTES_MAX];
    size_t n = 0;
    if (2 * piece.n > sizeof text || piece.n > t->vocab.text_bytes_max) return -1;
    for (size_t i = 0; i < piece.n; i++) {
        const struct byte_char *c = &t->byte_chars[(unsigned char)piece.p[i]];
        text[n] = c->p[0];
        text[n + 1] = c->p[1];
        n += c->n;
    }
    int32_t id = vocab_find(&t->vocab, (struct sl_str){text, n});
    return id >= 0 && is_plain(&t->vocab, id) ? id : -1;
}

static sluice_err merge_piece(struct encoder *c, struct sl_str piece)
{
    const struct sl_tokenizer *t = c->t;
    uint32_t n = (uint32_t)piece.n;
    sluice_err err = merger_reserve(&c->merger, n);
    if (err != SLUICE_OK) return tokenizer_no_memory(c->e, err, "merging");
    struct symbol *symbols = c->merger.symbols;
    for (uint32_t i = 0; i < n; i++) {
        symbols[i].id = t->byte_ids[(unsigned char)piece.p[i]];
        symbols[i].at = i;
    }
    merger_run(&c->merger, n, n, bpe_join, &t->bpe);
    for (uint32_t i = 0; i < n && err == SLUICE_OK; i = symbols[i].next)
        err = symbols[i].id >= 0 ? encoder_push(c, symbols[i].id)
                                 : encoder_push_byte(c, (uint8_t)piece.p[i]);
    return err;
}

static sluice_err encode_piece(struct encoder *c, struct sl_str piece)
{
    if (piece.n == 1) return encoder_push_byte(c, (uint8_t)piece.p[0]);
    bool hit;
    sluice_err err = encoder_push_cached(c, piece, &hit);
    if (hit) return err;
    uint64_t first = c->out->count;
    int32_t id = c->t->ignore_merges ? whole_piece(c->t, piece) : -1;
    err = id >= 0 ? encoder_push(c, id) : merge_piece(c, piece);
    if (err == SLUICE_OK)
        word_cache_put(&c->cache, piece, c->out->ids + first, c->out->count - first);
    return err;
}

/* text: well-formed UTF-8, not empty. */
static sluice_err encode_valid(struct encoder *c, struct sl_str text)
{
    sluice_err err = SLUICE_OK;
    if (c->t->nfc) err = normalize_nfc(&c->normalizer, text, &text, c->e);
    if (err == SLUICE_OK && !c->scanning) {
        err = pretok_scan_init(&c->scan, c->t->pretok, c->e);
        c->scanning = err == SLUICE_OK;
    }
    if (err != SLUICE_OK) return err;
    pretok_scan_start(&c->scan, text);
    for (;;) {
        struct sl_str piece;
        err = pretok_scan_next(&c->scan, &piece, c->e);
        if (err != SLUICE_OK || piece.n == 0) return err;
        err = encode_piece(c, piece);
        if (err != SLUICE_OK) return err;
    }
}

/* Bytes of well-formed UTF-8 at the start of text. */
static size_t valid_prefix(struct sl_str text)
{
    size_t at = 0;
    while (at < text.n) {
        uint64_t word;
        while (at + 8 <= text.n &&
               (memcpy(&word, text.p + at, 8), (word & 0x8080808080808080ull) == 0))
            at += 8;
        if (at == text.n) break;
        size_t n = sl_utf8_char_bytes((struct sl_str){text.p + at, text.n - at});
        if (n == 0) break;
        at += n;
    }
    return at;
}

sluice_err bpe_encode(struct encoder *c, struct sl_str text)
{
    sluice_err err = SLUICE_OK;
    while (text.n > 0 && err == SLUICE_OK) {
        size_t n = valid_prefix(text);
        if (n > 0)
            err = encode_valid(c, (struct sl_str){text.p, n});
        else
            err = encoder_push_byte(c, (uint8_t)text.p[0]);
        if (n == 0) n = 1;
        text.p += n;
        text.n -= n;
    }
    return err;
}
