/* A text through a model whose experts are paged, for the tests of streaming: one structure says in
 * which of the many ways, and two ways of the same lossy setting must give the same bits.
 *
 * The text is read as a program would: most of it as a prompt, in chunks, the rest token by token.
 * A second and a third reading of it meet a warm cache, a context that was cut back, and pieces
 * that end inside chunks. */
#ifndef SL_TEST_STREAM_CASE_H
#define SL_TEST_STREAM_CASE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/sluice.h"

#define STREAM_IDS_MAX 96
#define STREAM_SINGLE 12 /* tokens at the end that are decoded one by one */
#define STREAM_CONTEXT 128
#define STREAM_DESCRIPTION_BYTES 256

/* What changes the text, each a different answer, all of them functions of the tokens alone. */
enum stream_lossy { STREAM_EXACT, STREAM_STICKY, STREAM_STICKY_SMALL, STREAM_ONE_EXPERT };
#define STREAM_LOSSY_COUNT 4

/* One way to run a model. */
struct stream_setup {
    uint32_t slots;                                     /* 0: one for each expert */
    uint64_t ram_bytes;                                 /* 0: no limit */
    uint32_t io, prefetch, policy, threads, chunk, isa; /* of sluice.h */
    enum stream_lossy lossy;
};

/* How the reference runs: nothing is paged, nothing is guessed, one thread. */
#define STREAM_PLAIN                                                                               \
    {                                                                                              \
        0, 0, SLUICE_IO_PREAD, SLUICE_PREFETCH_OFF, SLUICE_CACHE_TWO_RATE, 1, 64, SLUICE_ISA_AUTO, \
            STREAM_EXACT                                                                           \
    }

static inline sluice_options stream_options(const struct stream_setup *u)
{
    sluice_options o = SLUICE_OPTIONS_INIT;

    o.n_ctx = STREAM_CONTEXT;
    o.slots = u->slots;
    o.ram_bytes = u->ram_bytes;
    o.io = u->io;
    o.prefetch = u->prefetch;
    o.cache_policy = u->policy;
    o.threads = u->threads;
    o.chunk = u->chunk;
    o.isa = u->isa;
    if (u->lossy == STREAM_STICKY) o.sticky = 0.5f;
    if (u->lossy == STREAM_STICKY_SMALL) {
        o.sticky = 0.2f;
        o.sticky_size = 1;
    }
    if (u->lossy == STREAM_ONE_EXPERT) o.experts_used = 1;
    return o;
}

/* The setup in words, for a message. text has STREAM_DESCRIPTION_BYTES and is returned. */
static inline const char *stream_describe(const struct stream_setup *u, char *text)
{
    static const char *const lossy[] = {"exact", "sticky 0.5", "sticky 0.2:1", "one expert"};

    (void)snprintf(text, STREAM_DESCRIPTION_BYTES,
                   "%s, slots %u, ram %llu, io %u, prefetch %u, policy %u, threads %u, chunk %u, "
                   "isa %u",
                   lossy[u->lossy], u->slots, (unsigned long long)u->ram_bytes, u->io, u->prefetch,
                   u->policy, u->threads, u->chunk, u->isa);
    return text;
}

/* ---- the text -------------------------------------------------------------------------------- */

struct stream_text {
    int32_t ids[STREAM_IDS_MAX];
    size_t n;
    uint32_t n_vocab;
};

static inline size_t stream_row_bytes(const struct stream_text *t)
{
    return t->n_vocab * sizeof(float);
}

/* Room for the logits of the whole text, poisoned. Owner: the caller, free(). */
static inline float *stream_room(const struct stream_text *t)
{
    float *p = malloc(t->n * stream_row_bytes(t));

    assert_non_null(p);
    memset(p, 0xA5, t->n * stream_row_bytes(t));
    return p;
}

/* The tokens from..to in pieces of step. */
struct stream_span {
    size_t from, to, step;
};

/* Evaluates them, logits to their rows. */
static inline sluice_err stream_pieces(sluice_session *s, const struct stream_text *t,
                                       struct stream_span span, float *logits, sluice_error *e)
{
    for (size_t at = span.from; at < span.to; at += span.step) {
        size_t n = span.to - at < span.step ? span.to - at : span.step;
        sluice_err err = sluice_session_eval(s, t->ids + at, n, logits + at * t->n_vocab, e);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

/* The whole text from an empty context: a prompt, then single tokens. */
static inline sluice_err stream_read(sluice_session *s, const struct stream_text *t, float *logits,
                                     sluice_error *e)
{
    size_t single = t->n > 2 * STREAM_SINGLE ? STREAM_SINGLE : t->n / 2;

    sluice_session_truncate(s, 0);
    sluice_err err = stream_pieces(s, t, (struct stream_span){0, t->n - single, t->n}, logits, e);
    if (err != SLUICE_OK) return err;
    return stream_pieces(s, t, (struct stream_span){t->n - single, t->n, 1}, logits, e);
}

/* Whether two sets of logits are the same bytes; *row: the first token that differs. */
static inline bool stream_equal(const struct stream_text *t, const float *a, const float *b,
                                size_t *row)
{
    for (*row = 0; *row < t->n; ++*row)
        if (memcmp(a + *row * t->n_vocab, b + *row * t->n_vocab, stream_row_bytes(t)) != 0)
            return false;
    return true;
}

#endif
