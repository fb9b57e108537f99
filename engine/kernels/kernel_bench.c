/* Data for a benchmark, the loop around the kernel, and the clock. */
#include "engine/kernels/kernel_bench.h"

#include "base/clock.h"
#include "base/limits.h"

#include <string.h>

#define TOKENS_MAX 64
/* Of several copies, that one timed call goes over, or a bit more. */
#define CALL_BYTES (16u << 20)
#define PATTERN_BYTES 4096u

/* Everything a kernel may want, cut from one arena. */
struct bench {
    const struct sl_kernels *k;
    struct sl_kernel_bench what;
    uint64_t row_bytes;
    uint64_t data_bytes;     /* of one copy */
    struct sl_region region; /* of data, in large pages, as a model's weights are */
    uint8_t *data;           /* weights or cache, all copies */
    uint32_t copies;         /* all of them, and those that a call goes over, in turn */
    uint32_t copies_a_call;
    uint16_t *scales; /* of an int8 cache */
    float *x, *y;     /* cols elements each */
    float *out;       /* n_tokens * rows, or rows */
    struct sl_k_act_out act;
    struct sl_k_act acts[TOKENS_MAX];
    int16_t *query;
    float *query_d;
};

static bool is_attention(const struct sl_kernel_bench *w)
{
    return w->what == SL_KB_ATTN_SCORES || w->what == SL_KB_ATTN_VALUES;
}

static bool has_matrix(const struct sl_kernel_bench *w)
{
    return w->what == SL_KB_MATMUL || is_attention(w);
}

static bool sizes_ok(const struct sl_kernel_bench *w)
{
    uint64_t bytes;
    if (w->rows < 1 || w->rows > SL_ROWS_MAX || w->cols < 1 || w->cols > SL_COLS_MAX) return false;
    if (w->n_tokens < 1 || w->n_tokens > TOKENS_MAX) return false;
    if (w->what == SL_KB_MATMUL) return sl_type_row_bytes(w->type, w->cols, &bytes);
    if (w->what == SL_KB_QUANTIZE)
        return (w->type == 32 || w->type == 256) && w->cols % w->type == 0;
    if (is_attention(w)) return w->type < SL_KV_TYPES && w->cols <= SL_HEAD_DIM_MAX;
    return (unsigned)w->what < SL_KB_WHATS;
}

static uint64_t row_bytes(const struct sl_kernel_bench *w)
{
    static const uint32_t kv_bytes[SL_KV_TYPES] = {4, 2, 1};
    uint64_t bytes = (uint64_t)w->cols * sizeof(float);
    if (w->what == SL_KB_MATMUL && !sl_type_row_bytes(w->type, w->cols, &bytes)) return 0;
    if (is_attention(w)) bytes = (uint64_t)w->cols * kv_bytes[w->type];
    return bytes;
}

/* Bytes that read as small normal numbers in every float format and as some code or other in the
 * rest: no kernel's time depends on its codes, but denormal numbers would cost extra on some
 * processors. */
static void fill(uint8_t *p, uint64_t n)
{
    uint32_t state = 1;
    for (uint64_t i = 0; i < n && i < PATTERN_BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (uint8_t)((state >> 24 & 0x17) | 0x20);
    }
    for (uint64_t i = PATTERN_BYTES; i < n; i += PATTERN_BYTES)
        memcpy(p + i, p, sl_min_u64(n - i, PATTERN_BYTES));
}

/* The weights or the cache, all copies, and how many of them a call takes. */
static bool take_data(struct bench *b, struct sl_budget *budget, uint64_t rows)
{
    const struct sl_kernel_bench *w = &b->what;
    uint64_t bytes;
    b->row_bytes = row_bytes(w);
    b->data_bytes = rows * b->row_bytes;
    if (w->what == SL_KB_MATMUL && !sl_type_matrix_bytes(w->type, rows, w->cols, &b->data_bytes))
        return false;
    b->copies = has_matrix(w) && w->copies > 1 ? w->copies : 1;
    b->copies_a_call = (uint32_t)sl_min_u64(b->copies, CALL_BYTES / b->data_bytes + 1);
    if (!sl_mul_ok(b->copies, b->data_bytes, &bytes)) return false;
    if (sl_region_reserve(&b->region, budget, bytes) != SLUICE_OK) return false;
    if (sl_region_commit(&b->region, bytes) != SLUICE_OK) return false;
    sl_region_prefer_huge(&b->region);
    b->data = b->region.base;
    fill(b->data, bytes);
    return true;
}

static bool allocate(struct bench *b, struct sl_arena *a)
{
    const struct sl_kernel_bench *w = &b->what;
    uint64_t cols = (uint64_t)w->cols, groups = cols / SL_KV_GROUP + 1;
    uint64_t rows = has_matrix(w) ? w->rows : 1;
    if (!take_data(b, a->budget, rows)) return false;
    b->scales = sl_arena_alloc(a, rows * groups, sizeof *b->scales);
    b->x = sl_arena_alloc(a, cols, sizeof *b->x);
    b->y = sl_arena_alloc(a, cols, sizeof *b->y);
    b->out = sl_arena_alloc(a, rows * w->n_tokens, sizeof *b->out);
    b->act.q = sl_arena_alloc(a, cols + 32, 1);
    b->act.d = sl_arena_alloc(a, cols / 32 + 1, sizeof *b->act.d);
    b->act.sums = sl_arena_alloc(a, cols / 16 + 2, sizeof *b->act.sums);
    b->query = sl_arena_alloc(a, cols, sizeof *b->query);
    b->query_d = sl_arena_alloc(a, groups, sizeof *b->query_d);
    if (b->scales == NULL || b->x == NULL || b->y == NULL || b->out == NULL) return false;
    if (b->act.q == NULL || b->act.d == NULL || b->act.sums == NULL) return false;
    if (b->query == NULL || b->query_d == NULL) return false;
    fill((uint8_t *)b->scales, rows * groups * sizeof *b->scales);
    for (uint64_t i = 0; i < cols; i++) b->x[i] = (float)(i % 17) * 0.25f - 2.0f;
    return true;
}

/* All activations of a product are the same vector. A model's differ and come from the second-level
 * cache, which costs some 4 % with 64 of them. */
static bool prepare(struct bench *b)
{
    const struct sl_kernel_bench *w = &b->what;
    bool ok = true;
    if (is_attention(w)) ok = b->k->quantize_query(b->x, w->cols, b->query, b->query_d);
    if (w->what != SL_KB_MATMUL) return ok;
    enum sl_act_kind kind = sl_k_act_kind(w->type);
    if (kind != SL_ACT_F32) ok = b->k->quantize(b->x, w->cols, sl_k_act_block(kind), &b->act);
    for (uint32_t i = 0; i < w->n_tokens; i++)
        b->acts[i] =
            (struct sl_k_act){.f = b->x, .q = b->act.q, .d = b->act.d, .sums = b->act.sums};
    return ok;
}

static bool run_attention(const struct bench *b, const uint8_t *data)
{
    const struct sl_kernel_bench *w = &b->what;
    struct sl_k_kv kv = {data, w->type == SL_KV_Q8 ? b->scales : NULL, w->cols, w->rows};
    struct sl_k_query query = {b->x, b->query, b->query_d};
    if (w->what == SL_KB_ATTN_SCORES)
        b->k->attn_scores[w->type](&query, 1, &kv, 0.125f, b->out);
    else
        b->k->attn_values[w->type](b->out, 1, &kv, b->y);
    return true;
}

/* The rows [first, end) of a product with a copy, where there are any. */
static void multiply(const struct bench *b, const uint8_t *data, uint32_t first, uint32_t end)
{
    const struct sl_kernel_bench *w = &b->what;
    struct sl_k_matmul m = {.w = data + first * b->row_bytes,
                            .row_bytes = b->row_bytes,
                            .rows = end - first,
                            .cols = w->cols,
                            .x = b->acts,
                            .n_tokens = w->n_tokens,
                            .y = b->out + first,
                            .y_stride = w->rows};
    if (first < end) b->k->matmul[SL_TYPE_SLOT(w->type)](&m);
}

/* One call's products, spread over threads: each has a stretch of the rows, in whole groups. */
struct spread {
    const struct bench *b;
    uint64_t first_copy;
    uint32_t rows; /* of a stretch */
};

static void multiply_stretch(void *arg, uint32_t task, uint32_t worker)
{
    (void)worker;
    const struct spread *s = arg;
    const struct bench *b = s->b;
    uint64_t rows = b->what.rows, first = sl_min_u64((uint64_t)task * s->rows, rows);
    uint64_t end = sl_min_u64(first + s->rows, rows);
    for (uint64_t i = s->first_copy; i < s->first_copy + b->copies_a_call; i++)
        multiply(b, b->data + i % b->copies * b->data_bytes, (uint32_t)first, (uint32_t)end);
}

static void multiply_all(const struct bench *b, uint64_t first_copy)
{
    uint32_t threads = b->what.pool ? sl_pool_threads(b->what.pool) : 1;
    uint32_t rows = (b->what.rows + threads - 1) / threads;
    struct spread s = {b, first_copy, (rows + 7) / 8 * 8};
    if (threads > 1)
        sl_pool_run(b->what.pool, multiply_stretch, &s, threads);
    else
        multiply_stretch(&s, 0, 0);
}

static bool run_once(const struct bench *b, uint64_t call)
{
    const struct sl_kernel_bench *w = &b->what;
    switch (w->what) {
    case SL_KB_MATMUL:
        multiply_all(b, call * b->copies_a_call);
        return true;
    case SL_KB_QUANTIZE:
        return b->k->quantize(b->x, w->cols, w->type, &b->act);
    case SL_KB_RMS_NORM:
        b->k->rms_norm(b->x, NULL, w->cols, 1e-6f, b->y);
        return true;
    case SL_KB_AXPY:
        b->k->axpy(1e-6f, b->x, w->cols, b->y);
        return true;
    case SL_KB_SILU_MUL:
        b->k->silu_mul(b->x, b->x, w->cols, b->y);
        return true;
    case SL_KB_EXP_SUM:
        return b->k->exp_sum(b->x, w->cols, 2.0f) >= 0.0f;
    case SL_KB_ATTN_SCORES:
    case SL_KB_ATTN_VALUES:
        return run_attention(b, b->data + call % b->copies * b->data_bytes);
    }
    return false;
}

static bool measure(const struct bench *b, struct sl_kernel_bench_result *out)
{
    bool ok = b->copies > 1 || run_once(b, 0); /* warms the cache, not counted */
    uint64_t start = sl_now_ns(), now = start, best = UINT64_MAX;
    out->calls = 0;
    do {
        uint64_t before = now;
        ok = run_once(b, out->calls + 1) && ok;
        now = sl_now_ns();
        best = sl_min_u64(best, now - before);
        out->calls++;
    } while (now - start < b->what.min_ns);
    out->ns_best = (double)best;
    out->ns_mean = (double)(now - start) / (double)out->calls;
    return ok;
}

sluice_err sl_kernel_bench_run(struct sl_budget *budget, enum sl_isa isa,
                               const struct sl_kernel_bench *what, sluice_error *e,
                               struct sl_kernel_bench_result *out)
{
    struct bench b = {.what = *what};
    struct sl_arena arena;
    *out = (struct sl_kernel_bench_result){0};
    sluice_err err = sl_kernels_select(isa, e, &b.k);
    if (err != SLUICE_OK) return err;
    if (!sizes_ok(what))
        return sl_fail(e, SLUICE_E_ARG,
                       "kernel benchmark: a size or type that the kernel does not take");
    sl_arena_init(&arena, budget, 1 << 16);
    uint32_t copies = 1;
    if (!allocate(&b, &arena)) {
        err = sl_fail(e, SLUICE_E_NOMEM, "kernel benchmark: not enough memory for its data");
    } else {
        uint64_t fp = sl_fp_enter();
        bool ok = prepare(&b) && measure(&b, out);
        sl_fp_leave(fp);
        SLUICE_ASSERT(ok);
        out->isa = b.k->isa;
        if (what->what == SL_KB_MATMUL) copies = b.copies_a_call;
        out->bytes = copies * b.data_bytes;
        out->elements = has_matrix(what)
                            ? (uint64_t)what->rows * what->cols * what->n_tokens * copies
                            : what->cols;
    }
    sl_region_deinit(&b.region);
    sl_arena_deinit(&arena);
    return err;
}
