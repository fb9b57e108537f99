/* Unicode normalization form C, for tokenizers that were trained on it.
 *
 * Nearly all text already is in NFC, so the text is cut into stretches that cannot influence one
 * another, and only those that may change are decomposed and composed again; the rest is copied,
 * or, where nothing changes at all, not even that. A new stretch begins at every character that
 * never combines with what stands before it; the ranges below are known to hold such characters
 * only. Marks are put in order by counting, so that a megabyte of them takes no longer than other
 * text.
 *
 * The only file that uses utf8proc: the properties of characters, decomposition of one of them,
 * composition. */
#include <utf8proc.h>

#include <string.h>

#include "engine/text/tokenizer_internal.h"

/* Characters below this neither combine backwards nor change under NFC. */
#define FIRST_COMBINING 0x300

/* first..last: a stretch may begin at each of them. stable: alone, they do not change either. Two
 * kinds: blocks of common letters and signs; and marks that Unicode got after version 9. The
 * reference's tables end there, for it they are letters like any other, and the models were trained
 * on what it made of them. Sorted. */
static const struct range {
    int32_t first, last;
    bool stable;
} starters[] = {
    {0x370, 0x3ff, false},    {0x400, 0x482, true},     {0x48a, 0x590, true},
    {0x7fd, 0x7fd, true},     {0x897, 0x89f, true},     {0x8ca, 0x8d3, true},
    {0x9fe, 0x9fe, true},     {0xc3c, 0xc3c, true},     {0xd3b, 0xd3c, true},
    {0xeba, 0xeba, true},     {0x1715, 0x1715, true},   {0x1abf, 0x1ace, true},
    {0x1df6, 0x1dfa, true},   {0x1e00, 0x1fff, false},  {0x2000, 0x206f, false},
    {0x3041, 0x3096, true},   {0x30a1, 0x30fa, true},   {0x3400, 0x4dbf, true},
    {0x4e00, 0x9fff, true},   {0xa82c, 0xa82c, true},   {0xac00, 0xd7a3, true},
    {0x10d24, 0x10d27, true}, {0x10d69, 0x10d6d, true}, {0x10eab, 0x10eac, true},
    {0x10efd, 0x10eff, true}, {0x10f46, 0x10f50, true}, {0x10f82, 0x10f85, true},
    {0x11070, 0x11070, true}, {0x1133b, 0x1133b, true}, {0x113ce, 0x113d0, true},
    {0x113e1, 0x113e2, true}, {0x1145e, 0x1145e, true}, {0x11839, 0x1183a, true},
    {0x11930, 0x11930, true}, {0x11938, 0x11938, true}, {0x1193d, 0x1193e, true},
    {0x11943, 0x11943, true}, {0x119e0, 0x119e0, true}, {0x11a34, 0x11a34, true},
    {0x11a47, 0x11a47, true}, {0x11a99, 0x11a99, true}, {0x11d42, 0x11d42, true},
    {0x11d44, 0x11d45, true}, {0x11d97, 0x11d97, true}, {0x11f41, 0x11f42, true},
    {0x1612f, 0x1612f, true}, {0x16ff0, 0x16ff1, true}, {0x1e08f, 0x1e08f, true},
    {0x1e130, 0x1e136, true}, {0x1e2ae, 0x1e2ae, true}, {0x1e2ec, 0x1e2ef, true},
    {0x1e4ec, 0x1e4ef, true}, {0x1e5ee, 0x1e5ef, true}, {0x1f000, 0x1faff, true},
};

static const struct range *starter_range(int32_t point)
{
    size_t lo = 0, hi = SL_ARRAY_LEN(starters);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (starters[mid].last < point)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < SL_ARRAY_LEN(starters) && starters[lo].first <= point ? &starters[lo] : NULL;
}

/* Decodes well-formed UTF-8. */
static int32_t decode(const char *text, size_t *n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        *n = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *n = 2;
        return (p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (p[0] < 0xf0) {
        *n = 3;
        return (p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *n = 4;
    return (p[0] & 0x07) << 18 | (p[1] & 0x3f) << 12 | (p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

static bool begins_stretch(int32_t point)
{
    return point < FIRST_COMBINING || starter_range(point) != NULL;
}

/* The bytes of the stretch at the start of text; *same: it does not change under NFC. */
static size_t next_stretch(struct sl_str text, bool *same)
{
    size_t n;
    int32_t first = decode(text.p, &n);
    const struct range *range = starter_range(first);
    *same = first < FIRST_COMBINING || (range != NULL && range->stable);
    size_t at = n;
    while (at < text.n && !begins_stretch(decode(text.p + at, &n))) {
        at += n;
        *same = false;
    }
    return at;
}

/* Bytes at the start of text that are single stretches and do not change. ASCII before ASCII, the
 * common case, is one. */
static size_t unchanged_prefix(struct sl_str text)
{
    size_t at = 0;
    while (at < text.n) {
        while (at + 1 < text.n &&
               ((unsigned char)text.p[at] | (unsigned char)text.p[at + 1]) < 0x80)
            at++;
        bool same;
        size_t n = next_stretch((struct sl_str){text.p + at, text.n - at}, &same);
        if (!same) return at;
        at += n;
    }
    return at;
}

/* Puts marks between starters in order of their combining class, equal ones as they were. scratch
 * has room for n. */
static void order_marks(int32_t *points, int32_t *scratch, uint64_t n)
{
    uint64_t count[256] = {0};
    for (uint64_t i = 0; i < n; i++) {
        scratch[i] = points[i];
        count[utf8proc_get_property(points[i])->combining_class]++;
    }
    uint64_t at = 0;
    for (int c = 0; c < 256; c++) {
        uint64_t here = count[c];
        count[c] = at;
        at += here;
    }
    for (uint64_t i = 0; i < n; i++)
        points[count[utf8proc_get_property(scratch[i])->combining_class]++] = scratch[i];
}

static void order_all_marks(int32_t *points, int32_t *scratch, uint64_t n)
{
    uint64_t begin = 0; /* of the run of marks */
    for (uint64_t i = 0; i <= n; i++) {
        if (i < n && utf8proc_get_property(points[i])->combining_class != 0) continue;
        if (i - begin > 1) order_marks(points + begin, scratch, i - begin);
        begin = i + 1;
    }
}

/* The decomposition of a stretch in n->points; as much room again follows it. */
static sluice_err decompose(struct normalizer *z, struct sl_str text, uint64_t *count)
{
    uint64_t n = 0;
    for (size_t at = 0, step; at < text.n; at += step) {
        int32_t point = decode(text.p + at, &step);
        int32_t parts[32]; /* the longest canonical decomposition has 4 */
        int boundary = 0;
        utf8proc_ssize_t k = utf8proc_decompose_char(
            point, parts, SL_ARRAY_LEN(parts), UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        SLUICE_ASSERT(k >= 1 && (size_t)k <= SL_ARRAY_LEN(parts));
        uint64_t want = 2 * (n + (uint64_t)k);
        if (want > z->points_capacity) {
            sluice_err err =
                sl_grow(z->budget, &z->points, &z->points_capacity, want, sizeof *z->points);
            if (err != SLUICE_OK) return err;
        }
        memcpy(z->points + n, parts, (size_t)k * sizeof *parts);
        n += (uint64_t)k;
    }
    *count = n;
    return SLUICE_OK;
}

static sluice_err normalize_stretch(struct normalizer *z, struct sl_str text)
{
    uint64_t n = 0;
    sluice_err err = decompose(z, text, &n);
    if (err != SLUICE_OK) return err;
    /* What begins a stretch stays first, even where it is a mark for utf8proc. */
    size_t step;
    uint64_t fixed = begins_stretch(decode(text.p, &step)) ? 1 : 0;
    order_all_marks(z->points + fixed, z->points + n, n - fixed);
    utf8proc_ssize_t left = utf8proc_normalize_utf32(z->points, (utf8proc_ssize_t)n,
                                                     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    SLUICE_ASSERT(left >= 1 && (uint64_t)left <= n);
    for (utf8proc_ssize_t i = 0; i < left && err == SLUICE_OK; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t k = utf8proc_encode_char(z->points[i], bytes);
        err = byte_buf_add(&z->out, z->budget, (const char *)bytes, (size_t)k);
    }
    return err;
}

sluice_err normalize_nfc(struct normalizer *z, struct sl_str text, struct sl_str *out,
                         sluice_error *e)
{
    *out = text;
    size_t at = unchanged_prefix(text);
    if (at == text.n) return SLUICE_OK;
    z->out.n = 0;
    sluice_err err = byte_buf_add(&z->out, z->budget, text.p, at);
    while (err == SLUICE_OK && at < text.n) {
        struct sl_str rest = {text.p + at, text.n - at};
        bool same;
        size_t n = next_stretch(rest, &same);
        if (same) n = unchanged_prefix(rest);
        err = same ? byte_buf_add(&z->out, z->budget, rest.p, n)
                   : normalize_stretch(z, (struct sl_str){rest.p, n});
        at += n;
    }
    if (err != SLUICE_OK) return tokenizer_no_memory(e, err, "normalizing the text");
    *out = (struct sl_str){z->out.p, z->out.n};
    return SLUICE_OK;
}

void normalizer_deinit(struct normalizer *z)
{
    sl_free(z->points);
    sl_free(z->out.p);
}
