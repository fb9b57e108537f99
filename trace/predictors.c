/* Predictors of coming experts, held against what was chosen: recall and precision by budget.
 *
 * Each kind ranks the experts of a layer; a budget takes the first of the ranking. So a chosen
 * expert's rank answers all budgets at once. Everything is learned while walking through the trace:
 * a visit is judged first, and learned from after that. */
#include <string.h>

#include "trace/replay_choice.h"
#include "trace/study.h"

#define TOKEN_GROWS 1.0108892860517005 /* 2^(1/64): a use counts so much more a token later */
#define UNIT_MAX 1e100                 /* then all scores are scaled down */
#define FOLLOWS_MAX 4096 /* times that an expert's followers are counted before they are halved */
#define UNRANKED UINT32_MAX

struct predict_run {
    const struct sl_trace *t;
    struct sl_predict_study *studies;
    uint32_t n_studies;
    bool ask_recent, ask_frequent, ask_router, ask_follows[SL_PREDICT_AHEAD_MAX + 1];
    struct replay_choice *choice;
    uint32_t first[SL_LAYERS_MAX];
    uint16_t *recent; /* by layer: its experts, the last used first */
    uint32_t n_recent[SL_LAYERS_MAX];
    double *score; /* by expert among all: uses, older ones less */
    double unit;   /* what a use counts now */
    /* [ahead]: how often expert i of the layer so far before was followed by j, by layer [i][j],
     * and how often i was used there */
    uint16_t *follows[SL_PREDICT_AHEAD_MAX + 1], *before[SL_PREDICT_AHEAD_MAX + 1];
    uint64_t follows_at[SL_PREDICT_AHEAD_MAX + 1][SL_LAYERS_MAX];
    uint64_t before_at[SL_PREDICT_AHEAD_MAX + 1][SL_LAYERS_MAX];
    uint64_t hints[SL_LAYERS_MAX]; /* step of the last hints about the layer, plus 1; 0: none */
    double expected[SL_EXPERTS_MAX];
    /* of the token that is judged */
    const uint32_t *chosen;
    uint32_t n_chosen;
};

const char *sl_predictor_name(enum sl_predictor_kind kind)
{
    static const char *const names[SL_PREDICTORS] = {"previous", "frequent", "follows", "router"};
    return (unsigned)kind < SL_PREDICTORS ? names[kind] : "";
}

/* ---- judging ------------------------------------------------------------------------------------
 */

/* rank: of each chosen one, from 0, or UNRANKED; n_ranked: experts that have one. */
static void judge(struct predict_run *r, enum sl_predictor_kind kind, uint32_t ahead,
                  const uint32_t *rank, uint32_t n_ranked)
{
    bool any_ahead = kind == SL_PREDICT_PREVIOUS || kind == SL_PREDICT_FREQUENT;
    for (uint32_t i = 0; i < r->n_studies; i++) {
        struct sl_predict_study *s = &r->studies[i];
        if (s->kind != kind || (!any_ahead && s->ahead != ahead)) continue;
        s->chosen += r->n_chosen;
        s->predicted += n_ranked < s->budget ? n_ranked : s->budget;
        for (uint32_t j = 0; j < r->n_chosen; j++) s->both += rank[j] < s->budget;
    }
}

/* The same from a list, likeliest first. */
static void judge_list(struct predict_run *r, enum sl_predictor_kind kind, const uint16_t *list,
                       uint32_t n)
{
    uint32_t rank[SL_TOP_K_MAX], place[SL_EXPERTS_MAX];
    for (uint32_t j = 0; j < r->n_chosen; j++) place[r->chosen[j]] = UNRANKED;
    for (uint32_t i = 0; i < n; i++) place[list[i]] = i;
    for (uint32_t j = 0; j < r->n_chosen; j++) rank[j] = place[r->chosen[j]];
    judge(r, kind, 1, rank, n);
}

/* The same from scores of the n experts of a layer, highest first, ties to the lower index; those
 * of 0 are not predicted. */
static void judge_scores(struct predict_run *r, enum sl_predictor_kind kind, uint32_t ahead,
                         const double *score, uint32_t n)
{
    uint32_t rank[SL_TOP_K_MAX], n_ranked = 0;
    for (uint32_t i = 0; i < n; i++) n_ranked += score[i] > 0;
    for (uint32_t j = 0; j < r->n_chosen; j++) {
        uint32_t x = r->chosen[j], better = 0;
        for (uint32_t i = 0; i < x; i++) better += score[i] >= score[x];
        for (uint32_t i = x + 1; i < n; i++) better += score[i] > score[x];
        rank[j] = score[x] > 0 ? better : UNRANKED;
    }
    judge(r, kind, ahead, rank, n_ranked);
}

/* ---- what follows -------------------------------------------------------------------------------
 */

/* The visit of the same eval so many layers before, or NULL. */
static const struct sl_trace_visit *visit_before(const struct predict_run *r, uint64_t visit,
                                                 uint32_t ahead)
{
    const struct sl_trace_eval_span *s = &r->t->evals[r->t->visits[visit].eval];
    return s->whole && visit - s->first_visit >= ahead ? &r->t->visits[visit - ahead] : NULL;
}

/* What the token-th token of the visit chose: top_k of them, some SL_TRACE_NONE. */
static const uint16_t *chosen_of(const struct predict_run *r, const struct sl_trace_visit *v,
                                 uint32_t token)
{
    return r->t->chosen + v->first_choice + (uint64_t)token * v->top_k;
}

static void judge_follows(struct predict_run *r, const struct sl_trace_visit *from, uint32_t ahead,
                          uint32_t token)
{
    uint32_t layer = r->choice->layer, n = r->t->header.layer[layer].n_experts;
    const uint16_t *chosen = chosen_of(r, from, token);
    memset(r->expected, 0, n * sizeof *r->expected);
    for (uint32_t k = 0; k < from->top_k; k++) {
        if (chosen[k] == SL_TRACE_NONE) continue;
        uint32_t times = r->before[ahead][r->before_at[ahead][layer] + chosen[k]];
        const uint16_t *row =
            r->follows[ahead] + r->follows_at[ahead][layer] + (uint64_t)chosen[k] * n;
        for (uint32_t j = 0; times && j < n; j++) r->expected[j] += (double)row[j] / times;
    }
    judge_scores(r, SL_PREDICT_FOLLOWS, ahead, r->expected, n);
}

static void learn_follows(struct predict_run *r, const struct sl_trace_visit *from, uint32_t ahead,
                          uint32_t token)
{
    uint32_t layer = r->choice->layer, n = r->t->header.layer[layer].n_experts;
    const uint16_t *chosen = chosen_of(r, from, token);
    for (uint32_t k = 0; k < from->top_k; k++) {
        if (chosen[k] == SL_TRACE_NONE) continue;
        uint16_t *times = r->before[ahead] + r->before_at[ahead][layer] + chosen[k];
        uint16_t *row = r->follows[ahead] + r->follows_at[ahead][layer] + (uint64_t)chosen[k] * n;
        if (++*times == FOLLOWS_MAX) {
            *times /= 2;
            for (uint32_t j = 0; j < n; j++) row[j] /= 2;
        }
        for (uint32_t j = 0; j < r->n_chosen; j++) row[r->chosen[j]]++;
    }
}

/* ---- a visit ------------------------------------------------------------------------------------
 */

/* To the front of the layer's list of experts. */
static void use_recently(struct predict_run *r, uint32_t expert)
{
    uint32_t layer = r->choice->layer, n = r->n_recent[layer], i = 0;
    uint16_t *list = r->recent + r->first[layer];
    while (i < n && list[i] != expert) i++;
    if (i == n) r->n_recent[layer]++;
    memmove(list + 1, list, i * sizeof *list);
    list[0] = (uint16_t)expert;
}

static void learn_token(struct predict_run *r)
{
    uint32_t first = r->first[r->choice->layer];
    for (uint32_t j = r->n_chosen; j-- > 0;) use_recently(r, r->chosen[j]); /* best rank in front */
    for (uint32_t j = 0; j < r->n_chosen; j++) r->score[first + r->chosen[j]] += r->unit;
}

static void judge_token(struct predict_run *r, uint64_t visit, uint32_t token)
{
    uint32_t layer = r->choice->layer, first = r->first[layer];
    if (r->ask_recent) judge_list(r, SL_PREDICT_PREVIOUS, r->recent + first, r->n_recent[layer]);
    if (r->ask_frequent)
        judge_scores(r, SL_PREDICT_FREQUENT, 0, r->score + first,
                     r->t->header.layer[layer].n_experts);
    if (r->ask_router && r->hints[layer]) {
        const struct sl_trace_step *s = &r->t->steps[r->hints[layer] - 1];
        judge_list(r, SL_PREDICT_ROUTER, r->t->hint_experts + s->first, s->n);
    }
    for (uint32_t a = 1; a <= SL_PREDICT_AHEAD_MAX; a++) {
        const struct sl_trace_visit *from = r->ask_follows[a] ? visit_before(r, visit, a) : NULL;
        if (from) judge_follows(r, from, a, token);
    }
}

/* Hints that came since the visit before. */
static void take_hints(struct predict_run *r, const struct sl_trace_visit *v)
{
    for (uint64_t i = v->first_step; i < v->first_step + v->n_steps; i++)
        if (!r->t->steps[i].is_op) r->hints[r->t->steps[i].layer] = i + 1;
}

static void visit_layer(struct predict_run *r, uint64_t visit)
{
    struct replay_choice *c = r->choice;
    const struct sl_trace_visit *v = &r->t->visits[visit];
    bool counts = !r->t->evals[v->eval].e.prompt;
    take_hints(r, v);
    replay_collect(r->t, visit, c);
    const uint32_t *chosen = c->chosen;
    for (uint32_t i = 0; i < c->n_tokens; chosen += c->count[i++]) {
        r->chosen = chosen;
        r->n_chosen = c->count[i];
        if (counts) judge_token(r, visit, i);
    }
    chosen = c->chosen;
    for (uint32_t i = 0; i < c->n_tokens; chosen += c->count[i++]) {
        r->chosen = chosen;
        r->n_chosen = c->count[i];
        learn_token(r);
        for (uint32_t a = 1; a <= SL_PREDICT_AHEAD_MAX; a++) {
            const struct sl_trace_visit *from =
                r->ask_follows[a] ? visit_before(r, visit, a) : NULL;
            if (from) learn_follows(r, from, a, i);
        }
    }
    r->hints[v->layer] = 0;
}

/* A token later, uses weigh more. */
static void grow_unit(struct predict_run *r, uint32_t n_experts, uint32_t tokens)
{
    for (uint32_t i = 0; i < tokens; i++) r->unit *= TOKEN_GROWS;
    if (r->unit < UNIT_MAX) return;
    for (uint32_t i = 0; i < n_experts; i++) r->score[i] /= r->unit;
    r->unit = 1;
}

/* ---- all of it ----------------------------------------------------------------------------------
 */

/* Room for the pairs of two layers that are so far apart. */
static bool room_for_follows(struct predict_run *r, uint32_t ahead, struct sl_budget *b)
{
    const struct sl_trace_header *h = &r->t->header;
    uint32_t layers[SL_LAYERS_MAX], n_layers = 0;
    uint64_t pairs = 0, singles = 0;
    for (uint32_t l = 0; l < h->n_layers; l++)
        if (h->layer[l].n_experts) layers[n_layers++] = l;
    for (uint32_t i = ahead; i < n_layers; i++) {
        uint32_t from = h->layer[layers[i - ahead]].n_experts;
        r->follows_at[ahead][layers[i]] = pairs;
        r->before_at[ahead][layers[i]] = singles;
        pairs += (uint64_t)from * h->layer[layers[i]].n_experts;
        singles += from;
    }
    r->follows[ahead] = sl_alloc(b, pairs, sizeof(uint16_t));
    r->before[ahead] = sl_alloc(b, singles, sizeof(uint16_t));
    return r->follows[ahead] && r->before[ahead];
}

static bool prepare(struct predict_run *r, uint32_t n_experts, struct sl_budget *b)
{
    for (uint32_t i = 0; i < r->n_studies; i++) {
        struct sl_predict_study *s = &r->studies[i];
        s->chosen = s->predicted = s->both = 0;
        if (s->kind == SL_PREDICT_PREVIOUS) r->ask_recent = true;
        if (s->kind == SL_PREDICT_FREQUENT) r->ask_frequent = true;
        if (s->kind == SL_PREDICT_ROUTER && s->ahead == 1) r->ask_router = true;
        if (s->kind == SL_PREDICT_FOLLOWS && s->ahead >= 1 && s->ahead <= SL_PREDICT_AHEAD_MAX)
            r->ask_follows[s->ahead] = true;
    }
    r->choice = sl_alloc(b, 1, sizeof *r->choice);
    r->recent = sl_alloc(b, n_experts, sizeof *r->recent);
    r->score = sl_alloc(b, n_experts, sizeof *r->score);
    bool good = r->choice && r->recent && r->score;
    for (uint32_t a = 1; a <= SL_PREDICT_AHEAD_MAX && good; a++)
        if (r->ask_follows[a]) good = room_for_follows(r, a, b);
    return good;
}

sluice_err sl_predict_studies(const struct sl_trace *t, struct sl_predict_study *s, uint32_t n,
                              struct sl_budget *b, sluice_error *e)
{
    struct predict_run *r = sl_alloc(b, 1, sizeof *r);
    bool good = r != NULL;
    if (good) {
        r->t = t;
        r->studies = s;
        r->n_studies = n;
        r->unit = 1;
        uint32_t n_experts = replay_first_expert(t, r->first);
        good = prepare(r, n_experts, b);
        for (uint64_t i = 0; i < t->n_evals && good; i++) {
            const struct sl_trace_eval_span *span = &t->evals[i];
            for (uint64_t v = 0; v < span->n_visits; v++) visit_layer(r, span->first_visit + v);
            grow_unit(r, n_experts, span->e.n_tokens);
        }
        for (uint32_t a = 1; a <= SL_PREDICT_AHEAD_MAX; a++) {
            sl_free(r->follows[a]);
            sl_free(r->before[a]);
        }
        sl_free(r->choice);
        sl_free(r->recent);
        sl_free(r->score);
    }
    sl_free(r);
    if (good) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_BUDGET, "studying predictors does not fit into memory");
}
