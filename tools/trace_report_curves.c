/* Of a trace report: misses by cache size, what more memory would give, the knee of the curve, and
 * estimated speed. One pool of slots for all layers, as the engine has. One pass over the trace
 * gives the curve of a stack algorithm where slots are of one size; where they are of several,
 * which share no slots, all policies are replayed, so that rates at a size can be compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/report.h"
#include "tools/trace_report.h"

#define SIZES_MAX 96
#define STACK_SIZES 50                  /* evenly spaced, where one pass gives all */
#define MANY_CHOICES ((uint64_t)700000) /* from here on fewer sizes are replayed */

/* One size; rates are NAN where they were not computed. */
struct size {
    uint32_t slots;
    int replayed;
    double lru, lfu, optimum, policy, decay, speed;
};

struct work {
    struct cli_rep_trace *rt;
    struct size sizes[SIZES_MAX];
    uint32_t n, least, current; /* current: slots that the report is about */
    double hits_begin;          /* slots; NAN: not known */
};

static const double factors[] = {0.5, 1, 1.5, 2};
#define FACTORS (sizeof factors / sizeof factors[0])

/* ---- sizes ----------------------------------------------------------------------------------- */

static void offer(struct work *w, double slots, int replayed)
{
    double rounded = floor(slots + 0.5);
    if (rounded < w->least || rounded > w->rt->n_experts) return;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->sizes[i].slots != (uint32_t)rounded) continue;
        w->sizes[i].replayed |= replayed;
        return;
    }
    if (w->n == SIZES_MAX) return;
    w->sizes[w->n++] = (struct size){(uint32_t)rounded, replayed, NAN, NAN, NAN, NAN, NAN, NAN};
}

static int ascending(const void *a, const void *b)
{
    const struct size *x = a, *y = b;
    return x->slots < y->slots ? -1 : x->slots > y->slots;
}

static void choose_sizes(struct work *w)
{
    static const double shares[] = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1};
    static const double few[] = {0.1, 0.2, 0.3, 0.5, 0.75};
    const struct cli_rep_trace *rt = w->rt;
    int many = rt->t->n_choices > MANY_CHOICES;
    const double *chosen = many ? few : shares;
    size_t n = many ? sizeof few / sizeof few[0] : sizeof shares / sizeof shares[0];
    for (uint32_t l = 0; l < rt->t->header.n_layers; l++)
        if (rt->t->header.layer[l].top_k > w->least) w->least = rt->t->header.layer[l].top_k;
    w->current = rt->slots && rt->slots <= rt->n_experts
                     ? rt->slots
                     : (uint32_t)(CLI_REP_DEFAULT_SHARE * rt->n_experts + 0.5);
    for (size_t i = 0; i < FACTORS; i++) offer(w, factors[i] * w->current, 1);
    for (size_t i = 0; i < n; i++) offer(w, chosen[i] * rt->n_experts, 1);
    for (int i = 1; i <= STACK_SIZES; i++) offer(w, (double)i / STACK_SIZES * rt->n_experts, 0);
    offer(w, rt->token_experts, 0);
    qsort(w->sizes, w->n, sizeof w->sizes[0], ascending);
}

/* ---- rates ----------------------------------------------------------------------------------- */

static double rate(const struct sl_curve *c, uint32_t slots)
{
    uint32_t at = slots > c->n_max ? c->n_max : slots;
    return c->uses ? (double)c->hits[at] / (double)c->uses : NAN;
}

static int has_classes(const struct work *w) { return w->rt->t->header.n_classes > 1; }

static void take_curve(struct work *w, const struct sl_curve *c, enum sl_stack_policy policy)
{
    for (uint32_t i = 0; i < w->n && !has_classes(w); i++) {
        struct size *s = &w->sizes[i];
        double hit_rate = rate(c, s->slots);
        if (policy == SL_STACK_LRU) s->lru = hit_rate;
        if (policy == SL_STACK_LFU) s->lfu = hit_rate;
        if (policy == SL_STACK_OPTIMUM) s->optimum = hit_rate;
    }
    if (policy != SL_STACK_LRU || !c->uses) return;
    w->hits_begin = NAN;
    for (uint32_t s = c->n_max; s > 0 && rate(c, s) >= CLI_REP_HITS_BEGIN_SHARE; s--)
        w->hits_begin = s;
}

static int keep_going(void *user, uint64_t visit, uint32_t uses, uint32_t hits, uint64_t bytes)
{
    (void)user, (void)visit, (void)uses, (void)hits, (void)bytes;
    return cli_interrupted();
}

static int stack_curves(struct work *w)
{
    static const enum sl_stack_policy policies[] = {SL_STACK_LRU, SL_STACK_LFU, SL_STACK_OPTIMUM};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        struct sl_curve curve = {0};
        sluice_error e;
        if (cli_interrupted()) return CLI_EXIT_INTERRUPTED;
        struct sl_curve_config config = {.policy = policies[i], .pool = SL_REPLAY_ONE};
        if (sl_curve_stack(w->rt->t, &config, w->rt->budget, &e, &curve)) return cli_fail(&e);
        take_curve(w, &curve, policies[i]);
        sl_curve_free(&curve);
    }
    return CLI_EXIT_OK;
}

/* Hit rate of decoded tokens with that policy (NULL: the optimum) and so many slots. A size that
 * the cache refuses has none: NAN. */
static int replay(struct work *w, const struct sl_ec_policy *policy, struct size *s,
                  double *hit_rate)
{
    struct sl_replay_config config = {
        .policy = policy, .optimum = policy == NULL, .on_visit = keep_going};
    struct sl_replay_size size = {.slots = s->slots};
    struct sl_replay_result result;
    uint64_t bytes;
    sluice_error e;
    *hit_rate = NAN;
    if (cli_interrupted()) return CLI_EXIT_INTERRUPTED;
    sluice_err err = sl_replay_size(w->rt->t, &size, 0, &config, &bytes, &e);
    if (s->slots == w->current && w->rt->hits == CLI_REP_RECORDED && w->rt->slots)
        memcpy(config.n_slots, w->rt->t->header.n_slots,
               sizeof config.n_slots); /* class by class */
    if (!err) err = sl_replay(w->rt->t, &config, w->rt->budget, &e, &result);
    if (err == SLUICE_E_ARG) return CLI_EXIT_OK;
    if (err) return cli_fail(&e);
    if (result.decode.uses) *hit_rate = (double)result.decode.hits / (double)result.decode.uses;
    if (policy == sl_ec_policy_at(0) && w->rt->t->n_choices <= MANY_CHOICES) {
        double ms = sl_speed_ms(w->rt->t, &config, &w->rt->speed, w->rt->budget, &e);
        s->speed = ms > 0 ? 1000 / ms : NAN;
    }
    return CLI_EXIT_OK;
}

static int replay_stack_policies(struct work *w, struct size *s)
{
    int code = replay(w, &sl_ec_policy_lru, s, &s->lru);
    if (!code) code = replay(w, &sl_ec_policy_lfu, s, &s->lfu);
    if (!code) code = replay(w, NULL, s, &s->optimum);
    return code;
}

static int replays(struct work *w)
{
    int code = CLI_EXIT_OK;
    for (uint32_t i = 0; i < w->n && !code; i++) {
        struct size *s = &w->sizes[i];
        cli_progress_step(w->rt->progress, i, w->n);
        if (!s->replayed) continue;
        code = replay(w, sl_ec_policy_at(0), s, &s->policy);
        if (!code) code = replay(w, &sl_ec_policy_decayed_lfu, s, &s->decay);
        if (!code && has_classes(w)) code = replay_stack_policies(w, s);
    }
    return code;
}

/* ---- what follows ---------------------------------------------------------------------------- */

static const struct size *size_of(const struct work *w, double slots)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->sizes[i].slots == (uint32_t)floor(slots + 0.5)) return &w->sizes[i];
    return NULL;
}

/* The point of the replayed curve that lies farthest above the straight line between its ends; less
 * than four points have none. */
static const struct size *knee(const struct work *w)
{
    const struct size *first = NULL, *last = NULL, *best = NULL;
    double most = 0.02; /* less is no bend */
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (isnan(w->sizes[i].policy)) continue;
        first = first ? first : &w->sizes[i];
        last = &w->sizes[i];
        n++;
    }
    for (uint32_t i = 0; n >= 4 && i < w->n; i++) {
        const struct size *s = &w->sizes[i];
        if (isnan(s->policy)) continue;
        double part = (double)(s->slots - first->slots) / (last->slots - first->slots);
        double above = s->policy - (first->policy + part * (last->policy - first->policy));
        if (above > most) {
            most = above;
            best = s;
        }
    }
    return best;
}

static double bytes_of(const struct cli_rep_trace *rt, double slots)
{
    return rt->slot_bytes ? floor(slots * (double)rt->slot_bytes / rt->n_experts) : NAN;
}

static void put_curves(const struct work *w, struct cli_rep *r)
{
    cli_rep_table(r, "curves",
                  "slots share bytes lru_hit_rate lfu_hit_rate optimum_hit_rate "
                  "default_hit_rate decay_hit_rate tokens_per_s");
    for (uint32_t i = 0; i < w->n; i++) {
        const struct size *s = &w->sizes[i];
        cli_rep_row(r);
        cli_rep_count(r, NULL, s->slots);
        cli_rep_number(r, NULL, (double)s->slots / w->rt->n_experts);
        cli_rep_number(r, NULL, bytes_of(w->rt, s->slots));
        cli_rep_number(r, NULL, s->lru);
        cli_rep_number(r, NULL, s->lfu);
        cli_rep_number(r, NULL, s->optimum);
        cli_rep_number(r, NULL, s->policy);
        cli_rep_number(r, NULL, s->decay);
        cli_rep_number(r, NULL, s->speed);
    }
    cli_rep_table(r, "steps",
                  "factor slots share bytes default_hit_rate lru_hit_rate "
                  "optimum_hit_rate tokens_per_s");
    for (size_t i = 0; i < FACTORS; i++) {
        const struct size *s = size_of(w, factors[i] * w->current);
        if (!s) continue;
        cli_rep_row(r);
        cli_rep_number(r, NULL, factors[i]);
        cli_rep_count(r, NULL, s->slots);
        cli_rep_number(r, NULL, (double)s->slots / w->rt->n_experts);
        cli_rep_number(r, NULL, bytes_of(w->rt, s->slots));
        cli_rep_number(r, NULL, s->policy);
        cli_rep_number(r, NULL, s->lru);
        cli_rep_number(r, NULL, s->optimum);
        cli_rep_number(r, NULL, s->speed);
    }
}

static void put_verdict(const struct work *w, struct cli_rep *r)
{
    struct cli_rep_trace *rt = w->rt;
    const struct size *here = size_of(w, w->current), *bend = knee(w);
    double none = NAN;
    rt->totals.default_hit_rate = here ? here->policy : none;
    rt->totals.lru_hit_rate = here ? here->lru : none;
    rt->totals.optimum_hit_rate = here ? here->optimum : none;
    rt->totals.knee_share = bend ? (double)bend->slots / rt->n_experts : none;
    cli_rep_section(r, "verdict");
    cli_rep_known(r, "slots", here ? here->slots : 0);
    cli_rep_number(r, "share", here ? (double)here->slots / rt->n_experts : none);
    cli_rep_number(r, "bytes", here ? bytes_of(rt, here->slots) : none);
    cli_rep_number(r, "default_hit_rate", rt->totals.default_hit_rate);
    cli_rep_number(r, "lru_hit_rate", rt->totals.lru_hit_rate);
    cli_rep_number(r, "optimum_hit_rate", rt->totals.optimum_hit_rate);
    cli_rep_number(r, "hits_begin_slots", w->hits_begin);
    cli_rep_number(r, "hits_begin_share", w->hits_begin / rt->n_experts);
    cli_rep_number(r, "hits_begin_bytes", bytes_of(rt, w->hits_begin));
    cli_rep_known(r, "knee_slots", bend ? bend->slots : 0);
    cli_rep_number(r, "knee_share", rt->totals.knee_share);
    cli_rep_number(r, "knee_bytes", bend ? bytes_of(rt, bend->slots) : none);
    cli_rep_number(r, "knee_hit_rate", bend ? bend->policy : none);
}

/* What the estimate of speed assumes. */
static void put_speed(const struct cli_rep_trace *rt, struct cli_rep *r)
{
    double drive = rt->speed.drive_rate > 0 ? rt->speed.drive_rate : rt->totals.drive_bytes_per_s;
    cli_rep_section(r, "speed");
    cli_rep_number(r, "drive_bytes_per_s", drive);
    cli_rep_string(r, "drive_source",
                   rt->speed.drive_rate > 0 ? "as given" : "as recorded, while it read");
    cli_rep_number(r, "compute_ms", rt->speed.compute_ms > 0 ? rt->speed.compute_ms : NAN);
    cli_rep_string(r, "compute_source", rt->speed.compute_ms > 0 ? "as given" : "as recorded");
}

int cli_rep_curves(struct cli_rep_trace *rt, struct cli_rep *r)
{
    struct work *w = cli_alloc(1, sizeof *w);
    int code = CLI_EXIT_OK;
    w->rt = rt;
    w->hits_begin = NAN;
    if (rt->t->n_tokens && rt->n_experts) {
        choose_sizes(w);
        code = stack_curves(w);
        if (!code) code = replays(w);
    }
    if (!code) {
        put_curves(w, r);
        put_verdict(w, r);
        put_speed(rt, r);
    }
    cli_free(w);
    return code;
}
