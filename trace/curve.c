/* Hits at every size in one pass: stacks.
 *
 * A policy that orders all experts in the same way whatever the size of the cache has caches that
 * nest: let P(s) be the cache with s slots, O the experts of a visit. A token's experts all come in
 * and stay through their visit, and of the others the best s - |O| of P(s) remain. P(s + 1) holds
 * P(s) and at most one expert more, so the best of it hold the best of P(s): the caches still nest,
 * as long as s is not below |O|. Of a prompt's chunk nothing need stay (it can pass through the
 * ring), so the best s of P(s) and O together remain, and caches nest at any s. Hence a stack: the
 * first s of it are P(s), and a use hits in all caches that reach down to where its expert lies.
 *
 * After a visit the new stack is found by walking down the old one with those that had to move:
 * at each depth the best of them and of who lies there takes the place, and the walk ends when the
 * visit's own have all been met. For LRU the stack is the order of last uses, so how deep an expert
 * lies is counted without a walk (recency.h). Source: Mattson and others, see study.h. */
#include <string.h>

#include "trace/recency.h"
#include "trace/replay_choice.h"
#include "trace/study.h"

#define NEVER UINT32_MAX
/* Priorities are two numbers in one: the upper decides, the lower is the stamp of the last use. */
#define STAMP_BITS 36
#define UPPER_MAX ((UINT64_C(1) << (64 - STAMP_BITS)) - 1)

struct moved {
    uint64_t priority;
    uint32_t key;
};

struct curve_run {
    const struct sl_trace *t;
    enum sl_stack_policy policy;
    bool by_layer, skip_prompts;
    struct sl_curve *out;
    struct replay_choice *choice;
    uint32_t first[SL_LAYERS_MAX], n_keys;    /* a key is an expert among all */
    struct sl_recency recency[SL_LAYERS_MAX]; /* LRU: of the pools */
    uint32_t *stack;                          /* others: [n_keys] keys, pool after pool */
    uint32_t depth[SL_LAYERS_MAX];            /* keys in the stack of a pool */
    uint64_t *priority;                       /* [n_keys]; 0: it is the visit's own */
    uint32_t *counts;                         /* LFU: [n_keys] uses */
    uint8_t *seen;                            /* [n_keys] it was used before */
    uint32_t *next; /* optimum: [n_choices] visit that uses the j-th of a visit next */
    uint64_t stamp;
    struct moved heap[SL_EXPERTS_MAX + 1]; /* the best on top */
    uint32_t n_heap;
};

/* ---- heap of who has to move --------------------------------------------------------------------
 */

static void sink(struct curve_run *r, struct moved m)
{
    uint32_t i = 0;
    for (uint32_t child = 1; child < r->n_heap; child = 2 * i + 1) {
        if (child + 1 < r->n_heap && r->heap[child + 1].priority > r->heap[child].priority) child++;
        if (r->heap[child].priority <= m.priority) break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = m;
}

static void push(struct curve_run *r, struct moved m)
{
    uint32_t i = r->n_heap++;
    for (; i && r->heap[(i - 1) / 2].priority < m.priority; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = m;
}

static uint32_t pop(struct curve_run *r)
{
    uint32_t key = r->heap[0].key;
    struct moved last = r->heap[--r->n_heap];
    if (r->n_heap) sink(r, last);
    return key;
}

/* ---- a visit ------------------------------------------------------------------------------------
 */

/* How long it is worth keeping an expert that the visit has just used: higher, longer. */
static uint64_t priority_of(struct curve_run *r, uint32_t j)
{
    const struct replay_choice *c = r->choice;
    uint32_t key = r->first[c->layer] + c->expert[j];
    uint64_t upper = 0;
    if (r->policy == SL_STACK_LFU) {
        upper = r->counts[key];
    } else {
        uint32_t next = r->next[r->t->visits[c->visit].first_choice + j];
        /* A prompt brings in what it uses without a decoded token waiting, so what only a prompt
         * will use is worth little more than what nobody will (optimum.h). */
        if (next != NEVER) upper = r->t->n_visits - next;
        if (next != NEVER && !replay_is_prompt(r->t, next)) upper += r->t->n_visits;
    }
    return upper << STAMP_BITS | ++r->stamp;
}

/* An expert of the visit was found at this depth, from 1 on. */
static void note_hit(struct curve_run *r, uint32_t key, uint32_t depth)
{
    const struct replay_choice *c = r->choice;
    if (r->t->evals[r->t->visits[c->visit].eval].e.prompt) return;
    r->out->hits[depth] += c->uses[c->place[key - r->first[c->layer]]];
}

/* Walks down from the given depth, as far as somebody has to move; see the head of the file. */
static void walk(struct curve_run *r, uint32_t *stack, uint32_t *depth, uint32_t from)
{
    uint32_t s = from;
    for (; s < *depth && r->n_heap; s++) {
        uint32_t key = stack[s];
        if (r->priority[key] > r->heap[0].priority) continue;
        if (r->priority[key] == 0) {
            note_hit(r, key, s + 1);
            stack[s] = pop(r);
            continue;
        }
        stack[s] = r->heap[0].key;
        sink(r, (struct moved){r->priority[key], key});
    }
    while (r->n_heap) stack[(*depth)++] = pop(r);
}

static void visit_stack(struct curve_run *r)
{
    const struct replay_choice *c = r->choice;
    uint32_t pool = r->by_layer ? c->layer : 0, first = r->first[c->layer];
    uint32_t *stack = r->stack + (r->by_layer ? first : 0), *depth = &r->depth[pool];
    uint64_t priority[SL_EXPERTS_MAX];
    uint32_t s = 0, known = *depth;
    for (uint32_t j = 0; j < c->n; j++) {
        if (r->policy == SL_STACK_LFU) r->counts[first + c->expert[j]] += c->uses[j];
        priority[j] = priority_of(r, j);
        r->priority[first + c->expert[j]] = 0;
        if (c->in_order) push(r, (struct moved){priority[j], first + c->expert[j]});
    }
    for (; !c->in_order && s < c->n; s++) { /* a token's own take the first places */
        uint32_t key = s < known ? stack[s] : NEVER;
        if (key != NEVER && r->priority[key] == 0)
            note_hit(r, key, s + 1);
        else if (key != NEVER)
            push(r, (struct moved){r->priority[key], key});
        stack[s] = first + c->expert[s];
    }
    if (s > *depth) *depth = s;
    walk(r, stack, depth, s);
    for (uint32_t j = 0; j < c->n; j++) r->priority[first + c->expert[j]] = priority[j];
}

static void visit_lru(struct curve_run *r)
{
    const struct replay_choice *c = r->choice;
    struct sl_recency *recency = &r->recency[r->by_layer ? c->layer : 0];
    uint32_t depth, first = r->first[c->layer];
    for (uint32_t j = 0; j < c->n; j++) {
        uint32_t key = r->by_layer ? c->expert[j] : first + c->expert[j];
        if (sl_recency_distance(recency, key, &depth)) note_hit(r, first + c->expert[j], depth + 1);
    }
    for (uint32_t j = 0; j < c->n; j++)
        sl_recency_use(recency, r->by_layer ? c->expert[j] : first + c->expert[j]);
}

static bool is_left_out(const struct curve_run *r, uint64_t visit)
{
    return r->skip_prompts && replay_is_prompt(r->t, visit);
}

static void visit(struct curve_run *r, uint64_t v)
{
    struct replay_choice *c = r->choice;
    if (is_left_out(r, v)) return;
    replay_collect(r->t, v, c);
    bool counts = !r->t->evals[r->t->visits[v].eval].e.prompt;
    for (uint32_t j = 0; j < c->n; j++) {
        uint8_t *seen = &r->seen[r->first[c->layer] + c->expert[j]];
        if (counts) r->out->uses += c->uses[j];
        if (counts && !*seen) r->out->cold += c->uses[j];
        *seen = 1;
    }
    if (r->policy == SL_STACK_LRU)
        visit_lru(r);
    else
        visit_stack(r);
}

/* ---- all of it ----------------------------------------------------------------------------------
 */

static void look_ahead(struct curve_run *r, uint32_t *coming)
{
    for (uint32_t i = 0; i < r->n_keys; i++) coming[i] = NEVER;
    for (uint64_t v = r->t->n_visits; v-- > 0;) {
        if (is_left_out(r, v)) continue;
        replay_collect(r->t, v, r->choice);
        for (uint32_t j = 0; j < r->choice->n; j++) {
            uint32_t key = r->first[r->choice->layer] + r->choice->expert[j];
            r->next[r->t->visits[v].first_choice + j] = coming[key];
            coming[key] = (uint32_t)v;
        }
    }
}

static sluice_err prepare(struct curve_run *r, struct sl_budget *b, sluice_error *e)
{
    const struct sl_trace_header *h = &r->t->header;
    bool lru = r->policy == SL_STACK_LRU, optimum = r->policy == SL_STACK_OPTIMUM;
    uint32_t most = 0, pools = r->by_layer ? h->n_layers : 1;
    r->n_keys = replay_first_expert(r->t, r->first);
    for (uint32_t l = 0; l < h->n_layers; l++)
        if (h->layer[l].n_experts > most) most = h->layer[l].n_experts;
    r->out->n_max = r->by_layer ? most : r->n_keys;
    r->out->hits = sl_alloc(b, (uint64_t)r->out->n_max + 1, sizeof *r->out->hits);
    r->choice = sl_alloc(b, 1, sizeof *r->choice);
    r->seen = sl_alloc(b, r->n_keys, 1);
    r->stack = sl_alloc(b, lru ? 0 : r->n_keys, sizeof *r->stack);
    r->priority = sl_alloc(b, lru ? 0 : r->n_keys, sizeof *r->priority);
    r->counts = sl_alloc(b, lru ? 0 : r->n_keys, sizeof *r->counts);
    r->next = sl_alloc(b, optimum ? r->t->n_choices : 0, sizeof *r->next);
    if (!r->out->hits || !r->choice || !r->seen || !r->stack || !r->priority || !r->counts ||
        !r->next)
        return sl_fail(e, SLUICE_E_BUDGET, "a curve of %llu choices does not fit into memory",
                       (unsigned long long)r->t->n_choices);
    for (uint32_t p = 0; lru && p < pools; p++) {
        uint32_t n = r->by_layer ? h->layer[p].n_experts : r->n_keys;
        sluice_err code = n ? sl_recency_open(&r->recency[p], n, b, e) : SLUICE_OK;
        if (code != SLUICE_OK) return code;
    }
    if (optimum) look_ahead(r, r->counts);
    return SLUICE_OK;
}

static void release(struct curve_run *r)
{
    for (uint32_t p = 0; p < SL_LAYERS_MAX; p++) sl_recency_close(&r->recency[p]);
    sl_free(r->choice);
    sl_free(r->seen);
    sl_free(r->stack);
    sl_free(r->priority);
    sl_free(r->counts);
    sl_free(r->next);
    sl_free(r);
}

/* From hits at each depth to hits with so many slots; what has fewer than a token takes is 0. */
static void add_up(const struct sl_trace *t, struct sl_curve *out)
{
    uint32_t top_k[SL_LAYERS_MAX], fewest = 0;
    replay_top_k(t, top_k);
    for (uint32_t l = 0; l < t->header.n_layers; l++)
        if (top_k[l] > fewest) fewest = top_k[l];
    for (uint32_t s = 1; s <= out->n_max; s++) out->hits[s] += out->hits[s - 1];
    for (uint32_t s = 0; s < fewest && s <= out->n_max; s++) out->hits[s] = 0;
}

sluice_err sl_curve_stack(const struct sl_trace *t, const struct sl_curve_config *c,
                          struct sl_budget *b, sluice_error *e, struct sl_curve *out)
{
    *out = (struct sl_curve){0};
    if (2 * t->n_visits > UPPER_MAX || t->n_choices >> STAMP_BITS ||
        (uint64_t)t->n_tokens + t->n_prompt > UPPER_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "the trace is too long for a curve: over %llu visits",
                       (unsigned long long)UPPER_MAX / 2);
    struct curve_run *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a curve does not fit into memory");
    r->t = t;
    r->policy = c->policy;
    r->by_layer = c->pool == SL_REPLAY_PER_LAYER;
    r->skip_prompts = c->skip_prompts;
    r->out = out;
    sluice_err code = prepare(r, b, e);
    for (uint64_t v = 0; v < t->n_visits && code == SLUICE_OK; v++) visit(r, v);
    release(r);
    if (code == SLUICE_OK)
        add_up(t, out);
    else
        sl_curve_free(out);
    return code;
}

void sl_curve_free(struct sl_curve *c)
{
    sl_free(c->hits);
    *c = (struct sl_curve){0};
}
