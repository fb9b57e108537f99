/* Fuzzes the reader of trace files. An input that begins with the magic is a file; any other is
 * payloads, each after its length (two bytes), which are made into a file with right checksums, so
 * that inputs get past these. What is accepted is written again by the writer, and must then be
 * read as the same: whatever the reader lets through keeps to the format. Memory taken must not
 * depend on the input. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/checksum.h"
#include "formats/trace_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (1u << 20)

struct bytes {
    const uint8_t *p;
    uint64_t n, at, step;
};

static sluice_err next_bytes(void *user, void *buf, uint64_t bytes, uint64_t *got, sluice_error *e)
{
    struct bytes *b = user;
    (void)e;
    *got = sl_min_u64(sl_min_u64(bytes, b->step), b->n - b->at);
    if (*got > 0) memcpy(buf, b->p + b->at, *got);
    b->at += *got;
    return SLUICE_OK;
}

/* NULL: refused, with a sentence. */
static struct sl_trace_reader *open_bytes(struct bytes *b, struct sl_budget *budget)
{
    struct sl_trace_source source = {next_bytes, b, "input"};
    struct sl_trace_reader *r;
    sluice_error e = {.code = 0};
    sl_budget_init(budget, BUDGET_BYTES);
    sluice_err err = sl_trace_open_source(&source, budget, &e, &r);
    CHECK(err == e.code && (err == SLUICE_OK) == (r != NULL));
    if (r == NULL) CHECK(e.text[0] != '\0' && strchr(e.text, '\n') == NULL);
    return r;
}

/* ---- the same again ---------------------------------------------------------------------------
 */

static void put(struct sl_trace_writer *w, const struct sl_trace_record *r)
{
    if (r->kind == SL_TRACE_EVAL) sl_trace_put_eval(w, &r->u.eval);
    if (r->kind == SL_TRACE_LAYER) sl_trace_put_layer(w, &r->u.layer);
    if (r->kind == SL_TRACE_HINT) sl_trace_put_hints(w, &r->u.hints);
    if (r->kind == SL_TRACE_OP) sl_trace_put_op(w, &r->u.op);
    if (r->kind == SL_TRACE_READ) sl_trace_put_read(w, &r->u.read);
    if (r->kind == SL_TRACE_DONE) sl_trace_put_done(w, &r->u.done);
}

static bool same_bytes(const void *a, const void *b, uint64_t n)
{
    if (n == 0) return true;
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, n) == 0);
}

static bool same_layer(const struct sl_trace_layer *a, const struct sl_trace_layer *b)
{
    uint64_t n = (uint64_t)a->n_tokens * a->top_k;
    return a->layer == b->layer && a->n_tokens == b->n_tokens && a->top_k == b->top_k &&
           same_bytes(a->chosen, b->chosen, 2 * n) && same_bytes(a->weights, b->weights, 4 * n) &&
           same_bytes(a->states, b->states, n) && a->n_entries == b->n_entries &&
           same_bytes(a->entries, b->entries, a->n_entries) && a->read_bytes == b->read_bytes &&
           a->begin_ns == b->begin_ns && a->dense_ns == b->dense_ns &&
           a->expert_ns == b->expert_ns && a->wait_ns == b->wait_ns;
}

static bool same_hints(const struct sl_trace_hints *a, const struct sl_trace_hints *b)
{
    uint64_t n = a->n;
    return a->layer == b->layer && a->visits == b->visits && a->prompt == b->prompt &&
           a->n == b->n && same_bytes(a->experts, b->experts, 2 * n) &&
           same_bytes(a->probabilities, b->probabilities, 4 * n);
}

static bool same_read(const struct sl_trace_read *a, const struct sl_trace_read *b)
{
    return a->layer == b->layer && a->expert == b->expert && a->why == b->why &&
           a->bytes == b->bytes && a->begin_ns == b->begin_ns && a->took_ns == b->took_ns;
}

static bool same(const struct sl_trace_record *x, const struct sl_trace_record *y)
{
    const struct sl_trace_eval *a = &x->u.eval, *b = &y->u.eval;
    const struct sl_trace_op *o = &x->u.op, *p = &y->u.op;
    if (x->kind != y->kind) return false;
    switch (x->kind) {
    case SL_TRACE_END:
        return true;
    case SL_TRACE_EVAL:
        return a->session == b->session && a->position == b->position &&
               a->n_tokens == b->n_tokens && a->prompt == b->prompt && a->begin_ns == b->begin_ns;
    case SL_TRACE_LAYER:
        return same_layer(&x->u.layer, &y->u.layer);
    case SL_TRACE_HINT:
        return same_hints(&x->u.hints, &y->u.hints);
    case SL_TRACE_OP:
        return o->kind == p->kind && o->layer == p->layer && o->expert == p->expert &&
               o->how == p->how;
    case SL_TRACE_READ:
        return same_read(&x->u.read, &y->u.read);
    case SL_TRACE_DONE: /* numbers of 64 bits only */
        return memcmp(&x->u.done, &y->u.done, sizeof x->u.done) == 0;
    }
    return false;
}

/* Reads again what was accepted, and what has been written of it, side by side. */
static void compare(struct bytes *in, const char *written)
{
    struct sl_budget budgets[2];
    struct sl_trace_reader *first, *second;
    struct sl_trace_record a, b;
    in->at = 0;
    first = open_bytes(in, &budgets[0]);
    sl_budget_init(&budgets[1], BUDGET_BYTES);
    CHECK(first != NULL && sl_trace_open(written, &budgets[1], NULL, &second) == SLUICE_OK);
    const struct sl_trace_header *h = sl_trace_get_header(first);
    CHECK(memcmp(h, sl_trace_get_header(second), sizeof *h) == 0);
    do {
        sluice_err err = sl_trace_next(first, &a, NULL);
        CHECK(sl_trace_next(second, &b, NULL) == SLUICE_OK);
        CHECK(same(&a, &b) && (err == SLUICE_OK || a.kind == SL_TRACE_END));
    } while (a.kind != SL_TRACE_END);
    CHECK(!sl_trace_cut(second, NULL));
    sl_trace_reader_close(first);
    sl_trace_reader_close(second);
    CHECK(sl_budget_used(&budgets[0]) == 0 && sl_budget_used(&budgets[1]) == 0);
}

static void read_trace(const uint8_t *data, size_t size)
{
    struct bytes in = {data, size, 0, size % 2 != 0 ? 1 : UINT64_MAX};
    struct sl_budget budget, other;
    struct sl_trace_record r;
    struct sl_trace_writer *w;
    sluice_error e = {.code = 0};
    uint64_t lost;
    char path[64];

    struct sl_trace_reader *reader = open_bytes(&in, &budget);
    if (reader == NULL) {
        CHECK(sl_budget_used(&budget) == 0);
        return;
    }
    int fd = memfd_create("sluice_fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    sl_budget_init(&other, BUDGET_BYTES);
    CHECK(sl_trace_create(path, sl_trace_get_header(reader), &other, NULL, &w) == SLUICE_OK);
    sluice_err err;
    while ((err = sl_trace_next(reader, &r, &e)) == SLUICE_OK && r.kind != SL_TRACE_END) put(w, &r);
    CHECK(err == e.code && r.kind == SL_TRACE_END);
    if (err != SLUICE_OK) CHECK(e.text[0] != '\0' && strchr(e.text, '\n') == NULL);
    if (!sl_trace_cut(reader, &lost)) CHECK(lost == 0);
    CHECK(lost <= size);
    sl_trace_reader_close(reader);
    CHECK(sl_budget_used(&budget) == 0);
    CHECK(sl_trace_close(w, NULL) == SLUICE_OK && sl_budget_used(&other) == 0);
    compare(&in, path);
    close(fd);
}

/* ---- inputs -----------------------------------------------------------------------------------
 */

/* Adds a block with this payload to a file of n bytes; its new size. */
static size_t add_block(uint8_t *out, size_t n, const uint8_t *payload, size_t bytes)
{
    sl_tf_put_head(out + n, (uint32_t)bytes);
    n += SL_TF_HEAD_BYTES;
    if (bytes > 0) memcpy(out + n, payload, bytes);
    sl_tf_put_tail(out + n + bytes, sl_xxh3(payload, bytes));
    return n + bytes + SL_TF_TAIL_BYTES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (sl_trace_is(data, size)) {
        read_trace(data, size);
        return 0;
    }
    /* at worst a block for every two bytes */
    size_t room = SL_TF_MAGIC_BYTES + size + (size / 2 + 1) * (SL_TF_HEAD_BYTES + SL_TF_TAIL_BYTES);
    uint8_t *file = malloc(room);
    CHECK(file != NULL);
    memcpy(file, sl_tf_magic, SL_TF_MAGIC_BYTES);
    size_t n = SL_TF_MAGIC_BYTES;
    for (size_t at = 0; at + 2 <= size;) {
        size_t bytes = data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        if (bytes > size - at) bytes = size - at;
        n = add_block(file, n, data + at, bytes);
        at += bytes;
    }
    CHECK(n <= room);
    read_trace(file, n);
    free(file);
    return 0;
}
