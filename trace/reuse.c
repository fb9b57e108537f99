/* When experts are used again: distances in other experts, and probabilities by tokens. */
#include "trace/recency.h"
#include "trace/replay_choice.h"
#include "trace/study.h"

#define AGAIN 16 /* tokens later, at most */

struct reuse_run {
    const struct sl_trace *t;
    struct sl_reuse *out;
    struct replay_choice *choice;
    struct sl_recency recency[SL_LAYERS_MAX];
    uint32_t first[SL_LAYERS_MAX];
    /* by expert among all: whether the token of number last_token used it (bit 0), the one before
     * (bit 1), ... */
    uint32_t *history;
    uint64_t *last_token;
    uint64_t token;              /* number of the decoded token under way, from 1; a session's first
                                    one is far from the last of another */
    uint64_t uses_of[AGAIN + 1]; /* of the token and those before it in its session */
    uint64_t again[AGAIN + 1], of[AGAIN + 1];
};

static void count_distance(struct sl_reuse *out, uint32_t distance)
{
    uint32_t bin = 0;
    while (bin < SL_REUSE_BINS - 1 && distance >> bin) bin++;
    out->hist[bin]++;
}

static void count_again(struct reuse_run *r, uint32_t key)
{
    uint64_t passed = r->token - r->last_token[key];
    uint32_t h = passed > AGAIN ? 0 : r->history[key] << passed;
    for (uint32_t n = 1; n <= AGAIN; n++) r->again[n] += h >> n & 1;
    r->history[key] = h | 1;
    r->last_token[key] = r->token;
}

static void visit(struct reuse_run *r, uint64_t v)
{
    struct replay_choice *c = r->choice;
    bool decoded = !r->t->evals[r->t->visits[v].eval].e.prompt;
    replay_collect(r->t, v, c);
    struct sl_recency *recency = &r->recency[c->layer];
    for (uint32_t j = 0; j < c->n && decoded; j++) {
        uint32_t distance;
        if (!sl_recency_distance(recency, c->expert[j], &distance))
            r->out->cold += c->uses[j];
        else
            for (uint32_t i = 0; i < c->uses[j]; i++) count_distance(r->out, distance);
        if (c->n_tokens == 1) count_again(r, r->first[c->layer] + c->expert[j]);
    }
    for (uint32_t i = 0; i < c->n_uses; i++) sl_recency_use(recency, c->chosen[i]);
    if (!decoded) return;
    r->out->uses += c->n_uses;
    r->uses_of[0] += c->n_uses;
}

/* Between two decoded tokens. */
static void next_token(struct reuse_run *r, bool same_session)
{
    for (uint32_t n = AGAIN; n > 0; n--) r->uses_of[n] = same_session ? r->uses_of[n - 1] : 0;
    r->uses_of[0] = 0;
    r->token += same_session ? 1 : 2 * AGAIN;
    for (uint32_t n = 1; n <= AGAIN; n++) r->of[n] += r->uses_of[n];
}

static void all_visits(struct reuse_run *r)
{
    const struct sl_trace_eval_span *before = NULL;
    r->token = 2 * AGAIN;
    for (uint64_t i = 0; i < r->t->n_evals; i++) {
        const struct sl_trace_eval_span *s = &r->t->evals[i];
        if (!s->e.prompt) {
            next_token(r, before && before->e.session == s->e.session);
            before = s;
        }
        for (uint64_t v = 0; v < s->n_visits; v++) visit(r, s->first_visit + v);
    }
    for (uint32_t n = 1; n <= AGAIN; n++)
        r->out->again[n] = r->of[n] ? (double)r->again[n] / (double)r->of[n] : 0;
}

sluice_err sl_reuse(const struct sl_trace *t, struct sl_budget *b, sluice_error *e,
                    struct sl_reuse *out)
{
    *out = (struct sl_reuse){.cold = 0};
    struct reuse_run *r = sl_alloc(b, 1, sizeof *r);
    if (r == NULL) return sl_fail(e, SLUICE_E_BUDGET, "reuse distances do not fit into memory");
    r->t = t;
    r->out = out;
    uint32_t n = replay_first_expert(t, r->first);
    r->choice = sl_alloc(b, 1, sizeof *r->choice);
    r->history = sl_alloc(b, n, sizeof *r->history);
    r->last_token = sl_alloc(b, n, sizeof *r->last_token);
    sluice_err code = SLUICE_OK;
    if (!r->choice || !r->history || !r->last_token)
        code = sl_fail(e, SLUICE_E_BUDGET, "reuse distances do not fit into memory");
    for (uint32_t l = 0; l < t->header.n_layers && code == SLUICE_OK; l++)
        if (t->header.layer[l].n_experts)
            code = sl_recency_open(&r->recency[l], t->header.layer[l].n_experts, b, e);
    if (code == SLUICE_OK) all_visits(r);
    for (uint32_t l = 0; l < SL_LAYERS_MAX; l++) sl_recency_close(&r->recency[l]);
    sl_free(r->choice);
    sl_free(r->history);
    sl_free(r->last_token);
    sl_free(r);
    return code;
}
