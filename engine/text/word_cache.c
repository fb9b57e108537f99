/* Words that this text had before, with their ids: most words of a long text are repetitions, and
 * merging costs several times what looking up does. Direct-mapped and small enough for the
 * second-level cache; it lives as long as one encode call, so that encoding stays a pure function
 * that several threads may call. */
#include "engine/text/tokenizer_internal.h"

#include <string.h>

#define ENTRIES 2048
#define TEXT_BYTES_MIN 16384 /* shorter texts repeat too little */

void word_cache_init(struct word_cache *c, uint64_t text_bytes, struct sl_budget *b)
{
    c->entries = text_bytes >= TEXT_BYTES_MIN ? sl_alloc(b, ENTRIES, sizeof *c->entries) : NULL;
}

void word_cache_deinit(struct word_cache *c)
{
    sl_free(c->entries);
    c->entries = NULL;
}

static struct cached_word *entry_of(const struct word_cache *c, struct sl_str word)
{
    return &c->entries[hash_bytes(word.p, word.n) % ENTRIES];
}

const struct cached_word *word_cache_find(const struct word_cache *c, struct sl_str word)
{
    if (c->entries == NULL || word.n == 0 || word.n > CACHED_WORD_BYTES) return NULL;
    const struct cached_word *w = entry_of(c, word);
    return w->n_bytes == word.n && memcmp(w->bytes, word.p, word.n) == 0 ? w : NULL;
}

void word_cache_put(struct word_cache *c, struct sl_str word, const int32_t *ids, uint64_t n)
{
    if (c->entries == NULL || word.n == 0 || word.n > CACHED_WORD_BYTES || n > CACHED_WORD_IDS)
        return;
    struct cached_word *w = entry_of(c, word);
    w->n_bytes = (uint8_t)word.n;
    w->n_ids = (uint8_t)n;
    memcpy(w->bytes, word.p, word.n);
    if (n > 0) memcpy(w->ids, ids, n * sizeof *ids);
}
