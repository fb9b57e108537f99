/* Guesses, and the frequencies behind them.
 *
 * A candidate falls into a class: its rank in the router's guess, and whether the previous token
 * chose it. Each class of each layer keeps how often its candidates came true, a plain mean at
 * first and a decaying one later, so that the figure follows the text; that is the probability of a
 * hint, and needs no assumption about scales or temperatures of logits. Experts that only the
 * previous token speaks for are two more classes, with and without a router's guess at hand.
 *
 * Always true: marks are all 0 between calls; a layer's pending guess was made with the previous
 * choice that is still held. Reading ahead on hints is the expert store's business. */
#include "router/predict.h"

#include <math.h>

/* Candidates of a class that count in full; later ones displace the older. */
#define MEAN_OF 128u
/* What is believed of a class before anything was seen counts as so many. */
#define PRIOR_COUNTS_AS 4u

enum guess { GUESS_NONE = 0, GUESS_BY_ROUTER = 1, GUESS_BY_PREVIOUS = 2 };
enum mark { MARK_PREVIOUS = 1, MARK_RANKED = 2, MARK_CHOSEN = 4 };

struct odds {
    float probability;
    uint32_t seen; /* up to MEAN_OF */
};

struct layer {
    uint32_t n_experts, top_k;
    uint32_t n_ranks;    /* of the router's guess that are considered */
    struct odds *rank;   /* [n_ranks][2]: not chosen, chosen by the previous token */
    struct odds beyond;  /* chosen by the previous token, in none of the ranks */
    struct odds blind;   /* chosen by the previous token, no router's guess at hand */
    uint16_t *ranked;    /* [n_ranks] the pending guess, best first */
    uint16_t *previous;  /* [top_k] */
    uint32_t n_previous; /* 0: not known */
    enum guess guess;    /* pending */
    struct sl_predict_stats stats;
};

struct sl_predictor {
    struct layer *layers; /* [n_layers] */
    struct odds *odds;    /* all layers' */
    uint16_t *ids;        /* all layers' */
    uint32_t n_layers;
    uint8_t mark[SL_EXPERTS_MAX]; /* enum mark; scratch */
};

/* ---- open and close ----------------------------------------------------------------------------
 */

static uint32_t ranks_of(const struct sl_predict_layer *l)
{
    return l->n_experts < 2 * l->top_k ? l->n_experts : 2 * l->top_k;
}

struct sizes {
    uint64_t odds, ids;
};

static struct sizes sizes_of(const struct sl_predict_layer *layers, uint32_t n_layers)
{
    struct sizes n = {0, 0};
    SLUICE_ASSERT(n_layers <= SL_LAYERS_MAX);
    for (uint32_t i = 0; i < n_layers; i++) {
        const struct sl_predict_layer *l = &layers[i];
        if (l->n_experts == 0) continue;
        SLUICE_ASSERT(l->n_experts <= SL_EXPERTS_MAX && l->top_k <= SL_TOP_K_MAX);
        SLUICE_ASSERT(l->top_k >= 1 && l->top_k <= l->n_experts);
        n.odds += 2 * ranks_of(l);
        n.ids += ranks_of(l) + l->top_k;
    }
    return n;
}

uint64_t sl_predictor_bytes(const struct sl_predict_layer *layers, uint32_t n_layers)
{
    struct sizes n = sizes_of(layers, n_layers);
    return 4 * SL_BLOCK_OVERHEAD_BYTES + sizeof(struct sl_predictor) +
           n_layers * sizeof(struct layer) + n.odds * sizeof(struct odds) +
           n.ids * sizeof(uint16_t);
}

static struct odds prior(float probability) { return (struct odds){probability, PRIOR_COUNTS_AS}; }

/* First beliefs, roughly what others found for a router one layer ahead; a few tokens correct them.
 */
static void fill_layer(struct layer *l, const struct sl_predict_layer *from)
{
    l->n_experts = from->n_experts;
    l->top_k = from->top_k;
    l->n_ranks = ranks_of(from);
    for (uint32_t i = 0; i < l->n_ranks; i++) {
        bool likely = i < l->top_k;
        l->rank[2 * i] = prior(likely ? 0.6f : 0.1f);
        l->rank[2 * i + 1] = prior(likely ? 0.8f : 0.3f);
    }
    l->beyond = prior(0.1f);
    l->blind = prior(0.35f);
}

sluice_err sl_predictor_open(const struct sl_predict_layer *layers, uint32_t n_layers,
                             struct sl_budget *b, sluice_error *e, struct sl_predictor **out)
{
    struct sizes n = sizes_of(layers, n_layers);
    *out = NULL;
    struct sl_predictor *p = sl_alloc(b, 1, sizeof *p);
    if (p != NULL) {
        p->layers = sl_alloc(b, n_layers, sizeof *p->layers);
        p->odds = sl_alloc(b, n.odds, sizeof *p->odds);
        p->ids = sl_alloc(b, n.ids, sizeof *p->ids);
    }
    if (p == NULL || p->layers == NULL || p->odds == NULL || p->ids == NULL) {
        sl_predictor_close(p);
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the expert predictor: %llu bytes",
                       (unsigned long long)sl_predictor_bytes(layers, n_layers));
    }
    p->n_layers = n_layers;
    struct odds *odds = p->odds;
    uint16_t *ids = p->ids;
    for (uint32_t i = 0; i < n_layers; i++) {
        if (layers[i].n_experts == 0) continue;
        struct layer *l = &p->layers[i];
        l->rank = odds;
        l->ranked = ids;
        l->previous = ids + ranks_of(&layers[i]);
        fill_layer(l, &layers[i]);
        odds += 2 * l->n_ranks;
        ids += l->n_ranks + l->top_k;
    }
    *out = p;
    return SLUICE_OK;
}

void sl_predictor_close(struct sl_predictor *p)
{
    if (p == NULL) return;
    sl_free(p->layers);
    sl_free(p->odds);
    sl_free(p->ids);
    sl_free(p);
}

/* ---- guesses -----------------------------------------------------------------------------------
 */

static bool all_finite(const float *x, uint32_t n)
{
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) finite &= isfinite(x[i]) != 0;
    return finite;
}

/* The k largest, largest first, ties to the lower index. Few values beat the worst of the list once
 * it has filled, so that this costs little more than a pass over x. */
static void rank_largest(const float *x, uint32_t n, uint32_t k, uint16_t *best)
{
    float value[2 * SL_TOP_K_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = count;
        if (count == k) {
            if (!(x[i] > value[k - 1])) continue;
            at = k - 1;
        } else {
            count++;
        }
        for (; at > 0 && x[i] > value[at - 1]; at--) {
            value[at] = value[at - 1];
            best[at] = best[at - 1];
        }
        value[at] = x[i];
        best[at] = (uint16_t)i;
    }
}

struct hints {
    struct sl_expert_hint *out;
    uint32_t n, max;
};

/* Likeliest first; of equals the one that came first. */
static void add_hint(struct hints *h, uint32_t expert, float probability)
{
    uint32_t at = h->n;
    if (h->n == h->max) {
        if (h->max == 0 || !(probability > h->out[h->max - 1].probability)) return;
        at = h->max - 1;
    } else {
        h->n++;
    }
    for (; at > 0 && probability > h->out[at - 1].probability; at--) h->out[at] = h->out[at - 1];
    h->out[at] = (struct sl_expert_hint){expert, probability};
}

static void mark_all(struct sl_predictor *p, const uint16_t *experts, uint32_t n, uint8_t with)
{
    for (uint32_t i = 0; i < n; i++) p->mark[experts[i]] |= with;
}

static void unmark_all(struct sl_predictor *p, const uint16_t *experts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) p->mark[experts[i]] = 0;
}

static struct layer *layer_of(struct sl_predictor *p, uint32_t layer)
{
    SLUICE_ASSERT(layer < p->n_layers);
    return &p->layers[layer];
}

uint32_t sl_predict(struct sl_predictor *p, uint32_t layer, const float *logits,
                    struct sl_expert_hint *out, uint32_t max)
{
    struct layer *l = layer_of(p, layer);
    struct hints h = {out, 0, max};
    l->guess = GUESS_NONE;
    if (logits != NULL && !all_finite(logits, l->n_experts)) return 0;
    if (logits == NULL) {
        l->guess = GUESS_BY_PREVIOUS;
        for (uint32_t i = 0; i < l->n_previous; i++)
            add_hint(&h, l->previous[i], l->blind.probability);
        return h.n;
    }
    l->guess = GUESS_BY_ROUTER;
    rank_largest(logits, l->n_experts, l->n_ranks, l->ranked);
    mark_all(p, l->previous, l->n_previous, MARK_PREVIOUS);
    for (uint32_t i = 0; i < l->n_ranks; i++) {
        uint32_t expert = l->ranked[i];
        bool before = (p->mark[expert] & MARK_PREVIOUS) != 0;
        add_hint(&h, expert, l->rank[2 * i + before].probability);
        p->mark[expert] |= MARK_RANKED;
    }
    for (uint32_t i = 0; i < l->n_previous; i++) {
        uint32_t expert = l->previous[i];
        if (!(p->mark[expert] & MARK_RANKED)) add_hint(&h, expert, l->beyond.probability);
    }
    unmark_all(p, l->ranked, l->n_ranks);
    unmark_all(p, l->previous, l->n_previous);
    return h.n;
}

/* ---- learning ----------------------------------------------------------------------------------
 */

static void observe(struct odds *o, bool came_true)
{
    if (o->seen < MEAN_OF) o->seen++;
    float truth = came_true ? 1.0f : 0.0f;
    o->probability += (truth - o->probability) / (float)o->seen;
}

/* Marks of the previous choice and of the truth are set. */
static void learn_ranks(struct sl_predictor *p, struct layer *l, uint32_t n)
{
    l->stats.chosen += n;
    for (uint32_t i = 0; i < l->n_ranks; i++) {
        uint32_t mark = p->mark[l->ranked[i]];
        bool came_true = (mark & MARK_CHOSEN) != 0;
        /* the first token of a text has no previous: its candidates belong to no class */
        if (l->n_previous > 0) observe(&l->rank[2 * i + (mark & MARK_PREVIOUS)], came_true);
        if (i < l->top_k) l->stats.by_router += came_true;
        p->mark[l->ranked[i]] |= MARK_RANKED;
    }
    for (uint32_t i = 0; i < l->n_previous; i++) {
        uint32_t mark = p->mark[l->previous[i]];
        bool came_true = (mark & MARK_CHOSEN) != 0;
        if (!(mark & MARK_RANKED)) observe(&l->beyond, came_true);
        l->stats.by_previous += came_true;
    }
}

static void learn_previous(const struct sl_predictor *p, struct layer *l)
{
    for (uint32_t i = 0; i < l->n_previous; i++)
        observe(&l->blind, (p->mark[l->previous[i]] & MARK_CHOSEN) != 0);
}

void sl_predict_learn(struct sl_predictor *p, uint32_t layer, const uint32_t *chosen, uint32_t n)
{
    struct layer *l = layer_of(p, layer);
    SLUICE_ASSERT(n <= l->top_k);
    mark_all(p, l->previous, l->n_previous, MARK_PREVIOUS);
    for (uint32_t i = 0; i < n; i++) {
        SLUICE_ASSERT(chosen[i] < l->n_experts);
        SLUICE_ASSERT(!(p->mark[chosen[i]] & MARK_CHOSEN)); /* distinct */
        p->mark[chosen[i]] |= MARK_CHOSEN;
    }
    if (l->guess == GUESS_BY_ROUTER) learn_ranks(p, l, n);
    if (l->guess == GUESS_BY_PREVIOUS) learn_previous(p, l);
    if (l->guess == GUESS_BY_ROUTER) unmark_all(p, l->ranked, l->n_ranks);
    unmark_all(p, l->previous, l->n_previous);
    for (uint32_t i = 0; i < n; i++) {
        p->mark[chosen[i]] = 0;
        l->previous[i] = (uint16_t)chosen[i];
    }
    l->n_previous = n;
    l->guess = GUESS_NONE;
}

void sl_predict_forget(struct sl_predictor *p)
{
    for (uint32_t i = 0; i < p->n_layers; i++) {
        p->layers[i].n_previous = 0;
        p->layers[i].guess = GUESS_NONE;
    }
}

void sl_predict_get_stats(const struct sl_predictor *p, uint32_t layer,
                          struct sl_predict_stats *out)
{
    SLUICE_ASSERT(layer < p->n_layers);
    *out = p->layers[layer].stats;
}
