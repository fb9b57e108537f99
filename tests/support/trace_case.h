/* What the tests of trace files share: a small model's header, records of every kind, and records
 * as lines of JSON, in the words of tools/dev/read_trace.py, so that what was written, what our
 * reader finds and what the second reader finds are compared as text. */
#ifndef SL_TEST_TRACE_CASE_H
#define SL_TEST_TRACE_CASE_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/trace_internal.h"

#define SAY_MAX 1024

/* ---- text -------------------------------------------------------------------------------------
 */

struct trace_text {
    char *p;
    size_t n, room;
};

static inline void say(struct trace_text *t, const char *fmt, ...) SL_PRINTF(2, 3);
static inline void say(struct trace_text *t, const char *fmt, ...)
{
    va_list args;
    if (t->room - t->n < SAY_MAX) {
        t->room = 2 * t->room + 2 * SAY_MAX;
        t->p = realloc(t->p, t->room);
        assert_non_null(t->p);
    }
    va_start(args, fmt);
    int n = vsnprintf(t->p + t->n, SAY_MAX, fmt, args);
    va_end(args);
    assert_true(n >= 0 && n < SAY_MAX);
    t->n += (size_t)n;
}

static inline void text_free(struct trace_text *t)
{
    free(t->p);
    *t = (struct trace_text){NULL, 0, 0};
}

static inline void say_u16s(struct trace_text *t, const char *name, const uint16_t *v, uint64_t n)
{
    say(t, ",\"%s\":[", name);
    for (uint64_t i = 0; i < n; i++) say(t, "%s%u", i > 0 ? "," : "", v[i]);
    say(t, "]");
}

static inline void say_u8s(struct trace_text *t, const char *name, const uint8_t *v, uint64_t n)
{
    say(t, ",\"%s\":[", name);
    for (uint64_t i = 0; i < n && v != NULL; i++) say(t, "%s%u", i > 0 ? "," : "", v[i]);
    say(t, "]");
}

static inline void say_floats(struct trace_text *t, const char *name, const float *v, uint64_t n)
{
    say(t, ",\"%s\":[", name);
    for (uint64_t i = 0; i < n && v != NULL; i++) say(t, "%s%.9g", i > 0 ? "," : "", (double)v[i]);
    say(t, "]");
}

static inline void say_number(struct trace_text *t, const char *name, uint64_t v)
{
    say(t, ",\"%s\":%" PRIu64, name, v);
}

static inline void say_header(struct trace_text *t, const struct sl_trace_header *h)
{
    say(t, "{\"kind\":\"header\",\"version\":%" PRIu32, h->version);
    for (uint32_t i = 0; i < SL_TF_KEYS; i++) {
        const struct sl_tf_key *k = &sl_tf_keys[i];
        const char *at = (const char *)h + k->offset;
        uint64_t v = 0;
        if (k->max == 0) {
            say(t, ",\"%s\":\"%s\"", k->name, at);
            continue;
        }
        memcpy(&v, at, k->max <= UINT32_MAX ? 4 : 8);
        say_number(t, k->name, v);
    }
    say(t, ",\"n_slots\":[");
    for (uint32_t i = 0; i < h->n_classes; i++)
        say(t, "%s%" PRIu32, i > 0 ? "," : "", h->n_slots[i]);
    say(t, "],\"layers\":[");
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct sl_trace_layer_info *l = &h->layer[i];
        say(t, "%s[%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]",
            i > 0 ? "," : "", l->n_experts, l->top_k, l->size_class, l->expert_bytes, l->slot_bytes,
            l->weights);
    }
    say(t, "]}\n");
}

static inline void say_layer(struct trace_text *t, const struct sl_trace_layer *l)
{
    uint64_t n = (uint64_t)l->n_tokens * l->top_k;
    say_number(t, "layer", l->layer);
    say_number(t, "n_tokens", l->n_tokens);
    say_number(t, "top_k", l->top_k);
    say_u16s(t, "chosen", l->chosen, n);
    say_floats(t, "weights", l->weights, n);
    say_u8s(t, "states", l->states, n);
    say_u8s(t, "entries", l->entries, l->n_entries);
    say_number(t, "read_bytes", l->read_bytes);
    say_number(t, "begin_ns", l->begin_ns);
    say_number(t, "dense_ns", l->dense_ns);
    say_number(t, "expert_ns", l->expert_ns);
    say_number(t, "wait_ns", l->wait_ns);
}

static inline void say_eval(struct trace_text *t, const struct sl_trace_eval *r)
{
    say_number(t, "session", r->session);
    say_number(t, "position", r->position);
    say_number(t, "n_tokens", r->n_tokens);
    say_number(t, "prompt", r->prompt);
    say_number(t, "begin_ns", r->begin_ns);
}

static inline void say_hints(struct trace_text *t, const struct sl_trace_hints *r)
{
    say_number(t, "layer", r->layer);
    say_number(t, "visits", r->visits);
    say_number(t, "prompt", r->prompt);
    say_u16s(t, "experts", r->experts, r->n);
    say_floats(t, "probabilities", r->probabilities, r->n);
}

static inline void say_op(struct trace_text *t, const struct sl_trace_op *r)
{
    say_number(t, "op", r->kind);
    say_number(t, "layer", r->layer);
    say_number(t, "expert", r->expert);
    say_number(t, "how", r->how);
}

static inline void say_read(struct trace_text *t, const struct sl_trace_read *r)
{
    say_number(t, "layer", r->layer);
    say_number(t, "expert", r->expert);
    say_number(t, "why", r->why);
    say_number(t, "bytes", r->bytes);
    say_number(t, "begin_ns", r->begin_ns);
    say_number(t, "took_ns", r->took_ns);
}

static inline void say_done(struct trace_text *t, const struct sl_trace_done *r)
{
    say_number(t, "end_ns", r->end_ns);
    say(t, ",\"phase_ns\":[");
    for (uint32_t i = 0; i < SL_TRACE_PHASES; i++)
        say(t, "%s%" PRIu64, i > 0 ? "," : "", r->phase_ns[i]);
    say(t, "]");
}

static inline void say_record(struct trace_text *t, const struct sl_trace_record *r)
{
    static const char *const kinds[] = {"end", "eval", "layer", "hints", "op", "read", "done"};
    say(t, "{\"kind\":\"%s\"", kinds[r->kind]);
    if (r->kind == SL_TRACE_EVAL) say_eval(t, &r->u.eval);
    if (r->kind == SL_TRACE_LAYER) say_layer(t, &r->u.layer);
    if (r->kind == SL_TRACE_HINT) say_hints(t, &r->u.hints);
    if (r->kind == SL_TRACE_OP) say_op(t, &r->u.op);
    if (r->kind == SL_TRACE_READ) say_read(t, &r->u.read);
    if (r->kind == SL_TRACE_DONE) say_done(t, &r->u.done);
    say(t, "}\n");
}

static inline void say_end(struct trace_text *t, bool cut, uint64_t lost)
{
    say(t, "{\"kind\":\"end\",\"cut\":%s,\"lost_bytes\":%" PRIu64 "}\n", cut ? "true" : "false",
        lost);
}

/* ---- a model and what it records --------------------------------------------------------------
 */

/* Three layers; the middle one has no experts. */
static inline void case_header(struct sl_trace_header *h)
{
    *h = (struct sl_trace_header){
        .version = SL_TRACE_VERSION,
        .program = "sluice 0.1.0",
        .model = "Small",
        .policy = "recall",
        .model_hash = 0x8123456789abcdef,
        .n_ctx = 4096,
        .threads = 2,
        .n_classes = 2,
        .n_slots = {5, 3},
        .measured = SL_TF_MEASURED_ALL,
        .n_layers = 3,
        .layer = {[0] = {8, 2, 0, 1000, 1024, 3000}, [2] = {300, 4, 1, 70000, 70016, 90000}},
    };
}

/* What is written, as text too. */
struct trace_out {
    struct sl_trace_writer *w;
    struct trace_text text;
};

static inline void put(struct trace_out *o, const struct sl_trace_record *r)
{
    say_record(&o->text, r);
    if (r->kind == SL_TRACE_EVAL) sl_trace_put_eval(o->w, &r->u.eval);
    if (r->kind == SL_TRACE_LAYER) sl_trace_put_layer(o->w, &r->u.layer);
    if (r->kind == SL_TRACE_HINT) sl_trace_put_hints(o->w, &r->u.hints);
    if (r->kind == SL_TRACE_OP) sl_trace_put_op(o->w, &r->u.op);
    if (r->kind == SL_TRACE_READ) sl_trace_put_read(o->w, &r->u.read);
    if (r->kind == SL_TRACE_DONE) sl_trace_put_done(o->w, &r->u.done);
}

#define PUT(o, k, field, ...)                                                                      \
    put(o, &(struct sl_trace_record){.kind = (k), .u.field = {__VA_ARGS__}})

/* A prompt of three tokens, then one token: every kind of record, and of op. flush: a block each.
 */
static inline void put_case(struct trace_out *o, bool flush)
{
    static const uint16_t first[6] = {7, 0, 3, 7, 0, SL_TRACE_NONE};
    static const uint16_t last[12] = {299, 0, 1, 2, 3, 4, 5, 299, 7, 8, 9, 10};
    static const float w[12] = {0.5f, 1e-30f, -0.25f, 1, 0, 3e38f, 0.1f, 7, -1e-7f, 9, 10, 11};
    static const uint8_t s[12] = {0, 5, 5, 6, 2, 0, 3, 0, 2, 2, 2, 0};
    PUT(o, SL_TRACE_OP, op, SL_TRACE_WARM, 2, 299, 0);
    PUT(o, SL_TRACE_EVAL, eval, 0, 0, 3, true, 1000);
    PUT(o, SL_TRACE_LAYER, layer, 0, 3, 2, first, w, s, (const uint8_t[]){1}, 1, 123456, 2000, 1,
        70000, 4);
    PUT(o, SL_TRACE_HINT, hints, 2, 2, true, 3, last, w);
    PUT(o, SL_TRACE_READ, read, 2, 299, 3, 70000, 1999, 1u << 20);
    if (flush) sl_trace_flush(o->w);
    for (uint32_t k = 0; k < SL_TRACE_OP_KINDS; k++) {
        enum sl_trace_op_kind kind = (enum sl_trace_op_kind)k;
        if (kind != SL_TRACE_SLOT_CLOSED && kind != SL_TRACE_SLOT_OPENED)
            PUT(o, SL_TRACE_OP, op, kind, 2, 299 - k, sl_trace_op_has_how(kind) ? 2 : 0);
    }
    PUT(o, SL_TRACE_OP, op, SL_TRACE_SLOT_CLOSED, 0, 1, 0);
    PUT(o, SL_TRACE_OP, op, SL_TRACE_SLOT_OPENED, 0, SL_TRACE_SLOTS_MAX - 1, 0);
    PUT(o, SL_TRACE_READ, read, 0, 7, 1, 1000, 17, 300);
    PUT(o, SL_TRACE_LAYER, layer, 2, 3, 4, last, w, s, NULL, 0, 0, 2000, 0, 0, 0);
    PUT(o, SL_TRACE_DONE, done, 5000, {1, 2, 3, 400, 5, 60000, 7});
    if (flush) sl_trace_flush(o->w);
    PUT(o, SL_TRACE_EVAL, eval, 9, 3, 1, false, 5000);
    PUT(o, SL_TRACE_LAYER, layer, 2, 1, 1, last, w, s, (const uint8_t[]){2}, 1, 70000, 5001, 2, 3,
        4);
    PUT(o, SL_TRACE_HINT, hints, 0, 1, false, 0, NULL, NULL);
}

/* ---- files ------------------------------------------------------------------------------------
 */

struct trace_bytes {
    unsigned char *p;
    size_t n;
};

static inline struct trace_bytes read_bytes(const char *path)
{
    struct trace_bytes b;
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(stat(path, &st), 0);
    b.n = (size_t)st.st_size;
    b.p = malloc(b.n + 1);
    assert_non_null(b.p);
    assert_int_equal(fread(b.p, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static inline void write_bytes(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Reads what is left, as text. Returns what ended it: SLUICE_OK at the end, which is said too. */
static inline sluice_err say_rest(struct trace_text *t, struct sl_trace_reader *r, sluice_error *e)
{
    struct sl_trace_record rec;
    uint64_t lost;
    sluice_err err;
    while ((err = sl_trace_next(r, &rec, e)) == SLUICE_OK && rec.kind != SL_TRACE_END)
        say_record(t, &rec);
    if (err != SLUICE_OK) return err;
    bool cut = sl_trace_cut(r, &lost);
    say_end(t, cut, lost);
    return SLUICE_OK;
}

/* Bytes in memory, handed out by at most step. */
struct memory {
    const unsigned char *p;
    uint64_t n, at, step;
    sluice_err fail_at_end;
};

static inline sluice_err from_memory(void *user, void *buf, uint64_t bytes, uint64_t *got,
                                     sluice_error *e)
{
    struct memory *m = user;
    *got = sl_min_u64(sl_min_u64(bytes, m->step), m->n - m->at);
    if (*got == 0 && m->fail_at_end != SLUICE_OK)
        return sl_fail(e, m->fail_at_end, "the source broke off");
    memcpy(buf, m->p + m->at, *got);
    m->at += *got;
    return SLUICE_OK;
}

/* What is found in bytes, header and all; the error that ended it, in case_error. */
static sluice_error case_error;
static inline sluice_err read_memory(struct trace_text *t, struct memory *m)
{
    struct sl_trace_source source = {from_memory, m, "a test"};
    struct sl_budget budget;
    struct sl_trace_reader *r;
    sl_budget_init(&budget, 1u << 20);
    memset(&case_error, 0, sizeof case_error);
    sluice_err err = sl_trace_open_source(&source, &budget, &case_error, &r);
    assert_true((err == SLUICE_OK) == (r != NULL));
    if (err != SLUICE_OK) return err;
    say_header(t, sl_trace_get_header(r));
    err = say_rest(t, r, &case_error);
    struct sl_trace_record again;
    assert_int_equal(sl_trace_next(r, &again, NULL), err);
    assert_int_equal(again.kind, SL_TRACE_END);
    sl_trace_reader_close(r);
    assert_int_equal(sl_budget_used(&budget), 0);
    return err;
}

static inline sluice_err read_all(struct trace_text *t, const unsigned char *p, uint64_t n)
{
    struct memory m = {p, n, 0, UINT64_MAX, SLUICE_OK};
    return read_memory(t, &m);
}

#define assert_mentions(words)                                                                     \
    do {                                                                                           \
        const char *found_ = case_error.text;                                                      \
        if (strstr(found_, words) == NULL) fail_msg("'%s' lacks '%s'", found_, words);             \
        assert_null(strchr(found_, '\n'));                                                         \
    } while (0)

#endif
