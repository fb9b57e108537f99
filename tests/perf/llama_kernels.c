/* Rates of llama.cpp's dot products beside those of our kernels, in turn, weight type by weight
 * type: one thread, one token, weights in cache.
 *
 *   llama_kernels LIBGGML_CPU.so [ROUNDS]
 *
 * The library is llama.cpp's own, built with its best flags (of llama-cpp-python: in
 * site-packages/llama_cpp/lib); its functions are called as its matrix product calls them, a row at
 * a time. Weights it has repacked for some types when it loads a model are not: whole models are
 * compared by resident_ab.sh. The fastest of ROUNDS rounds (5) counts for both. The container's
 * types follow, as a ratio to llama.cpp's Q3_K. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/kernels/kernel_bench.h"

#define COLS 2048
#define CACHE_BYTES (512u << 10)
#define ROUND_NS 30000000u

/* What ggml_get_type_traits_cpu hands out (ggml/include/ggml-cpu.h). */
struct traits {
    void (*from_float)(const float *x, void *y, int64_t n);
    void (*vec_dot)(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by,
                    int rows);
    int vec_dot_type;
    int64_t n_rows;
};

typedef const struct traits *traits_fn(int type);

static traits_fn *open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    void (*init)(void) = NULL;
    traits_fn *traits = NULL;
    if (!library) {
        (void)fprintf(stderr, "llama_kernels: %s\n", dlerror());
        return NULL;
    }
    *(void **)&init = dlsym(library, "ggml_cpu_init");
    *(void **)&traits = dlsym(library, "ggml_get_type_traits_cpu");
    if (!init || !traits) {
        (void)fprintf(stderr, "llama_kernels: %s is not llama.cpp's libggml-cpu\n", path);
        return NULL;
    }
    init();
    return traits;
}

/* Weights a second of llama.cpp, the fastest pass over all rows; 0: it has no such type. */
static double their_rate(traits_fn *traits_of, uint32_t type, uint32_t rows)
{
    static uint8_t weights[CACHE_BYTES + 65536], x[COLS * 8];
    static float floats[COLS], y[CACHE_BYTES / 256];
    const struct traits *t = traits_of((int)type);
    uint64_t row_bytes;
    if (!t || !t->vec_dot || !sl_type_row_bytes(type, COLS, &row_bytes)) return 0;
    const struct traits *of_x = traits_of(t->vec_dot_type);
    memset(weights, 0x21, sizeof weights); /* small numbers in every type */
    for (int i = 0; i < COLS; i++) floats[i] = (float)(i % 17) * 0.25f - 2.0f;
    memcpy(x, floats, sizeof floats); /* of F32 */
    if (of_x && of_x->from_float && t->vec_dot_type != 0) of_x->from_float(floats, x, COLS);
    uint64_t start = sl_now_ns(), now = start, best = UINT64_MAX;
    do {
        uint64_t before = now;
        for (uint32_t r = 0; r < rows; r++)
            t->vec_dot(COLS, y + r, 0, weights + r * row_bytes, 0, x, 0, 1);
        now = sl_now_ns();
        if (now - before < best) best = now - before;
    } while (now - start < ROUND_NS);
    return (double)rows * COLS * 1e9 / (double)best;
}

static double our_rate(uint32_t type, uint32_t rows)
{
    struct sl_budget budget;
    struct sl_kernel_bench_result r;
    sluice_error e;
    const struct sl_kernel_bench what = {.what = SL_KB_MATMUL,
                                         .type = type,
                                         .rows = rows,
                                         .cols = COLS,
                                         .n_tokens = 1,
                                         .min_ns = ROUND_NS};
    sl_budget_init(&budget, UINT64_MAX);
    if (sl_kernel_bench_run(&budget, SL_ISA_AUTO, &what, &e, &r)) return 0;
    return (double)r.elements / r.ns_best * 1e9;
}

int main(int argc, char **argv)
{
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 5;
    double q3_k = 0;
    traits_fn *traits = argc > 1 ? open_library(argv[1]) : NULL;
    if (!traits) {
        (void)fprintf(stderr, "usage: llama_kernels LIBGGML_CPU.so [ROUNDS]\n");
        return 2;
    }
    printf("%-8s %14s %12s %8s   (10^9 weights/s, one thread, in cache)\n", "type", "llama.cpp",
           "Sluice", "ratio");
    for (uint32_t slot = 0; slot < SL_TYPE_SLOTS; slot++) {
        uint32_t type = sl_type_of_slot(slot);
        uint64_t row_bytes;
        double theirs = 0, ours = 0;
        if (!sl_type_info(type) || !sl_type_row_bytes(type, COLS, &row_bytes)) continue;
        uint32_t rows = (uint32_t)(CACHE_BYTES / row_bytes / 8 * 8);
        for (long i = 0; i < rounds; i++) {
            double a = type < 256 ? their_rate(traits, type, rows) : q3_k;
            double b = our_rate(type, rows);
            if (a > theirs) theirs = a;
            if (b > ours) ours = b;
        }
        if (type == SL_TYPE_Q3_K) q3_k = theirs;
        printf("%-8s %14.2f %12.2f %8.2f%s\n", sl_type_name(type), theirs / 1e9, ours / 1e9,
               theirs > 0 ? ours / theirs : 0, type < 256 ? "" : "   (to its Q3_K)");
        (void)fflush(stdout);
    }
    return 0;
}
