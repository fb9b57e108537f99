/* Fuzzes a whole model: any bytes as one GGUF file through the public interface: plan, open,
 * tokenize, evaluate, generate. What opens must evaluate to finite logits or to a plain error, and
 * to the same bits whatever the instruction set and the chunk.
 *
 * The mutator knows the layout: mostly it changes one number of a metadata value, a dimension, a
 * type or a weight, so that inputs get past the reader and into the engine. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "include/sluice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
/* libFuzzer's own; absent where a corpus is only replayed. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

#define CHECK(x) ((x) ? (void)0 : abort())
#define RAM_BYTES (48u << 20)
#define N_IDS 6
#define LOGITS_MAX (N_IDS * 1024)

struct outcome {
    sluice_err err;
    size_t n;
    float logits[LOGITS_MAX];
};

static void check_error(sluice_err err, const sluice_error *e)
{
    CHECK(err == SLUICE_OK || (e->code == err && e->text[0] != '\0' && !strchr(e->text, '\n')));
}

/* Evaluates, and with generate nonzero answers a prompt after it. */
static void use_session(sluice_session *s, uint32_t n_vocab, struct outcome *o, int generate)
{
    sluice_error e;
    int32_t ids[N_IDS];

    for (uint32_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)(i * 37 % n_vocab);
    o->n = n_vocab <= LOGITS_MAX / N_IDS ? (size_t)N_IDS * n_vocab : 0;
    o->err = sluice_session_eval(s, ids, N_IDS, o->n > 0 ? o->logits : NULL, &e);
    check_error(o->err, &e);
    if (o->err != SLUICE_OK) CHECK(sluice_session_length(s) == 0);
    for (size_t i = 0; o->err == SLUICE_OK && i < o->n; i++) CHECK(isfinite(o->logits[i]));
    if (!generate || o->err != SLUICE_OK) return;
    sluice_generate_options g = SLUICE_GENERATE_INIT;
    g.max_tokens = 3;
    check_error(sluice_generate(s, ids, N_IDS, &g, NULL, &e), &e);
}

static void use_text(const sluice_model *m)
{
    static const char text[] = "Hello, w\xC3\xB6rld <eos>\n 12";
    int32_t ids[64];
    size_t bytes = 0;
    sluice_error e;
    sluice_ids list = {ids, 64, 0};
    sluice_message message = {"user", text};
    sluice_chat chat = {&message, 1, -1};
    char rendered[256];

    sluice_err err = sluice_tokenize(m, text, sizeof text - 1, 3, &list, &e);
    check_error(err, &e);
    for (size_t i = 0; err == SLUICE_OK && i < list.count; i++) {
        (void)sluice_token_piece(m, ids[i], 1, &bytes);
        (void)sluice_token_is_end(m, ids[i]);
    }
    err = sluice_chat_render(m, &chat, rendered, sizeof rendered, &bytes, &e);
    check_error(err, &e);
}

static void run_model(const char *path, uint32_t isa, uint32_t chunk, struct outcome *o)
{
    sluice_options opt = SLUICE_OPTIONS_INIT;
    sluice_error e;
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;

    opt.threads = 1;
    opt.n_ctx = 16;
    opt.ram_bytes = RAM_BYTES;
    opt.isa = isa;
    opt.chunk = chunk;
    memset(o, 0, sizeof *o);
    o->err = sluice_model_open(path, &opt, &m, &e);
    check_error(o->err, &e);
    if (o->err != SLUICE_OK) return;
    sluice_model_get_info(m, &info);
    if (isa == SLUICE_ISA_AUTO) use_text(m);
    o->err = sluice_session_open(m, &s, &e);
    check_error(o->err, &e);
    if (o->err == SLUICE_OK) use_session(s, info.n_vocab, o, isa == SLUICE_ISA_AUTO);
    sluice_session_close(s);
    sluice_model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outcome fast, scalar;
    char path[64];
    sluice_plan plan = SLUICE_PLAN_INIT;
    sluice_error e;
    int fd = memfd_create("model", 0);

    CHECK(fd >= 0);
    if (write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        check_error(sluice_memory_plan(path, NULL, &plan, &e), &e);
        run_model(path, SLUICE_ISA_AUTO, 4, &fast);
        if (fast.n > 0) {
            run_model(path, SLUICE_ISA_SCALAR, 1, &scalar);
            CHECK(fast.err == scalar.err && fast.n == scalar.n);
            if (fast.err == SLUICE_OK)
                CHECK(memcmp(fast.logits, scalar.logits, fast.n * sizeof(float)) == 0);
        }
    }
    close(fd);
    return 0;
}

/* ---- mutation ---------------------------------------------------------------------------- */

struct walk {
    const uint8_t *data;
    size_t size, at;
    size_t spots[512]; /* offsets of numbers */
    uint8_t width[512];
    uint32_t n;
};

static uint64_t take(struct walk *w, size_t bytes)
{
    uint64_t v = 0;

    if (bytes > w->size || w->at > w->size - bytes) {
        w->at = w->size + 1;
        return 0;
    }
    memcpy(&v, w->data + w->at, bytes);
    w->at += bytes;
    return v;
}

static void note(struct walk *w, size_t bytes)
{
    if (w->n < 512 && w->at + bytes <= w->size) {
        w->spots[w->n] = w->at;
        w->width[w->n++] = (uint8_t)bytes;
    }
    (void)take(w, bytes);
}

static void skip_string(struct walk *w)
{
    uint64_t n = take(w, 8);

    w->at = n < w->size && w->at <= w->size - n ? w->at + n : w->size + 1;
}

static void walk_value(struct walk *w)
{
    static const uint8_t bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t kind = take(w, 4);

    if (kind == 8) {
        skip_string(w);
    } else if (kind == 9) {
        uint64_t elem = take(w, 4), n = take(w, 8);

        for (uint64_t i = 0; i < n && w->at < w->size; i++) {
            if (elem == 8) skip_string(w);
            else (void)take(w, elem < 13 && bytes[elem] ? bytes[elem] : w->size + 1);
        }
    } else if (kind < 13) {
        note(w, bytes[kind]);
    } else {
        w->at = w->size + 1;
    }
}

static void walk_file(struct walk *w)
{
    w->at = 8;
    uint64_t tensors = take(w, 8), keys = take(w, 8);

    for (uint64_t i = 0; i < keys && w->at < w->size; i++) {
        skip_string(w);
        walk_value(w);
    }
    for (uint64_t i = 0; i < tensors && w->at < w->size; i++) {
        skip_string(w);
        uint64_t dims = take(w, 4);

        for (uint64_t d = 0; d < dims && d < 4 && w->at < w->size; d++) note(w, 8);
        note(w, 4);
        note(w, 8);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    static const uint64_t values[] = {0, 1, 2, 3, 5, 8, 16, 31, 32, 33, 64, 96, 255, 256, 300, 512,
                                      1024, 65536, 0x3f800000, 0x40000000, 0x7f800000, 0x7fc00000,
                                      0xff800000, 0x00000001, 0x7f7fffff, 0x7fffffff, 0x80000000,
                                      0xffffffff, 0x8000000000000000u, 0xffffffffffffffffu};
    static struct walk w;
    uint64_t r = seed * 0x9E3779B97F4A7C15u;

    w = (struct walk){.data = data, .size = size};
    if (size >= 24) walk_file(&w);
    if (w.n == 0 || r >> 61 == 0)
        return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
    if (r >> 61 == 1 && w.at < size) { /* a weight */
        uint64_t v = values[(r >> 32) % 30];
        size_t at = w.at + (r >> 8) % (size - w.at);

        memcpy(data + at, &v, size - at < 4 ? size - at : 4);
        return size;
    }
    uint32_t spot = (uint32_t)((r >> 40) % w.n);
    uint64_t v = values[(r >> 20) % 30], old = 0;

    memcpy(&old, data + w.spots[spot], w.width[spot]);
    if (r >> 62 == 1) v = old + ((r >> 16) % 9) - 4;
    memcpy(data + w.spots[spot], &v, w.width[spot]);
    return size;
}
