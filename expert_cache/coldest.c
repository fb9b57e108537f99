/* Who goes first.
 *
 * Between its visits the order within a layer is fixed. So each layer keeps a key, its score, for
 * every evictable expert, and the coldest of them: the keys are renewed after a visit, and the
 * coldest is sought anew, in one pass over a row of numbers, when it is gone. The choice among
 * layers looks at one kept expert each. What is evictable is told by offers and withdrawals as it
 * changes, so that a search touches neither slots nor entries. Protected experts have a row of
 * their own, as the choice of last resort. */
#include "expert_cache/books.h"

#include <math.h>

static const struct rank nobody = {0, 0, SL_EC_NONE};

bool books_evictable(const struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    const struct layer *l = &c->layers[layer];
    const struct entry *x = &c->entries[l->first + expert];
    if (x->slot == SL_EC_NONE) return false;
    const struct slot *s = &c->slots[x->slot];
    if (s->state != SLOT_READY || s->leases > 0) return false;
    bool chosen_now = layer == c->visiting && x->heat.visit == l->visits;
    return !chosen_now;
}

/* The layer has been foreseen. */
static double score_of(const struct sl_ec *c, const struct layer *l, uint32_t expert)
{
    double score = c->policy->score(&c->entries[l->first + expert].heat, l->visits);
    if (c->recall.past == NULL) return score;
    return score + c->policy->recall_weight * c->recall.follows[l->first + expert];
}

struct rank books_rank(const struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    const struct layer *l = &c->layers[layer];
    const struct entry *x = &c->entries[l->first + expert];
    double score = score_of(c, l, expert);
    return (struct rank){score, x->heat.last_use, l->first + expert};
}

static double layer_wait(const struct sl_ec *c, const struct layer *l)
{
    uint32_t turns = l->turn - c->now_turn;
    return c->wait[l->turn > c->now_turn ? turns : turns + c->n_turns];
}

struct rank books_rank_overall(struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    recall_foresee(c, layer);
    struct rank r = books_rank(c, layer, expert);
    r.score -= layer_wait(c, &c->layers[layer]);
    return r;
}

void books_offer(struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    struct layer *l = &c->layers[layer];
    uint32_t key = l->first_key + expert;
    if (!books_evictable(c, layer, expert)) return;
    if (!isinf(c->keys[COLD_FREE][key]) || !isinf(c->keys[COLD_PROTECTED][key])) return;
    uint64_t until = c->entries[l->first + expert].protected_until;
    int kind = until > c->clock ? COLD_PROTECTED : COLD_FREE;
    if (kind == COLD_PROTECTED) l->expires = sl_min_u64(l->expires, until);
    l->n_evictable[kind]++;
    c->keys[kind][key] = 0; /* finite: it is a candidate */
    if (!l->keyed) return;
    struct rank r = books_rank(c, layer, expert);
    c->keys[kind][key] = r.score;
    if (l->known && rank_before(&r, &l->cold[kind])) l->cold[kind] = r;
}

void books_withdraw(struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    struct layer *l = &c->layers[layer];
    for (int kind = 0; kind < COLD_KINDS; kind++) {
        double *key = &c->keys[kind][l->first_key + expert];
        if (isinf(*key)) continue;
        *key = INFINITY;
        l->n_evictable[kind]--;
        if (l->cold[kind].id == l->first + expert) l->known = false;
    }
}

void books_aged(struct sl_ec *c, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    c->layers[layer].keyed = false;
    recall_visit(c, layer, experts, n);
}

/* Moves those whose protection is over to the other row, and finds when the next one ends. */
static void unprotect(struct sl_ec *c, uint32_t layer)
{
    struct layer *l = &c->layers[layer];
    l->expires = UINT64_MAX;
    l->known = false;
    if (l->n_evictable[COLD_PROTECTED] == 0) return;
    for (uint32_t x = 0; x < l->n_experts; x++) {
        uint64_t until = c->entries[l->first + x].protected_until;
        double *key = &c->keys[COLD_PROTECTED][l->first_key + x];
        if (isinf(*key)) continue;
        if (until > c->clock) {
            l->expires = sl_min_u64(l->expires, until);
            continue;
        }
        c->keys[COLD_FREE][l->first_key + x] = *key;
        *key = INFINITY;
        l->n_evictable[COLD_FREE]++;
        l->n_evictable[COLD_PROTECTED]--;
    }
}

static void renew_keys(struct sl_ec *c, uint32_t layer)
{
    struct layer *l = &c->layers[layer];
    recall_foresee(c, layer);
    for (int kind = 0; kind < COLD_KINDS; kind++) {
        if (l->n_evictable[kind] == 0) continue;
        double *key = c->keys[kind] + l->first_key;
        for (uint32_t x = 0; x < l->n_experts; x++)
            if (!isinf(key[x])) key[x] = score_of(c, l, x);
    }
    l->keyed = true;
    l->known = false;
}

/* Independent lanes, so that a compiler may keep them in one register. */
static double lowest_key(const double *key, uint32_t n)
{
    double low[KEY_LANES] = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (uint32_t i = 0; i < n; i += KEY_LANES)
        for (uint32_t j = 0; j < KEY_LANES; j++) low[j] = key[i + j] < low[j] ? key[i + j] : low[j];
    for (uint32_t j = 1; j < KEY_LANES; j++)
        if (low[j] < low[0]) low[0] = low[j];
    return low[0];
}

static struct rank seek_coldest(const struct sl_ec *c, const struct layer *l, int kind)
{
    struct rank best = nobody;
    if (l->n_evictable[kind] == 0) return best;
    const double *key = c->keys[kind] + l->first_key;
    double low = lowest_key(key, keys_of(l->n_experts));
    for (uint32_t i = 0; i < l->n_experts; i += KEY_LANES) {
        bool here = false;
        for (uint32_t j = 0; j < KEY_LANES; j++) here |= key[i + j] == low;
        if (!here) continue;
        for (uint32_t x = i; x < i + KEY_LANES; x++) { /* padding is infinite, low is not */
            if (key[x] != low) continue;
            struct rank r = {low, c->entries[l->first + x].heat.last_use, l->first + x};
            if (rank_before(&r, &best)) best = r;
        }
    }
    return best;
}

static void refresh(struct sl_ec *c, uint32_t layer)
{
    struct layer *l = &c->layers[layer];
    if (c->clock >= l->expires) unprotect(c, layer);
    if (!l->keyed) renew_keys(c, layer);
    if (l->known) return;
    for (int kind = 0; kind < COLD_KINDS; kind++) l->cold[kind] = seek_coldest(c, l, kind);
    l->known = true;
}

void books_coldest(struct sl_ec *c, uint32_t size_class, struct victims *out)
{
    const struct size_class *k = &c->classes[size_class];
    out->best[COLD_FREE] = out->best[COLD_PROTECTED] = nobody;
    out->layer[COLD_FREE] = out->layer[COLD_PROTECTED] = SL_EC_NONE;
    for (uint32_t i = 0; i < k->n_members; i++) {
        uint32_t layer = c->members[k->first_member + i];
        struct layer *l = &c->layers[layer];
        if (l->n_evictable[COLD_FREE] + l->n_evictable[COLD_PROTECTED] == 0) continue;
        bool fresh = l->known && l->keyed && c->clock < l->expires;
        if (!fresh) refresh(c, layer);
        double wait = layer_wait(c, l);
        for (int kind = 0; kind < COLD_KINDS; kind++) {
            if (l->n_evictable[kind] == 0) continue;
            struct rank r = l->cold[kind];
            r.score -= wait;
            if (!rank_before(&r, &out->best[kind])) continue;
            out->best[kind] = r;
            out->layer[kind] = layer;
        }
    }
}
