/* Collecting column statistics, and looking them up; column_stats_file.c reads and writes them.
 *
 * While inputs are added, each column has a sum in double precision. Finishing turns the sums into
 * means in single precision, tensor by tensor, which halves the memory. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "pack/column_stats_internal.h"

#define NAMES_BYTES 16384 /* the arena takes so much at a time */

sluice_err sl_column_stats_new(struct sl_budget *b, sluice_error *e, struct sl_column_stats **out)
{
    *out = sl_alloc(b, 1, sizeof **out);
    if (!*out) return sl_fail(e, SLUICE_E_NOMEM, "no memory for column statistics");
    (*out)->budget = b;
    sl_arena_init(&(*out)->names, b, NAMES_BYTES);
    return SLUICE_OK;
}

void sl_column_stats_close(struct sl_column_stats *s)
{
    if (!s) return;
    for (uint64_t i = 0; i < s->n; i++) {
        sl_free(s->tensors[i].sum);
        sl_free(s->tensors[i].mean);
        sl_free(s->tensors[i].count);
    }
    sl_gg_index_deinit(&s->index);
    sl_free(s->tensors);
    sl_arena_deinit(&s->names);
    sl_free(s);
}

sluice_err cs_append(struct sl_column_stats *s, struct sl_str name, uint32_t n_matrices,
                     uint32_t cols, sluice_error *e)
{
    sluice_err err = sl_grow(s->budget, &s->tensors, &s->capacity, s->n + 1, sizeof *s->tensors);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory for the list of column statistics");
    char *copy = sl_arena_alloc(&s->names, name.n + 1, 1);
    if (!copy) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the list of column statistics");
    memcpy(copy, name.p, name.n);
    s->tensors[s->n] = (struct cs_tensor){
        .name = {copy, name.n}, .n_matrices = n_matrices, .cols = cols, .same = (uint32_t)s->n};
    s->n++;
    return SLUICE_OK;
}

sluice_err cs_index(struct sl_column_stats *s, sluice_error *e)
{
    uint32_t bad = 0;
    sluice_err err = sl_gg_index_build(&s->index, s->budget, s->tensors, (uint32_t)s->n,
                                       sizeof *s->tensors, &bad);
    s->finished = err == SLUICE_OK;
    if (err == SLUICE_OK) return err;
    return sl_fail(e, err,
                   err == SLUICE_E_FORMAT ? "the names of column statistics collide"
                                          : "no memory for the index of column statistics");
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* Position of a tensor, or s->n. Inputs come in the same order chunk by chunk, gate and up of
 * experts by turns: it is nearly always the one before the last, the last, or the one after it. */
static uint64_t position(const struct sl_column_stats *s, const char *name)
{
    for (uint64_t i = 0; i < s->n; i++) {
        uint64_t at = (s->last + s->n - 1 + i) % s->n;
        if (sl_str_eq(s->tensors[at].name, name)) return at;
    }
    return s->n;
}

static sluice_err fail_state(const struct sl_column_input *in, const char *why, sluice_error *e)
{
    return sl_fail(e, SLUICE_E_STATE, "%.200s, matrix %u of %u, %u columns: %s", in->name,
                   in->matrix, in->n_matrices, in->cols, why);
}

/* Takes the memory of the newest tensor, or the tensor from the list. */
static sluice_err take_memory(struct sl_column_stats *s, sluice_error *e)
{
    struct cs_tensor *t = &s->tensors[s->n - 1];
    t->sum = sl_alloc(s->budget, (uint64_t)t->n_matrices * t->cols, sizeof *t->sum);
    t->count = sl_alloc(s->budget, t->n_matrices, sizeof *t->count);
    if (t->sum && t->count) return SLUICE_OK;
    sl_free(t->sum);
    sl_free(t->count);
    s->n--;
    return sl_fail(e, SLUICE_E_NOMEM, "no memory for the column statistics of %.200s", t->name.p);
}

/* A tensor that is shown for the first time. */
static sluice_err begin_tensor(struct sl_column_stats *s, const struct sl_column_input *in,
                               sluice_error *e)
{
    uint64_t same = in->same_as ? position(s, in->same_as) : s->n;
    if (in->same_as &&
        (same == s->n || s->tensors[same].same != same || s->tensors[same].cols != in->cols ||
         s->tensors[same].n_matrices != in->n_matrices))
        return fail_state(in, "said to be shown the same inputs as a tensor that is not", e);
    const struct sl_str name = {in->name, strlen(in->name)};
    sluice_err err = cs_append(s, name, in->n_matrices, in->cols, e);
    if (err != SLUICE_OK) return err;
    if (!in->same_as) return take_memory(s, e);
    s->tensors[s->n - 1].same = (uint32_t)same;
    return SLUICE_OK;
}

/* sum[c] += x[c]^2 over n inputs. */
static void add_squares(double *sum, const float *x, uint32_t n, uint32_t cols)
{
    for (uint32_t i = 0; i < n; i++, x += cols)
        for (uint32_t c = 0; c < cols; c++) sum[c] += (double)x[c] * (double)x[c];
}

sluice_err sl_column_stats_add(struct sl_column_stats *s, const struct sl_column_input *in,
                               sluice_error *e)
{
    SLUICE_ASSERT(in->n_matrices > 0 && in->matrix < in->n_matrices && in->cols > 0);
    SLUICE_ASSERT(in->n_matrices <= SL_EXPERTS_MAX && in->cols <= SL_COLS_MAX);
    if (s->finished) return fail_state(in, "collecting is over", e);
    uint64_t at = position(s, in->name);
    if (at == s->n) {
        sluice_err err = begin_tensor(s, in, e);
        if (err != SLUICE_OK) return err;
    }
    s->last = at;
    const struct cs_tensor *t = &s->tensors[at];
    if (t->n_matrices != in->n_matrices || t->cols != in->cols)
        return fail_state(in, "it was another shape before", e);
    if ((in->same_as != NULL) != (t->same != at))
        return fail_state(in, "its inputs were those of another tensor, or were not, before", e);
    if (t->same != at) return SLUICE_OK;
    add_squares(t->sum + (uint64_t)in->matrix * t->cols, in->x, in->n, in->cols);
    t->count[in->matrix] += in->n;
    return SLUICE_OK;
}

/* One tensor's sums to means. A sum that is no number, or too large for a file, is an error. */
static sluice_err finish_tensor(struct sl_column_stats *s, struct cs_tensor *t, sluice_error *e)
{
    if (!t->sum) return SLUICE_OK;
    t->mean = sl_alloc(s->budget, (uint64_t)t->n_matrices * t->cols, sizeof *t->mean);
    if (!t->mean)
        return sl_fail(e, SLUICE_E_NOMEM, "no memory for the column means of %.200s", t->name.p);
    for (uint64_t m = 0; m < t->n_matrices; m++) {
        const double *sum = t->sum + m * t->cols;
        float *mean = t->mean + m * t->cols;
        for (uint32_t c = 0; c < t->cols && t->count[m] > 0; c++) {
            if (!(sum[c] <= (double)FLT_MAX))
                return sl_fail(e, SLUICE_E_NUMERIC,
                               "%.200s: its inputs are no finite numbers, or too large, in column "
                               "%u of matrix %llu",
                               t->name.p, c, (unsigned long long)m);
            mean[c] = (float)(sum[c] / (double)t->count[m]);
        }
    }
    sl_free(t->sum);
    t->sum = NULL;
    return SLUICE_OK;
}

sluice_err sl_column_stats_finish(struct sl_column_stats *s, sluice_error *e)
{
    if (s->finished) return SLUICE_OK;
    for (uint64_t i = 0; i < s->n; i++) {
        sluice_err err = finish_tensor(s, &s->tensors[i], e);
        if (err != SLUICE_OK) return err;
    }
    return cs_index(s, e);
}

uint64_t sl_column_stats_unreached(const struct sl_column_stats *s, sl_column_unreached_fn *fn,
                                   void *user)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        const struct cs_tensor *t = &s->tensors[i];
        const uint64_t *count = s->tensors[t->same].count;
        for (uint32_t m = 0; m < t->n_matrices; m++) {
            if (count[m] > 0) continue;
            if (fn) fn(user, t->name.p, m);
            n++;
        }
    }
    return n;
}

/* ---- looking up ------------------------------------------------------------------------------ */

static const struct cs_tensor *lookup(const struct sl_column_stats *s, struct sl_str name)
{
    uint32_t at = sl_gg_index_find(&s->index, s->tensors, sizeof *s->tensors, name);
    return at == UINT32_MAX ? NULL : &s->tensors[at];
}

/* blk.3.ffn_gate.7.weight, spelt just so: layer 3, part gate, matrix 7. */
struct part_name {
    uint32_t layer, matrix;
    char part[8];
};

static bool read_part_name(struct sl_str name, struct part_name *out)
{
    char text[SL_NAME_MAX], again[SL_NAME_MAX];
    if (name.n >= sizeof text || memchr(name.p, 0, name.n)) return false;
    memcpy(text, name.p, name.n);
    text[name.n] = 0;
    if (sscanf(text, "blk.%9u.ffn_%7[a-z].%9u", &out->layer, out->part, &out->matrix) != 3)
        return false;
    snprintf(again, sizeof again, "blk.%u.ffn_%s.%u.weight", out->layer, out->part, out->matrix);
    return strcmp(text, again) == 0;
}

/* The tensor that holds the part's matrices, whatever its name. */
static const struct cs_tensor *find_stack(const struct sl_column_stats *s,
                                          const struct part_name *p)
{
    char name[SL_NAME_MAX];
    int n = snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", p->layer, p->part);
    const struct cs_tensor *t = lookup(s, (struct sl_str){name, (size_t)n});
    if (t || (strcmp(p->part, "gate") != 0 && strcmp(p->part, "up") != 0)) return t;
    n = snprintf(name, sizeof name, "blk.%u.ffn_gate_up_exps.weight", p->layer);
    return lookup(s, (struct sl_str){name, (size_t)n});
}

/* A file converted from the old form has a stack's experts in one row, with one count for all. */
static bool is_joined(const struct cs_tensor *t, const struct part_name *p, uint64_t cols)
{
    return t->n_matrices == 1 && t->cols > cols && t->cols % cols == 0 &&
           p->matrix < t->cols / cols;
}

const float *sl_column_stats_find(const struct sl_column_stats *s, struct sl_str name,
                                  uint64_t cols, uint64_t *count)
{
    SLUICE_ASSERT(s->finished && cols > 0);
    struct part_name part = {.matrix = 0};
    const struct cs_tensor *t = lookup(s, name);
    bool stacked = !t && read_part_name(name, &part);
    *count = 0;
    if (stacked) t = find_stack(s, &part);
    if (!t || (!stacked && t->n_matrices > 1)) return NULL; /* a stack has no one answer */
    bool joined = stacked && is_joined(t, &part, cols);
    if (!joined && part.matrix >= t->n_matrices) return NULL;
    if (!joined && t->cols != cols) {
        *count = UINT64_MAX;
        return NULL;
    }
    t = &s->tensors[t->same];
    *count = t->count[joined ? 0 : part.matrix];
    return *count > 0 ? t->mean + part.matrix * cols : NULL;
}

uint64_t sl_column_stats_experts(const struct sl_column_stats *s, struct sl_str name, uint64_t cols)
{
    SLUICE_ASSERT(s->finished && cols > 0);
    struct part_name part = {.matrix = 0};
    if (lookup(s, name) || !read_part_name(name, &part)) return 0;
    const struct cs_tensor *t = find_stack(s, &part);
    if (!t) return 0;
    if (t->cols == cols) return t->n_matrices;
    return t->n_matrices == 1 && t->cols % cols == 0 ? t->cols / cols : 0;
}
