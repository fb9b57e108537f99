/* Choices of a visit; see replay_choice.h. */
#include "trace/replay_choice.h"

bool replay_is_prompt(const struct sl_trace *t, uint64_t visit)
{
    const struct sl_trace_eval *e = &t->evals[t->visits[visit].eval].e;
    return e->prompt || e->n_tokens > 1;
}

static void take(struct replay_choice *c, uint32_t expert, uint32_t token)
{
    uint64_t now = c->stamp + token;
    if (c->seen_token[expert] == now) return;
    c->seen_token[expert] = now;
    c->chosen[c->n_uses++] = expert;
    c->count[token]++;
    if (c->seen_visit[expert] != c->stamp) {
        c->seen_visit[expert] = c->stamp;
        c->place[expert] = c->n;
        c->uses[c->n] = 0;
        c->there[c->n] = REPLAY_MISSING;
        c->expert[c->n++] = expert;
    }
    c->uses[c->place[expert]]++;
}

void replay_collect(const struct sl_trace *t, uint64_t visit, struct replay_choice *c)
{
    const struct sl_trace_visit *v = &t->visits[visit];
    const uint16_t *chosen = t->chosen + v->first_choice;
    c->visit = visit;
    c->layer = v->layer;
    c->n_tokens = v->n_tokens;
    c->in_order = v->n_tokens > 1;
    c->is_prompt = replay_is_prompt(t, visit);
    c->n = c->n_uses = 0;
    c->stamp += SL_CHUNK_MAX; /* more than any token added to the stamp before */
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        c->count[i] = 0;
        for (uint32_t k = 0; k < v->top_k; k++) {
            uint32_t expert = chosen[(uint64_t)i * v->top_k + k];
            if (expert == SL_TRACE_NONE) continue;
            SLUICE_ASSERT(expert < t->header.layer[v->layer].n_experts);
            take(c, expert, i);
        }
    }
}

void replay_top_k(const struct sl_trace *t, uint32_t top_k[SL_LAYERS_MAX])
{
    const struct sl_trace_header *h = &t->header;
    for (uint32_t l = 0; l < h->n_layers; l++) top_k[l] = h->layer[l].top_k;
    for (uint64_t i = 0; i < t->n_visits; i++) {
        const struct sl_trace_visit *v = &t->visits[i];
        if (v->top_k > top_k[v->layer]) top_k[v->layer] = v->top_k;
    }
    for (uint32_t l = 0; l < h->n_layers; l++) {
        if (top_k[l] > h->layer[l].n_experts) top_k[l] = h->layer[l].n_experts;
        if (top_k[l] == 0 && h->layer[l].n_experts > 0) top_k[l] = 1;
    }
}

uint32_t replay_first_expert(const struct sl_trace *t, uint32_t first[SL_LAYERS_MAX])
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < t->header.n_layers; l++) {
        first[l] = n;
        n += t->header.layer[l].n_experts;
    }
    return n;
}
