/* A model split over several files, opened from any of them. The files are found by name:
 * PREFIX-00002-of-00005.gguf is the second of five and says so in its metadata too (split.no counts
 * from 0). All are opened before any is parsed, so that what is missing can be listed at once. */
#include "formats/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TAIL "-00001-of-00001.gguf"
#define TAIL_BYTES (sizeof TAIL - 1)
#define NO_AT 1 /* of the five digits in the tail */
#define OF_AT 10
#define LIST_MAX 320 /* bytes of the list of missing files */

/* Five decimal digits, or UINT32_MAX. */
static uint32_t parse_digits(const char *p)
{
    uint32_t v = 0;

    for (uint32_t i = 0; i < 5; i++) {
        if (p[i] < '0' || p[i] > '9') return UINT32_MAX;
        v = 10 * v + (uint32_t)(p[i] - '0');
    }
    return v;
}

/* The tail of a path that follows the pattern, or NULL. */
static char *find_tail(char *path)
{
    size_t n = strlen(path);
    char *tail, pattern[] = TAIL;

    if (n < TAIL_BYTES) return NULL;
    tail = path + n - TAIL_BYTES;
    if (parse_digits(tail + NO_AT) == UINT32_MAX || parse_digits(tail + OF_AT) == UINT32_MAX)
        return NULL;
    memcpy(pattern + NO_AT, tail + NO_AT, 5);
    memcpy(pattern + OF_AT, tail + OF_AT, 5);
    return memcmp(tail, pattern, TAIL_BYTES) == 0 ? tail : NULL;
}

static sluice_err check_name(const char *path, const char *tail, uint32_t no, uint32_t count,
                             sluice_error *e)
{
    char shown[SL_GG_SHOW_PATH_MAX];

    sl_gg_show_path(path, shown);
    if (tail == NULL) {
        return sl_fail(e, SLUICE_E_NOT_FOUND,
                       "%s: this is file %" PRIu32 " of a model in %" PRIu32
                       " files; the others cannot be found, since its name does not end in "
                       "-%05" PRIu32 "-of-%05" PRIu32 ".gguf: give all files their original names",
                       shown, no + 1, count, no + 1, count);
    }
    if (parse_digits(tail + NO_AT) != no + 1 || parse_digits(tail + OF_AT) != count) {
        return sl_fail(e, SLUICE_E_FORMAT,
                       "%s: by its metadata this is file %" PRIu32 " of %" PRIu32
                       ", by its name another: give all files their original names",
                       shown, no + 1, count);
    }
    return SLUICE_OK;
}

static void set_number(char *tail, uint32_t number)
{
    char digits[16];

    snprintf(digits, sizeof digits, "%05" PRIu32, number);
    memcpy(tail + NO_AT, digits, 5);
}

/* ---- opening all files ----------------------------------------------------------------------- */

/* Adds the file's own name; the folder is in the message already. False: the list is full. */
static bool add_missing(char *list, const char *path)
{
    char shown[SL_GG_SHOW_PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = strlen(list);

    sl_gg_show_path(slash != NULL ? slash + 1 : path, shown);
    if (n + strlen(shown) + 3 > LIST_MAX) return false;
    snprintf(list + n, LIST_MAX - n, "%s%s", n > 0 ? ", " : "", shown);
    return true;
}

static sluice_err open_files(struct sl_gguf *g, char *path, char *tail, sluice_error *e)
{
    char list[LIST_MAX] = "", more[32] = "", shown[SL_GG_SHOW_PATH_MAX];
    uint32_t missing = 0, listed = 0;
    sluice_error one;
    sluice_err err;

    for (uint32_t i = 0; i < g->n_files; i++) {
        set_number(tail, i + 1);
        err = sl_file_open(path, g->budget, &one, &g->files[i]);
        if (err == SLUICE_E_NOT_FOUND) {
            if (listed == missing && add_missing(list, path)) listed++;
            missing++;
        } else if (err != SLUICE_OK) {
            if (e != NULL) *e = one;
            return err;
        }
    }
    if (missing == 0) return SLUICE_OK;
    if (missing > listed) snprintf(more, sizeof more, " and %" PRIu32 " more", missing - listed);
    return sl_fail(e, SLUICE_E_NOT_FOUND,
                   "%s: %" PRIu32 " of the model's %" PRIu32
                   " files are missing: %s%s. All of them "
                   "belong into one folder",
                   sl_gg_show_path(g->path, shown), missing, g->n_files, list, more);
}

/* ---- reading all files ----------------------------------------------------------------------- */

static sluice_err read_file(struct sl_gguf *g, uint32_t no, struct sl_gg_head *h, sluice_error *e)
{
    sluice_err err = sl_gg_cursor_init(&h->c, g->files[no], g->budget, e);

    if (err == SLUICE_OK) err = sl_gg_head_read(h, g->budget);
    if (err != SLUICE_OK) return err;
    if (h->split_no != no || h->split_count != g->n_files) {
        return sl_gg_fail(&h->c, SLUICE_E_FORMAT,
                          "by its metadata this is file %" PRIu32 " of %" PRIu32
                          ", wanted file %" PRIu32 " of %" PRIu32
                          ": it belongs to another model or was renamed",
                          h->split_no + 1, h->split_count, no + 1, g->n_files);
    }
    return sl_gg_tensors_read(g, h, no);
}

static sluice_err read_files(struct sl_gguf *g, sluice_error *e)
{
    sluice_err err = read_file(g, 0, &g->head, e);

    for (uint32_t i = 1; i < g->n_files && err == SLUICE_OK; i++) {
        struct sl_gg_head other;

        memset(&other, 0, sizeof other);
        err = read_file(g, i, &other, e);
        sl_gg_head_deinit(&other);
    }
    if (err != SLUICE_OK) return err;
    if (g->head.split_tensors != UINT32_MAX && g->head.split_tensors != g->n_tensors) {
        return sl_gg_fail(&g->head.c, SLUICE_E_FORMAT,
                          "split.tensors.count is %" PRIu32 ", but the %" PRIu32
                          " files hold %" PRIu32 " tensors: they are not of one model",
                          g->head.split_tensors, g->n_files, g->n_tensors);
    }
    return SLUICE_OK;
}

sluice_err sl_gg_split_open(struct sl_gguf *g, const char *path, uint32_t no, uint32_t count,
                            sluice_error *e)
{
    size_t n = strlen(path);
    char *copy = sl_alloc(g->budget, n + 1, 1), *tail;
    sluice_err err;

    if (copy == NULL) return sl_gg_no_memory(g->budget, n + 1, path, e);
    memcpy(copy, path, n + 1);
    tail = find_tail(copy);
    err = check_name(path, tail, no, count, e);
    if (err != SLUICE_OK) goto out;
    g->files = sl_alloc(g->budget, count, sizeof *g->files);
    if (g->files == NULL) {
        err = sl_gg_no_memory(g->budget, count * sizeof *g->files, path, e);
        goto out;
    }
    g->n_files = count;
    err = open_files(g, copy, tail, e);
    if (err == SLUICE_OK) err = read_files(g, e);
out:
    sl_free(copy);
    return err;
}
