/* Forms of traces: what is written in one is read again, nothing of it lost but what is said; files
 * that are cut or damaged, and memory that runs out. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/trace_files.h"

static uint64_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

/* ---- files --------------------------------------------------------------------------------------
 */

static char *read_bytes(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static sluice_err to_stream(void *user, const void *bytes, uint64_t n, sluice_error *e)
{
    (void)e;
    assert_int_equal(fwrite(bytes, 1, n, user), n);
    return SLUICE_OK;
}

static void write_form(const struct sl_trace *t, enum sl_trace_form form, bool gzipped,
                       const char *path, struct sl_budget *b)
{
    sluice_error e;
    if (form == SL_TRACE_FORM_TRACE) {
        assert_int_equal(sl_trace_write_file(t, path, b, &e), SLUICE_OK);
        return;
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    struct sl_trace_sink sink = {to_stream, f, gzipped};
    if (sl_trace_write_form(t, form, &sink, b, &e) != SLUICE_OK) fail_msg("%s", e.text);
    assert_int_equal(fclose(f), 0);
}

/* ---- a trace with everything in it --------------------------------------------------------------
 */

#define LAYERS 5
#define EXPERTS 12
#define TOP_K 3
#define TOKENS_MAX 6

static void full_header(struct sl_trace_header *h)
{
    memset(h, 0, sizeof *h);
    snprintf(h->program, sizeof h->program, "sluice 0.1.0");
    snprintf(h->model, sizeof h->model, "a \"model\", with\ttab, \\ and \xc3\xa9");
    snprintf(h->file, sizeof h->file, "model.gguf");
    snprintf(h->architecture, sizeof h->architecture, "qwen3moe");
    snprintf(h->policy, sizeof h->policy, "recall");
    snprintf(h->lossy, sizeof h->lossy, "drop-cold 0.1");
    h->version = SL_TRACE_VERSION;
    h->model_hash = UINT64_MAX;
    h->model_bytes = SL_TRACE_NUMBER_MAX;
    h->ram_bytes = 123456789;
    h->unix_s = 1764000000;
    h->n_ctx = 4096;
    h->threads = 2;
    h->chunk = 512;
    h->n_classes = 2;
    h->n_slots[0] = 10;
    h->n_slots[1] = 7;
    h->ring_slots = 4;
    h->measured = 63;
    h->n_layers = LAYERS;
    for (uint32_t l = 0; l < LAYERS; l++)
        h->layer[l] = (struct sl_trace_layer_info){.n_experts = l == 2 ? 0 : EXPERTS,
                                                   .top_k = l == 2 ? 0 : TOP_K,
                                                   .size_class = l % 2,
                                                   .expert_bytes = 1000 + l,
                                                   .slot_bytes = 2000 + l,
                                                   .weights = 5000 + l};
}

static void add(struct sl_trace_build *build, struct sl_trace_record r)
{
    sluice_error e;
    if (sl_trace_build_add(build, &r, &e) != SLUICE_OK) fail_msg("%s", e.text);
}

static float any_float(void) { return ((float)below(1u << 30) - 5e8f) / (1 + (float)below(1000)); }

static void add_between(struct sl_trace_build *build, uint32_t layer)
{
    uint16_t experts[4] = {(uint16_t)below(4), 4, 5, 11};
    float probabilities[4] = {any_float(), 1e-30f, 0, -1.5f};
    struct sl_trace_record r = {.kind = SL_TRACE_HINT};
    r.u.hints = (struct sl_trace_hints){.layer = layer,
                                        .visits = below(9),
                                        .prompt = below(2),
                                        .n = below(5),
                                        .experts = experts,
                                        .probabilities = probabilities};
    if (below(2)) add(build, r);
    for (uint32_t i = below(3); i > 0; i--) {
        enum sl_trace_op_kind kind = (enum sl_trace_op_kind)below(SL_TRACE_OP_KINDS);
        bool slot = kind == SL_TRACE_SLOT_CLOSED || kind == SL_TRACE_SLOT_OPENED;
        r = (struct sl_trace_record){.kind = SL_TRACE_OP};
        r.u.op = (struct sl_trace_op){kind, slot ? 0 : layer, below(slot ? 2 : EXPERTS),
                                      kind == SL_TRACE_COMING ? below(3) : 0};
        add(build, r);
    }
    for (uint32_t i = below(3); i > 0; i--) {
        r = (struct sl_trace_record){.kind = SL_TRACE_READ};
        r.u.read =
            (struct sl_trace_read){layer, below(EXPERTS), below(6), below(9999), below(99), 7};
        add(build, r);
    }
}

static void add_layer(struct sl_trace_build *build, uint32_t layer, uint32_t n_tokens, bool prompt,
                      uint64_t now_ns)
{
    uint16_t chosen[TOKENS_MAX * TOP_K];
    float weights[TOKENS_MAX * TOP_K];
    uint8_t states[TOKENS_MAX * TOP_K], entries[EXPERTS];
    bool missing[EXPERTS] = {false};
    struct sl_trace_record r = {.kind = SL_TRACE_LAYER};
    uint32_t top_k = TOP_K - below(2), n_missing = 0;
    for (uint32_t i = 0; i < n_tokens * top_k; i++) {
        uint32_t lane = EXPERTS / TOP_K; /* experts of a token are different by construction */
        chosen[i] = (uint16_t)(i % top_k * lane + below(lane));
        if (below(9) == 0) chosen[i] = SL_TRACE_NONE;
        weights[i] = any_float();
        states[i] = (uint8_t)below(8);
        if ((states[i] & SL_TRACE_STATE_MASK) == SL_TRACE_MISSING && chosen[i] != SL_TRACE_NONE)
            missing[chosen[i]] = true;
    }
    for (uint32_t i = 0; i < EXPERTS; i++)
        if (prompt && missing[i]) entries[n_missing++] = (uint8_t)below(3);
    r.u.layer = (struct sl_trace_layer){layer,
                                        n_tokens,
                                        top_k,
                                        chosen,
                                        weights,
                                        states,
                                        n_missing ? entries : NULL,
                                        n_missing,
                                        below(1u << 31),
                                        now_ns,
                                        below(100),
                                        below(100),
                                        below(100)};
    add(build, r);
}

static struct sl_trace *full_trace(struct sl_budget *b)
{
    struct sl_trace_build build;
    struct sl_trace_header h;
    struct sl_trace *t;
    sluice_error e;
    uint64_t now_ns = 5;
    full_header(&h);
    assert_int_equal(sl_trace_build_open(&build, &h, b, &e), SLUICE_OK);
    for (uint32_t i = 0; i < 20; i++) {
        bool prompt = i % 5 == 0, cancelled = i == 7;
        uint32_t n = prompt ? 1 + below(TOKENS_MAX) : 1;
        struct sl_trace_record r = {.kind = SL_TRACE_EVAL,
                                    .u.eval = {i / 10, i * 8, n, prompt, now_ns += below(50)}};
        add(&build, r);
        for (uint32_t l = 0; l < LAYERS && !(cancelled && l == 3); l++) {
            if (l == 2) continue;
            add_between(&build, l);
            add_layer(&build, l, n, prompt, now_ns += below(50));
        }
        r = (struct sl_trace_record){.kind = SL_TRACE_DONE};
        r.u.done.end_ns = now_ns += below(50);
        for (uint32_t k = 0; k < SL_TRACE_PHASES; k++) r.u.done.phase_ns[k] = below(1000);
        if (!cancelled && i != 19) add(&build, r);
    }
    add_between(&build, 4);
    if (sl_trace_build_close(&build, &e, &t) != SLUICE_OK) fail_msg("%s", e.text);
    return t;
}

#define SAME(n, array) assert_memory_equal(a->array, c->array, (n) * sizeof *a->array)

static void check_steps(const struct sl_trace *a, const struct sl_trace *c)
{
    assert_int_equal(a->n_steps, c->n_steps);
    assert_int_equal(a->n_hints, c->n_hints);
    for (uint64_t i = 0; i < a->n_steps; i++) {
        const struct sl_trace_step *x = &a->steps[i], *y = &c->steps[i];
        assert_int_equal(x->is_op, y->is_op);
        if (x->is_op)
            assert_memory_equal(&x->op, &y->op, sizeof x->op);
        else
            assert_true(x->layer == y->layer && x->visits == y->visits && x->prompt == y->prompt &&
                        x->n == y->n && x->first == y->first);
    }
    if (a->n_hints) {
        SAME(a->n_hints, hint_experts);
        SAME(a->n_hints, hint_probabilities);
    }
}

static void check_evals(const struct sl_trace *a, const struct sl_trace *c, bool times)
{
    assert_int_equal(a->n_evals, c->n_evals);
    for (uint64_t i = 0; i < a->n_evals; i++) {
        const struct sl_trace_eval_span *x = &a->evals[i], *y = &c->evals[i];
        assert_int_equal(x->e.session, y->e.session);
        assert_int_equal(x->e.position, y->e.position);
        assert_int_equal(x->e.n_tokens, y->e.n_tokens);
        assert_int_equal(x->e.prompt, y->e.prompt);
        assert_int_equal(x->whole, y->whole);
        assert_true(x->first_visit == y->first_visit && x->n_visits == y->n_visits);
        if (!times) continue;
        assert_int_equal(x->e.begin_ns, y->e.begin_ns);
        assert_memory_equal(&x->done, &y->done, sizeof x->done);
    }
}

static void check_same(const struct sl_trace *a, const struct sl_trace *c)
{
    assert_memory_equal(&a->header, &c->header, sizeof a->header);
    assert_int_equal(a->n_tokens, c->n_tokens);
    assert_int_equal(a->n_prompt, c->n_prompt);
    check_evals(a, c, true);
    assert_int_equal(a->n_visits, c->n_visits);
    for (uint64_t i = 0; i < a->n_visits; i++) {
        const struct sl_trace_visit *x = &a->visits[i], *y = &c->visits[i];
        assert_true(x->eval == y->eval && x->layer == y->layer && x->n_tokens == y->n_tokens);
        assert_true(x->top_k == y->top_k && x->first_choice == y->first_choice);
        assert_true(x->first_entry == y->first_entry && x->n_entries == y->n_entries);
        assert_true(x->first_step == y->first_step && x->n_steps == y->n_steps);
        assert_true(x->first_read == y->first_read && x->n_reads == y->n_reads);
        assert_true(x->read_bytes == y->read_bytes && x->begin_ns == y->begin_ns);
        assert_true(x->dense_ns == y->dense_ns && x->expert_ns == y->expert_ns);
        assert_true(x->wait_ns == y->wait_ns);
    }
    assert_int_equal(a->n_choices, c->n_choices);
    SAME(a->n_choices, chosen);
    SAME(a->n_choices, weights);
    SAME(a->n_choices, states);
    assert_int_equal(a->n_entries, c->n_entries);
    SAME(a->n_entries, entries);
    check_steps(a, c);
    assert_int_equal(a->n_reads, c->n_reads);
    for (uint64_t i = 0; i < a->n_reads; i++)
        assert_memory_equal(&a->reads[i], &c->reads[i], sizeof a->reads[i]);
    assert_int_equal(a->n_steps_after, c->n_steps_after);
    assert_int_equal(a->n_reads_after, c->n_reads_after);
}

static void test_forms__everything_in_a_trace__comes_back(void **state)
{
    static const enum sl_trace_form forms[] = {SL_TRACE_FORM_TRACE, SL_TRACE_FORM_CSV,
                                               SL_TRACE_FORM_JSONL};
    struct sl_budget b;
    char path[PATH_BYTES], text[256];
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    for (uint32_t i = 0; i < 30; i++) {
        random_state = i + 1;
        struct sl_trace *a = full_trace(&b);
        for (size_t k = 0; k < 2 * SL_ARRAY_LEN(forms); k++) {
            enum sl_trace_form form = forms[k / 2];
            if (k % 2 && !gzip_works()) continue;
            write_form(a, form, k % 2, new_path(path), &b);
            struct sl_trace *c = load(path, form, &b);
            check_same(a, c);
            assert_string_equal(sl_trace_form_drops(a, form, text, sizeof text), "");
            sl_trace_free(c);
            unlink(path);
        }
        sl_trace_free(a);
    }
    assert_int_equal(sl_budget_used(&b), 0);
}

/* Whole evals, with the choices in the order of rank, gaps closed. */
static void check_choices(const struct sl_trace *a, const struct sl_trace *c, bool bmoe)
{
    uint64_t k = 0;
    for (uint64_t i = 0; i < a->n_evals; i++) {
        const struct sl_trace_eval_span *x = &a->evals[i], *y = &c->evals[k];
        if (!x->whole) continue;
        k++;
        assert_true(x->e.prompt == y->e.prompt && x->e.session == y->e.session);
        assert_int_equal(x->e.n_tokens, y->e.n_tokens);
        if (bmoe) assert_int_equal(x->e.position, y->e.position);
        assert_int_equal(x->n_visits, y->n_visits);
        for (uint64_t v = 0; v < x->n_visits; v++) {
            const struct sl_trace_visit *p = &a->visits[x->first_visit + v];
            const struct sl_trace_visit *q = &c->visits[y->first_visit + v];
            assert_int_equal(p->layer, q->layer);
            for (uint32_t t = 0; t < p->n_tokens; t++) {
                const uint16_t *from = a->chosen + p->first_choice + t * p->top_k;
                const uint16_t *to = c->chosen + q->first_choice + t * q->top_k;
                for (uint32_t n = 0, m = 0; n < p->top_k; n++)
                    if (from[n] != SL_TRACE_NONE) assert_int_equal(from[n], to[bmoe ? n : m++]);
            }
        }
    }
    assert_int_equal(k, c->n_evals);
}

static void test_forms__text_and_bmoe__keep_the_choices(void **state)
{
    struct sl_budget b;
    char path[PATH_BYTES], text[256];
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    for (uint32_t i = 0; i < 30; i++) {
        random_state = i + 500;
        struct sl_trace *a = full_trace(&b);
        for (uint32_t k = 0; k < 4; k++) {
            enum sl_trace_form form = k % 2 ? SL_TRACE_FORM_BMOE : SL_TRACE_FORM_TEXT;
            if (k / 2 && !gzip_works()) continue;
            write_form(a, form, k / 2, new_path(path), &b);
            struct sl_trace *c = load(path, form, &b);
            check_choices(a, c, k % 2);
            assert_int_equal(c->header.measured, k % 2 ? SL_TRACE_WEIGHTS | SL_TRACE_STATES : 0);
            assert_non_null(strstr(sl_trace_form_drops(a, form, text, sizeof text), "times"));
            assert_int_equal(strstr(text, "weights") == NULL, k % 2);
            sl_trace_free(c);
            unlink(path);
        }
        sl_trace_free(a);
    }
    assert_int_equal(sl_budget_used(&b), 0);
}

static void test_text_and_bmoe__a_long_prompt__is_divided(void **state)
{
    struct sl_budget b;
    char path[PATH_BYTES];
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    FILE *f = fopen(new_path(path), "wb");
    for (uint32_t i = 0; i < 1100; i++) fprintf(f, "0 p %u,%u;%u\n", i % 7, 7 + i % 5, i % 3);
    fclose(f);
    struct sl_trace *t = load(path, SL_TRACE_FORM_TEXT, &b);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(t->n_evals, 3);
        assert_int_equal(t->evals[1].e.n_tokens, 512);
        assert_int_equal(t->evals[2].e.n_tokens, 76);
        assert_int_equal(t->evals[2].e.position, 1024);
        assert_int_equal(t->chosen[t->visits[2].first_choice], 512 % 7);
        write_form(t, SL_TRACE_FORM_BMOE, false, path, &b);
        sl_trace_free(t);
        t = load(path, SL_TRACE_FORM_BMOE, &b);
    }
    sl_trace_free(t);
    unlink(path);
}

/* ---- pieces of files, little memory, giving up --------------------------------------------------
 */

static void check_every_eval_is_whole(const struct sl_trace *t)
{
    uint64_t visits = 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        assert_int_equal(t->evals[i].first_visit, visits);
        visits += t->evals[i].n_visits;
        if (i + 1 == t->n_evals) assert_true(t->evals[i].whole);
    }
    assert_int_equal(visits, t->n_visits);
}

/* Of a recording of which the end is missing what is there is loaded, up to the last whole token.
 */
static void test_load__a_recording_that_was_cut__keeps_whole_tokens(void **state)
{
    struct sl_budget b;
    char path[PATH_BYTES];
    size_t n, loaded = 0;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    random_state = 77;
    struct sl_trace *a = full_trace(&b);
    write_form(a, SL_TRACE_FORM_TRACE, false, new_path(path), &b);
    char *bytes = read_bytes(path, &n);
    for (size_t cut = 0; cut < n; cut += 1 + n / 500) {
        struct sl_trace *t;
        sluice_error e = {0};
        write_bytes(path, bytes, cut);
        sluice_err code = sl_trace_load(path, NULL, NULL, &b, &e, &t);
        if (code == SLUICE_OK) {
            assert_true(t->cut);
            check_every_eval_is_whole(t);
            loaded++;
            sl_trace_free(t);
        } else {
            assert_true(code == SLUICE_E_TRUNCATED || code == SLUICE_E_FORMAT);
            assert_true(e.text[0] && t == NULL);
        }
    }
    /* Records that end within a token: walk through them and stop at each. */
    struct sl_trace_header h = a->header;
    for (uint32_t stop = 1; stop < 120; stop++) {
        struct sl_trace_walk walk = {.t = a};
        struct sl_trace_build build;
        struct sl_trace_record r;
        struct sl_trace *t;
        sluice_error e;
        assert_int_equal(sl_trace_build_open(&build, &h, &b, &e), SLUICE_OK);
        for (uint32_t i = 0; i < stop; i++) {
            sl_trace_walk_next(&walk, &r);
            add(&build, r);
        }
        if (sl_trace_build_close(&build, &e, &t) != SLUICE_OK) continue;
        check_every_eval_is_whole(t);
        loaded++;
        sl_trace_free(t);
    }
    assert_true(loaded > 50);
    free(bytes);
    unlink(path);
    sl_trace_free(a);
    assert_int_equal(sl_budget_used(&b), 0);
}

static void test_load__a_cut_or_damaged_gzip_file__is_an_error(void **state)
{
    struct sl_budget b;
    char path[PATH_BYTES];
    size_t n;
    (void)state;
    if (!gzip_works()) skip();
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *a = full_trace(&b);
    write_form(a, SL_TRACE_FORM_CSV, true, new_path(path), &b);
    char *bytes = read_bytes(path, &n);
    for (size_t i = 2; i < n; i += 1 + n / 200) {
        check_refused(bytes, i, SLUICE_E_TRUNCATED, "ends within its gzip stream");
        struct sl_trace *t;
        sluice_error e = {0};
        bytes[i] ^= 0x10;
        write_bytes(path, bytes, n);
        if (sl_trace_load(path, NULL, NULL, &b, &e, &t) == SLUICE_OK)
            sl_trace_free(t); /* a bit of the gzip header that means nothing */
        else
            assert_true(e.text[0] != 0);
        bytes[i] ^= 0x10;
    }
    free(bytes);
    unlink(path);
    sl_trace_free(a);
    assert_int_equal(sl_budget_used(&b), 0);
}

static void test_load__two_gzip_members__are_one_text(void **state)
{
    struct sl_budget b;
    char path[PATH_BYTES];
    size_t n;
    (void)state;
    if (!gzip_works()) skip();
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *a = full_trace(&b);
    write_form(a, SL_TRACE_FORM_TEXT, true, new_path(path), &b);
    struct sl_trace *once = load(path, SL_TRACE_FORM_TEXT, &b);
    char *bytes = read_bytes(path, &n), *twice = malloc(2 * n);
    assert_non_null(twice);
    memcpy(twice, bytes, n);
    memcpy(twice + n, bytes, n);
    struct sl_trace *t = load_text(twice, 2 * n, &b);
    assert_int_equal(t->n_choices, 2 * once->n_choices);
    free(twice);
    sl_trace_free(t);
    sl_trace_free(once);
    free(bytes);
    unlink(path);
    sl_trace_free(a);
    assert_int_equal(sl_budget_used(&b), 0);
}

static void test_load__memory_that_runs_out__is_an_error(void **state)
{
    static const enum sl_trace_form forms[] = {SL_TRACE_FORM_TRACE, SL_TRACE_FORM_CSV,
                                               SL_TRACE_FORM_JSONL, SL_TRACE_FORM_TEXT,
                                               SL_TRACE_FORM_BMOE};
    struct sl_budget b;
    char path[PATH_BYTES];
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *a = full_trace(&b);
    for (size_t k = 0; k < SL_ARRAY_LEN(forms); k++) {
        write_form(a, forms[k], gzip_works(), new_path(path), &b);
        sluice_err code = SLUICE_E_BUDGET;
        for (int64_t after = 0; code != SLUICE_OK; after += 1 + after / 50) {
            struct sl_budget little;
            struct sl_trace *t;
            sluice_error e = {0};
            sl_budget_init(&little, UINT64_MAX);
            atomic_store(&little.fail_after, after);
            code = sl_trace_load(path, NULL, NULL, &little, &e, &t);
            assert_true(code == SLUICE_OK || (e.text[0] && !t));
            assert_true(after < 100000);
            sl_trace_free(t);
            assert_int_equal(sl_budget_used(&little), 0);
        }
        unlink(path);
    }
    sl_trace_free(a);
}

static int give_up(void *user, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    return --*(int *)user < 0;
}

static void test_load__given_up__is_cancelled(void **state)
{
    struct sl_budget b;
    struct sl_trace *t;
    sluice_error e;
    char path[PATH_BYTES];
    int patience = 0;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    write_bytes(new_path(path), "0 d 1\n", 6);
    assert_int_equal(sl_trace_load(path, give_up, &patience, &b, &e, &t), SLUICE_E_CANCELLED);
    assert_null(t);
    patience = 5;
    assert_int_equal(sl_trace_load(path, give_up, &patience, &b, &e, &t), SLUICE_OK);
    sl_trace_free(t);
    unlink(path);
    assert_int_equal(sl_budget_used(&b), 0);
}

/* ---- names, and the shared trace ----------------------------------------------------------------
 */

static void test_form_of_name__endings__are_known(void **state)
{
    static const struct {
        const char *name;
        enum sl_trace_form form;
        bool gzipped;
    } known[] = {
        {"a.trace", SL_TRACE_FORM_TRACE, false},   {"a.sltrace", SL_TRACE_FORM_TRACE, false},
        {"x/a.csv", SL_TRACE_FORM_CSV, false},     {"a.csv.gz", SL_TRACE_FORM_CSV, true},
        {"a.jsonl", SL_TRACE_FORM_JSONL, false},   {"a.txt.gz", SL_TRACE_FORM_TEXT, true},
        {"a.route.csv", SL_TRACE_FORM_BMOE, false}};
    enum sl_trace_form form;
    bool gzipped;
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(known); i++) {
        assert_true(sl_trace_form_of_name(known[i].name, &form, &gzipped));
        assert_int_equal(form, known[i].form);
        assert_int_equal(gzipped, known[i].gzipped);
    }
    assert_false(sl_trace_form_of_name("trace", &form, &gzipped));
    assert_false(sl_trace_form_of_name("a.gz", &form, &gzipped));
    assert_false(sl_trace_form_of_name("-", &form, &gzipped));
    for (unsigned i = 0; i < SL_TRACE_FORMS; i++) {
        assert_true(sl_trace_form_find(sl_trace_form_name((enum sl_trace_form)i), &form));
        assert_int_equal(form, i);
    }
    assert_false(sl_trace_form_find("xml", &form));
}

/* The same trace is there in two forms. */
static void test_bmoe__the_shared_trace__is_that_of_the_text(void **state)
{
    struct sl_budget b;
    (void)state;
    if (access(SLUICE_TRACES_DIR, R_OK) != 0 || !gzip_works()) {
        print_message("no traces in %s, or no zlib\n", SLUICE_TRACES_DIR);
        skip();
    }
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *a = load(SLUICE_TRACES_DIR "/bmoe_qwen.route.csv.gz", SL_TRACE_FORM_BMOE, &b);
    struct sl_trace *c = load(SLUICE_TRACES_DIR "/bmoe_qwen.txt.gz", SL_TRACE_FORM_TEXT, &b);
    assert_int_equal(a->n_tokens, 128);
    assert_int_equal(a->n_prompt, 28);
    check_choices(a, c, true);
    assert_int_equal(c->header.measured, 0);
    assert_int_equal(a->header.layer[0].expert_bytes, 3059712);
    assert_true(a->weights[0] == 0.221297f);
    sl_trace_free(a);
    sl_trace_free(c);
    assert_int_equal(sl_budget_used(&b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms__everything_in_a_trace__comes_back),
        cmocka_unit_test(test_forms__text_and_bmoe__keep_the_choices),
        cmocka_unit_test(test_text_and_bmoe__a_long_prompt__is_divided),
        cmocka_unit_test(test_load__a_recording_that_was_cut__keeps_whole_tokens),
        cmocka_unit_test(test_load__a_cut_or_damaged_gzip_file__is_an_error),
        cmocka_unit_test(test_load__two_gzip_members__are_one_text),
        cmocka_unit_test(test_load__memory_that_runs_out__is_an_error),
        cmocka_unit_test(test_load__given_up__is_cancelled),
        cmocka_unit_test(test_form_of_name__endings__are_known),
        cmocka_unit_test(test_bmoe__the_shared_trace__is_that_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
