/* Recording changes nothing and leaves nothing out: logits are equal to the bit with and without a
 * trace, and what the trace says adds up to what sluice_stats says, for all ways of streaming. */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/stream_case.h"

#include <signal.h>
#include <unistd.h>

#include "formats/trace_file.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define MODEL GOLDEN "qwen3moe-Q8_0/model.gguf"
#define DEMO SLUICE_SOURCE_DIR "/models/sluice-demo-q8_0.gguf"
#define N_IDS 80

static char folder[] = "/tmp/sluice_test_record_XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof path, "%s/t", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

/* ---- a run ----------------------------------------------------------------------------------- */

struct setup {
    const char *model;
    uint32_t slots, chunk, io, prefetch, policy, threads;
    float drop_cold;
    uint64_t ram_bytes;
};

struct run {
    struct stream_text text;
    float *logits;
    sluice_stats stats;
    sluice_model_info info; /* strings go with the model */
    char arch[64];
};

static sluice_options options_of(const struct setup *u, const char *trace)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.n_ctx = STREAM_CONTEXT;
    o.slots = u->slots;
    o.chunk = u->chunk;
    o.io = u->io;
    o.prefetch = u->prefetch;
    o.cache_policy = u->policy;
    o.threads = u->threads;
    o.drop_cold = u->drop_cold;
    o.ram_bytes = u->ram_bytes;
    o.trace = trace;
    return o;
}

static void read_text(sluice_session *s, struct run *r)
{
    sluice_error e;
    for (uint32_t i = 0; i < N_IDS; i++)
        r->text.ids[i] = (int32_t)((i * i * 31 + i * 7 + 5) % r->info.n_vocab);
    r->text.n = N_IDS;
    r->text.n_vocab = r->info.n_vocab;
    r->logits = stream_room(&r->text);
    if (stream_read(s, &r->text, r->logits, &e)) fail_msg("%s", e.text);
    if (stream_read(s, &r->text, r->logits, &e)) fail_msg("%s", e.text); /* the cache is warm */
}

/* Reads the text twice, a prompt and single tokens. Owner of logits: the caller. */
static struct run run_model(const struct setup *u, const char *trace)
{
    struct run r = {.stats = SLUICE_STATS_INIT, .info = SLUICE_MODEL_INFO_INIT};
    sluice_options o = options_of(u, trace);
    sluice_error e;
    sluice_model *m;
    sluice_session *s;
    if (sluice_model_open(u->model, &o, &m, &e)) fail_msg("%s", e.text);
    if (sluice_session_open(m, &s, &e)) fail_msg("%s", e.text);
    sluice_model_get_info(m, &r.info);
    (void)snprintf(r.arch, sizeof r.arch, "%s", r.info.arch);
    read_text(s, &r);
    sluice_session_get_stats(s, &r.stats);
    sluice_session_close(s);
    sluice_model_close(m);
    return r;
}

/* ---- a trace --------------------------------------------------------------------------------- */

/* What its records come to. */
struct sums {
    struct sl_trace_header header;
    uint64_t n_tokens, n_evals, n_done, n_layers, n_hints;
    uint64_t states[4], ahead, left_out; /* choices */
    uint64_t layer_bytes, wait_ns;
    uint64_t read_bytes[6], n_reads;
    uint64_t ops[SL_TRACE_OP_KINDS];
    uint64_t phase_ns[SL_TRACE_PHASES];
    uint64_t layer_ns;
    uint32_t n_sessions;
};

static void add_layer(struct sums *x, const struct sl_trace_layer *y)
{
    float sum = 0;
    for (uint32_t i = 0; i < y->n_tokens * y->top_k; i++) {
        x->left_out += y->chosen[i] == SL_TRACE_NONE;
        if (y->chosen[i] == SL_TRACE_NONE) continue;
        /* Mapped files: nobody knows. */
        uint8_t state = y->states != NULL ? y->states[i] : SL_TRACE_UNKNOWN;
        x->states[state & SL_TRACE_STATE_MASK]++;
        x->ahead += (state & SL_TRACE_AHEAD) != 0;
        sum += y->weights[i];
    }
    assert_true(sum > 0);
    x->n_layers++;
    x->layer_bytes += y->read_bytes;
    x->wait_ns += y->wait_ns;
    x->layer_ns += y->dense_ns + y->expert_ns + y->wait_ns;
}

static void add_record(struct sums *x, const struct sl_trace_record *r)
{
    switch (r->kind) {
    case SL_TRACE_EVAL:
        x->n_evals++;
        x->n_tokens += r->u.eval.n_tokens;
        if (r->u.eval.session >= x->n_sessions) x->n_sessions = r->u.eval.session + 1;
        assert_true(r->u.eval.prompt || r->u.eval.n_tokens == 1);
        break;
    case SL_TRACE_LAYER:
        add_layer(x, &r->u.layer);
        break;
    case SL_TRACE_HINT:
        x->n_hints++;
        break;
    case SL_TRACE_OP:
        x->ops[r->u.op.kind]++;
        break;
    case SL_TRACE_READ:
        x->n_reads++;
        assert_in_range(r->u.read.why, 0, 5);
        x->read_bytes[r->u.read.why] += r->u.read.bytes;
        break;
    case SL_TRACE_DONE:
        x->n_done++;
        for (int i = 0; i < SL_TRACE_PHASES; i++) x->phase_ns[i] += r->u.done.phase_ns[i];
        break;
    case SL_TRACE_END:
        break;
    }
}

static struct sums *read_trace(void)
{
    struct sums *x = calloc(1, sizeof *x);
    struct sl_trace_reader *reader;
    struct sl_trace_record r;
    struct sl_budget b;
    sluice_error e;
    uint64_t lost;
    assert_non_null(x);
    sl_budget_init(&b, UINT64_MAX);
    if (sl_trace_open(path, &b, &e, &reader)) fail_msg("%s", e.text);
    x->header = *sl_trace_get_header(reader);
    do {
        if (sl_trace_next(reader, &r, &e)) fail_msg("%s", e.text);
        add_record(x, &r);
    } while (r.kind != SL_TRACE_END);
    assert_false(sl_trace_cut(reader, &lost));
    sl_trace_reader_close(reader);
    assert_int_equal(sl_budget_used(&b), 0);
    return x;
}

/* ---- equal sums ------------------------------------------------------------------------------ */

static void check_sums(const struct sums *x, const struct run *r)
{
    const sluice_stats *s = &r->stats;
    uint64_t known = x->states[0] + x->states[1] + x->states[2];
    assert_int_equal(known + x->states[SL_TRACE_UNKNOWN], s->uses);
    if (x->header.measured & SL_TRACE_STATES) {
        assert_int_equal(known, s->uses);
        assert_int_equal(x->states[SL_TRACE_AT_HAND], s->hits);
        assert_int_equal(x->states[SL_TRACE_FLYING], s->hits_flying);
    }
    assert_int_equal(x->left_out, s->dropped);
    assert_int_equal(x->layer_bytes, s->demand_bytes + s->prompt_bytes);
    assert_int_equal(x->wait_ns, s->stall_ns);
    assert_int_equal(x->n_tokens, s->eval_tokens);
    assert_int_equal(x->n_evals, x->n_done);
    assert_int_equal(x->n_layers, x->n_evals * r->info.n_moe_layers);
    assert_int_equal(x->read_bytes[0], s->demand_bytes);
    assert_int_equal(x->read_bytes[1], s->prompt_bytes);
    uint64_t ahead = x->read_bytes[2] + x->read_bytes[3];
    bool some_gone = x->ops[SL_TRACE_GONE] > 0; /* a part may have arrived before */
    assert_true(ahead == s->ahead_bytes || (ahead < s->ahead_bytes && some_gone));
    assert_int_equal(x->read_bytes[4], 0);
    assert_int_equal(x->phase_ns[4], s->expert_ns); /* of engine/phases.h */
    assert_int_equal(x->phase_ns[5], s->waiting_ns);
    assert_int_equal(x->phase_ns[6], s->head_ns);
    assert_true(x->layer_ns <= s->eval_ns);
    assert_true(x->layer_ns + s->head_ns > s->eval_ns / 4);
    uint64_t begun = x->ops[SL_TRACE_GUESS] + x->ops[SL_TRACE_COMING] + x->ops[SL_TRACE_WARM];
    assert_int_equal(x->ops[SL_TRACE_LANDED] + x->ops[SL_TRACE_GONE], begun);
}

static void check_header(const struct sums *x, const struct run *r, const struct setup *u)
{
    const struct sl_trace_header *h = &x->header;
    uint32_t n_slots = 0, n_experts = 0;
    for (uint32_t k = 0; k < SL_TRACE_CLASSES; k++) n_slots += h->n_slots[k];
    for (uint32_t l = 0; l < h->n_layers; l++) n_experts += h->layer[l].n_experts;
    assert_string_equal(h->io, r->info.io);
    assert_string_equal(h->isa, r->info.isa);
    assert_string_equal(h->architecture, r->arch);
    assert_non_null(strstr(u->model, h->file));
    assert_int_equal(h->n_layers, r->info.n_layers);
    assert_int_equal(h->model_bytes, r->info.file_bytes);
    assert_int_equal(n_experts, r->info.n_experts_total);
    assert_int_equal(h->threads, r->info.threads);
    assert_true(h->model_hash != 0);
    assert_int_equal(n_slots, u->io == SLUICE_IO_MMAP ? 0 : r->info.n_slots);
    assert_int_equal(h->lossy[0] != 0, u->drop_cold > 0);
}

static const struct setup setups[] = {
    {MODEL, 8, 16, SLUICE_IO_PREAD, SLUICE_PREFETCH_OFF, SLUICE_CACHE_LRU, 1, 0, 0},
    {MODEL, 8, 64, SLUICE_IO_PREAD, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_RECALL, 2, 0, 0},
    {MODEL, 2, 7, SLUICE_IO_AUTO, SLUICE_PREFETCH_FORCED, SLUICE_CACHE_LFU, 1, 0, 0},
    {MODEL, 10, 64, SLUICE_IO_AUTO, SLUICE_PREFETCH_AUTO, SLUICE_CACHE_DEFAULT, 1, 0, 0},
    {MODEL, 0, 64, SLUICE_IO_AUTO, SLUICE_PREFETCH_AUTO, SLUICE_CACHE_DEFAULT, 1, 0, 0},
    {MODEL, 0, 64, SLUICE_IO_MMAP, SLUICE_PREFETCH_AUTO, SLUICE_CACHE_DEFAULT, 1, 0, 0},
    {GOLDEN "qwen2moe-Q8_0/model.gguf", 6, 5, SLUICE_IO_PREAD, SLUICE_PREFETCH_FORCED, 0, 1, 0, 0},
    {DEMO, 60, 32, SLUICE_IO_AUTO, SLUICE_PREFETCH_FORCED, 0, 2, 0, 0},
};

static void test_record__any_way_of_streaming__sums_and_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct run plain = run_model(&setups[i], NULL), traced = run_model(&setups[i], path);
        struct sums *x = read_trace();
        check_header(x, &traced, &setups[i]);
        check_sums(x, &traced);
        assert_memory_equal(plain.logits, traced.logits, N_IDS * stream_row_bytes(&plain.text));
        bool guesses = setups[i].prefetch != SLUICE_PREFETCH_OFF && setups[i].slots > 0;
        assert_int_equal(x->n_hints > 0, guesses);
        assert_int_equal((x->header.measured & SL_TRACE_HINTS) != 0, guesses);
        assert_int_equal((x->header.measured & SL_TRACE_STATES) == 0,
                         setups[i].io == SLUICE_IO_MMAP);
        if (setups[i].slots == 0) assert_int_equal(x->states[0] + x->states[1] + x->n_reads, 0);
        free(x);
        free(plain.logits);
        free(traced.logits);
    }
}

/* With few slots guesses are forced, come true, and are seen to. */
static void test_record__forced_prefetch__first_uses_are_marked(void **state)
{
    (void)state;
    struct run r = run_model(&setups[7], path);
    struct sums *x = read_trace();
    assert_true(x->ops[SL_TRACE_GUESS] > 0);
    assert_true(x->ahead > 0);
    assert_true(r.stats.ahead_useful_bytes > 0);
    assert_true(x->ahead * x->header.layer[0].expert_bytes >= r.stats.ahead_useful_bytes);
    free(x);
    free(r.logits);
}

/* Which choices are left out depends on what is cached: with a trace it is the same, as nothing
 * else changes where nothing is read on a guess. */
static void test_record__drop_cold__left_out_choices_are_none(void **state)
{
    (void)state;
    const struct setup u = {.model = DEMO,
                            .slots = 40,
                            .chunk = 32,
                            .prefetch = SLUICE_PREFETCH_OFF,
                            .threads = 1,
                            .drop_cold = 0.9f};
    struct run plain = run_model(&u, NULL), traced = run_model(&u, path);
    struct sums *x = read_trace();
    check_header(x, &traced, &u);
    check_sums(x, &traced);
    assert_true(x->left_out > 0);
    assert_string_equal(x->header.lossy, "--drop-cold 0.9");
    assert_memory_equal(plain.logits, traced.logits, N_IDS * stream_row_bytes(&plain.text));
    free(x);
    free(plain.logits);
    free(traced.logits);
}

/* ---- slots that come and go, sessions, hot lists ----------------------------------------------
 */

static sluice_model *open_demo(const char *hot_list, uint32_t slots)
{
    const struct setup u = {.model = DEMO, .slots = slots, .threads = 1};
    sluice_options o = options_of(&u, path);
    sluice_error e;
    sluice_model *m;
    o.hot_list = hot_list;
    if (sluice_model_open(DEMO, &o, &m, &e)) fail_msg("%s", e.text);
    return m;
}

static void test_record__trim_and_sessions__told_and_numbered(void **state)
{
    (void)state;
    sluice_model *m = open_demo(NULL, 80);
    sluice_session *s[2];
    sluice_error e;
    sluice_stats stats = SLUICE_STATS_INIT;
    const int32_t ids[] = {3, 4, 5, 6, 7, 8, 9, 10};
    for (int i = 0; i < 2; i++)
        if (sluice_session_open(m, &s[i], &e)) fail_msg("%s", e.text);
    for (int i = 0; i < 2; i++) {
        if (sluice_session_eval(s[i], ids, 8, NULL, &e)) fail_msg("%s", e.text);
        if (sluice_model_trim(m, SLUICE_TRIM_HALF, &e)) fail_msg("%s", e.text);
    }
    sluice_session_get_stats(s[0], &stats);
    uint32_t closed = stats.n_slots - stats.n_slots_open;
    if (sluice_model_trim(m, SLUICE_TRIM_RESTORE, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < 2; i++) sluice_session_close(s[i]);
    sluice_model_close(m);
    struct sums *x = read_trace();
    assert_true(closed > 0);
    assert_int_equal(x->ops[SL_TRACE_SLOT_CLOSED], closed);
    assert_int_equal(x->ops[SL_TRACE_SLOT_OPENED], closed);
    assert_int_equal(x->n_sessions, 2);
    free(x);
}

static void test_record__hot_list__reads_are_warm(void **state)
{
    (void)state;
    char hot[80];
    sluice_error e;
    sluice_stats stats = SLUICE_STATS_INIT;
    const int32_t ids[] = {3, 4, 5, 6, 7, 8, 9, 10};
    (void)snprintf(hot, sizeof hot, "%s/hot", folder);
    for (int i = 0; i < 2; i++) {
        sluice_session *s;
        sluice_model *m = open_demo(hot, 100);
        if (sluice_session_open(m, &s, &e)) fail_msg("%s", e.text);
        for (int t = 0; t < 8; t++)
            if (sluice_session_eval(s, &ids[t], 1, NULL, &e)) fail_msg("%s", e.text);
        sluice_session_get_stats(s, &stats);
        sluice_session_close(s);
        sluice_model_close(m);
    }
    struct sums *x = read_trace();
    assert_true(x->ops[SL_TRACE_WARM] > 0);
    assert_true(x->read_bytes[4] > 0 && x->read_bytes[4] <= stats.warm_bytes);
    assert_int_equal(x->ops[SL_TRACE_LANDED] + x->ops[SL_TRACE_GONE],
                     x->ops[SL_TRACE_WARM] + x->ops[SL_TRACE_GUESS] + x->ops[SL_TRACE_COMING]);
    free(x);
    (void)unlink(hot);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The trace is in the plan, and the budget is kept with one. */
static void test_record__smallest_budget__is_kept(void **state)
{
    (void)state;
    sluice_plan with = SLUICE_PLAN_INIT, without = SLUICE_PLAN_INIT;
    struct setup u = {.model = DEMO, .threads = 1, .chunk = 16, .ram_bytes = 1};
    sluice_options o = options_of(&u, path), bare = options_of(&u, NULL);
    sluice_error e;
    if (sluice_memory_plan(DEMO, &o, &with, &e)) fail_msg("%s", e.text);
    if (sluice_memory_plan(DEMO, &bare, &without, &e)) fail_msg("%s", e.text);
    assert_int_not_equal(access(path, F_OK), 0); /* a plan creates nothing */
    assert_true(with.io_bytes > without.io_bytes);
    assert_true(with.minimum_bytes > without.minimum_bytes);
    u.ram_bytes = with.minimum_bytes;
    struct run r = run_model(&u, path);
    assert_true(r.stats.budget_peak_bytes <= u.ram_bytes);
    struct sums *x = read_trace();
    check_sums(x, &r);
    free(x);
    free(r.logits);
}

/* ---- failures -------------------------------------------------------------------------------- */

static char logged[512];
static int errors;

static void on_log(void *user, int level, const char *line)
{
    (void)user;
    if (level != SLUICE_LOG_ERROR) return;
    errors++;
    (void)snprintf(logged, sizeof logged, "%s", line);
}

static void test_record__cannot_be_created__open_fails(void **state)
{
    (void)state;
    static const struct {
        const char *model, *trace, *says;
        sluice_err err;
    } cases[] = {
        {DEMO, "/nowhere/t", "/nowhere/t", SLUICE_E_IO},
        {DEMO, "/tmp", "/tmp", SLUICE_E_IO},
        {DEMO, DEMO, "over the model", SLUICE_E_ARG},
        {GOLDEN "llama-Q8_0/model.gguf", path, "no routed experts", SLUICE_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct setup u = {.model = cases[i].model, .slots = 40, .threads = 1};
        sluice_options o = options_of(&u, cases[i].trace);
        sluice_model *m;
        sluice_error e;
        assert_int_equal(sluice_model_open(cases[i].model, &o, &m, &e), cases[i].err);
        if (strstr(e.text, cases[i].says) == NULL) fail_msg("%s", e.text);
        assert_null(m);
    }
}

/* Chooses what there is not in layer 3, as often as user says. */
static uint32_t choose_badly(void *user, uint32_t layer, uint32_t position, uint32_t n_experts,
                             uint32_t top_k, uint32_t *experts)
{
    int *times = user;
    (void)position, (void)top_k;
    experts[0] = layer;
    if (layer != 3 || *times == 0) return 1;
    experts[0] = n_experts;
    --*times;
    return 1;
}

/* Evaluations that end in a layer, or before the first one, end without a done record; what comes
 * after them is as whole as ever. */
static void test_record__evaluation_fails__trace_goes_on(void **state)
{
    (void)state;
    sluice_model *m = open_demo(NULL, 80);
    sluice_session *s;
    sluice_error e;
    const int32_t ids[] = {3, 4, 5, 6, 7, 8, 9, 10};
    int bad = 2;
    if (sluice_session_open(m, &s, &e)) fail_msg("%s", e.text);
    sluice_session_route(s, choose_badly, &bad);
    assert_int_equal(sluice_session_eval(s, ids, 8, NULL, &e), SLUICE_E_ARG);
    assert_int_equal(sluice_session_eval(s, ids, 1, NULL, &e), SLUICE_E_ARG);
    sluice_session_cancel(s, 1);
    assert_int_equal(sluice_session_eval(s, ids, 1, NULL, &e), SLUICE_E_CANCELLED);
    sluice_session_cancel(s, 0);
    if (sluice_session_eval(s, ids, 8, NULL, &e)) fail_msg("%s", e.text);
    sluice_session_close(s);
    sluice_model_close(m);
    struct sums *x = read_trace();
    assert_int_equal(x->n_evals, 4);
    assert_int_equal(x->n_done, 1);
    assert_int_equal(x->n_layers, 3 + 3 + 0 + 6); /* layer 3 did not get to its experts */
    free(x);
}

static void test_record__disk_full__one_line_and_right_logits(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    struct run plain = run_model(&setups[7], NULL), traced = plain;
    sluice_options o = options_of(&setups[7], "/dev/full");
    sluice_model *m;
    sluice_session *s;
    sluice_error e;
    o.log = on_log;
    sluice_err err = sluice_model_open(DEMO, &o, &m, &e);
    assert_int_equal(err, SLUICE_E_IO); /* not even the header can be written */
    assert_non_null(strstr(e.text, "/dev/full"));
    int ends[2];
    char pipe_name[64];
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(pipe_name, sizeof pipe_name, "/proc/self/fd/%d", ends[1]);
    void (*handler)(int) = signal(SIGPIPE, SIG_IGN);
    o.trace = pipe_name;
    if (sluice_model_open(DEMO, &o, &m, &e)) fail_msg("%s", e.text);
    assert_int_equal(close(ends[0]), 0); /* nobody reads: writing fails from here on */
    if (sluice_session_open(m, &s, &e)) fail_msg("%s", e.text);
    errors = 0;
    read_text(s, &traced);
    sluice_session_close(s);
    sluice_model_close(m);
    (void)signal(SIGPIPE, handler);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(errors, 1);
    assert_non_null(strstr(logged, pipe_name));
    assert_memory_equal(plain.logits, traced.logits, N_IDS * stream_row_bytes(&plain.text));
    free(plain.logits);
    free(traced.logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record__smallest_budget__is_kept),
        cmocka_unit_test(test_record__any_way_of_streaming__sums_and_logits),
        cmocka_unit_test(test_record__forced_prefetch__first_uses_are_marked),
        cmocka_unit_test(test_record__drop_cold__left_out_choices_are_none),
        cmocka_unit_test(test_record__trim_and_sessions__told_and_numbered),
        cmocka_unit_test(test_record__hot_list__reads_are_warm),
        cmocka_unit_test(test_record__cannot_be_created__open_fails),
        cmocka_unit_test(test_record__evaluation_fails__trace_goes_on),
        cmocka_unit_test(test_record__disk_full__one_line_and_right_logits),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
