/* The tables of `sluice trace replay`, for eyes and 80 columns. What is not known is a dash. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/report.h"
#include "tools/trace_replay.h"

#define CELL_TEXT 32

/* A number in so many decimals, or a dash; text is returned. */
static const char *known(char text[CELL_TEXT], double value, int decimals, int is_known)
{
    if (!is_known || isnan(value)) return "-";
    (void)snprintf(text, CELL_TEXT, "%.*f", decimals, value);
    return text;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

static void put_name(const char *text) { (void)cli_put_clean(text[0] ? text : "not recorded"); }

/* ---- what was recorded -------------------------------------------------------------------------
 */

static void print_trace(const struct cli_replay *r)
{
    const struct sl_trace *t = r->loaded;
    const struct sl_trace_layer_info *y = &t->header.layer[r->first_layer];
    uint32_t layers = 0;
    for (uint32_t l = 0; l < t->header.n_layers; l++) layers += t->header.layer[l].n_experts > 0;
    (void)cli_printf("model      ");
    put_name(t->header.model[0] ? t->header.model : t->header.file);
    (void)cli_printf("\ntokens     %u decoded, %u of prompts\n", t->n_tokens, t->n_prompt);
    (void)cli_printf("experts    %u in %u layers", r->n_experts, layers);
    if (r->same_layers)
        (void)cli_printf("; of each layer's %u a token takes %u\n", y->n_experts, y->top_k);
    else
        (void)cli_printf("; a token takes %u\n", r->token_experts);
    double bits = sl_replay_recorded_bits(&t->header);
    if (bits > 0)
        (void)cli_printf("           the smallest have %.2f bits a weight, padding included\n",
                         bits);
}

static void print_run(const struct cli_replay *r)
{
    const struct sl_trace_header *h = &r->loaded->header;
    char text[CELL_TEXT];
    double tokens = r->loaded->n_tokens;
    (void)cli_printf("recorded   ");
    if (r->n_slots) {
        (void)cli_printf("%u slots (%.1f %% of the experts", r->n_slots,
                         percent(r->n_slots, r->n_experts));
        if (r->n_slots_end != r->n_slots) (void)cli_printf("; %u at the end", r->n_slots_end);
        (void)cli_printf("), policy ");
        put_name(h->policy);
        (void)cli_printf(", prefetch ");
        put_name(h->prefetch);
    } else {
        (void)cli_printf("size of the cache not recorded");
    }
    (void)cli_printf("\n           ");
    if (r->uses)
        (void)cli_printf("hit rate %.2f %%", percent(r->hits, r->uses));
    else
        (void)cli_printf("hit rate not recorded");
    if (h->measured & SL_TRACE_TIMES && strcmp(h->io, "mmap") != 0)
        (void)cli_printf(", %s MB a token read on demand",
                         known(text, (double)r->read_bytes / tokens / 1e6, 2, 1));
    if (r->ahead_bytes) (void)cli_printf(", %.2f ahead", (double)r->ahead_bytes / tokens / 1e6);
    if (r->decode_ns)
        (void)cli_printf("\n           %.2f tok/s", tokens * 1e9 / (double)r->decode_ns);
    (void)cli_printf("\n");
}

static void print_repeated(const struct cli_replay *r)
{
    const struct sl_replay_result *x = &r->repeated;
    if (!r->repeats)
        (void)cli_printf("repeated   no: the trace does not hold what repeating its run takes\n");
    else if (x->tokens_differ)
        (void)cli_printf("repeated   %llu of %llu tokens differ from the recording, the first at "
                         "%llu\n",
                         (unsigned long long)x->tokens_differ,
                         (unsigned long long)x->tokens_compared,
                         (unsigned long long)x->first_differs);
    else
        (void)cli_printf("repeated   equal token by token: all %llu have the recording's hits\n",
                         (unsigned long long)x->tokens_compared);
}

/* ---- sizes and policies ------------------------------------------------------------------------
 */

static void print_cell(const struct cli_replay *r, uint32_t s, uint32_t p)
{
    const struct cli_replay_size *z = &r->size[s];
    const struct cli_replay_cell *c = cli_replay_cell(r, s, p);
    const struct sl_replay_sums *d = &c->result.decode;
    char memory[CLI_SIZE_TEXT], text[3][CELL_TEXT], slots[CELL_TEXT] = "";
    double gap = 0, rate = percent(d->hits, d->uses);
    if (r->optimum >= 0) {
        const struct sl_replay_sums *best =
            &cli_replay_cell(r, s, (uint32_t)r->optimum)->result.decode;
        gap = percent(best->hits, best->uses) - rate;
    }
    if (p == 0) (void)snprintf(slots, sizeof slots, "%u", z->slots);
    (void)cli_printf(
        "%-9s %7s %10s  %-11s %7.2f %7s %9s %7s\n", p == 0 ? z->text : "", slots,
        p > 0      ? ""
        : z->bytes ? cli_size_text(memory, z->bytes)
                   : "-",
        r->policy[p].name, rate, known(text[0], gap, 2, r->optimum >= 0),
        known(text[1], (double)d->read_bytes / r->trace.n_tokens / 1e6, 2, r->sizes_known),
        known(text[2], 1000 / c->token_ms, 2, 1));
}

/* A share may come to fewer slots than layers need. */
static void print_raised(const struct cli_replay *r)
{
    for (uint32_t s = 0; s < r->n_sizes; s++) {
        const struct cli_replay_size *z = &r->size[s];
        if (z->size.share <= 0 || z->slots <= z->size.share * r->n_experts + r->n_experts / 100.0)
            continue;
        (void)cli_printf("%s is raised to %.1f %%: each layer has slots for one token's experts, "
                         "at least.\n",
                         z->text, percent(z->slots, r->n_experts));
    }
}

static void print_sizes(const struct cli_replay *r)
{
    const struct sl_replay_sums *d = &cli_replay_cell(r, 0, 0)->result.decode;
    (void)cli_printf("\n%-9s %7s %10s  %-11s %7s %7s %9s %7s\n", "cache", "slots", "memory",
                     "policy", "hits %", "to best", "MB/token", "tok/s");
    for (uint32_t s = 0; s < r->n_sizes; s++)
        for (uint32_t p = 0; p < r->n_policies; p++) print_cell(r, s, p);
    (void)cli_printf("\nFirst uses are %.2f %% of all uses: misses that no cache can avoid.\n",
                     percent(d->cold, d->uses));
    print_raised(r);
    if (r->n_slots == r->n_experts)
        (void)cli_printf(
            "In the recording all experts had been read before, so it had none of them.\n");
    if (r->optimum >= 0)
        (void)cli_printf("optimum knows the future; to best: points of hit rate below it.\n");
}

/* ---- words -------------------------------------------------------------------------------------
 */

static void print_where_hits_begin(const struct cli_replay *r)
{
    uint32_t s = 0;
    while (s < r->n_sizes && r->size[s].slots > r->token_experts) s++;
    if (s == r->n_sizes) return;
    if (r->args->pool == CLI_POOL_LAYER)
        (void)cli_printf(
            "%u slots, %.1f %% of the experts, are what one token takes: with so few a "
            "layer\nkeeps nothing but what the token before chose, whatever the "
            "policy.\n",
            r->token_experts, percent(r->token_experts, r->n_experts));
    else
        (void)cli_printf(
            "One token takes %u experts (%.1f %% of them): with fewer slots plain LRU hits next\n"
            "to nothing.\n",
            r->token_experts, percent(r->token_experts, r->n_experts));
}

static void print_assumptions(const struct cli_replay *r)
{
    double rate = r->speed.drive_rate > 0 ? r->speed.drive_rate : sl_drive_rate(r->loaded);
    if (isnan(cli_replay_cell(r, 0, 0)->token_ms)) {
        int computing = r->trace.header.measured & SL_TRACE_TIMES || r->speed.compute_ms > 0;
        if (r->sizes_known)
            (void)cli_printf("tok/s is not known, since %s; %s.\n",
                             rate > 0    ? "the trace has no times"
                             : computing ? "the recording read nothing"
                                         : "the trace has neither times nor reads",
                             rate > 0    ? "--compute MS gives the time of a token"
                             : computing ? "--drive SIZE gives the drive's rate"
                                         : "--drive SIZE and --compute MS give what is needed");
        return;
    }
    (void)cli_printf(
        "tok/s is an estimate, with a drive of %.0f MB/s (%s) and computing as\n%s: in "
        "each layer reading and computing experts overlap, and nothing is\nread "
        "ahead.\n",
        rate / 1e6, r->speed.drive_rate > 0 ? "given" : "as recorded",
        r->speed.compute_ms > 0 ? "given" : "recorded");
}

/* ---- layers, curves, predictors ----------------------------------------------------------------
 */

static void print_layers(const struct cli_replay *r, uint32_t s)
{
    (void)cli_printf("\nhits %% by layer, %s\nlayer ", r->size[s].text);
    for (uint32_t p = 0; p < r->n_policies; p++) (void)cli_printf(" %11s", r->policy[p].name);
    (void)cli_printf("\n");
    for (uint32_t l = 0; l < r->trace.header.n_layers; l++) {
        if (r->trace.header.layer[l].n_experts == 0) continue;
        (void)cli_printf("%5u ", l);
        for (uint32_t p = 0; p < r->n_policies; p++) {
            const struct sl_replay_sums *x = &cli_replay_cell(r, s, p)->result.layer[l];
            (void)cli_printf(" %11.2f", percent(x->hits, x->uses));
        }
        (void)cli_printf("\n");
    }
}

#define BAR 42 /* characters for 100 % */

static void print_curve(const struct cli_replay *r)
{
    if (r->lru.n_max == 0) {
        (void)cli_printf(
            "\nNo curve of misses: pools of layers that differ have no common size.\n");
        return;
    }
    (void)cli_printf("\nmisses of decoded tokens, %% of uses%s%s\n%6s %7s %8s %8s\n",
                     r->args->pool == CLI_POOL_LAYER ? "; slots of each layer" : "",
                     r->trace.header.n_classes > 1 ? "; all experts as of one size" : "", "cache",
                     "slots", "lru", "optimum");
    for (uint32_t i = 0; i < CLI_REPLAY_CURVE; i++) {
        char bar[BAR + 1];
        double share;
        uint32_t slots = cli_replay_curve_slots(r, i, &share);
        if (slots < r->trace.header.layer[r->first_layer].top_k) continue;
        double lru = percent(r->lru.uses - r->lru.hits[slots], r->lru.uses);
        double best = percent(r->best.uses - r->best.hits[slots], r->best.uses);
        size_t n_best = (size_t)(best * BAR / 100 + 0.5), n_lru = (size_t)(lru * BAR / 100 + 0.5);
        memset(bar, '-', n_lru > n_best ? n_lru : n_best);
        memset(bar, '#', n_best);
        bar[n_lru > n_best ? n_lru : n_best] = 0;
        (void)cli_printf("%4.0f %% %7u %8.2f %8.2f%s%s\n", share * 100, slots, lru, best,
                         bar[0] ? "  " : "", bar);
    }
    (void)cli_printf("# cannot be avoided with so many slots; - is what LRU misses beyond that.\n");
}

static void print_studies(const struct cli_replay *r)
{
    if (r->n_studies == 0) return;
    (void)cli_printf("\npredicting a layer's experts\n%-22s %6s %8s %9s %11s\n", "predictor",
                     "ahead", "experts", "recall %", "precision %");
    for (uint32_t i = 0; i < r->n_studies; i++) {
        const struct sl_predict_study *x = &r->study[i];
        char text[2][CELL_TEXT];
        (void)cli_printf("%-22s %6u %8u %9s %11s\n", sl_predictor_name(x->kind), x->ahead,
                         x->budget, known(text[0], percent(x->both, x->chosen), 2, x->chosen > 0),
                         known(text[1], percent(x->both, x->predicted), 2, x->chosen > 0));
    }
    (void)cli_printf(
        "ahead: layers from what was known to what is predicted; recall: the part of "
        "the\nchosen that was predicted; precision: the part of the predicted that was "
        "chosen.\nprevious: what the token before chose there; frequent: what the text chooses "
        "there\nmost; follows: what followed when an earlier layer chose like this; router: the\n"
        "layer's own router, asked a layer early, as the engine does.\n");
}

void cli_replay_print(const struct cli_replay *r)
{
    print_trace(r);
    print_run(r);
    print_repeated(r);
    print_sizes(r);
    print_where_hits_begin(r);
    print_assumptions(r);
    for (uint32_t s = 0; s < r->n_sizes && r->args->by_layer; s++) print_layers(r, s);
    print_curve(r);
    print_studies(r);
}
