/* Bytes of a GGUF header: loads a file from its start in steps that double, never past its end, and
 * checks every read against the bytes that are left. Nothing here trusts a length: what a file
 * claims is compared with what it has before anything is loaded or allocated for it.
 *
 * The bytes land in a region of address space, so they never move and nothing is copied as more are
 * loaded. */
#include "formats/gguf_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ALLOCATION_EXTRA_BYTES                                                                     \
    8192 /* what an allocation may be charged beyond its size: header, arena chunk */

sluice_err sl_gg_cursor_init(struct sl_gg_cursor *c, struct sl_file *f, struct sl_budget *b,
                             sluice_error *e)
{
    uint64_t reserve;
    sluice_err err;

    memset(c, 0, sizeof *c);
    c->file = f;
    c->file_bytes = sl_file_bytes(f);
    c->path = sl_file_path(f);
    c->what = "the header";
    c->e = e;
    reserve = sl_min_u64(c->file_bytes, SL_GG_HEADER_MAX);
    err = sl_region_reserve(&c->region, b, sl_max_u64(reserve, 1));
    if (err != SLUICE_OK) {
        memset(&c->region, 0, sizeof c->region);
        return sl_gg_fail(c, err, "no address space for the header (%" PRIu64 " bytes)", reserve);
    }
    c->base = c->region.base;
    return SLUICE_OK;
}

void sl_gg_cursor_init_memory(struct sl_gg_cursor *c, const void *bytes, uint64_t n,
                              sluice_error *e)
{
    memset(c, 0, sizeof *c);
    c->base = bytes;
    c->loaded = n;
    c->file_bytes = n;
    c->path = "(memory)";
    c->what = "the header";
    c->e = e;
}

void sl_gg_cursor_deinit(struct sl_gg_cursor *c)
{
    if (c->region.base != NULL) sl_region_deinit(&c->region);
    memset(c, 0, sizeof *c);
}

const char *sl_gg_show_path(const char *path, char *buf)
{
    size_t n = strlen(path);
    char tail[SL_GG_SHOW_PATH_MAX];
    const size_t keep = sizeof tail - 4;

    if (n < SL_GG_SHOW_PATH_MAX) {
        return sl_str_show((struct sl_str){path, n}, buf, SL_GG_SHOW_PATH_MAX);
    }
    memcpy(tail, "...", 3);
    memcpy(tail + 3, path + n - keep, keep);
    return sl_str_show((struct sl_str){tail, keep + 3}, buf, SL_GG_SHOW_PATH_MAX);
}

sluice_err sl_gg_fail(const struct sl_gg_cursor *c, sluice_err code, const char *fmt, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX], path[SL_GG_SHOW_PATH_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    code = sl_fail(c->e, code, "%s: %s", sl_gg_show_path(c->path, path), text);
    if (c->e != NULL) c->e->file_offset = c->at;
    return code;
}

sluice_err sl_gg_no_memory(const struct sl_budget *b, uint64_t bytes, const char *path,
                           sluice_error *e)
{
    char shown[SL_GG_SHOW_PATH_MAX];
    uint64_t used = atomic_load_explicit(&b->used_bytes, memory_order_relaxed);
    uint64_t room = b->limit_bytes - sl_min_u64(used, b->limit_bytes);
    bool budget = room < ALLOCATION_EXTRA_BYTES || bytes > room - ALLOCATION_EXTRA_BYTES;

    return sl_fail(e, budget ? SLUICE_E_BUDGET : SLUICE_E_NOMEM,
                   "%s: no memory for %" PRIu64 " bytes of the model's description (budget %" PRIu64
                   " bytes, %" PRIu64 " in use)",
                   sl_gg_show_path(path, shown), bytes, b->limit_bytes, used);
}

/* The file ends before bytes more, which c->what needs. A length that no header can have is a
 * broken file, any other may as well be a broken download; the sentence says so. */
static sluice_err fail_short(const struct sl_gg_cursor *c, uint64_t bytes)
{
    char name[SL_GG_SHOW_MAX];
    uint64_t left = c->file_bytes - c->at;
    bool absurd = bytes > SL_GG_HEADER_MAX;

    sl_str_show(c->name, name, sizeof name);
    return sl_gg_fail(c, absurd ? SLUICE_E_FORMAT : SLUICE_E_TRUNCATED,
                      "%s%s%s%s needs %" PRIu64 " bytes at offset %" PRIu64
                      ", but the file is %" PRIu64 " bytes and has %" PRIu64 " left: %s",
                      c->what, c->name.n > 0 ? " '" : "", name, c->name.n > 0 ? "'" : "", bytes,
                      c->at, c->file_bytes, left,
                      absurd ? "the file is damaged"
                             : "download incomplete, or the file is damaged");
}

/* Loads at least up to byte end, which lies in the file. */
static sluice_err load(struct sl_gg_cursor *c, uint64_t end)
{
    uint64_t most = sl_min_u64(c->file_bytes, SL_GG_HEADER_MAX);
    uint64_t target;
    sluice_err err;

    if (end > most) {
        return sl_gg_fail(c, SLUICE_E_LIMIT, "the header is longer than %" PRIu64 " bytes",
                          (uint64_t)SL_GG_HEADER_MAX);
    }
    SLUICE_ASSERT(c->file != NULL);
    target = sl_max_u64(end, sl_max_u64(SL_GG_STEP_BYTES, 2 * c->loaded));
    target = sl_min_u64(target, most);
    err = sl_region_commit(&c->region, target);
    if (err != SLUICE_OK) {
        return sl_gg_fail(c, err, "no memory for a header of %" PRIu64 " bytes or more", target);
    }
    err = sl_file_read_at(c->file, c->loaded, c->region.base + c->loaded, target - c->loaded, c->e);
    if (err == SLUICE_OK) c->loaded = target;
    return err;
}

sluice_err sl_gg_need(struct sl_gg_cursor *c, uint64_t bytes)
{
    SLUICE_DASSERT(c->at <= c->file_bytes);
    if (bytes > c->file_bytes - c->at) return fail_short(c, bytes);
    if (c->at + bytes > c->loaded) return load(c, c->at + bytes);
    return SLUICE_OK;
}

sluice_err sl_gg_fits(struct sl_gg_cursor *c, uint64_t count, uint64_t size)
{
    uint64_t bytes;

    if (!sl_mul_ok(count, size, &bytes)) bytes = UINT64_MAX;
    return bytes > c->file_bytes - c->at ? fail_short(c, bytes) : SLUICE_OK;
}

sluice_err sl_gg_read_u32(struct sl_gg_cursor *c, uint32_t *out)
{
    sluice_err err = sl_gg_need(c, 4);

    if (err != SLUICE_OK) return err;
    *out = sl_gg_load_u32(c->base + c->at);
    c->at += 4;
    return SLUICE_OK;
}

sluice_err sl_gg_read_u64(struct sl_gg_cursor *c, uint64_t *out)
{
    sluice_err err = sl_gg_need(c, 8);

    if (err != SLUICE_OK) return err;
    *out = sl_gg_load_u64(c->base + c->at);
    c->at += 8;
    return SLUICE_OK;
}

sluice_err sl_gg_read_str(struct sl_gg_cursor *c, struct sl_str *out)
{
    uint64_t n;
    sluice_err err = sl_gg_read_u64(c, &n);

    if (err == SLUICE_OK) err = sl_gg_need(c, n);
    if (err != SLUICE_OK) return err;
    *out = (struct sl_str){(const char *)c->base + c->at, n};
    c->at += n;
    return SLUICE_OK;
}
