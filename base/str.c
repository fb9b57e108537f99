/* String views: comparing them, and showing bytes from a file to a human.
 *
 * Names in model files are hostile until shown otherwise, so whatever goes into a message passes
 * through sl_str_show: no control bytes (they could drive a terminal), no broken UTF-8 (it would
 * break a JSON writer), bounded length. */
#include <string.h>

#include "base/utf8.h"

bool sl_str_eq(struct sl_str a, const char *b)
{
    size_t n = strlen(b);
    return a.n == n && (n == 0 || memcmp(a.p, b, n) == 0);
}

bool sl_str_same(struct sl_str a, struct sl_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool sl_str_starts(struct sl_str a, const char *prefix)
{
    size_t n = strlen(prefix);
    return a.n >= n && (n == 0 || memcmp(a.p, prefix, n) == 0);
}

bool sl_str_ends(struct sl_str a, const char *suffix)
{
    size_t n = strlen(suffix);
    return a.n >= n && (n == 0 || memcmp(a.p + (a.n - n), suffix, n) == 0);
}

/* Bytes of the well-formed UTF-8 character at the start of s, 0 where there is none. Overlong
 * forms, surrogates and anything above U+10FFFF are not well formed (Unicode 15, table 3-7). */
size_t sl_utf8_char_bytes(struct sl_str s)
{
    if (s.n == 0) return 0;
    unsigned char lead = (unsigned char)s.p[0];
    if (lead < 0x80) return 1;
    size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || s.n < n) return 0;
    unsigned char low = 0x80, high = 0xBF; /* the range of the second byte */
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    for (size_t i = 1; i < n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < low || c > high) return 0;
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

/* U+0000..U+001F, U+007F and U+0080..U+009F: terminals act on both blocks. */
static bool is_control(const char *p, size_t n)
{
    unsigned char c = (unsigned char)p[0];
    if (n == 1) return c < 0x20 || c == 0x7F;
    return n == 2 && c == 0xC2 && (unsigned char)p[1] < 0xA0;
}

const char *sl_str_show(struct sl_str s, char *buf, size_t size)
{
    SLUICE_ASSERT(buf != NULL);
    SLUICE_ASSERT(size >= 4);
    size_t used = 0; /* bytes of buf that are written */
    size_t cut = 0;  /* the longest prefix that leaves room for "..." */
    while (s.n > 0) {
        size_t n = sl_utf8_char_bytes(s);
        bool shown = n > 0 && !is_control(s.p, n);
        bool line_end = s.p[0] == '\n';
        size_t out = shown ? n : line_end ? 2 : 1;
        if (used + out > size - 1) {
            memcpy(buf + cut, "...", 4);
            return buf;
        }
        if (shown)
            memcpy(buf + used, s.p, n);
        else if (line_end)
            memcpy(buf + used, "\\n", 2);
        else
            buf[used] = '?';
        used += out;
        if (used + 3 <= size - 1) cut = used;
        size_t step = n > 0 ? n : 1;
        s.p += step;
        s.n -= step;
    }
    buf[used] = '\0';
    return buf;
}

/* Shortens text of n bytes so that it does not end within a character. */
size_t sl_utf8_whole(const char *text, size_t n)
{
    size_t i = n;
    while (i > 0 && n - i < 3 && ((unsigned char)text[i - 1] & 0xC0) == 0x80) i--;
    if (i == 0 || (unsigned char)text[i - 1] < 0xC0) return n; /* ASCII, or not UTF-8 at all */
    struct sl_str last = {text + (i - 1), n - (i - 1)};
    return sl_utf8_char_bytes(last) > 0 ? n : i - 1;
}
