/* The tokens of a vocabulary: by id, by text, and as the bytes they stand for.
 *
 * Compact on purpose, since it stays resident: two blobs with 32-bit offsets and an open-addressing
 * table of 32-bit ids at a load of two thirds. Texts come from a file: all sizes are checked, and a
 * set of texts that was made to collide is refused. */
#include "engine/text/tokenizer_internal.h"

#include <string.h>

#include "base/limits.h"

uint64_t hash_u64(uint64_t x)
{
    /* The finalizer of MurmurHash3 (Appleby): every input bit reaches every output bit. */
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15ull ^ n;
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
        p += 8;
        n -= 8;
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < n; i++) rest |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return hash_u64(h ^ rest);
}

static sluice_err allocate(struct vocab_table *v, uint64_t bytes, struct sl_budget *b,
                           sluice_error *e)
{
    v->n_slots = v->n + v->n / 2 + 1;
    v->text = sl_alloc(b, bytes, 1);
    v->text_at = sl_alloc(b, (uint64_t)v->n + 1, sizeof *v->text_at);
    v->kinds = sl_alloc(b, v->n, 1);
    v->slots = sl_alloc(b, v->n_slots, sizeof *v->slots);
    if (v->text == NULL || v->text_at == NULL || v->kinds == NULL || v->slots == NULL)
        return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    return SLUICE_OK;
}

/* A slot holds id + 1 and, above it, some bits of the hash, which spare most looks at texts of
 * other tokens. */
#define SLOT_ID_BITS 23
_Static_assert(SL_VOCAB_MAX < 1u << SLOT_ID_BITS, "every id + 1 fits");

static uint32_t slot_tag(uint64_t hash) { return (uint32_t)hash << SLOT_ID_BITS; }
static int32_t slot_id(uint32_t slot) { return (int32_t)(slot & ((1u << SLOT_ID_BITS) - 1)) - 1; }
static bool tag_differs(uint32_t slot, uint32_t tag) { return (slot ^ tag) >> SLOT_ID_BITS != 0; }

/* A later token replaces an earlier one of the same text, as in llama.cpp. */
static bool insert(struct vocab_table *v, int32_t id)
{
    struct sl_str text = vocab_text(v, id);
    uint64_t hash = hash_bytes(text.p, text.n);
    uint32_t tag = slot_tag(hash);
    uint32_t i = hash_reduce(hash, v->n_slots);
    for (uint32_t probes = 0; probes < HASH_PROBES_MAX; probes++) {
        uint32_t slot = v->slots[i];
        if (slot == 0 ||
            (!tag_differs(slot, tag) && sl_str_same(vocab_text(v, slot_id(slot)), text))) {
            v->slots[i] = tag | ((uint32_t)id + 1);
            return true;
        }
        if (++i == v->n_slots) i = 0;
    }
    return false;
}

sluice_err vocab_table_open(struct vocab_table *v, const struct sl_vocab *from, struct sl_budget *b,
                            sluice_error *e)
{
    *v = (struct vocab_table){.n = from->n_tokens};
    if (v->n == 0) return sl_fail(e, SLUICE_E_FORMAT, "the vocabulary has no tokens");
    if (v->n > SL_VOCAB_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "the vocabulary has %u tokens; at most %u are supported",
                       v->n, SL_VOCAB_MAX);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (!sl_add_ok(bytes, from->tokens[i].n, &bytes) || bytes > VOCAB_TEXT_BYTES_MAX)
            return sl_fail(e, SLUICE_E_LIMIT,
                           "the texts of the vocabulary are longer than %llu bytes",
                           VOCAB_TEXT_BYTES_MAX);
    }
    sluice_err err = allocate(v, bytes, b, e);
    if (err != SLUICE_OK) return err;
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        struct sl_str s = from->tokens[i];
        if (s.n > 0) memcpy(v->text + at, s.p, s.n);
        at += (uint32_t)s.n;
        v->text_at[i + 1] = at;
        v->kinds[i] = from->kinds != NULL ? from->kinds[i] : SL_TOKEN_NORMAL;
        if (s.n > v->text_bytes_max) v->text_bytes_max = (uint32_t)s.n;
        if (s.n > 0 && !insert(v, (int32_t)i))
            return sl_fail(e, SLUICE_E_FORMAT,
                           "the texts of the vocabulary all fall into a few hash values");
    }
    return SLUICE_OK;
}

void vocab_table_close(struct vocab_table *v)
{
    sl_free(v->text);
    sl_free(v->text_at);
    sl_free(v->piece);
    sl_free(v->piece_at);
    sl_free(v->kinds);
    sl_free(v->slots);
    *v = (struct vocab_table){0};
}

sluice_err vocab_table_begin_pieces(struct vocab_table *v, uint64_t bytes, struct sl_budget *b,
                                    sluice_error *e)
{
    SLUICE_ASSERT(v->piece == NULL);
    SLUICE_ASSERT(bytes <= VOCAB_TEXT_BYTES_MAX);
    v->piece = sl_alloc(b, bytes, 1);
    v->piece_at = sl_alloc(b, (uint64_t)v->n + 1, sizeof *v->piece_at);
    if (v->piece == NULL || v->piece_at == NULL)
        return tokenizer_no_memory(e, SLUICE_E_BUDGET, "the vocabulary");
    return SLUICE_OK;
}

void vocab_table_add_piece(struct vocab_table *v, const char *p, uint32_t n)
{
    SLUICE_ASSERT(v->n_pieces < v->n);
    uint32_t at = v->piece_at[v->n_pieces];
    if (n > 0) memcpy(v->piece + at, p, n);
    v->piece_at[++v->n_pieces] = at + n;
}

struct sl_str vocab_text(const struct vocab_table *v, int32_t id)
{
    SLUICE_DASSERT(id >= 0 && (uint32_t)id < v->n);
    return (struct sl_str){v->text + v->text_at[id], v->text_at[id + 1] - v->text_at[id]};
}

struct sl_str vocab_piece(const struct vocab_table *v, int32_t id)
{
    SLUICE_DASSERT(id >= 0 && (uint32_t)id < v->n_pieces);
    return (struct sl_str){v->piece + v->piece_at[id], v->piece_at[id + 1] - v->piece_at[id]};
}

int32_t vocab_find(const struct vocab_table *v, struct sl_str text)
{
    if (text.n == 0 || text.n > v->text_bytes_max) return -1;
    uint64_t hash = hash_bytes(text.p, text.n);
    uint32_t tag = slot_tag(hash);
    uint32_t i = hash_reduce(hash, v->n_slots);
    for (uint32_t slot; (slot = v->slots[i]) != 0;) {
        if (!tag_differs(slot, tag)) {
            struct sl_str have = vocab_text(v, slot_id(slot));
            if (have.n == text.n && memcmp(have.p, text.p, text.n) == 0) return slot_id(slot);
        }
        if (++i == v->n_slots) i = 0;
    }
    return -1;
}

uint64_t vocab_table_bytes(const struct vocab_table *v)
{
    uint64_t bytes = (uint64_t)v->text_at[v->n] + v->n + (uint64_t)v->n_slots * sizeof *v->slots;
    bytes += 2 * ((uint64_t)v->n + 1) * sizeof *v->text_at;
    return bytes + v->piece_at[v->n_pieces];
}
