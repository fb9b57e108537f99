/* The header of each part of a container, and the names of parts. A header is a block of its own
 * with its own checksum; all parts of a container carry the same place and checksum of the index,
 * so that parts of two containers cannot be mixed. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_internal.h"

#define SUM_AT (SL_CN_HEADER_BYTES - 8)
#define USED_BYTES 64 /* of the header, before its checksum */
#define EXTENSION ".sluice"

static const unsigned char magic[8] = {'S', 'L', 'U', 'I', 'C', '\r', '\n', 0x1A};

sluice_err sl_cn_fail(sluice_error *e, sluice_err code, const char *path, const char *fmt, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX], shown[SL_GG_SHOW_PATH_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sl_fail(e, code, "%s: %s", sl_gg_show_path(path, shown), text);
}

bool sl_cn_has_magic(const unsigned char *in) { return memcmp(in, magic, sizeof magic) == 0; }

void sl_cn_header_encode(const struct sl_cn_header *h, unsigned char *out)
{
    memset(out, 0, SL_CN_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    sl_cn_put(out + 8, h->version, 4);
    sl_cn_put(out + 12, h->n_parts, 4);
    sl_cn_put(out + 16, h->part, 4);
    sl_cn_put(out + 24, h->file_bytes, 8);
    sl_cn_put(out + 32, h->total_bytes, 8);
    sl_cn_put(out + 40, h->index_offset, 8);
    sl_cn_put(out + 48, h->index_bytes, 8);
    sl_cn_put(out + 56, h->index_sum, 8);
    sl_cn_put(out + SUM_AT, sl_xxh3(out, SUM_AT), 8);
}

/* Magic and version come first: what a newer version means by the rest is not known. */
static sluice_err check_kind(const unsigned char *in, const char *path, sluice_error *e)
{
    uint32_t version = sl_gg_load_u32(in + 8);

    for (uint32_t i = 0; i < SL_CN_HEADER_BYTES && in[i] == 0; i++) {
        if (i == SL_CN_HEADER_BYTES - 1)
            return sl_cn_fail(e, SLUICE_E_TRUNCATED, path,
                              "the file has no header yet: packing or copying was not finished");
    }
    if (!sl_cn_has_magic(in)) return sl_cn_fail(e, SLUICE_E_FORMAT, path, "this is no container");
    if (version != SL_CN_VERSION)
        return sl_cn_fail(e, SLUICE_E_VERSION, path,
                          "the container is of version %" PRIu32
                          ", this build reads version %u; a newer Sluice may be needed",
                          version, SL_CN_VERSION);
    if (sl_gg_load_u64(in + SUM_AT) != sl_xxh3(in, SUM_AT))
        return sl_cn_fail(e, SLUICE_E_CORRUPT, path,
                          "the header does not match its checksum: the file is damaged");
    return SLUICE_OK;
}

static bool unused_is_zero(const unsigned char *in)
{
    for (uint32_t i = USED_BYTES; i < SUM_AT; i++) {
        if (in[i] != 0) return false;
    }
    return sl_gg_load_u32(in + 20) == 0;
}

/* What the numbers of a header whose checksum is right must be among themselves. */
static bool plausible(const struct sl_cn_header *h)
{
    uint64_t end;

    if (h->n_parts == 0 || h->n_parts > SL_CN_PARTS_MAX || h->part >= h->n_parts) return false;
    if (h->file_bytes % SL_CN_ALIGN != 0 || h->file_bytes > h->total_bytes) return false;
    if (h->file_bytes < 2 * SL_CN_ALIGN || h->total_bytes > INT64_MAX) return false;
    if (h->n_parts == 1 && h->file_bytes != h->total_bytes) return false;
    if (h->index_bytes == 0 || h->index_bytes > SL_CN_INDEX_MAX) return false;
    if (h->index_offset % SL_CN_ALIGN != 0 || h->index_offset < SL_CN_HEADER_BYTES) return false;
    if (!sl_align_ok(h->index_bytes, SL_CN_ALIGN, &end) || !sl_add_ok(end, h->index_offset, &end))
        return false;
    return h->part + 1 < h->n_parts || end == h->file_bytes;
}

sluice_err sl_cn_header_decode(const unsigned char *in, uint64_t file_bytes, const char *path,
                               struct sl_cn_header *out, sluice_error *e)
{
    sluice_err err = check_kind(in, path, e);

    if (err != SLUICE_OK) return err;
    *out = (struct sl_cn_header){
        .version = sl_gg_load_u32(in + 8),
        .n_parts = sl_gg_load_u32(in + 12),
        .part = sl_gg_load_u32(in + 16),
        .file_bytes = sl_gg_load_u64(in + 24),
        .total_bytes = sl_gg_load_u64(in + 32),
        .index_offset = sl_gg_load_u64(in + 40),
        .index_bytes = sl_gg_load_u64(in + 48),
        .index_sum = sl_gg_load_u64(in + 56),
    };
    if (!plausible(out) || !unused_is_zero(in))
        return sl_cn_fail(e, SLUICE_E_FORMAT, path, "the header contradicts itself");
    if (file_bytes < out->file_bytes)
        return sl_cn_fail(e, SLUICE_E_TRUNCATED, path,
                          "file is %" PRIu64 " bytes, needs %" PRIu64 ": download incomplete",
                          file_bytes, out->file_bytes);
    if (file_bytes > out->file_bytes)
        return sl_cn_fail(e, SLUICE_E_FORMAT, path,
                          "file is %" PRIu64 " bytes, but its header says %" PRIu64, file_bytes,
                          out->file_bytes);
    return SLUICE_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Bytes of path before its extension, if it has that. */
static size_t stem_bytes(const char *path)
{
    struct sl_str s = {path, strlen(path)};

    return sl_str_ends(s, EXTENSION) ? s.n - strlen(EXTENSION) : s.n;
}

char *sl_cn_part_path(const char *path, uint32_t part, uint32_t n_parts, const char *suffix,
                      struct sl_budget *b)
{
    size_t n = strlen(path), stem = stem_bytes(path);
    size_t size = n + 32 + strlen(suffix) + 1;
    char *name = sl_alloc(b, size, 1);

    if (name == NULL) return NULL;
    if (n_parts == 1)
        snprintf(name, size, "%s%s", path, suffix);
    else
        snprintf(name, size, "%.*s-%05" PRIu32 "-of-%05" PRIu32 "%s%s", (int)stem, path, part + 1,
                 n_parts, path + stem, suffix);
    return name;
}

char *sl_cn_whole_path(const char *path, uint32_t part, uint32_t n_parts, struct sl_budget *b)
{
    size_t n = strlen(path), stem = stem_bytes(path);
    char number[40];
    char *name = sl_alloc(b, n + 1, 1);

    if (name == NULL) return NULL;
    memcpy(name, path, n + 1);
    snprintf(number, sizeof number, "-%05" PRIu32 "-of-%05" PRIu32, part + 1, n_parts);
    if (n_parts > 1 && sl_str_ends((struct sl_str){path, stem}, number))
        memmove(name + stem - strlen(number), path + stem, n - stem + 1);
    return name;
}
