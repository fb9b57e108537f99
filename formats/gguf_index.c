/* A hash table from names to positions, built once: open addressing, at most half full.
 *
 * The hash has no secret, so that opening a file is a pure function of its bytes; a file whose
 * names were chosen to collide is refused instead once it has cost far more probes than honest
 * names can (about 1.5 each). */
#include "formats/gguf_internal.h"

#include <string.h>

#define PROBES_PER_NAME 64
#define PROBES_FREE 4096 /* so that a handful of unlucky names is never refused */

/* FNV-1a, then a finalizer so that the low bits depend on every byte. */
static uint64_t hash(struct sl_str s)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < s.n; i++) h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

static struct sl_str name_at(const void *items, size_t stride, uint32_t i)
{
    struct sl_str s;

    memcpy(&s, (const unsigned char *)items + (uint64_t)i * stride, sizeof s);
    return s;
}

sluice_err sl_gg_index_build(struct sl_gg_index *ix, struct sl_budget *b, const void *items,
                             uint32_t n, size_t stride, uint32_t *bad)
{
    uint64_t size = 8, probes = 0;

    while (size < 2 * (uint64_t)n) size *= 2;
    ix->slots = sl_alloc(b, size, sizeof *ix->slots);
    if (ix->slots == NULL) return SLUICE_E_NOMEM;
    ix->mask = size - 1;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_str name = name_at(items, stride, i);
        uint64_t at = hash(name) & ix->mask;

        while (ix->slots[at] != 0) {
            if (sl_str_same(name_at(items, stride, ix->slots[at] - 1), name)) {
                *bad = i;
                return SLUICE_E_FORMAT;
            }
            at = (at + 1) & ix->mask;
            probes++;
        }
        if (probes > PROBES_FREE + PROBES_PER_NAME * (uint64_t)n) {
            *bad = n;
            return SLUICE_E_FORMAT;
        }
        ix->slots[at] = i + 1;
    }
    return SLUICE_OK;
}

void sl_gg_index_deinit(struct sl_gg_index *ix)
{
    sl_free(ix->slots);
    memset(ix, 0, sizeof *ix);
}

uint32_t sl_gg_index_find(const struct sl_gg_index *ix, const void *items, size_t stride,
                          struct sl_str name)
{
    uint64_t at;

    if (ix->slots == NULL) return UINT32_MAX;
    at = hash(name) & ix->mask;
    while (ix->slots[at] != 0) {
        if (sl_str_same(name_at(items, stride, ix->slots[at] - 1), name)) return ix->slots[at] - 1;
        at = (at + 1) & ix->mask;
    }
    return UINT32_MAX;
}
