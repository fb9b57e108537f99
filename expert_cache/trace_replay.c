/* Replay: one set of books, or one a layer, driven as an engine with an instant drive would. */
#include "expert_cache/trace_replay.h"

struct sl_ec_replay {
    struct sl_ec **pools; /* [n_pools] */
    uint32_t n_pools, n_layers, top_k;
};

static sluice_err open_pools(const struct sl_ec_replay_config *c, struct sl_budget *b,
                             sluice_error *e, struct sl_ec_replay *r)
{
    struct sl_ec_layer layers[SL_LAYERS_MAX];
    for (uint32_t l = 0; l < c->n_layers; l++)
        layers[l] = (struct sl_ec_layer){c->n_experts, c->top_k, 1, 0};
    struct sl_ec_config config = {.layers = layers, .ring_slots = 1, .policy = c->policy};
    config.n_layers = c->pool_per_layer ? 1 : c->n_layers;
    config.n_slots[0] = c->slots_per_layer * config.n_layers;
    r->pools = sl_alloc(b, c->n_layers, sizeof(struct sl_ec *));
    if (r->pools == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a replay");
    r->n_pools = c->pool_per_layer ? c->n_layers : 1;
    r->n_layers = c->n_layers;
    r->top_k = c->top_k;
    for (uint32_t i = 0; i < r->n_pools; i++) {
        sluice_err err = sl_ec_open(&config, b, e, &r->pools[i]);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

sluice_err sl_ec_replay_open(const struct sl_ec_replay_config *c, struct sl_budget *b,
                             sluice_error *e, struct sl_ec_replay **out)
{
    *out = NULL;
    if (c->n_layers == 0 || c->n_layers > SL_LAYERS_MAX || c->slots_per_layer > c->n_experts)
        return sl_fail(e, SLUICE_E_ARG, "a replay of %u layers with %u slots each of %u experts",
                       c->n_layers, c->slots_per_layer, c->n_experts);
    struct sl_ec_replay *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a replay");
    sluice_err err = open_pools(c, b, e, r);
    if (err != SLUICE_OK) {
        sl_ec_replay_close(r);
        return err;
    }
    *out = r;
    return SLUICE_OK;
}

void sl_ec_replay_close(struct sl_ec_replay *r)
{
    if (r == NULL) return;
    for (uint32_t i = 0; i < r->n_pools; i++) sl_ec_close(r->pools[i]);
    sl_free(r->pools);
    sl_free(r);
}

void sl_ec_replay_visit(struct sl_ec_replay *r, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    SLUICE_ASSERT(layer < r->n_layers);
    SLUICE_ASSERT(n <= r->top_k);
    struct sl_ec *c = r->n_pools == 1 ? r->pools[0] : r->pools[layer];
    uint32_t l = r->n_pools == 1 ? layer : 0;
    sl_ec_visit(c, l, experts, n);
    for (uint32_t i = 0; i < n; i++) {
        if (sl_ec_find(c, l, experts[i]) != SL_EC_NONE) continue;
        struct sl_ec_slot_of got;
        enum sl_ec_answer answer = sl_ec_reserve(c, l, experts[i], SL_EC_DEMAND, &got);
        SLUICE_ASSERT(answer == SL_EC_ENTERS); /* nothing is leased or in flight */
        sl_ec_arrived(c, got.slot, 1);
    }
}

void sl_ec_replay_result(const struct sl_ec_replay *r, struct sl_ec_replay_result *out)
{
    *out = (struct sl_ec_replay_result){0, 0, 0};
    for (uint32_t i = 0; i < r->n_pools; i++) {
        struct sl_ec_stats s;
        sl_ec_stats(r->pools[i], &s);
        out->uses += s.uses;
        out->hits += s.hits;
        out->evictions += s.evictions;
    }
}
