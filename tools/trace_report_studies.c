/* Of a trace report: reuse distances, and how well coming experts can be predicted. */
#include <math.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/report.h"
#include "tools/trace_report.h"

#define AGAIN 16
#define STUDIES_MAX 64

static int put_reuse(struct cli_rep_trace *rt, struct cli_rep *r)
{
    struct sl_reuse reuse;
    sluice_error e;
    if (sl_reuse(rt->t, rt->budget, &e, &reuse)) return cli_fail(&e);
    uint32_t last = SL_REUSE_BINS;
    while (last > 0 && reuse.hist[last - 1] == 0) last--;
    cli_rep_table(r, "reuse", "from to uses share");
    for (uint32_t i = 0; i < last; i++) {
        cli_rep_row(r);
        cli_rep_count(r, NULL, i ? (uint64_t)1 << (i - 1) : 0);
        cli_rep_count(r, NULL, i ? ((uint64_t)1 << i) - 1 : 0);
        cli_rep_count(r, NULL, reuse.hist[i]);
        cli_rep_number(r, NULL, (double)reuse.hist[i] / (double)reuse.uses);
    }
    cli_rep_table(r, "again", "tokens_later probability");
    for (uint32_t i = 1; i <= AGAIN && i < rt->t->n_tokens; i++) {
        if (!isfinite(reuse.again[i])) continue;
        cli_rep_row(r);
        cli_rep_count(r, NULL, i);
        cli_rep_number(r, NULL, reuse.again[i]);
    }
    if (reuse.uses) rt->totals.reuse_cold_share = (double)reuse.cold / (double)reuse.uses;
    if (rt->t->n_tokens > 1) rt->totals.again_next = reuse.again[1];
    return CLI_EXIT_OK;
}

/* Every predictor with one, two and four times the experts of a choice, and those that depend on it
 * one, two and four layers ahead. */
static uint32_t plan_studies(const struct cli_rep_trace *rt, struct sl_predict_study *s)
{
    static const uint32_t multiples[] = {1, 2, 4}, aheads[] = {1, 2, 4};
    uint32_t n = 0, top_k = 0;
    for (uint32_t l = 0; l < rt->t->header.n_layers; l++)
        if (rt->t->header.layer[l].top_k > top_k) top_k = rt->t->header.layer[l].top_k;
    for (int kind = 0; kind < SL_PREDICTORS; kind++) {
        if (kind == SL_PREDICT_ROUTER && !(rt->t->header.measured & SL_TRACE_HINTS)) continue;
        for (uint32_t a = 0; a < (kind == SL_PREDICT_FOLLOWS ? 3 : 1); a++) {
            for (uint32_t m = 0; m < 3 && n < STUDIES_MAX; m++) {
                if (multiples[m] * top_k > rt->stride) continue;
                s[n++] = (struct sl_predict_study){.kind = (enum sl_predictor_kind)kind,
                                                   .ahead = aheads[a],
                                                   .budget = multiples[m] * top_k};
            }
        }
    }
    return n;
}

static void put_study(struct cli_rep *r, const struct sl_predict_study *s)
{
    if (!s->chosen || !s->predicted) return;
    cli_rep_row(r);
    cli_rep_string(r, NULL, sl_predictor_name(s->kind));
    if (s->kind == SL_PREDICT_PREVIOUS || s->kind == SL_PREDICT_FREQUENT)
        cli_rep_null(r, NULL);
    else
        cli_rep_count(r, NULL, s->ahead);
    cli_rep_count(r, NULL, s->budget);
    cli_rep_number(r, NULL, (double)s->both / (double)s->chosen);
    cli_rep_number(r, NULL, (double)s->both / (double)s->predicted);
}

int cli_rep_studies(struct cli_rep_trace *rt, struct cli_rep *r)
{
    struct sl_predict_study studies[STUDIES_MAX];
    sluice_error e;
    if (rt->t->n_tokens) {
        int code = put_reuse(rt, r);
        if (code) return code;
    }
    if (cli_interrupted()) return CLI_EXIT_INTERRUPTED;
    memset(studies, 0, sizeof studies);
    uint32_t n = rt->t->n_tokens ? plan_studies(rt, studies) : 0;
    if (n && sl_predict_studies(rt->t, studies, n, rt->budget, &e)) return cli_fail(&e);
    cli_rep_table(r, "predictors", "predictor layers_ahead experts recall precision");
    for (uint32_t i = 0; i < n; i++) put_study(r, &studies[i]);
    return CLI_EXIT_OK;
}
