/* Measuring and choosing: see choose.h. */
#include "pack/choose.h"

#include <math.h>
#include <string.h>

#include "formats/tensor_type.h"
#include "pack/encode_rows.h"

#define SAMPLES 8 /* of a class: bands of different experts, or of different places of a tensor */
#define SAMPLE_ROWS 8
/* What errors count for, where those of most experts count for 1. From the divergence that a step
 * more took off on the demo model (2026-11, 6 layers): 0.0037 for down of the first layer, 0.0006
 * for its gate or up, 0.0003 to 0.0004 for any part of another layer, where they hardly differ. Of
 * attention it can only be said that it counts for more than 1 and less than 7. */
#define FIRST_DOWN_COUNTS 10.0
#define FIRST_LAYER_COUNTS 2.0
#define DENSE_COUNTS 3.0
#define TASKS_AT_ONCE 64

/* What experts and what other matrices may become, from small to large. */
static const uint32_t expert_types[] = {SL_SQ2_32, SL_SQ2_16, SL_SQ3_32, SL_SQ3_16,   SL_SQ4_32,
                                        SL_SQ4_16, SL_SQ5_32, SL_SQ6_32, SL_TYPE_Q8_0};
static const uint32_t dense_types[] = {SL_SQ4_32, SL_SQ4_16, SL_SQ5_32, SL_SQ6_32, SL_TYPE_Q8_0};
#define STEPS_MAX (SL_ARRAY_LEN(expert_types) + 1) /* and the source's own */

struct step {
    uint32_t type;
    uint64_t bytes;
    double error;
};

/* A class that may change, and the types it may have: ascending in bytes. */
struct option {
    uint32_t class_index;
    uint32_t n_steps, at;
    struct step steps[STEPS_MAX];
    double error[SAMPLES][STEPS_MAX];
};

struct worker {
    float *x, *scratch;
    void *stage;
    unsigned char *out;
    uint32_t failed; /* the sample; UINT32_MAX: none */
    sluice_err code;
    sluice_error e;
};

struct sl_pack_choice {
    const struct sl_pack_job *job;
    struct option *options;
    uint32_t n_options;
    uint64_t fixed_bytes; /* of all other classes */
    struct worker workers[SL_THREADS_MAX];
    uint32_t first_sample; /* of the tasks under way */
};

/* ---- what may change ------------------------------------------------------------------------- */

static void offer(const struct sl_pack_plan *plan, struct option *o, uint32_t type)
{
    uint64_t bytes = 0;
    const struct sl_pack_class *c = &plan->classes[o->class_index];
    bool better = type != c->from && sl_pack_plan_can(plan, o->class_index, type, &bytes);

    if (better && bytes < c->from_bytes) o->steps[o->n_steps++] = (struct step){type, bytes, 0};
}

/* False: the class stays as it is. */
static bool list_steps(const struct sl_pack_plan *plan, uint32_t class_index, struct option *o)
{
    const struct sl_pack_class *c = &plan->classes[class_index];
    bool experts = c->kind >= SL_PACK_GATE;
    bool is_float = c->from == SL_TYPE_F32 || c->from == SL_TYPE_F16 || c->from == SL_TYPE_BF16;

    *o = (struct option){.class_index = class_index};
    if (c->rule != UINT32_MAX || c->kind == SL_PACK_NORM || c->kind == SL_PACK_ROUTER ||
        (!experts && !is_float))
        return false;
    const uint32_t *types = experts ? expert_types : dense_types;
    size_t n = experts ? SL_ARRAY_LEN(expert_types) : SL_ARRAY_LEN(dense_types);
    for (size_t i = 0; i < n; i++) offer(plan, o, types[i]);
    /* Weights that are quantized already may stay so; exact ones would be larger for nothing. */
    if (!is_float && o->n_steps > 0)
        o->steps[o->n_steps++] = (struct step){c->from, c->from_bytes, 0};
    return o->n_steps > 0;
}

static void find_options(struct sl_pack_choice *k)
{
    const struct sl_pack_plan *plan = k->job->plan;

    for (uint32_t i = 0; i < plan->n_classes; i++) {
        if (list_steps(plan, i, &k->options[k->n_options]))
            k->n_options++;
        else
            k->fixed_bytes += plan->classes[i].bytes;
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct sample {
    uint32_t tensor;
    uint64_t first, n;
};

/* Of experts, evenly distant ones; rows move on from one sample to the next. */
static struct sample place_sample(const struct sl_pack_plan *plan, const struct option *o,
                                  uint32_t i)
{
    const struct sl_pack_class *c = &plan->classes[o->class_index];
    uint64_t bands = (c->rows + SAMPLE_ROWS - 1) / SAMPLE_ROWS;
    uint64_t number = (uint64_t)i * c->n / SAMPLES; /* which of its tensors */
    struct sample s = {.tensor = c->first};

    /* Tensors of a class stand apart in the order of the source. */
    for (uint64_t k = 0; k < number;) k += plan->class_of[++s.tensor] == o->class_index;
    s.first = (2 * (uint64_t)i + 1) * bands / (2 * SAMPLES) * SAMPLE_ROWS;
    s.n = sl_min_u64(SAMPLE_ROWS, c->rows - s.first);
    return s;
}

static sluice_err fail_sample(const struct sl_pack_plan *plan, const struct sample *s,
                              struct worker *w)
{
    char name[80];

    return sl_fail(&w->e, SLUICE_E_NUMERIC,
                   "%s: tensor '%s', rows from %llu on: a value is infinite or no number; the "
                   "model is damaged",
                   sl_source_path(plan->source, s->tensor, s->first),
                   sl_str_show(sl_source_tensor(plan->source, s->tensor)->name, name, sizeof name),
                   (unsigned long long)s->first);
}

static sluice_err measure(const struct sl_pack_plan *plan, struct option *o, uint32_t i,
                          struct worker *w)
{
    struct sample s = place_sample(plan, o, i);
    const struct sl_source_tensor *t = sl_source_tensor(plan->source, s.tensor);
    struct sl_rows rows = {w->x, s.n, t->cols, plan->weights[s.tensor]};
    sluice_err err = sl_source_rows(plan->source, (struct sl_source_span){s.tensor, s.first, s.n},
                                    w->stage, w->x, &w->e);

    for (uint32_t k = 0; err == SLUICE_OK && k < o->n_steps; k++) {
        struct sl_sq_error cost = {0};
        uint64_t bad = 0;

        if (o->steps[k].type == t->type) continue;
        enum sl_encode_outcome outcome =
            sl_encode_rows(o->steps[k].type, &rows, w->out, w->scratch, &cost, &bad);
        if (outcome == SL_ENCODE_NOT_FINITE) return fail_sample(plan, &s, w);
        o->error[i][k] = cost.weighted_all > 0 ? cost.weighted / cost.weighted_all : 0;
        if (outcome == SL_ENCODE_TOO_LARGE) o->error[i][k] = INFINITY; /* cannot have that type */
    }
    return err;
}

static void run_sample(void *arg, uint32_t index, uint32_t worker)
{
    struct sl_pack_choice *k = arg;
    struct worker *w = &k->workers[worker];
    uint32_t sample = k->first_sample + index;

    if (w->failed != UINT32_MAX) return;
    w->code = measure(k->job->plan, &k->options[sample / SAMPLES], sample % SAMPLES, w);
    if (w->code != SLUICE_OK) w->failed = sample;
}

static sluice_err first_failure(const struct sl_pack_choice *k, sluice_error *e)
{
    const struct worker *first = NULL;

    for (uint32_t i = 0; i < sl_pool_threads(k->job->pool); i++) {
        const struct worker *w = &k->workers[i];
        if (w->failed != UINT32_MAX && (first == NULL || w->failed < first->failed)) first = w;
    }
    if (first == NULL) return SLUICE_OK;
    if (e != NULL) *e = first->e;
    return first->code;
}

static sluice_err measure_all(struct sl_pack_choice *k, sluice_error *e)
{
    const struct sl_pack_job *job = k->job;
    uint32_t total = k->n_options * SAMPLES;
    sluice_err err = SLUICE_OK;

    while (k->first_sample < total && err == SLUICE_OK) {
        uint32_t n =
            total - k->first_sample < TASKS_AT_ONCE ? total - k->first_sample : TASKS_AT_ONCE;

        sl_pool_run(job->pool, run_sample, k, n);
        k->first_sample += n;
        err = first_failure(k, e);
        if (err == SLUICE_OK && job->progress != NULL &&
            job->progress(job->user, k->first_sample, total) != 0)
            err = sl_fail(e, SLUICE_E_CANCELLED, "choosing types was interrupted");
    }
    sl_source_drop_cache(job->plan->source);
    return err;
}

/* ---- steps worth taking ---------------------------------------------------------------------- */

static double counts_of(const struct sl_pack_plan *plan, uint32_t class_index)
{
    const struct sl_pack_class *c = &plan->classes[class_index];

    if (c->kind < SL_PACK_GATE) return DENSE_COUNTS;
    if (c->layer != plan->first_layer) return 1;
    return c->kind == SL_PACK_DOWN ? FIRST_DOWN_COUNTS : FIRST_LAYER_COUNTS;
}

/* The mean over the samples, added in their order, times what it counts. */
static void add_samples(struct option *o, double counts)
{
    for (uint32_t k = 0; k < o->n_steps; k++) {
        for (uint32_t i = 0; i < SAMPLES; i++) o->steps[k].error += o->error[i][k];
        o->steps[k].error *= counts / SAMPLES;
    }
}

/* Leaves out types that cannot hold the values. Where none can, the source's own does. */
static void drop_unfit(const struct sl_pack_plan *plan, struct option *o)
{
    const struct sl_pack_class *c = &plan->classes[o->class_index];
    uint32_t n = 0;

    for (uint32_t k = 0; k < o->n_steps; k++)
        if (isfinite(o->steps[k].error)) o->steps[n++] = o->steps[k];
    o->n_steps = n;
    if (n == 0) o->steps[o->n_steps++] = (struct step){c->from, c->from_bytes, 0};
}

static double slope(const struct step *a, const struct step *b)
{
    return (a->error - b->error) / (double)(b->bytes - a->bytes);
}

/* Leaves the lower convex hull: each step takes off less for a byte than the one before, and every
 * one takes off something. */
static void prune(struct option *o)
{
    uint32_t n = 1;

    for (uint32_t k = 1; k < o->n_steps; k++) {
        struct step s = o->steps[k];

        if (s.bytes <= o->steps[n - 1].bytes || s.error >= o->steps[n - 1].error) continue;
        while (n > 1 && slope(&o->steps[n - 1], &s) >= slope(&o->steps[n - 2], &o->steps[n - 1]))
            n--;
        o->steps[n++] = s;
    }
    o->n_steps = n;
}

static sluice_err allocate(struct sl_pack_choice *k, sluice_error *e)
{
    const struct sl_pack_plan *plan = k->job->plan;
    struct sl_budget *b = k->job->budget;
    uint64_t cols = 1, stage = 1;
    bool ok = true;

    for (uint32_t i = 0; i < sl_source_n_tensors(plan->source); i++) {
        const struct sl_source_tensor *t = sl_source_tensor(plan->source, i);

        cols = sl_max_u64(cols, t->cols);
        stage = sl_max_u64(stage, sl_source_stage_bytes(t, sl_min_u64(SAMPLE_ROWS, t->rows)));
    }
    k->options = sl_alloc(b, (uint64_t)plan->n_classes + 1, sizeof *k->options);
    ok = k->options != NULL;
    for (uint32_t i = 0; i < sl_pool_threads(k->job->pool) && ok; i++) {
        struct worker *w = &k->workers[i];

        w->failed = UINT32_MAX;
        w->x = sl_alloc(b, SAMPLE_ROWS * cols, sizeof *w->x);
        w->scratch = sl_alloc(b, cols, sizeof *w->scratch);
        w->stage = sl_alloc(b, stage, 1);
        w->out = sl_alloc(b, 2 * SAMPLE_ROWS * cols + 64, 1); /* Q8_0 takes the most */
        ok = w->x != NULL && w->scratch != NULL && w->stage != NULL && w->out != NULL;
    }
    return ok ? SLUICE_OK : sl_fail(e, SLUICE_E_NOMEM, "no memory to measure what types cost");
}

sluice_err sl_pack_choice_open(const struct sl_pack_job *job, sluice_error *e,
                               struct sl_pack_choice **out)
{
    struct sl_pack_choice *k = sl_alloc(job->budget, 1, sizeof *k);

    *out = NULL;
    if (k == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory to choose types");
    k->job = job;
    uint64_t fp = sl_fp_enter();
    sluice_err err = allocate(k, e);
    if (err == SLUICE_OK) {
        find_options(k);
        err = measure_all(k, e);
    }
    for (uint32_t i = 0; i < k->n_options && err == SLUICE_OK; i++) {
        add_samples(&k->options[i], counts_of(job->plan, k->options[i].class_index));
        drop_unfit(job->plan, &k->options[i]);
        prune(&k->options[i]);
    }
    sl_fp_leave(fp);
    if (err != SLUICE_OK) {
        sl_pack_choice_close(k);
        return err;
    }
    *out = k;
    return SLUICE_OK;
}

void sl_pack_choice_close(struct sl_pack_choice *c)
{
    if (c == NULL) return;
    for (uint32_t i = 0; i < SL_THREADS_MAX; i++) {
        sl_free(c->workers[i].x);
        sl_free(c->workers[i].scratch);
        sl_free(c->workers[i].stage);
        sl_free(c->workers[i].out);
    }
    sl_free(c->options);
    sl_free(c);
}

/* ---- choosing -------------------------------------------------------------------------------- */

uint64_t sl_pack_choice_smallest(const struct sl_pack_choice *c)
{
    uint64_t sum = c->fixed_bytes;

    for (uint32_t i = 0; i < c->n_options; i++) sum += c->options[i].steps[0].bytes;
    return sum;
}

uint64_t sl_pack_choice_largest(const struct sl_pack_choice *c)
{
    uint64_t sum = c->fixed_bytes;

    for (uint32_t i = 0; i < c->n_options; i++)
        sum += c->options[i].steps[c->options[i].n_steps - 1].bytes;
    return sum;
}

/* The option whose next step is the best of those that fit into room; of equals the first. */
static struct option *best_step(struct sl_pack_choice *c, uint64_t room)
{
    struct option *best = NULL;
    double most = 0;

    for (uint32_t i = 0; i < c->n_options; i++) {
        struct option *o = &c->options[i];

        if (o->at + 1 == o->n_steps) continue;
        const struct step *s = &o->steps[o->at];
        if (s[1].bytes - s[0].bytes > room || (best != NULL && slope(&s[0], &s[1]) <= most))
            continue;
        best = o;
        most = slope(&s[0], &s[1]);
    }
    return best;
}

bool sl_pack_choose(struct sl_pack_choice *c, struct sl_pack_plan *plan, uint64_t limit)
{
    uint64_t sum = sl_pack_choice_smallest(c);
    bool fits = sum <= limit;

    for (uint32_t i = 0; i < c->n_options; i++) c->options[i].at = 0;
    for (struct option *o; fits && (o = best_step(c, limit - sum)) != NULL; o->at++)
        sum += o->steps[o->at + 1].bytes - o->steps[o->at].bytes;
    for (uint32_t i = 0; i < c->n_options; i++) {
        const struct option *o = &c->options[i];
        bool set = sl_pack_plan_set(plan, o->class_index, o->steps[o->at].type);

        SLUICE_ASSERT(set); /* it was asked before */
    }
    return fits;
}
