/* Belady's optimum; see optimum.h. Each pool keeps its residents in a heap, whoever is to go first
 * on top, so that a use costs O(log slots). When each expert is used next is found beforehand,
 * walking through the visits backwards. */
#include "trace/optimum.h"

#define NEVER UINT32_MAX /* visit of the next use: there is none */
#define OUTSIDE UINT32_MAX

struct pool {
    uint32_t slots, first, n; /* heap: o->heap[first] on, n of them */
};

struct item {
    uint64_t key;   /* when it is wanted again: the higher, the sooner it goes */
    uint64_t last;  /* stamp of its last use */
    uint64_t came;  /* visit that brought it in, from 1 */
    uint32_t place; /* in its pool's heap, or OUTSIDE */
    bool resident;
};

struct sl_optimum {
    const struct sl_trace *t;
    struct pool pool[SL_LAYERS_MAX];
    uint32_t pool_of[SL_LAYERS_MAX], first_expert[SL_LAYERS_MAX];
    struct item *items; /* an expert each */
    uint32_t *heap;     /* items */
    uint32_t *next; /* [n_choices]: of the j-th distinct expert of a visit at first_choice + j */
    uint64_t uses, evictions;
};

/* ---- heap --------------------------------------------------------------------------------------
 */

static bool goes_before(const struct sl_optimum *o, uint32_t a, uint32_t b)
{
    const struct item *x = &o->items[a], *y = &o->items[b];
    return x->key != y->key ? x->key > y->key : x->last < y->last;
}

static void put(struct sl_optimum *o, const struct pool *p, uint32_t place, uint32_t item)
{
    o->heap[p->first + place] = item;
    o->items[item].place = place;
}

static void sift_up(struct sl_optimum *o, const struct pool *p, uint32_t place, uint32_t item)
{
    for (; place > 0; place = (place - 1) / 2) {
        uint32_t parent = o->heap[p->first + (place - 1) / 2];
        if (!goes_before(o, item, parent)) break;
        put(o, p, place, parent);
    }
    put(o, p, place, item);
}

static void sift_down(struct sl_optimum *o, const struct pool *p, uint32_t place, uint32_t item)
{
    const uint32_t *heap = o->heap + p->first;
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= p->n) break;
        if (child + 1 < p->n && goes_before(o, heap[child + 1], heap[child])) child++;
        if (!goes_before(o, heap[child], item)) break;
        put(o, p, place, heap[child]);
        place = child;
    }
    put(o, p, place, item);
}

static void heap_push(struct sl_optimum *o, struct pool *p, uint32_t item)
{
    p->n++;
    sift_up(o, p, p->n - 1, item);
}

static void heap_remove(struct sl_optimum *o, struct pool *p, uint32_t item)
{
    uint32_t place = o->items[item].place;
    uint32_t last = o->heap[p->first + --p->n];
    o->items[item].place = OUTSIDE;
    if (last == item) return;
    if (goes_before(o, last, item))
        sift_up(o, p, place, last);
    else
        sift_down(o, p, place, last);
}

/* ---- the future --------------------------------------------------------------------------------
 */

static bool is_left_out(const struct sl_trace *t, const struct sl_replay_config *c, uint64_t visit)
{
    return c->skip_prompts && replay_is_prompt(t, visit);
}

/* coming: [n experts], scratch. */
static void look_ahead(struct sl_optimum *o, const struct sl_replay_config *c, uint32_t *coming,
                       struct replay_choice *choice)
{
    for (uint64_t v = o->t->n_visits; v-- > 0;) {
        if (is_left_out(o->t, c, v)) continue;
        replay_collect(o->t, v, choice);
        uint32_t first = o->first_expert[choice->layer];
        for (uint32_t j = 0; j < choice->n; j++) {
            uint32_t *next = &coming[first + choice->expert[j]];
            o->next[o->t->visits[v].first_choice + j] = *next;
            *next = (uint32_t)v;
        }
    }
}

/* A decoded token's use is worth waiting for, the sooner the more; a prompt's is not. */
static uint64_t key_of(const struct sl_optimum *o, uint32_t next)
{
    if (next == NEVER) return UINT64_MAX;
    return replay_is_prompt(o->t, next) ? (uint64_t)1 << 32 | next : next;
}

/* ---- open --------------------------------------------------------------------------------------
 */

static void divide_pools(struct sl_optimum *o, const struct sl_replay_config *c)
{
    const struct sl_trace_header *h = &o->t->header;
    uint32_t size[SL_LAYERS_MAX] = {0}, first = 0;
    bool by_layer = c->pool == SL_REPLAY_PER_LAYER;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        o->pool_of[l] = by_layer ? l : h->layer[l].size_class;
        size[o->pool_of[l]] += h->layer[l].n_experts;
    }
    for (uint32_t i = 0; i < (by_layer ? h->n_layers : SL_TRACE_CLASSES); i++) {
        o->pool[i] = (struct pool){by_layer ? c->layer_slots[i] : c->n_slots[i], first, 0};
        first += size[i];
    }
}

static sluice_err prepare(struct sl_optimum *o, const struct sl_replay_config *c,
                          struct sl_budget *b)
{
    uint32_t n = replay_first_expert(o->t, o->first_expert);
    uint32_t *coming = sl_alloc(b, n, sizeof *coming);
    struct replay_choice *choice = sl_alloc(b, 1, sizeof *choice);
    o->items = sl_alloc(b, n, sizeof *o->items);
    o->heap = sl_alloc(b, n, sizeof *o->heap);
    o->next = sl_alloc(b, o->t->n_choices, sizeof *o->next);
    bool good = coming && choice && o->items && o->heap && o->next;
    if (good) {
        for (uint32_t i = 0; i < n; i++) coming[i] = NEVER;
        for (uint32_t i = 0; i < n; i++) o->items[i].place = OUTSIDE;
        look_ahead(o, c, coming, choice);
        divide_pools(o, c);
    }
    sl_free(coming);
    sl_free(choice);
    return good ? SLUICE_OK : SLUICE_E_NOMEM;
}

sluice_err sl_optimum_open(const struct sl_trace *t, const struct sl_replay_config *c,
                           struct sl_budget *b, sluice_error *e, struct sl_optimum **out)
{
    *out = NULL;
    if (t->n_visits >= NEVER)
        return sl_fail(e, SLUICE_E_LIMIT, "the trace has more than %u visits", NEVER - 1);
    struct sl_optimum *o = sl_alloc(b, 1, sizeof *o);
    if (o != NULL) o->t = t;
    if (o == NULL || prepare(o, c, b) != SLUICE_OK) {
        sl_optimum_close(o);
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for finding the optimum of %llu choices",
                       (unsigned long long)t->n_choices);
    }
    *out = o;
    return SLUICE_OK;
}

void sl_optimum_close(struct sl_optimum *o)
{
    if (o == NULL) return;
    sl_free(o->items);
    sl_free(o->heap);
    sl_free(o->next);
    sl_free(o);
}

/* ---- visits ------------------------------------------------------------------------------------
 */

static void evict(struct sl_optimum *o, struct pool *p, uint64_t visit)
{
    uint32_t item = o->heap[p->first];
    heap_remove(o, p, item);
    o->items[item].resident = false;
    o->evictions += o->items[item].came != visit + 1; /* else it has only passed */
}

void sl_optimum_visit(struct sl_optimum *o, struct replay_choice *c)
{
    struct pool *p = &o->pool[o->pool_of[c->layer]];
    uint32_t first = o->first_expert[c->layer];
    const uint32_t *next = o->next + o->t->visits[c->visit].first_choice;
    for (uint32_t j = 0; j < c->n; j++) {
        struct item *x = &o->items[first + c->expert[j]];
        c->there[j] = x->resident ? REPLAY_AT_HAND : REPLAY_MISSING;
        if (x->resident) heap_remove(o, p, first + c->expert[j]);
        if (!x->resident) x->came = c->visit + 1;
        x->resident = true;
        x->key = key_of(o, next[j]);
        x->last = ++o->uses;
    }
    SLUICE_ASSERT(c->in_order || c->n <= p->slots);
    if (!c->in_order)
        while (p->n + c->n > p->slots) evict(o, p, c->visit);
    for (uint32_t j = 0; j < c->n; j++) heap_push(o, p, first + c->expert[j]);
    while (p->n > p->slots) evict(o, p, c->visit);
}

uint64_t sl_optimum_evictions(const struct sl_optimum *o) { return o->evictions; }
