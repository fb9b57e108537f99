/* Strict readers of numbers and sizes: no leading space, no rest, no overflow, no "nan", and the
 * same in every locale. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/args.h"

static int is_digit(char c) { return c >= '0' && c <= '9'; }

int cli_read_integer(const char *text, int64_t *value)
{
    char *end;
    if (!is_digit(text[text[0] == '-' || text[0] == '+'])) return -1;
    errno = 0;
    long long read = strtoll(text, &end, 10);
    if (errno || *end) return -1;
    *value = read;
    return 0;
}

/* Length of a plain decimal number with optional fraction and exponent at the start of text; 0:
 * there is none. */
static size_t number_length(const char *text)
{
    size_t i = text[0] == '-' || text[0] == '+', digits = 0;
    for (; is_digit(text[i]); i++) digits++;
    if (text[i] == '.')
        for (i++; is_digit(text[i]); i++) digits++;
    if (!digits) return 0;
    if (text[i] == 'e' || text[i] == 'E') {
        size_t j = i + 1;
        if (text[j] == '-' || text[j] == '+') j++;
        if (is_digit(text[j])) {
            while (is_digit(text[j])) j++;
            i = j;
        }
    }
    return i;
}

int cli_read_number(const char *text, double *value)
{
    size_t n = number_length(text);
    if (!n || text[n]) return -1;
    double read = strtod(text, NULL);
    if (!isfinite(read)) return -1;
    *value = read;
    return 0;
}

int cli_read_size(const char *text, uint64_t *value)
{
    static const char letters[] = "KMGT";
    size_t n = number_length(text);
    double scale = 1;
    if (!n || text[0] == '-') return -1;
    const char *rest = text + n;
    if (*rest) {
        char upper = *rest >= 'a' ? (char)(*rest - 'a' + 'A') : *rest;
        const char *hit = strchr(letters, upper);
        if (!hit) return -1;
        for (const char *p = letters; p <= hit; p++) scale *= 1024;
        rest++;
        if (*rest && strcasecmp(rest, "B") != 0 && strcasecmp(rest, "iB") != 0) return -1;
    }
    double bytes = strtod(text, NULL) * scale;
    if (!(bytes < 9.0e18)) return -1;
    *value = (uint64_t)bytes;
    return 0;
}
