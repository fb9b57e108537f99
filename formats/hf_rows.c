/* Rows of a folder's tensors, put in the order that GGUF files have.
 *
 * Rows of q and k of the llama family are permuted: transformers rotates element k of a head with
 * element k + d/2, GGUF files hold them side by side, for readers that rotate neighbours. Heads of
 * DeltaNet layers lie in another order too (hf_deltanet.c says which). */
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "base/mathfn.h"
#include "formats/hf_internal.h"

#define EXP_MAX 700.0f /* what sl_exp takes */

/* ---- order ----------------------------------------------------------------------------------- */

/* Which row of the source is row i of heads * d: pairs stand side by side in GGUF, half a head
 * apart in the source. */
static uint64_t permuted(uint64_t i, uint64_t d)
{
    uint64_t head = i / d, in_head = i % d;

    return head * d + in_head % 2 * (d / 2) + in_head / 2;
}

/* The same within a vector, in place, a head at a time. */
static void permute_elements(float *v, uint64_t n, uint32_t heads)
{
    float head[SL_HEAD_DIM_MAX];
    uint64_t d = n / heads;

    SLUICE_ASSERT(d <= SL_HEAD_DIM_MAX);
    for (uint64_t h = 0; h < heads; h++, v += d) {
        memcpy(head, v, d * sizeof *v);
        for (uint64_t i = 0; i < d; i++) v[i] = head[permuted(i, d)];
    }
}

/* The row of the source that row of a matrix is, and how many of at most *n follow it there. */
static uint64_t in_run(const struct sl_hf_source *s, uint64_t row, uint64_t *n)
{
    const struct sl_hf_run *r = s->runs;

    while (row >= r->rows) {
        row -= r->rows;
        SLUICE_ASSERT(r + 1 < s->runs + s->n_runs);
        r++;
    }
    uint64_t p = row / r->piece, in_piece = row % r->piece;
    *n = sl_min_u64(*n, r->piece - in_piece);
    return r->first + r->step_inner * (p % r->inner) + r->step_outer * (p / r->inner) + in_piece;
}

/* Where matrix's row is in its source; *n as above. */
static uint64_t source_row(const struct sl_hf_tensor *t, uint64_t matrix, uint64_t row, uint64_t *n)
{
    const struct sl_hf_source *s = &t->source;
    uint64_t from = s->first_row + (s->n_parts > 1 ? 0 : matrix * s->step_rows);

    if (s->runs != NULL) return from + in_run(s, row, n);
    if (s->heads == 0 || t->n_dims == 1) return from + row;
    *n = 1;
    return from + permuted(row, t->dims[1] / s->heads);
}

/* The head that comes at place p. */
static uint32_t head_at(const struct sl_hf_source *s, uint32_t p)
{
    return p % s->groups * s->per_group + p / s->groups;
}

/* The heads of one row, in place: along each circle of heads that take each other's place, which
 * begins at its lowest. */
static void move_columns(const struct sl_hf_source *s, float *row, uint64_t cols)
{
    float kept[SL_HEAD_DIM_MAX];
    uint32_t n = s->groups * s->per_group, at, next;
    uint64_t d = cols / n;

    SLUICE_ASSERT(d <= SL_HEAD_DIM_MAX);
    for (uint32_t first = 0; first < n; first++) {
        for (at = head_at(s, first); at > first;) at = head_at(s, at);
        if (at < first) continue; /* the circle was gone round from there */
        memcpy(kept, row + first * d, d * sizeof *row);
        for (at = first; (next = head_at(s, at)) != first; at = next)
            memcpy(row + at * d, row + next * d, d * sizeof *row);
        memcpy(row + at * d, kept, d * sizeof *row);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* -exp(x), of whatever a file may hold. */
static float minus_exp(float x)
{
    if (isnan(x)) return x;
    if (x > EXP_MAX) return -INFINITY;
    return x < -EXP_MAX ? -0.0f : (float)-sl_exp((double)x);
}

static void change_values(enum sl_hf_value value, float *v, uint64_t n)
{
    for (uint64_t i = 0; value == SL_HF_PLUS_ONE && i < n; i++) v[i] += 1.0f;
    for (uint64_t i = 0; value == SL_HF_MINUS_EXP && i < n; i++) v[i] = minus_exp(v[i]);
}

/* ---- rows ------------------------------------------------------------------------------------ */

sluice_err sl_hf_read_rows(const struct sl_hf *hf, const struct sl_hf_tensor *t, uint64_t first,
                           uint64_t n, float *out, sluice_error *e)
{
    const struct sl_hf_source *s = &t->source;
    uint64_t rows = t->dims[1], cols = t->dims[0], run;

    SLUICE_ASSERT(first <= rows * t->dims[2] && n <= rows * t->dims[2] - first);
    if (s->values != NULL) {
        memcpy(out, s->values, n * cols * sizeof *out);
        return SLUICE_OK;
    }
    for (uint64_t done = 0; done < n; done += run) {
        uint64_t matrix = (first + done) / rows, row = (first + done) % rows;
        uint32_t part = s->parts[s->n_parts > 1 ? matrix : 0];

        run = sl_min_u64(n - done, rows - row);
        uint64_t from = source_row(t, matrix, row, &run);
        SL_HF_TRY(
            sl_st_read_rows(hf->st, sl_st_tensor(hf->st, part), from, run, out + done * cols, e));
    }
    if (t->n_dims == 1 && s->heads > 0 && n > 0) permute_elements(out, cols, s->heads);
    for (uint64_t i = 0; i < n && s->groups > 0; i++) move_columns(s, out + i * cols, cols);
    change_values(s->value, out, n * cols);
    return SLUICE_OK;
}
