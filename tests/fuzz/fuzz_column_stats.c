/* Fuzzes the reader of column statistics: any bytes as a file, and the same as shapes and data
 * behind a head that opens, so that most inputs get as far as the numbers. What is accepted must
 * give finite means that are not negative, for its own names and for names of parts. */
#define _GNU_SOURCE /* memfd_create */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pack/column_stats_internal.h"
#include "tests/support/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (64u << 20)
#define INPUT_MAX 65536

static void check_name(const struct sl_column_stats *s, struct sl_str name)
{
    for (uint64_t i = 0; i < s->n; i++) {
        uint64_t count, cols = s->tensors[i].cols;
        const float *mean = sl_column_stats_find(s, name, cols, &count);
        CHECK((mean != NULL) == (count != 0 && count != UINT64_MAX));
        for (uint64_t c = 0; mean && c < cols; c++) CHECK(isfinite(mean[c]) && mean[c] >= 0);
    }
}

static void check_accepted(const struct sl_column_stats *s)
{
    uint64_t matrices = 0;
    CHECK(s->n > 0);
    for (uint64_t i = 0; i < s->n; i++) {
        matrices += s->tensors[i].n_matrices;
        if (i < 16) check_name(s, s->tensors[i].name);
    }
    CHECK(sl_column_stats_unreached(s, NULL, NULL) <= matrices);
    check_name(s, SL_STR("blk.0.ffn_gate.1.weight"));
    check_name(s, SL_STR("blk.1.ffn_down.0.weight"));
}

static void read_bytes(const uint8_t *data, size_t size)
{
    struct sl_budget budget;
    struct sl_column_stats *s = NULL;
    sluice_error e = {.code = 0};
    char path[64];
    int fd = memfd_create("sluice_fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    sl_budget_init(&budget, BUDGET_BYTES);
    sluice_err err = sl_column_stats_open(path, &budget, &e, &s);
    CHECK(err == e.code && (err == SLUICE_OK) == (s != NULL));
    if (s)
        check_accepted(s);
    else
        CHECK(e.text[0] != '\0' && strchr(e.text, '\n') == NULL);
    sl_column_stats_close(s);
    CHECK(sl_budget_used(&budget) == 0);
    close(fd);
}

/* A good head, then for each byte of the input's first part a pair of tensors whose shape the byte
 * chooses, and the rest as data. */
static void read_built(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"output.weight", "blk.0.ffn_gate_exps.weight",
                                        "blk.1.ffn_down_exps.weight",
                                        "blk.0.ffn_gate_up_exps.weight"};
    struct gguf_build b;
    char name[64];
    uint64_t at = 0;
    size_t n = size < 4 ? size : 4;
    gb_begin(&b, 3);
    gb_kv_str(&b, "general.type", "imatrix");
    for (size_t i = 0; i < n; i++) {
        uint64_t cols = 1 + (data[i] & 7), rows = 1 + (data[i] >> 3 & 3);
        snprintf(name, sizeof name, "%s.in_sum2", names[i]);
        gb_tensor(&b, name, SL_TYPE_F32, at, cols, rows);
        at += (4 * cols * rows + 31) / 32 * 32;
        snprintf(name, sizeof name, "%s.counts", names[i]);
        gb_tensor(&b, name, data[i] >> 6 == 3, at, 1, rows + (data[i] >> 5 == 5));
        at += 32;
    }
    while (b.n % 32) gb_uint(&b, 0, 1);
    gb_bytes(&b, data + n, size - n);
    for (uint64_t have = size - n; have < at; have++) gb_uint(&b, 0, 1);
    read_bytes(b.p, b.n);
    gb_end(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > INPUT_MAX) return 0;
    read_bytes(data, size);
    read_built(data, size);
    return 0;
}
