/* The nearest known name to a mistyped one, by the number of letters inserted, dropped, changed or
 * swapped. */
#include <string.h>

#include "tools/args.h"

#define NAME_MAX_BYTES 40

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned rows[3][NAME_MAX_BYTES + 1];
    for (size_t j = 0; j <= nb; j++) rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned cost = last[j - 1] + (a[i - 1] != b[j - 1]);
            cost = least(cost, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost = least(cost, before[j - 2] + 1);
            now[j] = cost;
        }
    }
    return rows[na % 3][nb];
}

void cli_nearest_offer(struct cli_nearest *nearest, const char *typed, const char *name,
                       size_t name_bytes)
{
    size_t typed_bytes = strlen(typed);
    if (typed_bytes > NAME_MAX_BYTES || name_bytes > NAME_MAX_BYTES || name_bytes < 3) return;
    unsigned distance = edit_distance(typed, typed_bytes, name, name_bytes);
    /* A typo or two: a third of a short name, and the start of a long one, which is how people
     * shorten. */
    int starts =
        typed_bytes >= 4 && typed_bytes < name_bytes && memcmp(typed, name, typed_bytes) == 0;
    if (starts) distance = 1;
    if (distance > 1 + typed_bytes / 4) return;
    if (nearest->best && distance >= nearest->distance) return;
    nearest->best = name;
    nearest->best_bytes = name_bytes;
    nearest->distance = distance;
}
