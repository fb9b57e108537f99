/* Fixed pieces of work whose instructions are counted: see instructions.py.
 *
 *   instructions MODEL.gguf
 *
 * Every piece runs once within counted_work, which is what the counting is switched on by, and has
 * a line of output with its name, in order. The same program does the same work in the same number
 * of instructions, on any machine with the same instruction set, however busy it is; so a slower
 * kernel shows where times would only flicker. One thread, AVX2; exit code 77 where there is none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/kernels.h"
#include "include/sluice.h"

#define ROWS 64
#define COLS 2048
#define TOKENS_MAX 4
#define PROMPT 16
#define DECODED 8

typedef void work_fn(void *arg);

void counted_work(work_fn *fn, void *arg);

/* Not copied for a known fn either, which would have another name. */
#if defined(__clang__)
__attribute__((noinline))
#else
__attribute__((noipa))
#endif
void counted_work(work_fn *fn, void *arg)
{
    fn(arg);
    __asm__ volatile("" ::: "memory"); /* not a tail call, which would end before the work does */
}

/* The result is put where the compiler cannot see that nobody reads it. */
static struct {
    _Alignas(64) uint8_t weights[ROWS * COLS * 4];
    _Alignas(64) float x[COLS];
    _Alignas(64) float y[COLS * TOKENS_MAX];
    _Alignas(64) int8_t q[COLS];
    _Alignas(64) int16_t sums[COLS / 16];
    _Alignas(64) int16_t query[COLS];
    _Alignas(64) float d[COLS / 32];
    _Alignas(64) uint16_t scales[ROWS * COLS / 32];
} data;

/* What reads as small numbers in every weight type. */
static void fill(void)
{
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof data.weights; i++) {
        state = state * 1664525u + 1013904223u;
        data.weights[i] = (uint8_t)((state >> 24 & 0x17) | 0x20);
    }
    memset(data.scales, 0x21, sizeof data.scales);
    for (int i = 0; i < COLS; i++) data.x[i] = (float)(i % 17) * 0.25f - 2.0f;
}

/* ---- kernels ------------------------------------------------------------------------------ */

struct piece {
    const struct sl_kernels *k;
    uint32_t type, n_tokens;
};

static void quantize(void *arg)
{
    const struct piece *p = arg;
    const struct sl_k_act_out out = {data.q, data.d, data.sums};
    if (!p->k->quantize(data.x, COLS, p->type, &out)) exit(1);
}

static void multiply(void *arg)
{
    const struct piece *p = arg;
    struct sl_k_act acts[TOKENS_MAX];
    uint64_t row_bytes;
    for (uint32_t t = 0; t < p->n_tokens; t++)
        acts[t] = (struct sl_k_act){.f = data.x, .q = data.q, .d = data.d, .sums = data.sums};
    if (!sl_type_row_bytes(p->type, COLS, &row_bytes)) exit(1);
    struct sl_k_matmul m = {data.weights, row_bytes, ROWS, COLS, acts,
                            p->n_tokens,  data.y,    ROWS, NULL};
    p->k->matmul[SL_TYPE_SLOT(p->type)](&m);
}

static void attend(void *arg)
{
    const struct piece *p = arg;
    const struct sl_k_kv kv = {data.weights, p->type == SL_KV_Q8 ? data.scales : NULL, 128, ROWS};
    const struct sl_k_query query = {data.x, data.query, data.d};
    if (!p->k->quantize_query(data.x, 128, data.query, data.d)) exit(1);
    p->k->attn_scores[p->type](&query, 1, &kv, 0.125f, data.y);
    p->k->attn_values[p->type](data.y, 1, &kv, data.y + COLS);
}

static void vectors(void *arg)
{
    const struct piece *p = arg;
    p->k->rms_norm(data.x, NULL, COLS, 1e-6f, data.y);
    p->k->silu_mul(data.y, data.x, COLS, data.y + COLS);
    (void)p->k->exp_sum(data.y, COLS, 3.0f);
    p->k->axpy(0.5f, data.x, COLS, data.y);
    p->k->rope(data.y, data.x, 128, true);
}

static void count(const char *name, work_fn *fn, void *arg)
{
    printf("%s\n", name);
    counted_work(fn, arg);
}

static void count_products(const struct sl_kernels *k)
{
    char name[64];
    for (uint32_t slot = 0; slot < SL_TYPE_SLOTS; slot++) {
        struct piece p = {k, sl_type_of_slot(slot), 1};
        const struct sl_type_info *info = sl_type_info(p.type);
        if (!info) continue;
        struct piece prepare = {k, sl_k_act_block(sl_k_act_kind(p.type)), 1};
        quantize(&prepare);
        for (p.n_tokens = 1; p.n_tokens <= TOKENS_MAX; p.n_tokens += TOKENS_MAX - 1) {
            (void)snprintf(name, sizeof name, "%s, %u token%s", info->name, p.n_tokens,
                           p.n_tokens > 1 ? "s" : "");
            count(name, multiply, &p);
        }
    }
}

static void count_kernels(void)
{
    static const char *const kv_names[SL_KV_TYPES] = {"f32", "f16", "q8"};
    const struct sl_kernels *k;
    sluice_error error;
    char name[64];
    if (sl_kernels_select(SL_ISA_AVX2, &error, &k)) exit(77);
    count_products(k);
    for (uint32_t block = 32; block <= 256; block += 224) {
        struct piece p = {k, block, 1};
        (void)snprintf(name, sizeof name, "quantize by %u", block);
        count(name, quantize, &p);
    }
    for (uint32_t type = 0; type < SL_KV_TYPES; type++) {
        struct piece p = {k, type, 1};
        (void)snprintf(name, sizeof name, "attention, %s", kv_names[type]);
        count(name, attend, &p);
    }
    struct piece p = {k, 0, 1};
    count("norm, silu, exp, axpy, rope", vectors, &p);
}

/* ---- a model ------------------------------------------------------------------------------ */

struct answer {
    sluice_session *session;
    float *logits;
    size_t n, at_once;
};

static void evaluate(void *arg)
{
    const struct answer *a = arg;
    int32_t ids[PROMPT];
    sluice_error error;
    for (size_t i = 0; i < PROMPT; i++) ids[i] = (int32_t)(i * 23 + 5);
    for (size_t i = 0; i < a->n; i += a->at_once)
        if (sluice_session_eval(a->session, ids + i, a->at_once, a->at_once > 1 ? NULL : a->logits,
                                &error)) {
            (void)fprintf(stderr, "%s\n", error.text);
            exit(1);
        }
}

static void count_model(const char *path)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    sluice_model *model;
    struct answer a = {.n = PROMPT, .at_once = PROMPT};
    o.threads = 1;
    o.isa = SLUICE_ISA_AVX2;
    if (sluice_model_open(path, &o, &model, &error) ||
        sluice_session_open(model, &a.session, &error)) {
        (void)fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    sluice_model_get_info(model, &info);
    a.logits = calloc(info.n_vocab, sizeof *a.logits);
    if (!a.logits) exit(1);
    count("model, a prompt", evaluate, &a);
    a.n = DECODED;
    a.at_once = 1;
    evaluate(&a); /* buffers of reads are made */
    count("model, decode", evaluate, &a);
    free(a.logits);
    sluice_session_close(a.session);
    sluice_model_close(model);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: instructions MODEL.gguf\n");
        return 2;
    }
    fill();
    count_kernels();
    count_model(argv[1]);
    return 0;
}
