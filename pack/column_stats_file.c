/* Files of column statistics: llama.cpp's importance matrices in their GGUF form (its imatrix tool,
 * tools/imatrix). Each matrix or stack of matrices NAME has two tensors of 32-bit floats:
 * NAME.in_sum2, [matrices][columns], and NAME.counts, [matrices][1]. What is read may be hostile:
 * shapes, counts and values are checked before anything is used. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "pack/column_stats_internal.h"

#define TYPE "imatrix" /* general.type */
#define SUMS ".in_sum2"
#define COUNTS ".counts"
#define COUNT_MAX 9007199254740992.0 /* 2^53: whole in a double */
#define PIECE 1024                   /* floats converted at a time */

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    const struct sl_gguf *g;
    struct sl_column_stats *s;
    sluice_error *e;
};

static sluice_err fail_tensor(const struct reading *r, const struct sl_gguf_tensor *t,
                              const char *why)
{
    char name[SL_NAME_MAX];
    return sl_fail(r->e, SLUICE_E_FORMAT, "%s: %s %s", sl_gguf_path(r->g),
                   sl_str_show(t->name, name, sizeof name), why);
}

/* The first bytes of the old form: a number of entries, the length of a name, the name. */
static bool is_old_form(const char *path, struct sl_budget *b)
{
    unsigned char head[72];
    uint32_t entries, length;
    struct sl_file *f = NULL;
    if (sl_file_open(path, b, NULL, &f) != SLUICE_OK) return false;
    bool old = sl_file_bytes(f) >= sizeof head &&
               sl_file_read_at(f, 0, head, sizeof head, NULL) == SLUICE_OK;
    sl_file_close(f);
    if (!old) return false;
    memcpy(&entries, head, sizeof entries);
    memcpy(&length, head + 4, sizeof length);
    if (entries == 0 || entries > SL_GGUF_TENSORS_MAX || length < 8 || length > 64) return false;
    return memcmp(head + 8 + length - 7, ".weight", 7) == 0;
}

static sluice_err open_gguf(const char *path, struct sl_budget *b, sluice_error *e,
                            struct sl_gguf **g)
{
    sluice_err err = sl_gguf_open(path, b, e, g);
    if (err != SLUICE_E_FORMAT || !is_old_form(path, b)) return err;
    return sl_fail(e, SLUICE_E_FORMAT,
                   "%s: an importance matrix in the old form (.dat); llama-imatrix --in-file OLD "
                   "-o NEW.gguf converts it",
                   path);
}

static sluice_err check_type(const struct reading *r)
{
    char shown[64];
    struct sl_str type = {"", 0};
    if (!sl_gguf_has(r->g, "general.type"))
        return sl_fail(r->e, SLUICE_E_FORMAT,
                       "%s: not an importance matrix: it does not say what it is (general.type)",
                       sl_gguf_path(r->g));
    sluice_err err = sl_gguf_str(r->g, "general.type", &type, r->e);
    if (err != SLUICE_OK || sl_str_eq(type, TYPE)) return err;
    return sl_fail(r->e, SLUICE_E_FORMAT,
                   "%s: not an importance matrix: general.type is '%s', wanted '" TYPE "'",
                   sl_gguf_path(r->g), sl_str_show(type, shown, sizeof shown));
}

/* The tensor of the same name but for its ending, or NULL. */
static const struct sl_gguf_tensor *partner(const struct reading *r, const struct sl_gguf_tensor *t,
                                            const char *own, const char *other)
{
    char name[2 * SL_NAME_MAX];
    size_t n = t->name.n - strlen(own);
    if (t->name.n >= SL_NAME_MAX || memchr(t->name.p, 0, t->name.n)) return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)n, t->name.p, other);
    return sl_gguf_find_tensor(r->g, name);
}

static sluice_err check_shapes(const struct reading *r, const struct sl_gguf_tensor *sums,
                               const struct sl_gguf_tensor *counts)
{
    if (sums->type != SL_TYPE_F32) return fail_tensor(r, sums, "is not of type F32");
    if (counts->type != SL_TYPE_F32) return fail_tensor(r, counts, "is not of type F32");
    if (sums->dims[2] * sums->dims[3] != 1 || sums->dims[0] > SL_COLS_MAX * SL_EXPERTS_MAX ||
        sums->dims[1] > SL_EXPERTS_MAX)
        return fail_tensor(r, sums, "has a shape that no statistics have");
    if (counts->dims[0] != 1 || counts->dims[1] != sums->dims[1] ||
        counts->dims[2] * counts->dims[3] != 1)
        return fail_tensor(r, counts, "has not one number for each matrix");
    return SLUICE_OK;
}

static sluice_err read_counts(const struct reading *r, const struct sl_gguf_tensor *counts,
                              struct cs_tensor *t)
{
    float value[SL_EXPERTS_MAX];
    t->count = sl_alloc(r->s->budget, t->n_matrices, sizeof *t->count);
    if (!t->count) return sl_fail(r->e, SLUICE_E_NOMEM, "no memory for column statistics");
    sluice_err err = sl_file_read_at(sl_gguf_file(r->g, counts->shard), counts->offset, value,
                                     t->n_matrices * sizeof *value, r->e);
    for (uint32_t m = 0; m < t->n_matrices && err == SLUICE_OK; m++) {
        if (!(value[m] >= 0.0f && (double)value[m] <= COUNT_MAX))
            return fail_tensor(r, counts, "holds a count that is negative or no number");
        t->count[m] = (uint64_t)llround((double)value[m]);
    }
    return err;
}

/* Reads sums into the place of the means, and divides them there. */
static sluice_err read_sums(const struct reading *r, const struct sl_gguf_tensor *sums,
                            struct cs_tensor *t)
{
    t->mean = sl_alloc(r->s->budget, (uint64_t)t->n_matrices * t->cols, sizeof *t->mean);
    if (!t->mean) return sl_fail(r->e, SLUICE_E_NOMEM, "no memory for column statistics");
    sluice_err err =
        sl_file_read_at(sl_gguf_file(r->g, sums->shard), sums->offset, t->mean, sums->bytes, r->e);
    for (uint32_t m = 0; m < t->n_matrices && err == SLUICE_OK; m++) {
        float *x = t->mean + (uint64_t)m * t->cols;
        for (uint32_t c = 0; c < t->cols; c++) {
            if (!isfinite(x[c]) || x[c] < 0.0f)
                return fail_tensor(r, sums, "holds a sum that is negative or no finite number");
            x[c] = t->count[m] ? (float)((double)x[c] / (double)t->count[m]) : 0.0f;
        }
    }
    return err;
}

static sluice_err read_pair(const struct reading *r, const struct sl_gguf_tensor *sums)
{
    const struct sl_gguf_tensor *counts = partner(r, sums, SUMS, COUNTS);
    if (!counts) return fail_tensor(r, sums, "has no partner that ends in " COUNTS);
    sluice_err err = check_shapes(r, sums, counts);
    if (err != SLUICE_OK) return err;
    struct sl_str name = {sums->name.p, sums->name.n - strlen(SUMS)};
    err = cs_append(r->s, name, (uint32_t)sums->dims[1], (uint32_t)sums->dims[0], r->e);
    if (err != SLUICE_OK) return err;
    struct cs_tensor *t = &r->s->tensors[r->s->n - 1];
    err = read_counts(r, counts, t);
    return err == SLUICE_OK ? read_sums(r, sums, t) : err;
}

static sluice_err read_all(const struct reading *r)
{
    sluice_err err = check_type(r);
    for (uint32_t i = 0; i < sl_gguf_n_tensors(r->g) && err == SLUICE_OK; i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(r->g, i);
        if (sl_str_ends(t->name, SUMS))
            err = read_pair(r, t);
        else if (sl_str_ends(t->name, COUNTS) && !partner(r, t, COUNTS, SUMS))
            err = fail_tensor(r, t, "has no partner that ends in " SUMS);
    }
    if (err == SLUICE_OK && r->s->n == 0)
        err = sl_fail(r->e, SLUICE_E_FORMAT, "%s: an importance matrix of nothing",
                      sl_gguf_path(r->g));
    return err == SLUICE_OK ? cs_index(r->s, r->e) : err;
}

sluice_err sl_column_stats_open(const char *path, struct sl_budget *b, sluice_error *e,
                                struct sl_column_stats **out)
{
    struct sl_gguf *g = NULL;
    *out = NULL;
    sluice_err err = open_gguf(path, b, e, &g);
    if (err != SLUICE_OK) return err;
    err = sl_column_stats_new(b, e, out);
    const struct reading r = {g, *out, e};
    if (err == SLUICE_OK) err = read_all(&r);
    sl_gguf_close(g);
    if (err == SLUICE_OK) return err;
    sl_column_stats_close(*out);
    *out = NULL;
    return err;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void announce(struct sl_gguf_write *w, const struct cs_tensor *t)
{
    char name[2 * SL_NAME_MAX];
    snprintf(name, sizeof name, "%.*s" SUMS, SL_NAME_MAX, t->name.p);
    sl_gguf_write_tensor(w, name, t->cols, t->n_matrices);
    snprintf(name, sizeof name, "%.*s" COUNTS, SL_NAME_MAX, t->name.p);
    sl_gguf_write_tensor(w, name, 1, t->n_matrices);
}

/* The figures of t, which may be those of another tensor. */
static void write_figures(struct sl_gguf_write *w, const struct cs_tensor *t)
{
    float piece[PIECE];
    for (uint32_t m = 0; m < t->n_matrices; m++) {
        const float *mean = t->mean + (uint64_t)m * t->cols;
        for (uint32_t at = 0; at < t->cols; at += PIECE) {
            uint32_t n = t->cols - at < PIECE ? t->cols - at : PIECE;
            for (uint32_t c = 0; c < n; c++)
                piece[c] = (float)((double)mean[at + c] * (double)t->count[m]);
            sl_gguf_write_floats(w, piece, n);
        }
    }
    sl_gguf_write_end(w);
    for (uint32_t m = 0; m < t->n_matrices; m++) {
        float count = (float)t->count[m];
        sl_gguf_write_floats(w, &count, 1);
    }
    sl_gguf_write_end(w);
}

sluice_err sl_column_stats_write(const struct sl_column_stats *s, const char *path,
                                 const char *text, uint32_t chunks, uint32_t chunk_tokens,
                                 sluice_error *e)
{
    SLUICE_ASSERT(s->finished);
    const struct sl_str dataset = {text, strlen(text)};
    struct sl_gguf_write *w = NULL;
    sluice_err err = sl_gguf_write_open(path, 4, 2 * s->n, s->budget, e, &w);
    if (err != SLUICE_OK) return err;
    sl_gguf_write_str(w, "general.type", SL_STR(TYPE));
    sl_gguf_write_str_array(w, "imatrix.datasets", &dataset, 1);
    sl_gguf_write_u32(w, "imatrix.chunk_count", chunks);
    sl_gguf_write_u32(w, "imatrix.chunk_size", chunk_tokens);
    for (uint64_t i = 0; i < s->n; i++) announce(w, &s->tensors[i]);
    for (uint64_t i = 0; i < s->n; i++) write_figures(w, &s->tensors[s->tensors[i].same]);
    return sl_gguf_write_close(w, e);
}
