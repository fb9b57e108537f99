/* Answering a prompt: evaluate what is new of it, then choose, print and evaluate token by token.
 */
#include <string.h>

#include "base/clock.h"
#include "engine/api.h"
#include "engine/record.h"
#include "engine/text/sampler.h"
#include "engine/text/stop.h"
#include "engine/text/thought.h"

#define ANSWER_BYTES (64ull << 10) /* small pieces of an answer: stop strings, block headers */

struct generation {
    sluice_session *s;
    sluice_generate_options opt;
    struct sl_sampler *sampler;
    struct sl_stop *stop;
    struct sl_detok detok;
    char *piece; /* [piece_size] text of one token */
    size_t piece_size;
    struct sl_thought thought;
    bool cut;     /* a callback asked to stop */
    bool stopped; /* a stop string ended the answer */
    sluice_result r;
    struct sl_expert_stats begin,
        first; /* experts at the call, and when the first token was chosen */
    sluice_error *e;
};

/* ---- text ------------------------------------------------------------------------------- */

static void give(struct generation *g, sluice_text_fn *to, const char *text, size_t n)
{
    api_look_at_experts(g->s); /* the callback may ask */
    if (n && to && !g->cut && to(g->opt.user, text, n)) g->cut = true;
}

static void emit(void *user, const char *text, size_t n)
{
    struct generation *g = user;
    give(g, g->opt.on_text, text, n);
}

/* Stop strings end answers; a thought may hold them. */
static void emit_part(void *user, bool thought, const char *text, size_t n)
{
    struct generation *g = user;
    if (thought)
        give(g, g->opt.on_thought, text, n);
    else if (!g->stopped)
        sl_stop_push(g->stop, (struct sl_str){text, n}, emit, g, &g->stopped);
}

static void divide(struct generation *g, size_t n)
{
    sl_thought_push(&g->thought, (struct sl_str){g->piece, n}, emit_part, g);
}

/* The text of a control token, "" for others. */
static struct sl_str control_text(const struct generation *g, int32_t id)
{
    const struct sl_tokenizer *t = g->s->model->tokenizer;
    if (sl_tokenizer_piece(t, id, false).n > 0) return (struct sl_str){"", 0};
    return sl_tokenizer_piece(t, id, true);
}

/* Prints a token; true where a stop string ended the answer. */
static bool print_token(struct generation *g, int32_t id)
{
    bool was_inside = sl_thought_inside(&g->thought);
    bool divided = g->thought.form != SL_THOUGHT_NONE;
    struct sl_str control = divided ? control_text(g, id) : (struct sl_str){"", 0};
    if (control.n > 0) {
        divide(g, sl_detok_flush(&g->detok, g->piece, g->piece_size));
        sl_thought_control(&g->thought, control, emit_part, g);
    } else {
        divide(g, sl_detok_push(&g->detok, id, g->piece, g->piece_size));
    }
    if (was_inside || sl_thought_inside(&g->thought)) g->r.thought_tokens++;
    return g->stopped;
}

/* What was held back, when nothing more comes. */
static void print_rest(struct generation *g)
{
    divide(g, sl_detok_flush(&g->detok, g->piece, g->piece_size));
    g->r.in_thought = sl_thought_inside(&g->thought);
    sl_thought_flush(&g->thought, emit_part, g);
    if (!g->stopped) sl_stop_flush(g->stop, emit, g);
}

/* ---- the prompt ------------------------------------------------------------------------- */

static uint64_t common_prefix(const struct sl_ids *history, const int32_t *prompt, size_t n)
{
    uint64_t i = 0;
    while (i < n && i < history->count && history->ids[i] == prompt[i]) i++;
    return i;
}

/* Returns nonzero where the caller gives up. */
static int tell_prompt(struct generation *g, uint64_t done, size_t n)
{
    api_look_at_experts(g->s); /* the callback may ask */
    return g->opt.on_prompt && g->opt.on_prompt(g->opt.user, done, n);
}

/* Brings the context to the prompt; *logits are those of its last token. */
static sluice_err evaluate_prompt(struct generation *g, const int32_t *prompt, size_t n,
                                  const float **logits)
{
    struct sl_session *s = &g->s->s;
    if (n > s->n_ctx)
        return sl_fail(g->e, SLUICE_E_CONTEXT_FULL,
                       "the prompt has %zu tokens and the context holds %u; a larger one is asked "
                       "for with -c (n_ctx)",
                       n, s->n_ctx);
    uint64_t at = common_prefix(&s->history, prompt, n);
    if (at == n) at--; /* the last token is evaluated again for its logits */
    at = sl_session_reach(s, at);
    sl_session_truncate(s, at);
    g->r.reused_tokens = at;
    while (at < n) {
        if (tell_prompt(g, at, n))
            return sl_fail(g->e, SLUICE_E_CANCELLED, "the evaluation was cancelled");
        size_t step = n - at < s->chunk ? n - at : s->chunk;
        bool is_last = at + step == n;
        s->reads_prompt = true;
        sluice_err err = sl_session_eval(s, prompt + at, step, NULL, is_last ? logits : NULL, g->e);
        s->reads_prompt = false;
        if (err != SLUICE_OK) return err;
        at += step;
    }
    if (tell_prompt(g, n, n))
        return sl_fail(g->e, SLUICE_E_CANCELLED, "the evaluation was cancelled");
    return SLUICE_OK;
}

/* ---- the answer ------------------------------------------------------------------------- */

static sluice_err decode(struct generation *g, const float *logits, uint64_t start)
{
    struct sl_session *s = &g->s->s;
    for (;;) {
        int32_t id;
        sluice_err err = sl_sampler_next(g->sampler, logits, &id, g->e);
        if (err != SLUICE_OK) return err;
        if (g->r.generated_tokens == 0) {
            g->r.first_token_ns = sl_now_ns() - start;
            api_look_at_experts(g->s);
            g->first = g->s->experts;
        }
        g->r.generated_tokens++;
        sl_sampler_accept(g->sampler, id);
        bool end = sl_tokenizer_is_eog(g->s->model->tokenizer, id) && !g->opt.ignore_end;
        if ((!end || g->opt.show_special) && print_token(g, id)) {
            g->r.stop = SLUICE_STOP_STRING;
            return SLUICE_OK;
        }
        if (end)
            g->r.stop = SLUICE_STOP_END;
        else if (g->cut)
            g->r.stop = SLUICE_STOP_CALLBACK;
        else if (g->opt.max_tokens && g->r.generated_tokens >= g->opt.max_tokens)
            g->r.stop = SLUICE_STOP_LIMIT;
        else if (s->history.count >= s->n_ctx)
            g->r.stop = SLUICE_STOP_CONTEXT;
        if (g->r.stop) {
            print_rest(g);
            return SLUICE_OK;
        }
        err = sl_session_eval(s, &id, 1, NULL, &logits, g->e);
        if (err != SLUICE_OK) {
            print_rest(g);
            return err;
        }
    }
}

static uint64_t bytes_read(const struct sl_expert_stats *s)
{
    return s->demand_bytes + s->prompt_bytes + s->ahead_bytes + s->warm_bytes;
}

/* What the answer read, as far as it got. */
static void note_reads(struct generation *g)
{
    const struct sl_expert_stats *now = &g->s->experts;
    const struct sl_expert_stats *first = g->r.generated_tokens ? &g->first : now;
    api_look_at_experts(g->s);
    g->r.prompt_read_bytes = bytes_read(first) - bytes_read(&g->begin);
    g->r.prompt_stall_ns = first->stall_ns - g->begin.stall_ns;
    g->r.decode_read_bytes = bytes_read(now) - bytes_read(first);
    g->r.decode_stall_ns = now->stall_ns - first->stall_ns;
    g->r.decode_uses = now->uses - first->uses;
    g->r.decode_hits = now->hits - first->hits;
    g->r.lossy = g->s->model->lossy;
}

static sluice_err run(struct generation *g, const int32_t *prompt, size_t n)
{
    uint64_t start = sl_now_ns();
    api_look_at_experts(g->s);
    g->begin = g->s->experts;
    const float *logits = NULL;
    g->r.prompt_tokens = n;
    sluice_err err = evaluate_prompt(g, prompt, n, &logits);
    g->r.prompt_ns = sl_now_ns() - start;
    if (err != SLUICE_OK) return err;
    for (size_t i = 0; i < n; i++) sl_sampler_accept(g->sampler, prompt[i]);
    err = decode(g, logits, start);
    g->r.decode_ns = sl_now_ns() - start - g->r.first_token_ns;
    return err;
}

/* ---- set-up ----------------------------------------------------------------------------- */

static sluice_err open_stop(struct generation *g)
{
    struct sl_str list[64];
    if (g->opt.n_stop > SL_ARRAY_LEN(list))
        return sl_fail(g->e, SLUICE_E_LIMIT, "%llu stop strings, at most %zu",
                       (unsigned long long)g->opt.n_stop, SL_ARRAY_LEN(list));
    for (uint64_t i = 0; i < g->opt.n_stop; i++)
        list[i] = (struct sl_str){g->opt.stop[i], strlen(g->opt.stop[i])};
    return sl_stop_open(list, (uint32_t)g->opt.n_stop, &g->s->model->budget, g->e, &g->stop);
}

/* No further than there can be tokens: the plan has room for so many. What is out of range is left
 * for the sampler to refuse. */
static uint32_t looks_back(const struct generation *g)
{
    uint32_t n = g->opt.repeat_last, n_ctx = g->s->s.n_ctx;
    return n > n_ctx && n <= SL_CONTEXT_MAX ? n_ctx : n;
}

/* How the answer is divided; an undivided one is all answer. */
static void init_thought(struct generation *g, const int32_t *prompt, size_t n)
{
    const struct sl_tokenizer *t = g->s->model->tokenizer;
    bool divided = g->opt.on_thought && !g->opt.show_special;
    enum sl_thought_form form = divided ? sl_thought_form_of(t) : SL_THOUGHT_NONE;
    sl_thought_init(&g->thought, form, sl_thought_is_open(t, prompt, n));
}

static sluice_err open_generation(struct generation *g)
{
    sluice_model *m = g->s->model;
    struct sl_sampler_config c = {
        .temperature = g->opt.temperature,
        .top_k = g->opt.top_k,
        .top_p = g->opt.top_p,
        .min_p = g->opt.min_p,
        .repeat_penalty = g->opt.repeat_penalty,
        .repeat_last = looks_back(g),
        .seed = g->opt.seed,
    };
    g->piece_size = sl_detok_max(m->tokenizer);
    /* an evaluation before may have let the keys grow into what this takes */
    api_make_room(m, api_sampler_bytes(m->m.n_vocab, g->s->s.n_ctx) + g->piece_size + ANSWER_BYTES);
    sluice_err err = sl_sampler_open(&c, m->m.n_vocab, &m->budget, g->e, &g->sampler);
    if (err == SLUICE_OK) err = open_stop(g);
    if (err != SLUICE_OK) return err;
    sl_detok_init(&g->detok, m->tokenizer, g->opt.show_special != 0);
    g->detok.started = true; /* the answer continues a text: a space at its start is part of it */
    g->piece = sl_alloc(&m->budget, g->piece_size, 1);
    return g->piece ? SLUICE_OK : sl_fail(g->e, SLUICE_E_NOMEM, "no memory for the answer");
}

sluice_err sluice_generate(sluice_session *s, const int32_t *prompt, size_t n_prompt,
                           const sluice_generate_options *options, sluice_result *result,
                           sluice_error *error)
{
    if (n_prompt == 0) return sl_fail(error, SLUICE_E_ARG, "the prompt holds no tokens");
    struct generation g = {
        .s = s, .opt = SLUICE_GENERATE_INIT, .r = SLUICE_RESULT_INIT, .e = error};
    if (options) {
        sluice_err bad =
            api_copy_struct(&g.opt, sizeof g.opt, options, options->struct_size, error);
        if (bad != SLUICE_OK) return bad;
    }
    uint64_t saved = 0;
    sluice_err err = api_enter(s->model, &saved, error);
    if (err != SLUICE_OK) return err;
    err = open_generation(&g);
    if (err == SLUICE_OK) {
        init_thought(&g, prompt, n_prompt);
        err = run(&g, prompt, n_prompt);
        note_reads(&g);
        if (s->model->record) sl_record_flush(s->model->record); /* a long pause may follow */
    }
    sl_free(g.piece);
    sl_stop_close(g.stop);
    sl_sampler_close(g.sampler);
    api_leave(s->model, saved);
    if (result) {
        g.r.struct_size = result->struct_size;
        memcpy(result, &g.r, result->struct_size < sizeof g.r ? result->struct_size : sizeof g.r);
    }
    return err;
}
