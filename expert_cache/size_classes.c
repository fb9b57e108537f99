/* Few slot sizes for many layer sizes: k-quantized files often keep some layers' down projections
 * at a higher precision, so that two or three sizes are usual and more are possible. */
#include "expert_cache/expert_cache.h"

struct group {
    uint64_t bytes;    /* of the largest member */
    uint32_t n_layers; /* members */
};

static void group_add(struct group *g, uint32_t *n, uint64_t bytes)
{
    uint32_t at = 0;
    while (at < *n && g[at].bytes < bytes) at++;
    if (at == *n || g[at].bytes != bytes) {
        for (uint32_t i = *n; i > at; i--) g[i] = g[i - 1];
        g[at] = (struct group){bytes, 0};
        ++*n;
    }
    g[at].n_layers++;
}

/* Joins the two neighbours for which the smaller members lose fewest bytes a round of experts. What
 * a group lost before is not counted again: its members fit its size by then. */
static void join_cheapest(struct group *g, uint32_t *n)
{
    uint32_t best = 0;
    uint64_t best_waste = UINT64_MAX;
    for (uint32_t i = 0; i + 1 < *n; i++) {
        uint64_t waste;
        if (!sl_mul_ok(g[i + 1].bytes - g[i].bytes, g[i].n_layers, &waste)) continue;
        if (waste >= best_waste) continue;
        best = i;
        best_waste = waste;
    }
    g[best + 1].n_layers += g[best].n_layers;
    --*n;
    for (uint32_t i = best; i < *n; i++) g[i] = g[i + 1];
}

uint32_t sl_ec_size_classes(const uint64_t *bytes, uint32_t n_layers, uint32_t *class_of,
                            uint64_t class_bytes[SL_EC_CLASSES_MAX])
{
    SLUICE_ASSERT(n_layers <= SL_LAYERS_MAX);
    struct group g[SL_LAYERS_MAX];
    uint32_t n = 0;
    for (uint32_t l = 0; l < n_layers; l++)
        if (bytes[l] > 0) group_add(g, &n, bytes[l]);
    while (n > SL_EC_CLASSES_MAX) join_cheapest(g, &n);
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) class_bytes[k] = k < n ? g[k].bytes : 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        class_of[l] = 0;
        while (bytes[l] > 0 && class_bytes[class_of[l]] < bytes[l]) class_of[l]++;
    }
    return n;
}
