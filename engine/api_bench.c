/* The kernel benchmark behind its public face: sizes that stand for one expert's matrix in cache,
 * and for weights that come from memory. */
#include <stdio.h>
#include <string.h>

#include "engine/api.h"
#include "engine/kernels/kernel_bench.h"

#define BENCH_ROWS 64u
#define BENCH_COLS 2048u
#define BENCH_MEMORY_BYTES (96u << 20) /* several times a last-level cache */
#define BENCH_NS 40000000u             /* for each of the two figures */

/* The index-th supported weight type; false past the last. */
static bool nth_type(uint32_t index, uint32_t *type)
{
    for (*type = 0; *type < SL_TYPE_COUNT; ++*type)
        if (sl_type_info(*type) && index-- == 0) return true;
    return false;
}

static bool nth_isa(uint32_t index, enum sl_isa *isa, const struct sl_kernels **k)
{
    for (int i = SL_ISA_SCALAR; i <= SL_ISA_NEON; i++) {
        sluice_error unused;
        if (sl_kernels_select((enum sl_isa)i, &unused, k) == SLUICE_OK && index-- == 0) {
            *isa = (enum sl_isa)i;
            return true;
        }
    }
    return false;
}

struct rates {
    double weights_per_s, bytes_per_s;
};

static sluice_err run(struct sl_budget *b, enum sl_isa isa, uint32_t type, uint32_t copies,
                      struct rates *out, sluice_error *e)
{
    struct sl_kernel_bench what = {SL_KB_MATMUL, type, BENCH_ROWS, BENCH_COLS, 1, copies, BENCH_NS};
    struct sl_kernel_bench_result r;
    sluice_err err = sl_kernel_bench_run(b, isa, &what, e, &r);
    if (err != SLUICE_OK) return err;
    *out = (struct rates){(double)r.elements / r.ns_best * 1e9, (double)r.bytes / r.ns_best * 1e9};
    return SLUICE_OK;
}

/* One product by this variant and by the scalar definition: equal bits? */
static sluice_err compare(struct sl_budget *b, const struct sl_kernels *k, uint32_t type,
                          bool *equal, sluice_error *e);

sluice_err sluice_bench_kernel(uint32_t index, sluice_kernel_bench *result, sluice_error *error)
{
    uint32_t n_isa = 0, type;
    enum sl_isa isa;
    const struct sl_kernels *k;
    while (nth_isa(n_isa, &isa, &k)) n_isa++;
    if (!nth_type(index / n_isa, &type) || !nth_isa(index % n_isa, &isa, &k))
        return sl_fail(error, SLUICE_E_LIMIT, "there are fewer than %u kernels to time", index + 1);
    struct sl_budget b;
    sl_budget_init(&b, UINT64_MAX);
    sluice_kernel_bench r = SLUICE_KERNEL_BENCH_INIT;
    r.struct_size = result->struct_size;
    snprintf(r.type, sizeof r.type, "%s", sl_type_info(type)->name);
    snprintf(r.isa, sizeof r.isa, "%s", k->isa);
    uint64_t row_bytes = 0;
    SLUICE_ASSERT(sl_type_row_bytes(type, BENCH_COLS, &row_bytes));
    uint64_t saved = sl_fp_enter();
    bool equal = false;
    sluice_err err = compare(&b, k, type, &equal, error);
    struct rates cache = {0, 0}, memory = {0, 0};
    uint32_t copies = (uint32_t)(BENCH_MEMORY_BYTES / (BENCH_ROWS * row_bytes));
    if (err == SLUICE_OK) err = run(&b, isa, type, 1, &cache, error);
    if (err == SLUICE_OK) err = run(&b, isa, type, copies, &memory, error);
    sl_fp_leave(saved);
    r.bit_equal = equal;
    r.weights_per_s = cache.weights_per_s;
    r.bytes_per_s = cache.bytes_per_s;
    r.memory_weights_per_s = memory.weights_per_s;
    r.memory_bytes_per_s = memory.bytes_per_s;
    if (err == SLUICE_OK)
        memcpy(result, &r, result->struct_size < sizeof r ? result->struct_size : sizeof r);
    return err;
}

static sluice_err compare(struct sl_budget *b, const struct sl_kernels *k, uint32_t type,
                          bool *equal, sluice_error *e)
{
    const struct sl_kernels *scalar;
    sluice_err err = sl_kernels_select(SL_ISA_SCALAR, e, &scalar);
    if (err != SLUICE_OK) return err;
    uint64_t row_bytes = 0;
    SLUICE_ASSERT(sl_type_row_bytes(type, BENCH_COLS, &row_bytes));
    struct sl_arena a;
    sl_arena_init(&a, b, 1 << 20);
    uint8_t *w = sl_arena_alloc(&a, BENCH_ROWS, row_bytes);
    float *x = sl_arena_alloc(&a, BENCH_COLS, sizeof *x),
          *y = sl_arena_alloc(&a, 2 * BENCH_ROWS, sizeof *y);
    struct sl_k_act_out q = {sl_arena_alloc(&a, BENCH_COLS, 1),
                             sl_arena_alloc(&a, BENCH_COLS / 32, sizeof(float)),
                             sl_arena_alloc(&a, BENCH_COLS / 16, sizeof(int16_t))};
    if (!w || !x || !y || !q.q || !q.d || !q.sums) {
        sl_arena_deinit(&a);
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the benchmark");
    }
    uint32_t state = 12345;
    for (uint64_t i = 0; i < BENCH_ROWS * row_bytes; i++) {
        state = state * 1664525u + 1013904223u;
        w[i] = (uint8_t)(((state >> 24) & 0x17) |
                         0x20); /* small normal numbers in every float format */
    }
    for (uint32_t i = 0; i < BENCH_COLS; i++) x[i] = (float)(i % 37) * 0.11f - 2.0f;
    bool finite =
        sl_k_act_kind(type) == SL_ACT_F32 ||
        scalar->quantize(x, BENCH_COLS, sl_k_act_kind(type) == SL_ACT_Q8_32 ? 32 : 256, &q);
    SLUICE_ASSERT(finite);
    struct sl_k_act act = {.f = x, .q = q.q, .d = q.d, .sums = q.sums};
    struct sl_k_matmul m = {w, row_bytes, BENCH_ROWS, BENCH_COLS, &act, 1, y, BENCH_ROWS};
    scalar->matmul[type](&m);
    m.y = y + BENCH_ROWS;
    k->matmul[type](&m);
    *equal = memcmp(y, y + BENCH_ROWS, BENCH_ROWS * sizeof *y) == 0;
    sl_arena_deinit(&a);
    return SLUICE_OK;
}
