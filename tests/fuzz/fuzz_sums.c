/* Fuzzes the reader of sums files: any bytes as the sums file of a small fixed model, as they are,
 * with the closing checksum put right, and with the head put right too, so that inputs get past
 * both. What is accepted must be the input's own words, and memory taken must not depend on the
 * input. An input that begins like a GGUF is a model instead, whose division into pieces must cover
 * its tensors exactly. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/gguf_internal.h"
#include "formats/sums_internal.h"
#include "tests/support/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (1u << 20)
#define INPUT_MAX 4096
#define EXPERTS 3
#define ROWS 5
#define PIECES (EXPERTS + ROWS + 1)

static int new_memfd(const void *bytes, size_t n, char path[64])
{
    int fd = memfd_create("sluice_fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(n == 0 || write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* The model, opened once and never closed. */
static struct sl_gguf *fixed_model(void)
{
    static struct sl_budget budget;
    static struct sl_gguf *g;
    struct gguf_build b;
    char path[64];

    if (g != NULL) return g;
    gb_begin(&b, 3);
    gb_tensor_dims(&b, "e_exps", SL_TYPE_F32, 0, (const uint64_t[]){4, 2, EXPERTS}, 3);
    gb_tensor(&b, "token_embd.weight", SL_TYPE_F32, 96, 8, ROWS);
    gb_tensor(&b, "norm.weight", SL_TYPE_F32, 256, 3, 1);
    gb_data(&b, 32, 288);
    (void)new_memfd(b.p, b.n, path);
    gb_end(&b);
    sl_budget_init(&budget, UINT64_MAX);
    CHECK(sl_gguf_open(path, &budget, NULL, &g) == SLUICE_OK);
    return g;
}

static void check_accepted(const struct sl_gguf *g, const struct sl_sums *s, const uint8_t *data,
                           size_t size)
{
    uint64_t piece_bytes;
    size_t at = SL_SUMS_HEAD_BYTES + 8 * SL_SUMS_FILE_WORDS;

    CHECK(size == at + 8 * PIECES + 8);
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        uint64_t n = sl_sums_pieces(sl_gguf_tensor(g, i), &piece_bytes);
        for (uint64_t k = 0; k < n; k++, at += 8)
            CHECK(sl_sums_get(s, i, k) == sl_sums_take(data + at, 8));
    }
    CHECK(at + 8 == size);
}

static void read_sums(const uint8_t *data, size_t size)
{
    struct sl_gguf *g = fixed_model();
    struct sl_budget budget;
    struct sl_file *f;
    struct sl_sums *s;
    sluice_error e = {.code = 0};
    char path[64];
    int fd = new_memfd(data, size, path);

    sl_budget_init(&budget, BUDGET_BYTES);
    CHECK(sl_file_open(path, &budget, NULL, &f) == SLUICE_OK);
    uint64_t before = sl_budget_used(&budget);
    sluice_err err = sl_sums_read(f, g, &budget, &e, &s);
    CHECK(err == e.code && (err == SLUICE_OK) == (s != NULL));
    CHECK(sl_budget_used(&budget) == before + (s != NULL ? sl_sums_bytes(g) : 0));
    CHECK(atomic_load(&budget.peak_bytes) <= before + sl_sums_bytes(g));
    if (s != NULL) check_accepted(g, s, data, size);
    if (s == NULL) CHECK(e.text[0] != '\0' && strchr(e.text, '\n') == NULL);
    sl_sums_close(s);
    sl_file_close(f);
    CHECK(sl_budget_used(&budget) == 0);
    close(fd);
}

static void read_model(const uint8_t *data, size_t size)
{
    struct sl_budget budget;
    struct sl_gguf *g;
    uint64_t total = 0, counted = 0, piece_bytes;

    sl_budget_init(&budget, 16 * BUDGET_BYTES);
    if (sl_gg_open_memory(data, size, &budget, NULL, &g) != SLUICE_OK) return;
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        uint64_t n = sl_sums_pieces(t, &piece_bytes);
        CHECK(n >= 1 && piece_bytes >= 1 && n * piece_bytes == t->bytes);
        total += n;
    }
    CHECK(sl_sums_count(g, &counted) && counted == total);
    CHECK(sl_sums_bytes(g) > 8 * total);
    sl_gguf_close(g);
    CHECK(sl_budget_used(&budget) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t fixed[INPUT_MAX];

    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        read_model(data, size);
        return 0;
    }
    read_sums(data, size);
    if (size < SL_SUMS_HEAD_BYTES + 8 || size > sizeof fixed) return 0;
    memcpy(fixed, data, size);
    sl_sums_put(fixed + size - 8, sl_xxh3(fixed, size - 8), 8);
    read_sums(fixed, size);
    sl_sums_head(fixed_model(), PIECES, fixed);
    sl_sums_put(fixed + size - 8, sl_xxh3(fixed, size - 8), 8);
    read_sums(fixed, size);
    return 0;
}
