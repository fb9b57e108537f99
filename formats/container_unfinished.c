/* Containers that packing has not finished: parts end in .partial, or the journal still lies beside
 * them. Whoever opens one gets told what to do, instead of that there is no such file. */
#include <stdio.h>
#include <string.h>

#include "formats/container_internal.h"

#define PARTIAL ".partial"
#define JOURNAL ".journal"
#define NUMBER "-00001-of-00001"
#define EXTENSION ".sluice"

/* Bytes of s without what it ends in, if it does. */
static size_t without(struct sl_str s, const char *end)
{
    return sl_str_ends(s, end) ? s.n - strlen(end) : s.n;
}

static bool is_number(const char *p)
{
    static const char pattern[] = NUMBER;

    for (size_t i = 0; i < strlen(pattern); i++) {
        bool digit = pattern[i] >= '0' && pattern[i] <= '9';
        if (digit ? p[i] < '0' || p[i] > '9' : p[i] != pattern[i]) return false;
    }
    return true;
}

/* The name of the journal for path, which may be that of a part, written or not; to be freed with
 * sl_free. NULL: no memory. */
static char *journal_path(const char *path, struct sl_budget *b)
{
    struct sl_str s = {path, strlen(path)};
    size_t size = s.n + sizeof JOURNAL;
    char *out = sl_alloc(b, size, 1);

    if (out == NULL) return NULL;
    s.n = without(s, PARTIAL);
    size_t stem = without(s, EXTENSION), cut = stem;
    if (stem > strlen(NUMBER) && is_number(path + stem - strlen(NUMBER)))
        cut = stem - strlen(NUMBER);
    snprintf(out, size, "%.*s%.*s" JOURNAL, (int)cut, path, (int)(s.n - stem), path + stem);
    return out;
}

bool sl_container_unfinished(const char *path, struct sl_budget *b, sluice_error *e)
{
    struct sl_file *f;
    char shown[SL_GG_SHOW_PATH_MAX];
    char *journal = journal_path(path, b);

    if (journal == NULL) return false;
    bool found = sl_file_open(journal, b, NULL, &f) == SLUICE_OK;
    if (found) {
        sl_file_close(f);
        (void)sl_cn_fail(e, SLUICE_E_TRUNCATED, path,
                         "packing this container is not finished, '%s' says; where it was "
                         "interrupted, the same 'sluice pack' again goes on",
                         sl_gg_show_path(journal, shown));
    }
    sl_free(journal);
    return found;
}
