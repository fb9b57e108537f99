/* gzip streams by zlib, the only file that knows it. A stream may have several members, as `cat
 * a.gz b.gz` makes them. zlib's memory comes from the budget. */
#include "trace/gzip.h"

#include <string.h>

bool sl_gzip_is(const void *data, uint64_t bytes)
{
    return bytes >= 2 && memcmp(data, "\x1f\x8b", 2) == 0;
}

#if SLUICE_HAVE_ZLIB
#include <zlib.h>

#define WINDOW (15 + 16) /* the largest window, with gzip's header */

struct sl_gzip {
    z_stream z;
    bool pack, between; /* between: a member has ended, no other has begun */
};

static void *take(void *budget, uInt count, uInt size) { return sl_alloc(budget, count, size); }
static void give(void *budget, void *block)
{
    (void)budget;
    sl_free(block);
}

sluice_err sl_gzip_open(bool pack, struct sl_budget *b, sluice_error *e, struct sl_gzip **out)
{
    struct sl_gzip *g = sl_alloc(b, 1, sizeof *g);
    int code = Z_MEM_ERROR;
    *out = NULL;
    if (g) {
        g->pack = pack;
        g->z.zalloc = take;
        g->z.zfree = give;
        g->z.opaque = b;
        if (pack)
            code = deflateInit2(&g->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WINDOW, 8,
                                Z_DEFAULT_STRATEGY);
        else
            code = inflateInit2(&g->z, WINDOW);
    }
    if (code != Z_OK) {
        sl_free(g);
        return sl_fail(e, SLUICE_E_BUDGET, "gzip's buffers do not fit into memory");
    }
    *out = g;
    return SLUICE_OK;
}

sluice_err sl_gzip_run(struct sl_gzip *g, struct sl_gzip_step *s, sluice_error *e)
{
    uInt in = (uInt)sl_min_u64(s->n, 1u << 30), out = (uInt)sl_min_u64(s->room, 1u << 30);
    union { /* zlib's headers take input without const in some builds; it is not written to */
        const void *read;
        Bytef *bytes;
    } input = {s->in};
    g->z.next_in = input.bytes;
    g->z.avail_in = in;
    g->z.next_out = s->out;
    g->z.avail_out = out;
    int code = Z_OK;
    if (g->pack) {
        code = deflate(&g->z, s->last && in == s->n ? Z_FINISH : Z_NO_FLUSH);
    } else {
        if (g->between && in) code = inflateReset(&g->z);
        if (in) g->between = false;
        if (code == Z_OK) code = inflate(&g->z, Z_NO_FLUSH);
    }
    s->taken = in - g->z.avail_in;
    s->made = out - g->z.avail_out;
    s->ended = code == Z_STREAM_END;
    if (s->ended) g->between = true;
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) return SLUICE_OK;
    if (code == Z_MEM_ERROR)
        return sl_fail(e, SLUICE_E_BUDGET, "gzip's buffers do not fit into memory");
    return sl_fail(e, SLUICE_E_CORRUPT, "the gzip stream is damaged (%s)",
                   g->z.msg ? g->z.msg : "no gzip data");
}

bool sl_gzip_whole(const struct sl_gzip *g) { return g->between; }

void sl_gzip_close(struct sl_gzip *g)
{
    if (g == NULL) return;
    if (g->pack)
        (void)deflateEnd(&g->z);
    else
        (void)inflateEnd(&g->z);
    sl_free(g);
}

#else

sluice_err sl_gzip_open(bool pack, struct sl_budget *b, sluice_error *e, struct sl_gzip **out)
{
    (void)b;
    *out = NULL;
    return sl_fail(e, SLUICE_E_UNSUPPORTED,
                   pack ? "this program was built without zlib: write a name without .gz, then "
                          "pack it with gzip"
                        : "the file is gzipped, and this program was built without zlib: unpack "
                          "it with gunzip first");
}

sluice_err sl_gzip_run(struct sl_gzip *z, struct sl_gzip_step *s, sluice_error *e)
{
    (void)z;
    (void)s;
    return sl_fail(e, SLUICE_E_UNSUPPORTED, "this program was built without zlib");
}

bool sl_gzip_whole(const struct sl_gzip *z)
{
    (void)z;
    return true;
}

void sl_gzip_close(struct sl_gzip *z) { (void)z; }

#endif
