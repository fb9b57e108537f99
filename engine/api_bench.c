/* The benchmarks of this machine behind their public face: how fast memory is read, and how fast
 * weights are multiplied, from a cache and from memory. */
#include <stdio.h>
#include <string.h>

#include "engine/api.h"
#include "engine/kernels/kernel_bench.h"
#include "engine/kernels/memory_bench.h"

#define BENCH_ROWS 768u /* gate or up of an expert of Qwen3-30B-A3B */
#define BENCH_COLS 2048u
#define BENCH_CACHE_BYTES (512u << 10) /* half of a second-level cache */
#define BENCH_MEMORY_BYTES SL_MEMORY_BENCH_BYTES
#define BENCH_NS 40000000u /* for each of the two figures */
#define COMPARE_ROWS 64u
#define TOKENS_MAX 64u

/* A weight type, how it is multiplied, and the size. */
struct kernel {
    const struct sl_kernels *k;
    enum sl_isa isa;
    uint32_t type, rows, cols, n_tokens;
    struct sl_pool *pool;
    struct sl_budget *budget;
};

struct rates {
    double weights_per_s, bytes_per_s;
};

/* The index-th supported weight type; false past the last. */
static bool nth_type(uint32_t index, uint32_t *type)
{
    for (uint32_t slot = 0; slot < SL_TYPE_SLOTS; slot++) {
        *type = sl_type_of_slot(slot);
        if (sl_type_info(*type) && index-- == 0) return true;
    }
    return false;
}

static uint64_t row_bytes_of(const struct kernel *x)
{
    uint64_t bytes = 0;
    SLUICE_ASSERT(sl_type_row_bytes(x->type, x->cols, &bytes));
    return bytes;
}

/* Threads as sluice_options has them; *threads receives how many there are. */
static sluice_err open_pool(struct sl_budget *b, uint32_t *threads, struct sl_pool **pool,
                            sluice_error *e)
{
    struct sl_cpu_choice choice;
    const sluice_options opt = {.threads = *threads};
    if (*threads > SL_THREADS_MAX)
        return sl_fail(e, SLUICE_E_ARG, "threads is %u, wanted 0 to %u", *threads, SL_THREADS_MAX);
    sl_cpu_choose("", &choice);
    *threads = api_threads(&opt, &choice);
    sluice_err err = sl_pool_open(b, *threads, opt.threads ? NULL : &choice, pool);
    if (err == SLUICE_OK) return SLUICE_OK;
    return sl_fail(e, err, "no memory for %u threads", *threads);
}

/* ---- reading memory ----------------------------------------------------------------------- */

sluice_err sluice_bench_memory(sluice_memory_bench *result, sluice_error *error)
{
    sluice_memory_bench r = SLUICE_MEMORY_BENCH_INIT;
    struct sl_budget b;
    struct sl_pool *pool = NULL;
    sluice_err err = api_copy_struct(&r, sizeof r, result, result->struct_size, error);
    if (err != SLUICE_OK) return err;
    sl_budget_init(&b, UINT64_MAX);
    err = open_pool(&b, &r.threads, &pool, error);
    if (err == SLUICE_OK) err = sl_memory_bench_run(&b, pool, error, &r.bytes_per_s);
    sl_pool_close(pool);
    r.buffer_bytes = SL_MEMORY_BENCH_BYTES;
    if (err == SLUICE_OK)
        memcpy(result, &r, result->struct_size < sizeof r ? result->struct_size : sizeof r);
    return err;
}

/* ---- kernels ------------------------------------------------------------------------------ */

static sluice_err run(const struct kernel *x, uint32_t rows, uint32_t copies, struct rates *out,
                      sluice_error *e)
{
    const struct sl_kernel_bench what = {.what = SL_KB_MATMUL,
                                         .type = x->type,
                                         .rows = rows,
                                         .cols = x->cols,
                                         .n_tokens = x->n_tokens,
                                         .copies = copies,
                                         .min_ns = BENCH_NS,
                                         .pool = x->pool};
    struct sl_kernel_bench_result r;
    sluice_err err = sl_kernel_bench_run(x->budget, x->isa, &what, e, &r);
    if (err != SLUICE_OK) return err;
    *out = (struct rates){(double)r.elements / r.ns_best * 1e9, (double)r.bytes / r.ns_best * 1e9};
    return SLUICE_OK;
}

/* As many of the rows as each thread's cache holds, again and again; then copies of the matrix. */
static sluice_err measure(const struct kernel *x, sluice_kernel_bench *r, sluice_error *e)
{
    struct rates cache = {0, 0}, memory = {0, 0};
    uint64_t row_bytes = row_bytes_of(x), cached = BENCH_CACHE_BYTES / row_bytes / 8 * 8;
    uint32_t rows = (uint32_t)sl_min_u64(x->rows, sl_max_u64(cached, 8) * r->threads);
    uint32_t copies = (uint32_t)(BENCH_MEMORY_BYTES / (x->rows * row_bytes)) + 1;
    sluice_err err = run(x, rows, 1, &cache, e);
    if (err == SLUICE_OK) err = run(x, x->rows, copies, &memory, e);
    r->weights_per_s = cache.weights_per_s;
    r->bytes_per_s = cache.bytes_per_s;
    r->memory_weights_per_s = memory.weights_per_s;
    r->memory_bytes_per_s = memory.bytes_per_s;
    return err;
}

/* What one product of this variant and of the scalar definition takes. */
struct compared {
    uint32_t rows;
    uint8_t *w;
    float *x, *y, *scalar_y;
    struct sl_k_act_out q;
    struct sl_k_act acts[TOKENS_MAX];
};

static bool take_compared(const struct kernel *x, struct sl_arena *a, struct compared *c)
{
    uint64_t rows = sl_min_u64(x->rows, COMPARE_ROWS), bytes = (rows + 7) / 8 * 8 * row_bytes_of(x);
    c->rows = (uint32_t)rows;
    c->w = sl_arena_alloc(a, bytes, 1);
    c->x = sl_arena_alloc(a, x->cols, sizeof *c->x);
    c->y = sl_arena_alloc(a, rows * x->n_tokens, sizeof *c->y);
    c->scalar_y = sl_arena_alloc(a, rows * x->n_tokens, sizeof *c->y);
    c->q.q = sl_arena_alloc(a, x->cols, 1);
    c->q.d = sl_arena_alloc(a, x->cols / 32 + 1, sizeof(float));
    c->q.sums = sl_arena_alloc(a, x->cols / 16 + 1, sizeof(int16_t));
    if (!c->w || !c->x || !c->y || !c->scalar_y || !c->q.q || !c->q.d || !c->q.sums) return false;
    uint32_t state = 12345;
    for (uint64_t i = 0; i < bytes; i++) { /* small normal numbers in every float format */
        state = state * 1664525u + 1013904223u;
        c->w[i] = (uint8_t)(((state >> 24) & 0x17) | 0x20);
    }
    for (uint32_t i = 0; i < x->cols; i++) c->x[i] = (float)(i % 37) * 0.11f - 2.0f;
    return true;
}

/* One product by this variant and by the scalar definition: equal bits? */
static sluice_err compare(const struct kernel *x, bool *equal, sluice_error *e)
{
    const struct sl_kernels *scalar;
    struct compared c;
    sluice_err err = sl_kernels_select(SL_ISA_SCALAR, e, &scalar);
    if (err != SLUICE_OK) return err;
    struct sl_arena a;
    sl_arena_init(&a, x->budget, 1 << 20);
    if (!take_compared(x, &a, &c)) {
        sl_arena_deinit(&a);
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the benchmark");
    }
    enum sl_act_kind kind = sl_k_act_kind(x->type);
    bool finite = kind == SL_ACT_F32 || scalar->quantize(c.x, x->cols, sl_k_act_block(kind), &c.q);
    SLUICE_ASSERT(finite);
    for (uint32_t t = 0; t < x->n_tokens; t++)
        c.acts[t] = (struct sl_k_act){.f = c.x, .q = c.q.q, .d = c.q.d, .sums = c.q.sums};
    struct sl_k_matmul m = {c.w,         row_bytes_of(x), c.rows, x->cols, c.acts,
                            x->n_tokens, c.scalar_y,      c.rows, NULL};
    scalar->matmul[SL_TYPE_SLOT(x->type)](&m);
    m.y = c.y;
    x->k->matmul[SL_TYPE_SLOT(x->type)](&m);
    *equal = memcmp(c.y, c.scalar_y, (uint64_t)c.rows * x->n_tokens * sizeof *c.y) == 0;
    sl_arena_deinit(&a);
    return SLUICE_OK;
}

/* Defaults filled in, and what there can be at all. */
static sluice_err check_size(const struct kernel *x, sluice_kernel_bench *r, sluice_error *e)
{
    uint64_t bytes;
    if (r->rows == 0) r->rows = BENCH_ROWS;
    if (r->cols == 0) r->cols = BENCH_COLS;
    if (r->n_tokens == 0) r->n_tokens = 1;
    if (r->rows <= SL_ROWS_MAX && r->cols <= SL_COLS_MAX && r->n_tokens <= TOKENS_MAX &&
        sl_type_matrix_bytes(x->type, r->rows, r->cols, &bytes))
        return SLUICE_OK;
    return sl_fail(e, SLUICE_E_ARG, "%s has no matrix of %u rows and %u columns for %u tokens",
                   sl_type_name(x->type), r->rows, r->cols, r->n_tokens);
}

sluice_err sluice_bench_kernel(uint32_t index, sluice_kernel_bench *result, sluice_error *error)
{
    sluice_kernel_bench r = SLUICE_KERNEL_BENCH_INIT;
    struct sl_budget b;
    struct kernel x = {.budget = &b};
    bool equal = false;
    sluice_err err = api_copy_struct(&r, sizeof r, result, result->struct_size, error);
    if (err != SLUICE_OK) return err;
    if (!nth_type(index, &x.type))
        return sl_fail(error, SLUICE_E_LIMIT, "there are fewer than %u weight types", index + 1);
    x.isa = (enum sl_isa)r.isa;
    err = sl_kernels_select(x.isa, error, &x.k);
    if (err == SLUICE_OK) err = check_size(&x, &r, error);
    if (err != SLUICE_OK) return err;
    sl_budget_init(&b, UINT64_MAX);
    err = open_pool(&b, &r.threads, &x.pool, error);
    if (err != SLUICE_OK) return err;
    snprintf(r.type, sizeof r.type, "%s", sl_type_name(x.type));
    snprintf(r.isa_name, sizeof r.isa_name, "%s", x.k->isa);
    x.rows = r.rows;
    x.cols = r.cols;
    x.n_tokens = r.n_tokens;
    uint64_t saved = sl_fp_enter();
    err = compare(&x, &equal, error);
    if (err == SLUICE_OK) err = measure(&x, &r, error);
    sl_fp_leave(saved);
    sl_pool_close(x.pool);
    r.bit_equal = equal;
    if (err == SLUICE_OK)
        memcpy(result, &r, result->struct_size < sizeof r ? result->struct_size : sizeof r);
    return err;
}
