/* The pipeline of packing: see pack_run.h. Two batches take turns: while one is encoded, the other,
 * which is finished, is written by a task of the same run of the pool. */
#include "pack/pack_run.h"

#include <inttypes.h>
#include <string.h>

#include "formats/tensor_type.h"
#include "pack/encode_rows.h"

#define GROUP_FLOATS ((uint64_t)1 << 17) /* of the rows of a task, about */
#define OUT_BYTES ((uint64_t)4 << 20)    /* of a batch */
#define TASKS_MAX 256                    /* of a batch */
#define DROP_BYTES ((uint64_t)128 << 20) /* read between two times that pages are given back */
#define NAME_SHOWN 80

/* Rows of a tensor, and where their bytes go. */
struct task {
    uint32_t tensor;
    uint64_t first, n;
    uint64_t out_at, out_bytes;
    struct sl_sq_error error;
};

struct batch {
    struct task tasks[TASKS_MAX];
    uint32_t n_tasks;
    unsigned char *out;
    uint64_t out_bytes;
};

/* What a thread needs, and its first failure. */
struct worker {
    float *x, *scratch;
    void *stage;
    uint32_t failed; /* the task; UINT32_MAX: none */
    sluice_err code;
    sluice_error e;
};

struct run {
    const struct sl_pack_job *job;
    const struct sl_source *source;
    const struct sl_pack_plan *plan;
    struct sl_container_writer *w;
    struct worker workers[SL_THREADS_MAX];
    struct batch batches[2];
    struct batch *encoding, *writing; /* writing NULL: nothing is ready */
    uint64_t out_capacity;
    uint32_t tensor; /* next rows to give out */
    uint64_t row;
    uint64_t read_bytes; /* since pages were given back */
    uint64_t done_bytes;
    sluice_err write_code;
    sluice_error write_error;
};

/* ---- sizes ----------------------------------------------------------------------------------- */

/* A multiple of 8, so that interleaved rows stay together. */
static uint64_t group_rows(const struct sl_source_tensor *t)
{
    return sl_max_u64(GROUP_FLOATS / t->cols & ~(uint64_t)7, 8);
}

static uint64_t bytes_of(uint32_t type, uint64_t rows, uint64_t cols)
{
    uint64_t bytes = 0;
    bool fits = sl_type_matrix_bytes(type, rows, cols, &bytes);

    SLUICE_ASSERT(fits); /* the plan asked before */
    return bytes;
}

static uint32_t type_of(const struct run *r, uint32_t tensor)
{
    return r->plan->classes[r->plan->class_of[tensor]].type;
}

static sluice_err allocate(struct run *r, sluice_error *e)
{
    uint64_t x = 0, cols = 0, stage = 1, out = OUT_BYTES;
    bool ok = true;

    for (uint32_t i = 0; i < sl_source_n_tensors(r->source); i++) {
        const struct sl_source_tensor *t = sl_source_tensor(r->source, i);
        uint64_t rows = sl_min_u64(group_rows(t), t->rows);

        x = sl_max_u64(x, rows * t->cols);
        cols = sl_max_u64(cols, t->cols);
        stage = sl_max_u64(stage, sl_source_stage_bytes(t, rows));
        out = sl_max_u64(out, bytes_of(type_of(r, i), rows, t->cols));
    }
    r->out_capacity = out;
    for (uint32_t i = 0; i < 2; i++) {
        r->batches[i].out = sl_alloc(r->job->budget, out, 1);
        ok = ok && r->batches[i].out != NULL;
    }
    for (uint32_t i = 0; i < sl_pool_threads(r->job->pool) && ok; i++) {
        struct worker *k = &r->workers[i];

        k->x = sl_alloc(r->job->budget, x, sizeof *k->x);
        k->scratch = sl_alloc(r->job->budget, cols, sizeof *k->scratch);
        k->stage = sl_alloc(r->job->budget, stage, 1);
        ok = k->x != NULL && k->scratch != NULL && k->stage != NULL;
    }
    return ok ? SLUICE_OK : sl_fail(e, SLUICE_E_NOMEM, "no memory for the buffers of packing");
}

static void release(struct run *r)
{
    for (uint32_t i = 0; i < 2; i++) sl_free(r->batches[i].out);
    for (uint32_t i = 0; i < sl_pool_threads(r->job->pool); i++) {
        sl_free(r->workers[i].x);
        sl_free(r->workers[i].scratch);
        sl_free(r->workers[i].stage);
    }
    sl_free(r);
}

/* ---- a task ---------------------------------------------------------------------------------- */

static sluice_err fail_rows(const struct run *r, const struct task *t, enum sl_encode_outcome why,
                            uint64_t row, sluice_error *e)
{
    const struct sl_source_tensor *s = sl_source_tensor(r->source, t->tensor);
    const char *path = sl_source_path(r->source, t->tensor, t->first + row);
    char name[NAME_SHOWN];

    sl_str_show(s->name, name, sizeof name);
    sluice_err err =
        why == SL_ENCODE_NOT_FINITE
            ? sl_fail(e, SLUICE_E_NUMERIC,
                      "%s: tensor '%s', row %" PRIu64
                      ": a value is infinite or no number; the model is damaged",
                      path, name, t->first + row)
            : sl_fail(e, SLUICE_E_NUMERIC,
                      "%s: tensor '%s', row %" PRIu64
                      ": a value is too large for %s; give the tensor another type in a recipe",
                      path, name, t->first + row, sl_type_name(type_of(r, t->tensor)));
    if (e != NULL) {
        e->layer = s->layer;
        e->expert = s->expert;
    }
    return err;
}

/* The file's bytes as they are, once every value in them is known to be a number. */
static sluice_err copy_rows(const struct run *r, struct worker *k, const struct task *t,
                            unsigned char *out)
{
    const struct sl_source_tensor *s = sl_source_tensor(r->source, t->tensor);
    struct sl_rows rows = {k->x, t->n, s->cols, NULL};
    uint64_t row_bytes = 0, bad = 0;
    bool fits = sl_type_row_bytes(s->type, s->cols, &row_bytes);

    SLUICE_ASSERT(fits);
    sluice_err err =
        sl_source_bytes(r->source, t->tensor, t->first * row_bytes, t->out_bytes, out, &k->e);
    if (err != SLUICE_OK) return err;
    sl_type_decode_rows(s->type, out, (uint32_t)s->cols, 0, t->n, k->x);
    return sl_rows_finite(&rows, &bad) ? SLUICE_OK
                                       : fail_rows(r, t, SL_ENCODE_NOT_FINITE, bad, &k->e);
}

static sluice_err encode_rows(const struct run *r, struct worker *k, struct task *t,
                              unsigned char *out)
{
    const struct sl_source_tensor *s = sl_source_tensor(r->source, t->tensor);
    struct sl_rows rows = {k->x, t->n, s->cols, r->plan->weights[t->tensor]};
    uint64_t bad = 0;
    sluice_err err = sl_source_rows(r->source, (struct sl_source_span){t->tensor, t->first, t->n},
                                    k->stage, k->x, &k->e);

    if (err != SLUICE_OK) return err;
    enum sl_encode_outcome outcome =
        sl_encode_rows(type_of(r, t->tensor), &rows, out, k->scratch, &t->error, &bad);
    return outcome == SL_ENCODE_OK ? SLUICE_OK : fail_rows(r, t, outcome, bad, &k->e);
}

static void write_batch(struct run *r)
{
    const struct batch *b = r->writing;

    for (uint32_t i = 0; i < b->n_tasks && r->write_code == SLUICE_OK; i++)
        r->write_code = sl_container_write_data(r->w, b->out + b->tasks[i].out_at,
                                                b->tasks[i].out_bytes, &r->write_error);
}

/* Task 0 writes the batch before, if there is one. */
static void run_task(void *arg, uint32_t index, uint32_t worker)
{
    struct run *r = arg;
    struct worker *k = &r->workers[worker];

    if (r->writing != NULL && index-- == 0) {
        write_batch(r);
        return;
    }
    if (k->failed != UINT32_MAX) return;
    struct task *t = &r->encoding->tasks[index];
    const struct sl_source_tensor *s = sl_source_tensor(r->source, t->tensor);
    unsigned char *out = r->encoding->out + t->out_at;
    k->code = s->whole && type_of(r, t->tensor) == s->type ? copy_rows(r, k, t, out)
                                                           : encode_rows(r, k, t, out);
    if (k->code != SLUICE_OK) k->failed = index;
}

/* ---- batches --------------------------------------------------------------------------------- */

static void fill(struct run *r, struct batch *b)
{
    b->n_tasks = 0;
    b->out_bytes = 0;
    while (r->tensor < sl_source_n_tensors(r->source) && b->n_tasks < TASKS_MAX) {
        const struct sl_source_tensor *s = sl_source_tensor(r->source, r->tensor);
        uint64_t n = sl_min_u64(group_rows(s), s->rows - r->row);
        uint64_t bytes = bytes_of(type_of(r, r->tensor), n, s->cols);

        if (bytes > r->out_capacity - b->out_bytes) return;
        b->tasks[b->n_tasks++] = (struct task){.tensor = r->tensor,
                                               .first = r->row,
                                               .n = n,
                                               .out_at = b->out_bytes,
                                               .out_bytes = bytes};
        b->out_bytes += bytes;
        r->read_bytes += sl_source_stage_bytes(s, n);
        r->row += n;
        if (r->row < s->rows) continue;
        r->row = 0;
        r->tensor++;
    }
}

/* The failure of the first task that failed, whichever thread ran it. */
static sluice_err first_failure(const struct run *r, sluice_error *e)
{
    const struct worker *first = NULL;

    for (uint32_t i = 0; i < sl_pool_threads(r->job->pool); i++) {
        const struct worker *k = &r->workers[i];
        if (k->failed != UINT32_MAX && (first == NULL || k->failed < first->failed)) first = k;
    }
    if (r->write_code != SLUICE_OK) {
        if (e != NULL) *e = r->write_error;
        return r->write_code;
    }
    if (first == NULL) return SLUICE_OK;
    if (e != NULL) *e = first->e;
    return first->code;
}

/* In the order of the tasks, so that sums do not depend on the threads. */
static void add_costs(const struct run *r, const struct batch *b, struct sl_pack_cost *costs)
{
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        const struct task *t = &b->tasks[i];
        const struct sl_source_tensor *s = sl_source_tensor(r->source, t->tensor);
        struct sl_pack_cost *c = &costs[r->plan->class_of[t->tensor]];

        if (s->type == type_of(r, t->tensor)) continue;
        c->error.weighted += t->error.weighted;
        c->error.weighted_all += t->error.weighted_all;
        c->error.plain += t->error.plain;
        c->error.plain_all += t->error.plain_all;
        if (t->first + t->n == s->rows) c->tensors++;
    }
}

static sluice_err step(struct run *r, struct sl_pack_cost *costs, sluice_error *e)
{
    const struct sl_pack_job *job = r->job;

    fill(r, r->encoding);
    uint32_t n = r->encoding->n_tasks + (r->writing != NULL ? 1 : 0);
    if (n > 0) sl_pool_run(job->pool, run_task, r, n);
    sluice_err err = first_failure(r, e);
    if (err != SLUICE_OK) return err;
    add_costs(r, r->encoding, costs);
    if (r->writing != NULL) r->done_bytes += r->writing->out_bytes;
    struct batch *written = r->encoding == &r->batches[0] ? &r->batches[1] : &r->batches[0];
    r->writing = r->encoding->n_tasks > 0 ? r->encoding : NULL;
    r->encoding = written;
    if (r->read_bytes >= DROP_BYTES) {
        sl_source_drop_cache(r->source);
        r->read_bytes = 0;
    }
    if (job->progress == NULL ||
        job->progress(job->user, r->done_bytes, sl_container_write_total(r->w)) == 0)
        return SLUICE_OK;
    return sl_fail(e, SLUICE_E_CANCELLED, "packing was interrupted");
}

sluice_err sl_pack_run(const struct sl_pack_job *job, struct sl_container_writer *w,
                       struct sl_pack_cost *costs, sluice_error *e)
{
    struct run *r = sl_alloc(job->budget, 1, sizeof *r);

    if (r == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory for packing");
    r->job = job;
    r->plan = job->plan;
    r->source = job->plan->source;
    r->w = w;
    r->tensor = sl_container_write_next(w);
    r->encoding = &r->batches[0];
    r->done_bytes = sl_container_write_kept(w);
    for (uint32_t i = 0; i < SL_THREADS_MAX; i++) r->workers[i].failed = UINT32_MAX;
    uint64_t fp = sl_fp_enter();
    sluice_err err = allocate(r, e);
    while (err == SLUICE_OK && (r->tensor < sl_source_n_tensors(r->source) || r->writing != NULL))
        err = step(r, costs, e);
    if (err == SLUICE_E_CANCELLED && r->writing != NULL) write_batch(r); /* it was work, too */
    sl_fp_leave(fp);
    sl_source_drop_cache(r->source);
    release(r);
    return err;
}
