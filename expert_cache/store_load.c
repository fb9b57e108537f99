/* A slot for every expert: all are read at open, tensor after tensor as they lie in the files, with
 * enough requests out to keep the drive busy. */
#include "expert_cache/store.h"

#define LOAD_FLIGHTS 32u

/* One read of all experts of a layer. */
struct piece {
    uint32_t layer, read, shard;
    uint64_t offset; /* of the first expert */
};

static bool piece_before(const struct piece *a, const struct piece *b)
{
    return a->shard != b->shard ? a->shard < b->shard : a->offset < b->offset;
}

/* In the order of the files; insertion, since they mostly lie so already. */
static uint32_t sort_pieces(const struct sl_expert_store *s, struct piece *out)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const struct store_layer *y = &s->layers[l];
        for (uint32_t r = 0; r < y->n_reads; r++) {
            struct store_place first = store_read_place(s, (struct sl_expert_id){l, 0}, r);
            struct piece x = {l, r, first.shard, first.offset};
            uint32_t at = n++;
            for (; at > 0 && piece_before(&x, &out[at - 1]); at--) out[at] = out[at - 1];
            out[at] = x;
        }
    }
    return n;
}

struct load {
    struct sl_expert_store *s;
    const struct sl_expert_store_config *c;
    uint64_t reported_bytes;
    bool cancelled;
};

static bool goes_on(const struct load *x) { return !x->cancelled && !x->s->chunk.failed; }

/* Waits until no more than so many flights are out, telling how far it is. */
static void wait_until(struct load *x, uint32_t flights)
{
    struct sl_expert_store *s = x->s;
    while (s->n_flights > flights && goes_on(x)) {
        store_reap(s, 1);
        uint64_t fresh = s->stats.load_bytes - x->reported_bytes;
        x->reported_bytes += fresh;
        if (fresh > 0 && x->c->progress && x->c->progress(x->c->progress_user, fresh))
            x->cancelled = true;
    }
}

static void take_slots(struct sl_expert_store *s)
{
    for (uint32_t l = 0; l < s->n_layers; l++)
        for (uint32_t x = 0; x < s->layers[l].shape.n_experts; x++) {
            struct sl_ec_slot_of got;
            enum sl_ec_answer answer = sl_ec_reserve(s->ec, l, x, SL_EC_DEMAND, &got);
            SLUICE_ASSERT(answer == SL_EC_ENTERS && got.evicted_layer == SL_EC_NONE);
        }
}

/* All requests back, and nothing in the books that is not whole. */
static void abandon(struct sl_expert_store *s)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        if (s->flights[i].pending != 0) store_cancel(s, &s->flights[i]);
    while (s->n_flights > 0) store_reap(s, 1);
    for (uint32_t l = 0; l < s->n_layers; l++)
        for (uint32_t x = 0; x < s->layers[l].shape.n_experts; x++) {
            uint32_t slot = sl_ec_find(s->ec, l, x);
            if (slot != SL_EC_NONE && !sl_expert_at_hand(s, l, x)) sl_ec_failed(s->ec, slot);
        }
}

sluice_err store_load_all(struct sl_expert_store *s, const struct sl_expert_store_config *c,
                          sluice_error *e)
{
    struct piece pieces[SL_LAYERS_MAX * SL_EC_PARTS_MAX];
    struct load x = {s, c, 0, false};
    uint32_t n = sort_pieces(s, pieces);
    take_slots(s);
    for (uint32_t i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        for (uint32_t k = 0; k < s->layers[p->layer].shape.n_experts && goes_on(&x); k++) {
            (void)store_read(s, (struct sl_expert_id){p->layer, k}, sl_ec_find(s->ec, p->layer, k),
                             1u << p->read, FETCH_LOAD);
            store_flush(s);
            wait_until(&x, LOAD_FLIGHTS - 1);
        }
    }
    wait_until(&x, 0);
    if (goes_on(&x)) return SLUICE_OK;
    abandon(s);
    if (x.cancelled) return sl_fail(e, SLUICE_E_CANCELLED, "loading was cancelled");
    if (e != NULL) *e = s->error;
    return (sluice_err)s->error.code;
}
