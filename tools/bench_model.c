/* sluice bench decode and sluice bench prefill: how fast a model runs here, and what it reads for
 * it.
 *
 * Ids come from a file, or are drawn by a fixed generator, so that two runs do the same. decode
 * evaluates them one by one, the head included, as an answer would be made; prefill evaluates one
 * prompt, and with --warm decodes before and after it, to show what the prompt did to the cache. */
#include <stdio.h>
#include <string.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/machine.h"
#include "tools/open_model.h"
#include "tools/plan_text.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/routing.h"
#include "tools/streaming.h"
#include "tools/text.h"
#include "tools/verbs.h"

#define DECODE_TOKENS 200
#define PREFILL_TOKENS 512
#define TOPIC_TOKENS 32 /* then a drawn id begins a new text, lest it run in a circle */

struct bench {
    const struct cli_args *args;
    sluice_model *model;
    sluice_session *session;
    sluice_model_info info;
    sluice_plan plan;
    struct cli_ids ids;         /* of --tokens; empty: drawn */
    struct cli_routing routing; /* of --routing; no tokens: the model's own */
    float *logits;              /* [n_vocab] of the last token */
    size_t used;                /* ids taken so far */
    uint64_t drawn;             /* state of the generator */
    struct cli_progress progress;
};

/* One stretch of tokens, measured. */
struct stretch {
    size_t n;
    uint64_t ns, second_half_ns;
    sluice_stats stats; /* what it took */
};

/* ---- ids ---------------------------------------------------------------------------------- */

static int read_ids(struct bench *b)
{
    const struct cli_args *args = b->args;
    struct cli_text text = {0};
    if (!args->tokens) return CLI_EXIT_OK;
    const char *source = strcmp(args->tokens, "-") == 0 ? "standard input" : args->tokens;
    int failed =
        cli_text_read(&text, args->tokens) || cli_ids_parse(&b->ids, text.bytes, text.size, source);
    cli_text_free(&text);
    if (failed) return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
    if (b->ids.count) return CLI_EXIT_OK;
    cli_error("%s: found no token ids", source);
    return CLI_EXIT_FAILURE;
}

static int32_t draw(struct bench *b)
{
    b->drawn = b->drawn * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((b->drawn >> 33) % b->info.n_vocab);
}

static int32_t most_likely(const struct bench *b)
{
    size_t best = 0;
    for (size_t i = 1; i < b->info.n_vocab; i++)
        if (b->logits[i] > b->logits[best]) best = i;
    return (int32_t)best;
}

/* The next id to evaluate; follows: the logits are those of the token before. */
static int32_t next_id(struct bench *b, int follows)
{
    size_t at = b->used++;
    if (b->ids.count) return b->ids.ids[at % b->ids.count];
    return follows && at % TOPIC_TOKENS ? most_likely(b) : draw(b);
}

/* ---- measuring ---------------------------------------------------------------------------- */

static void look(const struct bench *b, sluice_stats *stats)
{
    const sluice_stats fresh = SLUICE_STATS_INIT;
    *stats = fresh;
    sluice_session_get_stats(b->session, stats);
}

/* What the line says while it runs. */
static void show(struct bench *b, const sluice_stats *before, uint64_t begin_ns)
{
    char line[CLI_LIVE_TEXT];
    sluice_stats now;
    if (!cli_progress_due(&b->progress)) return;
    look(b, &now);
    sluice_stats since = cli_stats_since(before, &now);
    cli_progress_say(&b->progress, cli_live_text(line, &since, cli_now_ns() - begin_ns));
}

/* n tokens, one by one. */
static int decode(struct bench *b, size_t n, struct stretch *out)
{
    sluice_error error;
    sluice_stats before, after;
    uint64_t begin_ns = cli_now_ns(), half_ns = begin_ns;
    look(b, &before);
    for (size_t i = 0; i < n; i++) {
        int32_t id = next_id(b, sluice_session_length(b->session) > 0);
        if (i == n - n / 2) half_ns = cli_now_ns();
        if (sluice_session_eval(b->session, &id, 1, b->logits, &error)) return cli_fail(&error);
        show(b, &before, begin_ns);
    }
    look(b, &after);
    uint64_t end_ns = cli_now_ns();
    *out =
        (struct stretch){n, end_ns - begin_ns, end_ns - half_ns, cli_stats_since(&before, &after)};
    return CLI_EXIT_OK;
}

/* n tokens at once, as a prompt: the distribution after the last is wanted. */
static int prefill(struct bench *b, size_t n, struct stretch *out)
{
    sluice_error error;
    sluice_stats before, after;
    struct cli_ids ids = {0};
    for (size_t i = 0; i < n; i++) cli_ids_push(&ids, next_id(b, 0));
    look(b, &before);
    uint64_t begin_ns = cli_now_ns();
    sluice_err err = sluice_session_eval_last(b->session, ids.ids, n, b->logits, &error);
    uint64_t ns = cli_now_ns() - begin_ns;
    cli_ids_free(&ids);
    if (err) return cli_fail(&error);
    look(b, &after);
    *out = (struct stretch){n, ns, 0, cli_stats_since(&before, &after)};
    return CLI_EXIT_OK;
}

/* ---- reporting ---------------------------------------------------------------------------- */

static double rate(size_t n, uint64_t ns) { return ns ? (double)n * 1e9 / (double)ns : 0; }

static void put_rate(struct cli_json *root, const char *key, const struct stretch *s)
{
    if (s->n && s->stats.uses)
        cli_json_number(root, key, cli_share(s->stats.hits, s->stats.uses));
    else
        cli_json_null(root, key);
}

/* Version, model, machine and settings; the figures follow. */
static struct cli_json *begin_json(const struct bench *b)
{
    struct cli_json *root = cli_json_object();
    struct cli_json *settings = cli_json_model(root, b->args, &b->info);
    cli_json_known_string(settings, "tokens", b->args->tokens ? b->args->tokens : "");
    cli_json_known_string(settings, "routing", b->args->routing ? b->args->routing : "");
    cli_json_machine(root);
    return root;
}

/* Where the time of a stretch went. */
static void put_profile(struct cli_json *root, const sluice_stats *s)
{
    struct cli_json *json = cli_json_child(root, "profile_ms");
    cli_json_number(json, "projection", (double)s->projection_ns / 1e6);
    cli_json_number(json, "mixing", (double)s->mixing_ns / 1e6);
    cli_json_number(json, "routing", (double)s->routing_ns / 1e6);
    cli_json_number(json, "expert", (double)s->expert_ns / 1e6);
    cli_json_number(json, "waiting", (double)s->waiting_ns / 1e6);
    cli_json_number(json, "head", (double)s->head_ns / 1e6);
    cli_json_number(json, "other", (double)s->other_ns / 1e6);
}

static void note_profile(const sluice_stats *s)
{
    double whole = (double)s->eval_ns / 100;
    if (s->eval_ns == 0) return;
    cli_note("time: experts %.1f %%, other weights %.1f %%, head %.1f %%, attention and state "
             "%.1f %%, routing %.1f %%, waiting %.1f %%, the rest %.1f %%",
             (double)s->expert_ns / whole, (double)s->projection_ns / whole,
             (double)s->head_ns / whole, (double)s->mixing_ns / whole,
             (double)s->routing_ns / whole, (double)s->waiting_ns / whole,
             (double)s->other_ns / whole);
}

static void end_json(struct bench *b, struct cli_json *root, const struct stretch *s)
{
    sluice_stats now;
    look(b, &now);
    cli_json_integer(root, "warm_tokens", (uint64_t)b->args->warm);
    cli_json_number(root, "load_ms", (double)b->info.load_ns / 1e6);
    cli_json_experts(root, &s->stats);
    put_profile(root, &s->stats);
    cli_json_plan(root, &b->plan);
    cli_json_integer(root, "budget_peak_bytes", now.budget_peak_bytes);
    cli_json_known(root, "process_peak_bytes", now.process_peak_bytes);
    (void)cli_json_finish(root, 0);
}

static void note(const struct bench *b, const struct stretch *s)
{
    char peak[CLI_PEAK_TEXT];
    sluice_stats now;
    look(b, &now);
    if (b->args->routing)
        cli_note("experts as %s has them, not the model's choice", b->args->routing);
    cli_streaming_note(b->args, &b->info, &s->stats, s->n);
    note_profile(&s->stats);
    cli_note("load %.2f s; peak memory %s", (double)b->info.load_ns / 1e9,
             cli_peak_text(peak, &now, &b->info));
}

/* Bytes of weights that computing a token takes: all but the experts, and its share of those. */
static double token_weight_bytes(const struct bench *b, const struct stretch *s)
{
    double all = (double)b->plan.dense_bytes;
    if (s->n && b->plan.n_experts)
        all += (double)s->stats.uses / (double)s->n * (double)b->plan.model_expert_bytes /
               (double)b->plan.n_experts;
    return all;
}

static void report_decode(struct bench *b, const struct stretch *s)
{
    uint64_t read = cli_stats_read_bytes(&s->stats);
    if (b->args->json) {
        struct cli_json *root = begin_json(b);
        cli_json_integer(root, "decode_tokens", s->n);
        cli_json_number(root, "decode_ms", (double)s->ns / 1e6);
        cli_json_number(root, "tokens_per_s", rate(s->n, s->ns));
        cli_json_number(root, "second_half_tokens_per_s", rate(s->n / 2, s->second_half_ns));
        if (b->plan.n_experts == 0 || s->stats.uses)
            cli_json_number(root, "token_weight_bytes", token_weight_bytes(b, s));
        else
            cli_json_null(root, "token_weight_bytes");
        cli_json_number(root, "token_read_bytes", (double)read / (double)s->n);
        put_rate(root, "decode_hit_rate", s);
        end_json(b, root, s);
    } else {
        char size[CLI_SIZE_TEXT];
        (void)cli_printf(
            "decode %zu tokens: %.2f tok/s, second half %.2f; %s read a token; hit rate %.1f %%; "
            "%.1f ms a token waiting for the drive\n",
            s->n, rate(s->n, s->ns), rate(s->n / 2, s->second_half_ns),
            cli_size_text(size, read / s->n), 100 * cli_share(s->stats.hits, s->stats.uses),
            (double)s->stats.stall_ns / 1e6 / (double)s->n);
    }
    note(b, s);
}

struct prefill_result {
    struct stretch before, prompt, after;
    size_t chunks;
    double reads; /* of each expert in a chunk, on average over all experts */
};

/* null where nothing was decoded. */
static void put_speed(struct cli_json *root, const char *key, const struct stretch *s)
{
    if (s->n)
        cli_json_number(root, key, rate(s->n, s->ns));
    else
        cli_json_null(root, key);
}

static void report_prefill(struct bench *b, const struct prefill_result *r)
{
    const struct stretch *s = &r->prompt;
    if (b->args->json) {
        struct cli_json *root = begin_json(b);
        cli_json_integer(root, "prompt_tokens", s->n);
        cli_json_number(root, "prompt_ms", (double)s->ns / 1e6);
        cli_json_number(root, "tokens_per_s", rate(s->n, s->ns));
        cli_json_integer(root, "chunks", r->chunks);
        cli_json_integer(root, "prompt_read_bytes", cli_stats_read_bytes(&s->stats));
        cli_json_number(root, "expert_reads_per_chunk", r->reads);
        put_rate(root, "hit_rate_before", &r->before);
        put_rate(root, "hit_rate_after", &r->after);
        put_speed(root, "decode_before_tokens_per_s", &r->before);
        put_speed(root, "decode_after_tokens_per_s", &r->after);
        end_json(b, root, s);
    } else {
        char size[CLI_SIZE_TEXT];
        (void)cli_printf("prefill %zu tokens in %zu chunk%s: %.2f tok/s; %s read; %.3f reads of "
                         "each expert a chunk\n",
                         s->n, r->chunks, r->chunks == 1 ? "" : "s", rate(s->n, s->ns),
                         cli_size_text(size, cli_stats_read_bytes(&s->stats)), r->reads);
        if (r->after.n)
            (void)cli_printf("decode of %zu tokens: %.2f tok/s before, %.2f after; hit rate "
                             "%.1f %% before, %.1f %% after\n",
                             r->after.n, rate(r->before.n, r->before.ns),
                             rate(r->after.n, r->after.ns),
                             100 * cli_share(r->before.stats.hits, r->before.stats.uses),
                             100 * cli_share(r->after.stats.hits, r->after.stats.uses));
    }
    note(b, s);
}

/* ---- the verbs ---------------------------------------------------------------------------- */

static int bench_decode(struct bench *b)
{
    struct stretch warm = {0}, measured = {0};
    size_t n = b->args->bench_tokens ? (size_t)b->args->bench_tokens : DECODE_TOKENS;
    int code = decode(b, (size_t)b->args->warm, &warm);
    if (code == 0) code = decode(b, n, &measured);
    cli_progress_end(&b->progress);
    if (code == 0) report_decode(b, &measured);
    return code;
}

static int bench_prefill(struct bench *b)
{
    struct prefill_result r = {0};
    size_t n = b->args->bench_tokens ? (size_t)b->args->bench_tokens : PREFILL_TOKENS;
    size_t warm = (size_t)b->args->warm;
    int code = decode(b, warm, &r.before);
    if (code == 0) code = prefill(b, n, &r.prompt);
    if (code == 0) code = decode(b, warm, &r.after);
    cli_progress_end(&b->progress);
    if (code) return code;
    r.chunks = (n + b->info.chunk - 1) / b->info.chunk;
    if (b->plan.model_expert_bytes)
        r.reads = (double)cli_stats_read_bytes(&r.prompt.stats) / (double)r.chunks /
                  (double)b->plan.model_expert_bytes;
    report_prefill(b, &r);
    return code;
}

static int check_context(struct bench *b, int is_decode)
{
    uint64_t n = b->args->bench_tokens ? (uint64_t)b->args->bench_tokens
                 : is_decode           ? DECODE_TOKENS
                                       : PREFILL_TOKENS;
    uint64_t need = n + (uint64_t)b->args->warm * (is_decode ? 1 : 2);
    if (need <= b->info.n_ctx) return CLI_EXIT_OK;
    cli_error("%llu tokens do not fit into a context of %u; give -c %llu", (unsigned long long)need,
              (unsigned)b->info.n_ctx, (unsigned long long)need);
    return CLI_EXIT_FAILURE;
}

static int open_all(struct bench *b)
{
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    int code = cli_model_open(b->args, &b->model, &b->plan);
    if (code) return code;
    sluice_model_get_info(b->model, &info);
    b->info = info;
    b->drawn = 20261130;
    b->logits = cli_alloc(info.n_vocab, sizeof *b->logits);
    if (sluice_session_open(b->model, &b->session, &error)) return cli_fail(&error);
    if (b->args->routing && info.n_experts == 0)
        cli_note("warning: the model has no experts; --routing has no effect");
    if (b->args->routing) cli_routing_use(&b->routing, b->model, b->session);
    cli_interrupt_watch(b->session);
    cli_progress_begin(&b->progress, "measuring", "tokens",
                       cli_progress_wanted(b->args->progress, b->args->quiet));
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

int cli_bench_model(const struct cli_args *args)
{
    struct bench b = {.args = args};
    int is_decode = strcmp(args->subject, "decode") == 0;
    if (!args->model) {
        cli_error("no model given; write: sluice bench %s -m MODEL", args->subject);
        return CLI_EXIT_USAGE;
    }
    int code = read_ids(&b);
    if (code == 0 && args->routing) code = cli_routing_read(&b.routing, args->routing, is_decode);
    if (code == 0) code = open_all(&b);
    if (code == 0) code = check_context(&b, is_decode);
    if (code == 0) code = is_decode ? bench_decode(&b) : bench_prefill(&b);
    cli_interrupt_watch(NULL);
    cli_progress_end(&b.progress);
    sluice_session_close(b.session);
    sluice_model_close(b.model);
    cli_free(b.logits);
    cli_ids_free(&b.ids);
    cli_routing_free(&b.routing);
    return code;
}
