/* Budgets, blocks and arenas: see mem.h. The only file that calls the system's allocator.
 *
 * A block is one calloc, or a mapping where it is large, with room to align it and a header
 * directly before the address that is handed out; the header remembers what to free, what to give
 * back, and to which budget. An arena is a list of such blocks. Charges include this overhead
 * (SL_BLOCK_OVERHEAD_BYTES a block), so that the budget bounds what the process really takes.
 * Regions of address space are in region.c.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/asan.h"

#define BLOCK_ALIGN 64
#define BLOCK_MAGIC 0x51a1ceb10cfeed01u
#ifdef SL_ASAN /* finds leaks only in what is allocated */
#define MAPPED_LEAST_BYTES UINT64_MAX
#else
#define MAPPED_LEAST_BYTES ((uint64_t)1 << 20)
#endif

struct block_header {
    void *raw; /* what calloc returned */
    struct sl_budget *budget;
    uint64_t charged_bytes;
    uint64_t magic; /* tells a block from any other pointer, and a live one from a freed one */
};

_Static_assert(sizeof(struct block_header) + BLOCK_ALIGN <= SL_BLOCK_OVERHEAD_BYTES,
               "a header fits before every aligned block");

/* ---- budgets ----------------------------------------------------------------------------------
 */

void sl_budget_init(struct sl_budget *b, uint64_t limit_bytes)
{
    b->limit_bytes = limit_bytes;
    atomic_init(&b->used_bytes, 0);
    atomic_init(&b->peak_bytes, 0);
    atomic_init(&b->fail_after, -1);
}

/* Whether this charge is the one that a test wants to fail. */
static bool injected_failure(struct sl_budget *b)
{
    int64_t left = atomic_load_explicit(&b->fail_after, memory_order_relaxed);
    while (left >= 0) {
        if (atomic_compare_exchange_weak_explicit(&b->fail_after, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return left == 0;
    }
    return false;
}

/* Relaxed throughout: the counters carry no other data, only their sum matters. */
sluice_err sl_budget_charge(struct sl_budget *b, uint64_t bytes)
{
    SLUICE_ASSERT(b != NULL);
    if (injected_failure(b)) return SLUICE_E_BUDGET;
    uint64_t used = atomic_load_explicit(&b->used_bytes, memory_order_relaxed);
    uint64_t sum;
    do {
        if (!sl_add_ok(used, bytes, &sum) || sum > b->limit_bytes) return SLUICE_E_BUDGET;
    } while (!atomic_compare_exchange_weak_explicit(&b->used_bytes, &used, sum,
                                                    memory_order_relaxed, memory_order_relaxed));
    uint64_t peak = atomic_load_explicit(&b->peak_bytes, memory_order_relaxed);
    while (sum > peak) {
        if (atomic_compare_exchange_weak_explicit(&b->peak_bytes, &peak, sum, memory_order_relaxed,
                                                  memory_order_relaxed))
            break;
    }
    return SLUICE_OK;
}

void sl_budget_release(struct sl_budget *b, uint64_t bytes)
{
    SLUICE_ASSERT(b != NULL);
    uint64_t before = atomic_fetch_sub_explicit(&b->used_bytes, bytes, memory_order_relaxed);
    SLUICE_ASSERT(before >= bytes);
}

/* ---- blocks ------------------------------------------------------------------------------------
 */

static struct block_header *header_of(void *p)
{
    return (struct block_header *)((unsigned char *)p - sizeof(struct block_header));
}

/* Zeroed; NULL where there is none. Large ones are mapped here and not left to calloc, which, once
 * it has seen such a block freed, keeps the next ones in its heap for good: loading a vocabulary of
 * 248,320 entries left 5 MB there that no budget knew of. */
static unsigned char *raw_new(uint64_t bytes)
{
    if (bytes < MAPPED_LEAST_BYTES) return calloc(1, bytes);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void raw_free(void *raw, uint64_t bytes)
{
    if (bytes < MAPPED_LEAST_BYTES)
        free(raw);
    else
        (void)munmap(raw, bytes); /* of a whole mapping cannot fail */
}

static sluice_err block_new(struct sl_budget *b, uint64_t bytes, void **out)
{
    *out = NULL;
    uint64_t total;
    if (!sl_add_ok(bytes, SL_BLOCK_OVERHEAD_BYTES, &total)) return SLUICE_E_NOMEM;
    sluice_err err = b ? sl_budget_charge(b, total) : SLUICE_OK;
    if (err != SLUICE_OK) return err;
    unsigned char *raw = raw_new(total);
    if (raw == NULL) {
        if (b) sl_budget_release(b, total);
        return SLUICE_E_NOMEM;
    }
    uintptr_t first = (uintptr_t)raw + sizeof(struct block_header);
    size_t lead = (size_t)((first + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN - (uintptr_t)raw);
    unsigned char *p = raw + lead;
    *header_of(p) = (struct block_header){raw, b, total, BLOCK_MAGIC};
    SL_POISON(raw, lead);
    SL_POISON(p + bytes, total - lead - bytes);
    *out = p;
    return SLUICE_OK;
}

static uint64_t block_charged(void *p)
{
    SL_UNPOISON(header_of(p), sizeof(struct block_header));
    uint64_t charged = header_of(p)->charged_bytes;
    SL_POISON(header_of(p), sizeof(struct block_header));
    return charged;
}

void *sl_alloc(struct sl_budget *b, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    void *p = NULL;
    if (!sl_mul_ok(count, size, &bytes)) return NULL;
    return block_new(b, bytes, &p) == SLUICE_OK ? p : NULL;
}

void sl_free(void *p)
{
    if (p == NULL) return;
    SL_UNPOISON(header_of(p), sizeof(struct block_header));
    struct block_header h = *header_of(p);
    SLUICE_ASSERT(h.magic == BLOCK_MAGIC);
    SL_UNPOISON(h.raw, h.charged_bytes);
    header_of(p)->magic = 0;
    raw_free(h.raw, h.charged_bytes);
    if (h.budget) sl_budget_release(h.budget, h.charged_bytes);
}

sluice_err sl_grow(struct sl_budget *b, void *block, uint64_t *capacity, uint64_t want,
                   uint64_t size)
{
    SLUICE_ASSERT(block != NULL && capacity != NULL);
    SLUICE_ASSERT(size > 0);
    if (want <= *capacity) return SLUICE_OK;
    uint64_t bytes;
    uint64_t count = *capacity <= UINT64_MAX / 2 ? sl_max_u64(want, *capacity * 2) : want;
    if (!sl_mul_ok(count, size, &bytes)) return SLUICE_E_NOMEM;
    void *fresh;
    sluice_err err = block_new(b, bytes, &fresh);
    if (err != SLUICE_OK) return err;
    void *old;
    memcpy(&old, block, sizeof old); /* the pointer's own type is the caller's */
    SLUICE_ASSERT(old != NULL || *capacity == 0);
    if (*capacity > 0) memcpy(fresh, old, (size_t)(*capacity * size));
    sl_free(old);
    memcpy(block, &fresh, sizeof fresh);
    *capacity = count;
    return SLUICE_OK;
}

/* ---- arenas -------------------------------------------------------------------------------------
 */

struct sl_arena_chunk {
    struct sl_arena_chunk *next;
    uint64_t bytes; /* room for pieces, after this header */
    uint64_t used_bytes;
};

#define CHUNK_HEADER_BYTES 64
_Static_assert(SL_ARENA_CHUNK_OVERHEAD_BYTES == SL_BLOCK_OVERHEAD_BYTES + CHUNK_HEADER_BYTES,
               "what mem.h promises");
_Static_assert(sizeof(struct sl_arena_chunk) <= CHUNK_HEADER_BYTES, "pieces stay aligned");

void sl_arena_init(struct sl_arena *a, struct sl_budget *b, uint64_t chunk_bytes)
{
    SLUICE_ASSERT(b != NULL);
    *a = (struct sl_arena){.budget = b, .chunk_bytes = chunk_bytes};
}

/* Adds a chunk with room for piece_bytes. One made for a single large piece goes behind the newest,
 * so that the room left in that one stays in use. */
static struct sl_arena_chunk *chunk_add(struct sl_arena *a, uint64_t piece_bytes)
{
    bool large = piece_bytes > a->chunk_bytes;
    uint64_t room = large ? piece_bytes : a->chunk_bytes;
    uint64_t bytes;
    void *p;
    if (!sl_add_ok(room, CHUNK_HEADER_BYTES, &bytes)) return NULL;
    if (block_new(a->budget, bytes, &p) != SLUICE_OK) return NULL;
    struct sl_arena_chunk *chunk = p;
    chunk->bytes = room;
    if (large && a->chunks != NULL) {
        chunk->next = a->chunks->next;
        a->chunks->next = chunk;
    } else {
        chunk->next = a->chunks;
        a->chunks = chunk;
    }
    a->total_bytes += block_charged(p);
    SL_POISON((unsigned char *)p + CHUNK_HEADER_BYTES, room);
    return chunk;
}

void *sl_arena_alloc(struct sl_arena *a, uint64_t count, uint64_t size)
{
    SLUICE_ASSERT(a->budget != NULL);
    uint64_t bytes, piece;
    if (!sl_mul_ok(count, size, &bytes)) return NULL;
    if (!sl_align_ok(sl_max_u64(bytes, 1), BLOCK_ALIGN, &piece)) return NULL;
    if (!sl_add_ok(piece, SL_ASAN_GAP_BYTES, &piece)) return NULL;
    struct sl_arena_chunk *chunk = a->chunks;
    if (chunk == NULL || chunk->bytes - chunk->used_bytes < piece) chunk = chunk_add(a, piece);
    if (chunk == NULL) return NULL;
    unsigned char *p = (unsigned char *)chunk + CHUNK_HEADER_BYTES + chunk->used_bytes;
    chunk->used_bytes += piece;
    SL_UNPOISON(p, bytes);
    return p;
}

uint64_t sl_arena_piece_bytes(uint64_t count, uint64_t size)
{
    uint64_t bytes = 0, piece = 0;
    bool ok = sl_mul_ok(count, size, &bytes);
    ok = ok && sl_align_ok(sl_max_u64(bytes, 1), BLOCK_ALIGN, &piece);
    ok = ok && sl_add_ok(piece, SL_ASAN_GAP_BYTES, &piece);
    SLUICE_ASSERT(ok); /* counts are limited before anybody asks */
    return piece;
}

void sl_arena_deinit(struct sl_arena *a)
{
    while (a->chunks != NULL) {
        struct sl_arena_chunk *chunk = a->chunks;
        a->chunks = chunk->next;
        sl_free(chunk);
    }
    a->total_bytes = 0;
}
