/* `sluice trace replay --json`; docs/JSON.md lists the keys. */
#include <math.h>
#include <string.h>

#include "tools/json_out.h"
#include "tools/report.h"
#include "tools/trace_replay.h"

static void put_number(struct cli_json *in, const char *key, double value, int is_known)
{
    if (is_known && !isnan(value))
        cli_json_number(in, key, value);
    else
        cli_json_null(in, key);
}

static double rate(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : NAN;
}

static void put_trace(struct cli_json *root, const struct cli_replay *r)
{
    const struct sl_trace *t = r->loaded;
    const struct sl_trace_header *h = &t->header;
    struct cli_json *x = cli_json_child(root, "trace");
    cli_json_string(x, "path", r->args->input);
    cli_json_known_string(x, "model", h->model);
    cli_json_known_string(x, "program", h->program);
    cli_json_integer(x, "decoded_tokens", t->n_tokens);
    cli_json_integer(x, "prompt_tokens", t->n_prompt);
    cli_json_integer(x, "experts", r->n_experts);
    cli_json_integer(x, "token_experts", r->token_experts);
    cli_json_bool(x, "cut", t->cut);
    cli_json_integer(x, "lost_bytes", t->lost_bytes);
    cli_json_known_string(x, "lossy", h->lossy);
}

static void put_recorded(struct cli_json *root, const struct cli_replay *r)
{
    const struct sl_trace_header *h = &r->loaded->header;
    struct cli_json *x = cli_json_child(root, "recorded");
    double tokens = r->loaded->n_tokens;
    int timed = (h->measured & SL_TRACE_TIMES) != 0 && strcmp(h->io, "mmap") != 0;
    cli_json_known(x, "slots", r->n_slots);
    cli_json_known_string(x, "policy", h->policy);
    cli_json_known_string(x, "prefetch", h->prefetch);
    cli_json_known_string(x, "io", h->io);
    put_number(x, "hit_rate", rate(r->hits, r->uses), r->uses > 0);
    put_number(x, "token_demand_bytes", (double)r->read_bytes / tokens, timed);
    put_number(x, "token_ahead_bytes", (double)r->ahead_bytes / tokens,
               (h->measured & SL_TRACE_READS) != 0);
    put_number(x, "tokens_per_s", tokens * 1e9 / (double)r->decode_ns, r->decode_ns > 0);
    put_number(x, "drive_bytes_per_s", sl_drive_rate(r->loaded), sl_drive_rate(r->loaded) > 0);
}

static void put_repeated(struct cli_json *root, const struct cli_replay *r)
{
    if (!r->repeats) {
        cli_json_null(root, "repeated");
        return;
    }
    struct cli_json *x = cli_json_child(root, "repeated");
    cli_json_bool(x, "equal", r->repeated.tokens_differ == 0);
    cli_json_integer(x, "tokens_compared", r->repeated.tokens_compared);
    cli_json_integer(x, "tokens_differ", r->repeated.tokens_differ);
    if (r->repeated.tokens_differ)
        cli_json_integer(x, "first_differs", r->repeated.first_differs);
    else
        cli_json_null(x, "first_differs");
}

static void put_sums(struct cli_json *in, const struct cli_replay *r,
                     const struct sl_replay_sums *s, uint32_t tokens)
{
    cli_json_integer(in, "uses", s->uses);
    cli_json_integer(in, "hits", s->hits);
    cli_json_integer(in, "cold", s->cold);
    put_number(in, "hit_rate", rate(s->hits, s->uses), s->uses > 0);
    put_number(in, "token_read_bytes", (double)s->read_bytes / tokens,
               r->sizes_known && tokens > 0);
}

static void put_layers(struct cli_json *in, const struct cli_replay *r,
                       const struct cli_replay_cell *c)
{
    struct cli_json *list = cli_json_child_array(in, "layers");
    for (uint32_t l = 0; l < r->trace.header.n_layers; l++) {
        if (r->trace.header.layer[l].n_experts == 0) continue;
        struct cli_json *x = cli_json_child(list, NULL);
        cli_json_integer(x, "layer", l);
        put_sums(x, r, &c->result.layer[l], r->trace.n_tokens);
    }
}

static void put_cell(struct cli_json *list, const struct cli_replay *r, uint32_t s, uint32_t p)
{
    const struct cli_replay_cell *c = cli_replay_cell(r, s, p);
    const struct sl_replay_sums *d = &c->result.decode;
    struct cli_json *x = cli_json_child(list, NULL), *prompt;
    cli_json_string(x, "policy", r->policy[p].name);
    put_sums(x, r, d, r->trace.n_tokens);
    if (r->optimum >= 0) {
        const struct cli_replay_cell *best = cli_replay_cell(r, s, (uint32_t)r->optimum);
        double most = rate(best->result.decode.hits, best->result.decode.uses);
        cli_json_number(x, "hit_rate_below_optimum", most - rate(d->hits, d->uses));
    } else {
        cli_json_null(x, "hit_rate_below_optimum");
    }
    put_number(x, "tokens_per_s", 1000 / c->token_ms, 1);
    cli_json_integer(x, "evictions", c->result.evictions);
    prompt = cli_json_child(x, "prompt");
    put_sums(prompt, r, &c->result.prompt, r->trace.n_prompt);
    if (r->args->by_layer) put_layers(x, r, c);
}

static void put_sizes(struct cli_json *root, const struct cli_replay *r)
{
    struct cli_json *list = cli_json_child_array(root, "sizes");
    for (uint32_t s = 0; s < r->n_sizes; s++) {
        struct cli_json *x = cli_json_child(list, NULL);
        cli_json_string(x, "cache", r->size[s].text);
        cli_json_integer(x, "slots", r->size[s].slots);
        put_number(x, "share", rate(r->size[s].slots, r->n_experts), 1);
        cli_json_known(x, "bytes", r->size[s].bytes);
        struct cli_json *policies = cli_json_child_array(x, "policies");
        for (uint32_t p = 0; p < r->n_policies; p++) put_cell(policies, r, s, p);
    }
}

static void put_curve(struct cli_json *root, const struct cli_replay *r)
{
    if (r->lru.n_max == 0) {
        cli_json_null(root, "curve");
        return;
    }
    struct cli_json *list = cli_json_child_array(root, "curve");
    for (uint32_t i = 0; i < CLI_REPLAY_CURVE; i++) {
        struct cli_json *x = cli_json_child(list, NULL);
        double share;
        uint32_t slots = cli_replay_curve_slots(r, i, &share);
        cli_json_integer(x, "slots", slots);
        cli_json_number(x, "share", share);
        int enough = slots >= r->trace.header.layer[r->first_layer].top_k;
        put_number(x, "lru_hit_rate", rate(r->lru.hits[slots], r->lru.uses), enough);
        put_number(x, "optimum_hit_rate", rate(r->best.hits[slots], r->best.uses), enough);
    }
}

static void put_studies(struct cli_json *root, const struct cli_replay *r)
{
    if (r->n_studies == 0) return;
    struct cli_json *list = cli_json_child_array(root, "predictors");
    for (uint32_t i = 0; i < r->n_studies; i++) {
        const struct sl_predict_study *s = &r->study[i];
        struct cli_json *x = cli_json_child(list, NULL);
        cli_json_string(x, "predictor", sl_predictor_name(s->kind));
        cli_json_integer(x, "layers_ahead", s->ahead);
        cli_json_integer(x, "experts", s->budget);
        put_number(x, "recall", rate(s->both, s->chosen), 1);
        put_number(x, "precision", rate(s->both, s->predicted), 1);
    }
}

void cli_replay_print_json(const struct cli_replay *r)
{
    struct cli_json *root = cli_json_object();
    cli_json_string(root, "version", sluice_version());
    cli_json_string(root, "build", sluice_build_info());
    put_trace(root, r);
    put_recorded(root, r);
    put_repeated(root, r);
    cli_json_string(root, "pool", r->args->pool == CLI_POOL_LAYER ? "layer" : "one");
    put_number(root, "bits", r->args->expert_bits, r->args->expert_bits > 0);
    put_number(root, "drive_bytes_per_s", r->speed.drive_rate, r->speed.drive_rate > 0);
    put_number(root, "compute_ms", r->speed.compute_ms, r->speed.compute_ms > 0);
    put_sizes(root, r);
    put_curve(root, r);
    put_studies(root, r);
    (void)cli_json_finish(root, 0);
}
