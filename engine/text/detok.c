/* Streaming decode: pieces of tokens to text that is cut between characters only.
 *
 * After each piece at most three bytes are held: an ending that so far is the beginning of a
 * well-formed character (Unicode 15, table 3-7). One more byte either continues it or proves it
 * invalid; then it goes out as it is. */
#include "engine/text/tokenizer_internal.h"

#include <string.h>

void sl_detok_init(struct sl_detok *d, const struct sl_tokenizer *t, bool special)
{
    *d = (struct sl_detok){.tok = t, .special = special};
}

size_t sl_detok_max(const struct sl_tokenizer *t)
{
    return (size_t)t->vocab.text_bytes_max + sizeof(((struct sl_detok *)0)->held);
}

/* Whether n bytes at p begin a well-formed character without completing it. */
static bool is_incomplete(const unsigned char *p, size_t n)
{
    unsigned char lead = p[0];
    size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || n >= whole) return false;
    if (n == 1) return true;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) return false;
    return n == 2 || (p[2] & 0xc0) == 0x80;
}

/* Bytes at the end of text that must wait. */
static uint32_t incomplete_tail(const char *text, size_t n)
{
    for (size_t k = n < 3 ? n : 3; k > 0; k--) {
        if (is_incomplete((const unsigned char *)text + (n - k), k)) return (uint32_t)k;
    }
    return 0;
}

size_t sl_detok_push(struct sl_detok *d, int32_t id, char *buf, size_t size)
{
    struct sl_str piece = sl_tokenizer_piece(d->tok, id, d->special);
    if (!d->started && piece.n > 0) {
        if (d->tok->add_space_prefix && piece.p[0] == ' ') {
            piece.p++;
            piece.n--;
        }
        d->started = true;
    }
    size_t n = d->n_held + piece.n;
    SLUICE_ASSERT(n <= size);
    memcpy(buf, d->held, d->n_held);
    if (piece.n > 0) memcpy(buf + d->n_held, piece.p, piece.n);
    d->n_held = incomplete_tail(buf, n);
    n -= d->n_held;
    memcpy(d->held, buf + n, d->n_held);
    return n;
}

size_t sl_detok_flush(struct sl_detok *d, char *buf, size_t size)
{
    size_t n = d->n_held;
    SLUICE_ASSERT(n <= size);
    memcpy(buf, d->held, n);
    d->n_held = 0;
    return n;
}
