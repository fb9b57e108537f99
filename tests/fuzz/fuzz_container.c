/* Fuzzes the reader of containers. The first byte of an input chooses:
 *
 *   0..127    so many blocks of records (of zeros) lie between a right header and the rest of the
 *             input as the index, under right checksums: what gets past those is the parser's
 *   128..255  the next 56 bytes are the header's own after magic and version, under a right
 *             checksum; the rest is the index
 *
 * What is accepted must be consistent: every tensor lies in a record and in its file, those of an
 * expert in its own, records follow one another, memory is bounded by the input's size, and verify
 * gives an error or none. tests/fuzz/make_container_seeds.py makes seeds with sluice pack. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/checksum.h"
#include "formats/container_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define INDEX_MAX (1u << 16)
#define BLOCKS_MAX 128u
#define HEADER_INPUT 56u
#define BUDGET_BYTES ((uint64_t)64 << 20)

static unsigned char index_block[INDEX_MAX + SL_CN_ALIGN];
static unsigned char header_block[SL_CN_HEADER_BYTES];

/* ---- the file -------------------------------------------------------------------------------- */

/* Makes header_block, and index_block of *padded bytes. */
static void build_right(unsigned blocks, const uint8_t *index, size_t n, uint64_t *padded)
{
    memset(index_block, 0, sizeof index_block);
    if (n > 0) memcpy(index_block, index, n);
    *padded = (n + SL_CN_ALIGN - 1) / SL_CN_ALIGN * SL_CN_ALIGN;
    uint64_t at = SL_CN_HEADER_BYTES + (uint64_t)blocks * SL_CN_ALIGN;
    struct sl_cn_header h = {.version = SL_CN_VERSION,
                             .n_parts = 1,
                             .file_bytes = at + *padded,
                             .total_bytes = at + *padded,
                             .index_offset = at,
                             .index_bytes = n,
                             .index_sum = sl_xxh3(index_block, *padded)};
    sl_cn_header_encode(&h, header_block);
}

static void build_from_input(const uint8_t *fields, const uint8_t *index, size_t n,
                             uint64_t *padded)
{
    build_right(1, index, n, padded);
    memcpy(header_block + 8, fields, HEADER_INPUT);
    sl_cn_put(header_block + 8, SL_CN_VERSION, 4);
    sl_cn_put(header_block + SL_CN_HEADER_BYTES - 8, sl_xxh3(header_block, SL_CN_HEADER_BYTES - 8),
              8);
}

static int write_file(uint64_t index_at, uint64_t padded, char path[64])
{
    int fd = memfd_create("sluice_fuzz", MFD_CLOEXEC);

    CHECK(fd >= 0);
    CHECK(pwrite(fd, header_block, sizeof header_block, 0) == (ssize_t)sizeof header_block);
    CHECK(pwrite(fd, index_block, padded, (off_t)index_at) == (ssize_t)padded);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* Whether the name is that of a part of the record's expert. */
static bool is_its_part(struct sl_str name, const struct sl_container_record *r)
{
    static const char *const parts[] = {"gate", "up", "down"};
    char wanted[64];

    for (size_t i = 0; i < SL_ARRAY_LEN(parts); i++) {
        snprintf(wanted, sizeof wanted, "blk.%d.ffn_%s.%d.weight", (int)r->layer, parts[i],
                 (int)r->expert);
        if (sl_str_eq(name, wanted)) return true;
    }
    return false;
}

static void check_tensors(const struct sl_gguf *g)
{
    for (uint32_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        uint64_t last = t->offset + t->bytes - 1;

        CHECK(t->bytes >= 1 && t->name.n >= 1);
        CHECK(last < sl_file_bytes(sl_gguf_file(g, t->shard)));
        const struct sl_container_record *r = sl_gguf_record(g, t->shard, t->offset);
        const struct sl_container_record *end = sl_gguf_record(g, t->shard, last);
        CHECK(r != NULL && end != NULL);
        CHECK(r->layer < 0 ? end->layer < 0 : end == r && is_its_part(t->name, r));
    }
}

static void check_keys(const struct sl_gguf *g)
{
    char text[64];

    for (uint32_t i = 0; i < sl_gguf_n_keys(g); i++) {
        CHECK(sl_gguf_key(g, i).n >= 1);
        CHECK(strlen(sl_gguf_key_show(g, i, text, sizeof text)) < sizeof text);
    }
}

static void check_accepted(struct sl_container *c, struct sl_budget *b)
{
    const struct sl_gguf *g = sl_container_model(c);
    uint64_t at = SL_CN_HEADER_BYTES;
    sluice_error e = {.code = 0};

    for (uint64_t i = 0; i < sl_container_n_records(c); i++) {
        const struct sl_container_record *r = sl_container_record(c, i);

        CHECK(r->part == 0 && r->offset == at && r->bytes > 0);
        at += r->bytes;
    }
    CHECK(at < sl_file_bytes(sl_gguf_file(g, 0)));
    check_tensors(g);
    check_keys(g);
    sluice_err err = sl_container_verify(c, b, NULL, NULL, &e);
    CHECK(err == SLUICE_OK || err == SLUICE_E_CORRUPT);
    CHECK(err == e.code);
}

static void read_file(const char *path)
{
    struct sl_budget budget;
    struct sl_container *c;
    sluice_error e = {.code = 0};

    sl_budget_init(&budget, BUDGET_BYTES);
    sluice_err err = sl_container_open(path, &budget, &e, &c);
    CHECK(err == e.code && (err == SLUICE_OK) == (c != NULL));
    CHECK(err != SLUICE_E_BUDGET && err != SLUICE_E_NOMEM);
    if (c != NULL) check_accepted(c, &budget);
    if (c == NULL) CHECK(e.text[0] != '\0' && strchr(e.text, '\n') == NULL);
    sl_container_close(c);
    CHECK(sl_budget_used(&budget) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t padded, index_at;
    char path[64];

    if (size < 2 || size > INDEX_MAX) return 0;
    if (data[0] < BLOCKS_MAX) {
        build_right(data[0], data + 1, size - 1, &padded);
        index_at = SL_CN_HEADER_BYTES + (uint64_t)data[0] * SL_CN_ALIGN;
    } else {
        if (size < 2 + HEADER_INPUT) return 0;
        build_from_input(data + 1, data + 1 + HEADER_INPUT, size - 1 - HEADER_INPUT, &padded);
        index_at = SL_CN_HEADER_BYTES + SL_CN_ALIGN;
    }
    int fd = write_file(index_at, padded, path);
    read_file(path);
    close(fd);
    return 0;
}
