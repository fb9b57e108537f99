/* The virtual cache of sticky routing.
 *
 * Only the choices are kept. What is favoured is found anew for every token from the last window of
 * them, so that it cannot depend on how the text came to be: there is nothing else to cut back.
 * Scores are sums of whole numbers, the same on every machine and in any order. The weights fall
 * smoothly, in 12 bits, because counts in a few steps would tie often and the lower index would win
 * without reason. Cost: a window of additions and a few passes over the experts, one or two
 * microseconds a layer. */
#include "router/sticky.h"

#include <string.h>

/* round(4096 * 2^(-age / 16)), of a use age + 1 positions ago; test_sticky compares it with sl_pow.
 */
static const uint16_t weight_by_age[SL_STICKY_WINDOW] = {
    4096, 3922, 3756, 3597, 3444, 3298, 3158, 3025, 2896, 2774, 2656, 2543, 2435, 2332, 2233, 2139,
    2048, 1961, 1878, 1798, 1722, 1649, 1579, 1512, 1448, 1387, 1328, 1272, 1218, 1166, 1117, 1069,
    1024, 981,  939,  899,  861,  825,  790,  756,  724,  693,  664,  636,  609,  583,  558,  535,
    512,  490,  470,  450,  431,  412,  395,  378,  362,  347,  332,  318,  304,  292,  279,  267,
};

#define INDEX_BITS 10
_Static_assert(SL_EXPERTS_MAX <= 1u << INDEX_BITS, "a key holds an expert's index");
/* An expert is used at most once a position, so its score is below 2^(KEY_BITS - INDEX_BITS). */
#define KEY_BITS 28
_Static_assert((uint64_t)SL_STICKY_WINDOW * 4096 <= 1u << (KEY_BITS - INDEX_BITS), "keys fit");

struct layer {
    uint32_t n_experts, top_k;
    uint32_t size;     /* of the virtual cache */
    uint32_t n_known;  /* positions [0, n_known) have been set */
    uint16_t *choices; /* [n_ctx][top_k] */
};

struct sl_sticky {
    float strength;
    uint32_t n_layers, n_ctx;
    struct layer *layers; /* [n_layers] */
    uint16_t *choices;    /* all layers' */
    uint32_t key[SL_EXPERTS_MAX];
    uint8_t favoured[SL_EXPERTS_MAX];
};

/* ---- open and close ----------------------------------------------------------------------------
 */

static uint64_t choices_of(const struct sl_sticky_config *c)
{
    uint64_t sum = 0;
    SLUICE_ASSERT(c->n_layers <= SL_LAYERS_MAX && c->n_ctx <= SL_CONTEXT_MAX);
    SLUICE_ASSERT(c->strength > 0.0f && c->strength <= 1.0f);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        if (c->n_experts[i] == 0) continue;
        SLUICE_ASSERT(c->n_experts[i] <= SL_EXPERTS_MAX && c->top_k[i] <= SL_TOP_K_MAX);
        SLUICE_ASSERT(c->top_k[i] >= 1 && c->top_k[i] <= c->n_experts[i]);
        sum += (uint64_t)c->n_ctx * c->top_k[i]; /* the limits keep this small */
    }
    return sum;
}

uint64_t sl_sticky_bytes(const struct sl_sticky_config *c)
{
    return 3 * SL_BLOCK_OVERHEAD_BYTES + sizeof(struct sl_sticky) +
           c->n_layers * sizeof(struct layer) + choices_of(c) * sizeof(uint16_t);
}

sluice_err sl_sticky_open(const struct sl_sticky_config *c, struct sl_budget *b, sluice_error *e,
                          struct sl_sticky **out)
{
    uint64_t n_choices = choices_of(c);
    *out = NULL;
    struct sl_sticky *s = sl_alloc(b, 1, sizeof *s);
    if (s != NULL) {
        s->layers = sl_alloc(b, c->n_layers, sizeof *s->layers);
        s->choices = sl_alloc(b, n_choices, sizeof *s->choices);
    }
    if (s == NULL || s->layers == NULL || s->choices == NULL) {
        sl_sticky_close(s);
        return sl_fail(e, SLUICE_E_NOMEM,
                       "no memory for sticky routing in a context of %u: %llu bytes", c->n_ctx,
                       (unsigned long long)sl_sticky_bytes(c));
    }
    s->strength = c->strength;
    s->n_layers = c->n_layers;
    s->n_ctx = c->n_ctx;
    uint16_t *choices = s->choices;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        struct layer *l = &s->layers[i];
        if (c->n_experts[i] == 0) continue;
        uint32_t quarter = (c->n_experts[i] + 3) / 4;
        l->n_experts = c->n_experts[i];
        l->top_k = c->top_k[i];
        l->size = c->size == 0 ? quarter : (uint32_t)sl_min_u64(c->size, l->n_experts);
        l->choices = choices;
        choices += (uint64_t)c->n_ctx * l->top_k;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_sticky_close(struct sl_sticky *s)
{
    if (s == NULL) return;
    sl_free(s->layers);
    sl_free(s->choices);
    sl_free(s);
}

float sl_sticky_strength(const struct sl_sticky *s) { return s->strength; }

/* ---- the cache ---------------------------------------------------------------------------------
 */

static struct layer *layer_of(struct sl_sticky *s, uint32_t layer)
{
    SLUICE_ASSERT(layer < s->n_layers);
    SLUICE_ASSERT(s->layers[layer].n_experts > 0);
    return &s->layers[layer];
}

/* key[x] = score, then the complement of the index: a higher key is more favoured, no two are
 * equal, and 0 means not used in the window. */
static void score_experts(const struct layer *l, uint32_t pos, uint32_t *key)
{
    uint32_t window = pos < SL_STICKY_WINDOW ? pos : SL_STICKY_WINDOW;
    memset(key, 0, l->n_experts * sizeof *key);
    for (uint32_t age = 0; age < window; age++) {
        const uint16_t *chosen = l->choices + (uint64_t)(pos - 1 - age) * l->top_k;
        for (uint32_t i = 0; i < l->top_k; i++) key[chosen[i]] += weight_by_age[age];
    }
    for (uint32_t x = 0; x < l->n_experts; x++)
        key[x] = key[x] == 0 ? 0 : (key[x] << INDEX_BITS) + (SL_EXPERTS_MAX - 1 - x);
}

/* The size-th highest key, bit by bit; 1 where fewer are in use. */
static uint32_t lowest_favoured(const uint32_t *key, uint32_t n, uint32_t size)
{
    uint32_t lowest = 0;
    for (uint32_t bit = 1u << (KEY_BITS - 1); bit != 0; bit >>= 1) {
        uint32_t above = 0;
        for (uint32_t x = 0; x < n; x++) above += key[x] >= (lowest | bit);
        if (above >= size) lowest |= bit;
    }
    return lowest == 0 ? 1 : lowest;
}

const uint8_t *sl_sticky_favoured(struct sl_sticky *s, uint32_t layer, uint32_t pos)
{
    struct layer *l = layer_of(s, layer);
    SLUICE_ASSERT(pos <= l->n_known);
    score_experts(l, pos, s->key);
    uint32_t lowest = lowest_favoured(s->key, l->n_experts, l->size);
    for (uint32_t x = 0; x < l->n_experts; x++) s->favoured[x] = s->key[x] >= lowest;
    return s->favoured;
}

void sl_sticky_chose(struct sl_sticky *s, uint32_t layer, uint32_t pos, const uint32_t *chosen)
{
    struct layer *l = layer_of(s, layer);
    SLUICE_ASSERT(pos < s->n_ctx);
    SLUICE_ASSERT(pos <= l->n_known);
    uint16_t *to = l->choices + (uint64_t)pos * l->top_k;
    for (uint32_t i = 0; i < l->top_k; i++) {
        SLUICE_ASSERT(chosen[i] < l->n_experts);
        to[i] = (uint16_t)chosen[i];
    }
    l->n_known = pos + 1; /* what was known past it belonged to another text */
}
