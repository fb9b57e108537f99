/* Comparing weights; see compare.h. Tensors are cut into pieces of some 64
 * thousand weights, whole rows, and as many pieces as keep the threads busy are
 * looked at together. */
#include "pack/compare.h"

#include <math.h>
#include <string.h>

#include "base/pool.h"

#define PIECE_WEIGHTS 65536u /* of a piece, at least ROWS rows */
#define ROWS 8u              /* that some types interleave: pieces begin on multiples */
#define EXPONENT 0x7f800000u /* all ones: infinite or NaN */
#define LANES 4u
#define PIECES_A_THREAD 4u
#define DROP_WEIGHTS ((uint64_t)16 << 20) /* looked at before the page cache is given back */

struct piece {
    uint32_t pair;
    uint64_t first, rows;
    struct sl_compared found;
    sluice_err err;
    sluice_error error;
};

/* Memory of a thread. */
struct desk {
    float *x[2];
    unsigned char *stage;
};

struct run {
    const struct sl_compare *c;
    struct piece *pieces; /* [most] looked at together */
    uint32_t n, most;
    struct desk *desks;     /* [threads] */
    struct sl_compared all; /* of the pair that is under way */
    uint64_t done, total, dropped;
    sluice_error *e;
};

/* ---- sums
 * ------------------------------------------------------------------------------------
 */

static void add_bad(struct sl_not_finite *into, const struct sl_not_finite *more)
{
    uint64_t count = into->count + more->count;

    if (into->count == 0) *into = *more;
    into->count = count;
}

void sl_compared_add(struct sl_compared *into, const struct sl_compared *more)
{
    into->elements += more->elements;
    into->error_squares += more->error_squares;
    into->a_squares += more->a_squares;
    into->b_squares += more->b_squares;
    into->products += more->products;
    if (more->max_error > into->max_error) into->max_error = more->max_error;
    for (uint32_t i = 0; i < 2; i++) add_bad(&into->bad[i], &more->bad[i]);
}

double sl_compared_error(const struct sl_compared *c)
{
    if (c->error_squares == 0) return 0;
    return sqrt(c->error_squares / c->a_squares); /* infinite where a is all zeros */
}

double sl_compared_cosine(const struct sl_compared *c)
{
    double lengths = sqrt(c->a_squares) * sqrt(c->b_squares);

    if (lengths == 0) return c->a_squares == c->b_squares ? 1 : 0;
    double cosine = c->products / lengths;
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine; /* rounding */
}

static void note_bad(struct sl_not_finite *bad, const struct piece *p, uint64_t i, uint64_t cols)
{
    if (bad->count++ > 0) return;
    bad->row = p->first + i / cols;
    bad->col = i % cols;
}

/* A loop without branches, which compilers turn into vector code: nearly all weights are numbers.
 */
static bool all_finite(const float *x, uint64_t n)
{
    uint32_t bad = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & EXPONENT) == EXPONENT;
    }
    return bad == 0;
}

static void check(struct piece *p, uint32_t side, const float *x, uint64_t cols)
{
    if (all_finite(x, p->rows * cols)) return;
    for (uint64_t i = 0; i < p->rows * cols; i++) {
        if (!isfinite(x[i])) note_bad(&p->found.bad[side], p, i, cols);
    }
}

/* Sums of every LANES-th element, so that an addition need not wait for the one before it. */
struct lanes {
    double error[LANES], a[LANES], b[LANES], product[LANES], max[LANES];
};

static inline void add_pair(struct lanes *s, uint32_t lane, float x, float y)
{
    double a = x, b = y, error = fabs(a - b);

    s->error[lane] += error * error;
    s->a[lane] += a * a;
    s->b[lane] += b * b;
    s->product[lane] += a * b;
    s->max[lane] = error > s->max[lane] ? error : s->max[lane];
}

/* A pair with a value that is no number is left out. */
static void compare_two(struct piece *p, float *const x[2], uint64_t cols)
{
    struct sl_compared *f = &p->found;
    struct lanes s = {{0}, {0}, {0}, {0}, {0}};
    bool finite = f->bad[0].count == 0 && f->bad[1].count == 0;
    uint64_t n = p->rows * cols, i = 0;

    for (; finite && i + LANES <= n; i += LANES) {
        for (uint32_t k = 0; k < LANES; k++) add_pair(&s, k, x[0][i + k], x[1][i + k]);
    }
    for (; i < n; i++) {
        if (isfinite(x[0][i]) && isfinite(x[1][i])) add_pair(&s, i % LANES, x[0][i], x[1][i]);
    }
    for (uint32_t k = 0; k < LANES; k++) {
        f->error_squares += s.error[k];
        f->a_squares += s.a[k];
        f->b_squares += s.b[k];
        f->products += s.product[k];
        if (s.max[k] > f->max_error) f->max_error = s.max[k];
    }
}

/* ---- pieces
 * ----------------------------------------------------------------------------------
 */

static const struct sl_source_tensor *tensor_of(const struct run *r, uint32_t pair)
{
    return sl_source_tensor(r->c->a, r->c->pairs[pair].a);
}

static uint64_t piece_rows(const struct sl_source_tensor *t)
{
    uint64_t rows = PIECE_WEIGHTS / t->cols / ROWS * ROWS;

    return sl_min_u64(t->rows, rows > ROWS ? rows : ROWS);
}

static void work(void *arg, uint32_t task, uint32_t worker)
{
    struct run *r = arg;
    struct piece *p = &r->pieces[task];
    struct desk *desk = &r->desks[worker];
    const struct sl_compare *c = r->c;
    const struct sl_compare_pair *pair = &c->pairs[p->pair];
    uint64_t cols = tensor_of(r, p->pair)->cols;

    p->err = sl_source_rows(c->a, (struct sl_source_span){pair->a, p->first, p->rows}, desk->stage,
                            desk->x[0], &p->error);
    if (p->err == SLUICE_OK && c->b != NULL)
        p->err = sl_source_rows(c->b, (struct sl_source_span){pair->b, p->first, p->rows},
                                desk->stage, desk->x[1], &p->error);
    if (p->err != SLUICE_OK) return;
    p->found.elements = p->rows * cols;
    check(p, 0, desk->x[0], cols);
    if (c->b == NULL) return;
    check(p, 1, desk->x[1], cols);
    compare_two(p, desk->x, cols);
}

static sluice_err cancelled(const struct run *r)
{
    return sl_fail(r->e, SLUICE_E_CANCELLED, "looking at the weights was cancelled");
}

static void drop_cache(struct run *r)
{
    sl_source_drop_cache(r->c->a);
    if (r->c->b != NULL) sl_source_drop_cache(r->c->b);
    r->dropped = r->done;
}

/* Looks at the pieces that were gathered, and takes what was found in their
 * order. */
static sluice_err flush(struct run *r, struct sl_pool *pool)
{
    sl_pool_run(pool, work, r, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        struct piece *p = &r->pieces[i];
        const struct sl_source_tensor *t = tensor_of(r, p->pair);

        if (p->err != SLUICE_OK) {
            if (r->e != NULL) *r->e = p->error;
            return p->err;
        }
        sl_compared_add(&r->all, &p->found);
        r->done += p->found.elements;
        if (p->first + p->rows < t->rows) continue;
        if (r->c->found(r->c->user, p->pair, &r->all) != 0) return cancelled(r);
        memset(&r->all, 0, sizeof r->all);
    }
    r->n = 0;
    if (r->done - r->dropped >= DROP_WEIGHTS) drop_cache(r);
    if (r->c->progress != NULL && r->c->progress(r->c->user, r->done, r->total) != 0)
        return cancelled(r);
    return SLUICE_OK;
}

static sluice_err run_all(struct run *r, struct sl_pool *pool)
{
    sluice_err err = SLUICE_OK;

    for (uint32_t i = 0; i < r->c->n_pairs && err == SLUICE_OK; i++) {
        const struct sl_source_tensor *t = tensor_of(r, i);
        uint64_t step = piece_rows(t);

        for (uint64_t at = 0; at < t->rows && err == SLUICE_OK; at += step) {
            struct piece *p = &r->pieces[r->n++];

            memset(p, 0, sizeof *p);
            p->pair = i;
            p->first = at;
            p->rows = sl_min_u64(step, t->rows - at);
            if (r->n == r->most) err = flush(r, pool);
        }
    }
    if (err == SLUICE_OK && r->n > 0) err = flush(r, pool);
    drop_cache(r);
    return err;
}

/* ---- memory
 * ----------------------------------------------------------------------------------
 */

static void measure(struct run *r, uint64_t *weights, uint64_t *stage)
{
    const struct sl_compare *c = r->c;

    for (uint32_t i = 0; i < c->n_pairs; i++) {
        const struct sl_source_tensor *a = tensor_of(r, i);
        uint64_t rows = piece_rows(a);

        *weights = sl_max_u64(*weights, rows * a->cols);
        *stage = sl_max_u64(*stage, sl_source_stage_bytes(a, rows));
        r->total += a->rows * a->cols;
        if (c->b == NULL) continue;
        const struct sl_source_tensor *b = sl_source_tensor(c->b, c->pairs[i].b);
        SLUICE_ASSERT(a->rows == b->rows && a->cols == b->cols);
        *stage = sl_max_u64(*stage, sl_source_stage_bytes(b, rows));
    }
}

static bool take_memory(struct run *r, struct sl_arena *arena)
{
    uint64_t weights = 1, stage = 1;

    measure(r, &weights, &stage);
    r->most = r->c->threads * PIECES_A_THREAD;
    r->pieces = sl_arena_alloc(arena, r->most, sizeof *r->pieces);
    r->desks = sl_arena_alloc(arena, r->c->threads, sizeof *r->desks);
    if (r->pieces == NULL || r->desks == NULL) return false;
    for (uint32_t i = 0; i < r->c->threads; i++) {
        struct desk *d = &r->desks[i];

        for (uint32_t side = 0; side < (r->c->b != NULL ? 2u : 1u); side++) {
            d->x[side] = sl_arena_alloc(arena, weights, sizeof(float));
            if (d->x[side] == NULL) return false;
        }
        d->stage = sl_arena_alloc(arena, stage, 1);
        if (d->stage == NULL) return false;
    }
    return true;
}

sluice_err sl_compare_run(const struct sl_compare *c, struct sl_budget *b, sluice_error *e)
{
    struct run r = {.c = c, .e = e};
    struct sl_arena arena;
    struct sl_pool *pool = NULL;

    SLUICE_ASSERT(c->a != NULL && c->found != NULL && c->threads >= 1);
    sl_arena_init(&arena, b, 4096);
    sluice_err err = take_memory(&r, &arena) ? SLUICE_OK : SLUICE_E_NOMEM;
    if (err == SLUICE_OK) err = sl_pool_open(b, c->threads, NULL, &pool);
    if (err != SLUICE_OK)
        (void)sl_fail(e, err, "no memory for looking at weights on %u threads", c->threads);
    else
        err = run_all(&r, pool);
    sl_pool_close(pool);
    sl_arena_deinit(&arena);
    return err;
}
