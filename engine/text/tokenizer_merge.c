/* Joining neighbours, best first: the heart of both tokenizer models.
 *
 * The symbols of a word form a linked list; every pair that can be joined has an entry (rank, index
 * of its left symbol) in a min-heap. An entry is valid as long as the pair at its place still has
 * that rank; others are dropped when they come up. Each join takes one entry out and puts at most
 * two in, so that a word of n symbols costs O(n log n) and two entries a symbol, whatever it looks
 * like. Short words, nearly all there are, take a scan of the list instead: that is faster up to a
 * few dozen symbols and picks the same pair (the lowest rank, the leftmost of equals). */
#include "engine/text/tokenizer_internal.h"

#define SCAN_SYMBOLS_MAX 24 /* longest word that is merged by scanning */

sluice_err merger_reserve(struct merger *m, uint32_t n)
{
    sluice_err err = SLUICE_OK;
    if (n > m->symbols_capacity)
        err = sl_grow(m->budget, &m->symbols, &m->symbols_capacity, n, sizeof *m->symbols);
    uint64_t entries = n > SCAN_SYMBOLS_MAX ? 2 * (uint64_t)n : 0;
    if (err == SLUICE_OK && entries > m->heap_capacity)
        err = sl_grow(m->budget, &m->heap, &m->heap_capacity, entries, sizeof *m->heap);
    return err;
}

void merger_deinit(struct merger *m)
{
    sl_free(m->symbols);
    sl_free(m->heap);
    m->symbols = NULL;
    m->heap = NULL;
    m->symbols_capacity = 0;
    m->heap_capacity = 0;
}

/* ---- the heap -------------------------------------------------------------------------------- */

static void heap_push(struct merger *m, uint64_t key)
{
    SLUICE_DASSERT(m->n_heap < m->heap_capacity);
    uint32_t i = m->n_heap++;
    while (i > 0 && m->heap[(i - 1) / 2] > key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = key;
}

static uint64_t heap_pop(struct merger *m)
{
    uint64_t top = m->heap[0];
    uint64_t key = m->heap[--m->n_heap];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= m->n_heap) break;
        if (child + 1 < m->n_heap && m->heap[child + 1] < m->heap[child]) child++;
        if (m->heap[child] >= key) break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = key;
    return top;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Works out whether symbol i joins with the next one. */
static bool weigh(struct merger *m, uint32_t i, uint32_t bytes, join_fn *join, const void *user)
{
    struct symbol *a = &m->symbols[i];
    a->merged = -1;
    if (a->next >= m->n) return false;
    const struct symbol *b = &m->symbols[a->next];
    uint32_t b_end = b->next < m->n ? m->symbols[b->next].at : bytes;
    return join(user, a, b, b_end, &a->rank, &a->merged);
}

/* Symbol i takes the next one in. */
static void join_at(struct merger *m, uint32_t i)
{
    struct symbol *a = &m->symbols[i];
    struct symbol *b = &m->symbols[a->next];
    a->id = a->merged;
    a->next = b->next;
    b->merged = -1; /* its entries in the heap are dead */
    if (a->next < m->n) m->symbols[a->next].prev = i;
}

static void run_scan(struct merger *m, uint32_t bytes, join_fn *join, const void *user)
{
    for (uint32_t i = 0; i < m->n; i++) weigh(m, i, bytes, join, user);
    for (;;) {
        uint32_t best = m->n;
        for (uint32_t i = 0; i < m->n; i = m->symbols[i].next) {
            const struct symbol *s = &m->symbols[i];
            if (s->merged >= 0 && (best == m->n || s->rank < m->symbols[best].rank)) best = i;
        }
        if (best == m->n) return;
        join_at(m, best);
        weigh(m, best, bytes, join, user);
        if (best > 0) weigh(m, m->symbols[best].prev, bytes, join, user);
    }
}

static void push_if_joins(struct merger *m, uint32_t i, uint32_t bytes, join_fn *join,
                          const void *user)
{
    if (weigh(m, i, bytes, join, user)) heap_push(m, (uint64_t)m->symbols[i].rank << 32 | i);
}

static void run_heap(struct merger *m, uint32_t bytes, join_fn *join, const void *user)
{
    m->n_heap = 0;
    for (uint32_t i = 0; i < m->n; i++) push_if_joins(m, i, bytes, join, user);
    while (m->n_heap > 0) {
        uint64_t key = heap_pop(m);
        uint32_t i = (uint32_t)key;
        const struct symbol *s = &m->symbols[i];
        if (s->merged < 0 || s->rank != (uint32_t)(key >> 32)) continue;
        join_at(m, i);
        push_if_joins(m, i, bytes, join, user);
        if (i > 0) push_if_joins(m, m->symbols[i].prev, bytes, join, user);
    }
}

void merger_run(struct merger *m, uint32_t n, uint32_t bytes, join_fn *join, const void *user)
{
    SLUICE_ASSERT(n <= m->symbols_capacity);
    m->n = n;
    for (uint32_t i = 0; i < n; i++) {
        m->symbols[i].prev = i - 1; /* never followed from symbol 0, which stays first */
        m->symbols[i].next = i + 1;
        m->symbols[i].merged = -1;
    }
    if (n <= SCAN_SYMBOLS_MAX)
        run_scan(m, bytes, join, user);
    else
        run_heap(m, bytes, join, user);
}
