/* Memory: one budget object per process part (a model and its sessions share one), and everything
 * that is allocated is charged to it before it is taken. Nothing else in Sluice calls malloc.
 *
 * Thread: a budget may be charged from any thread (its counters are atomic); a block, an arena or a
 * region belongs to one thread at a time. */
#ifndef SL_MEM_H
#define SL_MEM_H

#include <stdatomic.h>

#include "base/base.h"

struct sl_budget {
    uint64_t limit_bytes;        /* UINT64_MAX: none */
    _Atomic uint64_t used_bytes; /* charged now */
    _Atomic uint64_t peak_bytes; /* the most ever charged */
    _Atomic int64_t fail_after;  /* tests: the charge after this many more fails once; -1: never */
};

void sl_budget_init(struct sl_budget *b, uint64_t limit_bytes);

/* Takes bytes from the budget, or gives them back. charge returns SLUICE_E_BUDGET where it would
 * exceed the limit (nothing is charged then). Releasing more than is charged is an assertion. */
SL_MUST_CHECK sluice_err sl_budget_charge(struct sl_budget *b, uint64_t bytes);
void sl_budget_release(struct sl_budget *b, uint64_t bytes);

/* What is charged now. */
static inline uint64_t sl_budget_used(const struct sl_budget *b)
{
    return atomic_load_explicit(&b->used_bytes, memory_order_relaxed);
}

/* ---- single blocks ------------------------------------------------------------------------------
 */

/* What a block costs beyond its own bytes; it is charged too. An arena's chunk costs this and 64
 * bytes. */
#define SL_BLOCK_OVERHEAD_BYTES 96

/* Zeroed memory for count elements of size bytes, 64-byte aligned, charged to b. Returns NULL where
 * the product overflows, the budget is too small, or the system refuses; count * size == 0 gives a
 * unique valid pointer. b NULL: charged to nobody, for the handle that holds the budget itself.
 * Owner: the caller; sl_free accepts NULL. */
void *sl_alloc(struct sl_budget *b, uint64_t count, uint64_t size);
void sl_free(void *p);

/* Grows a block to hold at least want elements, at least doubling *capacity; keeps the first
 * *capacity elements, zeroes the rest. *block may be NULL with *capacity 0. On failure returns
 * SLUICE_E_BUDGET or SLUICE_E_NOMEM and leaves *block and *capacity as they were. block points at
 * the pointer. */
SL_MUST_CHECK sluice_err sl_grow(struct sl_budget *b, void *block, uint64_t *capacity,
                                 uint64_t want, uint64_t size);

/* ---- arenas: many small pieces that are freed together --------------------------------------- */

struct sl_arena {
    struct sl_budget *budget;
    struct sl_arena_chunk *chunks; /* newest first */
    uint64_t chunk_bytes;
    uint64_t total_bytes; /* charged for this arena */
};

/* chunk_bytes: how much is taken from the budget at a time (a larger piece gets a chunk of its
 * own). */
void sl_arena_init(struct sl_arena *a, struct sl_budget *b, uint64_t chunk_bytes);
/* Zeroed, 64-byte aligned; NULL on overflow, budget or system refusal. Lives until sl_arena_deinit.
 * Under AddressSanitizer a poisoned gap follows every piece. */
void *sl_arena_alloc(struct sl_arena *a, uint64_t count, uint64_t size);
void sl_arena_deinit(struct sl_arena *a);

/* What a piece takes of its chunk, gap included, and what a chunk costs beyond its pieces: an arena
 * whose chunk_bytes is the sum over its pieces charges that sum and the overhead, exactly. */
uint64_t sl_arena_piece_bytes(uint64_t count, uint64_t size);
#define SL_ARENA_CHUNK_OVERHEAD_BYTES (SL_BLOCK_OVERHEAD_BYTES + 64)

/* ---- regions: address space now, memory later ------------------------------------------------ */

struct sl_region {
    struct sl_budget *budget;
    unsigned char *base; /* page aligned */
    uint64_t reserved_bytes;
    uint64_t committed_bytes; /* from the start of the region, whole pages */
    uint64_t discarded_bytes; /* of these; the rest is charged */
    bool huge;                /* large pages were asked for */
};

/* Reserves address space without memory. On failure base is NULL. */
SL_MUST_CHECK sluice_err sl_region_reserve(struct sl_region *r, struct sl_budget *b,
                                           uint64_t bytes);
/* Makes the first bytes usable (zeroed when first committed), charging what is new. */
SL_MUST_CHECK sluice_err sl_region_commit(struct sl_region *r, uint64_t bytes);
/* Gives back the memory of everything past the first bytes; its content is lost. Nothing of the
 * region may be discarded. */
void sl_region_decommit(struct sl_region *r, uint64_t bytes);
/* Gives back the memory of whole pages within the committed part (offset and bytes are multiples of
 * the page); their content is lost. Each page at most once until it is refilled: the same range is
 * charged again, and reads as zero. refill fails with SLUICE_E_BUDGET. */
void sl_region_discard(struct sl_region *r, uint64_t offset, uint64_t bytes);
SL_MUST_CHECK sluice_err sl_region_refill(struct sl_region *r, uint64_t offset, uint64_t bytes);
/* Asks the system for large pages in the committed part, where they can be had without exceeding
 * it: fewer misses of the address cache in long reads. */
void sl_region_prefer_huge(struct sl_region *r);
void sl_region_deinit(struct sl_region *r);

/* 4096, 16384 or 65536, depending on the machine. */
uint64_t sl_page_bytes(void);

/* The most memory this process has had resident, in bytes; 0 where the system does not say. */
uint64_t sl_peak_rss_bytes(void);

#endif
